# %% [markdown]
# # 04 · Feed-forward network and embeddings
#
# **You meet two-word phrases that no linear map can understand if it sees only the mean of the two words.
# Then you let two ReLUs understand them, and you follow one table of vectors to the three places where the
# model uses it.**
#
# Previous: [03_multi_head_attention](03_multi_head_attention.ipynb) · Next:
# [05_positional_encoding](05_positional_encoding.ipynb)
#
# *31 minutes to read, half a minute to run.*
#
# - **Before:** you know attention ([02_attention](02_attention.ipynb)) and its heads
#   ([03_multi_head_attention](03_multi_head_attention.ipynb)).
# - **After:** you can write the feed-forward network and the embeddings. You know what the ReLU is for,
#   what "position-wise" means, and why embeddings are multiplied by $\sqrt{d_{model}}$ and shared with the
#   output.
#
# This lesson covers sections 3.3 and 3.4 of the paper (Vaswani et al., 2017). Indented sentences are quoted
# from the paper. A number after `≈` may differ on your computer. You can skip the folded cells: the
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
# ## Not bad
#
# *So good* is praise, and *so bad* is criticism. But *not good* is criticism, and *not bad* is praise. To
# tell praise from criticism, you need both words of the phrase.
#
# Attention can bring the two words together. Suppose that it gives each of them a weight of one half, so that
# its output is half the sum of their vectors. The factor of one half makes no difference to what a linear map
# can do, so we take the sum itself. Can a linear map compute the answer from this sum: $+1$ for praise, and
# $-1$ for criticism? We give each word a vector of 512 random numbers and compute the best possible linear
# map, the one with the smallest squared errors. (`pinv` finds it without training.)
#
# **Before you run this:** the map has 512 weights and a bias, and there are only four answers to learn.
# Will it get all four right?

# %%
import torch
from torch import nn

torch.set_num_threads(1)  # our matrices are too small for more
_ = torch.manual_seed(0)
vector = {word: torch.randn(512).double() for word in ("so", "not", "good", "bad")}
meaning = {"so good": 1, "so bad": -1, "not good": -1, "not bad": 1}
phrases = torch.stack([sum(vector[word] for word in phrase.split()) for phrase in meaning])  # (4, 512)
inputs = torch.cat([phrases, torch.ones(4, 1)], dim=1)  # (4, 513): a 1 for the bias
wanted = torch.tensor(list(meaning.values())).double()
best = torch.linalg.pinv(inputs) @ wanted  # (513,)
for phrase, answer in zip(meaning, (inputs @ best).tolist(), strict=True):
    print(f"{phrase:9} should be {meaning[phrase]:+}, the best linear map says {round(answer, 2) + 0:.2f}")

# %% tags=["check"]
from torch.testing import assert_close

assert_close(inputs @ best, torch.zeros(4).double())

# %% [markdown]
# It gets none right. It says 0 each time, which is neither praise nor criticism. Why? The phrases *so good*
# and *not bad* together have the same four words as *so bad* and *not good*. For any linear map $f$, with or
# without a bias, that means
#
# $$f(\textit{so good}) + f(\textit{not bad}) = f(\textit{so bad}) + f(\textit{not good})$$
#
# But the left side should be $+2$, and the right side should be $-2$. A linear map adds up what each word
# says by itself, whereas here the meaning lies in the *combination* of the words. This is the XOR problem,
# famous since Minsky and Papert (1969).
#
# Two linear maps in a row do not help, because together they are one linear map. A nonlinear function must
# come between them. One of the simplest is $\max(0, z)$, which sets negative numbers to 0 and is called
# **ReLU**.
#
# Watch what it does here. Let $a$ be $+1$ for *good* and $-1$ for *bad*. Let $b$ be $+1$ for *so* and
# $-1$ for *not*. A first linear map can compute both numbers, because each word adds its own share: for
# $a$, *good* adds $+1$, *bad* adds $-1$, and *so* and *not* add 0. Then two **units** are enough: the
# first computes $\max(0, a + b)$, and the second computes $\max(0, -a - b)$. The answer is the sum of the
# two units, minus 1.

