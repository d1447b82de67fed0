# %% [markdown]
# # Does dividing by √d_k still matter after the first updates?
#
# Yes. At width 64, the same small model needs two to four times as many updates without the division, or more
# than 300. At width 256 it learns the task in about 30 updates with the division, and not in 300 without it.
#
# *A minute or two to run.* The lesson that this belongs to is [02_attention](../02_attention.ipynb).

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %% [markdown]
# ## The question
#
# The paper divides the scores by $\sqrt{d_k}$, because large scores would saturate the softmax (section
# 3.2.1). At the start of training this is easy to see. But a model can learn. Could it not make its queries
# shorter by itself, so that the division only sets where training starts?
#
# If that were all, a model without the division should do as well when its $W^Q$ starts smaller by
# $\sqrt{d_k}$: its scores are then the very same numbers at the start. So we train three models:
#
# - **divided**: the paper's;
# - **not divided**: the same weights at the start, no division;
# - **not divided, small start**: no division, and $W^Q$ divided by $\sqrt{d_k}$ once, before training.
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
# Training is plain Adam. It ends as soon as the model has 95% of a new batch right, or after 300 updates.


# %%
def updates_needed(d_model, rate, seed, divide=True, small_start=False, most=300):
    """The number of updates until 95% of a new batch are right; `most` + 1 if that does not happen."""
    _ = torch.manual_seed(seed)
    model = Model(d_model, divide, small_start)
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for update in range(most + 1):
        symbols = torch.randint(SYMBOLS, (16, LENGTH))
        logits, wanted = model(symbols)[:, BACK:], symbols[:, :-BACK]
        if (logits.argmax(dim=-1) == wanted).double().mean() >= 0.95:
            return update
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return most + 1


# %%
variants = {
    "divided": {},
    "not divided": {"divide": False},
    "small start": {"divide": False, "small_start": True},
}
needed = {
    (d_model, rate, name): [updates_needed(d_model, rate, seed, **settings) for seed in (0, 1)]
    for d_model, rate in ((64, 1e-3), (64, 3e-3), (256, 1e-3))
    for name, settings in variants.items()
}

# %%
print("updates until 95% are right, two seeds")
print(f"{'width':>5} {'rate':>6} " + "".join(f"{name:>24}" for name in variants))
for d_model, rate in ((64, 1e-3), (64, 3e-3), (256, 1e-3)):
    results = [needed[d_model, rate, name] for name in variants]
    texts = [", ".join("not in 300" if n > 300 else f"≈{n}" for n in two) for two in results]
    print(f"{d_model:5} {rate:6} " + "".join(f"{text:>24}" for text in texts))

# %% tags=["check"]
mean = {key: sum(two) / 2 for key, two in needed.items()}
for d_model, rate in ((64, 1e-3), (64, 3e-3), (256, 1e-3)):
    assert 15 < mean[d_model, rate, "divided"] < 110
    assert max(needed[d_model, rate, "divided"]) <= 300
for rate in (1e-3, 3e-3):
    assert mean[64, rate, "not divided"] > 1.7 * mean[64, rate, "divided"]
    assert 0.5 < mean[64, rate, "small start"] / mean[64, rate, "divided"] < 1.7
assert min(needed[256, 1e-3, "not divided"]) > 300
assert mean[256, 1e-3, "small start"] > 3 * mean[256, 1e-3, "divided"]

# %% [markdown]
# ## What it says
#
# **Without the division, learning is slower at width 64, and at width 256 it does not happen in time.** The
# models are otherwise the same and see the same data.
#
# **At width 64, the start explains all of it; at width 256 it does not.** With a small $W^Q$, the narrow
# model learns as fast as the paper's. The wide one still needs many times as long, although its scores are
# the same at the start.
#
# The rest is the size of the steps. Adam moves each weight by about the learning rate, however large the
# gradient is. Without the division, such a step in $W^Q$ moves the scores $\sqrt{d_k}$ times as far: 8 times
# at width 64, 16 times at 256. So the division also sets how far an update moves the attention.
#
# **What it does not say.** This is one small task, with post-norm and one learning rate for all weights. A
# rate of its own for $W^Q$ might make up for the division.
