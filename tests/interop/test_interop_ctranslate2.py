"""CTranslate2: its engine scores and translates as our model and our search do."""

from functools import partial

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, logits, subwords, taught, toy

from annotated.data import load_corpus
from annotated.interop import CTranslate2Translator, to_ctranslate2
from annotated.interop.ctranslate2 import INT8
from annotated.metrics import bleu
from annotated.tokenizers import WordTokenizer
from annotated.translation.evaluate import recorded
from annotated.translation.model_folder import weights
from annotated.translation.translator import Translator, load_pretrained

SENTENCES = [*ENGLISH, "a dog", "", "house runs the to sees cat a dog"]
SETTINGS = {
    "the paper's": {"tied_embeddings": "all"},
    "pre-norm, learned positions": {"norm_first": True, "positions": "learned", "max_len": 99},
    "GELU, one layer": {"activation": "gelu", "N": 1, "tied_embeddings": "target"},
    "swish, large eps": {"activation": "swish", "layer_norm_eps": 0.1, "tied_embeddings": "all"},
}


@pytest.fixture(scope="module", autouse=True)
def engine():
    return pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))


@pytest.fixture(scope="module", params=SETTINGS)
def pair(request, tmp_path_factory):
    """Our translator with random weights, and CTranslate2's of the same model."""
    settings = SETTINGS[request.param]
    joint = settings.get("tied_embeddings") == "all"
    src_tokenizer = subwords(ENGLISH, GERMAN) if joint else subwords(ENGLISH)
    tgt_tokenizer = src_tokenizer if joint else subwords(GERMAN)
    model = toy(len(src_tokenizer), len(tgt_tokenizer), **settings)
    folder = tmp_path_factory.mktemp("ct2") / "model"
    to_ctranslate2(folder, model, src_tokenizer, tgt_tokenizer)
    return Translator(model, src_tokenizer, tgt_tokenizer), CTranslate2Translator(folder)


def test_every_token_is_scored_alike(pair):
    """Its `score_batch` on given pairs: no search on either side."""
    ours, theirs = pair
    tgt_pieces = list(theirs.tgt_ids)
    tgt = torch.randint(4, len(tgt_pieces), (7,)).tolist()
    src = ours.src_tokenizer.encode(ENGLISH[1])
    scored = theirs.engine.score_batch([[theirs.src_pieces[i] for i in src]], [[tgt_pieces[i] for i in tgt]])
    said = logits(ours.model, torch.tensor([[*src, 1]]), torch.tensor([[0, *tgt]])).log_softmax(-1)
    expected = said[0].gather(1, torch.tensor([*tgt, 1]).unsqueeze(1)).flatten()
    torch.testing.assert_close(torch.tensor(scored[0].log_probs), expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def taught_pair(tmp_path_factory):
    """Both translators of a model that has learned something."""
    tokenizer = subwords(ENGLISH, GERMAN)
    model = taught(tokenizer)
    folder = tmp_path_factory.mktemp("taught") / "model"
    to_ctranslate2(folder, model, tokenizer, tokenizer)
    return Translator(model, tokenizer, tokenizer), CTranslate2Translator(folder)


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.0), (4, 0.0), (3, 0.6), (4, 1.0)])
def test_the_same_hypotheses(taught_pair, beam, alpha):
    ours, theirs = taught_pair
    expected = ours.search(SENTENCES, beam=beam, alpha=alpha, penalty="power")
    for mine, (tokens, score) in zip(expected, theirs.search(SENTENCES, beam, alpha), strict=True):
        assert tokens == (mine[0].tokens if mine else ())
        assert score == pytest.approx(mine[0].score if mine else 0.0, abs=1e-5)
    assert len({mine[0].tokens for mine in expected if mine}) > 2


