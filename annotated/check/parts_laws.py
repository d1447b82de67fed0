"""Laws of what stands around attention: networks, embeddings, positions, norms (lessons 04 to 06)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.adapt import Code, Linears, Missing, call, first
from annotated.check.laws import close, compare, explain, law, numbers
from annotated.check.report import Failure


@law("04_feed_forward_and_embeddings", "feed_forward", "feed-forward: equation 2")
def feed_forward_equation(code: Code) -> str | None:
    """The network is max(0, x W_1 + b_1) W_2 + b_2, and widens to d_ff inside."""
    module, x = code.build("feed_forward", d_model=8, d_ff=24, dropout=0.0), torch.randn(2, 5, 8) * 3
    with torch.no_grad(), Linears.of(module) as seen:
        out = first(call(module, x=x))
    if out.shape != x.shape:
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be (2, 5, 8)")
    if len(seen.calls) != 2:
        raise Missing("it does not consist of two nn.Linear")
    inner, w_2 = seen.calls[0][2], seen.calls[1][0]
    if inner.size(-1) != 24:
        mistake = "the order is wrong, or d_ff is not used: Linear(d_model, d_ff) comes first"
        raise Failure(f"it is {inner.size(-1)} wide inside, and should be d_ff = 24", "", mistake)
    with torch.no_grad():
        for activation in (F.gelu, F.silu):
            if close(out, w_2(activation(inner))):
                return f"with {activation.__name__}, where the paper has ReLU"
        compare(out, w_2(inner.relu()), "feed-forward: equation 2", "the output is wrong", "a row",
                w_2=w_2, inner=inner, x=x)  # fmt: skip
    return None


@law("04_feed_forward_and_embeddings", "feed_forward", "feed-forward: each position alone")
def positions_alone(code: Code) -> None:
    """The network treats each position by itself, and all alike."""
    module, x = code.build("feed_forward", d_model=8, d_ff=24, dropout=0.0), torch.randn(2, 5, 8)
    with torch.no_grad():
        whole, alone = first(call(module, x=x))[:, 2:3], first(call(module, x=x[:, 2:3]))
    if not close(whole, alone):
        raise Failure("a position depends on the others", f"{numbers(whole)}, alone {numbers(alone)}")


@law("06_the_full_model", "layer_norm", "layer norm: each vector alone")
def layer_norm(code: Code) -> None:
    """Each vector is normalized by itself over its features: mean 0 and deviation 1, before gain and bias."""
    module, x = code.build("layer_norm", d_model=64), torch.randn(3, 5, 64) * 4 + 2
    with torch.no_grad():
        out = call(module, x=x)
    wanted = F.layer_norm(x, (64,))
    if not close(out, wanted * math.sqrt(63 / 64), 1e-3):  # the unbiased deviation, the classic's, is as good
        name = "layer norm: each vector alone"
        compare(out, wanted, name, "vectors are not normalized", "a vector", x=x)


@law("04_feed_forward_and_embeddings", "embeddings", "embeddings: scale")
def embedding_scale(code: Code) -> None:
    """A token's vector is its row of the table times sqrt(d_model)."""
    module, tokens = code.build("embeddings", d_model=16, vocab=11), torch.tensor([[3, 7, 3]])
    tables = [p for p in module.parameters() if p.shape == (11, 16)]
    if any(p.shape == (16, 11) for p in module.parameters()):
        mistake = "vocab and d_model are swapped: nn.Embedding(vocab, d_model)"
        raise Failure("the table has shape (16, 11), and should be (11, 16)", "", mistake)
    if not tables:
        raise Missing("its table (vocab, d_model) is not found")
    with torch.no_grad():
        out, rows = call(module, tokens=tokens), tables[0][tokens]
    compare(out, rows * 4, "embeddings: scale", "vectors have another scale", "a vector", rows=rows)


def positions(code: Code, x: Tensor) -> Tensor:
    module = code.build("positional_encoding", d_model=16, dropout=0.0, max_len=64)
    with torch.no_grad():
        return code.flip(call(module, x=code.flip(x)))


@law("05_positional_encoding", "positional_encoding", "positions: added")
def positions_added(code: Code) -> str | None:
    """Positions are added to x: the same for every sentence, different at every position."""
    x = torch.randn(3, 7, 16)
    out, zero = positions(code, x), positions(code, x * 0)
    alone = "it returns the encodings: add them to x"
    if out.shape != x.shape:
        mistake = alone if out.numel() in (7 * 16, 64 * 16) else ""
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be (3, 7, 16)", "", mistake)
    if close(out, zero):
        raise Failure("the output does not depend on x", "", alone)
    if not close(zero[0], zero[1]):
        mistake = "positions are counted along the batch: take x.size(1), not x.size(0)"
        rows = f"{numbers(zero[0])}, {numbers(zero[1])}"
        raise Failure(
            "sentences get different positions", rows, mistake if close(zero[:, 0], zero[:, 1]) else ""
        )
    if close(zero[0, 0], zero[0, 1]):
        mistake = "one row is added everywhere" if zero.any() else "nothing is added to x"
        raise Failure("all positions get the same vector", numbers(zero), mistake)
    if close(out - zero, x * 4):
        return "multiplies x by sqrt(d_model) here"
    compare(out - zero, x, "positions: added", "x does not come through unchanged", "a row", x=x, zero=zero)
    return None


