"""The verbs. One a line: German forms | English forms | who does it | what it takes | how it may be used.

German: infinitive, third person singular, participle, a simple past where speech prefers it; "-" or nothing
where a rule gives the form; "+" behind a separable prefix; "ist" before a participle that takes sein.
English: base, past, participle; what follows the verb is written after it ("wait for"), behind "~" where a
pronoun may come between ("pick ~up").
What it takes: "object", "indirect" (dative), "experiencer" (the dative that English makes its subject),
"to" (the dative that English expresses with "to"), "prep PREPOSITION CASE ENGLISH", "place", "goal",
"origin"; each with the classes of noun that fit.
How it may be used: "state" (no progressive, no modal verb), "event" (happens to one: no modal verb),
"sudden" (an event with no present), "once" (no habit), "aim"
(one can try or set out to do it), "manner", "with" (someone), "for" (someone), "@..." (the classes of place
where it is done).
"""

ACTIONS = """
kaufen                          | buy, bought           | person | object sold       | aim for
kaufen                          | buy, bought           | person | object food drink | aim for @shop
verkaufen                       | sell, sold            | person | object sold       | aim once
suchen                          | look for              | person | object sold laid  | @home @station
finden, -, gefunden | find, found | person | object sold laid | aim @home @station sudden
reparieren                      | repair                | person | object repaired   | aim manner for
essen, isst, gegessen           | eat, ate, eaten       | person | object eaten      | with @home @eat
trinken, -, getrunken           | drink, drank, drunk   | person | object drink      | with @home @eat
kochen                          | cook                  | person | object cooked     | aim for with
backen, -, gebacken             | bake                  | person | object baked      | aim for with
probieren                       | taste                 | person | object food drink | aim @eat @shop
bestellen                       | order                 | person | object food drink | aim for @eat
lesen, liest, gelesen           | read, read            | person | object read       | aim @home @out @study
schreiben, -, geschrieben       | write, wrote, written | person | object written    | aim @home @study
verstehen, -, verstanden        | understand, understood | person | object explained read | state
sehen, sieht, gesehen           | see, saw, seen        | person | object person wild sight | state
besuchen                        | visit                 | person | object person sight | aim
treffen, trifft, getroffen      | meet, met             | person | object person     | aim @meet @out
kennen, -, gekannt              | know, knew, known     | person | object person     | state
lieben                          | love                  | person | object person pet | state
brauchen                        | need                  | person | object sold        | state
malen                           | paint                 | person | object painted wild sight | aim with
fotografieren                   | photograph            | person | object wild sight | aim
waschen, wäscht, gewaschen      | wash                  | person | object washed      | aim manner
putzen                          | clean                 | person | object cleaned tidy | aim manner with
fragen                          | ask                   | person | object person      | aim
tragen, trägt, getragen         | carry                 | person | object carried     | aim
verlieren, -, verloren | lose, lost | person | object laid worn carried | @out @station sudden
vergessen, vergisst, vergessen | forget, forgot, forgotten | person | object laid gift | @station @meet sudden
bezahlen                        | pay, paid             | person | object paid        | aim
verlassen, verlässt, verlassen  | leave, left           | person | object home station work | aim
bauen                           | build, built          | builder | object built       | aim with once
gießen, -, gegossen             | water                 | person | object watered     | aim
pflücken                        | pick                  | person | object picked fruit | aim for with @out
füttern                         | feed, fed             | person | object fed pet     | aim with
fangen, fängt, gefangen         | catch, caught         | young chaser | object caught chased | aim
jagen                           | chase                 | chaser | object chased      | @out
streicheln                      | stroke                | person | object pet         | aim
retten                          | rescue                | person | object person pet  | aim once
begrüßen                        | greet                 | person | object person      | aim
wecken                          | wake, woke, woken     | person | object person      | aim
verstecken                      | hide, hid, hidden     | person | object gift        | aim @home
öffnen                          | open                  | person | object opened      | aim manner
zerbrechen, zerbricht, zerbrochen | break, broke, broken | person | object fragile   | sudden
singen, -, gesungen             | sing, sang, sung      | person | object sung        | aim with
an+rufen, -, angerufen          | call                  | person | object person      | aim
ab+holen                        | pick ~up              | person | object person sent | aim @station
ein+laden, lädt, eingeladen     | invite                | person | object person      | aim
auf+räumen                      | tidy ~up              | person | object tidy         | aim manner with
mit+bringen, -, mitgebracht     | bring ~along, brought | person | object food gift   | aim
weg+werfen, wirft, weggeworfen | throw ~away, threw, thrown | person | object laid fragile | aim once
an+ziehen, -, angezogen         | put ~on, put          | person | object worn         | aim manner
aus+ziehen, -, ausgezogen       | take ~off, took, taken | person | object worn        | aim manner
aus+füllen                      | fill ~in              | person | object filled       | aim manner
auf+hängen                      | hang ~up, hung        | person | object hung         | aim @home
an+schauen                      | watch                 | person | object watched      | aim with @home
ein+packen                      | pack                  | person | object worn laid     | aim manner
helfen, hilft, geholfen         | help                  | person | indirect person      | aim
danken                          | thank                 | person | indirect person      | aim
folgen, -, ist gefolgt          | follow                | person barker | indirect person  |
gratulieren                     | congratulate          | person | indirect person      | aim
vertrauen                       | trust                 | person | indirect person      | state
zu+hören                        | listen to             | person | indirect person      |
gehören                         | belong to             | clothes vehicle thing | indirect person | state
gefallen, gefällt, gefallen | like | place town sight text clothes event | experiencer person | state
schmecken                       | enjoy                 | eaten drink | experiencer person | state
"""

