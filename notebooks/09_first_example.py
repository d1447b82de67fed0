# %% [markdown]
# # 09 · A first example: learning to copy
#
# **We write the training loop line by line, watch a small Transformer learn to copy its input, find out what
# its accuracy hides, and catch another model cheating.**
#
# Previous: [08_training_recipe](08_training_recipe.ipynb) · Next: [10_translation](10_translation.ipynb)
#
# *25 minutes to read, under a minute to run.*
#
# - **Before:** you know gradients in PyTorch, and attention with its masks ([02](02_attention.ipynb)).
# - **After:** you know each line of a training loop; what the decoder reads in training and in use; why a
#   model with 92% of its tokens right has half of its rows wrong; and why a loss does not reach 0.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017); this is its section 5, on a toy task. A
# number after `≈` may differ a little on another processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import copy
import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch

from annotated import (
    Batch,
    CpuKernels,
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
from annotated.plots import plot_learning_curves, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## Ten symbols in, the same ten out
#
# The task is to repeat a row of ten symbols, each from `1` to `10`. The first is always `1`, the start
# symbol; `0` is padding. The symbols are random, so those before say nothing about the next one: the
# decoder can get it only from the source, through encoder-decoder attention. If a mask, a target, the loop
# or the decoding is wrong, we see it within a minute.

# %% tags=["figure-shift"]
V, LENGTH = 11, 10  # symbols, padding among them; symbols in a row
_ = torch.manual_seed(0)
batch = next(data_gen(V, batch_size=128, nbatches=1))
rows = {"source": batch.src[0], "decoder reads": batch.tgt[0], "decoder must say": batch.tgt_y[0]}
fig, ax = plt.subplots(figsize=(9, 2.6))
for y, (name, row) in enumerate(rows.items()):
    ax.text(-0.8, -y, name, ha="right", va="center", fontsize=13)
    for x, symbol in enumerate(row.tolist()):
        box = {"boxstyle": "square,pad=0.35", "fc": "#d5e8f7" if y else "#eeeeee", "ec": "grey"}
        ax.text(x, -y, f"{symbol:2}", ha="center", va="center", fontsize=13, family="monospace", bbox=box)
for x in range(LENGTH - 1):
    ax.annotate("", (x, -1.72), (x, -1.28), arrowprops={"arrowstyle": "->", "color": "C3"})
ax.set(xlim=(-3.2, LENGTH - 0.3), ylim=(-2.6, 0.6))
ax.set_axis_off()
plt.show()
assert torch.equal(batch.tgt[:, 1:], batch.tgt_y[:, :-1])  # one row, shifted by one

# %% [markdown]
# *Figure 1. One row of the batch. The target is used twice: the decoder reads it without its last symbol and
# must output it without its first. Each arrow is one question (a target position): after this symbol, which
# one comes next?*
#
# All nine questions are asked in one pass. Whatever the decoder answers at one position, at the next it
# reads the *right* symbol: **teacher forcing** ([07](07_batches_and_masks.ipynb)). So each answer but the
# last stands in the input, one position further on. What keeps the model from reading it there?
#
# > "This masking, combined with fact that the output embeddings are offset by one position, ensures that the
# > predictions for position i can depend only on the known outputs at positions less than i." (section 3.1)
#
# We test the sentence. We change the symbol at position 5, counted from 0, and look which of the decoder's
# output vectors change.

# %%
_ = torch.manual_seed(0)
model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4)
changed = batch.tgt.clone()
changed[:, 5] = changed[:, 5] % (V - 1) + 1  # another symbol, never padding
with evaluating(model):
    before, after = (
        model(batch.src, tgt, batch.src_mask, batch.tgt_mask) for tgt in (batch.tgt, changed)
    )  # (128, 9, 32) each
moved = [not torch.allclose(before[:, t], after[:, t], atol=1e-5) for t in range(LENGTH - 1)]
print("positions whose state changes:", [t for t, m in enumerate(moved) if m])
assert moved == [t >= 5 for t in range(LENGTH - 1)]

# %% [markdown]
# State 5 may change: there the decoder *reads* this symbol and must predict the next one.

