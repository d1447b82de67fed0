# %% [markdown]
# # 00 · Start here: the paper in one sitting
#
# **"Attention Is All You Need", from its abstract to its conclusion: the paper's own sentences, an
# explanation after each, and the whole model in under 200 lines that you can copy, and that run with a
# trained translator's weights.**
#
# Next: [01_why_attention](01_why_attention.ipynb)
#
# *75 minutes to read, a minute and a half to run.*
#
# - **Before:** Python, some PyTorch (`nn.Module`), matrix products, gradients; nothing about attention.
# - **After:** you know what each box of the model does and why, and you could write it yourself.
#
# Numbered headings and indented sentences are the paper's (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)), without their reference numbers. A number after `≈` may
# differ by processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import linecache
import math
from html import escape
from itertools import product

import matplotlib.pyplot as plt
import torch
from IPython.display import HTML, display
from torch import nn

from annotated import load_pretrained
from annotated.plots import plot_attention, plot_mask, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## The reward first
#
# This model reads English and writes German. It came with the package and was trained on 29,000 photo
# captions.

# %%
translator = load_pretrained("multi30k-en-de")
sentence = "A young woman is throwing a ball to a small brown dog."
print(translator(sentence))
assert translator(sentence) == "Eine junge Frau wirft einem kleinen braunen Hund einen Ball."

# %% [markdown]
# The German is good and puts the dog before the ball. While the model wrote each word, it decided which
# English words to look at:

# %%
seen = translator.attention(sentence)
written = [*seen.tgt_tokens[1:], "</s>"]  # the step that reads token t writes token t + 1
looked = seen.maps["cross", 3].mean(dim=0)  # last layer, mean of its four heads: (steps, source tokens)
ax = plot_attention(looked, written, seen.src_tokens, title="Last layer: where it looked while writing")
ax.set(xlabel="English", ylabel="German, as it was written")
hund, ball = (next(i for i, w in enumerate(written) if w.endswith(end)) for end in ("Hund", "Ball"))
assert hund < ball
assert looked[4].argmax() == 5
assert looked[4].max() < 0.3  # `einem` is undecided
assert seen.src_tokens[looked[hund].argmax()].endswith("dog")
assert seen.src_tokens[looked[ball].argmax()].endswith("ball")
plt.show()

# %% [markdown]
# *Figure 1. Each row is one step: the German token that was written, and how much weight each English
# token had, in the mean of the last layer's four heads (3.2.2; `▁` marks the start of a word, `</s>` the
# end of the sentence). Down to `wirft` the weights roughly follow the diagonal. `einem`, the dog's
# article, is undecided, with most weight on the article of `ball`. Then they jump to `small brown dog`,
# and for `Ball` back to `ball`.*
#
# Nobody told the model which words belong together. **Attention** is a weighted mean of vectors; the
# model computes the weights afresh for each position that looks.

# %% [markdown]
# ## Abstract
#
# > "We propose a new simple network architecture, the Transformer, based solely on attention mechanisms,
# > dispensing with recurrence and convolutions entirely."
#
# *Recurrence* and *convolution* were how networks usually read sequences before 2017. New for translation
# is *solely*: attention itself was known. The abstract reports 28.4 BLEU for English to German. BLEU is a
# score from 0 to 100: it counts how many words of a translation, and runs of up to four, also appear in a
# human's, and punishes short translations.

# %% [markdown]
# ## 1 Introduction
#
# > "This inherently sequential nature precludes parallelization within training examples [...]."
#
# A *recurrent neural network* (RNN) reads a sentence token by token and updates a vector at every token,
# its *hidden state*: $h_t = f(h_{t-1}, x_t)$. This has two costs.
#
# - **Time.** $h_{50}$ cannot be computed before $h_{49}$, so a GPU has to wait.
# - **Distance.** What token 1 says about token 50 has to survive 49 updates, and so does the gradient on
#   its way back. LSTMs, the usual RNNs, have gates that ease this.
#
# For translation, two RNNs were joined: an **encoder** reads the source, and a **decoder** writes the
# target. Between them stood one vector, which had to hold the whole sentence. Bahdanau et al.
# ([2014](https://arxiv.org/abs/1409.0473)) removed that bottleneck: at every step, the decoder computes a
# weight for each encoder state and reads their weighted sum, the *context vector*.
#
# ![An RNN encoder-decoder with one vector between encoder and decoder; the same with attention; a
# Transformer's encoder, without recurrence](../images/before.svg)
#
# *Figure 2. Left: everything passes through one vector. Middle: Bahdanau's decoder looks back at all
# states. Right: in the Transformer's encoder each position looks at every position directly.*
#
# *Still open: how far a gradient gets through an RNN, counted and measured* →
# [01_why_attention](01_why_attention.ipynb)

# %% [markdown]
# ## 2 Background
#
# > "Self-attention, sometimes called intra-attention is an attention mechanism relating different
# > positions of a single sequence in order to compute a representation of the sequence."
#
# In **self-attention** a sequence looks at itself: in *the cat slept because it was tired*, the vector of
# *it* can take in something of *cat*. A convolution mixes each word with its near neighbours, so the
# number of layers between two words grew with their distance. In self-attention it is one.

# %% [markdown]
# ## 3 Model Architecture
#
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional
# > input when generating the next."
#
# ![The Transformer: encoder on the left, decoder on the right](../images/architecture.svg)
#
# *Figure 3. The paper's Figure 1, drawn anew; here it reads downwards.*
#
# The **tokens** of a sentence (words or pieces of words, as numbers) become vectors of $d_{model} = 512$
# numbers, with their position added. The encoder is a stack of $N = 6$ identical layers with weights of
# their own. It gives a vector for each source token in its context; the paper calls these vectors $z$,
# our code, like PyTorch's, the **memory**. The decoder is a similar stack. It reads the target tokens
# written so far, looks at this same memory in every layer, and ends in a probability for every token that
# could come next. One is chosen and appended, and the decoder runs again: it is **auto-regressive**.
#
# **Attention in a paragraph.** Each position sends out a *query*: what am I looking for? Each position
# that can be looked at offers a *key*, which queries are compared with, and a *value*, the content that
# is handed over. Learned linear maps make all three, in self-attention from the same vectors, so the code
# says `self_attn(x, x, x)`. In the decoder's second attention, keys and values come from the memory.
#
# Shapes in the code, such as `(B, T, d_model)`: B sentences in a batch, S source and T target positions.
# In an attention, T counts the queries and S the keys; self-attention has S = T. A *mask* (3.2.1) says
# which positions may be looked at.

