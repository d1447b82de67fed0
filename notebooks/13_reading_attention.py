# %% [markdown]
# # 13 · Reading attention
#
# **We score the attention maps of a trained translator against word alignments made by hand, look for the
# heads of the paper's appendix, and ask whether attention is an explanation.**
#
# Previous: [12_results](12_results.ipynb) · Next:
# [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb) · Attention itself:
# [02_attention](02_attention.ipynb)
#
# *34 minutes to read, a minute to run, the exercises extra.*
#
# - **Before:** you know attention, masks and heads (02, 03), and teacher forcing (07).
# - **After:** you can test the labels of a map and score it against an alignment, and you know how a clear
#   map can mislead.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017).

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
from copy import deepcopy
from itertools import accumulate
from random import Random
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

# %%
from annotated import (
    Batch,
    MultiHeadedAttention,
    alignment_error_rate,
    attention,
    capture_attention,
    evaluating,
    load_pretrained,
    subsequent_mask,
)
from annotated.data.grammar import sample, surface
from annotated.plots import plot_alignment, plot_attention, plot_by_head, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## One translation, three kinds of map
#
# > "As side benefit, self-attention could yield more interpretable models." (section 4)
#
# Our model, the small one that comes with the package, translates English image captions into German.
# Section 3.2.3 names three uses of attention, so there are three kinds of map: encoder self-attention,
# decoder self-attention, and encoder-decoder attention (cross-attention). Each row is a query, each column
# a key.

# %% tags=["figure-three-kinds"]
translator = load_pretrained("multi30k-en-de")
model, tokenizer = translator.model, translator.tgt_tokenizer
LAYERS, HEADS = model.config.N, model.config.h
sentence = "In front of the church, a band is playing for a wedding party."
print(translator(sentence))
translator.show_attention(sentence)

# %% [markdown]
# *Figure 1. All maps of one translation: choose kind, layer and head. In cross-attention, the rows of layer
# 1 are spread over the sentence; in layer 4 most of a row's weight falls on one or two tokens.*
#
# The tokens are subwords; `▁` marks the beginning of a word. The encoder reads `</s>` at the end; the
# decoder begins with `<s>` and never reads `</s>`. (*In der Kirche* is wrong: it means *in* the church. The
# map of a wrong translation looks just as orderly.)
#
# ## Hide the word, and its column must go dark
#
# A map is a matrix and two lists of tokens, and nothing in the matrix says which list goes where. Here
# source and target have equally many tokens, so two labellings fit.

# %% tags=["figure-two-labellings"]
pair_text = (
    "Two women in blue coats wait for the last tram.",
    "Zwei Frauen in blauen Mänteln warten auf die letzte Straßenbahn.",
)
chosen = translator.attention(*pair_text)
last = chosen.maps["cross", LAYERS - 1].mean(dim=0)  # (tgt_len, src_len), mean of the last layer's heads
figure, axes = plt.subplots(1, 2, figsize=(15, 6))
labellings = {"A": (chosen.src_tokens, chosen.tgt_tokens), "B": (chosen.tgt_tokens, chosen.src_tokens)}
for ax, (name, (queries, keys)) in zip(axes, labellings.items(), strict=True):
    plot_attention(last, queries, keys, ax=ax, title=f"Labelling {name}")
plt.show()
assert len(chosen.src_tokens) == len(chosen.tgt_tokens)

# %% [markdown]
# *Figure 2. The same matrix with two labellings: source tokens down the side (A), or target tokens (B). One
# of them is wrong.*
#
# An experiment decides. A label claims that this column is that word. So **hide a word, and its column must
# go dark**; the others must not. For the rows, we change one token that the decoder reads. The first row
# that changes must be that token's row, because the causal mask protects the rows above it.


# %%
def cross_maps(src: Tensor, tgt: Tensor, visible: Tensor) -> Tensor:
    """One sentence's cross-attention (layers, h, tgt_len, src_len); `visible` is bool (src_len,)."""
    with evaluating(model), capture_attention(model) as found:
        model(src, tgt, visible.view(1, 1, -1), subsequent_mask(tgt.size(1)))
    return torch.stack([found["cross", layer][0] for layer in range(LAYERS)])


def dark_column(src: Tensor, tgt: Tensor, hidden: int) -> int:
    """Find the one column that is empty in all heads when one source token is hidden."""
    weights = cross_maps(src, tgt, torch.arange(src.size(1)) != hidden)
    [column] = (weights.sum(dim=(0, 1, 2)) == 0).nonzero().flatten().tolist()
    return column


def first_moved_row(src: Tensor, tgt: Tensor, position: int) -> int:
    """Find the first row that differs when the decoder reads another token at one position."""
    changed, all_visible = tgt.clone(), torch.ones(src.size(1), dtype=torch.bool)
    changed[0, position] = 100 if tgt[0, position] != 100 else 101  # any other token will do
    moved = (cross_maps(src, changed, all_visible) - cross_maps(src, tgt, all_visible)).abs() > 1e-5
    return moved.any(dim=3).any(dim=1).any(dim=0).nonzero()[0].item()


