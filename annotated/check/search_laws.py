"""Laws of searches, and of the score of what they find (lesson 11)."""

import itertools
import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.adapt import Code, Missing, Model, call, first, takes
from annotated.check.laws import explain, law
from annotated.check.report import Failure

SRC, START, NO_END = torch.tensor([[5, 6, 7, 8, 9]]), 3, 22  # 22 is the end where none should come


def searched(code: Code, **sizes: Any) -> Model:
    """A model to search with: the code's own, or the package's where it has none."""
    try:
        code["make_model"]
    except Missing:
        from annotated.transformer.model import make_model

        code = Code({**code.names} | {"make_model": make_model})
    models = []
    for seed in range(15):
        model = code.model(**{"shake": 0.0} | sizes)
        model.pad = -1  # what a search has written is never padding
        for module in model.module.modules():  # not the last token again: the next
            if isinstance(module, nn.Linear) and module.out_features == model.vocab:
                module.register_forward_hook(lambda *called: called[-1].roll(1, -1))
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.module.parameters():
                if parameter.dim() > 1:  # large biases or layers would let one token win everywhere
                    alpha = 1.0 if model.vocab in parameter.shape else 0.1
                    parameter.add_(torch.randn_like(parameter), alpha=alpha)
        if sizes:
            return model
        models.append((len(set(steps(model, SRC, 6))), -seed, model))
        if models[-1][0] > 4:
            break
    return max(models)[-1]  # a model that hardly repeats itself shows most


def steps(model: Model, src: Tensor, count: int, start: int = START) -> list[int]:
    """The likeliest token at each step, everything computed anew."""
    tokens = [start]
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(src, torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[1:]


def search(
    code: Code, model: Model, part: str, src: Tensor, max_len: int, end: int, **more: Any
) -> list[int]:
    """Run a search of the code under test; return the tokens of the first sentence, without start."""
    mask, _ = model.masks(src, src)
    given = {"model": model.module, "src": model.code.flip(src), "src_mask": mask, "max_len": max_len}
    given |= {"start": START, "end": end, "pad": code.pad} | more
    with torch.no_grad():
        result = model.code.with_masks(lambda m: call(code[part], **given | {"src_mask": m}), mask)
    tokens = flat_tokens(result)
    return tokens[1:] if tokens[:1] == [START] else tokens


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


@law("11_search_and_averaging", "greedy_decode", "greedy: likeliest token")
def greedy_takes_the_likeliest(code: Code) -> None:
    """Greedy search takes the likeliest token at each step, with or without a cache."""
    model = searched(code)
    wanted = steps(model, SRC, 7)
    end = next(t for t in range(22, 2, -1) if t not in wanted)
    got = search(code, model, "greedy_decode", SRC, 7, end)
    n = min(len(got), 7)
    if n < 5:
        raise Failure(f"it stops after {n} tokens of 7", f"{got}",
                      "each new token must be appended to those before it: torch.cat")  # fmt: skip
    if got[:n] == wanted[:n]:
        return
    at = next(i for i in range(n) if got[i] != wanted[i])
    mistake = ""
    with torch.no_grad():
        seen = model(SRC, torch.tensor([[START, *wanted[:at]]]))[0]
    if got[at] == int(seen[-1].argmin()):
        mistake = "it takes the least likely token: argmax, not argmin"
    elif at and got[at] == int(seen[0].argmax()):
        mistake = "it reads the prediction at the first position: take the last, [:, -1]"
    elif at and got[at] == steps(model, SRC, 1, start=wanted[at - 1])[0]:
        mistake = "the decoder gets the newest token only: give it all tokens so far, or a cache"
    elif len(set(got[1:])) == 1 and at:
        mistake = "the new token is not appended to what the decoder reads"
    else:
        mistake = (
            "take the last position, [:, -1], of a causal mask's pass; in a cache, positions go on counting"
        )
    raise Failure(f"token {at} is not the likeliest", f"{got}, and should be {wanted[:n]}", mistake)


@law("11_search_and_averaging", "greedy_decode", "greedy: stops")
def greedy_stops(code: Code) -> None:
    """It stops at the end symbol, and never goes beyond max_len."""
    model = searched(code)
    wanted = steps(model, SRC, 9)
    long = search(code, model, "greedy_decode", SRC, 4, NO_END)
    if len(long) > 4:
        raise Failure(
            f"{len(long)} tokens come where max_len is 4", str(long), "count the steps up to max_len"
        )
    if not takes(code["greedy_decode"], "end", "eos"):
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
            rows = model(src.expand(len(every), -1), torch.tensor([[START, *tokens] for tokens in every]))
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
    if score < max(s for t, s in scores.items() if len(t) < 3) - 1e-3:  # start may count in max_len
        mean = {t: s / (len(t) + 1) for t, s in scores.items()}
        mistake = ""
        if tokens == greedy:
            mistake = "it is greedy: all hypotheses of a step must compete by their sums"
        elif tokens == max(mean, key=lambda t: mean[t]):
            if not takes(code["beam_search"], "alpha", "penalty"):
                return
            mistake = "scores are divided by the length although alpha is 0"
        elif tokens == min(scores, key=lambda t: scores[t]):
            mistake = "the worst is returned: sort by falling score"
        raise Failure("exhaustive search finds a better one", f"{tokens} with {score:.3f}; best {best} with "
                      f"{scores[best]:.3f}", mistake)  # fmt: skip


# ---- BLEU (section 6.1)

HYPOTHESES = [
    "the the the cat sat on the mat today",
    "a small dog runs in the green park",
    "he reads it here",
]
REFERENCES = ["the black cat sat on the mat", "a small dog runs through the green park today now",
              "he reads the book here in the evening"]  # fmt: skip


def own_bleu(
    pairs: list[tuple[str, str]],
    clip: bool = True,
    brevity: bool = True,
    geometric: bool = True,
    swap: bool = False,
    ratio: bool = False,
    top: int = 4,
) -> float:
    """BLEU of words between spaces, and what becomes of it with a mistake."""
    precisions = []
    for n in range(1, top + 1):
        right = total = 0
        for pair in pairs:
            a, b = (Counter(zip(*(x.split()[i:] for i in range(n)), strict=False)) for x in pair)
            right += sum((a & b).values()) if clip else sum(k for g, k in a.items() if g in b)
            total += sum(a.values())
        precisions.append(max(right / max(total, 1), 1e-12))
    c, r = (sum(len(pair[i].split()) for pair in pairs) for i in (0, 1))
    mean = math.prod(precisions) ** (1 / top) if geometric else sum(precisions) / top
    penalty = min(1.0, c / r if ratio else math.exp(1 - (c / r if swap else r / c))) if brevity else 1.0
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
    mistake = explain(
        "BLEU: sacreBLEU's number", torch.tensor(got), score=lambda **c: own_bleu(pairs, **c), each=each
    )
    raise Failure("the score is not sacreBLEU's", f"{got:.2f}, and should be {wanted:.2f}", mistake)