# %% [markdown]
# ## One update
#
# > "We used the Adam optimizer [20] with β1 = 0.9, β2 = 0.98 and ϵ = 10⁻⁹. We varied the learning rate over
# > the course of training ..." (section 5.3)
#
# The learning rate rises linearly for `warmup` updates and then falls as one over the square root of the
# number of updates so far (equation 3), times a `factor`. The scheduler multiplies Adam's own learning
# rate, which must therefore be 1. The paper warms up for 4,000 updates; our whole run has 500, of which 100
# are warm-up. Our model has two layers of width 32 on each side, the paper's six of width 512.

# %%
criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.1)
SETTINGS = {"model_size": 32, "factor": 0.3, "warmup": 100}


def new_run(seed):
    """Make a fresh model with its optimizer and its schedule."""
    torch.manual_seed(seed)
    model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    return model, optimizer, noam_scheduler(optimizer, **SETTINGS)


def train(model, batches, criterion, optimizer, scheduler):
    """Yield the loss per token of each batch, after one update with it (a generator)."""
    model.train()  # dropout on
    for batch in batches:
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, 9, d_model)
        log_probs = model.generator(states).flatten(0, 1)  # (B * 9, V)
        loss = criterion(log_probs, batch.tgt_y.flatten()) / batch.ntokens
        loss.backward()  # adds its gradients to those that are there
        optimizer.step()  # moves the weights
        optimizer.zero_grad()  # empties the gradients
        scheduler.step()  # sets the next update's learning rate
        yield loss.item()  # a number, without the graph behind it


# %% [markdown]
# - **The criterion** compares log-probabilities with the right symbols and gives a divergence, at best 0
#   (more below). We divide its sum by `ntokens`, the number of questions, so that a batch of long rows
#   gets no larger gradient.
# - **`zero_grad`** is needed because `backward` *adds*: without it, each update also uses the gradients of
#   all batches before.
# - **`scheduler.step()`**: without it, the learning rate stays at that of update 1.
# - **`.item()`**: a loss kept as a tensor keeps what `backward` leaves of its graph in memory.
#
# What if we forget one of these lines? We train three models with the same seed:

# %%
forgotten = {}
for name in ("nothing", "zero_grad", "scheduler.step"):
    model, optimizer, scheduler = new_run(seed=0)
    if name == "zero_grad":
        optimizer.zero_grad = lambda: None
    if name == "scheduler.step":
        scheduler.step = lambda: None
    losses = [*train(model, data_gen(V, 64, 200), criterion, optimizer, scheduler)]
    forgotten[name] = sum(losses[-25:]) / 25
    print(f"forgotten: {name:15} loss after 200 updates ≈{forgotten[name]:.1f}")
blind = math.log(10) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 9)
print(f"the same loss of a blind guess among ten symbols: {blind:.1f}")
assert forgotten["nothing"] < blind - 0.8
assert min(forgotten["zero_grad"], forgotten["scheduler.step"]) > blind - 0.1

# %% [markdown]
# Neither mistake stops the program. After 200 updates neither model beats a blind guess.
#
# In the package, `SimpleLossCompute` is generator, criterion and division in one, and `run_epoch` goes
# through the batches. Do they give the same weights from the same start?

# %%
batches = list(data_gen(V, 128, 20))
ours, optimizer, scheduler = new_run(seed=1)
with CpuKernels():  # `run_epoch` uses these faster kernels, and only the same ones give the same bits
    _ = [*train(ours, batches, criterion, optimizer, scheduler)]

theirs, optimizer, scheduler = new_run(seed=1)
loss_compute = SimpleLossCompute(theirs.generator, criterion)
_ = run_epoch(batches, theirs, loss_compute, optimizer, scheduler, mode="train")
pairs = [*zip(ours.parameters(), theirs.parameters(), strict=True)]
differ = sum((a != b).sum().item() for a, b in pairs)
print(f"after 20 updates, {differ} of {sum(a.numel() for a, _ in pairs):,} weights differ")
assert differ == 0

# %% [markdown]
# **Exercise 1 (medium).** The batch that you want does not fit into memory. Get the *same* gradients from
# several smaller batches, which need not have the same number of tokens (*gradient accumulation*).


# %% tags=["exercise"]
def accumulate(model, criterion, parts):
    """Leave in the model the gradients of the mean loss over the tokens of all batches in `parts`."""
    raise NotImplementedError


