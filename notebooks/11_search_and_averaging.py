# %% [markdown]
# # 11 · Search, and a mean of weights
#
# **We watch a beam throw the right beginning away, find the likeliest translation that there is, often for
# less work than a beam of four, read what it leaves out, and make one run better by a mean of its
# weights.**
#
# Previous: [10_translation](10_translation.ipynb) · Next: [12_results](12_results.ipynb) · Greedy
# decoding, word by word: [09_first_example](09_first_example.ipynb)
#
# *40 minutes to read, under a minute to run.*
#
# - **Before:** you know what a trained model gives (a probability for each next token), what its decoder is
#   fed (07, 09), and the causal mask (02).
# - **After:** you can write beam search and its length penalty, and say what neither can do; you know when
#   the search stops, what it misses and how to find out; what a key/value cache saves, and what it must not
#   forget; when a mean of checkpoints is better than each of them; what sharing embeddings saves and costs.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 6.1.

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
import functools
import math
import re
import shutil
import tempfile
import time
from collections import Counter
from itertools import chain, count, islice
from pathlib import Path
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

# %%
from annotated import (
    DecoderCache,
    EncoderDecoder,
    LabelSmoothing,
    SentencePieceTokenizer,
    SimpleLossCompute,
    TransformerConfig,
    average_checkpoints,
    beam_search,
    capture_attention,
    evaluating,
    greedy_decode,
    load_model,
    load_pretrained,
    make_model,
    padding_mask,
    run_epoch,
    save_model,
    subsequent_mask,
)
from annotated.data import ParallelText, TokenBatches, encode_corpus
from annotated.data.grammar import sample
from annotated.plots import (
    count_parameters,
    fit_power,
    plot_against,
    plot_beam,
    plot_costs,
    plot_length_penalty,
    setup_notebook,
    show_source,
)
from annotated.transformer.schedule import noam_scheduler
from annotated.translation.decoding import SentenceSearch, length_penalty, next_log_probs, run_beams
from annotated.translation.evaluation import score_tokens

# %%
from annotated.translation.model_folder import load_weights

setup_notebook()
torch.set_num_threads(1)  # the matrices are small, and only wait for a second thread

# %% [markdown]
# ## Fourteen sentences
#
# Here is a language with fourteen sentences. After each beginning it says what may follow, and how likely;
# where it says nothing, the sentence ends. A trained model is the same kind of thing, only with more words.

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
    """The logarithm of each next word's probability, after the words `said`."""
    return {word: math.log(p) for word, p in LANGUAGE.get(" ".join(said), {END: 1.0}).items()}


# %% [markdown]
# Which is the likeliest sentence? The obvious way is to take the likeliest word at each step. It asks three
# questions and is done.

# %%
said, total = (), 0.0
while not said or said[-1] != END:
    word, log_prob = max(following(said).items(), key=lambda item: item[1])
    said, total = (*said, word), total + log_prob
print(" ".join(said), f"  probability {math.exp(total):.3f}")

# %% [markdown]
# The language is small enough to write all of it down, by following every road to its end.


# %%
def sentences(said=(), total=0.0):
    """Every sentence that begins with the words `said`, with its log-probability."""
    if said and said[-1] == END:
        return [(said, total)]
    roads = following(said).items()
    return list(chain.from_iterable(sentences((*said, word), total + lp) for word, lp in roads))


everything = sorted(sentences(), key=lambda item: -item[1])
for words, log_prob in everything[:4]:
    print(f"{math.exp(log_prob):.3f}  {' '.join(words)}")
assert len(everything) == 14

# %% [markdown]
# `ein Hund` is only second. `der Hund` is half as likely again, and it was lost at the first step, for
# `der` is the *least* likely first word. After it all is certain; after `ein` the probability is shared out
# among many. **The likeliest word does not begin the likeliest sentence.**
#
# To write everything down is no way for a real model: with $V$ words and $n$ places there are $V^n$ rows.
# So section 6.1 takes the middle way, **beam search**: at each step keep the $k$ likeliest beginnings, go
# on with each of them in all ways, and of the results again keep $k$.


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
assert found[1] == total
assert found[3] == everything[0][1]
assert found[2] < found[1] < found[3]

# %% [markdown]
# A beam of one is greedy decoding, a beam of three finds the best. But look at the beam of **two**: it is
# worse than greedy, by a factor of nearly five. Its two places after the second word go to `eine Katze` and
# `eine Frau` (0.175 each), and `ein Hund` (0.168) falls out. Then both that were kept break up into five. A
# wider beam looks at more, but it keeps what is likely *so far*, and nobody promised that this goes on.
# Whoever says that a wider beam finds likelier sentences speaks of the mean.
#
# ## A real model
#
# The same with the translator that comes with the package: English to German, trained on captions of
# photographs, four layers of width 128 a side. Here are captions of ours; it has seen none of them. Some
# are harder than what it knows.

# %%
TEXT = """
A dog runs through the grass. Two men are playing chess in the park. The man sleeps. A lady feeds the ducks.
A little girl in a pink dress is jumping over a puddle. Children are eating ice cream. Someone is swimming.
Three children play with a ball on the beach while their mother is reading. A group is sitting around a
fire. An old man with a white beard sells fruit and vegetables at a busy market. A baker puts bread into the
oven. A woman with an umbrella crosses the street in the rain. A baby in a high chair is eating noodles with
both hands. A man in a black jacket takes a picture of a bridge. A girl is blowing out the candles on her
birthday cake. The brown dog is carrying a yellow toy in its mouth. A worker repairs the roof of a house. A
child is laughing. Several men are pulling a boat out of the water. A skier jumps over a snowy hill. The
teacher reads them a story. A man and a woman who have just married are dancing. A student is writing
something on a blackboard. Two women talk. Two tired hikers with heavy backpacks rest on a rock. A boy hides
behind a curtain. A waiter drops a plate. People are waiting for a bus that is late. A gardener waters
roses. A bearded man is fixing an old radio. A fisherman shows the fish that he caught. Two boys throw
snowballs at each other. A dentist looks into the mouth of a frightened boy. A bird flies away. Many people
walk past a shop window without looking. Nobody is in the kitchen. A cook tastes the soup with a spoon. A
father holds his sleeping daughter on his arm and looks out of the window. A horse jumps over a wooden
fence. While it is snowing, an old couple with a small dog walks slowly home. A nurse smiles at a boy with a
broken arm. Two girls whisper behind a door because they want to surprise their sister.
"""
captions = [sentence.strip() for sentence in re.findall(r"[^.]+\.", TEXT.replace("\n", " "))]
print(len(captions), "captions, the longest of", max(len(caption.split()) for caption in captions), "words")

# %% [markdown]
# We compute in float64, so that the last digits cannot decide who wins.

# %%
translator = load_pretrained("multi30k-en-de")
model, words = translator.model.double(), translator.tgt_tokenizer
START_ID, END_ID = words.start, words.end


