# %% [markdown]
# # 04 · Feed-forward network and embeddings
#
# **We add up two words so that no linear map can tell what they mean, let two ReLUs do what it cannot, and
# follow one matrix through the three places in which it has to serve.**
#
# Previous: [03_multi_head_attention](03_multi_head_attention.ipynb) · Next:
# [05_positional_encoding](05_positional_encoding.ipynb)
#
# *22 minutes to read, half a minute to run, the exercises extra.*
#
# - **Before:** you know attention ([02_attention](02_attention.ipynb)) and its heads
#   ([03_multi_head_attention](03_multi_head_attention.ipynb)).
# - **After:** you know what the ReLU is for, what "position-wise" means, which share of the work this
#   network does, and why embeddings are multiplied by $\sqrt{d_{model}}$ and shared with the output.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 3.3 and 3.4.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from itertools import product

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated import (
    Batch,
    Embeddings,
    MultiHeadedAttention,
    PositionwiseFeedForward,
    TransformerConfig,
    attention,
    evaluating,
    make_model,
    sinusoids,
)
from annotated.plots import count_parameters, plot_soft_lookup, setup_notebook, show_source

setup_notebook()
torch.set_num_threads(1)  # most of our matrices are too small for a second thread to be of use

# %% [markdown]
# ## Not bad
#
# Is it praise or blame? *So good* is praise, *so bad* is blame, *not good* is blame, *not bad* is praise. To
# know, one needs both words at once. Attention can bring them together, so let the vector of each phrase be
# the sum of its two words. Can a linear map read the answer from that sum: $+1$ for praise, $-1$ for blame?
# We take the best one, by least squares.

# %%
_ = torch.manual_seed(0)
vector = {word: torch.randn(512, dtype=torch.float64) for word in ("so", "not", "good", "bad")}
meant = {"so good": 1.0, "so bad": -1.0, "not good": -1.0, "not bad": 1.0}
x = torch.stack([sum(vector[word] for word in phrase.split()) for phrase in meant])  # (4, 512)
wanted = torch.tensor(list(meant.values()), dtype=torch.float64)

with_bias = torch.cat([x, torch.ones(4, 1)], dim=1)  # (4, 513)
best = torch.linalg.pinv(with_bias) @ wanted  # the best 512 weights and a bias
answers = with_bias @ best
for phrase, answer in zip(meant, answers.tolist(), strict=True):
    print(f"{phrase:9} wanted {meant[phrase]:+.0f}, best linear answer {abs(answer):.2f}")
assert_close(answers, torch.zeros(4).double())

# %% [markdown]
# The map has 513 parameters for four answers, and answers 0 each time. *So good* and *not bad* together have
# the same four words as *so bad* and *not good*. So for every linear map $f$, with or without a bias,
#
# $$f(\textit{so good}) + f(\textit{not bad}) = f(\textit{so bad}) + f(\textit{not good})$$
#
# but the left side should be $+2$ and the right side $-2$. (This is the **XOR problem**, famous since
# Minsky and Papert's *Perceptrons*, 1969.) Do two linear maps help, with 2,048 numbers between them?

# %%
wide = nn.Sequential(nn.Linear(512, 2048), nn.Linear(2048, 512)).double()
first, second = wide
one = nn.Linear(512, 512).double()
one.weight.data = second.weight @ first.weight  # (512, 2048) @ (2048, 512)
one.bias.data = second.weight @ first.bias + second.bias
assert_close(wide(x), one(x))
sizes = [sum(p.numel() for p in module.parameters()) for module in (wide, one)]
print(f"{sizes[0]:,} parameters do what {sizes[1]:,} can do")

# %% [markdown]
# Two linear maps in a row are one linear map. What about attention? It has a softmax, but only in the
# *weights*: once these are given, the output is linear in the values. And a single vector, such as our
# phrase, always has weight 1. We send each phrase, as a sentence of one vector, through six layers of
# attention with residual connections (but without layer norm, which is not linear:
# [06](06_the_full_model.ipynb)):

# %%
_ = torch.manual_seed(0)
layers = [MultiHeadedAttention(h=8, d_model=512, dropout=0.0).double() for _ in range(6)]
deep = x.unsqueeze(1)  # (4, 1, 512): four sentences of one vector
with torch.no_grad():
    for layer in layers:
        deep = deep + layer(deep, deep, deep)
