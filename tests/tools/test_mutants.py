"""The faults of tools/notebooks/mutants.toml still fit the code that they are to break."""

import shutil
from pathlib import Path

import pytest

from mutants import MUTANTS, apply

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_has_a_notebook(mutant, tmp_path):
    (tmp_path / mutant.module).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / "annotated" / mutant.module, tmp_path / mutant.module)
    apply(mutant, tmp_path)
    after = (tmp_path / mutant.module).read_text(encoding="utf-8")
    assert after != (ROOT / "annotated" / mutant.module).read_text(encoding="utf-8")
    compile(after, mutant.module, "exec")
    assert (ROOT / "notebooks" / f"{mutant.notebook}.py").exists()
