"""Normalise text before it is tokenised: in corpora, in what is translated, and in what is scored."""

import unicodedata
from typing import Literal

Form = Literal["NFC", "NFKC"]

# Control characters go, except those that `str.split` counts as white space. U+200B, U+2060 and U+FEFF are
# spaces without width, which it does not know.
_INVISIBLE: dict[int, str | None] = {i: None for i in (*range(32), *range(127, 160)) if not chr(i).isspace()}
_INVISIBLE |= dict.fromkeys((0x200B, 0x2060, 0xFEFF), " ")


def normalize(text: str, form: Form = "NFC") -> str:
    """Return text in one Unicode form, with one plain space between words and none around them.

    White space of every kind (line ends, tabs, no-break and zero-width spaces, byte order marks) counts as a
    space, control characters are removed, and text without a visible character becomes "". A second call
    changes nothing. `form` is "NFC", or "NFKC", which also replaces ligatures, full-width letters and the
    like with plain ones.
    """
    text = " ".join(unicodedata.normalize(form, text.translate(_INVISIBLE)).split())
    # Joiners and direction marks belong to words of some languages, but alone they say nothing.
    return text if any(unicodedata.category(c) not in ("Cf", "Zs") for c in text) else ""
