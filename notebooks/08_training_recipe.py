# %% [markdown]
# # 08 · The training recipe
#
# **We ruin a training run with its first five updates and ask what was wrong with them, watch a model
# memorise its training set, and see why a loss with label smoothing may stop at 1.38.**
#
# Previous: [07_batches_and_masks](07_batches_and_masks.ipynb) · Next:
# [09_first_example](09_first_example.ipynb)
#
# *24 minutes to read, a minute to run.*
#
# - **Before:** you know gradients in PyTorch, logarithms, and roughly what an encoder and a decoder are.
# - **After:** you know what Adam's two running means do; what speaks for a learning rate that first rises;
#   what dropout and label smoothing are for, where the paper puts them, and what they cost.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017), here sections 5.3 and 5.4. "The
# authors' code" is [tensor2tensor](https://github.com/tensorflow/tensor2tensor), read at its last commit
# (bafdc1b). A number after `≈` may differ on another processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from collections import Counter
from copy import deepcopy
from itertools import chain, count, islice
from statistics import mean

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.testing import assert_close

from annotated import (
    Batch,
    LabelSmoothing,
    SentencePieceTokenizer,
    SimpleLossCompute,
    data_gen,
    evaluating,
    make_model,
    noam_scheduler,
    rate,
    run_epoch,
)

# %%
from annotated.data import TokenBatches, encode_corpus, load_corpus
from annotated.plots import plot_schedules, setup_notebook, show_source
from annotated.tokenizers import PAD
from annotated.transformer.layers import SublayerConnection
from annotated.transformer.schedule import factor_for
from annotated.translation.evaluate import recorded

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## The first update is as long for every weight
#
# > "We used the Adam optimizer with β1 = 0.9, β2 = 0.98 and ε = 10^−9." (section 5.3)
#
# Gradient descent subtracts the learning rate times the gradient. **Adam** (Kingma and Ba, 2015) keeps two
# running means for each weight, $m$ of its gradients and $v$ of their squares. It corrects both for having
# begun at 0, and subtracts the learning rate times $m/\sqrt v$.


# %%
def adam(gradients: Tensor, beta_1: float = 0.9, beta_2: float = 0.98, eps: float = 1e-9) -> Tensor:
    """What Adam adds at each update with learning rate 1: gradients (updates, ...) -> (updates, ...)."""
    m = v = torch.zeros_like(gradients[0])
    steps = []
    for t, g in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * g  # running mean of the gradients
        v = beta_2 * v + (1 - beta_2) * g**2  # and of their squares
        m_hat = m / (1 - beta_1**t)  # the correction
        v_hat = v / (1 - beta_2**t)
        steps.append(-m_hat / (v_hat.sqrt() + eps))  # eps: never divide by 0
    return torch.stack(steps)


torch.manual_seed(0)
gradients = torch.randn(50, 3, dtype=torch.float64)
weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
optimizer = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
for update, moved in enumerate(adam(gradients).cumsum(dim=0)):
    weight.grad = gradients[update]
    optimizer.step()
    assert_close(weight.data, moved)
print(f"after 50 updates, off from torch.optim.Adam by at most ≈{(weight.data - moved).abs().max():.0e}")

# %% [markdown]
# Now guess: four weights have the gradients 0.0001, 1, 10,000 and -10,000. How far does the first update
# move each of them? And a weight whose gradients are only noise around 0?

# %%
first = adam(torch.tensor([[1e-4, 1.0, 1e4, -1e4]]))[0]
print("first update, in learning rates:", [f"{step:+.3f}" for step in first.tolist()])
assert_close(first.abs(), torch.ones(4), rtol=1e-4, atol=0)

torch.manual_seed(0)
noise = adam(torch.randn(100, 5000, dtype=torch.float64)).square().mean(dim=1).sqrt()  # (100,)
print("pure noise:", ", ".join(f"update {n}: ≈{noise[n - 1]:.2f}" for n in (1, 2, 5, 10, 100)))
assert_close(noise[0], torch.ones_like(noise[0]))
assert abs(noise[-1] - math.sqrt(0.1 / 1.9)) < 0.02  # standard deviation of a running mean with beta_1 = 0.9

# %% [markdown]
# Each weight moves by the learning rate. After one gradient, $m$ is that gradient and $\sqrt v$ its size,
# so only the sign is left: large or small, signal or noise make no difference *at the first update*. By the
# tenth, gradients of opposite signs have mostly cancelled in $m$, and the step is much shorter.
#
# **Why 0.98, where 0.999 is usual?** The mean of the squares reaches back about $1/(1-\beta_2)$ updates:
# 50, not 1,000. Here the gradient is always 1, except once, when it is 100.

