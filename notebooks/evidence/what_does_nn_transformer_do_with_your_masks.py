# %% [markdown]
# # What does nn.Transformer do with your masks?
#
# Not always what they say. In PyTorch 2.13, `tgt_is_causal=True` silently replaces a wrong `tgt_mask`, but
# only as long as no padding mask is passed with it. And for a sentence of nothing but padding, five ways to
# call one encoder layer give three different answers: numbers, zeros or NaN.
#
# *Seconds to run.* This notebook belongs to lesson
# [14_attention_in_pytorch](../14_attention_in_pytorch.ipynb).

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
# What is printed here is the behavior of one version of PyTorch on a CPU. Run it on yours.

# %%
import warnings
from collections import Counter

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

warnings.filterwarnings("ignore", message=".*nested.tensor")  # PyTorch talks about its fast path
torch.set_num_threads(1)
print("PyTorch", torch.__version__.partition("+")[0])

# %% [markdown]
# ## A flag that overrides your mask
#
# The module's `forward` takes `tgt_is_causal`. It is a *hint*, says the documentation: the mask that you pass
# *is* the causal one. What if it is not? We pass a mask that hides nothing, with and without the flag, and
# look whether the first output changes when the last target token does. Under a causal mask it must not.

# %%
_ = torch.manual_seed(0)
model = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
src, tgt = torch.randn(2, 1, 5, 32)
later = tgt.clone()
later[:, -1] += 1
nothing_hidden = torch.zeros(5, 5, dtype=torch.bool)
no_padding = torch.zeros(1, 5, dtype=torch.bool)


def sees_future(**masks):
    """Whether the first output depends on the last target token."""
    return not torch.allclose(model(src, tgt, **masks)[:, 0], model(src, later, **masks)[:, 0], atol=1e-6)


calls = {
    "mask that hides nothing": {},
    "  and tgt_is_causal=True": {"tgt_is_causal": True},
    "  and a padding mask, too": {"tgt_is_causal": True, "tgt_key_padding_mask": no_padding},
}
sees = {name: sees_future(tgt_mask=nothing_hidden, **more) for name, more in calls.items()}
for name, answer in sees.items():
    print(f"{name:28} the first output sees the last token: {answer}")

# %% tags=["check"]
assert [*sees.values()] == [True, False, True]

# %% [markdown]
# With the flag, the wrong mask is ignored, and the decoder is causal. As soon as a padding mask is passed
# (which hides nothing here), the two must be merged into one, and the wrong mask is obeyed. So a model
# could be trained causally and then see the future at inference, or the other way round. Without the flag,
# the mask that you pass is always the mask that is used.
#
# ## One empty row, asked five ways
#
# In an empty sentence all keys are padding. The softmax has no key left. Equation 1 says nothing about this
# case; this package answers with zeros. We ask one encoder layer in five ways.

# %%
from annotated import evaluating

_ = torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
stack, attend = nn.TransformerEncoder(layer, 1), layer.self_attn
x, empty = torch.randn(2, 5, 32), torch.tensor([[False] * 5, [True] * 5])
answers = {"layer, in training": layer.train()(x, src_key_padding_mask=empty)}
with evaluating(layer), evaluating(stack):
    answers["layer, eval() and no_grad()"] = layer(x, src_key_padding_mask=empty)
    answers["the same in nn.TransformerEncoder"] = stack(x, src_key_padding_mask=empty)
answers["its attention alone"] = attend(x, x, x, key_padding_mask=empty)[0]
answers["its attention, need_weights=False"] = attend(x, x, x, key_padding_mask=empty, need_weights=False)[0]

# %% tags=["nbval-ignore-output"]
kinds = {}
for name, answer in answers.items():
    states = answer[1]  # of the empty sentence
    kinds[name] = "NaN" if states.isnan().any() else "numbers" if states.any() else "zeros"
    print(f"{name:35} {kinds[name]}")

# %% tags=["check"]
assert kinds["layer, in training"] == "numbers"
assert kinds["its attention, need_weights=False"] == "zeros"

