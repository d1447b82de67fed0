# %% [markdown]
# # 15 · Going fast
#
# **We take a training step apart, replace its dear parts one by one with faster ones that give the same
# gradients, and say of each what it saves and what it costs: in operations, bytes and calls, which are the
# same on every machine, before we look at the clock.**
#
# Previous: [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb) · Next:
# [16_another_task](16_another_task.ipynb) · The loss in chunks, derived:
# [08_training_recipe](08_training_recipe.ipynb)
#
# *45 minutes to read, under a minute to run.*
#
# - **Before:** you know the model (06), what padding costs (07), the loss (08), the training loop (09), and
#   the cache of decoding (11).
# - **After:** you can say how many operations your model needs, and how far from its machine's limit it
#   runs; why so much of a step's time goes to work that is no matrix product; which parts half precision may
#   touch; what changes on a GPU, on many; and how to hand a model to other engines.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 5.2, hardware and
# schedule.

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
import importlib.util
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from copy import deepcopy
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

# %%
from annotated import (
    Batch,
    LabelSmoothing,
    MultiHeadedAttention,
    TransformerConfig,
    evaluating,
    greedy_decode,
    load_pretrained,
    make_model,
    padding_mask,
    subsequent_mask,
)
from annotated.data import pad_rows
from annotated.fast import Dropout, map_in_threads
from annotated.interop import CTranslate2Translator, to_ctranslate2
from annotated.plots import fit_power, plot_against, plot_costs, plot_parts, setup_notebook, show_source
from annotated.tokenizers import END, PAD, START
from annotated.training.devices import find_device, half_precision
from annotated.training.trainer import SummedLoss, Trainer
from annotated.transformer.attention import attention
from annotated.transformer.model import EncoderDecoder
from annotated.translation.scoring import recorded

setup_notebook()
torch.set_num_threads(1)  # one thread: times that can be compared, and matrices as small as ours want no more

# %% [markdown]
# ## A ruler that is the same everywhere
#
# An update of the base model took about 0.4 seconds on eight P100 GPUs, says section 5.2. Is that fast? It
# cannot be told from seconds. We need to know how much there was to do.
#
# PyTorch can count operations, a multiplication and an addition being two. And it can do so without doing
# any: on the device `meta` tensors have a shape and no content. Here is the paper's base model, and its batch
# of 25,000 tokens a side (section 5.1), on a machine that could never hold it:

# %%
with torch.device("meta"):
    base = EncoderDecoder.from_config(TransformerConfig.base(37_000, 37_000))
    tokens = torch.empty(1000, 25, dtype=torch.int64)  # 1,000 sentences of 25
    see_all = torch.ones(1000, 1, 25, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter:
        states = base(tokens, tokens, see_all, see_all)
        base.generator(states).sum().backward()
operations = counter.get_total_flops()
print(f"one update of the base model: {operations / 1e12:.1f} million million operations")

# %% [markdown]
# Guess that number without a computer. Every weight of a matrix meets every token: one multiplication and
# one addition. Going back takes twice that: once for the gradient of what came in, once for the matrix's own.
# So **six operations for each weight and token**. The encoder's weights meet the source tokens (so do the key
# and value matrices of the attention between), the others the target tokens; here both are 25,000.

# %%
weights = sum(p.numel() for p in base.parameters())  # one matrix embeds and predicts; embedding is a look-up
rule = 6 * weights * 25_000
print(f"{weights / 1e6:.1f} million weights x 25,000 tokens x 6 = {rule / 1e12:.1f} million million")
print(f"what the rule leaves out, scores and weighted sums of attention: {1 - rule / operations:.1%}")
assert 0 < 1 - rule / operations < 0.01

# %% [markdown]
# At this length attention itself, the famous quadratic thing, is not one percent of the work (01 counts
# both kinds, by length).
#
# Now 0.4 seconds can be judged. For Table 2 the authors reckon with 9.5 million million operations a second
# for a P100.

# %%
reached = operations / 0.4 / 8
print(f"each GPU did {reached / 1e12:.1f} million million a second: {reached / 9.5e12:.0%} of 9.5")
table_2 = 12 * 3600 * 8 * 9.5e12  # twelve hours, eight GPUs
counted = 100_000 * operations
print(f"Table 2: {table_2:.1e} operations; counted: {counted:.1e}, that is {counted / table_2:.0%} of them")
assert abs(table_2 / 3.3e18 - 1) < 0.01
assert abs(reached / 9.5e12 - counted / table_2) < 0.04

# %% [markdown]
# So the 3.3 · 10<sup>18</sup> of Table 2 are no operations that anybody did. They are hours times what
# the GPUs *could* have done; less than a third of it went into the model's products.
# ([12_results](12_results.ipynb) has the rest of the table.) The share that was used is called **model
# FLOPs utilisation** (FLOP: floating-point operation), and it is what "fast" means here: 100% is matrix
# products and nothing else, at the best rate that the machine has for them.
#
# ## What else is there?
#
# What does a step do besides? We look at one: a small model, 40 sentences, dropout, label smoothing, Adam,
# everything in the form that we read in 02 to 09. Each of the three names in `fast` will swap one
# readable part for a fast one; for now, none.

# %%
V = 6000
_ = torch.manual_seed(0)
lengths = torch.randint(12, 25, (40,)).tolist()
sentences = [torch.randint(4, V, (n,)).tolist() for n in lengths]
src, tgt = pad_rows([[*s, END] for s in sentences], PAD), pad_rows([[START, *s, END] for s in sentences], PAD)
batch = Batch(src, tgt)
newborn = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.1, tied_embeddings="all")
FAST = ("adam", "loss", "dice")


