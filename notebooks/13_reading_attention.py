# %% [markdown]
# # 13 · Reading attention
#
# **We read the maps of a trained translator, score them against word alignments made by hand, and then take
# the model apart to find out which of our readings were true.**
#
# Previous: [12_results](12_results.ipynb) · Next:
# [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb) · Attention itself:
# [02_attention](02_attention.ipynb)
#
# *40 minutes to read, under half a minute to run.*
#
# - **Before:** you know attention, its masks and its heads (02, 03), and what a decoder reads and must say
#   (09).
# - **After:** you know which token belongs on which row and column of each kind of map, and an experiment
#   that finds out; how a map is scored against an alignment, and what a good score is worth; at which layer
#   a decoder turns from the word it has read to the word it will say; how to tell a head that follows places
#   from one that follows words; and three ways in which a beautiful map misleads.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is the last paragraph of its section
# 4, the three uses of attention in 3.2.3, and the pictures of its appendix.

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
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from annotated import Batch, MultiHeadedAttention, alignment_error_rate, capture_attention, evaluating
from annotated.data.grammar import sample, surface
from annotated.plots import plot_alignment, plot_attention, plot_by_head, setup_notebook, show_source
from annotated.transformer.attention import attention
from annotated.transformer.masks import subsequent_mask
from annotated.translation.translator import TranslationAttention, load_pretrained

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## One translation, three kinds of map
#
# The model is the small one that comes with the package: English image captions into German.

# %%
translator = load_pretrained("multi30k-en-de")
model = translator.model
LAYERS, HEADS = model.config.N, model.config.h
sentence = "In front of the church, a band is playing for a wedding party."
translation = translator(sentence)
print(translation)

# %% [markdown]
# `translator.attention` feeds the finished translation to the decoder once more, all of it at once, as in
# training (09), and records the weights. It takes any translation, one of ours as well as the model's own.
# Section 3.2.3 has three uses of attention, so there are three kinds of map. On each, who asks goes
# down, who is looked at goes across. But who are they?

# %%
seen = translator.attention(sentence, translation)
for kind in ("encoder", "decoder", "cross"):
    queries, keys = seen.tokens(kind)
    weights = seen.maps[kind, 0]  # (h, queries, keys)
    print(f"{kind:8} down: {queries[0]} ... {queries[-1]:5} across: {keys[0]} ... {keys[-1]}")
    assert weights.shape == (HEADS, len(queries), len(keys))
    assert_close(weights.sum(dim=-1), torch.ones(HEADS, len(queries)))

# %% [markdown]
# The encoder reads the source *and* an end symbol, `</s>`. The decoder begins with a start symbol, `<s>`, and
# has no `</s>`: it says that symbol, it never reads it. (`▁` is the space before a word: these are subwords.)
# In cross-attention the two meet, the decoder's tokens asking, the encoder's answering.

# %%
translator.show_attention(sentence, translation)

# %% [markdown]
# Choose kind, layer and head; point at a cell for its two tokens. The decoder's maps are triangles: nobody
# sees the future. Now choose *cross* and go from layer 1 to the last. Most rows, which were spread over the
# whole sentence, gather on one or two words.
#
# This is as far as most readings go: look, find a pattern, tell a story. The paper's appendix does so too,
# with three figures of encoder self-attention, layer 5 of 6, on sentences of its authors' choice. At the end
# of section 4 it hopes that self-attention makes models easier to interpret, and says that heads *clearly*
# learn different tasks. We would like to count. For that, we need to know what is true.
#
# ## Truth, made by hand
#
# Here are 24 captions, each with a translation. Behind each German word stand the numbers of the English
# words that it renders, counted from 1. A question mark makes a link merely *possible*. "Is feeding" is one
# word in German, *füttert*: with *feeding* the link is **sure**, with *is* it is possible. A comma that
# only German wants has no link. (Sure and possible links are Och and Ney's, 2003.)

# %%
first_half = """Two women in blue coats wait for the last tram .
Zwei:1 Frauen:2 in:3 blauen:4 Mänteln:5 warten:6 auf:7 die:8 letzte:9 Straßenbahn:10 .:11
An old man reads a newspaper on a park bench .
Ein:1 alter:2 Mann:3 liest:4 auf:7 einer:8 Parkbank:9,10 eine:5 Zeitung:6 .:11
A girl with a red scarf is feeding the ducks .
Ein:1 Mädchen:2 mit:3 einem:4 roten:5 Schal:6 füttert:8,7? die:9 Enten:10 .:11
In the evening the children play football behind the school .
Am:1,2? Abend:3 spielen:6 die:4 Kinder:5 hinter:8 der:9 Schule:10 Fußball:7 .:11
The cook is cutting onions while his colleague washes the plates .
Der:1 Koch:2 schneidet:4,3? Zwiebeln:5 ,: während:6 sein:7 Kollege:8 die:10 Teller:11 abwäscht:9 .:12
Three boys are building a big sandcastle on the beach .
Drei:1 Jungen:2 bauen:4,3? am:8,9? Strand:10 eine:5 große:6 Sandburg:7 .:11
A woman in a white dress is holding a small child in her arms .
Eine:1 Frau:2 in:3 einem:4 weißen:5 Kleid:6 hält:8,7? ein:9 kleines:10 Kind:11 in:12 ihren:13 Armen:14 .:15
Outside , a young couple is dancing in the rain .
Draußen:1 tanzt:7,6? ein:3 junges:4 Paar:5 im:8,9? Regen:10 .:11
A fisherman pulls his net out of the water .
Ein:1 Fischer:2 zieht:3 sein:4 Netz:5 aus:6,7? dem:8 Wasser:9 .:10
Two cyclists have stopped at a red light .
Zwei:1 Radfahrer:2 haben:3 an:5 einer:6 roten:7 Ampel:8 angehalten:4 .:9
A black cat is sleeping on the roof of a car .
Eine:1 schwarze:2 Katze:3 schläft:5,4? auf:6 dem:7 Dach:8 eines:10,9? Autos:11 .:12
In front of the church , a band is playing for a wedding party .
Vor:2,1?,3? der:4 Kirche:5 spielt:10,9? eine:7 Band:8 für:11 eine:12 Hochzeitsgesellschaft:13,14 .:15"""

