# %% [markdown]
# # 15 · Going fast
#
# **Where does the time go, in a training step and in a translation? We count operations, bytes and calls.
# Then we see what FlashAttention, a chunked loss, half precision, int8, batches and many GPUs change.**
#
# Previous: [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb) · Next:
# [16_another_task](16_another_task.ipynb)
#
# *24 minutes to read, under a minute to run.*
#
# - **Before:** you know the model ([06](06_the_full_model.ipynb)), the loss ([08](08_training_recipe.ipynb))
#   and the cache of decoding ([11](11_search_and_averaging.ipynb)).
# - **After:** you can say how many operations your model needs, and whether arithmetic or memory limits it;
#   write the online softmax of FlashAttention; and say what precision, batch size and more GPUs change.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017), here its section 5.2. A speed below
# comes from a recorded benchmark (on two cores of an AMD EPYC, where no other is named; `make bench` repeats
# it), or from the clock of a cell, or it is called **unmeasured**.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from copy import deepcopy
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

# %%
from annotated import (
    Batch,
    DecoderCache,
    EncoderDecoder,
    LabelSmoothing,
    TransformerConfig,
    attention,
    evaluating,
    greedy_decode,
    load_pretrained,
    make_model,
    padding_mask,
)
from annotated.data import pad_rows
from annotated.fast import CpuKernels
from annotated.plots import setup_notebook
from annotated.tokenizers import END, PAD, START
from annotated.training.loss import SummedLoss
from annotated.translation.evaluate import recorded

setup_notebook()
torch.set_num_threads(1)  # one thread: times that can be compared, and matrices as small as ours want no more

# %% [markdown]
# ## How many operations?
#
# > "For our base models using the hyperparameters described throughout the paper, each training step took
# > about 0.4 seconds." (section 5.2)
#
# Is that fast, on eight P100 GPUs? We count *floating-point operations* (FLOPs; a multiplication and an
# addition are two). PyTorch can count them without doing any: on the device `meta`, tensors have a shape
# and no content. We take the base model and the paper's batch of 25,000 source and 25,000 target tokens.

