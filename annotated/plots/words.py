"""Alternative text for a figure, made from its titles, axes and legends."""

import re
from typing import Any

MOST_PANELS = 6  # that an alternative text names


def describe_figure(figure: Any) -> str:
    """Return alternative text: the figure's title, then what is drawn in its first panels."""
    panels = dict.fromkeys(filter(None, map(describe_axes, figure.axes[:MOST_PANELS])))
    text = re.sub(r"[$\\{}]", "", "; ".join(filter(None, [figure.get_suptitle(), *panels])))
    return " ".join(text.split()) or "Figure"


def describe_axes(axes: Any) -> str:
    """Return title, what is drawn over what, and the legend: `Loss: nats over update (train, val)`."""
    if not axes.get_visible():
        return ""
    drawn = " over ".join(filter(None, (axes.get_ylabel(), axes.get_xlabel())))
    if legend := axes.get_legend():
        drawn += f" ({', '.join(text.get_text() for text in legend.get_texts())})"
    title = axes.get_title() or axes.get_title("left") or axes.get_title("right")
    return ": ".join(filter(None, (title, drawn)))
