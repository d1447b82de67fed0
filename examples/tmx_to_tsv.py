"""Make a table of a translation memory (TMX): a line for each unit that has both languages.

python examples/tmx_to_tsv.py memory.tmx en de > pairs.tsv
"""

import csv
import sys
from xml.etree import ElementTree

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def read_units(path, src, tgt):
    """Yield source and target of each unit, without the tags in them."""
    for _, unit in ElementTree.iterparse(path):
        if unit.tag == "tu":
            text = {}
            for side in unit.findall("tuv"):
                language = (side.get(LANGUAGE) or side.get("lang", "")).lower()
                text[language.partition("-")[0]] = "".join(side.find("seg").itertext())
            if src in text and tgt in text:
                yield " ".join(text[src].split()), " ".join(text[tgt].split())
            unit.clear()  # a memory may be larger than this machine's


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows(read_units(*sys.argv[1:]))
