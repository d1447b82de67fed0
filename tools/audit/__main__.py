"""Clone public implementations, hold them to the laws of `annotated check`, and write a page of the site.

python -m tools.audit        # minutes, and needs a network: into build/audit and tools/site/pages/audit.md
"""

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tools.audit import clone_of

PAGE = Path("tools/site/pages/audit.md")
SIGNS = {"passed": "✓", "failed": "✗", "not applicable": "·"}
ADAPTERS = [Path("tests/check/right/torch_parts.py"), *sorted(Path("tools/audit").glob("[a-z]*.py"))]


def constants(adapter: Path) -> dict[str, str]:
    """Read REPOSITORY, COMMIT and the like of an adapter, without executing it."""
    assignments = [
        node for node in ast.parse(adapter.read_text("utf-8")).body if isinstance(node, ast.Assign)
    ]
    named = [(n.targets[0].id, n.value) for n in assignments if isinstance(n.targets[0], ast.Name)]
    return {name: value.value for name, value in named if isinstance(value, ast.Constant)}


def fetch(adapter: Path, about: dict[str, str]) -> None:
    """Get the code that an adapter is for: a commit of a repository, or packages."""
    folder = clone_of(str(adapter))
    if "REPOSITORY" in about and not folder.exists():
        git = ["git", "-C", str(folder)]
        clone = ["git", "clone", "-q", "--filter=blob:none", "--no-checkout", about["REPOSITORY"]]
        subprocess.run([*clone, str(folder)], check=True)
        subprocess.run([*git, "checkout", "-q", about["COMMIT"], "--", about.get("FOLDER", ".")], check=True)
    site = folder.with_name(f"{folder.name}_site")
    if "NEEDS" in about and not site.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
        subprocess.run([*pip, *about["NEEDS"].split()], check=True)


def audit(adapter: Path, about: dict[str, str]) -> dict[str, str]:
    """Return the status of each law, and print what failed."""
    clone = clone_of(str(adapter))
    report = clone.with_suffix(".json")
    folders = [clone / about.get("FOLDER", "."), Path.cwd(), clone.with_name(f"{clone.name}_site")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-m", "annotated", "check", str(adapter), "--json", str(report)]
    subprocess.run(command, env=environment, capture_output=True)
    findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
    for f in findings:
        if f["status"] == "failed":
            print(f"  {f['law']}: {f['message']} {f['example']}\n    {f['mistake']}{f['traceback']}")
    return {f["law"]: f["status"] for f in findings}


def name_and_version(adapter: Path, about: dict[str, str]) -> tuple[str, str]:
    """Return what is audited, with its address, and which version of it."""
    name = (ast.get_docstring(ast.parse(adapter.read_text("utf-8"))) or "").partition(":")[0].rstrip(".")
    if "REPOSITORY" not in about:
        package = about.get("PACKAGE", "torch")
        return name, about.get("VERSION") or version(package)
    return f"[{name}]({about['REPOSITORY']})", f"`{about['COMMIT'][:7]}`"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    clone_of("x").parent.mkdir(parents=True, exist_ok=True)
    rows, columns = [], []
    for number, adapter in enumerate(ADAPTERS, start=1):
        print(adapter.stem)
        about = constants(adapter)
        fetch(adapter, about)
        columns.append(audit(adapter, about))
        counts = [str([*columns[-1].values()].count(status)) for status in SIGNS]
        rows.append([str(number), *name_and_version(adapter, about), *counts])
    laws = [[law, *(SIGNS[column[law]] for column in columns)] for law in columns[0]]
    tables = {
        "implementations": table(
            ["", "implementation", "version", "passed", "failed", "does not apply"], rows
        ),
        "laws": table(["law", *(row[0] for row in rows)], laws),
    }
    text = PAGE.read_text(encoding="utf-8")
    for what, rewritten in tables.items():
        begin, end = f"<!-- {what} -->", f"<!-- end of {what} -->"
        text = text[: text.index(begin) + len(begin)] + f"\n\n{rewritten}\n\n" + text[text.index(end) :]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
