"""Token ids of a corpus: packed, and cached."""

import mmap
import subprocess
import sys
import warnings

import numpy as np
import pytest

from annotated.translation.data import (
    ParallelText,
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
