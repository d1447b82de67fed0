"""The settings of training: their limits, and how a file gives them to the command line."""

import json
from pathlib import Path

import pytest
from test_commands import complains

from annotated.__main__ import parse
from annotated.settings import TrainingConfig


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"max_steps": -1}, "max_steps must be at least 1, not -1"),
        ({"keep": 2, "average": 3}, "average must be from 0 to keep, which is 2, not 3"),
        ({"precision": "float16"}, "precision must be float32 or bf16, not 'float16'"),
        ({"smoothing": 1.0}, r"smoothing must be in \[0, 1\), not 1.0"),
        ({"clip": -1.0}, "clip must be 0 or more, not -1.0"),
        ({"clip": float("nan")}, "clip must be 0 or more, not nan"),
        ({"factor": 0.0}, "factor must be above 0, not 0.0"),
        ({"factor": float("nan")}, "factor must be above 0, not nan"),
    ],
)
def test_impossible_settings_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        TrainingConfig(**settings)


def test_presets_give_way_to_settings():
    assert TrainingConfig.base() == TrainingConfig()
    assert TrainingConfig.big().max_steps == 300_000
    assert TrainingConfig.tiny(warmup=7).warmup == 7


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
        ({"epocs": 3}, ["settings.json", "unknown setting --epocs"]),
        ({"epochs": "many"}, ["--epochs", "'many'"]),
        ({"epochs": 2.5}, ["--epochs", "'2.5'"]),
        ({"epochs": [3]}, ["--epochs", "'[3]'"]),
        ({"epochs": True}, ["--epochs"]),
        ({"norm_first": 1}, ["--norm-first"]),
        ({"preset": "huge"}, ["'huge'", "tiny"]),
        ([1], ["settings.json", "JSON object"]),
    ],
)
def test_a_wrong_setting_in_a_file(value, parts, tmp_path, capfd):
    complains(["train", "--out", tmp_path / "o", "--config", config(tmp_path, value)], capfd, *parts)


def test_a_file_of_settings_that_cannot_be_read(tmp_path, capfd):
    complains(["train", "--out", "x", "--config", tmp_path / "no.json"], capfd, "no.json")
    (tmp_path / "bad.json").write_bytes(b"{")
    complains(["train", "--out", "x", "--config", tmp_path / "bad.json"], capfd, "bad.json is not valid JSON")
    complains(["train", "--out", "x", "--config"], capfd, "--config")
