# %% [markdown]
# # 22 · Circuits and features
#
# **You open the weights of a trained translator, find a head that is a dictionary and two that know the
# gender of every noun, switch them off to be sure, and take a vector apart into more features than it has
# numbers.**
#
# Previous: [13_reading_attention](13_reading_attention.ipynb), after which you can read this lesson · Next:
# [14_attention_in_pytorch](14_attention_in_pytorch.ipynb)
#
# *30 minutes to read, half a minute to run.*
#
# - **Before:** you know what a head computes ([03](03_multi_head_attention.ipynb)), what a position vector is
#   ([05](05_positional_encoding.ipynb)), and what patching shows ([13](13_reading_attention.ipynb)).
# - **After:** you can read from a head's weights what it looks for and what it writes, test that reading, say
#   what superposition is, and train a sparse autoencoder.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017); nothing in this lesson is from it. A
# number after `≈` may differ on your processor. You can skip the folded cells: *Scaffolding* prepares data
# and draws, and *Check* tests what the text claims.

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
# ## What does a head write?
#
# In [13](13_reading_attention.ipynb), we asked where a head looks. But an arrow to *woman* does not say what
# the head takes from there. Let us ask the weights. We give the state of a noun, as it leaves the encoder, to
# one head of the decoder alone, and read what the head would write in the generator's language: the tokens
# whose scores rise the most.

# %%
import torch

from annotated import load_pretrained

torch.set_num_threads(1)
translator = load_pretrained("multi30k-en-de")
model = translator.model.eval().requires_grad_(False)
english, german = translator.src_tokenizer, translator.tgt_tokenizer


def encoded(text):
    """The encoder's final states of a sentence, (1, S, d_model)."""
    return model.encode(torch.tensor([translator.encode(text)]), None)


def state_of(noun):
    """The final state of a noun in a sentence, (d_model,)."""
    text = f"A {noun} is in the picture."
    return encoded(text)[0, english.pieces(translator.encode(text)).index("▁" + noun)]


def circuits(attention, head):
    """What a head looks for and what it writes: two matrices (d_model, d_model), without the biases."""
    wq, wk, wv, wo = (linear.weight.T for linear in attention.linears)  # (in, out) each
    its = slice(head * attention.d_k, (head + 1) * attention.d_k)  # the head's own columns
    return wq[:, its] @ wk[:, its].T / attention.d_k**0.5, wv[:, its] @ wo[its]


def written(layer, head, states):
    """How the score of each token changes if the head looks at such states: (states, tokens)."""
    ov = circuits(model.decoder.layers[layer].src_attn, head)[1]
    return states @ ov @ model.generator.proj.weight.T


four = ["man", "woman", "dog", "house"]
for layer, head in (2, 0), (2, 1), (3, 0):
    print(f"layer {layer + 1}, head {head + 1}")
    best = written(layer, head, torch.stack([state_of(noun) for noun in four])).topk(3).indices
    for noun, tokens in zip(four, best.tolist(), strict=True):
        print(f"    {noun:6}", *german.pieces(tokens))

# %% tags=["check"]
tops = written(2, 0, torch.stack([state_of(noun) for noun in four])).argmax(dim=-1).tolist()
assert german.pieces(tops) == ["▁Mann", "▁Frau", "▁Hund", "▁Haus"]
memory, own = encoded("A man is in the picture."), model.decoder.layers[2].src_attn
query, value = (own.split(own.linears[n](memory) - own.linears[n].bias)[0, 1] for n in (0, 2))  # head 2
key = own.split(own.linears[1](memory) - own.linears[1].bias)[0, 1]
qk, ov = circuits(own, 1)
torch.testing.assert_close(memory[0] @ qk @ memory[0].T, query @ key.T / 32**0.5)
torch.testing.assert_close(memory[0] @ ov, value @ own.linears[3].weight[:, 32:64].T)