# %%
gradients = torch.ones(3000, dtype=torch.float64)
gradients[1000] = 100.0
recovered = {}
for beta_2 in (0.98, 0.999):
    size = adam(gradients, beta_2=beta_2).abs()[1000:]
    recovered[beta_2] = int((size < 0.5).nonzero().max()) + 1
    print(f"beta_2 {beta_2}: {size[0]:.1f} learning rates at once, then down to {size.min():.2f},", end=" ")
    print(f"above 0.5 again after {recovered[beta_2]} updates")
assert recovered[0.98] < 250 < 1000 < recovered[0.999]

# %% [markdown]
# With 0.98 the weight does not jump, and the slump after it is deeper but six times shorter: a short memory
# adapts faster. The paper gives no reason, and the authors' later `transformer_base_v3` has 0.997.
#
# ## A learning rate that first rises
#
# > "This corresponds to increasing the learning rate linearly for the first warmup_steps training steps,
# > and decreasing it thereafter proportionally to the inverse square root of the step number." (section
# > 5.3)
#
# The paper does not say why. We compare three explanations:
#
# - **gradient size**: post-norm's gradients are large near the output at the start (Xiong et al., 2020).
#   Adam ignores the size of a gradient while it stays the same, but not when it changes, as with the 100;
# - **noise**: Adam has seen too few gradients to tell signal from noise, so its first steps go astray;
# - **step size**: the direction is good, but all weights move by the full learning rate together: too far.
#
# We reduce one cause at a time: the noise, with 4,000 rows (sequences) for a gradient instead of 32; and the
# changing size, by scaling all gradients to one norm. We begin with one update of a new model, whose task is
# to copy ten symbols ([09](09_first_example.ipynb)). Losses are in *nats* (natural logarithms). This one
# subtracts 0.54, as explained below: 0 is perfect, and guessing costs $\ln 10 - 0.54 = 1.76$.


# %%
V, SEED = 11, 0
criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.1)


def new_model(norm_first: bool = False, dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(SEED)
    return make_model(V, V, N=2, d_model=32, d_ff=64, h=4, dropout=dropout, norm_first=norm_first)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The loss per symbol, in nats."""
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return criterion(model.generator(states).flatten(0, 1), batch.tgt_y.flatten()) / batch.ntokens


# %%
def after_one_update(rows: int, rates: list[float], norm_first: bool) -> tuple[Tensor, list[float]]:
    """Adam's first step from that many rows, and the loss on others after it, for each learning rate."""
    model = new_model(norm_first, dropout=0.0)
    torch.manual_seed(100 + SEED)
    batch, others = next(data_gen(V, rows, 1)), next(data_gen(V, 500, 1))
    gradients = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
    steps = [adam(gradient.unsqueeze(0))[0] for gradient in gradients]
    start, losses = deepcopy(model.state_dict()), []
    for rate_ in rates:
        model.load_state_dict(start)
        with torch.no_grad():
            for p, step in zip(model.parameters(), steps, strict=True):
                p += rate_ * step
            losses.append(loss_of(model, others).item())
    return torch.cat([step.flatten() for step in steps]), losses


# %% tags=["figure-one-update"]
rates = [0.0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1]
fig, ax = plt.subplots(figsize=(8, 4))
for norm, styles in (("post-norm", ("C0o-", "C0s--")), ("pre-norm", ("C1o-", "C1s--"))):
    directions = []
    for rows, style in zip((32, 4000), styles, strict=True):
        direction, losses = after_one_update(rows, rates, norm == "pre-norm")
        directions.append(direction)
        ax.plot(rates[1:], losses[1:], style, label=f"{norm}, {rows:,} rows")
        ax.axhline(losses[0], color=style[:2], lw=0.8)
        print(f"{norm:9} {rows:5,} rows: loss ≈{losses[0]:.2f}, at 0.001 ≈{losses[2]:.2f}", end=", ")
        print(f"at 0.03 ≈{losses[5]:.2f}")
        assert losses[2] < losses[0] - 0.05 < losses[5] - 0.1
    few, many = (direction.sign() for direction in directions)
    same = (few == many).double().mean().item()
    print(f"{norm:9} signs that the steps from 32 and from 4,000 rows share: ≈{same:.0%}")
    assert 0.8 < same < 0.97
ax.set(
    xscale="log", xlabel="learning rate", ylabel="loss (nats per symbol)", title="After one update of Adam"
)
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 1. The loss after the first update; thin lines: before it. With 125 times the data the shape is the
# same: the direction helps while the step is short, and does damage at 0.03. (Set `SEED` to 1, and pre-norm
# suffers more than post-norm.)*
#
# Here the size of the gradients cannot be the cause, because only their signs count. Noise adds to the
# damage, but nine of ten signs are the same with 125 times the data: the step is mostly signal, and too
# long. And in a whole run? The schedule is 1.2 times equation 3 (below): such a *factor* sets the peak, here
# 0.03 at update 50. **Five bad updates** have the learning rate 0.03 from the beginning; then the run goes
# on as planned.


# %%
D_MODEL, FACTOR, WARMUP, UPDATES, PEAK = 32, 1.2, 50, 120, 0.03  # 1.2 / sqrt(32 * 50) = 0.03
norms = []  # of the gradients, before they are scaled


def train(
    begin: float | None = None, rows: int = 32, norm_first: bool = False, largest: float = math.inf
) -> list[float]:
    """The loss of each batch; the first five updates have the rate `begin` and that many rows."""

    def schedule(done: int) -> float:
        return begin if begin and done < 5 else rate(done + 1, D_MODEL, FACTOR, WARMUP)

    def clip(*_) -> None:
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), largest).item())

    model = new_model(norm_first)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    optimizer.register_step_pre_hook(clip)
    scheduler = LambdaLR(optimizer, schedule)
    loss_compute = SimpleLossCompute(model.generator, criterion)
    batches = (next(data_gen(V, rows if update < 5 else 32, 1)) for update in range(UPDATES))
    return [run_epoch([batch], model, loss_compute, optimizer, scheduler)[0] for batch in batches]


