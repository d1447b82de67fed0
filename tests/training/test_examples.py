"""The examples of training do what they say, with models so small that it takes a moment."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
from interop_models import toy
from tiny_runs import CATS, log_of, write_cats

import annotated
from annotated.translation.files import read_json, write_json
from annotated.translation.interop import to_marian
from annotated.translation.tokenizers import SentencePieceTokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "preset": "tiny",
    "vocab": 320,
    "N": 1,
    "d_model": 16,
    "d_ff": 16,
    "h": 2,
    "max_tokens": 200,
    "device": "cpu",
}
pytestmark = pytest.mark.usefixtures("one_thread")


def example(name, function="main"):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))[function]


@pytest.fixture
def tsv(tmp_path):
    return str(write_cats(tmp_path) / "both.tsv")


def test_pairs_from_memory(tsv, tmp_path, capfd):
    example("train_on_pairs")(tsv, str(tmp_path / "run"), max_steps=2, **SMALL)
    assert capfd.readouterr().out.startswith(CATS[-1][0] + " -> ")


def test_an_opus_model_is_fine_tuned(tsv, tmp_path):
    tokenizer = SentencePieceTokenizer.train([side for pair in CATS for side in pair], 320)
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all", activation="swish")
    to_marian(tmp_path / "opus", model, tokenizer, tokenizer)
    config = read_json(tmp_path / "opus" / "config.json")
    config |= {"decoder_start_token_id": config["pad_token_id"]}  # in opus-mt padding begins translations
    write_json(tmp_path / "opus" / "config.json", config)
    folders = str(tmp_path / "opus"), tsv, str(tmp_path / "run")
    options = {"learning_rate": 3e-3, "max_tokens": 500, "device": "cpu"}
    finetune = example("finetune_opus_mt")
    finetune(*folders, epochs=1, **options)
    tuned = finetune(*folders, epochs=5, resume=True, **options)
    before = annotated.Translator.load(tmp_path / "run-start")
    assert tuned.model.config == before.model.config
    assert tuned.src_tokenizer.kind == "marian"
    losses = [line["validation_loss"] for line in log_of(tmp_path / "run") if "validation_loss" in line]
    assert losses[-1] < losses[0]


def test_two_runs_are_compared(tsv, tmp_path, capfd):
    runs = [str(tmp_path / name) for name in "ab"]
    for run, settings in zip(runs, ({"seed": 0}, {"seed": 1, "d_ff": None}), strict=True):
        annotated.train(shutil.copy(tsv, f"{run}.tsv"), run, epochs=2, **SMALL | settings)
    capfd.readouterr()
    found = example("compare_runs")(*runs, tsv, str(tmp_path / "curves.png"))
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith(f"d_ff: 16 in {runs[0]}, ")
    assert "None" not in lines[0]  # what the preset says
    assert lines[1] == f"seed: 0 in {runs[0]}, 1 in {runs[1]}"
    assert lines[3].endswith(", on 60 sentences")
    assert found.difference.low <= found.difference.high
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_a_pair_are_compared_by_its_columns_and_words(tmp_path):
    runs = [tmp_path / name for name in ("a", "b", "back")]
    rows = [(f"{i} cats", f"{i}只猫和一条狗") for i in range(60)]
    for run, pair, text in zip(
        runs, ("en-zh", "en-zh", "zh-en"), (rows, rows, [(b, a) for a, b in rows]), strict=True
    ):
        annotated.train(text, run, pair=pair, max_steps=1, **SMALL)
    tables = []
    for name, columns in (("ahead", ("en", "zh")), ("swapped", ("zh", "en"))):
        lines = [columns, *(row[:: 1 if name == "ahead" else -1] for row in rows)]
        tables.append(tmp_path / f"{name}.tsv")
        tables[-1].write_text("".join("\t".join(row) + "\n" for row in lines), encoding="utf-8")
    compare = example("compare_runs")
    found = [compare(str(runs[0]), str(runs[1]), str(table), str(tmp_path / "c.png")) for table in tables]
    assert found[0] == found[1]
    assert "tok:zh" in found[0].a.signature
    with pytest.raises(ValueError, match="no test fits both"):
        compare(str(runs[0]), str(runs[2]), str(tables[0]), str(tmp_path / "c.png"))


@pytest.mark.parametrize("attribute", ["", ' xmlns="http://www.lisa.org/tmx14"'])
def test_a_translation_memory_becomes_pairs(attribute, tmp_path):
    read = example("tmx_to_tsv", "read_units")
    german = '<tuv xml:lang="DE-at"><seg>Ein Hund</seg></tuv><tuv xml:lang="de-DE"><seg>Der</seg></tuv>'
    seg = "<seg>A <bpt>&lt;b<sub>x</sub>&gt;</bpt>dog,\n <hi>very<ph/> tired</hi><ept>b</ept>.</seg>"
    unit = f'<tu><tuv xml:lang="{{}}">{seg}</tuv>{german}</tu>'
    body = "".join(map(unit.format, ("en", "EN_us", "fr"))) + f'<tu><tuv xml:lang="en"/>{german}</tu>'
    memory = tmp_path / "m.tmx"
    memory.write_text(f'<tmx version="1.4"{attribute}><body>{body}</body></tmx>', encoding="utf-8")
    english = "A dog, very tired."
    assert list(read(memory, "en", "de")) == [(english, "Ein Hund")] * 2  # the first of a language
    assert list(read(memory, "en-US", "DE-de")) == [(english, "Der")]
    for pair in (("en", "es"), ("de", "de")):
        languages = f"no unit in both {' and '.join(pair)}; its languages: en, de-at, de-de, en-us, fr"
        with pytest.raises(ValueError, match=languages):
            list(read(memory, *pair))


@pytest.mark.parametrize(
    "content", [None, "", "a\tb", "<tmx><body>", "<html/>", "<?xml version='1.0' encoding='x'?>"]
)
def test_what_is_no_translation_memory_is_refused_by_its_name(content, tmp_path, monkeypatch):
    memory = tmp_path / "m.tmx"
    if content is not None:
        memory.write_text(content, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["tmx_to_tsv.py", str(memory), "en", "de"])
    with pytest.raises(SystemExit, match=re.escape(str(memory))):
        runpy.run_path(str(EXAMPLES / "tmx_to_tsv.py"), run_name="__main__")
