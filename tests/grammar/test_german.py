"""The German of the grammar corpus: agreement, cases and verb positions, read off its trees.

The tables here are written by hand; of the package's, only the lexicon is used (gender, plural, weak or not).
"""

from functools import cache

import pytest

from annotated.data.trees import Tree
from tools.grammar import lexicon, sample


@pytest.fixture(scope="module")
def pairs():
    return sample(2000, seed=3)


THE = {
    "der": "nom m, dat f, gen f, gen pl",
    "die": "nom f, acc f, nom pl, acc pl",
    "das": "nom n, acc n",
    "den": "acc m, dat pl",
    "dem": "dat m, dat n",
    "des": "gen m, gen n",
}
LIKE_THE = {"er": "der", "e": "die", "es": "das", "en": "den", "em": "dem"}
WEAK_STEMS, MIXED_STEMS = ("dies", "jed", "welch", "all"), ("kein", "mein", "dein", "unser", "sein", "ein")
CASE_OF = {
    "mit": "dat", "zu": "dat", "nach": "dat", "aus": "dat", "von": "dat", "an": "dat acc", "in": "dat acc",
    "auf": "dat acc", "unter": "dat acc", "über": "acc", "für": "acc", "wegen": "gen", "trotz": "gen",
}  # fmt: skip
GROWN_TOGETHER = {
    "im": "in dem", "ins": "in das", "am": "an dem", "zum": "zu dem", "zur": "zu der", "vom": "von dem",
}  # fmt: skip
NOUN_ENTRIES = {one.german: one for one in lexicon.NOUNS}


def readings_of_article(word):
    """((case, gender), ...) of an article, and the endings that it asks for: weak, mixed or strong."""
    word = word.lower()
    if word in THE:
        return split(THE[word]), "weak"
    for stem, kind in [(stem, "weak") for stem in WEAK_STEMS] + [(stem, "mixed") for stem in MIXED_STEMS]:
        ending = word.removeprefix(stem)
        if word.startswith(stem) and ending == "":
            return split("nom m, nom n, acc n"), kind
        if word.startswith(stem) and ending in LIKE_THE:
            found = split(THE[LIKE_THE[ending]]) | (split(THE["des"]) if ending == "es" else set())
            return found - split("nom m, nom n, acc n") if kind == "mixed" else found, kind
    stem, ending = next(
        (stem, word.removeprefix(stem)) for stem in ("viel", "einig") if word.startswith(stem)
    )
    return {pair for pair in split(THE[LIKE_THE[ending]]) if pair[1] == "pl"}, "strong"


def split(cell):
    return {tuple(pair.split()) for pair in cell.split(", ")}


@cache
def readings_of_noun(word):
    """((case, gender), ...) that the form of a noun allows."""
    found = set()
    for one in NOUN_ENTRIES.values():
        oblique = one.german_plural if one.weak else one.german
        genitive = {one.german_plural} if one.weak else {one.german + "s", one.german + "es"}
        genitive = {one.german} if one.gender == "f" and not one.is_name else genitive
        forms = {"nom": {one.german}, "acc": {oblique}, "dat": {oblique}, "gen": genitive}
        found |= {(case, one.gender) for case, allowed in forms.items() if word in allowed}
        if one.german_plural:
            dative = one.german_plural if one.german_plural[-1] in "ns" else one.german_plural + "n"
            found |= {(case, "pl") for case in ("nom", "acc", "gen") if word == one.german_plural}
            found |= {("dat", "pl")} if word == dative else set()
    return found


def adjective_ending(kind, case, gender):
    """The ending by the rules of thumb that learners are taught."""
    if kind == "strong":
        if case == "gen" and gender in "mn":
            return "en"
        article = next(word for word, cell in THE.items() if (case, gender) in split(cell))
        return {"die": "e", "das": "es"}.get(article, article[1:])
    plain = (case == "nom" and gender != "pl") or (case == "acc" and gender in ("f", "n"))
    if not plain:
        return "en"
    return "e" if kind == "weak" or gender == "f" else {"m": "er", "n": "es"}[gender]


def readings(phrase, article=None):
    """The (case, gender) under which a phrase agrees; ``article`` is one hidden in im or zum."""
    parts = {
        child.label: child.children[0] for child in phrase.children if child.label in ("ART", "ADJ", "N")
    }
    found, kind = readings_of_noun(parts["N"]), "strong"
    if article or "ART" in parts:
        allowed, kind = readings_of_article(article or parts["ART"])
        found = found & allowed
    if "ADJ" in parts:
        word = parts["ADJ"].lower()
        found = {pair for pair in found if has_ending(word, adjective_ending(kind, *pair))}
    return found


def has_ending(word, ending):
    return word.endswith(ending) and word[: -len(ending)] in {one.stem for one in lexicon.ADJECTIVES}


def known_phrases(tree):
    """The noun phrases with a noun of the lexicon (times such as "letzte Woche" are tables' own)."""
    for node in tree.subtrees():
        nouns = [
            child.children[0] for child in node.children if isinstance(child, Tree) and child.label == "N"
        ]
        if node.label == "NP" and nouns and readings_of_noun(nouns[0]):
            yield node


