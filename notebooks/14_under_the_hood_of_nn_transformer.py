# %% [markdown]
# # 14 · Under the hood of nn.Transformer
#
# **We move a model's weights into PyTorch's own Transformer and get the same numbers out, find a wrong mask
# under which training goes better than under the right one, and see which kernel runs when.**
#
# Previous: [13_reading_attention](13_reading_attention.ipynb) · Next:
# [15_going_fast](15_going_fast.ipynb) · The model that we compare with:
# [06_the_full_model](06_the_full_model.ipynb)
#
# *27 minutes to read, a minute to run, the exercises extra.*
#
# - **Before:** you know the whole model (06), masks (02, 07), and the training loop (09).
# - **After:** you can use `nn.Transformer` without its traps, move weights between it and this package, and
#   test that a decoder does not see its answer.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017).

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
import math
import warnings
from collections import Counter
from itertools import islice
from random import Random

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

# %%
from annotated import (
    Batch,
    WordTokenizer,
    evaluating,
    greedy_decode,
    make_model,
    noam_scheduler,
    sinusoids,
    subsequent_mask,
)
from annotated.interop import from_torch, to_torch
from annotated.interop.torch_transformer import torch_names
from annotated.plots import explore_masks, plot_losses, setup_notebook
from annotated.tokenizers import END, PAD, START, UNK

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread
# PyTorch warns whenever its fast path for padding is on, or cannot be; that path has a section below.
warnings.filterwarnings("ignore", message=".*nested.tensor")

# %% [markdown]
# ## What is in it, and what is not
#
# Two models of the same shape, theirs and ours:

# %%
SHAPE = {"d_model": 32, "dropout": 0.0}
_ = torch.manual_seed(0)
ours = make_model(11, 11, N=2, h=4, d_ff=64, **SHAPE)
theirs = nn.Transformer(nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=64, **SHAPE)
print("ours:  ", *(name for name, _ in ours.named_children()))
print("theirs:", *(name for name, _ in theirs.named_children()))
try:
    theirs(torch.tensor([[4, 5, 6]]), torch.tensor([[0, 7, 8]]))
except RuntimeError as error:
    print("given tokens, theirs says:", error)

# %% [markdown]
# `nn.Transformer` takes vectors and gives vectors. **Embeddings, positions, the output's linear map and
# softmax, the masks and decoding are left to you**: everything in Figure 1 of the paper but the two stacks.
# There is no key/value cache either (11).
#
# So we give it vectors, three sentences of five words, `(batch, len, d_model)` as everywhere here. We
# change the source of sentence 1 (of 0, 1 and 2) and see which outputs change.


# %%
def moved_sentences(transformer: nn.Transformer) -> list[int]:
    """The numbers of the outputs that change when the source of number 1 does."""
    torch.manual_seed(0)
    src, tgt = torch.randn(2, 3, 5, 32)  # (3, 5, 32) each
    changed = src.clone()
    changed[1] += torch.randn(5, 32)
    with evaluating(transformer):
        moves = (transformer(src, tgt) - transformer(changed, tgt)).abs().amax(dim=(1, 2))  # (3,)
    return [n for n, move in enumerate(moves.tolist()) if move > 1e-5]


batched = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
batched.load_state_dict(theirs.state_dict())  # the same weights: only the meaning of the axes is another
print("outputs that change, as it comes:     ", moved_sentences(theirs))
print("outputs that change, batch_first=True:", moved_sentences(batched))
assert moved_sentences(theirs) == [0, 1, 2]
assert moved_sentences(batched) == [1]

# %% [markdown]
# By default the module takes `(len, batch, d_model)`. It read our tensor as five sentences of three words:
# all first words, all second words, and so on. Words of different sentences attended to each other, without
# an error. (There is one if source and target differ in length; in a copy task they do not.) So use
# `batch_first=True`, or put the sequence first everywhere, as older code does.
#
# Here are the shapes inside one layer, for three sentences of five source words and four target words:

# %%
seen = {}
for name, module in theirs.named_modules():
    if ".layers.0." in name:
        module.register_forward_hook(lambda m, x, y, name=name: seen.update({name: (x[0], y)}))
_ = theirs(torch.randn(5, 3, 32), torch.randn(4, 3, 32))
for name, (given, gave) in seen.items():
    output, note = (gave[0], "and " + str(gave[1])) if isinstance(gave, tuple) else (gave, "")
    print(f"{name:38} {tuple(given.shape)!s:11} -> {tuple(output.shape)!s:11} {note}")
assert seen["decoder.layers.0.multihead_attn"][1][1] is None

