# %% [markdown]
# # 03 · Multi-head attention
#
# **You see what one attention head cannot do, and you use two heads to subtract. Then you write the layer
# that runs eight heads side by side, including the two lines that are easiest to get wrong.**
#
# Previous: [02_attention](02_attention.ipynb) · Next:
# [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb)
#
# *30 minutes to read, half a minute to run.*
#
# - **Before:** you know equation 1, its masks, and that its output is a weighted mean
#   ([02_attention](02_attention.ipynb)).
# - **After:** you can write multi-head attention. You know what each of its four matrices does, what the
#   heads cost, and where the model uses this layer.
#
# This lesson covers sections 3.2.2 and 3.2.3 of the paper (Vaswani et al., 2017). Indented sentences are
# quoted from the paper. A number after `≈` may differ on your computer. You can skip the folded cells: the
# *scaffolding* draws pictures, and the *checks* test what the text claims.

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
# ## Four heads, four views
#
# The translator that comes with the package has four **heads** in each attention layer. Each head is an
# attention function of its own. Here is what the four heads of its last layer look at while the translator
# writes one sentence in German.

# %% tags=["figure-four-heads", "scaffold"]
import matplotlib.pyplot as plt
import seaborn

from annotated import load_pretrained
from annotated.plots import as_words, setup_notebook

setup_notebook()
translator = load_pretrained("multi30k-en-de")
seen = translator.attention("A man throws a ball to a dog.")
heads = seen.maps["cross", 3]  # (heads, German, English)
written = [*seen.tgt_tokens[1:], "</s>"]
read = as_words(seen.tgt_tokens)
steps = [f"{a} → {b}" for a, b in zip(read, [*read[1:], "end"], strict=True)]
fig, axes = plt.subplots(1, 4, figsize=(16, 4.2), sharey=True)
look = {"cmap": "Blues", "vmin": 0, "vmax": 1, "cbar": False, "linewidths": 1}
for number, (ax, weights) in enumerate(zip(axes, heads, strict=True), start=1):
    seaborn.heatmap(weights, xticklabels=as_words(seen.src_tokens), yticklabels=steps, ax=ax, **look)
    ax.set(title=f"head {number}")
    ax.tick_params(axis="x", rotation=60, length=0)
    ax.tick_params(axis="y", rotation=0, length=0)
plt.show()

# %% [markdown]
# *Figure 1. Each row is one step: the German token that was read last, and the token that is written. The
# columns are the English tokens; the word "end" stands for the token `</s>`. The darker a cell is, the more
# this head looks there. The last two columns are equal, because the encoder has given the period and `</s>`
# equal vectors (see the text after Figure 5).*

# %% tags=["check"]
different = [(heads[i] - heads[j]).abs().sum(dim=-1).mean().item() for i in range(4) for j in range(i)]
assert min(different) > 0.3  # of at most 2: no two heads look alike
einen = heads[:, written.index("▁einen")]
assert [seen.src_tokens[i] for i in einen.argmax(dim=-1)][1::2] == ["▁ball", "▁a"]
einem = heads[:, written.index("▁einem")]
assert einem.argmax(dim=-1)[2:].tolist() == [6, 3]
assert [f"{share:.2f}" for share in (einem[3, 3], einem[2, 6])] == ["0.81", "0.43"]
assert [seen.src_tokens[i] for i in (3, 4, 6, 7)] == ["▁a", "▁ball", "▁a", "▁dog"]

# %% [markdown]
# At many steps, the heads look at different words. Take the step that writes *einen*, the German *a* before
# *Ball*. Head 4 looks at *a*, and head 2 already looks at *ball*. Both words are useful to the translator,
# because the form of a German article depends on its noun. At the step that writes *einem*, the heads even
# disagree: head 4 looks at the *a* before *ball* (0.81), and head 3 at the *a* before *dog* (0.43), which is
# the right one. Lesson 00 showed only their mean. What can several heads do that one cannot?
#
# > "Multi-head attention allows the model to jointly attend to information from different representation
# > subspaces at different positions. With a single attention head, averaging inhibits this." (section
# > 3.2.2)
#
# The first sentence of this quote is dense, and we will come back to it. We begin with the second one:
# what does averaging inhibit?

