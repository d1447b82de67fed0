# %% [markdown]
# # 09 · A first example: learning to copy
#
# **We write the training loop a line at a time, watch a small Transformer learn to repeat what it reads,
# and catch another one cheating.**
#
# Previous: [08_training_recipe](08_training_recipe.ipynb) · Next: [10_translation](10_translation.ipynb)
# · Attention itself: [02_attention](02_attention.ipynb)
#
# *30 minutes to read, under a minute to run.*
#
# - **Before:** you know gradients in PyTorch, and attention with its masks. What we need of batches (07)
#   and of the training recipe (08) is said again in a line.
# - **After:** you know each line of a training loop, and what breaks without it; what the decoder is fed in
#   training and in use; why 98% of tokens right can mean half of the sentences wrong; where a loss stops, and
#   why not at 0; where a trained model looks, and how to find out whether it needs to.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017); this is its section 5, on a toy.

# %%
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import os
import subprocess
import sys

try:
    import annotated

    annotated.make_model  # PyPI has a stranger's `annotated`, which has none
except (ImportError, AttributeError):
    where = os.environ.get("ANNOTATED_SPEC", "")
    if not where:
        todo = "%env ANNOTATED_SPEC=git+https://..."
        raise RuntimeError(f"To say where pip finds annotated, run in a cell above:\n{todo}") from None
    package = f"annotated-transformer[colab] @ {where}"
    command = [sys.executable, "-m", "pip", "install", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            print(line, end="")
    if pip.returncode:
        raise RuntimeError("pip could not install annotated: its reason stands above") from None
    sys.modules.pop("annotated", None)

# %%
import copy
import math
import time
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

from annotated import (
    Batch,
    LabelSmoothing,
    SimpleLossCompute,
    TrainState,
    capture_attention,
    data_gen,
    evaluating,
    greedy_decode,
    make_model,
    noam_scheduler,
    rate,
    run_epoch,
    subsequent_mask,
)

# %%
from annotated.plots import setup_notebook, show_source
from annotated.plots.attention import plot_attention
from annotated.plots.copying import explore_growth, plot_growth
from annotated.plots.smoothing import plot_loss
from annotated.plots.training import plot_accuracies, plot_learning_curves

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## Ten symbols in, the same ten out
#
# The task is to repeat a row of symbols. There are ten of them, `1` to `10`; `0` is padding, and every row
# begins with a `1`, which tells the decoder to start. For a computer this is no task at all. For a
# Transformer it is a fair one: the decoder is given only what has been said so far. For the rest of the
# source it has to learn to ask, and only cross-attention, its look at the source, can bring it. If a mask, a
# target, the loop or the decoding is wrong, this shows within a minute and not after a day.

# %%
V, LENGTH = 11, 10  # symbols, padding among them; symbols in a row
torch.manual_seed(0)
batch = next(data_gen(V, batch_size=128, nbatches=1))
print("source          ", batch.src[0].tolist())
print("decoder reads   ", batch.tgt[0].tolist())
print("decoder must say", batch.tgt_y[0].tolist())

# %% [markdown]
# Two rows come out of one target. The decoder reads it without its last symbol, and must say it without its
# first: at each place, the symbol that comes **next**. That is one shift, and further down we see what
# becomes of a model that was trained without it.
#
# **Teacher forcing** is the name for the middle row. Whatever the decoder would have said at the third
# place, at the fourth it reads what it *should* have said. So all nine questions can be asked at once, in
# one pass.
#
# A first guess: then it can read the answer to one question in the text of the next one. It could, but for
# the causal mask. Section 3.1 claims that the prediction for a position depends only on the outputs before
# it. We change the symbol at place 5, counted from 0, and look at which states notice:

# %%
torch.manual_seed(0)
model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4)
changed = batch.tgt.clone()
changed[:, 5] = changed[:, 5] % (V - 1) + 1  # another symbol, never padding
with evaluating(model):
    before, after = (
        model(batch.src, tgt, batch.src_mask, batch.tgt_mask) for tgt in (batch.tgt, changed)
    )  # (128, 9, 32) each
moved = [not torch.allclose(before[:, t], after[:, t], atol=1e-5) for t in range(LENGTH - 1)]
print("state changed:", ["yes" if m else "no" for m in moved])
assert moved == [t >= 5 for t in range(LENGTH - 1)]

# %% [markdown]
# The five before it do not. State 5 does, and may: it *reads* the symbol at place 5, and is asked for the
# one at place 6.
#
# ## One update
#
# The model has two layers a side, of width 32: the paper's has six, of width 512 (Table 3). First the
# question and its price. The model gives states, the generator turns each into log-probabilities of all
# symbols, the criterion compares them with the right ones. (Ours is label smoothing; further down we ask it
# what it wants.)

