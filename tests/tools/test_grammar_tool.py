"""The grammar of the built-in corpus: sentences written by hand, and properties of what it draws.

The first lines are short ways to say what a sentence is made of.
"""

import itertools
import re

import pytest

from annotated.data import grammar as shipped
from annotated.data import read_lines
from annotated.data.grammar import Tree
from tools.grammar import corpus_lines, english, german, lexicon, sample, text, trees, words
from tools.grammar.phrases import PRONOUNS
from tools.grammar.syntax import (
    IT,
    THERE,
    WHAT,
    AdjectivePhrase,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    Sentence,
    Subordinate,
    relative_pronoun,
)


def noun(german_noun, determiner="d", plural=False, adjective=None, **more):
    entry = next(one for one in lexicon.NOUNS if one.german == german_noun)
    found = next((one for one in lexicon.ADJECTIVES if one.german == adjective), None)
    return NounPhrase(entry, lexicon.DETERMINERS[determiner], plural, found, **more)


def verb(infinitive, prefix="", slots=None):
    for one in lexicon.VERBS:
        taken = [complement.slot for complement in one.complements]
        if (one.german, one.prefix) == (infinitive, prefix) and (slots is None or taken == slots.split()):
            return one
    raise LookupError(infinitive)


def pronoun(word):
    return next(one for one in PRONOUNS if one.english[0] == word)


def modal(infinitive):
    return next(one for one in lexicon.MODALS if one.german == infinitive)


def at(german_word, case, english_word, phrase):
    return PrepositionalPhrase(lexicon.Preposition(german_word, case, english_word), phrase)


def clause(action, tense="present", **slots):
    settings = {key: slots.pop(key) for key in ("modal", "negated", "simple", "front") if key in slots}
    return Clause(action, slots, tense, **settings)


YESTERDAY = lexicon.phrase("gestern", "yesterday")
DAILY = lexicon.phrase("jeden/ART Tag/N", "every/ART day/N")
AGO = lexicon.phrase("vor/P drei/NUM Tagen/N", "three/NUM days/N ago/ADV", "0-2 1-0 2-1")
DATE = lexicon.phrase("am/P 3./NUM Mai/N", "on/P 3/NUM May/N")
HOUR = lexicon.phrase("um/P halb/ADV neun/NUM", "at/P half/N past/P eight/NUM", "0-0 1-1 1-2 2-3")
HOME = lexicon.read_phrases(words.HOME)[0]
BIG = AdjectivePhrase(next(one for one in lexicon.ADJECTIVES if one.german == "groß"))
WHERE = lexicon.phrase("wo/WH", "where/WH")
TEACHER, WOMAN, CHILD = noun("Lehrer"), noun("Frau"), noun("Kind")
RED_CAR = noun("Auto", adjective="rot")
BUY = verb("kaufen")
RAINED = clause(verb("regnen"), "past", subject=IT)
WHO_BOUGHT = clause(BUY, "past", subject=relative_pronoun("m", True), object=noun("Auto", "ein"))
THAT_READ = clause(
    verb("lesen"), "past", subject=TEACHER, object=relative_pronoun("n", False), front="object"
)

