# %% [markdown]
# # 06 · The full model
#
# **We stack the parts of four notebooks in the four ways that occur to anyone, follow a gradient out
# through a door, and find the row of Table 3 that does not count like the others.**
#
# Previous: [05_positional_encoding](05_positional_encoding.ipynb) · Next:
# [07_batches_and_masks](07_batches_and_masks.ipynb) · To see a whole model learn:
# [09_first_example](09_first_example.ipynb)
#
# *40 minutes to read, under a minute to run, the exercises extra.*
#
# - **Before:** you know attention and its masks (02, 03), the feed-forward network and embeddings (04), and
#   positions (05).
# - **After:** you know what a residual saves and what it costs; what a layer norm does to a vector, and in
#   how many ways two of them differ; where the paper puts it, where most code puts it, and how to tell; why
#   there is a final norm or none, and never two; and where the 63 million parameters of the base model are.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.1.

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
from functools import partial

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

# %%
from annotated import (
    Batch,
    Decoder,
    DecoderLayer,
    Embeddings,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    Generator,
    LabelSmoothing,
    MultiHeadedAttention,
    PositionalEncoding,
    PositionwiseFeedForward,
    SimpleLossCompute,
    SublayerConnection,
    TransformerConfig,
    data_gen,
    evaluating,
    make_model,
    run_epoch,
    subsequent_mask,
)

# %%
from annotated.plots import (
    count_parameters,
    plot_gradient_norms,
    plot_model_flow,
    plot_normalised,
    plot_parameters,
    setup_notebook,
    show_source,
)
from annotated.transformer.model import EmbeddedPositions, Stack

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## Twelve parts in a row
#
# The encoder of section 3.1 is six layers, each an attention and then a feed-forward network. That makes
# twelve parts, each of which takes a sentence of vectors and gives one back. So we line them up: what comes
# out of one goes into the next. Twelve parts with fresh random weights, and eight random sentences of twenty
# words:

# %%
_ = torch.manual_seed(0)
newborn = make_model(1000, 1000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0)


def attend_to_itself(attend: nn.Module, x: Tensor) -> Tensor:
    return attend(x, x, x)  # queries, keys and values, all from the sentence


parts = []
for layer in newborn.encoder.layers:
    parts += [partial(attend_to_itself, layer.self_attn), layer.feed_forward]
with torch.no_grad():
    tokens = torch.randint(4, 1000, (8, 20))
    words = newborn.src_embed(tokens)  # (8, 20, 128)
print(len(parts), "parts; every one gives back", tuple(parts[0](words).shape))

# %% [markdown]
# Nothing is trained, so we cannot ask whether it works. But we can ask what is left of the words. How alike
# are they within a sentence, by the cosine of the angle between two? (1: all point the same way. They begin
# at 0.25: fresh embeddings have nothing in common, but twenty neighbouring positions have.) And how large are
# they, by the standard deviation of their entries?


# %%
def alike(x: Tensor) -> float:
    """Mean cosine between two different words of a sentence: (batch, len, d_model) -> a number."""
    unit, length = F.normalize(x, dim=-1), x.size(1)
    together = (unit @ unit.mT).sum(dim=(-2, -1)) - length  # without each word's 1 with itself
    return (together.mean() / (length * (length - 1))).item()


@torch.no_grad()
def through(wrap) -> tuple[list[float], list[float], list[float]]:
    """After each of the parts, applied as `wrap(x, part)`: likeness, size, cosine with the first x."""
    states = [words]
    for part in parts:
        states.append(wrap(states[-1], part))
    left = [F.cosine_similarity(x, words, dim=-1).mean().item() for x in states]
    return [alike(x) for x in states], [x.std().item() for x in states], left


ways = {"bare": through(lambda x, part: part(x))}
print("alike:", [f"{likeness:.2f}" for likeness in ways["bare"][0][:6]])
assert ways["bare"][0][3] > 0.995
assert abs(alike(newborn.src_embed[0](tokens))) < 0.05  # without positions: strangers

# %% [markdown]
# After the third part all twenty words point the same way. Attention takes means, and with fresh
# weights it takes nearly the same mean for everybody. What has become equal, no later part can tell apart.
# (Dong et al., 2021, prove it: attention upon attention forgets its words doubly exponentially fast.)
#
# The paper has one plus sign more, the **residual connection** (He et al., 2016): a part does not
# *replace* a word, it *adds* to it.

# %%
ways["residual"] = through(lambda x, part: x + part(x))
for name, (likeness, size, _) in ways.items():
    print(f"{name:8}  alike {likeness[3]:.2f} after three, {likeness[-1]:.2f} after twelve;", end="  ")
    print(f"size {size[0]:.1f} -> {size[-1]:.1f}")
assert ways["residual"][0][3] < 0.65
assert ways["residual"][1][-1] > 5 * ways["residual"][1][0]
assert_close(parts[1](2 * words), 2 * parts[1](words))  # a newborn network: no biases, and ReLU
assert parts[0](2 * words).std() > 2 * parts[0](words).std()  # an attention

# %% [markdown]
# The words live. (This is why section 3.1 has every part give $d_{model} = 512$ numbers: a sum needs equal
# widths.) And a new trouble comes with it: the vectors grow. "By one part's worth a part", one would think.
# But to twice as large a stream of vectors a newborn network adds twice as much, and attention even more: its
# values double, and its scores get sharper. So the growth is compound interest, a factor of more than five in
# twelve parts, and a decoder has eighteen. Something must keep the books.
#
# ## A norm for one word
#
# **Layer normalisation** (Ba et al., 2016) takes one vector, subtracts the mean of its entries, and divides
# by their standard deviation:
#
# $$\mathrm{LayerNorm}(x) = g\odot\frac{x-\mu}{\sqrt{\sigma^2+\epsilon}} + b, \qquad
# \mu = \frac1d\sum_i x_i, \quad \sigma^2 = \frac1d\sum_i (x_i-\mu)^2$$
#
# The gain $g$ and the bias $b$ are learned, one of each an entry, and start at 1 and 0. Four numbers, by
# hand:

# %%
x = torch.tensor([1.0, 2.0, 3.0, 6.0])
mean = sum(x) / 4  # 3
variance = sum((x - mean) ** 2) / 4  # (4 + 1 + 0 + 9) / 4 = 3.5
by_hand = (x - mean) / (variance + 1e-5).sqrt()
print([f"{number:.2f}" for number in by_hand])

norm = nn.LayerNorm(4)
assert_close(norm(x), by_hand)
assert_close(norm(10 * x + 500), by_hand, rtol=1e-4, atol=1e-4)
assert_close(by_hand.norm(), torch.tensor(math.sqrt(4)), rtol=1e-4, atol=0)
print("10 x + 500 gives the same; the length is always the root of d: True")

