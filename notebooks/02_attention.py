# %% [markdown]
# # 02 · Attention
#
# **We soften a dictionary until it is equation 1 of the paper, measure why it is scaled, and learn to
# hide what must not be seen.**
#
# Previous: [01_why_attention](01_why_attention.ipynb) · Next:
# [03_multi_head_attention](03_multi_head_attention.ipynb)
#
# *23 minutes to read, 20 seconds to run, the exercises extra.*
#
# - **Before:** you know tensors, the matrix product, and that `backward()` fills `.grad`.
# - **After:** you can write scaled dot-product attention yourself, with masks; you know why the scores
#   are divided by $\sqrt{d_k}$, and how one empty row fills a model with NaN.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.2.1, and from
# 3.2.3 the decoder's mask; indented sentences are quoted from it.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from collections.abc import Callable
from itertools import product

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close

from annotated import Batch, attention, load_pretrained, padding_mask, subsequent_mask
from annotated.plots import (
    explore_masks,
    plot_attention,
    plot_by_width,
    plot_soft_lookup,
    setup_notebook,
    show_source,
)
from annotated.plots.scaling import PLAIN, SCALED, explore_scaling

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## A look-up that may blend
#
# > "An attention function can be described as mapping a query and a set of key-value pairs to an output,
# > where the query, keys, values, and output are all vectors." (section 3.2)
#
# A Python dictionary does nearly that. It holds **values** under **keys**; ask it with a **query** that
# equals a key, and it returns the value. Here are the cars that cross a bridge, counted four times a day.

# %%
cars = {0: 3.0, 6: 14.0, 12: 22.0, 18: 28.0}  # hour of the day: cars a minute
print("12 o'clock:", cars.get(12))
print("14 o'clock:", cars.get(14))

# %% [markdown]
# With 22 cars a minute at noon and 28 at six in the evening, a person would say 24 for 14 o'clock. For a
# dictionary, two keys are equal or not. We want *nearly equal* to count too.
#
# So we make each hour a vector of length 1, a point on the dial of a 24-hour clock. The dot product of
# two such vectors is 1 for the same hour, 0 for six hours apart, -1 for twelve. It is the **score** (or
# *logit*) of a key. For a weighted mean of the values we need weights that are positive and add up to 1.
# The **softmax** makes them out of any scores:
#
# $$\mathrm{softmax}(s)_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# Only *differences* of scores count, because adding the same number to all of them cancels. One setting
# is left: the **temperature** $\tau$, by which the scores are divided first. A high temperature makes the
# weights nearly equal; a low one gives the highest score nearly all the weight.


# %%
def on_the_dial(hours: Tensor) -> Tensor:
    """Hours (...) -> points on a circle of radius 1 (..., 2)."""
    angle = hours * (2 * math.pi / 24)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def soft_lookup(query: Tensor, keys: Tensor, values: Tensor, tau: float) -> Tensor:
    """Queries (..., d), keys (n, d), values (n,) -> answers (...), at temperature tau."""
    weights = (query @ keys.T / tau).softmax(dim=-1)  # (..., n)
    return weights @ values


keys, values = on_the_dial(torch.tensor([*cars.keys()])), torch.tensor([*cars.values()])  # (4, 2), (4,)
query = on_the_dial(torch.tensor(14.0))  # (2,)
print("scores:", [round(score, 2) for score in (keys @ query).tolist()])
for tau in (1000, 1, 0.25, 0.001):
    print(f"temperature {tau:6}: {soft_lookup(query, keys, values, tau):.2f} cars at 14 o'clock")

# %% tags=["figure-soft-lookup"]
hours = torch.linspace(0, 24, 193)
answers = {f"τ = {tau}": soft_lookup(on_the_dial(hours), keys, values, tau) for tau in (1000, 1, 0.25, 0.02)}
plot_soft_lookup(
    list(cars), list(cars.values()), hours.tolist(), answers,
    xlabel="hour asked for", ylabel="cars a minute", title="A dictionary made soft",
).set_xticks(range(0, 25, 6))  # fmt: skip
plt.show()
assert_close(soft_lookup(keys, keys, values, 0.001), values)  # cold enough, it is the dictionary

