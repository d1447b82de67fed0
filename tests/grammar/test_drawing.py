"""What the grammar draws: one translation each way, size, alignments, trees; the package ships just that."""

import itertools
import re

import pytest
import torch

from annotated.data import ParallelText, TokenBatches, encode_corpus, read_lines
from annotated.data import grammar as shipped
from annotated.data.trees import Tree
from annotated.metrics import bleu
from annotated.tokenizers import WordTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.trainer import Trainer
from annotated.transformer.model import make_model
from annotated.translation.translator import Translator
from tools import grammar as package
from tools.grammar import corpus_lines, german, lexicon, sample, text, trees, words
from tools.grammar.counting import count_sentences, phrases_for
from tools.grammar.dice import Dice
from tools.grammar.phrases import PRONOUNS, adjectives_for, determiners_for, nouns_for
from tools.grammar.syntax import NounPhrase


@pytest.fixture(scope="module")
def pairs():
    return sample(2000, seed=3)


class Narrow(Dice):
    """Dice that know two neighbours of each long table alone, so that many sentences differ in form only."""

    def __init__(self, seed):
        super().__init__(seed)
        self.start = seed

    def pick(self, options):
        return super().pick(self.window(list(options)) if len(options) > 4 else options)

    def weighted(self, options):
        determiners = len(options) > 4 and isinstance(options[0][0], lexicon.Determiner)
        return super().weighted(self.window(options) if determiners else options)

    def window(self, options):
        first = self.start % (len(options) - 1)
        return options[first : first + 2]


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


def test_no_sentence_has_two_translations_where_sentences_are_near(monkeypatch):
    monkeypatch.setattr(package, "Dice", Narrow)
    drawn = (itertools.islice(trees(seed), 700) for seed in range(0, 100, 7))
    assert not clashes(itertools.chain.from_iterable(drawn))


def test_lexical_entries_are_one_to_one_and_many():
    for entries in (lexicon.NOUNS, lexicon.ADJECTIVES):
        assert len({one.german for one in entries}) == len({one.english for one in entries}) == len(entries)
    verbs = {
        (one.prefix, one.german): (one.english[0], one.tail, one.particle) for one in lexicon.PLAIN_VERBS
    }
    tables = (
        words.PAST_TIMES + words.PRESENT_TIMES + words.FUTURE_TIMES + words.HABITS + words.FREQUENCIES
    ).split("\n")
    others = (
        len(lexicon.DETERMINERS) + len(PRONOUNS) + len(lexicon.MODALS) + len([row for row in tables if row])
    )
    assert len(lexicon.NOUNS) + len(lexicon.ADJECTIVES) + len(verbs) + others >= 400


def test_more_than_a_billion_sentences():
    assert count_sentences() > 10**9


def test_counted_noun_phrases_are_all_different():
    tags, found = ("ride",), set()
    for one in nouns_for(tags):
        for plural in (False, True):
            for determiner, _ in determiners_for(one, plural, "object"):
                for adjective in (None, *adjectives_for(one)):
                    phrase = NounPhrase(one, determiner, plural, adjective)
                    found.add(" ".join(german.noun_phrase(phrase, "acc", "").leaves()))
    assert len(found) == phrases_for(tags, "object")


def test_the_package_ships_what_is_drawn():
    assert list(corpus_lines()) == read_lines(shipped.FILE)


def test_the_package_reads_what_was_drawn():
    assert shipped.sample(300) == sample(300)


def test_the_same_seed_gives_the_same_sentences(pairs):
    assert sample(50, seed=3) == pairs[:50]
    assert sample(50, seed=4) != pairs[:50]
    assert len({pair.german for pair in pairs}) == len({pair.english for pair in pairs}) == len(pairs)


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


def test_a_tiny_model_learns_it(monkeypatch, tmp_path, one_thread):
    """All of the grammar over few words; 13 seconds are enough to translate sentences never seen."""
    monkeypatch.setattr(package, "Dice", Narrow)
    src, tgt = map(list, zip(*((pair.german, pair.english) for pair in sample(3100)), strict=True))
    whole = ParallelText(src, tgt, list(range(1, 3101)), "narrow")
    text, unseen = whole.take(range(3000)), whole.take(range(3000, 3100))
    words = [WordTokenizer.train(side, None, min_freq=1) for side in (text.src, text.tgt)]
    batches = TokenBatches(encode_corpus(text, *words), max_tokens=1024)
    torch.manual_seed(0)
    model = make_model(*map(len, words), N=2, d_model=64, d_ff=128, h=4, dropout=0.0, norm_first=True)
    config = TrainingConfig(max_steps=260, warmup=60, learning_rate=0.005, smoothing=0.0, average=0)
    Trainer(model, words, lambda epoch: batches, None, config, tmp_path).train()
    found = Translator(model, *words).translate(unseen.src, beam=1)
    assert bleu(found, unseen.tgt).value > 80  # 3 if each source gets another's target
