"""The page in which a sentence goes through the model: every stop, by mouse and by keyboard."""

import time
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE
from test_pages import DESK, OWN, PHONE, RULES, Visit

from annotated import load_pretrained
from annotated.inside import watch
from start_page import TRIES

LINK = (SITE / "watch.html").as_uri()
SENTENCE = "A dog runs through the snow."
STOPS = """[...document.querySelectorAll('.figure-one a')].map(a => a.getAttribute('href').split('=')[1])"""
MOVING = "document.getAnimations().map(animation => animation.effect.getComputedTiming().endTime)"
BUSY = 600  # milliseconds without a break: 200 on an idle laptop, and three times that for one which is not
LONG = """window.long = [];
new PerformanceObserver(list => window.long.push(...list.getEntries().map(e => e.duration)))
  .observe({ entryTypes: ['longtask'] })"""


@pytest.fixture(scope="module")
def visit(browser: "Browser") -> Iterator[Visit]:  # noqa: F821
    if not (SITE / "watch.html").exists():
        pytest.skip("the site was built without a shipped model")
    context = browser.new_context(viewport=DESK, color_scheme="light", reduced_motion="reduce")
    visit = Visit(context.new_page(), "watch.html")
    visit.listen()
    visit.page.set_default_timeout(120_000)
    visit.page.add_init_script(LONG)
    yield visit
    context.close()


@pytest.fixture
def page(visit: Visit) -> "Page":  # noqa: F821
    """The page with a sentence and its translation; whoever comes after it finds it as new."""
    return opened(visit.page)


def opened(page: "Page", **chosen: str) -> "Page":  # noqa: F821
    settings = "&".join(f"{name}={value}" for name, value in {"s": SENTENCE, **chosen}.items())
    page.goto("about:blank")
    page.goto(f"{LINK}#{settings}")
    page.wait_for_selector(".german")
    return page


def wait_for(page: "Page", text: str) -> None:  # noqa: F821
    page.wait_for_function("text => document.querySelector('.german')?.textContent === text", arg=text)


def test_it_translates_as_the_package_does(page: "Page") -> None:  # noqa: F821
    translator = load_pretrained("multi30k-en-de")
    wait_for(page, translator(SENTENCE))
    sentence = "An old man is reading a newspaper on a bench."
    page.fill("#sentence", sentence)
    page.keyboard.press("Enter")
    wait_for(page, translator(sentence))


def test_every_stop_opens_and_fits_and_everybody_can_read_it(visit: Visit) -> None:
    """In both themes at both widths, at each stop: no rule of axe broken, nothing wider than the window."""
    page = opened(visit.page)
    faults = []
    for stop in [*page.evaluate(STOPS), "encoder-projections", "cross-heads"]:
        opened(page, at=stop)
        for theme, size in (("light", DESK), ("dark", PHONE)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                faults.append(f"{stop}: too wide for {size['width']}")
            for found in Axe().run(page, options=RULES).response["violations"]:
                faults += [
                    f"{stop}, {theme}: {found['id']}: {node['html'][:120]}" for node in found["nodes"][:2]
                ]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    assert faults == []


def test_nothing_goes_wrong_and_no_other_host_is_asked(visit: Visit) -> None:
    page = opened(visit.page)
    for stop in page.evaluate(STOPS):
        opened(page, at=stop)
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(OWN)] == []


def test_no_task_keeps_the_page_from_answering(visit: Visit) -> None:
    """The model computes in a worker: while it does, a click is answered."""
    page = opened(visit.page, beam="6")
    assert [task for task in page.evaluate("window.long") if task > BUSY] == []


def test_the_memory_does_not_grow_with_every_sentence(page: "Page") -> None:  # noqa: F821
    session = page.context.new_cdp_session(page)

    def held() -> int:
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"]

    sentences = [
        f"{who} {what}." for who in ("A man", "Two dogs") for what in ("runs", "jump", "are sitting")
    ]
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


def test_the_first_view_comes_soon(page: "Page") -> None:  # noqa: F821
    """Within two seconds on an idle laptop, and three times that on one which is not."""
    begun = time.monotonic()
    opened(page)
    assert time.monotonic() - begun < 6


def test_nothing_moves_for_whoever_wants_no_motion(page: "Page") -> None:  # noqa: F821
    opened(page)
    assert page.evaluate(MOVING) == []
    page.emulate_media(reduced_motion="no-preference")
    assert len(page.evaluate(MOVING)) > 0
    page.emulate_media(reduced_motion="reduce")


