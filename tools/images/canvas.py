"""A sheet to draw on: boxes, texts, arrows, small matrices, as plain SVG, the same bytes each time."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape

from annotated.plots.drawing import COLOURS

FONT = "DejaVu Sans, Verdana, sans-serif"
INK, SOFT, PAPER = "#222222", "#6b6b6b", "#ffffff"
# The same in the dark, in the colours of tools/watch, on the ground of the site.
DARK_COLOURS = {
    "attention": ("#1f3d57", "#69b7f2"),
    "network": ("#51391a", "#e8a33d"),
    "norm": ("#1d4336", "#55cba2"),
    "embedding": ("#4a2f42", "#dd93c4"),
    "output": ("#512f1e", "#f39a62"),
    "query": ("#1f3d57", "#69b7f2"),
    "key": ("#512f1e", "#f39a62"),
    "value": ("#1d4336", "#55cba2"),
    "plain": ("#242b32", "#a6afb7"),
}
DARK = {INK: "#e8e7e3", SOFT: "#a6afb7", PAPER: "#121212"} | {
    light: dark for kind in COLOURS for light, dark in zip(COLOURS[kind], DARK_COLOURS[kind], strict=True)
}
Point = tuple[float, float]


@dataclass
class Canvas:
    """A white sheet of `width` by `height` pixels; `title` is for screen readers. Later lies on top."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    @contextmanager
    def shown(self, first: int, last: int, steps: int, seconds: float) -> Iterator[None]:
        """What is drawn inside is seen from step `first` until before `last` of `steps`, over and over.

        Where nothing moves (in print, or for readers who asked for that) it is seen if it stays to the end.
        """
        begin, end = (f"{100 * step / steps:.3f}%" for step in (first, last))
        name, stays = f"from{first}to{last}", last == steps
        after = "" if stays else f" {end},100%{{opacity:0}}"
        before = f"0%{{opacity:0}} {begin}{{opacity:1}}" if first else "0%{opacity:1}"
        self.parts.append(
            f"<style>@keyframes {name}{{{before}{after}}} "
            f"@media (prefers-reduced-motion:no-preference){{.{name}"
            f"{{animation:{name} {steps * seconds:g}s infinite step-end}}}}</style>"
        )
        self.parts.append(f'<g class="{name}" opacity="{int(stays)}">')
        yield
        self.parts.append("</g>")

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        title: str,
        note: str = "",
        size: float = 15,
    ) -> None:
        """A rounded box, upper left corner at (x, y), with a title (its line breaks kept) and a note."""
        fill, line = COLOURS[kind]
        self.rectangle(x, y, width, height, fill, line)
        lines = [*((text, size) for text in title.split("\n")), *([(note, size - 2)] if note else [])]
        top = y + height / 2 - (len(lines) - 1) * size * 0.65
        for i, (text, text_size) in enumerate(lines):
            self.text(x + width / 2, top + i * size * 1.3, text, text_size)

    def rectangle(
        self, x: float, y: float, width: float, height: float, fill: str, line: str, dashed: bool = False
    ) -> None:
        """A rounded rectangle, of which nothing is written."""
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.6"{dash}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 15,
        anchor: str = "middle",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """One line, its middle at height y. `d~model~` sets "model" lower, `W^Q^` sets "Q" higher."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y + size * 0.36:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{colour}"{weight}>{shifted(text, size)}</text>'
        )

    def arrow(self, *points: Point, head: bool = True, width: float = 2, colour: str = INK) -> None:
        """A line through the points, with a head at its end."""
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        marker = ' marker-end="url(#head)"' if head else ""
        self.parts.append(
            f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="{width:g}"{marker}/>'
        )

    def plus(self, x: float, y: float) -> None:
        """A sum: a circle with a plus."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{PAPER}" stroke="{INK}" stroke-width="2"/>'
        )
        self.arrow((x - 6, y), (x + 6, y), head=False)
        self.arrow((x, y - 6), (x, y + 6), head=False)

    def matrix(
        self, x: float, y: float, cells: Sequence[Sequence[float]], kind: str, cell: float = 22
    ) -> None:
        """A grid of cells, each as strong in colour as its number, 0 to 1; a cell of -1 is crossed out."""
        fill, line = COLOURS[kind]
        width, height = cell * len(cells[0]), cell * len(cells)
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>')
        for i, row in enumerate(cells):
            for j, value in enumerate(row):
                left, top = x + j * cell, y + i * cell
                shade = f'"{PAPER}"' if value < 0 else f'"{line}" fill-opacity="{value:.2f}"'
                self.parts.append(
                    f'<rect x="{left:g}" y="{top:g}" width="{cell:g}" height="{cell:g}" '
                    f'fill={shade} stroke="{line}"/>'
                )
                if value < 0:
                    self.arrow(
                        (left + 6, top + 6),
                        (left + cell - 6, top + cell - 6),
                        head=False,
                        width=1,
                        colour=SOFT,
                    )

    def svg(self) -> str:
        """The whole sheet."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}" role="img">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" '
            f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker></defs>'
        )
        paper = f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>'
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, title, marker, paper, *self.parts, "</svg>"]) + "\n"


def shifted(text: str, size: float) -> str:
    """The text as SVG: `~...~` lower, `^...^` higher, both smaller, and what follows back on the line."""
    pieces, back = [], 0.0
    for part in re.split(r"(~[^~]+~|\^[^^]+\^)", text):
        if not part:
            continue
        if part[0] in "~^" and len(part) > 2:
            shift = size * (0.22 if part[0] == "~" else -0.36)
            inner, small = part[1:-1], f' font-size="{size * 0.72:g}"'
        else:
            shift, inner, small = 0.0, part, ""
        move = f' dy="{shift - back:g}"' if shift != back else ""
        pieces.append(f"<tspan{move}{small}>{escape(inner)}</tspan>" if move or small else escape(inner))
        back = shift
    return "".join(pieces)


def darkened(svg: str) -> str:
    """The same drawing on a dark ground. KeyError: a colour of it has no counterpart in `DARK`."""
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda colour: DARK[colour[0]], svg)
