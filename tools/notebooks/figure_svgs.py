"""An extension of the builder's kernels: the SVG of each figure stands beside its PNG.

It goes into the output's metadata, because IPython would draw it before the PNG, and move that.
"""

from collections.abc import Callable
from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Let whatever draws figures as PNG from now on, such as the notebook's own set-up, add the SVG."""
    formatter = shell.display_formatter.formatters["image/png"]
    register = formatter.for_type

    def register_with_svg(kind: Any, draw: Any = None) -> Any:
        if draw is not None and getattr(kind, "__module__", "") == "matplotlib.figure":
            draw = with_svg(draw)
        return register(kind, draw)

    formatter.for_type = register_with_svg


def with_svg(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return SVG in the metadata beside the picture that `draw` makes, which stays as it is."""
    from IPython.core.pylabtools import print_figure

    def draw_with_svg(figure: Any) -> Any:
        if (drawn := draw(figure)) is None:
            return None
        picture, metadata = drawn if isinstance(drawn, tuple) else (drawn, {})
        return picture, {"svg": metadata.get("svg") or print_figure(figure, fmt="svg"), **metadata}

    return draw_with_svg
