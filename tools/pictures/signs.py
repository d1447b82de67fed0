"""The signs of which the drawings consist, one for each kind of thing; data flows downwards.

A word is a chip. A vector is a strip of cells with its numbers, colored by sign and size, and its frame says
what it is: query, key, value, or the stream of vectors between the layers. A weight is a line as wide as it
is large. What to look at is strong or lies on a yellow mark; the rest is pale.
"""

import html
import re
from collections.abc import Iterable, Sequence

WIDTH = 560
SIZE = 16  # of all letters; on a phone, 390 pixels wide, it is 11
CELL, ROW = 56, 28  # a cell of a strip

INK, SOFT, PALE, PAPER, MARK = "#222222", "#666666", "#c4c4c4", "#ffffff", "#fff0c0"
PLUS, MINUS = "#c8437f", "#3f7f93"
ROLES = {"query": "#0067b1", "key": "#b3480a", "value": "#00795a", "stream": "#777777"}
# Each color, and what it is on a dark page.
DARK = {
    INK: "#ebeae6",
    SOFT: "#aab2b9",
    PALE: "#4b535b",
    PAPER: "#121212",
    MARK: "#4a3e12",
    PLUS: "#ee6ba3",
    MINUS: "#6bb3c9",
    ROLES["query"]: "#69b7f2",
    ROLES["key"]: "#f39a62",
    ROLES["value"]: "#55cba2",
    ROLES["stream"]: "#9aa2a9",
}
SIGNS = {"<s>": "start", "</s>": "end"}

Point = tuple[float, float]


def printed(number: float) -> str:
    """Return a number as it is printed everywhere: two decimals, a true minus, no minus zero."""
    return f"{round(float(number), 2) + 0.0:.2f}".replace("-", "−")


