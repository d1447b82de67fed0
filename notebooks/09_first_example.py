# %% [markdown]
# # 09 · A first example: learning to copy
#
# **You write the training loop line by line, and half a minute later a Transformer copies rows of symbols
# that it has never seen.**
#
# Previous: [08_training_recipe](08_training_recipe.ipynb) · Next: [10_translation](10_translation.ipynb)
#
# *30 minutes to read, under a minute to run.*
#
# - **Before:** you know gradients in PyTorch, the model ([00](00_start_here.ipynb)), and its loss and
#   schedule ([08](08_training_recipe.ipynb)).
# - **After:** you know what every line of a training loop does, how training differs from *inference*,
#   which is the use of a trained model, and how to check that a model has learned what you think it has.
#
# "The paper" is "Attention Is All You Need" (Vaswani et al., 2017). This lesson follows its section 5, with
# a toy task. A number after `≈` may differ on your processor. Folded cells called *Check* test what the
# text claims.

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
# ## The task
#
# The model reads a row of ten symbols and has to write the same ten symbols. The first symbol is always
# `1`, the start symbol. The others are random numbers from 1 to 10, so the model cannot guess them: it has
# to look at the source. Here is what a Transformer with random weights writes:

# %%
import torch

from annotated import greedy_decode, make_model

torch.set_num_threads(1)  # a second thread does not help with matrices this small
V, LENGTH = 11, 10  # the size of the vocabulary, in which 0 is padding, and the length of a row


def random_rows(count):
    """Rows of symbols, (count, 10), each beginning with 1."""
    rows = torch.randint(1, V, (count, LENGTH))
    rows[:, 0] = 1
    return rows


def new_model(seed):
    """Two layers of width 32 on each side (the paper has six of width 512)."""
    torch.manual_seed(seed)
    return make_model(V, V, N=2, d_model=32, d_ff=64, h=4)


model = new_model(seed=0)
example = torch.tensor([[1, 7, 3, 10, 5, 2, 9, 4, 8, 6]])
print("asked: ", example[0].tolist())
print("copied:", greedy_decode(model, example, None, LENGTH, start_symbol=1)[0].tolist())

# %% tags=["check"]
assert not torch.equal(greedy_decode(model, example, None, LENGTH, start_symbol=1), example)

# %% [markdown]
# Why copy? To write the fourth symbol, the decoder must find the fourth place in the source and turn the
# vector that it finds there into the right output. If the targets are not shifted, if the causal mask is
# missing, or if the loss, the loop or the decoding is wrong, the model does not learn to copy. You find out
# within a minute instead of after a night of training, so try every new model on a task like this first.
#
# Know what the task does *not* test. It has no padding, so it cannot notice a wrong padding mask. And it is
# so easy that a model with a broken part may still learn it: ours also copies without its feed-forward
# layers, or without an encoder that mixes its words. Real text needs these parts
# ([10](10_translation.ipynb)).

# %% [markdown]
# ## A batch: one row, used twice
#
# The encoder reads the row. The decoder reads the row *without its last symbol*. At each position it must
# predict the next symbol, so the target is the row *without its first symbol*. `Batch` cuts the row and
# makes the masks, like `make_batch` in [07](07_batches_and_masks.ipynb). We call each position
# at which the decoder must predict a symbol a *question*.

# %%
from annotated import Batch


def copy_batches(count, size=128):
    """Yield `count` batches of `size` rows."""
    for _ in range(count):
        rows = random_rows(size)
        yield Batch(src=rows, tgt=rows, pad=0)


batch = Batch(src=example, tgt=example, pad=0)
print("encoder reads:   ", *(f"{symbol:3}" for symbol in batch.src[0].tolist()))
print("decoder reads:   ", *(f"{symbol:3}" for symbol in batch.tgt[0].tolist()))
print("decoder must say:", *(f"{symbol:3}" for symbol in batch.tgt_y[0].tolist()))
print("questions in this row:", batch.ntokens)