# %% tags=["solution"]
# `backward` adds, so the parts add up by themselves. The divisor is what matters: the tokens of *all* parts.
# The mean of the parts' means would give a short part's tokens more weight. (`run_epoch` has `accum_iter`.)
def accumulate(model, criterion, parts):
    total = sum(part.ntokens for part in parts)
    for part in parts:
        states = model(part.src, part.tgt, part.src_mask, part.tgt_mask)
        loss = criterion(model.generator(states).flatten(0, 1), part.tgt_y.flatten())
        (loss / total).backward()


# %% tags=["exercise-test"]
smoothed = LabelSmoothing(size=11, padding_idx=0, smoothing=0.1)
still = make_model(11, 11, N=1, d_model=32, d_ff=64, h=4, dropout=0.0)
texts = torch.tensor([[1, 4, 8, 3, 6, 2, 9, 5], [1, 7, 2, 0, 0, 0, 0, 0]])
accumulate(still, smoothed, [Batch(texts, texts, pad=0)])
whole = [p.grad.clone() for p in still.parameters()]
still.zero_grad()
accumulate(still, smoothed, [Batch(texts[:1], texts[:1], pad=0), Batch(texts[1:, :3], texts[1:, :3], pad=0)])
gap = max((one - other.grad).abs().max().item() for one, other in zip(whole, still.parameters(), strict=True))
print(f"largest gradient ≈{max(one.abs().max() for one in whole):.1f}, in two parts different by ≈{gap:.0e}")
assert gap < 1e-5

# %% [markdown]
# ## Validation: two switches, not one
#
# We put 200 rows aside and never train on them. `model.eval()` switches dropout off; `torch.no_grad()` keeps
# autograd from saving tensors for a `backward` that never comes. We try all four combinations. Does the same
# model on the same rows give the same loss twice? How much memory stays occupied?

# %%
_ = torch.manual_seed(100)
held_out = next(data_gen(V, batch_size=200, nbatches=1))


def validation_loss(model):
    """Compute the mean loss on the rows held out, with whatever switches are set."""
    states = model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask)
    return criterion(model.generator(states).flatten(0, 1), held_out.tgt_y.flatten()) / held_out.ntokens


def kept_for_backward(compute):
    """Count the bytes that autograd saves during `compute()`, the model's own weights left out."""
    weights = {p.untyped_storage().data_ptr() for p in ours.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor  # the same memory twice is counted once
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = compute()
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights), result


# %%
found = {}
for training in (True, False):
    for gradients in (True, False):
        ours.train(training)
        with torch.set_grad_enabled(gradients):
            kept, first = kept_for_backward(lambda: validation_loss(ours))
            second = validation_loss(ours)
        found[training, gradients] = (bool(first == second), kept / 1e6)
        switches = f"{'train()' if training else 'eval() '} {'gradients' if gradients else 'no_grad  '}"
        print(f"{switches}   loss ≈{first:.4f}, again ≈{second:.4f}   kept: ≈{kept / 1e6:.1f} MB")
weights = sum(p.nbytes for p in ours.parameters()) / 1e6
print(f"the model's own weights: {weights:.1f} MB")
assert [same for same, _ in found.values()] == [False, False, True, True]
assert found[False, True][1] > 5 * weights  # eval() alone saves no memory
assert found[False, False][1] == found[True, False][1] == 0
with evaluating(ours):  # the package's name for both switches, which it puts back afterwards
    assert not kept_for_backward(lambda: validation_loss(ours))[0]

# %% [markdown]
# `eval()` alone keeps far more than the model's 0.2 MB; `no_grad` alone gives another loss each time.
# Validation needs both.

# %% [markdown]
# ## Decoding: nobody knows the answer any more
#
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional
# > input when generating the next." (section 3)
#
# In use there are no right symbols to read. The decoder reads the start symbol and predicts the most
# probable next one; this one is appended, and the decoder reads both; and so on. This is **greedy
# decoding**: the decoder reads *its own output*.
#
# Does this need the causal mask? It seems not, because later symbols do not exist yet, and the last position
# may see everything anyway. We leave the mask out, with one layer and with two.


