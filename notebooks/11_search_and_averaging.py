# %% [markdown]
# # 11 · Search and averaging
#
# **A trained model gives probabilities, not sentences. We watch a beam lose the best beginning, find the
# most probable translation of all, and measure what beam, length penalty and averaging bring in BLEU.**
#
# Previous: [10_translation](10_translation.ipynb) · Next: [12_results](12_results.ipynb) · Greedy decoding,
# word by word: [09_first_example](09_first_example.ipynb)
#
# *28 minutes to read, a minute to run.*
#
# - **Before:** you know that the decoder gives a probability for each next token and reads its own output
#   when it translates (07, 09), what the causal mask does (02), and what BLEU counts (10).
# - **After:** you can write beam search with a length penalty and say what neither can do, check a search,
#   and explain the key/value cache and why averaged weights can be better than each checkpoint.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 6.1, the part on
# search and averaging.

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
import json
import math
import re
from collections import Counter
from functools import cache as remember
from itertools import chain, count, islice, product
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
from torch.testing import assert_close

# %%
import annotated.translation.decoding
from annotated import (
    DecoderCache,
    EncoderDecoder,
    LabelSmoothing,
    SentencePieceTokenizer,
    SimpleLossCompute,
    TransformerConfig,
    beam_search,
    evaluating,
    greedy_decode,
    load_pretrained,
    make_model,
    padding_mask,
    run_epoch,
    subsequent_mask,
)
from annotated.data import ParallelText, TokenBatches, encode_corpus
from annotated.data.grammar import sample
from annotated.plots import plot_beam, setup_notebook, show_source
from annotated.transformer.schedule import noam_scheduler
from annotated.translation.decoding import SentenceSearch, length_penalty, next_log_probs
from annotated.translation.evaluation import score_tokens

# %%
from annotated.translation.model_folder import load_weights, shipped_model
from annotated.translation.scoring import recorded

setup_notebook()
torch.set_num_threads(1)  # the matrices are small, and only wait for a second thread

# %% [markdown]
# ## Fourteen sentences
#
# Here is a language with fourteen sentences. For each beginning the table gives the probability of each next
# word. A beginning that is not in the table is a whole sentence.

# %%
END = "</s>"
doing = dict.fromkeys(["schläft", "läuft", "springt", "sitzt", "frisst"], 0.2)
LANGUAGE = {
    "": {"ein": 0.40, "eine": 0.35, "der": 0.25},
    "ein": {"Hund": 0.42, "Mann": 0.30, "Tisch": 0.28},
    "eine": {"Katze": 0.5, "Frau": 0.5},
    "der": {"Hund": 1.0},
    "eine Katze": doing,
    "eine Frau": doing,
}


def following(said):
    """The log-probability of each next word, after the words `said`."""
    return {word: math.log(p) for word, p in LANGUAGE.get(" ".join(said), {END: 1.0}).items()}


# %% [markdown]
# **Greedy decoding** takes the most probable word at each step. Here we can also write down all sentences.


# %%
def sentences(said=(), total=0.0):
    """Every sentence that begins with the words `said`, with its log-probability."""
    if said and said[-1] == END:
        return [(said, total)]
    roads = following(said).items()
    return list(chain.from_iterable(sentences((*said, word), total + lp) for word, lp in roads))


said, total = (), 0.0
while not said or said[-1] != END:
    word, log_prob = max(following(said).items(), key=lambda item: item[1])
    said, total = (*said, word), total + log_prob
everything = sorted(sentences(), key=lambda item: -item[1])
print(f"greedy: {math.exp(total):.3f}  {' '.join(said)}")
print(f"{len(everything)} sentences; the most probable:")
for words, log_prob in everything[:3]:
    print(f"        {math.exp(log_prob):.3f}  {' '.join(words)}")
assert len(everything) == 14
assert everything[1][0] == said

# %% [markdown]
# Greedy decoding finds only the second best. `der Hund` is 1.5 times as probable, although `der` is the
# *least* probable first word. **The most probable word need not begin the most probable sentence.**
#
# > "We used beam search with a beam size of 4 and length penalty α = 0.6." (section 6.1)
#
# With $V$ words and $n$ steps there are $V^n$ sentences, too many for a real model. **Beam search** keeps
# the $k$ most probable beginnings, continues each with every word, keeps the $k$ most probable of the
# results, and so on.


# %%
def search(following, beam, limit=100, alpha=0.0, end=END):
    """The best sentence that a beam finds: its score, its words and its log-probability."""
    kept, ended = [((), 0.0)], []
    for _ in range(limit):
        longer = [((*said, word), total + lp) for said, total in kept for word, lp in following(said).items()]
        longer.sort(key=lambda item: -item[1])
        ended += [item for item in longer[:beam] if item[0][-1] == end]
        kept = [item for item in longer if item[0][-1] != end][:beam]
        if len(ended) >= beam or not kept:
            break
    # The end symbol counts as a word of the sentence. With alpha 0 the score is the log-probability.
    scored = [(lp / ((5 + len(words)) / 6) ** alpha, words[:-1], lp) for words, lp in ended]
    return max(scored)


