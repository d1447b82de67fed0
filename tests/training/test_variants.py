"""A variant trains, saves and resumes alike, or is refused before the first update."""

from functools import partial

import pytest
import torch
from tiny_runs import make_trainer, weights
from torch import nn
from torch.nn.utils import parametrizations

from annotated.transformer import variants
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.positions import PositionalEncoding
from annotated.transformer.variants import VARIANTS, Parts, variant
from annotated.translation.storage.model_folder import load_model

WIDTH = 16
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr("annotated.transformer.variants.VARIANTS", dict(VARIANTS))


class BatchNorm(nn.BatchNorm1d):
    """Its running statistics are buffers."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Unused(nn.LayerNorm):
    """Some of its parameters never have a gradient."""

    def __init__(self, width):
        super().__init__(width)
        self.never = nn.Linear(width, width)


class Centered(nn.LayerNorm):
    """Subtract what training has seen; the mean is a buffer that is saved, or not."""

    def __init__(self, width, persistent):
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(width), persistent=persistent)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(dim=(0, 1)), 0.1)
        return super().forward(x - self.mean)


class Drawn(nn.LayerNorm):
    """Multiply by a number that no setting, parameter or buffer tells."""

    def __init__(self, width):
        super().__init__(width)
        self.factor = torch.rand(()).item()

    def forward(self, x):
        return super().forward(x) * self.factor


class Alibi(MultiHeadedAttention):
    """Scores fall with the distance (Press et al., 2022); the slopes are made by the constructor."""

    def __init__(self, buffers):
        super().__init__(2, WIDTH, 0.0)
        self.slopes = 2.0 ** -torch.arange(1, 3).view(1, 2, 1, 1)
        if buffers:
            slopes = vars(self).pop("slopes")
            self.register_buffer("slopes", slopes, persistent=False)
            self.register_buffer("causal", torch.full((4, 4), -torch.inf).triu(1))  # as masks are kept

    def attend(self, q, k, v, mask):
        distance = torch.arange(k.size(-2)) - torch.arange(q.size(-2)).unsqueeze(1)
        scores = q @ k.transpose(-2, -1) + self.slopes * distance
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ v


class Waves(PositionalEncoding):
    def __init__(self):
        super().__init__(WIDTH, 0.0)
        self.pe = self.pe.flip(1) * 3


def local():
    class Gate(nn.Linear):
        def __init__(self):
            super().__init__(WIDTH, WIDTH)
            self.activation = lambda x: x.sin()
            self.scale = partial(torch.mul, torch.tensor(2.0))

        def forward(self, x):
            return self.scale(self.activation(super().forward(x)))

    return Gate()


def linear():
    return nn.Linear(WIDTH, WIDTH)


COMES_BACK = {
    "batch norm": {"norm": lambda: BatchNorm(WIDTH)},
    "no gradients": {"norm": lambda: Unused(WIDTH)},
    "no parameters": {"norm": nn.Tanh},
    "a running mean": {"norm": lambda: Centered(WIDTH, True)},
    "ALiBi, slopes in an attribute": {"attention": lambda: Alibi(False)},
    "ALiBi, slopes in a buffer that is not saved": {"attention": lambda: Alibi(True)},
    "a local class, a lambda, a partial": {"feed_forward": local},
    "orthogonal weights": {"feed_forward": lambda: parametrizations.orthogonal(linear())},
    "a spectral norm": {"feed_forward": lambda: parametrizations.spectral_norm(linear())},
    "other waves": {"positions": Waves},
    "a bias for the distance": {"attention": lambda: Near(True), "cross_attention": lambda: plain()},
}


def trainer_of(made, out, **settings):
    """A trainer of a variant with these parts, each made by a function."""
    methods = {name: lambda _, make=make: make() for name, make in made.items()}
    variant("tried")(type("Tried", (Parts,), methods))
    return make_trainer(out, model={"variant": "tried"}, **settings)


@pytest.mark.parametrize("made", COMES_BACK.values(), ids=COMES_BACK)
def test_a_variant_trains_and_resumes_exactly(made, tmp_path):
    trainer = trainer_of(made, tmp_path / "whole", max_steps=10)
    trainer.fit()
    trainer_of(made, tmp_path / "run", max_steps=5).fit()
    trainer_of(made, tmp_path / "run", max_steps=10).fit(resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    loaded = load_model(tmp_path / "run")[0]
    batch = next(trainer.validation.batches.epoch(0))
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    assert torch.equal(trainer.model.eval()(*inputs), loaded(*inputs))


@pytest.mark.parametrize(
    ("norm", "lost"), [(Drawn, "factor"), (lambda width: Centered(width, False), "mean")]
)
def test_a_variant_that_would_not_come_back_is_refused_before_training(norm, lost, tmp_path):
    trainer = trainer_of({"norm": lambda: norm(WIDTH)}, tmp_path)
    with pytest.raises(ValueError, match=rf"would not come back.*layers\.0\..*norm\.{lost} is lost"):
        trainer.fit()
    assert trainer.progress.step == 0


class Unmasked(MultiHeadedAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None)


class Uncausal(MultiHeadedAttention):
    """Every query sees what the last may see."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None else mask[..., -1:, :])


class Near(MultiHeadedAttention):
    """A learned bias for the distance, at first 0: in a search, a single query is not the first."""

    def __init__(self, query_knows_its_place):
        super().__init__(2, WIDTH, 0.0)
        self.bias, self.right = nn.Parameter(torch.zeros(9)), query_knows_its_place

    def attend(self, q, k, v, mask):
        T, S = q.size(-2), k.size(-2)
        first = S - T if self.right else 0
        far = (torch.arange(S) - torch.arange(first, first + T)[:, None]).clamp(-4, 4) + 4
        bias = self.bias[far].expand(len(q), 1, T, S)
        return super().attend(q, k, v, bias if mask is None else bias.masked_fill(~mask, -torch.inf))


class Unstarted(PositionalEncoding):
    def forward(self, x, start=0):
        return super().forward(x)


class OverTime(nn.LayerNorm):
    """Normalize over all positions, padding and the future too."""

    def forward(self, x):
        return super().forward(x - x.mean(1, keepdim=True))


def plain():
    return MultiHeadedAttention(2, WIDTH, 0.0)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"attention": lambda: Unmasked(2, WIDTH), "cross_attention": plain}, "padding in the source"),
        ({"attention": lambda: Uncausal(2, WIDTH)}, "a later target token"),
        ({"cross_attention": lambda: Unmasked(2, WIDTH)}, "padding in the source"),
        ({"norm": lambda: OverTime(WIDTH)}, "padding in the source"),
        ({"attention": lambda: Near(False), "cross_attention": plain}, "one query and all keys"),
        ({"positions": lambda: Unstarted(WIDTH, 0.0)}, "positions get that position as start"),
    ],
)
def test_a_variant_that_would_search_otherwise_than_it_is_trained_is_refused(made, says, tmp_path):
    trainer = trainer_of(made, tmp_path)
    with pytest.raises(ValueError, match=f"'tried' would not translate as it is trained: .*{says}"):
        trainer.fit()
    assert trainer.progress.step == 0


def test_resuming_without_the_variant_asks_for_it_and_deletes_nothing(tmp_path):
    trainer_of(COMES_BACK["batch norm"], tmp_path, max_steps=2).fit()
    del variants.VARIANTS["tried"]
    with pytest.raises(ValueError, match="tried") as caught:
        load_model(tmp_path / "checkpoints" / "step-00000002")
    assert "delete" not in str(caught.value)
