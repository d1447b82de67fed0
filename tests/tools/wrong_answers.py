"""The wrong answers of wrong_answers.toml, and the right ones, as code that defines what the stub defines."""

import ast
import tomllib
from pathlib import Path
from typing import NamedTuple

from exercises import Exercise, tested


class Wrong(NamedTuple):
    """One wrong answer: its code, or what it has in the place of what the solution has."""

    fault: str
    says: str
    code: str = ""
    old: str = ""
    new: str = ""


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WRONG = {
    (name, int(number)): [Wrong(**each) for each in answers]
    for name, numbers in TABLE.items()
    for number, answers in numbers.items()
}


def right_answer(exercise: Exercise) -> str:
    """The solution under the learner's name, with the imports above it."""
    (name,) = tested(exercise.test)[1]
    parts = [
        ast.get_source_segment(exercise.solution, node) or ""
        for node in ast.parse(exercise.solution).body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    ]
    code = "\n".join(parts)
    return code.replace("def solution(", f"def {name}(").replace(
        "Solution", name
    )  # helpers are SolutionLayer ...


def wrong_answer(exercise: Exercise, wrong: Wrong) -> str:
    """A wrong answer's code. Raises ValueError where `old` does not stand in the solution exactly once."""
    if wrong.code:
        return wrong.code
    right = right_answer(exercise)
    if right.count(wrong.old) != 1:
        raise ValueError(f"{wrong.fault}: the solution holds {wrong.old!r} {right.count(wrong.old)} times")
    return right.replace(wrong.old, wrong.new)
