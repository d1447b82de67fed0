"""The page of every number: all steps, by key, by finger and by mouse; everything follows a change."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE
from playwright.sync_api import Browser, Page
from test_pages import DESK, PHONE, RULES, Visit

LINK = (SITE / "steps.html").as_uri()
FOCUSED = "document.activeElement.getAttribute('aria-label')"
WIDER = """[document.documentElement, document.querySelector('.stage')]
           .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className || e.tagName)"""
SWIPE = """(from, to) => { const stage = document.querySelector('.stage')
  for (const [kind, x] of [['touchstart', from], ['touchend', to]]) {
    const touch = new Touch({ identifier: 1, target: stage, clientX: x, clientY: 300 })
    const touches = { touches: [touch], changedTouches: [touch] }
    stage.dispatchEvent(new TouchEvent(kind, { bubbles: true, ...touches })) } }"""


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    context = browser.new_context(viewport=DESK, color_scheme="light", locale="en-US", has_touch=True)
    visit = Visit(context.new_page(), "steps.html")
    visit.listen()
    visit.page.set_default_timeout(120_000)
    yield visit
    context.close()


def opened(visit: Visit, step: str = "words") -> Page:
    visit.page.goto("about:blank")
    visit.page.goto(f"{LINK}#{step}")
    visit.page.wait_for_selector(".stage")
    return visit.page


def steps(page: Page) -> Iterator[str]:
    """Go through all steps by key; each one's name in the address."""
    for _ in range(page.locator(".way button").count()):
        yield page.evaluate("location.hash.slice(1)")
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_everybody_can_read_every_step(visit: Visit, size: dict, scheme: str) -> None:
    visit.page.set_viewport_size(size)
    visit.page.emulate_media(color_scheme=scheme)
    page, seen = opened(visit), []
    for step in steps(page):
        seen.append(step)
        found = Axe().run(page, options=RULES).response["violations"]
        assert [f"{v['id']}: {n['html'][:160]}" for v in found for n in v["nodes"][:2]] == [], step
        assert page.evaluate(WIDER) == [], step
    assert len({*seen}) == len(seen) > 20
    assert visit.complaints == []
    visit.page.set_viewport_size(DESK)


def test_every_number_leads_back_by_key_and_by_mouse(visit: Visit) -> None:
    page = opened(visit, "query")
    page.locator(".cell.picked").focus()
    assert page.evaluate(FOCUSED).startswith("query of cat, number 1, head 2: ")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED).startswith("embedding + position of cat, number 4: ")
    page.get_by_role("button", name="Made in “Add the position”").click()
    assert page.evaluate("location.hash") == "#positions"
    page.locator(".trace .term").first.click()
    assert "embedding of cat, number 4" in page.locator(".trace").inner_text()
    page.locator(".trace .term").first.click()
    assert "The model learned it" in page.locator(".trace").inner_text()


def test_what_is_touched_shows_what_it_was_made_from(visit: Visit) -> None:
    page = opened(visit, "products")
    cell = page.locator(".looking .number .cell").nth(2)
    cell.click()
    terms = [text.strip("()") for text in page.locator(".trace .term").all_inner_texts()]
    assert sorted(terms) == sorted(page.locator(".cell.from").all_inner_texts())
    a, b, c, d = (float(text.replace("−", "-")) for text in terms)
    assert a * b + c * d == pytest.approx(float(cell.inner_text().replace("−", "-")), abs=0.02)


def test_a_finger_turns_over(visit: Visit) -> None:
    page = opened(visit, "scores")
    page.evaluate(f"({SWIPE})(300, 100)")
    page.wait_for_url("**#weights")
    page.evaluate(f"({SWIPE})(100, 300)")
    page.wait_for_url("**#scores")


def test_everything_follows_what_is_changed(visit: Visit) -> None:
    page = opened(visit, "loop")

    def german() -> str:
        return " ".join(page.locator(".german .chip").all_inner_texts())

    assert german() == "eine Katze rennt end"
    page.get_by_label("noun").select_option("dog")
    assert german() == "ein Hund rennt end"
    page.get_by_label("noun").select_option("cat")
    before = page.locator(".written .cell").all_inner_texts()
    for change in ("a", "runs", "the scale, √d_k", "the positions", "encoder, head 2"):
        page.get_by_label(change, exact=True).check()
        assert page.locator(".written .cell").all_inner_texts() != before, change
        page.get_by_role("button", name="Reset").click()
    page.get_by_label("cat", exact=True).check()
    assert german() == "ein Hund rennt end"
    assert "eine Katze rennt" in page.locator(".changed").inner_text()


def test_it_speaks_chinese_too(visit: Visit) -> None:
    page = opened(visit)
    english = page.locator("h2").inner_text()
    page.get_by_role("button", name="中文").click()
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.locator("h2").inner_text() != english
    page.goto(f"{LINK}?lang=zh#mean")
    assert page.locator("h1").inner_text() != "Every number of a Transformer"


def test_in_the_lesson_it_is_alive_in_its_frame(visit: Visit) -> None:
    visit.page.goto((SITE / "notebooks/00_start_here.html").as_uri())
    frame = visit.page.frame_locator("iframe[title='Every number']")
    frame.get_by_role("button", name="Next →").click()
    assert frame.locator("h2").inner_text() == "A vector for each word"
    heights = "f => [f.clientHeight, f.contentDocument.body.offsetHeight]"
    high, needed = visit.page.locator("iframe[title='Every number']").evaluate(heights)
    assert high >= needed