class Sheet:
    """A drawing in the making: each sign is put at its place and lies on the signs put before it."""

    def __init__(self, height: int, words: str, largest: float = 2.5) -> None:
        """`words` say what is seen; the cell of a number of size `largest` has the full color."""
        self.height, self.words, self.largest = height, words, largest
        self.signs: list[str] = []

    def svg(self) -> str:
        """Return the drawing, with its words as its title."""
        dark = (
            f'  [fill="{color}"] {{ fill: {dim} }} [stroke="{color}"] {{ stroke: {dim} }}'
            for color, dim in DARK.items()
        )
        size = f'width="{WIDTH}" height="{self.height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {self.height}"'
            ' font-family="DejaVu Sans, Verdana, sans-serif" role="img">',
            f"<title>{html.escape(self.words)}</title>",
            "<style>\n@media (prefers-color-scheme: dark) {",
            *dark,
            "}\n</style>",
            f'<rect {size} fill="{PAPER}"/>',
            *self.signs,
            "</svg>\n",
        ]
        return "\n".join(lines)

    # ---- plain shapes

    def shape(self, name: str, **attributes: object) -> None:
        """Put an SVG element with these attributes, `stroke_width` for `stroke-width`."""
        given = (f'{key.replace("_", "-")}="{_short(value)}"' for key, value in attributes.items())
        self.signs.append(f"<{name} {' '.join(given)}/>")

    def text(
        self, x: float, y: float, words: str, color: str = INK, anchor: str = "middle", bold: bool = False
    ) -> None:
        """Write words, their middle at height y; `^` raises the next letter and `_` lowers it."""
        weight = ' font-weight="bold"' if bold else ""
        look = f'font-size="{SIZE}" text-anchor="{anchor}" fill="{color}"{weight}'
        place = f'x="{_short(x)}" y="{_short(y + 0.36 * SIZE)}"'
        self.signs.append(f"<text {place} {look}>{_with_scripts(words)}</text>")

    def line(self, *points: Point, color: str = SOFT, width: float = 1.6) -> None:
        """Draw a line through some points."""
        self.shape("polyline", points=_points(points), fill="none", stroke=color, stroke_width=width)

    def arrow(self, *points: Point, color: str = SOFT, width: float = 1.6) -> None:
        """Draw the way of the data through some points, with a head at the last."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        right, down = 8 * (x1 - x0) / length, 8 * (y1 - y0) / length
        neck = x1 - right, y1 - down
        sides = [(neck[0] - 0.55 * s * down, neck[1] + 0.55 * s * right) for s in (1, -1)]
        self.line(*points[:-1], neck, color=color, width=width)
        self.shape("polygon", points=_points([(x1, y1), *sides]), fill=color)

    def box(self, x: float, y: float, width: float, height: float, words: str) -> None:
        """Draw a part of the model that the picture does not open."""
        look = {"rx": 8, "fill": PAPER, "stroke": SOFT, "stroke_width": 1.4}
        self.shape("rect", x=x, y=y, width=width, height=height, **look)
        self.text(x + width / 2, y + height / 2, words, SOFT)

    def mark(self, x: float, y: float, width: float, height: float) -> None:
        """Lay the yellow mark below what is to be looked at."""
        self.shape("rect", x=x, y=y, width=width, height=height, rx=6, fill=MARK)

    # ---- the signs

    def chip(
        self, x: float, y: float, word: str, strong: bool = False, ghost: bool = False, height: int = 28
    ) -> float:
        """Put a word around (x, y) and return half its width; `start` and `end` are soft, as no words."""
        sign = SIGNS.get(word, word)
        half = (len(sign) * 9.4 + 24) / 2
        stroke = (INK, 2.4) if strong else (PALE if ghost else SOFT, 1.2)
        look = {"rx": height / 2, "fill": PAPER, "stroke": stroke[0], "stroke_width": stroke[1]}
        dashes = {"stroke_dasharray": "5 4"} if ghost else {}
        self.shape("rect", x=x - half, y=y - height / 2, width=2 * half, height=height, **look, **dashes)
        self.text(x, y, sign, SOFT if ghost or sign != word else INK, bold=strong)
        return half

    def cell(
        self, x: float, y: float, number: float, pale: bool = False, bold: bool = False, width: int = CELL
    ) -> None:
        """Put one number into a box whose corner is (x, y)."""
        place = {"x": x, "y": y, "width": width, "height": ROW}
        strength = min(abs(number) / self.largest, 1) * (0.22 if pale else 0.6)
        self.shape("rect", **place, fill=PAPER)
        self.shape("rect", **place, fill=PLUS if number > 0 else MINUS, fill_opacity=strength)
        self.text(x + width / 2, y + ROW / 2, printed(number), SOFT if pale else INK, bold=bold)

    def frame(self, x: float, y: float, columns: float, rows: int, role: str, pale: bool = False) -> None:
        """Draw the frame of so many cells, in the color of what they are."""
        look = {
            "stroke": ROLES[role],
            "stroke_width": 1.6 if pale else 2.4,
            "stroke_opacity": 0.45 if pale else 1,
        }
        place = {"x": x, "y": y, "width": CELL * columns, "height": ROW * rows}
        self.shape("rect", **place, rx=3, fill="none", **look)

    def strip(
        self,
        x: float,
        y: float,
        numbers: Sequence[float],
        role: str = "stream",
        lying: bool = False,
        pale: bool = False,
        bold: int | None = None,
    ) -> None:
        """Put a vector with its corner at (x, y): standing below its word, or lying in a row."""
        right, down = (CELL, 0) if lying else (0, ROW)
        for place, number in enumerate(numbers):
            self.cell(x + place * right, y + place * down, number, pale, place == bold)
        long = len(numbers)
        self.frame(x, y, long if lying else 1, 1 if lying else long, role, pale)

    def matrix(
        self,
        x: float,
        y: float,
        rows: Sequence[Sequence[float]],
        role: str = "stream",
        strong: int | None = None,
        width: int = CELL,
    ) -> None:
        """Put a matrix with its corner at (x, y), one of its rows perhaps strong."""
        for down, row in enumerate(rows):
            for right, number in enumerate(row):
                pale = strong not in (None, down)
                self.cell(x + right * width, y + down * ROW, number, pale, width=width)
        columns = len(rows[0]) * width / CELL
        self.frame(x, y, columns, len(rows), role)
        if strong is not None:
            self.frame(x, y + strong * ROW, columns, 1, role)

    def fan(
        self,
        columns: Sequence[float],
        top: float,
        end: Point,
        weights: Sequence[float],
        strong: Sequence[int],
    ) -> None:
        """Draw a line from each column to one place, as wide as its weight, the strong ones on top."""
        middle = (top + end[1]) / 2
        for place in sorted(range(len(columns)), key=lambda place: place in strong):
            x = columns[place]
            way = f"M{x},{top} C{x},{middle} {end[0]},{middle} {end[0]},{end[1]}"
            color, opacity = (INK, 0.8) if place in strong else (PALE, 1)
            look = {"stroke": color, "stroke_opacity": opacity, "stroke_width": max(20 * weights[place], 0.6)}
            self.shape("path", d=way, fill="none", **look)

    def bar(
        self, x: float, y: float, share: float, length: int, strong: bool = False, upright: bool = False
    ) -> None:
        """Draw a share of 1 as a bar in a trough, from its left end (x, y), or upright from its foot."""
        trough, full = {"fill": "none", "stroke": PALE}, {"fill": INK if strong else SOFT}
        for size, look in ((length, trough), (length * share, full)):
            if upright:
                self.shape("rect", x=x - 9, y=y - size, width=18, height=size, **look)
            else:
                self.shape("rect", x=x, y=y - 9, width=size, height=18, **look)


def _short(value: object) -> object:
    """Return a length with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{_short(float(x))},{_short(float(y))}" for x, y in points)


def _with_scripts(words: str) -> str:
    """Return the SVG of words in which `^` raises the next letter and `_` lowers it."""
    rise = 0.34 * SIZE

    def script(match: re.Match[str]) -> str:
        by = -rise if match[1] == "^" else 0.6 * rise
        small = f'<tspan dy="{by:.2f}" font-size="{0.72 * SIZE:.2f}">{match[2]}</tspan>'
        return small + (f'<tspan dy="{-by:.2f}">{match[3]}</tspan>' if match[3] else "")

    return re.sub(r"([\^_])(\S)(.?)", script, html.escape(words, quote=False))
