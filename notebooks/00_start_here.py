# %% [markdown]
# # 00 · Start here: the paper in one sitting
#
# **You follow one sentence through the whole Transformer of "Attention Is All You Need", number by number.
# On the way you write the model in under 200 lines, and your code then translates with trained weights.**
#
# Next: [01_why_attention](01_why_attention.ipynb)
#
# *75 minutes to read, one to run.*
#
# - **Before:** Python, some PyTorch (`nn.Module`), matrix products, gradients; nothing about attention.
# - **After:** you know what each box of the model does and why, and you can write it yourself.
#
# The numbers in the headings are the section numbers of the paper (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)). We open the boxes of the model in the order in which a
# sentence passes through them, so these numbers jump a little. Indented sentences are quotes from the
# paper, without its reference numbers. A number after `≈` may differ on your processor. Folded cells called
# *Check* test what the text claims; you can skip them.
#
# The page has two halves, and you can take a break between them. The first half, up to *It is real*, builds
# the model. The second half trains one, shows where beginners go wrong, and tells you what the paper found.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %% [markdown]
# ## The reward first
#
# This Transformer reads English and writes German. It was trained on 29,000 captions of photographs, and it
# comes with the package.

# %%
from annotated import load_pretrained

translator = load_pretrained("multi30k-en-de")
sentence = "A man throws a ball to a dog."
print(translator(sentence))
print(translator("A cat runs."))

# %% tags=["check"]
assert translator(sentence) == "Ein Mann wirft einem Hund einen Ball."
assert translator("A cat runs.") == "Eine Katze rennt."

# %% [markdown]
# The German is right, and its word order is not the English one: the dog now comes before the ball. How did
# the model know which English word to translate next? Before it wrote a word, it computed how much to look
# at each English word. Here are these numbers.

# %%
import matplotlib.pyplot as plt
import seaborn

from annotated.plots import setup_notebook

setup_notebook()
seen = translator.attention(sentence)
looked = seen.maps["cross", 3].mean(dim=0)  # last layer, mean of its heads: (steps, English tokens)
written = [*seen.tgt_tokens[1:], "</s>"]
steps = [f"{read} → {wrote}" for read, wrote in zip(seen.tgt_tokens, written, strict=True)]
plt.figure(figsize=(9, 4.6))
ax = seaborn.heatmap(looked, annot=True, fmt=".2f", cmap="Blues", cbar=False, xticklabels=seen.src_tokens)
ax.set_yticklabels(steps, rotation=0)
ax.set(xlabel="English", ylabel="German: read → written", title="Where the model looked while writing")
plt.show()

# %% [markdown]
# *Figure 1. Each row is one step of writing. Its label names the German token that the model had just read
# and the token that it then wrote. The numbers say how much attention each English token got, and each row
# adds up to 1. The sign `▁` marks the beginning of a word, `<s>` the start of the sentence, and `</s>` its
# end. The last two columns are equal because the model represents the period and `</s>` by almost the same
# vector.*

# %% tags=["check"]
source_of = {german: seen.src_tokens[row.argmax()] for german, row in zip(written, looked, strict=True)}
assert source_of["▁Hund"] == "▁dog"
assert source_of["▁Ball"] == "▁ball"
assert source_of["▁wirft"] == "▁throws"
assert written.index("▁Hund") < written.index("▁Ball")
assert (looked[:, -2] - looked[:, -1]).abs().max() < 0.01  # the period and </s>

# %% [markdown]
# To write *wirft*, the model looked mostly at *throws*. To write *Hund*, it jumped to *dog*, and to write
# *Ball*, it jumped back to *ball*. Nobody told it which words belong together. This looking is called
# **attention**, and by the end of this page you will have computed it by hand.

# %% [markdown]
# ## Abstract
#
# > "We propose a new simple network architecture, the Transformer, based solely on attention mechanisms,
# > dispensing with recurrence and convolutions entirely."
#
# Attention was known before 2017. What was new is the word *solely*: earlier translation models added
# attention to a recurrent or a convolutional network, and the Transformer has neither.

# %% [markdown]
# ## 1 Introduction
#
# > "This inherently sequential nature precludes parallelization within training examples [...]."
#
# A *recurrent neural network* (RNN) reads a sentence one token at a time. It keeps a vector, the *hidden
# state*, and updates it at every token: $h_t = f(h_{t-1}, x_t)$. This has two costs.
#
# - **Time.** The state $h_{50}$ cannot be computed before $h_{49}$. A GPU could work on all tokens at once,
#   but it has to wait.
# - **Distance.** If word 50 depends on word 1, the information has to survive 49 updates. So does the
#   gradient on its way back.
#
# Translation models of that time had two RNNs: an **encoder** that reads the source sentence, and a
# **decoder** that writes the target sentence. At first, a single vector between them had to hold the whole
# sentence. Bahdanau and colleagues ([2014](https://arxiv.org/abs/1409.0473)) removed this bottleneck. Their
# decoder looks back at all encoder states at every step and takes a weighted mean of them. That was
# attention.
#
# ![An RNN encoder-decoder with one vector between encoder and decoder; the same with attention; a
# Transformer's encoder, without recurrence](../images/before.svg)
#
# *Figure 2. Left: one vector holds the whole sentence. Middle: the decoder looks back at all states. Right:
# in the Transformer's encoder, each position looks at every position directly.*
#
# *More in [01_why_attention](01_why_attention.ipynb): how far a gradient travels through an RNN.*

# %% [markdown]
# ## 2 Background
#
# > "Self-attention, sometimes called intra-attention is an attention mechanism relating different positions
# > of a single sequence in order to compute a representation of the sequence."
#
# In **self-attention**, a sentence looks at itself. In *the cat slept because it was tired*, the vector of
# *it* can take in information from *cat*. No matter how far apart two words are, one layer connects them.

# %% [markdown]
# ## 3 Model Architecture
#
# ![The Transformer: encoder on the left, decoder on the right](../images/architecture.svg)
#
# *Figure 3. The paper's Figure 1, redrawn. Read it from top to bottom.*
#
# In words: a sentence is a list of **tokens**. A token is a word or a piece of a word, and each token has a
# number. Each token becomes a vector of $d_{model} = 512$ numbers, and a second vector, which stands for
# its position, is added to it. The **encoder** lets these vectors look at each other, layer after layer,
# six times. It outputs one vector per source token, and this vector now contains information from the rest
# of the sentence. The paper calls these vectors $z$; our code, like PyTorch's, calls them the **memory**.
#
# The **decoder** reads the German words written so far. From them and from the memory, it computes a
# probability for every token of the vocabulary. One token is chosen, and the decoder runs again with that
# token added:
#
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional
# > input when generating the next."
#
# And here is the whole model as code, before any of its parts. Read it like a table of contents: every name
# that you do not know yet is a box that we open below.
#
# Comments in the code give shapes. B is the number of sentences in a batch, S the number of source tokens,
# and T the number of target tokens. Inside an attention function, T is the number of positions that look,
# and S is the number of positions that are looked at.

# %%
import math

import torch
from torch import nn


class Transformer(nn.Module):
    """The paper's Figure 1, with one vocabulary for both languages."""

    def __init__(self, vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
        super().__init__()
        self.src_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.encoder = Encoder(N, d_model, d_ff, h, dropout)
        self.decoder = Decoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)
        self.tgt_embed[0].lut.weight = self.generator.proj.weight = self.src_embed[0].lut.weight  # 3.4
        self.apply(initialize)
        nn.init.normal_(self.src_embed[0].lut.weight, std=d_model**-0.5)

    def encode(self, src, src_mask):  # tokens (B, S) -> memory (B, S, d_model)
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):  # tokens (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


# %% [markdown]
# ### A model small enough to print
#
# The paper's model has vectors of 512 numbers, too many to read. So we train a tiny model with vectors of
# **four** numbers, two attention heads and one layer on each side. It learns eight sentences. They are
# short, but they need attention: the English *a* becomes *ein* before *Hund* and *eine* before *Katze*.

