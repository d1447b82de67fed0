"""What the command line refuses: numbers out of range, unknown names, files that hold no settings."""

import json
import re
import tomllib
from dataclasses import asdict, fields

import pytest
from command_line import complains, ends

from annotated import interop
from annotated.cli.flags import PRESETS, flag_fields, flag_of, is_positional, kind_of
from annotated.cli.main import BY_HAND, make_parser, parse
from annotated.cli.options import COMMANDS, Data, Engine, Everywhere, Export
from annotated.interop.ctranslate2 import QUANTIZATIONS
from annotated.training.config import HINTS, TrainingConfig
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


def test_files_and_flags_come_in_any_order(capfd):
    args = parse(["translate", "a", "--model", "m", "b", "--beam", "2", "-", "--n-best", "2"])
    assert [str(path) for path in args.files] == ["a", "b", "-"]
    assert (args.model, args.beam, args.n_best) == ("m", 2, 2)
    assert [str(path) for path in parse(["average", "a", "--out", "o", "b"]).checkpoints] == ["a", "b"]
    complains(["train", "--out", "o", "more"], capfd, "unexpected more (see annotated train --help)")


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
    for theirs, ours in (map(flag_of, names) for names in HINTS.items()):
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
        ("[[train]]\nepochs = 1\n", "train must be one value, not [{'epochs': 1}]"),
        ({"val_src": "a\0b"}, r"val_src is 'a\x00b', which is no text"),
        ({"init_from": "\ud800"}, r"init_from is '\ud800', which is no text"),
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


@pytest.mark.parametrize("flag", ["--out", "--src", "--config"])
def test_an_empty_name_is_not_the_folder_here(flag, capfd):
    complains(["train", flag, ""], capfd, f"argument {flag}: the name is empty")


def test_names_that_are_not_utf8_are_refused_at_once(capfd):
    for flag in ("--out", "--src"):
        complains(["train", flag, "a\udcff"], capfd, r"'a\udcff' is not UTF-8")


# ---- the classes that flags are made of


def test_each_flag_is_described_in_a_word_or_more():
    for name, command in make_parser().commands.items():
        declared = [field for settings in COMMANDS[name].groups.values() for field in flag_fields(settings)]
        names = [field.name for field in declared]
        assert len(names) == len(set(names))
        assert {flag_of(field.name) for field in declared if not is_positional(field)} <= set(command.flags)
        assert all(field.metadata["help"] for field in declared)


def test_each_setting_of_model_and_training_is_a_flag():
    for settings, apart in ((TransformerConfig, {"src_vocab", "tgt_vocab"}), (TrainingConfig, {"seed"})):
        flags = {field.name for field in flag_fields(settings)}
        assert flags | apart == {field.name for field in fields(settings)}
    assert "seed" in {field.name for field in flag_fields(Everywhere)}


def test_choices_are_those_of_the_modules_that_take_them():
    """They are written twice, because these modules load PyTorch, and `--help` must not."""
    kinds = {
        field.name: kind_of(field.type) for settings in (Data, Engine, Export) for field in fields(settings)
    }
    assert all(callable(getattr(interop, f"to_{name}")) for name in kinds["to"]["choices"])
    assert kinds["quantization"]["choices"] == QUANTIZATIONS


# ---- a file of all settings


def printed(arguments, capfd):
    assert ends([*arguments, "--print-config"]) == 0
    return capfd.readouterr().out


GIVEN = {
    "train": '--out a"b --N 3 --preset big --learning-rate 1e-9 --norm-first --no-compile --seed 4',
    "translate": "--model m --beam 7 --tokenized --n-best 2",
    "evaluate": "--model m --penalty power --split test --save ä.txt --alpha 0",
    "average": "--out o --device cpu",
    "export": "--model m --to onnx --out o",
    "reproduce": "--seed 3",
    "check": "--hints 2 --csv c.csv",
    "build": "",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_printed_file_gives_the_settings_that_were_given(name, tmp_path, capfd):
    positional = {"average": ["a", "b"], "reproduce": ["r"], "build": ["d"]}.get(name, [])
    path = settings_file(tmp_path, printed([name, *GIVEN[name].split()], capfd))
    ours = vars(parse([name, "--config", str(path), *positional]))
    by_hand = vars(parse([name, *GIVEN[name].split(), *positional]))
    assert ours == {**by_hand, "config": path}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_printed_file_holds_what_is_taken_for_the_rest(preset, tmp_path, capfd):
    text = printed(["train", "--preset", preset], capfd)
    shown = tomllib.loads(re.sub(r"^#(?=\w+ = .)", "", text, flags=re.MULTILINE))
    assert shown["preset"] == preset
    for config in (getattr(TransformerConfig, preset)(9, 9), getattr(TrainingConfig, preset)()):
        wanted = asdict(config)
        assert {name: shown[name] for name in wanted if name in shown} == {
            name: value for name, value in wanted.items() if name not in ("src_vocab", "tgt_vocab")
        }
    for settings in COMMANDS["train"].groups.values():
        for field in flag_fields(settings):
            assert (f"\n# {field.metadata['help']}" in text) == (field.name not in BY_HAND)


def test_a_file_does_not_name_a_file_to_execute(tmp_path, capfd):
    (tmp_path / "o").mkdir()
    path = settings_file(tmp_path / "o", {"variants": "evil.py"})
    path.rename(tmp_path / "o" / "training.json")
    says = "--variants is given by hand, not in a file"
    for asked in (["--resume"], ["--config", tmp_path / "o" / "training.json"]):
        complains(["train", "--out", tmp_path / "o", *asked], capfd, says)
