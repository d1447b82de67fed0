# %% [markdown]
# # 12 · Results
#
# **You learn to read a table of results, in the paper or your own: when you may compare two numbers, when a
# difference is more than luck, and how to report a result honestly.**
#
# Previous: [11_search](11_search.ipynb) · Next:
# [13_reading_attention](13_reading_attention.ipynb)
#
# *33 minutes to read, seconds to run.*
#
# - **Before:** you know what BLEU counts and what a bootstrap interval is ([10](10_translation.ipynb)).
# - **After:** you can say what Tables 2 and 3 of the paper show and what they do not show. You can plan a
#   comparison of two models and write a report that others can trust.
#
# "The paper" is "Attention Is All You Need" (Vaswani et al., 2017), and this lesson covers its section 6.
# Lesson [16](16_another_task.ipynb) is about Table 4. Folded cells called *Check* test what the text
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
# ## One translation, two scores
#
# Here is a German sentence that a system might write, and a reference, which is a translation by a human.
# We compute the BLEU of the system's sentence twice. The second time, we first cut the words of both
# sentences at their hyphens.

# %%
from annotated.metrics import tokenized_bleu

reference = "die deutsch-französische Arbeitsgruppe tagt heute im Fünf-Sterne-Hotel am See ."
output = "die deutsch-französische Gruppe tagt heute in einem Fünf-Sterne-Hotel am See ."
as_it_is = tokenized_bleu([output], [reference])
split = tokenized_bleu([output.replace("-", " - ")], [reference.replace("-", " - ")])
print(f"as it is:         {as_it_is.value:.1f} BLEU")
print(f"compounds split:  {split.value:.1f} BLEU")

# %% tags=["check"]
assert split.value > as_it_is.value + 5

# %% [markdown]
# The translation did not get better. But a compound like *Fünf-Sterne-Hotel* now counts as five matching
# tokens in a row, so the score almost doubles.
#
# This case is invented and extreme, but the way of counting is real. **The Transformer's German scores in
# Table 2 were counted in this way.** The paper does not say so, but the authors' script `get_ende_bleu.sh` in
# tensor2tensor splits compounds. Today's usual tool, sacreBLEU, does not split them. On a whole test set the
# difference is smaller. For the same output, Ott and colleagues ([2018](https://arxiv.org/abs/1806.00187))
# report 29.3 BLEU when they count as the paper does, and 28.6 when sacreBLEU counts, which is 0.7 less. So if
# you train the base model and sacreBLEU says 26.6, you may have matched the 27.3 of Table 2. (The difference
# varies from output to output.)
#
# **Remember:** compare two scores only if they were counted in the same way on the same test set. Ask for
# the signature before you ask who won.

# %% [markdown]
# ## Table 2: better, and cheaper
#
# > "On the WMT 2014 English-to-German translation task, the big transformer model (Transformer (big) in Table
# > 2) outperforms the best previously reported models (including ensembles) by more than 2.0 BLEU [...]."
# > (section 6.1)
#
# An *ensemble* is several models that translate together. The table has two columns for each language pair:
# BLEU, and the cost of training in floating-point operations. A picture is easier to read. We leave out three
# rows in which a number is missing.

# %% tags=["figure-table-2"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
TABLE_2 = {  # BLEU and training cost: English-German, then English-French
    "GNMT + RL": (24.6, 2.3e19, 39.92, 1.4e20),
    "ConvS2S": (25.16, 9.6e18, 40.46, 1.5e20),
    "MoE": (26.03, 2.0e19, 40.56, 1.2e20),
    "GNMT ensemble": (26.30, 1.8e20, 41.16, 1.1e21),
    "ConvS2S ensemble": (26.36, 7.7e19, 41.29, 1.2e21),
    "Transformer (base)": (27.3, 3.3e18, 38.1, 3.3e18),
    "Transformer (big)": (28.4, 2.3e19, 41.8, 2.3e19),
}
left_of = {"MoE": -4, "ConvS2S ensemble": 2}  # labels on the left of their mark
fig, axes = plt.subplots(1, 2, figsize=(12, 4.4))
for ax, column, language in zip(axes, (0, 2), ("German", "French"), strict=True):
    for name, row in TABLE_2.items():
        bleu, cost = row[column : column + 2]
        ax.plot(cost, bleu, "D" if "Trans" in name else "o", color="C1" if "Trans" in name else "C0", ms=8)
        side = ((-9, left_of[name]), "right") if name in left_of else ((9, -8), "left")
        ax.annotate(name, (cost, bleu), side[0], textcoords="offset points", ha=side[1])
    ax.set(xscale="log", xlim=(2e18, 2e22), xlabel="training cost (operations)", ylabel="BLEU")
    ax.set_title(f"English to {language}")