# %%
articles = {("a", "dog"): "ein", ("a", "cat"): "eine", ("the", "dog"): "der", ("the", "cat"): "die"}
german = {"dog": "Hund", "cat": "Katze", "runs": "rennt", "sleeps": "schläft"}
pairs = [
    ([article, noun, verb], [gender, german[noun], german[verb]])
    for (article, noun), gender in articles.items()
    for verb in ("runs", "sleeps")
]
vocab = ["<s>", "</s>", *sorted({word for pair in pairs for side in pair for word in side})]
number = {word: i for i, word in enumerate(vocab)}
english = torch.tensor([[number[w] for w in source] for source, _ in pairs])  # (8, 3)
read = torch.tensor([[number[w] for w in ["<s>", *target]] for _, target in pairs])  # (8, 4)
write = torch.tensor([[number[w] for w in [*target, "</s>"]] for _, target in pairs])  # (8, 4)
for source, target in pairs[::3]:
    print(" ".join(source), "→", " ".join(target))
print(len(vocab), "tokens:", *vocab)

# %% [markdown]
# The next cell trains the tiny model with the package, because we have not written our own yet. You can
# skip this code for now: it is a training loop, and section 5 explains what such a loop does. At the end it
# rounds all weights to one decimal, so that you can check what follows with a pocket calculator.

# %%
from annotated import make_model

_ = torch.manual_seed(4)  # chosen among forty seeds, because its attention is easy to read
tiny = make_model(16, 16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0, tied_embeddings="all").double()
matrices = [weights for weights in tiny.parameters() if weights.dim() > 1]  # the biases stay 0
for weights in matrices:
    weights.data = weights.data.round(decimals=3)  # the same start on every processor
adam = torch.optim.Adam(matrices, lr=0.03)
for _ in range(200):
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())
    loss = -tiny.generator(states).gather(-1, write.unsqueeze(-1)).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
for weights in matrices:
    weights.data = weights.data.round(decimals=1)
print(f"{sum(weights.numel() for weights in matrices)} weights, loss {loss.item():.2f}")

# %% tags=["check"]
with torch.no_grad():
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())
    assert (tiny.generator(states).argmax(dim=-1) == write).all()

# %% [markdown]
# The sentence that we follow is ***a cat runs***. One helper prints a matrix with a name for each row:

# %%
cat_runs, words = english[2], ["a", "cat", "runs"]


def show(title, matrix, rows=words, columns=()):
    """Print a matrix to two decimals."""
    print(title)
    if columns:
        print(" " * 10 + "".join(f"{column:>8}" for column in columns))
    for row, values in zip(rows, matrix.tolist(), strict=True):
        print(f"  {row:8}" + "".join(f"{value:8.2f}" for value in values))


print(words, "→", cat_runs.tolist())

# %% [markdown]
# ### 3.4 Embeddings
#
# > "Similarly to other sequence transduction models, we use learned embeddings to convert the input tokens
# > and output tokens to vectors of dimension dmodel. [...] In the embedding layers, we multiply those
# > weights by √dmodel."
#
# A network should not compute with token numbers. The number of *cat* is 5 and that of *a* is 4, but a cat
# is not "a little more" than an *a*. So each token gets a row of a table, its **embedding**, and training
# fills the table. This box looks up a row and multiplies it by $\sqrt{d_{model}}$, and that is all. In our
# model the factor is $\sqrt 4 = 2$.


# %%
class Embeddings(nn.Module):
    """A vector for each token, times the square root of d_model."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)  # the look-up table
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):  # (B, T) -> (B, T, d_model)
        return self.lut(tokens) * self.scale


# %%
table = tiny.src_embed[0].lut.weight.detach()  # (16, 4)
embedded = table[cat_runs] * 2
show("rows of the table", table[cat_runs])
show("times 2", embedded)

# %% tags=["check"]
assert torch.allclose(embedded, tiny.src_embed[0](cat_runs))

# %% [markdown]
# Why the factor? The paper gives no reason; here is ours. The same table is used again at the very end, to
# turn vectors into scores for words. There, its entries must be small, or the untrained model would be sure
# of random words (trap 4, below). Here, they must be larger, or the positions that we add next would drown
# out the words.

# %% [markdown]
# ### 3.5 Positional Encoding
#
# > "[...] in order for the model to make use of the order of the sequence, we must inject some information
# > about the relative or absolute position of the tokens in the sequence."
#
# Attention, as you will see, is a weighted mean, and a mean does not depend on the order of its terms.
# Without more information, *dog bites man* and *man bites dog* would look the same to the encoder. So the
# model adds to each embedding a vector that depends on the position alone:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Think of each pair of entries as the hand of a clock. The first clock turns by one radian per position.
# Each following clock is slower, and the last one hardly moves in a thousand positions. Together they tell
# the time, and the time is the position. With $d_{model} = 4$ there are two clocks. At position $pos$,
# their angles are $pos$ and $pos / 100$.


# %%
def sinusoids(length, d_model):
    """The positional encodings, (length, d_model)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # sine, cosine, sine, ...


class PositionalEncoding(nn.Module):
    """Add the position's vector, then dropout (dropout comes in section 5.4)."""

    def __init__(self, d_model, dropout, max_len=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", sinusoids(max_len, d_model), persistent=False)

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_model)
        return self.dropout(x + self.pe[: x.size(1)])


# %%
positions = sinusoids(3, 4)
x = embedded + positions
show("positions", positions, rows=["0", "1", "2"])
show("x, what enters the encoder", x)

# %% tags=["check"]
assert torch.allclose(x, tiny.src_embed(english[2:3])[0])
assert torch.allclose(positions[1, :2], torch.tensor([math.sin(1), math.cos(1)]))

# %% [markdown]
# Check one number: *cat* stands at position 1, and $\sin(1) = 0.84$. Its embedding had 0.00 in the first
# place, so `x` has 0.84 there.
#
# Why clocks, and not simply the numbers 0, 1, 2? The authors give this reason:
#
# > "We chose this function because we hypothesized it would allow the model to easily learn to attend by
# > relative positions, since for any fixed offset k, PEpos+k can be represented as a linear function of
# > PEpos."
#
# Move by $k$ positions, and every clock turns by a fixed angle, no matter where it started. So one matrix
# turns all clocks back by $k$, and it is the same matrix at every position. A model that learns this matrix
# can ask "who stands $k$ places before me?". The figure shows another consequence: how similar two
# positions are depends only on how far apart they are.

# %%
pe = sinusoids(100, 64)
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2))
for entry in (0, 8, 16, 24):
    left.plot(pe[:, entry], ".-", linewidth=1, markersize=4, label=f"entry {entry}")
left.set(xlabel="position", ylabel="value", title="Four entries of the encoding")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=4, fontsize=10)
similarity = pe @ pe.T  # (100, 100)
right.plot(range(-50, 50), similarity[50], label="from position 50")
right.plot(range(-20, 80), similarity[20], "--", label="from position 20")
right.set(xlabel="offset", ylabel="dot product", title="Similarity depends on the offset")
right.legend()
plt.show()

# %% [markdown]
# *Figure 4. Left: fast and slow entries of the encoding, one dot per position. Right: the dot product of two
# positions. Seen from position 20 or from position 50, the curve is the same.*

# %% tags=["check"]
assert torch.allclose(similarity[50, 30:100], similarity[20, 0:70], atol=1e-3)
clocks = sinusoids(100, 16).double()
three_back = torch.linalg.lstsq(clocks[3:], clocks[:-3]).solution  # one matrix for all positions
assert (clocks[3:] @ three_back - clocks[:-3]).abs().max() < 1e-3

# %% [markdown]
# *More in [05_positional_encoding](05_positional_encoding.ipynb): a head that looks one token back, and what
# happens beyond the longest training sentence.*

# %% [markdown]
# ### 3.2 Attention
#
# > "An attention function can be described as mapping a query and a set of key-value pairs to an output
# > [...]. The output is computed as a weighted sum of the values, where the weight assigned to each value
# > is computed by a compatibility function of the query with the corresponding key."
#
# You know a mapping from keys to values: a Python dictionary. You look something up with a *query*. The
# dictionary finds the *key* that equals the query and returns that key's *value*. Attention is a soft
# dictionary. It returns a mixture of **all** values, and a value counts more when its key fits the query
# better. A mixture has a gradient, so the network can learn what to ask for.
#
# Where do queries, keys and values come from? From the same vectors $x$, by three learned matrices:
#
# - the **query** of *cat* says what *cat* is looking for;
# - the **key** of *cat* says what *cat* offers to the words that look at it;
# - the **value** of *cat* is what *cat* hands over to them.

