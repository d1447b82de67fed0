"""Build the notebooks: execute each NN_name.py (percent format) and write what comes out to NN_name.ipynb.

    python tools/notebooks/build.py                 all of them
    python tools/notebooks/build.py 02_attention    this one; also evidence/a_question
    python tools/notebooks/build.py --text NAME     execute nothing; update texts, folds and translations
    python tools/notebooks/build.py --force         overwrite .ipynb files that were edited by hand, too
    python tools/notebooks/build.py --check         execute nothing; tell whether each pair is as it should be

The .py is the source; the .ipynb is never edited. Repeatable outputs give the same bytes each time.
Exit code 1: a cell failed, or a pair is not as it should be. Exit code 2: there is no such notebook.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from address import find_repository
from annotated.translation.files import replacing
from figures import prefix, svg_path, take_svgs
from pairs import (
    METADATA,
    Fault,
    check_folder,
    check_pair,
    find_sources,
    read_source,
    translated,
    with_outputs,
)

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
SECONDS_PER_CELL = 600


class BuildError(Exception):
    """A notebook did not run to its end; the message says where and why."""


def build(source: Path) -> Path:
    """Execute `source` into the `.ipynb` beside it; where a cell fails (BuildError), that stays as it is."""
    notebook = read_source(source)
    execute(notebook, source)
    target = source.with_suffix(".ipynb")
    write_svgs(source, take_svgs(notebook))
    write_atomically(target, notebook)
    return target


def write_svgs(source: Path, svgs: Mapping[str, str]) -> None:
    """Keep a notebook's named pictures in figures/ beside it, in the place of those kept before."""
    folder = svg_path(source, "").parent
    for path in folder.glob(f"{prefix(source.stem)}-*.svg"):
        path.unlink()
    for name, svg in svgs.items():
        folder.mkdir(exist_ok=True)
        svg_path(source, name).write_text(svg, encoding="utf-8", newline="\n")


def execute(notebook: NotebookNode, source: Path) -> None:
    """Put the outputs into `notebook`: run it top to bottom in a new kernel, in the folder of `source`."""
    started = []
    kernel = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # so it is that of the Python that runs this
        transport_encryption="auto",  # otherwise the kernel warns, once a notebook
    )
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        extra_arguments=["--ext=figure_svgs"],
        resources={"metadata": {"path": str(source.parent)}},
        on_cell_start=lambda cell, cell_index: started.append(cell_index),
    )
    try:
        # Without bars: a widget's number differs from run to run.
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        client.execute(cleanup_kc=True, env={**os.environ, "PYTHONPATH": path, "TQDM_DISABLE": "1"})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without colours
        place = f"{source.name}, cell {started[-1] + 1} of {len(notebook.cells)}"
        raise BuildError(f"{place} failed:\n\n{reason}") from error
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = merge_streams(cell.outputs)


def refresh(source: Path) -> bool:
    """Bring the `.ipynb` up to its source without executing it; False if its code differs."""
    target = source.with_suffix(".ipynb")
    try:
        write_atomically(target, with_outputs(source, target))
    except ValueError:
        return False
    return True


def merge_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join the pieces in which a cell's text happened to arrive; their number differs from run to run."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def write_atomically(target: Path, notebook: NotebookNode) -> None:
    """Write under another name and rename, so that nobody ever finds half a file."""
    with replacing(target) as partial:
        partial.write_text(as_saved(notebook), encoding="utf-8", newline="\n")


def as_saved(notebook: NotebookNode) -> str:
    """Return the text of a notebook as JupyterLab saves it: a browser writes 1.0 as 1."""

    def number(text: str) -> float:
        value = float(text)
        return int(value) if value.is_integer() else value

    content = json.loads(nbformat.writes(notebook), parse_float=number)
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def edited_by_hand(source: Path) -> bool:
    """Return whether the `.ipynb` has edits that are neither in `source` nor in git.

    An `.ipynb` as committed loses nothing, and one whose source changed too was most likely built from it.
    """
    target = source.with_suffix(".ipynb")
    if not target.exists() or not changed_since_commit(target) or changed_since_commit(source):
        return False
    cells, built = read_source(source).cells, nbformat.read(target, as_version=4).cells
    return [cell.source for cell in cells] != [cell.source for cell in built]


def changed_since_commit(path: Path) -> bool:
    """Return whether git knows the file with another content."""
    command = ["git", "diff", "--quiet", "HEAD", "--", path.name]
    return subprocess.run(command, cwd=path.parent, capture_output=True).returncode == 1


def build_all(sources: Sequence[Path], repository: str) -> int:
    """Build one after the other, telling on stderr how it goes; 0 if all ran and each pair is faultless."""
    faults = []
    for source in sources:
        say(f"{source.stem} ...")
        began = time.perf_counter()
        try:
            built = build(source)
        except BuildError as error:
            say(str(error))
            return 1
        say(f"{source.stem} built in {time.perf_counter() - began:.1f} s")
        faults += check_pair(source, built, repository)
        write_translations(source)
    return report(faults)


def write_translations(source: Path) -> None:
    """Write the translations of a lesson anew, with its outputs."""
    for path in source.parent.glob(f"[a-z][a-z]/{source.name}"):
        try:
            write_atomically(path.with_suffix(".ipynb"), translated(path))
        except ValueError as error:
            say(f"{path}: {error}; bring it there, then build.py --text {source.stem}")


def refresh_all(sources: Sequence[Path]) -> int:
    """Bring each `.ipynb` up to its source; 1, and nothing is touched after it, where code differs."""
    for source in sources:
        if not refresh(source):
            say(f"{source.stem}: its two files differ in code: make notebooks ONLY={source.stem}")
            return 1
        write_translations(source)
    return 0


def report(faults: Sequence[Fault]) -> int:
    """Tell the faults, one below the other; 1 if there are any."""
    for fault in faults:
        say(str(fault))
    return 1 if faults else 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, folder: Path = NOTEBOOKS) -> int:
    parser = argparse.ArgumentParser(description="Execute the notebooks' sources into .ipynb files.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 02_attention (default: all)")
    parser.add_argument("--force", action="store_true", help="overwrite an .ipynb that was edited by hand")
    parser.add_argument("--check", action="store_true", help="execute nothing; check the pairs")
    parser.add_argument("--text", action="store_true", help="execute nothing; bring the texts up to date")
    options = parser.parse_args(arguments)
    sources = find_sources(folder)
    known = {Path(name).stem: name for name in sources}
    stems = [Path(name).stem for name in options.names]
    if unknown := [stem for stem in stems if stem not in known]:
        parser.error(f"there is no notebook {', '.join(unknown)}; there are: {', '.join(sources) or 'none'}")
    names = [known[stem] for stem in stems]
    repository = find_repository(ROOT / "pyproject.toml")
    if not options.check:
        if not sources:
            parser.error(f"there is no notebook in {folder}: write NN_name.py")
        wanted = [sources[name] for name in names or sources]
        if not options.force and (edited := [path for path in wanted if edited_by_hand(path)]):
            for path in edited:
                say(f"{path.stem}.ipynb was edited and {path.name} was not: building would lose the edit.")
            say("Make the edit in the .py instead, or add --force (make notebooks FORCE=1).")
            return 1
        return refresh_all(wanted) if options.text else build_all(wanted, repository)
    if status := report(check_folder(folder, repository, names)):
        return status
    say(f"pairs in order: {len(names or sources)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
