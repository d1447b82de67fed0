# %% [markdown]
# # 03 · Multi-head attention
#
# **We prove that one head cannot subtract as long as it looks by position, subtract with two heads, and take
# the four linear maps of the real layer apart.**
#
# Previous: [02_attention](02_attention.ipynb) · Next:
# [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb)
#
# *23 minutes to read, half a minute to run, the exercises extra.*
#
# - **Before:** you know equation 1, its masks, and that its output is a weighted mean
#   ([02_attention](02_attention.ipynb)).
# - **After:** you know what averaging inhibits, what each of the four linear maps is for, what heads cost,
#   and the three ways in which the model uses the layer.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 3.2.2 and 3.2.3.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated import (
    Batch,
    MultiHeadedAttention,
    attention,
    capture_attention,
    clones,
    evaluating,
    load_pretrained,
)
from annotated.plots import plot_split, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## What one head cannot do
#
# > "Multi-head attention allows the model to jointly attend to information from different representation
# > subspaces at different positions. With a single attention head, averaging inhibits this." (section 3.2.2)
#
# What does averaging inhibit? Here are eight temperatures of one day. For each hour we want to know how
# much warmer it is than three hours before. (The hour before 0 h is 21 h.)

# %%
hours = [f"{hour} h" for hour in range(0, 24, 3)]
degrees = torch.tensor([9.0, 8.0, 11.0, 15.0, 19.0, 20.0, 16.0, 12.0])  # (8,)
warmer = degrees - degrees.roll(1)
print("degrees:", [int(d) for d in degrees])
print("warmer: ", [int(d) for d in warmer])

# %% [markdown]
# The answer needs two temperatures. So we let a head attend to this hour and the one before, with half of
# the weight on each. The key of each hour is a one-hot vector: 1 at its position, 0 elsewhere.

# %%
position = torch.eye(8)  # (8, 8): the key of each hour
now, before = position, position.roll(1, dims=0)  # queries; row t of `before` is the key at t - 1
both, _ = attention(50 * (now + before), position, degrees.unsqueeze(-1))  # 50: nothing for other keys
print("one head gets:", [round(number, 1) for number in both.flatten().tolist()])
assert_close(both.flatten(), (degrees + degrees.roll(1)) / 2)

# %% [markdown]
# The head gets the mean of the two, which cannot tell 15 and 15 from 10 and 20. Could other weights give the
# difference? Not if they depend on positions alone, as here.
#
# In a real layer each hour $s$ is a vector: one entry is its temperature $x_s$, the others tell its
# position. A real head multiplies each value by learned matrices (next section). In one entry of its
# output, hour $s$ then counts as a number $m\,x_s + p_s$: $m$ is learned, and $p_s$ depends on the
# position alone. The output for hour $t$ is the mean of these numbers with weights $w_{ts}$, so $x_s$
# enters it with the factor $w_{ts}\,m$. Weights are never negative: **all factors of one head have the
# same sign**, that of $m$. But a difference needs a $+1$ and a $-1$. One head cannot subtract.
#
# The factors of a random head of the package's layer are the derivatives of its outputs:

# %%
_ = torch.manual_seed(0)
one_head = MultiHeadedAttention(h=1, d_model=64, dropout=0.0)
where = torch.randn(1, 8, 64)
where[..., 0] = 0  # no temperature in queries and keys


def answer(temperatures: Tensor) -> Tensor:
    """Entry 0 of the layer's output, for eight temperatures in entry 0 of its values."""
    x = torch.cat([temperatures.view(1, 8, 1), where[..., 1:]], dim=-1)
    return one_head(where, where, x)[0, :, 0]


factors = torch.autograd.functional.jacobian(answer, degrees)  # (8, 8)
print(f"all 64 factors lie between ≈{factors.min():.4f} and ≈{factors.max():.4f}")
assert factors.min() * factors.max() > 0

# %% [markdown]
# With **two heads** it is easy. One attends to this hour, the other to the hour before, and we multiply
# their outputs by 1 and by −1.

