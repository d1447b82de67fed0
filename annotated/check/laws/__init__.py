"""The laws, in the order in which a report has them: parts, then the model made of them, then its use."""

from annotated.check.adapt import PARTS
from annotated.check.law import LAWS as LAWS
from annotated.check.laws import attention, bleu, layers, learning, model, parts, search, training  # noqa: F401

LAWS.sort(
    key=lambda law: (law.name == "attention: empty rows", [*PARTS].index(law.part))
)  # a remark comes last
