"""Figures and charts of the notebooks. What draws is imported when something is drawn, not before."""

from annotated.plots.attention import (
    explore_attention,
    plot_alignment,
    plot_attention,
)
from annotated.plots.diagrams import plot_beam, plot_model_flow
from annotated.plots.masks import explore_masks, plot_mask
from annotated.plots.notebook import setup_notebook, show_source
from annotated.plots.positions import plot_encodings
from annotated.plots.training import (
    plot_learning_curves,
    plot_schedules,
)

__all__ = [
    "explore_attention",
    "explore_masks",
    "plot_alignment",
    "plot_attention",
    "plot_beam",
    "plot_encodings",
    "plot_learning_curves",
    "plot_mask",
    "plot_model_flow",
    "plot_schedules",
    "setup_notebook",
    "show_source",
]