# %% [markdown]
# ### 3.1 Encoder and Decoder Stacks
#
# > "We employ a residual connection around each of the two sub-layers, followed by layer normalization.
# > That is, the output of each sub-layer is LayerNorm(x + Sublayer(x)) [...]."
#
# A layer consists of *sub-layers*: attention, and a small network for each position (3.3). A sub-layer
# does not replace a vector: it **adds** to it. This *residual connection* leaves a path from the first
# layer to the last around every sub-layer (though through the norms), for vectors and gradients; what
# flows along it is called the *residual stream*.
#
# *Layer normalisation* brings the entries of each position's vector to mean 0 and variance 1, then scales
# and shifts each by learned numbers. Why? Every addition tends to make the numbers larger; the norm undoes
# this, which helps training.


# %%
class AddNorm(nn.Module):
    """What surrounds each sub-layer: dropout, residual connection, layer normalisation (3.1, 5.4)."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, output):  # the stream, and what the sub-layer made of it: both (B, S or T, d_model)
        return self.norm(x + self.dropout(output))


# %% [markdown]
# `self.sublayer` holds the `AddNorm` around each sub-layer. (`MultiHeadedAttention` and `FeedForward`
# follow below.)


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network (the paper's Figure 1, left)."""

    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(AddNorm(d_model, dropout) for _ in range(2))

    def forward(self, x, src_mask):  # (B, S, d_model) -> (B, S, d_model)
        x = self.sublayer[0](x, self.self_attn(x, x, x, src_mask))
        return self.sublayer[1](x, self.feed_forward(x))


# %% [markdown]
# > "[...] the decoder inserts a third sub-layer, which performs multi-head attention over the output of the
# > encoder stack."


# %%
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward (the paper's Figure 1, right)."""

    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.src_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(AddNorm(d_model, dropout) for _ in range(3))

    def forward(self, x, memory, src_mask, tgt_mask):  # x (B, T, d_model), memory (B, S, d_model)
        x = self.sublayer[0](x, self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward(x))


# %% [markdown]
# A stack:


# %%
class Encoder(nn.Module):
    """N encoder layers."""

    def __init__(self, N, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))

    def forward(self, x, src_mask):  # (B, S, d_model) -> the memory (B, S, d_model)
        for layer in self.layers:
            x = layer(x, src_mask)
        return x


class Decoder(nn.Module):
    """N decoder layers."""

    def __init__(self, N, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))

    def forward(self, x, memory, src_mask, tgt_mask):  # (B, T, d_model) -> (B, T, d_model)
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return x


# %% [markdown]
# **Why does so much code normalise first?** The paper is *post-norm*. Most large language models since
# GPT-2 (and "The Annotated Transformer") are *pre-norm*: x + Sublayer(norm(x)). Then no norm stands on
# the residual path (one follows each stack), gradients pass along it unchanged, and [Xiong et al.
# (2020)](https://arxiv.org/abs/2002.04745) trained such models without the slow start of 5.3, which most
# large models keep.
#
# *Still open: what each order does to the gradients of twelve layers* →
# [06_the_full_model](06_the_full_model.ipynb)

# %% [markdown]
# ### 3.2 Attention
#
# > "An attention function can be described as mapping a query and a set of key-value pairs to an output
# > [...]. The output is computed as a weighted sum of the values, where the weight assigned to each value
# > is computed by a compatibility function of the query with the corresponding key."
#
# Attention is a Python dictionary made soft. Instead of the one value whose key equals the query, it
# returns a mixture of all values, each weighted by how well its key fits. A mixture has a gradient, so
# the network can learn what to ask for.

# %% [markdown]
# #### 3.2.1 Scaled Dot-Product Attention
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# Queries and keys are vectors of width $d_k$ (values: $d_v$), stacked as rows of $Q$ and $K$. The
# **score** of a query and a key is their dot product: it grows with their lengths, and as their
# directions agree. $Q K^T$ holds all scores. The
# **softmax**, $\exp(s_j) / \sum_i \exp(s_i)$, turns each row into weights: all positive, adding up to 1.
# The last product mixes the values with these weights.
#
# ![Scaled dot-product attention, matrix by matrix](../images/attention.svg)
#
# *Figure 4. The paper's Figure 2, left, with matrices. Cells that are struck out are hidden by a mask.*


