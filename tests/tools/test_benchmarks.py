"""The benchmarks: each runs, makes the record that is read, and races nothing but the same computation."""

import json
import subprocess
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from interop_models import ENGLISH, GERMAN, subwords, taught

from annotated.recorded import RECORDED, made, recorded
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
    found = script(name).run([*arguments, "--json", str(path)])
    record = json.loads(path.read_text())
    assert record["found"] == json.loads(json.dumps(found, default=str))
    for run in record["made"]:
        assert run["command"].startswith("python ")
        assert {"commit", "date"} <= run.keys()
        assert run["machine"]["versions"]["torch"] == version("torch")
    return record["found"]


def race_of(name, tmp_path, *arguments):
    """The record of a race, of two turns each."""
    record = record_of(name, tmp_path, *QUICK, *arguments)
    assert all(len(each["turns"]) == 2 for each in record["candidates"].values())
    return record


def measures(value):
    """The names under which numbers stand in a record, whoever they are about; its settings left out."""
    if isinstance(value, dict):
        apart = [measures(each) for name, each in value.items() if name != "settings"]
        here = {name for name, each in value.items() if not isinstance(each, dict) and not rows(each)}
        return here.union(*apart)
    return set().union(*map(measures, value)) if rows(value) else set()


def rows(value):
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


# The scripts that make a record and are no races; where their runs go, and what a record has besides.
LONG = {
    "ablation": "--runs",
    "compile": None,
    "continued": "--runs",
    "en_fr": "--out",
    "g2p": "--runs",
    "language_model": None,
    "search": None,
    "since_2017": None,
    "smoothing": None,
    "start_up": None,
    "variations": None,
    "vocabulary": None,
}


@pytest.mark.parametrize("name", LONG)
def test_a_short_run_makes_what_the_record_has(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # compiling takes minutes
    runs = [LONG[name], str(tmp_path / "runs")] if LONG[name] else []
    found = record_of(name, tmp_path, "--short", *runs)
    assert measures(found) >= measures(recorded(name))  # today's scores may have more


def test_a_wide_window_hides_nothing_and_qk_norm_ignores_the_scale(monkeypatch):
    race, x = script("language_model"), torch.randn(2, 9, 64)
    before, window, normed = race.shown["GroupedQueryAttention"](64), race.Window(64), race.QKNorm(64)
    window.load_state_dict(before.state_dict())
    moved = torch.cat([x[:, :1] + 1, x[:, 1:]], dim=1)  # its window ends before the fifth token
    assert torch.equal(window(x)[:, 4:], window(moved)[:, 4:])
    assert not torch.allclose(window(x)[:, 3], window(moved)[:, 3])
    monkeypatch.setattr(race.Window, "width", 9)
    torch.testing.assert_close(window(x), before(x))
    found = normed(x)
    for parameter in normed.w_q[0].parameters():
        parameter.data *= 5
    torch.testing.assert_close(normed(x), found, atol=1e-4, rtol=1e-4)


def test_vocabularies_read_the_same_sentences_in_the_same_batches():
    tasks = [script("vocabulary").task_of(size, 50, short=True) for size in (400, 500)]
    read = [
        [[task.tokenizer.decode(row) for row in batch.tgt.tolist()] for batch in task.train.epoch(0)]
        for task in tasks
    ]
    assert read[0] == read[1]
    assert max(len(batch) * max(len(line.split()) for line in batch) for batch in read[0]) <= 50


def test_a_record_grows_and_its_settings_stay(tmp_path):
    records, path = script("records"), tmp_path / "grown.json"
    for number in range(3):
        with records.Record(path, {"updates": 7}).change() as found:
            found.setdefault("runs", []).append(number)
    record = records.Record(path, {"updates": 7})
    assert record.found() == {"updates": 7, "runs": [0, 1, 2]}
    assert len(record.read()["made"]) == 1  # one command, however often it wrote
    with pytest.raises(ValueError, match="recorded with other settings"):
        records.Record(path, {"updates": 8})
    kept = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), record.change() as found:
        raise KeyboardInterrupt
    assert path.read_bytes() == kept


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_names_what_made_it(path):
    for run in made(path.stem):
        [name] = [word for word in run.get("command", run.get("script")).split() if word.endswith(".py")]
        assert (FOLDER.parent / name).exists()
        assert run["commit"] == "made before commits were recorded" or {"date", "machine"} <= run.keys()
    assert f"`{path.stem}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_grammar_draws_the_corpus(capsys):
    grammar = script("grammar")
    if subprocess.run(
        ["git", "-C", FOLDER, "cat-file", "-e", grammar.COMMIT], capture_output=True
    ).returncode:
        pytest.skip("the history of this clone does not reach back to the grammar")
    grammar.run(["--short"])
    assert "draws the same 200 lines" in capsys.readouterr().out


@pytest.fixture
def all_told(monkeypatch):
    """A toy's times mean nothing: let them be reported all the same.

    The rate of products of bf16 is made up, because a processor without any takes minutes to measure it.
    """
    monkeypatch.setattr(script("timing"), "interval", lambda values: (min(values), max(values)))
    monkeypatch.setattr(script("train"), "matmul_rate", lambda *_: 1.0)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_train(tmp_path, all_told, precision):
    record = race_of("train", tmp_path, "--tokens", "128", "--precision", precision)
    assert record["operations"] > 0
    assert len(record["comparisons"]) == len(record["candidates"]) - 1


