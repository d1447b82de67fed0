"""Token ids of a corpus: packed, cached, and cut anew by subword dropout."""

import mmap
import subprocess
import sys
import warnings
from random import Random

import numpy as np
import pytest

from annotated.translation.data import (
    ParallelText,
    SubwordDropout,
    TokenBatches,
    encode_corpus,
    token_batches as module,
)
from annotated.translation.data.packed import PackedRows
from annotated.translation.tokenizers import CharacterTokenizer, SentencePieceTokenizer, WordTokenizer

TEXT = ParallelText(
    [f"the cat and the dog sing {i} songs" for i in range(30)],
    [f"die Katze und der Hund singen {i} Lieder" for i in range(30)],
    [*range(1, 31)],
    "mine",
)


@pytest.fixture(scope="module")
def subwords():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SentencePieceTokenizer.train(TEXT.src + TEXT.tgt, 1000)


@pytest.mark.parametrize("rows", [[[1, 2**31 - 1], [], [3]], ["aé\ud800", "", "c"]])
def test_packed_rows_are_the_rows(rows):
    found = PackedRows.of(rows)
    assert list(found) == rows == found
    assert (found[1:3], found[-1]) == (rows[1:3], rows[-1])
    assert list(found.take(np.array([2, 0]))) == [rows[2], rows[0]]


def test_encoding_adds_the_symbols_and_drops_long_pairs():
    text = ParallelText(["a b", "a b c", "a"], ["x y", "y", "x y z"], [1, 4, 9], "mine", {"an empty side": 2})
    words = WordTokenizer(list("abcxyz"), None)
    pairs = encode_corpus(text, words, words, max_sentence=2)
    assert (list(pairs.src), list(pairs.tgt), list(pairs.lines)) == ([[4, 5, 1]], [[0, 7, 8, 1]], [1])
    bounds = "(max_sentence, max_tokens and learned positions bound them)"
    why = f"more than 2 tokens {bounds}, first in line 4: 'a b c' | 'y'"
    assert pairs.report() == f"mine: 1 pair\n  dropped 2: an empty side\n  dropped 2: {why}"
    assert len(encode_corpus(text, words, words)) == 3
    with pytest.raises(ValueError, match=r"no pair is left: .* 3 more than 0 tokens"):
        encode_corpus(text, words, words, max_sentence=0)


def test_cached_pairs_are_those_that_were_encoded(subwords, tmp_path, monkeypatch):
    characters = CharacterTokenizer.train(TEXT.tgt)
    monkeypatch.setattr(module, "CHUNK", 7)  # the last chunk is not full
    plain = encode_corpus(TEXT, subwords, characters, max_sentence=40)
    assert list(plain.src) == [[*subwords.encode(sentence), 1] for sentence in TEXT.src]
    assert list(plain.tgt) == [[0, *characters.encode(sentence), 1] for sentence in TEXT.tgt]
    assert encode_corpus(TEXT, subwords, characters, 40, tmp_path) == plain
    with monkeypatch.context() as patch:  # now nothing is encoded
        patch.setattr(SentencePieceTokenizer, "encode_batch", None)
        cached = encode_corpus(TEXT, subwords, characters, 40, tmp_path)
    assert cached == plain
    assert isinstance(cached.src.data.base.obj, mmap.mmap)
    others = ParallelText(TEXT.src, [*TEXT.tgt[:-1], "anders"], TEXT.lines, "mine")
    assert encode_corpus(others, subwords, characters, None, tmp_path).tgt[-1] != plain.tgt[-1]
    assert encode_corpus(TEXT, characters, characters, None, tmp_path).src != plain.src
    assert encode_corpus(TEXT, subwords, subwords, None, tmp_path).tgt != plain.tgt


def test_processes_that_encode_at_one_time_share_one_copy(tmp_path):
    code = (
        "import sys; from annotated.translation.data import *\n"
        "from annotated.translation.tokenizers import *\n"
        "text = ParallelText(['a b'] * 30000, ['b'] * 30000, [*range(30000)], 'mine')\n"
        "words = WordTokenizer(['a', 'b'], None)\n"
        "print(sum(map(sum, encode_corpus(text, words, words, cache=sys.argv[1]).src)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[0].strip() for run in runs] == [str((4 + 5 + 1) * 30000)] * 2
    assert len(list(tmp_path.glob("ids-*/"))) == 1


def epoch(batches, number):
    """The rows of an epoch by pair: source, and target without its end."""
    return {
        i: (src, tgt)
        for plan, batch in zip(batches.plan(number), batches.epoch(number), strict=True)
        for i, src, tgt in zip(plan.tolist(), batch.src.tolist(), batch.tgt.tolist(), strict=True)
    }


def test_dropout_cuts_the_same_text_anew_in_each_epoch(subwords):
    pairs = encode_corpus(TEXT, subwords, subwords)
    batches = TokenBatches(pairs, 200, seed=5, dropout=SubwordDropout(subwords, subwords, 0.3, 200))
    first, again, second = (epoch(batches, number) for number in (1, 1, 2))
    assert first == again
    one, other = (batches.collate(range(30), number) for number in (1, 2))  # the same rows
    assert one.src.tolist() != other.src.tolist()
    assert one.tgt.tolist() != other.tgt.tolist()
    for rows in (first, second):
        for i, (src, tgt) in rows.items():
            assert subwords.decode(src) == TEXT.src[i]
            assert subwords.decode(tgt) == TEXT.tgt[i]
            assert 1 in src
            assert tgt[0] == 0


def test_dropout_of_a_pair_is_the_same_in_any_batch(subwords):
    """So it is with another number of processes, or where a run is taken up again."""
    pairs = encode_corpus(TEXT, subwords, subwords)
    dropout = SubwordDropout(subwords, subwords, 0.3, 200)
    together = TokenBatches(pairs, 200, seed=5, dropout=dropout).collate(range(30), 3)
    alone = [TokenBatches(pairs, 200, seed=5, dropout=dropout).collate([i], 3) for i in range(30)]
    for i, batch in enumerate(alone):
        assert together.src[i, : batch.src.size(1)].tolist() == batch.src[0].tolist()


def test_what_dropout_makes_too_long_stays_whole(subwords):
    row = [*subwords.encode(TEXT.src[0]), 1]
    assert SubwordDropout(subwords, subwords, 1.0, len(row) - 1)(row, subwords, Random(0)) == row
    assert len(SubwordDropout(subwords, subwords, 1.0, 999)(row, subwords, Random(0))) > len(row)