# %% [markdown]
# *Figure 1. What the look-up answers: the lower the temperature, the closer it comes to the four entries
# (dots).*
#
# So **as $\tau$ goes to 0, this look-up becomes the dictionary**, for the keys that it holds, if all have the
# same length. (Otherwise a long key can win.)
#
# Why not a low temperature? Because we want to *learn* the vectors, and learning needs a gradient.


# %%
def slope(tau: float) -> float:
    """How much the answer at 14 o'clock changes with the query: the norm of its gradient."""
    query = on_the_dial(torch.tensor(14.0)).requires_grad_()
    soft_lookup(query, keys, values, tau).backward()
    return query.grad.norm().item()


for tau in (1000, 1, 0.25, 0.02, 0.001):
    print(f"temperature {tau:6}: gradient {slope(tau):.4f}")
assert slope(0.001) == 0
assert slope(1000) < 0.02 < 1 < slope(0.25)

# %% [markdown]
# The gradient vanishes at both ends. At a high temperature, the answer is always the mean of all. At a
# low one, one key has all the weight (unless two nearly tie), and a small change of the query changes
# nothing: the softmax is **saturated**.
#
# ## Equation 1
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$
#
# It is our look-up at temperature $\sqrt{d_k}$. The rows of $Q$, $K$ and $V$ are queries and keys of $d_k$
# numbers, and values of $d_v$.
#
# ![Scaled dot-product attention: queries times keys, scale, mask, softmax, the product
# with the values](../images/attention.svg)
#
# *Figure 2. The paper's Figure 2, left, with its matrices. Three queries look at four keys; struck out
# are the cells that a mask hides (below).*
#
# A small example with $d_k = 4$:

# %%
Q = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 2.0, 0.0]])  # (2, 4): one row a query
K = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]])  # (3, 4)
V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]])  # (3, 2): one row a key
scores = Q @ K.T / math.sqrt(4)  # (2, 3): one row a query, one column a key
weights = scores.softmax(dim=-1)  # (2, 3): every row sums to 1
output = weights @ V  # (2, 2)
for name, matrix in {"scores": scores, "weights": weights, "output": output}.items():
    print(f"{name:8}", [[round(number, 2) for number in row] for row in matrix.tolist()])
e2 = math.exp(2)  # the first row by hand: scores 2, 0, 0
assert_close(weights[0], torch.tensor([e2, 1, 1]) / (e2 + 2))

# %% [markdown]
# The package has these three lines, two `if` for masks (below; `check_mask` refuses any that is not
# boolean), and one for dropout, which sets random weights to 0 in training ([08](08_training_recipe.ipynb)).
# In its comments, T is the number of queries, S that of keys, and dots are any dimensions in front.
# PyTorch's `F.scaled_dot_product_attention` chooses among several kernels, most of them *fused*, and does not
# return the weights.

# %%
show_source(attention, docstring=False)
assert_close(attention(Q, K, V), (output, weights))
assert_close(F.scaled_dot_product_attention(Q, K, V), output)

# %% [markdown]
# Each English word gets a vector of random numbers, and its German translation the same vector plus noise.
# The verb *saw* is two words in German, *hat ... gesehen*. Queries from one sentence and keys from the other
# make **encoder-decoder attention** (cross-attention).

# %% tags=["figure-weights"]
english, german, meant = (
    sentence.split()
    for sentence in (
        "Yesterday the dog saw the little cat .",
        "Gestern hat der Hund die kleine Katze gesehen .",
        "Yesterday saw the dog the little cat saw .",  # for each German word, its English one
    )
)
_ = torch.manual_seed(0)
d_k, d_v = 16, 6
vector = {word: torch.randn(d_k) for word in dict.fromkeys(english)}
Q = torch.stack([vector[word] for word in english])  # (8, 16)
K = torch.stack([vector[word] for word in meant]) + 0.5 * torch.randn(len(german), d_k)  # (9, 16)
V = torch.randn(len(german), d_v)  # (9, 6)
output, weights = attention(Q, K, V)
ax = plot_attention(weights, english, german, title="Where each English word looks")
ax.set(xlabel="key (German)", ylabel="query (English)")
plt.show()
assert weights[english.index("cat")].argmax() == german.index("Katze")

