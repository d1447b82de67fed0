"""CTranslate2: a model written for it scores as ours does, and its search finds what our own finds."""

import sys

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, logits, subwords, taught, toy
from nasty_text import NASTY
from torch import nn

from annotated.search.config import SearchConfig
from annotated.transformer.variants import Parts, variant
from annotated.translation import translator as translating
from annotated.translation.data import load_corpus
from annotated.translation.interop import ctranslate2 as engine_module, to_ctranslate2
from annotated.translation.storage.model_folder import named_state
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator, load_pretrained

ctranslate2 = pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))

SENTENCES = [*ENGLISH, "a dog", "", "house runs the to sees cat a dog", "the dog " * 60, *NASTY.values()]
SEARCHES = [
    {"beam": 1},
    {"beam": 1, "alpha": 0.0},
    {"beam": 4},
    {"beam": 4, "alpha": 0.0},
    {"beam": 5, "alpha": 0.0, "n_best": 3},
    {"beam": 4, "n_best": 4},
    {"beam": 6, "alpha": 1.3, "n_best": 6},
    {"beam": 3, "alpha": 1.0, "penalty": "power", "n_best": 2},
    {"beam": 4, "prefix": "die"},
]
MODELS = {
    "the paper's": {"tied_embeddings": "all"},
    "pre-norm, learned positions": {"norm_first": True, "positions": "learned", "max_len": 99},
    "GELU": {"activation": "gelu", "N": 1, "tied_embeddings": "target"},
    "swish, large eps": {"activation": "swish", "layer_norm_eps": 0.1, "tied_embeddings": "all"},
}


def both(*parts, **options):
    """Our translator, and the same with CTranslate2's engine."""
    return tuple(Translator(*parts, engine=name, **options) for name in ("pytorch", "ctranslate2"))


@pytest.fixture(scope="module")
def tokenizer():
    return subwords(ENGLISH, GERMAN)


@pytest.fixture(scope="module")
def learned(tokenizer):
    """Both translators of a model that has learned something."""
    return both(taught(tokenizer), tokenizer, tokenizer)


@pytest.fixture(scope="module", params=["learned", *MODELS])
def pair(request, tokenizer, learned):
    """Those two, or both of a model with random weights, in which hypotheses end early, late and never."""
    if request.param == "learned":
        return learned
    model = toy(len(tokenizer), len(tokenizer), **MODELS[request.param])
    with torch.no_grad():
        model.generator.proj.bias[tokenizer.end] += 2
    return both(model, tokenizer, tokenizer, max_target=40)


@pytest.fixture
def searched(monkeypatch):
    """How many sentences our own search is given, a number for each of its calls."""
    counts, ours = [], translating.beam_search

    def spy(model, src, *rest, **options):
        counts.append(len(src))
        return ours(model, src, *rest, **options)

    monkeypatch.setattr(translating, "beam_search", spy)
    return counts