# %% tags=["check"]
assert torch.equal(batch.tgt[:, 1:], batch.tgt_y[:, :-1])
assert batch.ntokens == LENGTH - 1

# %% [markdown]
# Read it column by column. After `1`, the decoder must say `7`. After `7`, it must say `3`. All the right
# answers except the last are also in the decoder's own input, one place further to the right, but the
# causal mask hides everything to the right. So the model answers nine questions in one pass, and it cannot
# see the answer to any of them.

# %% [markdown]
# ## The training loop
#
# Before the loop we need a loss, an optimizer and a schedule. The optimizer is Adam with the paper's
# settings. The schedule is the paper's equation 3 with a shorter warm-up, because our whole run has only
# 400 updates, whereas the paper's base model had 100,000. As in [08](08_training_recipe.ipynb), we multiply
# the schedule by a factor that suits a small model.

# %%
from annotated import LabelSmoothing, noam_scheduler

criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.1)


def optimizer_and_scheduler(model):
    """Adam, and the schedule that sets its learning rate."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    return optimizer, noam_scheduler(optimizer, model_size=32, factor=0.3, warmup=100)


# %%
def train(model, batches, optimizer, scheduler):
    """Yield the loss of each batch, after one update with it."""
    model.train()  # dropout on
    for batch in batches:
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, 9, d_model)
        log_probs = model.generator(states).flatten(0, 1)  # (B * 9, V)
        loss = criterion(log_probs, batch.tgt_y.flatten()) / batch.ntokens
        loss.backward()  # adds this batch's gradients to what is in .grad
        optimizer.step()  # moves the weights
        optimizer.zero_grad()  # empties .grad
        scheduler.step()  # sets the learning rate of the next update
        yield loss.item()  # a plain number


# %% [markdown]
# That is the whole loop, and almost every training loop in PyTorch has these lines. Let us go through them.
#
# - **Forward.** The model answers all questions of the batch. The generator turns its vectors into
#   log-probabilities.
# - **Loss.** The criterion adds up how far the answers are from the targets. We divide by the number of
#   questions, so that a larger batch does not get a larger gradient.
# - **Backward.** PyTorch computes the gradient of the loss for every weight and *adds* it to `weight.grad`.
# - **Step.** Adam uses the gradients to move every weight a little, so that the loss falls.
# - **Zero.** Because `backward` adds, we must remove the old gradients. Otherwise each update would also use
#   the gradients of all earlier batches.
# - **Schedule.** The learning rate changes with every update. Without this line it would keep its first
#   value, which is almost zero.
# - **item.** A tensor would also keep the computation graph of the loss in memory. So we turn the loss into
#   a plain number.
#
# What happens if you forget a line? We train three models that begin with the same weights. One has the whole
# loop, one lacks `zero_grad`, and one lacks `scheduler.step`.
#
# **Before you run this:** which of the two mistakes will raise an error? The cell first prints the loss of
# a blind guess, which gives each of the ten symbols the same probability. The cross-entropy of this guess
# is $\ln 10 = 2.30$. Our criterion subtracts 0.54 from it, because this is the lowest value that a model
# can reach ([08](08_training_recipe.ipynb)).

# %%
import math

lowest = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 9))  # 0.9 for the right symbol, 0.1 for nine others
guess = math.log(10) - lowest
print(f"blind guess: loss {math.log(10):.2f} - {lowest:.2f} = {guess:.2f}")
after_200 = {}
for forgotten in ("nothing", "zero_grad", "scheduler.step"):
    student = new_model(seed=0)
    optimizer, scheduler = optimizer_and_scheduler(student)
    if forgotten == "zero_grad":
        optimizer.zero_grad = lambda: None
    if forgotten == "scheduler.step":
        scheduler.step = lambda: None
    losses = list(train(student, copy_batches(200, size=64), optimizer, scheduler))
    after_200[forgotten] = sum(losses[-25:]) / 25
    print(f"forgotten: {forgotten:15} after 200 updates, loss ≈{after_200[forgotten]:.2f}")

# %% tags=["check"]
assert after_200["nothing"] < guess - 0.6
assert min(loss for name, loss in after_200.items() if name != "nothing") > guess - 0.1

# %% [markdown]
# Neither mistake raises an error, and neither model is better than a blind guess. A mistake in a training
# loop often looks like this: nothing breaks, and nothing is learned.
#
# **Remember:** a training loop is forward, loss, backward, step, zero and schedule, and a missing line may
# raise no error at all.

# %% [markdown]
# ## Validation: two switches
#
# We draw 200 more rows and use them only for measuring. To measure the loss on these rows, we have to
# switch off two things, which people often confuse. `model.eval()` switches off **dropout**.
# `torch.no_grad()` stops PyTorch from **storing what `backward` would need**. We try all four combinations
# on the untrained model from the top of the page, and we measure the same loss twice with each:

# %%
_ = torch.manual_seed(100)
rows = random_rows(200)
held_out = Batch(src=rows, tgt=rows, pad=0)


def validation_loss(model):
    """The mean loss per question on the held-out rows."""
    states = model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask)
    return criterion(model.generator(states).flatten(0, 1), held_out.tgt_y.flatten()) / held_out.ntokens


for training, gradients in ((True, True), (True, False), (False, True), (False, False)):
    _ = model.train(training)
    with torch.set_grad_enabled(gradients):
        first, second = validation_loss(model), validation_loss(model)
    switches = f"{'train()' if training else 'eval()':8} {'' if gradients else 'no_grad()':10}"
    print(
        f"{switches} loss ≈{first:.4f}, again ≈{second:.4f}, kept for backward: {first.grad_fn is not None}"
    )

# %% tags=["check"]
from annotated import evaluating

assert first == second
assert first.grad_fn is None
with torch.no_grad():
    _ = model.train()
    assert validation_loss(model) != validation_loss(model)
with evaluating(model):
    again, once_more = validation_loss(model), validation_loss(model)
assert again == once_more == first
assert again.grad_fn is None
assert model.training

# %% [markdown]
# Without `eval()` the loss is different each time. Without `no_grad()` PyTorch keeps everything that
# `backward` might need. Validation needs both. The package has one name for the pair, `evaluating(model)`,
# which also restores the earlier mode afterwards.

# %% [markdown]
# ## Teacher forcing and free running
#
# You know **teacher forcing** from [07](07_batches_and_masks.ipynb): in training, the decoder reads the
# *right* symbols, even where it would have written something else. At inference, nobody knows the right
# symbols, so the decoder reads *what it has written itself*. This is called **free running**.
#
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional input
# > when generating the next." (section 3)
#
# ![In training, the decoder reads 1, 7, 3, 10 and says 7, 4, 10, 5; at inference, it says 7, then 4, reads
# the 4, and says 3 and 10: three wrong symbols instead of one](../images/teacher_forcing.svg)
#
# *Figure 1. The same model is wrong at the second question both times. In training, the mistake costs one
# answer. At inference, which the drawing calls "in use", the mistake becomes the next input.*
#
# So there are two ways to say how good a model is. **Tokens right** is measured under teacher forcing: what
# share of all questions does the model answer correctly? **Rows right** is measured in free running: what
# share of the rows that the model writes on its own is right from beginning to end?


# %%
from annotated import evaluating


def forced_answers(model, batch):
    """What the model says when it reads the right symbols, (B, 9): one pass."""
    with evaluating(model):
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return model.generator(states).argmax(dim=-1)


def measure(model):
    """Tokens right under teacher forcing, and rows right when the model is on its own."""
    tokens = forced_answers(model, held_out) == held_out.tgt_y  # (200, 9)
    written = greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
    rows = (written == held_out.src).all(dim=1)  # (200,)
    return tokens.double().mean().item(), rows.double().mean().item()


# %% [markdown]
# Now we train for 400 updates. After every 25 updates, we measure both shares and keep a copy of the model
# for later.

# %% tags=["nbval-ignore-output"]
import copy

model = new_model(seed=0)
optimizer, scheduler = optimizer_and_scheduler(model)
snapshots, history = {0: copy.deepcopy(model)}, []
for step in range(25, 401, 25):
    losses = list(train(model, copy_batches(25), optimizer, scheduler))
    with evaluating(model):
        validation = validation_loss(model).item()
    history.append((step, sum(losses) / 25, validation, *measure(model)))
    snapshots[step] = copy.deepcopy(model)
    if step % 100 == 0:
        print(
            "update {}: loss {:.2f}, on held-out rows {:.2f}, tokens right {:.1%}, rows right {:.1%}".format(
                *history[-1]
            )
        )

# %%
copied = greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
print("asked: ", held_out.src[0].tolist())
print("copied:", copied[0].tolist())
right = (copied == held_out.src).all(dim=1).sum()
print(f"≈{right} of 200 new rows copied without a mistake")

# %% tags=["check"]
assert right >= 192
assert history[-1][2] < 0.06

# %% [markdown]
# The training loss is higher than the loss on the held-out rows, because dropout is on during training, and
# because the training loss is a mean over the last 25 updates.
#
# There are $10^9$ different rows, and in training the model has read only 51,200 of them. So it has almost
# certainly never read any of our 200 rows. It cannot have memorized them, so it has learned to copy.

# %% [markdown]
# ### Most tokens right, most rows wrong
#
# How did the two accuracies change during the run?

# %% tags=["figure-accuracies"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
steps, _, _, tokens_right, rows_right = zip(*history, strict=True)
fig, ax = plt.subplots()
ax.plot(steps, tokens_right, "o-", label="tokens right (teacher forcing)")
ax.plot(steps, rows_right, "s--", label="rows right (free running)")
ax.plot(steps, [share**9 for share in tokens_right], ":", color="black", label="(tokens right)$^9$")
ax.set(xlabel="update", ylabel="share", title="Nearly all tokens are right long before the rows are")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 2. Two accuracies of one model. The dotted line is the ninth power of the upper curve.*

# %% tags=["check"]
assert max(abs(r - t**9) for t, r in zip(tokens_right, rows_right, strict=True)) < 0.15
middle = min(history, key=lambda measured: abs(measured[4] - 0.5))
assert 0.88 < middle[3] < 0.96

# %% [markdown]
# A row is right only if all nine answers are right. Up to its first mistake, the model reads the same
# symbols in both modes. So if each answer is right with probability $p$, independently of the others, then
# all nine are right with probability $p^9$. That is the dotted line, and the model stays close to it. Half
# of the rows are right where $p$ is 0.92, because $0.92^9 \approx 0.5$. For thirty tokens, $0.98^{30}
# \approx 0.55$. By the same rule, a translator with 98% of its tokens right would make a mistake in almost
# half of the sentences of that length.
#
# **Remember:** even when most tokens are right, most whole outputs can be wrong.

# %% [markdown]
# ### After a mistake
#
# The trained model makes hardly any mistakes, so we take a copy from the middle of the run and let it write
# on its own. Brackets mark wrong symbols:

# %% tags=["nbval-ignore-output"]
half = max(step for step, *_, rows_right in history if rows_right < 0.85)
written = greedy_decode(snapshots[half], held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
wrong = written != held_out.src
for row, bad in list(zip(written.tolist(), wrong.tolist(), strict=True))[:8]:
    print(
        " ".join(f"[{symbol}]".rjust(4) if w else f"{symbol:3} " for symbol, w in zip(row, bad, strict=True))
    )
print("the model after", half, "updates")

# %% [markdown]
# **Before you run this:** when the model has written a wrong symbol, how often is the next symbol wrong, too?
# And how often is the model wrong at the very same positions when it reads the right symbols instead?

# %%
after_a_mistake = wrong[:, 1:-1]  # the model has just written a wrong symbol: (200, 8)
alone = wrong[:, 2:][after_a_mistake].double().mean()
forced_wrong = forced_answers(snapshots[half], held_out) != held_out.tgt_y  # (200, 9)
truth = forced_wrong[:, 1:][after_a_mistake].double().mean()
first = wrong & (wrong.cumsum(dim=1) == 1)  # the first mistake of each row, (200, 10)
both_wrong = first[:, 1:-1] & wrong[:, 2:]
late = (written[:, 2:] == held_out.src[:, 1:-1])[both_wrong].double().mean()  # what was due one step earlier
print(f"right after its own mistake it is wrong in ≈{alone:.0%} of ≈{after_a_mistake.sum()} cases")
print(f"at the same positions, reading the right symbols, in ≈{truth:.0%}")
print(f"when it is wrong twice in a row, the second is what was due one step earlier in ≈{late:.0%} of cases")

# %% tags=["check"]
assert alone > 0.4 > 0.25 > truth
assert late > 0.4 > 3 / V
first_wrong = wrong[:, 1:].double().argmax(dim=1)[wrong.any(dim=1)]  # the first mistake is the same both ways
assert forced_wrong[wrong.any(dim=1), first_wrong].all()

# %% [markdown]
# One mistake leads to the next. In training the model has read only right symbols, and it was never exposed
# to its own mistakes. This is called **exposure bias** (Ranzato et al.,
# [2016](https://arxiv.org/abs/1511.06732)). The last line shows that the model is not simply lost. Often it
# makes a *swap*: it writes the next symbol too early, and then the one that it owes.
#
# *How much does exposure bias cost, and what does the model say after a wrong symbol? We counted both in
# [Exposure bias, counted](evidence/exposure_bias_counted.ipynb).*
#
# **Remember:** in training, the decoder reads the right symbols, and at inference, it reads its own output.
# So measure a model in the way that you will use it.

# %% [markdown]
# ## Where does it look?
#
# A model that copies should look at the symbol that it copies. We record the decoder's attention to the
# source. The picture has a row for each symbol that the decoder reads and a column for each symbol of the
# source.
#
# **Before you run this:** you will see a dark diagonal. Will it begin in the upper left corner?

# %%
from itertools import pairwise

import seaborn

from annotated import capture_attention


def attention_to_source(model):
    """The weights of every layer and head, (layers, h, 9 queries, 10 keys)."""
    batch = Batch(src=example, tgt=example, pad=0)
    with evaluating(model), capture_attention(model) as maps:
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return torch.stack([maps["cross", layer][0] for layer in range(2)])


on_next = attention_to_source(model).diagonal(1, dim1=-2, dim2=-1).mean(dim=-1)  # (layers, h)
layer, head = divmod(on_next.argmax().item(), 4)  # the head that looks most at the next symbol

# %% tags=["figure-diagonal"]
symbols = [str(symbol) for symbol in example[0].tolist()]
labels = {"xticklabels": symbols, "yticklabels": [f"{a} → {b}" for a, b in pairwise(symbols)]}
style = {"vmin": 0, "vmax": 1, "cmap": "Blues", "cbar": False, "square": True, "linewidths": 0.5}
fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True)
for ax, step in zip(axes, (0, half, 400), strict=True):
    seaborn.heatmap(attention_to_source(snapshots[step])[layer, head], ax=ax, **labels, **style)
    ax.set(title=f"after {step} updates", xlabel="source")
axes[0].set_ylabel("reads → must say")
plt.show()

# %% [markdown]
# *Figure 3. The same head before, during and after training. Darker cells have more attention.*

# %% tags=["check"]
own = attention_to_source(model).diagonal(0, dim1=-2, dim2=-1).mean(dim=-1)
assert on_next[layer, head] > 0.6
assert on_next.mean() > 1.5 * own.mean()
assert attention_to_source(snapshots[0])[layer, head].diagonal(1).mean() < 0.2

# %% [markdown]
# The diagonal begins one column further to the right. Where the decoder reads `7`, it must say `3`, so it
# looks at `3`. The target is shifted by one, and so is the attention.
#
# A picture shows where a model looks. It does not show what the model *needs*. To find out, we hide parts of
# the source from the decoder, in two ways. First, each position may see only the symbol that it must say.
# Then it may see everything except that symbol.

# %%
only_next = torch.zeros(1, 9, 10, dtype=torch.bool)
only_next[:, range(9), range(1, 10)] = True  # decoder position i may see source position i + 1
for name, visible in (("only the next symbol", only_next), ("all but the next symbol", ~only_next)):
    with evaluating(model):
        memory = model.encode(held_out.src, held_out.src_mask)
        states = model.decode(memory, visible, held_out.tgt, held_out.tgt_mask)
        share = (model.generator(states).argmax(dim=-1) == held_out.tgt_y).double().mean()
    print(f"sees {name:24} ≈{share:.0%} of the tokens right")

# %% tags=["check"]
assert share < 0.3
with evaluating(model):
    states = model.decode(memory, only_next, held_out.tgt, held_out.tgt_mask)
    assert (model.generator(states).argmax(dim=-1) == held_out.tgt_y).double().mean() > 0.9

# %% [markdown]
# One source position out of ten is enough. Without it, the model hardly does better than guessing. Now we
# know that this model copies by looking at the symbol that it must say next. (Which head fetches it, the test
# does not say.) An experiment that takes something away is called an *ablation*. Lesson
# [13](13_reading_attention.ipynb) does one with a translator.
#
# **Remember:** a picture of attention suggests what a model does, and an ablation tests it.

# %% [markdown]
# ## What you can now say
#
# - A training loop is forward, loss, backward, step, zero, schedule. If you forget `zero_grad` or
#   `scheduler.step`, nothing raises an error. Our model did not learn without these lines.
# - Validation needs `eval()` to switch off dropout, and `no_grad()` so that PyTorch keeps nothing for
#   `backward`.
# - In training, the decoder reads the right symbols, which is called teacher forcing. At inference, it
#   reads its own output, so one mistake leads to the next.
# - If each token is right with probability $p$, a row of $n$ tokens is right with a probability of about
#   $p^n$.
# - A small task with a known solution shows in a minute whether shift, mask, loss, loop and decoding fit
#   together. It may miss a broken layer.
#
# **Deeper:** [Exposure bias, counted](evidence/exposure_bias_counted.ipynb)
#
# **Next:** to translate sentences, we keep the loop and change the data:
# [10_translation](10_translation.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** The rows in training had 10 symbols. The paper hopes that sinusoids "may allow the
# model to extrapolate to sequence lengths longer than the ones encountered during training" (section 3.5).
# Predict first: how many of 200 rows of **14** symbols does the model copy, and where does it fail? Then
# count.

# %% tags=["solution"]
_ = torch.manual_seed(3)
longer = torch.randint(1, V, (200, 14))
longer[:, 0] = 1
said = greedy_decode(model, longer, None, 14, start_symbol=1)
print(
    "right at each position:", ", ".join(f"≈{share:.0%}" for share in (said == longer).double().mean(dim=0))
)
whole = (said == longer).all(dim=1).double().mean()
print(f"rows copied without a mistake: ≈{whole:.0%}")
# The model fails after the tenth position, and often at the tenth. The later positions have an
# encoding, but the model has not learned to use it.
assert whole < 0.3

# %% [markdown]
# **Exercise 2 (medium).** Suppose that the batch you want does not fit into memory. Compute the same
# gradients from several smaller batches, which may have different numbers of tokens. This is called *gradient
# accumulation*. As above, `criterion` returns a sum over tokens.


# %% tags=["exercise"]
def accumulate(model, criterion, parts):
    """Leave in the model the gradients of the mean loss over the tokens of all batches in `parts`."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import Batch, LabelSmoothing, make_model


