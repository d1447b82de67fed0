"""Train a translator on sentence pairs from wherever you have them, in one call.

    python examples/train_on_pairs.py mine.tsv runs/mine

A line of the file is source<TAB>target. Pairs that are in memory need no file; see `annotated.train`:

    annotated.train(zip(frame["en"], frame["de"]), "runs/mine")                 # a frame of pandas
    annotated.train(((r["en"], r["de"]) for r in data["translation"]), "runs/mine")          # datasets
"""

import csv
import sys

import annotated


def main(path: str, out: str, **settings: object) -> annotated.Translator:
    """Train on the file, which any iterable of pairs could stand for, and translate one of its sentences."""
    with open(path, encoding="utf-8", newline="") as file:
        pairs = [tuple(row[:2]) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    translate = annotated.train(pairs, out, **settings)
    print(pairs[-1][0], "->", translate(pairs[-1][0]))
    return translate


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
