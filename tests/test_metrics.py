import gzip
import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics import BLEU, CHRF

import annotated
from annotated.batches import Batch
from annotated.metrics import (
    METRICS,
    alignment_error_rate,
    bleu,
    bleu_metric,
    bootstrap,
    chrf,
    paired_bootstrap,
    tokenized_bleu,
)
from annotated.perplexity import TokenScores, score_tokens
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.model import make_model
from annotated.translation.data import TokenBatches, encode_corpus, own_text
from annotated.translation.languages import bleu_tokenizer, lacks_spaces
from annotated.translation.storage.model_folder import TrainedText
from annotated.translation.tokenizers import CharacterTokenizer, WordTokenizer
from annotated.translation.training.validation import Validation, translate_greedily

PAD = 2
REFERENCES = [
    "A man in a red shirt is standing on a ladder.",
    "Two dogs are playing in the deep snow.",
    "A girl rides her bicycle along the river, smiling.",
    "People sit at a table and eat.",
    "The young woman is reading a book to three children.",
]
GOOD = [
    "A man in a red shirt stands on a ladder.",
    "Two dogs are playing in the snow.",
    "A girl rides her bike along the river, smiling.",
    "People sit at the table and eat.",
    "The young woman is reading a book to the children.",
]
BAD = [
    "A man with red shirt stands at ladder.",
    "Dogs play in snow deep.",
    "Girl rides along river.",
    "People are eating on a table.",
    "A woman reads three children.",
]


def test_tokens_are_scored_one_by_one():
    torch.manual_seed(0)
    model = make_model(9, 9, N=1, d_model=8, d_ff=16, h=2, dropout=0.5).double()
    src = torch.tensor([[2, 4, 1], [5, 1, 3]])  # padded with 3, as each batch says
    tgt = torch.tensor([[0, 6, 2, 8, 1], [0, 5, 1, 3, 3]])
    found = score_tokens(model, [Batch(src[i : i + 1], tgt[i : i + 1], 3) for i in (0, 1)])
    joined = score_tokens(model, [Batch(src, tgt, 3)])
    assert model.training
    model.eval()
    loss, right = 0.0, 0
    for sentence, words in (([2, 4, 1], [0, 6, 2, 8, 1]), ([5, 1], [0, 5, 1])):
        for i in range(1, len(words)):
            before = torch.tensor([words[:i]])
            states = model(torch.tensor([sentence]), before, None, subsequent_mask(i))
            probabilities = model.generator(states[0, -1]).exp().tolist()
            loss -= math.log(probabilities[words[i]])
            right += max(probabilities) == probabilities[words[i]]
    for scores in (found, joined):
        assert scores.ntokens == 6
        assert scores.loss == pytest.approx(loss / 6)
        assert scores.perplexity == pytest.approx(math.exp(loss / 6))
        assert scores.accuracy == pytest.approx(right / 6)
    assert TokenScores(1e9, 0.0, 1).perplexity == math.inf


def test_only_raw_text_is_tokenised():
    assert bleu(["Yes , we can go !"], ["Yes, we can go!"]).value == pytest.approx(100)
    assert tokenized_bleu(["Yes , we can go !"], ["Yes, we can go!"]).value < 50


@pytest.mark.parametrize("metric", [bleu, chrf, tokenized_bleu, lambda h, r: paired_bootstrap(h, h, r)])
@pytest.mark.parametrize(("hypotheses", "references"), [(["a"], ["a", "b"]), ([], [])])
def test_each_hypothesis_needs_its_reference(metric, hypotheses, references):
    with pytest.raises(ValueError, match=f"not {len(references)} for {len(hypotheses)}"):
        metric(hypotheses, references)


@pytest.mark.parametrize("metric", [bleu, chrf, METRICS["exact"]()])
@pytest.mark.parametrize("other", [["a b c d", "a b"], None])
def test_what_is_no_text_is_no_reference(metric, other):
    with pytest.raises(ValueError, match="takes one text for each sentence"):
        metric(["a b c d"], [other])


