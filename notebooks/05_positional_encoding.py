# %% [markdown]
# # 05 · Positional encoding
#
# **We give every position a clock with many hands, set all clocks forward with one matrix, and ask whether
# a model can still read them at positions that it never saw in training.**
#
# Previous: [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb) · Next:
# [06_the_full_model](06_the_full_model.ipynb)
#
# *23 minutes to read, half a minute to run, the exercises extra.*
#
# - **Before:** you know attention with its queries, keys and masks (02), and that words become vectors,
#   *embeddings* (04).
# - **After:** you know what each sine is for, how one matrix shifts every position, why 10000, how learned
#   positions differ, and what the paper's "may allow the model to extrapolate" is worth.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.5. Numbers after
# `≈` may differ a little on another processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

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
    attention,
    evaluating,
    make_model,
    sinusoids,
    subsequent_mask,
)

# %%
from annotated.plots import (
    plot_clocks,
    plot_distances,
    plot_encodings,
    plot_offsets,
    plot_past,
    plot_similarity,
    setup_notebook,
    show_source,
)

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## Without positions, a sentence is a bag of words
#
# > "Since our model contains no recurrence and no convolution, in order for the model to make use of the
# > order of the sequence, we must inject some information about the relative or absolute position of the
# > tokens in the sequence." (section 3.5)
#
# Must we? An untrained encoder receives ten words *without* positions, and then the same words shuffled.

# %%
_ = torch.manual_seed(0)
model = make_model(1000, 1000, N=2, d_model=512, d_ff=256, h=8)
words = torch.randint(1000, (1, 10))
shuffle = torch.randperm(10)
with evaluating(model):
    embedded = model.src_embed[0](words)  # (1, 10, 512), no positions added
    straight = model.encoder(embedded, None)
    shuffled = model.encoder(embedded[:, shuffle], None)
difference = (shuffled - straight[:, shuffle]).abs().max()
print(f"shuffled input, shuffled output: they differ by at most ≈{difference:.1e}")
assert difference < 1e-4

# %% [markdown]
# Shuffling the input only shuffles the output. This is **permutation equivariance**: a word gets the same
# vector wherever it stands.
#
# Does a decoder's causal mask reveal the order? We give the same two layers a causal mask, shuffle the
# first nine words and look at the last, which sees all ten.

# %%
earlier = torch.cat([torch.randperm(9), torch.tensor([9])])  # the last word stays the last
moved = []
with evaluating(model):
    straight, shuffled = embedded, embedded[:, earlier]
    for depth, layer in enumerate(model.encoder.layers, start=1):
        straight, shuffled = (layer(x, subsequent_mask(10)) for x in (straight, shuffled))
        moved.append((straight[:, -1] - shuffled[:, -1]).abs().max())
        print(f"causal mask, after layer {depth}: the last word's vector moves by ≈{moved[-1]:.1e}")
assert moved[0] < 1e-4 < 1e-2 < moved[1]

# %% [markdown]
# After two layers it moves, because in layer 1 the shuffled words saw other words before them. So a
# decoder can learn something about order without positions (Haviv et al., 2022): one causal layer can tell
# how many words stand before it, two their order.
#
# ## Four simpler encodings, and what each lacks
#
# **The number itself:** position 7 adds 7 to every entry. The *layer norm* of each sub-layer
# ([06](06_the_full_model.ipynb)) subtracts the mean of the entries and divides by their standard deviation.

# %%
embeddings = embedded[0]  # (10, 512): ten words, entries of variance 1
numbered = embeddings + torch.arange(10.0).unsqueeze(1)
lost = (F.layer_norm(numbered, [512]) - F.layer_norm(embeddings, [512])).abs().max()
weights = attention(numbered, numbered, numbered)[1]  # (10, 10)
latest = int((weights.argmax(dim=-1) == 9).sum())
print(f"after a layer norm the numbers change nothing: at most ≈{lost:.1e}")
print(f"without a norm, {latest} of 10 words look most at the last word")
assert lost < 1e-4
assert latest >= 9

