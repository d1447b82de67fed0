"""The page in which a sentence goes through the model: every stop, by mouse and by keyboard."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE
from playwright.sync_api import Browser, Page
from test_pages import DESK, OWN, PHONE, RULES, Visit
from tiny_runs import TOY_TRAINING, few_sentences

from annotated import Translator, load_pretrained
from annotated.translation.cli.main import main
from annotated.translation.watch import watch

LINK = (SITE / "watch.html").as_uri()
SENTENCE = "A dog runs through the snow."
STOPS = """[...document.querySelectorAll('.figure-one a')].map(a => a.getAttribute('href').split('=')[1])"""
MOVING = "document.getAnimations().map(animation => animation.effect.getComputedTiming().endTime)"


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    if not (SITE / "watch.html").exists():
        pytest.skip("the site was built without a shipped model")
    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    visit = Visit(context.new_page(), "watch.html")
    visit.listen()
    visit.page.set_default_timeout(120_000)
    yield visit
    context.close()


@pytest.fixture
def page(visit: Visit) -> Page:
    """The page with a sentence and its translation; whoever comes after it finds it as new."""
    return opened(visit.page)


def opened(page: Page, **chosen: str) -> Page:
    settings = "&".join(f"{name}={value}" for name, value in {"s": SENTENCE, **chosen}.items())
    page.goto("about:blank")
    page.goto(f"{LINK}#{settings}")
    page.wait_for_selector(".german")
    return page


def wait_for(page: Page, text: str) -> None:
    page.wait_for_function("text => document.querySelector('.german')?.textContent === text", arg=text)


def test_it_translates_as_the_package_does(page: Page) -> None:
    translator = load_pretrained("multi30k-en-de")
    wait_for(page, translator(SENTENCE))
    sentence = "An old man is reading a newspaper on a bench."
    page.fill("#sentence", sentence)
    page.keyboard.press("Enter")
    wait_for(page, translator(sentence))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_stop_opens_and_fits_and_everybody_can_read_it(visit: Visit, language: str) -> None:
    """In both themes at both widths, at each stop: no rule of axe broken, nothing wider than the window.

    Nothing goes wrong on the way, and no other host is asked.
    """
    page = opened(visit.page)
    faults = []
    for stop in [*page.evaluate(STOPS), "encoder-projections", "cross-heads"]:
        opened(page, at=stop, lang=language)
        for theme, size in (("light", DESK), ("dark", PHONE)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                faults.append(f"{stop}: too wide for {size['width']}")
            for found in Axe().run(page, options=RULES).response["violations"]:
                shown = [node["html"][:120] for node in found["nodes"][:2]]
                faults += [f"{stop}, {theme}: {found['id']}: {html}" for html in shown]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    assert faults == visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(OWN)] == []


def test_the_memory_does_not_grow_with_every_sentence(page: Page) -> None:
    session = page.context.new_cdp_session(page)

    def held() -> int:
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"]

    sentences = [f"{who} {what}." for who in ("A man", "Two dogs") for what in ("runs", "jump", "sit")]
    sizes = []
    for _ in range(2):
        for sentence in sentences:
            page.fill("#sentence", sentence)
            page.keyboard.press("Enter")
            page.wait_for_function("s => location.hash.includes(new URLSearchParams({s}))", arg=sentence)
            page.wait_for_timeout(300)
        sizes.append(held())
    assert sizes[1] < 1.3 * sizes[0]
    assert sizes[1] < 100e6


def test_nothing_moves_for_whoever_wants_no_motion(page: Page) -> None:
    opened(page)
    assert page.evaluate(MOVING) == []
    page.emulate_media(reduced_motion="no-preference")
    assert len(page.evaluate(MOVING)) > 0
    page.emulate_media(reduced_motion="reduce")


def test_the_tour_goes_by_keyboard_from_the_first_stop_to_the_last(page: Page) -> None:
    opened(page, at="encoder-pieces")
    seen = [page.locator("h2").inner_text()]
    while page.locator("footer .next").count():
        page.locator("footer .next").press("Enter")
        page.wait_for_function("before => document.querySelector('h2').textContent !== before", arg=seen[-1])
        seen.append(page.locator("h2").inner_text())
    assert len(seen) == len(set(seen)) == 15


@pytest.mark.parametrize("how", ["box", "link"])
def test_a_stop_is_seen_from_its_top_however_far_down_it_is_opened(page: Page, how: str) -> None:
    opened(page, at="encoder-weights")
    heading = page.locator("h2")
    for stop in ("decoder-weights", "probabilities", "encoder-network", "encoder-pieces"):
        before = heading.inner_text()
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        if how == "box":
            page.locator(f".figure-one a[href='#at={stop}']").click()
        else:
            page.evaluate("stop => { location.hash = location.hash.replace(/at=[^&]*/, `at=${stop}`) }", stop)
        page.wait_for_function("before => document.querySelector('h2').textContent !== before", arg=before)
        page.wait_for_timeout(200)  # for the browser to move what it will
        line = page.locator(".now").bounding_box()
        assert line["y"] + line["height"] <= heading.bounding_box()["y"] < DESK["height"] / 2


def test_another_word_is_gone_on_from(page: Page) -> None:
    opened(page, at="probabilities", token="1,1")
    before = page.locator(".german").inner_text()
    button = page.locator(".probabilities button", has_text="Write").first
    word = button.locator("span").inner_text()
    button.click()
    page.wait_for_function("before => document.querySelector('.german').textContent !== before", arg=before)
    assert "because you chose it" in page.locator(".said").inner_text()
    page.locator("footer .next").click()
    assert "begun as you chose" in page.locator(".results caption").first.inner_text()
    told = page.locator(".changed")
    assert f"{word}”" in told.inner_text()
    told.get_by_role("button", name="Reset").click()
    wait_for(page, before)
    assert told.count() == 0


ROWS = """window.rows_ = new Set();
const write = () => document.querySelectorAll('.results')[1]?.querySelectorAll('tbody tr').forEach(row =>
  window.rows_.add([...row.querySelectorAll('td')].map(cell => cell.textContent.replace('−', '-')).join()));
