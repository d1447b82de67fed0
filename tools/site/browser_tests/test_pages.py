"""Every page of the built site, read in a real browser: `make site`, then `make test-site`.

Each page is loaded once, from the disk, as a reader would who was handed the folder.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE
from playwright.sync_api import Browser, Locator, Page

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
PAGES = ["api/index.html", "api/transformer.attention.html"]
for pattern in ("*.html", "notebooks/*.html", "notebooks/[a-z][a-z]/*.html"):
    PAGES += sorted(
        str(path.relative_to(SITE))
        for path in SITE.glob(pattern)
        if path.stem not in ("watch", "steps", "learning")
    )
OWN = ("file:", "data:", "blob:")
# What WCAG 2.1 asks for at level AA: contrast, alternative texts, names of buttons and fields.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "preload": False}
UNDRAWN = """[...document.querySelectorAll('.math')].filter(e => !e.querySelector('mjx-container'))
             .map(e => e.textContent)"""
# Where a menu or a slider stands, from 0, and the last place that it has.
PLACE = """e => e.options ? [e.selectedIndex, e.options.length - 1] : [e.value - e.min, e.max - e.min]"""
SETTLED = """() => [...document.querySelectorAll('.chart')].every(c => c.classList.contains('live'))
             && (!window.MathJax?.startup?.promise || document.querySelectorAll('mjx-container').length
                 >= document.querySelectorAll('.math').length)"""

# Blocks of code whose end is not to be seen, and lines of code that are wrapped.
CUT = """[...document.querySelectorAll('.bd-article pre')]
         .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
WRAPPED = """[...document.querySelectorAll('.cell_input pre')].flatMap(pre => {
  const lines = [...pre.querySelectorAll('.line')], one = Math.min(...lines.map(e => e.offsetHeight))
  return lines.filter(e => e.offsetHeight > 1.5 * one).map(e => e.textContent) })"""
# Words of code, such as flags, that begin in one line and end in the next.
BROKEN = """[...document.querySelectorAll('.bd-article :is(pre, code)')].flatMap(block => {
  const found = [], range = document.createRange()
  const texts = document.createTreeWalker(block, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/(?<!\\S)\\S{1,40}(?!\\S)/g)) {
    range.setStart(texts.currentNode, word.index)
    range.setEnd(texts.currentNode, word.index + word[0].length)
    const lines = new Set([...range.getClientRects()].map(r => r.top))
    if (word[0].includes('-') && lines.size > 1) found.push(word[0])
  }
  return found })"""
# Pictures that end outside of the window.
OUTSIDE = """[...document.querySelectorAll('.bd-article img')]
             .filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.src)"""
UNFOLD = """document.querySelectorAll('.bd-article details').forEach(e => { e.open = true })"""


@dataclass
class Visit:
    """A page that has been loaded, and what it said and asked for meanwhile."""

    page: Page
    name: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)


@pytest.fixture(scope="module", params=PAGES)
def visit(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Visit]:
    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    visit = Visit(context.new_page(), request.param)
    visit.listen()
    visit.page.set_default_timeout(120_000)
    visit.page.goto((SITE / request.param).as_uri())
    visit.page.wait_for_function(SETTLED)
    yield visit
    context.close()


def test_nothing_goes_wrong(visit: Visit) -> None:
    assert visit.complaints == []


def test_no_other_host_is_asked(visit: Visit) -> None:
    assert visit.requests
    assert [url for url in visit.requests if not url.startswith(OWN)] == []


def test_every_formula_is_drawn(visit: Visit) -> None:
    assert visit.page.evaluate(UNDRAWN) == []
    assert visit.page.locator("mjx-merror, .MathJax_Error").count() == 0


def test_every_chart_answers(visit: Visit) -> None:
    """Each slider and each menu, moved by a key and by the mouse, changes what is drawn."""
    for chart in visit.page.locator(".chart").all():
        for control in chart.locator("input[type=range], select").all():
            drawn = chart.locator("svg").first
            place, last = control.evaluate(PLACE)
            if last:
                menu = control.get_attribute("type") != "range"
                key = "ArrowUp" if menu == (place == last) else "ArrowDown"
                assert changes(drawn, lambda control=control, key=key: control.press(key))
                assert changes(drawn, lambda control=control: move_by_mouse(control))


