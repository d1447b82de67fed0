"""A real browser for the built site: Debian's Chromium, driven by Playwright."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from book import BROWSER

SITE = Path(__file__).parents[3] / "site"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window; skipped where there is none, fails where no site has been built."""
    if BROWSER is None:
        pytest.skip("no Chromium to read the site with: apt-get install chromium, or any Chrome on the PATH")
    if not (SITE / "index.html").exists():
        pytest.fail("there is no site yet: make site")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()
