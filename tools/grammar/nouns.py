"""The nouns. One a line: article and German noun, its plural | English noun | class, then what it can be.

A noun without a German plural is a mass noun (milk). A star marks the weak nouns, which take their plural's
form in every case but the nominative (der Student, den Studenten). An English plural is written only where
no rule gives it. The first tag is the class, which decides the adjectives that fit; the others say which
verbs and places take it. Every English noun stands for one German noun alone: so each trade has one gender
here (die Ärztin, der Lehrer).
"""

PEOPLE = """
der Mann, Männer            | man, men         | person builder
die Frau, Frauen            | woman, women     | person
das Kind, Kinder            | child, children  | person young
das Mädchen, Mädchen        | girl             | person young
der Junge, Jungen*          | boy              | person young
der Lehrer, Lehrer          | teacher          | person mine
die Ärztin, Ärztinnen       | doctor           | person mine
der Student, Studenten*     | student          | person young
die Schülerin, Schülerinnen | pupil            | person young
der Nachbar, Nachbarn*      | neighbour        | person mine
der Freund, Freunde         | friend           | person kin
die Kollegin, Kolleginnen   | colleague        | person kin
der Gast, Gäste             | guest            | person mine
der Tourist, Touristen*     | tourist          | person
der Polizist, Polizisten*   | police officer   | person
die Köchin, Köchinnen       | cook             | person
der Bäcker, Bäcker          | baker            | person
die Künstlerin, Künstlerinnen | artist         | person
die Sängerin, Sängerinnen   | singer           | person
der Bauer, Bauern*          | farmer           | person builder
der Kellner, Kellner        | waiter           | person
die Verkäuferin, Verkäuferinnen | shop assistant | person
der Fahrer, Fahrer          | driver           | person
die Chefin, Chefinnen       | boss             | person kin
der Arbeiter, Arbeiter      | worker           | person builder
die Ingenieurin, Ingenieurinnen | engineer     | person builder
die Mutter, Mütter          | mother           | person kin one
der Vater, Väter            | father           | person kin builder one
die Schwester, Schwestern   | sister           | person kin
der Bruder, Brüder          | brother          | person kin
die Tante, Tanten           | aunt             | person kin
der Onkel, Onkel            | uncle            | person kin builder
die Großmutter, Großmütter  | grandmother      | person kin one
der Großvater, Großväter    | grandfather      | person kin builder one
die Tochter, Töchter        | daughter         | person kin
der Sohn, Söhne             | son              | person kin
die Cousine, Cousinen       | cousin           | person kin
"""

NAMES = """
die Anna | Anna | person name
die Maria | Maria | person name
die Julia | Julia | person name
die Laura | Laura | person name
die Emma | Emma | person name
die Clara | Clara | person name
der Peter | Peter | person name
der Paul | Paul | person name
der Martin | Martin | person name
der David | David | person name
der Simon | Simon | person name
der Robert | Robert | person name
"""

ANIMALS = """
der Hund, Hunde             | dog              | animal pet chaser barker player
die Katze, Katzen           | cat              | animal pet chaser player
das Pferd, Pferde           | horse            | animal pet fed
der Vogel, Vögel            | bird             | animal fed chased wild
die Kuh, Kühe               | cow              | animal fed
die Maus, Mäuse             | mouse, mice      | animal chased
die Ente, Enten             | duck             | animal fed chased
das Kaninchen, Kaninchen    | rabbit           | animal pet fed chased
der Fuchs, Füchse           | fox              | animal chaser wild
der Bär, Bären*             | bear             | animal wild
der Affe, Affen*            | monkey           | animal wild fed
der Elefant, Elefanten*     | elephant         | animal wild fed
der Esel, Esel              | donkey           | animal pet fed
die Ziege, Ziegen           | goat             | animal fed
"""

