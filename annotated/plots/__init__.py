"""Figures and charts of the notebooks. What draws is imported when something is drawn, not before."""

from annotated.plots.attention import (
    explore_attention,
    plot_alignment,
    plot_attention,
    plot_split,
)
from annotated.plots.costs import (
    count_parameters,
    plot_against,
)
from annotated.plots.diagrams import plot_beam, plot_model_flow, plot_tree
from annotated.plots.masks import explore_masks, plot_mask
from annotated.plots.notebook import setup_notebook, show_source
from annotated.plots.positions import plot_encodings
from annotated.plots.scaling import explore_scaling, plot_by_width, plot_soft_lookup
from annotated.plots.training import (
    plot_learning_curves,
    plot_schedules,
)

__all__ = [
    "count_parameters",
    "explore_attention",
    "explore_masks",
    "explore_scaling",
    "plot_against",
    "plot_alignment",
    "plot_attention",
    "plot_beam",
    "plot_by_width",
    "plot_encodings",
    "plot_learning_curves",
    "plot_mask",
    "plot_model_flow",
    "plot_schedules",
    "plot_soft_lookup",
    "plot_split",
    "plot_tree",
    "setup_notebook",
    "show_source",
]
