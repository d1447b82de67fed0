# %% [markdown]
# # 17 · Since 2017
#
# **The paper ends with three promises. What became of them, and what has replaced its parts since? RMSNorm,
# rotary positions, grouped-query attention, SwiGLU, one stack, AdamW with a cosine, sampling: about 20
# lines each. In a race of 300 updates two of them pay, and both together about as much as one.**
#
# Previous: [16_another_task](16_another_task.ipynb) · Back to the start:
# [00_start_here](00_start_here.ipynb)
#
# *24 minutes to read, half a minute to run.*
#
# - **Before:** you know the model ([06](06_the_full_model.ipynb)), how it is trained
#   ([08](08_training_recipe.ipynb)) and scored ([10](10_translation.ipynb)).
# - **After:** you can say what the parts of a language model of today replaced and which property each
#   has, and put one of your own into the package.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 7.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from collections.abc import Callable
from statistics import mean, variance

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.testing import assert_close

# %%
from annotated import (
    Batch,
    DecoderCache,
    EncoderDecoder,
    MultiHeadedAttention,
    Parts,
    TransformerConfig,
    evaluating,
    load_pretrained,
    make_model,
    sinusoids,
    subsequent_mask,
    variant,
)
from annotated.plots import plot_mask, setup_notebook, show_source
from annotated.tokenizers import END, PAD, START
from annotated.translation.evaluate import recorded

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread
_ = torch.manual_seed(0)

# %% [markdown]
# ## Three promises
#
# > "... We plan to extend the Transformer to problems involving input and output modalities other than text
# > and to investigate local, restricted attention mechanisms to efficiently handle large inputs and outputs
# > such as images, audio and video. Making generation less sequential is another research goals of ours."
# > (section 7)
#
# **Other modalities: kept.** An image cut into squares is a sequence (the Vision Transformer, Dosovitskiy
# et al., 2021), and so is sound (Whisper, Radford et al., 2022).
#
# **Local attention: kept in part.** Windows came (Longformer, Beltagy et al., 2020), often in every other
# layer. Exact attention became affordable, too: FlashAttention (Dao et al., 2022) never writes the $n
# \times n$ weights to memory ([15](15_going_fast.ipynb)).
#
# **Less sequential generation: kept in part.** Some models write all tokens at once (Gu et al., 2018), but
# lose quality by it. *Speculative decoding* is common (Leviathan et al., 2023): a small model proposes
# tokens, the large one checks them in one pass, and the output has the same distribution as before.
#
# Not foreseen: one stack, trained to continue text, became the common form of the model.
#
# ## How a part is changed
#
# A model of this package is put together by `Parts`. A subclass builds some parts differently, and the
# decorator `@variant` gives it a name, which `make_model(..., parts="name")` takes.

# %%
show_source(Parts, docstring=False)

# %% [markdown]
# ## The norm: RMSNorm
#
# > "... the output of each sub-layer is LayerNorm(x + Sublayer(x)) ..." (section 3.1)
#
# A layer norm subtracts the mean of a vector's entries, divides by their standard deviation, then applies
# a learned gain and bias. **RMSNorm** (Zhang and Sennrich, 2019) leaves out mean and bias: it is cheaper,
# and in their experiments about as good.