# %% [markdown]
# Three lines end in `None`, where the attention weights would be. The layers call their attentions with
# `need_weights=False`, because this allows a faster kernel (below), and no argument of `nn.Transformer`
# changes that.
#
# ## Moving the weights
#
# PyTorch keeps the projections of queries, keys and values in one matrix, `in_proj_weight`, with
# $3\,d_{model}$ rows. Otherwise only names differ. All weight matrices and gains of a decoder layer, with
# our names beside them:

# %%
names = torch_names(ours.config)  # PyTorch's name: our names of the parts that it joins, in order
state, layer = theirs.state_dict(), "decoder.layers.0."
for name, parts in names.items():
    if name.startswith(layer) and name.endswith("weight"):
        short = ", ".join(part.removeprefix(layer).removesuffix(".weight") for part in parts)
        print(f"{name.removeprefix(layer):31} {tuple(state[name].shape)!s:9} {short}")

# %% [markdown]
# So we rename, with a `torch.cat` for each attention. First we put random numbers everywhere: a new model's
# biases are 0 and its gains 1, so we would not notice one that we forgot. `nn.Transformer` also adds a
# layer norm at the end of each stack, which post-norm does not need (06); we remove both.

# %%
_ = torch.manual_seed(0)
for parameter in ours.parameters():
    nn.init.normal_(parameter, std=0.4)
batched.encoder.norm = batched.decoder.norm = None

src = torch.tensor([[4, 5, 6, 7, 8, END], [9, 10, 4, END, PAD, PAD]])
tgt = torch.tensor([[START, 6, 7, 8, 9], [START, 5, 4, 10, 6]])
src_mask, tgt_mask = (src != PAD).unsqueeze(1), subsequent_mask(5)  # ours: True where one may look
hidden, future = ~src_mask[:, 0], ~tgt_mask[0]  # theirs: True where one may not
padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}


def both() -> tuple[Tensor, Tensor]:
    """Our decoder's states and theirs (2, 5, 32), from the same embedded sentences."""
    ours.eval()
    x, y = ours.src_embed(src), ours.tgt_embed(tgt)
    return ours(src, tgt, src_mask, tgt_mask), batched(x, y, tgt_mask=future, **padding)


# %%
before = both()
own = ours.state_dict()
batched.load_state_dict({name: torch.cat([own[part] for part in parts]) for name, parts in names.items()})
after = both()
gap = [(mine - other).abs().max().item() for mine, other in (before, after)]
print(f"largest difference of the outputs: ≈{gap[0]:.1f} before, ≈{gap[1]:.0e} after")
assert gap[0] > 0.3
assert gap[1] < 1e-4

# %% [markdown]
# Two programs by different authors agree, up to the rounding of 32-bit numbers. The package moves weights
# both ways, with `to_torch(model)` and `from_torch(transformer, src_vocab, tgt_vocab)`.
#
# A stack is made of copies of one layer, so its layers need new random weights. `nn.Transformer` draws them
# (for matrices). `nn.TransformerEncoder`, used alone, does not:


# %%
def apart(layers: nn.ModuleList) -> float:
    """Largest difference between a weight of the first layer and the same one of another."""
    first, *others = (torch.cat([p.flatten() for p in layer.parameters()]) for layer in layers)
    return max((other - first).abs().max().item() for other in others)


alone = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, batch_first=True), 6)
print(f"largest difference between layers: in nn.Transformer ≈{apart(theirs.encoder.layers):.1f}, ", end="")
print(f"in nn.TransformerEncoder alone {apart(alone.layers):.1f}")
assert apart(theirs.encoder.layers) > 0.1
assert apart(alone.layers) == 0

# %% [markdown]
# ## Dropout
#
# > "We performed only a small number of experiments to select the dropout, both attention and residual
# > (section 5.4), learning rates and beam size" (section 6.3)
#
# Section 5.4 itself names two places: each sub-layer's output, and embeddings plus positions. The sentence
# above, about parsing, adds *attention* dropout, on the attention weights. The paper gives no rate for it.
# The authors' code, tensor2tensor, has 0 in `transformer_base_v1` and 0.1 in `transformer_base_v2`. Here
# `attention_dropout` is 0 unless you set it. `nn.Transformer` has one number for three places:

# %%
config = from_torch(nn.Transformer(32, 4, 2, 2, 64, dropout=0.1, norm_first=True), 11, 11).config
for where in ("dropout", "attention_dropout", "relu_dropout"):
    print(f"{where:18} {getattr(config, where)}")
noisy = nn.Transformer(32, 4, 2, 2, 64, dropout=0.1)
for module in noisy.modules():
    if isinstance(module, nn.Dropout):
        module.p = 0.0