# %% [markdown]
# Nobody trained these heads to say anything by themselves, and still you can read them. Head 1 of layer 3 is
# a *dictionary*: it writes the German noun. Its neighbor, head 2, writes *articles*, and they have the right
# gender: *einem* for a masculine or a neuter noun, *einer* and *Eine* for *woman*.
#
# What `circuits` does is to multiply out the four matrices of a head. A head's score and output are
#
# $$\frac{(x_i W^Q)(x_j W^K)^\top}{\sqrt{d_k}} = x_i \underbrace{\frac{W^Q W^{K\top}}{\sqrt{d_k}}}_{\text{QK}}
# x_j^\top, \qquad \sum_j a_{ij}\, x_j \underbrace{W^V W^O}_{\text{OV}}$$
#
# So a head is two matrices of the width of the model (Elhage et al., 2021). The **QK circuit** says how much
# position $i$ looks at position $j$. The **OV circuit** says what is written into the stream of $i$ when it
# does. Where a head looks and what it writes are two separate questions, and a map of weights answers only
# the first.
#
# **Remember:** QK decides where a head looks, OV what it then writes.

# %% [markdown]
# ## From a reading to a test
#
# Four nouns prove nothing. The folded cell has 25, with their translations and their genders. For each of the
# 16 heads of cross-attention we count two things: how often the token that rises the most is the noun's
# translation, and by how much the feminine articles rise above the others if the noun is feminine, compared
# with the other nouns.

# %% tags=["scaffold"]
NOUNS = """man Mann m, woman Frau f, dog Hund m, boy Junge m, girl Mädchen n, street Straße f, ball Ball m,
child Kind n, car Auto n, horse Pferd n, house Haus n, cat Katze f, hat Hut m, table Tisch m, tree Baum m,
guitar Gitarre f, bench Bank f, boat Boot n, bird Vogel m, camera Kamera f, book Buch n, beach Strand m,
group Gruppe f, crowd Menschenmenge f, lady Dame f"""
nouns = [row.split() for row in NOUNS.split(",")]
states = torch.stack([state_of(noun) for noun, *_ in nouns])  # (25, d_model)
is_feminine = torch.tensor([gender == "f" for *_, gender in nouns])
feminine, others = (
    [german.encode(article)[0] for article in articles.split()]
    for articles in ("eine einer Eine", "ein einen einem Ein")
)

# %%
translated, gendered = torch.zeros(4, 4), torch.zeros(4, 4)
for layer in range(4):
    for head in range(4):
        scores = written(layer, head, states)  # (25, tokens)
        tops = german.pieces(scores.argmax(dim=-1).tolist())
        translated[layer, head] = sum(
            top.strip("▁").lower().startswith(word.lower()[:4])
            for top, (_, word, _) in zip(tops, nouns, strict=True)
        )
        lead = scores[:, feminine].amax(dim=-1) - scores[:, others].amax(dim=-1)
        gendered[layer, head] = lead[is_feminine].mean() - lead[~is_feminine].mean()

# %% tags=["figure-heads", "scaffold"]
import matplotlib.pyplot as plt
import seaborn

from annotated.plots import setup_notebook

setup_notebook()
fig, axes = plt.subplots(1, 2, figsize=(10, 4.2))
for ax, grid, fmt, title in (
    (axes[0], translated, ".0f", "Right translations, of 25"),
    (axes[1], gendered, ".1f", "Gender: lead of eine over ein"),
):
    options = {"annot": True, "fmt": fmt, "cbar": False, "linewidths": 1, "cmap": "Blues"}
    seaborn.heatmap(grid, xticklabels=range(1, 5), yticklabels=range(1, 5), ax=ax, **options)
    ax.set(title=title, xlabel="head", ylabel="layer")
plt.show()

# %% [markdown]
# *Figure 1. What the 16 cross-attention heads of the decoder would write if they looked at one of 25 nouns.
# Left: for how many of them the right German noun rises the most. Right: by how much more the feminine
# articles rise for feminine nouns than for the others.*

# %% tags=["check"]
assert translated[2, 0] >= 22
assert (translated >= 20).sum() >= 4
assert gendered[2, 1] == gendered.max()
assert gendered[3, 0] == gendered.flatten().sort().values[-2]
assert gendered.flatten().sort().values[-3] < 0.6 * gendered[3, 0]

# %% [markdown]
# Several heads of layers 3 and 4 are dictionaries. Gender is in few places: mostly in head 2 of layer 3 and
# head 1 of layer 4. In the first cell, the former wrote mostly articles in small letters, which stand within
# a sentence, and the latter nearly only words with a capital letter, like those that begin a sentence. So we
# can predict what each head is *for*.
#
# The reading has a gap: between the head and the generator lie norms, feed-forward networks and, for layer 3,
# another layer. So we test it. We silence one head at a time, by setting its rows of $W^O$ to zero, and
# compare the log-odds of a masculine against a feminine article: how far apart are they for masculine and for
# feminine nouns, in three pairs?
#
# **Before you run this:** which head will matter for the first word of a sentence (*Ein Mann*, *Eine Frau*),
# and which for an article within it (*einen Ball*, *eine Gitarre*)?

