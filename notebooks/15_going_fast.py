# %% [markdown]
# # 15 · Going fast
#
# **Where does the time of a training step go, and of a translation? We count operations, bytes and calls.
# Then we see what FlashAttention, a chunked loss, half precision, int8, batches and many GPUs change.**
#
# Previous: [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb) · Next:
# [16_another_task](16_another_task.ipynb)
#
# *29 minutes to read, under a minute to run.*
#
# - **Before:** you know the model ([06](06_the_full_model.ipynb)), the loss ([08](08_training_recipe.ipynb))
#   and the cache of decoding ([11](11_search_and_averaging.ipynb)).
# - **After:** you can say how many operations your model needs, and whether arithmetic or memory limits it;
#   write the online softmax of FlashAttention; and choose precision, batch size and number of GPUs.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017), here its section 5.2. A speed below comes
# from a recorded benchmark (`make bench` repeats it) or from the clock in the cell above it, or it is called
# **unmeasured**.

# %%
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import os
import subprocess
import sys

try:
    import annotated

    annotated.make_model  # PyPI has a stranger's `annotated`, which has none
except (ImportError, AttributeError):
    where = os.environ.get("ANNOTATED_SPEC", "")
    if not where:
        todo = "%env ANNOTATED_SPEC=git+https://..."
        raise RuntimeError(f"To say where pip finds annotated, run in a cell above:\n{todo}") from None
    package = f"annotated-transformer[colab] @ {where}"
    command = [sys.executable, "-m", "pip", "install", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            print(line, end="")
    if pip.returncode:
        raise RuntimeError("pip could not install annotated: its reason stands above") from None
    sys.modules.pop("annotated", None)

# %%
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from copy import deepcopy
from statistics import median

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

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
from annotated.plots import fit_power, plot_against, plot_costs, setup_notebook
from annotated.tokenizers import END, PAD, START
from annotated.training.update import SummedLoss
from annotated.translation.scoring import recorded

setup_notebook()
torch.set_num_threads(1)  # one thread: times that can be compared, and matrices as small as ours want no more

# %% [markdown]
# ## How many operations?
#
# > "For our base models using the hyperparameters described throughout the paper, each training step took
# > about 0.4 seconds." (section 5.2)
#
# Is 0.4 seconds on eight P100 GPUs fast? We first count the work, in *floating-point operations* (FLOPs; a
# multiplication and an addition are two). PyTorch can count them without doing any: on the device `meta`,
# tensors have a shape and no content. We take the base model and the paper's batch, 25,000 source and 25,000
# target tokens (section 5.1).

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
print(f"counted: {operations / 1e12:.1f} TFLOP; 6 x weights x tokens: {rule / 1e12:.1f} TFLOP")
print(f"what the rule leaves out, the products inside attention: {1 - rule / operations:.1%}")
reached = operations / 0.4 / 8
print(f"each P100 did {reached / 1e12:.1f} TFLOP/s; the paper reckons with 9.5: {reached / 9.5e12:.0%}")
assert 0 < 1 - rule / operations < 0.01
assert 0.25 < reached / 9.5e12 < 0.35

# %% [markdown]
# **A training step needs six operations for each weight and token.** Each weight meets each source or each
# target token in one multiplication and one addition. The backward pass does that twice more, for the
# gradient of the input and for the gradient of the matrix. (The products inside attention grow with the
# square of the length: [01](01_why_attention.ipynb).) The last line is the *model FLOPs utilisation*:
# useful operations a second, divided by the machine's peak rate, here 31% ([12](12_results.ipynb) has 29%
# for the whole run).
#
# ## Arithmetic or memory: the roofline
#
# A number has to come from memory before it can be multiplied. The **arithmetic intensity** of a call (one
# PyTorch function) is its number of operations for each byte that it reads or writes. On a machine with peak
# rate $P$ (operations a second) and memory bandwidth $B$ (bytes a second), a call of intensity $I$ runs at
# $\min(P, I \cdot B)$ at best. Drawn over $I$, that is a slope and then a flat roof: the **roofline**. They
# meet at the *ridge point*, $I = P/B$. Left of it a call is *memory-bound*: faster arithmetic does not help.
# Right of it a call is *compute-bound*.
#
# For a product of $n$ rows with a weight matrix $(d, d)$ we can calculate $I$:

# %%
WIDTH, ROWS = 4096, [1, 4, 16, 64, 256]


def intensity(rows: int, bytes_each: int = 4) -> float:
    """Operations a byte of (rows, WIDTH) x (WIDTH, WIDTH): two matrices read, one written."""
    return 2 * rows * WIDTH**2 / (bytes_each * (WIDTH**2 + 2 * rows * WIDTH))


print({rows: round(intensity(rows), 1) for rows in ROWS}, "operations a byte")
H100 = 989e12 / 3.35e12  # published: dense bf16 operations, and bytes of its memory, a second
least = next(rows for rows in range(1, WIDTH) if intensity(rows, 2) > H100)
print(f"edge of an H100's roof: {H100:.0f} operations a byte, reached with {least} rows of bf16")
assert intensity(1) < 0.5 < 100 < intensity(256)

# %% [markdown]
# One row uses each weight once: half an operation a byte. With 256 rows, each weight that is fetched is used
# 256 times. This is the main reason why batches are fast.
#
# Now the calls of a whole step: a small model, 40 sentences, dropout, label smoothing and Adam.
# `reference` uses PyTorch's own dropout, attention and Adam, and the loss of
# [08](08_training_recipe.ipynb); `fast` names what is replaced later.

# %%
V = 6000
_ = torch.manual_seed(0)
sentences = [torch.randint(4, V, (n,)).tolist() for n in torch.randint(12, 25, (40,)).tolist()]
src, tgt = pad_rows([[*s, END] for s in sentences], PAD), pad_rows([[START, *s, END] for s in sentences], PAD)
batch = Batch(src, tgt)
newborn = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.1, tied_embeddings="all")
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
    model = deepcopy(newborn).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused="adam" in fast)

    def step() -> None:
        (loss_of(model, batch, fast) / batch.ntokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # the first one also makes Adam's two means
    return step


# %%
KINDS = {"matrix products": "mm", "attention kernel": "scaled_dot_product", "elementwise and others": ""}
LOOK_UPS = {"aten::embedding", "aten::index", "aten::index_select", "aten::gather"}  # read what they write


# %%
class Traffic(TorchDispatchMode):
    """Notes each call as (kind, operations, bytes read and written); views move nothing and are left out."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[str, int, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        read, written = ([x for x in tree_leaves(t) if isinstance(x, Tensor)] for t in ((args, kwargs), out))
        known = {x.untyped_storage().data_ptr() for x in read}
        if name.endswith("_") or not all(x.untyped_storage().data_ptr() in known for x in written):
            kind = next(kind for kind, part in KINDS.items() if part in name)
            done = sum(x.numel() for x in written)  # one operation an entry, but for these two:
            if kind == "matrix products":
                done *= 2 * read[-2].size(-1)
            elif kind == "attention kernel":
                done = sdpa_flop_count(*(x.shape for x in read[:3]))
            moved = sum(x.nbytes for x in [*written, *(written if name in LOOK_UPS else read)])
            self.calls.append((kind, done, moved))
        return out

    def total(self, column: int, *kinds: str) -> int:  # operations (1) or bytes (2), of all kinds by default
        return sum(call[column] for call in self.calls if not kinds or call[0] in kinds)


# %%
reference = make_step(())
with Traffic() as before:
    reference()
share = Counter(kind for kind, *_ in before.calls)["matrix products"] / len(before.calls)
product_bytes, product_work = (before.total(column, "matrix products") for column in (2, 1))
print(f"{len(before.calls):,} calls, {share:.0%} of them matrix products")
print(f"{before.total(2) / 1e9:.1f} GB moved, {product_bytes / before.total(2):.0%} by matrix products")
print(f"intensity: products {product_work / product_bytes:.0f} operations a byte, ", end="")
others = before.total(1) - product_work, before.total(2) - product_bytes
print(f"all other calls {others[0] / others[1]:.2f}")
assert share < 0.2
assert product_bytes < 0.5 * before.total(2)
assert product_work / product_bytes > 20 > 1 > others[0] / others[1]

# %% [markdown]
# A matrix product does tens of operations for each byte. An addition does one for each number, and writes its
# result to memory, where the next call has to fetch it again. Most of the traffic is of the second kind.
#
# For the roofline we use the clock: the peak rate is that of a large product, the bandwidth that of a copy.
# For comparison, a shipped model translates twelve captions greedily with its cache, one by one and as one
# batch.


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
english = [sentence.strip() + "." for sentence in captions.split(".") if sentence.strip()]
translator, LIMIT = load_pretrained("multi30k-en-de"), 20
rows = [translator.encode(sentence) for sentence in english]


# %%
def cached(sources: list[list[int]]) -> list[list[int]]:
    """Greedy translations of a batch, with the cache."""
    src = pad_rows(sources, PAD)
    mask = padding_mask(src, PAD)
    return greedy_decode(translator.model, src, mask, LIMIT, START, END, translator.forbidden).tolist()


work = {"training step": before}
for name, groups in (("decoding, 1 sentence", [[row] for row in rows]), ("decoding, 12 sentences", [rows])):
    with Traffic() as work[name]:
        for group in groups:
            cached(group)
kind = "matrix products"
intensities = {name: t.total(1, kind) / t.total(2, kind) for name, t in work.items()}
for name, value in intensities.items():
    print(f"{name:23} {value:5.1f} operations a byte in its products, {work[name].total(2) / 1e9:.2f} GB")
assert intensities["training step"] > 3 * intensities["decoding, 12 sentences"]
assert intensities["decoding, 12 sentences"] > 2 * intensities["decoding, 1 sentence"]

# %% tags=["nbval-ignore-output"]
matrix, copy = torch.randn(2, WIDTH, WIDTH)
given = {n: torch.randn(n, WIDTH) for n in ROWS}
clock = medians(
    {n: (lambda x=x: x @ matrix) for n, x in given.items()} | {"copy": lambda: copy.copy_(matrix)}, 5
)
rates = {n: 2 * n * WIDTH**2 / clock[n] for n in ROWS}
PEAK, BANDWIDTH = max(rates.values()), 2 * matrix.nbytes / clock["copy"]
print(f"one core here: {PEAK / 1e9:.0f} GFLOP/s at best, {BANDWIDTH / 1e9:.1f} GB/s")

# %%
fig, (roof, below) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True, height_ratios=(3, 2))
grid = [2**n for n in range(-5, 10)]
roof.plot(grid, [min(PEAK, i * BANDWIDTH) / 1e9 for i in grid], color="black", label="roofline: min(P, I B)")
roof.plot([intensity(n) for n in ROWS], [rates[n] / 1e9 for n in ROWS], "o", ms=9, label="measured products")
for n in ROWS:
    roof.annotate(
        f"{n} row{'s'[: n > 1]}", (intensity(n), rates[n] / 1e9), xytext=(8, -14), textcoords="offset points"
    )
roof.set(yscale="log", ylabel="GFLOP/s", title="A roofline of one core, and where the calls lie")
roof.legend(frameon=False, loc="upper left")
for name, traffic in work.items():
    shares = [[2 ** math.floor(math.log2(max(done, 1) / moved)), moved] for _, done, moved in traffic.calls]
    heights = [sum(moved for i, moved in shares if i == left) / traffic.total(2) for left in grid]
    below.stairs([100 * h for h in heights[:-1]], grid, label=name, lw=2.5)
below.set(xscale="log", xlabel="arithmetic intensity (operations a byte)", ylabel="share of bytes (%)")
below.set_xticks(grid[1::2], [f"1/{1 / i:.0f}" if i < 1 else str(i) for i in grid[1::2]])
below.minorticks_off()
below.legend(frameon=False)
plt.show()
assert sum(heights) > 0.95  # nearly all of what is moved is in the picture

# %% [markdown]
# *Figure 1. Top: what one core of this machine can do at each arithmetic intensity (line), and what it did
# for $n$ rows times a 4096 by 4096 matrix (dots). Bottom: the share of all bytes that calls of each intensity
# move.*
#
# Translating one sentence moves nearly all its bytes at less than half an operation a byte: each step fetches
# every weight of the decoder for a single row. Twelve sentences share that fetch. A training step has most of
# its *bytes* at the far left. So there are three remedies: **more rows for each fetch** (batches), **fewer
# bytes for each number** (bf16, int8), and **fewer trips to memory for the same work** (fusing calls). (A dot
# above the line fetched its matrix faster than our copy, perhaps from a processor cache.)
#
# ## FlashAttention: the softmax that runs
#
# Equation 1 as written makes a table of scores, with an entry for every head, query and key; masks it; and
# takes its softmax. **FlashAttention** (Dao et al., 2022) never holds a whole table. It goes through the keys
# in blocks and keeps three things for each query: the largest score so far, the sum of the exponentials, and
# the weighted sum of the values. When a block brings a new largest score, both sums are scaled down to it.
# This is the **online (running) softmax** (Milakov and Gimelshein, 2018):


# %%
def running_attention(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """One query (d_k,), keys (S, d_k), values (S, d_v) -> (d_v,); only `block` scores exist at a time."""
    largest, total, mean = torch.tensor(-math.inf), torch.zeros(()), torch.zeros(v.size(-1))
    for keys, values in zip(k.split(block), v.split(block), strict=True):
        scores = keys @ q / math.sqrt(q.numel())  # (block,)
        new = torch.maximum(largest, scores.max())
        weights, shrink = (scores - new).exp(), (largest - new).exp()
        total = total * shrink + weights.sum()
        mean = mean * shrink + weights @ values
        largest = new
    return mean / total


# %%
_ = torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
q, k, v = torch.randn(16), torch.randn(100, 16), torch.randn(100, 8)
for factor in (1, 1000):  # the second would overflow exp without the largest score
    softmax = (factor * k @ q / 4).softmax(dim=0)  # (100,)
    for block in (1, 7, 100):
        assert_close(running_attention(factor * q, k, torch.eye(100), block), softmax)
        assert_close(running_attention(factor * q, k, v, block), softmax @ v)
torch.set_default_dtype(torch.float32)
print("blocks of 1, 7 and 100 keys: the same weights as softmax, the same output")

# %% [markdown]
# PyTorch's `F.scaled_dot_product_attention`
# has such *fused* kernels, one call in place of several, on CPUs too. They do *more* operations, because the
# backward pass computes the scores again. What they save is memory, and the trips to it. Here is what the
# forward pass keeps for the backward pass:


# %%
def kept(run: Callable[[], object]) -> int:
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
    "reference": lambda n: attention(*heads(n), torch.ones(1, n, dtype=torch.bool)),
    "fused": lambda n: F.scaled_dot_product_attention(*heads(n)),
    "fused, with dropout": lambda n: F.scaled_dot_product_attention(*heads(n), dropout_p=0.1),
}
held = {name: (SIZES, [kept(lambda n=n, form=form: form(n)) for n in SIZES]) for name, form in forms.items()}
plot_costs(held, "What attention keeps for its backward pass", ylabel="bytes")
plt.show()
exponents = {name: fit_power(*curve)[1] for name, curve in held.items()}
assert abs(exponents["fused"] - 1) < 0.01
assert min(exponents["reference"], exponents["fused, with dropout"]) > 1.8

# %% [markdown]
# *Figure 2. Bytes kept, by length. The exponent is the slope of the dashed fit: the fused kernel grows with
# the length, the others nearly with its square.*
#
# The third curve asks for dropout on the attention weights. PyTorch has no fused CPU kernel with dropout, so
# without a warning it computes the whole table. `nn.Transformer` has such dropout by default: which kernel a
# call takes, [14](14_under_the_hood_of_nn_transformer.ipynb) counts.
#
# Is the fused kernel also faster? `benchmarks/attention.py` ran both forms forward and backward, on 2,048
# tokens cut into sentences of a given length:

# %% tags=["figure-attention-race"]
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, size in zip(axes, ("tiny", "base"), strict=True):
    races = {name: 1e3 * race["median"] for name, race in recorded(f"attention-{size}")["candidates"].items()}
    lengths = [int(name.partition(", ")[2]) for name in races if "fused" in name]
    curves = {
        form: [races[f"{old}, {n}"] for n in lengths]
        for form, old in (("reference", "readable"), ("fused",) * 2)
    }
    plot_against(lengths, curves, f"Heads of the {size} model", "tokens of a sentence", "milliseconds", ax=ax)
    ax.axvline(48, color="black", ls=":")
    ax.set_xticks(lengths[::2], lengths[::2])
    ax.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    ax.minorticks_off()
    gains = {n: races[f"fused, {n}"] / races[f"readable, {n}"] for n in (16, 256)}
    print(f"{size}: fused takes {gains[16]:.2f} x the time at 16 tokens, {gains[256]:.2f} x at 256")
    assert gains[16] > 1.2 > 0.8 > gains[256]
axes[1].set_ylabel("")
axes[0].get_legend().remove()  # the other's says the same
axes[1].legend(loc="upper left", frameon=False)
plt.show()

# %% [markdown]
# *Figure 3. Time of both forms, recorded on two cores of an AMD EPYC. The dotted line is the longest sentence
# for which the package trains with the reference form on a CPU.*
#
# At our captions' 16 tokens the reference form wins, because the tables are tiny. On a CPU, "fused" promises
# less memory, not less time.
#
# ## Three smaller replacements
#
# - **The chunked loss.** 08 derives the loss and its gradient. The package's version takes the decoder's
#   output 256 tokens at a time, so the whole (tokens, V) table of logits never exists.
# - **Fused Adam.** PyTorch's plain Adam reads and writes each parameter in eight calls or more, `fused=True`
#   in one.
# - **Dropout and short attention.** Dropout needs one random number for each entry. PyTorch draws 64 bits for
#   each on a CPU; 16 are enough. And by Figure 3, short sentences want the reference form of attention.
#   `CpuKernels` replaces both.
#
# Is the step still the same? In float64 and without dropout the loss and its gradients are:

# %%
exact = make_model(60, 60, N=2, d_model=32, d_ff=64, h=4, dropout=0.0, tied_embeddings="all").double()
small = Batch(src[:8].clamp(max=59), tgt[:8].clamp(max=59))


def gradients(batch: Batch, divisor: float, fast: Collection[str] = FAST) -> Tensor:
    """All gradients of the exact model, in a row."""
    found = torch.autograd.grad(loss_of(exact, batch, fast) / divisor, list(exact.parameters()))
    return torch.cat([g.flatten() for g in found])


assert_close(gradients(small, 1), gradients(small, 1, fast=()))
quick = make_step(FAST)
with Traffic() as after:
    quick()
print(f"GB read and written: {before.total(2) / 1e9:.1f}, replaced {after.total(2) / 1e9:.1f}")
print(f"calls: {len(before.calls):,}, replaced {len(after.calls):,}")
quiet = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.0, tied_embeddings="all")
whole, chunked = (kept(lambda f=f: loss_of(quiet, batch, f)) / 1e6 for f in ((), FAST))
print(f"kept for the backward pass: {whole:.0f} MB; with all replacements {chunked:.0f} MB")
assert before.total(2) > 1.6 * after.total(2)
assert len(before.calls) > 1.5 * len(after.calls)
assert whole > 2 * chunked

# %%
races = recorded("train-base")
for form in ("readable forms", "+ fused Adam", "torch.nn.Transformer", "x-transformers", "annotated"):
    seconds = races["candidates"][form]["median"]
    used = races["operations"] / seconds / races["matmul_rate"]["float32"]
    print(f"{form:21} {races['target_tokens'] / seconds:4.0f} target tokens/s, utilisation {used:.0%}")
assert used > 0.7
own = {race["peer"]: race["ratio"] for race in recorded("train-tiny")["comparisons"]}
print(f"width 128: annotated is {own['+ fused Adam']:.2f} x '+ fused Adam', ", end="")
print(f"{own['torch.nn.Transformer']:.2f} x torch.nn.Transformer")
assert own["+ fused Adam"] > own["torch.nn.Transformer"] > 1

# %% [markdown]
# The table is of the base model on two cores of an EPYC (`benchmarks/train.py`); utilisation is measured
# against the fastest matrix product there. "Readable forms" is the model of the notebooks; "annotated" has
# all replacements. The other libraries compute all logits and PyTorch's cross-entropy, padding included. At
# width 128, our chunked loss and `CpuKernels` give 1.87 x, more than our lead over `nn.Transformer`, 1.41 x:
# without them we would be slower. x-transformers ran with `attn_flash=True`, which is not its default and, by
# Figure 3, slow on short sentences.
#
# ## Half the bits
#
# A 16-bit number has half the bytes to move, and some processors multiply *bf16*, a 16-bit format, several
# times as fast. Here are the recorded rates of two EPYC cores, and what the format costs:

# %%
for size in ("tiny", "base"):
    per_second = recorded(f"train-{size}")["matmul_rate"]
    print(f"{size}: float32 {per_second['float32'] / 1e9:.0f} GFLOP/s, bf16 {per_second['bf16'] / 1e9:.0f}")
    assert 3 < per_second["bf16"] / per_second["float32"] < 6
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    plus, tiny, large = (torch.tensor(x, dtype=dtype) for x in (1.0, 1e-8, 70_000.0))
    print(f"{dtype!s:15} 1 + 0.001 = {(plus + 1e-3).item():.3f}", end="   ")
    print(f"1e-8 is {tiny.item():.0e}   70,000 is {large.item():,.0f}")
total = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    total += 1
at_once = torch.ones(1000, dtype=torch.bfloat16).sum()
print(f"1 + 1 + 1 ... a thousand times in bf16: {total.item():.0f};  .sum() of them: {at_once.item():.0f}")
assert (total, at_once) == (256, 1000)

# %% [markdown]
# float16 has more digits but a small range: 1e-8 becomes 0, so training in float16 first multiplies the loss
# by a large factor (*loss scaling*). bf16 has the range of float32 but only two to three decimal digits, so a
# running sum of ones stops at 256, where the next number is 258. `.sum()` adds in float32 and rounds once.
# Hence **mixed precision**: the factors of a product in bf16; sums, weights, Adam's means and the loss in
# float32.
#
# With `precision="bf16"` the package uses *autocast*, PyTorch's mixed precision, on a GPU. On a CPU numbers
# stay float32 and PyTorch rounds inside each product, only where there are AMX instructions.
#
# **Exercise 1 (medium).** In bf16, 1000 ones sum to 256. Write *stochastic rounding*, a rounding from float32
# to bf16 that is right on average: a number that lies a fraction f of the way to the next bf16 number goes up
# with probability f. (A bf16 number is the upper half of a float32's bits.)


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
# scale factor for each row. CTranslate2, an engine in C++, does so:
#
# ```bash
# annotated export --model runs/base --to ctranslate2 --quantization int8 --out base-int8
# ```
#
# We do it by hand to a shipped model:

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
print(
    f"{sizes['float32'] / 1e6:.1f} MB of matrices become {sizes['int8'] / 1e6:.1f}, off by ≈{max(errors):.1%}"
)
fine, translator.model = translator.model, coarse
quantised = cached(rows)
translator.model = fine
same = sum(a == b for a, b in zip(quantised, cached(rows), strict=True))
print(f"the same translation: ≈{same} of {len(rows)}")
assert sizes["int8"] < 0.3 * sizes["float32"]
assert max(errors) < 0.03
assert same >= 6

# %% [markdown]
# A real engine also rounds the activations, and multiplies int8 by int8. What that costs in BLEU depends on
# the processor. `benchmarks/quantization.py` scored the three shipped models with a beam of 5:

# %%
lost = defaultdict(list)
for each in recorded("quantization")["scores"]:
    change = each["int8"] - each["float32"]
    lost[each["instructions"]].append(change)
    print(f"{each['instructions']:5} {each['model']:18} {each['split']:17} {change:+.2f} BLEU")
assert min(lost["VNNI"]) > -0.1
assert -1.2 < min(lost["AVX2"]) < -1

# %% [markdown]
# With VNNI (x86 instructions that sum products of int8 in 32 bits) all six differences lie between -0.1 and
# +0.2 BLEU. Without it, two products are added in 16 bits, and a sum that does not fit is cut off
# (*saturates*): one model loses up to 1.15 BLEU. **The speed of int8 is unmeasured here.**

# %% [markdown]
# ## Decoding: latency and throughput
#
# **Latency** is how long one user waits; **throughput** is how many sentences are done in a second. We
# translate the captions in batches of 1, 4 and 12, and count.

# %%
answers, passes = {}, []
hook = translator.model.decoder.register_forward_pre_hook(lambda module, _: passes.append(1))
for size in (1, 4, 12):
    passes.clear()
    groups = [rows[i : i + size] for i in range(0, 12, size)]
    with Traffic() as traffic:
        found = [row for group in groups for row in cached(group)]
    answers[size] = [row[: row.index(END)] if END in row else row for row in found]
    mean = len(passes) / len(groups)
    print(f"batches of {size:2}: {len(passes):3} decoder calls, {mean:4.1f} for each batch, ", end="")
    print(f"{traffic.total(2) / 1e9:.2f} GB")
hook.remove()
same = sum(a == b for a, b in zip(answers[1], answers[12], strict=True))
assert same >= 11  # a near-tie may fall otherwise on another processor
assert len(passes) == max(map(len, answers[12]))
assert traffic.total(2) < work["decoding, 1 sentence"].total(2) / 3

# %% [markdown]
# Every call fetches *all weights of the decoder*, for one row or for twelve, so a batch raises throughput.
# It raises latency too: the batch runs until its *longest* sentence is done, and the first sentence waits
# until the batch is full. Servers use *continuous batching*, where a new sentence takes the row of a
# finished one.
#
# **What the cache costs.** Each layer keeps a key and a value, d_model numbers each, for every target token
# so far, and for every source token:

# %%
config, B, S, T = translator.model.config, 12, 15, 10
cache, src_states = DecoderCache(config.N), torch.randn(B, S, config.d_model)
with evaluating(translator.model):
    for _ in range(T):
        translator.model.decode(src_states, None, torch.full((B, 1), START), None, cache)
held = sum(x.nbytes for c in cache.layers for kv in (c.target, c.memory) for x in (kv.key, kv.value))
each = 2 * config.N * config.d_model * 4
assert held == B * (S + T) * each
weight_bytes = sum(p.nbytes for p in translator.model.parameters())
alike = weight_bytes // (each * (S + T))
print(f"{each:,} bytes a token; base model: {2 * 6 * 512 * 4:,} bytes a token")
print(f"{alike} sentences of {S} and {T} tokens keep as much as the weights, {weight_bytes / 1e6:.0f} MB")

# %% [markdown]
# The cache limits the batch. Today's models therefore often share keys and values between heads
# (*multi-query* and *grouped-query attention*), or store the cache in 8 bits.
#
# ## Several GPUs, several machines
#
# > "We trained our models on one machine with 8 NVIDIA P100 GPUs." (section 5.2)
#
# In **data parallelism** each GPU holds the whole model and takes a part of the batch. The gradients of all
# GPUs are summed or averaged (an **all-reduce**), and all make the same update. Is it the same as one GPU
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
# The mean of two means is the mean of all only if both halves have as many tokens. Here a word of the first
# half counted more than twice as much, and nothing crashes. The cure is to divide by the tokens of all
# together, which each GPU must know *before* the backward pass. `Trainer` does so.
#
# On several GPUs, put `torchrun` before the usual command; on several machines, run the second command on
# each:
#
# ```bash
# torchrun --nproc-per-node 8 -m annotated train --corpus multi30k --preset base --out runs/base
# torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint first-machine:29400 \
#     -m annotated train --corpus multi30k --preset base --out runs/base
# ```
#
# `--max-tokens` is for each GPU: divide it by eight, and the training is the one that you know; or keep the
# larger batch, and choose the learning rate, `--warmup` and `--max-steps` anew.
#
# **Communication.** When $n$ GPUs pass their gradients round a ring, each sends $2(n-1)/n$ times the
# gradient's bytes. Computing is six operations for each weight and token. Both grow with the weights, so at
# the same utilisation the ratio depends only on the tokens of a GPU and on the link:

# %%
RATE = 0.4 * 989e12  # assumed, not measured: 40% of what an H100 is published to reach in dense bf16
LINKS = {  # GPUs, and published bytes a second in one direction (for PCIe, what is left in practice)
    "8 GPUs, NVLink 4": (8, 450e9),
    "8 GPUs, PCIe 4": (8, 25e9),
    "64 GPUs, InfiniBand 400G": (64, 50e9),
    "64 GPUs, Ethernet 100G": (64, 12.5e9),
}


def reduce_share(tokens: float, gpus: int, link: float, bytes_each: int = 4) -> float:
    """Seconds of all-reduce for each second of computing; the number of weights cancels out."""
    return (2 * (gpus - 1) / gpus * bytes_each / link) / (6 * tokens / RATE)


# %% tags=["figure-all-reduce"]
TOKENS = [3125, 6250, 12_500, 25_000, 50_000, 100_000]
curves = {name: [reduce_share(t, *link) for t in TOKENS] for name, link in LINKS.items()}
ax = plot_against(
    TOKENS,
    curves,
    "All-reduce against computing (calculated)",
    "tokens a GPU",
    "seconds a second of computing",
)
ax.axhline(2 / 3, color="black", ls="--", label="hidden below this line")
ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, -0.65))
plt.show()
assert curves["8 GPUs, NVLink 4"][0] < 2 / 3 < min(curves[name][0] for name in list(LINKS)[1:])
print(f"8 GPUs on NVLink, the paper's 3,125 tokens each: {curves['8 GPUs, NVLink 4'][0]:.2f}")

# %% [markdown]
# *Figure 4. Seconds of communication for each second of computing, calculated from published rates, not
# measured. The paper's 25,000 tokens over eight GPUs are the left end.*
#
# The gradients of the last layers can travel while the first layers still go backward. The backward pass is
# two thirds of the computing, so below the dashed line communication can be almost hidden.
#
# **Exercise 2 (easy).** 64 GPUs, InfiniBand, float32 gradients: from how many tokens a GPU is communication
# hidden? How many times the paper's batch is that update?

# %% tags=["solution"]
enough = 25_000 * reduce_share(25_000, *LINKS["64 GPUs, InfiniBand 400G"]) / (2 / 3)
print(f"{enough:,.0f} tokens a GPU, {64 * enough / 1e6:.1f} million in an update: {64 * enough / 25e3:.0f} x")
assert_close(reduce_share(enough, *LINKS["64 GPUs, InfiniBand 400G"]), 2 / 3)

# %% [markdown]
# ## What changes on a GPU
#
# In the code only one thing changes: `.to(device)`, for the model and each batch. But Python has to send each
# call to the GPU, which takes some microseconds however little the call does. A step makes hundreds of calls,
# so with a small model the GPU waits for Python. **All below is expected, not measured**; `make bench
# DEVICE=cuda` measures it on yours.
#
# | | on a CPU | on a GPU |
# | --- | --- | --- |
# | larger batches | a few thousand tokens | first of all: 25,000 tokens and more, until memory ends |
# | bf16 | where the processor multiplies it (AMX) | always: `--precision bf16` |
# | FlashAttention | where sentences are long | time, and the memory for larger batches |
# | chunked loss | time | memory |
# | `--compile` | slow to start, gain unknown | many calls become few |
#
# **Exercise 3 (hard).** Write causal attention in blocks of queries and keys, with the online softmax, and
# *skip* the blocks that lie wholly in the future. No table of (T, T) may exist.


# %% tags=["exercise"]
def causal_in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Queries, keys and values (B, h, T, d_k) -> (B, h, T, d_k); position t sees 0 to t."""
    raise NotImplementedError


# %% tags=["solution"]
def causal_in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    done, T = [], q.size(-2)
    for first in range(0, T, block):
        rows = q[..., first : first + block, :] / math.sqrt(q.size(-1))  # (B, h, block, d_k)
        largest = torch.full((*rows.shape[:-1], 1), -math.inf, dtype=q.dtype)
        total, mean = torch.zeros_like(largest), torch.zeros_like(rows)
        for start in range(0, first + block, block):  # later blocks of keys are all future
            keys, values = (x[..., start : start + block, :] for x in (k, v))
            scores = rows @ keys.transpose(-2, -1)  # (B, h, block, block)
            when, what = torch.arange(first, T)[:block, None], torch.arange(start, T)[:block]
            scores = scores.masked_fill(what > when, -math.inf)
            new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
            weights, shrink = (scores - new).exp(), (largest - new).exp()
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            mean, largest = mean * shrink + weights @ values, new
        done.append(mean / total)
    return torch.cat(done, dim=-2)


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
shapes = torch.randn(3, 2, 4, 29, 16, dtype=torch.float64)
for size in (1, 8, 29):
    assert_close(causal_in_blocks(*shapes, size), F.scaled_dot_product_attention(*shapes, is_causal=True))
print("blocks of 1, 8 and 29: equal to PyTorch's causal attention")
