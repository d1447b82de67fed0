"""The lessons as slides: one HTML file that needs no network.

    python tools/site/slides.py    notebooks/ -> site/slides.html

Each lesson's headings, figures and numbered equations, what it asks the reader to predict, and the sentences
to remember. The notes (key S) have the minutes that a section takes to read, and the answers. Reveal.js is a
package of tools/watch, MathJax the site's. `slides.html?print-pdf`, printed by a browser, is a PDF.
"""

import base64
import html
import re
import sys
from collections.abc import Iterator
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode, v4

sys.path.append(str(Path(__file__).resolve().parents[1] / "notebooks"))

from figures import pictures
from folds import SOLUTION, fold_of
from lessons import MINUTES, reading_minutes
from sources import notebooks, title_of, with_sections
from teaching import answer_of, question_of

ROOT = Path(__file__).resolve().parents[2]
REVEAL = ROOT / "tools/watch/node_modules/reveal.js/dist"
DRAWING = re.compile(r"!\[([^\]]*)\]\(attachment:(\w+)\.png\)\s*")
REMEMBER = re.compile(r"^\*\*Remember:\*\* ", re.MULTILINE)
EQUATION = re.compile(r"\$\$[^$]*\(\d\)\s*\$\$")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\([^)]*\)")
UNLISTED = ("Exercises", "What you can now say")  # sections without slides

markdown = MarkdownIt().use(
    dollarmath_plugin,
    renderer=lambda formula, options: ("\\[{}\\]" if options["display_mode"] else "\\({}\\)").format(
        html.escape(formula, quote=False)
    ),
)


def slides_of(notebook: NotebookNode, root: Path) -> Iterator[str]:
    """Yield a lesson's slides: its title, then those of each section that has any."""
    minutes = MINUTES.search(notebook.cells[0].source)
    hook = notebook.cells[0].source.split("\n\n")[1].strip("*")
    note = f"{minutes[1]} minutes to read" if minutes else ""
    yield slide(f"<h1>{inline(title_of(notebook))}</h1>", f"<p>{inline(hook)}</p>", note)
    placed = list(enumerate(with_sections(notebook)))
    for section, group in groupby(placed, key=lambda each: each[1][0]):
        if section in UNLISTED:
            break
        cells = [(index, cell) for index, (_, cell) in group]
        made = [part for index, cell in cells for part in parts(notebook, index, cell, root)]
        part = v4.new_notebook(cells=[cell for _, cell in cells])
        took = max(1, round(reading_minutes(part)))
        note = f"Minutes to read this section: about {took}."
        for body, more in made:
            yield slide(f"<h2>{inline(section)}</h2>", body, f"{note} {more}")


def parts(notebook: NotebookNode, index: int, cell: NotebookNode, root: Path) -> Iterator[tuple[str, str]]:
    """Yield what of a cell goes on slides, and what the notes of each say."""
    if cell.cell_type == "code":
        if fold_of(cell) != SOLUTION:
            for output in pictures(cell):
                caption = notebook.cells[index + 1].source.partition("\n\n")[0]
                yield figure("png", output.data["image/png"], caption, caption), ""
        return
    for paragraph in cell.source.split("\n\n"):
        if found := DRAWING.match(paragraph):
            svg = base64.b64encode((root / f"images/{found[2]}.svg").read_bytes()).decode()
            caption = cell.source.partition(paragraph)[2].strip().partition("\n\n")[0]
            yield figure("svg+xml", svg, found[1], caption), ""
        elif EQUATION.search(paragraph):
            yield markdown.render(paragraph), ""
        elif REMEMBER.match(paragraph):
            text = REMEMBER.sub("", paragraph)
            yield f'<p class="kept">{inline(text[:1].upper() + text[1:])}</p>', ""
    if question := question_of(cell):
        yield (
            f'<p class="asked">{inline(question)}</p>',
            markdown.render(LINK.sub(r"\1", answer_of(notebook, index))),
        )


def figure(kind: str, data: str, words: str, caption: str) -> str:
    """A picture with its caption, where the text has one."""
    below = f"<p>{inline(caption.strip('*'))}</p>" if caption.startswith("*Figure") else ""
    alt = html.escape(" ".join(words.strip("*").split()))
    return f'<img src="data:image/{kind};base64,{"".join(data.split())}" alt="{alt}">{below}'


def inline(text: str) -> str:
    """A text of one paragraph as HTML, its links as plain words."""
    return markdown.renderInline(LINK.sub(r"\1", " ".join(text.split())))


def slide(head: str, body: str, note: str) -> str:
    """One slide with its notes."""
    return f'<section>{head}<div class="body">{body}</div><aside class="notes">{note}</aside></section>'


def write_slides(root: Path, target: Path) -> int:
    """Write the slides of all lessons; return how many there are."""
    found = [notebook for _, notebook in notebooks(root)]
    lessons = [list(slides_of(notebook, root)) for notebook in found]
    titles = [
        f'<li><a href="#/{number}">{inline(title_of(each))}</a></li>' for number, each in enumerate(found, 1)
    ]
    scripts = {
        name: (REVEAL / file).read_text(encoding="utf-8").replace("</script", "<\\/script")
        for name, file in (("reveal", "reveal.js"), ("notes", "plugin/notes.js"))
    }
    mathjax = Path(str(resources.files("mathjax"))) / "static/mathjax/es5/tex-svg.js"
    page = Template((ROOT / "tools/site/slides.html").read_text(encoding="utf-8")).substitute(
        style="\n".join((REVEAL / name).read_text("utf-8") for name in ("reset.css", "reveal.css")),
        mathjax=mathjax.read_text(encoding="utf-8").replace("</script", "<\\/script"),
        contents="".join(titles),
        slides="\n".join(f"<section>{''.join(lesson)}</section>" for lesson in lessons),
        **scripts,
    )
    target.parent.mkdir(exist_ok=True)
    target.write_text(page, encoding="utf-8")
    return sum(map(len, lessons))


if __name__ == "__main__":
    if not REVEAL.is_dir():
        sys.exit("reveal.js is missing: `make slides` fetches it with npm")
    target = ROOT / "site/slides.html"
    print(f"{target}: {write_slides(ROOT, target)} slides", file=sys.stderr)
