"""Laws of attention, of its heads, and of the causal mask (lessons 02, 03 and 07)."""

import inspect
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.assertions import as_plain, close, compare, expect, expect_shape, numbers, rows_of
from annotated.check.law import law
from annotated.check.models import perturb
from annotated.check.tracing import (
    collect_weights,
    expect_modes,
    normalized,
    trace_calls,
    unreached,
    wrapping,
)
from annotated.check.user_code import Code, NotApplicable, call, takes, tensor_of

ATTENTION = "02_attention", "attention"
EQUATION = "attention: equation 1"


def weights_of(code: Code, q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the weights of attention: its output for values that are the rows of a unit matrix."""
    return tensor_of(code.attention(q, k, torch.eye(k.size(-2)).expand(*k.shape[:-1], -1), mask))


@law(*ATTENTION, EQUATION)
def equation_1(code: Code) -> None:
    """The output is softmax(Q K^T / sqrt(d_k)) V, with the softmax over the keys."""
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    problem: Exception | None = None
    try:
        result = code.attention(q, k, v)
    except (RuntimeError, ValueError) as error:  # where queries, keys and d_k are as many, more mistakes run
        problem, (q, k, v) = error, torch.randn(3, 2, 3, 6, 6)
        result = code.attention(q, k, v)
    s, c = q @ k.mT, math.sqrt(6)
    weights = (s / c).softmax(-1)
    evidence = {"s": s, "c": c, "q": q, "k": k, "v": v}
    if not close(tensor_of(result), weights @ v):
        with suppress(Exception):  # the divisor of the scores
            scores, log_w = (x - x.mean(-1, keepdim=True) for x in (s, weights_of(code, q, k).log()))
            evidence["by"] = scores.square().sum() / (scores * log_w).sum()
    compare(tensor_of(result), weights @ v, **evidence)
    if problem is not None:
        raise problem
    pair = isinstance(result, tuple) and len(result) == 2
    if pair and result[1] is not None:
        compare(as_plain(result[1]), weights, "the weights returned are not those used")
    expect(pair or not code.stubs, "it does not return the pair of output and weights")


@law(*ATTENTION, "attention: mask", EQUATION)
def mask_polarity(code: Code) -> None:
    """A mask is True where attention is allowed; a hidden key gets weight 0, and the others share the 1."""
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    got, s = weights_of(code, q, k, mask), q @ k.mT / math.sqrt(8)
    expected = s.masked_fill(~mask, -1e9).softmax(-1)
    compare(got, expected, "a mask does not hide what it should", s=s, mask=mask)
    q, k = torch.ones(1, 1, 1, 4) * 9, torch.ones(1, 1, 3, 4) * torch.tensor([-9.0, -9, 9])[:, None]
    got = weights_of(code, q, k, torch.tensor([[True, True, False]])).flatten()
    compare(got, torch.tensor([0.5, 0.5, 0]), "a hidden key is seen where the others have very low scores")


@law(*ATTENTION, "attention: dropout", EQUATION)
def dropout_of_weights(code: Code) -> None:
    """Dropout acts on the weights, after the softmax and before the values."""
    if inspect.isclass(code.find("attention")) or not takes(code.find("attention"), "drop"):
        raise NotApplicable("attention takes no dropout")
    dropped: list[Tensor] = []

    class Half(nn.Dropout):
        def forward(self, x: Tensor) -> Tensor:
            dropped.append(x)
            return x * 0.5

    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 1, 5, 6)
    plain = tensor_of(code.attention(q, k, v))
    try:
        got = tensor_of(code.attention(q, k, v, dropout=Half(1.0)))
    except (TypeError, RuntimeError):
        raise NotApplicable("attention takes no dropout that is a function") from None
    if not dropped and not got.any():
        return  # it asks for the rate, which is 1, and drops all weights itself
    scores = "the scores, before the softmax"
    expect(dropped or close(got, plain), f"dropout is applied to {scores}")
    expect(dropped, "the dropout that is given is never called")
    x = as_plain(dropped[0])
    what = "the output" if x.shape[-2:] == (4, 6) else scores
    of_weights = x.shape[-2:] == (4, 5) and close(x.sum(-1), torch.ones(1, 1, 4))
    expect(of_weights, f"dropout is applied to {what}", f"it gets {tuple(x.shape)}")
    compare(got, plain / 2, "dropout does not change the output", plain=plain)


# ---- several heads (section 3.2.2)

H, D = 4, 24
HEADS = "03_multi_head_attention", "multi_head_attention"


def heads(code: Code, dropout: float = 0.0) -> nn.Module:
    """Four heads of width six, far enough from their first weights that every part counts."""
    return perturb(code.build("multi_head_attention", h=H, d_model=D, dropout=dropout), 0.3)


def split(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], H, -1).transpose(1, 2)  # (B, h, T, d_k)


@law(*HEADS, "heads: equation", EQUATION)
def multi_head_equation(code: Code) -> str:
    """The heads are attentions over d_k numbers each, concatenated, then W^O."""
    module = heads(code)
    inputs = {name: torch.randn(3, n, D) for name, n in (("query", 5), ("key", 6), ("value", 6))}
    out, calls = trace_calls(lambda: code.attend(module, **inputs))
    expect_shape(out, 3, 5, D)
    part = code.find("multi_head_attention")
    expect_modes(part, lambda rate: heads(code, rate), lambda module: code.attend(module, **inputs))
    check_influence(code, module, inputs, out)
    tensors = [c for c in calls if isinstance(c.x, Tensor) and isinstance(c.output, Tensor) and c.x.dim() > 1]
    calls = [replace(c, inputs=[code.flip(c.x)], output=code.flip(c.output)) for c in tensors]
    maps = [c for c in calls if isinstance(c.module, nn.Linear)]
    narrow = any(c.module.in_features == D // H for c in maps)
    expect(not narrow, f"a linear map reads {D // H} numbers of the query, not all {D}")
    readable = [[x, *normalized(x, calls)] for x in inputs.values()]
    readers = [[c for c in maps if any(close(c.x, y) for y in ys)] for ys in readable]
    if not all(len(reader) == 1 for reader in readers):
        check_gradients(code, module, inputs)
        raise NotApplicable("its linear maps of query, key and value are not one nn.Linear each")
    matrices = {reader.module for [reader] in readers}
    expect(len(matrices) == 3, "one matrix serves two of W^Q, W^K and W^V")
    joined, result = (out, out) if maps[-1].module in matrices else (maps[-1].x, maps[-1].output)
    Q, K, V = (reader.output for [reader] in readers)
    check_heads(Q, K, V, joined)
    expect(joined is not out, "there is no fourth linear map")
    inside = wrapping(inputs["query"], readers[0][0].x, result, out, calls)
    if not inside:
        compare(out, result, "something is done after W^O", result=result, q=inputs["query"])
    return inside


def check_influence(code: Code, module: nn.Module, inputs: dict[str, Tensor], out: Tensor) -> None:
    """Raise Failure unless query, key and value change the output, and two keys do so differently."""
    for name in inputs:
        other = code.attend(module, **inputs | {name: inputs[name] * 2})
        expect(not close(out, other), f"the output does not depend on the {name}")
    moved = (inputs["value"].index_add(1, torch.tensor([j]), torch.ones(3, 1, D)) for j in range(2))
    one, other = (code.attend(module, **inputs | {"value": x}) - out for x in moved)
    expect(not close(one, other, 1e-5), "every key has the same weight, whatever the query is")


def check_gradients(code: Code, module: nn.Module, inputs: dict[str, Tensor]) -> None:
    """Raise Failure if no gradient reaches some of the parameters."""
    with torch.enable_grad():
        code.attend(module, **inputs).square().sum().backward()
    unused = unreached(module)
    one = len({name.split()[1] for name in unused if name.startswith("part")}) == 1
    mistake = "one of W^Q, W^K and W^V is never read, and another serves twice" if one else ""
    expect(not unused, f"no gradient reaches {', '.join(unused)}", mistake=mistake)


def check_heads(Q: Tensor, K: Tensor, V: Tensor, joined: Tensor) -> None:
    """Raise Failure unless what enters W^O is the heads side by side, of what W^Q, W^K and W^V gave."""
    if Q.size(-1) != K.size(-1) or any(x.size(-1) % H for x in (Q, V)):
        raise NotApplicable("its heads do not have queries, keys and values of their own each")
    root = math.sqrt(Q.size(-1) // H)  # whatever d_model / h is

    def apart(Q: Any = Q, K: Any = K, V: Any = V, by: Any = root, dim: int = -1, split: Any = split) -> Any:
        Q, K, V = map(split, (Q, K, V))
        return (Q @ K.mT / by).softmax(dim) @ V

    def side_by_side(**changes: Any) -> Tensor:
        return apart(**changes).transpose(1, 2).flatten(2)

    Q_, K_, V_ = (x.unflatten(-1, (-1, H)).mT.flatten(2) for x in (Q, K, V))
    other = side_by_side(Q=Q_, K=K_, V=V_)  # a head's numbers may lie h apart
    if not (close(joined, other) or close(joined, other.unflatten(-1, (H, -1)).mT.flatten(2))):
        ways = {"heads": side_by_side, "apart": apart, "view": lambda x: x.reshape(3, H, x.size(1), -1)}
        ways["cut"] = lambda x: x.view(*x.shape[:2], -1, H).transpose(1, 2)
        message = "what enters W^O is not the heads side by side"
        compare(joined, side_by_side(), message, Q=Q, K=K, V=V, root=root, **ways)


@law(*HEADS, "heads: each query alone", EQUATION, "heads: equation")
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


@law(*HEADS, "heads: mask", "attention: equation 1", "attention: mask", "heads: e")
def mask_of_heads(code: Code) -> None:
    """A mask (B, 1 or T, S) hides the same keys in every head, of its own sentence only."""
    module, lengths = heads(code), torch.tensor([4, 2, 3, 1])
    q, x, wrong = torch.randn(4, 3, D), torch.randn(4, 5, D), torch.randn(4, 5, D)
    mask = (torch.arange(5) < lengths[:, None]).unsqueeze(1)  # (B, 1, S), as many sentences as heads
    hidden, shown = torch.where(mask.mT, x, wrong), torch.where(mask.mT, wrong, x)
    with collect_weights() as weights:
        one = code.attend(module, q, x, x, mask)
    expect(not close(one, code.attend(module, q, x, x)), "a mask changes nothing")
    w = weights[0].reshape(4, 4, 3, 5) if weights and weights[0].numel() == 240 else torch.ones(4, 4, 3, 5)
    inverted = close(one, code.attend(module, q, shown, shown, mask))
    message, other = "what is hidden changes the output", code.attend(module, q, hidden, hidden, mask)
    compare(one, other, message, inverted=inverted, w=w, mask=mask)
    few = [y[:3] for y in (q, x, hidden)]  # three sentences: heads and sentences are no more as many
    one, other = (code.attend(module, few[0], y, y, mask[:3]) for y in few[1:])
    compare(one, other, message, w=w, mask=mask)
    causal = torch.ones(3, 5, 5, dtype=torch.bool).tril()
    changed = x[:3].index_fill(1, torch.tensor([4]), 7.0)
    one, other = (code.attend(module, y, y, y, causal)[:, :-1] for y in (x[:3], changed))
    expect(close(one, other), "with a causal mask a query sees a later key")


@law(*HEADS, "heads: they differ", "heads: ")
def heads_differ(code: Code) -> None:
    """There are h heads, and each has weights of its own."""
    module, x = heads(code), torch.randn(2, 5, D)
    with collect_weights() as weights:
        code.attend(module, x, x, x)
    if len(weights) == H:  # a loop over heads
        weights = [torch.stack([w.view(2, 5, 5) for w in weights], 1)]
    if not weights:
        raise NotApplicable("its softmax is not PyTorch's")
    expect(weights[0].numel() == 2 * H * 25, f"the weights are {tuple(weights[0].shape)}, not (2, {H}, 5, 5)")
    w = weights[0].reshape(2, H, 5, 5)
    expect(not close(w[:, 0], w[:, 1]), "two heads have the same weights", numbers(w))


@law("07_batches_and_masks", "subsequent_mask", "causal mask")
def subsequent_mask(code: Code) -> str | None:
    """The mask of size n is True at row i, column j, where j <= i, and False beyond."""
    remark = None
    for n in (4, 7):
        mask = as_plain(torch.as_tensor(call(code.find("subsequent_mask"), length=n))).squeeze()
        shape = f"the shape is {tuple(mask.shape)}, and should be (1, {n}, {n}) or ({n}, {n})"
        expect(mask.shape == (n, n), shape)
        if mask.is_floating_point() and (mask < 0).any():  # to be added to the scores
            mask, remark = mask == 0, "a mask that is added to the scores"
        allowed, ones = (mask != 0) != code.true_hides, torch.ones(n, n)
        example = f"{rows_of(allowed)}, and should be {rows_of(ones.tril())}"
        right = torch.equal(allowed, ones.tril().bool())
        expect(right, "the mask is wrong", example, got=allowed.float(), ones=ones)
    return remark


@law(*ATTENTION, "attention: empty rows", "attention: ")
def empty_rows(code: Code) -> str:
    """A query that may see nothing gets numbers, forward and backward: where not, it is only remarked."""
    q, k, v = (torch.randn(1, 1, 2, 4, requires_grad=True) for _ in range(3))
    with torch.enable_grad():
        out = tensor_of(code.attention(q, k, v, torch.tensor([[True, True], [False, False]])))
        out.sum().backward()
    if not all(x.isfinite().all() for x in (out, q.grad, k.grad, v.grad) if x is not None):
        return "a row with nothing allowed gives NaN: -inf fills it, and the softmax divides 0 by 0"
    return "gives zeros" if close(out[0, 0, 1], torch.zeros(4)) else "gives a mean of values"
