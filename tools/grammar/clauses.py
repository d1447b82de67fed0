"""Drawing clauses: a verb, what it takes, its tense, and circumstances that fit it."""

from collections.abc import Sequence
from dataclasses import replace

from tools.grammar import phrases, times, words
from tools.grammar.dice import Dice
from tools.grammar.lexicon import DETERMINERS, MODALS, PLAIN_VERBS, PREPOSITIONS, Complement, Modal, Verb
from tools.grammar.syntax import Clause, Element, NounPhrase, Phrase, PrepositionalPhrase, Pronoun

TENSES = (("past", 4.5), ("present", 2.5), ("future", 1.3))
MOST_CIRCUMSTANCES = 3


def can_be_habit(verb: Verb) -> bool:
    """Whether the simple present differs from the past (not: they read, they put)."""
    return verb.english[0] != verb.english[1]


def subject_of(dice: Dice, tags: tuple[str, ...], role: str = "subject") -> NounPhrase | Pronoun:
    """Somebody or something that acts; for people often a pronoun."""
    if "person" in tags and dice.chance(0.3):
        return phrases.pronoun(dice)
    return phrases.noun_phrase(dice, tags, role, named=True)


def action(
    dice: Dice,
    verbs: Sequence[Verb] = PLAIN_VERBS,
    subject: Element | None = None,
    tense: str | None = None,
    bare: bool = False,
    simple: bool = False,
) -> Clause:
    """A clause in which something is done; ``bare`` leaves out negation and circumstances."""
    verb = dice.pick(verbs)
    negated = not bare and dice.chance(0.13)
    if subject is None:
        subject = subject_of(dice, verb.subjects, "definite" if negated else "subject")
    clause = Clause(verb, {"subject": subject}, **_tense_and_modal(dice, verb, tense), simple=simple)
    for complement in verb.complements:
        clause = clause.with_slots(**complement_of(dice, complement, clause, definite=negated))
    if "experiencer" in clause.slots:
        theme = phrases.noun_phrase(dice, verb.subjects, "definite")
        clause = replace(clause.with_slots(subject=theme), front="experiencer")
    if isinstance(subject, NounPhrase) and subject.determiner.stem == "kein":
        clause = replace(clause, modal=None)
    if negated:
        return _with_time(dice, negate(dice, clause), denied=True)
    return clause if bare else circumstances(dice, clause)


def _tense_and_modal(dice: Dice, verb: Verb, tense: str | None) -> dict:
    """A tense, and a modal verb for what somebody does of their own will."""
    if "state" in verb.flags:
        return {"tense": tense or dice.pick(("past", "present"))}
    if "sudden" in verb.flags:
        return {"tense": "future" if tense == "future" else "past"}
    free = tense is None
    tense = tense or dice.weighted(TENSES)
    willing = "event" not in verb.flags and set(verb.subjects).intersection(("person", "young"))
    if not (free and willing and tense != "future" and dice.chance(0.4)):
        return {"tense": tense}
    return {"tense": tense, "modal": modal(dice, tense)}


def modal(dice: Dice, tense: str) -> Modal:
    """A modal verb that has this tense."""
    return dice.pick([one for one in MODALS if tense == "present" or one.simple_past])


def complement_of(
    dice: Dice, complement: Complement, clause: Clause, definite: bool = False
) -> dict[str, Element]:
    """What fills the slot of a complement."""
    subject, slot, tags = clause.slots["subject"], complement.slot, complement.tags
    if slot in ("place", "goal", "onto"):
        draw = phrases.place if slot == "place" else phrases.goal
        return {slot: draw(dice, tags)}
    if slot == "origin":
        return {slot: phrases.origin(dice)}
    if slot == "experiencer":
        return {
            slot: phrases.pronoun(dice, "dat")
            if dice.chance(0.4)
            else phrases.noun_phrase(dice, tags, "definite")
        }
    role = "object" if slot == "object" and not definite else "definite"
    case = complement.preposition.case if slot == "prep" else {"object": "acc"}.get(slot, "dat")
    if "person" in tags and dice.chance(0.25):
        inner = phrases.pronoun(dice, case, avoid=subject)
    else:
        # A name shows no case, and behind a noun it reads as that person's name: mein Sohn Peter.
        named = slot == "prep" or (
            slot == "object" and isinstance(subject, Pronoun) and subject.kind == "personal"
        )
        inner = phrases.noun_phrase(dice, tags, role, avoid=subject, named=named)
    if tags == ("worn",) and isinstance(inner, NounPhrase):
        inner = replace(inner, owner=None)
    return {slot: PrepositionalPhrase(complement.preposition, inner) if slot == "prep" else inner}


def negate(dice: Dice, clause: Clause) -> Clause:
    """The clause denied: with kein at an object that can take it, else with nicht."""
    target = clause.slots.get("object")
    plain = isinstance(target, NounPhrase) and not target.noun.is_name and "kin" not in target.noun.tags
    if plain and not target.owner and dice.chance(0.5):
        return clause.with_slots(object=replace(target, determiner=DETERMINERS["kein"]))
    return replace(clause, negated=True)


