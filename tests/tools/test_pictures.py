"""The drawings of *a cat runs*: what they print is the model's, and it can be read."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from matplotlib import font_manager
from PIL import ImageFont

from annotated import capture_attention
from tools.pictures import __main__ as pictures
from tools.pictures.drawings import DRAWINGS
from tools.pictures.signs import DARK, INK, PAPER, ROLES, SIZE, SOFT, WIDTH, Sheet, printed
from tools.pictures.tiny import read_numbers

NUMBER = re.compile(r"−?\d+\.\d\d")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def numbers() -> SimpleNamespace:
    return read_numbers()


def drawn(numbers: SimpleNamespace) -> Iterator[tuple[str, Sheet, ElementTree.Element]]:
    for name, draw in DRAWINGS.items():
        sheet = draw(numbers)
        yield name, sheet, ElementTree.fromstring(sheet.svg())


def texts(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]


def test_drawings_and_their_words_in_the_lessons_are_up_to_date(numbers: SimpleNamespace) -> None:
    stale = [path.name for path, text in pictures.make(numbers).items() if path.read_text("utf-8") != text]
    assert not stale, f"python -m tools.pictures && make images; these would change: {stale}"


def of_the_model(numbers: SimpleNamespace) -> dict[str, list[torch.Tensor]]:
    """What each drawing should print, out of the package's own model: from hooks, not from the lesson."""
    model, source, target = numbers.tiny, numbers.english[2:3], numbers.read[2:3]
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str, module: torch.nn.Module) -> None:
        def hook(_: torch.nn.Module, given: tuple[torch.Tensor], made: torch.Tensor) -> None:
            seen.update({name: made[0], f"{name} in": given[0][0]})

        module.register_forward_hook(hook)

    encoder, mask = model.encoder.layers[0], torch.ones(1, 4, 4, dtype=torch.bool).tril()
    maps = encoder.self_attn.linears
    watched = (model.src_embed[0], model.src_embed, *maps, encoder.sublayer[0].norm)
    watched += (
        encoder.feed_forward.w_1,
        encoder.feed_forward.w_2,
        model.decoder,
        model.encoder,
        model.tgt_embed,
    )
    names = ("table", "x", "q", "k", "v", "mixed", "normed", "wide", "narrow", "state", "memory", "y")
    with torch.no_grad(), capture_attention(model) as attention:
        shown = []
        for hide in (*~torch.eye(3, dtype=torch.bool), None):
            decoded = model.decode(
                model.encode(source, None), None if hide is None else hide[None, None], target, mask
            )
            shown.append(model.generator(decoded)[0].exp())
        for name, module in zip(names, watched, strict=True):
            keep(name, module)
        logits = model.generator.proj(model(source, target, None, mask))[0]
    weights, looks, across = (attention[kind, 0][0] for kind in ("encoder", "decoder", "cross"))
    q, k, v, heads = (seen[name][:, 2:] for name in ("q", "k", "v", "mixed in"))
    w_q, w_k, w_v = (linear.weight.detach().T[:, 2:] for linear in maps[:3])
    alike = seen["table"] @ seen["table"][1]
    words = [numbers.number[word] for word in ("ein", "eine", "der", "die", "Katze", "rennt", "</s>")]
    right, article = shown[-1][range(4), numbers.write[2]], words[:2]
    return {
        "cat_whole": [seen["x"], seen["memory"], seen["y"][0], seen["state"][0], shown[-1][0, article]],
        "cat_word": [seen["table"], alike, alike.softmax(dim=0), alike.softmax(dim=0) @ seen["table"]],
        "cat_position": [seen["table"], seen["x"] - seen["table"], seen["x"]],
        "cat_roles": [seen["x"][1], w_q, w_k, w_v, q[1], k[1], v[1]],
        "cat_scores": [q[1], k, k @ q[1], k @ q[1] / 2**0.5, weights[1, 1]],
        "cat_mean": [weights[1, 1], v, heads[1]],
        "cat_rows": [q, k, q @ k.T, weights[1], v, heads],
        "cat_heads": [weights[:, 1], seen["mixed in"][1], seen["mixed in"][1], seen["mixed"][1]],
        "cat_residual": [seen["x"][1], seen["mixed"][1], seen["normed in"][1], seen["normed"][1]],
        "cat_network": [seen["normed"][1], seen["wide"][1], seen["wide"][1].relu(), seen["narrow"][1]],
        "cat_shift": [],
        "cat_causal": [row[: place + 1] for place, row in enumerate(looks[1])],
        "cat_cross": [across[:, 0], shown[-1][0, article]],
        "cat_hidden": [shares[0, article] for shares in shown],
        "cat_logits": [
            seen["state"][0],
            model.generator.proj.weight.detach()[words],
            logits[0, words],
            shown[-1][0, words],
        ],
        "cat_decoding": [right],
        "cat_learning": of_the_training(numbers),
        "cat_loss": [right, -right.log(), -right.log().mean()],
    }


