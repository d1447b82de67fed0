"""Drawing sentences with a subordinate clause: reasons, reports, attempts, purposes."""

from dataclasses import replace

from tools.grammar import clauses, phrases, states
from tools.grammar.dice import Dice
from tools.grammar.lexicon import CLAUSE_VERBS, MODALS, PLAIN_VERBS, Verb
from tools.grammar.questions import affirmed
from tools.grammar.syntax import Clause, NounPhrase, PrepositionalPhrase, Pronoun, Sentence, Subordinate
from tools.grammar.verb_groups import AIM_VERBS, GOAL_VERBS, PEOPLE, PERSON_VERBS, full_name, takes

# Where one goes, and what for.
PURPOSES = {
    "shop": "kaufen ein+kaufen",
    "sight": "treffen fotografieren",
    "eat": "treffen essen trinken",
    "meet": "treffen ab+holen",
    "work": "helfen ab+holen",
    "town": "besuchen treffen",
}
# What follows from how one feels or from the weather (because, when), and what one does in spite of it
# (although).
FEELINGS = {
    "hungry": ("essen backen kochen", "warten arbeiten lernen"),
    "thirsty": ("trinken", "arbeiten warten wandern"),
    "tired": ("schlafen bleiben", "tanzen arbeiten kochen lesen auf+räumen lernen fern+sehen"),
    "sick": ("bleiben schlafen an+rufen", "arbeiten aus+gehen tanzen wandern schwimmen"),
    "sad": ("weinen an+rufen besuchen", "lachen lächeln tanzen singen"),
    "happy": ("tanzen lachen singen ein+laden lächeln", "weinen"),
    "nervous": ("lernen an+rufen", "lächeln singen schlafen"),
}
WEATHERS = {
    "wet": ("bleiben fern+sehen lesen kochen", "wandern schwimmen arbeiten aus+gehen gehen"),
    "cold": ("bleiben an+ziehen kochen", "wandern schwimmen aus+gehen tanzen"),
    "warm": ("schwimmen trinken aus+ziehen aus+gehen wandern", "arbeiten bleiben fern+sehen lernen"),
}
KINDS_OF_WEATHER = {"warm": "warm", "hot": "warm", "sunny": "warm", "rain": "wet", "snow": "cold"}


def reason(dice: Dice) -> Sentence:
    """Der Lehrer ist zu Hause geblieben, weil er müde war; obwohl es geregnet hat."""
    tense = dice.pick(("past", "past", "present"))
    if dice.chance(0.3):
        return _plan(dice, tense)
    conjunction = dice.pick((("weil", "because"), ("weil", "because"), ("obwohl", "although")))
    return _because(dice, conjunction, tense)


def whenever(dice: Dice) -> Sentence:
    """Wenn es regnet, bleiben die Kinder zu Hause."""
    return _because(dice, ("wenn", "when"), "present")


def _because(dice: Dice, conjunction: tuple[str, str], tense: str) -> Sentence:
    """A feeling or the weather, and what somebody does because or in spite of it."""
    simple = conjunction[0] == "wenn"
    subject = clauses.subject_of(dice, PEOPLE, "definite")
    subject = replace(subject, adjective=None) if isinstance(subject, NounPhrase) else subject
    again = phrases.coreferent(subject)
    if again and dice.chance(0.6):
        sub = states.describe(dice, again, tense, states=True)
        verbs = FEELINGS[sub.slots["predicate"].adjective.english]
    else:
        sub = states.weather(dice, tense, bare=True, simple=simple)
        verbs = WEATHERS[KINDS_OF_WEATHER.get(_weather_word(sub), "cold")]
    names = verbs[conjunction[0] == "obwohl"].split()
    fitting = [verb for verb in PERSON_VERBS if full_name(verb) in names and _usual(verb, simple)]
    main = clauses.action(dice, fitting, subject, tense=tense, bare=True, simple=simple)
    return Sentence(main, sub=Subordinate(conjunction, sub), sub_first=dice.chance(0.4))


def _weather_word(clause: Clause) -> str:
    """rain, snow, cold, ..."""
    predicate = clause.slots.get("predicate")
    return predicate.adjective.english if predicate else clause.verb.english[0]


def _usual(verb: Verb, simple: bool) -> bool:
    return clauses.can_be_habit(verb) or not simple