# %%
def attention(query, key, value, mask=None):
    """Equation 1: (..., T, d_k), (..., S, d_k), (..., S, d_v) -> (..., T, d_v), and the weights."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:  # True: the query may look at the key
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (..., T, S), each row adds up to 1
    return weights @ value, weights


# %%
keys = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
values = torch.tensor([[10.0], [90.0], [30.0]])
output, weights = attention(torch.tensor([[2.0, 0.0]]), keys, values)
print("weights", [f"{w:.3f}" for w in weights[0].tolist()], "output", f"{output.item():.2f}")
assert torch.allclose(weights, torch.tensor([[0.5, 0.0, 0.5]]), atol=0.01)  # keys 1 and 3 fit alike

# %% [markdown]
# The query (2, 0) asks for the first entry. The first and the third key have it and share the weight, so
# the output is close to the mean of their values, 20.
#
# **Why divide by $\sqrt{d_k}$?**
#
# > "We suspect that for large values of dk, the dot products grow large in magnitude, pushing the softmax
# > function into regions where it has extremely small gradients."
#
# A footnote of the paper says why they grow: the dot product of a query and a key whose entries are
# independent, with mean 0 and variance 1, has variance $d_k$. The last two columns say how much the
# weights change with the softmax's input and with the query: the norm of their derivatives (*Jacobian*),
# median over 2,000 queries.


# %%
def saturation(d_k, scale):
    """Standard deviation of 10 scores, mean largest weight, median norms of two Jacobians."""
    _ = torch.manual_seed(0)
    query, keys = torch.randn(2000, 1, d_k), torch.randn(2000, 10, d_k)
    scores = (query * keys).sum(dim=-1) / scale  # (2000, 10)
    p = scores.softmax(dim=-1)
    softmax = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)  # dp_i / ds_j: (2000, 10, 10)
    medians = [j.norm(dim=(-2, -1)).median().item() for j in (softmax, softmax @ keys / scale)]
    return scores.std().item(), p.max(dim=-1).values.mean().item(), *medians


print(" d_k   divided by   std. dev.   largest weight   at the softmax   at the query")
for d_k, scale in ((64, 1), (64, 8), (1024, 1), (1024, 32)):
    deviation, largest, inner, outer = saturation(d_k, scale)
    print(f"{d_k:4}   {scale:10}   {f'≈{deviation:.2f}':>9}   {f'≈{largest:.2f}':>14}", end="   ")
    print(f"{f'≈{inner:.2g}':>14}   {f'≈{outer:.2g}':>12}")
    assert abs(deviation - math.sqrt(d_k) / scale) < 0.05 * deviation
    assert (inner > 0.3) if scale > 1 else (inner < 0.12 if d_k == 64 else inner < 1e-4)
    assert (0.3 < outer < 0.4) if scale > 1 else (outer > 0.5 if d_k == 64 else outer < 1e-3)

# %% [markdown]
# For random vectors, scores grow at both widths. At 1024 the softmax is *saturated* for most queries: one
# weight takes nearly everything, and the gradient almost vanishes. At the paper's $d_k = 64$ the
# softmax's gradient falls to a quarter; but on the way to the query it is multiplied by the keys, and by
# 1/8 with the division: there, it is *larger* without. With the division, the width makes no difference
# at the start; training may still make scores large.
#
# **Masks.** Some positions must not be seen: padding (filler that makes the sentences of a batch equally
# long), and the future (3.2.3). The paper gives a hidden key the score −∞, our code the lowest finite
# number (with −∞, a row with nothing to see would be NaN), so its weight is 0. In our masks `True` means
# *may be looked at*; in PyTorch's `nn.MultiheadAttention` it means *hidden*.
#
# *Still open: what the division brings, and what if a mask hides every key?* →
# [02_attention](02_attention.ipynb)

# %% [markdown]
# #### 3.2.2 Multi-Head Attention
#
# > "Multi-head attention allows the model to jointly attend to information from different representation
# > subspaces at different positions. With a single attention head, averaging inhibits this."
#
# One attention gives each query *one* set of weights. But a verb may need its subject and its object, and
# one mixture blurs both. So the model runs $h = 8$ attentions side by side, the **heads**, each on
# vectors of its own of width $d_k = d_{model} / h = 64$. A last linear map, $W^O$, mixes their outputs.
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, \dots, head_h)\, W^O$$
# $$head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# Here $Q$, $K$, $V$ are the vectors *before* the maps. With one map for queries and keys, scores would
# be symmetric: *b* would fit *a* exactly as *a* fits *b*. These are $3h + 1 = 25$ matrices. The code has
# four, because $h$ narrow matrices side by side are one wide one.
#
# ![Multi-head attention with its four linear maps](../images/multi_head_attention.svg)
#
# *Figure 5. The paper's Figure 2, right.*


# %%
class MultiHeadedAttention(nn.Module):
    """h attentions side by side, between three linear maps and a fourth (section 3.2.2)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        # W^Q, W^K, W^V and W^O; nn.Linear also adds a bias, which the formulas lack
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):  # (B, T, d_model) -> (B, h, T, d_k)
        return x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)

    def forward(self, query, key, value, mask=None):  # (B, T, d_model), two (B, S, d_model), (B, 1 or T, S)
        w_q, w_k, w_v, w_o = self.linears
        q, k, v = self.split(w_q(query)), self.split(w_k(key)), self.split(w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)  # the same for every head: (B, 1, 1 or T, S)
        heads, weights = attention(q, k, v, mask)  # (B, h, T, d_k), (B, h, T, S)
        self.weights = weights.detach()  # to look at
        return w_o(heads.transpose(1, 2).flatten(2))  # side by side again: (B, T, d_model)


# %% [markdown]
# *Still open: what one head cannot compute by position, and how many heads one needs* →
# [03_multi_head_attention](03_multi_head_attention.ipynb)

# %% [markdown]
# #### 3.2.3 Applications of Attention in our Model
#
# | sub-layer | queries from | keys and values from | mask hides |
# | --- | --- | --- | --- |
# | encoder self-attention | source | source | padding |
# | decoder self-attention | target | target | the future, padding |
# | encoder-decoder attention ("cross") | target | memory | padding of the source |
#
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive
# > property."
#
# *Leftward*: from later tokens to earlier ones. In training, the decoder is given the whole reference
# translation and predicts at each token the next one. If it could look ahead, it would copy the answer.
# So the **causal mask** lets each position see itself and the positions before it.


# %%
def causal_mask(size, device=None):
    """bool (1, size, size): row i is True up to column i."""
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()


# %%
words = ["<s>", "Ein", "Hund", "rennt"]
ax = plot_mask(causal_mask(4)[0], words, words, title="The causal mask")
assert not causal_mask(4)[0, 1, 2]
plt.show()

# %% [markdown]
# *Figure 6. A row is labelled by the token that is read (`<s>` marks the start). The row `Ein` may not
# look at `Hund`, which it has to predict.*

# %% [markdown]
# ### 3.3 Position-wise Feed-Forward Networks
#
# > "... each of the layers in our encoder and decoder contains a fully connected feed-forward network,
# > which is applied to each position separately and identically."
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# What can this network do that attention cannot? Attention's softmax decides only *where* to read; what
# is read passes through linear maps and a mean. The $\max(0, \cdot)$, called ReLU, can combine two
# features of one vector: if they are 0 or 1, a unit (an entry of the inner vector) with
# $\max(0, a + b - 1)$ says *and*. Without it, $W_1 W_2$ would be a single matrix.
#
# The inner width is $d_{ff} = 2048$, four times $d_{model}$. So this network holds $8\,d_{model}^2$
# weights, against $4\,d_{model}^2$ for attention: two thirds of an encoder layer.


# %%
class FeedForward(nn.Module):
    """Equation 2, the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_model)
        return self.w_2(self.w_1(x).relu())


# %% [markdown]
# ### 3.4 Embeddings and Softmax
#
# > "In our model, we share the same weight matrix between the two embedding layers and the pre-softmax
# > linear transformation [...]. In the embedding layers, we multiply those weights by √dmodel."
#
# An *embedding* is a table with a row of $d_{model}$ numbers for each token. It is used three times
# (*weight tying*, done in `Transformer` below): for source tokens, for target tokens, and, transposed, to
# turn each vector that leaves the decoder into one number for each token of the vocabulary. These numbers
# are the **logits**; a softmax makes probabilities of them. Why the factor? The paper gives no reason;
# ours: as an output layer the matrix needs entries near $1/\sqrt{d_{model}}$, or the first logits would be
# huge; as an input, entries near 1, or the positions (3.5) would drown the words.


# %%
class Embeddings(nn.Module):
    """A vector for each token, times sqrt(d_model)."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)  # a look-up table
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):  # (B, T) -> (B, T, d_model)
        return self.lut(tokens) * self.scale


