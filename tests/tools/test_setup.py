"""One list of dependencies, one test command: what the set-up files say of each other is true."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
HEAVY = {
    "datasets",
    "pyarrow",
    "spacy",
    "torchtext",
    "pandas",
    "matplotlib",
    "seaborn",
    "altair",
    "vl_convert",
    "transformers",
}
HEAVY |= {"sentencepiece", "sacrebleu", "sacremoses"}


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


def make(*arguments: str, folder: Path = ROOT) -> str:
    command = ["make", "--no-print-directory", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.check_output(command, cwd=folder, env=environment, text=True)


def listed_targets() -> list[str]:
    """What `make` alone lists: a name, and a line on what it does."""
    return [re.fullmatch(r"  make ([\w-]+) +\S.*", line).group(1) for line in make().splitlines()]


@pytest.mark.parametrize("target", listed_targets())
def test_every_listed_target_exists_and_first_sets_up_what_it_needs(target: str) -> None:
    recipe = make("-n", "--always-make", target)
    assert recipe
    if ".venv/bin/" in recipe:
        assert recipe.index("-m venv --clear .venv") < recipe.index(".venv/bin/")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what `make setup` reads, and an environment without any stamp."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def steps(checkout: Path) -> list[str]:
    """What `make setup` would install there."""
    recipe = make("-n", "setup", folder=checkout)
    return [what for what in ("-m venv", "-r requirements.lock", "--editable .") if what in recipe]


def stamps(checkout: Path) -> list[str]:
    """The stamps that `make setup` would leave, the lock's first."""
    return re.findall(r"^touch (.*)$", make("-n", "setup", folder=checkout), re.MULTILINE)


def test_setup_installs_what_changed_and_takes_up_what_broke_off(checkout: Path) -> None:
    whole = ["-m venv", "-r requirements.lock", "--editable ."]
    assert steps(checkout) == whole
    installed, ready = stamps(checkout)
    (checkout / installed).touch()  # the lock is installed; then it broke off
    assert steps(checkout) == whole[2:]
    (checkout / ready).touch()
    assert steps(checkout) == []
    (checkout / "pyproject.toml").touch()  # another time, the same content
    assert steps(checkout) == []
    (checkout / "pyproject.toml").write_text("[project]\n")
    assert steps(checkout) == whole[2:]
    (checkout / "requirements.lock").write_text("another==1.0\n")
    assert steps(checkout) == whole


IMPORT = """
import sys
before = set(sys.modules)
import annotated
print(*sys.modules.keys() - before)
"""
IMPORT_ALL = """
import importlib, pkgutil, sys
import annotated
for module in pkgutil.walk_packages(annotated.__path__, "annotated."):
    importlib.import_module(module.name)
print(*sys.modules)
"""


def python(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)


def test_importing_the_package_imports_nothing_else() -> None:
    """Not even torch: what takes time is imported when a name is asked for."""
    imported = {name.partition(".")[0] for name in python(IMPORT).split()}
    assert imported - sys.stdlib_module_names == {"annotated"}


def test_no_module_of_the_package_imports_what_only_some_need() -> None:
    assert HEAVY & set(python(IMPORT_ALL).split()) == set()
