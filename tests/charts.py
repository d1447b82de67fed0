"""What a reader sees of an interactive chart, at chosen settings of its menus and sliders."""

import xml.etree.ElementTree as ET
from typing import Any

import altair as alt
import vl_convert


def texts(chart: alt.TopLevelMixin, **settings: Any) -> list[str]:
    """Every text of the chart, in the order drawn."""
    return [
        "".join(text.itertext()) for text in drawn(chart, settings).iter("{http://www.w3.org/2000/svg}text")
    ]


def marks(chart: alt.TopLevelMixin, **settings: Any) -> list[dict[str, str]]:
    """The fields of every mark, as the chart names them to a screen reader."""
    labels = (part.get("aria-label") for part in drawn(chart, settings).iter() if part.get("role") != "img")
    fields = (label.split("; ") for label in labels if label and ": " in label)
    return [dict(field.split(": ", 1) for field in mark if ": " in field) for mark in fields]


def drawn(chart: alt.TopLevelMixin, settings: dict[str, Any]) -> ET.Element:
    """The chart as SVG, its parameters set as a reader would set them."""
    spec = chart.to_dict()
    known = {param["name"]: param for param in spec["params"]}
    for name, value in settings.items():
        known[name]["value"] = value
    return ET.fromstring(vl_convert.vegalite_to_svg(spec, vl_version="5.20"))