# %%
second_half = """A boy who wears yellow boots is jumping into a puddle .
Ein:1 Junge:2 ,: der:3 gelbe:5 Stiefel:6 trägt:4 ,: springt:8,7? in:9 eine:10 Pfütze:11 .:12
The firemen are climbing a long ladder to the third floor .
Die:1 Feuerwehrleute:2 klettern:4,3? auf:4? einer:5 langen:6 Leiter:7 in:8 den:9 dritten:10 Stock:11 .:12
Many people are standing in line at the ice cream stand .
Viele:1 Menschen:2 stehen:4,3? am:7,8? Eisstand:9,10,11 in:5 einer: Schlange:6 .:12
A farmer drives his green tractor across a muddy field .
Ein:1 Bauer:2 fährt:3 mit: seinem:4 grünen:5 Traktor:6 über:7 ein:8 schlammiges:9 Feld:10 .:11
A nurse is showing a photo to an old lady .
Eine:1 Krankenschwester:2 zeigt:4,3? einer:8,7? alten:9 Dame:10 ein:5 Foto:6 .:11
On the left , a man in a grey suit is talking on his phone .
Links:3,1?,2? spricht:12,11? ein:5 Mann:6 in:7 einem:8 grauen:9 Anzug:10 in:13 sein:14 Handy:15 .:16
The little girl wants to pet the horse .
Das:1 kleine:2 Mädchen:3 möchte:4 das:7 Pferd:8 streicheln:6,5? .:9
A waiter carries four glasses through a crowded hall .
Ein:1 Kellner:2 trägt:3 vier:4 Gläser:5 durch:6 einen:7 überfüllten:8 Saal:9 .:10
Near the fountain , tourists are taking pictures of a street artist .
Neben:1 dem:2 Brunnen:3 machen:7,6? Touristen:5 Fotos:8 von:9 einem:10 Straßenkünstler:11,12 .:13
Because it is snowing , the players are wearing gloves .
Weil:1 es:2 schneit:4,3? ,:5 tragen:9,8? die:6 Spieler:7 Handschuhe:10 .:11
A carpenter has dropped his hammer on the floor .
Ein:1 Zimmermann:2 hat:3 seinen:5 Hammer:6 auf:7 den:8 Boden:9 fallen:4 gelassen:4 .:10
Next to the window sits a woman with long grey hair .
Neben:1,2? dem:3 Fenster:4 sitzt:5 eine:6 Frau:7 mit:8 langen:9 grauen:10 Haaren:11 .:12"""


# %%
class Pair(NamedTuple):
    """A sentence pair in words, with its links (English place, German place) from 0."""

    english: list[str]
    german: list[str]
    sure: set[tuple[int, int]]
    possible: set[tuple[int, int]]  # the merely possible ones


def read_pair(english: str, linked: str) -> Pair:
    """Read two lines of the kind above."""
    german, links = zip(*(word.rsplit(":", 1) for word in linked.split()), strict=True)
    named = [(name, t) for t, names in enumerate(links) for name in names.split(",") if name]
    sure = {(int(name) - 1, t) for name, t in named if "?" not in name}
    possible = {(int(name[:-1]) - 1, t) for name, t in named if "?" in name}
    return Pair(english.split(), list(german), sure, possible)


lines = [*first_half.splitlines(), *second_half.splitlines()]
pairs = [read_pair(*two) for two in zip(lines[::2], lines[1::2], strict=True)]
print(len(pairs), "pairs,", sum(len(pair.german) for pair in pairs), "German words,")
print(sum(len(p.sure) for p in pairs), "sure links,", sum(len(p.possible) for p in pairs), "possible ones")
for pair in pairs:
    assert all(s < len(pair.english) and t < len(pair.german) for s, t in pair.sure | pair.possible)

# %% [markdown]
# All maps that follow are of *these* translations. The decoder is made to read them, whatever it would have
# said itself, so that we know what each of its words stands for.

# %%
texts = [(surface(pair.english), surface(pair.german)) for pair in pairs]
maps = [translator.attention(*text) for text in texts]


def stacked(seen: TranslationAttention, kind: str) -> Tensor:
    """All maps of one kind and one sentence: (layers, h, queries, keys)."""
    return torch.stack([seen.maps[kind, layer] for layer in range(LAYERS)])


tokenizer = translator.tgt_tokenizer
src = translator.batch([translator.encode(english) for english, _ in texts])
tgt = translator.batch([[tokenizer.start, *tokenizer.encode(german), tokenizer.end] for _, german in texts])
batch = Batch(src, tgt)  # the same pairs, side by side, for later
real = batch.tgt_y != tokenizer.pad
print(texts[3][0], "|", texts[3][1])
print([(pairs[3].english[s], pairs[3].german[t]) for s, t in sorted(pairs[3].sure, key=lambda link: link[1])])

# %% [markdown]
# ## The right tokens on the right axes
#
# A picture of attention is a matrix and two lists of words. Nothing in the matrix says which list goes
# where. Here is one and the same map, twice: the last layer's cross-attention, mean of the heads.

# %%
number = next(i for i, seen in enumerate(maps) if len(seen.src_tokens) == len(seen.tgt_tokens))
chosen = maps[number]
weights = chosen.maps["cross", LAYERS - 1].mean(dim=0)  # (tgt_len, src_len)

figure, axes = plt.subplots(1, 2, figsize=(15, 6))
labellings = ((chosen.src_tokens, chosen.tgt_tokens), (chosen.tgt_tokens, chosen.src_tokens))
for ax, (queries, keys), name in zip(axes, labellings, "AB", strict=True):
    plot_attention(weights, queries, keys, ax=ax, title=f"Labelling {name}")
plt.show()
drawn = [ax.images[0].get_array() for ax in axes]
assert (drawn[0] == drawn[1]).all()

# %% [markdown]
# One of them is wrong, and it is a mistake that has been printed: "the source down the side, since it comes
# first". Could you have told which, without knowing German? A first thought is that the shapes give it away.
# They do where the sentences differ in length, and then our plots refuse the labels:

# %%
other = next(seen for seen in maps if len(seen.src_tokens) != len(seen.tgt_tokens))
try:
    plot_attention(other.maps["cross", 0][0], other.src_tokens, other.tgt_tokens)
    refused = False
except ValueError:
    refused = True
print("another pair, labels exchanged: refused:", refused)
assert refused

# %% [markdown]
# But these two happen to have equally many tokens. And code that cuts the longer list of words, or fills up
# the shorter one, never meets the error at all.
#
# What settles it is an experiment. A label claims something about the *model*: this column is that word. So
# **hide the word, and its column must go dark**; every other one lives. And **change a token that the
# decoder reads, and the first row that moves must be that token's**: the causal mask keeps all rows above
# it as they were.


