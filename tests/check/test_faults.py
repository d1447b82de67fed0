"""Faults that learners make are found, and named at the first law that they break."""

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo  # what first looks into modules loads it, which is no time of a law

from annotated import check
from annotated.check import law as law_module
from annotated.check.adapt import Code
from annotated.check.law import Law, blame_causes
from annotated.check.loading import as_script, load
from annotated.check.mistakes import MISTAKES, SEEN, explain

HERE = Path(__file__).parent
FAULTS = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
LAWS = {law.name: law for law in check.LAWS}
CASES = [(file, name) for file, faults in FAULTS.items() for name in faults]


VARIANTS = tomllib.loads((HERE / "variants.toml").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with as_script(tmp_path / "changed.py"):
        yield tmp_path


def changed(folder: Path, file: str, *changes: list[str]) -> Path:
    """Write the right file with each old text replaced by a new one."""
    source = (HERE / "right" / f"{file}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source, f"{old!r} is not in {file}.py"
        source = source.replace(old, new)
    path = folder / "changed.py"
    path.write_text(source, encoding="utf-8")
    return path


def faulty(folder: Path, file: str, name: str) -> Code:
    fault = FAULTS[file][name]
    also = fault.get("also", [])
    changes = [fault, *(also if isinstance(also, list) else [also])]
    return Code.load(changed(folder, file, *([c["old"], c["new"]] for c in changes)))


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, these in VARIANTS.items() for name in these]
)
def test_an_unusual_but_right_part_raises_no_alarm(file: str, name: str, folder: Path) -> None:
    report = check.run_file(changed(folder, file, *VARIANTS[file][name]))
    assert report.passed, str(report)


@pytest.mark.parametrize(("file", "name"), CASES)
def test_the_first_law_that_a_fault_breaks_names_it(file: str, name: str, folder: Path) -> None:
    fault, code = FAULTS[file][name], faulty(folder, file, name)
    findings = (law(code, seconds=5) for law in check.LAWS)
    first = next((f for f in findings if f.status == "failed"), None)
    assert first is not None
    assert first.law == fault["law"], first
    assert fault["mistake"] in first.mistake


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


def test_a_cause_is_told_and_what_follows_says_so(folder: Path) -> None:
    report = check.Report(
        tuple(blame_causes([law(faulty(folder, "classic", "no scale")) for law in check.LAWS[:8]]))
    )
    [cause, *others] = report.of("failed")
    assert others
    assert "sqrt(d_k) is missing" in cause.mistake
    assert {(f.mistake, f.follows) for f in others} == {("", cause.law)}
    assert report.first_mistake() == f"{cause.law}: {cause.mistake}"
    assert str(report).count("Likely mistake") == 1


def facts_of(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> dict[str, SimpleNamespace]:
    """Return the facts with which each law is explained that a fault breaks."""
    told: dict[str, SimpleNamespace] = {}

    def remember(law: str, seen: str, /, **facts: object) -> str:
        told.setdefault(law, SimpleNamespace(**facts))
        return ""

    monkeypatch.setattr(law_module, "explain", remember)
    monkeypatch.setattr("annotated.check.laws.parts.explain", remember)
    code = faulty(folder, *next(case for case in CASES if case[1] == name))
    for law in check.LAWS:
        law(code, seconds=5)
    return told


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
    facts = facts_of(monkeypatch, folder, EXACT[law])[law]
    monkeypatch.undo()
    tried = 0
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
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.name != "seen.py")
    said = re.findall(r"\"([^\"\n]{9,})\"", text)
    said = [re.sub(r"\{[^}]*\}", "{}", text) for text in said]
    forms = [re.escape(text).replace(r"\{\}", ".*") for text in said if len(text.replace("{}", "")) > 9]
    pytorch = re.compile(
        r"selected index k out of range|.*must match the size of tensor b|index out of range"
    )
    for seen in [seen for seen in SEEN if not pytorch.match(seen)]:
        assert any(seen in text for text in said) or any(re.fullmatch(form, seen) for form in forms), seen
