"""How long sentences may be, and the engines that search."""

from dataclasses import dataclass, replace
from typing import Literal

from annotated.search.config import EXTRA_TOKENS
from annotated.settings import check_fields

ENGINES = ("pytorch", "ctranslate2")
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")  # of the matrices in CTranslate2


@dataclass(frozen=True)
class Limits:
    """The greatest lengths of sources and translations: time and memory grow with their square."""

    max_source: int = 1024  # tokens of a source at most, the end symbol counted
    max_target: int = 1024  # tokens of a translation at most, the end symbol counted
    max_extra: int = EXTRA_TOKENS  # tokens of a translation at most beyond those of its source (section 6.1)
    too_long: Literal["cut", "refuse"] = "cut"  # treatment of a longer source: translate its start, or stop

    def __post_init__(self) -> None:
        check_fields(self)

    def within(self, positions: int | None) -> "Limits":
        """Return the limits of a model with this number of positions; None is any number."""
        if positions is None:
            return self
        max_source, max_target = min(self.max_source, positions), min(self.max_target, positions)
        return replace(self, max_source=max_source, max_target=max_target)

    def longest(self, source: int) -> int:
        """Return the length limit of the translation of a source of this many tokens."""
        return min(source + self.max_extra, self.max_target)
