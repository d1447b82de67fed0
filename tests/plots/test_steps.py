"""The page of a tiny model computes what PyTorch does, whatever a reader changes.

The page's script runs in Node, which is asked for nothing else.
"""

import json
import random
import re
import shutil
import subprocess
from copy import deepcopy
from html import unescape
from pathlib import Path

import pytest
import torch
from IPython.display import HTML
from torch import Tensor

from annotated import subsequent_mask
from annotated.plots import step_through, watch_learning
from annotated.transformer.model import EncoderDecoder, make_model

HERE = Path(__file__).parents[1]
SCRIPT = HERE.parent / "annotated/plots/pages/steps.js"
WORDS = ["<s>", "</s>", "a", "the", "cat", "dog", "runs", "sleeps", "ein", "eine", "Hund"]
PAIRED = {"a": "ein", "the": "eine", "dog": "Hund", "cat": "cat"}
SENTENCES = [[one, two, three] for one in WORDS[2:4] for two in WORDS[4:6] for three in WORDS[6:8]]
PAIRS = [(sentence, [PAIRED[sentence[0]], PAIRED[sentence[1]]]) for sentence in SENTENCES]
# The page's parts that are one module's output, by the module's name.
MODULES = {
    "encoder": "encoder.layers.0.self_attn",
    "encoderNetwork": "encoder.layers.0.feed_forward",
    "masked": "decoder.layers.0.self_attn",
    "cross": "decoder.layers.0.src_attn",
    "decoderNetwork": "decoder.layers.0.feed_forward",
}
ATTENTIONS = [name for name in MODULES.values() if name.endswith("attn")]
PARTS = ["scale", "positions", *(f"{name} {head}" for name in ATTENTIONS for head in (0, 1))]
STATES = 500