GIVING = """
geben, gibt, gegeben            | give, gave, given     | person | indirect person; object gift        |
bringen, -, gebracht            | bring, brought        | person | indirect person; object food gift   |
zeigen                          | show, showed, shown   | person | indirect person; object shown painted |
schicken                        | send, sent            | person | indirect person; object sent        | aim
leihen, -, geliehen             | lend, lent            | person | indirect person; object worn laid carried |
legen                           | put, put              | person | object laid; onto top               |
erzählen                        | tell, told            | person | indirect person; object told        | aim
erklären                        | explain               | person | to person; object explained         | aim
empfehlen, empfiehlt, empfohlen | recommend             | person | to person; object food drink read   |
vor+lesen, liest, vorgelesen    | read out, read        | person | to person; object told              |
zurück+geben, gibt, zurückgegeben | return              | person | to person; object sold laid         | aim
"""

WITHOUT_OBJECT = """
arbeiten                        | work                  | person |                      | with @work @out
schlafen, schläft, geschlafen   | sleep, slept          | person animal |               | @home
lachen                          | laugh                 | person |                      |
lächeln                         | smile                 | person |                      |
weinen                          | cry                   | person |                      |
tanzen                          | dance                 | person |                      | with @out @home @eat
lernen | study | person | | aim with @study @home
spielen                         | play                  | young player |                   | with @out @home
warten                          | wait                  | person |                      | @station @meet
frühstücken                     | have breakfast, had   | person |                      | with @home @eat
schwimmen, -, ist geschwommen   | swim, swam, swum      | person |                      | with @lake
bellen, -, gebellt              | bark                  | barker |                      |
träumen                         | dream                 | person     |                  | event
bleiben, -, ist geblieben       | stay                  | person | place home town meet |
wohnen                          | live                  | person | place home town      | state with
sitzen, -, gesessen             | sit, sat              | person player | place out seat | with
stehen, -, gestanden            | stand, stood          | person animal | place out station |
liegen, -, gelegen              | lie, lay, lain        | laid   | place on             | event
stehen, -, gestanden            | stand, stood          | fragile | place top           | event
gehen, -, ist gegangen          | go, went, gone        | person | goal work eat meet shop sight street | with
laufen, läuft, ist gelaufen     | run, ran, run         | person animal | goal out     | manner
fahren, fährt, ist gefahren     | travel                | person | goal town            | with by
fliegen, -, ist geflogen        | fly, flew, flown      | person | goal town            | with
wandern, -, ist gewandert       | hike                  | person |                      | with @nature
kommen, -, ist gekommen         | come, came, come      | person | origin town          | state
warten                          | wait                  | person | prep auf acc for person ride | @station
sprechen, spricht, gesprochen   | talk                  | person | prep mit dat to person | manner @meet @home
denken, -, gedacht              | think, thought        | person | prep an acc of person | event
träumen                         | dream                 | person | prep von dat of town gift vehicle | event
lachen                          | laugh                 | person | prep über acc about told watched |
auf+stehen, -, ist aufgestanden | get up, got           | person |                      |
auf+wachen, -, ist aufgewacht   | wake up, woke         | person animal |               | event
ein+schlafen, schläft, ist eingeschlafen | fall asleep, fell, fallen | person |        | event
fern+sehen, sieht, ferngesehen  | watch television      | person |                      | with
ein+kaufen                      | shop                  | person |                      | aim with @shop
aus+gehen, -, ist ausgegangen   | go out, went, gone    | person |                      | with
zurück+kommen, -, ist zurückgekommen | come back, came, come | person | origin town    |
um+ziehen, -, ist umgezogen     | move                  | person | goal town    | once
an+kommen, -, ist angekommen    | arrive                | ride person | place station town | event
ab+fahren, fährt, ist abgefahren | depart               | ride   |                      | event
an+fangen, fängt, angefangen    | begin, began, begun   | begun  |                      | event
statt+finden, -, stattgefunden  | take place, took, taken | begun | place town work | event
"""

WEATHER = """
regnen                          | rain                  | |  | event
schneien                        | snow                  | |  | event
"""

# Verbs with a clause of their own behind them: a dass clause, an ob clause, an infinitive with zu.
WITH_CLAUSE = """
sagen                           | say, said             | person | dass     | state
glauben                         | believe               | person | dass     | state
hoffen                          | hope                  | person | dass     | state
wissen, weiß, gewusst           | know, knew, known     | person | dass ob  | state
hören                           | hear, heard           | person | dass     | state
fragen                          | ask                   | person | ob       | state
versuchen                       | try                   | person | zu       | aim
vergessen, vergisst, vergessen  | forget, forgot, forgotten | person | zu   | state
hoffen                          | hope                  | person | zu       | state
planen                          | plan                  | person | zu       | event
"""

TO_BE = """
sein, ist, ist gewesen, war     | be, was, been         | |  | state
geben, gibt, gegeben, gab       | be, was, been         | |  | state
"""

# German modal: infinitive, ich and er in the present, simple past | English, its past | English without a
# past has its own line.
MODALS = """
können, kann, konnte            | can, could
müssen, muss, musste            | have to, had
wollen, will, wollte            | want to, wanted
dürfen, darf, durfte            | be allowed to, was
sollten, sollte, -              | should, -
möchten, möchte, -              | would like to, -
"""
