"""Verbs grouped by the sentences that they can stand in."""

from tools.grammar import phrases
from tools.grammar.lexicon import PLAIN_VERBS, Verb

PEOPLE = ("person",)


def full_name(verb: Verb) -> str:
    return f"{verb.prefix}+{verb.german}" if verb.prefix else verb.german


def takes(verb: Verb, slot: str) -> tuple[str, ...]:
    """The classes that the verb takes in this slot, none if it takes nothing there."""
    return next((complement.tags for complement in verb.complements if complement.slot == slot), ())


def _about_things(verb: Verb) -> bool:
    """People do it, and not to people or animals: so who does it is plain whatever the endings."""
    tags = {tag for complement in verb.complements for tag in complement.tags if complement.slot == "object"}
    living = {tag for noun in phrases.nouns_for(("person", "animal")) for tag in noun.tags}
    return "person" in verb.subjects and not tags & living


THING_VERBS = [verb for verb in PLAIN_VERBS if _about_things(verb)]
OBJECT_VERBS = [verb for verb in THING_VERBS if takes(verb, "object") and len(verb.complements) == 1]
# After these the thing is no more: what was eaten is not ordered afterwards.
FINAL = ("essen", "trinken", "werfen", "zerbrechen")
LASTING_VERBS = [verb for verb in OBJECT_VERBS if verb.german not in FINAL]
RELATIVE_VERBS = [verb for verb in THING_VERBS if len(verb.complements) == 1 or "with" in verb.flags]
AIM_VERBS = [verb for verb in PLAIN_VERBS if "aim" in verb.flags]
GOAL_VERBS = [
    verb for verb in PLAIN_VERBS if takes(verb, "goal") and verb.german in ("gehen", "fahren", "fliegen")
]
WHO_VERBS = [verb for verb in PLAIN_VERBS if "person" in takes(verb, "object")]
DATIVE_VERBS = [verb for verb in PLAIN_VERBS if verb.complements and verb.complements[0].slot == "indirect"]
DATIVE_VERBS = [verb for verb in DATIVE_VERBS if len(verb.complements) == 1 and "person" in verb.subjects]
PREPOSITION_VERBS = [verb for verb in PLAIN_VERBS if "person" in takes(verb, "prep")]
PERSON_VERBS = [verb for verb in PLAIN_VERBS if "person" in verb.subjects]
PASSIVE_VERBS = [verb for verb in PLAIN_VERBS if takes(verb, "object") and len(verb.complements) == 1]
