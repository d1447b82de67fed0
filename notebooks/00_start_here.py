# %% [markdown]
# # 00 · Start here: the paper in two sittings
#
# **You follow one sentence through the whole Transformer of "Attention Is All You Need", number by number.
# You read the complete model in fewer than 200 lines of code, and you see it translate with trained
# weights.**
#
# Next: [01_why_attention](01_why_attention.ipynb)
#
# *100 minutes to read, 1 minute to run.*
#
# - **Before:** Python, some PyTorch (`nn.Module`), matrix products, gradients; nothing about attention.
# - **After:** you know what each box of the model does and why, and you are ready to build it.
#
# The numbers in the headings are the section numbers of the paper (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)). Their order is not the paper's, because we follow the
# sentence through the model. Indented sentences are quoted from the paper. A number after `≈` may differ
# on your computer. You can skip the folded cells: the *scaffolding* prepares data and draws pictures, and the
# *checks* test what the text claims.
#
# Take two sittings. The first one, an hour and twenty minutes, ends with the section *It is real*: by then
# the model is built, and it translates. The second one, twenty minutes, is about training, about mistakes
# that are easy to make, and about what came after.
#
# **Do you have only half an hour?** Read the five sections marked with ▸: *The reward first*; *A model small
# enough to print*, with its computation in 26 steps; *One word first*; *Attention*; and *One query, three
# keys*.

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
# ## ▸ The reward first
#
# This Transformer reads English and writes German. It was trained on 29,000 captions of photographs and their
# German translations, and it comes with `annotated`, the package of this series.

# %%
from annotated import load_pretrained

translator = load_pretrained("multi30k-en-de")
sentence = "A man throws a ball to a dog"
print(translator(sentence))
print(translator("A cat runs"))

# %% tags=["check"]
assert translator(sentence) == "Ein Mann wirft einem Hund einen Ball."
assert translator("A cat runs") == "Eine Katze rennt."

# %% [markdown]
# The German is right, and its word order differs from the English: the dog now comes before the ball. (It
# ends with a period, because nearly all captions do.) How did the model know which English word to translate
# next? Before writing each word, it computed how much to look at each English word:

# %% tags=["scaffold"]
import matplotlib.pyplot as plt
import seaborn

from annotated.plots import setup_notebook

setup_notebook()
seen = translator.attention(sentence)
looked = seen.maps["cross", 3].mean(dim=0)  # last layer, mean of its heads: (steps, English tokens)
written = [*seen.tgt_tokens[1:], "</s>"]
steps = [f"{read} → {wrote}".replace("▁", "") for read, wrote in zip(seen.tgt_tokens, written, strict=True)]
plt.figure(figsize=(9, 4.6))
ax = seaborn.heatmap(looked, annot=True, fmt=".2f", cmap="Blues", cbar=False)
ax.set_xticklabels([token.replace("▁", "") for token in seen.src_tokens])
ax.set_yticklabels(steps, rotation=0)
ax.set(xlabel="English", ylabel="German: read → wrote", title="Where the model looked while writing")
plt.show()

# %% [markdown]
# *Figure 1. Each row is one step of writing. Its label names the German token that the model had just read
# and the token that it then wrote. The numbers say how much attention each English token got, as the mean of
# the four heads of the last layer, and each row adds up to 1. The symbol `<s>` marks the start of a sentence,
# and `</s>` marks its end; in the drawings, they appear as start and end.*

# %% tags=["check"]
source_of = {german: seen.src_tokens[row.argmax()] for german, row in zip(written, looked, strict=True)}
assert source_of["▁Hund"] == "▁dog"
assert source_of["▁Ball"] == "▁ball"
assert source_of["▁wirft"] == "▁throws"
of_ball, of_dog = (round(looked[written.index("▁einem"), column].item(), 2) for column in (3, 6))
assert [seen.src_tokens[column] for column in (3, 6)] == ["▁a", "▁a"]
assert (of_ball, of_dog) == (0.25, 0.16)
assert written.index("▁Hund") < written.index("▁Ball")

# %% [markdown]
# To write *wirft*, the model looked mostly at *throws*. To write *Hund*, it jumped to *dog*, and to write
# *Ball*, it jumped back to *ball*. Nobody told it which words belong together. Not every row is as clear: to
# write *einem*, which stands for the *a* before *dog*, the model looked more at the *a* before *ball* (0.25
# against 0.16). And since each row must add up to 1, some of the attention lands on tokens that say little,
# such as *to* and `</s>`. This way of looking is called **attention**, and soon you will compute it by hand.

# %% [markdown]
# ## Abstract, 1 Introduction and 2 Background
#
# > "We propose a new simple network architecture, the Transformer, based solely on attention mechanisms,
# > dispensing with recurrence and convolutions entirely."
#
# Before 2017, most neural translation models were built from *recurrent neural networks* (RNNs). An RNN reads
# a sentence one token at a time and keeps what it has read in one vector, the *hidden state*. Reading one
# token after another has two costs.
#
# - **Time.** The state after 50 words depends on the state after 49, so a GPU that could work on all words at
#   once has to wait.
# - **Distance.** If word 50 depends on word 1, the information has to survive 49 steps of the network, and so
#   does the gradient on its way back.
#
# A translation model had two RNNs: an **encoder** that reads the source sentence, and a **decoder** that
# writes the target sentence. At first, a single vector between them had to hold the whole sentence. Bahdanau
# and colleagues ([2014](https://arxiv.org/abs/1409.0473)) let the decoder look back at all encoder states and
# take a weighted mean of them. This is attention. The Transformer keeps it and drops the RNNs.
#
# ![An RNN encoder-decoder with one vector between encoder and decoder; the same with attention; a
# Transformer's encoder, without recurrence](../images/before.svg)
#
# *Figure 2. Left: one vector holds the whole sentence. Middle: the decoder looks back at all states. Right:
# each position looks at every position directly.*
#
# The right-hand picture is **self-attention**: the sentence looks at itself. In *the cat slept because it was
# tired*, the vector of *it* can take in information from *cat*, however far apart the two are.
#
# *More in [01_why_attention](01_why_attention.ipynb).*

# %% [markdown]
# ## 3 Model Architecture
#
# ![The Transformer: encoder on the left, decoder on the right](../images/architecture.svg)
#
# *Figure 3. The paper's Figure 1, redrawn, to be read from top to bottom. The gray line, the stream, is the
# word's vector on its way through the model.*
#
# A sentence is a list of **tokens**. A token is a word or a piece of a word, and each token has an integer
# ID. Each token becomes a vector of $d_{model} = 512$ numbers, and a second vector, which encodes the token's
# position, is added to it. The **encoder** lets these vectors look at each other, layer after layer, six
# times. It outputs one vector per source token, and this vector now contains information from the rest of the
# sentence. Together, these vectors are called the **memory**.
#
# The **decoder** reads the German words written so far. From them and from the memory, it computes a
# probability for every token of the *vocabulary*, the list of all tokens. One token is chosen, and the
# decoder runs again, with that token added to what it reads.
#
# In code, the whole model takes three lines. The masks say which tokens may be looked at.
#
# ```
# memory = encoder(src_embed(src), src_mask)                    # read the English sentence
# states = decoder(tgt_embed(tgt), memory, src_mask, tgt_mask)  # read the German words so far
# log_probs = generator(states)                                 # rate every token as the next one
# ```
#
# On this page, we open the five parts one by one: `src_embed`, `encoder`, `tgt_embed`, `decoder` and
# `generator`.
#
# Comments in our code give shapes. B is the number of sentences that the model reads at once, S is the number
# of source tokens, and T is the number of target tokens. Some parts are used for both languages; in their
# comments, we write `length` instead of S or T.

# %% [markdown]
# ### ▸ A model small enough to print
#
# The paper's model has vectors of 512 numbers, too many to read. So we train a tiny model with vectors of
# **four** numbers, one layer on each side, and two *heads*, that is, two attention functions side by side. It
# learns eight sentences. They are short, but they need attention: the English *a* becomes *ein* before *Hund*
# and *eine* before *Katze*. Here are three of them. The tensors `english`, `read` and `write` hold the token
# IDs of all eight: `english[2]` is *a cat runs*, `read[2]` is what the decoder reads, `<s> eine Katze rennt`,
# and `write[2]` is what it has to write, `eine Katze rennt </s>`.

# %% tags=["scaffold"]
import math

import torch
from torch import nn

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
# The next cell trains this model with 200 *updates*. In each of them, the model predicts all German words,
# and one number, the *loss*, says how wrong it is. Then `backward()` computes the *gradient*, which says for
# every weight whether making it larger or making it smaller would lower the loss. Finally an *optimizer*,
# here Adam, moves every weight a little in the better direction.
#
# After training, the cell rounds all weights to one decimal, so that you can check what follows with a
# calculator. The printed numbers are rounded as well, so your last digit may differ. (Training starts from
# random weights. We tried forty starts and kept the one whose attention is easiest to read.)

# %% tags=["scaffold"]
import copy

from annotated import make_model

_ = torch.manual_seed(4)  # chosen among forty seeds, because its attention is easy to read
tiny = make_model(16, 16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0, tied_embeddings="all").double()
matrices = [weights for weights in tiny.parameters() if weights.dim() > 1]  # the biases stay 0
for weights in matrices:
    weights.data = weights.data.round(decimals=3)  # the same start on every processor
adam = torch.optim.Adam(matrices, lr=0.03)


def tiny_losses():
    """The loss of each German token, (8, 4)."""
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())  # before the generator
    return -tiny.generator(states).gather(-1, write.unsqueeze(-1)).squeeze(-1)


past = [copy.deepcopy(tiny)]  # the model before its training and after each update, for section 5
for _ in range(200):
    adam.zero_grad()
    tiny_losses().mean().backward()
    adam.step()
    past.append(copy.deepcopy(tiny))
for weights in matrices:
    weights.data = weights.data.round(decimals=1)
size = sum(weights.numel() for weights in matrices)
print(f"{size} weights in {len(matrices)} matrices, loss {tiny_losses().mean().item():.2f}")

# %% tags=["check"]
with torch.no_grad():
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())
    assert (tiny.generator(states).argmax(dim=-1) == write).all()


