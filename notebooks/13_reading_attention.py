# %% [markdown]
# # 13 · Reading attention
#
# **You look into a trained translator, turn its attention into a word alignment, and test two stories about
# single heads. One of the stories fails.**
#
# Previous: [12_results](12_results.ipynb) · Next: [14_attention_in_pytorch](14_attention_in_pytorch.ipynb) ·
# Attention itself: [02_attention](02_attention.ipynb)
#
# *27 minutes to read, half a minute to run.*
#
# - **Before:** you know attention, masks and heads ([02](02_attention.ipynb),
#   [03](03_multi_head_attention.ipynb)) and how a decoder reads a known translation
#   ([07](07_batches_and_masks.ipynb)).
# - **After:** you can score an attention map against human judgment, test what a head does, and test whether
#   the model uses what it looks at.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). A number after `≈` may differ on your
# processor. You can skip the folded cells: *Scaffolding* prepares data, and *Check* tests what the text
# claims.

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
# ## A picture that convinces
#
# Our translator translates a sentence about a wedding party. It writes *In der Kirche spielt eine Band für
# eine Hochzeit*, which says that a band is playing *in* the church for a wedding. So there are two
# mistakes: the party is missing, and the band should play in front of the church. The figure shows where
# the last layer looks at each step. The weights are the mean of the four heads.

# %%
import matplotlib.pyplot as plt
import torch

from annotated import load_pretrained
from annotated.plots import plot_attention, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # our matrices are too small for more
translator = load_pretrained("multi30k-en-de")
seen = translator.attention("In front of the church, a band is playing for a wedding party.")
written = [*seen.tgt_tokens[1:], "</s>"]
figure, ax = plt.subplots(figsize=(9, 6))
plot_attention(
    seen.maps["cross", 3].mean(dim=0), written, seen.src_tokens, ax=ax, title="Layer 4, mean of its heads"
)
ax.set(xlabel="English token, looked at", ylabel="German token, written")
plt.show()

# %% [markdown]
# *Figure 1. Cross-attention of one translation. Each row is one step of writing, named after the token that
# it wrote. The darker a cell is, the larger is its weight.*
#
# > "As side benefit, self-attention could yield more interpretable models." (section 4)
#
# The picture seems to explain the translation: *Kirche* looks at *church*, and *Band* looks at *band*. But it
# is easy to find sense in a picture. So we separate two claims (Jacovi and Goldberg, 2020) and test each:
#
# - An attention map is **plausible** if it agrees with what a human would say.
# - An attention map is **faithful** if it shows what the model really uses.

# %% [markdown]
# ## Is it plausible? Ask for alignments
#
# A human can say which English words a German word translates. The package has 24 captions with
# translations that were **aligned** by hand: the words that belong together are linked. Each link is either
# *sure* or only *possible*.

# %%
from annotated.translation.data.aligned_captions import aligned_captions

pairs = aligned_captions()
pair = pairs[2]
print(pair.english, pair.german, sep="\n")
print("sure:    ", *(f"{pair.german_words[t]}–{pair.english_words[s]}" for s, t in sorted(pair.sure)))
print("possible:", *(f"{pair.german_words[t]}–{pair.english_words[s]}" for s, t in sorted(pair.possible)))

# %% [markdown]
# The alignments are about words, but our maps are about subwords. The word *Straßenbahn* (tram), for
# example, is made of three pieces. So we turn each map of pieces into a map of words. The row of a word is
# the **average** of its pieces' rows, so the row still adds up to 1. The column of a word is the **sum** of
# its pieces' columns, because all weight on a piece is weight on the word. For each piece, the folded cell
# finds the number of its word in the sentence.

# %% tags=["scaffold"]
from bisect import bisect
from itertools import accumulate


def word_of_piece(pieces, words):
    """The number of each subword's word, found by counting letters."""
    lengths = [len(piece.replace("▁", "")) for piece in pieces]
    starts, ends = accumulate(lengths[:-1], initial=0), list(accumulate(map(len, words)))
    return torch.tensor([bisect(ends, start) for start in starts])


