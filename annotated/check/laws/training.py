"""Laws of batches, the loss, the schedule and BLEU (lessons 07, 08 and 10)."""

import inspect
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor

from annotated.check.assertions import Failure, as_plain, close, expect, numbers, rows_of
from annotated.check.law import law
from annotated.check.user_code import Code, NotApplicable, call, output_of, takes, takes_all, tensor_of

BATCHES, RECIPE = "07_batches_and_masks", "08_training_recipe"


def batch_of(code: Code, p: int, count: int = 2) -> tuple[Tensor, Tensor, Any]:
    """Return source, target and a batch of the code under test: two or three sentences, some with padding."""
    src, tgt = torch.tensor([[3, 4, 5], [6, p, p]]), torch.tensor([[3, 7, 8, 9, 4], [3, 9, 4, p, p]])
    if count == 3:
        src, tgt = torch.tensor([[3, p], [6, 7], [8, p]]), torch.tensor([[3, 4, p], [3, 9, 4], [3, 4, p]])
    return src, tgt, call(code.find("batch"), src=src, tgt=tgt, pad=p)


def get(batch: Any, *names: str) -> Any:
    """Return the first attribute there is. Raises NotApplicable if there is none."""
    for name in names:
        if hasattr(batch, name):
            return as_plain(getattr(batch, name))
    raise NotApplicable(f"needs a Batch with .{names[0]}")


@law(BATCHES, "batch", "batch: shifted target")
def shifted_target(code: Code) -> None:
    """The decoder reads all target tokens but the last, and is to predict all but the first."""
    _, tgt, batch = batch_of(code, code.pad)
    read, predict = get(batch, "tgt", "trg", "tgt_input"), get(batch, "tgt_y", "trg_y", "tgt_output")
    right = torch.equal(read, tgt[:, :-1]) and torch.equal(predict, tgt[:, 1:])
    rows = f"reads {read[0].tolist()}, predicts {predict[0].tolist()}, of {tgt[0].tolist()}"
    expect(right, "the target is not shifted as it should be", rows, read=read, predict=predict, tgt=tgt)
    count = int(getattr(batch, "ntokens", 6))
    expect(count == 6, f"ntokens is {count}, and should be 6", count=count)


@law(BATCHES, "batch", "batch: masks", "causal mask")
def batch_masks(code: Code) -> None:
    """The source mask hides padding; the target mask hides padding and what follows."""
    pads = {code.pad, 2} if takes(code.find("batch"), "pad") else {code.pad}
    for pad, count in itertools.product(pads, (2, 3)):
        src, tgt, batch = batch_of(code, pad, count)
        n = tgt.size(1) - 1
        mask, expected = allowed(code, batch, "src_mask"), (src != pad)[:, None]
        example = f"{mask.tolist()}, and should be {expected.tolist()}, with padding {pad}"
        evidence = {"inverted": torch.equal(~mask, expected), "zero": pad != 0 and bool(mask.all())}
        evidence["flat"] = torch.equal(mask, expected[:, 0])
        expect(torch.equal(mask, expected), "src_mask is wrong", example, **evidence)
        mask, causal = allowed(code, batch, "tgt_mask", "trg_mask"), torch.ones(n, n).tril().bool()
        mask = mask.expand(count, n, n) if mask.shape in ((count, 1, n), (1, n, n), (n, n)) else mask
        real = (tgt[:, :-1] != pad)[:, None]
        right = any(torch.equal(mask, causal & x) for x in (real, real.mT, real & real.mT))
        last, should = rows_of(mask[-1]), rows_of((causal & real)[-1])
        example = f"{last} for the last sentence, whose last is padding {pad}; it should be {should}"
        expect(right, "tgt_mask is wrong", example, got=mask.float(), real=real, causal=causal)


def allowed(code: Code, batch: Any, *names: str) -> Tensor:
    mask = get(batch, *names)
    return ((mask.squeeze(1) if mask.dim() == 4 else mask) != 0) != code.true_hides


# ---- the loss (section 5.4)


