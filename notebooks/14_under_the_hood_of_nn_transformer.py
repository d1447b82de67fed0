# %% [markdown]
# # 14 · Under the hood of nn.Transformer
#
# **We move a model's weights into PyTorch's own Transformer and get the same numbers out, find wrong masks
# under which the loss falls faster and nothing is translated, and see which kernel runs when.**
#
# Previous: [13_reading_attention](13_reading_attention.ipynb) · Next:
# [15_going_fast](15_going_fast.ipynb) · The model that we compare with:
# [06_the_full_model](06_the_full_model.ipynb)
#
# *24 minutes to read, a minute to run, the exercises extra.*
#
# - **Before:** you know the whole model (06), masks (02, 07), and the training loop (09).
# - **After:** you can use `nn.Transformer` without its traps, move weights between it and this package, and
#   test that a decoder does not see its answer.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017).

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import warnings
from collections import Counter
from random import Random

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

# %%
from annotated import (
    WordTokenizer,
    evaluating,
    make_model,
    noam_scheduler,
    sinusoids,
    subsequent_mask,
)
from annotated.interop import from_torch, to_torch
from annotated.interop.torch_transformer import torch_names
from annotated.plots import setup_notebook
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
# softmax, the choice of masks and decoding are left to you**: of the paper's Figure 1 it has the two stacks.
# There is no key/value cache either (11). PyTorch's documentation calls the module "a reference
# implementation for foundational understanding" with "only limited features", and recommends building an
# efficient layer from PyTorch's parts instead.
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
# By default the module takes `(len, batch, d_model)`, *sequence first*. It read our tensor as five sentences
# of three words: all first words, all second words, and so on. Words of different sentences attended to each
# other, and there was no error. PyTorch complains only if source and target differ in length (for it, in
# batch size), or if a mask has the wrong shape. With equal lengths and no masks, neither happens. So use
# `batch_first=True`, or put the sequence first everywhere, as older code does.
#
# The module does not give its attention weights either. Its layers call their attentions with
# `need_weights=False`, because this allows a faster kernel (below), and no argument changes that:

# %%
across = theirs.decoder.layers[0].multihead_attn  # the decoder's attention to the source
across.register_forward_hook(lambda module, given, gave: print("output", *gave[0].shape, "weights", gave[1]))
_ = theirs(torch.randn(5, 3, 32), torch.randn(4, 3, 32))

# %% [markdown]
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
# biases are 0 and its gains 1, so we would not notice two that we swapped. `nn.Transformer` also adds a
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
print(f"largest difference of the outputs: ≈{gap[0]:.1f} before, below 1e-4 after")
assert gap[0] > 0.3 > 1e-4 > gap[1]

# %% [markdown]
# The outputs agree. Both sides call PyTorch's function for attention itself, so the comparison tests the
# rest: the layout of the weights, the masks, the norms. The package moves weights both ways, with
# `to_torch(model)` and `from_torch(transformer, src_vocab, tgt_vocab)` (in `annotated.interop`). So a model
# trained in PyTorch *without those two norms* gets our search and cache (11) and our pictures (13);
# `from_torch` refuses one with them. You copy its embeddings and output map. Ours multiply embeddings by
# $\sqrt{d_{model}}$ (section 3.4): if yours do not, divide the tables by it. Does every weight of the stacks
# come back as it was?

# %%
back = from_torch(batched, 11, 11).state_dict()
stacks = [name for name in own if name.startswith(("encoder.", "decoder."))]
equal = sum(torch.equal(back[name], own[name]) for name in stacks)
print(f"to PyTorch and back: {equal} of {len(stacks)} tensors are equal")
assert equal == len(stacks)

# %% [markdown]
# ## Dropout
#
# > "We performed only a small number of experiments to select the dropout, both attention and residual
# > (section 5.4), learning rates and beam size" (section 6.3)
#
# Section 5.4 names two places: each sub-layer's output, and embeddings plus positions. The sentence above,
# about another task, adds *attention* dropout, on the attention weights. The paper gives no rate for it. The
# authors' code, tensor2tensor, has 0 in `transformer_base_v1` and 0.1 in `transformer_base_v2`. Here
# `attention_dropout` is 0 unless you set it. `nn.Transformer` has one number for three places:

# %%
layer = nn.Transformer(32, 4, 2, 2, 64, dropout=0.1).encoder.layers[0]
rates = {"a sub-layer's output": layer.dropout1.p, "attention weights": layer.self_attn.dropout}
rates["inside the feed-forward network"] = layer.dropout.p
for where, rate in rates.items():
    print(f"dropout {rate}: {where}")
