"""The page of a training: slider, film and moments; a touched number is followed through time."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE
from playwright.sync_api import Browser, Page, expect
from test_pages import DESK, PHONE, RULES, Visit

LINK = (SITE / "learning.html").as_uri()
WIDER = """[document.documentElement, document.querySelector('.stage')]
           .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className || e.tagName)"""


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    context = browser.new_context(viewport=DESK, color_scheme="light", locale="en-US")
    visit = Visit(context.new_page(), "learning.html")
    visit.listen()
    visit.page.set_default_timeout(120_000)
    yield visit
    context.close()


def opened(visit: Visit, search: str = "") -> Page:
    visit.page.goto("about:blank")
    visit.page.goto(f"{LINK}{search}")
    visit.page.wait_for_selector(".stage")
    return visit.page


def update(page: Page) -> int:
    return int(page.locator("[type=range]").input_value())


def written(page: Page) -> list[str]:
    return page.locator(".german .chip").all_inner_texts()


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_everybody_can_read_every_moment(visit: Visit, size: dict, scheme: str) -> None:
    visit.page.set_viewport_size(size)
    visit.page.emulate_media(color_scheme=scheme)
    page = opened(visit)
    for moment in [None, *page.locator(".moments button").all()]:
        if moment:
            moment.click()
        found = Axe().run(page, options=RULES).response["violations"]
        assert [f"{v['id']}: {n['html'][:160]}" for v in found for n in v["nodes"][:2]] == []
        assert page.evaluate(WIDER) == []
    assert visit.complaints == []
    visit.page.set_viewport_size(DESK)


def test_from_each_moment_on_what_it_says_is_so_and_not_before(visit: Visit) -> None:
    page = opened(visit)
    first = page.locator(".curve").nth(1).locator(".cell")
    for name, holds in {
        "“eine” beats “ein”": lambda: float(first.first.inner_text()) > float(first.last.inner_text()),
        "This sentence is right": lambda: written(page) == ["eine", "Katze", "rennt", "end"],
        "All sentences are right": lambda: page.locator(".all", has_text="✗").count() == 0,
    }.items():
        page.locator(".moments button", has_text=name).click()
        assert holds(), name
        assert page.locator("h2").inner_text() == name
        page.keyboard.press("ArrowLeft")
        assert not holds(), name


def test_keys_and_the_film_move_it(visit: Visit) -> None:
    page = opened(visit)
    page.keyboard.press("ArrowRight")
    assert update(page) == 1
    page.locator("[type=range]").press("End")
    assert written(page) == ["eine", "Katze", "rennt", "end"]
    page.get_by_role("button", name="Play").press("Enter")  # from the beginning
    expect(page.locator("h2")).to_have_text("The first word is still open")
    page.get_by_role("button", name="Pause").press("Enter")
    assert 0 < update(page) < 200


def test_a_touched_number_is_followed(visit: Visit) -> None:
    page = opened(visit)
    page.locator(".vector .cell").nth(4).click()  # of the table, as it is now
    page.locator("h1").click()  # among cells, the arrows lead from one to the next
    trace, seen = page.locator(".trace"), set()
    for _ in range(3):
        assert "table of cat, number 1" in trace.inner_text()
        value, following = trace.locator(".formula").inner_text(), trace.locator(".note").inner_text()
        page.keyboard.press("ArrowRight")
        assert following.endswith(f"makes it {trace.locator('.formula').inner_text()}.")
        seen.add(value)
    assert len(seen) > 1


def test_another_sentence_has_its_own_curves(visit: Visit) -> None:
    page = opened(visit)
    curve = page.locator(".curve svg").nth(1)
    before = curve.get_attribute("aria-label")
    page.locator(".all button", has_text="the dog sleeps").click()
    assert page.get_by_label("noun").input_value() == "dog"
    assert curve.get_attribute("aria-label") != before
    page.locator("[type=range]").press("End")
    assert written(page) == ["der", "Hund", "schläft", "end"]


def test_it_speaks_chinese_too(visit: Visit) -> None:
    page = opened(visit, "?lang=zh")
    assert page.locator("html").get_attribute("lang") == "zh"
    chinese = page.locator("h2").inner_text()
    page.get_by_role("button", name="English").click()
    assert page.locator("h2").inner_text() not in (chinese, "")


def test_in_the_lesson_it_is_alive_in_its_frame(visit: Visit) -> None:
    visit.page.goto((SITE / "notebooks/00_start_here.html").as_uri())
    frame = visit.page.frame_locator("iframe[title='Learning']")
    frame.locator(".moments button").last.click()
    assert frame.locator("h2").inner_text() == "All sentences are right"