# %%
import copy


def log_odds(model, text, prefix, one, other):
    """How much more probable `one` is than `other` after the prefix, as a difference of logarithms."""
    memory = model.encode(torch.tensor([translator.encode(text)]), None)
    read = torch.tensor([[german.start, *german.encode(prefix)]])
    causal = torch.ones(1, read.size(1), read.size(1)).tril().bool()
    log_probs = model.generator(model.decode(memory, None, read, causal))[0, -1]
    return (log_probs[german.encode(one)[0]] - log_probs[german.encode(other)[0]]).item()


def gaps(model):
    """How far masculine and feminine nouns lie apart: for the first word, and within a sentence."""
    found = []
    for text, prefix, articles, pairs in (
        ("A {} is sleeping in the grass.", "", ("Ein", "Eine"), "man woman dog cat boy lady"),
        ("A boy is holding a {}.", "Ein Junge hält", ("einen", "eine"), "ball guitar hat camera dog cat"),
    ):
        odds = [log_odds(model, text.format(noun), prefix, *articles) for noun in pairs.split()]
        found.append(sum(odds[::2]) / 3 - sum(odds[1::2]) / 3)
    return found


intact = gaps(model)
silenced = torch.zeros(2, 16)
for n in range(16):
    quiet = copy.deepcopy(model)
    own = quiet.decoder.layers[n // 4].src_attn
    own.linears[3].weight[:, n % 4 * own.d_k : (n % 4 + 1) * own.d_k] = 0
    silenced[:, n] = torch.tensor(gaps(quiet))
for where, whole, found in zip(("first word", "within"), intact, silenced, strict=True):
    n = found.argmin().item()
    print(
        f"{where:10}: all heads ≈{whole:.1f}, without head {n % 4 + 1} of layer {n // 4 + 1} ≈{found[n]:.1f}"
    )

# %% tags=["check"]
assert silenced[0].argmin() == 12
assert silenced[1].argmin() == 9
assert silenced[0, 12] < 0.5 * intact[0]
assert silenced[1, 9] < 0.5 * intact[1]
assert silenced[0][torch.arange(16) != 12].min() > 0.8 * intact[0]
assert silenced[1][torch.arange(16) != 9].min() > 0.8 * intact[1]

# %% tags=["figure-silenced", "scaffold"]
fig, ax = plt.subplots(figsize=(9, 3.6))
for found, whole, style, name in zip(
    silenced, intact, ("o", "s"), ("first word: Ein or Eine", "within: einen or eine"), strict=True
):
    [line] = ax.plot(found, style, ms=8, label=name)
    ax.axhline(whole, color=line.get_color(), lw=1, ls=":")
ax.set_xticks(range(16), [f"{n // 4 + 1}.{n % 4 + 1}" for n in range(16)])
ax.set(xlabel="head that is silent (layer.head)", ylabel="gap of log-odds", ylim=(0, 14))
ax.set_title("Two heads decide the gender, each in its own place")
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# *Figure 2. How far the decoder keeps masculine and feminine nouns apart when one of its cross-attention
# heads is silent. The dotted lines show the model with all heads.*

# %% [markdown]
# Both predictions hold. Without head 1 of layer 4, two thirds of the gap at the first word are gone, and an
# article within the sentence hardly notices. Without head 2 of layer 3, it is the other way round. No other
# head matters much. And it agrees with the patching of [13](13_reading_attention.ipynb), where the first
# word's gender came from layer 4, and a little from layer 3: other tools, the same place.
#
# What remains of each gap has other carriers, which we did not look for. A circuit is seldom complete: the
# one that Wang and colleagues (2022) traced in GPT-2 small has 26 heads.
#
# **Remember:** weights suggest what a part does. Turn it into a prediction that could fail, and intervene.

# %% [markdown]
# ## What does a head look for?
#
# For the QK circuit we need to know what an $x$ is made of. In the first layer of the encoder we know it
# exactly: an embedding plus a position vector, $x_i = e_i + p_i$. So every score is (without the biases) a
# sum of four parts: word to word, word to place, place to word, and place to place. The last part, $p_i\, W^Q
# W^{K\top} p_j^\top / \sqrt{d_k}$, needs no text at all.
#
# **Before you run this:** we draw it for the four heads of this layer. If a head looked at the word before,
# whatever it is, what would its picture look like?

# %% tags=["figure-places"]
places = model.src_embed[1](torch.zeros(1, 16, model.config.d_model))[
    0
]  # the position vectors alone, (16, 128)
first_layer = model.encoder.layers[0].self_attn
fig, axes = plt.subplots(1, 4, figsize=(14, 3.9))
for head, ax in enumerate(axes):
    scores = places @ circuits(first_layer, head)[0] @ places.T
    scores = scores - scores.mean(dim=1, keepdim=True)  # a softmax sees only differences within a row
    seaborn.heatmap(scores, cmap="PuOr_r", vmin=-25, vmax=25, square=True, cbar=False, ax=ax)
    ax.set(title=f"head {head + 1}", xlabel="place, looked at", xticks=[], yticks=[])
axes[0].set(ylabel="place that looks")
plt.show()

# %% [markdown]
# *Figure 3. The part of each score that depends on the two places alone, for the first 16 places. Dark orange
# is a high score, dark purple a low one.*

# %%
from annotated import capture_attention
from annotated.translation.data.aligned_captions import aligned_captions

hits, rows = torch.zeros(4), 0
for caption in aligned_captions():
    with capture_attention(model) as maps:
        encoded(caption.english)
    weights = maps["encoder", 0][0, :, 2:]  # (h, T - 2, T): from the third token on
    hits += (weights.argmax(dim=-1) == torch.arange(weights.size(1))).sum(dim=1)
    rows += weights.size(1)
print("largest weight two places back, in heads 1 to 4:", *(f"≈{hit / rows:.0%}" for hit in hits))

# %% tags=["check"]
stripe = places @ circuits(first_layer, 3)[0] @ places.T
by_distance = torch.stack([stripe.diagonal(-back).mean() for back in range(8)])
assert by_distance.argmax() == 2
assert hits[3] / rows > 0.4 > 0.1 > hits[:3].max() / rows

# %% [markdown]
# Three heads hardly care about places. Head 4 has a stripe: *look two places back*, wherever you are. The
# stripe is straight because a position's vector is turned by the same matrix at each step
# ([05](05_positional_encoding.ipynb)), so a product of two of them can depend on their distance alone.
#
# In real captions, this head gives its largest weight to the place two back in nearly half of the rows. In
# the others, the three parts with words decide. So from this picture alone you would have overrated the
# stripe.
#
# In later layers, $x$ is a mixture, and its parts are not known beforehand. Can we find them?

# %% [markdown]
# ## More features than numbers
#
# Our streams have 128 numbers. The vocabulary has 10,000 pieces, and a state also says genders, numbers,
# places and more. How does that fit? One answer is **superposition** (Elhage et al., 2022): a feature is not
# a number of the vector, but a *direction*, and there can be more directions than numbers if few of them are
# used at a time.
#
# Here is the smallest case: five features, and a vector of two numbers. Each feature is between 0 and 1, and
# present with the probability `share`. The model squeezes them into two numbers and has to give all five
# back.
#
# **Before you run this:** what will it do if all five features are always present? And if each is present in
# one case of twenty?

# %%
from torch.nn import functional as F


def drawn(count, share):
    return torch.rand(count, 5) * (torch.rand(count, 5) < share)


def squeeze(share, updates=1500):
    """The direction of each of five features in two numbers, (5, 2), as learned."""
    _ = torch.manual_seed(0)
    directions, bias = (torch.randn(5, 2) / 2).requires_grad_(), torch.zeros(5, requires_grad=True)
    adam = torch.optim.Adam([directions, bias], lr=0.01)
    for _ in range(updates):
        x = drawn(512, share)
        back = (x @ directions @ directions.T + bias).relu()  # (512, 5) -> (512, 2) -> (512, 5)
        adam.zero_grad()
        (back - x).square().mean().backward()
        adam.step()
    return directions.detach()


dense, sparse = squeeze(1.0), squeeze(0.05)

# %% tags=["figure-superposition", "scaffold"]
fig, axes = plt.subplots(1, 2, figsize=(8.5, 4.2))
for ax, directions, title in (
    (axes[0], dense, "always present"),
    (axes[1], sparse, "present in one case of twenty"),
):
    for n, (x, y) in enumerate(directions.tolist()):
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "lw": 2.5, "color": f"C{n}"})
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", title=title, xlabel="first number")
axes[0].set(ylabel="second number")
plt.show()

