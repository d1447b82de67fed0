"""Laws of searches (lesson 11): what they find in a small model, of which everything is known."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from annotated.check.assertions import Failure, as_plain, expect
from annotated.check.law import law
from annotated.check.laws.model import known_padding
from annotated.check.models import END, START, Model, randomize_scores, searchable
from annotated.check.toy_search import WRONG_RULES, Rules, Tree, find, finds
from annotated.check.tracing import collect_weights
from annotated.check.user_code import Code, NotApplicable, takes, takes_all

SRC, NO_END = torch.tensor([[5, 6, 7, 8, 9]]), 22  # 22: where no end should come
TREE_SRC = torch.tensor([[5, 6, 5]])
LESSON = "11_search"
# A wrong search may have these tastes, too.
TASTES: list[dict[str, Any]] = [{"long": True}, {"patience": True}, {"refill": True}]
TASTES += [{"long": True, "patience": True, "unlike": unlike} for unlike in (False, True)]
AFTER = "model: ", "causal mask", "heads: ", "attention: ", "generator: "


def build_model(code: Code, **sizes: float) -> Model:
    """Build a model, the code's own or a stand-in, whose scores are as good as drawn: texts compete."""
    model = Model.of(searchable(code), shake=0.0, **{"src_vocab": 23, "tgt_vocab": 23, **sizes})
    randomize_scores(model.module, model.vocab, code.worker)
    model.first_weights = [p.detach().clone() for p in model.module.parameters()]
    return model


def draw(model: Model, seed: int) -> Model:
    """Draw the weights of a model anew."""
    torch.manual_seed(seed)
    for parameter, start in zip(model.module.parameters(), model.first_weights, strict=True):
        if parameter.dim() > 1:
            parameter.copy_(start).add_(torch.randn_like(parameter), alpha=0.3)
    return model


@lru_cache(maxsize=1)
def searched(code: Code) -> Model:
    """Find a model that hardly repeats itself, which shows most. Raises NotApplicable if none is found."""
    model, ranks = build_model(code), []
    for seed in range(90):
        tokens = steps(draw(model, seed), 6)
        ranks.append((len(set(tokens)) - 3 * (code.pad in tokens), -seed))
        if max(ranks)[0] > (4 if seed < 14 else 2):
            return draw(model, -max(ranks)[1])
    raise NotApplicable("no model was found that writes more than two different tokens")


