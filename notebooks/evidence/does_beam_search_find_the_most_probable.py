# %% [markdown]
# # Does beam search find the most probable translation?
#
# Mostly, if the model is fairly sure. We took the 27 captions for which a beam had found a translation with a
# probability above 1 in 500. Exact search proves that for these, a beam of 4 always found the most probable
# translation, and greedy decoding missed it 4 times. The most probable translation need not be a good one:
# three of those four are wrong, and for two other captions, the *empty* translation is likelier than anything
# that beams of up to 8 found.
#
# *Half a minute to run.* This notebook belongs to lesson [11_search](../11_search.ipynb).

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
# ## How can one know the most probable translation?
#
# Nobody can try all translations, because there are thousands of tokens to the power of sixty. But there is a
# bound. A sentence is never more probable than its beginning, because every further token multiplies its
# probability by a number that is not larger than one. So once a search has found one translation with
# probability $p$, every beginning less probable than $p$ can be dropped for good.
#
# How many beginnings remain? Different beginnings of one length exclude each other, so their probabilities
# add up to at most 1. Fewer than $1/p$ of them can be more probable than $p$. For $p = 0.02$, fewer than 50
# remain at every length. **Exact search** keeps them all, and it ends when none is left. Stahlberg and
# Byrne ([2019](https://arxiv.org/abs/1908.10090)) use the same bound.
#
# Our model is the shipped translator, English to German. We wrote the captions ourselves. We compute in
# float64, so that rounding does not decide which translation wins.

# %%
import math

import torch

from annotated import DecoderCache, beam_search, evaluating, greedy_decode, load_pretrained, padding_mask

torch.set_num_threads(1)
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
model, tokenizer = translator.model.double(), translator.tgt_tokenizer
START, END, FORBIDDEN = tokenizer.start, tokenizer.end, list(translator.forbidden)


def sources(texts):
    """English sentences as the encoder reads them: tokens (B, S), and their mask (B, 1, S)."""
    src = translator.batch([translator.encode(text) for text in texts])
    return src, padding_mask(src, translator.src_tokenizer.pad)


# %%
def exact(text, known):
    """The most probable translation, given that one has log-probability `known`; rows kept at each step."""
    src, src_mask = sources([text])
    best, winner, rows_at = known - 1e-9, None, []
    with evaluating(model):
        memory, cache = model.encode(src, src_mask), DecoderCache(len(model.decoder.layers))
        tokens, totals = torch.full((1, 1), START), torch.zeros(1, dtype=torch.float64)
        while len(tokens):  # a row for each beginning that is kept
            rows_at.append(len(tokens))
            source = (given.expand(len(tokens), -1, -1) for given in (memory, src_mask))
            log_probs = model.generator(model.decode(*source, tokens[:, -1:], None, cache)[:, -1])
            log_probs[:, FORBIDDEN] = -torch.inf  # (rows, V)
            longer = totals.unsqueeze(1) + log_probs
            ending, row = longer[:, END].max(dim=0)
            if ending > best:
                best, winner = ending.item(), tuple(tokens[row, 1:].tolist())
            longer[:, END] = -torch.inf
            rows, token = (longer > best).nonzero(as_tuple=True)
            totals = longer[rows, token]
            tokens = torch.cat([tokens[rows], token.unsqueeze(1)], dim=1)
            cache.select(rows)
    return best, winner, rows_at


# %% [markdown]
# ## Beams against exact search
#
# First we search every caption with beams of 1, 2, 3, 4 and 8, without a length penalty. Exact search is
# cheap where the model is sure, so we run it for the captions for which a beam found a translation more
# probable than 1 in 500.

# %%
beams = (1, 2, 3, 4, 8)
found = {
    k: [best for [best] in beam_search(model, *sources(captions), beam=k, alpha=0.0, forbidden=FORBIDDEN)]
    for k in beams
}
known = [max(found[k][i].log_prob for k in beams) for i in range(len(captions))]
sure = [i for i, log_prob in enumerate(known) if log_prob > -math.log(500)]
truth = {i: exact(captions[i], known[i]) for i in sure}
widest = max(sure, key=lambda i: max(truth[i][2]))
print(f"{len(sure)} of {len(captions)} captions have a translation more probable than 1 in 500")
print(f"most beginnings kept: {max(truth[widest][2])}, where 1/p is {math.exp(-known[widest]):.0f}")
missed = {k: sum(found[k][i].log_prob < truth[i][0] - 1e-6 for i in sure) for k in beams}
for k, misses in missed.items():
    print(f"beam {k}: misses the most probable translation for {misses} of {len(sure)}")

# %% tags=["check"]
assert all(max(rows_at) <= math.exp(-known[i]) + 1e-6 for i, (_, _, rows_at) in truth.items())
assert all(truth[i][0] >= known[i] - 1e-9 for i in sure)
assert missed[1] == 4
assert missed[4] == missed[8] == 0
assert len(sure) == 27
greedy = greedy_decode(model, *sources(captions), 60, START, END, FORBIDDEN)[:, 1:].tolist()
assert [h.tokens for h in found[1]] == [tuple(row[: row.index(END)]) for row in greedy]

# %% [markdown]
# ## Is the most probable translation the better one?
#
# Here is what greedy decoding missed.

# %%
different = [i for i in sure if truth[i][1] != found[1][i].tokens]
for i in different:
    print(captions[i])
    both = ("greedy", found[1][i].log_prob, found[1][i].tokens), ("most probable", truth[i][0], truth[i][1])
    for name, log_prob, tokens in both:
        print(f"   {name:13} 1 in {math.exp(-log_prob):10,.0f}   {tokenizer.decode(tokens)}")

# %% tags=["check"]
assert len(different) == 4
assert all(0 < len(truth[i][1]) < len(found[1][i].tokens) for i in different)

# %% [markdown]
# The most probable translation has fewer tokens each time. That of the wood carver is right. The other three
# are wrong: *A cook with a spoon* does not taste anything, the boys do not throw at each other, and *Rad* is
# a wheel, not a radio.
#
# ## The empty translation
#
# Stahlberg and Byrne found that for more than half of their sentences the most probable translation is the
# empty one. We compare it with the best that our beams found, for all captions.

# %%
with evaluating(model):
    src, src_mask = sources(captions)
    states = model(src, torch.full((len(src), 1), START), src_mask, None)  # (B, 1, d_model)
    empty = model.generator(states)[:, 0, END].tolist()  # log-probability of ending at once
hidden = [i for i in range(len(captions)) if empty[i] > known[i]]
for i in hidden:
    print(f"empty 1 in {math.exp(-empty[i]):,.0f}, beams 1 in {math.exp(-known[i]):,.0f}: {captions[i]}")

# %% tags=["check"]
assert len(hidden) == 2
assert not set(hidden) & set(sure)

# %% [markdown]
# ## What it says
#
# For these 27 captions, a beam of 4 is as good as exact search. With none missed in 27, the share that it
# misses among captions like these could still be one in ten (the upper bound of a 95% interval). Where the
# model is unsure, its most probable translation may be empty, and a narrow beam hides that because it drops
# the empty translation at step 1. So a better search cannot repair a model whose probabilities are wrong.
#
# **What it does not say.** We chose captions for which the model is sure, because exact search is cheap
# there. The choice favors the beams: a caption counts only if one of the beams found a translation more
# probable than 1 in 500, and a caption for which all of them missed such a translation would not be among
# the 27. We have not searched the other four exactly. The 27 are not a sample of all sentences, so they say
# nothing about how often the empty translation wins in general. Our model is small and its captions are
# short.
