"""The blocks of Python on the page of recipes, run as they stand there, keep what the page says of them."""

import json
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from tiny_runs import CATS
from torch import nn

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.transformer.variants import VARIANTS, Parts
from annotated.translation.data import Corpus, load_corpus
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import save_model, shipped_model, shipped_models
from annotated.translation.tokenizers import UNK, CharacterTokenizer, WordTokenizer
from annotated.translation.translator import Translator

PAGE = (Path(__file__).parents[2] / "tools/site/pages/recipes.md").read_text(encoding="utf-8")


def recipe(function):
    """The names that are defined by the block which defines this function."""
    [block] = [
        code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"def {function}(" in code
    ]
    names = {}
    exec(compile(block, "recipes.md", "exec"), names)
    return SimpleNamespace(**names)


MARKED = recipe("hide")
PARTS = st.sampled_from(
    [
        "%s",
        "%(name)d",
        "{}",
        "{count}",
        "<b>",
        "</b>",
        "\n",
        "power supply",
        "①",
        "a",
        " ",
        "100%",
        "https://a.b/?c=%s ",
    ]
)


@given(st.lists(PARTS).map("".join))
def test_what_is_hidden_comes_back(text):
    hidden, held = MARKED.hide(text)
    assert len({*held.values()}) == len(held)
    assert not any(part in hidden for part in held)
    same = SimpleNamespace(n_best=lambda text: [(text, 0.0)])
    assert MARKED.translate(same, text) == (text.replace("power supply", "Netzteil") if held else text, True)


@pytest.mark.parametrize(
    "part",
    [
        "%s",
        "%5.2f",
        "%.1f",
        "%05d",
        "%1$s",
        "%(name).2f",
        "{}",
        "{0:.2f}",
        "{name!r:>10}",
        "{a.b[0]}",
        "</b>",
    ],
)
def test_whole_placeholders_are_hidden(part):
    assert MARKED.hide(f"a {part} b") == ("a ① b", {part: "①"})
    assert MARKED.hide(f"100{part}, a") == ("100①, a", {part: "①"})
    assert MARKED.hide_pair(f"a {part}", f"{part} b") == ("a ①", "① b")


def test_the_candidate_that_has_all_marks_is_taken():
    candidates = [("kein Wert für ①", 0), ("② hat ①", 0), ("② hat ① und ①", 0)]
    translator = SimpleNamespace(n_best=lambda text: candidates)
    assert MARKED.translate(translator, "{name} has %s") == ("%s hat {name}", True)
    assert MARKED.translate(translator, "{name}, {name} has %s") == ("%s hat {name} und {name}", True)
    assert MARKED.translate(translator, "%s") == ("kein Wert für %s", True)
    assert MARKED.translate(SimpleNamespace(n_best=lambda text: [("nichts", 0)]), "%s") == ("nichts", False)
    assert MARKED.translate(SimpleNamespace(n_best=lambda text: []), " ") == ("", True)


def test_a_pair_has_marks_for_what_both_sides_have():
    assert MARKED.hide_pair("Check the power supply of %s.\nNow.", "Netzteil von %s prüfen.\nJetzt.") == (
        "Check the ① of ②.③Now.",
        "① von ② prüfen.③Jetzt.",
    )
    assert MARKED.hide_pair("power supply %s", "Strom") == ("power supply %s", "Strom")


@pytest.fixture
def forgetful():
    """A translator of words that writes nothing but <unk>."""
    torch.manual_seed(0)
    src, tgt = WordTokenizer(["a", "dog"], None), WordTokenizer(["ein", "Hund"], None)
    config = TransformerConfig(len(src), len(tgt), N=2, d_model=16, d_ff=16, h=2, tied_embeddings="none")
    model = EncoderDecoder.from_config(config).eval()
    with torch.no_grad():
        model.generator.proj.bias[UNK] = 100.0
    return Translator(model, src, tgt, max_target=6)


