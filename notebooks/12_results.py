# %% [markdown]
# # 12 · Results
#
# **The paper's Tables 2 and 3: what they claim, what they cost, and what their numbers can show. Beside
# them our own: a published score that we match, and Table 3 at our size.**
#
# Previous: [11_search_and_averaging](11_search_and_averaging.ipynb) · Next:
# [13_reading_attention](13_reading_attention.ipynb) · What BLEU counts:
# [10_translation](10_translation.ipynb)
#
# *24 minutes to read, half a minute to run.*
#
# - **Before:** you know what BLEU, perplexity and a bootstrap interval are, and that one looks at a test set
#   once (10).
# - **After:** you can say what each table of the paper shows and what it does not; how its training cost was
#   computed; why two BLEU scores of one output differ; and what it takes to call one model better than
#   another.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017), and this is its section 6. Its Table 4,
# parsing, is in [16](16_another_task.ipynb).

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import json
import math
import os
import re
from statistics import mean

import matplotlib.pyplot as plt
import torch
from torch.utils.flop_counter import FlopCounterMode

from annotated import load_pretrained, make_model, subsequent_mask
from annotated.cli.recipes import recipe_path
from annotated.cli.release import read_scores
from annotated.data import load_corpus
from annotated.files import read_toml
from annotated.metrics import tokenized_bleu
from annotated.plots import setup_notebook
from annotated.translation.evaluate import recorded, score_split
from annotated.translation.model_folder import shipped_model

setup_notebook()
torch.set_num_threads(1)  # the matrices are small, and only wait for a second thread

# %% [markdown]
# ## Table 2: translation
#
# > "... the big transformer model (Transformer (big) in Table 2) outperforms the best previously reported
# > models (including ensembles) by more than 2.0 BLEU ..." (section 6.1, English-German)
#
# The test sets are newstest2014. English-German had 4.5 million sentence pairs to train on, English-French
# 36 million. The training cost is in floating-point operations.

# %%
TABLE_2 = {  # BLEU and training cost: English-German, then English-French; None where the table has nothing
    "ByteNet": (23.75, None, None, None),
    "Deep-Att + PosUnk": (None, None, 39.2, 1.0e20),
    "GNMT + RL": (24.6, 2.3e19, 39.92, 1.4e20),
    "ConvS2S": (25.16, 9.6e18, 40.46, 1.5e20),
    "MoE": (26.03, 2.0e19, 40.56, 1.2e20),
    "Deep-Att + PosUnk, ensemble": (None, None, 40.4, 8.0e20),
    "GNMT + RL, ensemble": (26.30, 1.8e20, 41.16, 1.1e21),
    "ConvS2S, ensemble": (26.36, 7.7e19, 41.29, 1.2e21),
    "Transformer (base)": (27.3, 3.3e18, 38.1, 3.3e18),
    "Transformer (big)": (28.4, 2.3e19, 41.8, 2.3e19),
}

# %% tags=["figure-table-2"]
PLACES = {  # of a label, in points from its mark; the others stand on the right
    "MoE": (-8, -4, "right"),
    "ConvS2S, ensemble": (-8, 4, "right"),
    "GNMT + RL, ensemble": (-8, -11, "right"),
    "Deep-Att + PosUnk, ensemble": (12, -18, "right"),
}
fig, axes = plt.subplots(1, 2, figsize=(12, 4.6))
for ax, column, language in zip(axes, (0, 2), ("German", "French"), strict=True):
    for name, row in TABLE_2.items():
        bleu, cost = row[column : column + 2]
        if cost is not None:
            ours, several = "Transformer" in name, "ensemble" in name
            ax.plot(cost, bleu, "D" if ours else "s" if several else "o", color="C1" if ours else "C0", ms=8)
            *place, side = PLACES.get(name, (8, -4, "left"))
            label = name.replace(", ensemble", " (ens.)")
            ax.annotate(label, (cost, bleu), place, textcoords="offset points", ha=side)
    ax.set(xscale="log", xlim=(2e18, 3e21), xlabel="training cost (floating-point operations)", ylabel="BLEU")
    ax.set_title(f"English to {language}")
plt.show()

# %% [markdown]
# *Figure 1. Table 2, drawn: better is higher, cheaper is further left. Diamonds are Transformers, squares
# are ensembles (several models that translate together); the others are recurrent or convolutional networks.
# (GNMT is Google's system, RL reinforcement learning; MoE mixes expert networks; ConvS2S and ByteNet are
# convolutional. ByteNet is not drawn, because its cost is not given.)*

# %%
german, french = ({k: v[c] for k, v in TABLE_2.items() if v[c] is not None} for c in (0, 2))
earlier = [name for name in TABLE_2 if "Transformer" not in name]
best_german = max(german[name] for name in earlier if name in german)
alone = [french[name] for name in earlier if name in french and "ensemble" not in name]
several = [french[name] for name in earlier if name in french and "ensemble" in name]
print(f"German: big is {german['Transformer (big)'] - best_german:.2f} BLEU above the best earlier ensemble")
for bleu in (french["Transformer (base)"], 41.0, french["Transformer (big)"]):
    wins, more = sum(bleu > other for other in alone), sum(bleu > other for other in several)
    print(
        f"French: {bleu} is above {wins} of {len(alone)} single models and {more} of {len(several)} ensembles"
    )
