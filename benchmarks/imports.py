"""What does `import annotated` add to `import torch`?

    python benchmarks/imports.py

Fresh processes, in turns: torch alone; then the package; then every public name of it, for it loads its parts
when they are first asked for. Seconds from the interpreter's start to its end.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from report import main, parser, print_table, set_up, write
from timing import compare, in_turns

PACKAGE = "import torch, annotated"
CODE = {
    "import torch": "import torch",
    "import torch, annotated": PACKAGE,
    "and every public name": f"{PACKAGE}; [getattr(annotated, name) for name in annotated.__all__]",
}


def python(code: str) -> None:
    """Run code in a fresh interpreter."""
    subprocess.run([sys.executable, "-c", code], check=True)


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, ("tiny",), rounds=5).parse_args(arguments)
    set_up(options)
    measured = in_turns({name: partial(python, code) for name, code in CODE.items()}, options.rounds)
    alone, *others = CODE
    comparisons = [compare(measured, alone, name) for name in others]
    more = {name: measured[name].median - measured[alone].median for name in others}
    doubt = {c.peer: measured[c.peer].median * (c.doubt - 1) for c in comparisons}
    # That nothing is added is what we hope for: what cannot be told from nothing is reported as such.
    record = write("imports", options, measured, [], over=alone, added_seconds=more, doubt_seconds=doubt)
    rows = [(alone, f"{measured[alone].median:.2f}", f"{measured[alone].spread:.1%}", "")]
    for name in others:
        added = f"{more[name]:+.3f}" if abs(more[name]) > doubt[name] else f"less than {doubt[name]:.3f}"
        rows.append((name, f"{measured[name].median:.2f}", f"{measured[name].spread:.1%}", added))
    print_table(("", "seconds", "spread", "added"), rows)
    return record


if __name__ == "__main__":
    main(run)