left, right = deep[0] + deep[3], deep[1] + deep[2]
print(f"the two sides, through six layers of attention, differ by ≈{(left - right).abs().max():.0e}")
assert (left - right).abs().max() < 1e-9

# %% [markdown]
# Once two words are summed in one vector, attention on that vector alone cannot separate them. As two tokens
# it can. Let $a$ be $+1$ for *good* and $-1$ for *bad*, and $b$ be $+1$ for *so* and $-1$ for *not*. Praise
# is their product. Let an adverb's query be $10b$ and an adjective's key $a$. Then the adverb gives the
# adjective the score $10ab$, and itself 0. With the values $+1$ for adjectives and $-1$ for adverbs, the
# adverb's weights are the softmax of $(10ab, 0)$, and its output is $\tanh(5ab)$:

# %%
tokens = torch.stack([torch.stack([vector[word] for word in phrase.split()]) for phrase in meant])
b_a_value = torch.tensor([[1, 0, -1], [-1, 0, -1], [0, 1, 1], [0, -1, 1]]).double()  # so, not, good, bad
reader = torch.linalg.pinv(torch.stack(list(vector.values()))) @ b_a_value  # (512, 3)
b, a, value = (tokens @ reader).split(1, dim=-1)  # (4, 2, 512) -> three of (4, 2, 1)
answers = attention(10 * b, a, value)[0][:, 0, 0]  # (4,): at the first word, the adverb
for phrase, answer in zip(meant, answers.tolist(), strict=True):
    print(f"{phrase:9} as two tokens, one head: {answer:+.2f}")
assert_close(answers, wanted, rtol=0, atol=1e-3)

# %% [markdown]
# A score is a product, so attention can combine what *two* tokens say. Two words in *one* vector need
# something **non-linear** that acts on this vector. The simplest choice is $\max(0, z)$, called **ReLU**.
# The four word vectors are linearly independent, so a linear map can read $a$ and $b$ from the sum, and
# for such numbers $ab = |a + b| - 1$. The absolute value takes two ReLUs, $|z| = \max(0, z) + \max(0,
# -z)$.

# %%
a_and_b = torch.tensor([[1.0, 1], [-1, 1], [1, -1], [-1, -1]]).double()  # (4, 2)
reader = torch.linalg.pinv(x) @ a_and_b  # (512, 2): reads a and b out of a phrase
W_1 = reader @ torch.tensor([[1.0, -1], [1, -1]]).double()  # (512, 2): a + b, and -a - b
hidden = torch.relu(x @ W_1)  # (4, 2)
answers = hidden @ torch.ones(2).double() - 1
for phrase, units, answer in zip(meant, hidden.round().int().tolist(), answers.tolist(), strict=True):
    print(f"{phrase:9} first unit {units[0]}, second {units[1]}: answer {answer:+.0f}")
assert_close(answers, wanted)

# %% [markdown]
# All four are right. The first unit is on for *so good* alone, the second for *not bad* alone. **Each is a
# detector for one phrase.**
#
# ## Equation 2
#
# > "This consists of two linear transformations with a ReLU activation in between." (section 3.3)
#
# $$\mathrm{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2$$

# %%
show_source(PositionwiseFeedForward.forward, docstring=False)

# %% [markdown]
# Between the two maps the paper has $d_{ff} = 2048$ numbers, the *hidden units*, where we had 2.
#
# With one number in and one number out, we can see what a unit does. A house uses 10 kWh a day. Below 15 °C
# the heating adds 2 kWh for each degree; above 25 °C the cooling adds 3. Two devices are two units:

# %% tags=["figure-house"]
house = PositionwiseFeedForward(d_model=1, d_ff=2, dropout=0.0)
house.w_1.weight.data = torch.tensor([[-1.0], [1.0]])  # on when it gets colder; on when it gets warmer
house.w_1.bias.data = torch.tensor([15.0, -25.0])  # from where on
house.w_2.weight.data = torch.tensor([[2.0, 3.0]])  # how much a degree
house.w_2.bias.data = torch.tensor([10.0])  # and what is always used
measured = {0: 40.0, 5: 30.0, 10: 20.0, 15: 10.0, 20: 10.0, 25: 10.0, 30: 25.0, 35: 40.0}

degrees = torch.arange(0.0, 35.5, 0.5)
with torch.no_grad():
    used = house(degrees.unsqueeze(-1)).squeeze(-1)  # (71,)
