"""Drawing clauses that say how something is: with sein, about the weather, with es gibt."""

from dataclasses import replace

from tools.grammar import clauses, phrases, times, words
from tools.grammar.dice import Dice
from tools.grammar.lexicon import DETERMINERS, THERE_IS, TO_BE, WEATHER_VERBS, WEATHER_WORDS
from tools.grammar.syntax import IT, THERE, AdjectivePhrase, Clause, NounPhrase, Phrase, Pronoun

STATES = words.STATES.split()
COLOURS = words.COLOURS.split()


def description(dice: Dice) -> Clause:
    """Somebody or something is like this: Der Garten war sehr groß."""
    tags = dice.pick(
        (("person",), ("animal",), ("clothes", "thing", "vehicle"), ("text",), ("place",), ("food", "drink"))
    )
    subject = clauses.subject_of(dice, tags, "definite")
    subject = replace(subject, adjective=None) if isinstance(subject, NounPhrase) else subject
    return describe(dice, subject, dice.pick(("past", "present")))


def describe(dice: Dice, subject: NounPhrase | Pronoun, tense: str, states: bool = False) -> Clause:
    """The subject with an adjective that fits it; ``states`` for what passes, such as hunger."""
    person = next(noun for noun in phrases.nouns_for(("person",)) if "kin" not in noun.tags)
    fitting = phrases.adjectives_for(person if isinstance(subject, Pronoun) else _known(subject, person))
    if states:
        fitting = [adjective for adjective in fitting if adjective.english in STATES]
    adjective = dice.pick(fitting)
    degree = dice.chance(0.35) and adjective.english not in (*COLOURS, "broken")
    degree = times.phrase_of(dice, words.STRENGTHS if states else words.DEGREES) if degree else None
    clause = Clause(TO_BE, {"subject": subject, "predicate": AdjectivePhrase(adjective, degree)}, tense)
    if not states and degree is None and dice.chance(0.2):
        return replace(clause, negated=True)
    if adjective.english in STATES and not states and degree is None and dice.chance(0.5):
        return clauses.with_front(dice, clause.with_slots(**_state_time(dice, tense)))
    return clause


def _known(subject: NounPhrase, person: object) -> object:
    return person if subject.noun.is_name else subject.noun


def _state_time(dice: Dice, tense: str) -> dict[str, Phrase]:
    if dice.chance(0.5):
        return {"frequency": times.phrase_of(dice, words.FREQUENCIES)}
    return {"time": times.phrase_of(dice, words.PAST_TIMES if tense == "past" else words.PRESENT_TIMES)}


def weather(dice: Dice, tense: str | None = None, bare: bool = False, simple: bool = False) -> Clause:
    """Es hat gestern geregnet, it rained yesterday; es ist kalt, it is cold."""
    tense = tense or dice.weighted(clauses.TENSES)
    if dice.chance(0.5):
        clause = Clause(dice.pick(WEATHER_VERBS), {"subject": IT}, tense, simple=simple)
    else:
        predicate = AdjectivePhrase(dice.pick(WEATHER_WORDS))
        clause = Clause(TO_BE, {"subject": IT, "predicate": predicate}, tense, simple=simple)
    if bare:
        return clause
    if dice.chance(0.7):
        clause = clause.with_slots(time=times.time(dice, tense))
    if dice.chance(0.5):
        clause = clause.with_slots(place=phrases.place(dice, ("town", "out")))
    return clauses.with_front(dice, clause)


def existence(dice: Dice) -> Clause:
    """Im Park gibt es einen alten Baum, there is an old tree in the park."""
    tags, places = dice.pick(
        ((("plant", "animal"), ("out",)), (("furniture", "fragile"), ("home", "eat", "tidy")))
    )
    target = phrases.noun_phrase(dice, tags, "object")
    if target.determiner.stem not in ("ein", "viel", "einig") and target.determiner.kind != "none":
        target = replace(target, determiner=DETERMINERS["viel" if target.plural else "ein"], owner=None)
    noun = dice.pick([noun for noun in phrases.PLACES if noun.tags.intersection(places)])
    where = phrases.being_at(dice, noun)
    there = replace(THERE, english_plural=target.plural)
    front = "place" if dice.chance(0.5) else "subject"
    slots = {"subject": there, "object": target, "place": where}
    return Clause(THERE_IS, slots, dice.pick(("past", "present")), front=front)
