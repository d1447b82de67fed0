"""The reference: a page for each module, its words taken from the docstrings."""

import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import annotated
from sources import fill

# The command line is in the README, the rest is for insiders.
INSIDE = ("cli", "files", "languages", "limits", "messages", "processes", "threads")
LEFT_OUT = {
    "annotated.__main__",
    "annotated.optional",
    "annotated.settings",
    *(f"annotated.translation.{name}" for name in INSIDE),
}
MODULE = """# {heading}

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
{more}```
"""


def write_references(root: Path, folder: Path) -> None:
    """Write the pages of the modules, and their list."""
    titles = [write_module(name, folder / "api") for name in modules(annotated)]
    fill(folder / "api/index.md", MODULES="\n".join(titles))


def modules(package: ModuleType) -> list[str]:
    """List the modules of a package; of one inside it that exports names of its own, that alone."""
    found = []
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in LEFT_OUT:
            inner = import_module(module.name)
            whole = hasattr(inner, "__path__") and not hasattr(inner, "__all__")
            found += modules(inner) if whole else [module.name]
    return found


def write_module(name: str, folder: Path) -> str:
    """Write the page of a module; returns the page's name.

    A folder of modules is one page: what it exports, under the names that a reader imports.
    """
    page = name.removeprefix("annotated.")
    heading = ", in ".join(reversed(page.split(".")))  # two short words, which a phone can break
    more = "   :imported-members:\n" if hasattr(import_module(name), "__path__") else ""
    (folder / f"{page}.md").write_text(MODULE.format(heading=heading, name=name, more=more), encoding="utf-8")
    return page
