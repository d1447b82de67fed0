"""Recipes, the `reproduce` command that follows one, and the model with a card that comes of it."""

import dataclasses
import io
import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from annotated.cli.flags import settings_from
from annotated.cli.main import main, parse
from annotated.cli.recipes import read_recipe, recipe_names, recipe_path
from annotated.cli.release import CARD, SCORES, card, read_scores, release
from annotated.cli.train import remembered
from annotated.data import TokenBatches, encode_corpus, load_corpus
from annotated.files import read_json
from annotated.training.config import TrainingConfig
from annotated.training.run_folder import LOG, RunFolder
from annotated.transformer.config import TransformerConfig
from annotated.transformer.schedule import factor_for, rate
from annotated.translation.evaluate import score_split
from annotated.translation.model_folder import (
    CONFIG,
    SETTINGS,
    WEIGHTS,
    load_model,
    shipped_model,
    shipped_models,
)
from annotated.translation.tensor_files import read_tensors
from annotated.translation.translator import Translator, load_pretrained
from annotated.validation import score_tokens

RECIPE = """
[card]
summary = "A toy."
data = "Made up by a grammar."
failures = ["It cannot translate."]
splits = ["val"]

[card.published]
what = "a paper"
split = "val"
score = "tokenized_bleu"
value = 41.02

[train]
corpus = "grammar"
pair = "de-en"
vocab = 400
N = 1
d_model = 16
d_ff = 16
h = 2
max_tokens = 2048
max_steps = 2
epochs = 1
warmup = 10
bleu_every = 1
log_every = 1

[evaluate]
beam = 1
"""


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The grammar corpus cut down to a few sentences, so that scoring them takes no time."""
    corpus = load_corpus("grammar", "de-en", None, None)
    splits = {name: corpus[name].take(range(size), name) for name, size in (("train", 300), ("val", 12))}
    return dataclasses.replace(corpus, splits=splits)


@pytest.fixture
def recipe(tmp_path, monkeypatch, few):
    for module in ("train", "release"):
        monkeypatch.setattr(f"annotated.cli.{module}.load_corpus", lambda *_: few)
    path = tmp_path / "toy.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_recipe_is_followed_to_its_card(recipe, tmp_path, capfd):
    assert main(["reproduce", str(recipe), "--out", str(tmp_path / "run"), "--threads", "1"]) == 0
    out, err = capfd.readouterr()
    made = tmp_path / "run" / "release"
    scores = read_scores(made)
    assert list(scores) == ["val"]
    assert f"val\n{scores['val']}\n" == out
    assert "greedy BLEU" in err
    text = (made / CARD).read_text(encoding="utf-8")
    for part in (str(scores["val"]), "Made up by a grammar.", "It cannot translate.", "BLEU 41.02 (a paper)"):
        assert part in text
    assert "| vocab | 400 |" in text
    log = [json.loads(line) for line in (made / LOG).read_text(encoding="utf-8").splitlines()]
    assert {"loss", "rate", "tokens", "seconds"} <= log[0].keys()
    assert {"validation_loss", "validation_bleu"} <= log[-1].keys()


def test_what_is_released_is_what_was_scored(recipe, few, tmp_path):
    run = tmp_path / "run"
    main(["reproduce", str(recipe), "--out", str(run), "--threads", "1"])
    made = run / "release"
    assert {t.dtype for t in read_tensors(made / WEIGHTS).values()} == {torch.float16}
    assert {p.dtype for p in load_model(made)[0].parameters()} == {torch.float32}
    again, _ = score_split(Translator.load(made), few, "val", tokenized=False, beam=1)
    assert again == read_scores(made)["val"]


def test_half_precision_that_changes_the_score_is_not_taken(recipe, few, tmp_path, monkeypatch, capfd):
    run = tmp_path / "run"
    monkeypatch.setattr("annotated.cli.release.MAX_BLEU_CHANGE", -1.0)
    main(["reproduce", str(recipe), "--out", str(run), "--threads", "1"])
    made = run / "release"
    assert "half precision moves BLEU on val by +0.00: float32 is kept" in capfd.readouterr().err
    assert (made / WEIGHTS).read_bytes() == (run / WEIGHTS).read_bytes()
    again, _ = score_split(Translator.load(made), few, "val", tokenized=False, beam=1)
    assert again == read_scores(made)["val"]


def test_the_same_command_again_trains_no_further(recipe, tmp_path, capfd):
    run = tmp_path / "run"
    arguments = ["reproduce", str(recipe), "--out", str(run), "--threads", "1"]
    main(arguments)
    before = (run / LOG).read_bytes(), (run / "release" / SCORES).read_bytes()
    assert main(arguments) == 0
    assert ((run / LOG).read_bytes(), (run / "release" / SCORES).read_bytes()) == before
    assert sorted(path.name for path in run.iterdir() if "release" in path.name) == ["release"]


def test_a_release_that_fails_leaves_the_old_one(recipe, tmp_path, monkeypatch):
    run = tmp_path / "run"
    main(["reproduce", str(recipe), "--out", str(run), "--threads", "1"])
    before = {path.name: path.read_bytes() for path in (run / "release").iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("annotated.cli.release.write_json", full)
    with pytest.raises(OSError, match="No space left"):
        release(run, recipe, run / "release")
    assert {path.name: path.read_bytes() for path in (run / "release").iterdir()} == before


def test_a_run_is_not_released_while_it_is_trained(recipe, tmp_path, capfd):
    arguments = ["reproduce", str(recipe), "--out", str(tmp_path / "run"), "--threads", "1"]
    assert main(arguments) == 0
    capfd.readouterr()
    with RunFolder(tmp_path / "run").locked():
        assert main(arguments) == 2
        assert str(tmp_path / "run") in capfd.readouterr().err.splitlines()[-1]
        with pytest.raises(OSError, match="lock"):
            release(tmp_path / "run", recipe, tmp_path / "run" / "release")


def test_of_several_processes_one_releases(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    arguments = ["reproduce", str(recipe), "--out", str(tmp_path / "run"), "--threads", "1"]
    monkeypatch.setattr("annotated.cli.train.train", lambda args: 0)
    assert main(arguments) == 0
    assert not (tmp_path / "run").exists()


def test_an_unknown_recipe_names_the_known(capfd):
    assert main(["reproduce", "nonsense"]) == 2
    assert "multi30k-en-de-lc" in capfd.readouterr().err


def test_a_recipe_that_is_no_toml(tmp_path, capfd):
    path = tmp_path / "broken.toml"
    path.write_text("[train\n", encoding="utf-8")
    assert main(["reproduce", str(path), "--out", str(tmp_path / "run")]) == 2
    assert f"{path} is not valid TOML" in capfd.readouterr().err


EVALUATE = "[evaluate]\nbeam = 1\n"
PUBLISHED = '[card.published]\nwhat = "a paper"\nsplit = "val"\nscore = "tokenized_bleu"\nvalue = 41.02\n'


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (RECIPE, "N = 1\n", "'N' is no table of a recipe; those are train, evaluate, card"),
        ("[train]", "[training]", "'training' is no table"),
        (EVALUATE, "", "the table [evaluate] is missing"),
        ("N = 1", "NN = 1", "unknown setting 'NN'"),
        ("N = 1", 'src = "a.en"\ntgt = "a.de"', "a recipe takes a corpus by its name"),
        ("beam = 1", "beams = 1", "[evaluate]: unknown setting 'beams'; the known ones are beam"),
        ("beam = 1", "beam = 0", "[evaluate]: 1 <= n_best <= beam"),
        ("beam = 1", "alpha = -1", "[evaluate]: alpha must not be negative"),
        ("beam = 1", 'penalty = "no"', "[evaluate]: penalty must be gnmt or power, not 'no'"),
        ('splits = ["val"]', 'splits = "val"', "[card]: splits must be list, not 'val'"),
        ('splits = ["val"]', "splits = []", "[card]: splits must be one or more texts, not []"),
        ('splits = ["val"]', 'splits = ["val", "tset"]', "no split 'tset'; its splits are train, val"),
        ('split = "val"', 'split = "test"', "published.split must be one of splits (val), not 'test'"),
        ("value = 41.02", "", "[card.published]: the setting 'value' is missing"),
        (PUBLISHED, "published = 3\n", "[card]: published must be Published or NoneType, not 3"),
        ('data = "Made up by a grammar."', "", "[card]: the setting 'data' is missing"),
    ],
)
def test_a_recipe_is_checked_before_it_is_followed(before, after, says, recipe, tmp_path, capfd):
    assert before in RECIPE
    recipe.write_text(RECIPE.replace(before, after), encoding="utf-8")
    try:
        code = main(["reproduce", str(recipe), "--out", str(tmp_path / "run")])
    except SystemExit as error:
        code = error.code
    assert code == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert str(recipe) in err
    assert says in err
    assert not (tmp_path / "run").exists()


def test_a_score_that_tokenised_text_does_not_have(recipe, tmp_path, capfd):
    text = RECIPE.replace("tokenized_bleu", "bleu").replace('"grammar"', '"multi30k"\nvariant = "tok"')
    recipe.write_text(text, encoding="utf-8")
    assert main(["reproduce", str(recipe), "--out", str(tmp_path / "run")]) == 2
    assert "published.score must be tokenized_bleu" in capfd.readouterr().err


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_is_one_that_train_takes(name, tmp_path):
    recipe = read_recipe(recipe_path(name))
    args = parse(["train", f"--config={recipe_path(name)}", f"--out={tmp_path}"])
    for setting, value in recipe.train.items():
        assert getattr(args, setting) == value
    if recipe.train["corpus"] == "multi30k":
        assert "research and education" in recipe.card.data


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_is_one_that_evaluate_takes(name):
    args = parse(["evaluate", "--model=m", f"--config={recipe_path(name)}"])
    for setting, value in dataclasses.asdict(read_recipe(recipe_path(name)).evaluate).items():
        assert getattr(args, setting) == value


def test_recipes_are_part_of_the_package():
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"cli/recipes/*.toml", "pretrained/**/*"} <= set(
        project["tool"]["setuptools"]["package-data"]["annotated"]
    )


# ---- text that is tokenised and lower-cased


@pytest.fixture
def lower_cased(recipe, tmp_path, monkeypatch):
    run = tmp_path / "lower"
    main(["reproduce", str(recipe), "--out", str(run), "--threads", "1"])
    settings = read_json(run / "release" / SETTINGS)
    (run / "release" / SETTINGS).write_text(json.dumps({**settings, "variant": "tok"}), encoding="utf-8")
    return run / "release"


def test_cased_text_is_refused_where_only_lower_case_is_known(lower_cased):
    translator = Translator.load(lower_cased)
    translator("zwei männer .")
    for ask in (translator, lambda text: translator.n_best(text, 2), translator.attention):
        with pytest.raises(ValueError, match=r"'Zwei Männer\.' has capitals"):
            ask("Zwei Männer.")
    translator.pass_tokenized()
    with pytest.raises(ValueError, match="has capitals"):
        translator("Zwei Männer .")


def test_tokenised_text_is_for_models_of_it(recipe, lower_cased, tmp_path, capfd, monkeypatch):
    def translate(model, *flags, text=b"Ein Hund .\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return main(["translate", "--model", str(model), "--threads", "1", *flags])

    assert translate(lower_cased) == 2
    assert "has capitals" in capfd.readouterr().err
    assert translate(lower_cased, "--tokenized") == 2
    assert "has capitals" in capfd.readouterr().err
    assert translate(lower_cased, "--tokenized", text=b"ein hund .\n") == 0
    assert capfd.readouterr().out.count("\n") == 1
    assert translate(lower_cased.parent, "--tokenized") == 2
    assert "reads normal text" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("pair", "plain", "tokenised"),
    [
        ("en-de", "multi30k-en-de", "multi30k-en-de-lc"),
        ("de-en", "multi30k-de-en", "no shipped model"),
        ("en-fr", "no shipped model", "no shipped model"),
        (None, "multi30k-de-en, multi30k-en-de", "multi30k-en-de-lc"),
    ],
)
def test_who_gives_the_wrong_text_is_told_the_model_for_it(pair, plain, tokenised):
    model = load_pretrained("multi30k-en-de-lc")
    parts = model.model, model.src_tokenizer, model.tgt_tokenizer
    with pytest.raises(ValueError, match=f"for normal text there is {plain}$"):
        Translator(*parts, lower_cased=True, pair=pair).encode("A dog.")
    with pytest.raises(ValueError, match=f"for tokenised text there is {tokenised}$"):
        Translator(*parts, pair=pair).pass_tokenized()


def test_a_shipped_model_knows_its_pair():
    assert load_pretrained("multi30k-de-en").pair == "de-en"


# ---- the models that are shipped


SHIPPED = ("multi30k-de-en", "multi30k-en-de", "multi30k-en-de-lc")
SPLIT = "test_2016_flickr"


def test_these_models_are_shipped():
    assert tuple(shipped_models()) == SHIPPED  # or the tests below would be of none


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_card_is_made_of_its_folder_and_recipe(name):
    folder, recipe = shipped_model(name), read_recipe(recipe_path(name))
    assert (folder / CARD).read_text(encoding="utf-8") == card(name, folder, recipe.card)
    assert list(read_scores(folder)) == recipe.card.splits
    search = dataclasses.asdict(recipe.evaluate)
    for found in read_scores(folder).values():
        assert {setting: getattr(found, setting) for setting in search} == search


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_was_trained_as_its_recipe_says(name, tmp_path):
    args = parse(["train", f"--config={recipe_path(name)}", f"--out={tmp_path}"])
    config = getattr(TrainingConfig, args.preset)(**settings_from(TrainingConfig, args))
    found = {
        "columns": None,
        **dataclasses.asdict(TrainingConfig()),
        **read_json(shipped_model(name) / SETTINGS),
    }
    given = {name: getattr(args, name) for name in ("tokenizer", "vocab", "preset", "init_from")}
    shape = settings_from(TransformerConfig, args)
    assert found == {**dataclasses.asdict(config), **given, **shape, **remembered(args)}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_log_of_a_shipped_model_has_the_rates_of_its_settings(name):
    folder = shipped_model(name)
    settings, width = read_json(folder / SETTINGS), read_json(folder / CONFIG)["model"]["d_model"]
    warmup = settings["warmup"]
    factor = factor_for(settings["learning_rate"], width, warmup)
    log = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    rates = {line["step"]: line["rate"] for line in log if "rate" in line}
    assert max(rates) > warmup
    assert rates == {step: pytest.approx(rate(step, width, factor, warmup), rel=1e-6) for step in rates}


def test_shipped_models_are_small():
    folders = [shipped_model(name) for name in shipped_models()]
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < 25e6


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_expects_the_references_as_its_card_says(name, multi30k_folder):
    settings, said = read_json(shipped_model(name) / SETTINGS), read_scores(shipped_model(name))[SPLIT]
    text = load_corpus(settings["corpus"], settings["pair"], None, settings["variant"])[SPLIT]
    translator = load_pretrained(name)
    pairs = encode_corpus(text, translator.src_tokenizer, translator.tgt_tokenizer)
    found = score_tokens(translator.model, TokenBatches(pairs, 4096, shuffle=False).epoch(0))
    assert found.perplexity == pytest.approx(said.perplexity, rel=1e-3)
    assert found.accuracy == pytest.approx(said.accuracy, abs=1e-3)


def test_a_shipped_model_scores_what_its_card_says(multi30k_folder):
    """One of them: to search a thousand translations takes half a minute."""
    name = "multi30k-en-de"
    settings, said = read_json(shipped_model(name) / SETTINGS), read_scores(shipped_model(name))[SPLIT]
    corpus = load_corpus(settings["corpus"], settings["pair"], None, settings["variant"])
    search = {"beam": said.beam, "alpha": said.alpha, "penalty": said.penalty}
    found, _ = score_split(load_pretrained(name), corpus, SPLIT, tokenized=False, **search)
    for score in ("bleu", "tokenized_bleu"):
        assert getattr(found, score).value == pytest.approx(getattr(said, score).value, abs=0.05)
        assert f"{getattr(said, score)}" in (shipped_model(name) / CARD).read_text(encoding="utf-8")