x = torch.randn(5, 3, 32)
gap = (noisy(x, x) - noisy(x, x)).abs().max().item()
print(f"every nn.Dropout set to 0, in training: two answers to one input differ by up to ≈{gap:.1f}")
assert config.attention_dropout == config.relu_dropout == 0.1
assert gap > 0.05

# %% [markdown]
# The answers still differ, because `nn.MultiheadAttention` keeps the dropout on its weights as a plain
# number, not as an `nn.Dropout`. (`relu_dropout`, between the two linear maps of the feed-forward network,
# is not in the paper.)
#
# **Exercise 1 (medium).** Write `residual_dropout(transformer)`, which leaves an `nn.Transformer` with the
# dropout on its sub-layers' outputs and no other. The test reads the result with `from_torch`.


# %% tags=["exercise"]
def residual_dropout(transformer: nn.Transformer) -> nn.Transformer:
    """Leave dropout on the sub-layers' outputs only."""
    raise NotImplementedError


# %% tags=["solution"]
def residual_dropout(transformer: nn.Transformer) -> nn.Transformer:
    """Leave dropout on the sub-layers' outputs only."""
    for layer in (*transformer.encoder.layers, *transformer.decoder.layers):
        layer.dropout.p = 0.0  # between the two linear maps; dropout1, 2, 3 are those of sub-layers' outputs
        for module in layer.children():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
    return transformer


# %% tags=["exercise-test"]
given = residual_dropout(nn.Transformer(32, 4, 2, 2, 64, dropout=0.1, norm_first=True))
config = from_torch(given, 11, 11).config
assert (config.dropout, config.attention_dropout, config.relu_dropout) == (0.1, 0.0, 0.0)

# %% [markdown]
# ## Six masks
#
# `nn.Transformer` takes six masks, and makes none (`B` sentences, of `S` source and `T` target tokens):
#
# | argument | shape | what it hides | here |
# | --- | --- | --- | --- |
# | `src_mask` | `(S, S)` | nothing, in the paper | not given |
# | `tgt_mask` | `(T, T)` | the future | `~subsequent_mask(T)[0]` |
# | `memory_mask` | `(T, S)` | nothing, in the paper | not given |
# | `src_key_padding_mask` | `(B, S)` | the source's padding, in the encoder | `~src_mask[:, 0]` |
# | `tgt_key_padding_mask` | `(B, T)` | the target's padding | see below |
# | `memory_key_padding_mask` | `(B, S)` | the source's padding, in the decoder | `~src_mask[:, 0]` again |
#
# We start from the right call, leave one out or add one, and compare the states of real words. Does the
# decoder need a mask for padding that is already hidden from the encoder?

# %%
_ = torch.manual_seed(0)
ours = make_model(11, 11, N=2, h=4, d_ff=64, **SHAPE).eval()
batched = to_torch(ours)
tgt[1, 3:] = PAD  # the second target has padding, too: on the right
real = tgt != PAD
x, y = ours.src_embed(src).detach(), ours.tgt_embed(tgt).detach()
right = {"tgt_mask": future, **padding}
good = batched(x, y, **right)
calls = {f"without {left_out}": {k: v for k, v in right.items() if k != left_out} for left_out in right}
calls["with tgt_key_padding_mask"] = {**right, "tgt_key_padding_mask": ~real}
changes = {name: (batched(x, y, **masks) - good)[real].abs().max().item() for name, masks in calls.items()}
for name, change in changes.items():
    print(f"{name:32} the outputs move by up to ≈{change:.2f}")
*needed, useless = changes.values()
assert min(needed) > 0.01 > 1e-5 > useless

# %% [markdown]
# It does: **the source's mask must be given twice.** Without the second one, the decoder attends to padding
# without an error, and a translation depends on how long the other sentences of its batch are. The target's
# padding needs no mask as long as it is on the right, because the causal mask already hides it from every
# real word (07).
#
# The default of `tgt_mask` is `None`. So `transformer(src, tgt)`, the simplest call, is **not** causal.
#
# ### Which way round
#
# `True` means "may attend" in this package and in `F.scaled_dot_product_attention`, but "hidden" in
# `nn.Transformer` (02). Here is the mask of a target with one padding token, as each side reads it:

# %% tags=["figure-which-way-round"]
words = ["<s>", "the", "dog", "sleeps", "<pad>"]
causal_and_padding = subsequent_mask(5)[0] & torch.tensor([word != "<pad>" for word in words])
assert causal_and_padding[2].tolist() == [True, True, True, False, False]  # what "dog" may see
masks_read = {
    "annotated: what may attend is True": causal_and_padding,
    "nn.Transformer: what is hidden is True": ~causal_and_padding,
}
explore_masks(masks_read, words, words, query=2, title="The same tensor, read by both")