new MutationObserver(write)
  .observe(document.body, { subtree: true, childList: true, characterData: true });"""
PENALTY = "document.querySelectorAll('.results')[1].querySelectorAll('td')[1].textContent"


def test_a_score_stands_with_the_penalty_of_its_own_search(page: Page) -> None:
    """Also while the search for another penalty is still going on."""
    opened(page, at="beam")
    page.evaluate(ROWS)
    slider = page.get_by_label("Length penalty")
    for key in ("Home", "End"):
        before = page.evaluate(PENALTY)
        slider.press(key)
        page.wait_for_function(f"before => {PENALTY} !== before", arg=before)
    rows = page.evaluate("[...window.rows_]")
    assert len(rows) > 1
    for total, divisor, score in (map(float, row.split(",")) for row in rows):
        assert score == pytest.approx(total / divisor, abs=0.02)


def test_whatever_is_changed_stays_in_sight_until_it_is_put_back(page: Page) -> None:
    """The translation too: at every stop, however far down."""
    changed = {"beam": "1", "alpha": "1", "without": "scale", "begin": "4"}
    for stop in ("encoder-pieces", "encoder-projections", "cross-heads", "beam"):
        opened(page, at=stop, **changed)
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        for told in (page.locator(".changed"), page.locator(".german")):
            box = told.bounding_box()
            assert 0 <= box["y"] < box["y"] + box["height"] < DESK["height"] / 4
    told = page.locator(".changed").inner_text()
    for change in ("a beam of 1", "α = 1.0", "without the division by √dₖ", "beginning with"):
        assert change in told
    page.get_by_role("button", name="Reset").click()
    wait_for(page, load_pretrained("multi30k-en-de")(SENTENCE))
    assert page.locator(".changed").count() == 0
    assert not {"beam", "alpha", "without", "begin"} & set(page.evaluate(NAMES))


NAMES = "[...new URLSearchParams(location.hash.slice(1)).keys()]"


def test_the_tours_end_leads_to_notebooks(page: Page) -> None:
    opened(page, at="break")
    links = page.locator(".known a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert all((SITE / link).exists() for link in links)
    assert len(set(links)) > 5


def test_without_the_mask_the_same_row_stays_at_hand(page: Page) -> None:
    opened(page, at="decoder-weights", s="A black dog chases a white dog on the bank of a river.")
    row = page.locator(".tokens [aria-pressed=true]").inner_text()
    page.get_by_label("Leave out the causal mask").check()
    page.wait_for_selector(".outcome span")
    assert page.locator(".tokens [aria-pressed=true]").inner_text() == row
    late = page.locator(".weighing tr.late")
    names = page.locator(".tokens button").all_inner_texts()
    assert late.count() == len(names) - names.index(row) - 1
    shares = late.locator(".bar").evaluate_all("e => e.map(bar => +bar.style.getPropertyValue('--share'))")
    assert f"hid from it, it now gives {100 * sum(shares):.0f}%" in page.locator(".said").inner_text()
    assert page.locator(".map td.late").count() == len(names) * (len(names) - 1) / 2


# Everything that the page shows, and whether it calls it old, each time that it changes.
HISTORY = """window.history_ = [];
new MutationObserver(() => window.history_.push([
  !!document.querySelector('.busy span') && !!document.querySelector('.see.computing'),
  document.querySelector('.outcome')?.textContent.includes('computing…') ?? false,
  document.querySelector('.moments').textContent])
).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true })"""


def test_old_numbers_are_told_to_be_old(page: Page) -> None:
    opened(page, at="encoder-norm1")
    old, whole = page.locator(".moments").inner_text(), page.locator(".german").inner_text()
    page.evaluate(HISTORY)
    page.get_by_label("Leave out all residual connections").check()
    page.wait_for_selector(".outcome span")
    assert page.locator(".busy span").count() == 0
    assert whole in page.locator(".broken").inner_text()
    assert whole != page.locator(".german").inner_text()
    assert page.locator(".moments").inner_text() != old
    seen = page.evaluate("window.history_")
    new = seen[-1][2]
    assert any(busy for busy, _, _ in seen)
    assert all(busy and told for busy, told, numbers in seen if numbers != new)


# Of the number that is shown by a cell: its text, and how far it is from the cell, and outside of the window.
BUBBLE = """e => { const b = e.getBoundingClientRect(), c = e.parentElement.getBoundingClientRect();
  return [e.textContent, c.top - b.bottom, b.left < 0 || b.right > innerWidth || b.top < 0] }"""


@pytest.fixture
def phone(visit: Visit) -> Iterator[Page]:
    """A phone's page, which a finger touches."""
    context = visit.page.context.browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.set_default_timeout(120_000)
    yield page
    context.close()