assert german["Transformer (base)"] > best_german
assert max(alone) < 41.0 < max(several) < french["Transformer (big)"]
assert french["Transformer (base)"] < min(alone)

# %% [markdown]
# In German even the base model is better than every earlier system, and cheaper than all whose cost is
# given. In French it is just as cheap, but worse than *all* of them. The paper's text does not mention it.
#
# **41.8 or 41.0?** In arXiv's last version, abstract and Table 2 have 41.8 for the big model in French.
# Section 6.1 says
#
# > "... our big model achieves a BLEU score of 41.0, outperforming all of the previously published single
# > models, at less than 1/4 the training cost of the previous state-of-the-art model."
#
# The conference paper (NIPS 2017) has 41.0 in all three places: abstract and table were changed later, the
# sentence was not. It matters, because 41.0 beats every single model but only one of the three ensembles;
# 41.8 beats all three.
#
# ### Why your toolkit may say 26.6 where the paper says 27.3
#
# Table 2's German scores are **tokenised BLEU with compounds split**. The paper does not say so; the
# authors' script does (`get_ende_bleu.sh` in tensor2tensor): it tokenises both sides, then cuts words at
# each hyphen, as earlier systems had done. sacreBLEU takes plain text, tokenises it itself and does not
# split. An extreme example, one sentence with two compounds:


# %%
def split_compounds(line):
    """`Fünf-Sterne-Hotel` as five tokens."""
    return re.sub(r"(?<=\S)-(?=\S)", " ##AT##-##AT## ", line)


reference = "die deutsch-französische Arbeitsgruppe tagt heute im Fünf-Sterne-Hotel am See ."
output = "die deutsch-französische Gruppe tagt heute in einem Fünf-Sterne-Hotel am See ."
scores = {}
for name, change in (("as it is", str), ("compounds split", split_compounds)):
    scores[name] = tokenized_bleu([change(output)], [change(reference)]).value
    print(f"{name:16} BLEU {scores[name]:.1f}   {change('Fünf-Sterne-Hotel')}")
assert scores["compounds split"] > scores["as it is"] + 5

# %% [markdown]
# Now a correct compound counts as several matching tokens in a row. On newstest2014 the difference was 0.7
# for one strong model: Ott et al. (2018) report 29.3 in the paper's way and 28.6 in sacreBLEU, for the same
# output. So a score of 26.6 in sacreBLEU may be as good as the 27.3 of Table 2. **Compare scores only if
# they were counted in the same way.**
#
# ### What did it cost?
#
# > "We estimate the number of floating point operations used to train a model by multiplying the training
# > time, the number of GPUs used, and an estimate of the sustained single-precision floating-point capacity
# > of each GPU." (section 6.1; footnote 5 has 9.5 TFLOPS for the P100)
#
# This is a price and not a count: a waiting GPU costs as much as one that computes. 9.5
# TFLOPS (10¹² operations per second) is close to the P100's *peak*. We can also count: on torch's `meta`
# device a tensor has a shape but no numbers, and a counter adds up the matrix products of the real model.

# %%
P100, GPUS = 9.5e12, 8  # footnote 5; section 5.2
hours, updates = {"base": 12, "big": 3.5 * 24}, {"base": 100_000, "big": 300_000}  # section 5.2
sizes = {"base": {}, "big": {"d_model": 1024, "d_ff": 4096, "h": 16}}