def test_accumulate(accumulate):
    torch.manual_seed(0)
    smoothed = LabelSmoothing(size=11, padding_idx=0, smoothing=0.1)
    small = make_model(11, 11, N=1, d_model=32, d_ff=64, h=4, dropout=0.0)
    texts = torch.tensor([[1, 4, 8, 3, 6, 2, 9, 5], [1, 7, 2, 0, 0, 0, 0, 0]])
    whole, long, short = (Batch(rows, rows, pad=0) for rows in (texts, texts[:1], texts[1:, :3]))
    states = small(whole.src, whole.tgt, whole.src_mask, whole.tgt_mask)
    mean = smoothed(small.generator(states).flatten(0, 1), whole.tgt_y.flatten()) / whole.ntokens
    right = torch.autograd.grad(mean, list(small.parameters()))
    for parts, what in ([whole], "one batch"), ([long, short], "two batches of 7 and 2 tokens"):
        small.zero_grad()
        accumulate(small, smoothed, parts)
        gradients = [weights.grad for weights in small.parameters()]
        assert None not in gradients, f"{what}: some weights have no gradient"
        pairs = list(zip(gradients, right, strict=True))
        size = sum((one * other).sum() for one, other in pairs) / sum((other**2).sum() for other in right)
        gap = max((one - other).abs().max() for one, other in pairs)
        told = f"{what}: the gradients are off by up to {gap:.2f} (about {size:.2f} times the right ones)"
        assert gap < 1e-5, told


