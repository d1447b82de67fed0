"""The drawings: made again, they are those in images/; the two maps name what there is."""

import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from colorsys import rgb_to_hls
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from annotated.plots.drawing import COLOURS

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
DRAWING = ROOT / "tools/images"
NAMES = (
    "architecture",
    "attention",
    "before",
    "card",
    "layers",
    "map",
    "multi_head_attention",
    "norm_orders",
    "translation",
)
NUMBER = re.compile(r"\d+\.?\d*")
HEX = re.compile(r"#[0-9a-f]{6}\b")

pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which `draw.py` has just drawn."""
    folder = tmp_path_factory.mktemp("images")
    subprocess.run([sys.executable, DRAWING / "draw.py", folder], check=True)
    return folder


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(DRAWING)
    return import_module("maps")


@pytest.fixture
def canvas(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(DRAWING)
    return import_module("canvas")


def test_every_picture_comes_as_svg_and_png(drawn: Path) -> None:
    assert {file.name for file in drawn.iterdir()} == {
        f"{n}.{kind}" for n in NAMES for kind in ("svg", "png")
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_svg_is_what_the_code_draws(drawn: Path, name: str) -> None:
    committed, now = ((folder / f"{name}.svg").read_text(encoding="utf-8") for folder in (IMAGES, drawn))
    assert NUMBER.sub("#", committed) == NUMBER.sub("#", now), "run `make images`"
    # Attention weights, and with them the thickness of lines, are not the same to the last digit everywhere.
    rounding = 0.11 if name in ("translation", "card") else 0.0
    for before, after in zip(NUMBER.findall(committed), NUMBER.findall(now), strict=True):
        assert abs(float(before) - float(after)) <= rounding, "run `make images`"


def test_the_moving_picture_ends_with_the_whole_translation() -> None:
    """Still readers see every word and some lines; moving ones a word more at each step."""
    svg = (IMAGES / "translation.svg").read_text(encoding="utf-8")
    groups = re.findall(r'<g class="from(\d+)to(\d+)" opacity="([01])">(.*?)</g>', svg, flags=re.DOTALL)
    end = max(int(last) for _, last, _, _ in groups)
    words = [int(first) for first, last, _, inside in groups if "<text" in inside]
    assert words == list(range(len(words)))
    for first, last, opacity, inside in groups:
        assert opacity == ("1" if int(last) == end else "0")
        assert "<text" in inside or "<polyline" in inside, first


@pytest.mark.parametrize("name", NAMES)
def test_the_png_is_the_svg_at_twice_the_size(drawn: Path, name: str) -> None:
    width, height = struct.unpack(">II", (drawn / f"{name}.png").read_bytes()[16:24])
    svg = ET.parse(drawn / f"{name}.svg").getroot()
    assert (width, height) == (2 * int(svg.get("width")), 2 * int(svg.get("height")))
    assert (IMAGES / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_off_the_sheet(drawn: Path, name: str) -> None:
    """Boxes wholly, texts by their anchor."""
    svg = ET.parse(drawn / f"{name}.svg").getroot()
    width, height = int(svg.get("width")), int(svg.get("height"))
    for element in svg.iter():
        if element.get("x"):
            x, y = float(element.get("x")), float(element.get("y"))
            right, bottom = x + float(element.get("width", 0)), y + float(element.get("height", 0))
            assert min(x, y) >= 0, ET.tostring(element)
            assert right <= width, ET.tostring(element)
            assert bottom <= height, ET.tostring(element)


def test_the_map_holds_the_series(maps: ModuleType) -> None:
    notebooks = [notebook for _, row in maps.SERIES for notebook in row]
    names = {f"{number:02d}_{re.sub('[ .-]', '_', name).lower()}" for number, name, _ in notebooks}
    written = {source.stem for source in (ROOT / "notebooks").glob("[0-9][0-9]_*.py")}
    assert written == names


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_queries_keys_and_values_have_one_colour_in_drawings_figures_and_on_the_page(
    canvas: ModuleType, name: str
) -> None:
    style = (ROOT / "tools/watch/src/style.css").read_text(encoding="utf-8")
    assert f"--{name}: light-dark({COLOURS[name][1]}, {canvas.DARK_COLOURS[name][1]});" in style


def test_a_query_of_the_drawing_does_not_see_the_padding() -> None:
    """What is struck out is one column: the same key for every query."""
    svg = ET.parse(IMAGES / "attention.svg").getroot()
    struck = [line.get("points").split(",")[0] for line in svg.iter() if line.get("stroke-width") == "1"]
    assert len(struck) == 3
    assert len(set(struck)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_word_of_a_drawing_can_be_read_in_light_and_in_dark(canvas: ModuleType, name: str) -> None:
    """With the contrast that WCAG asks for, on the uppermost of what is drawn below its anchor."""
    light = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    dark = canvas.darkened(light)
    assert set(HEX.findall(dark)) <= set(canvas.DARK.values())
    for svg in (light, dark):
        grounds: list[ET.Element] = []
        for element in ET.fromstring(svg).iter():
            if element.tag.endswith("}rect"):
                grounds.append(element)
            if element.tag.endswith("}text"):
                ground = next(rect for rect in reversed(grounds) if lies_on(element, rect))
                assert contrast(element.get("fill"), ground.get("fill")) >= 4.5, ET.tostring(element)


def lies_on(text: ET.Element, rect: ET.Element) -> bool:
    x, y = (float(text.get(at)) - float(rect.get(at, 0)) for at in "xy")
    return 0 <= x <= float(rect.get("width")) and 0 <= y <= float(rect.get("height"))


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances, 1 to 21 (WCAG 2.1)."""
    dim, bright = sorted(
        sum(
            share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for share, part in zip((0.2126, 0.7152, 0.0722), parts(colour), strict=True)
        )
        for colour in (one, other)
    )
    return (bright + 0.05) / (dim + 0.05)


def parts(colour: str) -> list[float]:
    """Red, green and blue, each from 0 to 1."""
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


@pytest.mark.parametrize("kind", COLOURS)
def test_a_colour_keeps_its_hue_in_the_dark(canvas: ModuleType, kind: str) -> None:
    """Lines can be told from the tint that they frame, and from the ground."""
    for light, dark in zip(COLOURS[kind], canvas.DARK_COLOURS[kind], strict=True):
        hues = [rgb_to_hls(*parts(colour))[0] for colour in (light, dark)]
        assert kind == "plain" or abs(hues[0] - hues[1]) < 1 / 24
    tint, line = canvas.DARK_COLOURS[kind]
    assert min(contrast(line, tint), contrast(line, canvas.DARK[canvas.PAPER])) >= 3


def test_small_letters_leave_the_rest_of_the_line_where_it_was(canvas: ModuleType) -> None:
    element = ET.fromstring(f"<text>{canvas.shifted('a~b~ < c^d^', 10)}</text>")
    shifts = [float(span.get("dy", 0)) for span in element]
    assert "".join(element.itertext()) == "ab < cd"
    assert [span.text for span in element] == ["b", " < c", "d"]
    assert shifts[0] > 0 > shifts[2]
    assert shifts[0] + shifts[1] == pytest.approx(0)


def test_a_sheet_is_readable_whatever_is_written_on_it(canvas: ModuleType) -> None:
    sheet = canvas.Canvas(100, 50, "a < b & c")
    sheet.box(0, 0, 90, 40, "plain", "x < y\nsecond", "<note>")
    words = " ".join("".join(ET.fromstring(sheet.svg()).itertext()).split())
    assert words == "a < b & c x < y second <note>"
