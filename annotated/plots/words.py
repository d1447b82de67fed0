"""Figures in words, for those who do not see them: made of titles, axes' labels and legends."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 6


def describe_figure(figure: "Figure") -> str:
    """What a figure says of itself: its title, then each panel's; the number of panels beyond the sixth."""
    panels = [words for axes in figure.axes if axes.get_visible() and (words := describe_axes(axes))]
    more = [f"{len(panels) - MOST_PANELS} panels more"] if len(panels) > MOST_PANELS else []
    parts = [figure.get_suptitle(), *dict.fromkeys(panels[:MOST_PANELS]), *more]
    return plain("; ".join(part for part in parts if part)) or "Figure"


def describe_axes(axes: "Axes") -> str:
    """Title, what is drawn over what, and the legend's names: `Loss: nats over update; train, val`."""
    labels = [label for label in (axes.get_ylabel(), axes.get_xlabel()) if label]
    legend = axes.get_legend()
    names = ", ".join(text.get_text() for text in legend.get_texts()) if legend else ""
    drawn = " over ".join(labels) + (f" ({names})" if names else "")
    title = next(filter(None, (axes.get_title(where) for where in ("center", "left", "right"))), "")
    return ": ".join(part for part in (title, drawn) if part)


def plain(text: str) -> str:
    """Words on one line, without the marks of a formula."""
    return " ".join(text.replace("$", "").replace("\\", "").replace("{", "").replace("}", "").split())