# %%
runs = {
    "warm-up": train(),
    "five short updates (0.003)": train(PEAK / 10),
    "five bad updates": train(PEAK),
    "five bad updates, 4,000 rows": train(PEAK, rows=4000),
    "five bad updates, constant norm": train(PEAK, largest=0.01),  # scaled to it, because all are larger
    "pre-norm, warm-up": train(norm_first=True),
    "pre-norm, five bad updates": train(PEAK, norm_first=True),
}
print("norms in five bad updates:", ", ".join(f"≈{norm:.2f}" for norm in norms[2 * UPDATES :][:6]))
assert min(norms[4 * UPDATES : 5 * UPDATES]) > 0.01

# %% tags=["figure-five-bad-updates"]
spread = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 9)  # entropy of the target, see below
no_idea = math.log(10) - spread
print(f"all ten symbols equally likely: ln 10 - {spread:.2f} = {no_idea:.2f} nats; last 20 updates:")
fig, axes = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True)
for (name, losses), style in zip(runs.items(), ("-", "-.", "-", "--", ":", "-", "--"), strict=True):
    width = 6 if name == "five bad updates" else 2  # the others lie on it
    label = name.removeprefix("pre-norm, ")
    ax = axes[int(label != name)]
    ax.plot(range(1, UPDATES + 1), losses, style, lw=width, alpha=1 / math.sqrt(width - 1), label=label)
    end = sum(losses[-20:]) / 20
    print(f"{name:31} ≈{end:.2f}")
    assert end > no_idea - 0.08 if name.startswith("five bad") else end < no_idea - 0.12
for ax, title in zip(axes, ("Post-norm: stuck", "Pre-norm: thrown back"), strict=True):
    ax.axhline(no_idea, color="grey", lw=1, zorder=0)
    ax.set(title=title, xlabel="update")
    ax.legend(frameon=False)
axes[0].set_ylabel("loss (nats per symbol)")
plt.show()

# %% [markdown]
# *Figure 2. After five updates at 0.03 a post-norm run hardly leaves the grey line, guessing, within 120
# updates, whether its gradients come from 32 rows or from 4,000, of natural or of constant norm. Five updates
# at 0.003 do no harm. Pre-norm ends about as far behind its own warm-up, but goes on learning. (Seed 0.)*
#
# So neither noise nor a changing total norm is needed for the damage, and what remains is the **step size**.
# (That a tenth of it does no harm fits all three explanations. And only the total norm was held constant:
# single weights' gradients may still have changed in size.) Why is the same 0.03 harmless at update 50? By
# then gradients cancel in $m$, and the loss may be less curved (Gilmer et al., 2022); we have measured
# neither. Nor have we looked at what is broken in the stuck model, or whether it would recover.
#
# Others disagree, too. Liu et al. (2020, "RAdam") blame the *variance* of $1/\sqrt v$, estimated from few
# gradients. Ma and Yarats (2021) reject that, and blame the size of the first updates. Liu et al. (2020,
# "Admin") find that post-norm amplifies small changes of the weights.
#
# ### Equation 3, and what 4,000 sets
#
# $$\mathit{lrate} = d_{\mathrm{model}}^{-0.5}
# \cdot\min(\mathit{step}^{-0.5},\ \mathit{step}\cdot\mathit{warmup}^{-1.5})$$
#
# In the paper, warmup is 4,000. The lower of two branches counts: a line through the origin, and a falling
# $1/\sqrt{\mathit{step}}$. They meet at $\mathit{step} = \mathit{warmup}$, at the peak
# $(d_{\mathrm{model}}\cdot\mathit{warmup})^{-0.5}$.