# %%
criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.1)
states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, 9, d_model)
log_probs = model.generator(states)  # (B, 9, V)
loss = criterion(log_probs.flatten(0, 1), batch.tgt_y.flatten())  # one number, summed over B * 9 rows
for name, value in {"states": states, "log_probs": log_probs, "loss": loss}.items():
    print(f"{name:10} {tuple(value.shape)}")
assert log_probs.shape == (128, LENGTH - 1, V)
assert batch.ntokens == 128 * (LENGTH - 1)

# %% [markdown]
# Then the step. Section 5.3 gives Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$, and a
# rate that rises for `warmup` updates and then falls as one over the square root of their number
# (equation 3), all of it times a `factor`. The scheduler holds the whole rate, so Adam's own must be 1. The
# paper warms up for 4,000 updates; our whole run is shorter than that, and 100 will do.

# %%
SETTINGS = {"model_size": 32, "factor": 0.3, "warmup": 100}


def new_run(seed):
    """A fresh model with its optimizer and its schedule."""
    torch.manual_seed(seed)
    model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    return model, optimizer, noam_scheduler(optimizer, **SETTINGS)


# %% [markdown]
# Now the loop, whole. Seven lines in it do the work. (*Dropout*, which the first line switches on, sets a
# tenth of the numbers inside to 0, others each time; [08_training_recipe](08_training_recipe.ipynb) has it.)


# %%
def train(model, batches, criterion, optimizer, scheduler):
    """One update for each batch."""
    model.train()  # dropout on
    for batch in batches:
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        log_probs = model.generator(states)
        loss = criterion(log_probs.flatten(0, 1), batch.tgt_y.flatten())
        (loss / batch.ntokens).backward()  # gradients of the mean, added to those that are there
        optimizer.step()  # move the weights
        optimizer.zero_grad()  # or the next gradients come on top of these
        scheduler.step()  # the next update's rate


batches = list(data_gen(V, 128, 20))
ours, optimizer, scheduler = new_run(seed=1)
train(ours, batches, criterion, optimizer, scheduler)
assert scheduler.get_last_lr() == [rate(21, **SETTINGS)]
print("after 20 updates the scheduler holds the rate of update 21: True")

# %% [markdown]
# Two questions that readers have about these lines.
#
# *Why divide by `ntokens`, and not by the number of sentences?* Because `ntokens` is how many questions
# were asked. Divided by sentences, a batch of long ones would push harder than a batch of short ones, for
# no other reason than length.
#
# *Why `zero_grad`?* `backward` adds. Call it twice and the gradient is twice as large. Forgotten, it is a
# bug; on purpose, it is the way to a batch that does not fit into memory (first exercise).
#
# The package has the same loop under the names that readers know. `SimpleLossCompute` is generator,
# criterion and division in one; `run_epoch` goes through the batches and returns the mean loss.

# %%
show_source(SimpleLossCompute, run_epoch, docstring=False)

# %% [markdown]
# Same start, same batches, same dropout: are they the same weights?

# %%
theirs, optimizer, scheduler = new_run(seed=1)
loss_compute = SimpleLossCompute(theirs.generator, criterion)
mean_loss, state = run_epoch(batches, theirs, loss_compute, optimizer, scheduler, mode="train")
pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
same = all(torch.equal(a, b) for a, b in pairs)
print("every weight the same, to the last bit:", same)
assert same

# %% [markdown]
# ### What is counted in tokens per second
#
# `state.tokens` is what a progress bar divides by seconds. But which tokens? Here are two rows of different
# length, padded to one; three people could count three things.

# %%
padded = torch.tensor([[1, 4, 8, 3, 6, 2, 9, 5], [1, 7, 2, 0, 0, 0, 0, 0]])
small = Batch(padded, padded, pad=0)
print("cells of source and target tensors  ", small.src.numel() + small.tgt.numel())
print("symbols read, source and target     ", int((small.src != 0).sum() + (small.tgt != 0).sum()))
print("symbols predicted: ntokens          ", small.ntokens)
assert small.ntokens == 7 + 2  # a row of n symbols asks n - 1 questions
assert small.src.numel() + small.tgt.numel() > 3 * small.ntokens
assert state.tokens == sum(batch.ntokens for batch in batches)

# %% [markdown]
# We count the last: target symbols that are predicted, padding left out. It is the number that the loss is
# divided by, and padding does not raise it, as it does the first. For these two rows, someone who counts
# cells reports a speed more than three times ours, on the same machine, with the same code.
#
# **Exercise 1.** Your memory holds half a batch. Make the *same* update from two halves, one of which has
# fewer symbols than the other. By what do you divide? Check it against `run_epoch(..., accum_iter=2)`.
# (Dropout draws other numbers for other shapes; switch it off with `dropout=0.0`.)


# %% tags=["solution"]
def still_run():
    torch.manual_seed(2)
    model = make_model(V, V, N=1, d_model=32, d_ff=64, h=4, dropout=0.0)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