# %% tags=["scaffold"]
def show(title, matrix, rows=("a", "cat", "runs"), columns=(), digits=2):
    """Print a matrix, with a name for each row."""
    print(title)
    if columns:
        print(" " * 10 + "".join(f"{column:>8}" for column in columns))
    for row, values in zip(rows, matrix.tolist(), strict=True):
        print(f"  {row:8}" + "".join(f"{round(value, digits) + 0.0:8.{digits}f}" for value in values))


# %% [markdown]
# The sentence that we follow is ***a cat runs***. Here are the IDs of its three tokens:

# %%
words, cat_runs = ["a", "cat", "runs"], english[2]
print(words, "→", cat_runs.tolist())

# %% [markdown]
# The drawing shows the path of the sentence through the model, up to the first German word. The numbers in
# it, and all the intermediate results that it leaves out, are computed below.
#
# ![A cat runs goes through the model. In the encoder, each word begins as a vector of four numbers; cat looks
# mostly at a. Its vectors are the memory. In the decoder, start looks mostly at cat in the memory, and its
# new vector is (0.15, 0.40, 1.08, −1.63). The next word is to be eine 0.66, ein 0.31. The other steps are
# left out.](../images/cat_whole.svg)
#
# *Figure 4. Only the second head of each attention layer is drawn. The width of a line shows a weight.*
#
# The next cell shows the whole computation in 26 steps, and you can play with it. Go from step to step with
# the arrow keys, and click a number to see which numbers it was computed from. You do not have to understand
# all of it now: the following sections explain one step after another. You can come back to this cell at any
# time to look at a step again, to change a word, or to remove a part of the model.

# %%
from annotated.plots import step_through

step_through(tiny, vocab, [words, *(source for source, _ in pairs)])

# %% [markdown]
# ### 3.4 Embeddings
#
# > "[...] we use learned embeddings to convert the input tokens and output tokens to vectors of dimension
# > $d_{model}$. [...] In the embedding layers, we multiply those weights by $\sqrt{d_{model}}$."
#
# IDs are names, not quantities: *cat* is 5 and *a* is 4, but that does not make *cat* one more than *a*. So
# each token gets a row of a table, its **embedding**, and training fills the table. The class `Embeddings`
# looks up a row and multiplies it by $\sqrt{d_{model}}$. In our model, the factor is $\sqrt 4 = 2$.


# %%
class Embeddings(nn.Module):
    """A vector for each token, times the square root of d_model."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)  # the lookup table
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):  # (B, length) -> (B, length, d_model)
        return self.lut(tokens) * self.scale


# %%
table = tiny.src_embed[0].lut.weight.detach()  # (16, 4)
embedded = table[cat_runs] * 2
show("rows of the table", table[cat_runs])
show("times 2", embedded)

# %% tags=["check"]
assert torch.allclose(embedded, tiny.src_embed[0](cat_runs))


def product(a, b):
    """A matrix product as with a pocket calculator: of what is printed, one number at a time."""
    a, b = ([[round(number, 2) for number in row] for row in matrix.tolist()] for matrix in (a, b))
    rows = [
        [sum(p * q for p, q in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]
    return torch.tensor(rows, dtype=torch.float64)


def near(ours, printed, within=0.03):
    """Whether what one finds by hand is what the page prints."""
    return bool((ours - printed).abs().max() < within)


def normalize(rows):
    centered = rows.round(decimals=2) - rows.round(decimals=2).mean(dim=-1, keepdim=True)
    return centered / centered.square().mean(dim=-1, keepdim=True).sqrt()


# %% [markdown]
# The paper gives no reason for the factor. Before training, the table's entries are small, and without the
# factor they would be swamped by the position vectors that we add later, whose entries reach 1.

# %% [markdown]
# ### ▸ One word first
#
# The vector that *cat* begins with, its *embedding*, comes from a table and is the same in every sentence.
# But to translate *cat* well, the model has to know which words surround it. So it gives *cat* a new vector,
# into which the other words are mixed. Here is the idea of the whole paper, for this one word and without any
# learned matrix.
#
# 1. **Compare** the vector of *cat* with the vector of each word, by a *dot product*: multiply number by
#    number, and add. The result is called a **score**. It is large when two vectors are long and point in the
#    same direction.
# 2. **Weigh.** A **softmax** turns the scores into weights that are positive and add up to 1: it divides each
#    $\exp(\text{score})$ by the sum of all three.
# 3. **Mix** the three vectors: take their mean with these weights.
#
# ![The vector of cat is compared with the vectors of a, cat and runs by dot products: a −0.72, cat 2.24, runs
# 0.72. A softmax turns them into weights: a 0.04, cat 0.79, runs 0.17. The mean of the three vectors with
# these weights is (−0.08, 1.01, 0.66, −0.31).](../images/cat_word.svg)
#
# *Figure 5. What cat gets from three words. The color of a cell shows the sign and the size of its number,
# and the width of a line shows a weight.*

# %%
cat = embedded[1]
scores = [(cat * word).sum().item() for word in embedded]
powers = [math.exp(score) for score in scores]
shares = [power / sum(powers) for power in powers]
mean = sum(share * word for share, word in zip(shares, embedded, strict=True))
show("scores and weights", torch.tensor([scores, shares]), rows=["scores", "weights"], columns=words)
show("what cat gets", mean[None], rows=["cat"])

# %% tags=["check"]
assert near(product(embedded, cat[:, None]).flatten(), torch.tensor(scores))
assert [f"{share:.2f}" for share in shares] == ["0.04", "0.79", "0.17"]
assert near(product(torch.tensor([shares]), embedded)[0], mean)
built_in = nn.functional.scaled_dot_product_attention
assert torch.allclose(mean, built_in(cat[None], embedded, embedded, scale=1.0)[0])

# %% [markdown]
# Compare, weigh, mix: this is attention. Two things are still missing.
#
# The first is a choice. Here *cat* looks mostly at itself, with the weight 0.79, because its vector is most
# similar to itself. But the word that it needs is *a*, which decides that the German article is *eine* and
# not *die*. So the model has to *learn* what *cat* looks for and what *a* has to offer.
#
# The second is order. A mean does not depend on the order of its terms, so the vectors themselves must say
# where in the sentence they stand. We begin with the order.

# %% [markdown]
# ### 3.5 Positional Encoding
#
# > "[...] in order for the model to make use of the order of the sequence, we must inject some information
# > about the relative or absolute position of the tokens in the sequence."
#
# To a mean, *dog bites man* and *man bites dog* are the same. So the model adds to each embedding a vector
# that depends on the position alone.
#
# Think of a clock with several hands. The first hand turns by one radian per position, and each of the
# following hands turns more slowly than the one before. Together they tell the time, and the time is the
# position. The direction of a hand is described by two numbers, the sine and the cosine of its angle, so a
# vector of four numbers has room for two hands. At position $pos$, their angles are $pos$ and $pos / 100$.
#
# ![Embedding plus position is what enters the encoder. For cat: (0.00, 1.20, 0.80, −0.40) plus (0.84, 0.54,
# 0.01, 1.00) is (0.84, 1.74, 0.81, 0.60). Each pair of the position's numbers is the hand of a clock: the
# fast one turns by one radian a word, the slow one by a hundredth.](../images/cat_position.svg)
#
# *Figure 6. Embedding plus position. Each pair of the position's numbers is drawn as a hand: its sine and its
# cosine. The second hand hardly moves within three words.*
#
# For any width, the paper defines the position's vector like this. Hand number $i$ fills the entries $2i$ and
# $2i + 1$:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$


# %%
def sinusoids(length, d_model):
    """The positional encodings, (length, d_model)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # sine, cosine, sine, ...