@pytest.mark.parametrize("language", ["en", "de"])
def test_moses_reproduces_multi30ks_tokenised_files(multi30k_folder, language):
    folder = multi30k_folder / "data" / "task1"
    with gzip.open(folder / "raw" / f"test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
        raw = file.read().split("\n")[:200]
    tokenized = folder / "tok" / f"test_2016_flickr.lc.norm.tok.{language}"
    assert annotated.moses_tokenized(raw, language) == tokenized.read_text(encoding="utf-8").split("\n")[:200]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.sampled_from(["13a", "none"]))
def test_counts_give_the_bleu_of_any_draw(draw, tokenize):
    metric = bleu_metric(tokenize)
    counts = metric.counts(GOOD, REFERENCES)[draw]
    texts = [GOOD[i] for i in draw], [[REFERENCES[i] for i in draw]]
    assert metric.value(counts.sum(axis=0)) == pytest.approx(
        BLEU(tokenize=tokenize, force=True).corpus_score(*texts).score
    )


def test_tokenized_text_is_no_mistake_to_warn_of(caplog):
    """As sacreBLEU does of a hundred lines that end in " .", where it is not told."""
    BLEU(tokenize="none").corpus_score(["A dog ."] * 100, [["A dog ."] * 100])
    assert "forgot to detokenize" in caplog.text
    caplog.clear()
    bleu_metric("none")(["A dog ."] * 100, ["A dog ."] * 100)
    assert not caplog.records


def test_a_better_system_wins_the_bootstrap():
    found = paired_bootstrap(GOOD, BAD, REFERENCES, samples=200)
    assert found.a.value == pytest.approx(bleu(GOOD, REFERENCES).value)
    assert found.b.value == pytest.approx(bleu(BAD, REFERENCES).value)
    assert found.difference.value == pytest.approx(found.a.value - found.b.value)
    assert found.wins == 1
    assert found.difference.low > 0
    for interval in (found.a, found.b, found.difference):
        assert interval.low < interval.value < interval.high
    back = paired_bootstrap(BAD, GOOD, REFERENCES, samples=200)
    assert (back.wins, back.a, back.difference.low) == (0, found.b, pytest.approx(-found.difference.high))
    same = paired_bootstrap(GOOD, GOOD, REFERENCES, samples=50)
    assert (same.a, same.difference.low, same.difference.high) == (same.b, 0, 0)  # the same draws for both


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_intervals_are_sacrebleus(name):
    """By its own bootstrap, whose seed is 12345, on the same draws."""
    scorer = {"bleu": BLEU, "chrf": CHRF}[name]()
    expected = scorer.corpus_score(GOOD * 20, [REFERENCES * 20], n_bootstrap=1000)
    found = bootstrap(GOOD * 20, REFERENCES * 20, 1000, 12345, metric=METRICS[name]())
    assert found.value == pytest.approx(expected.score)
    assert (found.high - found.low) / 2 == pytest.approx(expected._ci, rel=0.02)


def edits(one, other):
    """Levenshtein's distance, by its definition."""
    if not one or not other:
        return len(one) + len(other)
    same = edits(one[1:], other[1:]) + (one[0] != other[0])
    return min(same, edits(one[1:], other) + 1, edits(one, other[1:]) + 1)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(*2 * [st.text("ab ", max_size=6)]), min_size=1, max_size=4))
