"""The benchmarks: each runs, refuses what it cannot tell, and races nothing but the same computation."""

import json
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from interop_models import ENGLISH, GERMAN, subwords, taught

from annotated.translation.translator import Translator

FOLDER = Path(__file__).parents[2] / "benchmarks"

QUICK = ["--size", "toy", "--rounds", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch, one_thread):
    """Let the scripts find each other, as they do when they are run."""
    monkeypatch.syspath_prepend(str(FOLDER))


def script(name):
    return import_module(name)


def test_the_interval_of_a_median_holds_it_19_times_of_20():
    drawn = torch.distributions.LogNormal(0.0, 1.0).sample((4000, 10)).tolist()  # their median is 1
    interval = script("timing").interval
    held = sum(low <= 1 <= high for low, high in map(interval, drawn)) / len(drawn)
    assert 0.95 < held < 0.99  # of ten values it leaves out one on each side: 1 - 22 / 1024
    assert interval([1.0] * 5) is None


def test_other_values_and_other_answers_are_refused():
    timing = script("timing")
    timing.check_equal({"ours": 2.0, "peer": 2.0001})
    for wrong in (2.1, float("nan")):
        with pytest.raises(ValueError, match="not the same computation: peer"):
            timing.check_equal({"ours": 2.0, "peer": wrong}, lambda _: 1e-2)
    assert timing.check_agreement({"a": [1] * 100, "b": [1] * 99 + [2]}) == {"a": 1.0, "b": 0.99}
    with pytest.raises(ValueError, match=r"peer and ours agree on 98\.0%"):
        timing.check_agreement({"ours": [1] * 100, "peer": [1] * 98 + [2] * 2})


def sees_the_future(trainee):
    trainee.model.stacks.decoder.forward = lambda x, memory, tgt_mask, tgt_is_causal, **rest: type(
        trainee.model.stacks.decoder
    ).forward(trainee.model.stacks.decoder, x, memory, **rest)


def forgets_a_weight(trainee):
    with torch.no_grad():
        trainee.model.stacks.encoder.layers[0].linear1.weight[0] = 0


@pytest.mark.parametrize("spoil", [sees_the_future, forgets_a_weight])
def test_a_wrong_candidate_is_caught_before_the_race(spoil):
    trainees, workload = script("trainees"), script("workload")
    model = trainees.EncoderDecoder.from_config(workload.CONFIGS["toy"])
    batch = workload.random_batches(model.config, 128, 1)[0]
    ready = {name: make() for name, make in trainees.candidates(model, torch.device("cpu")).items()}
    trainees.check(ready, batch)
    spoil(ready["torch.nn.Transformer"])
    with pytest.raises(ValueError, match="not the same computation"):
        trainees.check(ready, batch)


def record_of(name, tmp_path, *arguments):
    """Run a script as its main does; what it wrote."""
    path = tmp_path / f"{name}.json"
    found = script(name).run([*QUICK, *arguments, "--json", str(path)])
    record = json.loads(path.read_text())
    assert record == json.loads(json.dumps(found, default=str))
    assert record["machine"]["versions"]["torch"] == version("torch")
    assert all(len(each["turns"]) == 2 for each in record["candidates"].values())
    return record


@pytest.fixture
def all_told(monkeypatch):
    """A toy's times mean nothing: let them be reported all the same.

    The rate of products of bf16 is made up, because a processor without any takes minutes to measure it.
    """
    monkeypatch.setattr(script("timing"), "interval", lambda values: (min(values), max(values)))
    monkeypatch.setattr(script("train"), "matmul_rate", lambda *_: 1.0)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_train(tmp_path, all_told, precision):
    record = record_of("train", tmp_path, "--tokens", "128", "--precision", precision)
    assert record["operations"] > 0
    assert len(record["comparisons"]) == len(record["candidates"]) - 1


def test_decode(tmp_path, all_told, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    tokenizer = subwords(ENGLISH, GERMAN)
    translator = Translator(taught(tokenizer), tokenizer, tokenizer)
    case = translator, [translator.encode(sentence) for sentence in (*ENGLISH, "the house")]
    monkeypatch.setattr(script("decode"), "load_case", lambda _: case)
    record = record_of("decode", tmp_path, "--rows", "2", "4", "--beams", "1", "2")
    assert len(record["candidates"]) == 6
    assert min(record["agreement"].values()) >= 0.99
    assert set(record["rows"].values()) <= {2, 4}
    assert set(record["threads"].values()) == {"1 x 1"}


def test_settings_that_are_chosen_are_compared_with_random_ones(tmp_path, monkeypatch):
    own, record = script("own_data"), tmp_path / "record.json"
    pairs = [(f"{i} {j}", f"{j} {i}") for i in range(9) for j in range(9)]
    monkeypatch.setitem(own.DATA, "numbers", (lambda: own.split(pairs), ("spaces", "spaces"), "exact"))
    small = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "vocab": 300, "max_tokens": 256}
    monkeypatch.setattr(own, "draw_settings", lambda draw: small)
    arguments = ["own_data", "--seconds", "1", "--random", "1", "--record", str(record), "numbers"]
    monkeypatch.setattr("sys.argv", arguments)
    own.main()
    found = json.loads(record.read_text(encoding="utf-8"))
    assert [run["kind"] for run in found["runs"]] == ["chosen", "random"]
    assert all(0 <= run["score"] <= 100 for run in found["runs"])
    assert {"command", "commit", "date", "machine"} <= found.keys()
