"""Variants hold what any module of PyTorch may: either it comes back from a folder, or it is not saved."""

from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from small_models import WORDS, make
from torch import nn
from torch.nn.utils import parametrizations

from annotated.storage.model_folder import load_model, save_model
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.parts import VARIANTS, Parts, variant
from annotated.transformer.positions import PositionalEncoding

TOKENS = torch.tensor([[0, 4, 5, 4, 1]])


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr("annotated.transformer.parts.VARIANTS", dict(VARIANTS))


class RunningMean(nn.Module):
    """Subtract the mean of what training has seen."""

    def __init__(self, size: int, persistent: bool | None):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        if persistent is None:
            self.mean = torch.zeros(size)
        else:
            self.register_buffer("mean", torch.zeros(size), persistent=persistent)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(dim=(0, 1)), 0.1)
        return (x - self.mean) * self.scale


class Normalised(nn.Module):
    """Batch norm of (batch, len, size), whose buffers are of two types."""

    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(size)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Alibi(MultiHeadedAttention):
    """Scores fall with the distance (Press et al., 2022)."""

    def __init__(self, h, d_model, keep):
        super().__init__(h, d_model, 0.0)
        slopes = 2.0 ** -torch.arange(1, h + 1).view(1, h, 1, 1)
        if keep == "attribute":
            self.slopes = slopes
        else:
            self.register_buffer("slopes", slopes, persistent=keep == "persistent")
            self.register_buffer("causal", torch.full((4, 4), -torch.inf).triu(1))  # as masks are kept

    def attend(self, q, k, v, mask):
        distance = torch.arange(k.size(-2)) - torch.arange(q.size(-2)).unsqueeze(1)
        scores = q @ k.transpose(-2, -1) + self.slopes * distance
        return scores.softmax(dim=-1) @ v


class Waves(PositionalEncoding):
    def __init__(self, d_model):
        super().__init__(d_model, 0.0)
        self.pe = self.pe.flip(1) * 3


class Custom(Parts):
    """The part that a test replaces."""

    made: ClassVar[dict[str, Any]] = {}

    def attention(self):
        return self.made.get("attention", super().attention)()

    def feed_forward(self):
        return self.made.get("feed_forward", super().feed_forward)()

    def norm(self):
        return self.made.get("norm", super().norm)()

    def positions(self):
        return self.made.get("positions", super().positions)()


def local():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.activation = lambda x: x.sin()
            self.scale = partial(torch.mul, torch.tensor(2.0))

        def forward(self, x):
            return self.scale(self.activation(self.linear(x)))

    return Gate()


COMES_BACK = {
    "a running mean in a buffer": {"norm": lambda: RunningMean(8, persistent=True)},
    "batch norm": {"norm": lambda: Normalised(8)},
    "ALiBi, slopes in a buffer": {"attention": lambda: Alibi(2, 8, "persistent")},
    "ALiBi, slopes in a buffer that is not saved": {"attention": lambda: Alibi(2, 8, "made")},
    "ALiBi, slopes in an attribute": {"attention": lambda: Alibi(2, 8, "attribute")},
    "a local class, a lambda, a partial": {"feed_forward": local},
    "orthogonal weights": {"feed_forward": lambda: parametrizations.orthogonal(nn.Linear(8, 8))},
    "normalized weights": {"feed_forward": lambda: parametrizations.weight_norm(nn.Linear(8, 8))},
    "a spectral norm": {"feed_forward": lambda: parametrizations.spectral_norm(nn.Linear(8, 8))},
    "other waves": {"positions": lambda: Waves(8)},
    "no parameters": {"norm": nn.Tanh},
}


@pytest.mark.parametrize("name", COMES_BACK)
def test_it_comes_back_after_training(name, tmp_path):
    variant("custom")(type("Made", (Custom,), {"made": COMES_BACK[name]}))
    model = make(parts="custom", dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(TOKENS, TOKENS, None, None).square().mean().backward()
        optimizer.step()
    save_model(tmp_path, model.eval(), WORDS, WORDS)
    again, *_ = load_model(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(again(TOKENS, TOKENS, None, None), model(TOKENS, TOKENS, None, None))
    kept, loaded = model.state_dict(), again.state_dict()
    assert kept.keys() == loaded.keys()
    assert all(torch.equal(kept[name], loaded[name]) for name in kept)


def test_a_number_drawn_by_a_constructor_is_not_saved(tmp_path):
    class Drawn(nn.Linear):
        def __init__(self):
            super().__init__(8, 8)
            self.factor = torch.rand(()).item()

        def forward(self, x):
            return super().forward(x) * self.factor

    variant("custom")(type("Made", (Custom,), {"made": {"feed_forward": Drawn}}))
    with pytest.raises(ValueError, match="would not come back"):
        save_model(tmp_path, make(parts="custom"), WORDS, WORDS)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_a_loaded_model_computes_in_float32_whatever_the_default_is(default, tmp_path):
    save_model(tmp_path, make(), WORDS, WORDS)
    expected = load_model(tmp_path)[0](TOKENS, TOKENS, None, None)
    try:
        torch.set_default_dtype(default)
        model, *_ = load_model(tmp_path)
        assert torch.equal(model(TOKENS, TOKENS, None, None), expected)
        assert torch.get_default_dtype() == default
    finally:
        torch.set_default_dtype(torch.float32)