plt.show()

# %% [markdown]
# *Figure 1. Table 2, drawn. Better is higher, and cheaper is further left. The diamonds are Transformers.
# GNMT is a recurrent network, and "RL" means that it was trained further by reinforcement learning. ConvS2S
# is a convolutional network, and MoE is a recurrent network with a mixture of experts.*

# %% tags=["check"]
earlier = [row for name, row in TABLE_2.items() if "Trans" not in name]
base, big = TABLE_2["Transformer (base)"], TABLE_2["Transformer (big)"]
assert base[0] > max(row[0] for row in earlier)
assert base[1] < min(row[1] for row in earlier)
assert base[2] < min(row[2] for row in earlier)
assert big[0] - max(row[0] for row in earlier) > 2

# %% [markdown]
# In the left picture, both Transformers score higher than everything else, and the base model is also the
# cheapest of all.
#
# Now read the right picture. The big model wins again. But the base model, which costs as little as before,
# is *worse than all the others*. The paper's text does not mention this. You see it only if you read the
# table.
#
# ### Where the cost comes from
#
# > "We estimate the number of floating point operations used to train a model by multiplying the training
# > time, the number of GPUs used, and an estimate of the sustained single-precision floating-point capacity
# > of each GPU." (section 6.1)
#
# **Before you run this:** the base model trained for 12 hours on 8 GPUs, and the paper estimates 9.5 · 10¹²
# operations per second for each GPU. Does that give the 3.3 · 10¹⁸ of the table?

# %%
for name, hours in (("base", 12), ("big", 3.5 * 24)):
    print(f"{name:4} {hours * 3600 * 8 * 9.5e12:.1e} operations")

# %% tags=["check"]
assert abs(12 * 3600 * 8 * 9.5e12 / base[1] - 1) < 0.02
assert abs(84 * 3600 * 8 * 9.5e12 / big[1] - 1) < 0.02

# %% [markdown]
# It does. But this number is a *price*, not a count. Nobody counted the operations, and a GPU that waits
# costs as much as a GPU that computes. The price is a rough way to compare the systems of different
# authors. It does not say how much computation the model itself needs. *Lesson
# [15_going_fast](15_going_fast.ipynb) counts the operations.*
#
# **Remember:** in a table of results, look for the number that the text does not mention, and ask how each
# number was obtained.

# %% [markdown]
# ## Is the difference luck?
#
# Model A has 39.8 BLEU and model B has 40.2. Is B better? Two kinds of luck play a part in these numbers.
#
# - **The sentences.** On a different test set, both models would score differently. The paired bootstrap of
#   [10](10_translation.ipynb) measures this from one output of each model.
# - **The seed.** If you train the same model again from a different random start, it scores differently on
#   the *same* test set. You can measure this only by training again.
#
# People often report the first kind of luck and forget the second. Here are the scores of three runs of a
# small model that differ only in the seed.

# %%
from statistics import stdev

from annotated.recorded import recorded

by_seed = recorded("ablation")["models"]["no R-Drop, as many passes"]
runs = [run["test_2016_flickr"]["bleu"] for run in by_seed.values()]
print(*(f"{bleu:.1f}" for bleu in runs), f"  standard deviation {stdev(runs):.1f}")

# %% tags=["check"]
assert len(runs) == 3
assert max(runs) - min(runs) > 1
assert 0.4 < stdev(runs) < 0.9

# %% [markdown]
# The same training gives scores that are more than a point apart. With one run of each model, we could not
# see a true difference of 0.3.
#
# And how well do three runs tell us the spread itself? Badly. From $n$ runs, the squared standard deviation
# varies like a chi-square variable with $n - 1$ degrees of freedom. With two degrees, this is an exponential
# variable, and the interval can be written down.

