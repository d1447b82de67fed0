# %% [markdown]
# # 01 · Why attention
#
# **We let a network carry one word across sixteen others, watch it fail, and then check every cell of the
# paper's Table 1: by gradient, by count and by the clock.**
#
# Previous: [00_start_here](00_start_here.ipynb) · Next: [02_attention](02_attention.ipynb)
#
# *35 minutes to read, half a minute to run.*
#
# - **Before:** you know tensors, the matrix product, and that `backward()` fills `.grad`. Of recurrent and
#   convolutional networks you have heard the names.
# - **After:** you know which trouble attention was meant to end; how far a word hears through each kind of
#   layer, and along how many paths; which operations have to wait for which; for what lengths attention is
#   really the cheaper layer, and against what; and what it pays for hearing everything at once.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 1, 2 and 4.

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
from bisect import bisect_right

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated import MultiHeadedAttention, PositionwiseFeedForward
from annotated.plots import (
    explore_parallel,
    fit_power,
    plot_against,
    plot_costs,
    plot_reach,
    setup_notebook,
)
from annotated.transformer.attention import attention

setup_notebook()
torch.set_num_threads(1)

# %% [markdown]
# ## A word to remember
#
# Which word fits the gap, *is* or *are*?

# %%
sentence = "The keys that the man who lives above the shop on the corner lost ___ here ."
words = sentence.split()
print("words from 'keys' to the gap:", words.index("___") - words.index("keys"))

# %% [markdown]
# It is *are*, because of a word that is 13 words away; *corner* and *man* are nearer, and wrong. Until 2017
# such sentences were read by **recurrent** networks: one word after the other, each mixed into a state, a
# vector that is all that the network knows so far. The paper's section 1 says it in symbols: the state $h_t$
# is computed from $h_{t-1}$ and word $t$. In the simplest one, $h_t = \tanh(W x_t + U h_{t-1})$.
#
# A small version of the problem: a row of random symbols, eight kinds, the first one marked. After the last
# one, say which was marked. Three bits, to be carried over a distance. Who only guesses is right once in 8.

# %%
SYMBOLS, WIDTH = 8, 32


