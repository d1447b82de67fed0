"""A variant trains, saves, loads, resumes and evaluates alike, or is refused before the first update."""

from functools import partial

import pytest
import torch
from tiny_runs import make_trainer, weights
from torch import nn

from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.layers import PositionwiseFeedForward
from annotated.transformer.parts import VARIANTS, Parts, variant
from annotated.transformer.positions import PositionalEncoding
from annotated.translation.model_folder import load_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def registered():
    before = dict(VARIANTS)
    yield
    VARIANTS.clear()
    VARIANTS.update(before)


class Scaled(nn.Module):
    """A feed-forward network times a table, which is kept in one way or another."""

    def __init__(self, config, kept):
        super().__init__()
        self.inner = PositionwiseFeedForward(config.d_model, config.d_ff)
        table = torch.linspace(0.5, 1.5, config.d_model)
        if kept == "attribute":
            self.table = table
        elif kept == "frozen":
            self.table = nn.Parameter(table, requires_grad=False)
        else:
            self.register_buffer("table", table, persistent=kept == "persistent")

    def forward(self, x):
        return self.inner(x) * self.table


class RunningNorm(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Halved(PositionalEncoding):
    """Positions of half the size: a buffer of the same name as the paper's, with other content."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.pe = self.pe / 2


class Unused(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.never = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.norm(x)


class Activated(nn.Module):
    def __init__(self, width, function):
        super().__init__()
        self.linear, self.function = nn.Linear(width, width), function

    def forward(self, x):
        return self.function(self.linear(x))


def local_class(config):
    class Local(nn.LayerNorm):
        pass

    return Local(config.d_model)


def parametrised(config):
    module = PositionwiseFeedForward(config.d_model, config.d_ff)
    nn.utils.parametrizations.weight_norm(module.w_1)
    return module


def own_forward(config):
    module = PositionwiseFeedForward(config.d_model, config.d_ff)
    module.forward = lambda x: PositionwiseFeedForward.forward(module, x) * 2
    return module


PARTS = {
    "persistent buffer": {"feed_forward": partial(Scaled, kept="persistent")},
    "other buffer": {"feed_forward": partial(Scaled, kept="computed")},
    "plain tensor": {"feed_forward": partial(Scaled, kept="attribute")},
    "frozen parameter": {"feed_forward": partial(Scaled, kept="frozen")},
    "unused parameter": {"norm": lambda config: Unused(config.d_model)},
    "running statistics": {"norm": lambda config: RunningNorm(config.d_model)},
    "other positions": {"positions": lambda config: Halved(config.d_model, config.dropout, config.max_len)},
    "lambda": {"feed_forward": lambda config: Activated(config.d_model, lambda x: x * x.sigmoid())},
    "partial": {"feed_forward": lambda config: Activated(config.d_model, partial(torch.clamp, min=-1))},
    "local class": {"norm": local_class},
    "parametrisation": {"feed_forward": parametrised},
    "own forward": {"feed_forward": own_forward},
}


def register(methods):
    variant("tried")(
        type(
            "Tried",
            (Parts,),
            {name: lambda self, build=build: build(self.config) for name, build in methods.items()},
        )
    )


@pytest.mark.parametrize("methods", PARTS.values(), ids=PARTS)
def test_a_variant_trains_and_resumes_exactly_or_is_refused_at_once(methods, tmp_path):
    register(methods)
    trainer = make_trainer(tmp_path / "whole", model={"parts": "tried"}, max_steps=10)
    try:
        trainer.fit()
    except ValueError:
        assert trainer.progress.step == 0
        assert not list((tmp_path / "whole").glob("checkpoints/*"))
        pytest.xfail("refused before the first update")
    make_trainer(tmp_path / "run", model={"parts": "tried"}, max_steps=5).fit()
    make_trainer(tmp_path / "run", model={"parts": "tried"}, max_steps=10).fit(resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    loaded = load_model(tmp_path / "run")[0]
    batch = next(trainer.validation.batches.epoch(0))
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    assert torch.equal(trainer.model.eval()(*inputs), loaded(*inputs))


class Drawn(nn.Module):
    """It multiplies by a number that no setting, parameter or buffer tells."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.factor = nn.LayerNorm(width), [torch.rand(()).item()]

    def forward(self, x):
        return self.norm(x) * self.factor[0]


def test_a_model_that_would_come_back_as_another_is_refused_by_the_name_of_the_module(tmp_path):
    register({"norm": lambda config: Drawn(config.d_model)})
    trainer = make_trainer(tmp_path, model={"parts": "tried"})
    with pytest.raises(ValueError, match=r"^encoder\.layers\.0\.sublayer\.0\.norm "):
        trainer.fit()
    assert trainer.progress.step == 0


def test_a_part_put_in_by_hand_is_refused_before_training(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model.encoder.layers[0].self_attn = MultiHeadedAttention(4, 16)  # the settings say 2 heads
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.self_attn"):
        trainer.fit()


def test_resuming_without_the_variant_asks_for_it_and_deletes_nothing(tmp_path):
    register(PARTS["other buffer"])
    make_trainer(tmp_path, model={"parts": "tried"}, max_steps=2).fit()
    del VARIANTS["tried"]
    with pytest.raises(ValueError, match="tried") as caught:
        load_model(tmp_path / "checkpoints" / "step-00000002")
    assert "delete" not in str(caught.value)