class PositionalEncoding(nn.Module):
    """Add the position's vector, then dropout (see section 5.4)."""

    def __init__(self, d_model, dropout, max_len=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", sinusoids(max_len, d_model), persistent=False)  # kept, but not trained

    def forward(self, x):  # (B, length, d_model) -> (B, length, d_model)
        return self.dropout(x + self.pe[: x.size(1)])


# %%
positions = sinusoids(3, 4)
x = embedded + positions
show("x, what enters the encoder", x)

# %% tags=["check"]
assert torch.allclose(x, tiny.src_embed(english[2:3])[0])
assert torch.allclose(positions[1, :2], torch.tensor([math.sin(1), math.cos(1)]))

# %% [markdown]
# Check one number: *cat* is at position 1, and $\sin(1) = 0.84$. Its embedding begins with 0.00, so its
# row of `x` begins with 0.84.
#
# Why a clock, and not simply the numbers 0, 1, 2? Plain numbers would grow with the length of the
# sentence, whereas sines and cosines stay between −1 and 1. And a step of two words turns each hand by
# the same angle everywhere in the sentence. The authors hoped that this would help the model learn to
# look, say, two words back.
#
# *More in [05_positional_encoding](05_positional_encoding.ipynb).*

# %% [markdown]
# ### ▸ 3.2 Attention
#
# > "The output is computed as a weighted sum of the values, where the weight assigned to each value is
# > computed by a compatibility function of the query with the corresponding key."
#
# Think of a Python dictionary. You look something up with a *query*, and the dictionary finds the *key* that
# equals the query and returns that key's *value*. Attention is a soft dictionary: it returns a mixture of
# **all** values, in which a value counts more when its key fits the query better. A mixture has a gradient,
# so the network can learn what to ask for.
#
# So each word needs three vectors, and three learned matrices make them from its vector $x$:
#
# - the **query** of *cat* says what *cat* is looking for;
# - the **key** of *cat* says what *cat* offers to the words that look at it;
# - the **value** of *cat* is what *cat* hands over to them.

# %% [markdown]
# #### ▸ One query, three keys
#
# Our model has two heads, and in the second one *cat* has learned to look at *a*. We follow this head. (The
# vector of *cat* is no longer that of *One word first*: the vector of its position, section 3.5, has been
# added.) Its three matrices, $W^Q$, $W^K$ and $W^V$, make queries, keys and values that are $d_k = 2$ numbers
# wide. Each number of the query is a sum of four products: the four numbers of *cat*, times a column of
# $W^Q$.
#
# ![Three matrices turn the vector of cat, (0.84, 1.74, 0.81, 0.60), into its query (1.62, −0.20), its key
# (0.71, 1.28) and its value (0.30, 0.25). The first number of the query is 0.84 · (−0.10) + 1.74 · 0.90 +
# 0.81 · 0.10 + 0.60 · 0.10 = 1.62.](../images/cat_roles.svg)
#
# *Figure 7. One vector, three roles. The line at the bottom shows how the marked number is computed.*
#
# In the code, one matrix of four columns serves both heads: the first two columns belong to head 1, and the
# last two belong to head 2. (`nn.Linear` stores its matrix transposed, so `.T` turns it back.)

# %%
wide_q, wide_k, wide_v, w_o = (m.weight.T.detach() for m in tiny.encoder.layers[0].self_attn.linears)
w_q, w_k, w_v = wide_q[:, 2:], wide_k[:, 2:], wide_v[:, 2:]  # head 2: each (4, 2)
query = x[1] @ w_q  # of cat: (4,) @ (4, 2) -> (2,)
keys, values = x @ w_k, x @ w_v  # of all three words: (3, 4) @ (4, 2) -> (3, 2)
show("query of cat", query[None], rows=["cat"])
show("keys", keys)
show("values", values)

# %% tags=["check"]
assert near(product(x[1:2], w_q)[0], query)
assert near(product(x, w_k), keys)
assert near(product(x, w_v), values)

# %% [markdown]
# Now compare, weigh and mix, as before. The score of a word is the dot product of the query of *cat* with the
# word's key. One step is new: we divide each score by $\sqrt{d_k} = \sqrt 2$, and you will soon see why.
#
# ![The query of cat, (1.62, −0.20), times the keys of a, cat and runs gives the scores a 1.48, cat 0.90, runs
# −1.04. Divided by the square root of 2 they are 1.05, 0.64, −0.73, and a softmax turns them into the weights
# 0.55, 0.36, 0.09: cat looks mostly at a.](../images/cat_scores.svg)
#
# *Figure 8. Compare and weigh. The marked column belongs to the word whose key fits best.*

# %%
scores = keys @ query  # (3, 2) @ (2,) -> (3,): a score for each word
scaled = scores / math.sqrt(2)
weights = scaled.softmax(dim=-1)
output = weights @ values  # (3,) @ (3, 2) -> (2,)
three = torch.stack([scores, scaled, weights])
show("cat looks at", three, rows=["score", "scaled", "weight"], columns=words)
show("what cat gets", output[None], rows=["cat"])

# %% tags=["check"]
assert near(product(keys, query[:, None]).flatten(), scores)
assert near(scores.round(decimals=2) / 1.41, scaled)
powers = scaled.round(decimals=2).exp()
assert near(powers / powers.sum(), weights)
assert near(product(weights[None], values)[0], output)
assert [f"{w:.2f}" for w in weights] == ["0.55", "0.36", "0.09"]
assert [f"{number:.2f}" for number in output] == ["0.56", "-0.45"]

# %% [markdown]
# *cat* now looks mostly at *a*, with the weight 0.55. What it gets is the weighted mean of the three values.
#
# ![The values of a, cat and runs, (0.80, −1.04), (0.30, 0.25) and (0.15, 0.31), flow together in lines as
# wide as the weights a 0.55, cat 0.36, runs 0.09. Their weighted mean, (0.56, −0.45), is what cat
# gets.](../images/cat_mean.svg)
#
# *Figure 9. Mix. Each line is as wide as its weight.*
#
# Check the second number by hand: $0.55 \cdot (-1.04) + 0.36 \cdot 0.25 + 0.09 \cdot 0.31 = -0.45$.

# %% [markdown]
# #### 3.2.1 Scaled Dot-Product Attention
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# The other two words do the same, each with a query of its own. Stacked, the three queries form a matrix $Q$,
# and the product $Q K^T$ computes all nine scores at once, with a row for each query and a column for each
# key. The softmax works on each row by itself.
#
# ![The queries of all words times the keys of all words is a matrix of nine scores. Divided by the square
# root of 2 and through a softmax, each row becomes the weights of one word, and the weights times the values
# are the outputs. The row of cat is the one that was computed alone: scores 1.48, 0.90, −1.04, weights 0.55,
# 0.36, 0.09, output (0.56, −0.45).](../images/cat_rows.svg)
#
# *Figure 10. All words at once. The row of cat is what you have just computed.*

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v  # each (3, 4) @ (4, 2) -> (3, 2)
scores = q @ k.T  # (3, 2) @ (2, 3) -> (3, 3)
weights_2 = (scores / math.sqrt(2)).softmax(dim=-1)
head_2 = weights_2 @ v  # (3, 3) @ (3, 2) -> (3, 2)
show("weights: who looks at whom", weights_2, columns=words)
show("output of head 2", head_2)

# %% tags=["check"]
assert near(product(q, k.T), scores)
powers = (product(q, k.T) / 1.41).exp()
assert near(powers / powers.sum(dim=-1, keepdim=True), weights_2)
assert near(product(weights_2, v), head_2)
assert torch.allclose(weights_2[1], weights)
assert torch.allclose(head_2[1], output)

# %% [markdown]
# Sometimes a word must not be looked at. A short sentence in a batch, for example, is filled up with
# *padding*, so that all sentences are equally long, and nobody should look at the filler. So the function has
# one more argument, the **mask**, which is `False` at every position that must not be looked at. The scores
# there become the lowest number that their type can hold, and the softmax turns it into the weight 0.
# ([Lesson 02](02_attention.ipynb) shows what the second `masked_fill` is for.)
#
# In the comments, T tokens look at S tokens. When a sentence looks at itself, T and S are equal.


# %%
def attention(query, key, value, mask=None):
    """Equation 1: queries (..., T, d_k), keys and values (..., S, d_k) -> output (..., T, d_k), weights."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:  # True: may be looked at
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (..., T, S), each row adds up to 1
    if mask is not None:  # if all S tokens are hidden, the softmax would look at all of them
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


# %% [markdown]
# Here we hide *runs*, as if it were padding:

# %%
output, masked_weights = attention(q, k, v, mask=torch.tensor([True, True, False]))
show("weights with runs hidden", masked_weights, columns=words)

# %% tags=["check"]
assert torch.equal(attention(q, k, v)[0], head_2)
assert (masked_weights[:, 2] == 0).all()
assert torch.allclose(masked_weights.sum(dim=-1), torch.ones(3).double())
assert attention(q, k, v, torch.tensor([False, False, False]))[0].abs().max() == 0

# %% [markdown]
# **Remember:** a score says how well a key fits a query, the softmax turns the scores into weights, and the
# output is the weighted mean of the values.

# %% [markdown]
# #### Why divide by √d_k?
#
# The paper's heads are 64 numbers wide, so a score is a sum of 64 products instead of 2.
#
# **Before you run this:** the entries of `query` and `key` are random, with variance 1. With 2 products, the
# typical size of a score, its standard deviation, is 1.4. What is it with 64?

# %%
_ = torch.manual_seed(0)
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    print(f"d_k = {d_k:3}: a typical score is ≈{typical:.1f}, the square root of d_k is {d_k**0.5:.1f}")

# %% tags=["check"]
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    assert abs(typical / d_k**0.5 - 1) < 0.05

# %% [markdown]
# A typical score grows like $\sqrt{d_k}$. Why is that bad? The next cell computes two softmaxes, the second
# with scores eight times as large. The *slope* says how much the last weight changes when its score changes.

# %% tags=["scaffold"]
for scores_of_one_row in ([0.5, -1.0, 1.0], [4.0, -8.0, 8.0]):
    row = torch.tensor(scores_of_one_row, requires_grad=True)
    row.softmax(dim=-1)[2].backward()
    shown = [f"{w:.3f}" for w in row.softmax(dim=-1).tolist()]
    print(f"scores {scores_of_one_row}: weights {shown}, slope of the last {row.grad[2]:.3f}")

# %% tags=["check"]
assert row.grad[2] < 0.02
assert row.softmax(dim=-1)[2] > 0.98

# %% [markdown]
# With the large scores, the last weight is nearly 1, and it hardly changes with its score. The softmax is
# *saturated*. Through this weight, it passes on almost no gradient, and the authors suspect that this slows
# learning.
#
# > "We suspect that for large values of $d_k$, the dot products grow large in magnitude, pushing the softmax
# > function into regions where it has extremely small gradients. To counteract this effect, we scale the dot
# > products by $1/\sqrt{d_k}$."
#
# **Remember:** wide heads make large scores, large scores can saturate the softmax, and dividing by
# $\sqrt{d_k}$ keeps them small.
#
# *[02_attention](02_attention.ipynb) measures the gradient.*

# %% [markdown]
# #### 3.2.2 Multi-Head Attention
#
# > "Multi-head attention allows the model to jointly attend to information from different representation
# > subspaces at different positions."
#
# A single attention function gives each word *one* set of weights. But a verb may need both its subject
# and its object, for different reasons, and one mixture would blur them. So the model runs several
# attention functions side by side, called **heads**. Each head has its own queries, keys and values, and
# they are narrower: the paper uses $h = 8$ heads of $d_k = d_{model} / h = 64$ numbers. A last matrix,
# $W^O$, mixes what the heads have found.
#
# In our model, the heads look at different words. In head 1, *cat* spreads its attention over all three
# words, but in head 2, as you know, it looks mostly at *a*:
#
# ![In head 1 cat looks at a 0.40, cat 0.30, runs 0.30, in head 2 at a 0.55, cat 0.36, runs 0.09. The two
# results, (−0.09, −0.15) and (0.56, −0.45), stand side by side, and the matrix W^O turns the four numbers
# into (−0.28, 0.05, 0.04, 0.30).](../images/cat_heads.svg)
#
# *Figure 11. What cat gets from two heads. Each finds two numbers, and the matrix at the bottom turns the
# four into four new ones.*

# %%
head_1, weights_1 = attention(x @ wide_q[:, :2], x @ wide_k[:, :2], x @ wide_v[:, :2])  # columns 1 and 2
both = torch.cat([head_1, head_2], dim=-1)  # (3, 4)
show("weights of head 1", weights_1, columns=words)
show("both heads side by side", both)

# %% tags=["check"]
q_1, k_1, v_1 = (product(x, w[:, :2]) for w in (wide_q, wide_k, wide_v))
powers = (product(q_1, k_1.T) / 1.41).exp()
assert near(powers / powers.sum(dim=-1, keepdim=True), weights_1)
assert near(product(weights_1, v_1), head_1)
assert near(product(both, w_o), both @ w_o)
assert [f"{w:.2f}" for w in weights_1[1]] == ["0.40", "0.30", "0.30"]

# %% [markdown]
# After $W^O$, each word again has four numbers, as many as at the start. Below you will see all of them.
#
# **Remember:** each head has its own matrices, so each can look at different words.
#
# For the code, it is best to compute all heads at once. One wide matrix holds the $W^Q$ of all heads, so a
# single product makes all queries, four numbers for each word. These have to be cut into two heads. First
# `view` cuts the four numbers of each word into two pairs. Then `transpose` collects the first pair of every
# word in head 1 and the second pair in head 2:
#
# ![Above: view cuts each word into a block of two halves, and transpose collects the first halves in head 1
# and the second halves in head 2. Below: view alone puts all of "a" and half of "cat" into head
# 1](../images/split.svg)
#
# *Figure 12. Above: three words of four numbers become two heads. Below: a mistake, the first of the five
# traps at the end of this page.*
#
# Each head is now a matrix of its own, with a row for each word. PyTorch multiplies the matrices of all heads
# in one call but keeps them apart, so the heads do not mix.
#
# A mask may have a row for each of the T queries. Padding is hidden from all queries alike, so a padding mask
# needs only a single row. That is what "1 or T" means in the comments.


# %%
class MultiHeadedAttention(nn.Module):
    """h attentions side by side: three linear maps before them, one after."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # W^Q, W^K, W^V, W^O

    def split(self, x):  # (B, length, d_model) -> (B, length, h, d_k) -> (B, h, length, d_k)
        return x.view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):  # (B, T, d_model), two (B, S, d_model), (B, 1 or T, S)
        w_q, w_k, w_v, w_o = self.linears
        q, k, v = self.split(w_q(query)), self.split(w_k(key)), self.split(w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)  # the same for every head: (B, 1, 1 or T, S)
        heads, self.weights = attention(q, k, v, mask)  # (B, h, T, d_k), (B, h, T, S)
        joined = heads.transpose(1, 2).flatten(2)  # undo the split: (B, T, h, d_k) -> (B, T, d_model)
        return w_o(joined)