noisy = nn.Transformer(32, 4, 2, 2, 64, dropout=0.1)
for module in noisy.modules():
    if isinstance(module, nn.Dropout):
        module.p = 0.0
x = torch.randn(5, 3, 32)
gap = (noisy(x, x) - noisy(x, x)).abs().max().item()
print(f"every nn.Dropout set to 0, in training: two answers to one input differ by up to ≈{gap:.1f}")
assert set(rates.values()) == {0.1}
assert gap > 0.05

# %% [markdown]
# The answers still differ. (The dropout inside the feed-forward network is not in the paper, but in
# `transformer_base_v2`.)
#
# **Exercise 1 (medium).** Which dropout remains? Switch it off, too, so that the two answers are equal.

# %% tags=["solution"]
for module in noisy.modules():
    if isinstance(module, nn.MultiheadAttention):
        module.dropout = 0.0  # the dropout on the attention weights: a plain number, not an nn.Dropout
print("largest difference:", (noisy(x, x) - noisy(x, x)).abs().max().item())
assert torch.equal(noisy(x, x), noisy(x, x))

# %% [markdown]
# ## Six masks
#
# `nn.Transformer` takes six masks and applies none by itself (`B` sentences, of `S` source and `T` target
# tokens):
#
# | argument | shape | what it hides | here |
# | --- | --- | --- | --- |
# | `src_mask` | `(S, S)` | nothing, in the paper | not given |
# | `tgt_mask` | `(T, T)` | the future | `future` |
# | `memory_mask` | `(T, S)` | nothing, in the paper | not given |
# | `src_key_padding_mask` | `(B, S)` | the source's padding, in the encoder | `hidden` |
# | `tgt_key_padding_mask` | `(B, T)` | the target's padding | see below |
# | `memory_key_padding_mask` | `(B, S)` | the source's padding, in the decoder | `hidden` again |
#
# It can write one of them, the causal one: `nn.Transformer.generate_square_subsequent_mask(T)`. That mask is
# made of numbers, 0 and $-\infty$, which PyTorch adds to the scores. Ours are Boolean, and mixing the two
# kinds in one call is deprecated.
#
# We start from the right call, leave one out or add one, and compare the decoder's outputs at real words.
# Does the decoder need a mask for padding that is already hidden from the encoder?

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
# The decoder does need it: **the source's mask must be given twice.** Without the second one, the
# decoder attends to padding without an error, and a translation depends on how long the other sentences of
# its batch are. The target's padding needs no mask as long as it is on the right, because the causal mask
# already hides it from every real word (07).
#
# The default of `tgt_mask` is `None`. So `transformer(src, tgt)`, the simplest call, is **not** causal.
#
# ### Which way round
#
# `True` means "may attend" in this package and in `F.scaled_dot_product_attention`, but "hidden" in
# `nn.Transformer` (02). If we pass our causal mask as it is, each position sees only what comes after it, and
# the last one sees nothing. We expect a NaN there.

# %%
flipped = batched(x, y, tgt_mask=tgt_mask[0], **padding)
with torch.no_grad():
    quiet = batched(x, y, tgt_mask=tgt_mask[0], **padding)
print(f"NaN: {flipped.isnan().sum()} numbers; without gradients ≈{quiet.isnan().float().mean():.0%} of them")
print(f"with gradients, the outputs differ by up to ≈{(flipped - good).abs().max():.1f}")
assert 0.1 < (flipped - good).abs().max() < torch.inf

# %% [markdown]
# With gradients there is no NaN and no warning, only wrong outputs: that kernel gives zeros for an empty row.
# Without gradients, in `eval()` and given `batch_first=True`, another kernel runs (below). In PyTorch 2.13 it
# gives NaN for the empty row, and the second layer spreads it everywhere.
#
# ### One empty row, asked five ways
#
# In an empty sentence all keys are padding: `key_padding_mask` is `True` everywhere, so the softmax has no
# key left (02). We ask one layer in five ways; the second sentence of the batch is empty.

# %% tags=["nbval-ignore-output"]
_ = torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
stack = nn.TransformerEncoder(layer, 1)  # holds a copy of the layer
x, empty = torch.randn(2, 5, 32), torch.tensor([[False] * 5, [True] * 5])
answers = {"layer, in training": layer.train()(x, src_key_padding_mask=empty)}
with evaluating(layer), evaluating(stack):
    answers["layer, eval and no_grad"] = layer(x, src_key_padding_mask=empty)
    answers["the same in nn.TransformerEncoder"] = stack(x, src_key_padding_mask=empty)
