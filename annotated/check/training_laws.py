"""Laws of masks, batches, the loss, the schedule and searches (lessons 06 to 11)."""

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.adapt import Code, Missing, Model, call, first
from annotated.check.parts_laws import close, explain, law, numbers
from annotated.check.report import Failure

# ---- masks and batches (sections 3.2.3 and 5.1)


@law("07_batches_and_masks", "subsequent_mask", "causal mask")
def subsequent_mask(code: Code) -> str | None:
    """The mask of size n is True at row i, column j, where j <= i, and False beyond."""
    mask = torch.as_tensor(call(code["subsequent_mask"], length=4)).squeeze()
    if mask.shape != (4, 4):
        raise Failure(f"the shape is {tuple(mask.shape)}, and should be (1, 4, 4) or (4, 4)")
    remark = None
    if mask.is_floating_point() and (mask < 0).any():  # to be added to the scores
        mask, remark = mask == 0, "a mask that is added to the scores"
    allowed = (mask != 0) != code.true_hides
    mistakes = {
        "the mask is inverted: True stands where it should hide": torch.ones(4, 4).triu(1),
        "a position cannot see itself: the diagonal belongs to the mask": torch.ones(4, 4).tril(-1),
        "off by one: position i sees position i + 1": torch.ones(4, 4).tril(1),
        "rows and columns are swapped: tril, not triu": torch.ones(4, 4).triu(),
        "nothing is hidden": torch.ones(4, 4),
    }
    if not torch.equal(allowed, torch.ones(4, 4).tril().bool()):
        rows = " / ".join("".join(str(int(x)) for x in row) for row in allowed)
        raise Failure("the mask is another", f"{rows}, and should be 1000 / 1100 / 1110 / 1111",
                      explain(allowed.float(), mistakes))  # fmt: skip
    return remark


@law("07_batches_and_masks", "batch", "batch: shifted target")
def shifted_target(code: Code) -> None:
    """The decoder reads all target tokens but the last, and is to predict all but the first."""
    batch = make_batch(code)
    tgt = torch.tensor([[1, 7, 8, 2], [1, 9, 2, code.pad]])
    read, predict = getattr(batch, "tgt", getattr(batch, "trg", None)), getattr(
        batch, "tgt_y", getattr(batch, "trg_y", None))  # fmt: skip
    if read is None or predict is None:
        raise Missing("needs a Batch with .tgt and .tgt_y")
    if not torch.equal(read, tgt[:, :-1]) or not torch.equal(predict, tgt[:, 1:]):
        mistake = ""
        if torch.equal(read, predict):
            mistake = "the target is not shifted: the decoder reads the token that it has to predict"
        elif torch.equal(read, tgt[:, 1:]):
            mistake = "the shift goes the wrong way: read tgt[:, :-1], predict tgt[:, 1:]"
        raise Failure("the target is shifted otherwise", f"reads {read[0].tolist()}, predicts "
                      f"{predict[0].tolist()}, of {tgt[0].tolist()}", mistake)  # fmt: skip
    count = getattr(batch, "ntokens", None)
    if count is not None and int(count) != 5:
        raise Failure(f"ntokens is {int(count)}, and should be 5", "", "padding is counted: (tgt_y != pad).sum()"
                      if int(count) == 6 else "count the tokens of tgt_y that are not padding")  # fmt: skip


