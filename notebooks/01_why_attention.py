# %% [markdown]
# # 01 · Why attention
#
# **You watch a recurrent network fail to remember one symbol across sixteen others. You find out why, and you
# see an attention layer remember it across thousands.**
#
# Previous: [00_start_here](00_start_here.ipynb) · Next: [02_attention](02_attention.ipynb)
#
# *33 minutes to read, half a minute to run.*
#
# - **Before:** you know tensors, the matrix product, `nn.Module`, a training loop with `backward()`, and what
#   a query, a key and a value are ([00](00_start_here.ipynb), section 3.2).
# - **After:** you know which three problems of recurrent networks the Transformer solves, and you can
#   read the paper's Table 1.
#
# These are sections 1, 2 and 4 of the paper (Vaswani et al., 2017). Indented sentences are quoted from the
# paper. A number after `≈` may differ on your computer. You can skip the folded cells: the *checks* test what
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
# ## A network that forgets
#
# Which word fits this gap, *is* or *are*?
#
# *The **keys** to the old cabinet in the room behind the shop ___ here.*
#
# The answer is *are*, because the subject is *keys*. Ten words stand between the two, and a network that
# reads the sentence word by word has to remember *keys* all that time. Can it?
#
# Here is a small version of the problem. A network reads a row of random symbols and has to say which symbol
# was the **first**. There are eight different symbols, so guessing is right 12.5% of the time. We train a
# **recurrent network** (RNN) in its simplest form. The translators before 2017 used RNNs with *gates*, called
# LSTM and GRU, and we will come to these. We stop when the network is right 95% of the time, or after 250
# updates.

# %%
import torch
from torch import nn

torch.set_num_threads(1)  # our layers are too small for more
SYMBOLS, WIDTH = 8, 32


class RNN(nn.Module):
    """A recurrent layer; it returns only the state after the last symbol."""

    def __init__(self):
        super().__init__()
        self.net = nn.RNN(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):  # (B, n, WIDTH) -> (B, WIDTH)
        return self.net(x)[0][:, -1]


# %%
class Remember(nn.Module):
    """A vector for each symbol, a layer that turns the row into one vector, and a score for each answer."""

    def __init__(self, layer):
        super().__init__()
        self.symbol, self.guess = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        self.mark = nn.Parameter(torch.randn(WIDTH))  # marks the first symbol; attention will need it
        self.layer = layer

    def forward(self, symbols):  # (B, n) -> (B, SYMBOLS)
        x = self.symbol(symbols)  # (B, n, WIDTH)
        x = torch.cat([x[:, :1] + self.mark, x[:, 1:]], dim=1)
        return self.guess(self.layer(x))