def changes(drawn: Locator, act: Callable[[], None]) -> bool:
    """Whether what a chart shows is another after `act`, within two seconds."""
    before = drawn.evaluate("e => e.outerHTML")
    act()
    for _ in range(20):
        if drawn.evaluate("e => e.outerHTML") != before:
            return True
        drawn.page.wait_for_timeout(100)
    return False


def move_by_mouse(control: Locator) -> None:
    """Choose another option of a menu, or the other half of a slider."""
    place, last = control.evaluate(PLACE)
    if control.get_attribute("type") == "range":
        box, share = control.bounding_box(), 0.8 if place < last / 2 else 0.2
        control.click(position={"x": box["width"] * share, "y": box["height"] / 2})
    else:
        control.select_option(index=(place + 1) % (last + 1))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(visit: Visit, theme: str) -> None:
    visit.page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    found = Axe().run(visit.page, options=RULES).response["violations"]
    assert [f"{v['id']}: {n['html'][:160]}" for v in found for n in v["nodes"][:3]] == []


@pytest.mark.parametrize(("media", "theme"), [("screen", "light"), ("screen", "dark"), ("print", "dark")])
def test_a_drawing_has_the_colours_of_the_theme(visit: Visit, media: str, theme: str) -> None:
    """Its dark colors follow the color scheme of the page; on paper it is light."""
    visit.page.emulate_media(media=media)
    visit.page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    drawings = visit.page.locator(".bd-article img[src*='_images/']")
    schemes = drawings.evaluate_all("all => all.map(e => getComputedStyle(e).colorScheme)")
    assert set(schemes) <= {"light" if media == "print" else theme}
    visit.page.emulate_media(media="screen")


def test_no_code_is_cut(visit: Visit) -> None:
    """At a laptop's width no line of a notebook's code is wrapped either; a phone breaks lines at spaces."""
    visit.page.evaluate(UNFOLD)
    assert visit.page.evaluate(CUT) == []
    assert visit.page.evaluate(WRAPPED) == []
    visit.page.set_viewport_size(PHONE)
    assert visit.page.evaluate(CUT) == []
    assert visit.page.evaluate(BROKEN) == []
    visit.page.set_viewport_size(DESK)


def test_on_paper_there_are_solutions_and_no_menus(visit: Visit) -> None:
    visit.page.emulate_media(media="print")
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert visit.page.locator(".bd-article details:not([open])").count() == 0
    menus = visit.page.locator(".bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-area")
    assert not any(menu.is_visible() for menu in menus.all())
    assert visit.page.evaluate(CUT) == []
    visit.page.emulate_media(media="screen")


def test_a_shared_link_says_what_the_page_is(visit: Visit) -> None:
    if visit.name in ("search.html", "genindex.html", "py-modindex.html"):
        pytest.skip("Sphinx makes this page by itself")
    for said in ("meta[name=description]", "meta[property='og:title']", "meta[property='og:image']"):
        assert visit.page.locator(said).get_attribute("content")


def test_it_fits_a_phone(visit: Visit) -> None:
    visit.page.set_viewport_size(PHONE)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert visit.page.evaluate(OUTSIDE) == []
    visit.page.set_viewport_size(DESK)


def test_the_search_finds_without_a_server(browser: Browser) -> None:
    with browser.new_context() as context:
        visit = Visit(context.new_page(), "search.html")
        visit.listen()
        visit.page.goto(f"{(SITE / visit.name).as_uri()}?q=softmax")
        visit.page.wait_for_selector("#search-results li a[href*='02_attention']")
        visit.page.wait_for_load_state("networkidle")
        assert visit.complaints == []


def test_a_picture_can_be_opened_alone(browser: Browser) -> None:
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        page.goto((SITE / "notebooks/00_start_here.html").as_uri())
        page.locator(".bd-article img[src*='architecture']").click()
        page.wait_for_url("**/architecture.svg")