# %% [markdown]
# #### 3.2.1 Scaled Dot-Product Attention
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# Let us compute this formula from the inside out, for the first of our model's two heads. Section 3.2.2
# explains heads. For now it is enough to know that this head uses the first two columns of each matrix, so
# its queries and keys are $d_k = 2$ numbers wide. The code transposes the matrices with `.T` because
# `nn.Linear` stores them the other way around.

# %%
w_q, w_k, w_v, w_o = (linear.weight.T.detach() for linear in tiny.encoder.layers[0].self_attn.linears)
q, k, v = x @ w_q[:, :2], x @ w_k[:, :2], x @ w_v[:, :2]  # each (3, 4) @ (4, 2) -> (3, 2)
show("W^Q, the columns of head 1", w_q[:, :2], rows=["", "", "", ""])
show("queries", q)
show("keys", k)
show("values", v)

# %% [markdown]
# The **score** of a query and a key is their dot product. It is large when the two vectors are long and point
# the same way. The product $Q K^T$ computes all nine scores at once: a row for each query, a column for each
# key. Then we divide by $\sqrt{d_k} = \sqrt 2$.

# %%
scores = q @ k.T  # (3, 2) @ (2, 3) -> (3, 3)
scaled = scores / math.sqrt(2)
show("scores", scores, columns=words)
show("divided by the square root of 2", scaled, columns=words)

# %% [markdown]
# The **softmax** turns each row into weights that are positive and add up to 1:
# $\exp(s_j) / \sum_i \exp(s_i)$. Then each word takes the values of all words, mixed with its weights.

# %%
weights = scaled.softmax(dim=-1)
head_1 = weights @ v  # (3, 3) @ (3, 2) -> (3, 2)
show("weights: who looks at whom", weights, columns=words)
show("output of head 1", head_1)

# %% tags=["check"]
assert torch.allclose(scores[1, 0], q[1, 0] * k[0, 0] + q[1, 1] * k[0, 1])
by_hand = torch.tensor([math.exp(s) for s in scaled[1].tolist()]).double()
assert torch.allclose(weights[1], by_hand / by_hand.sum())
assert torch.allclose(head_1[1], sum(w * row for w, row in zip(weights[1], v, strict=True)))
assert torch.allclose(weights.sum(dim=-1), torch.ones(3).double())
assert [f"{w:.2f}" for w in weights[1]] == ["0.40", "0.30", "0.30"]

# %% [markdown]
# Check the row of *cat* by hand. Its weights are 0.40, 0.30 and 0.30, so the first number of its output is
# $0.40 \cdot 0.88 + 0.30 \cdot (-1.04) + 0.30 \cdot (-0.43) = -0.09$. In this head, *cat* looks about
# equally at everything. The word *a* has a clearer preference: it gives itself a weight of 0.64.
#
# In code, this is a short function. It takes one more argument, the **mask**, which is `False` for every
# position that must not be looked at. The scores of these positions become the lowest number there is, so
# the softmax gives them the weight 0. The second `if` handles a special case. When a row hides every
# position, the softmax alone would give equal weights. The function then sets all of them to 0.


# %%
def attention(query, key, value, mask=None):
    """Equation 1: (..., T, d_k), (..., S, d_k), (..., S, d_v) -> (..., T, d_v), and the weights."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:  # True: may be looked at
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (..., T, S), each row adds up to 1
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


# %% [markdown]
# Here we hide *runs*, as if it were filler at the end of the sentence:

# %%
output, masked_weights = attention(q, k, v, mask=torch.tensor([True, True, False]))
show("weights with runs hidden", masked_weights, columns=words)

# %% tags=["check"]
assert torch.equal(attention(q, k, v)[0], head_1)
assert (masked_weights[:, 2] == 0).all()
assert torch.allclose(masked_weights.sum(dim=-1), torch.ones(3).double())
assert attention(q, k, v, torch.tensor([False, False, False]))[0].abs().max() == 0

# %% [markdown]
# ![Scaled dot-product attention, matrix by matrix](../images/attention.svg)
#
# *Figure 5. The same steps as a drawing (the paper's Figure 2, left). The mask hides the crossed-out
# cells.*
#
# **To keep:** a score says how well a key fits a query, the softmax turns the scores into weights, and the
# output is the weighted mean of the values.

# %% [markdown]
# #### Why divide by √d_k?
#
# Our heads are 2 numbers wide, and the scores were small. The paper's heads are 64 wide, so a score is a sum
# of 64 products instead of 2.
#
# **Before you run this:** the entries of `query` and `key` are random, with variance 1. How large is a
# typical score for 64 numbers, if it is about 1.4 for 2?

# %%
_ = torch.manual_seed(0)
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    print(
        f"d_k = {d_k:3}: typical score ≈{typical:.1f}, divided by the root of d_k ≈{typical / d_k**0.5:.1f}"
    )

# %% tags=["check"]
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    assert abs(typical / d_k**0.5 - 1) < 0.05

# %% [markdown]
# A typical score grows like $\sqrt{d_k}$: it is about 8 for 64 numbers. Why is that bad? With scores
# of that size, the softmax picks one:

# %%
for scores_of_one_row in ([0.5, -1.0, 1.0], [4.0, -8.0, 8.0]):
    row = torch.tensor(scores_of_one_row, requires_grad=True)
    row.softmax(dim=-1)[2].backward()
    shown = [f"{w:.3f}" for w in row.softmax(dim=-1).tolist()]
    print(f"scores {scores_of_one_row}: weights {shown}, slope of the last {row.grad[2]:.3f}")

# %% tags=["check"]
assert row.grad[2] < 0.02
assert row.softmax(dim=-1)[2] > 0.98

# %% [markdown]
# With the large scores, one weight is nearly 1, and it hardly moves when its score changes. This state is
# called *saturated*. A weight that hardly moves passes on hardly any gradient, and without a gradient the
# model cannot learn where to look.
#
# > "We suspect that for large values of dk, the dot products grow large in magnitude, pushing the softmax
# > function into regions where it has extremely small gradients. To counteract this effect, we scale the dot
# > products by 1/√dk."
#
# Dividing by $\sqrt{d_k}$ brings the scores back to about 1, whatever the width of the head.
#
# **To keep:** wide heads make large scores, large scores make the softmax pick one too early, and dividing by
# $\sqrt{d_k}$ undoes it.
#
# *Does it still matter later in training? Yes: without the division, a small model needs more than twice as
# many updates. We measured it in
# [Does dividing by √d_k still matter after the first updates?](evidence/does_the_division_matter.ipynb) More
# about masks and scores in [02_attention](02_attention.ipynb).*

# %% [markdown]
# #### 3.2.2 Multi-Head Attention
#
# > "Multi-head attention allows the model to jointly attend to information from different representation
# > subspaces at different positions. With a single attention head, averaging inhibits this."
#
# One attention gives each word *one* set of weights. But a verb may need both its subject and its object,
# for different reasons, and one mixture would blur them. So the model runs several attentions side by side,
# called **heads**. Each head has its own queries, keys and values, and they are narrower: the paper uses
# $h = 8$ heads of $d_k = d_{model} / h = 64$ numbers. A last matrix, $W^O$, mixes what the heads have found.
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, \dots, head_h)\, W^O$$
# $$head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# ![Multi-head attention with its four linear maps](../images/multi_head_attention.svg)
#
# *Figure 6. The paper's Figure 2, right.*
#
# Our model has two heads, and the second one uses the other two columns of each matrix:

# %%
head_2, weights_2 = attention(x @ w_q[:, 2:], x @ w_k[:, 2:], x @ w_v[:, 2:])
both = torch.cat([head_1, head_2], dim=-1)  # (3, 4)
show("weights of head 2", weights_2, columns=words)
show("both heads side by side", both)
show("times W^O", both @ w_o)

# %% [markdown]
# The heads look at different words: *cat* spreads its attention in head 1, and in head 2 it looks mostly at
# *a*. After $W^O$, each word again has four numbers.
#
# **To keep:** each head is a small attention with its own idea of who should look at whom.
#
# In code, the query matrices of all heads stand side by side in one wide matrix, so one product computes
# the queries of all heads. The same goes for keys and values. Then `split` cuts each vector into heads, and
# it moves the dimension of the heads next to the batch. A matrix product in PyTorch works separately for
# each index of the leading dimensions, so the heads do not mix.


# %%
class MultiHeadedAttention(nn.Module):
    """h attentions side by side, between three linear maps and a fourth."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # W^Q, W^K, W^V, W^O

    def split(self, x):  # (B, T, d_model) -> (B, T, h, d_k) -> (B, h, T, d_k)
        return x.view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):  # (B, T, d_model), two (B, S, d_model), (B, 1 or T, S)
        w_q, w_k, w_v, w_o = self.linears
        q, k, v = self.split(w_q(query)), self.split(w_k(key)), self.split(w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)  # the same for every head: (B, 1, 1 or T, S)
        heads, self.weights = attention(q, k, v, mask)  # (B, h, T, d_k), (B, h, T, S)
        joined = heads.transpose(1, 2).flatten(2)  # side by side again: (B, T, d_model)
        return w_o(joined)