# %%
def cross_maps(src: Tensor, tgt: Tensor, visible: Tensor | None = None) -> Tensor:
    """One sentence's cross-attention (layers, h, tgt_len, src_len); `visible` is bool (src_len,)."""
    mask = torch.ones(src.size(1), dtype=torch.bool) if visible is None else visible
    with evaluating(model), capture_attention(model) as found:
        model(src, tgt, mask.view(1, 1, -1), subsequent_mask(tgt.size(1)))
    return torch.stack([found["cross", layer][0] for layer in range(LAYERS)])


def dark_column(src: Tensor, tgt: Tensor, hidden: int) -> int:
    """Which column is empty, in all rows of all heads, when one source token is hidden."""
    weights = cross_maps(src, tgt, torch.arange(src.size(1)) != hidden)
    [column] = (weights.sum(dim=(0, 1, 2)) == 0).nonzero().flatten().tolist()
    return column


def first_moved_row(src: Tensor, tgt: Tensor, place: int) -> int:
    """The first row that differs when the decoder reads another token at one place."""
    changed = tgt.clone()
    changed[0, place] = 100 if tgt[0, place] != 100 else 101  # any other token will do
    moved = (cross_maps(src, changed) - cross_maps(src, tgt)).abs().amax(dim=(0, 1, 3)) > 1e-5
    return moved.nonzero()[0].item()


# %%
def wrong_labels(text: tuple[str, str], queries: list[str], keys: list[str]) -> tuple[int, int]:
    """How many rows and columns bear the name of a token that an experiment does not find there."""
    seen = translator.attention(*text)
    src = translator.batch([translator.encode(text[0])])
    tgt = torch.tensor([[tokenizer.start, *tokenizer.encode(text[1])]])
    rows = sum(queries[first_moved_row(src, tgt, t)] != token for t, token in enumerate(seen.tgt_tokens))
    columns = sum(keys[dark_column(src, tgt, s)] != token for s, token in enumerate(seen.src_tokens))
    return rows, columns


said = [*chosen.tgt_tokens[1:], "</s>"]
wrong = {
    "A": wrong_labels(texts[number], chosen.src_tokens, chosen.tgt_tokens),
    "B": wrong_labels(texts[number], chosen.tgt_tokens, chosen.src_tokens),
    "B, rows one up": wrong_labels(texts[number], said, chosen.src_tokens),
}
for name, (rows, columns) in wrong.items():
    print(f"{name:15} rows wrong: {rows > 0!s:6} columns wrong: {columns > 0}")
assert wrong["B"] == (0, 0)
assert min(wrong["A"]) > 0
assert wrong["B, rows one up"][0] > 0

# %% [markdown]
# B is right. The third line is the subtle one. Its rows are named by the words that the decoder *says* there,
# one further on, and there are just as many of those. No shape will ever catch that: only the experiment
# does. (It was run on one kind of map. In self-attention rows and columns are the same tokens, and to hide
# one finds its column there as well.)
#
# Still, is the third labelling *false*? Each row has two names. There the decoder has just read one word, and
# is about to say another:

# %%
for row in range(4):
    print(f"row {row}: reads {chosen.tgt_tokens[row]:10} must say {said[row]}")

# %% [markdown]
# Which of the two words is the row about? A picture cannot say. The truth made by hand can.
#
# ## From pieces to words, from words to a score
#
# The alignment links words, the map has subwords. A word receives what its pieces receive, so columns are
# **summed**; and it looks where its pieces look on average, so rows are **averaged**. (The other way round,
# rows of the result would no longer sum to 1.) First, which word does each piece belong to?


# %%
def owners(pieces: list[str], words: list[str]) -> Tensor:
    """The place of the word to which each piece belongs, int64 (pieces,)."""
    letters = [piece.replace("▁", "") for piece in pieces]
    if "".join(letters) != "".join(words):
        raise ValueError(f"{pieces} are not the pieces of {words}")
    ends = list(accumulate(len(word) for word in words))
    starts = [0, *accumulate(len(piece) for piece in letters)][:-1]
    return torch.tensor([bisect(ends, start) for start in starts])


