"""Each construction of the grammar corpus, with both sentences written by hand.

The first lines are short ways to say what a sentence is made of.
"""

import pytest

from tools.grammar import english, german, lexicon, text, words
from tools.grammar.phrases import PRONOUNS
from tools.grammar.syntax import (
    IT,
    THERE,
    WHAT,
    WHO,
    AdjectivePhrase,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    Sentence,
    Subordinate,
    relative_pronoun,
)


def noun(german_noun, determiner="d", plural=False, adjective=None, **more):
    entry = next(one for one in lexicon.NOUNS if one.german == german_noun)
    found = next((one for one in lexicon.ADJECTIVES if one.german == adjective), None)
    return NounPhrase(entry, lexicon.DETERMINERS[determiner], plural, found, **more)


def verb(infinitive, prefix="", slots=None):
    for one in lexicon.VERBS:
        taken = [complement.slot for complement in one.complements]
        if (one.german, one.prefix) == (infinitive, prefix) and (slots is None or taken == slots.split()):
            return one
    raise LookupError(infinitive)


def pronoun(word):
    return next(one for one in PRONOUNS if one.english[0] == word)


def modal(infinitive):
    return next(one for one in lexicon.MODALS if one.german == infinitive)


def at(german_word, case, english_word, phrase):
    return PrepositionalPhrase(lexicon.Preposition(german_word, case, english_word), phrase)


def clause(action, tense="present", **slots):
    settings = {key: slots.pop(key) for key in ("modal", "negated", "simple", "front") if key in slots}
    return Clause(action, slots, tense, **settings)


YESTERDAY = lexicon.phrase("gestern", "yesterday")
DAILY = lexicon.phrase("jeden/ART Tag/N", "every/ART day/N")
AGO = lexicon.phrase("vor/P drei/NUM Tagen/N", "three/NUM days/N ago/ADV", "0-2 1-0 2-1")
DATE = lexicon.phrase("am/P 3./NUM Mai/N", "on/P 3/NUM May/N")
HOUR = lexicon.phrase("um/P halb/ADV neun/NUM", "at/P half/N past/P eight/NUM", "0-0 1-1 1-2 2-3")
HOME = lexicon.read_phrases(words.HOME)[0]
BIG = AdjectivePhrase(next(one for one in lexicon.ADJECTIVES if one.german == "groß"))
WHERE = lexicon.phrase("wo/WH", "where/WH")
TEACHER, WOMAN, CHILD = noun("Lehrer"), noun("Frau"), noun("Kind")
RED_CAR = noun("Auto", adjective="rot")
BUY = verb("kaufen")
RAINED = clause(verb("regnen"), "past", subject=IT)
WHO_BOUGHT = clause(BUY, "past", subject=relative_pronoun("m", True), object=noun("Auto", "ein"))
THAT_READ = clause(
    verb("lesen"), "past", subject=TEACHER, object=relative_pronoun("n", False), front="object"
)

