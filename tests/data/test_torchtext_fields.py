import sys

import pytest

from annotated.data import ParallelText, TokenBatches, encode_corpus, multi30k
from annotated.data.torchtext_fields import FieldBatches, build_vocabularies, make_dataset, make_fields
from annotated.tokenizers import SPECIALS, WordTokenizer

WORDS = ["der", "die", "das", "Hund", "Katze", "Haus", "sieht", "geht", "und", "nicht", "heute", "morgen"]


@pytest.fixture(scope="module")
def text():
    src = [" ".join(WORDS[(i * k) % 12] for k in range(1 + i % 17)) for i in range(400)]
    tgt = [" ".join(WORDS[(i + k) % 12].upper() for k in range(1 + (i + 3) % 15)) for i in range(400)]
    return ParallelText(src, tgt, [*range(1, 401)], "made up")


@pytest.fixture(scope="module")
def classic(text):
    fields = make_fields(None, None)
    dataset = make_dataset(text, fields)
    build_vocabularies(fields, dataset)
    return fields, dataset


def rows(batch):
    """The batch's pairs by line, without padding."""
    strip = [[i for i in row if i != 2] for row in batch.src.tolist()]
    target = [
        [first, *(i for i in rest if i != 2)]
        for (first, *_), rest in zip(batch.tgt.tolist(), batch.tgt_y.tolist(), strict=True)
    ]
    return {line: (src, tgt) for line, src, tgt in zip(batch.lines, strip, target, strict=True)}


def test_the_classic_way_gives_the_numbers_of_the_plain_way(text, classic):
    fields, dataset = classic
    tokenizers = [WordTokenizer.train(side, None) for side in (text.src, text.tgt)]
    for side, tokenizer in zip(("src", "tgt"), tokenizers, strict=True):
        assert fields[side].vocab.itos == [*SPECIALS, *tokenizer.words]
    pairs = encode_corpus(text, *tokenizers)
    expected = dict(zip(pairs.lines, zip(pairs.src, pairs.tgt, strict=True), strict=True))
    found = [rows(batch) for batch in FieldBatches(dataset, 200)]
    assert sum(map(len, found)) == len(text)
    assert {line: pair for batch in found for line, pair in batch.items()} == expected


def test_both_ways_cut_and_count_real_sentences_alike(multi30k_folder):
    text = multi30k()["val"]
    fields = make_fields("en", "de", lower=True)
    build_vocabularies(fields, make_dataset(text, fields))
    assert fields["src"].vocab.itos[4:] == WordTokenizer.train(text.src, "en", lower=True).words
    assert fields["tgt"].vocab.itos[4:] == WordTokenizer.train(text.tgt, "de", lower=True).words


@pytest.mark.parametrize("train", [True, False])
def test_batches_are_tight_and_keep_to_the_limit(text, classic, train):
    batches = list(FieldBatches(classic[1], 300, train=train))
    assert all(max(batch.src.numel(), batch.tgt.numel()) <= 300 for batch in batches)
    assert all(len(batch.lines) for batch in batches)
    padded = sum(int((batch.src == 2).sum() + (batch.tgt_y == 2).sum()) for batch in batches)
    assert padded / sum(batch.src.numel() + batch.tgt_y.numel() for batch in batches) < 0.35
    plain = TokenBatches(encode_corpus(text, *[WordTokenizer(WORDS, None)] * 2), 300)
    assert len(batches) <= 1.2 * len(plain)


def test_the_order_follows_from_the_seed_and_changes_by_epoch(classic):
    def epochs(seed):
        batches = FieldBatches(classic[1], 200, seed=seed)
        return [[batch.lines for batch in batches] for _ in range(2)]

    first = epochs(1)
    assert epochs(1) == first
    assert epochs(2) != first
    assert first[0] != first[1]


def test_the_vocabulary_is_of_the_training_set_alone():
    fields = make_fields("de", "en", lower=True)
    train = make_dataset(ParallelText(["Ein Haus, ein Hund."], ["A house, a dog."], [1], "train"), fields)
    build_vocabularies(fields, train, min_freq=1)
    assert fields["src"].vocab.itos == [*SPECIALS, "ein", ",", ".", "haus", "hund"]
    test = make_dataset(ParallelText(["Ein Krokodil."], ["A house."], [1], "test"), fields)
    (batch,) = FieldBatches(test, 100, train=False)
    assert batch.src.tolist() == [[4, 3, 6, 1]]


@pytest.mark.parametrize("lower", [True, False])
def test_words_that_spell_a_symbol_are_unknown(lower):
    fields = make_fields(None, None, lower)
    spelled = "a </s> <s> <blank>".upper() if lower else "a </s> <s> <blank>"
    train = make_dataset(ParallelText([spelled], ["a"], [1], "train"), fields)
    build_vocabularies(fields, train, min_freq=1)
    (batch,) = FieldBatches(train, 100)
    assert batch.src.tolist() == [[4, 3, 3, 3, 1]]


def test_a_pair_that_fits_no_batch_is_named(classic):
    fields, _ = classic
    dataset = make_dataset(ParallelText(["a", "b " * 20], ["a", "b"], [3, 8], "mine"), fields)
    with pytest.raises(ValueError, match=r"line 8: 21 tokens do not fit .*max_tokens=20"):
        FieldBatches(dataset, 20)
    assert len(list(FieldBatches(dataset, 21))) == 2


def test_missing_torchtext_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchtext.data", None)
    monkeypatch.delitem(sys.modules, "annotated.data.torchtext_fields")
    with pytest.raises(ImportError, match=r"\.\[words\]"):
        import annotated.data.torchtext_fields  # noqa: F401