# %% [markdown]
# So a word's size and its level are forgotten, and only its *direction* is kept. After a fresh norm, all
# words lie on one sphere.
#
# Why not batch normalisation, the usual choice for pictures then? It also subtracts and divides, but in
# training it takes mean and deviation of one entry over all words of a batch. Change one word, the last of
# its sentence, and see which outputs move:

# %%
_ = torch.manual_seed(0)
sentences = torch.randn(2, 3, 8)  # two sentences of three words
changed = sentences.clone()
changed[0, 2] += torch.randn(8)  # the last word of the first sentence
batch_norm, layer_norm = nn.BatchNorm1d(8), nn.LayerNorm(8)
for name, norm in (
    ("batch norm", lambda x: batch_norm(x.flatten(0, 1)).view_as(x)),
    ("layer norm", layer_norm),
):
    moved = (norm(sentences) != norm(changed)).any(dim=-1)  # (2, 3)
    print(f"{name}: {int(moved.sum())} of 6 words move")
    assert moved.sum() == (1 if name == "layer norm" else 6)

# %% [markdown]
# With batch norm every word hears of every other: of those that follow it, of padding, of strangers in the
# same batch. A causal mask would be worth nothing. A layer norm knows one word.
#
# ### Two layer norms that are not the same
#
# The text that taught many of us, "The Annotated Transformer" (2018), has a layer norm of its own. It divides
# by `x.std() + eps`. That differs from the formula above in two ways: `std` divides the sum of squares by
# $d-1$, and $\epsilon$ stands outside the root.


# %%
def norm_of_2018(x: Tensor, eps: float = 1e-6) -> Tensor:
    return (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + eps)


print("torch:", [f"{number:.2f}" for number in F.layer_norm(x, [4])])
print("2018: ", [f"{number:.2f}" for number in norm_of_2018(x)])
for d in (4, 512):
    print(f"d = {d:3}: 2018 / torch = {math.sqrt((d - 1) / d):.3f}")
kept = [0, 1, 3]  # number 2 was the mean, and is 0 in both
ratio = norm_of_2018(x)[kept] / F.layer_norm(x, [4])[kept]
assert_close(ratio, torch.full((3,), math.sqrt(3 / 4)), rtol=1e-4, atol=0)

# %% [markdown]
# The first difference is a constant, and at 512 entries a tenth of a percent: nothing that a gain could not
# make up for. And $\epsilon$, a hundred-thousandth here and a millionth there? Eight numbers, once as they
# are and once a thousand times smaller:

# %%
_ = torch.manual_seed(0)
loud = torch.randn(8)
figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), sharey=True)
for ax, vector, title in zip(
    axes, (loud, loud / 1000), ("Entries of about 1", "Entries of about 0.001"), strict=True
):
    both = {"torch": F.layer_norm(vector, [8]), "2018": norm_of_2018(vector)}
    plot_normalised(vector, both, ax=ax).set_title(title)
    print(f"{title}: size {both['torch'].std():.2f} by torch, {both['2018'].std():.2f} by 2018")
axes[1].legend_.remove()
plt.show()
heights = torch.tensor([[bar.get_height() for bar in bars] for bars in axes[1].containers])  # (3, 8)
assert_close(heights[1].float(), F.layer_norm(loud / 1000, [8]))
assert heights[1].std() < 0.5 < 0.99 < heights[2].std()

# %% [markdown]
# (On the right the grey bars are there, but only a thousandth high.) To torch's norm a quiet vector stays
# quiet. With $\epsilon = 10^{-5}$ *under* the root, everything below a deviation of $\sqrt{10^{-5}} = 0.003$
# fades; with $10^{-6}$ *outside*, everything below 0.000001. The number in the settings looks ten times
# smaller, and the threshold is three thousand times lower.
#
# It is a limit on gradients, too. A norm that divides by a small number multiplies the gradient by a large
# one. The worst case is a vector whose entries are all equal:


