"""The laws, in the order in which a report has them."""

from annotated.check.adapt import PARTS
from annotated.check.law import LAWS
from annotated.check.laws import attention, model, parts, search, training  # noqa: F401
from annotated.check.laws.contract import CONTRACT

__all__ = ["CONTRACT", "LAWS"]

LAWS.sort(key=lambda law: [*PARTS].index(law.part))
