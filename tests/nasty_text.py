"""Text that breaks programs: each must come out as one line."""

NASTY = {
    "empty": "",
    "white space": " \t \u2003\u00a0",
    "one word": "dog",
    "one letter": "d",
    "punctuation": "?!... ,;:-–—\"'«»()[]{}",
    "right to left": "שלום עולם \u202bمرحبا بالعالم\u202c",
    "joined emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "NUL": "a\0b\0",
    "lone surrogates": "a \ud800 b \udfff",
    "tabs": "a\tb\t\tc\t",
    "Windows line end": "a dog\r",
    "BOM": "\ufeffa dog",
    "line separator": "a\u2028b\u2029c",
    "NEL": "a\x85b\x0b\x0cc\x1c\x1d\x1e",
    "a line break": "a\nb",
    "space mark": "a\u2581b \ue000 \ue000m",
    "combining": "e" + "\u0301" * 60,
    "special symbols": "<s> </s> <blank> <unk> <0x0A>",
    "spaces": "   a    b   ",
    "compatibility": "ﬁne Ⅷ ①",
}
