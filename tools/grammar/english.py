"""English word order and agreement: from the parts of a sentence to its tree."""

from typing import NamedTuple

from tools.grammar import english_forms as forms
from tools.grammar.syntax import (
    AdjectivePhrase,
    Clause,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    phrase_tree,
)
from tools.grammar.tree import COMMA, Tree, Word, leaf

# What follows the verb, in this order.
FIELD = [
    "indirect",
    "object",
    "PARTICLE",
    "to",
    "predicate",
    "manner",
    "prep",
    "onto",
    "goal",
    "origin",
    "by",
    "with",
    "for",
    "place",
    "clock",
    "time",
    "cause",
]
# Verbs that turn round in questions and take "not" themselves; the others need "do".
OPERATORS = ("be", "will", "can", "could", "should", "would")
TAIL_LABELS = {"breakfast": "N", "television": "N", "place": "N", "asleep": "ADJ"}


class Head(NamedTuple):
    """A verb of the chain before it is inflected: has to buy is have, to, buy."""

    label: str
    base: str
    past: str
    links: tuple[str, ...]


def sentence_tree(sentence: Sentence) -> Tree:
    """The English sentence with its final punctuation."""
    mark = leaf("PUNCT", "?" if sentence.question else ".")
    children = _Clause(sentence.main, "", sentence.question).trees()
    if sentence.sub and sentence.sub_first:
        children = [_subordinate(sentence.sub), COMMA, *children]
    elif sentence.sub:
        *others, phrase = children
        children = [*others, Tree(phrase.label, (*phrase.children, _subordinate(sentence.sub)))]
    return Tree("S", (*children, mark))


def _subordinate(sub: Subordinate) -> Tree:
    """A clause behind its conjunction, or an infinitive with "to"."""
    if sub.infinitive:
        return Tree("VP", (leaf("TO", "to", "sub.zu"), *_Clause(sub.clause, "sub.").infinitive()))
    clause = Tree("S", tuple(_Clause(sub.clause, "sub.").trees()))
    return Tree(
        "SBAR",
        (leaf("C", sub.conjunction[1], "sub.conjunction"), clause) if sub.conjunction[1] else (clause,),
    )