class Remember(nn.Module):
    """An embedding, a layer that gives one vector a row, and a guess at the first symbol."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, WIDTH)
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


# %%
def train(make_layer, distance: int, most: int = 150) -> tuple[Remember, int | None]:
    """A model, and its updates until 95% of ten batches are right; None if that takes more than `most`."""
    torch.manual_seed(0)
    model = Remember(make_layer())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    right = []
    for update in range(1, most + 1):
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


for distance in (4, 16):
    learned = train(rnn, distance)[1] is not None
    print(f"distance {distance:2}: learned within 150 updates: {learned}")
    assert learned == (distance < 16)

# %% [markdown]
# Our sentence needs 13. A first guess at the reason: the state is too small, and sixteen later words wash
# over it. Then no weights would do. But here are some, set by hand, for a state of *three* numbers. The
# state begins at zero, so the first symbol sets their signs, one bit each; and $U$ makes them so much larger
# that no later symbol can turn one:

# %%
codes = 2.0 * (torch.arange(SYMBOLS).unsqueeze(1) >> torch.arange(3) & 1) - 1  # (8, 3): each bit as -1 or 1
latch = nn.RNN(3, 3, bias=False, batch_first=True)
latch.weight_ih_l0.data, latch.weight_hh_l0.data = torch.eye(3), 4 * torch.eye(3)

symbols = torch.randint(SYMBOLS, (500, 1001))
last = latch(codes[symbols])[0][:, -1]  # (500, 3)
assert torch.equal(last.sign(), codes[symbols[:, 0]])
print("three numbers remember the first symbol over a distance of 1,000: True")

# %% [markdown]
# So the network *can* remember; it does not *learn* to. What keeps learning from finding such weights?
#
# ## What arrives
#
# Learning needs a gradient. An error at the end must say to the first word: you mattered. So we take a
# network not yet trained, send a random gradient into its output, and look at the norm of what arrives at
# each word. With it come three rivals: the same network with a rotation for its $U$, which makes no state
# longer or shorter; an **LSTM**, whose gates decide what to keep; and one attention layer, which looks at all
# words directly. ([02_attention](02_attention.ipynb) builds that one. Here it is enough to know that it takes
# a weighted mean of all words, each weighted by how well it answers the question of the last.)


# %%
class LookUp(nn.Module):
    """One attention: the last word asks, all words answer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> what the last one found (B, WIDTH)."""
        return attention(self.query(x[:, -1:]), self.key(x), self.value(x))[0][:, 0]


def rotating_rnn() -> nn.Module:
    layer = rnn()
    nn.init.orthogonal_(layer.net.weight_hh_l0)
    return layer


def lstm() -> nn.Module:
    return LastState(nn.LSTM(WIDTH, WIDTH, batch_first=True))


# %%
def arriving(layer: nn.Module, n: int = 65) -> Tensor:
    """The mean norm of the gradient at the word 0, 1, 2 ... n - 1 places back: (n,)."""
    x = torch.randn(64, n, WIDTH, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(64, WIDTH, dtype=torch.float64)
    (layer.double()(x) * pull).sum().backward()
    return x.grad.norm(dim=-1).mean(dim=0).flip(0)


makers = {"RNN": rnn, "RNN, a rotation": rotating_rnn, "LSTM": lstm, "attention": LookUp}
_ = torch.manual_seed(0)
norms = {name: arriving(make()) for name, make in makers.items()}
for name, norm in norms.items():
    factor = (norm[48] / norm[8]) ** (1 / 40)
    print(f"{name:16} each step back multiplies it by {factor:.1f}")
    assert (factor > 0.97) == (name == "attention")

# %%
ax = plot_against(
    range(65), {name: norm.tolist() for name, norm in norms.items()},
    "What reaches a word that far back", "distance (words)", "gradient norm", xscale="linear",
)  # fmt: skip
for line in ax.lines:
    line.set_markevery(8)
plt.show()
ends = {line.get_label(): line.get_ydata()[64] for line in ax.lines if len(line.get_ydata())}
assert ends["RNN"] < ends["LSTM"] < ends["RNN, a rotation"] < 1e-6 < 1e-2 < ends["attention"]

# %% [markdown]
# Straight lines on a logarithmic axis: a factor for every step. Attention's is flat (its one high point is
# the last word, which asks as well as answers). The rotation keeps lengths exactly, but each
# `tanh` squeezes a little, and a little is enough:

# %%
for factor in (0.5, 0.9, 0.99, 1.1):
    print(f"{factor:4} a step, after 100 steps: {factor**100:.0e}")
tolerance = 2 ** (1 / 100) - 1
print(f"to stay within a factor of 2 over 100 steps, each must be right to {tolerance:.1%}")

# %% [markdown]
# A long way is not fatal in itself. But its length is an exponent, and the factor that it is put on must be
# very near 1. That is why the paper's section 4 asks how long the way is, for each kind of layer.
#
# ## Four layers, one shape
#
# Each takes $n$ words of $d$ numbers to $n$ words of $d$ numbers. Here they are in the least code that does
# it. All but the plain attention look backwards, as recurrent layers must, so that they can be compared. (The
# paper's neighbourhoods lie around the word, half before it and half behind.)


# %%
def recurrent(x: Tensor, W: Tensor, U: Tensor) -> Tensor:
    """One word after the other; W and U (d, d)."""
    state, states = torch.zeros_like(x[:1]), []
    for word in x.split(1):
        state = torch.tanh(word @ W + state @ U)  # (1, d)
        states.append(state)
    return torch.cat(states)


def convolution(x: Tensor, K: Tensor, dilation: int = 1) -> Tensor:
    """A weighted sum of k words, `dilation` apart, the word itself the last of them; K (d, d, k)."""
    back = dilation * (K.size(-1) - 1)
    return F.conv1d(F.pad(x.T, (back, 0)), K, dilation=dilation).T


def self_attention(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """A weighted mean over all words, or over those that a mask (n, n) allows."""
    return attention(x, x, x, mask)[0]


def neighbourhood(n: int, r: int) -> Tensor:
    """The mask of restricted self-attention: each word sees r words, itself the last of them."""
    back = torch.arange(n).unsqueeze(1) - torch.arange(n)  # how far back the key is
    return (back >= 0) & (back < r)


# %%
def weights(*shape: int) -> Tensor:
    """Random weights; random words keep their size in passing through."""
    return torch.randn(*shape, dtype=torch.float64) / math.prod(shape[1:]) ** 0.5


_ = torch.manual_seed(0)
n, d = 16, 4
x, W, U, K = torch.randn(n, d, dtype=torch.float64), weights(d, d), weights(d, d), weights(d, d, 3)

torch_rnn = nn.RNN(d, d, bias=False).double()
torch_rnn.weight_ih_l0.data, torch_rnn.weight_hh_l0.data = W.T, U.T
assert_close(recurrent(x, W, U), torch_rnn(x)[0])
by_hand = x[3] @ K[:, :, 0].T + x[4] @ K[:, :, 1].T + x[5] @ K[:, :, 2].T
assert_close(convolution(x, K)[5], by_hand)
assert_close(self_attention(x, neighbourhood(n, 5))[7], attention(x[7:8], x[3:8], x[3:8])[0][0])
print("recurrent = nn.RNN, convolution = three products, restricted = the same on five words: True")

# %% [markdown]
# What the paper's Table 1 says of them. Take the two words that are furthest apart: the *longest path* is the
# number of steps in which one reaches the other, a step being a layer, or a state handed on:
#
# | layer | operations | in a row, each waiting for the one before | longest path |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 \cdot d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n \cdot d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, $k$ neighbours | $O(k \cdot n \cdot d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention restricted to $r$ neighbours | $O(r \cdot n \cdot d)$ | $O(1)$ | $O(n / r)$ |
#
# Twelve cells. We check them column by column, from right to left.
#
# ## How far a word hears
#
# A path from word 2 to output 9 exists if output 9 has a gradient at word 2. So autograd can draw the map of
# who hears whom, for any stack of layers, without our knowing how they work.


# %%
def hears(layer, depth: int) -> Tensor:
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
    "restricted, r = 5": lambda x, index: self_attention(x, neighbourhood(len(x), 5)),
    "self-attention": lambda x, index: self_attention(x),
}
reach = {name: [hears(layer, depth) for depth in (1, 2, 3, 4)] for name, layer in layers.items()}

# %%
rows = {name.replace(", ", "\n"): grids for name, grids in reach.items()}
axes = plot_reach(rows, "Who hears whom (blue), layer by layer")
plt.show()
heard = {name: [int(grid[-1].sum()) for grid in grids] for name, grids in reach.items()}
for name, counts in heard.items():
    print(f"{name:19} words that the last of 16 hears, by layers: {counts}")
assert heard["self-attention"] == heard["recurrent"] == [16] * 4
assert heard["convolution, k = 3"] == [3, 5, 7, 9]
assert heard["dilated, k = 3"] == [3, 9, 16, 16]
assert torch.tensor(axes[1, 3].images[0].get_array()).sum(dim=-1).max() == 9

# %% [markdown]
# A row is an output word, and blue are the words that it hears. A convolution of three gains two words a
# layer, restricted attention over five gains four. The recurrent layer hears its whole past at once. Only
# plain attention hears what follows, too (in the decoder, a mask forbids it that).
#
# The **dilated** convolution is the surprise. It has three weights like its neighbour, but takes words 1,
# then 3, then 9 places apart. How many layers until the last of $n$ words hears the first?


# %%
def layers_needed(layer, n: int) -> int:
    """How many on top of each other until the last word hears the first."""
    x = torch.randn(n, d, dtype=torch.float64, requires_grad=True)
    y, depth, arrived = x, 0, False
    while not arrived:
        y, depth = layer(y, depth), depth + 1
        (grad,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        arrived = bool(grad[0].abs().sum() > 0)
    return depth


lengths = (5, 9, 17, 33, 65, 129)
needed = {name: [layers_needed(layer, n) for n in lengths] for name, layer in layers.items()}
for name, counts in needed.items():
    print(f"{name:19} layers for {lengths} words: {counts}")

assert needed["convolution, k = 3"] == [(n - 1) // 2 for n in lengths]
assert needed["restricted, r = 5"] == [(n - 1) // 4 for n in lengths]
assert needed["dilated, k = 3"] == [math.ceil(math.log(n - 0.5, 3)) for n in lengths]  # safe from rounding
assert needed["self-attention"] == needed["recurrent"] == [1] * 6

# %% [markdown]
# One layer for the recurrent one, as for attention? One *layer*; but inside it the first word is handed on
# from state to state, and each of those is a step of the path. We count them, too. Autograd remembers, for
# each tensor, the operation that made it, and for each operation, those that came before; and every state is
# made by a tanh.


# %%
def chain(y: Tensor, kind: str = "") -> int:
    """The longest chain of operations that lead to y, one after the other; of them, those of this kind."""
    level, length = {y.grad_fn}, 0
    while level:
        length += any(kind in node.name() for node in level)
        level = {before for node in level for before, _ in node.next_functions if before is not None}
    return length


words = [torch.randn(n, d, dtype=torch.float64, requires_grad=True) for n in lengths]
paths = {**needed, "recurrent": [chain(recurrent(x, W, U)[-1], "Tanh") for x in words]}
ax = plot_against(
    lengths, paths, "The longest path", "length n (words)", "steps from the first word to the last"
)
plt.show()
assert paths["recurrent"] == list(lengths)
growth = {line.get_label(): fit_power(lengths, line.get_ydata())[1] for line in ax.lines[::2]}
assert all(abs(growth[name] - 1) < 0.1 for name in ("recurrent", "convolution, k = 3", "restricted, r = 5"))
assert growth["dilated, k = 3"] < 0.4
assert abs(growth["self-attention"]) < 1e-6

# %% [markdown]
# Three curves climb with $n$. Table 1 gives *convolutional* a logarithm; only the dilated one has it. The
# text of section 4 says so: neighbours side by side need $O(n/k)$ layers. Section 2 names two translators
# made of convolutions: in ConvS2S the path grows linearly, in ByteNet, which dilates, logarithmically. And
# restricted attention grows like a convolution of neighbours: it *is* one, as far as paths go.
#
# ### Heard, but how loudly?
#
# Why a logarithm, and why to base $k$? Make words of one number each, and set all weights of a convolution
# to 1. Then each path from a word to an output adds exactly 1 to the gradient: **the gradient counts the
# paths.**
# Three stacks, the last of which tries to reach further with the same weights, by 4 instead of 3:


# %%
def count_paths(dilations: list[int], n: int = 43) -> Tensor:
    """How many paths lead to the last of n words from the one 0, 1, 2 ... places back: (n,)."""
    x = torch.zeros(n, 1, dtype=torch.float64, requires_grad=True)
    y, ones = x, torch.ones(1, 1, 3, dtype=torch.float64)
    for dilation in dilations:
        y = convolution(y, ones, dilation)
    y[-1].sum().backward()
    return x.grad.flatten().flip(0)


stacks = {"13 layers, side by side": [1] * 13, "dilated 1, 3, 9": [1, 3, 9], "dilated 1, 4, 16": [1, 4, 16]}
ways = {name: count_paths(dilations) for name, dilations in stacks.items()}
for name, count in ways.items():
    print(f"{name:24} {int(count.sum()):9,} paths to {int((count > 0).sum())} words;", end=" ")
    print(f"{int(count.max()):7,} to the one it hears best")

# %%
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), sharex=True, sharey=True)
for ax, (name, count) in zip(axes, ways.items(), strict=True):
    ax.bar(range(43), 100 * count / count.sum(), width=0.8)
    ax.set(title=name, xlabel="distance (words back)")
axes[0].set_ylabel("paths (%)")
plt.show()
heights = torch.tensor([bar.get_height() for bar in axes[0].patches])
assert heights[13 - 3 : 13 + 4].sum() > 75
assert ways["13 layers, side by side"][26] == 1
assert (ways["dilated 1, 3, 9"] == (torch.arange(43) < 27)).all()  # one path each, no more and no fewer
holes = (ways["dilated 1, 4, 16"] == 0).nonzero().flatten().tolist()
print("dilated 1, 4, 16, distances that are never heard:", holes)
assert holes[0] == 3

# %% [markdown]
# All three hear 27 words. On the left the furthest has one path of 1,594,323, and seven words share three
# quarters of them all: it *hears* 27 words and *listens* to seven. In the middle every word has exactly
# **one** path. That is no accident. A path is a choice at each layer, of 0, 1 or 2 steps, steps of 1, of 3
# and of 9; and 11 is $2\cdot 1 + 0\cdot 3 + 1\cdot 9$ and nothing else. *The path is the distance, written in
# base $k$. The layers needed are its digits*, hence the $\log_k n$.
#
# On the right, base 4 has a digit 3, and three weights have no way of saying it. The word three places back,
# a near neighbour, is never heard, however long one trains.
#
# **Exercise 1.** Translation with two recurrent networks: one reads $n$ source words, the other goes on from
# its last state and writes $n$ target words. In 2014 Sutskever and others found that it works much better if
# the source is read *backwards*. Say target word $i$ translates source word $i$. How many steps lie between
# them, on the average, forwards and backwards? Guess first.

# %% tags=["solution"]
n = 10
written = torch.arange(n) + n  # when target word i is written, the source words having taken 0 to n - 1
forwards = written - torch.arange(n)
backwards = written - torch.arange(n).flip(0)
print("forwards: ", forwards.tolist(), " mean", forwards.float().mean().item())
print("backwards:", backwards.tolist(), " mean", backwards.float().mean().item())
assert forwards.sum() == backwards.sum()
arrives = (0.5**backwards).mean() / (0.5**forwards).mean()
print(f"if each step halves what arrives: backwards, {arrives:.0f} times as much in the mean")

# %% [markdown]
# The mean is the same. But what arrives is exponential in the distance, and so the mean of *that* is not:
# a few pairs that stand close give learning a place to begin.
#
# ## What has to wait
#
# The middle column. What no number of processors can shorten is the longest chain of operations of which each
# needs the result of the one before. We have the counter already; this time it counts every operation.

# %%
words = [torch.randn(n, d, dtype=torch.float64, requires_grad=True) for n in (8, 16, 32, 64)]
chains = {name: [chain(layer(x, 0)) for x in words] for name, layer in layers.items()}
for name, counts in chains.items():
    print(f"{name:19} longest chain for 8, 16, 32, 64 words: {counts}")

assert chains["recurrent"] == [3 * n + 3 for n in (8, 16, 32, 64)]
assert all(len(set(counts)) == 1 for name, counts in chains.items() if name != "recurrent")

# %% [markdown]
# Three operations a word (a product, a sum, a tanh) against a chain that does not know how long the sentence
# is. (Attention's six are the words themselves, a transpose, a product, a division, a softmax and a product.)
# This is section 1's main charge: within one sentence, a recurrent network cannot be parallelised.
#
# A tempting conclusion: "so a Transformer translates a sentence in one go". It *reads* in one go, and is
# *trained* in one go, since the right words are all there. Does it write in one go?


# %%
def write(x: Tensor, words: int) -> Tensor:
    """Go on from x, each new word computed by attention from all that is there so far."""
    for _ in range(words):
        x = torch.cat([x, self_attention(x)[-1:]])
    return x


written = [chain(write(words[0], more)) for more in (8, 16, 32)]
print("read  8, 16, 32 words:", chains["self-attention"][:3], "operations in a row")
print("write 8, 16, 32 words:", written)
assert written == [7 * more + 1 for more in (8, 16, 32)]

# %% [markdown]
# Each word needs the one before: in use, the decoder is as sequential as any recurrent network.
# ([11_search_and_averaging](11_search_and_averaging.ipynb) keeps keys and values so that at least nothing
# is computed twice.) Table 1 is about training, and about the encoder.
#
# **Exercise 2.** Is $O(n)$ a law for recurrent layers? Take the tanh out, and the matrix with it:
# $h_t = a_t h_{t-1} + x_t$, all products elementwise. Compute all $h_t$ with a chain that grows with
# $\log_2 n$ only. A hint: after $h_t = a_t h_{t-1} + x_t$, write $h_t$ from $h_{t-2}$, in the same form.


# %% tags=["solution"]
def one_by_one(a: Tensor, x: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        state = a[t] * state + x[t]
        states.append(state)
    return torch.stack(states)


def doubling(a: Tensor, x: Tensor) -> Tensor:
    """h_t = a_t h_{t-s} + x_t with s = 1, 2, 4 ...; where there is no h_{t-s}, x_t is the answer."""
    s = 1
    while s < len(x):
        x = torch.cat([x[:s], x[s:] + a[s:] * x[:-s]])
        a = torch.cat([a[:s], a[s:] * a[:-s]])
        s *= 2
    return x


for n in (16, 64, 256):
    a, x = torch.rand(n, d, requires_grad=True), torch.randn(n, d, requires_grad=True)
    assert_close(doubling(a, x), one_by_one(a, x))
    print(f"{n:3} words: {chain(one_by_one(a, x)):3} operations in a row, or {chain(doubling(a, x))}")
assert chain(doubling(a, x)) < 40

# %% [markdown]
# What forbids the short cut is the tanh: it does not allow two steps to be written as one of the same form.
# Recurrent layers that leave it out are trained in parallel, too; Table 1 has no row for them.
#
# ## What it costs
#
# The first column. PyTorch counts the operations of matrix products; on the device `meta`, where tensors have
# a shape and no numbers, it counts without computing. We double $n$, then $d$. Where the count doubles, the
# exponent is 1; where it becomes four times as large, 2.


# %%
def multiply_adds(compute) -> int:
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
    "restricted, r = 5": lambda n, d: self_attention(empty(n, d), neighbourhood(n, 5).to("meta")),
}
for name, layer in cost.items():
    once = multiply_adds(lambda: layer(64, 512))  # noqa: B023
    longer = multiply_adds(lambda: layer(128, 512))  # noqa: B023
    wider = multiply_adds(lambda: layer(64, 1024))  # noqa: B023
    powers = math.log2(longer / once), math.log2(wider / once)
    print(f"{name:19} {once:11,} multiply-adds, as n to the {powers[0]:.0f} and d to the {powers[1]:.0f}")
    assert powers == ((2, 1) if "self-attention" in name or "restricted" in name else (1, 2))

# %% [markdown]
# Three rows as in Table 1. The last is not: it should be $n$ to the 1, and it costs exactly what full
# attention costs. **A mask saves nothing.** All products are computed, and then most of them are hidden. To
# save, one must not compute them: gather each word's neighbours first.


# %%
def restricted(x: Tensor, r: int) -> Tensor:
    """Self-attention over the last r words, nothing else computed."""
    n, d = x.shape
    near = F.pad(x, (0, 0, r - 1, 0)).unfold(0, r, 1)  # (n, d, r): each word's r, the word itself the last
    place = torch.arange(n, device=x.device).unsqueeze(1) + torch.arange(1 - r, 1, device=x.device)
    scores = torch.einsum("nd,ndr->nr", x, near) / math.sqrt(d)
    scores = scores.masked_fill(place < 0, -math.inf)  # before the first word there is nothing
    return torch.einsum("nr,ndr->nd", scores.softmax(dim=-1), near)


x = torch.randn(16, 4)
assert_close(restricted(x, 5), self_attention(x, neighbourhood(16, 5)))
cost["restricted, r = 5"] = lambda n, d: restricted(empty(n, d), 5)
for n, d in ((64, 512), (100, 300)):
    counted = [multiply_adds(lambda layer=layer: layer(n, d)) for layer in cost.values()]  # noqa: B023
    assert counted == [2 * n**2 * d, 2 * n * d**2, 3 * n * d**2, 2 * 5 * n * d]
print("the same outputs, and all counts as in Table 1, the factors being 2, 2, 1 and 2: True")

# %% [markdown]
# The factors that the $O$ hides: attention has two products (scores; then the mean), the recurrent layer two
# (word; state). So they cost the same at exactly $n = d$, and section 4 concludes that self-attention is
# faster wherever sentences are shorter than vectors are wide, which is nearly always: $d = 512$.
#
# Is it? The layer that the model has is more than that. It makes queries, keys, values and the output with
# four linear maps ([03_multi_head_attention](03_multi_head_attention.ipynb)), which Table 1 leaves out: $4
# n d^2$ more. And the recurrent layers that people used were GRUs and LSTMs, with three and four times the
# matrices of ours. Up to which length is attention really no dearer?

# %%
d = 512
multi_head = MultiHeadedAttention(8, d, dropout=0.0).to("meta")
multi_head.on_weights = lambda weights: None  # so it uses no fused kernel, which the counter may not know
cells = {"RNN": nn.RNNCell, "GRU": nn.GRUCell, "LSTM": nn.LSTMCell}
per_word = {name: multiply_adds(lambda c=c: c(d, d, device="meta")(empty(1, d))) for name, c in cells.items()}
for k in (3, 5, 9):
    kernel = empty(d, d, k)
    per_word[f"convolution, k = {k}"] = multiply_adds(lambda: convolution(empty(100, d), kernel)) // 100  # noqa: B023


# %%
def longest(attend, rival: int) -> int:
    """The largest n at which attention is no dearer than a layer with `rival` multiply-adds a word."""
    return bisect_right(
        range(1, 4097), 0, key=lambda n: multiply_adds(lambda: attend(empty(1, n, d))) - rival * n
    )


print("attention costs no more up to n =      Table 1's    with its linear maps")
crossings = {
    name: (longest(self_attention, w), longest(lambda x: multi_head(x, x, x), w))
    for name, w in per_word.items()
}
for name, (bare, whole) in crossings.items():
    print(f"  against {name:20} {bare:15,} {format(whole, ',') if whole else 'never':>18}")
assert crossings["RNN"] == (d, 0)
assert crossings["GRU"] == (3 * d, d)
assert crossings["LSTM"] == (4 * d, 2 * d)
assert [crossings[f"convolution, k = {k}"][1] for k in (3, 5, 9)] == [0, d // 2, 5 * d // 2]

# %% [markdown]
# Against a plain RNN, or a convolution of three, the layer that is really used is *never* cheaper, not even
# for a sentence of one word. Against a GRU, the rule $n < d$ comes out exactly right, for another reason than
# the one given. Against an LSTM attention has twice the room.
#
# And what of the famous square? A sentence of 25 words; one layer of the encoder, which is this attention and
# a feed-forward network four times as wide:

# %%
feed_forward = PositionwiseFeedForward(d, 4 * d, dropout=0.0).to("meta")


def share_of_square(n: int) -> float:
    """Which part of an encoder layer's multiply-adds Table 1's n² d is."""
    x = empty(1, n, d)
    whole = multiply_adds(lambda: multi_head(x, x, x)) + multiply_adds(lambda: feed_forward(x))
    return multiply_adds(lambda: self_attention(x)) / whole


for n in (25, 250, 3072):
    print(f"{n:5,} words: the quadratic part is {share_of_square(n):5.1%} of an encoder layer")
assert share_of_square(6 * d) == 0.5

# %% [markdown]
# Under one percent. Table 1's $n^2 d$ is about that one percent; half is reached at $n = 6d = 3072$ words.
# For the paper's sentences a Transformer is, by count, a stack of linear maps applied to each word alone.
#
# One more claim of section 4. A **separable** convolution first mixes $k$ neighbours, in each of the $d$
# dimensions by itself, and then the dimensions of each word: $k\,n\,d + n\,d^2$. Even with $k = n$, when it
# sees the whole sentence at once, its complexity is that of self-attention and a feed-forward layer together,
# says the paper: $n^2 d$ and $n d^2$. The same cost, then?

# %%
n = 25
x = empty(d, n)
mix_words = multiply_adds(lambda: F.conv1d(x, empty(d, 1, n), padding="same", groups=d))
mix_dimensions = multiply_adds(lambda: F.conv1d(x, empty(d, d, 1)))
attend = multiply_adds(lambda: self_attention(empty(n, d)))
print(f"attention's n² d:    {attend / mix_words:.0f} times that of the convolution over words")
print(f"feed-forward's n d²: {multiply_adds(lambda: feed_forward(empty(n, d))) / mix_dimensions:.0f} times")
assert (mix_words, mix_dimensions) == (n * n * d, n * d * d)

# %% [markdown]
# The same orders; not the same cost. The 2 are attention's two products. The 8 is the inner layer of the
# feed-forward network, four times as wide, there and back.
#
# **Exercise 3.** Give Table 1 a fifth row: *dilated* restricted attention. Layer $i$ sees $r = 3$ words,
# $3^i$ apart. Write its mask, and count how many layers the last word needs to hear the first, as above. What
# would you enter in its three cells?


# %% tags=["solution"]
def dilated_mask(n: int, r: int, dilation: int) -> Tensor:
    back = torch.arange(n).unsqueeze(1) - torch.arange(n)
    return (back >= 0) & (back % dilation == 0) & (back < r * dilation)


d = 4
steps = [layers_needed(lambda x, i: self_attention(x, dilated_mask(len(x), 3, 3**i)), n) for n in lengths]
print("layers:", steps)
assert steps == needed["dilated, k = 3"]
print("operations r n d (gathered, not masked), waiting 1, longest path log_r n")

# %% [markdown]
# ## Two columns, one machine
#
# Operations say how much there is to do; the chain says how much of it has to wait. How long does a layer
# *take*? About (operations / how many are done at once) + (chain), if a step of the chain is the unit of
# time. We take both from our counters, for $d = 512$, and let you choose the machine: from one multiply-add
# at a time to a thousand million.

# %%
sizes = [2**i for i in range(3, 14)]  # 8 ... 8192 words
a_word = multiply_adds(lambda: cost["recurrent"](1, 512))  # 8192 of them, one by one, are slow to count
assert multiply_adds(lambda: cost["recurrent"](100, 512)) == 100 * a_word
whole = {name: cost[name] for name in ("convolution, k = 3", "self-attention")}
whole["restricted, r = 65"] = lambda n, d: restricted(empty(n, d), 65)

done = {"recurrent": [n * a_word for n in sizes]}
in_a_row = {"recurrent": [3 * n + 3 for n in sizes]}  # as counted above for 8 ... 64 words
chains["restricted, r = 65"] = [chain(restricted(x, 65)) for x in words]
for name, layer in whole.items():
    done[name] = [multiply_adds(lambda: layer(n, 512)) for n in sizes]  # noqa: B023
    in_a_row[name] = chains[name][:1] * len(sizes)

chart = explore_parallel(sizes, done, in_a_row, start=20)
drawn = chart.data.set_index(["layer", "length"])
for name, counts in done.items():
    assert list(drawn.loc[name, "work"]) == counts
    assert [drawn.loc[(name, n), "steps"] for n in (8, 16, 32, 64)] == chains[name]
chart

# %% [markdown]
# Far left on the slider, the first column of Table 1: attention's curve is the steepest, and crosses the
# recurrent one at $n = d = 512$. Far right, the second column: one line climbs, the others stay near the
# ground. (Restricted attention does not start lowest: to gather neighbours takes operations of its own.) In
# between, the crossing wanders to the right. Where does it go?


# %%
def crossing(at_once: int) -> int:
    """The largest n at which attention takes no longer than the recurrent layer, by the curves drawn."""
    a_pair = done["self-attention"][0] // 8**2
    more = in_a_row["self-attention"][0] - 3
    return bisect_right(
        range(1, 100_000), 0, key=lambda n: (a_pair * n * n - a_word * n) / at_once + more - 3 * n
    )


for exponent in (0, 16, 20, 24):
    predicted = 512 + 3 * 2**exponent / 1024
    longest_n = crossing(2**exponent)
    print(f"2 to the {exponent:2} at once: attention is as fast up to {longest_n:6,} words;", end=" ")
    print(f"d + 3 at_once / 2d = {predicted:,.0f}")
    assert abs(longest_n - predicted) <= 4
took = drawn["work"] / 2**20 + drawn["steps"]
assert (took["self-attention"] > took["recurrent"]).idxmax() == 4096  # the first point drawn beyond 3,583

# %% [markdown]
# $n < d$ is the rule for a machine that does one thing at a time. On one that does $p$ at once it is $n < d +
# 3p / 2d$, where the 3 are the steps that each word adds to the recurrent chain: **on a wide machine, waiting
# costs more than working, and attention may do far more work before it is late.**
#
# ## By the clock
#
# Enough counted. All four layers on this machine, one thread: first longer and longer sentences of width 64,
# then 64 words, wider and wider. We measure the time that the processor spent on us, which other programs
# hardly disturb, and take the best of several runs.


# %%
@torch.no_grad()
def seconds(compute) -> float:
    """Processor time of the fastest run: of four, or of up to twenty that together stay below 50 ms."""
    runs = []
    while len(runs) < 4 or (sum(runs) < 0.05 and len(runs) < 20):
        start = time.thread_time()
        compute()
        runs.append(time.thread_time() - start)
    return min(runs)


def times(n: int, d: int) -> dict[str, float]:
    """Each layer's time for n words of width d, k = 3 and r = 17."""
    x, W, U, K = torch.randn(n, d), *(weights(*s).float() for s in ((d, d), (d, d), (d, d, 3)))
    return {
        "recurrent": seconds(lambda: recurrent(x, W, U)),
        "convolution, k = 3": seconds(lambda: convolution(x, K)),
        "self-attention": seconds(lambda: self_attention(x)),
        "restricted, r = 17": seconds(lambda: restricted(x, 17)),
    }


