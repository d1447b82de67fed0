# %% [markdown]
# # 03 · Multi-head attention
#
# **We find something that no single attention can do, do it with two, and take the four linear maps of the
# real thing apart until 66,560 independent ways to alter them turn out to alter nothing.**
#
# Previous: [02_attention](02_attention.ipynb) · Next:
# [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb) · To see a whole model learn
# first: [09_first_example](09_first_example.ipynb)
#
# *40 minutes to read, 20 seconds to run, the exercises extra.*
#
# - **Before:** you know equation 1, its masks, and that its output is a weighted mean
#   ([02_attention](02_attention.ipynb)).
# - **After:** you know why one head is not enough; what the *four* linear maps are, and which 25 matrices of
#   the paper are in them; what breaks silently if heads are cut wrongly, a mask is shaped wrongly or a
#   linear map forgotten; what heads cost; and the three places in which the model uses them.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 3.2.2 and 3.2.3.

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
from copy import deepcopy

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from annotated import (
    Batch,
    MultiHeadedAttention,
    capture_attention,
    evaluating,
    make_model,
    subsequent_mask,
)
from annotated.plots import setup_notebook, show_source
from annotated.transformer.attention import attention, clones

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## What one head cannot do
#
# Eight temperatures of one day, three hours apart. At each hour we ask: how much warmer is it than three
# hours before? (The day goes round: before 0 o'clock comes 21.)

# %%
hours = [f"{hour} h" for hour in range(0, 24, 3)]
degrees = torch.tensor([9.0, 8.0, 11.0, 15.0, 19.0, 20.0, 16.0, 12.0])  # (8,)
warmer = degrees - degrees.roll(1)
print("degrees:", [int(d) for d in degrees])
print("warmer: ", [int(d) for d in warmer])

# %% [markdown]
# A look-up that reads two entries: made for attention, it seems. Each hour attends to itself and to the one
# before, half and half, and some linear map after it makes the difference out of what comes back. What comes
# back?

# %%
place = torch.eye(8)  # (8, 8): the key at each hour
now, before = place, place.roll(1, dims=0)  # queries; row t of `before` is the key at t - 1
both, weights = attention(50 * (now + before), place, degrees.unsqueeze(-1))  # 50: sharp; (8, 1), (8, 8)
print("what each hour gets:", [round(number, 1) for number in both.flatten().tolist()])
assert_close(both.flatten(), (degrees + degrees.roll(1)) / 2)

# %% [markdown]
# The mean of the two, and no map on earth can get a difference out of a mean: 15 may be 15 and 15, or 10 and
# 20. "Then weigh them otherwise." Weights are positive. Could a cleverer head do it, wider, with other
# queries, weights that depend on the temperatures themselves? No, and three lines show it.
#
# One head gives $\sum_s w_s\,(m\,x_s + p_s)$: a temperature $x_s$ is passed on times some number $m$, plus
# something $p_s$ about its place. Take a day of constant temperature $c$. The weights sum to 1, *whatever
# they are*, so the head says $m\,c$ plus a mean of the $p_s$, which stays within bounds. The right answer
# is 0 for every $c$; so $m = 0$. But a head with $m = 0$ says nothing beyond those bounds, and differences
# may be as large as they like.
#
# A random head, 64 wide, on days that get hotter and hotter (`MultiHeadedAttention` is the package's layer;
# its four linear maps come below):


