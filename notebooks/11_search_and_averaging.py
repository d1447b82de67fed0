# %% [markdown]
# # 11 · Search and averaging
#
# **A trained model gives probabilities, not sentences. We watch a beam lose the best beginning, find the
# most probable translation of all, and measure what a beam, a length penalty and averaging add to BLEU.**
#
# Previous: [10_translation](10_translation.ipynb) · Next: [12_results](12_results.ipynb) · Greedy decoding,
# word by word: [09_first_example](09_first_example.ipynb)
#
# *24 minutes to read, a minute to run.*
#
# - **Before:** you know that the decoder gives a probability for each next token and reads its own output
#   when it translates (07, 09), what the causal mask does (02), and what BLEU counts (10).
# - **After:** you can write beam search with a length penalty and say what neither can do, check a search,
#   and explain the key/value cache and why averaged weights can be better than each checkpoint.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 6.1.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from itertools import chain, count, islice, product
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
from torch.testing import assert_close

# %%
from annotated import (
    DecoderCache,
    LabelSmoothing,
    SentencePieceTokenizer,
    SimpleLossCompute,
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
from annotated.plots import plot_beam, setup_notebook
from annotated.search.beam import SentenceSearch, next_log_probs
from annotated.transformer.schedule import noam_scheduler
from annotated.translation.evaluate import recorded

# %%
from annotated.translation.model_folder import load_weights
from annotated.validation import score_tokens

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
assert everything[1][0] == said

# %% [markdown]
# Greedy decoding finds only the second best. `der Hund` is 1.5 times as probable, although `der` is the
# *least* probable first word. **The most probable word need not begin the most probable sentence.**
#
# > "We used beam search with a beam size of 4 and length penalty α = 0.6." (section 6.1)
#
# With $V$ words and $n$ steps there are $V^n$ sentences, too many for a real model. **Beam search** keeps
# the $k$ most probable beginnings, continues each with every word, keeps the $k$ most probable of the
# results, and so on. Those of these $k$ that have ended are set aside, and others take their places.


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
    # The end symbol counts as a word. With alpha 0, no length penalty (see below), the score is lp itself.
    scored = [(lp / ((5 + len(words)) / 6) ** alpha, words[:-1], lp) for words, lp in ended]
    return max(scored)


found = {}
for beam in (1, 2, 3):
    _, words, found[beam] = search(following, beam)
    print(f"beam {beam}:  {math.exp(found[beam]):.3f}  {' '.join(words)}")
assert found[1] == total  # a beam of one is greedy decoding
assert found[2] < found[1] - math.log(4)

# %% [markdown]
# A beam of three finds the best sentence. The beam of **two** does worse than greedy decoding: its sentence
# is nearly five times less probable. After the second word it keeps `eine Katze` and `eine Frau` (0.175
# each), and drops `ein Hund` (0.168). Then each of the two splits into five sentences. A beam keeps what is
# probable *so far*, so a wider beam usually finds a more probable sentence, but not always.
#
# ## A real model
#
# Now the translator that comes with the package: English to German, four layers of width 128 on each side,
# trained on captions of photographs (Multi30k). We wrote the captions below. With float64, no rounding
# decides which translation wins.

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
captions = [" ".join(caption.split()) + "." for caption in TEXT.split(".")[:-1]]
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
# once. Do they agree? (At $\alpha = 0$ they stop differently, and could disagree.)

# %%
ours = {text: following_of(text, 5) for text in captions[:4]}  # four to keep, and </s>
for alpha in (0.0, 0.6):
    for text, [theirs] in zip(ours, beams(list(ours), alpha=alpha), strict=True):
        score, tokens, log_prob = search(ours[text], beam=4, alpha=alpha, end=END_ID)
        assert_close([score, log_prob], [theirs.score, theirs.log_prob], rtol=0, atol=1e-9)
        assert tokens == theirs.tokens
src, src_mask = sources(captions)
greedy = greedy_decode(model, src, src_mask, 60, START_ID, END_ID, forbidden)[:, 1:].tolist()
greedy = [tuple(row[: row.index(END_ID)]) for row in greedy]
assert [best.tokens for [best] in beams(captions, beam=1)] == greedy
print(f"beam 4, two alphas: the same tokens and scores for {len(ours)} captions")

# %% [markdown]
# ### The tree
#
# A beginning, finished or not, is called a **hypothesis**. Hypotheses are the branches of a tree. We watch it
# grow for *A man carves wood.*, which greedy decoding gets wrong and a beam of three gets right.


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
print(f"beam 3: {best.log_prob:.2f}  {words.decode(best.tokens)}")
print(f"greedy: {plain[1][chosen].log_prob:.2f}  {words.decode(greedy[chosen])}")

# %% tags=["figure-tree"]
ax = plot_beam(steps, best.tokens, words.pieces)
ax.set_yticks(range(6), range(1, 7))
assert steps[2][0].tokens == greedy[chosen][:3]
assert steps[2][1].tokens == best.tokens[:3]
plt.show()

# %% [markdown]
# *Figure 1. The tree of one search. A box holds a token (▁ begins a word) and the log-probability of the
# whole hypothesis. At step 3 the winner is second, and greedy decoding took the comma. At step 6 the ended
# hypothesis takes no place in the beam of three.*

# %% [markdown]
# ## As wide as it takes
#
# Nobody can try all translations: there are thousands of tokens to the power of sixty. But suppose that a
# search has found one with probability $p$, for example 0.02. To find the most probable one, we can drop each
# beginning less probable than $p$, because **a sentence is never more probable than its beginning**. How many
# beginnings of the same length can be *more* probable? Their probabilities sum to at most 1, so there are
# **fewer than $1/p$**: here, fewer than 50.
#
# **Exact search** keeps every beginning that is more probable than the best sentence so far. When none is
# left, no better sentence exists. (Stahlberg and Byrne, 2019, use the same bound.)


# %%
def likeliest(text, known):
    """The likeliest translation of all, given that one has log-probability `known`; the rows of each step."""
    src, src_mask = sources([text])
    best, winner, rows_at = known - 1e-9, None, []
    with evaluating(model):
        memory, cache = model.encode(src, src_mask), DecoderCache(len(model.decoder.layers))
        tokens, totals = torch.full((1, 1), START_ID), torch.zeros(1, dtype=torch.float64)
        while len(tokens):  # a row for each beginning that is kept
            rows_at.append(len(tokens))
            source = (given.expand(len(tokens), -1, -1) for given in (memory, src_mask))
            log_probs = model.generator(model.decode(*source, tokens[:, -1:], None, cache)[:, -1])
            log_probs[:, list(forbidden)] = -torch.inf  # (rows, V)
            longer = totals.unsqueeze(1) + log_probs
            ending, row = longer[:, END_ID].max(dim=0)
            if ending > best:
                best, winner = ending.item(), tuple(tokens[row, 1:].tolist())
            longer[:, END_ID] = -torch.inf
            rows, token = (longer > best).nonzero(as_tuple=True)
            totals = longer[rows, token]
            tokens = torch.cat([tokens[rows], token.unsqueeze(1)], dim=1)
            cache.select(rows)  # "What must not be computed twice" explains the cache
    return best, winner, rows_at


# %% [markdown]
# We do this for every caption for which beams of 1 to 8 found a translation more probable than 1 in 500.

# %%
best_known = [max(plain[beam][i].log_prob for beam in SIZES) for i in range(len(captions))]
sure = [i for i, log_prob in enumerate(best_known) if log_prob > -math.log(500)]
exact = {i: likeliest(captions[i], best_known[i]) for i in sure}
for i, (_, _, rows_at) in exact.items():
    assert max(rows_at) <= math.exp(-best_known[i]) + 1e-6  # fewer than 1 / p, at every length
missed = {beam: sum(plain[beam][i].log_prob < exact[i][0] - 1e-6 for i in sure) for beam in SIZES}
print(f"{len(sure)} of {len(captions)} captions, each with the likeliest translation that there is")
widest = max(sure, key=lambda i: max(exact[i][2]))
print(f"most beginnings kept: {max(exact[widest][2])}, where 1/p is {math.exp(-best_known[widest]):.0f}")
for beam, misses in missed.items():
    print(f"beam {beam}: misses it for {misses:2} of {len(sure)}")
assert missed[1] > missed[4] == missed[8] == 0

# %% [markdown]
# What did greedy decoding miss? And is the **empty** translation, `</s>` alone, ever likelier than what the
# beams found?

# %%
other = [i for i in sure if exact[i][1] != greedy[i]]
for i in other:
    print(captions[i])
    print(f"   greedy    1 in {math.exp(-plain[1][i].log_prob):10,.0f}   {words.decode(greedy[i])}")
    print(f"   likeliest 1 in {math.exp(-exact[i][0]):10,.0f}   {words.decode(exact[i][1])}")
after = following_of(captions[other[1]], 4)(exact[other[1]][1][:-1]).items()
print("after Schneeball:", *(f"{words.decode([token])} {math.exp(lp):.3f}" for token, lp in after))
empty = [following_of(text, 10_000 - len(forbidden))(())[END_ID] for text in captions]  # all tokens
hidden = [i for i, known in enumerate(best_known) if empty[i] > known]
print("the empty translation is likelier than the best that the beams found:")
for i in hidden:
    print(f"empty 1 in {math.exp(-empty[i]):,.0f}, found 1 in {math.exp(-best_known[i]):,.0f}: {captions[i]}")
assert all(0 < len(exact[i][1]) < len(greedy[i]) for i in other)
assert len(hidden) == 2

# %% [markdown]
# The likeliest translation has fewer tokens each time. The wood's is better: greedy decoding wrote *A man who
# wood a wooden board builds*. The other three are wrong: *A cook with a spoon* does not taste, the boys do
# not throw at each other, and *Rad* is a wheel. After *Schneeball* the full stop is only fourth. It wins
# because longer translations share their probability: each preposition begins several.
#
# Stahlberg and Byrne found the empty translation likeliest for over half of all sentences. Our 27, chosen for
# a probable translation, never show it. But for two of the other four it beats all that the beams found: each
# dropped it at once. So the most probable translation need not be a good one, and a narrow beam can hide this
# error of the *model*.
#
# ## Why divide by length?
#
# A log-probability is a sum of negative numbers and falls with each token. Section 6.1 cites Wu et al.
# (2016, the system GNMT), who divide it by a **length penalty**:
#
# $$\mathrm{score}(y) = \frac{\log P(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5+|y|}{6}\right)^{\alpha}$$
#
# $|y|$ counts the end symbol. The penalty favours *long* translations, because dividing a negative number by
# more brings it nearer to 0. If we divide by $|y|$ itself, the score is the **per-token mean** of the
# log-probability (*length normalisation*; in the package `penalty="power"` with $\alpha = 1$). When does the
# paper's penalty change the winner among the eight results of a beam of 8?

# %%
eight = beams(captions, beam=8, alpha=0.6, n_best=8)
likely = [max(ends, key=lambda h: h.log_prob) for ends in eight]
flips = [(i, likely[i], ends[0]) for i, ends in enumerate(eight) if ends[0] != likely[i]]
print(f"the penalty chooses another winner for {len(flips)} of {len(captions)} captions")
for i, *both in flips:
    print(captions[i])
    for h in both:
        print(f"   log-probability {h.log_prob:.2f}, score {h.score:.3f}   {words.decode(h.tokens)}")
assert len(flips) == 1

# %% [markdown]
# The upper line has the better log-probability, the lower one the better score. Only a longer translation can
# win in this way: here, one with *auf einander*, at each other.
#
# The penalty does not steer the beam: within a step all hypotheses have one length, so no order changes. It
# chooses among the *ended* hypotheses. No $\alpha$ brings back what the beam dropped.
#
# ## When does it stop?
#
# > "We set the maximum output length during inference to input length + 50, but terminate early when
# > possible." (section 6.1)
#
# Another hypothesis may still overtake the first one that ended. The package has three reasons to stop:
#
# - *Limit*: the maximum length is reached.
# - *Enough*: with a penalty, as many hypotheses have ended as the beam is wide.
# - *No hope*: even if the best unfinished hypothesis grew to the limit and each new token had probability 1,
#   its score would not beat the best ended one.

# %%
ends = [sum(c.fate == "ended" for step in watched(text)[1] for c in step) for text in captions]
enough = sum(count >= 4 for count in ends)
print(f"beam 4, alpha 0.6: {enough} of {len(captions)} searches stop because they have enough")
assert len(captions) / 2 < enough < len(captions)

# %% [markdown]
# Without a penalty, only *no hope* or the limit ends a search. With one, most searches stop at *enough*,
# which proves nothing: an unfinished hypothesis might still win.
#
# ## Section 6.1 in BLEU
#
# > "These hyperparameters were chosen after experimentation on the development set." (section 6.1)
#
# We read a record for this model on the 1,014 captions of Multi30k's validation split. Each search is
# compared with greedy decoding on the same sentences (paired bootstrap, [10](10_translation.ipynb)).
# `none` is no penalty (and no *enough*), `gnmt 0.6` the paper's.

# %%
record = recorded("search")["multi30k-en-de"]["val"]
print("search                    BLEU   over greedy, 95% interval   length ratio   BLEU / brevity penalty")
precision = {}
for name, each in record.items():
    over = each["over greedy"]
    precision[name] = each["bleu"]["value"] / min(1.0, math.exp(1 - 1 / each["length"]))
    interval = f"{over['value']:+.2f} ({over['low']:+.2f} to {over['high']:+.2f})"
    shown = f"{name.replace('length', 'per-token mean'):23}{each['bleu']['value']:7.2f}"
    print(f"{shown}   {interval:25}{each['length']:14.3f}{precision[name]:25.1f}")
test = recorded("search")["multi30k-en-de"]["test_2016_flickr"]["beam 5, length"]["over greedy"]
print(f"test split: beam 5, per-token mean, {test['value']:+.2f} ({test['low']:+.2f} to {test['high']:+.2f})")

# %% tags=["figure-bleu-by-beam"]
LABELS = {"none": "no penalty", "gnmt 0.6": "the paper's, α = 0.6", "length": "per-token mean"}
over = {name: each["over greedy"] for name, each in record.items()}
fig, ax = plt.subplots()
for penalty, mark, shift in zip(LABELS, "os^", (0.95, 1, 1.05), strict=True):
    beams_run = [b for b in (2, 4, 5, 10, 20, 50) if f"beam {b}, {penalty}" in over]
    value, low, high = torch.tensor([list(over[f"beam {b}, {penalty}"].values()) for b in beams_run]).T
    at = [shift * b for b in beams_run]
    ax.errorbar(at, value, [value - low, high - value], fmt=f"{mark}-", capsize=3, label=LABELS[penalty])
    assert penalty == "none" or (low if penalty == "length" else value).min() > 0
ax.axhline(0, color="grey", lw=1)
ax.set(xscale="log", xlabel="beam", ylabel="BLEU over greedy decoding", title="A wide beam needs a penalty")
ax.set_xticks([2, 4, 5, 10, 20, 50], ["2", "4", "5", "10", "20", "50"])
ax.minorticks_off()
ax.legend(frameon=False, loc="lower left")
plt.show()
assert over["beam 50, none"]["high"] < over["beam 4, gnmt 0.6"]["low"] < 0
assert sorted(rising := [precision[f"beam {b}, none"] for b in (2, 4, 5, 10, 20, 50)]) == rising

# %% [markdown]
# *Figure 2. BLEU over greedy decoding (grey line), with 95% intervals, drawn side by side. Only beam 50
# without a penalty clearly loses.*
#
# - **The paper's search** (beam 4, α = 0.6) brings 0.56 BLEU here. The interval, −0.10 to 1.19, includes
#   zero: a thousand captions are not enough to be sure.
# - **The beam search curse.** A beam of 50 without a penalty *loses* 3.00 BLEU (2.04 to 4.07). Koehn and
#   Knowles (2017) reported such losses; the name is from Yang, Huang and Ma (2018).
# - **Brevity explains the loss** (Murray and Chiang, 2018). BLEU is a mean precision of n-grams times a
#   *brevity penalty* for short output. Without this factor (last column, estimated from lengths in whole
#   words) unpenalised precision *rises* with the beam. That alone proves little, because short output may
#   leave out what is difficult. But with a length penalty no wide beam's estimate is below greedy decoding.
# - **Which penalty?** The per-token mean brings most at every beam, and its intervals lie above zero: 0.62
#   to 1.88 for a beam of 5. But nothing compares it with the paper's penalty directly, and the best of 18
#   settings was chosen on the sentences that score it. On the test split it still brings 0.18 to 1.41.
#
# ## What must not be computed twice
#
# At each step our `following` feeds the whole beginning to the decoder. The package feeds **one** token. It
# needs only the keys and values of the earlier positions, and those do not change, because the causal mask
# lets no position see a later one. So each layer keeps them, and the source's, and adds one position per
# step: the **key/value cache**. Its price is memory ([15](15_going_fast.ipynb)).
#
# `likeliest` keeps a row for each beginning. `beam_search` keeps one cache for the whole tree: a mask shows
# each hypothesis only its own tokens, and a token's position is its depth in the tree.
#
# **Forced decoding** finds faults in both: give the translation to the model all at once, as in training, and
# add up the log-probabilities of its tokens. The sum must equal what the search reports. (A beam that drops
# the wrong hypothesis still passes.) We put in two faults on purpose.


# %%
def rescored(text, tokens):
    """The log-probability of a translation, given to the model all at once, without search or cache."""
    src, src_mask = sources([text])
    tgt = torch.tensor([[START_ID, *tokens, END_ID]])
    with evaluating(model):
        states = model(src, tgt[:, :-1], src_mask, subsequent_mask(tgt.size(1) - 1))
        return model.generator(states)[0].gather(1, tgt[0, 1:].unsqueeze(1)).sum().item()


def confirmed(found):
    """How many winners have the log-probability that the search reports."""
    pairs = zip(captions, found, strict=False)
    return sum(abs(rescored(text, h.tokens) - h.log_prob) < 1e-9 for text, h in pairs)


def unmasked(model, memory, src_mask, tokens, seen, *rest):
    """The next step's log-probabilities, with all branches of the tree open to all."""
    return next_log_probs(model, memory, src_mask, tokens, torch.ones_like(seen), *rest)


# %%
embed, some = model.tgt_embed.forward, captions[:12]
with patch.object(model.tgt_embed, "forward", lambda tokens, start: embed(tokens, start + 1)):
    shifted = [best for [best] in beams(some, beam=1)]
with patch("annotated.search.beam.next_log_probs", unmasked):
    leaking = {beam: [best for [best] in beams(some, beam=beam)] for beam in (1, 4)}
right = sum(best.tokens == row for best, row in zip(shifted, greedy, strict=False))
print(f"as it is, beam 8: confirmed {confirmed([ends[0] for ends in eight])} of {len(captions)}")
print(f"positions counted from 1: confirmed {confirmed(shifted)} of 12, the right words {right} of 12")
for beam, found in leaking.items():
    print(f"branches see each other, beam {beam}: confirmed {confirmed(found)} of 12")
assert confirmed([ends[0] for ends in eight]) == len(captions)
assert (confirmed(shifted), right) == (0, 12)
assert confirmed(leaking[1]) == 12 > confirmed(leaking[4])

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
lines = list(range(1, len(short) + 1))
text = ParallelText([p.german for p in short], [p.english for p in short], lines, "short")
val, train = text.take(range(200)), text.take(range(200, len(short)))
bpe = SentencePieceTokenizer.train([*train.src, *train.tgt], vocab_size=800)
batches = TokenBatches(encode_corpus(train, bpe, bpe), max_tokens=400)
held_out = list(TokenBatches(encode_corpus(val, bpe, bpe), 4000, shuffle=False).epoch(0))
EVERY = 20
_ = torch.manual_seed(0)
small = make_model(800, 800, N=1, d_model=64, d_ff=128, h=4, dropout=0.0, tied_embeddings="all")


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


checkpoints = train_run(small, 300, EVERY)
alone = [loss_of(c) for c in checkpoints]
of_five = {n: loss_of(mean_of(checkpoints[n - 5 : n])) for n in range(5, len(checkpoints) + 1)}

# %% tags=["figure-averaging"]
fig, ax = plt.subplots()
ax.plot([EVERY * n for n in range(4, 16)], alone[3:], "o-", label="each checkpoint")
ax.plot([EVERY * n for n in of_five], of_five.values(), "s--", label="the mean of the last five")
ax.set(xlabel="update", ylabel="nats a token", title="Validation loss: the mean lags, then leads")
ax.legend(frameon=False)
plt.show()
print(f"after 100 updates: the last ≈{alone[4]:.2f} nats, the mean of five ≈{of_five[5]:.2f}")
print(f"after 300 updates: the best of the last five ≈{min(alone[10:]):.2f}, their mean ≈{of_five[15]:.2f}")
assert of_five[5] > alone[4] + 0.1
assert of_five[15] < min(alone[10:])

# %% [markdown]
# *Figure 3. Early in training the mean of the last five checkpoints is worse than the last of them; at the
# end it is better than each.*
#
# While the weights still move fast, their mean lies behind them. Later one can think of a checkpoint as a
# *common point* plus the *noise of its last batches*, and the mean averages the noise out. (A lower learning
# rate might do so, too; we did not compare the two.) This works for checkpoints of **one run**: two runs from
# different starts may use the same hidden unit for different things.
#
# And in BLEU? We trained two shipped models further, one with R-Drop (explained in [12](12_results.ipynb))
# and one without, and kept the last 20 checkpoints, one an epoch (record `continued`). Each mean is
# compared with the newest checkpoint on the same sentences, both with a beam of 5.

# %%
further = recorded("continued")
for name, split in product(
    ("multi30k-en-de, R-Drop", "multi30k-en-de-lc, no R-Drop"), ("val", "test_2016_flickr")
):
    scores = further[name][split]["recipe"]
    print(f"{name}, {split}: newest {scores['1']['bleu']['value']:.2f}")
    for number in ("5", "10", "20"):
        over = scores[number]["over newest"]
        print(f"    mean of {number:2} {over['value']:+.2f} ({over['low']:+.2f} to {over['high']:+.2f})")
        assert (over["low"] > 0) == (name.endswith("no R-Drop") and split == "val")

# %% [markdown]
# Without R-Drop the means bring 0.6 to 0.8 BLEU on the validation text. In the other nine rows, −0.1 to 0.4,
# no interval leaves out zero. Whether five, ten or twenty is best, these runs cannot tell.

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
print("the others part at token", *sorted(parted))

# %% [markdown]
# **Exercise 2 (medium).** Write the two scores of a search with the paper's penalty: that of an ended
# hypothesis, and the best that an unfinished one can still reach (*no hope*). The test compares both with
# the package.


# %% tags=["exercise"]
def score(log_prob, length, alpha):
    """The score of a hypothesis that ended with `length` tokens, the end symbol counted."""
    raise NotImplementedError


def hope(log_prob, limit, alpha):
    """The best score that an unfinished hypothesis can reach, if it may have `limit` tokens in all."""
    raise NotImplementedError


# %% tags=["solution"]
def score(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


# Its log-probability can only fall: at best, all further tokens have probability 1. Then longer is better.
def hope(log_prob, limit, alpha):
    return score(log_prob, limit, alpha)


# %% tags=["exercise-test"]
for alpha, limit in product((0.0, 0.6, 1.0), (5, 60)):
    package = SentenceSearch(limit, beam=4, n_best=1, alpha=alpha, penalty="gnmt", prefix=())
    package.end((7, 8), -2.0)
    assert math.isclose(score(-2.0, 3, alpha), package.best()[0].score)
    for log_prob in (-1.5, -2.2, -3.0, -6.0, -9.0, -30.0):  # of an unfinished hypothesis with three tokens
        assert package.done(3, log_prob) == (hope(log_prob, limit, alpha) <= score(-2.0, 3, alpha))

# %% [markdown]
# ## Further
#
# <details><summary>Further: other ways to decode, and to average</summary>
#
# - **A bonus per token.** Murray and Chiang (2018) add $\gamma\,|y|$ to the log-probability.
# - **Minimum Bayes risk.** Draw many translations and take the one that is most like the others (Eikema and
#   Aziz, 2020).
# - **Averages of weights.** An *exponential moving average* is kept during training. *Stochastic weight
#   averaging* (Izmailov et al., 2018) averages late checkpoints at a constant or cyclical learning rate.
#   *Git Re-Basin* (Ainsworth et al., 2023) first matches the units of two runs.
#
# </details>
#
# Next: whole systems, their scores and their costs, in [12_results](12_results.ipynb).