def steps(model: Model, count: int, src: Tensor = SRC, start: int = START) -> list[int]:
    """The likeliest token at each step, everything computed anew; what was written is never padding."""
    tokens = [start]
    for _ in range(count):
        tokens.append(int(written(model, src, torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[1:]


def written(model: Model, src: Tensor, tgt: Tensor) -> Tensor:
    """Log-probabilities of what comes after each token of a text that has no padding."""
    model = Model(model.code, model.module, model.vocab, -1)
    return model(src, tgt)


def until(tokens: Sequence[int], end: int) -> list[int]:
    return list(itertools.takewhile(lambda t: t != end, tokens))


def without_start(tokens: list[int]) -> list[int]:
    return tokens[1:] if tokens[:1] == [START] else tokens


def search(model: Model, function: Any, src: Tensor, max_len: int, end: int, **more: Any) -> list[list[int]]:
    """Run a search of the code under test; return the tokens of each sentence."""
    code, mask = model.code, model.masks(src, src)["src_mask"]
    values = {"model": model.module, "src": code.flip(src), "src_mask": mask, "max_len": max_len}
    result = code.call(function, **values, start=START, end=end, pad=code.pad, **more)
    result = as_plain(getattr(result, "tokens", result))
    lengths_first = isinstance(result, Tensor) and result.dim() == 2 and not code.batch_first
    return rows_of_tokens(result.T if lengths_first and len(src) == result.size(1) else result)


def rows_of_tokens(result: Any) -> list[list[int]]:
    """The sequences of tokens in what a search returns, whatever they are wrapped in."""
    result = getattr(result, "tokens", result)
    result = result.tolist() if isinstance(result, Tensor) else result
    if not isinstance(result, list | tuple) or not result:
        return [[]]
    if all(isinstance(t, int) or (isinstance(t, Tensor) and t.dim() == 0) for t in result):
        return [[int(t) for t in result]]
    if isinstance(result, tuple) or not all(isinstance(x, list | tuple | Tensor) for x in result):
        return rows_of_tokens(result[0])
    return [row for x in result for row in rows_of_tokens(x)[:1]]


def sentence(model: Model, function: Any, src: Tensor, max_len: int, end: int, **more: Any) -> list[int]:
    """What a search finds for one sentence, without start and end."""
    return until(without_start(search(model, function, src, max_len, end, **more)[0]), end)


def first_new(tokens: list[int], begin: int, end: int) -> int:
    """Return the first token from a place on that was not there before, or the last: an end to stop at."""
    return next((tokens[i] for i in range(begin, end) if tokens[i] not in tokens[:i]), tokens[end - 1])


def remark_on_eval(code: Code, function: Any, **more: Any) -> str:
    """Say so if a search leaves dropout on in a model that comes from training."""
    model = build_model(code, dropout=0.5)
    model.module.train()
    found = []
    with suppress(Exception):
        for seed in range(2):
            torch.manual_seed(seed)
            found.append(search(model, function, SRC, 7, NO_END, **more))
        if found[0] != found[1]:
            return "it does not call model.eval(): after training, it searches with dropout"
    return ""


def is_unmasked(weights: list[Tensor], model: Model) -> bool:
    """Tell whether weights of a search fall on later tokens, and with a causal mask would not."""
    with collect_weights() as masked:
        written(model, SRC, torch.tensor([[START, 5, 6]]))

    def see_later(weights: list[Tensor]) -> bool:
        square = (w for w in weights if w.dim() > 2 and w.size(-1) == w.size(-2) != SRC.size(1))
        return any((w.triu(1) > 1e-6).any() for w in square)

    return see_later(weights) and not see_later(masked)


@law(LESSON, "greedy_decode", "greedy: likeliest token", *AFTER)
def greedy_takes_the_likeliest(code: Code) -> str:
    """Greedy search takes the likeliest token at each step, with or without a cache."""
    function, model = code.find("greedy_decode"), searched(code)
    expected = steps(model, 7)
    end = next(t for t in range(22, 2, -1) if t not in expected)
    with collect_weights() as weights:
        [whole, *_] = search(model, function, SRC, 7, end)
    got = without_start(whole)[:7]
    again = without_start(search(model, function, SRC, 7, end)[0])[:7]
    expect(got == again, "the same sentence gives two translations", f"{got}, then {again}")
    expect(len(got) > 4, f"it stops after {len(got)} tokens of 7", str(got))
    unmasked = is_unmasked(weights, model)
    at = next((at for at, token in enumerate(got) if token != expected[at]), None)
    if at is not None:
        evidence: dict[str, Any] = {"got": got, "at": at, "token": got[at], "unmasked": unmasked}
        evidence["log_probs"] = written(model, SRC, torch.tensor([[START, *expected[:at]]]))[0]
        keys = [w.size(-1) for w in weights[-4:] if w.size(-2) == 1 and w.size(-1) != SRC.size(1)]
        evidence["keys"] = max(keys, default=0)  # in the last step with a cache
        evidence["read"] = len(got)
        evidence["newest"] = steps(model, 1, start=expected[at - 1])[0]
        begins = ((t, steps(model, 3, start=t)) for t in range(model.vocab))
        evidence["starts"] = [t for t, text in begins if got[:3] == text or got[:4] == [t, *text]]
        example = f"{got}, and should be {expected[: len(got)]}"
        raise Failure(f"token {at} is not the likeliest", example, **evidence)
    expect(not unmasked, "while it searches, tokens see later ones")
    with_start = whole[:1] == [START] or not (code.stubs or takes(function, "start_symbol"))
    expect(with_start, "what it returns does not begin with the start symbol", str(whole))
    return remark_on_eval(code, function)


@law(LESSON, "greedy_decode", "greedy: stops", *AFTER, "greedy: l")
def greedy_stops(code: Code) -> None:
    """It stops at the end symbol, and never goes beyond max_len."""
    function, model = code.find("greedy_decode"), searched(code)
    expected = steps(model, 9)
    long = without_start(search(model, function, SRC, 4, NO_END)[0])
    expect(0 < len(long) <= 4, f"{len(long)} tokens come where max_len is 4", str(long))
    if takes(function, "end", "eos"):
        end = first_new(expected, 1, 9)
        got = without_start(search(model, function, SRC, 9, end)[0])
        rest = [t for t in got[len(until(got, end)) :] if t not in (end, code.pad)]
        expect(not rest, "it goes on after the end symbol", f"{got}, the end is {end}")


@law(LESSON, "greedy_decode", "greedy: padding and batches", *AFTER, "greedy: ")
def greedy_of_batches(code: Code) -> str:
    """A sentence is translated alike alone, with padding, and in a batch, in which each ends by itself."""
    return of_batches(code, searched(code), code.find("greedy_decode"))


def of_batches(code: Code, model: Model, function: Any, **more: Any) -> str:
    short, padded = (torch.tensor([[5, 6, 7, *[code.pad] * n]]) for n in (0, 2))
    end = first_new(steps(model, 6, short), 1, 6)
    expected = [until(steps(model, 6, src), end)[:5] for src in (short, SRC)]
    alone, hidden = (sentence(model, function, src, 6, end=end, **more)[:5] for src in (short, padded))
    expect(alone == expected[0], "other tokens than the likeliest are found", f"{alone}, not {expected[0]}")
    example = f"{hidden}, and without padding {alone}"
    with known_padding(code):
        expect(alone == hidden, "padding of the source changes what is found", example)
    rows: list[list[int]] = []
    with suppress(Exception):
        rows = search(model, function, torch.cat([padded, SRC]), 6, end, **more)
    if len(rows) != 2:
        return "takes one sentence at a time"
    got = [until(without_start(row), end)[:5] for row in rows]
    expect(got == expected, "a sentence is translated otherwise in a batch", f"{got}, and alone {expected}")
    return ""


@law(LESSON, "beam_search", "beam: one is greedy", *AFTER, "greedy: l")
def beam_of_one(code: Code) -> str:
    """A beam of one is greedy search."""
    function, model, one = code.find("beam_search"), searched(code), {"beam": 1, "alpha": 0.0}
    expected = steps(model, 6)
    end = first_new(expected, 2, 6)
    expected = until(expected, end)
    with collect_weights() as weights:
        got = sentence(model, function, SRC, 20, end=end, **one)
    unmasked = is_unmasked(weights, model)
    if got != expected:
        starts = [t for t in range(model.vocab) if until(steps(model, 6, start=t), end) == got]
        evidence: dict[str, Any] = {"unmasked": unmasked, "starts": starts}
        example = f"{got}, and should be {expected}"
        raise Failure("a beam of one differs from greedy search", example, **evidence)
    expect(not unmasked, "while it searches, tokens see later ones")
    of_batches(code, model, function, **one)
    return remark_on_eval(code, function, **one)


@law(LESSON, "beam_search", "beam: finds the best", *AFTER, "greedy: l", "beam: one")
def beam_against_the_tree(code: Code) -> None:
    """A beam finds the text of the largest sum of log-probabilities, over ((5 + length) / 6) ** alpha."""
    function = code.find("beam_search")
    model = build_model(code, src_vocab=7, tgt_vocab=7, N=1)
    trees, runs = 0, 0
    explained = Counter[str]()  # by mistake, how many runs it explains
    cached, example = False, ""
    for tree, width, alpha in telling_trees(model, takes_all(function, "alpha", "beam")):
        trees += 1
        settings, right = {"beam": width, "alpha": alpha}, tree.right(width, alpha)
        got = tuple(sentence(model, function, TREE_SRC, 4, end=END, **settings))
        if example or got not in right:  # from the first mistake on, count the rules that explain a find
            runs += 1
            for mistake, changes in WRONG_RULES.items():
                wrong = replace(Rules(width, alpha), **changes)
                tastes = [replace(wrong, **taste) for taste in TASTES]
                explained[mistake] += bool({got, (START, *got)} & finds(tree, wrong, *tastes))
        if got not in right and not example:
            with collect_weights() as weights:
                sentence(model, function, TREE_SRC, 4, end=END, **settings)
            cached = bool(weights) and weights[-1].size(-2) == 1
            expected = " or ".join(f"{text} with {tree.score(text, alpha):.3f}" for text in sorted(right))
            example = f"beam {width}, alpha {alpha:g}: {got}, and should be {expected}"
    most = max(explained.values(), default=0)
    mistakes = [mistake for mistake in WRONG_RULES if explained[mistake] == most > 0.8 * runs]
    mistakes += ["a cache does not follow its hypotheses: reorder it as they are, cache[parents]"] * cached
    expect(not example, "the beam finds something else", example, mistake=next(iter(mistakes), ""))
    if not trees:
        raise NotApplicable("no model was found whose best translation greedy search misses")


def telling_trees(model: Model, with_alpha: bool) -> Iterator[tuple[Tree, int, float]]:
    """Draw models until their trees tell all wrong rules from right ones: tree, width of the beam, alpha."""
    settings = [(width, 0.0) for width in (2, 3, 4, 16)] + [(4, 8.0), (16, 8.0)] * with_alpha
    count = Counter[tuple[int, float]]()
    told_apart = set[str]()
    for seed in range(40):
        draw(model, seed)
        tree = Tree.of(lambda tgt: written(model, TREE_SRC.expand(len(tgt), -1), tgt), 7, 4, START, END)
        for width, alpha in settings:
            plain = Rules(width) if alpha else Rules(width=1)
            if find(tree, plain) == find(tree, Rules(width, alpha)):  # most trees tell little
                continue
            right = tree.right(width, alpha)
            wrong = {x: find(tree, replace(Rules(width, alpha), **y)) for x, y in WRONG_RULES.items()}
            new = {mistake for mistake, text in wrong.items() if text not in right} - told_apart
            special = any(not text or {0, 1, END, START} & {*text} for text in right)
            if not special and find(tree, plain) not in right and (count[width, alpha] != 2 or new):
                count[width, alpha] += 1
                told_apart |= new
                yield tree, width, alpha
        if len(told_apart) == len(WRONG_RULES) and min(count[x] for x in settings) > 1:
            return
