"""Figures and charts of the notebooks. What draws is imported when something is drawn, not before."""

from annotated.plots.charts import explore_attention, explore_masks
from annotated.plots.drawing import as_words
from annotated.plots.figures import plot_attention, plot_beam, plot_mask, plot_schedules
from annotated.plots.notebook import setup_notebook, show_source
from annotated.plots.pages import step_through, watch_learning

__all__ = [
    "as_words", "explore_attention", "explore_masks", "plot_attention", "plot_beam", "plot_mask",
    "plot_schedules", "setup_notebook", "show_source", "step_through", "watch_learning",
]  # fmt: skip
