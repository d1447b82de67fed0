"""Laws of searches (lesson 11), and of the score of what they find (lesson 10)."""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.adapt import Code, Missing, Model, call, first, takes
from annotated.check.law import Failure, expect, law
from annotated.check.tracing import spied

SRC, START, NO_END = torch.tensor([[5, 6, 7, 8, 9]]), 3, 22  # 22 is the end where none should come
LESSON = "11_search_and_averaging"


def draw_model(code: Code, seed: int, **sizes: int) -> Model:
    """Draw a model of random weights: the code's own, or the package's where it has none."""
    try:
        code["make_model"]
    except Missing:
        from annotated.transformer.model import make_model

        if code.true_hides or not code.batch_first or code.mask_dims != 3:
            raise Missing("needs a `make_model` of these conventions") from None
        code = Code({**code.names} | {"make_model": make_model})
    model = code.model(shake=0.0, **sizes)
    model.pad = -1  # what a search has written is never padding
    for module in model.modules(nn.Linear):  # not the last token again: the next
        if module.out_features == model.vocab:
            module.register_forward_hook(lambda *called: called[-1].roll(1, -1))
    torch.manual_seed(seed)
    of_tokens, of_layers = [(1.0, 0.1), (1.0, 0.5), (0.3, 1.0)][seed % 3]  # which serves depends on the code
    for parameter in model.module.parameters():
        if parameter.dim() > 1:  # large biases would let one token win everywhere
            alpha = of_tokens if model.vocab in parameter.shape else of_layers
            parameter.add_(torch.randn_like(parameter), alpha=alpha)
    return model


@lru_cache(maxsize=1)
def searched(code: Code) -> Model:
    """Find a model that hardly repeats itself, which shows most. Raises Missing if none is found."""
    models = []
    for seed in range(90):
        model = draw_model(code, seed)
        models.append((len(set(steps(model, 6))), -seed, model))
        if max(models)[0] > (4 if seed < 14 else 2):
            return max(models)[-1]
    raise Missing("no model was found that writes more than two different tokens")


