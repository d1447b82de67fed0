"""Write pairs for two small tasks, to try the command on: dates in several forms, and numbers in words.

python examples/make_pairs.py dates 6000 > dates.tsv        "3 March 1998" -> "1998-03-03"
python examples/make_pairs.py numbers 6000 > numbers.tsv    "four hundred and two" -> "4 0 2"
"""

import random
import sys
from datetime import date, timedelta

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
ONES += ["twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
FORMS = ("{d} %B %Y", "%B {d}, %Y", "%d.%m.%Y", "%m/%d/%y", "%a {d} %b %Y", "the {d} of %B %Y", "{d}-%b-%y")


def dates(draw: random.Random) -> tuple[str, str]:
    """Return a date as somebody may write it, and in the form of ISO 8601."""
    day = date(1970, 1, 1) + timedelta(days=draw.randrange(30_000))
    written = day.strftime(draw.choice(FORMS).format(d=day.day))
    return draw.choice([written, written.lower(), written.upper()]), day.isoformat()


def in_words(n: int) -> str:
    """Return a number below a million in English words."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    size, name = (1000, "thousand") if n >= 1000 else (100, "hundred")
    rest = f" {'and ' if n % size < 100 else ''}{in_words(n % size)}" if n % size else ""
    return f"{in_words(n // size)} {name}{rest}"


def numbers(draw: random.Random) -> tuple[str, str]:
    """Return a number in words, and its digits, each a token."""
    n = draw.randrange(10 ** draw.randint(1, 6))
    return in_words(n).replace("-", " "), " ".join(str(n))


if __name__ == "__main__":
    task, count = {"dates": dates, "numbers": numbers}[sys.argv[1]], int(sys.argv[2])
    draw = random.Random(0)
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        source, target = task(draw)
        pairs.setdefault(source, target)
    print(*(f"{source}\t{target}" for source, target in pairs.items()), sep="\n")