FOOD = """
der Apfel, Äpfel            | apple            | food fruit eaten
die Birne, Birnen           | pear             | food fruit eaten
die Banane, Bananen         | banana           | food fruit eaten
die Orange, Orangen         | orange           | food fruit eaten
die Kirsche, Kirschen       | cherry           | food fruit eaten
die Tomate, Tomaten         | tomato, tomatoes | food fruit eaten
die Kartoffel, Kartoffeln   | potato, potatoes | food cooked eaten
das Ei, Eier                | egg              | food cooked eaten
das Brötchen, Brötchen      | bread roll       | food baked eaten
der Keks, Kekse             | biscuit          | food baked eaten gift
die Pizza, Pizzas           | pizza            | food baked eaten
der Kuchen, Kuchen          | cake             | food baked eaten gift
der Apfelkuchen, Apfelkuchen | apple cake      | food baked eaten gift
der Kirschkuchen, Kirschkuchen | cherry cake   | food baked eaten gift
der Käsekuchen, Käsekuchen  | cheesecake       | food baked eaten gift
die Suppe, Suppen           | soup             | food cooked eaten one
die Tomatensuppe, Tomatensuppen | tomato soup  | food cooked eaten one
die Kartoffelsuppe, Kartoffelsuppen | potato soup | food cooked eaten one
der Salat, Salate           | salad            | food eaten one
der Obstsalat, Obstsalate   | fruit salad      | food eaten one
der Kartoffelsalat, Kartoffelsalate | potato salad | food eaten one
das Brot                    | bread            | food baked eaten
der Käse                    | cheese           | food eaten
der Reis                    | rice             | food cooked eaten
das Fleisch                 | meat             | food cooked eaten
das Obst                    | fruit            | food eaten
der Honig                   | honey            | food eaten
die Schokolade              | chocolate        | food eaten gift
das Wasser                  | water            | drink
die Milch                   | milk             | drink
der Kaffee                  | coffee           | drink
der Tee                     | tea              | drink
der Saft                    | juice            | drink
der Apfelsaft               | apple juice      | drink
der Orangensaft             | orange juice     | drink
das Bier                    | beer             | drink
der Wein                    | wine             | drink
der Kakao                   | cocoa            | drink
"""