# %% [markdown]
# *Figure 3. Weights of English words (rows) on German words (columns).*
#
# *saw* must share its weight between *hat* and *gesehen*. Both rows *the* are equal, because the same
# word is the same query wherever it stands. (That *dog* looks at *die* is chance: the vectors are random.)
#
# ### What attention cannot do
#
# **Without a mask, it does not know the order.** Shuffle the keys together with their values, and nothing
# changes. In self-attention, shuffling the words shuffles the outputs in the same way (**permutation
# equivariance**). Order has to be added ([05_positional_encoding](05_positional_encoding.ipynb)).
#
# **It averages, and never adds up.** No coordinate of an output leaves the range of that coordinate in
# $V$. Repeat every key and value, and the output stays the same.
#
# **It ignores what all keys share.** Add the same vector $c$ to every key: each score of a query grows by
# the same $q \cdot c$, which cancels in the softmax. So if a linear map makes the keys, its bias gets no
# gradient.


# %%
def self_attention(sentence: str) -> dict[str, Tensor]:
    """What each word becomes after looking at all words of its sentence, itself among them."""
    words = sentence.split()
    x = torch.stack([vector[word] for word in words])
    return dict(zip(words, attention(x, x, x)[0], strict=True))


assert_close(self_attention("the dog saw the cat"), self_attention("the cat saw the dog"))
shuffled = torch.randperm(len(K))
assert_close(attention(Q, K[shuffled], V[shuffled])[0], output)
assert_close(attention(Q, torch.cat([K, K]), torch.cat([V, V]))[0], output)  # every word twice
assert (V.amin(dim=0) <= output).all()
assert (output <= V.amax(dim=0)).all()

to_key = nn.Linear(d_k, d_k)
attention(Q, to_key(K), V)[0].square().sum().backward()
weight, bias = to_key.weight.grad.abs().max().item(), to_key.bias.grad.abs().max().item()
print(f"largest gradient in the layer that makes keys: weight ≈{weight:.2f}, bias ≈{bias:.0e}")
assert bias < 1e-5 < 0.01 < weight

# %% [markdown]
# ## Why divide by the square root of $d_k$
#
# > "We suspect that for large values of $d_k$, the dot products grow large in magnitude, pushing the
# > softmax function into regions where it has extremely small gradients."
#
# We measure each half, on 2,000 random queries with nine keys each.
#
# **Do the dot products grow?** Let the entries of $q$ and $k$ be independent, with mean 0 and variance 1
# (the paper's footnote 4; PyTorch's `nn.Linear` starts with 1/3). Then $q \cdot k$ is a sum of $d_k$ products
# of variance 1, so its variance is $d_k$. At the paper's $d_k = 64$, the standard deviation of a score is 8.
# Dividing by $\sqrt{d_k}$ makes it 1 for every width.
#
# **Does the softmax lose its gradient?** Its derivatives form the *Jacobian*,
# $\partial w_i/\partial s_j = w_i\,([i=j]-w_j)$, where $[i=j]$ is 1 if $i=j$ and else 0. It multiplies
# every gradient on the way back to the scores. When one weight is near 1, every entry is near 0. We call its
# norm the **response** of the weights.

# %%
QUERIES, KEYS = 2000, 9
widths = [2**n for n in range(11)]  # 1, 2, 4, ... 1024
_ = torch.manual_seed(0)
products, all_keys = {}, {}
for d_k in widths:
    q, all_keys[d_k] = torch.randn(QUERIES, 1, d_k), torch.randn(QUERIES, KEYS, d_k)
    products[d_k] = (q @ all_keys[d_k].mT).squeeze(1)  # (2000, 9)


def jacobian(w: Tensor) -> Tensor:
    """The softmax's derivatives, where its weights are w: (..., n) -> (..., n, n)."""
    return torch.diag_embed(w) - w.unsqueeze(-1) * w.unsqueeze(-2)