def steps(model: Model, count: int, src: Tensor = SRC, start: int = START) -> list[int]:
    """The likeliest token at each step, everything computed anew."""
    tokens = [start]
    for _ in range(count):
        tokens.append(int(model(src, torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[1:]


def until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def search(model: Model, function: Any, src: Tensor, max_len: int, end: int, **more: Any) -> list[int]:
    """Run a search of the code under test; return the tokens of the first sentence, without start."""
    code, mask = model.code, model.masks(src, src)["src_mask"]
    given = {"model": model.module, "src": code.flip(src), "src_mask": mask, "max_len": max_len}
    tokens = flat_tokens(code.call(function, **given, start=START, end=end, pad=code.pad, **more))
    return tokens[1:] if tokens[:1] == [START] else tokens


def is_unmasked(weights: list[Tensor], model: Model) -> bool:
    """Tell whether tokens saw later ones in a search of SRC, and would not have with a target mask."""
    with spied() as masked:
        model(SRC, torch.tensor([[START, 5, 6]]))

    def see_later(weights: list[Tensor]) -> bool:
        square = (w for w in weights if w.dim() > 2 and w.size(-1) == w.size(-2) != SRC.size(1))
        return any((w.triu(1) > 1e-6).any() for w in square)

    return see_later(weights) and not see_later(masked)


def flat_tokens(result: Any) -> list[int]:
    """The first sequence of tokens in what a search returns, whatever it is wrapped in."""
    result = getattr(result, "tokens", result)
    if isinstance(result, Tensor):
        result = result.tolist()
    if isinstance(result, list | tuple) and result:
        numbers = all(isinstance(t, int) or (isinstance(t, Tensor) and t.dim() == 0) for t in result)
        return [int(t) for t in result] if numbers else flat_tokens(result[0])
    return []


@law(LESSON, "greedy_decode", "greedy: likeliest token")
def greedy_takes_the_likeliest(code: Code) -> None:
    """Greedy search takes the likeliest token at each step, with or without a cache."""
    function, model = code["greedy_decode"], searched(code)
    wanted = steps(model, 7)
    end = next(t for t in range(22, 2, -1) if t not in wanted)
    with spied() as weights:
        got = search(model, function, SRC, 7, end)[:7]
    expect(len(got) > 4, f"it stops after {len(got)} tokens of 7", str(got))
    unmasked = is_unmasked(weights, model)
    for at, token in enumerate(got):
        facts = {"got": got, "at": at, "token": token, "unmasked": unmasked}
        facts["seen"] = model(SRC, torch.tensor([[START, *wanted[:at]]]))[0]
        facts["newest"] = steps(model, 1, start=wanted[at - 1])[0]
        example = f"{got}, and should be {wanted[: len(got)]}"
        expect(token == wanted[at], f"token {at} is not the likeliest", example, **facts)
    expect(not unmasked, "while it searches, tokens see later ones")


@law(LESSON, "greedy_decode", "greedy: stops")
def greedy_stops(code: Code) -> None:
    """It stops at the end symbol, and never goes beyond max_len."""
    function, model = code["greedy_decode"], searched(code)
    wanted = steps(model, 9)
    long = search(model, function, SRC, 4, NO_END)
    expect(0 < len(long) <= 4, f"{len(long)} tokens come where max_len is 4", str(long))
    if not takes(function, "end", "eos"):
        return
    at = next((i for i in range(1, 9) if wanted[i] not in wanted[:i]), 1)
    got = search(model, function, SRC, 9, wanted[at])
    rest = [t for t in got[at + 1 :] if t not in (wanted[at], code.pad)]
    expect(not rest, "it goes on after the end symbol", f"{got}, the end is {wanted[at]}")


@law(LESSON, "beam_search", "beam: one is greedy")
def beam_of_one(code: Code) -> None:
    """A beam of one is greedy search."""
    function, model = code["beam_search"], searched(code)
    wanted = steps(model, 6)
    end = wanted[next((i for i in range(2, 6) if wanted[i] not in wanted[:i]), 5)]
    wanted = until(wanted, end)
    with spied() as weights:
        got = until(search(model, function, SRC, 20, end, beam=1, alpha=0.0), end)
    unmasked, example = is_unmasked(weights, model), f"{got}, and should be {wanted}"
    expect(got == wanted, "a beam of one differs from greedy search", example, unmasked=unmasked)
    expect(not unmasked, "while it searches, tokens see later ones")


@law(LESSON, "beam_search", "beam: exact search")
def beam_against_exact(code: Code) -> str | None:
    """A beam wide enough to keep everything finds the best translation there is."""
    function, src, end = code["beam_search"], torch.tensor([[3, 4, 3]]), 2
    every = [*itertools.product((0, 1, 3, 4), repeat=3)]  # and their beginnings, by causality
    for seed in range(300):
        model = draw_model(code, seed, src_vocab=5, tgt_vocab=5, N=1)
        rows = model(src.expand(len(every), -1), torch.tensor([[START, *tokens] for tokens in every]))
        scores = {
            tokens[:n]: float(sum(row[i, t] for i, t in enumerate((*tokens[:n], end))))
            for tokens, row in zip(every, rows, strict=True)
            for n in range(4)
        }
        best, greedy = max(scores, key=scores.__getitem__), tuple(until(steps(model, 4, src), end))
        by_mean = max(scores, key=lambda tokens: scores[tokens] / (len(tokens) + 1))
        others = max(scores[()], scores.get(greedy, -math.inf))  # what a search without a beam may find
        plain = best[:1] == by_mean[:1] == (4,) and not {0, 1} & set(best)  # no special token
        if plain and len(best) < 3 and scores[best] > others + 0.01:  # the start may count in max_len
            break
    else:
        raise Missing("no model was found whose best translation greedy search misses")
    found = tuple(until(search(model, function, src, 4, end, beam=64, alpha=0.0), end))
    score = scores.get(found, -math.inf)
    if found == by_mean != greedy and not takes(function, "alpha", "penalty"):
        return None
    example = f"{found} with {score:.3f}; best {best} with {scores[best]:.3f}"
    worst = min(scores, key=scores.__getitem__)
    facts = {"found": found, "greedy": greedy, "by_mean": by_mean, "worst": worst}
    expect(score > scores[best] - 1e-3, "exhaustive search finds a better one", example, **facts)
    if takes(function, "alpha"):
        longest = tuple(until(search(model, function, src, 4, end, beam=64, alpha=9.0), end))
        if longest == found:
            return "alpha changes nothing, where 9 should make the longest the best"
    return None


# ---- BLEU (section 6.1)

PAIRS = {
    "the the the cat sat on the mat today": "the black cat sat on the mat",
    "a small dog runs in the green park": "a small dog runs through the green park today now",
    "he reads it here": "he reads the book here in the evening",
}


def scores_of(code: Code) -> tuple[float, float]:
    """Score identical texts, and PAIRS, in the form of a call in which identical texts score best.

    The forms are lists of words or texts, with a list of references or a reference for each. A text is also a
    list of characters, so that a wrong form need not raise an error.
    """
    texts, references = [*PAIRS], [*PAIRS.values()]
    forms: list[Callable[[list[str], list[str]], tuple[Any, Any]]] = [
        lambda h, r: ([x.split() for x in h], [x.split() for x in r]),
        lambda h, r: ([x.split() for x in h], [[x.split()] for x in r]),
        lambda h, r: (h, [r]),
        lambda h, r: (h, r),
    ]

    def score(hypotheses: Any, references: Any) -> float:
        result = call(code["bleu"], hypotheses=hypotheses, references=references)
        return float(first(getattr(result, "value", getattr(result, "score", result))))

    found, problems = [], []
    for form in forms:
        try:
            found.append((score(*form(references, references)), score(*form(texts, references))))
        except NotImplementedError:
            raise
        except Exception as error:
            problems.append(error)
    if not found:
        raise problems[-1]
    return max(found, key=lambda scores: round(scores[0], 3))


@law("10_translation", "bleu", "BLEU: sacreBLEU's number")
def bleu(code: Code) -> str | None:
    """BLEU of a corpus is what sacreBLEU says, from 0 to 100 or from 0 to 1."""
    from sacrebleu.metrics import BLEU

    sacrebleu = BLEU(tokenize="none", smooth_method="none")
    same, got = scores_of(code)
    unit = 100.0 if 0.99 < same < 1.01 else 1.0
    got *= unit
    right = sacrebleu.corpus_score([*PAIRS], [[*PAIRS.values()]])
    if abs(got - right.score) < 0.05 and abs(same * unit - 100) < 0.05:
        return "from 0 to 1" if unit == 100 else None
    facts: dict[str, Any] = {"mean": lambda p: p.log().mean().exp(), "p": torch.tensor(right.precisions)}
    facts |= {"penalty": right.bp, "r": right.ref_len / right.sys_len, "got": got}
    often = [" | ".join([reference] * 9) for reference in PAIRS.values()]  # so that no count is clipped
    facts["unclipped"] = torch.tensor(sacrebleu.corpus_score([*PAIRS], [often]).precisions)
    facts["each"] = [sacrebleu.corpus_score([h], [[r]]).score for h, r in PAIRS.items()]
    raise Failure("the score is not sacreBLEU's", f"{got:.2f}, and should be {right.score:.2f}", **facts)
