"""Characters as tokens against Unicode's own rules, worked out by hand."""

import pickle

import pytest
from hypothesis import given, strategies as st

from annotated.translation.tokenizers import (
    UNK,
    CharacterTokenizer,
    SentencePieceTokenizer,
    WordTokenizer,
    load_tokenizer,
)

WORDS = ["Zug", "Straße", "cafe\u0301", "नमस्ते", "한국어", "👩\u200d🚀 ok", "a b"]


@pytest.fixture(scope="module")
def tokenizer():
    return CharacterTokenizer.train(WORDS)


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("Zug", ["Z", "u", "g"]),
        ("cafe\u0301", ["c", "a", "f", "e\u0301"]),
        ("नमस्ते", ["न", "म", "स्ते"]),
        ("한국어", ["한", "국", "어"]),
        ("👩\u200d🚀!", ["👩\u200d🚀", "!"]),
        ("a b", ["a", " ", "b"]),
        ("", []),
    ],
)
def test_a_character_is_what_a_reader_sees(tokenizer, text, characters):
    assert tokenizer.split(text) == characters


@given(st.lists(st.sampled_from([*"Zugabco ", "e\u0301", "ß"]), max_size=20).map("".join))
def test_text_of_known_characters_comes_back(text):
    tokenizer = CharacterTokenizer.train(WORDS)
    assert tokenizer.decode([0, *tokenizer.encode(text), 1, 2]) == text


def test_a_new_character_is_unknown(tokenizer):
    assert tokenizer.encode("xZ")[0] == UNK
    assert tokenizer.decode(tokenizer.encode("xZ")) == "\ufffdZ"
    assert CharacterTokenizer.train(["<s></s>"]).decode([0, 1, 2]) == ""


def test_a_line_break_is_never_generated():
    tokenizer = CharacterTokenizer.train(["a\r\nb\n"])
    assert {tokenizer.vocabulary[i] for i in tokenizer.never_generated} == {"<s>", "<blank>", "\r\n", "\n"}


@pytest.mark.parametrize("form", ["saved", "pickled"])
@pytest.mark.parametrize(
    "tokenizer",
    [
        CharacterTokenizer.train(WORDS),
        WordTokenizer.train(["t͡s uː k", "t͡s a"], None, min_freq=1),
        WordTokenizer.train(["Don't stop."], "en", min_freq=1),
        SentencePieceTokenizer.train(WORDS * 40, 300),
    ],
    ids=["characters", "spaces", "words", "subwords"],
)
def test_a_copy_cuts_text_as_the_original_does(form, tokenizer, tmp_path):
    if form == "saved":
        tokenizer.save(tmp_path, "t")
        copy = load_tokenizer(tmp_path, "t")
    else:  # as it reaches other processes
        copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.vocabulary == tokenizer.vocabulary
    for text in [*WORDS, "t͡s uː x", "Don't stop."]:
        assert copy.encode(text) == tokenizer.encode(text)
