# %% [markdown]
# # 04 · Feed-forward network and embeddings
#
# **We add up two words so that no linear map can tell what they mean, build what can out of two ReLUs, and
# follow one matrix through the three places in which it has to serve.**
#
# Previous: [03_multi_head_attention](03_multi_head_attention.ipynb) · Next:
# [05_positional_encoding](05_positional_encoding.ipynb) · To see a whole model learn first:
# [09_first_example](09_first_example.ipynb)
#
# *40 minutes to read, under 30 seconds to run, the exercises extra.*
#
# - **Before:** you know attention ([02_attention](02_attention.ipynb)) and its heads
#   ([03_multi_head_attention](03_multi_head_attention.ipynb)). For the second half it helps to have seen a
#   loss.
# - **After:** you know what the ReLU is for, and what happens without it; what "position-wise" means, and
#   which test does *not* show it; where two thirds of a layer are; why the network is a memory; why
#   embeddings are multiplied by $\sqrt{d_{model}}$; and what one shared matrix saves, costs and learns.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). These are its sections 3.3 and 3.4.

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
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from annotated import (
    Batch,
    Embeddings,
    LabelSmoothing,
    MultiHeadedAttention,
    PositionwiseFeedForward,
    SimpleLossCompute,
    TransformerConfig,
    data_gen,
    evaluating,
    make_model,
    noam_scheduler,
    run_epoch,
    sinusoids,
)
from annotated.plots import count_parameters, plot_parameters, setup_notebook, show_source

# %%
from annotated.transformer.attention import attention
from annotated.transformer.model import EncoderDecoder

setup_notebook()
torch.set_num_threads(1)  # most of our matrices are too small for a second thread to be of use

# %% [markdown]
# ## Not bad
#
# Is it praise or blame? *So good* is praise, *so bad* is blame, *not good* is blame, *not bad* is praise. To
# know, one needs both words at once, and attention is made for that: it brings them together in one vector.
# Say it has done so, and the vector of each phrase is the sum of its two words. One linear map more, and we
# should have the answer: $+1$ for praise, $-1$ for blame. We take the best there is, by least squares.

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
# 513 free numbers for four answers, and the best is 0 for each: no idea. The vectors are not to blame. Look
# at the words: *so good* and *not bad* together have the same four as *so bad* and *not good*. Hence, for
# every linear map $f$ (a bias is allowed), whatever the vectors,
#
# $$f(\textit{so good}) + f(\textit{not bad}) = f(\textit{so bad}) + f(\textit{not good})$$
#
# The left side should be $+2$, the right side $-2$. A first guess is to make it bigger: two linear maps, and
# in between 2,048 numbers, four times as many as a word has.

# %%
assert_close(x[0] + x[3], x[1] + x[2])  # the same four words

wide = nn.Sequential(nn.Linear(512, 2048), nn.Linear(2048, 512)).double()
first, second = wide
one = nn.Linear(512, 512).double()
one.weight.data = second.weight @ first.weight  # (512, 2048) @ (2048, 512)
one.bias.data = second.weight @ first.bias + second.bias
assert_close(wide(x), one(x))
sizes = [sum(p.numel() for p in module.parameters()) for module in (wide, one)]
print(f"{sizes[0]:,} numbers do what {sizes[1]:,} can do")
assert sizes == [2_099_712, 262_656]

# %% [markdown]
# Two linear maps in a row are one linear map. Depth, width: nothing helps, as long as nothing bends.
#
# "But attention bends: there is a softmax in it." It bends the *weights*, that is, how vectors are mixed.
# (While *not* and *good* still stand apart, that may help.) Once they are in one vector there is nothing left
# to mix: the only weight is 1. We send each phrase, as a sentence of one vector, through six layers of
# attention with eight heads. As in the model, what a layer gives is added to what it got (a **residual
# sum**); and as in the model, once more with a **layer norm** after each sum, which shifts and scales a
# vector to mean 0 and variance 1. ([06_the_full_model](06_the_full_model.ipynb) is about both.)

# %%
_ = torch.manual_seed(0)
deep = make_model(10, 10, N=6, d_model=512, d_ff=8, h=8, dropout=0.0).double()


def attend_only(x: Tensor, norm: bool) -> Tensor:
    """Six encoder layers without their feed-forward networks: (4, 512) -> (4, 512), each a sentence."""
    x = x.unsqueeze(1)  # (4, 1, 512)
    for layer in deep.encoder.layers:
        x = x + layer.self_attn(x, x, x)
        x = layer.sublayer[0].norm(x) if norm else x
    return x.squeeze(1)


with torch.no_grad():
    plain, normed = attend_only(x, norm=False), attend_only(x, norm=True)
assert_close(plain[0] + plain[3], plain[1] + plain[2])
print("attention alone, six layers: still the same sum on both sides: True")
bent = (normed[0] + normed[3] - normed[1] - normed[2]).abs().max()
print("with layer norms, no longer:", bool(bent > 0.1))
assert bent > 0.1

# %% [markdown]
# On one vector, attention is a linear map. (A layer norm divides each vector by its own size. That does
# bend, a little.) Something else must bend each vector by itself.
#
# The simplest bend: $\max(0, z)$, called **ReLU**. Let $a$ be $+1$ for *good* and $-1$ for *bad*, and $b$
# be $+1$ for *so* and $-1$ for *not*; both can be read out of the phrase by a linear map. Praise is where
# they agree, $ab$. And for such numbers $ab = |a + b| - 1$, where $|z| = \max(0, z) + \max(0, -z)$. Two
# ReLUs:

# %%
a_and_b = torch.tensor([[1.0, 1], [-1, 1], [1, -1], [-1, -1]]).double()  # (4, 2)
reader = torch.linalg.pinv(x) @ a_and_b  # (512, 2): reads a and b out of a phrase

W_1 = reader @ torch.tensor([[1.0, -1], [1, -1]]).double()  # (512, 2): a + b, and -a - b
hidden = torch.relu(x @ W_1)  # (4, 2)
answers = hidden @ torch.ones(2).double() - 1
assert_close(answers, wanted)
for phrase, units, answer in zip(meant, hidden.round().int().tolist(), answers.tolist(), strict=True):
    print(f"{phrase:9} first unit {units[0]}, second {units[1]}: answer {answer:+.0f}")

# %% [markdown]
# All four right. Read the middle columns: the first unit is on for *so good* and for nothing else, the second
# for *not bad*. **Each has become a detector for one phrase.** Keep that; it comes back.
#
# ## Equation 2
#
# That was the paper's feed-forward network, with 2 units where the paper has 2,048:
#
# $$\mathrm{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2$$