# %% [markdown]
# `nn.Linear` also adds a bias, which the paper's formulas do not have. In our tiny model all biases are 0.
# The class takes the tiny model's weights and gives the same twelve numbers:

# %%
attend = MultiHeadedAttention(h=2, d_model=4).double()
print(attend.load_state_dict(tiny.encoder.layers[0].self_attn.state_dict()))
with torch.no_grad():
    attended = attend(x[None], x[None], x[None])[0]  # self-attention: three times the same x
show("multi-head attention", attended)

# %% tags=["check"]
assert torch.allclose(attended, both @ w_o)
assert weights_2[1].argmax() == 0
assert torch.allclose(attend.weights[0, 1], weights_2)

# %% [markdown]
# **Before you run this:** we shuffle the three vectors. What happens to the output?

# %%
order = [2, 0, 1]
with torch.no_grad():
    shuffled = attend(x[order][None], x[order][None], x[order][None])[0]
show("output for the shuffled vectors", shuffled, rows=[words[i] for i in order])

# %% tags=["check"]
assert torch.allclose(shuffled, attended[order])

# %% [markdown]
# The same rows come out, in the shuffled order. Attention does not see the order of the words. Only the
# positions that we added to $x$ carry it. That is why the model needs section 3.5.
#
# *More in [03_multi_head_attention](03_multi_head_attention.ipynb): what two heads can do that one cannot.*

# %% [markdown]
# ### 3.1 Residual connections and layer normalization
#
# > "We employ a residual connection around each of the two sub-layers, followed by layer normalization. That
# > is, the output of each sub-layer is LayerNorm(x + Sublayer(x)) [...]."
#
# The attention's output does not replace $x$: it is **added** to it. This is a *residual connection*. A layer
# only has to learn what to change, and the gradient has a path around every sub-layer.
#
# Sums grow from layer to layer, so *layer normalization* follows each addition. It takes each word's vector
# by itself, subtracts the mean of its entries and divides by their standard deviation. Then it multiplies
# each entry by a learned number and adds another. In our tiny model these numbers are 1 and 0.


# %%
class AddNorm(nn.Module):
    """What stands around each sub-layer: dropout, residual connection, layer normalization."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, output):  # x, and what the sub-layer made of it: both (B, S or T, d_model)
        return self.norm(x + self.dropout(output))


# %%
added = x + attended
normed = (added - added.mean(dim=-1, keepdim=True)) / added.std(dim=-1, keepdim=True, correction=0)
show("x + attention", added)
show("normalized: each row has mean 0 and variance 1", normed)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(AddNorm(4, 0.0).double()(x, attended), normed, atol=1e-4)
assert torch.allclose(normed.mean(dim=-1), torch.zeros(3).double(), atol=1e-9)

# %% [markdown]
# This order, the sum first and then the norm, is called **post-norm**. Most models since GPT-2 are
# **pre-norm**, and so is "The Annotated Transformer": they compute x + Sublayer(LayerNorm(x)). Pre-norm is
# easier to train when there are many layers.
#
# **To keep:** a sub-layer adds to a word's vector instead of replacing it, and the norm keeps the sums from
# growing.
#
# *More in [06_the_full_model](06_the_full_model.ipynb): a translation takes shape layer by layer, and what
# happens without residuals and norms.*

# %% [markdown]
# ### 3.3 Position-wise Feed-Forward Networks
#
# > "[...] each of the layers in our encoder and decoder contains a fully connected feed-forward network,
# > which is applied to each position separately and identically."
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# Attention moves information between words. The feed-forward network then works on each word by itself. It
# makes the vector wider ($d_{ff} = 2048$, four times $d_{model}$), sets all negative numbers to 0, and
# makes the vector narrow again. Setting negative numbers to 0 is called *ReLU*. It lets the network react
# to combinations such as "this feature *and* that one". Without it, $W_1 W_2$ would be one matrix, and the
# two layers would be one.


# %%
class FeedForward(nn.Module):
    """Equation 2, the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_model)
        return self.w_2(self.w_1(x).relu())


# %%
w_1, w_2 = (
    linear.weight.T.detach()
    for linear in (tiny.encoder.layers[0].feed_forward.w_1, tiny.encoder.layers[0].feed_forward.w_2)
)
inner = (normed @ w_1).relu()  # (3, 4) @ (4, 8) -> (3, 8)
show("inside, after the ReLU", inner)
show("output", inner @ w_2)
memory = nn.functional.layer_norm(normed + inner @ w_2, (4,))
show("added and normalized: the memory", memory)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(memory, tiny.encode(english[2:3], None)[0], atol=1e-4)
assert 0 < (inner == 0).sum() < inner.numel()

# %% [markdown]
# About half of the inner numbers are 0. Each of these units is off for that word. In the base model, the
# feed-forward network holds two thirds of an encoder layer's weights: $8\,d_{model}^2$, against
# $4\,d_{model}^2$ in the attention.
#
# *More in [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb). What single units react to:
# [What is a feed-forward layer?](evidence/what_is_a_feed_forward_layer.ipynb)*

# %% [markdown]
# ### 3.1 The encoder
#
# You have now seen every step of an encoder layer. Here is the layer as code, and after it the
# stack of N layers:


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network (Figure 3, left)."""

    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(AddNorm(d_model, dropout) for _ in range(2))

    def forward(self, x, mask):  # (B, S, d_model) -> (B, S, d_model)
        x = self.sublayer[0](x, self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward(x))


class Encoder(nn.Module):
    """N encoder layers, each with weights of its own."""

    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, mask):  # (B, S, d_model) -> the memory (B, S, d_model)
        for layer in self.layers:
            x = layer(x, mask)
        return x


# %% [markdown]
# ### 3.1 The decoder
#
# > "In addition to the two sub-layers in each encoder layer, the decoder inserts a third sub-layer, which
# > performs multi-head attention over the output of the encoder stack."
#
# A decoder layer is made of the same parts, but it has three sub-layers. First, the German words look at
# each other. Then they look at the English ones: the queries come from the German vectors, and the keys and
# values come from the memory. This is called **cross-attention**, and it is what Figure 1 shows. Last comes
# a feed-forward network.


# %%
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward (Figure 3, right)."""

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


# %%
class Decoder(nn.Module):
    """N decoder layers, each with weights of its own."""

    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, memory, src_mask, tgt_mask):  # (B, T, d_model) -> (B, T, d_model)
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return x


# %% [markdown]
# ### 3.2.3 The decoder's mask
#
# In training, we know the whole German sentence, and we want to train all its words at once. So the decoder
# reads `<s> eine Katze rennt`, and at each position it has to predict the next word:
# `eine Katze rennt </s>`. There is a catch. At the position of `eine`, the decoder could look one position
# ahead, find *Katze*, and copy it.
#
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive property."
#
# The **causal mask** prevents this. Each position may look at itself and at what stands before it, never at
# what comes later.
#
# **To keep:** behind the causal mask, all positions can be trained at once, because none of them sees its
# answer.


