"""Attention Is All You Need, in code that a reader can hold in mind and a test holds to account.

    import annotated
    model = annotated.make_model(src_vocab=11, tgt_vocab=11, N=2)

The public names are those of `annotated.api`, which is imported, with PyTorch, when one is first used.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("annotated-transformer")  # PyPI's `annotated` is another's
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

if TYPE_CHECKING:
    from annotated import check, data, inside, interop, metrics, plots, tokenizers  # noqa: F401
    from annotated.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import a module of the package, or the public names, when one is first used."""
        unknown = AttributeError(f"module 'annotated' has no attribute {name!r}")
        if name.startswith("_") and name != "__all__":
            raise unknown
        if find_spec(f"annotated.{name}"):
            return import_module(f"annotated.{name}")
        api = import_module("annotated.api")
        if not hasattr(api, name):
            raise unknown
        return globals().setdefault(name, getattr(api, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("annotated.api").__all__})
