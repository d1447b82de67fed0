"""German inflection: endings by rule, with the exceptions in the lexicon."""

from functools import cache

from tools.grammar.lexicon import Adjective, Determiner, Modal, Noun, Verb

# Rows: nominative, accusative, dative, genitive. Columns: masculine, feminine, neuter, plural. "." is no
# ending.
CASES, GENDERS = ("nom", "acc", "dat", "gen"), ("m", "f", "n", "pl")
STRONG = "er e es e / en e es e / em er em en / en er en er"
WEAK = "e e e en / en e e en / en en en en / en en en en"
MIXED = "er e es en / en e es en / en en en en / en en en en"
DER_WORD = "er e es e / en e es e / em er em en / es er es er"
EIN_WORD = ". e . e / en e . e / em er em en / es er es er"
DEFINITE = "der die das die / den die das die / dem der dem den / des der des der"

# sein, haben, werden and wissen, in the present: ich, du, er, wir, sie.
IRREGULAR = {
    "sein": "bin bist ist sind sind",
    "haben": "habe hast hat haben haben",
    "werden": "werde wirst wird werden werden",
    "wissen": "weiß weißt weiß wissen wissen",
}
INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer")
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}


def _table(text: str) -> dict[tuple[str, str], str]:
    rows = [row.split() for row in text.split("/")]
    return {
        (case, gender): ending.strip(".")
        for case, row in zip(CASES, rows, strict=True)
        for gender, ending in zip(GENDERS, row, strict=True)
    }


ADJECTIVE_ENDINGS = {"strong": _table(STRONG), "weak": _table(WEAK), "mixed": _table(MIXED)}
DETERMINER_ENDINGS = {"der": _table(DER_WORD), "ein": _table(EIN_WORD)}
ARTICLES = _table(DEFINITE)


def determiner_form(determiner: Determiner, case: str, gender: str) -> str:
    """The determiner before a noun of this case and gender ("pl" for every plural)."""
    if determiner.stem == "d":
        return ARTICLES[case, gender]
    if determiner.kind == "none":
        return determiner.stem.replace("_", " ")
    return determiner.stem + DETERMINER_ENDINGS[determiner.kind][case, gender]


def adjective_form(adjective: Adjective, endings: str, case: str, gender: str) -> str:
    """The adjective before a noun, its endings "strong", "weak" or "mixed" as its determiner asks."""
    return adjective.stem + ADJECTIVE_ENDINGS[endings][case, gender]


@cache
def noun_form(noun: Noun, case: str, plural: bool) -> str:
    """The noun in its case: Freund, Freundes, Freunden; weak nouns Student, Studenten."""
    if plural:
        form = noun.german_plural
        return form + "n" if case == "dat" and form[-1] not in "ns" else form
    if noun.weak and case != "nom":
        return noun.german_plural
    if case == "gen" and (noun.gender != "f" or noun.is_name):
        return noun.german + genitive_ending(noun)
    return noun.german


def genitive_ending(noun: Noun) -> str:
    """-es behind a hiss, and d, t, n in one syllable (Kindes, Mannes); -s otherwise (Lehrers, Annas)."""
    syllables = sum(
        letter in "aeiouäöü" and before not in "aeiouäöü"
        for before, letter in zip(" " + noun.german.lower(), noun.german.lower(), strict=False)
    )
    short = (syllables == 1 and noun.german.endswith(("d", "t", "n"))) or noun.german.endswith(
        ("s", "ß", "z")
    )
    return "es" if short and not noun.is_name else "s"


@cache
def present_form(verb: Verb, person: int, plural: bool) -> str:
    """The finite verb in the present, without its prefix: ich lese, du liest, er liest, wir lesen."""
    if verb.german in IRREGULAR:
        return irregular_form(verb.german, person, plural)
    stem = _stem(verb.german)
    if plural:
        return verb.german
    if person == 1:
        return (stem[:-2] + "l" if stem.endswith("el") else stem) + "e"
    third = verb.third or stem + _linking(stem) + "t"
    if person == 3:
        return third
    return third if third[-2] in "sßzx" else third[:-1] + "st"


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _linking(stem: str) -> str:
    """The e of arbeitet, öffnet and regnet, which eases the ending."""
    if stem[-1] in "td" or (stem[-1] in "nm" and stem[-2] not in "aeiouäöülrhnm"):
        return "e"
    return ""


def irregular_form(infinitive: str, person: int, plural: bool) -> str:
    """sein, haben, werden or wissen in the present."""
    place = (3 if person == 1 else 4) if plural else person - 1
    return IRREGULAR[infinitive].split()[place]


def past_form(stem: str, person: int, plural: bool) -> str:
    """The simple past from its ich form: konnte, konntest, konnten; war, warst, waren."""
    weak = stem.endswith("e")
    if plural:
        return stem + ("n" if weak else "en")
    return stem + "st" if person == 2 else stem


def modal_form(modal: Modal, past: bool, person: int, plural: bool) -> str:
    """A modal verb: kann, kannst, können; konnte, konnten. sollte and möchte go like a simple past."""
    if past or modal.singular.endswith("e"):
        return past_form(modal.simple_past if past else modal.singular, person, plural)
    if plural:
        return modal.german
    stem = modal.singular
    return stem if person != 2 else stem + ("t" if stem.endswith("ss") else "st")


@cache
def participle(verb: Verb) -> str:
    """The past participle: gekauft, besucht, repariert, abgeholt, or the one in the lexicon."""
    if verb.participle:
        return verb.participle
    stem = _stem(verb.german)
    ge = "" if verb.german.startswith(INSEPARABLE) else "ge"
    ge = "" if verb.german.endswith("ieren") else ge
    return verb.prefix + ge + stem + _linking(stem) + "t"


def infinitive(verb: Verb, zu: bool = False) -> str:
    """The infinitive with its prefix, with zu inside where there is one: aufmachen, aufzumachen."""
    return verb.prefix + ("zu" if zu else "") + verb.german
