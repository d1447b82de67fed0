"""Laws of attention and of its heads (lessons 02 and 03)."""

import inspect
import math

import torch
from torch import Tensor, nn

from annotated.check.adapt import Code, Linears, Missing, first, spied, takes
from annotated.check.laws import MISTAKES, close, compare, explain, law, numbers
from annotated.check.report import Failure

LOW = torch.finfo(torch.float).min


@law("02_attention", "attention", "attention: equation 1")
def equation_1(code: Code) -> None:
    """The output is softmax(Q K^T / sqrt(d_k)) V, with the softmax over the keys."""
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 6)
    try:
        got = first(code.attention(q, k, v))
    except NotImplementedError:
        raise
    except Exception as error:  # where queries and keys are as many, more mistakes run
        k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
        try:
            got = first(code.attention(q, k, v))
        except Exception:
            raise error from None
    s, c = q @ k.mT, math.sqrt(8)
    wanted = (s / c).softmax(-1) @ v
    compare(got, wanted, "attention: equation 1", "the output is wrong", "a row", s=s, c=c, q=q, k=k, v=v)


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
    got = torch.tensor(found)
    if not close(got, widths**-0.5, 1e-3):
        example = f"at d_k = 4, 16, 64 by {numbers(got)}, and should be {numbers(widths**-0.5)}"
        raise Failure("the scores are multiplied by another factor", example,
                      explain("attention: scale", got, d_k=widths))  # fmt: skip


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
        mistake = "what is returned are the scores, not the weights" if (told < 0).any() else ""
        if told.shape[-2:] == (4, 5) and close(told.sum(-2), torch.ones(2, 3, 5)):
            mistake = "the softmax runs over the queries: it must run over the keys, dim=-1"
        raise Failure("a row of weights does not add up to 1", f"one sum: {sums.flatten()[0]:.3g}", mistake)
    if not close(told, used):
        raise Failure("the weights returned are not those used", f"{numbers(told)}, used {numbers(used)}")


