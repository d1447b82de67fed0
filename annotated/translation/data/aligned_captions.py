"""Image captions in English and German, aligned word by word by hand.

Two lines of the file make a pair: the English words, and the German ones, each with the numbers of its
English words, counted from 1 (`am:8,9?`). A link is sure, or only possible if it has a question mark.
"""

from pathlib import Path
from typing import NamedTuple

from annotated.translation.data.grammar import surface
from annotated.translation.data.text_files import read_lines

FILE = Path(__file__).with_name("aligned_captions.txt")


class AlignedCaption(NamedTuple):
    """A caption with its translation; links are (position of an English word, of a German one), from 0."""

    english: str
    german: str
    english_words: list[str]
    german_words: list[str]
    sure: set[tuple[int, int]]
    possible: set[tuple[int, int]]  # links that are only possible


def aligned_captions() -> list[AlignedCaption]:
    """Read the 24 captions of the file."""
    lines = read_lines(FILE)
    captions = []
    for english, linked in zip(map(str.split, lines[::2]), lines[1::2], strict=True):
        german, numbers = map(list, zip(*(word.rsplit(":", 1) for word in linked.split()), strict=True))
        links = [(number, t) for t, listed in enumerate(numbers) for number in listed.split(",") if number]
        sure = {(int(number) - 1, t) for number, t in links if "?" not in number}
        possible = {(int(number[:-1]) - 1, t) for number, t in links if "?" in number}
        captions.append(AlignedCaption(surface(english), surface(german), english, german, sure, possible))
    return captions
