"""Laws of the parts: attention, heads, feed-forward network, embeddings, positions, norms (lessons 02 to 06)."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.adapt import Code, Linears, Missing, call, first, spied
from annotated.check.report import Failure, Law

LAWS: list[Law] = []


def law(lesson: str, part: str, name: str) -> Callable[[Callable[[Code], str | None]], Law]:
    """Register a function as a law; its docstring is what the law says."""

    def register(holds: Callable[[Code], str | None]) -> Law:
        LAWS.append(Law(name, part, lesson, holds))
        return LAWS[-1]

    return register


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def numbers(x: Tensor) -> str:
    """Show a few numbers of a tensor's last dimension."""
    row = x.detach().flatten(0, -2)[0] if x.dim() > 1 else x.detach()
    return "[" + ", ".join(f"{float(n):.3g}" for n in row.flatten()[:6]) + "]"


def explain(got: Tensor, mistakes: Mapping[str, Tensor | Callable[[], Tensor]]) -> str:
    """Name the mistake that would give exactly this; nothing if none does."""
    for mistake, other in mistakes.items():
        try:
            if close(got, other() if callable(other) else other, 1e-3):
                return mistake
        except (RuntimeError, IndexError):
            continue
    return ""


def compare(
    got: Tensor, wanted: Tensor, seen: str, mistakes: Mapping[str, Tensor | Callable[[], Tensor]], name: str
) -> None:
    """Raise Failure unless two tensors agree, with the mistake that explains the difference."""
    if close(got, wanted):
        return
    if got.shape != wanted.shape:
        shapes = f"the shape is {tuple(got.shape)}, and should be {tuple(wanted.shape)}"
        raise Failure(shapes, "", explain(got, mistakes))
    far = (got - wanted).abs().flatten(0, -2).amax(-1).nan_to_num(torch.inf).argmax()
    rows = numbers(got.flatten(0, -2)[far]), numbers(wanted.flatten(0, -2)[far])
    raise Failure(seen, f"{name}: {rows[0]}, and should be {rows[1]}", explain(got, mistakes))


# ---- attention (section 3.2.1)

SCALE = "the division by sqrt(d_k) is missing"


@law("02_attention", "attention", "attention: equation 1")
def equation_1(code: Code) -> None:
    """The output is softmax(Q K^T / sqrt(d_k)) V, with the softmax over the keys."""
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 6)
    try:
        got = first(code.attention(q, k, v))
    except NotImplementedError:
        raise
    except Exception as error:
        k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
        try:  # where queries and keys are as many, more mistakes run
            got = first(code.attention(q, k, v))
        except Exception:
            raise error from None
    s, c = q @ k.transpose(-2, -1), math.sqrt(8)
    mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
        SCALE: s.softmax(-1) @ v,
        "the scores are divided by d_k, not by its root": (s / 8).softmax(-1) @ v,
        "the scores are multiplied by sqrt(d_k)": (s * c).softmax(-1) @ v,
        "the softmax runs over the queries: it must run over the keys, dim=-1": lambda: (s / c).softmax(-2) @ v,
        "the softmax runs over dimension 1, the heads: it must run over the keys, dim=-1": lambda: (
            (s / c).softmax(1) @ v
        ),
        "the softmax runs over the batch: it must run over the keys, dim=-1": lambda: (s / c).softmax(0) @ v,
        "the softmax runs over all scores at once": lambda: (s / c).flatten(-2).softmax(-1).view_as(s) @ v,
        "the softmax is missing": s / c @ v,
        "log_softmax stands where softmax should": (s / c).log_softmax(-1) @ v,
        "the softmax is applied twice": (s / c).softmax(-1).softmax(-1) @ v,
        "a sigmoid stands where the softmax should": (s / c).sigmoid() @ v,
        "the division by sqrt(d_k) comes after the softmax": s.softmax(-1) / c @ v,
        "the division is by the root of the number of keys: d_k is query.size(-1)": lambda: (
            (s / math.sqrt(k.size(-2))).softmax(-1) @ v
        ),
        "the division is by the root of the number of queries: d_k is query.size(-1)": (
            (s / math.sqrt(q.size(-2))).softmax(-1) @ v
        ),
        "the weights are returned first: return output, weights": (s / c).softmax(-1),
        "queries and keys are swapped: it is Q K^T": lambda: (s.mT / c).softmax(-1) @ v,
        "the weights are transposed before they meet the values": lambda: (s / c).softmax(-1).mT @ v,
        "the values are not used: the weights must multiply V, not K": lambda: (s / c).softmax(-1) @ k,
    }
    compare(got, (s / c).softmax(-1) @ v, "the output is another", mistakes, "one row of the output")


