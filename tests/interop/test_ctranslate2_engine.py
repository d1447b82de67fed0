"""`Translator(..., engine="ctranslate2")` finds what our own search finds, and says where it cannot."""

import subprocess
import sys

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, subwords, taught, toy
from nasty_text import NASTY

from annotated.data import load_corpus
from annotated.interop import ctranslate2_engine, from_hub
from annotated.tokenizers import SPECIALS, WordTokenizer
from annotated.transformer.layers import LearnedPositions
from annotated.translation import translator as translating
from annotated.translation.attention_maps import capture_attention
from annotated.translation.model_folder import save_model
from annotated.translation.translator import Translator, load_pretrained

pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))

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
}


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache folder of these tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr(ctranslate2_engine, "cache_folder", folder.joinpath)
        yield folder / "ctranslate2"


def both(*parts, **options):
    """Our translator, and the same with CTranslate2's engine."""
    return Translator(*parts, **options), Translator(*parts, engine="ctranslate2", **options)


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
    return both(model, tokenizer, tokenizer, max_length=40)


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


def test_text_comes_out_the_same(learned):
    ours, theirs = learned
    assert theirs.translate(SENTENCES, max_tokens=50) == ours.translate(SENTENCES)
    assert theirs(ENGLISH[0]) == GERMAN[0]
    texts, scores = zip(*theirs.n_best("a dog", 3), strict=True)
    assert (list(texts), list(scores)) == (
        [text for text, _ in ours.n_best("a dog", 3)],
        pytest.approx([score for _, score in ours.n_best("a dog", 3)], abs=1e-3),
    )


@pytest.mark.parametrize("search", [{}, {"beam": 1}, {"alpha": 0.0}], ids=str)
def test_ctranslate2_does_it_where_sentences_end(search, learned, searched):
    ours, theirs = learned
    theirs.translate(ENGLISH, **search)
    assert searched == []
    ours.translate(ENGLISH, **search)
    assert searched == [3]


def test_the_shipped_model(multi30k_folder, searched):
    ours, theirs = load_pretrained("multi30k-en-de"), load_pretrained("multi30k-en-de", engine="ctranslate2")
    text = load_corpus("multi30k", "en-de")["test_2016_flickr"].src[:200]
    found = theirs.search(text)
    assert sum(searched) <= 2
    pairs = list(zip(ours.search(text), found, strict=True))
    same = [(a.score, b.score) for [a], [b] in pairs if a.tokens == b.tokens]
    assert len(same) >= 0.99 * len(text)  # equally good ones may change places
    assert all(a == pytest.approx(b, abs=1e-3) for a, b in same)


def test_the_same_limits(tokenizer):
    model = toy(len(tokenizer), len(tokenizer))
    with torch.no_grad():
        model.generator.proj.bias[tokenizer.end] -= 100  # none ends by itself
    ours, theirs = both(model, tokenizer, tokenizer, max_source=5, max_length=7)
    with pytest.warns(UserWarning, match="line 1 has"):
        found = theirs.search(ENGLISH)
    assert [len(best.tokens) for [best] in found] == [6, 6, 6]
    with pytest.warns(UserWarning, match="line 1 has"):
        check_equal(ours.search(ENGLISH), found)


@pytest.mark.parametrize("limits", [{"max_source": 1}, {"max_length": 1}], ids=str)
@pytest.mark.filterwarnings("ignore:.*max_source:UserWarning")
def test_the_narrowest_limits(limits, tokenizer):
    ours, theirs = both(taught(tokenizer, 1), tokenizer, tokenizer, **limits)
    check_equal(ours.search(["a dog"]), theirs.search(["a dog"]))


def test_a_source_beyond_the_table_of_positions():
    words = WordTokenizer(["a", "dog", "runs"], None)
    model = toy(7, 7)
    with torch.no_grad():
        model.generator.proj.bias[1] += 3
    ours, theirs = both(model, words, words, max_source=1100)
    texts = ["a dog " * 520 + last for last in ("runs", "dog")]
    check_equal(ours.search(texts, 1), theirs.search(texts, 1))


def test_a_source_between_two_symbols():
    words = WordTokenizer(["a", "dog", "runs"], None, before=(0,))
    bare = WordTokenizer(["a", "dog", "runs"], None, after=())
    model = toy(7, 7)
    with torch.no_grad():
        model.generator.proj.bias[1] += 2
        model.generator.proj.bias[[0, 2]] -= 50
    for src_tokenizer in (words, bare):
        ours, theirs = both(model, src_tokenizer, words)
        texts = ["a dog", "dog", "runs a cat"]
        check_equal(ours.search(texts), theirs.search(texts))


