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
    possible: set[tuple[int, int]]  # the merely possible ones


def aligned_captions() -> list[AlignedCaption]:
    """Read the 24 captions of the file."""
    lines, found = read_lines(FILE), []
    for english, linked in zip(map(str.split, lines[::2]), lines[1::2], strict=True):
        german, links = map(list, zip(*(word.rsplit(":", 1) for word in linked.split()), strict=True))
        named = [(name, t) for t, names in enumerate(links) for name in names.split(",") if name]
        sure = {(int(name) - 1, t) for name, t in named if "?" not in name}
        possible = {(int(name[:-1]) - 1, t) for name, t in named if "?" in name}
        found.append(AlignedCaption(surface(english), surface(german), english, german, sure, possible))
    return found