# %%
import math

low, high = (stdev(runs) / math.sqrt(-math.log(share)) for share in (0.025, 0.975))
print(f"standard deviation {stdev(runs):.2f}, 95% interval from {low:.2f} to {high:.1f}")

# %% tags=["check"]
import torch

generator = torch.Generator().manual_seed(0)
spreads = torch.randn(20_000, 3, generator=generator).std(dim=1) * high  # if the true one were `high`
assert abs((spreads < stdev(runs)).double().mean() - 0.025) < 0.005

# %% [markdown]
# The true spread may be 0.34 or 4: three runs hardly say more than that there *is* a spread. So more runs are
# needed, for two reasons: the mean has to become sharper, and the spread has to be known.
#
# How many? You train $n$ runs of each model and compare the two means. Let $s$ be the standard deviation of
# single runs. Then the difference between the two means has the standard deviation $e = s\sqrt{2/n}$. If $s$
# were known:
#
# - **Few false alarms.** If the two models are equally good, the measured difference lies beyond $\pm
#   1.96\, e$ in only 5% of the experiments. So we claim a difference only if we measure more than that.
# - **Few misses.** If the true difference is $d$, the measured one lies above $d - 0.84\, e$ in four of five
#   experiments. If $d - 0.84\, e$ is equal to $1.96\, e$, we can claim a difference in 80% of experiments.
#
# Replace $e$ by $s\sqrt{2/n}$ and solve for $n$, the number of runs of each model:
#
# $$n = 2 \cdot (1.96 + 0.84)^2 \cdot (s / d)^2 \approx 16\, (s/d)^2$$
#
# But $s$ is not known; it is estimated from the same few runs. Then the bound is not $1.96\, e$ but Student's
# *t* times the estimated $e$, and $t$ is larger: 4.30 with two runs of each model, 2.23 with six.
#
# **Before you run this:** the rule says that two runs of each show a difference of 2 points, with $s = 0.6$,
# in 80% of experiments or more. In how many of 20,000 simulated experiments do they?

# %%
T = {2: 4.303, 3: 2.776, 4: 2.447, 6: 2.228, 8: 2.145, 63: 1.979}  # Student's t: 97.5%, 2n - 2 degrees


def shown(s, d, n, experiments=20_000):
    """The share of experiments in which n runs of each model show a true difference d."""
    draw = torch.Generator().manual_seed(0)
    one, other = s * torch.randn(2, experiments, n, generator=draw)
    difference = (other + d - one).mean(dim=1)
    e = ((one.var(dim=1) + other.var(dim=1)) / n).sqrt()  # estimated from the runs
    return (difference > T[n] * e).double().mean().item()


for s, d, tried in ((0.6, 2.0, (2, 3)), (0.6, 1.0, (2, 3, 6, 8)), (0.6, 0.3, (8, 63))):
    rule = max(2, 2 * (1.96 + 0.84) ** 2 * (s / d) ** 2)  # at least two, or there is no spread
    found = ", ".join(f"{shown(s, d, n):.0%} with {n}" for n in tried)
    print(f"standard deviation {s}, difference {d}: the rule says {rule:.0f}; shown in {found}")

# %% tags=["check"]
assert round(2 * (1.96 + 0.84) ** 2, 1) == 15.7
assert shown(0.6, 2.0, 2) < 0.6 < 0.8 < shown(0.6, 2.0, 3)
assert 0.7 < shown(0.6, 1.0, 6) < 0.8 < shown(0.6, 1.0, 8)
assert 0.77 < shown(0.6, 0.3, 63) < 0.83
assert abs(shown(0.6, 0.0, 6) - 0.025) < 0.005  # no difference: one false alarm in forty on this side

# %% [markdown]
# The rule is right for many runs and too hopeful for few. Add one or two runs to what it says.
#
# Large differences are cheap to show, and small ones are very expensive. Many tables report one run of each
# model. With models like ours, such a table could not prove a difference of one point.
#
# **Remember:** a score depends on the luck of the sentences and on the luck of the seed. Report both, and
# decide on the number of seeds before you train. Three runs give a mean, but hardly say how far single runs
# spread.