def circumstances(dice: Dice, clause: Clause) -> Clause:
    """The clause with at most three circumstances: when, how often, where, with whom, for whom, how, why."""
    clause = _with_time(dice, clause)
    for slot, chance, draw in _chances(clause):
        enough = len(clause.slots) > 1 + len(clause.verb.complements) + MOST_CIRCUMSTANCES - 1
        if not enough and dice.chance(chance):
            clause = clause.with_slots(**{slot: draw(dice)})
    return with_front(dice, clause)


def _chances(clause: Clause) -> list:
    """(slot, probability, how it is drawn) for the circumstances that fit the verb."""
    verb, subject = clause.verb, clause.slots["subject"]
    person = lambda dice: phrases.noun_phrase(dice, ("person",), "definite", avoid=subject)  # noqa: E731
    found = []
    if verb.places and not {"place", "goal"}.intersection(clause.slots):
        found.append(("place", 0.5, lambda dice: phrases.place(dice, verb.places)))
    if "by" in verb.flags:
        found.append(("by", 0.4, phrases.vehicle))
    if "with" in verb.flags and "by" not in verb.flags:
        found.append(
            ("with", 0.25, lambda dice: PrepositionalPhrase(PREPOSITIONS["mit", "with"], person(dice)))
        )
    if "for" in verb.flags:
        found.append(
            ("for", 0.25, lambda dice: PrepositionalPhrase(PREPOSITIONS["für", "for"], person(dice)))
        )
    if "manner" in verb.flags and "frequency" not in clause.slots:
        found.append(("manner", 0.2, lambda dice: times.phrase_of(dice, words.MANNERS)))
    acting = not {"state", "event", "sudden"}.intersection(verb.flags) and "object" not in clause.slots
    if acting and clause.tense == "past":
        found.append(("cause", 0.06, phrases.cause))
    return found


def _with_time(dice: Dice, clause: Clause, denied: bool = False) -> Clause:
    """The clause with a time that its tense allows, or, unless ``denied``, an adverb of frequency."""
    verb = clause.verb
    if "state" in verb.flags:
        return clause
    usual = can_be_habit(verb) and not (denied or clause.modal or {"event", "sudden", "once"} & verb.flags)
    if usual and clause.tense != "future" and dice.chance(0.12):
        simple = clause.tense == "present"
        return replace(clause.with_slots(frequency=times.phrase_of(dice, words.FREQUENCIES)), simple=simple)
    if not dice.chance(0.6):
        return clause
    kind = clause.tense
    if kind == "present":
        kind = "present" if denied and not clause.modal else dice.pick(_present_kinds(clause, usual))
    when = times.time(dice, kind, calendar=clause.tense != "present")
    clause = replace(clause.with_slots(time=when), simple=kind == "habit")
    if kind != "present" and _is_day(when) and dice.chance(0.2):
        return clause.with_slots(clock=times.clock(dice))
    return clause


def _is_day(when: Phrase) -> bool:
    """Whether an hour may stand behind the time: gestern um acht Uhr, but not gestern Abend or im Sommer."""
    first, last = when.german[0][0], when.german[-1][0]
    days = ("gestern", "vorgestern", "morgen", "übermorgen", "am", "jeden")
    return first in days and not last.endswith(("Abend", "abend", "Morgen", "Wochenende"))


def _present_kinds(clause: Clause, usual: bool) -> list[str]:
    """What times the present goes with: now, what is planned, what is usual."""
    planned = "aim" in clause.verb.flags or "goal" in clause.slots
    kinds = ["future"] if planned or clause.modal else []
    kinds += [] if clause.modal else ["present"]
    return [*kinds, "habit"] if usual else kinds


def with_front(dice: Dice, clause: Clause) -> Clause:
    """The clause with a circumstance in front, or its object (then English has the passive)."""
    if clause.front != "subject":
        return clause
    for slot, chance in (("time", 0.35), ("cause", 0.6), ("place", 0.2)):
        required = slot in [complement.slot for complement in clause.verb.complements]
        if slot in clause.slots and not required and dice.chance(chance):
            return replace(clause, front=slot)
    if can_be_passive(clause) and dice.chance(0.5):
        return replace(clause, front="object")
    return clause


def can_be_passive(clause: Clause) -> bool:
    """Whether the object may stand first: den, meinen, diesen must show that it is the object."""
    target, subject = clause.slots.get("object"), clause.slots["subject"]
    known = isinstance(target, NounPhrase) and target.determiner.stem in phrases.MASC_OBJECTS
    known = known and not (target.owner and target.owner.noun.is_name)
    acting = isinstance(subject, NounPhrase) and subject.determiner.stem != "kein"
    shown = known and target.gender == "m"
    plain = not clause.verb.tail and len(clause.verb.complements) == 1 and not clause.modal
    usual = not {"state", "event", "sudden"}.intersection(clause.verb.flags) and clause.tense != "present"
    return (
        shown
        and acting
        and plain
        and usual
        and set(clause.slots) <= {"subject", "object", "time", "clock", "place"}
    )
