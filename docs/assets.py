"""What the pages run in the browser: MathJax and Vega, from installed packages: nothing is fetched."""

import shutil
from importlib import metadata, resources
from pathlib import Path

import altair
import vl_convert

# MathJax's one file for TeX into HTML, and the fonts that it draws with. Nothing else of it is asked for.
MATHJAX = ("tex-chtml.js", "output/chtml/fonts/woff-v2")


def copy_assets(static: Path, cache: Path) -> None:
    """Put MathJax and Vega into the folder `static`; `cache` keeps the bundle that takes seconds to make."""
    copy_mathjax(static / "mathjax")
    shutil.copyfile(vega_bundle(cache), static / "vega.js")


def copy_mathjax(target: Path) -> None:
    """MathJax 3 as the package django-static-mathjax carries it (and nothing of Django)."""
    source = Path(str(resources.files("mathjax"))) / "static/mathjax/es5"
    for name in MATHJAX:
        path = source / name
        (shutil.copytree if path.is_dir() else copy_file)(path, target / name)


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def vega_bundle(cache: Path) -> Path:
    """Vega, Vega-Lite in altair's version and vega-embed in one plain script, without a module's globals."""
    version = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    path = cache / f"vega-{version}-{metadata.version('vl-convert-python')}.js"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        bundle = vl_convert.javascript_bundle(vl_version=version)
        path.write_text(f"(() => {{{bundle}}})();\n", encoding="utf-8")
    return path