print(" d_k  divided by   std. dev.   largest weight   response (means)")
for d_k, scale in ((64, 1), (64, 8), (1024, 1), (1024, 32)):
    s = products[d_k] / scale
    w = s.softmax(dim=-1)
    largest, norm = w.amax(dim=-1).mean().item(), jacobian(w).norm(dim=(-2, -1)).mean().item()
    print(f"{d_k:4} {scale:11} {f'≈{s.std():.2f}':>11}           ≈{largest:.2f}      ≈{norm:.3f}")
    assert abs(s.std() * scale / math.sqrt(d_k) - 1) < 0.05
    assert (largest > 0.8 and norm < 0.2) if scale == 1 else (largest < 0.4 and norm > 0.3)

# %% tags=["figure-scaling"]
plain = {d_k: products[d_k].softmax(dim=-1) for d_k in widths}  # (2000, 9) each
scaled = {d_k: (products[d_k] / math.sqrt(d_k)).softmax(dim=-1) for d_k in widths}


def typical(measure: Callable, weights: dict[int, Tensor]) -> Tensor:
    """The median over the queries, at each width."""
    return torch.stack([measure(weights[d_k]).median() for d_k in widths])


def entropy(w: Tensor) -> Tensor:
    """Bits: nine equal weights have log2(9) = 3.17, a single winner has 0."""
    return torch.special.entr(w).sum(dim=-1) / math.log(2)


def response(w: Tensor) -> Tensor:
    return jacobian(w).norm(dim=(-2, -1))


by_autograd = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), products[4][0])
assert_close(jacobian(products[4][0].softmax(dim=-1)), by_autograd)
bits, moves = ({PLAIN: typical(f, plain), SCALED: typical(f, scaled)} for f in (entropy, response))
q, k = torch.randn(1024), torch.randn(KEYS, 1024)  # one query: its first d_k entries, whatever d_k is
one_query = torch.stack([k[:, :d_k] @ q[:d_k] for d_k in widths])  # (11, 9)
explore_scaling(widths, one_query, german, bits, moves)

# %% [markdown]
# *Figure 4. Left: one random query's scores (the words are only labels) and weights at $d_k = 64$, the
# dashed line (in Jupyter, a slider moves it). Without the division (blue) one key takes nearly all the
# weight. Right: the median query. Entropy says how evenly the weight is spread.*
#
# ### A lottery
#
# Training adds up the gradients of many queries. We send a random gradient into the output and measure
# what arrives at the softmax's input, of which the paper speaks, and then at the query, on its way to the
# parameters that make the queries.

# %%
_ = torch.manual_seed(0)
arriving = {place: {PLAIN: [], SCALED: []} for place in ("softmax", "query")}
for d_k in widths:
    V, into_output = torch.randn(QUERIES, KEYS, 64), torch.randn(QUERIES, 64, 1) / 8
    for name, weights, scale in ((PLAIN, plain[d_k], 1), (SCALED, scaled[d_k], math.sqrt(d_k))):
        at_softmax = jacobian(weights) @ (V @ into_output)  # (2000, 9, 1), the chain rule
        at_query = at_softmax.mT @ all_keys[d_k] / scale  # (2000, 1, d_k)
        arriving["softmax"][name].append(at_softmax.norm(dim=(-2, -1)))  # (2000,)
        arriving["query"][name].append(at_query.norm(dim=(-2, -1)))

