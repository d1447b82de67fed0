"""Recipes, and `annotated reproduce`, which follows one; models of tokenized text at the command line."""

import json

import pytest
from command_line import complains, ends, feed
from tiny_runs import CATS, TOY_TRAINING, few_sentences

from annotated import train
from annotated.translation.cli.flags import recipes
from annotated.translation.cli.main import main, parse
from annotated.translation.evaluation import Results
from annotated.translation.files import read_json, read_toml, write_json
from annotated.translation.storage.model_folder import SETTINGS
from annotated.translation.training.run_folder import LOG
from annotated.translation.translator import Translator

RECIPE = '[card]\nsplits = ["val"]\n' + TOY_TRAINING


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    for module in ("train", "evaluate"):
        monkeypatch.setattr(f"annotated.translation.cli.{module}.load_corpus", lambda *_: few_sentences())
    path = tmp_path / "toy.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_recipe_is_trained_and_scored_and_the_same_command_again_trains_no_further(recipe, tmp_path, capfd):
    run = tmp_path / "run"
    asked = ["reproduce", str(recipe), "--out", str(run), "--threads", "1"]
    assert main(asked) == 0
    out, err = capfd.readouterr()
    scores = Results.from_json(read_json(run / "val.json"))
    assert out == f"val\n{scores}\n"
    assert "greedy BLEU" in err
    assert (scores.sentences, scores.beam, read_json(run / SETTINGS)["vocab"]) == (12, 1, 400)
    log = (run / LOG).read_bytes()
    assert main(asked) == 0
    assert (run / LOG).read_bytes() == log


def test_a_recipe_is_scored_on_text_of_ones_own(recipe, tmp_path):
    (tmp_path / "test.tsv").write_text("A dog.\tEin Hund.\n", encoding="utf-8")
    recipe.write_text(TOY_TRAINING.replace("[evaluate]", f"[evaluate]\nsrc = '{tmp_path / 'test.tsv'}'"))
    assert main(["reproduce", str(recipe), "--out", str(tmp_path / "run"), "--threads", "1"]) == 0
    assert read_json(tmp_path / "run" / "own.json")["sentences"] == 1


def test_a_recipe_is_not_trained_in_the_folder_of_another_run(recipe, tmp_path, capfd):
    train(CATS, tmp_path / "own", "tiny", max_steps=1, vocab=320, N=1, d_model=16, d_ff=16, h=2)
    settings = read_json(tmp_path / "own" / SETTINGS)
    write_json(tmp_path / "own" / SETTINGS, {**settings, "src": str(tmp_path / "cats.tsv")})
    complains(
        ["reproduce", recipe, "--out", tmp_path / "own"], capfd, f"the run in {tmp_path / 'own'}", "--out"
    )


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("N = 1", "NN = 1", "unrecognized arguments: --NN=1"),
        ("[train]", "[trainn]", "no table for train"),
        (RECIPE, "[", "TOML"),
    ],
)
def test_a_recipe_with_an_error_is_refused_before_the_training(before, after, says, recipe, tmp_path, capfd):
    recipe.write_text(RECIPE.replace(before, after), encoding="utf-8")
    complains(["reproduce", recipe, "--out", tmp_path / "run"], capfd, says)
    assert not (tmp_path / "run").exists()


def test_an_unknown_recipe_names_the_known(capfd):
    complains(["reproduce", "nonsense"], capfd, "multi30k-en-de-lc")


@pytest.mark.parametrize("name", recipes())
def test_train_and_evaluate_take_each_recipe(name, tmp_path):
    tables, config = read_toml(recipes()[name]), f"--config={recipes()[name]}"
    for command, given in (("train", f"--out={tmp_path}"), ("evaluate", "--model=m")):
        args = parse([command, config, given])
        assert {setting: getattr(args, setting) for setting in tables[command]} == tables[command]


def test_tokenized_text_is_for_models_of_it(recipe, tmp_path, capfd, monkeypatch):
    run = tmp_path / "run"
    assert ends(["train", "--config", recipe, "--out", run, "--threads", "1"]) == 0
    asked = ["translate", "--model", run, "--threads", "1"]
    settings = {**read_json(run / SETTINGS), "tokenized": True}
    (run / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    feed(monkeypatch, b"Ein Hund .\n")
    complains(asked, capfd, "has capitals")
    feed(monkeypatch, b"ein hund .\n")
    assert ends(asked) == 0
    assert capfd.readouterr().out.count("\n") == 1
    translator = Translator.load(run)
    translator("zwei männer .")
    for ask in (translator, lambda text: translator.n_best(text, 2), translator.attention):
        with pytest.raises(ValueError, match="has capitals"):
            ask("Zwei Männer.")