def operations_per_update(tokens=25_000, length=25, **settings):
    """Floating-point operations of one update, forward and backward, with as many tokens on each side."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = make_model(37_000, 37_000, **settings)
        src = torch.ones(tokens // length, length, dtype=torch.long)
        src_mask = torch.ones(tokens // length, 1, length, dtype=torch.bool)
        tgt_mask = subsequent_mask(length).expand(tokens // length, -1, -1)
        model.generator.proj(model(src, src, src_mask, tgt_mask)).sum().backward()
    return counter.get_total_flops()


price = {name: h * 3600 * GPUS * P100 for name, h in hours.items()}
counted = {name: updates[name] * operations_per_update(**sizes[name]) for name in sizes}
for name in sizes:
    share = counted[name] / price[name]
    print(f"{name:4} price {price[name]:.1e}, counted {counted[name]:.1e}: {share:.0%} of it")
    assert math.isclose(price[name], TABLE_2[f"Transformer ({name})"][1], rel_tol=0.02)
    assert 0.2 < share < 0.55

# %% [markdown]
# The price is Table 2's, to two digits. The matrix products that the model needed are 29% of it for base and
# 42% for big. (With section 5.2's rounded 0.4 seconds an update, base has 31%.) This ratio is called *model
# FLOPs utilisation*; [15](15_going_fast.ipynb) measures ours. The rest is waiting, products slower than 9.5
# TFLOPS, and work that we do not count.
#
# ## A published score, matched with another recipe
#
# We cannot train on 4.5 million pairs on a CPU.
# But Wu et al., *Good for Misconceived Reasons* (ACL 2021), have a baseline at our size: four layers of
# width 128, trained on the 29,000 captions of Multi30k, English to German, lower-cased and tokenised.

# %%
NAME = "multi30k-en-de-lc"
recipe, ours = read_toml(recipe_path(NAME)), read_scores(shipped_model(NAME))
published, score = recipe["card"]["published"], ours["test_2016_flickr"].tokenized_bleu
log = [json.loads(line) for line in (shipped_model(NAME) / "log.jsonl").read_text().splitlines()]
kink = recipe["train"]["rdrop_from"] - 1  # epochs before R-Drop
checked = [line for line in log if "validation_loss" in line]  # at the end of each epoch
tokens = checked[-1]["tokens"]
twice = tokens - next(line["tokens"] for line in checked if line["epoch"] == kink)  # these passed two times
print(f"{log[-1]['step']:,} updates in {log[-1]['seconds'] / 60:.0f} minutes; seeds: 1")
print(f"target tokens through the model: ours {(tokens + twice) / 1e6:.1f} million", end=", ")
print(f"theirs at most {8_000 * 2 * 4_096 / 1e6:.1f} million")
assert abs((tokens + twice) / (8_000 * 2 * 4_096) - 1) < 0.1

# %%
SYSTEMS = {  # n-gram precisions, brevity penalty, words in the output; the reference has 12,103
    "Wu et al.": ((71.0, 47.5, 34.3, 24.5), 0.999, 12_096, 41.02),
    "this package": ((71.4, 47.9, 34.6, 25.2), 0.995, 12_042, score.value),
}
for name, (precisions, brevity, length, bleu) in SYSTEMS.items():
    parts = "/".join(f"{p:.1f}" for p in precisions)
    print(f"{name:13} BLEU {bleu:.2f}  precisions {parts}  brevity {brevity}  {length:,} words")
    assert abs(brevity * math.exp(mean(map(math.log, precisions))) - bleu) < 0.1  # BLEU is made of these
    assert abs(math.exp(min(0, 1 - 12_103 / length)) - brevity) < 0.001
print(f"95% interval of ours: {score.low:.1f} to {score.high:.1f}")
assert published["value"] == SYSTEMS["Wu et al."][-1]
assert score.low < published["value"] < score.value < score.high

# %% [markdown]
# So the score is **matched with another recipe**. Ours is 0.33 higher, which decides nothing:
#
# - **It is not a reproduction.** They trained at most 8,000 updates of 8,192 tokens with label smoothing.
#   Ours has half the batch, 12,312 updates (on two CPU cores), another learning rate, and from the middle on
#   R-Drop, a further loss. Our compute is no smaller. Search (a beam of 5, division by length) and test text
#   are theirs.
# - **It is one seed.** The interval says only how far another thousand captions would move our score.
#   Another seed would move it too (below, in short runs, by up to 2).
# - **This recipe looked at the test set four times**, with four models, before it was done. (The models
#   further down were scored on it, too, but nothing was chosen by that.) Here is each look, in order:

# %% tags=["figure-looks"]
LOOKS = {
    "1: the paper's penalty": 40.13,
    "2: a penalty tuned on val": 39.63,
    "3: division by length, R-Drop late": 40.99,
    "4: the same, R-Drop earlier": score.value,
}
fig, ax = plt.subplots(figsize=(8.5, 3.6))
ax.plot(
    list(LOOKS.values()), range(len(LOOKS)), "o", color="C0", ms=9, label="ours, each look at the test set"
)
reach = [[score.value - score.low], [score.high - score.value]]
ax.errorbar([score.value], [3], xerr=reach, color="C0", capsize=6, label="95% interval of the last")
ax.axvline(published["value"], color="C1", ls="--", label="Wu et al., 41.02")
ax.set_yticks(range(len(LOOKS)), list(LOOKS))
ax.invert_yaxis()
ax.set(title="The recipe's looks at test_2016_flickr", xlabel="BLEU, tokenised and lower-cased")
ax.legend(loc="upper right", fontsize=10, frameon=False)
plt.show()
assert score.low < min(LOOKS.values())

# %% [markdown]
# *Figure 2. All four scores lie within the interval of the last, 39.63 only just. That does not make them
# equal: on the same sentences a difference is surer than each score (exercise 3).*
#
# After the second look the search was changed, *because* a penalty tuned on validation text had done worse
# on the test set. A test set is not for that. The new search was Wu et al.'s, and nothing about it was tuned
# again. The fourth model replaced the third because its validation score was higher (42.71, not 42.15, with a
# beam of 5 and ten epochs averaged). Wu et al.'s model that also sees the photograph has 41.96 in their
# repository, which ours does not reach (nor after further training, below: 41.73).
#
# **You can check this.** Where `ANNOTATED_DATA` names the corpus's folder, the next cell translates the
# thousand sentences again. (`annotated reproduce multi30k-en-de-lc` trains from the beginning.)

# %% tags=["nbval-ignore-output"]
again = None
if "ANNOTATED_DATA" in os.environ:
    from sacrebleu.metrics import BLEU

    corpus, translator = load_corpus("multi30k", "en-de", variant="tok"), load_pretrained(NAME)
    translator.pass_tokenized()
    again, found = score_split(translator, corpus, "test_2016_flickr", tokenized=True, **recipe["evaluate"])
    parts = BLEU(tokenize="none", force=True).corpus_score(found, [corpus["test_2016_flickr"].tgt])
    print(f"translated again, {len(found):,} sentences: {parts}")
    precisions, brevity, length, _ = SYSTEMS["this package"]
    assert max(abs(a - b) for a, b in zip(parts.precisions, precisions, strict=True)) < 0.15
    assert parts.ref_len == 12_103
else:
    print("not compared: ANNOTATED_DATA names no folder, so there is nothing to translate")

# %%
assert again is None or abs(again.tokenized_bleu.value - score.value) <= 0.05
print(f"the card says {score.value:.2f} BLEU")

# %% [markdown]
# The model `multi30k-en-de` reads and writes ordinary text. One output has three scores:

# %%
raw = read_scores(shipped_model("multi30k-en-de"))["test_2016_flickr"]
print(f"BLEU, cased, plain text:       {raw.bleu.value:.2f}")
print(f"BLEU, lower-cased, tokenised:  {raw.tokenized_bleu.value:.2f}")
print(f"chrF, letters and not words:   {raw.chrf.value:.2f}")
assert raw.tokenized_bleu.value > raw.bleu.value

# %% [markdown]
# So 41.02 is to be compared with the second alone, and even there the text that was trained on differs.

# %% [markdown]
# ### R-Drop, and when it begins
#
# Dropout makes two passes of one sentence differ ([08](08_training_recipe.ipynb)). *R-Drop* (Liang et al.,
# NeurIPS 2021) passes each batch twice and adds to the loss how far the two predictions diverge. This
# doubles the cost of an update, so our recipe begins with it after epoch 60 of 108. The paper does not use
# it.

# %% tags=["figure-training"]
curve = [(line["step"], line["validation_bleu"]) for line in checked if "validation_bleu" in line]
begin = max(line["step"] for line in checked if line["epoch"] <= kink)
losses = [line["validation_loss"] for line in checked]
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8))
axes[0].plot([line["step"] for line in checked], losses)
axes[0].set(title="Cross-entropy, dropout off", ylabel="nats a token", ylim=(1.4, 2.4))
axes[1].plot(*zip(*curve, strict=True), "o-")
axes[1].set(title="BLEU, greedy", ylabel="BLEU", ylim=(30, 43))
for ax in axes:
    ax.axvline(begin, color="grey", ls="--")
    ax.text(begin, ax.get_ylim()[1], "R-Drop begins ", ha="right", va="top", color="0.35")
    ax.set_xlabel("update (validation text)")
    ax.xaxis.set_major_formatter("{x:,.0f}")
plt.show()
best = [min(losses[:n]) for n in (kink - 12, kink, kink + 12)]
print(f"the 12 epochs before it gain {best[0] - best[1]:.3f} nats, the 12 after it {best[1] - best[2]:.3f}")
late = [bleu for _, bleu in curve[-4:]]
print("the last four BLEU:", ", ".join(f"{bleu:.1f}" for bleu in late))
assert best[1] - best[2] > 1.5 * (best[0] - best[1])
assert max(late) - min(late) > 0.5

# %% [markdown]
# *Figure 3. The run's log on validation text. The cross-entropy falls faster when R-Drop begins (dashed
# line). The BLEU of single checkpoints jumps by more than half a point.*
#
# It looks as if R-Drop helped. But without a *control* one cannot tell. A full run takes hours, so we first
# ran an eighth of the epochs, three seeds each (record `ablation`): 14 with R-Drop from the ninth on,
# and 20 without, which pass the text through the model as often.

# %% tags=["figure-ablation"]
short = recorded("ablation")["models"]
val, test = (
    {name: [run[split]["bleu"] for run in runs.values()] for name, runs in short.items()} for split in ours
)
fig, ax = plt.subplots(figsize=(8.5, 3.6))
labels = [name.replace("and ", "no R-Drop, ") for name in short]
for i, (name, label) in enumerate(zip(short, labels, strict=True)):
    ax.plot(val[name], [i - 0.1] * len(val[name]), "o", color="C0", label="validation text")
    ax.plot(test[name], [i + 0.1] * len(test[name]), "x", color="C1", label="test text")
    print(f"{label:29} BLEU, mean: {mean(val[name]):.1f} on val, {mean(test[name]):.1f} on the test text")
ax.set_yticks(range(len(short)), labels)
ax.invert_yaxis()
ax.set(title="One change at a time, an eighth of the epochs", xlabel="BLEU")
ax.legend(ax.lines[:2], [line.get_label() for line in ax.lines[:2]])
plt.show()
assert max(val["R-Drop"]) < min(val["no R-Drop, as many passes"]) - 2
assert abs(val["R-Drop"][0] - val["no R-Drop"][0]) < 1
assert val["and dropout 0.1"][0] > val["no R-Drop"][0] + 6 > val["and subword dropout 0.1"][0] + 22
assert val["and a warm-up of 100"][0] < val["and three matrices"][0] < val["no R-Drop"][0] - 4

# %% [markdown]
# *Figure 4. Each mark is one run. The first two rows have three seeds, the others one; these have 14 epochs.*
#
# In so short a run R-Drop *costs* 3.3 points on validation text and 2.5 on the test text: the same passes
# give fewer updates, and with as many *updates* (third row) no cost shows. The rows below change one thing
# in the third. On validation text three matrices ([04](04_feed_forward_and_embeddings.ipynb)) cost four
# points, a warm-up of 100 updates instead of 400 costs eight, and subword dropout
# ([07](07_batches_and_masks.ipynb)) seventeen; dropout 0.1 instead of 0.3 *gains* six. Leaving out smoothing
# changes less than the seeds of R-Drop differ. All have one learning rate, so a row may only show that this
# rate does not suit it. None of this is advice for a long run.
#
# So we also trained the finished model further: 12 epochs with R-Drop, or 24 without; and `multi30k-en-de`,
# 26 epochs with it (record `continued`).

# %%
further = recorded("continued")
for name, each in further.items():
    for split in ours:
        scores = each[split]["recipe"]
        before, after, over = scores["shipped"]["bleu"], scores["10"]["bleu"], scores["10"]["over shipped"]
        interval = f"{over['value']:+.2f} ({over['low']:+.2f} to {over['high']:+.2f})"
        print(f"{name}, {split}: BLEU {before['value']:.2f}, then {after['value']:.2f}: {interval}")
gains = {
    name: [each[split]["recipe"]["10"]["over shipped"] for split in ours] for name, each in further.items()
}
with_it, without = gains["multi30k-en-de-lc, R-Drop"], gains["multi30k-en-de-lc, no R-Drop"]
assert all(gain["low"] < 0 < gain["high"] for gain in with_it + without)
assert max(abs(gain["value"]) for gain in without) < 0.1 < min(gain["value"] for gain in with_it)

# %% [markdown]
# With R-Drop, the score on the validation text rises by 0.25 and on the test text to 41.73. Without it,
# after as many passes, both stay where they were, within 0.1. So late in a long run R-Drop may well help.
# But it is one seed, and the intervals of these four differences all hold zero. (`multi30k-en-de`, scored
# with its capital letters, had fewer epochs with R-Drop before and more now, and gains more; on the test
# text its interval is above zero.) None of these models is shipped.
#
# Because one checkpoint's BLEU is so noisy, the recipe averages the last ten epochs
# ([11](11_search_and_averaging.ipynb)).
#
# ## Table 3: what matters?
#
# > "... we varied our base model in different ways, measuring the change in performance on
# > English-to-German translation on the development set, newstest2013." (section 6.2)
#
# No checkpoints were averaged for this *ablation*.

# %%
TABLE_3 = [  # row, what is changed, perplexity per wordpiece, BLEU, millions of parameters (65 if not given)
    ("A", "h = 1, d_k = 512", 5.29, 24.9, 65),
    ("A", "h = 4, d_k = 128", 5.00, 25.5, 65),
    ("A", "h = 16, d_k = 32", 4.91, 25.8, 65),
    ("A", "h = 32, d_k = 16", 5.01, 25.4, 65),
    ("B", "d_k = 16", 5.16, 25.1, 58),
    ("B", "d_k = 32", 5.01, 25.4, 60),
    ("C", "N = 2", 6.11, 23.7, 36),
    ("C", "N = 4", 5.19, 25.3, 50),
    ("C", "N = 8", 4.88, 25.5, 80),
    ("C", "d_model = 256", 5.75, 24.5, 28),
    ("C", "d_model = 1024", 4.66, 26.0, 168),
    ("C", "d_ff = 1024", 5.12, 25.4, 53),
    ("C", "d_ff = 4096", 4.75, 26.2, 90),
    ("D", "dropout 0", 5.77, 24.6, 65),
    ("D", "dropout 0.2", 4.95, 25.5, 65),
    ("D", "smoothing 0", 4.67, 25.3, 65),
    ("D", "smoothing 0.2", 5.47, 25.7, 65),
    ("E", "learned positions", 4.92, 25.7, 65),
    ("big", "big", 4.33, 26.4, 213),
]
BASE = ("base", "base", 4.92, 25.8, 65)
COLOURS = {"A": "C0", "B": "C1", "C": "C2", "D": "C3", "E": "C4", "big": "C5", "base": "black"}

# %% tags=["figure-table-3"]
fig, axes = plt.subplots(1, 2, figsize=(12.5, 5.6), layout="constrained")
for i, (row, _, _, bleu, _) in enumerate(TABLE_3):
    axes[0].plot(bleu - BASE[3], i, "o", color=COLOURS[row], ms=8)
axes[0].set_yticks(
    range(len(TABLE_3)), [f"{name}  ({row})" if row != name else name for row, name, *_ in TABLE_3]
)
axes[0].invert_yaxis()
axes[0].axvline(0, color="black", lw=1)
axes[0].axvspan(-0.3, 0.3, color="0.9", zorder=0)
axes[0].set(title="One change at a time", xlabel="BLEU, difference from the base model (25.8)")
for row, name, _, bleu, size in [*TABLE_3, BASE]:
    if row in ("C", "big", "base"):
        axes[1].plot(size, bleu, "o", color=COLOURS[row], ms=8)
        axes[1].annotate(name, (size, bleu), (7, -14 if name == "N = 4" else -6), textcoords="offset points")
axes[1].set(
    title="Size and BLEU", xlabel="parameters (millions)", ylabel="BLEU", xscale="log", xlim=(24, 380)
)
axes[1].set_xticks([30, 50, 100, 200], ["30", "50", "100", "200"])
axes[1].minorticks_off()
plt.show()

# %% [markdown]
# *Figure 5. Table 3. Left: a dot for each row, coloured by the paper's groups; the grey band of 0.3 BLEU is
# ours. Right: the base model, group C and the big model by size. The big model also had dropout 0.3 and
# three times as many updates. (A wordpiece is a subword.)*
#
# The paper has one score for each row, on 3,000 sentences, without an interval; presumably each is one run.
# Another seed may well move a row by some tenths. The band of 0.3 is our guess, and seven of the 19 rows lie
# in it. Do the numbers support
# section 6.2?
#
# - "... single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too many
#   heads." Yes: 24.9 against 25.8, and 25.4 with 32 heads, barely outside the band.
# - "... bigger models are better ..." Yes for the depth up to six layers and for $d_{ff}$; $d_{model} =
#   1024$ gains 0.2, within the band. Eight layers have 0.3 BLEU *less*, also within the band, and a better
#   perplexity (4.88 against 4.92).
# - "... dropout is very helpful in avoiding over-fitting." Yes: 24.6 without it.
# - "... reducing the attention key size $d_k$ hurts model quality. This suggests that determining
#   compatibility is not easy and that a more sophisticated compatibility function than dot product may be
#   beneficial." The numbers hold. It is not only the smaller model: $d_{ff} = 1024$ has fewer parameters
#   still (53 million, not 58) and a slightly better perplexity (5.12 against 5.16). Nor is it $d_k$ alone:
#   with $d_k = 16$, 32 heads (A) do better than 8 (B), 5.01 against 5.16. Nor is it the total $h\,d_k$
#   alone: it is the same in all rows of (A), and they differ.

# %%
far = [name for _, name, _, bleu, _ in TABLE_3 if bleu - BASE[3] > 0.35]
near = sum(abs(bleu - BASE[3]) < 0.35 for *_, bleu, _ in TABLE_3)
print(f"within 0.3 BLEU of the base model: {near} of {len(TABLE_3)} rows; above: {', '.join(far)}")
assert far == ["d_ff = 4096", "big"]
perplexity, bleu_of, size_of = ({row[1]: row[k] for row in [*TABLE_3, BASE]} for k in (2, 3, 4))
assert round(25.8 - bleu_of["h = 1, d_k = 512"], 1) == 0.9
assert bleu_of["N = 2"] < bleu_of["N = 4"] < bleu_of["N = 8"] < bleu_of["base"]
assert perplexity["N = 8"] < perplexity["base"]
assert size_of["d_ff = 1024"] < size_of["d_k = 16"]
assert perplexity["d_ff = 1024"] < perplexity["d_k = 16"]
assert perplexity["h = 32, d_k = 16"] == perplexity["d_k = 32"] < perplexity["d_k = 16"]

# %% [markdown]
# ### Perplexity and BLEU
#
# Do they agree?


# %% tags=["figure-two-measures"]
def correlation(rows):
    """Pearson's r between the logarithm of perplexity and BLEU."""
    x, y = zip(*((math.log(row[2]), row[3]) for row in rows), strict=True)
    return torch.corrcoef(torch.tensor([x, y]))[0, 1].item()


