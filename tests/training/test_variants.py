"""A variant trains, saves and resumes alike, or is refused before the first update."""

import pytest
import torch
from tiny_runs import make_trainer, weights
from torch import nn

from annotated.storage.model_folder import load_model
from annotated.transformer import parts
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.parts import VARIANTS, Parts, variant

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr("annotated.transformer.parts.VARIANTS", dict(VARIANTS))


class BatchNorm(nn.BatchNorm1d):
    """Its running statistics are buffers."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Unused(nn.Module):
    """Some of its parameters never have a gradient."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.never = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.norm(x)


class Centered(nn.Module):
    """Subtract what training has seen; the mean is a buffer that is saved, or not."""

    def __init__(self, width, persistent):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mean", torch.zeros(width), persistent=persistent)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(dim=(0, 1)), 0.1)
        return self.norm(x - self.mean)


class Drawn(nn.Module):
    """Multiply by a number that no setting, parameter or buffer tells."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.factor = nn.LayerNorm(width), torch.rand(()).item()

    def forward(self, x):
        return self.norm(x) * self.factor


def register(norm):
    """Register a variant whose norms are made by a function of the width."""
    variant("tried")(type("Tried", (Parts,), {"norm": lambda self: norm(self.config.d_model)}))


@pytest.mark.parametrize("norm", [BatchNorm, Unused, lambda width: Centered(width, True)])
def test_a_variant_trains_and_resumes_exactly(norm, tmp_path):
    register(norm)
    trainer = make_trainer(tmp_path / "whole", model={"parts": "tried"}, max_steps=10)
    trainer.fit()
    make_trainer(tmp_path / "run", model={"parts": "tried"}, max_steps=5).fit()
    make_trainer(tmp_path / "run", model={"parts": "tried"}, max_steps=10).fit(resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    loaded = load_model(tmp_path / "run")[0]
    batch = next(trainer.validation.batches.epoch(0))
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    assert torch.equal(trainer.model.eval()(*inputs), loaded(*inputs))


@pytest.mark.parametrize("norm", [Drawn, lambda width: Centered(width, False)])
def test_a_variant_that_would_not_come_back_is_refused_before_training(norm, tmp_path):
    register(norm)
    trainer = make_trainer(tmp_path, model={"parts": "tried"})
    with pytest.raises(ValueError, match="would not come back"):
        trainer.fit()
    assert trainer.progress.step == 0


def test_a_part_put_in_by_hand_is_refused_before_training(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model.encoder.layers[0].self_attn = MultiHeadedAttention(4, 16)  # the settings say 2 heads
    with pytest.raises(ValueError, match="would not come back"):
        trainer.fit()


def test_resuming_without_the_variant_asks_for_it_and_deletes_nothing(tmp_path):
    register(BatchNorm)
    make_trainer(tmp_path, model={"parts": "tried"}, max_steps=2).fit()
    del parts.VARIANTS["tried"]
    with pytest.raises(ValueError, match="tried") as caught:
        load_model(tmp_path / "checkpoints" / "step-00000002")
    assert "delete" not in str(caught.value)
