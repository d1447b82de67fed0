"""Candidates measured in turns, in one process, and what may be said of the difference between two.

A machine may change its pace by a factor of two within minutes, but two candidates that run one after the
other see nearly the same pace. So a ratio is taken in each turn; told are the median of these ratios and its
95% interval. A race goes on until the intervals are narrow, or its time is up.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import comb, inf
from statistics import fmean, median, quantiles

from tqdm import tqdm

# What torch and CTranslate2 say where a candidate cannot run here: too little memory, no support of the GPU.
CANNOT = ("out of memory", "can't allocate memory", "not compiled with CUDA", "cannot be loaded")
NARROW = 1.05  # an interval whose upper end is at most so many times its lower one ends a race


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A 95% interval of the median that `values` lie around, whatever their distribution.

    Each value lies above or below that median as a coin falls, so the interval leaves out as many of the
    smallest and of the largest as heads are that rare. None of fewer than six values: they are too few.
    """
    ordered, cut, rare = sorted(values), 0, 0.0
    while (rare := rare + 2 * comb(len(values), cut) / 2 ** len(values)) <= 0.05:
        cut += 1
    return (ordered[cut - 1], ordered[-cut]) if cut else None


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

    def summary(self) -> dict[str, object]:
        return {"median": self.median, "spread": self.spread, "turns": self.turns}


@dataclass(frozen=True)
class Comparison:
    """How many times as much `peer` takes as `ours`: above 1, ours is ahead."""

    ours: str
    peer: str
    ratio: float  # the median of the turns'
    bounds: tuple[float, float] | None  # its 95% interval; None after too few turns

    @property
    def width(self) -> float:
        """How many times its lower end the interval's upper end is."""
        return self.bounds[1] / self.bounds[0] if self.bounds else inf

    def __str__(self) -> str:
        if not self.bounds:
            return f"{self.ratio:.2f} x, in too few turns"
        found = f"{self.ratio:.2f} x ({self.bounds[0]:.2f} to {self.bounds[1]:.2f})"
        return f"too close to tell: {found}" if self.bounds[0] <= 1 <= self.bounds[1] else found

    def summary(self) -> dict[str, object]:
        low, high = self.bounds or (None, None)
        return {"ours": self.ours, "peer": self.peer, "ratio": self.ratio, "low": low, "high": high}


def compare(measured: Mapping[str, Measured], ours: str, peer: str) -> Comparison:
    """Set two candidates against each other, turn by turn."""
    turns = zip(measured[ours].turns, measured[peer].turns, strict=True)
    ratios = [other / mine for mine, other in turns]
    return Comparison(ours, peer, median(ratios), interval(ratios))


def seconds(run: Callable[[], object]) -> float:
    """How long a candidate takes by the clock on the wall."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def race(
    candidates: Mapping[str, Callable[[], object]],
    pairs: Sequence[tuple[str, str]],
    minutes: float = 0,
    rounds: int | None = None,
    measure: Callable[[Callable[[], object]], float] = seconds,
    warm_up: int = 1,
) -> tuple[dict[str, Measured], list[Comparison]]:
    """Run the candidates in rounds of two turns until every ratio is known to within `NARROW`.

    `pairs` are ours and a peer each. After `minutes`, but not before there are intervals, it ends all the
    same, and says which ratio is known worst; with `rounds`, after so many. The second turn of a round has
    the other order, so that nobody always comes first. `measure` runs a candidate and tells what that took,
    first `warm_up` times for nothing. Who cannot run here is left out, with its pairs.
    """
    left = dict(candidates)
    turns: dict[str, list[float]] = {name: [] for name in left}
    started = time.monotonic()
    with tqdm(unit="run", disable=None, leave=False) as progress:

        def turn(name: str, taken: list[float]) -> None:
            progress.set_postfix_str(name)
            with leaving_out(left, name):
                taken.append(measure(left[name]))
            progress.update()

        for name in list(left) * warm_up:
            if name in left:
                turn(name, [])
        for done in count(1):
            for name in [*left, *reversed(left)]:
                if name in left:
                    turn(name, turns[name])
            measured = {name: Measured(turns[name]) for name in left}
            found = [compare(measured, *pair) for pair in pairs if set(pair) <= left.keys()]
            worst = max(found, key=lambda each: each.width, default=None)
            if done >= rounds if rounds else worst is None or worst.width <= NARROW:
                break
            spent = time.monotonic() - started
            if not rounds and worst.bounds and spent * (done + 1) / done > 60 * minutes:
                told = f"{minutes:.3g} minutes are over; least is known of {worst.peer}: {worst}"
                print(told, file=sys.stderr)
                break
    return measured, found


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


def check_equal(values: Mapping[str, float], tolerance: Callable[[str], float] = lambda _: 1e-4) -> None:
    """Refuse to race candidates that do not compute the same: each value is held to the first one.

    `tolerance` is each one's, relative. Raises ValueError naming who is off.
    """
    first, expected = next(iter(values.items()))
    for name, value in values.items():
        if not abs(value - expected) <= tolerance(name) * abs(expected):
            raise ValueError(f"not the same computation: {name} gives {value:.6g}, {first} {expected:.6g}")


def check_agreement(found: Mapping[str, list], least: float = 0.99) -> dict[str, float]:
    """Refuse candidates that give other answers than the first one, item by item, more often than allowed.

    Returns each one's share of equal answers. Raises ValueError naming who falls below `least`.
    """
    first, expected = next(iter(found.items()))
    shares = {}
    for name, answers in found.items():
        share = shares[name] = fmean(a == b for a, b in zip(answers, expected, strict=True))
        if share < least:
            raise ValueError(
                f"not the same computation: {name} and {first} agree on {share:.1%} of their answers"
            )
    return shares
