"""Pages to look things up, each held to the notebooks and the package while it is written.

A page for each module, its words taken from the docstrings; glossary, questions, and names of the classic.
"""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import annotated
from extension import public
from sources import Name, classic_names, fill, find, headings, notebooks, read_table, slug

# The command line is in the README, names have their own page; the rest is for insiders.
LEFT_OUT = {f"annotated.{name}" for name in ("__main__", "cli", "files")}
MODULE = """# {heading}

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
{more}```
"""


class Series:
    """The notebooks that there are, and how to link to one of their sections."""

    def __init__(self, root: Path):
        self.sections = {
            path.stem: [heading for cell in notebook.cells for heading in headings(cell)]
            for path, notebook in notebooks(root)
        }

    def link(self, words: str, notebook: str, section: str = "") -> str:
        """A link to a section, or to the notebook's head; bare words while there is no such notebook.

        Raises ValueError for a section that the notebook does not have.
        """
        if notebook not in self.sections:
            return words
        if section and section not in self.sections[notebook]:
            known = "; ".join(self.sections[notebook])
            raise ValueError(f"{notebook} has no section {section!r}, but: {known}")
        anchor = f"#{slug(section)}" if section else ""
        return f"[{words}](notebooks/{notebook}.ipynb{anchor})"


def write_references(root: Path, folder: Path) -> None:
    """Write the pages of the modules, and fill the others."""
    titles = [write_module(name, folder / "api") for name in modules()]
    fill(folder / "api/index.md", MODULES="\n".join(titles))
    series = Series(root)
    entries = [glossary_entry(entry, series) for entry in read_table("glossary")]
    fill(folder / "glossary.md", ENTRIES="\n\n".join(entries))
    items = [question(item, series) for item in read_table("questions")]
    fill(folder / "questions.md", ITEMS="\n\n".join(items))
    fill(folder / "names.md", ROWS="\n".join(map(name_row, classic_names())))


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


def glossary_entry(entry: dict[str, Any], series: Series) -> str:
    """A term and its definition, as Sphinx's glossary takes them."""
    parts = [f"${entry['symbol']}$"] if "symbol" in entry else []
    parts.append(", ".join(code_link(name) for name in entry["code"]))
    parts += [f"section {entry['paper']} of the paper"] if "paper" in entry else []
    parts.append(place(entry, series))
    return f"{entry['term']}\n    {entry['text']}\\\n    {' · '.join(parts)}"


def question(item: dict[str, Any], series: Series) -> str:
    """A question, its short answer, the way to the long one."""
    return f"**{item['ask']}**\\\n{item['answer']}\\\n{place(item, series)}"


def place(item: dict[str, Any], series: Series) -> str:
    """Where a term or question is treated: `02 · Equation 1`, as a link if that notebook is there."""
    notebook, section = item["notebook"], item.get("section", "")
    return series.link(f"{notebook[:2]} · {section}" if section else notebook, notebook, section)


def name_row(name: Name) -> str:
    """A line of the table of names; raises as `find` does where ours is not there."""
    marks = " | ".join("✓" if year in name.years else "" for year in (2018, 2022))
    if name.ours:
        find(name.ours)
    ours = code_link(name.ours) if name.ours else "nothing"
    return f"| `{name.theirs}` | {marks} | {ours} | {name.remark} |"


def code_link(name: str) -> str:
    """A name in code that leads to its place in the reference, or to its class, where that has none of it."""
    parts = name.split(".")
    while parts and parts[0] not in public():
        parts = parts[1:]
    if not parts:
        return f"`{name}`"
    home, members = public()[parts[0]], parts[1:]
    if members and not callable(getattr(find(home.removeprefix("annotated.")), members[0], None)):
        members = []
    return f"{{py:obj}}`{'.'.join(parts)} <{'.'.join([home, *members])}>`"