THINGS = """
das Buch, Bücher            | book             | text read written sold gift carried laid
das Kochbuch, Kochbücher    | cookbook         | text read written sold gift laid
das Wörterbuch, Wörterbücher | dictionary      | text sold gift laid
das Tagebuch, Tagebücher    | diary            | text read
der Brief, Briefe           | letter           | text read written sent gift laid
der Liebesbrief, Liebesbriefe | love letter    | text read written sent laid
die Postkarte, Postkarten   | postcard         | text read written sent gift laid
die Zeitung, Zeitungen      | newspaper        | text read sold gift laid
der Roman, Romane           | novel            | text read written sold gift
das Gedicht, Gedichte       | poem             | text read written told
die Geschichte, Geschichten | story            | text read written told
das Märchen, Märchen        | fairy tale       | text read written told
der Bericht, Berichte       | report           | text read written sent
die Nachricht, Nachrichten  | message          | text read written sent
die Rechnung, Rechnungen    | bill             | text paid laid
der Stadtplan, Stadtpläne   | city map         | text sold gift laid explained
das Formular, Formulare     | form             | text filled sent
die Aufgabe, Aufgaben       | task             | text explained
die Regel, Regeln           | rule             | text explained
der Film, Filme             | film             | text watched explained
das Lied, Lieder            | song             | text sung written
die Fahrkarte, Fahrkarten   | ticket           | thing sold gift shown laid
der Hut, Hüte               | hat              | clothes sold worn laid gift
der Mantel, Mäntel          | coat             | clothes sold worn laid hung
der Wintermantel, Wintermäntel | winter coat   | clothes sold worn hung
der Regenmantel, Regenmäntel | raincoat        | clothes sold worn hung
die Jacke, Jacken           | jacket           | clothes sold worn laid hung
das Hemd, Hemden            | shirt            | clothes sold worn washed
das Kleid, Kleider          | dress            | clothes sold worn washed hung gift
das Sommerkleid, Sommerkleider | summer dress  | clothes sold worn washed gift
der Rock, Röcke             | skirt            | clothes sold worn washed
der Pullover, Pullover      | jumper           | clothes sold worn washed gift
der Schal, Schals           | scarf, scarves   | clothes sold worn gift
der Rucksack, Rucksäcke     | backpack         | thing sold carried
der Koffer, Koffer          | suitcase         | thing sold carried opened
die Tasche, Taschen         | bag              | thing sold carried gift
der Korb, Körbe             | basket           | thing sold carried
der Regenschirm, Regenschirme | umbrella       | thing sold gift opened
das Auto, Autos             | car              | vehicle sold repaired washed by
der Bus, Busse              | bus              | vehicle ride repaired by
der Zug, Züge               | train            | vehicle ride by
das Fahrrad, Fahrräder      | bicycle          | vehicle sold repaired washed by
das Motorrad, Motorräder    | motorbike        | vehicle sold repaired washed by
das Boot, Boote             | boat             | vehicle sold repaired painted by
das Flugzeug, Flugzeuge     | plane            | vehicle ride repaired
die Straßenbahn, Straßenbahnen | tram          | vehicle ride by
das Taxi, Taxis             | taxi             | vehicle ride by
der Schlüssel, Schlüssel    | key              | thing gift laid shown
die Uhr, Uhren              | clock            | thing sold repaired gift hung
die Lampe, Lampen           | lamp             | thing sold repaired gift
das Telefon, Telefone       | phone            | thing sold repaired gift laid
der Computer, Computer      | computer         | thing sold repaired
die Kamera, Kameras         | camera           | thing sold repaired gift laid
die Gitarre, Gitarren       | guitar           | thing sold repaired gift carried
der Löffel, Löffel          | spoon            | thing gift cleaned laid
der Teller, Teller          | plate            | thing sold fragile cleaned gift
das Glas, Gläser            | glass            | thing sold fragile cleaned gift
das Weinglas, Weingläser    | wine glass       | thing sold fragile cleaned
die Tasse, Tassen           | cup              | thing sold fragile cleaned gift
die Kaffeetasse, Kaffeetassen | coffee cup     | thing sold fragile cleaned gift
die Teekanne, Teekannen     | teapot           | thing sold fragile cleaned gift
die Flasche, Flaschen       | bottle           | thing fragile opened gift
der Spiegel, Spiegel        | mirror           | thing sold fragile hung cleaned
der Ball, Bälle             | ball             | thing sold gift caught
das Bild, Bilder            | picture          | thing sold painted hung shown gift
das Foto, Fotos             | photo            | thing shown hung sent laid
das Geschenk, Geschenke     | present          | thing gift sent carried
das Paket, Pakete           | parcel           | thing sent opened carried
die Blume, Blumen           | flower           | plant gift watered picked painted
die Rose, Rosen             | rose             | plant gift watered picked painted
der Baum, Bäume             | tree             | plant watered painted
das Fenster, Fenster        | window           | thing opened cleaned
die Tür, Türen              | door             | thing opened
die Haustür, Haustüren      | front door       | thing opened
der Tisch, Tische           | table            | furniture sold cleaned on under top
der Küchentisch, Küchentische | kitchen table  | furniture sold cleaned on under top
der Schreibtisch, Schreibtische | desk         | furniture sold on under top
der Stuhl, Stühle           | chair            | furniture sold on under seat
der Gartenstuhl, Gartenstühle | garden chair   | furniture sold on seat
das Bett, Betten            | bed              | furniture sold on under seat
das Sofa, Sofas             | sofa             | furniture sold on under seat
der Sessel, Sessel          | armchair         | furniture sold on seat
der Schrank, Schränke       | cupboard         | furniture sold opened
das Konzert, Konzerte       | concert          | event begun
die Prüfung, Prüfungen      | exam             | event begun
die Hochzeit, Hochzeiten    | wedding          | event begun
die Ausstellung, Ausstellungen | exhibition    | event begun
die Besprechung, Besprechungen | meeting       | event begun
das Spiel, Spiele           | game             | event begun watched
"""