# %%
def naive_norm(x: Tensor) -> Tensor:
    """As anyone would write it on a Friday afternoon."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True).sqrt() + 1e-6)


weights = torch.tensor([1.0, -2.0, 3.0, -2.0])
for name, norm in (
    ("torch", partial(F.layer_norm, normalized_shape=[4])),
    ("2018", norm_of_2018),
    ("naive", naive_norm),
):
    flat = torch.full((4,), 0.7, requires_grad=True)
    (norm(flat) * weights).sum().backward()
    print(f"{name:5}: gradient times {flat.grad.norm() / weights.norm():,.0f}")
    assert torch.isnan(flat.grad).all() == (name == "naive")

# %% [markdown]
# 316 is $1/\sqrt{10^{-5}}$: whatever comes in, torch's norm, at a gain of 1, never multiplies a gradient by
# more. The one of 2018 stops at a million, and only because PyTorch gives `std` a slope of 0 where it has
# none. Written by hand with a root, the same formula is NaN: the slope of a root at 0 is infinite.
#
# A model trained with one norm can run with the other, if the gain takes over the constant and $\epsilon$ is
# small enough to do nothing:

# %%
d = 512
_ = torch.manual_seed(0)
gain, bias, x = torch.randn(d), torch.randn(d), torch.randn(100, d)
of_2018 = gain * norm_of_2018(x) + bias
same = F.layer_norm(x, [d], gain * math.sqrt((d - 1) / d), bias, eps=1e-12)
assert_close(same, of_2018)
print("gain and bias learned with 2018's norm, moved into torch's: equal")

# %% [markdown]
# **Exercise 1.** A layer norm forgets a vector's level and its size. So of $d$ directions in which its
# input can move, how many does its output notice? Guess for $d = 8$, then count with the rank of its
# Jacobian, the matrix of all its derivatives.

# %% tags=["solution"]
x = torch.randn(8, dtype=torch.float64)
jacobian = torch.autograd.functional.jacobian(lambda x: F.layer_norm(x, [8], eps=0.0), x)  # (8, 8)
assert torch.linalg.matrix_rank(jacobian, rtol=1e-9) == 6
for name, direction in (("level", torch.ones(8).double()), ("size", x - x.mean())):
    assert (jacobian @ direction).norm() < 1e-9
    print(f"a step along its {name} moves nothing")
print("6 of 8: all but those two")

# %% [markdown]
# ## Before the sum or after it
#
# Residual and norm can be joined in two ways. Section 3.1 has one of them in a formula, where a part is
# called a sub-layer, and section 5.4 adds the dropout ([08_training_recipe](08_training_recipe.ipynb) has its
# places):
#
# $$\text{post-norm, the paper's:}\quad \mathrm{LayerNorm}(x + \mathrm{Dropout}(\mathrm{Sublayer}(x)))$$
#
# $$\text{pre-norm:}\quad x + \mathrm{Dropout}(\mathrm{Sublayer}(\mathrm{LayerNorm}(x)))$$

# %%
show_source(SublayerConnection.forward, docstring=False)

# %% [markdown]
# Text and code are the same by eye. To the machine: we write both by hand, with a gain and a bias that are
# not 1 and 0, and a real part.

# %%
_ = torch.manual_seed(0)
part = parts[1]  # a feed-forward network
post, pre = SublayerConnection(128, dropout=0.0), SublayerConnection(128, dropout=0.0, norm_first=True)
for connection in (post, pre):
    nn.init.normal_(connection.norm.weight)
    nn.init.normal_(connection.norm.bias)


def normalise(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return norm.weight * centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() + norm.bias


assert_close(post(words, part), normalise(words + part(words), post.norm))
assert_close(pre(words, part), words + part(normalise(words, pre.norm)))
assert SublayerConnection(128, 0.0).norm_first is False  # nothing said: the paper's
print("package = formula, for both; and the default is the paper's: True")

# %% [markdown]
# What becomes of a word if its part has nothing to say? Guess: it passes unchanged.

# %%
nothing = torch.zeros_like
assert_close(pre(words, nothing), words, rtol=0, atol=0)
assert_close(post(words, nothing), normalise(words, post.norm))
print("pre-norm: unchanged, to the last bit. post-norm: normalised, whatever the part said")

# %% [markdown]
# In a pre-norm stack there is a road from the first word to the last state on which nothing ever happens but
# sums. In a post-norm stack there is a toll gate after every part. Both, beside our first two attempts:

# %%
norm = partial(F.layer_norm, normalized_shape=[128])
ways["post-norm"] = through(lambda x, part: norm(x + part(x)))
ways["pre-norm"] = through(lambda x, part: x + part(norm(x)))

figure, axes = plt.subplots(1, 3, figsize=(16, 4.5))
for (name, measured), style in zip(ways.items(), ("o:", "^--", "s-", "D-"), strict=True):
    for ax, values in zip(axes, measured, strict=True):
        ax.plot(range(13), values, style, label=name)
axes[0].set(title="How alike words are", ylabel="mean cosine of two words")
axes[1].set(title="How large", ylabel="deviation of the entries", yscale="log")
axes[2].set(title="How much of a word is left", ylabel="cosine with where it began")
for ax in axes:
    ax.set_xlabel("parts passed")
axes[1].legend(loc="lower left", frameon=False)
plt.show()
post_way, pre_way = ways["post-norm"], ways["pre-norm"]
assert max(abs(size - 1) for size in post_way[1][1:]) < 1e-3
assert 1.8 < pre_way[1][-1] < 2.3 < 5 < ways["residual"][1][-1]
for likeness_or_left in (0, 2):
    both = torch.tensor([ways["residual"][likeness_or_left], post_way[likeness_or_left]])  # (2, 13)
    assert_close(*both, rtol=0, atol=0.12)
assert pre_way[0][-1] < 0.6 < 0.8 < post_way[0][-1]
assert post_way[2][-1] < 0.25 < 0.5 < pre_way[2][-1]

# %% [markdown]
# Post-norm keeps the size at exactly 1. Pre-norm lets the stream grow, but each part sees a normalised copy,
# so what it adds does not grow with the stream: simple interest.
#
# The surprise is left and right. For the words, post-norm does next to nothing: its curves run along those
# of the residual without any norm. To divide a sum by its size turns no vector, and part and stream stay as
# loud to each other as they were. At the end the cosine with the word is a fifth. Under pre-norm an addition
# of one and the same size counts for less the larger the stream has grown, and more than half is left.
#
# **Exercise 2.** Some large models (Ding et al., 2021) use both:
#
# $$x + \mathrm{LayerNorm}(\mathrm{Sublayer}(\mathrm{LayerNorm}(x)))$$
#
# Guess the stream's size after twelve parts, to the first decimal, before you run it.

# %% tags=["solution"]
_, size, _ = through(lambda x, part: x + norm(part(norm(x))))
guess = math.sqrt(size[0] ** 2 + 12)  # every part adds a vector of variance 1, in a direction of its own
print(f"guess {guess:.1f}, run {size[-1]:.1f}")
assert abs(size[-1] - guess) < 0.1

# %% [markdown]
# ### Why does the text say one thing and the code another?
#
# The post of 2018 states the paper's formula and then computes the other one, with a remark that the norm
# comes first for simplicity. Most later models have it so, GPT-2 among them, and there is more to it than
# simplicity: further down we train both. But first: how do we tell which one *we* have before us? Not by the
# names of the weights in a file.

# %%
shape = {"N": 2, "d_model": 32, "d_ff": 64, "h": 4, "dropout": 0.0}
_ = torch.manual_seed(0)
post_model, pre_model = make_model(11, 11, **shape), make_model(11, 11, **shape, norm_first=True)
print("a pre-norm layer from post-norm weights:",
      pre_model.encoder.layers.load_state_dict(post_model.encoder.layers.state_dict()))  # fmt: skip
try:
    pre_model.load_state_dict(post_model.state_dict())
except RuntimeError as error:
    print("the whole model:", str(error).splitlines()[1].strip())

# %% [markdown]
# The layers load into each other without a word, and compute something else. The only trace is the final
# norm, which one of the two has (we come to it). Better ask the layer itself. The last thing that a
# post-norm layer does is to normalise:


# %%
def normalises_last(layer: nn.Module, *arguments: Tensor) -> bool:
    """Whether every word that comes out of a newborn layer has mean 0 and deviation 1."""
    out = layer(*arguments)
    level, size = out.mean(dim=-1), out.std(dim=-1, correction=0)
    return bool(level.abs().max() < 1e-3 and (size - 1).abs().max() < 1e-3)


x = 3 * torch.randn(2, 5, 32)
mask = torch.ones(2, 1, 5, dtype=torch.bool)
found = {
    "annotated": normalises_last(post_model.encoder.layers[0], x, mask),
    "annotated, norm_first=True": normalises_last(pre_model.encoder.layers[0], x, mask),
    "nn.TransformerEncoderLayer": normalises_last(nn.TransformerEncoderLayer(32, 4, batch_first=True), x),
    "nn.TransformerEncoderLayer, norm_first=True": normalises_last(
        nn.TransformerEncoderLayer(32, 4, batch_first=True, norm_first=True), x
    ),
}
for name, last in found.items():
    print(f"{name:44} {'post-norm' if last else 'pre-norm'}")
assert list(found.values()) == [True, False, True, False]

# %% [markdown]
# ## The two layers
#
# With that, both kinds of layer are a few lines. An encoder layer has two parts, a decoder layer three, and
# each stands in a connection of its own:

# %%
show_source(EncoderLayer.forward, DecoderLayer.forward, docstring=False)

# %% [markdown]
# The `lambda` is there because a connection wants a function of *one* thing, the stream; whatever else an
# attention needs is packed in. (The cache is for decoding, 11_search_and_averaging.) Unpacked, from the parts
# of the earlier notebooks:


# %%
def encoder_layer(layer: EncoderLayer, x: Tensor, mask: Tensor) -> Tensor:
    after_attention, after_network = (connection.norm for connection in layer.sublayer)
    x = after_attention(x + layer.self_attn(x, x, x, mask))
    return after_network(x + layer.feed_forward(x))


def decoder_layer(
    layer: DecoderLayer, y: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor
) -> Tensor:
    after_attention, after_cross, after_network = (connection.norm for connection in layer.sublayer)
    y = after_attention(y + layer.self_attn(y, y, y, tgt_mask))  # (B, tgt_len, d_model)
    y = after_cross(y + layer.src_attn(y, memory, memory, src_mask))  # keys and values: the encoder's
    return after_network(y + layer.feed_forward(y))


_ = torch.manual_seed(0)
model = make_model(11, 11, **shape).double()
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.4)  # no gain is 1, no bias 0: nothing can be forgotten unnoticed
x, y = torch.randn(2, 5, 32).double(), torch.randn(2, 7, 32).double()
src_mask = torch.tensor([[[True] * 5], [[True] * 3 + [False] * 2]])  # the second source has three words
tgt_mask = subsequent_mask(7)
encode, decode = model.encoder.layers[0], model.decoder.layers[0]
assert_close(encode(x, src_mask), encoder_layer(encode, x, src_mask))
assert_close(decode(y, x, src_mask, tgt_mask), decoder_layer(decode, y, x, src_mask, tgt_mask))

# %% [markdown]
# We could both be wrong, of course, and in the same way. So we ask somebody else. PyTorch has these two
# layers; we copy our weights into them. It keeps three of an attention's four maps in one matrix (03), and
# its masks say `True` for *hidden* (02).


# %%
@torch.no_grad()
def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    *into_heads, to_output = ours.linears
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in into_heads]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in into_heads]))
    theirs.out_proj.load_state_dict(to_output.state_dict())


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    copy_attention(ours.self_attn, theirs.self_attn)
    if hasattr(ours, "src_attn"):
        copy_attention(ours.src_attn, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for number, connection in enumerate(ours.sublayer, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(connection.norm.state_dict())


# %%
same_shape = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "dropout": 0.0, "batch_first": True}
their_encode = nn.TransformerEncoderLayer(**same_shape, dtype=torch.float64)
their_decode = nn.TransformerDecoderLayer(**same_shape, dtype=torch.float64)
copy_layer(encode, their_encode)
copy_layer(decode, their_decode)

hidden = ~src_mask[:, 0]  # (2, 5)
future = torch.ones(7, 7, dtype=torch.bool).triu(diagonal=1)
assert_close(encode(x, src_mask), their_encode(x, src_key_padding_mask=hidden))
theirs = their_decode(y, x, tgt_mask=future, memory_key_padding_mask=hidden)
assert_close(decode(y, x, src_mask, tgt_mask), theirs)
print("encoder layer, decoder layer = PyTorch's, weights copied: True")

pre_decode = make_model(11, 11, **shape, norm_first=True).double().decoder.layers[0]
pre_decode.load_state_dict(decode.state_dict())
for name, other in (
    ("without the causal mask", decode(y, x, src_mask, torch.ones_like(tgt_mask))),
    ("with the norm moved", pre_decode(y, x, src_mask, tgt_mask)),
):
    print(f"{name}, still equal: {torch.allclose(other, theirs, atol=1e-3)}")
    assert not torch.allclose(other, theirs, atol=1e-3)

# %% [markdown]
# ## Six of each
#
# A stack is $N$ copies of one layer, made by `deepcopy`. Do copies start equal? Yes, to the last number (03
# shows it for the four maps of an attention). What `deepcopy` does *not* undo is sharing within the thing
# that it copies:

# %%
_ = torch.manual_seed(0)
attend, network = MultiHeadedAttention(4, 32, dropout=0.0), PositionwiseFeedForward(32, 64, dropout=0.0)
stack = Encoder(EncoderLayer(32, attend, network, dropout=0.0), N=6)
first = stack.layers[0].state_dict()
equal = all(torch.equal(layer.state_dict()[name], first[name]) for layer in stack.layers for name in first)
print("six copies, all their weights equal:", equal)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


twice = Decoder(DecoderLayer(32, attend, attend, network, dropout=0.0), N=6)  # one attention in both places
apart = Decoder(DecoderLayer(32, attend, MultiHeadedAttention(4, 32, dropout=0.0), network, dropout=0.0), N=6)
layer = twice.layers[0]
print("in each copy, self-attention *is* cross-attention:", layer.self_attn is layer.src_attn)
print(f"parameters: {size(twice):,} and not {size(apart):,}")
assert equal
assert layer.self_attn is layer.src_attn
assert layer.self_attn is not twice.layers[1].self_attn

# %% [markdown]
# Both decoders run, and nothing complains. The first has one attention for two jobs in every layer, and
# lacks a third of its parameters. That is why `make_model` hands its decoder layer two clones. It also
# draws every matrix anew afterwards, so that in a model that it built no two layers are equal:

# %%
show_source(EncoderDecoder.from_config, Stack, docstring=False)
one, *others = (layer.self_attn.linears[0].weight for layer in newborn.encoder.layers)
print("in a model from make_model, any layer equal to the first:", any(torch.equal(one, w) for w in others))
assert not any(torch.equal(one, weight) for weight in others)

# %% [markdown]
# ### One final norm, or none, never two
#
# `Stack` ends in a norm if it is pre-norm, and in nothing (`nn.Identity`) if it is post-norm. Section 3.1
# has no word about a norm at the end, and needs none: a post-norm layer has just normalised. A pre-norm
# stack ends in a sum, and sums grow. Of what size would the states be that go into the softmax?

# %%
tokens, sure = torch.randint(4, 1000, (2, 8, 20)), []
for N in (2, 6, 12):
    _ = torch.manual_seed(0)
    deep = make_model(1000, 1000, N=N, d_model=64, d_ff=128, h=4, dropout=0.0, norm_first=True)
    with evaluating(deep):
        normed = deep(*tokens, None, subsequent_mask(20))
        deep.decoder.norm = nn.Identity()
        raw = deep(*tokens, None, subsequent_mask(20))
        sure.append(deep.generator(raw).exp().amax(dim=-1).mean().item())  # the likeliest of 1,000 words
    print(f"pre-norm, {N:2} layers: size {normed.std():.1f} with the final norm,", end=" ")
    print(f"{raw.std():.1f} without, where the likeliest word gets {sure[-1]:.1%}")
    assert abs(normed.std() - 1) < 0.01 < 1 < raw.std()
assert sure == sorted(sure)

# %% [markdown]
# Without it, a deeper newborn hands larger states to its softmax, and is the surer of what it cannot know
# (a tenth of a percent would be no idea).
#
# And if one is good, two are better? `nn.Transformer` thinks so: it is post-norm by default, and *still*
# puts a norm at the end of either stack. Here are our weights in the whole of it:

# %%
_ = torch.manual_seed(0)
ours = make_model(11, 11, **shape).double()
double = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True, dtype=torch.float64)
for our_stack, their_stack in ((ours.encoder, double.encoder), (ours.decoder, double.decoder)):
    for our_layer, their_layer in zip(our_stack.layers, their_stack.layers, strict=True):
        copy_layer(our_layer, their_layer)


def states_of_both() -> tuple[Tensor, Tensor]:
    """Ours, and those of nn.Transformer, for the same embedded sentences."""
    mine = ours.decoder(y, ours.encoder(x, src_mask), src_mask, tgt_mask)
    peer = double(x, y, tgt_mask=future, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    return mine, peer


print("final norms of nn.Transformer:", double.encoder.norm is not None, double.decoder.norm is not None)
assert_close(*states_of_both(), rtol=1e-4, atol=1e-4)
print("the same states with them as without:", True)

# %% [markdown]
# Nobody notices, because at birth a second norm does nothing: what has mean 0 and deviation 1 stays what it
# is. That changes with training. Suppose that the last gain has learned to be 3, to make the softmax behind
# it sharper:

# %%
with torch.no_grad():
    ours.decoder.layers[-1].sublayer[-1].norm.weight.mul_(3)
    double.decoder.layers[-1].norm3.weight.mul_(3)
once, two_norms = states_of_both()
print(f"size with one norm {once.std():.1f}, with two {two_norms.std():.1f}")
assert_close(two_norms.std(), torch.tensor(1.0).double(), rtol=0.01, atol=0)

double.encoder.norm = double.decoder.norm = None
assert_close(states_of_both()[1], once)
print("nn.Transformer with its final norms taken out = ours, trained or not: True")

# %% [markdown]
# The second norm takes away the size that the first has learned; it would have to learn it over again in its
# own gain. So two are not wrong, but they are a model that is not the paper's. It is also why weights from
# `nn.Transformer` do not fit a post-norm model to the letter
# ([14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb)).
#
# ## Where the gradient goes
#
# It is often said that in a post-norm stack the gradient fades on its way down. We take newborn models of the
# paper's depth, random sentences, one backward pass; and measure the gradient of each layer's parameters.
#
# How loud the newborn attentions are, how large the vectors that they add, turns out to matter, and the paper
# does not say how its matrices start. Xavier's rule (Glorot and Bengio, 2010) draws smaller numbers for
# larger matrices. The package draws $W^Q$, $W^K$ and $W^V$ by it as *one* matrix, as PyTorch does. Much code
# draws each for itself, which makes them $\sqrt2$ larger. We try both.


# %%
def newborn_model(norm_first: bool = False, louder: float = 1.0) -> EncoderDecoder:
    torch.manual_seed(0)
    model = make_model(1000, 1000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0, norm_first=norm_first)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            for linear in module.linears[:3]:
                linear.weight.data *= louder
    return model


def backward(model: EncoderDecoder) -> EncoderDecoder:
    """One backward pass from eight random sentence pairs."""
    torch.manual_seed(1)
    batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    F.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
    return model


def by_layer(stack: Stack) -> list[float]:
    """The norm of the gradient of each layer's parameters, the first layer first."""
    return [torch.cat([p.grad.flatten() for p in layer.parameters()]).norm().item() for layer in stack.layers]


