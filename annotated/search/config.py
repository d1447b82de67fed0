"""The settings of a search: the beam and its length penalty (section 6.1).

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from annotated.settings import check_fields

EXTRA_TOKENS = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses
MAX_ALPHA = 10  # a penalty of any length is then a finite number

Penalty = Literal["gnmt", "power"]


def length_penalty(length: int, alpha: float, penalty: Penalty = "gnmt") -> float:
    """Compute the divisor of the log-probability of `length` tokens, the end symbol counted.

    "gnmt" is ((5 + length) / 6)^alpha, of Wu et al. 2016, which section 6.1 uses with alpha 0.6; "power" is
    length^alpha, as in Hugging Face and CTranslate2.
    """
    if penalty not in get_args(Penalty):
        raise ValueError(f"the penalty must be one of {', '.join(get_args(Penalty))}, not {penalty!r}")
    base = (5 + length) / 6 if penalty == "gnmt" else length
    return float(base**alpha)


@dataclass(frozen=True)
class SearchConfig:
    """The settings of a beam search. Raises ValueError for those that cannot be."""

    beam: int = 4  # hypotheses kept at each step; 1 searches greedily
    alpha: float = 0.6  # exponent of the length penalty; 0 for none
    penalty: Penalty = "gnmt"  # ((5 + length) / 6)^alpha (gnmt, section 6.1), or length^alpha (power)
    n_best: int = 1  # hypotheses returned of each sentence
    no_repeat_ngram: int = 0  # sequences of so many tokens occur once in a translation; 0 lets all repeat

    def __post_init__(self) -> None:
        check_fields(self, may_be_0=("no_repeat_ngram",), unbounded=("alpha",), beam=MAX_BEAM)
        if self.n_best > self.beam or self.alpha > MAX_ALPHA:
            requirement = f"n_best <= beam and alpha <= {MAX_ALPHA}"
            settings = f"n_best={self.n_best}, beam={self.beam} and alpha={self.alpha}"
            raise ValueError(f"{requirement} must hold, not {settings}; more candidates need a wider beam")

    def score(self, log_prob: float, length: int) -> float:
        """Divide the log-probability of `length` tokens by the length penalty."""
        return log_prob / length_penalty(length, self.alpha, self.penalty)