# A fourth column gives the prepositions of being there: German, English.
PLACES = """
der Garten, Gärten          | garden           | place out own             | in in
der Park, Parks             | park             | place out                 | in in
der Wald, Wälder            | forest           | place out nature          | in in
der Strand, Strände         | beach            | place out                 | an on
der See, Seen               | lake             | place out nature lake     | an at
der Fluss, Flüsse           | river            | place out nature          | an by
der Spielplatz, Spielplätze | playground       | place out                 | auf in
das Dorf, Dörfer            | village          | place town street         | in in
die Stadt, Städte           | city             | place town sight street   | in in
das Haus, Häuser            | house            | place home own built      | in in
die Wohnung, Wohnungen      | flat             | place home own            | in in
die Küche, Küchen           | kitchen          | place home tidy           | in in
das Zimmer, Zimmer          | room             | place home own tidy       | in in
das Wohnzimmer, Wohnzimmer  | living room      | place home tidy           | in in
der Keller, Keller          | cellar           | place tidy                | in in
der Balkon, Balkone         | balcony          | place home                | auf on
die Schule, Schulen         | school           | place work built          | in at
das Büro, Büros             | office           | place work own tidy       | in in
die Fabrik, Fabriken        | factory          | place work built          | in in
das Krankenhaus, Krankenhäuser | hospital      | place work built          | in in
die Universität, Universitäten | university    | place work study          | an at
die Bibliothek, Bibliotheken | library         | place work study          | in in
der Bauernhof, Bauernhöfe   | farm             | place work                | auf on
das Restaurant, Restaurants | restaurant       | place eat meet            | in in
das Café, Cafés             | café             | place eat meet            | in in
das Hotel, Hotels           | hotel            | place meet built          | in in
das Museum, Museen          | museum           | place sight meet          | in in
das Schloss, Schlösser      | castle           | place sight               | in in
die Kirche, Kirchen         | church           | place sight built         | in in
der Zoo, Zoos               | zoo              | place sight               | in in
das Theater, Theater        | theatre          | place meet                | in at
das Kino, Kinos             | cinema           | place meet                | in at
der Bahnhof, Bahnhöfe       | train station    | place meet station        | an at
der Flughafen, Flughäfen    | airport          | place meet station        | an at
die Bushaltestelle, Bushaltestellen | bus stop | place meet station        | an at
der Markt, Märkte           | market           | place shop                | auf at
der Supermarkt, Supermärkte | supermarket      | place shop                | in at
die Bäckerei, Bäckereien    | bakery           | place shop                | in at
die Buchhandlung, Buchhandlungen | bookshop    | place work                | in at
die Brücke, Brücken         | bridge           | place built               | auf on
"""

# No article, no plural; "in" and "nach" where a town or a country is the place or the goal.
TOWNS = """
das Berlin | Berlin | town
das Hamburg | Hamburg | town
das Paris | Paris | town
das London | London | town
das Rom | Rome | town
das Wien | Vienna | town
das München | Munich | town
das Köln | Cologne | town
das Prag | Prague | town
das Italien | Italy | town
das Spanien | Spain | town
das Frankreich | France | town
"""

# What one can do a thing in spite of, because of, or during: these stand in the genitive.
CIRCUMSTANCES = """
der Regen | rain | cause
der Schnee | snow | cause
der Sturm | storm | cause
der Lärm | noise | cause
das Wetter | weather | cause
die Hitze | heat | cause
die Kälte | cold | cause
"""