# %%
class RMSNorm(nn.Module):
    """Divide a vector by the root of the mean square of its entries, then scale each entry."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return self.gain * x * (x.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()


@variant("rms norm")
class WithRMSNorm(Parts):
    def norm(self) -> nn.Module:
        return RMSNorm(self.config.d_model)


# %% [markdown]
# **Property: the scale of the input does not matter.** That it shares with the layer norm. A constant added
# to all entries does matter, unlike there:

# %%
layer_norm, rms_norm = nn.LayerNorm(64), RMSNorm(64)
x = torch.randn(5, 64)
assert_close(rms_norm(x), nn.RMSNorm(64, eps=1e-6)(x))  # PyTorch has one, too
assert_close(rms_norm(100 * x), rms_norm(x))
assert_close(layer_norm(x + 3), layer_norm(x), atol=1e-4, rtol=1e-4)
moved = (rms_norm(x + 3) - rms_norm(x)).abs().max()
print(f"x + 3 instead of x changes an entry of RMSNorm by up to ≈{moved:.1f}")
assert moved > 1
kinds = [type(m) for m in make_model(9, 9, N=2, d_model=8, d_ff=8, h=2, parts="rms norm").modules()]
assert (kinds.count(RMSNorm), kinds.count(nn.LayerNorm)) == (2 * 2 + 2 * 3, 0)  # two a layer, or three

# %% [markdown]
# ## Positions: rotary
#
# > "We chose this function because we hypothesized it would allow the model to easily learn to attend by
# > relative positions ..." (section 3.5)
#
# The sines *allow* it. **Rotary positions** (RoPE; Su et al., 2021) build it in. Nothing is added to the
# embeddings. Instead each pair of entries of a query or key, a point in a plane, is turned by the angle
# *position × frequency*. A dot product stays the same if both points turn alike, so of a query turned by
# $m\theta$ and a key by $n\theta$ only the angle $(m - n)\theta$ counts. (The code uses complex numbers.)
# (We pair neighbours; Llama's code on Hugging Face pairs $i$ with $i + d_k/2$.)


# %%
def turned(x: Tensor, first: int = 0) -> Tensor:
    """Turn each pair of entries of x (..., len, d_k) by an angle: its position times a frequency."""
    d_k, places = x.size(-1), torch.arange(first, first + x.size(-2))
    frequencies = 10000.0 ** (-torch.arange(0, d_k, 2) / d_k)  # (d_k / 2,)
    turns = torch.polar(torch.ones(()), places.unsqueeze(1) * frequencies)  # (len, d_k / 2), complex
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # (..., len, d_k / 2)
    return torch.view_as_real(pairs * turns).flatten(-2)


class RotaryAttention(MultiHeadedAttention):
    """Turns queries and keys by their positions; the last query stands where the last key does."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend(turned(q, k.size(-2) - q.size(-2)), turned(k), v, mask)


# %%
class NoPositions(nn.Dropout):  # stands where the sines were added
    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return super().forward(x)


@variant("rotary")
class WithRotary(Parts):
    def attention(self) -> nn.Module:
        return RotaryAttention(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module:
        return super().attention()  # a source and a target have no distance

    def positions(self) -> nn.Module:
        return NoPositions(self.config.dropout)


# %% [markdown]
# **Property: for two given words, a score depends only on how far, and to which side, one stands from the
# other.** We put one word at 24 positions and score each with each, once with sines added before random
# projections, once rotated after them.

# %% tags=["figure-rotary"]
word, to_query, to_key = torch.randn(64), *(torch.randn(2, 64, 64) / 8)
summed = word + sinusoids(24, 64)  # (24, 64)
added = (summed @ to_query) @ (summed @ to_key).T / 8  # (24, 24)
rotated = turned((word @ to_query).expand(24, 64)) @ turned((word @ to_key).expand(24, 64)).T / 8
fig, axes = plt.subplots(1, 2, figsize=(10, 4.6))
for ax, scores, title in zip(axes, (added, rotated), ("sines added", "rotated"), strict=True):
    image = ax.imshow(scores, cmap="viridis")
    ax.set(title=f"One word, {title}", xlabel="position of the key", ylabel="position of the query")
    fig.colorbar(image, ax=ax, shrink=0.8, label="score")
plt.show()
spread = [max(s.diagonal(i).std().item() for i in range(-20, 21)) for s in (added, rotated)]
print("standard deviation along a diagonal, at most: ≈{:.2f} and ≈{:.7f}".format(*spread))
assert spread[1] < 1e-4 < 0.05 < spread[0]

# %% [markdown]
# *Figure 1. Scores of one word with itself. Along a diagonal the distance is the same: the rotated scores
# are constant there, those with sines are not.*
#
# Source and target positions are not on one scale, so encoder-decoder attention does not rotate.
#
# ## The heads: grouped queries
#
# > "In this work we employ h = 8 parallel attention layers, or heads." (section 3.2.2)
#
# While a decoder writes, it keeps all keys and values in a cache. In **grouped-query attention** (Ainslie
# et al., 2023), several query heads share one head of keys and one of values
# ([03](03_multi_head_attention.ipynb)). Ours changes the encoder, too; Ainslie et al. leave it alone,
# because it has no cache.


# %%
class GroupedQueryAttention(MultiHeadedAttention):
    """The h query heads share fewer heads of keys and values: one for each of `groups`."""

    def __init__(self, h: int, d_model: int, dropout: float, groups: int = 2):
        super().__init__(h, d_model, dropout)
        self.linears[1] = nn.Linear(d_model, groups * self.d_k)  # W^K
        self.linears[2] = nn.Linear(d_model, groups * self.d_k)  # W^V

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        share = q.size(1) // k.size(1)  # query heads for each head of keys
        return super().attend(q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1), mask)


