"""The settings of training: their limits, and how a file gives them to the command line."""

import json
from pathlib import Path

import pytest
from command_line import complains
from hypothesis import given
from hypothesis import strategies as st

from annotated.cli.main import parse
from annotated.training.config import TrainingConfig
from annotated.training.schedule import rate


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epochs": 0}, "epochs"),
        ({"precision": "float16"}, "precision"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"clip": float("nan")}, "clip"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"epochs": 2.5}, "epochs"),
        ({"average": True}, "average"),
    ],
)
def test_impossible_settings_are_named(settings, says):
    with pytest.raises(ValueError, match=f"^{says} must be"):
        TrainingConfig(**settings)


def test_presets_give_way_to_settings():
    assert TrainingConfig.base() == TrainingConfig()
    assert TrainingConfig.big().max_steps == 300_000
    assert TrainingConfig.tiny(warmup=7).warmup == 7


@pytest.mark.parametrize(("preset", "d_model"), [("base", 512), ("big", 1024)])
def test_the_papers_presets_have_its_schedule(preset, d_model):
    settings = getattr(TrainingConfig, preset)()
    warmup = settings.warmup_in(settings.max_steps)
    assert warmup == 4000
    assert settings.learning_rate == pytest.approx(rate(4000, d_model, 1.0, 4000), rel=1e-3)


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_warmup_that_is_not_given_ends_within_the_run(updates, given):
    warmup = TrainingConfig().warmup_in(updates)
    assert 1 <= warmup <= max(1, updates // 2)
    assert warmup <= TrainingConfig().warmup_in(updates + 1)
    assert TrainingConfig(warmup=given).warmup_in(updates) == given


def config(tmp_path, value):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_file_gives_settings_and_flags_win(tmp_path):
    values = {
        "out": "x",
        "epochs": 7,
        "warmup": 9,
        "norm_first": True,
        "compile": False,
        "src": None,
        "seed": 3,
        "beta_1": 0.5,
    }
    path = config(tmp_path, values)
    args = parse(["train", "--config", str(path), "--warmup", "11", "--no-norm-first"])
    assert (args.epochs, args.warmup, args.norm_first, args.compile) == (7, 11, False, False)
    assert (args.seed, args.beta_1, args.src, args.out) == (3, 0.5, None, Path("x"))


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({"epocs": 3}, ["unrecognized arguments: --epocs=3"]),
        ({"epochs": "many"}, ["--epochs", "'many'"]),
        ({"epochs": 2.5}, ["--epochs", "'2.5'"]),
        ({"epochs": True}, ["--epochs"]),
        ({"norm_first": 1}, ["--norm-first"]),
        ({"preset": "huge"}, ["'huge'", "tiny"]),
        ([1], ["settings.json", "JSON object"]),
    ],
)
def test_a_wrong_setting_in_a_file(value, parts, tmp_path, capfd):
    complains(["train", "--out", tmp_path / "o", "--config", config(tmp_path, value)], capfd, *parts)