def of_the_training(numbers: SimpleNamespace) -> list[torch.Tensor]:
    """Loss, vector of cat and articles, at the first update after which what is told of it never fails."""
    n, mask, found = numbers, torch.ones(1, 4, 4, dtype=torch.bool).tril(), []
    for model in n.past:
        encoder = model.encoder.layers[0].self_attn.linears
        with torch.no_grad():
            x, log_probs = (
                model.src_embed(n.english[2:3])[0],
                model.generator(model(n.english, n.read, None, mask)),
            )
            q, k = (linear(x)[:, 2:] for linear in encoder[:2])
            memory = model.encode(n.english, None)[2, 1]
        loss = torch.nn.functional.nll_loss(log_probs.flatten(0, 1), n.write.flatten())
        article = log_probs[2, 0, [n.number["eine"], n.number["ein"]]].exp()
        fails = (
            bool(article[0] <= article[1]),
            log_probs[2].argmax(dim=-1).tolist() != n.write[2].tolist(),
            int((k @ q[1]).argmax()) != 0,
        )
        found.append((fails, [loss, memory, article]))
    failed = [max(at for at, (fails, _) in enumerate(found) if fails[event]) for event in range(3)]
    return [made for at in (0, *(last + 1 for last in failed), 200) for made in found[at][1]]


def test_every_number_is_the_models(numbers: SimpleNamespace) -> None:
    expected = of_the_model(numbers)
    for name, _, svg in drawn(numbers):
        alone = Counter(text.removeprefix("= ") for text in texts(svg) if NUMBER.fullmatch(text))
        wanted = Counter(printed(number) for made in expected[name] for number in made.flatten())
        assert alone == wanted, f"{name} prints {alone - wanted}, and lacks {wanted - alone}"


def test_every_sum_that_is_written_out_is_right(numbers: SimpleNamespace) -> None:
    written = {}
    for name, _, svg in drawn(numbers):
        terms = ""
        for text in texts(svg):
            if text.startswith("= ") or (" = " in text and "μ" not in text):
                left, _, total = (terms + text).rpartition("= ")
                written[name] = eval(left.replace("·", "*").replace("−", "-"))
                assert written[name] == pytest.approx(float(total.replace("−", "-")), abs=0.015), text
            terms = f"{terms}{text}" if "·" in text and len(text) > 3 else ""
    assert written.keys() == {"cat_word", "cat_roles", "cat_scores", "cat_mean", "cat_loss"}


def test_words_say_only_what_is_printed_and_the_translation_says_the_same(numbers: SimpleNamespace) -> None:
    chinese = Path(pictures.ROOT, "notebooks/zh/00_start_here.py").read_text("utf-8")
    told = dict(re.findall(r"!\[([^\]]*)\]\(\.\./\.\./images/(cat_\w+)\.svg\)", chinese))
    told = {name: words for words, name in told.items()}
    assert told.keys() == DRAWINGS.keys()
    for name, sheet, svg in drawn(numbers):
        said = Counter(NUMBER.findall(sheet.words))
        assert said.keys() <= set(NUMBER.findall(" ".join(texts(svg)))), name
        assert said == Counter(NUMBER.findall(told[name])), name


def test_letters_are_of_one_size_and_stay_on_the_sheet(numbers: SimpleNamespace) -> None:
    fonts = {
        weight: ImageFont.truetype(font_manager.findfont(f"DejaVu Sans:{weight}"), SIZE)
        for weight in ("normal", "bold")
    }
    share = {"start": 0, "middle": 0.5, "end": 1}
    for name, sheet, svg in drawn(numbers):
        for text in svg.iter(f"{SVG}text"):
            words = "".join(text.itertext())
            wide = fonts[text.get("font-weight", "normal")].getlength(words)
            left = float(text.get("x", 0)) - share[text.get("text-anchor", "start")] * wide
            assert float(text.get("font-size", 0)) == SIZE
            assert left >= 0, f"{name}: {words} begins at {left:.0f}"
            assert left + wide <= WIDTH, f"{name}: {words} ends at {left + wide:.0f}"
            assert 10 < float(text.get("y", 0)) < sheet.height - 4


def contrast(one: str, other: str) -> float:
    """Contrast of two colors as WCAG 2 defines it, from 1 to 21."""
    light = []
    for color in (one, other):
        shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_letters_stand_out_on_both_grounds_and_every_color_has_its_twin(numbers: SimpleNamespace) -> None:
    for color in (INK, SOFT, *(ROLES[role] for role in ("query", "key", "value"))):
        assert contrast(color, PAPER) > 4.5
        assert contrast(DARK[color], DARK[PAPER]) > 4.5
    for _, _, svg in drawn(numbers):
        colors = {shape.get(key, "none") for shape in svg.iter() for key in ("fill", "stroke")}
        assert colors - {"none"} <= DARK.keys()
