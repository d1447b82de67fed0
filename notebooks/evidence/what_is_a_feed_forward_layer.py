# %% [markdown]
# # What is a feed-forward layer?
#
# A memory, in a sense: its keys and values are weights. But its units are only a little more selective than
# chance. A third of the units of our translator's encoder fire often enough to judge, and of these, about 80%
# respond mainly to one token. So do about 70% of random directions, if they are drawn with the same spread as
# the words' vectors. Attention over trained keys and values memorizes 1,600 random facts as well as the
# network does.
#
# *Half a minute to run.* This notebook belongs to lesson
# [04_feed_forward_and_embeddings](../04_feed_forward_and_embeddings.ipynb).

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
# ## The idea, and whose it is
#
# Put the two formulas beside each other, without biases and without the scale:
#
# $$\mathrm{ReLU}(x\,W_1)\,W_2 \qquad\qquad \mathrm{softmax}(q\,K^\top)\,V$$
#
# A column of $W_1$ is compared with the word's vector, as a key is compared with a query. If it fits, the
# corresponding row of $W_2$ is added, as a value is. There are two differences: these keys and values are
# weights, the same for every sentence, and a ReLU stands where attention has a softmax.
#
# The idea is often credited to Geva et al. ([2021](https://arxiv.org/abs/2012.14913)), who call these
# networks *key-value memories* and found units in a trained language model that react to certain patterns.
# But the authors of the Transformer had it first. The LaTeX source that they uploaded to
# [arXiv](https://arxiv.org/abs/1706.03762) has a section that the published paper leaves out,
# `parameter_attention.tex`, with the title "Two Feed-Forward Layers = Attention over Parameters". It
# compares the same two formulas. They also *replaced* the feed-forward networks by multi-head attention
# over trained keys and values, with 8 heads and 1,536 keys in each. By their table this gave 25.5 BLEU,
# where the base model has 25.8, and it was slower; a second version reached 25.9.
#
# Why 1,536? Attention over parameters has a map for queries, a map at the output, and the keys and values.
# It is as large as a feed-forward network if $2 d^2 + 2 n d = 2\, d\, d_{ff}$:

# %%
d_model, d_ff = 512, 2048
n = d_ff - d_model
print(f"{n:,} keys: {2 * d_model**2 + 2 * n * d_model:,} weights, as in W_1 and W_2: {2 * d_model * d_ff:,}")

# %% tags=["check"]
assert 2 * d_model**2 + 2 * n * d_model == 2 * d_model * d_ff

# %% [markdown]
# ## What do units react to?
#
# We read English sentences with the encoder of the shipped translator, which has 256 units in each of four
# layers, and write down how strongly each unit is on at each token. The sentences are those of the built-in
# corpus. The model was trained on other texts, captions of photographs.

# %%
from collections import Counter

import torch
from torch import nn

from annotated import load_pretrained
from annotated.translation.data.grammar import grammar

torch.set_num_threads(1)
translator = load_pretrained("multi30k-en-de")
lines = sorted(grammar("en-de").splits["test"].src, key=len)
layers = [layer.feed_forward for layer in translator.model.encoder.layers]
tokens, inputs, units = [], {n: [] for n in range(4)}, {n: [] for n in range(4)}
for n, layer in enumerate(layers):
    layer.w_1.register_forward_pre_hook(lambda _, given, n=n: inputs[n].append(given[0]))
    layer.w_2.register_forward_pre_hook(lambda _, given, n=n: units[n].append(given[0]))

# %%
for start in range(0, len(lines), 50):
    batch = translator.batch([translator.encode(line) for line in lines[start : start + 50]])
    real = batch != translator.src_tokenizer.pad
    with torch.no_grad():
        translator.model.encode(batch, real.unsqueeze(1))
    tokens += [token for row, r in zip(batch, real, strict=True) for token in row[r].tolist()]
    for recorded in (*inputs.values(), *units.values()):
        recorded[-1] = recorded[-1][real]
inputs, units = ({n: torch.cat(each) for n, each in kind.items()} for kind in (inputs, units))
names = translator.src_tokenizer.pieces(tokens)
print(f"{len(lines)} sentences, {len(names):,} tokens")

# %% [markdown]
# For each unit, we look at the 20 tokens at which it is on most strongly. How many of the 20 are the same
# token? Vectors of the same token resemble each other, so *any* direction prefers some token. So we need a
# control: random directions in the place of the columns of $W_1$. We take two kinds. **Plain** directions
# have independent entries. Directions **with the spread** of the words' vectors are random sums of these
# vectors (their covariance is that of the vectors), so they point where the vectors differ most.


# %%
def selectivity(strength):
    """For each column, the share of its 20 strongest places that are the same token."""
    top = strength.topk(20, dim=0).indices.T.tolist()
    return torch.tensor([Counter(names[i] for i in places).most_common(1)[0][1] / 20 for places in top])


_ = torch.manual_seed(0)
half = {}
print("share of units with at least half of their 20 strongest reactions at one token")
for n in range(4):
    often = (units[n] > 0).sum(dim=0) >= 20  # the others are on too rarely to tell
    centered = inputs[n] - inputs[n].mean(dim=0)
    plain = [torch.randn(inputs[n].size(1), 256) for _ in range(10)]
    spread = [centered.T @ torch.randn(len(centered), 256) for _ in range(10)]  # random sums of the vectors
    half[n] = [(selectivity(units[n][:, often]) >= 0.5).double().mean()]
    for draws in (plain, spread):
        half[n].append(
            torch.stack([(selectivity(inputs[n] @ d) >= 0.5).double().mean() for d in draws]).mean()
        )
    on = (units[n] > 0).double().mean()
    shown = ", ".join(
        f"{name} ≈{x:.0%}" for name, x in zip(("units", "plain", "spread"), half[n], strict=True)
    )
    print(f"layer {n + 1}: {shown};", end=" ")
    print(f"≈{on:.1%} of all units are on at a token, ≈{often.sum()} of 256 at 20 tokens or more")

