"""Does the grammar in the repository's history still draw the corpus that comes with the package?

    python benchmarks/grammar.py        half a minute; needs git, and a clone with its history

The corpus is a file of the package, annotated/translation/data/grammar.tsv.gz. The synchronous grammar that
drew it has 2,959 lines, a third of them words and their forms. Nothing has used them since the file was
drawn, so they are not in the tree: this script takes them, and what they import, from the history.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from records import ROOT

from annotated.translation.data.grammar import FILE
from annotated.translation.data.text_files import read_lines

COMMIT = "b73f2e716c8b65419a511775239f69f6a52a4130"
PATHS = ("tools/grammar", "annotated", ":!annotated/pretrained", ":!annotated/recorded")
DRAW = """
import sys
from itertools import islice
from tools.grammar import corpus_lines, pairs, split_of
sys.stdout.reconfigure(encoding="utf-8")
print(*islice({lines}, {count}), sep="\\n")
"""
CORPUS = "corpus_lines()"
# Further pairs for training, without end: the split of a sentence is always the same.
TRAINING = r"""(f"{pair.german}\t{pair.english}" for pair in pairs(0) if split_of(pair.german) == "train")"""


def draw(count: int, lines: str = CORPUS) -> list[str]:
    """Draw the first `count` lines anew. Raises ValueError where there is no history to take it from."""
    with TemporaryDirectory() as folder:
        archive = Path(folder, "grammar.zip")
        command = ["git", "-C", ROOT, "archive", "--output", archive, COMMIT, *PATHS]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            raise ValueError(f"this needs a clone of the repository whose history reaches back to {COMMIT}")
        shutil.unpack_archive(archive, folder)
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-c", DRAW.format(lines=lines, count=count)]
        drawn = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
        return drawn.stdout.decode().splitlines()


def run(arguments: Sequence[str] | None = None) -> None:
    """Compare; where a line differs, the exit code is 1."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("--short", action="store_true", help="only the first 200 lines")
    options = options.parse_args(arguments)
    kept = [*islice(read_lines(FILE), 200 if options.short else None)]
    found = draw(len(kept) + (not options.short))  # one more, if there were one
    if found != kept:
        sys.exit(f"{FILE} is not what the grammar draws")
    print(f"the grammar of commit {COMMIT[:7]} draws the same {len(kept):,} lines")


if __name__ == "__main__":
    run()