found = {}
for beam in (1, 2, 3):
    _, words, found[beam] = search(following, beam)
    print(f"beam {beam}:  {math.exp(found[beam]):.3f}  {' '.join(words)}")
assert found[1] == total  # a beam of one is greedy decoding
assert found[3] == everything[0][1]
assert found[2] < found[1] - math.log(4)

# %% [markdown]
# A beam of three finds the best sentence. The beam of **two** does worse than greedy decoding: its sentence
# is nearly five times less probable. After the second word it keeps `eine Katze` and `eine Frau` (0.175
# each), and drops `ein Hund` (0.168). Then each of its beginnings splits into five. A beam keeps what is
# probable *so far*, so a wider beam usually finds a more probable sentence, but not always.
#
# ## A real model
#
# Now the translator that comes with the package: English to German, four layers of width 128 on each side,
# trained on captions of photographs. These captions are our own, so it has seen none of them. With float64,
# no rounding decides which translation wins.

# %%
TEXT = """
A dog runs through the grass. Two men are playing chess in the park. The man sleeps. A lady feeds the ducks.
A little girl in a pink dress is jumping over a puddle. Children are eating ice cream. Someone is swimming.
Three children play with a ball on the beach while their mother is reading. A group is sitting around a
fire. An old man with a white beard sells fruit and vegetables at a busy market. A woman with an umbrella
crosses the street in the rain. A baby in a high chair is eating noodles with both hands. A man in a black
jacket takes a picture of a bridge. The brown dog is carrying a yellow toy in its mouth. A worker repairs the
roof of a house. A child is laughing. Several men are pulling a boat out of the water. A skier jumps over a
snowy hill. A student is writing something on a blackboard. Two women talk. Two tired hikers with heavy
backpacks rest on a rock. People are waiting for a bus that is late. A bearded man is fixing an old radio. Two
boys throw snowballs at each other. A bird flies away. Many people walk past a shop window without looking. A
cook tastes the soup with a spoon. A horse jumps over a wooden fence. While it is snowing, an old couple with
a small dog walks slowly home. A man carves wood. Two girls want to surprise their sister.
"""

# %%
captions = [sentence.strip() for sentence in re.findall(r"[^.]+\.", TEXT.replace("\n", " "))]
translator = load_pretrained("multi30k-en-de")
model, words = translator.model.double(), translator.tgt_tokenizer
START_ID, END_ID, forbidden = words.start, words.end, translator.forbidden


def sources(texts):
    """English sentences as the encoder reads them: tokens (B, src_len), and their mask (B, 1, src_len)."""
    src = translator.batch([translator.encode(text) for text in texts])
    return src, padding_mask(src, translator.src_tokenizer.pad)


def beams(texts, **settings):
    """The package's beam search on a list of sentences; it never generates <s> or <blank>."""
    return beam_search(model, *sources(texts), forbidden=forbidden, **settings)


# %%
def following_of(text, most):
    """A `following` that asks the model: the `most` likeliest tokens after each beginning."""
    src, src_mask = sources([text])
    with evaluating(model):
        memory = model.encode(src, src_mask)

    def following(said):
        tokens = torch.tensor([[START_ID, *said]])  # (1, len): the whole beginning, each time
        with evaluating(model):
            states = model.decode(memory, src_mask, tokens, subsequent_mask(tokens.size(1)))
            log_probs = model.generator(states[0, -1])  # (V,)
        log_probs[list(forbidden)] = -torch.inf
        best = log_probs.topk(most)
        return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    return following


# %% [markdown]
# Our `search` takes any `following`. The package's `beam_search` works on all sentences and beginnings at
# once. Do they agree?

# %%
ours = {text: remember(following_of(text, 8)) for text in captions[:4]}
for alpha in (0.0, 0.6):
    for text, [theirs] in zip(ours, beams(list(ours), alpha=alpha), strict=True):
        score, tokens, log_prob = search(ours[text], beam=4, alpha=alpha, end=END_ID)
        assert_close([score, log_prob], [theirs.score, theirs.log_prob], rtol=0, atol=1e-9)
        assert tokens == theirs.tokens
src, src_mask = sources(captions)
greedy = greedy_decode(model, src, src_mask, 60, START_ID, END_ID, forbidden)[:, 1:].tolist()
greedy = [tuple(row[: row.index(END_ID)]) for row in greedy]
assert [best.tokens for [best] in beams(captions, beam=1)] == greedy
print(f"ours and the package's, beam 4: the same tokens and scores for {len(ours)} captions, with two alphas")
print(f"the package's, beam 1 = greedy decoding: for {len(captions)} captions")

