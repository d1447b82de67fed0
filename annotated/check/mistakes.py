"""Name the likely mistake behind a broken law: what people write instead, and what that would give."""

import math
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from annotated.check.assertions import Predicates, close, each, softmax, was_made

# The usual mistake behind a message, by a part of its words.
BY_MESSAGE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def explain(law: str, message: str, /, **evidence: Any) -> str:
    """Name the mistake that would give exactly this, or else the usual one behind the message."""
    values = SimpleNamespace(**evidence)
    exact = (mistake for mistake, predicate in MISTAKES.get(law, {}).items() if was_made(predicate, values))
    usual = (mistake for table in BY_MESSAGE.values() for text, mistake in table.items() if text in message)
    return next(exact, next(usual, ""))


AXES = {"the queries": -2, "dimension 1, the heads": 1, "dimension 0, the batch": 0}
SQUASHES: dict[str, Any] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "softmax": softmax}
ROWS = ", not over the keys (dim=-1)"
HIDES = "(or, if True means hidden in your masks, say TRUE_HIDES = True)"
TARGET_MASK = "the decoder gets no target mask, or a wrong one: subsequent_mask(tgt.size(1)), as in training"
HIDE_KEYS = "src_mask must hide the keys that are padding there, whatever number that is"
OTHER_START = "it begins with another token than the start symbol"
BOTH = "(tgt != pad) & subsequent_mask"
PAIR = "the columns of a pair have different angles: both take the exponent 2i / d_model"

