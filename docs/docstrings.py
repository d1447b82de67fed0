"""Our docstrings, which are written to be read in an editor, as Sphinx wants them: see `to_rest`."""

import re
from collections.abc import Iterator
from functools import cache

import annotated
from annotated import data, interop, plots, tokenizers
from tables import terms_for

QUOTED = re.compile(r"(?<![`\w:])`([^`]+)`(?!`)")
SECTION = re.compile(r"(Args|Parameters|Returns|Raises):$")


def to_rest(app: object, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Change a docstring's lines: `name` becomes a link where it is public, code otherwise, examples literal.

    What the glossary explains gets a link to it.
    """
    lines[:] = list(mark_examples([QUOTED.sub(quoted, escaped(line)) for line in lines]))
    if terms := terms_for(short_name(name)):
        lines += ["", f"In the glossary: {', '.join(f':term:`{term}`' for term in terms)}.", ""]


def short_name(name: str) -> str:
    """`annotated.data.Batch.to` -> `Batch.to`; nothing for what is not public."""
    for short, home in public().items():
        if name == home or name.startswith(f"{home}."):
            return short + name.removeprefix(home)
    return ""


def escaped(line: str) -> str:
    """A line in which a bar is a bar; in one with code it would show its escape."""
    return line if "`" in line else line.replace("|", r"\|")


def quoted(match: re.Match[str]) -> str:
    """What stands between two backticks, as a link or as code."""
    text = match.group(1)
    name = text.partition("(")[0].removeprefix("annotated.")
    return f":py:obj:`{text} <{public()[name]}>`" if name in public() else f"``{text}``"


def mark_examples(lines: list[str]) -> Iterator[str]:
    """Put `::` above each block that is indented below a paragraph, unless it is a section such as Args."""
    for before, above, line in zip(["", "", *lines], ["", *lines], lines, strict=False):
        begins = (
            line.startswith("    ") and not above.strip() and before.strip() and not before.startswith(" ")
        )
        if begins and not SECTION.match(before):
            yield from ("::", "")
        yield line


@cache
def public() -> dict[str, str]:
    """Where the reference describes each public name: `rate` -> `annotated.transformer.schedule.rate`."""
    homes = {
        name: f"annotated.{module}.{name}" for module, names in annotated._HOMES.items() for name in names
    }
    for package in (data, interop, plots, tokenizers):
        homes |= {name: f"{package.__name__}.{name}" for name in package.__all__}
    return homes
