"""One list of dependencies, one test command: what the set-up files say of each other is true."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ASKED_FOR = {"torch", "jupyter", "jupytext", "matplotlib", "seaborn", "altair", "nbval", "spacy", "torchtext"}
HEAVY = {"spacy", "torchtext", "pandas", "matplotlib", "seaborn", "altair", "vl_convert", "transformers"}
HEAVY |= {"sentencepiece", "sacrebleu", "sacremoses"}
TEST_COMMAND = "make test"


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


def test_what_was_asked_for_is_in_the_list() -> None:
    assert named().keys() >= ASKED_FOR


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


def test_no_pin_names_the_build_of_one_machine() -> None:
    assert [name for name, version in locked().items() if version.local] == []


def test_the_interpreters_agree() -> None:
    python = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"][0]
    assert python.removeprefix("python=") in PROJECT["requires-python"]


def test_conda_has_no_second_list() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, rest = environment["dependencies"]
    assert (python.partition("=")[0], pip, list(rest)) == ("python", "pip", ["pip"])
    extras = re.fullmatch(r"-e \.\[([a-z,]+)\]", *rest["pip"]).group(1).split(",")
    assert set(extras) <= EXTRAS.keys()


def test_ci_runs_the_test_command_of_the_readme_and_the_makefile() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert TEST_COMMAND in script
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "test" in listed_targets()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert any(re.search(rf"^{TEST_COMMAND}\b", block, re.MULTILINE) for block in blocks)


def make(*arguments: str, folder: Path = ROOT) -> str:
    command = ["make", "--no-print-directory", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.check_output(command, cwd=folder, env=environment, text=True)


def listed_targets() -> list[str]:
    """What `make` alone lists: a name, and a line on what it does."""
    return [re.fullmatch(r"  make ([\w-]+) +\S.*", line).group(1) for line in make().splitlines()]


def test_make_lists_every_target() -> None:
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    assert sorted(listed_targets()) == sorted(declared)


@pytest.mark.parametrize("target", listed_targets())
def test_every_listed_target_exists_and_first_sets_up_what_it_needs(target: str) -> None:
    recipe = make("-n", "--always-make", target)
    assert recipe
    if ".venv/bin/" in recipe:
        assert recipe.index("-m venv --clear .venv") < recipe.index(".venv/bin/")


def races_of(folder: Path, *settings: str) -> tuple[subprocess.CompletedProcess, list[str]]:
    """Run `make bench` with a stand-in for Python that fails at two of the races; the commands it ran."""
    (folder / "python").write_text(
        '#!/bin/sh\necho "$*" >> log\ncase "$*" in *decode*|*imports*) exit 2 ;; esac\n'
    )
    (folder / "python").chmod(0o755)
    command = ["make", "-f", ROOT / "Makefile", "bench", f"BIN={folder}", "READY=", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done, (folder / "log").read_text().splitlines()


def records_in(races: list[str]) -> set[str]:
    """The names of the files that they write, each its own."""
    names = [race.rpartition("--json annotated/recorded/")[2] for race in races]
    assert len(set(names)) == len(races)
    return set(names)


def test_bench_runs_every_race_and_tells_at_the_end_which_failed(tmp_path: Path) -> None:
    done, races = races_of(tmp_path)
    assert done.returncode == 2
    assert "failed: decode imports\n" in done.stderr
    assert records_in(races) >= {path.name for path in (ROOT / "annotated" / "recorded").iterdir()}


def test_bench_on_a_gpu_keeps_records_of_its_own(tmp_path: Path) -> None:
    _, races = races_of(tmp_path, "DEVICE=cuda")
    assert races
    assert all("--device cuda" in race for race in races)
    assert all(name.endswith("-cuda.json") or "-cuda-" in name for name in records_in(races))


def test_bench_refuses_a_device_that_has_no_races(tmp_path: Path) -> None:
    command = ["make", "-f", ROOT / "Makefile", "bench", f"BIN={tmp_path}", "READY=", "DEVICE=gpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "DEVICE is cpu or cuda, not gpu\n" in done.stderr
    assert "benchmarks/" not in done.stderr


# Stands in for python3: the python of its `.venv` notes what it installs, and fails if a file is `broken`.
STAND_IN = """#!/bin/sh
case "$*" in *venv*) ;; *) exit 0 ;; esac
rm -rf .venv; mkdir -p .venv/bin; echo venv >> log
printf '#!/bin/sh\\nfor last; do :; done; [ ! -e broken ] && echo "$last" >> log\\n' > .venv/bin/python
chmod +x .venv/bin/python
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which `make setup` goes through its steps without installing anything."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "python3").write_text(STAND_IN)
    (tmp_path / "python3").chmod(0o755)
    return tmp_path


def set_up(checkout: Path) -> list[str]:
    """Run `make setup`; the steps that it took."""
    log = checkout / "log"
    log.write_text("")
    make("setup", "PYTHON=./python3", folder=checkout)
    return log.read_text().splitlines()


WHOLE = ["venv", "requirements.lock", "."]


def test_setup_does_its_work_once(checkout: Path) -> None:
    assert set_up(checkout) == WHOLE
    (checkout / "requirements.lock").touch()
    (checkout / "pyproject.toml").touch()
    assert set_up(checkout) == []


def test_a_changed_lock_rebuilds_and_a_changed_project_reinstalls_only_itself(checkout: Path) -> None:
    set_up(checkout)
    project, lock = checkout / "pyproject.toml", checkout / "requirements.lock"
    before = project.read_text()
    for text in (before + "\n", before):
        project.write_text(text)
        assert set_up(checkout) == WHOLE[2:]
    lock.write_text(lock.read_text() + "another==1.0\n")
    assert set_up(checkout) == WHOLE


def test_a_half_finished_installation_is_begun_again(checkout: Path) -> None:
    (checkout / "broken").touch()
    with pytest.raises(subprocess.CalledProcessError):
        set_up(checkout)
    (checkout / "broken").unlink()
    assert set_up(checkout) == WHOLE


IMPORT = """
import sys
before = set(sys.modules)
import annotated
print(*sys.modules.keys() - before)
"""
# One module is there for torchtext alone, and nothing but a notebook imports it.
IMPORT_ALL = """
import importlib, pkgutil, sys
import annotated
for module in pkgutil.walk_packages(annotated.__path__, "annotated."):
    if module.name != "annotated.data.torchtext_fields":
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