def loss_of(code: Code, x: Tensor, target: Tensor, smoothing: float, pad: int | None = None) -> Tensor:
    part = code.find("label_smoothing")
    settings: dict[str, Any] = {"smoothing": smoothing, "pad": code.pad if pad is None else pad}
    if inspect.isclass(part) or not takes_all(part, "log_probs", "target"):
        part, settings = code.build("label_smoothing", vocab=x.size(-1), **settings), {}
    return output_of(part, log_probs=x, target=target, **settings).sum()


@law(RECIPE, "label_smoothing", "smoothing: mass")
def smoothing_mass(code: Code) -> str | None:
    """The target has 1 - smoothing on the right token and smoothing on the others: together 1."""
    pads = {code.pad, 2} if takes(code.find("label_smoothing"), "pad", "ignore") else {code.pad}
    return max((mass_of(code, pad, *how) for pad in pads for how in ((0.4, 6), (0.1, 9))), key=bool)


def mass_of(code: Code, pad: int, e: float, V: int) -> str | None:
    target = torch.tensor([3])
    x = torch.randn(1, V).log_softmax(-1).requires_grad_()
    with torch.enable_grad():
        loss = loss_of(code, x, target, e, pad)
        loss.backward()
        other = (0.5 * x.detach()).requires_grad_()
        loss_of(code, other, target, e, pad).backward()
    grad, again = (torch.zeros(V) if y.grad is None else y.grad[0] for y in (x, other))
    q = -grad
    if abs(grad.sum()) < 1e-4 and grad.abs().max() > 1e-3:  # it takes logits
        q = x.detach().softmax(-1)[0] - grad
    if close(q, torch.full((V,), e / V).index_fill(0, target, 1 - e + e / V), 1e-3):
        return "smoothing / V on every token, as in PyTorch"
    right, on_padding, total = float(q[3]), float(q[pad]), float(q.sum())
    others = q[[i for i in range(V) if i not in (3, pad)]]
    example = f"token 3 of {V} is right, padding is {pad}, smoothing {e}: {numbers(q)}"
    message = f"the right token gets {right:.3g}, and should get {1 - e}"
    linear = close(grad, again, 1e-3)  # as sums of q log p are
    evidence = {"right": right, "others": others, "e": e, "linear": linear}
    expect(abs(right - (1 - e)) < 1e-3, message, example, **evidence)
    at_zero = pad != 0 and abs(float(q[0])) < 1e-3 < abs(on_padding)
    mistake = f"padding is {pad} here, and token 0 is treated as padding" if at_zero else ""
    message = "the other tokens get different shares"
    expect(others.max() - others.min() < 1e-3, message, example, mistake=mistake)
    mistake = "padding must get nothing: set its column to 0"
    if abs(on_padding) < 1e-3:
        n = round(e / max(float(others[0]), 1e-6))
        mistake = f"smoothing is divided by {n}, but {V - 2} other tokens get it: size - 2"
    expect(abs(total - 1) < 1e-3, f"the target adds up to {total:.3g}, not 1", example, mistake=mistake)
    sure = q.clamp_min(1e-30).log()
    losses = {"the sum of -q log p": -(q * x[0]).sum(), "the KL divergence": (q * (sure - x[0])).sum()}
    equal = (name for name, y in losses.items() if math.isclose(float(loss), float(y), rel_tol=1e-3))
    name = next(equal, "another loss")
    is_sum = name == "the sum of -q log p"
    expect(not code.stubs or is_sum, f"the loss is {name}, not the sum of -q log p", example)
    return "padding gets a share too" if abs(on_padding) > 1e-3 else None


