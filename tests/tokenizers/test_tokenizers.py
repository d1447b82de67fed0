import re
import warnings

import pytest
from hypothesis import given, settings, strategies as st
from nasty_text import NASTY

from annotated.translation.tokenizers import (
    PAD,
    SPECIALS,
    START,
    SentencePieceTokenizer,
    WordTokenizer,
    load_tokenizer,
)

SENTENCES = [
    "Der kleine Hund sieht die Katze im Garten.",
    "The small dog sees the cat in the garden.",
    "Morgen kaufen wir drei frische Brote und zwei Äpfel.",
    "Tomorrow we buy three fresh loaves and two apples.",
    "<s> and </s> and <blank> and <unk> and <0x0A> stand in this text.",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the text is small
        return SentencePieceTokenizer.train(SENTENCES, 600)


NASTY_CHARACTERS = st.sampled_from("▁\ue000em <s>/unk_x0A\t\0\r\v\u2028\u0085\u200d\ufeff\ufffdäe")
LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])) | st.text(NASTY_CHARACTERS)


@settings(max_examples=400, deadline=None)
@given(LINES)
def test_any_line_comes_back(tokenizer, line):
    assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize("name", NASTY)
def test_nasty_text_comes_back_without_special_symbols(tokenizer, name):
    ids = tokenizer.encode(NASTY[name])
    text = NASTY[name].replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
    assert tokenizer.decode([*range(len(SPECIALS)), *ids]) == text
    assert all(len(SPECIALS) <= i < len(tokenizer) for i in ids)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab \ud800\udc00\udfff")))
def test_lone_surrogates_become_replacement_characters(tokenizer, text):
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_what_breaks_the_line_is_never_generated(tokenizer):
    breaking = [i for i in range(len(tokenizer)) if set("\r\n") & set(tokenizer.decode([i]))]
    assert breaking
    assert list(tokenizer.never_generated) == [START, PAD, *breaking]


def test_no_piece_holds_a_line_break_even_if_the_text_is_full_of_them():
    with pytest.warns(UserWarning, match="fewer than the 500"):
        tokenizer = SentencePieceTokenizer.train(["one\rtwo\nthree\r\n"] * 50, 500)
    assert [tokenizer.decode([i]) for i in tokenizer.never_generated] == ["", "", "\n", "\r"]
    assert tokenizer.decode(tokenizer.encode("one\rtwo\nthree\r\n")) == "one\rtwo\nthree\r\n"


def test_training_is_deterministic_quiet_and_keeps_to_the_size(capfd):
    models = [SentencePieceTokenizer.train(iter(SENTENCES), 350) for _ in range(2)]
    assert models[0].model == models[1].model
    assert len(models[0]) == 350
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("text", "size"), [("a a", 4), ("a a", -3), ("all of them once", None)])
def test_a_vocabulary_without_a_token_is_refused(text, size):
    with pytest.raises(ValueError, match=r"tokens is left.*tokenizer subwords"):
        WordTokenizer.train([text], None, vocab_size=size)


@pytest.mark.parametrize("awkward", ["\0", "\t", "▁", "\u2585", "\ud800", " filler" * 3000])
def test_no_training_sentence_is_left_out(awkward):
    with pytest.warns(UserWarning, match="fewer"):
        tokenizer = SentencePieceTokenizer.train([f"xylophone{awkward} and xylophone"] * 10 + ["other"], 2000)
    assert len(tokenizer.encode("xylophone")) == 1


@pytest.mark.parametrize("size", [-5, 1, 259])
def test_a_vocabulary_without_room_for_bytes_is_refused(size):
    with pytest.raises(
        ValueError, match=rf"^vocab_size, in training vocab, must be from 260 to 1,000,000, not {size}$"
    ):
        SentencePieceTokenizer.train(SENTENCES, size)


def test_words_are_ordered_by_frequency_and_rare_ones_are_unknown():
    assert WordTokenizer.train(["b a", "c c"], None, min_freq=1).vocabulary[4:] == ["c", "a", "b"]
    tokenizer = WordTokenizer.train(["b a c b", "a b rare <s> <s>"], language=None)
    assert tokenizer.pieces(range(len(tokenizer))) == [*SPECIALS, "b", "a"]
    assert tokenizer.encode("a b rare new <s> <blank>") == [5, 4, 3, 3, 3, 3]
    assert tokenizer.decode([0, 5, 4, 3, 1, 2]) == "a b <unk>"
    assert tokenizer.never_generated == (START, PAD)


def test_spacy_cuts_words_without_a_downloaded_model():
    assert WordTokenizer([], "de").split("Das ist z.B. so.") == ["Das", "ist", "z.B.", "so", "."]
    assert WordTokenizer([], "en").split("I can't  stop.\r\n") == ["I", "ca", "n't", "stop", "."]


@pytest.mark.parametrize("language", [None, "de"])
def test_no_word_holds_white_space(language):
    tokenizer = WordTokenizer.train(NASTY.values(), language, min_freq=1)
    for text in NASTY.values():
        assert not any(set(word) & set("\r\n\t ") for word in tokenizer.split(text))
        tokenizer.decode(tokenizer.encode(text)).encode()


def test_words_refuse_unknown_languages():
    for language in ("klingon", "../../x", "lex_attrs", "en.stop_words"):
        with pytest.raises(ValueError, match=language):
            WordTokenizer([], language)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("t.model", lambda data: data[:-1]),
        ("t.model", lambda data: data[:100] + b"!" + data[101:]),
        ("t.json", lambda data: data[:20]),
        ("t.json", lambda data: b'{"kind": ["sentencepiece"]}'),
        ("t.json", lambda data: b'{"kind": "sentencepiece"}'),
        ("t.json", lambda data: b'{"kind": "words", "words": ["a"], "language": "zzz"}'),
        ("t.json", lambda data: b'{"kind": "pickle"}'),
        ("t.json", lambda data: b'{"kind": "characters", "characters": ["a", "a"]}'),
    ],
)
def test_a_damaged_file_is_one_clear_line(tokenizer, tmp_path, file, damage):
    tokenizer.save(tmp_path, "t")
    path = tmp_path / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        load_tokenizer(tmp_path, "t")


def test_a_sample_of_many_lines_is_spread_over_the_text(monkeypatch):
    monkeypatch.setattr("annotated.translation.tokenizers.subwords.MOST_LINES", 10)
    with pytest.warns(UserWarning, match="fewer than"):
        tokenizer = SentencePieceTokenizer.train(["abab"] * 20 + ["xyxy"] * 20, 300)
    assert any("ab" in piece for piece in tokenizer.vocabulary)
    assert any("xy" in piece for piece in tokenizer.vocabulary)


def test_too_few_subwords_for_the_characters_are_told_the_least_number_that_is_enough():
    text = ["".join(map(chr, range(start, start + 50))) for start in range(0x4E00, 0x5200, 50)]
    with pytest.raises(ValueError, match=r"give --vocab \d+") as error:
        SentencePieceTokenizer.train(text, 400)
    enough = int(re.search(r"--vocab (\d+) at least", str(error.value))[1])
    with pytest.raises(ValueError, match="give --vocab"):
        SentencePieceTokenizer.train(text, enough - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so small a text has fewer pieces
        assert SentencePieceTokenizer.train(text, enough).decode(range(enough // 2))
