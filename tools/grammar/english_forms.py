"""English inflection: plurals, -s, -ing, to be, a and an."""

from tools.grammar.lexicon import Noun, doubled

SOUNDS_LIKE_A_CONSONANT = ("uni", "use", "eu", "one")


def noun_form(noun: Noun, plural: bool) -> str:
    """The noun: woman, women; wedding, weddings."""
    if not plural:
        return noun.english
    return noun.english_plural or noun.english[: -len(noun.english.split()[-1])] + with_s(
        noun.english.split()[-1]
    )


def with_s(word: str) -> str:
    """A regular plural, or a verb's third person: dogs, glasses, cities, watches, goes."""
    if word.endswith(("s", "sh", "ch", "x", "z")) or word in ("go", "do"):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def third_person(base: str) -> str:
    """The present with he, she or it."""
    return "has" if base == "have" else with_s(base)


def with_ing(base: str) -> str:
    """The present participle: buying, baking, lying, planning."""
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return doubled(base) + "ing"


def to_be(past: bool, person: int, plural: bool) -> str:
    """am, are, is; was, were."""
    if past:
        return "were" if plural or person == 2 else "was"
    if plural or person == 2:
        return "are"
    return "am" if person == 1 else "is"


def article(following: str) -> str:
    """a, or an before a vowel that is heard: an umbrella, a university."""
    vowel = following[0] in "aeiou" and not following.startswith(SOUNDS_LIKE_A_CONSONANT)
    return "an" if vowel else "a"