# %%
show_source(PositionwiseFeedForward, docstring=False)
config = TransformerConfig.base(37_000, 37_000)
print("d_model:", config.d_model, " d_ff:", config.d_ff, " dropout inside:", config.relu_dropout)
assert (config.d_model, config.d_ff) == (512, 2048)

# %% [markdown]
# 512 numbers in, 2,048 inside, 512 out, as section 3.3 has it. (Dropout inside is not in the paper; other
# code has it, so there is a setting.) What can such a thing say? With one number in and one out, we can look
# at it.
#
# A house uses 10 kWh a day. Below 15 °C the heating adds 2 for each degree, above 25 °C the cooling adds 3.
# Two devices, two units:

# %%
house = PositionwiseFeedForward(d_model=1, d_ff=2, dropout=0.0)
house.w_1.weight.data = torch.tensor([[-1.0], [1.0]])  # on when it gets colder; on when it gets warmer
house.w_1.bias.data = torch.tensor([15.0, -25.0])  # from where on
house.w_2.weight.data = torch.tensor([[2.0, 3.0]])  # how much a degree
house.w_2.bias.data = torch.tensor([10.0])  # and what is always used
measured = {0: 40.0, 5: 30.0, 10: 20.0, 15: 10.0, 20: 10.0, 25: 10.0, 30: 25.0, 35: 40.0}

degrees = torch.arange(0.0, 35.5, 0.5)
with torch.no_grad():
    used = house(degrees.unsqueeze(-1)).squeeze(-1)  # (71,)
    at_points = house(torch.tensor(list(measured), dtype=torch.float32).unsqueeze(-1)).squeeze(-1)
assert at_points.tolist() == list(measured.values())
print("all eight measurements hit: True")

# %%
from annotated.plots import plot_soft_lookup

points = torch.tensor([[t, 1.0] for t in measured])
line = torch.linalg.lstsq(points, torch.tensor(list(measured.values()))).solution  # slope and height
straight = degrees * line[0] + line[1]
plot_soft_lookup(
    list(measured), list(measured.values()), degrees.tolist(),
    {"best linear map": straight, "two ReLU units": used},
    xlabel="outside (°C)", ylabel="electricity (kWh a day)", title="Two units, two bends", known="measured",
)  # fmt: skip
plt.show()
bends = (used.diff().diff().abs() > 1e-3).sum()
assert bends == 2
assert straight.max() - straight.min() < 5

# %% [markdown]
# $b_1$ says *where* a unit wakes up, the sign of $w_1$ on which side, $w_2$ what it then does, $b_2$ what
# holds anyway. Each unit is worth one bend. In 512 dimensions a bend is a whole flat wall through space, and
# there are 2,048 of them; between the walls the network is linear.
#
# **Exercise 1.** Let a network say the larger of two numbers, $\max(a, b)$. How many units does it take? And
# how many if it stands where it does in the model, inside a residual sum $x + \mathrm{FFN}(x)$?

# %% tags=["solution"]
_ = torch.manual_seed(0)
pairs = torch.randn(1000, 2)
a, b = pairs.unbind(dim=-1)
alone = torch.relu(a) - torch.relu(-a) + torch.relu(b - a)  # a itself costs two units: one for each sign
# Two would not do: both would have to bend where a = b, and such units know nothing but b - a.
assert_close(alone, pairs.amax(dim=-1))

inside = PositionwiseFeedForward(d_model=2, d_ff=1, dropout=0.0)
inside.w_1.weight.data = torch.tensor([[-1.0, 1.0]])  # b - a
inside.w_2.weight.data = torch.tensor([[1.0], [0.0]])  # added to the first number alone
nn.init.zeros_(inside.w_1.bias)
nn.init.zeros_(inside.w_2.bias)
assert_close((pairs + inside(pairs))[:, 0], pairs.amax(dim=-1))
print("three alone; one within the residual sum, which brings a along for nothing")

# %% [markdown]
# ## The same at every position
#
# Section 3.3 says of the network that it acts on each position *separately and identically*, and that one may
# also call it two convolutions with kernel size 1. Let us try. A loop over the words, and two convolutions
# with the same numbers in them:

# %%
_ = torch.manual_seed(0)
ff = PositionwiseFeedForward(d_model=512, d_ff=2048, dropout=0.0)
conv_1, conv_2 = nn.Conv1d(512, 2048, kernel_size=1), nn.Conv1d(2048, 512, kernel_size=1)
for conv, linear in ((conv_1, ff.w_1), (conv_2, ff.w_2)):
    conv.weight.data = linear.weight.data.unsqueeze(-1)  # (out, in) -> (out, in, 1)
    conv.bias.data = linear.bias.data

x = torch.randn(2, 7, 512)  # two sentences of seven words
one_by_one = torch.stack([ff(x[:, t]) for t in range(7)], dim=1)
# A convolution wants (batch, numbers of a word, words); `.mT` exchanges the last two.
convolved = conv_2(torch.relu(conv_1(x.mT))).mT
assert_close(ff(x), one_by_one)
assert_close(ff(x), convolved)
print("all at once = word by word = two 1x1 convolutions: True")

# %% [markdown]
# What if one forgets the two `.mT`? Seven words where 512 channels should be: PyTorch refuses. Unless a
# sentence has exactly 512 words, a common length to cut texts to.

# %%
try:
    conv_1(x)
except RuntimeError:
    print("  7 words: refused")
long = torch.randn(1, 512, 512)
forgotten = conv_2(torch.relu(conv_1(long)))
print("512 words: same shape:", forgotten.shape == ff(long).shape, " same numbers:", end=" ")
print(torch.allclose(forgotten, ff(long), atol=0.1))
assert not torch.allclose(forgotten, ff(long), atol=0.1)

# %% [markdown]
# How does one *test* that a layer is position-wise? "Shuffle the words: the outputs must come out shuffled in
# the same way." We shuffle, and as a control we shuffle attention too, which is everything but position-wise.

# %%
attend = MultiHeadedAttention(h=8, d_model=512, dropout=0.0)
order = torch.randperm(7)
for name, layer in {"feed-forward": ff, "attention": lambda x: attend(x, x, x)}.items():
    with torch.no_grad():
        passes = torch.allclose(layer(x)[:, order], layer(x[:, order]), atol=1e-5)
    print(f"{name:12} passes: {passes}")
    assert passes

# %% [markdown]
# Both pass. The test shows *identically*: no position is treated as special, by either. For *separately* we
# have to ask which inputs an output depends on at all, and that is what a gradient knows. For each pair of
# words: how much does the output at one change with the input at the other? A wider convolution joins in.

