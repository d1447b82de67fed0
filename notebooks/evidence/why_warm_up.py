# %% [markdown]
# # Why warm-up?
#
# Because Adam's first steps are too long. At the start, it moves every weight by the full learning rate, and
# after a single such update at a rate of 0.03, the encoder's vectors of all positions point almost the same
# way (cosine ≈0.99, up from ≈0.6). Five such updates keep a small post-norm model guessing (≈2.3 nats) for
# the rest of its hundred updates, with both seeds. More data for these five, or gradients of constant norm,
# change nothing.
#
# *Half a minute to run.* This notebook belongs to lesson [08_training_recipe](../08_training_recipe.ipynb).

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
# The paper's learning rate rises for 4,000 updates and then falls (section 5.3, equation 3). It does not say
# why it rises. The literature has three explanations:
#
# - **Noise.** Adam has seen few gradients and cannot tell signal from noise, so its first steps go astray
#   (Liu et al., [2020](https://arxiv.org/abs/1908.03265), "RAdam", about the variance of $1/\sqrt v$).
# - **Changing gradients.** Adam ignores the size of a gradient as long as it stays the same. In a post-norm
#   model, gradients are large at first, near the output (Xiong et al.,
#   [2020](https://arxiv.org/abs/2002.04745)).
# - **Step size.** The directions are good, but every weight moves by the full learning rate, all at once, and
#   that is too far (Ma and Yarats, [2021](https://arxiv.org/abs/1910.04209)).
#
# They predict different things. If noise is the cause, more data for the first updates should help. If
# changing gradients are the cause, gradients scaled to one norm should help. If the step is too long, only
# shorter steps should help.
#
# ## The model
#
# Two layers on each side, post-norm, and the copy task: read nine random symbols, write them again. A model
# that has learned nothing has a loss of $\log 10 \approx 2.30$ for each symbol.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated import Batch, EncoderDecoder, data_gen, make_model
from annotated.plots import setup_notebook

setup_notebook()
torch.set_num_threads(1)
PEAK, WARMUP, UPDATES, SEEDS = 0.03, 50, 100, (0, 1)


# %%
def new_model(seed: int, norm_first: bool = False) -> EncoderDecoder:
    torch.manual_seed(seed)
    return make_model(11, 11, N=2, d_model=32, d_ff=64, h=4, dropout=0.0, norm_first=norm_first)


def loss_of(model: EncoderDecoder, batch: Batch) -> Tensor:
    """Return the loss per symbol, in nats."""
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return F.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten())


@torch.no_grad()
def alike(model: EncoderDecoder, batch: Batch) -> float:
    """Return the mean cosine of the encoder's vectors at two different positions."""
    unit = F.normalize(model.encode(batch.src, batch.src_mask), dim=-1)  # (B, S, d_model)
    length = unit.size(1)
    others = (unit @ unit.mT).sum(dim=(1, 2)) - length
    return (others / (length * (length - 1))).mean().item()


# %% [markdown]
# ## One update
#
# Adam's first step has the length of the learning rate for each weight, whatever the size of its gradient:
# only the sign counts ([08](../08_training_recipe.ipynb)). So the *size* of gradients cannot matter here.
# *Noise* can, through the signs. We take that step from 32 rows and from 1,000, at several rates.

# %% tags=["figure-one-update"]
rates = [0.0003, 0.001, 0.003, 0.01, 0.03]
after = {}
for rows in (32, 1000):
    model = new_model(0)
    batch, others = next(data_gen(11, rows, 1)), next(data_gen(11, 300, 1))
    signs = [g.sign() for g in torch.autograd.grad(loss_of(model, batch), list(model.parameters()))]
    before = loss_of(model, others).item(), alike(model, others)
    for rate in rates:
        model = new_model(0)
        with torch.no_grad():
            for weights, sign in zip(model.parameters(), signs, strict=True):
                weights -= rate * sign
            after[rows, rate] = loss_of(model, others).item(), alike(model, others)
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8))
for ax, which, title in zip(axes, (0, 1), ("Loss", "Cosine of two positions"), strict=True):
    for rows, style in ((32, "C0o-"), (1000, "C1s--")):
        ax.plot(rates, [after[rows, rate][which] for rate in rates], style, label=f"{rows:,} rows")
    ax.axhline(before[which], color="grey", linewidth=1, label="before")
    ax.set(xscale="log", xlabel="learning rate", title=f"{title}, after one update")
axes[0].legend()
plt.show()

# %% [markdown]
# *Figure 1. The first update of Adam, from 32 rows and from thirty times as many. Left: short steps help, and
# long steps do damage, with much data as with little. Right: long steps make the encoder's vectors alike.*

# %%
for rows in (32, 1000):
    for rate in (0.001, 0.03):
        loss, cosine = after[rows, rate]
        print(f"{rows:5,} rows, rate {rate}: loss ≈{before[0]:.2f} → ≈{loss:.2f}, cosine ≈{cosine:.2f}")

