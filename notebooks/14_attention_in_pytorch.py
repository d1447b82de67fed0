# %% [markdown]
# # 14 · Attention in PyTorch
#
# **You replace your own attention with PyTorch's calls, and you learn to notice when such a call computes
# something other than what you meant.**
#
# Previous: [13_reading_attention](13_reading_attention.ipynb) · Next:
# [15_going_fast](15_going_fast.ipynb) · You can read this lesson right after
# [06_the_full_model](06_the_full_model.ipynb)
#
# *41 minutes to read, half a minute to run.*
#
# - **Before:** you have written attention ([02](02_attention.ipynb)), heads
#   ([03](03_multi_head_attention.ipynb)) and the whole model ([06](06_the_full_model.ipynb)).
# - **After:** you can choose among `scaled_dot_product_attention`, FlexAttention, `nn.MultiheadAttention` and
#   `nn.Transformer`, you know tests that catch the commonest wrong masks, and you can write down the gradient
#   of attention.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). The statements about PyTorch are about
# version 2.13 and were run on a processor, not on a GPU, unless the text says otherwise. A number after `≈`
# may differ on yours. You can skip the folded cells: *Scaffolding* prepares figures, and *Check* tests what
# the text claims.

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
# ## One call
#
# Equation 1 took us a dozen lines in [02](02_attention.ipynb). Since 2023, PyTorch has offered it as one
# function, `F.scaled_dot_product_attention`. Most models that are written in PyTorch call it, unless they
# bring a *kernel* of their own, a program written for one kind of hardware. We give both functions the same
# queries, keys and values: two sentences, four heads, six words, eight numbers.

# %%
import torch
from torch import nn
from torch.nn import functional as F

from annotated import attention

torch.set_num_threads(1)  # our matrices are too small for more
_ = torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 4, 6, 8)  # each is (B, h, T, d_k)
ours, weights = attention(q, k, v)
theirs = F.scaled_dot_product_attention(q, k, v)
print("same shape:", theirs.shape == ours.shape, "  same numbers:", bool((theirs - ours).abs().max() < 1e-6))

# %% tags=["check"]
torch.testing.assert_close(theirs, ours)

# %% [markdown]
# The call divides by √d_k itself. A boolean `attn_mask` means what it means in `annotated`, the package of
# these lessons: **`True` is a key that the query may look at**. A query that may look at nothing receives
# zeros, as with ours.
#
# Two things are different. The call returns no weights, so you cannot draw where a model looks, as
# [13](13_reading_attention.ipynb) does. And its `dropout_p` is a plain argument. A module knows whether it is
# in training; a function does not.
#
# **Before you run this:** we pass `dropout_p=0.5` twice, to the same tensors. No model is in training here.
# Will the two results agree?

# %%
mask = torch.ones(6, 6, dtype=torch.bool).tril()
mask[2] = False  # the third query may look at nothing
row = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0, 0, 2]
print("a query without keys gets", row.unique().tolist())
twice = [F.scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(2)]
print("with dropout_p=0.5, two calls agree:", torch.equal(*twice))

# %% tags=["check"]
assert row.unique().tolist() == [0.0]
assert not torch.equal(*twice)
assert torch.equal(attention(q, k, v, mask)[0][0, 0, 2], row)

# %% [markdown]
# They do not agree, because dropout is applied whenever you ask for it. So a layer that uses the function has
# to write `dropout_p=self.dropout if self.training else 0.0`. When this is forgotten, nothing crashes.
# Validation and use are both worse than they should be, and the same sentence gives a different answer each
# time.
#
# **Remember:** `F.scaled_dot_product_attention` is equation 1. `True` means "may look", the weights are not
# returned, and dropout is your responsibility.

# %% [markdown]
# ## One equation, several kernels
#
# The function is a front desk. Behind it there are several programs, called *backends*, that compute the same
# numbers in different ways. PyTorch looks at the shapes, the mask, the type of the numbers and the device,
# and picks one. The backend `MATH` does what we did: it writes the whole table of scores, one number for each
# query and key. The backend `FLASH_ATTENTION` never writes it ([15](15_going_fast.ipynb) shows how that is
# possible). On a GPU there are two more, `EFFICIENT_ATTENTION` and `CUDNN_ATTENTION`.
#
# The context manager `sdpa_kernel` allows only the backends that you name. With its help we can ask each of
# them the same question. The folded function `largest_tensor` asks PyTorch's profiler for the most memory
# that any kind of operation took.

# %% tags=["scaffold"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # keeps the profiler's own messages off the page
from torch.profiler import ProfilerActivity, profile


