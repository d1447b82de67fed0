"""Text that looks alike is normalized to the same string."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from annotated.translation.tokenizers import normalize

PLAIN = "Männer fahren auf Fahrrädern."
SAME = {
    "decomposed": unicodedata.normalize("NFD", PLAIN),
    "no-break spaces": PLAIN.replace(" ", "\u00a0"),
    "narrow and zero-width spaces": PLAIN.replace(" ", "\u202f\u200b"),
    "tabs": PLAIN.replace(" ", "\t"),
    "two spaces": PLAIN.replace(" ", "  "),
    "byte order marks": f"\ufeff{PLAIN}\ufeff",
    "line ends": PLAIN + "\r\r\n",
    "white space around": f" \u2003{PLAIN}\u2028 ",
    "control characters": PLAIN.replace("M", "\0M\x7f\x9f\x08"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_text_that_looks_alike_becomes_the_same(text):
    assert text != PLAIN
    assert normalize(text) == PLAIN


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\ufeff\r\n", "\u200d\u200e \u2060", "\0"])
def test_text_without_a_visible_character_is_empty(text):
    assert normalize(text) == ""


@pytest.mark.parametrize(
    "text", ["👩\u200d🚀 fliegt", "می\u200cخواهم", "½ ﬁne Ａ", "\ud800 x", "a\u0301\u0302"]
)
def test_what_carries_meaning_is_kept(text):
    assert normalize(text) == unicodedata.normalize("NFC", text)


@given(st.text())
def test_a_second_time_changes_nothing(text):
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once == " ".join(once.split())