def sources(texts):
    """English sentences as the encoder reads them: tokens (B, src_len), and their mask (B, 1, src_len)."""
    src = translator.batch([translator.encode(text) for text in texts])
    return src, padding_mask(src, translator.src_tokenizer.pad)


def beams(texts, **settings):
    """The package's beam search on a list of sentences; the model never says <s> or <blank>."""
    return beam_search(model, *sources(texts), forbidden=translator.forbidden, **settings)


for text in captions[:3]:
    [[best]] = beams([text])
    print(f"{text}  ->  {words.decode(best.tokens)}")

# %% [markdown]
# Our function takes any `following`. This one is the model's, in the plainest way: it feeds the whole
# beginning to the decoder, after the start symbol, and reads off what comes next. (In training the decoder
# was fed the right words. Here there are none: it is fed its own, 07 and 09 tell that story.)
#
# Is it the package's search, then? That one works on all sentences and all their beginnings at once, with a
# cache; ours on one beginning at a time, with none. The paper's settings are a beam of 4 and $\alpha=0.6$,
# a length penalty, which we come to. (When to stop is the one thing in which the two differ, and a section
# below is about it.)


# %%
def following_of(text, most):
    """What the model says after each beginning of a translation of `text`: the `most` likeliest tokens."""
    src, src_mask = sources([text])
    with evaluating(model):
        memory = model.encode(src, src_mask)

    def following(said):
        tokens = torch.tensor([[START_ID, *said]])  # (1, len)
        with evaluating(model):
            states = model.decode(memory, src_mask, tokens, subsequent_mask(tokens.size(1)))
            log_probs = model.generator(states[0, -1])  # (V,)
        log_probs[list(translator.forbidden)] = -torch.inf
        best = log_probs.topk(most)
        return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    return following


ours = {text: functools.cache(following_of(text, 8)) for text in captions[:4]}
for alpha in (0.0, 0.6):
    for text, [theirs] in zip(ours, beams(list(ours), alpha=alpha), strict=True):
        score, tokens, log_prob = search(ours[text], beam=4, alpha=alpha, end=END_ID)
        assert_close([score, log_prob], [theirs.score, theirs.log_prob], rtol=0, atol=1e-9)
        assert tokens == theirs.tokens
print("same tokens, log-probabilities and scores, to nine decimals: True")

# %% [markdown]
# How can the package keep one batch, when beginnings die and others branch? The beginnings of a sentence,
# its **hypotheses**, are the branches of one tree. Each step scores $k\cdot V$ continuations a sentence,
# and hangs the $k$ that stay side by side into the tree, each on the branch that it continues. Then a
# branch needs no copy of what it shares with others: a mask, `seen`, says which words of the tree are its
# own. Mind the last line, which makes it; we will need it.
#
# And a beam of one? It should be greedy decoding, whatever $\alpha$ is. Below the code, on all captions:

# %%
show_source(run_beams, docstring=False)
src, src_mask = sources(captions)
forbidden = translator.forbidden
greedy = greedy_decode(model, src, src_mask, 60, START_ID, END_ID, forbidden)[:, 1:].tolist()
greedy = [tuple(row[: row.index(END_ID)]) for row in greedy]  # each without what fills it up
for alpha in (0.6, 1.0):
    assert [best.tokens for [best] in beams(captions, beam=1, alpha=alpha)] == greedy
print("a beam of one = greedy decoding, for", len(captions), "sentences and two alphas: True")

# %% [markdown]
# ### The tree
#
# `beam_search` can be watched: it shows every continuation that it weighs, and what became of it. We look
# for a small tree in which a beam of three finds something likelier than greedy decoding does.


# %%
def watched(text, **settings):
    """The winner of a search, and for each step the candidates, the likeliest first."""
    steps = []
    [[best]] = beams([text], watch=lambda _, candidates: steps.append(candidates), **settings)
    return best, steps


SIZES = (1, 2, 3, 4, 8)
plain = {beam: [best for [best] in beams(captions, beam=beam, alpha=0.0)] for beam in SIZES}
gain = [wide.log_prob - one.log_prob for wide, one in zip(plain[3], plain[1], strict=True)]
small = [i for i in range(len(captions)) if gain[i] > 0.01 and len(plain[3][i].tokens) < 9]
i = max(small, key=lambda i: plain[3][i].log_prob)
best, steps = watched(captions[i], beam=3, alpha=0.0)
print(captions[i])
print(f"beam 3: {best.log_prob:.2f}  {words.decode(best.tokens)}")
print(f"greedy: {plain[1][i].log_prob:.2f}  {words.decode(greedy[i])}")

# %%
ax = plot_beam(steps, best.tokens, words.pieces)
heavy = [line for line in ax.lines if line.get_linewidth() == 4]
ranks = [int(line.get_ydata()[1]) for line in sorted(heavy, key=lambda line: line.get_xdata()[1])]
print("the winner's rank at each step:", ranks)
assert len(ranks) == len(best.tokens) + 1
assert max(ranks) > 0  # it was not always in front, or greedy decoding would have found it
assert best.tokens == plain[3][i].tokens != greedy[i]
plt.show()

# %% [markdown]
# Each box holds a token (`▁` begins a word) and the log-probability of the whole beginning. Follow the
# heavy line: where it is not on top, greedy decoding has gone another way. White boxes were weighed and
# dropped: many are wrong, and some have nothing wrong with them but their rank.
#
# **Exercise 1.** For how many captions does greedy decoding say just what a beam of 4 says? Where it does
# not, at which word do they part?

# %% tags=["solution"]
parted = []
for one, other in zip(greedy, (best.tokens for best in plain[4]), strict=True):
    if one != other:
        pairs = enumerate(zip((*one, END_ID), (*other, END_ID), strict=False), start=1)
        parted.append(next(n for n, (a, b) in pairs if a != b))
print(f"the same for {len(captions) - len(parted)} of {len(captions)}")
print("the others part at token", dict(sorted(Counter(parted).items())))
assert 0 < len(parted) < 0.8 * len(captions)

# %% [markdown]
# ## Wider
#
# The toy was made for a trap. What does a real model do, as its beam grows from 1 to 8? We compare plain
# log-probabilities ($\alpha=0$; natural logarithms, so the unit is the **nat**), each with what greedy
# decoding found. Each thin line is a caption, cut off below −3. Where one goes *down*, the toy's trap has
# snapped.

