"""For programs that read: the Markdown of each notebook beside its page, and `llms.txt`, which lists them."""

from pathlib import Path

from nbformat import NotebookNode

from notebook_pages import ATTACHED
from sources import evidence, notebooks, title_of

HEAD = """\
# annotated

> "Attention Is All You Need" (Vaswani et al., 2017), explained in notebooks that run, with a small package.

Each page's Markdown has its text, its code and what the code printed.
"""


def write_markdown(root: Path, folder: Path) -> None:
    """Write `NAME.md` beside the page of each notebook, and `llms.txt` at the site's root."""
    extra = folder / "_extra"
    text = HEAD
    for title, found in (("Lessons", notebooks(root)), ("Evidence", evidence(root))):
        text += f"\n## {title}\n\n"
        for path, notebook in found:
            page = path.relative_to(root).with_suffix(".md")
            paragraphs = [part for cell in notebook.cells for part in parts(cell)]
            (extra / page).write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
            opening = " ".join(notebook.cells[0].source.split("\n\n")[1].replace("**", "").split())
            text += f"- [{title_of(notebook)}]({page}): {opening}\n"
    (extra / "llms.txt").write_text(text, encoding="utf-8")


def parts(cell: NotebookNode) -> list[str]:
    """Return the paragraphs that a cell becomes: its text, code and printed outputs; pictures stay links."""
    if cell.cell_type == "markdown":
        return [ATTACHED.sub(r"(../images/\1.svg)", cell.source)]
    outputs = [out for out in cell.outputs if out.output_type in ("stream", "execute_result")]
    printed = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in outputs]
    code = f"```python\n{cell.source}\n```"
    return [code, *(f"```\n{text.rstrip()}\n```" for text in printed if text.strip())]