def largest_tensor(run):
    """The bytes that the hungriest kind of operation allocates in one run."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    return max(event.self_cpu_memory_usage for event in seen.key_averages())


# %%
from torch.nn.attention import SDPBackend, sdpa_kernel


def with_backend(backend, *tensors):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*tensors)


long = torch.randn(3, 1, 4, 2048, 16)  # one text of 2,048 tokens, four heads
for name in ("MATH", "FLASH_ATTENTION"):
    backend = getattr(SDPBackend, name)
    off = (with_backend(backend, *long) - attention(*long)[0]).abs().max()
    most = largest_tensor(lambda backend=backend: with_backend(backend, *long))
    print(f"{name:15} within 1e-5 of ours: {bool(off < 1e-5)}   largest allocation ≈{most / 1e6:.1f} MB")

# %% tags=["check"]
for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
    torch.testing.assert_close(with_backend(backend, *long), attention(*long)[0], atol=1e-5, rtol=1e-4)
table = 4 * 2048 * 2048 * 4  # bytes: four heads, float32
assert largest_tensor(lambda: with_backend(SDPBackend.MATH, *long)) >= table
assert largest_tensor(lambda: with_backend(SDPBackend.FLASH_ATTENTION, *long)) < table / 20

# %% [markdown]
# The table of scores alone is 4 · 2,048 · 2,048 numbers of four bytes, or 67 MB. It would be four times as
# large for a text of twice the length. `FLASH_ATTENTION` needs a small fraction of that. It is a *fused*
# kernel: one program does the work of several calls, and what passes between them is never stored.
#
# What if no backend can do what you ask? Then `sdpa_kernel` raises an error instead of falling back. That is
# useful: when you have bought a GPU for FlashAttention, you want to know that it is used.

# %%
try:
    with_backend(SDPBackend.CUDNN_ATTENTION, q, k, v)
except RuntimeError as error:
    print("RuntimeError:", str(error).partition(".")[0])

# %% [markdown]
# **Remember:** backends differ in memory and speed, and in the result only by rounding. `sdpa_kernel` tells
# you which one works.

# %% [markdown]
# ## The way back, by hand
#
# In training, each of these kernels also has to compute gradients. Let us do it once ourselves, for one head:
# $S = QK^\top/\sqrt{d_k}$, $P = \mathrm{softmax}(S)$ by rows, $O = PV$. The layers above hand us $dO$, the
# gradient of the loss with respect to $O$. We want $dV$, $dK$ and $dQ$.
#
# **The two products.** For $O = PV$, the rule is that of every matrix product: $dV = P^\top dO$ and
# $dP = dO\, V^\top$. An entry of $dP$ is $dO_i \cdot v_j$: how much the loss of query $i$ would change if it
# looked more at key $j$.
#
# **The softmax.** The weights of a row add up to 1, so to look more at one key is to look less at the others.
# With the derivative of the softmax ([02](02_attention.ipynb), exercise 1),
#
# $$dS_{ij} = P_{ij}\,\Big(dP_{ij} - \sum_k P_{ik}\, dP_{ik}\Big) \qquad\text{and}\qquad
# \sum_k P_{ik}\, dP_{ik} = \sum_k P_{ik}\, (dO_i \cdot v_k) = dO_i \cdot O_i .$$
#
# The sum over all keys is a single dot product of two vectors that are at hand. Together,
# $dS_{ij} = P_{ij}\, dO_i \cdot (v_j - O_i)$: only the difference between the key's value and the output
# counts.
#
# **The scores.** $dQ = dS\, K/\sqrt{d_k}$ and $dK = dS^\top Q/\sqrt{d_k}$. That is all:

# %%
Q, K, V = (x[0, 0].double().requires_grad_() for x in (q, k, v))  # one head, (6, 8) each
output = F.scaled_dot_product_attention(Q, K, V)
grad_o = torch.randn(6, 8).double()  # from the layers above
lse = (Q @ K.T / 8**0.5).logsumexp(dim=-1, keepdim=True).detach()  # (6, 1): one number a query

with torch.no_grad():
    P = (Q @ K.T / 8**0.5 - lse).exp()  # (6, 6): the weights, computed again
    grad_v = P.T @ grad_o
    grad_p = grad_o @ V.T
    mean = (grad_o * output).sum(dim=-1, keepdim=True)  # (6, 1): the row's mean of dP
    grad_s = P * (grad_p - mean)
    grad_q, grad_k = grad_s @ K / 8**0.5, grad_s.T @ Q / 8**0.5

by_autograd = torch.autograd.grad(output, (Q, K, V), grad_o)
for name, by_hand, wanted in zip("QKV", (grad_q, grad_k, grad_v), by_autograd, strict=True):
    print(f"d{name} is what autograd finds:", torch.allclose(by_hand, wanted))

# %% tags=["check"]
torch.testing.assert_close((grad_q, grad_k, grad_v), by_autograd)
torch.testing.assert_close(mean, (P * grad_p).sum(dim=-1, keepdim=True))
torch.testing.assert_close(grad_s.sum(dim=-1), torch.zeros(6).double())
kept = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[1]  # beside the output
torch.testing.assert_close(kept, (q @ k.transpose(-2, -1) / 8**0.5).logsumexp(dim=-1))

# %% tags=["figure-backward", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
row = 3
fig, ax = plt.subplots(figsize=(8, 4))
left = torch.cat([torch.zeros(1).double(), P[row].cumsum(0)])
level = mean[row].item()
for key in range(6):
    height = grad_p[row, key].item() - level
    color = "C1" if height > 0 else "C0"
    ax.bar(left[key], height, P[row, key], bottom=level, align="edge", color=color, edgecolor="white")
    end = level + height + (0.1 if height > 0 else -0.1)
    middle = (left[key] + P[row, key] / 2).item()
    ax.annotate(
        f"{grad_s[row, key]:+.2f}".replace("-", "−"),
        (middle, end),
        ha="center",
        va="bottom" if height > 0 else "top",
        fontsize=10,
    )
ax.axhline(level, color="black", lw=1)
ax.set(xlim=(-0.02, 1.0), xlabel="the six keys, each as wide as its weight P", ylabel="dP of the key")
ax.set_title("The areas are dS; they add up to 0")
ax.margins(y=0.15)
plt.show()

# %% [markdown]
# *Figure 1. One query. Each bar is a key: its width is the weight $P$, and it ends at the key's $dP$. The
# black line is the mean of $dP$ by these weights. The area between line and end is the gradient of the score:
# positive above the line (orange), negative below (blue).*
#
# The area is $P$ times the distance of $dP$ from the line. A key without weight has none, because its bar has
# no width. And if one key has all the weight, the line, a mean by these weights, is at that key's $dP$, and
# the distance is 0. So when the softmax is saturated, no score gets a gradient, and dividing by $\sqrt{d_k}$
# is there to prevent it.
#
# The code also shows how **FlashAttention** (Dao et al., 2022) goes back. It never stored the table $P$.
# Since its second version (2023), the kernel keeps only *one* number for each query beside the output: the
# logarithm of the sum of the exponentials of its scores, `lse` above. With it, any block of $P$ can be
# computed again as $\exp(S - \text{lse})$, without the rest of the row. The backward pass then makes five
# large products instead of four. For long texts it is still faster, because it fetches so much less from
# memory.
#
# **Remember:** $dS = P \odot (dP - \text{its mean in the row})$, and that mean is $dO_i \cdot O_i$. The rest
# of attention's backward pass is matrix products.

# %% [markdown]
# ## A trap: is_causal with a cache
#
# Instead of a mask you may write `is_causal=True`, and a fused backend then skips the hidden half of the
# table. In training this is right. Now think of decoding with a cache ([11](11_search.ipynb)):
# five tokens are already there, and there is a query for the newest one only. It may look at all five keys.
#
# **Before you run this:** with one query and five keys, which keys does `is_causal=True` allow?

# %%
newest, five_keys, five_values = q[:, :, 4:5], k[:, :, :5], v[:, :, :5]
wanted = attention(newest, five_keys, five_values)[0]
trapped = F.scaled_dot_product_attention(newest, five_keys, five_values, is_causal=True)
print("what we want:", bool((trapped - wanted).abs().max() < 1e-6))
print("only the first token's value:", torch.equal(trapped, v[:, :, :1]))

# %% tags=["check"]
assert torch.equal(trapped, v[:, :, :1])
assert (trapped - wanted).abs().max() > 0.1

# %% [markdown]
# The newest token sees nothing but the *first* one. There are two ways to put a triangle into a table that is
# wider than it is high, and `is_causal` starts it at the upper left corner: query 0 sees key 0. With a cache,
# the last query is the newest token, so the triangle has to end at the lower right corner. PyTorch has a
# name for each of the two. Figure 2 shows them for two new tokens after four that are already there.

# %%
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

for causal in (causal_upper_left, causal_lower_right):
    result = F.scaled_dot_product_attention(newest, five_keys, five_values, attn_mask=causal(1, 5))
    print(f"{causal.__name__:19} right: {bool((result - wanted).abs().max() < 1e-6)}")

# %% tags=["check"]
result = F.scaled_dot_product_attention(q[:, :, 4:], k, v, attn_mask=causal_lower_right(2, 6))
torch.testing.assert_close(result, F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, 4:])

# %% tags=["figure-causal-corners", "scaffold"]
from annotated.plots import plot_mask

words = ["the", "cat", "and", "a", "small", "dog"]
figure, both = plt.subplots(2, 1, figsize=(6.4, 4.6))
titles = (
    "is_causal=True: the triangle starts at the upper left",
    "causal_lower_right: it ends at the lower right",
)
for ax, title, first in zip(both, titles, (0, 4), strict=True):
    allowed = torch.arange(6) <= torch.arange(first, first + 2).unsqueeze(1)
    plot_mask(allowed, words[4:], words, ax, title)
both[0].set_xlabel("")
plt.show()

# %% [markdown]
# *Figure 2. The same with four tokens in the cache and two new ones, "small" and "dog". Above, "small" may
# look at the first token only, and "dog" at the first two. Below, each new token sees itself and everything
# before it.*
#
# The test that finds this mistake needs no training: decode one token with the cache, compute the whole
# sentence without it, and compare the last row. Exactly this test guards our own cache.
#
# **Remember:** use `is_causal=True` only if there are as many queries as keys. With a cache, use
# `causal_lower_right`, or no mask at all if there is only one query.

# %% [markdown]
# ## Fewer heads of keys than of queries
#
# In the paper, every head has its own keys and values, and a cache has to hold all of them. Many models of
# today let several heads of queries share one head of keys and values. This is *grouped-query attention*
# (Ainslie et al., 2023; [17](17_since_2017.ipynb)). With `enable_gqa=True`, four heads of queries can use two
# heads of keys.
#
# **Before you run this:** which query heads share the first head of keys: 0 and 1, or 0 and 2?

# %%
two_keys, two_values = k[:, :2], v[:, :2]
grouped = F.scaled_dot_product_attention(q, two_keys, two_values, enable_gqa=True)
copies = {
    "repeat_interleave: 0 0 1 1": [x.repeat_interleave(2, dim=1) for x in (two_keys, two_values)],
    "repeat:            0 1 0 1": [x.repeat(1, 2, 1, 1) for x in (two_keys, two_values)],
}
for name, (keys, values) in copies.items():
    same = torch.allclose(F.scaled_dot_product_attention(q, keys, values), grouped, atol=1e-6)
    print(name, " same as enable_gqa:", same)

# %% tags=["check"]
same = [
    torch.allclose(F.scaled_dot_product_attention(q, *pair), grouped, atol=1e-6) for pair in copies.values()
]
assert same == [True, False]
one = F.scaled_dot_product_attention(q, k[:, :1], v[:, :1])
torch.testing.assert_close(one, F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True))

# %% [markdown]
# Neighbors share: heads 0 and 1 use the first head of keys. A *checkpoint*, the file of a trained model's
# weights, whose heads were grouped the other way would load without complaint and give wrong answers.
#
# **Remember:** `enable_gqa` repeats each head of keys for *neighboring* heads of queries.

# %% [markdown]
# ## Masks as functions: FlexAttention
#
# A mask is a table, and a table for 100,000 tokens has ten billion entries. Yet most masks are simple rules:
# "not later than I", "at most 256 tokens back", "in the same document as I". **FlexAttention** (PyTorch 2.5
# and later) takes the rule itself: a function of the batch, the head, the query's position and the key's
# position.


# %%
from torch.nn.attention.flex_attention import create_mask


def causal(b, h, query, key):
    return query >= key


def window(b, h, query, key):  # each token and the two before it
    return (query >= key) & (query - key < 3)


documents = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])  # three texts packed into one row


def packed(b, h, query, key):
    return (query >= key) & (documents[query] == documents[key])


def prefix(b, h, query, key):  # the first four tokens see each other, as in an encoder
    return (query >= key) | (key < 4)


rules = {"causal": causal, "sliding window": window, "packed documents": packed, "prefix": prefix}
grids = {name: create_mask(rule, 1, 1, 10, 10, device="cpu")[0, 0] for name, rule in rules.items()}
print(grids["sliding window"].int()[4].tolist(), "is what query 4 may look at")

# %% tags=["check"]
assert grids["sliding window"].int()[4].tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
assert torch.equal(grids["packed documents"][4:7, 4:7], torch.ones(3, 3, dtype=torch.bool).tril())
assert not grids["packed documents"][4:7, :4].any()
assert grids["prefix"][:4, :4].all()
assert grids["causal"].equal(torch.ones(10, 10, dtype=torch.bool).tril())

# %% tags=["figure-mask-rules", "scaffold"]
figure, four = plt.subplots(2, 2, figsize=(7.6, 7.4))
for ax, (name, grid) in zip(four.flat, grids.items(), strict=True):
    plot_mask(grid, ax=ax, title=name)
    ax.get_legend().remove()
plt.show()

# %% [markdown]
# *Figure 3. Four rules as grids: blue is what a query (row) may look at. Packed documents share a row of the
# batch without seeing each other, which wastes no space on padding. The prefix is read like an encoder's
# input, and the rest is written like a decoder's output.*
#
# `create_block_mask` evaluates a rule once and remembers which *blocks* of 128 × 128 scores are needed at
# all. The others are never computed. For 2,048 tokens with a window of 256:

# %%
from torch.nn.attention.flex_attention import create_block_mask


def long_window(b, h, query, key):
    return (query >= key) & (query - key < 256)


blocks = create_block_mask(long_window, B=None, H=None, Q_LEN=2048, KV_LEN=2048, device="cpu")
print(f"{blocks.sparsity():.0f}% of the blocks are skipped; those that are left:")
print(blocks.to_string())

# %% tags=["check"]
per_row = [min(3, row + 1) for row in range(16)]  # the block on the diagonal and two before it
assert abs(blocks.sparsity() - 100 * (1 - sum(per_row) / 256)) < 1e-3

# %% [markdown]
# A second kind of function, `score_mod`, changes the scores themselves before the softmax. ALiBi (Press et
# al., 2022) uses no positional encoding; each head lowers the score by a constant for each token of distance.
# That is one line. We compare it with our own attention, to which we give the same scores:

# %%
import math
import warnings

from torch.nn.attention.flex_attention import flex_attention

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
slope = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])  # one for each head


def alibi(score, b, h, query, key):
    return score - slope[h] * (query - key)


blocks = create_block_mask(causal, None, None, 6, 6, device="cpu")
by_rule = flex_attention(q, k, v, score_mod=alibi, block_mask=blocks)
distance = (torch.arange(6).unsqueeze(1) - torch.arange(6)).float()
scores = q @ k.transpose(-2, -1) / math.sqrt(8) - slope.view(4, 1, 1) * distance
by_hand = scores.masked_fill(distance < 0, -math.inf).softmax(dim=-1) @ v
print("ALiBi by a rule and by hand agree:", torch.allclose(by_rule, by_hand, atol=1e-5))

# %% tags=["check"]
torch.testing.assert_close(by_rule, by_hand, atol=1e-5, rtol=1e-4)
refused = ""
try:
    flex_attention(q.clone().requires_grad_(), k, v)
except NotImplementedError as error:
    refused = str(error)
assert "backward on CPU" in refused

# %% [markdown]
# We called `flex_attention` as it is, which computes everything in full and is meant for checking a rule. To
# have a fast kernel made for your rule, call `torch.compile(flex_attention)`. On a processor it has no
# backward pass, so you train with it on a GPU only. For packed documents of different lengths there is also
# `torch.nn.attention.varlen.varlen_attn`, which takes the documents end to end with a list of where each
# begins. Its kernel exists for GPUs only; `benchmarks/varlen.py` of this project measures it there.
#
# **Remember:** give FlexAttention a rule instead of a table. It skips the blocks that the rule excludes.

# %% [markdown]
# ## nn.MultiheadAttention
#
# The module `nn.MultiheadAttention` also has the four matrices of section 3.2.2. It is older than the
# function, and its conventions are different. In its masks, **`True` means hidden**.
#
# **Before you run this:** the first of two sentences consists of padding only. We call the module twice,
# once with `need_weights=True`, which is the default, and once without. Does this change the output?

# %%
_ = torch.manual_seed(0)
heads = nn.MultiheadAttention(64, num_heads=4, batch_first=True).eval()
x = torch.randn(2, 5, 64)
padding = torch.tensor([[True] * 5, [False] * 5])  # True: hidden
for gradients in (True, False):
    with torch.set_grad_enabled(gradients):
        for needed in (True, False):
            output, seen = heads(x, x, x, key_padding_mask=padding, need_weights=needed)
            shape = "none" if seen is None else tuple(seen.shape)
            print(f"gradients {gradients!s:5}  need_weights={needed!s:5}", end="  ")
            print(f"first number: {output[0, 0, 0].item():.1f}  weights: {shape}")

# %% tags=["check"]
assert heads(x, x, x, key_padding_mask=padding)[0][0].isnan().all()
empty = heads(x, x, x, key_padding_mask=padding, need_weights=False)[0][0, 0]
torch.testing.assert_close(empty, heads.out_proj.bias)
with torch.no_grad():
    assert heads(x, x, x, key_padding_mask=padding, need_weights=False)[0][0].isnan().all()
heads.train()
for needed in (True, False):
    first = heads(x, x, x, key_padding_mask=padding, need_weights=needed)[0]
    assert first[0].isnan().all() == needed
    (gradient,) = torch.autograd.grad(first[1].sum(), heads.in_proj_bias)
    assert gradient.isnan().any() == needed  # in the gradients, too
heads.eval()
each = heads(x, x, x, average_attn_weights=False)[1]
assert each.shape == (2, 4, 5, 5)
torch.testing.assert_close(heads(x, x, x)[1], each.mean(dim=1))

# %% [markdown]
# It does. When the weights are wanted, the module takes a path of its own and returns NaN for the empty
# sentence, in training as well. Otherwise it calls `scaled_dot_product_attention`, whose zeros leave only the
# bias of $W^O$, here 0. And in `eval()` without gradients it takes a third path, which returns NaN again. So
# an empty sentence is harmless in training only with `need_weights=False`, which `nn.Transformer` passes, and
# it is harmful in use. Keep such sentences out of your batches.
#
# Note the shape of the weights, too: they are the *mean* over the four heads. To see each head, pass
# `average_attn_weights=False`.
#
# **Remember:** in the masks of `nn.MultiheadAttention`, `True` means hidden, and a sentence of padding alone
# may give NaN.

# %% [markdown]
# ## nn.Transformer
#
# Finally, PyTorch has the whole model. What does it contain?

# %%
from annotated import make_model

warnings.filterwarnings("ignore", message=".*nested.tensor")  # a message about PyTorch's fast path
sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 128, "dropout": 0.0}
stacks = nn.Transformer(64, nhead=4, **sizes, batch_first=True)
model = make_model(40, 40, N=1, d_model=64, d_ff=128, h=4, dropout=0.0)
print("nn.Transformer:", *(name for name, _ in stacks.named_children()))
print("ours:          ", *(name for name, _ in model.named_children()))

# %% [markdown]
# It holds the two stacks of the paper's Figure 1. **Embeddings, positions, the output map, the masks and the
# decoding are left to you**, and there is no cache. This is what you have to write around it:

# %%
from annotated import sinusoids

PAD = 2


class Translator(nn.Module):
    """Embeddings, positions, nn.Transformer, and a linear map to the target's words."""

    def __init__(self, vocab, d_model=64):
        super().__init__()
        self.embed, self.output = nn.Embedding(vocab, d_model), nn.Linear(d_model, vocab)
        self.transformer = nn.Transformer(d_model, nhead=4, **sizes, batch_first=True)
        nn.init.normal_(self.embed.weight, std=d_model**-0.5)  # `place` multiplies by the root (section 3.4)

    def place(self, tokens):  # (B, T) -> (B, T, d_model)
        x = self.embed(tokens) * math.sqrt(self.embed.embedding_dim)
        return x + sinusoids(tokens.size(1), self.embed.embedding_dim)

    def forward(self, src, tgt, **other_masks):  # (B, S), (B, T) -> (B, T, vocab)
        padding = src == PAD  # (B, S), True: hidden
        masks = {
            "tgt_mask": torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1),  # the future
            "src_key_padding_mask": padding,  # in the encoder
            "memory_key_padding_mask": padding,  # once more, in the decoder
        }
        return self.output(self.transformer(self.place(src), self.place(tgt), **{**masks, **other_masks}))