fig, ax = plt.subplots(figsize=(7.5, 4.4))
for _, name, found, bleu, _ in [*TABLE_3, BASE]:
    smoothing = name.startswith("smoothing")
    ax.plot(found, bleu, "s" if smoothing else "o", color="C3" if smoothing else "C0", ms=8)
    if smoothing or name in ("N = 2", "N = 8", "big", "d_model = 256", "d_model = 1024", "dropout 0"):
        left = name in ("smoothing 0", "N = 8", "d_model = 256")
        place = (-8, 6 if name == "N = 8" else -12) if left else (8, 2)
        ax.annotate(name, (found, bleu), place, textcoords="offset points", ha="right" if left else "left")
ax.set(title="Table 3: two measures", xlabel="perplexity per wordpiece", ylabel="BLEU", xlim=(4.1, 6.5))
plt.show()
everything = [*TABLE_3, BASE]
others = [row for row in everything if not row[1].startswith("smoothing")]
print(f"correlation: all rows {correlation(everything):.2f}, smoothing left out {correlation(others):.2f}")
assert correlation(others) < -0.95
assert correlation(everything) > correlation(others) + 0.05

# %% [markdown]
# *Figure 6. All models but two lie close to a line (r = −0.97, with the logarithm of perplexity). The two
# squares were trained with another label smoothing.*
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
# > (section 5.4)
#
# Without smoothing, perplexity is better than the base model's (4.67 against 4.92) and BLEU is worse (25.3
# against 25.8). So in this table perplexity ranks models well that were trained with the same loss (less well
# those close together), and not across losses.
#
# ### Table 3 at our size
#
# Ours are small models: two layers of width 128, four heads, $d_{ff} = 256$, dropout 0.1, 1,000 updates on
# the built-in German-English corpus, one change at a time. Each row has the **learning rate that suits it**:
# of equation 3 times 0.35, 0.7 and 1.4, the best on the validation text. We show the peak of that rate, and
# scores on the test text (record `variations`). The base and both rows of smoothing have three seeds,
# the others one.