for n, (place, kinds) in product((6, 10), arriving.items()):
    for name, norms in kinds.items():
        mean, median = norms[n].mean(), norms[n].median()
        tenth = (norms[n].topk(QUERIES // 10).values.sum() / norms[n].sum()).item()
        shown = f"mean ≈{mean:.3f}, median ≈{median:.0e}, top tenth has ≈{tenth:.0%}"
        print(f"d_k = {widths[n]:4}, at the {place:7}, {name:10}: {shown}")
        assert (tenth > (0.35, 0.75)[n == 10]) if name == PLAIN else (tenth < 0.25)

best, second = products[1024].topk(2).values.unbind(dim=-1)
lead, winners = best - second, arriving["query"][PLAIN][10].topk(QUERIES // 10).indices
print(f"the best key leads by ≈{lead[winners].median():.0f} in that tenth, by ≈{lead.median():.0f} in all")
assert lead[winners].median() < 0.2 * lead.median()

# %% tags=["figure-gradients"]
figure, axes = plt.subplots(1, 2, figsize=(14, 4.5), sharey=True)
curves = {
    place: {
        name: {f.__name__: torch.stack([f(norm) for norm in norms]) for f in (torch.mean, torch.median)}
        for name, norms in kinds.items()
    }
    for place, kinds in arriving.items()
}
for ax, (place, kinds) in zip(axes, curves.items(), strict=True):
    plot_by_width(widths, kinds, ax, "gradient norm", f"At the {place}")
axes[0].get_legend().remove()
plt.show()
assert curves["softmax"][PLAIN]["mean"][10] < 0.2 * curves["softmax"][SCALED]["mean"][10]
for n in (6, 10):
    assert 2 < curves["query"][PLAIN]["mean"][n] / curves["query"][SCALED]["mean"][n] < 5
assert curves["query"][PLAIN]["median"][10] < 1e-3 < 0.2 < curves["query"][PLAIN]["median"][6]

# %% [markdown]
# *Figure 5. The gradient at the softmax's input and at the query. With the division it hardly depends on the
# width. Without it, the median collapses in both places, but the mean falls only at the softmax.*
#
# At the softmax, the paper's suspicion holds on these random vectors: without the division, the mean falls
# to 0.4 of the divided one at the paper's $d_k = 64$, and to about a ninth at 1024. But on its way to the
# query, the gradient is multiplied by the keys, whose length is about $\sqrt{d_k}$ (the division divides
# it by that again). So at the query the undivided mean is about three times *larger*. What is lost is not
# its size but its even share, in a **lottery**: a tenth of the queries, those whose two best keys are
# nearly tied, hold about 48% of the gradient at 64, and 87% at 1024, where most others get almost none.
# Each update then learns from few. (We have not trained without the division.)
#
# *Do the weights stay as soft as the division makes them?* Trained queries and keys are not independent.
# We compare the entropy of a trained model's weights with that of random scores of standard deviation 1.
# Each of its layers has four attentions side by side, its *heads* ([03](03_multi_head_attention.ipynb)).

# %%
seen = load_pretrained("multi30k-en-de").attention("A young woman is throwing a ball to a small brown dog.")
for kind in ("encoder", "cross"):
    heads = torch.cat([entropy(seen.maps[kind, n]).mean(dim=-1) for n in range(4)])  # (16,)
    chance = entropy(torch.randn(10_000, seen.maps[kind, 0].size(-1)).softmax(dim=-1)).mean()
    sharper = int((heads < chance).sum())
    print(
        f"{kind:7}: {sharper} of {len(heads)} heads have less entropy than random scores (≈{chance:.1f} bits)"
    )
    assert sharper >= 12

# %% [markdown]
# No: in this sentence, most heads are sharper than random vectors. The division sets only where training
# starts.
#
# **Exercise 1 (easy).** Somebody divides by $d_k$ instead of $\sqrt{d_k}$. What is the median entropy of
# the nine weights then, at $d_k = 4$ and at 1024? Is the temperature now too high or too low? (Use
# `products` and `entropy`.)

# %% tags=["solution"]
for d_k in (4, 1024):
    too_soft = (products[d_k] / d_k).softmax(dim=-1)
    print(f"d_k = {d_k:4}: {entropy(too_soft).median():.2f} of at most {math.log2(KEYS):.2f} bits")
assert entropy(too_soft).median() > 0.99 * math.log2(KEYS)
print("scores of standard deviation 1 / sqrt(d_k): too hot at the start, the mean of everything")
# Training correlates q and k, and then q · k can grow like d_k: µP divides by d_k (Yang et al., 2021).

# %% [markdown]
# **Exercise 2 (hard).** Write the backward pass of equation 1 (without a mask): given the gradient at the
# output, return those at $Q$, $K$ and $V$.


# %% tags=["exercise"]
def attention_backward(Q: Tensor, K: Tensor, V: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q (T, d_k), K (S, d_k), V (S, d_v), gradient at the output (T, d_v) -> gradients at Q, K and V."""
    raise NotImplementedError


# %% tags=["solution"]
def attention_backward(Q: Tensor, K: Tensor, V: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = 1 / math.sqrt(Q.size(-1))
    weights = (Q @ K.T * scale).softmax(dim=-1)  # (T, S)
    at_weights = grad @ V.T  # (T, S)
    # (diag(w) - w w^T) g = w * (g - w . g), for each row
    at_scores = weights * (at_weights - (weights * at_weights).sum(dim=-1, keepdim=True))
    return at_scores @ K * scale, at_scores.T @ Q * scale, weights.T @ grad


# %% tags=["exercise-test"]
tried = [torch.randn(*size, requires_grad=True) for size in ((5, 8), (7, 8), (7, 3))]
grad_in = torch.randn(5, 3)
wanted_grads = torch.autograd.grad(attention(*tried)[0], tried, grad_in)
with torch.no_grad():
    assert_close(attention_backward(*tried, grad_in), wanted_grads)
    error = (attention_backward(*tried, grad_in)[0] - wanted_grads[0]).abs().max()
print(f"gradient at Q: largest difference from autograd ≈{error:.0e}")

# %% [markdown]
# ## The other kind: additive attention
#
# Bahdanau's score ([01](01_why_attention.ipynb)) is a small network, $v^\top\tanh(Aq+Bk)$, with $d$ values of
# `tanh` for each score. Dot products are "much faster and more space-efficient in practice", but additive
# attention "outperforms dot product attention without scaling for larger values of $d_k$" (section 3.2.1,
# after Britz et al., 2017).
#
# ## Masks: who may look at whom
#
# Sentences differ in length, and tensors are rectangular. So short sentences are filled up with a special
# token, the **padding**, here `<blank>`. (`<s>` and `</s>` mark where a translation starts and ends.)

# %%
sources = [german, ["Der", "Hund", "schläft", "."]]
targets = [["<s>", *english, "</s>"], ["<s>", "The", "dog", "is", "asleep", ".", "</s>"]]
words = ["<s>", "</s>", "<blank>", *sorted({w for s in sources + targets for w in s if w[0] != "<"})]
number = {word: n for n, word in enumerate(words)}


def numbered(sentences: list[list[str]]) -> Tensor:
    """Sentences -> token numbers (batch, len), the short ones filled up with <blank>."""
    rows = [torch.tensor([number[word] for word in sentence]) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=number["<blank>"])


src, tgt = numbered(sources), numbered(targets)
print(*(words[n] for n in src[1]))

# %% [markdown]
# The softmax does not know that `<blank>` means nothing. Of three remedies one is right: multiply the
# *scores* of the padding by 0, multiply its *weights* by 0, or set its scores to $-\infty$.

# %%
_ = torch.manual_seed(0)
embed = nn.Embedding(len(words), 16)  # a table: a random vector for each token
with torch.no_grad():
    x, y = embed(src[1]), embed(tgt[1, 1:6])  # German (9, 16), five of them blanks; English (5, 16)
real = src[1] != number["<blank>"]
wanted = attention(y, x[real], x[real])[0]  # what comes out if there is no padding

scores = y @ x.T / math.sqrt(16)  # (5, 9)
mended = {
    "no remedy": scores.softmax(dim=-1),
    "scores times 0": (scores * real).softmax(dim=-1),
    "weights times 0": scores.softmax(dim=-1) * real,
    "scores to -infinity": scores.masked_fill(~real, -math.inf).softmax(dim=-1),
}
for name, w in mended.items():
    error, blank, whole = (w @ x - wanted)[2].abs().max(), w[2, ~real].sum(), w[2].sum()
    print(f"{name:19}: 'is' gives {blank:4.0%} to blanks, {whole:4.0%} in all; its largest error {error:.2f}")
assert_close(attention(y, x, x, real)[0], wanted)

# %% [markdown]
# A score of 0 does not hide a key, because $e^0 = 1$. Only $e^{-\infty}$ is 0. It has to be set *before*
# the softmax, so that the other keys share all the weight. `real` is a **mask**: boolean, `True` where
# attention is allowed.
#
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive property."
# > (section 3.2.3)
#
# *Leftward* is from later words to earlier ones. In training, the decoder is given the whole correct
# translation (**teacher forcing**). Its input is shifted: position $t$ reads word $t$ and predicts word
# $t+1$. So it may see the keys up to $t$. The **causal mask** hides those that follow, "setting to −∞" their
# scores. In two ways:

# %%
n = 5
lower = torch.ones(n, n, dtype=torch.bool).tril()  # as in the package
not_upper = torch.ones(n, n).triu(diagonal=1) == 0  # triu marks what is forbidden
print(lower.int())
assert (subsequent_mask(n)[0] == lower).all()
assert (subsequent_mask(n)[0] == not_upper).all()

# %% [markdown]
# A mask that is wrong by one diagonal raises no error. The test: change the last word and see which
# outputs change.


# %%
def reached_by_last_word(mask: Tensor) -> list[int]:
    """The positions, counted from 0, whose output changes when only the last word does."""
    queries, x = torch.randn(2, n, 16)
    changed = x.clone()
    changed[-1] += 1
    moved = attention(queries, x, x, mask)[0] != attention(queries, changed, changed, mask)[0]
    return moved.any(dim=-1).nonzero().flatten().tolist()


_ = torch.manual_seed(0)
ones = torch.ones(n, n, dtype=torch.bool)
for name, shift in (("right", 0), ("one too far", 1), ("one too short", -1)):
    print(f"{name:14} the last word reaches outputs {reached_by_last_word(ones.tril(diagonal=shift))}")
assert reached_by_last_word(subsequent_mask(n)[0]) == [4]

# %% [markdown]
# "One too far" lets position 3 see word 4, which it has to predict: such a model learns to copy the
# answer ([07_batches_and_masks](07_batches_and_masks.ipynb)). The class `Batch` joins both masks by `&`. With
# padding at the end, the causal mask alone would do: each real query stands before the padding.

# %% tags=["figure-masks"]
batch = Batch(src, tgt, pad=number["<blank>"])  # cuts off the target's last column: nothing follows it
tokens = [words[n] for n in batch.tgt[1]]  # the short sentence, as the decoder reads it
padding = padding_mask(batch.tgt, pad=number["<blank>"])  # (2, 1, 9): one row serves every query
causal = subsequent_mask(batch.tgt.size(1))  # (1, 9, 9): one triangle serves every sentence
assert (batch.tgt_mask == (padding & causal)).all()
assert batch.tgt_mask[1].sum(dim=-1).tolist() == [1, 2, 3, 4, 5, 6, 7, 7, 7]  # keys that each query sees
assert (batch.tgt_mask[1] == causal[0])[:7].all()  # the real queries

masks = {"padding": padding[1], "causal": causal[0], "padding & causal": batch.tgt_mask[1]}
explore_masks(masks, tokens, tokens, query=3)

# %% [markdown]
# *Figure 6. Three masks for one sentence. A row is what one query sees: coloured keys may be looked at,
# grey ones are hidden. Padding hides columns, the causal mask a triangle. The last two differ only in the
# rows of `<blank>`, which the loss leaves out.*
#
# ### Which way round?
#
# `True` means "may attend" here. We give the same mask, `[True, True, False]`, to several functions and
# read off which keys get weight. (With the identity matrix as values, the output *is* the weights.)

# %%
_ = torch.manual_seed(0)
x, identity = torch.randn(1, 3, 4), torch.eye(3).unsqueeze(0)
mha = nn.MultiheadAttention(4, num_heads=1, batch_first=True)
mask = torch.tensor([True, True, False])
square = mask.expand(3, 3)
sdpa = F.scaled_dot_product_attention
readings = {
    "annotated": attention(x, x, x, mask)[1],
    "F.scaled_dot_product_attention, attn_mask": sdpa(x, x, identity, square),
    "nn.MultiheadAttention, attn_mask": mha(x, x, x, attn_mask=square)[1],
    "nn.MultiheadAttention, key_padding_mask": mha(x, x, x, key_padding_mask=mask.unsqueeze(0))[1],
    "F.scaled_dot_product_attention, mask.float()": sdpa(x, x, identity, square.float()),
}
seen = {name: (weights[0, 0] > 0).nonzero().flatten().tolist() for name, weights in readings.items()}
for name, keys_seen in seen.items():
    print(f"{name:46} sees keys {keys_seen}")
assert list(seen.values()) == [[0, 1]] * 2 + [[2]] * 2 + [[0, 1, 2]]

# %% [markdown]
# PyTorch has both conventions: `True` hides in `nn.MultiheadAttention` and shows in
# `F.scaled_dot_product_attention`. In the last line, a mask of floats is *added* to the scores, so 1.0 and
# 0.0 hide nothing.
#
# ### A row with nothing to see
#
# "One too short" had a first row with no key allowed. With
# all scores at $-\infty$, the weights are $0/0$, NaN. Does it matter, if nobody reads that row? Here the
# last of three queries sees nothing and is left out of the loss:


# %%
def with_infinity(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Equation 1, the forbidden scores set to -infinity, as section 3.2.3 words it."""
    scores = Q @ K.T / math.sqrt(Q.size(-1))
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ V


mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
x = torch.randn(3, 4)
make_values = nn.Linear(4, 4)  # some layer below
loss = with_infinity(x, x, make_values(x), mask)[:2].square().sum()  # the last row is left out
loss.backward()
spoilt = int(make_values.weight.grad.isnan().sum())
print(f"loss ≈{loss:.2f}; weights of the layer below whose gradient is NaN: {spoilt} of 16")
assert loss.isfinite()
assert spoilt == 16

# %% [markdown]
# The loss is finite, but **every weight below the values has a gradient of NaN**: the backward pass
# multiplies the empty row's NaN by a gradient of 0, and NaN times 0 is NaN.
#
# So we take the lowest *finite* number instead of $-\infty$. In the
# empty row all scores are equal, so the softmax gives each key a third: the query that may see *nothing*
# sees *everything*. So the package also sets forbidden weights to 0 after the softmax.

# %%
lowest = torch.finfo(torch.float32).min
scores = torch.randn(3, 3)
finite = scores.masked_fill(~mask, lowest).softmax(dim=-1)
infinite = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
assert_close(finite[:2], infinite[:2], rtol=0, atol=0)
print("empty row, lowest finite number:", [round(w, 2) for w in finite[2].tolist()])

q, k, v = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
output, weights = attention(q, k, v, mask)
print("empty row, the package:         ", weights[2].tolist())
with_row = torch.autograd.grad(output.square().sum(), (q, k, v))
without = torch.autograd.grad(attention(q[:2], k, v, mask[:2])[0].square().sum(), (q, k, v))
assert_close(with_row, without)  # all gradients as if that query had never been asked

# %% [markdown]
# **Exercise 3 (medium).** Write attention yourself: equation 1 with a mask, for any dimensions in front.
# `K.mT` transposes the last two dimensions, `K.T` all of them. A query that may see nothing gets zeros, and
# no gradient may be NaN.


# %% tags=["exercise"]
def my_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Q (..., T, d_k), K (..., S, d_k), V (..., S, d_v), mask (T, S), True: may attend -> (..., T, d_v)."""
    raise NotImplementedError


# %% tags=["solution"]
def my_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    scores = Q @ K.mT / math.sqrt(Q.size(-1))  # (..., T, S)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # -1e9 does not exist in float16
    weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ V


# %% tags=["exercise-test"]
sizes = ((2, 3, 5, 16), (2, 3, 4, 16), (2, 3, 4, 8))  # 2 sentences, 3 heads, 5 queries, 4 keys
tried = [torch.randn(*size, requires_grad=True) for size in sizes]
allowed = torch.rand(5, 4) < 0.5
allowed[:, 0], allowed[2] = True, False  # every query sees a key, but the third sees none
given = my_attention(*tried, allowed)
rows = [0, 1, 3, 4]
kernel = F.scaled_dot_product_attention(*tried, attn_mask=allowed)
assert_close(given[:, :, 2], torch.zeros(2, 3, 8), msg="the query that may see nothing must get zeros")
wrong = "rows that see a key differ from PyTorch's: look at the scale, the mask, the softmax's dimension"
assert_close(given[:, :, rows], kernel[:, :, rows], msg=wrong)
given.sum().backward()
assert all(t.grad.isfinite().all() for t in tried), "a gradient is NaN, though the output is right"
print(f"{given[:, :, rows].numel()} outputs as PyTorch's kernel gives them; 48 zeros where no key is seen")