# %% [markdown]
# Each of these lines can be wrong without an error. Three of the mistakes are so common that we plant them
# here ourselves.
#
# **The axis of the batch.** Without `batch_first=True` the module expects `(length, batch, d_model)`. We
# change the second of three sentences and ask which outputs change.


# %%
def changed_outputs(transformer):
    """The numbers of the sentences whose output changes when the source of sentence 1 does."""
    _ = torch.manual_seed(0)
    src, tgt = torch.randn(2, 3, 5, 64)
    other = src.clone()
    other[1] += torch.randn(5, 64)
    moves = (transformer(src, tgt) - transformer(other, tgt)).abs().amax(dim=(1, 2))
    return [n for n, move in enumerate(moves.tolist()) if move > 1e-5]


as_it_comes = nn.Transformer(64, nhead=4, **sizes)
print("batch_first=True:", changed_outputs(stacks))
print("as it comes:     ", changed_outputs(as_it_comes))

# %% tags=["check"]
assert changed_outputs(stacks) == [1]
assert changed_outputs(as_it_comes) == [0, 1, 2]

# %% [markdown]
# Used as it comes, the module took our tensor as five sentences of three words, so words of different
# sentences attended to each other.
#
# **The decoder's mask.**
#
# > "We also modify the self-attention sub-layer in the decoder stack to prevent positions from attending to
# > subsequent positions." (section 3.1)
#
# `nn.Transformer` does not, unless you tell it to: the default of `tgt_mask` is `None`. And a mask in the
# other convention hides the past and shows the future. In both cases the loss falls *faster* than it should
# ([07](07_batches_and_masks.ipynb)), because the decoder can copy its answer.
#
# You can find this without training. Prediction $t$ is about token $t + 1$, so it must not change when that
# token and all later ones are replaced. A model with random weights is good enough.


