"""What both languages share: a sentence as its parts and their roles, with no word order and no endings.

``sampling`` draws such sentences, ``german`` and ``english`` write them down. That makes the grammar
synchronous: one derivation, two trees, and each word remembers the part that it stands for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tools.grammar.lexicon import Adjective, Determiner, Modal, Noun, Phrase, Preposition, Verb
from tools.grammar.tree import Tree, leaf


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjective, owner (meines Bruders, my brother's) and relative clause."""

    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None
    owner: "NounPhrase | None" = None
    relative: "Clause | None" = None

    person = 3

    @property
    def gender(self) -> str:
        """The column of the ending tables: "pl" for every plural."""
        return "pl" if self.plural else self.noun.gender


@dataclass(frozen=True)
class Pronoun:
    """A personal, relative, asking or empty pronoun: its German forms by case, its English subject and
    object."""

    german: Mapping[str, str]
    english: tuple[str, str]
    person: int = 3
    plural: bool = False
    english_plural: bool = False
    kind: Literal["personal", "relative", "asking", "empty"] = "personal"


@dataclass(frozen=True)
class PrepositionalPhrase:
    """A preposition and its noun phrase, or the asking pronoun (mit wem, who ... to)."""

    preposition: Preposition
    inner: NounPhrase | Pronoun


@dataclass(frozen=True)
class AdjectivePhrase:
    """An adjective behind sein, with its degree (sehr, very)."""

    adjective: Adjective
    degree: Phrase | None = None


Element = NounPhrase | Pronoun | PrepositionalPhrase | AdjectivePhrase | Phrase


@dataclass(frozen=True)
class Clause:
    """A verb and what fills its slots; ``front`` is the slot that opens the clause, where one may.

    ``simple`` asks for the English simple present (she often sings) where the progressive is usual (she is
    singing).
    """

    verb: Verb
    slots: Mapping[str, Element]
    tense: Literal["past", "present", "future"] = "present"
    modal: Modal | None = None
    negated: bool = False
    simple: bool = False
    front: str = "subject"

    @property
    def asks(self) -> bool:
        """Whether the clause opens with a question word, or a phrase that holds one."""
        element = self.slots.get(self.front)
        inner = element.inner if isinstance(element, PrepositionalPhrase) else element
        if isinstance(inner, NounPhrase):
            return inner.determiner.stem in ("welch", "wie_viele")
        if isinstance(inner, Phrase):
            return inner.german[0][1] == "WH"
        return isinstance(inner, Pronoun) and inner.kind == "asking"

    @property
    def is_relative(self) -> bool:
        """Whether the clause opens with a relative pronoun."""
        element = self.slots.get(self.front)
        return isinstance(element, Pronoun) and element.kind == "relative"

    def with_slots(self, **slots: Element) -> "Clause":
        """The same clause with more slots filled."""
        return replace(self, slots={**self.slots, **slots})


@dataclass(frozen=True)
class Subordinate:
    """A clause under a conjunction (German, English), or an infinitive clause with "zu" or "um ... zu"."""

    conjunction: tuple[str, str]
    clause: Clause

    @property
    def infinitive(self) -> bool:
        return self.conjunction[1] == "to"


@dataclass(frozen=True)
class Sentence:
    """A main clause, said or asked, and at most one subordinate clause before or behind it."""

    main: Clause
    question: bool = False
    sub: Subordinate | None = None
    sub_first: bool = False


def relative_pronoun(gender: str, person: bool) -> Pronoun:
    """der, die, das for this gender or plural; who for people, that for the rest."""
    forms = {
        "m": {"nom": "der", "acc": "den", "dat": "dem"},
        "f": {"nom": "die", "acc": "die", "dat": "der"},
        "n": {"nom": "das", "acc": "das", "dat": "dem"},
        "pl": {"nom": "die", "acc": "die", "dat": "denen"},
    }
    word = "who" if person else "that"
    return Pronoun(forms[gender], (word, word), 3, gender == "pl", gender == "pl", "relative")


WHO = Pronoun({"nom": "wer", "acc": "wen", "dat": "wem"}, ("who", "who"), kind="asking")
WHAT = Pronoun({"nom": "was", "acc": "was"}, ("what", "what"), kind="asking")
IT = Pronoun({"nom": "es"}, ("it", "it"), kind="empty")
THERE = Pronoun({"nom": "es"}, ("there", "there"), kind="empty")


def phrase_tree(phrase: Phrase, side: Literal["german", "english"], path: str) -> Tree:
    """One side of a fixed phrase, its words linked as its links say."""
    words, children = getattr(phrase, side), []
    for place, (word, label) in enumerate(words):
        pairs = [pair for pair in phrase.links if pair[side == "english"] == place]
        children.append(leaf(label, word, *(f"{path}.{left}-{right}" for left, right in pairs)))
    label = {"P": "PP", "ADV": "ADVP", "WH": "ADVP"}.get(words[0][1], "NP")
    return Tree("ADVP" if words[-1][1] == "ADV" else label, tuple(children))
