"""What do beam and length penalty of section 6.1 bring in BLEU?

    python benchmarks/search.py                                      both models, two splits: half an hour
    python benchmarks/search.py --model multi30k-en-de --split val   this one on this text
    python benchmarks/search.py --beam 2 4 5                         these beams; 50 takes half the time

Each search is compared with greedy decoding of the same model on the same sentences, and division by the
length with the paper's penalty (paired bootstrap). Nothing is chosen on the test set: it is reported beside
`val`.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean

from records import Found, Record
from report import long_parser, parse_long
from sacrebleu.metrics import BLEU
from tqdm import tqdm
from workload import text_of

from annotated.metrics import paired_bootstrap
from annotated.translation.data import ParallelText
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.tokenizers import normalize
from annotated.translation.translator import Translator

MODELS = ("multi30k-en-de", "multi30k-en-de-lc")
SPLITS = ("val", "test_2016_flickr")
BEAMS = (2, 4, 5, 10, 20, 50)
PENALTIES = {"none": ("gnmt", 0.0), "gnmt 0.6": ("gnmt", 0.6), "length": ("power", 1.0)}
GREEDY = "greedy"
OTHER = "gnmt 0.6"  # the penalty that division by the length is compared with


def searches(beams: Sequence[int]) -> dict[str, Found]:
    """Each search by its name, as `Translator.search` takes it; greedy first, the dearest last."""
    found: dict[str, Found] = {GREEDY: {"beam": 1, "alpha": 0.0}}
    for beam, (name, (penalty, alpha)) in product(beams, PENALTIES.items()):
        found[f"beam {beam}, {name}"] = {"beam": beam, "penalty": penalty, "alpha": alpha}
    return found


def load(model: str, split: str, short: bool = False) -> tuple[Translator, ParallelText, str]:
    """The model, the text of a split as the model wants it, and how sacreBLEU should cut it."""
    translator, trained = Translator.load(model), training_settings(find_model(model))
    return translator, text_of(trained, short)[split], "none" if trained.get("tokenized") else "13a"


def compared(found: list[str], base: list[str], text: ParallelText, tokenize: str, what: str) -> Found:
    """BLEU, and its difference from that of `base`, both with their intervals; the length of the output."""
    references = [normalize(line) for line in text.tgt]
    result = paired_bootstrap(found, base, references, tokenize=tokenize)
    words = [sum(len(line.split()) for line in lines) for lines in (found, references)]
    bounds = {name: bounds_of(getattr(result, name)) for name in ("a", "difference")}
    return {
        "bleu": bounds["a"],
        f"over {what}": bounds["difference"],
        "wins": result.wins,
        "length": words[0] / words[1],
    }


def bounds_of(score: object) -> Found:
    """A score and its 95% interval."""
    return {name: getattr(score, name) for name in ("value", "low", "high")}


def measure(translator: Translator, text: ParallelText, tokenize: str, beams: Sequence[int]) -> Iterator:
    """Search in each way; yields its name and its scores."""
    lines: dict[str, list[str]] = {}
    greedy: list[float] = []
    for name, search in searches(beams).items():
        best = [each[0] for each in translator.search(text.src, **search)]
        found = lines[name] = [translator.tgt_tokenizer.decode(each.tokens) for each in best]
        log_probs = [each.log_prob for each in best]
        greedy = greedy or log_probs
        scores = compared(found, lines[GREEDY], text, tokenize, GREEDY)
        if name.endswith("length"):
            other = name.replace("length", OTHER)
            scores[f"over {OTHER}"] = compared(found, lines[other], text, tokenize, OTHER)[f"over {OTHER}"]
        bleu = BLEU(tokenize=tokenize, force=True).corpus_score(found, [text.tgt])
        scores |= {
            "brevity_penalty": bleu.bp,
            "log_prob": fmean(log_probs),
            # Beyond what the order of additions changes.
            "less_probable_than_greedy": fmean(a < b - 1e-4 for a, b in zip(log_probs, greedy, strict=True)),
            "empty": found.count(""),
        }
        yield name, scores


def run(arguments: Sequence[str] | None = None) -> Found:
    """Search as is not recorded yet, and write the record after each search."""
    options = long_parser(__doc__, "search")
    options.add_argument("--model", nargs="+", default=MODELS, choices=MODELS, help="these models")
    options.add_argument("--split", nargs="+", default=SPLITS, metavar="NAME", help="of their corpora, these")
    options.add_argument("--beam", nargs="+", type=int, default=BEAMS, choices=BEAMS, help="these beams")
    options = parse_long(options, arguments)
    models, splits, beams = options.model, options.split, options.beam
    if options.short:
        models, splits, beams = models[:1], splits[:1], beams[:1]
    record = Record(options.json, {})
    for model, split in product(models, splits):
        known = record.found().get(model, {}).get(split, {})
        if searches(beams).keys() <= known.keys():
            continue
        case = load(model, split, options.short)
        progress = tqdm(measure(*case, beams), f"{model}, {split}", len(searches(beams)))
        for name, scores in progress:
            with record.change() as found:
                done = found.setdefault(model, {}).setdefault(split, {}) | {name: scores}
                found[model][split] = {each: done[each] for each in searches(BEAMS) if each in done}
    return record.found()


if __name__ == "__main__":
    run()