# %%
def overheard(predict, tgt):
    """How many predictions change when their answer and all later tokens are replaced."""
    moved = 0
    for t in range(tgt.size(1) - 1):
        replaced = tgt.clone()
        replaced[:, t + 1 :] = 3
        moved += not torch.allclose(predict(tgt)[:, t], predict(replaced)[:, t], atol=1e-5)
    return moved


_ = torch.manual_seed(0)
untrained = Translator(vocab=40)
src, tgt = torch.randint(4, 40, (2, 1, 9))
past = torch.ones(8, 8, dtype=torch.bool).tril()  # the other convention
ways = {
    "right": lambda tgt: untrained(src, tgt[:, :-1]),
    "no mask": lambda tgt: untrained(src, tgt[:, :-1], tgt_mask=None),
    "inverted mask": lambda tgt: untrained(src, tgt[:, :-1], tgt_mask=past),
    "no shift": lambda tgt: untrained(src, tgt[:, 1:]),
}
for name, predict in ways.items():
    print(f"{name:14} {overheard(predict, tgt)} of 8 predictions depend on their own answer")

# %% tags=["check"]
assert [overheard(predict, tgt) for predict in ways.values()] == [0, 7, 7, 8]

# %% [markdown]
# Why 7 and not 8? The decoder reads `tgt[:, :-1]`, which leaves out the last answer. The last line shows a
# different mistake: without the shift, the decoder reads the very tokens that it should predict. Put this
# check into the tests of every program that trains a decoder.
#
# **Padding, twice.** `src_key_padding_mask` hides the source's padding in the encoder. But the encoder still
# outputs a vector for each padded position, and the decoder looks at all of its output.
#
# **Before you run this:** we add three padding tokens to a source. How much do the logits change with both
# masks, and how much without `memory_key_padding_mask`?