# %%
a_and_b = torch.tensor([[1.0, 1], [-1, 1], [1, -1], [-1, -1]])  # so good, so bad, not good, not bad
W_1 = torch.tensor([[1.0, -1], [1, -1]])  # (2, 2): a column for each unit
units = torch.relu(a_and_b @ W_1)  # (4, 2)
answers = units @ torch.tensor([1.0, 1]) - 1
for phrase, (first, second), answer in zip(meaning, units.tolist(), answers.tolist(), strict=True):
    print(f"{phrase:9} units {first:.0f} and {second:.0f}, answer {answer:+.0f}")

# %% tags=["check"]
assert_close(answers.double(), wanted)
reader = torch.linalg.pinv(phrases) @ a_and_b.double()  # (512, 2): reads a and b from the sum of two words
assert_close(phrases @ reader, a_and_b.double())
wide = nn.Sequential(nn.Linear(512, 2048), nn.Linear(2048, 512)).double()  # two linear maps in a row are one
one = wide[0].weight.T @ wide[1].weight.T
assert_close(wide(phrases), phrases @ one + wide(torch.zeros(512).double()))
import annotated

a, b, zero = *a_and_b.T.reshape(2, 4, 1, 1), torch.zeros(4, 1, 1)  # the adverb asks, with scores 10ab and 0
by_attention, _ = annotated.attention(10 * b, torch.cat([a, zero], 1), torch.tensor([[1.0], [-1.0]]))
assert_close(by_attention.flatten().double(), wanted, rtol=0, atol=1e-3)

# %% [markdown]
# All four answers are right. And you can see how: the first unit is on only for *so good*, and the second
# is on only for *not bad*. **Each unit is a detector for one combination.** That is the idea of the
# feed-forward network.
#
# **Remember:** a linear map of a mean with fixed weights cannot tell what a combination of words means. A
# unit with a ReLU can detect the combination.

# %% [markdown]
# ## Equation 2
#
# > "In addition to attention sub-layers, each of the layers in our encoder and decoder contains a fully
# > connected feed-forward network, which is applied to each position separately and identically. This
# > consists of two linear transformations with a ReLU activation in between." (section 3.3)
#
# $$\mathrm{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2 \qquad (2)$$
#
# The first map goes from $d_{model} = 512$ numbers to $d_{ff} = 2048$ units. Then comes the ReLU, and the
# second map goes back to 512 numbers. In the tiny model of [00_start_here](00_start_here.ipynb), there are 4
# numbers and 8 units, and all biases are 0. Here are the two matrices of the feed-forward network in its
# encoder. The three vectors of *a cat runs* are the output of the attention sub-layer after layer
# normalization.

# %%
words = ["a", "cat", "runs"]
x = torch.tensor([[-0.96, 1.15, -1.03, 0.83], [-1.01, 1.66, -0.38, -0.28], [-0.46, -1.01, -0.19, 1.66]])
W_1 = torch.tensor(
    [
        [-0.4, 0.5, 0.7, 0.0, 0.2, 0.4, -0.2, -0.1],
        [-0.4, 0.4, -0.1, 0.3, -0.6, 0.5, -0.2, 0.4],
        [-0.1, 0.4, -0.7, 0.2, 0.4, 0.5, 0.0, 0.0],
        [0.5, -0.9, 0.3, -0.9, -0.3, -0.5, 0.3, 0.0],
    ]
)  # (4, 8): a column for each unit
W_2 = torch.tensor(
    [
        [-0.9, -0.3, -0.2, 0.2],
        [-1.3, 0.5, 0.2, 0.7],
        [-0.1, -0.7, -0.2, -0.6],
        [-1.2, -0.1, -0.1, -0.4],
        [0.4, -0.5, 0.6, 0.2],
        [-0.7, -0.2, 0.1, -0.1],
        [0.4, 0.3, 0.8, 0.6],
        [0.0, -0.6, 0.4, 0.5],
    ]
)  # (8, 4): a row for each unit


# %%
def show(title, matrix, rows=words):
    """Print a matrix to two decimals, with a name for each row."""
    print(title)
    for row, numbers in zip(rows, matrix.tolist(), strict=True):
        print(f"  {row:8}" + "".join(f"{number:8.2f}" for number in numbers))


units = torch.relu(x @ W_1)  # (3, 4) @ (4, 8) -> (3, 8)
output = units @ W_2  # (3, 8) @ (8, 4) -> (3, 4)
show("the eight units", units)
show("output", output)

# %% tags=["check"]
in_00 = torch.tensor([0, 0.26, 0, 0.68, 0, 0.38, 0, 0.77])
assert_close(units[1], in_00, rtol=0, atol=0.015)
assert 0.4 < (units == 0).float().mean() < 0.65

