"""How many different sentences there are, at least: counted from the tables, none of them drawn."""

from functools import cache

from tools.grammar import words
from tools.grammar.lexicon import PLAIN_VERBS, Noun, Verb, rows
from tools.grammar.phrases import PRONOUNS, adjectives_for, determiners_for, nouns_for


def count_sentences() -> int:
    """A lower bound of the number of different sentences.

    It counts one kind alone: statements in the past whose verb takes an object, without names, owners, modal
    verbs, circumstances of place, questions or subordinate clauses; each with no time or one of those in the
    tables, in front or behind.
    """
    return sum(_past_statements(verb) for verb in PLAIN_VERBS)


def _past_statements(verb: Verb) -> int:
    if [complement.slot for complement in verb.complements] != ["object"]:
        return 0
    subjects = phrases_for(verb.subjects, "subject") + (len(PRONOUNS) if "person" in verb.subjects else 0)
    # A subject and an object are never the same noun: at least all but the largest noun's phrases remain.
    objects = phrases_for(verb.complements[0].tags, "object")
    objects -= max(phrases_of(noun, "object") for noun in nouns_for(verb.complements[0].tags))
    times = 0 if "state" in verb.flags else len(list(rows(words.PAST_TIMES)))
    return subjects * objects * (1 + 2 * times)


@cache
def phrases_for(tags: tuple[str, ...], role: str) -> int:
    """How many noun phrases, without owners and relative clauses, the nouns with these tags make."""
    return sum(phrases_of(noun, role) for noun in nouns_for(tags))


def phrases_of(noun: Noun, role: str) -> int:
    """The noun in singular and plural, with each determiner, without an adjective or with one that fits."""
    numbers = (False,) if noun.german_plural is None else (False, True)
    determiners = sum(len(determiners_for(noun, plural, role)) for plural in numbers)
    return determiners * (1 + len(adjectives_for(noun)))