# %%
def decode(model, src, src_mask, max_len):
    """Decode greedily in the plainest way: compute the whole row again for each symbol."""
    with evaluating(model):
        memory = model.encode(src, src_mask)  # once: the source does not change
        said = torch.full((len(src), 1), 1)  # (B, 1), the start symbol
        for length in range(1, max_len):
            states = model.decode(memory, src_mask, said, subsequent_mask(length))  # (B, length, d_model)
            log_probs = model.generator(states[:, -1])  # (B, V), of the last position alone
            said = torch.cat([said, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    return said


src, src_mask, begun = held_out.src, held_out.src_mask, held_out.tgt  # (200, 9): the same for all
for name, net in (("one layer", make_model(V, V, N=1, d_model=32, d_ff=64, h=4)), ("two layers", ours)):
    with evaluating(net):
        memory = net.encode(src, src_mask)
        states, bare = (
            net.decode(memory, src_mask, begun, mask)[:, -1] for mask in (subsequent_mask(LENGTH - 1), None)
        )
    gap = (states - bare).abs().max().item()
    print(f"{name:10} without the mask, the last state moves by at most ≈{gap:.4f}")
    assert gap > 0.01 if net is ours else gap < 1e-4
assert torch.equal(decode(ours, src, src_mask, LENGTH), greedy_decode(ours, src, src_mask, LENGTH, 1))

# %% [markdown]
# With two layers it does: without the mask, the positions *before* the last one look ahead, so their
# states differ from those in training, and the last position of the second layer reads them. Only `decode`
# needs the mask: it computes all states again for each symbol, `greedy_decode` each just once
# ([11](11_search_and_averaging.ipynb)).

# %% [markdown]
# ## The run
#
# Every 25 updates we measure two accuracies on the rows held out. *Tokens right* is teacher-forced: the
# model reads the right symbols and predicts the next. *Sequences right* is free-running: the model decodes
# greedily from `1`, and all of its output must be right.


# %%
def forced_answers(model, batch, src=None, tgt=None):
    """Give the answers under teacher forcing (B, 9); the model may read another `src` or `tgt`."""
    src, tgt = batch.src if src is None else src, batch.tgt if tgt is None else tgt
    with evaluating(model):
        return model.generator(model(src, tgt, batch.src_mask, batch.tgt_mask)).argmax(dim=-1)


def forced_right(model, batch, **instead):
    """Tell which of these answers are right (B, 9)."""
    return forced_answers(model, batch, **instead) == batch.tgt_y


def measure(model):
    """Measure loss and accuracies on the rows held out, teacher-forced and with the model on its own."""
    forced = forced_right(model, held_out)
    alone = (greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, 1) == held_out.src)[:, 1:]
    with evaluating(model):
        loss = validation_loss(model).item()
    accuracies = {"token_accuracy": forced, "tokens_alone": alone, "forced_whole_rows": forced.all(dim=1)}
    accuracies["exact_match"] = alone.all(dim=1)
    return {"validation_loss": loss, **{name: x.float().mean().item() for name, x in accuracies.items()}}


# %%
example = torch.tensor([[1, 7, 3, 10, 5, 2, 9, 4, 8, 6]])  # every symbol once


def cross_attention(model):
    """Record where the decoder looks in the source: (layers, h, queries, keys) for the example."""
    with evaluating(model), capture_attention(model) as maps:
        pair = Batch(example, example, pad=0)
        model(pair.src, pair.tgt, pair.src_mask, pair.tgt_mask)
    return torch.stack([maps["cross", layer][0] for layer in range(len(model.decoder.layers))])


# %% tags=["nbval-ignore-output"]
UPDATES, EVERY = 500, 25
model, optimizer, scheduler = new_run(seed=0)
loss_compute = SimpleLossCompute(model.generator, criterion)
records, maps, seen, state = [], {0: cross_attention(model)}, set(), TrainState()
for step in range(EVERY, UPDATES + 1, EVERY):
    batches = list(data_gen(V, 128, EVERY))
    seen |= {tuple(row) for batch in batches for row in batch.src.tolist()}
    loss, state = run_epoch(batches, model, loss_compute, optimizer, scheduler, train_state=state)
    records.append({"step": step, "loss": loss, "rate": rate(step, **SETTINGS), **measure(model)})
    maps[step] = cross_attention(model)
    if step % 100 == 0:
        print(f"update {step}: loss {loss:.2f}, sequences right {records[-1]['exact_match']:.1%}")
    if records[-1]["exact_match"] < 0.85:
        early, halfway = copy.deepcopy(model), records[-1]

# %%
copied = greedy_decode(model, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
exact = (copied == held_out.src).all(dim=1).float().mean().item()
print("asked: ", held_out.src[0].tolist())
print("copied:", copied[0].tolist())
print(f"rows copied without a mistake: ≈{exact:.1%} of 200, of which in training:", end=" ")
print(sum(tuple(row) in seen for row in held_out.src.tolist()))
assert exact > 0.97
assert not any(tuple(row) in seen for row in held_out.src.tolist())
assert state.tokens == UPDATES * 128 * (LENGTH - 1)

# %% [markdown]
# The model has read 64,000 of the $10^9$ possible rows, and none of these 200: it *generalises*.

# %% [markdown]
# ## Why the loss stops where it stops
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
# > (section 5.4, of label smoothing)
#
# The smoothed target is 0.9 for the right symbol and 0.1 spread over the nine others. The best that a model
# can do is to predict exactly that. Then the cross-entropy is the target's own entropy: $-0.9\ln 0.9 -
# 0.1\ln\frac{0.1}{9} = 0.545$ nats (units of the natural logarithm). No smoothed cross-entropy can be below
# this *floor*. `LabelSmoothing` subtracts it, which gives the Kullback-Leibler divergence
# ([08](08_training_recipe.ipynb)); most code does not.

# %%
floor = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 9)
with evaluating(model):
    log_probs = model.generator(model(held_out.src, held_out.tgt, held_out.src_mask, held_out.tgt_mask))
divergence = records[-1]["validation_loss"]
right = log_probs.gather(-1, held_out.tgt_y.unsqueeze(-1))
sure = right.exp().median().item()
print(f"divergence ≈{divergence:.3f}, cross-entropy with smoothing ≈{divergence + floor:.3f}")
print(f"median probability of the right symbol ≈{sure:.2f}; loss without smoothing ≈{-right.mean():.2f}")
assert 0 < divergence < 0.05
assert 0.85 < sure < 0.95
assert 0.05 < -right.mean() < 0.2

# %% tags=["figure-floor"]
kept = [{**r, "loss": r["loss"] + floor, "validation_loss": r["validation_loss"] + floor} for r in records]
_, rates = plot_learning_curves(kept, floor=floor, title="Loss: a perfect copier still pays 0.545")
assert max(rates.get_lines()[0].get_ydata()) == rate(100, **SETTINGS)  # the peak ends the warm-up
plt.show()

# %% [markdown]
# *Figure 2. The run as cross-entropy. Both curves come down to the floor, not to 0. Training lies above
# validation because its points have dropout and are means of 25 updates.*
#
# The loss *without* smoothing, whose exponential is the perplexity, does not reach 0 either: the target asks
# for a probability of 0.9, and $-\ln 0.9 = 0.105$ (ours is a little surer). This is how smoothing "hurts
# perplexity".

# %% [markdown]
# ## 98% of what?
#
# Back to the two accuracies, and to the last measurement with fewer than 85% of the sequences right. What
# did the model output? (Wrong symbols stand in brackets.)

# %% tags=["nbval-ignore-output"]
said = greedy_decode(early, held_out.src, held_out.src_mask, LENGTH, start_symbol=1)
for row, wanted in list(zip(said.tolist(), held_out.src.tolist(), strict=True))[:6]:
    shown = (f"{a:>3} " if a == b else f"[{a}]".rjust(4) for a, b in zip(row, wanted, strict=True))
    print("".join(shown), "  right" if row == wanted else "")
print(f"after {halfway['step']} updates: tokens right {halfway['token_accuracy']:.1%}", end=", ")
print(f"sequences right {halfway['exact_match']:.1%}")

# %% tags=["figure-accuracies"]
at = [record["step"] for record in records]
tokens_right = np.array([100 * record["token_accuracy"] for record in records])
rows_right = np.array([100 * record["exact_match"] for record in records])
expected = 100 * (tokens_right / 100) ** (LENGTH - 1)
plt.plot(at, tokens_right, "o-", ms=5, label="tokens right")
plt.plot(at, rows_right, "s--", ms=5, label="sequences right")
plt.plot(at, expected, ":", color="black", label=f"(tokens right) to the power {LENGTH - 1}")
plt.title("Tokens right, and sequences right")
plt.xlabel("update")
plt.ylabel("right (%)")
plt.legend(frameon=False)
plt.show()
off = max(abs(rows_right - expected))
print(f"sequences right, and (tokens right) to the power 9: at most ≈{off:.0f} points apart")
middle = min(records, key=lambda record: abs(record["exact_match"] - 0.5))
print(f"after ≈{middle['step']} updates: tokens right ≈{middle['token_accuracy']:.0%}", end=", ")
print(f"sequences right ≈{middle['exact_match']:.0%}")
assert off < 15
assert 0.88 < middle["token_accuracy"] < 0.96
assert 0.25 < middle["exact_match"] < 0.75

# %% [markdown]
# *Figure 3. Two accuracies of one model. Tokens right rise first; sequences right follow the dotted line.*
#
# A row is right only if its nine symbols are. If each token is right with probability $p$, whatever the
# others, $p^9$ of the rows are right (dotted line). The run comes close, also where half of the rows are
# wrong. If so, thirty-token sentences with 98% of tokens right, which we did not test, have a mistake in
# 45%.

# %% [markdown]
# ## Exposure bias
#
# Does the model make more mistakes on its own than under teacher forcing, because one wrong symbol leads to
# another? For *whole rows* it cannot. If the teacher-forced model has every symbol of a row right, then on
# its own it gets the first one right, so it reads the right symbol, so it gets the second one right, and so
# on.
#
# What teacher forcing hides is what happens *after* the first mistake. This is **exposure bias** (Ranzato et
# al., 2016): the model was never exposed to its own mistakes. A position after a mistake may be wrong because
# it is hard. So we run two tests on the half-trained model. First, at the same positions, it reads the
# right symbols ("the truth"). Second, it reads *one* wrong symbol in a row that is otherwise right.


# %%
same = [record["exact_match"] == record["forced_whole_rows"] for record in records]
print(f"whole rows right, teacher-forced and alone: the same at {sum(same)} of {len(same)} measurements")
slips = (said != held_out.src)[:, 1:]  # (200, 9), by the half-trained model alone
followers, truth = slips[:, :-1], forced_right(early, held_out)  # followers: questions after a mistake
alone = slips[:, 1:][followers].float().mean().item()
forced = 1 - truth[:, 1:][followers].float().mean().item()
print(f"right after its own mistake it is wrong in ≈{alone:.0%} of ≈{followers.sum()} cases", end="; ")
print(f"there, reading the truth, in ≈{forced:.0%}")
_ = torch.manual_seed(7)
tgt, at = held_out.tgt.clone(), 4
tgt[:, at] = (tgt[:, at] - 1 + torch.randint(1, V - 1, (len(tgt),))) % (V - 1) + 1
answers = forced_answers(early, held_out, tgt=tgt)
for name, right in (("the truth", truth), ("one wrong symbol", answers == held_out.tgt_y)):
    after = right[:, at:].float().mean(dim=0).tolist()
    print(f"it reads {name:16} right at the next questions:", ", ".join(f"≈{x:.0%}" for x in after))
missed = answers[:, at] != held_out.tgt_y[:, at]
behind = (answers[:, at] == held_out.tgt[:, at])[missed].float().mean().item()
print(f"of ≈{missed.sum()} wrong answers right after it, ≈{behind:.0%} are the symbol that it replaced")
assert all(same)
assert alone > 0.4 > 0.2 > forced
assert after[0] < min(after[1], truth[:, at].float().mean() - 0.2)
assert behind > 0.8

# %% [markdown]
# So the positions *after a mistake* are not hard in themselves. A wrong symbol in the input often makes
# the next answer wrong, and in one way: the model says the symbol that it should have read. It seems to
# know by the symbol read how far it is, and a wrong one leaves it one behind. Reading the truth it
# recovers; on its own it may stay behind.
#
# **Why not train on the model's own output?** That is *scheduled sampling* (Bengio et al., 2015): with a
# growing probability, the decoder reads in training what the model itself predicted. For Transformers it is
# rare.
#
# - **It gives up parallel training.** To read its own output, the model would first have to generate it,
#   symbol by symbol, like an RNN. Mihaylova and Martins (2019) take two passes instead: the first predicts
#   all words under teacher forcing, the second reads a mixture (Exercise 3).
# - **The target no longer fits** after one word too many, and the loss is not lowest at the true
#   distribution (Huszár, 2015).

# %% [markdown]
# ## The cheat
#
# Now we make a common mistake on purpose: we forget the shift. The decoder reads the row and must predict
# the same row.


# %%
def unshifted(batches):
    """Give the same batches, with the decoder reading the very symbol that it must say."""
    for batch in batches:
        batch.tgt = batch.tgt_y = batch.src
        batch.tgt_mask = Batch.make_std_mask(batch.tgt, pad=0)
        batch.ntokens = batch.tgt_y.numel()
        yield batch


cheat, optimizer, scheduler = new_run(seed=0)
cheat_loss = SimpleLossCompute(cheat.generator, criterion)
for _ in range(4):
    loss, _ = run_epoch(unshifted(data_gen(V, 128, EVERY)), cheat, cheat_loss, optimizer, scheduler)
print(f"divergence, updates 76 to 100: the cheat ≈{loss:.2f}, the honest model ≈{records[3]['loss']:.2f}")
assert loss < 0.2 < 0.8 < records[3]["loss"]
leaky = next(unshifted([Batch(held_out.src, held_out.src, pad=0)]))
print(f"tokens right, teacher-forced: ≈{forced_right(cheat, leaky).float().mean():.1%}")
said = greedy_decode(cheat, leaky.src, leaky.src_mask, LENGTH, start_symbol=1)
print("asked:", leaky.src[0].tolist(), " said:", said[0].tolist())
assert forced_right(cheat, leaky).float().mean() > 0.999
assert (said == 1).all()

# %% [markdown]
# All tokens are right under teacher forcing, and on its own the model outputs `1 1 1 1`: it repeats what it
# reads. The warning is a loss that falls much too soon. One test needs no decoding: give each row the source
# of *another* row.

# %%
exchanged = held_out.src.roll(1, dims=0)  # each row gets its neighbour's source
for name, net, data in (("the cheat", cheat, leaky), ("the honest model", model, held_out)):
    share = forced_right(net, data, src=exchanged).float().mean().item()
    print(f"{name:16} with another row's source: ≈{share:.0%} right")
    assert share > 0.999 if net is cheat else share < 0.2  # chance is one in ten

# %% [markdown]
# The cheat still knows every answer. A model without a leak gets at most what can be guessed without the
# source: here one in ten, in real text what a language model can guess.

# %% [markdown]
# ## Where it looks
#
# > "In 'encoder-decoder attention' layers, the queries come from the previous decoder layer, and the memory
# > keys and values come from the output of the encoder." (section 3.2.3)
#
# So a map has a row for each symbol that the decoder *reads*, and a column for each symbol of the source. A
# first guess: a model that copies looks at the symbol that it reads, so the map is a diagonal from corner to
# corner. We measure the mean weight there and on the next diagonal to the right.

# %% tags=["figure-diagonal"]
last = maps[UPDATES]  # (layers, h, queries, keys)
own, following = (last.diagonal(k, dim1=-2, dim2=-1).mean(dim=-1) for k in (0, 1))  # (layers, h) each
layer, head = divmod(following.argmax().item(), last.size(1))
symbols = [str(symbol) for symbol in example[0].tolist()]
asks = [f"{read} → {said}" for read, said in pairwise(symbols)]
middle = halfway["step"]
chosen = {step: maps[step][layer, head] for step in (0, middle, UPDATES)}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True)
for ax, (step, weights) in zip(axes, chosen.items(), strict=True):
    grid = {"xticklabels": symbols, "yticklabels": asks, "square": True, "cbar": False}
    sns.heatmap(weights, vmin=0, vmax=1, cmap="viridis", linewidths=1, ax=ax, **grid)
    ax.set(title=f"update {step:,}", xlabel="key", ylabel="query" if step == 0 else "")
