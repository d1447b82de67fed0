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
# - **Before:** you know tensors, the matrix product, and that `backward()` fills `.grad`.
# - **After:** you know which problems attention was invented for, and what Table 1 counts.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 1, 2 and 4;
# indented sentences are quoted from it. The sign `≈` stands before a number that may differ a little on
# another processor.

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
from annotated.plots import plot_against, plot_reach, setup_notebook

setup_notebook()
torch.set_num_threads(1)

# %% [markdown]
# ## Section 1: the encoder-decoder and its one vector
#
# > "[Recurrent models] generate a sequence of hidden states $h_t$, as a function of the previous
# > hidden state $h_{t-1}$ and the input for position $t$."
#
# A **recurrent neural network** (RNN) reads word by word. The **hidden state** is a vector, all that it
# knows so far; in the simplest case, $h_t = \tanh(W x_t + U h_{t-1})$. The LSTM adds *gates*, which decide
# how much of the old state is kept.
#
# For translation, two RNNs were joined in 2014 (Cho et al.; Sutskever et al.). The **encoder** reads the
# source sentence. The **decoder** writes the target sentence word by word, and each word that it has
# written is its next input. Such a model is called **auto-regressive**; the Transformer is one too.
#
# ![An RNN encoder-decoder with one vector between its halves; the same with attention; a Transformer's
# encoder](../images/before.svg)
#
# *Figure 1. Left: one vector carries the whole sentence. Middle: the decoder looks back at all encoder
# states. Right: no recurrence is left.*
#
# **The bottleneck.** On the left, the last encoder state has $d$ numbers, whether the sentence has five
# words or fifty, and long sentences were translated badly. Bahdanau et al. (2014) kept *all* encoder
# states $h_1 \dots h_n$. For each decoder state $s$, a small network gives each $h_j$ a score $e_j$. A
# softmax turns the scores into weights that add up to 1. The decoder reads the weighted sum of the encoder
# states, the **context vector** $c$:
#
# $$e_j = v^\top \tanh(W s + U h_j), \qquad \alpha = \mathrm{softmax}(e), \qquad c = \sum_j \alpha_j h_j$$
#
# **Exercise 1 (medium).** Write Bahdanau's attention: the context vector for one decoder state.


