# %% [markdown]
# # 08 · The training recipe
#
# **You ruin a training run with its first five updates, and find out what they broke. Then you put together
# the paper's whole recipe: Adam, a learning rate that first rises, dropout and label smoothing.**
#
# Previous: [07_batches_and_masks](07_batches_and_masks.ipynb) · Next:
# [09_first_example](09_first_example.ipynb)
#
# *29 minutes to read, half a minute to run.*
#
# - **Before:** you know gradients in PyTorch, the model ([06](06_the_full_model.ipynb)), and what a batch
#   holds ([07](07_batches_and_masks.ipynb)).
# - **After:** you can write the training loop, and say what each part of the recipe is for.
#
# These are sections 5.3 and 5.4 of the paper (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)). Indented sentences are the paper's. A number after `≈` may
# differ on your processor. You can skip the folded cells: *Scaffolding* prepares data and draws pictures, and
# *Check* tests what the text claims.

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
# ## Five bad updates
#
# This is the whole training loop, for a toy and for the paper's model alike. For each batch, it sets the
# learning rate, computes the loss and the gradient of every weight, and then changes the weights.

# %%
import torch
from torch import nn

torch.set_num_threads(1)  # our matrices are small


def train(model, batches, schedule, criterion):
    """Return the loss per token of each batch; `schedule` gives the rate of update 1, 2, 3 ..."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for update, batch in enumerate(batches, start=1):
        adam.param_groups[0]["lr"] = schedule(update)
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        log_probs = model.generator(states).flatten(0, 1)  # (B * T, vocab)
        loss = criterion(log_probs, batch.tgt_y.flatten()) / batch.ntokens
        adam.zero_grad()  # forget the gradients of the batch before
        loss.backward()  # how fast the loss changes with each weight
        adam.step()  # move each weight a little, against its gradient
        losses.append(loss.item())
    return losses


# %% [markdown]
# We use the *copy task*: the model reads a row of ten symbols and has to write it again. The first symbol is
# always 1 and serves as the start symbol. The other nine are random, from 1 to 10, and the decoder has to
# predict these. The loss is $-\log p$, where $p$ is the probability that the model gives to the right symbol,
# and $\log$ is the natural logarithm. A model that knows nothing guesses among ten symbols, so its loss is
# $\log 10 = 2.30$. The call `data_gen(11, 32, 250)` below makes 250 batches of 32 rows. The 11 counts the ten
# symbols and 0, which is padding.
#
# We train the same model twice. In the first run, the learning rate **rises** to 0.03 over 50 updates, and
# then falls slowly. The second run is **impatient**: it uses 0.03 for its first five updates, and then
# continues like the first run. Nothing else differs.

# %%
from annotated import data_gen, make_model


def rising(update):
    return 0.03 * min(update / 50, (50 / update) ** 0.5)


def impatient(update):
    return 0.03 if update <= 5 else rising(update)


def copier():
    torch.manual_seed(0)
    return make_model(11, 11, N=2, d_model=32, d_ff=64, h=4, dropout=0.0)


plain = nn.NLLLoss(reduction="sum", ignore_index=0)  # -log p of the right symbols; 0 is padding
runs = {
    schedule.__name__: train(copier(), data_gen(11, 32, 250), schedule, plain)
    for schedule in (rising, impatient)
}

# %% [markdown]
# **Before you look at the figure:** only five of the 250 updates differ. Will the second run end a little
# ahead of the first, a little behind it, or somewhere else altogether?

# %% tags=["figure-five-bad-updates", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
for schedule, style in ((rising, "-"), (impatient, "--")):
    left.plot(range(1, 251), [schedule(update) for update in range(1, 251)], style)
    right.plot(range(1, 251), runs[schedule.__name__], style, label=schedule.__name__)
right.axhline(2.30, color="grey", linewidth=1, zorder=0)
left.set(xlabel="update", ylabel="learning rate", title="The schedule ...")
right.set(xlabel="update", ylabel="loss", title="... and what it does", ylim=(0, 4))
right.legend()
plt.show()

# %% [markdown]
# *Figure 1. Left: two schedules that differ in the first five updates. Right: the losses of the same model
# under each schedule. The gray line is the loss of guessing evenly; a new model is above it, because its
# random preferences are worse than none. At its highest, the impatient loss runs off the top of the plot.*

# %%
for name, losses in runs.items():
    print(f"{name:10} mean loss of the last 20 updates: ≈{sum(losses[-20:]) / 20:.2f}")

# %% tags=["check"]
assert sum(runs["rising"][-20:]) / 20 < 1.6
assert sum(runs["impatient"][-20:]) / 20 > 2.1

# %% [markdown]
# The first model is on its way: its loss has halved, and it is still falling. The impatient model is stuck at
# the loss of guessing. Five bad updates were enough, and the 245 good updates after them have not repaired
# the damage. What did the five updates do? To answer that, we have to look at the optimizer.

# %% [markdown]
# ## Adam
#
# > "We used the Adam optimizer with β1 = 0.9, β2 = 0.98 and ε = 10^−9." (section 5.3)
#
# The simplest optimizer subtracts the gradient times the learning rate. That is hard to tune, because the
# gradient can be 0.0001 for one weight and 100 for another. **Adam** (Kingma and Ba, 2015) keeps two running
# means for each weight: $m$ is the mean of its gradients, and $v$ is the mean of their *squares*. Both start
# at 0, so they are too small at first: after one update, $m$ is only $1 - \beta_1 = 0.1$ times the gradient.
# Adam corrects this by dividing by that 0.1. Then it subtracts the learning rate times $m / \sqrt v$:


# %%
def adam_steps(gradients, beta_1=0.9, beta_2=0.98, eps=1e-9):
    """What Adam adds at each update if the learning rate is 1: (updates, ...) -> (updates, ...)."""
    m = v = torch.zeros_like(gradients[0])
    steps = []
    for t, g in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * g  # running mean of the gradients
        v = beta_2 * v + (1 - beta_2) * g**2  # and of their squares
        m_corrected, v_corrected = m / (1 - beta_1**t), v / (1 - beta_2**t)
        steps.append(-m_corrected / (v_corrected.sqrt() + eps))
    return torch.stack(steps)


# %% tags=["check"]
_ = torch.manual_seed(0)
gradients = torch.randn(50, 3, dtype=torch.float64)
weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
theirs = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
for update, moved in enumerate(adam_steps(gradients).cumsum(dim=0)):
    weight.grad = gradients[update]
    theirs.step()
    assert torch.allclose(weight.data, moved)

# %% [markdown]
# **Before you run this:** four weights have the gradients 0.0001, 1, 10,000 and −10,000. How far does the
# first update move each weight?

# %%
first = adam_steps(torch.tensor([[1e-4, 1.0, 1e4, -1e4]]))[0]
print("first update, in learning rates:", [f"{step:+.2f}" for step in first.tolist()])

# %% tags=["check"]
assert torch.allclose(first, torch.tensor([-1.0, -1.0, -1.0, 1.0]), atol=1e-3)

# %% [markdown]
# Each weight moves by one learning rate. After the correction, $m$ is the only gradient so far, and $\sqrt v$
# is that gradient's size. Their quotient is +1 or −1. So the gradient decides only whether a weight goes up
# or down, and every weight takes a full step.
#
# Later, the steps are shorter. Gradients from different batches disagree, and they cancel each other in $m$.
# In the extreme case, the gradients are pure noise. We try that with 5,000 weights:

# %%
_ = torch.manual_seed(0)
noise = adam_steps(torch.randn(100, 5000)).abs().mean(dim=1)  # mean step of each update
print("pure noise:", ", ".join(f"update {n}: ≈{noise[n - 1]:.2f}" for n in (1, 2, 5, 10, 100)))

# %% tags=["check"]
assert abs(noise[0] - 1) < 1e-4
assert noise[0] > noise[1] > noise[4] > noise[9]
assert noise[99] < 0.25

# %% [markdown]
# At update 100, such a weight moves by about a fifth of the learning rate.
#
# **Remember:** the length of Adam's steps does not depend on the size of the gradients. The first steps are
# usually the longest, about one learning rate, because gradients have not yet canceled each other.

# %% [markdown]
# ## What the five updates broke
#
# In the impatient run, the first update moved almost every weight of the model by 0.03, and four more
# long steps followed. What did these steps do? In [06](06_the_full_model.ipynb) you saw that the vectors
# of different words become alike in a stack without residual connections. Here we measure how alike they
# are: we take the mean cosine between the encoder's vectors of two positions. If it is 1, all positions
# look the same.

# %%
from torch.nn import functional as F


@torch.no_grad()
def alike(model, batch):
    """The mean cosine of the encoder's vectors at two different positions."""
    unit = F.normalize(model.encode(batch.src, batch.src_mask), dim=-1)  # (B, S, d_model)
    length = unit.size(1)
    return (((unit @ unit.mT).sum(dim=(1, 2)) - length) / (length * (length - 1))).mean().item()


