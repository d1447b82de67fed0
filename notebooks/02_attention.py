# %% [markdown]
# # 02 · Attention
#
# **We soften a dictionary until it is equation 1 of the paper, then break it in every way we can think of.**
#
# Previous: [01_why_attention](01_why_attention.ipynb) · Next:
# [03_multi_head_attention](03_multi_head_attention.ipynb) · To see a whole model learn first:
# [09_first_example](09_first_example.ipynb)
#
# *45 minutes to read, 20 seconds to run, the exercises extra.*
#
# - **Before:** you know tensors, the matrix product, and that `backward()` fills `.grad`. Nothing about
#   attention.
# - **After:** you know where the weights of attention come from; why scores are divided by $\sqrt{d_k}$, in
#   numbers; what a mask is, which way round it goes, and how one empty row fills a model with NaN.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.2.1, and from 3.2.3
# the decoder's mask.

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

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated import Batch, MultiHeadedAttention, padding_mask, subsequent_mask
from annotated.plots import setup_notebook, show_source
from annotated.transformer.attention import attention

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## A look-up that may blend
#
# A dictionary holds *values* under *keys*; ask it with a *query* that equals a key, and it hands over the
# value. Here is one with four temperatures.

# %%
temperature = {0: 9.0, 6: 11.0, 12: 19.0, 18: 16.0}  # hour of the day: degrees Celsius
print("12 o'clock:", temperature.get(12))
print("15 o'clock:", temperature.get(15))

# %% [markdown]
# `None` for 15 o'clock is a poor answer. Noon had 19 degrees, six in the evening had 16; anyone would
# say 17 or 18. The dictionary cannot: to it, two keys are equal or they are not. We want *nearly*.
#
# So we make each hour a vector, a point on the dial of a 24-hour clock. How near two hours are is then their
# dot product: 1 for the same hour, 0 for six hours apart, -1 for twelve. We call it the **score** of a key.


# %%
def on_the_dial(hours: Tensor) -> Tensor:
    """Hours (...) -> points on a circle of radius 1 (..., 2)."""
    angle = hours * (2 * math.pi / 24)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


keys = on_the_dial(torch.tensor([0.0, 6.0, 12.0, 18.0]))  # (4, 2)
values = torch.tensor([9.0, 11.0, 19.0, 16.0])  # (4,)
query = on_the_dial(torch.tensor(15.0))  # (2,)

scores = keys @ query  # (4,)
print("scores:", [round(score, 2) for score in scores.tolist()])

# %% [markdown]
# Noon and six in the evening score 0.71, the other two -0.71. A blend is a weighted mean. The first idea is
# to use the scores as the weights, divided by their sum so that they add up to 1. Their sum?

# %%
assert_close(scores.sum(), torch.tensor(0.0))
every_hour = on_the_dial(torch.arange(24.0))  # (24, 2)
assert_close((every_hour @ keys.T).sum(dim=-1), torch.zeros(24))
print("the scores sum to 0, whatever hour is asked for: True")

# %% [markdown]
# Nothing to divide by, at any hour: opposite keys cancel. And a negative weight would *subtract* a
# temperature. Weights must be positive, and larger for a larger score. The exponential does both, and
# dividing by the sum is then safe. That is the **softmax**:
#
# $$\mathrm{softmax}(s)_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# One knob is left: multiply the scores by a *sharpness* first.


# %%
def soft_lookup(query: Tensor, sharpness: float) -> Tensor:
    """Ask the table: queries (..., 2) -> temperatures (...)."""
    weights = (sharpness * query @ keys.T).softmax(dim=-1)  # (..., 4)
    return weights @ values


for sharpness in (0, 1, 4, 1000):
    print(f"sharpness {sharpness:4}: {soft_lookup(query, sharpness):.2f} degrees at 15 o'clock")

# %% [markdown]
# From "no idea, so the mean of all" to "halfway between the two that are near". What about noon, whose answer
# we have?

# %% tags=["figure-soft-lookup"]
from annotated.plots import plot_soft_lookup

hours = torch.linspace(0, 24, 193)
answers = {
    f"sharpness {sharpness}": soft_lookup(on_the_dial(hours), sharpness) for sharpness in (0, 1, 4, 50)
}
plot_soft_lookup(
    list(temperature), list(temperature.values()), hours.tolist(), answers,
    xlabel="hour asked for", ylabel="temperature (°C)", title="A look-up becoming soft",
).set_xticks(range(0, 25, 6))  # fmt: skip
plt.show()
assert_close(soft_lookup(keys, 1000), values)  # sharp enough, it is the dictionary

# %% [markdown]
# *Figure 1. The temperatures that the look-up answers, asked at every hour: the sharper it is, the closer
# it comes to the four entries of the table.*
#
# The softer the look-up, the further it misses even the entries it holds. Only the sharpest goes through all
# four points. The soft look-up has a name, *attention*, and so: **for the keys it holds, a dictionary is
# attention with infinite sharpness.** (For other queries, such attention returns the entry with the highest
# score, here the nearest, or the mean of those that tie.) So why not always be sharp?
#
# Because we want to *learn* the vectors, and learning needs a slope. Ask at 14 o'clock, and ask how the
# answer would change if the query moved.


# %%
def slope(sharpness: float) -> float:
    """How much the answer at 14 o'clock changes with the query: the norm of its gradient."""
    query = on_the_dial(torch.tensor(14.0)).requires_grad_()
    soft_lookup(query, sharpness).backward()
    return query.grad.norm().item()


for sharpness in (0, 1, 4, 50, 1000):
    print(f"sharpness {sharpness:4}: slope {slope(sharpness):.4f}")
