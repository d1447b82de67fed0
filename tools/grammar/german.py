"""German word order and agreement: from the parts of a sentence to its tree."""

from tools.grammar import german_forms as forms
from tools.grammar.lexicon import Verb
from tools.grammar.syntax import (
    AdjectivePhrase,
    Clause,
    Element,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    phrase_tree,
)
from tools.grammar.tree import COMMA, Tree, Word, leaf

# What stands between the finite verb and the verbs at the end, in this order. Pronouns move up behind the
# subject, what is new (ein Buch, drei Bücher, kein Brot) down to INDEFINITE.
FIELD = (
    "experiencer", "subject", "time", "clock", "cause", "frequency", "indirect", "to", "object", "NOT",
    "with", "for", "by", "place", "INDEFINITE", "manner", "prep", "origin", "onto", "goal", "predicate",
)  # fmt: skip
CASES = {"subject": "nom", "object": "acc", "indirect": "dat", "to": "dat", "experiencer": "dat"}


def sentence_tree(sentence: Sentence) -> Tree:
    """The German sentence with its final punctuation."""
    mark = Tree("PUNCT", (Word("?" if sentence.question else "."),))
    asks_whether = sentence.question and not sentence.main.asks
    if sentence.sub and sentence.sub_first:
        children = [_subordinate(sentence.sub), COMMA, *_main(sentence.main, first=None)]
    else:
        children = _main(sentence.main, first=None if asks_whether else sentence.main.front)
        if sentence.sub:
            children += [COMMA, _subordinate(sentence.sub)]
    return Tree("S", (*children, mark))


def _main(clause: Clause, first: str | None, at: str = "") -> list[Tree]:
    """A main clause: at most one constituent, the finite verb, the rest, the other verbs."""
    finite, final = _verbs(clause, at)
    opening = [_element(clause, first, at)] if first else []
    subject, field = _field(clause, at, without=first)
    rest = [Tree("VP", (*field, *final))] if final else field
    return [*opening, finite, *subject, *rest, *_late_relative(clause, at)]


def _subordinate(sub: Subordinate, at: str = "sub.") -> Tree:
    """A clause with its verb last, behind its conjunction."""
    if sub.infinitive:
        return _infinitive_clause(sub, at)
    conjunction = Tree("C", (Word(sub.conjunction[0], at + "conjunction"),))
    first = sub.clause.front if sub.clause.asks else None
    return Tree("SBAR", (conjunction, Tree("S", tuple(_verb_last(sub.clause, first, at)))))


def _infinitive_clause(sub: Subordinate, at: str) -> Tree:
    """das Fenster zu öffnen, um das Fenster aufzumachen."""
    verb, conjunction = sub.clause.verb, sub.conjunction[0]
    _, field = _field(sub.clause, at, without="subject")
    if verb.prefix:
        last = [Tree("V", (Word(forms.infinitive(verb, zu=True), at + "verb", at + "zu"),))]
    else:
        last = [Tree("TO", (Word("zu", at + "zu"),)), Tree("V", (Word(verb.german, at + "verb"),))]
    phrase = Tree("VP", (*field, *last))
    if conjunction != "um":
        return phrase
    return Tree("SBAR", (Tree("C", (Word("um", at + "zu"),)), phrase))


def _verb_last(clause: Clause, first: str | None, at: str) -> list[Tree]:
    finite, final = _verbs(clause, at, apart=False)
    opening = [_element(clause, first, at)] if first else []
    subject, field = _field(clause, at, without=first)
    rest = [Tree("VP", (*field, *final))] if final else field
    return [*opening, *subject, *rest, finite, *_late_relative(clause, at)]


def _field(clause: Clause, at: str, without: str | None) -> tuple[list[Tree], list[Tree]]:
    """The subject (with a dative that comes before it), and the rest of the middle field."""
    places = {slot: FIELD.index(slot) for slot in clause.slots if slot != without}
    if clause.negated:
        places["NOT"] = FIELD.index("NOT")
    if _is_new(clause.slots.get("object")) and "object" in places:
        places["object"] = FIELD.index("INDEFINITE")
    order = sorted(places, key=places.__getitem__)
    leading = [slot for slot in order if slot in ("experiencer", "subject")]
    others = [slot for slot in order if slot not in leading]
    others.sort(key=lambda slot: not _is_personal(clause.slots.get(slot)))
    return tuple([_element(clause, slot, at) for slot in group] for group in (leading, others))


def _is_new(element: Element | None) -> bool:
    """Whether the phrase brings up something new: ein, kein, some, a number or no article."""
    if not isinstance(element, NounPhrase) or element.noun.is_name:
        return False
    return element.determiner.stem in ("ein", "kein") or element.determiner.endings == "strong"


def _is_personal(element: Element | None) -> bool:
    return isinstance(element, Pronoun) and element.kind == "personal"


def _late_relative(clause: Clause, at: str) -> list[Tree]:
    """The relative clause of an object stands behind the verbs at the end."""
    target = clause.slots.get("object")
    if isinstance(target, NounPhrase) and target.relative:
        return [_relative(target.relative, f"{at}object.rel.")]
    return []