# %%
sentence = ["the", "dog", "saw", "the", "little", "cat"]
_ = torch.manual_seed(0)
small = torch.randn(1, 6, 16)
small_attend, small_ff = MultiHeadedAttention(2, 16, dropout=0.0), PositionwiseFeedForward(16, 64, 0.0)
kernel_3 = nn.Conv1d(16, 16, kernel_size=3, padding=1)
layers = {
    "attention": lambda x: small_attend(x, x, x),
    "feed-forward": small_ff,
    "convolution of width 3": lambda x: kernel_3(x.mT).mT,
}


def influence(layer) -> Tensor:
    """How much the output at each word (down) hangs on the input at each word (across): (6, 6)."""
    jacobian = torch.autograd.functional.jacobian(layer, small)  # (1, 6, 16, 1, 6, 16)
    return jacobian[0, :, :, 0].norm(dim=(1, 3))


# %%
from annotated.plots.grids import draw_cell_borders, label_tokens

maps = {name: influence(layer) for name, layer in layers.items()}
figure, axes = plt.subplots(1, 3, figsize=(13, 4.8), sharey=True)
for ax, (name, grid) in zip(axes, maps.items(), strict=True):
    image = ax.imshow(grid / grid.max(), vmin=0, vmax=1)
    label_tokens(ax, sentence, sentence)
    draw_cell_borders(ax, 6, 6)
    ax.set(title=name, xlabel="input", ylabel="" if ax is not axes[0] else "output")
figure.colorbar(image, ax=axes, label="influence (1: the panel's largest)")
plt.show()
place = torch.arange(6)
away = (place.unsqueeze(1) - place).abs()  # (6, 6)
for name, reach in (("attention", 5), ("feed-forward", 0), ("convolution of width 3", 1)):
    assert ((maps[name] > 0) == (away <= reach)).all()
print("furthest word heard: attention 5, feed-forward 0, convolution of width 3: 1")

# %% [markdown]
# A diagonal: no word hears of another. So a Transformer's layer divides its work. **Attention moves things
# between words and does not bend them. The network bends them and does not move them.** All that a model
# knows of *context* comes through attention, all that it *makes* of it happens here.
#
# The weights are the same along a sentence and different from layer to layer, section 3.3 goes on. In the
# package:

# %%
networks = [layer.feed_forward for stack in (deep.encoder, deep.decoder) for layer in stack.layers]
first_weights = [network.w_1.weight for network in networks]
different = all(not torch.equal(a, b) for i, a in enumerate(first_weights) for b in first_weights[:i])
print(f"{len(networks)} networks in 6 + 6 layers, no two alike: {different}")
assert len(networks) == 12
assert different

# %% [markdown]
# ## Two thirds of a layer
#
# Attention has given the paper its name. Where are the numbers? The base model's layers, counted:

# %%
base = make_model(10, 10, N=1)  # d_model = 512, d_ff = 2048, h = 8


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


encoder_layer, decoder_layer = base.encoder.layers[0], base.decoder.layers[0]
network = count(ff)
for name, layer in (("encoder layer", encoder_layer), ("decoder layer", decoder_layer)):
    print(f"{name}: {count(layer):,} parameters, feed-forward {network / count(layer):.1%}")
stacks = 6 * (count(encoder_layer) + count(decoder_layer))
print(f"both stacks:   {stacks:,} parameters, feed-forward {12 * network / stacks:.1%}")
assert count(encoder_layer.feed_forward) == network == 2 * 512 * 2048 + 2048 + 512
assert abs(network / count(encoder_layer) - 2 / 3) < 0.002

# %% [markdown]
# Attention has four matrices of $512 \times 512$; the network has two of $512 \times 2048$, as much as eight.
# Eight of twelve: two thirds. In the decoder, with its two attentions, it is one half.
#
# So the paper's table of variations can be checked. Row (C) of Table 3 has the base model with $d_{ff}$ of
# 1024 and 4096: 53 and 90 million parameters, where the base model has 65. Our count for the difference:

# %%
published = {1024: 53, 2048: 65, 4096: 90}  # millions, rounded
counted = {d_ff: 12 * (2 * 512 * d_ff + d_ff) / 1e6 for d_ff in published}
for smaller, larger in ((1024, 2048), (2048, 4096)):
    ours, theirs = counted[larger] - counted[smaller], published[larger] - published[smaller]
    print(f"d_ff {smaller} -> {larger}: counted {ours:.1f} million more, published {theirs}")
    assert abs(ours - theirs) < 1  # two rounded numbers

# %% [markdown]
# Now operations: each multiplication in a matrix product is one, each addition another. There attention
# should catch up: it has scores for every *pair* of words. PyTorch counts, and we hold a formula against it.


# %%
def formula(T: int, d: int = 512, d_ff: int = 2048) -> tuple[int, int]:
    """Operations of attention and of the network on T words."""
    projections, scores_and_blend = 4 * 2 * T * d * d, 2 * 2 * T * T * d
    return projections + scores_and_blend, 2 * 2 * T * d * d_ff


attend.on_weights = lambda weights: None  # somebody wants to see them: no fused kernel, all is counted
for T in (16, 128):
    x, counts = torch.randn(1, T, 512), []
    for layer in (lambda x: attend(x, x, x), ff):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            layer(x)
        counts.append(counter.get_total_flops())
    assert tuple(counts) == formula(T)
    print(f"{T:3} words: attention {counts[0]:13,}   feed-forward {counts[1]:13,}")

# %%
lengths = [2**n for n in range(2, 15)]  # 4 ... 16,384
_, ax = plt.subplots()
for name, (d, d_ff), style in (("base", (512, 2048), "-"), ("big", (1024, 4096), "--")):
    both = [formula(T, d, d_ff) for T in lengths]
    share = [network / (attention + network) for attention, network in both]
    (drawn,) = ax.plot(lengths, share, style, marker="o", label=f"{name}, d_model = {d}")
    ax.axvline(2 * d, color=drawn.get_color(), linewidth=1, linestyle=":")
    assert formula(2 * d, d, d_ff)[0] == formula(2 * d, d, d_ff)[1]
    assert abs(share[0] - 2 / 3) < 0.01
