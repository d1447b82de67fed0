"""Judge one answer to an exercise, in this process: `grade.py` calls it apart, the tests in one of theirs."""

import ast
import builtins
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from unittest.mock import MagicMock

import torch
from IPython.core.inputtransformer2 import TransformerManager

from exercises import Exercise, tested

RIGHT, UNWRITTEN = "right", "not yet written"
ELSEWHERE = """if the notebook defines it elsewhere, define it below the exercise, because of the rest of
the notebook, grading knows imports, functions, classes and plain constants"""


def judge_answer(job: str) -> str:
    """Judge what a JSON text holds: a notebook's definitions, the parts of an exercise, an answer."""
    definitions, parts, answer = json.loads(job)
    return judge(define(definitions), Exercise(*parts), answer)


def define(definitions: str) -> dict[str, object]:
    """Return what a notebook's definitions define, but for those that need what the notebook computes."""
    start: dict[str, object] = {"__name__": "__main__", "get_ipython": MagicMock()}
    for statement in ast.parse(definitions).body:
        with suppress(NameError, ImportError):
            exec(ast.unparse(statement), start)
    return start


def judge(start: dict[str, object], exercise: Exercise, answer: str) -> str:
    """Return what an exercise's test says of an answer: RIGHT, UNWRITTEN, or what is wrong.

    The test is the exercise's own, and knows no name that the answer has defined: it gets what the answer has
    defined under the stub's names. An answer that changes what the test calls is not right.
    """
    ours = dict(start)
    exec(exercise.stub + exercise.test, ours)
    name, wanted = tested(exercise.test)
    test, mine, before = ours[name], dict(ours), dict(called(ours))
    try:
        exec(TransformerManager().transform_cell(answer), mine)  # with `%` and `!`, which then do nothing
        test(*(mine[each] for each in wanted))
    except NotImplementedError as error:
        return " ".join([UNWRITTEN, *map(str, error.args)])
    except AssertionError as error:
        return f"wrong: {error}"
    except NameError as error:
        return f"{type(error).__name__}: {error}; {ELSEWHERE}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    after = dict(called(ours))
    # A new name counts in a class, where it may hide an inherited one, and in a module of this package, where
    # it may hide one that the module brings when asked; other modules load more of themselves.
    owners = {owner for owner, _ in before if owner.startswith("annotated.")}
    known = [place for place in after if place in before or place[0] not in sys.modules or place[0] in owners]
    changed = sorted(".".join(place).strip(".") for place in known if after[place] != before.get(place))
    return f"changes what the test calls: {', '.join(changed)}" if changed else RIGHT


def called(names: dict[str, object]) -> Iterator[tuple[tuple[str, str], object]]:
    """What a test with these names may call, by owner and name: Python's own, PyTorch's, this package's."""
    package = [module for name, module in sys.modules.items() if name.partition(".")[0] == "annotated"]
    classes = [each for module in package for each in vars(module).values() if isinstance(each, type)]
    modules = [each for each in names.values() if isinstance(each, ModuleType)]
    yield from ((("", name), id(value)) for name, value in names.items())
    for owner in (builtins, torch.Tensor, *package, *classes, *modules):
        for name, value in list(vars(owner).items()):
            if callable(value) or isinstance(value, property):
                # By name, as PyTorch wraps some of its own anew when it loads more of itself.
                whose = getattr(value, "__module__", None), getattr(value, "__qualname__", id(value))
                yield (owner.__name__, name), whose