# %% tags=["exercise"]
def context_vector(s: Tensor, h: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    """Decoder state (d,), encoder states (n, d), weights (a, d), (a, d) and (a,) -> context vector (d,)."""
    raise NotImplementedError


# %% tags=["solution"]
def context_vector(s: Tensor, h: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    scores = torch.tanh(W @ s + h @ U.T) @ v  # (n,): W @ s is the same for every encoder state
    return scores.softmax(dim=0) @ h


# %% tags=["exercise-test"]
s, h, W, U, v = torch.randn(6), torch.randn(4, 6), torch.randn(5, 6), torch.randn(5, 6), torch.randn(5)
e = torch.stack([v @ torch.tanh(W @ s + U @ state) for state in h])
by_hand = sum(weight * state for weight, state in zip(e.exp() / e.exp().sum(), h, strict=True))
assert_close(context_vector(s, h, W, U, v), by_hand)
assert_close(context_vector(s, h, W, U, 0 * v), h.mean(dim=0))  # equal scores: the plain mean
error = (context_vector(s, h, W, U, v) - by_hand).abs().max()
print(f"largest difference from the formula, written as a loop: ≈{error:.0e}")

# %% [markdown]
# ## Section 2: self-attention before 2017
#
# > "To the best of our knowledge, however, the Transformer is the first transduction model relying
# > entirely on self-attention to compute representations of its input and output without using
# > sequence-aligned RNNs or convolution."
#
# (*Transduction* turns one sequence into another.) In **self-attention**, a sequence looks at itself. Cheng
# et al. (2016) let an LSTM look back at its own earlier states. ByteNet and ConvS2S replaced recurrence by
# *convolutions*, in which each output is computed from $k$ neighbouring inputs. The Transformer does
# without both.
#
# ![A recurrent layer, one with self-attention beside it, two convolutional layers, and self-attention
# alone](../images/layers.svg)
#
# *Figure 2. Four ways to relate the positions of one sequence, simplified. The thick line is the path from
# the first word to the last output.*
#
# ## A symbol to remember
#
# What is wrong with recurrence? Does *is* or *are* fit this gap?
#
# > The **keys** that the man who lives above the shop on the corner lost ___ here.
#
# It is *are*, because of a word 13 words earlier. Here is the problem made small: after a row of random
# symbols of eight kinds, the network has to name the first, which is marked. Guessing is right once in
# eight times.

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
# We train with the optimiser Adam ([08_training_recipe](08_training_recipe.ipynb)) until 95% of the
# answers in ten batches are right, or give up after 250 updates. At distance 16, 16 symbols follow the
# first.


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
# Is the state too small? No: here are weights, set by hand, that do the task with a state of only *three*
# numbers. The first symbol alone decides the sign of each number: three bits, enough for eight symbols.
# The matrix $U = 4I$ then pushes every number so close to +1 or -1 that no later symbol can change its
# sign.

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
# So an RNN *can* remember, but in 250 updates training did not find such weights. Why not?
#
# ## What arrives: the vanishing gradient
#
# > "One key factor affecting the ability to learn such dependencies is the length of the paths forward
# > and backward signals have to traverse in the network." (section 4)
#
# The backward signal is the gradient. We send a random one into the output of untrained layers and
# measure its norm at each input word: in an RNN, in an LSTM, in one whose forget gates start open, and in
# one attention layer, a weighted mean of all words ([02_attention](02_attention.ipynb) builds it).


# %%
class LookUp(nn.Module):
    """One attention: the last word asks, all words answer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> what the last one found (B, WIDTH)."""
        return attention(self.query(x[:, -1:]), self.key(x), self.value(x))[0][:, 0]


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
# *Figure 3. The gradient that arrives at a word, by its distance from the end. A straight line is a
# constant factor at each step.*
#
# This is the **vanishing gradient** (Hochreiter, 1991; Bengio et al., 1994). The distance is an
# *exponent*: $0.9^{100}$ is 0.00003 and $1.1^{100}$ is 13,781, so the factor of a step must be very close
# to 1. The LSTM was invented to bring it there, and with open gates it does. In attention there is only one
# step, so the distance is not an exponent.

# %% [markdown]
# ## Section 4: Table 1
#
# Each layer takes $n$ words of $d$ numbers to $n$ words of $d$ numbers:
#
# | layer | complexity per layer | sequential operations | maximum path length |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 \cdot d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n \cdot d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, kernel width $k$ | $O(k \cdot n \cdot d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention restricted to $r$ neighbours | $O(r \cdot n \cdot d)$ | $O(1)$ | $O(n / r)$ |
#
# We check the table from right to left. All our layers but plain self-attention look backwards only, as a
# recurrent layer must.


# %%
def recurrent(x: Tensor, W: Tensor, U: Tensor) -> Tensor:
    """One word after the other: (n, d) -> (n, d); W and U (d, d)."""
    state, states = torch.zeros_like(x[:1]), []
    for word in x.split(1):
        state = torch.tanh(word @ W + state @ U)  # (1, d)
        states.append(state)
    return torch.cat(states)


def convolution(x: Tensor, K: Tensor, dilation: int = 1) -> Tensor:
    """A weighted sum of k words, `dilation` apart, the word itself the last of them; K (d, d, k)."""
    back = dilation * (K.size(-1) - 1)
    return F.conv1d(F.pad(x.T, (back, 0)), K, dilation=dilation).T


def self_attention(x: Tensor) -> Tensor:
    """A weighted mean over all words."""
    return attention(x, x, x)[0]


# %%
def restricted(x: Tensor, r: int) -> Tensor:
    """Self-attention over the last r words: gather them, and compute nothing else."""
    n, d = x.shape
    near = F.pad(x, (0, 0, r - 1, 0)).unfold(0, r, 1)  # (n, d, r): each word's r, the word itself the last
    position = torch.arange(n, device=x.device).unsqueeze(1) + torch.arange(1 - r, 1, device=x.device)
    scores = torch.einsum("nd,ndr->nr", x, near) / math.sqrt(d)
    scores = scores.masked_fill(position < 0, -math.inf)  # before the first word there is nothing
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
# There is a path from word 2 to output 9 if output 9 has a gradient at word 2. We add a **dilated**
# convolution: its three words lie 1 apart in the first layer, 3 in the second, 9 in the third.


# %%
def depends(layer, depth: int) -> Tensor:
    """Which input word (across) each output word (down) depends on, after `depth` layers: bool (n, n)."""

    def stack(x: Tensor) -> Tensor:
        for index in range(depth):
            x = layer(x, index)
        return x.sum(dim=-1)

    return torch.autograd.functional.jacobian(stack, x).abs().sum(dim=-1) > 0


layers = {
    "recurrent": lambda x, index: recurrent(x, W, U),
    "convolution, k = 3": lambda x, index: convolution(x, K),
    "dilated, k = 3": lambda x, index: convolution(x, K, dilation=3**index),
    "restricted, r = 5": lambda x, index: restricted(x, 5),
    "self-attention": lambda x, index: self_attention(x),
}
reach = {name: [depends(layer, depth) for depth in (1, 2, 3)] for name, layer in layers.items()}
counts = {name: [int(grid[-1].sum()) for grid in grids] for name, grids in reach.items()}
for name, reached in counts.items():
    print(f"{name:19} words that reach the last of 16, by layers: {reached}")
assert counts["self-attention"] == counts["recurrent"] == [16] * 3
assert counts["convolution, k = 3"] == [3, 5, 7]
assert counts["dilated, k = 3"] == [3, 9, 16]

# %% tags=["figure-reach"]
chosen = ("recurrent", "convolution, k = 3", "dilated, k = 3", "self-attention")
plot_reach({name.replace(", ", "\n"): reach[name] for name in chosen}, "Who depends on whom")
plt.show()

# %% [markdown]
# *Figure 4. A row is an output word; blue are the input words that it depends on. Only plain self-attention
# also looks forward.*
#
# How many layers does it take until the last of $n$ words depends on the first? One recurrent layer is
# enough, but inside it the word is handed on from state to state, so there we count the `tanh` that makes
# each state.


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


def chain(y: Tensor, kind: str = "") -> int:
    """The longest chain of operations behind y, each waiting for the one before; those of this kind count."""
    level, length = {y.grad_fn}, 0
    while level:
        length += any(kind in node.name() for node in level)
        level = {before for node in level for before, _ in node.next_functions if before is not None}
    return length


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
# *Figure 5. The path from the first of n words to the last.*
#
# The logarithm in the table holds for dilated convolutions only. Section 4 says so: contiguous kernels
# need "a stack of $O(n/k)$ convolutional layers".
#
# ### The gradient counts the paths
#
# Why a logarithm, and why to the base $k$? Let each word be one number, and set all weights of a
# convolution to 1. Then each path adds exactly 1 to the gradient: **the gradient counts the paths.**


# %% tags=["figure-paths"]
def count_paths(dilations: list[int], n: int = 43) -> Tensor:
    """How many paths lead to the last of n words from the one 0, 1, 2 ... positions back: (n,)."""
    x = torch.zeros(n, 1, dtype=torch.float64, requires_grad=True)
    y, ones = x, torch.ones(1, 1, 3, dtype=torch.float64)
    for dilation in dilations:
        y = convolution(y, ones, dilation)
    y[-1].sum().backward()
    return x.grad.flatten().flip(0)


stacks = {"13 contiguous layers": [1] * 13, "dilated 1, 3, 9": [1, 3, 9], "dilated 1, 4, 16": [1, 4, 16]}
ways = {name: count_paths(dilations) for name, dilations in stacks.items()}
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), sharex=True, sharey=True)
for ax, (name, count) in zip(axes, ways.items(), strict=True):
    print(f"{name:20} {int(count.sum()):9,} paths to {int((count > 0).sum())} words")
    ax.bar(range(43), 100 * count / count.sum(), width=0.8)
    ax.set(title=name, xlabel="distance (words back)")
