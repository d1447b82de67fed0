"""Flags, files of settings, and what of both is refused."""

import ast
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import complains, ends

import annotated
from annotated.transformer.config import TransformerConfig
from annotated.translation.cli.flags import SHOWN_FLAGS
from annotated.translation.cli.main import COMMAND_LINE_ONLY, make_parser, parse
from annotated.translation.training.config import TrainingConfig


def test_each_setting_of_model_and_training_is_a_flag_with_its_comment_as_help():
    actions = {action.dest: action for action in make_parser()[1]["train"]._actions}
    for settings in (TransformerConfig, TrainingConfig):
        for field in fields(settings):
            if not field.name.endswith("_vocab"):
                assert re.match(r"\w.+\(.+\)$", actions[field.name].help)


def test_files_and_flags_come_in_any_order(capfd):
    args = parse(["translate", "a", "--model", "m", "b", "--beam", "2", "-", "--n-best", "2"])
    assert [str(path) for path in args.files] == ["a", "b", "-"]
    assert (args.model, args.beam, args.n_best) == ("m", 2, 2)
    assert [str(path) for path in parse(["average", "a", "--out", "o", "b"]).checkpoints] == ["a", "b"]
    complains(["train", "--out", "o", "a.csv"], capfd, "arguments: a.csv; did you mean --src a.csv?")
    complains(["evaluate", "--model", "m", "a.csv"], capfd, "arguments: a.csv; did you mean --src a.csv?")
    complains(["train", "--out", "o", "--src", "a.csv", "b.csv"], capfd, "arguments: b.csv\n")
    complains(["train", "--out", "o", "--droput", "0.1"], capfd, "did you mean --dropout?\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train --src a.csv --out o --src b.csv", "--src is given twice; give it once; a recipe"),
        ("train --src a.csv --out o --keep-equal --no-keep-equal", "--keep-equal/--no-keep-equal is given"),
        ("translate --model=a --model=b", "--model is given twice; give it once\n"),
        ("evaluate --model a --src b.csv --src=c.csv", "--src is given twice; give it once\n"),
        ("check a.py --hints 1 --config c.toml --hints 2", "--hints is given twice"),
    ],
)
def test_a_flag_that_another_would_replace_is_refused(arguments, says, capfd):
    complains(arguments.split(), capfd, says)


def test_flags_that_add_up_are_given_again_and_those_of_a_file_are_replaced(tmp_path):
    path = settings_file(tmp_path, 'metric = ["cer"]\nbeam = 2\n')
    asked = ["evaluate", "--model=m", "--metric=wer", "--metric", "exact", "--beam=3", f"--config={path}"]
    assert (parse(asked).metric, parse(asked).beam) == (["cer", "wer", "exact"], 3)


def test_the_usage_of_a_command_names_what_it_needs_and_no_flag():
    commands = make_parser()[1]
    assert commands["train"].usage == "annotated train [FLAG ...]"
    assert commands["reproduce"].usage == "annotated reproduce RECIPE [FLAG ...]"
    assert commands["check"].usage == "annotated check [FILE.py ...] [FLAG ...]"
    assert commands["average"].usage == "annotated average FOLDER [FOLDER ...] [FLAG ...]"


@pytest.mark.parametrize("command", SHOWN_FLAGS)
def test_help_shows_the_most_used_flags_and_how_to_see_all(command, capfd):
    actions = make_parser()[1][command]._actions
    flags = {flag: action.dest for action in actions for flag in action.option_strings[-2:]}
    shown = {}
    for asked in ("--help", "--help-all"):
        assert ends([command, asked]) == 0
        out = capfd.readouterr().out
        shown[asked] = set(re.findall(r"^  (?:-h, )?(--[\w-]+)", out, flags=re.MULTILINE))
    assert {flags[flag] for flag in shown["--help"]} == SHOWN_FLAGS[command] & set(flags.values())
    assert "--help-all" in shown["--help"]
    assert len(shown["--help"]) <= 20 < len(shown["--help-all"])
    assert {flags[flag] for flag in shown["--help-all"]} == set(flags.values())