BY_HAND = {
    "perfect with haben": (
        Sentence(clause(BUY, "past", subject=noun("Lehrer", adjective="müde"), object=RED_CAR)),
        "Der müde Lehrer hat das rote Auto gekauft.",
        "The tired teacher bought the red car.",
    ),
    "perfect with sein, goal in the accusative": (
        Sentence(clause(verb("gehen"), "past", subject=WOMAN, goal=at("in", "acc", "to", noun("Park")))),
        "Die Frau ist in den Park gegangen.",
        "The woman went to the park.",
    ),
    "verb second behind a time": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=RED_CAR, time=YESTERDAY, front="time")),
        "Gestern hat der Lehrer das rote Auto gekauft.",
        "Yesterday the teacher bought the red car.",
    ),
    "a comma behind a long opening": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=RED_CAR, time=AGO, front="time")),
        "Vor drei Tagen hat der Lehrer das rote Auto gekauft.",
        "Three days ago, the teacher bought the red car.",
    ),
    "object in front, passive": (
        Sentence(clause(verb("backen"), "past", subject=WOMAN, object=noun("Kuchen"), front="object")),
        "Den Kuchen hat die Frau gebacken.",
        "The cake was baked by the woman.",
    ),
    "separable verb": (
        Sentence(clause(verb("holen", "ab"), subject=TEACHER, object=WOMAN)),
        "Der Lehrer holt die Frau ab.",
        "The teacher is picking up the woman.",
    ),
    "separable verb, pronouns": (
        Sentence(clause(verb("holen", "ab"), "past", subject=pronoun("I"), object=pronoun("he"))),
        "Ich habe ihn abgeholt.",
        "I picked him up.",
    ),
    "modal verb": (
        Sentence(clause(BUY, subject=pronoun("she"), object=noun("Brot", ""), modal=modal("müssen"))),
        "Sie muss Brot kaufen.",
        "She has to buy bread.",
    ),
    "modal verb denied": (
        Sentence(clause(BUY, subject=TEACHER, object=RED_CAR, modal=modal("können"), negated=True)),
        "Der Lehrer kann das rote Auto nicht kaufen.",
        "The teacher cannot buy the red car.",
    ),
    "modal verb in the past, asked": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=RED_CAR, modal=modal("wollen")), question=True),
        "Wollte der Lehrer das rote Auto kaufen?",
        "Did the teacher want to buy the red car?",
    ),
    "nicht before the participle": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=RED_CAR, negated=True)),
        "Der Lehrer hat das rote Auto nicht gekauft.",
        "The teacher did not buy the red car.",
    ),
    "kein": (
        Sentence(clause(BUY, "past", subject=pronoun("they"), object=noun("Apfel", "kein"))),
        "Sie haben keinen Apfel gekauft.",
        "They did not buy an apple.",
    ),
    "future": (
        Sentence(
            clause(verb("helfen"), "future", subject=noun("Student"), indirect=noun("Kind", plural=True))
        ),
        "Der Student wird den Kindern helfen.",
        "The student will help the children.",
    ),
    "habit": (
        Sentence(clause(verb("backen"), subject=WOMAN, object=noun("Brot", ""), time=DAILY, simple=True)),
        "Die Frau backt jeden Tag Brot.",
        "The woman bakes bread every day.",
    ),
    "giving, a weak noun, a possessive": (
        Sentence(
            clause(
                verb("geben"), "past", subject=TEACHER, indirect=noun("Student", "mein"), object=noun("Buch")
            )
        ),
        "Der Lehrer hat meinem Studenten das Buch gegeben.",
        "The teacher gave my student the book.",
    ),
    "a dative that is the English subject": (
        Sentence(clause(verb("gefallen"), experiencer=CHILD, subject=noun("Film"), front="experiencer")),
        "Dem Kind gefällt der Film.",
        "The child likes the film.",
    ),
    "genitive": (
        Sentence(clause(BUY, "past", subject=WOMAN, object=noun("Haus", owner=noun("Bruder", "mein")))),
        "Die Frau hat das Haus meines Bruders gekauft.",
        "The woman bought my brother's house.",
    ),
    "a name in the genitive, strong adjective": (
        Sentence(
            clause(BUY, "past", subject=WOMAN, object=noun("Auto", adjective="alt", owner=noun("Anna", "")))
        ),
        "Die Frau hat Annas altes Auto gekauft.",
        "The woman bought Anna's old car.",
    ),
    "mixed adjective endings, what is new stands late": (
        Sentence(
            clause(
                verb("sehen"),
                "past",
                subject=WOMAN,
                object=noun("Bär", "ein", adjective="alt"),
                time=YESTERDAY,
            )
        ),
        "Die Frau hat gestern einen alten Bären gesehen.",
        "The woman saw an old bear yesterday.",
    ),
    "strong adjective endings, numeral, date, hour": (
        Sentence(
            clause(
                BUY, "past", subject=WOMAN, object=noun("Apfel", "drei", True, "rot"), time=DATE, clock=HOUR
            )
        ),
        "Die Frau hat am 3. Mai um halb neun drei rote Äpfel gekauft.",
        "The woman bought three red apples at half past eight on 3 May.",
    ),
    "relative clause about the subject": (
        Sentence(clause(verb("wohnen"), subject=noun("Mann", relative=WHO_BOUGHT), place=HOME)),
        "Der Mann, der ein Auto gekauft hat, wohnt zu Hause.",
        "The man who bought a car lives at home.",
    ),
    "late relative clause about the object": (
        Sentence(clause(BUY, "past", subject=pronoun("I"), object=noun("Buch", relative=THAT_READ))),
        "Ich habe das Buch gekauft, das der Lehrer gelesen hat.",
        "I bought the book that the teacher read.",
    ),
    "verb last behind weil, in front": (
        Sentence(
            clause(verb("bleiben"), "past", subject=TEACHER, place=HOME),
            sub=Subordinate(("weil", "because"), RAINED),
            sub_first=True,
        ),
        "Weil es geregnet hat, ist der Lehrer zu Hause geblieben.",
        "Because it rained, the teacher stayed at home.",
    ),
    "separable verb behind dass": (
        Sentence(
            clause(verb("sagen"), subject=pronoun("you")),
            sub=Subordinate(("dass", "that"), clause(verb("stehen", "auf"), subject=pronoun("we"))),
        ),
        "Du sagst, dass wir aufstehen.",
        "You say that we are getting up.",
    ),
    "infinitive with zu inside": (
        Sentence(
            clause(verb("versuchen"), "past", subject=WOMAN),
            sub=Subordinate(
                ("", "to"), clause(verb("räumen", "auf"), subject=WOMAN, object=noun("Zimmer", "mein"))
            ),
        ),
        "Die Frau hat versucht, mein Zimmer aufzuräumen.",
        "The woman tried to tidy up my room.",
    ),
    "um zu": (
        Sentence(
            clause(verb("gehen"), "past", subject=WOMAN, goal=at("zu", "dat", "to", noun("Bahnhof"))),
            sub=Subordinate(("um", "to"), clause(verb("kaufen"), subject=WOMAN, object=noun("Brot", ""))),
        ),
        "Die Frau ist zum Bahnhof gegangen, um Brot zu kaufen.",
        "The woman went to the train station to buy bread.",
    ),
    "who, of the subject": (
        Sentence(clause(BUY, "past", subject=WHO, object=RED_CAR), question=True),
        "Wer hat das rote Auto gekauft?",
        "Who bought the red car?",
    ),
    "what, of the object": (
        Sentence(clause(BUY, "past", subject=TEACHER, object=WHAT, front="object"), question=True),
        "Was hat der Lehrer gekauft?",
        "What did the teacher buy?",
    ),
    "how many": (
        Sentence(
            clause(BUY, subject=TEACHER, object=noun("Buch", "wie_viele", True), front="object"),
            question=True,
        ),
        "Wie viele Bücher kauft der Lehrer?",
        "How many books is the teacher buying?",
    ),
    "a preposition with who": (
        Sentence(
            clause(
                verb("warten", slots="prep"), subject=TEACHER, prep=at("auf", "acc", "for", WHO), front="prep"
            ),
            question=True,
        ),
        "Auf wen wartet der Lehrer?",
        "Who is the teacher waiting for?",
    ),
    "where": (
        Sentence(
            clause(verb("arbeiten"), "past", subject=TEACHER, place=WHERE, front="place"), question=True
        ),
        "Wo hat der Lehrer gearbeitet?",
        "Where did the teacher work?",
    ),
    "es gibt": (
        Sentence(
            clause(
                lexicon.THERE_IS,
                subject=THERE,
                object=noun("Baum", "ein", adjective="alt"),
                place=at("in", "dat", "in", noun("Park")),
                front="place",
            )
        ),
        "Im Park gibt es einen alten Baum.",
        "In the park, there is an old tree.",
    ),
    "sein": (
        Sentence(clause(lexicon.TO_BE, "past", subject=noun("Garten", "unser"), predicate=BIG, negated=True)),
        "Unser Garten war nicht groß.",
        "Our garden was not big.",
    ),
    "a genitive preposition": (
        Sentence(
            clause(
                verb("arbeiten"),
                "past",
                subject=TEACHER,
                cause=at("wegen", "gen", "because of", noun("Regen")),
            )
        ),
        "Der Lehrer hat wegen des Regens gearbeitet.",
        "The teacher worked because of the rain.",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_each_construction_as_written_by_hand(name):
    sentence, expected_german, expected_english = BY_HAND[name]
    assert text(german.sentence_tree(sentence)) == expected_german
    assert text(english.sentence_tree(sentence)) == expected_english