# %%
test = next(data_gen(11, 100, 1))
print(f"new model: ≈{alike(copier(), test):.2f}")
for schedule in (rising, impatient):
    model = copier()
    _ = train(model, data_gen(11, 32, 5), schedule, plain)
    print(f"after five updates, {schedule.__name__:9}: ≈{alike(model, test):.2f}")

# %% tags=["check"]
assert alike(copier(), test) < 0.7
assert alike(model, test) > 0.97
patient = copier()
_ = train(patient, data_gen(11, 32, 5), rising, plain)
assert alike(patient, test) < 0.9


def where_to_look(model):
    """The size of the loss's gradient for the queries and keys of cross-attention."""
    states = model(test.src, test.tgt, test.src_mask, test.tgt_mask)
    loss = plain(model.generator(states).flatten(0, 1), test.tgt_y.flatten())
    weights = [linear.weight for layer in model.decoder.layers for linear in layer.src_attn.linears[:2]]
    return sum(gradient.norm() for gradient in torch.autograd.grad(loss, weights))


assert where_to_look(model) < where_to_look(patient) / 100

# %% [markdown]
# In a new model, the vectors are already somewhat alike, because every layer mixes them. The gentle start
# makes them a little more so, and does no harm. But after five long steps, all positions look the same to the
# decoder. The decoder cannot tell which symbol is where, so it cannot copy. It can only guess. Why do the 245
# good updates not repair this? Probably because attention takes weighted means. If all vectors are the same,
# their mean is that same vector, whatever the attention weights are. So no change in these weights affects
# the loss, and the gradient does not tell attention where to look.
#
# Two cautions. The rate of 0.03 is high, although for such a narrow model with the same warm-up, equation 3
# below would give a peak of 0.025. And long steps do not ruin every model: pre-norm
# ([06](06_the_full_model.ipynb)) is set back by the same five updates, but goes on learning.
#
# *Is the cause really the length of the steps, or is it the noise in the first few gradients? More data for
# the first updates does not help, but shorter steps do, with both seeds that we tried: [Why
# warm-up?](evidence/why_warm_up.ipynb)*