# %%
record = recorded("variations")
runs = {
    name: [run for run in each["runs"] if run["factor"] == each["factor"]]
    for name, each in record["variations"].items()
}
print("                    parameters   rate  perplexity  BLEU")
for name, each in runs.items():
    size, peak = each[0]["parameters"] / 1e6, each[0]["peak"]
    scores = [mean(run[what] for run in each) for what in ("perplexity", "bleu")]
    print(f"{name:18} {size:8.2f} M  {peak:.4f}  {scores[0]:10.2f}  {scores[1]:4.1f}")

# %% tags=["figure-our-table-3"]
row_of = {name: each["row"] for name, each in record["variations"].items()}
base_mean = mean(math.log(run["perplexity"]) for run in runs["base"])
apart = {name: [math.log(run["perplexity"]) - base_mean for run in each] for name, each in runs.items()}
noise = max(map(abs, apart["base"]))  # nats; how far the base's own seeds are from their mean
fig, ax = plt.subplots(figsize=(8.5, 6))
for i, (name, values) in enumerate(apart.items()):
    ax.plot(values, [i] * len(values), "o", color=COLOURS.get(row_of[name], "C5"), ms=8)
ax.axvspan(-noise, noise, color="0.9", zorder=0)
ax.axvline(0, color="black", lw=1)
ax.set_yticks(range(len(runs)), list(runs))
ax.invert_yaxis()
ax.set_title(f"One change at a time, a rate for each, {record['updates']:,} updates")
ax.set_xlabel("cross-entropy, difference from the base model (nats a token)")
plt.show()

