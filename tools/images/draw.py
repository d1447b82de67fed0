"""Draw the pictures of the README and the notebooks: each as an SVG, and the same as a PNG.

    python tools/images/draw.py            into images/
    python tools/images/draw.py FOLDER     into that one

The SVG is text, the same bytes each time; the PNG is made of it, at twice the size.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import vl_convert
from matplotlib import get_data_path
from PIL import Image

from before import draw_before
from canvas import Canvas
from layers import draw_layers
from maps import draw_series
from moving import draw_card, draw_translation
from transformer import draw_architecture, draw_attention, draw_heads, draw_norm_orders

IMAGES = Path(__file__).resolve().parents[2] / "images"
FIGURES: dict[str, Callable[[], Canvas]] = {
    "before": draw_before,
    "layers": draw_layers,
    "architecture": draw_architecture,
    "attention": draw_attention,
    "multi_head_attention": draw_heads,
    "norm_orders": draw_norm_orders,
    "map": draw_series,
    "translation": draw_translation,
    "card": draw_card,
}


def main(folder: Path = IMAGES) -> None:
    """Write every figure into `folder`, as NAME.svg and NAME.png."""
    vl_convert.register_font_directory(str(Path(get_data_path(), "fonts", "ttf")))
    for name, draw in FIGURES.items():
        svg = draw().svg()
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8", newline="\n")
        (folder / f"{name}.png").write_bytes(to_png(svg))


def to_png(svg: str) -> bytes:
    """At twice the size, in 64 colours: a tenth of the bytes, and no difference to be seen."""
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=2)))
    picture.convert("RGB").quantize(64).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