# %% [markdown]
# ## Table 3: what matters in the model?
#
# > "To evaluate the importance of different components of the Transformer, we varied our base model in
# > different ways, measuring the change in performance on English-to-German translation on the development
# > set, newstest2013." (section 6.2)
#
# This is an *ablation*: change one thing at a time, and see what it costs. The next cells hold the rows of
# the table and draw their difference from the base model, which has 25.8 BLEU.

# %%
TABLE_3 = {  # perplexity per subword, BLEU
    "h = 1": (5.29, 24.9),
    "h = 4": (5.00, 25.5),
    "h = 16": (4.91, 25.8),
    "h = 32": (5.01, 25.4),
    "d_k = 16": (5.16, 25.1),
    "d_k = 32": (5.01, 25.4),
    "2 layers": (6.11, 23.7),
    "4 layers": (5.19, 25.3),
    "8 layers": (4.88, 25.5),
    "d_model = 256": (5.75, 24.5),
    "d_model = 1024": (4.66, 26.0),
    "d_ff = 1024": (5.12, 25.4),
    "d_ff = 4096": (4.75, 26.2),
    "no dropout": (5.77, 24.6),
    "dropout 0.2": (4.95, 25.5),
    "no smoothing": (4.67, 25.3),
    "smoothing 0.2": (5.47, 25.7),
    "learned positions": (4.92, 25.7),
    "big": (4.33, 26.4),
}

# %% tags=["figure-table-3"]
fig, ax = plt.subplots(figsize=(8, 6))
ax.axvspan(-0.3, 0.3, color="0.9", zorder=0)
ax.axvline(0, color="black", lw=1)
ax.plot([bleu - 25.8 for _, bleu in TABLE_3.values()], range(len(TABLE_3)), "o", ms=8)
ax.set_yticks(range(len(TABLE_3)), TABLE_3)
ax.invert_yaxis()
groups = {
    "h = 1": "A",
    "d_k = 16": "B",
    "2 layers": "C",
    "no dropout": "D",
    "learned positions": "E",
    "big": "",
}
for place, name in enumerate(TABLE_3):
    if name in groups:
        ax.axhline(place - 0.5, color="0.8", lw=1)
        ax.text(1.01, place, groups[name], transform=ax.get_yaxis_transform(), va="center", weight="bold")
ax.set(xlabel="BLEU, difference from the base model", title="Table 3: one change at a time")
plt.show()

# %% [markdown]
# *Figure 2. Each dot is one row of Table 3, in the table's groups A to E. The gray band reaches 0.3 BLEU to
# each side. This width is only our guess of how much a seed may change one run of a large model. For two
# single runs of the small model above, the bound would be 1.96 · 0.65 · √2, or 1.8, if 0.65 were known.*

# %% tags=["check"]
near = sum(abs(bleu - 25.8) < 0.35 for _, bleu in TABLE_3.values())
assert near == 7
assert [name for name, (_, bleu) in TABLE_3.items() if bleu > 26.15] == ["d_ff = 4096", "big"]

# %% [markdown]
# The paper gives one number per row and no interval, so presumably each number comes from one run. Seven of
# the 19 rows lie within the band. With that in mind, which of the paper's conclusions does the table support?
#
# - "*While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too
#   many heads.*" The first half is likely, because 0.9 is far outside the band. The second half rests on the
#   0.4 BLEU that 32 heads lose.
# - "*[...] bigger models are better, and dropout is very helpful in avoiding over-fitting.*" Yes: BLEU
#   falls by 2.1 with two layers, by 1.3 with half of $d_{model}$, and by 1.2 without dropout. But eight
#   layers score 0.3 *less* than six.
# - "*[...] reducing the attention key size dk hurts model quality.*" Yes for $d_k = 16$, which loses 0.7. For
#   $d_k = 32$ the loss is only 0.4.
# - "*[...] nearly identical results to the base model*" with learned positions. Yes: the difference is 0.1.
#
# ### Why not simply look at the perplexity?
#
# Perplexity is cheaper to measure than BLEU, because it needs no search. Does it agree with BLEU?

