"""Is my Transformer right? Laws that any implementation keeps, whoever wrote it.

from annotated import check
check.attention(my_attention)      # one part: a report that a notebook shows as a table
check.run(my_module)               # all parts that are found
@pytest.mark.parametrize("law", check.cases(my_module))      # each law a test: law()
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from annotated.check import attention_laws, model_laws, parts_laws, training_laws  # noqa: F401

# Searches read the masks that training_laws holds to theirs, and so come after them.
# isort: split
from annotated.check import search_laws  # noqa: F401
from annotated.check.adapt import PARTS, Code
from annotated.check.contract_laws import CONTRACT
from annotated.check.laws import LAWS
from annotated.check.report import Failure, Finding, Law, Report

__all__ = ["LAWS", "Code", "Failure", "Finding", "Law", "Report", "cases", "run", *PARTS]


def run(
    source: ModuleType | Mapping[str, Any],
    adapter: Mapping[str, Any] | None = None,
    seconds: float = 20,
    name: str = "",
) -> Report:
    """Hold code to every law.

    Args:
        source: a module, or a dictionary of names, that has some parts of a Transformer.
        adapter: names that win over the source's, and conventions, such as `TRUE_HIDES = True`,
            `BATCH_FIRST = False`, `MASK_DIMS = 4`, `PAD = 1`.
        seconds: time for each law.
        name: what the report is of.
    """
    code = Code.of(source, adapter)
    name = name or getattr(source, "__name__", "")
    return Report(tuple(law(code, seconds) for law in laws_for(code)), name)


def laws_for(code: Code) -> list[Law]:
    """Return the laws, and those of the stubs' texts where `annotated build` wrote the file."""
    return [*LAWS, *(CONTRACT if code.names.get("CONTRACT") else [])]


class Case:
    """One law for `pytest.mark.parametrize`: call it, and it raises AssertionError or skips."""

    def __init__(self, law: Law, code: Code):
        self.law, self.code, self.__name__ = law, code, law.name

    def __call__(self) -> None:
        finding = self.law(self.code)
        if finding.status == "missing":
            import pytest

            pytest.skip(finding.seen)
        assert finding.status == "passed", f"\n{Report((finding,))}"


def cases(source: ModuleType | Mapping[str, Any], adapter: Mapping[str, Any] | None = None) -> list[Case]:
    """Return a case for each law, to be called in a test of its own."""
    code = Code.of(source, adapter)
    return [Case(law, code) for law in laws_for(code)]


def checker(part: str) -> Callable[..., Report]:
    """Make the function that holds one part to its laws."""

    def check(candidate: Any, **others: Any) -> Report:
        conventions = {
            k: v for k, v in others.items() if k in ("true_hides", "batch_first", "mask_dims", "pad")
        }
        names = {PARTS[k][0]: v for k, v in others.items() if k in PARTS}
        code = Code.of({PARTS[part][0]: candidate, **names}, {k.upper(): v for k, v in conventions.items()})
        return Report(
            tuple(law(code) for law in LAWS if law.part == part), getattr(candidate, "__name__", part)
        )

    check.__name__ = part
    check.__doc__ = f"Hold a {PARTS[part][0]} to its laws; others of its parts and conventions by name."
    return check


for _part in PARTS:
    globals()[_part] = checker(_part)