# %% [markdown]
# These are the numbers from lesson 00, up to rounding. For *cat*, units 2, 4, 6 and 8 are on, and the others
# are off. A unit that is on adds its row of $W_2$ to the output, multiplied by the unit's value, and a unit
# that is off adds nothing.
#
# So you can read the network like a list of rules, one for each unit. The unit's column of $W_1$ says *when*
# the rule applies, and its row of $W_2$ says *what* the rule adds to the word. (We set these two units by
# hand. Those of a trained network are seldom so clear.) In code:


# %%
class FeedForward(nn.Module):
    """Equation 2, the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_ff) -> (B, T, d_model)
        return self.w_2(self.w_1(x).relu())


# %% [markdown]
# *What do the units of a trained translator react to? And why did the authors themselves call this network
# "attention over parameters"? [What is a feed-forward
# layer?](evidence/what_is_a_feed_forward_layer.ipynb)*
#
# ### Must it be a ReLU?
#
# For *not bad*, we fixed the attention weights at one half. But attention chooses its weights with a softmax,
# which is not linear either. Could it do without the ReLUs if it were free to learn where to look? On the
# four phrases, we train an attention layer with two heads that is followed only by a linear map to one
# number. The answer is the mean over the two words.
#
# **Before you run this:** how many of the four phrases will it learn?

# %%
from annotated import MultiHeadedAttention


def learn_to_look(seed):
    """The answers of two heads and a linear map to the four phrases, after 100 updates."""
    torch.manual_seed(seed)
    two_words = torch.stack([torch.stack([vector[word] for word in phrase.split()]) for phrase in meaning])
    two_words = two_words.float()  # (4, 2, 512)
    look, read = MultiHeadedAttention(2, 512, dropout=0.0), nn.Linear(512, 1)
    adam = torch.optim.Adam([*look.parameters(), *read.parameters()], lr=0.001)
    for _ in range(100):
        found = read(look(two_words, two_words, two_words)).mean(dim=1).squeeze(-1)  # (4,)
        adam.zero_grad()
        (found - wanted).square().mean().backward()
        adam.step()
    return found.detach()


learned = [learn_to_look(seed) for seed in range(5)]
right = sum((found.sign() == wanted).all().item() for found in learned)
print(f"all four phrases right: {right} of {len(learned)} random starts")
print("answers of the first:", [f"≈{answer:+.1f}" for answer in learned[0].tolist()])

# %% tags=["check"]
assert all((found - wanted).abs().max() < 0.5 for found in learned)
alone = MultiHeadedAttention(2, 512, dropout=0.0).double()
one_vector = alone(*[phrases.unsqueeze(1)] * 3).squeeze(1)  # (4, 512): each sum looks only at itself
assert_close(one_vector[0] + one_vector[3], one_vector[1] + one_vector[2])  # as in any linear map

# %% [markdown]
# All of them. So what we have shown is narrower than it looked: **something nonlinear must act. It can be the
# ReLU, or it can be the softmax, if its weights depend on the words.** The model has both, and each has work
# of its own. Attention has to choose words. It has no rules about a single word: if a word looks only at
# itself, its only weight is 1, and its vector passes through nothing but linear maps. The feed-forward
# network applies its many rules to what each word's vector already contains.
#
# ### Separately and identically
#
# The quote says "applied to each position separately and identically". *Identically* means that every word
# goes through the same $W_1$ and $W_2$, and *separately* means that no word sees another. The paper's short
# name for both is *position-wise*.
#
# We can make *separately* visible with the test from lesson 03: we change one input word and see which
# outputs change. Beside an attention layer and a feed-forward network, we test a convolution of width 3,
# which computes each output from a word and its two neighbors.
#
# **Before you run this:** the figure draws a line from an input word to an output word if changing that input
# changes that output. Of the nine possible lines, how many will there be in each of the three panels?

# %%
_ = torch.manual_seed(0)
attend, network = MultiHeadedAttention(2, 16, dropout=0.0), FeedForward(16, 64)
convolve = nn.Conv1d(16, 16, kernel_size=3, padding=1)  # expects (B, d_model, T)
layers = {
    "attention": lambda x: attend(x, x, x),
    "convolution, width 3": lambda x: convolve(x.transpose(1, 2)).transpose(1, 2),
    "feed-forward network": network,
}
sentence = torch.randn(1, 3, 16)
influences = {}
for name, layer in layers.items():
    influences[name] = torch.zeros(3, 3, dtype=torch.bool)  # a row for each output, a column for each input
    for column in range(3):
        other = sentence.clone()
        other[0, column] += 1  # another word there
        influences[name][:, column] = (layer(other) != layer(sentence))[0].any(dim=-1)

# %% tags=["figure-influence", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
fig, axes = plt.subplots(1, 3, figsize=(12, 3.3))
for ax, (name, influence) in zip(axes, influences.items(), strict=True):
    for row, column in influence.nonzero().tolist():
        ax.plot([column, row], [1, 0], color="C0" if row == 1 else "0.75", linewidth=4 if row == 1 else 2)
    for place, word in enumerate(words):
        for height in (0, 1):
            box = {"boxstyle": "round", "fc": "white", "ec": "0.5"}
            ax.text(place, height, word, ha="center", va="center", bbox=box, fontsize=15)
    ax.set(title=name, xlim=(-0.5, 2.5), ylim=(-0.25, 1.25), yticks=[0, 1], yticklabels=["output", "input"])
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
plt.show()

# %% [markdown]
# *Figure 1. A line means that the output depends on the input; the lines into cat are drawn thick. Attention
# has nine lines, the convolution of width 3 has seven, and the feed-forward network has three, because in it
# each word depends only on itself.*

# %% tags=["check"]
assert influences["attention"].all()
assert influences["convolution, width 3"].sum() == 7
assert influences["feed-forward network"].equal(torch.eye(3, dtype=torch.bool))
import annotated

theirs = annotated.PositionwiseFeedForward(16, 64, dropout=0.0)
_ = network.load_state_dict(theirs.state_dict())
assert_close(network(sentence), theirs(sentence))
assert_close(network(sentence)[:, 1], network(sentence[:, 1]))

# %% [markdown]
# So the two halves of a layer divide the work. **Attention moves information between words. The
# feed-forward network works on each word alone.** A Transformer alternates between the two: look around,
# think, look around, think.
#
# What becomes of a convolution if we make it narrower, from width 3 to width 1? It sees a word and none of
# its neighbors, and it multiplies every word by the same matrix. The paper says the same:
#
# > "Another way of describing this is as two convolutions with kernel size 1." (section 3.3)
#
# We can try it. Two convolutions of width 1 get the weights of our network:

# %%
first, second = nn.Conv1d(16, 64, kernel_size=1), nn.Conv1d(64, 16, kernel_size=1)
for convolution, linear in ((first, network.w_1), (second, network.w_2)):
    convolution.weight.data = linear.weight.data.unsqueeze(-1)  # (out, in) -> (out, in, 1)
    convolution.bias.data = linear.bias.data
convolved = second(first(sentence.transpose(1, 2)).relu()).transpose(1, 2)  # (1, 3, 16)
print(f"largest difference from the network: {(convolved - network(sentence)).abs().max():.6f}")

# %% tags=["check"]
assert_close(convolved, network(sentence))

# %% [markdown]
# ## Two thirds of a layer
#
# Which of the two halves is larger? Attention has four matrices of $512 \times 512$. The feed-forward
# network has one of $512 \times 2048$ and one of $2048 \times 512$.

# %%
import annotated

layer = annotated.make_model(100, 100, N=1).encoder.layers[0]
for name, part in (("attention", layer.self_attn), ("feed-forward network", layer.feed_forward)):
    print(f"{name:21} {sum(weights.numel() for weights in part.parameters()):9,} weights")

# %% tags=["check"]
sizes = [sum(w.numel() for w in part.parameters()) for part in (layer.self_attn, layer.feed_forward)]
assert 0.49 < 2 * sizes[0] / (2 * sizes[0] + sizes[1]) < 0.51  # of a decoder layer
assert sizes == [4 * (512**2 + 512), 2 * 512 * 2048 + 2048 + 512]
assert (
    0.65 < 2 * 512 * 2048 / (2 * 512 * 2048 + 4 * 512**2 + 2 * 30 * 512) < 0.67
)  # multiplications, 30 words

# %% [markdown]
# The feed-forward network holds two thirds of an encoder layer's weights. For short sentences it also does
# about two thirds of the multiplications. The paper's title says that attention is all you need, but in the
# encoder, attention is only the other third. (A decoder layer has two attention sub-layers, so there
# attention accounts for one half.)
#
# Why is $d_{ff}$ four times $d_{model}$? The paper gives no reason. It tried three widths (Table 3, rows
# C):
#
# | $d_{ff}$ | times $d_{model}$ | BLEU | parameters |
# | --- | --- | --- | --- |
# | 1024 | 2 | 25.4 | 53 million |
# | 2048 | 4 | 25.8 | 65 million |
# | 4096 | 8 | 26.2 | 90 million |
#
# Of these three, the widest is the best and the most expensive.

# %% [markdown]
# ## From a word to a vector: embeddings
#
# So far, every lesson has started with vectors for the words. They come from a table in which each token has
# a row, called the token's **embedding**. At first the rows are random, and training adjusts them.
#
# > "Similarly to other sequence transduction models, we use learned embeddings to convert the input tokens
# > and output tokens to vectors of dimension $d_{model}$. [...] In the embedding layers, we multiply those
# > weights by $\sqrt{d_{model}}$." (section 3.4)


# %%
import math


class Embeddings(nn.Module):
    """A vector for each token, times the square root of d_model."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)  # the look-up table
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):  # (B, T) -> (B, T, d_model)
        return self.lut(tokens) * self.scale