# %% [markdown]
# `nn.Linear` also adds a bias, but in our tiny model all biases are 0. Loaded with the tiny model's weights,
# the class gives the four numbers of *cat* that Figure 11 shows, and those of the other words:

# %%
attend = MultiHeadedAttention(h=2, d_model=4).double()
print(attend.load_state_dict(tiny.encoder.layers[0].self_attn.state_dict()))
with torch.no_grad():
    attended = attend(x[None], x[None], x[None])[0]  # a batch of one sentence that looks at itself
show("multi-head attention", attended)

# %% tags=["check"]
assert torch.allclose(attended, both @ w_o)
assert torch.allclose(attend.weights[0], torch.stack([weights_1, weights_2]))

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
# The same rows come out, in the shuffled order. Attention does not see in which row a vector stands. It can
# learn the order of the words only from the positions that we added to the vectors *before* we shuffled them.
#
# *More in [03_multi_head_attention](03_multi_head_attention.ipynb).*

# %% [markdown]
# ### 3.1 Residual connections and layer normalization
#
# > "[...] the output of each sub-layer is LayerNorm(x + Sublayer(x)) [...]."
#
# A layer consists of *sub-layers*: attention is one, and the feed-forward network of the next section is
# another. The output of a sub-layer does not replace its input $x$. It is **added** to $x$. This is a
# *residual connection*. A sub-layer only has to learn what to change, and the gradient can flow around it.
#
# Sums grow from layer to layer, so *layer normalization* follows each addition. It takes each word's vector
# by itself, subtracts the mean of the vector's entries, and divides by their standard deviation. Then it
# multiplies each entry by a learned gain and adds a learned bias. In our tiny model, all gains are 1 and all
# biases are 0.
#
# ![The vector of cat, (0.84, 1.74, 0.81, 0.60), bypasses the attention, and what attention found, (−0.28,
# 0.05, 0.04, 0.30), is added: (0.56, 1.79, 0.85, 0.90). Its mean is 1.03, its standard deviation 0.46;
# normalized it is (−1.01, 1.66, −0.38, −0.28), with mean 0 and standard deviation
# 1.](../images/cat_residual.svg)
#
# *Figure 13. The vector of cat bypasses the attention, and what attention found is added to it. Right: the
# four numbers on a line, with their mean μ and, in yellow, one standard deviation σ to each side.*


# %%
class AddNorm(nn.Module):
    """What surrounds each sub-layer: dropout, residual connection, layer normalization."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, output):  # x, and what the sub-layer made of it: both (B, length, d_model)
        return self.norm(x + self.dropout(output))


# %%
added = x + attended
normed = (added - added.mean(dim=-1, keepdim=True)) / added.std(dim=-1, keepdim=True, correction=0)
show("x + attention", added)
show("normalized: each row has mean 0 and variance 1", normed)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(AddNorm(4, 0.0).double()(x, attended), normed, atol=1e-4)
assert near(x + attended, added)
assert near(normalize(added), normed)

# %% [markdown]
# **Remember:** a sub-layer adds to a word's vector instead of replacing it, and layer normalization keeps the
# sums from growing.
#
# *More in [06_the_full_model](06_the_full_model.ipynb).*

# %% [markdown]
# ### 3.3 Position-wise Feed-Forward Networks
#
# > "[...] a fully connected feed-forward network, which is applied to each position separately and
# > identically."
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# Attention moves information between words. The feed-forward network then works on each word by itself. It
# makes the vector wider (from 512 numbers to $d_{ff} = 2048$), sets all negative numbers to 0, and returns to
# the old width. Setting negative numbers to 0 is called *ReLU*. Without it, the two linear maps would be a
# single one, with the matrix $W_1 W_2$.
#
# ![The vector of cat, (−1.01, 1.66, −0.38, −0.28), becomes eight numbers, (−0.37, 0.26, −0.69, 0.68, −1.27,
# 0.38, −0.22, 0.77). The ReLU sets the negative ones to 0, and the other four become (−1.42, −0.47, 0.33,
# 0.26).](../images/cat_network.svg)
#
# *Figure 14. Four numbers become eight, the negative ones are stopped, and the rest become four.*


# %%
class FeedForward(nn.Module):
    """Equation 2, the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # (B, length, d_model) -> (B, length, d_model)
        return self.w_2(self.w_1(x).relu())


# %%
network = tiny.encoder.layers[0].feed_forward
w_1, w_2 = network.w_1.weight.T.detach(), network.w_2.weight.T.detach()
inner = (normed @ w_1).relu()  # (3, 4) @ (4, 8) -> (3, 8)
memory = nn.functional.layer_norm(normed + inner @ w_2, (4,))
show("inside, after the ReLU", inner)
show("output", inner @ w_2)
show("added and normalized: the memory", memory)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(memory, tiny.encode(english[2:3], None)[0], atol=1e-4)
assert near(product(normed, w_1).clamp(min=0), inner)
assert near(product(inner, w_2), inner @ w_2)
assert near(normalize(normed + product(inner, w_2)), memory, within=0.05)

# %% [markdown]
# *More in [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb).*

# %% [markdown]
# ### 3.1 The encoder
#
# You have now seen every step of an encoder layer. Here is the layer in code, and then a stack of N layers:


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
# In training, we know the whole German sentence, and we want to train on all its words at once. So the
# decoder reads `<s> eine Katze rennt`, and at each position it has to predict the next word: `eine Katze
# rennt </s>`.
#
# ![In training, the decoder reads start, eine, Katze, rennt, and at these four positions, all at once, it is
# to predict eine, Katze, rennt, end. An arrow leads from eine, predicted at start, to eine, read at the next
# position: the same word, one place later.](../images/cat_shift.svg)
#
# *Figure 15. Above, what the decoder reads; below, what it has to predict. The band joins the two copies of
# eine: what the first position has to predict, the second one reads.*
#
# So at the position of `eine`, the decoder could look one position ahead, find *Katze*, and copy it. The
# **causal mask** prevents this: each position may look at itself and at earlier positions, never at later
# ones. In the paper's words, nothing flows *leftward*, because in a written sentence the earlier words are on
# the left. And a model that writes each word from the earlier ones is called *auto-regressive*.
#
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive property."


