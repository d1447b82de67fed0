"""Which changes of the years since 2017 pay at the size of a laptop?

    python benchmarks/since_2017.py                           all, three seeds each: half an hour
    python benchmarks/since_2017.py --only paper "all parts"  these

The rotary attention and SwiGLU are those of notebooks/evidence/which_changes_since_2017_pay.py. Each model is
trained on the built-in German-English corpus for as many updates on the same batches. What is recorded is the
cross-entropy without smoothing on the validation text.
"""

import math
from collections.abc import Sequence
from itertools import chain, count, islice, product
from typing import NamedTuple

import torch
from records import Found, Record
from report import long_parser, parse_long
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm
from workload import Task, grammar_task, notebook_names

from annotated.loop import SimpleLossCompute, run_epoch
from annotated.loss import LabelSmoothing
from annotated.perplexity import score_tokens
from annotated.schedule import noam_scheduler
from annotated.transformer.attention import Mask, MultiHeadedAttention
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.variants import Parts, variant

FULL = {
    "updates": 300,
    "max_tokens": 512,
    "peak": 0.003,
    "corpus": "grammar de-en",
    "base": {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.0},
}
SHORT = {**FULL, "updates": 3, "max_tokens": 256, "base": {**FULL["base"], "d_model": 32, "d_ff": 48}}
BETAS, EPS = (0.9, 0.98), 1e-9

shown = notebook_names("evidence/which_changes_since_2017_pay", until="@variant")


class GroupedQueryAttention(MultiHeadedAttention):
    """The h query heads share two heads of keys and values."""

    def __init__(self, h: int, d_model: int, dropout: float):
        super().__init__(h, d_model, dropout)
        for i in (1, 2):
            self.linears[i] = nn.Linear(d_model, 2 * self.d_k)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Repeat each head of keys and values for the query heads that share it."""
        share = q.size(1) // k.size(1)
        return super().attend(q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1), mask)


class RotaryGroups(shown["RotaryAttention"], GroupedQueryAttention):
    """First turned, then shared."""


class Today(Parts):
    """The paper's parts, but for those that `changes` names."""

    changes: Sequence[str] = ()

    def norm(self) -> nn.Module:
        """RMSNorm."""
        return nn.RMSNorm(self.config.d_model, eps=1e-6) if "rms norm" in self.changes else super().norm()

    def attention(self) -> nn.Module:
        """Turned, shared or both."""
        kinds = {
            (True, False): shown["RotaryAttention"],
            (False, True): GroupedQueryAttention,
            (True, True): RotaryGroups,
            (False, False): MultiHeadedAttention,
        }
        kind = kinds["rotary" in self.changes, "grouped queries" in self.changes]
        return kind(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module:
        """Never turned: a source and a target have no distance."""
        kind = GroupedQueryAttention if "grouped queries" in self.changes else MultiHeadedAttention
        return kind(self.config.h, self.config.d_model, self.config.attention_dropout)

    def positions(self) -> nn.Module:
        """Nothing is added where queries and keys are turned."""
        return shown["NoSines"](self.config.dropout) if "rotary" in self.changes else super().positions()

    def feed_forward(self) -> nn.Module:
        """SwiGLU."""
        c = self.config
        return shown["SwiGLU"](c.d_model, c.d_ff) if "swiglu" in self.changes else super().feed_forward()


def parts(*changes: str) -> str:
    """Register parts with these changes; returns their name."""
    variant(name := ", ".join(changes))(type("Changed", (Today,), {"changes": changes}))
    return name


class OneStack(EncoderDecoder):
    """The encoder alone, which reads the source and then the target as one sequence."""

    @classmethod
    def from_config(cls, config: TransformerConfig) -> "OneStack":
        """Build the model and leave out its decoder."""
        model = super().from_config(config)
        model.decoder = nn.Identity()
        return model

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Tokens (B, S) and (B, T), their masks -> states at the target's tokens (B, T, d_model)."""
        sources, length = src_mask.sum(dim=-1), src.size(1) + tgt.size(1)  # (B, 1)
        padding = torch.cat([~src_mask.squeeze(1), torch.zeros_like(tgt, dtype=torch.bool)], dim=1)
        order = padding.long().argsort(dim=1, stable=True)  # the source's padding goes to the end
        tokens = torch.cat([src, tgt], dim=1).gather(1, order)
        places = torch.arange(length)
        causal = places.unsqueeze(1) >= places  # (length, length)
        seen = causal | (places < sources).unsqueeze(1)  # all see the source, the target also its past
        states = self.encoder(self.src_embed(tokens), seen)  # (B, S + T, d_model)
        places = sources + torch.arange(tgt.size(1))  # (B, T)
        return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.size(-1)))