# %%
def train(layer, distance, seed, most=250):
    """Train until 95% of ten batches are right: the model, its updates, its share of right answers."""
    torch.manual_seed(seed)
    model, right = Remember(layer()), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    while len(right) < most and sum(right[-10:]) <= 9.5:
        symbols = torch.randint(SYMBOLS, (64, distance + 1))
        scores = model(symbols)
        nn.functional.cross_entropy(scores, symbols[:, 0]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # no gradient may be longer than 1
        optimizer.step()
        optimizer.zero_grad()
        right.append((scores.argmax(dim=-1) == symbols[:, 0]).float().mean().item())
    return model, len(right), sum(right[-10:]) / 10


# %% [markdown]
# **Before you run this:** the first symbol is 4 places back in one case, and 16 places back in the other.
# How many updates does the RNN need in each case?

# %%
for distance in (4, 16):
    runs = [train(RNN, distance, seed) for seed in (0, 1, 2)]
    for _, update, right in runs:
        print(f"RNN, {distance:2} places back: after ≈{update} updates, ≈{right:.0%} are right")

# %% tags=["check"]
assert all(update == 250 and right < 0.4 for _, update, right in runs)  # 16
assert all(right > 0.95 for _, _, right in [train(RNN, 4, seed) for seed in (0, 1, 2)])

# %% [markdown]
# At four places, the task is easy. (It is only by chance that two of the starts need the same number of
# updates.) At sixteen, the RNN is no better than guessing after 250 updates, with each of the three starts.
# Patience does not help: after 600 updates, it is still guessing. This lesson explains what goes wrong, and
# what attention does about it.

# %% [markdown]
# ## How a recurrent network reads
#
# > "Recurrent models typically factor computation along the symbol positions of the input and output
# > sequences. Aligning the positions to steps in computation time, they generate a sequence of hidden
# > states $h_t$, as a function of the previous hidden state $h_{t-1}$ and the input for position $t$."
# > (section 1)
#
# The **hidden state** is a vector that holds everything that the network knows so far. At each word, the
# network computes a new state from the word and the old state: $h_t = \tanh(x_t W + h_{t-1} U)$. In code:


# %%
def recurrent(x, W, U):
    """Words (n, d), weights (d, d) -> the hidden state after each word, (n, d)."""
    state, states = torch.zeros_like(x[:1]), []
    for word in x.split(1):  # one word after another
        state = torch.tanh(word @ W + state @ U)  # (1, d)
        states.append(state)
    return torch.cat(states)


_ = torch.manual_seed(0)
cat_runs = torch.tensor([[-1.20, 0.80, -1.00, 0.20], [0.84, 1.74, 0.81, 0.60], [0.71, -0.02, 0.42, 1.20]])
W, U = torch.randn(2, 4, 4) / 2
states = recurrent(cat_runs, W, U)  # (3, 4)
for word, state in zip(("a", "cat", "runs"), states.tolist(), strict=True):
    print(f"after {word:5}", [round(number, 2) for number in state])

# %% tags=["check"]
package = nn.RNN(4, 4, bias=False)
package.weight_ih_l0.data, package.weight_hh_l0.data = W.T, U.T
torch.testing.assert_close(package(cat_runs)[0], states)

# %% [markdown]
# The vectors of *a cat runs* are the matrix `x` from [00_start_here](00_start_here.ipynb), and the weights
# here are random.
#
# The neural translators of 2014 joined two RNNs (Cho et al., [2014a](https://arxiv.org/abs/1406.1078);
# Sutskever et al., [2014](https://arxiv.org/abs/1409.3215)). The
# **encoder** reads the English sentence, and its last state goes to the **decoder**, which writes the German
# sentence, one word after another.
#
# ![Left: one vector carries a cat runs to the decoder. Middle: the decoder's second state looks back at all
# three, with the weights 0.2, 0.7 and 0.1. Right: each word of a cat runs looks at
# each](../images/before.svg)
#
# *Figure 1. Left: one vector carries the whole sentence. Middle: the decoder looks back at all states of the
# encoder; the lines of its second step are drawn in color, and the thickest has the largest weight. (These
# weights are invented.) Right: the Transformer's encoder has no recurrence.*
#
# On the left, the last state is a **bottleneck**: the same number of entries has to hold five words or fifty.
# Cho et al. ([2014b](https://arxiv.org/abs/1409.1259)) found that such a model translated long sentences
# badly. Sutskever et al., whose encoder read the sentence backward, reported no such trouble. (Exercise 1
# shows why reading backward may help.)
#
# Bahdanau, Cho and Bengio (2014) had the idea that this series is about: keep *all* states of the encoder,
# and let the decoder look back at them. Before the decoder writes a word, a small network gives every encoder
# state $h_j$ a score $e_j$. This network also sees the decoder's own state $s$. A softmax turns the scores
# into weights $\alpha_j$. Then the decoder reads the weighted mean of the states, which is called the
# **context vector** $c$. The small network's weights are the matrices $A$ and $B$ and the vector $v$:
#
# $$e_j = v^\top\tanh(As + Bh_j),\qquad \alpha = \mathrm{softmax}(e),\qquad c = \sum_j \alpha_j h_j$$

# %%
A, B, v = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
s = torch.randn(4)  # the decoder's state
scores = torch.tanh(A @ s + states @ B.T) @ v  # (3,): how well does each English word fit?
weights = scores.softmax(dim=0)  # (3,)
context = weights @ states  # (4,)
print("weights of a, cat, runs:", [round(w, 2) for w in weights.tolist()])

# %% tags=["check"]
energies = [v @ torch.tanh(A @ s + B @ state) for state in states]
powers = torch.stack(energies).exp()
torch.testing.assert_close(context, sum(p * h for p, h in zip(powers / powers.sum(), states, strict=True)))

# %% [markdown]
# With random weights, these numbers mean nothing yet, but every part of the computation has a gradient, so
# training can teach the decoder where to look.
#
# **Remember:** attention was invented to get around a bottleneck. Instead of one vector for the whole
# sentence, the decoder takes a weighted mean of all states, with new weights at every step.

# %% [markdown]
# ## Why an RNN forgets: distance is an exponent
#
# Attention solved the first problem, the bottleneck *between* encoder and decoder. The second problem
# lies inside the encoder, where information about the first word still has to survive from state to
# state. Our RNN failed at that.
#
# Is its state too small? Not at all. Here is an RNN with only **three** numbers in its state and with
# weights that we set by hand. Each symbol is a pattern of three signs, such as $(1, -1, 1)$. The first
# symbol turns each entry of the state into $\tanh(\pm 1) = \pm 0.76$. At the next step, the matrix $U =
# 4I$ multiplies this by 4, which gives about $\pm 3$, and the next symbol adds only $+1$ or $-1$. That is
# too little to change the sign. So the state keeps the signs of the first symbol for good.

# %%
signs = torch.tensor([[a, b, c] for a in (-1.0, 1) for b in (-1.0, 1) for c in (-1.0, 1)])  # (8, 3)
latch = nn.RNN(3, 3, bias=False, batch_first=True)
latch.weight_ih_l0.data, latch.weight_hh_l0.data = torch.eye(3), 4 * torch.eye(3)

symbols = torch.randint(SYMBOLS, (500, 1001))  # a symbol, and 1,000 others after it
last = latch(signs[symbols])[0][:, -1]  # (500, 3)
remembered = (last.sign() == signs[symbols[:, 0]]).all(dim=-1).sum().item()
print(f"remembered after 1,000 other symbols: {remembered} of 500")

# %% tags=["check"]
assert remembered == 500

# %% [markdown]
# So an RNN *can* remember, but ours did not *learn* to. To learn that, the network must find out that the
# first symbol matters. Only the gradient can show this, and the gradient has to travel back through all
# steps:
#
# > "One key factor affecting the ability to learn such dependencies is the length of the paths forward and
# > backward signals have to traverse in the network." (section 4)
#
# We can measure how much of the gradient arrives. In training, a loss asks the last output to move in some
# direction, and `backward()` computes what this means for each earlier word. Our layers are not trained and
# have no loss, so we choose a random direction and pass it to `output.backward(direction)`. We do the same
# with an attention layer. Its three linear maps turn the last word into a *query*, and each word into a *key*
# and a *value*. The output for the last word is a weighted mean of the values:

# %%
from annotated import attention


class LookUp(nn.Module):
    """The last word asks, and all words answer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):  # (B, n, WIDTH) -> (B, WIDTH)
        found, self.weights = attention(self.query(x[:, -1:]), self.key(x), self.value(x))
        return found[:, 0]


def arriving(layer, n=65):
    """The mean size of the gradient at the word 0, 1, 2 ... n - 1 places back: (n,)."""
    x = torch.randn(64, n, WIDTH, dtype=torch.float64, requires_grad=True)
    output = layer.double()(x)  # (64, WIDTH)
    output.backward(torch.randn_like(output))  # a random direction
    return x.grad.norm(dim=-1).mean(dim=0).flip(0)  # flip: the last word first


# %% [markdown]
# **Before you run this:** in the RNN, each step back multiplies the gradient by about the same factor.
# What will its curve look like if the vertical axis shows powers of ten? And what will the curve of
# attention look like?

# %% tags=["figure-vanishing"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
_ = torch.manual_seed(0)
reached = {"RNN": arriving(RNN()), "attention": arriving(LookUp())}
fig, ax = plt.subplots(figsize=(8, 4))
for (name, sizes), style in zip(reached.items(), ("o-", "s--"), strict=True):
    ax.semilogy(sizes, style, markevery=8, label=name)
ax.set(xlabel="words back", ylabel="size of the gradient", title="How much of the gradient reaches each word")
ax.legend()
plt.show()
factor = (reached["RNN"][48] / reached["RNN"][8]) ** (1 / 40)
print(f"RNN: each step back multiplies the gradient by ≈{factor:.3f}, and 16 steps by ≈{factor**16:.0e}")

# %% [markdown]
# *Figure 2. The size of the gradient at each word, against the word's distance from the end. In the RNN
# it shrinks by about the same factor with each word. In the attention layer it does not depend on the
# distance. Only the last word, at 0, gets more, because the query is made from it, too.*

# %% tags=["check"]
assert 0.3 < factor < 0.6
assert reached["attention"][1:].max() < 1.5 * reached["attention"][1:].min()
assert reached["RNN"][64] < 1e-12 < 1e-4 < reached["attention"][64]

# %% [markdown]
# In the RNN, each step multiplies the gradient by less than one half. After 16 steps, about two
# millionths of it are left. The distance is an *exponent*. Even with a factor of 0.9, only $0.9^{100}$
# would be left after 100 words, about 0.00003. This is the **vanishing gradient** (Hochreiter, 1991;
# Bengio et al., 1994).
#
# In attention there is only *one* step from the last word to any other, so the curve is flat. It is also low,
# because each of the 65 words starts with only about 1/65 of the weight. The last few words get more of the
# gradient in the RNN than in attention.
#
# **Remember:** a gradient that passes $n$ steps is multiplied $n$ times, and with a factor below 1 it
# vanishes. Through attention, every word is one step away.
#
# *Recurrent networks with gates, the LSTM and the GRU, were invented to keep the gradient from vanishing. At
# distance 16, where our RNN fails, a GRU learns the task in ≈340 to ≈600 updates; an ordinary LSTM does not
# in 600. Convolutions shorten the path, too. How far back does a gradient get in each of them? We measured
# it: [How far does a gradient reach?](evidence/how_far_does_a_gradient_reach.ipynb)*

# %% [markdown]
# ## Does attention learn it?
#
# We train the attention layer on our task, with the same code as the RNN. But attention needs some help. It
# does not see order ([02_attention](02_attention.ipynb) shows why), so it cannot know which symbol is the
# first. That is why `Remember` adds the vector `mark` to the first symbol. Only attention needs this help.
# Without the mark, the RNN learns distance 4 just as fast, but attention does not learn it in 600 updates: it
# sees which symbols occur, and has to guess which of them was the first. (The evidence notebook includes this
# comparison, too.)
#
# **Before you run this:** the RNN failed at distance 16. Will attention learn it at 16? At 64?

# %%
for distance in (4, 16, 64):
    runs = [train(LookUp, distance, seed) for seed in (0, 1, 2)]
    for _, update, right in runs:
        print(f"attention, {distance:2} places back: after ≈{update} updates, ≈{right:.0%} are right")

# %% tags=["check"]
assert all(right > 0.95 and update < 250 for _, update, right in runs)
for model, _, _ in runs:
    _ = model(torch.randint(SYMBOLS, (10, 65)))
    torch.testing.assert_close(model.layer.weights.sum(dim=-1), torch.ones(10, 1))

# %% [markdown]
# It learns at all three distances. It needs more updates at 64, probably because it starts with a mean over
# 65 words and has to learn to pick out one. What has it learned? The rule cannot be "look 64 places back,"
# because attention does not see order. It must be "look at the word with the mark". So it should also work at
# distances that it has never seen.
#
# **Before you run this:** the last three models were trained at distance 64. We test them at distance
# 4,096. How many of their answers are right?

# %%
for model, _, _ in runs:
    symbols = torch.randint(SYMBOLS, (100, 4097))
    with torch.no_grad():
        right = (model(symbols).argmax(dim=-1) == symbols[:, 0]).float().mean()
    share = model.layer.weights[..., 0].mean()
    print(f"at 4,096: ≈{right:.0%} are right; the first word gets ≈{share:.0%} of the weight")

# %% tags=["check"]
for model, _, _ in runs:
    symbols = torch.randint(SYMBOLS, (100, 4097))
    with torch.no_grad():
        assert (model(symbols).argmax(dim=-1) == symbols[:, 0]).float().mean() > 0.7
    assert model.layer.weights[..., 0].mean() > 0.7

# %% [markdown]
# **Attention finds a word by its content, not by its distance.** A *convolution*, the other tool of that
# time, computes each output from a few neighbors. So where it looks is fixed before it reads the
# sentence.

# %% [markdown]
# ## The third problem: waiting
#
# > "This inherently sequential nature precludes parallelization within training examples, which becomes
# > critical at longer sequence lengths, as memory constraints limit batching across examples." (section 1)
#
# A GPU can do thousands of computations at once if none of them needs the result of another. But in an
# RNN, the state after word 50 needs the state after word 49.
#
# We can measure how long an RNN has to wait. PyTorch keeps a graph of the operations that made each tensor,
# because `backward()` needs it. The function below walks back through this graph, step by step. The number of
# steps is the length of the longest chain of operations in which each one had to wait for the one before.


# %%
def longest_chain(y):
    """The length of the longest chain of operations behind y."""
    operations, length = {y.grad_fn}, 0  # the last operation
    while operations:  # go back to the operations whose results these needed
        needed = [before for operation in operations for before, _ in operation.next_functions]
        operations = {before for before in needed if before is not None}
        length += 1
    return length


def self_attention(x):  # (n, d) -> (n, d), every word looks at every word
    return attention(x, x, x)[0]


ways = {
    "recurrent": lambda x: recurrent(x, W, U),
    "self-attention": self_attention,
    "self-attention on top of a recurrent layer": lambda x: self_attention(recurrent(x, W, U)),
}
for name, way in ways.items():
    lengths = [longest_chain(way(torch.randn(n, 4, requires_grad=True))) for n in (8, 16, 32, 64)]
    print(f"{name:42} 8, 16, 32 and 64 words: {lengths}")

# %% tags=["check"]
chains = {}
for name, way in ways.items():
    chains[name] = [longest_chain(way(torch.randn(n, 4, requires_grad=True))) for n in (8, 16)]
assert chains["recurrent"][1] - chains["recurrent"][0] == 3 * 8  # three operations for each word
assert chains["self-attention"][0] == chains["self-attention"][1] < 10
assert chains["self-attention on top of a recurrent layer"][1] > chains["recurrent"][1]

# %% [markdown]
# In the recurrent layer, each word makes the chain longer by three operations: a product, a sum and a
# tanh. In self-attention the length is 6 for 8 words and for 64, because all words are computed at once.
# The third line is attention on top of an RNN, as in several models before 2017. The path becomes short, but
# the chain still grows with every word. (It is one shorter than the two others together, because each chain
# counts the input as its first step.)
#
# **Remember:** attention shortens the path. It does not end the wait of a recurrent network like ours.

# %% [markdown]
# ## Table 1
#
# *No later lesson needs this section, so you may skip it on a first reading.*
#
# You now know enough to read the paper's Table 1. It compares layers that turn $n$ vectors of $d$ numbers
# into $n$ new ones. The paper calls the three columns *complexity per layer*, *sequential operations* and
# *maximum path length*, and it gives each entry up to a constant factor.
#
# | layer | operations | steps that must wait for each other | longest path |
# |---|---|---|---|
# | self-attention | $n^2 \cdot d$ | $1$ | $1$ |
# | recurrent | $n \cdot d^2$ | $n$ | $n$ |
# | convolution over $k$ neighbors | $k \cdot n \cdot d^2$ | $1$ | $\log_k n$ |
# | self-attention to $r$ neighbors | $r \cdot n \cdot d$ | $1$ | $n / r$ |
#
# ![From the first of four words to the last output: 4 steps in a recurrent layer, 2 with attention on top of
# one, 3 through convolutions of 3 neighbors, 1 with self-attention](../images/layers.svg)
#
# *Figure 3. Four ways to relate words. The thick line is the path from the first word to the last output, and
# its steps are counted. The second way is not in the table, and each convolution here looks at adjacent
# words. (The table assumes convolutions with gaps, which are explained below.)*
#
# You have already seen two of the columns at work: the waiting, and the path. In the last two rows, each
# output sees only $k$ or $r$ words, so information crosses a long sentence through several layers. Through
# convolutions of neighbors, as in Figure 3, the path grows like $n / k$. The table's $\log_k n$ belongs to
# convolutions with gaps. Suppose that each of them sees three words: neighbors in the first layer, words that
# are three apart in the second, nine apart in the third. Then one layer sees 3 words, two layers see 9, and
# three layers see 27, so $n$ words need only $\log_3 n$ layers.
#
# What about the operations? Self-attention takes $n^2$ dot products of $d$ numbers each, one for every pair
# of words. A recurrent layer multiplies a vector by a matrix of $d \times d$ numbers at each of the $n$
# words, and a convolution does so $k$ times, once for each neighbor. Which of the three needs the most
# multiplications? PyTorch can count the multiplications:

# %%
from torch.utils.flop_counter import FlopCounterMode

d = 512
matrix, kernel = torch.empty(d, d, device="meta"), torch.empty(d, d, 3, device="meta")  # sizes, no numbers
compared = {
    "self-attention": self_attention,
    "recurrent": lambda x: recurrent(x, matrix, matrix),
    "convolution, k = 3": lambda x: nn.functional.conv1d(x.T, kernel, padding=1),
}
counts = {}
for name, way in compared.items():
    for n in (25, 512, 4096):
        with FlopCounterMode(display=False) as counter:
            _ = way(torch.empty(n, d, device="meta"))
        counts[name, n] = counter.get_total_flops() // 2  # it counts each product and each sum
    print(f"{name:20}", *(f"{counts[name, n]:16,}" for n in (25, 512, 4096)))

# %% tags=["check"]
for n in (25, 512, 4096):
    assert counts["self-attention", n] == 2 * n * n * d  # scores and means: twice Table 1's
    assert counts["recurrent", n] == 2 * n * d * d  # W and U: twice Table 1's
    assert counts["convolution, k = 3", n] == 3 * n * d * d

# %% [markdown]
# The columns are 25, 512 and 4,096 words. For 25 words, by this count, attention costs one twentieth as much
# as recurrence. At $n = d$ they cost the same, and at 4,096 words attention costs eight times as much. A
# convolution over three neighbors is more expensive than recurrence at every length, and one such layer does
# not yet relate distant words. (Our attention and our RNN cost twice what the table says: the first computes
# scores and means, and the second has two matrices. The table leaves such constant factors out.)
#
# > "In terms of computational complexity, self-attention layers are faster than recurrent layers when the
# > sequence length $n$ is smaller than the representation dimensionality $d$, which is most often the
# > case with sentence representations used by state-of-the-art models in machine translations [...]."
# > (section 4)
#
# Table 1 leaves something out. Multi-head attention also multiplies each word's vector by four matrices of $d
# \times d$ ([lesson 00](00_start_here.ipynb), section 3.2.2), which costs $4nd^2$ operations. With these
# matrices included, attention over 25 words costs not one twentieth as much as our RNN but twice as much. And
# the feed-forward network of each layer has two matrices of $d \times 4d$, which cost $8nd^2$. All these
# matrices together cost $12nd^2$. The scores cost $n^2d$, as in the table, and the weighted means cost as
# much again, so the quadratic part is $2n^2d$. How large is its share?

# %%
for n in (25, 250, 3072):
    quadratic, rest = 2 * n * n * d, 12 * n * d * d
    print(f"{n:5,} words: the quadratic part is {quadratic / (quadratic + rest):.1%} of a layer")

# %% tags=["check"]
assert 2 < (4 * 25 * d * d + counts["self-attention", 25]) / counts["recurrent", 25] < 2.1

# %% [markdown]
# For 25 words, the quadratic part is less than 1% of the layer. It reaches one half at $n = 6d$, which is
# about 3,000 words.
#
# **Remember:** for sentences, the quadratic cost of attention is small. It becomes the main problem for
# long documents.

# %% [markdown]
# ## Who was first?
#
# The paper invented neither attention nor *self*-attention, in which a sentence looks at itself. Its
# section 2 cites four earlier models with self-attention. Three of them kept a recurrent network: those for
# machine reading (Cheng et al., 2016), for sentence representations (Lin et al., 2017) and for summaries
# (Paulus et al., 2017). The fourth (Parikh et al., 2016) needed none, but it only said whether one sentence
# follows from another. So the paper's claim is narrower:
#
# > "To the best of our knowledge, however, the Transformer is the first transduction model relying entirely
# > on self-attention to compute representations of its input and output without using sequence-aligned RNNs
# > or convolution." (section 2)
#
# A *transduction model* turns one sequence into another, as a translator does.

# %% [markdown]
# ## What you can now say
#
# - Attention first removed a bottleneck: instead of one vector for the whole sentence, the decoder reads a
#   weighted mean of all encoder states.
# - In an RNN like ours, the gradient shrinks exponentially with the distance. Through attention, every
#   word is one step away, and the model finds it by its content, not by its distance.
# - A recurrent network computes one state after another. A layer of the Transformer computes all
#   positions at once.
# - To do so, it compares every pair of words. This is cheap for sentences, but not for long documents.
#
# **Deeper:** [How far does a gradient reach?](evidence/how_far_does_a_gradient_reach.ipynb)
#
# **Next:** [02_attention](02_attention.ipynb): attention itself, step by step.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: Sutskever et al. (2014) translated much better when the
# encoder read the source sentence *backward*. Suppose that a sentence has 10 words and that target word $i$
# translates source word $i$. Reading or writing a word takes one step. How many steps after a source word
# does its translation come when the source is read forward? And when it is read backward? What is the mean in
# both cases? Now suppose that each step halves the gradient. By what factor does reading backward increase
# the mean, taken over the ten pairs, of the gradient that arrives? (You need the sum of a geometric series.)

# %% tags=["solution"]
written = torch.arange(10) + 10  # when target word i is written; the source took the steps 0 to 9
forwards = written - torch.arange(10)
backwards = written - torch.arange(10).flip(0)
arrives = (0.5**backwards).mean() / (0.5**forwards).mean()
print("forward: ", forwards.tolist(), " mean", forwards.float().mean().item())
print("backward:", backwards.tolist(), " mean", backwards.float().mean().item())
print(f"{arrives:.0f} times as much of the gradient arrives")
# Forward, all ten pairs are 10 steps apart: the mean is 2^-10. Backward, the sum is 2^-1 + 2^-3 + ... + 2^-19
# = (2/3) (1 - 4^-10), and a tenth of it is 0.067, which is 68 times as much. The mean distance is the same,
# but a few pairs are now very close, and learning can begin with them.
assert forwards.float().mean() == backwards.float().mean() == 10
assert abs(arrives - 2 / 30 * (1 - 4.0**-10) / 2.0**-10) < 0.01

# %% [markdown]
# **Exercise 2 (medium).** Write Bahdanau's context vector for a whole batch: one decoder state for each
# sentence, and a mask that is `True` for real words and `False` for padding. Padding must get the weight
# 0.


# %% tags=["exercise"]
import torch


def context_vectors(s, h, A, B, v, real):
    """(batch, d), (batch, n, d), (a, d), (a, d), (a,), bool (batch, n) -> (batch, d)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_context_vectors(context_vectors):
    torch.manual_seed(0)
    s, h = torch.randn(3, 6), torch.randn(3, 4, 6)
    A, B, v = torch.randn(5, 6), torch.randn(5, 6), torch.randn(5)
    real = torch.tensor([[True] * 4, [True] * 3 + [False], [True] + [False] * 3])
    given = context_vectors(s, h, A, B, v, real)
    shape = getattr(given, "shape", given)
    assert shape == (3, 6), f"for 3 sentences and d = 6, the shape must be (3, 6), not {shape}"
    for i in range(3):
        words = [h[i, j] for j in range(4) if real[i, j]]
        powers = torch.stack([(v @ torch.tanh(A @ s[i] + B @ word)).exp() for word in words])
        by_hand = sum(p * word for p, word in zip(powers / powers.sum(), words, strict=True))
        gap = (given[i] - by_hand).abs().max()
        told = f"a sentence of {len(words)} words, padding {4 - len(words)}: off the formula by {gap:.2f}"
        assert gap < 1e-5, told


try:
    test_context_vectors(context_vectors)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(s, h, A, B, v, real):
    scores = torch.tanh((s @ A.T).unsqueeze(1) + h @ B.T) @ v  # (batch, n)
    weights = scores.masked_fill(~real, -torch.inf).softmax(dim=-1)
    return (weights.unsqueeze(1) @ h).squeeze(1)


test_context_vectors(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. Must a recurrence wait? Leave out the tanh and the matrix: $h_t = a_t
# h_{t-1} + x_t$, with products elementwise, and $h_{-1} = 0$. Compute all states in about $\log_2 n$ steps
# instead of $n$. Why does your way not work with the tanh? Hint: write $h_t$ in terms of $h_{t-2}$. The new
# formula has the same form. Now do the same with the new formula, and reach $h_{t-4}$, then $h_{t-8}$, and so
# on.


# %% tags=["exercise"]
import torch


def all_states(a, x):
    """a and x, (n, d) -> all states (n, d), without a loop over the n words."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch
from torch.overrides import TorchFunctionMode


def test_all_states(all_states):
    class Counter(TorchFunctionMode):
        operations = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.operations += 1
            return function(*args, **(kwargs or {}))

    for n in (1, 2, 16, 100, 400):
        a, x = torch.rand(n, 4), torch.randn(n, 4)
        state, expected = torch.zeros(4), []
        for t in range(n):
            state = a[t] * state + x[t]
            expected.append(state)
        with Counter() as counter:
            given = all_states(a, x)
        shape = getattr(given, "shape", given)
        assert shape == (n, 4), f"{n} words need states ({n}, 4), not {shape}"
        wrong = ((given - torch.stack(expected)).abs() > 1e-4).any(dim=1).nonzero().flatten().tolist()
        assert not wrong, f"of {n} words, {len(wrong)} have a wrong state, the first is h_{wrong[0]}"
    assert counter.operations < n, f"{counter.operations} operations for {n} words: that is a loop over words"


try:
    test_all_states(all_states)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(a, x):
    step = 1  # h_t = a_t h_{t - step} + x_t; where there is no h_{t - step}, x_t is the state
    while step < len(x):
        x = torch.cat([x[:step], x[step:] + a[step:] * x[:-step]])
        a = torch.cat([a[:step], a[step:] * a[:-step]])
        step *= 2
    return x


test_all_states(solution)
# Two steps without a tanh make one step of the same form; two steps with a tanh do not. Newer recurrent
# layers (S5, Mamba) leave it out for this reason and train in parallel. Table 1 has no row for them.