# %% tags=["figure-two-measures"]
fig, ax = plt.subplots(figsize=(7.5, 4.2))
for name, (perplexity, bleu) in (TABLE_3 | {"base": (4.92, 25.8)}).items():
    other_loss = "smoothing" in name
    ax.plot(perplexity, bleu, "s" if other_loss else "o", color="C3" if other_loss else "C0", ms=8)
    if other_loss or name in ("2 layers", "big", "no dropout"):
        side = ((-9, -4), "right") if name == "no smoothing" else ((9, -4), "left")
        ax.annotate(name, (perplexity, bleu), side[0], textcoords="offset points", ha=side[1])
ax.set(xlabel="perplexity per subword", ylabel="BLEU", title="Table 3: two measures", xlim=(4.1, 6.6))
plt.show()

# %% [markdown]
# *Figure 3. All models that were trained with the same loss lie close to one line. The two squares are
# models with more or less label smoothing, and therefore with a different loss.*

# %% tags=["check"]
same = [row for name, row in (TABLE_3 | {"base": (4.92, 25.8)}).items() if "smoothing" not in name]
correlation = torch.corrcoef(torch.tensor([[math.log(p), b] for p, b in same]).T)[0, 1]
assert correlation < -0.95

# %% [markdown]
# In Table 3, perplexity agrees with BLEU as long as the models were trained with the same loss. Do not count
# on it: in our own version of the table, with small models, the correlation is only −0.75, and the model
# without dropout is worse in perplexity and second best in BLEU. The squares are the exception in the paper's
# table. The model without label smoothing has a better perplexity than the base model, but a worse BLEU
# score. The paper describes what happens *with* label smoothing:
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
# > (section 5.4)
#
# Two systems of ours disagree in the same way. They are identical except for the smoothing, and each was
# trained with five seeds. "Calibration" is the mean gap between how sure a model is and how often it is
# right.
#
# **Before you run this:** which of the four measures prefer the model without smoothing?

# %%
from statistics import mean

of_each = {}
for smoothing in (0.0, 0.1):
    five = [run for run in recorded("smoothing")["runs"] if run["smoothing"] == smoothing]
    of_each[smoothing] = {
        "perplexity": [run["perplexity"] for run in five],
        "calibration": [run["calibration_error"] for run in five],
        "accuracy": [run["accuracy"] for run in five],
        "BLEU": [run["bleu"]["beam 4"] for run in five],
    }
for measure, without in of_each[0.0].items():
    smoothed = of_each[0.1][measure]
    higher = sum(b > a for a, b in zip(without, smoothed, strict=True))
    print(
        f"{measure:12} {mean(without):6.3f} without, {mean(smoothed):6.3f} with; higher with in {higher} of 5"
    )

# %% tags=["check"]
for measure, least in (("perplexity", 5), ("calibration", 5), ("accuracy", 5), ("BLEU", 4)):
    both = zip(*(of_each[smoothing][measure] for smoothing in (0.0, 0.1)), strict=True)
    assert sum(b > a for a, b in both) >= least

# %% [markdown]
# Perplexity and calibration ask how good the *probabilities* are, and there the model without smoothing wins.
# Accuracy and BLEU ask which token is *first*, and there the smoothed model wins, though four seeds of five
# are no proof for BLEU. Neither pair is wrong. (For calibration, it depends on the model. Ours is hardly
# overconfident without smoothing. Müller et al., 2019, found that smoothing *improves* the calibration of
# larger models.) Choose the measure that asks what your application needs.
#
# ### Which numbers survive another vocabulary?
#
# > "Listed perplexities are per-wordpiece, according to our byte-pair encoding, and should not be compared to
# > per-word perplexities." (Table 3)
#
# A model with short pieces has an easier guess each time, and more guesses to make. In
# [10](10_translation.ipynb), the order of three vocabularies by the loss per piece is the reverse of their
# order by bits per byte. So before you compare two numbers, look up what has to be equal:
#
# | number | across vocabularies? | what must be equal |
# | --- | --- | --- |
# | loss per token, perplexity, accuracy of tokens | no | the vocabulary and the text |
# | loss per sentence, bits per byte | yes | the text |
# | BLEU, chrF | yes | the text and the signature |
# | learned measures (below) | yes | the text and the version of the measuring model |
#
# *Does Table 3 hold for small models? We trained 69 of them and gave each row a learning rate that suits
# it. One head is too few for small models, too, and about half of the rows cannot be told apart from the
# base model: [Does the paper's Table 3 hold at our size?](evidence/table_3_at_our_size.ipynb)*
#
# **Remember:** in an ablation, compare each difference with the spread that seeds alone produce. In your own
# ablation, tune the learning rate for each row.