# %%
def causal_mask(size):
    """bool (1, size, size): row i is True up to column i."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


print(causal_mask(4)[0].int())

# %% [markdown]
# In a decoder, we label each row by the token that is **read** at that position. The row `eine` predicts
# the word after *eine*. The decoder layer computes as the encoder layer did, with other weights, so we print
# only its input and its attention. Here is the self-attention for our sentence:

# %%
german_read = ["<s>", "eine", "Katze", "rennt"]
layer = DecoderLayer(d_model=4, d_ff=8, h=2, dropout=0.0).double()
print(layer.load_state_dict(tiny.decoder.layers[0].state_dict()))
with torch.no_grad():
    y = table[read[2]] * 2 + sinusoids(4, 4)  # <s> eine Katze rennt, embedded, with positions
    states = layer(y[None], memory[None], None, causal_mask(4))[0]  # (4, 4)
show("what enters the decoder", y, german_read)
show("self-attention, head 1", layer.self_attn.weights[0, 0], german_read, columns=german_read)

# %% tags=["check"]
assert (layer.self_attn.weights[0].triu(diagonal=1) == 0).all()
assert layer.self_attn.weights[0, 0].max(dim=-1).values.min() > 0.95  # one token at a time
with torch.no_grad():
    theirs = tiny.decode(tiny.encode(english[2:3], None), None, read[2:3], causal_mask(4))[0]
assert torch.allclose(states, theirs, atol=1e-3)

# %% [markdown]
# The zeros above the diagonal come from the mask. The other zeros do not: in this head, the model looks at
# one token at a time.
#
# **Before you run this:** the row `<s>` has to predict *eine*. Which English words does the decoder need
# for that?

# %%
for head in (0, 1):
    show(
        f"attention to the memory, head {head + 1}",
        layer.src_attn.weights[0, head],
        german_read,
        columns=words,
    )

# %% tags=["check"]
across = layer.src_attn.weights[0]  # (2, 4, 3)
assert across[1, 0, 1] > 0.95
assert across[0, 0, 0] > across[0, 0, 1] > 0.4
assert across[:, 2, 2].min() > 0.8
assert across[:, 1].argmax(dim=-1).tolist() == [1, 1]

# %% [markdown]
# It needs two words. The article depends on *a* (otherwise it would be *die*) and on *cat* (otherwise it
# would be *ein*). And indeed, in the row `<s>`, head 1 divides its attention between *a* and *cat*, and
# head 2 looks at *cat*. In the row `eine`, both heads look mostly at *cat*, to write *Katze*. In the row
# `Katze`, both look at *runs*, to write *rennt*. This is Figure 1 in miniature, and you know every step
# that computes it.
#
# One warning. Weights show where a model looks, not what it uses. *More in
# [13_reading_attention](13_reading_attention.ipynb): how to test a picture of attention.*

# %% [markdown]
# ### 3.4 From a vector to a word
#
# > "We also use the usual learned linear transformation and softmax function to convert the decoder output
# > to predicted next-token probabilities. In our model, we share the same weight matrix between the two
# > embedding layers and the pre-softmax linear transformation [...]."
#
# Each row that leaves the decoder is compared with every row of the embedding table, by a dot product. The
# results are called **logits**, one for each token of the vocabulary, and a softmax makes them
# probabilities. So one table serves three times: for English tokens, for German tokens, and for the output.
# This is **weight tying**.


# %%
class Generator(nn.Module):
    """Logits, then the logarithm of their softmax."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):  # (B, T, d_model) -> log-probabilities (B, T, vocab)
        return self.proj(x).log_softmax(dim=-1)


# %%
logits = states @ table.T  # (4, 4) @ (4, 16) -> (4, 16)
probabilities = logits.softmax(dim=-1)
some = ["ein", "eine", "der", "die", "Katze", "rennt", "</s>"]
show("what leaves the decoder", states, german_read)
show("logits of seven tokens", logits[:, [number[w] for w in some]], german_read, columns=some)
show("probabilities", probabilities[:, [number[w] for w in some]], german_read, columns=some)

# %% tags=["check"]
assert torch.allclose(logits[0, number["eine"]], (states[0] * table[number["eine"]]).sum())
assert probabilities.argmax(dim=-1).tolist() == write[2].tolist()
assert 0.6 < probabilities[0, number["eine"]] < 0.7
assert probabilities[1:].max(dim=-1).values.min() > 0.9

# %% [markdown]
# The model is right at every position. It is least sure of the article, where it gives *eine* about two
# thirds and *ein* one third. Rounding the weights has made the model less sure than it was after training.
#
# **The loss** says how wrong a model is. For one token it is $-\log p$, where $p$ is the probability that
# the model gave to the right token. The loss of a sentence is the mean over its tokens. A model that gives
# every right token the probability 1 has loss 0.

# %%
p = probabilities[range(4), write[2]]
for token, value in zip(["eine", "Katze", "rennt", "</s>"], p.tolist(), strict=True):
    print(f"{token:6} -log {value:.2f} = {-math.log(value):.2f}")
print(f"mean {-p.log().mean():.2f}")

# %% tags=["check"]
assert p.argmin() == 0  # the article
with torch.no_grad():
    of_all = tiny.generator(tiny(english, read, None, causal_mask(4))).gather(-1, write.unsqueeze(-1))
assert -of_all.mean() > loss  # after rounding, and before

# %% [markdown]
# ### The model is complete
#
# Only one name in `Transformer` is still open: `initialize`, which sets the weights before training.
# Matrices get random numbers, of such a size that vectors neither grow nor shrink much on their way through
# (*Xavier* initialization). Biases get 0. The embedding table gets small numbers, for the reason given in
# 3.4. The matrices for queries, keys and values start a little smaller than the others, as they do in
# PyTorch.