@variant("grouped queries")
class WithGroupedQueries(Parts):
    def attention(self) -> nn.Module:
        return GroupedQueryAttention(self.config.h, self.config.d_model, self.config.attention_dropout)


# %% [markdown]
# **Property: with h groups it is multi-head attention.** And the cache shrinks with the number of groups:

# %%
full, grouped = MultiHeadedAttention(8, 512, 0.0), GroupedQueryAttention(8, 512, 0.0, groups=8)
grouped.load_state_dict(full.state_dict())
x = torch.randn(2, 5, 512)
assert_close(grouped(x, x, x), full(x, x, x))


def cache_bytes(attention: MultiHeadedAttention) -> int:
    """What one layer keeps of one token, in float32."""
    cache = DecoderCache(1).layers[0].target
    with torch.no_grad():
        attention(x[:1, :1], x[:1, :1], x[:1, :1], cache=cache)
    return cache.key.nbytes + cache.value.nbytes


for groups in (8, 2, 1):
    each = cache_bytes(GroupedQueryAttention(8, 512, 0.0, groups))
    print(f"base model, {groups} groups: {each:5,} bytes per token and layer")
    assert each == cache_bytes(full) * groups // 8
llama = 2 * 80 * 128 * 2  # keys and values, 80 layers, heads of width 128, 2 bytes a number
print(f"4,096 tokens, 64 heads: {64 * llama * 4096 / 1e9:.1f} GB; 8 groups: {8 * llama * 4096 / 1e9:.1f} GB")

# %% [markdown]
# The last line has the sizes of Llama 2 70B (Touvron et al., 2023).
#
# ## The network: SwiGLU
#
# > "This consists of two linear transformations with a ReLU activation in between." (section 3.3)
#
# A *gated* network multiplies two linear maps of the input, entry by entry. In **SwiGLU** (Shazeer,
# 2020), the gate passes through swish, $x \cdot \sigma(x)$, first:
#
# $$W_2 \, (\mathrm{swish}(W_1 x) \odot W_3 x)$$
#
# In code, $W_1$ is `gate`, $W_2$ `down`, $W_3$ `up`, numbered as in Llama (which has no biases). A third
# matrix would add 50% of parameters, so the width becomes two thirds. Shazeer has no reason but "divine
# benevolence".


# %%
class SwiGLU(nn.Module):
    """down(swish(gate(x)) * up(x)): three matrices, two thirds as wide as the paper's two."""

    def __init__(self, d_model: int, d_ff: int, dropout: float):
        super().__init__()
        width = 2 * d_ff // 3
        self.gate, self.up = nn.Linear(d_model, width), nn.Linear(d_model, width)
        self.down, self.dropout = nn.Linear(width, d_model), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))


@variant("swiglu")
class WithSwiGLU(Parts):
    def feed_forward(self) -> nn.Module:
        return SwiGLU(self.config.d_model, self.config.d_ff, self.config.relu_dropout)


# %% [markdown]
# ## All four, and the cache
#
# The classes combine by inheritance. Python's `super()` follows the order of the combined class: in
# `RotaryGroups`, `RotaryAttention` rotates, and its `super()` is `GroupedQueryAttention`.


# %%
class RotaryGroups(RotaryAttention, GroupedQueryAttention):
    """First turned, then shared."""


@variant("rotary and swiglu")
class WithRotaryAndSwiGLU(WithRotary, WithSwiGLU):
    """Two of the four, for the race."""