def clauses_with_finite_verb(tree):
    """(clause, its finite verb, its own noun phrases) for every clause that has a finite verb."""
    for node in tree.subtrees():
        finite = [
            child.children[0]
            for child in node.children
            if isinstance(child, Tree) and child.label in ("AUX", "V")
        ]
        if node.label == "S" and finite:
            yield node, finite[0].lower(), [child for child in node.children if child.label == "NP"]


def test_the_checker_sees_errors():
    assert readings(Tree.parse("(NP (ART der) (ADJ müde) (N Lehrer))")) == {("nom", "m")}
    assert readings(Tree.parse("(NP (ART mein) (ADJ kleines) (N Kind))")) == {("nom", "n"), ("acc", "n")}
    for wrong in (
        "(ART die) (N Lehrern)",
        "(ART der) (ADJ müder) (N Lehrer)",
        "(ART ein) (ADJ rote) (N Auto)",
    ):
        assert not readings(Tree.parse(f"(NP {wrong})"))


def test_determiner_adjective_and_noun_agree(pairs):
    checked = [(pair, node) for pair in pairs for node in known_phrases(pair.german_tree)]
    bad = [
        f"{node} in {pair.german}" for pair, node in checked if not readings(node) and not hidden(pair, node)
    ]
    assert len(checked) > 3000
    assert not bad


def hidden(pair, node):
    """Whether the article of this phrase is part of its preposition (im neuen Park)."""
    above = [one for one in pair.german_tree.subtrees() if node in one.children and one.label == "PP"]
    return bool(above) and above[0].children[0].children[0].lower() in GROWN_TOGETHER


def test_prepositions_govern_their_cases(pairs):
    count = 0
    for pair in pairs:
        for node in pair.german_tree.subtrees():
            if node.label != "PP" or node.children[-1] not in list(known_phrases(node)):
                continue
            word = node.children[0].children[0].lower()
            preposition, _, article = GROWN_TOGETHER.get(word, word).partition(" ")
            found = {case for case, _ in readings(node.children[-1], article or None)}
            assert found & set(CASE_OF[preposition].split()), pair.german
            count += 1
    assert count > 500


def test_subject_and_verb_agree(pairs):
    for pair in pairs:
        for _, finite, own in clauses_with_finite_verb(pair.german_tree):
            plural = finite.endswith(("en", "rn", "ln")) or finite == "sind"
            assert any(can_be_subject(node, plural, finite) for node in own), pair.german


def can_be_subject(node, plural, finite):
    words = [leaf.lower() for leaf in node.leaves()]
    if node.children[0].label == "PRON":
        if words[0] == "ich":
            return finite.endswith("e") or finite in ["bin", "war", "kann", "muss", "will", "darf", "weiß"]
        if words[0] == "du":
            return finite.endswith(("st", "sst", "ßt", "zt", "rst"))
        allowed = {"wir": "p", "sie": "sp", "die": "sp"}.get(words[0], "s" if words[0] in SINGULAR else "")
        return ("p" if plural else "s") in allowed
    return any(case == "nom" and (gender == "pl") == plural for case, gender in readings(node))


SINGULAR = ("er", "es", "wer", "der", "das")


def test_what_stands_before_the_verb_is_plainly_not_the_subject(pairs):
    """Die Frau hat das Kind gesehen tells what she saw: an object in front has to show its case."""
    count = 0
    for pair in pairs:
        first, second, third = pair.german_tree.children[:3]
        statement = (first.label, second.label, third.label) == ("NP", "AUX", "NP") and pair.german[-1] == "."
        if statement and first in list(known_phrases(first)):
            assert "nom" not in {case for case, _ in readings(first)}, pair.german
            count += 1
    assert count > 20


def test_verb_second_and_verbs_at_the_end(pairs):
    for pair in pairs:
        main = pair.german_tree.children
        labels = [child.label for child in main]
        place = min(labels.index(label) for label in ("AUX", "V") if label in labels)
        asks = pair.german.endswith("?")
        if labels[0] == "SBAR":
            assert labels[:2] == ["SBAR", "PUNCT"], pair.german
            assert place == 2, pair.german
        else:
            assert place == 1 or (asks and place == 0), pair.german
        if labels[place] == "AUX":
            phrase = main[labels.index("VP")]
            assert phrase.children[-1].label == "V", pair.german
            assert set(labels[labels.index("VP") + 1 :]) <= {"SBAR", "PUNCT", "VP"}, pair.german


def test_the_verb_is_last_in_subordinate_clauses(pairs):
    count = 0
    for pair in pairs:
        for node in pair.german_tree.subtrees():
            if node.label == "SBAR" and node.children[-1].label == "S":
                kinds = [child.label for child in node.children[-1].children]
                while kinds[-1] in ("SBAR", "PUNCT"):
                    kinds.pop()
                assert kinds[-1] in ("AUX", "V"), pair.german
                count += 1
    assert count > 300