def test_tokens_that_are_never_taken(tokenizer):
    model = toy(len(tokenizer), len(tokenizer))
    with torch.no_grad():
        model.generator.proj.bias[[0, 2]] += 50
        model.generator.proj.bias[1] += 45
    ours, theirs = both(model, tokenizer, tokenizer)
    check_equal(ours.search(ENGLISH), theirs.search(ENGLISH))


def test_attention_is_our_models(learned):
    ours, theirs = learned
    assert torch.equal(theirs.attention("a dog").maps["cross", 0], ours.attention("a dog").maps["cross", 0])
    with capture_attention(theirs.model) as maps:
        theirs(ENGLISH[0])
    assert maps["cross", 0].shape[1] == theirs.model.config.h


def test_int8_is_smaller_and_nearly_the_same(learned, tokenizer):
    _, theirs = learned
    rounded = Translator(theirs.model, tokenizer, tokenizer, engine="ctranslate2", quantization="int8")
    assert rounded.translate(ENGLISH) == GERMAN
    scores = [[best.score for [best] in each.search(ENGLISH)] for each in (theirs, rounded)]
    assert scores[0] != scores[1]
    # With VNNI within 0.1 nats a sentence; without it sums are cut off as well, which cost up to 0.83.
    assert scores[0] == pytest.approx(scores[1], abs=1.5)


# ---- the cache


def entries(cache):
    """What is in the cache: nothing half-written."""
    found = sorted(cache.iterdir())
    assert not [path for path in found if path.name.startswith(".")]
    return found


@pytest.fixture
def words():
    return WordTokenizer(["a", "dog", "runs"], None)


@pytest.fixture
def fresh(cache, monkeypatch, tmp_path):
    """An empty cache, and how often something is converted."""
    calls, convert = [], ctranslate2_engine.to_ctranslate2
    monkeypatch.setattr(ctranslate2_engine, "cache_folder", tmp_path.joinpath)
    monkeypatch.setattr(
        ctranslate2_engine, "to_ctranslate2", lambda *args: calls.append(args) or convert(*args)
    )
    return tmp_path / "ctranslate2", calls


def test_a_model_is_converted_once(fresh, words):
    cache, calls = fresh
    model = toy(7, 7)
    for wanted in (1, 1):
        Translator(model, words, words, engine="ctranslate2")
        assert (len(entries(cache)), len(calls)) == (wanted, wanted)
    Translator(toy(7, 7), words, words, engine="ctranslate2")  # equal weights
    assert len(calls) == 1


def test_other_weights_settings_words_or_numbers_are_converted_anew(fresh, words):
    cache, calls = fresh
    others = WordTokenizer(["a", "dog", "walks"], None)
    framed = WordTokenizer(["a", "dog", "runs"], None, before=(0,))
    model = toy(7, 7)
    Translator(model, words, words, engine="ctranslate2")
    with torch.no_grad():
        model.generator.proj.bias[5] += 1e-3
    Translator(model, words, words, engine="ctranslate2")
    Translator(model, words, others, engine="ctranslate2")
    Translator(model, framed, words, engine="ctranslate2")
    Translator(toy(7, 7, layer_norm_eps=0.1), words, words, engine="ctranslate2")
    Translator(model, words, words, engine="ctranslate2", quantization="int8")
    assert len(entries(cache)) == len(calls) == 6


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "add"])
def test_a_damaged_cache_is_made_again(damage, fresh, words):
    cache, calls = fresh
    model = toy(7, 7)
    expected = Translator(model, words, words, engine="ctranslate2").search(["a dog runs"])
    [folder] = entries(cache)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"model.bin", "sha256.json", "config.json"} <= {path.name for path in files}
    for done, path in enumerate(files, start=1):
        content = path.read_bytes()
        if damage == "flip":
            path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        elif damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "remove":
            path.unlink()
        else:
            path.with_name("surplus" + path.name).write_bytes(b"")
            if path.parent == folder:
                path.write_bytes(b"{}")
        found = Translator(model, words, words, engine="ctranslate2").search(["a dog runs"])
        assert found == expected
        assert len(calls) == 1 + done, path
        assert entries(cache) == [folder]


