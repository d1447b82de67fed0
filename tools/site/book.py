"""The lessons as one PDF, printed from the built site by Chromium.

    python tools/site/book.py    site/ -> site/annotated.pdf

Check cells are left out and solutions stay, as the site's style for print says.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from pypdf import PdfWriter
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
MARGIN = {"top": "16mm", "bottom": "16mm", "left": "14mm", "right": "14mm"}
FOOTER = '<div style="font-size: 8px; width: 100%; text-align: center"><span class="pageNumber"></span></div>'


def print_book(site: Path, out: Path) -> None:
    """Print each lesson's page and put them together, with a bookmark each.

    Raises FileNotFoundError where there is no browser or no site.
    """
    if BROWSER is None:
        raise FileNotFoundError(
            "no Chromium to print with: apt-get install chromium, or any Chrome on the PATH"
        )
    pages = sorted((site / "notebooks").glob("[0-9][0-9]_*.html"))
    if not pages:
        raise FileNotFoundError(f"there is no site in {site}: make site")
    book = PdfWriter()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = chromium.new_page()
        for path in tqdm(pages, unit="lesson", disable=None):
            tab.goto(path.as_uri())
            tab.emulate_media(media="print")
            tab.wait_for_function("() => !window.MathJax || MathJax.startup.promise.then(() => true)")
            tab.evaluate("document.querySelectorAll('img').forEach(img => { img.loading = 'eager' })")
            tab.wait_for_function("() => [...document.images].every(img => img.complete)")
            file = Path(folder) / f"{path.stem}.pdf"
            tab.pdf(
                path=file, format="A4", margin=MARGIN, display_header_footer=True,
                header_template="<span></span>", footer_template=FOOTER,
            )  # fmt: skip
            book.append(file, outline_item=tab.title().partition(" — ")[0])
        chromium.close()
    book.write(out)


if __name__ == "__main__":
    try:
        print_book(ROOT / "site", ROOT / "site" / "annotated.pdf")
    except FileNotFoundError as error:
        sys.exit(str(error))
