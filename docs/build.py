"""Build the site from the executed notebooks, the docstrings and the pages in docs/pages.

    python docs/build.py              into site/
    python docs/build.py --out DIR    elsewhere

Nothing is executed but the start page's translations, and nothing is fetched. Exit code 1: Sphinx warned, a
link leads nowhere, or a page asks another host for something.
"""

import argparse
import shutil
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

sys.path.append(str(Path(__file__).resolve().parents[1] / "notebooks"))

from checking import check_site
from staging import stage

ROOT = Path(__file__).resolve().parents[1]


def build(out: Path, work: Path) -> int:
    """Put the sources together in `work`, let Sphinx write `out` anew, check that; 0 if all is well."""
    for folder in (out, work / "doctrees"):
        shutil.rmtree(folder, ignore_errors=True)
    stage(ROOT, work / "sources")
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    home = ["-D", f"html_baseurl={project.get('urls', {}).get('Documentation', '')}"]
    folders = ["-d", str(work / "doctrees"), str(work / "sources"), str(out)]
    if status := build_main(["-b", "html", *strict, *home, *folders]):
        return status
    faults = check_site(out)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder to write (default: site)")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    status = build(options.out, ROOT / "build" / "site")
    if status == 0:
        print(f"{options.out / 'index.html'} built in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
