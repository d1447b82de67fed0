# %% [markdown]
# # 13 · Reading attention
#
# **You look into a trained translator, turn its attention into a word alignment, test two stories about
# single heads, and find the one place that carries the gender of a word. Then you grow a head that you
# understand.**
#
# Previous: [12_results](12_results.ipynb) · Next: [14_attention_in_pytorch](14_attention_in_pytorch.ipynb) ·
# Attention itself: [02_attention](02_attention.ipynb)
#
# *48 minutes to read, half a minute to run.*
#
# - **Before:** you know attention, masks and heads ([02](02_attention.ipynb),
#   [03](03_multi_head_attention.ipynb)) and how a decoder reads a known translation
#   ([07](07_batches_and_masks.ipynb)).
# - **After:** you can score an attention map against human judgment, test what a head does, find the states
#   that carry a decision by patching them, and explain an induction head.
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
# it wrote. The darker a cell, the larger its weight.*
#
# > "As side benefit, self-attention could yield more interpretable models." (section 4)
#
# *Kirche* looks at *church*, and *Band* looks at *band*. But it is easy to find sense in a picture. So we
# separate two claims (Jacovi and Goldberg, 2020) and test each:
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
# At the position where the decoder has just read
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
# What is a bad AER? We score two baselines that do not use the model. The first uses random maps. The second,
# the *diagonal*, uses only the places of the words. It links the first German word to the first English word,
# a word in the middle to a word in the middle, and the last word to the last. (It is the least that a map
# must beat. The literature compares with aligners that are trained on the whole corpus, such as fast_align.)


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
# German word. Right: from the row that will say it next. The darker a cell, the larger the error rate; the
# lowest rate of each panel is framed.*

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
# replacement, and see how much such a difference moves (the bootstrap of [10](10_translation.ipynb)):


# %% tags=["scaffold"]
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


# %%
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
# interval makes no allowance for the picking. The second does not: layer 4 does better than the diagonal, as
# far as 24 captions can tell. Head 2.2 looks at the source of the word that was just read. Chen and
# colleagues (2020) also found the best alignments in such rows, in a larger model.
#
# **Remember:** compare a map with the diagonal before you believe it. A row of a map may belong to the word
# that was just read, or to the word that comes next.

# %% [markdown]
# ## Why do the rows change their meaning?
#
# At each position, the decoder has a vector, its *state*, that every layer changes. The state begins as the
# embedding of the token that was read, and it ends as the prediction of the next token. You watched this
# change for one sentence in [06](06_the_full_model.ipynb), where we also gave the generator the states after
# the *earlier* layers. This method is called the **logit lens** (nostalgebraist, 2020). (Our model reads and
# writes with the same table of embeddings; otherwise the lens could not show the token that was read.) We
# repeat it for all 24 sentences and count.

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
# This story holds for these sentences. In layer 3, head 2 of the encoder, the article usually puts its
# largest weight on its noun, even when two adjectives stand between them. One rival story is left: in all our
# sentences, the article's own noun is also the next noun.
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
# the heads replace each other? If they do, several together cost more than what each costs alone, added up.
# We make several uniform at the same time: the six that matter least, and then each layer as a whole.


# %% tags=["scaffold"]
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
# layer, the heads do replace each other: together they cost 0.35, but one by one only 0.19. And so do the
# layers. One layer at a time, the four increases add up to 0.50, but all four layers at once cost 1.82: what
# one layer misses, another may supply. (It is a hint, not a proof: uniform weights put states into the stream
# that the model has never seen, and two such disturbances together may do more harm than the two of them one
# by one.)
#
# A larger model can do without most of its encoder heads. Voita and colleagues (2019) trained a translator
# of the paper's base size further, so that it learned to switch off its own heads. Without 38 of its 48
# encoder heads, it lost only 0.15 BLEU.
#
# *Can quite different maps give nearly the same predictions? Yes. We moved more than half of all weight in
# the maps, and the predictions hardly changed: [Is attention an
# explanation?](evidence/is_attention_an_explanation.ipynb)*
#
# **Remember:** a map suggests what a model uses. Only an experiment that changes the model can show it.

# %% [markdown]
# ## Where does a decision live? Patch it
#
# An ablation says that a part matters, but not what it carries. For that, there is a sharper experiment. Take
# two sentences that differ in one word and in one decision. *A man is sleeping* begins with *Ein*, and *A
# woman is sleeping* begins with *Eine*. Run the model on the first one, and in the middle of the run, replace
# a single state by the state that the second sentence has in the same place. If the answer flips, this state
# carries the decision. This is **activation patching**. Meng and colleagues (2022) located facts in GPT with
# a related method. With such experiments, Wang and colleagues (2022) found 26 heads of GPT-2 small that
# decide who gets the drink in *When John and Mary went to the store, John gave a drink to*.