def small_model(**settings: object) -> EncoderDecoder:
    """A model of the notebook's size in float64, in which no bias is 0 and no gain 1."""
    torch.manual_seed(0)
    sizes = {"N": 1, "d_model": 4, "d_ff": 8, "h": 2, "tied_embeddings": "all", **settings}
    model = make_model(len(WORDS), len(WORDS), dropout=0.0, **sizes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return model


def exact_positions(length: int) -> Tensor:
    """The table of section 3.5 with four columns in float64, which the package keeps in float32."""
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * torch.tensor(
        [1, 0.01], dtype=torch.float64
    )
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def changed(model: EncoderDecoder, left_out: list[str]) -> EncoderDecoder:
    """The same model without some of its parts: what it does in their place, its weights can do."""
    model = deepcopy(model)
    for embed in (model.src_embed, model.tgt_embed):
        embed[1].pe = exact_positions(9) * ("positions" not in left_out)
    with torch.no_grad():
        for name in ATTENTIONS:
            attention = model.get_submodule(name)
            if "scale" in left_out:
                for parameter in attention.linears[0].parameters():
                    parameter.mul_(2**0.5)  # so that the division by the root of d_k leaves what there was
            for head in (0, 1):
                if f"{name} {head}" in left_out:
                    for parameter in attention.linears[2].parameters():
                        parameter[2 * head : 2 * head + 2] = 0.0
    return model


@torch.no_grad()
def by_pytorch(model: EncoderDecoder, state: dict) -> dict[str, Tensor]:
    """What each module gives, in the search's last pass."""
    model, found = changed(model, state["leftOut"]), {}
    for part, name in MODULES.items():
        module = model.get_submodule(name)
        module.register_forward_hook(lambda _, __, output, part=part: found.update({part: output[0]}))
    source = torch.tensor([[WORDS.index(word) for word in state["words"]]])
    seen = torch.tensor([[[i not in state["hidden"] for i in range(3)]]])
    memory = model.encode(source, seen if state["hiddenFrom"] == "all" else None)
    read = [0]
    while True:
        states = model.decode(memory, seen, torch.tensor([read]), subsequent_mask(len(read)))
        probabilities = model.generator(states).exp()[0]
        token = int(probabilities[-1].argmax())
        if token == 1 or len(read) == 6:
            return found | {"memory": memory[0], "states": states[0], "probabilities": probabilities}
        read.append(token)


def page_of(shown: HTML) -> str:
    return unescape(re.search('srcdoc="([^"]*)"', shown.data)[1])


def data_of(shown: HTML) -> str:
    return re.search('id="model">(.*?)</script>', page_of(shown))[1]


def by_page(shown: HTML, states: list[dict]) -> list[dict]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to run the page's script in")
    lines = "\n".join([data_of(shown), *map(json.dumps, states)])
    command = [node, HERE / "steps.js", SCRIPT]
    found = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def random_state(seed: int) -> dict:
    draw = random.Random(seed)
    return {
        "words": draw.choice(SENTENCES),
        "hidden": draw.sample(range(3), draw.choice([0, 0, 1, 2, 3])),
        "hiddenFrom": draw.choice(["decoder", "all"]),
        "leftOut": draw.sample(PARTS, draw.choice([0, 1, 1, 2, 3, len(PARTS)])),
    }


def test_whatever_is_changed_the_page_computes_what_pytorch_does() -> None:
    model, states = small_model(), [random_state(seed) for seed in range(STATES)]
    for state, numbers in zip(states, by_page(step_through(model, WORDS, SENTENCES), states), strict=True):
        assert_equal(numbers, by_pytorch(model, state), state)


def assert_equal(page: dict, expected: dict[str, Tensor], state: dict) -> None:
    for part, matrix in expected.items():
        got = torch.tensor(page[part]["output"] if part in MODULES else page[part], dtype=torch.float64)
        assert got.shape == matrix.shape, (part, state)
        assert (got - matrix).abs().max() < 1e-9, (part, state)


def trained(updates: int) -> list[EncoderDecoder]:
    """A small model before its training and after each update."""
    model = small_model()
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    models = [deepcopy(model)]
    for _ in range(updates):
        adam.zero_grad()
        cross_entropies(model).mean().backward()
        adam.step()
        models.append(deepcopy(model))
    return models


def cross_entropies(model: EncoderDecoder) -> Tensor:
    """The loss of each token of each target, (pairs, tokens)."""
    tokens = torch.tensor([[0, *map(WORDS.index, target), 1] for _, target in PAIRS])
    sources = torch.tensor([[*map(WORDS.index, source)] for source, _ in PAIRS])
    states = model(sources, tokens[:, :-1], None, subsequent_mask(3))
    return torch.nn.functional.cross_entropy(
        model.generator.proj(states).transpose(1, 2), tokens[:, 1:], reduction="none"
    )


def test_after_each_update_the_page_computes_what_pytorch_does_with_weights_of_four_decimals() -> None:
    models = trained(6)
    states = [random_state(seed) | {"update": seed % 7} for seed in range(28)]
    found = by_page(watch_learning(models, WORDS, PAIRS), states)
    for model in models:
        for parameter in model.parameters():
            parameter.data = parameter.data.round(decimals=4)
    for state, numbers in zip(states, found, strict=True):
        assert_equal(numbers, by_pytorch(models[state["update"]], state), state)


def test_the_curves_of_a_training_are_pytorchs() -> None:
    models = trained(6)
    data = json.loads(data_of(watch_learning(models, WORDS, PAIRS)))
    losses = [cross_entropies(model) for model in models]  # each (pairs, tokens)
    assert data["losses"] == pytest.approx([loss.mean().item() for loss in losses])
    for update, loss in enumerate(losses):
        for chances, (_, target), first in zip(data["chances"][update], PAIRS, loss[:, 0], strict=True):
            assert chances[data["firsts"].index(target[0])] == pytest.approx(
                first.neg().exp().item(), abs=1e-4
            )


def test_a_sentence_is_right_where_each_of_its_words_is_the_likeliest() -> None:
    models = trained(60)
    data = json.loads(data_of(watch_learning(models, WORDS, PAIRS)))
    for model, right in zip(models[::10], data["right"][::10], strict=True):
        for (source, target), told in zip(PAIRS, right, strict=True):
            state = {"words": source, "hidden": [], "hiddenFrom": "decoder", "leftOut": []}
            written = by_pytorch(model, state)["probabilities"].argmax(dim=-1).tolist()
            assert told == (written == [*map(WORDS.index, target), 1])
    assert {right for each in data["right"] for right in each} == {True, False}


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"N": 2}, "N=1, not 2"),
        ({"norm_first": True}, "norm_first=False"),
        ({"tied_embeddings": "none"}, "tied"),
    ],
)
def test_a_model_that_the_page_cannot_draw_is_refused(settings: dict, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        step_through(small_model(**settings), WORDS, SENTENCES)


def test_words_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="bird"):
        step_through(small_model(), WORDS, [["a", "bird", "runs"]])
    with pytest.raises(ValueError, match="11 tokens, the vocabulary 12"):
        step_through(small_model(), [*WORDS, "bird"], SENTENCES)


@pytest.mark.parametrize("change", [3.27, -3.27, 3.28, -3.28, 100.0])
def test_a_change_that_the_page_cannot_hold_is_refused(change: float) -> None:
    models = [small_model() for _ in range(3)]
    with torch.no_grad():
        models[2].generator.proj.bias[3] += change
    if abs(change) < 3.276:
        assert watch_learning(models, WORDS, PAIRS)
    else:
        with pytest.raises(ValueError, match=r"update 2 .* 3\.2767"):
            watch_learning(models, WORDS, PAIRS)


def test_the_frame_needs_nothing_else() -> None:
    models = trained(1)
    for shown in (
        step_through(models[0], WORDS, SENTENCES, "zh"),
        watch_learning(models, WORDS, PAIRS, "zh"),
    ):
        page = page_of(shown)
        assert 'data-language="zh"' in page
        assert not re.search("""(src|href)=["']""", page.replace(SCRIPT.read_text("utf-8"), ""))