attend = layer.self_attn
answers["its attention alone, in training"] = attend(x, x, x, key_padding_mask=empty)[0]
answers["... with need_weights=False"] = attend(x, x, x, key_padding_mask=empty, need_weights=False)[0]
kinds = {}
print("PyTorch", torch.__version__.partition("+")[0])
for name, answer in answers.items():
    states = answer[1]  # (5, 32), of the empty sentence
    kinds[name] = "NaN" if states.isnan().any() else "numbers" if states.any() else "zeros"
    print(f"{name:35} {kinds[name]}")
assert kinds["layer, in training"] == "numbers"
assert kinds["... with need_weights=False"] == "zeros"

# %% [markdown]
# The layer and the input are the same. But in PyTorch 2.13 the answer depends on whether we train, whether
# the layer is in a stack (the next section says why), and **whether somebody asks for the attention
# weights**. (In training, the layer's *numbers* come from its residual connection.) A model that trains
# well can give NaN in validation. Other versions may answer otherwise: the NaN of attention alone is a
# reported fault ([issue 160064](https://github.com/pytorch/pytorch/issues/160064)). So avoid empty rows:
# here every source ends with `</s>`, even an empty one.
#
# ### Padding that vanishes
#
# In `eval()`, without gradients, with a padding mask and `batch_first=True`, `nn.TransformerEncoder` skips
# the padding: it packs the real words into a *nested tensor* and unpacks it at the end. (It does so only for
# post-norm, an even number of heads and padding on the right, with no `src_mask` and no reduced precision.
# PyTorch warns that nested tensors are a prototype; our first cells hide the warning.) Is the output the
# same?

# %%
_ = torch.manual_seed(0)
transformer = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
x, pads = torch.randn(2, 6, 32), torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
trained_way = transformer.encoder(x, src_key_padding_mask=pads)
with evaluating(transformer):
    used_way = transformer.encoder(x, src_key_padding_mask=pads)
for name, states in (("train()", trained_way), ("eval(), no_grad", used_way)):
    spread = f"{states[~pads].std():.1f} for words, {states[pads].std():.1f} for padding"
    print(f"{name:16} std {spread}; sentence 1: first number of the mean {states.mean(dim=1)[1, 0]:.2f}")
assert_close(used_way[~pads], trained_way[~pads], rtol=1e-4, atol=1e-5)
assert not used_way[pads].any()
assert not torch.allclose(used_way.mean(dim=1)[1], trained_way.mean(dim=1)[1], atol=0.05)

# %% [markdown]
# For words it is; padding becomes zeros, to which the final norm adds its bias, still 0 here. Translation
# ignores them, but a classifier's *mean* over all positions is one in training and another in use.
#
# **Exercise 2 (easy).** Write the mean that is the same in training and in use.


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
# A *kernel* is a compiled routine for one operation. PyTorch has several for attention. A *fused* one, on a
# CPU FlashAttention ([15_going_fast](15_going_fast.ipynb)), does all steps at once and never writes the
# matrix of weights to memory. PyTorch *dispatches* each call, that is, it chooses the kernel. We record its
# choices for two encoder and two decoder layers, which have six attentions.

# %%
KINDS = {"flash": "fused", "softmax": "unfused", "native_multi_head": "whole attention in one call"}
KINDS |= {"encoder_layer_fwd": "whole layer in one call", "efficient": "fused", "cudnn": "fused"}