def test_the_shipped_model_on_the_test_set(multi30k_folder, one_thread, tmp_path):
    ours = load_pretrained("multi30k-en-de")
    parts = ours.model, ours.src_tokenizer, ours.tgt_tokenizer
    text = load_corpus("multi30k", "en-de")["test_2016_flickr"]
    to_ctranslate2(tmp_path / "float32", *parts)
    theirs = CTranslate2Translator(tmp_path / "float32")
    found = theirs.search(text.src, 5, 0.0)
    mine = [best for best, *_ in ours.search(text.src[:300], 5, 0.0)]  # those that the other has in a second
    same = [(h, score) for h, (tokens, score) in zip(mine, found, strict=False) if h.tokens == tokens]
    assert len(same) >= 0.99 * len(mine)
    assert all(abs(h.score - score) < 1e-3 for h, score in same)
    to_ctranslate2(tmp_path / "int8", *parts, quantization="int8")
    rounded = CTranslate2Translator(tmp_path / "int8").search(text.src, 5, 0.0)
    exact, cheap = (
        bleu([ours.tgt_tokenizer.decode(tokens) for tokens, _ in side], text.tgt).value
        for side in (found, rounded)
    )
    # Without VNNI sums are cut off as well, which was measured; kernels of one kind are within 0.02 BLEU.
    costs = [
        each["float32"] - each["int8"]
        for each in recorded("quantization")["scores"]
        if (each["model"], each["split"]) == ("multi30k-en-de", "test_2016_flickr")
    ]
    assert abs(exact - cheap) < max(costs) + 0.1


def test_what_is_told_of_int8_is_what_was_recorded():
    costs = {"VNNI": 0.0, "AVX2": 0.0}
    for each in recorded("quantization")["scores"]:
        kind = each["instructions"]
        costs[kind] = max(costs[kind], each["float32"] - each["int8"])
    assert INT8.endswith(f"up to {costs['AVX2']:.1f} BLEU without, {costs['VNNI']:.1f} with it")


def test_text_in_text_out(taught_pair):
    ours, theirs = taught_pair
    found = theirs.translate(SENTENCES)
    assert found == ours.translate(SENTENCES, penalty="power")
    assert found[:3] == GERMAN
    assert found[4] == ""
    assert theirs.translate([]) == []


def test_the_same_limit_to_sentences_that_do_not_end(pair):
    ours, theirs = pair
    sentences = [ENGLISH[0], ENGLISH[0][:9]]
    found = theirs.search(sentences, 1, 0.0)
    mine = [best for [best] in ours.search(sentences, 1, 0.0)]
    assert [tokens for tokens, _ in found] == [best.tokens for best in mine]
    sources = [ours.src_tokenizer.encode(text) for text in sentences]
    assert [len(tokens) for tokens, _ in found] == [len(source) + 50 for source in sources]
    assert len(sources[0]) > len(sources[1])
    for source, best, (_, score) in zip(sources, mine, found, strict=True):
        said = logits(ours.model, torch.tensor([[*source, 1]]), torch.tensor([[0, *best.tokens]]))
        end = said[0, -1].log_softmax(-1)[1].item()  # ours has to end there, theirs is cut off
        assert score + end == pytest.approx(best.score, abs=1e-3)


