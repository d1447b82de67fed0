"""Drawing noun phrases, pronouns and places that make sense."""

from functools import cache

from tools.grammar import words
from tools.grammar.dice import Dice
from tools.grammar.lexicon import (
    ADJECTIVES,
    CIRCUMSTANCES,
    COMMON,
    DETERMINERS,
    NAMES,
    PLACES,
    PREPOSITIONS,
    TOWNS,
    Adjective,
    Determiner,
    Noun,
    Phrase,
    Preposition,
    forms,
    read_phrases,
    rows,
)
from tools.grammar.syntax import NounPhrase, PrepositionalPhrase, Pronoun

# How often each determiner is drawn, by its German stem; "2" stands for all the numbers, "0" for none at all.
WEIGHTS = {
    "subject": "d 10 mein 2 dein 1 unser 1 sein 1 dies 1 ein 1 2 1 viel .4 einig .4 all .4 jed .4 kein .4",
    "object": "d 6 ein 5 mein 1 dein .5 unser .7 sein .7 dies .7 2 1.5 0 2 viel .4 einig .5",
    "definite": "d 8 mein 2 dein 1 unser 1 sein 1 dies .7",
    "kin": "mein 4 dein 2 unser 2 sein 2",
    "mass": "0 6 d 3 mein .4 unser .3",
    "place": "d 8 ein .3 dies .4",
    "own": "d 5 mein 1.5 dein 1 unser 1.5 sein 1",
}
POSSESSIVES = ("mein", "dein", "unser", "sein")
MASC_OBJECTS = ("d", "mein", "dein", "unser", "sein", "dies")
OWNED = ("text", "clothes", "thing", "vehicle")
KIN_NEVER = ("jung", "alt", "berühmt", "wild")


@cache
def nouns_for(tags: tuple[str, ...]) -> tuple[Noun, ...]:
    """The common nouns that carry one of these tags."""
    return tuple(noun for noun in COMMON if noun.tags.intersection(tags))


@cache
def determiners_for(noun: Noun, plural: bool, role: str) -> tuple[tuple[Determiner, float], ...]:
    """The determiners that this noun takes in this role and number, with their weights."""
    if noun.german_plural is None:
        role = "mass" if role != "definite" else role
    elif "kin" in noun.tags:
        role = "kin"
    elif role == "object" and noun.category == "place":
        role = "definite"
    own = noun.category not in ("person", "animal", "place", "event") or noun.tags & {
        "kin",
        "mine",
        "pet",
        "own",
        "home",
    }
    cells = WEIGHTS[role].split()
    found = []
    for stem, weight in zip(cells[::2], cells[1::2], strict=True):
        group = {"2": [number for number, _ in rows(words.NUMBERS)], "0": [""]}.get(stem, [stem])
        share = 0 if stem in POSSESSIVES and not own else float(weight) / len(group)
        found += [
            (DETERMINERS[key], share) for key in group if share and _fits(DETERMINERS[key], noun, plural)
        ]
    return tuple(found)


def _fits(determiner: Determiner, noun: Noun, plural: bool) -> bool:
    if determiner.stem == "kein":
        return not plural
    if not determiner.stem:
        return (plural and noun.category != "person") or noun.german_plural is None
    return determiner.plural if plural else determiner.singular


@cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that make sense with this noun."""
    fitting = [adjective for adjective in ADJECTIVES if noun.tags & adjective.classes]
    if "kin" in noun.tags or "young" in noun.tags:
        fitting = [adjective for adjective in fitting if adjective.german not in KIN_NEVER]
    return tuple(fitting)


def noun_phrase(
    dice: Dice, tags: tuple[str, ...], role: str = "object", avoid: object = None, named: bool = False
) -> NounPhrase:
    """A noun phrase about something with one of these tags, other than the phrase ``avoid``; ``named``
    allows names."""
    if "person" in tags and named and dice.chance(0.15):
        return name(dice, avoid)
    nouns = nouns_for(tags)
    noun = dice.pick(nouns)
    while isinstance(avoid, NounPhrase) and noun == avoid.noun:
        noun = dice.pick(nouns)
    plural = _may_be_plural(noun) and dice.chance(0.1 if noun.tags & {"kin", "place"} else 0.25)
    determiner = dice.weighted(determiners_for(noun, plural, role))
    fitting = adjectives_for(noun)
    adjective = dice.pick(fitting) if fitting and dice.chance(0.12 if "kin" in noun.tags else 0.3) else None
    owner = None
    if noun.category in OWNED and "ride" not in noun.tags and determiner.stem == "d" and dice.chance(0.2):
        owner = _owner(dice, avoid)
    return NounPhrase(noun, determiner, plural, adjective, owner)


def _may_be_plural(noun: Noun) -> bool:
    return noun.german_plural is not None and "one" not in noun.tags


def _owner(dice: Dice, avoid: object) -> NounPhrase:
    """Whose it is: Annas, meines Bruders, der Ärztin."""
    if dice.chance(0.3):
        return name(dice, avoid)
    noun = dice.pick(nouns_for(("person",)))
    plural = _may_be_plural(noun) and dice.chance(0.1)
    return NounPhrase(noun, dice.weighted(determiners_for(noun, plural, "definite")), plural)


def name(dice: Dice, avoid: object = None) -> NounPhrase:
    """Somebody by name, other than the phrase ``avoid``."""
    noun = dice.pick(NAMES)
    while isinstance(avoid, NounPhrase) and noun == avoid.noun:
        noun = dice.pick(NAMES)
    return NounPhrase(noun, DETERMINERS[""])


def _pronouns() -> list[Pronoun]:
    found = []
    for german, english, number in rows(words.PRONOUNS):
        nominative, accusative, dative = forms(german, 3)
        person, plural = int(number[0]), number.endswith("plural")
        cases = {"nom": nominative, "acc": accusative, "dat": dative}
        found.append(Pronoun(cases, tuple(forms(english, 2)), person, plural, plural))
    return found


PRONOUNS = _pronouns()


def pronoun(dice: Dice, case: str = "nom", avoid: object = None) -> Pronoun:
    """A pronoun with a form in this case, of another person than ``avoid`` (no "I help us")."""
    fitting = [one for one in PRONOUNS if one.german[case]]
    if isinstance(avoid, Pronoun):
        fitting = [one for one in fitting if one.person != avoid.person]
    return dice.pick(fitting)


def coreferent(subject: NounPhrase | Pronoun) -> Pronoun | None:
    """The pronoun that takes up this person again; None where German and English would not agree on it."""
    if isinstance(subject, Pronoun):
        return subject if subject.kind == "personal" else None
    if subject.noun.category != "person" or subject.determiner.stem in ("kein", "jed"):
        return None
    word = "they" if subject.plural else {"m": "he", "f": "she"}.get(subject.noun.gender)
    return next((one for one in PRONOUNS if one.english[0] == word), None)


def place(dice: Dice, tags: tuple[str, ...]) -> PrepositionalPhrase | Phrase:
    """Being somewhere: in Berlin, am Bahnhof, auf dem Sofa, zu Hause."""
    if "home" in tags and dice.chance(0.25):
        return read_phrases(words.HOME)[0]
    if "town" in tags and dice.chance(0.6):
        return PrepositionalPhrase(PREPOSITIONS["in", "in"], NounPhrase(dice.pick(TOWNS), DETERMINERS[""]))
    if tags[-1] in ("on", "top", "seat") and (len(tags) == 1 or dice.chance(0.4)):
        return _furniture(dice, tags[-1], "dat")
    noun = dice.pick([noun for noun in PLACES if noun.tags.intersection(tags)])
    return being_at(dice, noun)


def being_at(dice: Dice, noun: Noun) -> PrepositionalPhrase:
    """The place with the preposition of being there: am alten Bahnhof, at the old train station."""
    german, english = noun.preposition
    return PrepositionalPhrase(Preposition(german, "dat", english), _place_phrase(dice, noun))


def _furniture(dice: Dice, tag: str, case: str) -> PrepositionalPhrase:
    """auf dem Sofa, unter dem Bett."""
    noun = dice.pick(nouns_for((tag,)))
    under = tag == "on" and "under" in noun.tags and dice.chance(0.3)
    german, english = ("unter", "under") if under else ("auf", "on")
    return PrepositionalPhrase(Preposition(german, case, english), _place_phrase(dice, noun))


def _place_phrase(dice: Dice, noun: Noun) -> NounPhrase:
    determiner = dice.weighted(determiners_for(noun, False, "own" if "own" in noun.tags else "place"))
    adjective = dice.pick(adjectives_for(noun)) if dice.chance(0.15) else None
    return NounPhrase(noun, determiner, adjective=adjective)


def goal(dice: Dice, tags: tuple[str, ...]) -> PrepositionalPhrase | Phrase:
    """Going somewhere: nach Berlin, zum Bahnhof, in den Park."""
    if tags == ("top",):
        return _furniture(dice, "top", "acc")
    if "town" in tags:
        return PrepositionalPhrase(PREPOSITIONS["nach", "to"], NounPhrase(dice.pick(TOWNS), DETERMINERS[""]))
    if dice.chance(0.08):
        return read_phrases(words.HOME)[1]
    noun = dice.pick([noun for noun in PLACES if noun.tags.intersection(tags)])
    german = noun.preposition[0]
    preposition = Preposition("zu", "dat", "to") if german == "an" else Preposition(german, "acc", "to")
    return PrepositionalPhrase(preposition, _place_phrase(dice, noun))


def origin(dice: Dice) -> PrepositionalPhrase:
    """aus Italien, from Italy."""
    return PrepositionalPhrase(
        Preposition("aus", "dat", "from"), NounPhrase(dice.pick(TOWNS), DETERMINERS[""])
    )


def cause(dice: Dice) -> PrepositionalPhrase:
    """wegen des Regens, trotz der Kälte."""
    preposition = PREPOSITIONS[dice.pick((("wegen", "because of"), ("trotz", "despite")))]
    return PrepositionalPhrase(preposition, NounPhrase(dice.pick(CIRCUMSTANCES), DETERMINERS["d"]))


def vehicle(dice: Dice) -> PrepositionalPhrase:
    """mit dem Zug, by train."""
    return PrepositionalPhrase(
        PREPOSITIONS["mit", "by"], NounPhrase(dice.pick(nouns_for(("by",))), DETERMINERS["d"])
    )