def weights_from_output(code: Code, q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Read the weights off the output, by values that are the rows of a unit matrix."""
    values = torch.eye(k.size(-2)).expand(*k.shape[:-1], -1)
    return first(code.attention(q, k, values, mask))


@law("02_attention", "attention", "attention: scale")
def scale(code: Code) -> None:
    """Scores are divided by sqrt(d_k), whatever d_k is."""
    found = []
    for d_k in (4, 16, 64):
        q, k = torch.zeros(1, 1, 1, d_k), torch.zeros(1, 1, 2, d_k)
        q[..., 0], k[..., 0, 0] = 1, 2  # scores 2 and 0
        w = weights_from_output(code, q, k).flatten()
        found.append(float((w[0] / w[1]).log() / 2))
    wanted = [1 / math.sqrt(d_k) for d_k in (4, 16, 64)]
    if not close(torch.tensor(found), torch.tensor(wanted), 1e-3):
        same = max(found) - min(found) < 1e-3
        mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
            SCALE: torch.ones(3),
            "the scores are divided by d_k, not by its root": torch.tensor([1 / 4, 1 / 16, 1 / 64]),
            "the scores are multiplied by sqrt(d_k)": torch.tensor([2.0, 4, 8]),
        }
        mistake = explain(torch.tensor(found), mistakes)
        mistake = mistake or ("the scale is one number, not d_k's: take query.size(-1)" if same else "")
        raise Failure(
            "the scores are scaled otherwise",
            f"at d_k = 4, 16, 64 by {numbers(torch.tensor(found))}, and should be {numbers(torch.tensor(wanted))}",
            mistake,
        )


@law("02_attention", "attention", "attention: weights")
def weights_sum_to_one(code: Code) -> None:
    """The weights that are returned are those that were used, and each query's add up to 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    result = code.attention(q, k, torch.eye(5).expand(2, 3, 5, 5))
    if not isinstance(result, tuple) or len(result) < 2 or result[1] is None:
        raise Missing("attention returns no weights")
    used, told = result[:2]
    sums = told.sum(-1)
    if not close(sums, torch.ones_like(sums)):
        across = close(told.sum(-2), torch.ones(2, 3, 5))
        mistake = "the softmax runs over the queries: it must run over the keys, dim=-1" if across else ""
        mistake = mistake or "what is returned are the scores, not the weights" if (told < 0).any() else mistake
        raise Failure("a row of weights does not add up to 1", f"one sum: {sums.flatten()[0]:.3g}", mistake)
    compare(told, used, "the weights returned are not those used", {}, "one row")


@law("02_attention", "attention", "attention: mask")
def mask_polarity(code: Code) -> None:
    """A mask is True where attention is allowed; a hidden key gets weight 0, and the others share the 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    s = q @ k.mT / math.sqrt(8)
    got, low = weights_from_output(code, q, k, mask), torch.finfo(torch.float).min
    wanted = s.masked_fill(~mask, low).softmax(-1)
    mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
        "the mask is inverted, as if True meant hidden: fill where it is False, scores.masked_fill(~mask, ...)": (
            s.masked_fill(mask, low).softmax(-1)
        ),
        "the mask is not used": s.softmax(-1),
        "the mask is applied after the softmax, so that a row no longer adds up to 1": s.softmax(-1) * mask,
        "a hidden key's score becomes about 0, which still has weight: the fill is 1e-9 or a product with the "
        "mask, and must be a huge negative number, -1e9": (s * mask).softmax(-1),
        "the mask is added to the scores as 0 and 1": (s + mask).softmax(-1),
        "the mask is transposed: rows are queries, columns keys": s.masked_fill(~mask.mT, low).softmax(-1),
        "a hidden key's score becomes a huge positive number: the sign of the fill is lost": (
            s.masked_fill(~mask, 1e9).softmax(-1)
        ),
        "the mask is subtracted, so that it hides what it should show": (s - 1e9 * mask).softmax(-1),
    }
    unscaled = s * math.sqrt(8)  # an error in the scale is another law's
    if not any(close(got, x.masked_fill(~mask, low).softmax(-1)) for x in (unscaled, s / math.sqrt(8))):
        compare(got, wanted, "a mask does not hide what it should", mistakes, "weights of one query")
    q, k = torch.ones(1, 1, 1, 4) * 9, torch.ones(1, 1, 3, 4) * torch.tensor([-9.0, -9, 9])[:, None]
    got = weights_from_output(code, q, k, torch.tensor([True, True, False])).flatten()
    if not close(got, torch.tensor([0.5, 0.5, 0])):
        mistake = "the fill is too small: take -1e9, or the lowest number that the type has"
        example = f"weights {numbers(got)}, and should be [0.5, 0.5, 0]"
        raise Failure("a hidden key is seen where the others have very low scores", example, mistake)


@law("02_attention", "attention", "attention: empty rows")
def empty_rows(code: Code) -> str:
    """A query that may see nothing gets numbers, not NaN, forward and backward."""
    q, k, v = (torch.randn(1, 1, 2, 4, requires_grad=True) for _ in range(3))
    out = first(code.attention(q, k, v, torch.tensor([[True, True], [False, False]])))
    out.sum().backward()
    grads = [x.grad for x in (q, k, v) if x.grad is not None]
    if not out.isfinite().all() or not all(g.isfinite().all() for g in grads):
        row = numbers(out[0, 0, 1])
        mistake = (
            "-inf fills the whole row, and the softmax divides 0 by 0: fill with a huge finite number, or set "
            "the weights of empty rows to 0"
        )
        raise Failure("a row with nothing allowed gives NaN", f"its output: {row}", mistake)
    return "gives zeros" if close(out[0, 0, 1], torch.zeros(4)) else "gives a mean of values"


@law("02_attention", "attention", "attention: dropout")
def dropout_of_weights(code: Code) -> None:
    """Dropout acts on the weights, after the softmax and before the values."""
    seen: list[Tensor] = []

    def half(x: Tensor) -> Tensor:
        seen.append(x)
        return x * 0.5

    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 1, 5, 6)
    plain = first(code.attention(q, k, v))
    try:
        got = first(code.attention(q, k, v, dropout=half))
    except (TypeError, RuntimeError):
        raise Missing("attention takes no dropout that is a function") from None
    if not seen and close(got, plain):
        if "dropout" not in str(getattr(code["attention"], "__code__", None) and
                                code["attention"].__code__.co_varnames):  # fmt: skip
            raise Missing("attention takes no dropout")
        raise Failure("the dropout that is given is never called", "", "dropout(weights) is missing")
    [x, *_] = seen
    if x.shape[-2:] != (4, 5) or not close(x.sum(-1), torch.ones(1, 1, 4)):
        what = "the output" if x.shape[-2:] == (4, 6) else "the scores, before the softmax"
        raise Failure(
            f"dropout is applied to {what}",
            f"it gets {tuple(x.shape)}",
            f"dropout acts on {what}: apply it to the weights, after the softmax",
        )
    unused = "what dropout gives back is not used: p = dropout(p)"
    compare(got, plain / 2, "dropout does not change the output", {unused: plain}, "one row")


# ---- several heads (section 3.2.2)


def heads(code: Code, h: int = 4, d_model: int = 16) -> nn.Module:
    module = code.build("multi_head_attention", h=h, d_model=d_model, dropout=0.0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return module


@law("03_multi_head_attention", "multi_head_attention", "heads: equation")
def multi_head_equation(code: Code) -> None:
    """The heads are attentions over d_k numbers each, concatenated, then W^O."""
    module, h, d, shape = heads(code), 4, 16, (3, 5, 16)
    q, k, v = torch.randn(shape), torch.randn(3, 6, 16), torch.randn(3, 6, 16)
    with torch.no_grad(), Linears.of(module) as seen:
        out = code.attend(module, q, k, v)
    if out.shape != shape:
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be {shape}", "", "")
    reads = {n: [c for c in seen.calls if close(code.flip(c[1]), x)] if True else [] for n, x in
             (("query", q), ("key", k), ("value", v))}  # fmt: skip
    for name, calls in reads.items():
        if not calls and len(seen.calls) >= 3:
            also = [n for n, c in reads.items() if len(c) > 1]
            twice = f", and two read the {also[0]}" if also else ""
            raise Failure(f"no linear map reads the {name}{twice}", "", f"W^{name[0].upper()} reads the wrong "
                          f"argument: it must read the {name}")  # fmt: skip
    if not all(len(calls) == 1 for calls in reads.values()):
        raise Missing("its linear maps of query, key and value are not one nn.Linear each")
    (m_q, _, Q), (m_k, _, K), (m_v, _, V) = (calls[0] for calls in reads.values())
    if len({id(m) for m in (m_q, m_k, m_v)}) < 3:
        raise Failure("one matrix serves two of W^Q, W^K and W^V", "", "the same layer is used for two of W^Q, "
                      "W^K and W^V: give each its own")  # fmt: skip
    Q, K, V = (code.flip(x) for x in (Q, K, V))
    last, joined, result = seen.calls[-1]
    if last in (m_q, m_k, m_v):
        joined, result = out, out
    else:
        joined, result = code.flip(joined), code.flip(result)

    def attended(Q: Tensor, K: Tensor, V: Tensor, by: float, dim: int = -1) -> Tensor:
        return (Q @ K.mT / by).softmax(dim) @ V  # (B, h, T, d_k)

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], h, -1).transpose(1, 2)

    def join(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def viewed(x: Tensor) -> Tensor:
        return x.reshape(3, h, x.size(1), -1)

    def woven(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, h).permute(0, 3, 1, 2)

    root, S = math.sqrt(d // h), [split(x) for x in (Q, K, V)]
    wanted, right = join(attended(*S, root)), [woven(x) for x in (Q, K, V)]
    mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
        "the heads are split by view alone, which mixes words: view(B, T, h, d_k), then transpose(1, 2)": lambda: (
            join(attended(*map(viewed, (Q, K, V)), root))
        ),
        "the heads are split by view alone, and joined by view alone: transpose(1, 2) is missing": lambda: (
            attended(*map(viewed, (Q, K, V)), root).reshape(3, 5, d)
        ),
        "the heads are joined by view alone, which mixes words: transpose(1, 2) first": lambda: (
            attended(*S, root).reshape(3, 5, d)
        ),
        "the heads are added up or averaged, not concatenated": lambda: attended(*S, root).mean(1),
        "the division by sqrt(d_k) is missing in the heads": lambda: join(attended(*S, 1)),
        "the heads divide by sqrt(d_model): each head is only d_k = d_model / h wide": lambda: (
            join(attended(*S, math.sqrt(d)))
        ),
        "the heads divide by d_k, not by its root": lambda: join(attended(*S, d // h)),
        "the heads divide by sqrt(h): d_k is d_model / h": lambda: join(attended(*S, math.sqrt(h + 1e-9))),
        "there is one head as wide as the model: h is not used": lambda: attended(Q, K, V, math.sqrt(d)),
        "there is one head as wide as the model, divided by sqrt(d_k)": lambda: attended(Q, K, V, root),
        "the softmax in the heads runs over the queries, not over the keys": lambda: join(attended(*S, root, -2)),
        "the softmax in the heads runs over the heads (dim=1): it must be dim=-1": lambda: (
            join(attended(*S, root, 1))
        ),
        "keys and queries are swapped": lambda: join(attended(S[1], S[0], S[2], root)),
    }
    if not close(joined, join_woven(attended(*right, root))):
        compare(joined, wanted, "what enters W^O is not the heads side by side", mistakes, "one row")
    if joined is out:
        raise Failure("there is no fourth linear map", "", "W^O is missing after the heads are concatenated")
    added = {"the query is added inside: the residual connection belongs outside": result + q}
    compare(out, result, "something is done after W^O", added, "one row")


def join_woven(x: Tensor) -> Tensor:
    """Join heads whose numbers lie d_k apart, which is as good an order as any."""
    return x.permute(0, 2, 3, 1).flatten(2)


@law("03_multi_head_attention", "multi_head_attention", "heads: each query alone")
def queries_alone(code: Code) -> None:
    """The output at a query depends on no other query, and on no other sentence of the batch."""
    module, mixed = heads(code), "words are mixed: view where transpose(1, 2) is needed, in splitting or joining"
    q, k = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    with torch.no_grad():
        before, q[:, 1] = code.attend(module, q, k, k), 3.0
        after = code.attend(module, q, k, k)
        moved = [t for t in (0, 2, 3, 4) if not close(before[:, t], after[:, t])]
        if moved:
            raise Failure(f"changing query 1 changes the output at {moved}", "", mixed)
        k[1] = 2.0
        if not close(after[0], code.attend(module, q, k, k)[0]):
            mistake = "sentences are mixed: is the batch the first dimension for you (batch_first)?"
            raise Failure("changing a sentence of the batch changes another's output", "", mistake)


@law("03_multi_head_attention", "multi_head_attention", "heads: order of keys")
def order_of_keys(code: Code) -> None:
    """Keys and values in another order, both alike, give the same output."""
    module, q, k, v = heads(code), torch.randn(2, 3, 16), torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    turned = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        one, other = code.attend(module, q, k, v), code.attend(module, q, k[:, turned], v[:, turned])
    mixed = "words are mixed before attention: view where view and transpose(1, 2) are needed"
    if not close(one, other):
        raise Failure("another order of the keys changes the output", f"{numbers(one)}, then {numbers(other)}",
                      mixed)  # fmt: skip


@law("03_multi_head_attention", "multi_head_attention", "heads: mask")
def mask_of_heads(code: Code) -> None:
    """A mask (B, 1 or T, S) hides the same keys in every head, of its own sentence only."""
    module, lengths = heads(code), torch.tensor([5, 2, 4, 3])
    q, x, wrong = torch.randn(4, 3, 16), torch.randn(4, 5, 16), torch.randn(4, 5, 16)
    mask = (torch.arange(5) < lengths[:, None]).unsqueeze(1)  # (B, 1, S), as many sentences as heads
    swapped = torch.where(mask.mT, x, wrong)
    with torch.no_grad():
        one, other = code.attend(module, q, x, x, mask), code.attend(module, q, swapped, swapped, mask)
        if close(one, code.attend(module, q, x, x)):
            raise Failure("a mask changes nothing", "", "the mask is not used: pass it on to attention")
        if not close(one, other):
            inverted = torch.where(mask.mT, wrong, x)
            mistake = ""
            if close(one, code.attend(module, q, inverted, inverted, mask)):
                mistake = "the mask is inverted, as if True meant hidden"
            else:
                with spied() as weights:
                    code.attend(module, q, x, x, mask)
                w = weights[0].view(4, 4, 3, 5) if weights and weights[0].numel() == 240 else torch.ones(1)
                if w.dim() == 4 and (w.mul((~mask.transpose(0, 1)).float()) < 1e-6).all():
                    mistake = "the mask lines up with the heads, not with the batch: mask.unsqueeze(1)"
                elif w.dim() == 4 and (w[:, :1].mul((~mask).float()[:, None]) < 1e-6).all():
                    mistake = "the mask reaches the first head only"
            raise Failure("what is hidden changes the output", f"{numbers(one)}, then {numbers(other)}", mistake)
        causal = torch.ones(1, 5, 5, dtype=torch.bool).tril()
        try:
            y, one = code.attend(module, x[:3], x[:3], x[:3], causal.expand(3, 5, 5)), x[:3].clone()
        except (RuntimeError, ValueError) as error:
            mistake = "a mask for each query, (B, T, S), does not fit: mask.unsqueeze(1) makes it (B, 1, T, S)"
            raise Failure(str(error).splitlines()[0], "a mask (3, 5, 5), 4 heads", mistake) from None
        one[:, -1] = 7.0
        if not close(code.attend(module, one, one, one, causal.expand(3, 5, 5))[:, :-1], y[:, :-1]):
            raise Failure("with a causal mask a query sees a later key", "", "rows and columns are swapped")


@law("03_multi_head_attention", "multi_head_attention", "heads: they differ")
def heads_differ(code: Code) -> None:
    """There are h heads, and each has weights of its own."""
    module, x = heads(code), torch.randn(2, 5, 16)
    with torch.no_grad(), spied() as weights:
        code.attend(module, x, x, x)
    if not weights:
        raise Missing("its softmax is not PyTorch's")
    if weights[0].numel() != 2 * 4 * 25:
        if len(weights) == 4:  # a loop over heads
            weights = [torch.stack(weights, 1)]
        else:
            raise Failure(f"the weights have shape {tuple(weights[0].shape)}, not (2, 4, 5, 5)", "",
                          "the number of heads is not h: split d_model into h heads of d_k")  # fmt: skip
    w = weights[0].view(2, 4, 5, 5)
    if close(w[:, 0], w[:, 1]):
        raise Failure("two heads have the same weights", numbers(w), "every head reads the same numbers")


# ---- around attention (sections 3.1, 3.3 to 3.5)


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
    (w_1, _, inner), (w_2, _, _) = seen.calls
    if inner.size(-1) != 24:
        mistake = "it narrows and widens in the wrong order, or d_ff is not used: Linear(d_model, d_ff) is first"
        raise Failure(f"it is {inner.size(-1)} wide inside, and should be d_ff = 24", "", mistake)
    with torch.no_grad():
        for activation in (F.gelu, F.silu):
            if close(out, w_2(activation(inner))):
                return f"with {activation.__name__}, where the paper has ReLU"
        mistakes = {
            "there is no ReLU between the two linear maps, so that they are one": w_2(inner),
            "the ReLU comes after the second linear map, not between": w_2(inner).relu(),
            "there is a second ReLU, after the second linear map": w_2(inner.relu()).relu(),
            "a sigmoid stands where the ReLU should": w_2(inner.sigmoid()),
            "a softmax stands where the ReLU should": w_2(inner.softmax(-1)),
            "the input is added inside: the residual connection belongs outside": w_2(inner.relu()) + x,
        }
        compare(out, w_2(inner.relu()), "the output is another", mistakes, "one row")
    return None


@law("04_feed_forward_and_embeddings", "feed_forward", "feed-forward: each position alone")
def positions_alone(code: Code) -> None:
    """The network treats each position by itself, and all alike."""
    module, x = code.build("feed_forward", d_model=8, d_ff=24, dropout=0.0), torch.randn(2, 5, 8)
    with torch.no_grad():
        whole, alone = first(call(module, x=x)), first(call(module, x=x[:, 2:3]))
    compare(whole[:, 2:3], alone, "a position depends on the others", {}, "position 2")


@law("06_the_full_model", "layer_norm", "layer norm: each vector alone")
def layer_norm(code: Code) -> None:
    """Each vector is normalised by itself over its features: mean 0 and deviation 1, before gain and bias."""
    module, x = code.build("layer_norm", d_model=64), torch.randn(3, 5, 64) * 4 + 2
    with torch.no_grad():
        out = call(module, x=x)
    wanted, biased = F.layer_norm(x, (64,)), math.sqrt(63 / 64)
    if close(out, wanted * biased, 1e-3):
        return  # the unbiased deviation: the classic's, and as good
    mistakes = {
        "mean and deviation run over the positions (dim=1): they must run over the features, dim=-1": (
            (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=c) for c in (0, 1)
        ),
    }
    told: dict[str, Tensor | Callable[[], Tensor]] = {k: v for k, vs in mistakes.items() for v in vs}
    told |= {
        "the mean is not subtracted": x / x.std(-1, keepdim=True, correction=0),
        "the division by the deviation is missing": x - x.mean(-1, keepdim=True),
        "the division is by the variance, not by its root": (
            (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, correction=0)
        ),
    }
    compare(out, wanted, "vectors are not normalised", told, "one vector")


@law("04_feed_forward_and_embeddings", "embeddings", "embeddings: scale")
def embedding_scale(code: Code) -> None:
    """A token's vector is its row of the table times sqrt(d_model)."""
    module = code.build("embeddings", d_model=16, vocab=11)
    tokens = torch.tensor([[3, 7, 3]])
    tables = [p for p in module.parameters() if p.shape == (11, 16)]
    if not tables:
        if any(p.shape == (16, 11) for p in module.parameters()):
            raise Failure("the table is (16, 11)", "", "vocab and d_model are swapped: nn.Embedding(vocab, d_model)")
        raise Missing("its table (vocab, d_model) is not found")
    with torch.no_grad():
        out, rows = call(module, tokens=tokens), tables[0][tokens]
        mistakes = {
            "the factor sqrt(d_model) is missing": rows,
            "the factor is d_model, not its root": rows * 16,
            "the vector is divided by sqrt(d_model): it must be multiplied": rows / 4,
        }
        compare(out, rows * 4, "vectors have another scale", mistakes, "one vector")


@law("05_positional_encoding", "positional_encoding", "positions: added")
def positions_added(code: Code) -> str | None:
    """Positions are added to x: the same for every sentence, different at every position."""
    module = code.build("positional_encoding", d_model=16, dropout=0.0, max_len=64)
    x = torch.randn(3, 7, 16)
    with torch.no_grad():
        out, zero = code.flip(call(module, x=code.flip(x))), code.flip(call(module, x=code.flip(x * 0)))
    if out.shape != x.shape:
        if out.numel() in (7 * 16, 3 * 7 * 16, 64 * 16):
            raise Failure(f"the output has shape {tuple(out.shape)}", "", "it returns the encodings: add them to x")
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be (3, 7, 16)")
    if close(out, zero):
        raise Failure("the output does not depend on x", "", "it returns the encodings: add them to x")
    if not close(zero[0], zero[1]):
        if close(zero[:, 0], zero[:, 1]):
            mistake = "positions are counted along the batch: take x.size(1), not x.size(0)"
            raise Failure("sentences get different positions", numbers(zero[0]), mistake)
        raise Failure("sentences get different positions", f"{numbers(zero[0])}, {numbers(zero[1])}")
    if close(zero[0, 0], zero[0, 1]):
        raise Failure("all positions get the same vector", numbers(zero), "one row is added everywhere")
    if close(out - zero, x * 4):
        return "multiplies x by sqrt(d_model) here"
    compare(out - zero, x, "x does not come through unchanged",
            {"they are multiplied with x: they must be added": x * zero, "x is added twice": 2 * x}, "x")  # fmt: skip
    return None


@law("05_positional_encoding", "positional_encoding", "positions: formula")
def positions_formula(code: Code) -> str | None:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) the cosine of the same angle."""
    d, length = 16, 40
    module = code.build("positional_encoding", d_model=d, dropout=0.0, max_len=64)
    if any(p.requires_grad for p in module.parameters()):
        raise Missing("positions are learned")
    x = torch.zeros(1, length, d)
    with torch.no_grad():
        got = code.flip(call(module, x=code.flip(x)))[0]

    def table(start: int = 0, power: float = 2 / d, base: float = 10000, sign: int = -1, unit: float = 1) -> Tensor:
        pos = torch.arange(start, start + length).double()[:, None] * unit
        angle = pos * base ** (sign * power * torch.arange(d // 2).double())
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float()

    wanted = table()
    sines, cosines = wanted[:, ::2], wanted[:, 1::2]
    if close(got, torch.cat([sines, cosines], -1), 1e-3):
        return "all sines, then all cosines: another order of the same columns"
    own = torch.arange(d).double()  # each column with its own exponent
    angle = torch.arange(length).double()[:, None] * 10000 ** (-2 * own / d)
    shifted = torch.arange(length).double()[:, None] * 10000 ** (-own / d)

    def alternating(a: Tensor) -> Tensor:
        return torch.where(own % 2 == 0, a.sin(), a.cos()).float()

    mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
        "positions begin at 1: they begin at 0": table(start=1),
        "sines and cosines are swapped: even columns are sines": torch.stack([cosines, sines], -1).flatten(1),
        "every column is a sine": torch.stack([sines, sines], -1).flatten(1),
        "every column is a cosine": torch.stack([cosines, cosines], -1).flatten(1),
        "the exponent is i / d_model: it is 2i / d_model": table(power=1 / d),
        "the exponent is 4i / d_model: the steps of arange(0, d_model, 2) are 2i already": table(power=4 / d),
        "the columns of a pair have different angles: both take the exponent 2i / d_model": alternating(shifted),
        "the columns of a pair have different angles, with twice the exponent": alternating(angle),
        "the angle grows with i: divide by 10000^(2i / d_model), do not multiply": table(sign=1),
        "the base is 1000: it is 10000": table(base=1000),
        "the base is 100: it is 10000": table(base=100),
        "the base is 100000: it is 10000": table(base=100000),
        "the angle is in degrees": table(unit=math.pi / 180),
        "the encodings are added twice": 2 * wanted,
        "positions are not added": torch.zeros_like(wanted),
        "there are no waves: sin and cos are missing": lambda: table().asin(),
    }
    if not close(got, wanted, 2e-3):
        compare(got, wanted, "the encodings are others", mistakes, "one position")
    return None


@law("06_the_full_model", "sublayer_connection", "residual and norm")
def sublayer_equation(code: Code) -> str:
    """A sub-layer's output is added to its input: LayerNorm(x + f(x)), or pre-norm x + f(LayerNorm(x))."""
    module, x = code.build("sublayer_connection", d_model=16, dropout=0.0), torch.randn(2, 5, 16) * 3 + 1
    w = torch.randn(16, 16)
    with torch.no_grad():
        got = wrap(module, x, lambda y: y @ w)
    for c in (1.0, math.sqrt(15 / 16)):  # the classic's norm has the unbiased deviation

        def norm(y: Tensor, c: float = c) -> Tensor:
            return F.layer_norm(y, (16,)) * c

        if close(got, norm(x + x @ w), 1e-3):
            return "post-norm, as in the paper"
        if close(got, x + norm(x) @ w, 1e-3):
            return "pre-norm, where the paper has post-norm"
        mistakes: dict[str, Tensor | Callable[[], Tensor]] = {
            "the residual connection is missing: x must be added": norm(x @ w),
            "the residual connection is missing (pre-norm): x must be added": norm(x) @ w,
            "the norm is missing": x + x @ w,
            "the residual adds the normalised x: it must add x itself": norm(x) + norm(x) @ w,
            "only the sub-layer's output is normalised: normalise the sum": x + norm(x @ w),
            "only x is normalised: normalise the sum": norm(x) + x @ w,
            "it normalises before and after": norm(x + norm(x) @ w),
            "x is added twice": norm(2 * x + x @ w),
            "the sub-layer's output is not used": norm(x),
        }
        if mistake := explain(got, mistakes):
            break
    raise Failure("it is neither post-norm nor pre-norm", numbers(got), mistake)