# %%
LOUD = math.sqrt(2)
each_for_itself = newborn_model(louder=LOUD).encoder.layers[0].self_attn.linears[0].weight  # (128, 128)
assert_close(
    each_for_itself.abs().max(), torch.tensor(math.sqrt(6 / (128 + 128))), rtol=0.01, atol=0
)  # Xavier
born = {
    "post-norm": backward(newborn_model()),
    "pre-norm": backward(newborn_model(norm_first=True)),
    "post-norm, louder": backward(newborn_model(louder=LOUD)),
}
figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), sharey=True)
falls = {}
for ax, side in zip(axes, ("encoder", "decoder"), strict=True):
    norms = {name: by_layer(getattr(model, side)) for name, model in born.items()}
    plot_gradient_norms(norms, ax=ax).set_title(f"{side.capitalize()}: gradient in each layer, at birth")
    drawn = [line.get_ydata().tolist() for line in ax.lines]
    falls[side] = [round(values[-1] / values[0], 1) for values in drawn]
    print(f"{side}, last layer over first:", dict(zip(norms, falls[side], strict=True)))
    ax.label_outer()
axes[0].set_yticks([0.2, 0.4, 0.8], ["0.2", "0.4", "0.8"])
axes[0].minorticks_off()
axes[1].legend_.remove()
plt.show()
assert falls["decoder"][1] < 1 < 2 < falls["decoder"][0] < 4.5 < falls["decoder"][2]
assert max(falls["encoder"]) < 1.8

