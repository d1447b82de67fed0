# %% [markdown]
# # Is attention an explanation?
#
# Only in part. The translator needs its cross-attention: with uniform weights, it loses ≈1.8 nats per token.
# But a search that moves ≈63% of all weight elsewhere changes only ≈3% of the predicted probability, so the
# map that we see is one of many that would do.
#
# *Half a minute to run.* This notebook belongs to lesson
# [13_reading_attention](../13_reading_attention.ipynb).

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
# ## What is changed, and what is measured
#
# A shipped model (English to German, four layers of four heads) reads 24 captions with their translations. We
# replace the weights of its cross-attention and report three numbers:
#
# - the share of the **weight** that lies elsewhere than before, mean of the 16 maps and the least of them;
# - the share of the predicted **probability** that lies elsewhere than before;
# - how many **nats** per token the 24 translations lose.

# %%
import torch
from torch.nn import functional as F

from annotated import Batch, attention, load_pretrained
from annotated.translation.data.aligned_captions import aligned_captions

torch.set_num_threads(1)
translator = load_pretrained("multi30k-en-de")
model, tokenizer = translator.model.eval().requires_grad_(False), translator.tgt_tokenizer
pairs = aligned_captions()
rows = [[tokenizer.start, *tokenizer.encode(pair.german), tokenizer.end] for pair in pairs]
src = translator.batch([translator.encode(pair.english) for pair in pairs])
batch = Batch(src, translator.batch(rows), pad=tokenizer.pad)
real = batch.tgt_y != tokenizer.pad  # (24, T)
memory, seen_by_all = model.encode(batch.src, batch.src_mask), batch.src_mask.unsqueeze(1)  # (24, 1, 1, S)
cross = [layer.src_attn for layer in model.decoder.layers]


# %%


def predict(change):
    """Log-probabilities (tokens, V), and the weights used; `change` maps (layer, weights) to weights."""
    used = []

    def attend(q, k, v, mask):
        used.append(change(len(used), attention(q, k, v, mask)[1]))
        return used[-1] @ v

    for module in cross:
        module.attend = attend
    out = model.decoder(model.tgt_embed(batch.tgt), memory, batch.src_mask, batch.tgt_mask)
    for module in cross:
        del module.attend
    return model.generator(out[real]), used


# %%
intact, before = predict(lambda layer, weights: weights)


def moved(weights):
    """The share of each map's weight that lies elsewhere than before (layers, h)."""
    gaps = (torch.stack(weights) - torch.stack(before)).abs().sum(dim=-1) / 2  # (layers, 24, h, T)
    return gaps.transpose(2, 3)[:, real].mean(dim=1)


def lost(change):
    """Nats that each token of the translations loses (tokens,)."""
    return (intact - predict(change)[0])[range(len(intact)), batch.tgt_y[real]]


def measure(name, change):
    with torch.no_grad():
        changed, used = predict(change)
        shares, probability = moved(used), (changed.exp() - intact.exp()).abs().sum(dim=-1).mean() / 2
        row = shares.mean().item(), shares.min().item(), probability.item(), lost(change).mean().item()
    print(
        "{:17} weight moved ≈{:.0%} (least ≈{:.0%}), probability ≈{:.0%}, lost ≈{:.2f} nats".format(
            name, *row
        )
    )
    return row


# %% tags=["check"]
assert moved(before).max() == 0

# %% [markdown]
# ## It needs its attention
#
# **Even** weights are the same for every source token. **Shuffled** weights are the model's own, in another
# order in each row. And one head at a time is made even.


# %%
def shuffled(layer, weights):
    noise = torch.rand_like(weights).masked_fill(~seen_by_all, 2)  # padding stays where it is, at the end
    return weights.gather(-1, noise.argsort(dim=-1))


def one_even(layer, head):
    here = torch.arange(4).view(-1, 1, 1) == head
    return lambda n, weights: torch.where(here, even, weights) if n == layer else weights


even = seen_by_all / seen_by_all.sum(dim=-1, keepdim=True)
_ = torch.manual_seed(0)
all_even = measure("even weights", lambda layer, weights: even.expand_as(weights))
mixed = measure("shuffled weights", shuffled)
harm = torch.tensor([[lost(one_even(n, h)).mean() for h in range(4)] for n in range(4)])
print(f"one head even: at most ≈{harm.max():.2f} nats lost, all 16 added up ≈{harm.sum():.2f}")

# %% tags=["check"]
assert min(all_even[3], mixed[3]) > 1.5
assert min(all_even[0], all_even[2]) > 0.4
assert harm.max() < 0.4
assert harm.sum() < 0.7 * all_even[3]

