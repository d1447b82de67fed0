"""The book of a site with two lessons: contents, numbers, links, and solutions at the end."""

from pathlib import Path

import pytest
from pypdf import PdfReader

import book

PAGE = """<title>{title} — annotated</title><style>h2 {{ break-before: page }}</style>
<article><h1>{title}</h1><p>To <a href="{other}#there">the other</a>, <a href="../more.html">more</a></p>
<h2>Exercises</h2><p><strong>Exercise 1 (easy).</strong> Add.</p>
<div class="tag_solution">the answer</div><div>the test</div></article>"""


@pytest.fixture
def pages(tmp_path: Path) -> PdfReader:
    if book.BROWSER is None:
        pytest.skip("no Chromium to print with: apt-get install chromium, or any Chrome on the PATH")
    (tmp_path / "notebooks").mkdir()
    for title, other in (("00_one", "01_two.html"), ("01_two", "00_one.html")):
        (tmp_path / f"notebooks/{title}.html").write_text(PAGE.format(title=title, other=other))
    book.print_book(tmp_path, tmp_path / "book.pdf")
    return PdfReader(tmp_path / "book.pdf")


def test_lessons_come_first_and_their_solutions_last(pages: PdfReader) -> None:
    texts = [page.extract_text() for page in pages.pages][2:]  # behind the cover and the contents
    # A page's text begins with the number at its foot.
    assert [text.splitlines()[:2] for text in texts] == [
        *(["1", "00_one"], ["2", "Exercises"], ["3", "01_two"], ["4", "Exercises"]),
        *(["5", "Solutions: 00_one"], ["6", "Solutions: 01_two"]),
    ]
    assert ["the test" in text for text in texts] == [False, True, False, True, False, False]
    assert ["the answer" in text for text in texts] == [False, False, False, False, True, True]


def test_contents_labels_and_links_are_those_of_the_whole(pages: PdfReader) -> None:
    def targets(index: int) -> list[int]:
        links = [link.get_object() for link in pages.pages[index].annotations]
        return [pages.get_page_number(link["/Dest"][0].get_object()) for link in links]

    contents = "".join(pages.pages[1].extract_text().split())
    assert "00_one101_two3Solutions5" in contents
    assert targets(1) == [2, 4, 6]
    assert targets(2) == [4]  # what is not in the book is no link
    assert targets(4) == [2]
    assert pages.page_labels == ["i", "ii", "1", "2", "3", "4", "5", "6"]
    titles = [item.title for item in pages.outline]
    assert titles == ["Contents", "00_one", "01_two", "Solutions: 00_one", "Solutions: 01_two"]