@pytest.mark.parametrize("settings", [{"positions": "learned", "max_len": 30}, {}], ids=str)
def test_a_source_longer_than_the_table_of_positions_is_cut_or_refused_by_both(settings, tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    model, most = toy(7, 7, **settings), settings.get("max_len", 1024)
    to_ctranslate2(tmp_path / "out", model, words, words)
    fits, longer = "dog " * (most - 1), "dog " * most  # and the end symbol
    says = f"line 2 has {most + 1:,} tokens, but max_source is {most:,}"
    found = []
    for build in (partial(Translator, model, words, words), partial(CTranslate2Translator, tmp_path / "out")):
        translator = build(max_length=70)
        with pytest.warns(UserWarning, match=says):
            found.append([translator.translate([fits, text], 1, 0.0) for text in (fits, longer)])
        with pytest.raises(ValueError, match=says):
            build(too_long="refuse").translate([fits, longer], 1, 0.0)
    assert found[0] == found[1]
    assert found[0][0] == found[0][1]
    assert CTranslate2Translator(tmp_path / "out", max_source=most + 1).limits.max_source == most


def test_all_of_a_long_source_is_read(tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    model = toy(7, 7, positions="learned", max_len=1100)
    with torch.no_grad():
        model.generator.proj.bias[1] += 100
        model.generator.proj.bias[4] += 99
    to_ctranslate2(tmp_path / "out", model, words, words)
    texts = ["a dog " * 520 + last for last in ("runs", "dog", "a a a")]
    found = CTranslate2Translator(tmp_path / "out", max_source=1100).search(texts, 1, 0.0)
    mine = [best for [best] in Translator(model, words, words, max_source=1100).search(texts, 1, 0.0)]
    assert [score for _, score in found] == pytest.approx([best.log_prob for best in mine], abs=1e-3)
    assert len({score for _, score in found}) == 3


def test_a_translation_ends_where_it_is_told_to_on_both_sides(tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    model = toy(7, 7)
    with torch.no_grad():
        model.generator.proj.bias[1] -= 100
    to_ctranslate2(tmp_path / "out", model, words, words)
    [(tokens, _)] = CTranslate2Translator(tmp_path / "out", max_length=9).search(["a dog"], 1, 0.0)
    [[best]] = Translator(model, words, words, max_length=9).search(["a dog"], 1, 0.0)
    assert tokens == best.tokens
    assert len(tokens) == 8  # and the end symbol


def test_tokens_that_are_never_taken_are_struck_out(tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    model = toy(7, 7)
    with torch.no_grad():
        model.generator.proj.bias[[0, 2]] += 50
    to_ctranslate2(tmp_path / "out", model, words, words)
    texts = ["a dog runs", "a", "dog dog a"]
    found = CTranslate2Translator(tmp_path / "out").search(texts, beam=1)
    assert [tokens for tokens, _ in found] == [
        best.tokens for [best] in Translator(model, words, words).search(texts, 1, penalty="power")
    ]
    assert all({0, 2}.isdisjoint(tokens) for tokens, _ in found)


def test_a_translation_may_be_empty(tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    model = toy(7, 7)
    with torch.no_grad():
        model.generator.proj.bias[1] += 100
    to_ctranslate2(tmp_path / "out", model, words, words)
    assert CTranslate2Translator(tmp_path / "out").search(["a dog"]) == [((), pytest.approx(0.0, abs=1e-3))]


@pytest.mark.parametrize("quantization", ["float32", "float16", "bfloat16", "int16", "int8"])
def test_our_model_stays_as_it_was(quantization, tmp_path):
    """CTranslate2 scales and rounds in place what it is handed."""
    tokenizer = subwords(ENGLISH, GERMAN)
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    to_ctranslate2(tmp_path / "out", model, tokenizer, tokenizer, quantization)
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, before[name]), name


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    words = WordTokenizer(["a", "dog", "runs"], None)
    with pytest.raises(ValueError, match=r"quantization must be one of .*, not 'int4'"):
        to_ctranslate2(tmp_path / "out", toy(7, 7), words, words, "int4")
    with pytest.raises(ValueError, match="a tokenizer of 7 tokens for a model of 8"):
        to_ctranslate2(tmp_path / "out", toy(8, 7), words, words)
    twice = WordTokenizer(["a", "<s>"], None)
    with pytest.raises(ValueError, match="'<s>' is in the vocabulary twice"):
        to_ctranslate2(tmp_path / "out", toy(6, 6), twice, twice)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("content", [b"[]", b'{"a": 1}'])
def test_a_vocabulary_that_is_not_the_tokenizers_is_named(joint, content, tmp_path):
    src = WordTokenizer(["a", "dog", "runs"], None)
    tgt = src if joint else WordTokenizer(["ein", "Hund", "rennt"], None)
    to_ctranslate2(tmp_path / "out", toy(7, 7), src, tgt)
    CTranslate2Translator(tmp_path / "out")
    for path in (tmp_path / "out").glob("*_vocabulary.json"):
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(ValueError, match=path.name):
            CTranslate2Translator(tmp_path / "out")
        path.write_bytes(before)