# %% tags=["figure-schedules"]
settings = [(512, 4000), (512, 8000), (1024, 4000)]
ax = plot_schedules(settings)
ax.get_lines()[2].set_linestyle((0, (3, 3)))  # dashed, where it would hide the first
ax.legend(frameon=False)
plt.show()
for d_model, warmup in settings:
    peak = rate(warmup, d_model, 1.0, warmup)
    print(f"d_model {d_model:4}, warm-up {warmup:,}: peak {peak:.1e}")
    assert peak == max(rate(step, d_model, 1.0, warmup) for step in range(1, 20_001))
    assert math.isclose(peak, (d_model * warmup) ** -0.5)
assert rate(8000, 512, 1.0, 4000) == rate(8000, 512, 1.0, 8000)
print(f"transformer_base_v2: peak {rate(8000, 512, 2.0, 8000):.1e}")

# %% [markdown]
# *Figure 3. A warm-up twice as long has a lower peak, and its slope is divided by $2^{1.5} = 2.8$. After
# 8,000 updates the first two curves are one, because the falling branch does not contain the warm-up.*
#
# **So the 4,000 sets two things at once: how long the rate rises, and how high**, here 0.0007. (At which
# rate the paper's model would break without warm-up, we have not tried.) Ma and Yarats recommend
# $2/(1-\beta_2)$ updates of warm-up, 100 here. The paper gives no reason for 4,000, nor for a fall with
# $1/\sqrt{\mathit{step}}$. The authors' later, pre-norm `transformer_base_v2` has a warm-up of 8,000 and
# multiplies equation 3 by 2, so its peak is *higher* than the paper's. Their code calls the schedule
# `"noam"`, presumably after Noam Shazeer. Section 5.2, on hardware and time, is in
# [15](15_going_fast.ipynb).
#
# **Exercise 1 (easy).** Write the schedule for PyTorch, which calls it with the number of updates that are
# *done*: 0 before the first one. Step 0 of equation 3 would divide by 0.


# %% tags=["exercise"]
def my_rate(done: int, d_model: int, warmup: int) -> float:
    """Equation 3 for the update that comes next, after `done` updates."""
    raise NotImplementedError


# %% tags=["solution"]
def my_rate(done: int, d_model: int, warmup: int) -> float:
    """Equation 3 for the update that comes next, after `done` updates."""
    step = done + 1  # max(done, 1) runs too, but repeats the first rate and is one update late from then on
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


