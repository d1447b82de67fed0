# %% [markdown]
# # Exposure bias, counted: what does one wrong symbol cost?
#
# After a mistake of its own, a half-trained copier gets the next symbol wrong in ≈73% of cases. At the same
# positions, when it reads the right symbols, it is wrong in ≈3%. The share of rows without any mistake is
# exactly the same whether the model reads its own symbols or the right ones, and it has to be.
#
# *Half a minute to run.* This notebook belongs to lesson [09_first_example](../09_first_example.ipynb).

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
# In training, a decoder reads the right symbols (teacher forcing). At inference, it reads what it has
# written itself (free running). So at inference it may read mistakes, which it has never seen in training.
# Ranzato and colleagues ([2016](https://arxiv.org/abs/1511.06732)) call this *exposure bias*. How much does
# it cost?
#
# One thing it cannot cost is a row that would have been right. If the teacher-forced model has every symbol
# of a row right, then on its own it gets the first one right, so it reads the right symbol, so it gets the
# second one right, and so on. So the share of rows **without any mistake** is the same both ways. What
# differs is what comes *after* the first mistake.
#
# But a position after a mistake may be wrong because it is hard anyway. So we need two comparisons. In the
# first, the model reads the right symbols at the same positions. In the second, we replace a single symbol
# of a row ourselves.
#
# We use half-trained models of the copy task, in which a model reads a row of ten symbols and writes the
# same ten, with three seeds. A trained model makes no mistakes to study.

# %%
import torch

from annotated import (
    Batch,
    CpuKernels,
    LabelSmoothing,
    SimpleLossCompute,
    evaluating,
    greedy_decode,
    make_model,
    noam_scheduler,
    run_epoch,
)

# %%
torch.set_num_threads(1)
V, LENGTH = 11, 10


def rows(count):
    """Random rows of symbols from 1 to 10 that begin with 1."""
    return torch.cat(
        [torch.ones(count, 1, dtype=torch.long), torch.randint(1, V, (count, LENGTH - 1))], dim=1
    )


_ = torch.manual_seed(100)
test = rows(1000)
held_out = Batch(test, test, pad=0)


# %%
def half_trained(seed):
    """A copier that has about half to three quarters of its rows right."""
    _ = torch.manual_seed(seed)
    model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = noam_scheduler(optimizer, model_size=32, factor=0.3, warmup=100)
    loss = SimpleLossCompute(model.generator, LabelSmoothing(V, padding_idx=0, smoothing=0.1))
    while True:
        batches = [Batch(r, r, pad=0) for r in (rows(128) for _ in range(10))]
        with CpuKernels():
            run_epoch(batches, model, loss, optimizer, scheduler)
        right = (greedy_decode(model, held_out.src, None, LENGTH, 1) == held_out.src).all(dim=1)
        if right.double().mean() > 0.5:
            return model


# %%


def forced_answers(model, tgt):
    """What a model says when it reads `tgt` (B, 9)."""
    with evaluating(model):
        states = model(held_out.src, tgt, held_out.src_mask, held_out.tgt_mask)
        return model.generator(states).argmax(dim=-1)


models = [half_trained(seed) for seed in (0, 1, 2)]

# %% [markdown]
# ## After its own mistakes
#
# For each wrong symbol that a model wrote on its own, we look at the next one.

# %%
alone, forced, whole = [], [], []
for model in models:
    written = greedy_decode(model, held_out.src, None, LENGTH, 1)
    slips = (written != held_out.src)[:, 1:]  # (1000, 9)
    truth = forced_answers(model, held_out.tgt) != held_out.tgt_y  # (1000, 9)
    after = slips[:, :-1]  # positions that follow a mistake
    whole.append([(~wrong.any(dim=1)).sum().item() for wrong in (truth, slips)])
    alone.append(slips[:, 1:][after].double().mean().item())
    forced.append(truth[:, 1:][after].double().mean().item())
    print(
        f"rows without a mistake: forced ≈{whole[-1][0]}, alone ≈{whole[-1][1]} of 1,000;"
        f" wrong after a mistake: alone ≈{alone[-1]:.0%}, forced ≈{forced[-1]:.0%}"
    )

# %% tags=["check"]
assert all(by_force == by_itself for by_force, by_itself in whole)
assert min(alone) > 0.35
assert all(a > 2 * f for a, f in zip(alone, forced, strict=True))

# %% [markdown]
# ## One wrong symbol, put there by us
#
# Now everything is right except one symbol, at position 4, which we replace at random. The three numbers are
# the answers to the next three questions.

# %%
_ = torch.manual_seed(7)
at = 4
replaced = held_out.tgt.clone()
replaced[:, at] = (replaced[:, at] - 1 + torch.randint(1, V - 1, (1000,))) % (V - 1) + 1
wrong_after, behind = [], []
for model in models:
    clean = (forced_answers(model, held_out.tgt) != held_out.tgt_y)[:, at : at + 3].double().mean(dim=0)
    answers = forced_answers(model, replaced)
    missed = answers != held_out.tgt_y
    spoilt = missed[:, at : at + 3].double().mean(dim=0)
    first = missed[:, at]
    behind.append((answers[:, at] == held_out.tgt[:, at])[first].double().mean().item())
    wrong_after.append((clean.tolist(), spoilt.tolist()))
    shown = [", ".join(f"≈{share:.0%}" for share in shares.tolist()) for shares in (clean, spoilt)]
    print(f"wrong answers: after right symbols {shown[0]}; after one wrong symbol {shown[1]}")
    print(f"    of the wrong answers right after it, ≈{behind[-1]:.0%} are the symbol that was replaced")

# %% tags=["check"]
for clean, spoilt in wrong_after:
    assert spoilt[0] > clean[0] + 0.15
    assert spoilt[1] - clean[1] < (spoilt[0] - clean[0]) / 2
assert min(behind) > 0.5

# %% [markdown]
# ## What it says
#
# One mistake leads to the next: with each of the three seeds, reading a wrong symbol makes the next answer
# wrong in 59% to 77% of cases, where it would have been wrong in 2% or 3%. So the positions after a mistake
# are not hard in themselves.
#
# It goes wrong in one way: in at least 99% of the wrong answers right after the replaced symbol, the model
# writes the symbol that it should have read. It seems to find its place in the row from the last symbol, so
# a wrong one sets it back by one. When it reads the right symbols again, most of the harm is gone after
# three positions (≈10% wrong, where it would have been 3% to 5%). On its own, it continues to read what it
# wrote, and nothing corrects it.
#
# **What it does not say.** This is a toy task, in which a symbol also tells the model where in the row it
# is, and the models are half-trained. Nothing here measures exposure bias in translation. *Scheduled
# sampling* (Bengio et al., [2015](https://arxiv.org/abs/1506.03099)) is a remedy: it trains on the model's
# own output. With Transformers it is awkward, because a model that must first write its input loses the
# parallel training that makes it fast.
