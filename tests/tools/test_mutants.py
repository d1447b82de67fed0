"""The faults of tools/notebooks/mutants.toml still fit the code that they are to break."""

import shutil
from pathlib import Path

import pytest

from mutants import MUTANTS, apply

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_has_a_notebook(mutant, tmp_path):
    package = tmp_path / "annotated"
    shutil.copytree(ROOT / "annotated", package, ignore=shutil.ignore_patterns("pretrained", "recorded"))
    module = apply(mutant, package)
    after = module.read_text(encoding="utf-8")
    assert after != (ROOT / module.relative_to(tmp_path)).read_text(encoding="utf-8")
    compile(after, module.name, "exec")
    assert (ROOT / "notebooks" / f"{mutant.notebook}.py").exists()