assert slope(0) == slope(1000) == 0 < slope(4)

# %% [markdown]
# Zero at both ends. Too soft listens to nobody; too sharp is a staircase, flat but at the edges of its steps.
# Learning happens in between, and keeping the scores in between is all that the $\sqrt{d_k}$ in the formula
# below does; $d_k$ is how many numbers a key has.
#
# ## Equation 1
#
# Ask many queries at once, let each value be a vector too, and the soft look-up is the paper's equation 1:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$
#
# | | rows | each row is |
# | --- | --- | --- |
# | $Q$ | one per query | a question, $d_k$ numbers |
# | $K$ | one per key | what the question is compared with, $d_k$ numbers |
# | $V$ | one per key | what is handed over, $d_v$ numbers |
#
# Entry $(t, s)$ of $QK^\top$ is the dot product of query $t$ with key $s$; the softmax runs along each row,
# over the keys; the sharpness is $1/\sqrt{d_k}$. Now for words. A German sentence, its translation, and a
# verb that English says in one word and German splits in two, *hat ... gesehen*:

# %%
sentences = (
    "Yesterday the dog saw the little cat .",
    "Gestern hat der Hund die kleine Katze gesehen .",
    "Yesterday saw the dog the little cat saw .",  # for each German word, the English word that it stands for
)
english, german, meant = (sentence.split() for sentence in sentences)

_ = torch.manual_seed(0)
d_k, d_v = 16, 6
vector = {word: torch.randn(d_k) for word in dict.fromkeys(english)}

Q = torch.stack([vector[word] for word in english])  # (8, 16)
K = torch.stack([vector[word] for word in meant]) + 0.5 * torch.randn(len(german), d_k)  # (9, 16)
V = torch.randn(len(german), d_v)  # (9, 6)
print("Q", tuple(Q.shape), " K", tuple(K.shape), " V", tuple(V.shape))

# %% [markdown]
# We cheat: an English word gets random numbers, and its German counterpart the same ones, a little disturbed.
# A trained model has found such vectors by itself. What follows does not care where they come from.
#
# Equation 1 without a single tensor operation, so that nothing hides:


# %%
def attention_by_hand(Q: list, K: list, V: list) -> list:
    """Equation 1 in plain Python: lists of lists in, a list of lists out."""
    outputs = []
    for q in Q:
        scores = [sum(q[i] * k[i] for i in range(len(q))) / math.sqrt(len(q)) for k in K]
        total = sum(math.exp(score) for score in scores)
        weights = [math.exp(score) / total for score in scores]
        outputs.append([sum(weights[s] * V[s][j] for s in range(len(V))) for j in range(len(V[0]))])
    return outputs


by_hand = torch.tensor(attention_by_hand(Q.tolist(), K.tolist(), V.tolist()))
print("one output a query:", tuple(by_hand.shape))

# %% [markdown]
# Look for a query that must wait for another: there is none. All of them, and every product of a query with a
# key, could be done at the same time, and three matrix operations do them.

# %%
scores = Q @ K.T / math.sqrt(d_k)  # (8, 9): one row a query, one column a key
weights = scores.softmax(dim=-1)  # (8, 9): every row sums to 1
output = weights @ V  # (8, 6)

assert_close(output, by_hand)
assert_close(weights.sum(dim=-1), torch.ones(8))
print("three lines = the loops: True")

# %% [markdown]
# The package has these three lines, and around them two `if` for masks, which wait until we need them, and
# one for dropout, a noise for training ([08_training_recipe](08_training_recipe.ipynb)). The dots in its
# comments stand for any dimensions in front. PyTorch has the equation too, *fused* into one step (a
# *kernel*).

# %%
show_source(attention, docstring=False)

# %%
from_package, its_weights = attention(Q, K, V)
fused = F.scaled_dot_product_attention(Q, K, V)  # one kernel of PyTorch's, which never shows its weights

assert_close(from_package, by_hand)
assert_close(its_weights, weights)
assert_close(fused, by_hand)
print("loops = matrices = package = fused kernel: True")

# %% tags=["figure-weights"]
from annotated.plots import plot_attention

ax = plot_attention(weights, english, german, title="Where each English word looks")
ax.set(xlabel="key (German)", ylabel="query (English)")
plt.show()
assert weights[english.index("cat")].argmax() == german.index("Katze")
assert weights[:, german.index("der")].sum() > 1  # a column may

# %% [markdown]
# *Figure 2. The weights of each English word (a row) on the German words (columns): bright is much, and each
# row sums to 1.*
#
# Read it by rows: each sums to 1. *saw* reaches *gesehen*, four places further on, as easily as a neighbour.
# But it cannot have two keys at full weight, so *hat* and *gesehen* share. Columns have no such budget.
#
# Now look at the two rows *the*. Each of them should find its own article, *der* or *die*.

# %%
first, second = (t for t, word in enumerate(english) if word == "the")
assert_close(weights[first], weights[second], rtol=0, atol=0)
print("the first 'the' and the second 'the' look at the same words: True")

# %% [markdown]
# They cannot. The same word is the same query, wherever it stands. Is it so bad? Let the words of a sentence
# look at each other, queries, keys and values all from one place, and shuffle them:


# %%
def self_attention(sentence: str) -> dict[str, Tensor]:
    """What each word becomes after looking at all words of its sentence, itself among them."""
    words = sentence.split()
    x = torch.stack([vector[word] for word in words])
    return dict(zip(words, attention(x, x, x)[0], strict=True))


one, other = self_attention("the dog saw the cat"), self_attention("the cat saw the dog")
assert_close(one, other)
print("'the dog saw the cat' = 'the cat saw the dog', every word of it: True")

