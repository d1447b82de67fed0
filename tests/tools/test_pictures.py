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
    """What each drawing should print, from the package's own model: hooks on its layers, no cell of the lesson."""
    model, source, target = numbers.tiny, numbers.english[2:3], numbers.read[2:3]
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str, module: torch.nn.Module) -> None:
        module.register_forward_hook(
            lambda _module, given, made: seen.update({name: made[0], f"{name} in": given[0][0]})
        )

    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    keep("table", model.src_embed[0])
    keep("x", model.src_embed)
    for name, layer in (("q", 0), ("k", 1), ("v", 2), ("mixed", 3)):
        keep(name, encoder.self_attn.linears[layer])
    keep("normed", encoder.sublayer[0].norm)
    keep("wide", encoder.feed_forward.w_1)
    keep("narrow", encoder.feed_forward.w_2)
    keep("state", model.decoder)
    mask = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    with torch.no_grad():
        logits = model.generator.proj(model(source, target, None, mask))[0]
        hidden = [model.generator(model.decode(model.encode(source, None), hide, target, mask))[0, 0].exp()
                  for hide in [None, *(~torch.eye(3, dtype=torch.bool)).view(3, 1, 1, 3)]]  # fmt: skip
        _ = model(source, target, None, mask)  # the last to be kept
    w = {name: linear.weight.T for name, linear in zip("qkvo", encoder.self_attn.linears, strict=True)}
    scores = (seen["q"].view(3, 2, 2).transpose(0, 1) @ seen["k"].view(3, 2, 2).permute(1, 2, 0)).detach()
    weights = (scores / 2**0.5).softmax(dim=-1)
    heads = seen["mixed in"]
    alike = seen["table"] @ seen["table"][1]
    position = seen["x"] - seen["table"]
    added = seen["normed in"]
    words = torch.tensor(
        [numbers.number[word] for word in ("ein", "eine", "der", "die", "Katze", "rennt", "</s>")]
    )
    shares = logits.softmax(dim=-1)
    right = shares[range(4), numbers.write[2]]
    looks, across = decoder.self_attn.weights[0], decoder.src_attn.weights[0]
    article = words[:2].flip(0)  # eine, ein
    return {
        "cat_word": [seen["table"], alike, alike.softmax(dim=0), alike.softmax(dim=0) @ seen["table"]],
        "cat_position": [seen["table"], position, seen["x"]],
        "cat_roles": [seen["x"][1], *(w[name][:, 2:] for name in "qkv"), *(seen[name][1, 2:] for name in "qkv")],
        "cat_scores": [seen["q"][1, 2:], seen["k"][:, 2:], scores[1, 1], scores[1, 1] / 2**0.5, weights[1, 1]],
        "cat_mean": [weights[1, 1], seen["v"][:, 2:], heads[1, 2:]],
        "cat_rows": [seen["q"][:, 2:], seen["k"][:, 2:], scores[1], weights[1], seen["v"][:, 2:], heads[:, 2:]],
        "cat_heads": [weights[:, 1], heads[1], heads[1], seen["mixed"][1]],
        "cat_residual": [seen["x"][1], seen["mixed"][1], added[1], seen["normed"][1]],
        "cat_network": [seen["normed"][1], seen["wide"][1], seen["wide"][1].relu(), seen["narrow"][1]],
        "cat_shift": [],
        "cat_causal": [row[: place + 1] for place, row in enumerate(looks[1])],
        "cat_cross": [across[:, 0], shares[0, article]],
        "cat_hidden": [shown[article] for shown in hidden],
        "cat_logits": [seen["state"][0], model.generator.proj.weight[words], logits[0, words], shares[0, words]],
        "cat_decoding": [right],
        "cat_loss": [right, -right.log(), -right.log().mean()],
    }  # fmt: skip


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
            assert 0 <= left, f"{name}: {words} begins at {left:.0f}"
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
