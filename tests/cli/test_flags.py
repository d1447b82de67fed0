"""What the command line refuses: numbers out of range, unknown names, files that hold no settings."""

import inspect
import json

import pytest
from command_line import complains, ends

from annotated.cli.parser import HINTS, field_comments, make_parser, parse
from annotated.training.config import TrainingConfig
from annotated.transformer.model import TransformerConfig


@pytest.mark.parametrize(
    ("command", "flag", "values"),
    [
        ("translate --model m", "--beam", ["0", "-3", "1000000", "9" * 30, "2.5", "abc"]),
        ("evaluate --model m", "--beam", ["0", "1000000"]),
        ("translate --model m", "--alpha", ["-1", "1000", "nan", "inf", "1e400", "abc"]),
        ("translate --model m", "--threads", ["-1", "4294967295", "x"]),
        ("train --out o", "--vocab", ["0", "-5", "2147483647", "99999999999999"]),
        ("train --out o", "--seed", ["-1", str(2**32)]),
    ],
)
def test_numbers_out_of_range_are_refused_before_any_work(command, flag, values, capfd):
    for value in values:
        complains([*command.split(), flag, value], capfd, f"argument {flag}: must be a", repr(value))


def test_numbers_in_range_are_taken():
    args = parse(["translate", "--model", "m", "--beam", "256", "--alpha", "0", "--threads", "1"])
    assert (args.beam, args.alpha, args.threads) == (256, 0.0, 1)


def test_an_unknown_flag_is_told_with_its_nearest_and_the_right_help(capfd):
    for given, meant in {
        "--droput": "--dropout",
        "--max-step=5": "--max-steps",
        "--d_model": "--d-model",
    }.items():
        complains(
            ["train", "--out", "o", given, "1"],
            capfd,
            f"{given}; did you mean {meant}?",
            "annotated train --help",
        )
    complains(
        ["translate", "--model", "m", "--bean", "1"],
        capfd,
        "mean --beam?",
        "(see annotated translate --help)",
    )
    err = complains(
        ["train", "--out", "o", "--zzzz"], capfd, "unknown setting --zzzz (see annotated train --help)"
    )
    assert "did you mean" not in err


def test_what_others_call_it(capfd):
    known = make_parser().commands["train"].flags
    for theirs, ours in HINTS.items():
        assert theirs not in known
        if ours in known:
            complains(["train", "--out", "o", theirs, "1"], capfd, f"{theirs}; did you mean {ours}?")


def settings_file(folder, content):
    path = folder / ("c.toml" if isinstance(content, str) else "c.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"droput": 0.1}, "unknown setting 'droput'; did you mean --dropout?"),
        ({"lr": None}, "unknown setting 'lr'"),
        ({"a b": 1}, "unknown setting 'a b'"),
        ({"": 1}, "unknown setting ''"),
        ({"help": True}, "--help is given by hand, not in a file"),
        ({"version": True}, "--version is given by hand"),
        ({"config": "other.json"}, "--config is given by hand"),
        ({"resume": True}, "--resume is given by hand"),
        ({"out": ["a", "b"]}, "out must be one value, not ['a', 'b']"),
        ({"vocab": {"a": 1}}, "'vocab' is no table of settings; those are train, translate, "),
        ({"train": 5, "x": {}}, "'train' is no table"),
        ({"seed": 1, "train": {"epochs": 1}}, "'seed' is no table"),
        ({"translate": {"beam": 1}}, "has tables, but none for train"),
        ({"train": {"vocab": {"a": 1}}}, "vocab must be one value, not {'a': 1}"),
        ("a = " + "[" * 5000, "is not valid TOML: maximum recursion depth"),
    ],
)
def test_a_file_of_settings_says_what_it_may_not_hold(content, says, tmp_path, capfd):
    path = settings_file(tmp_path, content)
    complains(["train", "--out", tmp_path / "o", "--config", path], capfd, str(path), says)
    assert not (tmp_path / "o").exists()


def test_settings_come_from_a_file(tmp_path):
    path = settings_file(
        tmp_path, "[train]\nepochs = 3\nN = 2\ncompile = true\ntensorboard = false\n[card]\nx = 1\n"
    )
    args = parse(["train", "--out", "o", "--config", str(path), "--N", "4"])
    assert (args.epochs, args.N, args.compile, args.tensorboard) == (3, 4, True, False)


def test_a_run_is_resumed_with_its_settings_though_a_file_names_it(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "training.json").write_text(json.dumps({"vocab": 320, "epochs": 2, "path": None}))
    path = settings_file(tmp_path, {"out": str(run), "epochs": 7})
    args = parse(["train", "--config", str(path), "--resume"])
    assert (args.vocab, args.epochs, args.out, args.resume) == (320, 7, run, True)
    (run / "training.json").write_text(json.dumps({"help": True}))
    with pytest.raises(SystemExit) as error:
        parse(["train", "--config", str(path), "--resume"])
    assert error.value.code == 2


def test_names_that_are_not_utf8_are_refused_at_once(capfd):
    for flag in ("--out", "--src"):
        complains(["train", flag, "a\udcff"], capfd, r"'a\udcff' is not UTF-8")


def test_each_setting_is_described_and_without_sources_too(capfd, monkeypatch):
    for settings in (TransformerConfig, TrainingConfig):
        assert set(settings.__dataclass_fields__) == set(field_comments(settings))

    def no_source(_):
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", no_source)
    assert ends(["train", "--help"]) == 0
    assert "--warmup INT" in capfd.readouterr().out