class Kernels(TorchDispatchMode):
    """Count the attention kernels that run while it is on, by kind."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.counts.update(kind for part, kind in KINDS.items() if part in name)
        return func(*args, **(kwargs or {}))


# %%
CASES = {  # dropout, training, gradients
    "training, dropout 0.1 (the default)": (0.1, True, True),
    "training, dropout 0.0": (0.0, True, True),
    "eval()": (0.1, False, True),
    "eval() and no_grad": (0.1, False, False),
}
x, ran = torch.randn(2, 5, 32), {}
for name, (dropout, training, gradients) in CASES.items():
    transformer = nn.Transformer(32, 4, 2, 2, 64, dropout=dropout, batch_first=True).train(training)
    with Kernels() as kernels, torch.set_grad_enabled(gradients):
        transformer(x, x, tgt_mask=future)
    ran[name] = kernels.counts
    print(f"{name:36}", *(f"{kind}: {n}" for kind, n in kernels.counts.items()), sep="  ")
assert ran["training, dropout 0.1 (the default)"]["fused"] == 0
assert ran["training, dropout 0.0"]["fused"] == 6

# %% [markdown]
# On a CPU, as here, **the module with its default dropout never uses the fused kernel in training**, because
# the CPU's fused kernel has no dropout. With dropout 0 it does. In `eval()` without gradients and with
# `batch_first=True`, each encoder layer becomes one call, and, as our mask is Boolean, so does each
# self-attention of the decoder. On a CPU, "one call" is not "fused": it writes the weights out. A GPU has
# other fused kernels (in `KINDS`, not run here): count again there.
#
# ## A translator as it is often built
#
# Here is the usual construction: words as tokens, a `DataLoader`, everything sequence first, and
# `nn.Transformer` in the middle. Our language is small enough to learn in seconds: one to four German
# numbers. *Siebenundvierzig* (47) is "seven and forty", which we write as three words; English turns it
# round and drops the "and".

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
    return f"{'ein' if unit == 'eins' else unit} und {tens}", f"{TENS[tens]} {UNITS[unit]}"


def row(random: Random) -> tuple[str, str]:
    numbers = [number(random) for _ in range(random.randint(1, 4))]
    return tuple(" ".join(words) for words in zip(*numbers, strict=True))


random = Random(0)
pairs = [row(random) for _ in range(6400)]
held_out = list(dict.fromkeys(pair for pair in (row(random) for _ in range(400)) if pair not in pairs))[:200]
print(*held_out[0], sep="  |  ")
assert len(held_out) == 200


# %%
def encode(pairs: list[tuple[str, str]]) -> list[tuple[Tensor, Tensor]]:
    """Pairs of sentences as pairs of rows of token ids; a DataLoader takes such a list."""
    return [
        (torch.tensor([*german.encode(s), END]), torch.tensor([START, *english.encode(t), END]))
        for s, t in pairs
    ]


def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Source (src_len, B) and target (tgt_len, B), padded: rows of unequal length do not stack."""
    src, tgt = zip(*rows, strict=True)
    return pad_sequence(src, padding_value=PAD), pad_sequence(tgt, padding_value=PAD)


# %%
german = WordTokenizer.train([s for s, _ in pairs], language=None)  # cut at spaces
english = WordTokenizer.train([t for _, t in pairs], language=None)
_ = torch.manual_seed(0)
shuffled = DataLoader(encode(pairs), batch_size=32, shuffle=True, collate_fn=collate)
batches = list(shuffled)  # 200 batches, which all runs below see in the same order
tests = collate(encode(held_out))

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
        padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        return self.output(self.transformer(x, y, tgt_mask=mask, **padding))


# %% [markdown]
# ## Five ways to fill two gaps
#
# `nn.Transformer` leaves two things open: what the decoder reads, and under which mask. The right way is
# the target without its last token (the shift), under the causal mask. We compare it with four others:
#
# - *no mask*, which is the default;
# - *inverted mask*: our mask as it is, which PyTorch reads the wrong way round;
# - *no shift*: the decoder reads the very tokens that it must predict;
# - *neither* shift nor mask, as in `transformer(src, tgt)`.


# %%
def the_future(length: int) -> Tensor:
    return ~subsequent_mask(length)[0]


# For each: what the decoder reads of the target (T, B), and the mask for a given length.
WAYS = {
    "right": (lambda tgt: tgt[:-1], the_future),
    "no mask": (lambda tgt: tgt[:-1], lambda length: None),
    "inverted mask": (lambda tgt: tgt[:-1], lambda length: subsequent_mask(length)[0]),
    "no shift": (lambda tgt: tgt[1:], the_future),
    "neither": (lambda tgt: tgt[1:], lambda length: None),
}


# %%
def fit(model: NumberTranslator, way: str) -> list[float]:
    """Train once through the batches, with equation 3's learning rate; returns the losses."""
    reads, mask_of = WAYS[way]
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = noam_scheduler(optimizer, model_size=64, factor=0.5, warmup=100)
    losses = []
    for src, tgt in batches:
        read = reads(tgt)
        logits = model(src, read, mask_of(len(read)))  # (T, B, words)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# All five train from the same weights on the same batches. Which of the losses would you trust?

# %%
trained, curves, halfway, ended = {}, {}, {}, {}
for way in WAYS:
    torch.manual_seed(0)
    trained[way] = NumberTranslator()
    curves[way] = fit(trained[way], way)
    halfway[way], ended[way] = (sum(curves[way][end - 20 : end]) / 20 for end in (100, 200))
    print(f"{way:14} loss after 100 updates ≈{halfway[way]:.2f}, after 200 ≈{ended[way]:.3f} nats a token")
assert 0.3 < halfway["right"] < 1.5
assert 0.5 < halfway["no mask"] / halfway["right"] < 2
assert max(halfway[way] for way in ("inverted mask", "no shift", "neither")) < 0.3 * halfway["right"]
assert ended["right"] == max(ended.values())