# %% tags=["exercise-test"]
def rates_used(schedule) -> list[float]:
    """The first eight updates' learning rates, in units of the first rate of equation 3."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, used = schedule(optimizer), []
    for _ in range(8):
        used.append(scheduler.get_last_lr()[0] / rate(1, 512, 1.0, 5))
        optimizer.step()
        scheduler.step()
    return used


mine = rates_used(lambda adam: LambdaLR(adam, lambda done: my_rate(done, 512, 5)))
package = rates_used(lambda adam: noam_scheduler(adam, 512, 1.0, 5))
print("mine:   ", [round(x, 2) for x in mine])
print("package:", [round(x, 2) for x in package])
assert_close(torch.tensor(mine), torch.tensor(package))
assert_close(torch.tensor(mine[:5]), torch.arange(1.0, 6.0))

# %% [markdown]
# ## What regularisation is for
#
# > "We employ three types of regularization during training" (section 5.4)
#
# A model with enough weights can memorise its training set. That is **overfitting**: the loss on the
# training set falls, and the loss on *held-out* sentences, which it has not seen, rises. *Regularisation*
# makes memorising harder, for the sake of **generalisation**. Although the paper says three, it has headings
# for two, *residual dropout* and *label smoothing*. Table 3 (D) varies each:
#
# | | perplexity | BLEU |
# | --- | --- | --- |
# | base: dropout 0.1, smoothing 0.1 | 4.92 | 25.8 |
# | dropout 0 | 5.77 | 24.6 |
# | dropout 0.2 | 4.95 | 25.5 |
# | smoothing 0 | **4.67** | 25.3 |
# | smoothing 0.2 | 5.47 | 25.7 |
#
# (**Perplexity** is $e$ to the cross-entropy with the right tokens, without smoothing. A perplexity of 5
# means: as uncertain as a choice among 5 equally likely tokens. BLEU scores translations; higher is better.)
# We train on 100 pairs of simple sentences, so our numbers are not to be compared with the paper's.


# %%
corpus = load_corpus("grammar", "de-en")
tokenizer = SentencePieceTokenizer.train(corpus["train"].src + corpus["train"].tgt, 500)
pairs, held_out = (
    TokenBatches(encode_corpus(text, tokenizer, tokenizer), 500)
    for text in (corpus["train"].take(range(100)), corpus["test"].take(range(100)))
)


def look(model: nn.Module, batches: TokenBatches) -> tuple[float, float, float]:
    """Cross-entropy of the right tokens, share of them right, and mean probability of the likeliest token."""
    sums, count = torch.zeros(3), 0
    with evaluating(model):
        for batch in list(batches.epoch(0))[:4]:
            log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
            best, likeliest = log_probs.max(dim=-1)
            of_right = log_probs.gather(-1, batch.tgt_y.unsqueeze(-1)).squeeze(-1)
            values = torch.stack([-of_right, (likeliest == batch.tgt_y).float(), best.exp()])
            sums += values[:, batch.tgt_y != PAD].sum(dim=1)
            count += batch.ntokens
    return tuple((sums / count).tolist())


# %%
def regularised(dropout: float, smoothing: float) -> list[tuple]:
    """Train on the 100 pairs; every 50 updates, look at them and at the held-out pairs."""
    torch.manual_seed(SEED)
    model = make_model(500, 500, N=1, d_model=64, d_ff=128, h=4, dropout=dropout, tied_embeddings="all")
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    scheduler = noam_scheduler(optimizer, 64, factor_for(0.005, 64, 40), 40)
    loss_compute = SimpleLossCompute(model.generator, LabelSmoothing(500, PAD, smoothing))
    batches = list(islice(chain.from_iterable(map(pairs.epoch, count(1))), 200))
    seen = []
    for start in range(0, 200, 50):
        run_epoch(batches[start : start + 50], model, loss_compute, optimizer, scheduler)
        seen.append((look(model, pairs), look(model, held_out)))
    return seen


# So few pairs need more dropout than the paper's 0.1.
settings = {"neither": (0.0, 0.0), "dropout 0.3": (0.3, 0.0), "smoothing 0.1": (0.0, 0.1)}
seen = {name: regularised(*setting) for name, setting in settings.items()}

# %% tags=["figure-overfitting"]
fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True)
for (name, each), style in zip(seen.items(), ("-", "--", ":"), strict=True):
    for ax, side in ((left, 0), (right, 1)):
        ax.plot(range(50, 201, 50), [math.exp(pair[side][0]) for pair in each], style, marker="o", label=name)
    on_training, on_held_out = (math.exp(cross_entropy) for (cross_entropy, *_) in each[-1])
    print(f"{name:14} training pairs ≈{on_training:.1f}, held-out pairs ≈{on_held_out:.0f}", end=", ")
    print(f"at best ≈{math.exp(min(pair[1][0] for pair in each)):.0f}")
left.set(title="Pairs of the training set", xlabel="update", ylabel="perplexity", yscale="log")
right.set(title="Held-out pairs", xlabel="update")
right.legend(frameon=False)
plt.show()
held = {name: [pair[1][0] for pair in each] for name, each in seen.items()}
assert math.exp(seen["neither"][-1][0][0]) < 1.5
assert held["neither"][-1] > min(held["neither"]) + 0.3
assert min(held["dropout 0.3"]) < min(held["neither"]) - 0.1

# %% [markdown]
# *Figure 4. Without regularisation the model memorises its 100 pairs (left), and on others soon gets worse
# (right). Smoothing alone hardly changes that.*
#
# Dropout slows learning down, but it does more: its held-out perplexity reaches ≈45, while without it none
# of our four looks is below ≈57. (One seed. With 20,000 pairs, in [12](12_results.ipynb), perplexity is
# better with dropout, but BLEU is better *without*.) Smoothing leaves the best look as it is, and makes the
# last one a little better, perhaps because confident mistakes cost most, and smoothing makes it less
# confident.
#
# ## Dropout, and where the paper puts it
#
# > "We apply dropout to the output of each sub-layer, before it is added to the sub-layer input and
# > normalized. In addition, we apply dropout to the sums of the embeddings and the positional encodings in
# > both the encoder and decoder stacks." (section 5.4)
#
# **Dropout** (Srivastava et al., 2014) sets each number to 0 with probability $p$ in training, and
# multiplies the others by $1/(1-p)$, so that the mean stays the same. In a model with the paper's six
# layers:


# %%
def place(name: str) -> str:
    """Where in the model a dropout acts, told by its module's name."""
    places = {
        "sublayer": "output of a sub-layer",
        "src_embed": "embeddings + positions, encoder",
        "tgt_embed": "embeddings + positions, decoder",
        "attn": "attention weights",
        "feed_forward": "inside the feed-forward network",
    }
    return next(where for part, where in places.items() if part in name)