# %% [markdown]
# *Figure 4. Where a vector of two numbers keeps five features. A long arrow is a feature that can be read
# back; a short one is nearly lost.*

# %% tags=["check"]
assert (dense.norm(dim=1) > 0.8).sum() == 2
turns = torch.atan2(*sparse.T).sort().values
assert (turns.diff().rad2deg() - 72).abs().max() < 5
assert (sparse.norm(dim=1) > 1).all()

# %% [markdown]
# If all features are always there, the model keeps two of them well and gives up most of the rest: two
# numbers, two features. If they are rare, it keeps all five, at equal angles. When one is present, the others
# see a part of it, but the bias and the ReLU cut these small false readings off. They get into each other's
# way only when two are present at a time, and that is rare.
#
# The price is that no *single* number of the vector means anything: each of the five features moves both. If
# large models do the same, looking at their neurons one by one is looking at the wrong things.
#
# **Remember:** in superposition, features are directions, more of them than numbers, and it works because few
# are present at a time.

# %% [markdown]
# ## Taking a vector apart: a sparse autoencoder
#
# Given only the vectors, can we get the directions back? A **sparse autoencoder** tries. It learns a list of
# directions, and writes each vector as a sum of only a *few* of them. Ours keeps the $k$ largest and sets the
# others to zero (Gao et al., 2024). The classical form keeps all and adds their sum to the loss.