@variant("all four")
class AllFour(WithRMSNorm, WithRotaryAndSwiGLU):
    def attention(self) -> nn.Module:
        return RotaryGroups(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module:
        return GroupedQueryAttention(self.config.h, self.config.d_model, self.config.attention_dropout)


# %% [markdown]
# **Property: with the cache, token by token, a variant computes the same as in one pass**, which a query
# rotated by a wrong position would break:


# %%
src, tgt = torch.randint(4, 50, (2, 6)), torch.randint(4, 50, (2, 7))
for name in ("rms norm", "rotary", "grouped queries", "swiglu", "all four"):
    model = make_model(50, 50, N=2, d_model=32, d_ff=48, h=4, dropout=0.0, parts=name).eval()
    cache = DecoderCache(2)
    with torch.no_grad():
        memory = model.encode(src, None)
        at_once = model.decode(memory, None, tgt, subsequent_mask(7))  # (2, 7, 32)
        steps = [model.decode(memory, None, token, None, cache) for token in tgt.split(1, dim=1)]
    assert_close(torch.cat(steps, dim=1), at_once, atol=1e-4, rtol=1e-4)
    assert not any(isinstance(layer.src_attn, RotaryAttention) for layer in model.decoder.layers)

# %% [markdown]
# ## One stack: decoder-only
#
# > "Most competitive neural sequence transduction models have an encoder-decoder structure" (section 3)
#
# A **decoder-only** model (Liu et al., 2018; GPT, Radford et al., 2018) is one stack, of encoder layers
# with a causal mask. It reads source and target as *one* sequence. Unlike GPT, we let the source, the
# *prefix*, see itself whole; the target sees that and its past.
#
# Padding between the two would shift the target's positions, so it goes to the end. Source `a ·` (`·` is
# padding) and target `x y` give `a · x y`. With 1 for padding that is 0 1 0 0; a stable `argsort` lists
# the places of the zeros first: 0 2 3 1, thus `a x y ·`.


# %%
def prefix_mask(sources: Tensor, length: int) -> Tensor:
    """Lengths of sources (B, 1) -> (B, length, length): all see the source, the target also its past."""
    places = torch.arange(length)
    causal = places.unsqueeze(1) >= places  # (length, length)
    return causal | (places < sources).unsqueeze(1)


class DecoderOnly(EncoderDecoder):
    """One stack, which reads the source and then the target as one sequence."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, *others: nn.Module):
        super().__init__(encoder, nn.Identity(), *others)  # the decoder with its cross-attention goes

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Tokens (B, S) and (B, T), their masks -> states at the target's tokens (B, T, d_model)."""
        sources, length = src_mask.sum(dim=-1), src.size(1) + tgt.size(1)  # (B, 1)
        padding = torch.cat([~src_mask.squeeze(1), torch.zeros_like(tgt, dtype=torch.bool)], dim=1)
        order = padding.long().argsort(dim=1, stable=True)  # the source's padding goes to the end
        tokens = torch.cat([src, tgt], dim=1).gather(1, order)
        states = self.encoder(self.src_embed(tokens), prefix_mask(sources, length))  # (B, S + T, d_model)
        places = sources + torch.arange(tgt.size(1))  # (B, T)
        return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.size(-1)))


# %% tags=["figure-prefix-mask"]
row = ["ein", "Hund", "</s>", "<s>", "a", "dog"]
ax = plot_mask(prefix_mask(torch.tensor([[3]]), 6)[0], row, row, title="The prefix mask")
plt.show()

# %% [markdown]
# *Figure 2. Three source and three target tokens; all see the source.*
#
# With one vocabulary for both texts (`src_embed` embeds them), it takes what an `EncoderDecoder` takes, so
# training and scoring work unchanged.
#
# **Properties: no target token sees a later one, and padding changes nothing.**

# %%
settings = {"N": 2, "d_model": 32, "d_ff": 48, "h": 4, "dropout": 0.0, "norm_first": True}
one_stack = DecoderOnly.from_config(TransformerConfig(50, 50, parts="all four", **settings)).eval()


def states_of(source: Tensor, target: Tensor) -> Tensor:
    """States (B, T - 1, 32) at all tokens of the target but the last."""
    batch = Batch(source, target, PAD)
    return one_stack(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).detach()