model = make_model(V, V, N=6, d_model=64, d_ff=128, h=8)
found = Counter((m.p, place(name)) for name, m in model.named_modules() if isinstance(m, nn.Dropout))
for (p, where), times in sorted(found.items(), reverse=True):
    print(f"{times:3} times {p:.1f}   {where}")
assert found[0.1, "output of a sub-layer"] == 6 * 2 + 6 * 3
assert sum(times for (p, _), times in found.items() if p > 0) == 30 + 2

# %% [markdown]
# Thirty sub-layers and two sums, as in the paper's sentence. The other thirty are on the attention weights
# and inside the feed-forward network; section 5.4 names neither. The authors' `transformer_base_v1` has
# both at 0.0, `transformer_base_v2` at 0.1.
#
# *Before it is added*: is the order important? After the sum, dropout would set a tenth of the whole residual
# stream to 0, at every sub-layer. We let a sub-layer output 0, and look at what reaches the layer norm:

# %%
connection, x = SublayerConnection(size=64, dropout=0.1), torch.randn(2, 500, 64)
connection.norm = nn.Identity()  # to see what reaches it
orders = {"before the sum": connection(x, torch.zeros_like), "after the sum": connection.dropout(x)}
for name, stream in orders.items():
    print(f"dropout {name}: ≈{(stream == 0).double().mean():.0%} of the stream are 0")
assert (orders["before the sum"] == x).all()

# %% [markdown]
# ## Label smoothing by hand
#
# > "During training, we employed label smoothing of value ε_ls = 0.1. This hurts perplexity, as the model
# > learns to be more unsure, but improves accuracy and BLEU score." (section 5.4)
#
# On a single training example, a loss that asks for probability 1 has no minimum: a larger logit of the
# right token always lowers it. **Label smoothing** (Szegedy et al., 2016) asks for about $1-\epsilon_{ls} =
# 0.9$ for the right token, and spreads 0.1 evenly. The paper cites Szegedy et al., who take all $K$ tokens;
# it does not say whether it does too. In Figure 5, `cat` is right among six symbols, with 0.4 instead of 0.1
# so that it can be seen.

# %% tags=["figure-three-readings"]
names = ["<s>", "</s>", "<blank>", "cat", "dog", "bird"]
K, BLANK, RIGHT, SMOOTHING = len(names), 2, 3, 0.4
over_all = torch.full((K,), SMOOTHING / K)  # K: the right word and padding get their part of it
over_all[RIGHT] += 1 - SMOOTHING
over_others = torch.full((K,), SMOOTHING / (K - 1))  # K - 1: padding gets its part
over_others[RIGHT] = 1 - SMOOTHING
over_words = torch.full((K,), SMOOTHING / (K - 2))  # K - 2: neither
over_words[RIGHT], over_words[BLANK] = 1 - SMOOTHING, 0.0

readings = {"K: Szegedy": over_all, "K - 1: the authors": over_others, "K - 2: this package": over_words}
fig, ax = plt.subplots(figsize=(9, 4))
for i, (name, target) in enumerate(readings.items()):
    ax.bar([x + 0.27 * (i - 1) for x in range(K)], target, 0.25, label=name)
    assert math.isclose(target.sum(), 1, rel_tol=1e-6)
ax.set_xticks(range(K), names)
ax.set(title="Spread a smoothing of 0.4 over ...", xlabel="symbol", ylabel="probability asked for")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 5. Three readings. The first gives a part back to the right word; the first two give padding a
# part.*
#
# PyTorch's `cross_entropy(label_smoothing=...)` divides by $K$ too, the authors' code by `vocab_size - 1`.
# This package follows The Annotated Transformer: `size - 2`, because neither the right word nor padding
# gets a share.