# %% tags=["check"]
for units_half, plain_half, spread_half in half.values():
    assert units_half > 0.65
    assert plain_half < 0.5
    assert units_half > plain_half + 0.25
    assert 0.6 < spread_half < units_half + 0.05
assert all((units[n] > 0).double().mean() < 0.05 for n in range(4))

# %%
for n, wanted in ((0, 1.0), (3, 0.0)):  # the most and the least selective units of the first and last layer
    often = ((units[n] > 0).sum(dim=0) >= 20).nonzero().flatten()
    order = selectivity(units[n][:, often]).argsort(descending=bool(wanted), stable=True)
    for unit in often[order[:4]].tolist():
        places = units[n][:, unit].topk(20).indices.tolist()
        shown = Counter(names[i] for i in places).most_common(5)
        print(f"layer {n + 1}, unit {unit:3}:", *(f"{token} {count}" for token, count in shown))

# %% tags=["check"]
assert selectivity(units[0][:, (units[0] > 0).sum(dim=0) >= 20]).max() == 1.0

# %% [markdown]
# Of the units that we can judge, about a third of all, most react mainly to one token. The lesson's two
# units reacted to one phrase in the same way. The least selective ones of the last layer are more
# interesting. They react to several words of one kind: pieces of clothing, people, or what people are
# doing. Units are rarely on: on average, fewer than 2 of 100 at a token.
#
# The control matters, and so does the choice of the control. Against plain random directions, of which two in
# five prefer one token, the units look twice as selective. But a direction that merely follows the spread of
# the words' vectors prefers one token in about seven of ten cases, and the units in about eight of ten. Most
# of what looks like a detector is the shape of the cloud of vectors.
#
# ## Is it as good a memory?
#
# If a feed-forward network is a memory, it should be able to memorize facts that follow no rule. We make
# 1,600 "phrases", the sums of one of 40 and one of 40 random vectors, and give each a random answer, yes or
# no. A layer gets the sum, and a linear map reads the answer from its normalized output. We compare three
# layers with the same number of weights: a feed-forward network, attention over parameters, and two linear
# maps without a ReLU.

# %%
from annotated import attention


class ParameterAttention(nn.Module):
    """Attention over trained keys and values, as large as a feed-forward network of this d_ff."""

    def __init__(self, h, d_model, d_ff):
        super().__init__()
        shape, self.scale = (h, d_ff - d_model, d_model // h), d_model**0.5  # the authors scale them up, too
        self.to_query, self.to_output = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.keys, self.values = (nn.Parameter(torch.randn(shape) / self.scale) for _ in range(2))

    def forward(self, x):  # (n, d_model) -> (n, d_model)
        query = self.to_query(x).unflatten(-1, (len(self.keys), -1)).transpose(0, 1)  # (h, n, d_k)
        heads, _ = attention(query, self.keys * self.scale, self.values * self.scale)
        return self.to_output(heads.transpose(0, 1).flatten(1))


def two_maps(*between):
    return nn.Sequential(nn.Linear(64, 128, bias=False), *between, nn.Linear(128, 64, bias=False))


makers = {
    "feed-forward network": lambda: two_maps(nn.ReLU()),
    "attention over parameters": lambda: ParameterAttention(8, 64, 128),
    "two linear maps": two_maps,
}


# %%
def learn(make, seed, most=300):
    """The share of 1,600 facts that are known in the end, and the updates until it is 99%, or `most`."""
    torch.manual_seed(seed)
    first, second = torch.randn(2, 40, 64)
    phrases, facts = (first[:, None] + second[None]).flatten(0, 1), torch.randint(2, (1600,))
    layer, norm, read = make(), nn.LayerNorm(64), nn.Linear(64, 2)
    adam = torch.optim.Adam([*layer.parameters(), *norm.parameters(), *read.parameters()], lr=0.003)
    known, updates = 0.0, 0
    while known < 0.99 and updates < most:
        logits = read(norm(phrases + layer(phrases)))
        known = (logits.argmax(dim=-1) == facts).double().mean().item()
        adam.zero_grad()
        nn.functional.cross_entropy(logits, facts).backward()
        adam.step()
        updates += 1
    return known, updates


# %%
learned = {name: [learn(make, seed) for seed in (0, 1, 2)] for name, make in makers.items()}
for name, found in learned.items():
    size = sum(weights.numel() for weights in makers[name]().parameters())
    print(f"{name:26} {size:,} weights:", end=" ")
    print("; ".join(f"≈{known:.0%} after ≈{update} updates" for known, update in found))

# %% tags=["check"]
for name in ("feed-forward network", "attention over parameters"):
    assert all(known >= 0.99 and update < 150 for known, update in learned[name])
assert all(known < 0.95 and update == 300 for known, update in learned["two linear maps"])

# %% [markdown]
# With all three seeds, both memories learn 99% of the facts, at which we stop, in about as many updates.
# The two linear maps do not: they know 58% to 78% after 300 updates. (They get more than half, probably
# because the layer norm behind them is not linear either.) So on this task the softmax can do the ReLU's
# work. The authors found their version slower: it needs a query and a softmax, and a ReLU needs neither.
#
# **What it does not say.** That a unit is on at a token does not show that the translation uses it. Two
# thirds of the units are on too rarely here to judge, and nothing is said about them. The sentences are
# simple, and 20 reactions are few. That a layer can memorize does not show that it does so in a translator,
# where facts must share the layer with everything else.
