"""Random choices that depend on the seed alone."""

from collections.abc import Sequence
from random import Random


class Dice:
    """Random choices that depend on the seed alone, not on the Python version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, options: Sequence):
        return options[int(self._random.random() * len(options))]

    def weighted(self, options: Sequence[tuple[object, float]]):
        """One of the options, each as likely as its weight says."""
        at = self._random.random() * sum(weight for _, weight in options)
        for option, weight in options:
            at -= weight
            if at < 0:
                return option
        return options[-1][0]
