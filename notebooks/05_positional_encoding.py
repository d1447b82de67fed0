# %% [markdown]
# # 05 · Positional encoding
#
# **We give every word a clock with many hands, turn it by a matrix, and find out whether it still tells the
# time past the last hour that it was trained on.**
#
# Previous: [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb) · Next:
# [06_the_full_model](06_the_full_model.ipynb) · Attention itself: [02_attention](02_attention.ipynb)
#
# *35 minutes to read, under 25 seconds to run, the exercises extra.*
#
# - **Before:** you know attention with its queries, keys and masks (02), and that words become vectors,
#   *embeddings* (04).
# - **After:** you know why a Transformer must be told the order of its words, and why not by plain numbers;
#   what each sine is for; why others write `exp(log)`; how one matrix moves any position; what learned
#   positions do better and worse; and what the paper's "may extrapolate" is worth.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.5.

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

from annotated import (
    Embeddings,
    LearnedPositions,
    MultiHeadedAttention,
    PositionalEncoding,
    evaluating,
    make_model,
    sinusoids,
    subsequent_mask,
)
from annotated.plots import setup_notebook, show_source
from annotated.transformer.attention import attention

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## Nobody knows where they stand
#
# Here is an encoder of the paper's kind, layers and all, with one thing missing: we hand it embeddings to
# which no position was added. Ten words go in; then the same ten, shuffled. (`evaluating` switches dropout,
# the noise of training, off.)

# %%
_ = torch.manual_seed(0)
model = make_model(1000, 1000, N=2, d_model=512, d_ff=256, h=8)
words = torch.randint(1000, (1, 10))
shuffle = torch.randperm(10)
with evaluating(model):
    embedded = model.src_embed[0](words)  # (1, 10, 512), the positions left out
    straight = model.encoder(embedded, None)
    shuffled = model.encoder(embedded[:, shuffle], None)
assert_close(shuffled, straight[:, shuffle], atol=1e-4, rtol=0)
print("shuffled words, the same outputs shuffled: True")

# %% [markdown]
# Every word comes out as it did before, wherever it and the others have gone. To this encoder a
# sentence is a bag of words. (02 showed it for one attention; the feed-forward network works on each word
# alone, so stacking them does not help.)
#
# The decoder has a causal mask, and a word that sees two others differs from one that sees nine. Does the
# mask tell it the order? We ask the last word, which sees all, and shuffle those before it.

# %%
earlier = torch.cat([torch.randperm(9), torch.tensor([9])])  # the last word stays the last
with evaluating(model):
    straight, shuffled = embedded, embedded[:, earlier]
    for depth, layer in enumerate(model.encoder.layers, start=1):
        straight, shuffled = (layer(x, subsequent_mask(10)) for x in (straight, shuffled))
        noticed = not torch.allclose(straight[:, -1], shuffled[:, -1], atol=1e-4)
        print(f"under a causal mask, after layer {depth}: the last word notices: {noticed}")
        assert noticed == (depth == 2)

# %% [markdown]
# After one layer: no. After two: yes. In the first layer each word has seen another set of words, so the
# second layer can tell early words from late ones. A decoder of two or more layers is not blind to order;
# it has to squint. An encoder has no causal mask, and is blind at any depth.
#
# ## Four wrong guesses
#
# **Add the number.** Word 0 gets 0 added to all its entries, word 1 gets 1, and so on.

# %%
embeddings = embedded[0]  # (10, 512): ten words, entries of variance 1
numbers = torch.arange(10.0).unsqueeze(1)  # (10, 1)
numbered = embeddings + numbers
assert_close(F.layer_norm(numbered, [512]), F.layer_norm(embeddings, [512]), atol=1e-4, rtol=0)
print("after a layer norm, the numbers are gone: True")

weights = attention(numbered, numbered, numbered)[1]  # (10, 10)
print("before it, words that look at the last word most:", int((weights.argmax(dim=-1) == 9).sum()), "of 10")
assert (weights[1:].argmax(dim=-1) == 9).all()

# %% [markdown]
# A layer norm subtracts the mean of a vector's entries and divides by their spread: it removes precisely what
# we added. And where there was no norm yet, the number drowns the word. Every word but word 0, which got
# nothing, looks hardest at the largest number.
#
# **Divide it**, then, by the length of the sentence, so that it stays below 1?

