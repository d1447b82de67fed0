"""Laws of attention and of its heads (lessons 02 and 03)."""

import inspect
import math

import torch
from torch import Tensor, nn

from annotated.check.adapt import Code, Missing, first, perturb, takes
from annotated.check.law import (
    Failure,
    close,
    compare,
    expect,
    expect_shape,
    explain,
    law,
    normalized,
    numbers,
    spied,
    trace,
    wrapping,
)

LOW = torch.finfo(torch.float).min


@law("02_attention", "attention", "attention: equation 1")
def equation_1(code: Code) -> None:
    """The output is softmax(Q K^T / sqrt(d_k)) V, with the softmax over the keys."""
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 6)
    try:
        got = first(code.attention(q, k, v))
    except (RuntimeError, ValueError):  # where queries and keys are as many, more mistakes run
        k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
        got = first(code.attention(q, k, v))
    s, c = q @ k.mT, math.sqrt(8)
    compare(got, (s / c).softmax(-1) @ v, s=s, c=c, q=q, k=k, v=v)


def weights_from_output(code: Code, q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Read the weights off the output, by values that are the rows of a unit matrix."""
    values = torch.eye(k.size(-2)).expand(*k.shape[:-1], -1)
    return first(code.attention(q, k, values, mask))


@law("02_attention", "attention", "attention: scale")
def scale(code: Code) -> None:
    """Scores are divided by sqrt(d_k), whatever d_k is."""
    widths, found = torch.tensor([4.0, 16, 64]), []
    for d_k in (4, 16, 64):
        q, k = torch.zeros(1, 1, 1, d_k), torch.zeros(1, 1, 2, d_k)
        q[..., 0], k[..., 0, 0] = 1, 2  # scores 2 and 0
        w = weights_from_output(code, q, k).flatten()
        found.append(float((w[0] / w[1]).log() / 2))
    got, wanted = torch.tensor(found), widths**-0.5
    example = f"at d_k = 4, 16, 64 by {numbers(got)}, and should be {numbers(wanted)}"
    right = close(got, wanted, 1e-3)
    expect(right, "the scores are multiplied by another factor", example, got=got, d_k=widths)


@law("02_attention", "attention", "attention: weights")
def weights_sum_to_one(code: Code) -> None:
    """The weights that are returned are those that were used, and each query's add up to 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    result = code.attention(q, k, torch.eye(5).expand(2, 3, 5, 5))
    if not isinstance(result, tuple) or len(result) < 2 or result[1] is None:
        raise Missing("attention returns no weights")
    used, told = result[:2]
    sums = told.sum(-1)
    example = f"one sum: {sums.flatten()[0]:.3g}"
    expect(close(sums, torch.ones_like(sums)), "a row of weights does not add up to 1", example, told=told)
    example = f"{numbers(told)}, used {numbers(used)}"
    expect(close(told, used), "the weights returned are not those used", example)


@law("02_attention", "attention", "attention: mask")
def mask_polarity(code: Code) -> None:
    """A mask is True where attention is allowed; a hidden key gets weight 0, and the others share the 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    got = weights_from_output(code, q, k, mask)
    for c in (1, 8, math.sqrt(8)):  # an error in the scale is another law's
        facts = {"s": q @ k.mT / c, "mask": mask, "low": LOW}
        wanted = (q @ k.mT / c).masked_fill(~mask, LOW).softmax(-1)
        if close(got, wanted) or explain("attention: mask", got, **facts):
            break
    rows = [f"weights of a query with the mask {numbers(row)}" for row in mask]
    compare(got, wanted, "a mask does not hide what it should", rows, **facts)
    q, k = torch.ones(1, 1, 1, 4) * 9, torch.ones(1, 1, 3, 4) * torch.tensor([-9.0, -9, 9])[:, None]
    got = weights_from_output(code, q, k, torch.tensor([[True, True, False]])).flatten()
    example = f"weights {numbers(got)}, and should be [0.5, 0.5, 0]"
    right = close(got, torch.tensor([0.5, 0.5, 0]))
    expect(right, "a hidden key is seen where the others have very low scores", example)


@law("02_attention", "attention", "attention: empty rows")
def empty_rows(code: Code) -> str:
    """A query that may see nothing gets numbers, not NaN, forward and backward."""
    q, k, v = (torch.randn(1, 1, 2, 4, requires_grad=True) for _ in range(3))
    with torch.enable_grad():
        out = first(code.attention(q, k, v, torch.tensor([[True, True], [False, False]])))
        out.sum().backward()
    finite = all(x.isfinite().all() for x in (out, q.grad, k.grad, v.grad) if x is not None)
    expect(finite, "a row with nothing allowed gives NaN", f"its output: {numbers(out[0, 0, 1])}")
    return "gives zeros" if close(out[0, 0, 1], torch.zeros(4)) else "gives a mean of values"


@law("02_attention", "attention", "attention: dropout")
def dropout_of_weights(code: Code) -> None:
    """Dropout acts on the weights, after the softmax and before the values."""
    if inspect.isclass(code["attention"]):
        raise Missing("attention is a module, with dropout of its own")
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
    if not seen and not takes(code["attention"], "drop"):
        raise Missing("attention takes no dropout")
    expect(seen, "the dropout that is given is never called")
    x = seen[0]
    what = "the output" if x.shape[-2:] == (4, 6) else "the scores, before the softmax"
    of_weights = x.shape[-2:] == (4, 5) and close(x.sum(-1), torch.ones(1, 1, 4))
    expect(of_weights, f"dropout is applied to {what}", f"it gets {tuple(x.shape)}")
    compare(got, plain / 2, "dropout does not change the output", plain=plain)


# ---- several heads (section 3.2.2)

H, D = 4, 24
HEADS = "03_multi_head_attention", "multi_head_attention"


def heads(code: Code) -> nn.Module:
    """Four heads of width six, far enough from their first weights that every part counts."""
    return perturb(code.build("multi_head_attention", h=H, d_model=D, dropout=0.0), 0.3)


@law(*HEADS, "heads: equation")
def multi_head_equation(code: Code) -> str:
    """The heads are attentions over d_k numbers each, concatenated, then W^O."""
    module = heads(code)
    given = {name: torch.randn(3, n, D) for name, n in (("query", 5), ("key", 6), ("value", 6))}
    out, calls = trace(lambda: code.attend(module, *given.values()))
    expect_shape(out, 3, 5, D)
    again = code.attend(module, *given.values())
    expect(close(out, again), "the same input gives two outputs in evaluation mode")
    for name in given:
        other = code.attend(module, **given | {name: given[name] * 2})
        expect(not close(out, other), f"the output does not depend on the {name}")
    tensors = [(m, x, y) for m, x, y in calls if isinstance(x, Tensor) and isinstance(y, Tensor)]
    calls = [(m, code.flip(x), code.flip(y)) for m, x, y in tensors]
    maps = [call for call in calls if isinstance(call[0], nn.Linear)]
    narrow = any(linear.in_features == D // H for linear, _, _ in maps)
    expect(not narrow, f"a linear map reads {D // H} numbers of the query, not all {D}")
    entered = {name: (x, *normalized(x, calls)) for name, x in given.items()}
    reads = {name: [c for c in maps if any(close(c[1], x) for x in xs)] for name, xs in entered.items()}
    if not all(len(found) == 1 for found in reads.values()):
        raise Missing("its linear maps of query, key and value are not one nn.Linear each")
    own = {found[0][0] for found in reads.values()}
    expect(len(own) == 3, "one matrix serves two of W^Q, W^K and W^V")
    Q, K, V = (found[0][2] for found in reads.values())
    last, joined, result = maps[-1]
    joined, result = (out, out) if last in own else (joined, result)

    def attended(Q: Tensor, K: Tensor, V: Tensor, divisor: float, dim: int = -1) -> Tensor:
        return (Q @ K.mT / divisor).softmax(dim) @ V  # (B, h, T, d_k)

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], H, -1).transpose(1, 2)

    def join(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def woven(x: Tensor) -> Tensor:  # a head's numbers lie d_k apart: as good an order as any
        return x.view(*x.shape[:2], -1, H).permute(0, 3, 1, 2)

    root = math.sqrt(D // H)
    wanted = join(attended(split(Q), split(K), split(V), root))
    other = attended(woven(Q), woven(K), woven(V), root).permute(0, 2, 3, 1).flatten(2)
    if not close(joined, other):
        ways = {"split": split, "join": join, "heads": attended}
        ways["viewed"] = lambda x: x.reshape(3, H, x.size(1), -1)
        ways["cut"] = lambda x: x.view(*x.shape[:2], -1, H).transpose(1, 2)
        seen = "what enters W^O is not the heads side by side"
        compare(joined, wanted, seen, Q=Q, K=K, V=V, h=H, root=root, **ways)
    expect(joined is not out, "there is no fourth linear map")
    query = given["query"]
    if inside := wrapping(query, reads["query"][0][1], result, out, calls):
        return inside
    compare(out, result, "something is done after W^O", law="heads: after W^O", result=result, q=query)
    return ""


@law(*HEADS, "heads: each query alone")
def queries_alone(code: Code) -> None:
    """The output at a query depends on no other query, and on no other sentence of the batch."""
    module, q, k = heads(code), torch.randn(2, 5, D), torch.randn(2, 5, D)
    before, q[:, 1] = code.attend(module, q, k, k), 3.0
    after = code.attend(module, q, k, k)
    moved = [t for t in (0, 2, 3, 4) if not close(before[:, t], after[:, t])]
    expect(not moved, f"changing query 1 changes the output at {moved}")
    k[1] = 2.0
    same = close(after[0], code.attend(module, q, k, k)[0])
    expect(same, "changing a sentence of the batch changes another's output")


@law(*HEADS, "heads: order of keys")
def order_of_keys(code: Code) -> None:
    """Keys and values in another order, both alike, give the same output."""
    module, q, k, v = heads(code), torch.randn(2, 3, D), torch.randn(2, 5, D), torch.randn(2, 5, D)
    turned = torch.tensor([3, 0, 4, 1, 2])
    one, other = code.attend(module, q, k, v), code.attend(module, q, k[:, turned], v[:, turned])
    expect(close(one, other), "another order changes the output", f"{numbers(one)}, then {numbers(other)}")


@law(*HEADS, "heads: mask")
def mask_of_heads(code: Code) -> None:
    """A mask (B, 1 or T, S) hides the same keys in every head, of its own sentence only."""
    module, lengths = heads(code), torch.tensor([5, 2, 4, 3])
    q, x, wrong = torch.randn(4, 3, D), torch.randn(4, 5, D), torch.randn(4, 5, D)
    mask = (torch.arange(5) < lengths[:, None]).unsqueeze(1)  # (B, 1, S), as many sentences as heads
    swapped, inverted = torch.where(mask.mT, x, wrong), torch.where(mask.mT, wrong, x)
    with spied() as weights:
        one = code.attend(module, q, x, x, mask)
    expect(not close(one, code.attend(module, q, x, x)), "a mask changes nothing")
    w = weights[0].reshape(4, 4, 3, 5) if weights and weights[0].numel() == 240 else torch.ones(4, 4, 3, 5)
    compare(one, code.attend(module, q, swapped, swapped, mask), "what is hidden changes the output",
            inverted=code.attend(module, q, inverted, inverted, mask), w=w, mask=mask)  # fmt: skip
    causal = torch.ones(3, 5, 5, dtype=torch.bool).tril()
    changed = x[:3].index_fill(1, torch.tensor([4]), 7.0)
    try:
        y = code.attend(module, x[:3], x[:3], x[:3], causal)
    except (RuntimeError, ValueError) as error:
        raise Failure(f"a mask (3, 5, 5) does not fit: {error}".splitlines()[0]) from None
    same = close(code.attend(module, changed, changed, changed, causal)[:, :-1], y[:, :-1])
    expect(same, "with a causal mask a query sees a later key")


@law(*HEADS, "heads: they differ")
def heads_differ(code: Code) -> None:
    """There are h heads, and each has weights of its own."""
    module, x = heads(code), torch.randn(2, 5, D)
    with spied() as weights:
        code.attend(module, x, x, x)
    if len(weights) == H:  # a loop over heads
        weights = [torch.stack([w.view(2, 5, 5) for w in weights], 1)]
    if not weights:
        raise Missing("its softmax is not PyTorch's")
    expect(weights[0].numel() == 2 * H * 25, f"the weights are {tuple(weights[0].shape)}, not (2, {H}, 5, 5)")
    w = weights[0].reshape(2, H, 5, 5)
    expect(not close(w[:, 0], w[:, 1]), "two heads have the same weights", numbers(w))