# %% [markdown]
# ### The tree
#
# The unfinished beginnings are called **hypotheses**. They are branches of one tree. We watch it grow for a
# caption for which a beam of three finds the right translation and greedy decoding does not.


# %%
def watched(text, **settings):
    """The winner of a search, and for each step the candidates, the likeliest first."""
    steps = []
    [[best]] = beams([text], watch=lambda _, candidates: steps.append(candidates), **settings)
    return best, steps


SIZES = (1, 2, 3, 4, 8)
plain = {beam: [best for [best] in beams(captions, beam=beam, alpha=0.0)] for beam in SIZES}
chosen = captions.index("A man carves wood.")
best, steps = watched(captions[chosen], beam=3, alpha=0.0)
print(captions[chosen])
print(f"beam 3: {best.log_prob:.2f}  {words.decode(best.tokens)}")
print(f"greedy: {plain[1][chosen].log_prob:.2f}  {words.decode(greedy[chosen])}")
assert words.decode(best.tokens) == "Ein Mann schnitzt Holz."

# %% tags=["figure-tree"]
ax = plot_beam(steps, best.tokens, words.pieces)
heavy = [line for line in ax.lines if line.get_linewidth() == 4]
ranks = [int(line.get_ydata()[1]) for line in sorted(heavy, key=lambda line: line.get_xdata()[1])]
print("the winner's rank at each step:", ranks)
assert max(ranks) > 0  # it was not always first, or greedy decoding would have found it
assert best.log_prob > plain[1][chosen].log_prob + 1
plt.show()

# %% [markdown]
# *Figure 1. The tree of one search, a column for each step. A box holds a token (▁ begins a word) and the
# log-probability of the whole beginning. The heavy line is the winner; at step 3 it is second, and greedy
# decoding chose the comma. White boxes were dropped.*

# %% [markdown]
# ## As wide as it takes
#
# To find the most probable translation of all seems impossible: there are thousands of tokens to the power
# of sixty. But suppose that a search has found a translation with probability $p$, for example 0.02. A
# beginning less probable than $p$ can be dropped, because **a sentence is never more probable than its
# beginning**. How many beginnings of the same length can be *more* probable? Their probabilities sum to at
# most 1, so there are **fewer than $1/p$**: here, fewer than 50.
#
# **Exact search** keeps every beginning that is more probable than the best sentence so far. When none is
# left, no better sentence exists. (Stahlberg and Byrne, 2019, use the same bound, depth-first.)


# %%
def likeliest(text, known):
    """The likeliest translation of all, given that one has log-probability `known`; rows computed a step."""
    src, src_mask = sources([text])
    best, winner, rows_at = known - 1e-9, None, []
    with evaluating(model):
        memory, cache = model.encode(src, src_mask), DecoderCache(len(model.decoder.layers))
        tokens, totals = torch.full((1, 1), START_ID), torch.zeros(1, dtype=torch.float64)
        while len(tokens):
            rows_at.append(len(tokens))
            source = (given.expand(len(tokens), -1, -1) for given in (memory, src_mask))
            states = model.decode(*source, tokens[:, -1:], None, cache)
            log_probs = model.generator(states[:, -1])  # (rows, V)
            log_probs[:, list(forbidden)] = -torch.inf
            longer = totals.unsqueeze(1) + log_probs
            ending, row = longer[:, END_ID].max(dim=0)
            if ending > best:
                best, winner = ending.item(), tuple(tokens[row, 1:].tolist())
            longer[:, END_ID] = -torch.inf
            rows, token = (longer > best).nonzero(as_tuple=True)
            totals = longer[rows, token]
            tokens = torch.cat([tokens[rows], token.unsqueeze(1)], dim=1)
            cache.select(rows)
    return best, winner, rows_at


# %% [markdown]
# We do this for every caption whose best known translation is more probable than 1 in 500.

# %%
best_known = [max(plain[beam][i].log_prob for beam in SIZES) for i in range(len(captions))]
sure = [i for i, log_prob in enumerate(best_known) if log_prob > -math.log(500)]
exact = {i: likeliest(captions[i], best_known[i]) for i in sure}
for i, (log_prob, tokens, rows_at) in exact.items():
    assert max(rows_at) <= math.exp(-best_known[i]) + 1e-6  # fewer than 1 / p, at every length
    assert log_prob >= best_known[i] - 1e-9
    assert tokens is not None
missed = {beam: sum(plain[beam][i].log_prob < exact[i][0] - 1e-6 for i in sure) for beam in SIZES}
print(f"{len(sure)} of {len(captions)} captions, each with the likeliest translation that there is")
for beam, misses in missed.items():
    print(f"beam {beam}: misses it for {misses:2} of {len(sure)}")
assert missed[1] > missed[4] == missed[8] == 0

