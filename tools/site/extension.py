"""What Sphinx is taught here: our docstrings, code line by line, what a page says where it is shared."""

import html
import re
from collections.abc import Iterator
from functools import cache
from inspect import ismodule
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from pygments.formatters import HtmlFormatter
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

import annotated
from annotated import plots
from annotated.translation import data, interop, tokenizers

QUOTED = re.compile(r"(?<![`\w:])`([^`]+)`(?!`)")
SECTION = re.compile(r"(Args|Parameters|Returns|Raises):$")
TAG = re.compile(r"<[^>]*>")
# A text between tags, and in it a word with a hyphen, at which a browser would break the line; 40 characters
# have room on a phone. In a text, each word of code has tags of its own.
TEXT = re.compile(r"[^<>]+(?=<|$)")
HYPHENATED = re.compile(r"(?<!\S)(?=\S*-)\S{2,40}(?!\S)")
CODE_WORD = re.compile(r'(?<=<span class="pre)(?=">[^<]*-)(?=">[^<]{2,40}</span>)')
TRANSLATION = re.compile(r"notebooks/([a-z][a-z])/")
CARD = "_static/card.png"


def setup(app: Sphinx) -> None:
    """Let Sphinx use what stands below."""
    PygmentsBridge.html_formatter = LineFormatter
    app.connect("html-page-context", add_card)
    app.connect("html-page-context", mark_words)
    app.connect("autodoc-process-docstring", to_rest, priority=400)  # before napoleon, at 500


# ---- docstrings, which are written to be read in an editor


def to_rest(app: object, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Turn a docstring's lines into reST: public names become links, examples literal blocks."""
    lines[:] = mark_examples([QUOTED.sub(quoted, escaped(line)) for line in lines])


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
        paragraph = before.strip() and not before.startswith(" ") and not SECTION.match(before)
        if paragraph and not above.strip() and line.startswith("    "):
            yield from ("::", "")
        yield line


@cache
def public() -> dict[str, str]:
    """Where the reference describes each public name: `rate` -> `annotated.schedule.rate`."""
    values = {name: getattr(annotated, name) for name in annotated.__all__}
    homes = {name: f"{value.__module__}.{name}" for name, value in values.items() if not ismodule(value)}
    for package in (data, interop, plots, tokenizers):
        homes |= {name: f"{package.__name__}.{name}" for name in package.__all__}
    return homes


# ---- pages


class LineFormatter(HtmlFormatter):
    """Pygments' HTML, in which each line knows its indent, and the block its longest line.

    So a narrow page wraps each line below its own beginning, and a wide one fits the letters.
    """

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        lines = [line for _, line in source]
        texts = [html.unescape(TAG.sub("", line)).rstrip() for line in lines]
        self.prestyles = f"--longest: {max(map(len, texts), default=0)}"
        indents = [len(text) - len(text.lstrip()) for text in texts]
        return super().wrap(
            (1, f'<span class="line" style="--indent: {indent}">{whole_words(line)}</span>')
            for indent, line in zip(indents, lines, strict=True)
        )


def whole_words(line: str) -> str:
    """A line of code in which each word with a hyphen, such as a flag, is marked: it is not to be broken."""
    mark = r'<span class="word">\g<0></span>'
    return TEXT.sub(lambda text: HYPHENATED.sub(mark, text[0]), line)


def mark_words(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document) -> None:
    """Mark the same words in a text."""
    context["body"] = CODE_WORD.sub(" word", context.get("body", ""))


def add_card(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document) -> None:
    """Add a page's language, description and card. With `html_baseurl` the card is found from afar."""
    if language := TRANSLATION.match(page):
        context["language"] = language[1]
    if tree is None:  # a page that Sphinx makes itself, such as the index of names
        return
    first = next(iter(tree.findall(nodes.paragraph)), None)
    text = " ".join(first.astext().split()) if first else app.config.project
    home = app.config.html_baseurl
    said = {
        "description": text,
        "og:description": text,
        "og:title": html.unescape(context["title"]),
        "og:type": "article",
        "og:image": urljoin(home, CARD) if home else context["pathto"](CARD, True),
        "twitter:card": "summary_large_image",
    }
    for name, content in said.items():
        kind = "property" if ":" in name else "name"
        context["metatags"] += f'\n<meta {kind}="{name}" content="{html.escape(content)}">'