figure.suptitle(f"Layer {layer + 1}, head {head + 1} finds the diagonal")
plt.show()
print(f"mean over all heads: own symbol ≈{own.mean():.2f}, the next one ≈{following.mean():.2f}")
print(f"this head: own symbol ≈{own[layer, head]:.2f}, the next one ≈{following[layer, head]:.2f}")
assert following.mean() > 1.5 * own.mean()
assert following[layer, head] > 0.6
assert maps[0][layer, head].diagonal(1).mean() < 0.2

# %% [markdown]
# *Figure 4. One head before training, half-trained and trained. A row is labelled "reads → must predict", a
# column is a symbol of the source. The bright line lies one column to the right of the symbol that is read.*
#
# The guess is wrong by one column: a target shifted by one makes a diagonal shifted by one.
#
# Does the model *need* that diagonal? A map cannot tell; an intervention (an *ablation*) can. We mask
# encoder-decoder attention, so that each query may see only the next symbol, or all but its own, or all but
# the next.


# %%
def accuracy_seeing(visible):
    """Measure the share of tokens right when attention to the source sees only `visible` (queries, keys)."""
    with evaluating(model):
        memory = model.encode(held_out.src, held_out.src_mask)  # the encoder sees everything, as before
        states = model.decode(memory, visible.unsqueeze(0), held_out.tgt, held_out.tgt_mask)
        return (model.generator(states).argmax(dim=-1) == held_out.tgt_y).float().mean().item()