def test_a_tapped_number_stays_by_its_cell(phone: Page) -> None:
    page = opened(phone, at="encoder-embedding")
    for strip in (6, 2):
        page.locator(".strip").nth(strip).tap()
        page.wait_for_timeout(300)
        text, above, outside = page.locator(".bubble").evaluate(BUBBLE)
        assert 0 <= above < 20
        assert not outside
    [place, number] = text.removeprefix("number ").split(": ")
    page.locator("summary", has_text="as a table").tap()
    column = int(place.split(" of ")[0]) - 1
    assert page.locator(".numbers tr").nth(2).locator("td").nth(column).inner_text() == number
    page.locator("h2").tap()
    assert page.locator(".bubble").count() == 0


HIT = "#map a rect, main :is(button:not(.term), summary, input[type=range], .leave)"
SMALL = """targets => [...document.querySelectorAll(targets)].filter(e => e.checkVisibility())
  .map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
  .filter(([box]) => box.height < 23.9 || box.width < 23.9)
  .map(([box, html]) => [box.width, box.height, html])"""


def test_on_a_phone_a_finger_can_hit_everything(phone: Page) -> None:
    page = opened(phone)
    for stop in [*page.evaluate(STOPS), "encoder-projections", "cross-heads"]:
        opened(phone, at=stop)
        assert page.evaluate(SMALL, HIT) == []