before, later, other = states_of(src, tgt), tgt.clone(), src.clone()
later[:, 4], other[:, 0] = tgt[:, 4] % 40 + 5, src[:, 0] % 40 + 5  # another fifth token; another first word
for name, states in (("fifth target token", states_of(src, later)), ("first word", states_of(other, tgt))):
    moved = ((states - before).abs().amax(dim=(0, 2)) > 1e-5).tolist()  # of six
    print(f"another {name} changes the states at target tokens", [i + 1 for i in range(6) if moved[i]])
    assert moved == ([False] * 4 + [True] * 2 if "fifth" in name else [True] * 6)
assert_close(states_of(F.pad(src, (0, 3), value=PAD), tgt), before, atol=1e-4, rtol=1e-4)

# %% [markdown]
# In our race, 2 + 2 layers have ten sub-layers (an encoder layer two, a decoder layer three), as have
# **five** layers of one stack. The parameters are about equal, too (0.82 and 0.84 million). The work is
# not equal: all five read source *and* target, about twice the work.
#
# ## The optimizer: AdamW and a cosine
#
# > "We used the Adam optimizer [20] with β1 = 0.9, β2 = 0.98 and ϵ = 10⁻⁹." (section 5.3)
#
# *Weight decay* pulls weights to 0. In Adam it was a term of the gradient (L2 regularisation), and Adam
# divides each gradient by its typical size: the larger the gradients, the weaker the pull. **AdamW**
# (Loshchilov and Hutter, 2019) shrinks the weight itself, beside the update. A common schedule is a linear
# warm-up, then half a **cosine** (Loshchilov and Hutter, 2017) down to 0 or nearly.
#
# **Property: AdamW's decay does not depend on the gradients.** Below the functions we update weights of 1
# with random gradients, small and large.


# %%
def warmup_cosine(step: int, warmup: int, updates: int) -> float:
    """The learning rate of an update, counted from 0, as a share of its peak."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (updates - warmup)))


def adamw_with_cosine(
    model: nn.Module, peak: float, warmup: int, updates: int, decay: float
) -> tuple[Optimizer, LambdaLR]:
    """AdamW and its schedule; matrices decay, biases and gains do not."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=peak, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return optimizer, LambdaLR(optimizer, lambda step: warmup_cosine(step, warmup, updates))


# %%
for size in (0.1, 10.0):
    for kind in (Adam, AdamW):
        weights = nn.Parameter(torch.ones(10_000))
        optimizer = kind([weights], lr=0.001, weight_decay=0.1)
        for _ in range(300):
            weights.grad = size * torch.randn(10_000)
            optimizer.step()
        lost = 1 - weights.mean().item()
        print(f"gradients of size {size:4}, {kind.__name__:5}: the weights lose ≈{lost:.1%}")
        assert abs(lost - 0.03) < 0.003 if kind is AdamW else (lost < 0.01 if size > 1 else lost > 0.1)

# %% [markdown]
# ## The search: sampling
#
# > "We used beam search with a beam size of 4 and length penalty α = 0.6" (section 6.1)
#
# A translation has few right answers, and search looks for the likeliest. A story has many, and the
# likeliest continuation is dull and repeats itself (Holtzman et al., 2020). Language models therefore
# *sample* the next token. A **temperature** divides the logits ([02](02_attention.ipynb)); **top-p**
# (nucleus) sampling draws only from the smallest set of tokens whose probabilities sum to at least $p$.


# %%
def nucleus(log_probs: Tensor, temperature: float = 1.0, top_p: float = 1.0) -> Tensor:
    """Log-probabilities (..., V) -> probabilities: sharpened, then 0 outside the smallest set with top_p."""
    sorted_probs, tokens = (log_probs / temperature).softmax(dim=-1).sort(dim=-1, descending=True)
    before = sorted_probs.cumsum(dim=-1) - sorted_probs  # what the likelier tokens have together
    kept = sorted_probs.masked_fill(before >= top_p, 0.0)
    probs = torch.zeros_like(log_probs).scatter(-1, tokens, kept)
    return probs / probs.sum(dim=-1, keepdim=True)