# %%
gains = torch.tensor([[best.log_prob for best in plain[beam]] for beam in SIZES])  # (beams, captions)
gains = gains - gains[0]
lengths = [sum(len(best.tokens) for best in plain[beam]) / len(captions) for beam in SIZES]
fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), width_ratios=[3, 2])
left.plot(SIZES, gains.clamp(min=-3), color="#b0b0b0", lw=1)
left.plot(SIZES, gains.median(dim=1).values, "o--", color="#de8f05", label="median")
left.plot(SIZES, gains.mean(dim=1), "o-", color="#0173b2", lw=3, label="mean")
left.set(title="What a wider beam finds", xlabel="beam", ylabel="gain over greedy (nats)")
left.set_ylim(-3.1, None)
left.legend(frameon=False)
right.plot(SIZES, lengths, "o-", color="#d55e00", lw=3)
right.set(title="How long it is", xlabel="beam", ylabel="tokens a translation, mean")
plt.show()
steps_of = gains.diff(dim=0)  # (beams - 1, captions): from each width to the next
step, i = divmod(steps_of.argmin().item(), len(captions))
print(f"steps to a wider beam: {(steps_of > 1e-6).sum()} up, {(steps_of < -1e-6).sum()} down; the worst:")
for beam in SIZES[step : step + 2]:
    print(f"beam {beam}: {plain[beam][i].log_prob:7.2f}  {words.decode(plain[beam][i].tokens)}")
assert gains[-1].mean() > 0
assert (gains[-1] > -1e-6).double().mean() > 0.85
assert lengths[-1] < lengths[0]

# %% [markdown]
# A beam of eight is ahead of greedy decoding in the mean, and behind it for hardly a caption, if for any;
# from one width to the next there is no such promise. And the translations get **shorter**. This is the
# part that people do not expect: the search gets better, and what it finds is cut down. How far does it go?
# We would have to know the likeliest translation of all.
#
# ## As wide as it takes
#
# To try all rows of up to sixty tokens is hopeless: a vocabulary of thousands, to the sixtieth power. So
# the likeliest of all cannot be known, and most texts leave it there. Look again. Some search has found a
# translation with probability $p$, say 0.02. A beginning that is less likely than $p$ can be forgotten, for
# **a sentence is never likelier than its beginning**. And how many beginnings of the same length can be
# *likelier* than $p$? Their probabilities sum to at most 1. So **fewer than $1/p$**: here, fewer than 50.
#
# That is all. Keep every beginning that is likelier than the best sentence so far; there are never more
# than $1/p$, and when none is left, the best sentence is the best there is (Stahlberg and Byrne, 2019,
# search exactly like this, in depth).


# %%
def likeliest(text, known):
    """The likeliest translation of all, one of log-probability `known` being known, and the rows computed."""
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
# We do it for every caption whose best known translation has a probability above 1 in 500. (The others are
# the hard ones; nothing but patience forbids them.)

# %%
best_known = [max(plain[beam][i].log_prob for beam in SIZES) for i in range(len(captions))]
sure = [i for i, log_prob in enumerate(best_known) if log_prob > -math.log(500)]
exact = {i: likeliest(captions[i], best_known[i]) for i in sure}
for i, (log_prob, tokens, rows_at) in exact.items():
    assert max(rows_at) <= math.exp(-best_known[i]) + 1e-6  # fewer than 1 / p, at every length
    assert log_prob >= best_known[i] - 1e-9
    assert tokens is not None
print(f"{len(sure)} of {len(captions)} captions, each with the likeliest translation that there is")
for beam in SIZES:
    missed = sum(plain[beam][i].log_prob < exact[i][0] - 1e-6 for i in sure)
    print(f"beam {beam}: misses the likeliest {missed:2} times of {len(sure)}")

# %% [markdown]
# What did that cost? A row through the decoder is the unit: a beam of 4 takes four a step. And we must not
# forget the search that gave exact search its $p$ to begin with. The narrowest beam that found it is added
# to the bill; for most captions that is greedy decoding.


# %%
def rows_in(beam, i):
    """Rows that a beam needs to reach the end of what it found."""
    return beam * (len(plain[beam][i].tokens) + 1)