points = torch.tensor([[t, 1.0] for t in measured])
line = torch.linalg.lstsq(points, torch.tensor(list(measured.values()))).solution  # slope and height
plot_soft_lookup(
    list(measured), list(measured.values()), degrees.tolist(),
    {"best linear map": degrees * line[0] + line[1], "two ReLU units": used},
    xlabel="outside (°C)", ylabel="electricity (kWh a day)", title="Two units, two bends", known="measured",
)  # fmt: skip
plt.show()
assert used[::10].tolist() == list(measured.values())

# %% [markdown]
# *Figure 1. Each unit makes one bend, at $-b_1 / w_1$. The sign of $w_1$ tells on which side it acts, and
# $w_1w_2$ is its slope. $b_2$ is the use that is always there.*
#
# **Exercise 1 (easy).** How many units give the larger of two numbers, $\max(a, b)$? And how many inside a
# residual sum $x + \mathrm{FFN}(x)$, as in the model? Give $W_1$ and $W_2$ for the second case, so that the
# first entry becomes the maximum.


# %% tags=["exercise"]
def larger() -> tuple[Tensor, Tensor]:
    """W_1 (2, units) and W_2 (units, 2), with as few units as possible and no biases."""
    raise NotImplementedError


# %% tags=["solution"]
def larger() -> tuple[Tensor, Tensor]:
    return torch.tensor([[-1.0], [1.0]]), torch.tensor([[1.0, 0.0]])  # max(a, b) = a + ReLU(b - a)


# One unit within the residual sum, which brings a along. Alone three, as a = ReLU(a) - ReLU(-a) costs two.
# Two would not do: max(a, b) bends only where a = b, so both could depend on b - a alone.

# %% tags=["exercise-test"]
W_1, W_2 = larger()
pairs = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
assert W_1.size(1) == 1
assert_close((pairs + torch.relu(pairs @ W_1) @ W_2)[:, 0], pairs.amax(dim=-1))

# %% [markdown]
# ### Why is $d_{ff}$ four times $d_{model}$?
#
# The paper gives no reason, only a comparison of three inner widths in its base model ($d_{model} = 512$;
# Table 3, rows C; BLEU: [03](03_multi_head_attention.ipynb)):
#
# | $d_{ff}$ | $d_{ff} / d_{model}$ | BLEU | parameters, millions |
# | --- | --- | --- | --- |
# | 1024 | 2 | 25.4 | 53 |
# | 2048 | 4 | 25.8 | 65 |
# | 4096 | 8 | 26.2 | 90 |
#
# Wider is better all the way, and costs more. Kaplan et al. (2020) varied the ratio in language models of a
# fixed size, and the loss hardly depended on it over a wide range. So 4 is a convention, not a law.
#
# ## The same at every position
#
# > "... a fully connected feed-forward network, which is applied to each position separately and identically.
# > ... Another way of describing this is as two convolutions with kernel size 1." (section 3.3)

# %%
_ = torch.manual_seed(0)
ff = PositionwiseFeedForward(d_model=512, d_ff=2048, dropout=0.0)
conv_1, conv_2 = nn.Conv1d(512, 2048, kernel_size=1), nn.Conv1d(2048, 512, kernel_size=1)
for conv, linear in ((conv_1, ff.w_1), (conv_2, ff.w_2)):
    conv.weight.data = linear.weight.data.unsqueeze(-1)  # (out, in) -> (out, in, 1)
    conv.bias.data = linear.bias.data

x = torch.randn(2, 7, 512)  # two sentences of seven tokens
one_by_one = torch.stack([ff(x[:, t]) for t in range(7)], dim=1)
convolved = conv_2(torch.relu(conv_1(x.mT))).mT  # a convolution wants (batch, channels, positions)
for name, other in {"a loop over positions": one_by_one, "two 1x1 convolutions": convolved}.items():
    print(f"{name}: differs by at most ≈{(other - ff(x)).abs().max():.0e}")
    assert_close(other, ff(x))

# %% [markdown]
# How does one *test* that? Shuffle the tokens: if the outputs are shuffled alike, the treatment is
# *identical*. But attention without positions passes that test too. For *separately* we ask the gradient
# which inputs an output depends on.

# %% tags=["figure-influence"]
from annotated.plots.drawing import draw_cell_borders, label_tokens

