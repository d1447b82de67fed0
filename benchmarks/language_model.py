"""Which parts of a language model of today pay at the size of a laptop? Rates tuned, four seeds.

    python benchmarks/language_model.py                             all: three quarters of an hour
    python benchmarks/language_model.py --only 2017 "2017, Muon"    these

The models and their parts are those of notebooks/17_since_2017.py. QK-norm, the window and the experts, of
which 19_a_model_of_today.py tells, each change one part of "+ SwiGLU", the last model there. Each contestant
is trained with each learning rate on one seed, and the rate with the lowest loss on the validation text is
taken; where it is at an end of the rates, another one follows. Then four other seeds are trained with it, and
their losses on the test text are what counts. A trigram model with Kneser-Ney smoothing needs no training.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from records import Found, Record
from report import long_parser, parse_long
from torch import Tensor, nn
from tqdm import tqdm
from workload import notebook_definitions

from annotated.translation.data import load_corpus

FULL = {
    "updates": 300,
    "rates": [0.005, 0.01, 0.02],
    "seeds": [1, 2, 3, 4],
    "corpus": "grammar de-en, English",
}
SHORT = {**FULL, "updates": 2, "rates": [0.01], "seeds": [1]}


shown, today = notebook_definitions("17_since_2017"), notebook_definitions("19_a_model_of_today")
words_of, LanguageModel = shown["words_of"], shown["LanguageModel"]

corpus = load_corpus("grammar", "de-en").splits
text = words_of(corpus["train"].tgt)
vocab = sorted(set(text))
number = {word: i for i, word in enumerate(vocab)}
shown.update(stream=torch.tensor([number[word] for word in text]), vocab=vocab)
held_out = {
    split: [number[word] for word in words_of(corpus[split].tgt) if word in number]
    for split in ("val", "test")
}


class QKNorm(shown["GroupedQueryAttention"]):
    """Each query and each key passes through an RMSNorm before it is turned."""

    def __init__(self, d_model: int):
        super().__init__(d_model)
        for name in ("w_q", "w_k"):
            heads = nn.Unflatten(-1, (-1, self.d_k))
            normed = [getattr(self, name), heads, nn.RMSNorm(self.d_k, eps=1e-6), nn.Flatten(-2)]
            setattr(self, name, nn.Sequential(*normed))


class Window(shown["GroupedQueryAttention"]):
    """A token sees itself and the three before it, in every layer; a sentence has ten on average."""

    width = 4

    def forward(self, x: Tensor, cache: None = None) -> Tensor:
        """States (B, T, d_model) -> (B, T, d_model)."""
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        gap = torch.arange(x.size(1)).unsqueeze(1) - torch.arange(x.size(1))
        near = (gap >= 0) & (gap < self.width)
        heads = nn.functional.scaled_dot_product_attention(
            self.place(q, 0), self.place(k, 0), v, attn_mask=near, enable_gqa=True
        )
        return self.w_o(heads.transpose(1, 2).flatten(2))


class Mixture(today["Experts"]):
    """Eight networks, two for each token and half as wide: the arithmetic of one. Balanced after a batch."""

    def __init__(self, d_model: int):
        super().__init__(d_model, 8 * d_model // 3 // 2)

    def forward(self, x: Tensor) -> Tensor:
        """States (B, T, d_model) -> (B, T, d_model)."""
        tokens = x.flatten(0, 1)
        out = super().forward(tokens)
        if self.training:
            with torch.no_grad():
                self.load = today["load"](self, tokens)
                self.bias += 0.01 * (self.load.float().mean() - self.load).sign()
        return out.view_as(x)


PARTS_2017 = {
    "norm": nn.LayerNorm,
    "positions": shown["Sines"],
    "attention": shown["Attention"],
    "feed forward": shown["FeedForward"],
}
RMS = {**PARTS_2017, "norm": shown["RMSNorm"]}
ROTARY = {**RMS, "positions": shown["NoSines"], "attention": shown["RotaryAttention"]}
GROUPED = {**ROTARY, "attention": shown["GroupedQueryAttention"]}
SWIGLU = {**GROUPED, "feed forward": shown["SwiGLU"]}


def adamw(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """AdamW for everything, as in the lesson."""
    return [torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1)]


def muon(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the rest."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.1),
    ]


Contestant = tuple[dict[str, Any], Callable[[nn.Module, float], list[torch.optim.Optimizer]]]
CONTESTANTS: dict[str, Contestant] = {
    "2017": (PARTS_2017, adamw),
    "+ RMSNorm": (RMS, adamw),
    "+ rotary": (ROTARY, adamw),
    "+ grouped queries": (GROUPED, adamw),
    "+ SwiGLU": (SWIGLU, adamw),
    "2017, Muon": (PARTS_2017, muon),
    "+ SwiGLU, Muon": (SWIGLU, muon),
    "+ QK-norm": ({**SWIGLU, "attention": QKNorm}, adamw),
    "+ window": ({**SWIGLU, "attention": Window}, adamw),
    "+ experts": ({**SWIGLU, "feed forward": Mixture}, adamw),
}


def train(parts: dict[str, Any], optimizers: Callable, rate: float, seed: int, updates: int) -> nn.Module:
    """Train one model as the lesson does; the seed decides first weights and windows."""
    torch.manual_seed(seed)
    model, places = LanguageModel(parts, len(vocab)), torch.Generator().manual_seed(seed)
    pair = optimizers(model, rate)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda update: shown["cosine"](update, updates))
        for each in pair
    ]
    for _ in range(updates):
        inputs, wanted = shown["windows"](places)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), wanted.flatten())
        for each in pair:
            each.zero_grad()
        loss.backward()
        for each in (*pair, *schedules):
            each.step()
    return model.eval()


@torch.no_grad()
def loss_on(model: nn.Module, split: str, length: int = 24) -> float:
    """Cross-entropy in nats per word, as the lesson measures it."""
    tokens = torch.tensor(held_out[split])
    rows = tokens[: len(tokens) // length * length].view(-1, length)
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).item()


def kneser_ney(split: str, discount: float = 0.75) -> float:
    """Nats per word of an interpolated trigram model (Chen and Goodman, 1999), trained on the same text."""
    tokens = [number[word] for word in text]
    levels = []  # counts by context of two, one and no words
    grams = Counter(zip(tokens, tokens[1:], tokens[2:], strict=False))
    while True:
        by_context: defaultdict[tuple, Counter] = defaultdict(Counter)
        for gram, times in grams.items():
            by_context[gram[:-1]][gram[-1]] += times
        levels.append(by_context)
        if len(next(iter(grams))) == 1:
            break
        grams = Counter(gram[1:] for gram in grams)  # in how many contexts, not how often

    def chance(context: tuple, word: int, level: int) -> float:
        lower = chance(context[1:], word, level + 1) if level < 2 else 1 / len(vocab)
        seen = levels[level].get(context)
        if not seen:
            return lower
        whole = seen.total()
        return max(seen[word] - discount, 0) / whole + discount * len(seen) / whole * lower

    tested = held_out[split]
    cases = zip(tested, tested[1:], tested[2:], strict=False)
    logs = [-torch.tensor(chance((a, b), c, 0)).log().item() for a, b, c in cases]
    return sum(logs) / len(logs)


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "language_model")
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these contestants")
    options.add_argument("--rate", type=float, help="train the seeds with this learning rate, too")
    options = parse_long(options, arguments)
    how = SHORT if options.short else FULL
    record = Record(options.json, how)
    if "trigrams" not in record.found():
        with record.change() as found:
            found["trigrams"] = {"val": kneser_ney("val"), "test": kneser_ney("test")}

    def runs_of(name: str) -> list[Found]:
        return record.found().get("contestants", {}).get(name, [])

    def trained(name: str, rate: float, seed: int) -> Found:
        for each in runs_of(name):
            if (each["rate"], each["seed"]) == (rate, seed):
                return each
        model = train(*CONTESTANTS[name], rate, seed, how["updates"])
        result: Found = {"rate": rate, "seed": seed}
        result |= {split: loss_on(model, split) for split in held_out}
        if loads := [each.load.tolist() for each in model.modules() if isinstance(each, Mixture)]:
            result["loads"] = loads  # tokens of the last batch that each expert got, by layer
        with record.change() as found:
            found.setdefault("contestants", {}).setdefault(name, []).append(result)
        return result

    for name in tqdm(options.only or CONTESTANTS, unit="contestant"):
        tried = {rate: trained(name, rate, 0)["val"] for rate in how["rates"]}
        while len(tried) > 1 and (best := min(tried, key=tried.__getitem__)) in (min(tried), max(tried)):
            rate = best / 2 if best == min(tried) else best * 2
            tried[rate] = trained(name, rate, 0)["val"]
        best = min(tried, key=tried.__getitem__)
        for rate, seed in product({best, options.rate or best}, how["seeds"]):
            trained(name, rate, seed)
        with record.change() as found:
            found.setdefault("rate", {})[name] = best
    return record.found()


if __name__ == "__main__":
    run()