# %%
sizes = (64, 128, 256, 512, 1024, 2048)
by_length, by_width = [times(n, 64) for n in sizes], [times(64, d) for d in sizes]

figure, axes = plt.subplots(1, 2, figsize=(13, 5.5), sharey=True)
fitted, panels = {}, {"n": (by_length, "d = 64"), "d": (by_width, "n = 64")}
for ax, (symbol, (measured, fixed)) in zip(axes, panels.items(), strict=True):
    curves = {name: (sizes, [1000 * run[name] for run in measured]) for name in measured[0]}
    what = {"n": "length n (words)", "d": "width d"}[symbol]
    plot_costs(curves, f"One layer, {fixed}", what, "time (ms)", fitted=4, ax=ax)
    fitted[symbol] = {name: fit_power(xs[-4:], ys[-4:])[1] for name, (xs, ys) in curves.items()}
axes[1].set_ylabel("")
plt.show()

in_n, in_d = fitted["n"], fitted["d"]
print("exponent in n above 1.5:", [name for name, exponent in in_n.items() if exponent > 1.5])
print("exponent in d above 1.5:", [name for name, exponent in in_d.items() if exponent > 1.5])
assert [name for name, exponent in in_n.items() if exponent > 1.5] == ["self-attention"]
assert min(in_d["recurrent"], in_d["convolution, k = 3"]) > 1.5
assert max(in_d["self-attention"], in_d["restricted, r = 17"]) < 1.5