@pytest.mark.filterwarnings("ignore:.*(symbols|cut)")
def test_an_unknown_word_is_copied_from_where_the_last_layer_looks(forgetful):
    copies = recipe("with_copies").with_copies
    sentence = "a dog  called Zorro"
    seen = forgetful.attention(sentence, "<unk> <unk> <unk> <unk> <unk>")
    looks = seen.maps["cross", 1].mean(0)[:5, :4].argmax(-1).tolist()
    assert copies(forgetful, sentence).split() == [sentence.split()[i] for i in looks]
    assert copies(forgetful, " ") == ""


def test_pairs_that_are_none_are_left_out():
    good = [
        (f"the dog number {i} sees a cat &amp; runs", f"der Hund {i} sieht eine Katze &amp; rennt")
        for i in range(50)
    ]
    bad = [
        ("the dog", "der Hund sieht eine Katze und dann noch eine und rennt weit fort"),
        ("the dog 5", "der Hund 6"),
        ("der Hund rennt", "the dog runs"),
    ]
    kept = recipe("clean").clean([*good, *bad])
    assert kept == [(src.replace("&amp;", "&"), tgt.replace("&amp;", "&")) for src, tgt in good]
    assert recipe("clean").clean([]) == []


def test_files_are_read_as_often_as_their_weights_say(tmp_path):
    names = {name: str(tmp_path / f"{name}.tsv") for name in "abc"}
    for name, path in names.items():
        Path(path).write_text("".join(f"{name}{i}\t{name}\n" for i in range(1000)), encoding="utf-8")
    found = list(recipe("mixed").mixed({names["a"]: 2, names["b"]: 0.5, names["c"]: 0}))
    count = {name: sum(tgt == name for _, tgt in found) for name in names}
    assert (count["a"], count["c"]) == (2000, 0)
    assert 400 < count["b"] < 600


def test_a_line_for_a_line_and_a_sentence_at_a_time():
    asked = []
    translator = SimpleNamespace(
        translate=lambda texts: asked.extend(texts) or [text.upper() for text in texts]
    )
    text = "One dog. Two dogs! See p. 5\n\nÄrger? No. of them: 3.5 in all."
    assert recipe("translate_text").translate_text(translator, text) == text.upper()
    assert asked == ["One dog.", "Two dogs!", "See p. 5", "", "Ärger?", "No. of them: 3.5 in all."]


def test_strings_of_a_program_are_paired(tmp_path):
    pytest.importorskip("babel")
    parts = [
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"',
        'msgid "Open"\nmsgstr "Öffnen"',
        '#, fuzzy\nmsgid "Close"\nmsgstr "Ende"',
        'msgid "Save"\nmsgstr ""',
        'msgid "%d dog"\nmsgid_plural "%d dogs"\nmsgstr[0] "%d Hund"\nmsgstr[1] "%d Hunde"',
    ]
    (tmp_path / "de.po").write_text("\n\n".join(parts), encoding="utf-8")
    found = list(recipe("translated").translated(tmp_path / "de.po"))
    assert found == [("Open", "Öffnen"), ("%d dog", "%d Hund"), ("%d dogs", "%d Hunde")]