# %% [markdown]
# *Figure 1. The same tensor, read by the two conventions; point at a query. Read the wrong way round, "dog"
# sees what comes after it and the padding, but not itself.*
#
# If we pass our causal mask as it is, it hides everything from the last position. We expect a NaN there.

# %%
flipped = batched(x, y, tgt_mask=tgt_mask[0], **padding)
print(f"NaN: {flipped.isnan().sum()} of {flipped.numel()} numbers")
print(f"outputs differ by up to ≈{(flipped - good).abs().max():.1f}")
assert flipped.isfinite().all()
assert (flipped - good).abs().max() > 0.1

# %% [markdown]
# There is no NaN and no warning, because this kernel gives zeros for an empty row (see below).
#
# **Exercise 2 (hard).** A `tgt_mask` may also hold one mask for each sentence *and head*, `(B * h, T, T)`.
# Write `per_head(mask, h)`, which turns our `(B, T, T)`, True where attention is allowed, into such a mask.


# %% tags=["exercise"]
def per_head(mask: Tensor, h: int) -> Tensor:
    """Our mask (B, T, T), True = may attend, as PyTorch wants it: (B * h, T, T), True = hidden."""
    raise NotImplementedError


# %% tags=["solution"]
def per_head(mask: Tensor, h: int) -> Tensor:
    """Our mask (B, T, T), True = may attend, as PyTorch wants it: (B * h, T, T), True = hidden."""
    return (~mask).repeat_interleave(h, dim=0)  # a sentence's heads side by side; `repeat` would mix them


# %% tags=["exercise-test"]
torch.manual_seed(0)
mha, states = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)
allowed = torch.stack([torch.ones(4, 4).tril() > 0, torch.eye(4) > 0])  # two sentences, two masks
weights = mha(states, states, states, attn_mask=per_head(allowed, 2), average_attn_weights=False)[1]
assert torch.equal(weights > 0, allowed.unsqueeze(1).expand(2, 2, 4, 4))

# %% [markdown]
# ### One empty row, asked five ways
#
# In an empty sentence all keys are padding: `key_padding_mask` is `True` everywhere, so the softmax has no
# key left (02). We ask one layer in five ways; the second sentence of the batch is empty.

# %%
_ = torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
stack = nn.TransformerEncoder(layer, 1)  # holds a copy of the layer
x, empty = torch.randn(2, 5, 32), torch.tensor([[False] * 5, [True] * 5])
answers = {"layer, in training": layer.train()(x, src_key_padding_mask=empty)}
with evaluating(layer), evaluating(stack):
    answers["layer, eval and no_grad"] = layer(x, src_key_padding_mask=empty)
    answers["the same in nn.TransformerEncoder"] = stack(x, src_key_padding_mask=empty)
attend = layer.self_attn
answers["its attention alone"] = attend(x, x, x, key_padding_mask=empty)[0]
answers["... need_weights=False"] = attend(x, x, x, key_padding_mask=empty, need_weights=False)[0]
kinds = {}
for name, answer in answers.items():
    states = answer[1]  # (5, 32), of the empty sentence
    kinds[name] = "NaN" if states.isnan().any() else "numbers" if states.any() else "zeros"
    print(f"{name:35} {kinds[name]}")
assert list(kinds.values()) == ["numbers", "NaN", "zeros", "NaN", "zeros"]

# %% [markdown]
# The layer and the input are the same, but the answer depends on whether we train, whether the layer is in
# a stack, and **whether somebody asks for the attention weights**. (In training, the *numbers* come from
# the residual connection.) A model that trains well can give NaN in validation. So avoid empty rows: here
# every source ends with `</s>`, even an empty one.
#
# ### Padding that vanishes
#
# In `eval()`, without gradients, with a padding mask and `batch_first=True`, `nn.TransformerEncoder` skips
# the padding: it packs the real words into a *nested tensor* and unpacks it at the end. Is the output the
# same?

# %%
_ = torch.manual_seed(0)
transformer = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
x, pads = torch.randn(2, 6, 32), torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
trained_way = transformer.encoder(x, src_key_padding_mask=pads)
with evaluating(transformer):
    used_way = transformer.encoder(x, src_key_padding_mask=pads)
for name, states in (("train()", trained_way), ("eval(), no_grad", used_way)):
    print(
        f"{name:16} size of a word {states[~pads].std():.1f}, of padding {states[pads].std():.1f};", end=" "
    )
    print(f"mean over all positions, first number: {states.mean(dim=1)[1, 0]:.2f}")
