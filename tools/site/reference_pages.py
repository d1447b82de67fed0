"""The reference: a page for each module, its words taken from the docstrings."""

import pkgutil
from importlib import import_module
from pathlib import Path

import annotated
from sources import fill

# The command line is in the README, what `api` lists is on other pages, the rest is for insiders.
LEFT_OUT = {f"annotated.{name}" for name in ("__main__", "api", "cli", "files")}
MODULE = """# {heading}

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
{more}```
"""


def write_references(root: Path, folder: Path) -> None:
    """Write the pages of the modules, and their list."""
    titles = [write_module(name, folder / "api") for name in modules()]
    fill(folder / "api/index.md", MODULES="\n".join(titles))


def modules() -> list[str]:
    """List the modules of `annotated`; of a package that exports names of its own, the package alone."""
    found = []
    for module in pkgutil.iter_modules(annotated.__path__, "annotated."):
        package = import_module(module.name) if module.name not in LEFT_OUT else None
        if module.ispkg and package and not hasattr(package, "__all__"):
            found += [inner.name for inner in pkgutil.iter_modules(package.__path__, f"{module.name}.")]
        elif package:
            found.append(module.name)
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
