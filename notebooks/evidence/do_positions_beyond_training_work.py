# %% [markdown]
# # Do positions beyond the trained ones work?
#
# Not by themselves. A small model with sinusoids learned to name the previous symbol at positions 0 to 31. In
# rows that stand at later positions, it is right in only ≈38% of cases (without positions it would be ≈25%),
# and in a row longer than any in training it falls to chance. With training on four blocks of 32 positions
# instead of one, ≈38% becomes ≈71%; with training rows that start anywhere in these 128 positions, it becomes
# ≈80%.
#
# *Half a minute to run.* This notebook belongs to lesson
# [05_positional_encoding](../05_positional_encoding.ipynb).

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
# > "We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths longer
# > than the ones encountered during training." (section 3.5)
#
# The paper has no experiment for this. Later work found that language models with sinusoids get worse soon
# after the trained length (Press et al., [2022](https://arxiv.org/abs/2108.12409)), and that drawing
# positions at random in training helps (Kiyono et al., [2021](https://arxiv.org/abs/2109.05644), "SHAPE").
# But random positions do two things at once: the model sees *more* positions, and it sees each of them in
# *every place* of a row. Which of the two helps?
#
# ## The task
#
# The model names the symbol before each position. One causal attention with one head and a linear map can
# do it, and they need nothing but positions. All trainings below use 300 updates of 1,024 symbols, and are
# tested on rows of 32 that begin at 100 positions from 150 to 4,000, none of them trained.

# %%
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated import Embeddings, LearnedPositions, MultiHeadedAttention, PositionalEncoding, subsequent_mask
from annotated.plots import setup_notebook

setup_notebook()
torch.set_num_threads(1)
SEEDS = (0, 1)


class Before(nn.Module):
    """Embed, add positions, attend once with a causal mask, predict a symbol at each place."""

    def __init__(self, positions: nn.Module | None, d_model: int = 64, symbols: int = 16):
        super().__init__()
        self.embed, self.positions = Embeddings(d_model, symbols), positions
        nn.init.normal_(self.embed.lut.weight, std=d_model**-0.5)
        self.attend = MultiHeadedAttention(h=1, d_model=d_model, dropout=0.0)
        self.predict = nn.Linear(d_model, symbols)

    def forward(self, symbols: Tensor, start: int = 0) -> Tensor:
        """Symbols (B, T), the first at position `start` -> logits (B, T, 16)."""
        x = self.embed(symbols)  # (B, T, d_model)
        x = self.positions(x, start) if self.positions else x
        return self.predict(self.attend(x, x, x, subsequent_mask(symbols.size(1))))