# %% [markdown]
# The norm subtracts exactly what we added. A
# number in *one* entry would survive, but at position 100 the norm would shrink the 511 others to less than
# a quarter.
#
# **The number divided by the length:** "one word further" is 0.1 in ten words and 0.01 in a hundred.
# **One-hot vectors:** a one-hot vector times a matrix is a row of it: the learned table (below), which
# needs every position in training. **Binary digits:** from 6 (`0110`) to 7 (`0111`) one digit changes, from
# 7 to 8 (`1000`) all four.
#
# ## Sines and cosines
#
# $$PE_{(pos,\,2i)} = \sin\!\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE_{(pos,\,2i+1)} = \cos\!\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# The index $i$ counts *pairs* of dimensions. Each pair holds the sine and the cosine of *one* angle: the
# position $pos$ times the **frequency** $\omega_i = 10000^{-2i/d_{model}}$.
#
# **Exercise 1 (easy).** Write the table yourself: row $pos$, columns $2i$ and $2i + 1$. Use float64.


# %% tags=["exercise"]
def table_of_sines(length: int, d_model: int) -> Tensor:
    """The positional encodings of section 3.5, float64: (length, d_model), d_model even."""
    raise NotImplementedError


# %% tags=["solution"]
def table_of_sines(length: int, d_model: int) -> Tensor:
    """The positional encodings of section 3.5, float64: (length, d_model), d_model even."""
    table = torch.zeros(length, d_model, dtype=torch.float64)
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i], table[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


show_source(sinusoids, docstring=False)

# %% tags=["exercise-test"]
table = table_of_sines(50, 6)
assert table.shape == (50, 6)
assert_close(table[0], torch.tensor([0.0, 1, 0, 1, 0, 1]).double())
assert_close(table[3, :4], torch.tensor([0.1411, -0.9900, 0.1388, 0.9903]).double(), atol=1e-4, rtol=0)
assert_close(table.float(), sinusoids(50, 6))

# %% [markdown]
# ### A clock with many hands
#
# An angle that grows steadily is the hand of a clock. With $d_{model} = 6$ there are three hands, and one
# clock is one row of the table: the sine is how far right a tip is, the cosine how far up. (All have length
# 1; we draw three lengths to tell them apart.)

# %% tags=["figure-clocks"]
for _pos, number in ((1, math.sin(1)), (2, math.sin(2))):
    assert abs(sinusoids(3, 6)[_pos, 0] - number) < 1e-6  # the formula at i = 0: the sine of the position
plot_clocks(sinusoids(101, 6), [0, 1, 2, 10, 100])
plt.show()

# %% [markdown]
# *Figure 1. Five positions as clocks. The long hand turns by 1 radian a position, the middle one by
# 0.046, the short one by 0.002. No two clocks show the same time.*
#
# Binary numbers, too, have fast and slow digits. We draw six binary digits beside six pairs, with base 64
# instead of 10000.


# %% tags=["figure-counter"]
def encode(positions: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    """Any positions (n,) -> their encodings, float64: (n, d_model)."""
    frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = positions.double().unsqueeze(1) * frequencies  # (n, d_model / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


assert_close(encode(torch.arange(100), 512).float(), sinusoids(100, 512))  # the package's table
rows = torch.arange(64)
digits = (rows.unsqueeze(1) // 2 ** torch.arange(6) % 2) * 2.0 - 1  # (64, 6), the fastest first
waves = encode(rows, 12, base=64)
figure, axes = plt.subplots(1, 2, figsize=(13, 5), sharey=True)
plot_encodings(digits, ax=axes[0]).set(title="Binary digits", xlabel="digit (fast to slow)")
plot_encodings(waves, ax=axes[1]).set(title="Sines and cosines, base 64", ylabel="")
plt.show()

# %% [markdown]
# *Figure 2. Both tables count from 0 (top) to 63 (bottom), fast columns on the left. A digit jumps. A wave
# moves by the same angle at every step, so neighbours are always equally near.*
#
# Why a sine *and* a cosine? A sine alone takes each value twice in a turn. And
# $\sin(a+b) = \sin a\cos b + \cos a\sin b$ needs both, so with sines alone no matrix could
# move every position (below).
#
# ### What each hand is for
#
# How far does the tip of each hand move when the position grows by 1, 3, 10, ...? (2 is half a turn.)

# %% tags=["figure-distances"]
ax = plot_distances(sinusoids(5000, 64), [1, 3, 10, 30, 100, 300, 1000, 3000])
plt.show()
drawn = torch.tensor(ax.images[0].get_array())  # (8 distances, 32 pairs)
boundary = [int((row > 0.5).nonzero().max()) for row in drawn]
print("the slowest hand that moves by more than 0.5:", boundary)
assert boundary == sorted(boundary)
assert (drawn[0, 12:] < 0.1).all()

# %% [markdown]
# *Figure 3. On the right the hands are too slow to have moved. On the left they may have gone round and say
# little about the distance. The boundary tells roughly how far apart the positions are.*
#
# ### Why 10000?
#
# The paper gives no reason; in the authors' code it is a default (tensor2tensor, `get_timing_signal_1d`).
# What would another base change? The dot product of two encodings, divided by its largest value, tells how
# similar two positions are.

# %%
distances = (1, 10, 100, 1000, 5000)
print("similarity at distance", "".join(f"{distance:8,}" for distance in distances))
similar = {}
for base in (10, 100, 10_000, 1_000_000):
    table = encode(torch.tensor([0, *distances]), 512, base)
    similar[base] = (table[0] @ table[1:].T) / 256
    print(f"base {base:9,}       ", "".join(f"{value:8.2f}" for value in similar[base]))
assert similar[10][2:].abs().max() < 0.1
assert (similar[10_000][:-1] > similar[10_000][1:] + 0.02).all()
assert (similar[1_000_000] > similar[10_000]).all()

# %% [markdown]
# The base decides over which distances the similarity falls. With base 10 even the slowest hand is back
# after 62 positions, and a distance of 100 looks like one of 5,000. With base 10000 the similarity falls
# all the way. A larger base makes near positions more alike (0.78 instead of 0.68 at distance 10). So
# 10000 is more than long enough for sentences; 1,000 might do as well (we did not try).
#
# > "The wavelengths form a geometric progression from 2π to 10000 · 2π." (section 3.5)
#
# A *wavelength* is the number of positions in one turn, $2\pi/\omega_i$. By the paper's formula the last
# one is shorter, because the last exponent is $(d_{model}-2)/d_{model}$:

# %%
for d_model in (32, 512):
    longest = 10000 ** ((d_model - 2) / d_model)
    print(f"d_model = {d_model:3}: the longest wavelength is {longest:5,.0f} · 2π")
    assert longest < 9700

# %% [markdown]
#
#
# ## Between two encodings only the distance counts
#
# Because $\sin a\sin b + \cos a\cos b = \cos(a - b)$ in every pair, the dot product of two encodings is
#
# $$PE_{pos}\cdot PE_{pos+k} = \sum_i \cos\left(k\,\omega_i\right)$$
#
# Only the offset $k$ is left.

# %% tags=["figure-similarity"]
pe = sinusoids(5000, 512)
figure, axes = plt.subplots(1, 2, figsize=(14, 5))
plot_similarity(pe[:100], ax=axes[0])
plot_offsets(pe[:200], [100], ax=axes[1]).set_title("Similarity to position 100")
axes[1].plot([-30, 30], (pe[[70, 130]] @ pe[100]).tolist(), "o", ms=10, color="#d55e00")
axes[1].legend_.remove()
plt.show()
likeness = pe[:100] @ pe[:100].T
frequencies = 10000.0 ** (-torch.arange(0, 512, 2) / 512)
formula = torch.cos(torch.arange(100.0).unsqueeze(1) * frequencies).sum(dim=-1)  # (100,): offsets 0 ... 99
for k in range(100):
    assert_close(likeness.diagonal(k), formula[k].expand(100 - k), atol=1e-3, rtol=0)
print(f"offset 0: {formula[0]:.0f}, offset 1: {formula[1]:.0f}, offset 2: {formula[2]:.0f}")

# %% [markdown]
# *Figure 4. Left: every diagonal has one colour, so the similarity depends on the offset alone. Right: the
# row of position 100. The dots, thirty positions before and thirty after, are equally high.*
#
# So the dot product does not tell which position comes first. For that, queries and keys need different
# matrices.
#
# ## One matrix moves every position
#
# > "We chose this function because we hypothesized it would allow the model to easily learn to attend by
# > relative positions, since for any fixed offset k, PE(pos+k) can be represented as a linear function of
# > PE(pos)." (section 3.5)
#
# To set a clock forward by $k$ positions, turn hand $i$ by the angle $k\,\omega_i$, a **rotation**. So
# $PE_{pos+k} = R_k\,PE_{pos}$ for every $pos$. On the diagonal of $R_k$ each pair has a 2 × 2 block, which
# acts on (sine, cosine):
#
# $$\begin{pmatrix}\cos k\omega_i & \sin k\omega_i\\ -\sin k\omega_i & \cos k\omega_i\end{pmatrix}$$


# %%
def rotation(k: int, d_model: int) -> Tensor:
    """The matrix (d_model, d_model) that takes each position's encoding to that of k further."""
    angles = (k * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)).tolist()
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


for k in (1, 7, -100):
    turned = encode(torch.arange(4000), 64) @ rotation(k, 64).T
    error = (turned - encode(torch.arange(4000) + k, 64)).abs().max()
    print(f"k = {k:4}: one matrix for 4,000 positions, largest error ≈{error:.0e}")
    assert error < 1e-9

# %% tags=["figure-rotation"]
plot_clocks(sinusoids(101, 6), [2, 30, 97], offset=3)
plt.show()

# %% [markdown]
# *Figure 5. Each position (pale) and the position three later (full). A hand turns by the same angle in all
# three clocks, so one matrix serves them all. The short hand turns too little to see (0.006 radians).*
#
# Now we can build a head *by hand* that attends to **the word before**. Its keys are the encodings. Its
# queries are the encodings set back by one, so the query of position $t$ equals the key of position
# $t - 1$. That key scores 256 and its neighbours 249 (offsets 0 and 1 in Figure 4), and the softmax turns a
# difference of 7 into a factor of about 1,000. The paper's heads are narrower: $d_k = 64$ holds 32 pairs.
# We try the 32 fastest, too. (The square root undoes the division in equation 1.)

# %%
d = 512
for first in (0, 100_000):
    for width in (64, d):
        places = encode(torch.arange(first, first + 200), d)[:, :width]  # 200 positions in a row
        back = math.sqrt(width) * rotation(-1, d)[:width, :width]
        before = attention(places @ back.T, places, places)[1].diagonal(-1)  # weights on the word before
        print(f"from {first:7,} on, {width:3} wide: the word before gets at least ≈{before.min():.3f}")
        assert before.min() > 0.99

# %% [markdown]
# Nothing is trained, and at position 100,000 the head works as well as at 0. So the hypothesis is right
# about what is *possible*; the last section asks what training finds.
#
# ## Added, not appended
#
# > "The positional encodings have the same dimension d_model as the embeddings, so that the two can be
# > summed." (section 3.5)
#
# A 7 may be 3 + 4 or 5 + 2. Does a sum not lose information? We add positions to the untrained model's
# embeddings, which are scaled by $\sqrt{d_{model}}$ ([04](04_feed_forward_and_embeddings.ipynb)), and look
# for the nearest row of each table.

# %%
_ = torch.manual_seed(0)
tokens, places = torch.randint(1000, (4000,)), torch.arange(200).repeat(20)
with torch.no_grad():
    vocabulary = model.src_embed[0](torch.arange(1000))  # (1000, 512)


def read(words: Tensor, positions: Tensor) -> tuple[float, float]:
    """Shares of 4,000 sums in which the nearest row of each table is the right one."""
    sums = words[tokens] + positions[places]  # (4000, 512)
    right = (torch.cdist(sums, words).argmin(-1) == tokens, torch.cdist(sums, positions).argmin(-1) == places)
    return tuple(share.float().mean().item() for share in right)


both, unscaled = read(vocabulary, pe[:200]), read(vocabulary / math.sqrt(512), pe[:200])
for name, (word, place) in (("embeddings times √d_model", both), ("embeddings alone", unscaled)):
    print(f"{name:26} words read right: ≈{word:.0%}, positions: ≈{place:.0%}")
assert both[0] > 0.99 < unscaled[1]
assert both[1] > 0.9
assert unscaled[0] < 0.1

# %% [markdown]
# With the factor both can be read: unrelated vectors in 512 dimensions are almost at right angles. A
# position has length $\sqrt{256} = 16$; an embedding has length 1 without the factor and about 23 with it.
# Without it, the nearest word is mostly wrong. (Nothing is lost: every position is read right, and
# subtracting it leaves the word.)
#
# What does our hand-made head do with word + position?

# %%
_ = torch.manual_seed(0)
places = encode(torch.arange(200), d)
text = torch.randn(200, d).double()  # 200 random words
x = text + places
back = math.sqrt(d) * rotation(-1, d)  # as above
scores = x @ back.T @ x.T / math.sqrt(d)  # (200, 200)
itself, previous = scores.diagonal(), scores.diagonal(-1)
print(f"score with itself: ≈{itself.mean():.0f}", end=", ")
print(f"with the word before: ≈{previous.mean():.0f} ± ≈{previous.std():.0f}")
print(f"weight on itself: at least ≈{scores.softmax(dim=-1).diagonal().min():.3f}")
hidden = scores.masked_fill(torch.eye(200, dtype=torch.bool), -math.inf)
right = int((hidden.argmax(dim=-1)[1:] == torch.arange(199)).sum())
print(f"with itself hidden: the word before is first in ≈{right} of 199 rows")
assert 235 < previous.mean() < 275 < 700 < itself.mean() < 800
assert 25 < previous.std() < 40
assert scores.softmax(dim=-1).diagonal().min() > 0.99
assert 50 < right < 110

# %% [markdown]
# Every word attends to **itself**: a word's dot product with itself is about 512. If we hide the diagonal,
# scores still vary by ±32 with the words, and one position further makes a difference of only
# $256 - 249 = 7$.
#
# The cure is to keep them apart. These 200 encodings lie almost wholly in
# 80 of the 512 directions (a singular value decomposition finds them). We remove those from the words, and
# show the head nothing else.

# %%
directions = torch.linalg.svd(places).Vh[:80]  # (80, 512)
look = directions.T @ directions  # the projection on them, (512, 512)
share = ((places @ look).square().sum() / places.square().sum()).item()
x = text - text @ look + places
weights = attention(x @ look @ back.T, x @ look, x)[1]
print(f"80 directions hold ≈{share:.2%} of the squared length of the encodings;")
print(f"the word before gets at least ≈{weights.diagonal(-1).min():.3f}")
assert weights.diagonal(-1).min() > 0.99 < share

# %% [markdown]
# So adding *contains* appending: training may reserve some directions of the vector for positions.
#
# ## Learned positions
#
# > "We also experimented with using learned positional embeddings instead, and found that the two versions
# > produced nearly identical results (see Table 3 row (E))." (section 3.5)
#
# The alternative is a table with one row per position, trained like the embeddings. Row (E) has 25.7 BLEU
# ([12](12_results.ipynb)), the sines have 25.8. But the table starts at random, without any order:

# %%
_ = torch.manual_seed(0)
other = make_model(1000, 1000, N=1, d_model=512, d_ff=64, h=8, positions="learned", max_len=200)
learned = other.src_embed[1].lut.weight.detach()  # (200, 512)
for name, table in (("sines", pe[:200]), ("learned, untrained", learned)):
    unit = F.normalize(table, dim=-1)
    print(f"{name:18} cosine of neighbours: ≈{(unit[1:] * unit[:-1]).sum(-1).mean():.2f}")
    assert ((unit[1:] * unit[:-1]).sum(-1).mean() > 0.9) == (name == "sines")
other.src_embed(torch.zeros(1, 32, dtype=torch.long)).square().sum().backward()
touched = int((other.src_embed[1].lut.weight.grad.abs().sum(dim=-1) > 0).sum())
print(f"rows that get a gradient from a sentence of 32 words: {touched} of 200")
assert touched == 32

# %% [markdown]
# A row beyond the longest training sentence stays random. Sines
# can be computed for any position:

# %%
longer = PositionalEncoding(512, dropout=0.0, max_len=200)(torch.zeros(1, 300, 512))
assert_close(longer[0], pe[:300])
try:
    other.src_embed(torch.zeros(1, 201, dtype=torch.long))
except ValueError as error:
    print("learned: ValueError:", error)

# %% [markdown]
# ## Lengths never trained
#
# > "We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths
# > longer than the ones encountered during training." (section 3.5)
#
# The paper shows no run. We take a simple task that needs positions: **predict the symbol before**.
# The model is one causal attention and a linear map. We train it on rows of 32 symbols and test it on 64.


# %%
class Before(nn.Module):
    """Embed, add positions, attend once with a causal mask, predict a symbol at each place."""

    def __init__(self, positions: nn.Module | None, d_model: int = 64, symbols: int = 16):
        super().__init__()
        self.embed, self.positions = Embeddings(d_model, symbols), positions
        nn.init.normal_(self.embed.lut.weight, std=d_model**-0.5)
        self.attend = MultiHeadedAttention(h=1, d_model=d_model, dropout=0.0)
        self.predict = nn.Linear(d_model, symbols)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Symbols (B, len), the first at position `start` -> logits (before a softmax): (B, len, 16)."""
        x = self.embed(tokens)  # (B, len, d_model)
        x = self.positions(x, start) if self.positions else x
        return self.predict(self.attend(x, x, x, subsequent_mask(tokens.size(1))))


# %%
def fit(positions: nn.Module | None, starts: int = 1, length: int = 32, seed: int = 0) -> Before:
    """Train on 300 batches of 1,024 symbols; each batch begins at a position drawn below `starts`."""
    torch.manual_seed(seed)
    model = Before(positions)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 300)
    for _ in range(300):
        tokens, start = torch.randint(16, (1024 // length, length)), int(torch.randint(starts, ()))
        logits = model(tokens, start)[:, 1:]  # the first symbol has none before it
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


def lookup() -> LearnedPositions:
    torch.manual_seed(1)
    positions = LearnedPositions(64, dropout=0.0)
    nn.init.normal_(positions.lut.weight, std=0.5**0.5)  # as large as the sines
    return positions


from_zero = {"sines": fit(sines()), "learned": fit(lookup()), "no positions": fit(None)}
shares = {name: right_by_place(trained, 64) for name, trained in from_zero.items()}
for name, share in shares.items():
    print(f"{name:12}  right up to place 31: ≈{share[:31].mean():.0%}, from 36 on: ≈{share[35:].mean():.0%}")
assert shares["sines"][:31].mean() > 0.95 < shares["learned"][:31].mean()
assert shares["no positions"][4:31].mean() < 0.35
assert max(shares[name][35:].mean() for name in ("sines", "learned")) < 0.2

# %% tags=["figure-past"]
plot_past(shares, trained=32)
plt.show()

# %% [markdown]
# *Figure 6. Right answers by position, after training on rows of 32 (chance is 6%, one seed). Past the
# trained length the learned table falls to chance at once, the sines within a few positions.*
#
# Without positions the model names the symbol seen most often: at position 1 the only other one (100%),
# later still better than chance (≈12%). Sines and table end *below* it, probably because they attend to a
# wrong position.
#
# Our hand-made head works at any position, so sines do not prevent it. But training never asked for a
# rotation: 32 positions can be learned one by one. Two other trainings use positions 0 to 127: rows of 128
# from 0, and rows of 32 that begin at a random position from 0 to 96. We test rows of 32, with sines only:
# a learned table is untrained, by construction, at 300 and 1000.

# %%
trainings = {"32, from 0": (1, 32), "128, from 0": (1, 128), "32, from 0 ... 96": (97, 32)}
tests, worst, best = (50, 300, 1000), {}, {}
for name, (starts, length) in trainings.items():
    far = torch.zeros(3, 3)  # seed, test
    for seed in (0, 1, 2):
        trained = fit(sines(), starts, length, seed)
        far[seed] = torch.stack([right_by_place(trained, 32, start).mean() for start in tests])
    worst[name], best[name] = far.amin(dim=0).tolist(), far.amax(dim=0).tolist()
    ends = zip(tests, worst[name], best[name], strict=True)
    shown = ", ".join(f"from {start}: ≈{low:.0%} to ≈{high:.0%}" for start, low, high in ends)
    print(f"trained on rows of {name:17}  tested {shown}")
short, long, anywhere = trainings
assert best[short][0] < 0.6 < 0.9 < min(worst[long][0], worst[anywhere][0])
assert max(best[short][1], best[long][1]) < 0.5 < worst[anywhere][1]
assert best[long][2] < 0.65 < worst[anywhere][2]
assert worst[short][2] > 0.4

# %% [markdown]
# At 300 and 1000 the random start is ahead. Both trainings see positions 0 to 127, so their number does
# not explain the difference. A model without positions has ≈25% on such rows. At 300 only the random start
# is far above that; at 1000 all three are. So with sines a model *can* work at positions that it never
# saw, if the training data teach it to. (Position 50 is new to the first training alone. Why 1000 is
# easier than 300, we do not know.) This is a toy, and its test rows are no *longer* than those of
# training. Language models with sines get worse soon after the trained length (Press et al., 2022).
#
# **Exercise 2 (medium).** Rotary positions (RoPE; Su et al., 2021), which most large language models use
# today, add nothing to the words. They rotate each query and each key by its own position. The score of a
# query and a key then depends on their positions only through the offset. Write the rotation.


# %% tags=["exercise"]
def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Vectors (n, d) -> the same, each pair (2i, 2i + 1) turned by its position (n,) times frequency i."""
    raise NotImplementedError


# %% tags=["solution"]
def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Vectors (n, d) -> the same, each pair (2i, 2i + 1) turned by its position (n,) times frequency i."""
    d = x.size(-1)
    angles = positions.unsqueeze(1) * 10000.0 ** (-torch.arange(0, d, 2).to(x) / d)  # (n, d / 2)
    first, second = x[:, 0::2], x[:, 1::2]
    turned = (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos())
    return torch.stack(turned, dim=-1).flatten(1)


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
query, key = torch.randn(2, 64, dtype=torch.float64)
at = torch.arange(20, dtype=torch.float64)
scores = rotate(query.expand(20, 64), at) @ rotate(key.expand(20, 64), at).T  # (20, 20)
for offset in range(-19, 20):
    stripe = scores.diagonal(offset)
    assert_close(stripe, stripe[:1].expand_as(stripe))  # one score for each offset
assert_close(scores[0, 0], query @ key)
assert (scores.diagonal(1)[0] - scores.diagonal(-1)[0]).abs() > 0.1  # before is not after

# %% [markdown]
# **Exercise 3 (hard).** Tell the time: from an encoding of width 64, with noise of standard deviation 0.02
# on each entry, find the position (1,000 to 40,000) *without* searching a table. The slowest hand gives it
# roughly, the fastest precisely, but without the number of whole turns. What do the hands in between do?


# %% tags=["exercise"]
def tell_the_time(encodings: Tensor) -> Tensor:
    """Noisy encodings (n, d_model) -> their positions, whole numbers (n,)."""
    raise NotImplementedError


# %% tags=["solution"]
def tell_the_time(encodings: Tensor) -> Tensor:
    """Noisy encodings (n, d_model) -> their positions, whole numbers (n,)."""
    d = encodings.size(-1)
    frequencies = 10000.0 ** (-torch.arange(0, d, 2).to(encodings) / d)
    angles = torch.atan2(encodings[:, 0::2], encodings[:, 1::2]) % (2 * math.pi)  # (n, d / 2)
    position = angles[:, -1] / frequencies[-1]  # near 0, noise could turn it back past twelve
    for i in reversed(range(d // 2 - 1)):
        turns = torch.round((position * frequencies[i] - angles[:, i]) / (2 * math.pi))
        position = (angles[:, i] + 2 * math.pi * turns) / frequencies[i]  # a faster hand, a finer reading
    return position.round().long()


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
asked = torch.randint(1000, 40_000, (2000,))
clean = sinusoids(40_000, 64)[asked].double()
assert (tell_the_time(clean) == asked).all()
assert (tell_the_time(clean + 0.02 * torch.randn_like(clean)) == asked).float().mean() > 0.99