BY_HAND = {
    "perfect with haben": (
        Sentence(clause(BUY, "past", subject=noun("Lehrer", adjective="müde"), object=RED_CAR)),
        "Der müde Lehrer hat das rote Auto gekauft.",
        "The tired teacher bought the red car.",
    ),
    "separable verb, pronouns": (
        Sentence(clause(verb("holen", "ab"), "past", subject=pronoun("I"), object=pronoun("he"))),
        "Ich habe ihn abgeholt.",
        "I picked him up.",
    ),
    "modal verb denied": (
        Sentence(clause(BUY, subject=TEACHER, object=RED_CAR, modal=modal("können"), negated=True)),
        "Der Lehrer kann das rote Auto nicht kaufen.",
        "The teacher cannot buy the red car.",
    ),
    "nicht before the participle": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=RED_CAR, negated=True)),
        "Der Lehrer hat das rote Auto nicht gekauft.",
        "The teacher did not buy the red car.",
    ),
    "kein": (
        Sentence(clause(BUY, "past", subject=pronoun("they"), object=noun("Apfel", "kein"))),
        "Sie haben keinen Apfel gekauft.",
        "They did not buy an apple.",
    ),
    "future": (
        Sentence(
            clause(verb("helfen"), "future", subject=noun("Student"), indirect=noun("Kind", plural=True))
        ),
        "Der Student wird den Kindern helfen.",
        "The student will help the children.",
    ),
    "giving, a weak noun, a possessive": (
        Sentence(
            clause(
                verb("geben"), "past", subject=TEACHER, indirect=noun("Student", "mein"), object=noun("Buch")
            )
        ),
        "Der Lehrer hat meinem Studenten das Buch gegeben.",
        "The teacher gave my student the book.",
    ),
    "a dative that is the English subject": (
        Sentence(clause(verb("gefallen"), experiencer=CHILD, subject=noun("Film"), front="experiencer")),
        "Dem Kind gefällt der Film.",
        "The child likes the film.",
    ),
    "genitive": (
        Sentence(clause(BUY, "past", subject=WOMAN, object=noun("Haus", owner=noun("Bruder", "mein")))),
        "Die Frau hat das Haus meines Bruders gekauft.",
        "The woman bought my brother's house.",
    ),
    "a name in the genitive, strong adjective": (
        Sentence(
            clause(BUY, "past", subject=WOMAN, object=noun("Auto", adjective="alt", owner=noun("Anna", "")))
        ),
        "Die Frau hat Annas altes Auto gekauft.",
        "The woman bought Anna's old car.",
    ),
    "mixed adjective endings, what is new stands late": (
        Sentence(
            clause(
                verb("sehen"),
                "past",
                subject=WOMAN,
                object=noun("Bär", "ein", adjective="alt"),
                time=YESTERDAY,
            )
        ),
        "Die Frau hat gestern einen alten Bären gesehen.",
        "The woman saw an old bear yesterday.",
    ),
    "strong adjective endings, numeral, date, hour": (
        Sentence(
            clause(
                BUY, "past", subject=WOMAN, object=noun("Apfel", "drei", True, "rot"), time=DATE, clock=HOUR
            )
        ),
        "Die Frau hat am 3. Mai um halb neun drei rote Äpfel gekauft.",
        "The woman bought three red apples at half past eight on 3 May.",
    ),
    "late relative clause about the object": (
        Sentence(clause(BUY, "past", subject=pronoun("I"), object=noun("Buch", relative=THAT_READ))),
        "Ich habe das Buch gekauft, das der Lehrer gelesen hat.",
        "I bought the book that the teacher read.",
    ),
    "verb last behind weil, in front": (
        Sentence(
            clause(verb("bleiben"), "past", subject=TEACHER, place=HOME),
            sub=Subordinate(("weil", "because"), RAINED),
            sub_first=True,
        ),
        "Weil es geregnet hat, ist der Lehrer zu Hause geblieben.",
        "Because it rained, the teacher stayed at home.",
    ),
    "infinitive with zu inside": (
        Sentence(
            clause(verb("versuchen"), "past", subject=WOMAN),
            sub=Subordinate(
                ("", "to"), clause(verb("räumen", "auf"), subject=WOMAN, object=noun("Zimmer", "mein"))
            ),
        ),
        "Die Frau hat versucht, mein Zimmer aufzuräumen.",
        "The woman tried to tidy up my room.",
    ),
    "what, of the object": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=WHAT, front="object"), question=True),
        "Was hat der Lehrer gekauft?",
        "What did the teacher buy?",
    ),
    "es gibt": (
        Sentence(
            clause(
                lexicon.THERE_IS,
                subject=THERE,
                object=noun("Baum", "ein", adjective="alt"),
                place=at("in", "dat", "in", noun("Park")),
                front="place",
            )
        ),
        "Im Park gibt es einen alten Baum.",
        "In the park, there is an old tree.",
    ),
    "a genitive preposition": (
        Sentence(
            clause(
                verb("arbeiten"),
                "past",
                subject=TEACHER,
                cause=at("wegen", "gen", "because of", noun("Regen")),
            )
        ),
        "Der Lehrer hat wegen des Regens gearbeitet.",
        "The teacher worked because of the rain.",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_each_construction_as_written_by_hand(name):
    sentence, expected_german, expected_english = BY_HAND[name]
    assert text(german.sentence_tree(sentence)) == expected_german
    assert text(english.sentence_tree(sentence)) == expected_english


@pytest.fixture(scope="module")
def pairs():
    return sample(2000, seed=3)


def clashes(drawn):
    """The sentences with two translations, from German and from English."""
    there, back, bad = {}, {}, []
    for german_tree, english_tree in drawn:
        left, right = text(german_tree), text(english_tree)
        if there.setdefault(left, right) != right or back.setdefault(right, left) != left:
            bad.append((left, there[left], right, back[right]))
    return bad


def test_no_sentence_has_two_translations():
    assert not clashes(itertools.islice(trees(seed=101), 10000))


def test_the_package_ships_what_is_drawn():
    assert list(corpus_lines()) == read_lines(shipped.FILE)


def test_alignments_cover_what_has_meaning(pairs):
    for pair in pairs:
        left, right = {one for one, _ in pair.alignment}, {other for _, other in pair.alignment}
        assert left <= set(range(len(pair.german_words)))
        assert right <= set(range(len(pair.english_words)))
        for aligned, tree in ((left, pair.german_tree), (right, pair.english_tree)):
            kinds = [node.label for node in tree.subtrees() if not isinstance(node.children[0], Tree)]
            loose = [kind for place, kind in enumerate(kinds) if place not in aligned]
            assert not {"N", "V", "ADJ", "ADV", "PRON", "NUM", "AUX", "NEG"}.intersection(loose), pair


def test_trees_hold_the_words_and_can_be_read_back(pairs):
    for pair in pairs:
        for tree, words_of_it in (
            (pair.german_tree, pair.german_words),
            (pair.english_tree, pair.english_words),
        ):
            assert tuple(tree.leaves()) == words_of_it
            assert Tree.parse(str(tree)) == tree


@pytest.mark.parametrize(
    "pattern",
    [
        r"\(AUX \w+\).* \(V ge\w+t\)\) \(PUNCT \.\)",  # the participle at the end
        r"\(SBAR \(C (weil|dass|ob|wenn|während|um)",
        r"\(SBAR \(PUNCT ,\) \(S \(NP \(PRON (der|die|das|den)\)",  # a relative clause
        r"\(PRT ",  # a separable verb in two parts
        r"\(\w+ (kann|konnte|muss|musste|will|wollte|darf|durfte)(st)?\)",
        r"\(NEG nicht\)",
        r"\(ART keine?[nmrs]?\)",
        r"\(N Küchentisch\)",  # a compound
        r"\(P (wegen|trotz)\)",  # with the genitive
        r"^\(S \(NP \(PRON (wer|was|wen)\)",
        r"\(WH (wo|warum|wann)\)",
        r"\(NUM \d+\.\)",  # a date
        r"\(NUM (drei|vier|fünf)\) ",
    ],
)
def test_each_construction_comes_up(pattern, pairs):
    found = [pair for pair in pairs if re.search(pattern, str(pair.german_tree), re.IGNORECASE)]
    assert len(found) >= 3


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
