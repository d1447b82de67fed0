# %% [markdown]
# # 17 · Since 2017

# %%
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from annotated import Batch, EncoderDecoder, MultiHeadedAttention, Parts, evaluating, subsequent_mask, variant


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


class NoPositions(nn.Dropout):
    """What stands where the sines were added: dropout alone."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return super().forward(x)


@variant("rotary")
class WithRotary(Parts):
    def attention(self) -> nn.Module:
        return RotaryAttention(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module:
        return super().attention()  # source and target have no common positions

    def positions(self) -> nn.Module:
        return NoPositions(self.config.dropout)


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


# %%
class RotaryGroups(RotaryAttention, GroupedQueryAttention):
    """First turned, then shared: each class does its part and calls the next."""


@variant("all four")
class AllFour(WithRMSNorm, WithSwiGLU, WithRotary):
    def attention(self) -> nn.Module:
        return RotaryGroups(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module:
        return GroupedQueryAttention(self.config.h, self.config.d_model, self.config.attention_dropout)


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
