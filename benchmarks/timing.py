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
from itertools import count, islice
from math import comb, inf
from statistics import median, quantiles

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
    def told(self) -> bool:
        """Whether the interval says which of the two takes more."""
        return self.bounds is not None and not self.bounds[0] <= 1 <= self.bounds[1]

    @property
    def width(self) -> float:
        """How many times its lower end the interval's upper end is."""
        return self.bounds[1] / self.bounds[0] if self.bounds else inf

    def __str__(self) -> str:
        if not self.bounds:
            return f"{self.ratio:.2f} x, in too few turns"
        found = f"{self.ratio:.2f} x ({self.bounds[0]:.2f} to {self.bounds[1]:.2f})"
        return found if self.told else f"too close to tell: {found}"

    def summary(self) -> dict[str, object]:
        low, high = self.bounds or (None, None)
        return {"ours": self.ours, "peer": self.peer, "ratio": self.ratio, "low": low, "high": high}


def compare(measured: Mapping[str, Measured], ours: str, peer: str) -> Comparison:
    """Set two candidates against each other, turn by turn."""
    turns = zip(measured[ours].turns, measured[peer].turns, strict=True)
    ratios = [other / mine for mine, other in turns]
    return Comparison(ours, peer, median(ratios), interval(ratios))


def race(
    candidates: Mapping[str, Callable[[], object]],
    pairs: Sequence[tuple[str, str]],
    minutes: float,
    rounds: int | None = None,
    measure: Callable[[Callable[[], object]], float] | None = None,
    warm_up: int = 1,
) -> tuple[dict[str, Measured], list[Comparison]]:
    """Run the candidates in rounds of two turns until every ratio is known to within `NARROW`.

    `pairs` are ours and a peer each. After `minutes`, but not before there are intervals, it ends all the
    same, and says which ratio is known worst; with `rounds`, after so many. Who cannot run here is left out,
    with its pairs. Raises as `in_turns`.
    """
    started = time.monotonic()
    for done, measured in enumerate(in_rounds(candidates, measure, warm_up, rounds), start=1):
        found = [compare(measured, *pair) for pair in pairs if set(pair) <= measured.keys()]
        worst = max(found, key=lambda each: each.width, default=None)
        if rounds:
            continue
        if worst is None or worst.width <= NARROW:
            break
        spent = time.monotonic() - started
        if worst.bounds and spent * (done + 1) / done > 60 * minutes:
            print(f"{minutes:.3g} minutes are over; least is known of {worst.peer}: {worst}", file=sys.stderr)
            break
    return measured, found


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    measure: Callable[[Callable[[], object]], float] | None = None,
    warm_up: int = 1,
) -> dict[str, Measured]:
    """Run every candidate `warm_up` times unmeasured, then in so many rounds.

    `measure` runs a candidate and tells what that took; by default, seconds. Who cannot run here is left out.
    Raises ValueError for less than one round, and where no candidate is left.
    """
    *_, measured = in_rounds(candidates, measure, warm_up, rounds)
    return measured


def in_rounds(
    candidates: Mapping[str, Callable[[], object]],
    measure: Callable[[Callable[[], object]], float] | None,
    warm_up: int,
    rounds: int | None,
) -> Iterator[dict[str, Measured]]:
    """What was measured after each round of two turns; without `rounds`, there is no last one.

    The second turn has the other order, so that nobody always comes first.
    """
    if rounds is not None and rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    measure = measure or seconds
    left = dict(candidates)
    turns: dict[str, list[float]] = {name: [] for name in left}
    total = rounds and (2 * rounds + warm_up) * len(left)
    with tqdm(total=total, unit="run", disable=None, leave=False) as progress:

        def run(name: str) -> float:
            progress.set_postfix_str(name)
            took = measure(left[name])
            progress.update()
            return took

        for name in candidates:
            with leaving_out(left, name):
                for _ in range(warm_up):
                    run(name)
        for _ in islice(count(), rounds):
            for order in (1, -1):
                for name in list(left)[::order]:
                    with leaving_out(left, name):
                        turns[name].append(run(name))
            yield {name: Measured(turns[name]) for name in left}


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