first = {i: next(b for b in SIZES if plain[b][i].log_prob > best_known[i] - 1e-9) for i in sure}
shares = sorted((sum(exact[i][2]) + rows_in(first[i], i)) / rows_in(4, i) for i in sure)
typical = shares[len(shares) // 2]
print(f"rows of exact search, those of a beam of 4 being 1: {typical:.2f} in the median")
assert typical < 1 < shares[-1]
assert sum(beam == 1 for beam in first.values()) > len(sure) / 2

fig, ax = plt.subplots()
probability = [math.exp(best_known[i]) for i in sure]
widest = [max(exact[i][2]) for i in sure]
ax.plot([0.002, 1], [500, 1], "--", color="grey", label="1 / p, more cannot be")
ax.plot(probability, widest, "o", ms=8, alpha=0.7, label="most beginnings kept at once")
ax.axhline(4, color="#de8f05", lw=1.5, label="a beam of 4")
ax.set(xscale="log", yscale="log", xlabel="p, probability of the best translation known", ylabel="beginnings")
ax.set_title("What exact search has to keep")
ax.legend(frameon=False)
assert all(width * p <= 1 + 1e-9 for width, p in zip(widest, probability, strict=True))
plt.show()

# %% [markdown]
# For a model that knows what it wants, exact search is *cheaper* than the beam that approximates it: a beam
# of 4 drags three hopeless rows along where one would do, and has one place too few where two doubts meet.
# (For the captions at the left of the figure it is dearer. That is the price of a doubt.)
#
# It also says how wide a beam must be to miss nothing: $1/p$ is enough. We ask the package.

# %%
easy = [i for i in sure if best_known[i] > -math.log(12)]
wide = beams([captions[i] for i in easy], beam=12, alpha=0.0)
assert [best.tokens for [best] in wide] == [exact[i][1] for i in easy]
print(f"the {len(easy)} captions with p > 1/12: a beam of 12 finds the likeliest every time: True")

# %% [markdown]
# And now read it. Where greedy decoding missed the likeliest, what is it that we missed? Where it is
# shorter by the most tokens comes first:

# %%
other = [i for i in sure if exact[i][1] != greedy[i]]
by_length = sorted(other, key=lambda i: len(exact[i][1]) - len(greedy[i]))
for i in by_length[:4]:
    print(captions[i])
    print(f"   greedy    1 in {math.exp(-plain[1][i].log_prob):10,.0f}   {words.decode(greedy[i])}")
    print(f"   likeliest 1 in {math.exp(-exact[i][0]):10,.0f}   {words.decode(exact[i][1])}")
shorter = sum(len(exact[i][1]) - len(greedy[i]) for i in other)
print("tokens in all, likeliest less greedy:", shorter)
assert shorter <= 0

# %% [markdown]
# Where the likeliest translation is another one, it often *says less*. Each further word, right as it may
# be, multiplies by a number below 1; whoever leaves something out saves a factor. In larger models than
# ours the likeliest output of all is, for every second sentence, the **empty** one (Stahlberg and Byrne
# again). So an exact search is not what translation wants, and "the beam is too narrow" is seldom what is
# wrong. The narrow beam hides a fault of the model's, and the length penalty is a patch on it.
#
# **Exercise 2.** Do we want the likeliest at all? Write a function that draws each next token at random by
# its probability, but only from the *nucleus*: the fewest tokens, likeliest first, whose probabilities sum
# to at least `top` (Holtzman et al., 2020). Check that a `top` near 0 is greedy decoding, and read what 1
# gives.


# %% tags=["solution"]
def sample_tokens(following, top):
    """A translation drawn at random, each token from the nucleus."""
    said = ()
    while len(said) < 40:
        tokens, log_probs = zip(*following(said).items(), strict=True)  # the likeliest first
        p = torch.tensor(log_probs).exp()
        nucleus = p.cumsum(0) - p < top  # what comes before it has not reached `top`
        token = tokens[torch.multinomial(p * nucleus, 1).item()]
        if token == END_ID:
            break
        said = (*said, token)
    return said


torch.manual_seed(0)
i = max(sure, key=lambda i: sum(exact[i][2]))
asked = functools.cache(following_of(captions[i], most=200))
assert sample_tokens(asked, top=1e-6) == greedy[i]
drawn = {top: {sample_tokens(asked, top) for _ in range(4)} for top in (1e-6, 1.0)}
print(f"near 0, greedy decoding: True; with 1, four draws differ: {len(drawn[1.0]) > 1}")
assert len(drawn[1e-6]) == 1 < len(drawn[1.0])

# %% [markdown]
# ## Why divide by length?
#
# A log-probability is a sum of negative numbers: with each word it falls. Sentences of different lengths
# compete in a game that the short ones win. The first idea is to take the *mean* a token, dividing by the
# length. Section 6.1 divides by less, with the penalty of Wu et al. (2016), at $\alpha=0.6$:
#
# $$\mathrm{score}(y) = \frac{\log P(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5+|y|}{6}\right)^{\alpha}$$
#
# The lengths count the end symbol. "Penalty" is an odd name, as it favours the long: it is the
# log-probability that is divided, and it is negative, so a larger divisor makes it *better*. In the package
# the paper's form is called `"gnmt"`, after the system of Wu et al., and a plain power of the length
# `"power"`; with $\alpha=1$ that is the mean.
#
# With the paper's penalty a beam of 8, for all captions, and all eight hypotheses of each. Where do we
# choose another winner than without it?

# %%
print("what it is divided by:  mean a token   paper, 0.6")
for n in (5, 10, 20, 40):
    print(f"{n:5} tokens {n:24.2f} {length_penalty(n, 0.6):12.2f}")
    assert math.isclose(length_penalty(n, 0.6), ((5 + n) / 6) ** 0.6)
    assert length_penalty(n, 1.0, penalty="power") == n

eight = beams(captions, beam=8, alpha=0.6, n_best=8)
flips = []
for i, ends in enumerate(eight):
    without, with_penalty = max(ends, key=lambda h: h.log_prob), ends[0]
    assert math.isclose(ends[0].score, ends[0].log_prob / ((6 + len(ends[0].tokens)) / 6) ** 0.6)
    if with_penalty != without:
        flips.append((i, without, with_penalty))
for i, without, with_penalty in flips[:4]:
    print(captions[i])
    for hypothesis in (without, with_penalty):
        print(f"   {hypothesis.log_prob:6.2f}  {hypothesis.score:7.3f}  {words.decode(hypothesis.tokens)}")
assert flips
assert all(len(saved.tokens) > len(lost.tokens) for _, lost, saved in flips)

# %% [markdown]
# The first number is the log-probability, where the upper one wins; the second the score, where the lower
# one does. Always the longer one is saved (a lower log-probability wins only over a larger divisor), and it
# is not always the better one. In the figure, the flip that needs the least $\alpha$ is followed from no
# penalty to twice the paper's.


# %%
def crossing(lost, saved):
    """The alpha at which both have the same score."""
    a, b = (len(h.tokens) + 6 for h in (lost, saved))
    return math.log(saved.log_prob / lost.log_prob) / math.log(b / a)


i, lost, saved = min(flips, key=lambda flip: crossing(*flip[1:]))
ax = plot_length_penalty([lost, saved], [words.decode(h.tokens) for h in (lost, saved)])
meeting = crossing(lost, saved)
first, second = ([h.log_prob / length_penalty(len(h.tokens) + 1, meeting)] for h in (lost, saved))
assert_close(first, second)
assert 0 < meeting < 0.6
assert ax.lines[2].get_color() == ax.lines[0].get_color()  # the dot of who wins without
assert ax.lines[3].get_color() == ax.lines[1].get_color()  # and of who wins at 0.6
ax.axvline(meeting, color="#8a8a8a", lw=1, ls=":")
plt.show()

# %% [markdown]
# What is the penalty worth, in the currency of the model? Let a hypothesis of $n$ tokens have
# log-probability $L$. A longer one with $m$ tokens may cost
#
# $$|L|\left(\frac{lp(m)}{lp(n)}-1\right)$$
#
# nats more, and still wins. For one more token this is about $\frac{\alpha}{5+n}$ of what the sentence has
# cost so far. First we check it on every pair of hypotheses that we have; then a typical sentence.

# %%
pairs = 0
for ends in eight:
    for short in ends:
        for long in (h for h in ends if len(h.tokens) > len(short.tokens)):
            ratio = ((6 + len(long.tokens)) / (6 + len(short.tokens))) ** 0.6
            allowed = -short.log_prob * (ratio - 1)
            assert (long.score > short.score) == (short.log_prob - long.log_prob < allowed)
            pairs += 1
assert pairs > 100
print("the longer one wins just where it costs less than that, more than 100 pairs: True")

n, L = 10, -4.0
for name, alpha, form in (("paper", 0.6, "gnmt"), ("paper's form", 1.0, "gnmt"), ("mean", 1.0, "power")):
    nats = -L * (length_penalty(n + 1, alpha, form) / length_penalty(n, alpha, form) - 1)
    print(f"{name:12} alpha {alpha}: one more token may cost {nats:.2f} nats, p > {math.exp(-nats):.2f}")
    assert form != "power" or math.isclose(nats, -L / n)  # by the mean, as much as the others on average

# %% [markdown]
# So at the paper's $\alpha$, in a sentence of ten tokens and −4 nats, one more token is welcome only if the
# model is 85% sure of it. The penalty decides near ties, and that is all: a word or two that are nearly
# certain once they are begun. By the mean, each token may cost as much as the others on average: any
# sentence gets better by going on about something easy.
#
# There is one more thing that it cannot do. Does $\alpha$ steer the search?

# %%
watched_at = {alpha: watched(captions[i], beam=8, alpha=alpha)[1] for alpha in (0.0, 0.6, 2.0)}
shortest = min(map(len, watched_at.values()))
same = all(watched_at[0.0][:shortest] == steps[:shortest] for steps in watched_at.values())
print("alpha 0, 0.6 and 2 weigh and drop the same beginnings:", same)
print("only how long they search differs:", {alpha: len(steps) for alpha, steps in watched_at.items()})
assert same

# %% [markdown]
# No: within one step all beginnings are equally long, and the same divisor for all changes no order. It
# only chooses among those that have *ended*, and says when to stop. What the beam has dropped no $\alpha$
# brings back.
#
# **Exercise 3.** Make a penalty of your own: $\log P(y) + \gamma\,|y|$, a bonus for each token. Choose the
# winner of each list in `eight` again, for $\gamma$ = 0, 0.2, 0.5 and 1. How long are the winners, and at
# which $\gamma$ do you agree most often with the paper's?

# %% tags=["solution"]
means = []
for gamma in (0.0, 0.2, 0.5, 1.0):
    chosen = [max(ends, key=lambda h, g=gamma: h.log_prob + g * (len(h.tokens) + 1)) for ends in eight]
    agreed = sum(choice == ends[0] for choice, ends in zip(chosen, eight, strict=True))
    means.append(sum(len(choice.tokens) for choice in chosen) / len(chosen))
    print(f"gamma {gamma}: {means[-1]:.1f} tokens, the paper's choice for {agreed} of {len(chosen)}")
assert means == sorted(means)  # a larger bonus never makes a winner shorter

# %% [markdown]
# ## When does it stop?
#
# Section 6.1: at input length + 50 at the latest, and earlier where that is possible. Where is it possible?
# Greedy decoding stops at the end symbol. A beam has $k$ hypotheses, and when one ends the others may still
# pass it. The package's rule has three ways to be done. The *limit*: then all have to end, whether they
# want to or not. *No hope*: take the likeliest unfinished beginning and give it, for free, all the length
# that the limit allows; if even so its score is not above the best that has ended, nothing that follows can
# be, for log-probabilities only fall. And, with a length penalty only, *enough*: as many as the beam is
# wide have ended. (A log-probability of `-inf` says that there is no unfinished beginning at all.) Which of
# them is it, usually?

# %%
show_source(SentenceSearch.done)


def ending_of(text, steps, alpha, beam=4):
    """Why the search for one sentence stopped."""
    if len(steps) >= len(translator.encode(text)) + 50:
        return "limit"
    ended = sum(c.fate == "ended" for step in steps for c in step)
    return "enough" if alpha > 0 and ended >= beam else "no hope"


asked = captions[:12]
searched = {alpha: [watched(text, alpha=alpha) for text in asked] for alpha in (0.0, 0.6)}  # beams of 4
for alpha, found in searched.items():
    reasons = Counter(ending_of(text, steps, alpha) for text, (_, steps) in zip(asked, found, strict=True))
    print(f"alpha {alpha}:", {reason: reasons[reason] for reason in ("limit", "enough", "no hope")})
    assert reasons["limit"] == 0
    assert (alpha == 0.6) == (reasons["enough"] > len(asked) / 2)

# %% [markdown]
# Without a penalty, a finished sentence that is likelier than every beginning left is a *proof* that this
# beam will find nothing better. With the penalty the free length makes hope cheap, and most searches end
# because they have enough, which proves nothing. A first guess: they end too early. We take that way
# away; then a search can only find more.


# %%
def patient(search, length, log_prob):
    """Stop at the limit, or when there is no hope; never because there is enough."""
    if length >= search.limit or log_prob == -torch.inf:
        return True
    hope = log_prob / length_penalty(search.limit, search.alpha)
    return bool(search.ended) and search.best()[0].score >= hope


usual = searched[0.6]
with patch.object(SentenceSearch, "done", patient):
    waited = [watched(text) for text in asked]
longer = sum(len(steps) for _, steps in waited) / sum(len(steps) for _, steps in usual)
better = [b.score > a.score + 1e-9 for (a, _), (b, _) in zip(usual, waited, strict=True)]
print(f"{longer:.1f} times as many steps; a better winner for {sum(better)} of {len(asked)}")
assert all(b.score >= a.score - 1e-9 for (a, _), (b, _) in zip(usual, waited, strict=True))
assert longer < 1.5
assert sum(better) < 3

# %% [markdown]
# Hardly a step more, and hardly anything found, if anything. By the time that four have ended, what is left
# is so much less likely that not even free length could save it. "Enough" proves nothing, and is nearly
# always right.
#
# And the limit? A trained model does not get there. Take one that cannot end:

# %%
torch.manual_seed(0)
talker = make_model(20, 20, N=1, d_model=16, d_ff=32, h=2)
with torch.no_grad():
    talker.generator.proj.bias[END_ID] = -1e4
question = torch.randint(4, 20, (1, 7))
[[answer]] = beam_search(talker, question, torch.ones(1, 1, 7, dtype=torch.bool))
print("7 tokens in,", len(answer.tokens) + 1, "out, the end symbol counted")
assert len(answer.tokens) + 1 == 7 + 50

# %% [markdown]
# ## What must not be computed twice
#
# At each step our `following` feeds the whole beginning again. The package feeds **one** token. What of the
# beginning does the new token need? Its attention asks the earlier places for their keys and values, and
# nothing else. Those do not change: the causal mask sees to it that no place hears of a later one. So each
# layer keeps its keys and values, and adds a place a step: the **key/value cache**. The keys and values of
# the source are made once and stay.

# %%
cache = DecoderCache(len(model.decoder.layers))
src, src_mask = sources(captions[:1])
tokens = torch.tensor([[START_ID, *greedy[0], END_ID]])
with evaluating(model):
    memory = model.encode(src, src_mask)
    for step in range(3):
        one = model.decode(memory, src_mask, tokens[:, step : step + 1], None, cache)  # (1, 1, d_model)
        layer = cache.layers[0]
        sizes = tuple(layer.target.key.shape), tuple(layer.memory.key.shape)
        print(f"step {step + 1}: keys of target {sizes[0]} and source {sizes[1]}, states {tuple(one.shape)}")
        whole = model.decode(memory, src_mask, tokens[:, : step + 1], subsequent_mask(step + 1))
        assert_close(one[:, 0], whole[:, -1], rtol=0, atol=1e-9)
        assert len(cache) == step + 1

# %% [markdown]
# No mask is needed: at the last place all that is kept is allowed. But the place must be known, for a
# position is added to the token before anything else, and the token comes alone. It is `len(cache)`. What
# if one counts from 1, and reads each word one place too far to the right?
#
# Here is a way to catch any such fault of a search: **its books must balance.** Give the finished
# translation to the model as in training, all at once, and add up what each token has.


# %%
def rescored(text, tokens):
    """The log-probability of a translation, teacher-forced, without any search or cache."""
    src, src_mask = sources([text])
    tgt = torch.tensor([[START_ID, *tokens, END_ID]])
    with evaluating(model):
        states = model(src, tgt[:, :-1], src_mask, subsequent_mask(tgt.size(1) - 1))
        return model.generator(states)[0].gather(1, tgt[0, 1:].unsqueeze(1)).sum().item()


def unbalanced(found):
    """The numbers of the captions whose winner has not the log-probability that the search says."""
    return [i for i, h in enumerate(found) if abs(rescored(captions[i], h.tokens) - h.log_prob) > 1e-9]


assert unbalanced([ends[0] for ends in eight]) == []
print("what the search says of its winner is what the model says, to nine decimals: True")
embed = model.tgt_embed.forward
with patch.object(model.tgt_embed, "forward", lambda tokens, start: embed(tokens, start + 1)):
    shifted = [best for [best] in beams(captions[:12], beam=1)]
same = sum(best.tokens == row for best, row in zip(shifted, greedy, strict=False))
print(f"one place off: the same words for {same} of 12, balanced books for {12 - len(unbalanced(shifted))}")
assert len(unbalanced(shifted)) == 12

# %% [markdown]
# No crash, and German sentences, the right ones even: a fault that one can ship. The books do not
# forgive it.
#
# The real trap is another one. The cache now holds a tree, and a word must see its own branch of it: that
# is `seen`, in the last line of the search. We let it see everything instead, once with greedy decoding's
# beam of one, once with a beam of 4.


# %%
def unmasked(model, memory, src_mask, tokens, seen, *rest):
    """The next step's log-probabilities, with all branches open to all."""
    return next_log_probs(model, memory, src_mask, tokens, torch.ones_like(seen), *rest)


with patch("annotated.translation.decoding.next_log_probs", unmasked):
    forgetful = {beam: [beams([text], beam=beam)[0][0] for text in captions[:12]] for beam in (1, 4)}
wrong = {beam: unbalanced(found) for beam, found in forgetful.items()}
for beam, found in wrong.items():
    print(f"beam {beam}: the books do not balance for {len(found)} of 12")
for i in wrong[4][:2]:
    print(f"   {captions[i]}  ->  {words.decode(forgetful[4][i].tokens)}")
assert len(wrong[1]) == 0 < len(wrong[4])

# %% [markdown]
# With a beam of one there is one branch, and every test of greedy decoding passes. With four, a beginning
# remembers what others said, and the sentence may derail or, worse, as in the two above, does not. (Most
# programs keep a cache for each beginning and copy it when one branches, as our exact search did with
# `cache.select(rows)`. There the same fault is to forget the copy.)
#
# ### What it saves
#
# Let us count multiplications. The $t$-th step, with a source of $S$ tokens, once with all $t$ places, once
# with one:


# %%
def products(c, t, S, cached):
    """Multiply-adds of step t: N decoder layers, and the choice of one word."""
    d, places = c.d_model, 1 if cached else t
    itself = places * (4 * d * d + 2 * t * d)  # the four linears; scores and weighted sums
    source = places * (2 * d * d + 2 * S * d)  # query and output; scores and weighted sums
    if not cached or t == 1:
        source += 2 * S * d * d  # keys and values of the memory
    return c.N * (itself + source + places * 2 * d * c.d_ff) + d * c.tgt_vocab


cache, S = DecoderCache(len(model.decoder.layers)), src.size(1)
for t in range(1, 5):
    for cached in (False, True):
        fed = tokens[:, t - 1 : t] if cached else tokens[:, :t]
        mask = None if cached else subsequent_mask(t)
        with evaluating(model), capture_attention(model), FlopCounterMode(display=False) as counter:
            states = model.decode(memory, src_mask, fed, mask, cache if cached else None)
            model.generator(states[:, -1])
        assert counter.get_total_flops() == 2 * products(model.config, t, S, cached)
print("the formula = what PyTorch counted (2 operations a multiply-add), with and without: True")

# %% [markdown]
# Then we may trust it for the paper's base model, and for lengths that nobody waits for: the left half of
# the figure. On the right a small model decodes with and without the cache, and the processor's seconds
# stand beside the count.

# %%
base, lengths = TransformerConfig.base(37_000, 37_000), [8, 16, 32, 64, 128, 256, 512, 1024]


def sentence(c, n, cached):
    """Multiply-adds of a whole sentence of n tokens, from a source of n tokens."""
    return sum(products(c, t, n, cached) for t in range(1, n + 1))


def timed(work, *inputs):
    """What `work` returns, and the processor seconds that the fastest of three runs took."""
    took = []
    for _ in range(3):
        began = time.process_time()
        result = work(*inputs)
        took.append(time.process_time() - began)
    return result, min(took)


def without_cache(model, src, n):
    with evaluating(model):
        memory, said = model.encode(src, None), torch.zeros(1, 1, dtype=torch.long)
        for t in range(1, n):
            log_probs = model.generator(model.decode(memory, None, said, subsequent_mask(t))[:, -1])
            said = torch.cat([said, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    return said


# %%
torch.manual_seed(0)
little, sizes = make_model(1000, 1000, N=2, d_model=128, d_ff=512, h=4), [16, 48, 160]
ratios = {"counted": [], "measured": []}
for n in sizes:
    src_n = torch.randint(4, 1000, (1, n))
    said, slow = timed(without_cache, little, src_n, n)
    same, fast = timed(greedy_decode, little, src_n, None, n, 0)
    assert torch.equal(said, same)
    ratios["measured"].append(slow / fast)
    ratios["counted"].append(sentence(little.config, n, False) / sentence(little.config, n, True))
assert ratios["measured"][0] < ratios["measured"][-1] < ratios["counted"][-1]

fig, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8))
curves = {
    name: (lengths, [sentence(base, n, cached) for n in lengths])
    for name, cached in (("whole beginning again", False), ("with the cache", True))
}
plot_costs(curves, "One sentence, the base model", "length (tokens)", "multiply-adds", ax=left)
plot_against(sizes, ratios, "A small model", "length (tokens)", "without / with the cache", ax=right)
right.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
right.minorticks_off()
right.legend(loc="upper left", frameon=False)
plt.show()
slow, fast = (fit_power(lengths[-4:], costs[-4:])[1] for _, costs in curves.values())
assert 1 < fast < 1.5 < 2 < slow < 3

# %% [markdown]
# Without the cache the cost grows with more than the square of the length, with it hardly faster than the
# length itself. The clock sees less of that than the count: where matrices are this small, it is the number
# of calls that takes the time, and that is the same. But it goes the same way. For an ordinary sentence,
# though, what does it save, and what is left?

# %%
n = 30
saved = sentence(base, n, False) / sentence(base, n, True)
choice = 512 * 37_000 / products(base, n, n, cached=True)
again = sum(6 * 2 * n * 512 * 512 for t in range(2, n + 1)) / (
    sentence(base, n, False) - sentence(base, n, True)
)
print(f"30 tokens: {saved:.1f} times fewer multiply-adds")
print(f"of what is saved, keys and values of the source: {again:.0%}")
print(f"of a cached step, the choice of one word out of 37,000 takes {choice:.0%}")
assert 5 < saved < 15
assert choice > 0.4

# %% [markdown]
# A fifth of what is saved has nothing to do with the target: without a cache every step projects the whole
# source again, in all layers. And of what is left, nearly half goes into scoring the 37,000 words (04 met
# that as "as much as the whole encoder").
#
# The price is memory. Each hypothesis keeps, in each layer, a key and a value for each token of its own and
# of the source. (For its own the package makes room ahead, for up to twice as many. Were there room only for
# those that are there, each step would have to move them all.)


# %%
def kept_bytes(cache):
    """Bytes of all keys and values in a cache."""
    holders = [half for layer in cache.layers for half in (layer.target, layer.memory)]
    return sum(tensor.nbytes for half in holders for tensor in (half.key, half.value))


def expected(c, hypotheses, target, source, number=4):
    return hypotheses * c.N * 2 * (target + source) * c.d_model * number


assert kept_bytes(cache) == expected(model.config, 1, len(cache), S, number=8)  # float64: 8 bytes
one = expected(base, 1, 30, 30)
weights = 4 * sum(count_parameters(base).values())
print(f"a hypothesis of 30 tokens, base model: {one / 1e6:.2f} MB; the weights: {weights / 1e6:.0f} MB")
print(f"with a beam of 4, as much as the weights at {weights / (4 * one):.0f} sentences side by side")
assert 30 < weights / (4 * one) < 60

# %% [markdown]
# ## A mean of weights
#
# Section 6.1 does not use the last weights of a run. It takes the arithmetic mean of the last five
# checkpoints, written ten minutes apart; for the big model of the last twenty. Why should that work? A
# network is not linear: half of one plus half of another is a third one, of which nobody knows anything. We
# need a run to try it on: a small model, short sentences of the built-in grammar, German to English, a
# checkpoint every 20 updates.

# %%
short = [pair for pair in sample(4500) if len(pair.english_words) <= 9]
lines = range(1, len(short) + 1)
text = ParallelText([p.german for p in short], [p.english for p in short], list(lines), "short")
val, train = text.take(range(200)), text.take(range(200, len(short)))
bpe = SentencePieceTokenizer.train([*train.src, *train.tgt], vocab_size=800)
batches = TokenBatches(encode_corpus(train, bpe, bpe), max_tokens=400)
held_out = list(TokenBatches(encode_corpus(val, bpe, bpe), 4000, shuffle=False).epoch(0))


def new_model(tied="all"):
    torch.manual_seed(0)
    config = TransformerConfig(800, 800, N=1, d_model=64, d_ff=128, h=4, dropout=0.0, tied_embeddings=tied)
    return EncoderDecoder.from_config(config)


def loss_of(model, tensors=None):
    """Validation loss, in nats a token, of a model or of other weights put into it."""
    if tensors is not None:
        load_weights(model, tensors, "the notebook")
    return score_tokens(model, held_out).loss


# %% [markdown]
# The training is that of 09. It gives the weights at each checkpoint.


# %%
def train_run(model, updates, every):
    """The weights after each `every` updates."""
    stream = chain.from_iterable(map(batches.epoch, count()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    scheduler = noam_scheduler(optimizer, model_size=64, factor=1.0, warmup=100)
    compute = SimpleLossCompute(model.generator, LabelSmoothing(800, padding_idx=2, smoothing=0.1))
    checkpoints = []
    for _ in range(0, updates, every):
        run_epoch(islice(stream, every), model, compute, optimizer, scheduler)
        checkpoints.append({name: p.detach().clone() for name, p in model.named_parameters()})
    return checkpoints


def mean_of(checkpoints):
    return {name: sum(c[name] for c in checkpoints) / len(checkpoints) for name in checkpoints[0]}


EVERY, UPDATES = 20, 300
small = new_model()
checkpoints = train_run(small, UPDATES, EVERY)
alone = [loss_of(small, c) for c in checkpoints]
of_five = {n: loss_of(small, mean_of(checkpoints[n - 5 : n])) for n in range(5, len(checkpoints) + 1)}
print(f"from more than 4 nats to less than 2.5: {alone[0] > 4 and alone[-1] < 2.5}")
assert alone[0] > 4
assert alone[-1] < 2.5

# %%
fig, ax = plt.subplots()
at = [EVERY * (n + 1) for n in range(len(checkpoints))]
ax.plot(at[3:], alone[3:], "o-", label="each checkpoint")
ax.plot([EVERY * n for n in of_five], of_five.values(), "s--", label="the mean of the last five")
ax.set(xlabel="update", ylabel="validation loss (nats a token)")
ax.set_title("A mean of checkpoints lags, then leads")
ax.legend(frameon=False)
ax.grid(True)
plt.show()
print("after 100 updates the mean is worse than the last: ", of_five[5] > alone[4])
print("at the end it is better than each of the five:     ", of_five[15] < min(alone[10:]))
assert of_five[5] > alone[4]
assert of_five[15] < min(alone[10:])

# %% [markdown]
# Both happen. While a model still moves fast, the mean of where it was is behind where it is. Later one may
# think of a checkpoint as *a place reached* plus *the noise of the last few batches*; the place they share,
# and the noise averages out. So one averages at the end, and checkpoints that are apart in time, for their
# noise must differ.
#
# With the package, a checkpoint is a folder:

# %%
folder = Path(tempfile.mkdtemp())
for n, weights_at in enumerate(checkpoints[-5:]):
    load_weights(small, weights_at, "the notebook")
    save_model(folder / str(n), small, bpe, bpe)
mean = average_checkpoints([folder / str(n) for n in range(5)])
assert_close(mean, mean_of(checkpoints[-5:]))
again, *_ = load_model(folder / "4")
assert math.isclose(loss_of(again), alone[-1], rel_tol=1e-5)
assert math.isclose(loss_of(again, mean), of_five[15], rel_tol=1e-5)
shutil.rmtree(folder)
print("average_checkpoints = the mean by hand, and as good: True")

# %% [markdown]
# ### The valley, and the wall
#
# So may one average any two good models? The hardest test that we can think of: a model and **itself**.
# Nothing says in which order a feed-forward network keeps its hidden units, or attention its heads and
# their entries. Put them in another order, in all matrices that know of them, and it is the same function
# with other weights.


# %%
def reordered(model):
    """The same function: a copy with its hidden units, and the entries of its heads, in another order."""
    twin = EncoderDecoder.from_config(model.config)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        for layer in chain(twin.encoder.layers, twin.decoder.layers):
            network = layer.feed_forward
            order = torch.randperm(len(network.w_1.bias))
            network.w_1.weight.copy_(network.w_1.weight[order])
            network.w_1.bias.copy_(network.w_1.bias[order])
            network.w_2.weight.copy_(network.w_2.weight[:, order])
            for name in ("self_attn", "src_attn"):
                if (attend := getattr(layer, name, None)) is not None:
                    grid = torch.arange(64).view(attend.h, attend.d_k)  # a row a head
                    order = grid[torch.randperm(attend.h)][:, torch.randperm(attend.d_k)].flatten()
                    for linear in attend.linears[:3]:
                        linear.weight.copy_(linear.weight[order])
                        linear.bias.copy_(linear.bias[order])
                    attend.linears[3].weight.copy_(attend.linears[3].weight[:, order])
    return twin


# %%
torch.manual_seed(0)
load_weights(small, checkpoints[-1], "the notebook")
twin = dict(reordered(small).named_parameters())
way = torch.linspace(-0.5, 1.5, 9).tolist()


def along(start, end):
    """The loss at points of the straight line from `start` (0) through `end` (1)."""
    return [loss_of(small, {k: (1 - t) * start[k] + t * end[k].detach() for k in start}) for t in way]


valley, wall = along(checkpoints[-5], checkpoints[-1]), along(checkpoints[-1], twin)
assert math.isclose(wall[2], wall[6], rel_tol=1e-4)  # t = 0 and t = 1: the same function

# %%
fig, ax = plt.subplots()
ax.plot(way, valley, "o-", label=f"from update {UPDATES - 4 * EVERY} to update {UPDATES} of one run")
ax.plot(way, wall, "s--", label="from the model to itself, in another order")
for t in (0, 1):
    ax.axvline(t, color="grey", lw=1, ls=":")
ax.set(xlabel="place on the line (0 and 1: the two models)", ylabel="validation loss (nats a token)")
ax.set_title("Halfway between two models")
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
plt.show()
sags = valley[4] < (valley[2] + valley[6]) / 2
print("halfway between two checkpoints, better than their mean loss:", sags)
print("halfway between a model and itself, worse by over half a nat:", wall[4] > wall[2] + 0.5)
assert sags
assert wall[4] > wall[2] + 0.5

# %% [markdown]
# Between two checkpoints of one run there is a valley: the loss sags. Between a model and its own twin
# there is a wall. Two runs from different starts have no reason to order their units alike, so at least
# such a wall is to be expected between them. **What is averaged must have grown on one tree.**
#
# **Exercise 4.** An *ensemble* averages probabilities instead of weights: any models will do, and it costs
# as many forward passes as there are models. What is the validation loss of the ensemble of the last five
# checkpoints, beside that of their mean? (Average the exponentials of the log-probabilities.)

# %% tags=["solution"]
total, tokens_in_all = 0.0, 0
with evaluating(small):
    for batch in held_out:
        likely = []  # (ntokens,) for each checkpoint
        for c in checkpoints[-5:]:
            load_weights(small, c, "the notebook")
            real = batch.tgt_y != bpe.pad
            states = small(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)[real]
            log_probs = small.generator(states)  # (ntokens, V)
            likely.append(log_probs.gather(1, batch.tgt_y[real].unsqueeze(1)).squeeze(1).exp())
        total -= torch.stack(likely).mean(dim=0).log().sum().item()
        tokens_in_all += len(likely[0])
ensemble = total / tokens_in_all
print("the ensemble, better than the mean loss of its members:", ensemble < sum(alone[-5:]) / 5)
near = abs(ensemble - of_five[15]) < 0.1
print("the mean of weights, within 0.1 nats of it, at a fifth of the cost:", near)
assert ensemble < sum(alone[-5:]) / 5  # always so: the logarithm is concave
assert near

# %% [markdown]
# ## One matrix, or three?
#
# Section 3.4 has one matrix for both embeddings and for the output, and 04 shows how that is done, what it
# saves and what pulls at it. Is the model better for it? A first guess: fewer numbers are learned sooner.
# The same run once more, from three matrices, as far as update 200:

# %%
apart = new_model(tied="none")
curves = {"one matrix": alone}
curves["three matrices"] = [loss_of(apart, c) for c in train_run(apart, 200, EVERY)]
both = zip(curves, (small, apart), strict=True)
sizes = {name: sum(p.numel() for p in m.parameters()) for name, m in both}
fig, ax = plt.subplots()
for (name, losses), style in zip(curves.items(), ("o-", "s--"), strict=True):
    ax.plot(at[: len(losses)], losses, style, label=f"{name}, {sizes[name]:,} parameters")
ax.set(title="The same run, shared and not", xlabel="update", ylabel="validation loss (nats a token)")
ax.legend(frameon=False)
ax.grid(True)
plt.show()
ahead = [b < a for a, b in zip(*curves.values(), strict=False)]  # the second run is shorter
print("three matrices are ahead at more than 7 of 10 checkpoints:", sum(ahead) > 7)
assert sizes["three matrices"] - sizes["one matrix"] == 2 * 800 * 64
assert sum(ahead) > 7
assert curves["three matrices"][-1] < curves["one matrix"][9] - 0.05

# %% [markdown]
# The guess was wrong, in this run at least. Three matrices have more numbers to fit with, and each has one
# job; the one has to be read as German, as English, and to score. That is a short run of a tiny model, and
# it says nothing of the end of a long one. What sharing surely does is to save: in the model that
# translated our captions the one matrix is nearly half of all numbers, and three would nearly double the
# file.

# %%
numbers = {
    tied: sum(count_parameters(TransformerConfig(**{**vars(model.config), "tied_embeddings": tied})).values())
    for tied in ("all", "none")
}
table = model.generator.proj.weight.detach()
print(f"one matrix: {table.numel() / numbers['all']:.0%} of all parameters")
print(f"three: {numbers['none'] / numbers['all']:.1f} times as many")
assert numbers["all"] == sum(p.numel() for p in model.parameters())
assert numbers["none"] - numbers["all"] == 2 * table.numel()

# %% [markdown]
# And what is in it? One matrix, two languages: one expects *dog* and *Hund* side by side. We take words
# that are one piece each, and look for the rows at the smallest angle to theirs.

# %%
known = {piece: n for n, piece in enumerate(words.pieces(range(len(words))))}
WORDS = """
dog Hund man Mann woman Frau girl Mädchen boy Junge street Straße two zwei water Wasser child Kind
beach Strand three drei house Haus cat Katze tree Baum horse Pferd car Auto people Personen
"""
listed = WORDS.split()
pairs = [
    (known["▁" + a], known["▁" + b])
    for a, b in zip(listed[::2], listed[1::2], strict=True)
    if "▁" + a in known and "▁" + b in known
]
unit = F.normalize(table, dim=-1)
english, german = (torch.tensor(side) for side in zip(*pairs, strict=True))
cosines = unit[english] @ unit.T  # (pairs, V)
nearest = cosines.scatter(1, english.unsqueeze(1), -1.0).topk(3)  # each word's own row left out
for row, (a, b) in enumerate(pairs[:6]):
    close = ", ".join(piece.strip("▁") for piece in words.pieces(nearest.indices[row].tolist()))
    one, other = (words.decode([piece]).strip() for piece in (a, b))
    print(f"{one:7} nearest: {close};  cosine with {other}: {cosines[row, b]:.2f}")
to_translation = cosines.gather(1, german.unsqueeze(1)).mean().item()
to_nearest = nearest.values[:, 0].mean().item()
print("the translation, less than half as close as the nearest word:", to_translation < to_nearest / 2)
assert len(pairs) >= 8
assert to_translation < to_nearest / 2

# %% [markdown]
# They are not. Near an English word is mostly what could stand in its place in an English caption: another
# form of it, a synonym, its like. The translation stands far off. Two languages live in the one matrix as
# in two rooms, and to get from one to the other is what the layers between are for. What the sides really
# share are the rows of pieces that both use: names, numbers, the full stop.
#
# Search, penalty, cache and mean together are what section 6.1 adds to a trained model. What it is worth in
# BLEU, on a test set and with error bars, is the matter of [12_results](12_results.ipynb).