# %% [markdown]
# *Figure 7. Left is better. Each dot is one run. The grey band reaches as far as the base model's own seeds.
# Three seeds make it narrow: were nothing changed, another run would still fall outside the range of three
# in half of all cases. So a single dot near the band decides nothing.*

# %%
same_loss = [name for name in runs if not name.startswith("smoothing")]
worse = [name for name in same_loss if min(apart[name]) > noise]
better = [name for name in same_loss if max(apart[name]) < -noise]
print("worse than every seed of the base:", ", ".join(worse))
print("better:", ", ".join(better))
for name, times in (("N = 4", 2), ("d_model = 256", 1.05)):
    tried = [run["perplexity"] for run in record["variations"][name]["runs"] if run["seed"] == 0]
    print(f"{name}, perplexity at 0.35, 0.7 and 1.4:", ", ".join(f"{x:.2f}" for x in tried))
    assert times * tried[0] < tried[1]  # half of it is better, by so many times
assert abs(math.log(tried[1]) - base_mean) < noise
bleus = {name: mean(run["bleu"] for run in each) for name, each in runs.items()}
seeds = ", ".join(f"{run['bleu']:.1f}" for run in runs["base"])
print(f"BLEU without dropout {bleus['dropout 0']:.1f}, with 0.1: {seeds}")
assert bleus["dropout 0"] > max(run["bleu"] for run in runs["base"])
assert {"h = 1", "d_k = 8", "N = 1", "N = 4", "d_model = 64", "dropout 0"} <= set(worse)
assert {"d_model = 256", "three matrices", "h = 16", "d_k = 16"} <= set(better)
assert noise < max(apart["learned positions"]) < 0.015  # nats

