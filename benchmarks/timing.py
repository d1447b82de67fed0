"""Candidates measured in turns, in one process, and what may be said of the difference between two.

Each candidate is run twice over: its even and its odd turns are two runs of the same code. How far these two
lie apart is what the machine adds of itself, and no smaller difference between candidates is reported.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Measured:
    """What one candidate took in each of its turns: seconds, or megabytes."""

    turns: list[float]

    @property
    def median(self) -> float:
        return median(self.turns)

    @property
    def spread(self) -> float:
        """From the first to the third quartile, as a share of the median."""
        first, _, third = quantiles(self.turns, n=4, method="inclusive")
        return (third - first) / self.median

    @property
    def doubt(self) -> float:
        """How many times as much the dearer of its two runs took as the other: 1 if they agree."""
        runs = median(self.turns[::2]), median(self.turns[1::2])
        return max(runs) / min(runs)

    def summary(self) -> dict[str, object]:
        return {"median": self.median, "spread": self.spread, "doubt": self.doubt, "turns": self.turns}


@dataclass(frozen=True)
class Comparison:
    """How many times as much `peer` takes as `ours`: above 1, ours is ahead."""

    ours: str
    peer: str
    ratio: float
    doubt: float  # the larger of the two candidates' own

    @property
    def told(self) -> bool:
        """Whether the two differ by more than either does from itself."""
        return max(self.ratio, 1 / self.ratio) > self.doubt

    def __str__(self) -> str:
        if self.told:
            return f"{self.ratio:.2f} x"
        apart = max(self.ratio, 1 / self.ratio) - 1
        return f"refused: {apart:.1%}, noise {self.doubt - 1:.1%}"

    def summary(self) -> dict[str, object]:
        """For the record; a ratio that cannot be told is left out of it."""
        ratio = self.ratio if self.told else None
        return {"ours": self.ours, "peer": self.peer, "ratio": ratio, "doubt": self.doubt}


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    measure: Callable[[Callable[[], object]], float] | None = None,
    warm_up: int = 1,
) -> dict[str, Measured]:
    """Run every candidate `warm_up` times unmeasured, then `rounds` times in each of its two runs.

    The order is turned round after each turn, so that nobody always comes first. `measure` runs a candidate
    and tells what that took; by default, seconds. Raises ValueError for less than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    measure = measure or seconds
    for run in candidates.values():
        for _ in range(warm_up):
            run()
    turns: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(2 * rounds):
        for name in list(candidates)[:: 1 if turn % 2 == 0 else -1]:
            turns[name].append(measure(candidates[name]))
    return {name: Measured(values) for name, values in turns.items()}


def seconds(run: Callable[[], object]) -> float:
    """How long a candidate takes by the clock on the wall."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def compare(measured: Mapping[str, Measured], ours: str, peer: str) -> Comparison:
    """Set two candidates against each other."""
    mine, other = measured[ours], measured[peer]
    return Comparison(ours, peer, other.median / mine.median, max(mine.doubt, other.doubt))


def check_equal(values: Mapping[str, float], tolerance: Mapping[str, float] | float) -> None:
    """Refuse to race candidates that do not compute the same: each value is held to the first one.

    `tolerance` is relative, one for all or one for each. Raises ValueError naming who is off.
    """
    first, expected = next(iter(values.items()))
    for name, value in values.items():
        allowed = tolerance if isinstance(tolerance, float) else tolerance[name]
        if not abs(value - expected) <= allowed * abs(expected):
            raise ValueError(f"not the same computation: {name} gives {value:.6g}, {first} {expected:.6g}")


def check_agreement(found: Mapping[str, list], least: float = 0.99) -> dict[str, float]:
    """Refuse candidates that give other answers than the first one, item by item, more often than allowed.

    Returns each one's share of equal answers. Raises ValueError naming who falls below `least`.
    """
    first, expected = next(iter(found.items()))
    shares = {}
    for name, answers in found.items():
        equal = sum(a == b for a, b in zip(answers, expected, strict=True))
        shares[name] = equal / len(expected)
        if shares[name] < least:
            raise ValueError(
                f"not the same computation: {name} and {first} agree on {shares[name]:.1%} of their answers"
            )
    return shares