# %% [markdown]
# Half of what is said is true. Down the post-norm *decoder* the gradient fades, here to less than half, and
# to a sixth if attention is loud. In the post-norm *encoder*, with the same norms and the same residuals, two
# thirds of it arrive, loud or not. So it cannot be the norm alone. What has a decoder layer that an encoder
# layer has not? We follow the gradient of the stream backwards through each kind of part: how much of it
# arrives on the other side?


# %%
def passed_on(**settings) -> tuple[dict[str, float], float]:
    """For each part of a decoder layer, gradient before it over gradient behind it; and how loud it is."""
    model, heard, loudness = newborn_model(**settings), [], []

    def keep(module: nn.Module, given: tuple, out: Tensor) -> None:
        given[0].retain_grad()
        out.retain_grad()
        heard.append((given[0], out))

    for layer in model.decoder.layers:
        layer.src_attn.register_forward_hook(lambda module, given, out: loudness.append(out.std().item()))
        for connection in layer.sublayer:
            connection.register_forward_hook(keep)
    backward(model)
    logs = torch.stack([(before.grad.norm() / behind.grad.norm()).log() for before, behind in heard])
    kinds = ("self-attention", "cross-attention", "feed-forward")
    means = logs.view(6, 3).mean(dim=0).exp()  # geometric, over the six layers
    return dict(zip(kinds, means.tolist(), strict=True)), sum(loudness) / 6


passed, loudness = {}, {}
kinds = {"post-norm": {}, "post-norm, louder": {"louder": LOUD}, "pre-norm": {"norm_first": True}}
for name, settings in kinds.items():
    passed[name], loudness[name] = passed_on(**settings)
    print(f"{name:17}:", ", ".join(f"{kind} {share:.2f}" for kind, share in passed[name].items()))