# %% [markdown]
# What did it cost? We count rows through the decoder: a beam of 4 computes four per step. To exact search we
# add the narrowest beam that found $p$ (mostly greedy decoding).


# %% tags=["figure-exact"]
def rows_in(beam, i):
    """Rows that a beam needs to reach the end of what it found."""
    return beam * (len(plain[beam][i].tokens) + 1)


first = {i: next(b for b in SIZES if plain[b][i].log_prob > best_known[i] - 1e-9) for i in sure}
shares = sorted((sum(exact[i][2]) + rows_in(first[i], i)) / rows_in(4, i) for i in sure)
probability = [math.exp(best_known[i]) for i in sure]
widest = [max(exact[i][2]) for i in sure]
fig, ax = plt.subplots()
ax.plot([0.002, 1], [500, 1], "--", color="grey", label="1 / p: the most that there can be")
ax.plot(probability, widest, "o", ms=8, alpha=0.7, label="most beginnings kept at once")
ax.axhline(4, color="#de8f05", lw=1.5, label="a beam of 4")
ax.set(xscale="log", yscale="log", xlabel="p, probability of the best translation known", ylabel="beginnings")
ax.set_title("What exact search has to keep")
ax.legend(frameon=False)
plt.show()
print(f"rows of exact search / rows of a beam of 4: median {shares[len(shares) // 2]:.2f}, ", end="")
print(f"from {shares[0]:.2f} to {shares[-1]:.2f}")
assert shares[len(shares) // 2] < 1 < shares[-1]
assert sum(beam == 1 for beam in first.values()) > len(sure) / 2

# %% [markdown]
# *Figure 2. Each dot is a caption. The more certain the model (right), the fewer beginnings exact search
# keeps; it stays far below the bound.*
#
# In the median, exact search costs *half* of the beam of 4 that approximates it (and that found the same
# translations here). Where the model is in doubt (left), it costs up to three times as much.
#
# What did greedy decoding miss? Stahlberg and Byrne found that the most probable translation is often the
# **empty** one, so we also print its probability.

# %%
other = [i for i in sure if exact[i][1] != greedy[i]]
by_length = sorted(other, key=lambda i: len(exact[i][1]) - len(greedy[i]))
for i in by_length:
    print(captions[i])
    print(f"   greedy    1 in {math.exp(-plain[1][i].log_prob):6,.0f}   {words.decode(greedy[i])}")
    print(f"   likeliest 1 in {math.exp(-exact[i][0]):6,.0f}   {words.decode(exact[i][1])}")
change = [len(exact[i][1]) - len(greedy[i]) for i in other]
print(f"{len(other)} captions: {sum(c < 0 for c in change)} shorter, {sum(c > 0 for c in change)} longer")
empty = [following_of(text, 10_000 - len(forbidden))(())[END_ID] for text in captions]
print(f"the empty translation, at its most probable: 1 in {math.exp(-max(empty)):,.0f}")
assert sum(change) < 0
assert all(empty[i] < exact[i][0] for i in sure)

# %% [markdown]
# The most probable translation is shorter each time. For the wood it is better: the greedy sentence is no
# German. For the soup and the snowballs it *says less*: nobody tastes, and nobody is hit. Each further token
# multiplies the probability by a number below 1, so leaving something out pays. In Stahlberg and Byrne's
# model the empty translation wins for half of all sentences; for our 27 it never does. So the most probable
# translation need not be a good one. A narrow beam hides this fault of the model.
#
# ## Why divide by length?
#
# A log-probability is a sum of negative numbers and falls with each token. Section 6.1 cites Wu et al.
# (2016, the system GNMT), who divide it by a **length penalty**:
#
# $$\mathrm{score}(y) = \frac{\log P(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5+|y|}{6}\right)^{\alpha}$$
#
# $|y|$ counts the end symbol. The penalty favours *long* translations, because a negative number rises when
# it is divided by a larger one. (`"gnmt"` in the package; its `"power"` divides by $|y|^\alpha$, for
# $\alpha = 1$ the mean log-probability of a token.) When does the penalty change the winner
# among the eight results of a beam of 8?

# %%
eight = beams(captions, beam=8, alpha=0.6, n_best=8)
flips = []
for i, ends in enumerate(eight):
    without, with_penalty = max(ends, key=lambda h: h.log_prob), ends[0]
    assert math.isclose(ends[0].score, ends[0].log_prob / ((6 + len(ends[0].tokens)) / 6) ** 0.6)
    if with_penalty != without:
        flips.append((i, without, with_penalty))
print(f"the penalty chooses another winner for {len(flips)} of {len(captions)} captions")
print("log-prob.  score")
for i, without, with_penalty in flips[:3]:
    print(captions[i])
    for hypothesis in (without, with_penalty):
        print(f"   {hypothesis.log_prob:6.2f}  {hypothesis.score:6.3f}  {words.decode(hypothesis.tokens)}")
assert flips
assert all(len(saved.tokens) > len(lost.tokens) for _, lost, saved in flips)

# %% [markdown]
# The upper one has the better log-probability, the lower one the better score. Only a longer translation can
# win in this way; here the penalty brings back *at each other*.
#
# How much may one more token cost? A hypothesis of $n$ tokens with log-probability $L$ loses to a longer
# one, of $m$ tokens, that costs less than $|L|\,(lp(m)/lp(n) - 1)$ nats more (units of the natural
# logarithm). For ten tokens and $L = -4$:

# %%
n, L = 10, -4.0
price = {}
for name, alpha, form in (("paper", 0.6, "gnmt"), ("mean of a token", 1.0, "power")):
    price[name] = -L * (length_penalty(n + 1, alpha, form) / length_penalty(n, alpha, form) - 1)
    print(f"{name:16} one more token may cost {price[name]:.2f} nats: p above {math.exp(-price[name]):.2f}")
assert math.isclose(price["mean of a token"], -L / n)  # as much as its other tokens, on average

# %% [markdown]
# Here the paper's penalty accepts one more token only if its probability is above 0.85: it decides near ties.
# It does not steer the beam: within a step all hypotheses are equally long, so one divisor changes no order.
# It chooses among the *ended* hypotheses. No $\alpha$ brings back what the beam dropped.
#
# ## When does it stop?
#
# > "We set the maximum output length during inference to input length + 50, but terminate early when
# > possible." (section 6.1)
#
# Greedy decoding stops at the end symbol. In a beam, other hypotheses may still overtake the first one that
# ended. The package has three reasons to stop:

# %%
show_source(SentenceSearch.done)

ends = [sum(c.fate == "ended" for step in watched(text)[1] for c in step) for text in captions]
enough = sum(count >= 4 for count in ends)
print(f"beam 4, alpha 0.6: {enough} of {len(captions)} searches stop because they have enough")
assert len(captions) / 2 < enough < len(captions)

# %% [markdown]
# - *Limit* (first `if`): the maximum length is reached.
# - *Enough* (second `if`): with a penalty, as many hypotheses have ended as the beam is wide.
# - *No hope* (end): suppose that the best unfinished hypothesis gets all the length that the limit allows,
#   at no cost. If even this score does not beat the best ended one, nothing in the beam can win.
#
# Without a penalty a search ends with this proof (about its own hypotheses). With one, most searches stop at
# *enough*, which proves nothing.
#
# ## Section 6.1 in BLEU
#
# > "These hyperparameters were chosen after experimentation on the development set." (section 6.1)
#
# We read a record (of `benchmarks/search.py`) for this model on the 1,014 captions of Multi30k's validation
# split. Each search is compared with greedy decoding on the same sentences (paired bootstrap,
# [10](10_translation.ipynb)). `none` is no penalty, `gnmt 0.6` the paper's, `length` the mean
# log-probability of a token.

# %%
record = recorded("search")["multi30k-en-de"]["val"]
print("search              BLEU   over greedy, with 95% interval   length   BLEU / brevity penalty")
precision = {}
for name, each in record.items():
    over = each["over greedy"]
    precision[name] = each["bleu"]["value"] / min(1.0, math.exp(1 - 1 / each["length"]))
    interval = f"{over['value']:+.2f} ({over['low']:+.2f} to {over['high']:+.2f})"
    print(f"{name:17}{each['bleu']['value']:7.2f}   {interval:30}{each['length']:8.3f}{precision[name]:9.1f}")

# %% tags=["figure-bleu-by-beam"]
LABELS = {"none": "no penalty", "gnmt 0.6": "the paper's, alpha 0.6", "length": "mean of a token"}
MARKS = {"none": "o-", "gnmt 0.6": "s--", "length": "D:"}
fig, axes = plt.subplots(1, 2, figsize=(11, 4.4))
for penalty, label in LABELS.items():
    by_beam = {int(k.split()[1].strip(",")): v for k, v in record.items() if k.endswith(f", {penalty}")}
    at = [1, *by_beam]
    for ax, key in zip(axes, (lambda each: each["bleu"]["value"], lambda each: each["length"]), strict=True):
        ax.plot(at, [key(record["greedy"]), *map(key, by_beam.values())], MARKS[penalty], ms=7, label=label)
for ax in axes:
    ax.set(xscale="log", xlabel="beam (1: greedy)")
    ax.set_xticks([1, 2, 4, 10, 20, 50], ["1", "2", "4", "10", "20", "50"])
    ax.minorticks_off()
axes[0].set(title="BLEU on validation", ylabel="BLEU", ylim=(36.5, 41.5))
axes[1].set(title="Length of the output", ylabel="words, those of the reference being 1")
axes[0].legend(frameon=False, loc="lower left")
plt.show()
over = {name: each["over greedy"] for name, each in record.items()}
assert over["beam 50, none"]["high"] < -2  # the curse of the wide beam
assert over["beam 4, gnmt 0.6"]["low"] < 0 < over["beam 4, gnmt 0.6"]["value"]
assert over["beam 5, length"]["low"] > 0.5
plain_beams = [record[f"beam {beam}, none"]["length"] for beam in (2, 4, 5, 10, 20, 50)]
assert plain_beams == sorted(plain_beams, reverse=True)
rising = [precision[f"beam {beam}, none"] for beam in (2, 4, 5, 10, 20, 50)]
assert rising == sorted(rising)

# %% [markdown]
# *Figure 3. Left: without a penalty BLEU falls from a beam of 5 on, to 3 points below greedy decoding at 50.
# Right: the output gets shorter with each wider beam. (A beam of 50 with the mean was not run.)*
#
# - **The paper's search** (beam 4, α = 0.6) brings 0.56 BLEU here. The interval, −0.10 to 1.19, includes
#   zero: a thousand sentences are not enough to be sure.
# - **The beam search curse** (Koehn and Knowles, 2017): 50 hypotheses without a penalty *lose* 3.00 BLEU
#   (2.04 to 4.07).
# - **The loss is brevity.** BLEU is a mean precision of n-grams times a penalty for output that is too
#   short. Without this factor (last column, an estimate) the precision *rises* with each wider beam, from
#   43.1 to 46.4.
# - **A stronger penalty suits this model better.** The mean brings 1.26 BLEU with a beam of 5 (0.62 to 1.88).
#
# ## What must not be computed twice
#
# At each step our `following` feeds the whole beginning to the decoder. The package feeds **one** token. It
# needs only the keys and values of the earlier positions, and those do not change, because the causal mask
# lets no position see a later one. So each layer keeps them and adds one position per step: the **key/value
# cache**. Its price is memory: [15](15_going_fast.ipynb) counts it.
#
# All hypotheses of a sentence share one cache. The tokens of a step stand side by side in it and have
# *one* position, the length of a hypothesis so far (not that of the cache); a mask tells which of them
# belong to which hypothesis. What if a program gets one of these wrong?
#
# One check catches such faults: **the books must balance.** Give the finished translation to the model as in
# training, all at once, and add up the log-probabilities of its tokens. The sum must equal what the search
# reports. We put in two faults on purpose.


# %%
def rescored(text, tokens):
    """The log-probability of a translation, teacher-forced, without any search or cache."""
    src, src_mask = sources([text])
    tgt = torch.tensor([[START_ID, *tokens, END_ID]])
    with evaluating(model):
        states = model(src, tgt[:, :-1], src_mask, subsequent_mask(tgt.size(1) - 1))
        return model.generator(states)[0].gather(1, tgt[0, 1:].unsqueeze(1)).sum().item()


def balanced(found):
    """How many winners have the log-probability that the search says."""
    pairs = zip(captions, found, strict=False)
    return sum(abs(rescored(text, h.tokens) - h.log_prob) < 1e-9 for text, h in pairs)


def unmasked(model, memory, src_mask, tokens, seen, *rest):
    """The next step's log-probabilities, with all branches of the tree open to all."""
    return next_log_probs(model, memory, src_mask, tokens, torch.ones_like(seen), *rest)


# %%
embed, some = model.tgt_embed.forward, captions[:12]
with patch.object(model.tgt_embed, "forward", lambda tokens, start: embed(tokens, start + 1)):
    shifted = [best for [best] in beams(some, beam=1)]
with patch("annotated.translation.decoding.next_log_probs", unmasked):
    leaking = {beam: [best for [best] in beams(some, beam=beam)] for beam in (1, 4)}
right = sum(best.tokens == row for best, row in zip(shifted, greedy, strict=False))
print(f"as it is, beam 8: balanced {balanced([ends[0] for ends in eight])} of {len(captions)}")
print(f"positions counted from 1: balanced {balanced(shifted)} of 12, the right words {right} of 12")
for beam, found in leaking.items():
    print(f"branches see each other, beam {beam}: balanced {balanced(found)} of 12")
assert balanced([ends[0] for ends in eight]) == len(captions)
assert balanced(shifted) == 0
assert right == 12
assert balanced(leaking[1]) == 12 > balanced(leaking[4])

# %% [markdown]
# With the positions wrong by one there is no crash, and all twelve translations stay the same: a fault that
# one can ship. If the branches of the tree see each other, every test of greedy decoding passes, because a
# beam of one has one branch.
#
# ## A mean of weights
#
# > "For the base models, we used a single model obtained by averaging the last 5 checkpoints, which were
# > written at 10-minute intervals." (section 6.1)
#
# A network is not linear in its weights, so the mean of two good networks may be a bad one. Why should
# averaging work? We try it on a small model: short sentences of the built-in grammar, German to English, a
# checkpoint every 20 updates.

# %%
short = [pair for pair in sample(4500) if len(pair.english_words) <= 9]
lines = range(1, len(short) + 1)
text = ParallelText([p.german for p in short], [p.english for p in short], list(lines), "short")
val, train = text.take(range(200)), text.take(range(200, len(short)))
bpe = SentencePieceTokenizer.train([*train.src, *train.tgt], vocab_size=800)
batches = TokenBatches(encode_corpus(train, bpe, bpe), max_tokens=400)
held_out = list(TokenBatches(encode_corpus(val, bpe, bpe), 4000, shuffle=False).epoch(0))
SEED, EVERY, UPDATES = 0, 20, 300
_ = torch.manual_seed(SEED)
config = TransformerConfig(800, 800, N=1, d_model=64, d_ff=128, h=4, dropout=0.0)
small = EncoderDecoder.from_config(config)


# %%
def train_run(model, updates, every):
    """The weights after each `every` updates; the training is that of 09."""
    stream = chain.from_iterable(map(batches.epoch, count()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    scheduler = noam_scheduler(optimizer, model_size=64, factor=1.0, warmup=100)
    compute = SimpleLossCompute(model.generator, LabelSmoothing(800, padding_idx=2, smoothing=0.1))
    checkpoints = []
    for _ in range(0, updates, every):
        run_epoch(islice(stream, every), model, compute, optimizer, scheduler)
        checkpoints.append({name: p.detach().clone() for name, p in model.named_parameters()})
    return checkpoints


# %%
def mean_of(checkpoints):
    return {name: sum(c[name] for c in checkpoints) / len(checkpoints) for name in checkpoints[0]}


def loss_of(weights):
    """Validation loss, in nats a token, of the small model with these weights."""
    load_weights(small, weights, "the notebook")
    return score_tokens(small, held_out).loss


checkpoints = train_run(small, UPDATES, EVERY)
alone = [loss_of(c) for c in checkpoints]
of_five = {n: loss_of(mean_of(checkpoints[n - 5 : n])) for n in range(5, len(checkpoints) + 1)}

# %% tags=["figure-averaging"]
fig, ax = plt.subplots()
ax.plot([EVERY * n for n in range(4, 16)], alone[3:], "o-", label="each checkpoint")
ax.plot([EVERY * n for n in of_five], of_five.values(), "s--", label="the mean of the last five")
ax.set(xlabel="update", ylabel="validation loss (nats a token)")
ax.set_title("A mean of checkpoints lags, then leads")
ax.legend(frameon=False)
plt.show()
print(f"after 100 updates: the last ≈{alone[4]:.2f} nats, the mean of five ≈{of_five[5]:.2f}")
print(f"after 300 updates: the best of the last five ≈{min(alone[10:]):.2f}, their mean ≈{of_five[15]:.2f}")
assert of_five[5] > alone[4] + 0.1
assert of_five[15] < min(alone[10:])

# %% [markdown]
# *Figure 4. Early in training the mean of the last five checkpoints is worse than the last of them; at the
# end it is better than each.*
#
# While the weights still move fast, their mean lies behind them. Later one can think of a checkpoint as a
# *common point* plus the *noise of its last batches*, and the mean averages the noise out. (This works for
# checkpoints of **one run**: two runs from different starts have no reason to order their hidden units
# alike.)
#
# And in BLEU? For the shipped model, the training log has the greedy BLEU of single checkpoints; the record
# above has that of the mean of the last ten epochs.

# %%
log = [json.loads(line) for line in (shipped_model("multi30k-en-de") / "log.jsonl").read_text().splitlines()]
single = {entry["epoch"]: entry["validation_bleu"] for entry in log if "validation_bleu" in entry}
mean_bleu = record["greedy"]["bleu"]["value"]
print("greedy, val:", ", ".join(f"epoch {epoch} {bleu:.2f}" for epoch, bleu in list(single.items())[-4:]))
print(f"the mean of the last ten epochs: {mean_bleu:.2f}")
assert max(single) == max(entry["epoch"] for entry in log)
assert 0.5 < mean_bleu - max(single.values()) < 1

# %% [markdown]
# The mean is 0.69 BLEU above the best single checkpoint that was scored, a little more than the paper's beam
# and penalty brought. That is one run of one model, without an interval.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** For how many captions does greedy decoding find the same as a beam of 4? Where it
# does not, at which token do they part? (`greedy` and `plain[4]` have the tokens.) Guess first.

# %% tags=["solution"]
parted = []
for one, two in zip(greedy, (best.tokens for best in plain[4]), strict=True):
    if one != two:
        pairs = enumerate(zip((*one, END_ID), (*two, END_ID), strict=False), start=1)
        parted.append(next(n for n, (a, b) in pairs if a != b))
print(f"the same for {len(captions) - len(parted)} of {len(captions)}")
print("the others part at token", dict(sorted(Counter(parted).items())))
assert 0 < len(parted) < 0.8 * len(captions)

# %% [markdown]
# **Exercise 2 (medium).** An *ensemble* averages the probabilities of several models, not their weights, and
# costs as many forward passes as there are models. Compare the validation loss of the ensemble of the last
# five checkpoints with that of their mean. (`loss_of` shows how to load weights; average the exponentials of
# the log-probabilities.)

# %% tags=["solution"]
total, tokens_in_all = 0.0, 0
for batch in held_out:
    likely, real = [], batch.tgt_y != bpe.pad  # (ntokens,) for each checkpoint
    for c in checkpoints[-5:]:
        load_weights(small, c, "the notebook")
        with evaluating(small):
            states = small(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)[real]
            log_probs = small.generator(states)  # (ntokens, V)
        likely.append(log_probs.gather(1, batch.tgt_y[real].unsqueeze(1)).squeeze(1).exp())
    total -= torch.stack(likely).mean(dim=0).log().sum().item()
    tokens_in_all += len(likely[0])
ensemble = total / tokens_in_all
print(f"members ≈{sum(alone[-5:]) / 5:.2f}, ensemble ≈{ensemble:.2f}, mean of weights ≈{of_five[15]:.2f}")
assert ensemble < sum(alone[-5:]) / 5  # always so: the logarithm is concave
assert abs(ensemble - of_five[15]) < 0.1

# %% [markdown]
# **Exercise 3 (hard).** Put a score of your own into the package's search: $\log P(y) + \gamma\,|y|$, a
# bonus of $\gamma$ for each token, the end symbol counted. Write a class that does what `SentenceSearch`
# does, with its own `end` and `done` (*When does it stop?* shows `done`). How much can the bonus still bring
# to an unfinished hypothesis? The test compares your search, with a beam that keeps everything, with *all*
# sentences of a small model.


# %% tags=["exercise"]
class BonusSearch(SentenceSearch):
    """A search with score log P(y) + gamma |y|."""

    gamma = 0.5

    def end(self, tokens, log_prob):
        """Append a Hypothesis(tokens, log_prob, score) to `self.ended`; the end symbol is not in `tokens`."""
        raise NotImplementedError

    def done(self, length, log_prob):
        """Whether to stop: `length` and `log_prob` are those of the best unfinished hypothesis."""
        raise NotImplementedError


# %% tags=["solution"]
# No "enough": what comes later may always be better. At most gamma times the limit is left to gain.
class BonusSearch(SentenceSearch):
    """A search with score log P(y) + gamma |y|."""

    gamma = 0.5

    def end(self, tokens, log_prob):
        score = log_prob + self.gamma * (len(tokens) + 1)
        self.ended.append(annotated.translation.decoding.Hypothesis(tuple(tokens), log_prob, score))

    def done(self, length, log_prob):
        if length >= self.limit or log_prob == -torch.inf:
            return True
        hope = log_prob + self.gamma * self.limit
        return len(self.ended) >= self.n_best and self.best()[-1].score >= hope


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
little = make_model(5, 5, N=1, d_model=16, d_ff=32, h=2).double()
question, rows = torch.randint(2, 5, (1, 6)), []
for said in chain.from_iterable(product((0, 2, 3, 4), repeat=n) for n in range(4)):  # 1 ends a sentence
    tgt = torch.tensor([[0, *said, 1]])
    with evaluating(little):
        log_probs = little.generator(little(question, tgt[:, :-1], None, subsequent_mask(len(said) + 1)))
    rows.append((said, log_probs[0].gather(1, tgt[0, 1:].unsqueeze(1)).sum().item()))
for gamma in (0.0, 0.5, 1.0, 2.5):
    search_class = type("Search", (BonusSearch,), {"gamma": gamma})
    with patch("annotated.translation.decoding.SentenceSearch", search_class):
        [[winner]] = beam_search(little, question, None, max_len=4, beam=100, alpha=0.0)
    said, log_prob = max(rows, key=lambda row, g=gamma: row[1] + g * (len(row[0]) + 1))
    print(f"gamma {gamma}: {len(winner.tokens)} tokens, score {winner.score:.3f}")
    assert winner.tokens == said
    assert math.isclose(winner.score, log_prob + gamma * (len(said) + 1), abs_tol=1e-9)

# %% [markdown]
# ## Further
#
# <details><summary>Further: other ways to decode, and to average</summary>
#
# - **Minimum Bayes risk.** Draw many translations and take the one that is most like the others (Eikema and
#   Aziz, 2020).
# - **Averages of weights.** An *exponential moving average* is kept during training. *Stochastic weight
#   averaging* (Izmailov et al., 2018) averages late checkpoints, as the paper does. *Git Re-Basin*
#   (Ainsworth et al., 2023) first matches the units of two runs.
#
# </details>
#
# Next: whole systems, their scores and their costs, in [12_results](12_results.ipynb).
