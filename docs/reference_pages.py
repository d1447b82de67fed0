"""Glossary, questions and names as pages, each held to the notebooks and the package while it is written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classic_names import NAMES, find
from docstrings import public
from notebook_pages import sections
from tables import read_table

GLOSSARY = """# Glossary

Each term with its symbol, its name in code, the paper's section, and where it is shown.

{entries}
"""
QUESTIONS = """# Readers' questions

A short answer here, the long one where the link leads: there a cell shows it.

{items}
"""
NAMES_PAGE = """# Names of the Annotated Transformer

Readers of "The Annotated Transformer" (2018, and its edition of 2022) find its names here, with the same
arguments in the same order. What has been superseded is listed with what took its place. Most can be imported
from `annotated` itself, such as `from annotated import Batch`; the others from the module that
[the reference](api/index.md) has them in.

| there | 2018 | 2022 | here | |
| --- | :-: | :-: | --- | --- |
{rows}
"""


class Series:
    """The notebooks that there are, and how to link to one of their sections."""

    def __init__(self, folder: Path):
        self.sections = {path.stem: sections(path) for path in folder.glob("[0-9][0-9]_*.ipynb")}

    def link(self, words: str, notebook: str, section: str = "") -> str:
        """A link to a section, or to the notebook's head; bare words while there is no such notebook.

        Raises ValueError for a section that the notebook does not have.
        """
        if notebook not in self.sections:
            return words
        if section and section not in self.sections[notebook]:
            raise ValueError(
                f"{notebook} has no section {section!r}, but: {'; '.join(self.sections[notebook])}"
            )
        anchor = f"#{slug(section)}" if section else ""
        return f"[{words}](notebooks/{notebook}.ipynb{anchor})"


def slug(heading: str) -> str:
    """The name that a heading gets on its page, as GitHub makes it; formulas leave no trace."""
    text = "".join(part for i, part in enumerate(heading.split("$")) if i % 2 == 0)
    return "".join(c for c in text.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def write_references(root: Path, folder: Path) -> None:
    """Write the three pages."""
    series = Series(root / "notebooks")
    entries = "\n\n".join(glossary_entry(entry, series) for entry in read_table("glossary"))
    items = "\n\n".join(question(item, series) for item in read_table("questions"))
    rows = "\n".join(name_row(*name) for name in NAMES)
    pages = {
        "glossary.md": GLOSSARY.format(entries=f"```{{glossary}}\n:sorted:\n\n{entries}\n```"),
        "questions.md": QUESTIONS.format(items=items),
        "names.md": NAMES_PAGE.format(rows=rows),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


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


def name_row(theirs: str, years: Sequence[int], ours: str, remark: str) -> str:
    """A line of the table of names; raises as `find` does where ours is not there."""
    marks = " | ".join("✓" if year in years else "" for year in (2018, 2022))
    if ours:
        find(ours)
    return f"| `{theirs}` | {marks} | {code_link(ours) if ours else 'nothing'} | {remark} |"


def code_link(name: str) -> str:
    """A name in code that leads to its place in the reference, where it has one of its own."""
    homes = public()
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part in homes:
            target = ".".join([homes[part], *parts[i + 1 :]])
            known = target if documented(parts[i:]) else homes[part]
            return f"{{py:obj}}`{'.'.join(parts[i:])} <{known}>`"
    return f"`{name}`"


def documented(parts: Sequence[str]) -> bool:
    """Whether the reference has an entry for a class's member: it has a docstring."""
    if len(parts) == 1:
        return True
    owner = find(public()[parts[0]].removeprefix("annotated."))
    return callable(getattr(owner, parts[1], None))