# %% [markdown]
# **It leaves through the door to the encoder.** A part adds a vector of size $s$ to a stream of size 1, and
# the norm behind it divides the sum by $\sqrt{1+s^2}$, forwards and backwards. In self-attention and in the
# network that is made good through the part itself, which reads the same stream. Cross-attention takes its
# *values* from the memory: what goes through it leaves the decoder, but for the little that goes through its
# queries. So it should pass on $1/\sqrt{1+s^2}$:

# %%
for name in ("post-norm", "post-norm, louder"):
    s, share = loudness[name], passed[name]["cross-attention"]
    print(f"{name:17}: s = {s:.2f}, so {1 / math.sqrt(1 + s**2):.2f}; measured {share:.2f}")
    assert abs(1 / math.sqrt(1 + s**2) - share) < 0.06
    assert min(passed[name]["self-attention"], passed[name]["feed-forward"]) > 0.88
assert min(passed["pre-norm"].values()) > 0.97

closed = newborn_model(louder=LOUD)
for layer in closed.decoder.layers:
    nn.init.zeros_(layer.src_attn.linears[3].weight)  # cross-attention says nothing: the door is shut
norms = by_layer(backward(closed).decoder)
print(f"door shut: last layer over first {norms[-1] / norms[0]:.1f} and no longer {falls['decoder'][2]}")
assert 0.8 < norms[-1] / norms[0] < 1.4
assert all(parameter.grad.abs().max() == 0 for parameter in closed.encoder.parameters())

# %% [markdown]
# An encoder layer has no door, and a pre-norm stream meets no norm. But is a small gradient bad? Not for
# Adam, which divides by its size: 08_training_recipe shows that the first update moves all weights alike.
# What counts is whether a model *learns*. So we train: the paper's depth, very narrow, on copying rows of
# symbols (the task of 09). Post-norm and pre-norm at the same constant rate, and post-norm once more with a
# warm-up; each twice, from other weights and with other rows.


# %%
def train(norm_first: bool, warmup: int, seed: int, updates: int = 100) -> list[float]:
    """The loss of each batch; the rate rises to 0.01 over `warmup` updates and then stays."""
    torch.manual_seed(seed)
    model = make_model(11, 11, N=6, d_model=32, d_ff=64, h=4, dropout=0.0, norm_first=norm_first)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9, fused=True)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1, (done + 1) / warmup))
    loss_compute = SimpleLossCompute(model.generator, LabelSmoothing(11, padding_idx=0, smoothing=0.0))
    batches = data_gen(11, 32, updates)
    return [run_epoch([batch], model, loss_compute, optimizer, rise)[0] for batch in batches]


kinds = {"post-norm": (False, 1), "pre-norm": (True, 1), "post-norm, warm-up of 60": (False, 60)}
runs = {name: [train(*settings, seed) for seed in (0, 1)] for name, settings in kinds.items()}

# %%
no_idea = math.log(10)  # one of ten symbols, all equally likely
figure, ax = plt.subplots()
learns = {}
for (name, both), style, colour in zip(runs.items(), ("-", "--", ":"), ("C0", "C1", "C2"), strict=True):
    for losses, label, width in zip(both, (name, None), (2.5, 1.2), strict=True):
        ax.plot(range(1, 101), losses, style, color=colour, lw=width, label=label)
    learns[name] = [sum(losses[-20:]) / 20 < no_idea - 0.03 for losses in both]
    print(f"{name:24} learns something, first and second time: {learns[name]}")
ax.axhline(no_idea, color="grey", lw=1, zorder=0, label="no idea")
ax.set(title="Copying, six layers a side, rate 0.01 (thin: the second time)")
ax.set(xlabel="update", ylabel="loss a symbol (nats)")
ax.set_ylim(1.7, 2.8)
ax.legend(frameon=False)
plt.show()
assert list(learns.values()) == [[False, False], [True, True], [True, True]]
ends = [losses[-1] for both in runs.values() for losses in both]
assert [line.get_ydata()[-1] for line in ax.lines[:6]] == ends

# %% [markdown]
# Six short runs of a small model are no law, and how far one gets in a hundred updates is chance: compare the
# thick lines with the thin ones. But the verdict is the same both times. At the full rate from the first
# update, pre-norm learns and post-norm does not; led up to that rate, post-norm learns as well. It is a good
# reason for the order of later code, and for the paper's warm-up (equation 3,
# [08_training_recipe](08_training_recipe.ipynb)). Xiong et al. (2020) compare the two orders, Liu et al.
# (2020) look into the decoder.
#
# ## The whole model
#
# Everything is there. Put together by hand, with nothing but the classes of these notebooks:


# %%
def assemble(vocabulary: int, N: int, d_model: int, d_ff: int, h: int) -> EncoderDecoder:
    """Figure 1 of the paper, without dropout."""

    def attend() -> MultiHeadedAttention:
        return MultiHeadedAttention(h, d_model, dropout=0.0)

    def network() -> PositionwiseFeedForward:
        return PositionwiseFeedForward(d_model, d_ff, dropout=0.0)

    def embed() -> EmbeddedPositions:
        return EmbeddedPositions(Embeddings(d_model, vocabulary), PositionalEncoding(d_model, dropout=0.0))

    return EncoderDecoder(
        Encoder(EncoderLayer(d_model, attend(), network(), dropout=0.0), N),
        Decoder(DecoderLayer(d_model, attend(), attend(), network(), dropout=0.0), N),
        embed(),
        embed(),
        Generator(d_model, vocabulary),
    )


# %%
show_source(EncoderDecoder.forward, EncoderDecoder.encode, EncoderDecoder.decode, docstring=False)
by_hand = assemble(1000, N=6, d_model=128, d_ff=512, h=8)
by_hand.load_state_dict(newborn.state_dict())  # every name must fit, and every shape
batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
with evaluating(newborn), evaluating(by_hand):
    assert_close(by_hand(*inputs), newborn(*inputs), rtol=0, atol=0)

    x, y = newborn.src_embed(batch.src), newborn.tgt_embed(batch.tgt)
    for layer in newborn.encoder.layers:
        x = encoder_layer(layer, x, batch.src_mask)
    for layer in newborn.decoder.layers:
        y = decoder_layer(layer, y, x, batch.src_mask, batch.tgt_mask)  # x: what the *last* layer said
    assert_close(y, newborn(*inputs))
print("assembled = make_model = our two functions in a loop: True")

# %% [markdown]
# Look at the `x` in the second loop. It is natural to guess that decoder layer 3 reads encoder layer 3. It
# does not: all six read the **memory**, which is what the sixth encoder layer has said.
#
# Now the real thing: the base model, with the vocabulary of 37,000 that section 5.1 names, at full size. Two
# sentence pairs go through it.

# %%
from torch.nn.utils.rnn import pad_sequence