PROCESS = """
import sys
from pathlib import Path
from annotated.interop import ctranslate2_engine
from annotated.translation.translator import Translator
ctranslate2_engine.cache_folder = Path(sys.argv[2]).joinpath
sys.stdin.readline()
for _ in range(3):
    print(Translator.load(sys.argv[1], engine="ctranslate2")("a dog runs"))
"""


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_that_convert_at_once_do_not_mix(damaged, fresh, words, tmp_path):
    cache, _ = fresh
    save_model(tmp_path / "model", toy(7, 7), words, words)
    expected = Translator.load(tmp_path / "model")("a dog runs")
    if damaged:
        Translator.load(tmp_path / "model", engine="ctranslate2")
        [folder] = entries(cache)
        (folder / "model" / "model.bin").write_bytes(b"")
    command = [sys.executable, "-c", PROCESS, tmp_path / "model", tmp_path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert out.splitlines() == [expected] * 3
        assert process.returncode == 0
    [folder] = entries(cache)
    assert {path.name for path in folder.iterdir()} == {"model", "sha256.json"}


# ---- how it is asked for, and what it refuses


def test_a_folder_by_name_and_from_the_hub(words, tmp_path):
    save_model(tmp_path, toy(7, 7), words, words)
    expected = Translator.load(tmp_path)("a dog")
    for load in (Translator.load, from_hub):
        found = load(tmp_path, engine="ctranslate2", quantization="int8", max_length=9)
        assert found.limits.max_length == 9
        assert "by CTranslate2" in repr(found)
        assert "int8" in repr(found)
    assert from_hub(tmp_path, engine="ctranslate2", max_length=9)("a dog") == Translator.load(
        tmp_path, max_length=9
    )("a dog")
    assert Translator.load(tmp_path, engine="pytorch")("a dog") == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "onnx"}, "engine must be pytorch or ctranslate2, not 'onnx'"),
        ({"engine": None}, "engine must be pytorch or ctranslate2, not None"),
        ({"quantization": "int8"}, "quantization='int8' takes engine='ctranslate2'"),
        (
            {"engine": "ctranslate2", "quantization": "int4"},
            "quantization must be one of .*, not 'int4'",
        ),
    ],
    ids=str,
)
def test_what_is_unknown_is_refused(options, says, words, fresh):
    with pytest.raises(ValueError, match=says):
        Translator(toy(7, 7), words, words, **options)
    assert not list(fresh[0].glob("*"))


def test_a_model_elsewhere_or_of_other_parts_is_refused(words, fresh):
    with pytest.raises(ValueError, match="computes on the CPU, but the model is on meta"):
        Translator(toy(7, 7).to("meta"), words, words, engine="ctranslate2")
    model = toy(7, 7)
    model.src_embed[1] = LearnedPositions(16, 0.0, 99)
    with pytest.raises(ValueError, match=r"src_embed.1: its class is LearnedPositions"):
        Translator(model, words, words, engine="ctranslate2")
    twice = WordTokenizer(["a", SPECIALS[0], "b"], None)
    with pytest.raises(ValueError, match="in the vocabulary twice"):
        Translator(toy(7, 7), twice, twice, engine="ctranslate2")
    assert not list(fresh[0].glob("*"))


def test_a_missing_library_is_one_line(words, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError) as caught:
        Translator(toy(7, 7), words, words, engine="ctranslate2")
    assert str(caught.value) == MISSING.format("ctranslate2")


def test_who_does_not_ask_for_it_does_not_load_it(tmp_path, words):
    save_model(tmp_path, toy(7, 7), words, words)
    code = f"""import sys
from annotated import Translator
Translator.load({str(tmp_path)!r})("a dog")
print(*sys.modules)"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"ctranslate2", "annotated.interop"} & set(loaded.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"penalty": "none"}, "penalty must be 'gnmt' or 'power', not 'none'"),
        ({"alpha": 10**9}, "alpha must be smaller than"),
        ({"beam": 0}, "beam must be at least 1"),
        ({"beam": 2.5}, "beam must be a whole number"),
    ],
    ids=str,
)
def test_impossible_searches_are_refused_alike(options, says, learned):
    with pytest.raises(ValueError, match=says):
        learned[1].translate(["a dog"], **options)


def test_numbers_of_numpy_are_numbers(learned):
    numpy = pytest.importorskip("numpy")
    found = learned[1].translate(ENGLISH, beam=numpy.int64(2), alpha=numpy.float32(0.5))
    assert found == learned[0].translate(ENGLISH, beam=2, alpha=0.5)


def test_lines_of_white_space_alone_and_none_at_all(learned):
    assert learned[1].translate([]) == []
    assert learned[1].translate(["", "  "]) == ["", ""]