# %% [markdown]
# The layer and the input are the same. The answer depends on whether we train, whether the layer is in a
# stack, and whether somebody asks for the attention weights. (In training, the numbers come from the
# residual connection.) So a single layer that trains well can give NaN in validation. The NaN of attention
# alone is a reported fault ([issue 160064](https://github.com/pytorch/pytorch/issues/160064)).
#
# ## Padding that vanishes
#
# In `eval()` and without gradients, the encoder packs the real words together and skips the padding (for
# post-norm, with padding on the right). What stands at the padded positions afterwards?

# %%
_ = torch.manual_seed(0)
encoder = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True).encoder
x, padding = torch.randn(2, 6, 32), torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
in_training = encoder(x, src_key_padding_mask=padding)
with evaluating(encoder):
    in_use = encoder(x, src_key_padding_mask=padding)
for name, states in (("in training", in_training), ("in use", in_use)):
    mean = states.mean(dim=1)[1, 0]
    print(f"{name:12} standard deviation at words ≈{states[~padding].std():.1f}", end=", ")
    print(f"at padding ≈{states[padding].std():.1f}; a mean over all positions ≈{mean:.2f}")

# %% tags=["check"]
torch.testing.assert_close(in_use[~padding], in_training[~padding], rtol=1e-4, atol=1e-5)
assert not in_use[padding].any()
assert in_training[padding].std() > 0.5
assert not torch.allclose(in_use.mean(dim=1)[1], in_training.mean(dim=1)[1], atol=0.05)

# %% [markdown]
# At words nothing changes. At padding, states become zeros. Translation ignores them, but a classifier that
# averages over *all* positions gets a different mean in training than at inference. The printed mean is
# that of the first entry of the padded sentence. Average over words only.
#
# ## Which kernel runs when
#
# PyTorch has several compiled routines, *kernels*, for attention. A *fused* one never writes the table of
# weights to memory ([15_going_fast](../15_going_fast.ipynb)). We record which of them runs in two encoder and
# two decoder layers, which have six attentions.

# %%
KINDS = {
    "flash": "fused",
    "efficient": "fused",
    "cudnn": "fused",
    "softmax": "unfused",
    "native_multi_head": "attention in one call",
    "encoder_layer_fwd": "layer in one call",
}


class Kernels(TorchDispatchMode):
    """Count the attention kernels that run while it is on."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.counts.update(kind for part, kind in KINDS.items() if part in name)
        return func(*args, **(kwargs or {}))


# %%
cases = {  # dropout, training, gradients
    "training, dropout 0.1": (0.1, True, True),
    "training, dropout 0.0": (0.0, True, True),
    "eval()": (0.1, False, True),
    "eval() and no_grad()": (0.1, False, False),
}
x, future, ran = torch.randn(2, 5, 32), torch.ones(5, 5, dtype=torch.bool).triu(1), {}
for name, (dropout, training, gradients) in cases.items():
    model = nn.Transformer(32, 4, 2, 2, 64, dropout=dropout, batch_first=True).train(training)
    with Kernels() as kernels, torch.set_grad_enabled(gradients):
        model(x, x, tgt_mask=future)
    ran[name] = kernels.counts
    print(f"{name:22}", *(f"{kind}: {times}" for kind, times in kernels.counts.items()), sep="  ")

# %% tags=["check"]
assert ran["training, dropout 0.1"]["fused"] == 0
assert ran["training, dropout 0.0"]["fused"] == 6

# %% [markdown]
# On a CPU, the module with its default dropout of 0.1 does not use the fused kernel in training, because
# that kernel has no dropout. Without gradients, whole layers become one call, which is not the same as
# fused: it writes the weights out. A GPU has other kernels; count there again.
#
# ## What it does not say
#
# Other versions may behave differently. The documentation promises none of this, so any of it may change.
# What stays true: give every sentence at least one word (here, every source ends with `</s>`), pass the
# masks that you mean, and set no flag that repeats them.
