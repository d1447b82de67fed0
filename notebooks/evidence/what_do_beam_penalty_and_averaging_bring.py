# %% [markdown]
# # What do beam, penalty and averaging bring in BLEU?
#
# At most one BLEU point each. On 1,000 captions, the paper's search gains 0.2 BLEU over greedy decoding with
# one model and 0.8 with another. A beam of 5 with the mean log-probability per token gains 0.8 and 1.0.
# Averaging alone moves the score by −0.27 to 0.45. All 95% intervals are about ± 0.5 to ± 0.7. Wider beams
# find ever more probable translations, and without a penalty a beam of 50 loses 1.6 and 0.9 BLEU, because its
# output is too short.
#
# *Seconds to run; it reads records of hours of search and training.* This notebook belongs to lesson
# [11_search](../11_search.ipynb).

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
# ## What was run
#
# Two trained models translate Multi30k's captions from English to German: `multi30k-en-de` reads normal text,
# and `multi30k-en-de-lc` reads lower-cased, tokenized text. Each translated two texts, val (1,014 captions)
# and test (1,000), with greedy decoding and with 18 searches: six beams times three ways to score finished
# hypotheses.
#
# - **none**: the log-probability itself;
# - **gnmt 0.6**: the paper's, divided by $((5 + |y|) / 6)^{0.6}$;
# - **length**: divided by $|y|$, the mean log-probability per token.
#
# Every search is compared with greedy decoding *on the same sentences* (paired bootstrap, 1,000 draws).

# %%
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook
from annotated.recorded import recorded

setup_notebook()
search = recorded("search")
TEST, BEAMS = "test_2016_flickr", (2, 4, 5, 10, 20, 50)


def shown(interval):
    """A difference with its 95% interval, as text."""
    return f"{interval['value']:+.2f} ({interval['low']:+.2f} to {interval['high']:+.2f})"


for model in search:
    scores = search[model][TEST]
    print(f"{model}, test, greedy: {scores['greedy']['bleu']['value']:.2f} BLEU; over greedy:")
    for beam in BEAMS:
        row = [
            shown(scores[f"beam {beam}, {name}"]["over greedy"]) for name in ("none", "gnmt 0.6", "length")
        ]
        print(f"  beam {beam:2}   none {row[0]:24} gnmt 0.6 {row[1]:24} length {row[2]}")

# %% tags=["check"]
en_de, lc = (search[model][TEST] for model in ("multi30k-en-de", "multi30k-en-de-lc"))


def over(scores, name):
    return scores[name]["over greedy"]


assert round(over(en_de, "beam 4, gnmt 0.6")["value"], 1) == 0.2
assert round(over(lc, "beam 4, gnmt 0.6")["value"], 1) == 0.8
assert round(over(en_de, "beam 5, length")["value"], 1) == 0.8
assert round(over(lc, "beam 5, length")["value"], 1) == 1.0
assert over(en_de, "beam 4, gnmt 0.6")["low"] < 0 < over(lc, "beam 4, gnmt 0.6")["low"]
assert min(over(scores, "beam 5, length")["low"] for scores in (en_de, lc)) > 0
assert over(en_de, "beam 50, none")["high"] < 0

# %% [markdown]
# **The paper's search** scores above greedy decoding with both models, but the interval excludes zero for
# only one of them. **Dividing by the length** with a beam of 5 scores higher with both, and both intervals
# exclude zero. All searches with a beam of 2 to 20 score above greedy decoding, many of them by no more
# than noise.
#
# ## Why a wide beam needs a penalty
#
# A wider beam does what it promises: it finds more probable translations. The left picture shows the mean
# log-probability of what was found, the right one its BLEU.

# %% tags=["figure-beams"]
labels = {"none": "no penalty", "gnmt 0.6": "the paper's, α = 0.6", "length": "mean per token"}
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
for (name, label), style, shift in zip(labels.items(), ("o-", "s--", "^:"), (0.95, 1, 1.05), strict=True):
    found = [en_de["greedy"], *(en_de[f"beam {beam}, {name}"] for beam in BEAMS)]
    left.plot((1, *BEAMS), [each["log_prob"] for each in found], style, label=label)
    values = [each["over greedy"] for each in found]
    error = [[v["value"] - v["low"] for v in values], [v["high"] - v["value"] for v in values]]
    beside = [shift * beam for beam in (1, *BEAMS)]
    right.errorbar(beside, [v["value"] for v in values], error, fmt=style, capsize=3, label=label)
right.axhline(0, color="grey", lw=1)
for ax in (left, right):
    ax.set(xscale="log", xlabel="beam")
    ax.set_xticks((1, *BEAMS), [str(beam) for beam in (1, *BEAMS)])
    ax.minorticks_off()
left.set(ylabel="mean log-probability", title="A wider beam finds more probable output")
right.set(ylabel="BLEU over greedy decoding", title="More probable is not better")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 1. `multi30k-en-de` on test, beams of 1 to 50. Left: higher is more probable. Right: the bars are
# 95% intervals, drawn side by side.*