# %% [markdown]
# Theory asks for 1, 1, 2, 1 on the left and 2, 2, 1, 1 on the right. The exponents fitted to the largest four
# sizes come near; small sizes are flatter, since calling an operation costs time however little it does. What
# is steeper than theory does not multiply more: it gets slower at it, as tables outgrow the processor's cache
# (that is our guess; counting does not tell).
#
# The heights tell another story. At $n = d = 64$ the recurrent layer and attention do exactly the same number
# of multiply-adds:

# %%
same = by_length[0]
assert (
    2 * 64**2 * 64
    == multiply_adds(lambda: cost["recurrent"](64, 64))
    == multiply_adds(lambda: cost["self-attention"](64, 64))
)
ratio = same["recurrent"] / same["self-attention"]
print("as many operations, and at least 4 times the time:", ratio > 4)
assert ratio > 4

# %% [markdown]
# That is on a single thread, where nothing is parallel but the arithmetic unit itself: 64 small products in a
# row are slower than two large ones. By the slider's reckoning, a GPU, which does many thousands at once,
# makes the gap wider. **What the paper gained was not fewer operations; it was operations of a better kind.**
#
# ## Back to the word to remember
#
# The layers, trained on the task of the beginning, over longer and longer distances. Whoever fails at one
# (the cross) is not asked for the next. New are two stacks of convolutions, side by side and dilated, just as
# deep as they must be to hear the first word; and an LSTM whose gates are open at birth, so that each step
# keeps 95% of the cell.


