"""The settings that are chosen for a time: what is measured, and what is made of it."""

import re
from itertools import count

import pytest
import torch
from tiny_runs import CATS

from annotated.translation.data import own_text
from annotated.translation.tokenizers import train_tokenizer
from annotated.translation.training import auto_settings as rules
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.summed_loss import SummedLoss

pytestmark = pytest.mark.usefixtures("one_thread")


def chosen(pairs=CATS, minutes=10, **given):
    """What is chosen for this time on a machine whose speed is always the same."""
    ticks, text = count(), own_text(pairs, "train")
    kinds = "subwords", "subwords"
    return rules.choose_settings(text, kinds, minutes, given, torch.device("cpu"), lambda: next(ticks))


def test_updates_of_several_batches_read_what_those_of_one_read():
    alone, together = (chosen(max_tokens=256, accumulate=n)[0] for n in (1, 8))
    assert together["max_steps"] == pytest.approx(alone["max_steps"] / 8, abs=1)
    assert "updates of 2,048 tokens" in chosen(max_tokens=256, accumulate=8)[1]


def test_the_vocabulary_holds_the_characters_of_the_text_however_rare():
    pairs = [(f"the cat {i}", f"猫{chr(0x4E00 + i)}") for i in range(9000)]
    settings, _ = chosen(pairs, N=1, d_model=16, d_ff=16, h=2)
    sides = (side for pair in pairs for side in pair)
    assert len(train_tokenizer("subwords", sides, settings["vocab"])) <= settings["vocab"]


def test_whole_words_serve_where_hardly_a_word_is_rare():
    closed = [(f"word{i % 2000}", f"Wort{i % 2000}") for i in range(20_000)]
    mixed = [(f"{a} {i}", b) for i, (a, b) in enumerate(closed)]
    assert rules.vocabulary(own_text(closed, "train")) > 4000 > rules.vocabulary(own_text(mixed, "train"))


def test_post_norm_has_a_lower_rate_and_says_so():
    (before, told), (after, why) = chosen(), chosen(norm_first=False)
    assert after["learning_rate"] < before["learning_rate"]
    assert "pre-norm" in told
    assert "pre-norm" not in why


def test_the_last_checkpoints_are_of_the_end_of_the_run_however_long_an_epoch_is():
    for settings in (chosen()[0], chosen(max_steps=900)[0]):
        assert TrainingConfig.average * settings["save_every"] < settings["max_steps"] / 4
    assert chosen(save_every=0)[0]["save_every"] == 0


def test_the_ends_of_short_epochs_take_their_part_of_the_time():
    short, long = (chosen([(f"a {i}", f"b {i}") for i in range(n)], max_tokens=256)[0] for n in (50, 5000))
    assert short["max_steps"] < long["max_steps"] / 2


def test_epochs_that_are_given_are_run_unless_the_minutes_end_them():
    many, _ = chosen(minutes=None, epochs=50_000)
    ended, _ = chosen(minutes=10, epochs=50_000)
    _, reason = chosen(minutes=None, epochs=3)
    assert many["max_steps"] > 100 * ended["max_steps"]
    assert many["dropout"] > 0
    assert "read 3.0 times" in reason


def test_updates_that_are_given_decide_how_often_the_text_is_read():
    (few, told), (many, why) = chosen(max_steps=1, max_tokens=256), chosen(max_steps=1000, max_tokens=256)
    assert few["dropout"] == 0 < many["dropout"]
    once, often = (re.search(r"read ([\d.,]+) times", said)[1].replace(",", "") for said in (told, why))
    assert float(often) == pytest.approx(1000 * float(once), rel=0.1)


def test_the_step_that_is_measured_is_the_one_that_is_trained(monkeypatch):
    steps = []

    class Seen(SummedLoss):
        def forward(self, *inputs):
            steps.append((self.rdrop_weight, torch.get_float32_matmul_precision()))
            return super().forward(*inputs)

    monkeypatch.setattr(rules, "SummedLoss", Seen)
    chosen(rdrop_weight=2.5, precision="bf16")
    assert {*steps} == {(2.5, "medium")}
