"""What does `import annotated` add to `import torch`?

    python benchmarks/imports.py

Fresh processes, in turns: torch alone; then the package; then every public name of it, for it loads its parts
when they are first asked for. Seconds from the interpreter's start to its end.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from statistics import median

from report import main, parser, print_table, set_up, write
from timing import in_turns, interval

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
    more = {
        name: [mine - base for mine, base in zip(measured[name].turns, measured[alone].turns, strict=True)]
        for name in others
    }
    added = {name: median(each) for name, each in more.items()}
    bounds = {name: interval(each) for name, each in more.items()}
    record = write("imports", options, measured, [], over=alone, added_seconds=added, bounds=bounds)
    rows = [(alone, f"{measured[alone].median:.2f}", f"{measured[alone].spread:.1%}", "")]
    for name in others:
        found = f"{added[name]:+.3f}"
        if bounds[name]:
            found += " ({:+.3f} to {:+.3f})".format(*bounds[name])
        rows.append((name, f"{measured[name].median:.2f}", f"{measured[name].spread:.1%}", found))
    print_table(("", "seconds", "spread", "added"), rows)
    return record


if __name__ == "__main__":
    main(run)