axes[0].set_ylabel("paths (%)")
plt.show()
assert ways["13 contiguous layers"][10:17].sum() > 0.75 * 3**13
assert ways["13 contiguous layers"][26] == 1
assert (ways["dilated 1, 3, 9"] == (torch.arange(43) < 27)).all()  # one path each, no more and no fewer
assert ways["dilated 1, 4, 16"][3] == 0

# %% [markdown]
# *Figure 6. Paths to the last word, by distance, in three stacks that all reach 27 words.*
#
# On the left, the furthest word has one of 1,594,323 paths, and seven words share three quarters of them.
# In the middle, every word has exactly **one** path. At each layer a path goes back 0, 1 or 2 steps, which
# are 1, 3 or 9 words long. To go back 11 words there is only $2\cdot 1 + 0\cdot 3 + 1\cdot 9$. *The path is
# the distance written in base 3, one digit for each layer*: hence $\log_k n$. On the right, base 4 would
# need the digit 3, which three weights do not have. The word three positions back is never reached.
#
# ## Sequential operations
#
# > "This inherently sequential nature precludes parallelization within training examples, which becomes
# > critical at longer sequence lengths" (section 1)
#
# An operation that needs the result of another has to wait, on any number of processors. `chain` counts
# the longest chain of such operations. We add the kind of layer used before 2017, attention over
# recurrent states.