@law("07_batches_and_masks", "batch", "batch: masks")
def batch_masks(code: Code) -> None:
    """The source mask hides padding; the target mask hides padding and what follows."""
    batch, p = make_batch(code), code.pad
    mask = getattr(batch, "src_mask", None)
    if mask is None:
        raise Missing("needs a Batch with .src_mask")
    wanted = (torch.tensor([[3, 4, 5], [6, p, p]]) != p)[:, None]
    src_mask = (mask.squeeze(1) if mask.dim() == 4 else mask) != 0
    if not torch.equal(src_mask != code.true_hides, wanted):
        inverted = torch.equal(src_mask == code.true_hides, wanted)
        raise Failure("src_mask is another", f"{src_mask.int().tolist()}, and should be {wanted.int().tolist()}",
                      "the source mask is inverted: src != pad" if inverted else "")  # fmt: skip
    mask = getattr(batch, "tgt_mask", getattr(batch, "trg_mask", None))
    if mask is None:
        return
    tgt_mask = ((mask.squeeze(1) if mask.dim() == 4 else mask) != 0) != code.true_hides
    causal, real = torch.ones(3, 3).tril().bool(), torch.tensor([[1, 1, 1], [1, 1, 1]]).bool()[:, None]
    real = (torch.tensor([[1, 7, 8], [1, 9, 2]]) != p)[:, None]
    mistakes = {"the causal mask is missing": real.expand(2, 3, 3).float(),
                "the target mask is inverted": (~(causal & real)).float()}  # fmt: skip
    if not torch.equal(tgt_mask, causal & real):
        raise Failure("tgt_mask is another", f"{tgt_mask[0].int().tolist()}", explain(tgt_mask.float(), mistakes))
    longer = make_batch(code, longer=True)
    mask = getattr(longer, "tgt_mask", getattr(longer, "trg_mask", None))
    if (((mask != 0) != code.true_hides).view(2, 4, 4)[1, :, 3]).any():
        raise Failure("tgt_mask lets the decoder see padding", "", "the target mask lacks padding: (tgt != pad) & "
                      "causal")  # fmt: skip


def make_batch(code: Code, longer: bool = False) -> Any:
    p = code.pad
    src = torch.tensor([[3, 4, 5], [6, p, p]])
    tgt = torch.tensor([[1, 7, 8, 9, 2], [1, 9, 2, p, p]] if longer else [[1, 7, 8, 2], [1, 9, 2, p]])
    return call(code["batch"], src=src, tgt=tgt, pad=p)


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
    """Read the target distribution off the gradient: the loss is minus its product with the log-probabilities."""
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
    right, others = float(q[3]), torch.cat([q[:3], q[4:]])
    if close(q, torch.full((V,), e / V).index_fill(0, target, 1 - e + e / V), 1e-3):
        return "smoothing / V on every token, as in PyTorch"
    spread = q.clone()
    spread[[3, code.pad]] = -1
    spread = spread[spread >= 0]
    example = f"token 3 of 6 is right, padding is {code.pad}, smoothing 0.4: {numbers(q)}"
    if abs(right - (1 - e)) > 1e-3:
        mistake = ""
        if abs(right - e) < 1e-3:
            mistake = "smoothing and confidence are swapped: the right token gets 1 - smoothing"
        elif abs(right - 1) < 1e-3 and others.abs().max() < 1e-3:
            mistake = "nothing is smoothed"
        elif abs(right) < 1e-3:
            mistake = "the right token gets nothing: scatter_(1, target.unsqueeze(1), confidence)"
        raise Failure(f"the right token gets {right:.3g}, and should get 0.6", example, mistake)
    if float(spread.max() - spread.min()) > 1e-3:
        raise Failure("the other tokens get different shares", example)
    if abs(float(q[code.pad])) > 1e-3 and "smoothing" and abs(float(q.sum()) - 1) > 1e-3:
        raise Failure(f"padding gets {float(q[code.pad]):.3g}", example, "padding must get nothing: set its column "
                      "to 0")  # fmt: skip
    if abs(float(q.sum()) - 1) > 1e-3:
        n = round(e / float(spread[0])) if spread[0] > 0 else 0
        mistake = f"smoothing is divided by {n}, but {len(spread)} other tokens get it: size - 2" if n else ""
        raise Failure(f"the target adds up to {float(q.sum()):.3g}, not 1", example, mistake)
    return "padding gets a share too" if abs(float(q[code.pad])) > 1e-3 else None


def takes_padding(code: Code) -> None:
    names = inspect.signature(code["label_smoothing"]).parameters
    if not any(word in name.lower() for name in names for word in ("pad", "ignore")):
        raise Missing("the loss knows no padding")