# %%
longer = F.pad(src, (0, 3), value=PAD)
both = (untrained(longer, tgt) - untrained(src, tgt)).abs().max()
once = (untrained(longer, tgt, memory_key_padding_mask=None) - untrained(src, tgt)).abs().max()
print(f"hidden twice: {both:.4f}")
print(f"hidden from the encoder only: ≈{once:.2f}")

# %% tags=["check"]
assert both < 5e-5
assert once > 0.02

# %% [markdown]
# Without the second mask, a translation depends on how long the other sentences of its batch are. The
# target's own padding needs no mask as long as it stands on the right: the causal mask already hides it from
# every real word.
#
# *Which flags override your mask, and what becomes of a sentence of padding? See [What does nn.Transformer do
# with your masks?](evidence/what_does_nn_transformer_do_with_your_masks.ipynb)*
#
# **Remember:** write `batch_first=True` and a causal `tgt_mask`, and pass the source's padding mask twice.

# %% [markdown]
# ## Is it the paper's model?
#
# Almost. The encoder and the decoder each end in one more layer norm. And one number, `dropout`, sets the
# rate in three places: on the output of each sub-layer, inside the feed-forward network, and on the weights
# of attention. The paper's recipe has the first alone (section 5.4; its other dropout, on the sums of
# embeddings and positions, is left to you). Dropout of attention appears only in half a sentence on parsing
# (section 6.3). The authors' library has all three, and its first settings for the base model
# (`transformer_base_v1`) leave the other two at 0.
#
# Is everything else the same as ours? We copy the weights and compare. PyTorch keeps $W^Q$, $W^K$ and $W^V$
# of all heads in one matrix, `in_proj_weight`; the other weights differ only in their names. The package's
# `to_torch` builds an `nn.Transformer` with a model's weights and without the two additional norms, and
# `from_torch` does the reverse.