# %%
rows = [torch.randn(n, d, dtype=torch.float64, requires_grad=True) for n in (8, 16, 32, 64)]
both = {"recurrent + attention": lambda x, index: self_attention(recurrent(x, W, U))}
chains = {name: [chain(layer(row, 0)) for row in rows] for name, layer in {**layers, **both}.items()}
for name, counted in chains.items():
    print(f"{name:21} longest chain for 8, 16, 32, 64 words: {counted}")
assert [len(set(counted)) > 1 for counted in chains.values()] == [True, False, False, False, False, True]
assert chains["recurrent"] == [3 * n + 3 for n in (8, 16, 32, 64)]

# %% [markdown]
# For each word, the recurrent layer adds three operations to the chain: a product, a sum, a `tanh`.
# Attention on top shortens the path, not the chain, so the paper removes the recurrence. (When a
# Transformer writes, each word still waits for the one before.)
#
# **Exercise 2 (hard).** Must every recurrent layer have a chain of $O(n)$? Leave out the `tanh` and the
# matrix: $h_t = a_t h_{t-1} + x_t$, all products elementwise, $h_{-1} = 0$. Compute all $h_t$ with a
# chain that grows only with $\log_2 n$ (a *parallel scan*). Hint: write $h_t$ in terms of $h_{t-2}$.


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


# The tanh forbids it: two steps with a tanh cannot be written as one step of the same form. Recurrent layers
# without it (state-space models) are trained in this way; Table 1 has no row for them.


# %% tags=["exercise-test"]
def operations_in_a_row(y: Tensor) -> int:
    level, length = {y.grad_fn}, 0
    while level:
        level, length = {m for node in level for m, _ in node.next_functions if m is not None}, length + 1
    return length


for n in (16, 64, 256):
    a, x = torch.rand(n, 4, requires_grad=True), torch.randn(n, 4, requires_grad=True)
    states = [x[0]]
    for t in range(1, n):
        states.append(a[t] * states[-1] + x[t])
    assert_close(doubling(a, x), torch.stack(states))
    assert operations_in_a_row(doubling(a, x)) < 6 * math.log2(n)
    print(f"{n:3} words: {operations_in_a_row(doubling(a, x))} operations in a row")

# %% [markdown]
# ## Complexity per layer
#
# > "In terms of computational complexity, self-attention layers are faster than recurrent layers when the
# > sequence length $n$ is smaller than the representation dimensionality $d$"
#
# PyTorch can count the multiply-adds of matrix products, even on the device `meta`, where tensors have a
# shape but no numbers. We double $n$, then $d$, and read off the exponents.


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
# That is the first column, with the constant factors that the $O$ hides. Attention and the recurrent layer
# cost the same at $n = d$, and sentences are nearly always shorter than $d = 512$. For restricted attention
# we gathered each word's neighbours: **a mask alone saves no multiply-adds**, it hides products that are
# computed already.
#
# But the attention layer of the model also has four linear maps
# ([03_multi_head_attention](03_multi_head_attention.ipynb)), which cost $4 n d^2$ and are not in Table 1.
# With them it is never cheaper than a plain RNN, which costs $2 n d^2$. How large is the $n^2$ part of an
# *encoder* layer: this attention, and a feed-forward network four times as wide?