pairs = (
    ("Am Abend hat der Hund die Katze gesehen .", "In the evening the dog saw the cat ."),
    ("Der Hund schläft .", "The dog is asleep ."),
)
sources = [german.split() for german, _ in pairs]
targets = [["<s>", *english.split(), "</s>"] for _, english in pairs]
known = list(dict.fromkeys(["<s>", "</s>", "<blank>", "<unk>", *(w for s in sources + targets for w in s)]))


def numbered(sentences: list[list[str]]) -> Tensor:
    """Sentences -> token numbers (batch, len), the short ones filled up with <blank>, number 2."""
    rows = [torch.tensor([known.index(word) for word in sentence]) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=2)


batch = Batch(numbered(sources), numbered(targets), pad=2)
_ = torch.manual_seed(0)
base = EncoderDecoder.from_config(TransformerConfig.base(37_000, 37_000))
print("source", tuple(batch.src.shape), " target, as the decoder reads it", tuple(batch.tgt.shape))

# %% [markdown]
# A *forward hook* on every module (03 hung some on a single layer) writes down what the module was given and
# what it gave back.

# %%
given, gave = {}, {}  # by a module's name, in the order in which modules answered


def listen(name: str, module: nn.Module, inputs: tuple, output: Tensor) -> None:
    given[name], gave[name] = inputs, output


