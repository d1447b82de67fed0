"""The tables of nouns.py, verbs.py and words.py, read into entries."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.grammar import nouns, verbs, words

GENDERS = {"der": "m", "die": "f", "das": "n"}


@dataclass(frozen=True)
class Noun:
    """A noun of both languages; ``preposition`` is the German and English one of being there, for places."""

    german: str
    german_plural: str | None
    gender: str
    weak: bool
    english: str
    english_plural: str | None
    tags: frozenset[str]
    category: str
    preposition: tuple[str, str] | None = None

    @property
    def is_name(self) -> bool:
        return "name" in self.tags or self.category == "town"


@dataclass(frozen=True)
class Complement:
    """What a verb takes in one slot: the classes of noun that fit and, for "prep", the preposition."""

    slot: str
    tags: tuple[str, ...]
    preposition: "Preposition | None" = None


@dataclass(frozen=True)
class Verb:
    """A verb of both languages; ``english`` is base, past, participle, ``tail`` and ``particle`` follow."""

    german: str
    prefix: str
    third: str | None
    participle: str | None
    auxiliary: str
    simple_past: str | None
    english: tuple[str, str, str]
    tail: tuple[str, ...]
    particle: str | None
    subjects: tuple[str, ...] = ()
    complements: tuple[Complement, ...] = ()
    flags: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Modal:
    """A modal verb: German infinitive, singular, simple past; English words and the past of the first."""

    german: str
    singular: str
    simple_past: str | None
    english: tuple[str, ...]
    english_past: str | None


@dataclass(frozen=True)
class Adjective:
    """An adjective: ``stem`` takes the endings (teuer, ein teures Auto); ``classes`` are those of the nouns
    it fits."""

    german: str
    stem: str
    english: str
    classes: frozenset[str]


@dataclass(frozen=True)
class Determiner:
    """An article or what stands in its place: how it declines and which adjective endings follow it."""

    stem: str
    kind: str
    endings: str
    english: str | None
    english_plural: str | None
    singular: bool = True
    plural: bool = True


@dataclass(frozen=True)
class Preposition:
    """A German preposition with its case, and the English one (several words in "because of")."""

    german: str
    case: str
    english: str


@dataclass(frozen=True)
class Phrase:
    """A fixed pair of phrases: (word, part of speech) on either side, and the pairs of words that go
    together."""

    german: tuple[tuple[str, str], ...]
    english: tuple[tuple[str, str], ...]
    links: frozenset[tuple[int, int]] = field(default_factory=frozenset)


def rows(table: str) -> Iterator[list[str]]:
    """The lines of a table, cut at their bars."""
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def forms(cell: str, length: int) -> list[str | None]:
    """The forms named in a cell, padded to ``length``; "-" and what is missing become None."""
    found = [None if form.strip() in ("-", "") else form.strip() for form in cell.split(",")]
    return found + [None] * (length - len(found))


def read_nouns(table: str) -> list[Noun]:
    """The nouns of a table of nouns.py."""
    found = []
    for german, english, tags, *preposition in rows(table):
        singular, plural = forms(german, 2)
        article, noun = singular.split()
        weak = plural is not None and plural.endswith("*")
        base, irregular = forms(english, 2)
        pair = tuple(preposition[0].split()) if preposition else None
        found.append(
            Noun(noun, plural and plural.rstrip("*"), GENDERS[article], weak, base, irregular,
                 frozenset(tags.split()), tags.split()[0], pair)
        )  # fmt: skip
    return found


def read_verbs(table: str) -> list[Verb]:
    """The verbs of a table of verbs.py."""
    found = []
    for german, english, subjects, takes, flags in rows(table):
        infinitive, third, participle, simple_past = forms(german, 4)
        prefix, _, stem = infinitive.rpartition("+")
        clauses = tuple(takes.split()) if takes.split() and takes.split()[0] in ("dass", "ob", "zu") else ()
        found.append(
            Verb(
                german=stem,
                prefix=prefix,
                third=third,
                participle=participle and participle.removeprefix("ist "),
                auxiliary="sein" if (participle or "").startswith("ist ") else "haben",
                simple_past=simple_past,
                **_english_verb(english),
                subjects=tuple(subjects.split()),
                complements=() if clauses else _complements(takes),
                flags=frozenset(flag for flag in flags.split() if flag[0] != "@"),
                places=tuple(flag[1:] for flag in flags.split() if flag[0] == "@"),
                clauses=clauses,
            )
        )
    return found


def _english_verb(cell: str) -> dict:
    """ "pick ~up" and "wake up, woke": the verb's three forms, its particle, and what else follows it."""
    first, past, participle = forms(cell, 3)
    base, *tail = first.split()
    past = past or regular_past(base)
    particle = next((word[1:] for word in tail if word[0] == "~"), None)
    rest = tuple(word for word in tail if word[0] != "~")
    return {"english": (base, past, participle or past), "tail": rest, "particle": particle}


