"""Faults that learners make are found, and most are named."""

import ast
import builtins
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from annotated import check
from annotated.check.adapt import Code, load
from annotated.check.law import MISTAKES, Law

HERE = Path(__file__).parent
FAULTS = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
LAWS = {law.name: law for law in check.LAWS}
CASES = [(file, name) for file, faults in FAULTS.items() for name in faults]


VARIANTS = tomllib.loads((HERE / "variants.toml").read_text(encoding="utf-8"))


def changed(file: str, *changes: list[str]) -> ModuleType:
    """The right file with each old text replaced by a new one."""
    source = (HERE / "right" / f"{file}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source, f"{old!r} is not in {file}.py"
        source = source.replace(old, new)
    module = ModuleType("changed")
    exec(compile(source, f"{file}.py", "exec"), vars(module))
    return module


def faulty(file: str, name: str) -> ModuleType:
    fault = FAULTS[file][name]
    return changed(file, *([c["old"], c["new"]] for c in (fault, fault.get("also")) if c))


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, these in VARIANTS.items() for name in these]
)
def test_an_unusual_but_right_part_raises_no_alarm(file: str, name: str) -> None:
    report = check.run(changed(file, *VARIANTS[file][name]))
    assert report.passed, str(report)


@pytest.mark.parametrize(("file", "name"), CASES)
def test_fault_is_found_and_named(file: str, name: str) -> None:
    fault = FAULTS[file][name]
    finding = LAWS[fault["law"]](Code.of(faulty(file, name)), seconds=5)
    assert finding.status == "failed"
    assert fault["mistake"] in finding.mistake


def finds_nothing(model, src, src_mask, max_len, start_symbol, end_symbol, beam=4, alpha=0.6):
    return []


WITH_A_SEARCH = sorted(path for path in (HERE / "right").glob("*.py") if path.stem != "decoder_alone")
SEARCHES = [law for law in check.LAWS if law.part in ("greedy_decode", "beam_search")]


@pytest.mark.parametrize("law", SEARCHES, ids=lambda law: law.name)
@pytest.mark.parametrize("path", WITH_A_SEARCH, ids=lambda path: path.stem)
def test_a_search_that_finds_nothing_fails_with_every_model(path: Path, law: Law) -> None:
    code = Code.of(load(path), {"greedy_decode": finds_nothing, "beam_search": finds_nothing})
    finding = law(code)
    assert finding.status == "failed"
    assert law(code) == finding


def test_a_length_penalty_that_does_nothing_is_remarked() -> None:
    law, penalty = LAWS["beam: exact search"], "((5 + len(tokens) - 1) / 6) ** alpha"
    assert law(Code.of(changed("lessons"))).seen == ""
    without = law(Code.of(changed("lessons", [penalty, "1"])))
    assert (without.status, without.seen[:21]) == ("passed", "alpha changes nothing")


def test_the_report_trusts_the_first_failed_law() -> None:
    report = check.make_model(faulty("classic", "cross-attention to itself").make_model)
    assert "memory" in report.first_mistake()
    assert f"Trust the first failed law ({report.first_mistake()})" in str(report)
    inverted = faulty("classic", "causal mask inverted")
    parts = {"subsequent_mask": inverted.subsequent_mask, "greedy_decode": inverted.greedy_decode}
    assert check.run(parts).first_mistake().startswith("causal mask: the mask is inverted")


@pytest.mark.parametrize("table", sorted(MISTAKES.keys() - {"seen"}))
def test_expressions_of_mistakes_name_what_their_law_knows(table: str) -> None:
    source = inspect.getsource(inspect.getmodule(LAWS[table].holds))
    given = re.findall(r"(\w+)=|\"(\w+)\"[]:]", source)
    known = {name for names in given for name in names} | {"torch", "math", "softmax", "close", "got"}
    for expression in MISTAKES[table].values():
        used = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
        assert used <= known | set(dir(builtins))


def test_what_has_a_usual_mistake_is_what_a_law_says() -> None:
    paths = Path(inspect.getfile(check)).parent.rglob("*.py")
    said = re.findall(r"\"([^\"\n]{12,})\"", "".join(path.read_text(encoding="utf-8") for path in paths))
    said = [re.sub(r"\{[^}]*\}", "{}", text) for text in said]
    forms = [re.escape(text).replace(r"\{\}", ".*") for text in said if len(text.replace("{}", "")) > 12]
    pytorch = re.compile(r"selected index k out of range|.*must match the size of tensor b")
    for seen in [seen for seen in MISTAKES["seen"] if not pytorch.match(seen)]:
        assert any(seen in text for text in said) or any(re.fullmatch(form, seen) for form in forms), seen