# %% [markdown]
# In the tiny model, the factor is $\sqrt 4 = 2$. The row of *cat* is (0.0, 0.6, 0.4, −0.2), so *cat* enters
# the model as (0.0, 1.2, 0.8, −0.4).
#
# Why multiply by $\sqrt{d_{model}}$? The paper does not say, so let us compare sizes. The model adds the
# position of a word to its embedding ([05_positional_encoding](05_positional_encoding.ipynb)). How long are
# these two vectors in the base model?
#
# **Before you run this:** a position consists of sines and cosines, and a row of the table consists of
# small random numbers. Which vector is longer?

# %%
from annotated import sinusoids

_ = torch.manual_seed(0)
table = torch.randn(2000, 512) / math.sqrt(512)  # small numbers; the next section says why they must be small
print(f"a position: length {sinusoids(40, 512).norm(dim=1).mean():.1f}")
print(f"a row of the table: length ≈{table.norm(dim=1).mean():.1f}")
print(f"a row times the root of 512: length ≈{(table * math.sqrt(512)).norm(dim=1).mean():.1f}")

# %% tags=["check"]
assert_close(sinusoids(40, 512).norm(dim=1), torch.full((40,), 16.0))
assert 0.95 < table.norm(dim=1).mean() < 1.05
theirs, mine = annotated.Embeddings(512, 2000), Embeddings(512, 2000)
_ = mine.load_state_dict(theirs.state_dict())
tokens = torch.randint(2000, (2, 7))
assert_close(mine(tokens), theirs(tokens))
assert_close(mine(tokens), nn.functional.one_hot(tokens, 2000).float() @ mine.lut.weight * math.sqrt(512))