ax.set_xscale("log", base=2)
ax.set_xticks(lengths[::2], [f"{T:,}" for T in lengths[::2]])
ax.axhline(0.5, color="grey", linewidth=1, zorder=0)
ax.set(xlabel="words in the sentence", ylabel="share of the layer's operations", ylim=(0, 0.8))
ax.set_title("The feed-forward network's share of an encoder layer")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# "The cost of a Transformer is quadratic in the length." It is, and for a sentence of 30 words nobody
# notices: two thirds of the work is this network, which is linear in the length. The two are even at exactly
# $2\,d_{model}$ words (dotted), 1,024 for the base model. In anything shorter, whoever speeds up attention
# speeds up the smaller half.
#
# ## A memory
#
# Put equation 2 beside equation 1, and leave out biases and scaling:
#
# $$\mathrm{softmax}(q\,K^\top)\,V \qquad\qquad \mathrm{ReLU}(x\,W_1)\,W_2$$
#
# The same shape. A query is compared with keys, and where it fits, a value is handed over. So a hidden unit
# is a **key**, a column of $W_1$, with its **value**, a row of $W_2$. (`nn.Linear` stores both transposed.)
# *Not bad* was such an entry: key, the phrase; value, praise. An appendix that only early versions of the
# paper have draws this comparison; Sukhbaatar et al. (2019) and Geva et al. (2021) made more of it. As a
# look-up:

# %%
keys, values = ff.w_1.weight, ff.w_2.weight.T  # (2048, 512) each: 2,048 entries
x = torch.randn(2, 7, 512)


def look_up(x: Tensor) -> Tensor:
    """Equation 2, written as an attention with 2,048 keys: (..., 512) -> (..., 512)."""
    weights = torch.relu(x @ keys.T + ff.w_1.bias)  # (..., 2048)
    return weights @ values + ff.w_2.bias


assert_close(look_up(x), ff(x))
print("a look-up among", len(keys), "keys = the feed-forward network: True")

# %% [markdown]
# What the keys are is the first difference: attention's are the other words, here they are *parameters*, the
# same for every sentence. The second is ReLU in place of softmax, and it is not a detail. Take the house with
# its two devices. How much of each is on, at 10, at 20 and at 30 degrees?

# %%
for degree in (10.0, 20.0, 30.0):
    scores = house.w_1(torch.tensor([degree])).detach()  # (2,)
    with_relu, with_softmax = torch.relu(scores).tolist(), scores.softmax(dim=-1).tolist()
    print(f"{degree:.0f} °C: scores {scores.tolist()}", end="   ")
    print(f"ReLU {with_relu}   softmax {[round(w, 2) for w in with_softmax]}")
    assert math.isclose(sum(with_softmax), 1, rel_tol=1e-5)
    assert (sum(with_relu) == 0) == (degree == 20)

# %% [markdown]
# At 20 degrees no key fits, and ReLU hands over nothing. Softmax must share out its 1, so heating and cooling
# run at half power each. And at 30 degrees, or at 300, it has no more than 1 to give. ReLU says *how much*.
# In [02_attention](02_attention.ipynb) a sentence with every word said twice gave the same output as with
# every word said once: attention cannot count to two. This can.
#
# ### How many facts fit in
#
# What is a memory without facts? We make some up: 64 countries, 8 questions (capital, river, language ...),
# 64 possible answers, drawn at random. 512 facts. Attention is to have brought country and question into
# one vector, a sum as before; the network is to turn it into the vector of the answer. All word vectors are
# fixed at random, so whatever is known is known by the network.

# %%
_ = torch.manual_seed(0)
COUNTRIES, QUESTIONS, ANSWERS = 64, 8, 64
country, question = torch.randn(COUNTRIES, 64), torch.randn(QUESTIONS, 64)
asked = (country.unsqueeze(1) + question).flatten(0, 1) / math.sqrt(2)  # (512, 64): every combination
facts = torch.randint(ANSWERS, (len(asked),))
answer_vectors = torch.randn(ANSWERS, 64) / 8


def memorise(d_ff: int, bend: nn.Module, steps: int = 300) -> PositionwiseFeedForward:
    """A network trained on all facts."""
    torch.manual_seed(1)
    network = PositionwiseFeedForward(64, d_ff, dropout=0.0)
    network.activation = bend
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        F.cross_entropy(network(asked) @ answer_vectors.T, facts).backward()
        optimizer.step()
        optimizer.zero_grad()
        decay.step()
    return network


# %%
@torch.no_grad()
def known(network: nn.Module) -> float:
    """The share of facts that it gets right."""
    return ((network(asked) @ answer_vectors.T).argmax(dim=-1) == facts).float().mean().item()


widths = [4, 8, 16, 32, 128]
networks = {width: memorise(width, nn.ReLU()) for width in widths}
curves = {
    "with ReLU": [known(network) for network in networks.values()],
    "without": [known(memorise(width, nn.Identity())) for width in widths],
}
_, ax = plt.subplots()
for (name, shares), style in zip(curves.items(), ("o-", "s--"), strict=True):
    ax.plot(widths, shares, style, markersize=8, label=name)
ax.set_xscale("log", base=2)
ax.set_xticks(widths, [str(width) for width in widths])
ax.set(xlabel="units, d_ff", ylabel="share of 512 facts known", ylim=(0, 1.05))
ax.set_title("What a feed-forward network remembers")
ax.legend(frameon=False)
plt.show()
assert min(curves["with ReLU"][3:]) > 0.95
assert max(curves["without"]) < 0.55
print("with ReLU, 32 units know over 95%; without, no width knows 55%: True")

# %% [markdown]
# Without the ReLU there is a ceiling, at any width: the facts that can be told by adding what the country
# suggests to what the question suggests. The rest are *not bad* again. With it, every unit adds room, and 32
# units hold (nearly) all 512 facts. So it is not one key a fact. How are sixteen facts kept in one unit? We
# take a single unit out, and count the facts that go with it.

# %%
network = networks[32]
with torch.no_grad():
    fires = (network.w_1(asked) > 0).float()  # (512, 32)
lost = []
for unit in range(32):
    kept = network.w_2.weight.data[:, unit].clone()
    network.w_2.weight.data[:, unit] = 0
    lost.append(1 - known(network))
    network.w_2.weight.data[:, unit] = kept
lost = torch.tensor(lost)
on = fires.mean(dim=0)  # (32,): for which share of the facts each unit is on
print("every unit is on for between 20% and 85% of the facts:", bool(0.2 < on.min() <= on.max() < 0.85))
print("a typical one for about half:", bool(0.4 < on.median() < 0.7))
print("whichever is missing, 3% to 40% of the facts are lost:", bool(0.03 < lost.min() <= lost.max() < 0.4))
assert 0.2 < on.min() <= on.max() < 0.85
assert 0.4 < on.median() < 0.7
assert 0.03 < lost.min() <= lost.max() < 0.4

