"""Judge one answer to an exercise, in this process: `grade.py` calls it apart, the tests in one of theirs."""

import builtins
from types import ModuleType

import torch

from exercises import Exercise, tested

RIGHT, UNWRITTEN = "right", "not yet written"


def judge_answer(head: str, parts: list[str], answer: str) -> str:
    """Execute a notebook's head and an exercise, then judge an answer."""
    start: dict[str, object] = {"__name__": "__main__"}
    exec(head, start)
    return judge(start, Exercise(*parts), answer)


def judge(start: dict[str, object], exercise: Exercise, answer: str) -> str:
    """Return what an exercise's test says of an answer: RIGHT, UNWRITTEN, or what is wrong.

    The test is the exercise's own. It runs where the answer has defined nothing, on what the answer has
    defined under the stub's names.
    """
    ours = dict(start)
    exec(exercise.stub + exercise.test, ours)
    name, wanted = tested(exercise.test)
    test = ours[name]
    modules = [builtins, torch.Tensor, *(each for each in ours.values() if isinstance(each, ModuleType))]
    before = [(module, dict(vars(module))) for module in modules]
    mine = dict(ours)
    try:
        exec(answer, mine)
        test(*(mine[name] for name in wanted))
    except NotImplementedError as error:
        return " ".join([UNWRITTEN, *map(str, error.args)])
    except AssertionError as error:
        return f"wrong: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    changed = [
        name for module, were in before for name, value in were.items() if vars(module).get(name) is not value
    ]
    return f"changes what the test uses: {', '.join(changed)}" if changed else RIGHT
