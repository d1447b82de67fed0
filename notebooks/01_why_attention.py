# %% [markdown]
# # 01 · Why attention
#
# **We follow the road from the recurrent network to self-attention, watch a network fail to carry one
# symbol across sixteen others, and check the paper's Table 1 by gradient and by count.**
#
# Previous: [00_start_here](00_start_here.ipynb) · Next: [02_attention](02_attention.ipynb)
#
# *24 minutes to read, a minute to run, the exercises extra.*
#
# - **Before:** you know tensors, the matrix product, `nn.Module`, and a training loop with `backward()`.
# - **After:** you know which problems attention was invented for, and what Table 1 counts.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 1, 2 and 4. The
# sign `≈` stands before a number that may differ a little on another processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from collections.abc import Callable
from itertools import product
from statistics import median

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated import MultiHeadedAttention, PositionwiseFeedForward, attention
from annotated.plots import plot_against, setup_notebook

setup_notebook()
torch.set_num_threads(1)


# %%
def chain(y: Tensor, kind: str = "") -> int:
    """The longest chain of operations behind y, each waiting for the one before; those of this kind count."""
    level, length = {y.grad_fn}, 0
    while level:
        length += any(kind in node.name() for node in level)
        level = {before for node in level for before, _ in node.next_functions if before is not None}
    return length


# %% [markdown]
# ## Section 1: the encoder-decoder and its one vector
#
# > "[Recurrent models] generate a sequence of hidden states $h_t$, as a function of the previous
# > hidden state $h_{t-1}$ and the input for position $t$."
#
# A **recurrent neural network** (RNN) reads word by word. The **hidden state** is a vector, all that it
# knows so far; in the simplest case, $h_t = \tanh(W x_t + U h_{t-1})$. The LSTM (*long short-term memory*)
# adds *gates*, which decide how much of the old state is kept.
#
# For translation, two RNNs were joined in 2014 (Cho et al.; Sutskever et al.). The **encoder** reads the
# source sentence. The **decoder** writes the target, and each word that it has written is its next input:
# it is **auto-regressive**.
#
# ![An RNN encoder-decoder with one vector between its halves; the same with attention; a Transformer's
# encoder](../images/before.svg)
#
# *Figure 1. Left: one vector carries the whole sentence. Middle: the decoder looks back at all encoder
# states. Right: no recurrence is left.*
#
# **The bottleneck.** On the left, the last encoder state has $d$ numbers, whether the sentence has five
# words or fifty. Cho et al. found that long sentences were translated badly (Sutskever et al. reported no
# such trouble). Bahdanau et al. (2014) kept *all* encoder states $h_1 \dots h_n$. For each decoder state
# $s$, a small network gives each $h_j$ a score $e_j$. A softmax turns the scores into weights that add up
# to 1. The decoder reads the weighted sum of the encoder states, the **context vector** $c$:
#
# $$e_j = v^\top\tanh(As + Bh_j),\qquad \alpha = \mathrm{softmax}(e),\qquad c = \sum_j \alpha_j h_j$$
#
# **Exercise 1 (medium).** Write Bahdanau's context vector for one decoder state.


# %% tags=["exercise"]
def context_vector(s: Tensor, h: Tensor, A: Tensor, B: Tensor, v: Tensor) -> Tensor:
    """Decoder state (d,), encoder states (n, d), weights (a, d), (a, d) and (a,) -> context vector (d,)."""
    raise NotImplementedError


# %% tags=["solution"]
def context_vector(s: Tensor, h: Tensor, A: Tensor, B: Tensor, v: Tensor) -> Tensor:
    scores = torch.tanh(A @ s + h @ B.T) @ v  # (n,): A @ s is the same for every encoder state
    return scores.softmax(dim=0) @ h