class Contestant(NamedTuple):
    """What differs from the paper's model and training."""

    settings: dict[str, object]
    kind: type[EncoderDecoder] = EncoderDecoder
    decay: float | None = None  # of AdamW with cosine, 0 is Adam; None for the paper's schedule


ALL = {"norm_first": True, "variant": parts("rms norm", "rotary", "grouped queries", "swiglu")}
CONTESTANTS = {
    "paper": Contestant({}),
    "pre-norm": Contestant({"norm_first": True}),
    "RMSNorm": Contestant({"variant": parts("rms norm")}),
    "rotary": Contestant({"variant": parts("rotary")}),
    "grouped queries": Contestant({"variant": parts("grouped queries")}),
    "SwiGLU": Contestant({"variant": parts("swiglu")}),
    "rotary and SwiGLU": Contestant({"variant": parts("rotary", "swiglu")}),
    "Adam, cosine": Contestant({}, decay=0.0),
    "AdamW, cosine": Contestant({}, decay=0.1),
    "all parts": Contestant(ALL),
    # Five layers without encoder-decoder attention have as many parameters as 2 + 2 with it.
    "one stack, all parts": Contestant({**ALL, "N": 5}, OneStack),
}


def adamw_with_cosine(
    model: nn.Module, peak: float, warmup: int, updates: int, decay: float
) -> tuple[AdamW, LambdaLR]:
    """AdamW and its schedule; matrices decay, biases and gains do not."""

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (updates - warmup)))

    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=peak, betas=BETAS, eps=EPS, fused=True)
    return optimizer, LambdaLR(optimizer, share)


def train(task: Task, how: Found, who: Contestant, seed: int) -> EncoderDecoder:
    """Train one model: the seed decides its first weights and the order of the batches."""
    torch.manual_seed(seed)
    size, updates, warmup = len(task.tokenizer), how["updates"], how["updates"] // 3
    model = who.kind.from_config(TransformerConfig.base(size, size, **{**how["base"], **who.settings}))
    width = model.config.d_model
    if who.decay is None:
        optimizer = Adam(model.parameters(), lr=1.0, betas=BETAS, eps=EPS, fused=True)
        schedule = noam_scheduler(optimizer, width, how["peak"] * math.sqrt(width * warmup), warmup)
    else:
        optimizer, schedule = adamw_with_cosine(model, how["peak"], warmup, updates, who.decay)
    task.train.seed = seed
    batches = islice(chain.from_iterable(map(task.train.epoch, count())), updates)
    loss = SimpleLossCompute(model.generator, LabelSmoothing(size, task.tokenizer.pad, 0.1))
    run_epoch(batches, model, loss, optimizer, schedule)
    return model


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "since_2017")
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these contestants")
    options.add_argument("--seeds", type=int, help="models of each contestant (default 3)")
    options = parse_long(options, arguments)
    how = SHORT if options.short else FULL
    record, task = Record(options.json, how), grammar_task(how["max_tokens"], options.short)
    seeds = range(options.seeds or (1 if options.short else 3))
    for seed, name in tqdm([*product(seeds, options.only or CONTESTANTS)], unit="model"):
        if any(run["seed"] == seed for run in record.found().get("contestants", {}).get(name, [])):
            continue
        model = train(task, how, CONTESTANTS[name], seed)
        size = sum(p.numel() for p in model.parameters())
        loss = score_tokens(model, task.val.epoch(0)).loss
        with record.change() as found:
            runs = found.setdefault("contestants", {}).setdefault(name, [])
            runs.append({"seed": seed, "parameters": size, "loss": loss})
    return record.found()


if __name__ == "__main__":
    run()