def test_the_log_of_a_run_goes_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [
        {"step": 5, "epoch": 1, "loss": 2.5, "seconds": 1.0},
        {"step": 9, "epoch": 1, "validation_loss": 2.0},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for _ in range(3):  # each point is there once, however often it is written
        recipe("to_tensorboard").to_tensorboard(tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == {"loss": [(5, 2.5)], "seconds": [(5, 1.0)], "validation_loss": [(9, 2.0)]}


@pytest.mark.parametrize("tied", ["target", "none"])
def test_new_words_and_letters_leave_the_old_translations(tied, tmp_path):
    words = WordTokenizer(["the", "sees"], None), CharacterTokenizer(["a", "b"])
    config = TransformerConfig(6, 6, N=1, d_model=16, d_ff=16, h=2, tied_embeddings=tied)
    save_model(tmp_path / "words", EncoderDecoder.from_config(config), *words)
    settings = {"pair": "en-de", "lengths": {"source": 4, "max_extra": 7}}
    write_json(tmp_path / "words" / "training.json", settings)
    table = tmp_path / "new.csv"
    table.write_text("de,en\naba\u00e4,the gnu sees\n", encoding="utf-8")
    recipe("widen").widen(tmp_path / "words", table, tmp_path / "wider")
    with pytest.raises(ValueError, match="wider exists; choose a new folder"):
        recipe("widen").widen(tmp_path / "words", table, tmp_path / "wider")
    before, after = (Translator.load(tmp_path / name, max_extra=5) for name in ("words", "wider"))
    assert after.src_tokenizer.vocabulary == [*words[0].vocabulary, "gnu"]
    assert after.tgt_tokenizer.vocabulary == [*words[1].vocabulary, "\u00e4"]
    lines = ["the sees", "sees", "sees the the"]
    assert after.translate(lines, beam=1) == before.translate(lines, beam=1)
    assert (after.pair, after.limits) == (before.pair, before.limits)


def test_subwords_get_no_new_rows(tmp_path):
    model, *_ = shipped_models()
    with pytest.raises(ValueError, match="for words, spaces and chars; subwords spell new words"):
        recipe("widen").widen(shipped_model(model), [("a", "b")], tmp_path / "wider")
    assert not (tmp_path / "wider").exists()


def test_the_rate_of_another_schedule_is_what_is_trained_with(tmp_path, one_thread):
    train, sizes = recipe("train_with_cosine").train_with_cosine, {"N": 1, "d_model": 16, "d_ff": 16, "h": 2}
    settings = {"max_steps": 8, "warmup": 4, "learning_rate": 0.01, "log_every": 1}
    for last in (5, 8):  # it is resumed, too
        translator = train(CATS, tmp_path / "run", sizes, vocab=320, **{**settings, "max_steps": last})
    assert isinstance(translator("a cat"), str)
    lines = map(json.loads, (tmp_path / "run/log.jsonl").read_text(encoding="utf-8").splitlines())
    rates = {line["step"]: line["rate"] for line in lines if "rate" in line}
    assert [rates[n] for n in (2, 4, 6, 8)] == pytest.approx([0.005, 0.01, 0.005, 0])


def test_an_interval_over_seeds_holds_the_mean_as_often_as_it_says():
    over_seeds = recipe("over_seeds").over_seeds
    for few_or_many in (0, 1, 7):
        with pytest.raises(ValueError, match="give 2 to 6 seeds"):
            over_seeds(lambda seed: 1 / 0, few_or_many)
    assert {*map(type, over_seeds(np.float64, 2))} == {float}
    draw = Random(0)
    intervals = [over_seeds(lambda seed: draw.gauss(5, 2), seeds) for seeds in (2, 3, 6) for _ in range(2000)]
    assert 0.94 < sum(low < 5 < high for _, low, high in intervals) / len(intervals) < 0.96


def test_two_runs_of_a_seed_are_compared(tmp_path, monkeypatch):
    class Rms(Parts):
        def norm(self):
            return nn.RMSNorm(self.config.d_model)

    monkeypatch.setitem(VARIANTS, "rms", Rms)
    monkeypatch.chdir(tmp_path)
    corpus = load_corpus("grammar", "de-en")
    few = {name: text.take(range(20)) for name, text in corpus.splits.items()}
    block = recipe("gain")
    block.gain.__globals__["load_corpus"] = lambda *_: Corpus("grammar", "de", "en", few)
    small = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_steps": 1, "vocab": 400}
    assert block.gain(1, name="small", **small) == block.gain(1, name="small", **small)
    for name in ("paper", "rms"):
        settings = read_json(tmp_path / f"runs/small-{name}-1/training.json")
        assert (settings["variant"], settings["seed"]) == (name, 1)