def _plan(dice: Dice, tense: str) -> Sentence:
    """Sie ist nach Berlin gefahren, weil sie ihren Bruder besuchen wollte."""
    main, verbs = _journey(dice, tense)
    again = phrases.coreferent(main.slots["subject"])
    if again is None:
        return _plan(dice, tense)
    sub = clauses.action(dice, verbs, again, tense=tense, bare=True)
    wish = dice.pick([one for one in MODALS if one.german in ("wollen", "müssen")])
    return Sentence(
        main, sub=Subordinate(("weil", "because"), replace(sub, modal=wish)), sub_first=dice.chance(0.4)
    )


def meanwhile(dice: Dice) -> Sentence:
    """Der Vater hat gekocht, während die Kinder gespielt haben."""
    verbs = [verb for verb in PERSON_VERBS if not {"state", "event", "sudden"}.intersection(verb.flags)]
    tense = dice.pick(("past", "present"))
    main = clauses.action(dice, verbs, tense=tense, bare=True)
    verb = dice.pick(verbs)
    other = phrases.noun_phrase(dice, verb.subjects, "definite", avoid=main.slots["subject"])
    sub = clauses.action(dice, [verb], other, tense=tense, bare=True)
    return Sentence(main, sub=Subordinate(("während", "while"), sub), sub_first=dice.chance(0.4))


def reported(dice: Dice) -> Sentence:
    """Die Ärztin sagt, dass der Junge krank ist; ich weiß nicht, ob der Zug angekommen ist."""
    conjunction = ("dass", "that") if dice.chance(0.65) else ("ob", "whether")
    verbs = [verb for verb in CLAUSE_VERBS if conjunction[0] in verb.clauses]
    verb = dice.pick(verbs)
    subject = clauses.subject_of(dice, PEOPLE, "definite")
    tense = "present" if verb.german == "wissen" else dice.pick(("past", "present"))
    doubtful = conjunction[0] == "ob" and verb.german == "wissen"
    may_doubt = tense == "present" and verb.german in ("glauben", "wissen")
    negated = doubtful or (may_doubt and dice.chance(0.2))
    main = Clause(verb, {"subject": subject}, tense, negated=negated)
    sub = clauses.action(dice, tense="past" if tense == "past" else None)
    inner = sub.slots["subject"]
    if isinstance(subject, Pronoun) and isinstance(inner, Pronoun) and subject.person == inner.person:
        return reported(dice)
    sub = affirmed(sub) if conjunction[0] == "ob" or negated else sub
    front = "experiencer" if "experiencer" in sub.slots else "subject"
    return Sentence(main, sub=Subordinate(conjunction, replace(sub, front=front)))


def attempt(dice: Dice) -> Sentence:
    """Sie hat versucht, das Fenster zu öffnen."""
    verb = dice.pick([verb for verb in CLAUSE_VERBS if "zu" in verb.clauses])
    subject, tense = clauses.subject_of(dice, PEOPLE, "definite"), dice.pick(("past", "past", "present"))
    main = clauses.action(dice, [verb], subject, tense=tense, bare=True)
    return Sentence(main, sub=Subordinate(("", "to"), _infinitive(dice, AIM_VERBS, main)))


def _infinitive(dice: Dice, verbs: list[Verb], main: Clause) -> Clause:
    return clauses.action(dice, verbs, main.slots["subject"], tense="present", bare=True)


def purpose(dice: Dice) -> Sentence:
    """Ich gehe auf den Markt, um Obst zu kaufen."""
    main, verbs = _journey(dice, None)
    return Sentence(main, sub=Subordinate(("um", "to"), _infinitive(dice, verbs, main)))


def _journey(dice: Dice, tense: str | None) -> tuple[Clause, list[Verb]]:
    """Going somewhere, and the verbs for what one may want there."""
    main = clauses.action(dice, GOAL_VERBS, tense=tense, bare=True)
    target = main.slots["goal"]
    if not isinstance(target, PrepositionalPhrase):
        return _journey(dice, tense)
    tags = target.inner.noun.tags
    names = next((PURPOSES[tag] for tag in PURPOSES if tag in tags), PURPOSES["meet"]).split()
    verbs = [verb for verb in PLAIN_VERBS if full_name(verb) in names]
    if "shop" in tags:
        verbs = [verb for verb in verbs if takes(verb, "object") in ((), ("food", "drink"))]
    return main, verbs