# %%
src = translator.batch([translator.encode(pair_text[0])])
tgt = torch.tensor([[tokenizer.start, *tokenizer.encode(pair_text[1])]])
columns = [dark_column(src, tgt, s) for s in range(src.size(1))]  # where each source token was found
rows = [first_moved_row(src, tgt, t) for t in range(tgt.size(1))]
labellings["B, rows one up"] = [*chosen.tgt_tokens[1:], "</s>"], chosen.src_tokens  # the words that are said
wrong = {}
for name, (queries, keys) in labellings.items():
    bad_rows = sum(queries[row] != token for row, token in zip(rows, chosen.tgt_tokens, strict=True))
    bad_columns = sum(keys[col] != token for col, token in zip(columns, chosen.src_tokens, strict=True))
    wrong[name] = bad_rows, bad_columns
    print(
        f"{name:15} wrong labels: {bad_rows:2} of {len(rows)} rows, {bad_columns:2} of {len(columns)} columns"
    )
assert wrong["B"] == (0, 0)
assert min(wrong["A"]) > 5
assert wrong["B, rows one up"][0] > 5

# %% [markdown]
# B is right. The third labelling names each row by the token that the decoder must *say* there, one
# position after the token that it *reads*. No check of shapes finds this shift; our experiment does.
#
# Yet a row has to do with both tokens. Which of them is it about? A true alignment can tell.
#
# ## Truth, made by hand
#
# Here are 24 captions with translations. After each German word stand the numbers of its English words,
# counted from 1. A link is *sure*, or only *possible* if it has a question mark: *füttert* is surely linked
# to *feeding* and possibly to *is*.

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
# All maps below come from teacher forcing: the decoder reads *these* translations, not its own. The maps
# have subwords. To get words, we **sum** the columns of a word's pieces, because a word receives what its
# pieces receive, and **average** their rows, so that a row still sums to 1.


# %%
def owners(pieces: list[str], words: list[str]) -> Tensor:
    """Find the position of the word to which each piece belongs, int64 (pieces,)."""
    letters = [piece.replace("▁", "") for piece in pieces]
    if "".join(letters) != "".join(words):
        raise ValueError(f"{pieces} are not the pieces of {words}")
    ends = list(accumulate(len(word) for word in words))
    starts = [0, *accumulate(len(piece) for piece in letters)][:-1]
    return torch.tensor([bisect(ends, start) for start in starts])


