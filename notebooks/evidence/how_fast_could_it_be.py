# %% [markdown]
# # How fast could it be?
#
# A good deal faster. If nothing but the arithmetic and the memory traffic took time, then on one core
# training would be 1.6 to 1.8 times as fast, and translating sentence by sentence 4.5 to 4.9 times as fast
# (two runs). The decoder most likely loses the rest to the fixed cost of many small calls. With a cache, the
# time of decoding grows with about the 1.1th power of the length instead of the 1.7th (three recorded runs,
# 1.12 to 1.15 and 1.68 to 1.70).
#
# *Half a minute to run.* This notebook belongs to lesson [15_going_fast](../15_going_fast.ipynb).

# %% tags=["install"]
import sys
from importlib.metadata import distributions
from pathlib import Path


class NotInstalledError(Exception):
    def _render_traceback_(self):  # the sentence alone
        return [str(self)]


if not any(distributions(name="annotated-transformer")):
    here = Path.cwd()
    clones = [str(at) for at in (here, *here.parents) if (at / "annotated/transformer").is_dir()]
    requirements = [f'-e "{clone}[colab]"' for clone in clones]
    if requirements:
        get_ipython().run_line_magic("pip", f"install -q {requirements[0]}")
    sys.path += clones  # where the next kernel looks by itself
if not any(distributions(name="annotated-transformer")):
    raise NotInstalledError(
        "This notebook needs the project that it belongs to: take all of it, not this file alone, "
        "run `make setup` in its folder, and open the notebook there with `make lab`."
    )

# %% [markdown]
# ## The roof of one core
#
# A call cannot be faster than its operations at the peak rate, or, if its operands come from main memory,
# than its bytes at the bandwidth of that memory. We measure both: the peak with a large product, the
# bandwidth with a copy. The clock is the processor time of one thread, which other programs disturb less.

# %%
import time
from timeit import repeat

import torch

torch.set_num_threads(1)


def seconds(run, times=3):
    """The least processor time of a few runs."""
    return min(repeat(run, timer=time.process_time, number=1, repeat=times))


a, b = torch.randn(2, 1024, 1024)
large, copy = torch.randn(2, 4096, 4096)
PEAK = 2 * 1024**3 / seconds(lambda: a @ b)  # operations per second
BANDWIDTH = 2 * large.nbytes / seconds(lambda: copy.copy_(large))  # bytes per second
print(f"≈{PEAK / 1e9:.0f} GFLOP/s, ≈{BANDWIDTH / 1e9:.0f} GB/s: ridge at ≈{PEAK / BANDWIDTH:.1f}")

# %% tags=["check"]
assert 0.5 < PEAK / BANDWIDTH < 100

# %% [markdown]
# `Operands` notes each call of PyTorch with its operations and the bytes of its operands and results. A
# processor's caches hold a part of these bytes, so the real traffic is lower, and the roof of a small call
# is an estimate rather than a strict bound. Each result of an elementwise call counts as one operation,
# though an exponential is several.

# %%
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

FLOPS = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(
        q.shape, k.shape, v.shape
    ),
}