def generate(
    model: EncoderDecoder, batch: Batch, limit: int, choose: Callable[[Tensor], Tensor], ends: tuple[int, int]
) -> Tensor:
    """Write a target for each source, at most `limit` tokens; `choose` maps log-probabilities to tokens."""
    start, end = ends
    tgt = torch.full((len(batch.src), 1), start)  # (B, 1), then (B, 2), ...
    with evaluating(model):
        while tgt.size(1) < limit and not (ended := (tgt == end).any(dim=1)).all():
            states = model(batch.src, tgt, batch.src_mask, subsequent_mask(tgt.size(1)))
            tokens = choose(model.generator(states[:, -1])).masked_fill(ended, end)  # (B,)
            tgt = torch.cat([tgt, tokens.unsqueeze(1)], dim=1)
    return tgt


# %% [markdown]
# **Properties: near temperature 0 one token has all the probability; top-p keeps the smallest set**, on
# 1,000 random distributions:

# %%
log_probs = (3 * torch.randn(1000, 50)).log_softmax(dim=-1)
cold = nucleus(log_probs, temperature=1e-6)
assert (cold.argmax(dim=-1) == log_probs.argmax(dim=-1)).all()
assert (cold.amax(dim=-1) > 0.99).all()
probs, kept = log_probs.exp(), nucleus(log_probs, top_p=0.9) > 0
mass, least = (probs * kept).sum(dim=-1), probs.masked_fill(~kept, 1).amin(dim=-1)
print(f"of 50 tokens, between {kept.sum(dim=-1).min()} and {kept.sum(dim=-1).max()} are kept")
assert (mass >= 0.9).all()
assert (mass - least < 0.9).all()  # without the least likely of them it is too little
assert (least >= probs.masked_fill(kept, 0).amax(dim=-1)).all()  # and no other is likelier

# %% [markdown]
# Now a shipped English-German model. It has written *Zwei Personen*
# (two people). What may follow?

# %% tags=["figure-nucleus"]
translator, says = load_pretrained("multi30k-en-de"), "Two people are talking in front of a shop."
batch = Batch(torch.tensor([translator.encode(says)] * 24), pad=PAD)  # the same sentence, 24 times
begun = torch.tensor([[START, *translator.tgt_tokenizer.encode("Zwei Personen")]] * 24)
with evaluating(translator.model):
    states = translator.model(batch.src, begun, batch.src_mask, subsequent_mask(begun.size(1)))
    log_probs = translator.model.generator(states[0, -1])  # (V,)
likeliest, ids = log_probs.exp().topk(3)
assert (nucleus(log_probs, top_p=0.9) > 0).nonzero().flatten().tolist() == sorted(ids.tolist())
words = [piece.strip("\u2581") for piece in translator.tgt_tokenizer.pieces(ids.tolist())]
fig, ax = plt.subplots(figsize=(8, 3.6))
heights = [*likeliest.tolist(), 1 - likeliest.sum().item()]
ax.bar([*words, "all others\ntogether"], heights, color=["C0"] * 3 + ["0.8"])
ax.set(title="The token after “Zwei Personen”", xlabel="token", ylabel="probability")
plt.show()

# %% [markdown]
# *Figure 3. The next token: three words for talking, and the rest of the vocabulary. Top-p with p = 0.9 keeps
# the three blue ones; the others can never be drawn.*

# %% tags=["nbval-ignore-output"]
_ = torch.manual_seed(0)
settings = {"temperature 0.5": (0.5, 1.0), "top-p 0.9": (1.0, 0.9), "temperature 1": (1.0, 1.0)}
for name, each in settings.items():
    drawn = generate(
        translator.model, batch, 40, lambda x, each=each: nucleus(x, *each).multinomial(1)[:, 0], (START, END)
    )
    written = [translator.tgt_tokenizer.decode(row) for row in drawn.tolist()]
    print(f"{name:15} {len(set(written)):2} different ones of 24, such as: {written[0]}")

# %% [markdown]
# ## The race
#
# The task is that of the race in [12](12_results.ipynb): the built-in German-English corpus, two layers in
# each stack, width 128, four heads, no dropout; here 300 updates of at most 512 tokens a side. The loss is
# measured without smoothing on the 500 sentences of val, BLEU by greedy decoding on the first 100.
#
# Five contestants change one part: pre-norm ([06](06_the_full_model.ipynb)), RMSNorm, rotary positions,
# SwiGLU, grouped queries (2 groups for 4 heads). *All parts* has all five; *one stack* is the decoder-only
# model of five such layers. *AdamW, cosine* has weight decay 0.1; its control is *Adam, cosine*.
#
# All warm up for 100 updates to a learning rate of 0.003, the better of two tried for the *paper's* model;
# then it falls as $1/\sqrt{step}$, or along the cosine. The batches come in the same order. We chose what
# *all parts* and *one stack* contain after first runs with these seeds, and added *rotary and SwiGLU* and
# *Adam, cosine* later. (Record `since_2017`.)
#
# Ten comparisons are ten chances of a false alarm. So the interval is wider than for one (Dunnett's test).
# Unlucky *paper* runs would still move all ten in one direction. The noise of a run is estimated from all
# contestants together.

