"""Build the site from the executed notebooks, the docstrings and the pages in tools/site/pages.

    python tools/site/build.py    into site/

Nothing is executed but the start page's translations, and nothing is fetched. Exit code 1: Sphinx warned, a
link leads nowhere, or a page asks another host for something.
"""

import shutil
import sys
import time
from importlib import metadata, resources
from pathlib import Path

import altair
import vl_convert
from sphinx.cmd.build import build_main

sys.path.append(str(Path(__file__).resolve().parents[1] / "notebooks"))

from address import find_address
from checking import check_site
from gallery import write_gallery
from machines import write_markdown
from notebook_pages import write_notebooks
from reference_pages import write_references
from start_page import write_start_page
from teaching import write_teaching

ROOT = Path(__file__).resolve().parents[2]
# MathJax's one file for TeX into HTML, and the fonts that it draws with. Nothing else of it is asked for.
MATHJAX, FONTS = "tex-chtml.js", "output/chtml/fonts/woff-v2"


def build(out: Path, work: Path) -> int:
    """Put the sources together in `work`, let Sphinx write `out` anew, check that; 0 if all is well."""
    began = time.perf_counter()
    for folder in (out, work / "doctrees"):
        shutil.rmtree(folder, ignore_errors=True)
    stage(ROOT, work / "sources")
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    home = ["-D", f"html_baseurl={find_address(ROOT / 'pyproject.toml', 'Documentation')}"]
    folders = ["-d", str(work / "doctrees"), str(work / "sources"), str(out)]
    if status := build_main(["-b", "html", *strict, *home, *folders]):
        return status
    faults = check_site(out)
    done = f"{out / 'index.html'} built in {time.perf_counter() - began:.0f} s"
    print("\n".join(faults) or done, file=sys.stderr)
    return min(1, len(faults))


def stage(root: Path, folder: Path) -> None:
    """Make `folder` anew, with all that Sphinx is to read; `folder.parent` keeps what is slow to make."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "tools/site/pages", folder)
    shutil.copytree(root / "tools/site/static", folder / "_static")
    shutil.copytree(root / "images", folder / "images")
    shutil.copy(root / "tools/site/conf.py", folder)
    shutil.copy(root / "images/card.png", folder / "_static")
    shutil.copy(root / "CHANGELOG.md", folder / "changelog.md")
    copy_scripts(folder / "_static", folder.parent)
    write_notebooks(root, folder)
    for write in (write_markdown, write_gallery, write_teaching, write_references, write_start_page):
        write(root, folder)


def copy_scripts(static: Path, cache: Path) -> None:
    """Put what pages run in the browser, from installed packages, into `static`; `cache` keeps the bundle.

    MathJax 3 is the package django-static-mathjax's (and nothing of Django). Vega, Vega-Lite in altair's
    version and vega-embed come in one plain script, without a module's globals, which takes seconds to make.
    """
    mathjax = Path(str(resources.files("mathjax"))) / "static/mathjax/es5"
    shutil.copytree(mathjax / FONTS, static / "mathjax" / FONTS)
    shutil.copy(mathjax / MATHJAX, static / "mathjax")
    version = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    bundle = cache / f"vega-{version}-{metadata.version('vl-convert-python')}.js"
    if not bundle.exists():
        script = vl_convert.javascript_bundle(vl_version=version)
        bundle.write_text(f"(() => {{{script}}})();\n", encoding="utf-8")
    shutil.copy(bundle, static / "vega.js")


if __name__ == "__main__":
    sys.exit(build(ROOT / "site", ROOT / "build" / "site"))