class _Clause:
    """A clause on its way to English: its subject's slot, what opens it, whether its verb turns round."""

    def __init__(self, clause: Clause, at: str, question: bool = False) -> None:
        self.clause, self.at = clause, at
        self.passive = clause.front == "object" and not (clause.asks or clause.is_relative)
        self.subject = "subject"
        if self.passive or "experiencer" in clause.slots:
            self.subject = "object" if self.passive else "experiencer"
        opens = clause.front not in ("subject", self.subject)
        self.opening = clause.front if opens else None
        self.inverted = question and (opens or not clause.asks)

    def trees(self) -> list[Tree]:
        """What opens the clause, the operator of a question, the subject, and the verb phrase."""
        operator, verbs = self.verbs()
        turned, straight = ([operator], []) if self.inverted else ([], (operator and [operator]) or [])
        phrase = Tree("VP", (*straight, *verbs, *self.rest()))
        return [*self.opening_trees(), *turned, self.element(self.subject), phrase]

    def opening_trees(self) -> list[Tree]:
        """The slot in front of the subject; an adverbial of two words and more has a comma behind it."""
        if not self.opening:
            return []
        opening = self.element(self.opening)
        if self.clause.asks or self.clause.is_relative or len(opening.leaves()) == 1:
            return [opening]
        return [opening, COMMA]

    def infinitive(self) -> list[Tree]:
        """What follows "to": the bare verb and all the rest."""
        bare = leaf("V", self.clause.verb.english[0], self.at + "verb")
        return [bare, *self.rest()]

    def verbs(self) -> tuple[Tree | None, list[Tree]]:
        """The operator, if there is one, and the other verbs behind "not" and "often"."""
        heads, negation = self.heads(), self.negation()
        if heads[0].base not in OPERATORS and (negation or self.inverted):
            heads = self.with_do(heads)
        finite = self.finite(heads[0])
        bare = [leaf(head.label, head.base, *head.links) for head in heads[1:]]
        adverbs = [leaf("NEG", "not", *negation)] if negation else []
        if negation and heads[0].base == "can" and not self.inverted and not self.is_past():
            finite, adverbs = leaf("AUX", "cannot", self.at + "modal", *negation), []
        if "frequency" in self.clause.slots:
            adverbs.append(self.element("frequency"))
        if heads[0].base in (*OPERATORS, "do"):
            return finite, [*adverbs, *bare]
        return None, [*adverbs, finite, *bare]

    def heads(self) -> list[Head]:
        """The verbs in order, the first one still to be inflected: be, buying; have, to, buy."""
        clause, verb = self.clause, self.clause.verb
        tense = (self.at + "tense",) if self.is_past() and not (clause.modal or verb.simple_past) else ()
        own = (self.at + "verb",)
        base, past, participle = verb.english
        if self.passive:
            main = [Head("AUX", "be", "was", tense or own), Head("V", participle, "", own)]
        elif self.progressive():
            main = [Head("AUX", "be", "was", own), Head("V", forms.with_ing(base), "", own)]
        else:
            main = [Head("V", base, past, (*tense, *own))]
        if clause.modal:
            first, *others = clause.modal.english
            label, links = "AUX" if not others else "V", (self.at + "modal",)
            more = [Head("TO" if word == "to" else "V", word, "", links) for word in others]
            return [Head(label, first, clause.modal.english_past or "", links), *more, *main]
        return [Head("AUX", "will", "", (self.at + "tense",)), *main] if clause.tense == "future" else main

    def progressive(self) -> bool:
        """is buying: in the present of verbs that do something, where nothing makes it a habit."""
        clause = self.clause
        present = clause.tense == "present" and not clause.modal
        return present and not clause.simple and "state" not in clause.verb.flags

    def is_past(self) -> bool:
        return self.clause.tense == "past"

    def with_do(self, heads: list[Head]) -> list[Head]:
        """The verbs behind "do", which then stands for the tense: in the past it goes with hat or ist."""
        first = heads[0]
        tense = tuple(link for link in first.links if link.endswith("tense"))
        own = tuple(link for link in first.links if link not in tense)
        return [Head("AUX", "do", "did", tense or own), first._replace(links=own), *heads[1:]]

    def finite(self, head: Head) -> Tree:
        """The first verb, agreeing with the subject."""
        subject = self.clause.slots.get(self.subject)
        plural = subject.english_plural if isinstance(subject, Pronoun) else subject.plural
        if head.base == "be":
            form = forms.to_be(self.is_past(), subject.person, plural)
        elif self.is_past():
            form = head.past
        elif head.base in OPERATORS or plural or subject.person != 3:
            form = head.base
        else:
            form = forms.third_person(head.base)
        return leaf(head.label, form, *head.links)

    def negation(self) -> tuple[str, ...]:
        """The links of "not": with nicht, or with the kein of the object."""
        if self.clause.negated:
            return (self.at + "not",)
        if _has_no(self.clause.slots.get("object")) and self.subject != "object":
            return (self.at + "object.det",)
        return ()

    def rest(self) -> list[Tree]:
        """All that follows the verb."""
        trees = [leaf(TAIL_LABELS.get(word, "PRT"), word, self.at + "verb") for word in self.clause.verb.tail]
        particle = (
            [leaf("PRT", self.clause.verb.particle, self.at + "verb")] if self.clause.verb.particle else []
        )
        target = self.clause.slots.get("object")
        late = isinstance(target, Pronoun) and target.kind == "personal"
        trees += [] if late else particle
        for slot in FIELD:
            trees += particle if slot == "PARTICLE" and late else self.slot_trees(slot)
        return trees

    def slot_trees(self, slot: str) -> list[Tree]:
        """What stands behind the verb for this slot; a preposition stays behind when who moves to the
        front."""
        slots = self.clause.slots
        if slot == "object" and self.subject == "experiencer":
            return [self.element("subject")]
        if slot == "by" and self.passive:
            return [Tree("PP", (leaf("P", "by"), self.element("subject")))]
        if slot == self.opening and isinstance(slots[slot], PrepositionalPhrase) and self.clause.asks:
            return [Tree("PP", (leaf("P", slots[slot].preposition.english, f"{self.at}{slot}.prep"),))]
        if slot not in slots or slot in (self.opening, self.subject):
            return []
        return [Tree("PP", (leaf("TO", "to"), self.element(slot)))] if slot == "to" else [self.element(slot)]

    def element(self, slot: str) -> Tree:
        """What fills a slot."""
        element, path = self.clause.slots[slot], self.at + slot
        if isinstance(element, Phrase):
            return phrase_tree(element, "english", path)
        if isinstance(element, AdjectivePhrase):
            degree = [phrase_tree(element.degree, "english", path)] if element.degree else []
            return Tree("ADJP", (*degree, leaf("ADJ", element.adjective.english, path)))
        if isinstance(element, PrepositionalPhrase):
            if isinstance(element.inner, Pronoun) and element.inner.kind == "asking":
                return noun_phrase(element.inner, path)
            words = element.preposition.english.split()
            trees = [leaf("P", word, path + ".prep") for word in words]
            return Tree("PP", (*trees, noun_phrase(element.inner, path, bare=slot == "by")))
        return noun_phrase(element, path, subject=slot == self.subject)


def _has_no(element: object) -> bool:
    return isinstance(element, NounPhrase) and element.determiner.stem == "kein"


def noun_phrase(phrase: NounPhrase | Pronoun, path: str, subject: bool = False, bare: bool = False) -> Tree:
    """Owner or determiner, adjective, noun, relative clause; ``bare`` for "by train"."""
    if isinstance(phrase, Pronoun):
        return Tree("NP", (leaf("PRON", phrase.english[0 if subject else 1], path),))
    words = []
    if phrase.adjective:
        words.append(leaf("ADJ", phrase.adjective.english, path + ".adj"))
    words += [leaf("N", word, path) for word in forms.noun_form(phrase.noun, phrase.plural).split()]
    if phrase.owner:
        words = [*_owner(phrase.owner, path), *words]
    elif not bare:
        words = [*_determiner(phrase, path, words[0].children[0], subject), *words]
    if phrase.relative:
        words.append(Tree("SBAR", tuple(_Clause(phrase.relative, path + ".rel.").trees())))
    return Tree("NP", tuple(words))


def _owner(owner: NounPhrase, path: str) -> list[Tree]:
    """my brother's, the children's, the teachers'."""
    inner = noun_phrase(owner, path + ".owner")
    ends_in_s = owner.plural and inner.children[-1].children[0].endswith("s")
    return [Tree("NP", (*inner.children, leaf("POSS", "'" if ends_in_s else "'s", path + ".owner")))]


def _determiner(phrase: NounPhrase, path: str, following: str, subject: bool) -> list[Tree]:
    """the, a, an, my, these, two, how many; behind "not" the German kein is a or any."""
    determiner = phrase.determiner
    text = determiner.english_plural if phrase.plural else determiner.english
    if determiner.stem == "kein" and not subject:
        countable = phrase.noun.german_plural and not phrase.plural
        text = "a" if countable else "any"
    if text == "a":
        text = forms.article(following)
    label = "NUM" if determiner.kind == "none" else "ART"
    return [leaf(label, Word(word), path + ".det") for word in (text or "").split("_") if word]
