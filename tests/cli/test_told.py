"""What was given has an effect or is refused; what is cut, unknown or too long is told, with counts."""

import csv
import errno
import json
from pathlib import Path
from unittest import mock

import pytest
import torch
from command_line import TINY, complains, ends, feed
from tiny_runs import CATS

from annotated import train
from annotated.translation.cli.main import main
from annotated.translation.files import read_json, write_json
from annotated.translation.translator import Translator

WORDS = "delta", "juliett", "india", "charlie"
ROWS = [
    (" ".join(digits), " and then ".join(WORDS[int(digit) % 4] for digit in digits))
    for digits in (f"{i:04}" for i in range(0, 10_000, 170))
]
NO_BREAK = "\u00a0"
UNITS = {"src_tokenizer": "spaces", "tgt_tokenizer": "chars"}
SIZES = {"preset": "tiny", "N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_tokens": 500, "max_steps": 1}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A run whose targets are much longer than their sources, which has learned nothing."""
    folder = tmp_path_factory.mktemp("numbers") / "run"
    train(ROWS, folder, **UNITS, **SIZES)
    return folder


def endless(folder):
    """Its translator, with an end symbol that is never likely."""
    translator = Translator.load(folder)
    with torch.no_grad():
        translator.model.generator.proj.bias[1] = -1e9
    return translator


def test_a_translation_may_be_as_long_as_those_of_the_training(numbers):
    translator = endless(numbers)
    longest = max(len(tgt) - len(src.split()) for src, tgt in ROWS)
    assert translator.limits.max_extra == longest > 50
    with pytest.warns(
        UserWarning, match=r"1 of 2 lines, the first line 1: translations that were cut.*max_extra"
    ):
        found = translator.translate([ROWS[0][0], ""], beam=1)
    assert len(found[0]) == len(ROWS[0][0].split()) + 1 + longest - 1  # with both end symbols
    with pytest.warns(UserWarning, match="1 of 1 lines, the first line 1: translations that were cut"):
        assert Translator.load(numbers, max_target=1)(ROWS[0][0]) == ""  # there is room for the end alone


def test_what_was_cut_unknown_or_longer_than_any_source_is_told_with_counts(numbers, monkeypatch, capfd):
    feed(monkeypatch, "1 2\n3 x 你\n\n0 0 0 0 0\n".encode())
    assert main(["translate", "--model", str(numbers), "--beam", "1", "--max-extra", "1"]) == 0
    told = capfd.readouterr().err
    assert "1 of 4 lines, the first line 2: symbols that the model never saw, such as 'x 你'" in told
    assert "1 of 4 lines, the first line 4: more than the 5 tokens of the longest source in training" in told
    assert "cut at their limit" in told


def test_positions_that_were_learned_end_a_translation_and_a_training_pair(tmp_path, capfd):
    sizes = {**SIZES, "positions": "learned"}
    with pytest.raises(
        ValueError, match=r"more than 39 tokens \(max_sentence, max_tokens and.*positions bound"
    ):
        train(ROWS, tmp_path / "short", **UNITS, **sizes, max_len=40)
    train(ROWS, tmp_path / "run", **UNITS, **sizes, max_len=90)
    with pytest.warns(UserWarning, match="were cut at their limit; .*max_target; the model has 90 positions"):
        endless(tmp_path / "run")(ROWS[0][0], beam=1)


def test_what_the_vocabularies_lack_is_told_at_training_and_is_never_right(tmp_path, capfd):
    words = [(f"a{i} b", f"c{i} d") for i in range(60)]  # half of the words occur once
    train(
        words, tmp_path / "run", tokenizer="words", **{**SIZES, "max_steps": 40}, learning_rate=0.05, warmup=4
    )
    told = capfd.readouterr().err
    assert (
        "33.3% of the source tokens, 25.0% of the target tokens; a new model with another tokenizer" in told
    )
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert max(line.get("validation_accuracy", 0) for line in log) <= 2 / 3 + 1e-6


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tokenized"], "--tokenized is for --corpus multi30k"),
        (["--metric-every", "2"], "metric_every has no effect without metric"),
        (["--rdrop-from", "2"], "rdrop_from has no effect without rdrop_weight"),
        (["--rdrop-from", "99", "--rdrop-weight", "1"], "rdrop_from has no effect beyond the 30 epochs"),
        (["--max-len", "9"], "max_len has no effect without positions that are learned"),
        (["--minutes", "1e12", "--preset", "auto"], "minutes must be above 0 and below 2^31"),
        (["--seed", str(2**64)], "seed must be a whole number"),
        (["--threads", "99999999999"], "--threads must be from 0 to 1,024"),
        (["--device", "meta"], "there is no meta device"),
        (["--config", '{"epochs": [1, 2]}'], "--epochs takes one value"),
        (["--config", '{"epochs": []}'], "--epochs takes one value"),
        (["--config", '{"metric": ["bleu", "chrf"]}'], "--metric takes one value"),
        (["--config", '{"epochs": 1, "epochs": 2}'], "stands in it twice"),
        (["--config", '{"max-steps": 1, "max_steps": 2}'], "--max-steps stands in it twice"),
        (
            ["--tokenizer", "chars", "--src-tokenizer", "words", "--tgt-tokenizer", "words"],
            "tokenizer = 'chars' has no",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(flags, says, files, tmp_path, capfd):
    if flags[0] == "--config":
        (tmp_path / "c.json").write_text(flags[1])
        flags = ["--config", tmp_path / "c.json"]
    given = [] if flags[0] in ("--threads",) else ["--threads", "1"]
    complains(["train", *files, "--out", tmp_path / "o", *given, *flags], capfd, says)
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_a_file_of_another_kind_is_refused(files, tmp_path, capfd):
    (tmp_path / "c.yaml").write_text("epochs: 3\n")
    asked = ["train", *files, "--threads", "1", "--out"]
    complains(
        [*asked, tmp_path / "o", "--config", tmp_path / "c.yaml"], capfd, "must be a .json or a .toml file"
    )
    complains([*asked, tmp_path / "c.yaml"], capfd, "is a file; choose a new")


def test_a_corpus_by_name_takes_no_flag_of_own_text(tmp_path, capfd):
    asked = ["train", "--corpus", "grammar", "--pair", "de-en", "--out", tmp_path / "o"]
    complains([*asked, "--keep-equal"], capfd, "--keep-equal is for --src")


def test_pairs_with_equal_sides_are_left_out_where_that_is_asked(tmp_path, capfd):
    rows = [*ROWS, *((f"same {i}", f"same {i}") for i in range(2 * len(ROWS)))]
    (tmp_path / "t.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    asked = ["train", "--src", tmp_path / "t.tsv", "--out", tmp_path / "o", *TINY, "--max-steps", "1"]
    complains(asked, capfd, "--keep-equal", "--no-keep-equal")
    assert ends([*asked, "--no-keep-equal"]) == 0
    assert f"dropped {2 * len(ROWS)}: source and target equal" in capfd.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--tokenizer", "chars"], ["--tgt-tokenizer", "words"], ["--vocab", "500"]]
)
def test_a_model_to_start_from_keeps_its_tokenizers(flags, run, files, tmp_path, capfd):
    asked = ["train", *files, "--init-from", run, "--out", tmp_path / "o", "--max-steps", "1"]
    complains([*asked, *flags], capfd, "keeps its tokenizers", flags[1])
    assert ends([*asked, "--tokenizer", "subwords", "--vocab", "320"]) == 0  # its own
    again = ["train", *files, "--init-from", run, "--out", tmp_path / "p", "--max-steps", "1"]
    assert ends(again) == 0
    assert read_json(tmp_path / "p/training.json")["tokenizer"] is None
    assert ends(["train", "--resume", "--out", tmp_path / "p", "--max-steps", "2"]) == 0
    err = complains(["train", "--resume", "--out", tmp_path / "p", *flags], capfd, "was begun with")
    assert "without init_from" in err


def test_a_run_that_is_resumed_keeps_the_model_that_it_started_from(run, files, tmp_path, capfd):
    asked = ["train", *files, "--out", tmp_path / "o", "--max-steps", "1"]
    assert ends([*asked, "--init-from", run]) == 0
    err = complains([*asked, "--resume", "--init-from", tmp_path / "o"], capfd, "was begun with init_from")
    assert "--init-from" not in err
    assert "begin another run, in a folder of its own" in err


def test_a_model_that_learns_another_pair_is_told(run, files, tmp_path, capfd):
    def told(start, out, pair):
        asked = ["train", *files, "--init-from", start, "--out", tmp_path / out, "--max-steps", "1"]
        assert ends([*asked, "--pair", pair]) == 0
        return "was trained for en-de, and now learns de-en" in capfd.readouterr().err

    assert not told(run, "a", "en-de")  # nobody named the languages of that run
    assert [told(tmp_path / "a", pair, pair) for pair in ("en-de", "de-en")] == [False, True]


def test_a_run_that_is_not_there_is_begun_only_on_text_that_is_named(cats, tmp_path, capfd):
    out = tmp_path / "mien"
    asked = ["train", "--out", out, "--resume", *TINY, "--max-steps", "1"]
    complains(asked, capfd, f"there is no run in {out} to go on with; to begin one, name its text, by --src")
    assert not out.exists()
    assert ends([*asked, "--src", cats / "both.tsv"]) == 0
    assert ends(asked) == 0


@pytest.mark.parametrize("out", ["~nobody-of-this-name/x", "b\udcff"])
def test_a_folder_that_cannot_be_is_named(out, files, capfd):
    complains(["train", *files, "--out", out], capfd, "--out", "cannot be a folder")


@pytest.mark.parametrize("command", [["train", "--resume"], ["train", "--config"], ["reproduce"]])
def test_a_file_names_no_folder_to_write_to(command, tmp_path, capfd):
    elsewhere, recipe = tmp_path / "elsewhere", tmp_path / "r.toml"
    write_json(tmp_path / "run/training.json", {"cache": str(elsewhere)})
    recipe.write_text(f"[train]\ncorpus = 'grammar'\ncache = '{elsewhere}'\n[evaluate]\n")
    named = [] if "--resume" in command else [recipe]
    complains([*command, *named, "--out", tmp_path / "run"], capfd, "--cache is given by hand")
    assert not elsewhere.exists()


def test_what_the_system_refuses_is_told_with_a_remedy(run, cats, tmp_path, capfd):
    asked = ["translate", "--model", run]
    complains([*asked, tmp_path / "none.txt"], capfd, "none.txt", "is the name right")
    complains([*asked, tmp_path], capfd, str(tmp_path), "name a file in it")
    complains([*asked, cats / "a.en/b"], capfd, "a.en/b", "one of its folders is a file")
    error = PermissionError(errno.EACCES, "Permission denied", "x.txt")  # root is refused nothing
    with mock.patch.object(Path, "open", side_effect=error):
        complains([*asked, "x.txt"], capfd, "x.txt", "you may not: change its rights")


def test_a_warm_up_that_outlasts_the_run_is_told(cats, tmp_path, capfd):
    for warmup in (2, 3):
        asked = ["train", "--src", cats / "both.tsv", *TINY, "--max-steps", "2", "--warmup", warmup]
        assert ends([*asked, "--out", tmp_path / str(warmup)]) == 0
        told = "the warm-up of 3 updates ends after the run of 2" in capfd.readouterr().err
        assert told == (warmup == 3)


def test_what_is_lost_of_white_space_is_told(run, tmp_path, capfd):
    pairs = [
        (f"the cat costs {i} CHF", f"die Katze kostet {i}{' ' if i % 3 else NO_BREAK}CHF") for i in range(60)
    ]
    (tmp_path / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    assert (
        ends(["train", "--src", tmp_path / "t.tsv", *TINY, "--max-steps", "1", "--out", tmp_path / "m"]) == 0
    )
    assert "20 of 60 targets have no-break spaces" in capfd.readouterr().err
    with pytest.warns(UserWarning, match=r"1 of 2 lines, the first line 2: line breaks inside") as warned:
        Translator.load(run).translate(["a cat\n", "a cat\na dog"], max_tokens=99)
    assert all("never saw" not in str(each.message) for each in warned)


@pytest.mark.parametrize("split", ["../../victim", "/tmp/victim", "", "a/b"])
def test_a_recipe_names_no_file_outside_of_its_run(split, tmp_path, capfd):
    victim = tmp_path / "victim.json"
    victim.write_text("{}")
    (tmp_path / "r.toml").write_text(
        f'[train]\ncorpus = "grammar"\n[evaluate]\n[card]\nsplits = ["{split}"]\n'
    )
    complains(
        ["reproduce", tmp_path / "r.toml", "--out", tmp_path / "a/b"], capfd, "is not the name of a split"
    )
    assert victim.exists()


@pytest.mark.parametrize("count", [-1, 1025])
def test_a_number_of_threads_that_cannot_be_is_refused(count, capfd):
    asked = ["translate", "--model", "multi30k-en-de", f"--threads={count}"]
    complains(asked, capfd, f"from 0 to 1,024, not {count}")


def test_a_search_that_cannot_be_is_refused_before_a_model_is_looked_for(capfd):
    for command, beam in (("translate", 0), ("evaluate", 300)):
        complains([command, "--model", "multi30k-en-de", "--beam", str(beam)], capfd, "beam", "from 1 to 256")


@pytest.mark.parametrize(
    ("more", "says"),
    [("", "has no table [evaluate]"), ('[evaluate]\n[card]\nsplits = "val"\n', "splits must be a list")],
)
def test_a_recipe_that_could_not_be_scored_is_refused_before_the_training(more, says, tmp_path, capfd):
    (tmp_path / "r.toml").write_text(f'[train]\ncorpus = "grammar"\n{more}')
    complains(["reproduce", tmp_path / "r.toml", "--out", tmp_path / "run"], capfd, says)
    assert not (tmp_path / "run").exists()


def test_a_file_of_settings_names_no_file_to_replace(run, cats, tmp_path, capfd):
    (tmp_path / "c.toml").write_text(f"save = '{tmp_path / 'victim'}'\n")
    asked = ["evaluate", "--model", run, "--src", cats / "both.tsv", "--config", tmp_path / "c.toml"]
    complains(asked, capfd, "--save is given by hand")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "en,translation\na cat,mine\n"),
        ("t.jsonl", '{"en": "a cat"}\n' * 1001 + '{"translation": "mine"}\n'),
        ("t.json", '[{"en": "a cat", "translation": {"de": "mine"}}]'),
    ],
)
def test_no_column_is_replaced_by_the_translation(name, content, run, tmp_path, capfd):
    (tmp_path / name).write_text(content)
    asked = ["translate", "--model", run, "--max-extra", "1", "--columns", "en", tmp_path / name]
    assert ends(asked) == 0
    lines, kept = capfd.readouterr().out.splitlines(), content.splitlines()[-1].strip("[]}")
    assert any(line.startswith(kept) for line in lines)
    assert "translation_2" in "".join(lines[:2])  # the names, or the first object, alone or in an array


def test_the_columns_of_the_training_are_those_of_other_tables(cats, tmp_path, capfd):
    table, out = tmp_path / "t.csv", tmp_path / "m"
    rows = [f"{i},{en},x,{de}\n" for i, (en, de) in enumerate(CATS)]
    table.write_text("id,Englisch,note,Deutsch\n" + "".join(rows))
    asked = ["--src", table, "--columns", "Englisch,Deutsch", "--out", out]
    assert ends(["train", *asked, *TINY, "--max-steps", "1"]) == 0
    table.write_text("note,Deutsch,Englisch\nx,ein Hund,a dog\n")
    for command, columns, given in (
        ("evaluate", "Englisch,Deutsch", ["--src", table]),
        ("translate", "Englisch", [table]),
    ):
        results, told = [], f"reading {columns}, as in training, unless --columns says otherwise\n"
        for flag in ([], ["--columns", columns]):
            capfd.readouterr()
            assert ends([command, "--model", out, *given, *flag, "--max-extra", "3"]) == 0
            result, err = capfd.readouterr()
            results.append(result)
            assert err.count(told) == (not flag)
        assert results[0] == results[1]
    assert ends(["evaluate", "--model", out, "--src", cats / "a.en", "--tgt", cats / "a.de"]) == 0


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--epoch", "--epochs"), ("--learning-rat=1", "--learning-rate"), ("--dmodel", "--d-model")],
)
def test_a_mistyped_flag_is_told_the_one_that_was_meant(flag, meant, tmp_path, capfd):
    complains(["train", "--out", tmp_path / "o", flag], capfd, f"did you mean {meant}?")


def test_a_mistyped_command_is_told_the_one_that_was_meant(capfd):
    complains(["translate", "--modle", "run"], capfd, "for --modle, did you mean --model?")
    complains(["trian"], capfd, "did you mean train?")
    assert "did you mean" not in complains(["zzz"], capfd, "invalid choice")


def test_the_command_alone_lists_its_commands(capfd):
    err = complains([], capfd, "train a model")
    assert all(f"  {name} " in err for name in ("train", "translate", "evaluate", "average", "check"))


@pytest.mark.parametrize("name", ["out.xlsx", "out.csv.gz", "out.jsonl"])
def test_translations_are_saved_under_no_name_of_another_format(name, run, cats, tmp_path, capfd):
    asked = ["evaluate", "--model", run, "--src", cats / "both.tsv", "--save", tmp_path / name]
    complains(asked, capfd, f"{name} must be a .csv or .tsv file, or one of lines")


@pytest.mark.parametrize(("name", "delimiter"), [("out.csv", ","), ("out.TSV", "\t")])
def test_a_table_of_translations_stands_beside_its_sources(name, delimiter, run, cats, tmp_path):
    saved = tmp_path / name
    asked = ["evaluate", "--model", run, "--src", cats / "both.tsv", "--beam", "1", "--save", saved]
    assert main(list(map(str, asked))) == 0
    with saved.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file, delimiter=delimiter)
    assert names == ["source", "reference", "translation"]
    assert [tuple(row[:2]) for row in rows] == CATS


def test_bleu_is_refused_for_text_without_spaces(tmp_path, capfd):
    pairs = [(f"the cat {i}", f"一只猫{i}") for i in range(60)]
    (tmp_path / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    asked = ["train", "--src", tmp_path / "t.tsv", *TINY, "--tokenizer", "chars", "--max-steps", "1"]
    out = ["--out", tmp_path / "a", "--metric", "bleu"]
    complains([*asked, *out], capfd, "which the targets lack; name its language by --pair")
    assert (
        ends([*asked, "--out", tmp_path / "b", "--metric", "bleu", "--pair", "en-zh"]) == 0
    )  # as it advises
    assert ends([*asked, "--out", tmp_path / "c", "--metric", "chrf"]) == 0
    capfd.readouterr()
    assert ends(["evaluate", "--model", tmp_path / "c", "--src", tmp_path / "t.tsv", "--beam", "1"]) == 0
    assert "BLEU counts words between spaces, which this text lacks" in capfd.readouterr().err


def test_bleu_is_refused_where_no_target_has_four_words(tmp_path, capfd):
    """It would be 0 of the best translations, too."""
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"the cat {i}\tKatze {i}\n" for i in range(60)))
    asked = ["train", "--src", path, *TINY, "--max-steps", "1", "--out"]
    complains([*asked, tmp_path / "a", "--metric", "bleu"], capfd, "runs of four words", "such as chrf")
    assert ends([*asked, tmp_path / "b", "--metric", "chrf"]) == 0
    capfd.readouterr()
    assert ends(["evaluate", "--model", tmp_path / "b", "--src", path, "--beam", "1"]) == 0
    assert "BLEU counts runs of four words, and no reference has four; go by chrF" in capfd.readouterr().err


def test_settings_are_chosen_for_own_text_and_kept_when_it_goes_on(cats, tmp_path, capfd):
    out = tmp_path / "o"
    asked = ["train", "--src", cats / "both.tsv", "--vocab", "320", "--minutes", "0.001", "--out", out]
    assert ends([*asked, "--N", "1", "--max-steps", "3"]) == 0
    told = capfd.readouterr().err
    assert "chosen for 57 pairs" in told
    settings = read_json(out / "training.json")
    assert (settings["preset"], settings["N"], settings["max_steps"]) == ("auto", 1, 3)  # flags win
    assert settings["d_model"] == Translator.load(out).model.config.d_model
    assert ends(["train", "--resume", "--out", out, "--max-steps", "4"]) == 0
    assert "chosen for" not in capfd.readouterr().err
    assert {**read_json(out / "training.json"), "max_steps": 3} == settings
    complains(
        [*asked[:-1], tmp_path / "p", "--preset", "tiny"], capfd, "minutes choose", "for tiny, give epochs"
    )
    later = [
        "train",
        "--src",
        cats / "both.tsv",
        "--init-from",
        out,
        "--minutes",
        "1",
        "--out",
        tmp_path / "r",
    ]
    complains(later, capfd, "for init_from, give epochs")
    complains(["train", "--out", out, "--resume", "--minutes", "2"], capfd, "raise --max-steps")
    again = ["train", "--config", out / "training.json", "--out", tmp_path / "q"]
    assert ends(again) == 0
    assert read_json(tmp_path / "q/training.json")["learning_rate"] == settings["learning_rate"]


def test_a_stop_before_the_first_checkpoint_says_that_there_is_no_model(tmp_path, monkeypatch, capfd):
    for name, saved in (("empty", False), ("begun", True)):
        run = tmp_path / name
        if saved:
            train(CATS, run, vocab=300, **SIZES)
        interrupted = mock.Mock(side_effect=KeyboardInterrupt)
        monkeypatch.setattr("annotated.translation.cli.train.train_model", interrupted)
        capfd.readouterr()
        assert ends(["train", "--corpus", "grammar", "--out", run]) == 130
        assert (f"no model is in {run} yet" in "".join(capfd.readouterr())) is not saved


def test_a_column_with_a_comma_is_read_again_by_what_the_run_has_saved(tmp_path, capfd):
    table, run = tmp_path / "pairs.csv", tmp_path / "run"
    rows = [("text, short", "de", "id"), *((f"{a} {i}", f"{b} {i}", i) for i, (a, b) in enumerate(CATS))]
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    train(table, run, columns=["text, short", "de"], vocab=300, **SIZES)
    assert ends(["train", "--out", run, "--resume", "--max-steps", 2]) == 0
    assert ends(["train", "--config", run / "training.json", "--out", tmp_path / "again"]) == 0
    assert ends(["translate", "--model", run, table]) == 0
    by_hand = ["train", "--src", table, "--columns", '"text, short",de', "--out", tmp_path / "by_hand"]
    assert ends([*by_hand, *TINY]) == 0