# %% [markdown]
# ## What a score cannot say
#
# In these scores, BLEU compares a translation with only *one* reference. It gives no credit for good words
# that the reference does not use, and it gives a high score to a long sentence in which only the word *not*
# is missing. There are better ways to judge a translation, and those who compare systems today use them.
#
# **Learned measures.** COMET (Rei et al., [2020](https://aclanthology.org/2020.emnlp-main.213/)) is a
# pretrained multilingual model. It reads the source, the translation and the reference, and it predicts how a
# human would rate the translation. Kocmi and colleagues ([2021](https://aclanthology.org/2021.wmt-1.57/))
# compared thousands of pairs of systems. More often than BLEU, COMET agreed with human judges about which of
# two systems was better. MetricX (Juraska et al., [2024](https://aclanthology.org/2024.wmt-1.35/)) is a
# measure of the same kind. Some of these models need no reference at all; this is called *quality
# estimation*. Report the version of the model with the score. And do not report a measure that was used for
# choosing translations: whoever reranks by COMET has optimized COMET.
#
# **People.** In a method called MQM (Freitag et al., [2021](https://aclanthology.org/2021.tacl-1.87/)),
# professional translators mark each *error span* and say how serious it is. This is slow and expensive. In
# WMT, the yearly comparison, the annotators of most language pairs now mark spans and give one score (*error
# span annotation*, ESA; Kocmi et al., [2025](https://aclanthology.org/2025.wmt-1.22/)).
#
# **What is a point worth?** Kocmi and colleagues ([2024](https://aclanthology.org/2024.acl-long.110/)) asked
# how large a difference in each measure must be before people notice it. Ask the same about your own table: a
# difference can be certain, in that no luck explains it, and still be too small for anyone to see.
#
# None of the learned measures can be run in this notebook, because their models are too large to come with
# it. In this series BLEU is usually enough, because the systems are similar and we count all scores in the
# same way. For a decision about a product, read translations, use a learned measure beside BLEU, and have
# people judge the two best systems.

# %% [markdown]
# ## How we report our own score
#
# Wu and colleagues ([2021](https://aclanthology.org/2021.acl-long.480/)) published 41.02 BLEU for a
# Transformer of our size on the 1,000 captions of a test set of Multi30k. Our model `multi30k-en-de-lc` has
# 41.35. How do we say that honestly?

# %%
from annotated.translation.evaluation import read_scores
from annotated.translation.storage.model_folder import shipped_model

ours = read_scores(shipped_model("multi30k-en-de-lc"))["test_2016_flickr"].tokenized_bleu
print(f"{ours.value:.2f} BLEU, 95% interval {ours.low:.1f} to {ours.high:.1f}")
print(ours.signature)

# %% tags=["check"]
assert round(stdev(runs), 2) == 0.65
assert round(ours.value, 2) == 41.35
assert ours.low < 41.02 < ours.high

# %% [markdown]
# The signature has `case:mixed` and `tok:none`, because sacreBLEU changed nothing. Both the output and the
# reference had been lower-cased and tokenized beforehand. The signature cannot know that, so the report
# must say it. We would like to write, "We beat them by 0.33." Here is what we can write:
#
# > A Transformer with four layers of width 128, trained on Multi30k's 29,000 pairs for 108 epochs, scores
# > 41.35 BLEU on test_2016_flickr (lower-cased, tokenized; 95% interval over sentences 39.6 to 43.0), with
# > the search of Wu et al. (beam 5, division by length), who report 41.02. Our training differs from theirs
# > in its batch size and learning rate, and from epoch 61 on, we added a term to the loss (R-Drop). We
# > trained with one seed. We looked at the test set four times, and the second look led us to change the
# > search.
#
# This is longer and less impressive, but a reader can judge it. Their score lies inside our interval, but
# this alone settles nothing: both were scored on the same sentences, and for a paired interval we would need
# their translations. The seed alone could explain the lead. The difference of two equally good training runs
# has a standard deviation of $\sqrt{2} \cdot 0.65 = 0.9$, so 95 of 100 such differences lie within ±1.8 if
# the spread of our three runs is the true one (it may be larger, as you have seen, and those runs were
# without R-Drop). Our lead is 0.33. *What did each look change, and how much is a look worth? [How honest is
# a test score?](evidence/how_honest_is_a_test_score.ipynb)*
#
# A checklist for your own report:
#
# 1. Which text did you score, and how did you count BLEU? Give the signature.
# 2. What did you choose on val, and what on test? How often did you look at the test set?
# 3. How many seeds? What are the interval over sentences and the spread over seeds?
# 4. What did one system get that the other did not? Compare data, updates, tuning and search.
# 5. What did it cost?
# 6. Did you publish everything that others need to repeat it: code, settings, outputs? `annotated train`
#    writes the settings into the run's folder. Keep the translations, too, because paired tests need them.