# %%
with torch.device("meta"):
    base = EncoderDecoder.from_config(TransformerConfig.base(37_000, 37_000))
    tokens = torch.empty(1000, 25, dtype=torch.int64)  # 1,000 sentences of 25
    see_all = torch.ones(1000, 1, 25, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter:
        base.generator(base(tokens, tokens, see_all, see_all)).sum().backward()
operations = counter.get_total_flops()
weights = sum(p.numel() for p in base.parameters())
rule = 6 * weights * 25_000
print(f"counted: {operations / 1e12:.2f} TFLOP; 6 x weights x 25,000: {rule / 1e12:.2f} TFLOP")
P100 = 9.5e12  # operations per second that the paper assumes for a P100 (its footnote 5)
reached = operations / 0.4 / 8
print(f"each P100 did {reached / 1e12:.1f} TFLOP/s, {reached / P100:.0%} of what the paper assumes for it")
assert 0 < 1 - rule / operations < 0.01
assert 0.25 < reached / P100 < 0.35

# %% [markdown]
# **A training step needs six operations per weight and token.** In the forward pass, each weight meets each
# token in one multiplication and one addition. The backward pass does that twice more, for the gradient of
# the input and for that of the matrix. A weight of the encoder meets the 25,000 source tokens, one of the
# decoder the 25,000 target tokens (or, in the keys and values of cross-attention, the source tokens). (The
# rule leaves out the products inside attention: [01](01_why_attention.ipynb).) The last line is the *model
# FLOPs utilisation*: useful operations per second, divided by what the machine can do.
#
# ## Arithmetic or memory: the roofline
#
# A number must come from memory before it can be multiplied. The **arithmetic intensity** of a call (one
# PyTorch function) is its number of operations per byte that it reads or writes. On a machine with peak rate
# $P$ (operations per second) and memory bandwidth $B$ (bytes per second), a call of intensity $I$ runs at
# $\min(P, I \cdot B)$ at best. Drawn over $I$, that is a slope and then a flat roof: the **roofline**. They
# meet at the *ridge point*, $I = P/B$. Left of it a call is *memory-bound*: faster arithmetic does not help.
# Right of it a call is *compute-bound*.
#
# For a product of $n$ rows with a weight matrix $(d, d)$ we can calculate $I$:

# %%
WIDTH, ROWS = 4096, [1, 4, 16, 64, 256]


def intensity(rows: int, bytes_each: int = 4) -> float:
    """Operations per byte of (rows, WIDTH) x (WIDTH, WIDTH): two matrices read, one written."""
    return 2 * rows * WIDTH**2 / (bytes_each * (WIDTH**2 + 2 * rows * WIDTH))


print({rows: round(intensity(rows), 1) for rows in ROWS}, "operations per byte")
H100 = 989e12 / 3.35e12  # published: dense bf16 operations, and bytes of its memory, per second
least = next(rows for rows in range(1, WIDTH) if intensity(rows, 2) > H100)
print(f"ridge point of an H100: {H100:.0f} operations per byte, reached with {least} rows of bf16")
assert intensity(1) < 0.5 < 100 < intensity(256)

# %% [markdown]
# One row uses each weight once: half an operation per byte. With 256 rows, each weight that is fetched is
# used 256 times: one reason why batches are fast.
#
# Now the calls of a whole step: a small model, 40 sentences, dropout, label smoothing and Adam. The *plain*
# step uses PyTorch's own dropout, attention (`F.scaled_dot_product_attention`) and Adam, and the loss of
# [08](08_training_recipe.ipynb); `fast` lists what a later section replaces.
#
# `Operands` notes the operations of each call, and the bytes of its *operands and results*. Fewer bytes than
# that come from memory, because a processor's cache still holds a part of them.


# %%
def attention_flops(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """The operations of PyTorch's fused attention on a CPU, for which `flop_registry` has no formula."""
    return sdpa_flop_count(q.shape, k.shape, v.shape)


FLOPS = {**flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_flops}


def tensors(tree: object) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


# %%
class Operands(TorchDispatchMode):
    """Note each call of PyTorch: is it a matrix product, its operations, the bytes it reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[bool, int, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out, name = func(*args, **kwargs), func.overloadpacket.__name__
        changed = [
            a
            for x, a in zip(func._schema.arguments, args, strict=False)
            if x.alias_info and x.alias_info.is_write
        ]
        read, written = (
            tensors((args, {k: v for k, v in kwargs.items() if k != "out"})),
            tensors(out) or tensors(changed),
        )
        if func.is_view or name == "_unsafe_view" or not written:
            return out
        formula = FLOPS.get(func.overloadpacket)
        done = formula(*args, **kwargs, out_val=out) if formula else sum(x.numel() for x in written)
        look_up = name in ("embedding", "index", "index_select", "gather")  # reads as much as it writes
        size = sum(x.nbytes for x in [*written, *(written if look_up else read)])
        self.calls.append((formula is not None, done, size))
        return out

    def total(self, column: int, products: Collection[bool] = (True, False)) -> int:
        """Add up operations (1) or bytes (2) of matrix products, of other calls, or of both."""
        return sum(call[column] for call in self.calls if call[0] in products)


# %%
V = 6000
_ = torch.manual_seed(0)
sentences = [torch.randint(4, V, (n,)).tolist() for n in torch.randint(12, 25, (40,)).tolist()]
src, tgt = pad_rows([[*s, END] for s in sentences], PAD), pad_rows([[START, *s, END] for s in sentences], PAD)
batch = Batch(src, tgt)
untrained = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.1, tied_embeddings="all")
FAST = ("adam", "loss", "kernels")


def loss_of(model: EncoderDecoder, batch: Batch, fast: Collection[str]) -> Tensor:
    """The summed loss of a batch."""
    if "kernels" in fast:
        with CpuKernels():
            return loss_of(model, batch, {*fast} - {"kernels"})
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    if "loss" in fast:
        return SummedLoss(model, 0.1, PAD)(*inputs, batch.tgt_y)
    log_probs = model.generator(model(*inputs)).flatten(0, 1)  # (rows * len, V)
    return LabelSmoothing(log_probs.size(-1), PAD, 0.1)(log_probs, batch.tgt_y.flatten())


# %%
def make_step(fast: Collection[str]) -> Callable[[], None]:
    """A function that updates a model of its own once."""
    model = deepcopy(untrained).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused="adam" in fast)

    def step() -> None:
        (loss_of(model, batch, fast) / batch.ntokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # the first one also makes Adam's two means
    return step


# %%
plain = make_step(())
with Operands() as before:
    plain()
share = before.total(0) / len(before.calls)
print(f"{len(before.calls):,} calls, {share:.0%} of them matrix products")
product_share = before.total(2, [True]) / before.total(2)
print(f"{before.total(2) / 1e9:.1f} GB of operands and results, {product_share:.0%} of them products'")
per_byte = [before.total(1, [kind]) / before.total(2, [kind]) for kind in (True, False)]
print(f"intensity: products {per_byte[0]:.0f} operations per byte, all other calls {per_byte[1]:.2f}")
assert max(share, product_share) < 0.2
assert per_byte[0] > 20 > 1 > per_byte[1]

# %% [markdown]
# A matrix product does tens of operations per byte. An addition does one for each number, and writes its
# result, which the next call has to fetch again. Most bytes belong to calls like the addition.
#
# We also measure translation: a shipped model translates twelve captions greedily with its cache, one by one
# and as one batch. For $P$ we take our fastest product, for $B$ a copy. The clock counts the processor time
# of one thread, because other programs disturb that less.


# %%
def medians(runs: dict[str, Callable[[], object]], turns: int = 3) -> dict[str, float]:
    """Seconds of processor time of each: run in turns, in alternating order, the middle one taken."""
    took = defaultdict(list)
    for turn in range(turns):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            started = time.process_time()
            runs[name]()
            took[name].append(time.process_time() - started)
    return {name: median(values) for name, values in took.items()}


captions = """A dog runs through the snow. A man is reading a newspaper on a bench.
Two women wait for the bus. A boy in a red shirt is jumping into the water. Three children play football.
An old woman sells flowers at the market. A girl rides a bicycle. The cook is cutting onions in the kitchen.
A black cat sleeps on the roof of a car. Four people are sitting around a table. A woman paints a picture.
A little girl eats an ice cream."""
translator, LIMIT = load_pretrained("multi30k-en-de"), 20
rows = [translator.encode(sentence.strip() + ".") for sentence in captions.split(".") if sentence.strip()]


# %%
def cached(sources: list[list[int]], model: EncoderDecoder = translator.model) -> list[list[int]]:
    """Greedy translations of a batch, with the cache."""
    src = pad_rows(sources, PAD)
    mask = padding_mask(src, PAD)
    return greedy_decode(model, src, mask, LIMIT, START, END, translator.forbidden).tolist()


runs = {
    "training step": plain,
    "12 sentences, one by one": lambda: [cached([row]) for row in rows],
    "12 sentences, one batch": lambda: cached(rows),
}
work = {}
for name, run in runs.items():
    with Operands() as work[name]:
        run()
intensities = {name: calls.total(1, [True]) / calls.total(2, [True]) for name, calls in work.items()}
print({name: f"≈{value:.1f}" for name, value in intensities.items()}, "operations per byte in products")
assert intensities["training step"] > 3 * intensities["12 sentences, one batch"]
assert intensities["12 sentences, one batch"] > 2 * intensities["12 sentences, one by one"]

# %% tags=["nbval-ignore-output"]
matrix, copy = torch.randn(2, WIDTH, WIDTH)
given = {n: torch.randn(n, WIDTH) for n in ROWS}
clock = medians(
    {n: (lambda x=x: x @ matrix) for n, x in given.items()} | {"copy": lambda: copy.copy_(matrix)}, 5
)
rates = {n: 2 * n * WIDTH**2 / clock[n] for n in ROWS}
PEAK, BANDWIDTH = max(rates.values()), 2 * matrix.nbytes / clock["copy"]
print(f"one core here: {PEAK / 1e9:.0f} GFLOP/s in our fastest product, {BANDWIDTH / 1e9:.1f} GB/s")

# %%
clock = medians(runs)
for name, calls in work.items():
    low = sum(size for _, done, size in calls.calls if done <= size / 2) / calls.total(2)
    print(f"{name}: ≈{low:.0%} of ≈{calls.total(2) / 1e9:.2f} GB at up to half an operation per byte;")
    best = [(max(done / PEAK, size / BANDWIDTH), product) for product, done, size in calls.calls]
    whole, products = sum(t for t, _ in best), sum(t for t, product in best if product)
    print(f"    ≈{len(best):,} calls; ≈{1e3 * clock[name]:.0f} ms on the clock,", end=" ")
    print(f"≈{1e3 * whole:.0f} ms at the roof (≈{products / whole:.0%} of them in products)")
    assert (low > 0.75) == (name != "12 sentences, one batch")
assert clock["12 sentences, one by one"] > 2 * clock["12 sentences, one batch"]

# %%
dots = {f"{n} row{'s'[: n > 1]}": (intensity(n), rates[n]) for n in ROWS}
figure, (roof, below) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True, height_ratios=(3, 2))
ridge, grid = PEAK / BANDWIDTH, 2.0 ** np.arange(-5, 10)
roof.plot(grid, np.minimum(PEAK, grid * BANDWIDTH) / 1e9, color="black", label="roofline: min(P, I B)")
roof.plot(
    *zip(*[(i, rate / 1e9) for i, rate in dots.values()], strict=True), "o", ms=9, label="measured products"
)
for name, (i, rate) in dots.items():
    roof.annotate(name, (i, rate / 1e9), xytext=(9, -12), textcoords="offset points")
for place, (name, calls) in enumerate(work.items()):
    per_byte = [max(done, 1) / max(size, 1) for _, done, size in calls.calls]
    shares = [100 * size / calls.total(2) for *_, size in calls.calls]
    heights, _ = np.histogram(per_byte, grid, weights=shares)
    left, right = grid[:-1] * 2 ** (place / len(work)), grid[:-1] * 2 ** ((place + 1) / len(work))
    below.bar(left, heights, right - left, align="edge", label=name)
for ax in (roof, below):
    ax.axvline(ridge, color="black", ls=":", label=f"ridge point: P / B = {ridge:.1f}")
    ax.legend(frameon=False)
roof.set(yscale="log", ylabel="GFLOP/s", title="A roofline of one core, and where the calls lie")
below.set(xscale="log", xlabel="arithmetic intensity (operations per byte)", ylabel="share of bytes (%)")
below.set_xticks(grid[1::2], [f"1/{1 / i:.0f}" if i < 1 else f"{i:.0f}" for i in grid[1::2]])
plt.show()

# %% [markdown]
# *Figure 1. Top: the roofline of one core of this machine (line), and the rates measured for $n$ rows times a
# 4096 by 4096 matrix (dots). Bottom: the share of bytes in calls of each intensity; between two powers of two
# stand three bars side by side, one for each workload.*
#
# The roof is an estimate. Its slope is from a copy, which writes as much as it reads, while a product with
# one row almost only reads; this may be why its dot lies above the line here. The fastest dot gave $P$, so
# this is the roof of PyTorch's default product. (*Half the bits* finds one that is twice as fast on some
# machines: the roof would be higher, and the ridge further right.)
#
# To decode one sentence, each step fetches every weight of the decoder for a single row. In a large model
# that takes the time. In ours, bytes and operations explain less than half of the clock's time: the *fixed
# cost* of many calls (Python, PyTorch) counts more. In one batch, twelve sentences share the fetched weights
# and the fixed cost.
#
# A training step has five of six bytes in *elementwise* calls (one operation per entry, like an addition),
# and yet at the roof its products have a far larger share of the time than of the bytes: they do nearly all
# the operations. The fixed cost of its thousand calls, ten or twenty microseconds each as in decoding,
# explains little of its time above the roof. But we count every elementwise result as one operation, and an
# exponential or a random number of dropout is many.
#
# Three remedies follow: **more rows per fetch and call** (batches), **fewer bytes per number** (bf16 has
# two, int8 one), and **fewer trips to memory for the same work** (*fused* calls, one in place of several).
#
# ## FlashAttention: the softmax that runs
#
# Equation 1 as written makes a table of scores, for every head, query and key, and takes its softmax.
# **FlashAttention** (Dao et al., 2022) never holds a whole table. It goes through the keys in blocks and
# keeps three things for each query: the largest score so far, the sum of the exponentials, and the weighted
# sum of the values. When a block brings a new largest score, both sums are multiplied by exp(old largest -
# new). This is the **online (running) softmax** (Milakov and Gimelshein, 2018):


# %%
def running_attention(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """One query (d_k,), keys (S, d_k), values (S, d_v) -> (d_v,); only `block` scores exist at a time."""
    largest, total, weighted = torch.tensor(-math.inf), torch.zeros(()), torch.zeros(v.size(-1))
    for keys, values in zip(k.split(block), v.split(block), strict=True):
        scores = keys @ q / math.sqrt(q.numel())  # (block,)
        new = torch.maximum(largest, scores.max())
        weights, shrink = (scores - new).exp(), (largest - new).exp()
        total = total * shrink + weights.sum()
        weighted = weighted * shrink + weights @ values
        largest = new
    return weighted / total


# %%
_ = torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
q, k, v = torch.randn(16), torch.randn(100, 16), torch.randn(100, 8)
for factor in (1, 1000):  # the second would overflow exp without the largest score
    softmax = (factor * k @ q / 4).softmax(dim=0)  # (100,)
    for block in (1, 7, 100):
        identity = torch.eye(100)  # with these values, the output is the weights themselves
        assert_close(running_attention(factor * q, k, identity, block), softmax)
        assert_close(running_attention(factor * q, k, v, block), softmax @ v)
torch.set_default_dtype(torch.float32)
print("blocks of 1, 7 and 100 keys: the same weights as softmax, the same output")

# %% [markdown]
# PyTorch's `F.scaled_dot_product_attention` has such fused *kernels* (compiled routines), for CPUs too.
# They do *more* operations, because the backward pass computes the scores again. What they save is memory,
# and the trips to it. Here are the *saved activations*, which the forward pass keeps for the backward
# pass:


# %%
def saved(run: Callable[[], object]) -> int:
    """The bytes that autograd keeps of what `run` computes, each piece of memory counted once."""
    held: dict[int, Tensor] = {}
    hold = lambda x: held.setdefault(x.untyped_storage().data_ptr(), x)  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        run()
    return sum(x.untyped_storage().nbytes() for x in held.values())


def heads(n: int) -> list[Tensor]:
    """Queries, keys and values of four heads (1, 4, n, 16)."""
    return [torch.randn(1, 4, n, 16, requires_grad=True) for _ in range(3)]


# %% tags=["figure-attention-memory"]
SIZES = [128, 256, 512, 1024]
forms = {
    "unfused": lambda n: attention(*heads(n), torch.ones(1, n, dtype=torch.bool)),
    "PyTorch's": lambda n: F.scaled_dot_product_attention(*heads(n)),
    "PyTorch's, with dropout": lambda n: F.scaled_dot_product_attention(*heads(n), dropout_p=0.1),
}
held = {name: [saved(lambda n=n, form=form: form(n)) for n in SIZES] for name, form in forms.items()}
exponents = {name: np.polyfit(np.log(SIZES), np.log(sizes), 1)[0] for name, sizes in held.items()}
for (name, sizes), marker in zip(held.items(), "os^", strict=True):
    plt.loglog(SIZES, sizes, f"{marker}--", ms=8, label=f"{name}: exponent {exponents[name]:.2f}")
plt.title("Saved activations of attention")
plt.xlabel("length (tokens)")
plt.ylabel("bytes")
plt.xticks(SIZES, SIZES)
plt.minorticks_off()
plt.legend(frameon=False)
plt.show()
assert abs(exponents["PyTorch's"] - 1) < 0.01
assert min(exponents["unfused"], exponents["PyTorch's, with dropout"]) > 1.8

# %% [markdown]
# *Figure 2. Bytes saved for the backward pass, by length. The exponent is the slope of a straight line
# through the points: PyTorch's fused kernel grows with the length, the others nearly with its square.*
#
# The triangles ask for dropout on the attention weights, as `nn.Transformer` does by default (our models do
# not). PyTorch has no fused CPU kernel with dropout, so it computes the whole table, without a warning.
#
# Is the fused kernel also faster? `benchmarks/attention.py` ran both forms forward and backward, on 2,048
# tokens cut into sentences of a given length:

# %%
for size in ("tiny", "base"):
    raced = {int(each["ours"].split()[-1]): each for each in recorded(f"attention-{size}")["comparisons"]}
    print(f"heads of the {size} model: unfused is", end=" ")
    shown = (
        f"{each['ratio']:.2f} x ({each['low']:.2f} to {each['high']:.2f}) at {n}" for n, each in raced.items()
    )
    print(",\n    ".join(shown), "tokens")
    assert raced[48]["low"] > 1 > raced[128]["high"]

# %% [markdown]
# A factor is how many times as fast the unfused form is, with its 95% interval. At 48 tokens the unfused form
# is ahead in both sizes of model, from 128 on the fused one.
#
# ## Three smaller replacements
#
# - **The chunked loss** takes the decoder's output 256 tokens at a time, so the whole (tokens, V) table of
#   logits never exists.
# - **Fused Adam.** Plain Adam makes eight passes or more over the parameters, their gradients and its two
#   means; `fused=True` makes one.
# - **`CpuKernels`**: dropout draws one 64-bit number for four entries, not for each (its probability becomes
#   a multiple of 1 / 65,536); attention over at most 48 tokens is computed unfused.
#
# In float64 and without dropout, the gradients are the same:

# %%
exact = make_model(60, 60, N=2, d_model=32, d_ff=64, h=4, dropout=0.0, tied_embeddings="all").double()
small = Batch(src[:8].clamp(max=59), tgt[:8].clamp(max=59))


def gradients(batch: Batch, divisor: float, fast: Collection[str] = FAST) -> Tensor:
    """All gradients of the exact model, in a row."""
    found = torch.autograd.grad(loss_of(exact, batch, fast) / divisor, list(exact.parameters()))
    return torch.cat([g.flatten() for g in found])


assert_close(gradients(small, 1), gradients(small, 1, fast=()))
quick = make_step(FAST)
with Operands() as after:
    quick()
took = medians({"plain": plain, "replaced": quick})
print(", ".join(f"{name} step: ≈{1e3 * seconds:.0f} ms" for name, seconds in took.items()))
print(f"calls: {len(before.calls):,}, replaced {len(after.calls):,}")
print(f"GB of operands and results: {before.total(2) / 1e9:.1f}, replaced {after.total(2) / 1e9:.1f}")
quiet = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.0, tied_embeddings="all")
whole, chunked = (saved(lambda f=f: loss_of(quiet, batch, f)) / 1e6 for f in ((), FAST))
print(f"saved activations without dropout: {whole:.0f} MB; with all replacements {chunked:.0f} MB")
assert before.total(2) > 1.4 * after.total(2)
assert whole > 2 * chunked

# %%
races, peer = recorded("train-small"), "torch.nn.Transformer"
for form in ("readable forms", peer, f"{peer} with our loss", "annotated"):
    seconds = races["candidates"][form]["median"]
    used = races["operations"] / seconds / races["matmul_rate"]["float32"]
    print(f"{form:34} {races['target_tokens'] / seconds:5.0f} target tokens/s, utilisation {used:.0%}")
for size in ("tiny", "small", "base"):
    for each in recorded(f"train-{size}")["comparisons"][:2]:
        within = f"({each['low']:.2f} to {each['high']:.2f})"
        print(f"{size}: annotated / {each['peer']}: {each['ratio']:.2f} {within}")
        assert each["low"] > 1
    assert recorded(f"train-{size}")["comparisons"][1]["ratio"] < 1.07

# %% [markdown]
# The first record is of a model of width 256 in float32 (`benchmarks/train.py`). "Readable forms" is the
# plain step with unfused attention (at 16 tokens a sentence, attention is not what makes it slow).
# "annotated" has fused attention, fused Adam and the chunked loss, not `CpuKernels`. `nn.Transformer` with
# PyTorch's loss computes the logits of padding too. With our loss in it, it is 3 to 6% behind ours, so in
# the two smaller models most of the lead is the loss's, in the base model about half. (In brackets are 95%
# intervals; for the base model, with six turns, they are wide.) Utilisation is here of PyTorch's default
# float32 product, not (as for the P100) of the processor's peak.
#
# ## Half the bits
#
# A 16-bit number has half the bytes to move, and some processors multiply *bf16*, a 16-bit format, faster.
# ("medium" permits PyTorch to round float32 factors to bf16.)


# %%
def permitted() -> Tensor:
    """The product of float32 matrices, which PyTorch may round first."""
    torch.set_float32_matmul_precision("medium")
    product = x @ y
    torch.set_float32_matmul_precision("highest")
    return product


_ = torch.manual_seed(0)
SIDE = 768
x, y = torch.randn(2, SIDE, SIDE)
x16, y16, right = x.bfloat16(), y.bfloat16(), x.double() @ y.double()
products = {"float32": lambda: x @ y, "medium": permitted, "bf16": lambda: x16 @ y16}
for name, seconds in medians(products).items():
    error = ((products[name]() - right).norm() / right.norm()).item()
    print(f"{name:8} ≈{2 * SIDE**3 / seconds / 1e9:.0f} GFLOP/s, relative error ≈{error:.0e}")
    assert error < 0.01

# %%
per_second = recorded("train-base")["matmul_rate"]
print("recorded on two cores:", {name: round(x / 1e9) for name, x in per_second.items()}, "GFLOP/s")
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    plus, tiny, large = (torch.tensor(x, dtype=dtype) for x in (1.0, 1e-8, 70_000.0))
    print(f"{dtype!s:15} 1 + 0.001 = {(plus + 1e-3).item():.3f}", end="   ")
    print(f"1e-8 is {tiny.item():.0e}   70,000 is {large.item():,.0f}")
total = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    total += 1
at_once = torch.ones(1000, dtype=torch.bfloat16).sum()
print(f"1 + 1 + 1 ... a thousand times in bf16: {total.item():.0f};  .sum() of them: {at_once.item():.0f}")

# %% [markdown]
# On the EPYC of the record, which has bf16 instructions, bf16 is four times as fast as float32. In part that
# is the library: PyTorch's float32 product is from MKL, Intel's, and "medium" takes another, oneDNN. In the
# cell before, whose machine need not be the record's, an error near 2e-03 shows that "medium" rounded to
# bf16; an error like float32's, that it rounded nothing (on one EPYC it was twice as fast even so).
#
# float16 has more digits but a small range: 1e-8 becomes 0, so training in float16 first multiplies the
# loss by a large factor (*loss scaling*). bf16 has the range of float32 but only two to three decimal
# digits, so a running sum of ones stops at 256, where the next number is 258. `.sum()` adds in float32 and
# rounds once. Hence **mixed precision** (`--precision bf16`): the factors of a product in bf16; sums,
# weights, Adam's means and the loss in float32.
#
# **Exercise 1 (medium).** Write *stochastic rounding* from float32 to bf16, which is right on average: a
# number that lies a fraction f of the way to the next bf16 number goes up with probability f. (A bf16
# number is the upper half of a float32's bits; `x.view(torch.int32)` shows them.)


# %% tags=["exercise"]
def round_by_chance(x: Tensor) -> Tensor:
    """Round float32 of any shape to bf16, up or down at random, with the right mean."""
    raise NotImplementedError


# %% tags=["solution"]
def round_by_chance(x: Tensor) -> Tensor:
    noise = torch.randint_like(x, 2**16, dtype=torch.int32)  # add noise below the last bit, and cut
    return ((x.view(torch.int32) + noise) & -(2**16)).view(torch.float32).bfloat16()


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
sums = torch.zeros(2000, dtype=torch.bfloat16)  # two thousand sums side by side
for _ in range(1000):
    sums = round_by_chance(sums.float() + 1)
print(f"mean of 2,000 such sums: ≈{sums.float().mean():.0f}")
assert abs(sums.float().mean() - 1000) < 5

# %% [markdown]
# ## A quarter: int8
#
# For translating alone, weights can be **quantised**: stored as whole numbers from -127 to 127, with one
# scale factor for each row. CTranslate2, an engine in C++, does so. We do it by hand to a shipped model:

# %%
coarse = deepcopy(translator.model)
errors, sizes = [], Counter()
for linear in [m for m in coarse.modules() if isinstance(m, nn.Linear)]:
    w = linear.weight.data  # (out, in)
    scale = w.abs().amax(dim=1, keepdim=True) / 127  # (out, 1)
    whole_numbers = (w / scale).round().to(torch.int8)
    errors.append(((whole_numbers * scale - w).norm() / w.norm()).item())
    sizes.update({"float32": w.nbytes, "int8": whole_numbers.nbytes + scale.nbytes})
    linear.weight = nn.Parameter(whole_numbers * scale)
print(f"{sizes['float32'] / 1e6:.1f} MB become {sizes['int8'] / 1e6:.1f}, off by ≈{max(errors):.1%}")
same = sum(a == b for a, b in zip(cached(rows, coarse), cached(rows), strict=True))
print(f"the same translation: ≈{same} of {len(rows)}")
assert max(errors) < 0.03
assert same >= 6

# %% [markdown]
# A real engine also rounds the activations, and multiplies int8 by int8. We time such a product, and read
# the BLEU of CTranslate2, beam 5, from the record of `benchmarks/quantization.py`: three shipped models,
# two splits of about 1,000 sentences each.

# %%
x8, y8 = torch.randint(-127, 128, (2, SIDE, SIDE), dtype=torch.int8)
seconds = medians({"int8": lambda: torch._int_mm(x8, y8)})["int8"]
print(f"int8 product: ≈{2 * SIDE**3 / seconds / 1e9:.0f} G operations per second")
changes, record = defaultdict(list), recorded("quantization")
for each in record["scores"]:
    changes[each["instructions"]].append(each["int8"] - each["float32"])
for instructions, found in changes.items():
    print(f"with {instructions}, BLEU changes by", *(f"{change:+.2f}" for change in found))
for each in record["speeds"]:
    within = f"{each['ratio']:.2f} ({each['low']:.2f} to {each['high']:.2f})"
    print(f"{each['model']}, {each['instructions']}: {within} times as fast as float32")
    assert 1.1 < each["low"] < each["high"] < 1.4
assert min(changes["VNNI"]) > -0.1
assert -1.2 < min(changes["AVX2"]) < -1

# %% [markdown]
# (Beam 5 without a length penalty, on an Intel Xeon, one thread; "AVX2" is the same processor, kept to fewer
# instructions.) With VNNI, x86 instructions that sum products of int8 in 32 bits, the six differences lie
# between -0.09 and +0.20. Without it, one model loses 1.15 and 0.80 BLEU, the others change by -0.21 to
# +0.28, which may be chance. The probable cause: AVX2 adds two products in 16 bits, and cuts off a sum that
# does not fit (it *saturates*). A whole translation, from text to text, is 1.2 times as fast in int8 on this
# small model, probably because products are only a part of its time.
#
# ## Decoding: latency and throughput
#
# **Latency** is how long one user waits; **throughput** is how many sentences are done in a second. We
# translate the captions in batches of 1, 4 and 12:

# %%
passes, speeds = [], {}
hook = translator.model.decoder.register_forward_pre_hook(lambda module, _: passes.append(1))
for size in (1, 4, 12):
    groups = [rows[i : i + size] for i in range(0, 12, size)]
    passes.clear()
    answers = [row[: row.index(END)] if END in row else row for group in groups for row in cached(group)]
    calls = len(passes)
    seconds = medians({size: lambda groups=groups: [cached(group) for group in groups]})[size]
    speeds[size] = 12 / seconds
    print(f"batches of {size:2}: ≈{calls} decoder passes, ≈{calls / len(groups):.1f} a batch; ", end="")
    print(f"≈{speeds[size]:.0f} sentences per second, ≈{1e3 * seconds / len(groups):.0f} ms a batch")
hook.remove()
assert calls == max(map(len, answers))  # the one batch of 12 runs as long as its longest sentence
assert speeds[12] > 2 * speeds[1]

# %% [markdown]
# A pass makes the same calls and fetches the same weights for one row and for twelve, and takes less than
# twelve times as long, so a batch raises throughput. It raises latency too: each pass is longer, the batch
# runs until its *longest* sentence is done, and the first sentence waits until the batch is full. In
# *continuous batching* a new sentence takes the row of a finished one.
#
# **What the cache costs.** Each layer keeps a key and a value, d_model numbers each, for every target token
# so far and every source token:

# %%
config = translator.model.config
cache, src_states = DecoderCache(config.N), torch.randn(1, 15, config.d_model)
with evaluating(translator.model):
    translator.model.decode(src_states, None, torch.tensor([[START]]), None, cache)
held = sum(x.nbytes for c in cache.layers for kv in (c.target, c.memory) for x in (kv.key, kv.value))
each = 2 * config.N * config.d_model * 4  # float32 has 4 bytes
assert held == (15 + 1) * each
print(f"{each:,} bytes per token; base model: {2 * 6 * 512 * 4:,} bytes per token")

# %% [markdown]
# In large models the cache limits the batch. Many therefore share keys and values between heads
# (*multi-query* and *grouped-query attention*), or store the cache in 8 bits.
#
# ## Several GPUs, several machines
#
# > "We trained our models on one machine with 8 NVIDIA P100 GPUs." (section 5.2)
#
# In **data parallelism** each GPU holds the whole model and takes a part of the batch. Their gradients
# are summed or averaged (an **all-reduce**), and all make the same update. Is it the same as one GPU
# with the whole batch? We average the gradients of two halves, the first with short sentences.

# %%
_ = torch.manual_seed(0)
src2, tgt2 = torch.randint(4, 60, (2, 8, 9))
tgt2[:4, 4:] = PAD
halves, both = [Batch(src2[:4], tgt2[:4]), Batch(src2[4:], tgt2[4:])], Batch(src2, tgt2)
wanted = gradients(both, both.ntokens)
means = sum(gradients(half, half.ntokens) for half in halves) / 2
apart = ((means - wanted).norm() / wanted.norm()).item()
print(f"target tokens: {halves[0].ntokens} and {halves[1].ntokens}; the mean of means is off by ≈{apart:.0%}")
assert apart > 0.1
assert_close(sum(gradients(half, both.ntokens) for half in halves), wanted)  # divided by the tokens of all

# %% [markdown]
# The mean of two means is the mean of all only if both halves have as many tokens. Here a word of the
# first half counted more than twice as much, and nothing crashes. The cure, as in `Trainer`: divide by the
# tokens of all together, which each GPU must know *before* the backward pass.
#
# `torchrun --nproc-per-node 8 -m annotated train ...` trains on eight GPUs (see the README and
# `benchmarks/scaling.md`).
#
# **Communication.** When $n$ GPUs pass their gradients round a ring, each sends $2(n-1)/n$ times the
# gradient's bytes (one round to add, one to share). Sending and computing both grow with the weights, so
# their ratio depends on the tokens per GPU and on the link. We calculate it from published rates, unmeasured:

# %%
RATE = 0.4 * 989e12  # assumed: 40% of what an H100 is published to reach in dense bf16
for link, gpus, per_second in (  # bytes per second in one direction
    ("8 GPUs in a machine, NVLink 4", 8, 450e9),
    ("64 GPUs, InfiniBand 400G each", 64, 50e9),
):
    sent = 2 * (gpus - 1) / gpus * 4 * weights  # bytes, in float32
    ratios = [sent / per_second / (6 * weights * t / RATE) for t in (3125, 25_000)]  # 3,125: the paper's / 8
    print(f"{link:30} communication / computing: {ratios[0]:.2f} and {ratios[1]:.2f}")
print("(with 3,125 and with 25,000 tokens per GPU)")
print(f"share of the base model's weights in its tied embedding: {37_000 * 512 / weights:.0%}")

# %% [markdown]
# This is the time that sending adds to each step, as a share of the computing, if nothing overlaps. (A small
# model may compute more slowly, and then its ratio is lower.) Some of it can hide behind the backward pass,
# two thirds of the computing: the gradients of the last layers travel while the first layers still go
# backward. But the embedding is also the output matrix (they are *tied*), so its gradient, 30% of all, is
# complete only at the end.
#
# ## What changes on a GPU
#
# In the code only `.to(device)` changes (and a clock must call `torch.cuda.synchronize()`). But Python has
# to send each call to the GPU, which takes some microseconds however little the call does. With hundreds of
# calls a step, a small model's GPU waits for Python. We expect, and have **not measured** (`make bench
# DEVICE=cuda` does): large batches help most; `--precision bf16` helps large models on GPUs with bf16
# units; fused attention saves memory, and time in long sentences; `--compile` makes few calls of many.
#
# Next: parsing, the paper's other task, in [16_another_task](16_another_task.ipynb).