# %% [markdown]
# Without the factor, the position is 16 times as long as the word's row, so the word is only a small part
# of the sum. With the factor, both have a similar length. But why not fill the table with larger numbers
# from the start? Because the same table has another job, at the other end of the model.

# %% [markdown]
# ## One table for three jobs
#
# > "In our model, we share the same weight matrix between the two embedding layers and the pre-softmax
# > linear transformation [...]." (section 3.4)
#
# At its other end, the model has a vector and needs a score for each token. These scores are called
# **logits**, and a softmax turns them into probabilities. To get the score of *Katze*, we take the dot
# product of the vector with the row of *Katze*. So the table that turns tokens into vectors also turns
# vectors into scores for tokens. This is called **weight tying** (Press and Wolf, 2017). The two
# languages share one vocabulary, so the table has three jobs:
#
# 1. English tokens to vectors, where the encoder begins;
# 2. German tokens to vectors, where the decoder begins;
# 3. vectors to logits, after the decoder.
#
# ![The row of cat goes into the encoder, the row of eine into the decoder, and the decoder's vector is
# compared with every row of the same table; the row of Katze has the largest dot
# product](../images/tied.svg)
#
# *Figure 2. One table, three jobs: look up, look up, compare.*
#
# In code, weight tying takes one line. Afterward, both modules hold the *same* parameter:

# %%
d_model, vocab = 512, 2000
embed, output = Embeddings(d_model, vocab), nn.Linear(d_model, vocab, bias=False)
output.weight = embed.lut.weight  # one table, (2000, 512)
print(sum(weights.numel() for weights in nn.ModuleList([embed, output]).parameters()), "weights in all")

# %% tags=["check"]
assert sum(weights.numel() for weights in nn.ModuleList([embed, output]).parameters()) == vocab * d_model
tied = annotated.make_model(100, 100, N=1, d_model=64, d_ff=64, h=2, tied_embeddings="all")
assert tied.src_embed[0].lut.weight is tied.tgt_embed[0].lut.weight is tied.generator.proj.weight

# %% [markdown]
# Now we can see why the rows must be small. The last step of the decoder is layer normalization, so the
# entries of its vectors have variance 1. If the entries of the table had variance 1, too, a logit would be a
# sum of 512 random products, and its typical size would be $\sqrt{512} = 22.6$, for the same reason as with
# the scores in lesson 02. The softmax would be sure of one token, and almost always of a wrong one. That is
# the fourth trap of [00_start_here](00_start_here.ipynb), where the loss of a new model was about 87 for
# 10,000 tokens.
#
# With entries of size $1/\sqrt{d_{model}}$, a typical logit has size 1; in lesson 00, the loss was then about
# 9.7. That is close to the loss of a model that finds all tokens equally likely, $\log 10000 = 9.2$. (The
# rest, 0.5, is half the variance of the logits.)
#
# **The output needs entries of about $1/\sqrt{d_{model}}$, and the input needs entries of about 1.
# Multiplying by $\sqrt{d_{model}}$ at the input serves both.**
#
# ### What sharing saves, and what it costs
#
# For the paper's 37,000 tokens, the table has 19 million numbers, which is almost a third of the base
# model. Without sharing, there would be three such tables:

# %%
for tied_embeddings in ("all", "none"):
    with torch.device("meta"):  # tensors without storage: only their sizes
        model = annotated.make_model(37_000, 37_000, tied_embeddings=tied_embeddings)
    total = sum(weights.numel() for weights in model.parameters())
    print(f'tied_embeddings="{tied_embeddings}": {total / 1e6:.1f} million parameters')

# %% tags=["check"]
assert 100 < total / 1e6 < 102

# %% [markdown]
# The paper says 65 million. We will come back to this difference in
# [06_the_full_model](06_the_full_model.ipynb).
#
# Sharing has a price: each of the three jobs now changes the same rows in its own way. To see what each job
# wants, we take the jobs apart. We give a small model three separate tables that hold the same numbers, and
# compute one loss for *a cat runs → eine Katze rennt*. Then we ask which rows of each table get a gradient.
#
# From here on, we also use the package's model. Its `Batch` prepares the masks and the shifted target
# ([07_batches_and_masks](07_batches_and_masks.ipynb)). The model itself returns the vectors that leave the
# decoder, and `model.generator` turns them into log-probabilities. In lesson 00, the model did both.
#
# **Before you run this:** the vocabulary also holds *Hund* and *dog*, which do not occur in the two
# sentences. In which of the three tables will their rows get a gradient?

# %%
tokens = ["<s>", "</s>", "<blank>", "a", "cat", "runs", "dog", "eine", "Katze", "rennt", "Hund"]
number = {token: i for i, token in enumerate(tokens)}
_ = torch.manual_seed(0)
sizes = {"N": 2, "d_model": 32, "d_ff": 64, "h": 2, "dropout": 0.0}
shared = annotated.make_model(11, 11, **sizes, tied_embeddings="all")  # one table
model = annotated.make_model(11, 11, **sizes, tied_embeddings="none")  # three tables ...
model.load_state_dict(shared.state_dict())  # ... with the same numbers
english = torch.tensor([[number[token] for token in ("a", "cat", "runs")]])
german = torch.tensor([[number[token] for token in ("<s>", "eine", "Katze", "rennt", "</s>")]])
batch = annotated.Batch(english, german, pad=2)
states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
loss = nn.functional.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten())
loss.backward()

# %%
tables = {
    "English in": model.src_embed[0].lut,
    "German in": model.tgt_embed[0].lut,
    "out": model.generator.proj,
}
pulled = {}
for name, holder in tables.items():
    pulled[name] = [token for token, row in zip(tokens, holder.weight.grad, strict=True) if row.norm() > 0]
    print(f"{name:11}", *pulled[name])