# %% [markdown]
# ## A learning rate that first rises
#
# The paper starts with tiny steps:
#
# > "This corresponds to increasing the learning rate linearly for the first warmup_steps training steps, and
# > decreasing it thereafter proportionally to the inverse square root of the step number. We used
# > warmup_steps = 4000." (section 5.3)
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5}) \qquad (3)$$
#
# The rising part is called **warm-up**. The formula takes the lower of two curves: a rising straight line,
# $step \cdot warmup^{-1.5}$, and a falling curve, $1/\sqrt{step}$. They meet at $step = warmup$, which is the
# peak.


# %%
def rate(step, d_model, warmup):
    """Equation 3; steps count from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


# %% [markdown]
# **Before you run this:** what happens to the peak if you double the warm-up?

# %% tags=["figure-schedules", "scaffold"]
import altair as alt

settings = [(512, 4000), (512, 8000), (1024, 4000)]
kept = [{"curve": f"{d}, {w:,}", "d": d, "w": w} for d, w in settings]
curve = "pow({d}, -0.5) * min(pow(datum.step, -0.5), datum.step * pow({w}, -1.5))"
every = alt.sequence(10, 20001, 10, as_="step")
update = alt.X("step:Q", title="update", axis=alt.Axis(format=",.0f", tickCount=5))
height = alt.Y(
    "rate:Q", title="learning rate", axis=alt.Axis(format=".1e"), scale=alt.Scale(domain=[0, 1.4e-3])
)
warmup = alt.param(
    name="w", value=2000, bind=alt.binding_range(min=500, max=16000, step=100, name="warm-up ")
)
width = alt.param(name="d", value=256, bind=alt.binding_select(options=[256, 512, 1024], name="d_model "))
paper = [
    alt.Chart(every)
    .transform_calculate(rate=curve.format(d=d_model, w=w), curve=f"'{d_model:,} and {w:,}'")
    .mark_line(strokeWidth=1.5, strokeDash=dash)
    .encode(x=update, y=height, color=alt.Color("curve:N", title="d_model and warm-up", sort=None))
    for (d_model, w), dash in zip(settings, ([1, 0], [5, 3], [1, 0]), strict=True)
]
yours = (
    alt.Chart(every)
    .transform_calculate(rate=curve.format(d="d", w="w"))
    .mark_line(color="black", strokeWidth=3)
)
alt.layer(
    *paper, yours.encode(x=update, y=height), title="Learning rate, peak at the end of the warm-up"
).properties(width=400, height=280).add_params(warmup, width)

# %% [markdown]
# *Figure 2. Equation 3 for the base model, for twice its warm-up (dashed), and for the width of the big
# model. The black line is yours to change: in a live notebook, set the warm-up with the slider and choose a
# width. As printed, it is for a width of 256 and a warm-up of 2,000.*

# %%
for d_model, warmup in settings:
    print(f"d_model {d_model:4}, warm-up {warmup:,}: peak {rate(warmup, d_model, warmup):.5f}")

# %% tags=["check"]
from annotated import rate as packages

for d_model, warmup in settings:
    assert max(range(1, 20_001), key=lambda step: rate(step, d_model, warmup)) == warmup
    for step in (1, 100, 4000, 20_000):
        assert abs(rate(step, d_model, warmup) / packages(step, d_model, 1.0, warmup) - 1) < 1e-9
assert rate(8000, 512, 4000) == rate(8000, 512, 8000)

# %% [markdown]
# With twice the warm-up, the peak is lower. So the number 4,000 decides two things at once: how long the rate
# rises, and how high. From update 8,000 on, the first two curves are the same, because the falling part of
# the formula does not contain the warm-up. With the same warm-up, the wider model gets a lower rate at every
# update.
#
# The package's `rate` has one more argument, a factor in front of the formula. The paper gives no reason for
# the 4,000, nor for the square root. Most training runs today still use a warm-up, but with different numbers
# and a different curve after the peak.
#
# **Remember:** the first steps of Adam are usually its longest, so the learning rate starts near 0 and
# rises until the steps are safe.

# %% [markdown]
# ## Dropout
#
# A model with enough weights can memorize its training sentences. That is **overfitting**: the model gets
# better on the training set and worse on everything else. *Regularization* makes it harder to memorize.
# The paper announces three types of regularization and describes two: dropout, in two places, and label
# smoothing. We begin with dropout:
#
# > "We apply dropout to the output of each sub-layer, before it is added to the sub-layer input and
# > normalized. In addition, we apply dropout to the sums of the embeddings and the positional encodings in
# > both the encoder and decoder stacks. For the base model, we use a rate of $P_{drop}$ = 0.1." (section
# > 5.4)
#
# **Dropout** (Srivastava et al., 2014) sets each number to 0 with probability $p$ and divides the numbers
# that remain by $1 - p$. So each number stays the same on average, but no part of the model can rely on a
# single number. Here is what happens to ten ones with $p = 0.2$:

# %%
_ = torch.manual_seed(2)
dropout = nn.Dropout(0.2)
for _ in range(3):
    print("training: ", dropout(torch.ones(10)).tolist())
_ = dropout.eval()
print("inference:", dropout(torch.ones(10)).tolist())

# %% tags=["check"]
_ = dropout.train()
many = dropout(torch.ones(100_000))
assert abs((many == 0).float().mean() - 0.2) < 0.01
assert abs(many.mean() - 1) < 0.01
base = make_model(11, 11, N=6, d_model=64, d_ff=128, h=8)
assert sum(m.p == 0.1 for m in base.modules() if isinstance(m, nn.Dropout)) == 6 * 2 + 6 * 3 + 2

# %% [markdown]
# In a sub-layer, dropout comes *before* the addition to the residual stream
# ([06](06_the_full_model.ipynb)). After the addition, it would cut holes in the stream itself, sub-layer
# after sub-layer.
#
# Much code applies dropout in two more places: to the attention weights and inside the feed-forward network.
# The paper mentions the first in half a sentence about parsing (section 6.3). In the authors' code, the
# paper's base model has a rate of 0.0 in both places, and the next set of hyperparameters has 0.1
# (`transformer_base_v1` and `v2`). Our models leave both at 0 (`attention_dropout` and `relu_dropout`).
#
# Does it help? We train on only 100 pairs of sentences, which are easy to memorize. Then we look at 100 other
# pairs that the model has not seen. The measure is the **perplexity**, which is $\exp$ of the mean $-\log p$.
# A perplexity of 50 means that the model is as uncertain as if it were choosing among 50 equally likely
# tokens.

# %%
from annotated import SentencePieceTokenizer, evaluating
from annotated.translation.data import TokenBatches, encode_corpus, load_corpus

corpus = load_corpus("grammar", "de-en")  # simple German sentences and their English translations
tokenizer = SentencePieceTokenizer.train(corpus["train"].src + corpus["train"].tgt, 500)
known, unknown = (
    TokenBatches(encode_corpus(text.take(range(100)), tokenizer, tokenizer), 500)
    for text in (corpus["train"], corpus["test"])
)
sum_of_tokens = nn.NLLLoss(reduction="sum", ignore_index=tokenizer.pad)


def perplexity(model, pairs):
    """Perplexity of the right tokens, without dropout."""
    total = tokens = 0
    with evaluating(model):  # switches dropout off, and back on afterward
        for batch in pairs.epoch(0):
            states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            total += sum_of_tokens(model.generator(states).flatten(0, 1), batch.tgt_y.flatten())
            tokens += batch.ntokens
    return (total / tokens).exp().item()


# %%
def memorize(dropout):
    """Perplexity of known and new pairs after 50, 100, 150 and 200 updates."""
    torch.manual_seed(0)
    model = make_model(500, 500, N=1, d_model=64, d_ff=128, h=4, dropout=dropout, tied_embeddings="all")
    looks = []

    def batches():
        for update in range(1, 201):
            yield next(known.epoch(update))  # a random batch of the known pairs
            if update % 50 == 0:
                looks.append((perplexity(model, known), perplexity(model, unknown)))

    _ = train(model, batches(), lambda step: rate(step, d_model=64, warmup=40), sum_of_tokens)
    return looks


looks = {dropout: memorize(dropout) for dropout in (0.0, 0.3)}

# %% [markdown]
# **Before you run this:** which model has the lower perplexity on the pairs that it was trained on, the one
# with dropout or the one without?

# %% tags=["figure-overfitting", "scaffold"]
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
for side, (ax, title) in enumerate(zip(axes, ("Pairs it was trained on", "New pairs"), strict=True)):
    for (dropout, seen), style in zip(looks.items(), ("o-", "s--"), strict=True):
        ax.plot((50, 100, 150, 200), [look[side] for look in seen], style, label=f"dropout {dropout}")
    ax.set(title=title, xlabel="update", yscale="log")
axes[0].set_ylabel("perplexity")
axes[0].set_yticks([1, 10, 100], ["1", "10", "100"])
axes[1].legend()
plt.show()
for dropout, seen in looks.items():
    print(
        f"dropout {dropout}: trained on ≈{seen[-1][0]:.1f}; new, at best ≈{min(n for _, n in seen):.0f}",
        end="",
    )
    print(f", at the end ≈{seen[-1][1]:.0f}")

# %% [markdown]
# *Figure 3. Without dropout, the model soon memorizes its 100 pairs (left) and gets worse on new ones
# (right). With dropout, the model learns more slowly, but it keeps getting better on new pairs.*

# %% tags=["check"]
without, with_it = looks[0.0], looks[0.3]
assert without[-1][0] < 4 < with_it[-1][0]
assert without[-1][1] > 1.3 * min(new for _, new in without)
assert min(new for _, new in with_it) < 0.95 * min(new for _, new in without)

# %% [markdown]
# Because we have so few pairs, we used a dropout of 0.3 instead of the paper's 0.1. In the paper, a model
# without dropout scores 1.2 BLEU lower (Table 3, row (D)).
#
# **Remember:** dropout makes each number unreliable in training, so the model finds it harder to memorize
# the training set. When the model is used, dropout is off.

# %% [markdown]
# ## Label smoothing
#
# > "During training, we employed label smoothing of value $\epsilon_{ls} = 0.1$. This hurts perplexity, as
# > the model learns to be more unsure, but improves accuracy and BLEU score." (section 5.4)
#
# The plain loss can always be lowered: push the right token's score up a little more, and $-\log p$ shrinks
# again. So the loss rewards the model for becoming more and more certain. **Label smoothing** (Szegedy et
# al., 2016) asks for less. The right token should get 0.9, and the remaining 0.1 is spread over the other
# tokens. Here is a vocabulary of six tokens, where *Katze* is right and `<blank>` is padding:


# %%
def smoothed_targets(target, size, padding, smoothing):
    """The distribution that the loss asks for: (n,) -> (n, size)."""
    wanted = torch.full((len(target), size), smoothing / (size - 2))  # not to the right token, not to padding
    wanted.scatter_(1, target.unsqueeze(1), 1 - smoothing)
    wanted[:, padding] = 0
    wanted[target == padding] = 0  # padding has no target, so it costs nothing
    return wanted


vocabulary = ["<blank>", "<s>", "</s>", "eine", "Katze", "rennt"]
wanted = smoothed_targets(torch.tensor([4, 0]), size=6, padding=0, smoothing=0.1)
print(" ".join(f"{token:>8}" for token in vocabulary))
for row in wanted.tolist():
    print(" ".join(f"{probability:8.3f}" for probability in row))

# %% [markdown]
# The second row belongs to a padding position, so all its targets are 0. Drawn as bars, the first row is:

# %% tags=["figure-smoothing", "scaffold"]
eps = alt.param(name="eps", value=0.1, bind=alt.binding_range(min=0, max=0.8, step=0.01, name="smoothing "))
rows = [{"place": place, "token": token} for place, token in enumerate(vocabulary)]
bars = alt.Chart(alt.Data(values=rows)).transform_calculate(
    target="datum.place == 4 ? 1 - eps : datum.place == 0 ? 0 : eps / 4"
)
bars = bars.transform_calculate(written="format(datum.target, '.3f')").encode(
    x=alt.X("target:Q", title="target", scale=alt.Scale(domain=[0, 1.1]), axis=alt.Axis(values=[0, 0.5, 1])),
    y=alt.Y("token:N", title=None, sort=vocabulary),
)
(bars.mark_bar(color="#0173b2") + bars.mark_text(align="left", dx=4).encode(text="written:N")).properties(
    width=320, height=170, title="What the loss asks for"
).add_params(eps)

# %% [markdown]
# *Figure 4. The target for Katze. In a live notebook, move the slider: with no smoothing, the loss asks for
# probability 1 on the right token.*
#
# The loss is now the *cross-entropy* with these targets: $-\sum_k t_k \log p_k$, where $t$ is the target and
# $p$ the prediction.
#
# Implementations differ in which tokens share the 0.1. PyTorch spreads it over all tokens. The authors' code
# leaves out the right token, as we did in [00](00_start_here.ipynb), and our package, like "The Annotated
# Transformer", also leaves out padding. With thousands of tokens the choice hardly matters.
#
# **Before you run this:** the loss is lowest when the prediction equals the target. Is the loss 0 then?

# %%
for size in (6, 11, 8_000, 37_000):
    [target] = smoothed_targets(torch.tensor([4]), size, padding=0, smoothing=0.1).double()
    real = target[target > 0]
    print(f"{size:6,} tokens: the lowest possible loss is {-(real * real.log()).sum():.2f}")

# %% tags=["check"]
from annotated import LabelSmoothing, smoothed_cross_entropy

lowest = -0.9 * torch.tensor(0.9).log() - 0.1 * torch.tensor(0.1 / 36_998).log()
assert abs(lowest - 1.38) < 0.005
package = LabelSmoothing(6, padding_idx=0, smoothing=0.1)
_ = torch.manual_seed(0)
generator = make_model(6, 6, N=1, d_model=8, d_ff=8, h=2).generator
states, right = torch.randn(2, 8), torch.tensor([4, 0])
log_probs = generator(states).detach()
theirs = package(log_probs, right)
assert torch.allclose(package.true_dist, wanted)
entropy = torch.special.entr(wanted).sum()
assert torch.allclose(theirs, -(wanted * log_probs).sum() - entropy, atol=1e-5)
fast = smoothed_cross_entropy(
    states, generator.proj.weight, generator.proj.bias, right, padding_idx=0, smoothing=0.1
)
assert torch.allclose(fast, theirs, atol=1e-4)

# %% [markdown]
# It is not 0. With the paper's 37,000 tokens, even a model that predicts these targets exactly has a loss of
# 1.38. (In 00, the lowest loss for 11 tokens was 0.555, and here it is 0.545, because 00 shared the 0.1 among
# ten tokens instead of nine.) The package's `LabelSmoothing` subtracts this lowest value, so that a perfect
# prediction has a loss of 0. What remains is called the *Kullback-Leibler divergence*. Its gradient is that
# of the cross-entropy, because the subtracted number does not depend on the model.
#
# Table 3 says what smoothing does to the paper's base model:
#
# | smoothing | perplexity | BLEU |
# | --- | --- | --- |
# | 0 | **4.67** | 25.3 |
# | 0.1 | 4.92 | **25.8** |
# | 0.2 | 5.47 | 25.7 |
#
# The perplexity is worse, as the authors say: perplexity measures how certain the model is of the right
# tokens, and the model has been taught to be less certain. BLEU looks only at the words that are chosen, and
# it rises.
#
# *Why does smoothing help? Most likely, in our small models, because the model's first choice is right more
# often. We tested this explanation and its rivals in [Why does smoothing raise
# BLEU?](evidence/why_does_smoothing_raise_bleu.ipynb)*
#
# **Remember:** label smoothing asks for 0.9 instead of 1, so the model is no longer rewarded for becoming
# more and more certain.

# %% [markdown]
# ## The recipe
#
# The next cell trains the copy task with the whole recipe: Adam, equation 3, dropout of 0.1 and smoothing of
# 0.1. It uses the loop from the top of the page. With a warm-up of 100, the rate peaks at $1/\sqrt{32 \cdot
# 100} = 0.018$, as in 00.

# %%
from annotated import LabelSmoothing

_ = torch.manual_seed(0)
model = make_model(11, 11, N=2, d_model=32, d_ff=64, h=4, dropout=0.1)
criterion = LabelSmoothing(11, padding_idx=0, smoothing=0.1)
losses = train(model, data_gen(11, 64, 500), lambda step: rate(step, d_model=32, warmup=100), criterion)
print(f"loss ≈{losses[0]:.2f} at first, ≈{sum(losses[-20:]) / 20:.2f} at the end")

# %% tags=["check"]
assert losses[0] > 1.5
assert sum(losses[-20:]) / 20 < 0.3

# %% [markdown]
# ## What you can now say
#
# - Adam divides the mean of the gradients by their typical size. So the length of a step does not depend on
#   the size of the gradients, and the first steps are usually the longest.
# - Long first steps can make the encoder's vectors alike, and the model may never recover. So the
#   learning rate starts near 0 and rises for the first few thousand updates.
# - Dropout makes single numbers unreliable in training, so the model finds it harder to memorize its
#   training set.
# - Label smoothing asks for 0.9 instead of 1. Its lowest possible loss is not 0. In the paper, it hurts
#   perplexity and helps BLEU.
#
# **Deeper:** [Why warm-up?](evidence/why_warm_up.ipynb) · [Why does smoothing raise
# BLEU?](evidence/why_does_smoothing_raise_bleu.ipynb)
#
# **Next:** [09_first_example](09_first_example.ipynb), where a model learns to copy without an error.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (medium).** With pencil and paper: (a) At which step do the two curves of equation 3 meet, and
# how high is the peak there, expressed in $d_{model}$ and $warmup$? A colleague doubles the warm-up to 8,000,
# "to be safe", and the run, which was stable before, now gives a worse model. At which updates is the rate
# lower than before, and by what factor at most? (b) Why can the smoothed loss never be lower than $-\sum_k
# t_k \log t_k$? Use that $\log z \leq z - 1$ for every $z > 0$, with $z = p_k / t_k$. Compute the bound for
# 11 tokens of which 9 share the smoothing of 0.1.

# %% tags=["solution"]
# (a) step^(-1/2) = step * warmup^(-3/2) gives step^(3/2) = warmup^(3/2), so step = warmup, and the peak is 1
# / sqrt(d_model * warmup): 0.0007 for the base model. With 8,000, the rising line is lower by a factor of
# 2^(3/2) = 2.8, which is the factor at every update up to 4,000. It shrinks to 1 at 8,000, and from there on
# the rates are equal. To keep the peak, multiply equation 3 by the square root of 2. (b) log z <= z - 1, so
# sum t log(p / t) <= sum t (p / t - 1) = sum p - sum t <= 0: the loss -sum t log p is at least -sum t log t,
# and equal to it for p = t. Here: -0.9 log 0.9 - 0.1 log(0.1 / 9) = 0.095 + 0.450 = 0.545.
import math

for n in (1000, 4000, 6000, 8000, 50_000):
    print(f"update {n:6,}: {rate(n, 512, 8000) / rate(n, 512, 4000):.2f} times the old rate")
floor = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 9)
print(f"peak {rate(4000, 512, 4000):.4f}, floor {floor:.3f}")
assert abs(rate(4000, 512, 4000) - (512 * 4000) ** -0.5) < 1e-12
assert abs(rate(1000, 512, 4000) / rate(1000, 512, 8000) - 2**1.5) < 1e-9
assert abs(floor - torch.special.entr(smoothed_targets(torch.tensor([4]), 11, 0, 0.1)).sum()) < 1e-5

# %% [markdown]
# **Exercise 2 (medium).** Write label smoothing as it is in the authors' code, tensor2tensor. The smoothing
# is spread over all tokens but the right one, and padding is one of these tokens. The lowest possible loss
# is subtracted. Positions whose target is padding add nothing to the loss. Your function must also work if
# the smoothing is 0.


# %% tags=["exercise"]
import torch


def authors_loss(log_probs, target, padding, smoothing):
    """Log-probabilities (n, K) and right tokens (n,) -> the loss, summed."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch
from torch.nn import functional as F


def test_authors_loss(authors_loss):
    torch.manual_seed(0)
    logs = torch.randn(6, 5).double().log_softmax(dim=-1)
    target, wanted = torch.tensor([0, 1, 3, 4, 2, 2]), torch.full((4, 5), 0.1).double()
    wanted[torch.arange(4), target[:4]] = 0.6
    real, zeros = (logs[:4], target[:4]), F.one_hot(target[:4], 5)
    for what, given, right in (
        ("a perfect prediction", (wanted.log(), target[:4], 2, 0.4), 0.0),
        ("smoothing 0.4, no padding", (*real, 2, 0.4), F.kl_div(logs[:4], wanted, reduction="sum")),
        (
            "smoothing 0.4, two of six targets padding",
            (logs, target, 2, 0.4),
            F.kl_div(logs[:4], wanted, reduction="sum"),
        ),
        ("smoothing 0, two of six targets padding", (logs, target, 2, 0.0), -(logs[:4] * zeros).sum()),
    ):
        loss = authors_loss(*given)
        assert loss is not None, "nothing is returned"
        assert getattr(loss, "shape", ()) == (), f"{what}: the loss is one number, not {loss}"
        assert abs(loss - right) < 1e-6, f"{what}: the loss is {loss:.4f}, but {right:.4f} is right"