# %% [markdown]
# Weights without information cost ≈1.8 to ≈2.4 nats per token. Jain and Wallace
# ([2019](https://arxiv.org/abs/1902.10186)) had found the opposite for text classifiers, whose output often
# changed little under shuffled weights. A translator has to find the word that it translates next, which
# may be why.
#
# Here, no single head is needed: the worst costs ≈0.10 nats. Voita and others
# ([2019](https://arxiv.org/abs/1905.09418)) pruned the heads of a full-size translator in training: most
# encoder heads could go at 0.15 BLEU, and the ones that stayed longest were positional, syntactic or looked
# at rare words.
#
# ## A weight is not an effect
#
# The captions end in a full stop and `</s>`. Both carry little content, and yet they get attention. How
# much would an even map give to two tokens of a caption? That is the baseline.

# %%
lengths = batch.src_mask.sum(dim=-1)  # (24, 1)
place = torch.arange(batch.src.size(1))
groups = {
    "first two tokens": (place < 2).expand_as(batch.src),
    "middle two": (place >= lengths // 2 - 1) & (place < lengths // 2 + 1),
    "full stop and </s>": (place >= lengths - 2) & (place < lengths),
}
pieces = [tokenizer.pieces(row) for row in batch.tgt_y.tolist()]
says_word = real & torch.tensor([[piece.strip("▁") not in (".", "</s>") for piece in row] for row in pieces])
mean_map = torch.stack(before).mean(dim=(0, 2))  # (24, T, S)
share, price = {}, {}
baseline = (2 / lengths.expand(-1, batch.tgt_y.size(1)))[says_word].mean().item()
print(f"two tokens of an even map: ≈{baseline:.1%} of the weight")
for name, keys in groups.items():
    share[name] = (mean_map * keys.unsqueeze(1)).sum(dim=-1)[says_word].mean().item()
    left_out = lost(lambda layer, weights, keys=keys: weights * ~keys[:, None, None])
    price[name] = left_out[says_word[real]].mean().item()
    print(f"{name:19} ≈{share[name]:.1%} of the weight; without their values ≈{price[name]:+.2f} nats lost")

# %% tags=["check"]
last = "full stop and </s>"
assert 0.1 < baseline < 0.17
assert baseline < share[last] < 2 * baseline
assert abs(price[last]) < 0.05 < 0.3 < min(price["first two tokens"], price["middle two"])

# %% [markdown]
# The last two tokens get about 1.2 times an even share. That is not much, and not the *attention sink* of
# large language models, where the first token can take most of a head's weight (Xiao and others,
# [2023](https://arxiv.org/abs/2309.17453)). What is remarkable is the price: their values can be left out
# at no cost, while two ordinary tokens with *less* weight cost about half a nat. What reaches the query is
# the weight times the value (Kobayashi and others, [2020](https://arxiv.org/abs/2004.10102)), and a map
# shows the weight alone.
#
# ## Other weights, same prediction
#
# Jain and Wallace asked: can one find quite different weights with almost the same output? Then the map is
# not *the* explanation. Our adversary is gradient descent. It may choose every weight of every caption, and
# it minimizes the divergence from the old predictions minus the share of weight that it has moved. Because
# weight on the last two tokens is nearly free, a second run must leave those two their weight.


# %%
def adversary(movable):
    """Search for other weights on the movable keys, bool (24, 1, 1, S); the other keys keep theirs."""
    _ = torch.manual_seed(0)
    offsets = [torch.randn_like(w).mul(0.1).requires_grad_() for w in before]

    def change(layer, weights):
        scores = (before[layer] + 1e-6).log() + offsets[layer]
        kept = before[layer] * ~movable
        return kept + (1 - kept.sum(dim=-1, keepdim=True)) * scores.masked_fill(~movable, -1e9).softmax(
            dim=-1
        )

    adam = torch.optim.Adam(offsets, lr=0.2)
    for _ in range(50):
        changed, used = predict(change)
        loss = F.kl_div(changed, intact, log_target=True, reduction="batchmean") - moved(used).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return change


# %%
free = measure("free adversary", adversary(seen_by_all))
kept = measure("last two kept", adversary(seen_by_all & ~groups[last][:, None, None]))

# %% tags=["check"]
assert free[0] > 0.5
assert 0.4 < kept[0] < free[0]
assert max(free[2], kept[2]) < 0.1
assert min(free[1], kept[1]) > 0.2

# %% [markdown]
# Even weights moved about as much weight, and they moved more than half of the probability. The adversary
# finds maps that are just as different, with almost the same predictions. With the weight of the last two
# tokens kept, it still moves ≈49%. So not every map will do, but more than one will.
#
# ## What it says, and what it does not
#
# **A map is not the only explanation.** Wiegreffe and Pinter ([2019](https://arxiv.org/abs/1908.04626),
# "Attention is not not Explanation") objected that such weights are searched for one text at a time, while
# a fair adversary would be a trained model; and that an explanation need not be the only one. Our adversary
# is also searched for on these 24 texts, so it does not settle their point.
#
# **What it does not say.** This is one small model with 24 captions, and cross-attention only. That no
# single head is needed may be because heads stand in for each other, or because sixteen changes at once
# take the model further from what it was trained on than one.