# %%
record = recorded("since_2017")
runs = record["contestants"]
losses = {name: [run["loss"] for run in each] for name, each in runs.items()}
bleus = {name: mean(run["bleu"] for run in each) for name, each in runs.items()}
noise = math.sqrt(mean(map(variance, losses.values())))  # of a run, from all contestants together
error = noise * math.sqrt(2 / 3)  # of the difference of two means of three runs
half = 2.96 * error  # 95% for 10 comparisons with one control, 33 runs - 11 means = 22 degrees of freedom
apart = {name: mean(each) - mean(losses["paper"]) for name, each in losses.items()}
for name, each in losses.items():
    seeds, size = ", ".join(f"{loss:.2f}" for loss in each), runs[name][0]["parameters"] / 1e6
    print(f"{name:20} {size:.2f} M  loss {seeds}  {apart[name]:+.2f} ± {half:.2f}  BLEU {bleus[name]:.0f}")
stack = [one - two for one, two in zip(losses["one stack, all parts"], losses["all parts"], strict=True)]
each = ", ".join(f"{difference:+.2f}" for difference in stack)
print(f"one stack - all parts: {mean(stack):+.2f} ± {2.07 * error:.2f} (one comparison); by seed {each}")
found = {"greedy": runs["all parts"][0]["bleu"], **runs["all parts"][0]["sampled"]}
print("BLEU of the first model with all parts:", {name: round(value) for name, value in found.items()})
assert [name for name in apart if apart[name] < -half] == ["rotary", "SwiGLU", "rotary and SwiGLU"]
assert abs(apart["rotary and SwiGLU"] - min(apart["rotary"], apart["SwiGLU"])) < 2.07 * error
assert [name for name in apart if apart[name] > half] == ["Adam, cosine", "AdamW, cosine"]
assert abs(apart["AdamW, cosine"] - apart["Adam, cosine"]) < 2.07 * error
assert min(stack) > 0
assert mean(stack) > 2.07 * error
assert found["greedy"] > found["temperature 0.5"] > found["top-p 0.9"] > found["temperature 1"]

# %% tags=["figure-race"]
fig, ax = plt.subplots(figsize=(9, 5.2))
for i, (name, each) in enumerate(losses.items()):
    edges = [apart[name] + side * half * (name != "paper") for side in (-1, 1)]
    ax.plot(edges, [i, i], color="0.8", lw=9, solid_capstyle="butt")
    told = "C0" if apart[name] < -half else "C1" if apart[name] > half else "0.3"
    ax.plot([loss - mean(losses["paper"]) for loss in each], [i] * len(each), "o", color=told, ms=8)
ax.axvline(0, color="black", lw=1)
ax.set_yticks(range(len(runs)), [f"{name} (BLEU {bleus[name]:.0f})" for name in runs])
ax.invert_yaxis()
ax.set_xlabel("cross-entropy, difference from the paper's model (nats a token)")
ax.set_title(f"After {record['updates']} updates, three seeds")
plt.show()