# %%
def constant_days(c: float, width: int) -> Tensor:
    """Eight hours, all c degrees; the place of each in the other entries: (1, 8, width)."""
    x = torch.randn(1, 8, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x[..., 0] = c
    return x


_ = torch.manual_seed(0)
one_head = MultiHeadedAttention(h=1, d_model=64, dropout=0.0).double()
to_value, to_output = one_head.linears[2:]
m = (to_output.weight @ to_value.weight)[0, 0]  # what becomes of entry 0 on its way to entry 0
for c in (1e2, 1e4, 1e6):
    x = constant_days(c, 64)
    answer = one_head(x, x, x)[0, :, 0]
    off = (answer - m * c).abs().max()
    print(f"{c:9,.0f} degrees: the answer is m c, to one degree: {bool(off < 1)}")
    assert off < 1
print("and m is not 0:", bool(m.abs() > 0.01))

# %% [markdown]
# The right answer was 0 each time. Of a million degrees, all that the weights could move is less than one.
#
# Now two heads, each of them sharp, and a number for each to be multiplied with: $+1$ and $-1$.

# %%
head_now, weights_now = attention(50 * now, place, degrees.unsqueeze(-1))
head_before, weights_before = attention(50 * before, place, degrees.unsqueeze(-1))
difference = 1 * head_now - 1 * head_before
assert_close(difference.flatten(), warmer, rtol=0, atol=1e-4)
print("two heads, subtracted:", [round(number) for number in difference.flatten().tolist()])

# %%
from annotated.plots import plot_heads

axes = plot_heads(
    [torch.stack([weights_now, weights_before])], hours, hours, title="Two heads: now, and three hours ago"
)
plt.show()
assert axes.shape == (1, 2)
assert weights_before.argmax(dim=-1).tolist() == [7, 0, 1, 2, 3, 4, 5, 6]

# %% [markdown]
# That is all there is to it: **look several times, each time for one thing, then combine with signs.**
# Section 3.2.2 gives the same reason, in other words: heads attend to different places and different kinds
# of information at once, and a single one would average them away. In [02_attention](02_attention.ipynb)
# *saw* had to share its one row between *hat* and *gesehen*. (In the whole model each layer's input is added
# to its output, [06_the_full_model](06_the_full_model.ipynb). In this puzzle, that could stand in for *now*.)
#
# **Exercise 1.** How bent is the curve? At each hour, three temperatures count: the one before, this one, the
# next, with factors 1, -2 and 1. How many heads does that need: three? Build it.

# %% tags=["solution"]
after = place.roll(-1, dims=0)
assert_close(attention(50 * after, place, degrees.unsqueeze(-1))[0].flatten(), degrees.roll(-1))
neighbours, _ = attention(50 * (before + after), place, degrees.unsqueeze(-1))  # the mean of both
bent = 2 * neighbours - 2 * head_now
assert_close(bent.flatten(), degrees.roll(1) - 2 * degrees + degrees.roll(-1), rtol=0, atol=1e-4)
print("two: one blends everything with a plus, the other everything with a minus")
print("whatever the factors are, two are enough for a fixed weighted sum of one number a word")

# %% [markdown]
# ## Twenty-five matrices, or four
#
# Our two heads were told what to look for. In the model, each head gets its own view of the words, through
# three matrices of its own, which are learned:
#
# $$\mathrm{head}_i = \mathrm{Attention}(QW^Q_i,\; KW^K_i,\; VW^V_i) \qquad
# \mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\,W^O$$
#
# In the paper $d_{model} = 512$ and $h = 8$. Each $W^Q_i$, $W^K_i$, $W^V_i$ is $512 \times 64$: the width
# is *shared out* among the heads, $d_k = d_v = d_{model} / h$. $W^O$ is $512 \times 512$. That makes $3
# \cdot 8 + 1 = 25$ matrices. Written as it stands there:

# %%
d_model, h = 512, 8
d_k = d_model // h
_ = torch.manual_seed(0)
W_Q, W_K, W_V = torch.randn(3, h, d_model, d_k) / math.sqrt(d_model)  # (8, 512, 64) each: a matrix a head
W_O = torch.randn(d_model, d_model) / math.sqrt(d_model)


def multi_head(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Section 3.2.2, one head after the other: (T, d_model) and two (S, d_model) -> (T, d_model)."""
    heads = [attention(Q @ W_Q[i], K @ W_K[i], V @ W_V[i])[0] for i in range(h)]  # (T, d_k) each
    return torch.cat(heads, dim=-1) @ W_O


x, y = torch.randn(5, d_model), torch.randn(7, d_model)  # five queries; seven keys, which are the values too
by_the_paper = multi_head(x, y, y)
print("out:", tuple(by_the_paper.shape), " matrices:", len(W_Q) + len(W_K) + len(W_V) + 1)

# %% [markdown]
# And the package? It has four linear maps, for any number of heads.

# %%
layer = MultiHeadedAttention(h, d_model, dropout=0.0)
for name, linear in zip(("W^Q", "W^K", "W^V", "W^O"), layer.linears, strict=True):
    print(name, tuple(linear.weight.shape))

# %% [markdown]
# **Why four?** Because eight products with eight narrow matrices are *one* product with the eight laid side
# by side. So three of the four hold what the paper calls $W^Q_1 \ldots W^Q_8$, and so on; the fourth is
# $W^O$. Let us put our 25 in. A first guess: head $i$, counted from 0, of a matrix $512\times 512$ is its
# 64 columns from $64\,i$ on.

# %%
map_in_threads = [torch.cat(list(W), dim=-1) for W in (W_Q, W_K, W_V)]  # (512, 512) each
for linear, W in zip(layer.linears, [*map_in_threads, W_O], strict=True):
    nn.init.zeros_(linear.bias)  # the paper's formula has none
    linear.weight.data.copy_(W)
print("first guess right:", torch.allclose(layer(x[None], y[None], y[None])[0], by_the_paper, atol=1e-4))

for linear, W in zip(layer.linears, [*map_in_threads, W_O], strict=True):
    linear.weight.data.copy_(W.T)
assert_close(layer(x[None], y[None], y[None])[0], by_the_paper)
print("transposed right: True")

# %% [markdown]
# The paper multiplies rows by matrices, $xW$. `nn.Linear` stores $(out, in)$ and computes $xW^\top$: a head
# is 64 *rows* of `.weight`. A square matrix never complains about the difference. Only for the output are a
# head's numbers the columns, since there the heads come in. Taking the paper's matrices out again:

# %%
to_query, to_key, to_value, to_output = layer.linears
for i in range(h):
    rows = slice(i * d_k, (i + 1) * d_k)
    for linear, W in ((to_query, W_Q), (to_key, W_K), (to_value, W_V)):
        assert_close(linear.weight[rows].T, W[i])
    assert_close(to_output.weight[:, rows].T, W_O[rows])
print("all 25 found in the four: True")

# %% [markdown]
# ### The fourth that nobody misses
#
# Three inputs, four maps. It is tempting to write one `zip` over both. It stops at the shorter one and says
# nothing:

# %%
names = ("query", "key", "value")
used = [linear for _, linear in zip(names, layer.linears)]  # noqa: B905
print("used:", len(used), "of", len(layer.linears))

try:
    list(zip(names, layer.linears, strict=True))
except ValueError as error:
    print("strict=True:", error)

# %% [markdown]
# That would be harmless if one then remembered to apply `linears[-1]`. If not: the shape is right, training
# runs, and nothing complains. What is lost? A number that head 3 has found stays in the 64 entries of head 3
# when the layer ends. We ask with the gradient: on which heads does entry 0 of the output depend?


# %%
def heads_behind_entry_0(to_output: nn.Module) -> list[int]:
    """Of the eight heads, numbered from 1, those that entry 0 of the output depends on."""
    heads = torch.randn(h, 5, d_k, requires_grad=True)  # what the heads found
    to_output(layer.join(heads))[0, 0].backward()  # join: (h, T, d_k) -> (T, d_model), side by side
    return [i + 1 for i in range(h) if heads.grad[i].abs().sum() > 0]


print("with W^O:   ", heads_behind_entry_0(to_output))
print("without W^O:", heads_behind_entry_0(nn.Identity()))
assert heads_behind_entry_0(nn.Identity()) == [1]

# %% [markdown]
# And our subtraction was exactly such a mixture. Whether a map was forgotten shows after one `backward()`:
# its gradient is `None`, not 0. A test worth having for any module:

# %%
forgetful = clones(nn.Linear(8, 8), 4)
sum(linear(torch.randn(2, 8)).sum() for _, linear in zip(names, forgetful)).backward()  # noqa: B905
print("has a gradient:", [linear.weight.grad is not None for linear in forgetful])
assert [linear.weight.grad is None for linear in forgetful] == [False, False, False, True]

# %% [markdown]
# ## The cut
#
# Each projection gives $512$ numbers a word, which now have to become $8$ heads of $64$. Small enough to
# draw: four words of eight numbers, two heads of four. A number's value is its place in memory.

# %%
from annotated.plots.heads import plot_split

words = ["the", "dog", "saw", "him"]
numbers = torch.arange(4 * 8).view(4, 8)  # (T, d_model)
right = numbers.view(4, 2, 4).transpose(0, 1)  # (T, h, d_k) -> (h, T, d_k)
wrong = numbers.view(2, 4, 4)  # straight to (h, T, d_k)
print("the same shape:", tuple(right.shape) == tuple(wrong.shape))

plot_split(
    {"The projection": numbers[None], "view, then transpose": right, "view alone": wrong}, words, width=8
)
plt.show()
assert (right // 8 == torch.arange(4).unsqueeze(-1)).all()  # row t holds numbers of word t, in every head
assert (wrong[0] // 8).unique().tolist() == [0, 1]

# %% [markdown]
# `view` never moves a number, it only counts them off anew. In the middle each head has all four words, a
# half of each. On the right it went to the shape at once: **head 1 has all of *the* and *dog*, and none of
# *saw* and *him*.** It is no attention over a sentence any more, but over halves of it. Nothing raises. What
# does it do to a layer? Change one word, and see which outputs move:


# %%
class ViewAlone(MultiHeadedAttention):
    """The same, with heads cut wrongly, and put together by the same mistake backwards."""

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), self.h, x.size(1), self.d_k)

    def join(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), self.h * self.d_k)


def heard(kind: type, h: int = 2) -> list[list[int]]:
    """For each of eight words, those that its output depends on."""
    torch.manual_seed(0)
    layer = kind(h, d_model=16, dropout=0.0)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: layer(x, x, x).sum(dim=-1)[0], torch.randn(1, 8, 16)
    )
    return [row.abs().sum(dim=-1).nonzero().flatten().tolist() for row in jacobian[:, 0]]


# %%
right, wrong = heard(MultiHeadedAttention), heard(ViewAlone)
print("right: word 1 hears", right[1], " word 6 hears", right[6])
print("wrong: word 1 hears", wrong[1], " word 6 hears", wrong[6])
assert right == [list(range(8))] * 8
assert wrong == [[0, 1, 2, 3]] * 4 + [[4, 5, 6, 7]] * 4
print("wrong, eight heads: word 1 hears", heard(ViewAlone, h=8)[1])
assert heard(ViewAlone, h=8) == [[t] for t in range(8)]

# %% [markdown]
# With two heads our eight words fall into two halves that never hear of each other; with eight, each word
# hears itself alone. More layers do not mend it, for each cuts in the same place. No test of shapes finds it;
# this one does. The package's version (its `cache` saves work when a translation is written word by word;
# here there is none):

# %%
show_source(
    MultiHeadedAttention.split, MultiHeadedAttention.join, MultiHeadedAttention.forward, docstring=False
)

# %% [markdown]
# `attend` is equation 1 for all heads at once: PyTorch's fused kernel, or `attention` where that is faster
# (15 says when) or somebody has asked for the weights by setting `on_weights`. `split` moves no number
# either: it reads the same memory in another order. `join` has to copy, because after the transpose the
# numbers of a word no longer lie together.

# %%
x = torch.randn(1, 5, d_model)
cut = layer.split(x)
print("split", tuple(cut.shape), "shares memory with its input:", cut.data_ptr() == x.data_ptr())
heads, _ = attention(cut, cut, cut)
joined = layer.join(heads)
print("join ", tuple(joined.shape), "shares memory with its input:", joined.data_ptr() == heads.data_ptr())
assert torch.equal(layer.join(cut), x)  # and it undoes the cut

# %% [markdown]
# Where does each shape arise in the real layer? PyTorch lets us listen: a *forward hook* is called with what
# a module was given and what it returned. We hang one on each of the four linears, and send random numbers
# through, in the shape of two sentence pairs, five queries and seven keys each.


# %%
def listen(layer: MultiHeadedAttention, query: Tensor, memory: Tensor) -> dict[str, torch.Size]:
    """Run the layer, and note the shape of everything on the way, by hooks."""
    layer, shapes = deepcopy(layer), {}
    for name, linear in zip(("query", "key", "value", "output"), layer.linears, strict=True):

        def note(module: nn.Module, given: tuple, result: Tensor, name: str = name) -> None:
            if name == "output":
                shapes.update(joined=given[0].shape, output=result.shape)
            else:
                shapes.update({name: given[0].shape, f"{name} projected": result.shape})
                shapes[f"{name} heads"] = layer.split(result).shape

        linear.register_forward_hook(note)
    layer.on_weights = lambda weights: shapes.update(attention=weights.shape)
    layer(query, memory, memory)
    shapes["heads"] = layer.split(torch.empty(shapes["joined"])).shape  # what `join` made it from
    return shapes


shapes = listen(layer, torch.randn(2, 5, d_model), torch.randn(2, 7, d_model))
assert shapes["attention"] == (2, 8, 5, 7)

# %%
from annotated.plots.heads import plot_flow

ax = plot_flow(shapes, title="Multi-head attention: 2 sentences, 5 queries, 7 keys, 8 heads")
plt.show()
assert {str(tuple(shape)) for shape in shapes.values()} <= {
    line for text in ax.texts for line in text.get_text().split("\n")
}

# %% [markdown]
# Sentences and heads stand in front, so that one call of `attention` sees $2 \cdot 8$ separate problems
# of size $5 \times 7$: it never learns that there are heads. Count the 7s. The number of keys appears, is
# summed over, and is gone.
#
# ### One mask for all heads
#
# A mask is $(B, T, S)$: heads share it. The scores are $(B, h, T, S)$. If one forgets to make room for the
# heads, shapes are aligned from the right, and $B$ meets $h$. Mostly that raises. But when there happen to be
# as many sentences as heads:

# %%
_ = torch.manual_seed(0)
scores = torch.randn(2, 2, 3, 3)  # two sentences, two heads
padding = torch.tensor([[True, True, True], [True, False, False]])  # the second sentence is short
mask = padding.unsqueeze(1).expand(2, 3, 3)  # (B, T, S)
forgotten = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
meant = scores.masked_fill(~mask.unsqueeze(1), -math.inf).softmax(dim=-1)  # mask (B, 1, T, S)

print("keys that a query sees: a list for each sentence, in it a number for each head")
weights = {"meant": meant, "forgotten": forgotten}
shown = {name: (w[:, :, 0] > 0).sum(dim=-1).tolist() for name, w in weights.items()}
for name, counts in shown.items():
    print(f"{name:10}", *counts)
assert shown == {"meant": [[3, 3], [1, 1]], "forgotten": [[3, 1], [3, 1]]}

# %% [markdown]
# The mask of sentence 2 became the mask of head 2, in both sentences: in sentence 2 head 1 reads padding, in
# sentence 1 head 2 misses two words. No error, and only at one batch size. The package does the `unsqueeze`
# itself, so there is nothing to forget.
#
# ## What heads cost
#
# The paper says that eight heads of width 64 cost about what one of width 512 would. Parameters first; then
# multiplications and additions, counted by PyTorch:

# %%
from torch.utils.flop_counter import FlopCounterMode

B, T = 1, 32
x = torch.randn(B, T, d_model)
parameters, flops, kept = {}, {}, {}
for heads in (1, 2, 4, 8, 16, 32):
    layer_h = MultiHeadedAttention(heads, d_model, dropout=0.0)
    parameters[heads] = sum(p.numel() for p in layer_h.parameters())
    layer_h.on_weights = lambda weights, heads=heads: kept.update({heads: weights.numel()})
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer_h(x, x, x)
    flops[heads] = counter.get_total_flops()
print(f"parameters: {set(parameters.values())}   operations: {set(flops.values())}")
by_hand = 4 * 2 * T * d_model**2 + 2 * 2 * T * T * d_model  # four projections; scores, and the blend
assert set(parameters.values()) == {4 * (d_model**2 + d_model)}
assert set(flops.values()) == {by_hand}

# %% [markdown]
# Not about: equal, to the last one. $h$ heads do $h$ products of width $d_{model} / h$, and $h$ cancels. Had
# we given each of eight heads the whole width, projections and attention would cost eight times as much.
#
# The count is honest about what it counts, and blind to two things. The weights are $h$ matrices, not one:

# %%
for heads in (1, 8, 32):
    print(f"{heads:2} heads: {kept[heads]:6,} weights, each an exponential to compute and a number to keep")
assert kept[32] == 32 * kept[1] == 32 * T * T

projections = 4 * 2 * T * d_model**2
layer_h.on_weights = None  # now PyTorch's fused kernel does the attention
with torch.no_grad(), FlopCounterMode(display=False) as counter:
    layer_h(x, x, x)
print("with the fused kernel only the projections are counted:", projections == counter.get_total_flops())

# %% [markdown]
# The second is in the last line: on a CPU the counter does not know the fused kernel, and counts none of its
# work. So a count that says "attention is free" may only say that nobody looked. The kernel does
# the same multiplications, but need not keep all the weights, which is why the package uses it unless
# somebody wants to see them, or there are few to keep (15).
#
# ### What a narrow head gives up
#
# If heads are free, why not 512 of width 1? Table 3 says: at equal cost, 32 heads are worse than 8, and one
# head is worse still (rows A). A head compares query and key by
#
# $$(x W^Q_i)(y W^K_i)^\top = x\,\underbrace{W^Q_i {W^K_i}^\top}_{512 \times 512}\,y^\top$$
#
# $W^Q_i$ and $W^K_i$ never act but through their product. It looks like a full matrix. How many directions
# does it see? That is its *rank*, the number of its singular values that are not 0:

# %%
_ = torch.manual_seed(0)
for heads in (1, 8, 32):
    to_query, to_key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
    rows = d_model // heads
    product = to_query.weight[:rows].T.double() @ to_key.weight[:rows].double()  # head 1: (512, 512)
    rank = int((torch.linalg.svdvals(product.detach()) > 1e-10).sum())
    print(f"{heads:2} heads: a head compares along {rank} of {d_model} directions")
    assert rank == rows

# %% [markdown]
# Rank $d_k$: what lies outside those directions makes no difference to where the head looks. What does that
# cost a *single* head? Here is a puzzle that has a sharp answer. Fifty keys, random. Whatever the query
# asks, one of them wins, that is, gets the largest weight. How many of the fifty can *ever* win, for any
# query at all?

# %%
_ = torch.manual_seed(0)
keys = torch.randn(50, 16)
can_win = {}
for width in (1, 2, 4, 16):
    queries = torch.randn(100_000, width)
    winners = (queries @ keys[:, :width].T).argmax(dim=-1).unique()
    can_win[width] = len(winners)
    if width == 1:
        assert set(winners.tolist()) == {int(keys[:, 0].argmin()), int(keys[:, 0].argmax())}
print("d_k =  1:", can_win[1], "of 50\nd_k =  2:", can_win[2], "of 50")
print("d_k =  4: about half:", 15 <= can_win[4] <= 35, "\nd_k = 16: nearly all:", can_win[16] >= 48)
assert can_win[1] == 2 < can_win[2] < can_win[4] < can_win[16]

many = torch.randn(1000, 64)
own = (many @ many.T).argmax(dim=-1) == torch.arange(1000)  # does a key win if the query is equal to it?
print("d_k = 64:", int(own.sum()), "of 1000")
assert own.all()

# %% [markdown]
# **At width 1, only two keys can ever win: the largest and the smallest.** In two dimensions, only the
# corners of the polygon around the points, their convex hull: to win is to lie furthest out in the direction
# of the query. (The query's direction decides who wins, its length is the sharpness.)

# %%
points = keys[:, :2]
angles = torch.linspace(0, 2 * math.pi, 10_001)
directions = torch.stack([angles.cos(), angles.sin()], dim=-1)  # (10001, 2): every direction to ask in
winners = (directions @ points.T).argmax(dim=-1)
corners = list(dict.fromkeys(winners.tolist()))  # in the order in which the query meets them
assert set(corners) < set(range(50))

figure, ax = plt.subplots(figsize=(6.5, 5.5))
ax.plot(*points.T, "o", color="#999999", label="never wins")
ax.plot(*points[[*corners, corners[0]]].T, "o-", color="#0173b2", markersize=9, label="wins for some query")
ax.set(xlabel="first entry of the key", ylabel="second entry of the key", aspect="equal")
ax.set_title(f"d_k = 2: {len(corners)} of 50 keys can win")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
plt.show()
hull = torch.cat([points[corners], points[corners[:1]]])
turns = hull.diff(dim=0)
assert (turns[:-1, 0] * turns[1:, 1] - turns[:-1, 1] * turns[1:, 0] > 0).all()  # it only ever turns left

# %% [markdown]
# With 16 dimensions random points are nearly all corners, and with 64 even a thousand of a thousand. So
# heads are traded for precision: many heads look at many things, each with a blunter eye. In
# Table 3, 8 and 16 heads come out best; with $d_k$ alone made smaller, quality falls too (rows B), and the
# authors conclude that comparing is not easy.
#
# ## What is free in a layer
#
# Concatenating and multiplying by $W^O$ is the same as cutting $W^O$ into eight pieces, one a head, and
# adding up:
#
# $$\mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\,W^O = \sum_i \mathrm{head}_i\,W^O_i$$

# %%
x, y = torch.randn(5, d_model), torch.randn(7, d_model)
total = torch.zeros(5, d_model)
for i in range(h):
    head, _ = attention(x @ W_Q[i], y @ W_K[i], y @ W_V[i])  # (5, 64)
    total += head @ W_O[i * d_k : (i + 1) * d_k]  # (64, 512): what this head adds to every word
assert_close(total, multi_head(x, y, y))
print("concatenated = added up: True")

# %% [markdown]
# A layer is a *sum* of heads. So "head 3" is nobody in particular: in another order they add up to the same.
# The order is in the slices, rows of three matrices and columns of the fourth.

# %%
order = torch.randperm(h)
entries = torch.arange(d_model).view(h, d_k)[order].flatten()  # the slices, reordered
shuffled = deepcopy(layer)
for linear in shuffled.linears[:3]:
    linear.weight.data = linear.weight.data[entries]
    linear.bias.data = linear.bias.data[entries]
shuffled.linears[3].weight.data = shuffled.linears[3].weight.data[:, entries]

one, two = x[None], y[None]
assert_close(shuffled(one, two, two), layer(one, two, two))
print(f"{math.factorial(h):,} orders of the heads, one and the same function")

# %% [markdown]
# There is more than that. Only $W^Q_i {W^K_i}^\top$ counts, so any invertible $64 \times 64$ matrix $A$ may
# be pushed in between: $W^Q_i A$ and $W^K_i A^{-\top}$ (the inverse, transposed) have the same product.
# Likewise $W^V_i$ and $W^O_i$ act through theirs. And what about the biases, which the paper's formula has
# not, but many implementations have? Two guesses: all four matter, or none does.

# %%
_ = torch.manual_seed(0)
layer = MultiHeadedAttention(h, d_model, dropout=0.0)
for linear in layer.linears:
    nn.init.normal_(linear.bias)
wanted = layer(one, two, two)
for name, linear in zip(("query", "key", "value", "output"), layer.linears, strict=True):
    bias = linear.bias.data.clone()
    linear.bias.data.zero_()
    changes = not torch.allclose(layer(one, two, two), wanted, atol=1e-4)
    linear.bias.data.copy_(bias)
    print(f"{name:6} bias set to 0: output changes: {changes}")

# %% [markdown]
# The key bias we know ([02_attention](02_attention.ipynb)): it adds the same to every score of a query. The
# value bias changes something, but what? The weights sum to 1, so every head's output gets exactly $b_V$
# added, whatever it looked at, and $W^O$ makes a constant of it. There is already a bias for constants:

# %%
freed = deepcopy(layer)
to_query, to_key, to_value, to_output = freed.linears
to_output.bias.data += to_output.weight.data @ to_value.bias.data  # what the value bias did, done here
to_key.bias.data.zero_()
to_value.bias.data.zero_()
assert_close(freed(one, two, two), wanted, rtol=1e-4, atol=1e-4)
print("two of four biases at 0, output the same: True")

# %% [markdown]
# (Where the weights do *not* sum to 1, it is no longer exact: with dropout on them, or in a row that sees
# nothing.) So of the four biases two do nothing that the others could not. Only the query's has a say in
# where the heads look: it is a question that every word asks, whatever it is.
#
# **Exercise 2.** Check the $A$ above: a random invertible matrix for each head, on queries and keys, and
# another on values and output. Then count: how many of the layer's parameters are freedom of this kind?

# %% tags=["solution"]
_ = torch.manual_seed(1)
A, C = torch.randn(2, h, d_k, d_k, dtype=torch.float64)
given = [W.double() for W in (W_Q, W_K, W_V, W_O.view(h, d_k, d_model))]
turned = [
    given[0] @ A,
    given[1] @ torch.linalg.inv(A).mT,
    given[2] @ C,
    torch.linalg.inv(C) @ given[3],
]
scores, outputs = [], []
for to_q, to_k, to_v, to_o in (given, turned):
    scores.append(x.double() @ to_q @ (y.double() @ to_k).mT)  # (8, 5, 7)
    weights = (scores[-1] / math.sqrt(d_k)).softmax(dim=-1)
    outputs.append((weights @ (y.double() @ to_v) @ to_o).sum(dim=0))  # heads added up: (5, 512)
assert_close(*scores)
assert_close(*outputs)
assert_close(outputs[0].float(), multi_head(x, y, y))
idle = 2 * h * d_k**2 + 2 * d_model
print(f"as many as {idle:,} of the {4 * (d_model**2 + d_model):,} parameters, the two biases among them")

# %% [markdown]
# ## Equal at birth
#
# The four linears come from `clones`, which copies one module four times. Do deep copies start equal?

# %%
show_source(clones, docstring=False)
_ = torch.manual_seed(0)
layer = MultiHeadedAttention(h=2, d_model=16, dropout=0.0)
first = layer.linears[0].weight
print("equal:      ", all(torch.equal(first, linear.weight) for linear in layer.linears))
print("one and the same:", any(first is linear.weight for linear in layer.linears[1:]))

# %% [markdown]
# Equal, yes: `deepcopy` copies the numbers too, and no new ones are drawn. So $W^Q = W^K = W^V$ in a layer
# fresh from its constructor. (`make_model` draws every matrix anew afterwards.) Would they stay equal? They
# stand in different places, and get different gradients:

# %%
copies, shared = deepcopy(layer), deepcopy(layer)
shared.linears = nn.ModuleList([shared.linears[0]] * 4)  # what one gets without deepcopy
x = torch.randn(4, 6, 16)
for module in (copies, shared):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x, x, x).square().mean().backward()
    optimizer.step()
    same = torch.equal(module.linears[0].weight, module.linears[1].weight)
    count = sum(p.numel() for p in module.parameters())
    print(f"after one step, W^Q = W^K: {same!s:5}  parameters: {count:,}")
assert not torch.equal(copies.linears[0].weight, copies.linears[1].weight)

built = make_model(11, 11, N=2, d_model=16, d_ff=32, h=2)
fresh = [layer.self_attn.linears[0].weight for layer in built.encoder.layers]
print("make_model, layers equal:", torch.equal(*fresh))
assert not torch.equal(*fresh)

# %% [markdown]
# Equal at birth, trained apart. The list of four times the *same* module trains as one, with a quarter of the
# parameters.
#
# Is equality never dangerous, then? Between *heads* it is. Give all four heads the same rows, and the same
# columns of $W^O$, and train:

# %%
_ = torch.manual_seed(0)
twins = MultiHeadedAttention(h=4, d_model=16, dropout=0.0).double()
for linear in twins.linears[:3]:
    linear.weight.data = linear.weight.data[:4].repeat(4, 1)  # the rows of head 1, four times
    linear.bias.data = linear.bias.data[:4].repeat(4)
twins.linears[3].weight.data = twins.linears[3].weight.data[:, :4].repeat(1, 4)

optimizer = torch.optim.SGD(twins.parameters(), lr=0.1)
for _ in range(50):
    x = torch.randn(8, 6, 16, dtype=torch.float64)
    (twins(x, x, x) - x.roll(1, dims=1)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
heads = twins.linears[0].weight.detach().view(4, 4, 16)
assert_close(heads, heads[:1].expand(4, 4, 16))
print("after 50 steps, all four heads still equal: True")

# %% [markdown]
# Twins in the same place get the same gradient, always: four heads do the work of one. (Only dropout on the
# weights, which draws anew for each head, would tell them apart.) Random numbers are there to make heads
# *different*; copies that stand in different places need none to part.
#
# ## Do they find it by themselves?
#
# Back to the temperatures. A layer of width 16 with one, two or four heads, as many parameters each time,
# random days; entry 0 of the output is to be the difference. Queries and keys see the place alone, so that a
# head has *one* map, and not another one each day. Temperatures have variance 1, the loss is the mean squared
# error: to answer 0 always costs 2, and to report just one of the two costs 1.


# %%
places = torch.zeros(1, 8, 16)
places[..., 1:9] = torch.eye(8)  # entry 0 is the temperature's, then a 1 at the place


def train(h: int, steps: int = 400) -> tuple[MultiHeadedAttention, list[float]]:
    """A layer trained on the differences, and its loss at each step."""
    torch.manual_seed(2)
    layer, losses = MultiHeadedAttention(h, 16, dropout=0.0), []
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    where = places.expand(64, 8, 16)
    for _ in range(steps):
        x = where.clone()
        x[..., 0] = torch.randn(64, 8)  # 64 random days
        wanted = x[..., 0] - x[..., 0].roll(1, dims=1)
        loss = (layer(where, where, x)[..., 0] - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return layer, losses


# %%
trained = {heads: train(heads) for heads in (1, 2, 4)}
last = {heads: sum(losses[-20:]) / 20 for heads, (_, losses) in trained.items()}
print("one head ends near 1:", 0.9 < last[1] < 1.1)
print("two heads end below 0.01:", last[2] < 0.01, " four as well:", last[4] < 0.01)
assert 0.9 < last[1] < 1.1
assert max(last[2], last[4]) < 0.01

# %%
_, ax = plt.subplots()
for (heads, (_, losses)), colour in zip(trained.items(), ("#0173b2", "#de8f05", "#029e73"), strict=True):
    ax.plot(losses, color=colour, label=f"{heads} head{'s' * (heads > 1)} of width {16 // heads}")
ax.axhline(1.0, color="#555555", linestyle="--", linewidth=1.2, label="one of the two right")
ax.set(yscale="log", ylim=(1e-4, 5), xlabel="step", ylabel="mean squared error")
ax.set_title("The same layer, cut differently")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
plt.show()
assert [len(line.get_ydata()) for line in ax.lines[:3]] == [400, 400, 400]

# %% [markdown]
# One head learns to report *now*, and gives up on *before*. Two heads are soon exact, four too. So look at
# the two: surely one attends to now and the other to before?

# %%
seen = {}
for heads, (layer, _) in trained.items():
    layer.on_weights = lambda weights, heads=heads: seen.update({heads: weights[0]})
    with torch.no_grad():
        layer(places, places, places)
assert (seen[1][0].diagonal() > 0.9).all()  # the one head: now, and nothing else
maps = seen[2]  # (2, 8, 8)
axes = plot_heads([maps], hours, hours, title="Two trained heads")
plt.show()
assert axes.shape == (1, 2)
print("both heads are blurred, rows' largest weight below 0.6 in the mean:", bool(maps.amax(-1).mean() < 0.6))
assert maps.amax(dim=-1).mean() < 0.6

# %% [markdown]
# Half right. Each has its diagonal, one at the hour itself, the other at the hour before; but it holds a
# third of the weight, where we gave it all. The rest is spread over the day, and still the error is gone.
# Look at the blur: it is the *same* in both.
#
# Head $i$ passes a temperature on times a number $m_i$, one entry of $W^V_i W^O_i$; so the layer reads hour
# $s$ at hour $t$ with the factor $m_1 w_{1ts} + m_2 w_{2ts}$, where $w_{its}$ is the weight that head $i$ has
# in row $t$ and column $s$. That is what was trained:

# %%
to_value, to_output = trained[2][0].linears[2:]
halves = (slice(0, 8), slice(8, 16))  # the entries of head 1, and of head 2
m = torch.stack([to_output.weight[0, half] @ to_value.weight[half, 0] for half in halves]).detach()
together = torch.einsum("h,hts->ts", m, maps)  # (8, 8)

figure, ax = plt.subplots(figsize=(6.5, 5))
image = ax.imshow(together, cmap="PuOr", vmin=-1.2, vmax=1.2)
figure.colorbar(image, ax=ax, label="factor of the key's temperature")
ax.set_xticks(range(8), hours, rotation=45)
ax.set_yticks(range(8), hours)
ax.set(xlabel="key", ylabel="query", title="Two blurred heads, one sharp difference")
plt.show()
assert_close(together, now - before, rtol=0, atol=0.05)
print("+1 at the hour itself, -1 at the hour before, 0 elsewhere: True")
print("m_1 and m_2 cancel, and are larger than 1:", bool(m.sum().abs() < 0.05 and m.abs().min() > 1.2))
assert m.sum().abs() < 0.05
assert m.abs().min() > 1.2

# %% [markdown]
# Whatever both heads look at cancels. (It has to: rows of weights sum to 1, the factors of a difference to 0,
# so $m_1 = -m_2$.) **A head's map shows where it looks, not what the layer takes from there.** Keep that for
# [13_reading_attention](13_reading_attention.ipynb).
#
# ## The three uses
#
# The whole model has two halves: the *encoder* reads the source, the *decoder* writes the target. Section
# 3.2.3 puts this one layer to work in three places there. They differ in where queries and keys come from,
# and in the mask. German to English, two sentence pairs, the second shorter:

# %%
from torch.nn.utils.rnn import pad_sequence

pairs = (
    ("Gestern hat der Hund die kleine Katze gesehen .", "Yesterday the dog saw the little cat ."),
    ("Der Hund schläft .", "The dog is asleep ."),
)
sources = [german.split() for german, _ in pairs]
targets = [["<s>", *english.split(), "</s>"] for _, english in pairs]
words = ["<s>", "</s>", "<blank>", "<unk>", *(word for s in sources + targets for word in s)]
vocabulary = list(dict.fromkeys(words))  # each once


def numbered(sentences: list[list[str]]) -> Tensor:
    """Sentences -> token numbers (batch, len), the short ones filled up with <blank>."""
    rows = [torch.tensor([vocabulary.index(word) for word in sentence]) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=vocabulary.index("<blank>"))


batch = Batch(numbered(sources), numbered(targets), pad=vocabulary.index("<blank>"))
print("source", tuple(batch.src.shape), " target, as the decoder reads it", tuple(batch.tgt.shape))

# %% [markdown]
# A small model, not trained: where it looks means nothing yet, where it *may* look is all there.
# (`evaluating` switches dropout off for a while; `capture_attention` notes all weights of a pass.)

# %%
_ = torch.manual_seed(0)
model = make_model(len(vocabulary), len(vocabulary), N=1, d_model=32, d_ff=64, h=4)
with evaluating(model), capture_attention(model) as captured:
    model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
masks = {"encoder": batch.src_mask, "decoder": batch.tgt_mask, "cross": batch.src_mask}
for kind, mask in masks.items():
    print(f"{kind:8} weights {tuple(captured[kind, 0].shape)}  mask {tuple(mask.shape)}")

# %% [markdown]
# | use | queries from | keys and values from | hidden |
# | --- | --- | --- | --- |
# | encoder | source | source | the source's padding |
# | decoder | target | target | the target's padding, and the future |
# | cross: between them | target | source, as the encoder left it | the source's padding |
#
# The guess that goes wrong here is the mask of the third. Queries are the target's, so the target's mask? A
# mask has a column for each *key*: it belongs to the side that is looked at.

# %%
for kind, mask in masks.items():
    weights = captured[kind, 0]  # (2, 4, queries, keys)
    seen = weights > 0
    assert (seen == mask.unsqueeze(1)).all()  # looked at exactly where allowed, by every head
    assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
print("every head looks wherever it may, and nowhere else: True")
assert captured["decoder", 0].triu(diagonal=1).max() == 0

cross, given = model.decoder.layers[0].src_attn, []
cross.on_weights = given.append
states, memory = torch.randn(2, 2, 9, 32)
cross(states, memory, memory, batch.tgt_mask)  # the wrong one
cross.on_weights = None
print("with the target's mask, keys seen by each query:", (given[0][0, 0] > 0).sum(dim=-1).tolist())

# %% [markdown]
# Both sides happen to have nine tokens here, so the wrong mask raises nothing: the causal triangle goes to
# work on the source, and the first query, `<s>`, sees one German word. The short pair, heads side by side:

# %%
read = [vocabulary[n] for n in batch.tgt[1]]
title = "Decoder self-attention: no future, no padding"
axes = plot_heads([captured["decoder", 0][1]], read, read, title)
plt.show()
drawn = torch.stack([torch.as_tensor(ax.images[0].get_array()) for ax in axes.flat])
assert ((drawn > 0) == batch.tgt_mask[1]).all()

# %%
looked_at = [vocabulary[n] for n in batch.src[1]]
title = "Cross-attention: English down, German across"
axes = plot_heads([captured["cross", 0][1]], read, looked_at, title)
plt.show()
drawn = axes[0, 0].images[0].get_array()
assert drawn[:, 4:].max() == 0 < drawn[:, :4].min()  # all words for every query, no blank for any
assert torch.pdist(captured["cross", 0][1].flatten(1)).min() > 0.1  # no two heads alike

# %% [markdown]
# Nobody has taught these heads anything, and yet no two are alike: random rows, different views. Choose kind
# and head for the long pair:

# %%
from annotated.plots import explore_attention

long_pair = {name: weights[0] for name, weights in captured.items()}
src_tokens, tgt_tokens = sources[0], [vocabulary[n] for n in batch.tgt[0]]
explore_attention(long_pair, src_tokens, tgt_tokens)

# %% [markdown]
# Cross-attention needs no mask against the future: the German sentence is there before the first English
# word. The decoder's own attention does need one: the next word is what it will be asked for.
#
# ## The same in PyTorch
#
# `nn.MultiheadAttention` holds three of the four linears in one matrix, `in_proj_weight`, $3\,d_{model}$
# rows: first all queries, then keys, then values. We copy ours across, and turn the mask round, which there
# says `True` for *hidden* ([02_attention](02_attention.ipynb)).

# %%
_ = torch.manual_seed(0)
ours = MultiHeadedAttention(h=4, d_model=32, dropout=0.0)
for linear in ours.linears:
    nn.init.normal_(linear.weight, std=0.2)
    nn.init.normal_(linear.bias)
theirs = nn.MultiheadAttention(32, num_heads=4, batch_first=True)
*into_heads, to_output = ours.linears
with torch.no_grad():
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in into_heads]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in into_heads]))
    theirs.out_proj.load_state_dict(to_output.state_dict())

x, mask = torch.randn(2, 6, 32), subsequent_mask(6)
kept = []
ours.on_weights = kept.append
output, weights = theirs(x, x, x, attn_mask=~mask[0], average_attn_weights=False)
assert_close(ours(x, x, x, mask), output)
assert_close(kept[0], weights)
print("outputs and the weights of every head equal: True")

# %% [markdown]
# Without `average_attn_weights=False` it returns the *mean* of the heads' weights, which belongs to no head.
#
# **Exercise 3.** When a decoder writes, keys and values of every past word are kept, for every head. Somebody
# lets all heads share *one* key and one value head (Shazeer, 2019), and keeps separate queries. Write it with
# `attention` alone. Which of the four linears shrink, and to what? How much less is kept?


# %% tags=["solution"]
class SharedKeys(MultiHeadedAttention):
    """h queries a word, one key and one value."""

    def __init__(self, h: int, d_model: int):
        super().__init__(h, d_model, dropout=0.0)
        self.linears[1] = nn.Linear(d_model, self.d_k)
        self.linears[2] = nn.Linear(d_model, self.d_k)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        to_query, to_key, to_value, to_output = self.linears
        k, v = to_key(memory).unsqueeze(1), to_value(memory).unsqueeze(1)  # (B, 1, S, d_k): broadcast to h
        heads, _ = attention(self.split(to_query(query)), k, v)
        return to_output(self.join(heads))


lean = SharedKeys(8, 512)
full = MultiHeadedAttention(8, 512, dropout=0.0)
for linear, small in zip(full.linears, lean.linears, strict=True):
    times = 512 // small.out_features  # 8 for keys and values, 1 for the others
    linear.weight.data, linear.bias.data = small.weight.data.repeat(times, 1), small.bias.data.repeat(times)
x = torch.randn(1, 5, 512)
assert_close(lean(x, x), full(x, x, x))  # it is the full layer, with eight equal heads of keys and values
full_size, lean_size = (sum(p.numel() for p in m.parameters()) for m in (full, lean))
print(f"parameters: {full_size:,} -> {lean_size:,}; kept a word: {2 * 512} -> {2 * 64} numbers")

# %% [markdown]
# A layer of attention mixes words, linearly but for its weights. What is done to each word by itself,
# between two such mixtures, is the subject of
# [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb).
