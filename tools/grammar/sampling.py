"""Drawing sentences of every kind."""

from collections.abc import Callable
from dataclasses import replace

from tools.grammar import clauses, phrases, questions, states, subordinate, times
from tools.grammar.dice import Dice
from tools.grammar.lexicon import DETERMINERS, Verb
from tools.grammar.syntax import Clause, NounPhrase, Sentence, relative_pronoun
from tools.grammar.verb_groups import (
    LASTING_VERBS,
    OBJECT_VERBS,
    PASSIVE_VERBS,
    PEOPLE,
    PERSON_VERBS,
    RELATIVE_VERBS,
    WHO_VERBS,
    takes,
)


def statement(dice: Dice) -> Sentence:
    return Sentence(clauses.action(dice))


def object_first(dice: Dice) -> Sentence:
    """Den Kuchen hat meine Großmutter gebacken, the cake was baked by my grandmother."""
    tense = dice.pick(("past", "past", "future"))
    drawn = (clauses.action(dice, PASSIVE_VERBS, tense=tense, bare=True) for _ in range(20))
    clause = next(filter(clauses.can_be_passive, drawn), None)
    if clause is None:
        return statement(dice)
    if dice.chance(0.4):
        clause = clause.with_slots(time=times.time(dice, tense))
    return Sentence(replace(clause, front="object"))


def description(dice: Dice) -> Sentence:
    return Sentence(states.description(dice))


def weather(dice: Dice) -> Sentence:
    return Sentence(states.weather(dice))


def existence(dice: Dice) -> Sentence:
    return Sentence(states.existence(dice))


def subject_relative(dice: Dice) -> Sentence:
    """Der Mann, der das Auto gekauft hat, wohnt in Berlin."""
    head = _head(dice, PEOPLE)
    clause = clauses.action(dice, PERSON_VERBS, head, bare=True)
    return Sentence(clause.with_slots(subject=replace(head, relative=_relative_of(dice, head, "past"))))


def _relative_of(dice: Dice, head: NounPhrase, tense: str) -> Clause:
    """... der das Auto gekauft hat: what the person does or did."""
    return clauses.action(
        dice, RELATIVE_VERBS, relative_pronoun(head.gender, person=True), tense=tense, bare=True
    )


def _head(dice: Dice, tags: tuple[str, ...]) -> NounPhrase:
    """A noun that a relative clause can tell apart from others."""
    nouns = [noun for noun in phrases.nouns_for(tags) if "kin" not in noun.tags]
    noun = dice.pick(nouns)
    plural = noun.german_plural is not None and dice.chance(0.25)
    determiner = DETERMINERS["ein" if noun.german_plural and not plural and dice.chance(0.25) else "d"]
    return NounPhrase(noun, determiner, plural)


def object_relative(dice: Dice) -> Sentence:
    """Ich habe das Buch gefunden, das der Lehrer geschrieben hat; den Mann getroffen, der ..."""
    person = dice.chance(0.4)
    verb = dice.pick(WHO_VERBS if person else OBJECT_VERBS)
    head = _head(dice, PEOPLE if person else takes(verb, "object"))
    clause = clauses.action(dice, [verb], clauses.subject_of(dice, PEOPLE), bare=True).with_slots(object=head)
    others = [
        one for one in LASTING_VERBS if one != verb and head.noun.tags.intersection(takes(one, "object"))
    ]
    if not (person or others):
        return object_relative(dice)
    if person:
        inner = _relative_of(dice, head, dice.pick(("past", "past", "present")))
    else:
        inner = _relative_about(dice, others, head)
    return Sentence(clause.with_slots(object=replace(head, relative=inner)))


def _relative_about(dice: Dice, verbs: list[Verb], head: NounPhrase) -> Clause:
    """... das der Lehrer geschrieben hat: what somebody else did with the same thing."""
    inner = clauses.action(dice, verbs, clauses.subject_of(dice, PEOPLE, "definite"), tense="past", bare=True)
    pronoun = relative_pronoun(head.gender, person=False)
    return replace(inner.with_slots(object=pronoun), front="object")


# What is drawn, and how often.
RECIPES: tuple[tuple[Callable[[Dice], Sentence], float], ...] = (
    (statement, 25),
    (object_first, 3),
    (description, 2.5),
    (weather, 2),
    (existence, 1),
    (questions.yes_no_question, 10),
    (questions.adverb_question, 3),
    (questions.subject_question, 2.5),
    (questions.object_question, 3),
    (subject_relative, 9),
    (object_relative, 6),
    (subordinate.reason, 8),
    (subordinate.meanwhile, 2.5),
    (subordinate.whenever, 3),
    (subordinate.reported, 11),
    (subordinate.attempt, 7),
    (subordinate.purpose, 3),
)


def sentence(dice: Dice) -> Sentence:
    """One sentence of any kind."""
    return dice.weighted(RECIPES)(dice)
