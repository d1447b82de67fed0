"""One list of dependencies, one test command: what the set-up files say of each other is true."""

import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
HEAVY = {"datasets", "pyarrow", "spacy", "torchtext", "pandas", "matplotlib", "seaborn", "altair"}
HEAVY |= {"vl_convert", "ctranslate2", "transformers", "sentencepiece", "sacrebleu", "sacremoses"}


def named() -> dict[str, Requirement]:
    """Every package that pyproject.toml names, in whichever extra."""
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    needs = [Requirement(text) for text in texts]
    return {canonicalize_name(need.name): need for need in needs if need.name != PROJECT["name"]}


def locked() -> dict[str, Version]:
    """Every pin of requirements.lock; a line of any other form fails."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def test_everything_named_is_locked_at_a_version_that_will_do() -> None:
    pins = locked()
    for name, need in named().items():
        assert name in pins
        assert pins[name] in need.specifier, f"{need} is locked at {pins[name]}"


def test_everything_that_those_need_is_locked_too() -> None:
    """What is not in the lock comes in the version of the day. (What torch needs depends on its build.)"""
    pins, holes = locked(), {}
    for name in pins.keys() - {"torch"}:
        needs = [Requirement(text) for text in requires(name) or []]
        wanted = [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        if missing := {canonicalize_name(need) for need in wanted} - pins.keys() - {"setuptools"}:
            holes[name] = missing
    assert holes == {}


IMPORT_ALL = """
import importlib, pkgutil, sys
import annotated
for module in pkgutil.walk_packages(annotated.__path__, "annotated."):
    if not module.name.startswith("annotated.plots."):  # what draws is imported when one of its names is used
        importlib.import_module(module.name)
print(*sys.modules)
"""


def test_no_module_of_the_package_imports_what_only_some_need() -> None:
    imported = subprocess.check_output([sys.executable, "-c", IMPORT_ALL], cwd=ROOT, text=True)
    assert HEAVY & set(imported.split()) == set()