# %%
def causal_mask(size):
    """bool (1, size, size): row i is True up to column i."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


print(causal_mask(4)[0].int())

# %% [markdown]
# **Remember:** with the causal mask, all positions can be trained at once, because none of them sees its
# answer.

# %% [markdown]
# ### *a cat runs* in the decoder
#
# Each row now belongs to the German token that is read at that position. The row `eine`, for example, has to
# predict the word after *eine*. The German tokens take their vectors from the same table as the English ones.
# You know each step from the encoder, but the decoder has weights of its own, and they are in `layer`.

# %%
german_read = ["<s>", "eine", "Katze", "rennt"]
layer = DecoderLayer(d_model=4, d_ff=8, h=2, dropout=0.0).double().requires_grad_(False)
print(layer.load_state_dict(tiny.decoder.layers[0].state_dict()))
y = (table[read[2]] * 2 + sinusoids(4, 4))[None]  # (1, 4, 4): one sentence, four tokens, four numbers
show("y, what enters the decoder", y[0], german_read)

# %% [markdown]
# Training has made the German vectors much longer than the English ones. You will see why when these vectors
# become words again.
#
# **First sub-layer.** The German words look at each other, under the causal mask:

# %%
found = layer.self_attn(y, y, y, causal_mask(4))
y_1 = layer.sublayer[0](y, found)
looks = layer.self_attn.weights[0]  # (2, 4, 4): two heads, four tokens look at four
show("weights of head 2", looks[1], german_read, columns=german_read)
show("added to y and normalized", y_1[0], german_read)

# %% tags=["check"]
assert (looks.triu(diagonal=1) == 0).all()
assert looks.max(dim=-1).values.min() > 0.94  # one token at a time
_ = torch.manual_seed(4)
start = make_model(16, 16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0, tied_embeddings="all").double()
untrained = DecoderLayer(d_model=4, d_ff=8, h=2, dropout=0.0).double()
_ = untrained.load_state_dict(start.decoder.layers[0].state_dict())
_ = untrained.self_attn(*[start.tgt_embed(read[2:3])] * 3, causal_mask(4))
assert untrained.self_attn.weights[0, :, 1:].max() < 0.7


def by_hand(attend, queries, keys, mask):
    """Two heads of width 2, from the matrices alone."""
    w_q, w_k, w_v, w_o = (linear.weight.T for linear in attend.linears)
    heads = []
    for columns in (slice(0, 2), slice(2, 4)):
        scores = (queries @ w_q[:, columns]) @ (keys @ w_k[:, columns]).T / math.sqrt(2)
        weights = scores.exp() * mask / (scores.exp() * mask).sum(dim=-1, keepdim=True)
        heads.append(weights @ (keys @ w_v[:, columns]))
    return torch.cat(heads, dim=-1) @ w_o


assert torch.allclose(found[0], by_hand(layer.self_attn, y[0], y[0], torch.ones(4, 4).tril()), atol=1e-4)
assert near(normalize(y[0] + found[0]), y_1[0])

# %% [markdown]
# ![Each row is a token that the decoder reads, each column one that it may look at. Row start: 1.00. Row
# eine: 0.00, 1.00. Row Katze: 0.95, 0.05, 0.00. Row rennt: 0.00, 0.00, 0.00, 1.00. The cells to the right of
# the diagonal are closed.](../images/cat_causal.svg)
#
# *Figure 16. Who looks at whom in head 2. The mask has closed the gray cells, and the bars in a row add up
# to 1. Right: what each row has to predict.*
#
# The zeros above the diagonal come from the mask. The other zeros were learned: each token gives almost all
# of its attention to a single token, which in most rows is itself. (Why *Katze* prefers `<s>`, we do not
# know.) This softmax is saturated, too, but only at the *end* of training, when little is left to learn.
# Before training, no weight was larger than 0.7, except in the first row, which has only one token to look
# at.
#
# **Second sub-layer.** The German words look at the English ones, through the memory.
#
# **Before you run this:** the row `<s>` has to predict *eine*. Which English words does the decoder need
# for that?

# %%
found = layer.src_attn(y_1, memory[None], memory[None], None)
y_2 = layer.sublayer[1](y_1, found)
across = layer.src_attn.weights[0]  # (2, 4, 3): two heads, four German tokens look at three English ones
for head in (0, 1):
    show(f"weights of head {head + 1}", across[head], german_read, columns=words)
show("added and normalized", y_2[0], german_read)

# %% tags=["check"]
assert across[1, 0, 1] > 0.95
assert across[0, 0, 0] > across[0, 0, 1] > 0.4
assert across[:, 2, 2].min() > 0.8
assert across[:, 1].argmax(dim=-1).tolist() == [1, 1]
assert torch.allclose(found[0], by_hand(layer.src_attn, y_1[0], memory, torch.ones(4, 3)), atol=1e-4)
assert near(normalize(y_1[0] + found[0]), y_2[0])

# %% [markdown]
# ![At the start of the sentence, the decoder looks at the English words: in head 1 at a 0.57, cat 0.42, runs
# 0.01, in head 2 at a 0.02, cat 0.98, runs 0.00. From both, the rest of the decoder makes the first word:
# eine 0.66, ein 0.31. The German for cat, Katze, is feminine and needs eine.](../images/cat_cross.svg)
#
# *Figure 17. Where the two heads look when the model writes the first word, and the probabilities that
# result.*
#
# The article depends on two words: with *the* instead of *a* it would be *die*, and with *dog* instead of
# *cat* it would be *ein*. In the row `<s>`, head 1 divides its attention between *a* and *cat*, and head 2
# looks at *cat*. Does the decoder need to look at both words? We will test that as soon as we can turn
# vectors into words.
#
# In the row `eine`, both heads look mostly at *cat*, to write *Katze*. In the row `Katze`, both look at
# *runs*, to write *rennt*. The row `rennt` still looks mostly at *runs*, although nothing is left to
# translate: its next token is `</s>`. You saw the same pattern, at full size, in Figure 1.
#
# **Third sub-layer.** The feed-forward network works on each row by itself:

# %%
found = layer.feed_forward(y_2)
states = layer.sublayer[2](y_2, found)[0]  # (4, 4)
show("added and normalized: what leaves the decoder", states, german_read)

# %% tags=["check"]
w_in, w_out = layer.feed_forward.w_1.weight.T, layer.feed_forward.w_2.weight.T
assert torch.allclose(found[0], (y_2[0] @ w_in).clamp(min=0) @ w_out)
assert near(normalize(y_2[0] + found[0]), states)
assert torch.allclose(states, layer(y, memory[None], None, causal_mask(4))[0])
with torch.no_grad():
    theirs = tiny.decode(tiny.encode(english[2:3], None), None, read[2:3], causal_mask(4))[0]
assert torch.allclose(states, theirs, atol=1e-3)

# %% [markdown]
# *More in [13_reading_attention](13_reading_attention.ipynb).*

# %% [markdown]
# ### 3.4 From a vector to a word
#
# > "In our model, we share the same weight matrix between the two embedding layers and the pre-softmax linear
# > transformation [...]."
#
# Each row that leaves the decoder is compared with every row of the embedding table, by a dot product. The
# results are called **logits**, one for each token of the vocabulary, and a softmax turns them into
# probabilities. So one table is used in three places: for English tokens, for German tokens, and for the
# output. This is **weight tying**.
#
# ![The vector that leaves the decoder, (0.15, 0.40, 1.08, −1.63), is compared with the rows of the table. The
# logits are ein 7.13, eine 7.88, der 4.19, die 0.85, Katze 1.18, rennt −4.29, end −4.86; a softmax turns them
# into probabilities: ein 0.31, eine 0.66, der 0.02, die 0.00, Katze 0.00, rennt 0.00, end
# 0.00.](../images/cat_logits.svg)
#
# *Figure 18. The vector in the row "start" is compared with the rows of seven tokens. (The nine others have
# probabilities below 0.01.)*
#
# Now you can see why the German rows are long. The vectors that leave the decoder are normalized: the mean of
# their four squares is 1, so their length is $\sqrt 4 = 2$, and the dot product with a row of length 1 lies
# between −2 and 2. With such logits, no token could get nearly all of the probability. So training has made
# the rows of the German tokens about 4 long, while those of the English ones have stayed below 1.1.
#
# The class `Generator` returns the *logarithms* of the probabilities, because the loss is computed from
# logarithms, as you will see below.


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
show("probabilities", probabilities[:, [number[w] for w in some]], german_read, columns=some)

# %% tags=["check"]
assert near(product(states, table.T), logits, within=0.06)
lengths = {word: table[i].norm().item() for word, i in number.items()}
assert torch.allclose(states.norm(dim=-1), torch.full((4,), 2.0).double(), atol=1e-3)
assert max(lengths[word] for source, _ in pairs for word in source) < 1.1
assert all(3.7 < lengths[word] < 4.4 for _, target in pairs for word in target)
assert probabilities.argmax(dim=-1).tolist() == write[2].tolist()
assert 0.6 < probabilities[0, number["eine"]] < 0.7
assert probabilities[1:].max(dim=-1).values.min() > 0.9
assert probabilities[0, [i for i, word in enumerate(vocab) if word not in some]].max() < 0.01

# %% [markdown]
# The model is right at every position. It is least sure of the article: it gives about two thirds of the
# probability to *eine* and one third to *ein*.
#
# Which English words does it need for the article? We can hide them from cross-attention, one at a time.
#
# **Before you run this:** the encoder still reads all three words. If the decoder cannot look at *a*, will it
# still write *eine*? And if it cannot look at *cat*? We ask the same about *a dog runs*, which begins with
# *ein*.

# %%
articles_of = [number[word] for word in some[:4]]  # ein, eine, der, die
hiding = {}
for source in (["a", "cat", "runs"], ["a", "dog", "runs"]):
    with torch.no_grad():
        encoded = tiny.encode(torch.tensor([[number[word] for word in source]]), None)  # (1, 3, 4)
    for hidden in ("nothing", *source):
        may_look = torch.tensor([[[word != hidden for word in source]]])  # (1, 1, 3): for cross-attention
        instead = layer(y, encoded, may_look, causal_mask(4))[0]
        hiding[source[1], hidden] = (instead @ table.T).softmax(dim=-1)[0, articles_of]  # the row <s>
    found = torch.stack([hiding[source[1], hidden] for hidden in ("nothing", *source)])
    show(" ".join(source) + ": what is hidden", found, rows=["nothing", *source], columns=some[:4])

# %% tags=["check"]
assert torch.allclose(hiding["cat", "nothing"], probabilities[0, articles_of], atol=1e-3)
assert hiding["cat", "a"][1] > hiding["cat", "nothing"][1] + 0.1  # eine, although a is hidden
assert hiding["cat", "cat"][0] > 0.9  # ein
assert hiding["dog", "a"].argmax() == 2  # der
for noun, unneeded in (("cat", "runs"), ("dog", "dog"), ("dog", "runs")):
    assert (hiding[noun, unneeded] - hiding[noun, "nothing"]).abs().max() < 0.02


@torch.no_grad()
def article(head):
    """The article of *a cat runs*, a hidden, if a head of the encoder reads *the* in the place of *a*."""
    part, kept = slice(2 * head - 2, 2 * head), {}

    def exchange(linear, _, out):
        if linear in kept:
            out[:, 0, part] = kept[linear][:, 0, part]
        kept[linear] = out.clone()

    linears = tiny.encoder.layers[0].self_attn.linears[1:3]  # of keys and values
    hooks = [linear.register_forward_hook(exchange) for linear in linears]
    for first in ("the", "a"):
        encoded = tiny.encode(torch.tensor([[number[first], number["cat"], number["runs"]]]), None)
    for hook in hooks:
        hook.remove()
    instead = layer(y, encoded, torch.tensor([[[False, True, True]]]), causal_mask(4))[0]
    return (instead @ table.T).softmax(dim=-1)[0, articles_of]


assert abs(article(2)[1] - 0.77) < 0.01  # eine
assert abs(article(1)[3] - 0.97) < 0.01  # die

# %% [markdown]
# ![What the decoder may look at decides the article: with nothing hidden eine 0.66, ein 0.31; with a hidden
# eine 0.80, ein 0.00; with cat hidden eine 0.01, ein 0.95; with runs hidden eine 0.67, ein
# 0.31.](../images/cat_hidden.svg)
#
# *Figure 19. The probabilities of eine and ein as the first word of the translation of "a cat runs," with one
# word at a time hidden from the decoder.*
#
# Without *a*, the model still writes *eine*, and it is even surer than before: 0.80 instead of 0.66. The
# decoder does not have to look at *a*, because the vector of *cat* already contains it. Which head of the
# encoder has put it there? Not head 2, although *cat* gives *a* the larger weight there: if head 2 reads
# *the* in the place of *a*, *eine* keeps 0.77. If head 1 does, *die* gets 0.97. Without *cat*, the model
# writes *ein*. So a large weight does not show that a word is needed: in the row `<s>`, head 1 looks at *a*,
# and the decoder can do without it.
#
# For *a dog runs*, it is the other way around. Without *a*, the model writes *der*, as for *the*. Without
# *dog*, nothing changes. The model seems to write *ein* after *a* by default, and only the vector of *cat*
# makes it write *eine*. The two sentences give two answers. To find out which words a model needs, you have
# to hide each word and see what changes.
#
# **The loss** says how wrong a model is. For one token it is $-\log p$, where $p$ is the probability that the
# model gave to the right token. (In this series, $\log$ is the natural logarithm, `ln` on a calculator.) The
# loss of a sentence is the mean of the losses of its tokens. A model that gives every right token the
# probability 1 has loss 0.
#
# ![The right tokens got the probabilities eine 0.66, Katze 0.96, rennt 0.98, end 0.98. Their losses, minus
# the logarithms, are eine 0.41, Katze 0.04, rennt 0.02, end 0.02; the mean is 0.12.](../images/cat_loss.svg)
#
# *Figure 20. Above, the probabilities of the right tokens; below, their losses and, as a line, the mean.*

# %%
p = probabilities[range(4), write[2]]
print("losses", [f"{loss:.2f}" for loss in -p.log()], f"mean {-p.log().mean():.2f}")

# %% tags=["check"]
assert p.argmin() == 0  # the article
assert torch.allclose(logits.exp()[0] / logits.exp()[0].sum(), probabilities[0])

assert f"{tiny_losses().mean():.2f}" == "0.06"
assert (tiny_losses()[2].mean() > tiny_losses().mean(dim=1)).sum() > 4  # harder than most

# %% [markdown]
# The article costs the most, because the model is least sure of it. Over all eight sentences, the mean loss
# is 0.06.
#
# ### The model is complete
#
# Before training, the weights must be set. Matrices get random numbers whose size keeps vectors from growing
# or shrinking much on their way through the layers (*Xavier* initialization), and biases get 0.


# %%
def initialize(module):
    """Set the weights of one part of the model before training."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


