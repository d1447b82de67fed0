"""Faults that learners make are found, and named at the first law that they break."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from annotated import check
from annotated.check import law as law_module
from annotated.check.law import Law, blame_causes
from annotated.check.loading import as_script, load
from annotated.check.mistakes import BY_MESSAGE, MISTAKES, explain
from annotated.check.user_code import PARTS, Code, plain

HERE = Path(__file__).parent
FAULTS = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
VARIANTS = tomllib.loads((HERE / "variants.toml").read_text(encoding="utf-8"))
LAWS = {law.name: law for law in check.LAWS}
# What a law calls besides its own part: searches need a model, and a model may scale its embeddings.
ALSO = dict.fromkeys(("greedy_decode", "beam_search", "embeddings"), ("make_model",))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with as_script(tmp_path / "changed.py"):
        yield tmp_path


def changed(folder: Path, file: str, *changes: list[str]) -> tuple[Path, list[Law]]:
    """Write the right file with each old text replaced by a new one. Return it, and the laws of what changed.

    The other laws call only what the right file has, too, in which they are kept.
    """
    right = source = (HERE / "right" / f"{file}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source, f"{old!r} is not in {file}.py"
        source = source.replace(old, new)
    path = folder / "changed.py"
    path.write_text(source, encoding="utf-8")
    return path, [law for law in check.LAWS if reached(source, law.part) & changed_names(right, source)]


@cache
def definitions(source: str) -> dict[str, tuple[str, set[str]]]:
    """Return the statements of a file by what they define, or else by their text: text, and names in it."""
    found, lines = {}, source.splitlines()
    for node in ast.parse(source).body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        found[getattr(node, "name", text)] = text, {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
    return found


def changed_names(right: str, source: str) -> set[str]:
    before, after = ({name: text for name, (text, _) in definitions(x).items()} for x in (right, source))
    return {name for name, text in before.items() ^ after.items()}


@cache
def reached(source: str, part: str) -> set[str]:
    """Return what is defined, directly or not, that a part of a file uses, and what defines nothing."""
    used = {name: names for name, (_, names) in definitions(source).items()}
    wanted = {plain(name) for one in (part, *ALSO.get(part, ())) for name in PARTS[one]}
    found, left = set[str](), {name for name in used if plain(name) in wanted or not name.isidentifier()}
    while left:
        found |= left
        left = set.union(*(used[name] for name in left)) & used.keys() - found
    return found


def faulty(folder: Path, file: str, name: str) -> tuple[Code, list[Law]]:
    fault = FAULTS[file][name]
    also = fault.get("also", [])
    changes = [fault, *(also if isinstance(also, list) else [also])]
    path, laws = changed(folder, file, *([c["old"], c["new"]] for c in changes))
    return Code.load(path), laws


def cases(table: dict[str, dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("file", "name"), [(file, name) for file in table for name in table[file]])


@cases(VARIANTS)
def test_an_unusual_but_right_part_raises_no_alarm(file: str, name: str, folder: Path) -> None:
    path, laws = changed(folder, file, *VARIANTS[file][name])
    code = Code.load(path)
    report = check.Report(tuple(law(code) for law in laws))
    assert report.passed, str(report)


@cases(FAULTS)
def test_the_first_law_that_a_fault_breaks_names_it(file: str, name: str, folder: Path) -> None:
    fault, (code, laws) = FAULTS[file][name], faulty(folder, file, name)
    findings = (law(code, seconds=5) for law in laws)
    first = next((f for f in findings if f.status == "failed"), None)
    assert first is not None
    assert first.law == fault["law"], first
    assert fault["mistake"] in first.mistake


def finds_nothing(model, src, src_mask, max_len, start_symbol, end_symbol, beam=4, alpha=0.6):
    return []


WITH_A_SEARCH = sorted(path for path in (HERE / "right").glob("*.py") if path.stem != "decoder_alone")
SEARCHES = [law for law in check.LAWS if law.part in ("greedy_decode", "beam_search")]


@pytest.mark.parametrize("path", WITH_A_SEARCH, ids=lambda path: path.stem)
def test_a_search_that_finds_nothing_fails_with_every_model(path: Path) -> None:
    code = Code.of(load(path), {"greedy_decode": finds_nothing, "beam_search": finds_nothing})
    assert {law(code).status for law in SEARCHES} == {"failed"}


def test_a_cause_is_told_and_what_follows_says_so(folder: Path) -> None:
    code, laws = faulty(folder, "classic", "no scale")
    report = check.Report(tuple(blame_causes([law(code) for law in laws[:8]])))
    [cause, *others] = report.of("failed")
    assert others
    assert "sqrt(d_k) is missing" in cause.mistake
    assert {(f.mistake, f.follows) for f in others} == {("", cause.law)}
    assert report.first_mistake() == f"{cause.law}: {cause.mistake}"
    assert str(report).count("Likely mistake") == 1


def test_a_mask_does_not_follow_from_dropout() -> None:
    failed = ["attention: dropout", "attention: mask", "heads: mask"]
    findings = [check.report.Finding(name, "a law", "", "failed", message="wrong") for name in failed]
    report = check.Report(tuple(blame_causes(findings)))
    assert [f.follows for f in report.findings] == ["", "", "attention: mask"]
    assert report.first_mistake() == "attention: mask: wrong"


EXACT = {
    "attention: equation 1": "no scale",
    "attention: mask": "mask inverted",
    "heads: equation": "split by view",
    "feed-forward: equation 2": "no ReLU",
    "layer norm: each vector alone": "norm by the variance",
    "positions: formula": "angle grows",
    "rate: equation 3": "schedule with max",
    "causal mask": "causal mask inverted",
    "BLEU: sacreBLEU's number": "BLEU without clipping",
}


@pytest.mark.parametrize("law", EXACT)
def test_what_a_mistake_would_give_is_named_as_this_mistake(
    law: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    told: list[SimpleNamespace] = []
    monkeypatch.setattr(
        law_module, "explain", lambda law, message, **evidence: told.append(SimpleNamespace(**evidence))
    )
    file = next(file for file, faults in FAULTS.items() if EXACT[law] in faults)
    LAWS[law](faulty(folder, file, EXACT[law])[0])
    [facts], tried = told, 0
    for mistake, predicate in MISTAKES[law].items():
        try:
            would_be = torch.as_tensor(predicate(facts))
        except (AttributeError, RuntimeError):
            continue  # it goes by other facts, or by other shapes
        if would_be.dtype != torch.bool:
            named = explain(law, "", **vars(facts) | {"got": would_be})
            alike = torch.as_tensor(
                MISTAKES[law][named](facts)
            )  # two mistakes may give the same numbers here
            assert named == mistake or torch.allclose(alike, would_be), named
            tried += 1
    assert tried > 2


def test_each_law_with_mistakes_is_a_law() -> None:
    assert MISTAKES.keys() <= LAWS.keys()


def test_what_has_a_usual_mistake_is_what_a_law_says() -> None:
    paths = Path(inspect.getfile(check)).parent.rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.name != "mistakes.py")
    said = re.findall(r"\"([^\"\n]{9,})\"", text)
    said = [re.sub(r"\{[^}]*\}", "{}", text) for text in said]
    forms = [re.escape(text).replace(r"\{\}", ".*") for text in said if len(text.replace("{}", "")) > 9]
    for seen in BY_MESSAGE["laws"]:
        assert any(seen in text for text in said) or any(re.fullmatch(form, seen) for form in forms), seen
