"""Make a table of a translation memory (TMX): a line for each unit that has both languages.

python examples/tmx_to_tsv.py memory.tmx en de > pairs.tsv

en finds en-US and en_GB, too; of several in a unit, the first is taken. en-US finds nothing else.
"""

import csv
import sys
from xml.etree import ElementTree

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


CODES = {"bpt", "ept", "ph", "it", "ut"}  # elements whose content is another program's code


def read_units(path, src, tgt):
    """Yield source and target of each unit, without the codes in them. Raises ValueError if there is none."""
    src, tgt = map(normalize, (src, tgt))
    languages, found = {}, False
    for _, unit in ElementTree.iterparse(path):
        unit.tag = unit.tag.rpartition("}")[2]  # without a namespace, which some tools write
        if unit.tag == "tu":
            segments = {}
            for side in unit.findall("tuv[seg]"):
                language = normalize(side.get(LANGUAGE) or side.get("lang", ""))
                for name in (language, language.partition("-")[0]):
                    segments.setdefault(name, side.find("seg"))
                languages[language] = None
            pair = segments.get(src), segments.get(tgt)
            if None not in pair and pair[0] is not pair[1]:
                found = True
                yield tuple(" ".join(text_of(segment).split()) for segment in pair)
            unit.clear()  # a memory may be larger than this machine's
    if not found:
        names = ", ".join(languages) or "none"
        raise ValueError(f"no unit in both {src} and {tgt}; its languages: {names}")


def normalize(language):
    """Return the code of a language as it is compared: en-us for en_US."""
    return language.lower().replace("_", "-")


def text_of(element):
    """Return an element's text without the codes in it."""
    inner = "" if element.tag in CODES else (element.text or "") + "".join(map(text_of, element))
    return inner + (element.tail or "")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        csv.writer(sys.stdout, delimiter="\t", lineterminator="\n").writerows(read_units(*sys.argv[1:]))
    except OSError as error:
        sys.exit(str(error))
    except (ValueError, LookupError, ElementTree.ParseError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