halves = [small, Batch(padded[:, :3], padded[:, :3], pad=0)]
both = sum(half.ntokens for half in halves)
by_hand, optimizer = still_run()
for half in halves:
    states = by_hand(half.src, half.tgt, half.src_mask, half.tgt_mask)
    loss = criterion(by_hand.generator(states).flatten(0, 1), half.tgt_y.flatten())
    (loss / both).backward()  # the second adds to the first: together, the mean over the tokens of both
optimizer.step()

by_package, optimizer = still_run()
_, state = run_epoch(
    halves, by_package, SimpleLossCompute(by_package.generator, criterion), optimizer, accum_iter=2
)
for a, b in zip(by_hand.parameters(), by_package.parameters(), strict=True):
    torch.testing.assert_close(a, b)
print("batches, updates:", (state.step, state.accum_step), "- same weights: True")

# %% [markdown]
# ## Validation: two switches, not one
#
# We put 200 rows aside, and never train on them.

# %%
torch.manual_seed(100)
held_out = next(data_gen(V, batch_size=200, nbatches=1))


def validation_loss(model):
    """Mean loss on the rows held out, with whatever switches are set."""
    states = model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask)
    log_probs = model.generator(states)
    return criterion(log_probs.flatten(0, 1), held_out.tgt_y.flatten()) / held_out.ntokens


# %% [markdown]
# `model.eval()` and `torch.no_grad()` are often taken for two halves of one thing. They know nothing of
# each other. We try all four combinations and ask two questions: does the same model on the same rows give
# the same loss twice? And how much memory stays occupied, for a `backward` that never comes? To count it,
# we catch every tensor that autograd puts aside.


# %%
def kept_for_backward(compute):
    """Bytes that autograd keeps because of `compute()`, the model's own weights not counted."""
    weights = {p.untyped_storage().data_ptr() for p in ours.parameters()}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor  # the same tensor twice is kept once
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = compute()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()), result


# %%
found = {}
for training in (True, False):
    for gradients in (True, False):
        ours.train(training)
        with torch.set_grad_enabled(gradients):
            kept, first = kept_for_backward(lambda: validation_loss(ours))
            same = bool(first == validation_loss(ours))
        found[training, gradients] = (same, kept > 1e6)
        switches = f"{'train()' if training else 'eval() '} {'gradients' if gradients else 'no_grad  '}"
        print(f"{switches}   same loss twice: {same!s:5}   keeps more than 1 MB: {kept > 1e6}")
print(f"the model's own weights: {sum(p.nbytes for p in ours.parameters()) / 1e6:.1f} MB")
assert found[False, False] == (True, False)
assert found[False, True] == (True, True)  # eval() saves no memory
assert found[True, False] == (False, False)  # no_grad leaves dropout on

# %% [markdown]
# So `eval()` alone keeps megabytes for a model whose weights take a fifth of one, and `no_grad` alone
# measures with dropout on. Both are needed.
#
# There is another way to lose the memory, and it is the one that ends long runs: to add up losses that
# still hang on their graphs. Each `total += loss` keeps one more forward pass alive. `.item()` cuts it off.

# %%
ours.eval()
one, _ = kept_for_backward(lambda: validation_loss(ours))
for n in (1, 2, 4):
    summed, total = kept_for_backward(lambda n=n: sum(validation_loss(ours) for _ in range(n)))
    print(f"{n} losses added: {summed / one:.1f} times the memory of one")
    assert abs(summed / one - n) < 0.1
assert total.grad_fn is not None

# %% [markdown]
# One more thing, that few expect: validation with dropout left on changes the *training* that follows.
# Dropout and `data_gen` draw from the same stream of random numbers. Whoever draws in between shifts
# everything after.

# %%
ours_loss = SimpleLossCompute(ours.generator, criterion)
before = torch.get_rng_state()
ours.train()
run_epoch([held_out], ours, ours_loss, mode="eval")
assert torch.equal(before, torch.get_rng_state())
assert ours.training  # and the model is handed back in the mode in which it came
validation_loss(ours)
print("run_epoch's 'eval' leaves the stream alone: True")
print("with dropout on, the next batch is another one:", not torch.equal(before, torch.get_rng_state()))

# %% [markdown]
# ## Decoding: nobody knows the answer any more
#
# In training the decoder read the right symbols. In use there are none. It gets the start symbol and says
# the likeliest next one; that is put behind, and it reads both; and so on. It is fed **its own words**.
# Written out, for a batch of rows:


