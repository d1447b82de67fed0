"""Faults that learners make are found, and most are named."""

import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from annotated import check
from annotated.check.adapt import Code
from annotated.check.laws import CONTRACT

HERE = Path(__file__).parent
FAULTS = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
LAWS = {law.name: law for law in (*check.LAWS, *CONTRACT)}
CASES = [(file, name) for file, faults in FAULTS.items() for name in faults]


def faulty(file: str, name: str) -> ModuleType:
    """The right file with one change, or two."""
    source = (HERE / "right" / f"{file}.py").read_text(encoding="utf-8")
    fault = FAULTS[file][name]
    for change in (fault, fault.get("also")):
        if change:
            assert change["old"] in source, f"{name}: {change['old']!r} is not in {file}.py"
            source = source.replace(change["old"], change["new"])
    module = ModuleType("faulty")
    exec(compile(source, f"{file}.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize(("file", "name"), CASES)
def test_fault_is_found_and_named(file: str, name: str) -> None:
    fault = FAULTS[file][name]
    finding = LAWS[fault["law"]](Code.of(faulty(file, name)), seconds=5)
    assert finding.status == "failed"
    assert fault["mistake"] in finding.mistake


def test_the_report_trusts_the_first_failed_law() -> None:
    report = check.make_model(faulty("classic", "cross-attention to itself").make_model)
    assert "memory" in report.first_mistake()
    assert f"Trust the first failed law ({report.first_mistake()})" in str(report)
    inverted = faulty("classic", "causal mask inverted")
    parts = {"subsequent_mask": inverted.subsequent_mask, "greedy_decode": inverted.greedy_decode}
    assert check.run(parts).first_mistake().startswith("causal mask: the mask is inverted")