# %%
class Convolutions(nn.Module):
    """k = 3, looking backwards only; the last word's output."""

    def __init__(self, dilations: list[int]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, dilation=dilation) for dilation in dilations)

    def forward(self, x: Tensor) -> Tensor:
        """Words (B, n, WIDTH) -> (B, WIDTH)."""
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(F.pad(x, (2 * layer.dilation[0], 0))).relu()
        return x[..., -1]


# %%
def open_lstm() -> nn.Module:
    layer = lstm()
    layer.net.bias_hh_l0.data[WIDTH : 2 * WIDTH] = 3.0  # the second quarter, the forget gate
    return layer


makers = {
    "RNN": lambda distance: rnn(),
    "LSTM": lambda distance: lstm(),
    "LSTM, gates open": lambda distance: open_lstm(),
    "convolutions": lambda distance: Convolutions([1] * math.ceil(distance / 2)),
    "dilated": lambda distance: Convolutions([3**i for i in range(math.ceil(math.log(distance + 1, 3)))]),
    "attention": lambda distance: LookUp(),
}

# %%
distances, most = (4, 8, 16, 32, 64), 150
updates, trained = {name: [] for name in makers}, {}
for name, make in makers.items():
    for distance in distances:
        if None in updates[name]:
            updates[name].append(math.nan)
        else:
            trained[name, distance], count = train(lambda: make(distance), distance, most)  # noqa: B023
            updates[name].append(count)

