"""`annotated.train`: from pairs to a translator in one call, the same that the command makes."""

import os
import signal
from dataclasses import MISSING, fields
from inspect import signature

import numpy as np
import pytest
import torch
from tiny_runs import CATS, log_of, single_thread, weights, write_cats

import annotated
from annotated.transformer.config import TransformerConfig
from annotated.translation.cli.main import main
from annotated.translation.data import Corpus, ParallelText, own_text
from annotated.translation.files import read_json
from annotated.translation.storage.model_folder import load_model
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.train import Stopped
from annotated.translation.training.trainer import Trainer

SMALL = {
    "preset": "tiny",
    "vocab": 320,
    "N": 1,
    "d_model": 16,
    "d_ff": 16,
    "h": 2,
    "max_tokens": 200,
    "epochs": 2,
}
pytestmark = pytest.mark.usefixtures("one_thread")


def train(out, pairs=CATS, **settings):
    return annotated.train(pairs, out, device="cpu", **{**SMALL, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped, and its translator."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with single_thread():
        yield out, train(out, pair="en-de")


def test_what_comes_back_is_what_the_folder_holds(whole):
    out, translator = whole
    assert isinstance(translator, annotated.Translator)
    assert translator.pair == "en-de"
    assert not translator.model.training
    loaded = annotated.Translator.load(out)
    assert translator(CATS[3][0]) == loaded(CATS[3][0])
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])


def test_what_ended_a_run_is_told(tmp_path, capsys):
    train(tmp_path / "run", epochs=1, max_steps=1000)
    assert "after epoch 1, at step" in capsys.readouterr().err
    train(tmp_path / "run", epochs=1, max_steps=1, resume=True)  # below what is done
    assert "as nothing was left to do, at step" in capsys.readouterr().err


@pytest.mark.parametrize(("pairs", "told"), [(19, True), (20, False)])
def test_a_validation_that_says_little_is_told(pairs, told, tmp_path, capsys):
    train(tmp_path / "run", validation=[(f"a {i}", f"ein {i}") for i in range(pairs)], max_steps=1)
    assert ("so few say little" in capsys.readouterr().err) == told


def test_a_run_that_is_refused_leaves_no_folder_of_its_own(whole, tmp_path):
    for pairs, given in (
        ([("a cat", "eine Katze")], {}),
        (tmp_path / "none.tsv", {}),
        (CATS, {"tied_embeddings": "all", "src_tokenizer": "words"}),
        (CATS, {"pair": "en"}),
    ):
        with pytest.raises((ValueError, OSError)):
            train(tmp_path / "new", pairs, **given)
        assert not [*tmp_path.iterdir()]
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileNotFoundError):
        train(tmp_path / "mine", tmp_path / "none.tsv")
    assert (tmp_path / "mine").exists()
    with pytest.raises(ValueError, match="another run's checkpoints"):
        train(whole[0] / "checkpoints" / "new")
    assert not (whole[0] / "checkpoints" / "new").exists()


def test_the_command_makes_the_same_run(whole, tmp_path):
    out, _ = whole
    both = write_cats(tmp_path) / "both.tsv"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    flags += ["--pair=en-de", "--device=cpu", "--threads=1"]
    assert main(["train", f"--src={both}", f"--out={tmp_path / 'run'}", *flags]) == 0
    assert weights(tmp_path / "run") == weights(out)
    assert log_of(tmp_path / "run") == log_of(out)
    mine, theirs = (read_json(folder / "training.json") for folder in (out, tmp_path / "run"))
    assert mine == {name: value for name, value in theirs.items() if name in mine}
    # And what Python began the command goes on with, where it is told the text.
    assert main(["train", f"--src={both}", f"--out={out}", "--resume", "--epochs=2"]) == 0


def test_faults_are_not_trained_on(tmp_path, whole):
    train(tmp_path / "run", [("en", "de"), *CATS, ("OK", "OK")], pair="en-de")
    assert weights(tmp_path / "run") == weights(whole[0])


def test_as_many_checkpoints_are_kept_as_are_averaged(tmp_path):
    train(tmp_path / "run", average=4, keep=1, epochs=5)
    assert len(RunFolder(tmp_path / "run").checkpoints()) == 4


