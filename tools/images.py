"""Render the drawings in images/ as PNG, at twice their size.

    python tools/images.py

The SVGs are the sources: text, to be edited by hand, but for cat_*.svg, which `tools/pictures` makes. Their
style sheets give them dark colors on dark pages.
"""

import io
from pathlib import Path

import vl_convert
from matplotlib import get_data_path
from PIL import Image

IMAGES = Path(__file__).resolve().parents[1] / "images"


def render(svg: str, least: int = 0) -> bytes:
    """Return an SVG as PNG in 256 colors, a fraction of the bytes without a visible difference.

    A notebook stretches a picture to its own width. On a sheet of `least` pixels, the letters of a narrow one
    stay small.
    """
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=2))).convert("RGB")
    sheet = Image.new("RGB", (max(picture.width, least), picture.height), "white")
    sheet.paste(picture, ((sheet.width - picture.width) // 2, 0))
    sheet.quantize(256).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    vl_convert.register_font_directory(str(Path(get_data_path(), "fonts", "ttf")))
    for drawing in IMAGES.glob("*.svg"):
        least = 0 if drawing.stem in ("card", "map") else 1800
        drawing.with_suffix(".png").write_bytes(render(drawing.read_text(encoding="utf-8"), least))
