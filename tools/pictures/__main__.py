"""Draw *a cat runs* into images/cat_*.svg, and put each drawing's words into the lessons that show it.

    python -m tools.pictures            write the drawings and their alternative texts
    python -m tools.pictures --check    write nothing; tell which would change, exit code 1 if any

`make images` renders the drawings as PNG afterwards.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

from .drawings import DRAWINGS, Numbers
from .tiny import read_numbers

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(r"^# !\[[^\]]*\]\(\.\./images/(cat_\w+)\.svg\)", re.MULTILINE)


def make(numbers: Numbers) -> dict[Path, str]:
    """Return what each drawing, and each lesson in English that shows one, should contain."""
    sheets = {name: draw(numbers) for name, draw in DRAWINGS.items()}

    def with_words(match: re.Match[str]) -> str:
        shown = f"![{sheets[match[1]].words}](../images/{match[1]}.svg)"
        lines = textwrap.wrap(shown, 108, break_long_words=False, break_on_hyphens=False)
        return "\n".join(f"# {line}" for line in lines)

    files = {ROOT / f"images/{name}.svg": sheet.svg() for name, sheet in sheets.items()}
    lessons = (ROOT / "notebooks").glob("[0-9][0-9]_*.py")
    return files | {path: SHOWN.sub(with_words, path.read_text(encoding="utf-8")) for path in lessons}


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the sentence a cat runs.")
    parser.add_argument("--check", action="store_true", help="write nothing; tell what would change")
    check = parser.parse_args().check
    files = make(read_numbers())
    changed = [
        path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in changed:
        if not check:
            path.write_text(files[path], encoding="utf-8", newline="\n")
        print(path.relative_to(ROOT), file=sys.stderr)
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