# %%
head_now, _ = attention(50 * now, position, degrees.unsqueeze(-1))
head_before, _ = attention(50 * before, position, degrees.unsqueeze(-1))
difference = 1 * head_now - 1 * head_before
print("two heads:", [round(number) for number in difference.flatten().tolist()])
assert_close(difference.flatten(), warmer, rtol=0, atol=1e-4)

# %% [markdown]
# **Attention weights are never negative, but each head has its own $m$, of either sign.**
#
# Does a *layer* of the model need a second head? There, the input of each sub-layer is added to its output
# (the **residual connection**, [06_the_full_model](06_the_full_model.ipynb)). That brings $x_t$, so one
# head with $m = -1$ is enough to subtract the hour before. It does not help with $x_{t-1} - x_{t-2}$,
# where both signs must come from heads (or from two layers).
#
# **Exercise 1 (easy).** How fast does the warming change? At each hour that is $x_{t-1} - 2x_t + x_{t+1}$.
# How many heads does it need? Build it with `attention`, without a residual connection.

# %% tags=["solution"]
neighbours, _ = attention(50 * (before + before.T), position, degrees.unsqueeze(-1))  # the mean of both
bent = 2 * neighbours - 2 * head_now
assert_close(bent.flatten(), degrees.roll(1) - 2 * degrees + degrees.roll(-1), rtol=0, atol=1e-4)
# Two heads. One takes all entries with a positive factor, blended, the other all with a negative factor.
# So two are enough for any weighted sum, with fixed factors, of one number per position.

# %% [markdown]
# ## Twenty-five matrices, or four
#
# We told our heads where to look. In the model, they learn it:
#
# > "... we found it beneficial to linearly project the queries, keys and values h times with different,
# > learned linear projections to dk, dk and dv dimensions, respectively." (section 3.2.2)
#
# $$\mathrm{head}_i = \mathrm{Attention}(QW^Q_i,\; KW^K_i,\; VW^V_i) \qquad
# \mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\,W^O$$
#
# With $d_{model} = 512$ and $h = 8$, the heads *share* the width: $d_k = d_v = d_{model} / h = 64$. Each
# $W^Q_i$, $W^K_i$, $W^V_i$ is $512 \times 64$, and $W^O$ is $512 \times 512$: $3 \cdot 8 + 1 = 25$
# matrices.
#
# ![Multi-head attention with its four linear maps](../images/multi_head_attention.svg)
#
# *Figure 1. The paper's Figure 2 (right), with shapes. Follow S, the number of keys: attention sums over it.*

# %%
d_model, h = 512, 8
d_k = d_model // h
_ = torch.manual_seed(0)
W_Q, W_K, W_V = torch.randn(3, h, d_model, d_k) / math.sqrt(d_model)  # (8, 512, 64) each: one matrix per head
W_O = torch.randn(d_model, d_model) / math.sqrt(d_model)