@law("08_training_recipe", "label_smoothing", "smoothing: padding")
def smoothing_padding(code: Code) -> None:
    """Rows whose target is padding count nothing: neither in the loss nor in its gradient."""
    takes_padding(code)
    p, x = code.pad, torch.randn(4, 6).log_softmax(-1)
    with torch.no_grad():
        short = float(loss_of(code, x[:2], torch.tensor([3, 4]), 0.1))
        long = float(loss_of(code, x, torch.tensor([3, 4, p, p]), 0.1))
        other = float(loss_of(code, torch.cat([x[:2], x[2:].flip(-1)]), torch.tensor([3, 4, p, p]), 0.1))
    if not math.isclose(short, long, rel_tol=1e-3, abs_tol=1e-4):
        mistake = "rows of padding are counted: set their targets to 0"
        if math.isclose(long, other, rel_tol=1e-3) and math.isclose(long * 2, short, rel_tol=1e-3):
            mistake = "the mean is over all rows: divide by the number of real tokens"
        raise Failure("two rows of padding change the loss", f"{short:.4f} without, {long:.4f} with", mistake)


@law("08_training_recipe", "label_smoothing", "loss: parts of a batch")
def loss_adds_up(code: Code) -> str:
    """The loss of a batch is the sum of its parts', or their mean by tokens: so gradients can be accumulated."""
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
    raise Failure("the loss of a batch is neither the sum nor the mean of its parts'",
                  f"one row {a:.4f}, four others {b:.4f}, all five {whole:.4f}",
                  "is it divided by a fixed number, or by the number of symbols?")  # fmt: skip


# ---- the schedule (section 5.3)


