"""Why does smoothing raise BLEU? Small models with and without it, five seeds each.

    python benchmarks/smoothing.py                  all: half an hour of one core
    python benchmarks/smoothing.py --seeds 0        one pair of models

The code is that of notebooks/evidence/why_does_smoothing_raise_bleu.py, which shows it.
"""

from collections.abc import Sequence
from itertools import product

from records import Found, Record
from report import long_parser, parse_long
from tqdm import tqdm
from workload import notebook_names

from annotated.perplexity import score_tokens
from annotated.translation.data import TokenBatches, encode_corpus

HOW = {
    "question": "smoothing",
    "corpus": "grammar de-en",
    "updates": 800,
    "max_tokens": 768,
    "base": {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.1},
    "vocab": 2000,
    "factor": 0.7,
    "warmup": 400,
    "test_sentences": 500,
}
BEAMS = {"greedy": 1, "beam 4": 4, "beam 16": 16}
SOME, ALL = (1.0, 1.3), (0.7, 0.8, 0.9, 1.0, 1.15, 1.3)
TEMPERATURES = {0: SOME, 1: SOME, 2: SOME, 3: ALL, 4: ALL}  # by seed


def measure(shown: Found, seed: int, smoothing: float, updates: int) -> Found:
    """Train a model and score it on the test text."""
    model = shown["train"](seed, smoothing, updates)
    sure, right = shown["certainty"](model)
    scores = score_tokens(model, shown["test_batches"].epoch(0))
    by_temperature = {}
    for temperature in TEMPERATURES[seed]:
        bleu, length = shown["score"](model, 4, temperature)
        by_temperature[str(temperature)] = {"bleu": bleu, "length": length}
    return {
        "seed": seed,
        "smoothing": smoothing,
        "perplexity": scores.perplexity,
        "accuracy": scores.accuracy,
        "certainty": sure.mean().item(),
        "calibration_error": shown["calibration_error"](sure, right),
        "bleu": {name: shown["score"](model, beam)[0] for name, beam in BEAMS.items()},
        "beam_4_by_temperature": by_temperature,
    }


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "smoothing")
    options.add_argument("--seeds", nargs="+", type=int, choices=TEMPERATURES, help="default: all five")
    options = parse_long(options, arguments)
    how = {**HOW, "updates": 3, "test_sentences": 8} if options.short else HOW
    record = Record(options.json, how)
    shown = notebook_names("evidence/why_does_smoothing_raise_bleu", until="# To show that it runs")
    if options.short:
        shown["test"] = shown["test"].take(range(how["test_sentences"]))
        pairs = encode_corpus(shown["test"], shown["tokenizer"], shown["tokenizer"])
        shown["test_batches"] = TokenBatches(pairs, 2000)
    seeds = options.seeds or ([0] if options.short else TEMPERATURES)
    for seed, smoothing in tqdm([*product(seeds, (0.0, 0.1))], unit="model"):
        known = record.found().get("runs", [])
        if all((each["seed"], each["smoothing"]) != (seed, smoothing) for each in known):
            found = measure(shown, seed, smoothing, how["updates"])
            with record.change() as whole:
                whole.setdefault("runs", []).append(found)
                whole["runs"].sort(key=lambda each: (each["smoothing"], each["seed"]))
    return record.found()


if __name__ == "__main__":
    run()