assert_close(used_way[~pads], trained_way[~pads], rtol=1e-4, atol=1e-5)
assert not used_way[pads].any()
assert not torch.allclose(used_way.mean(dim=1)[1], trained_way.mean(dim=1)[1], atol=0.05)

# %% [markdown]
# For words it is; for padding, the states become zeros. In translation nobody reads them. But a classifier
# that takes the *mean* over all positions sees one mean in training and another in use.
#
# **Exercise 3 (easy).** Write the mean that is the same in training and in use.


# %% tags=["exercise"]
def mean_of_words(states: Tensor, pads: Tensor) -> Tensor:
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model); zeros for an empty sentence."""
    raise NotImplementedError


# %% tags=["solution"]
def mean_of_words(states: Tensor, pads: Tensor) -> Tensor:
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model); zeros for an empty sentence."""
    words = (~pads).unsqueeze(-1)  # (B, S, 1)
    return (states * words).sum(dim=1) / words.sum(dim=1).clamp(min=1)


# %% tags=["exercise-test"]
torch.manual_seed(0)
states = torch.randn(3, 6, 8)
pads = torch.arange(6) >= torch.tensor([[6], [2], [0]])  # lengths 6, 2 and 0
assert_close(mean_of_words(states, pads)[0], states[0].mean(dim=0))
assert_close(mean_of_words(states, pads)[1], states[1, :2].mean(dim=0))
assert_close(mean_of_words(states, pads)[2], torch.zeros(8))

# %% [markdown]
# ## Which kernel runs when
#
# PyTorch has several *kernels* for attention. The fused one, FlashAttention
# ([15_going_fast](15_going_fast.ipynb)), never writes the matrix of weights to memory. We record the
# operations of two encoder and two decoder layers, which have six attentions.


# %%
class Calls(TorchDispatchMode):
    """Count the operations that PyTorch dispatches while it is on."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


# %%
KINDS = {"flash": "fused", "softmax": "unfused", "native_multi_head": "whole attention in one call"}
KINDS["encoder_layer_fwd"] = "whole layer in one call"


def kernels(dropout: float, training: bool, gradients: bool) -> Counter:
    """Count the kernels of one forward pass, by kind."""
    model = nn.Transformer(32, 4, 2, 2, 64, dropout=dropout, batch_first=True).train(training)
    x, causal = torch.randn(2, 5, 32), ~subsequent_mask(5)[0]
    with Calls() as calls, torch.set_grad_enabled(gradients):
        model(x, x, tgt_mask=causal)
    return Counter(
        {kind: sum(n for name, n in calls.names.items() if part in name) for part, kind in KINDS.items()}
    )


seen_kernels = {
    "training, dropout 0.1 (the default)": kernels(0.1, True, True),
    "training, dropout 0.0": kernels(0.0, True, True),
    "eval()": kernels(0.1, False, True),
    "eval() and no_grad": kernels(0.1, False, False),
}
for name, found in seen_kernels.items():
    print(f"{name:36}", *(f"{kind}: {n}" for kind, n in found.items() if n), sep="  ")
assert seen_kernels["training, dropout 0.1 (the default)"]["fused"] == 0
assert seen_kernels["training, dropout 0.0"]["fused"] == 6

# %% [markdown]
# On a CPU, as here, **the module with its default dropout never uses the fused kernel in training**,
# because the CPU's fused kernel has no dropout. With dropout 0 it does. In `eval()` without gradients, each
# encoder layer becomes one call, and so does each self-attention of the decoder; only the decoder's
# cross-attentions use the fused kernel. On a GPU, count again.
#
# ## A translator as it is often built
#
# Here is the usual construction: words as tokens, a `Dataset`, a `DataLoader`, everything sequence-first,
# and `nn.Transformer` in the middle. Our language is small enough to learn in seconds: one to four German
# numbers. *Siebenundvierzig* (47) is "seven and forty"; English turns it round and drops the "and".

# %%
UNITS = {
    "eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five",
    "sechs": "six", "sieben": "seven", "acht": "eight", "neun": "nine",
}  # fmt: skip
TENS = {
    "zwanzig": "twenty", "dreißig": "thirty", "vierzig": "forty", "fünfzig": "fifty",
    "sechzig": "sixty", "siebzig": "seventy", "achtzig": "eighty", "neunzig": "ninety",
}  # fmt: skip


# %%
def number(random: Random) -> tuple[str, str]:
    unit, tens = random.choice([*UNITS]), random.choice([*TENS])
    if random.random() < 0.5:
        return unit, UNITS[unit]
    return f"{unit} und {tens}", f"{TENS[tens]} {UNITS[unit]}"


def row(random: Random) -> tuple[str, str]:
    numbers = [number(random) for _ in range(random.randint(1, 4))]
    return tuple(" ".join(words) for words in zip(*numbers, strict=True))


random = Random(0)
pairs = [row(random) for _ in range(6400)]
held_out = list(dict.fromkeys(pair for pair in (row(random) for _ in range(400)) if pair not in pairs))[:200]
print(*held_out[0], sep="  |  ")
assert len(held_out) == 200


# %%
class Pairs(Dataset):
    """Pairs of sentences as pairs of rows of token ids."""

    def __init__(self, pairs: list[tuple[str, str]]):
        self.rows = [
            (torch.tensor([*german.encode(s), END]), torch.tensor([START, *english.encode(t), END]))
            for s, t in pairs
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.rows[i]


def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Source (src_len, B) and target (tgt_len, B), padded: rows of unequal length do not stack."""
    src, tgt = zip(*rows, strict=True)
    return pad_sequence(src, padding_value=PAD), pad_sequence(tgt, padding_value=PAD)