# %%
start = torch.tensor([[tokenizer.start]])
ein, eine = (tokenizer.encode(word)[0] for word in ("Ein", "Eine"))


def encoder_states(text):
    """The states before the first layer and after each, (1, S, d_model) each."""
    states = [model.src_embed(torch.tensor([translator.encode(text)]))]
    for layer in model.encoder.layers:
        states.append(layer(states[-1], None))
    return states


def leaning(memories):
    """The log-odds of Ein against Eine as the first word, with one memory for each layer of the decoder."""
    x = model.tgt_embed(start)
    for layer, memory in zip(model.decoder.layers, memories, strict=True):
        x = layer(x, memory, None, None)
    log_probs = model.generator(x)[0, -1]
    return (log_probs[ein] - log_probs[eine]).item()


man, woman = (encoder_states(f"A {noun} is sleeping in the grass.") for noun in ("man", "woman"))
print(f"man ≈{leaning([man[-1]] * 4):+.1f}, woman ≈{leaning([woman[-1]] * 4):+.1f}")

# %% tags=["check"]
assert leaning([man[-1]] * 4) > 4 > -4 > leaning([woman[-1]] * 4)

# %% [markdown]
# Positive numbers mean *Ein*, negative ones *Eine*, and the model is sure of both. We patch the embeddings,
# and the states after each of the four layers, in each place.
#
# **Before you run this:** in story two, the English article looks at its noun. So perhaps the state of *A*
# learns the gender, and the German article is read from there. Or the noun keeps it. Or it spreads over the
# sentence. In which column of the figure will the last row be dark?


# %% tags=["figure-patching"]
def patched(ours, theirs):
    """How far a single patched state moves the answer from ours (0) to theirs (1): (5, S)."""
    here, there = leaning([ours[-1]] * 4), leaning([theirs[-1]] * 4)
    moved = torch.zeros(5, ours[0].size(1))
    for n, place in [(n, place) for n in range(5) for place in range(moved.size(1))]:
        state = ours[n].clone()
        state[:, place] = theirs[n][:, place]
        for layer in list(model.encoder.layers)[n:]:  # run the encoder on from there
            state = layer(state, None)
        moved[n, place] = (leaning([state] * 4) - here) / (there - here)
    return moved


frames = "A {} is sleeping in the grass.", "A {} is standing in the snow."
cases = [
    [frame.format(noun) for noun in nouns.split()] for nouns in ("man woman", "dog cat") for frame in frames
]
moved = torch.stack([patched(*map(encoder_states, case)) for case in cases]).mean(dim=0)
figure, ax = plt.subplots(figsize=(9, 3.6))
options = {"annot": True, "fmt": ".2f", "cbar": False, "linewidths": 1, "cmap": "Blues"}
pieces = ["A", "noun", "is", "verb", "in", "the", "noun 2", ".", "</s>"]
rows = ["embedding", *(f"after layer {n}" for n in range(1, 5))]
seaborn.heatmap(moved.abs(), vmin=0, vmax=1, ax=ax, xticklabels=pieces, yticklabels=rows, **options)
ax.set(title="Share of the way from Ein to Eine that one patched state brings")
plt.show()

# %% [markdown]
# *Figure 4. Activation patching in the encoder, mean of four pairs of sentences. 1 means that the one patched
# state flips the article completely, and 0 that it changes nothing.*

# %% tags=["check"]
assert (moved[:, 1] > 0.95).all()
assert moved[:, [0, *range(2, 9)]].abs().max() < 0.05

# %% [markdown]
# The gender stays at the noun, in all layers. Patching any other state changes nothing. The head that looks
# from *A* at its noun exists, but this decision does not use it. The decoder, which at the first step has
# read nothing but `<s>`, must fetch the gender from the noun by its cross-attention. In which layer? We give
# the memory of the other sentence to one layer of the decoder at a time.

# %%
for case in cases[::2]:
    ours, theirs = (encoder_states(text)[-1] for text in case)
    here, there = leaning([ours] * 4), leaning([theirs] * 4)
    swapped = [leaning([theirs if n == only else ours for n in range(4)]) for only in range(4)]
    shares = [(found - here) / (there - here) for found in swapped]
    print(
        *(text.split()[1] for text in case), "- layers 1 to 4 bring", *(f"≈{share:.2f}" for share in shares)
    )

# %% tags=["check"]
assert max(shares[:2]) < 0.05 < shares[2] < 0.4 < 0.6 < shares[3]

# %% [markdown]
# The gender is fetched in layers 3 and 4, and mostly in layer 4. These are the layers in which Figure 3 found
# the word to be said, so two different experiments agree.
#
# Not every decision is that local. In German, the ending of an adjective depends on the gender, too. When the
# model has written *Ein* or *Eine* and is to translate *young*, it could read the gender from the article
# that it has written or from the English noun. Normally they agree. We let them disagree.

