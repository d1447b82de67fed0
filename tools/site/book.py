"""The lessons as one PDF, printed from the built site by Chromium.

    python tools/site/book.py    site/ -> site/annotated.pdf

A cover and the contents; the lessons, without check cells and scaffolding; their solutions.
"""

import html
import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject
from tqdm import tqdm

from annotated import __version__

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
MARGIN = {"top": "18mm", "bottom": "18mm", "left": "16mm", "right": "16mm"}
NUMBERED = "html { counter-reset: page %d } @page { @bottom-center { content: counter(page) } }"
# Links that lead out of the book go to the site, if it has an address.
LINKS = """lessons => {
  const site = document.querySelector('link[rel=canonical]')
  for (const link of document.querySelectorAll('article a[href]')) {
    if (link.protocol !== 'file:' || lessons.includes(link.href.split('#')[0])) continue
    if (site) link.href = new URL(link.getAttribute('href'), site.href)
    else link.removeAttribute('href')
  }
}"""
# Take solutions and scaffolding out of a page, or leave the solutions alone, each below its exercise's name.
WITHOUT_SOLUTIONS = """() => document.querySelectorAll('.tag_solution, .tag_scaffold > details')
                         .forEach(folded => folded.remove())"""
ONLY_SOLUTIONS = """head => {
  const article = document.querySelector('article'), title = article.querySelector('h1'), kept = []
  for (const found of article.querySelectorAll('strong, .tag_solution')) {
    if (found.matches('.tag_solution')) kept.push(found)
    else if (/^Exercise \\d/.test(found.textContent)) {
      kept.push(document.createElement('h3'))
      kept.at(-1).textContent = found.textContent
    }
  }
  for (const bar of article.querySelectorAll('summary .collapsed')) bar.textContent = 'A solution'
  title.prepend(head)
  article.replaceChildren(title, ...kept)
}"""
# How each part of the book changes a lesson's page, what it puts before the title and behind the address.
EDITIONS = ((WITHOUT_SOLUTIONS, "", ""), (ONLY_SOLUTIONS, "Solutions: ", "#solutions"))


class Part(NamedTuple):
    """A lesson or its solutions, printed, and the address by which links know it."""

    title: str
    address: str
    pages: PdfReader


def print_book(site: Path, out: Path) -> None:
    """Print each lesson, then the solutions of each, then a cover and the contents, and bind them.

    Raises FileNotFoundError where there is no browser or no site.
    """
    lessons = [path.as_uri() for path in sorted((site / "notebooks").glob("[0-9][0-9]_*.html"))]
    if not lessons:
        raise FileNotFoundError(f"there is no site in {site}: make site")
    parts: list[Part] = []
    with chromium() as tab:
        for change, head, mark in EDITIONS:
            for address in tqdm(lessons, unit="lesson", disable=None):
                open_page(tab, address)
                tab.evaluate(LINKS, lessons)
                tab.evaluate(change, head)
                tab.add_style_tag(content=NUMBERED % sum(len(part.pages.pages) for part in parts))
                title = head + tab.title().partition(" — ")[0]
                parts.append(Part(title, address + mark, printed(tab)))
        solutions = parts[len(lessons)]._replace(title="Solutions")
        tab.set_content(front([*parts[: len(lessons)], solutions]))
        bind([Part("Contents", "contents:", printed(tab)), *parts], out)


@contextmanager
def chromium() -> Iterator[Page]:
    """A page of a browser that prints."""
    if BROWSER is None:
        raise FileNotFoundError(
            "no Chromium to print with: apt-get install chromium, or any Chrome on the PATH"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def open_page(tab: Page, address: str) -> None:
    """Load a page of the site with all its formulas and pictures."""
    tab.goto(address)
    tab.wait_for_function("() => !window.MathJax || MathJax.startup.promise.then(() => true)")
    tab.evaluate("document.querySelectorAll('img').forEach(img => { img.loading = 'eager' })")
    tab.wait_for_function("() => [...document.images].every(img => img.complete)")


def printed(tab: Page) -> PdfReader:
    """The tab's page on paper."""
    return PdfReader(io.BytesIO(tab.pdf(format="A4", margin=MARGIN, tagged=True)))


def front(parts: list[Part]) -> str:
    """The cover, and the contents with the number of each part's first page."""
    rows, number = [], 1
    for part in parts:
        rows.append(f'<li><a href="{part.address}">{html.escape(part.title)}<i></i>{number}</a></li>')
        number += len(part.pages.pages)
    picture = (ROOT / "images/card.svg").read_text(encoding="utf-8")
    page = Template((Path(__file__).parent / "book.html").read_text(encoding="utf-8"))
    return page.substitute(picture=picture, version=__version__, rows="\n".join(rows))


def bind(parts: list[Part], out: Path) -> None:
    """Put the parts together, a bookmark each; a link to a part, or into it, leads to its first page.

    Pages have their numbers from the second part on.
    """
    book, first = PdfWriter(), {}
    for part in parts:
        first[part.address] = len(book.pages)
        book.append(part.pages, outline_item=part.title)
    for page in book.pages:
        for annotation in (each.get_object() for each in page.annotations or []):
            address = annotation.get("/A", {}).get("/URI", "")
            target = first.get(address, first.get(address.partition("#")[0]))
            if target is not None:
                del annotation["/A"]
                place = [book.pages[target].indirect_reference, NameObject("/Fit")]
                annotation[NameObject("/Dest")] = ArrayObject(place)
    begin = len(parts[0].pages.pages)
    book.set_page_label(0, begin - 1, style="/r")
    book.set_page_label(begin, len(book.pages) - 1, style="/D", start=1)
    book.write(out)


if __name__ == "__main__":
    try:
        print_book(ROOT / "site", ROOT / "site" / "annotated.pdf")
    except FileNotFoundError as error:
        sys.exit(str(error))