# %%
def decode(model, src, src_mask, max_len, causal):
    """Greedy decoding, in the plainest way: the whole row again for each symbol."""
    with evaluating(model):  # eval() and no_grad in one, and the model's mode put back
        memory = model.encode(src, src_mask)  # once: the source does not change
        said = torch.full((len(src), 1), 1)  # (B, 1), the start symbol
        for length in range(1, max_len):
            mask = subsequent_mask(length) if causal else None
            states = model.decode(memory, src_mask, said, mask)  # (B, length, d_model)
            log_probs = model.generator(states[:, -1])  # (B, V), of the last place alone
            said = torch.cat([said, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    return said, states


# %% [markdown]
# Does it need the causal mask? A first guess: no. What would come later has not been said yet; at the last
# place, the only one that we read off, there is nothing to hide. Without a mask, then:

# %%
theirs_said = greedy_decode(ours, held_out.src, held_out.src_mask, max_len=LENGTH, start_symbol=1)
masked_said, masked_states = decode(ours, held_out.src, held_out.src_mask, LENGTH, causal=True)
_, bare_states = decode(ours, held_out.src, held_out.src_mask, LENGTH, causal=False)
gap = (masked_states - bare_states)[:, -1].abs().max().item()
shallow = make_model(V, V, N=1, d_model=32, d_ff=64, h=4)
few = held_out.src[:10]
one_layer = [decode(shallow, few, None, LENGTH, causal)[1][:, -1] for causal in (True, False)]
print("with the mask, the same rows as greedy_decode:", torch.equal(masked_said, theirs_said))
print("without it, the state of the last place moves:", gap > 0.01)
assert torch.equal(masked_said, theirs_said)
assert gap > 0.01
torch.testing.assert_close(*one_layer, atol=1e-4, rtol=0)  # with one layer it makes no difference

# %% [markdown]
# The guess was wrong, and it is wrong from the second layer on. The last place hides nothing from itself.
# But the places before it now look ahead, so *their* states are no longer those that training made, and the
# last place reads them. With one layer nothing changes, as the last line checks; that is how this mistake
# survives its tests. `greedy_decode` never meets the question: it keeps the keys and values of earlier
# places as they were when they were last, and computes one place a step.
#
# ## The run
#
# Every 25 updates we measure two accuracies on the rows held out. They sound alike. *Tokens right* is
# teacher-forced: the model reads the truth and is asked for the next symbol. *Sequences right* is the model
# on its own: it starts from `1`, and all that it says must be right.


# %%
def measure(model):
    """The two accuracies and the loss on the rows held out, and two counts that we need later."""
    with evaluating(model):
        states = model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask)
        forced = model.generator(states).argmax(dim=-1)  # (200, 9), each after the true beginning
        loss = validation_loss(model).item()
    free = greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)[:, 1:]  # (200, 9)
    return {
        "validation_loss": loss,
        "token_accuracy": (forced == held_out.tgt_y).float().mean().item(),
        "tokens_alone": (free == held_out.tgt_y).float().mean().item(),
        "exact_match": (free == held_out.tgt_y).all(dim=1).float().mean().item(),
        "forced_whole_rows": (forced == held_out.tgt_y).all(dim=1).float().mean().item(),
    }


# %% [markdown]
# Beside it we keep the cross-attention of one row, which holds every symbol once, so that no two columns of
# a map have the same name. Every 25 updates, before the first one too:

# %%
example = torch.tensor([[1, 7, 3, 10, 5, 2, 9, 4, 8, 6]])


def cross_attention(model, row=example):
    """One tensor (layers, h, queries, keys): where the decoder looks in the source."""
    with evaluating(model), capture_attention(model) as maps:
        pair = Batch(row, row, pad=0)
        model(pair.src, pair.tgt, pair.src_mask, pair.tgt_mask)
    return torch.stack([maps["cross", layer][0] for layer in range(len(model.decoder.layers))])


# %% [markdown]
# Seven hundred updates of 128 rows each. This is the longest cell: about twenty seconds.

# %% tags=["nbval-ignore-output"]
UPDATES, EVERY = 700, 25
model, optimizer, scheduler = new_run(seed=0)
loss_compute = SimpleLossCompute(model.generator, criterion)
records, maps, seen, state = [], {0: cross_attention(model)}, set(), TrainState()
began = time.perf_counter()
for step in range(EVERY, UPDATES + 1, EVERY):
    batches = list(data_gen(V, 128, EVERY))
    seen |= {tuple(row) for batch in batches for row in batch.src.tolist()}
    loss, state = run_epoch(batches, model, loss_compute, optimizer, scheduler, train_state=state)
    records.append({"step": step, "loss": loss, "rate": rate(step, **SETTINGS), **measure(model)})
    maps[step] = cross_attention(model)
    if step % 100 == 0:
        print(f"update {step}: loss {loss:.2f}")
    if step == 200:
        early = copy.deepcopy(model)
seconds = time.perf_counter() - began
print(f"{state.tokens:,} tokens predicted, {state.tokens / seconds:,.0f} a second")
print(f"sequences right: {records[-1]['exact_match']:.1%}")

# %%
copied = greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
print("asked: ", held_out.src[0].tolist())
print("copied:", copied[0].tolist())
unseen = not any(tuple(row) in seen for row in held_out.src.tolist())
print("none of the 200 rows was in the training data:", unseen)
print("every symbol right:", torch.equal(copied, held_out.src))
assert unseen
assert torch.equal(copied, held_out.src)
assert state.step == UPDATES
assert state.tokens == UPDATES * 128 * (LENGTH - 1)

