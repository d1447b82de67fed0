# %% [markdown]
# # What does post-norm do to gradients?
#
# It shrinks them, but only in the decoder. In an untrained post-norm decoder of six layers, the gradient that
# reaches the beginning of the residual stream is 0.18 to 0.25 of the gradient at its end (four seeds). In the
# encoder, and in both stacks of a pre-norm model, it does not shrink. About half of this shrinkage (45%, on a
# logarithmic scale) has one cause: the gradient that flows into the keys and values of cross-attention goes
# to the encoder and never comes back.
#
# *A few seconds to run.* This notebook belongs to lesson [06_the_full_model](../06_the_full_model.ipynb).

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
# The paper's sub-layers are post-norm: $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$. It is often said that
# gradients *vanish* in such a stack. Liu et al. ([2020](https://arxiv.org/abs/2004.08249), "Admin") found
# that they vanish in the decoder and not in the encoder. Xiong et al.
# ([2020](https://arxiv.org/abs/2002.04745)) looked at the top instead, and found gradients there that are
# large. We measure, and then look for the cause.
#
# **What we measure.** We run one backward pass from random sentence pairs through an untrained model of the
# paper's depth. The gradient *of the residual stream* is recorded before the first layer and behind each
# layer. We divide by the gradient behind the last layer. (The gradient of a layer's *parameters* would be
# another quantity: it is a sum over all positions, and says little about the stream.)

# %%
import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from annotated import Batch, EncoderDecoder, MultiHeadedAttention, make_model
from annotated.plots import setup_notebook

setup_notebook()
torch.set_num_threads(1)
SEEDS = range(4)


def untrained(seed: int, norm_first: bool = False, factor: float = 1.0) -> EncoderDecoder:
    """Build a model of the paper's depth; its W^Q, W^K and W^V are multiplied by `factor`."""
    torch.manual_seed(seed)
    model = make_model(1000, 1000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0, norm_first=norm_first)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            for linear in module.linears[:3]:
                linear.weight.data *= factor
    return model


# %%
def stream_gradients(model: EncoderDecoder, side: str, seed: int) -> Tensor:
    """Gradient norms of one stack's stream, (7,): before the first layer, and behind each of the six."""
    states = []

    def keep(layer: nn.Module, given: tuple, output: Tensor) -> None:
        states.extend([given[0], output] if not states else [output])

    for layer in getattr(model, side).layers:
        layer.register_forward_hook(keep)
    torch.manual_seed(100 + seed)
    batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
    log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
    loss = nn.functional.nll_loss(log_probs.flatten(0, 1), batch.tgt_y.flatten())
    return torch.stack([gradient.norm() for gradient in torch.autograd.grad(loss, states)])


def relative(side: str, change: Callable | None = None, **kind) -> Tensor:
    """Return `stream_gradients` over the last of them, for each seed: (4, 7)."""
    rows = []
    for seed in SEEDS:
        model = untrained(seed, **kind)
        if change:
            change(model)
        rows.append(stream_gradients(model, side, seed))
    return torch.stack(rows) / torch.stack(rows)[:, -1:]


# %% [markdown]
# ## What happens
#
# How large attention's matrices are at the start matters, and the paper does not say. The package draws
# $W^Q$, $W^K$ and $W^V$ as one matrix, as PyTorch does. Much code draws each of them alone, which makes
# their numbers $\sqrt 2$ larger. We measure both.

# %% tags=["figure-stream"]
kinds = {"post-norm": {}, "post-norm, × √2": {"factor": math.sqrt(2)}, "pre-norm": {"norm_first": True}}
figure, axes = plt.subplots(1, 2, figsize=(12, 4.2), sharey=True)
bottom = {}
for ax, side in zip(axes, ("encoder", "decoder"), strict=True):
    for (name, kind), style in zip(kinds.items(), ("C0o-", "C3s-", "C2^--"), strict=True):
        curves = relative(side, **kind)
        ax.plot(range(7), curves.T, style, alpha=0.6, label=[name, *[None] * 3])
        bottom[side, name] = curves[:, 0]
    ax.set(title=side.capitalize(), xlabel="layers passed", yscale="log")
    ax.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    ax.minorticks_off()
axes[0].set_ylabel("gradient, over that at the top")
axes[0].legend(loc="lower right")
plt.show()

# %% [markdown]
# *Figure 1. The gradient of the residual stream, read from right (the top of the stack) to left (its
# bottom). Four seeds each. Only in the post-norm decoder does it shrink.*

