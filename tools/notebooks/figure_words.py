"""An extension of the builder's kernels: each figure's PNG carries an alternative text and its SVG.

Both go into the output's metadata, the SVG because IPython would draw it before the PNG, and move that.
"""

import re
from collections.abc import Callable
from typing import Any

MOST_PANELS = 6  # that an alternative text names


def load_ipython_extension(shell: Any) -> None:
    """Let whatever draws figures as PNG from now on, such as the notebook's own set-up, add the two."""
    formatter = shell.display_formatter.formatters["image/png"]
    register = formatter.for_type

    def register_with_words(kind: Any, draw: Any = None) -> Any:
        if draw is not None and getattr(kind, "__module__", "") == "matplotlib.figure":
            draw = with_words(draw)
        return register(kind, draw)

    formatter.for_type = register_with_words


def with_words(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return words and SVG in the metadata beside the picture that `draw` makes, which stays as it is."""
    from IPython.core.pylabtools import print_figure

    def draw_with_words(figure: Any) -> Any:
        if (drawn := draw(figure)) is None:
            return None
        picture, metadata = drawn if isinstance(drawn, tuple) else (drawn, {})
        words = {"alt": describe_figure(figure), "svg": print_figure(figure, fmt="svg")}
        return picture, {**metadata, **words}

    return draw_with_words


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