# %%
german = WordTokenizer.train([s for s, _ in pairs], language=None)  # cut at spaces
english = WordTokenizer.train([t for _, t in pairs], language=None)
_ = torch.manual_seed(0)
shuffled = DataLoader(Pairs(pairs), batch_size=32, shuffle=True, collate_fn=collate)
batches = list(shuffled)  # 200 batches, which all runs below see in the same order
tests = collate([*Pairs(held_out)])
assert len(batches) == 200

# %% [markdown]
# The model is `nn.Transformer` with the parts that it lacks. `read` is what the decoder reads; `mask`
# follows PyTorch's convention, True where hidden.


# %%
class NumberTranslator(nn.Module):
    """Embeddings, positions, nn.Transformer, and a linear map to the English words."""

    def __init__(self, d_model: int = 64):
        super().__init__()
        self.src_embed, self.tgt_embed = (nn.Embedding(len(t), d_model) for t in (german, english))
        self.register_buffer("positions", sinusoids(32, d_model).unsqueeze(1))  # (32, 1, d_model)
        self.transformer = nn.Transformer(d_model, 4, 1, 1, 2 * d_model, dropout=0.0)
        self.transformer.encoder.norm = self.transformer.decoder.norm = None  # section 3.1 has none
        self.output = nn.Linear(d_model, len(english))

    def forward(self, src: Tensor, read: Tensor, mask: Tensor | None) -> Tensor:
        """Source (S, B), what the decoder reads (T, B) -> logits (T, B, words)."""
        x = self.src_embed(src) + self.positions[: len(src)]  # (S, B, d_model)
        y = self.tgt_embed(read) + self.positions[: len(read)]  # (T, B, d_model)
        hidden = (src == PAD).T  # (B, S): masks are batch-first, whatever the rest is
        states = self.transformer(
            x, y, tgt_mask=mask, src_key_padding_mask=hidden, memory_key_padding_mask=hidden
        )
        return self.output(states)