# %% [markdown]
# In cross-entropy, as in the paper, one head, a quarter of the base's $d_k$, smaller models and no dropout
# are worse, and $d_{model} = 256$ is better. Unlike in the paper, four times the base's heads (16; there 32)
# and half its $d_k$ (16; there 32) cost nothing, and dropout 0.2 costs almost as much as none. The heads,
# $d_k$ and learned positions lie so near the band that one seed decides nothing. BLEU decides less: the
# base's own seeds differ by three points.
#
# **Look at the rates.** At 0.7, the base model's, four layers hardly train, and $d_{model} = 256$ is no
# better than the base; at 0.35 four layers train, and $d_{model} = 256$ wins. With one rate for all rows we
# would have compared rates, not models. Four layers stay behind, but their best rate is the lowest that we
# tried: a still lower one, or more updates, might change that. Without dropout, BLEU is *higher*, though
# perplexity is worse: here perplexity does not rank as it does in Figure 6. Three matrices (embeddings and
# output not shared) beat the base, with 1.43 million parameters, not 0.92; on Multi30k above, at one rate
# for all and with dropout 0.3, they lost four BLEU.
#
# ## Exercises
#
# **Exercise 1 (easy).** Suppose that we had run only one seed of `smoothing 0` and one of `base`. In how
# many of the nine pairs of seeds would `smoothing 0` have the better perplexity, and in how many the better
# BLEU? And `smoothing 0.2` against `base`?