# %% [markdown]
# ## What one head cannot do
#
# Here are eight temperatures of one day, three hours apart. For each of them, we want to know how much warmer
# it was than three hours before. The list is a circle: the measurement at 0:00 follows the one at 21:00.

# %%
import torch
from torch import nn

from annotated import attention

torch.set_num_threads(1)  # our matrices are too small for more
degrees = torch.tensor([9.0, 8.0, 11.0, 15.0, 19.0, 20.0, 16.0, 12.0])  # at 0:00, 3:00, ... 21:00
warmer = degrees - degrees.roll(1)
print("degrees:", [int(d) for d in degrees])
print("warmer: ", [int(d) for d in warmer])

# %% [markdown]
# Attention can bring two measurements together. We give each measurement a key with a single 1, which marks
# the place of the measurement in the list. So the fourth key is $(0, 0, 0, 1, 0, 0, 0, 0)$. Let the fourth
# query be $(0, 0, 50, 50, 0, 0, 0, 0)$. Its scores are large for the third and the fourth measurement, and 0
# for all others. (The number 50 is large enough for the softmax to give these two practically all of the
# weight.) The other queries are made in the same way, so each of them looks at exactly two measurements.
#
# **Before you run this:** the fourth query looks at 15 degrees and at 11 degrees, with weight 0.5 each.
# What does the head return?

# %%
position = torch.eye(8)  # (8, 8): row t is the key of measurement t
now, before = 50 * position, 50 * position.roll(1, dims=0)  # row t of `before` has its 50 at t - 1
blend, _ = attention(now + before, position, degrees.unsqueeze(-1))  # (8, 1)
print("one head:", [round(d, 1) for d in blend.flatten().tolist()])

# %% tags=["check"]
from torch.testing import assert_close

assert_close(blend.flatten(), (degrees + degrees.roll(1)) / 2)

# %% [markdown]
# It returns the mean, 13. From 13 alone, nobody can tell whether the temperatures were 11 and 15, or 15
# and 11, or 13 both times. They have been blended, and blending cannot be undone. That is what the paper
# means by "averaging inhibits this".
#
# Would other weights help? For a difference we need $+1$ times one temperature and $-1$ times the other.
# But attention weights come from a softmax, and **such a weight is never negative**. A learned matrix may
# flip the sign of the values, but then it flips the sign of *both* temperatures. So this head can add, but
# it cannot subtract.
#
# Two heads can subtract. One looks at the temperature now, and the other at the temperature
# before. Afterward we subtract the second output from the first.

# %%
head_now, _ = attention(now, position, degrees.unsqueeze(-1))
head_before, _ = attention(before, position, degrees.unsqueeze(-1))
print("two heads:", [round(d) for d in (head_now - head_before).flatten().tolist()])

# %% tags=["check"]
assert_close((head_now - head_before).flatten(), warmer, rtol=0, atol=1e-4)
assert_close(degrees - head_before.flatten(), warmer, rtol=0, atol=1e-4)  # one head and the residual

# %% [markdown]
# In the Transformer, a learned matrix combines the heads. It multiplies the output of each head by
# different numbers, and these may have any sign. So it can subtract one head from another.
#
# **Remember:** one head returns one mean. Several heads return several means side by side, and a learned
# matrix can subtract one from another.
#
# *Do networks find this solution by themselves? And is there really no way to subtract with one head? (In a
# model with a residual connection, which adds the layer's own input, there is a way for this task. For the
# difference between two earlier measurements, there is none as long as the head looks by position.) We
# trained networks to find out: [Is one head enough?](evidence/is_one_head_enough.ipynb)*

# %% [markdown]
# ## Each head has matrices of its own
#
# We told our two heads where to look. In a Transformer the heads learn it, because each head makes its
# queries, keys and values with three matrices of its own:
#
# > "Instead of performing a single attention function with $d_{model}$-dimensional keys, values and
# > queries, we found it beneficial to linearly project the queries, keys and values $h$ times with
# > different, learned linear projections to $d_k$, $d_k$ and $d_v$ dimensions, respectively." (section
# > 3.2.2)
#
# $$\mathrm{head}_i = \mathrm{Attention}(QW^Q_i,\; KW^K_i,\; VW^V_i)$$
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\,W^O$$
#
# Why three matrices? Could the keys not be the values, too? In our temperature example, we can try it.
#
# **Before you run this:** the fourth query looks at the fourth measurement, which is 15 degrees. What does
# the head return if it takes the mean of the keys?