# %% [markdown]
# ## What you can now say
#
# - Compare two scores only if they were counted in the same way. The paper's 27.3 and a sacreBLEU of 26.6 may
#   mean the same quality.
# - Table 2 shows a better and cheaper model for German. For French, the base model is cheap but worse than
#   all the others.
# - A difference may come from the luck of the sentences or of the seed. To find a difference of 0.3 BLEU,
#   you need at least $16\, (s/0.3)^2$ runs of each model.
# - Seven of the 19 rows of Table 3 are within 0.3 BLEU of the base model, and such a small difference may be
#   luck. In that table, perplexity ranks models much as BLEU does, as long as their loss is the same.
# - An honest report says how the score was counted, what was chosen on val, how many seeds there were, and
#   how often you looked at the test set.
#
# **Deeper:** [What does R-Drop bring?](evidence/what_does_r_drop_bring.ipynb) · [Does the paper's Table 3
# hold at our size?](evidence/table_3_at_our_size.ipynb) · [How honest is a test
# score?](evidence/how_honest_is_a_test_score.ipynb)
#
# **Next:** what a model looks at while it translates, in [13_reading_attention](13_reading_attention.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** `TABLE_2` has three earlier single models and two ensembles. For the big Transformer
# in French, section 6.1 says 41.0 where the table says 41.8. Predict first: how many of the five does it beat
# with each score? Does it matter which score is right?

# %% tags=["solution"]
for big_french in (41.0, 41.8):
    beaten = [name for name, row in TABLE_2.items() if "Trans" not in name and row[2] < big_french]
    print(f"{big_french}: better than {', '.join(beaten)}")
# It does: 41.0 beats the three single models and neither ensemble, and 41.8 beats all five. The conference
# version had 41.0 everywhere. Abstract and table were changed later, and section 6.1 was not.

# %% [markdown]
# **Exercise 2 (medium).** Will your experiment find what it looks for? Do not trust the formula. Write a
# simulation. Two systems have true means that differ by `difference`. Each is trained with `seeds` seeds, and
# its runs have the standard deviation `spread`. A difference counts as found if it is larger than
# $1.96 \cdot s \sqrt{2/n}$, where $s$ is the true `spread` and $n$ is `seeds`.


# %% tags=["exercise"]
import torch