hooks = [
    module.register_forward_hook(partial(listen, name))
    for name, module in base.named_modules()
    if name and not isinstance(module, nn.Identity)
]
with evaluating(base):
    states = base(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    log_probs = base.generator(states)
for hook in hooks:
    hook.remove()
print(len(gave), "modules answered, the first", next(iter(gave)), "and the last", list(gave)[-1])

# %%
shapes = {name: tuple(output.shape) for name, output in gave.items()}
ax = plot_model_flow(shapes, title="The base model: two sentence pairs, 9 source and 10 target tokens")
plt.show()
written = {text.get_text() for text in ax.texts}
assert {"(2, 9, 512)", "(2, 10, 512)", "(2, 10, 37000)", "10 queries, 9 keys", "6 times"} <= written

# %% [markdown]
# Boxes stand in the order in which they answered; a pre-norm model draws itself differently. Beside the boxes
# one and the same shape stands all the way down. Only inside them do numbers change: the networks are four
# times as wide, and in cross-attention ten queries meet nine keys.
#
# A sum is no module, so no hook has heard it: the plus signs are an inference. But what went into each norm
# was heard, and what dropout let through, and what the whole connection had been given:

# %%
connections = [name for name in gave if ".sublayer." in name and f"{name}.norm" in gave]
for name in connections:
    before, added = given[name][0], gave[f"{name}.dropout"]
    assert_close(given[f"{name}.norm"][0], before + added, rtol=0, atol=0)
    assert_close(gave[f"{name}.norm"], gave[name], rtol=0, atol=0)  # and nothing came after the norm
print(
    f"in all {len(connections)} connections the norm was given x + Sublayer(x), and had the last word: True"
)

memory = gave["encoder.layers.5"]
read = [given[f"decoder.layers.{i}.src_attn"] for i in range(6)]
assert all(key is memory and value is memory for _, key, value, *_ in read)
print("all six cross-attentions were given one and the same memory, the last encoder layer's: True")

# %% [markdown]
# ## Where the parameters are
#
# "Attention is all you need": so most of the 63 million numbers are attention's?

# %%
configs = {"base": TransformerConfig.base(37_000, 37_000), "big": TransformerConfig.big(37_000, 37_000)}
ax = plot_parameters(configs)
plt.show()
counts = {name: count_parameters(config) for name, config in configs.items()}
assert sum(counts["base"].values()) == size(base)  # counted from the settings = counted in the model
for name, count in counts.items():
    total, attention = sum(count.values()), sum(n for part, n in count.items() if "attention" in part)
    shares = {"attention": attention, **{part: count[part] for part in ("feed-forward", "embeddings")}}
    print(f"{name:4} {total:11,}:", ", ".join(f"{part} {n / total:.0%}" for part, n in shares.items()))
    assert attention < count["feed-forward"]

norms, body = counts["base"]["layer norms"], size(base.encoder) + size(base.decoder)
print(f"base: 30 layer norms {norms:,}; two stacks {body:,}, of which matrices 168 d² = {168 * 512**2:,}")
assert norms == 30 * 2 * 512
assert 0.997 < 168 * 512**2 / body < 1

# %% [markdown]
# About a third. More is in the feed-forward networks, of which the title says nothing, and in the base
# model a single table weighs as much as all attention: a vector for each of 37,000 words, shared by source,
# target and output (04). The 30 layer norms that have kept us so busy are a two-thousandth. An attention is
# $4d^2$, a network $2\cdot4d^2$; with six layers of $12d^2$ and six of $16d^2$, the two stacks are
# $168\,d^2$ and little else.
#
# ### What Table 3 counted
#
# Table 3 of the paper says 65 million for base and 213 for big. We have 63.1 and 214.3: one too small, one
# too large. The natural repair is another vocabulary. But a larger one makes both larger. Is there any that
# fits? Big is twice as wide, so its table costs twice as much a word; in *twice base minus big* the tables
# cancel, whatever the vocabulary is.


# %%
def millions(make, vocabulary: int) -> float:
    return sum(count_parameters(make(vocabulary, vocabulary)).values()) / 1e6


for vocabulary in (1000, 37_000, 100_000):
    small, large = millions(TransformerConfig.base, vocabulary), millions(TransformerConfig.big, vocabulary)
    print(f"{vocabulary:7,} words: base {small:5.1f}, big {large:5.1f}, 2 base - big {2 * small - large:.1f}")
    assert abs(2 * small - large + 88) < 0.2
    assert 2 * small - large < 2 * 65 - 213 - 1.5  # further off than rounding explains
print("Table 3: 2 · 65 - 213 = -83, and rounding can make it 1.5 more or less")

# %% [markdown]
# **No vocabulary gives both.** So which of the two is odd? Table 3 prints a count for nine more models, its
# rows (B) and (C). For each we ask which vocabularies would round to the number there.

# %%
printed = {
    "base": ({}, 65), "N = 2": ({"N": 2}, 36), "N = 4": ({"N": 4}, 50), "N = 8": ({"N": 8}, 80),
    "d_model = 256": ({"d_model": 256}, 28), "d_model = 1024": ({"d_model": 1024}, 168),
    "d_ff = 1024": ({"d_ff": 1024}, 53), "d_ff = 4096": ({"d_ff": 4096}, 90),
    "d_k = 16": ({}, 58), "d_k = 32": ({}, 60), "big": ({"d_model": 1024, "d_ff": 4096, "h": 16}, 213),
}  # fmt: skip
fits = {}
for name, (settings, count) in printed.items():
    one_word = TransformerConfig(1, 1, **settings)
    a_word = one_word.d_model + 1  # its row of the table, and its bias in the output
    rest = sum(count_parameters(one_word).values()) - a_word
    if name.startswith("d_k"):  # queries and keys are narrower, in 18 attentions
        rest -= 18 * 2 * (512 + 1) * (512 - 8 * int(name.split()[-1]))
    fits[name] = [(1e6 * (count + half) - rest) / a_word for half in (-0.5, 0.5)]

without_big = [span for name, span in fits.items() if name != "big"]
low, high = max(span[0] for span in without_big), min(span[1] for span in without_big)
print(f"ten models agree on {low:,.0f} to {high:,.0f} words; big wants at most {fits['big'][1]:,.0f}")
assert 40_500 < low < high < 41_500
assert fits["big"][1] < 37_000 < low

# %%
figure, ax = plt.subplots(figsize=(9, 5))
for row, (name, (least, most)) in enumerate(fits.items()):
    ax.barh(row, most - least, left=least, color="#de8f05" if name == "big" else "#0173b2")
ax.axvspan(low, high, color="#029e73", alpha=0.35, zorder=0)
ax.axvline(37_000, color="#555555", ls="--", zorder=0)
ax.text(37_100, 0, "section 5.1", color="#555555", va="center")
ax.set_yticks(range(len(fits)), fits)
ax.invert_yaxis()
ax.set(xlabel="words in the shared vocabulary", ylabel="row of Table 3", xlim=(34_500, 44_000))
ax.xaxis.set_major_formatter("{x:,.0f}")
ax.set_title("Which vocabularies round to the printed count")
plt.show()
edges = [[bar.get_x(), bar.get_x() + bar.get_width()] for bar in ax.patches[: len(fits)]]
assert_close(torch.tensor(edges).float(), torch.tensor(list(fits.values())))

# %% [markdown]
# Ten of eleven models agree, within 230 words, on a vocabulary of about 41,000. Section 5.1 says about
# 37,000. And big alone agrees with neither. Who counted what, the paper does not say. The architecture, at
# least, is the one that we have built: ten counts of very different models fit it.
#
# **Exercise 3.** GPT and its like have no encoder and no cross-attention: layers of two parts each, under a
# causal mask. How many of them can be had for the base model's two stacks of six? Count on paper, then build
# it. (On the device `"meta"` a model has shapes but no numbers, and costs nothing.)

# %% tags=["solution"]
with torch.device("meta"):
    attend, network = MultiHeadedAttention(8, 512), PositionwiseFeedForward(512, 2048)
    decoder_only = Encoder(
        EncoderLayer(512, attend, network, dropout=0.1), N=14
    )  # a causal mask is all that it lacks of a decoder
print(f"168 d² / 12 d² = 14 layers: {size(decoder_only):,}, against {body:,}")
assert abs(size(decoder_only) / body - 1) < 0.001

# %% [markdown]
# ## From one end to the other
#
# The two pairs have been through the base model already: `log_probs` holds what it thinks of the next word at
# every place.

# %%
assert_close(log_probs.exp().sum(dim=-1), torch.ones(2, 10))
table, shift = base.tgt_embed[0].lut.weight.detach(), base.generator.proj.bias.detach()
assert_close((states @ table.T + shift).log_softmax(dim=-1), log_probs, rtol=1e-4, atol=1e-4)
print(tuple(log_probs.shape), "at each of 10 places, 37,000 probabilities that sum to 1: True")

right = log_probs[0].gather(-1, batch.tgt_y[0].unsqueeze(-1)).mean()  # the long pair
print("cost of the right words, in units of knowing nothing: between 0.9 and 1.2:",
      bool(0.9 < -right / math.log(37_000) < 1.2))  # fmt: skip
assert 0.9 < -right / math.log(37_000) < 1.2

# %% [markdown]
# It has no idea, as it should be. Last: what may each of these ten guesses know? For each place we ask by
# gradient how much the log-probability of the right next word depends on every word read, of the target and
# of the source.


# %%
def dependence(tgt_mask: Tensor) -> Tensor:
    """How much each right next word (rows) depends on each target and source word read: (10, 10 + 9)."""
    src_mask = batch.src_mask[:1]
    with evaluating(base):
        x, y = base.src_embed(batch.src[:1]), base.tgt_embed(batch.tgt[:1])
    states = base.decoder(y.requires_grad_(), base.encoder(x.requires_grad_(), src_mask), src_mask, tgt_mask)
    answers = base.generator(states)[0].gather(-1, batch.tgt_y[0].unsqueeze(-1)).squeeze(-1)  # (10,)
    rows = [torch.autograd.grad(answer, (y, x), retain_graph=True) for answer in answers]
    return torch.stack([torch.cat([by_y[0], by_x[0]]).norm(dim=-1) for by_y, by_x in rows])


base.eval()
heard = dependence(batch.tgt_mask[:1])
leaky = dependence(torch.ones(1, 10, 10, dtype=torch.bool))
later = torch.ones(10, 10, dtype=torch.bool).triu(diagonal=1)  # 45 places that nobody may see
for name, found in (("with the causal mask", heard), ("without it", leaky)):
    print(f"{name}: {int((found[:, :10][later] != 0).sum())} of 45 later words heard")
assert (heard[:, :10][later] == 0).all()  # not even by a rounding error
assert (heard[:, :10][~later] > 0).all()  # all words before, and the one just read
assert (heard[:, 10:] > 0).all()  # the whole source
assert (leaky[:, :10][later] > 0).all()

# %%
figure, ax = plt.subplots(figsize=(12, 5.5))
image = ax.imshow(heard, vmin=0)
figure.colorbar(image, ax=ax, label="norm of the gradient")
tgt_words = [known[n] for n in batch.tgt[0]]
ax.set_xticks(range(19), [*tgt_words, *sources[0]], rotation=45, ha="right", rotation_mode="anchor")
ax.set_yticks(range(10), [f"{r} → {known[n]}" for r, n in zip(tgt_words, batch.tgt_y[0], strict=True)])
ax.axvline(9.5, color="white", lw=4)
ax.set(xlabel="word read: target, then source", ylabel="reads → must say")
ax.set_title("What the newborn base model's guesses depend on")
plt.show()
assert_close(torch.tensor(ax.images[0].get_array()), heard)
target, source = heard[:, :10][~later].mean(), heard[:, 10:].mean()
print(
    "in the mean, a source word counts at least 1.5 times as much as a target word:",
    bool(source > 1.5 * target),
)
assert source > 1.5 * target

# %% [markdown]
# A triangle and a rectangle: section 3.1's claim that a prediction depends only on what stands before it, and
# section 3.2.3's that every place may look at the whole source. And on the whole the source is brighter than
# the triangle, as six doors between the answer and the target's words let us expect.
#
# It is complete, and knows nothing. What it is fed, in what batches and under which masks, is
# [07_batches_and_masks](07_batches_and_masks.ipynb); how it learns,
# [08_training_recipe](08_training_recipe.ipynb).