# fmt: off
MISTAKES: Predicates = {
    "attention: equation 1": {  # scores s, their divisor c
        "the division by sqrt(d_k) is missing": lambda f: softmax(f.s) @ f.v,
        "the scores are divided by d_k, not by its root": lambda f: softmax(f.s / f.c**2) @ f.v,
        "the scores are multiplied by sqrt(d_k)": lambda f: softmax(f.s * f.c) @ f.v,
        **each(f"the softmax runs over {{}}{ROWS}", lambda of, f: softmax(f.s / f.c, AXES[of]) @ f.v, *AXES),
        f"the softmax runs over all scores{ROWS}": lambda f: softmax((f.s / f.c).flatten(-2)).view_as(f.s) @ f.v,
        "the softmax is missing": lambda f: f.s / f.c @ f.v,
        "log_softmax stands where softmax should": lambda f: (f.s / f.c).log_softmax(-1) @ f.v,
        "the softmax is applied twice": lambda f: softmax(softmax(f.s / f.c)) @ f.v,
        "a sigmoid stands where the softmax should": lambda f: (f.s / f.c).sigmoid() @ f.v,
        "the division by sqrt(d_k) comes after the softmax: it must come before": lambda f: softmax(f.s) / f.c @ f.v,
        "the division is by sqrt(d_model), the width of all heads: d_k is query.size(-1)": lambda f: softmax(f.s / (f.q.size(1) * f.q.size(-1)) ** 0.5) @ f.v,
        **each("the division is by the root of the number of {}: d_k is query.size(-1)", lambda of, f: softmax(f.s / f.s.size({"queries": -2, "keys": -1}[of]) ** 0.5) @ f.v, "keys", "queries"),
        "the division is by the root of the width of the values: d_k is query.size(-1)": lambda f: softmax(f.s / f.v.size(-1) ** 0.5) @ f.v,
        "the weights are returned first: return output, weights": lambda f: softmax(f.s / f.c),
        "the key is not transposed: Q K^T is query @ key.transpose(-2, -1)": lambda f: softmax(f.q @ f.k / f.c) @ f.v,
        "queries and keys are swapped: it is Q K^T": lambda f: softmax(f.s.mT / f.c) @ f.v,
        "the weights are transposed before they meet the values": lambda f: softmax(f.s / f.c).mT @ f.v,
        "the weights multiply K: they must multiply V": lambda f: softmax(f.s / f.c) @ f.k,
        "the sign of the scores is lost": lambda f: softmax(-f.s / f.c) @ f.v,
        "the scale is that of d_k = 64, whatever d_k is: it is query.size(-1) ** 0.5": lambda f: softmax(f.s / 8) @ f.v,
        "the scores are divided by another number than sqrt(d_k)": lambda f: softmax(f.s / f.by) @ f.v,
    },
    "attention: mask": {
        f"the mask is inverted, as if True meant hidden: fill where it is False, ~mask {HIDES}": lambda f: softmax(f.s.masked_fill(f.mask, -1e9)),
        "the mask is not used": lambda f: softmax(f.s),
        "the mask is applied after the softmax, so that a row no longer adds up to 1: fill the scores before it": lambda f: softmax(f.s) * f.mask,
        "a hidden key's score becomes about 0, which still has weight (1e-9, or a product with the mask): it must be hugely negative, -1e9": lambda f: softmax(f.s * f.mask),
        "the mask is added to the scores as 0 and 1: where it is False, the score must be hugely negative": lambda f: softmax(f.s + f.mask.float()),
        "the mask is transposed: rows are queries, columns are keys": lambda f: softmax(f.s.masked_fill(~f.mask.mT, -1e9)),
        "a hidden key's score becomes a huge positive number: the minus of -1e9 is lost": lambda f: softmax(f.s.masked_fill(~f.mask, 1e9)),
        "the mask is inverted, and applied after the softmax": lambda f: softmax(f.s) * ~f.mask,
        "the fill is too small: take -1e9, or the lowest number that the type has": lambda f: close(f.got, softmax(f.s.masked_fill(~f.mask, -1e9)), 0.05),
    },
    "attention: dropout": {"what dropout gives back is not used: weights = dropout(weights)": lambda f: f.plain},
    "heads: equation": {  # what W^Q, W^K and W^V give; `heads` and `apart` compute, joined and not, with changes
        "the heads are split by view alone, which mixes words: view(B, T, h, d_k), then transpose(1, 2)": lambda f: f.heads(split=f.view),
        "the heads are split by view alone, and joined by view alone: transpose(1, 2) is missing": lambda f: f.apart(split=f.view).reshape(f.Q.shape),
        "the heads are joined by view alone, which mixes words: transpose(1, 2) first": lambda f: f.apart().reshape(f.Q.shape),
        "the heads are cut as (d_k, h): view(B, T, h, d_k)": lambda f: f.heads(split=f.cut),
        "the heads are cut as (d_k, h), and divided by sqrt(h): view(B, T, h, d_k)": lambda f: f.heads(split=f.cut, by=2),
        **each("the heads become their {}: they must be concatenated", lambda how, f: getattr(f.apart(), how)(1), "sum", "mean"),
        "the division by sqrt(d_k) is missing in the heads": lambda f: f.heads(by=1),
        "the heads divide by sqrt(d_model): each is only d_k = d_model / h wide": lambda f: f.heads(by=f.Q.size(-1) ** 0.5),
        "the heads divide by d_k, not by its root": lambda f: f.heads(by=f.root**2),
        "the heads divide by sqrt(h): d_k is d_model / h": lambda f: f.heads(by=2),
        "the heads multiply by sqrt(d_k), and must divide": lambda f: f.heads(by=1 / f.root),
        "there is one head as wide as the model: h is not used": lambda f: f.apart(split=lambda x: x, by=f.Q.size(-1) ** 0.5),
        "there is one head as wide as the model, divided by sqrt(d_k)": lambda f: f.apart(split=lambda x: x),
        **each(f"the softmax in the heads runs over {{}}{ROWS}", lambda of, f: f.heads(dim=AXES[of]), *AXES),
        "keys and queries are swapped": lambda f: f.heads(Q=f.K, K=f.Q),
        "keys and values are swapped": lambda f: f.heads(K=f.V, V=f.K),
        "the keys are used as values": lambda f: f.heads(V=f.K),
        "the query is added inside: the residual connection belongs outside": lambda f: f.result + f.q,
        "a ReLU comes after W^O": lambda f: f.result.relu(),
    },
    "heads: mask": {
        "the mask is inverted, as if True meant hidden (if it does in all your masks, say TRUE_HIDES = True)": lambda f: f.inverted,
        "the mask lines up with the heads, not with the batch: mask.unsqueeze(1), or repeat_interleave(h, 0)": lambda f: (f.w * ~f.mask.view(1, 4, 1, 5)).max() < 1e-6,
        "scores are ordered by heads first, and the mask by sentences: repeat it in the same order": lambda f: (f.w * ~f.mask.view(4, 1, 1, 5)).max() < 1e-6,
        "the first sentence's mask is used for all: each has its own": lambda f: (f.w * ~f.mask[0]).max() < 1e-6,
        "the mask reaches the first head only": lambda f: (f.w[:, 0] * ~f.mask).max() < 1e-6 < (f.w[:, 1:] * ~f.mask).max(),
    },
    "feed-forward: equation 2": {
        "there is no ReLU between the two linear maps, so that they are one": lambda f: f.w_2(f.inner),
        "the ReLU comes after the second linear map, not between": lambda f: f.w_2(f.inner).relu(),
        "there is a second ReLU, after the second linear map": lambda f: f.w_2(f.inner.relu()).relu(),
        **each("a {} stands where the ReLU should", lambda g, f: f.w_2(SQUASHES[g](f.inner)), *SQUASHES),
        "the input is added inside: the residual connection belongs outside": lambda f: f.w_2(f.inner.relu()) + f.x,
    },
    "layer norm: each vector alone": {
        "gain and bias are not used: gain * normalized + bias": lambda f: f.out,
        "the gain is not used: gain * normalized + bias": lambda f: f.out + 1,
        "the bias is not used: gain * normalized + bias": lambda f: f.out * 3,
        "mean and deviation run over the positions (dim=1): they must run over the features, dim=-1": lambda f: f.over(1),
        "mean and deviation run over the batch (dim=0): they must run over the features, dim=-1": lambda f: f.over(0),
        "mean and deviation are of the whole tensor: each vector needs its own, dim=-1": lambda f: f.over((0, 1, 2)),
        "the mean is not subtracted": lambda f: f.x / f.x.std(-1, keepdim=True),
        "this is RMSNorm: a layer norm also subtracts the mean": lambda f: f.x / f.x.square().mean(-1, keepdim=True).sqrt(),
        "the division by the deviation is missing": lambda f: f.x - f.x.mean(-1, keepdim=True),
        "the division is by the variance, and must be by its root": lambda f: any(close(f.got, (f.x - f.x.mean(-1, keepdim=True)) / f.x.var(-1, keepdim=True, correction=n), 1e-3) for n in (0, 1)),
        "squares are added up: the deviation is the root of their mean": lambda f: f.normal / f.x.size(-1) ** 0.5,
        "eps is too large: 1e-5 keeps the divisor above 0": lambda f: close(f.got, f.normal * (f.got / f.normal).mean(-1, keepdim=True), 1e-3) and f.small.norm() < 0.99 * f.got.norm(),
        "the gain does not start at 1": lambda f: close((f.got / f.normal)[0, 0], (f.got / f.normal)[0, 1], 1e-2),
    },
    "embeddings: scale": {  # of width 16, for 11 words
        "the factor sqrt(d_model) is missing": lambda f: f.rows,
        "the factor is d_model, not its root": lambda f: f.rows * 16,
        "the vector is divided by sqrt(d_model): it must be multiplied": lambda f: f.rows / 4,
        "the vector is divided by d_model: it must be multiplied by its root": lambda f: f.rows / 16,
        "the factor is the root of the size of the vocabulary: it is sqrt(d_model)": lambda f: f.rows * 11**0.5,
    },
    "positions: added": {  # what comes of x and of zeros
        "positions are counted along the batch: count them along the words of a sentence": lambda f: close(f.zero[:, 0], f.zero[:, 1]) and not close(f.zero[0], f.zero[1]),
        "nothing is added to x": lambda f: not f.zero.any(),
        "one row is added everywhere": lambda f: close(f.zero[0, 0], f.zero[0, 1]),
        "it returns the encodings: add them to x": lambda f: f.out.numel() in (7 * 16, 64 * 16),
        "they are multiplied with x: they must be added": lambda f: f.x * f.zero,
        "x is added twice": lambda f: 2 * f.x,
        "x is divided by sqrt(d_model): it must come through unchanged": lambda f: f.x / 4,
    },
    "positions: formula": {  # columns j, and a table whose exponents, base, unit and beginning can be changed
        "positions begin at 1: they begin at 0": lambda f: f.table(start=1),
        "sines and cosines are swapped: even columns are sines": lambda f: f.table().unflatten(-1, (-1, 2)).flip(-1).flatten(-2),
        **each("every column is a {}: sines and cosines take turns", lambda of, f: f.table()[:, of == "cosine" :: 2].repeat_interleave(2, -1), "sine", "cosine"),
        "the exponent is i / d_model: it is 2i / d_model": lambda f: f.table(f.j // 2),
        "the exponent is 4i / d_model: the steps of arange(0, d_model, 2) are 2i already": lambda f: f.table(f.j // 2 * 4),
        PAIR: lambda f: f.table(f.j),
        f"{PAIR}, not 2j / d_model": lambda f: f.table(2 * f.j),
        "the angle grows with i: divide by 10000^(2i / d_model), do not multiply": lambda f: f.table(-(f.j // 2 * 2)),
        **each("the base is {}: it is 10000", lambda base, f: f.table(base=base), 1000, 100000),
        "the exponent is 0 in every column: // divides 2i by d_model as an integer": lambda f: f.table(0 * f.j),
        "the angle is in degrees": lambda f: f.table(unit=math.pi / 180),
        "the angle is in turns: 2 pi does not belong there": lambda f: f.table(unit=2 * math.pi),
        "the encodings are added twice": lambda f: 2 * f.table(),
        "positions are not added": lambda f: 0 * f.table(),
        "the encodings are scaled: they are added as they are": lambda f: f.table() * (f.got[1, 0] / f.table()[1, 0]),
    },
    "residual and norm": {  # x, a sub-layer f, a norm
        "the residual connection is missing: x must be added": lambda f: f.norm(f.f(f.x)),
        "the residual connection is missing: x must be added to f(LayerNorm(x))": lambda f: f.f(f.norm(f.x)),
        "neither residual connection nor norm is there": lambda f: f.f(f.x),
        "the norm is missing": lambda f: f.x + f.f(f.x),
        "the residual adds the normalized x: it must add x itself": lambda f: f.norm(f.x) + f.f(f.norm(f.x)),
        "only the sub-layer's output is normalized: normalize the sum": lambda f: f.x + f.norm(f.f(f.x)),
        "only x is normalized: normalize the sum": lambda f: f.norm(f.x) + f.f(f.x),
        "it normalizes before and after: one norm is enough": lambda f: f.norm(f.x + f.f(f.norm(f.x))),
        "x is added twice": lambda f: f.norm(2 * f.x + f.f(f.x)),
        "the residual is subtracted: it must be added": lambda f: f.norm(f.f(f.x) - f.x),
        "the sub-layer's output is subtracted: it must be added": lambda f: f.norm(f.x - f.f(f.x)),
        "the sub-layer's output is not used": lambda f: f.norm(f.x),
    },
    "generator: log-probabilities": {"log_softmax is taken of another dimension first": lambda f: f.x.log_softmax(1).log_softmax(-1)},
    "causal mask": {
        "the mask is inverted: True (1) stands where it should hide": lambda f: f.ones.triu(1),
        "a position cannot see itself: the diagonal belongs to the mask": lambda f: f.ones.tril(-1),
        "off by one: position i sees position i + 1": lambda f: f.ones.tril(1),
        "rows and columns are swapped: it is the lower triangle, tril": lambda f: f.ones.triu(),
        "nothing is hidden": lambda f: f.ones,
        "everything is hidden": lambda f: f.ones * 0,
        "a position sees only itself": lambda f: f.ones.tril().triu(),
    },
    "model: probabilities": {"the generator is as wide as the source's vocabulary: Linear(d_model, tgt_vocab)": lambda f: f.got.size(-1) == f.src_vocab},
    "model: sizes": {"the stack does not have N layers, or not all of them run: for _ in range(N)": lambda f: f.N > 0},
    "model: no peeking": {  # which positions have weight in the decoder's self-attention, what else mixes them
        "the causal mask is inverted: a position sees only what follows": lambda f: f.attended.triu(1).any() and not f.attended.tril(-1).any(),
        "everything is hidden alike, and so nothing is: a mask is inverted, or True means another thing in it": lambda f: f.uniform,
        "the causal mask is a parameter, which training changes: keep it with register_buffer": lambda f: f.learned,
        "the softmax of the self-attention does not run over the keys: dim=-1": lambda f: not f.rows,
        "the causal mask is not used in training mode": lambda f: bool(f.how) and f.attended.triu(1).any(),
        "two masks are joined so that only what both hide is hidden: where True hides, join them by |, where True shows, by &": lambda f: f.joined,
        "what the causal mask hides still has weight: its scores must be hugely negative, -1e9": lambda f: f.attended.triu(2).any() and f.filled,
        "the decoder's self-attention does not use its mask: pass tgt_mask on to it": lambda f: f.attended.triu(2).any(),
        "the causal mask is off by one: position i may see up to i, not i + 1": lambda f: f.attended.triu(1).any(),
        "a norm mixes positions: its mean and deviation run over the features of each vector, dim=-1": lambda f: "norm" in f.mixes.lower(),
        "heads are split or joined by view alone, which mixes words: transpose(1, 2) stands between": lambda f: f.by_heads,
        "self-attention is masked: something else mixes positions, such as a softmax over dim=1": lambda f: f.attended.any(),
    },
    "model: source padding": {  # which attention sees padding
        f"the source mask is inverted: only padding is seen {HIDES}": lambda f: f.inverted,
        "0 is taken for padding, whatever the number of padding is": lambda f: f.zero_works and (f.encoder or f.cross),
        f"the encoder and cross-attention can see padding: {HIDE_KEYS}": lambda f: f.encoder and f.cross,
        f"the encoder can see padding: {HIDE_KEYS}": lambda f: f.encoder,
        f"cross-attention can see padding: {HIDE_KEYS}": lambda f: f.cross,
        "no attention sees padding: something else changes with the length, such as positions, or a view that mixes words": lambda f: f.known,
    },
    "model: batch": {
        "a mask lines up with the heads, not with the batch: mask.unsqueeze(1)": lambda f: f.by_head,
        "padding is not hidden for each sentence of a batch: is the mask each sentence's own?": lambda f: f.masks,
        "sentences are mixed: is the batch the first dimension everywhere?": lambda f: True,
    },
    "model: gradients": {
        "a norm is made and never called: pre-norm needs one more after the last layer": lambda f: f.idle and all("norm" in name.lower() for name in f.idle),
        "of W^Q, W^K and W^V in one matrix, a part is never read: each has its own use": lambda f: f.parts,
    },
    "model: memory": {
        "what was computed for one source is kept, and serves the next: compute it for each": lambda f: f.kept,
        "no attention of the decoder reads the memory: its keys and values are memory": lambda f: not f.crossing,
    },
    "model: residuals and norms": {
        "pre-norm needs one more norm after the last layer": lambda f: f.order == "pre-norm",
        "all layers must have one order": lambda f: " and " in f.order,
        "self-attention comes first, then in the decoder attention to the memory, then the network": lambda f: f.order == "wrong",
    },
    "model: both ways": {
        "the encoder is given a causal mask: its words see all others, src_mask hides padding alone": lambda f: f.causal,
        "a position cannot see itself: the diagonal belongs to the causal mask": lambda f: all(t == j for t, j in f.blind),
    },
    "model: own weights": {"one module serves in several places: give each its own": lambda f: len(f.names) == 1},
    "model: first loss": {"the output shares the embeddings' matrix: start it with deviation d_model ** -0.5": lambda f: f.tied and f.wide > 0.5},
    "batch: shifted target": {
        "padding is counted: (tgt_y != pad).sum()": lambda f: f.count == 8,
        "the target is not shifted: the decoder reads the token that it has to predict": lambda f: torch.equal(f.read, f.predict),
        "the shift goes the wrong way: read tgt[:, :-1], predict tgt[:, 1:]": lambda f: torch.equal(f.read, f.tgt[:, 1:]),
        "nothing is cut off: read tgt[:, :-1], predict tgt[:, 1:]": lambda f: f.tgt.shape in (f.read.shape, f.predict.shape),
    },
    "batch: masks": {
        "the source mask is inverted: src != pad": lambda f: f.inverted,
        "it has no dimension for the queries: (src != pad).unsqueeze(-2)": lambda f: f.flat,
        "0 is taken for padding, whatever pad is: src != pad": lambda f: f.zero,
        f"the causal mask is missing in the target mask: {BOTH}": lambda f: f.real.expand(2, 4, 4),
        "the target mask is inverted": lambda f: (~(f.causal & f.real)).float(),
        f"padding is not hidden in the target mask: {BOTH}": lambda f: f.causal.expand(2, 4, 4),
        "the two masks are joined by |: both must allow, &": lambda f: f.causal | f.real,
    },
    "smoothing: mass": {
        "smoothing and confidence are swapped: the right token gets 1 - smoothing": lambda f: min(abs(f.right - f.e), abs(f.right - f.e - (1 - f.e) / 6)) < 1e-3,
        "nothing is smoothed": lambda f: abs(f.right - 1) < 1e-3 and bool(f.others.abs().max() < 1e-3),
        "the right token keeps 1: it gets 1 - smoothing": lambda f: abs(f.right - 1) < 1e-3 and f.others.max() <= f.e / 4 + 1e-3,
        "smoothing is a sum over the vocabulary: divide it by the number of tokens": lambda f: close(f.others, torch.full_like(f.others, f.e), 1e-3),
        "the smoothing has the wrong sign: -smoothing * log p is added, too": lambda f: f.others.max() < -1e-3 < f.right,
        "the right token gets nothing: scatter_(1, target.unsqueeze(1), confidence)": lambda f: abs(f.right) < 1e-3,
        "the loss is not linear in log p: are the arguments of KL swapped? It is KLDivLoss(...)(log_probs, q)": lambda f: not f.linear,
        "the sign of the loss is lost": lambda f: f.right < 0,
    },
    "smoothing: padding": {"the mean is over all rows: divide by the number of real tokens": lambda f: math.isclose(2 * f.long, f.short, rel_tol=1e-3)},
    "rate: equation 3": {  # steps s; `rate` computes with changes, by what is right
        "max stands where min should": lambda f: f.rate(least=torch.maximum),
        "the factor d_model^-0.5 is missing": lambda f: f.rate(of_d=0),
        "the sign of d_model's exponent is lost: it is -0.5": lambda f: f.rate(of_d=0.5),
        **each("warm-up has the exponent {}: it is -1.5", lambda x, f: f.rate(of_w=x), -0.5, -1),
        "there is no warm-up: min with step * warmup^-1.5 is missing": lambda f: f.rate(least=lambda falls, rises: falls),
        "warm-up has a positive exponent: it is -1.5": lambda f: f.rate(of_w=1.5),
        "it never falls again: min with step^-0.5 is missing": lambda f: f.rate(least=lambda falls, rises: rises),
        "it falls as 1 / step: it is step^-0.5": lambda f: f.rate(of_s=-1),
        "the sign of step's exponent is lost: it is -0.5": lambda f: f.rate(of_s=0.5),
        "it is divided by d_model, not by its root": lambda f: f.rate(of_d=-1),
        "steps are counted from 0: the first is 1": lambda f: f.rate(s=f.s + 1),
        "warm-up is fixed at 4000: use the argument": lambda f: f.rate(w=4000),
        "d_model is fixed at 512: use the argument": lambda f: f.rate(d=512),
        "the terms are added: the smaller is taken, min": lambda f: f.rate(least=torch.add),
    },
    "greedy: likeliest token": {  # the wrong token, its place, log-probabilities at all places, what it may begin with
        "it takes the least likely token: argmax, not argmin": lambda f: f.token == int(f.log_probs[-1].argmin()),
        TARGET_MASK: lambda f: f.unmasked,
        OTHER_START: lambda f: f.at == 0 and len(f.starts) > 0,
        "layers share one cache: each needs its own keys and values": lambda f: f.at > 0 and f.keys > f.read + 1,
        "the cache forgets: it must keep the keys and values of all tokens so far": lambda f: f.at > 0 and 0 < f.keys < f.read,
        "in the cache, each token is taken for the first: positions go on counting": lambda f: f.at > 0 and f.keys > 0,
        "it reads the prediction at the first position: take the last, [:, -1]": lambda f: f.at > 0 and f.token == int(f.log_probs[0].argmax()),
        "it takes the second likeliest token": lambda f: f.token == int(f.log_probs[-1].topk(2).indices[1]),
        "the decoder gets the newest token only: give it all tokens so far, or a cache": lambda f: f.at > 0 and f.token == f.newest,
        "the new token is not appended to what the decoder reads": lambda f: f.at > 0 and len(set(f.got[1:])) == 1,
    },
    "beam: one is greedy": {TARGET_MASK: lambda f: f.unmasked, OTHER_START: lambda f: len(f.starts) > 0},
    "BLEU: sacreBLEU's number": {  # precisions p, in other ways of counting, too; the length of the references by that of the texts, r
        "repeated words count again and again: clip each n-gram's count by the reference's": lambda f: f.mean(f.unclipped) * f.penalty,
        "short translations go unpunished: the brevity penalty, exp(1 - reference / hypothesis), is missing or upside down": lambda f: f.mean(f.p),
        "the brevity penalty is hypothesis / reference: it is exp(1 - reference / hypothesis)": lambda f: f.mean(f.p) / max(1, f.r),
        "precisions are averaged: take their geometric mean": lambda f: f.p.mean() * f.penalty,
        "sentences' scores are averaged: add up the counts of the corpus first": lambda f: sum(f.each) / len(f.each),
        **each("only n-grams up to {} count: it is up to 4", lambda n, f: f.mean(f.p[:n]) * f.penalty, 1, 2, 3),
        "words are compared in lower case: capitals count": lambda f: f.lower,
        "1 is added to every count: the corpus's counts are taken as they are": lambda f: f.mean(f.one_more) * f.penalty,
        "1 is added to the counts of pairs and longer: the corpus's counts are taken as they are": lambda f: f.mean(f.one_more_above) * f.penalty,
    },
}
MISTAKES["model: networks"] = MISTAKES["feed-forward: equation 2"]
