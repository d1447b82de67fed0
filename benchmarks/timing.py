"""Candidates measured in turns, in one process, and what may be said of the difference between two.

Each candidate is run twice over: its even and its odd turns are two runs of the same code, and so are the
first and the second half of its turns, which differ where the machine changes its pace. How far two runs lie
apart is what the machine adds of itself, and no smaller difference between candidates is reported.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

# What torch and CTranslate2 say where a candidate cannot run here: too little memory, no support of the GPU.
CANNOT = ("out of memory", "can't allocate memory", "not compiled with CUDA", "cannot be loaded")


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
        """How many times as much the dearer of two runs took as the other: 1 if they agree.

        The two are the even and the odd turns, or the first and the second half, whichever lie further apart.
        """
        half = len(self.turns) // 2
        pairs = (self.turns[::2], self.turns[1::2]), (self.turns[:half], self.turns[half:])
        runs = [sorted(map(median, pair)) for pair in pairs]
        return max(dearer / cheaper for cheaper, dearer in runs)

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
    and tells what that took; by default, seconds. Who cannot run here is left out. Raises ValueError for less
    than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    measure = measure or seconds
    left = dict(candidates)
    for name in candidates:
        with leaving_out(left, name):
            for _ in range(warm_up):
                left[name]()
    turns: dict[str, list[float]] = {name: [] for name in left}
    for turn in range(2 * rounds):
        for name in list(left)[:: 1 if turn % 2 == 0 else -1]:
            with leaving_out(left, name):
                turns[name].append(measure(left[name]))
    return {name: Measured(turns[name]) for name in left}


@contextmanager
def leaving_out(candidates: dict[str, object], name: str) -> Iterator[None]:
    """Take a candidate off the list, and say so, where it turns out in the block that it cannot run here."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        if not any(sign in str(error) for sign in CANNOT):
            raise
        print(f"{name} is left out: {reason}", file=sys.stderr)
        del candidates[name]
        if not candidates:
            raise ValueError("no candidate is left") from error


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