# %%
def fit(positions: nn.Module | None, seed: int, starts: list[int], length: int = 32) -> Before:
    """Train on rows of `length`; each batch begins at a position drawn from `starts`."""
    torch.manual_seed(seed)
    model = Before(positions)
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(300):
        adam.param_groups[0]["lr"] = 3e-3 * (1 - update / 300)
        symbols = torch.randint(16, (1024 // length, length))
        logits = model(symbols, starts[int(torch.randint(len(starts), ()))])[
            :, 1:
        ]  # the first has none before
        loss = F.cross_entropy(logits.flatten(0, 1), symbols[:, :-1].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model


@torch.no_grad()
def right(model: Before, start: int, length: int = 32) -> Tensor:
    """Return the share of right answers at places 1 ... length - 1, over 100 rows."""
    symbols = torch.randint(16, (100, length))
    return (model(symbols, start)[:, 1:].argmax(dim=-1) == symbols[:, :-1]).double().mean(dim=0)


# %% [markdown]
# ## Rows that are too long
#
# First the plain case: train on rows of 32 from position 0, and test on rows of 64. There are 16 symbols,
# so a blind guess is right in ≈6% of cases.


# %% tags=["figure-past"]
def positions_of(kind: str) -> nn.Module | None:
    """Build sinusoids, or a learned table whose entries start as large as theirs."""
    if kind == "learned":
        positions = LearnedPositions(64, dropout=0.0)
        nn.init.normal_(positions.lut.weight, std=0.5**0.5)
        return positions
    return PositionalEncoding(64, dropout=0.0) if kind == "sinusoids" else None


past = {}
for kind, style in (("sinusoids", "-"), ("learned", "--"), ("no positions", ":")):
    past[kind] = torch.stack([right(fit(positions_of(kind), seed, [0]), 0, 64) for seed in SEEDS])
    plt.plot(range(1, 64), past[kind].mean(dim=0), style, label=kind)
plt.axvline(31.5, color="grey", linewidth=1)
plt.xlabel("position")
plt.ylabel("share of right answers")
plt.legend()
plt.show()
for kind, shares in past.items():
    print(f"{kind:13} up to 31: ≈{shares[:, :31].mean():.0%}, from 40 on: ≈{shares[:, 39:].mean():.0%}")

# %% [markdown]
# *Figure 1. Trained up to the gray line, mean of two seeds. Beyond it, the learned table fails at once, and
# the sinusoids fail within a few positions.*

# %% tags=["check"]
assert min(past[kind][:, :31].mean() for kind in ("sinusoids", "learned")) > 0.9
assert max(past[kind][:, 39:].mean() for kind in ("sinusoids", "learned")) < 0.25
assert past["no positions"][:, 3:31].mean() < 0.4

# %% [markdown]
# ## Positions that were never trained
#
# The learned table is out of the race now, because its later entries have had no gradient. We train the
# sinusoids in four ways. The last three see the same positions, 0 to 127:
#
# - **32 from 0**: what we had;
# - **128 from 0**: rows of 128. Position 70 always stands in place 70;
# - **32 from four starts**: rows of 32 that start at 0, 32, 64 or 96. Position 70 always stands in place 6;
# - **32 from random starts**: rows of 32 that start anywhere from 0 to 96. Position 70 stands in all places.

# %%
trainings = {
    "32 from 0": ([0], 32),
    "128 from 0": ([0], 128),
    "32 from four starts": ([0, 32, 64, 96], 32),
    "32 from random starts": (list(range(97)), 32),
}
tested = [round(150 * (4000 / 150) ** (i / 99)) for i in range(100)]
accuracy = {}
for name, (starts, length) in trainings.items():
    models = [fit(positions_of("sinusoids"), seed, starts, length) for seed in SEEDS]
    accuracy[name] = torch.stack([torch.stack([right(m, s).mean() for s in tested]) for m in models])

# %% tags=["figure-starts"]
fig, ax = plt.subplots(figsize=(9, 3.6))
spread = (torch.arange(len(tested)) % 7 - 3) * 0.08  # up and down, so that dots do not hide each other
for row, shares in enumerate(accuracy.values()):
    ax.plot(shares.mean(dim=0), row + spread, "o", color="C0", alpha=0.4, markersize=6, markeredgewidth=0)
    ax.plot(2 * [shares.mean()], [row - 0.35, row + 0.35], color="black", linewidth=2.5)
ax.set(xlabel="share of right answers", xlim=(0, 1), ylim=(3.5, -0.5))
ax.set_yticks(range(4), accuracy)
plt.show()

# %% [markdown]
# *Figure 2. Each dot is one of the 100 starts, with the mean of two seeds; the black lines are the means of
# all starts. One start says nothing: the dots of one training are spread over a third of the axis or more,
# and those of different trainings overlap.*

# %%
for name, shares in accuracy.items():
    seeds = ", ".join(f"≈{mean:.0%}" for mean in shares.mean(dim=1))
    print(f"{name:22} mean of 100 starts: {seeds}; worst ≈{shares.min():.0%}, best ≈{shares.max():.0%}")

# %% tags=["check"]
means = {name: shares.mean().item() for name, shares in accuracy.items()}
assert 0.25 < means["32 from 0"] < 0.5
assert 0.65 < means["32 from random starts"] < 0.92
for between in ("128 from 0", "32 from four starts"):
    assert means["32 from 0"] + 0.05 < means[between] < means["32 from random starts"] - 0.03
assert means["32 from four starts"] > means["128 from 0"]
dots = {name: shares.mean(dim=0) for name, shares in accuracy.items()}
assert min(shares.max() - shares.min() for shares in dots.values()) > 0.3
assert dots["32 from 0"].max() > dots["32 from random starts"].min()

# %% [markdown]
# ## What it says
#
# **Sinusoids make later positions possible, but training has to ask for them.** Trained at positions 0 to
# 31 alone, the model is right in ≈38% of cases in rows of 32 at later positions. That is not much, because
# even a model without positions has ≈25% right in such rows. In a row of 64 the same model is at chance
# from position 40 on. The two tests differ in the length of the row as well as in the positions, and we
# have not told these two apart.
#
# **Seeing more positions brings most of the gain.** Four starts instead of one, with rows of the same
# length, bring about four fifths of it, with both seeds. Rows of 128 see the same positions and bring about
# half. Such rows are longer than those of the test, which may be the reason.
#
# **Random starts bring the rest**, 7 and 10 points with the two seeds. They see no position that the four
# starts do not see, but they see most of them in every place of a row.
#
# **One test start would be noise.** Within each training, the worst and the best of the 100 starts lie more
# than 40 points apart.
#
# **What it does not say.** In the comparison of the four trainings, the test rows have 32 symbols and only
# stand elsewhere, so it says nothing about longer rows. The task is one of the simplest that need
# positions, and there are two seeds.
