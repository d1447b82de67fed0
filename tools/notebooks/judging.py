"""Judge one answer to an exercise, in this process: `grade.py` calls it apart, the tests in one of theirs."""

import builtins
from collections.abc import Iterator
from types import ModuleType

import torch

from exercises import Exercise, tested

RIGHT, UNWRITTEN = "right", "not yet written"


def judge_answer(head: str, parts: list[str], answer: str) -> str:
    """Execute a notebook's head, then judge an answer to the exercise with these parts."""
    start: dict[str, object] = {"__name__": "__main__"}
    exec(head, start)
    return judge(start, Exercise(*parts), answer)


def judge(start: dict[str, object], exercise: Exercise, answer: str) -> str:
    """Return what an exercise's test says of an answer: RIGHT, UNWRITTEN, or what is wrong.

    The test is the exercise's own, and knows no name that the answer has defined: it gets what the answer has
    defined under the stub's names. An answer that changes the functions of the test's modules is not right.
    """
    ours = dict(start)
    exec(exercise.stub + exercise.test, ours)
    name, wanted = tested(exercise.test)
    test, mine, before = ours[name], dict(ours), dict(functions(ours))
    try:
        exec(answer, mine)
        test(*(mine[each] for each in wanted))
    except NotImplementedError as error:
        return " ".join([UNWRITTEN, *map(str, error.args)])
    except AssertionError as error:
        return f"wrong: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    after = dict(functions(ours))
    changed = [place for place, was in before.items() if after.get(place) != was]
    return f"changes what the test uses: {', '.join(changed)}" if changed else RIGHT


def functions(names: dict[str, object]) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    """The functions of Python, of tensors, and of the modules among some names: place, and whose each is."""
    for owner in (builtins, torch.Tensor, *(each for each in names.values() if isinstance(each, ModuleType))):
        for name, value in list(vars(owner).items()):
            if callable(value):  # PyTorch wraps some of its own anew when it loads more of itself
                whose = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
                yield f"{owner.__name__}.{name}", whose
