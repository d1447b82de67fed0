"""Figures: a number and a caption below each picture, and a name under which some are kept as SVG.

The caption is markdown right below the cell that draws, `*Figure 2. What to see.*`; a drawing that is itself
markdown has it in its own cell. The tag `figure-masks` keeps the picture as figures/02-masks.svg, for the
site's gallery.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from folds import SOLUTION, fold_of

CAPTION = re.compile(r"^\*Figure (\d+)\. [^*]+\*$", re.MULTILINE)
NAMED = re.compile(r"figure-([a-z0-9]+(?:-[a-z0-9]+)*)")
# Its date and the version of what drew it: another one at each build.
SVG_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
VEGA = "application/vnd.vegalite.v5+json"


def figure_name(cell: NotebookNode) -> str:
    """The name in a cell's tag: `masks` for `figure-masks`; nothing where there is none."""
    found = (NAMED.fullmatch(tag) for tag in cell.metadata.get("tags", []))
    return next((match[1] for match in found if match), "")


def pictures(cell: NotebookNode) -> list[NotebookNode]:
    """A cell's outputs that are pictures."""
    return [output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]


def check_figures(built: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Captions count 1, 2, 3 ...; a picture with a name has one, and all have where any has."""
    numbered = [
        (position, int(number))
        for position, cell in enumerate(built.cells, start=1)
        if cell.cell_type == "markdown"
        for number in CAPTION.findall(cell.source)
    ]
    for expected, (position, number) in enumerate(numbered, start=1):
        if number != expected:
            yield position, "figure number", f"Figure {number} is the notebook's {expected}."
    for position, cell in enumerate(built.cells, start=1):
        drawn, named = pictures(cell), figure_name(cell)
        if named and len(drawn) != 1:
            yield position, "no picture", f"figure-{named} is to draw one picture, not {len(drawn)}"
        below = built.cells[position].source if position < len(built.cells) else ""
        if drawn and (named or numbered) and fold_of(cell) != SOLUTION and not CAPTION.match(below):
            yield position, "no caption", "right below the picture goes *Figure n. What to see.*"


def take_svgs(notebook: NotebookNode) -> dict[str, str]:
    """The named pictures as SVG. That of a figure comes in its metadata, and is taken out of there."""
    svgs = {}
    for cell in notebook.cells:
        for output in pictures(cell):
            svg = output.metadata.get("image/png", {}).pop("svg", "")
            if name := figure_name(cell):
                svgs[name] = SVG_METADATA.sub("", svg) or draw_chart(output.data[VEGA])
    return svgs


def draw_chart(spec: NotebookNode) -> str:
    """A chart's still as SVG, in the font of the series, which matplotlib carries."""
    import altair
    import matplotlib
    import vl_convert

    vl_convert.register_font_directory(str(Path(matplotlib.get_data_path(), "fonts/ttf")))
    version = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    return vl_convert.vegalite_to_svg(spec, vl_version=version)


def prefix(notebook: str) -> str:
    """Return what a notebook's figures begin with: the number of a lesson, the whole name of evidence."""
    return notebook[:2] if notebook[:2].isdigit() else notebook


def svg_path(source: Path, name: str) -> Path:
    """Where a notebook's picture is kept: `figures/02-masks.svg` beside 02_attention.py."""
    return source.parent / "figures" / f"{prefix(source.stem)}-{name}.svg"


def check_svgs(built: NotebookNode, source: Path) -> Iterator[tuple[int, str, str]]:
    """Each picture with a name is kept as SVG, and no other is."""
    wanted = {svg_path(source, figure_name(cell)) for cell in built.cells if figure_name(cell)}
    for path in wanted ^ set(svg_path(source, "x").parent.glob(f"{prefix(source.stem)}-*.svg")):
        state = "missing" if path in wanted else "of no figure"
        yield 0, "svg", f"figures/{path.name} is {state}: build the notebook again"
