"""Drawing questions."""

from dataclasses import replace

from tools.grammar import clauses, phrases, words
from tools.grammar.dice import Dice
from tools.grammar.lexicon import DETERMINERS, PLAIN_VERBS, read_phrases
from tools.grammar.syntax import WHAT, WHO, Clause, NounPhrase, PrepositionalPhrase, Sentence
from tools.grammar.verb_groups import (
    DATIVE_VERBS,
    OBJECT_VERBS,
    PEOPLE,
    PERSON_VERBS,
    PREPOSITION_VERBS,
    RELATIVE_VERBS,
    WHO_VERBS,
    takes,
)


def affirmed(clause: Clause) -> Clause:
    """The clause without negation and "never", as questions ask it."""
    slots = {slot: element for slot, element in clause.slots.items() if slot != "frequency"}
    target = slots.get("object")
    if isinstance(target, NounPhrase) and target.determiner.stem == "kein":
        plain = "d" if target.noun.german_plural is None or target.plural else "ein"
        slots["object"] = replace(target, determiner=DETERMINERS[plain])
    return replace(
        clause, slots=slots, negated=False, simple=clause.simple and "frequency" not in clause.slots
    )


def yes_no_question(dice: Dice) -> Sentence:
    """Hat der Lehrer das Auto gekauft?"""
    verb = dice.pick(PLAIN_VERBS)
    subject = None if "person" not in verb.subjects else clauses.subject_of(dice, verb.subjects, "definite")
    clause = affirmed(clauses.action(dice, [verb], subject))
    return Sentence(
        replace(clause, front="experiencer" if "experiencer" in clause.slots else "subject"), question=True
    )


def adverb_question(dice: Dice) -> Sentence:
    """Wo, wann, warum hat der Lehrer das Auto gekauft?"""
    asked = dice.pick(read_phrases(words.QUESTION_ADVERBS))
    slot = {"wo": "place", "wann": "time", "warum": "cause"}[asked.german[0][0]]
    verbs = [verb for verb in PERSON_VERBS if "state" not in verb.flags]
    if slot == "place":
        verbs = [verb for verb in verbs if verb.places]
    verb = dice.pick(verbs)
    clause = clauses.action(dice, [verb], clauses.subject_of(dice, verb.subjects, "definite"), bare=True)
    if slot == "time" and clause.tense == "present":
        clause = replace(clause, tense="future", modal=None)
    return Sentence(replace(clause.with_slots(**{slot: asked}), front=slot), question=True)


def subject_question(dice: Dice) -> Sentence:
    """Wer hat den Kuchen gegessen? Welche Ärztin wohnt in Berlin?"""
    who = WHO
    if dice.chance(0.4):
        noun = dice.pick([noun for noun in phrases.nouns_for(PEOPLE) if "kin" not in noun.tags])
        who = NounPhrase(noun, DETERMINERS["welch"], plural=dice.chance(0.3))
    clause = clauses.action(dice, RELATIVE_VERBS, who)
    return Sentence(replace(affirmed(clause), front="subject"), question=True)


def object_question(dice: Dice) -> Sentence:
    """Was hat die Frau gekauft? Welches Buch? Wie viele Bücher? Wen hat sie besucht? Wem, auf wen?"""
    kind = dice.pick(("what", "which", "which", "who", "whom", "preposition"))
    verbs = {"who": WHO_VERBS, "whom": DATIVE_VERBS, "preposition": PREPOSITION_VERBS}.get(kind, OBJECT_VERBS)
    verb = dice.pick(verbs)
    subject = clauses.subject_of(dice, ("person",), "definite")
    clause = clauses.action(dice, [verb], subject, bare=True)
    slot = {"whom": "indirect", "preposition": "prep"}.get(kind, "object")
    if kind == "preposition":
        asked = PrepositionalPhrase(clause.slots["prep"].preposition, WHO)
    elif kind == "which":
        asked = _which(dice, takes(verb, "object"))
    else:
        asked = WHAT if kind == "what" else WHO
    return Sentence(replace(clause.with_slots(**{slot: asked}), front=slot), question=True)


def _which(dice: Dice, tags: tuple[str, ...]) -> NounPhrase:
    """welches Buch, wie viele Bücher."""
    noun = dice.pick(phrases.nouns_for(tags))
    plural = noun.german_plural is not None and dice.chance(0.5)
    many = plural and dice.chance(0.6)
    return NounPhrase(noun, DETERMINERS["wie_viele" if many else "welch"], plural)
