"""Libraries that belong to an extra of the package."""

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import a module of an optional library. Raises ModuleNotFoundError that says what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        remedy = f'pip install ".[{extra}]" in the clone'
        raise ModuleNotFoundError(f"{error.name} is missing: {remedy}", name=error.name) from error
