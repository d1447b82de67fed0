"""Drawing times: days, dates, hours, habits."""

from functools import cache

from tools.grammar import words
from tools.grammar.dice import Dice
from tools.grammar.lexicon import Phrase, phrase, read_phrases, rows


def clock(dice: Dice) -> Phrase:
    """um acht Uhr, at eight o'clock; um halb neun, at half past eight."""
    numbers = list(rows(words.NUMBERS))
    at = int(dice.pick(range(len(numbers) - 1)))
    if dice.chance(0.6):
        return phrase(f"um/P {numbers[at][0]}/NUM Uhr/N", f"at/P {numbers[at][1]}/NUM o'clock/N")
    german, english = numbers[at + 1][0], numbers[at][1]
    return phrase(f"um/P halb/ADV {german}/NUM", f"at/P half/N past/P {english}/NUM", "0-0 1-1 1-2 2-3")


def time(dice: Dice, tense: str, calendar: bool = True) -> Phrase:
    """A time in the "past", the "present" or the "future", or a "habit"; with ``calendar`` perhaps a date."""
    table = {
        "past": words.PAST_TIMES,
        "present": words.PRESENT_TIMES,
        "future": words.FUTURE_TIMES,
        "habit": words.HABITS,
    }[tense]
    if calendar and tense in ("past", "future") and dice.chance(0.5):
        return _calendar(dice, tense)
    return dice.pick(_phrases(table))


@cache
def _phrases(table: str) -> tuple[Phrase, ...]:
    return tuple(read_phrases(table))


def phrase_of(dice: Dice, table: str) -> Phrase:
    """One phrase of a table of words.py."""
    return dice.pick(_phrases(table))


def _calendar(dice: Dice, tense: str) -> Phrase:
    """A day, a date, a month, a span or a year."""
    day, month = dice.pick(list(rows(words.DAYS))), dice.pick(list(rows(words.MONTHS)))
    kind = dice.pick(("day", "evening", "date", "month", "span", "year" if tense == "past" else "date"))
    if kind == "day":
        return phrase(f"am/P {day[0]}/N", f"on/P {day[1]}/N")
    if kind == "evening":
        return phrase(f"am/P {day[0]}abend/N", f"on/P {day[1]}/N evening/N", "0-0 1-1 1-2")
    if kind == "date":
        number = 1 + dice.pick(range(words.LAST_DAY))
        return phrase(f"am/P {number}./NUM {month[0]}/N", f"on/P {number}/NUM {month[1]}/N")
    if kind == "month":
        return phrase(f"im/P {month[0]}/N", f"in/P {month[1]}/N")
    if kind == "year":
        year = dice.pick(words.YEARS)
        return phrase(f"im/P Jahr/N {year}/NUM", f"in/P {year}/NUM", "0-0 1-1 2-1")
    spans = words.PAST_SPANS if tense == "past" else words.FUTURE_SPANS
    number, span = dice.pick(list(rows(words.NUMBERS))), dice.pick(list(rows(spans)))
    if tense == "past":
        links = "0-2 1-0 2-1"
        return phrase(f"vor/P {number[0]}/NUM {span[0]}/N", f"{number[1]}/NUM {span[1]}/N ago/ADV", links)
    return phrase(f"in/P {number[0]}/NUM {span[0]}/N", f"in/P {number[1]}/NUM {span[1]}/N")