# %% tags=["solution"]
for name in ("smoothing 0", "smoothing 0.2"):
    pairs = [(a, b) for a in runs[name] for b in runs["base"]]
    wins = (
        sum(a["perplexity"] < b["perplexity"] for a, b in pairs),
        sum(a["bleu"] > b["bleu"] for a, b in pairs),
    )
    print(f"{name:13} better perplexity in {wins[0]} of 9 pairs, better BLEU in {wins[1]} of 9")
# But `smoothing 0` has half the base's rate, so these pairs differ in two things.

# %% [markdown]
# **Exercise 2 (medium).** A rule of thumb says that training costs $6ND$ operations: 6 times the parameters
# ($N$) times the tokens ($D$). Why 6? Try it on the base model with `operations_per_update`. Which tokens
# must $D$ count: source, target or both?

# %% tags=["solution"]
encoder = 6 * (4 * 512**2 + 2 * 512 * 2048)  # sees the source tokens
decoder = 6 * (8 * 512**2 + 2 * 512 * 2048)  # sees the target tokens, but two of its maps see the source
output = 37_000 * 512  # sees the target tokens; as an embedding the same matrix costs nothing
rule = 6 * 25_000 * (encoder + decoder + output)  # 2 operations a weight forward, 4 backward, for each token
share = rule / operations_per_update()
print(f"6ND with the tokens of one side: {share:.1%} of what was counted; with both: {2 * share:.0%}")
# Each matrix sees one side only, so neither fits where the sides differ. The last percent is QK^T and AV.
assert 0.97 < share < 1

# %% [markdown]
# **Exercise 3 (hard).** Are two systems different? Write the paired bootstrap for a corpus score that is a
# quotient of sums, such as a precision: draw sentences with replacement, *the same for both systems*, and
# take the middle 95% of the differences. The test compares it with intervals of each system alone. Which
# data would you need from Wu et al. to apply it to Figure 2?


# %% tags=["exercise"]
def paired_interval(a, b, words, draws=1000):
    """Right words a and b (sentences,) of all `words` (sentences,) -> (low, high) of score(a) - score(b)."""
    raise NotImplementedError


# %% tags=["solution"]
# Their translations of the same thousand sentences: neither scores nor intervals are enough.
def paired_interval(a, b, words, draws=1000):
    drawn = torch.randint(len(words), (draws, len(words)))  # each row a test set
    differences = (a[drawn] - b[drawn]).sum(dim=1) / words[drawn].sum(dim=1)
    low, high = differences.quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
lengths = torch.randint(5, 30, (500,))
first = (lengths * torch.rand(500)).round().long()  # some sentences are hard, for both systems
second = (first - torch.randint(0, 2, (500,))).clamp(min=0)  # a little worse
nothing = torch.zeros_like(first)
paired = paired_interval(first, second, lengths)
alone = [paired_interval(system, nothing, lengths) for system in (first, second)]
print(f"each alone: {alone[0][0]:.3f} to {alone[0][1]:.3f}, {alone[1][0]:.3f} to {alone[1][1]:.3f}")
print(f"the difference, paired: {paired[0]:.3f} to {paired[1]:.3f}")
assert alone[0][0] < alone[1][1]  # the intervals overlap, and decide nothing
assert 0 < paired[0] < ((first - second).sum() / lengths.sum()).item() < paired[1]
assert paired[1] - paired[0] < (alone[0][1] - alone[0][0]) / 4
assert paired_interval(first, first, lengths) == (0, 0)

# %% [markdown]
# How a model does it, as far as its attention shows it, is next:
# [13_reading_attention](13_reading_attention.ipynb).
