"""What computes the same as the readable code, faster. Tests hold each equal to what it replaces.

CpuKernels               dropout and attention of short sentences, in training on a CPU
smoothed_cross_entropy   generator and `LabelSmoothing` in one
map_in_threads           independent batches, one in each of PyTorch's threads
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from annotated.transformer.attention import attention
from annotated.transformer.loss import check_smoothing

Item = TypeVar("Item")
Result = TypeVar("Result")

UNFUSED_UP_TO = 48  # positions up to which `attention` beats the fused kernel (benchmarks/attention.py)
AHEAD = 4  # items per thread that `map_in_threads` starts ahead, so that a slow one does not stop the others


class CpuKernels(TorchFunctionMode):
    """Replace two of PyTorch's functions in training on a CPU while the block runs, in this thread.

        with CpuKernels():
            loss = model(src, tgt, src_mask, tgt_mask)...

    Dropout is `quick_dropout`. Attention over at most `UNFUSED_UP_TO` positions is `attention`: the fused
    kernel takes one head of one sentence after the other there, and one product for all heads is sooner done.
    Everything else, and everything on a GPU, stays as it is.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, or what stands for it here."""
        kwargs = kwargs or {}
        if func is F.dropout:
            return quick_dropout(*args, **kwargs)
        if func is F.scaled_dot_product_attention and len(args) == 5 and not kwargs:  # a call of ours
            q, k, v, mask, dropout = args
            short = max(q.size(-2), k.size(-2)) <= UNFUSED_UP_TO
            if short and q.requires_grad and q.device.type == "cpu":
                return attention(q, k, v, mask, partial(quick_dropout, p=dropout))[0]
        return func(*args, **kwargs)


def quick_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set a share p of the entries to 0, scale the others by 1 / (1 - p), as `F.dropout` does (section 5.4).

    On a CPU, torch's own draws a 64-bit number for each entry, which costs more than a small model's matrix
    products; here one such draw serves four entries, so p is rounded to a multiple of 1 / 65,536.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout must be a share, from 0 to 1, not {p}")
    dropped = round(p * 65536)
    if not training or x.device.type != "cpu" or dropped in (0, 65536):
        return F.dropout(x, p, training, inplace)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    uniform = draws.view(torch.int16)[: x.numel()].view(x.shape)  # each of 65,536 values equally likely
    return x * (uniform >= dropped - 32768) * (65536 / (65536 - dropped))


def smoothed_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    smoothing: float = 0.0,
    padding_idx: int = 2,
    chunk: int = 256,
) -> Tensor:
    """The fast form of generator and `LabelSmoothing` in one: never holds all logits, skips padding.

    Args:
        states: the decoder's states (n, d_model).
        weight, bias: the output projection's, (size, d_model) and (size,).
        target: right tokens (n,), int64.
        chunk: how many tokens' logits are held at a time.

    Returns the same sum as `LabelSmoothing(size, padding_idx, smoothing)(log_softmax(logits), target)`.
    A second derivative, which that form has, raises RuntimeError here.
    """
    check_smoothing(len(weight), smoothing)
    if not torch.is_grad_enabled():
        weight, bias = weight.detach(), bias.detach()  # else their gradients would be computed all the same
    kept = target != padding_idx
    return ChunkedLoss.apply(states[kept], weight, bias, target[kept], smoothing, padding_idx, chunk)


class ChunkedLoss(torch.autograd.Function):
    """Computes each chunk's gradients while its logits are at hand, so that none need be kept or made again.

    For one row with logits z, log-sum-exp L, right token t, padding b, a = 1 - smoothing and
    e = smoothing / (size - 2), the divergence is

        a log a + smoothing log e + L - (a - e) z_t - e (sum z - z_b)

    and its gradient by z is softmax(z) - e, but for softmax(z) - a at t and softmax(z) at b.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        smoothing: float,
        padding_idx: int,
        chunk: int,
    ) -> Tensor:
        """Return the summed divergence; keep those gradients by states, weight and bias that are wanted."""
        a, e = 1 - smoothing, smoothing / (len(weight) - 2)
        sums = weight.sum(dim=0)  # so that a row's sum of logits is one dot product
        loss = torch.zeros_like(sums[0])
        gradients = zeros_where_wanted(ctx, states, weight, bias)
        # The same memory for all chunks: on a CPU fresh memory costs as much each time as the softmax.
        room = [states.new_empty(min(chunk, len(states)), len(weight)) for _ in range(2)]
        for rows in torch.arange(len(states), device=states.device).split(chunk):
            t = target[rows].unsqueeze(1)  # (chunk, 1)
            logits, log_probs = (x[: len(rows)] for x in room)  # each (chunk, size)
            torch.addmm(bias, states[rows], weight.t(), out=logits)
            torch.log_softmax(logits, dim=1, out=log_probs)
            # L is z_t less the token's log-probability, so L - (a - e) z_t is this:
            loss += ((1 - a + e) * logits.gather(1, t) - log_probs.gather(1, t)).sum()
            loss -= e * ((states[rows] @ sums + bias.sum()).sum() - logits[:, padding_idx].sum())
            slope = subtract_target(log_probs.exp_(), t, smoothing, padding_idx)
            add_gradients(gradients, slope, rows, states, weight)
        ctx.save_for_backward(*gradients)
        return loss - len(states) * target_entropy(len(weight), smoothing)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Scale the gradients that forward kept."""
        return *scaled(ctx, slope), None, None, None, None


def zeros_where_wanted(ctx: Any, *inputs: Tensor) -> list[Tensor | None]:
    """Zeros in the shape of each of a function's first inputs, or None for one that needs no gradient."""
    wanted = zip(inputs, ctx.needs_input_grad, strict=False)  # the settings that follow need none
    return [torch.zeros_like(x) if needed else None for x, needed in wanted]