# %% [markdown]
# *Figure 4. Left is better. A dot is a run, a grey bar the 95% interval of the difference from the paper's
# model. Dots are blue where the interval lies left of 0, orange where right.*
#
# ## Which of them pays?
#
# **Rotary positions and SwiGLU pay here**, each by about 0.2 nats a token, **but not twice:** together
# they gain about as much as one. Whether pre-norm, RMSNorm and grouped queries help, three seeds cannot
# tell.
#
# **The cosine loses here,** with Adam and AdamW alike. Its mean rate after the warm-up is a third lower,
# and 0.003 was chosen for the other schedule; we tried no higher one. Of AdamW the race says nothing: in
# 300 updates its decay takes about 4% of a weight.
#
# **All parts** are not clearly better or worse than the paper's model. Two possible causes, not tested:
# grouped queries remove 11% of the parameters; the learning rate is the paper model's. **One stack** is
# worse than its control, *all parts*.
#
# **BLEU** can disagree with the loss, as for *all parts*: 100 sentences are few, and it has no interval
# here. **Sampling** costs BLEU (one model, one draw), which compares with one right answer.
#
# At our size we would take one of the two. After 300 updates what learns fast is ahead. This says little
# about large models, whose parts were chosen for long runs, long texts and cheap decoding.
#
# ## Exercises
#
# **Exercise 1 (easy).** *Top-k* sampling (Fan et al., 2018) keeps the k likeliest tokens, however likely
# they are. Write it. How does it differ from top-p where the model is sure, and where it is not?


# %% tags=["exercise"]
def top_k(log_probs: Tensor, k: int) -> Tensor:
    """Log-probabilities (..., V) -> probabilities, 0 outside the k likeliest tokens."""
    raise NotImplementedError


# %% tags=["solution"]
def top_k(log_probs: Tensor, k: int) -> Tensor:
    values, tokens = log_probs.topk(k)
    return torch.zeros_like(log_probs).scatter(-1, tokens, values.softmax(dim=-1))


# Where the model is sure, top-p keeps one token, and top-k still keeps k - 1 bad ones. Where all are about
# equally likely, top-p may keep hundreds, and top-k drops most of them.

# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
few = torch.randn(5, 10).log_softmax(dim=-1)
assert_close(top_k(few, 10), few.exp())
assert (top_k(few, 1).argmax(dim=-1) == few.argmax(dim=-1)).all()
assert ((top_k(few, 3) > 0).sum(dim=-1) == 3).all()

# %% [markdown]
# **Exercise 2 (medium).** The second promise: write the mask of *sliding-window* attention, where each
# position sees itself and the `width - 1` before it. How far back can the last position see through three
# layers?


# %% tags=["exercise"]
def window_mask(length: int, width: int) -> Tensor:
    """A bool mask (1, length, length): each query sees itself and the width - 1 keys before it."""
    raise NotImplementedError


# %% tags=["solution"]
def window_mask(length: int, width: int) -> Tensor:
    places = torch.arange(length)
    back = places.unsqueeze(1) - places  # how far before the query the key stands
    return ((back >= 0) & (back < width)).unsqueeze(0)


# %% tags=["exercise-test"]
assert torch.equal(window_mask(9, 9), subsequent_mask(9))
assert window_mask(9, 4)[0].sum(dim=-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
paths = window_mask(20, 4)[0].float().matrix_power(3)  # how many ways there are from a query to a key
assert paths[19].nonzero().min() == 19 - 3 * 3  # each layer looks 3 further back

# %% [markdown]
# **Exercise 3 (hard).** The third promise: in *speculative decoding*, a small model proposes a token with
# probabilities $q$, the large one has $p$. Find a rule that accepts the proposal or draws another token, so
# that the result is distributed as $p$, and accepts as often as possible.


# %% tags=["exercise"]
def speculate(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Two distributions (V,) -> each token's chance to be accepted, and what to draw from after a refusal."""
    raise NotImplementedError


# %% tags=["solution"]
def speculate(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    missing = (p - q).clamp(min=0)  # what the small model proposes too rarely
    return (p / q).clamp(max=1), missing / missing.sum()


# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
p, q = torch.randn(2, 12).double().softmax(dim=-1)
accept, instead = speculate(p, q)
accepted = q * accept  # (V,): proposed and accepted
assert_close(accepted + (1 - accepted.sum()) * instead, p)
assert_close(accepted.sum(), torch.minimum(p, q).sum())  # no rule accepts more often

# %% [markdown]
# ## Where to go next
#
# In the code of GPT-2, Whisper or Llama you now know most of the parts. `Trainer` trains a variant, named in
# `parts`, on your own sentence pairs ([10](10_translation.ipynb)).
#
# Why models grew: Kaplan et al. (2020), Hoffmann et al. (2022). From continuing text to answering: Ouyang
# et al. (2022).
#
# Back to the start:
# [00_start_here](00_start_here.ipynb).