def wrap(module: nn.Module, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Call what stands around a sub-layer, which takes the sub-layer or what it gave."""
    try:
        return call(module, x=x, function=function)
    except TypeError:
        return call(module, x=x, output=function(x))
    except AttributeError:
        return call(module, x=x, output=function(x))


@law("06_the_full_model", "sublayer_connection", "dropout of sub-layers")
def sublayer_dropout(code: Code) -> None:
    """Dropout acts on the sub-layer's output before the sum, never on x itself."""
    module, x = code.build("sublayer_connection", d_model=16, dropout=0.5), torch.randn(2, 5, 16)
    module.train()
    kept = wrap(module, x, lambda y: y * 0)
    if not close(kept, wrap(module, x, lambda y: y * 0)) or (kept == 0).float().mean() > 0.2:
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
            twice = {"softmax and log_softmax are both applied: one is enough": logits.softmax(-1).log_softmax(-1)}
            compare(out, logits.log_softmax(-1), "the distribution is another", twice, "one row")
        return None
    for dim, what in ((0, "the batch"), (1, "the positions")):
        for x in (out.exp(), out):
            if close(x.sum(dim), torch.ones_like(x.sum(dim)), 1e-3):
                mistake = f"the softmax runs over {what}, dim={dim}: it must run over the vocabulary, dim=-1"
                raise Failure("the probabilities of one position do not add up to 1", f"{sums[0, 0]:.3g}", mistake)
    if (out >= 0).all() and close(out.sum(-1), torch.ones_like(sums), 1e-3):
        raise Failure("these are probabilities", numbers(out), "the logarithm is missing: log_softmax(dim=-1)")
    return "gives logits"