# %% tags=["figure-five-ways"]
for (way, losses), line in zip(curves.items(), ("-", "--", "-.", ":", (0, (5, 1, 1, 1))), strict=True):
    means = torch.tensor(losses).unfold(0, 10, 1).mean(dim=-1)  # of the last ten updates
    plt.plot(range(10, len(losses) + 1), means, linestyle=line, label=way)
plt.title("Whose loss would you trust?")
plt.xlabel("update")
plt.ylabel("loss (nats a target token)")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 1. Training loss of the five, the mean of the last ten updates. Three fall much faster than the
# right way ("no shift" and "neither" lie on each other). "No mask" stays near it for 100 updates.*
#
# The inverted mask hides the past and shows the future, so at all positions but the last the decoder sees the
# very word that it must predict. **A mask the wrong way round raises no error, and the loss falls faster.**
# This is *leakage*: the model reads its answer.
#
# A practised eye would notice how fast those three fall. But *no mask*, seen alone, looks normal, and there,
# too, the decoder sees its answer. (We did not test why it is so slow to use it.) Nor is a loss near 0 an
# alarm by itself, as it was in 07: here the right way falls far, too, because each source has only one
# translation.
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
wanted = [t for _, t in held_out]
scores = {}
for way in WAYS:
    tried = [translate(trained[way], tests[0], mask) for mask in (WAYS[way][1], the_future)]
    scores[way] = max(sum(map(str.__eq__, sentences, wanted)) for sentences in tried) / len(wanted)
    variety = sum(len(set(sentence.split())) for sentence in tried[1]) / len(wanted)
    print(f"{way:14} ≈{scores[way]:.0%} of the translations right, on average ≈{variety:.1f} different words")
    assert scores[way] > 0.5 and variety > 3 if way == "right" else scores[way] < 0.15 and variety < 2

# %% [markdown]
# After equal training, only the right way translates. The others write nothing, or repeat a word: they could
# read their answer in training, and now there is none (two never even met `<s>`).
#
# ### A check that takes no training
#
# An auto-regressive decoder (section 3.1) predicts token $t+1$ from the target up to token $t$. So replace
# token $t+1$, which is the answer, and all tokens after it *in the data*, before any shift or mask.
# Prediction $t$ must not change. A model with random weights will do:


# %%
def overheard(model: NumberTranslator, way: str, src: Tensor, tgt: Tensor) -> int:
    """How many predictions move when their answer, and what follows it, is replaced."""
    reads, mask_of = WAYS[way]
    moved = 0
    with evaluating(model):
        for t in range(len(tgt) - 1):
            replaced = torch.cat([tgt[: t + 1], torch.full_like(tgt[t + 1 :], UNK)])
            one, other = (model(src, reads(rows), mask_of(len(tgt) - 1))[t] for rows in (tgt, replaced))
            moved += not torch.allclose(one, other, atol=1e-5)
    return moved


torch.manual_seed(0)
src, tgt = (side[:, :1] for side in collate([max(encode(held_out), key=lambda pair: len(pair[1]))]))
leaks = {way: overheard(NumberTranslator(), way, src, tgt) for way in WAYS}
for way, count in leaks.items():
    print(f"{way:14} predictions that depend on their own answer: {count} of {len(tgt) - 1}")
n = len(tgt) - 1
assert list(leaks.values()) == [0, n - 1, n - 1, n, n]

# %% [markdown]
# The check needs no update, and belongs in the tests of every program that trains a decoder. (8 and not 9,
# because with the shift the decoder never reads the last answer, `</s>`.)
#
# **Exercise 3 (hard).** The check finds a mask that shows too much. Does it find one that shows too
# little? Add such a way to `WAYS`, and count with `overheard`.

# %% tags=["solution"]
WAYS["only itself"] = (WAYS["right"][0], lambda length: torch.eye(length) == 0)  # True where hidden
count = overheard(NumberTranslator(), "only itself", src, tgt)
print(f"each position sees only itself: {count} of {n} predictions depend on their own answer")
assert count == 0  # not noticed: a second check must replace a token *before* t, and prediction t must move

# %% [markdown]
# <details><summary>Further: other checkpoints</summary>
#
# In `annotated.interop`, `from_annotated` reads checkpoints of "The Annotated Transformer", and
# `load_marian("Helsinki-NLP/opus-mt-en-de")` reads Marian models.
#
# </details>
#
# Next: where the time goes, [15_going_fast](15_going_fast.ipynb).