# %% tags=["exercise-test"]
s, h, A, B, v = torch.randn(6), torch.randn(4, 6), torch.randn(5, 6), torch.randn(5, 6), torch.randn(5)
e = torch.stack([v @ torch.tanh(A @ s + B @ state) for state in h])
by_hand = sum(weight * state for weight, state in zip(e.exp() / e.exp().sum(), h, strict=True))
assert_close(context_vector(s, h, A, B, v), by_hand)
assert_close(context_vector(s, h, A, B, 0 * v), h.mean(dim=0))  # equal scores: the plain mean
error = (context_vector(s, h, A, B, v) - by_hand).abs().max()
print(f"largest difference from the formula, written as a loop: ≈{error:.0e}")

# %% [markdown]
# ## Section 2: self-attention before 2017
#
# In **self-attention**, a sequence looks at itself. Cheng et al. (2016) added it to an LSTM. ByteNet and
# ConvS2S replaced recurrence by *convolutions*, in which each output is computed from $k$ neighbouring
# inputs. The Transformer came "without using sequence-aligned RNNs or convolution".
#
# ![A recurrent layer, one with self-attention beside it, two convolutional layers, and self-attention
# alone](../images/layers.svg)
#
# *Figure 2. Four ways to relate the positions of one sequence, simplified. The thick line is the path from
# the first word to the last output.*
#
# ## A symbol to remember
#
# Does *is* or *are* fit this gap?
#
# > The **keys** that the man who lives above the shop on the corner lost ___ here.
#
# It is *are*, because of a word 13 words earlier. Here is the problem made small: after a row of random
# symbols of eight kinds, the network has to name the first. Guessing is right once in eight times. The
# first is marked, because attention alone does not know the order ([02](02_attention.ipynb)). So the task
# is made for attention; an RNN needs no mark.

# %%
SYMBOLS, WIDTH = 8, 32


class Remember(nn.Module):
    """A vector for each symbol, a layer that gives one vector for the row, and scores for the answer."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, WIDTH)  # a table with one vector for each symbol
        self.mark = nn.Parameter(torch.randn(WIDTH))
        self.layer = layer
        self.guess = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        """Rows of symbols (B, n) -> scores (B, SYMBOLS)."""
        x = self.symbol(symbols)  # (B, n, WIDTH)
        marked = x[:, :1] + self.mark
        return self.guess(self.layer(torch.cat([marked, x[:, 1:]], dim=1)))


# %%
class LastState(nn.Module):
    """A recurrent layer, of which we keep the state after the last word."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> the last state (B, WIDTH)."""
        return self.net(x)[0][:, -1]


def rnn() -> nn.Module:
    return LastState(nn.RNN(WIDTH, WIDTH, batch_first=True))


# %% [markdown]
# We train with Adam ([08](08_training_recipe.ipynb)) until 95% of the answers in ten batches are right, or
# give up after 250 updates.