def test_a_stopped_run_says_so_and_is_resumed(whole, tmp_path, monkeypatch):
    report = Trainer.report

    def interrupted(self, *inputs):
        report(self, *inputs)
        if self.progress.step == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "report", interrupted)
        with pytest.raises(Stopped, match=r"stopped at step 3: the model is in .*run; .*resume=True"):
            train(tmp_path / "run", pair="en-de")
    assert issubclass(Stopped, KeyboardInterrupt)
    load_model(tmp_path / "run")
    train(tmp_path / "run", pair="en-de", resume=True)
    assert weights(tmp_path / "run") == weights(whole[0])
    with pytest.raises(ValueError, match="already holds a run"):
        train(tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokenizer": "letters"}, "not 'letters'"),
        ({"preset": "warmup_in"}, "tiny, base, big"),
        ({"src_tokenizer": "chars", "tied_embeddings": "all"}, "two vocabularies"),
        ({"tokenizer": "words", "pair": "en-de", "tied_embeddings": "all"}, "two vocabularies"),
        ({"preset": "auto", "minutes": "5"}, "minutes must be .*, not '5'"),
        ({"vocab": "300"}, "vocab must be a whole number, not '300'"),
        ({"vocab": 300.0}, "vocab must be a whole number, not 300.0"),
        ({"cache": 5}, "cache must be a path or a name, not 5"),
        ({"init_from": {"a": "model"}}, "init_from must be a path or a name, not {'a': 'model'}"),
        ({"corpus": None}, "train: text must be pairs or the path of a file, not None"),
        ({"validation": 5}, "val: text must be pairs or the path of a file, not 5"),
        ({"out": None}, "out must be a path or a name, not None"),
    ],
)
def test_a_wrong_argument_leaves_nothing_in_the_way(settings, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        annotated.train(**{"corpus": CATS, "out": tmp_path / "run", **SMALL, **settings})
    train(tmp_path / "run", max_steps=1)


@pytest.mark.parametrize("settings", [{"patience": 1}, {"metric": "bleu"}, {"average_of": "best"}])
def test_what_goes_by_validation_needs_validation_data(settings, tmp_path):
    corpus = Corpus("mine", None, None, {"train": own_text(CATS, "train")})
    with pytest.raises(ValueError, match=f"{min(settings)}=.* needs validation data"):
        train(tmp_path / "run", corpus, **settings)
    assert not RunFolder(tmp_path / "run").checkpoints()
    train(tmp_path / "run", corpus, max_steps=1)


def test_the_state_of_pytorch_is_given_back(tmp_path, whole):
    """Training works in any state, and leaves it as it was."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            train(tmp_path / "run", pair="en-de")
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with pytest.raises(ValueError, match="too few"), torch.no_grad():
        train(tmp_path / "bad", CATS[:1])
    assert torch.equal(torch.get_rng_state(), before)
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert weights(tmp_path / "run") == weights(whole[0])
    train(tmp_path / "other", pair="en-de", seed=1)
    assert weights(tmp_path / "other") != weights(whole[0])


def test_the_folder_is_found_whatever_the_working_folder_becomes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def text():
        os.chdir("/")
        yield from CATS

    train("here", text(), max_steps=np.int64(1), dropout=np.float32(0.0))
    assert read_json(tmp_path / "here" / "training.json")["max_steps"] == 1


def test_the_command_goes_on_with_a_run_of_a_file(tmp_path):
    train(tmp_path / "run", str(write_cats(tmp_path) / "both.tsv"), max_steps=1)
    assert main(["train", f"--out={tmp_path / 'run'}", "--resume", "--max-steps=2", "--device=cpu"]) == 0


def test_columns_are_named_as_the_message_asks(tmp_path):
    table = tmp_path / "three.csv"
    rows = [("id", "english", "german"), *((f"n{i}", *pair) for i, pair in enumerate(CATS))]
    table.write_text("".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(ValueError, match="in Python columns"):
        train(tmp_path / "run", table)
    train(tmp_path / "run", table, columns=("english", "german"), max_steps=1)
    assert main(["train", f"--out={tmp_path / 'run'}", "--resume", "--max-steps=2", "--device=cpu"]) == 0


def test_what_a_corpus_says_of_its_text_is_what_the_translator_reads(tmp_path):
    text = ParallelText(*zip(*CATS, strict=True), range(len(CATS)), "train")
    corpus = Corpus("mine", "en", "de", {"train": text}, tokenized=True)
    translate = train(tmp_path / "run", corpus, max_steps=1)
    for each in (translate, annotated.Translator.load(tmp_path / "run")):
        with pytest.raises(ValueError, match="lower-cased text only"):
            each("The Cat")


def test_the_signature_shows_no_default_that_is_not_used(tmp_path):
    shown = signature(annotated.train).parameters
    for kind in (TrainingConfig, TransformerConfig):
        for field in fields(kind):
            assert field.default is MISSING or shown[field.name].default is None
    train(tmp_path / "run", max_steps=1, smoothing=None, dropout=None)
    assert read_json(tmp_path / "run" / "training.json")["smoothing"] == TrainingConfig.tiny().smoothing


def test_a_limit_of_one_sides_subwords_is_not_the_other_sides(tmp_path):
    pairs = [(f"w{i} w{i + 1}", f"the cat number {i}") for i in range(9000)]
    kinds = {"src_tokenizer": "spaces", "tgt_tokenizer": "subwords"}
    assert len(train(tmp_path / "run", pairs, vocab=None, max_steps=1, **kinds).src_tokenizer) > 8000