# %%
d = 512
multi_head = MultiHeadedAttention(8, d, dropout=0.0).to("meta")
feed_forward = PositionwiseFeedForward(d, 4 * d, dropout=0.0).to("meta")
for n in (25, 250, 3072):
    x = empty(1, n, d)
    whole = multiply_adds(lambda: multi_head(x, x, x)) + multiply_adds(lambda: feed_forward(x))  # noqa: B023
    square = 2 * n**2 * d
    print(f"{n:5,} words: the quadratic part is {square / whole:5.1%} of an encoder layer")
    assert square / whole == n / (n + 6 * d)

# %% [markdown]
# For 25 words, **the $n^2$ part is 0.8% of the layer's multiply-adds**; it is half at $n = 6d = 3072$. (A
# count is not a time: [15_going_fast](15_going_fast.ipynb) measures.)
#
# ## Back to the symbol
#
# Does the path length predict what is learned? We train again, with distances up to 64 (the RNN, which
# failed at 16, is left out at 64).


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
    "LSTM, gates open": lambda distance: lstm(3.0),
    "dilated convolutions": Dilated,
    "attention": lambda distance: LookUp(),
}
for name, make in candidates.items():
    for distance in distances:
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
assert curves["RNN"][1] is curves["LSTM, gates open"][2] is None
assert None not in [*curves["LSTM, gates open"][:2], *curves["dilated convolutions"], *curves["attention"]]

# %% [markdown]
# *Figure 7. The median over three seeds. A cross: with at least one seed, 250 updates were not enough.*
#
# The two layers with short paths, dilated convolutions and attention, learn at all three distances. But the
# LSTM with open gates, whose path is as long as the RNN's, gets further than the RNN; its factor in Figure
# 3 is close to 1. (We do not know why it fails at 64.) Path length is "one key factor", not the only one.
#
# ## What attention pays
#
# > "In the Transformer this is reduced to a constant number of operations, albeit at the cost of reduced
# > effective resolution due to averaging attention-weighted positions" (section 2)
#
# An output of attention is a *mean*: where the scores are equal, each of $n$ words has the weight $1/n$.
# Training can undo this: if one score is higher by $L$, its word's weight is $e^L / (e^L + n - 1)$. Has our
# layer, trained at distance 64, learned an $L$ that is enough for longer distances?


# %%
@torch.no_grad()
def share_right(model: Remember, distance: int) -> float:
    symbols = torch.randint(SYMBOLS, (100, distance + 1))
    return (model(symbols).argmax(dim=-1) == symbols[:, 0]).float().mean().item()


for (name, trained_at), asked in {("RNN", 4): (4, 16), ("attention", 64): (64, 4096)}.items():
    for distance in asked:
        right = [share_right(model, distance) for model, _ in runs[name, trained_at]]
        shown = ", ".join(f"≈{share:.0%}" for share in right)
        print(f"{name:9} trained at distance {trained_at:2}, asked at {distance:5,}: {shown} right")
        assert max(right) < 0.8 if (name, distance) == ("RNN", 16) else min(right) > 0.7

# %% [markdown]
# The RNN has learned *distance four*. Attention has learned *the marked word*, at any distance that we
# tried. But a query that needs two words must share its weight. The paper's sentence goes on: "an effect
# we counteract with Multi-Head Attention" ([03_multi_head_attention](03_multi_head_attention.ipynb)).
#
# **Exercise 3 (easy).** Sutskever et al. (2014) found that their encoder-decoder translates much better
# if it reads the source *backwards*. Let target word $i$ translate source word $i$, $n = 10$. How many
# steps lie between the two, forwards and backwards? If each step halves the gradient, how many times as
# much arrives, on average, when the source is reversed?

# %% tags=["solution"]
n = 10
written = torch.arange(n) + n  # when target word i is written, the source words having taken 0 to n - 1
forwards = written - torch.arange(n)
backwards = written - torch.arange(n).flip(0)
arrives = (0.5**backwards).mean() / (0.5**forwards).mean()
print("forwards: ", forwards.tolist(), " mean", forwards.float().mean().item())
print("backwards:", backwards.tolist(), " mean", backwards.float().mean().item())
print(f"backwards, {arrives:.0f} times as much arrives on average: a few close pairs let learning begin")