@law("05_positional_encoding", "positional_encoding", "positions: formula")
def positions_formula(code: Code) -> str | None:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) the cosine of the same angle."""
    d, length = 16, 40
    module = code.build("positional_encoding", d_model=d, dropout=0.0, max_len=64)
    if any(p.requires_grad for p in module.parameters()):
        raise Missing("positions are learned")
    got = positions(code, torch.zeros(1, length, d))[0]

    def table(
        start: int = 0, power: float = 2, base: float = 10000, sign: int = -1, unit: float = 1
    ) -> Tensor:
        pos = torch.arange(start, start + length).double()[:, None] * unit
        angle = pos * base ** (sign * power / d * torch.arange(d // 2).double())
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float()

    def columns(power: float) -> Tensor:  # each column has an exponent of its own
        j = torch.arange(d).double()
        angle = torch.arange(length).double()[:, None] * 10000 ** (-power * j / d)
        return torch.where(j % 2 == 0, angle.sin(), angle.cos()).float()

    wanted = table()
    if close(got, wanted, 2e-3):
        return None
    if close(got, torch.cat([wanted[:, ::2], wanted[:, 1::2]], -1), 2e-3):
        return "all sines, then all cosines: another order of the same columns"
    # Angles that grow are too large to agree in the last columns: the first tell all mistakes apart.
    mistake = explain(
        "positions: formula",
        got[:9, :6],
        table=lambda **changes: table(**changes)[:9, :6],
        columns=lambda power: columns(power)[:9, :6],
    )
    row = f"position 2: {numbers(got[2])}, and should be {numbers(wanted[2])}"
    raise Failure("the encodings are wrong", row, mistake)


def wrap(module: nn.Module, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Call what stands around a sub-layer, which takes the sub-layer or what it gave."""
    try:
        return call(module, x=x, function=function)
    except (TypeError, AttributeError):
        return call(module, x=x, function=function(x))


@law("06_the_full_model", "sublayer_connection", "residual and norm")
def sublayer_equation(code: Code) -> str:
    """A sub-layer's output is added to its input: LayerNorm(x + f(x)), or pre-norm x + f(LayerNorm(x))."""
    module, x = code.build("sublayer_connection", d_model=16, dropout=0.0), torch.randn(2, 5, 16) * 3 + 1
    matrix, mistake = torch.randn(16, 16), ""
    with torch.no_grad():
        got = wrap(module, x, lambda y: y @ matrix)
    for c in (1.0, math.sqrt(15 / 16)):  # the classic's norm has the unbiased deviation

        def norm(y: Tensor, c: float = c) -> Tensor:
            return F.layer_norm(y, (16,)) * c

        if close(got, norm(x + x @ matrix), 1e-3):
            return "post-norm, as in the paper"
        if close(got, x + norm(x) @ matrix, 1e-3):
            return "pre-norm, where the paper has post-norm"
        mistake = mistake or explain("residual and norm", got, x=x, norm=norm, f=lambda y: y @ matrix)
    raise Failure("it is neither post-norm nor pre-norm", numbers(got), mistake)


@law("06_the_full_model", "sublayer_connection", "dropout of sub-layers")
def sublayer_dropout(code: Code) -> None:
    """Dropout acts on the sub-layer's output before the sum, never on x itself."""
    module, x = code.build("sublayer_connection", d_model=16, dropout=0.5), torch.randn(2, 5, 16)
    module.train()
    kept = wrap(module, x, torch.zeros_like)
    if not close(kept, wrap(module, x, torch.zeros_like)):
        mistake = "dropout is applied to the sum, or to x: apply it to the sub-layer's output only"
        raise Failure("x itself loses numbers to dropout", numbers(kept), mistake)
    if close(wrap(module, x, lambda y: y), wrap(module, x, lambda y: y)):
        raise Failure("dropout changes nothing in training", "", "dropout is not applied")


@law("04_feed_forward_and_embeddings", "generator", "generator: log-probabilities")
def generator(code: Code) -> str | None:
    """The generator gives log-probabilities over the vocabulary: their exponentials add up to 1."""
    module, x = code.build("generator", d_model=16, vocab=11), torch.randn(3, 5, 16) * 3
    with torch.no_grad(), Linears.of(module) as seen:
        out = call(module, x=x)
    if out.shape != (3, 5, 11):
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be (3, 5, 11)")
    return check_log_probs(out, seen.calls[-1][2] if seen.calls else None)


def check_log_probs(out: Tensor, logits: Tensor | None = None) -> str | None:
    """Raise Failure for probabilities, and for a softmax over another dimension than the vocabulary."""
    sums = out.exp().sum(-1)
    if close(sums, torch.ones_like(sums), 1e-3):
        if logits is not None and not close(out, logits.log_softmax(-1), 1e-3):
            compare(
                out, logits.log_softmax(-1), "probabilities", "the distribution is wrong", "a row", x=logits
            )
        return None
    for dim, what in ((0, "the batch"), (1, "the positions")):
        for x in (out.exp(), out):
            if close(x.sum(dim), torch.ones_like(x.sum(dim)), 1e-3):
                mistake = f"the softmax runs over {what}, dim={dim}: it must run over the vocabulary, dim=-1"
                raise Failure("a position's probabilities do not add up to 1", f"{sums[0, 0]:.3g}", mistake)
    if (out >= 0).all() and close(out.sum(-1), torch.ones_like(sums), 1e-3):
        raise Failure(
            "these are probabilities", numbers(out), "the logarithm is missing: log_softmax(dim=-1)"
        )
    return "gives logits"
