# %% [markdown]
# # Does dividing by √d_k still matter after the first updates?
#
# Yes. Without the division, a small model needs more than twice as many updates to learn a task (190 instead
# of 87, for example), or does not learn it in 200. The division does two things: the scores start smaller,
# and each update moves them less. A model that is given both without dividing learns as fast as the paper's,
# to within two updates.
#
# *A minute to run.* This notebook belongs to lesson [02_attention](../02_attention.ipynb).

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
# The paper divides the scores by $\sqrt{d_k}$, because large scores would saturate the softmax (section
# 3.2.1). At the start of training this is easy to see ([02_attention](../02_attention.ipynb)). But a model
# can learn. Could it not make its queries shorter by itself?
#
# And if the division matters, what does it do? There are two candidates.
#
# - **The start.** Scores are smaller before the first update. You get the same without a division if you
#   divide the matrix $W^Q$ by $\sqrt{d_k}$ once, before training.
# - **The steps.** Adam moves every weight by about the learning rate, however large the gradient is.
#   Without the division, such a step in $W^Q$ moves the scores $\sqrt{d_k}$ times as far. You get the same
#   steps without a division if $W^Q$ has a learning rate that is smaller by $\sqrt{d_k}$.
#
# So we train four models that are otherwise the same and see the same data:
#
# - **divided**: the paper's;
# - **not divided**: the same weights at the start, no division;
# - **small start**: no division, and $W^Q$ starts smaller;
# - **small start and steps**: no division, $W^Q$ starts smaller, and its learning rate is smaller, too.
#
# ## The task
#
# A causal model reads random symbols and says at each position which symbol stood three positions before.
# Two layers with one head each can do it, once a head has learned to look three positions back.

# %%
import math

import torch
from torch import nn

torch.set_num_threads(1)
SYMBOLS, LENGTH, BACK = 16, 24, 3
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


class Layer(nn.Module):
    """One head of attention as wide as the model, and a feed-forward network; post-norm."""

    def __init__(self, d_model, divide):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.w_1, self.w_2 = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.divisor = math.sqrt(d_model) if divide else 1.0

    def forward(self, x):  # (B, T, d_model) -> (B, T, d_model)
        scores = self.w_q(x) @ self.w_k(x).transpose(-2, -1) / self.divisor  # (B, T, T)
        weights = scores.masked_fill(~CAUSAL, -math.inf).softmax(dim=-1)
        x = self.norm_1(x + self.w_o(weights @ self.w_v(x)))
        return self.norm_2(x + self.w_2(self.w_1(x).relu()))


# %%
class Model(nn.Module):
    """Symbols and learned positions, two layers, a symbol for each position."""

    def __init__(self, d_model, divide, small_start):
        super().__init__()
        self.symbols, self.positions = nn.Embedding(SYMBOLS, d_model), nn.Embedding(LENGTH, d_model)
        self.layers = nn.Sequential(*(Layer(d_model, divide) for _ in range(2)))
        self.output = nn.Linear(d_model, SYMBOLS)
        for linear in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        for layer in self.layers if small_start else ():
            layer.w_q.weight.data /= math.sqrt(d_model)

    def forward(self, symbols):  # (B, T) -> (B, T, SYMBOLS)
        return self.output(self.layers(self.symbols(symbols) + self.positions.weight))


# %% [markdown]
# Training is plain Adam. It ends as soon as the model has 95% of a new batch right, or after 200 updates.


# %%
def updates_needed(d_model, rate, seed, divide=True, small_start=False, small_steps=False, most=200):
    """The number of updates until 95% of a new batch are right; `most` if that does not happen."""
    _ = torch.manual_seed(seed)
    model = Model(d_model, divide, small_start)
    queries = [weights for layer in model.layers for weights in layer.w_q.parameters()]
    others = [weights for weights in model.parameters() if all(weights is not query for query in queries)]
    query_rate = rate / math.sqrt(d_model) if small_steps else rate
    adam = torch.optim.Adam([{"params": others, "lr": rate}, {"params": queries, "lr": query_rate}])
    for update in range(most):
        symbols = torch.randint(SYMBOLS, (16, LENGTH))
        logits, wanted = model(symbols)[:, BACK:], symbols[:, :-BACK]
        if (logits.argmax(dim=-1) == wanted).double().mean() >= 0.95:
            return update
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return most


# %%
variants = {
    "divided": {},
    "not divided": {"divide": False},
    "small start": {"divide": False, "small_start": True},
    "small start and steps": {"divide": False, "small_start": True, "small_steps": True},
}
settings = [(64, 0.001), (64, 0.003), (128, 0.0003), (128, 0.003)]
needed = {
    (d_model, rate, name): [updates_needed(d_model, rate, seed, **changes) for seed in (0, 1)]
    for d_model, rate in settings
    for name, changes in variants.items()
}

# %%
print("updates until 95% are right, two seeds; 200 means: not in 200")
print(f"{'width':>5} {'rate':>6} " + "".join(f"{name:>24}" for name in variants))
for d_model, rate in settings:
    texts = [", ".join(f"≈{n}" for n in needed[d_model, rate, name]) for name in variants]
    print(f"{d_model:5} {rate:6} " + "".join(f"{text:>24}" for text in texts))

# %% tags=["check"]
for setting in settings:
    mean = {name: sum(needed[*setting, name]) / 2 for name in variants}
    assert max(needed[*setting, "divided"]) < 120
    assert mean["not divided"] > 1.7 * mean["divided"]
    assert abs(mean["small start and steps"] - mean["divided"]) < 0.15 * mean["divided"]
    if setting == (128, 0.003):  # large steps
        assert mean["small start"] > 3 * mean["divided"]
    else:
        assert mean["small start"] < 1.5 * mean["divided"]

# %% [markdown]
# ## What it says
#
# **The division matters after the first updates.** At both widths and all learning rates, with both seeds,
# the model without it needs more than twice as many updates, or does not learn the task in 200.
#
# **It does exactly two things.** A model with a small start *and* small steps follows the divided one
# almost update for update. It has to: its scores are the same numbers, and Adam moves them equally far.
# (Only Adam's epsilon makes a tiny difference.)
#
# **Which of the two matters depends on the learning rate.** In three of the four settings, a small start is
# enough. In two of them, those with the lowest rates, it is even faster than the division, presumably
# because its steps are longer. At width 128 with the rate 0.003 it does not learn in 200 updates, and only
# the small steps repair that. We have not tried small steps without a small start.
#
# So the model can learn without the division: in five of the eight runs it does, but it loses time. Whether
# it does so by making its queries shorter, we have not measured.
#
# **What it does not say.** This is one small task with post-norm, Adam and two seeds. With plain gradient
# descent, the steps in $W^Q$ would have other lengths, and the second control would need another learning
# rate.
