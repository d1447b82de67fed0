"""Faults that learners make are found, and most are named."""

import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from annotated import check
from annotated.check.adapt import Code

HERE = Path(__file__).parent
FAULTS = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
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
    code, wanted = Code.of(faulty(file, name)), FAULTS[file][name]["mistake"]
    seen = []
    for law in check.LAWS:
        finding = law(code, seconds=3)
        if finding.status == "failed":
            seen.append(f"{finding.law}: {finding.mistake}")
            if wanted in finding.mistake:
                return
    pytest.fail(f"{wanted!r} is not named, but: {seen}")