def test_error_rates_are_edits_by_length(pairs):
    hypotheses, references = zip(*pairs, strict=True)
    for name, split in (("wer", str.split), ("cer", lambda text: list(text.strip()))):
        errors = sum(edits(split(h), split(r)) for h, r in pairs)
        length = max(1, sum(len(split(r)) for r in references))
        assert METRICS[name]()(hypotheses, references).value == pytest.approx(100 * errors / length)
    exact = 100 * sum(h.split() == r.split() for h, r in pairs) / len(pairs)
    assert METRICS["exact"]()(hypotheses, references).value == pytest.approx(exact)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_tells_good_from_bad(name):
    metric, wrong = METRICS[name](), [f"{line[:-3]}x" for line in REFERENCES]
    best, worst = metric(REFERENCES, REFERENCES).value, metric(wrong, REFERENCES).value
    assert (best < worst) == metric.lower_is_better
    assert paired_bootstrap(REFERENCES, wrong, REFERENCES, 50, metric=metric).wins == 1
    assert paired_bootstrap(GOOD, GOOD, REFERENCES, 5, metric=metric).wins == 0
    for text in ("A dog runs.", {"A dog runs.", "A cat runs."}):  # each character a sentence; in no order
        with pytest.raises(ValueError, match="a list"):
            metric(text, list(text))
        with pytest.raises(ValueError, match="a list"):
            metric(list(text), text)


def test_translations_while_training_are_those_of_greedy_search_beside_the_targets():
    words = WordTokenizer([f"w{i}" for i in range(6)], None)
    torch.manual_seed(0)
    model = make_model(10, 10, N=1, d_model=16, d_ff=16, h=2)
    src = torch.tensor([[4, 5, 6, 1], [7, 1, PAD, PAD], [8, 9, 1, PAD]])
    tgt = torch.tensor([[words.start, words.unk, 7, words.end], [words.start, 5, words.end, PAD]] * 2)[:3]
    mask = (src != PAD).unsqueeze(1)
    never = (words.start, words.pad, words.unk)  # <unk> would be right where the target has it
    with torch.no_grad():
        model.generator.proj.bias[words.unk] += 100
    rows = greedy_decode(model, src, mask, 54, words.start, words.end, forbidden=never).tolist()
    expected = [words.decode(row[: n + 50]) for row, n in zip(rows, [4, 2, 3], strict=True)]
    found, references = translate_greedily(model, [Batch(src, tgt, PAD)], words)
    assert found == expected
    assert references == [words.decode(row) for row in tgt[:, 1:].tolist()]


def test_an_example_of_invisible_characters_is_as_short_as_any():
    characters, text = CharacterTokenizer(["a", "\u200e"]), "a" + "\u200e" * 49  # marks of direction
    model = make_model(6, 6, N=1, d_model=16, d_ff=16, h=2)
    pairs = encode_corpus(own_text([(text, text)], "pairs"), characters, characters, 99)
    validation = Validation(TokenBatches(pairs, 200, shuffle=False), characters, TrainedText.of({}))
    assert len(validation.example(model, 0, characters)) < 160


def test_alignment_error_rate_by_hand():
    predicted, sure, possible = {(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 2)}, {(1, 1)}
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - (1 + 1) / 5)
    for more in (possible, possible | sure):
        assert alignment_error_rate(predicted, sure, more) == pytest.approx(1 - (1 + 2) / 5)
    assert alignment_error_rate(sure, sure) == alignment_error_rate(set(), set()) == 0
    assert alignment_error_rate(set(), sure) == alignment_error_rate({(5, 5)}, sure) == 1
    assert alignment_error_rate(possible, set(), possible) == 0


def test_the_language_names_its_tokenizer():
    found = {name: bleu_tokenizer(name) for name in ("de", None, "zh-Hant", "ZH_cn", "ja", "th")}
    assert [*found.values()] == ["13a", "13a", "zh", "zh", "ja-mecab", "char"]