rows, entries = torch.randperm(len(Q)), torch.randperm(len(K))
assert_close(attention(Q[rows], K[entries], V[entries])[0], output[rows])
print("queries shuffled, keys shuffled with their values: only the outputs' order changes: True")

# %% [markdown]
# Who saw whom is gone. Attention is a look-up, and a look-up does not care how the table is sorted: shuffle
# keys with their values and nothing changes; shuffle queries and the outputs are shuffled alike. Word order
# has to come from somewhere else; the paper adds it to the vectors themselves
# ([05_positional_encoding](05_positional_encoding.ipynb)).
#
# Two more things that attention cannot do. First: an output is a weighted mean of values, so **no coordinate
# of it can leave the range of that coordinate in the values**. Attention mixes; it never adds up. It hears
# which *share* a word has in the sentence, not how often it is said.

# %%
assert (output <= V.amax(dim=0)).all()
assert (output >= V.amin(dim=0)).all()
twice, _ = attention(Q, torch.cat([K, K]), torch.cat([V, V]))  # every German word said twice
assert_close(twice, output)
print("every word said twice, same output: True")

# %% [markdown]
# Second: the softmax divides by a sum, so whatever multiplies all exponentials alike cancels. Add 100 to a
# whole row of scores, which multiplies each by $e^{100}$, and no weight moves. Hence add **one and the same
# vector to every key**, and no weight moves either: $q\cdot(k + c) = q\cdot k + q\cdot c$, and the last term
# is the same for all keys.
#
# Now think of the layer that makes keys in a model: a linear map, most often with a bias, which the paper's
# formulas have not (multi-head attention has four such maps: for queries, keys, values and the output). What
# can that bias learn?

# %%
assert_close(attention(Q, K + torch.randn(d_k), V)[0], output)

_ = torch.manual_seed(0)
layer = MultiHeadedAttention(h=2, d_model=16, dropout=0.0)  # notebook 03 takes it apart
x = torch.randn(1, 9, 16)
layer(x, x, x).square().sum().backward()
for name, linear in zip(("query", "key", "value", "output"), layer.linears, strict=True):
    print(f"{name:6} bias gets a gradient: {bool(linear.bias.grad.abs().max() > 1e-4)}")

# %% [markdown]
# Nothing, ever. Every Transformer of the paper's kind whose key projection has a bias carries those
# parameters as dead weight.
#
# **Exercise 1 (medium).** A model asks many sentences (`B`) with many attentions side by side (`h` *heads*)
# at once: `Q` is `(B, h, T, d_k)`. Write equation 1 for it with two calls of `torch.einsum` and one softmax,
# no transposing. (`einsum("ij,jk->ik", a, b)` is the matrix product: a letter for each dimension, and a sum
# over each letter that the result has not.) What did you have to change for the two extra dimensions?