try:
    test_accumulate(accumulate)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
# `backward` adds, so the parts add up by themselves. The divisor is what matters: the tokens of *all* parts.
# A mean of the parts' means would give the tokens of a short part more weight.
def solution(model, criterion, parts):
    """Leave in the model the gradients of the mean loss over the tokens of all batches in `parts`."""
    total = sum(part.ntokens for part in parts)
    for part in parts:
        states = model(part.src, part.tgt, part.src_mask, part.tgt_mask)
        loss = criterion(model.generator(states).flatten(0, 1), part.tgt_y.flatten())
        (loss / total).backward()


test_accumulate(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore: train a model that writes the start symbol and then the rest of the row
# *backwards*. First sketch what Figure 3 will look like. Then train the model and draw the figure.


# %% tags=["solution"]
def reversed_rows(rows):
    """1 a b c -> 1 c b a."""
    return torch.cat([rows[:, :1], rows[:, 1:].flip(1)], dim=1)


backwards = new_model(seed=0)
its_optimizer, its_scheduler = optimizer_and_scheduler(backwards)
pairs = ((rows, reversed_rows(rows)) for rows in (random_rows(128) for _ in range(400)))
_ = list(train(backwards, (Batch(src, tgt, pad=0) for src, tgt in pairs), its_optimizer, its_scheduler))
mirrored = Batch(src=example, tgt=reversed_rows(example), pad=0)
with evaluating(backwards), capture_attention(backwards) as maps:
    backwards(mirrored.src, mirrored.tgt, mirrored.src_mask, mirrored.tgt_mask)
weights = torch.stack([maps["cross", layer][0] for layer in range(2)]).flatten(0, 1)  # (8 heads, 9, 10)
against = [head[range(9), [9 - i for i in range(9)]].mean() for head in weights]  # the answer's place
print(f"the best head has ≈{max(against):.0%} of its attention on the other diagonal")
assert max(against) > 0.4
seaborn.heatmap(weights[against.index(max(against))], cmap="Blues", square=True, cbar=False)
plt.show()
