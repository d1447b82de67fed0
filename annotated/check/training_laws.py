"""Laws of masks, batches, the loss and the schedule (lessons 07 and 08)."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor

from annotated.check.adapt import Code, Missing, call, takes
from annotated.check.laws import close, explain, law, numbers
from annotated.check.report import Failure


@law("07_batches_and_masks", "subsequent_mask", "causal mask")
def subsequent_mask(code: Code) -> str | None:
    """The mask of size n is True at row i, column j, where j <= i, and False beyond."""
    mask, remark = torch.as_tensor(call(code["subsequent_mask"], length=4)).squeeze(), None
    if mask.shape != (4, 4):
        raise Failure(f"the shape is {tuple(mask.shape)}, and should be (1, 4, 4) or (4, 4)")
    if mask.is_floating_point() and (mask < 0).any():  # to be added to the scores
        mask, remark = mask == 0, "a mask that is added to the scores"
    allowed, ones = (mask != 0) != code.true_hides, torch.ones(4, 4)
    if not torch.equal(allowed, ones.tril().bool()):
        rows = " / ".join("".join(str(int(x)) for x in row) for row in allowed)
        mistake = explain("causal mask", allowed.float(), ones=ones)
        raise Failure("the mask is wrong", f"{rows}, and should be 1000 / 1100 / 1110 / 1111", mistake)
    return remark


class Shifted:
    """A batch of the code under test: two sentences, the second with padding, whatever its names."""

    def __init__(self, code: Code):
        p = code.pad
        self.src = torch.tensor([[3, 4, 5], [6, p, p]])
        self.tgt = torch.tensor([[3, 7, 8, 9, 4], [3, 9, 4, p, p]])
        self.batch = call(code["batch"], src=self.src, tgt=self.tgt, pad=p)

    def get(self, *names: str) -> Any:
        """Return the first attribute there is. Raises Missing if there is none."""
        for name in names:
            if hasattr(self.batch, name):
                return getattr(self.batch, name)
        raise Missing(f"needs a Batch with .{names[0]}")


@law("07_batches_and_masks", "batch", "batch: shifted target")
def shifted_target(code: Code) -> None:
    """The decoder reads all target tokens but the last, and is to predict all but the first."""
    shifted = Shifted(code)
    tgt = shifted.tgt
    read, predict = shifted.get("tgt", "trg", "tgt_input"), shifted.get("tgt_y", "trg_y", "tgt_output")
    if not torch.equal(read, tgt[:, :-1]) or not torch.equal(predict, tgt[:, 1:]):
        mistake = ""
        if torch.equal(read, predict):
            mistake = "the target is not shifted: the decoder reads the token that it has to predict"
        elif torch.equal(read, tgt[:, 1:]):
            mistake = "the shift goes the wrong way: read tgt[:, :-1], predict tgt[:, 1:]"
        elif read.shape == tgt.shape or predict.shape == tgt.shape:
            mistake = "nothing is cut off: read tgt[:, :-1], predict tgt[:, 1:]"
        rows = f"reads {read[0].tolist()}, predicts {predict[0].tolist()}, of {tgt[0].tolist()}"
        raise Failure("the target is not shifted as it should be", rows, mistake)
    count = int(getattr(shifted.batch, "ntokens", 6))
    if count != 6:
        mistake = "padding is counted: (tgt_y != pad).sum()" if count == 8 else "count tgt_y, without padding"
        raise Failure(f"ntokens is {count}, and should be 6", "", mistake)


@law("07_batches_and_masks", "batch", "batch: masks")
def batch_masks(code: Code) -> None:
    """The source mask hides padding; the target mask hides padding and what follows."""
    shifted, p = Shifted(code), code.pad

    def allowed(mask: Tensor) -> Tensor:
        return ((mask.squeeze(1) if mask.dim() == 4 else mask) != 0) != code.true_hides

    src_mask, wanted = allowed(shifted.get("src_mask")), (shifted.src != p)[:, None]
    if not torch.equal(src_mask, wanted):
        mistake = "the source mask is inverted: src != pad" if torch.equal(~src_mask, wanted) else ""
        raise Failure("src_mask is wrong", f"{src_mask.tolist()}, and should be {wanted.tolist()}", mistake)
    tgt_mask, causal = allowed(shifted.get("tgt_mask", "trg_mask")), torch.ones(4, 4).tril().bool()
    tgt_mask = tgt_mask.expand(2, 4, 4) if tgt_mask.shape == (2, 1, 4) else tgt_mask
    real = (shifted.tgt[:, :-1] != p)[:, None]
    if not any(torch.equal(tgt_mask, causal & x) for x in (real, real.mT, real & real.mT)):
        mistake = explain("batch: masks", tgt_mask.float(), real=real, causal=causal)
        rows, right = (
            " / ".join("".join(str(int(x)) for x in row) for row in mask[-1])
            for mask in (tgt_mask, causal & real)
        )
        raise Failure(
            "tgt_mask is wrong",
            f"{rows} for the second sentence, whose last is padding; it should be {right}",
            mistake,
        )


# ---- the loss (section 5.4)


def loss_of(code: Code, log_probs: Tensor, target: Tensor, smoothing: float) -> Tensor:
    part, given = code["label_smoothing"], {"log_probs": log_probs, "target": target}
    if inspect.isclass(part):
        module = code.build("label_smoothing", vocab=log_probs.size(-1), pad=code.pad, smoothing=smoothing)
        loss = call(module, **given)
    else:
        loss = call(part, **given, smoothing=smoothing, pad=code.pad)
    return loss.sum()


def mass(code: Code, target: Tensor, smoothing: float, size: int = 6) -> Tensor:
    """Read the target distribution off the gradient of the loss, which is minus it."""
    x = torch.randn(len(target), size).log_softmax(-1).requires_grad_()
    loss_of(code, x, target, smoothing).backward()
    grad = torch.zeros_like(x) if x.grad is None else x.grad
    if grad.sum(-1).abs().max() < 1e-4 and grad.abs().max() > 1e-3:
        # It takes logits, whose gradient is softmax - mass; a mean also divides by the number of rows.
        n = 1 if grad.abs().max() > 0.3 else int((target != code.pad).sum())
        return x.detach().softmax(-1) - grad * n
    return -grad


@law("08_training_recipe", "label_smoothing", "smoothing: mass")
def smoothing_mass(code: Code) -> str | None:
    """The target has 1 - smoothing on the right token and smoothing on the others: together 1."""
    target, V, e = torch.tensor([3]), 6, 0.4
    q = mass(code, target, e)[0]
    right, on_padding, total = float(q[3]), float(q[code.pad]), float(q.sum())
    others = q[[i for i in range(V) if i not in (3, code.pad)]]
    if close(q, torch.full((V,), e / V).index_fill(0, target, 1 - e + e / V), 1e-3):
        return "smoothing / V on every token, as in PyTorch"
    example = f"token 3 of 6 is right, padding is {code.pad}, smoothing 0.4: {numbers(q)}"
    if abs(right - (1 - e)) > 1e-3:
        mistake = ""
        if abs(right - e) < 1e-3:
            mistake = "smoothing and confidence are swapped: the right token gets 1 - smoothing"
        elif abs(right - 1) < 1e-3:
            nothing = others.abs().max() < 1e-3
            mistake = "nothing is smoothed" if nothing else "the right token keeps 1: it gets 1 - smoothing"
        elif abs(right) < 1e-3:
            mistake = "the right token gets nothing: scatter_(1, target.unsqueeze(1), confidence)"
        elif right < 0:
            mistake = "the sign of the loss is lost"
        raise Failure(f"the right token gets {right:.3g}, and should get 0.6", example, mistake)
    if float(others.max() - others.min()) > 1e-3:
        raise Failure("the other tokens get different shares", example)
    if abs(total - 1) > 1e-3:
        n = round(e / float(others[0])) if others[0] > 0 else 0
        mistake = f"smoothing is divided by {n}, but {V - 2} other tokens get it: size - 2" if n else ""
        if abs(on_padding) > 1e-3:
            mistake = "padding must get nothing: set its column to 0"
        raise Failure(f"the target adds up to {total:.3g}, not 1", example, mistake)
    return "padding gets a share too" if abs(on_padding) > 1e-3 else None


@law("08_training_recipe", "label_smoothing", "smoothing: padding")
def smoothing_padding(code: Code) -> None:
    """Rows whose target is padding count nothing: neither in the loss nor in its gradient."""
    if not takes(code["label_smoothing"], "pad", "ignore"):
        raise Missing("the loss knows no padding")
    p, x = code.pad, torch.randn(4, 6).log_softmax(-1)
    with torch.no_grad():
        short = float(loss_of(code, x[:2], torch.tensor([3, 4]), 0.1))
        long = float(loss_of(code, x, torch.tensor([3, 4, p, p]), 0.1))
        other = float(loss_of(code, torch.cat([x[:2], x[2:].flip(-1)]), torch.tensor([3, 4, p, p]), 0.1))
    if not math.isclose(short, long, rel_tol=1e-3, abs_tol=1e-4):
        mistake = "rows of padding are counted: where the target is padding, the loss must be 0"
        if math.isclose(long, other, rel_tol=1e-3) and math.isclose(long * 2, short, rel_tol=1e-3):
            mistake = "the mean is over all rows: divide by the number of real tokens"
        raise Failure("two rows of padding change the loss", f"{short:.4f} without, {long:.4f} with", mistake)


@law("08_training_recipe", "label_smoothing", "loss: parts of a batch")
def loss_adds_up(code: Code) -> str:
    """A batch's loss is the sum of its parts', or their mean by tokens: gradients can be accumulated."""
    x, target = torch.randn(5, 6).log_softmax(-1), torch.tensor([3, 4, 5, 3, 1])
    if code.pad == 1:
        target[-1] = 2
    with torch.no_grad():
        whole, a, b = (float(loss_of(code, x[s], target[s], 0.1))
                       for s in (slice(None), slice(0, 1), slice(1, 5)))  # fmt: skip
    if math.isclose(whole, a + b, rel_tol=1e-3):
        return "a sum over tokens"
    if math.isclose(whole, (a + 4 * b) / 5, rel_tol=1e-3):
        return "a mean over tokens: weigh the parts by their tokens"
    rows = f"one row {a:.4f}, four others {b:.4f}, all five {whole:.4f}"
    mistake = "is it divided by a fixed number, or by the number of symbols?"
    raise Failure("a batch's loss is neither the sum nor the mean of its parts'", rows, mistake)


# ---- the schedule (section 5.3)


@law("08_training_recipe", "rate", "rate: equation 3")
def rate_equation(code: Code) -> None:
    """The rate is d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    d, w, s = 64, 100, torch.tensor([1.0, 10, 50, 100, 200, 1000], dtype=torch.double)
    given = {"model_size": d, "factor": 1.0, "warmup": w}
    got = torch.tensor([float(call(code["rate"], step=int(x), **given)) for x in s]).double()
    wanted = d**-0.5 * torch.minimum(s**-0.5, s * w**-1.5)
    if not torch.allclose(got, wanted, rtol=1e-4):
        rows = f"at steps {numbers(s)}, d_model 64, warm-up 100: {numbers(got)}, not {numbers(wanted)}"
        mistake = explain("rate: equation 3", got / wanted, s=s, d=d, w=w, wanted=wanted)
        raise Failure("the rate is wrong", rows, mistake)


@law("08_training_recipe", "rate", "rate: peak")
def rate_peak(code: Code) -> str | None:
    """The rate rises until the last step of the warm-up, and falls from there."""
    given = {"model_size": 64, "factor": 1.0, "warmup": 50}
    rates = {s: float(call(code["rate"], step=s, **given)) for s in range(1, 200)}
    top = max(rates, key=lambda s: rates[s])
    if top != 50 or rates[199] >= rates[50]:
        raise Failure(
            f"the highest rate is at step {top}, and should be at 50", "", "min and max, or the exponents"
        )
    try:
        call(code["rate"], step=0, **given)
    except ArithmeticError:
        return "step 0, which PyTorch's schedulers ask for first, divides by 0"
    return None