# %%
from annotated.translation.interop import from_torch, to_torch

_ = torch.manual_seed(0)
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.3)  # a new model's biases are all 0: a swap would not be noticed
copied = to_torch(model.eval())
src, tgt = torch.randint(4, 40, (2, 6)), torch.randint(4, 40, (2, 5))
causal_mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
with torch.no_grad():
    mine = model(src, tgt, None, causal_mask)
    other = copied(model.src_embed(src), model.tgt_embed(tgt), tgt_mask=~causal_mask[0])
print(f"largest difference of the two models: {(mine - other).abs().max():.4f}")
print("in_proj_weight:", tuple(copied.encoder.layers[0].self_attn.in_proj_weight.shape))

# %% tags=["check"]
torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
back = from_torch(copied, 40, 40).state_dict()
for name, weight in model.state_dict().items():
    if name.startswith(("encoder.", "decoder.")):
        assert torch.equal(back[name], weight)
layer = nn.Transformer(64, nhead=4, dropout=0.1, batch_first=True).encoder.layers[0]
assert layer.self_attn.dropout == layer.dropout.p == layer.dropout1.p == 0.1
assert None not in (stacks.encoder.norm, stacks.decoder.norm)

# %% [markdown]
# The two models compute the same numbers, and the `~` in `tgt_mask=~causal_mask[0]` is the whole difference
# between the two conventions.
#
# **Remember:** to test a model, copy its weights into another implementation and compare the outputs.

