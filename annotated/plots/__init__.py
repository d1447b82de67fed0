"""Figures and charts of the notebooks. What draws is imported when something is drawn, not before."""

from annotated.plots.notebook import setup_notebook, show_source

__all__ = ["setup_notebook", "show_source"]
