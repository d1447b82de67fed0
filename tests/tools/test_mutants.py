"""The faults of tools/notebooks/mutants.py still fit the code that they are to break."""

import shutil
from pathlib import Path

import pytest

from mutants import MUTANTS, apply

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant, tmp_path):
    (tmp_path / mutant.module).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / "annotated" / mutant.module, tmp_path / mutant.module)
    before = (tmp_path / mutant.module).read_text(encoding="utf-8")
    apply(mutant, tmp_path)
    after = (tmp_path / mutant.module).read_text(encoding="utf-8")
    assert after != before
    compile(after, mutant.module, "exec")
    with pytest.raises(ValueError, match=f"{mutant.name}: .* times, not once"):
        apply(mutant._replace(old="no such code"), tmp_path)


def test_each_mutant_has_a_notebook_to_catch_it():
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS})
    for mutant in MUTANTS:
        assert (ROOT / "notebooks" / f"{mutant.notebook}.py").exists(), mutant.name