# %%
def initialize(module):
    """Set the weights of one part of the model before training."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, MultiHeadedAttention):
        for linear in module.linears[:3]:
            nn.init.xavier_uniform_(linear.weight, gain=2**-0.5)


# %% [markdown]
# Does our model do what we computed by hand? It takes the tiny model's weights, name by name:

# %%
ours = Transformer(vocab=16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0).double()
print(ours.load_state_dict(tiny.state_dict()))
with torch.no_grad():
    log_probs = ours(english[2:3], read[2:3], None, causal_mask(4))[0]  # (4, 16)
show("probabilities", log_probs.exp()[:, [number[w] for w in some]], german_read, columns=some)

# %% tags=["check"]
assert torch.allclose(log_probs.exp(), probabilities, atol=1e-3)
_ = torch.manual_seed(0)
fresh = Transformer(vocab=100, N=1, d_model=64, d_ff=128, h=4)
package = make_model(100, 100, N=1, d_model=64, d_ff=128, h=4, tied_embeddings="all").state_dict()
for name, start in fresh.state_dict().items():
    assert package[name].shape == start.shape
    assert abs(package[name].std() - start.std()) <= 0.1 * start.std() + 1e-6, name

# %% [markdown]
# With the paper's settings and a vocabulary of 37,000 tokens, its size is close to what Table 3 reports:

# %%
for N, reported in ((2, 36), (4, 50), (6, 65), (8, 80)):
    with torch.device("meta"):  # tensors without storage
        count = sum(weights.numel() for weights in Transformer(vocab=37_000, N=N).parameters()) / 1e6
    print(f"{N} layers: {count:.1f} million parameters, in the paper {reported}")

# %% tags=["check"]
for N, reported in ((2, 36), (4, 50), (6, 65), (8, 80)):
    with torch.device("meta"):
        count = sum(weights.numel() for weights in Transformer(vocab=37_000, N=N).parameters()) / 1e6
    assert 1.5 < reported - count < 2.5

# %% [markdown]
# At every depth, the paper reports about 2 million more parameters than our code has. They cannot be in the
# layers, because the difference does not grow with the number of layers. The paper does not say where they
# are.

# %% [markdown]
# ### One word at a time
#
# When the model translates, nobody gives it the German sentence. It writes one word, reads its own word, and
# writes the next.
#
# ![The encoder runs once; the decoder runs at steps 1, 2 and 3, and each token that it writes is fed
# back](../images/decoding.svg)
#
# *Figure 7. Decoding. The encoder runs once. The decoder runs once per word, and each word that it writes is
# read at the next step. All steps look at the same memory.*
#
# Always taking the likeliest token is called **greedy** decoding:


# %%
@torch.no_grad()
def greedy(model, src, src_mask, start, end, max_len, never=()):
    """Translate tokens (B, S) -> (B, up to max_len). Tokens in `never` (start, padding) are not written."""
    memory = model.encode(src, src_mask)  # once
    tgt = torch.full((len(src), 1), start)
    for _ in range(max_len):
        log_probs = model.decode(memory, src_mask, tgt, causal_mask(tgt.size(1)))  # (B, T, vocab)
        last = log_probs[:, -1].index_fill(1, torch.tensor(never, dtype=torch.long), -math.inf)
        tgt = torch.cat([tgt, last.argmax(dim=-1, keepdim=True)], dim=1)  # (B, T + 1)
        if (tgt == end).any(dim=1).all():
            break
    return tgt[:, 1:]


# %%
for sentence_tokens, (source, _) in zip(english, pairs, strict=True):
    [out] = greedy(ours, sentence_tokens[None], None, number["<s>"], number["</s>"], max_len=6)
    print(f"{' '.join(source):18} {' '.join(vocab[token] for token in out)}")

# %% tags=["check"]
out = greedy(ours, english, None, number["<s>"], number["</s>"], max_len=6)
assert torch.equal(out, write)

# %% [markdown]
# All eight are right. Note what `greedy` wastes: at each step the decoder computes all positions, and only
# the last one is used. *More in [11_search_and_averaging](11_search_and_averaging.ipynb): a cache that
# saves this work, and searches that keep more than one candidate.*

# %% [markdown]
# ### It is real
#
# The translator at the top of this page is the same model, only larger: four layers, $d_{model} = 128$, and
# 10,000 subwords. Its weights fit into the classes that you have just read.

# %%
model = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.3)
print(model.load_state_dict(translator.model.state_dict()))
_ = model.eval()  # no dropout

# %% [markdown]
# Fifty sentences go through at once. Sentences differ in length, so the shorter ones are filled up with a
# *padding* token, and the source mask hides it. The argument `never` lists the tokens that must not appear
# in a translation, such as padding.

# %%
tokenizer = translator.src_tokenizer  # text to tokens and back, for both languages


def padded(texts):
    """The tokens of each text and an end, filled up to one length: (texts, tokens)."""
    rows = [torch.tensor([*tokenizer.encode(text), tokenizer.end]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad)


who = ["A man", "A little girl", "A young woman", "A brown dog", "An old lady in a red dress"]
what = ["runs across the grass", "sits on a bench", "plays in the snow", "jumps into the water", "is smiling"]
sentences = [f"{a} {b}{end}" for a in who for b in what for end in (".", " in the rain.")]  # 50
src = padded(sentences)  # (50, S)
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (50, 1, S)

# %%
out = greedy(model, src, src_mask, tokenizer.start, tokenizer.end, 60, never=translator.forbidden)
translations = [tokenizer.decode(row[: row.index(tokenizer.end)]) for row in out.tolist()]
for text, translation in list(zip(sentences, translations, strict=True))[::11]:
    print(f"{text:45} {translation}")
packages = translator.translate(sentences, beam=1)
equal = sum(a == b for a, b in zip(translations, packages, strict=True))
print(f"equal to the package's greedy translations: {equal} of {len(sentences)}")

# %% tags=["check"]
assert equal == len(sentences) == 50

# %% [markdown]
# You now have a working translator, and you have read every line of it. The rest of the page trains such a
# model, shows five traps, and goes through the paper's results.

# %% [markdown]
# ## 4 Why Self-Attention
#
# > "One is the total computational complexity per layer. Another is the amount of computation that can be
# > parallelized [...]. The third is the path length between long-range dependencies in the network."
#
# | layer | work | steps that must wait for each other | longest path between two words |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional, kernel width $k$ | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$ |
#
# *This is the paper's Table 1 without its last row, for $n$ tokens of width $d$. The convolution's path
# assumes dilated kernels.*
#
# The last two columns are the two costs of section 1, time and distance. In training, self-attention avoids
# both. Its own price is in the first column: $n^2$, because every word looks at every word. For sentences
# of 25 words this is nothing. For books it is the main problem, and much research since 2017 is about it.

# %% [markdown]
# ## 5 Training

# %% [markdown]
# ### 5.1 Training Data and Batching
#
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about
# > 37000 tokens. [...] Sentence pairs were batched together by approximate sequence length."
#
# The authors trained on 4.5 million pairs of English and German sentences. *Byte-pair encoding* builds a
# vocabulary of pieces: frequent words stay whole, and rare words are spelled from parts.

# %%
for text in ("A cat runs.", "A snowboarder somersaults."):
    print(tokenizer.pieces(tokenizer.encode(text)))

# %% [markdown]
# What does a training batch look like? You have seen it for one sentence: the decoder reads `<s> eine Katze
# rennt` and predicts `eine Katze rennt </s>`. The target is **shifted by one**. The decoder always reads
# the right words, even where it would have written other words. This is called **teacher forcing**. A
# batch of several sentences also contains padding, so the decoder's mask is the causal mask *and* the
# padding mask:

# %%
src = padded(["A cat runs.", "A cat sleeps on a chair."])  # (2, S)
tgt_y = padded(["Eine Katze rennt.", "Eine Katze schläft auf einem Stuhl."])  # (2, T), to be predicted
tgt = torch.cat([torch.full((2, 1), tokenizer.start), tgt_y[:, :-1]], dim=1)  # (2, T), read
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (2, 1, S)
tgt_mask = (tgt != tokenizer.pad).unsqueeze(1) & causal_mask(tgt.size(1))  # (2, T, T)
print(tgt_mask[0].int())  # the shorter sentence

# %% tags=["check"]
length = (tgt[0] != tokenizer.pad).sum()
assert not tgt_mask[0, :, length:].any()
assert torch.equal(tgt_mask[1], causal_mask(tgt.size(1))[0])

# %% [markdown]
# The columns of zeros on the right are padding.
#
# *More in [07_batches_and_masks](07_batches_and_masks.ipynb): padding in real batches, and a test that
# catches a model that peeks.*

# %% [markdown]
# ### 5.2 Hardware and Schedule
#
# > "We trained our models on one machine with 8 NVIDIA P100 GPUs. [...] We trained the base models for a
# > total of 100,000 steps or 12 hours."
#
# The big model took 3.5 days. *More in [15_going_fast](15_going_fast.ipynb): where the time of a step goes.*

# %% [markdown]
# ### 5.3 Optimizer
#
# The optimizer is Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$ and $\epsilon = 10^{-9}$. Its learning rate
# changes during training:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5}) \qquad (3)$$
#
# > "This corresponds to increasing the learning rate linearly for the first warmup_steps training steps, and
# > decreasing it thereafter proportionally to the inverse square root of the step number."


# %%
def rate(step, d_model, warmup):
    """Equation 3; steps count from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


training_steps = range(1, 20_001)
fig, ax = plt.subplots(figsize=(7, 2.8))
for d_model, name in ((512, "base"), (1024, "big")):
    ax.plot(
        training_steps, [rate(s, d_model, 4000) for s in training_steps], label=f"d_model {d_model} ({name})"
    )
ax.set(xlabel="step", ylabel="learning rate", title="Equation 3, warm-up 4,000")
ax.legend()
plt.show()

# %% [markdown]
# *Figure 8. The rate rises for 4,000 steps and then falls. The wider model gets a lower rate.*

# %% tags=["check"]
assert max(training_steps, key=lambda s: rate(s, 512, 4000)) == 4000
assert all(rate(s, 1024, 4000) < rate(s, 512, 4000) for s in training_steps)

# %% [markdown]
# The slow start is called **warm-up**. Without it, the first updates are too large, and a post-norm model
# may not recover from them. We measured it in [Why warm-up?](evidence/why_warm_up.ipynb)
#
# *More in [08_training_recipe](08_training_recipe.ipynb): each part of the recipe, with its reasons.*

# %% [markdown]
# ### 5.4 Regularization
#
# *Regularization* makes it harder to learn the training data by heart. The paper uses two kinds.
#
# **Dropout.** In training, each number that leaves a sub-layer becomes 0 with probability 0.1, and the
# others are divided by 0.9. The same happens to the sums of embeddings and positions. So no part of the
# network can rely on a single number. When the model translates, dropout is switched off.
#
# **Label smoothing.**
#
# > "During training, we employed label smoothing of value ε_ls = 0.1. This hurts perplexity, as the model
# > learns to be more unsure, but improves accuracy and BLEU score."
#
# The plain loss asks for probability 1 on the right token. The smoothed loss asks for 0.9, and spreads the
# other 0.1 over all other tokens. The *perplexity* in the quote is $\exp$ of the plain loss.