# %%
class SparseAutoencoder(torch.nn.Module):
    """Vectors (B, width) to features (B, size), of which at most k are not zero, and back."""

    def __init__(self, width, size, k):
        super().__init__()
        self.k = k
        self.out = torch.nn.Parameter(F.normalize(torch.randn(size, width), dim=1))  # the directions
        self.into = torch.nn.Parameter(self.out.detach().T.clone())
        self.bias = torch.nn.Parameter(torch.zeros(size))

    def features(self, x):
        found = (x @ self.into + self.bias).relu()
        top = found.topk(self.k, dim=1)
        return torch.zeros_like(found).scatter(1, top.indices, top.values)

    def fit(self, vectors, updates, rate):
        adam = torch.optim.Adam(self.parameters(), lr=rate)
        for _ in range(updates):
            x = vectors[torch.randint(len(vectors), (512,))]
            adam.zero_grad()
            (self.features(x) @ self.out - x).square().sum(dim=1).mean().backward()
            adam.step()
            self.out.data = F.normalize(self.out.data, dim=1)
        return self.requires_grad_(False)


_ = torch.manual_seed(0)
some = drawn(20_000, 0.05)
toy = SparseAutoencoder(2, size=5, k=1).fit(some[some.any(dim=1)] @ sparse, updates=1000, rate=0.01)
agree = (F.normalize(sparse, dim=1) @ toy.out.T).amax(dim=1)  # cosine with the nearest one
print("each true direction and the nearest found one, cosine:", *(f"≈{cosine:.3f}" for cosine in agree))

# %% tags=["check"]
assert agree.min() > 0.99

# %% [markdown]
# It finds all five, from vectors of two numbers, and was never told what they are.
#
# In the toy we know the truth. In a real model nobody does, so a feature gets its name from what turns it on,
# and that needs a test: new text, and rivals. We tried it with the encoder's final states of our translator,
# on captions made up from 60 words. For groups of words such as *color* or *female person*, we chose the
# feature that tells the group best, and tested it on other captions. It did better than the best single
# number of the state. But the best of as many *random* directions did nearly as well, and in one of three
# trainings just as well. So we name no feature of this model.
#
# In large models, trained on real text, much more is reported. The autoencoder of Gao and colleagues (2024)
# has 16 million features, for GPT-4, and their measures of a feature's quality mostly improve with size. Ask
# any such list our two questions all the same: does the name hold on new text, and would a direction that
# nobody trained do as well?
#
# **Remember:** a sparse autoencoder writes a vector as a sum of few learned directions. Name one only after a
# test on new text, against directions that were not learned.