# %% tags=["check"]
for rows in (32, 1000):
    assert after[rows, 0.001][0] < before[0] - 0.03 < after[rows, 0.03][0]
    assert before[1] < 0.8 < 0.95 < after[rows, 0.03][1]

# %% [markdown]
# ## Five updates
#
# Now whole runs. The **planned** rate rises to 0.03 over 50 updates, then falls as in equation 3. The other
# runs differ from it only in the first five updates:


# %%
def adam_of(model: EncoderDecoder, only: str) -> torch.optim.Adam:
    """Make an optimizer whose last group has the weights whose names start with `only`."""
    groups = [[], []]
    for name, weights in model.named_parameters():
        groups[name.startswith(only)].append(weights)
    return torch.optim.Adam([{"params": group} for group in groups if group], betas=(0.9, 0.98), eps=1e-9)


# %%
def train(seed: int, begin=None, rows=32, largest=None, only="", norm_first=False) -> float:
    """Train, and return the mean loss of the last 20 updates.

    In the first five updates, weights whose names start with `only` have the rate `begin`, and a batch has
    `rows` rows. All gradients are scaled to the norm `largest`, if there is one.
    """
    model, losses = new_model(seed, norm_first), []
    adam = adam_of(model, only)
    for update in range(1, UPDATES + 1):
        for group in adam.param_groups:
            group["lr"] = PEAK * min(update / WARMUP, math.sqrt(WARMUP / update))
        if update <= 5 and begin:
            adam.param_groups[-1]["lr"] = begin
        loss = loss_of(model, next(data_gen(11, rows if update <= 5 else 32, 1)))
        adam.zero_grad()
        loss.backward()
        if largest:
            nn.utils.clip_grad_norm_(model.parameters(), largest)
        adam.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


# %%
runs = {
    "planned": {},
    "five updates at 0.003": {"begin": 0.003},
    "five updates at 0.03": {"begin": 0.03},
    "... from 1,000 rows each": {"begin": 0.03, "rows": 1000},
    "... gradients of constant norm": {"begin": 0.03, "largest": 0.01},
    "... of the encoder's weights only": {"begin": 0.03, "only": "encoder"},
    "... of the decoder's weights only": {"begin": 0.03, "only": "decoder"},
    "pre-norm, planned": {"norm_first": True},
    "pre-norm, five updates at 0.03": {"begin": 0.03, "norm_first": True},
}
ends = {name: [train(seed, **settings) for seed in SEEDS] for name, settings in runs.items()}
print(f"a guess: {math.log(10):.2f} nats; last 20 of {UPDATES} updates, two seeds:")
for name, losses in ends.items():
    print(f"{name:34}", ", ".join(f"≈{loss:.2f}" for loss in losses))

# %% tags=["check"]
guess = math.log(10)
for name in list(runs)[2:6]:
    assert min(ends[name]) > guess - 0.15, name
for name in ("planned", "five updates at 0.003"):
    assert max(ends[name]) < guess - 0.25, name
assert max(ends["pre-norm, planned"]) < min(ends["pre-norm, five updates at 0.03"]) - 0.3
encoder, decoder = (sum(ends[f"... of the {side}'s weights only"]) for side in ("encoder", "decoder"))
assert decoder < encoder - 0.03

# %% [markdown]
# ## What it says
#
# **Noise is not the cause.** With thirty times the data for the first five updates, the model ends at a
# guess just the same.
#
# **The size of the gradients is not the cause either**, as far as their total norm goes. Scaling every
# gradient to one norm does not help.
#
# **The step is too long.** Five updates at a tenth of the rate do no harm: the model ends at ≈1.80 and
# ≈1.83 nats, as with the planned rate.
#
# **Breaking the encoder is enough.** Five bad updates of the encoder's weights alone do nearly all of the
# damage (≈2.27 and ≈2.29 nats). Five of the decoder's weights do most of it, but less with both seeds
# (≈2.12 and ≈2.24). Figure 1 suggests what happens in the encoder: its vectors become alike, so the decoder
# cannot tell which symbol stands where. To copy is then impossible, and the model can only guess. On this
# page we measured the cosine after one update; [08_training_recipe](../08_training_recipe.ipynb) finds the
# same after five. It is the *rank collapse* of [06](../06_the_full_model.ipynb), Figure 2, caused by
# training.
#
# **Pre-norm suffers too**, but it goes on learning: it ends at ≈2.02 and ≈2.10 nats, where the planned rate
# ends at ≈1.29 and ≈0.84.
#
# **Why is the same rate harmless at update 50?** A likely reason is that Adam's mean of the gradients then
# averages signs that disagree, so its steps are shorter. Gilmer et al.
# ([2022](https://arxiv.org/abs/2110.04369)) add that the loss has become less curved. We have measured
# neither here.
#
# **What it does not say.** This is a small model on a small task, with two seeds, at a rate chosen to be
# too high for the start. At a lower rate, noise may matter more than here. At which rate the paper's model
# breaks without warm-up, we have not tried. Only the total norm of the gradients was held constant; the
# gradient of a single weight may still have changed.