def in_form(model: EncoderDecoder, fast: Collection[str]) -> EncoderDecoder:
    """A copy of the model, in the readable form but for what `fast` names."""
    model = deepcopy(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is Dropout and "dice" not in fast:
                setattr(module, name, nn.Dropout(child.p))
    return model


# %%
def loss_of(model: EncoderDecoder, batch: Batch, fast: Collection[str]) -> Tensor:
    """The summed loss of a batch."""
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    if "loss" in fast:
        return SummedLoss(model, 0.1, PAD)(*inputs, batch.tgt_y)
    log_probs = model.generator(model(*inputs)).flatten(0, 1)  # (rows * len, V)
    return LabelSmoothing(log_probs.size(-1), PAD, 0.1)(log_probs, batch.tgt_y.flatten())


def make_step(fast: Collection[str]) -> Callable[[], None]:
    """A function that changes the weights of a model of its own once."""
    model = in_form(newborn, fast).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused="adam" in fast)

    def step() -> None:
        (loss_of(model, batch, fast) / batch.ntokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # the first one also makes Adam's memories
    return step


# %% [markdown]
# A step is a long list of calls, each of which reads tensors and writes others. We write the list down, and
# what was read and written. (A transpose or a slice moves nothing, so it is left out.)

# %%
KINDS = {
    "matrix products": ("mm",),  # mm, addmm, bmm
    "fused attention": ("scaled_dot_product",),
    "layer norm": ("layer_norm",),
    "softmax": ("softmax", "exp_"),
    "random numbers": ("bernoulli", "random"),
    "fused Adam": ("adam",),
    "entry by entry": ("",),  # add, multiply, copy, compare, fill ...: all else
}


LOOK_UPS = {"aten::embedding", "aten::index", "aten::index_select", "aten::gather"}  # read what they write


def kind_of(name: str) -> str:
    """The kind of an operation such as aten::addmm: the first of which its name holds a part."""
    return next(kind for kind, parts in KINDS.items() if any(part in name for part in parts))


# %%
class Traffic(TorchDispatchMode):
    """Counts the calls while the block runs, and the bytes that they read and write, by kind."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = Counter(), dict.fromkeys(KINDS, 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        read, written = list(tensors_in(args)), list(tensors_in([out]))
        known = {x.untyped_storage().data_ptr() for x in read}
        views = all(x.untyped_storage().data_ptr() in known for x in written) and not name.endswith("_")
        if not views:
            self.calls[kind_of(name)] += 1
            moved = [*written, *(written if name in LOOK_UPS else read)]
            self.bytes[kind_of(name)] += sum(x.nbytes for x in moved)
        return out


# %%
def tensors_in(items):
    """All tensors in lists within lists."""
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from tensors_in(item)
        elif isinstance(item, Tensor):
            yield item


# %%
readable = make_step(())
with Traffic() as before, FlopCounterMode(display=False) as counter:
    readable()
calls, moved = before.calls.total(), sum(before.bytes.values())
for_each = counter.get_total_flops() / (before.bytes["matrix products"] / 4)  # float32: four bytes
print(f"matrix products: all {counter.get_total_flops() / 1e9:.1f} thousand million operations that count,")
print(f"{before.calls['matrix products']} of {calls:,} calls,")
print(f"{before.bytes['matrix products'] / moved:.0%} of the {moved / 1e9:.1f} GB that are read and written,")
print(f"so {for_each:.0f} operations for each number")
assert before.calls["matrix products"] < 0.2 * calls
assert before.bytes["matrix products"] < 0.5 * moved
assert for_each > 100

# %% [markdown]
# There is the waste. A matrix product does a hundred operations and more for each number that it reads or
# writes. An addition does one, and then writes the result back to memory, for the next call to fetch it
# again. Most of the traffic is of that kind, and **the replacements to come keep numbers from going out to
# memory and back** (the last also draws fewer of them). None makes a matrix product faster.
#
# ## Attention in one call, where that is faster
#
# Equation 1 in code makes a table of scores, divides it, masks it, takes its softmax, and so on: table after
# table, each with an entry for every head, query and key. A fused kernel walks through the keys in blocks,
# and keeps only a running sum and a running maximum for each query (the softmax can be corrected
# afterwards). No table is ever whole. The package has both branches, and chooses; first of all they have to
# be equal. We compare them in float64, values and gradients:

# %%
show_source(MultiHeadedAttention.attend)
_ = torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 30, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
causal = subsequent_mask(30).unsqueeze(1)  # (1, 1, 30, 30), as `MultiHeadedAttention` has it
pull = torch.randn(2, 4, 30, 16, dtype=torch.float64)  # some gradient from above
both = [
    (out, *torch.autograd.grad(out, (q, k, v), pull))
    for out in (attention(q, k, v, causal)[0], F.scaled_dot_product_attention(q, k, v, attn_mask=causal))
]
assert_close(*both)
print("readable = fused, value and three gradients: True")

# %% [markdown]
# How many operations does it save? Let us count; and once more with PyTorch's own unfused form, `MATH`.


# %%
def counted_operations(run: Callable[[], object]) -> int:
    """Operations of all matrix products; those in place the counter has to be taught."""
    in_place = {torch.ops.aten.addmm_: lambda out, a, b, *args, **kwargs: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        run()
    return counter.get_total_flops()


def fused() -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=causal)


forward = counted_operations(lambda: attention(q, k, v, causal))
print("readable:", forward, " fused:", counted_operations(fused), end="  ")
with sdpa_kernel(SDPBackend.MATH):
    print("unfused:", counted_operations(fused))
    assert counted_operations(fused) == forward == sdpa_flop_count(*[q.shape] * 3)
back = sdpa_backward_flop_count(pull.shape, *[q.shape] * 3)
unfused = counted_operations(lambda: attention(q, k, v, causal)[0].backward(pull)) - forward
print(f"backward: readable {unfused / forward:.1f} times that, fused, by PyTorch's formula, {back / forward}")
assert (unfused / forward, back / forward) == (2.0, 2.5)

# %% [markdown]
# None at all? Too good: the counter has a list of the calls that it knows, and the CPU's fused attention is
# not on it. (Nor are products in place, which the chunked loss has. We taught it those.) Whoever measures
# utilisation by such a count should know what it leaves out.
#
# In truth the fused form does **more** operations. It threw the table away, and on the way back computes it
# once more. What it is good for is what it does *not* keep. Here is what forward leaves lying for backward:


# %%
def kept(run: Callable[[], object]) -> int:
    """The bytes that autograd keeps of what `run` computes, each piece of memory counted once."""
    held: dict[int, Tensor] = {}

    def hold(x: Tensor) -> Tensor:
        held[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        run()
    return sum(x.untyped_storage().nbytes() for x in held.values())


# %%
def heads(n: int) -> list[Tensor]:
    """Queries, keys and values of four heads (1, 4, n, 16)."""
    return [torch.randn(1, 4, n, 16, requires_grad=True) for _ in range(3)]


SIZES = [128, 256, 512, 1024]
forms = {
    "readable": lambda n: attention(*heads(n), torch.ones(1, n, dtype=torch.bool)),
    "fused": lambda n: F.scaled_dot_product_attention(*heads(n)),
    "fused, dropout inside": lambda n: F.scaled_dot_product_attention(*heads(n), dropout_p=0.1),
}
held = {name: (SIZES, [kept(lambda n=n, form=form: form(n)) for n in SIZES]) for name, form in forms.items()}
ax = plot_costs(held, "What attention keeps for its backward pass", ylabel="bytes")
plt.show()
exponents = {name: fit_power(*curve)[1] for name, curve in held.items()}
assert abs(exponents["fused"] - 1) < 0.01
assert min(exponents["readable"], exponents["fused, dropout inside"]) > 1.8
print(f"at length 1,024: {held['readable'][1][-1] / held['fused'][1][-1]:.0f} times less")

# %% [markdown]
# Memory grows with the length, no longer with its square. But look at the third curve. We only asked for
# dropout on the attention weights, 0.1, as `nn.Transformer` has it by default (14), and all is lost: PyTorch
# has no fused kernel with dropout for the CPU, so it quietly takes the long way, and keeps more than we did.
# **The paper has no dropout there** (5.4, and 08), so `attention_dropout` is 0 in this package, and the
# fast path stays open.
#
# The counter's blind spot has its use: what it does not see is fused. So we can ask which path a call takes.

# %%
some = torch.randn(2, 4, 30, 16)
paths = {
    "no mask": {},
    "mask (1, 1, 30, 30)": {"attn_mask": causal},
    "mask (1, 30, 30)": {"attn_mask": causal[0]},
    "dropout_p=0.1": {"dropout_p": 0.1},
}
for name, options in paths.items():
    seen = counted_operations(lambda o=options: F.scaled_dot_product_attention(some, some, some, **o))
    print(f"{name:20} {'the long way' if seen else 'fused'}")
    assert (seen > 0) == (name in ("mask (1, 30, 30)", "dropout_p=0.1"))

# %% [markdown]
# The same mask with one dimension less gives the same numbers, and the long way, without a word.
#
# Is the long way the slow one? "Fused" sounds like "fast"; `benchmarks/attention.py` asks the clock. It runs
# both forms forward and backward, with all heads of a layer, on 2,048 tokens that are cut into sentences of a
# given length. Here is what it found on the machine of the record, at the tiny size, whose heads have 32
# dimensions, and at the paper's, with 64:

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, size in zip(axes, ("tiny", "base"), strict=True):
    races = {name: 1e3 * race["median"] for name, race in recorded(f"attention-{size}")["candidates"].items()}
    lengths = [int(name.partition(", ")[2]) for name in races if "fused" in name]
    curves = {form: [races[f"{form}, {n}"] for n in lengths] for form in ("readable", "fused")}
    plot_against(lengths, curves, f"Heads of the {size} model", "tokens of a sentence", "milliseconds", ax=ax)
    ax.axvline(MultiHeadedAttention.short, color="black", ls=":")
    ax.set_xticks(lengths[::2], lengths[::2])
    gains = {n: races[f"fused, {n}"] / races[f"readable, {n}"] for n in lengths}
    print(f"{size}: readable is {gains[16]:.1f} times as fast at 16 tokens, {gains[256]:.1f} times at 256")
    assert gains[8] > gains[16] > 1.2
    assert gains[256] < 0.8
axes[0].set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
axes[0].get_legend().remove()  # the other's says the same
axes[1].set_ylabel("")
for ax in axes:
    ax.minorticks_off()
plt.show()

# %% [markdown]
# With sentences as long as ours (captions: 16 tokens, give or take) the *readable* form is the faster one, by
# far. Look at both ends of the curves. To the right the tables grow with the length's square, and the kernel
# that makes none wins. To the left the tables are tiny, but the kernel still goes through the batch one
# sentence and one head at a time, a small product each, while the readable form hands all of them over in one
# call. (PyTorch's own transformer uses the kernel at all lengths.) So `attend`, above, asks how long the
# sentences are, and `short`, the dotted line, was read off these curves. In translating, where nothing goes
# backward and there is one query at a time, the kernel stays.
#
# The other cost of fusing is that nobody can look. That is why `on_weights` is there: `capture_attention`
# sets it, and the readable branch comes back for as long as somebody wants to see a map.
#
# **Exercise 1.** One can go further, and keep *nothing* inside a layer: throw all of it away, and compute the
# layer once more when backward arrives. `checkpoint(layer, x, mask, use_reentrant=False)` does so. For a
# stack of six encoder layers, how many bytes does it save, and how many operations does it cost? Guess the
# second from "forward one, backward two".

# %% tags=["solution"]
stack = make_model(11, 11, N=6, d_model=64, d_ff=256, h=4, dropout=0.0).encoder.layers
x, see_all = torch.randn(8, 40, 64, requires_grad=True), torch.ones(8, 1, 40, dtype=torch.bool)


def through(again: bool) -> Tensor:
    y = x
    for layer in stack:
        y = checkpoint(layer, y, see_all, use_reentrant=False) if again else layer(y, see_all)
    return y.sum()


inputs = len(stack) * x.nbytes  # `checkpoint` keeps these itself, out of autograd's sight
saved = kept(lambda: through(False)) / (kept(lambda: through(True)) + inputs)
with sdpa_kernel(SDPBackend.MATH):
    more = counted_operations(lambda: through(True).backward())
    dearer = more / counted_operations(lambda: through(False).backward())
print(f"{saved:.0f} times fewer bytes, for {dearer:.2f} times the operations: (1 + 1 + 2) / (1 + 2) = 4/3")
assert saved > 5
assert abs(dearer - 4 / 3) < 0.01

# %% [markdown]
# ## The loss that never holds its logits
#
# 08 builds the chunked loss and shows it equal to `LabelSmoothing`: 256 tokens at a time, logits to loss to
# gradient, and away with them; padding is left out from the start. Here we ask what it does for a whole step.

# %%
quiet = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.0, tied_embeddings="all")
lying = []
for name, fast in (("all readable", ()), ("with the chunked loss", FAST[:2])):
    model = in_form(quiet, fast)
    lying.append(kept(lambda m=model, f=fast: loss_of(m, batch, f)))
    print(f"{name:22} keeps {lying[-1] / 1e6:4.0f} MB for backward")
table, padding = batch.tgt_y.numel() * V * 4, 1 - batch.ntokens / batch.tgt_y.numel()
print(f"one table of logits: {table / 1e6:.0f} MB; rows that are padding: {padding:.0%}")
assert lying[0] > 2 * lying[1]

costs = {}
for name, fast in (("readable", ()), ("chunked", FAST)):
    with evaluating(model), sdpa_kernel(SDPBackend.MATH):
        states = counted_operations(lambda: model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
        costs[name] = counted_operations(lambda f=fast: loss_of(model, batch, f)) - states
share = costs["chunked"] / costs["readable"]
print(f"without gradients, the chunked loss does {share:.1f} times the operations of the readable one")
print(f"that is one product for one, less the padding: {batch.ntokens / batch.tgt_y.numel():.1f}")
assert abs(share - batch.ntokens / batch.tgt_y.numel()) < 0.05

# %% [markdown]
# The chunked loss makes its gradients *in the forward pass*, where they are wanted. So in training nothing is
# computed twice (unlike in Exercise 1), and in validation, where no gradient is wanted, it does one product
# like the readable one, and leaves the padding out.
#
# ## One call for Adam, four dice in one throw
#
# Two small ones. Adam goes through each parameter with eight calls, each of which reads and writes it whole
# (08 has the steps one by one). `fused=True` does a parameter in one go. Equal?

# %%
ends, adam_calls = [], []
for fused in (False, True):
    model = deepcopy(newborn).eval()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, (0.9, 0.98), 1e-9, fused=fused)
    for _ in range(3):
        (loss_of(model, batch, FAST) / batch.ntokens).backward()
        with Traffic() as traffic:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    adam_calls.append(traffic.calls.total())
    ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
print(f"{len(list(newborn.parameters()))} parameters: {adam_calls[0]:,} calls, fused {adam_calls[1]}")
apart = (ends[0] - ends[1]).abs()
close = bool((apart < 1e-5).double().mean() > 0.999)
print("after three updates, 99.9% of the weights within 1e-5 of each other:", close)
assert adam_calls[0] > 100 * adam_calls[1]
assert close

# %% [markdown]
# (Not all weights: where a gradient is about as small as its own rounding, Adam, which divides by its size,
# makes a whole step of that.) Dropout needs a random decision for each entry. On a CPU the generator makes 64
# bits at a time, one number after the other; that is a lot for one yes or no.

# %%
show_source(Dropout)
_ = torch.manual_seed(0)
ones = torch.ones(1_000_000)
dropped = Dropout(0.1)(ones)
gone = (dropped == 0).double().mean().item()
step_width = round(0.1 * 65536) / 65536
print(f"asked for 0.1, rounded to {step_width:.6f}; of a million entries {gone:.3f} are gone")
product = dropped.max() * (1 - step_width)
print(f"what is left is {dropped.max():.5f}; times the share that stays: {product:.5f}")
assert abs(gone - step_width) < 4 * (0.09 / 1e6) ** 0.5  # four deviations
assert_close(product, torch.tensor(1.0))
four_in_one = dropped.view(-1, 4) == 0  # the entries that share a throw
assert abs(four_in_one.double().T.corrcoef().triu(1)).max() < 0.01

# %% [markdown]
# Four pieces of 16 bits are four dice. They know nothing of each other (the last line), the share is off by
# six millionths, and the mean stays exact, since the scale is made from the rounded share.
#
# ## All three
#
# First: is it the same step? Without dropout, in float64, from the same weights: loss and every gradient.

# %%
exact = make_model(60, 60, N=2, d_model=32, d_ff=64, h=4, dropout=0.0, tied_embeddings="all").double()
small = Batch(src[:8].clamp(max=59), tgt[:8].clamp(max=59))
found = {}
for fast in (FAST[:0], FAST[:1], FAST[:2], FAST):
    model = in_form(exact, fast)
    loss = loss_of(model, small, fast)
    found[fast] = [loss, *torch.autograd.grad(loss, list(model.parameters()))]
    assert_close(found[fast], found[()])
print(f"four forms, one loss, {len(found[()]) - 1} gradients each, all equal: True")

# %% [markdown]
# Then the traffic. The bar above is a step as we first wrote it, the one below has all three replaced.

# %%
quick = make_step(FAST)
with Traffic() as after:
    quick()
steps = {"readable": before, "fast": after}
gigabytes = {name: {kind: b / 1e9 for kind, b in t.bytes.items()} for name, t in steps.items()}
ax = plot_parts(gigabytes, "What a step reads and writes", "GB")
plt.show()
totals = {name: sum(parts.values()) for name, parts in gigabytes.items()}
drawn = [sum(bars[i].get_width() for bars in ax.containers) for i in range(2)]
assert_close(drawn, list(totals.values()))
assert totals["readable"] > 1.8 * totals["fast"]
assert gigabytes["readable"]["entry by entry"] > 0.5 * totals["readable"]
print(f"{totals['readable']:.1f} GB, then {totals['fast']:.1f}")
print(f"{calls:,} calls, then {after.calls.total():,}")

# %% [markdown]
# Now the clock, at last. A machine that does other things on the side lies about times, so: one process, all
# forms in turns, the processor's own time, medians. Each rung has all that the rung above it has. The tokens
# are those of the target, without padding, as everywhere in this series (10).


# %% tags=["nbval-ignore-output"]
def medians(runs: dict[str, Callable[[], object]], turns: int = 3) -> dict[str, float]:
    """Seconds of processor time that each takes: run in turns, in alternating order."""
    took: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            started = time.process_time()
            runs[name]()
            took[name].append(time.process_time() - started)
    return {name: median(values) for name, values in took.items()}


rungs = ["readable", "+ fused Adam", "+ chunked loss", "+ four dice a throw"]
ladder = medians({name: make_step(FAST[:i]) for i, name in enumerate(rungs)})
above = ladder["readable"]
for name, seconds in ladder.items():
    speed = f"{batch.ntokens / seconds:6,.0f} target tokens/s"
    print(f"{name:20} {seconds * 1e3:5.0f} ms, {speed}, {above / seconds:.2f} x the one above")
    above = seconds

# %%
gain = ladder["readable"] / ladder["+ four dice a throw"]
print("all three together are worth more than a quarter of the time:", gain > 4 / 3)
assert gain > 4 / 3

# %% [markdown]
# Mind which rung pays. Here the vocabulary is large beside the model, and the loss pays most; with more
# parameters Adam would pay more, and in long sentences the fused attention. (A quarter of our target rows
# is padding, which the chunked loss leaves out; in batches sorted by length, 07, it has less to leave out.)
# And a rung that is worth little on one machine may be worth much on another; that is what measuring is
# for. A factor within some percent of 1 is noise in so few turns: run the cell again, and see it change
# sides.
#
# And where did the time go? PyTorch's profiler asks the clock at each call. The same kinds as above. (This
# clock hangs on the wall: whatever else the machine does is in it, and the profiler's own work. So we take
# shares.)

# %% tags=["nbval-ignore-output"]
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler shall tell times, and nothing else
spent: dict[str, dict[str, float]] = {}
for name, step in (("readable", readable), ("fast", quick)):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    spent[name] = dict.fromkeys([*KINDS, "Python and autograd"], 0.0)
    for event in profiler.key_averages():
        kind = kind_of(event.key) if event.key.startswith("aten::") else "Python and autograd"
        spent[name][kind] += event.self_cpu_time_total
whole = sum(spent["readable"].values())
times = {name: {kind: t / whole for kind, t in parts.items()} for name, parts in spent.items()}
ax = plot_parts(times, "Where the time of a step goes", "time, the readable step's being 1")
plt.show()

# %%
drawn = [sum(bars[i].get_width() for bars in ax.containers) for i in range(2)]
assert_close(drawn, [sum(parts.values()) for parts in times.values()])
shares = {name: parts["matrix products"] / sum(parts.values()) for name, parts in spent.items()}
print("matrix products are a larger share of the fast step:", shares["fast"] > shares["readable"])
assert shares["fast"] > shares["readable"]

# %% [markdown]
# This is the sign to look for in any profile: what remains is more and more matrix product, the one thing
# that nobody can do without.
#
# ## How fast can a product be?
#
# Then is a matrix product always at its limit? Take one weight matrix, (2048, 2048), and more and more rows
# to multiply with it. What can be counted first: operations for each byte that has to come from memory,
# matrix, rows and result.

# %%
ROWS, WIDTH = [1, 4, 16, 64, 256], 2048


def intensity(rows: int) -> float:
    """Operations for each byte that a product (rows, WIDTH) x (WIDTH, WIDTH) in float32 touches."""
    return 2 * rows * WIDTH**2 / (4 * (WIDTH**2 + 2 * rows * WIDTH))


for rows in ROWS:
    print(f"{rows:4} rows: {intensity(rows):6.1f} operations a byte")
assert intensity(1) < 0.5 < 100 < intensity(256)

# %% tags=["nbval-ignore-output"]
_ = torch.manual_seed(0)
matrix = torch.randn(WIDTH, WIDTH)
given = {rows: torch.randn(rows, WIDTH) for rows in ROWS}
took = medians({rows: (lambda x=x: [x @ matrix for _ in range(256 // len(x))]) for rows, x in given.items()})
rates = {rows: 2 * 256 * WIDTH**2 / seconds for rows, seconds in took.items()}
curves = {"(rows, 2048) x (2048, 2048)": [rate / 1e9 for rate in rates.values()]}
ax = plot_against(ROWS, curves, "The same matrix, more rows at once", "rows", "thousand million a second")
ax.set_yticks([10, 30, 100, 300], ["10", "30", "100", "300"])
ax.minorticks_off()
plt.show()
with sdpa_kernel(SDPBackend.MATH):
    work = {"readable": counted_operations(readable), rungs[-1]: counted_operations(quick)}
for name, done in work.items():
    print(f"{name}: {done / ladder[name] / max(rates.values()):.0%} of the best product's rate")

# %%
best = max(rates.values())
print("the best rate is more than twice that of a single row:", best > 2 * rates[1])
assert best > 2 * rates[1]

# %% [markdown]
# One row uses each number of the matrix once: half an operation a byte, and the processor waits for the
# memory. With hundreds of rows each number, once fetched, is used hundreds of times. **That is all there is
# to batching**: more rows for the same trip to memory. (That they should be tokens and not padding is 07's
# matter; that a batch also changes what is learned, 08's.) Remember the left end of that curve. Decoding a
# sentence, one token at a time, lives there.
#
# The percentages below the figure are the utilisation with which we began: the step's operations, divided
# by its time, beside the best rate that a product reached here.
#
# ## Half the bits
#
# The bits of a number travel, too. Half as many would be half the trip, and processors that multiply
# bf16 numbers, those with AMX and any GPU of the last years, do so several times as fast. What do we lose?

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    plus, tiny, large = (torch.tensor(x, dtype=dtype) for x in (1.0, 1e-8, 70_000.0))
    print(f"{dtype!s:15} 1 + 0.001 = {(plus + 1e-3).item():.3f}", end="   ")
    print(f"1e-8 is {tiny.item():.0e}   70,000 is {large.item():,.0f}")
one = torch.ones((), dtype=torch.bfloat16)
assert one + 1e-3 == one
assert torch.tensor(1e-8).half() == 0
assert torch.tensor(70_000.0).half().isinf()
assert torch.tensor(70_000.0).bfloat16() == 70_144

# %% [markdown]
# Two ways to spend 16 bits. float16 has more digits, but gradients of $10^{-8}$ vanish and 70,000 is infinity
# (so one multiplies the loss by a large number, and divides the gradients by it afterwards: loss scaling).
# bf16 has the range of float32, and two to three digits. In it, **1 plus a thousandth is 1**. Count with it,
# and then learn with it: what is a weight, if not a sum of ten thousand tiny updates?

# %%
total = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    total += 1
at_once = torch.ones(1000, dtype=torch.bfloat16).sum()
print(f"one and one and one ..., a thousand times: {total.item():.0f};  .sum() of them: {at_once.item():.0f}")
assert (total, at_once) == (256, 1000)

for dtype in (torch.float32, torch.bfloat16):
    weight = torch.ones((), dtype=dtype, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=1e-3)
    for _ in range(200):
        optimizer.zero_grad()
        (weight * 2).backward()  # downhill, always
        optimizer.step()
    print(f"{dtype!s:15} after 200 updates the weight is {weight.item():.2f}")
assert weight.item() == 1.0

# %% [markdown]
# At 256 the next number is 258, and halfway goes back down: it stays there for ever. `.sum()` gets it right,
# since it adds in float32 and rounds once, at the end. That is the whole rule of mixed precision. *Products*
# may be of bf16 numbers; *sums* must not. A model that is kept in bf16 does not learn badly; at small rates
# it does not learn. So weights, Adam's memories, residual sums, norms and the loss stay in float32, and only
# inside a product are the factors rounded:

# %%
show_source(half_precision)
_ = torch.manual_seed(0)
a, b = torch.randn(200, 300), torch.randn(300, 100)
rounded = a.bfloat16().float() @ b.bfloat16().float()  # rounded factors, summed in float32
with half_precision(torch.device("cpu")):
    here = a @ b  # on a processor without such products, nothing is rounded at all
bound = 2**-6 * (a.abs() @ b.abs())  # each factor is off by at most 1 part in 256
print("by hand and by the package, within what two roundings may do:", end=" ")
print(bool(((rounded - a @ b).abs() < bound).all() and ((here - a @ b).abs() < bound).all()))
assert ((rounded - a @ b).abs() < bound).all()
assert ((here - a @ b).abs() < bound).all()

# %% [markdown]
# A GPU takes the usual way, `torch.autocast`, which goes through the model and rounds whole tensors where a
# product is to come. It does so on a CPU as well, but spends more on rounding than a small model's products
# take, so `half_precision` goes another way there. What does either do to the gradient of a whole model? We
# compare it with what other sentences do to it.


# %%
def gradient(context, first: int = 0) -> Tensor:
    """All gradients of the quiet model on twelve sentences, in a row."""
    quiet.zero_grad()
    with context:
        (loss_of(quiet, Batch(src[first : first + 12], tgt[first : first + 12]), FAST) / 200).backward()
    return torch.cat([p.grad.flatten() for p in quiet.parameters()])


full = gradient(torch.enable_grad())
ways = {
    "inside products": half_precision(torch.device("cpu")),
    "autocast": torch.autocast("cpu", torch.bfloat16),
}
for name, context in ways.items():
    angle = F.cosine_similarity(full, gradient(context), dim=0)
    print(f"{name:15} cosine with the float32 gradient above 0.99: {bool(angle > 0.99)}")
    assert angle > 0.99
angle = F.cosine_similarity(full, gradient(torch.enable_grad(), first=12), dim=0)
print(f"other sentences cosine with the float32 gradient below 0.9:  {bool(angle < 0.9)}")
assert angle < 0.9

# %% [markdown]
# Next to the noise that the choice of the batch brings, this is nothing. In `TrainingConfig` it is
# `precision="bf16"`.
#
# **Exercise 2.** Let the sum of a thousand ones come out right in bf16, on average, though each partial sum
# is rounded. (Round up or down *by chance*: up with the probability that is the fraction of the way. A bf16
# number is the upper half of a float32's bits.)


# %% tags=["solution"]
def by_chance(x: Tensor) -> Tensor:
    """Round float32 to bf16, up or down, so that the mean is right: add noise below the last bit, and cut."""
    noise = torch.randint_like(x, 2**16, dtype=torch.int32)
    return ((x.view(torch.int32) + noise) & -(2**16)).view(torch.float32).bfloat16()


_ = torch.manual_seed(0)
sums = torch.zeros(2000, dtype=torch.bfloat16)  # two thousand sums side by side
for _ in range(1000):
    sums = by_chance(sums.float() + 1)
print(f"mean of 2,000 such sums, to the nearest ten: {round(sums.float().mean().item(), -1):.0f}")
assert abs(sums.float().mean() - 1000) < 5

# %% [markdown]
# ## A compiler for the rest
#
# Fusing by hand took three ideas. `torch.compile` does it for everything: it records the calls of a forward
# pass as a graph, and writes code that keeps what it can from going out to memory. For that it wants a C++
# compiler (on a GPU, Triton), which this machine may not have. But the recording we can watch, with a
# "backend" that only notes how large each graph is, and then runs it as it is: first the model, on batches of
# several lengths, then the loss.

# %%
graph_sizes: list[int] = []


def note_size(graph: torch.fx.GraphModule, inputs: list) -> Callable:
    graph_sizes.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
    return graph.forward


model = make_model(60, 60, N=1, d_model=32, d_ff=64, h=4, dropout=0.0)
compiled = torch.compile(model, backend=note_size)
for length in (10, 13, 30, 10):
    b = Batch(*torch.randint(4, 60, (2, 6, length)))
    inputs = b.src, b.tgt, b.src_mask, b.tgt_mask
    assert torch.equal(compiled(*inputs), model(*inputs))
    print(f"length {length}: graphs so far {graph_sizes}")
assert len(graph_sizes) == 2
graph_sizes.clear()
whole = SummedLoss(model, 0.1, PAD)
assert torch.equal(torch.compile(whole, backend=note_size)(*inputs, b.tgt_y), whole(*inputs, b.tgt_y))
print("model, generator and chunked loss: graphs of", graph_sizes, "calls")
assert 1 < len(graph_sizes) < 6
assert max(graph_sizes) > 0.8 * sum(graph_sizes)

# %% [markdown]
# The whole model is one graph. A new length costs a second one, in which lengths have become variables, and
# no further one (but one for sentences that are no longer `short`, where attention takes its other branch).
# Had every length its own (`dynamic=False`), the compiler would begin anew at each of them, and after eight
# give up.
#
# With the loss, our own trick is in the compiler's way. "Leave the padding out" makes tensors whose shape
# depends on their *content*; a graph cannot know that, so it ends there, and Python takes over. It does
# little harm: nearly all calls are in the one large graph, and the loss is large products anyway. That is
# `TrainingConfig(compile=True)`. The price is a slow start: a minute or more, before the first update.
#
# ## Decoding: what not to do
#
# Now a translator. Four ways to greedy translations of twelve captions: the plain loop (all positions again
# for each token, up to a fixed length, one sentence after the other); the same with a stop; with the cache of
# 11; and all twelve side by side.

# %%
captions = """A dog runs through the snow. A man is reading a newspaper on a bench.
Two women wait for the bus. A boy in a red shirt is jumping into the water. Three children play football.
An old woman sells flowers at the market. A girl rides a bicycle. The cook is cutting onions in the kitchen.
A black cat sleeps on the roof of a car. Four people are sitting around a table. A woman paints a picture.
A little girl eats an ice cream.""".replace(".\n", ". ").replace("\n", " ")
english = [sentence.strip(" .") + "." for sentence in captions.split(". ")]
translator = load_pretrained("multi30k-en-de")
model, LIMIT = translator.model, 20
rows = [translator.encode(sentence) for sentence in english]


def textbook(src: Tensor, stop: bool) -> list[int]:
    """One sentence (1, len), no cache: all positions again for each token."""
    tokens = torch.tensor([[START]])
    with evaluating(model):
        memory = model.encode(src, None)
        while tokens.size(1) < LIMIT and not (stop and tokens[0, -1] == END):
            states = model.decode(memory, None, tokens, subsequent_mask(tokens.size(1)))
            logits = model.generator.proj(states[:, -1])
            logits[:, list(translator.forbidden)] = -torch.inf
            tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens[0].tolist()


# %%
def cached(sources: list[list[int]]) -> list[list[int]]:
    src = pad_rows(sources, PAD)
    found = greedy_decode(model, src, padding_mask(src, PAD), LIMIT, START, END, translator.forbidden)
    return found.tolist()


ways = {
    "all positions, fixed length": lambda: [textbook(torch.tensor([row]), False) for row in rows],
    "stop at the end symbol": lambda: [textbook(torch.tensor([row]), True) for row in rows],
    "with the cache": lambda: [cached([row])[0] for row in rows],
    "all sentences at once": lambda: cached(rows),
}

# %% [markdown]
# We run each once, note what it reads and writes, and what it asks of the decoder, counted by a hook: how
# often it calls it, and for how many positions.

# %%
asked: list[int] = []
hook = model.decoder.register_forward_pre_hook(lambda module, args: asked.append(args[0][..., 0].numel()))
until_end, positions, decoder_calls, carried = {}, {}, {}, {}
for name, run in ways.items():
    asked.clear()
    with Traffic() as traffic:
        until_end[name] = [found[: found.index(END)] if END in found else found for found in run()]
    decoder_calls[name], positions[name] = len(asked), sum(asked)
    carried[name] = {kind: nbytes / 1e9 for kind, nbytes in traffic.bytes.items()}
    print(f"{name:28} {len(asked):4} calls for {sum(asked):5,} positions")
hook.remove()
agree = [len(set(map(tuple, found))) == 1 for found in zip(*until_end.values(), strict=True)]
print("twelve sentences, four ways, the same translations:", sum(agree) >= 11)
words = sum(len(found) for found in until_end["with the cache"])
assert sum(agree) >= 11  # a near-tie may fall otherwise on another processor
assert positions["all positions, fixed length"] == 12 * sum(range(1, LIMIT))
assert positions["with the cache"] == positions["all sentences at once"] == words
assert decoder_calls["all sentences at once"] == max(map(len, until_end["with the cache"]))

# %% [markdown]
# Three savings, of three kinds. To stop is free. The cache computes every position once. The batch computes
# no position less, only in fewer calls. Is that worth anything? What the last three read and write:

# %%
del carried["all positions, fixed length"]
ax = plot_parts(carried, "What twelve translations read and write", "GB")
plt.show()
stopped, saved, together = (sum(parts.values()) for parts in carried.values())
drawn = [sum(bars[i].get_width() for bars in ax.containers) for i in range(3)]
assert_close(drawn, [stopped, saved, together])
print(f"the cache: {stopped / saved:.1f} times less than without it")
print(f"the batch: {saved / together:.1f} times less again")
assert stopped / saved < 2 < 3 < saved / together
assert carried["with the cache"]["matrix products"] > 0.5 * saved

# %% [markdown]
# Here is why a cache alone disappoints on short sentences. It saves positions, but every call still fetches
# *all the weights of the decoder*, for a single row: the left end of the curve above. The batch fetches them
# once for all its rows. By the clock:

# %% tags=["nbval-ignore-output"]
decoding = medians(ways, turns=2)
for name, seconds in decoding.items():
    print(f"{name:28} {len(english) / seconds:6.1f} sentences a second")

# %%
fastest, slowest = decoding["all sentences at once"], decoding["all positions, fixed length"]
print("the last is at least five times as fast as the first:", slowest > 5 * fastest)
assert slowest > 5 * fastest

# %% [markdown]
# One kind of work is left in the batch: sentences that have ended while others go on. `greedy_decode` takes
# them out of the batch; the positions above would not be equal to the words otherwise.
#
# And one kind of worker is left out: the processor's other cores. All of them can share each operation, and
# at the end of each wait for the last one. Or each takes a batch of its own, and waits only for Python's
# lock, which PyTorch lets go while it computes. So plain threads will do:

# %%
show_source(map_in_threads)

# %% [markdown]
# The model must not notice that several use it. A search puts it in evaluation mode, and back when it is
# done: if each did so for itself, the first to end would switch dropout on under the others. So `Translator`
# does it once, around them all. We ask in batches of two or three captions, of a model that somebody has left
# in training mode:

# %%
one_by_one = translator.translate(english, beam=4, max_tokens=120)
model.train()
used = []
hook = model.encoder.register_forward_pre_hook(
    lambda module, _: used.append((threading.get_ident(), module.training, torch.get_num_threads()))
)
torch.set_num_threads(2)
together = translator.translate(english, beam=4, max_tokens=120)
torch.set_num_threads(1)
hook.remove()
print(f"{len(used)} batches; the same translations: {together == one_by_one}")
assert together == one_by_one
assert model.training
assert len(used) > 2
assert all(thread != threading.get_ident() for thread, *_ in used)  # none in the notebook's own thread
assert all(not training and threads == 1 for _, training, threads in used)
_ = model.eval()

# %% [markdown]
# What it brought for the 1,000 sentences of `test_2016_flickr`, as `benchmarks/decode.py` recorded it, each
# way with the batch size and number of threads that suit it best:

# %%
record = recorded("decode")
for search, beam in (("greedy", 1), ("beam 5", 5)):
    alone, beside = (
        record["candidates"][f"annotated{way}, beam {beam}"]["median"] for way in (" by single batches", "")
    )
    cores = record["settings"]["threads"]
    print(f"{search}: {alone / beside:.2f} times as fast on {cores} cores")
    assert record["threads"][f"annotated, beam {beam}"] == f"{cores} x 1"  # so many batches at a time
    assert cores * record["rows"][f"annotated, beam {beam}"] <= record["sentences"]  # there were as many
    assert alone > beside

# %% [markdown]
# ## Many GPUs
#
# Eight GPUs: each holds the whole model, takes an eighth of the batch, computes a gradient; then all eight
# are averaged, and everybody makes the same update. Is that the same as one GPU with the whole batch? We try
# it with two halves. In the first the sentences are short.

# %%
_ = torch.manual_seed(0)
src, tgt = torch.randint(4, 60, (2, 8, 9))
tgt[:4, 4:] = PAD
halves, both = [Batch(src[:4], tgt[:4]), Batch(src[4:], tgt[4:])], Batch(src, tgt)


def gradients(batch: Batch, divisor: float) -> Tensor:
    loss = loss_of(exact, batch, FAST) / divisor
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(exact.parameters()))])


wanted = gradients(both, both.ntokens)
means = [gradients(half, half.ntokens) for half in halves]
apart = ((means[0] + means[1]) / 2 - wanted).norm() / wanted.norm()
print(f"target tokens: {halves[0].ntokens} and {halves[1].ntokens}")
print(f"average of the two halves' mean gradients: off by more than a tenth: {bool(apart > 0.1)}")
assert apart > 0.1

# %% [markdown]
# No! The mean of two means is the mean of all only if both have as many tokens. Here a word in the first half
# counted more than twice as much as one in the second; nothing crashes, and the loss goes down. The cure is
# one number that everybody must know *before* going backward: how many tokens all have together.

# %%
shares = [gradients(half, both.ntokens) for half in halves]
assert_close(shares[0] + shares[1], wanted)
print("sums of losses, divided by the tokens of all: equal to one process: True")
show_source(Trainer.backward)

# %% [markdown]
# `ntokens` is of all processes, and `world` undoes DistributedDataParallel's average. (The same line serves
# gradient accumulation, which is many GPUs one after the other on one.) Does it hold with real processes? We
# write a program, and `torchrun` starts it twice. On GPUs "gloo" would be "nccl", and each process would take
# the GPU of its own number.

# %%
program = """
import torch
from torch import distributed as dist, nn
from annotated import Batch, make_model
from annotated.training.trainer import SummedLoss

dist.init_process_group("gloo")  # torchrun has told us who and how many we are
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = make_model(60, 60, N=1, d_model=16, d_ff=32, h=2, dropout=0.0).double()
src, tgt = torch.randint(4, 60, (2, 8, 9))
tgt[:4, 4:] = 2
whole, mine = Batch(src, tgt), Batch(src[4 * rank : 4 * rank + 4], tgt[4 * rank : 4 * rank + 4])
shared, alone = nn.parallel.DistributedDataParallel(SummedLoss(model, 0.1, 2)), SummedLoss(model, 0.1, 2)
found = []
for loss, batch, factor in ((shared, mine, world), (alone, whole, 1)):
    model.zero_grad()
    total = loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
    (total * factor / whole.ntokens).backward()
    found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
if rank == 0:
    gap = (found[0] - found[1]).abs().max().item()
    print(f"{world} processes; beside one with the whole batch, gap below 1e-12: {gap < 1e-12}")
dist.destroy_process_group()"""

# %%
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "two.py")
    script.write_text(program, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, str(script)], capture_output=True, text=True, env=threads)
print(done.stdout.strip() or done.stderr[-2000:])
assert done.stdout.strip().endswith("True")

# %% [markdown]
# For training you need no program: `torchrun --nproc-per-node 8 -m annotated train ...` is the usual command
# with a word in front.
#
# ### What it costs to talk
#
# Six operations for each weight and token; and each weight's gradient has to travel. Put in a ring, $n$ GPUs
# send $2(n-1)/n$ times the gradient's bytes each. Both sides are proportional to the weights!

# %%
RATE = 0.4 * 989e12  # operations a second: 40% of what an H100 is published to reach in dense bf16


def talk_share(weights: float, tokens: float, gpus: int, link: float, bytes_each: int = 4) -> float:
    """Seconds of talking for each second of computing, an update; `link` is in bytes a second."""
    return (2 * (gpus - 1) / gpus * weights * bytes_each / link) / (6 * weights * tokens / RATE)


for name, count in (("base", 63e6), ("big", 214e6)):
    print(f"{name:4} 64 GPUs on 50 GB/s, 25,000 tokens each: {talk_share(count, 25e3, 64, 50e9):.2f}")
assert_close(talk_share(63e6, 25e3, 64, 50e9), talk_share(214e6, 25e3, 64, 50e9))

# %% [markdown]
# They cancel. **How much time goes to talking does not depend on the model's size**, only on the tokens that
# each GPU has in an update, and on the link. Published rates, in one direction, one link a GPU (for PCIe,
# what is left of its rate in practice):

# %%
LINKS = {
    "8 GPUs, NVLink 4": (8, 450e9),
    "8 GPUs, PCIe 4": (8, 25e9),
    "64 GPUs, InfiniBand 400G": (64, 50e9),
    "64 GPUs, Ethernet 100G": (64, 12.5e9),
}
TOKENS = [3125, 6250, 12_500, 25_000, 50_000, 100_000]
curves = {name: [talk_share(63e6, t, *link) for t in TOKENS] for name, link in LINKS.items()}
ax = plot_against(TOKENS, curves, "Talking, for each second of computing", "tokens a GPU", "seconds")
ax.axhline(2 / 3, color="black", ls="--", label="hidden below this line")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
plt.show()
assert len(ax.lines) == 2 * len(LINKS) + 1
assert curves["8 GPUs, NVLink 4"][0] < 2 / 3 < min(curves[name][0] for name in list(LINKS)[1:])
for curve in curves.values():
    assert_close(curve[0], 32 * curve[-1])

# %% [markdown]
# Not all of it is waited for: the last layers' gradients travel while the first layers still go backward, and
# backward is two thirds of the computing. Below the dashed line, talking is nearly free.
#
# The paper's 25,000 tokens over eight GPUs are 3,125 each, the left end. With today's GPUs and NVLink it is
# below the line, with anything slower far above. What helps, in this order: more tokens a GPU; accumulation,
# which talks once for several batches; gradients sent as bf16, half the bytes. To split the model itself
# (FSDP) is for models that do not fit.
#
# **Exercise 3.** 64 GPUs, InfiniBand, float32 gradients: from how many tokens a GPU on is talking hidden? How
# many tokens are that in one update, and how many times the paper's batch?

# %% tags=["solution"]
least = 25_000 * talk_share(63e6, 25_000, *LINKS["64 GPUs, InfiniBand 400G"]) / (2 / 3)
print(f"{least:,.0f} tokens a GPU, {64 * least / 1e6:.1f} million in an update: {64 * least / 25e3:.0f} x")
assert_close(talk_share(63e6, least, *LINKS["64 GPUs, InfiniBand 400G"]), 2 / 3)

# %% [markdown]
# (And with such a batch the learning rate would have to be found anew.)
#
# ## What changes on a GPU
#
# In the code, one thing: `.to(device)`, for the model and for each batch. Here is the best device that the
# machine has, whatever it is, and the CPU beside it:

# %%
device = find_device("auto")
model, moved = deepcopy(quiet).to(device), Batch(src, tgt).to(device)
with evaluating(model), evaluating(quiet):
    there, here = loss_of(model, moved, FAST).cpu(), loss_of(quiet, both, FAST)
assert_close(there, here, rtol=1e-3, atol=1e-3)
print("the same loss on the CPU and on the best device here: True")

# %% [markdown]
# What changes is what is dear. A GPU multiplies thousands of times as fast as one of our cores (compare the
# rate of an H100 above with the curve of the one matrix), but each call has to be sent to it, by Python, and
# that still takes some microseconds. How many calls does a model make forward and backward, and how does
# their number depend on how much there is to do?

# %%
call_counts = {}
for count in (2, 8, 40):
    part = Batch(batch.src[:count], torch.cat([batch.tgt, batch.tgt_y[:, -1:]], dim=1)[:count])
    with Traffic() as traffic:
        quiet(part.src, part.tgt, part.src_mask, part.tgt_mask).sum().backward()
    call_counts[count] = traffic.calls.total()
    print(f"{count:2} sentences: {call_counts[count]} calls")
assert len(set(call_counts.values())) == 1

# %% [markdown]
# Not at all. Two sentences or forty, or ten thousand: a call is a call. If each took five microseconds, a GPU
# could not make an update of this model in less than about two milliseconds, however little there is to do;
# with our small batch it would wait for Python nearly all that time. So on a GPU we expect another order of
# remedies. (Expect: the right column was not measured. Who has one asks `make bench DEVICE=cuda`.)
#
# | | on a CPU | on a GPU |
# | --- | --- | --- |
# | larger batches | up to a few thousand tokens | first of all: 25,000 tokens and more, until memory ends |
# | bf16 | where the processor multiplies it (AMX) | always: `precision="bf16"` |
# | fused attention | where sentences are long | time, and the memory for those larger batches |
# | chunked loss | time | the same |
# | fused Adam | a few percent, in small models | little: PyTorch's own form has few calls |
# | `compile=True` | slower, where we tried (`benchmarks/train.py --compile`) | many calls become few |
# | dropout's four dice | where random numbers are slow | not used: a GPU throws its dice in parallel |
#
# The whole command:
#
# ```bash
# torchrun --nproc-per-node 8 -m annotated train --corpus multi30k --pair en-de --preset base \
#     --max-tokens 25000 --precision bf16 --compile --out runs/base
# ```
#
# ## Out of Python
#
# For translating alone there are engines without Python: CTranslate2 (C++), which has fused kernels of its
# own and 8-bit weights, and ONNX Runtime; and there is Hugging Face, where others can load it by name. With
# `pip install "annotated-transformer[interop]"`, from the command line or in Python:
#
# ```bash
# annotated export --model runs/base --to ctranslate2 --quantization int8 --out base-int8
# annotated export --model runs/base --to onnx --out base-onnx
# annotated export --model runs/base --to marian --out base-marian   # transformers' MarianMTModel
# ```
#
# The weights are the same, the mathematics too. So the translations have to be, but for a near-tie that
# rounding decides. The next cell asks CTranslate2, if it is installed; without it, nobody is there to
# disagree.

# %%
answers = {}
with tempfile.TemporaryDirectory() as folder:
    if importlib.util.find_spec("ctranslate2"):
        parts = translator.model, translator.src_tokenizer, translator.tgt_tokenizer
        to_ctranslate2(Path(folder, "out"), *parts)
        engine = CTranslate2Translator(Path(folder, "out"))
        answers["CTranslate2"] = engine.translate(english, beam=4, alpha=0.6)
ours = translator.translate(english, beam=4, alpha=0.6, penalty="power")
for theirs in answers.values():
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= len(english) - 1
print("every other engine that is installed here translates as we do: True")

# %% [markdown]
# Note `penalty="power"`. CTranslate2 and Hugging Face divide by length<sup>α</sup>, the paper's length
# penalty is another (11). Whoever compares two engines with the same α, and forgets that, compares two
# searches.
#
# ## Ahead of whom, and behind whom
#
# What has all of this brought? That is asked of other people's programs, and asked fairly, in turns, in one
# process (but for memory, where each has its own). In training: the same batches, the same dropout, the same
# optimizer. In translating: the same weights, the same penalty, and for each engine the batch size and the
# use of the cores that suit it best of those tried. Marian's `generate` has no way of its own to work on
# several batches at once; it races once as it is, and once in our threads. All this takes an hour or more on
# a machine that does nothing else, so the cell below reads what was recorded then. `make bench` measures it
# anew, on yours.

# %%
RACES = {"train-tiny": "training, width 128", "train-small": "training, width 256"}
RACES |= {"train-base": "training, base", "memory": "memory in training, base", "decode": "translating"}
PEERS = ("torch.nn.Transformer", "x-transformers", "Hugging Face Marian", "CTranslate2")
PEERS += ("Hugging Face Marian in our threads",)
ahead = {}  # by what is compared: (how many times better we are, the factor by which that may be off)
for name, what in RACES.items():
    for race in recorded(name)["comparisons"]:
        peer, _, detail = race["peer"].partition(", ")
        if peer in PEERS:
            label = f"{what}{', ' * bool(detail)}{detail}  ·  {peer}"
            ahead[label] = race["ratio"], race["doubt"]
where = recorded("train-base")["machine"]
print(f"on {where['cores']} cores of {where['processor']}, torch {where['versions']['torch']}")
assert len(ahead) == 13

# %%
fig, ax = plt.subplots(figsize=(9, 5))
ax.axvline(1, color="black", linewidth=1)
for row, (ratio, doubt) in enumerate(ahead.values()):
    reach = [[ratio - ratio / doubt], [ratio * doubt - ratio]]
    ax.errorbar(ratio, row, xerr=reach, fmt="o" if ratio > 1 else "s", color="C0" if ratio > 1 else "C1")
    ax.annotate(f"{ratio:.2f}", (ratio * doubt, row), xytext=(9, -4), textcoords="offset points", fontsize=11)
ax.set(xscale="log", xlim=(0.25, 4), yticks=range(len(ahead)), yticklabels=ahead)
ax.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
ax.xaxis.set_minor_locator(plt.NullLocator())
ax.invert_yaxis()
ax.set(title="This package beside others", xlabel="how many times as fast, or as small")
plt.show()
behind = [label for label, (ratio, doubt) in ahead.items() if ratio * doubt < 1]
assert behind == [label for label in ahead if label.endswith("CTranslate2")]
assert all(0.4 < ahead[label][0] < 0.6 for label in behind)
assert all(ratio / doubt > 1 for label, (ratio, doubt) in ahead.items() if label not in behind)

# %% [markdown]
# (A bar shows by how much two runs of one and the same program differed; where there is none to see, it is
# shorter than its mark.) On that machine, on its processor: ahead of those that are written in Python
# with PyTorch, in each of these races; behind CTranslate2, which translates about twice as fast. That engine
# has no Python between its calls, and fuses more of them. Who needs that has the exit above.
#
# All that remains of speed is in `benchmarks/` of the repository: each question a script. The last notebook,
# [16_another_task](16_another_task.ipynb), goes somewhere else with the same model.