# %%
smoothed = LabelSmoothing(K, padding_idx=BLANK, smoothing=SMOOTHING)
log_probs = torch.tensor([[0.04, 0.05, 0.00, 0.70, 0.15, 0.06]] * 2).log()  # padding has log 0 = -inf
loss = smoothed(log_probs, torch.tensor([RIGHT, BLANK]))
print(f"loss {loss:.3f}, though one log-probability is {log_probs.min()}")
assert_close(smoothed.true_dist[0], over_words)
assert (smoothed.true_dist[1] == 0).all()  # a row whose target is padding contributes nothing
assert loss.isfinite()  # 0 times -inf would be NaN; where the target is 0 the term is left out
show_source(LabelSmoothing.forward, docstring=False)

# %% [markdown]
# ### Why a divergence, and not the cross-entropy?
#
# The listing computes the **Kullback-Leibler divergence** of the prediction $p$ from the target $t$, which
# is 0 where they are equal:
#
# $$\underbrace{\sum_k t_k\log\frac{t_k}{p_k}}_{\text{divergence}} =
# \underbrace{-\sum_k t_k\log p_k}_{\text{cross-entropy}} -
# \underbrace{\Big(-\sum_k t_k\log t_k\Big)}_{\text{entropy of the target}}$$
#
# The last term does not contain the model, so the gradient is the same. The authors' code subtracts it too,
# "just for readability, makes no difference on learning".
#
# A divergence can reach 0, and the cross-entropy stops at the entropy of the target.


# %%
def floor(size: int, smoothing: float) -> float:
    """The entropy of the smoothed target, in nats."""
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(smoothing / (size - 2))


assert math.isclose(floor(K, SMOOTHING), torch.special.entr(over_words).sum(), rel_tol=1e-6)
for size in (11, 8000, 37_000):
    print(f"{size:6,} symbols: {floor(size, 0.1):.2f} nats")

# %% [markdown]
# With a vocabulary of 37,000, about the paper's, even a model that predicts the smoothed target exactly has a
# cross-entropy *with that target* of 1.38, and more where several words could follow. Where code reports it,
# this answers "why does my loss not reach zero?". The package's loss is the divergence, whose floor is 0. The
# perplexities of the tables, with the right tokens alone, have no such floor.
#
# ### Why it hurts perplexity; and BLEU?
#
# **Perplexity.** The best prediction under smoothing is the true distribution, mixed with a little of a
# uniform one: every token keeps at least $(1-\epsilon)$ times its true probability, so each $-\log p$
# grows by at most $-\log(1-\epsilon)$. So the best possible perplexity grows by a factor of at most
# $1/(1-\epsilon) = 1.11$; in Table 3 it grows by 4.92 / 4.67 = 1.05.
#
# **BLEU** looks only at the words that are chosen. The package's record ([12](12_results.ipynb)) has
# perplexity / BLEU of small models trained on 20,000 simple pairs, three seeds each, at the best of three
# learning rates (by validation perplexity of one seed):

# %%
record = recorded("variations")["variations"]
smoothings, found = {"0": "smoothing 0", "0.1": "base", "0.2": "smoothing 0.2"}, {}
for smoothing, name in smoothings.items():
    factor = record[name]["factor"]  # of equation 3
    each = [run for run in record[name]["runs"] if run["factor"] == factor]
    scores = ", ".join(f"{r['perplexity']:.2f} / {r['bleu']:.1f}" for r in each)
    print(f"smoothing {smoothing:3}, equation 3 times {factor}: {scores}")
    found[name] = {measure: [run[measure] for run in each] for measure in ("perplexity", "bleu")}
without, base, more = found.values()
same_rate = {name: record[name]["runs"][1] for name in ("smoothing 0", "base")}
assert {run["factor"] for run in same_rate.values()} == {0.7}
both = [run["bleu"] for run in same_rate.values()]
print(f"one seed at 0.7: BLEU {both[0]:.1f} without smoothing, {both[1]:.1f} with 0.1")
assert both[0] > both[1]
for measure in ("perplexity", "bleu"):
    assert max(without[measure]) < min(more[measure])
    assert mean(without[measure]) < mean(base[measure])
    assert max(without[measure]) > min(base[measure])