def by_word(weights: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(..., T pieces, S pieces) and their owners -> (..., query words, key words)."""
    looks, receives = F.one_hot(rows).float(), F.one_hot(columns).float()  # (pieces, words) each
    return (looks / looks.sum(dim=0)).T @ weights @ receives


parts = owners(["▁Park", "bank", "▁im", "▁", "Regen", "."], ["Parkbank", "im", "Regen", "."])
print("owners:", parts.tolist())
print("a map of pieces:", torch.eye(6)[parts == 0].tolist(), "-> one row of words:")
print(by_word(torch.eye(6), parts, parts)[0].tolist())
assert parts.tolist() == [0, 0, 1, 2, 2, 3]

# %% [markdown]
# A German word's row can now be taken from two places: the rows in which its pieces are *read*, or those, one
# further up, in which they are *said*. We compute both.


# %%
def word_maps(pair: Pair, seen: TranslationAttention) -> dict[str, Tensor]:
    """Cross-attention by words, (layers, h, German words, English words and </s>), from either row."""
    columns = owners(seen.src_tokens, [*pair.english, "</s>"])
    reads = owners(seen.tgt_tokens, ["<s>", *pair.german])
    says = owners([*seen.tgt_tokens[1:], "</s>"], [*pair.german, "</s>"])
    weights = stacked(seen, "cross")
    return {
        "reads": by_word(weights, reads, columns)[..., 1:, :],  # without the row of <s>
        "says": by_word(weights, says, columns)[..., :-1, :],  # without the row that says </s>
    }


words = [word_maps(pair, seen) for pair, seen in zip(pairs, maps, strict=True)]
for pair, both in zip(pairs, words, strict=True):
    for weights in both.values():
        assert weights.shape == (LAYERS, HEADS, len(pair.german), len(pair.english) + 1)
        assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
print("every row still sums to 1: True")

# %% [markdown]
# A map becomes an alignment $A$ if every German word is linked to the one English word that it looks at
# most (to none if that is `</s>`). With the sure links $S$ and all allowed ones $P$, sure or possible,
# its **alignment error rate** (Och and Ney, 2003) is
#
# $$\mathrm{AER} = 1 - \frac{|A\cap S| + |A\cap P|}{|A| + |S|}$$
#
# By hand: *der Hund schläft* for "the dog is sleeping". Sure are *der*-the, *Hund*-dog, *schläft*-sleeping;
# *schläft*-is is possible. Somebody links *schläft* to *is*, and the others rightly. So $|A| = |S| = 3$, of
# the three links found two are sure and all are allowed.

# %%
found = {(0, 0), (1, 1), (2, 2)}  # (English place, German place)
sure, possible = {(0, 0), (1, 1), (3, 2)}, {(2, 2)}
print("1 - (2 + 3) / (3 + 3) =", round(alignment_error_rate(found, sure, possible), 3))
assert alignment_error_rate(found, sure, possible) == 1 - 5 / 6

precision, recall = 2 / 3, 2 / 3  # if there were no possible links
f1 = 2 * precision * recall / (precision + recall)
assert abs(alignment_error_rate(found, sure) - (1 - f1)) < 1e-12
print("without possible links, AER = 1 - F1: True")

# %% [markdown]
# So 0 is perfect, and 1 is *every* link wrong. How bad is chance? An even map has no largest weight, so we
# take random ones.


# %%
def error(word_weights: list[Tensor], pairs: list[Pair] = pairs) -> float:
    """AER over all pairs, of one map (German words, English words and </s>) for each of them."""
    found = {
        (i, s, t)
        for i, (pair, weights) in enumerate(zip(pairs, word_weights, strict=True))
        for t, s in enumerate(weights.argmax(dim=-1).tolist())
        if s < len(pair.english)
    }
    sure = {(i, *link) for i, pair in enumerate(pairs) for link in pair.sure}
    possible = {(i, *link) for i, pair in enumerate(pairs) for link in pair.possible}
    return alignment_error_rate(found, sure, possible)


torch.manual_seed(0)
blind = [torch.rand(len(pair.german), len(pair.english) + 1) for pair in pairs]
print(f"random maps: AER {error(blind):.2f}")
assert error(blind) > 0.8

# %% [markdown]
# ## Two rows, one word
#
# Now the question. A German word can be looked up in the row that reads it, or in the row that says it. A
# guess that few would hesitate over: to *say* a word one must look at its source, so take the row that
# says it. Every layer and head, both ways:


# %%
def error_by_head(word_weights: list[Tensor], pairs: list[Pair] = pairs) -> Tensor:
    """AER (layers, h) of maps (layers, h, German words, English words and </s>)."""
    return torch.tensor(
        [
            [error([weights[layer, head] for weights in word_weights], pairs) for head in range(HEADS)]
            for layer in range(LAYERS)
        ]
    )


errors = {row: error_by_head([both[row] for both in words]) for row in ("reads", "says")}
panels = {f"row that {row} the word": grid for row, grid in errors.items()}
axes = plot_by_head(panels, title="Alignment error rate: lower is better", one_scale=True)
plt.show()
assert errors["says"][-1].mean() < errors["reads"][-1].mean() - 0.2
assert errors["reads"][-1].mean() > error(blind) - 0.1
assert torch.equal(torch.tensor(axes[1].images[0].get_array()), errors["says"])

# %% [markdown]
# In the last layer the guess is right, by a wide margin: looked up in the row of the word that was *read*,
# the same weights are no better than random maps. Whoever labels rows by the decoder's input, which is
# what the tensors suggest, and reads a picture of the top layer word by word, reads nonsense, neatly drawn.
#
# In the lower layers it is not so clear. By how much does the row that says the word align better, layer by
# layer? And which heads do the opposite, and are about the word *just read*?

# %%
advantage = errors["reads"] - errors["says"]  # above 0: this head is about the word that is to be said
print("advantage of the row that says the word:", [round(a, 1) + 0.0 for a in advantage.mean(dim=1).tolist()])
print("heads about the word to be said, by layer:", (advantage > 0.05).sum(dim=1).tolist())
print("heads about the word just read, by layer: ", (advantage < -0.05).sum(dim=1).tolist())
assert advantage[-1].mean() > 0.2 + advantage[0].mean()
assert (advantage[-1] > 0.05).all()

# %% [markdown]
# The advantage belongs to the upper layers. Chen and others (2020) have a larger model in which some layers
# below look back at the source of the word *just read*, and they align with those; the last line counts such
# heads here. Why there, and why not on top?
#
# A query is made from the decoder's state, and the state changes on its way up. We can ask each layer's state
# what it is nearest to, by giving it to the generator, which is trained for the last layer alone. As the
# output matrix is also the embedding (section 3.4), this is a fair question even at the bottom: a state
# that is still its own word will name that word. (The trick is known as the logit lens.)

# %%
with evaluating(model):
    memory = model.encode(batch.src, batch.src_mask)
    states = [model.tgt_embed(batch.tgt)]  # (B, tgt_len, d_model) each
    for layer in model.decoder.layers:
        states.append(layer(states[-1], memory, batch.src_mask, batch.tgt_mask))
    named = [model.generator(state)[real].argmax(dim=-1) for state in states]  # the nearest token
read = [(tokens == batch.tgt[real]).float().mean().item() for tokens in named]
say = [(tokens == batch.tgt_y[real]).float().mean().item() for tokens in named]

_, ax = plt.subplots()
ax.plot(read, "o-", label="the token just read")
ax.plot(say, "s-", label="the token to be said")
ax.set(ylim=(-0.02, 1), ylabel="share of places", title="Which token a decoder state is nearest to")
ax.set_xticks(range(LAYERS + 1), ["embedding", *(f"after layer {n}" for n in range(1, LAYERS + 1))])
ax.grid(True)
ax.legend()
plt.show()
assert read[0] > 0.5 > 0.1 > say[0]
assert say[-1] > 0.5 > 0.1 > read[-1]

# %% [markdown]
# At the bottom a state *is* the word that it has read; on top it is the word that it will say. The two
# curves cross on the way, and so does the meaning of a row. **There is no right row for a model, only for a
# layer**, and where the curves cross, only for a head. The label of a query's row is what a state of the
# first layer still is; what a row of the last layer asks about, the labels of the axis never mention.
#
# ## What is a good score?
#
# The best single head, looked up in the row that says the word, is the darkest cell of the two grids' right
# one. (The left grid may have a darker one: a head that finds the word just read. That is an alignment too,
# but of a word that has been said.) Is its error good? Compared with chance, very. But chance is a poor
# rival. Here is the laziest aligner that deserves the name: it links each word to the one that is as far
# along in the other sentence, a bare **diagonal**.


# %%
def diagonal(pair: Pair) -> Tensor:
    """A map that looks at the place that is as far along, (German words, English words and </s>)."""
    along = torch.linspace(0, len(pair.english) - 1, len(pair.german)).round().long()
    return F.one_hot(along, len(pair.english) + 1).float()


lazy = [diagonal(pair) for pair in pairs]
layer, head = divmod(errors["says"].argmin().item(), HEADS)
best = [both["says"][layer, head] for both in words]
print(f"best head: AER {error(best):.2f}, diagonal: AER {error(lazy):.2f}")
beaten_by = (errors["says"] < error(lazy)).sum().item()
print(f"heads that beat it, fewer than half: {beaten_by < LAYERS * HEADS / 2}")
assert beaten_by < LAYERS * HEADS / 2

# %% [markdown]
# English and German captions run mostly in step, and the diagonal costs nothing. **Most heads, read as
# alignments, are worse than not looking at the sentences at all.** A picture with a bright diagonal proves
# nothing before it is compared with a ruler.
#
# Where a map must show its worth is off the diagonal: a verb at the end, a subject behind the verb. And one
# more candidate deserves a look. Nobody says that one head does the aligning. Average a layer's heads:

# %%
candidates = {"diagonal": lazy, "best head": best}
for n in range(LAYERS):
    candidates[f"layer {n + 1}, mean of its heads"] = [both["says"][n].mean(dim=0) for both in words]
candidates["mean of all heads and layers"] = [both["says"].mean(dim=(0, 1)) for both in words]

far = [(i, s, t) for i, p in enumerate(pairs) for s, t in p.sure if abs(lazy[i][t].argmax().item() - s) > 1]
scores = {}
for name, weights in candidates.items():
    hits = sum(weights[i][t].argmax().item() == s for i, s, t in far)
    scores[name] = error(weights), hits / len(far)
    print(f"{name:30} AER {scores[name][0]:.2f}, {scores[name][1]:4.0%} of {len(far)} links off the diagonal")

means = {name: score for name, score in scores.items() if "mean of its" in name}
winner = min(means, key=means.get)
print("the best layer's mean beats the diagonal:", means[winner][0] < scores["diagonal"][0])
print("and finds more than 40% of the links off it:", means[winner][1] > 0.4)
assert means[winner][0] < scores["diagonal"][0]
assert scores["diagonal"][1] == 0
assert means[winner][1] > 0.4
assert means[winner][0] < scores["mean of all heads and layers"][0]
assert (errors["says"] < means[winner][0]).sum() <= 2

# %% [markdown]
# The mean of the last layer's heads does better than nearly all heads alone: they err in different places.
# Further down it does not help. The mean over *all* layers, which one often sees drawn, mixes rows about
# one word with rows about another. Here is the best layer's mean on the pair that strays furthest from the
# diagonal, with the sure links framed. A frame that does not hold the largest weight of its row is a miss.


# %%
def stray(i: int) -> float:
    """How far the sure links of a pair lie from the diagonal, on average."""
    return sum(abs(lazy[i][t].argmax().item() - s) for s, t in pairs[i].sure) / len(pairs[i].sure)


number = max(range(len(pairs)), key=stray)
pair, weights = pairs[number], candidates[winner][number]
gold = {(t, s) for s, t in pair.sure}  # query first
ax = plot_alignment(weights, pair.german, [*pair.english, "</s>"], gold)
ax.set(xlabel="key: English word", ylabel="query: the row that says", title=f"{winner}; truth is framed")
plt.show()
assert_close(torch.tensor(ax.images[0].get_array()), weights)

# %% [markdown]
# **Exercise 1.** A head may also look at `</s>`, and then a word gets no link. Take that column away, and let
# each word choose among the English words only. Does the error of the last layer's mean rise or fall? Guess
# first: the head *meant* to look away.

# %% tags=["solution"]
last = [both["says"][-1].mean(dim=0) for both in words]
without_end = [weights[:, :-1] for weights in last]
away = sum((weights.argmax(dim=-1) == weights.size(-1) - 1).sum().item() for weights in last)
print(f"words that look at </s> most: {away}")
print(f"AER with </s> {error(last):.2f}, without {error(without_end):.2f}")
assert error(without_end) <= error(last)

# %% [markdown]
# It does not rise. Second best is often right: to look away is not to be ignorant. We come back to what
# looking at `</s>` is for.
#
# **Exercise 2.** We took the best of many heads and reported its score on the same 24 pairs: a winner's score
# is always a little too good. The built-in corpus (10) knows its own alignments. `sample(n, seed)` gives
# sentences with `.english_words`, `.german_words` and `.alignment`, links (German place, English place). Is
# our best head still among the best there? And why does *everybody* do worse?

# %% tags=["solution"]
fresh, fresh_words = [], []
for drawn in sample(90, seed=5):
    links = {(s, t) for t, s in drawn.alignment}
    pair = Pair(list(drawn.english_words), list(drawn.german_words), links, set())
    seen = translator.attention(drawn.english, drawn.german)
    if "<0x" not in "".join(seen.src_tokens + seen.tgt_tokens):  # no letter spelled in bytes
        fresh.append(pair)
        fresh_words.append(word_maps(pair, seen)["says"])
there = error_by_head(fresh_words, fresh)
print(f"{len(fresh)} sentences; our head {there[layer, head]:.2f}, best head {there.min():.2f}")
print(f"diagonal {error([diagonal(pair) for pair in fresh], fresh):.2f}")
assert there[layer, head] < there.min() + 0.15
assert there.min() > errors["says"].min()

# %% [markdown]
# Our head holds its place. But these sentences are no captions. Many are in the perfect tense or have a modal
# verb, which send the verb to the very end: the diagonal fails first. And they say things that the model has
# never read. Where it does not know what to say, we should not expect it to know where to look.
#
# ## What the other heads do
#
# Cross-attention has a task that we could name. Self-attention has none; can we find out what a head does
# without telling a story? A common claim first: *some heads look at the previous token*. The mean weight
# that each head puts one place to the left:


# %%
def on_offset(kind: str, offset: int) -> Tensor:
    """Mean weight on the key that is `offset` places from the query, for every head: (layers, h)."""
    found = [stacked(seen, kind).diagonal(offset, dim1=-2, dim2=-1).mean(dim=-1) for seen in maps]
    return torch.stack(found).mean(dim=0)


previous = {f"{kind} self-attention": on_offset(kind, -1) for kind in ("encoder", "decoder")}
axes = plot_by_head(previous, title="Weight on the previous token", one_scale=True)
plt.show()
for kind, grid in previous.items():
    print(f"{kind}: mean of all heads {grid.mean():.2f}")
assert previous["decoder self-attention"].mean() > previous["encoder self-attention"].mean()

# %% [markdown]
# On average the decoder's heads look there more than the encoder's. Full of previous-token heads, then?
# Wait: what would a head get that looks *nowhere*, evenly at all that it may see? The second token sees
# two, so its predecessor gets a half; the third token sees three, so a third. The triangle gives the
# previous token weight for nothing.


# %%
def even_on_previous(seen: TranslationAttention, kind: str) -> float:
    """What a head that weighs all visible tokens alike puts on the previous one."""
    size = len(seen.tokens(kind)[0])
    if kind == "encoder":
        return 1 / size
    return sum(1 / (t + 1) for t in range(1, size)) / (size - 1)


for kind in ("encoder", "decoder"):
    even = sum(even_on_previous(seen, kind) for seen in maps) / len(maps)
    grid = previous[f"{kind} self-attention"]
    print(f"{kind}: an even head has {even:.2f}; heads with more than twice that: {(grid > 2 * even).sum()}")
    assert (grid > 2 * even).sum() <= LAYERS * HEADS / 2
    assert grid.max() > 1.3 * even
    assert (kind == "decoder") == (even > 0.15)
    assert grid.mean() < 1.5 * even if kind == "decoder" else (grid > 2 * even).any()

# %% [markdown]
# On average, the decoder's harvest is the triangle's. In the encoder a few heads stand out. Do *they* follow
# places? A weight on the previous token does not show it: perhaps the previous token just tends to be the
# article of this noun, or the first half of this word. To tell, we do two things to a sentence:
#
# - other words at the same places: a head that follows **places** keeps its map;
# - the same words at other places: a head that follows **words** keeps its map, once we have put its rows and
#   columns back in order.
#
# How much of a row is kept is the overlap of the two rows, $\sum_s \min(w_s, w'_s)$: 1 if they are
# equal, 0 if they share nothing. The full stop and `</s>` stay where they are.


# %%
def encoder_maps(tokens: Tensor) -> Tensor:
    """One sentence (src_len,) -> (layers, h, src_len, src_len)."""
    with evaluating(model), capture_attention(model) as found:
        model.encode(tokens.unsqueeze(0), None)
    return torch.stack([found["encoder", layer][0] for layer in range(LAYERS)])


def overlap(before: Tensor, after: Tensor) -> Tensor:
    """Mean overlap of the rows, the last two left out: (layers, h, T, S) twice -> (layers, h)."""
    return torch.minimum(before, after).sum(dim=-1)[..., :-2].mean(dim=-1)


torch.manual_seed(0)
sentences = [torch.tensor(translator.encode(english)) for english, _ in texts]
pool = torch.cat([tokens[:-2] for tokens in sentences])
kept_places, kept_words = [], []
for tokens in sentences * 3:  # three draws each
    free, before = len(tokens) - 2, encoder_maps(tokens)
    others = torch.cat([pool[torch.randint(len(pool), (free,))], tokens[-2:]])
    order = torch.cat([torch.randperm(free), torch.tensor([free, free + 1])])
    back = order.argsort()
    kept_places.append(overlap(before, encoder_maps(others)))
    kept_words.append(overlap(before, encoder_maps(tokens[order])[..., back, :][..., back]))
places, words_kept = torch.stack(kept_places).mean(dim=0), torch.stack(kept_words).mean(dim=0)

# %%
_, ax = plt.subplots(figsize=(8, 6))
shade = previous["encoder self-attention"]
dots = ax.scatter(words_kept, places, c=shade, s=140, cmap="viridis", edgecolors="black")
ax.plot([0, 1], [0, 1], color="grey", linestyle="--")
for n, h in (places > words_kept).nonzero().tolist():
    ax.text(words_kept[n, h], places[n, h] + 0.025, f"{n + 1}.{h + 1}", ha="center")
ax.set(xlim=(0, 1), ylim=(0, 1), title="What the heads of the encoder follow (layer.head)")
ax.set(xlabel="overlap, same words at other places", ylabel="overlap, other words at the same places")
ax.text(0.04, 0.94, "follow places")
ax.text(0.96, 0.04, "follow words", ha="right")
ax.figure.colorbar(dots, label="weight on the previous token")
plt.show()
leaning = places - words_kept  # above 0: follows places
agree = torch.corrcoef(torch.stack([shade.flatten(), leaning.flatten()]))[0, 1].item()
print(f"heads that follow places: {(leaning > 0).sum().item()} of {LAYERS * HEADS}")
print(f"correlation of that leaning with the weight on the previous token: {agree:.1f}")
assert agree > 0.3
assert (leaning > 0).float().mean() < 0.5

# %% [markdown]
# So there it is, counted. The heads with the most weight on the previous token lean to places; few others
# do, and some follow words. (Voita and others, 2019, describe *positional heads* in models of the paper's
# size.) A head in the upper right corner keeps its map whatever we do: it looks at nothing in particular,
# or at what stayed where it was, the full stop and the end. That heads learn different tasks is now the
# result of an experiment that could have failed.
#
# ## What a map does not prove
#
# Back to cross-attention. A sharp row on the right word: surely the model *uses* that. To find out we take
# heads away and see what it costs. Weights and values meet in one method:

# %%
show_source(MultiHeadedAttention.attend, docstring=False)
Rewrite = Callable[[Tensor], Tensor]  # weights (B, h, T, S) in, weights out


@contextmanager
def rewriting(modules: list[MultiHeadedAttention], rewrite: Rewrite) -> Iterator[None]:
    """While the block runs, these attentions take `rewrite(weights)` for their weights."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return rewrite(attention(q, k, v, mask)[1]) @ v

    for module in modules:
        module.attend = attend
    try:
        yield
    finally:
        for module in modules:
            del module.attend


# %%
def log_prob() -> float:
    """Mean log-probability of a token of our 24 translations, in nats."""
    with evaluating(model):
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return -F.nll_loss(model.generator(states[real]), batch.tgt_y[real]).item()


cross = [layer.src_attn for layer in model.decoder.layers]
intact = log_prob()
with rewriting(cross, lambda weights: weights):
    assert abs(log_prob() - intact) < 1e-4
print("rewritten as they were, the weights give the same log-probability: True")

# %% [markdown]
# We let one head after the other look at all source tokens evenly, so that it learns nothing about *where*,
# and note what an average token loses. Guess: the best aligned heads are the ones that are missed.

# %%
even = batch.src_mask.float() / batch.src_mask.sum(dim=-1, keepdim=True)  # (B, 1, S)


def blinded(head: int) -> Rewrite:
    """A rewriting that makes one head's weights even."""

    def rewrite(weights: Tensor) -> Tensor:
        changed = weights.clone()
        changed[:, head] = even  # the same row for every query
        return changed

    return rewrite


def cost(modules: list[MultiHeadedAttention], rewrite: Rewrite) -> float:
    """Nats a token that the rewriting takes away."""
    with rewriting(modules, rewrite):
        return intact - log_prob()


# %%
harm = torch.tensor([[cost([module], blinded(head)) for head in range(HEADS)] for module in cross])
aligned = torch.minimum(errors["reads"], errors["says"])  # AER, from whichever row is the better one
largest = torch.stack([stacked(seen, "cross").amax(dim=-1).mean(dim=-1) for seen in maps]).mean(dim=0)
panels = {"AER (better row)": aligned, "largest weight": largest, "nats lost, head blinded": harm}
axes = plot_by_head(panels, title="Cross-attention: what a head shows, and what it is worth")
plt.show()
assert_close(torch.tensor(axes[2].images[0].get_array()), harm)


# %%
def name_of(place: Tensor) -> str:
    layer, head = divmod(place.item(), HEADS)
    return f"layer {layer + 1}, head {head + 1}"


print("best aligned:", name_of(aligned.argmin()), "· sharpest:", name_of(largest.argmax()), end=" · ")
print("most missed:", name_of(harm.argmax()))
good = harm[aligned < 0.5]
print(
    f"{len(good)} heads have an AER below 0.5; losing one of them costs {good.min():.2f} to {good.max():.2f}"
)
assert good.max() > 2 * good.min()
assert harm[aligned > 0.6].mean() < good.mean()
assert largest[-1].mean() > largest[0].mean()  # the last layer's rows are sharper than the first's

# %% [markdown]
# Half right. On average, heads that align badly are hardly missed; but heads that align equally well differ
# widely in what they are worth. And look at how small these numbers are. We blind more than one at a time:


# %%
def all_even(weights: Tensor) -> Tensor:
    return even.unsqueeze(1).expand_as(weights)


for n, module in enumerate(cross):
    print(f"layer {n + 1}:    {cost([module], all_even):5.2f} together, {harm[n].sum():5.2f} added up")
everything = cost(cross, all_even)
print(f"all layers: {everything:5.2f} together, {harm.sum():5.2f} added up")
assert everything > 2 * harm.sum()
assert everything > 5 * harm.max()

# %% [markdown]
# The heads are understudies for each other, and the layers too. Take one away and another one knows the
# part; only together are they indispensable. So an experiment on one head can mislead just as well: that it
# is not *missed* does not show that it does nothing. (Michel and others, 2019, prune many heads of a
# trained model at little cost.)
#
# **Exercise 3.** Guess the order first: what costs most, blinding all heads of the encoder's self-attention,
# of the decoder's, or of cross-attention? Then measure. The decoder's even weights must stay a triangle.

# %% tags=["solution"]
triangle = (batch.tgt_mask.float() / batch.tgt_mask.sum(dim=-1, keepdim=True)).unsqueeze(1)  # (B, 1, T, T)
costs = {
    "cross": everything,
    "decoder": cost([layer.self_attn for layer in model.decoder.layers], lambda _: triangle),
    "encoder": cost([layer.self_attn for layer in model.encoder.layers], all_even),
}
for kind, nats in costs.items():
    print(f"{kind:8} {nats:.2f} nats a token")
assert costs["cross"] > costs["decoder"] > 0
assert costs["cross"] > costs["encoder"]

# %% [markdown]
# Only cross-attention brings in what the source says. Self-attention with even weights still hands everybody
# a mean of the sentence, and for a caption of ten words that goes a long way.
#
# ### Much looked at, hardly used
#
# Which source tokens get most weight? We take the mean over rows, heads and layers, for the last two tokens
# of each sentence together, and to compare, for two from three other places. Then the experiment: set those
# tokens' *values* to zero, everywhere in cross-attention, and leave the weights alone.

# %%
lengths = batch.src_mask.sum(dim=-1)  # (B, 1), </s> counted
place = torch.arange(batch.src.size(1))


def two_from(start: Tensor | int) -> Tensor:
    """Two neighbouring places of every sentence, bool (B, S)."""
    return ((place >= start) & (place < start + 2)).expand_as(batch.src)


groups = {
    "first two": two_from(0),
    "middle two": two_from(lengths // 2 - 1),
    "two before the full stop": two_from(lengths - 4),
    "full stop and </s>": two_from(lengths - 2),
}
with evaluating(model), capture_attention(model) as found:
    model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
weights = torch.stack([found["cross", n] for n in range(LAYERS)]).mean(dim=(0, 2))  # (B, T, S)
share = {name: (weights * keys.unsqueeze(1)).sum(dim=-1)[real].mean().item() for name, keys in groups.items()}
price = {name: cost(cross, lambda w, keys=keys: w * ~keys[:, None, None]) for name, keys in groups.items()}

# %%
end = "full stop and </s>"
figure, axes = plt.subplots(1, 2, figsize=(12, 3.2), sharey=True)
panels = {"share of all weight": share, "nats a token lost without their values": price}
for ax, (label, numbers) in zip(axes, panels.items(), strict=True):
    ax.barh(list(numbers), list(numbers.values()), color=["#56b4e9"] * 3 + ["#d55e00"])
    ax.set(xlabel=label)
    ax.grid(True, axis="x")
figure.suptitle("Two tokens of each source sentence")
plt.show()
others = [name for name in groups if name != end]
usual = sum(share[name] for name in others) / len(others)
print("at least 80% of the weight that other two get:", share[end] > 0.8 * usual)
print("less than a third of the price of the cheapest others:", price[end] < min(map(price.get, others)) / 3)
assert share[end] > 0.8 * usual
assert price[end] < min(map(price.get, others)) / 3

# %% [markdown]
# They get as much weight as others, and more; to silence them costs next to nothing. Why
# look at them, then? Weights must sum to 1: a head that wants *nothing* has to put its weight somewhere. So
# it is parked where it does no harm. (Clark and others, 2019, saw it in BERT.) If that is so, two things
# follow. First, weight is parked most when nothing is needed from the source: inside a word, say, when its
# first piece is already written. Second, what lies at the parking place is small.

# %%
pieces = [tokenizer.pieces(row) for row in batch.tgt_y.tolist()]
inside = torch.tensor([[piece[0] not in "▁.,<" for piece in row] for row in pieces])
starts = torch.tensor([[piece[0] == "▁" for piece in row] for row in pieces])
for n in range(LAYERS):
    parked = (found["cross", n].mean(dim=1) * groups[end].unsqueeze(1)).sum(dim=-1)  # (B, T)
    within, at_start = parked[inside].mean(), parked[starts].mean()
    print(f"layer {n + 1}: {within:.2f} parked inside a word, {at_start:.2f} at its start")
assert within > 2 * at_start  # in the last layer


# %%
def handed_over(module: MultiHeadedAttention, memory: Tensor) -> Tensor:
    """How long the vector is that each key would add to a query's state at full weight: (B, h, S)."""
    values = module.split(module.linears[2](memory))  # (B, h, S, d_v)
    outputs = module.linears[3].weight.unflatten(1, (module.h, -1))  # (d_model, h, d_v): W^O, head by head
    return torch.einsum("bhsv,ohv->bhso", values, outputs).norm(dim=-1)


with torch.no_grad():
    sizes = torch.stack([handed_over(module, memory) for module in cross])  # (layers, B, h, S)
source = batch.src != translator.src_tokenizer.pad
ordinary = sizes.transpose(1, 2)[..., source & ~groups[end]].mean(dim=-1)  # (layers, h)
parking = sizes.transpose(1, 2)[..., groups[end]].mean(dim=-1)
ratio = parking / ordinary
plot_by_head({"full stop and </s> (others: 1)": ratio}, title="Length of what a key hands over")
plt.show()
assert (ratio < 1.1).all()
assert ratio.median() < 0.75

# %% [markdown]
# Short vectors at the parking place, in nearly every head. A map shows the weight $w$. What reaches the query
# from a key with value $v$ is a vector of length $w\,|vW^O|$ ($W^O$: the head's part of the output matrix),
# and much of something tiny is tiny. Kobayashi and others (2020) therefore draw this product. They also
# report better alignments with it. Does it help here?

# %%
weighed = []
for i, (pair, seen) in enumerate(zip(pairs, maps, strict=True)):
    long = sizes[:, i, :, : len(seen.src_tokens)].unsqueeze(-2)  # (layers, h, 1, S)
    rows = owners([*seen.tgt_tokens[1:], "</s>"], [*pair.german, "</s>"])
    columns = owners(seen.src_tokens, [*pair.english, "</s>"])
    weighed.append(by_word(stacked(seen, "cross") * long, rows, columns)[:, :, :-1].mean(dim=1))
for n in range(LAYERS):
    plain, product = error(candidates[f"layer {n + 1}, mean of its heads"]), error([w[n] for w in weighed])
    print(f"layer {n + 1}, mean of its heads: AER {plain:.2f} by weight, {product:.2f} by the product")
assert product > plain - 0.03  # in the last layer

# %% [markdown]
# In this small model it does not, in the layers that align at all. What reaches the query and what the
# query means are two questions: for the first, the product is the honest picture; for the second, the plain
# weights were the better aligner.
#
# ### Two maps, one model
#
# The last reading to give up is that *the* map exists. Full stop and `</s>` stand next to each other, mean
# nothing much, and are looked at for the same reason. The encoder has made them alike:

# %%
rows = torch.arange(len(batch.src)).unsqueeze(1)
stop, final = memory[rows, lengths - 2], memory[rows, lengths - 1]  # (B, 1, d_model)
last_words = tokenizer.pieces(batch.src[rows, lengths - 2].flatten().tolist())
assert all(piece.endswith(".") for piece in last_words)
alike = F.cosine_similarity(stop, final, dim=-1).mean()
print(f"cosine of full stop and </s>, above 0.9: {bool(alike > 0.9)}")
neighbours = F.cosine_similarity(memory[:, 1], memory[:, 2], dim=-1).mean()
print(f"cosine of the second and the third token, on average: {neighbours:.1f}")
assert alike > 0.9

# %% [markdown]
# So we take *all* weight off `</s>`, in every row, head and layer of cross-attention, and give it to the full
# stop. Beside it, the same with two tokens that are not alike.


# %%
def moved(source: Tensor, to: Tensor) -> Rewrite:
    """All weight of one place of each sentence (B, 1) given to another."""

    def rewrite(weights: Tensor) -> Tensor:
        taken = F.one_hot(source, weights.size(-1)).unsqueeze(1)  # (B, 1, 1, S)
        given = F.one_hot(to, weights.size(-1)).unsqueeze(1)
        amount = (weights * taken).sum(dim=-1, keepdim=True)  # (B, h, T, 1)
        return weights - weights * taken + amount * given

    return rewrite


to_stop = cost(cross, moved(lengths - 1, lengths - 2))
second = torch.ones_like(lengths)
to_neighbour = cost(cross, moved(second + 1, second))
share_of_end = (weights * (place == lengths - 1).unsqueeze(1)).sum(dim=-1)[real].mean().item()
print(f"weight that is moved: more than 4% of all: {share_of_end > 0.04}")
print(f"</s> to the full stop: costs less than 0.02 nats: {abs(to_stop) < 0.02}")
print(f"third token to the second: costs {to_neighbour:.2f} nats")
assert share_of_end > 0.04
assert abs(to_stop) < 0.02
assert to_neighbour > 5 * abs(to_stop)

# %%
seen = maps[3]
stop = torch.tensor([[len(seen.src_tokens) - 2]])
before = stacked(seen, "cross").mean(dim=(0, 1))  # (T, S), the mean of all heads
after = moved(stop + 1, stop)(before[None, None])[0, 0]
figure, axes = plt.subplots(1, 2, figsize=(15, 5.5), sharey=True)
titles = ("as it was", "no weight for </s>")
for ax, weights, title in zip(axes, (before, after), titles, strict=True):
    plot_attention(weights, seen.tgt_tokens, seen.src_tokens, ax=ax, title=title)
    ax.label_outer()
plt.show()
assert (after[:, -1] == 0).all()
assert_close(after.sum(dim=-1), torch.ones(len(after)))

# %% [markdown]
# Two different pictures, and nearly the same translator. "It looks at the end of the sentence" was never more
# true than "it looks at the full stop". Jain and Wallace (2019) and Wiegreffe and Pinter (2019) disagree on
# whether attention is an explanation. But both find out by *changing* something, as we did all along: hide a
# word, exchange words, even out a head, move its weight. A map says where to look for an explanation. The
# experiment is the explanation.
#
# PyTorch's own layer averages its heads before it shows them. That, and where else implementations
# differ, is for [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb).