next_one = torch.ones(LENGTH - 1, LENGTH, dtype=torch.bool).triu(1).tril(1)
itself = torch.ones(LENGTH - 1, LENGTH, dtype=torch.bool).triu(0).tril(0)
shares = [accuracy_seeing(visible) for visible in (next_one, ~itself, ~next_one)]
for name, share in zip(("the next symbol alone", "all but its own", "all but the next"), shares, strict=True):
    print(f"sees {name:21}: ≈{share:.0%} right")
assert min(shares[:2]) > 0.9
assert shares[2] < 0.3

# %% [markdown]
# *This* model needs the diagonal, and the diagonal is enough: with one cell of ten it copies, with the
# other nine it guesses.

# %% [markdown]
# ## Exercises
#
# **Exercise 2 (easy).** Section 3.5 chose sinusoids because they "may allow the model to extrapolate to
# sequence lengths longer than the ones encountered during training". Ours was trained on rows of 10. Guess
# how many of 200 rows of 14 symbols it copies, then count. Which positions go wrong?

# %% tags=["solution"]
_ = torch.manual_seed(3)
longer = next(data_gen(V, 200, 1, length=14))
said = greedy_decode(model, longer.src, longer.src_mask, 14, start_symbol=1)
by_position = (said == longer.src).float().mean(dim=0)  # (14,)
print("right at each position:", ", ".join(f"≈{share:.0%}" for share in by_position.tolist()))
whole = (said == longer.src).all(dim=1).float().mean().item()
print(f"rows copied without a mistake: ≈{whole:.0%}")  # the tenth symbol suffers, which it had in training
assert whole < 0.3
assert by_position[11:].mean() < 0.6 < by_position[:10].mean()

