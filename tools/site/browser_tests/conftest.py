"""A real browser for the built site: Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

SITE = Path(__file__).parents[3] / "site"
INSTALL = "apt-get install chromium (elsewhere: any Chromium or Chrome on the PATH)"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window; skipped where there is none, fails where no site has been built."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium to read the site with: {INSTALL}")
    if not (SITE / "index.html").exists():
        pytest.fail("there is no site yet: make site")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
