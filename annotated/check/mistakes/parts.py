"""What people write instead, in the parts of a Transformer."""

import math

from annotated.check.comparing import Predicates, close, softmax

MISTAKES: Predicates = {
    "attention: equation 1": {
        "the division by sqrt(d_k) is missing": lambda f: softmax(f.s) @ f.v,
        "the scores are divided by d_k, not by its root": lambda f: softmax(f.s / f.c**2) @ f.v,
        "the scores are multiplied by sqrt(d_k)": lambda f: softmax(f.s * f.c) @ f.v,
        "the softmax runs over the queries: it must run over the keys, dim=-1": lambda f: (
            softmax(f.s / f.c, -2) @ f.v
        ),
        "the softmax runs over dimension 1, the heads: it must run over the keys, dim=-1": lambda f: (
            softmax(f.s / f.c, 1) @ f.v
        ),
        "the softmax runs over dimension 0, the batch: it must run over the keys, dim=-1": lambda f: (
            softmax(f.s / f.c, 0) @ f.v
        ),
        "the softmax runs over all scores at once: it must run over the keys, dim=-1": lambda f: (
            softmax((f.s / f.c).flatten(-2)).view_as(f.s) @ f.v
        ),
        "the softmax is missing": lambda f: f.s / f.c @ f.v,
        "log_softmax stands where softmax should": lambda f: (f.s / f.c).log_softmax(-1) @ f.v,
        "the softmax is applied twice": lambda f: softmax(softmax(f.s / f.c)) @ f.v,
        "a sigmoid stands where the softmax should": lambda f: (f.s / f.c).sigmoid() @ f.v,
        "the division by sqrt(d_k) comes after the softmax: it must come before": lambda f: (
            softmax(f.s) / f.c @ f.v
        ),
        "the division is by the root of the number of keys: d_k is query.size(-1)": lambda f: (
            softmax(f.s / f.k.size(-2) ** 0.5) @ f.v
        ),
        "the division is by the root of the number of queries: d_k is query.size(-1)": lambda f: (
            softmax(f.s / f.q.size(-2) ** 0.5) @ f.v
        ),
        "the division is by the root of the width of the values: d_k is query.size(-1)": lambda f: (
            softmax(f.s / f.v.size(-1) ** 0.5) @ f.v
        ),
        "the weights are returned first: return output, weights": lambda f: softmax(f.s / f.c),
        "the key is not transposed: Q K^T is query @ key.transpose(-2, -1)": lambda f: (
            softmax(f.q @ f.k / f.c) @ f.v
        ),
        "queries and keys are swapped: it is Q K^T": lambda f: softmax(f.s.mT / f.c) @ f.v,
        "the weights are transposed before they meet the values": lambda f: softmax(f.s / f.c).mT @ f.v,
        "the values are not used: the weights must multiply V, not K": lambda f: softmax(f.s / f.c) @ f.k,
        "the sign of the scores is lost": lambda f: softmax(-f.s / f.c) @ f.v,
        "the scale is that of d_k = 64, whatever d_k is: take the root of query.size(-1)": lambda f: (
            softmax(f.s / 8) @ f.v
        ),
    },
    "attention: mask": {
        "the mask is inverted, as if True meant hidden: fill where it is False, masked_fill(~mask, ...) (or, if True means hidden in your masks, say TRUE_HIDES = True)": lambda f: (
            softmax(f.s.masked_fill(f.mask, -1e9))
        ),
        "the mask is not used": lambda f: softmax(f.s),
        "the mask is applied after the softmax, so that a row no longer adds up to 1: fill the scores before it": lambda f: (
            softmax(f.s) * f.mask
        ),
        "a hidden key's score becomes about 0, which still has weight (1e-9, or a product with the mask): it must be hugely negative, -1e9": lambda f: (
            softmax(f.s * f.mask)
        ),
        "the mask is added to the scores as 0 and 1: where it is False, the score must be hugely negative": lambda f: (
            softmax(f.s + f.mask.float())
        ),
        "the mask is transposed: rows are queries, columns are keys": lambda f: softmax(
            f.s.masked_fill(~f.mask.mT, -1e9)
        ),
        "a hidden key's score becomes a huge positive number: the minus of -1e9 is lost": lambda f: softmax(
            f.s.masked_fill(~f.mask, 1e9)
        ),
        "the mask is inverted, and applied after the softmax": lambda f: softmax(f.s) * ~f.mask,
        "the fill is too small: take -1e9, or the lowest number that the type has": lambda f: (
            f.got if close(f.got, softmax(f.s.masked_fill(~f.mask, -1e9)), 0.05) else f.s
        ),
    },
    "attention: dropout": {
        "what dropout gives back is not used: weights = dropout(weights)": lambda f: f.plain,
    },
    "heads: equation": {
        "the heads are split by view alone, which mixes words: view(B, T, h, d_k), then transpose(1, 2)": lambda f: (
            f.join(f.heads(f.viewed(f.Q), f.viewed(f.K), f.viewed(f.V), f.root))
        ),
        "the heads are split by view alone, and joined by view alone: transpose(1, 2) is missing": lambda f: (
            f.heads(f.viewed(f.Q), f.viewed(f.K), f.viewed(f.V), f.root).reshape(f.Q.shape)
        ),
        "the heads are joined by view alone, which mixes words: transpose(1, 2) first": lambda f: f.heads(
            f.split(f.Q), f.split(f.K), f.split(f.V), f.root
        ).reshape(f.Q.shape),
        "the heads are cut as (d_k, h): view(B, T, h, d_k)": lambda f: f.join(
            f.heads(f.cut(f.Q), f.cut(f.K), f.cut(f.V), f.root)
        ),
        "the heads are cut as (d_k, h), and divided by sqrt(h): view(B, T, h, d_k)": lambda f: f.join(
            f.heads(f.cut(f.Q), f.cut(f.K), f.cut(f.V), f.h**0.5)
        ),
        "the heads are added up, not concatenated": lambda f: f.heads(
            f.split(f.Q), f.split(f.K), f.split(f.V), f.root
        ).sum(1),
        "the heads are averaged, not concatenated": lambda f: f.heads(
            f.split(f.Q), f.split(f.K), f.split(f.V), f.root
        ).mean(1),
        "the division by sqrt(d_k) is missing in the heads": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), 1)
        ),
        "the heads divide by sqrt(d_model): each is only d_k = d_model / h wide": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.Q.size(-1) ** 0.5)
        ),
        "the heads divide by d_k, not by its root": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.root**2)
        ),
        "the heads divide by sqrt(h): d_k is d_model / h": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.h**0.5)
        ),
        "the heads multiply by sqrt(d_k), and must divide": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), 1 / f.root)
        ),
        "there is one head as wide as the model: h is not used": lambda f: f.heads(
            f.Q, f.K, f.V, f.Q.size(-1) ** 0.5
        ),
        "there is one head as wide as the model, divided by sqrt(d_k)": lambda f: f.heads(
            f.Q, f.K, f.V, f.root
        ),
        "the softmax in the heads runs over the queries: it must run over the keys, dim=-1": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.root, -2)
        ),
        "the softmax in the heads runs over the heads (dim=1): it must run over the keys, dim=-1": lambda f: (
            f.join(f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.root, 1))
        ),
        "the softmax in the heads runs over the batch (dim=0): it must run over the keys, dim=-1": lambda f: (
            f.join(f.heads(f.split(f.Q), f.split(f.K), f.split(f.V), f.root, 0))
        ),
        "keys and queries are swapped": lambda f: f.join(
            f.heads(f.split(f.K), f.split(f.Q), f.split(f.V), f.root)
        ),
        "keys and values are swapped": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.V), f.split(f.K), f.root)
        ),
        "the keys are used as values": lambda f: f.join(
            f.heads(f.split(f.Q), f.split(f.K), f.split(f.K), f.root)
        ),
        "the query is added inside: the residual connection belongs outside": lambda f: f.result + f.q,
        "a ReLU comes after W^O": lambda f: f.result.relu(),
    },
    "heads: mask": {
        "the mask is inverted, as if True meant hidden (if it does in all your masks, say TRUE_HIDES = True)": lambda f: (
            close(f.got, f.inverted)
        ),
        "the mask lines up with the heads, not with the batch: mask.unsqueeze(1), or repeat_interleave(h, 0)": lambda f: (
            bool((f.w * ~f.mask.view(1, 4, 1, 5)).max() < 1e-6)
        ),
        "the mask reaches the first head only": lambda f: bool(
            (f.w[:, 0] * ~f.mask).max() < 1e-6 and (f.w[:, 1:] * ~f.mask).max() > 1e-6
        ),
    },
    "feed-forward: equation 2": {
        "there is no ReLU between the two linear maps, so that they are one": lambda f: f.w_2(f.inner),
        "the ReLU comes after the second linear map, not between": lambda f: f.w_2(f.inner).relu(),
        "there is a second ReLU, after the second linear map": lambda f: f.w_2(f.inner.relu()).relu(),
        "a sigmoid stands where the ReLU should": lambda f: f.w_2(f.inner.sigmoid()),
        "a tanh stands where the ReLU should": lambda f: f.w_2(f.inner.tanh()),
        "a softmax stands where the ReLU should": lambda f: f.w_2(softmax(f.inner)),
        "the input is added inside: the residual connection belongs outside": lambda f: (
            f.w_2(f.inner.relu()) + f.x
        ),
    },
    "layer norm: each vector alone": {
        "gain and bias are not used: gain * normalized + bias": lambda f: f.out,
        "the gain is not used: gain * normalized + bias": lambda f: f.out + 1,
        "the bias is not used: gain * normalized + bias": lambda f: f.out * 3,
        "mean and deviation run over the positions (dim=1): they must run over the features, dim=-1": lambda f: (
            (f.x - f.x.mean(1, keepdim=True)) / f.x.std(1, keepdim=True)
        ),
        "mean and deviation run over the positions (dim=1), and must run over the features, dim=-1": lambda f: (
            (f.x - f.x.mean(1, keepdim=True)) / f.x.std(1, keepdim=True, correction=0)
        ),
        "mean and deviation run over the batch (dim=0): they must run over the features, dim=-1": lambda f: (
            (f.x - f.x.mean(0, keepdim=True)) / f.x.std(0, keepdim=True)
        ),
        "mean and deviation are of the whole tensor: each vector needs its own, dim=-1": lambda f: (
            (f.x - f.x.mean()) / f.x.std()
        ),
        "the mean is not subtracted": lambda f: f.x / f.x.std(-1, keepdim=True),
        "the mean is not subtracted, only divided by the deviation": lambda f: (
            f.x / f.x.std(-1, keepdim=True, correction=0)
        ),
        "this is RMSNorm: a layer norm also subtracts the mean": lambda f: (
            f.x / f.x.square().mean(-1, keepdim=True).sqrt()
        ),
        "the division by the deviation is missing": lambda f: f.x - f.x.mean(-1, keepdim=True),
        "the division is by the variance, not by its root": lambda f: (
            (f.x - f.x.mean(-1, keepdim=True)) / f.x.var(-1, keepdim=True)
        ),
        "the division is by the variance, and must be by its root": lambda f: (
            (f.x - f.x.mean(-1, keepdim=True)) / f.x.var(-1, keepdim=True, correction=0)
        ),
        "the gain does not start at 1": lambda f: close(
            (f.got / f.normal)[0, 0], (f.got / f.normal)[0, 1], 1e-2
        ),
    },
    "embeddings: scale": {
        "the factor sqrt(d_model) is missing": lambda f: f.rows,
        "the factor is d_model, not its root": lambda f: f.rows * 16,
        "the vector is divided by sqrt(d_model): it must be multiplied": lambda f: f.rows / 4,
        "the vector is divided by d_model: it must be multiplied by its root": lambda f: f.rows / 16,
        "the factor is the root of the size of the vocabulary: it is sqrt(d_model)": lambda f: (
            f.rows * 11**0.5
        ),
    },
    "positions: added": {
        "positions are counted along the batch: take x.size(1), not x.size(0)": lambda f: (
            close(f.zero[:, 0], f.zero[:, 1]) and (not close(f.zero[0], f.zero[1]))
        ),
        "nothing is added to x": lambda f: not f.zero.any(),
        "one row is added everywhere": lambda f: close(f.zero[0, 0], f.zero[0, 1]),
        "it returns the encodings: add them to x": lambda f: f.out.numel() in (7 * 16, 64 * 16),
        "they are multiplied with x: they must be added": lambda f: f.x * f.zero,
        "x is added twice": lambda f: 2 * f.x,
        "x is divided by sqrt(d_model): it must come through unchanged": lambda f: f.x / 4,
    },
    "positions: formula": {
        "positions begin at 1: they begin at 0": lambda f: f.table(start=1),
        "sines and cosines are swapped: even columns are sines": lambda f: (
            f.table().unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        ),
        "every column is a sine": lambda f: (
            f.table().unflatten(-1, (-1, 2))[..., :1].expand(-1, -1, 2).flatten(-2)
        ),
        "every column is a cosine": lambda f: (
            f.table().unflatten(-1, (-1, 2))[..., 1:].expand(-1, -1, 2).flatten(-2)
        ),
        "the exponent is i / d_model: it is 2i / d_model": lambda f: f.table(f.j // 2),
        "the exponent is 4i / d_model: the steps of arange(0, d_model, 2) are 2i already": lambda f: f.table(
            f.j // 2 * 4
        ),
        "the columns of a pair have different angles: both take the exponent 2i / d_model": lambda f: f.table(
            f.j
        ),
        "the columns of a pair have different angles: the exponent of column j is 2 (j // 2) / d_model, not 2j / d_model": lambda f: (
            f.table(2 * f.j)
        ),
        "the angle grows with i: divide by 10000^(2i / d_model), do not multiply": lambda f: f.table(
            -(f.j // 2 * 2)
        ),
        "the base is 1000: it is 10000": lambda f: f.table(base=1000),
        "the base is 100000: it is 10000": lambda f: f.table(base=100000),
        "the exponent is 0 in every column: // divides 2i by d_model as an integer": lambda f: f.table(
            0 * f.j
        ),
        "the angle is in degrees": lambda f: f.table(unit=math.pi / 180),
        "the angle is in turns: 2 pi does not belong there": lambda f: f.table(unit=2 * math.pi),
        "the encodings are added twice": lambda f: 2 * f.table(),
        "positions are not added": lambda f: 0 * f.table(),
        "the encodings are scaled: they are added as they are": lambda f: (
            f.table() * (f.got[1, 0] / f.table()[1, 0])
        ),
    },
    "residual and norm": {
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
    "generator: log-probabilities": {
        "log_softmax is taken of another dimension first": lambda f: f.x.log_softmax(1).log_softmax(-1),
    },
}
