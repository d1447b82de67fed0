import importlib
import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import annotated
from annotated.translation import evaluate as scoring


def test_each_batch_says_what_its_padding_is():
    """The copy task pads with 0, and 2 is one of its symbols."""
    torch.manual_seed(0)
    model = annotated.make_model(11, 11, N=1, d_model=8, d_ff=8, h=2)
    batches = list(annotated.data_gen(11, 30, 2))
    found = annotated.score_tokens(model, batches)
    with annotated.evaluating(model):
        losses = [
            F.nll_loss(
                model.generator(model(b.src, b.tgt, b.src_mask, b.tgt_mask)).flatten(0, 1), b.tgt_y.flatten()
            )
            for b in batches
        ]
    assert found.loss == pytest.approx(sum(losses).item() / 2, rel=1e-5)


ROOT = Path(__file__).parents[2]
PEER, BF16 = "torch.nn.Transformer", "annotated, bf16"


def race(ours, medians, **settings):
    """A record with these candidates, each but ours compared with it."""
    others = [name for name in medians if name != ours]
    ratios = {name: medians[name] / medians[ours] for name in others}
    return {
        "question": "train",
        "settings": settings,
        "machine": {"cores": 2, "processor": "a processor", "gpu": None, "versions": {"torch": "2"}},
        "target_tokens": 100,
        "candidates": {name: {"median": each} for name, each in medians.items()},
        "comparisons": [
            {"ours": ours, "peer": name, "ratio": each, "low": each - 0.5, "high": each + 0.5}
            for name, each in ratios.items()
        ],
    }


@pytest.fixture
def readme(tmp_path, monkeypatch):
    """The script that writes the README's tables, and a folder of records for it to read."""
    monkeypatch.syspath_prepend(ROOT / "tools/site")
    script = importlib.import_module("results")
    monkeypatch.setattr(script, "RECORDED", tmp_path)
    monkeypatch.setattr(scoring, "RECORDED", tmp_path)
    return script, tmp_path


def test_bf16_is_compared_with_the_faster_bf16_and_with_our_own_float32(readme):
    script, folder = readme
    theirs = {f"{PEER}, bf16 by autocast": 8.0, f"{PEER}, bf16 in products": 3.0}
    medians = {PEER: 9.0, "annotated": 4.0, **theirs, BF16: 2.0}
    (folder / "train-base-bf16.json").write_text(json.dumps(race(BF16, medians, precision="bf16")))
    (folder / "train-base.json").write_text(
        json.dumps(race("annotated", {PEER: 9.0, "annotated": 4.0}, precision="float32"))
    )
    rows = [line for line in script.speed_table().splitlines()[2:] if line.startswith("|")]
    peer, base = "`torch.nn.Transformer`", "| training, the base model"
    assert rows == [
        f"{base} | 25 target tokens/s | {peer} | **2.25 x** (1.75 to 2.75) |",
        f"{base}, bf16 | 50 target tokens/s | ours, in float32 | **2.00 x** (1.50 to 2.50) |",
        f"{base}, bf16 | 50 target tokens/s | {peer} | 1.50 x (1.00 to 2.00), too close to tell |",
    ]


def test_a_rival_has_a_row_for_each_form_that_was_raced(readme):
    script, folder = readme
    medians = {
        PEER: 9.0,
        f"{PEER} with our loss": 6.0,
        "x-transformers as it comes": 8.0,
        "x-transformers": 7.0,
    }
    record = race("annotated", {**medians, "+ fused Adam": 5.0, "annotated": 4.0}, precision="float32")
    (folder / "train-base.json").write_text(json.dumps(record))
    rows = [line.split(" | ")[2:] for line in script.speed_table().splitlines()[2:] if line.startswith("|")]
    assert rows == [
        ["`torch.nn.Transformer`", "**2.25 x** (1.75 to 2.75) |"],
        ["`torch.nn.Transformer` with our loss", "1.50 x (1.00 to 2.00), too close to tell |"],
        ["x-transformers as it comes", "**2.00 x** (1.50 to 2.50) |"],
        ["x-transformers with `attn_flash=True`", "**1.75 x** (1.25 to 2.25) |"],
    ]


def test_a_record_from_a_gpu_names_it(readme):
    script, folder = readme
    record = race("annotated", {PEER: 9.0, "annotated": 4.0}, precision="float32", device="cuda")
    record["machine"]["gpu"] = "a GPU"
    (folder / "train-base-cuda.json").write_text(json.dumps(record))
    table = script.speed_table()
    assert "| training on a GPU, the base model | 25 target tokens/s |" in table
    assert table.endswith("Measured on 2 cores, a processor, a GPU, torch 2.\n")


def test_two_machines_are_told_apart(readme):
    script, folder = readme
    record = race("annotated", {PEER: 9.0, "annotated": 4.0})
    (folder / "train-base.json").write_text(json.dumps(record))
    record["machine"]["processor"], record["question"] = "another", "memory"
    (folder / "memory.json").write_text(json.dumps(record))
    last = script.speed_table().splitlines()[-1]
    assert last == (
        "Measured: training on 2 cores, a processor, torch 2; memory on 2 cores, another, torch 2."
    )