# %%
def fit(model: nn.Module, loss_of, updates: int = 200, fixed: float | None = None) -> list[float]:
    """Train with equation 3's rate, its peak at update 100, or a fixed one; returns the losses."""
    optimizer = torch.optim.Adam(model.parameters(), lr=fixed or 1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = None if fixed else noam_scheduler(optimizer, model_size=64, factor=0.5, warmup=100)
    losses = []
    for src, tgt in islice(batches, updates):
        loss = loss_of(model, src, tgt)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# ## Five ways to fill two gaps
#
# `nn.Transformer` leaves two things open: what the decoder reads, and under which mask. The right way is
# the target without its last token (the shift), under the causal mask. We compare it with four others: no
# mask, which is the default; our mask as it is, the wrong way round; no shift; neither mask nor shift,
# which is `transformer(src, tgt)`.


# %%
def the_future(length: int) -> Tensor:
    return ~subsequent_mask(length)[0]


# Each gives what the decoder reads, what it must say, and how long a mask is made; targets are (T, B).
WAYS = {
    "right": (lambda tgt: tgt[:-1], the_future),
    "no mask": (lambda tgt: tgt[:-1], lambda length: None),
    "mask turned round": (lambda tgt: tgt[:-1], lambda length: subsequent_mask(length)[0]),
    "no shift": (lambda tgt: tgt[1:], the_future),
    "neither": (lambda tgt: tgt[1:], lambda length: None),
}


def loss_of(way: str):
    """The loss function of one of the five."""
    reads, mask_of = WAYS[way]

    def loss(model: NumberTranslator, src: Tensor, tgt: Tensor) -> Tensor:
        read = reads(tgt)
        logits = model(src, read, mask_of(len(read)))  # (T, B, words)
        return F.cross_entropy(logits.flatten(0, 1), tgt[1:].flatten(), ignore_index=PAD)

    return loss


# %% [markdown]
# Which of them would you trust after 100 updates?

# %%
trained, curves, ended = {}, {}, {}
for way in WAYS:
    torch.manual_seed(0)
    trained[way] = NumberTranslator()
    curves[way] = fit(trained[way], loss_of(way), updates=200 if way == "right" else 100)
    ended[way] = sum(curves[way][80:100]) / 20
    print(f"{way:18} loss, updates 81 to 100: ≈{ended[way]:.2f} nats a token")
assert 0.3 < ended["right"] < 1.5
assert ended["mask turned round"] < 0.5 * ended["right"]
assert max(ended["no shift"], ended["neither"]) < 0.5 * ended["right"]

# %% tags=["figure-five-ways"]
ax = plot_losses(curves, title="Whose loss would you trust?")
plt.show()
assert len(ax.get_lines()) == len(WAYS)

# %% [markdown]
# *Figure 2. Training loss of the five, the mean of the last ten updates. Three fall much faster than the
# right way; "no mask" is hard to tell from it.*
#
# The mask turned round hides the past and shows the future, so at each position the decoder sees the very
# word that it must say next. **A mask the wrong way round does not break training. It speeds it up.** A
# loss that is too low, the alarm of 07, does not help here: the right way goes towards 0 as well, because
# each source has only one translation.
#
# Now all five translate held-out sentences. `nn.Transformer` has no decoding, so we write greedy decoding.
# Each model gets the mask that it was trained with, or the right one, whichever scores better.


# %%
def translate(model: NumberTranslator, src: Tensor, mask_of) -> list[str]:
    """Greedy, the whole beginning again for each word: source (S, B) -> B sentences."""
    said = torch.full((1, src.size(1)), START)  # (1, B)
    with evaluating(model):
        for _ in range(12):
            logits = model(src, said, mask_of(len(said)))  # (T, B, words)
            said = torch.cat([said, logits[-1:].argmax(dim=-1)])
    rows = [column[: column.index(END)] if END in column else column for column in said.T.tolist()]
    return [english.decode(column) for column in rows]


# %%
said = translate(trained["right"], tests[0], the_future)
wanted = [t for _, t in held_out]
scores = {}
for way in WAYS:
    tried = (translate(trained[way], tests[0], mask) for mask in (WAYS[way][1], the_future))
    scores[way] = max(sum(map(str.__eq__, sentences, wanted)) for sentences in tried) / len(wanted)
    print(f"{way:18} ≈{scores[way]:.0%} of the translations are right")
    assert (scores[way] > 0.5) == (way == "right")
assert max(score for way, score in scores.items() if way != "right") < 0.15

# %% [markdown]
# Only the right way translates. (It had 200 updates and the others 100. After 100 it has ≈24%; after 200
# the others still have 0%.)
#
# ### A check that takes no training
#
# An auto-regressive decoder (section 3.1) predicts token $t+1$ from the target up to token $t$. So replace
# token $t+1$, its answer, and all that follows *in the data*, before any shift or mask; prediction $t$ must
# not change. A model with random weights will do:


# %%
def overheard(model: NumberTranslator, way: str, src: Tensor, tgt: Tensor) -> int:
    """How many predictions move when their answer, and what follows it, is replaced."""
    reads, mask_of = WAYS[way]
    moved = 0
    with evaluating(model):
        for t in range(len(tgt) - 1):
            spoilt = torch.cat([tgt[: t + 1], torch.full_like(tgt[t + 1 :], UNK)])
            one, other = (model(src, reads(rows), mask_of(len(tgt) - 1))[t] for rows in (tgt, spoilt))
            moved += not torch.allclose(one, other, atol=1e-5)
    return moved


torch.manual_seed(0)
src, tgt = (side[:, :1] for side in collate([max(Pairs(held_out).rows, key=lambda pair: len(pair[1]))]))
leaks = {way: overheard(NumberTranslator(), way, src, tgt) for way in WAYS}
for way, count in leaks.items():
    print(f"{way:18} predictions that depend on their own answer: {count} of {len(tgt) - 1}")
n = len(tgt) - 1
assert list(leaks.values()) == [0, n - 1, n - 1, n, n]

# %% [markdown]
# The check needs no update, and belongs in the tests of every program that trains a decoder. (8 and not 9,
# because the decoder does not read the last answer, `</s>`.)
#
# ### The weights come home
#
# `from_torch` copies the two stacks of the trained translator into our model. We copy the three matrices at
# the ends by hand. Our embeddings multiply by $\sqrt{d_{model}}$ (section 3.4) and those of
# `NumberTranslator` do not, so we divide its tables first. Then the package can search, cache (11) and show
# attention (13).

# %%
theirs = trained["right"].eval()
ours = from_torch(theirs.transformer, len(german), len(english))
with torch.no_grad():
    for embed, table in ((ours.src_embed, theirs.src_embed), (ours.tgt_embed, theirs.tgt_embed)):
        embed[0].lut.weight.copy_(table.weight / math.sqrt(64))
ours.generator.proj.load_state_dict(theirs.output.state_dict())
batch = Batch(tests[0].T, tests[1].T, pad=PAD)
rows = greedy_decode(ours, batch.src, batch.src_mask, 13, START, END)
same = sum(english.decode(row) == sentence for row, sentence in zip(rows.tolist(), said, strict=True))
print(f"≈{same} of {len(said)} translations are the same")
assert same > 196  # where two words are all but equally likely, rounding may choose another one

# %% [markdown]
# ## What the warm-up is for
#
# > "This corresponds to increasing the learning rate linearly for the first *warmup_steps* training steps"
# > (section 5.3)
#
# With 100 warm-up steps, our schedule's peak is $0.5\cdot64^{-0.5}\cdot100^{-0.5}=0.00625$. Why not start
# there? We train three post-norm layers with the warm-up, to beyond its peak, and with three fixed rates:
# the peak itself, about half of it (0.003), and about a quarter of it (0.0016), which is the mean rate of
# the first half of the warm-up.


# %%
def number_model() -> nn.Module:
    """Our own model for the numbers, three layers, post-norm."""
    torch.manual_seed(0)
    return make_model(len(german), len(english), N=3, d_model=64, d_ff=128, h=4, dropout=0.0)


def our_loss(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
    """Cross-entropy of our model on a batch that is sequence-first."""
    batch = Batch(src.T, tgt.T, pad=PAD)
    log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
    return F.nll_loss(log_probs.flatten(0, 1), batch.tgt_y.flatten(), ignore_index=PAD)


rates = {"warm-up to 0.00625": None, "fixed 0.00625": 0.00625}
rates |= {"fixed 0.003": 0.003, "fixed 0.0016": 0.0016}
runs = {}
for name, fixed in rates.items():
    runs[name] = fit(number_model(), our_loss, updates=100 if fixed else 140, fixed=fixed)
    print(f"{name:20} loss, updates 91 to 100: ≈{sum(runs[name][90:100]) / 10:.2f}")
last = {name: sum(losses[90:100]) / 10 for name, losses in runs.items()}
assert last.pop("fixed 0.00625") > 1.8
assert last.pop("fixed 0.003") < 2.3
assert max(last.values()) < 1.4

# %% tags=["figure-warm-up"]
words = torch.cat([tgt[1:].flatten() for _, tgt in batches])
shares = words[words != PAD].bincount() / (words != PAD).sum()
frequencies = torch.special.entr(shares).sum().item()
ax = plot_losses(runs, title="Three post-norm layers, four learning rates")
ax.axhline(frequencies, color="dimgrey", lw=1)
ax.text(140, frequencies + 0.05, "knowing how frequent each word is", color="dimgrey", ha="right")
plt.show()
assert abs(sum(runs["fixed 0.00625"][-30:]) / 30 - frequencies) < 0.8

# %% [markdown]
# *Figure 3. With the rate fixed at the peak, the loss stays near what word frequencies alone would reach
# (grey line). The run with warm-up passes the same rate at update 100 and goes on falling.*
#
# So the peak rate itself is not too high: the same rate prevents learning at the start and is harmless
# later. But **a fixed rate of a quarter of the peak learns as well, in so few updates**. The warm-up makes
# a higher rate possible than one could begin with; whether the higher rate pays shows only in a longer run
# ([08_training_recipe](08_training_recipe.ipynb)). With four initialisations, the loss at update 100 was
# 2.3 to 2.7 at the fixed peak, 0.7 to 1.5 at 0.003, 0.5 to 0.7 at 0.0016, and 0.8 to 1.0 with the warm-up.
#
# <details><summary>Further: other checkpoints</summary>
#
# - `from_annotated` reads checkpoints of "The Annotated Transformer" (pre-norm, with a layer norm of its
#   own).
# - `load_marian("Helsinki-NLP/opus-mt-en-de")` from `annotated.interop` reads Marian models, of which the
#   University of Helsinki has published more than a thousand.
#
# </details>
#
# Next: where the time goes, [15_going_fast](15_going_fast.ipynb).