_ = torch.manual_seed(0)
sentence = ["the", "dog", "saw", "the", "little", "cat"]
attend, network = MultiHeadedAttention(2, 16, dropout=0.0), PositionwiseFeedForward(16, 64, dropout=0.0)
order, small = torch.randperm(6), torch.randn(1, 6, 16)
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), sharey=True)
parts = {"attention": lambda x: attend(x, x, x), "feed-forward": network}
for ax, (name, part) in zip(axes, parts.items(), strict=True):
    assert_close(part(small)[:, order], part(small[:, order]))  # both pass the shuffle
    jacobian = torch.autograd.functional.jacobian(part, small)  # (1, 6, 16, 1, 6, 16)
    grid = jacobian[0, :, :, 0].norm(dim=(1, 3))  # (6, 6)
    ax.imshow((grid / grid.max()).masked_fill(grid == 0, math.nan), vmin=0, vmax=1)
    label_tokens(ax, sentence, sentence)
    draw_cell_borders(ax, 6, 6)
    ax.set(title=name, xlabel="input", ylabel="output", facecolor="#d9d9d9")
    assert (grid > 0).sum() == (36 if name == "attention" else 6)
figure.colorbar(axes[0].images[0], ax=axes, label="influence (1: the panel's largest)")
plt.show()

# %% [markdown]
# *Figure 2. How much each output depends on each input, in two random layers; grey is zero. Through the
# feed-forward network, each depends on its own input alone.*
#
# So a layer divides its work. **Attention moves vectors between positions and mixes them; the feed-forward
# network transforms the vector at each position, and moves nothing.** The weights are the same at all
# positions, but "they use different parameters from layer to layer".
#
# ## Two thirds of an encoder layer
#
# Attention has four matrices of $512 \times 512$. The feed-forward network has two of $512 \times 2048$,
# as much as eight of attention's. A decoder layer has two attentions. The operations (multiplications and
# additions) grow with the matrices, and attention also has a score for every *pair* of tokens. We count
# for the base model with a vocabulary of 37,000, source and target equally long:


# %%
def operations(T: int, d: int = 512, d_ff: int = 2048, vocab: int = 37_000) -> dict[str, tuple[int, int]]:
    """By part, the operations of the feed-forward networks and of all, for T tokens on both sides."""
    attend = 4 * 2 * T * d * d + 2 * 2 * T * T * d  # projections; scores and blend
    network, last = 2 * 2 * T * d * d_ff, 2 * T * d * vocab
    stacks = 12 * network + 18 * attend
    return {
        "encoder layer": (network, network + attend),
        "decoder layer": (network, network + 2 * attend),
        "both stacks": (12 * network, stacks),
        "whole model": (12 * network, stacks + last),
    }


encoder_layer = make_model(10, 10, N=1, dropout=0.0).encoder.layers[0]
encoder_layer.self_attn.on_weights = lambda weights: None  # no fused kernel: its work would not be counted
with torch.no_grad(), FlopCounterMode(display=False) as counter:
    encoder_layer(torch.randn(1, 30, 512), None)
assert counter.get_total_flops() == operations(30)["encoder layer"][1]
shares = {part: network / total for part, (network, total) in operations(30).items()}
for part, share in shares.items():
    print(f"{part}: the feed-forward networks do {share:.0%} of the operations, at 30 tokens")
assert [round(share, 2) for share in shares.values()] == [0.66, 0.49, 0.56, 0.40]

# %% tags=["figure-shares"]
lengths = [2**n for n in range(2, 15)]  # 4 ... 16,384
_, ax = plt.subplots()
curves = {part: [operations(T)[part] for T in lengths] for part in operations(1)}
for (part, pairs), style in zip(curves.items(), ("o-", "s-", "--", ":"), strict=True):
    ax.plot(lengths, [network / total for network, total in pairs], style, label=part)
ax.axhline(0.5, color="grey", linewidth=1, zorder=0)
ax.set_xscale("log", base=2)
ax.set_xticks(lengths[::2], [f"{T:,}" for T in lengths[::2]])
ax.set(xlabel="tokens", ylabel="share of the operations", ylim=(0, 0.75))
ax.set_title("What the feed-forward networks do")
ax.legend(frameon=False)
plt.show()
even = operations(1024)["encoder layer"]
assert 2 * even[0] == even[1]