@law("08_training_recipe", "rate", "rate: equation 3")
def rate_equation(code: Code) -> None:
    """The rate is d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    d, w = 64, 100
    steps = [1, 10, 50, 100, 200, 1000]

    def curve(f: Callable[[float], float]) -> Tensor:
        return torch.tensor([f(s) for s in steps], dtype=torch.double)

    got = curve(lambda s: float(call(code["rate"], step=int(s), model_size=d, factor=1.0, warmup=w)))
    wanted = curve(lambda s: d**-0.5 * min(s**-0.5, s * w**-1.5))
    if torch.allclose(got, wanted, rtol=1e-6):
        return
    mistakes: dict[str, Callable[[float], float]] = {
        "max stands where min should": lambda s: d**-0.5 * max(s**-0.5, s * w**-1.5),
        "the factor d_model^-0.5 is missing": lambda s: min(s**-0.5, s * w**-1.5),
        "the sign of d_model's exponent is lost: d_model^-0.5": lambda s: d**0.5 * min(s**-0.5, s * w**-1.5),
        "warm-up has the exponent -0.5: it is -1.5": lambda s: d**-0.5 * min(s**-0.5, s * w**-0.5),
        "warm-up has the exponent -1: it is -1.5": lambda s: d**-0.5 * min(s**-0.5, s / w),
        "there is no warm-up": lambda s: d**-0.5 * s**-0.5,
        "it never falls again": lambda s: d**-0.5 * s * w**-1.5,
        "it falls as 1 / step: it is step^-0.5": lambda s: d**-0.5 * min(1 / s, s * w**-1.5),
        "it is divided by d_model, not by its root": lambda s: min(s**-0.5, s * w**-1.5) / d,
        "steps are counted from 0: the first is 1": lambda s: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * w**-1.5),
        "warm-up is fixed at 4000: use the argument": lambda s: d**-0.5 * min(s**-0.5, s * 4000**-1.5),
    }
    mistake = next((m for m, f in mistakes.items() if torch.allclose(got, curve(f), rtol=1e-4)), "")
    rows = f"at steps {steps}, d_model 64, warm-up 100: {numbers(got)}, and should be {numbers(wanted)}"
    raise Failure("the rate is another", rows, mistake)


@law("08_training_recipe", "rate", "rate: peak")
def rate_peak(code: Code) -> None:
    """The rate rises until the last step of the warm-up, and falls from there."""
    rates = {s: float(call(code["rate"], step=s, model_size=64, factor=1.0, warmup=50)) for s in range(1, 200)}
    top = max(rates, key=lambda s: rates[s])
    if top != 50 or rates[199] >= rates[50]:
        raise Failure(f"the highest rate is at step {top}, and should be at 50", "", "min and max, or the exponents")
    call(code["rate"], step=0, model_size=64, factor=1.0, warmup=50)  # schedulers ask for step 0 first


# ---- searches (section 6.1)


def searched(code: Code, **sizes: Any) -> Model:
    """A model to search with: the code's own, or the package's where it has none."""
    try:
        code["make_model"]
    except Missing:
        from annotated.transformer.model import make_model

        code = Code({**code.names} | {"make_model": make_model})
    return code.model(**{"shake": 0.5, "src_vocab": 23, "tgt_vocab": 23} | sizes)


def steps(model: Model, src: Tensor, count: int, start: int = 1) -> list[int]:
    """The likeliest token at each step, everything computed anew."""
    tokens = [start]
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(src, torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[1:]


def search(code: Code, model: Model, part: str, src: Tensor, max_len: int, end: int, **more: Any) -> list[int]:
    """Run a search of the code under test; return the tokens of the first sentence, without start."""
    mask, _ = model.masks(src, src)
    given = {"model": model.module, "src": model.code.flip(src), "src_mask": mask, "max_len": max_len, "start": 1,
             "end": end, "pad": code.pad} | more  # fmt: skip
    with torch.no_grad():
        result = model.code.with_masks(lambda m: call(code[part], **given | {"src_mask": m}), mask)
    tokens = flat_tokens(result)
    return tokens[1:] if tokens[:1] == [1] else tokens


def flat_tokens(result: Any) -> list[int]:
    """The first sequence of tokens in what a search returns, whatever it is wrapped in."""
    if hasattr(result, "tokens"):
        return [int(t) for t in result.tokens]
    if isinstance(result, Tensor):
        return [int(t) for t in (result if result.dim() == 1 else result.reshape(-1, result.size(-1))[0])]
    if isinstance(result, list | tuple) and result:
        if all(isinstance(t, int) or (isinstance(t, Tensor) and t.dim() == 0) for t in result):
            return [int(t) for t in result]
        return flat_tokens(result[0])
    return []


def takes(code: Code, part: str, word: str) -> bool:
    return any(word in name.lower() for name in inspect.signature(code[part]).parameters)


NO_END = 22  # a token that is taken for the end where none should come


@law("11_search_and_averaging", "greedy_decode", "greedy: likeliest token")
def greedy_takes_the_likeliest(code: Code) -> None:
    """Greedy search takes the likeliest token at each step, with or without a cache."""
    model = searched(code)
    wanted = steps(model, SRC, 7)
    end = next(t for t in range(22, 2, -1) if t not in wanted)
    got = search(code, model, "greedy_decode", SRC, 7, end)
    n = min(len(got), 7)
    if n < 5:
        raise Failure(f"it stops after {n} tokens of 7", f"{got}", "")
    if got[:n] == wanted[:n]:
        return
    at = next(i for i in range(n) if got[i] != wanted[i])
    mistake = ""
    with torch.no_grad():
        seen = model(SRC, torch.tensor([[1, *wanted[:at]]]))[0]
    if got[at] == int(seen[-1].argmin()):
        mistake = "it takes the least likely token: argmax, not argmin"
    elif at and got[at] == int(seen[0].argmax()):
        mistake = "it reads the prediction at the first position: take the last, [:, -1]"
    elif at and got[at] == steps(model, SRC, 1, start=wanted[at - 1])[0]:
        mistake = "the decoder gets the newest token only: give it all tokens so far, or a cache"
    elif len(set(got[1:])) == 1 and at:
        mistake = "the new token is not appended to what the decoder reads"
    else:
        model.module.train()
        model.module.eval()
        mistake = "if it has a cache: positions must go on counting, and nothing may be lost from it"
    raise Failure(f"token {at} is not the likeliest", f"{got}, and should be {wanted[:n]}", mistake)


SRC = torch.tensor([[5, 6, 7, 8, 9]])


@law("11_search_and_averaging", "greedy_decode", "greedy: stops")
def greedy_stops(code: Code) -> None:
    """It stops at the end symbol, and never goes beyond max_len."""
    model = searched(code)
    wanted = steps(model, SRC, 9)
    long = search(code, model, "greedy_decode", SRC, 4, NO_END)
    if len(long) > 4:
        raise Failure(f"{len(long)} tokens come where max_len is 4", str(long), "count the steps up to max_len")
    if not takes(code, "greedy_decode", "e") or not any(
        takes(code, "greedy_decode", w) for w in ("end", "eos")
    ):
        return
    at = next((i for i in range(1, 9) if wanted[i] not in wanted[:i]), 1)
    got = search(code, model, "greedy_decode", SRC, 9, wanted[at])
    rest = [t for t in got[at + 1 :] if t not in (wanted[at], code.pad)]
    if rest:
        raise Failure("it goes on after the end symbol", f"{got}, the end is {wanted[at]}",
                      "break when the end symbol is taken")  # fmt: skip


@law("11_search_and_averaging", "beam_search", "beam: one is greedy")
def beam_of_one(code: Code) -> None:
    """A beam of one is greedy search."""
    model = searched(code)
    wanted = steps(model, SRC, 6)
    end = wanted[next((i for i in range(2, 6) if wanted[i] not in wanted[:i]), 5)]
    wanted = wanted[: wanted.index(end)]
    got = search(code, model, "beam_search", SRC, 20, end, beam=1, alpha=0.0)
    got = got[: got.index(end)] if end in got else got
    if got != wanted:
        raise Failure("a beam of one differs from greedy search", f"{got}, and should be {wanted}",
                      "are the scores log-probabilities, added up, and the largest taken?")  # fmt: skip


@law("11_search_and_averaging", "beam_search", "beam: exact search")
def beam_against_exact(code: Code) -> None:
    """A beam wide enough to keep everything finds the best translation there is."""
    for seed in range(30):
        model = searched(code, src_vocab=5, tgt_vocab=5, shake=0.0)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.module.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.4)
        src, end = torch.tensor([[3, 4, 3]]), 2
        every = list(itertools.product((0, 1, 3, 4), repeat=3))  # and their beginnings, by causality
        with torch.no_grad():
            rows = model(src.expand(len(every), -1), torch.tensor([[1, *tokens] for tokens in every]))
        scores = {
            tokens[:n]: float(sum(row[i, t] for i, t in enumerate((*tokens[:n], end))))
            for tokens, row in zip(every, rows, strict=True)
            for n in range(4)
        }
        best = max(scores, key=lambda tokens: scores[tokens])
        greedy: tuple[int, ...] = tuple(steps(model, src, 4))
        greedy = greedy[: greedy.index(end)] if end in greedy else greedy
        if greedy != best and not {0, 1} & set(best) and len(best) > 0:
            break
    got = search(code, model, "beam_search", src, 4, end, beam=64, alpha=0.0)
    tokens = tuple(got[: got.index(end)] if end in got else got)
    score = scores.get(tokens, -math.inf)
    if score < scores[best] - 1e-3:
        mean = {t: s / (len(t) + 1) for t, s in scores.items()}
        mistake = ""
        if tokens == greedy:
            mistake = "it is greedy: all hypotheses of a step must compete by their sums"
        elif tokens == max(mean, key=lambda t: mean[t]):
            if not takes(code, "beam_search", "alpha") and not takes(code, "beam_search", "penalty"):
                return
            mistake = "scores are divided by the length although alpha is 0"
        elif tokens == min(scores, key=lambda t: scores[t]):
            mistake = "the worst is returned: sort by falling score"
        raise Failure("exhaustive search finds a better one", f"{tokens} with {score:.3f}; best {best} with "
                      f"{scores[best]:.3f}", mistake)  # fmt: skip


# ---- BLEU (section 6.1)

HYPOTHESES = ["the the the cat sat on the mat today", "a small dog runs in the green park", "he reads it here"]
REFERENCES = ["the black cat sat on the mat", "a small dog runs through the green park today now",
              "he reads the book here in the evening"]  # fmt: skip


def own_bleu(
    pairs: list[tuple[str, str]], clip: bool = True, brevity: bool = True, geometric: bool = True, swap: bool = False
) -> float:
    """BLEU of words between spaces, and what becomes of it with a mistake."""
    precisions, c, r = [], 0, 0
    for n in range(1, 5):
        right = total = 0
        for h, ref in pairs:
            a, b = (Counter(zip(*(x.split()[i:] for i in range(n)), strict=False)) for x in (h, ref))
            right += sum((a & b).values()) if clip else sum(k for g, k in a.items() if g in b)
            total += sum(a.values())
        precisions.append(right / max(total, 1))
    c, r = (sum(len(pair[i].split()) for pair in pairs) for i in (0, 1))
    mean = math.exp(sum(math.log(max(p, 1e-12)) for p in precisions) / 4) if geometric else sum(precisions) / 4
    penalty = min(1.0, math.exp(1 - (c / r if swap else r / c))) if brevity else 1.0
    return 100 * mean * penalty


def bleu_of(code: Code, hypotheses: list[str], references: list[str]) -> float:
    forms: list[tuple[Any, Any]] = [
        (hypotheses, references),
        (hypotheses, [references]),
        ([h.split() for h in hypotheses], [r.split() for r in references]),
        ([h.split() for h in hypotheses], [[r.split()] for r in references]),
    ]
    problem: Exception | None = None
    for h, r in forms:
        try:
            result = call(code["bleu"], hypotheses=h, references=r)
        except NotImplementedError:
            raise
        except Exception as error:
            problem = problem or error
            continue
        for name in ("value", "score"):
            result = getattr(result, name, result)
        return float(first(result))
    assert problem is not None
    raise problem


@law("11_search_and_averaging", "bleu", "BLEU: sacreBLEU's number")
def bleu(code: Code) -> str | None:
    """BLEU of a corpus is what sacreBLEU says, from 0 to 100 or from 0 to 1."""
    from sacrebleu.metrics import BLEU

    right = BLEU(tokenize="none")
    same = bleu_of(code, REFERENCES, REFERENCES)
    unit = 100.0 if 0.99 < same < 1.01 else 1.0
    got, pairs = bleu_of(code, HYPOTHESES, REFERENCES) * unit, list(zip(HYPOTHESES, REFERENCES, strict=True))
    wanted = right.corpus_score(HYPOTHESES, [REFERENCES]).score
    if abs(got - wanted) < 0.05 and abs(same * unit - 100) < 0.05:
        return "from 0 to 1" if unit == 100 else None
    each = [own_bleu([pair]) for pair in pairs]
    mistakes = {
        "repeated words count again and again: clip each n-gram's count by the reference's": own_bleu(pairs, clip=False),
        "short translations go unpunished: the brevity penalty is missing": own_bleu(pairs, brevity=False),
        "the brevity penalty punishes long translations: it is exp(1 - reference / hypothesis)": own_bleu(
            pairs, swap=True
        ),
        "precisions are averaged: take their geometric mean": own_bleu(pairs, geometric=False),
        "sentences' scores are averaged: add up the counts of the corpus first": sum(each) / len(each),
    }
    mistake = next((m for m, x in mistakes.items() if abs(got - x) < 0.05), "")
    raise Failure("the score is not sacreBLEU's", f"{got:.2f}, and should be {wanted:.2f}", mistake)
