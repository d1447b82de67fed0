"""Byte-pair merges one at a time, some of them left out at random (BPE dropout, Provilkov et al. 2020)."""

from collections.abc import Mapping
from random import Random


def merge_pieces(
    symbols: list[str], scores: Mapping[str, float], dropout: float, random: Random
) -> list[str]:
    """Join neighbours into pieces until no two make one; returns the pieces.

    At each step the pair goes first whose piece has the highest score, the leftmost of equals; each pair is
    left out of the choice with probability `dropout`, and where that leaves none, merging ends. Without
    dropout this is what SentencePiece computes.
    """
    symbols = list(symbols)
    while True:
        best, place = None, -1
        for i in range(len(symbols) - 1):
            score = scores.get(symbols[i] + symbols[i + 1])
            if score is None or (dropout and random.random() < dropout):
                continue
            if best is None or score > best:
                best, place = score, i
        if best is None:
            return symbols
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
