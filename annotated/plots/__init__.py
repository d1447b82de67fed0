"""Figures and charts of the notebooks. The libraries that draw are imported when something is drawn."""

from typing import Any

from lazy_loader import attach_stub

from annotated.optional import require

find, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import the module of a public name; where a library is missing, say what to install."""
    try:
        return find(name)
    except ModuleNotFoundError as error:
        require(str(error.name), extra="notebooks")  # raises it again, with what to install
        raise