ax = plot_against(
    distances, updates, "Updates until the word is remembered", "distance (words)", "updates", limit=most
)
ax.set_yticks([20, 40, 80, 150], ["20", "40", "80", "not in 150"])
ax.yaxis.set_minor_locator(plt.NullLocator())
plt.show()
mastered = {name: sum(isinstance(count, int) for count in counts) for name, counts in updates.items()}
print("all distances:", [name for name, many in mastered.items() if many == len(distances)])
assert mastered["RNN"] < 3  # not 16
assert max(mastered["LSTM"], mastered["convolutions"]) < 4  # not 32
assert mastered["dilated"] == mastered["attention"] == 5

# %% [markdown]
# Section 4's claim in a picture: the two layers with short paths get all the way, and none of the others
# does. (One run each; with another seed the numbers shift.) At distance 64 the dilated stack hands the word
# on four times, attention once. The LSTM with open gates is the fair objection: its path is as long as the
# RNN's, and yet it gets much further. Path length is not all; the factor of each step counts. We measure it
# as in the beginning:

# %%
_ = torch.manual_seed(0)
for name, make in (("gates as usual", lstm), ("gates open", open_lstm)):
    norm = arriving(make())
    factor = (norm[48] / norm[8]) ** (1 / 40)
    print(f"LSTM, {name:14}: a step back multiplies by {factor:.2f}, 64 steps by {factor**64:.0e}")
    assert (factor**64 > 0.1) == (make is open_lstm)