def check_equal(expected, found):
    """The same tokens in the same order, and the same scores but for rounding."""
    assert [[each.tokens for each in ends] for ends in found] == [
        [each.tokens for each in ends] for ends in expected
    ]
    # A sum of some forty logarithms in float32: rougher exponentials of an older processor move it by 2e-4.
    for name in ("score", "log_prob"):
        numbers = ([getattr(each, name) for ends in side for each in ends] for side in (found, expected))
        torch.testing.assert_close(*map(torch.tensor, numbers), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.filterwarnings("ignore:.*max_source:UserWarning")
def test_the_same_hypotheses(pair, search):
    ours, theirs = pair
    check_equal(ours.search(SENTENCES, **search), theirs.search(SENTENCES, **search))


@pytest.mark.parametrize("search", [{}, {"beam": 1}, {"alpha": 0.0}], ids=str)
def test_ctranslate2_does_it_where_sentences_end(search, learned, searched):
    ours, theirs = learned
    theirs.translate(ENGLISH, **search)
    assert searched == []
    ours.translate(ENGLISH, **search)
    assert searched == [3]


@pytest.mark.parametrize("beam", [1, 4])
def test_multi30k_is_translated_alike(beam, multi30k_folder, searched):
    """All of it: what is called equal may take the place of our own search in silence."""
    ours, theirs = (load_pretrained("multi30k-en-de", engine=name) for name in ("pytorch", "ctranslate2"))
    text = load_corpus("multi30k", "en-de")["test_2016_flickr"].src
    assert len(text) == 1000
    found = theirs.translate(text, beam)
    assert sum(searched) <= 10
    assert found == ours.translate(text, beam)


@pytest.fixture
def words():
    return WordTokenizer(["a", "dog", "runs"], None)


def biased(**changes):
    """A model of seven words with these numbers added to the biases of tokens, by number."""
    model = toy(7, 7)
    with torch.no_grad():
        for token, change in changes.items():
            model.generator.proj.bias[int(token[1:])] += change
    return model


def test_the_same_limits(words):
    ours, theirs = both(biased(t1=-100), words, words, max_source=5, max_target=7)  # none ends by itself
    texts = ["a dog runs a dog runs a", "a dog runs a", "runs dog"]
    with pytest.warns(UserWarning, match="line 1 has"):
        found = theirs.search(texts)
    assert [len(best.tokens) for [best] in found] == [6, 6, 6]
    with pytest.warns(UserWarning, match="line 1 has"):
        check_equal(ours.search(texts), found)


def test_a_short_limit_beside_long_ones(learned):
    """CTranslate2 has one limit for all sentences of a call, and would go beyond the shortest."""
    _, theirs = learned
    sources, engine = [theirs.encode(text) for text in ENGLISH], theirs.ctranslate2
    length = len(theirs.search(ENGLISH[:1])[0][0].tokens) + 1
    for limit in (length // 2, length):  # ours makes every hypothesis end there
        limits = {0: limit, 1: 99, 2: 99}
        assert {*engine.search(dict(enumerate(sources)), limits, SearchConfig())} == {1, 2}


def test_a_source_beyond_the_table_of_positions(words):
    ours, theirs = both(biased(t1=3), words, words, max_source=1100)
    texts = ["a dog " * 520 + last for last in ("runs", "dog")]
    check_equal(ours.search(texts, 1), theirs.search(texts, 1))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("beam", [1, 4])
def test_no_sequence_of_tokens_occurs_twice(beam, n, words):
    ours, theirs = both(biased(t1=-1), words, words)
    texts = ["a dog runs a dog runs a", "a dog runs a", "runs dog"]
    options = {"beam": beam, "no_repeat_ngram": n}
    check_equal(ours.search(texts, **options), theirs.search(texts, **options))


def test_int8_is_smaller_and_nearly_the_same(learned, tokenizer):
    _, theirs = learned
    rounded = Translator(theirs.model, tokenizer, tokenizer, engine="ctranslate2", quantization="int8")
    assert rounded.translate(ENGLISH) == GERMAN
    scores = [[best.score for [best] in each.search(ENGLISH)] for each in (theirs, rounded)]
    assert scores[0] != scores[1]
    # With VNNI within 0.1 nats a sentence; without it sums are cut off as well, which cost up to 0.83.
    assert scores[0] == pytest.approx(scores[1], abs=1.5)


def test_every_token_is_scored_alike_with_two_vocabularies(tmp_path):
    """By its `score_batch` on given pairs: no search on either side."""
    src_tokenizer, tgt_tokenizer = subwords(ENGLISH), subwords(GERMAN)
    model = toy(len(src_tokenizer), len(tgt_tokenizer))
    to_ctranslate2(tmp_path / "model", model, src_tokenizer, tgt_tokenizer)
    theirs = ctranslate2.Translator(str(tmp_path / "model"))
    tgt = torch.randint(4, len(tgt_tokenizer), (7,)).tolist()
    src = src_tokenizer.encode(ENGLISH[1])
    pieces = [src_tokenizer.vocabulary[i] for i in src], [tgt_tokenizer.vocabulary[i] for i in tgt]
    [scored] = theirs.score_batch([pieces[0]], [pieces[1]])
    said = logits(model, torch.tensor([[*src, 1]]), torch.tensor([[0, *tgt]])).log_softmax(-1)
    expected = said[0].gather(1, torch.tensor([*tgt, 1]).unsqueeze(1)).flatten()
    torch.testing.assert_close(torch.tensor(scored.log_probs), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_our_model_stays_as_it_was(quantization, tokenizer, tmp_path):
    """CTranslate2 scales and rounds in place what it is handed."""
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    before = {name: tensor.clone() for name, tensor in named_state(model).items()}
    to_ctranslate2(tmp_path / "out", model, tokenizer, tokenizer, quantization)
    for name, tensor in named_state(model).items():
        assert torch.equal(tensor, before[name]), name


@pytest.fixture
def used(monkeypatch):
    """How many sentences CTranslate2 is given, a number for each of its calls."""
    counts, search = [], engine_module.CTranslate2Engine.search

    def spy(self, sources, *rest):
        counts.append(len(sources))
        return search(self, sources, *rest)

    monkeypatch.setattr(engine_module.CTranslate2Engine, "search", spy)
    return counts


def test_the_search_is_ours_unless_the_other_is_asked_for(words, used, searched):
    ours, theirs = Translator(toy(7, 7), words, words), both(toy(7, 7), words, words)[1]
    ours.translate(["a dog"] * 500, beam=1)
    assert (used, sum(searched)) == ([], 500)
    theirs.translate(["a dog"], beam=1)
    assert used == [1]


def test_a_translation_with_a_prefix_is_left_to_us(words, used):
    ours, theirs = both(toy(7, 7), words, words)
    assert theirs.translate(["a dog"], prefix="dog") == ours.translate(["a dog"], prefix="dog")
    assert not used


@pytest.mark.parametrize("case", ["variant", "other part", "missing"])
def test_what_it_cannot_do_is_said_at_once(case, words, monkeypatch):
    monkeypatch.setattr("annotated.transformer.variants.VARIANTS", {"paper": Parts})
    variant("sine")(type("Sine", (Parts,), {"norm": lambda self: nn.Tanh()}))
    model = toy(7, 7, **({"variant": "sine"} if case == "variant" else {}))
    if case == "other part":
        model.encoder.layers[0].feed_forward.activation = torch.sin
    if case == "missing":
        monkeypatch.setitem(sys.modules, "ctranslate2", None)
    says = {"variant": "not the variant", "other part": "would not come back", "missing": "pip install"}
    with pytest.raises((ValueError, ImportError), match=says[case]):
        Translator(model, words, words, engine="ctranslate2")
