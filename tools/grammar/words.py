"""Adjectives, determiners, pronouns, adverbs, prepositions, numbers and dates.

Where German and English words of a phrase do not go one to one in order, "0-2 1-0 2-1" says which go
together.
"""

# German | English | the tags of the nouns (in nouns.py) that it fits; "stem" is what endings are put on.
ADJECTIVES = """
alt          | old          | person animal text clothes thing vehicle furniture place
jung         | young        | person animal
klein        | small        | young animal clothes thing vehicle furniture place plant
groß         | big          | animal clothes thing vehicle furniture place plant
neu          | new          | text clothes thing vehicle furniture place
schön        | beautiful    | clothes thing furniture place plant
modern       | modern       | furniture place vehicle
teuer, teur  | expensive    | food drink clothes thing vehicle furniture
billig       | cheap        | food drink clothes thing vehicle furniture
rot          | red          | clothes thing vehicle furniture plant
blau         | blue         | clothes thing vehicle furniture
grün         | green        | clothes thing vehicle furniture
gelb         | yellow       | clothes thing vehicle plant
schwarz      | black        | animal clothes thing vehicle furniture
weiß         | white        | animal clothes thing vehicle furniture plant
braun        | brown        | animal clothes furniture
schwer       | heavy        | thing furniture
leicht       | light        | thing
kaputt       | broken       | thing vehicle furniture
sauber       | clean        | clothes thing vehicle
schmutzig    | dirty        | clothes thing vehicle
schnell      | fast         | vehicle
langsam      | slow         | vehicle
bequem       | comfortable  | furniture clothes
lang         | long         | told watched event
kurz         | short        | told watched written event
interessant  | interesting  | read told watched event
langweilig   | boring       | read told watched event
wichtig      | important    | event sent
traurig      | sad          | told sung person
lustig       | funny        | told sung person
ruhig        | quiet        | place person
laut         | noisy        | place
dunkel, dunkl | dark        | place
hell         | bright       | place
frisch       | fresh        | food drink
süß          | sweet        | fruit baked drink
warm         | warm         | food drink
kalt         | cold         | food drink
lecker       | delicious    | food
nett         | nice         | person
freundlich   | friendly     | person animal
klug         | clever       | person animal
müde, müd    | tired        | person animal
hungrig      | hungry       | person animal
durstig      | thirsty      | person animal
krank        | sick         | person animal
glücklich    | happy        | person
nervös       | nervous      | person
berühmt      | famous       | person
höflich      | polite       | person
mutig        | brave        | person animal
stark        | strong       | person animal
faul         | lazy         | person animal
neugierig    | curious      | person animal
wild         | wild         | wild
gefährlich   | dangerous    | wild
"""
COLOURS = "red blue green yellow black white brown"
STATES = "tired hungry thirsty sick happy nervous sad"
WEATHER_WORDS = """
kalt | cold
warm | warm
heiß | hot
dunkel | dark
windig | windy
neblig | foggy
sonnig | sunny
"""
STRENGTHS = """
sehr | very
ziemlich | quite
"""
DEGREES = STRENGTHS + "zu | too\n"

# German stem | how the stem declines | endings of the adjective behind it | English, English plural |
# singular or plural alone
DETERMINERS = """
d       | der  | weak   | the, the     |
ein     | ein  | mixed  | a, -         | singular
kein    | ein  | mixed  | no, no       |
mein    | ein  | mixed  | my, my       |
dein    | ein  | mixed  | your, your   |
unser   | ein  | mixed  | our, our     |
sein    | ein  | mixed  | his, his     |
dies    | der  | weak   | this, these  |
jed     | der  | weak   | every, -     | singular
welch   | der  | weak   | which, which |
viel    | der  | strong | -, many      | plural
einig   | der  | strong | -, some      | plural
all     | der  | weak   | -, all       | plural
wie_viele | none | strong | -, how_many | plural
"""

NUMBERS = """
zwei | two
drei | three
vier | four
fünf | five
sechs | six
sieben | seven
acht | eight
neun | nine
zehn | ten
elf | eleven
zwölf | twelve
"""

# nominative, accusative, dative | subject, object | person and number; "-" where a form would stand for two
# English words
PRONOUNS = """
ich, mich, mir   | I, me    | 1 singular
du, dich, dir    | you, you | 2 singular
er, ihn, ihm     | he, him  | 3 singular
sie, -, ihr      | she, her | 3 singular
wir, uns, uns    | we, us   | 1 plural
sie, -, ihnen    | they, them | 3 plural
"""

# Times. Each word carries its part of speech where there is more than one.
PAST_TIMES = """
gestern | yesterday
vorgestern/ADV | the/ART day/N before/P yesterday/ADV | 0-0 0-1 0-2 0-3
gestern/ADV Abend/N | yesterday/ADV evening/N
heute/ADV Morgen/N | this/ART morning/N
letzte/ADJ Woche/N | last/ADJ week/N
letzten/ADJ Sommer/N | last/ADJ summer/N
letztes/ADJ Jahr/N | last/ADJ year/N
"""
PRESENT_TIMES = """
jetzt | now
heute | today
im/P Moment/N | at/P the/ART moment/N | 0-0 0-1 1-2
"""
FUTURE_TIMES = """
morgen | tomorrow
übermorgen/ADV | the/ART day/N after/P tomorrow/ADV | 0-0 0-1 0-2 0-3
morgen/ADV Abend/N | tomorrow/ADV evening/N
heute/ADV Abend/N | this/ART evening/N
nächste/ADJ Woche/N | next/ADJ week/N
nächsten/ADJ Monat/N | next/ADJ month/N
bald | soon
"""
HABITS = """
jeden/ART Tag/N | every/ART day/N
jeden/ART Morgen/N | every/ART morning/N
jeden/ART Abend/N | every/ART evening/N
jede/ART Woche/N | every/ART week/N
jeden/ART Sonntag/N | every/ART Sunday/N
am/P Wochenende/N | at/P the/ART weekend/N | 0-0 0-1 1-2
im/P Sommer/N | in/P summer/N
im/P Winter/N | in/P winter/N
"""
FREQUENCIES = """
oft | often
immer | always
manchmal | sometimes
selten | rarely
meistens | usually
nie | never
"""
MANNERS = """
schnell | quickly
langsam | slowly
vorsichtig | carefully
leise | quietly
"""
DAYS = """
Montag | Monday
Dienstag | Tuesday
Mittwoch | Wednesday
Donnerstag | Thursday
Freitag | Friday
Samstag | Saturday
Sonntag | Sunday
"""
MONTHS = """
Januar | January
März | March
April | April
Mai | May
Juni | June
Juli | July
August | August
Oktober | October
Dezember | December
"""
FUTURE_SPANS = """
Tagen | days
Wochen | weeks
"""
PAST_SPANS = FUTURE_SPANS + "Monaten | months\nJahren | years\n"
YEARS = range(2001, 2026)
LAST_DAY = 28

# German, its case | English
PREPOSITIONS = """
in, dat | in
in, acc | to
nach, dat | to
mit, dat | with
mit, dat | by
ohne, acc | without
für, acc | for
aus, dat | from
wegen, gen | because of
trotz, gen | despite
"""
HOME = """
zu/P Hause/N | at/P home/N
nach/P Hause/N | home/N | 1-0
"""
QUESTION_ADVERBS = """
wo/WH | where/WH
wann/WH | when/WH
warum/WH | why/WH
"""
CONJUNCTIONS = """
weil | because
obwohl | although
während | while
wenn | when
dass | that
ob | whether
"""