def multi_head(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Section 3.2.2, head by head: (T, d_model) and two (S, d_model) -> (T, d_model)."""
    heads = [attention(Q @ W_Q[i], K @ W_K[i], V @ W_V[i])[0] for i in range(h)]  # (T, d_k) each
    return torch.cat(heads, dim=-1) @ W_O


x, y = torch.randn(5, d_model), torch.randn(7, d_model)  # five queries; seven keys, which are the values too
by_the_paper = multi_head(x, y, y)
print("out:", tuple(by_the_paper.shape), " matrices:", len(W_Q) + len(W_K) + len(W_V) + 1)

# %% [markdown]
# **Why does code have four?** Because eight products with eight narrow matrices are *one* product with the
# eight side by side. Three linear maps hold $W^Q_1 \ldots W^Q_8$, and so on; the fourth is $W^O$. We put our
# 25 into the package's layer. (`nn.Linear` computes $xW^\top$, so each matrix goes in transposed, and head
# $i$ is 64 *rows* of `.weight`.)

# %%
layer = MultiHeadedAttention(h, d_model, dropout=0.0)
side_by_side = [torch.cat(list(W), dim=-1) for W in (W_Q, W_K, W_V)]  # (512, 512) each
for linear, W in zip(layer.linears, [*side_by_side, W_O], strict=True):
    nn.init.zeros_(linear.bias)  # the paper's formula has none
    linear.weight.data.copy_(W.T)
assert_close(layer(x[None], y[None], y[None])[0], by_the_paper)
print("25 matrices found in four of size", tuple(layer.linears[0].weight.shape))

# %% [markdown]
# ### What is each of the four for?
#
# **$W^Q$ and $W^K$** decide what a token looks for. Without them, queries and keys are the tokens, and among
# vectors of about equal length each one has the largest dot product with itself:

# %%
_ = torch.manual_seed(0)
tokens = torch.randn(100, d_k)  # 100 random tokens, 64 wide
_, bare = attention(tokens, tokens, tokens)  # no projections
_, projected = attention(tokens @ torch.randn(d_k, d_k) / 8, tokens @ torch.randn(d_k, d_k) / 8, tokens)
for name, weights in {"without W^Q and W^K": bare, "with them, random": projected}.items():
    print(f"{name:20} mean weight of a token on itself ≈{weights.diagonal().mean():.2f}")
assert bare.diagonal().mean() > 0.8
assert projected.diagonal().mean() < 0.1

# %% [markdown]
# Random maps end this preference: 0.01 is an even share of 100 tokens.
#
# **$W^V$ and $W^O$** decide what is passed on, and where it goes. What makes a token easy to *find* (its
# key) need not be what one wants to *know* about it (its value). Without $W^V$, head 3 could pass on only
# its own 64 of the 512 entries; without $W^O$, what it finds would stay in these 64.


# %%
def reach(W_V: Tensor, W_O: Tensor) -> tuple[int, int]:
    """Of 512 input entries, those that head 3 passes on; of 8 heads, those that output entry 0 depends on."""
    values = torch.randn(7, d_model, requires_grad=True)
    (values @ W_V).unflatten(-1, (h, d_k))[:, 2].sum().backward()  # head 3, before any weighting
    found = torch.randn(h, d_k, requires_grad=True)  # what the heads found, for one query
    (found.flatten() @ W_O)[0].backward()
    return int((values.grad != 0).any(dim=0).sum()), int((found.grad != 0).any(dim=1).sum())


identity = torch.eye(d_model)
for name, maps in {"both": (side_by_side[2], W_O), "neither": (identity, identity)}.items():
    entries, heads = reach(*maps)
    print(f"{name:8} head 3 reads {entries} of 512 entries; entry 0 of the output depends on {heads} of 8")
assert reach(side_by_side[2], W_O) == (512, 8)
assert reach(identity, identity) == (64, 1)

# %% [markdown]
# Without $W^O$, the heads *now* and *before* could not be subtracted: they would stand in different entries.
#
# Cut $W^O$ into eight blocks $W^O_i$ of 64 rows. To concatenate the heads and multiply by $W^O$ is to take
# the sum $\sum_i \mathrm{head}_i W^O_i$: a layer is a **sum** of heads. Let $A$
# be the weights of head $i$. They are plain numbers, so $A\,(VW^V_i)\,W^O_i = A\,V\,(W^V_i W^O_i)$: only the
# product matters, a $512 \times 512$ matrix of rank at most 64. A head passes on at most 64 directions of
# 512. Likewise, the scores $QW^Q_i\,(KW^K_i)^\top = Q\,(W^Q_i W^{K\top}_i)\,K^\top$ contain only the product
# of $W^Q_i$ and $W^K_i$.

# %%
total = torch.zeros(5, d_model)
for i in torch.randperm(h).tolist():  # in any order
    head, _ = attention(x @ W_Q[i], y @ W_K[i], y @ W_V[i])  # (5, 64)
    total += head @ W_O[i * d_k : (i + 1) * d_k]  # (64, 512): what this head adds to every token
assert_close(total, by_the_paper, rtol=1e-4, atol=1e-4)
product = W_V[2].double() @ W_O[128:192].double()  # head 3: (512, 512)
print("rank of W^V_3 W^O_3:", int(torch.linalg.matrix_rank(product)), "of 512")

# %% [markdown]
# ## Splitting into heads
#
# Each projection gives 512 numbers per token, which have to become 8 heads of 64. A small example has four
# words of eight numbers, and two heads of four.

# %% tags=["figure-cut"]
words = ["the", "dog", "saw", "him"]
numbers = torch.arange(4 * 8).view(4, 8)  # (T, d_model): each number is its own place in memory
right = numbers.view(4, 2, 4).transpose(0, 1)  # (T, h, d_k) -> (h, T, d_k)
wrong = numbers.view(2, 4, 4)  # straight to (h, T, d_k)
panels = {"The projection": numbers[None], "view, then transpose": right, "view alone": wrong}
plot_split(panels, words, width=8)
plt.show()
assert right.shape == wrong.shape
assert (right // 8 == torch.arange(4).unsqueeze(-1)).all()  # row t holds numbers of word t, in every head
assert (wrong[0] // 8).unique().tolist() == [0, 1]

# %% [markdown]
# *Figure 2. Where 32 numbers go; the colour is the word. In the middle each head has half of every word. On
# the right head 1 has all of "the" and "dog", and nothing of "saw" and "him".*
#
# Both have the same shape, and neither raises an error. Which inputs does each output depend on?


# %%
class ViewAlone(MultiHeadedAttention):
    """The same layer with heads cut wrongly, and joined by the same mistake backwards."""

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), self.h, x.size(1), self.d_k)

    def join(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), self.h * self.d_k)


def depends_on(kind: type, h: int) -> list[list[int]]:
    """For each of eight tokens, those that its output depends on."""
    torch.manual_seed(0)
    attend = kind(h, d_model=16, dropout=0.0)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: attend(x, x, x).sum(dim=-1)[0], torch.randn(1, 8, 16)
    )
    return [row.abs().sum(dim=-1).nonzero().flatten().tolist() for row in jacobian[:, 0]]


for kind, heads in ((MultiHeadedAttention, 2), (ViewAlone, 2), (ViewAlone, 8)):
    print(f"{kind.__name__:20} {heads} heads: token 1 depends on tokens {depends_on(kind, heads)[1]}")
assert depends_on(MultiHeadedAttention, 2) == [list(range(8))] * 8
assert depends_on(ViewAlone, 2) == [[0, 1, 2, 3]] * 4 + [[4, 5, 6, 7]] * 4
assert depends_on(ViewAlone, 8) == [[t] for t in range(8)]

# %% [markdown]
# With two heads the sentence falls into halves that exchange nothing. With eight, each token is alone.
#
# **Exercise 2 (medium).** Write multi-head attention without a loop over the heads. All heads have the same
# mask.


# %% tags=["exercise"]
def my_multi_head(query: Tensor, memory: Tensor, weights: list[Tensor], h: int, mask: Tensor) -> Tensor:
    """Section 3.2.2 for a batch: (B, T, d_model), (B, S, d_model), mask (B, T, S) -> (B, T, d_model).

    `weights` are W^Q, W^K, W^V (all heads side by side) and W^O, to multiply rows with from the right.
    """
    raise NotImplementedError


# %% tags=["solution"]
def my_multi_head(query: Tensor, memory: Tensor, weights: list[Tensor], h: int, mask: Tensor) -> Tensor:
    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (h, -1)).transpose(1, 2)  # (B, T, d_model) -> (B, h, T, d_k)

    W_Q, W_K, W_V, W_O = weights
    q, k, v = split(query @ W_Q), split(memory @ W_K), split(memory @ W_V)
    heads, _ = attention(q, k, v, mask.unsqueeze(1))  # mask (B, 1, T, S): the same for every head
    return heads.transpose(1, 2).flatten(2) @ W_O  # side by side again


# The package's `MultiHeadedAttention` does the same, with biases, dropout and PyTorch's fused kernel.

# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
reference = MultiHeadedAttention(h=3, d_model=12, dropout=0.0)
for linear in reference.linears:
    nn.init.normal_(linear.weight)
    nn.init.zeros_(linear.bias)
queries, states = torch.randn(3, 5, 12), torch.randn(3, 7, 12)
mask = torch.arange(7) < torch.tensor([7, 4, 2])[:, None, None]  # sentences of 7, 4 and 2 tokens
mask = mask.expand(3, 5, 7)
mine = my_multi_head(queries, states, [linear.weight.T for linear in reference.linears], 3, mask)
assert_close(mine, reference(queries, states, states, mask))

# %% [markdown]
# ## What heads cost
#
# > "Due to the reduced dimension of each head, the total computational cost is similar to that of single-head
# > attention with full dimensionality." (section 3.2.2)
#
# We count the operations of the matrix products, for 32 tokens. Multiplications and additions count
# separately, so a multiply-add of [01](01_why_attention.ipynb) is two.

# %%
x = torch.randn(1, 32, d_model)
cost = {}
for heads in (1, 8, 32):
    counted = MultiHeadedAttention(heads, d_model, dropout=0.0)
    kept = []
    counted.on_weights = kept.append  # to see the weights, which also keeps PyTorch from its fused kernel
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        counted(x, x, x)
    parameters = sum(p.numel() for p in counted.parameters())
    cost[heads] = parameters, counter.get_total_flops()
    print(f"{heads:2} heads: {parameters:,} parameters, {cost[heads][1]:,} operations,", end=" ")
    print(f"{kept[0].numel():6,} weights")
    assert kept[0].numel() == heads * 32 * 32
assert cost[1] == cost[8] == cost[32]
assert cost[8][1] == 4 * 2 * 32 * d_model**2 + 2 * 2 * 32**2 * d_model  # projections; scores and blend

# %% [markdown]
# The costs are equal, because $h$ heads do $h$ products of width $d_{model} / h$. What grows is the number
# of attention weights.
#
# ### What a narrow head gives up
#
# > "While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too many
# > heads." (section 6.2)
#
# BLEU is a score of translations, out of 100; higher is better. Table 3, rows A, has 24.9 with 1 head, 25.5
# with 4, 25.8 with 8 and with 16, and 25.4 with 32. The **low-rank bottleneck** (Bhojanapalli et al., 2020)
# may explain the drop: scores are a product of two matrices of width $d_k$, so with more than $d_k$ tokens
# some patterns of weights are out of reach. We have not tested that.
#
# ### Fewer key heads than query heads
#
# While a decoder writes, it keeps the keys and values of all earlier tokens, the **key/value cache**:
# $2 \cdot 512 = 1{,}024$ numbers per token and layer. **Multi-query attention** (Shazeer, 2019) has $h$ query
# heads but *one* key head and *one* value head: 128 numbers. **Grouped-query attention** (Ainslie et al.,
# 2023) has a key and a value head for each group of query heads.
#
# **Exercise 3 (hard).** Write grouped-query attention. With one group it is multi-query attention.


# %% tags=["exercise"]
def grouped_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Projected queries (B, h, T, d_k), keys and values (B, groups, S, d_k) -> heads (B, h, T, d_k).

    Heads 0 to h / groups - 1 share the first key and value head, and so on. No key is copied for it.
    """
    raise NotImplementedError


# %% tags=["solution"]
def grouped_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(1, (k.size(1), -1))  # (B, groups, h / groups, T, d_k)
    heads, _ = attention(q, k.unsqueeze(2), v.unsqueeze(2))  # (B, groups, 1, S, d_k): broadcast, not copied
    return heads.flatten(1, 2)


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
q = torch.randn(2, 8, 5, 16)
for groups in (1, 2, 8):
    k, v = torch.randn(2, 2, groups, 7, 16)
    share = 8 // groups  # query heads per group
    as_many = [kept.repeat_interleave(share, dim=1) for kept in (k, v)]  # equal heads, h of them
    assert_close(grouped_query(q, k, v), attention(q, *as_many)[0])

# %% [markdown]
# ## Equal at birth
#
# The four linear maps come from `clones`, which makes deep copies: at first $W^Q = W^K = W^V = W^O$.
# (`make_model` draws all anew right after.) Equal *maps* stand in different places of the formula, so their
# gradients differ, and they part. Equal *heads* do not. This layer has both:

# %%
_ = torch.manual_seed(0)
equal = MultiHeadedAttention(h=4, d_model=16, dropout=0.0).double()
first = equal.linears[0]
first.weight.data = first.weight.data[:4].repeat(4, 1)  # the rows of head 1, four times
first.bias.data = first.bias.data[:4].repeat(4)
equal.linears = clones(first, 4)
to_output = equal.linears[3]
to_output.weight.data = to_output.weight.data[:, :4].repeat(1, 4)  # and the columns for head 1
optimizer = torch.optim.SGD(equal.parameters(), lr=0.1)
for _ in range(20):
    x = torch.randn(8, 6, 16, dtype=torch.float64)
    optimizer.zero_grad()
    (equal(x, x, x) - x.roll(1, dims=1)).square().mean().backward()
    optimizer.step()
apart = (equal.linears[0].weight - equal.linears[1].weight).abs().max().item()
heads = equal.linears[0].weight.detach().view(4, 4, 16)
between = (heads - heads[:1]).abs().max().item()
print(f"after 20 updates: W^Q and W^K differ by up to ≈{apart:.4f}, the heads by ≈{between:.0e}")
assert apart > 1e-4
assert between < 1e-9

# %% [markdown]
# Without dropout, equal heads always get the same gradient, and four do the work of one. **Random initial
# numbers make heads different**: they break the symmetry.
#
# ## Do they find it by themselves?
#
# Back to the temperatures. We train layers of width 16 on random days, from five seeds each. Queries and
# keys are made from the position alone, as in the proof. Temperatures have variance 1, and the loss is the
# mean squared error: to answer $x_t$ alone costs 1. One head can do no better: its two factors have the
# same sign, so one of them is wrong, and is best at 0.

# %%
places = torch.zeros(1, 8, 16)
places[..., 1:9] = torch.eye(8)  # entry 0 is the temperature's, then a 1 at the position


def train(
    seed: int, h: int, earlier: int = 0, residual: bool = False, by_position: bool = True
) -> tuple[MultiHeadedAttention, float]:
    """A layer trained on x[t - earlier] - x[t - earlier - 1], and its mean loss over the last 20 updates."""
    torch.manual_seed(seed)
    attend, losses = MultiHeadedAttention(h, 16, dropout=0.0), []
    optimizer = torch.optim.Adam(attend.parameters(), lr=0.01, fused=True)
    for _ in range(400):
        x = places.repeat(64, 1, 1)
        x[..., 0] = days = torch.randn(64, 8)  # 64 random days
        where = places.expand(64, 8, 16) if by_position else x
        answer = attend(where, where, x)[..., 0] + residual * days
        loss = (answer - days.roll(earlier, 1) + days.roll(earlier + 1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return attend, sum(losses[-20:]) / 20


# %%
settings = {  # what each is trained on, and the loss that we expect
    "x[t] - x[t-1], one head": ({"h": 1}, 1),
    "x[t] - x[t-1], two heads": ({"h": 2}, 0),
    "x[t] - x[t-1], one head, residual": ({"h": 1, "residual": True}, 0),
    "x[t-1] - x[t-2], one head, residual": ({"h": 1, "residual": True, "earlier": 1}, 1),
}
runs = {}
for name, (setting, expected) in settings.items():
    runs[name] = [train(seed, **setting) for seed in range(5)]
    print(f"{name:36} losses", *(f"≈{loss:.2f}" for _, loss in runs[name]))
    assert all(abs(loss - expected) < 0.1 for _, loss in runs[name])

# %% [markdown]
# From every seed, one head fails as proved, and two find the difference. Where do they look? We would guess:
# one at this hour, one at the hour before.

# %%
pairs = [layer for layer, _ in runs["x[t] - x[t-1], two heads"]]
seen = []
for pair in pairs:
    pair.on_weights = seen.append
    with torch.no_grad():
        pair(places, places, places)
print("largest weight of a row, mean, by seed:", *(f"≈{maps.amax(dim=-1).mean():.2f}" for maps in seen))
maps = seen[2][0]  # the third seed: (2, 8, 8)
to_value, to_output = pairs[2].linears[2:]
halves = (slice(0, 8), slice(8, 16))  # the entries of head 1, and of head 2
m = torch.stack([to_output.weight[0, half] @ to_value.weight[half, 0] for half in halves]).detach()
together = torch.einsum("h,hts->ts", m, maps)  # (8, 8): how much of x[s] is in the answer at t
print(f"third seed: m ≈{m[0]:.2f} and ≈{m[1]:.2f}")
assert all(maps.amax(dim=-1).mean() < 0.8 for maps in seen)
assert m.abs().min() > 1.1
assert m.sum().abs() < 0.1

# %% tags=["figure-two-heads"]
figure, axes = plt.subplots(1, 3, figsize=(14, 4.6))
for ax, head, number in zip(axes, maps, (1, 2), strict=False):
    image = ax.imshow(head, vmin=0, vmax=0.4)
    ax.set_title(f"head {number}: weights")
figure.colorbar(image, ax=axes[:2]).ax.set_title("weight", fontsize="medium")
image = axes[2].imshow(together, cmap="PuOr", vmin=-1.2, vmax=1.2)
axes[2].set_title("both, times their m, added up")
figure.colorbar(image, ax=axes[2]).ax.set_title("factor", fontsize="medium")
for ax in axes:
    ax.set_xticks(range(8), hours, rotation=60)
    ax.set_yticks(range(8), hours)
    ax.set(xlabel="key", ylabel="query")
plt.show()
assert_close(together, now - before, rtol=0, atol=0.1)

# %% [markdown]
# *Figure 3. Third seed: the two heads are blurred; what the layer computes with them is sharp, +1 at the
# hour itself, −1 at the hour before.*
#
# The guess is half right: each head prefers one diagonal, but with only a third of its weight. The rest is
# spread alike in both heads and cancels, because $m_1 = -m_2$. **A head's map shows where it looks, not
# what the layer takes from there** ([13](13_reading_attention.ipynb)).
#
# ### A way round the proof
#
# In the model, queries and keys see the temperatures too. We train one head that way:

# %%
free = [train(seed, h=1, by_position=False) for seed in range(5)]
print("x[t] - x[t-1], one head: losses", *(f"≈{loss:.2f}" for _, loss in free))
to_value, to_output = free[4][0].linears[2:]
m, *p = (to_output.weight @ to_value.weight)[0, :9].tolist()
print(f"fifth seed: m ≈{m:.1f}, and values by position", *(f"≈{number:.1f}" for number in p))
assert min(loss for _, loss in free[:4]) > 0.9
assert free[4][1] < 0.1
assert min(abs(number) for number in p) > 4 * abs(m)

# %% [markdown]
# Four seeds fail as before. In the fifth, the values depend far more on the position than on the
# temperature, so the temperatures must act through the *weights*. The simplest such way, built by hand:
# give the hours alternating signs $\sigma_s = \pm 1$. Let hour $t$ score $\alpha\,\sigma_t\,x_s$ at $s =
# t$ and $s = t - 1$, and far less elsewhere. Let the value of $s$ be $2\sigma_s / \alpha$, without its
# temperature ($m = 0$). With values $\pm c$ and scores $u$, $v$, a softmax gives $c\,(e^u - e^v)/(e^u +
# e^v) = c \tanh\frac{u - v}{2}$:
#
# $$\frac{2}{\alpha} \tanh\frac{\alpha\,(x_t - x_{t-1})}{2}
# \approx x_t - x_{t-1} \quad \text{for small } \alpha.$$

# %%
sign, alpha = torch.tensor([1.0, -1.0] * 4).unsqueeze(-1), 0.1
queries = math.sqrt(9) * torch.cat([alpha * sign, 50 * (now + before)], dim=1)  # (8, 9)
keys = torch.cat([degrees.unsqueeze(-1), position], dim=1)  # (8, 9): the temperature, then the position
by_trick, _ = attention(queries, keys, 2 / alpha * sign)
print("one head, by the trick:", [round(number, 2) for number in by_trick.flatten().tolist()])
assert_close(by_trick.flatten(), 2 / alpha * (alpha * warmer / 2).tanh(), rtol=0, atol=1e-3)
assert_close(by_trick.flatten(), warmer, rtol=0, atol=0.1)

# %% [markdown]
# So one head comes as close as we like, on a bounded range, with values that grow as $1 / \alpha$.
#
# ## The three uses
#
# The *encoder* reads the source sentence; its output is the decoder's **memory**. The *decoder* writes the
# target one token at a time, and reads what it has written. Attention has three uses there:
#
# > "In 'encoder-decoder attention' layers, the queries come from the previous decoder layer, and the memory
# > keys and values come from the output of the encoder." (section 3.2.3)
#
# | use | queries from | keys and values from | mask hides |
# | --- | --- | --- | --- |
# | encoder self-attention | source | source | padding of the source |
# | decoder self-attention | target | target | padding of the target, and the future |
# | encoder-decoder attention ("cross") | target | memory | padding of the source |
#
# A mask has a column for each *key*, so encoder-decoder attention takes the *source's* mask. It hides no
# future, because the whole source is known. Here is the package's trained translator, with two sentences:

# %%
translator = load_pretrained("multi30k-en-de")
english = ["A young woman is throwing a ball to a small brown dog.", "A dog is sleeping."]
pieces = translator.tgt_tokenizer
# The encoder's input: token numbers of the English, padded to one length.
source = translator.batch([translator.encode(line) for line in english])
# The decoder's input: the model's own German (`begin` gives its tokens) between <s> and </s>.
german = [[pieces.start, *translator.begin(translator(line)), pieces.end] for line in english]
target = translator.batch(german)
batch = Batch(source, target, pad=pieces.pad)  # makes the masks
# One pass through the model, which keeps the weights of every attention layer.
with evaluating(translator.model), capture_attention(translator.model) as captured:
    translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
masks = {"encoder": batch.src_mask, "decoder": batch.tgt_mask, "cross": batch.src_mask}
for kind, mask in masks.items():
    weights = captured[kind, 0]  # first layer: (2, 4, queries, keys)
    outside = weights.masked_fill(mask.unsqueeze(1), 0).max().item()
    print(f"{kind:8} weights {tuple(weights.shape)}  mask {tuple(mask.shape)}  hidden keys get {outside}")
    assert outside == 0
    assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))

# %% [markdown]
# Below, `▁` marks the start of a word. In the first two panels much weight lies on `.`, `</s>` and `<s>`.
# Weights sum to 1, so a head that needs nothing must put them somewhere: probably these are **attention
# sinks** ([13](13_reading_attention.ipynb)).

# %% tags=["figure-three-uses"]
from annotated.plots.drawing import draw_cell_borders, label_tokens

src = translator.src_tokenizer.pieces(batch.src[1].tolist())[:8]  # the short sentence and some of its padding
tgt = pieces.pieces(batch.tgt[1].tolist())[:7]
axes_of = {"encoder": (src[:6], src), "decoder": (tgt[:5], tgt), "cross": (tgt[:5], src)}  # queries, keys
figure, axes = plt.subplots(1, 3, figsize=(15, 4.4))
for ax, (kind, (queries, keys)) in zip(axes, axes_of.items(), strict=True):
    shown = slice(len(queries)), slice(len(keys))
    weights = captured[kind, 3][1].mean(dim=0)[shown]  # last layer, mean of its four heads
    allowed = masks[kind][1].expand(masks[kind].size(-1), -1)[shown]
    ax.imshow(weights.masked_fill(~allowed, math.nan), vmin=0, vmax=1, aspect="auto")
    label_tokens(ax, queries, keys)
    draw_cell_borders(ax, len(queries), len(keys))
    ax.set(title={"cross": "encoder-decoder"}.get(kind, f"{kind} self-attention"), facecolor="#d9d9d9")
figure.colorbar(axes[0].images[0], ax=axes, label="weight")
plt.show()
assert tgt[2:4] == ["▁Hund", "▁schläft"]
assert src[captured["cross", 3][1, :, 2].mean(dim=0).argmax()] == "▁sleeping"

# %% [markdown]
# *Figure 4. "A dog is sleeping.", last layer, mean of four heads. Grey is hidden: padding (`<blank>`), and
# the future in the middle, where the row `<s>` has one key left and must give it 1. On the right, the row
# `▁Hund` is about to write `▁schläft`, and looks at `▁sleeping`.*