# %% [markdown]
# ## What you can now say
#
# - `F.scaled_dot_product_attention` is equation 1 with several kernels behind it. `True` means "may look",
#   and `is_causal=True` is wrong with a cache.
# - The gradient of a score is its weight times the difference of $dP$ from the row's mean. FlashAttention
#   computes the weights again, from one stored number per query.
# - FlexAttention takes a rule instead of a table, and skips what the rule excludes.
# - In `nn.MultiheadAttention` and `nn.Transformer`, `True` means hidden. You have to supply the causal mask,
#   the padding mask (twice) and `batch_first=True` yourself. A test without training shows when one of them
#   is missing.
#
# **Deeper:** [What does nn.Transformer do with your
# masks?](evidence/what_does_nn_transformer_do_with_your_masks.ipynb)
#
# **Next:** where the time goes, in [15_going_fast](15_going_fast.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** A row of the batch holds 4,096 tokens. With FlexAttention's blocks of 128 × 128,
# how many of the blocks does a causal rule need, out of how many? And how many are needed if 32 documents of
# 128 tokens each are packed into the row?

# %% tags=["solution"]
side = 4096 // 128  # 32 blocks each way
whole, triangle, documents_only = side**2, side * (side + 1) // 2, side
print(f"causal: {triangle} of {whole} blocks; packed documents: {documents_only}")