def test_decode(tmp_path, all_told, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    tokenizer = subwords(ENGLISH, GERMAN)
    translator = Translator(taught(tokenizer), tokenizer, tokenizer)
    case = translator, [translator.encode(sentence) for sentence in (*ENGLISH, "the house")]
    monkeypatch.setattr(script("decode"), "load_case", lambda _: case)
    record = race_of("decode", tmp_path, "--rows", "2", "4", "--beams", "1", "2")
    assert len(record["candidates"]) == 6
    assert min(record["agreement"].values()) >= 0.99
    assert set(record["rows"].values()) <= {2, 4}
    assert set(record["threads"].values()) == {"1 x 1"}


def test_attention(tmp_path, all_told):
    record = race_of("attention", tmp_path, "--tokens", "64", "--lengths", "8", "16")
    assert [each["ours"] for each in record["comparisons"]] == ["readable, 8", "readable, 16"]


def test_memory(tmp_path, all_told):
    record = race_of("memory", tmp_path, "--tokens", "128")
    assert all(each["median"] > 50 for each in record["candidates"].values())  # PyTorch alone takes more


def test_scaling(tmp_path, monkeypatch):
    monkeypatch.setattr(script("scaling"), "GOAL", 99)  # a toy's times are noise
    record = race_of("scaling", tmp_path)
    assert record["exponents"].keys() == {"with the cache", "without"}


def test_quantization(tmp_path):
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        pytest.skip("this processor has no VNNI")
    found = record_of("quantization", tmp_path, "--short", "--minutes", "0.01")
    assert measures(found) == measures(recorded("quantization"))


def test_the_recipe_for_sounds_is_what_is_trained(tmp_path):
    g2p = script("g2p")
    g2p.run(["--short", "--runs", str(tmp_path / "runs"), "--json", str(tmp_path / "record.json")])
    [run] = (tmp_path / "runs").iterdir()
    settings = json.loads((run / "training.json").read_text(encoding="utf-8"))
    assert {**g2p.RECIPE, **g2p.TOY, "preset": "tiny"}.items() <= settings.items()


def test_settings_that_are_chosen_are_compared_with_random_ones(tmp_path, monkeypatch):
    own, record = script("own_data"), tmp_path / "record.json"
    pairs = [(f"{i} {j}", f"{j} {i}") for i in range(40) for j in range(40)]
    monkeypatch.setitem(own.DATA, "numbers", (lambda: own.split(pairs), ("spaces", "spaces"), "exact"))
    small = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "vocab": 300, "max_tokens": 256}
    monkeypatch.setattr(own, "draw_settings", lambda draw: small)
    monkeypatch.setattr(
        own.rules, "choose_settings", lambda *_: ({**small, "max_steps": 5, "epochs": 9}, "why")
    )
    monkeypatch.setattr(own.rules, "tokens_per_second", lambda *_: 1.0)
    arguments = ["own_data", "--seconds", "1", "--random", "1", "--seeds", "0", "--json", str(record)]
    for more in ([], ["--pairs", "60"], []):  # the last finds both runs in the record
        monkeypatch.setattr("sys.argv", [*arguments, *more, "numbers"])
        own.main()
    runs = json.loads(record.read_text(encoding="utf-8"))["found"]["runs"]
    assert [(run["kind"], run["pairs"]) for run in runs] == [
        (kind, most) for most in (None, 60) for kind in ("random", "chosen")
    ]
    assert all(0 <= run["score"] <= 100 for run in runs)


def test_varlen(tmp_path, all_told):
    record = race_of("varlen", tmp_path, "--sentences", "4")
    assert record["candidates"].keys() == {"padded, with a mask", "each sentence alone"}


def test_padding_without_a_mask_is_another_computation(tmp_path, monkeypatch):
    varlen = script("varlen")
    attend = varlen.F.scaled_dot_product_attention
    monkeypatch.setattr(varlen.F, "scaled_dot_product_attention", lambda q, k, v, mask=None: attend(q, k, v))
    with pytest.raises(ValueError, match="not the same computation"):
        varlen.run([*QUICK, "--sentences", "4"])


def test_precision(tmp_path):
    results = record_of("precision", tmp_path, "--short")["results"]
    assert results.keys() == {"float32", "bf16"}
    assert all(each["tokens_per_second"] > 0 and "validation_bleu" in each for each in results.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would run")
def test_each_step_on_a_gpu_needs_nothing_but_a_gpu():
    for command, *_ in script("gpu").STEPS.values():
        name, *arguments = command.split()
        if name != "-m":
            with pytest.raises((ValueError, RuntimeError), match=r"(?i)cuda"):
                script(Path(name).stem).run(arguments)


def test_the_gpu_script_tells_which_step_failed(tmp_path, monkeypatch, capsys):
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "STEPS", {"good": ("", 9, "-c pass"), "bad": ("", 9, "-c raise")})
    with pytest.raises(SystemExit):
        gpu.run(["--device", "cpu", "--out", str(tmp_path)])
    told = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert told[1:] == [["good", "done"], ["bad", "failed"]]
