"""The benchmarks: each runs, refuses what it cannot tell, and races nothing but the same computation."""

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import threading
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, subwords, taught
from torch.autograd import DeviceType

from annotated.data import TokenBatches, load_corpus
from annotated.data.parallel import Corpus, ParallelText
from annotated.fast import map_in_threads, smoothed_cross_entropy
from annotated.search.beam import Hypothesis
from annotated.search.cache import DecoderCache
from annotated.tokenizers import PAD, SentencePieceTokenizer
from annotated.transformer.attention import MultiHeadedAttention, attention, subsequent_mask
from annotated.transformer.model import Decoder
from annotated.transformer.parts import VARIANTS
from annotated.translation.model_folder import save_model
from annotated.translation.translator import Translator

FOLDER = Path(__file__).parents[2] / "benchmarks"
QUICK = ["--size", "toy", "--rounds", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch, one_thread):
    """Let the scripts find each other, as they do when they are run."""
    monkeypatch.syspath_prepend(str(FOLDER))


def script(name):
    return import_module(name)


class Clock:
    """Stands in for the clock: candidates say themselves what their next turn takes."""

    def __init__(self, **turns):
        self.turns = {name: iter(values) for name, values in turns.items()}
        self.order = []

    def measured(self, rounds):
        races = {name: lambda name=name: name for name in self.turns}
        return script("timing").in_turns(races, rounds, self.measure, warm_up=0)

    def measure(self, run):
        name = run()
        self.order.append(name)
        return next(self.turns[name])


# ---- timing


def test_candidates_take_turns_and_nobody_always_comes_first():
    clock = Clock(a=[1.0] * 4, b=[1.0] * 4)
    clock.measured(2)
    assert clock.order == list("abbaabba")


