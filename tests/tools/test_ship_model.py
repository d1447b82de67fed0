"""The tool that makes a model to ship of a run, and the models that are shipped."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
import torch
from tiny_runs import TOY_TRAINING, few_sentences

from annotated.search.config import SearchConfig
from annotated.transformer.config import TransformerConfig
from annotated.translation.cli.flags import recipes
from annotated.translation.cli.main import main, parse
from annotated.translation.data import load_corpus
from annotated.translation.evaluation import read_scores, score_split
from annotated.translation.files import read_toml
from annotated.translation.storage.model_folder import WEIGHTS, load_model, shipped_model, training_settings
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.training.config import TEXT_SETTINGS, TrainingConfig
from annotated.translation.translator import Translator, load_pretrained

spec = importlib.util.spec_from_file_location("ship_model", Path(__file__).parents[2] / "tools/ship_model.py")
ship_model = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ship_model)

CARD = """
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
"""


@pytest.mark.parametrize("keep_float32", [False, True])
def test_what_is_shipped_is_what_was_scored(keep_float32, tmp_path, monkeypatch):
    few, recipe, run, made = few_sentences(), tmp_path / "toy.toml", tmp_path / "run", tmp_path / "made"
    recipe.write_text(CARD + TOY_TRAINING, encoding="utf-8")
    monkeypatch.setattr("annotated.translation.cli.train.load_corpus", lambda *_: few)
    monkeypatch.setattr(ship_model, "load_corpus", lambda *_: few)
    assert main(["train", f"--config={recipe}", f"--out={run}", "--threads=1"]) == 0
    if keep_float32:
        monkeypatch.setattr(ship_model, "MAX_BLEU_CHANGE", -1.0)
    ship_model.release(run, recipe, made)
    scores = read_scores(made)
    again, _ = score_split(Translator.load(made), few, "val", False, SearchConfig(beam=1))
    assert scores == {"val": again}
    kind = torch.float32 if keep_float32 else torch.float16
    assert {tensor.dtype for tensor in read_tensors(made / WEIGHTS).values()} == {kind}
    assert {p.dtype for p in load_model(made)[0].parameters()} == {torch.float32}
    card = (made / ship_model.CARD).read_text(encoding="utf-8")
    for part in (str(again), "Made up", "It cannot translate.", "BLEU 41.02 (a paper)", "| vocab | 400 |"):
        assert part in card


SHIPPED = ("multi30k-de-en", "multi30k-en-de", "multi30k-en-de-lc")
SPLIT = "test_2016_flickr"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_card_is_made_of_its_folder_and_recipe(name):
    folder, recipe = shipped_model(name), read_toml(recipes()[name])
    assert (folder / ship_model.CARD).read_text(encoding="utf-8") == ship_model.card(
        name, folder, recipe["card"]
    )
    assert list(read_scores(folder)) == recipe["card"]["splits"]
    search = recipe["evaluate"]
    for found in read_scores(folder).values():
        assert {setting: getattr(found, setting) for setting in search} == search


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_was_trained_as_its_recipe_says(name, tmp_path):
    args = parse(["train", f"--config={recipes()[name]}", f"--out={tmp_path}"])
    given = {
        field.name: getattr(args, field.name)
        for kind in (TransformerConfig, TrainingConfig)
        for field in dataclasses.fields(kind)
        if field.name in args
    }
    given |= {name: getattr(args, name) for name in ("tokenizer", "vocab", "preset", "init_from")}
    trained = training_settings(shipped_model(name))
    given |= {name: getattr(args, name) for name in TEXT_SETTINGS}
    given["tokenizer"] = args.tokenizer or "subwords"
    assert {name: trained.get(name) for name in given} == given
    rest = trained.keys() - given.keys() - {"metric", "metric_every"}  # they only logged BLEU
    defaults = dataclasses.asdict(getattr(TrainingConfig, args.preset)())
    assert {name: trained[name] for name in rest} == {name: defaults[name] for name in rest}


def test_a_shipped_model_scores_what_its_card_says(multi30k_folder):
    """One of them: to search a thousand translations takes half a minute."""
    name = "multi30k-en-de"
    settings, said = training_settings(shipped_model(name)), read_scores(shipped_model(name))[SPLIT]
    corpus = load_corpus(settings["corpus"], settings["pair"], settings["tokenized"])
    search = SearchConfig(said.beam, said.alpha, said.penalty)
    found, _ = score_split(load_pretrained(name), corpus, SPLIT, False, search)
    assert found.bleu.value == pytest.approx(said.bleu.value, abs=0.05)
    assert found.perplexity == pytest.approx(said.perplexity, rel=1e-3)