def test_messages_name_flags_that_there_are_and_what_python_has_in_their_place():
    flags = {flag for command in make_parser()[1].values() for flag in command._option_string_actions}
    for path in Path(annotated.__file__).parent.rglob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.Raise | ast.Assign | ast.AugAssign | ast.Call | ast.Return):
                constants = (node.value for node in ast.walk(statement) if isinstance(node, ast.Constant))
                text = " ".join(value for value in constants if isinstance(value, str))
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
                assert named <= flags, text
                both = path.parent.name == "cli" or re.search("in Python|command line|verbose=True", text)
                assert both or not named, text


def settings_file(folder, content):
    path = folder / ("c.toml" if isinstance(content, str) else "c.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"droput": 0.1}, "unrecognized arguments: --droput"),
        ({"vocab": {"a": 1}}, "no table for train"),
        ({"seed": 1, "train": {"epochs": 1}}, "outside of tables"),
        ({"translate": {"beam": 1}}, "no table for train"),
        ({"epochs": "many"}, "argument --epochs: invalid int value"),
        ({"compile": 3}, "argument --compile/--no-compile: ignored"),
        *(({name: True}, "given by hand") for name in COMMAND_LINE_ONLY if name != "adapter"),
    ],
)
def test_a_file_of_settings_says_what_it_may_not_hold(content, says, tmp_path, capfd):
    path = settings_file(tmp_path, content)
    complains(["train", "--out", tmp_path / "o", "--config", path], capfd, f"error: {path}: ", says)
    assert not (tmp_path / "o").exists()


def test_a_file_of_a_run_or_of_a_model_says_what_it_is_for(tmp_path, capfd):
    run, model = tmp_path / "training.json", tmp_path / "config.json"
    model.write_text('{"format": 1, "model": {"N": 1}}')
    err = complains(["train", "--out", "o", "--config", model], capfd, f"{model}: it has tables")
    assert "training.json" not in err
    run.write_text('{"metric": "loss", "vocab": 320}')
    complains(["train", "--out", "o", "--config", model], capfd, f"the settings of a run are in {run}")
    for command in ("evaluate", "translate"):
        says = f"{run}: the settings of a run are for annotated train"
        complains([command, "--model", "m", "--config", run], capfd, says)


def test_flags_win_over_the_file_and_that_over_the_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    settings = {
        "vocab": 320,
        "epochs": 2,
        "keep": 3,
        "src": None,
        "compile": False,
        "lengths": {"source": 9},
    }
    (run / "training.json").write_text(json.dumps(settings))
    path = settings_file(tmp_path, f'[train]\nout = "{run}"\nepochs = 7\nkeep = 8\n[card]\nx = 1\n')
    args = parse(["train", "--config", str(path), "--resume", "--keep", "9"])
    assert (args.vocab, args.epochs, args.keep, args.out, args.resume) == (320, 7, 9, run, True)
    assert (args.compile, args.src) == (False, None)


@pytest.mark.parametrize("in_file", [False, True])
def test_a_home_is_found_where_the_shell_leaves_its_sign(in_file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))  # on Windows
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "training.json").write_text('{"vocab": 320}')
    settings_file(tmp_path, 'out = "~/run"\n')
    args = parse(["train", "--resume", "--config=~/c.toml" if in_file else "--out=~/run"])
    assert (args.out, args.vocab) == (tmp_path / "run", 320)


def test_the_settings_of_a_run_may_be_copied_under_any_name(tmp_path):
    path = settings_file(tmp_path, {"vocab": 320, "lengths": {"source": 9, "max_extra": 50}})
    assert parse(["train", "--config", str(path), "--out", "o"]).vocab == 320


def test_a_file_does_not_name_a_file_to_execute(tmp_path, capfd):
    (tmp_path / "training.json").write_text(json.dumps({"variants": "evil.py"}))
    for asked in (["--resume"], ["--config", tmp_path / "training.json"]):
        complains(["train", "--out", tmp_path, *asked], capfd, "--variants is given by hand, not in a file")