# %% [markdown]
# Each unit is on for about half of all facts, some for fewer, some for more, and so a fact is told by some
# sixteen units together. A memory, yes, but not a cabinet with a drawer for each thing.
#
# ### How many are on
#
# Half on, half off is also where a network *starts*: a random key is as likely to fit as not. Does it stay
# so in a model? A small Transformer learns to copy rows of symbols, the task of
# [09_first_example](09_first_example.ipynb), by the recipe of
# [08_training_recipe](08_training_recipe.ipynb). We listen at its two networks.

# %%
V = 11
_ = torch.manual_seed(0)
rows = next(data_gen(V, batch_size=100, nbatches=1))


def units_on(model: EncoderDecoder) -> dict[str, Tensor]:
    """For encoder and decoder, which units are on at which position: bool (rows * positions, d_ff)."""
    on, hooks = {}, []
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):

        def note(module: nn.Module, given: tuple, scores: Tensor, name: str = name) -> None:
            on[name] = (scores > 0).flatten(0, 1)

        hooks.append(stack.layers[0].feed_forward.w_1.register_forward_hook(note))
    with evaluating(model):
        model(rows.src, rows.tgt, rows.src_mask, rows.tgt_mask)
    for hook in hooks:
        hook.remove()
    return on


# %%
_ = torch.manual_seed(0)
copier = make_model(V, V, N=1, d_model=32, d_ff=256, h=4)
optimizer = torch.optim.Adam(copier.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
scheduler = noam_scheduler(optimizer, 32, factor=0.3, warmup=100)
criterion = LabelSmoothing(V, padding_idx=0, smoothing=0.1)
loss_compute = SimpleLossCompute(copier.generator, criterion)
at_birth = units_on(copier)
_ = run_epoch(data_gen(V, 64, 300), copier, loss_compute, optimizer, scheduler)
trained = units_on(copier)
for name in ("encoder", "decoder"):
    before, after = (on[name].float().mean() for on in (at_birth, trained))
    print(f"{name}: at birth about half on: {bool(0.4 < before < 0.6)}", end=", ")
    print(f"trained, below 45%: {bool(after < 0.45)}")
    assert after < 0.45 < before + 0.05

# %%
figure, axes = plt.subplots(1, 2, figsize=(13, 4.2), sharey=True)
for ax, (name, on) in zip(axes, {"at birth": at_birth, "trained": trained}.items(), strict=True):
    picture = on["encoder"][:40]  # 40 positions, 256 units
    often = on["encoder"].float().mean(dim=0).argsort(descending=True)  # the busiest units to the left
    ax.imshow(picture[:, often], cmap="Blues", aspect="auto", interpolation="nearest")
    ax.set(title=f"Encoder, {name} (dark: on)", xlabel="unit, the busiest first")
axes[0].set_ylabel("position")
plt.show()
dark = [axes[i].images[0].get_array().mean() for i in (0, 1)]
assert dark[1] < dark[0]

# %% [markdown]
# Four rows of ten symbols. At birth some units are on for everything, which says nothing; training empties
# the picture. In large trained models the emptying goes much further: Li et al. (2023) find some 3% of units
# on in a T5.
#
# That a unit is *off* is not almost nothing but exactly nothing: its row of $W_2$ need not even be read.

# %%
network = copier.encoder.layers[0].feed_forward
with torch.no_grad():
    word = torch.randn(32)
    weights = torch.relu(network.w_1(word))  # (256,)
    needed = weights.nonzero().flatten()
    from_needed = network.w_2.weight[:, needed] @ weights[needed] + network.w_2.bias
    assert_close(from_needed, copier.eval().encoder.layers[0].feed_forward(word))
print("fewer than 200 of the 256 rows of W_2 were needed, same output:", len(needed) < 200)
assert len(needed) < 200

# %% [markdown]
# **Exercise 2.** Turn it round: build the network's place out of *attention over parameters*. Eight heads of
# width 64, projections for queries and output without biases, and for each head $n$ trained keys and values,
# no projections for those. Which $n$ makes it exactly as large as the paper's network without its biases?
# (The early appendix did this experiment.)


# %% tags=["solution"]
class AttentionOverParameters(nn.Module):
    """Every word attends to the same n trained entries, with h heads."""

    def __init__(self, h: int, d_model: int, n: int):
        super().__init__()
        self.to_query = nn.Linear(d_model, d_model, bias=False)
        self.to_output = nn.Linear(d_model, d_model, bias=False)
        self.keys = nn.Parameter(torch.randn(h, n, d_model // h))
        self.values = nn.Parameter(torch.randn(h, n, d_model // h))

    def forward(self, x: Tensor) -> Tensor:
        query = self.to_query(x).unflatten(-1, (len(self.keys), -1)).transpose(1, 2)  # (B, h, T, d_k)
        heads, _ = attention(query, self.keys, self.values)
        return self.to_output(heads.transpose(1, 2).flatten(2))


n = (2 * 512 * 2048 - 2 * 512 * 512) // (2 * 8 * 64)
parameters = AttentionOverParameters(8, 512, n)
assert count(parameters) == ff.w_1.weight.numel() + ff.w_2.weight.numel() == 2_097_152
assert parameters(x).shape == ff(x).shape
order = torch.randperm(7)
assert_close(parameters(x)[:, order], parameters(x[:, order]))
print("n =", n)

# %% [markdown]
# ## From a word to a vector
#
# Now the two ends of the model, section 3.4. In front, an embedding: a table with a row for each token of the
# vocabulary. It looks like a thing of its own. It is a linear map, of a vector that is 1 at the token and 0
# elsewhere; the row is just read off, since nobody multiplies by all those zeros.

# %%
_ = torch.manual_seed(0)
embed = Embeddings(d_model=512, vocab=2000)
tokens = torch.randint(2000, (2, 7))
with torch.no_grad(), FlopCounterMode(display=False) as counter:
    row = embed.lut(tokens)  # (2, 7, 512)
one_hot = F.one_hot(tokens, 2000).float()  # (2, 7, 2000)
assert_close(row, one_hot @ embed.lut.weight)
assert counter.get_total_flops() == 0
print("a row of the table = a product with a one-hot vector: True, without a single multiplication")
show_source(Embeddings.forward, docstring=False)

# %% [markdown]
# And there it is, the factor. **Why multiply by $\sqrt{d_{model}}$?** The paper gives it in one sentence, and
# no reason with it. Two guesses are common.
#
# *It undoes the division in attention.* That one divides scores, and by $\sqrt{d_k} = 8$, where this is
# $\sqrt{512} = 22.6$. And from the second layer on, what attention sees comes out of a layer norm, which has
# removed any factor. So it is not that.
#
# *It makes words loud enough beside the positions.* The positional encodings, which come next
# ([05_positional_encoding](05_positional_encoding.ipynb)), are added to the words, and each has a length of
# exactly 16 at $d_{model} = 512$. But how long is a word? That depends on how the table is drawn. First as
# PyTorch draws it, every entry with variance 1:

# %%
position = sinusoids(40, 512)  # (40, 512)
assert_close(position.norm(dim=-1), torch.full((40,), 16.0))
sizes = {}
for name, deviation in (("PyTorch's, 1", 1.0), ("1 / sqrt(d_model)", 512**-0.5)):
    nn.init.normal_(embed.lut.weight, std=deviation)
    with torch.no_grad():
        lengths = [embed.lut.weight.norm(dim=-1).mean(), embed(torch.arange(2000)).norm(dim=-1).mean()]
    sizes[name] = [length.item() for length in lengths]
    print(f"deviation {name:18} a word as it is {lengths[0]:5.1f}, times the root {lengths[1]:5.0f}")
print("                             a position", f"{position[0].norm():8.1f}")
assert abs(sizes["PyTorch's, 1"][0] - 512**0.5) < 0.5
assert abs(sizes["1 / sqrt(d_model)"][1] - 512**0.5) < 0.5

# %% [markdown]
# With PyTorch's numbers a word is 22.6 long *without* the factor, and fits beside 16. The factor would make
# it 512, and drown the position: much code does just that, taking the factor from the paper and the numbers
# from PyTorch. So why not draw with variance 1 and leave the root out? It would be simpler. The answer is at
# the other end of the model.
#
# ## One matrix at both ends
#
# At the end stands a linear map from the decoder's 512 numbers to a score for each token, then a softmax. The
# model of section 3.4 has **one matrix in three places**: as the embedding of the source, as that of the
# target, and as this last map (after Press and Wolf, 2017). The shapes agree without a transpose: `nn.Linear`
# stores (out, in), which is (tokens, 512), a row a token.

# %%
show_source(EncoderDecoder.tie_embeddings, EncoderDecoder.reset_parameters, docstring=False)
_ = torch.manual_seed(0)
tied = make_model(2000, 2000, N=6, d_model=512, d_ff=512, h=8, dropout=0.0, tied_embeddings="all")
places = [tied.src_embed[0].lut.weight, tied.tgt_embed[0].lut.weight, tied.generator.proj.weight]
print("one and the same:", all(place is places[0] for place in places), tuple(places[0].shape))
assert all(place is places[0] for place in places)

# %% [markdown]
# What is a token's score, then? The product of the decoder's state with the token's own vector. *Which word's
# vector is most like what I have in mind?* Once more a look-up: the state is the query, the embeddings are
# the keys, and the softmax of section 3.4 is attention over the vocabulary.

# %%
state = torch.randn(4, 512)
with torch.no_grad():
    probabilities = tied.generator(state).exp()  # (4, 2000)
    table = tied.generator.proj.weight
    _, weights = attention(math.sqrt(512) * state, table, table)  # the root undoes equation 1's division
assert_close(weights, probabilities)
print("the model's prediction = weights of attention over the vocabulary: True")

# %% [markdown]
# And now size matters. The state comes out of a layer norm: 512 entries of variance 1. If the rows of the
# table have variance 1 too, a score is a sum of 512 products, $\pm 22.6$: the trouble of
# [02_attention](02_attention.ipynb), without anybody who divides. A fresh model should say "any of 2,000",
# which costs $\ln 2000 = 7.6$. We build it four times: two ways to draw, with and without the root.


# %%
def fresh(deviation: float, root: bool) -> tuple[float, float]:
    """Size of a word's entries beside a position's, and the loss, of a new model with one shared matrix."""
    torch.manual_seed(0)
    nn.init.normal_(tied.generator.proj.weight, std=deviation)
    for embeddings in (tied.src_embed[0], tied.tgt_embed[0]):
        embeddings.d_model = 512 if root else 1  # what the root is taken of
    src, tgt = torch.randint(4, 2000, (8, 12)), torch.randint(4, 2000, (8, 13))
    batch = Batch(src, tgt, pad=2)
    with evaluating(tied):
        ratio = tied.tgt_embed[0](batch.tgt).square().mean().sqrt() / position.square().mean().sqrt()
        states = tied(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        loss = F.nll_loss(tied.generator(states).flatten(0, 1), batch.tgt_y.flatten())
    return ratio.item(), loss.item()


four = {(s, root): fresh(s, root) for s in (1.0, 512**-0.5) for root in (False, True)}
for (deviation, root), (ratio, loss) in four.items():
    name = "1         " if deviation == 1 else "1 / sqrt(d)"
    print(f"deviation {name:11} {'with root' if root else 'no root':9}", end="  ")
    print(f"word : position = {ratio:5.2f},  loss at birth {'about 8' if loss < 9 else 'above 50'}")
    assert (7.6 < loss < 9) if deviation < 1 else loss > 50

# %% [markdown]
# Read the last column: only the small numbers give a sane prediction. Read the one before: of those two rows,
# only the one with the root lets words be heard. **The end of the model wants the matrix small, by
# $1/\sqrt{d_{model}}$; the front wants it of ordinary size; the root is the price of using one matrix for
# both.** The authors' own code (tensor2tensor) draws with that deviation, and so does `reset_parameters`
# above.
#
# By eye, 40 tokens and a quarter of their numbers, all on one scale:

# %%
_ = torch.manual_seed(0)
drawn = torch.randn(40, 512) / math.sqrt(512)  # as the shared matrix is drawn
figure, axes = plt.subplots(2, 3, figsize=(13, 6.4), sharex=True, sharey=True)
for panels, (name, words) in zip(
    axes, {"no root": drawn, "with root": drawn * math.sqrt(512)}.items(), strict=True
):
    parts = {f"words, {name}": words, "positions": position, "the sum": words + position}
    for ax, (title, part) in zip(panels, parts.items(), strict=True):
        image = ax.imshow(part[:, :128], cmap="PuOr", vmin=-2.5, vmax=2.5, aspect="auto")
        ax.set_title(title)
for ax in axes[:, 0]:
    ax.set_ylabel("position")
for ax in axes[1]:
    ax.set_xlabel("dimension")
figure.colorbar(image, ax=axes, label="value")
plt.show()
share = [
    (words.square().sum() / (words + position).square().sum()).item() for words in (drawn, drawn * 512**0.5)
]
print(f"the words' share of the sum's squares: {share[0]:.1%} without the root, {share[1]:.0%} with it")
assert share[0] < 0.01 < 0.6 < share[1] < 0.75

# %% [markdown]
# Above, the third picture is the second: whatever the words are, the first layer would see little more than
# where they stand. Below, neither covers the other. And that is so at every width: a position is always
# $\sqrt{d_{model}/2}$ long, a word now $\sqrt{d_{model}}$. All four ways again:

# %%
from annotated.plots import plot_by_width

widths = [16, 32, 64, 128, 256, 512, 1024]
no_root = {"drawn with 1": [], "drawn with 1 / sqrt(d)": []}
for d in widths:
    ordinary = (torch.randn(2000, d).norm(dim=-1).mean() / sinusoids(1, d).norm()).item()
    no_root["drawn with 1"].append(ordinary)
    no_root["drawn with 1 / sqrt(d)"].append(ordinary / math.sqrt(d))
ratios = {
    name: {"no root": torch.tensor(curve), "with root": torch.tensor(curve) * torch.tensor(widths).sqrt()}
    for name, curve in no_root.items()
}
ax = plot_by_width(
    widths, ratios, ylabel="a word's length : a position's", title="Two of four keep the balance"
)
ax.set_xlabel("d_model")
plt.show()
balanced, too_loud = ratios["drawn with 1"].values()
too_quiet, also_balanced = ratios["drawn with 1 / sqrt(d)"].values()
assert_close(balanced, torch.full((7,), math.sqrt(2)), rtol=0.03, atol=0)
assert_close(also_balanced, balanced)
assert too_quiet[-1] < 0.05 < 40 < too_loud[-1]

# %% [markdown]
# ### A learning rate in disguise
#
# Suppose nothing is shared. Then a table with variance 1 and no root, and a table of $1/\sqrt{d}$ with the
# root, give the *same model*, to the last digit. Does it matter which one we take? We give both the same
# gradient and let Adam make one step with a rate of 0.001. How far does the vector move that the model sees?

# %%
_ = torch.manual_seed(0)
vectors, pull = torch.randn(1, 512), torch.randn(1, 512)


def moved(root: float, kind: type) -> float:
    """By how much each number of the word's vector changes in one step."""
    table = nn.Parameter(vectors / root)
    assert_close(table.detach() * root, vectors)  # the same word, whatever the root
    optimizer = kind([table], lr=0.001)
    (table * root * pull).sum().backward()
    optimizer.step()
    return (table.detach() * root - vectors).abs().mean().item()


for kind in (torch.optim.Adam, torch.optim.SGD):
    plain, scaled = moved(1.0, kind), moved(math.sqrt(512), kind)
    print(f"{kind.__name__:4}: no root {plain:.4f}, with root {scaled:.4f}: {scaled / plain:.1f} times")
    assert math.isclose(scaled / plain, math.sqrt(512) if kind is torch.optim.Adam else 512, rel_tol=1e-2)

# %% [markdown]
# At first, Adam moves every *entry* by the rate, whatever its gradient
# ([08_training_recipe](08_training_recipe.ipynb)), and the root comes after: the word moves 22.6 times as
# far. (In plain gradient descent it multiplies the gradient too, and counts twice.) Two models, equal at
# birth and not in training. Whoever removes the root as superfluous, and draws the table larger to make up
# for it, has also divided the learning rate of all words by 22.6.
#
# ## What sharing saves, and what it does not
#
# With the paper's 37,000 tokens (section 5.1):

# %%
configs = {
    "all three shared": TransformerConfig.base(37_000, 37_000),
    "target's two shared": TransformerConfig.base(37_000, 37_000, tied_embeddings="target"),
    "nothing shared": TransformerConfig.base(37_000, 37_000, tied_embeddings="none"),
}
plot_parameters(configs)
plt.show()
totals = [sum(count_parameters(config).values()) for config in configs.values()]
print("millions:", [round(total / 1e6, 1) for total in totals])
assert totals[2] - totals[0] == 2 * 37_000 * 512
assert totals[2] / totals[0] > 1.5

# %% [markdown]
# 38 million numbers saved, of 101. (The paper's table has 65 where we count 63.1;
# [06_the_full_model](06_the_full_model.ipynb) looks into it.) Now guess how many *operations* that saves.
# None: the last product is made all the same, and the look-up in front never had any. And that product is
# not small.

# %%
last = nn.Linear(512, 37_000, bias=False)
encoder_layer.self_attn.on_weights = lambda weights: None
operations = {}
for name, part in (("encoder layer", lambda x: encoder_layer(x, None)), ("last product", last)):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        part(torch.randn(1, 30, 512))
    operations[name] = counter.get_total_flops() // 30
print(f"six encoder layers: {6 * operations['encoder layer']:,} operations a word, in a sentence of 30")
print(f"the last product:   {operations['last product']:,}")
assert abs(operations["last product"] / (6 * operations["encoder layer"]) - 1) < 0.02

# %% [markdown]
# **Choosing a word out of 37,000 costs as much as the whole encoder.** What that means for the memory of
# a training run is in [08_training_recipe](08_training_recipe.ipynb); whether sharing makes translations
# better or worse, [11_search_and_averaging](11_search_and_averaging.ipynb) measures.
#
# Sharing across languages needs one vocabulary for both. The paper has one; a model that has two is refused:

# %%
try:
    make_model(8000, 6000, tied_embeddings="all")
except ValueError as error:
    print("ValueError:", error)
partly = make_model(8000, 6000, N=1, tied_embeddings="target")
assert partly.generator.proj.weight is partly.tgt_embed[0].lut.weight
assert partly.src_embed[0].lut.weight.shape == (8000, 512)

# %% [markdown]
# ### Three gradients, added up
#
# Three uses pull at one matrix. To see each, we take a model with three matrices that hold the same numbers.
# `backward` adds up whatever arrives at a parameter, so the shared matrix must get the sum.

# %%
pair = ("der Hund sah die kleine Katze .", "the dog saw the little cat .")
german, english = (line.split() for line in pair)
vocabulary = list(dict.fromkeys(["<s>", "</s>", "<blank>", *german, *english, "Haus", "house"]))
number = {word: n for n, word in enumerate(vocabulary)}
src = torch.tensor([[number[word] for word in german]])
tgt = torch.tensor([[number[word] for word in ("<s>", *english, "</s>")]])
batch = Batch(src, tgt, pad=number["<blank>"])

_ = torch.manual_seed(0)
shape = {"N": 2, "d_model": 64, "d_ff": 256, "h": 4, "dropout": 0.0}
shared = make_model(len(vocabulary), len(vocabulary), **shape, tied_embeddings="all").double()
apart = make_model(len(vocabulary), len(vocabulary), **shape, tied_embeddings="none").double()
apart.load_state_dict(shared.state_dict())  # the same numbers, in three places
for model in (shared, apart):
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    F.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
uses = {
    "read in the source": apart.src_embed[0].lut.weight.grad,
    "read in the target": apart.tgt_embed[0].lut.weight.grad,
    "scored at the end": apart.generator.proj.weight.grad,
}  # (17, 64) each
assert_close(sum(uses.values()), shared.generator.proj.weight.grad)
print("gradient of the shared matrix = the sum of the three: True")

# %%
import altair as alt

pulls = [
    {"word": word, "use": use, "pull": round(norm, 4)}
    for use, gradient in uses.items()
    for word, norm in zip(vocabulary, gradient.norm(dim=-1).tolist(), strict=True)
]
grid = alt.Chart(alt.Data(values=pulls), title="Who pulls at which row of the shared matrix").encode(
    x=alt.X("word:N", sort=vocabulary, title="row of the matrix", axis=alt.Axis(labelAngle=-45)),
    y=alt.Y("use:N", sort=list(uses), title=None, axis=alt.Axis(labelLimit=200)),
    tooltip=["word:N", "use:N", "pull:Q"],
)
colour = alt.Color("pull:Q", title="gradient's length", scale=alt.Scale(scheme="viridis"))
cells = grid.mark_rect(stroke="white").encode(color=colour).transform_filter("datum.pull > 0")
cells.properties(width=alt.Step(38), height=alt.Step(48))

# %% [markdown]
# A row is read only where its word stands: German words in the source, English ones in the target. But **at
# the end every row is pulled**, for every word of the vocabulary gets some probability, and at each place
# all but the right one are told to have less. Point at *Haus*, which occurs nowhere in this batch, and at
# *Hund*, which English never says.

# %%
only_end = uses["read in the source"].norm(dim=-1) + uses["read in the target"].norm(dim=-1) == 0
print("rows that only the end pulls at:", [vocabulary[i] for i in only_end.nonzero().flatten().tolist()])
assert {vocabulary[i] for i in only_end.nonzero().flatten()} == {"</s>", "<blank>", "Haus", "house"}
assert (uses["scored at the end"].norm(dim=-1) > 0).all()

never_said = [number[word] for word in ("Hund", "Katze", "Haus", "house")]
together = F.normalize(uses["scored at the end"][never_said], dim=-1)
likeness = together @ together.T
print(f"all of them in nearly the same direction, cosines above 0.8: {bool(likeness.min() > 0.8)}")
assert likeness.min() > 0.8

# %% [markdown]
# All that is not said is pushed the same way: away from where the states are. So the vectors of rare words
# drift together, in every batch, without having been seen (Gao et al., 2019, found it in trained models). In
# a model with three matrices a source word that nobody reads stands still. In the shared one it moves with
# every update, and its *reading* changes because it was *not said*.
#
# **Exercise 3.** Convince yourself with one update: which rows of the source's table does Adam move in the
# model with three matrices, and which in the shared one?

# %% tags=["solution"]
moved_rows = {}
for name, model in (("three matrices", apart), ("one matrix", shared)):
    table = model.src_embed[0].lut.weight
    before = table.detach().clone()
    torch.optim.Adam(model.parameters(), lr=0.001).step()
    moved_rows[name] = {vocabulary[i] for i in (table != before).any(dim=-1).nonzero().flatten().tolist()}
    print(f"{name}: {len(moved_rows[name])} of {len(vocabulary)} rows moved")
assert moved_rows["three matrices"] == set(german)
assert moved_rows["one matrix"] == set(vocabulary)

# %% [markdown]
# ### Born a parrot
#
# One last consequence. The decoder reads a word, adds its vector to the residual stream, and at the end asks
# which word's vector is most like the state. In a fresh shared model, what will it say? We let a six-layer
# decoder answer after each of its layers.

# %%
_ = torch.manual_seed(0)
newborn = make_model(2000, 2000, N=6, d_model=512, d_ff=512, dropout=0.0, tied_embeddings="all")
src, tgt = torch.randint(4, 2000, (8, 12)), torch.randint(4, 2000, (8, 13))
batch = Batch(src, tgt, pad=2)
repeats, likeness = [], []
with evaluating(newborn):
    memory = newborn.encode(batch.src, batch.src_mask)
    read = newborn.tgt_embed[0](batch.tgt)  # (8, 12, 512)
    x = newborn.tgt_embed(batch.tgt)
    for layer in newborn.decoder.layers:
        x = layer(x, memory, batch.src_mask, batch.tgt_mask)
        repeats.append((newborn.generator(x).argmax(dim=-1) == batch.tgt).float().mean().item())
        likeness.append(F.cosine_similarity(x, read, dim=-1).mean().item())
for depth, (share, cosine) in enumerate(zip(repeats, likeness, strict=True), start=1):
    print(f"after layer {depth}: says again what it read: {share:4.0%}, cosine with that word {cosine:.2f}")
assert repeats[0] > 0.95
assert repeats[-1] < 0.05
assert all(later < 0.7 * earlier for earlier, later in pairwise(likeness[:5]))

# %% [markdown]
# After one layer it repeats every word, without having learned anything. The state still resembles what was
# read, and the score of that word is 22.6 times the cosine: 11.7, where the highest of 2,000 random scores is
# about 3.4. Each further layer mixes in attention twice and a network once, and normalises; at each of the
# next four the likeness falls to little more than half, and the parrot falls silent. It is the sharing that
# makes it talk. Give the end a matrix of its own:

# %%
newborn.generator.proj.weight = nn.Parameter(torch.randn(2000, 512) / math.sqrt(512))
first_layer = newborn.decoder.layers[0]
with evaluating(newborn):
    x = first_layer(newborn.tgt_embed(batch.tgt), memory, batch.src_mask, batch.tgt_mask)
    again = (newborn.generator(x).argmax(dim=-1) == batch.tgt).float().mean().item()
print(f"after layer 1, nothing shared: says again what it read: {again:.0%}")
assert again < 0.05

# %% [markdown]
# Words are vectors now, of the right size, and there is a network to work on each of them. What no part of
# the model knows so far is *where* a word stands. [05_positional_encoding](05_positional_encoding.ipynb)
# tells it.