def packed_long(b, h, query, key):
    return (query >= key) & (query // 128 == key // 128)


for rule, count in ((causal, triangle), (packed_long, documents_only)):
    made = create_block_mask(rule, None, None, 4096, 4096, device="cpu")
    assert abs(made.sparsity() - 100 * (1 - count / whole)) < 1e-3

# %% [markdown]
# **Exercise 2 (medium).** A classifier averages the encoder's states over the words of a sentence. Write
# this mean so that it leaves out padding. For a sentence that consists only of padding, return zeros.


# %% tags=["exercise"]
def mean_of_words(states, padding):
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_mean_of_words(mean_of_words):
    torch.manual_seed(0)
    states, padding = torch.randn(3, 6, 8), torch.arange(6) >= torch.tensor([[6], [2], [0]])
    right = torch.stack([states[0].mean(dim=0), states[1, :2].mean(dim=0), torch.zeros(8)])
    for hidden in (9.0, torch.nan):  # PyTorch may put NaN where there is padding
        given = mean_of_words(states.masked_fill(padding.unsqueeze(-1), hidden), padding)
        shape = getattr(given, "shape", given)
        assert shape == (3, 8), f"for 3 sentences, (3, 8) is wanted, not {shape}"
        for words, row, wanted in zip((6, 2, 0), given, right, strict=True):
            told = (
                f"{words} words, {hidden} at padding: the mean begins with {wanted[0]:.3f}, not {row[0]:.3f}"
            )
            assert torch.allclose(row, wanted, atol=1e-6), told


try:
    test_mean_of_words(mean_of_words)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(states, padding):
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model)."""
    words = (~padding).unsqueeze(-1)  # (B, S, 1)
    return states.masked_fill(~words, 0.0).sum(dim=1) / words.sum(dim=1).clamp(min=1)


test_mean_of_words(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. `overheard` finds a mask that shows too much. Does it also find a mask that
# shows too little, such as one under which each position sees only itself? Write a check that does.

# %% tags=["solution"]
source, target = torch.randint(4, 40, (2, 1, 9))
itself = ~torch.eye(8, dtype=torch.bool)


def too_little(tgt):
    return untrained(source, tgt[:, :-1], tgt_mask=itself)


def right_mask(tgt):
    return untrained(source, tgt[:, :-1])


print("overheard:", overheard(too_little, target))  # nothing


def deaf(predict, tgt):
    """How many predictions do not change when the first word is replaced."""
    replaced = tgt.clone()
    replaced[:, 0] = 3
    same = [torch.allclose(predict(tgt)[:, t], predict(replaced)[:, t]) for t in range(1, tgt.size(1) - 1)]
    return sum(same)


print("deaf:", deaf(too_little, target), "and with the right mask:", deaf(right_mask, target))
assert overheard(too_little, target) == 0 == deaf(right_mask, target) < deaf(too_little, target)