# %% [markdown]
# And here is the whole model. The shared table's entries start small; the fourth of the *Five traps* below
# shows why.


# %%
class Transformer(nn.Module):
    """The paper's Figure 1."""

    def __init__(self, vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
        super().__init__()
        self.src_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.encoder = Encoder(N, d_model, d_ff, h, dropout)
        self.decoder = Decoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)
        self.apply(initialize)  # to every part of the model
        table = self.src_embed[0].lut.weight
        nn.init.normal_(table, std=d_model**-0.5)
        self.tgt_embed[0].lut.weight = table
        self.generator.proj.weight = table

    def encode(self, src, src_mask):  # tokens (B, S) -> memory (B, S, d_model)
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):  # tokens (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


# %% [markdown]
# Does it compute what we computed step by step? We load the tiny model's weights into it, name by name:

# %%
ours = Transformer(vocab=16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0).double()
print(ours.load_state_dict(tiny.state_dict()))
with torch.no_grad():
    log_probs = ours(english[2:3], read[2:3], None, causal_mask(4))[0]  # (4, 16)
print("equal to the result step by step:", torch.allclose(log_probs.exp(), probabilities, atol=1e-3))

# %% tags=["check"]
assert torch.allclose(log_probs.exp(), probabilities, atol=1e-3)
_ = torch.manual_seed(0)
fresh = Transformer(vocab=100, N=1, d_model=64, d_ff=128, h=4)
package = make_model(100, 100, N=1, d_model=64, d_ff=128, h=4, tied_embeddings="all").state_dict()
for name, start in fresh.state_dict().items():
    assert package[name].shape == start.shape
    if "attn.linears" not in name:  # the package sizes W^Q, W^K and W^V as nn.MultiheadAttention does
        assert abs(package[name].std() - start.std()) <= 0.1 * start.std() + 1e-6, name

# %% [markdown]
# ### One word at a time
#
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional
# > input when generating the next."
#
# The model writes one word, reads it back, and writes the next.
#
# ![The encoder reads a cat runs once. Then the decoder runs four times. At each step it reads start and all
# that it has written, and writes one token, with its probability: eine 0.66, Katze 0.96, rennt 0.98, end
# 0.98.](../images/cat_decoding.svg)
#
# *Figure 21. The encoder runs once, and the decoder runs once per word. The numbers are the probabilities
# of the words that it writes.*
#
# Always taking the likeliest token is called **greedy** decoding:


# %%
@torch.no_grad()
def greedy(model, src, src_mask, start, end, max_len, never=()):
    """Translate tokens (B, S) -> (B, up to max_len). Tokens in `never`, such as padding, are not written."""
    memory = model.encode(src, src_mask)  # once
    tgt = torch.full((len(src), 1), start)
    for _ in range(max_len):
        log_probs = model.decode(memory, src_mask, tgt, causal_mask(tgt.size(1)))  # (B, T, vocab)
        last = log_probs[:, -1]  # only the last position predicts a new token
        last[:, list(never)] = -math.inf
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
# All eight are right. At each step, the decoder computes all positions again, although only the last one is
# new. *More in [11_search](11_search.ipynb): a cache that saves this work.*

# %% [markdown]
# ### It is real
#
# The translator at the top of this page is the same model, only larger: four layers on each side,
# $d_{model} = 128$, and a vocabulary of 10,000 tokens. Its weights fit into the classes that you have just
# read.

# %%
model = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.3)
print(model.load_state_dict(translator.model.state_dict()))
_ = model.eval()  # no dropout

# %% [markdown]
# Fifty sentences go through at once. The shorter ones are padded, and the source mask hides the padding.
# `translator.forbidden` lists the tokens that must not be written.

# %% tags=["scaffold"]
tokenizer = translator.src_tokenizer  # text to tokens and back, for both languages