@law("02_attention", "attention", "attention: mask")
def mask_polarity(code: Code) -> None:
    """A mask is True where attention is allowed; a hidden key gets weight 0, and the others share the 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    got = weights_from_output(code, q, k, mask)
    for c in (math.sqrt(8), 1, 8):  # an error in the scale is another law's
        s = q @ k.mT / c
        wanted = s.masked_fill(~mask, LOW).softmax(-1)
        mistake = explain("attention: mask", got, 1e-4, s=s, mask=mask, low=LOW)
        if close(got, wanted) or mistake:
            break
    if not close(got, wanted):
        worst = (got - wanted).abs().flatten(0, -2).amax(-1).argmax()
        rows = numbers(got.flatten(0, -2)[worst]), numbers(wanted.flatten(0, -2)[worst])
        example = f"weights of a query with the mask {numbers(mask[worst % 4])}: {rows[0]}, not {rows[1]}"
        raise Failure("a mask does not hide what it should", example, mistake)
    q, k = torch.ones(1, 1, 1, 4) * 9, torch.ones(1, 1, 3, 4) * torch.tensor([-9.0, -9, 9])[:, None]
    got = weights_from_output(code, q, k, torch.tensor([[True, True, False]])).flatten()
    if not close(got, torch.tensor([0.5, 0.5, 0])):
        example = f"weights {numbers(got)}, and should be [0.5, 0.5, 0]"
        raise Failure("a hidden key is seen where the others have very low scores", example,
                      [*MISTAKES["attention: mask"]][-1])  # fmt: skip


@law("02_attention", "attention", "attention: empty rows")
def empty_rows(code: Code) -> str:
    """A query that may see nothing gets numbers, not NaN, forward and backward."""
    q, k, v = (torch.randn(1, 1, 2, 4, requires_grad=True) for _ in range(3))
    out = first(code.attention(q, k, v, torch.tensor([[True, True], [False, False]])))
    out.sum().backward()
    if not all(x.isfinite().all() for x in (out, q.grad, k.grad, v.grad) if x is not None):
        mistake = (
            "-inf fills the whole row, and the softmax divides 0 by 0: fill with a huge finite number, "
            "or set the weights of empty rows to 0"
        )
        raise Failure("a row with nothing allowed gives NaN", f"its output: {numbers(out[0, 0, 1])}", mistake)
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
    if not seen:
        if not takes(code["attention"], "drop"):
            raise Missing("attention takes no dropout")
        raise Failure("the dropout that is given is never called", "", "dropout(weights) is missing")
    x = seen[0]
    if x.shape[-2:] != (4, 5) or not close(x.sum(-1), torch.ones(1, 1, 4)):
        what = "the output" if x.shape[-2:] == (4, 6) else "the scores, before the softmax"
        mistake = f"dropout acts on {what}: apply it to the weights, after the softmax"
        raise Failure(f"dropout is applied to {what}", f"it gets {tuple(x.shape)}", mistake)
    compare(got, plain / 2, "attention: dropout", "dropout does not change the output", "a row", plain=plain)


# ---- several heads (section 3.2.2)

H, D = 4, 24


def heads(code: Code) -> nn.Module:
    """Four heads of width six, far enough from their first weights that every part counts."""
    module = code.build("multi_head_attention", h=H, d_model=D, dropout=0.0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return module


@law("03_multi_head_attention", "multi_head_attention", "heads: equation")
def multi_head_equation(code: Code) -> None:
    """The heads are attentions over d_k numbers each, concatenated, then W^O."""
    module = heads(code)
    given = {name: torch.randn(3, n, D) for name, n in (("query", 5), ("key", 6), ("value", 6))}
    with torch.no_grad(), Linears.of(module) as seen:
        out = code.attend(module, *given.values())
    if out.shape != (3, 5, D):
        raise Failure(f"the output has shape {tuple(out.shape)}, and should be (3, 5, {D})")
    if any(linear.in_features == D // H for linear, _, _ in seen.calls):
        mistake = "each head maps its own d_k of the d_model numbers: map all d_model first, then split"
        raise Failure(f"a linear map reads {D // H} numbers of the query, not all {D}", "", mistake)
    reads = {name: [c for c in seen.calls if close(code.flip(c[1]), x)] for name, x in given.items()}
    for name, calls in reads.items():
        if not calls and len(seen.calls) >= 3:
            mistake = f"W^{name[0].upper()} reads the wrong argument: it must read the {name}"
            raise Failure(f"no linear map reads the {name}", "", mistake)
    if not all(len(calls) == 1 for calls in reads.values()):
        raise Missing("its linear maps of query, key and value are not one nn.Linear each")
    maps = [calls[0][0] for calls in reads.values()]
    if len({id(linear) for linear in maps}) < 3:
        mistake = "the same layer is used for two of W^Q, W^K and W^V: give each its own"
        raise Failure("one matrix serves two of W^Q, W^K and W^V", "", mistake)
    Q, K, V = (code.flip(calls[0][2]) for calls in reads.values())
    last, joined, result = seen.calls[-1]
    joined, result = (out, out) if last in maps else (code.flip(joined), code.flip(result))

    def attended(Q: Tensor, K: Tensor, V: Tensor, divisor: float, dim: int = -1) -> Tensor:
        return (Q @ K.mT / divisor).softmax(dim) @ V  # (B, h, T, d_k)

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], H, -1).transpose(1, 2)

    def join(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def woven(x: Tensor) -> Tensor:  # a head's numbers lie d_k apart: as good an order as any
        return x.view(*x.shape[:2], -1, H).permute(0, 3, 1, 2)

    names = {
        "Q": Q, "K": K, "V": V, "h": H, "root": math.sqrt(D // H),
        "heads": attended, "split": split, "join": join,
        "viewed": lambda x: x.reshape(3, H, x.size(1), -1),
        "cut": lambda x: x.view(*x.shape[:2], -1, H).transpose(1, 2),
    }  # fmt: skip
    wanted = join(attended(split(Q), split(K), split(V), math.sqrt(D // H)))
    other = attended(woven(Q), woven(K), woven(V), math.sqrt(D // H)).permute(0, 2, 3, 1).flatten(2)
    if not close(joined, other):
        seen_as = "what enters W^O is not the heads side by side"
        compare(joined, wanted, "heads: equation", seen_as, "a row", **names)
    if joined is out:
        raise Failure("there is no fourth linear map", "", "W^O is missing after the heads are concatenated")
    compare(out, result, "heads: after W^O", "something is done after W^O", "a row", result=result,
            q=given["query"])  # fmt: skip


@law("03_multi_head_attention", "multi_head_attention", "heads: each query alone")
def queries_alone(code: Code) -> None:
    """The output at a query depends on no other query, and on no other sentence of the batch."""
    module, q, k = heads(code), torch.randn(2, 5, D), torch.randn(2, 5, D)
    with torch.no_grad():
        before, q[:, 1] = code.attend(module, q, k, k), 3.0
        after = code.attend(module, q, k, k)
        moved = [t for t in (0, 2, 3, 4) if not close(before[:, t], after[:, t])]
        if moved:
            mistake = "words are mixed: view where transpose(1, 2) is needed, in splitting or joining"
            raise Failure(f"changing query 1 changes the output at {moved}", "", mistake)
        k[1] = 2.0
        if not close(after[0], code.attend(module, q, k, k)[0]):
            mistake = "sentences are mixed: is the batch the first dimension for you (batch_first)?"
            raise Failure("changing a sentence of the batch changes another's output", "", mistake)


@law("03_multi_head_attention", "multi_head_attention", "heads: order of keys")
def order_of_keys(code: Code) -> None:
    """Keys and values in another order, both alike, give the same output."""
    module, q, k, v = heads(code), torch.randn(2, 3, D), torch.randn(2, 5, D), torch.randn(2, 5, D)
    turned = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        one, other = code.attend(module, q, k, v), code.attend(module, q, k[:, turned], v[:, turned])
    if not close(one, other):
        mistake = "words are mixed before attention: view where view and transpose(1, 2) are needed"
        raise Failure("another order changes the output", f"{numbers(one)}, then {numbers(other)}", mistake)


@law("03_multi_head_attention", "multi_head_attention", "heads: mask")
def mask_of_heads(code: Code) -> None:
    """A mask (B, 1 or T, S) hides the same keys in every head, of its own sentence only."""
    module, lengths = heads(code), torch.tensor([5, 2, 4, 3])
    q, x, wrong = torch.randn(4, 3, D), torch.randn(4, 5, D), torch.randn(4, 5, D)
    mask = (torch.arange(5) < lengths[:, None]).unsqueeze(1)  # (B, 1, S), as many sentences as heads
    swapped, inverted = torch.where(mask.mT, x, wrong), torch.where(mask.mT, wrong, x)
    with torch.no_grad(), spied() as weights:
        one = code.attend(module, q, x, x, mask)
        other = code.attend(module, q, swapped, swapped, mask)
        if close(one, code.attend(module, q, x, x)):
            raise Failure("a mask changes nothing", "", "the mask is not used: pass it on to attention")
        if not close(one, other):
            mistake = ""
            w = (
                weights[0].reshape(4, 4, 3, 5)
                if weights and weights[0].numel() == 240
                else torch.ones(4, 4, 3, 5)
            )
            if close(one, code.attend(module, q, inverted, inverted, mask)):
                mistake = "the mask is inverted, as if True meant hidden"
            elif (w * ~mask.view(1, 4, 1, 5)).max() < 1e-6:
                mistake = "the mask lines up with the heads, not with the batch: mask.unsqueeze(1)"
            elif (w[:, 0] * ~mask).max() < 1e-6:
                mistake = "the mask reaches the first head only"
            worst = (one - other).abs().flatten(0, -2).amax(-1).argmax()
            rows = " then ".join(numbers(x.flatten(0, -2)[worst]) for x in (one, other))
            raise Failure("what is hidden changes the output", rows, mistake)
        causal = torch.ones(3, 5, 5, dtype=torch.bool).tril()
        changed = x[:3].clone()
        changed[:, -1] = 7.0
        try:
            y = code.attend(module, x[:3], x[:3], x[:3], causal)
        except (RuntimeError, ValueError) as error:
            mistake = (
                "a mask for each query, (B, T, S), does not fit: mask.unsqueeze(1) makes it (B, 1, T, S)"
            )
            raise Failure(str(error).splitlines()[0], "a mask (3, 5, 5), 4 heads", mistake) from None
        if not close(code.attend(module, changed, changed, changed, causal)[:, :-1], y[:, :-1]):
            raise Failure("with a causal mask a query sees a later key", "", "rows and columns are swapped")


@law("03_multi_head_attention", "multi_head_attention", "heads: they differ")
def heads_differ(code: Code) -> None:
    """There are h heads, and each has weights of its own."""
    module, x = heads(code), torch.randn(2, 5, D)
    with torch.no_grad(), spied() as weights:
        code.attend(module, x, x, x)
    if len(weights) == H:  # a loop over heads
        weights = [torch.stack([w.view(2, 5, 5) for w in weights], 1)]
    if not weights:
        raise Missing("its softmax is not PyTorch's")
    if weights[0].numel() != 2 * H * 25:
        mistake = "the number of heads is not h: split d_model into h heads of d_k"
        raise Failure(f"the weights are {tuple(weights[0].shape)}, not (2, {H}, 5, 5)", "", mistake)
    w = weights[0].reshape(2, H, 5, 5)
    if close(w[:, 0], w[:, 1]):
        raise Failure("two heads have the same weights", numbers(w), "every head reads the same numbers")