# %% [markdown]
# The model has read 89,600 rows of the billion that there are ($10^9$: nine free places with ten
# symbols each). What it has learned is not a list.
#
# ## Why the loss stops where it stops
#
# A first guess: a model that copies without a mistake and is sure of it has loss 0. We ask the criterion.
# Four predictions for the symbol `4`: no idea at all; sure; all but certain; and the smoothed target itself,
# 0.9 on the right symbol and $0.1/9$ on each other (section 5.4).

# %%
target = torch.tensor([4])
right = F.one_hot(target, V).bool()
others = ~right & (torch.arange(V) != 0)  # all other symbols, padding left out
beliefs = {"no idea": 0.1, "sure": 0.99, "all but certain": 1 - 1e-8, "as the target asks": 0.9}
for name, sure in beliefs.items():
    probabilities = torch.zeros(1, V, dtype=torch.float64)
    probabilities[right], probabilities[others] = sure, (1 - sure) / 9
    divergence = criterion(probabilities.clamp(min=1e-30).log(), target)
    print(f"{name:20} {divergence:.2f}")
assert divergence < 1e-9

# %% [markdown]
# Being all but certain costs almost as much as ignorance, and full certainty would cost infinitely much. That
# is what label smoothing is for: it punishes a model for being surer than 90%, slowly and without limit.
#
# Zero it is, for the last. So why do people see their loss stop at a half, or, with thousands of subwords,
# above 1? Because there are two ways to keep the account. `LabelSmoothing` gives the divergence from the
# target. Most code reports the cross-entropy, which is that plus the target's own entropy (in *nats*, as the
# logarithm is the natural one):
# $-0.9\ln 0.9 - 0.1\ln\frac{0.1}{9}$. It does not depend on the model. It moves no gradient. It is a floor.

# %%
floor = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 9)
with evaluating(model):
    states = model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask)
    log_probs = model.generator(states).flatten(0, 1)  # (1800, V)
    divergence = criterion(log_probs, held_out.tgt_y.flatten()) / held_out.ntokens
cross_entropy = -(criterion.true_dist * log_probs).sum() / held_out.ntokens
plain = F.nll_loss(log_probs, held_out.tgt_y.flatten())
torch.testing.assert_close(cross_entropy - divergence, torch.tensor(floor), atol=1e-4, rtol=0)
print(f"floor of the cross-entropy: {floor:.3f}")
print(f"with 8,000 subwords it would be {-0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 7998):.2f}")
print("trained model less than 0.02 above it:", bool(cross_entropy < floor + 0.02))
sure = log_probs.exp().amax(dim=-1).median().item()
print("its usual certainty, between 0.87 and 0.93:", 0.87 < sure < 0.93)
print("loss without smoothing, near -ln 0.9 = 0.105:", 0.07 < plain.item() < 0.15)
assert 0.87 < sure < 0.93
assert 0.07 < plain < 0.15
assert 0 < divergence < 0.02

# %%
ax = plot_loss(V, [0.0, 0.1])
smoothed = next(line for line in ax.get_lines() if line.get_label() == "smoothing 0.1")
assert abs(min(smoothed.get_ydata()) - floor) < 1e-6
plt.show()

# %% [markdown]
# The curve has its lowest point at 0.9, where the floor is. And the last line printed above it answers a
# question that real runs raise. The validation loss without smoothing, whose exponential is the
# *perplexity*, settles near 0.105 for a model that makes no mistake. That is no floor: more confidence would
# lower it, all the way to 0. Section 5.4 says as much: smoothing hurts perplexity, while accuracy and BLEU
# (the score of translations, [10_translation](10_translation.ipynb)) gain.
#
# Here is the run, kept as cross-entropy, with its floor.

# %%
kept = [{**r, "loss": r["loss"] + floor, "validation_loss": r["validation_loss"] + floor} for r in records]
losses, rates = plot_learning_curves(kept, floor=floor, title="Loss: a perfect copier still pays 0.545")
trained, validated = (line.get_ydata() for line in losses.get_lines()[:2])
assert min(trained) > floor
assert min(validated) > floor
assert max(rates.get_lines()[0].get_ydata()) == rate(100, **SETTINGS)  # the peak is at the end of the warm-up
assert sum(t > v for t, v in zip(trained[4:], validated[4:], strict=True)) >= 0.9 * len(trained[4:])
plt.show()

# %% [markdown]
# The training loss lies *above* the validation loss, which looks like a mistake: the model is better on
# rows that it has never seen? It is not the rows, it is the model. In training a tenth of its numbers is
# knocked out. (Early on there is a second reason: each point is the mean over 25 updates, most of them by a
# worse model.) The same rows, the same weights, dropout on and off:

