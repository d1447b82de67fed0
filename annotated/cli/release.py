"""The former home of `read_scores`."""

from annotated.translation.evaluate import read_scores

__all__ = ["read_scores"]
