"""The reference: a page for each module of the package, its words taken from the docstrings."""

import importlib
import pkgutil
from pathlib import Path

import annotated

# The command line is in the README, names have their own page; the rest is for insiders.
LEFT_OUT = {f"annotated.{name}" for name in ("__main__", "cli", "files")}
INDEX = """# Reference

Everything public in `annotated`, by module. Shapes are written `(batch, tgt_len, d_model)`.

```{{toctree}}
:maxdepth: 1

{names}
```
"""
PAGE = """# {title}

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
{more}```
"""


def write_api(folder: Path) -> None:
    """Write the pages, and the index that lists them."""
    folder.mkdir()
    names = modules()
    for name in names:
        title = name.removeprefix("annotated.")
        # A folder of modules is one page: what it exports, under the names that a reader imports.
        package = hasattr(importlib.import_module(name), "__path__")
        # Two short words, which a phone can break: "masks, in transformer".
        heading = ", in ".join(reversed(title.split(".")))
        page = PAGE.format(title=heading, name=name, more="   :imported-members:\n" * package)
        (folder / f"{title}.md").write_text(page, encoding="utf-8")
    titles = "\n".join(name.removeprefix("annotated.") for name in names)
    (folder / "index.md").write_text(INDEX.format(names=titles), encoding="utf-8")


def modules() -> list[str]:
    """List the modules of `annotated`; of a package that exports names of its own, the package alone."""
    found = []
    for module in pkgutil.iter_modules(annotated.__path__, "annotated."):
        if module.name in LEFT_OUT:
            continue
        package = importlib.import_module(module.name)
        if module.ispkg and not hasattr(package, "__all__"):
            found += [inner.name for inner in pkgutil.iter_modules(package.__path__, f"{module.name}.")]
        else:
            found.append(module.name)
    return found
