"""Name the likely mistake behind a broken law."""

from types import SimpleNamespace
from typing import Any

from annotated.check.comparing import told_by
from annotated.check.mistakes import parts, wholes
from annotated.check.mistakes.seen import SEEN

MISTAKES = parts.MISTAKES | wholes.MISTAKES
MISTAKES["model: networks"] = MISTAKES["feed-forward: equation 2"]


def explain(law: str, seen: str, /, **facts: Any) -> str:
    """Name the mistake that would give exactly this, or else the usual one behind what is seen."""
    given = SimpleNamespace(**facts)
    exact = (mistake for mistake, predicate in MISTAKES.get(law, {}).items() if told_by(predicate, given))
    usual = (mistake for text, mistake in SEEN.items() if text in seen)
    return next(exact, next(usual, ""))