def padded(texts):
    """The tokens of each text and the end token, padded to one length: (texts, tokens)."""
    rows = [torch.tensor([*tokenizer.encode(text), tokenizer.end]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad)


who = ["A man", "A little girl", "A young woman", "A brown dog", "An old lady in a red dress"]
what = ["runs across the grass", "sits on a bench", "plays in the snow", "jumps into the water", "is smiling"]
sentences = [f"{a} {b}{end}" for a in who for b in what for end in (".", " in the rain.")]  # 50

# %%
src = padded(sentences)  # (50, S)
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (50, 1, S)
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
# This is a working translator, and you have read every line of its model.
#
# *The first sitting ends here. The second one takes about twenty minutes.*

# %% [markdown]
# ## 4 Why Self-Attention
#
# | layer | work | steps that must wait for each other | longest path between two words |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
#
# *Two rows of the paper's Table 1, for $n$ tokens of width $d$.*
#
# Where does the work come from? Self-attention compares each of $n$ words with each of $n$ words, and each
# comparison is a dot product of $d$ numbers, for a total of $n^2 d$ multiplications. At each of $n$ words, an
# RNN multiplies a vector by a matrix of $d \times d$ numbers, for a total of $n d^2$.
#
# The last two columns are the two costs of an RNN, time and distance. With self-attention, the distance is
# gone. The waiting is gone in training, but when the model translates, the decoder still writes one word
# after another. The price of self-attention is the $n^2$ in the column *work*. For sentences of 25 words,
# this is almost nothing, but for books, it is the main problem.

# %% [markdown]
# ## 5 Training
#
# ### 5.1 Training Data and Batching, 5.2 Hardware
#
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about
# > 37000 tokens."
#
# *Byte-pair encoding* builds a vocabulary of pieces: frequent words stay whole, and rare words are built from
# parts. The authors trained on 4.5 million sentence pairs. The base model took 12 hours on
# eight GPUs.
#
# You have seen one training pair: the decoder reads `<s> eine Katze rennt` and predicts
# `eine Katze rennt </s>`. The two are the same sentence, **shifted by one**. The decoder always reads the
# right words, even where it would have written others. This is called **teacher forcing**. A batch of several
# sentences also contains padding, so the decoder's mask is the causal mask *and* the padding mask:

# %%
src = padded(["A cat runs.", "A cat sleeps on a chair."])  # (2, S)
tgt_y = padded(["Eine Katze rennt.", "Eine Katze schläft auf einem Stuhl."])  # (2, T), to be predicted
tgt = torch.cat([torch.full((2, 1), tokenizer.start), tgt_y[:, :-1]], dim=1)  # (2, T), read
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (2, 1, S)
tgt_mask = (tgt != tokenizer.pad).unsqueeze(1) & causal_mask(tgt.size(1))  # (2, T, T)
pieces = tokenizer.pieces(tgt[0].tolist())
show("mask of the shorter sentence", tgt_mask[0].int(), rows=pieces, columns=pieces, digits=0)

# %% tags=["check"]
length = (tgt[0] != tokenizer.pad).sum()
assert not tgt_mask[0, :, length:].any()
assert torch.equal(tgt_mask[1], causal_mask(tgt.size(1))[0])

# %% [markdown]
# The columns `<blank>` are padding, hidden in every row. The decoder also reads the `</s>` of the shorter
# sentence, although nothing is left to predict after it. So the loss counts neither this position nor the
# padding.
#
# *More in [07_batches_and_masks](07_batches_and_masks.ipynb).*

# %% [markdown]
# ### 5.3 Optimizer
#
# The optimizer is Adam, with $\beta_1 = 0.9$, $\beta_2 = 0.98$ and $\epsilon = 10^{-9}$. Its learning rate
# changes during training:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5}) \qquad (3)$$
#
# The rate rises in a straight line for the first *warmup* steps. After that, it falls like $1 / \sqrt{step}$.


# %%
def rate(step, d_model, warmup):
    """Equation 3; steps count from 1, and step 0 has the rate of step 1."""
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


for step in (1_000, 4_000, 16_000, 100_000):
    print(f"step {step:6}: learning rate {rate(step, d_model=512, warmup=4_000):.6f}")

# %% tags=["check"]
training_steps = range(1, 20_001)
assert max(training_steps, key=lambda s: rate(s, 512, 4000)) == 4000
assert abs(rate(16_000, 512, 4000) / rate(4000, 512, 4000) - 1 / 2) < 1e-9

# %% [markdown]
# The slow start is called **warm-up**. Without it, the first updates are too large, and the model may not
# recover.
#
# *More in [08_training_recipe](08_training_recipe.ipynb).*

# %% [markdown]
# ### 5.4 Regularization
#
# *Regularization* makes it harder for a model to memorize the training data.
#
# **Dropout.** In training, each number that leaves a sub-layer is set to 0 with probability 0.1; the numbers
# that remain are divided by 0.9. The same happens to the sums of embeddings and positions. So the network
# cannot rely on any single number. When the model translates, dropout is off.
#
# **Label smoothing.** The plain loss asks for probability 1 on the right token. The smoothed loss asks for
# 0.9, and spreads the other 0.1 over all other tokens, so a model gains nothing by being too sure. The paper
# says that this "hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU
# score". (Section 6 explains BLEU; perplexity is explained in [lesson 08](08_training_recipe.ipynb).)


# %%
def smoothed_loss(log_probs, target, smoothing=0.1):
    """(..., vocab) and the right tokens (...) -> a loss per token."""
    right = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (...)
    others = (log_probs.sum(dim=-1) - right) / (log_probs.size(-1) - 1)  # mean over the other tokens
    return -(1 - smoothing) * right - smoothing * others


# %% tags=["check"]
with torch.no_grad():
    per_token = smoothed_loss(model(src, tgt, src_mask, tgt_mask), tgt_y)  # (2, T)
real = tgt_y != tokenizer.pad
assert 0.3 < per_token[real].mean() < 6
with torch.no_grad():
    n, m = (src[0] != tokenizer.pad).sum(), real[0].sum()
    alone = smoothed_loss(model(src[:1, :n], tgt[:1, :m], None, causal_mask(m)), tgt_y[:1, :m])
assert torch.allclose(alone[0], per_token[0, :m], atol=1e-3)  # padding changes nothing

# %% [markdown]
# ### The tiny model, update by update
#
# The tiny model was trained with Adam, too, but at one rate, 0.03, and without dropout or smoothing. Here it
# is before its training and after 17, 42, 115 and 200 updates:
#
# ![The tiny model learns. After 0 updates: loss 2.92, eine 0.04, ein 0.05; cat looks mostly at cat, and the
# model writes cat cat cat cat cat cat. After 17 updates: loss 1.25, eine 0.21, ein 0.18; cat looks mostly at
# runs, and the model writes Hund rennt. After 42 updates: loss 0.54, eine 0.37, ein 0.19; cat looks mostly at
# runs, and the model writes eine Katze rennt. After 115 updates: loss 0.07, eine 0.88, ein 0.05; cat looks
# mostly at a, and the model writes eine Katze rennt. After 200 updates: loss 0.02, eine 0.96, ein 0.01; cat
# looks mostly at a, and the model writes eine Katze rennt.](../images/cat_learning.svg)
#
# *Figure 22. The loss, where cat looks in head 2, its vector after the encoder, the probabilities of eine and
# ein as the first word (in bold where it is the likeliest of all words), and what the model writes (in bold
# where it is right).*
#
# At first, the model writes nonsense. From update 17 on, *eine* beats *ein*. From update 42 on, *a cat runs*
# is translated correctly, and from update 68 on, all eight sentences are. Head 2 takes longer: only from
# update 115 on does *cat* look mostly at *a*. So the model translated correctly before its attention had the
# pattern that you have seen.
#
# The next cell shows all 200 updates. Press Play, or move the slider, and touch a number to see which numbers
# it was made from.
#
# **Before you run this:** which of the eight sentences does the model learn last?

# %%
from annotated.plots import watch_learning

watch_learning(past, vocab, [*pairs[2:], *pairs[:2]])

# %% tags=["check"]
from annotated import capture_attention

chances, looks = [], []
for old in past:
    with torch.no_grad(), capture_attention(old) as maps:
        chances.append(old.generator(old(english, read, None, causal_mask(4))).exp())  # (8, 4, 16)
    looks.append(maps["encoder", 0][2, 1, 1])  # of cat in head 2: (3,)
chances = torch.stack(chances)
right = (chances.argmax(dim=-1) == write).all(dim=-1)  # (201, 8)
eine, ein = (chances[:, 2, 0, number[word]] for word in ("eine", "ein"))
from_then_on = {
    17: eine > ein,
    42: right[:, 2],
    68: right.all(dim=1),
    115: torch.stack(looks).argmax(dim=-1) == 0,
}
for update, holds in from_then_on.items():
    assert holds[update:].all()
    assert not holds[update - 1]
assert [pairs[i][0][:2] for i in (~right[67]).nonzero()] == [["the", "dog"]] * 2
assert [f"{p:.2f}" for p in (eine[-1], probabilities[0, number["eine"]])] == ["0.96", "0.66"]

# %% [markdown]
# The two sentences with *the dog* come last. When training was over, we rounded the weights to one decimal,
# and you see what that cost: *eine* fell from 0.96 to the 0.66 that you computed.

# %% [markdown]
# ### It learns
#
# The smallest test of a new model is the *copy task*: read eight random numbers, and write the same eight. We
# train a new model for 400 updates, with the loss and the learning rate from above:


# %%
_ = torch.manual_seed(1)
copier = Transformer(vocab=11, N=2, d_model=32, d_ff=64, h=2, dropout=0.0)
adam = torch.optim.Adam(copier.parameters(), betas=(0.9, 0.98), eps=1e-9)  # as in section 5.3
losses = []
for step in range(1, 401):
    digits = torch.randint(1, 11, (64, 8))  # numbers from 1 to 10
    start = torch.zeros(64, 1, dtype=torch.long)  # 0 is the start token
    reads = torch.cat([start, digits[:, :-1]], dim=1)  # shifted by one
    loss = smoothed_loss(copier(digits, reads, None, causal_mask(8)), digits).mean()
    adam.param_groups[0]["lr"] = rate(step, d_model=32, warmup=100)  # the rate of this step
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
_ = copier.eval()

# %%
new = torch.randint(1, 11, (100, 8))
copied = (greedy(copier, new, None, 0, -1, max_len=8) == new).all(dim=1).sum()
print(f"loss ≈{losses[0]:.2f} at first, ≈{losses[-1]:.2f} at the end")
print(f"≈{copied} of 100 new rows copied without an error")

# %% tags=["check"]
assert losses[-1] < 0.75 < 2 < losses[0]
assert copied >= 80

# %% [markdown]
# A smoothed loss cannot reach 0. Here, the best prediction gives 0.9 to the right token and 0.01 to each of
# the ten others, and its loss is 0.555.
#
# *More in [09_first_example](09_first_example.ipynb).*

# %% [markdown]
# ## Five traps
#
# Most of these five mistakes raise no error, so they are hard to find.
#
# **1. `view` without `transpose`.** `split` must turn (B, T, d_model) into (B, h, T, d_k), and it is tempting
# to reshape directly to that shape. The code then runs but mixes the words, as in the lower half of Figure
# 12:

# %%
numbers = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]])  # a, cat, runs
print("right, head 1:", numbers.view(3, 2, 2).transpose(0, 1)[0].tolist())
print("wrong, head 1:", numbers.view(2, 3, 2)[0].tolist())

# %% tags=["check"]
assert numbers.view(3, 2, 2).transpose(0, 1)[0].tolist() == numbers[:, :2].tolist()
assert numbers.view(2, 3, 2)[0].tolist() == [[10, 11], [12, 13], [20, 21]]

# %% [markdown]
# Head 1 should get the first two numbers of each word. In the wrong version, it gets all of *a*, half of
# *cat*, and nothing of *runs*. Joining the heads has the same trap: transpose back before you flatten.
#
# **2. The shapes of masks.** The scores have four dimensions and a mask has three, so the mask needs one more
# for the heads. If you forget `mask.unsqueeze(1)`, PyTorch aligns the shapes from the right:
#
# ```
# scores               (B, h, T, S)
# mask.unsqueeze(1)    (B, 1, 1, S)   right: each sentence has its own mask, the same for all heads
# mask                    (B, 1, S)   wrong: B is now where the heads should be
# ```
#
# If the batch happens to have as many sentences as there are heads, say two of each, you get no error. But
# each head then takes the mask of one sentence: head 2 hides the padding of sentence 2, even when it reads
# sentence 1. With a single sentence, you get no error either, and the result is right. So test your code with
# a batch of several.
#
# **3. A softmax over the wrong dimension.** The scores are a matrix, so a softmax along its columns runs
# without an error, just like one along its rows. Here are both, for the scores of head 2:

# %%
show("right, dim=-1: each row adds up to 1", (scores / math.sqrt(2)).softmax(dim=-1), columns=words)
show("wrong, dim=-2: each column does", (scores / math.sqrt(2)).softmax(dim=-2), columns=words)

# %% tags=["check"]
wrong = (scores / math.sqrt(2)).softmax(dim=-2)
assert torch.allclose(wrong.sum(dim=-2), torch.ones(3).double())
assert near(wrong.sum(dim=-1), torch.tensor([1.39, 0.99, 0.62]), within=0.01)
later = scores.clone()
later[2] += 1.0  # another last query
hide = causal_mask(3)[0].logical_not()
before, after = (s.masked_fill(hide, -1e9).softmax(dim=-2) for s in (scores, later))
assert (after - before)[:2].abs().max() > 0.05  # what the earlier words look at depends on the last one
before, after = (s.masked_fill(hide, -1e9).softmax(dim=-1) for s in (scores, later))
assert torch.equal(after[:2], before[:2])

# %% [markdown]
# In the wrong version, the rows add up to 1.39, 0.99 and 0.62, so what a word gets is not a mean of the
# values: *a* gets too much, and *runs* gets too little. Under a causal mask it is worse. Then the weight that
# *a* gives to itself is divided by the sum of its column, which contains the scores of *cat* and *runs*. So
# the future leaks into the weights of the earlier words.
#
# **4. Tied embeddings with entries that are too large.** PyTorch fills an embedding table with numbers of
# variance 1. Used as an output matrix, such a table makes large logits, so an untrained model is nearly
# certain of words that it has picked at random. A model with a good start gives all 10,000 tokens about the
# same probability, and its loss is a little above $\log 10000 = 9.2$.