# %%
print(word_of_piece(["▁die", "▁Stra", "ßen", "bahn", "."], ["die", "Straßenbahn", "."]).tolist())


def map_words(weights, rows, columns):
    """(..., T pieces, S pieces) -> (..., T words, S words)."""
    looks = torch.nn.functional.one_hot(rows).float()  # (T pieces, T words)
    receives = torch.nn.functional.one_hot(columns).float()
    return (looks / looks.sum(dim=0)).T @ weights @ receives  # mean of rows, sum of columns


# %% tags=["check"]
weights = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.0, 0.8, 0.2]])
found = map_words(weights, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
torch.testing.assert_close(found, torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
assert word_of_piece(["▁die", "▁Stra", "ßen", "bahn", "."], ["die", "Straßenbahn", "."]).tolist() == [
    0,
    1,
    1,
    1,
    2,
]

# %% [markdown]
# There is one more choice, and it is easy to get wrong. At the position where the decoder has just read
# *Mädchen*, it has to say *mit* next. So **each row belongs to two German tokens**. Does this row look at
# the source of *Mädchen* or at the source of *mit*? We try both, under the names `reads` and `says`, and
# let the alignments decide.


# %%
def word_maps(pair):
    """Cross-attention by words, (layers, h, German words, English words and </s>), from either row."""
    seen = translator.attention(pair.english, pair.german)  # the decoder reads this translation
    weights = torch.stack([seen.maps["cross", layer] for layer in range(4)])
    columns = word_of_piece(seen.src_tokens, [*pair.english_words, "</s>"])
    reads = word_of_piece(seen.tgt_tokens, ["<s>", *pair.german_words])
    says = word_of_piece([*seen.tgt_tokens[1:], "</s>"], [*pair.german_words, "</s>"])
    return {
        "reads": map_words(weights, reads, columns)[..., 1:, :],  # without the row of <s>
        "says": map_words(weights, says, columns)[..., :-1, :],  # without the row that says </s>
    }


maps = [word_maps(pair) for pair in pairs]

# %% [markdown]
# To turn a map into an alignment, we link each German word to the English word with the largest weight. If
# `</s>` has the largest weight, the German word gets no link. Let $A$ be the set of our links, $S$ the sure
# links made by hand, and $P$ all links made by hand, sure or possible. Then the **alignment error rate**
# (AER; Och and Ney, 2003) is
#
# $$\mathrm{AER} = 1 - \frac{|A\cap S| + |A\cap P|}{|A| + |S|}$$
#
# An AER of 0 is perfect. To reach it, we must find every sure link, and each of our links must be at least
# possible.
#
# What is a bad AER? We score two baselines that do not use the model. The first uses random maps. The
# second, the *diagonal*, uses only the places of the words. It links the first German word to the first
# English word, a word in the middle to a word in the middle, and the last word to the last.


# %%
def counts(weights, pair):
    """Numerator and denominator for one pair, from its map (German words, English words and </s>)."""
    best = enumerate(weights.argmax(dim=-1).tolist())
    links = {(s, t) for t, s in best if s < len(pair.english_words)}
    right = len(links & pair.sure) + len(links & (pair.sure | pair.possible))
    return right, len(links) + len(pair.sure)


def error_rate(of_each_pair):
    """AER over all pairs."""
    right, of = zip(*map(counts, of_each_pair, pairs), strict=True)
    return 1 - sum(right) / sum(of)


_ = torch.manual_seed(0)
chance = error_rate([torch.rand(len(pair.german_words), len(pair.english_words) + 1) for pair in pairs])
lazy = []
for pair in pairs:  # link each word to the one at the same relative place
    along = torch.linspace(0, len(pair.english_words) - 1, len(pair.german_words)).round().long()
    lazy.append(torch.nn.functional.one_hot(along, len(pair.english_words) + 1).float())
print(f"random maps: AER {chance:.2f}, the diagonal: AER {error_rate(lazy):.2f}")

# %% tags=["check"]
from annotated import alignment_error_rate

for weights, pair in zip(lazy, pairs, strict=True):
    links = {(s, t) for t, s in enumerate(weights.argmax(dim=-1).tolist())}
    right, of = counts(weights, pair)
    assert abs(1 - right / of - alignment_error_rate(links, pair.sure, pair.possible)) < 1e-9
assert error_rate(lazy) < 0.4 < 0.8 < chance

# %% [markdown]
# Remember the second number. The diagonal does not know a single word, and still it has an AER of 0.34,
# because German and English captions have nearly the same word order. So a dark diagonal in a picture
# proves little.
#
# **Before you run this:** which row will have the lower error rate: the row that has just *read* a German
# word, or the row that will *say* it next?

# %% tags=["figure-aer-by-head"]
import seaborn

rates = {
    row: torch.tensor([[error_rate([both[row][n, h] for both in maps]) for h in range(4)] for n in range(4)])
    for row in ("reads", "says")
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
for ax, (row, grid) in zip(axes, rates.items(), strict=True):
    names = range(1, 5)
    options = {"annot": True, "fmt": ".2f", "cbar": False, "xticklabels": names, "yticklabels": names}
    seaborn.heatmap(grid, vmin=0.2, vmax=1, cmap="Blues", linewidths=1, ax=ax, **options)
    best = divmod(int(grid.argmin()), 4)
    ax.add_patch(plt.Rectangle(best[::-1], 1, 1, fill=False, edgecolor="C1", lw=4))
    ax.set(title=f"row that {row} the word", xlabel="head", ylabel="layer")
figure.suptitle("Alignment error rate: lower is better")
plt.show()

# %% [markdown]
# *Figure 2. The alignment error rate of every cross-attention head. Left: from the row that has just read a
# German word. Right: from the row that will say it next. The darker a cell is, the larger
# is the error rate; the lowest of each panel is framed.*

# %% tags=["check"]
assert rates["reads"][1, 1] == min(grid.min() for grid in rates.values()) < 0.25
assert (rates["says"][2:] < rates["reads"][2:] - 0.05).all()
assert (rates["says"][2:] < error_rate(lazy)).sum() == 3

# %% [markdown]
# In layers 3 and 4, every head does better in the rows that *say* a word. You might have expected this: to
# write *Hund*, the model looks at *dog*. Three of these eight heads beat the diagonal's 0.34. The mean of
# layer 4, which Figure 1 showed, beats it by more:

# %%
layer_4 = [both["says"][3].mean(dim=0) for both in maps]
mean_of_layer_4 = error_rate(layer_4)
print(f"mean of layer 4, row that says: AER ≈{mean_of_layer_4:.2f}")

# %% tags=["check"]
assert mean_of_layer_4 < error_rate(lazy) - 0.05

# %% [markdown]
# The lowest number of all belongs to **layer 2, head 2, in the rows that read**: ≈0.20. Is it really the best
# map? It was picked among 32, and there are only 24 captions. So we draw the captions again, with
# replacement, and look how much such a difference moves (the bootstrap of [10](10_translation.ipynb)):


# %%
import random


def difference(maps_a, maps_b, draws=2000):
    """95% interval of AER(a) - AER(b) over resampled captions."""
    rng, found = random.Random(0), []
    ratios = [
        [counts(weights, pair) for weights, pair in zip(of, pairs, strict=True)] for of in (maps_a, maps_b)
    ]
    for _ in range(draws):
        drawn = rng.choices(range(len(pairs)), k=len(pairs))
        rates = [1 - sum(of[i][0] for i in drawn) / sum(of[i][1] for i in drawn) for of in ratios]
        found.append(rates[0] - rates[1])
    found.sort()
    return found[draws // 40], found[-draws // 40]


head_2 = [both["reads"][1, 1] for both in maps]
for name, these, those in (
    ("head 2.2 minus layer 4", head_2, layer_4),
    ("layer 4 minus diagonal", layer_4, lazy),
):
    print("{}: 95% interval from ≈{:+.2f} to ≈{:+.2f}".format(name, *difference(these, those)))

# %% tags=["check"]
low, high = difference(head_2, layer_4)
assert low < 0 < high
assert difference(layer_4, lazy)[1] < 0

# %% [markdown]
# The first interval includes 0, so the two maps cannot be told apart with these captions, even though the
# interval makes no allowance for the picking. The second does not: layer 4 does better than the diagonal.
# Head 2.2 looks at the source of the word that was just read. Chen and colleagues (2020) also found the best
# alignments in such rows, in a larger model. So before you label the rows of a picture, find out which word
# they belong to.
#
# **Remember:** compare a map with the diagonal before you believe it. A row of a map may belong to the word
# that was just read, or to the word that comes next.

# %% [markdown]
# ## Why do the rows change their meaning?
#
# At each position, the decoder has a vector, its *state*, that every layer changes. The state begins as the
# embedding of the token that was read, and it ends as the prediction of the next token. You watched this
# change for one sentence in [06](06_the_full_model.ipynb), where we also gave the generator the states
# after the *earlier* layers. This method is called the **logit lens** (nostalgebraist, 2020). We repeat it
# for all 24 sentences and count.

# %%
from annotated import Batch, evaluating

model, tokenizer = translator.model, translator.tgt_tokenizer
src = translator.batch([translator.encode(pair.english) for pair in pairs])
tgt = [[tokenizer.start, *tokenizer.encode(pair.german), tokenizer.end] for pair in pairs]
batch = Batch(src, translator.batch(tgt), pad=tokenizer.pad)  # all 24 pairs side by side
real = batch.tgt_y != tokenizer.pad  # (24, T)
with evaluating(model):
    memory = model.encode(batch.src, batch.src_mask)
    states = [model.tgt_embed(batch.tgt)]  # (24, T, d_model)
    for layer in model.decoder.layers:
        states.append(layer(states[-1], memory, batch.src_mask, batch.tgt_mask))
    winners = [model.generator(state[real]).argmax(dim=-1) for state in states]
shares = {
    "just read": [(winner == batch.tgt[real]).float().mean().item() for winner in winners],
    "to be said": [(winner == batch.tgt_y[real]).float().mean().item() for winner in winners],
}

# %% tags=["figure-logit-lens"]
fig, ax = plt.subplots(figsize=(7, 3.8))
for name, style in (("just read", "o-"), ("to be said", "s--")):
    ax.plot(shares[name], style, label=f"the token {name}")
ax.set(ylabel="share of positions", title="Which token has the largest score?")
ax.set_xticks(range(5), ["embedding", *(f"layer {n}" for n in range(1, 5))])
ax.legend()
plt.show()

# %% [markdown]
# *Figure 3. After layer 1, the token that was read has the largest score at most positions. After layer 3,
# the token to be said has the largest score at most positions.*

# %% tags=["check"]
assert shares["just read"][1] > 0.5 > 0.2 > max(shares["to be said"][1], shares["just read"][2])
assert shares["to be said"][3] > 0.5 > 0.1 > shares["just read"][3]

# %% [markdown]
# Layer 2 receives the states after layer 1, which are still about the word just read. Layer 4 receives the
# states after layer 3, which are already about the next word. This agrees with the maps: layer 2 had its
# best map in the rows that read, and layer 4 in the rows that say.
#
# **Remember:** on its way through the layers, the state of a position changes: first it stands for the word
# that was just read, and later for the word that comes next.

# %% [markdown]
# ## What does a head do? A story must be able to fail
#
# > "Many of the attention heads exhibit behaviour that seems related to the structure of the sentence."
# > (Figure 5)
#
# The paper's appendix shows what some heads of the encoder do, each on one sentence. Let us look for such
# heads in our model. One sentence is not enough, because many different stories fit it. So we write many
# sentences, and we write them so that a story can **fail**.
#
# *Story one: in some head, a participle looks at its subject.* In "In front of a big dog a man is
# sleeping", the word *sleeping* should look at *man*, not at *dog*. The function `look` returns the weights
# of one word for every layer and head of the encoder. The function `mean_weights` averages them over thirty
# sentences. Then we choose the head with the clearest preference for the subject over the other noun.


# %%
from annotated import capture_attention


def look(text, query):
    """The pieces of a sentence, and the encoder weights (layers, h, pieces) of one word."""
    tokens = translator.encode(text)
    pieces = translator.src_tokenizer.pieces(tokens)
    with evaluating(model), capture_attention(model) as found:
        model.encode(torch.tensor([tokens]), None)
    place = pieces.index("▁" + query)
    return pieces, torch.stack([found["encoder", n][0, :, place] for n in range(4)])


couples = [pair.split() for pair in ("man dog", "woman boy", "girl man", "dog man", "child horse", "man car")]
verbs = ("sleeping", "running", "standing", "smiling", "waiting")


def mean_weights(frame):
    """The participle's weight on its subject and on the other noun, mean of 30 sentences: (2, layers, h)."""
    found = []
    for subject, other in couples:
        for verb in verbs:
            pieces, weights = look(frame.format(subject, other, verb), verb)
            found.append(torch.stack([weights[..., pieces.index("▁" + key)] for key in (subject, other)]))
    return torch.stack(found).mean(dim=0)


# %%
near = mean_weights("In front of a big {1} a {0} is {2}.")
best = (near[0] - near[1]).argmax().item()
layer, head = divmod(best, 4)
print(f"layer {layer + 1}, head {head + 1}", end=": ")
print(f"subject ≈{near[0, layer, head]:.2f}, other noun ≈{near[1, layer, head]:.2f}")

# %% tags=["check"]
assert (layer, head) == (3, 2)
assert near[0, 3, 2] > 0.5 > 0.2 > near[1, 3, 2]

# %% [markdown]
# Over the thirty sentences, the participle puts most of its weight on its subject. This head looks like a
# subject finder.
#
# **Before you run this:** in these sentences, the subject is also the *nearest* noun. Now we turn the
# sentences around: "A man in front of a big dog is sleeping". Where will the head look?

# %%
far = mean_weights("A {0} in front of a big {1} is {2}.")
print(f"near: subject ≈{near[0, layer, head]:.2f}, other noun ≈{near[1, layer, head]:.2f}")
print(f"far:  subject ≈{far[0, layer, head]:.2f}, other noun ≈{far[1, layer, head]:.2f}")

# %% tags=["check"]
assert far[1, 3, 2] > far[0, 3, 2] + 0.3
assert torch.minimum(near[0] - near[1], far[0] - far[1]).max() < 0.1  # no other head is a subject finder

# %% [markdown]
# The head looks at the dog, which is not sleeping. So the story fails: in both kinds of sentences, the head
# looks at the noun that stands two words back. No other head clearly prefers the subject in both kinds.
#
# *Story two: in some head, an article looks at its noun.* This time we think of rival stories first. The
# head might look a fixed number of words ahead, so we write *a dog*, *a red dog* and *a big red dog*. Or it
# might look at the word before the verb, so we vary what follows the noun. Then we **choose** a head on
# five nouns and **test** it on five others. We judge each head by its worst result with zero, one or two
# adjectives, and choose the best head.

# %%
ADJECTIVES = ["red", "big", "young", "small", "black", "old", "green"]
TAILS = ["in the street.", "runs.", "is standing near two women.", "behind them is new."]
TAILS += ["and three children play football.", "that they see is on the table."]


def article_to_noun(nouns):
    """How often the article looks most at its noun, by number of adjectives: (3, layers, h)."""
    shares, draw = [], random.Random(0)
    for between in range(3):
        hits = []
        for noun in nouns:
            for tail in TAILS:
                phrase = " ".join([*draw.sample(ADJECTIVES, between), noun])
                pieces, weights = look(f"There is a {phrase} {tail}", "a")
                hits.append(weights.argmax(dim=-1) == pieces.index("▁" + noun))
        shares.append(torch.stack(hits).float().mean(dim=0))
    return torch.stack(shares)


# %%
chosen = article_to_noun(["dog", "man", "woman", "boy", "ball"])
layer, head = divmod(chosen.amin(dim=0).argmax().item(), 4)
tested = article_to_noun(["car", "shirt", "hat", "girl", "house"])[:, layer, head]
print(f"layer {layer + 1}, head {head + 1}, on new nouns with 0, 1, 2 adjectives:", end=" ")
print(*(f"≈{share:.0%}" for share in tested))

# %% tags=["check"]
assert (layer, head) == (2, 1)
assert tested.min() > 0.5

# %% [markdown]
# This story holds for these sentences. In layer 3, head 2, the article usually puts its largest weight on its
# noun, even when two adjectives stand between them. One rival story is left: in all our sentences, the
# article's own noun is also the next noun.
#
# **Remember:** look for other stories that fit your examples, and write sentences on which the stories
# disagree.

# %% [markdown]
# ## Is it faithful? Change the weights
#
# So far, we have only looked. To see what the model *uses*, we change something and watch the output. We
# overwrite the weights of cross-attention with **uniform** weights, which are the same for every source
# token. Then we measure the loss on the 24 translations, in nats per token. In the package, each attention
# module has a method `attend`, which computes the weights and the mean of the values. For one run of the
# decoder, `loss` replaces this method by a function of ours.

# %%
from annotated import attention

model.eval().requires_grad_(False)
cross = [layer.src_attn for layer in model.decoder.layers]


def loss(change):
    """Nats per token; `change` gets (layer, weights (B, h, T, S)) and returns the weights to use."""
    for number, module in enumerate(cross):

        def attend(q, k, v, mask, number=number):
            return change(number, attention(q, k, v, mask)[1]) @ v

        module.attend = attend  # replaces the method
    out = model.decoder(model.tgt_embed(batch.tgt), memory, batch.src_mask, batch.tgt_mask)
    for module in cross:
        del module.attend  # restores the method
    log_probs = model.generator(out[real])
    return -log_probs[range(len(log_probs)), batch.tgt_y[real]].mean().item()


# %%
intact = loss(lambda layer, weights: weights)
uniform = (batch.src_mask / batch.src_mask.sum(dim=-1, keepdim=True)).unsqueeze(1)  # (B, 1, 1, S)
all_uniform = loss(lambda layer, weights: uniform.expand_as(weights))
print(f"as trained ≈{intact:.2f} nats, all 16 heads uniform ≈{all_uniform:.2f}")

# %% tags=["check"]
assert all_uniform > intact + 1.5

# %% [markdown]
# The loss more than doubles, so the model does depend on where it looks. Next, we make only one head
# uniform at a time, each of the 16 in turn. Such an experiment, which disables a part to see what it
# contributes, is called an **ablation**.
#
# **Before you run this:** the best aligner was layer 2, head 2. How much will the loss rise when we make
# this head uniform?


# %%
def one_uniform(layer, head):
    here = torch.arange(4).view(-1, 1, 1) == head
    return lambda n, weights: torch.where(here, uniform, weights) if n == layer else weights


harm = torch.tensor([[loss(one_uniform(n, h)) - intact for h in range(4)] for n in range(4)])
print(f"best aligner ≈{harm[1, 1]:.2f} nats, largest of 16 ≈{harm.max():.2f}, all added up ≈{harm.sum():.2f}")

# %% tags=["check"]
assert harm[1, 1] < harm.max() < 0.4
assert harm.sum() < 0.7 * (all_uniform - intact)

# %% [markdown]
# The loss hardly rises. The most plausible head is not the most important one, and no single head matters
# much. Added up, the 16 increases are ≈0.32. When all heads were uniform at once, the loss rose by ≈1.82. Do
# the heads replace each other? If they do, several together cost more than the sum of each alone. We make
# several uniform at the same time: the six that matter least, and then each layer as a whole.


# %%
def several_uniform(which):
    """`which` is bool (layers, heads)."""
    return lambda n, weights: torch.where(which[n].view(-1, 1, 1), uniform, weights)


least = torch.zeros(16, dtype=torch.bool).index_fill(0, harm.flatten().argsort()[:6], value=True).view(4, 4)
six = loss(several_uniform(least)) - intact
by_layer = [loss(several_uniform(torch.eye(4).bool()[:, n : n + 1].expand(4, 4))) - intact for n in range(4)]
print(f"six heads together ≈{six:.2f} nats (one by one, they add up to ≈{harm[least].sum():.2f})")
print("each layer as a whole:", *(f"≈{rise:.2f}" for rise in by_layer))
print("its heads one by one: ", *(f"≈{rise:.2f}" for rise in harm.sum(dim=1)))

# %% tags=["check"]
assert abs(six) < 0.05
assert by_layer[3] > 1.5 * harm[3].sum()
assert sum(by_layer) < 0.5 * (all_uniform - intact)

# %% [markdown]
# The six least important heads are simply idle, at least on the captions on which we picked them. In the last
# layer the heads do replace each other: 0.35 together, 0.19 one by one. And so do the layers. Each as a
# whole, the four add up to 0.50, but all at once cost 1.82: what one layer misses, another supplies.
#
# A larger model can do without most of its encoder heads. Voita and colleagues (2019) trained a translator
# of the paper's base size further, so that it learned to switch off its own heads. Without 38 of its 48
# encoder heads, it lost only 0.15 BLEU. Most of the remaining heads had a job that one can name, such as
# looking at a neighboring word.
#
# *Can quite different maps give nearly the same predictions? Yes. We moved more than half of all weight in
# the maps, and the predictions hardly changed: [Is attention an
# explanation?](evidence/is_attention_an_explanation.ipynb)*
#
# **Remember:** a map suggests what a model uses. Only an experiment that changes the model can show it.

# %% [markdown]
# ## What you can now say
#
# - An attention map is plausible if it agrees with alignments made by hand better than a simple baseline
#   does. For captions, the diagonal is already a good baseline.
# - In the early layers of our decoder, a state stands for the word that was just read, and in the late
#   layers for the word that comes next. The rows of the maps change with the states.
# - A story about a head needs sentences on which it can fail. To find out whether a map is faithful, change
#   the weights and watch the output.
#
# **Deeper:** [Is attention an explanation?](evidence/is_attention_an_explanation.ipynb)
#
# **Next:** PyTorch's own attention and Transformer, in
# [14_attention_in_pytorch](14_attention_in_pytorch.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Predict first: what is the AER of an aligner that makes no link at all? What is the
# AER if it links every German word to every English word? Then write the AER for sets of links.


# %% tags=["exercise"]
def aer_of(predicted, sure, possible):
    """AER of links; `possible` holds the merely possible ones."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import sample


def test_aer_of(aer_of):
    def links(first, last):
        return {(i, i) for i in range(first, last)}

    found, missed, extra = sample(range(10, 100), 3)
    for what, predicted, sure, possible, right in (
        ("exactly the sure links", {(0, 0)}, {(0, 0)}, set(), 0.0),
        ("no link at all", set(), {(0, 0)}, set(), 1.0),
        (
            "a sure and a possible link, one sure link missed",
            {(0, 0), (1, 1)},
            {(0, 0), (2, 1)},
            {(1, 1)},
            0.25,
        ),
        ("a possible link left out", {(0, 0)}, {(0, 0)}, {(1, 1)}, 0.0),
        ("a sure link and three wrong ones", {(0, 0), (1, 0), (2, 0), (3, 0)}, {(0, 0)}, set(), 0.6),
        (
            f"{found} sure links, {missed} more missed, {extra} wrong ones",
            links(0, extra + found),
            links(extra, extra + found + missed),
            set(),
            (extra + missed) / (2 * found + extra + missed),
        ),
    ):
        rate = aer_of(predicted, sure, possible)
        assert rate is not None, "nothing is returned"
        assert abs(rate - right) < 1e-9, f"{what}: the rate is {right}, not {rate:.2f}"


try:
    test_aer_of(aer_of)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(predicted, sure, possible):
    """AER of links; `possible` holds the merely possible ones."""
    right = len(predicted & sure) + len(predicted & (sure | possible))
    return 1 - right / (len(predicted) + len(sure))


test_aer_of(solution)
# No link at all gives 1, the worst rate. Every link gives 0.82 among ten words of each side, if each word has
# one right link. That is nearly as bad: links must be right, too.
assert solution(set(), {(0, 0)}, set()) == 1
ten = range(10)
assert round(solution({(s, t) for s in ten for t in ten}, {(n, n) for n in ten}, set()), 2) == 0.82

# %% [markdown]
# **Exercise 2 (medium).** A layer's attention looks at states, not at words. After layer 1, every state is
# already a mixture of words. **Attention rollout** (Abnar and Zuidema, 2020) therefore multiplies the maps
# of all layers. To account for the residual connection, it assumes that a layer passes on half of the old
# state and half of what it has looked at. So the map of a layer is $(A + I) / 2$, where $A$ holds its
# attention weights. Write the function.


# %% tags=["exercise"]
import torch


def rollout(maps):
    """Self-attention of each layer (layers, T, T), first layer first -> from output to input (T, T)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_rollout(rollout):
    torch.manual_seed(0)
    one, two, three = stack = torch.rand(3, 5, 5).softmax(dim=-1)
    half = torch.eye(5) / 2
    two_layers = (two / 2 + half) @ (one / 2 + half)
    for layers, right, what in (
        (1, one / 2 + half, "one layer is (A + I) / 2"),
        (2, two_layers, "the second layer stands left of the first"),
        (3, (three / 2 + half) @ two_layers, "the third layer stands left of the others"),
    ):
        given = rollout(stack[:layers])
        shape = getattr(given, "shape", given)
        assert shape == (5, 5), f"for 5 tokens, (5, 5) is wanted, not {shape}"
        rows, gap = given.sum(dim=-1), (given - right).abs().max()
        assert torch.allclose(rows, torch.ones(5)), f"{what}; a row must sum to 1, not to {rows[0]:.2f}"
        assert gap < 1e-5, f"{what}; the result is off by up to {gap:.3f}"


try:
    test_rollout(rollout)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(maps):
    """Self-attention of each layer (layers, T, T), first layer first -> from output to input (T, T)."""
    whole = torch.eye(maps.size(-1))
    for each in maps:
        whole = (each + torch.eye(len(each))) / 2 @ whole
    return whole


test_rollout(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore: we chose the best of 32 maps and scored it on the same pairs. This makes
# the winner look better than it is. Now choose the winner on a random half of the pairs and score it on the
# other half, and do this 100 times. How much worse is the score on the other half? How often is the winner
# the same head?

# %% tags=["solution"]
_ = torch.manual_seed(0)
single = {
    (row, n, h): torch.tensor([counts(both[row][n, h], pair) for both, pair in zip(maps, pairs, strict=True)])
    for row in ("reads", "says")
    for n in range(4)
    for h in range(4)
}


def rate_of(name, half):
    right, of = single[name][half].sum(dim=0).tolist()
    return 1 - right / of


same = flattered = 0
for _ in range(100):
    one, other = torch.randperm(24).split(12)
    winner = min(single, key=lambda name: rate_of(name, one))
    same += winner == ("reads", 1, 1)
    flattered += (rate_of(winner, other) - rate_of(winner, one)) / 100
print(f"layer 2, head 2, reads: chosen in ≈{same} of 100 draws; worse by ≈{flattered:.3f} on the other half")
assert same > 75
assert abs(flattered) < 0.06