# %%
def smoothed_loss(log_probs, target, smoothing=0.1):
    """(..., vocab) and the right tokens (...) -> a loss per token."""
    right = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (...)
    others = (log_probs.sum(dim=-1) - right) / (log_probs.size(-1) - 1)  # mean over the other tokens
    return -(1 - smoothing) * right - smoothing * others


# %% [markdown]
# **Before you run this:** there are four tokens, and the first is the right one. Which of these two
# predictions has the lower smoothed loss?

# %%
for p in ([0.9997, 0.0001, 0.0001, 0.0001], [0.91, 0.03, 0.03, 0.03]):
    log_p = torch.tensor(p).log()
    print(f"{p}: plain loss {-log_p[0]:.3f}, smoothed loss {smoothed_loss(log_p, torch.tensor(0)):.3f}")

# %% tags=["check"]
sure, unsure = (torch.tensor(p).log() for p in ([0.9997] + 3 * [0.0001], [0.91] + 3 * [0.03]))
assert smoothed_loss(sure, torch.tensor(0)) > smoothed_loss(unsure, torch.tensor(0))
assert -sure[0] < -unsure[0]

# %% [markdown]
# The plain loss prefers the prediction that is nearly certain. The smoothed loss prefers the modest one.
#
# One more thing belongs to the loss: padding must not count. We average over the real tokens only.

# %%
with torch.no_grad():
    per_token = smoothed_loss(model(src, tgt, src_mask, tgt_mask), tgt_y)  # (2, T)
real = tgt_y != tokenizer.pad
print(f"{per_token.numel()} positions, {real.sum()} real tokens, loss ≈{per_token[real].mean():.2f}")

# %% tags=["check"]
assert 0.3 < per_token[real].mean() < 6
with torch.no_grad():
    n, m = (src[0] != tokenizer.pad).sum(), real[0].sum()
    alone = smoothed_loss(model(src[:1, :n], tgt[:1, :m], None, causal_mask(m)), tgt_y[:1, :m])
assert torch.allclose(alone[0], per_token[0, :m], atol=1e-3)  # padding changes nothing

# %% [markdown]
# ### It learns
#
# The smallest test of a new model is the *copy task*: read eight random numbers, and write the same eight.
# We train a new model for 400 updates, with the loss and the schedule from above:


# %%
def train_copier(shift=True, updates=400):
    """A model that copies 8 numbers from 1 to 10, and its losses."""
    _ = torch.manual_seed(1)
    copier = Transformer(vocab=11, N=2, d_model=32, d_ff=64, h=2, dropout=0.0)
    adam = torch.optim.Adam(copier.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, updates + 1):
        digits = torch.randint(1, 11, (64, 8))
        start = torch.zeros(64, 1, dtype=torch.long)  # 0 is the start token
        read = torch.cat([start, digits[:, :-1]], dim=1) if shift else digits
        loss = smoothed_loss(copier(digits, read, None, causal_mask(8)), digits).mean()
        adam.param_groups[0]["lr"] = rate(step, d_model=32, warmup=100)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return copier.eval(), losses


# %%
copier, losses = train_copier()
new = torch.randint(1, 11, (100, 8))
copied = (greedy(copier, new, None, 0, -1, max_len=8) == new).all(dim=1).sum()
print(f"loss ≈{losses[0]:.2f} at first, ≈{losses[-1]:.2f} at the end")
print(f"≈{copied} of 100 new rows copied without an error")

# %% tags=["check"]
assert losses[-1] < 0.75 < 2 < losses[0]
assert copied >= 80

# %% [markdown]
# It copies rows that it has never seen. A smoothed loss cannot reach 0: with 11 tokens, even the best
# possible prediction has a loss of 0.555.
#
# *More in [09_first_example](09_first_example.ipynb): the training loop, line by line.*

# %% [markdown]
# ## Five traps
#
# These five mistakes are easy to make and hard to find, because most of the time nothing raises an error.
#
# **1. `view` without `transpose`.** `split` must turn (B, T, d_model) into (B, h, T, d_k). It is tempting to
# reshape directly to that shape. It runs, and it mixes words. Here are three words with four numbers each:

# %%
numbers = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]])  # a, cat, runs
print("right, head 1:", numbers.view(3, 2, 2).transpose(0, 1)[0].tolist())
print("wrong, head 1:", numbers.view(2, 3, 2)[0].tolist())

# %% tags=["check"]
assert numbers.view(3, 2, 2).transpose(0, 1)[0].tolist() == numbers[:, :2].tolist()
assert numbers.view(2, 3, 2)[0].tolist() == [[10, 11], [12, 13], [20, 21]]

# %% [markdown]
# Head 1 should get the first two numbers of each word. In the wrong version it gets all of *a* and half of
# *cat*, and nothing of *runs*.
#
# **2. The shapes of masks.** The scores are (B, h, T, S). A source mask is (B, 1, S): one row for all
# queries. A target mask is (B, T, T). Both need one more dimension for the heads, `mask.unsqueeze(1)`. If
# you forget it, PyTorch aligns the shapes from the right, and takes the batch dimension for the heads. When
# B happens to equal h, you get no error: in every sentence, the second head hides the padding of the second
# sentence.
#
# **3. The target that is not shifted.** What if the decoder reads exactly what it has to predict?
#
# **Before you run this:** will the loss be higher or lower than before? And how many rows will be copied?

# %%
cheater, cheating_losses = train_copier(shift=False)
copied = (greedy(cheater, new, None, 0, -1, max_len=8) == new).all(dim=1).sum()
print(f"loss ≈{cheating_losses[-1]:.2f} at the end, ≈{copied} of 100 rows copied")

# %% tags=["check"]
assert cheating_losses[-1] < 0.6
assert copied < 5

# %% [markdown]
# The loss is as low as it can be, and the model is useless. It has learned to repeat the token that it is
# reading. So do not trust a low loss alone. Let the model write, too.
#
# **4. Tied embeddings with entries that are too large.** PyTorch fills an embedding table with numbers of
# variance 1. As an output matrix, such a table makes logits of size $\sqrt{d_{model}}$. An untrained model
# should give all 10,000 tokens about the same probability, and its loss should be near $\log 10000 = 9.2$.

# %%
_ = torch.manual_seed(0)
vectors, targets = nn.functional.layer_norm(torch.randn(200, 512), (512,)), torch.randint(10_000, (200,))
for name, size in (("variance 1", 1.0), ("ours, 1 / d_model", 512**-0.5)):
    first = nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    print(f"{name:18} loss before training ≈{first:.0f}")

# %% tags=["check"]
first_losses = [
    nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    for size in (1.0, 512**-0.5)
]
assert first_losses[0] > 50
assert 9 < first_losses[1] < 11

# %% [markdown]
# **5. Forgetting `model.eval()`.** In training mode, dropout stays on. It sets random numbers inside the
# model to 0 while the model translates:

# %%
one = padded(["A man throws a ball to a dog."])
_ = torch.manual_seed(0)
different = {}
for mode in ("train", "eval"):
    _ = getattr(model, mode)()
    outs = [
        greedy(model, one, None, tokenizer.start, tokenizer.end, 20, translator.forbidden) for _ in range(5)
    ]
    different[mode] = {tokenizer.decode(out[0].tolist()) for out in outs}
    print(f"{mode}: ≈{len(different[mode])} different translations in 5 tries")

# %% tags=["check"]
assert len(different["train"]) > 1
assert len(different["eval"]) == 1

# %% [markdown]
# ## From here to GPT
#
# Most language models of today are this model with boxes deleted. They do not translate; they continue a
# text. So there is no source sentence. Delete the encoder, and delete the middle sub-layer of each decoder
# layer, which looked at the memory. What remains is self-attention with a causal mask, and a feed-forward
# network. That is an **encoder layer with a causal mask**, so we have all the parts:


# %%
class GPT(nn.Module):
    """A language model: predict the next token from those before it."""

    def __init__(self, vocab, N, d_model, d_ff, h, dropout=0.1):
        super().__init__()
        self.embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.layers = Encoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)

    def forward(self, tokens):  # (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.layers(self.embed(tokens), causal_mask(tokens.size(1))))


# %% tags=["check"]
with torch.no_grad():
    gpt, tokens = GPT(vocab=20, N=2, d_model=16, d_ff=32, h=2).eval(), torch.arange(6)[None]
    before, after = gpt(tokens), gpt(torch.cat([tokens[:, :-1], torch.tensor([[9]])], dim=1))
assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)  # nobody looks ahead
assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)

# %% [markdown]
# Most GPTs differ from this one in three details. They are pre-norm. They use GELU or a similar function
# instead of ReLU. Newer ones rotate queries and keys by their position instead of adding position vectors.
# *More in [17_since_2017](17_since_2017.ipynb).*

# %% [markdown]
# ## 6 Results

# %% [markdown]
# ### 6.1 Machine Translation
#
# > "[...] the big transformer model (Transformer (big) in Table 2) outperforms the best previously reported
# > models (including ensembles) by more than 2.0 BLEU, establishing a new state-of-the-art BLEU score of
# > 28.4."
#
# **BLEU** is a score from 0 to 100. It counts how many words of a translation, and how many of its
# sequences of two to four words, also occur in a human translation. It penalizes translations that are too
# short.
#
# | Table 2 | English-German | English-French |
# | --- | --- | --- |
# | best single model before (MoE) | 26.03 | 40.56 |
# | best ensemble before (ConvS2S) | 26.36 | 41.29 |
# | Transformer (base) | 27.3 | 38.1 |
# | Transformer (big) | 28.4 | 41.8 (in section 6.1: 41.0) |
#
# The base model also needed far less computation than the systems before it: by the paper's estimate, less
# than a sixth of what the best single model needed. The results use two more techniques. The weights are
# the mean of several copies from the end of training, and the search keeps four candidates instead of one
# (**beam search**).
#
# *More in [11_search_and_averaging](11_search_and_averaging.ipynb), [10_translation](10_translation.ipynb)
# and [12_results](12_results.ipynb).*

# %% [markdown]
# ### 6.2 Model Variations
#
# > "While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too many
# > heads."
#
# Table 3 changes one thing at a time. The base model has 25.8 BLEU on the development set. With one head
# instead of eight, it has 24.9. With two layers instead of six, it has 23.7, and without dropout 24.6.
# Learned positions instead of the clocks give 25.7, which is hardly a difference. The big model has 26.4.
#
# *More in [12_results](12_results.ipynb): the same table on our scale.*

# %% [markdown]
# ### 6.3 English Constituency Parsing
#
# > "... despite the lack of task-specific tuning our model performs surprisingly well ..."
#
# A parse tree, written as brackets, is just another target language. A four-layer Transformer trained on
# 40,000 sentences reaches 91.3 F1 and beats most parsers that were trained on the same data.
#
# *More in [16_another_task](16_another_task.ipynb).*

# %% [markdown]
# ## 7 Conclusion
#
# > "We are excited about the future of attention-based models and plan to apply them to other tasks."
#
# They did, and so did everyone else.

# %% [markdown]
# ## What you can now say
#
# - Attention compares queries with keys, turns the scores into weights with a softmax, and mixes the values
#   with these weights. Several heads do this side by side.
# - A Transformer layer lets words look at each other and then works on each word alone. It adds each result
#   to the word's vector and normalizes the sum. The encoder runs once; the decoder reads its own words and
#   looks at the memory.
# - In training, the decoder reads the right words, shifted by one and behind a causal mask, so all
#   positions are trained in one pass.
#
# **Deeper:** [Does dividing by √d_k still matter after the first
# updates?](evidence/does_the_division_matter.ipynb), [Why warm-up?](evidence/why_warm_up.ipynb)
#
# **Next:** [01_why_attention](01_why_attention.ipynb), then [02_attention](02_attention.ipynb) and
# [03_multi_head_attention](03_multi_head_attention.ipynb), which take the attention apart. The names in the
# package are those of "The Annotated Transformer" (Rush, 2018).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Build a second model, `blind`, with the weights of `model`, and set the positions
# of its encoder, `blind.src_embed[1].pe`, to zero. Predict first: what will it make of "A man looks at a
# dog." and "A dog looks at a man."? Then try it.

# %% tags=["solution"]
blind = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.0).eval()
_ = blind.load_state_dict(model.state_dict())
_ = blind.src_embed[1].pe.zero_()
two = padded(["A man looks at a dog.", "A dog looks at a man."])
out = greedy(blind, two, None, tokenizer.start, tokenizer.end, 30, never=translator.forbidden)
for row in out.tolist():
    print(tokenizer.decode(row[: row.index(tokenizer.end)]))
assert torch.equal(out[0], out[1])  # the same vectors in another order give the same translation

# %% [markdown]
# **Exercise 2 (medium).** Write multi-head attention yourself. Keep the name `linears` for the four maps.
# Masks are `True` where a position may be looked at. The report says which laws of multi-head attention
# your class keeps. Where it breaks one, the report names the likely mistake.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    """h attentions: (B, T, d_model), twice (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        raise NotImplementedError


# %% tags=["solution"]
class MyAttention(nn.Module):
    """h attentions: (B, T, d_model), twice (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            linear(x).view(x.size(0), x.size(1), self.h, -1).transpose(1, 2)
            for linear, x in zip(self.linears[:3], (query, key, value), strict=True)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        return self.linears[3]((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


# %% tags=["exercise-test"]
from annotated import check

report = check.multi_head_attention(MyAttention)
assert report.passed, report
report

# %% [markdown]
# **Exercise 3 (medium).** Write the greedy loop without looking. The function `next_log_probs(tokens)`
# stands for the model. It takes the list of tokens written so far, and it returns a dictionary from each
# possible next token to its log-probability. Stop at `end` or after `max_len` tokens.


# %% tags=["exercise"]
def write_greedily(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    raise NotImplementedError


# %% tags=["solution"]
def write_greedily(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    tokens = []
    while len(tokens) < max_len:
        log_probs = next_log_probs(tokens)
        likeliest = max(log_probs, key=log_probs.get)
        if likeliest == end:
            break
        tokens.append(likeliest)
    return tokens


# %% tags=["exercise-test"]
continuations = {(): ["eine", "die"], ("eine",): ["Katze", "Kuh"], ("eine", "Katze"): ["rennt", "</s>"]}


def toy(tokens):
    first, second = continuations.get(tuple(tokens), ["</s>", "rennt"])
    return {second: math.log(0.4), first: math.log(0.6)}


print(write_greedily(toy, "</s>", max_len=10), write_greedily(toy, "</s>", max_len=2))
assert write_greedily(toy, "</s>", max_len=10) == ["eine", "Katze", "rennt"]
assert write_greedily(toy, "</s>", max_len=2) == ["eine", "Katze"]

# %% [markdown]
# **The long exercise: build the whole model.** Close this page and write the Transformer into an empty
# file, `model.py`, with the names that you have seen here. Then hold it to the laws that every Transformer
# keeps, such as no peeking at the future, and padding that changes nothing. In a terminal:
#
# ```
# annotated check model.py
# ```
#
# For each law that your file breaks, the command prints an example with its numbers, and the likely mistake.
# A law about a part that your file does not have, such as beam search, does not apply. When no law fails, let
# your own classes translate with the trained weights:
#
# ```
# annotated check model.py --translate "A dog runs across the grass."
# ```
#
# If you prefer not to start from nothing, `annotated build mine` writes `mine/transformer.py`. Every part has
# its name and its shapes there, and you fill in the code. With `--hints 1`, `2` or `3`, the check also gives
# hints: what to think of, the shapes, or the lines themselves.
#
# ## Notation
#
# | name | shape | what it is | section |
# | --- | --- | --- | --- |
# | B, S, T | | sentences in a batch, source tokens, target tokens | |
# | `src`, `tgt` | (B, S), (B, T) | token numbers | 5.1 |
# | `src_mask` | (B, 1, S) | `True` where a source token is not padding | 3.2.1 |
# | `tgt_mask` | (B, T, T) | the same for the target, and causal | 5.1 |
# | $Q$, $K$, $V$ | (B, h, T or S, $d_k$) | queries, keys, values | 3.2.1 |
# | attention weights | (B, h, T, S) | a row for each query, in each head | 3.2.2 |
# | $W^Q, W^K, W^V, W^O$ | ($d_{model}$, $d_{model}$) | the four linear maps of multi-head attention | 3.2.2 |
# | memory ($z$) | (B, S, $d_{model}$) | what the encoder outputs | 3 |