# %%
found, _ = attention(now, position, position)  # the keys, once more, in the place of the values
print("keys as values:", [round(number, 2) for number in found[3].tolist()])

# %% tags=["check"]
assert_close(found, position, rtol=0, atol=1e-4)

# %% [markdown]
# It returns the place in the list, which the query already contained, and the 15 degrees are lost. A key is
# made to be *found*, and a value is what is *handed over*. A head whose keys are its values must use the same
# few numbers for both.
#
# The heads *share* the width. In the base model, $d_{model} = 512$ and $h = 8$, so each head is 64
# numbers wide. In our tiny model of [00_start_here](00_start_here.ipynb), $d_{model}$ is 4 and $h$ is 2,
# so each head is 2 numbers wide. Here are the four matrices of its encoder's attention, and $x$, the three
# vectors of *a cat runs*.

# %%
from annotated import sinusoids

words = ["a", "cat", "runs"]
rows = [[-0.6, -0.1, -0.5, -0.4], [0.0, 0.6, 0.4, -0.2], [-0.1, 0.2, 0.2, 0.1]]  # of the embedding table
x = torch.tensor(rows) * 2 + sinusoids(3, 4)  # (3, 4): times the root of 4, plus the positions
W_Q = torch.tensor(
    [[-0.5, -0.2, -0.1, -0.6], [0.5, 0, 0.9, 0.2], [-0.5, -0.3, 0.1, -0.2], [0.4, -0.2, 0.1, 0.2]]
)
W_K = torch.tensor(
    [[0.2, -0.3, 0, 0.6], [0.6, 0.4, 0.7, 0.4], [-0.8, 0.3, -0.4, -0.2], [-0.8, 0.1, -0.3, 0.4]]
)
W_V = torch.tensor(
    [[-0.6, 0.1, 0, 0.3], [-0.2, 0.1, 0.3, -0.2], [-0.3, -0.5, -0.5, 0.5], [0.1, -0.4, 0.3, -0.1]]
)
W_O = torch.tensor(
    [[0.6, 0, -0.3, 0.2], [0.1, -0.2, -0.6, 0.2], [-0.7, 0.2, -0.7, 0.7], [-0.4, 0.2, -0.7, 0.1]]
)


def show(title, matrix, columns=()):
    """Print a matrix to two decimals, one row for each word."""
    print(title + "".join(f"{column:>8}" for column in columns))
    for word, numbers in zip(words, matrix.tolist(), strict=True):
        print(f"  {word:8}" + "".join(f"{number:8.2f}" for number in numbers))


# %% [markdown]
# Each matrix is $4 \times 4$. The matrices $W^Q$, $W^K$ and $W^V$ hold both heads: the first two columns
# belong to head 1, and the last two belong to head 2. Now we follow the paper's formula.

# %%
heads = []
for columns in (slice(0, 2), slice(2, 4)):
    q, k, v = x @ W_Q[:, columns], x @ W_K[:, columns], x @ W_V[:, columns]  # each (3, 2)
    output, weights = attention(q, k, v)  # (3, 2), (3, 3)
    heads.append(output)
show("head 2 looks at", weights, words)
by_hand = torch.cat(heads, dim=-1) @ W_O  # (3, 4) @ (4, 4)
show("side by side, times W^O", by_hand)

# %% tags=["check"]
assert [f"{w:.2f}" for w in weights[1]] == ["0.55", "0.36", "0.09"]
assert [f"{number:.2f}" for number in by_hand[1]] == ["-0.28", "0.05", "0.04", "0.30"]

# %% [markdown]
# You know head 1 from lesson 02: in it, *cat* looks at all three words about equally. In head 2, *cat* looks
# mostly at *a*, with the weight 0.55. So *cat* gets two different means of the sentence, and $W^O$ mixes them
# into four new numbers.
#
# Now you can read the dense sentence at the top. A "representation subspace" is what a head's matrices
# let through: 64 numbers, computed from all 512. The "positions" are the words that the head looks at.
# And the heads "jointly attend", because they work side by side in one layer.
#
# ### Twenty-five matrices, or four
#
# With eight heads, the formula has $3 \cdot 8 + 1 = 25$ matrices. The code has only four. Multiplying $x$
# by eight narrow matrices is the same as multiplying it *once* by a wide matrix in which the eight stand
# side by side. You have just seen such wide matrices: their columns belonged to different heads. And
# hardware prefers one large product to eight small ones.
#
# ![Multi-head attention with its four linear maps](../images/multi_head_attention.svg)
#
# *Figure 2. The paper's Figure 2 (right), with shapes. T queries look at S keys.*