def compared(ours, peer):
    return script("timing").compare(Clock(ours=ours, peer=peer).measured(len(ours) // 2), "ours", "peer")


def test_the_median_and_its_ratio_by_hand():
    measured = Clock(ours=[2.0, 2.0, 2.0, 9.0], peer=[3.0, 3.0, 3.1, 2.9]).measured(2)
    assert (measured["ours"].median, measured["peer"].median) == (2.0, 3.0)
    assert measured["peer"].spread == pytest.approx((3.025 - 2.975) / 3)
    found = compared([2.0] * 10, [2.8, 2.0, 3.2, 3.0, 9.0, 3.0, 2.8, 3.2, 3.0, 3.0])
    assert (found.ratio, found.bounds, found.told) == (
        1.5,
        (1.4, 1.6),
        True,
    )  # but for the least and the most
    assert str(found) == "1.50 x (1.40 to 1.60)"


def test_the_interval_of_a_median_holds_it_19_times_of_20():
    drawn = torch.distributions.LogNormal(0.0, 1.0).sample((4000, 10)).tolist()  # their median is 1
    interval = script("timing").interval
    held = sum(low <= 1 <= high for low, high in map(interval, drawn)) / len(drawn)
    assert 0.95 < held < 0.99  # of ten values it leaves out one on each side: 1 - 22 / 1024
    assert interval([1.0] * 5) is None
    assert interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)


def test_a_difference_that_the_interval_does_not_hold_up_is_too_close():
    found = compared([2.0] * 6, [2.2, 1.9] * 3)
    assert not found.told
    assert str(found) == "too close to tell: 1.02 x (0.95 to 1.10)"


def test_a_drift_that_two_candidates_share_does_no_harm():
    drift = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    found = compared(drift, [1.1 * each for each in drift])
    assert found.told
    assert found.width == pytest.approx(1)


def test_nothing_is_written_after_too_few_turns(tmp_path):
    report = script("report")
    options = report.parser("", ["toy"]).parse_args(["--json", str(tmp_path / "new" / "out.json")])
    found = compared([1.0] * 4, [1.1] * 4)
    assert str(found) == "1.10 x, in too few turns"
    with pytest.raises(ValueError, match="too few turns"):
        report.write("which", options, {}, [found])
    assert not options.json.exists()


def raced(monkeypatch, turns, minutes):
    """Race two candidates of which every run takes a minute by the clock on the wall."""
    timing, clock = script("timing"), Clock(**turns)
    monkeypatch.setattr(timing.time, "monotonic", lambda: 60.0 * len(clock.order))
    races = {name: lambda name=name: name for name in turns}
    return timing.race(races, [("ours", "peer")], minutes, measure=clock.measure, warm_up=0)


def test_a_race_ends_as_soon_as_its_ratio_is_known(monkeypatch, capsys):
    measured, [found] = raced(monkeypatch, {"ours": [1.0] * 40, "peer": [1.1] * 40}, minutes=80)
    assert len(measured["peer"].turns) == 6
    assert found.told
    wild = [1.0, 3.0, 1.5, *[1.1] * 37]
    measured, [found] = raced(monkeypatch, {"ours": [1.0] * 40, "peer": wild}, minutes=80)
    assert len(measured["peer"].turns) == 12  # two values on each side are left out of twelve
    assert capsys.readouterr().err == ""


def test_a_race_whose_time_is_up_says_what_it_does_not_know(monkeypatch, capsys):
    noisy = {"ours": [1.0] * 40, "peer": [1.1, 1.3] * 20}
    measured, [found] = raced(monkeypatch, noisy, minutes=41)
    assert len(measured["peer"].turns) == 20  # a round takes four minutes: an eleventh would end after 44
    assert "41 minutes are over; least is known of peer: 1.20 x (1.10 to 1.30)" in capsys.readouterr().err
    measured, [found] = raced(monkeypatch, noisy, minutes=1)
    assert found.bounds  # however short the time, there is an interval


def runs_out(after):
    """A candidate that ends with its memory, after some turns; it does nothing."""
    turns = iter(range(after))

    def run():
        if next(turns, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand much more to read")

    return run


@pytest.mark.parametrize("after", [0, 3])
def test_a_candidate_without_memory_is_left_out_by_name(after, capsys):
    found = script("timing").in_turns({"large": runs_out(after), "small": lambda: None}, 2)
    assert {name: len(each.turns) for name, each in found.items()} == {"small": 4}
    assert capsys.readouterr().err == "large is left out: CUDA out of memory. Tried to allocate 2 GiB\n"


def test_other_errors_are_no_reason_to_leave_a_candidate_out():
    with pytest.raises(ValueError, match="no candidate is left"):
        script("timing").in_turns({"large": runs_out(0)}, 1)
    with pytest.raises(ZeroDivisionError):
        script("timing").in_turns({"wrong": lambda: 1 / 0, "right": lambda: None}, 1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        script("timing").in_turns({"wrong": lambda: torch.ones(2, 3) @ torch.ones(2, 3)}, 1)


def test_a_round_is_the_least():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        script("timing").in_turns({}, 0)


def test_a_record_names_the_commit_of_a_checkout(monkeypatch, tmp_path):
    report = script("report")
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    monkeypatch.setattr(report, "__file__", str(tmp_path / "report.py"))
    assert report.machine()["commit"] is None  # nothing is committed yet
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    assert re.fullmatch("[0-9a-f]{40}", report.machine()["commit"])
    monkeypatch.setenv("PATH", str(tmp_path))  # no git there
    assert report.machine()["commit"] is None


# ---- what is the same computation


def test_other_values_and_other_answers_are_refused():
    timing = script("timing")
    timing.check_equal({"ours": 2.0, "peer": 2.0001}, 1e-4)
    for wrong in (2.1, float("nan")):
        with pytest.raises(ValueError, match="not the same computation: peer"):
            timing.check_equal({"ours": 2.0, "peer": wrong}, 1e-2)
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


@pytest.mark.parametrize("peer", ["torch.nn.Transformer", "torch.nn.Transformer with our loss"])
@pytest.mark.parametrize("spoil", [sees_the_future, forgets_a_weight])
def test_a_wrong_candidate_is_caught_before_the_race(spoil, peer):
    trainees, workload = script("trainees"), script("workload")
    model = trainees.EncoderDecoder.from_config(workload.CONFIGS["toy"])
    batch = workload.random_batches(model.config, 128, 1)[0]
    ready = {name: make() for name, make in trainees.candidates(model, torch.device("cpu")).items()}
    trainees.check(ready, batch)
    spoil(ready[peer])
    with pytest.raises(ValueError, match="not the same computation"):
        trainees.check(ready, batch)


@pytest.mark.parametrize(
    ("name", "flash"), {"x-transformers": True, "x-transformers as it comes": False}.items()
)
def test_x_transformers_has_our_weights_and_our_places_of_dropout(name, flash):
    pytest.importorskip("x_transformers")
    trainees, workload = script("trainees"), script("workload")
    rates = {"dropout": 0.5, "attention_dropout": 0.3, "relu_dropout": 0.2}
    config = dataclasses.replace(workload.CONFIGS["toy"], N=2, **rates)
    model = trainees.EncoderDecoder.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)  # no biases of 0, no norms of 1
    batch = workload.random_batches(config, 128, 1)[0]
    makers = trainees.candidates(model, torch.device("cpu"))
    ready = {name: makers[name]() for name in (trainees.TORCH, name, trainees.OURS)}
    trainees.check(ready, batch)
    theirs = ready[name].model
    assert {module.flash for module in theirs.modules() if hasattr(module, "flash")} == {flash}
    assert len(list(theirs.parameters())) == len(list(ready[trainees.OURS].model.parameters()))
    for stack, attentions in ((theirs.encoder, 1), (theirs.decoder, 2)):
        found = [module.p for module in stack.modules() if isinstance(module, torch.nn.Dropout)]
        layer = [0.2, *[0.3] * attentions, *[0.5] * (attentions + 1)]
        assert sorted(found) == sorted(2 * layer)


# ---- the scripts


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


@pytest.fixture
def folder(tmp_path):
    """A model folder, and with it the tokenizer that the scripts need."""
    tokenizer = subwords(ENGLISH, GERMAN)
    save_model(tmp_path / "model", taught(tokenizer, steps=1), tokenizer, tokenizer)
    return tmp_path / "model"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_train(tmp_path, all_told, precision):
    record = record_of("train", tmp_path, "--tokens", "128", "--precision", precision)
    assert record["operations"] > 0
    assert len(record["comparisons"]) == len(record["candidates"]) - 1


def test_a_peer_is_raced_with_its_own_loss_and_with_ours(monkeypatch):
    trainees, workload = script("trainees"), script("workload")
    model = trainees.EncoderDecoder.from_config(workload.CONFIGS["toy"])
    batch = workload.random_batches(model.config, 128, 1)[0]
    ready = {name: make() for name, make in trainees.candidates(model, torch.device("cpu")).items()}
    assert set(ready) >= {trainees.TORCH, trainees.TORCH_OUR_LOSS, trainees.OURS}
    calls = []

    def counted(*args, **options):
        calls.append(args[0].shape)
        return smoothed_cross_entropy(*args, **options)

    monkeypatch.setattr("annotated.training.update.smoothed_cross_entropy", counted)
    found = {}
    for name, trainee in ready.items():
        trainee.step(batch)
        found[name], calls[:] = len(calls), []
    assert {name for name, count in found.items() if count} == {trainees.TORCH_OUR_LOSS, trainees.OURS}


def test_bf16_gives_the_peer_both_ways(tmp_path, all_told):
    only = ["torch.nn.Transformer, bf16 by autocast", "torch.nn.Transformer, bf16 in products"]
    asked = ("--tokens", "128", "--precision", "bf16", "--only", *only, "annotated, bf16")
    record = record_of("train", tmp_path, *asked)
    assert [each["peer"] for each in record["comparisons"]] == only
    with pytest.raises(ValueError, match=r"no candidate 'torch', only torch\.nn\.Transformer, "):
        record_of("train", tmp_path, "--only", "torch")


def test_the_loss_counts_three_products_of_states_and_vocabulary():
    states, weight, bias = (torch.randn(size).requires_grad_() for size in ((20, 8), (50, 8), (50,)))
    with script("train").count_operations() as counter:
        smoothed_cross_entropy(states, weight, bias, torch.full((20,), 3), 0.1).backward()
    assert counter.get_total_flops() == 3 * 2 * 20 * 50 * 8  # the logits, and a gradient for each factor


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


def test_an_engine_whose_library_has_no_gpu_is_left_out(tmp_path, all_told, monkeypatch, capsys):
    decode = script("decode")

    def refuses(rows):
        raise ValueError("This CTranslate2 package was not compiled with CUDA support")

    makes = {"annotated": lambda rows: {"1": lambda sentences: sentences}, "CTranslate2": refuses}
    monkeypatch.setattr(decode, "load_case", lambda _: (None, [[5, 6, 1]]))
    monkeypatch.setattr(decode, "engines", lambda *_: dict(makes))
    record = record_of("decode", tmp_path, "--rows", "2", "--beams", "1")
    assert list(record["candidates"]) == ["annotated, beam 1"]
    assert "CTranslate2 is left out: This CTranslate2 package" in capsys.readouterr().err


def test_the_fastest_setting_is_that_of_the_better_of_two_tries_if_the_first_was_near(monkeypatch):
    decode, tries = script("decode"), []
    first, second = {(4, "1"): 1.0, (4, "2"): 2.0, (8, "1"): 1.2, (8, "2"): 1.4}, {(8, "2"): 0.5}

    def measure(run):
        tries.append(run())
        return (second if tries.count(tries[-1]) == 2 else first).get(tries[-1], 9.0)

    def make(rows):
        return {threads: lambda _, threads=threads: (rows, threads) for threads in ("1", "2")}

    monkeypatch.setattr(decode, "seconds", measure)
    assert decode.best_of(make, [4, 8], [[1]])[:2] == (8, "2")
    assert {each: tries.count(each) for each in tries} == {(4, "1"): 2, (4, "2"): 1, (8, "1"): 2, (8, "2"): 2}


def test_engines_are_tried_in_one_thread_in_all_and_with_a_batch_in_each():
    used = []

    def decode(batch):
        used.append((len(batch), torch.get_num_threads(), threading.get_ident()))
        return [row[1:] for row in batch.tolist()]

    engines = script("engines")
    ways = engines.in_torch(decode, {"1 x 1": (1, map), "1 x 2": (2, map), "2 x 1": (2, map_in_threads)})(2)
    sentences = [[4, 1], [5, 6, 7, 1], [5, 6, 1], [8, 1]]
    for way, run in ways.items():
        used.clear()
        assert run(sentences) == [(1,), (6, 7, 1), (6, 1, PAD), (1,)]
        assert [rows for rows, *_ in used] == [2, 2]
        assert {threads for _, threads, _ in used} == {2 if way == "1 x 2" else 1}
        assert {thread == threading.get_ident() for *_, thread in used} == {way != "2 x 1"}
        assert torch.get_num_threads() == 1


def test_marian_is_tried_with_our_threads_too(one_thread, tmp_path):
    pytest.importorskip("transformers")
    tokenizer = subwords(ENGLISH, GERMAN)
    translator = Translator(taught(tokenizer, steps=1), tokenizer, tokenizer)
    engines = script("engines")
    cpu = torch.device("cpu")
    found = engines.engines(translator, tmp_path, 1, 1.0, 20, cpu, threads=2)
    tried = {name: list(make(4)) for name, make in found.items() if name != engines.CT2}
    in_turn, together = ["1 x 1", "1 x 2"], ["2 x 1"]
    assert tried == {
        engines.OURS: in_turn + together,
        engines.IN_TURN: in_turn,
        engines.MARIAN: in_turn,
        engines.THREADED: together,
    }


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="there is a GPU here, on which these would take an hour"
)
def test_every_race_on_a_gpu_is_understood_and_asks_for_one():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    races = re.search(r"define RACES_cuda\n(.*?)endef", makefile, re.DOTALL)[1].splitlines()
    for race in races:
        record, name, *settings = race.split()
        assert "-cuda" in record
        with pytest.raises(ValueError, match="there is no cuda device here; use --device cpu"):
            script(name).run(settings)


def test_memory(tmp_path, all_told, monkeypatch):
    memory = script("memory")
    assert memory.peak(memory.OURS, "toy", 128, torch.device("cpu")) > 10
    monkeypatch.setattr(memory, "apart", lambda options, name: 100.0 + len(name))
    record = record_of("memory", tmp_path)
    assert record["candidates"]["annotated"]["median"] == 109


def test_a_child_is_not_told_the_memory_of_its_parent():
    held = b"x" * 2**30
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import memory; print(memory.most_held())"
    found = float(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert found < len(held) / 2**20 < script("memory").most_held()


def test_scaling(tmp_path):
    record = record_of("scaling", tmp_path, "--lengths", "2", "4", "--uncached", "2", "--goal", "99")
    assert list(record["candidates"]) == ["with the cache, 2", "with the cache, 4", "without, 2"]


def test_an_exponent_is_refused_when_two_runs_disagree_on_it():
    scaling, timing = script("scaling"), script("timing")
    linear = {n: timing.Measured([n, n]) for n in (32, 64, 128)}
    assert scaling.exponent(linear) == pytest.approx(1)
    noisy = {n: timing.Measured([n, n * n]) for n in (32, 64, 128)}
    runs = [scaling.exponent(noisy, turns) for turns in (slice(None), slice(0, 1), slice(1, 2))]
    assert runs[1:] == pytest.approx([1, 2])
    with pytest.raises(ValueError, match="too noisy"):
        scaling.refuse_noise(runs, 1.2)


def test_imports(tmp_path, monkeypatch):
    imports = script("imports")
    monkeypatch.setattr(imports, "CODE", dict.fromkeys(imports.CODE, "pass"))
    path = tmp_path / "imports.json"
    imports.run(["--rounds", "1", "--threads", "1", "--json", str(path)])
    assert list(json.loads(path.read_text())["added_seconds"]) == list(imports.CODE)[1:]


def test_datapath(tmp_path, folder, monkeypatch):
    text = ParallelText(ENGLISH, GERMAN, [1, 2, 3], "train")
    monkeypatch.setattr(
        script("datapath"), "load_corpus", lambda *_: Corpus("few", "en", "de", {"train": text})
    )
    record = record_of("datapath", tmp_path, "--model", str(folder), "--tokens", "32")
    assert record["pairs"] == 3
    assert record["shares"]["compute"] == 1


def test_attention(tmp_path, all_told):
    record = record_of("attention", tmp_path, "--tokens", "64", "--lengths", "4", "8")
    assert list(record["candidates"]) == ["readable, 4", "fused, 4", "readable, 8", "fused, 8"]
    assert [each["peer"] for each in record["comparisons"]] == ["fused, 4", "fused, 8"]


def test_attention_races_nothing_but_the_same_gradients(tmp_path, monkeypatch):
    attention = script("attention")
    monkeypatch.setitem(attention.FORMS, "fused", lambda q, k, v, mask: (q + k + v) * mask.size(-1))
    with pytest.raises(ValueError, match="fused gives"):
        record_of("attention", tmp_path, "--tokens", "64", "--lengths", "4")


def test_profile_steps(tmp_path):
    record = record_of("profile_steps", tmp_path, "--tokens", "128", "--rows", "2", "--length", "2")
    assert [name for name in record["parts"] if "before" in name] == [
        "training step, before",
        "greedy, 2 tokens, before",
    ]
    for part in record["parts"].values():
        assert sum(part["kinds"].values()) == pytest.approx(1)
        assert part["kinds"]["matrix products"] > 0
        assert part["operations"] > 0


def test_what_is_decoded_keeps_its_length_while_the_model_learns_to_end():
    profile_steps = script("profile_steps")
    options = argparse.Namespace(size="toy", tokens=128, rows=2, length=3)
    works = profile_steps.steps(options, torch.device("cpu"))
    learns = works["training step, after"]
    learns.func.__self__.optimizer.param_groups[0]["lr"] = 0.1
    before = {name: decoder_calls(work) for name, work in works.items() if "tokens" in name}
    for _ in range(20):
        learns()
    assert {name: decoder_calls(works[name]) for name in before} == before
    assert set(before.values()) == {3}


def decoder_calls(work):
    """How many times the decoder runs in a piece of work."""
    calls = []

    def count(module, *_):
        calls.extend([module] * isinstance(module, Decoder))

    with torch.nn.modules.module.register_module_forward_hook(count):
        work()
    return len(calls)


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "matrix products": "aten::mm aten::addmm aten::bmm aten::mkldnn_linear AddmmBackward0",
        "fused attention": "aten::_scaled_dot_product_flash_attention_for_cpu aten::_flash_attention_forward",
        "layer norm": "aten::native_layer_norm aten::native_layer_norm_backward NativeLayerNormBackward0",
        "Adam": "aten::_fused_adam_ Optimizer.step#Adam.step",
        "softmax": "aten::_softmax aten::_log_softmax_backward_data aten::exp_",
        "drawing dropout": "aten::random_ aten::native_dropout aten::bernoulli_",
        "best tokens": "aten::topk aten::argmax aten::max",
        "moving and selecting": "aten::copy_ aten::index_copy_ aten::embedding_dense_backward aten::_to_copy",
        "adding and multiplying": "aten::add_ aten::masked_fill_ aten::threshold_backward MulBackward0",
        "all else": "aten::expand ExpandBackward0 aten::view aten::empty_strided aten::address_book",
    }.items(),
)
def test_the_kind_of_an_operation_is_told_by_the_words_of_its_name(kind, names):
    found = script("profile_steps").kind_of
    assert {name: found(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def test_a_kernels_time_on_a_gpu_is_counted_once():
    operations = {"aten::mm": 30.0, "aten::add": 10.0}
    kernels = {"sm90_gemm_f32": 30.0, "elementwise_kernel": 10.0}
    events = [
        SimpleNamespace(key=name, device_type=kind, self_device_time_total=each, self_cpu_time_total=1.0)
        for kind, group in ((DeviceType.CPU, operations), (DeviceType.CUDA, kernels))
        for name, each in group.items()
    ]
    found = script("profile_steps").shares(events, torch.device("cuda"))
    assert {kind: share for kind, share in found.items() if share} == {
        "matrix products": 0.75,
        "adding and multiplying": 0.25,
    }


def test_exchange(tmp_path, monkeypatch, capsys):
    for package in ("transformers", "ctranslate2", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=MISSING.format(package))
    exchange = script("exchange")
    tokenizer = subwords(ENGLISH, GERMAN)
    save_model(tmp_path / "model", taught(tokenizer), tokenizer, tokenizer)
    text = ParallelText(ENGLISH, GERMAN, [1, 2, 3], "test")
    corpus = Corpus("few", "en", "de", {"test": text})
    monkeypatch.setattr(exchange, "load_corpus", lambda *_, **__: corpus)
    exchange.run(["--model", str(tmp_path / "model"), "--split", "test"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == 9
    gaps = [float(found.split()[2].rstrip(";")) for *_, found in rows if found.startswith("largest")]
    assert len(gaps) == 4
    assert max(gaps) < 1e-4
    [greedy] = [found for _, what, found in rows if what == "greedy, tokens"]
    assert greedy.startswith("3 of 3 equal")
    beams = [found for engine, _, found in rows if engine == "CTranslate2, float32"]
    assert len(beams) == 2
    assert all(found.startswith("3 of 3 equal") for found in beams)
    assert max(float(found.split()[-1]) for found in beams) < 1e-4


def test_exchange_where_no_translation_is_the_same():
    here = [Hypothesis((4, 5), -1.0, -1.0), Hypothesis((4,), -2.0, -2.0)]
    furthest = script("exchange").furthest_scores
    assert furthest(here, [((5,), -1.0), ((4, 4), -2.0)]) == "there are none"
    assert furthest(here, [((4, 5), -1.5), ((4, 4), -9.0)]) == "largest difference 5.0e-01"


def test_made_up_sentences_look_like_captions():
    workload = script("workload")
    pairs = workload.random_pairs(2000, 100)
    lengths = sorted(len(ids) - 1 for ids in pairs.src)
    assert abs(lengths[1000] - 16) <= 1
    assert (abs(lengths[500] - 12), abs(lengths[1500] - 22)) <= (1, 1)
    assert TokenBatches(pairs, 2048).padding_share() < 0.15


def test_bad_options_are_one_line_and_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        script("report").main(lambda _: script("train").run(["--device", "cuda"]))
    assert stop.value.code == 2
    assert capsys.readouterr().err == "train.py: there is no cuda device here; use --device cpu\n"


def test_processors_names_what_it_skips_and_what_fails(monkeypatch, capfd):
    processors = script("processors")
    code = (
        "import os, sys; print('=== kept to', os.environ['ATEN_CPU_CAPABILITY']); sys.exit(int(sys.argv[1]))"
    )
    monkeypatch.setattr(processors, "imitable", lambda: ["sse"])
    monkeypatch.setattr(processors, "changed", lambda name: "nothing")
    processors.run([f'-c "{code}" 0'])
    sse, avx2, avx512 = capfd.readouterr().out.splitlines()[-3:]
    assert re.fullmatch(r"sse +nothing +0 +kept to default", sse)
    assert avx2.endswith("skipped: this machine lacks it")
    assert avx512.endswith("skipped: this machine lacks it")
    with pytest.raises(ValueError, match="failed under sse"):
        processors.run(["--only", "sse", f'-c "{code}" 1', f'-c "{code}" 0'])


def test_a_set_is_what_the_libraries_compute_with():
    processors = script("processors")
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    for name in processors.imitable()[:1]:  # each process imports torch anew
        found = subprocess.check_output([sys.executable, "-c", code], env=processors.kept_to(name), text=True)
        assert name in processors.IMITABLE[found.strip()][-1:]


def test_quantization(tmp_path, monkeypatch, multi30k_folder):
    pytest.importorskip("ctranslate2")
    quantization, path = script("quantization"), tmp_path / "quantization.json"
    monkeypatch.setattr(quantization, "MODELS", dict([*quantization.MODELS.items()][:1]))

    def here(environment, options):
        asked = argparse.Namespace(sentences=2, minutes=0.0)
        return quantization.measure(Path(options[1]), asked)

    monkeypatch.setattr(quantization, "apart", here)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": True})
    quantization.run(["--json", str(path)])
    found = json.loads(path.read_text())
    told = {(each["instructions"], each["model"], each["split"]) for each in found["scores"]}
    assert told == set(product(("VNNI", "AVX2"), quantization.MODELS, quantization.SPLITS))
    assert all(0 < each[form] <= 100 for each in found["scores"] for form in quantization.FORMS)
    assert [each["instructions"] for each in found["speeds"]] == ["VNNI", "AVX2"]
    assert all(each["low"] <= each["ratio"] <= each["high"] for each in found["speeds"])
    assert all(each["int8"] < each["float32"] / 2 for each in found["bytes"].values())
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(ValueError, match="no VNNI, so there is nothing to compare"):
        quantization.run([])


def test_ablation_goes_on_and_keeps_to_its_settings(tmp_path, monkeypatch, multi30k_folder):
    ablation, path = script("ablation"), tmp_path / "ablation.json"
    few = {"epochs": 1, "max_steps": 2, "keep": 1, "average": 1, "vocab": 300, "d_model": 16, "h": 2}
    monkeypatch.setattr(ablation, "BASE", ablation.BASE | few)
    monkeypatch.setattr(ablation, "SPLITS", ("val",))
    real = load_corpus("multi30k", "en-de", variant="tok")
    small = {name: text.take(range(40)) for name, text in real.splits.items()}
    monkeypatch.setattr(ablation, "load_corpus", lambda *_, **__: dataclasses.replace(real, splits=small))
    arguments = ["ablation.py", "--seed", "0", "--runs", str(tmp_path), "--json", str(path), "--only"]
    for names in (["no R-Drop"], ["no R-Drop", "and dropout 0.1"]):
        monkeypatch.setattr(sys, "argv", arguments + names)
        ablation.main()
        found = json.loads(path.read_text())
        assert list(found["models"]) == names
    assert found["settings"]["dropout"] == 0.3
    [first] = found["models"]["no R-Drop"].values()
    assert first["val"]["low"] <= first["val"]["bleu"] <= first["val"]["high"]
    assert first["newest"] == first["mean"] == first["val"]["bleu"]  # one checkpoint is its own mean
    monkeypatch.setattr(ablation, "BASE", ablation.BASE | {"epochs": 2})
    with pytest.raises(ValueError, match="recorded with other settings"):
        ablation.main()


def test_a_shipped_model_goes_on_and_its_means_are_compared(tmp_path, monkeypatch, multi30k_folder):
    continued, path = script("continued"), tmp_path / "continued.json"
    real, load = load_corpus("multi30k", "en-de", variant="tok"), continued.load
    small = {name: text.take(range(4)) for name, text in real.splits.items()}
    monkeypatch.setattr(continued, "load_corpus", lambda *_, **__: dataclasses.replace(real, splits=small))

    def few(model, split):
        translator, text, tokenize = load(model, split)
        return translator, text.take(range(4)), tokenize

    monkeypatch.setattr(continued, "load", few)
    *_, name = continued.CONTESTANTS
    model, settings = continued.CONTESTANTS[name]
    few_steps = {"epochs": 2, "average": 1, "learning_rate": 0.03, "warmup": 1}
    monkeypatch.setitem(continued.CONTESTANTS, name, (model, settings | few_steps))
    monkeypatch.setattr(continued, "MEANS", (1, 2, 3))
    argv = ["continued.py", "--runs", str(tmp_path), "--json", str(path), "--only", name]
    monkeypatch.setattr(sys, "argv", argv)
    continued.main()
    found = json.loads(path.read_text())[name]
    assert found["settings"]["rdrop_weight"] == 0.0
    for split in continued.SPLITS:
        for each in found[split].values():
            assert list(each) == ["1", "2", "shipped"]  # of two checkpoints there is no mean of three
            assert each["1"]["over newest"] == {"value": 0, "low": 0, "high": 0}
            assert each["1"]["bleu"]["value"] < each["shipped"]["bleu"]["value"]  # two updates far too large
    assert len(list((tmp_path / "multi30k-en-de-lc-no-R-Drop" / "checkpoints").iterdir())) == 2


@pytest.fixture
def no_new_variants(monkeypatch):
    monkeypatch.setattr("annotated.transformer.parts.VARIANTS", dict(VARIANTS))


def test_heads_of_any_width_are_the_papers_where_they_have_its_width():
    wide = script("variations").WideAttention(2, 8, 0.0, 4, 4)
    narrow = MultiHeadedAttention(2, 8, 0.0)
    wide.load_state_dict(narrow.state_dict())
    x, y = torch.randn(3, 5, 8), torch.randn(3, 6, 8)
    torch.testing.assert_close(wide(x, y, y), narrow(x, y, y))


@pytest.mark.parametrize(("d_k", "d_v"), [(3, 5), (5, 3)])
def test_heads_of_any_width_compute_equation_1(d_k, d_v):
    heads = script("variations").WideAttention(2, 8, 0.0, d_k, d_v)
    x, mask = torch.randn(1, 5, 8), subsequent_mask(5)
    q, k, v, out = heads.linears
    assert (q.weight.shape, k.weight.shape, v.weight.shape) == ((2 * d_k, 8), (2 * d_k, 8), (2 * d_v, 8))
    each = [
        attention(
            q(x)[..., i * d_k :][..., :d_k],
            k(x)[..., i * d_k :][..., :d_k],
            v(x)[..., i * d_v :][..., :d_v],
            mask,
        )[0]
        for i in range(2)
    ]
    torch.testing.assert_close(heads(x, x, x, mask), out(torch.cat(each, dim=-1)))


def test_a_smaller_d_k_takes_parameters_away_and_decodes_with_a_cache(no_new_variants):
    variations = script("variations")
    base, model = (variations.build(40, settings).eval() for settings in ({}, {"d_k": 8}))
    sizes = [sum(p.numel() for p in each.parameters()) for each in (base, model)]
    attentions, d_model, less = 3 * 2, 128, 4 * (32 - 8)  # of queries' width, and of keys'
    assert sizes[0] - sizes[1] == attentions * 2 * less * (d_model + 1)
    src, tgt = torch.randint(4, 40, (2, 5)), torch.randint(4, 40, (2, 6))
    memory, cache = model.encode(src, None), DecoderCache(2)
    steps = [model.decode(memory, None, tgt[:, i : i + 1], None, cache) for i in range(6)]
    at_once = model.decode(memory, None, tgt, subsequent_mask(6))
    torch.testing.assert_close(torch.cat(steps, dim=1), at_once, atol=1e-5, rtol=1e-5)


def test_variations_choose_their_rate_go_on_and_keep_to_their_settings(
    tmp_path, monkeypatch, capsys, no_new_variants
):
    variations, path = script("variations"), tmp_path / "variations.json"
    real = load_corpus("grammar", "de-en")
    small = {name: text.take(range(300 if name == "train" else 8)) for name, text in real.splits.items()}
    monkeypatch.setattr(variations, "load_corpus", lambda *_: dataclasses.replace(real, splits=small))
    monkeypatch.setattr(
        variations.SentencePieceTokenizer, "train", partial(SentencePieceTokenizer.train, vocab_size=200)
    )
    monkeypatch.setattr(variations, "minutes_for", lambda *_: 30.0)
    of_factor, trained = {0.35: 3.0, 0.7: 2.0, 1.4: 2.5}, []
    score, train = variations.score, variations.train

    def noted(task, settings, updates, factor, seed):
        trained.append((settings.get("d_k"), factor, seed))
        return train(task, settings, updates, factor, seed)

    def scored(task, model):
        found = score(task, model)
        assert 0 <= found["bleu"] <= 100
        return found | {"val_perplexity": of_factor[trained[-1][1]]}

    monkeypatch.setattr(variations, "train", noted)
    monkeypatch.setattr(variations, "score", scored)
    asked = ["variations.py", "--updates", "3", "--json", str(path), "--only", "d_k = 8"]
    monkeypatch.setattr(sys, "argv", [*asked, "--estimate"])
    variations.main()
    assert "3 models: 30.0 minutes for the base, 1.5 hours if all are like it" in capsys.readouterr().out
    assert not trained
    for seeds, more in (
        (2, [(8, 0.35, 0), (8, 0.7, 0), (8, 1.4, 0), (8, 0.7, 1)]),
        (3, [(8, 0.7, 2)]),
        (3, []),
    ):
        trained.clear()
        monkeypatch.setattr(sys, "argv", [*asked, "--seeds", str(seeds)])
        variations.main()
        assert trained == more
    each = json.loads(path.read_text())["variations"]["d_k = 8"]
    assert each["row"] == "B"
    assert each["factor"] == 0.7
    assert [(run["seed"], run["factor"]) for run in each["runs"]] == [
        (0, 0.35),
        (0, 0.7),
        (0, 1.4),
        (1, 0.7),
        (2, 0.7),
    ]
    [row] = [
        line.split()[3:5] for line in capsys.readouterr().out.splitlines() if line.startswith("d_k = 8  ")
    ][-1:]
    assert row == ["B", f"{each['runs'][0]['parameters']:,}"]
    monkeypatch.setattr(sys, "argv", [*asked, "--updates", "4"])
    with pytest.raises(SystemExit):
        variations.main()
    assert "recorded with other settings" in capsys.readouterr().err


def test_every_variation_can_be_built(no_new_variants):
    variations = script("variations")
    assert variations.VARIATIONS[0].name == "base"
    assert len({each.name for each in variations.VARIATIONS}) == len(variations.VARIATIONS)
    for each in variations.VARIATIONS:
        variations.build(40, {name: value for name, value in each.settings.items() if name != "smoothing"})


def test_searches_of_models_and_splits_go_into_one_record(tmp_path, monkeypatch, multi30k_folder):
    search, path = script("search"), tmp_path / "search.json"
    real, loads = search.load, []

    def few(model, split):
        translator, text, tokenize = real(model, split)
        loads.append((model, split, tokenize))
        return translator, text.take(range(4)), tokenize

    monkeypatch.setattr(search, "load", few)
    asked = ["search.py", "--json", str(path), "--beam", "2", "--split", "val", "--model"]
    for models in (["multi30k-en-de"], search.MODELS):
        monkeypatch.setattr(sys, "argv", [*asked, *models])
        search.main()
    assert loads == [("multi30k-en-de", "val", "13a"), ("multi30k-en-de-lc", "val", "none")]
    found = json.loads(path.read_text())
    assert [list(found[model]) for model in search.MODELS] == [["val"]] * 2
    assert list(found["multi30k-en-de-lc"]["val"]) == list(search.searches([2]))
    search.keep(path, "multi30k-en-de", "val", "greedy", {"of": "another process"})
    again = json.loads(path.read_text())["multi30k-en-de"]["val"]
    assert list(again) == list(search.searches([2]))
    assert again["greedy"] == {"of": "another process"}
