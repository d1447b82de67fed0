"""The laws, in the order in which a report has them."""

from annotated.check.adapt import PARTS
from annotated.check.law import LAWS as LAWS
from annotated.check.laws import attention, model, parts, search, training  # noqa: F401

LAWS.sort(key=lambda law: [*PARTS].index(law.part))
