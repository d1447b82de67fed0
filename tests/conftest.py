"""Fixtures that several test files use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def multi30k_folder() -> Path:
    """`$ANNOTATED_DATA/multi30k`.

    Skips where the variable is not set; fails where it is set and the corpus is missing.
    """
    data = os.environ.get("ANNOTATED_DATA")
    if not data:
        pytest.skip("the corpus multi30k: ANNOTATED_DATA is not set")
    folder = Path(data) / "multi30k"
    if not folder.is_dir():
        pytest.fail(f"ANNOTATED_DATA is set, but there is no corpus multi30k at {folder}")
    return folder


os.environ.setdefault("MPLBACKEND", "agg")  # no windows


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `gpu` where there is none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip(f"no CUDA device here: {item.name}")


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Close what a test drew; matplotlib keeps every figure until then."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute in one thread: the same additions in the same order, so the same last bits."""
    from tiny_runs import single_thread

    with single_thread():
        yield


@pytest.fixture(scope="session")
def cats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pairs of `tiny_runs`: a.en and a.de, and both.tsv."""
    from tiny_runs import write_cats

    return write_cats(tmp_path_factory.mktemp("cats"))


@pytest.fixture(scope="session")
def files(cats: Path) -> list[str]:
    """The flags that name these two files."""
    return ["--src", str(cats / "a.en"), "--tgt", str(cats / "a.de")]


@pytest.fixture(scope="session")
def run(cats: Path, files: list[str]) -> Path:
    """A run of the training command on them, in languages that nobody named."""
    from command_line import TINY
    from tiny_runs import single_thread

    from annotated.translation.cli.main import main

    with single_thread():
        assert main(["train", *files, "--out", str(cats / "run"), *TINY]) == 0
    return cats / "run"


@pytest.fixture(scope="session")
def shipped() -> "Translator":  # noqa: F821
    """The shipped model as the page has it, with weights in half precision."""
    from page_models import with_half_weights

    from annotated.translation.translator import load_pretrained

    return with_half_weights(load_pretrained("multi30k-en-de"))


@pytest.fixture(scope="session")
def ask(shipped: "Translator", tmp_path_factory: pytest.TempPathFactory) -> "Ask":  # noqa: F821
    """The page with that model: a function that asks it."""
    from page_models import page

    return page(shipped, tmp_path_factory.mktemp("page"))