# %% [markdown]
# A smoothing of 0.2 costs perplexity, as in the paper; between 0 and 0.1 the seeds overlap, in perplexity
# and in BLEU. In BLEU every seed of 0.2 beats every seed of 0. But the rates differ, and where they do not,
# at 0.7, the one seed without smoothing has *more* BLEU than that with 0.1. So how much of the gain is
# smoothing, and how much the rate, we cannot say.
#
# Why might it raise BLEU? Flattening keeps the order of the tokens. So a *greedy search*, which takes the
# likeliest token at each step, loses nothing by it; what could it gain? We look at how *certain* the models
# of Figure 4 are on held-out sentences, and how often right.

# %%
for name, each in seen.items():
    _, right, certain = each[-1][1]
    print(f"{name:14} right ≈{right:.0%}, mean probability of its choice ≈{certain:.0%}")
    assert 0.1 < right < 0.3
    assert certain > 1.5 * right if name == "neither" else certain < seen["neither"][-1][1][2] - 0.06
    assert right < seen["neither"][-1][1][1] + 0.02

# %% [markdown]
# Without regularisation the model is *overconfident* (badly *calibrated*): its choice is far more certain
# than right. Smoothing mends some of that, and so does dropout. Neither of the two makes it right more often
# here, although the paper reports better accuracy with smoothing. An overconfident mistake could mislead a
# search that compares whole sentences ([11](11_search_and_averaging.ipynb)): Müller et al. (2019) report a
# better beam search through better calibration. But the BLEU of our record is greedy. So how smoothing
# raises it, if it does, remains open here.
#
# **Exercise 2 (medium).** Write label smoothing as the authors have it: over `K - 1` symbols, padding among
# them, the entropy of the target subtracted. Rows whose target is padding contribute nothing. Smoothing may
# be 0.


# %% tags=["exercise"]
def authors_loss(log_probs: Tensor, target: Tensor, padding: int, smoothing: float) -> Tensor:
    """Log-probabilities (n, K), right tokens (n,) -> the summed divergence from the smoothed targets."""
    raise NotImplementedError


# %% tags=["solution"]
def authors_loss(log_probs: Tensor, target: Tensor, padding: int, smoothing: float) -> Tensor:
    """Log-probabilities (n, K), right tokens (n,) -> the summed divergence from the smoothed targets."""
    wanted = torch.full_like(log_probs, smoothing / (log_probs.size(-1) - 1))
    wanted.scatter_(1, target.unsqueeze(1), 1 - smoothing)
    each = (torch.xlogy(wanted, wanted) - wanted * log_probs).sum(dim=-1)  # xlogy: 0 log 0 is 0
    return each[target != padding].sum()


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
logs = torch.randn(6, 5, dtype=torch.float64).log_softmax(dim=-1)
right_tokens, wanted = torch.tensor([0, 1, 3, 4, 2, 2]), torch.full((4, 5), 0.1, dtype=torch.float64)
wanted[torch.arange(4), right_tokens[:4]] = 0.6
by_torch = nn.functional.kl_div(logs[:4], wanted, reduction="sum")
print(f"yours {authors_loss(logs, right_tokens, 2, 0.4):.4f}, PyTorch's divergence {by_torch:.4f}")
assert_close(authors_loss(logs, right_tokens, 2, 0.4), by_torch)
assert_close(authors_loss(wanted.log(), right_tokens[:4], 2, 0.4), torch.zeros((), dtype=torch.float64))
plain = LabelSmoothing(5, padding_idx=2, smoothing=0.0)
assert_close(authors_loss(logs, right_tokens, 2, 0.0), plain(logs, right_tokens))

# %% [markdown]
# **Exercise 3 (hard).** How far above all other logits must the right token's logit be at the optimum, with
# 37,000 symbols and smoothing 0.1? And without smoothing? Check that at your answer the gradient of
# `LabelSmoothing` is 0. (Set the logit of padding far below all others.)

# %% tags=["solution"]
gap = math.log(0.9 / (0.1 / 36_998))
logits = torch.zeros(1, 37_000, dtype=torch.float64)
logits[0, 7], logits[0, PAD] = gap, -1e4  # the right token, and padding far below
log_probs = logits.requires_grad_().log_softmax(dim=-1)
loss = LabelSmoothing(37_000, PAD, smoothing=0.1)(log_probs, torch.tensor([7]))
loss.backward()
print(f"by {gap:.1f}; without smoothing no gap is large enough")
assert logits.grad.abs().max() < 1e-9
assert abs(loss.item()) < 1e-9

# %% [markdown]
# Next: the recipe at work, in [09_first_example](09_first_example.ipynb).