class Operands(TorchDispatchMode):
    """Note each call: whether it is a matrix product, its operations, its bytes."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        written = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        if func.is_view or name == "_unsafe_view" or not written:
            return out
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if name in ("embedding", "index", "index_select", "gather"):
            read = written  # a look-up reads as much as it writes
        formula = FLOPS.get(func.overloadpacket)
        done = formula(*args, **(kwargs or {}), out_val=out) if formula else sum(x.numel() for x in written)
        self.calls.append((formula is not None, done, sum(x.nbytes for x in (*read, *written))))
        return out


# %% [markdown]
# ## Three workloads
#
# - A **training step**: 40 sentences, two layers of width 128, 6,000 words, dropout, label smoothing, Adam.
# - **Twelve captions, one by one**: a shipped model translates them greedily, with its cache.
# - **The same as one batch.**

# %%
from annotated import Batch, LabelSmoothing, greedy_decode, load_pretrained, make_model

_ = torch.manual_seed(0)
V = 6000
src, tgt = torch.randint(4, V, (2, 40, 20))
batch = Batch(src, tgt, pad=2)
model = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.1, tied_embeddings="all")
criterion, adam = LabelSmoothing(V, padding_idx=2, smoothing=0.1), torch.optim.Adam(model.parameters(), 1e-4)


def step():
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    log_probs = model.generator(states).flatten(0, 1)
    (criterion(log_probs, batch.tgt_y.flatten()) / batch.ntokens).backward()
    adam.step()
    adam.zero_grad()


step()

# %%
translator = load_pretrained("multi30k-en-de")
subjects = ("A dog", "Two women", "An old man in a red shirt", "Three children")
texts = [
    f"{who} {does}." for who in subjects for does in ("runs through the snow", "wait", "is at the market")
]
rows, tokenizer = [translator.encode(text) for text in texts], translator.tgt_tokenizer


def translate(rows):
    src = translator.batch(rows)
    mask = (src != tokenizer.pad).unsqueeze(1)
    return greedy_decode(translator.model, src, mask, 20, tokenizer.start, tokenizer.end)


runs = {
    "training step": step,
    "twelve, one by one": lambda: [translate([row]) for row in rows],
    "twelve, one batch": lambda: translate(rows),
}
noted, clock = {}, {}
for name, run in runs.items():
    with Operands() as noted[name]:
        run()
    clock[name] = seconds(run)

# %%
print(f"{'':20}{'calls':>8}{'products':>10}{'GB':>8}{'roof, ms':>10}{'clock, ms':>11}{'factor':>9}")
factor, in_products = {}, {}
for name, operands in noted.items():
    roof = [(max(done / PEAK, size / BANDWIDTH), product) for product, done, size in operands.calls]
    least = sum(t for t, _ in roof)
    in_products[name] = sum(t for t, product in roof if product) / least
    factor[name], gigabytes = clock[name] / least, sum(size for *_, size in operands.calls) / 1e9
    row = f"≈{in_products[name]:.0%}", f"≈{gigabytes:.2f}", f"≈{1e3 * least:.0f}", f"≈{1e3 * clock[name]:.0f}"
    print(f"{name:20}{len(operands.calls):>8,}{row[0]:>10}{row[1]:>8}{row[2]:>10}{row[3]:>11}", end="")
    print(f"        ≈{factor[name]:.1f}")

# %% tags=["check"]
assert factor["twelve, one by one"] > factor["training step"]
assert 1 < factor["training step"] < 5
assert 2 < factor["twelve, one by one"] < 15
assert clock["twelve, one by one"] > 2 * clock["twelve, one batch"]

# %% [markdown]
# *products* is the share of the roof's time that matrix products need; the rest is elementwise. *factor* is
# the clock's time divided by the roof's.
#
# The training step is nearest to its roof. One by one, the decoder makes thousands of calls with a single
# row each. Their arithmetic and their bytes explain about a fifth of the time. The rest, spread over 11,286
# calls, is about 7 microseconds for each. We take it for the fixed cost of a call in Python and PyTorch. As
# one batch, the same sentences need a seventh of the calls and less than a quarter of the time.
#
# ## Prefill and decode
#
# The same twenty target tokens can go through the decoder in one pass, as a prompt does, or one after the
# other, as in writing. The arithmetic is the same.

# %%
from annotated import DecoderCache, evaluating, subsequent_mask

src = translator.batch(rows[:1])
written = torch.randint(4, 1000, (1, 20))
with evaluating(translator.model):
    memory = translator.model.encode(src, None)

    def one_pass():
        translator.model.decode(memory, None, written, subsequent_mask(20))

    def one_by_one():
        cache = DecoderCache(translator.model.config.N)
        for token in written.split(1, dim=1):
            translator.model.decode(memory, None, token, None, cache)

    prefill, decode = seconds(one_pass, 5), seconds(one_by_one, 5)
print(f"twenty tokens in one pass ≈{1e3 * prefill:.1f} ms, one by one ≈{1e3 * decode:.1f} ms")
print(f"≈{decode / prefill:.0f} times as long for the same arithmetic")

# %% tags=["check"]
assert decode > 3 * prefill

# %% [markdown]
# This is why services treat the two apart: a *prefill* is limited mostly by arithmetic and a *decode* step
# by memory and fixed costs, so batching helps decoding far more.
#
# ## With and without a cache
#
# Without a cache, each step runs the decoder over everything written so far. For $n$ tokens that is
# $1 + 2 + \dots + n$, about $n^2 / 2$ positions, instead of $n$. (In both, the attention itself looks at all
# earlier tokens, but it is a small part at these lengths.)


# %%
def without_cache(length):
    for n in range(1, length + 1):
        translator.model.decode(memory, None, ids[:, :n], subsequent_mask(n))


def with_cache(length):
    cache = DecoderCache(translator.model.config.N)
    for token in ids[:, :length].split(1, dim=1):
        translator.model.decode(memory, None, token, None, cache)


ids, ratios = torch.randint(4, 1000, (16, 96)), {}
with evaluating(translator.model):
    memory = translator.model.encode(translator.batch([rows[0]] * 16), None)
    for length in (12, 24, 48, 96):
        slow, fast = seconds(lambda n=length: without_cache(n), 1), seconds(lambda n=length: with_cache(n), 1)
        ratios[length] = slow / fast
        print(
            f"{length:3} tokens, 16 rows: without ≈{slow:.2f} s, with ≈{fast:.2f} s, ≈{slow / fast:.1f} times"
        )

# %% tags=["check"]
assert ratios[96] > 1.5 * ratios[12]
assert ratios[96] > 3

# %%
from annotated.recorded import recorded

record = recorded("scaling")
for name, exponents in record["exponents"].items():
    print(f"recorded, {name:15}: time grows as length to the power", *(f"{x:.2f}" for x in exponents))

# %% tags=["check"]
assert max(record["exponents"]["with the cache"]) < 1.2 < 1.6 < min(record["exponents"]["without"])

# %% [markdown]
# The record is of `benchmarks/scaling.py`, three runs of lengths 32 to 512 with the cache and 32 to 128
# without, on two cores of an AMD EPYC. The ranges differ, so the two exponents are not measured at the same
# lengths. Neither is the 1 or 2 of the count. There are two likely reasons. At short lengths, fixed costs
# flatten the curve without a cache, and at long ones, the attention over the cache bends the other curve
# up.
#
# ## What it does not say
#
# These are times of one machine. They say nothing about GPUs, where the processor issues the calls while the
# GPU computes beside it. And they say nothing about `torch.compile`, which merges many calls into few:
# compiling takes longer than this page may run. A record of it on a processor is in
# [15](../15_going_fast.ipynb): there the compiled step of a small model was slower than the plain one after
# its 30th update. `benchmarks/compile.py` repeats it on your machine.