def test_bleu_without_spaces_counts_what_stands_between_the_ends():
    """By 13a, which goes by spaces, a Thai or Chinese sentence is one word: right or wrong as a whole."""
    thai, chinese = ("ผมรักคุณมากที่สุด", "ผมรักคุณน้อยที่สุด"), ("我非常喜欢这本书", "我非常喜欢那本书")
    for language, (found, wanted) in (("th", thai), ("zh", chinese)):
        tokenize = bleu_tokenizer(language)
        score = bleu([found], [wanted], tokenize)
        assert score.value > 20 > bleu([found], [wanted]).value
        assert f"tok:{tokenize}|" in score.signature
        assert bootstrap([found], [wanted], 10, tokenize=tokenize).value == pytest.approx(score.value)


def test_a_tokenizer_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"no tokenizer 'moses'; it has .*13a"):
        bleu(["a"], ["a"], "moses")
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ImportError, match=r"pip install sacrebleu\[ja\]"):
        bootstrap(["a"], ["a"], tokenize="ja-mecab")


def test_a_metric_is_known_by_its_name_and_by_its_function():
    texts = ["a dog runs", "a cat"], ["a dog ran", "the cat"]
    wanted = bootstrap(*texts, metric=METRICS["chrf"]())
    assert bootstrap(*texts, metric="chrf") == bootstrap(*texts, metric=annotated.chrf) == wanted
    tokenized = bootstrap(*texts, tokenize="none")
    assert bootstrap(*texts, metric="bleu", samples=9) == bootstrap(*texts, metric=annotated.bleu, samples=9)
    assert bootstrap(*texts, metric=tokenized_bleu) == tokenized
    for other in ("rouge", 5):
        with pytest.raises(ValueError, match="one of bleu, chrf"):
            bootstrap(*texts, metric=other)


def test_a_function_of_ones_own_is_called_on_each_test_set():
    def wer(hypotheses, references):  # not the package's, whose name it has
        return 100 * np.mean([h == r for h, r in zip(hypotheses, references, strict=True)])

    some = [*REFERENCES[:2], *BAD[2:]]  # right in two of five sentences
    exact = bootstrap(some, REFERENCES, samples=50, metric="exact")
    found = bootstrap(some, REFERENCES, samples=50, metric=wer)
    assert (found.name, found.value, found.low, found.high) == ("wer", exact.value, exact.low, exact.high)
    scored = bootstrap(some, REFERENCES, samples=50, metric=lambda h, r: replace(exact, value=wer(h, r)))
    assert scored == exact
    wanted = paired_bootstrap(some, BAD, REFERENCES, samples=50, metric="exact")
    compared = paired_bootstrap(some, BAD, REFERENCES, samples=50, metric=wer)
    assert (compared.wins, compared.difference.low) == (wanted.wins, wanted.difference.low)
    with pytest.raises(ValueError, match="one reference for each"):
        bootstrap(BAD[:1], REFERENCES, metric=wer)

    @dataclass
    class Unhashable:
        scale: float = 1.0

        def __call__(self, hypotheses, references):
            return self.scale * wer(hypotheses, references)

    assert bootstrap(some, REFERENCES, samples=50, metric=Unhashable()).value == exact.value


def test_a_bootstrap_draws_at_least_once():
    with pytest.raises(ValueError, match="samples must be at least 1"):
        bootstrap(["a"], ["a"], samples=0)


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("一只猫坐在那里。", True),
        ("ねこ OK", True),
        ("แมวนั่งอยู่", True),
        ("a cat", False),
        ("кот", False),
        ("", False),
    ],
)
def test_scripts_without_spaces_are_recognized(text, lacking):
    assert lacks_spaces([text, text]) is lacking


def test_a_word_outside_of_the_vocabulary_is_never_right():
    model = make_model(5, 5, N=1, d_model=8, d_ff=8, h=2)
    with torch.no_grad():
        model.generator.proj.bias[3] = 1e9  # always <unk>
    batch = Batch(torch.tensor([[4, 1]]), torch.tensor([[0, 3, 3, 1]]), 2)
    assert score_tokens(model, [batch]).accuracy == pytest.approx(2 / 3)
    assert score_tokens(model, [batch], unknown=3).accuracy == 0