@law(RECIPE, "label_smoothing", "smoothing: padding", "smoothing: mass")
def smoothing_padding(code: Code) -> str:
    """Rows whose target is padding count nothing: neither in the loss nor in its gradient."""
    if not takes(code.find("label_smoothing"), "pad", "ignore"):
        raise NotApplicable("the loss knows no padding")
    x = torch.randn(4, 6).log_softmax(-1)
    one = float(loss_of(code, x[:1], torch.tensor([3]), 0.1))
    both = float(loss_of(code, x[:1].repeat(2, 1), torch.tensor([3, 3]), 0.1))
    mean = math.isclose(one, both, rel_tol=1e-3)
    message = "the loss is a mean over tokens, not their sum"
    expect(not (mean and code.stubs), message, f"{one:.4f}, {both:.4f}")
    for p, rows in itertools.product({code.pad, 2}, (2, 1)):
        short = float(loss_of(code, x[:2], torch.tensor([3, 4]), 0.1, p))
        long = float(loss_of(code, x[: 2 + rows], torch.tensor([3, 4] + [p] * rows), 0.1, p))
        same = math.isclose(short, long, rel_tol=1e-3, abs_tol=1e-4)
        example = f"{short:.4f} without, {long:.4f} with {rows}"
        expect(same, "rows of padding change the loss", example, short=short, long=long, pad=p)
    return "a mean over tokens" if mean else ""


# ---- the schedule (section 5.3)


@law(RECIPE, "rate", "rate: equation 3")
def rate_equation(code: Code) -> str | None:
    """The rate is d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    settings = {"model_size": 64, "factor": 1.0, "warmup": 100}
    steps = torch.tensor([1.0, 10, 50, 100, 200, 1000]).double()

    def right(s=steps, d=64, w=100, of_d=-0.5, of_w=-1.5, of_s=-0.5, least=torch.minimum) -> Tensor:  # type: ignore[no-untyped-def]
        return d**of_d * least(s**of_s, s * w**of_w)

    got = torch.tensor([float(call(code.find("rate"), step=int(x), **settings)) for x in steps]).double()
    expected = right()
    example = f"at steps {numbers(steps)}, d_model 64, warm-up 100: {numbers(got)}, not {numbers(expected)}"
    evidence = {"got": got / expected, "s": steps, "rate": lambda **changes: right(**changes) / expected}
    expect(torch.allclose(got, expected, rtol=1e-4), "the rate is wrong", example, **evidence)
    again = {"model_size": 96, "factor": 1.0, "warmup": 40}
    other = torch.tensor([float(call(code.find("rate"), step=int(x), **again)) for x in steps])
    right_too = torch.allclose(other.double(), right(d=96, w=40), rtol=1e-4)
    expect(right_too, "with d_model 96 and a warm-up of 40 the rate is wrong", numbers(other))
    if takes(code.find("rate"), "factor"):
        twice = float(call(code.find("rate"), step=50, **settings | {"factor": 2.0}))
        expect(math.isclose(twice, 2 * got[2], rel_tol=1e-4), "twice the factor does not give twice the rate")
    with suppress(ArithmeticError):
        zero, one = (float(call(code.find("rate"), step=n, **settings)) for n in (0, 1))
        message = f"step 0 gives {zero:.3g}, and counts as 1: {one:.3g}"
        expect(not code.stubs or math.isclose(zero, one), message)
        return None
    message = "step 0, which PyTorch's schedulers ask for first, divides by 0"
    expect(not hands_on(code.find("rate")), message)
    return message


def hands_on(rate: Any) -> bool:
    """Tell whether the file of a schedule gives it to PyTorch's LambdaLR with the steps as they are."""
    name, text = re.escape(getattr(rate, "__name__", "")), ""
    with suppress(OSError, TypeError, KeyError, AttributeError):
        text = inspect.getsource(sys.modules[rate.__module__])
    steps = rf"lambda (\w+)[^:]*: *{name}\((\w+ *= *)?\1 *[,)]|partial\( *{name}\b"
    return "LambdaLR(" in text and re.search(steps, text) is not None


# ---- BLEU, the score of what a search finds (section 6.1)

PAIRS = {
    "the the the Cat sat on the mat today": "the black Cat sat on the mat",
    "a small dog Runs in the green park": "a small dog runs through the green park today now",
    "he reads it here": "he reads the book here in the evening",
}


def counts(texts: list[str], references: list[str], clip: bool = True) -> Tensor:
    """Count n-grams, n = 1 to 4, of texts: those that their references have, and all. (2, 4)"""
    totals = torch.zeros(2, 4)
    for pair, n in itertools.product(zip(texts, references, strict=True), range(4)):
        grams, known = (Counter(zip(*(x.split()[i:] for i in range(n + 1)), strict=False)) for x in pair)
        right = grams & known if clip else {g: count for g, count in grams.items() if g in known}
        totals[:, n] += torch.tensor([sum(right.values()), grams.total()])
    return totals