# %%
for name in ("greedy", "beam 5, none", "beam 50, none", "beam 50, gnmt 0.6", "beam 50, length"):
    each = en_de[name]
    precision = each["bleu"]["value"] / each["brevity_penalty"]
    print(
        f"{name:18} {each['bleu']['value']:.1f} BLEU = brevity penalty {each['brevity_penalty']:.3f} times"
        f" {precision:.1f}; empty translations: {each['empty']}"
    )

# %% tags=["check"]
unpenalized = [en_de["greedy"], *(en_de[f"beam {beam}, none"] for beam in BEAMS)]
assert [each["log_prob"] for each in unpenalized] == sorted(each["log_prob"] for each in unpenalized)
fewer = [each["less_probable_than_greedy"] for each in unpenalized[1:]]
assert fewer == sorted(fewer, reverse=True)
assert 0 == fewer[-1] < fewer[2] == 0.01 < fewer[0] < 0.05
assert en_de["beam 50, none"]["empty"] == 45
assert en_de["beam 50, length"]["empty"] == 0
assert en_de["beam 50, none"]["brevity_penalty"] < 0.85 < 0.95 < en_de["beam 50, length"]["brevity_penalty"]

# %% [markdown]
# (Not for every caption: with a beam of 5, 1% of the captions get a *less* probable translation than from
# greedy decoding. With a beam of 50, none do.)
#
# BLEU is a product: the precision of n-grams times a brevity penalty. The second factor explains the loss.
# With a beam of 50 and no penalty, the output of the first model is so short that it costs 16%, and 45 of
# the 1,000 translations are **empty**. The first factor even rises with the beam, but that says little,
# because a shorter translation that leaves out what is difficult makes fewer mistakes. Koehn and Knowles
# ([2017](https://arxiv.org/abs/1706.03872)) reported this loss; Murray and Chiang
# ([2018](https://arxiv.org/abs/1808.10006)) explained it by length.
#
# ## Which penalty?
#
# Both penalties score the finished hypotheses of a beam of the same width, so they can be compared with
# each other on the same sentences:

# %%
for model in search:
    for beam in (4, 5, 10, 50):
        each = search[model][TEST][f"beam {beam}, length"]["over gnmt 0.6"]
        print(f"{model:18} beam {beam:2}: length over gnmt 0.6 {shown(each)}")

# %% tags=["check"]
better = {
    (model, beam): search[model][TEST][f"beam {beam}, length"]["over gnmt 0.6"]
    for model in search
    for beam in BEAMS
}
assert min(each["value"] for each in better.values()) > 0
assert [beam for (model, beam), each in better.items() if model == "multi30k-en-de" and each["low"] > 0] == [
    4,
    10,
    20,
    50,
]
assert [beam for (model, beam), each in better.items() if model != "multi30k-en-de" and each["low"] > 0] == [
    20,
    50,
]

# %% [markdown]
# Dividing by the length is ahead for both models at every beam. For one model, its interval excludes zero
# at beams of 4 and of 10 or more; for the other, only at 20 and 50. The paper's penalty loses least with
# narrow beams, and the paper used one of 4.
#
# ## Averaging
#
# We trained three models for 26, 12 and 24 epochs more, kept the last checkpoints, and compared the mean of
# five with the newest one, again on the same sentences. "Alone" is with greedy decoding, "with search" is
# with a beam of 5 and the mean per token.

# %%
further = recorded("continued")
for name, texts in further.items():
    alone, searched = (texts[TEST][how]["5"]["over newest"] for how in ("greedy", "recipe"))
    print(f"{name:28} alone {shown(alone)}   with search {shown(searched)}")

# %% tags=["check"]
assert [texts["settings"]["epochs"] for texts in further.values()] == [26, 12, 24]
alone = [texts[TEST]["greedy"]["5"]["over newest"]["value"] for texts in further.values()]
assert [round(min(alone), 1), round(max(alone), 1)] == [-0.3, 0.4]
searched = [texts[TEST]["recipe"]["5"]["over newest"] for texts in further.values()]
assert all(each["low"] < 0 < each["high"] for each in searched)

# %% [markdown]
# Alone, averaging moves the score by −0.27 to 0.45 on this text, and one of the three intervals just
# excludes zero. With search, every interval on this text includes zero. With the same comparisons on val,
# the record has twelve in all. Eleven of them are gains, 0.26 on average, and three intervals exclude zero
# (gains of 0.45, 0.59 and 0.61). So a small gain is likely, but the twelve share models and sentences, and
# no single one proves it.
#
# ## What it says
#
# | | test BLEU, `multi30k-en-de` | `multi30k-en-de-lc` |
# | --- | --- | --- |
# | greedy | 39.0 | 40.3 |
# | beam 4 alone | +0.1 | +0.4 |
# | beam 4, α = 0.6 | +0.2 | +0.8 |
# | beam 5, mean per token | +0.8 | +1.0 |
#
# A beam alone brings little, and the penalty brings the rest. (A penalty without a beam changes nothing:
# greedy decoding finishes only one hypothesis.) Averaging seems to bring a quarter of a point, which is too
# little for a thousand captions to show clearly. All of this is at the end of a schedule whose learning
# rate has already fallen.
#
# **What it does not say.** The best of 18 searches was chosen after seeing all of them, so its gain is a
# little too large. Captions are short, and long sentences have more to lose from a missing penalty. Both
# models were trained once, and the intervals do not contain the difference that another seed would make.