class Generator(nn.Module):
    """Logits, then the logarithm of their softmax."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):  # (B, T, d_model) -> log-probabilities (B, T, vocab)
        return self.proj(x).log_softmax(dim=-1)


# %% [markdown]
# *Still open: what the network's units react to, and where a large vocabulary costs* →
# [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb)

# %% [markdown]
# ### 3.5 Positional Encoding
#
# > "[...] in order for the model to make use of the order of the sequence, we must inject some
# > information about the relative or absolute position of the tokens in the sequence."
#
# A weighted sum does not know the order of its terms. Shuffle the tokens, and self-attention gives the
# same vectors, shuffled (*permutation equivariance*). To such an encoder, *dog bites man* and *man bites
# dog* are the same.

# %%
_ = torch.manual_seed(0)
attend = MultiHeadedAttention(h=2, d_model=8)
x, order = torch.randn(1, 5, 8), [3, 0, 4, 1, 2]
y = x[:, order]
shuffled_before, shuffled_after = attend(y, y, y), attend(x, x, x)[:, order]
print(f"largest difference: {(shuffled_before - shuffled_after).abs().max():.5f}")
assert torch.allclose(shuffled_before, shuffled_after, atol=1e-5)

# %% [markdown]
# The paper adds to each embedding a vector that depends on the position alone:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Think of each pair of entries as the hand of a clock. The first turns by one radian at each position,
# the last hardly moves in a thousand positions.


# %%
def sinusoids(length, d_model):
    """The positional encodings, (length, d_model)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # sine, cosine, sine, ...


class PositionalEncoding(nn.Module):
    """Add the position's vector, then dropout (sections 3.5 and 5.4)."""

    def __init__(self, d_model, dropout, max_len=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", sinusoids(max_len, d_model), persistent=False)

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_model)
        return self.dropout(x + self.pe[: x.size(1)])


# %%
pe = sinusoids(100, 64)
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2))
for entry in (0, 8, 16, 24):
    left.plot(pe[:, entry], ".-", linewidth=1, markersize=4, label=f"entry {entry}")
left.set(xlabel="position", ylabel="value", title="Four entries of the encoding")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=4, fontsize=10)
near = pe @ pe.T  # (100, 100)
right.plot(range(-50, 50), near[50], label="from position 50")
right.plot(range(-20, 80), near[20], "--", label="from position 20")
right.set(xlabel="offset", ylabel="dot product", title="The dot product depends on the offset alone")
right.legend()
assert torch.allclose(near[50, 30:100], near[20, 0:70], atol=1e-3)
plt.show()

# %% [markdown]
# *Figure 7. Left: fast entries and slow ones, a dot for each position. Right: seen from two positions,
# the dot product is the same. Far from 0, it rises again where several fast clocks have come round
# together.*
#
# > "We chose this function because we hypothesized it would allow the model to easily learn to attend by
# > relative positions, since for any fixed offset k, PEpos+k can be represented as a linear function of
# > PEpos."
#
# In $k$ positions, each clock turns by an angle that depends on $k$ alone. So one matrix, the same at
# *every* position, turns all clocks back by $k$. A head has room for $d_k / 2$ clocks: if $W^K$ keeps
# them and $W^Q$ turns them back, the query at position $p$ equals the key at $p - k$, and fits it best
# (Figure 7). It asks *who stands $k$ places before me?* (Roughly: the word is in the vector too.)

# %%
clocks = sinusoids(100, 16).double()
three_back = torch.linalg.lstsq(clocks[3:], clocks[:-3]).solution  # (16, 16)
error = (clocks[3:] @ three_back - clocks[:-3]).abs().max()
print(f"one 16 x 16 matrix for all {len(clocks) - 3} positions, largest error {error:.4f}")
assert error < 1e-3

# %% [markdown]
# One head of our translator behaves much like that:

# %%
back = seen.maps["encoder", 1][2]  # second layer, third head: (14, 14)
plot_attention(back, seen.src_tokens, seen.src_tokens, title="Encoder, layer 2, head 3: one token back")
assert all(back[i].argmax() == i - 1 for i in (2, *range(4, 12)))
assert back[3].argmax() == 1  # `is`
plt.show()
_ = torch.manual_seed(0)
shares, words = [], sentence[:-1].split()
for order in (range(12), *(torch.randperm(12) for _ in range(20))):
    jumbled = " ".join(words[i] for i in order) + "."
    weights = translator.attention(jumbled).maps["encoder", 1][2]
    shares.append((weights[1:].argmax(dim=-1) == torch.arange(13)).double().mean().item())
print(f"tokens that look one back: ≈{shares[0]:.0%}; words shuffled, 20 times: ≈{sum(shares[1:]) / 20:.0%}")
assert 0.5 < sum(shares[1:]) / 20 < shares[0] < 0.75

# %% [markdown]
# *Figure 8. Self-attention of one head. From `woman` to `dog`, each token but `is` looks mostly at the
# one before it; the others look elsewhere.*
#
# Shuffling the words keeps most of this, so the head goes mostly by position.
#
# *Still open: why 10000, and what happens past the longest sentence of the training* →
# [05_positional_encoding](05_positional_encoding.ipynb)

# %% [markdown]
# ### The whole model
#
# The boxes of Figure 3, connected:


# %%
class Transformer(nn.Module):
    """The paper's Figure 1, with one vocabulary and one embedding matrix for both languages (3.4)."""

    def __init__(self, vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
        super().__init__()
        self.encoder = Encoder(N, d_model, d_ff, h, dropout)
        self.decoder = Decoder(N, d_model, d_ff, h, dropout)
        self.src_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.generator = Generator(d_model, vocab)
        for matrix in (p for p in self.parameters() if p.dim() > 1):
            nn.init.xavier_uniform_(matrix)  # keeps the size of what passes, roughly
        shared = nn.init.normal_(self.src_embed[0].lut.weight, std=d_model**-0.5)  # small: 3.4
        self.tgt_embed[0].lut.weight = self.generator.proj.weight = shared

    def encode(self, src, src_mask):  # tokens (B, S) -> memory (B, S, d_model)
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):  # tokens (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


# %% [markdown]
# The parameters, with 37,000 tokens:

# %%
for N, reported in ((2, 36), (4, 50), (6, 65), (8, 80)):
    with torch.device("meta"):  # tensors without storage
        count = sum(p.numel() for p in Transformer(vocab=37_000, N=N).parameters()) / 1e6
    print(f"{N} layers: {count:.1f} million parameters; Table 3: {reported}")
    assert 1.5 < reported - count < 2.5

# %% [markdown]
# The paper has some 2 million more at every depth, so they are not in the layers. The model in one piece,
# to unfold and copy:

# %%
parts = (AddNorm, EncoderLayer, DecoderLayer, Encoder, Decoder, attention, MultiHeadedAttention, causal_mask)
parts += (FeedForward, Embeddings, Generator, sinusoids, PositionalEncoding, Transformer)
places = dict.fromkeys(getattr(part, "forward", part).__code__.co_filename for part in parts)
cells = ["".join(linecache.getlines(place)).strip() for place in places]
listing = "\n\n\n".join(["import math\n\nimport torch\nfrom torch import nn", *cells])
display(HTML(f"<details><summary>The model, whole</summary><pre>{escape(listing)}</pre></details>"))
alone = {}
exec(listing, alone)  # in an empty namespace: nothing is missing
numbers = torch.tensor([[1, 2, 3]])
run = alone["Transformer"](10, 1, 8, 8, 2)(numbers, numbers, None, alone["causal_mask"](3))
assert run.shape == (1, 3, 10)
assert len(listing.splitlines()) <= 200