def subtract_target(rows: Tensor, target: Tensor, smoothing: float, padding_idx: int) -> Tensor:
    """Subtract the smoothed distribution of each right token (n, 1) from `rows` (n, size), in place."""
    others = smoothing / (rows.size(1) - 2)
    rows.sub_(others)
    rows[:, padding_idx] += others
    return rows.scatter_add_(1, target, rows.new_full(target.shape, others - (1 - smoothing)))


def add_gradients(
    gradients: Sequence[Tensor | None], slope: Tensor, rows: Tensor, states: Tensor, weight: Tensor
) -> None:
    """Add to the gradients by states, weight and bias, where wanted, what some `rows` make of theirs.

    `slope` is the gradient by those rows' logits, (len(rows), size).
    """
    by_states, by_weight, by_bias = gradients
    if by_states is not None:
        by_states[rows] = slope @ weight
    if by_weight is not None:
        by_weight.addmm_(slope.t(), states[rows])
    if by_bias is not None:
        by_bias += slope.sum(dim=0)


def target_entropy(size: int, smoothing: float) -> float:
    """The entropy of the smoothed target, in nats: no prediction has a lower cross-entropy."""
    right = -(1 - smoothing) * math.log(1 - smoothing)
    return right - (smoothing * math.log(smoothing / (size - 2)) if smoothing else 0.0)


def scaled(ctx: Any, slope: Tensor) -> list[Tensor | None]:
    """Scale the gradients that a forward pass kept.

    Raises RuntimeError where they are to be differentiated again: autograd would take them for constants.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("a fast loss has no second derivative (create_graph): use LabelSmoothing for that")
    return [None if gradient is None else slope * gradient for gradient in ctx.saved_tensors]


def map_in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Like `map`, but do as many items at a time as PyTorch has threads; results keep their order.

    For batches on a CPU. All threads on one small batch wait for each other at the end of each of its
    operations; with a batch for each thread, they need not (benchmarks/decode.py). Fewer items than threads
    share these out evenly. At most `AHEAD` items a thread are begun before their results are taken.

    `work` runs in other threads: it must not change what the others use, and what the caller has switched on
    for itself, such as `torch.no_grad`, does not hold there. An error comes out when its item's turn comes;
    what has begun by then runs to its end, the rest is not begun.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    if workers < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    begun: deque[Future[Result]] = deque()
    try:
        for item in items:
            if len(begun) == AHEAD * workers:
                yield begun.popleft().result()
            begun.append(pool.submit(work, item))
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # else threads born later would begin with as few as the workers
