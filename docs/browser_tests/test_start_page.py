"""The start page's translations, by mouse and by keyboard, and the search."""

import os
from collections.abc import Iterator

import pytest

from annotated import load_pretrained
from annotated.data import multi30k
from conftest import SITE

BARS = "[...document.querySelectorAll('.bar')].map(e => Number(e.style.getPropertyValue('--weight')))"


@pytest.fixture
def page(browser: "Browser") -> Iterator["Page"]:  # noqa: F821
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto((SITE / "index.html").as_uri())
    if not page.locator(".looking").count():
        pytest.skip("the site was built without a shipped model")
    yield page
    page.close()


def test_the_weights_of_every_token_add_up(page: "Page") -> None:  # noqa: F821
    for button in page.locator(".written button").all():
        button.hover()
        assert sum(page.evaluate(BARS)) == pytest.approx(1, abs=0.05)


def test_pointing_at_a_token_shows_its_weights(page: "Page") -> None:  # noqa: F821
    page.locator(".written button").nth(0).hover()
    first = page.evaluate(BARS)
    page.locator(".written button").nth(3).hover()
    assert page.evaluate(BARS) != first


def test_the_keyboard_goes_from_token_to_token_and_through_the_menus(page: "Page") -> None:  # noqa: F821
    page.locator(".written button").nth(0).focus()
    first = page.locator(".said").inner_text()
    page.keyboard.press("Tab")
    second = page.locator(".said").inner_text()
    assert second != first
    page.locator(".looking select").first.press("ArrowUp")
    assert page.locator(".said").inner_text() != second
    assert page.evaluate("document.activeElement.tagName") == "SELECT"


def test_choosing_a_sentence_shows_that_sentence(page: "Page") -> None:  # noqa: F821
    row = page.locator(".sentences tbody tr").nth(4)
    row.locator("button").click()
    written = "".join(page.locator(".written button").all_inner_texts()).removesuffix("</s>")
    assert written == row.locator("td").nth(1).inner_text().replace(" ", "")


def test_search_finds_what_only_the_notebooks_say(page: "Page") -> None:  # noqa: F821
    page.goto((SITE / "search.html").as_uri() + "?q=softmax")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").evaluate_all(
        "links => links.map(a => a.getAttribute('href'))"
    )
    assert any("02_attention" in address for address in found)


def test_a_sentence_of_ones_own_is_translated_in_the_page(page: "Page") -> None:  # noqa: F821
    """The model in the page and the one that built the page agree; so do the places where they look."""
    row = page.locator(".sentences tbody tr").nth(3)
    row.locator("button").click()
    page.locator(".written button").nth(2).hover()
    seen = page.evaluate(BARS)
    page.locator(".own input").fill(row.locator("button").inner_text())
    page.locator(".own input").press("Enter")
    said = "text => document.querySelector('.own output').textContent === text"
    page.wait_for_function(said, arg=row.locator("td").nth(1).inner_text())
    page.locator(".written button").nth(2).hover()
    assert page.evaluate(BARS) == pytest.approx(seen, abs=0.03)


def test_the_page_translates_as_the_package_does(page: "Page") -> None:  # noqa: F821
    """Two hundred sentences of a test set, with the page's half-precision weights on both sides."""
    folder = os.environ.get("ANNOTATED_DATA")
    if not folder:
        pytest.skip("the corpus multi30k: ANNOTATED_DATA is not set")
    strange = ["", "  Two   dogs ", "A \u2581 \U0001f600 \ue000e"]
    sentences = [*multi30k("en-de")["test_2016_flickr"].src[:200], *strange]
    translator = load_pretrained("multi30k-en-de")
    translator.model.half().float()
    for name in ("translator.js", "model.js"):
        page.add_script_tag(path=SITE / "_static" / name)
    run = (
        "const t = new PageTranslator(window.model); return lines.map(line => t.translate(line).translation)"
    )
    found = page.evaluate(f"lines => {{ {run} }}", sentences)
    assert found == translator.translate(sentences)
