"""The length penalty of beam search (section 6.1)."""

from typing import Literal, get_args

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