# %% [markdown]
# With its gates open, 64 steps leave about half. A factor close to 1 makes up for a long path; a path of
# length 1 needs no such care. And that this LSTM misses the last distance can hardly be the gradient's fault.
# More likely (we do not check it) it is that its cell takes in 64 later symbols, too, and has to learn to
# keep them out.
#
# ## What attention pays
#
# Nothing is free. Section 2 names the price: an output is a *mean*, and the more words a mean is over, the
# less of each is in it. Untrained, attention gives each of $n$ words about $1/n$. What reaches one word, as
# $n$ grows?

# %%
_ = torch.manual_seed(0)
many = (16, 32, 64, 128, 256, 512)
middle = [arriving(LookUp(), n)[n // 2].item() for n in many]
factor, exponent = fit_power(many, middle)
print(f"what reaches one word of n goes as n to the power {exponent:.0f}")
assert -1.15 < exponent < -0.85
a_step = (norms["RNN"][48] / norms["RNN"][8]) ** (1 / 40)
print("512 steps of the RNN leave less than 1e-150:", bool(a_step**512 < 1e-150))
assert a_step**512 < 1e-150

# %% [markdown]
# A power, where the RNN has an exponential: 512 words cost a factor of 512, not of more than $10^{150}$. And
# it can be *undone*: nothing forces the weights to be equal. They are a softmax of scores: $e$ to the power
# of each, divided by the sum of all of these. If one score leads by $L$ and the others are equal, its word
# gets
#
# $$w = \frac{e^L}{e^L + n - 1}$$
#
# For a weight of 0.9 the lead must be $\ln(9(n-1))$, which grows only with the *logarithm* of the length: 6.4
# for 65 words, 10.5 for 4,097.
#
# One would expect a look-up trained on 65 words to lose its grip on longer rows, as a recurrent layer does.
# We have both from above, the RNN trained at distance 4, attention at 64, and now ask for longer distances,
# which they have never met. (Our look-up does not know where a word stands. A Transformer does, by the means
# of [05_positional_encoding](05_positional_encoding.ipynb).)


# %%
@torch.no_grad()
def share_right(model: Remember, distance: int) -> float:
    """How many of 500 marked symbols it remembers over this distance."""
    symbols = torch.randint(SYMBOLS, (500, distance + 1))
    return (model(symbols).argmax(dim=-1) == symbols[:, 0]).float().mean().item()


network, look_up = trained["RNN", 4], trained["attention", 64]
for name, model, distances in (("RNN", network, (4, 8, 16)), ("attention", look_up, (64, 512, 4096))):
    good = {distance: share_right(model, distance) > 0.9 for distance in distances}
    print(f"{name:9} over 90% right, by distance: {good}")
    assert list(good.values()) == ([True, False, False] if name == "RNN" else [True] * 3)

# %% [markdown]
# The RNN has learned *distance four*. Attention has learned *the marked word*, and its distance never came
# into it. By how much does the marked word lead? From the weight at 65 words we get $L$, and from $L$ the
# weight at any other length:


# %%
@torch.no_grad()
def weight_on_marked(n: int) -> float:
    """The mean weight that the last symbol gives to the first, over 200 rows of n."""
    x = look_up.symbol(torch.randint(SYMBOLS, (200, n)))
    x[:, 0] += look_up.mark
    query, key, value = (linear(x) for linear in look_up.layer.children())
    return attention(query[:, -1:], key, value)[1][:, 0, 0].mean().item()


at_65 = weight_on_marked(65)
lead = math.log(at_65 * 64 / (1 - at_65))
for n in (65, 4097):
    wanted = math.log(9 * (n - 1))
    print(f"a weight of 0.9 among {n:5,} words needs a lead of {wanted:4.1f}; it has more:", lead > wanted)
    assert lead > wanted
for n in (17, 65, 513, 4097):
    assert abs(weight_on_marked(n) - math.exp(lead) / (math.exp(lead) + n - 1)) < 0.1
print("weights at 17, 65, 513, 4,097 words as predicted, to 0.1: True")
print("half of the weight is left at more than 20,000 words:", math.exp(lead) > 20_000)

# %% [markdown]
# At half its weight the marked word competes with tens of thousands. That is the price and the
# remedy in one line: a mean blurs in proportion to $n$, a lead sharpens exponentially. But a sharp
# look-up has one answer. Who needs two, the subject *and* the tense, has to share the weights again.
# Section 2's own answer is to have several look-ups side by side
# ([03_multi_head_attention](03_multi_head_attention.ipynb)).
#
# How a look-up comes to have keys, queries and a softmax, we have used without asking. It is next:
# [02_attention](02_attention.ipynb).