# %%
for (side, name), values in bottom.items():
    print(f"{side:8} {name:16} bottom over top: ≈{values.min():.2f} to ≈{values.max():.2f}")

# %% tags=["check"]
assert 0.12 < bottom["decoder", "post-norm"].min() < bottom["decoder", "post-norm"].max() < 0.32
assert bottom["decoder", "post-norm, × √2"].max() < 0.15
assert bottom["encoder", "post-norm"].min() > 1 < bottom["encoder", "pre-norm"].min()
assert bottom["decoder", "pre-norm"].min() > 1.2

# %% [markdown]
# ## Why the decoder alone?
#
# A sub-layer adds a vector of size $s$ to a stream of size 1, nearly at a right angle. The sum has size
# $\sqrt{1+s^2}$, and the norm divides it by that. On the way back, the gradient is divided by the same
# number. Why does it not shrink in the encoder, then? Because a second path leads back into the stream,
# through the sub-layer itself, and it makes up for the division.
#
# In cross-attention, this second path leads elsewhere. Keys and values come from the encoder, so the
# gradient that flows through them goes to the encoder. It leaves the decoder as if through a door.
#
# If that is the cause, then opening or closing such doors must change how much the gradient loses on its
# way, although nothing changes in the forward pass. Two controls:
#
# - **the door leads back**: cross-attention computes the same numbers, but the gradient of its keys and
#   values returns to the decoder's own stream;
# - **one more door**: the gradient of *self*-attention's keys and values is lost.


# %%
def returns(module: nn.Module, given: tuple) -> tuple:
    """Use the numbers of the memory, and the gradient of the queries."""
    query, memory, _, *masks = given
    same = memory.detach() + (query - query.detach())  # query - query is 0, but carries a gradient
    return query, same, same, *masks


def loses(module: nn.Module, given: tuple) -> tuple:
    """Use the same numbers, without a gradient of keys and values."""
    query, key, value, *masks = given
    return query, key.detach(), value.detach(), *masks


def lead_back(model: EncoderDecoder) -> None:
    for layer in model.decoder.layers:
        layer.src_attn.register_forward_pre_hook(returns)


def one_more(model: EncoderDecoder) -> None:
    for layer in model.decoder.layers:
        layer.self_attn.register_forward_pre_hook(loses)


# %%
controls = {"as it is": None, "the door leads back": lead_back, "one more door": one_more}
found = {}
for name in ("post-norm", "post-norm, × √2"):
    for control, change in controls.items():
        values = found[name, control] = relative("decoder", change, **kinds[name])[:, 0]
        print(f"{name:16} {control:20} bottom over top: ≈{values.min():.2f} to ≈{values.max():.2f}")
recovered = {}
for name in ("post-norm", "post-norm, × √2"):
    before, after = (found[name, control].log().mean() for control in list(controls)[:2])
    recovered[name] = (1 - after / before).item()
    print(f"{name:16} of the loss, in logarithms, the door explains ≈{recovered[name]:.0%}")

# %% tags=["check"]
for name in ("post-norm", "post-norm, × √2"):
    as_it_is, back, more = (found[name, control] for control in controls)
    assert 0.3 < back.min() < back.max() < 0.65
    assert (more < 0.75 * as_it_is).all()
assert 0.3 < recovered["post-norm"] < 0.65 < recovered["post-norm, × √2"] + 0.15
model, changed = untrained(0), untrained(0)
lead_back(changed)
batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
assert torch.allclose(model(*inputs), changed(*inputs), atol=1e-5)  # the forward pass is the same

# %% [markdown]
# ## What it says
#
# **The door explains about half of what the gradient loses**, and with the larger matrices nearly two
# thirds. With a door that leads back, both models end at about 0.4 (0.37 to 0.50), wherever they started.
# With one more door, more is lost in every seed.
#
# **The rest we attribute to the norm**, by exclusion. In a pre-norm model no norm divides the stream, and
# nothing is lost. But a decoder layer also has three norms where an encoder layer has two, and its
# self-attention has a causal mask, and we have no control for either. So our runs fit both accounts: the
# norm divides, as Takase et al. ([2022](https://arxiv.org/abs/2206.00330)) argue, and in the decoder less
# of the gradient comes back, as Liu et al. found.
#
# **What it does not say.** Adam divides each gradient by its own size, so a gradient that is five times
# smaller does not mean learning that is five times slower. What post-norm does to *training* is the subject
# of [Why warm-up?](why_warm_up.ipynb). All models here are untrained, and have six layers of width 128.