def test_what_moves_comes_to_rest_and_moves_again_at_the_next_stop(page: "Page") -> None:  # noqa: F821
    """A page that nobody touches must not keep a processor busy."""
    page.emulate_media(reduced_motion="no-preference")
    opened(page)
    assert 0 < max(page.evaluate(MOVING)) < 10_000
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    assert page.evaluate(MOVING) == []
    page.locator("footer .next").click()
    page.wait_for_function(f"{MOVING}.length > 0")
    page.emulate_media(reduced_motion="reduce")


def test_the_script_is_small(page: "Page") -> None:  # noqa: F821
    assert (SITE / "_static/watch.js").stat().st_size < 200_000


def test_the_weights_of_a_token_sum_to_one(page: "Page") -> None:  # noqa: F821
    for kind in ("encoder", "decoder", "cross"):
        opened(page, at=f"{kind}-weights")
        shares = "e => e.map(bar => Number(bar.style.getPropertyValue('--share')))"
        assert sum(page.locator(".weighing .bar").evaluate_all(shares)) == pytest.approx(1, abs=1e-4)


def test_the_tour_goes_by_keyboard_from_the_first_stop_to_the_last(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-pieces")
    seen = [page.locator("h2").inner_text()]
    while page.locator("footer .next").count():
        page.locator("footer .next").press("Enter")
        page.wait_for_function("before => document.querySelector('h2').textContent !== before", arg=seen[-1])
        seen.append(page.locator("h2").inner_text())
    assert len(seen) == len(set(seen)) == 15


@pytest.mark.parametrize("how", ["box", "link"])
def test_a_stop_is_seen_from_its_top_however_far_down_it_is_opened(page: "Page", how: str) -> None:  # noqa: F821
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


def test_a_token_and_a_head_are_chosen_by_keyboard(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-weights")
    said = page.locator(".said").inner_text()
    page.locator(".tokens button").nth(1).press("Enter")
    assert page.locator(".said").inner_text() != said
    said = page.locator(".said").inner_text()
    page.get_by_role("button", name="Head 1").first.press("Enter")
    assert page.locator(".said").inner_text() != said


def test_a_link_brings_back_what_was_chosen(page: "Page") -> None:  # noqa: F821
    opened(page, at="cross-heads", layer="3", head="2", beam="2")
    address, shown = page.evaluate("location.href"), page.locator("main").inner_text()
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".german")
    assert page.locator("main").inner_text() == shown


def test_another_word_is_gone_on_from(page: "Page") -> None:  # noqa: F821
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


def test_a_score_stands_with_the_penalty_of_its_own_search(page: "Page") -> None:  # noqa: F821
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


def test_translations_that_read_alike_are_shown_in_their_pieces(page: "Page") -> None:  # noqa: F821
    opened(page, at="probabilities", s="A black dog chases a white dog on the bank of a river.")
    before = page.locator(".german").inner_text()
    page.locator(".probabilities button", has_text="Write").first.click()
    page.wait_for_function("before => document.querySelector('.german').textContent !== before", arg=before)
    page.locator("footer .next").click()
    rows = page.locator(".results").nth(1).locator("tbody th").all_inner_texts()
    texts = [row.split("\n")[0] for row in rows]
    for text, row in zip(texts, rows, strict=True):
        assert ("cut into other pieces" in row) == (row != text) == (texts.count(text) > 1)
    assert len(set(rows)) == len(rows)


def test_more_translations_than_the_beam_is_wide_are_explained(page: "Page") -> None:  # noqa: F821
    for beam in (1, 4):
        opened(page, at="beam", s=TRIES["alpha"], alpha="1", beam=str(beam))
        ended = page.locator(".results").nth(1).locator("tbody tr").count()
        assert (f"More than {beam} have ended" in page.locator(".shown").inner_text()) == (ended > beam)


def test_a_sentence_is_offered_in_which_the_length_penalty_decides(page: "Page") -> None:  # noqa: F821
    opened(page, at="beam")
    page.get_by_role("button", name=TRIES["alpha"]).click()
    translator = load_pretrained("multi30k-en-de")
    for alpha, keys in ((1.0, []), (0.6, ["ArrowLeft"] * 4)):
        for key in keys:
            page.get_by_label("Length penalty").press(key)
        [[best]] = translator.search([TRIES["alpha"]], beam=4, alpha=alpha)
        wait_for(page, translator.tgt_tokenizer.decode(list(best.tokens)))
        assert f"α = {alpha:.1f}" in page.locator(".results caption").nth(1).inner_text()


def test_a_sentence_is_offered_that_needs_what_is_left_out(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-heads", layer="2", head="3")
    whole = page.locator(".german").inner_text()
    page.get_by_label("Silence head 3").check()
    page.wait_for_selector(".outcome span")
    assert page.locator(".german").inner_text() == whole
    page.locator(".try button").click()
    page.wait_for_function("before => document.querySelector('.german').textContent !== before", arg=whole)
    page.wait_for_selector(".outcome span")
    before, after = page.locator(".outcome dd").all_inner_texts()
    assert before != after
    assert "the same words" not in after
    assert page.locator(".try button").count() == 0


def test_a_sentence_is_offered_whose_words_are_split(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-pieces")
    assert "each word is a single piece" in page.locator("main").inner_text()
    page.locator(".try button").click()
    page.wait_for_function("document.querySelector('main').innerText.includes('Put together from several')")
    assert "·" in page.locator("main b").last.inner_text()


def test_a_dot_is_explained_where_there_is_one(page: "Page") -> None:  # noqa: F821
    for stop, names in (("encoder-pieces", ".pieces .token"), ("probabilities", ".probabilities tbody th")):
        for sentence in (SENTENCE, TRIES["pieces"]):
            opened(page, at=stop, s=sentence)
            dots = any(name.startswith("·") for name in page.locator(names).all_inner_texts())
            assert ("A dot joins" in page.locator(".shown").inner_text()) == dots


def test_a_temperature_for_show_changes_no_word_of_what_the_model_did(page: "Page") -> None:  # noqa: F821
    opened(page, at="probabilities")
    said = page.locator(".said").inner_text()
    page.get_by_label("Temperature").press("End")
    page.wait_for_function("document.querySelector('.probabilities caption').textContent.includes('3.0')")
    assert page.locator(".said").inner_text() == said
    assert "temperature of 3.0" in page.locator(".changed").inner_text()
    page.locator("footer .next").click()
    page.wait_for_function("document.querySelector('.where').textContent.includes('Beam')")
    assert page.locator(".changed").count() == 0


def test_a_part_left_out_is_told_and_put_back(page: "Page") -> None:  # noqa: F821
    opened(page, at="decoder-norm1")
    whole = page.locator(".german").inner_text()
    page.get_by_label("Leave out all residual connections").check()
    page.wait_for_selector(".broken")
    assert whole in page.locator(".broken").inner_text()
    page.wait_for_function("whole => document.querySelector('.german').textContent !== whole", arg=whole)
    page.get_by_role("button", name="Reset").click()
    wait_for(page, whole)
    assert page.locator(".broken").count() == 0


def test_whatever_is_changed_stays_in_sight_until_it_is_put_back(page: "Page") -> None:  # noqa: F821
    """The translation too: at every stop, however far down."""
    changed = {"beam": "1", "alpha": "1", "without": "scale", "begin": "4"}
    for stop in ("encoder-pieces", "encoder-projections", "cross-heads", "beam"):
        opened(page, at=stop, **changed)
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        for told in (page.locator(".changed"), page.locator(".german")):
            top, bottom = told.evaluate(
                "e => [e.getBoundingClientRect().top, e.getBoundingClientRect().bottom]"
            )
            assert top >= 0
            assert bottom < DESK["height"] / 4
    told = page.locator(".changed").inner_text()
    for change in ("a beam of 1", "α = 1.0", "without the division by √dₖ", "beginning with"):
        assert change in told
    page.get_by_role("button", name="Reset").click()
    wait_for(page, load_pretrained("multi30k-en-de")(SENTENCE))
    assert page.locator(".changed").count() == 0
    assert not {"beam", "alpha", "without", "begin"} & set(page.evaluate(NAMES))


NAMES = "[...new URLSearchParams(location.hash.slice(1)).keys()]"
LISTS = ".tokens, .weighing tbody, .probabilities tbody, .strips:has(button)"
ALIKE = """lists => [...document.querySelectorAll(lists)]
  .map(list => [...list.querySelectorAll('.token, .probabilities th')].map(one => one.textContent))
  .filter(names => new Set(names).size < names.length)"""


def test_no_two_rows_of_a_list_look_alike(page: "Page") -> None:  # noqa: F821
    sentence = "A little girl in a red dress is feeding two white ducks near a pond."
    for stop in ("encoder-embedding", "encoder-weights", "decoder-weights", "cross-heads", "encoder-memory"):
        opened(page, at=stop, s=sentence)
        assert page.evaluate(ALIKE, LISTS) == []
    opened(page, at="probabilities", s=sentence)
    for position in page.locator(".tokens button").all():
        position.click()
        assert page.evaluate(ALIKE, LISTS) == []


def test_beside_the_tour_one_click_leads_back(page: "Page") -> None:  # noqa: F821
    opened(page, at="cross-weights")
    before = page.locator("h2").inner_text()
    following = page.locator("footer .next").inner_text()
    page.get_by_role("button", name="heads", exact=True).click()
    assert "Beside stop 12" in page.locator(".where").inner_text()
    assert page.locator("footer .next").inner_text() == following
    page.locator("footer .previous").click()
    assert page.locator("h2").inner_text() == before


def test_the_tours_end_leads_to_notebooks(page: "Page") -> None:  # noqa: F821
    opened(page, at="break")
    links = page.locator(".known a").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert all((SITE / link).exists() for link in links)
    assert len(set(links)) > 5


def test_a_decoders_position_is_called_by_what_it_reads_and_writes(page: "Page") -> None:  # noqa: F821
    """With what it reads alone, attention would seem to be one word late."""
    opened(page, at="decoder-pieces")
    cells = page.locator(".shifted td[lang]").all_inner_texts()
    names = [f"{read} → {written}" for read, written in zip(cells[::2], cells[1::2], strict=True)]
    for stop in ("cross-weights", "decoder-weights"):
        opened(page, at=stop)
        assert page.locator(".tokens button").all_inner_texts() == names
        assert page.locator(".map tbody th").all_inner_texts() == names


def test_cross_attention_opens_on_its_last_layer(page: "Page") -> None:  # noqa: F821
    """A layer before it looks at other words; whoever chose one, by hand or by a link, stays there."""

    def layer(stop: str, **chosen: str) -> str:
        opened(page, at=stop, **chosen)
        return page.locator("[aria-label=Layer] [aria-pressed=true]").inner_text()

    assert layer("decoder-weights") == "2"
    page.locator("footer .next").click()
    assert page.locator(".said").inner_text().startswith("In layer 4,")
    assert layer("cross-weights", layer="2") == "2"
    page.get_by_role("button", name="Layer 3").click()
    page.get_by_role("button", name="heads", exact=True).click()
    assert page.locator("[aria-label=Layer] [aria-pressed=true]").inner_text() == "3"


def test_the_last_layers_mean_is_told_in_whatever_layer(page: "Page") -> None:  # noqa: F821
    opened(page, at="cross-weights", layer="2")
    written = page.locator(".tokens [aria-pressed=true]").inner_text().split(" → ")[1]
    told = page.locator(".last").inner_text()
    assert f"In layer 4, on average over its 4 heads, the position that writes {written} gives" in told
    shares: dict[str, float] = {}
    for head in range(1, 5):
        opened(page, at="cross-weights", layer="4", head=str(head))
        for row in page.locator(".weighing tbody tr").all():
            share = row.locator(".bar").evaluate("e => Number(e.style.getPropertyValue('--share'))")
            key = row.locator("button").inner_text()
            shares[key] = shares.get(key, 0) + share / 4
    first = max(shares, key=shares.__getitem__)
    assert f"gives {100 * shares[first]:.0f}% to {first} and" in told


def test_a_sentence_begins_at_a_word(page: "Page") -> None:  # noqa: F821
    """Whatever place was chosen in the sentence before."""
    opened(page, at="encoder-weights", token="8,8")
    assert page.locator(".tokens [aria-pressed=true]").inner_text() == "‹end›"
    page.fill("#sentence", "Two girls are eating in the park.")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.tokens [aria-pressed=true]').textContent === 'eating'")


def test_the_same_words_are_told_with_what_the_model_has_lost(page: "Page") -> None:  # noqa: F821
    """By the numbers that the line below the translation tells."""

    def sure() -> str:
        return page.locator(".sure").inner_text().split("each piece ")[1].split("%")[0] + "%"

    opened(page, at="encoder-weights")
    whole = page.locator(".german").inner_text()
    before = sure()
    page.get_by_label("Leave out the division").check()
    page.wait_for_selector(".outcome span")
    assert page.locator(".german").inner_text() == whole
    after = sure()
    told = f"the same words, but less sure: {before} → {after}"
    assert float(after[:-1]) < float(before[:-1])
    assert told in page.locator(".outcome").inner_text()
    assert told in page.locator(".broken").inner_text()


def test_a_network_that_is_left_out_would_fire(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-network")
    page.get_by_label("Leave out the feed-forward network").check()
    page.wait_for_selector(".outcome span")
    assert "would fire, but the network is left out" in page.locator(".said").inner_text()
    page.get_by_label("Leave out all feed-forward networks").check()
    page.wait_for_function("document.querySelectorAll('.outcome span').length === 2")
    bars = page.locator(".unit .bar")
    shares = bars.evaluate_all("e => e.map(bar => Number(bar.style.getPropertyValue('--share')))")
    assert bars.count() == 0 or max(shares) == 1


def test_a_network_is_told_to_change_hardly_what_it_leaves_alike(page: "Page") -> None:  # noqa: F821
    seen = set()
    for layer in "1234":
        opened(page, at="encoder-network", layer=layer)
        for token in page.locator(".tokens button").all():
            token.click()
            told = page.locator(".shown p", has_text="of x and the sum is").inner_text()
            alike = "is 1.00:" in told
            assert ("hardly changes" in told) == alike
            seen.add(alike)
    assert seen == {True, False}


def test_without_the_mask_the_same_row_stays_at_hand(page: "Page") -> None:  # noqa: F821
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


def test_old_numbers_are_told_to_be_old(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-norm1")
    old = page.locator(".moments").inner_text()
    page.evaluate(HISTORY)
    page.get_by_label("Leave out all residual connections").check()
    page.wait_for_selector(".outcome span")
    assert page.locator(".busy span").count() == 0
    assert page.locator(".moments").inner_text() != old
    seen = page.evaluate("window.history_")
    new = seen[-1][2]
    assert any(busy for busy, _, _ in seen)
    assert all(busy and told for busy, told, numbers in seen if numbers != new)


OVER = """new Promise(found => new MutationObserver(() => {
  const told = document.querySelector('.busy span')?.getBoundingClientRect();
  const range = document.createRange();
  range.selectNodeContents(document.querySelector('.now .german'));
  const over = line => line.right > told.left && line.bottom > told.top && line.top < told.bottom;
  if (told) found([told.width > 0, [...range.getClientRects()].some(over)]);
}).observe(document.querySelector('.now'), { childList: true, subtree: true }))"""


@pytest.mark.parametrize("width", [PHONE["width"], 700, DESK["width"]])
def test_that_it_computes_is_not_told_over_the_translation(visit: Visit, width: int) -> None:
    page = opened(
        visit.page, at="beam", s="A man in a red shirt is climbing up a very steep rock by the sea."
    )
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(f"window.over = {OVER}; 0")
    page.get_by_label("Length penalty").press("End")
    told, over = page.evaluate("window.over")
    page.set_viewport_size(DESK)
    assert told
    assert not over


# Of the number that is shown by a cell: its text, and how far it is from the cell, and outside of the window.
BUBBLE = """e => { const b = e.getBoundingClientRect(), c = e.parentElement.getBoundingClientRect();
  return [e.textContent, c.top - b.bottom, b.left < 0 || b.right > innerWidth || b.top < 0] }"""


@pytest.fixture
def phone(visit: Visit) -> Iterator["Page"]:  # noqa: F821
    """A phone's page, which a finger touches."""
    context = visit.page.context.browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.set_default_timeout(120_000)
    yield page
    context.close()


def test_a_tapped_number_stays_by_its_cell(phone: "Page") -> None:  # noqa: F821
    page = opened(phone, at="encoder-embedding")
    for strip in (6, 2):
        page.locator(".strip canvas").nth(strip).tap()
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


def test_a_finger_that_slides_reads_one_number_after_the_other(phone: "Page") -> None:  # noqa: F821
    page = opened(phone, at="encoder-embedding")
    strip = page.locator(".strip canvas").nth(1)
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *places: float) -> str:
        points = [{"x": box["x"] + share * box["width"], "y": box["y"] + 9} for share in places]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_timeout(100)
        return page.locator(".bubble").inner_text()

    seen = [touch("touchStart", 0.02), *(touch("touchMove", share) for share in (0.3, 0.6, 0.98))]
    seen.append(touch("touchEnd"))
    columns = [int(text.split()[1]) for text in seen]
    assert columns == sorted(columns)
    assert len(set(columns[:-1])) == 4
    assert columns[-2:] == [126, 126]


def test_the_weight_that_is_pointed_at_stands_by_its_cell(page: "Page") -> None:  # noqa: F821
    for stop, cell in (("encoder-heads", 7), ("cross-weights", 0), ("cross-weights", 6)):
        opened(page, at=stop)
        pointed = page.locator(".map").first.locator("tbody tr").nth(3).locator("td").nth(cell)
        pointed.hover()
        bubble = page.locator(".around > .bubble")
        share = pointed.evaluate("e => 100 * e.style.getPropertyValue('--share')")
        told = bubble.inner_text().split(": ")[1]
        assert float(told.strip("<>%")) == pytest.approx(share, abs=0.51)
        gap = pointed.bounding_box()["y"] - bubble.bounding_box()["y"] - bubble.bounding_box()["height"]
        assert 0 <= gap < 20


HIT = "#map a rect, main :is(button:not(.term), summary, input[type=range], .leave)"
SMALL = """targets => [...document.querySelectorAll(targets)].filter(e => e.checkVisibility())
  .map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
  .filter(([box]) => box.height < 23.9 || box.width < 23.9)
  .map(([box, html]) => [box.width, box.height, html])"""


def test_on_a_phone_a_finger_can_hit_everything(phone: "Page") -> None:  # noqa: F821
    page = opened(phone)
    for stop in [*page.evaluate(STOPS), "encoder-projections", "cross-heads"]:
        opened(phone, at=stop)
        assert page.evaluate(SMALL, HIT) == []


def test_on_a_phone_three_steps_of_the_tree_are_seen(phone: "Page") -> None:  # noqa: F821
    page = opened(phone, at="beam")
    starts = "e => e.map(box => new DOMMatrix(getComputedStyle(box).transform).e)"
    places = page.locator(".tree g").evaluate_all(starts)
    assert sorted(set(places))[3] < PHONE["width"]


def test_how_strips_are_read_is_told_once(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-embedding")
    how = page.locator(".how p")
    assert how.count() == 1
    page.locator("footer .next").click()
    page.wait_for_function("document.querySelector('.where').textContent.includes('Positional')")
    assert how.count() == 0
    page.get_by_role("button", name="How to read the strips").press("Enter")
    assert "a cell is a number" in how.inner_text()


def weights(page: "Page") -> list[list[float]]:  # noqa: F821
    """The map of one head, row by row."""
    return page.locator(".map tbody").evaluate(
        "e => [...e.rows].map(row => [...row.querySelectorAll('td')]"
        ".map(cell => +cell.style.getPropertyValue('--share')))"
    )


def test_a_head_gets_the_line_that_its_weights_give_it(page: "Page") -> None:  # noqa: F821
    opened(page, at="encoder-weights", layer="2", head="3", s="A black dog chases a white dog.")
    rows = weights(page)
    back = sum(row[i - 1] > 0.5 for i, row in enumerate(rows) if i)
    assert back >= len(rows) / 2
    line = f"mostly one token back: {back} of {len(rows)} rows"
    assert line in page.locator(".fold p b").all_inner_texts()
    page.get_by_role("button", name="heads", exact=True).click()
    assert page.locator(".heads .name").nth(2).inner_text() == line
    for stop in ("decoder-heads", "cross-heads"):
        opened(page, at=stop)
        assert page.locator(".heads .name").count() == 4
        page.locator("summary", has_text="How a head gets its line").click()
        assert "more than half of its weight" in page.locator("details[open] > p").first.inner_text()


@pytest.mark.parametrize(
    ("stop", "label"),
    [
        ("encoder-positions", "Leave out the positions"),
        ("decoder-weights", "Leave out the causal mask"),
        ("decoder-norm1", "Leave out all residual connections"),
        ("decoder-network", "Leave out all feed-forward networks"),
    ],
)
def test_on_a_phone_what_breaks_is_seen_beside_its_box(visit: Visit, stop: str, label: str) -> None:
    page = opened(visit.page, at=stop)
    page.set_viewport_size(PHONE)
    whole = page.locator(".german").inner_text()
    page.get_by_label(label).check()
    page.wait_for_selector(".outcome span")
    before, after = page.locator(".outcome dd").all()
    for told in (before, after):
        top, bottom = told.evaluate("e => [e.getBoundingClientRect().top, e.getBoundingClientRect().bottom]")
        assert top > 0
        assert bottom < PHONE["height"]
    assert before.inner_text() == whole
    same = page.locator(".german").inner_text() == whole
    assert ("the same words" in after.inner_text()) == same
    page.set_viewport_size(DESK)


FAR = """[...document.querySelectorAll('.shown .scrolls')]
.filter(e => e.scrollWidth > e.clientWidth + 1)
.map(e => [e.firstElementChild.classList[0],
  !!e.previousElementSibling?.innerText.includes('scroll')])"""


STEPS = ["encoder-weights", "decoder-pieces", "decoder-weights", "cross-weights", "probabilities"]


@pytest.mark.parametrize("stop", STEPS)
def test_on_a_phone_nothing_is_cut_without_a_word(visit: Visit, stop: str) -> None:
    page = visit.page
    page.set_viewport_size(PHONE)
    for sentence in ("Two women with umbrellas are walking past construction workers.", SENTENCE):
        opened(page, s=sentence, at=stop)
        page.wait_for_timeout(300)
        cut = page.evaluate(FAR)
        assert all(told for _, told in cut)
        assert {"weighing", "probabilities"}.isdisjoint(name for name, _ in cut)
    page.set_viewport_size(DESK)
    page.wait_for_timeout(300)
    assert page.get_by_text("is wider than this page").count() == 0


def test_a_layer_of_heads_is_silenced_at_once(page: "Page") -> None:  # noqa: F821
    opened(page, at="break")
    page.get_by_role("button", name="Silence layer 2 of Encoder-decoder attention").click()
    assert page.locator(".silence td [aria-pressed=true]").count() == 4
    page.wait_for_selector(".stays .outcome span")
    page.get_by_role("button", name="Reset").click()
    page.wait_for_function("!document.querySelector('.outcome, .silence [aria-pressed=true]')")


def test_a_word_is_explained_by_mouse_and_by_keyboard(page: "Page") -> None:  # noqa: F821
    opened(page, at="probabilities")
    word = page.get_by_role("button", name="logit").first
    assert "before the softmax" in word.get_attribute("title")
    word.press("Enter")
    assert "before the softmax" in page.locator(".meaning").inner_text()
    page.locator(".sure").get_by_role("button", name="On average").press("Enter")
    assert "root of the product" in page.locator(".sure .meaning").inner_text()


def test_what_it_cannot_do_is_said(page: "Page") -> None:  # noqa: F821
    page.fill("#sentence", "dog " * 60)
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.trouble').textContent.includes('at most 40')")
    page.fill("#sentence", "\U0001f600\U0001f600")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.said')?.textContent.includes('single bytes')")


def test_a_word_made_of_pieces_is_told_to_be_one(page: "Page") -> None:  # noqa: F821
    assert page.locator(".composed").count() == 0
    translator = load_pretrained("multi30k-en-de")
    page.fill("#sentence", "A man cuts an onion.")
    page.keyboard.press("Enter")
    wait_for(page, translator("A man cuts an onion."))
    [word] = page.locator(".composed b").all_inner_texts()
    assert word.replace("·", "") in translator("A man cuts an onion.")


def test_the_start_page_leads_into_it(page: "Page") -> None:  # noqa: F821
    page.goto((SITE / "index.html").as_uri())
    page.locator(".own input").fill(SENTENCE)
    page.keyboard.press("Enter")
    wait_for(page, load_pretrained("multi30k-en-de")(SENTENCE))


def test_search_finds_what_only_the_notebooks_say(page: "Page") -> None:  # noqa: F821
    page.goto((SITE / "search.html").as_uri() + "?q=softmax")
    page.wait_for_selector("#search-results li a")
    links = "links => links.map(a => a.getAttribute('href'))"
    found = page.locator("#search-results li a").evaluate_all(links)
    assert any("02_attention" in address for address in found)


def test_the_widget_shows_the_same_in_a_notebook(page: "Page") -> None:  # noqa: F821
    """The frame that `watch` gives needs nothing from where it stands."""
    translator = load_pretrained("multi30k-en-de")
    page.set_content(watch(translator, SENTENCE).data)
    frame = page.frame_locator("iframe")
    assert frame.locator(".german").inner_text() == translator(SENTENCE)
    frame.locator("footer .next").click()
    assert "numbers" in frame.locator("h2").inner_text()