# %% [markdown]
# ## What you can now say
#
# - A head is two matrices: QK says where it looks, and OV what it then writes. In our translator, some heads
#   are dictionaries, and two carry the gender of an article, one at the first word and one within the
#   sentence.
# - A reading of weights becomes knowledge by an intervention that could have failed.
# - In superposition, a vector keeps more features than it has numbers, as directions, of which few are
#   present at a time. A sparse autoencoder looks for them, and its features need tests and rivals.
#
# **Deeper:** Elhage et al., *A Mathematical Framework for Transformer Circuits* (2021) and *Toy Models of
# Superposition* (2022); Gao et al., *Scaling and evaluating sparse autoencoders* (2024).
#
# **Next:** PyTorch's own attention and Transformer, in
# [14_attention_in_pytorch](14_attention_in_pytorch.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** In the paper's base model, $d_{model} = 512$ and $d_k = 64$. How many entries does
# the QK circuit of a head have, and how many numbers do $W^Q$ and $W^K$ have together? Now multiply $W^Q$ by
# an invertible matrix $R$ from the right. What must you do to $W^K$ so that the head stays the same? What
# does this say about a single number of a query?

# %% tags=["solution"]
_ = torch.manual_seed(0)
wq, wk, r = torch.randn(512, 64), torch.randn(512, 64), torch.randn(64, 64) / 8 + 2 * torch.eye(64)
assert 512 * 512 == 262_144
assert 2 * 512 * 64 == 65_536
torch.testing.assert_close((wq @ r) @ (wk @ r.inverse().T).T, wq @ wk.T, atol=0.02, rtol=0.01)
# 262,144 entries, from 65,536 numbers: the circuit has rank 64 at most. With the inverse of R, transposed, on
# W^K, all scores stay as they were. So a single number of a query means nothing by itself; the product does.

# %% [markdown]
# **Exercise 2 (medium).** Build. In the first layer, $x = e + p$. Cut the scores of a head into their four
# parts. Each has the queries' side first: `"word to place"` is the part that comes from the word of the token
# that looks and the place of the token that is looked at.


# %% tags=["exercise"]
def four_parts(words, places, qk):
    """Words and places (T, d_model), and a QK circuit -> a dictionary of four parts, (T, T) each."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_four_parts(four_parts):
    words, places, qk = torch.randn(5, 8), torch.randn(5, 8), torch.randn(8, 8)
    parts = four_parts(words, places, qk)
    assert isinstance(parts, dict), f"a dictionary is wanted, not {type(parts).__name__}"
    names = ["word to word", "word to place", "place to word", "place to place"]
    assert sorted(parts) == sorted(names), f"the parts are {names}, not {list(parts)}"
    for name in names:
        shape = tuple(getattr(parts[name], "shape", ()))
        assert shape == (5, 5), f"{name}: for 5 tokens, (5, 5) is wanted, not {shape}"
    gap = (sum(parts.values()) - (words + places) @ qk @ (words + places).T).abs().max()
    assert gap < 1e-3, f"the four parts must add up to the scores; they are off by up to {gap:.2f}"
    moved, renamed = four_parts(words, places + 1, qk), four_parts(words + 1, places, qk)
    for name, other, of in ("word to word", moved, "places"), ("place to place", renamed, "words"):
        gap = (other[name] - parts[name]).abs().max()
        assert gap < 1e-3, f"{name!r} must not depend on the {of}"
    looked_at = four_parts(words[:1].expand(5, 8), places, qk)["word to place"]
    told = "the same word five times gives equal rows of 'word to place': its columns are the places"
    assert (looked_at - looked_at[0]).abs().max() < 1e-3, told


try:
    test_four_parts(four_parts)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(words, places, qk):
    """Words and places (T, d_model), and a QK circuit -> a dictionary of four parts, (T, T) each."""
    sides = {"word": words, "place": places}
    return {f"{one} to {other}": sides[one] @ qk @ sides[other].T for one in sides for other in sides}


test_four_parts(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore. Between *always* and *one case of twenty*: how many of the five features
# does `squeeze` keep (an arrow longer than 0.8) if each is present with probability 0.7, 0.4 or 0.15? Guess
# first.

# %% tags=["solution"]
kept = {share: int((squeeze(share).norm(dim=1) > 0.8).sum()) for share in (0.7, 0.4, 0.15)}
print("kept:", *(f"≈{count} at {share}" for share, count in kept.items()))
assert kept[0.7] <= kept[0.4] <= kept[0.15]
assert kept[0.15] >= 4
# The rarer the features, the more of them fit.