# %% tags=["check"]
assert pulled["English in"] == ["a", "cat", "runs"]
assert pulled["German in"] == ["<s>", "eine", "Katze", "rennt"]
assert pulled["out"] == tokens
states = shared(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
nn.functional.nll_loss(shared.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
together = sum(holder.weight.grad for holder in tables.values())  # one table gets the sum of the three pulls
assert_close(shared.generator.proj.weight.grad, together, rtol=1e-4, atol=1e-5)

# %% [markdown]
# At the inputs, only the tokens that were read get a gradient. At the output, **every** row gets one, in
# every update. The softmax gives every token some probability, and every token except the right one should
# have less. So the row of *Hund* is pushed away from the decoder's vectors, although *Hund* does not occur. A
# rare word is pushed away in almost every update. Gao et al. ([2019](https://arxiv.org/abs/1907.12009)) found
# that the rows of a trained table therefore lie close together, in a narrow cone.
#
# **Remember:** one table turns tokens into vectors and vectors into logits. The output needs small entries,
# so the table has small entries, and the input multiplies them by $\sqrt{d_{model}}$.

# %% [markdown]
# ## What you can now say
#
# - A mean with fixed weights brings words together, but a linear map of it cannot tell what a combination of
#   words means. ReLU units can: each detects a combination and adds its row of $W_2$ when it is on.
# - Attention moves information between words. The feed-forward network treats every word alone and in the
#   same way, and it holds two thirds of an encoder layer's weights.
# - An embedding is a row of a table, multiplied by $\sqrt{d_{model}}$. The same table also makes the
#   logits, and for this job its entries must be small.
#
# **Deeper:** [What is a feed-forward layer?](evidence/what_is_a_feed_forward_layer.ipynb)
#
# **Next:** [05_positional_encoding](05_positional_encoding.ipynb): how the model learns where a word
# stands.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: somebody forgets the ReLU in a feed-forward network with
# $d_{model} = 512$ and $d_{ff} = 2048$. There is no error, and the loss falls. Multiply out $(x W_1 + b_1)
# W_2 + b_2$: which single linear map is it? Count the weights and biases of this map and those of the
# network. What share of the network's parameters is wasted? The network is right about *so good*, *so bad*
# and *not good*, with $+1$, $-1$ and $-1$. What does it say about *not bad*?

# %% tags=["solution"]
# (x W_1 + b_1) W_2 + b_2 = x (W_1 W_2) + (b_1 W_2 + b_2): one map with a matrix of 512 x 512 and one bias.
# As f(so good) + f(not bad) = f(so bad) + f(not good), it says -1 - 1 - 1 = -3 to "not bad", a praise (+1).
three = torch.linalg.pinv(inputs[[0, 1, 2]]) @ wanted[[0, 1, 2]]  # right about the first three
assert_close(inputs @ three, torch.tensor([1.0, -1, -1, -3]).double())
both, needed = 2 * 512 * 2048 + 2048 + 512, 512 * 512 + 512
print(f"{both:,} weights do the work of {needed:,}: {1 - needed / both:.0%} are wasted")
first_map, second_map = nn.Linear(512, 2048).double(), nn.Linear(2048, 512).double()
product = first_map.weight.T @ second_map.weight.T
one_bias = first_map.bias @ second_map.weight.T + second_map.bias
assert_close(second_map(first_map(phrases)), phrases @ product + one_bias)

# %% [markdown]
# **Exercise 2 (medium).** Write the two ends of a model with one table and no other parameter. Fill the
# table so that the entries of the embeddings have variance 1 and the loss of a new model is close to
# $\log(vocab)$.


# %% tags=["exercise"]
import math

import torch
from torch import nn


class TiedEnds(nn.Module):
    """One table (vocab, d_model), and no other parameter."""

    def __init__(self, d_model, vocab):
        super().__init__()
        raise NotImplementedError

    def embed(self, tokens):
        """(B, T) -> (B, T, d_model)."""
        raise NotImplementedError

    def logits(self, states):
        """(B, T, d_model) -> (B, T, vocab)."""
        raise NotImplementedError


# %% tags=["exercise-test"]
import math

import torch
from torch import nn


def test_tied_ends(TiedEnds):
    torch.manual_seed(0)
    ends, tokens = TiedEnds(256, 1000), torch.randint(1000, (20, 10))
    states = nn.functional.layer_norm(torch.randn(20, 10, 256), (256,))
    shapes = [tuple(weights.shape) for weights in ends.parameters()]
    assert shapes == [(1000, 256)], f"the only parameter must be one table (1000, 256), not {shapes}"
    embedded, logits = ends.embed(tokens), ends.logits(states)
    shape = getattr(embedded, "shape", embedded)
    assert shape == (20, 10, 256), f"embed: the shape must be (20, 10, 256), not {shape}"
    shape = getattr(logits, "shape", logits)
    assert shape == (20, 10, 1000), f"logits: the shape must be (20, 10, 1000), not {shape}"
    variance = embedded.var().item()
    assert 0.9 < variance < 1.1, f"the entries of an embedding should have variance 1, not {variance:.3f}"
    start = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).item()
    told = f"a new model should find all tokens about equally likely: its loss is {start:.1f}, not about 7"
    assert math.log(1000) < start < math.log(1000) + 1, told
    both = ends.embed(torch.arange(1000)), ends.logits(torch.eye(256)).T * 16
    assert torch.allclose(*both, atol=1e-5), "embed and logits do not use the same table"


try:
    test_tied_ends(TiedEnds)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
class Solution(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, d_model) / math.sqrt(d_model))

    def embed(self, tokens):
        return self.table[tokens] * math.sqrt(self.table.size(1))

    def logits(self, states):
        return states @ self.table.T