# %% [markdown]
# ## Cutting into heads: `view`, then `transpose`
#
# After the wide product, each word has four numbers, which have to become two heads with two numbers each:
#
# ![Above: view cuts each word into a block of two halves, and transpose collects the first halves in head 1
# and the second halves in head 2. Below: view alone puts all of "a" and half of "cat" into head
# 1](../images/split.svg)
#
# *Figure 3. Above: `view` cuts each word into two halves, and `transpose` collects the first halves in head
# 1 and the second halves in head 2. Below: `view` alone mixes the words.*
#
# Why must the heads come *before* the words? A batched matrix product multiplies the last two dimensions and
# treats all dimensions in front of them separately. So each head needs a matrix (words, numbers) of its own.
#
# `view` alone is the first trap of [00_start_here](00_start_here.ipynb). Neither an error message nor a wrong
# shape reveals the mistake, but head 1 has all of *a*, half of *cat* and nothing of *runs*.

# %% [markdown]
# ## The layer
#
# Now you have all the pieces. Here is the layer from lesson 00 again. The step that undoes `split` now has a
# name of its own, `join`:


# %%
class MultiHeadedAttention(nn.Module):
    """h attention functions side by side, with three linear maps before them and a fourth after."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # W^Q, W^K, W^V, W^O

    def split(self, x):  # (B, T, d_model) -> (B, T, h, d_k) -> (B, h, T, d_k)
        return x.view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)

    def join(self, x):  # (B, h, T, d_k) -> (B, T, h, d_k) -> (B, T, d_model)
        return x.transpose(1, 2).flatten(2)

    def forward(self, query, key, value, mask=None):  # (B, T, d_model), two (B, S, d_model), (B, 1 or T, S)
        w_q, w_k, w_v, w_o = self.linears
        q, k, v = self.split(w_q(query)), self.split(w_k(key)), self.split(w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)  # (B, 1, 1 or T, S): the same for every head
        heads, self.weights = attention(q, k, v, mask)  # (B, h, T, d_k), (B, h, T, S)
        return w_o(self.join(heads))  # (B, T, d_model)


# %% [markdown]
# There are three things to notice.
#
# - **`attention` did not change.** It is the function from lesson 02. The heads are one more dimension in
#   front, like the sentences of a batch, so all heads of all sentences are computed at once.
# - **The mask needs `unsqueeze(1)`**, a dimension for the heads. Without it, PyTorch mistakes sentences for
#   heads, which is the second trap of lesson 00.
# - **`join` undoes `split`**, in the opposite order: first `transpose`, then `flatten`.
#
# We give the layer the matrices of the tiny model. `nn.Linear` keeps its matrix transposed. It also adds
# a bias, which the paper's formula does not have, so we set all biases to 0.

# %%
layer = MultiHeadedAttention(h=2, d_model=4)
for linear, W in zip(layer.linears, (W_Q, W_K, W_V, W_O), strict=True):
    linear.weight.data, linear.bias.data = W.T, torch.zeros(4)
with torch.no_grad():
    output = layer(x[None], x[None], x[None])[0]  # a batch of one sentence, which looks at itself
show("the layer", output)
print(f"largest difference from the formula, head by head: {(output - by_hand).abs().max():.6f}")

# %% tags=["check"]
import annotated

assert_close(output, by_hand)
theirs = annotated.MultiHeadedAttention(h=4, d_model=16, dropout=0.0)
mine = MultiHeadedAttention(h=4, d_model=16)
_ = mine.load_state_dict(theirs.state_dict())
_ = torch.manual_seed(0)
a, b = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
some = torch.arange(7) < torch.tensor([7, 4, 2])[:, None, None]  # (3, 1, 7)
assert_close(mine(a, b, b, some), theirs(a, b, b, some))

# %% [markdown]
# How would you notice a wrong `split` in your own code? Use a test like the one in lesson 02: change one word
# and see which outputs change.
#
# **Before you run this:** suppose that a sentence has four words, that there are two heads, and that
# `split` is wrong. Which outputs will change when the last word changes?


# %%
class ViewAlone(MultiHeadedAttention):
    """The mistake: cut into heads, and join them again, by a change of shape alone."""

    def split(self, x):
        return x.reshape(x.size(0), self.h, x.size(1), self.d_k)

    def join(self, x):
        return x.reshape(x.size(0), x.size(2), self.h * self.d_k)


for kind in (MultiHeadedAttention, ViewAlone):
    _ = torch.manual_seed(0)
    model, sentence = kind(h=2, d_model=16), torch.randn(1, 4, 16)
    other = sentence.clone()
    other[0, 3] += 1  # another last word
    moved = (model(sentence, sentence, sentence) != model(other, other, other))[0].any(dim=-1)
    print(f"{kind.__name__:21} the last word reaches words {moved.nonzero().flatten().tolist()}")

# %% tags=["check"]
assert moved.tolist() == [False, False, True, True]
package = annotated.MultiHeadedAttention(h=2, d_model=16, dropout=0.0)
moved = (package(sentence, sentence, sentence) != package(other, other, other))[0].any(dim=-1)
assert moved.all()

# %% [markdown]
# With the wrong `split`, head 1 holds words 0 and 1, and head 2 holds words 2 and 3. So the sentence falls
# apart into two halves that exchange nothing. With as many heads as words, every word would see only
# itself.
#
# **Remember:** make all queries, keys and values with three wide products. Cut them into heads with `view`
# and then `transpose`. After the attention, join the heads with `transpose` and then `flatten`, and
# multiply by $W^O$.

# %% [markdown]
# ## What W^O does, and what heads cost
#
# $W^O$ has four rows. The first two rows multiply the numbers of head 1, and the last two rows multiply
# the numbers of head 2. So we can write the product as a sum: what head 1 adds, plus what head 2 adds.

# %%
from_1, from_2 = heads[0] @ W_O[:2], heads[1] @ W_O[2:]  # (3, 2) @ (2, 4) -> (3, 4)
show("what head 1 adds", from_1)
show("what head 2 adds", from_2)
show("sum", from_1 + from_2)

# %% tags=["check"]
assert_close(from_1 + from_2, by_hand)

# %% [markdown]
# ![Four heads read the stream of cat; each head's output goes through its own rows of W^O and becomes a
# vector of d_model numbers; the four vectors are added to the stream](../images/stream.svg)
#
# *Figure 4. The same with four heads. The gray line is the word's vector on its way through the model, and
# the layer adds to it.*
#
# **A multi-head layer is a sum of heads.** Each head reads from all $d_{model}$ numbers of the words it
# looks at, and writes to all $d_{model}$ numbers of the word that is looking. Without $W^O$, head 1 could
# write only into the first two numbers of its word and head 2 only into the last two. The layer could not
# subtract one head from the other.
#
# Are eight heads more expensive than one? The paper says that they are not:
#
# > "Due to the reduced dimension of each head, the total computational cost is similar to that of
# > single-head attention with full dimensionality." (section 3.2.2)
#
# We can check this for a sentence of 32 words, because PyTorch can count the operations of all matrix
# products. (It counts a multiplication and an addition as two, so its numbers are twice those of lesson 01.)

# %%
from torch.utils.flop_counter import FlopCounterMode

costs = {}
for h in (1, 8, 32):
    model, sentence = MultiHeadedAttention(h, d_model=512), torch.randn(1, 32, 512)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        _ = model(sentence, sentence, sentence)
    costs[h] = sum(p.numel() for p in model.parameters()), counter.get_total_flops()
    print(f"h = {h:2}, d_k = {512 // h:3}: {costs[h][0]:,} parameters, {costs[h][1]:,} operations,", end=" ")
    print(f"{model.weights.numel():6,} attention weights")

# %% tags=["check"]
assert costs[1] == costs[8] == costs[32]
assert costs[8][1] == 4 * 2 * 32 * 512**2 + 2 * 2 * 32**2 * 512  # four maps; scores and means

# %% [markdown]
# The numbers of parameters and of operations in matrix products stay the same, because each of the eight
# heads has one eighth of the width. Only the number of attention weights grows, and with it the work of the
# softmax.
#
# If more heads cost no more, why not take 512 of them? Because each head gets narrower. In a head that is
# one number wide, a score is the product of two numbers. So a query can only prefer the largest key or the
# smallest. The paper tried several numbers of heads (Table 3, rows A). BLEU measures the quality of
# translations, and higher is better:
#
# | heads $h$ | width $d_k$ | BLEU |
# | --- | --- | --- |
# | 1 | 512 | 24.9 |
# | 4 | 128 | 25.5 |
# | 8 | 64 | 25.8 |
# | 16 | 32 | 25.8 |
# | 32 | 16 | 25.4 |
#
# One head is the worst, 8 and 16 heads are the best, and with 32 heads the score falls again.

# %% [markdown]
# ### Identical heads stay identical
#
# All heads follow the same formula. What makes them different from each other?
#
# **Before you run this:** we start a layer with two identical heads and train it for 50 updates. The task
# does not matter here: for each word, the layer has to return the vector of the word before. Will the heads
# differ at the end?

# %%
_ = torch.manual_seed(0)
twins = MultiHeadedAttention(h=2, d_model=8).double()
for linear in twins.linears[:3]:  # W^Q, W^K and W^V, kept transposed: head 2 has the rows 4 to 7
    linear.weight.data[4:] = linear.weight.data[:4]
    linear.bias.data[4:] = linear.bias.data[:4]
twins.linears[3].weight.data[:, 4:] = twins.linears[3].weight.data[:, :4]  # W^O: the columns
before, adam = twins.linears[0].weight.data.clone(), torch.optim.Adam(twins.parameters(), lr=0.01)
for _ in range(50):
    sentences = torch.randn(16, 5, 8).double()
    loss = (twins(sentences, sentences, sentences) - sentences.roll(1, dims=1)).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
after = twins.linears[0].weight.data
print(f"W^Q has moved by up to ≈{(after - before).abs().max():.2f}", end="; ")
print(f"its two heads differ by up to {(after[:4] - after[4:]).abs().max():.6f}")

# %% tags=["check"]
assert (after - before).abs().max() > 0.05
assert (after[:4] - after[4:]).abs().max() < 1e-7

# %% [markdown]
# Identical heads get identical gradients, so they stay identical, and two heads do the work of one. **Only
# the random start makes heads different.**

# %% [markdown]
# ## The three uses
#
# The Transformer uses this layer in three places. The code is the same, but each place has its own inputs and
# its own weights.
#
# > "In 'encoder-decoder attention' layers, the queries come from the previous decoder layer, and the memory
# > keys and values come from the output of the encoder." (section 3.2.3)
#
# | use | queries | keys and values | the mask hides |
# | --- | --- | --- | --- |
# | encoder self-attention | English | English | padding |
# | decoder self-attention | German | German | padding, and what comes later |
# | encoder-decoder attention, or *cross-attention* | German | English | padding of the English sentence |
#
# A mask has a column for each *key*. So cross-attention takes the mask of the English sentence, although
# its queries are German. This mask need not hide any later words, because the whole English sentence is
# known. The next figure shows all three uses in the translator from the top of this page. The sentence is *A
# cat is running.* In English it has one token more than in German.

# %% tags=["figure-three-uses", "scaffold"]
seen = translator.attention("A cat is running.")
english, german = seen.src_tokens, seen.tgt_tokens
names = as_words(english), as_words(german)
uses = {"encoder": (names[0], names[0]), "decoder": (names[1], names[1]), "cross": (names[1], names[0])}
fig, axes = plt.subplots(1, 3, figsize=(14, 4.4))
for ax, (use, (queries, keys)) in zip(axes, uses.items(), strict=True):
    weights = seen.maps[use, 3].mean(dim=0)  # last layer, mean of the heads: (queries, keys)
    hidden = (weights == 0).numpy() if use == "decoder" else None
    look = {"annot": True, "fmt": ".2f", "cmap": "Blues", "vmin": 0, "vmax": 1, "cbar": False}
    seaborn.heatmap(weights, mask=hidden, ax=ax, **look)
    ax.set_xticklabels(keys, rotation=45)
    ax.set_yticklabels(queries, rotation=0)
    ax.set(title=f"{use}: {len(queries)} × {len(keys)}", facecolor="lightgray")
    ax.tick_params(length=0)
plt.show()

# %% [markdown]
# *Figure 5. The three uses, in the last layer: 6 × 6, 5 × 5 and 5 × 6 weights. Each row belongs to the token
# that looks, and each column to a token that is looked at. The causal mask hides the gray cells.*

# %% tags=["check"]
cross = seen.maps["cross", 3].mean(dim=0)
assert german[2] == "▁Katze"
assert english[cross[2].argmax()] == "▁running"
assert (len(english), len(german)) == (6, 5)
assert seen.maps["decoder", 3].triu(diagonal=1).abs().max() == 0
tokenizer, encoder = translator.src_tokenizer, translator.model.encoder
with torch.no_grad():
    tokens = torch.tensor([[*tokenizer.encode("A cat is running."), tokenizer.end]])
    states = translator.model.src_embed(tokens)
    alike = []
    for encoder_layer in encoder.layers:
        states = encoder_layer(states, None)
        alike.append(nn.functional.cosine_similarity(*states[0, -2:], dim=0).item())
assert alike[0] < 0.99
assert alike[2] > 0.9995
assert_close(cross[:, -2], cross[:, -1], rtol=0, atol=0.005)
for weights in seen.maps.values():
    assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))

# %% [markdown]
# On the right, in the row *Katze*, the decoder has read *Katze* (cat) and is about to write *rennt*
# (runs). It looks most at *running*. In the other two panels, much of the weight lies on the period, on
# `</s>` or on `<s>`. A likely reason is that weights have to add up to 1, so a head that needs nothing must
# still look somewhere. [13_reading_attention](13_reading_attention.ipynb) says how to read such pictures,
# and how not to.
#
# Why are the columns of the period and of `</s>` equal, here and in Figure 1? Because the encoder has made
# the two tokens equal. Their embeddings differ, but after the third of the four layers, their vectors point
# the same way: the cosine is 1.000 to three decimals. Equal vectors have equal keys, and equal keys get equal
# weights. The two tokens stand side by side at the end of 95% of the training sentences, so the model seems
# to have found no use for a difference.

# %% [markdown]
# ## What you can now say
#
# - One head returns one weighted mean, which blends what the head looks at. Several heads keep apart what
#   one head would blend.
# - In code, four wide matrices hold the matrices of all heads. `view` and then `transpose` cut the result
#   into heads. `view` alone mixes the words, and no error tells you.
# - The heads share the width, so eight heads cost about as much as one. $W^O$ adds up their outputs.
# - The model uses the layer in three places, which differ in where queries and keys come from.
#
# **Deeper:** [Is one head enough?](evidence/is_one_head_enough.ipynb)
#
# **Next:** [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb): what happens to a word
# after it has looked around.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (medium).** With pencil and paper: somebody leaves out $W^Q$ and $W^K$ to save parameters, so
# that the queries and keys of self-attention are the words' vectors themselves. There are 100 words, and the
# 64 entries of each vector are independent, with mean 0 and variance 1. Roughly what is the score of a word
# with itself, and what is the typical score with another word, both divided by $\sqrt{64}$? Roughly how much
# weight does a word give to itself: a tenth, a half, or nine tenths? Without the two matrices, whatever the
# vectors are, the scores also have a property that is undesirable in a model of sentences. (Compare the score
# of *it* for *cat* with the score of *cat* for *it*.)

# %% tags=["solution"]
# With itself: a sum of 64 squares, each 1 on average, so 64 / 8 = 8. With another word: a sum of 64 products
# with mean 0 and variance 1, so its size is 8 / 8 = 1. With e^1 as a typical value for each of the others,
# the weight is about e^8 / (e^8 + 99 e^1) = 2981 / (2981 + 269) = 0.92, nine tenths: each word looks at
# itself. And the scores are symmetric: the score of "it" for "cat" would always be that of "cat" for "it".
_ = torch.manual_seed(0)
vectors = torch.randn(100, 64)
_, bare = attention(vectors, vectors, vectors)
_, mapped = attention(vectors @ torch.randn(64, 64) / 8, vectors @ torch.randn(64, 64) / 8, vectors)
for name, looked in (("without W^Q and W^K", bare), ("with random ones", mapped)):
    print(f"{name:20} mean weight of a word on itself ≈{looked.diagonal().mean():.2f}")
assert 0.85 < bare.diagonal().mean() < 1
assert mapped.diagonal().mean() < 0.1

# %% [markdown]
# **Exercise 2 (medium).** Write multi-head attention as one function, without a loop over the heads. The
# same mask applies to all heads.


# %% tags=["exercise"]
from annotated import attention


def multi_head(query, memory, weights, h, mask):
    """(B, T, d_model), (B, S, d_model), bool (B, T, S) -> (B, T, d_model).

    `weights` are W^Q, W^K, W^V and W^O, each (d_model, d_model), to be used as in `query @ W_Q`.
    """
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch
from torch import nn

import annotated


def test_multi_head(multi_head):
    torch.manual_seed(0)
    queries, states = torch.randn(3, 5, 12), torch.randn(3, 7, 12)
    padded = (torch.arange(7) < torch.tensor([7, 4, 2])[:, None, None]).expand(3, 5, 7)
    for sentences, h, what in (
        (1, 1, "one head, nothing hidden"),
        (1, 3, "three heads, nothing hidden"),
        (3, 3, "sentences of 7, 4 and 2 words, padding hidden"),
    ):
        query, memory, mask = queries[:sentences], states[:sentences], padded[:sentences]
        reference = annotated.MultiHeadedAttention(h=h, d_model=12, dropout=0.0)
        for linear in reference.linears:
            nn.init.zeros_(linear.bias)
        given = multi_head(query, memory, [linear.weight.T for linear in reference.linears], h, mask)
        shape = getattr(given, "shape", given)
        assert shape == query.shape, f"{what}: the shape must be {tuple(query.shape)}, not {shape}"
        gap = (given - reference(query, memory, memory, mask)).abs().max()
        assert gap < 1e-5, f"{what}: the output differs from the package's layer by up to {gap:.2f}"


try:
    test_multi_head(multi_head)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(query, memory, weights, h, mask):
    def split(x):
        return x.unflatten(-1, (h, -1)).transpose(1, 2)  # (B, T, d_model) -> (B, h, T, d_k)

    W_Q, W_K, W_V, W_O = weights
    q, k, v = split(query @ W_Q), split(memory @ W_K), split(memory @ W_V)
    heads, _ = attention(q, k, v, mask.unsqueeze(1))
    return heads.transpose(1, 2).flatten(2) @ W_O


test_multi_head(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. While a decoder writes, it keeps the keys and values of all earlier
# tokens. With $d_{model} = 512$ that is 1,024 numbers for each token and layer. **Grouped-query
# attention** (Ainslie et al., 2023) lets several query heads share one head of keys and values. Write it.
# How many numbers does the decoder keep for each token and layer with 8 query heads and 2 groups? What
# might get worse?


# %% tags=["exercise"]
from annotated import attention


def grouped_query(q, k, v):
    """Queries (B, h, T, d_k), keys and values (B, groups, S, d_k) -> heads (B, h, T, d_k).

    The first h / groups query heads share the first head of keys and values, and so on.
    """
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import attention


def test_grouped_query(grouped_query):
    torch.manual_seed(0)
    q = torch.randn(2, 8, 5, 16)
    for groups in (8, 1, 2):
        k, v = torch.randn(2, 2, groups, 7, 16)
        given = grouped_query(q, k, v)
        shape = getattr(given, "shape", given)
        assert shape == q.shape, f"the shape must be (2, 8, 5, 16), not {shape}"
        wanted, _ = attention(q, *(kept.repeat_interleave(8 // groups, dim=1) for kept in (k, v)))
        wrong = [head for head in range(8) if not torch.allclose(given[:, head], wanted[:, head], atol=1e-5)]
        assert not wrong, f"with {groups} groups, query heads {wrong} differ from attention to their group"


try:
    test_grouped_query(grouped_query)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(q, k, v):
    q = q.unflatten(1, (k.size(1), -1))  # (B, groups, h / groups, T, d_k)
    heads, _ = attention(q, k.unsqueeze(2), v.unsqueeze(2))  # keys and values broadcast, not copied
    return heads.flatten(1, 2)


test_grouped_query(solution)
# Two groups of width 64 keep 2 * 2 * 64 = 256 numbers, a quarter. With one group ("multi-query attention",
# Shazeer, 2019) it is an eighth. Heads of a group can still ask different questions, but they share their
# keys and their values, so they can specialize less.
