"""`Translator.show_attention` draws the explorer of one translation."""

from charts import marks, texts

from annotated.tokenizers import WordTokenizer
from annotated.transformer.model import make_model
from annotated.translator import Translator


def test_a_sentence_is_drawn_in_one_line() -> None:
    source = WordTokenizer(["ein", "Hund"], None)
    target = WordTokenizer(["a", "dog"], None)
    model = make_model(len(source), len(target), N=2, d_model=8, d_ff=16, h=2)
    translator = Translator(model, source, target)
    chart = translator.show_attention("ein Hund", "a dog")
    shown = texts(chart, kind="cross", layer=1, head=1)
    assert shown[shown.index("key") - 3 : shown.index("key")] == ["ein", "Hund", "</s>"]
    assert shown[shown.index("query") - 3 : shown.index("query")] == ["<s>", "a", "dog"]
    expected = translator.attention("ein Hund", "a dog").maps["cross", 1][1]
    cells = [mark for mark in marks(chart, kind="cross", layer=1, head=1) if "weight" in mark]
    for cell in cells:
        assert abs(float(cell["weight"]) - expected[int(cell["query"]), int(cell["key"])]) < 1e-3