# %% [markdown]
# ### Does it translate?
#
# The weights of the translator from the top of this page fit into these classes, name by name.

# %%
model = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.3)
print(model.load_state_dict(translator.model.state_dict()))
_ = model.eval()  # no dropout from here on

# %% [markdown]
# To translate, we encode once, then decode again and again, each time with one more token. Taking the
# likeliest token at every step is called *greedy* decoding.


# %%
@torch.no_grad()
def greedy(model, src, src_mask, start, end, max_len, never=()):
    """Translate tokens (B, S) -> (B, up to max_len); tokens in `never` (start, padding) are not produced."""
    memory = model.encode(src, src_mask)
    out = torch.full((len(src), 1), start, device=src.device)
    never = torch.tensor(never, dtype=torch.long, device=src.device)
    for _ in range(max_len):
        log_probs = model.decode(memory, src_mask, out, causal_mask(out.size(1), src.device))
        following = log_probs[:, -1].index_fill(1, never, -math.inf)
        out = torch.cat([out, following.argmax(dim=-1, keepdim=True)], dim=1)  # (B, 1 + steps)
        if (out == end).any(dim=1).all():
            break
    return out[:, 1:]


# %% [markdown]
# Fifty sentences go through at once; the source mask hides the padding of the shorter ones.

# %%
who = ["A man", "A little girl", "A young woman", "A brown dog", "An old lady in a red dress"]
what = ["is running across the grass", "is sitting on a bench", "is playing in the snow"]
what += ["jumps into the water", "is standing in the street"]
sentences = [f"{a} {b}{end}" for a, b, end in product(who, what, (".", " in the rain."))]  # 50

tokenizer = translator.src_tokenizer  # of both languages