# %%
for length in (10, 100):
    fractions = torch.arange(length) / length
    print(f"{length:3} words: neighbours are {fractions[1] - fractions[0]:.2f} apart")

# %% [markdown]
# Now "one word further" is another step in each sentence, and no fixed weight fits them all.
#
# **One-hot**: position 3 is `0 0 0 1 0 ...`. No number is larger than another. But all different positions
# are equally different: whatever is learned of positions 3 and 4 says nothing about 4 and 5, or about how
# near they are. **Binary** is shorter, 12 bits for 4,096 positions. How far are neighbours apart?


# %%
def binary(positions: Tensor, bits: int) -> Tensor:
    """Whole numbers (n,) -> their binary digits as -1 and +1, the fastest first: (n, bits)."""
    return (positions.unsqueeze(1) // 2 ** torch.arange(bits) % 2) * 2.0 - 1


code = binary(torch.arange(64), bits=6)  # (64, 6)
flips = (code[1:] != code[:-1]).sum(dim=-1)
for position in (6, 7, 31):
    print(f"{position} to {position + 1}: {flips[position]} of 6 bits change")
assert flips[6] == 1
assert flips[31] == 6

# %% [markdown]
# From 6 to 7 one bit changes, from 31 to 32 all six. Neighbours would be a hair apart or worlds apart,
# depending on where they happen to stand.
#
# Still, look at the binary code as a picture, each bit drawn twice as wide as it needs to be. The paper's
# encodings stand beside it.

# %%
from annotated.plots import plot_encodings

figure, axes = plt.subplots(1, 2, figsize=(13, 5), sharey=True)
plot_encodings(code.repeat_interleave(2, dim=1), ax=axes[0]).set(title="Binary", xlabel="bit, drawn twice")
plot_encodings(sinusoids(64, 12), ax=axes[1]).set(title="Sines and cosines", ylabel="")
axes[0].set_xticks([0.5 + 2 * bit for bit in range(6)], [str(bit) for bit in range(6)])
plt.show()
bits_per_wave = [(row[1:] != row[:-1]).sum().item() for row in code.T]
assert bits_per_wave == [63, 31, 15, 7, 3, 1]  # each bit is half as fast as the one before
assert (axes[1].images[0].get_array() == sinusoids(64, 12).numpy()).all()

# %% [markdown]
# Fast columns on the left, slow ones on the right, in both. The sines are a binary counter with the corners
# rounded off: where a bit jumps, a wave passes all values in between. And since a sine alone goes up and down
# through the same values, each has its cosine beside it.
#
# ## A clock with many hands
#
# $$PE_{(pos,\,2i)} = \sin\!\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE_{(pos,\,2i+1)} = \cos\!\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# Each **pair** $i$ of dimensions is the hand of a clock, and $pos$ is the time. Pair 0 turns by one radian a
# position. The last pair hardly moves. Written as it stands:


# %%
def by_the_book(pos: int, d_model: int) -> list[float]:
    """One row of encodings, an entry at a time."""
    row = []
    for i in range(d_model // 2):
        angle = pos / 10000 ** (2 * i / d_model)
        row += [math.sin(angle), math.cos(angle)]
    return row


for pos in (0, 1, 2):
    print(f"position {pos}:", [f"{value:5.2f}" for value in by_the_book(pos, d_model=6)])

# %% [markdown]
# All positions at once, and the package's function, which does the same and is called once, when a model is
# built:


# %%
def encode(positions: Tensor, d_model: int) -> Tensor:
    """Positions (n,) in float64, anywhere -> encodings (n, d_model) in float64."""
    speed = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angles = positions.double().unsqueeze(1) * speed  # (n, d_model / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # sine, cosine, sine, cosine ...


rows = torch.tensor([by_the_book(pos, 512) for pos in range(100)], dtype=torch.float64)
assert_close(encode(torch.arange(100), 512), rows)
assert_close(sinusoids(100, 512), rows.float())
print("loops = matrices = package: True")
show_source(sinusoids, docstring=False)

# %% [markdown]
# The module adds the rows to the embeddings and applies dropout to the sum (section 5.4). A zero embedding
# shows what it adds; `start` is for decoding, where the seventh word comes in alone and must get row 6.

# %%
module = PositionalEncoding(512, dropout=0.0)
nothing = torch.zeros(1, 100, 512)
assert_close(module(nothing)[0], rows.float())
assert_close(module(nothing[:, :1], start=6)[0, 0], rows[6].float())
assert not list(module.parameters())
print("first row:", module(nothing)[0, 0, :6].tolist(), "...   parameters:", len(list(module.parameters())))

# %%
from annotated.plots import explore_waves, plot_waves

pe = sinusoids(5000, 512)
ax = plot_waves(pe[:60], [0, 60, 100, 200])
plt.show()
for line, dimension in zip(ax.lines, (0, 60, 100, 200), strict=True):
    assert (line.get_ydata() == pe[:60, dimension].numpy()).all()
assert (pe[:60, 200] >= 0).all()  # not even half a turn

# %% [markdown]
# Dimension 0 goes round nine times while dimension 200 does not finish half a turn. (The corners are real:
# a wave of length 6.28 is asked at whole numbers only.) With fewer dimensions, to play with:

# %%
explore_waves(d_model=20, length=100)

# %% [markdown]
# The paper says that the wavelengths run from $2\pi$ to $10000\cdot 2\pi$ in geometric progression. Do they?

# %%
for d_model in (512, 32):
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    wavelengths = 2 * math.pi * 10000**exponents
    steps = wavelengths[1:] / wavelengths[:-1]
    assert_close(steps, steps[:1].expand_as(steps))  # geometric: yes
    shortest, longest = (wavelengths[i].item() / (2 * math.pi) for i in (0, -1))
    print(f"d_model = {d_model:3}: from {shortest:.0f} to {longest:,.0f} times 2 pi")
assert longest < 6000

# %% [markdown]
# Geometric, yes. From $2\pi$, yes. To $10000\cdot2\pi$, never: the last $i$ is $d_{model}/2 - 1$, its
# exponent falls short of 1 by $2/d_{model}$, and in a narrow model that is a lot.
#
# ### Why so many hands
#
# One hand would do in principle. $2\pi$ is irrational, so $\sin$ and $\cos$ of whole numbers never come back
# to the same point. Never exactly:

# %%
hand = encode(torch.arange(1000), 512)[:, :2]  # pair 0 alone
away = (hand - hand[0]).norm(dim=-1)[1:]  # from position 0, for positions 1 ... 999
closest = away.argmin().item() + 1
print(f"position {closest} is {away.min():.5f} from position 0")
assert closest == 710
slow = encode(torch.tensor([0, 710]), 512)[:, 200:202]  # pair 100
print(f"to the hand of pair 100: {(slow[1] - slow[0]).norm():.2f}")

# %% [markdown]
# 710 is almost $113\cdot2\pi$, and to this hand almost 0. A slower hand tells the two apart. How many hands
# are enough? We ask each of 5,000 positions for the one that looks most like it, by the largest dot product.
# It should be a neighbour.

# %%
for d_model in (4, 8, 16, 64):
    table = encode(torch.arange(5000), d_model)
    likeness = (table @ table.T).fill_diagonal_(-math.inf)
    distance = (likeness.argmax(dim=-1) - torch.arange(5000)).abs()
    print(f"{d_model // 2:2} hands: the most alike are up to {distance.max()} apart")
    assert d_model < 16 or (distance == 1).all()
    assert d_model != 8 or (distance == 63).all()

# %% [markdown]
# With four hands every position takes another one, 63 away, for its closest relative. That is almost exactly
# ten turns of the first hand, one turn of the second, a tenth of a turn of the third and a hundredth of the
# fourth. Eight hands suffice for neighbours. What do the slow ones add?

# %%
from annotated.plots.positions import plot_distances

ax = plot_distances(sinusoids(5000, 64), [1, 3, 10, 30, 100, 300, 1000, 3000])
plt.show()
drawn = torch.tensor(ax.images[0].get_array())  # (offsets, 32)
assert (drawn[0, 12:] < 0.1).all()  # one position further, the slow hands stand still
moved = [(row > 0.5).nonzero().max().item() for row in drawn]
print("the slowest hand that has moved by 0.5:", moved)
assert moved == sorted(moved)
assert moved[0] < 4 < 26 < moved[-1]

# %% [markdown]
# A row is an offset. One position is told by the first few hands alone. Each threefold offset wakes the
# next four, since $10000^{4/32} \approx 3.2$. Left of that edge a hand has lapped itself and says nothing
# about *how* far; right of it, it stands still. The edge is the reading.
#
# And so, in a sentence of a hundred words, many of the 512 numbers have little to do:

# %%
ax = plot_encodings(pe[:100])
plt.show()
assert (ax.images[0].get_array() == pe[:100].numpy()).all()

sentence = pe[:100].double()
still = int((sentence.amax(dim=0) - sentence.amin(dim=0) < 0.1).sum())
spread = torch.linalg.svdvals(sentence - sentence.mean(dim=0)).square()  # movement along each direction
needed = int((spread.cumsum(dim=0) / spread.sum() < 0.99).sum()) + 1
print(f"dimensions that move by less than 0.1: {still} of 512")
print(f"directions that hold 99% of all movement: {needed}")
assert 25 < needed < 40

# %% [markdown]
# Remember the last number. It is about the room that a hundred positions take away from words.
#
# ## Why exp(log)?
#
# Much code on this paper computes the speeds of the hands as
# `torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))`. There is no exponential in section 3.5. But
# $10000 = e^{\ln 10000}$, and therefore
#
# $$\frac{1}{10000^{2i/d}} = \left(e^{\ln 10000}\right)^{-2i/d} = e^{-2i\,\ln(10000)/d}$$

# %%
d = 512
even = torch.arange(0, d, 2, dtype=torch.float64)
as_power = 10000.0 ** (-even / d)
as_exp = torch.exp(even * -(math.log(10000.0) / d))
assert_close(as_exp, as_power, rtol=1e-14, atol=0)
print("the same number, to 14 digits: True")

# %% [markdown]
# So it is a habit, not an idea. One hears that it is there "for numerical stability". We test that, in
# float32, where everybody runs it. How far off is each form of the *speed*, and how far is the *encoding*
# that comes of it, at positions up to 5,000?

# %%
low = even.float()
forms = {
    "exp(log)": torch.exp(low * -(math.log(10000.0) / d)),
    "power": 10000.0 ** (-low / d),
    "float64, rounded once": as_power.float(),
}
exact = encode(torch.arange(5001), d)
lost = {}
for name, speed in forms.items():
    angles = torch.arange(5001.0).unsqueeze(1) * speed  # float32
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    relative = ((speed.double() - as_power) / as_power).abs().max()
    lost[name] = (waves.double() - exact).abs().amax(dim=-1)  # (5001,)
    print(f"{name:22} speed right to 2e-7: {bool(relative < 2e-7)!s:5}", end="  ")
    print(f"encoding right to 1e-4: {bool(lost[name].max() < 1e-4)}")
    assert (relative > 2e-7) == (name == "exp(log)")
    assert 1e-4 < lost[name].max() < 1e-3
assert (sinusoids(5001, d).double() - exact).abs().max() < 1e-7

# %% [markdown]
# As for the speed, it is the other way round: exp(log) is the *least* exact of the three. It rounds a
# logarithm as large as 9.2, and the exponential turns that absolute error into a relative one. And for the
# encoding it makes no difference: all three lose the fourth decimal, even the one whose speeds are as good
# as float32 can hold. What loses it is **the angle**. Near 5,000 neighbouring float32 numbers are this far
# apart:

# %%
gap = torch.nextafter(torch.tensor(5000.0), torch.tensor(math.inf)) - 5000
print(f"float32 near 5,000: steps of {gap:.5f} radians")
for pos in (10, 1000, 5000):
    print(f"position {pos:4}: error below 1e-5: {bool(lost['exp(log)'][pos] < 1e-5)}")
    assert lost["exp(log)"][pos] < 2e-7 * pos + 1e-7

# %% [markdown]
# The error grows with the position, since a sine sees its angle's *absolute* error. So the package takes the
# angles in float64 and rounds the sines: right to seven digits, at every position. A model does not notice
# 0.0004. Someone who compares two implementations does.
#
# What a model does notice is one step further down that road. Models are often trained in bfloat16, which
# keeps eight binary digits of a number. If the *positions* are turned into it:

# %%
for kind in (torch.float16, torch.bfloat16):
    left = torch.arange(5000.0).to(kind).unique().numel()
    print(f"{kind}: of 5,000 positions, {left:,} are left")
print("256, 257, 258 become", torch.tensor([256.0, 257.0, 258.0]).bfloat16().int().tolist())

# %% [markdown]
# From 256 on, neighbours share a position, and nothing complains. Compute first, round last.
#
# ## Only the offset counts
#
# How alike are two positions? Take the dot product of their encodings.

# %%
from annotated.plots import plot_offsets, plot_similarity

figure, axes = plt.subplots(1, 2, figsize=(14, 5))
plot_similarity(pe[:100], ax=axes[0])
plot_offsets(pe[:200], [20, 100, 180], ax=axes[1])
plt.show()
likeness = torch.tensor(axes[0].images[0].get_array())
for offset in range(100):
    stripe = likeness.diagonal(offset)
    assert_close(stripe, stripe[:1].expand_as(stripe), atol=1e-3, rtol=0)
print("each diagonal is one number: True")

# %% [markdown]
# Stripes. Wherever two words stand, only the distance between them matters: three curves from three starting
# points lie on one another. The reason is the school formula
# $\sin a\sin b + \cos a\cos b = \cos(a - b)$, once for each hand:
#
# $$PE_{pos}\cdot PE_{pos+k} = \sum_i \cos\left(k \cdot 10000^{-2i/d_{model}}\right)$$

# %%
k = torch.arange(100, dtype=torch.float64).unsqueeze(1)
formula = torch.cos(k * as_power).sum(dim=-1)  # (100,): offsets 0 ... 99
assert_close(likeness[0].double(), formula, atol=1e-3, rtol=0)
print("offset 0:", round(formula[0].item()), " 1:", round(formula[1].item()), " 2:", round(formula[2].item()))
assert_close(pe.square().sum(dim=-1), torch.full((5000,), 256.0))
print("every encoding has the same length, the root of d_model / 2: True")

# %% [markdown]
# It is also the same to the left and to the right. $\cos(-k) = \cos(k)$: this product knows how *far*, but
# cannot tell *before* from *after*. For that, query and key have to be made different, and it takes one
# matrix.
#
# ## $k$ further is a turn
#
# The authors chose sines because, for any fixed offset $k$, $PE_{pos+k}$ is a *linear function* of
# $PE_{pos}$: they hypothesised that this makes it easy to attend by relative positions. Which function? To
# advance a clock, turn each hand by its own angle: $PE_{pos+k} = R_k\,PE_{pos}$, with a turn of the plane for
# each pair along the diagonal of $R_k$.


# %%
def turn(k: int, d_model: int) -> Tensor:
    """The matrix (d_model, d_model) that takes each position to the one k further."""
    speed = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in k * speed]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


for k in (1, 7, 100):
    moved = encode(torch.arange(4000), 64) @ turn(k, 64).T
    assert_close(moved, encode(torch.arange(4000) + k, 64), atol=1e-9, rtol=0)
    print(f"one matrix takes each of 4,000 positions {k} further: True")

# %%
from annotated.plots import plot_rotation

figure, axes = plt.subplots(1, 2, figsize=(12, 6))
small = sinusoids(16, 64)
for ax, pair in zip(axes, (4, 6), strict=True):
    plot_rotation(small, pair=pair, offset=3, ax=ax)
plt.show()
for pair in (4, 6):
    sine, cosine = small[:, 2 * pair], small[:, 2 * pair + 1]
    turned = torch.atan2(sine[3:], cosine[3:]) - torch.atan2(sine[:-3], cosine[:-3])
    assert_close(turned % (2 * math.pi), torch.full((13,), 3 * 10000 ** (-2 * pair / 64)))

# %% [markdown]
# Three arrows from three positions: the same turn. The faster hand turns further, that is all.
#
# **Exercise 1.** What must $R_j R_k$ be, and $R_{-k}$, and $R_k^\top$? Guess, then check. What does it say
# about the length of $PE_{pos+k}$?

# %% tags=["solution"]
assert_close(turn(3, 64) @ turn(4, 64), turn(7, 64))
assert_close(turn(-5, 64), turn(5, 64).T)
assert_close(turn(5, 64) @ turn(5, 64).T, torch.eye(64).double(), atol=1e-6, rtol=0)
print("turns add up; back is the transpose; so no turn changes a length")

# %% [markdown]
# ### A head without training
#
# Now we can build, by hand, a head that looks at **the word before**, wherever it stands. Queries: each
# position turned back by one. Keys: the positions as they are. The query of position $t$ is then the key of
# $t - 1$.

# %%
d = 512
back = math.sqrt(d) * turn(-1, d)  # the root undoes equation 1's division
for first in (0, 100_000):
    place = encode(torch.arange(first, first + 200), d)  # 200 positions in a row
    weights = attention(place @ back.T, place, place)[1]  # (200, 200)
    before = weights.diagonal(-1)  # what each position, from the second on, gives to the one before
    print(f"from position {first:7,}: each gives at least {before.min():.3f} to the one before it")
    assert before.min() > 0.99

# %% [markdown]
# Nothing was learned, and at position 100,000 it works as at 0. This is as much as the hypothesis of section
# 3.5 can promise: **such a head exists**. Whether training finds it is another question, which we keep for
# the end. First, words have to come in.
#
# ## Added, not appended
#
# $PE$ is not put *beside* the embedding, it is *added* to it. That looks reckless: 7 could be 3 + 4 or
# 5 + 2. In 512 dimensions? We take the embeddings of the fresh model, add positions, and try to get both
# back out of the sum: which row of the table is nearest?


# %%
def nearest(sums: Tensor, table: Tensor) -> Tensor:
    """For each of the sums (n, d), which row of the table (rows, d) is nearest: (n,)."""
    return torch.cdist(sums, table).argmin(dim=-1)


_ = torch.manual_seed(0)
tokens = torch.randint(1000, (4000,))
places = torch.arange(200).repeat(20)  # 20 sentences of 200 words
with torch.no_grad():
    vocabulary = model.src_embed[0](torch.arange(1000))  # (1000, 512)
print(f"variance: words {vocabulary.var():.1f}, positions {pe.square().mean():.1f}")
both = vocabulary[tokens] + pe[places]  # (4000, 512)
right, off = nearest(both, vocabulary) == tokens, (nearest(both, pe[:200]) - places).abs()
print(f"words read right: {right.float().mean():.0%}; positions within two: {(off <= 2).float().mean():.0%}")
print("positions read right, more than nine in ten:", bool((off == 0).float().mean() > 0.9))
assert right.all()
assert (off <= 2).all()
assert (off == 0).float().mean() > 0.9

# %% [markdown]
# Both, by the simplest reader there is. In many dimensions two vectors that have nothing to do with each
# other are almost at right angles.
#
# The readings depend on the two being of about the same size, and the $\sqrt{d_{model}}$ of section 3.4 sees
# to that. (The paper gives no reason for it.) Fresh embeddings have a variance of $1/d_{model}$ here. Without
# the root:

# %%
quiet = vocabulary / math.sqrt(512)
sums = quiet[tokens] + pe[places]
word = (nearest(sums, quiet) == tokens).float().mean()
place_read = (nearest(sums, pe[:200]) == places).float().mean()
print(f"no root: positions {place_read:.0%}; fewer than one word in ten: {bool(word < 0.1)}")
assert word < 0.1 < 0.99 < place_read

# %% [markdown]
# The positions shout the words down. Now turn it round: with the root, do the words disturb our hand-made
# head? It gets sums now: $x = $ word + position goes in for query and key.

# %%
_ = torch.manual_seed(0)
place = encode(torch.arange(200), d)
text = torch.randn(200, d).double()  # 200 words
x = text + place
print(f"to the word before: {attention(x @ back.T, x, x)[1].diagonal(-1).mean():.2f}")

directions = torch.linalg.svd(place).Vh[:80]  # (80, 512): where the positions move
look = directions.T @ directions  # keeps these, drops the rest
tidy = text - text @ look  # words that stay out of them
x = tidy + place
weights = attention(x @ look @ back.T, x @ look, x)[1]
print(f"words out of the way: at least {weights.diagonal(-1).min():.3f}")
assert weights.diagonal(-1).min() > 0.99
print(f"a word gives up {len(directions)} of {d} numbers")

# %% [markdown]
# With random words the head is deaf: a word's product with another word's position is ±16, and the step from
# one position to the next is 7. If the words keep out of 80 of their 512 directions, it hears every position
# of 200 again. (80, and not the 31 of above: there we had half as many positions, and let 1% of their
# movement go.) So adding *contains* appending. The model is free to keep a part of the vector for the
# positions, and how large a part, training decides. Appending, we would have to fix it beforehand.
#
# ## Learned positions
#
# The alternative: a table with a row for each position, random at first, trained like the words.

# %%
show_source(LearnedPositions, docstring=False)

# %%
_ = torch.manual_seed(0)
other = make_model(1000, 1000, N=1, d_model=512, d_ff=64, h=8, positions="learned", max_len=200)
learned = other.src_embed[1].lut.weight.detach()  # (200, 512)
figure, axes = plt.subplots(1, 2, figsize=(14, 5))
plot_similarity(pe[:64], ax=axes[0]).set_title("Sines")
plot_similarity(learned[:64], ax=axes[1]).set_title("Learned, before training")
plt.show()
noise = torch.tensor(axes[1].images[0].get_array())
assert noise.fill_diagonal_(0).abs().max() < 0.3  # against 1 on the diagonal
print(f"parameters for 5,000 positions: {5000 * 512:,} each in encoder and decoder; for the sines: 0")

# %% [markdown]
# No stripes, no neighbourhood: position 7 is no nearer to 8 than to 60. That is the one-hot code again, and
# everything has to be learned from data. Note the scale of the right picture, too. Here the table is born
# like the embeddings, with variance 1/512, and nobody multiplies it by a root:

# %%
sums = vocabulary[tokens] + learned[places]
word = (nearest(sums, vocabulary) == tokens).float().mean()
place_read = (nearest(sums, learned) == places).float().mean()
print(f"learned, at birth: words {word:.0%}; fewer than one position in ten: {bool(place_read < 0.1)}")
assert place_read < 0.1 < 0.99 < word

# %% [markdown]
# At birth they whisper: the mirror image of leaving out the root. They have to grow before anybody hears
# them. They do. Row (E) of the paper's Table 3 has them beside the base model: 25.7 BLEU against 25.8.
# "Nearly identical", says section 3.5, and then gives the reason for the sines all the same: they *may*
# allow the model to extrapolate to sequences longer than those of training.
#
# ## Past the trained length
#
# First, what the code does when it gets there.

# %%
short = PositionalEncoding(512, dropout=0.0, max_len=200)
assert_close(short(torch.zeros(1, 300, 512))[0], pe[:300])
print("sines: computed when needed")
try:
    other.src_embed(torch.zeros(1, 201, dtype=torch.long))
except ValueError as error:
    print("learned: ValueError:", error)

# %% [markdown]
# A table that is long enough does not help if no sentence was: a row that is never read gets no gradient.

# %%
other.src_embed(torch.zeros(1, 32, dtype=torch.long)).square().sum().backward()
touched = other.src_embed[1].lut.weight.grad.abs().sum(dim=-1) > 0
print("rows with a gradient after a sentence of 32:", int(touched.sum()), "of 200")
assert touched.tolist() == [True] * 32 + [False] * 168

# %% [markdown]
# So it is clear what becomes of learned positions. And of sines? One would think that they go on: there is
# a row for every position, and a head that works at 100,000. Let us see who can learn that head. The task
# is the simplest that needs positions: at each place, **say the symbol before**. The model is one attention
# with a linear map to 16 symbols; we train it on rows of 32, and ask it for 64.


# %%
class Before(nn.Module):
    """Embed, add positions, attend once with a causal mask, and say a symbol at each place."""

    def __init__(self, positions: nn.Module, d_model: int = 64, symbols: int = 16):
        super().__init__()
        self.embed, self.positions = Embeddings(d_model, symbols), positions
        nn.init.normal_(self.embed.lut.weight, std=d_model**-0.5)
        self.attend = MultiHeadedAttention(h=1, d_model=d_model, dropout=0.0)
        self.say = nn.Linear(d_model, symbols)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Symbols (B, len), the first at position `start` -> logits (B, len, symbols)."""
        x = self.embed(tokens)  # (B, len, d_model)
        x = self.positions(x, start) if self.positions else x
        return self.say(self.attend(x, x, x, subsequent_mask(tokens.size(1))))


# %%
def fit(positions: nn.Module | None, starts: int, steps: int = 300) -> Before:
    """Train on rows of 32 symbols, each batch at some position below `starts`."""
    torch.manual_seed(0)
    model = Before(positions)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)  # end calmly
    for _ in range(steps):
        tokens, start = torch.randint(16, (32, 32)), int(torch.randint(starts, ()))
        logits = model(tokens, start)[:, 1:]  # from the second place on, something stands before
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    return model


@torch.no_grad()
def right_by_place(model: Before, length: int, start: int = 0) -> Tensor:
    """The share of right answers at places 1 ... length - 1, over 300 rows."""
    tokens = torch.randint(16, (300, length))
    return (model(tokens, start)[:, 1:].argmax(dim=-1) == tokens[:, :-1]).float().mean(dim=0)


# %%
def sines() -> PositionalEncoding:
    return PositionalEncoding(64, dropout=0.0)


def table() -> LearnedPositions:
    torch.manual_seed(1)
    positions = LearnedPositions(64, dropout=0.0)
    nn.init.normal_(positions.lut.weight, std=0.5**0.5)  # as loud as the sines: no whisper here
    return positions


from_zero = {"sines": fit(sines(), 1), "learned": fit(table(), 1), "no positions": fit(None, 1)}
shares = {name: right_by_place(trained, 64) for name, trained in from_zero.items()}
for name, share in shares.items():
    print(f"{name:12}  above 95% up to place 31: {bool(share[:31].mean() > 0.95)!s:5}", end="  ")
    print(f"below 25% from 36 on: {bool(share[35:].mean() < 0.25)}")
assert shares["sines"][:31].mean() > 0.95 < shares["learned"][:31].mean()

# %%
from annotated.plots.positions import plot_past

plot_past(shares, trained=32)
plt.show()
assert shares["sines"][35:].mean() < 0.25
assert shares["learned"][31:].mean() < 0.25
assert shares["no positions"][0] > 0.9
assert shares["no positions"][4:31].mean() < 0.35

# %% [markdown]
# Two cliffs in the same place. The sines carry a position further, since they are smooth, and then they say
# no more than the table. Chance is 6%.
#
# (The third curve is a bag of words at work. At place 1 the bag holds two symbols, one's own and the
# answer; at place 2 it is one of two, then one of three ...)
#
# But the head exists! One like that which we built by hand does not care where it stands. Training did not
# find it, and nothing asked it to: 32 places can be told apart in many ways, and only one of them is a turn.
# What if a batch may stand anywhere? The rows stay 32 long, but begin at a position drawn from 0 to 96. Then
# we ask at 300 and at 1,000, where neither model has ever been.

# %%
anywhere = {"sines": fit(sines(), 97), "learned": fit(table(), 97)}
for name, trained in anywhere.items():
    far = [right_by_place(trained, 32, start).mean().item() for start in (50, 300, 1000)]
    print(f"{name:8} more than half right at 50: {far[0] > 0.5}", end=", ")
    print(f"at 300: {far[1] > 0.5}, at 1,000: {far[2] > 0.5}")
    assert far[0] > 0.9
    assert (min(far[1:]) > 0.5) if name == "sines" else (max(far[1:]) < 0.35)

# %% [markdown]
# The learned table is lost wherever it has not been. The sines, trained on positions 0 to 127 and no
# further, answer at 1,000: not always, but eight times as often as chance and more. Same model, same sines,
# rows of the same length as before; but each row stands elsewhere, and the place is no longer a shortcut. A
# toy, but it shows what the paper's "may" is worth: sines *allow* a model to extrapolate. Whether it does is
# decided by what it is trained on.
#
# **Exercise 2.** Later models (RoPE, Su et al., 2021) are built so that only the offset *can* count: they
# add nothing to the words, and turn each query and each key by its own position instead. Show that with
# $q_t = R_t\,q$ and $k_s = R_s\,k$ the score depends on $t - s$ alone, whatever $q$ and $k$ are.

# %% tags=["solution"]
_ = torch.manual_seed(0)
q, k = torch.randn(2, 64).double()
queries = torch.stack([turn(t, 64) @ q for t in range(8)])  # (8, 64)
keys = torch.stack([turn(s, 64) @ k for s in range(8)])  # (8, 64)
scores = queries @ keys.T  # (8, 8)
for offset in range(-7, 8):
    stripe = scores.diagonal(offset)
    assert_close(stripe, stripe[:1].expand_as(stripe), atol=1e-4, rtol=0)
assert not torch.allclose(scores, scores.T)  # and this time before and after differ
print("one number for each offset, and not the same to the left and to the right")

# %% [markdown]
# The positions are in. With them everything that goes into a layer is ready, and
# [06_the_full_model](06_the_full_model.ipynb) puts the layers together.