# %% [markdown]
# *Figure 3. The feed-forward networks' share of all operations. In an encoder layer it is two thirds for
# short sentences and one half at 1,024 tokens; in a decoder layer it is never more than a half.*
#
# ## A memory
#
# Put equation 2 beside equation 1, without biases and scaling:
#
# $$\mathrm{softmax}(q\,K^\top)\,V \qquad\qquad \mathrm{ReLU}(x\,W_1)\,W_2$$
#
# They have the same form. A hidden unit has a **key**, a column of $W_1$, and a **value**, a row of $W_2$.
# Above, the second unit's key fits the phrase *not bad*; its value is praise. Geva et al. (2021) call these
# networks **key-value memories**, and found units in trained models that react to certain phrases.
#
# There are two differences. Attention's keys are made from the tokens; these are *parameters*, the same for
# every sentence. And ReLU is not softmax. We take the two devices of the house:

# %%
for degree in (10.0, 20.0, 30.0):
    scores = house.w_1(torch.tensor([degree])).detach()  # (2,): heating, cooling
    with_relu, with_softmax = torch.relu(scores).tolist(), scores.softmax(dim=-1).tolist()
    print(f"{degree:.0f} °C: ReLU {with_relu}   softmax {[round(w, 2) for w in with_softmax]}")
    assert math.isclose(sum(with_softmax), 1, rel_tol=1e-5)
    assert (sum(with_relu) == 0) == (degree == 20)

# %% [markdown]
# At 20 degrees no key fits, and ReLU gives nothing. Softmax must share out its 1 even there: both devices
# would run, with weight 0.5 each. At 30 degrees softmax still has only 1 to give, but ReLU says *how much*.
#
# ## From a word to a vector
#
# At the model's input stands an **embedding** (section 3.4), a table with a row for each token. It is a
# linear map of a *one-hot* vector, which is 1 at the token and 0 elsewhere; in code, one just reads the row
# of the look-up table, `lut`.

# %%
_ = torch.manual_seed(0)
embed = Embeddings(d_model=512, vocab=2000)
tokens = torch.randint(2000, (2, 7))
one_hot = F.one_hot(tokens, 2000).float()  # (2, 7, 2000)
assert_close(embed(tokens), one_hot @ embed.lut.weight * math.sqrt(512))
show_source(Embeddings.forward, docstring=False)

# %% [markdown]
# > "In the embedding layers, we multiply those weights by √dmodel." (section 3.4)
#
# **Why?** The paper gives no reason. First: how long is an embedding beside the vector that tells its
# position and is added to it ([05](05_positional_encoding.ipynb))? That vector has length 16. The authors'
# code draws an embedding's entries with standard deviation $d_{model}^{-1/2}$, and so do we:

# %%
position = sinusoids(40, 512)  # (40, 512)
drawn = torch.randn(2000, 512, generator=torch.Generator().manual_seed(0)) / math.sqrt(512)
plain = drawn.norm(dim=-1).mean().item()
print(f"length of an embedding ≈{plain:.2f}, times sqrt(d_model) ≈{plain * math.sqrt(512):.1f}")
assert_close(position.norm(dim=-1), torch.full((40,), 16.0))
assert abs(plain - 1) < 0.01

# %% [markdown]
# With the factor, words and positions are of similar length; without it, positions are 16 times as long.
# (The outputs of the sub-layers are added too: [06](06_the_full_model.ipynb).) But PyTorch's `nn.Embedding`
# draws with standard deviation 1, which gives the same length without a factor. Why not use that?
#
# ## One matrix at both ends
#
# > "In our model, we share the same weight matrix between the two embedding layers and the pre-softmax linear
# > transformation ..." (section 3.4)
#
# At the output stands a linear map from the decoder's 512 numbers to a score for each token, its **logit**;
# a softmax turns the logits into probabilities. **Weight tying** (Press and Wolf, 2017) takes the same
# matrix for this map as for the two embeddings. A token's logit is then the dot product of the decoder's
# state with the token's own vector, as if the state were a query and the vocabulary the keys.
#
# Here the scale of the matrix matters. The state comes out of a layer norm: 512 entries of variance 1. If
# the matrix's entries have variance 1 too, a logit is a sum of 512 products of variance 1: its standard
# deviation is $\sqrt{512} = 22.6$. But a new model should find all tokens equally likely. With 2,000
# tokens, that is a loss (minus the logarithm of the right token's probability) of $\ln 2000 = 7.6$; logits
# of variance 1 are not quite equal, which adds about 0.5.
#
# We measure new models on random tokens. Their states still resemble the token just read, so the shared
# matrix gives *that* token the largest logit; the second loss leaves it out. Each standard deviation is
# tried with the factor at the input and without.