try:
    test_authors_loss(authors_loss)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(log_probs, target, padding, smoothing):
    """Log-probabilities (n, K) and right tokens (n,) -> the loss, summed."""
    wanted = torch.full_like(log_probs, smoothing / (log_probs.size(-1) - 1))
    wanted.scatter_(1, target.unsqueeze(1), 1 - smoothing)
    each = (torch.xlogy(wanted, wanted) - wanted * log_probs).sum(dim=-1)  # xlogy: 0 log 0 is 0
    return each[target != padding].sum()


test_authors_loss(solution)

# %% [markdown]
# **Exercise 3 (hard).** The paper uses $\beta_2 = 0.98$, while PyTorch's default is 0.999. The mean of the
# squares remembers about $1/(1-\beta_2)$ updates, so about 50 with the paper's value and about 1,000 with the
# default. Let a weight's gradient always be 1, except once, after 1,000 updates, when it is 100. Predict
# first: with which value does the weight jump farther, and after how many updates have its steps recovered?
# Then plot or print Adam's steps around that update for both values. What would the result mean for a
# training set with a few bad batches?

# %% tags=["solution"]
with_a_jump = torch.ones(3000, dtype=torch.float64)
with_a_jump[1000] = 100.0
for beta_2 in (0.98, 0.999):
    steps = adam_steps(with_a_jump, beta_2=beta_2).abs()[1000:]
    recovered = int((steps < 0.5).nonzero().max()) + 1
    print(f"beta_2 {beta_2}: {steps[0]:.1f} learning rates at once, then down to {steps.min():.2f}", end="")
    print(f"; above 0.5 again after {recovered} updates")
# With 0.98 there is no jump at all: the weight moves less than usual, 0.8 instead of 1.0, because the large
# gradient also raises the root of v that it is divided by. Then its steps are short for some 200 updates.
# With 0.999 the weight jumps by 2.7, and the short steps last for more than a thousand. A short memory
# forgives bad batches.
assert recovered > 1000