def by_word(weights: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Turn (..., T pieces, S pieces) and their owners into (..., query words, key words)."""
    looks, receives = F.one_hot(rows).float(), F.one_hot(columns).float()  # (pieces, words) each
    return (looks / looks.sum(dim=0)).T @ weights @ receives


# %%
def word_maps(pair: Pair) -> dict[str, Tensor]:
    """Cross-attention by words, (layers, h, German words, English words and </s>), from either row."""
    seen = translator.attention(surface(pair.english), surface(pair.german))
    columns = owners(seen.src_tokens, [*pair.english, "</s>"])
    reads = owners(seen.tgt_tokens, ["<s>", *pair.german])
    says = owners([*seen.tgt_tokens[1:], "</s>"], [*pair.german, "</s>"])
    weights = torch.stack([seen.maps["cross", layer] for layer in range(LAYERS)])
    return {
        "reads": by_word(weights, reads, columns)[..., 1:, :],  # without the row of <s>
        "says": by_word(weights, says, columns)[..., :-1, :],  # without the row that says </s>
    }


words = [word_maps(pair) for pair in pairs]
assert_close(words[0]["says"].sum(dim=-1), torch.ones(LAYERS, HEADS, len(pairs[0].german)))

# %% [markdown]
# ## From pieces to words, from words to a score
#
# To turn a map into an alignment $A$, we link each German word to the English word with the largest weight
# (to none, if that is `</s>`). With the sure links $S$ and all allowed links $P$ (sure or possible), its
# **alignment error rate** (AER; Och and Ney, 2003) is
#
# $$\mathrm{AER} = 1 - \frac{|A\cap S| + |A\cap P|}{|A| + |S|}$$
#
# 0 is perfect. Without possible links, AER is 1 minus the F1 score.


# %%
def counts(maps: list[Tensor]) -> Tensor:
    """AER's numerator and denominator for each pair: (pairs, 2), from maps (German, English and </s>)."""
    found = []
    for pair, weights in zip(pairs, maps, strict=True):
        linked = {(s, t) for t, s in enumerate(weights.argmax(dim=-1).tolist()) if s < len(pair.english)}
        hits = len(linked & pair.sure) + len(linked & (pair.sure | pair.possible))
        found.append([hits, len(linked) + len(pair.sure)])
    return torch.tensor(found, dtype=torch.float)


def error(counted: Tensor) -> float:
    """AER of all pairs."""
    hits, of = counted.sum(dim=0).tolist()
    return 1 - hits / of


# %%
def diagonal(pair: Pair) -> Tensor:
    """A map that looks at the position that is as far along: (German words, English words and </s>)."""
    along = torch.linspace(0, len(pair.english) - 1, len(pair.german)).round().long()
    return F.one_hot(along, len(pair.english) + 1).float()


torch.manual_seed(0)
chance = error(counts([torch.rand_like(diagonal(pair)) for pair in pairs]))
lazy = error(counts([diagonal(pair) for pair in pairs]))
print(f"random maps: AER {chance:.2f}; the diagonal: AER {lazy:.2f}")
one = {(s, t) for t, s in enumerate(diagonal(pairs[0]).argmax(dim=-1).tolist())}
assert abs(
    error(counts([diagonal(p) for p in pairs])[:1])
    - alignment_error_rate(one, pairs[0].sure, pairs[0].possible)
) < 1e-6  # the package agrees  # fmt: skip
assert lazy < 0.4 < 0.8 < chance

# %% [markdown]
# The **diagonal** is a stronger baseline than chance: it links each word to the word at the same relative
# position, without reading either sentence. Its AER is 0.34, so a bright diagonal in a picture proves
# little.
#
# ## Two rows, one word
#
# To *say* a word, the model must look at its source. So we expect the alignment in the row that says the
# word. We try every layer and head, with both rows.

# %% tags=["figure-aer-by-head"]
single = {
    (row, layer, head): counts([both[row][layer, head] for both in words])
    for row in ("reads", "says") for layer in range(LAYERS) for head in range(HEADS)
}  # fmt: skip
errors = {
    row: torch.tensor([[error(single[row, n, h]) for h in range(HEADS)] for n in range(LAYERS)])
    for row in ("reads", "says")
}
panels = {f"row that {row} the word": grid for row, grid in errors.items()}
plot_by_head(panels, title="Alignment error rate: lower is better", one_scale=True)
plt.show()
best_head = errors["reads"][1, 1].item()
assert best_head == min(grid.min().item() for grid in errors.values()) < 0.25
assert errors["says"][-1].mean() < 0.5 < 0.85 < errors["reads"][-1].mean()

# %% [markdown]
# *Figure 3. The alignment error rate of every cross-attention head, from the row that reads a German word
# (left) and from the row that says it (right). Dark is good.*
#
# In the last layer we find what we expected: the rows that *say* a word have an AER of 0.28 to 0.45, and
# the rows that *read* it are about as bad as random maps. Yet **the best aligner of the model is layer 2,
# head 2, in the row that reads**, with an AER of 0.20. It finds the source of the word that was *just
# read*. Chen and others (2020) found this in a larger model, too. Perhaps the head tells the decoder which
# source words are done; we have not tested that.
#
# Why does the row's meaning change with depth? A query is computed from the decoder's hidden state. We
# apply the generator to the states of every layer, not only the last, and see which token it names (the
# *logit lens*). The output matrix is also the embedding matrix (section 3.4), so this makes sense even
# before layer 1.

# %% tags=["figure-logit-lens"]
src = translator.batch([translator.encode(surface(pair.english)) for pair in pairs])
starts = [[tokenizer.start, *tokenizer.encode(surface(pair.german)), tokenizer.end] for pair in pairs]
batch = Batch(src, translator.batch(starts))  # all 24 pairs, side by side
real = batch.tgt_y != tokenizer.pad  # (24, tgt_len)
with evaluating(model):
    memory = model.encode(batch.src, batch.src_mask)
    states = [model.tgt_embed(batch.tgt)]  # (24, tgt_len, d_model) each
    for layer in model.decoder.layers:
        states.append(layer(states[-1], memory, batch.src_mask, batch.tgt_mask))
    named = [model.generator(state[real]).argmax(dim=-1) for state in states]
read = [(tokens == batch.tgt[real]).float().mean().item() for tokens in named]
say = [(tokens == batch.tgt_y[real]).float().mean().item() for tokens in named]

_, ax = plt.subplots(figsize=(7, 4))
for shares, style, label in ((read, "o-", "the token just read"), (say, "s-", "the token to be said")):
    ax.plot(shares, style, label=label)
ax.set(ylim=(-0.02, 1), ylabel="share of positions", title="The token that a decoder state is nearest to")
ax.set_xticks(range(LAYERS + 1), ["embedding", *(f"layer {n}" for n in range(1, LAYERS + 1))])
ax.legend()
plt.show()
assert read[0] > 0.5 > 0.1 > say[0]
assert say[-1] > 0.5 > 0.1 > read[-1]

# %% [markdown]
# *Figure 4. Before layer 1 a state is near the token that was read (not in all rows, because the position
# has been added); after layer 4 it is near the token that will be said.*
#
# The curves cross near layer 2. Below, a row is mostly about the token that it reads; above, about the
# token that comes next. So in the last layer, a row's usual label misleads.
#
# ## What is a good score?
#
# 24 sentences are few. The **bootstrap** ([12_results](12_results.ipynb)) draws 24 of them with
# replacement, 2,000 times, and scores each draw; the middle 95% of these scores are the interval. Two
# aligners are compared on the same draws.

# %%
candidates = {"diagonal": [diagonal(pair) for pair in pairs]}
for row, layer, head in (("reads", 1, 1), ("says", 2, 0), ("says", 3, 3), ("says", 3, 0)):
    candidates[f"layer {layer + 1}, head {head + 1}, {row}"] = [both[row][layer, head] for both in words]
for layer in (2, 3):
    candidates[f"layer {layer + 1}, mean, says"] = [both["says"][layer].mean(dim=0) for both in words]
candidates["all layers, mean, says"] = [both["says"].mean(dim=(0, 1)) for both in words]
torch.manual_seed(0)
draws = torch.randint(len(pairs), (2000, len(pairs)))
sums = {name: counts(maps)[draws].sum(dim=1) for name, maps in candidates.items()}  # (2000, 2)
aer = {name: 1 - hits_of[:, 0] / hits_of[:, 1] for name, hits_of in sums.items()}  # (2000,)
best = "layer 2, head 2, reads"
ranges = {}
for name, scores in aer.items():
    ranges[name] = (scores - aer[best]).quantile(torch.tensor([0.025, 0.975])).tolist()
    low, high = ranges[name]
    wrong = error(counts(candidates[name]))
    print(f"{name:25} AER ≈{wrong:.2f}, worse than the best by ≈{low:.2f} to ≈{high:.2f}")
    assert 0.15 < wrong < 0.55
    assert -0.1 < low <= high < 0.45
assert ranges["diagonal"][0] > 0
assert ranges["all layers, mean, says"][0] > 0
assert ranges["layer 4, mean, says"][0] < 0 < ranges["layer 4, mean, says"][1]

# %% tags=["figure-aer-intervals"]
_, ax = plt.subplots(figsize=(8, 4))
for y, (name, scores) in enumerate(aer.items()):
    ax.plot(scores.quantile(torch.tensor([0.025, 0.975])), [y, y], color="#0072b2", lw=4)
    ax.plot(error(counts(candidates[name])), y, "o", color="black")
ax.set_yticks(range(len(aer)), aer)
ax.set(
    xlim=(0, 0.6), xlabel="alignment error rate (lower is better)", title="AER with 95% intervals, 24 pairs"
)
plt.show()
assert len(ax.lines) == 2 * len(aer)

# %% [markdown]
# *Figure 5. Eight aligners with their 95% intervals. The diagonal's is the widest.*
#
# The best head beats the diagonal. It also beats the mean over *all* layers, which mixes rows about the
# word read with rows about the word to be said. Layer 3, head 1, and the mean of layer 4 are undecided:
# their intervals contain 0. A map shows its worth *off* the diagonal:

# %%
far = [
    (i, s, t)
    for i, pair in enumerate(pairs) for s, t in pair.sure
    if abs(candidates["diagonal"][i][t].argmax().item() - s) > 1
]  # fmt: skip
found = {}
for name in ("diagonal", "layer 4, mean, says", best):
    found[name] = sum(candidates[name][i][t].argmax().item() == s for i, s, t in far)
    print(f"{name:25} finds {found[name]} of {len(far)} links that lie off the diagonal")
assert found["diagonal"] == 0 < 15 < found["layer 4, mean, says"] < found[best]
number = max(range(len(pairs)), key=[i for i, *_ in far].count)  # the pair with most of them
pair = pairs[number]
ax = plot_alignment(
    candidates[best][number], pair.german, [*pair.english, "</s>"], {(t, s) for s, t in pair.sure}
)
ax.set(xlabel="key: English word", ylabel="query: German word, just read", title=best)
plt.show()

# %% [markdown]
# *Figure 6. The best head on the pair with the most links off the diagonal. Sure links are framed in
# orange; a row whose brightest cell has no frame is a miss ("einer" has no sure link).*
#
# **Exercise 1 (easy).** A word with its largest weight on `</s>` gets no link. Take that column away from
# the mean of layer 4, so that each word must choose an English word. Does the AER rise or fall? Guess
# first.

# %% tags=["solution"]
layer_4 = candidates["layer 4, mean, says"]
away = sum((weights.argmax(dim=-1) == weights.size(-1) - 1).sum().item() for weights in layer_4)
without_end = error(counts([weights[:, :-1] for weights in layer_4]))
with_end = error(counts(layer_4))
print(f"≈{away} words look most at </s>; AER ≈{with_end:.2f}, without that column ≈{without_end:.2f}")
assert 0 < away < 60
assert 0.1 < without_end <= with_end < 0.35
# It does not rise: the second largest weight is often right. What looking at </s> is for comes below.

# %% [markdown]
# **Exercise 2 (medium).** A head of layer 4 looks at *states* of the encoder, which have mixed all words.
# *Attention rollout* (Abnar and Zuidema, 2020) traces them back to the input tokens. Average each layer's
# map over the heads; average the result with the identity matrix, which stands for the residual connection;
# multiply the layers' matrices, the last layer on the left. Write it.


# %% tags=["exercise"]
def rollout(maps: Tensor) -> Tensor:
    """Self-attention (layers, h, n, n), first layer first -> each state's shares of the inputs (n, n)."""
    raise NotImplementedError


# %% tags=["solution"]
def rollout(maps: Tensor) -> Tensor:
    """Self-attention (layers, h, n, n), first layer first -> each state's shares of the inputs (n, n)."""
    total = torch.eye(maps.size(-1))
    for weights in maps:
        total = (weights.mean(dim=0) + torch.eye(maps.size(-1))) / 2 @ total
    return total


# %% tags=["exercise-test"]
torch.manual_seed(0)
maps = torch.rand(3, 4, 5, 5).softmax(dim=-1)
assert_close(rollout(maps).sum(dim=-1), torch.ones(5))  # shares of the inputs
assert_close(rollout(torch.eye(5).expand(3, 4, 5, 5)), torch.eye(5))  # nobody looks elsewhere
shift = torch.eye(3).roll(1, dims=1)  # each token looks at the next one, the last at the first
flat = torch.full((3, 3), 1 / 3)
assert_close(
    rollout(torch.stack([shift, flat]).unsqueeze(1)), (flat + torch.eye(3)) / 2 @ (shift + torch.eye(3)) / 2
)
causal = maps.tril() / maps.tril().sum(dim=-1, keepdim=True)
assert (rollout(causal).triu(1) == 0).all()  # a triangle stays a triangle

# %% [markdown]
# **Exercise 3 (hard).** We chose the best of 32 maps and scored it on the same pairs, which flatters the
# winner. Choose the best head on a random half of the pairs and score it on the other half, 200 times. How
# often is it the same head? How much better is its score on the half that chose it?

# %% tags=["solution"]
torch.manual_seed(0)
chosen_heads, flattered = [], []
for _ in range(200):
    order = torch.randperm(len(pairs))
    one, other = order[:12], order[12:]
    head = min(single, key=lambda name: error(single[name][one]))
    chosen_heads.append(head)
    flattered.append(error(single[head][other]) - error(single[head][one]))
share = chosen_heads.count(("reads", 1, 1)) / 200
print(f"layer 2, head 2, reads: chosen in {share:.0%} of the draws; flattered by {sum(flattered) / 200:.3f}")
assert share > 0.8
assert abs(sum(flattered) / 200) < 0.05

# %% [markdown]
# ## Figures 3 to 5 of the appendix: does our model have such heads?
#
# > "Not only do individual attention heads clearly learn to perform different tasks, many appear to exhibit
# > behavior related to the syntactic and semantic structure of the sentences." (section 4)
#
# The paper shows three kinds of head of encoder self-attention, all in layer 5 of 6. In its Figure 3 a verb
# looks at distant words (*making ... more difficult*); in Figure 4, two heads are "apparently involved in
# anaphora resolution" (*its* looks at *Law*); in Figure 5, heads follow the structure of the sentence. Each
# figure shows one sentence, chosen by the authors. We build sentences in which the story can fail:
#
# - *structure*: an article and its noun, with none, one or two adjectives between them. A head that looks a
#   fixed number of tokens ahead can be right for only one of the three;
# - *long distance*: a verb and its subject, far away (*A man in front of a big dog is sleeping*) or near
#   (*In front of a big dog a man is sleeping*). From the weight on the subject we subtract the weight on
#   the other noun;
# - *anaphora*: *his* or *her* (*The man and the woman are playing with her ball*). From the weight on the
#   owner we subtract the weight on the other person.


# %%
def weight(text: str, query: str, *keys: str) -> list[Tensor]:
    """Encoder weights from one word's first piece to each key's: (layers, h) for each key."""
    tokens = translator.encode(text)
    with evaluating(model), capture_attention(model) as found:
        model.encode(torch.tensor([tokens]), None)
    maps = torch.stack([found["encoder", n][0] for n in range(LAYERS)])  # (layers, h, S, S)
    pieces = translator.src_tokenizer.pieces(tokens)
    row = maps[:, :, pieces.index("▁" + query)]
    return [row[..., pieces.index("▁" + key)] for key in keys] + [row.amax(dim=-1)]


NOUNS = ["dog", "man", "woman", "boy", "ball", "car", "shirt", "hat", "girl", "house"]
ADJECTIVES = ["red", "big", "young", "small", "black", "old", "green"]
random, structure = Random(0), []
for between in range(3):
    hits = []
    for noun in NOUNS * 3:
        phrase = " ".join([*random.sample(ADJECTIVES, between), noun])
        to_noun, most = weight(f"There is a {phrase} in the street.", "a", noun)
        hits.append(to_noun == most)
    structure.append(torch.stack(hits).float().mean(dim=0))  # (layers, h): share of sentences

# %%
distance = {"far": [], "near": []}
frames = {"far": "A {} in front of a big {} is {}.", "near": "In front of a big {1} a {0} is {2}."}
couples = ("man dog", "woman boy", "girl man", "boy woman", "dog man", "child horse", "man car", "woman tree")
for verb in ("sleeping", "running", "standing", "smiling", "waiting", "sitting"):
    for subject, other in map(str.split, couples):
        for name, frame in frames.items():
            to_subject, to_other, _ = weight(frame.format(subject, other, verb), verb, subject, other)
            distance[name].append(to_subject - to_other)
far_gap, near_gap = (torch.stack(distance[name]).mean(dim=0) for name in ("far", "near"))

anaphora = []
for frame in (
    "A {} is sitting next to a {} with {} dog.", "The {} and the {} are playing with {} ball.",
    "A {} looks at a {} and holds {} hat.", "A {} stands behind a {} who is holding {} bag.",
    "A {} is talking to a {} on {} phone.", "The {} shows the {} a picture of {} house.",
):  # fmt: skip
    for he, she in (("man", "woman"), ("boy", "girl")):
        for first, second in ((he, she), (she, he)):
            his_he, his_she, _ = weight(frame.format(first, second, "his"), "his", he, she)
            her_he, her_she, _ = weight(frame.format(first, second, "her"), "her", he, she)
            anaphora.append((his_he - his_she + her_she - her_he) / 2)
owner = torch.stack(anaphora).mean(dim=0)


# %%
def name_of(grid: Tensor) -> str:
    """Name the head with the largest number of a grid (layers, h)."""
    layer, head = divmod(grid.argmax().item(), HEADS)
    return f"layer {layer + 1}, head {head + 1}"


worst_case = torch.stack(structure).amin(dim=0)
shares = ", ".join(f"≈{grid.flatten()[worst_case.argmax()]:.0%}" for grid in structure)
print(f"structure: {name_of(worst_case)} looks most at the noun in {shares} of the sentences")
both_ways = torch.minimum(far_gap, near_gap)
n = near_gap.argmax()
print(f"distance: {name_of(near_gap)} gives the subject, against the other noun,", end=" ")
print(f"≈{near_gap.flatten()[n]:+.2f} when near, ≈{far_gap.flatten()[n]:+.2f} when far;", end=" ")
print(f"best head for both: ≈{both_ways.max():.2f}")
print(f"anaphora: {name_of(owner)} gives the owner ≈{owner.max():+.2f} against the other person")
assert worst_case.max() > 0.5 > 0.3 > worst_case.flatten().sort().values[-2]
assert near_gap.max() > 0.5
assert far_gap.flatten()[n] < -0.4
assert both_ways.max() < 0.1
assert 0 < owner.max() < 0.1

# %% tags=["figure-appendix"]
shown = (
    ("There is a red dog in the street.", "a", worst_case, "Structure: yes"),
    ("A man in front of a big dog is sleeping.", "sleeping", near_gap, "Long distance: no"),
    ("The man and the woman are playing with her ball.", "her", owner, "Anaphora: no"),
)
figure, axes = plt.subplots(1, 3, figsize=(13, 5))
for ax, (text, query, grid, title) in zip(axes, shown, strict=True):
    seen = translator.attention(text)
    layer, head = divmod(grid.argmax().item(), HEADS)
    tokens = seen.src_tokens
    position = tokens.index("▁" + query)
    for s, token in enumerate(tokens):
        ax.text(-0.03, -s, token, ha="right", va="center", weight="bold" if s == position else "normal")
        ax.text(1.03, -s, token, va="center")
        ax.plot(
            [0, 1], [-position, -s], color="#0072b2", lw=9 * seen.maps["encoder", layer][head, position, s]
        )
    ax.set(xlim=(-0.6, 1.6), ylim=(-len(tokens) + 0.5, 0.5), title=f"{title}\n{name_of(grid)}")
    ax.axis("off")
plt.show()
assert all(len(ax.lines) == len(ax.texts) // 2 for ax in axes)

# %% [markdown]
# *Figure 7. The three kinds of head, drawn as in the paper: lines go from one query (bold) to all keys, and
# their width is the weight. "a" finds "dog" across an adjective; "sleeping" takes the nearest noun; "her"
# hardly looks at "woman".*
#
# **Layer 3, head 2 finds the noun**: the article gives it the largest weight in ≈100%, ≈100% and ≈73% of
# the sentences with none, one and two adjectives. (Its noun or the next noun? Our sentences cannot tell.)
#
# The head that looks like a subject finder takes the *nearest* noun (≈+0.69 for the subject when it is
# near, ≈−0.58 when it is far). From the near sentences alone, we would have told the wrong story.
#
# No head resolves *his* and *her*: the largest preference is ≈0.02 of a weight of 1. Nor does this
# translator need to, because English *his* and *her* already decide between German *sein* and *ihr*. (The
# German for the paper's *its* depends on the gender of *Law*.) So our two negative results say nothing
# about the paper's model; they show that one picture is not enough.
#
# ## Is attention an explanation?
#
# When a row is sharp and on the right word, does the model *use* that word? Jain and Wallace, "Attention is
# not Explanation" (2019), took mostly text classifiers (an LSTM with one attention on top). For a given
# text they found *other* weights with almost the same prediction. If two maps explain one prediction,
# neither is *the* explanation.
#
# Wiegreffe and Pinter, "Attention is not not Explanation" (2019), objected: those weights were searched for
# one text at a time. An adversary should be a *model*, with one set of parameters for all texts.
#
# We try both on a Transformer. First, a tool that replaces the weights of cross-attention:


# %%
cross = [layer.src_attn for layer in model.decoder.layers]
Change = Callable[[int, Tensor], Tensor]  # (layer, weights (B, h, T, S)) -> weights


@contextmanager
def rewriting(modules: list[MultiHeadedAttention], change: Change, record: list[Tensor]) -> Iterator[None]:
    """Let these attentions use `change(layer, weights)`, and append to `record` what they used."""

    def replace(layer: int) -> Callable[..., Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            record.append(change(layer, attention(q, k, v, mask)[1]))
            return record[-1] @ v

        return attend

    for layer, module in enumerate(modules):
        module.attend = replace(layer)
    try:
        yield
    finally:
        for module in modules:
            del module.attend


# %%
def predict(decoder, batch: Batch, memory: Tensor, change: Change = lambda _, w: w) -> tuple[Tensor, list]:
    """Log-probabilities at the real target positions (tokens, V), and the weights used, layer by layer."""
    used = []
    with rewriting([layer.src_attn for layer in decoder.layers], change, used):
        states = decoder(model.tgt_embed(batch.tgt), memory, batch.src_mask, batch.tgt_mask)
    return model.generator(states[batch.tgt_y != tokenizer.pad]), used


def moved(weights: list[Tensor], before: list[Tensor], batch: Batch) -> Tensor:
    """Share of the weight that lies elsewhere than before, mean over layers, heads and real rows."""
    gaps = [(w - b).abs().sum(dim=-1).transpose(1, 2) / 2 for w, b in zip(weights, before, strict=True)]
    return torch.stack(gaps)[:, batch.tgt_y != tokenizer.pad].mean()


# %%
model.eval().requires_grad_(False)
answers = batch.tgt_y[real].unsqueeze(1)  # (tokens, 1)
intact, before = predict(model.decoder, batch, memory)


def shuffled(_, weights: Tensor) -> Tensor:
    """Shuffle each row's weights among the keys that it may see (padding is on the right)."""
    noise = torch.rand_like(weights).masked_fill(~batch.src_mask.unsqueeze(1), 2)
    return weights.gather(-1, noise.argsort(dim=-1))


# %%
def report(name: str, changed: Tensor, weights: list[Tensor]) -> dict[str, float]:
    """Print how far weights and predictions moved, and the nats a token that our translations lost."""
    result = {
        "moved": moved(weights, before, batch).item(),
        "changed": ((changed.exp() - intact.exp()).abs().sum(dim=-1) / 2).mean().item(),
        "lost": (intact.gather(1, answers) - changed.gather(1, answers)).mean().item(),
    }
    numbers = "weight moved ≈{moved:.0%}, prediction moved ≈{changed:.0%}, ≈{lost:.2f} nats lost"
    print(f"{name:18}", numbers.format(**result))
    return result


torch.manual_seed(0)
even = (batch.src_mask / batch.src_mask.sum(dim=-1, keepdim=True)).unsqueeze(1)  # (24, 1, 1, S)
results = {}
for name, change in (("even weights", lambda _, w: even.expand_as(w)), ("shuffled", shuffled)):
    results[name] = report(name, *predict(model.decoder, batch, memory, change))
    assert results[name]["lost"] > 1.5


# %% [markdown]
# Weights without information cost ≈1.8 to ≈2.3 nats of loss a token, so the translator does depend on
# *where* it looks. Does it depend on any single head?


# %%
def blinded(layer: int, head: int) -> Change:
    """Make one head's weights even."""

    def change(n: int, weights: Tensor) -> Tensor:
        here = torch.arange(HEADS).view(-1, 1, 1) == head
        return torch.where(here, even, weights) if n == layer else weights

    return change


def nats_lost(change: Change) -> float:
    """Nats a token that our translations lose."""
    changed, _ = predict(model.decoder, batch, memory, change)
    return (intact.gather(1, answers) - changed.gather(1, answers)).mean().item()


harm = torch.tensor([[nats_lost(blinded(n, h)) for h in range(HEADS)] for n in range(LAYERS)])
print(
    f"one head even: at most ≈{harm.max():.2f} nats ({name_of(harm)}); the best aligner ≈{harm[1, 1]:.2f};",
    end=" ",
)
print(f"all 16, one at a time, added up ≈{harm.sum():.2f}")
assert harm.max() < 0.4
assert harm.sum() < 0.7 * results["even weights"]["lost"]

# %% [markdown]
# At most ≈0.10 nats for one head, and the 16 losses add up to far less than the loss of all 16 at once. The
# heads are partly **redundant**: when one is missing, others stand in for it.
#
# Now Jain and Wallace's adversary. For each of our sentences by itself, gradient descent searches for
# weights that are far from the model's while the predictions stay. The loss is the Kullback-Leibler
# divergence of the predictions, minus the share of weight moved.


# %%
def distance_loss(changed: Tensor, used: list, intact: Tensor, before: list, batch: Batch) -> Tensor:
    """Small if the predictions stay and the weights move."""
    return F.kl_div(changed, intact, log_target=True, reduction="batchmean") - moved(used, before, batch)


torch.manual_seed(0)
offsets = [torch.randn_like(w).mul(0.1).requires_grad_() for w in before]  # one number for each weight


def free(layer: int, weights: Tensor) -> Tensor:
    """Add its own offset to every score."""
    scores = (weights + 1e-6).log() + offsets[layer]
    return scores.masked_fill(~batch.src_mask.unsqueeze(1), -1e9).softmax(dim=-1)


# %%
optimizer = torch.optim.Adam(offsets, lr=0.2)
for _ in range(50):
    loss = distance_loss(*predict(model.decoder, batch, memory, free), intact, before, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    changed, used = predict(model.decoder, batch, memory, free)
results["free adversary"] = report("free adversary", changed, used)
assert results["free adversary"]["moved"] > 0.45
assert results["free adversary"]["changed"] < 0.1

# %% [markdown]
# Jain and Wallace's finding holds here: ≈66% of all weight lies elsewhere, and the predictions move by ≈4%.
# To test the objection, the second adversary is a model: a copy of the decoder in which the query and key
# maps of cross-attention ($W^Q$, $W^K$) are trained with the same loss on *other* sentences, 120 of the
# built-in corpus. We test it on our 24.

# %%
drawn = sample(120)
read = [[tokenizer.start, *tokenizer.encode(one.german), tokenizer.end] for one in drawn]
others = translator.batch([translator.encode(one.english) for one in drawn]), translator.batch(read)
adversary = deepcopy(model.decoder)
maps = [linear for layer in adversary.layers for linear in layer.src_attn.linears[:2]]
optimizer = torch.optim.Adam([w for linear in maps for w in linear.requires_grad_().parameters()], lr=3e-3)
torch.manual_seed(0)
for _ in range(60):
    part = torch.randperm(len(drawn))[:12]
    some = Batch(others[0][part], others[1][part])
    with torch.no_grad():
        some_memory = model.encode(some.src, some.src_mask)
        wanted, usual = predict(model.decoder, some, some_memory)
    loss = distance_loss(*predict(adversary, some, some_memory), wanted, usual, some)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    changed, used = predict(adversary, batch, memory)
results["trained adversary"] = report("trained adversary", changed, used)
assert results["trained adversary"]["changed"] > 1.5 * results["free adversary"]["changed"]
assert 0.25 < results["trained adversary"]["moved"] < results["free adversary"]["moved"]

# %% [markdown]
# The trained adversary moves less weight, and yet it moves the predictions more. So in these two runs, each
# side is right. No single map is *the* explanation, because others give the same prediction; but a map that
# one model must produce for every sentence is harder to replace than a map found for one.
#
# ## Attention sinks
#
# Which source tokens get much weight? We compare the full stop and `</s>` at the end of each source with
# two other pairs of tokens: their share of all weight, and the nats lost if their *values* are set to zero
# while the weights stay.

# %%
lengths = batch.src_mask.sum(dim=-1)  # (24, 1), </s> counted
position = torch.arange(batch.src.size(1))
groups = {
    "first two tokens": (position < 2).expand_as(batch.src),
    "middle two": (position >= lengths // 2 - 1) & (position < lengths // 2 + 1),
    "full stop and </s>": (position >= lengths - 2) & (position < lengths),
}
mean_map = torch.stack(before).mean(dim=(0, 2))  # (24, T, S)
share, price = {}, {}
for name, keys in groups.items():
    share[name] = (mean_map * keys.unsqueeze(1)).sum(dim=-1)[real].mean().item()
    price[name] = nats_lost(lambda _, w, keys=keys: w * ~keys[:, None, None])
    print(f"{name:20} {share[name]:4.0%} of all weight; without their values ≈{price[name]:.2f} nats lost")
end = "full stop and </s>"
assert share[end] > share["first two tokens"]
assert price[end] < min(price["first two tokens"], price["middle two"]) / 3

# %% [markdown]
# The last two tokens get 24% of the weight, but without their values only ≈0.01 nats are lost. A row's
# weights sum to 1, so a head that needs *nothing* from the source must still put its weight on some token,
# an **attention sink** (Xiao and others, 2023, in large language models; Clark and others, 2019, saw the
# effect in BERT). Two predictions follow: a sink's value vectors are short, and it gets most weight where
# nothing is needed, such as inside a word whose beginning is already written.


# %%
def handed_over(module: MultiHeadedAttention) -> Tensor:
    """Length of the vector that each key would add to a query's state at full weight: (24, h, S)."""
    values = module.split(module.linears[2](memory))  # (24, h, S, d_v)
    outputs = module.linears[3].weight.unflatten(1, (module.h, -1))  # (d_model, h, d_v): W^O by heads
    return torch.einsum("bhsv,ohv->bhso", values, outputs).norm(dim=-1)


sizes = torch.stack([handed_over(module) for module in cross]).transpose(1, 2)  # (layers, h, 24, S)
source = batch.src_mask.squeeze(1)  # (24, S)
ratio = sizes[..., groups[end]].mean(dim=-1) / sizes[..., source & ~groups[end]].mean(dim=-1)
print(
    f"length, against the other tokens: {ratio.min():.2f} to {ratio.max():.2f}, median {ratio.median():.2f}"
)

pieces = [tokenizer.pieces(row) for row in batch.tgt_y.tolist()]
inside = torch.tensor([[piece[0] not in "▁.,<" for piece in row] for row in pieces])
starts = torch.tensor([[piece[0] == "▁" for piece in row] for row in pieces])
to_sink = (before[-1].mean(dim=1) * groups[end].unsqueeze(1)).sum(dim=-1)  # (24, T), last layer
within, at_start = to_sink[inside].mean(), to_sink[starts].mean()
print(f"last layer's weight on the sink: {within:.0%} inside a word, {at_start:.0%} at its start")
assert ratio.max() < 1
assert 0.2 < ratio.median() < 0.5
assert within > 2 * at_start

# %% [markdown]
# Both hold. In all 16 heads the sink's vectors are shorter than others on average. In the last layer, the
# sink gets 47% of the weight inside a word and 14% at its start. A weight is not an effect: what reaches
# the query is the weight *times* the value.
#
# So a map suggests an explanation; an experiment tests it.
#
# <details><summary>Further: pruning, norms, and what the two adversaries leave open</summary>
#
# - Michel and others (2019) remove many heads of a trained translator at little cost; Voita and others
#   (2019) find that a few specialised heads survive pruning.
# - Kobayashi and others (2020) draw the weight times the length of the value vector, and report better
#   alignments.
# - Our adversaries stopped after a fixed number of updates, and the trained one also met a new kind of
#   sentence. A fair comparison would plot prediction against weight moved, as Wiegreffe and Pinter do.
#
# </details>
#
# Next: PyTorch's own Transformer,
# [14_under_the_hood_of_nn_transformer](14_under_the_hood_of_nn_transformer.ipynb).