def mean_of(precisions: Tensor) -> float:
    return geometric_mean(precisions.clamp_min(1e-9).tolist())


def brevity(texts: list[str], references: list[str]) -> float:
    """Return the length of the references by that of the texts."""
    return len(" ".join(references).split()) / len(" ".join(texts).split())


def score_of(texts: list[str], references: list[str]) -> float:
    """Return BLEU as sacreBLEU has it, of words between spaces and without smoothing, from 0 to 100."""
    right, total = counts(texts, references)
    return 100 * mean_of(right / total) * min(1.0, math.exp(1 - brevity(texts, references)))


def scores_of(code: Code, texts: list[str], references: list[str]) -> list[tuple[float, float]]:
    """Score identical texts, and others, in each form of a call, the best for identical ones first.

    The forms are lists of words or texts, with a list of references or a reference for each. A text is also a
    list of characters, so that a wrong form need not raise an error.
    """
    forms: list[Callable[[list[str], list[str]], tuple[Any, Any]]] = [
        lambda h, r: ([x.split() for x in h], [x.split() for x in r]),
        lambda h, r: ([x.split() for x in h], [[x.split()] for x in r]),
        lambda h, r: (h, [r]),
        lambda h, r: (h, r),
    ]

    def score(hypotheses: Any, references: Any) -> float:
        result = call(code.find("bleu"), hypotheses=hypotheses, references=references)
        return float(tensor_of(getattr(result, "value", getattr(result, "score", result))))

    scores, problems = [], []
    for form in forms:
        try:
            scores.append((score(*form(references, references)), score(*form(texts, references))))
        except (NotImplementedError, NotApplicable):
            raise
        except Exception as error:
            problems.append(error)
    if not scores:
        raise problems[-1]
    return sorted(scores, key=lambda pair: -round(pair[0], 3))


@law("10_translation", "bleu", "BLEU: sacreBLEU's number")
def bleu(code: Code) -> str | None:
    """BLEU of a corpus is what sacreBLEU says, from 0 to 100 or from 0 to 1; capitals count."""
    texts, references = [*PAIRS], [*PAIRS.values()]
    (same, got), *others = scores_of(code, texts, references)
    unit = 100.0 if 0.99 < same < 1.01 else 1.0
    lower = score_of([x.lower() for x in texts], [x.lower() for x in references])
    got = next((other for _, other in others if abs(other * unit - lower) < 0.05), got)  # it wants texts
    got, expected = got * unit, score_of(texts, references)
    if abs(got - expected) < 0.05 and abs(same * unit - 100) < 0.05:
        if unit == 100 and code.stubs:
            raise Failure("the score is from 0 to 1", mistake="BLEU is told from 0 to 100: multiply by 100")
        for drawn in torch.randint(0, 9, (9, 24)).tolist():  # words whose last is another in the text
            text, reference = (" ".join(f"w{x}" for x in (*drawn, last)) for last in (0, 1))
            expected = score_of([text], [reference])
            scores = [score * unit for _, score in scores_of(code, [text], [reference])]
            example = f"{scores[0]:.2f}, and should be {expected:.2f}"
            right = any(abs(score - expected) < 0.05 for score in scores)
            expect(right, "the score of another text is wrong", example)
        return "from 0 to 1" if unit == 100 else None
    matches, total = counts(texts, references)
    r, plain = brevity(texts, references), counts(texts, references, clip=False)[0]
    evidence: dict[str, Any] = {"got": got, "mean": mean_of, "r": r, "penalty": min(1.0, math.exp(1 - r))}
    evidence |= {"p": matches / total * 100, "unclipped": plain / total * 100, "lower": lower}
    evidence["one_more"] = (matches + 1) / (total + 1) * 100
    evidence["one_more_above"] = torch.cat([evidence["p"][:1], evidence["one_more"][1:]])
    evidence["each"] = [score_of([text], [reference]) for text, reference in PAIRS.items()]
    raise Failure("the score is not sacreBLEU's", f"{got:.2f}, and should be {expected:.2f}", **evidence)
