"""Drawing sentences of every kind."""

from collections.abc import Callable
from dataclasses import replace

from annotated.data.grammar import clauses, phrases, questions, states, subordinate
from annotated.data.grammar.dice import Dice
from annotated.data.grammar.lexicon import DETERMINERS, Verb
from annotated.data.grammar.syntax import Clause, NounPhrase, Sentence, relative_pronoun
from annotated.data.grammar.verb_groups import (
    OBJECT_VERBS,
    PEOPLE,
    PERSON_VERBS,
    RELATIVE_VERBS,
    WHO_VERBS,
    takes,
)


def statement(dice: Dice) -> Sentence:
    return Sentence(clauses.action(dice))


def description(dice: Dice) -> Sentence:
    return Sentence(states.description(dice))


def weather(dice: Dice) -> Sentence:
    return Sentence(states.weather(dice))


def existence(dice: Dice) -> Sentence:
    return Sentence(states.existence(dice))


def subject_relative(dice: Dice) -> Sentence:
    """Der Mann, der das Auto gekauft hat, wohnt in Berlin."""
    clause = clauses.action(dice, PERSON_VERBS, bare=True, subject=_head(dice, PEOPLE))
    head = clause.slots["subject"]
    if "experiencer" in clause.slots:
        return statement(dice)
    relative = _relative_of(dice, head)
    return Sentence(clause.with_slots(subject=replace(head, relative=relative)))


def _relative_of(dice: Dice, head: NounPhrase) -> Clause:
    """... der das Auto gekauft hat: what the person does or did."""
    pronoun = relative_pronoun(head.gender, person=True)
    return clauses.action(
        dice, RELATIVE_VERBS, pronoun, tense=dice.pick(("past", "past", "present")), bare=True
    )


def _head(dice: Dice, tags: tuple[str, ...]) -> NounPhrase:
    """A noun that a relative clause can tell apart from others."""
    nouns = [noun for noun in phrases.nouns_for(tags) if "kin" not in noun.tags]
    noun = dice.pick(nouns)
    plural = noun.german_plural is not None and dice.chance(0.25)
    role = "definite" if noun.german_plural is None else "head"
    determiner = dice.weighted(phrases.determiners_for(noun, plural, role))
    return NounPhrase(noun, DETERMINERS["d"] if determiner.stem == "ein" and plural else determiner, plural)


def object_relative(dice: Dice) -> Sentence:
    """Ich habe das Buch gefunden, das der Lehrer geschrieben hat; den Mann getroffen, der ..."""
    person = dice.chance(0.4)
    verb = dice.pick(WHO_VERBS if person else OBJECT_VERBS)
    head = _head(dice, PEOPLE if person else takes(verb, "object"))
    clause = clauses.action(dice, [verb], clauses.subject_of(dice, PEOPLE), bare=True).with_slots(object=head)
    if person:
        inner = _relative_of(dice, head)
    else:
        inner = _relative_about(dice, verb, head)
    return Sentence(clause.with_slots(object=replace(head, relative=inner)))


def _relative_about(dice: Dice, verb: Verb, head: NounPhrase) -> Clause:
    """... das der Lehrer geschrieben hat: what somebody else did with the same thing."""
    verbs = [one for one in OBJECT_VERBS if one != verb and head.noun.tags.intersection(takes(one, "object"))]
    inner = clauses.action(
        dice, verbs or [verb], clauses.subject_of(dice, PEOPLE, "definite"), bare=True, tense="past"
    )
    pronoun = relative_pronoun(head.gender, person=False)
    return replace(inner.with_slots(object=pronoun), front="object")


# What is drawn, and how often.
RECIPES: tuple[tuple[Callable[[Dice], Sentence], float], ...] = (
    (statement, 28),
    (description, 3),
    (weather, 2),
    (existence, 1.5),
    (questions.yes_no_question, 9),
    (questions.adverb_question, 4),
    (questions.subject_question, 3),
    (questions.object_question, 5),
    (subject_relative, 7),
    (object_relative, 6),
    (subordinate.reason, 8),
    (subordinate.meanwhile, 3),
    (subordinate.whenever, 3),
    (subordinate.reported, 9),
    (subordinate.attempt, 5),
    (subordinate.purpose, 3),
)


def sentence(dice: Dice) -> Sentence:
    """One sentence of any kind."""
    return dice.weighted(RECIPES)(dice)
