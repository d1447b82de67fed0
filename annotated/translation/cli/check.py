"""The commands `annotated check` and `annotated build`."""

from argparse import Namespace
from pathlib import Path

from annotated.check import Report, run_file, stubs
from annotated.check.grade import grade, grades_as_csv, not_graded
from annotated.check.loading import as_script
from annotated.check.report import junit, printable
from annotated.check.user_code import Code
from annotated.translation.files import check_output


def check(args: Namespace) -> int:
    """Check files, or grade a folder; 1 where a law is broken or not written yet."""
    if bool(args.files) == (args.grade is not None):
        both = ", not both" if args.files else ""
        raise ValueError(f"name a file to check, or a folder with --grade{both}")
    if (args.grade is None) != (args.require is None):
        raise ValueError("--grade and --require go together: name the parts that the submissions must have")
    for path in (*args.files, args.adapter):
        if path is not None:
            path.open("rb").close()  # an OSError tells of a file that cannot be read before any is checked
    submissions = sorted(args.grade.rglob("*.py")) if args.grade is not None else []
    taken = [*args.files, *submissions, args.adapter]
    for output in (args.json, args.junit, args.csv):
        check_output(output, taken)
        taken.append(output)
    reports = []
    if args.grade is not None:
        reports = grade(args.grade, args.require.split(","), args.timeout, args.adapter)
    for report in reports:
        mistake = report.first_mistake()
        result = "passed" if report.passed else "FAILED"
        print(f"{report.name:20}  {result}: {report.summary()}{'; first ' + mistake if mistake else ''}")
    if left_out := {str(path) for file in submissions if (path := not_graded(args.grade, file))}:
        print(f"not graded, as their names begin with _ or a dot: {printable(', '.join(sorted(left_out)))}")
    for file in args.files:
        if len(args.files) > 1:
            print(f"{printable(str(file))}:")
        reports.append(run_file(file, args.adapter))
        print(reports[-1].text(args.verbose))
        if args.hints and (stub := stubs.first_open_stub(reports[-1], file)):
            print(f"\nHints for {stub}:", stubs.hints(stub, args.hints), sep="\n")
        print_translation(reports[-1], file, args.adapter, args.translate)
    text = ", ".join(report.to_json() for report in reports)
    forms = text if len(args.files) == 1 else f"[{text}]", junit(reports), grades_as_csv(reports)
    for path, form in zip((args.json, args.junit, args.csv), forms, strict=True):
        if path is not None:
            path.write_text(form, encoding="utf-8", newline="")
    return 0 if all(report.passed for report in reports) else 1


def print_translation(report: Report, file: Path, adapter: Path | None, text: str | None) -> None:
    """Let a model that keeps its laws translate, with the shipped weights in it; say that it can."""
    order = next((f.message for f in report.findings if f.law == "model: residuals and norms"), "")
    if not stubs.model_is_right(report):
        if text is not None:
            print("\nThe model must keep its laws before the shipped weights are loaded into it.")
    elif text is None and order != "post-norm":
        needed = f"need post-norm with no other norm; this model has {order}"
        print(f"\nThe model and its parts are right. The shipped weights {needed}.")
    elif text is None:
        print('\nThe model and its parts are right. Let it translate: --translate "A dog runs."')
    else:
        from annotated.translation.translator import load_pretrained

        shipped = load_pretrained("multi30k-en-de")
        with as_script(file):
            translation, reference, part = stubs.translate(Code.load(file, adapter), text, shipped)
        print("\nThe shipped weights fit into your classes.", f"  {text}", f"  {translation}", sep="\n")
        same = translation == reference
        print("(as the package's model does)" if same else f"(the package's model writes: {reference})")
        if part:
            print(f"The first part that computes something else than the package's: {part}")


def build(args: Namespace) -> int:
    """Write the stubs of a Transformer to fill in."""
    path = stubs.write_stubs(args.folder)
    print(f"{path}: stubs in the order of the lessons; annotated check {path} says what is open")
    return 0