# %%
_ = torch.manual_seed(0)
shape = {"N": 2, "d_model": 512, "d_ff": 512, "h": 8, "dropout": 0.0}
tied = make_model(2000, 2000, **shape, tied_embeddings="all")
places = [tied.src_embed[0].lut.weight, tied.tgt_embed[0].lut.weight, tied.generator.proj.weight]
assert all(place is places[0] for place in places)
src, tgt = torch.randint(4, 2000, (8, 12)), torch.randint(4, 2000, (8, 13))
batch = Batch(src, tgt, pad=2)
for std, factor in product((1.0, 512**-0.5), (math.sqrt(512), 1.0)):
    nn.init.normal_(places[0], std=std)
    for end in (tied.src_embed[0], tied.tgt_embed[0]):
        end.d_model = factor**2  # its root is the factor
    with evaluating(tied):
        states = tied(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        log_probs = tied.generator(states)  # (8, 12, 2000)
        others = log_probs.scatter(-1, batch.tgt.unsqueeze(-1), -math.inf).log_softmax(dim=-1)
    loss, fair = (F.nll_loss(p.flatten(0, 1), batch.tgt_y.flatten()).item() for p in (log_probs, others))
    print(f"std {std:.3f}, factor {factor:4.1f}: loss ≈{loss:.1f}, without that token ≈{fair:.1f}")
    assert 50 < fair < loss if std == 1 else 7.5 < fair < 8.5 and (loss > fair + 0.5) == (factor > 1)

# %% [markdown]
# **The output wants entries of about $1/\sqrt{d_{model}}$, with or without the factor. The factor is for
# the input**, where entries of about 1 match the positions. It has a price: a new model gives the token
# just read about half of the probability (8.9 against 8.1). We have not trained with and without it.
#
# **Exercise 2 (medium).** Write the two ends of the model with one matrix. Draw it so that a new model
# knows nothing and its embeddings have entries of variance 1.


# %% tags=["exercise"]
class TiedEnds(nn.Module):
    """One matrix (vocab, d_model), and no other parameter."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        raise NotImplementedError

    def embed(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, d_model)."""

    def logits(self, states: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, vocab)."""


# %% tags=["solution"]
class TiedEnds(nn.Module):
    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, d_model) / math.sqrt(d_model))

    def embed(self, tokens: Tensor) -> Tensor:
        return self.table[tokens] * math.sqrt(self.table.size(1))

    def logits(self, states: Tensor) -> Tensor:
        return states @ self.table.T


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
ends = TiedEnds(256, 1000)
tokens = torch.randint(1000, (20, 10))
logits = ends.logits(F.layer_norm(torch.randn(20, 10, 256), (256,)))
assert [tuple(p.shape) for p in ends.parameters()] == [(1000, 256)]
assert 0.95 < ends.embed(tokens).std() < 1.05
assert math.log(1000) < F.cross_entropy(logits.flatten(0, 1), tokens.flatten()) < math.log(1000) + 1
assert ends.embed(torch.arange(1000)).allclose(ends.logits(torch.eye(256)).T * 16, atol=1e-5)

# %% [markdown]
# ### What sharing saves, and what it changes

# %%
for tied_embeddings in ("all", "target", "none"):
    config = TransformerConfig.base(37_000, 37_000, tied_embeddings=tied_embeddings)
    print(f'tied_embeddings="{tied_embeddings}": {sum(count_parameters(config).values()) / 1e6:.1f} million')
assert sum(count_parameters(config).values()) / 1e6 > 63.1 + 37
try:
    make_model(8000, 6000, tied_embeddings="all")
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# Table 3 prints 65 million; the paper does not say how it counted ([06](06_the_full_model.ipynb)). Sharing
# saves 38 million parameters of 101, but not one operation. It needs one vocabulary for both languages,
# which the paper has. And three uses now pull at one matrix. To see each, we give a second model three
# separate matrices with the same numbers.

# %%
pair = ("der Hund sah die kleine Katze .", "the dog saw the little cat .")
german, english = (line.split() for line in pair)
vocabulary = list(dict.fromkeys(["<s>", "</s>", "<blank>", *german, *english, "Haus", "house"]))
number = {word: n for n, word in enumerate(vocabulary)}
src = torch.tensor([[number[word] for word in german]])
tgt = torch.tensor([[number[word] for word in ("<s>", *english, "</s>")]])
batch = Batch(src, tgt, pad=number["<blank>"])
shape = {"N": 2, "d_model": 64, "d_ff": 256, "h": 4, "dropout": 0.0}
shared = make_model(len(vocabulary), len(vocabulary), **shape, tied_embeddings="all").double()
apart = make_model(len(vocabulary), len(vocabulary), **shape, tied_embeddings="none").double()
apart.load_state_dict(shared.state_dict())  # the same numbers, in three places
for model in (shared, apart):
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    F.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
ends = (apart.src_embed[0].lut.weight, apart.tgt_embed[0].lut.weight, apart.generator.proj.weight)
uses = dict(zip(("source", "target", "output"), (end.grad for end in ends), strict=True))  # (17, 64) each
assert_close(sum(uses.values()), shared.generator.proj.weight.grad)
for use, gradient in uses.items():
    rows = [vocabulary[n] for n in gradient.norm(dim=-1).nonzero().flatten().tolist()]
    shown = " ".join(rows[:8]) + " ..." * (len(rows) > 8)
    print(f"{use}: {len(rows)} of {len(vocabulary)} rows get a gradient: {shown}")
    assert use != "output" or len(rows) == len(vocabulary)

# %% [markdown]
# The shared matrix gets the sum of the three gradients. An embedding gives one only to the words that it
# has read. **The output gives one to every row**, because each token has some probability, and with this
# loss all but the right one should have less. So *Haus*, which occurs nowhere here, is pushed away from
# the decoder's states, as Gao et al. (2019) found for rare words. (Label smoothing,
# [08](08_training_recipe.ipynb), stops that at a small probability.)
#
# **Exercise 3 (hard).** Take the memory literally, and replace the feed-forward network by *attention over
# parameters*: $h$ heads, projections for queries and output without biases, and for each head $n$ trained
# keys and values, the same for all tokens, without projections. Which $n$ makes it as large as a
# feed-forward network without biases?


# %% tags=["exercise"]
class ParameterAttention(nn.Module):
    """(B, T, d_model) -> (B, T, d_model), with as many parameters as W_1 and W_2 of this d_ff."""

    def __init__(self, h: int, d_model: int, d_ff: int):
        super().__init__()
        raise NotImplementedError


# %% tags=["solution"]
class ParameterAttention(nn.Module):
    def __init__(self, h: int, d_model: int, d_ff: int):
        super().__init__()
        n = d_ff - d_model  # 2 d_model^2 + 2 n d_model = 2 d_model d_ff; 1,536 for the paper's sizes
        self.to_query = nn.Linear(d_model, d_model, bias=False)
        self.to_output = nn.Linear(d_model, d_model, bias=False)
        self.keys = nn.Parameter(torch.randn(h, n, d_model // h))
        self.values = nn.Parameter(torch.randn(h, n, d_model // h))

    def forward(self, x: Tensor) -> Tensor:
        query = self.to_query(x).unflatten(-1, (len(self.keys), -1)).transpose(1, 2)  # (B, h, T, d_k)
        heads, _ = attention(query, self.keys, self.values)
        return self.to_output(heads.transpose(1, 2).flatten(2))


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
place, tokens = ParameterAttention(h=4, d_model=32, d_ff=128), torch.randn(2, 7, 32)
assert sum(p.numel() for p in place.parameters()) == 2 * 32 * 128
assert all(p.requires_grad for p in place.parameters())
one_by_one = torch.stack([place(tokens[:, t : t + 1]) for t in range(7)], dim=1).flatten(1, 2)
assert_close(place(tokens), one_by_one)  # position-wise
assert not torch.allclose(place(2 * tokens), 2 * place(tokens), atol=1e-3)  # and not linear

# %% [markdown]
# ## Further
#
# <details><summary>Further: the factor is also a learning rate</summary>
#
# Without sharing, a table with variance 1 and no factor gives the same model as a table with variance
# $1/d_{model}$ and the factor. They do not train alike. Adam's first steps change each entry by about the
# learning rate, however large its gradient ([08](08_training_recipe.ipynb)), and the factor comes after: the
# embedding changes 22.6 times as much. In plain gradient descent the factor multiplies the gradient too:
# $22.6^2 = 512$ times as much.
#
# </details>