# %% tags=["scaffold"]
_ = torch.manual_seed(0)
vectors, targets = nn.functional.layer_norm(torch.randn(200, 512), (512,)), torch.randint(10_000, (200,))
for name, size in (("variance 1", 1.0), ("variance 1 / 512", 512**-0.5)):
    first = nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    print(f"{name:18} loss before training ≈{first:.1f}")

# %% tags=["check"]
first_losses = [
    nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    for size in (1.0, 512**-0.5)
]
assert first_losses[0] > 50
assert 9 < first_losses[1] < 11

# %% [markdown]
# **5. Forgetting `model.eval()`.** In training mode, dropout stays on and sets randomly chosen numbers inside
# the model to 0 while the model translates.

# %% tags=["scaffold"]
one = padded(["A man throws a ball to a dog."])


def tries():
    """The different translations of one sentence in five tries."""
    outs = [
        greedy(model, one, None, tokenizer.start, tokenizer.end, 20, translator.forbidden) for _ in range(5)
    ]
    return {tokenizer.decode(out[0].tolist()) for out in outs}


_ = torch.manual_seed(0), model.train()
with_dropout = tries()
_ = model.eval()
print(f"five tries: ≈{len(with_dropout)} translations in training mode, {len(tries())} after eval()")

# %% tags=["check"]
assert len(with_dropout) > 1
assert len(tries()) == 1

# %% [markdown]
# ## From here to GPT
#
# Most of today's language models are this model with boxes deleted. They continue a text, so there is no
# source sentence. Delete the encoder, and delete the cross-attention in each decoder layer. What remains is
# masked self-attention, followed by a feed-forward network: in other words, an **encoder layer with a causal
# mask**:


# %%
class GPT(nn.Module):
    """A language model: predict the next token from those before it."""

    def __init__(self, vocab, N, d_model, d_ff, h, dropout=0.1):
        super().__init__()
        self.embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.layers = Encoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)
        self.apply(initialize)
        nn.init.normal_(self.embed[0].lut.weight, std=d_model**-0.5)

    def forward(self, tokens):  # (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.layers(self.embed(tokens), causal_mask(tokens.size(1))))


# %% tags=["check"]
with torch.no_grad():
    gpt, tokens = GPT(vocab=20, N=2, d_model=16, d_ff=32, h=2).eval(), torch.arange(6)[None]
    before, after = gpt(tokens), gpt(torch.cat([tokens[:, :-1], torch.tensor([[9]])], dim=1))
assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)  # nobody looks ahead
assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)

# %% tags=["check"]
from annotated import check

parts = [attention, MultiHeadedAttention, AddNorm, FeedForward, Embeddings, PositionalEncoding, Generator]
parts += [Encoder, Decoder, Transformer, causal_mask, greedy, rate, smoothed_loss]
report = check.run({part.__name__: part for part in parts}, name="this page")
assert report.passed, report

# %% [markdown]
# Later models normalize before each sub-layer instead of after it, and differ in a few other details. *More
# in [17_since_2017](17_since_2017.ipynb).*

# %% [markdown]
# ## 6 Results and 7 Conclusion
#
# **Translation (6.1).** **BLEU** is a score from 0 to 100. It counts how many words of a translation, and how
# many of its two-, three- and four-word sequences, also occur in a human translation. A translation that
# is too short loses points. On English to German, the best earlier system, an ensemble, scored 26.4. The
# base model scores 27.3, and a larger one, called *big*, 28.4.
#
# **Variations (6.2).** Table 3 varies the base model, which scores 25.8 on another set of sentences. With one
# head of 512 numbers instead of eight heads of 64, it scores 24.9, and with two layers instead of six, 23.7.
#
# **Parsing (6.3).** The syntax tree of a sentence, written with brackets, is just another target sequence.
# From 40,000 sentences, a Transformer learned to write such trees, and it beat most earlier parsers trained
# on the same sentences.
#
# **Conclusion (7).**
#
# > "We are excited about the future of attention-based models and plan to apply them to other tasks."
#
# They did, and so did everyone else.
#
# *More in [12_results](12_results.ipynb) and [16_another_task](16_another_task.ipynb).*

# %% [markdown]
# ## What you can now say
#
# - Attention compares queries with keys, turns the scores into weights with a softmax, and mixes the values
#   with these weights. Several heads do this side by side.
# - A Transformer layer lets words look at each other and then works on each word alone. It adds each result
#   to the word's vector and normalizes the sum. The encoder runs once; the decoder reads its own words and
#   looks at the memory.
# - In training, the decoder reads the right words, shifted by one and under a causal mask, so all
#   positions are trained in one pass.
#
# **Deeper:** [Does dividing by √d_k still matter after the first
# updates?](evidence/does_the_division_matter.ipynb), [Why warm-up?](evidence/why_warm_up.ipynb)
#
# **Next:** [01_why_attention](01_why_attention.ipynb), then [02_attention](02_attention.ipynb) and
# [03_multi_head_attention](03_multi_head_attention.ipynb), which take attention apart.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: compute what *cat* gets from head 1 of the encoder. The query
# of *cat* is (0.28, −0.53). The keys of *a*, *cat* and *runs* are (0.88, 0.40), (0.08, 0.75) and (−1.16,
# 0.03), and their values are (0.88, 0.38), (−1.04, −0.39) and (−0.43, −0.62). First the three scores, divided
# by $\sqrt 2$; then the weights, for which you need a pocket calculator; then the output. You will find the
# weights and the output in the section on multi-head attention.

# %% tags=["solution"]
# Scores: (0.28 * 0.88 - 0.53 * 0.40) / 1.41 = 0.02, (0.28 * 0.08 - 0.53 * 0.75) / 1.41 = -0.27, and (-0.28 *
# 1.16 - 0.53 * 0.03) / 1.41 = -0.24. Their exponentials are 1.02, 0.76 and 0.79, and the sum is 2.57. So the
# weights are 0.40, 0.30 and 0.30 (or 0.31, because we round in between), and the output is 0.40 * (0.88,
# 0.38) + 0.30 * (-1.04, -0.39) + 0.30 * (-0.43, -0.62) = (-0.09, -0.15).
fits = torch.tensor([[0.88, 0.40], [0.08, 0.75], [-1.16, 0.03]]) @ torch.tensor([0.28, -0.53]) / math.sqrt(2)
gets = fits.softmax(dim=0) @ torch.tensor([[0.88, 0.38], [-1.04, -0.39], [-0.43, -0.62]])
print("weights", [f"{w:.2f}" for w in fits.softmax(dim=0)], "output", [f"{number:.2f}" for number in gets])
assert near(fits.softmax(dim=0), weights_1[1])
assert near(gets, head_1[1])

# %% [markdown]
# **Exercise 2 (medium).** Write multi-head attention yourself; you may use `attention`. Keep the name
# `linears` for the four maps. Masks are `True` where a position may be looked at. Write your code in the next
# cell and run the test below it. The test prints `right`, or it says what is wrong and, where it can, names
# the likely mistake. The solution is folded, below the test.


# %% tags=["exercise"]
from torch import nn

from annotated import attention


class MyAttention(nn.Module):
    """Query (B, T, d_model), key and value (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import check


def test_my_attention(MyAttention):
    x = torch.zeros(2, 3, 8)
    output = MyAttention(h=2, d_model=8)(x, x, x)
    assert torch.is_tensor(output), f"forward must return a tensor, not {output!r}"
    report = check.multi_head_attention(MyAttention)
    assert report.passed, report


try:
    test_my_attention(MyAttention)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
class Solution(nn.Module):
    """Query (B, T, d_model), key and value (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            linear(x).view(x.size(0), x.size(1), self.h, -1).transpose(1, 2)
            for linear, x in zip(self.linears[:3], (query, key, value), strict=True)
        )
        heads, _ = attention(q, k, v, None if mask is None else mask.unsqueeze(1))
        return self.linears[3](heads.transpose(1, 2).flatten(2))


test_my_attention(Solution)

# %% [markdown]
# **Exercise 3 (medium).** Write the greedy loop yourself, without looking at the one above. The function
# `next_log_probs(tokens)` stands for the model. It takes the list of tokens written so far, and it returns a
# dictionary from each possible next token to its log-probability. Stop at `end` or after `max_len` tokens.


# %% tags=["exercise"]
def write_greedily(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import math
from random import sample


def test_write_greedily(write_greedily):
    cat, drawn = ["eine", "Katze", "rennt"], sample(["die", "rote", "Kuh", "schläft", "heute", "gern"], 6)
    for sentence, end, max_len in (cat, "</s>", 10), (cat, "</s>", 2), (cat, ".", 10), (drawn, "</s>", 10):

        def toy(tokens, sentence=sentence, end=end):
            following = [*sentence, end][len(tokens)] if tokens == sentence[: len(tokens)] else end
            found = {following: math.log(0.6), "und" if following == end else end: math.log(0.4)}
            return found if len(tokens) % 2 else dict(reversed(found.items()))

        written, wanted = write_greedily(toy, end, max_len), sentence[:max_len]
        told = f"with max_len={max_len} and end={end!r}, the likeliest tokens are {wanted}, not {written}"
        assert [*written] == wanted, told


try:
    test_write_greedily(write_greedily)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    tokens = []
    while len(tokens) < max_len:
        log_probs = next_log_probs(tokens)
        likeliest = max(log_probs, key=log_probs.get)
        if likeliest == end:
            break
        tokens.append(likeliest)
    return tokens


test_write_greedily(solution)

# %% [markdown]
# **The long exercise: build the whole model.** Close this page and write the Transformer into an empty
# file, `model.py`, with the names that you have seen here. Then test it in a terminal:
#
# ```
# annotated check model.py
# ```
#
# The tests, which the command calls *laws*, check properties that the model must have: for example, that no
# position of the decoder sees the future. For each test that fails, the command prints an example with its
# numbers and, where it can tell, the likely mistake. When none fails, let your own classes translate with the
# trained weights:
#
# ```
# annotated check model.py --translate "A dog runs across the grass."
# ```
#
# If you prefer not to start from an empty file, `annotated build mine` writes `mine/transformer.py`, in which
# you fill in the code of each part. Some of its names differ from those on this page: they are the names of
# "The Annotated Transformer" (Rush, 2018), and the tests accept these, too. With `--hints 1`, `2` or `3`,
# `annotated check` also gives hints.