# %% tags=["scaffold"]
for word in ("Ein", "Eine"):
    for noun in ("man", "woman"):
        said = torch.tensor([[tokenizer.start, *tokenizer.encode(word)]])
        memory_of = encoder_states(f"A young {noun} is sleeping in the grass.")[-1]
        causal = torch.ones(1, 2, 2, dtype=torch.bool).tril()
        next_one = model.generator(model.decode(memory_of, None, said, causal))[0, -1].exp()
        masculine, feminine = (next_one[tokenizer.encode(form)[0]].item() for form in ("junger", "junge"))
        print(f"{word:4} written, {noun:5} in English: junger ≈{masculine:.2f}, junge ≈{feminine:.2f}")

# %% tags=["check"]
assert feminine > 0.9 > 0.05 > masculine

# %% [markdown]
# Where they disagree, the English noun is ahead both times, but the article takes about two fifths of the
# probability away from it. This decision has two sources. (We tried this one sentence.)
#
# **Remember:** to find where a decision lives, move one state from a run that decides otherwise, and see
# whether the answer moves with it.

# %% [markdown]
# ## A head that we understand: induction
#
# The best-known head with a story that survives its tests was found in language models by Olsson
# and colleagues (2022). An **induction head** continues what it has seen before: in *[A] [B] … [A]*, it looks
# at the token *after* the earlier *A* and predicts *B* again. It needs no knowledge of the words, so we can
# grow it in seconds on random tokens. Each row is a random pattern of 5 to 12 tokens that repeats. Nothing in
# the first round can be predicted, and nearly everything after the first repeated token can.
#
# The model is a decoder-only Transformer with nothing but attention: no feed-forward network, two heads of
# width 16. A folded cell below trains it for 700 updates.


# %%
class AttentionOnly(torch.nn.Module):
    """Tokens (B, T) to logits (B, T, 20): attention layers and residual connections, nothing else."""

    def __init__(self, layers, d_model=32):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(20, d_model), torch.nn.Embedding(24, d_model)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(d_model) for _ in range(layers))
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(d_model, 3 * d_model) for _ in range(layers))
        self.out = torch.nn.ModuleList(torch.nn.Linear(d_model, d_model) for _ in range(layers))
        self.unembed = torch.nn.Linear(d_model, 20)

    def forward(self, tokens, blind=()):
        """`blind` names heads (layer, head) that get uniform weights."""
        T, self.maps = tokens.size(1), []
        x, causal = self.embed(tokens) + self.place(torch.arange(T)), torch.ones(T, T).tril().bool()
        for n, (norm, qkv, out) in enumerate(zip(self.norms, self.qkv, self.out, strict=True)):
            q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in qkv(norm(x)).chunk(3, dim=-1))
            weights = attention(q, k, v, causal)[1]  # (B, 2, T, T)
            for head in (head for layer, head in blind if layer == n):
                weights = weights.clone()
                weights[:, head] = causal / causal.sum(dim=-1, keepdim=True)
            self.maps.append(weights)
            x = x + out((weights @ v).transpose(1, 2).flatten(2))
        return self.unembed(x)


def repeated(count):
    """Random patterns that repeat, (count, 24), and which of the tokens after the first are repetitions."""
    length = torch.randint(5, 13, (count, 1))
    rows = torch.randint(20, (count, 24)).gather(1, torch.arange(24) % length)
    return rows, torch.arange(1, 24) > length


def losses(toy, rows, blind=()):
    """The loss of each token but the first, (count, 23)."""
    logits = toy(rows[:, :-1], blind).transpose(1, 2)
    return torch.nn.functional.cross_entropy(logits, rows[:, 1:], reduction="none")


# %% [markdown]
# **Before you run this:** we train a model of two layers and one of one layer. Can one layer do it? Think of
# what a key knows: in layer 1, the key of a token is made from that token and its place alone.

# %% tags=["scaffold"]
toys, curves = {}, {}
for layers in (2, 1):
    _ = torch.manual_seed(0)
    toy, curve = AttentionOnly(layers), []
    adam = torch.optim.Adam(toy.parameters(), lr=0.005, betas=(0.9, 0.98))
    for _ in range(700):
        rows, again = repeated(64)
        found = losses(toy, rows)
        adam.zero_grad()
        found.mean().backward()
        adam.step()
        curve.append((found[again].mean().item(), found[~again].mean().item()))
    toys[layers], curves[layers] = toy.requires_grad_(False), torch.tensor(curve).T