# %% tags=["exercise"]
def attention_by_einsum(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Queries (B, h, T, d_k), keys (B, h, S, d_k), values (B, h, S, d_v) -> outputs (B, h, T, d_v)."""
    raise NotImplementedError


# %% tags=["solution"]
# One letter for each new dimension, carried through; the package needs no change at all.
def attention_by_einsum(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    scores = torch.einsum("bhtd,bhsd->bhts", Q, K) / math.sqrt(Q.size(-1))
    return torch.einsum("bhts,bhsv->bhtv", scores.softmax(dim=-1), V)


# %% tags=["exercise-test"]
many = torch.randn(3, 2, 5, 4, 16)  # queries, keys and values of 2 sentences, 5 heads, 4 words
assert_close(attention_by_einsum(*many), attention(*many)[0])
print("equal to the package's attention")

# %% [markdown]
# ## Why divide by the square root of $d_k$
#
# "The softmax makes the weights sum to 1 anyway, so a constant factor cannot matter." We have just seen that
# a constant *summand* cannot. A factor?

# %%
for factor in (1, 8):
    row = factor * torch.tensor([1.0, 2.0, 3.0])
    print(f"softmax of {row.tolist()} = {[round(w, 3) for w in row.softmax(dim=0).tolist()]}")

# %% [markdown]
# A factor is the sharpness of the first section. Which factor do scores bring along by themselves? Section
# 3.2.1 has the answer in a footnote: if the entries of $q$ and $k$ are independent, with mean 0 and variance
# 1, then $q\cdot k$ has mean 0 and variance $d_k$. It is a sum of $d_k$ products, each with variance 1.
# Measured, on 2,000 queries with 9 keys each:

# %%
_ = torch.manual_seed(0)
QUERIES, KEYS = 2000, 9
widths = [2**n for n in range(11)]  # 1, 2, 4, ... 1024
products = {}
for d_k in widths:
    q, k = torch.randn(QUERIES, 1, d_k), torch.randn(QUERIES, KEYS, d_k)
    products[d_k] = (q @ k.transpose(-2, -1)).squeeze(1)  # (2000, 9)

for d_k in (4, 64, 1024):
    variance = products[d_k].var()
    print(f"d_k = {d_k:4}: variance / d_k = {variance / d_k:.1f}, typical score ±{products[d_k].std():.0f}")
    assert_close(variance / d_k, torch.tensor(1.0), rtol=0.1, atol=0)

# %% [markdown]
# At $d_k = 64$, the paper's, scores of some ±8: they lie as far apart as those in the second row above.
# Dividing by $\sqrt{d_k}$ makes the variance 1 at any width.
#
# What does the softmax do with those? Two numbers tell. The **entropy** of the weights $w$, in bits,
# $-\sum_i w_i \log_2 w_i$: nine equal weights have $\log_2 9 = 3.17$, a single winner has 0. And the
# **response**: how far the weights move when the scores are nudged, which is the norm of the Jacobian, the
# matrix of all their slopes ($[i = j]$ is 1 where $i = j$, else 0):
#
# $$\frac{\partial w_i}{\partial s_j} = w_i\,([i = j] - w_j)$$
#
# Every gradient on its way back to $q$ and $k$ is multiplied by this matrix.


# %%
def entropy(weights: Tensor) -> Tensor:
    """Bits: (..., keys) -> (...)."""
    return torch.special.entr(weights).sum(dim=-1) / math.log(2)


def response(weights: Tensor) -> Tensor:
    """The norm of the softmax's Jacobian: (..., keys) -> (...)."""
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return jacobian.norm(dim=(-2, -1))


row = products[4][0]
by_autograd = torch.autograd.functional.jacobian(lambda scores: scores.softmax(dim=-1), row)
assert_close(response(row.softmax(dim=-1)), by_autograd.norm())
print("the formula = autograd: True")

# %% tags=["figure-scaling"]
from annotated.plots.scaling import PLAIN, SCALED, explore_scaling

plain = {d_k: products[d_k].softmax(dim=-1) for d_k in widths}  # (2000, 9) each
scaled = {d_k: (products[d_k] / math.sqrt(d_k)).softmax(dim=-1) for d_k in widths}


def typical(measure, weights: dict[int, Tensor]) -> Tensor:
    """The median over the queries, at each width."""
    return torch.stack([measure(weights[d_k]).median() for d_k in widths])


bits = {PLAIN: typical(entropy, plain), SCALED: typical(entropy, scaled)}
moves = {PLAIN: typical(response, plain), SCALED: typical(response, scaled)}
q, k = torch.randn(1024), torch.randn(len(german), 1024)  # one query: its first d_k entries, whatever d_k is
one_query = torch.stack([k[:, :d_k] @ q[:d_k] for d_k in widths])  # (11, 9)
explore_scaling(widths, one_query, german, bits, moves)

# %% [markdown]
# *Figure 3. Scores and weights as $d_k$ grows, without and with the division: without it, one word takes
# all the weight.*
#
# All numbers are random; the German words are only names. Move the slider (in a still picture, compare the
# colours at $d_k = 64$). Blue goes from a blend to a single winner; orange stays a blend. On the right, the
# median over the 2,000 queries.

# %%
print(f"d_k = 64:   {bits[PLAIN][6]:.1f} bits as they are, {bits[SCALED][6]:.1f} scaled")
print(f"d_k = 1024: {bits[PLAIN][10]:.1f} bits as they are, {bits[SCALED][10]:.1f} scaled")
assert moves[PLAIN][10] < 1e-4 < 0.3 < moves[SCALED].min()
print("unscaled, the response at d_k = 1024 is below a ten-thousandth: True")

# %% [markdown]
# The paper *suspects* that large products push the softmax to where its gradients are extremely small. For
# the typical query, that is what we see. But training adds gradients up, and a sum is governed by the mean.
# Let us measure what arrives at the query itself, by autograd, and take mean and median.


# %%
def gradients(q: Tensor, k: Tensor, v: Tensor, pull: Tensor, scale: float) -> Tensor:
    """The norm of the gradient at each query, if its output is pulled in some direction: (2000,)."""
    q = q.clone().requires_grad_()
    output = (q @ k.transpose(-2, -1) * scale).softmax(dim=-1) @ v
    (output * pull).sum().backward()
    return q.grad.norm(dim=-1).squeeze(1)


_ = torch.manual_seed(0)
unscaled, divided = [], []
for d_k in widths:
    q, k = torch.randn(QUERIES, 1, d_k), torch.randn(QUERIES, KEYS, d_k)
    v, pull = torch.randn(QUERIES, KEYS, 64), torch.randn(QUERIES, 1, 64) / 8
    unscaled.append(gradients(q, k, v, pull, 1.0))
    divided.append(gradients(q, k, v, pull, d_k**-0.5))

# %% tags=["figure-gradients"]
from annotated.plots import plot_by_width


def mean_and_median(norms: list[Tensor]) -> dict[str, Tensor]:
    return {
        "mean": torch.stack([norm.mean() for norm in norms]),
        "median": torch.stack([norm.median() for norm in norms]),
    }


curves = {PLAIN: mean_and_median(unscaled), SCALED: mean_and_median(divided)}
plot_by_width(widths, curves, ylabel="gradient norm at the query", title="What reaches a query")
plt.show()
assert curves[PLAIN]["mean"][10] > 2 * curves[SCALED]["mean"][10]
assert curves[PLAIN]["median"][10] < 0.001 * curves[SCALED]["median"][10]

# %% [markdown]
# *Figure 4. Gradients at the query: without the division the median falls to nothing, the mean does not.*
#
# Here is something the paper does not say. Without scaling the **mean gradient does not vanish**; it is
# larger than with it. Only the median dies. A few queries, those whose two best keys happen to be neck and
# neck, stand on an edge of the staircase and get an enormous push; all others get next to none. How few?


# %%
def share_of_loudest(norms: Tensor, share: float = 0.1) -> float:
    """Which part of all gradient the loudest tenth of the queries holds."""
    ordered = norms.sort(descending=True).values
    return (ordered[: int(share * len(norms))].sum() / norms.sum()).item()


for n in (6, 10):
    lottery, fair = share_of_loudest(unscaled[n]), share_of_loudest(divided[n])
    print(f"d_k = {widths[n]:4}: the loudest tenth holds {lottery:.0%} of it all unscaled, {fair:.0%} scaled")
assert fair < 0.3 < 0.7 < lottery

best, second = products[1024].topk(2).values.unbind(dim=-1)
lead = best - second
loudest = response(plain[1024]).topk(QUERIES // 10).indices
print(f"the best key leads by {lead[loudest].median():.0f} there, by {lead.median():.0f} in a typical query")
assert lead[loudest].max() < lead.median()

# %% [markdown]
# So the trouble, with random vectors, is not a weak signal but a lottery: at width 1024 one query in ten does
# most of the learning, and the others wait for a tie. At the paper's width of 64 it has begun.
#
# The footnote's "independent" deserves a look as well; entries of real vectors never are. For independent
# zero-mean $q$ and $k$ with covariances $\Sigma_q$, $\Sigma_k$, the variance of $q\cdot k$ is
# $\mathrm{tr}(\Sigma_q\Sigma_k)$. If *either* of them is the identity, and the entries of the other have
# variance 1, that is still $d_k$, however entangled they are. (Skip this if covariances are new to you.) We
# try the worst: a vector whose entries are all equal.

# %%
_ = torch.manual_seed(0)
n, d_k = 20_000, 256


def loose() -> Tensor:
    return torch.randn(n, d_k)  # entries independent


def stuck() -> Tensor:
    return torch.randn(n, 1).expand(n, d_k)  # one number, d_k times


for name, q, k, expected in (
    ("both loose ", loose(), loose(), d_k),
    ("keys stuck ", loose(), stuck(), d_k),
    ("both stuck ", stuck(), stuck(), d_k**2),
):
    variance = (q * k).sum(dim=-1).var()
    assert_close(variance, torch.tensor(float(expected)), rtol=0.1, atol=0)
    print(f"{name}: variance = {'d_k' if expected == d_k else 'd_k squared'}: True")

# %% [markdown]
# The footnote asks for more than it needs: one side with uncorrelated entries is enough, if $q$ and $k$ are
# independent of each other. Correlated entries on *both* sides break it, as the third line shows, and so does
# dependence *between* $q$ and $k$. The extreme is a word that looks at its own sentence with its own
# vector, as in `self_attention` above: the product with itself is not ±$\sqrt{d_k}$ but $|x|^2 \approx d_k$.

# %%
_ = torch.manual_seed(0)
x = torch.randn(9, 512)  # nine words
own = attention(x, x, x)[1].diagonal()  # the weight of each word on itself
print(f"d_k = 512, scaled: every word gives itself a weight of {own.min():.2f}")
assert own.min() > 0.999

# %% [markdown]
# Scaled, and still a single winner: every word sees only itself. So queries and keys should be *different*
# views of a word, which is one reason for the linear maps $W^Q$ and $W^K$ of
# [03_multi_head_attention](03_multi_head_attention.ipynb).
#
# **Exercise 2.** Somebody divides by $d_k$ in place of $\sqrt{d_k}$. Guess the typical entropy at $d_k = 4$
# and at 1024, then measure. To which point of the first section does attention go now?

# %% tags=["solution"]
for d_k in (4, 1024):
    too_soft = (products[d_k] / d_k).softmax(dim=-1)
    print(f"d_k = {d_k:4}: {entropy(too_soft).median():.2f} of at most {math.log2(KEYS):.2f} bits")
assert entropy(too_soft).median() > 0.99 * math.log2(KEYS)
print("scores of variance 1 / d_k: sharpness 0, the mean of everything")

# %% [markdown]
# ## The other kind: additive attention
#
# The product as a score is older than the paper (Luong et al., 2015); new is the square root. Its rival is
# older still: a small network takes the query and the key and *adds* them (Bahdanau et al., 2015), with
# weights $W$, $U$, $v$ to be learned:
#
# $$\mathrm{score}(q, k) = v^\top \tanh(Wq + Uk)$$
#
# Section 3.2.1 compares the two in three claims. We need one class for them.


# %%
class AdditiveAttention(nn.Module):
    """Scores from a network with one hidden layer."""

    def __init__(self, d_k: int, hidden: int):
        super().__init__()
        self.W = nn.Linear(d_k, hidden, bias=False)
        self.U = nn.Linear(d_k, hidden, bias=False)
        self.v = nn.Linear(hidden, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Queries (T, d_k) and keys (S, d_k) -> scores (T, S)."""
        added = self.W(query).unsqueeze(1) + self.U(key).unsqueeze(0)  # (T, S, hidden)
        return self.v(added.tanh()).squeeze(-1)


_ = torch.manual_seed(0)
additive = AdditiveAttention(d_k=16, hidden=16)
one_pair = additive.v.weight @ torch.tanh(additive.W.weight @ Q[3] + additive.U.weight @ K[1])
assert_close(additive(Q, K)[3, 1], one_pair.squeeze())
print("scores:", tuple(additive(Q, K).shape), "for", len(english), "queries and", len(german), "keys")

# %% [markdown]
# **Claim one: in theory both cost about the same.** PyTorch can count the operations of matrix products, a
# multiplication and an addition each. The projections by $W$ and $U$ are done once a word, not once a pair.
# Leave them out, and with a hidden layer as wide as $d_k$ the two counts are equal to the last digit. (The
# sum and the tanh of every pair it does not count.)

# %%
from torch.utils.flop_counter import FlopCounterMode

T = S = 256
width = 64
additive = AdditiveAttention(width, hidden=width)
query, key = torch.randn(2, T, width)
with torch.no_grad(), FlopCounterMode(display=False) as for_dot:
    query @ key.T
with torch.no_grad(), FlopCounterMode(display=False) as for_additive:
    additive(query, key)
projections = 2 * (T + S) * width * width
print(f"dot product: {for_dot.get_total_flops():,} operations")
print(f"additive:    {for_additive.get_total_flops() - projections:,} and {projections:,} for W and U")
assert for_dot.get_total_flops() == for_additive.get_total_flops() - projections

# %% [markdown]
# **Claim two: in practice the product is much faster and takes less space.** The count says nothing of what
# must be *kept*: the sum inside the tanh is a vector for every pair, and no matrix product makes it
# disappear.

# %%
from time import perf_counter


@torch.no_grad()
def seconds(score) -> float:
    """The fastest of fifty runs."""
    times = []
    for _ in range(50):
        start = perf_counter()
        score()
        times.append(perf_counter() - start)
    return min(times)


held = (additive.W(query).unsqueeze(1) + additive.U(key).unsqueeze(0)).numel()
print(f"numbers held: {(query @ key.T).numel():,} and {held:,}, {held // (T * S)} times as many")
ratio = seconds(lambda: additive(query, key)) / seconds(lambda: query @ key.T)
print("as many operations in products, and at least 5 times as long:", ratio > 5)

# %% [markdown]
# **Claim three: without scaling, the additive kind does better at large $d_k$** (the paper cites Britz et
# al., 2017). We do not train both to see it; a likely reason shows without. The tanh stays between -1 and 1,
# and the freshly drawn $v$ is small, so its scores do not grow.

# %%
_ = torch.manual_seed(0)
for d_k in (16, 128, 1024):
    q, k = torch.randn(2, 200, d_k)
    with torch.no_grad():
        spread = AdditiveAttention(d_k, hidden=d_k)(q, k).std()
    print(f"d_k = {d_k:4}: typical score ±{(q @ k.T).std():4.0f} as a product, ±{spread:.1f} added")
    assert spread < 1

# %% [markdown]
# Additive attention never needed the square root. The product needs it, and with it has the same calm scores
# at the price of one matrix product. That trade is the whole of section 3.2.1's argument.
#
# ## Masks: who may look at whom
#
# A model reads a sentence as *tokens*: words or parts of words, each with its number in a list. Sentences
# differ in length; tensors are rectangular. So the short ones are filled up with a special token, `<blank>`.
# (`<s>` and `</s>` mark where a translation starts and ends, `<unk>` stands for words that the list has not.)
# Two pairs of sentences, the second with much to fill:

# %%
from torch.nn.utils.rnn import pad_sequence

sources = [german, ["Der", "Hund", "schläft", "."]]
targets = [["<s>", *english, "</s>"], ["<s>", "The", "dog", "is", "asleep", ".", "</s>"]]
words = ["<s>", "</s>", "<blank>", "<unk>", *sorted({w for s in sources + targets for w in s if w[0] != "<"})]
number = {word: n for n, word in enumerate(words)}


def numbered(sentences: list[list[str]]) -> Tensor:
    """Sentences -> token numbers (batch, len), the short ones filled up with <blank>."""
    rows = [torch.tensor([number[word] for word in sentence]) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=number["<blank>"])


src, tgt = numbered(sources), numbered(targets)
print(*(words[n] for n in src[1]))

# %% [markdown]
# A blank has a vector like any other token. Nobody told the softmax that it means nothing. We let the English
# words look at the German ones, all vectors random (`nn.Embedding` is a table of them, a row for each token):

# %%
_ = torch.manual_seed(0)
embed = nn.Embedding(len(words), 16)
with torch.no_grad():
    x, y = embed(src[1]), embed(tgt[1, 1:6])  # German (9, 16), five of them blanks; English (5, 16)
real = src[1] != number["<blank>"]
wanted = attention(y, x[real], x[real])[0]  # what comes out if there is no padding

scores = y @ x.T / math.sqrt(16)  # (5, 9)
weights = scores.softmax(dim=-1)
print(f"'is' gives {weights[2, ~real].sum():.0%} of its attention to blanks")
print("the output is as without padding:", torch.allclose(weights @ x, wanted))

# %% [markdown]
# Three ways to mend it; two of them wrong. Multiply the *scores* of the blanks by 0. Multiply their *weights*
# by 0. Set their scores to $-\infty$.

# %%
mended = {
    "scores times 0": (scores * real).softmax(dim=-1),
    "weights times 0": weights * real,
    "scores to -infinity": scores.masked_fill(~real, -math.inf).softmax(dim=-1),
}
for name, w in mended.items():
    ok = torch.allclose(w @ x, wanted)
    print(f"{name:19}: {w[2, ~real].sum():.0%} to blanks, sum {w[2].sum():.2f}, as without padding: {ok}")
assert_close(attention(y, x, x, real)[0], wanted)
assert (scores[2, ~real] < 0).all()

# %% [markdown]
# Scores of 0 gave the blanks *more*: theirs had been below 0. A 0 is no "no": $e^0 = 1$, a vote like any
# other. Only $e^{-\infty} = 0$ is. Done *before* the softmax, those who remain share everything among them.
# `real` is a **mask**: ours is boolean, `True` where attention is allowed.
#
# The second mask is for the decoder, the half of the model that writes the translation and must guess each
# word from those before it. In training it has the whole translation in front of it, so what follows has to
# be hidden (section 3.2.3). That is a triangle, and one meets it written in many ways:

# %%
n = 5
ways = {
    "keep the lower triangle": torch.ones(n, n, dtype=torch.bool).tril(),
    "upper triangle, then == 0": torch.ones(n, n).triu(diagonal=1) == 0,
    "compare positions": torch.arange(n).unsqueeze(1) >= torch.arange(n),
    "the package": subsequent_mask(n)[0],
}
for name, way in ways.items():
    print(f"{name:26} same mask: {bool((way == ways['the package']).all())}")
print(ways["the package"].int())

# %% [markdown]
# Why would anyone write `triu == 0`? `triu(diagonal=1)` marks what is *forbidden*, all that lies above the
# diagonal, and `== 0` turns that into what is allowed. `tril` says it at once. Comparing positions says it
# best: a query at $t$ sees keys at $s \le t$.
#
# The diagonal is where it goes wrong. One step too far and a word sees its successor; one step too short and
# it does not see itself. Neither raises an error. To catch them, change the last of five words, counted from
# 0, and see which outputs move:


# %%
def reached_by_last_word(mask: Tensor) -> list[int]:
    """The positions whose output changes when only the last word does."""
    queries, x = torch.randn(2, n, 16)
    changed = x.clone()
    changed[-1] += 1
    moved = attention(queries, x, x, mask)[0] != attention(queries, changed, changed, mask)[0]
    return moved.any(dim=-1).nonzero().flatten().tolist()


_ = torch.manual_seed(0)
ones = torch.ones(n, n, dtype=torch.bool)
print("right:    ", reached_by_last_word(ones.tril()))
print("too far:  ", reached_by_last_word(ones.tril(diagonal=1)))
print("too short:", reached_by_last_word(ones.tril(diagonal=-1)))
assert reached_by_last_word(subsequent_mask(n)[0]) == [4]

# %% [markdown]
# "Too far" has word 3 change with word 4: a model trained so can simply copy the answer
# ([07_batches_and_masks](07_batches_and_masks.ipynb) catches one doing it). "Too short" leaves the first
# word with nothing at all to see; hold that thought.
#
# A decoder needs both masks, and `&` joins them. `Batch` does so, and cuts off the target's last column: in
# the longest sentence that is `</s>`, and there is nothing to say after it.

# %%
batch = Batch(src, tgt, pad=number["<blank>"])
tokens = [words[n] for n in batch.tgt[1]]  # the short sentence, as the decoder reads it
padding = padding_mask(batch.tgt, pad=number["<blank>"])  # (2, 1, 9): one row serves every query
causal = subsequent_mask(batch.tgt.size(1))  # (1, 9, 9): one triangle serves every sentence
assert (batch.tgt_mask == (padding & causal)).all()
print("source mask", tuple(batch.src_mask.shape), " target mask", tuple(batch.tgt_mask.shape))

# %% tags=["figure-masks"]
from annotated.plots import plot_mask

masks = {"padding": padding[1], "causal": causal[0], "padding & causal": batch.tgt_mask[1]}
figure, axes = plt.subplots(1, 3, figsize=(15, 5), sharey=True)
for ax, (name, mask) in zip(axes, masks.items(), strict=True):
    plot_mask(mask, tokens, tokens, ax=ax, title=name)
    ax.label_outer()
for ax in axes[:2]:
    ax.get_legend().remove()
plt.show()
assert batch.tgt_mask[1].sum(dim=-1).tolist() == [1, 2, 3, 4, 5, 6, 7, 7, 7]  # keys that each query sees

# %% [markdown]
# *Figure 5. Three masks for one sentence: what a query (row) may see of the keys (columns) is coloured, what
# is hidden is grey.*
#
# Query down, key across: a row is what one token sees. Padding takes *columns* away, the future takes a
# corner. The same to point at:

# %% tags=["figure-masks-by-query"]
from annotated.plots import explore_masks

explore_masks(masks, tokens, tokens, query=3)

# %% [markdown]
# *Figure 6. The three masks, a query at a time.*
#
# The last two rows belong to blanks, and blanks may look at words. It does no harm: their outputs are never
# asked for. [07_batches_and_masks](07_batches_and_masks.ipynb) comes back to it.
#
# ### Which way round?
#
# `True` means "may attend" here. Does it elsewhere? We give the same mask, `[True, True, False]`, to
# everybody and read off which keys get weight. (The fused kernel does not show its weights. But with the
# identity for values, output = weights.)

# %%
_ = torch.manual_seed(0)
x, identity = torch.randn(1, 3, 4), torch.eye(3).unsqueeze(0)
mha = nn.MultiheadAttention(4, num_heads=1, batch_first=True)
mask = torch.tensor([True, True, False])
square = mask.expand(3, 3)

readings = {
    "annotated": attention(x, x, x, mask)[1],
    "F.scaled_dot_product_attention, attn_mask": F.scaled_dot_product_attention(x, x, identity, square),
    "nn.MultiheadAttention, attn_mask": mha(x, x, x, attn_mask=square)[1],
    "nn.MultiheadAttention, key_padding_mask": mha(x, x, x, key_padding_mask=mask.unsqueeze(0))[1],
    "F.scaled_dot_product_attention, mask.float()": F.scaled_dot_product_attention(
        x, x, identity, square.float()
    ),
}
seen = {name: (weights[0, 0] > 0).tolist() for name, weights in readings.items()}
for name, keys_seen in seen.items():
    print(f"{name:46} sees keys {[s for s, sees in enumerate(keys_seen) if sees]}")
assert list(seen.values()) == [[True, True, False]] * 2 + [[False, False, True]] * 2 + [[True] * 3]

# %% [markdown]
# Two opposite readings within one library: `nn.MultiheadAttention` says `True` for "hide", the fused kernel
# says `True` for "show". And the last line is the trap: a mask of floats is *added* to the scores. 1.0 and
# 0.0 hide nothing, and nothing complains. The package takes booleans only:

# %%
try:
    attention(x, x, x, mask.float())
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# ### A row with nothing to see
#
# "Too short" had a first row with no key allowed. An empty source sentence has such rows, and so have blanks
# on the *left* of a sentence under a causal mask. What is the softmax of nothing?

# %%
blanks_left = torch.tensor([False, False, True, True]) & subsequent_mask(4)[0]
print("keys seen, blanks on the left:", blanks_left.sum(dim=-1).tolist())

nothing = torch.full((3,), -math.inf)
print("softmax:", nothing.softmax(dim=0))
print("-infinity minus -infinity:", nothing[0] - nothing.max())

# %% [markdown]
# All weights are $0/0$. (The softmax first subtracts the largest score, so that no exponential overflows;
# $-\infty - (-\infty)$ has no answer either.) "Never mind, nobody reads that row", and indeed a loss can
# leave it out. We do, with three queries of which the last sees nothing:


# %%
def with_infinity(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Equation 1, the forbidden scores set to -infinity: the mask as section 3.2.3 words it."""
    scores = Q @ K.T / math.sqrt(Q.size(-1))
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ V


mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
x = torch.randn(3, 4)
make_values = nn.Linear(4, 4)  # some layer below
loss = with_infinity(x, x, make_values(x), mask)[:2].square().sum()  # the last row is left out
loss.backward()
print("the loss is finite:", bool(loss.isfinite()))
spoilt = int(make_values.weight.grad.isnan().sum())
print("weights of the layer below whose gradient is NaN:", spoilt, "of 16")

# %% [markdown]
# The loss is fine. **Every weight below has a gradient of NaN.** The backward pass multiplies each row's
# weights by the gradient that comes in: in the empty row that is NaN times 0, and NaN times 0 is NaN. One
# optimizer step, and the model is dead, killed by a row that nobody reads.
#
# So no $-\infty$: the lowest *finite* number does as well. For an ordinary row it is exactly the same, for
# $e$ to that power is 0 in floating point. For an empty row:

# %%
lowest = torch.finfo(torch.float32).min
scores = torch.randn(3, 3)
finite = scores.masked_fill(~mask, lowest).softmax(dim=-1)
infinite = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
assert_close(finite[:2], infinite[:2], rtol=0, atol=0)
print("ordinary rows exactly equal: True")
print("empty row:", [round(w, 2) for w in finite[2].tolist()])

# %% [markdown]
# No NaN. But a third each? All three scores are equally low, a shift does not matter (we have seen it), so
# the softmax sees three equal scores: the query that may see *nothing* sees *everything*, the future and the
# blanks too. The leak is silent. So the package does a second thing: it sets forbidden weights to 0 after the
# softmax.

# %%
q, k, v = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
output, weights = attention(q, k, v, mask)
print("its weights:", weights[2].tolist(), " its output:", output[2].tolist())

output.square().sum().backward()  # now with the empty row in the loss
with_row = [t.grad.clone() for t in (q, k, v)]
q.grad = k.grad = v.grad = None
attention(q[:2], k, v, mask[:2])[0].square().sum().backward()  # as if that query had never been asked
assert_close(with_row, [t.grad for t in (q, k, v)])
print("all gradients as if the query had never been asked: True")

# %% [markdown]
# Nothing seen, nothing said, nothing learned. And the two of our version of PyTorch, given nothing but empty
# rows?

# %%
x = torch.randn(1, 3, 4)
empty = torch.zeros(1, 3, 3, dtype=torch.bool)
kernel = F.scaled_dot_product_attention(x, x, x, attn_mask=empty)
module = mha(x, x, x, attn_mask=~empty[0])[0]  # the other way round
print("fused kernel gives zeros:", bool((kernel == 0).all()))
print("nn.MultiheadAttention gives NaN:", bool(module.isnan().all()))

# %% [markdown]
# One more number one meets in the wild is $-10^9$. It is finite, and in 32 bits it works. In float16 it does
# not exist: the lowest is -65504. `torch.finfo(scores.dtype).min` is right at every precision.

# %%
half = torch.zeros(3, dtype=torch.float16)
try:
    half.masked_fill(torch.tensor([True, False, False]), -1e9)
except RuntimeError:
    print("-1e9 in float16: RuntimeError")
print("lowest float16:", torch.finfo(half.dtype).min)

# %% [markdown]
# **Exercise 3.** Write the mask by which each of 8 words sees itself and the two before it (a one-sided form
# of the restricted self-attention of the paper's section 4). Then put one such attention on top of another.
# From how far back does the last word hear now? Use the gradient: whatever has none was not heard.

# %% tags=["solution"]
t, s = torch.arange(8).unsqueeze(1), torch.arange(8)
window = (s <= t) & (s > t - 3)

_ = torch.manual_seed(0)
x = torch.randn(8, 16)
for layers in (1, 2, 3):
    start = x.clone().requires_grad_()
    y = start
    for _ in range(layers):
        y = attention(y, y, y, window)[0]
    y[-1].sum().backward()
    heard = (start.grad.abs().sum(dim=-1) > 0).nonzero().flatten().tolist()
    print(f"{layers} on top of each other: the last word hears words {heard}")
    assert heard == list(range(7 - 2 * layers, 8))

# %% [markdown]
# Two more words a layer: reach grows with depth, as it does for a convolution. Full attention has it all in
# one layer, which is the argument of [01_why_attention](01_why_attention.ipynb).
#
# What one weighted mean cannot do is hold two opinions: *saw* had to split itself between *hat* and
# *gesehen*. The next notebook, [03_multi_head_attention](03_multi_head_attention.ipynb), lets every word
# look several times at once.