def test_what_it_cannot_do_is_said(page: Page) -> None:
    page.fill("#sentence", "dog " * 60)
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.trouble').textContent.includes('at most 40')")
    page.fill("#sentence", "\U0001f600\U0001f600")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.said')?.textContent.includes('single bytes')")


def test_the_language_is_chosen_by_the_address_or_by_a_button_and_stays(page: Page) -> None:
    page.goto("about:blank")
    page.goto(f"{LINK}?lang=zh")
    page.get_by_role("button", name="翻译", exact=True).wait_for()
    question = page.locator("h2").inner_text()
    assert page.locator("html").get_attribute("lang") == "zh"
    page.get_by_role("button", name="English").click()
    page.get_by_role("button", name="Translate", exact=True).wait_for()
    page.wait_for_url(lambda address: "lang=en" in address.split("#")[1])
    page.reload()
    page.wait_for_selector(".german")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").inner_text() == "See inside"
    page.get_by_role("button", name="中文").click()
    page.wait_for_function("before => document.querySelector('h2').textContent === before", arg=question)
    assert page.title() != "See inside a Transformer"


def open_folder(page: Page, folder: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a folder").click()
    chooser.value.set_files(folder)


def test_a_folder_that_training_wrote_is_opened_and_one_that_does_not_fit_refused(
    page: Page,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe, run = tmp_path / "toy.toml", tmp_path / "<i>run<i>"
    recipe.write_text(TOY_TRAINING, encoding="utf-8")
    few = few_sentences()
    monkeypatch.setattr("annotated.translation.cli.train.load_corpus", lambda *_: few)
    longer = ["--threads=1", "--epochs=30", "--max-steps=150", "--metric-every=30"]
    assert main(["train", f"--config={recipe}", f"--out={run}", *longer]) == 0
    shipped, own = load_pretrained("multi30k-en-de")(SENTENCE), Translator.load(run)
    open_folder(page, run)
    wait_for(page, own(SENTENCE))
    assert run.name in page.locator(".own").inner_text()
    for stop in page.evaluate(STOPS):
        page.locator(f".figure-one a[href='#at={stop}']").click()
        page.wait_for_function("at => new URLSearchParams(location.hash.slice(1)).get('at') === at", arg=stop)
        assert page.locator(".shown").is_visible()

    broken = shutil.copytree(run, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:-1])
    open_folder(page, broken)
    page.wait_for_function("document.querySelector('.refused').textContent.includes('is damaged')")
    wait_for(page, own(SENTENCE))

    page.get_by_role("button", name="Back to the shipped model").click()
    wait_for(page, shipped)


def test_the_start_page_leads_into_it(page: Page) -> None:
    page.goto((SITE / "index.html").as_uri())
    page.locator(".own input").fill(SENTENCE)
    page.keyboard.press("Enter")
    wait_for(page, load_pretrained("multi30k-en-de")(SENTENCE))


def test_search_finds_what_only_the_notebooks_say(page: Page) -> None:
    page.goto((SITE / "search.html").as_uri() + "?q=softmax")
    page.wait_for_selector("#search-results li a")
    links = "links => links.map(a => a.getAttribute('href'))"
    found = page.locator("#search-results li a").evaluate_all(links)
    assert any("02_attention" in address for address in found)


def test_the_widget_shows_the_same_in_a_notebook(page: Page) -> None:
    """The frame that `watch` gives needs nothing from where it stands."""
    translator = load_pretrained("multi30k-en-de")
    page.set_content(watch(translator, SENTENCE).data)
    frame = page.frame_locator("iframe")
    assert frame.locator(".german").inner_text() == translator(SENTENCE)
    frame.locator("footer .next").click()
    assert "numbers" in frame.locator("h2").inner_text()