# %% tags=["figure-induction", "scaffold"]
_ = torch.manual_seed(1)
pattern = torch.randint(20, (1, 12)).repeat(1, 2)[:, :-1]
_ = toys[2](pattern)
second = torch.arange(12, 23)  # the second round
first_head = torch.stack([w.diagonal(-1).mean() for w in toys[2].maps[0][0]]).argmax().item()
second_head = torch.stack([w[second, second - 11].mean() for w in toys[2].maps[1][0]]).argmax().item()
figure, axes = plt.subplots(1, 3, figsize=(14, 4.4))
for layers, color in ((2, "C0"), (1, "C1")):
    name = {2: "two layers", 1: "one layer"}[layers]
    axes[0].plot(curves[layers][0], color=color, label=f"repeated tokens, {name}")
axes[0].plot(curves[2][1], color="0.7", label="first round, two layers")
axes[0].set(xlabel="update", ylabel="loss, nats", title="The second round becomes easy", ylim=(0, 4.6))
axes[0].legend(frameon=False, fontsize=10, loc="upper right")
for ax, n, head, title in (
    (axes[1], 0, first_head, "Layer 1: the token before"),
    (axes[2], 1, second_head, "Layer 2: what came after"),
):
    seaborn.heatmap(toys[2].maps[n][0, head], cmap="Blues", vmin=0, vmax=1, square=True, cbar=False, ax=ax)
    ax.axhline(12, color="C1")
    ax.axvline(12, color="C1")
    ax.set(title=title, xlabel="token, looked at", xticks=[], yticks=[], ylabel="token that looks")
plt.show()

# %% [markdown]
# *Figure 5. Left: the loss in training. Middle and right: one head of each layer of the trained model on a
# pattern of 12 tokens, read twice; the orange lines stand between the rounds. In layer 2, the tokens of the
# second round look eleven places back: at the token after their own earlier copy.*

# %%
rows, again = repeated(500)
for layers, toy in toys.items():
    found = losses(toy, rows)
    print(f"{layers} layers: first round ≈{found[~again].mean():.2f}, repeated ≈{found[again].mean():.2f}")
without = losses(toys[2], rows, blind=[(0, first_head)])[again].mean()
print(f"2 layers, the head in the middle of the figure blind: repeated ≈{without:.2f}")
control = losses(toys[2], rows, blind=[(0, 1 - first_head)])[again].mean()
print(f"2 layers, the other head of layer 1 blind: repeated ≈{control:.2f}")

# %% tags=["check"]
deep, shallow = (losses(toys[layers], rows)[again].mean() for layers in (2, 1))
assert deep < 0.5 < 1.7 < shallow < 2.4
assert without > 2.0 > 1.2 > control
_ = toys[2](pattern)
assert toys[2].maps[1][0, second_head][second, second - 11].mean() > 0.6
assert min(weights[second, second - 11].mean() for weights in toys[2].maps[1][0]) > 0.5
assert toys[2].maps[0][0, first_head].diagonal(-1).mean() > 0.4

# %% [markdown]
# With two layers, the loss of repeated tokens falls from 3 to about a quarter of a nat. The trick takes two
# heads. A head of layer 1 looks at the token before, so that each state also says *what came before me*. A
# head of layer 2 asks *which token stood right after an earlier copy of mine?*, finds that token, and
# predicts it. If we blind the head of layer 1, the whole trick is gone, although layer 2 is untouched.
# Blinding the other head of layer 1 costs far less. (In layer 2, both heads have learned the trick; the
# figure shows one.) With one layer, a key cannot know what stood before its token. Such a model can still
# learn that the next token is one of those that the row has shown already. That is a choice among 5 to 12
# tokens, or about 2 nats, and it does little better.
#
# Olsson and colleagues found such heads in language models with up to 13 billion weights. In their training
# runs, the heads appear just when the models suddenly become better at using what stands earlier in the text.
# For small models without feed-forward networks, their evidence is causal. For large models they call it
# preliminary and indirect.
#
# **Remember:** an induction head looks at the token after an earlier copy of the current one. It needs a
# second head, one layer below, which tells each token what stood before it.

# %% [markdown]
# ## What you can now say
#
# - An attention map is plausible if it agrees with alignments made by hand better than a simple baseline
#   does. For captions, the diagonal is already a good baseline.
# - In the early layers of our decoder, a state stands for the word that was just read, and in the late
#   layers for the word that comes next. The rows of the maps change with the states.
# - A story about a head needs sentences on which it can fail. To find out whether a map is faithful, change
#   the weights and watch the output.
# - Patching one state from another run shows where a decision lives. In our encoder, the gender of a noun
#   stays at the noun, and layers 3 and 4 of the decoder fetch it.
# - An induction head continues what it has seen before, with the help of a head one layer below.
#
# **Deeper:** [Is attention an explanation?](evidence/is_attention_an_explanation.ipynb) · What a head looks
# for and what it writes can be read from its weights:
# [22_circuits_and_features](22_circuits_and_features.ipynb), which finds the two heads that fetch the gender.
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