test_tied_ends(Solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. A unit's column of $W_1$ decides whether the unit is on, and its row of
# $W_2$ is what the unit adds. The two look like a key and a value. Take this literally and replace the
# feed-forward network with *attention over parameters*. Each of its $h$ heads has $n$ trained keys and $n$
# trained values, the same for all words. One linear map makes the queries of all heads, and another one
# joins their outputs. There are no biases. For which $n$ does this layer have as many parameters as $W_1$
# and $W_2$? What is $n$ in the base model?


# %% tags=["exercise"]
import torch
from torch import nn

import annotated


class ParameterAttention(nn.Module):
    """(B, T, d_model) -> (B, T, d_model), with as many parameters as W_1 and W_2 of this d_ff."""

    def __init__(self, h, d_model, d_ff):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_parameter_attention(ParameterAttention):
    def made(h):
        torch.manual_seed(0)
        return ParameterAttention(h, 32, 128)

    layer, x = made(4), torch.randn(2, 5, 32)
    size = sum(weights.numel() for weights in layer.parameters())
    assert size == 2 * 32 * 128, f"W_1 and W_2 have {2 * 32 * 128:,} weights, but this layer has {size:,}"
    output = layer(x)
    shape = getattr(output, "shape", output)
    assert shape == x.shape, f"the shape must be (2, 5, 32), not {shape}"
    assert torch.allclose(output[:, 3], layer(x[:, 3:4])[:, 0], atol=1e-4), "each word must be treated alone"
    assert (output - layer(x.roll(1, 1))).abs().max() > 1e-4, "the output does not depend on the word"
    with torch.no_grad():
        for weights in layer.parameters():
            if weights.numel() != 32 * 32:  # keys and values, not the two maps
                weights.fill_(1.0)
    told = "if all values are alike, so are all outputs: the weights of a word's keys must sum to 1"
    assert torch.allclose(layer(x), layer(x)[:, :1], atol=1e-4), told
    assert (made(1)(x) - output).abs().max() > 1e-4, "with the same weights, 1 head does what 4 heads do"


try:
    test_parameter_attention(ParameterAttention)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
class Solution(nn.Module):
    def __init__(self, h, d_model, d_ff):
        super().__init__()
        n = d_ff - d_model  # 2 d_model^2 + 2 n d_model = 2 d_model d_ff, so 1,536 in the base model
        self.to_query = nn.Linear(d_model, d_model, bias=False)
        self.to_output = nn.Linear(d_model, d_model, bias=False)
        self.keys = nn.Parameter(torch.randn(h, n, d_model // h))
        self.values = nn.Parameter(torch.randn(h, n, d_model // h))

    def forward(self, x):
        query = self.to_query(x).unflatten(-1, (len(self.keys), -1)).transpose(1, 2)  # (B, h, T, d_k)
        heads, _ = annotated.attention(query, self.keys, self.values)
        return self.to_output(heads.transpose(1, 2).flatten(2))


test_parameter_attention(Solution)