# %% [markdown]
# **Exercise 3 (hard).** Write the first pass of scheduled sampling, which makes the decoder's input for the
# second. A share of the symbols is replaced by what the model predicts there under teacher forcing; the
# start symbol stays.


# %% tags=["exercise"]
def own_words(model, batch, share):
    """Give the decoder's input (B, T), each symbol but the first replaced with probability `share`."""
    raise NotImplementedError


# %% tags=["solution"]
# What is said at position t is read at t + 1. No gradient goes through the choice, so no_grad will do.
def own_words(model, batch, share):
    with evaluating(model):
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        said = model.generator(states).argmax(dim=-1)  # (B, T)
    replaced = torch.rand(batch.tgt[:, 1:].shape) < share
    rest = torch.where(replaced, said[:, :-1], batch.tgt[:, 1:])
    return torch.cat([batch.tgt[:, :1], rest], dim=1)


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
untrained, rows = make_model(11, 11, N=1, d_model=32, d_ff=64, h=4), next(data_gen(11, 300, 1))
with evaluating(untrained):
    answers = untrained.generator(untrained(rows.src, rows.tgt, rows.src_mask, rows.tgt_mask)).argmax(dim=-1)
assert torch.equal(own_words(untrained, rows, 0.0), rows.tgt)
assert torch.equal(own_words(untrained, rows, 1.0)[:, 1:], answers[:, :-1])
half = own_words(untrained, rows, 0.5)
assert torch.equal(half[:, 0], rows.tgt[:, 0])
assert ((half[:, 1:] == rows.tgt[:, 1:]) | (half[:, 1:] == answers[:, :-1])).all()
assert 0.4 < (half[:, 1:] != rows.tgt[:, 1:]).sum() / (answers[:, :-1] != rows.tgt[:, 1:]).sum() < 0.6
print("the first pass of scheduled sampling is right")

# %% [markdown]
# For a real language the loop stays as it is; what changes is the data: sentences of different lengths, cut
# into subwords. Next: [10_translation](10_translation.ipynb).