def _relative(clause: Clause, at: str) -> Tree:
    return Tree("SBAR", (COMMA, Tree("S", tuple(_verb_last(clause, clause.front, at)))))


def _verbs(clause: Clause, at: str, apart: bool = True) -> tuple[Tree, list[Tree]]:
    """The finite verb, and the verbs at the end; ``apart`` where a separable prefix goes there."""
    verb, subject = clause.verb, clause.slots["subject"]
    number = (subject.person, subject.plural)
    if clause.modal:
        modal = forms.modal_form(clause.modal, clause.tense == "past", *number)
        return leaf("AUX", modal, at + "modal"), [leaf("V", forms.infinitive(verb), at + "verb")]
    if clause.tense == "future":
        will = forms.irregular_form("werden", *number)
        return leaf("AUX", will, at + "tense"), [leaf("V", forms.infinitive(verb), at + "verb")]
    if clause.tense == "past" and not verb.simple_past:
        have = forms.irregular_form(verb.auxiliary, *number)
        return leaf("AUX", have, at + "tense"), [leaf("V", forms.participle(verb), at + "verb")]
    return _simple_verb(verb, clause.tense == "past", number, at, apart)


def _simple_verb(
    verb: Verb, past: bool, number: tuple[int, bool], at: str, apart: bool
) -> tuple[Tree, list[Tree]]:
    """A finite verb of one word: macht ... auf in a main clause, aufmacht in a subordinate one."""
    finite = forms.past_form(verb.simple_past, *number) if past else forms.present_form(verb, *number)
    if verb.prefix and apart:
        return leaf("V", finite, at + "verb"), [leaf("PRT", verb.prefix, at + "verb")]
    return leaf("V", verb.prefix + finite, at + "verb"), []


def _element(clause: Clause, slot: str, at: str) -> Tree:
    """What fills a slot, in the case that the slot asks for."""
    if slot == "NOT":
        return Tree("ADVP", (leaf("NEG", "nicht", at + "not"),))
    element, path = clause.slots[slot], at + slot
    if isinstance(element, NounPhrase):
        return noun_phrase(element, CASES[slot], path, late_relative=slot == "object")
    if isinstance(element, Pronoun):
        return _pronoun(element, CASES[slot], path)
    if isinstance(element, PrepositionalPhrase):
        return _prepositional(element, path)
    if isinstance(element, AdjectivePhrase):
        degree = [phrase_tree(element.degree, "german", path)] if element.degree else []
        return Tree("ADJP", (*degree, leaf("ADJ", element.adjective.german, path)))
    return phrase_tree(element, "german", path)


def _pronoun(pronoun: Pronoun, case: str, path: str) -> Tree:
    return Tree("NP", (leaf("PRON", pronoun.german[case], path),))


def noun_phrase(phrase: NounPhrase, case: str, path: str, late_relative: bool = False) -> Tree:
    """Determiner, adjective, noun, owner; a relative clause between commas unless it comes late."""
    words = _before_noun(phrase, case, path)
    words.append(leaf("N", forms.noun_form(phrase.noun, case, phrase.plural), path))
    if phrase.owner and not phrase.owner.noun.is_name:
        words.append(noun_phrase(phrase.owner, "gen", path + ".owner"))
    if phrase.relative and not late_relative:
        words += [_relative(phrase.relative, path + ".rel."), COMMA]
    return Tree("NP", tuple(words))


def _before_noun(phrase: NounPhrase, case: str, path: str) -> list[Tree]:
    words, endings = [], phrase.determiner.endings
    if phrase.owner and phrase.owner.noun.is_name:
        words.append(noun_phrase(phrase.owner, "gen", path + ".owner"))
        endings = "strong"
    elif form := forms.determiner_form(phrase.determiner, case, phrase.gender):
        label = "ART" if phrase.determiner.kind != "none" else "NUM"
        words += [leaf(label, word, path + ".det") for word in form.split()]
    if phrase.adjective:
        adjective = forms.adjective_form(phrase.adjective, endings, case, phrase.gender)
        words.append(leaf("ADJ", adjective, path + ".adj"))
    return words


def _prepositional(phrase: PrepositionalPhrase, path: str) -> Tree:
    """Preposition and noun phrase, with in dem as im where the two grow together."""
    case = phrase.preposition.case
    preposition = Word(phrase.preposition.german, path + ".prep")
    if isinstance(phrase.inner, Pronoun):
        return Tree("PP", (Tree("P", (preposition,)), _pronoun(phrase.inner, case, path)))
    inner = noun_phrase(phrase.inner, case, path)
    article = inner.leaves()[0]
    contracted = forms.CONTRACTIONS.get((preposition, article))
    if contracted and phrase.inner.determiner.stem == "d":
        preposition = Word(contracted, *preposition.links, *article.links)
        inner = Tree("NP", inner.children[1:])
    return Tree("PP", (Tree("P", (preposition,)), inner))
