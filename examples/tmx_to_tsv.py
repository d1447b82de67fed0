"""Make a table of a translation memory (TMX): a line for each unit that has both languages.

python examples/tmx_to_tsv.py memory.tmx en de > pairs.tsv

en finds en-US and en-GB, too; of several in a unit, the first is taken. en-US finds nothing else.
"""

import csv
import sys
from xml.etree import ElementTree

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


CODES = {"bpt", "ept", "ph", "it", "ut"}  # elements whose content is another program's code


def read_units(path, src, tgt):
    """Yield source and target of each unit, without the codes in them. Raises ValueError if there is none."""
    languages, found = {}, False
    for _, unit in ElementTree.iterparse(path):
        if unit.tag == "tu":
            text = {}
            for side in unit.findall("tuv"):
                language = (side.get(LANGUAGE) or side.get("lang", "")).lower()
                for name in dict.fromkeys((language, language.partition("-")[0])):
                    text.setdefault(name, " ".join(text_of(side.find("seg")).split()))
                languages[language] = None
            if src.lower() in text and tgt.lower() in text:
                found = True
                yield text[src.lower()], text[tgt.lower()]
            unit.clear()  # a memory may be larger than this machine's
    if not found:
        raise ValueError(f"{path} has no unit in {src} and {tgt}; its languages: {', '.join(languages)}")


def text_of(element):
    """Return an element's text without the codes in it."""
    inner = "" if element.tag in CODES else (element.text or "") + "".join(map(text_of, element))
    return inner + (element.tail or "")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows(read_units(*sys.argv[1:]))
    except (ValueError, OSError, ElementTree.ParseError) as error:
        sys.exit(str(error))
