"""A few figures, pixel by pixel against tests/plots/baseline/, in the look of the series.

To accept a change, after a look at it:

    pytest tests/plots/test_plots_pixels.py --mpl-generate-path=tests/plots/baseline
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from annotated.plots import (
    plot_encodings,
    plot_loss,
    plot_schedules,
    setup_notebook,
)
from annotated.transformer.layers import sinusoids

mpl = pytest.importorskip("matplotlib")
alt = pytest.importorskip("altair")

BASELINE = Path(__file__).parent / "baseline"
# Root mean square over all pixels, of 255: room for another rasteriser, far too little for a moved line.
TOLERANCE = 4
compared = pytest.mark.mpl_image_compare(tolerance=TOLERANCE, style="default", savefig_kwargs={"dpi": 50})


@pytest.fixture
def look() -> Iterator[Callable[[], None]]:
    """Puts the look of the series on, and takes it off altair again; pytest-mpl does so for matplotlib."""
    theme, renderer, data = alt.theme.active, alt.renderers.active, alt.data_transformers.active
    yield setup_notebook
    alt.theme.enable(theme)
    alt.renderers.enable(renderer)
    alt.data_transformers.enable(data)


@compared
def test_encodings(look):
    look()
    return plot_encodings(sinusoids(100, 64)).figure


@compared
def test_schedules(look):
    look()
    return plot_schedules([(512, 4000), (512, 8000), (256, 4000)]).figure


@compared
def test_loss(look):
    look()
    return plot_loss(1000, [0.0, 0.1, 0.2]).figure


def test_pixels_are_compared_wherever_the_tests_run(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("--mpl")
    assert {file.stem for file in BASELINE.glob("*.png")} >= {"test_encodings", "test_loss", "test_schedules"}


@pytest.mark.parametrize(
    ("baseline", "draw"),
    [
        ("test_encodings", lambda: plot_encodings(torch.roll(sinusoids(100, 64), 1, dims=0))),
        ("test_schedules", lambda: plot_schedules([(512, 4000), (512, 8000), (256, 4400)])),
        ("test_loss", lambda: plot_loss(1200, [0.0, 0.1, 0.2])),
    ],
)
def test_a_changed_figure_would_be_noticed(look, tmp_path: Path, baseline: str, draw: Callable) -> None:
    compare = pytest.importorskip("matplotlib.testing.compare").compare_images
    with mpl.rc_context():
        look()
        draw().figure.savefig(tmp_path / "drawn.png", dpi=50)
    assert compare(BASELINE / f"{baseline}.png", tmp_path / "drawn.png", TOLERANCE)
