"""Is my Transformer right? Laws that any implementation keeps, whoever wrote it.

from annotated import check
check.attention(my_attention)      # one part: a report that a notebook shows as a table
check.run(my_module)               # all parts that are found
@pytest.mark.parametrize("law", check.cases(my_module))      # each law a test: law()

The files, in the order in which they are best read:

law, laws/          what a law is, and the laws themselves
user_code           finding the parts in anyone's code, and calling them; names.toml has the names
loading             executing a file as Python would
models              a model of the code under test, or a small one to search with
tracing             recording the calls of modules, attention weights and dropout in a pass
residual_stream     following the vectors from sub-layer to sub-layer
toy_search          beam search in a tree whose best text is known, right and wrong
assertions          comparing tensors; the failure that a law raises
mistakes            the likely mistake behind a failure; mistakes.toml has those that follow from its words
report              findings as text, HTML, JSON and JUnit XML
stubs               `annotated build`: stubs.txt as a file to fill in, and hints
grade               a folder of submissions, each checked by two processes:
judge, worker       the one that holds to the laws what the other, which executes the submission, answers
protocol, sandbox   what these two say to each other, and what the worker may read and write
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from annotated.check.assertions import Failure
from annotated.check.law import SECONDS, Law, TimeUp, blame_causes, crash, guard, raised_in
from annotated.check.laws import LAWS
from annotated.check.loading import as_script
from annotated.check.report import Finding, Report
from annotated.check.user_code import CONVENTIONS, PARTS, Code, Names, Source

__all__ = ["LAWS", "Code", "Failure", "Finding", "Law", "Report", "cases", "run", "run_file", *PARTS]

MAKE_MASKS = {"causal mask", "batch: masks"}
TAKE_MASKS = {"attention: mask", "heads: mask", "model: source padding", "model: no peeking"}


def run(source: Source, adapter: Names | None = None, seconds: float = SECONDS, name: str = "") -> Report:
    """Hold code to every law.

    Args:
        source: a module, or a dictionary of names, that has some parts of a Transformer.
        adapter: names that win over the source's, and conventions, such as `TRUE_HIDES = True`,
            `BATCH_FIRST = False`, `MASK_DIMS = 4`, `PAD = 1`, `NOT_APPLICABLE = {"name of a law": "why"}`.
        seconds: time for each law.
        name: what the report is of.
    """
    return Report(hold(Code.of(source, adapter), seconds), name or getattr(source, "__name__", ""))


def hold(code: Code, seconds: float) -> tuple[Finding, ...]:
    """Hold code to every law.

    If what makes masks and what takes them agree that True means hidden, the laws are applied that way.
    """
    findings = {law.name: law(code, seconds) for law in LAWS}
    failed = {name for name, finding in findings.items() if finding.status == "failed"}
    if not code.true_hides and failed & MAKE_MASKS and failed & TAKE_MASKS:
        inverted = replace(code, true_hides=True)
        again = {law.name: law(inverted, seconds) for law in LAWS}
        if not any(again[name].status == "failed" for name in MAKE_MASKS | TAKE_MASKS):
            maker = next(name for name in again if name in failed & MAKE_MASKS)
            findings = again | {maker: replace(again[maker], message="True means hidden in these masks")}
    return tuple(blame_causes([*findings.values()]))


def run_file(path: str | Path, adapter: str | Path | None = None, seconds: float = SECONDS) -> Report:
    """Hold a file to every law. One that cannot be executed has one finding: why.

    The adapter is a file that defines names and conventions; in it, `mine` is the module under test.
    """
    file, others = Path(path), Path(adapter) if adapter else None

    def load() -> Code:
        with guard(seconds):
            return Code.load(file, others)

    with as_script(file), as_script(others or file):
        return Report(hold_loaded(load, others, seconds), file.stem)


def hold_loaded(load: Callable[[], Code], adapter: Path | None, seconds: float) -> tuple[Finding, ...]:
    """Load code and hold it to every law, or tell why it cannot be loaded."""
    try:
        code = load()
    except (Exception, SystemExit, TimeUp) as error:
        file = "adapter" if adapter and raised_in(error) == str(adapter) else "file"
        return (Finding("file", f"The {file} can be executed.", "", "failed", **crash(error)),)
    return hold(code, seconds)


def cases(source: Source, adapter: Names | None = None) -> list[Callable[[], None]]:
    """Return a case for each law, for `pytest.mark.parametrize`: call it, and it raises or skips."""
    code = Code.of(source, adapter)

    def case(law: Law) -> Callable[[], None]:
        def test() -> None:
            finding = law(code)
            if finding.status == "not applicable":
                import pytest

                pytest.skip(finding.message)
            if finding.status != "passed":  # no assert, which `python -O` leaves out
                raise AssertionError(f"\n{Report((finding,))}")

        test.__name__ = law.name
        return test

    return [case(law) for law in LAWS]


# ---- one part


def __getattr__(part: str) -> Callable[..., Report]:
    """Return the function that holds one part to its laws: `attention`, or any other of PARTS."""
    if part not in PARTS:
        raise AttributeError(f"module 'annotated.check' has no attribute {part!r}")

    def check(candidate: Any, **others: Any) -> Report:
        conventions = {k.upper(): v for k, v in others.items() if k in CONVENTIONS}
        names = {PARTS[k][0]: v for k, v in ({part: candidate} | others).items() if k in PARTS}
        code = Code.of({}, names | conventions)  # as an adapter: PyTorch's own parts count, too
        findings = blame_causes([law(code) for law in LAWS if law.part == part])
        return Report(tuple(findings), getattr(candidate, "__name__", part))

    check.__name__ = part
    check.__doc__ = f"Hold a {PARTS[part][0]} to its laws; others of its parts and conventions by name."
    return check


def __dir__() -> list[str]:
    return __all__