# %%
model.train()
torch.manual_seed(0)
with torch.no_grad():
    handicapped = sum(validation_loss(model).item() for _ in range(10)) / 10
print("with dropout on, at least twice the divergence:", handicapped > 2 * divergence.item())
assert handicapped > 2 * divergence.item()

# %% [markdown]
# ## 98% of what?
#
# Back to the two accuracies. After 200 updates the model was far from done. What did it say?

# %% tags=["nbval-ignore-output"]
said = greedy_decode(early, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
for row, wanted in list(zip(said.tolist(), held_out.src.tolist(), strict=True))[:6]:
    shown = " ".join(
        f"{symbol:>3}" if symbol == right else f"[{symbol}]".rjust(4)
        for symbol, right in zip(row, wanted, strict=True)
    )
    print(shown, "  right" if row == wanted else "")
scores = measure(early)
print(f"tokens right {scores['token_accuracy']:.0%}, sequences right {scores['exact_match']:.0%}")

# %%
assert scores["token_accuracy"] > scores["exact_match"] + 0.05
ax = plot_accuracies(records, length=LENGTH - 1)
tokens_right, rows_right, expected = (line.get_ydata() for line in ax.get_lines())
off = max(abs(rows_right - expected))
print("sequences right within 15 points of (tokens right) to the power 9:", off < 15)
assert off < 15
plt.show()

# %% [markdown]
# A row is right only if nine symbols are. Mistakes that fall independently leave $p^9$ of the rows, the
# dotted line, and the run follows it. The rule has no mercy on longer sentences:

# %%
for length in (9, 30, 100):
    print(f"98% of tokens right, {length:3} in a sentence: {0.98**length:.0%} of sentences faultless")

# %% [markdown]
# It is often said that teacher forcing hides this: in training the model reads only truth, alone it would
# stumble over its own mistakes. For *whole rows right* that is impossible. If the teacher-forced model gets
# every symbol of a row right, then alone it says the first one right, so it reads the truth, so it says the
# second one right, and so on. The two counts are the same number, at every moment of the run:

# %%
same = [record["exact_match"] == record["forced_whole_rows"] for record in records]
print(f"whole rows right, teacher-forced and alone: equal {sum(same)} times of {len(same)}")
assert all(same)

# %% [markdown]
# What teacher forcing does hide is what happens *after* the first mistake. To copy, it would be enough to
# count places, and a mistake would stay alone. Look at the rows above: mistakes come in runs. The
# half-trained model does not only count, it seems; it also finds its place by what it has just read, and now
# it reads its own mistake.

# %%
alone, forced = scores["tokens_alone"], scores["token_accuracy"]
print("half-trained, fewer tokens right alone than teacher-forced:", alone < forced - 0.01)
assert alone < forced - 0.01
slips = said != held_out.src  # (200, 10), by the half-trained model alone
again = slips[:, 1:][slips[:, :-1]].float().mean()  # of the symbols that follow a mistake
print("of all symbols under 10% are wrong, of those after a mistake over 40%:", bool(again > 0.4))
assert slips.float().mean() < 0.1 < 0.4 < again
assert records[-1]["tokens_alone"] == 1.0  # fully trained, it makes none that could spread

# %% [markdown]
# So 98% can mean half of the sentences, and mistakes that breed. But nonsense from the first word to the
# last? That has another cause.
#
# ## The cheat
#
# We make the commonest mistake of all on purpose: no shift. The decoder reads the row and is asked for the
# row. The causal mask is in place, the loss, the schedule, everything else is as before.


# %%
def unshifted(batches):
    """The same batches, with the decoder reading the very symbol that it must say."""
    for batch in batches:
        batch.tgt = batch.tgt_y = batch.src
        batch.tgt_mask = Batch.make_std_mask(batch.tgt, pad=0)
        batch.ntokens = batch.tgt_y.numel()
        yield batch


# %% tags=["nbval-ignore-output"]
cheat, optimizer, scheduler = new_run(seed=0)
cheat_loss = SimpleLossCompute(cheat.generator, criterion)
print("update   loss of the cheat   loss of the honest model (cross-entropy; the floor is 0.545)")
for record in records[:4]:
    loss, _ = run_epoch(unshifted(data_gen(V, 128, EVERY)), cheat, cheat_loss, optimizer, scheduler)
    print(f"{record['step']:6} {loss + floor:12.2f} {record['loss'] + floor:20.2f}")

# %%
assert loss < 0.1 < 0.5 < records[3]["loss"]
leaky = next(unshifted([Batch(held_out.src, held_out.src, pad=0)]))
with evaluating(cheat):
    states = cheat(leaky.src, leaky.tgt, leaky.src_mask, leaky.tgt_mask)
    answers = cheat.generator(states).argmax(dim=-1)
print("every token right, teacher-forced:", torch.equal(answers, leaky.tgt_y))
said = greedy_decode(cheat, leaky.src, leaky.src_mask, LENGTH, start_symbol=1)
print("asked:", leaky.src[0].tolist())
print("said: ", said[0].tolist())
assert torch.equal(answers, leaky.tgt_y)
assert (said == 1).all()

# %% [markdown]
# After 100 updates the cheat is at the floor, and the honest model has hardly begun. All tokens right. And
# alone it says `1 1 1 1`: it has learned to say what it reads, it reads the start symbol, so it says the
# start symbol, which it then reads. A loss that falls much too soon is the sign.
#
# There is a test that finds every leak of this kind, and needs no decoding. Give each row the source of
# *another* row. A model that still knows the answers has them from somewhere else.


# %%
def accuracy(model, batch, src):
    """Share of tokens right, teacher-forced, with `src` for a source."""
    with evaluating(model):
        states = model(src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return (model.generator(states).argmax(dim=-1) == batch.tgt_y).float().mean().item()


exchanged = held_out.src.roll(1, dims=0)  # each row gets its neighbour's source
cheated = accuracy(cheat, leaky, exchanged)
honest = accuracy(model, held_out, exchanged)
print(f"the cheat, with another row's source: {cheated:.0%}")
print("the honest model, under 20%:", honest < 0.2)
assert cheated == 1.0
assert honest < 0.2  # chance is one in ten

# %% [markdown]
# ## Where it looks
#
# The decoder got every symbol out of the source. Where did it look? Section 3.2.3 says that in
# cross-attention the queries come from the decoder, keys and values from the encoder. So a map has a row
# for each symbol that the decoder *reads*, and a column for each symbol of the source. Everybody's guess:
# to copy is to look at oneself, so the row of `7` has its weight on the column of `7`, and the map is a
# diagonal from corner to corner. We measure it, for every layer and head: the mean weight on that diagonal,
# and on the one beside it.

# %%
last = maps[UPDATES]  # (layers, h, queries, keys)
own, following = (last.diagonal(k, dim1=-2, dim2=-1).mean(dim=-1) for k in (0, 1))  # (layers, h) each
layer, head = divmod(following.argmax().item(), last.size(1))
print("heads with more than a third of their weight on their own symbol:", int((own > 1 / 3).sum()))
print("all heads together, more than twice as much on the next:", bool(following.mean() > 2 * own.mean()))
assert following.mean() > 2 * own.mean()
print("and one has more than 0.8 there:", bool(following[layer, head] > 0.8))
assert following[layer, head] > 0.8
assert own[layer, head] < 0.2

# %%
symbols = [str(symbol) for symbol in example[0].tolist()]
asks = [f"{read} → {said}" for read, said in pairwise(symbols)]
title = f"Layer {layer + 1}, head {head + 1}: one column to the right"
ax = plot_attention(last[layer, head], asks, symbols, title=title)
ax.set(xlabel="key: symbol of the source", ylabel="query: reads → must say")
drawn = torch.tensor(ax.images[0].get_array())
assert drawn.argmax(dim=-1).tolist() == list(range(1, LENGTH))  # in each row, the symbol that it must say
plt.show()

# %% [markdown]
# It is one off. The decoder that reads `7` has no use for `7`. It must say what comes next, and looks
# there. The picture of a target shifted by one *is* a diagonal shifted by one.
#
# It was not there from the start. Here is the same head during the run. At update 75 its rows are still
# nearly alike: where a query looks hardly depends on the place at which it stands. Then the diagonal comes,
# coarse first, for all heads together: early rows look to the front, late rows to the back, long before each
# finds its own place.

# %%
chosen = {step: maps[step][layer, head] for step in (0, 75, 125, 175, 250, 700)}
axes = plot_growth(
    chosen, symbols[:-1], symbols, title=f"Layer {layer + 1}, head {head + 1} finds the diagonal"
)
weights_on_it = [torch.tensor(ax.images[0].get_array()).diagonal(1).mean().item() for ax in axes]
looks_at = {step: (maps[step] * torch.arange(LENGTH)).sum(dim=-1).mean(dim=(0, 1)) for step in (75, 125)}
# How many places further on the last three rows look than the first three; 6 where the diagonal is perfect.
further = {step: (mean[-3:].mean() - mean[:3].mean()).item() for step, mean in looks_at.items()}
print("update  75, the last rows look less than a place further on than the first:", abs(further[75]) < 1)
print("update 125, they look more than a place further on:", further[125] > 1)
assert abs(further[75]) < 1 < further[125]
assert maps[125].diagonal(1, dim1=-2, dim2=-1).mean() < 0.5
assert weights_on_it[0] < 0.2
assert weights_on_it[-1] > 0.8
plt.show()

# %% [markdown]
# And all heads, with a slider over the updates. Move it slowly through the first 300: the loss falls when
# the diagonal appears.

# %%
explore_growth(maps, symbols[:-1], symbols)

# %%
on_it = torch.tensor([maps[r["step"]].diagonal(1, dim1=-2, dim2=-1).mean() for r in records])
costs = torch.tensor([r["validation_loss"] for r in records])
together = torch.corrcoef(torch.stack([on_it, costs]))[0, 1]
print("the more weight on the diagonal, the less loss, correlation below -0.8:", bool(together < -0.8))
assert together < -0.8

# %% [markdown]
# Does the model *need* that diagonal, or does it only show it? A map alone cannot tell. But a mask is a
# boolean tensor, and nothing stops us from giving cross-attention one with a row for each query. We let
# every query see one single symbol, the next one. Then all others but that one.


# %%
def accuracy_seeing(visible):
    """Share of tokens right when cross-attention sees only `visible` (queries, keys)."""
    with evaluating(model):
        memory = model.encode(held_out.src, held_out.src_mask)  # the encoder sees everything, as before
        states = model.decode(memory, visible.unsqueeze(0), held_out.tgt, held_out.tgt_mask)
        return (model.generator(states).argmax(dim=-1) == held_out.tgt_y).float().mean().item()


next_one = torch.ones(LENGTH - 1, LENGTH, dtype=torch.bool).triu(1).tril(1)
itself = torch.ones(LENGTH - 1, LENGTH, dtype=torch.bool).triu(0).tril(0)
print("sees the next symbol alone, over 98% right:", accuracy_seeing(next_one) > 0.98)
print("sees all but itself, over 98% right:       ", accuracy_seeing(~itself) > 0.98)
print("sees all but the next, under 25% right:    ", accuracy_seeing(~next_one) < 0.25)
assert accuracy_seeing(next_one) > 0.98
assert accuracy_seeing(~itself) > 0.98
assert accuracy_seeing(~next_one) < 0.25

# %% [markdown]
# With one cell of ten in each row it copies as before. With the other nine it guesses: one in ten. The
# diagonal is enough, and nothing else will do. It also tells us something that no map shows: the encoder,
# which could have moved symbols to other places, has left each where it was.
#
# **Exercise 2.** Section 3.5 hopes that sine waves "may" let a model go on to rows longer than those it was
# trained on. Ours was trained on rows of 10 and is perfect. Guess how many of 200 rows of 14 symbols it
# copies, then count. Which places go wrong?

# %% tags=["solution"]
torch.manual_seed(3)
longer = next(data_gen(V, 200, 1, length=14))
said = greedy_decode(model, longer.src, longer.src_mask, 14, start_symbol=1)
by_place = (said == longer.src).float().mean(dim=0)  # (14,)
print("rows copied without a mistake, under 10%:", bool((said == longer.src).all(dim=1).float().mean() < 0.1))
print("places 12 to 14, under half right:", bool((by_place[11:] < 0.5).all()))
assert (said == longer.src).all(dim=1).float().mean() < 0.1
assert (by_place[11:] < 0.5).all()

# %% [markdown]
# **Exercise 3.** Train a model to say the row *backwards*: after the start symbol the last symbol, then the
# one before it. Draw its map on paper first: which column does the first row look at? Then train for 300
# updates and look.


# %% tags=["solution"]
def backwards(batches):
    for batch in batches:
        yield Batch(batch.src, torch.cat([batch.src[:, :1], batch.src[:, 1:].flip(1)], dim=1), pad=0)


mirror, optimizer, scheduler = new_run(seed=0)
mirror_loss = SimpleLossCompute(mirror.generator, criterion)
run_epoch(backwards(data_gen(V, 128, 300)), mirror, mirror_loss, optimizer, scheduler)
pair = next(backwards([Batch(example, example, pad=0)]))
with evaluating(mirror), capture_attention(mirror) as found:
    mirror(pair.src, pair.tgt, pair.src_mask, pair.tgt_mask)
found = torch.stack([found["cross", 0][0], found["cross", 1][0]])  # (layers, h, 9, 10)
anti = found.flip(-1).diagonal(0, dim1=-2, dim2=-1).mean(dim=-1)  # row 0 on the last column
print("a head with more than half of its weight on the other diagonal:", bool(anti.max() > 0.5))
assert anti.max() > 0.5

# %% tags=["solution"]
layer, head = divmod(anti.argmax().item(), found.size(1))
says = [f"{read} → {said}" for read, said in zip(pair.tgt[0].tolist(), pair.tgt_y[0].tolist(), strict=True)]
ax = plot_attention(found[layer, head], says, symbols, title="The model that says it backwards")
ax.set(xlabel="key: symbol of the source", ylabel="query: reads → must say")
assert torch.tensor(ax.images[0].get_array())[0].argmax() == LENGTH - 1
plt.show()

# %% [markdown]
# The loop, the loss, the schedule and the decoding stay as they are for a real language. What changes is
# what is fed: sentences of different length, in subwords, in batches that waste little. That is
# [10_translation](10_translation.ipynb).