def padded(texts):
    """The tokens of each text and an end, filled up to one length: (texts, tokens)."""
    rows = [torch.tensor([*tokenizer.encode(text), tokenizer.end]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad)


src = padded(sentences)  # (50, S)
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (50, 1, S)
out = greedy(model, src, src_mask, tokenizer.start, tokenizer.end, 60, never=translator.forbidden)
ours = [tokenizer.decode(row[: row.index(tokenizer.end)]) for row in out.tolist()]
theirs = translator.translate(sentences, beam=1)
for text, german in list(zip(sentences, ours, strict=True))[::11]:
    print(f"{text:<52} {german}")
equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
print(f"equal to the package's greedy translations: {equal} of {len(sentences)}")
assert equal == 50

# %% [markdown]
# ## 4 Why Self-Attention
#
# > "One is the total computational complexity per layer. Another is the amount of computation that can be
# > parallelized [...]. The third is the path length between long-range dependencies in the network."
#
# | layer | complexity | sequential operations | maximum path length |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, kernel width $k$ | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$, dilated |
#
# *(Table 1, without its last row; $n$ tokens, width $d$)*
#
# The two columns on the right are the two costs of section 1; in training, self-attention has neither.
# Its price is the $n^2$. In an encoder layer, the linear maps, which the table leaves out, take $12nd^2$
# multiplications. The two products of attention take $2n^2d$, which is $n/(n+6d)$ of the whole.

# %%
for n in (25, 500, 3072, 100_000):
    print(f"n = {n:7,}: the n^2 part is {n / (n + 6 * 512):5.1%} of the multiplications")
assert 25 / (25 + 6 * 512) < 0.01

# %% [markdown]
# ## 5 Training

# %% [markdown]
# ### 5.1 Training Data and Batching
#
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about
# > 37000 tokens. [...] Sentence pairs were batched together by approximate sequence length."
#
# The data was WMT 2014, for German 4.5 million sentence pairs. *Byte-pair encoding* builds a vocabulary
# of *subwords*: frequent words stay whole, rare ones are spelled from parts. Sentences of similar length
# share a batch, because padding costs computation too.

# %%
for text in ("A dog is running.", "A snowboarder somersaults."):
    print(tokenizer.pieces(tokenizer.encode(text)))

# %% [markdown]
# The decoder's input and output are **shifted by one**: it reads `<s> Ein Hund rennt .` and has to
# predict `Ein Hund rennt . </s>`. It is given the *reference* words, even where it would have chosen
# others (**teacher forcing**). Thanks to the causal mask, all positions are trained in one pass. The
# mask:

# %%
src = padded(["A dog is running.", "A snowboarder somersaults."])  # (2, S)
write = padded(["Ein Hund rennt.", "Ein Snowboarder macht einen Salto."])  # (2, T): to be predicted
read = torch.cat([torch.full((2, 1), tokenizer.start), write[:, :-1]], dim=1)  # (2, T): the same, shifted
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (2, 1, S)
tgt_mask = (read != tokenizer.pad).unsqueeze(1) & causal_mask(read.size(1))  # (2, T, T)
print(tgt_mask[0].int())  # 1: the row may look at the column
assert not tgt_mask[0, :, -1].any()
assert tgt_mask[1, -1].all()

# %% [markdown]
# In the shorter translation, column six is its `</s>`, column seven padding. (The causal mask alone hides
# that from real tokens; most code masks it, too.)
#
# *Still open: padding in real batches, and what a model learns if it can peek* →
# [07_batches_and_masks](07_batches_and_masks.ipynb)

# %% [markdown]
# ### 5.2 Hardware and Schedule
#
# > "We trained our models on one machine with 8 NVIDIA P100 GPUs. [...] We trained the base models for a
# > total of 100,000 steps or 12 hours."
#
# The big model (6.2) took 3.5 days.
#
# *Still open: where the time of a step goes* → [15_going_fast](15_going_fast.ipynb)

# %% [markdown]
# ### 5.3 Optimizer
#
# > "This corresponds to increasing the learning rate linearly for the first warmup_steps training steps,
# > and decreasing it thereafter proportionally to the inverse square root of the step number."
#
# The optimizer is Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$. Its learning rate
# follows equation 3:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5}) \qquad (3)$$


# %%
def rate(step, d_model, warmup):
    """Equation 3; steps count from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


steps = range(1, 20_001)
fig, ax = plt.subplots(figsize=(7, 2.8))
for d_model, name in ((512, "base"), (1024, "big")):
    ax.plot(steps, [rate(s, d_model, 4000) for s in steps], label=f"d_model {d_model} ({name})")
ax.set(xlabel="step", ylabel="learning rate", title="Equation 3, warm-up 4,000")
ax.legend()
assert max(steps, key=lambda s: rate(s, 512, 4000)) == 4000
plt.show()

# %% [markdown]
# *Figure 9. The wider model gets a lower rate at every step.*
#
# The paper takes 4,000 steps of warm-up and gives no reason. Two explanations came later. Xiong et al.
# (2020): in a post-norm model at initialisation, the expected gradients near the output are large, and a
# large rate makes training unstable. Liu et al. (2020, "RAdam"): Adam's first steps rest on few
# gradients, so their size varies too much.
#
# *Still open: an experiment that removes one cause at a time* →
# [08_training_recipe](08_training_recipe.ipynb)


# %% [markdown]
# ### 5.4 Regularization
#
# > "During training, we employed label smoothing of value ε_ls = 0.1. This hurts perplexity, as the model
# > learns to be more unsure, but improves accuracy and BLEU score."
#
# *Regularisation* makes it harder to learn the training set by heart. (*Perplexity* is $\exp$ of the
# mean $-\log p$ of the right tokens.)
#
# - **Dropout** (0.1 for the base model): in training, random entries of each sub-layer's output, and of the
#   embeddings with their positions, become 0, and the others are divided by 0.9, so no unit can rely on a
#   single other one.
# - **Label smoothing**: the target gives the right token 0.9 and, in the authors' code, all others
#   together 0.1.


# %%
def smoothed_loss(log_probs, target, smoothing=0.1):
    """Smoothed cross-entropy, as in tensor2tensor: (..., vocab), (...) -> a number per token."""
    right = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (...)
    others = (log_probs.sum(dim=-1) - right) / (log_probs.size(-1) - 1)  # their mean (PyTorch: of all)
    return -(1 - smoothing) * right - smoothing * others


sure, unsure = torch.tensor([0.9997] + 3 * [0.0001]), torch.tensor([0.9] + 3 * [0.1 / 3])
for name, p in (("0.9997", sure), ("0.9", unsure)):
    print(f"{name:8} plain {-p[0].log():.3f}   smoothed {smoothed_loss(p.log(), torch.tensor(0)):.3f}")
assert smoothed_loss(sure.log(), torch.tensor(0)) > smoothed_loss(unsure.log(), torch.tensor(0))

# %% [markdown]
# The plain loss, the *cross-entropy* $-\log p$ of the right token, prefers the certain prediction. The
# smoothed loss is smallest where the prediction equals the target: 0.435, the target's *entropy*.
#
# Padding must not count. For the batch of 5.1:

# %%
with torch.no_grad():
    per_token = smoothed_loss(model(src, read, src_mask, tgt_mask), write)  # (2, T)
    loss = per_token[write != tokenizer.pad].mean()  # without padding
    alone = smoothed_loss(model(src[:1, :6], read[:1, :5], None, causal_mask(5)), write[:1, :5])
print(f"{per_token.numel()} positions, {(write != tokenizer.pad).sum()} count, loss ≈{loss:.2f}")
assert 0.3 < loss < 6
assert torch.allclose(alone[0], per_token[0, :5], atol=1e-3)  # the first sentence without its padding

# %% [markdown]
# *Still open: what each regulariser brings, and why `size - 2` in the Annotated Transformer* →
# [08_training_recipe](08_training_recipe.ipynb)

# %% [markdown]
# ### It learns
#
# The *copy task* is the smallest test: read eight numbers from 1 to 10, write the same eight.

# %%
_ = torch.manual_seed(1)
START, LENGTH, WIDTH = 0, 8, 32
copier = Transformer(vocab=11, N=2, d_model=WIDTH, d_ff=64, h=2, dropout=0.0)
adam = torch.optim.Adam(copier.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)  # lr is set below
losses = []
for step in range(1, 401):
    digits = torch.randint(1, 11, (64, LENGTH))
    shifted = torch.cat([torch.full((64, 1), START), digits[:, :-1]], dim=1)  # what the decoder reads
    log_probs = copier(digits, shifted, None, causal_mask(LENGTH))
    loss = smoothed_loss(log_probs, digits).mean()
    adam.param_groups[0]["lr"] = rate(step, WIDTH, warmup=100)
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())

_ = copier.eval()
new = torch.randint(1, 11, (100, LENGTH))
copied = (greedy(copier, new, None, START, -1, LENGTH) == new).all(dim=1).sum().item()
print(f"loss ≈{losses[0]:.2f} at first, ≈{losses[-1]:.2f} at the end")
print(f"≈{copied} of 100 new rows copied without an error")
assert losses[-1] < 0.75 < 2 < losses[0]
assert copied >= 80

# %% [markdown]
# The last loss is near 0.555, the entropy of the smoothed target (0.9 once, 0.01 ten times).
#
# *Still open: the training loop line by line, and how many rows are right if 98% of the tokens are* →
# [09_first_example](09_first_example.ipynb)

# %% [markdown]
# ### One sentence, number by number
#
# A model small enough to print has one layer, $d_{model} = 4$, two heads, and learns eight sentences.
# They need attention: for English *a*, German has *ein* or *eine*, by the noun.

# %%
nouns, verbs = {"dog": "Hund", "cat": "Katze"}, {"runs": "rennt", "sleeps": "schläft"}
articles = {("a", "dog"): "ein", ("a", "cat"): "eine", ("the", "dog"): "der", ("the", "cat"): "die"}
pairs = [
    (f"{article} {noun} {verb}".split(), [german, nouns[noun], verbs[verb]])
    for ((article, noun), german), verb in product(articles.items(), verbs)
]
vocab = ["<s>", "</s>", *sorted({word for pair in pairs for side in pair for word in side})]
number = {word: i for i, word in enumerate(vocab)}
english = torch.tensor([[number[w] for w in source] for source, _ in pairs])  # (8, 3)
read = torch.tensor([[number[w] for w in ["<s>", *target]] for _, target in pairs])  # (8, 4)
write = torch.tensor([[number[w] for w in [*target, "</s>"]] for _, target in pairs])  # (8, 4)
print(len(vocab), "tokens:", *vocab)

# %%
_ = torch.manual_seed(7)  # chosen among others: its weights are easy to read
tiny = Transformer(len(vocab), N=1, d_model=4, d_ff=8, h=2, dropout=0.0).double()
for weights in tiny.state_dict().values():
    weights.round_(decimals=3)  # processors draw alike to seven digits only
adam = torch.optim.Adam(tiny.parameters(), lr=0.03)
for _ in range(120):
    loss = smoothed_loss(tiny(english, read, None, causal_mask(4)), write, smoothing=0.0).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
right = (tiny(english, read, None, causal_mask(4)).argmax(dim=-1) == write).all(dim=1)
print(f"loss {loss.item():.3f}; given the words before, every word right in {right.sum()} of 8 sentences")
assert right.all()

# %% [markdown]
# We follow *a cat runs*. Each token is a number, each number a row of the embedding table, times
# $\sqrt{4} = 2$; the position's vector is added.


# %%
def show(title, labels, values):
    """Print a matrix, a row for each label."""
    print(title)
    for label, row in zip(labels, values.tolist(), strict=True):
        print(f"  {label:8}" + "".join(f"{value:7.2f}" for value in row))


_ = tiny.eval()
source, target = pairs[2]
print(source, english[2].tolist())
embedded = tiny.src_embed[0](english[2:3])  # (1, 3, 4)
show("embedding times 2", source, embedded[0])
show("position", ["0", "1", "2"], tiny.src_embed[1].pe[:3])
x = tiny.src_embed(english[2:3])
show("sum: what enters the encoder", source, x[0])
assert torch.equal(x, embedded + tiny.src_embed[1].pe[:3])

# %% [markdown]
# Self-attention, first head, $d_k = 2$:

# %%
layer = tiny.encoder.layers[0]
w_q, w_k, w_v, w_o = layer.self_attn.linears
q, k, v = (layer.self_attn.split(w(x))[0, 0] for w in (w_q, w_k, w_v))  # each (3, 2)
for name, matrix in (("queries", q), ("keys", k), ("values", v)):
    show(name, source, matrix)
show("scores / sqrt(2)", source, q @ k.T / math.sqrt(2))
output, weights = attention(q, k, v)
show("weights: who looks at whom", source, weights)
show("output of head 1", source, output)
assert torch.allclose(weights.sum(dim=-1), torch.ones(3).double())

# %% [markdown]
# All three tokens look at *cat*, so firmly that this softmax is saturated despite the division. $W^O$
# mixes the outputs of both heads, and the result is added to $x$ and normalised. Then the feed-forward
# network adds its part, and a second norm gives the memory. (A norm's learned shift moves a row's mean
# away from 0.)

# %%
heads = torch.cat(
    [attention(*(layer.self_attn.split(w(x))[0, i] for w in (w_q, w_k, w_v)))[0] for i in (0, 1)], -1
)
show("both heads", source, heads)
show("times W^O", source, w_o(heads))
added = layer.sublayer[0](x, w_o(heads))
show("added to x, normalised", source, added[0])
memory = layer.sublayer[1](added, layer.feed_forward(added))
show("after the feed-forward network: the memory", source, memory[0])
assert torch.allclose(memory, tiny.encode(english[2:3], None))

# %% [markdown]
# The decoder reads `<s> eine Katze rennt` and should predict `eine Katze rennt </s>`:

# %%
log_probs = tiny.decode(memory, None, read[2:3], causal_mask(4))  # (1, 4, vocab)
decoder = tiny.decoder.layers[0]
steps = ["<s>", *target]
show("self-attention, head 1: <s>, eine, Katze, rennt", steps, decoder.self_attn.weights[0, 0])
for head in (0, 1):
    show(f"attention to the memory, head {head + 1}: a, cat, runs", steps, decoder.src_attn.weights[0, head])
some = ["ein", "eine", "der", "die", "Katze", "rennt", "</s>"]
show("probability of " + ", ".join(some), steps, log_probs[0][:, [number[w] for w in some]].exp())
assert log_probs[0].argmax(dim=-1).tolist() == write[2].tolist()
assert decoder.src_attn.weights[0, :, 0].argmax(dim=-1).tolist() == [1, 0]  # heads on cat and on a

# %% [markdown]
# Above the diagonal, the self-attention is 0: the causal mask. In the row `<s>`, the decoder has to
# choose among four articles. Head 1 looks at *cat*, head 2 mostly at *a*. A tempting story: *a* says
# indefinite, *cat* gives the gender. But *a* had looked at *cat* already: either head may bring the
# gender. Attention weights show where a model looks, not what it uses.
#
# *Still open: how to test a picture of attention* → [13_reading_attention](13_reading_attention.ipynb)
#
# The loss is the mean of $-\log p$ over the four right tokens.

# %%
p = log_probs[0].gather(-1, write[2].unsqueeze(-1)).exp().squeeze(-1)
terms = ", ".join(f"-log {value:.2f} = {-math.log(value):.2f}" for value in p.tolist())
print(f"{terms}; mean {-p.log().mean().item():.3f}")
assert torch.allclose(-p.log().mean(), smoothed_loss(log_probs, write[2:3], 0.0).mean())

# %% [markdown]
# ## 6 Results

# %% [markdown]
# ### 6.1 Machine Translation
#
# > "[...] the big transformer model (Transformer (big) in Table 2) outperforms the best previously
# > reported models (including ensembles) by more than 2.0 BLEU, establishing a new state-of-the-art BLEU
# > score of 28.4."
#
# | Table 2 | English-German | English-French |
# | --- | --- | --- |
# | best single model before (MoE) | 26.03 | 40.56 |
# | best ensemble before (ConvS2S) | 26.36 | 41.29 |
# | Transformer (base) | 27.3 | 38.1 |
# | Transformer (big) | 28.4 | 41.8 (section 6.1: 41.0) |
#
# For French, base is behind the older systems. By the paper's estimate, training base took
# $3.3\cdot10^{18}$ floating-point operations, and big $2.3\cdot10^{19}$. For German, MoE took
# $2.0\cdot10^{19}$, the ensemble (several models, predictions averaged) $7.7\cdot10^{19}$.
#
# Two tricks belong to the result: the weights are the mean of several copies saved near the end of
# training (*checkpoints*), and the search keeps four beginnings (*hypotheses*) instead of one (**beam
# search**). Greedy decoding commits to a word and cannot take it back; a beam can. Here it finds a
# likelier sentence, with another good verb.

# %%
text, found = "The player in white kicks the ball towards the goal.", {}
for beam in (1, 4):
    [[best]] = translator.search([text], beam=beam, alpha=0.0)  # without the paper's length penalty
    print(f"beam {beam}: log-probability ≈{best.log_prob:.2f}  {translator(text, beam=beam, alpha=0.0)}")
    found[beam] = best.log_prob
    assert -5.4 < best.log_prob < -5.0
assert found[4] > found[1]

# %% [markdown]
# Our model knows only captions:

# %%
for text in ("The committee postponed the vote on interest rates.", "Light travels faster than sound."):
    print(f"{text:<55} {translator(text)}")
    assert not any(word in translator(text) for word in ("Ausschuss", "Komitee", "Licht"))

# %% [markdown]
# That is nonsense, about a "Pommler" (no word) and a lorry in the fog. The model cannot refuse: some
# token always has the highest probability.
#
# *Still open: what beam search, its length penalty and averaging do* →
# [11_search_and_averaging](11_search_and_averaging.ipynb); *a real system, and your own language* →
# [10_translation](10_translation.ipynb); *scores* → [12_results](12_results.ipynb)

# %% [markdown]
# ### 6.2 Model Variations
#
# > "While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too
# > many heads."
#
# Table 3 changes few things at a time. On the development set, base has 25.8 BLEU.
#
# | row | change | BLEU |
# | --- | --- | --- |
# | A | 1 head instead of 8 | 24.9 |
# | A | 32 heads | 25.4 |
# | B | $d_k = 16$ instead of 64 | 25.1 |
# | C | 2 layers instead of 6 | 23.7 |
# | D | no dropout | 24.6 |
# | D | no label smoothing | 25.3 |
# | E | learned positions | 25.7 |
# | big | $d_{model} = 1024$, $d_{ff} = 4096$, 16 heads, dropout 0.3, 300,000 steps | 26.4 |
#
# The paper observes in rows C that "bigger models are better", though eight layers have 25.5 BLEU (with
# better perplexity). It does not say how far another seed would move a row.
#
# *Still open: Table 3 on our scale, a learning rate for each row* → [12_results](12_results.ipynb)

# %% [markdown]
# ### 6.3 English Constituency Parsing
#
# > "... despite the lack of task-specific tuning our model performs surprisingly well ..."
#
# A parse tree written as brackets is one more target language. Trained on 40,000 sentences, four layers
# reach 91.3 F1 (agreement of brackets), more than three of the four other parsers trained on the same
# data alone.
#
# *Still open: the same at our size, and where it loses count of words* →
# [16_another_task](16_another_task.ipynb)

# %% [markdown]
# ## 7 Conclusion
#
# > "We are excited about the future of attention-based models and plan to apply them to other tasks."
#
# The paper does not foresee the largest change: most language models today are the decoder of Figure 3
# without its middle sub-layer, mostly pre-norm, trained to continue text.
#
# *Still open: what has changed since, and which of it pays at our size* →
# [17_since_2017](17_since_2017.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Set the encoder's positions in the trained model to zero, and translate "A man
# looks at a dog." and "A dog looks at a man." Section 3.5 says what must happen.

# %% tags=["solution"]
blind = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.0).eval()
_ = blind.load_state_dict(model.state_dict())
_ = blind.src_embed[1].pe.zero_()
rows = [
    [*tokenizer.encode(text), tokenizer.end] for text in ("A man looks at a dog.", "A dog looks at a man.")
]
out = greedy(blind, torch.tensor(rows), None, tokenizer.start, tokenizer.end, 30, never=translator.forbidden)
for row in out.tolist():
    print(tokenizer.decode(row[: row.index(tokenizer.end)]))
assert torch.equal(out[0], out[1])  # the same vectors in another order; the decoder keeps its positions

# %% [markdown]
# **Exercise 2 (medium).** Write equation 1 yourself, without tensors: loops over plain lists, for one
# query.


# %% tags=["exercise"]
def attend_by_loops(query, keys, values):
    """One query (d_k numbers), S keys, S values (d_v numbers each) -> the output, a list of d_v numbers."""
    raise NotImplementedError


# %% tags=["solution"]
def attend_by_loops(query, keys, values):
    """One query (d_k numbers), S keys, S values (d_v numbers each) -> the output, a list of d_v numbers."""
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys]
    exponentials = [math.exp(score) for score in scores]
    weights = [e / sum(exponentials) for e in exponentials]
    columns = zip(*values, strict=True)
    return [sum(w * v for w, v in zip(weights, column, strict=True)) for column in columns]


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
one_query, five_keys, five_values = torch.randn(1, 4), torch.randn(5, 4), torch.randn(5, 3)
by_loops = torch.tensor(attend_by_loops(one_query[0].tolist(), five_keys.tolist(), five_values.tolist()))
by_torch = nn.functional.scaled_dot_product_attention(one_query, five_keys, five_values)[0]
print(f"largest difference from PyTorch's own: {(by_loops - by_torch).abs().max():.5f}")
assert torch.allclose(by_loops, by_torch, atol=1e-5)

# %% [markdown]
# **Exercise 3 (hard).** Write beam search: keep the `k` likeliest beginnings instead of one. A hypothesis
# that has ended keeps its score and goes on competing.


# %% tags=["exercise"]
def beam_search(step, end, max_len, k):
    """`step(tokens)` gives {next token: log-probability} -> the best (tokens, log-probability)."""
    raise NotImplementedError


# %% tags=["solution"]
def beam_search(step, end, max_len, k):
    """`step(tokens)` gives {next token: log-probability} -> the best (tokens, log-probability)."""
    kept = [((), 0.0)]
    for _ in range(max_len):
        ended = [(tokens, score) for tokens, score in kept if tokens[-1:] == (end,)]
        longer = [
            ((*tokens, token), score + log_prob)
            for tokens, score in kept
            if tokens[-1:] != (end,)
            for token, log_prob in step(tokens).items()
        ]
        if not longer:
            break
        kept = sorted(ended + longer, key=lambda hypothesis: -hypothesis[1])[:k]
    return kept[0]


# %% tags=["exercise-test"]
table = {
    (): {"eine": 0.6, "die": 0.4},
    ("eine",): {"Katze": 0.5, "Kuh": 0.5},
    ("die",): {"Katze": 1.0},
}


def next_word(tokens):
    return {token: math.log(p) for token, p in table.get(tokens, {"</s>": 1.0}).items()}


for width, expected in ((1, 0.3), (2, 0.4)):
    tokens, score = beam_search(next_word, "</s>", max_len=5, k=width)
    print(f"k = {width}: {' '.join(tokens)}, probability {math.exp(score):.2f}")
    assert abs(math.exp(score) - expected) < 1e-6

# %% [markdown]
# ## Notation
#
# | name | shape | what it is | section |
# | --- | --- | --- | --- |
# | B, S, T | | sentences in a batch, source tokens, target tokens | |
# | `src`, `tgt` | (B, S), (B, T) | token numbers | 5.1 |
# | `src_mask` | (B, 1, S) | `True` where a source token is no padding | 3.2.3 |
# | `tgt_mask` | (B, T, T) | the same for the target, and causal | 5.1 |
# | $Q$, $K$, $V$ | (B, h, T or S, $d_k$) | queries, keys, values | 3.2.1 |
# | attention weights | (B, h, T, S) | a row for each query, in each head | 3.2.2 |
# | $W^Q, W^K, W^V, W^O$ | ($d_{model}$, $d_{model}$) | the four linear maps of multi-head attention | 3.2.2 |
# | memory ($z$) | (B, S, $d_{model}$) | what the encoder gives | 3 |

# %% [markdown]
# ## Where to go next
#
# The package has the same parts; the names are those of "The Annotated Transformer" (Rush, 2018). The site
# (`make site`) has a glossary, and other readers' questions.
#
# ![The map of the series: eighteen notebooks and the order in which to read them](../images/map.svg)
