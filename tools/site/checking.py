"""What a built site must be: every link leads somewhere in it, and no page asks another host for anything."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself. A link that the reader may click on, `<a href>`, may lead anywhere.
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
LINKS = FETCHED | {("a", "href")}


class Page(HTMLParser):
    """The links of one page, as (line, tag, address), and the names that a link may point to."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[tuple[int, str, str]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("rel", "canonical") in attrs:  # where the page is from afar: no browser fetches that
            return
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.names.add(value)
            if (tag, name) in LINKS and value:
                self.links.append((self.getpos()[0], tag, value))


def check_site(folder: Path) -> list[str]:
    """Every fault of the pages below `folder`, a line each, by page."""
    paths = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    if not pages:
        return [f"{folder} holds no page"]
    found = [(path, *each) for path, page in pages.items() for each in check_page(path, page, pages)]
    return [f"{path.relative_to(folder)}, line {line}: {fault}" for path, line, fault in found]


def check_page(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[tuple[int, str]]:
    """The links of one page that lead nowhere, or fetch from another host."""
    for line, tag, address in page.links:
        parts = urlsplit(address)
        if parts.scheme in ("data", "mailto", "javascript"):
            continue
        if parts.scheme or parts.netloc:
            if tag != "a":
                yield line, f"<{tag}> fetches {address}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            yield line, f"there is no {address}"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
            yield line, f"{parts.path or 'this page'} has no #{parts.fragment}"