def power(difference, spread, seeds, attempts=20_000):
    """The share of attempts in which the difference is found (with the right sign)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import randint, uniform

import torch


def test_power(power):
    torch.manual_seed(0)
    for difference, spread, seeds in (
        (0.0, 0.6, 5),  # nothing is there: half of the 5% have this sign
        (0.3, 0.6, 63),
        (0.3, 0.6, 1),
        (0.3, round(uniform(0.2, 0.6), 2), randint(3, 30)),
    ):
        errors = difference / spread * (seeds / 2) ** 0.5  # how large the difference is, in standard errors
        right = torch.special.ndtr(torch.tensor(errors - 1.96)).item()
        share = power(difference, spread, seeds)
        assert share is not None, "nothing is returned"
        assert getattr(share, "shape", ()) == (), f"a share is one number, not {share}"
        told = (
            f"difference {difference}, spread {spread}, {seeds} seeds: found in {share:.1%} of the attempts"
        )
        assert abs(share - right) < 0.02, f"{told}; about {right:.1%} is right"


try:
    test_power(power)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(difference, spread, seeds, attempts=20_000):
    """The share of attempts in which the difference is found (with the right sign)."""
    first, second = torch.randn(2, attempts, seeds) * spread
    found = (second + difference).mean(dim=1) - first.mean(dim=1)
    return (found > 1.96 * spread * (2 / seeds) ** 0.5).double().mean().item()


test_power(solution)
# With one seed of each system, 0.3 BLEU at a spread of 0.6 is found in 5% of the attempts, with 3 in 9%,
# with 16 in 29%, and with 63 in 80%.
for n, share in (1, 0.05), (3, 0.09), (16, 0.29), (63, 0.80):
    assert abs(solution(0.3, 0.6, n) - share) < 0.02

# %% [markdown]
# **Exercise 3 (hard).** Are two systems different? Write the paired bootstrap for a score that is a quotient
# of sums, such as a precision: draw sentences with replacement, *the same for both systems*, and take the
# middle 95% of the differences. Which data would you need from Wu et al. to apply it to our 0.33?


# %% tags=["exercise"]
import torch


def paired_interval(a, b, words, draws=1000):
    """Right words a and b (sentences,) of all `words` (sentences,) -> (low, high) of score(a) - score(b)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_paired_interval(paired_interval):
    torch.manual_seed(0)
    lengths = torch.randint(5, 30, (500,))
    first = (lengths * torch.rand(500)).round().long()  # some sentences are hard, for both systems
    second = (first - torch.randint(0, 2, (500,))).clamp(min=0)  # a little worse
    same = paired_interval(first, first, lengths)
    assert isinstance(same, tuple | list), f"a pair (low, high) is wanted, not {same!r}"
    low, high = same
    assert low == high == 0, f"a system differs from itself by 0, not by {low:.3f} to {high:.3f}: draw once"
    low, high = paired_interval(first, second, lengths, draws=4000)
    difference = ((first - second).sum() / lengths.sum()).item()
    told = f"the difference of the scores is {difference:.4f}, and your interval is {low:.4f} to {high:.4f}"
    assert low < difference < high, told
    noise = (first - second - difference * lengths).std() / lengths.double().mean() / 500**0.5
    width = (high - low) / noise.item()
    told = f"the middle 95% are about 3.9 standard errors wide, and your interval has {width:.1f}"
    assert 3.6 < width < 4.25, told


try:
    test_paired_interval(paired_interval)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
# We would need their translations of the same thousand sentences. Scores and intervals are not enough.
def solution(a, b, words, draws=1000):
    """Right words a and b (sentences,) of all `words` (sentences,) -> (low, high) of score(a) - score(b)."""
    drawn = torch.randint(len(words), (draws, len(words)))  # each row is a test text
    differences = (a[drawn] - b[drawn]).sum(dim=1) / words[drawn].sum(dim=1)
    low, high = differences.quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


test_paired_interval(solution)

# %% [markdown]
# ## A project
#
# Answer one question of your own about the Transformer, with an experiment that fits on your computer. Here
# are some examples. Does dropout in the attention help on the grammar corpus? Is a model with 2 encoder
# layers and 1 decoder layer as good as the reverse? Do 500 subwords do as well as 2,000? Does averaging still
# help if the learning rate has fallen to zero?
#
# 1. **Before you train**, write down the question, the two or three models that you will compare, the
#    measure, what you will choose on val, how many seeds you can afford, and which difference they can
#    detect. To find this difference, try several values in the function of exercise 2.
# 2. **Train.** Try the same three learning rates for every model, and say so if the best one is the largest
#    or the smallest. `annotated train` takes all settings as flags, and [10](10_translation.ipynb) shows it
#    in Python.
# 3. **Look at test once**, and keep all translations.
# 4. **Report** on one page, with the checklist above. Read thirty translations of each model and say what you
#    saw.
#
# *What makes an answer good?* You wrote the plan before you saw the results, and the report says where you
# departed from the plan. It gives each difference with an interval that accounts for the seeds. No model
# was favored by its learning rate or its number of updates. "We could not tell them apart" is a good result
# if the report says how large a difference you would have seen. And a reader can run the experiment again.