# %%
def train(layer: Callable[[], nn.Module], distance: int, seed: int) -> tuple[Remember, int | None]:
    """A trained model, and the updates until 95% of ten batches are right; None if 250 do not suffice."""
    torch.manual_seed(seed)
    model = Remember(layer())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    right = []
    for update in range(1, 251):
        symbols = torch.randint(SYMBOLS, (64, distance + 1))
        scores = model(symbols)
        F.cross_entropy(scores, symbols[:, 0]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        right.append((scores.argmax(dim=-1) == symbols[:, 0]).float().mean().item())
        if sum(right[-10:]) > 9.5:
            return model, update
    return model, None


SEEDS = (0, 1, 2)
runs = {("RNN", distance): [train(rnn, distance, seed) for seed in SEEDS] for distance in (4, 16)}
for (_, distance), trained in runs.items():
    shown = ["not in 250" if updates is None else f"≈{updates}" for _, updates in trained]
    print(f"RNN, distance {distance:2}: updates, three seeds: {', '.join(shown)}")
    assert all((updates is not None) == (distance == 4) for _, updates in trained)

# %% [markdown]
# Is the state too small? No: here are weights, set by hand, that do the task with only *three* numbers. The
# first symbol decides their signs: three bits, for eight symbols. Each is then ±tanh(1) = ±0.76. $U = 4I$
# makes it ±3.05, so the ±1 of a later symbol cannot change its sign.

# %%
codes = torch.tensor(list(product((-1.0, 1.0), repeat=3)))  # (8, 3): each symbol as three signs
latch = nn.RNN(3, 3, bias=False, batch_first=True)
latch.weight_ih_l0.data, latch.weight_hh_l0.data = torch.eye(3), 4 * torch.eye(3)

_ = torch.manual_seed(0)
symbols = torch.randint(SYMBOLS, (500, 1001))
last = latch(codes[symbols])[0][:, -1]  # (500, 3)
remembered = (last.sign() == codes[symbols[:, 0]]).all(dim=-1).sum()
print("rows whose first symbol is still known after 1,000 others:", remembered.item(), "of", len(symbols))
assert remembered == len(symbols)

# %% [markdown]
# So an RNN *can* remember, but training did not find such weights in 250 updates. Why?
#
# ## What arrives: the vanishing gradient
#
# > "One key factor affecting the ability to learn such dependencies is the length of the paths forward
# > and backward signals have to traverse in the network." (section 4)
#
# The backward signal is the gradient. We send a random one into the output of untrained layers and measure
# its norm at each input word: in an RNN, in an LSTM, in one whose forget gates start open, and in one
# attention layer. That is Bahdanau's weighted mean with a dot product as its score: one linear map makes a
# *query* of the last word, a second a *key* of each word, a third the *values* of which the mean is taken.
# A forget gate is a sigmoid by which each step multiplies the old state: untrained about 0.5; with a bias
# of 3 it starts *open*, at about 0.95.


# %%
class LookUp(nn.Module):
    """One attention: the last word asks, all words answer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> what the last one found (B, WIDTH)."""
        found, self.weights = attention(self.query(x[:, -1:]), self.key(x), self.value(x))
        return found[:, 0]


def lstm(forget: float = 0.0) -> nn.Module:
    layer = LastState(nn.LSTM(WIDTH, WIDTH, batch_first=True))
    layer.net.bias_hh_l0.data[WIDTH : 2 * WIDTH] += forget  # the second quarter: the forget gate
    return layer


# %%
def arriving(layer: nn.Module, n: int = 65) -> Tensor:
    """The mean norm of the gradient at the word 0, 1, 2 ... n - 1 positions back: (n,)."""
    x = torch.randn(64, n, WIDTH, dtype=torch.float64, requires_grad=True)
    signal = torch.randn(64, WIDTH, dtype=torch.float64)
    (layer.double()(x) * signal).sum().backward()
    return x.grad.norm(dim=-1).mean(dim=0).flip(0)


makers = {
    "RNN": rnn, "LSTM": lstm, "LSTM, gates open": lambda: lstm(3.0), "attention": LookUp,
}  # fmt: skip
_ = torch.manual_seed(0)
norms = {name: arriving(make()) for name, make in makers.items()}
factors = {name: ((norm[48] / norm[8]) ** (1 / 40)).item() for name, norm in norms.items()}
for name, factor in factors.items():
    print(f"{name:17} a step back multiplies it by ≈{factor:.2f}, 64 steps by ≈{factor**64:.0e}")
assert max(factors["RNN"], factors["LSTM"]) < 0.7
assert min(factors["LSTM, gates open"], factors["attention"]) > 0.96

# %% tags=["figure-vanishing"]
ax = plot_against(
    range(65), {name: norm.tolist() for name, norm in norms.items()},
    "What reaches a word that far back", "distance (words)", "gradient norm", xscale="linear",
)  # fmt: skip
for line in ax.lines:
    line.set_markevery(8)
plt.show()

# %% [markdown]
# *Figure 3. The gradient that arrives at a word.*
#
# This is the **vanishing gradient** (Hochreiter, 1991; Bengio et al., 1994). The distance is an
# *exponent*: $0.9^{100}$ is 0.00003, so the factor of a step must be very close to 1. The LSTM of 1997
# kept its state with a factor of 1; the forget gate came in 2000 (Gers et al.), and an open one brings the
# factor close to 1 again. (The RNN's ≈0.43 belongs to PyTorch's initialisation, where $U$ has a spectral
# radius of about 0.58.) In attention there is only one step: its curve is flat, though low, because each
# of 65 words has a weight of about 1/65.

# %% [markdown]
# ## Section 4: Table 1
#
# Each layer takes $n$ vectors of $d$ numbers to $n$ others. *Complexity* counts multiplications; *sequential
# operations* wait for one another; a *path* leads from an input to an output.
#
# | layer | complexity per layer | sequential operations | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, kernel width $k$ | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention restricted to $r$ neighbours | $O(r n d)$ | $O(1)$ | $O(n/r)$ |
#
# We check it from right to left. All our layers but self-attention look backwards only.


# %%
def recurrent(x: Tensor, W: Tensor, U: Tensor) -> Tensor:
    """One position after the other: (n, d) -> (n, d); W and U (d, d)."""
    state, states = torch.zeros_like(x[:1]), []
    for row in x.split(1):
        state = torch.tanh(row @ W + state @ U)  # (1, d)
        states.append(state)
    return torch.cat(states)


def convolution(x: Tensor, K: Tensor, dilation: int = 1) -> Tensor:
    """A weighted sum of k positions, `dilation` apart, the own one the last of them; K (d, d, k)."""
    back = dilation * (K.size(-1) - 1)
    return F.conv1d(F.pad(x.T, (back, 0)), K, dilation=dilation).T


def self_attention(x: Tensor) -> Tensor:
    """A weighted mean over all positions."""
    return attention(x, x, x)[0]


# %%
def restricted(x: Tensor, r: int) -> Tensor:
    """Self-attention over the last r positions: gather them, and compute nothing else."""
    n, d = x.shape
    near = F.pad(x, (0, 0, r - 1, 0)).unfold(0, r, 1)  # (n, d, r): each position's r, itself the last
    position = torch.arange(n, device=x.device).unsqueeze(1) + torch.arange(1 - r, 1, device=x.device)
    scores = torch.einsum("nd,ndr->nr", x, near) / math.sqrt(d)
    scores = scores.masked_fill(position < 0, -math.inf)  # before the first there is nothing
    return torch.einsum("nr,ndr->nd", scores.softmax(dim=-1), near)


def weights(*shape: int) -> Tensor:
    """Random weights; random words keep their size in passing through."""
    return torch.randn(*shape, dtype=torch.float64) / math.prod(shape[1:]) ** 0.5


_ = torch.manual_seed(0)
n, d = 16, 4
x, W, U, K = torch.randn(n, d, dtype=torch.float64), weights(d, d), weights(d, d), weights(d, d, 3)
assert_close(restricted(x, 5)[7], attention(x[7:8], x[3:8], x[3:8])[0][0])

# %% [markdown]
# ## Maximum path length
#
# There is a path from the first word to the last output if that output has a gradient at this word. How
# many layers does it take? One recurrent layer is enough, but inside it the word is handed on from state to
# state, so there we count each `tanh`. We add a **dilated** convolution: its three words lie 1 apart in the
# first layer, 3 in the second, 9 in the third.


# %%
layers = {
    "recurrent": lambda x, index: recurrent(x, W, U),
    "convolution, k = 3": lambda x, index: convolution(x, K),
    "dilated, k = 3": lambda x, index: convolution(x, K, dilation=3**index),
    "restricted, r = 5": lambda x, index: restricted(x, 5),
    "self-attention": lambda x, index: self_attention(x),
}


# %%
def layers_needed(layer, n: int) -> int:
    """How many layers until the last of n words depends on the first."""
    x = torch.randn(n, d, dtype=torch.float64, requires_grad=True)
    y, depth, arrived = x, 0, False
    while not arrived:
        y, depth = layer(y, depth), depth + 1
        (grad,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        arrived = bool(grad[0].abs().sum() > 0)
    return depth


# %% tags=["figure-path-length"]
lengths = (5, 9, 17, 33, 65, 129)
rows = [torch.randn(n, d, dtype=torch.float64, requires_grad=True) for n in lengths]
paths = {name: [layers_needed(layer, n) for n in lengths] for name, layer in layers.items()}
paths["recurrent"] = [chain(recurrent(row, W, U)[-1], "Tanh") for row in rows]

plot_against(lengths, paths, "Maximum path length", "length n (words)", "steps, first word to last")
plt.show()
assert paths["recurrent"] == list(lengths)
assert paths["self-attention"] == [1] * 6
assert paths["convolution, k = 3"] == [(n - 1) // 2 for n in lengths]
assert paths["restricted, r = 5"] == [(n - 1) // 4 for n in lengths]
assert paths["dilated, k = 3"] == [math.ceil(math.log(n - 0.5, 3)) for n in lengths]  # safe from rounding

# %% [markdown]
# *Figure 4. The path from the first of n words to the last.*
#
# The logarithm holds for dilated convolutions only; contiguous kernels need "a stack of $O(n/k)$
# convolutional layers" (section 4).
#
# ### The gradient counts the paths
#
# Why a logarithm to the base $k$? Let each word be one number, and all weights of a convolution 1. Then each
# path adds exactly 1 to the gradient: **the gradient counts the paths.**


# %% tags=["figure-paths"]
def count_paths(dilations: list[int], n: int = 30) -> Tensor:
    """How many paths lead to the last of n words from the one 0, 1, 2 ... positions back: (n,)."""
    x = torch.zeros(n, 1, dtype=torch.float64, requires_grad=True)
    y, ones = x, torch.ones(1, 1, 3, dtype=torch.float64)
    for dilation in dilations:
        y = convolution(y, ones, dilation)
    y[-1].sum().backward()
    return x.grad.flatten().flip(0)


stacks = {"13 contiguous layers": [1] * 13, "dilated 1, 3, 9": [1, 3, 9]}
ways = {name: count_paths(dilations) for name, dilations in stacks.items()}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True, sharey=True)
for ax, (name, count) in zip(axes, ways.items(), strict=True):
    print(f"{name:20} {int(count.sum()):9,} paths to {int((count > 0).sum())} words")
    ax.bar(range(30), 100 * count / count.sum(), width=0.8)
    ax.set(title=name, xlabel="distance (words back)", ylabel="paths (%)")
plt.show()
assert ways["13 contiguous layers"][10:17].sum() > 0.75 * 3**13
assert ways["13 contiguous layers"][26] == 1
assert (ways["dilated 1, 3, 9"] == (torch.arange(30) < 27)).all()  # one path each, no more and no fewer

# %% [markdown]
# *Figure 5. Paths to the last word, by distance. Both stacks reach 27 words; many bars on the left are too
# low to see.*
#
# On the left, the furthest word has one of 1,594,323 paths, and seven words share three quarters of them.
# On the right, every word has exactly **one**. At each layer a path goes back 0, 1 or 2 steps of 1, 3 or 9
# words. Back 11 words there is only $2\cdot1+0\cdot3+1\cdot9$: *the path is the distance written in base 3,
# one digit for each layer*.
#
# ## Sequential operations
#
# > "This inherently sequential nature precludes parallelization within training examples, which becomes
# > critical at longer sequence lengths" (section 1)
#
# `chain` counts the longest chain of operations that wait for each other; like Table 1, it takes a matrix
# product or a softmax for one. We add self-attention over recurrent states. (Before 2017, attention mostly
# joined two recurrent networks.)

# %%
rows = [torch.randn(n, d, dtype=torch.float64, requires_grad=True) for n in (8, 16, 32, 64)]
both = {"recurrent + attention": lambda x, index: self_attention(recurrent(x, W, U))}
chains = {name: [chain(layer(row, 0)) for row in rows] for name, layer in {**layers, **both}.items()}
for name, counted in chains.items():
    print(f"{name:21} longest chain for 8, 16, 32, 64 words: {counted}")
assert [len(set(counted)) > 1 for counted in chains.values()] == [True, False, False, False, False, True]
assert chains["recurrent"] == [3 * n + 3 for n in (8, 16, 32, 64)]

# %% [markdown]
# Attention on top
# shortens the path, not the chain, so the paper removes the recurrence.
#
# **Exercise 2 (hard).** Must a recurrent layer have a chain of $O(n)$? Leave out the `tanh` and the matrix:
# $h_t = a_t h_{t-1} + x_t$, products elementwise, $h_{-1} = 0$. Compute all $h_t$ with a chain that grows
# with $\log_2 n$ (a *parallel scan*). Hint: write $h_t$ in terms of $h_{t-2}$.


# %% tags=["exercise"]
def doubling(a: Tensor, x: Tensor) -> Tensor:
    """a, x (n, d) -> all states (n, d), in a chain that grows with the logarithm of n."""
    raise NotImplementedError


# %% tags=["solution"]
def doubling(a: Tensor, x: Tensor) -> Tensor:
    """h_t = a_t h_{t-s} + x_t with s = 1, 2, 4 ...; where there is no h_{t-s}, x_t is the answer."""
    s = 1
    while s < len(x):
        x = torch.cat([x[:s], x[s:] + a[s:] * x[:-s]])
        a = torch.cat([a[:s], a[s:] * a[:-s]])
        s *= 2
    return x


# The tanh forbids it: two steps with a tanh cannot be written as one step of the same form. Some state-space
# models, which do without it, are trained in this way (S5, Mamba; S4 as a convolution). Table 1 has no row
# for them. (Our counts favour attention: its sum over n words takes log2 n steps as well, but counts as one.)


# %% tags=["exercise-test"]
for n in (16, 64, 256):
    a, x = torch.rand(n, 4, requires_grad=True), torch.randn(n, 4, requires_grad=True)
    states = [x[0]]
    for t in range(1, n):
        states.append(a[t] * states[-1] + x[t])
    assert_close(doubling(a, x), torch.stack(states))
    assert chain(doubling(a, x)) < 6 * math.log2(n)
    print(f"{n:3} words: longest chain {chain(doubling(a, x))}")

# %% [markdown]
# ## Complexity per layer
#
# > "In terms of computational complexity, self-attention layers are faster than recurrent layers when the
# > sequence length $n$ is smaller than the representation dimensionality $d$"
#
# PyTorch can count the multiply-adds of matrix products, even on the device `meta`, where tensors have no
# numbers. We double $n$, then $d$, and read off the exponents.


# %%
def multiply_adds(compute: Callable) -> int:
    """Multiplications, each with its addition, in all matrix products of compute()."""
    with FlopCounterMode(display=False) as counter:
        compute()
    return counter.get_total_flops() // 2


def empty(*shape: int) -> Tensor:
    return torch.empty(*shape, device="meta")


cost = {
    "self-attention": lambda n, d: self_attention(empty(n, d)),
    "recurrent": lambda n, d: recurrent(empty(n, d), empty(d, d), empty(d, d)),
    "convolution, k = 3": lambda n, d: convolution(empty(n, d), empty(d, d, 3)),
    "restricted, r = 5": lambda n, d: restricted(empty(n, d), 5),
}
found = {}
for name, layer in cost.items():
    sizes = ((64, 512), (128, 512), (64, 1024))
    once, longer, wider = (multiply_adds(lambda: layer(*size)) for size in sizes)  # noqa: B023
    a, b = round(math.log2(longer / once)), round(math.log2(wider / once))
    found[name] = once // (64**a * 512**b), a, b
    print(f"{name:19} {once:11,} multiply-adds, {found[name][0]:2} times n^{a} times d^{b}")
assert [*found.values()] == [(2, 2, 1), (2, 1, 2), (3, 1, 2), (2 * 5, 1, 1)]

# %% [markdown]
# That is the first column, with the factors that the $O$ hides. Attention and the recurrent layer cost the
# same at $n = d$, and sentences are nearly always shorter than $d = 512$.
#
# But the attention layer of the model also has four linear maps ([03](03_multi_head_attention.ipynb)),
# which cost $4nd^2$ and are not in Table 1. With them it is never cheaper than a plain RNN ($2nd^2$). Its
# rival in 2017, the LSTM, has four maps where the RNN has one: $8nd^2$, which is more if $n$ is below
# $2d=1024$.
#
# An *encoder* layer is this attention and a feed-forward network four times as wide. How large is its $n^2$
# part?

# %%
d = 512
multi_head = MultiHeadedAttention(8, d, dropout=0.0).to("meta")
feed_forward = PositionwiseFeedForward(d, 4 * d, dropout=0.0).to("meta")
assert multiply_adds(lambda: multi_head(*[empty(1, 2 * d, d)] * 3)) == 8 * (2 * d) * d**2  # as an LSTM
for n in (25, 250, 3072):
    x = empty(1, n, d)
    whole = multiply_adds(lambda: multi_head(x, x, x)) + multiply_adds(lambda: feed_forward(x))  # noqa: B023
    square = 2 * n**2 * d
    print(f"{n:5,} words: the quadratic part is {square / whole:5.1%} of an encoder layer")
    assert square / whole == n / (n + 6 * d)

# %% [markdown]
# For 25 words, **the $n^2$ part is 0.8% of the layer's multiply-adds**.
#
# ## Back to the symbol
#
# Does the path length predict what is learned? We train again, with distances up to 64. (The RNN and the
# default LSTM, which fail at 16, are left out at 64.)


# %%
class Dilated(nn.Module):
    """Convolutions with k = 3, looking backwards, as many as reach the first word; the last word's output."""

    def __init__(self, distance: int):
        super().__init__()
        depth = math.ceil(math.log(distance + 1, 3))
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, dilation=3**i) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> (B, WIDTH)."""
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(F.pad(x, (2 * layer.dilation[0], 0))).relu()
        return x[..., -1]


# %% tags=["figure-remembered"]
distances = (4, 16, 64)
candidates = {
    "LSTM": lambda distance: lstm(),
    "LSTM, gates open": lambda distance: lstm(3.0),
    "dilated convolutions": Dilated,
    "attention": lambda distance: LookUp(),
}
for name, make in candidates.items():
    for distance in distances[: 2 if name == "LSTM" else 3]:
        runs[name, distance] = [train(lambda: make(distance), distance, seed) for seed in SEEDS]  # noqa: B023

curves = {}
for name in ("RNN", *candidates):
    needed = [[updates for _, updates in runs.get((name, distance), [])] for distance in distances]
    curves[name] = [math.nan if not u else None if None in u else median(u) for u in needed]
ax = plot_against(
    distances, curves, "Updates until the symbol is remembered", "distance", "updates", limit=250
)
ax.set_yticks([20, 40, 80, 160, 250], ["20", "40", "80", "160", "not in 250"])
ax.yaxis.set_minor_locator(plt.NullLocator())
plt.show()
assert curves["RNN"][1] is curves["LSTM"][1] is curves["LSTM, gates open"][2] is None
assert curves["attention"][2] > 1.5 * curves["attention"][0]
assert None not in [*curves["LSTM, gates open"][:2], *curves["dilated convolutions"], *curves["attention"]]

# %% [markdown]
# *Figure 6. The median over three seeds. A cross: with at least one seed, 250 updates were not enough. At
# 16 those of RNN and LSTM coincide.*
#
# The two layers with short paths learn at all three distances. But of the three with long
# paths, the LSTM with open gates gets furthest. Attention, whose path is 1 at *every* distance, slows down:
# at 64 it needs more updates than convolutions with a path of 4. Two guesses, each with a control:
#
# - *The gates.* With a bias of 3, a gate keeps $0.95^{64}$, about 4%, of one number (the layer passes more
#   on, Figure 3). A bias of 6 keeps 85% (see *chrono initialisation*, Tallec & Ollivier, 2018).
# - *Attention.* The marked word starts with a weight of about $1/n$. We raise its score until it starts with
#   about 1/5, as at distance 4.


# %%
class HeadStart(LookUp):
    """The same, but the first of n words starts with a weight of about 1/5 instead of 1/n."""

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x[:, -1:]) @ self.key(x).mT / math.sqrt(WIDTH)  # (B, 1, n)
        scores[..., 0] += math.log((x.size(1) - 1) / 4)
        return (scores.softmax(dim=-1) @ self.value(x))[:, 0]


for name, make, limit in (("LSTM, bias 6", lambda: lstm(6.0), 250), ("attention, head start", HeadStart, 50)):
    needed = [updates for _, updates in (train(make, 64, seed) for seed in SEEDS) if updates]
    print(f"{name:21} at distance 64: ≈{len(needed)} of 3 seeds learn, median ≈{median(needed):.0f} updates")
    assert median(needed) < limit

# %% [markdown]
# The head start helps; for the gates, three seeds cannot tell. Path length is "one key factor", not the
# only one.
#
# ## What attention pays
#
# > "In the Transformer this is reduced to a constant number of operations, albeit at the cost of reduced
# > effective resolution due to averaging attention-weighted positions" (section 2)
#
# An output of attention is a *mean*: where the scores are equal, each of $n$ words has the weight $1/n$.
# Training can undo this by giving one word a much higher score. Does what our layer learned at distance 64
# still work at 4,096? And what the RNN learned at 4, at 16? (Its wrong answers may be a code, so we also
# rename each to the symbol that most often leads to it.)


# %%
@torch.no_grad()
def ask(model: Remember, distance: int, rows: int) -> Tensor:
    """How often each first symbol (down) got each answer (across), as shares of all rows: (8, 8)."""
    symbols = torch.randint(SYMBOLS, (rows, distance + 1))
    both = SYMBOLS * symbols[:, 0] + model(symbols).argmax(dim=-1)
    return both.bincount(minlength=SYMBOLS**2).view(SYMBOLS, SYMBOLS) / rows


near, far = ([model for model, _ in runs[key]] for key in (("RNN", 4), ("attention", 64)))
at_16, at_4096 = [ask(model, 16, 2000) for model in near], [ask(model, 4096, 100) for model in far]
found = {
    "RNN, trained at 4, asked at 16: right": [share.trace() for share in at_16],
    "  if an answer meant the symbol that most often leads to it": [s.amax(dim=0).sum() for s in at_16],
    "attention, trained at 64, asked at 4,096: right": [share.trace() for share in at_4096],
    "  weight of the marked word": [model.layer.weights[..., 0].mean() for model in far],
}
for name, shares in found.items():
    print(f"{name:58}", ", ".join(f"≈{share:.0%}" for share in shares))
rnn_right, renamed, right, weight = found.values()
assert median(rnn_right) < 0.08 < 0.4 < median(renamed)  # guessing: 0.125
assert min(*right, *weight) > 0.7

# %% [markdown]
# At 16, none of the RNNs answers well. Guessing would give 12%; two networks, with nearly 0%, are
# *systematically* wrong. Their state still carries the first symbol, in another code.
#
# Attention finds the marked word at both distances. But a query that needs two words must share its weight,
# "an effect we counteract with Multi-Head Attention" ([03](03_multi_head_attention.ipynb)).
#
# **Exercise 3 (easy).** Sutskever et al. (2014) translated much better when the encoder read the source
# *backwards*. Let target word $i$ translate source word $i$, $n = 10$. How many steps lie between the two,
# forwards and backwards? If each step halves the gradient, how many times as much arrives on average?

# %% tags=["solution"]
n = 10
written = torch.arange(n) + n  # when target word i is written, the source words having taken 0 to n - 1
forwards = written - torch.arange(n)
backwards = written - torch.arange(n).flip(0)
arrives = (0.5**backwards).mean() / (0.5**forwards).mean()
print("forwards: ", forwards.tolist(), " mean", forwards.float().mean().item())
print("backwards:", backwards.tolist(), " mean", backwards.float().mean().item())
print(f"backwards, {arrives:.0f} times as much arrives on average: a few close pairs let learning begin")
