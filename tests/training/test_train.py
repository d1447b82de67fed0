"""`annotated.train`: from pairs to a translator in one call, the same that the command makes."""

import re
import signal

import pytest
import torch
from tiny_runs import log_of, weights

import annotated
from annotated.cli.main import main
from annotated.files import read_json
from annotated.training.progress import Stopped
from annotated.training.trainer import Trainer
from annotated.translation.model_folder import load_model

PAIRS = [(f"the cat number {i} sees a dog", f"die Katze {i} sieht einen Hund") for i in range(60)]
SMALL = {"vocab": 320, "N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_tokens": 200, "epochs": 2}
pytestmark = pytest.mark.usefixtures("one_thread")


def train(out, pairs=PAIRS, **settings):
    return annotated.train(pairs, out, device="cpu", **{**SMALL, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped, and its translator."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole") / "run"
    yield out, train(out, pair="en-de")
    torch.set_num_threads(threads)


def test_what_comes_back_is_what_the_folder_holds(whole):
    out, translator = whole
    assert isinstance(translator, annotated.Translator)
    assert translator.pair == "en-de"
    assert not translator.model.training
    loaded = annotated.Translator.load(out)
    assert translator(PAIRS[3][0]) == loaded(PAIRS[3][0])
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])


def test_the_command_makes_the_same_run(whole, tmp_path):
    out, _ = whole
    both = tmp_path / "both.tsv"
    both.write_text("".join("\t".join(pair) + "\n" for pair in PAIRS), encoding="utf-8")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    flags += ["--pair=en-de", "--device=cpu", "--threads=1"]
    assert main(["train", f"--src={both}", f"--out={tmp_path / 'run'}", *flags]) == 0
    assert weights(tmp_path / "run") == weights(out)
    assert log_of(tmp_path / "run") == log_of(out)
    mine, theirs = (read_json(folder / "training.json") for folder in (out, tmp_path / "run"))
    assert mine == {name: value for name, value in theirs.items() if name in mine}
    # And what Python began the command goes on with, where it is told the text.
    again = ["train", f"--src={both}", f"--out={out}", "--resume", "--epochs=2"]
    assert main(again) == 0


def test_the_seed_decides_whatever_was_drawn_before(whole, tmp_path):
    torch.manual_seed(99)
    train(tmp_path / "same", pair="en-de")
    train(tmp_path / "other", pair="en-de", seed=1)
    assert weights(tmp_path / "same") == weights(whole[0])
    assert weights(tmp_path / "other") != weights(whole[0])


def test_faults_are_told_once_and_not_trained_on(tmp_path, capfd, whole):
    train(tmp_path / "run", [("en", "de"), *PAIRS, ("OK", "OK")], pair="en-de")
    said = capfd.readouterr().err
    assert said.count("dropped 1: column names, in line 1: 'en' | 'de'") == 1
    assert said.count("dropped 1: source and target equal, in line 62: 'OK' | 'OK'") == 1
    assert weights(tmp_path / "run") == weights(whole[0])


def test_the_run_begins_by_showing_a_pair_and_warns_of_few_updates(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    pairs = [(f"{src} {'and a cat ' * 9}", f"{tgt} {'und eine Katze ' * 9}") for src, tgt in PAIRS]
    train(tmp_path / "short", pair="en-de", epochs=1, max_tokens=10_000)
    train(tmp_path / "long", pairs, epochs=1, max_tokens=1000)
    said = capfd.readouterr().err.splitlines()
    first, other = [line for line in said if line.startswith("  such as ")]
    src, tgt = PAIRS[0]
    assert first == f"  such as en: {src!r} → de: {tgt!r}"
    assert len(other) <= 90
    assert re.fullmatch(r"  such as '.*\.\.\.' → '.*\.\.\.'", other)
    assert said.count("few updates in an epoch, 1: smaller batches (max_tokens) make more of them") == 1


def test_subwords_that_are_drawn_anew_are_told_once(tmp_path, capfd):
    train(tmp_path, subword_dropout=0.1, max_steps=1)
    assert capfd.readouterr().err.count("train: ") == 1


def test_a_run_goes_on_from_another_model(whole, tmp_path):
    translator = train(tmp_path / "run", init_from=whole[0], epochs=1)
    assert translator.src_tokenizer.pieces([9]) == whole[1].src_tokenizer.pieces([9])
    assert read_json(tmp_path / "run" / "training.json")["init_from"] == str(whole[0])
    with pytest.raises(ValueError, match=r"N is 1 in .*, not 2"):
        train(tmp_path / "other", init_from=whole[0], N=2)


def test_a_stopped_run_says_so_and_is_resumed(whole, tmp_path, monkeypatch):
    update = Trainer.update

    def interrupted(self, *inputs):
        update(self, *inputs)
        if self.progress.step == 3:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", interrupted)
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
        ({"preset": "huge"}, "preset must be one of tiny, base, big, not 'huge'"),
        ({"tokenizer": "letters"}, "not 'letters'"),
        ({"tgt_tokenizer": "letters"}, "not 'letters'"),
        ({"learning_rat": 1}, "unknown setting 'learning_rat'; did you mean learning_rate?"),
        ({"lr": 1}, "unknown setting 'lr'; did you mean learning_rate?"),
        ({"validate": 1}, "unknown setting 'validate'; did you mean validation?"),
        ({"zzz": 1}, "unknown setting 'zzz'; `annotated train --help` lists all"),
        ({"src_vocab": 9}, "unknown setting 'src_vocab'"),
        ({"src_tokenizer": "chars", "tied_embeddings": "all"}, "two vocabularies"),
        ({"tokenizer": "words", "pair": "en-de", "tied_embeddings": "all"}, "two vocabularies"),
        ({"vocab": 3}, "3$"),
        ({"pair": ("de", "en")}, r"\('de', 'en'\) is not a pair of language codes"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(settings, says, tmp_path):
    with pytest.raises(ValueError, match=says) as caught:
        train(tmp_path / "run", **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_empty_name_is_not_taken_for_no_model_to_begin_with(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no model"):
        train(tmp_path / "run", init_from="")


def test_a_file_where_the_run_should_be(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(ValueError, match="run is a file; name a folder"):
        train(tmp_path / "run")
