# %% [markdown]
# # What does R-Drop bring?
#
# No gain that our runs can show. In short runs with the same number of passes through the model, it costs 2.5
# BLEU on the test text (three seeds each, 95% interval 0.7 to 4.4). At the end of a long run it is ahead of
# its matched control by 0.35 BLEU, with one seed and an interval of at most about ± 0.9.
#
# *Seconds to run; it reads records of hours of training.* This notebook belongs to lesson
# [12_results](../12_results.ipynb).

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
# ## The question
#
# Dropout makes two passes of one sentence differ. **R-Drop** (Liang et al.,
# [2021](https://arxiv.org/abs/2106.14448)) passes each batch twice and adds to the loss how far the two
# predictions are apart. The paper "Attention Is All You Need" does not use it. The recipe of our model
# `multi30k-en-de-lc` does, from the middle of its training on, and its validation loss fell faster from
# there. Was that R-Drop? One curve cannot say, because there is no run without R-Drop beside it.
#
# A comparison must hold something equal, and we have to decide what. R-Drop doubles the cost of an update.
# So for the *same cost*, the run without it may pass the text twice as often.
#
# ## Short runs
#
# An eighth of the recipe's epochs: 14 epochs with R-Drop from the ninth on, against 20 epochs without. Both
# pass the text through the model equally often. Each is run with three seeds.

# %%
import math
from statistics import mean, stdev

from annotated.recorded import recorded

T_4 = 2.776  # 97.5% quantile of Student's t with 4 degrees of freedom: two groups of three seeds
models = recorded("ablation")["models"]


def scores(name, split):
    """BLEU of the three seeds."""
    return [run[split]["bleu"] for run in models[name].values()]


differences = {}
for split in ("val", "test_2016_flickr"):
    with_it, without = scores("R-Drop", split), scores("no R-Drop, as many passes", split)
    half = T_4 * math.sqrt((stdev(with_it) ** 2 + stdev(without) ** 2) / 3)
    differences[split] = mean(with_it) - mean(without), half
    shown = [", ".join(f"{bleu:.1f}" for bleu in runs) for runs in (with_it, without)]
    print(f"{split}: with {shown[0]}; without {shown[1]}")
    print(f"    difference {differences[split][0]:+.1f}, 95% interval ± {half:.1f}")
longer = [models[name]["0"]["test_2016_flickr"]["bleu"] for name in ("R-Drop", "no R-Drop")]
print(f"as many updates instead of passes, one seed: with {longer[0]:.1f}, without {longer[1]:.1f}")

# %% tags=["check"]
test, half = differences["test_2016_flickr"]
assert (round(-test, 1), round(-test - half, 1), round(-test + half, 1)) == (2.5, 0.7, 4.4)
assert max(scores("R-Drop", "val")) < min(scores("no R-Drop, as many passes", "val")) - 2
assert abs(longer[0] - longer[1]) < 0.5

# %% [markdown]
# For the same cost, R-Drop loses clearly. A likely reason is that its run makes fewer updates: with equally
# many *updates*, the two runs that we have, one seed of each, differ by only 0.2 BLEU, and the one without
# R-Drop is cheaper. All these models are far from the end of their training.
#
# ## At the end of a long run
#
# We trained the finished model further, in two ways that differ in one thing: 12 epochs with R-Drop, or 24
# epochs without. Same text, same start, same learning rate, as many passes. Both are scored with a beam of 5,
# on the mean of the last ten checkpoints, and compared with the model that they started from, on the same
# sentences.

# %%
continued = recorded("continued")
pair = {how: continued[f"multi30k-en-de-lc, {how}"] for how in ("R-Drop", "no R-Drop")}
gaps = {}
for split in ("val", "test_2016_flickr"):
    bleu, margin = {}, {}
    for how, found in pair.items():
        over = found[split]["recipe"]["10"]["over shipped"]
        bleu[how] = found[split]["recipe"]["10"]["bleu"]["value"]
        margin[how] = (over["high"] - over["low"]) / 2
        interval = f"{over['value']:+.2f} ({over['low']:+.2f} to {over['high']:+.2f})"
        print(f"{split}: {how:9} {bleu[how]:.2f} BLEU, {interval} over the start")
    gaps[split] = bleu["R-Drop"] - bleu["no R-Drop"], math.hypot(*margin.values())
    print(f"    with against without: {gaps[split][0]:+.2f}, interval at most about ± {gaps[split][1]:.1f}")

# %% tags=["check"]
for gap, most in gaps.values():
    assert 0.3 < gap < 0.4
    assert gap < most
settings = [found["settings"] for found in pair.values()]
different = {key for key in settings[0] if settings[0][key] != settings[1].get(key)}
assert different <= {"epochs", "rdrop_weight"}

# %% [markdown]
# The run with R-Drop is ahead by 0.34 on val and 0.35 on test. Is that more than luck? The fair test would
# be paired: with against without, on the same sentences. Our record holds each run's comparison with the
# *start*, and not the translations, so that test can no longer be made. The interval above treats the two
# comparisons as if they were independent. They are not quite, because both have the same start, so the true
# interval is likely narrower, but it would have to be less than half as wide to exclude zero.
#
# And a paired interval would still cover only the sentences. It would not cover the seed, and there is one
# seed of each.
#
# ## What it says
#
# R-Drop doubles the cost of an update, and in short runs of equal cost it loses. Late in training it may
# help by some tenths, and our runs cannot show it. There is another lesson: if we had stored the
# translations, the paired test would be free today. **Store what the systems wrote, not only their
# scores.**
#
# **What it does not say.** Liang et al. report gains with large models and long training. Nothing here
# contradicts them.