def regular_past(base: str) -> str:
    """The past of a regular English verb: played, baked, cried, planned."""
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return doubled(base) + "ed"


def doubled(base: str) -> str:
    """The verb with its last letter doubled where -ed and -ing ask for it: stopp, plann, but visit."""
    vowels = [letter for letter in base if letter in "aeiou"]
    short = base[-1] not in "aeiouwxy" and base[-2:-1] in tuple("aeiou") and base[-3:-2] not in tuple("aeiou")
    if (short and len(vowels) == 1) or base in ("travel", "forget", "begin"):
        return base + base[-1]
    return base


def _complements(cell: str) -> tuple[Complement, ...]:
    """ "indirect person; object gift" as complements."""
    found = []
    for part in cell.split(";"):
        slot, *tags = part.split() or [""]
        if slot == "prep":
            german, case, english, *tags = tags
            found.append(Complement("prep", tuple(tags), Preposition(german, case, english)))
        elif slot:
            found.append(Complement(slot, tuple(tags)))
    return tuple(found)


def read_phrases(table: str) -> list[Phrase]:
    """The fixed phrases of a table; without a third column their words go together one to one, in order."""
    return [phrase(*row) for row in rows(table)]


def phrase(german: str, english: str, links: str = "") -> Phrase:
    """One fixed pair: ``phrase("vor/P drei/NUM Tagen/N", "three/NUM days/N ago/ADV", "0-2 1-0 2-1")``."""
    left, right = _tagged(german), _tagged(english)
    pairs = links.split() or [f"{place}-{place}" for place in range(len(left))]
    return Phrase(left, right, frozenset(tuple(map(int, pair.split("-"))) for pair in pairs))


def _tagged(text: str) -> tuple[tuple[str, str], ...]:
    """The words of a phrase with their parts of speech; a word that names none is an adverb."""
    return tuple((word, tag or "ADV") for word, _, tag in (piece.partition("/") for piece in text.split()))


def read_adjectives(table: str) -> list[Adjective]:
    """The adjectives; those of the weather name no classes of noun."""
    found = []
    for german, english, *classes in rows(table):
        base, stem = forms(german, 2)
        found.append(Adjective(base, stem or base, english, frozenset(" ".join(classes).split())))
    return found


def read_determiners(table: str) -> dict[str, Determiner]:
    """The determiners by their German stem."""
    found = {}
    for stem, kind, endings, english, *number in rows(table):
        singular, plural = forms(english, 2)
        found[stem] = Determiner(
            stem, kind, endings, singular, plural, number != ["plural"], number != ["singular"]
        )
    for german, english in rows(words.NUMBERS):
        found[german] = Determiner(german, "none", "strong", None, english, singular=False)
    found[""] = Determiner("", "none", "strong", None, None)
    return found


def read_modals() -> list[Modal]:
    """The modal verbs."""
    found = []
    for german, english in rows(verbs.MODALS):
        infinitive, *german_forms = forms(german, 3)
        base, past = forms(english, 2)
        found.append(Modal(infinitive, *german_forms, tuple(base.split()), past))
    return found


def read_prepositions() -> dict[tuple[str, str], Preposition]:
    """The free prepositions, by their German and their English word."""
    found = {}
    for german, english in rows(words.PREPOSITIONS):
        preposition, case = forms(german, 2)
        found[preposition, english] = Preposition(preposition, case, english)
    return found


PEOPLE = read_nouns(nouns.PEOPLE)
NAMES = read_nouns(nouns.NAMES)
TOWNS = read_nouns(nouns.TOWNS)
PLACES = read_nouns(nouns.PLACES)
CIRCUMSTANCES = read_nouns(nouns.CIRCUMSTANCES)
COMMON = PEOPLE + read_nouns(nouns.ANIMALS + nouns.FOOD.lstrip() + nouns.THINGS.lstrip()) + PLACES
NOUNS = COMMON + NAMES + TOWNS + CIRCUMSTANCES

PLAIN_VERBS = read_verbs(verbs.ACTIONS + verbs.GIVING.lstrip() + verbs.WITHOUT_OBJECT.lstrip())
WEATHER_VERBS = read_verbs(verbs.WEATHER)
CLAUSE_VERBS = read_verbs(verbs.WITH_CLAUSE)
TO_BE, THERE_IS = read_verbs(verbs.TO_BE)
VERBS = PLAIN_VERBS + WEATHER_VERBS + CLAUSE_VERBS + [TO_BE, THERE_IS]
MODALS = read_modals()

ADJECTIVES = read_adjectives(words.ADJECTIVES)
WEATHER_WORDS = read_adjectives(words.WEATHER_WORDS)
DETERMINERS = read_determiners(words.DETERMINERS)
PREPOSITIONS = read_prepositions()
