"""The model in the page is the package's: the same pieces, tokens and scores.

The page's script runs in Node, which is asked for nothing else.
"""

import base64
import json
import os
import re
import unicodedata
from html import unescape
from itertools import chain, islice
from pathlib import Path

import pytest
import torch
from nasty_text import NASTY
from page_models import STRANGE, TEXTS, Ask, page_with, small_translator

from annotated.batches import padding_mask
from annotated.search.beam import beam_search
from annotated.transformer.variants import VARIANTS, Parts
from annotated.translation import watch as inside
from annotated.translation.data import multi30k
from annotated.translation.storage.model_folder import named_state, save_model
from annotated.translation.tokenizers import SentencePieceTokenizer, WordTokenizer, normalize
from annotated.translation.translator import Translator
from start_page import TRIES


def test_the_page_gets_every_weight_in_half_precision() -> None:
    translator = small_translator()
    model = inside.page_model(translator)
    packed = torch.frombuffer(bytearray(base64.b64decode(model["weights"])), dtype=torch.float16)
    tensors = named_state(translator.model)
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == model["tensors"]
    assert torch.equal(packed, torch.cat([tensor.detach().flatten() for tensor in tensors.values()]).half())


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"norm_first": True}, "norm_first=False, not True"),
        ({"activation": "gelu"}, "activation='relu', not 'gelu'"),
        ({"positions": "learned"}, "positions='sinusoidal', not 'learned'"),
        ({"tied_embeddings": "target"}, "tied_embeddings='all', not 'target'"),
        ({"variant": "mine"}, "variant='paper', not 'mine'"),
    ],
)
def test_a_model_that_the_page_cannot_run_is_refused(
    settings: dict, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, "mine", Parts)
    with pytest.raises(ValueError, match=fault):
        inside.page_model(small_translator(**settings))


def test_tokenizers_that_the_page_does_not_have_are_refused() -> None:
    translator = small_translator()
    words = WordTokenizer([f"w{i}" for i in range(len(translator.src_tokenizer) - 4)], None)
    other = SentencePieceTokenizer(translator.src_tokenizer.model)
    for pair in ((words, words), (translator.src_tokenizer, other), (words, other)):
        with pytest.raises(ValueError, match="one SentencePiece vocabulary"):
            inside.page_model(Translator(translator.model, *pair))
    with pytest.raises(ValueError, match="lower-cased"):
        inside.page_model(Translator(translator.model, *[translator.src_tokenizer] * 2, tokenized=True))


def test_weights_that_half_precision_cannot_hold_are_refused() -> None:
    translator = small_translator()
    with torch.no_grad():
        translator.model.generator.proj.bias[0] = 1e6
    with pytest.raises(ValueError, match="65504"):
        inside.page_model(translator)


def test_the_widget_is_one_frame_that_needs_nothing_else(recwarn: pytest.WarningsRecorder) -> None:
    translator = small_translator()
    page = unescape(re.search('srcdoc="([^"]*)"', inside.watch(translator, 'A "dog" runs.').data)[1])
    assert inside.model_script(translator) in page
    assert inside.script() in page
    assert 'data-sentence="A &quot;dog&quot; runs."' in page
    assert page.count("<script>") == page.count("</script>") == 2
    assert not re.search("""(src|href)=["']""", page.replace(inside.script(), ""))
    assert len(recwarn) == 0


@pytest.mark.parametrize("piece", ["</script><script>alert(1)</script>", "<!--<script>"])
def test_no_piece_ends_or_blanks_the_page(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    pieces = [*translator.src_tokenizer.scored_pieces()[:-1], (piece, -1.0)]
    monkeypatch.setattr(SentencePieceTokenizer, "scored_pieces", lambda _: pieces)
    script = inside.model_script(translator)
    assert "<" not in script
    assert json.loads(script.removeprefix("window.model = ").rstrip(";\n"))["pieces"][-1] == [piece, -1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_model_folder_is_read_as_the_package_reads_it(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = small_translator()
    save_model(tmp_path, saved.model.to(dtype), saved.src_tokenizer, saved.tgt_tokenizer)
    translator, ask = Translator.load(tmp_path), page_with(tmp_path)
    lines, paper = [*TEXTS, *STRANGE[:8]], {"beam": 4, "alpha": 0.6, "prefix": [], "leftOut": []}
    lines = list(map(normalize, lines))
    [found, *answers] = ask(
        ("settings", None), *[("translate", {"sentence": line, **paper}) for line in lines]
    )
    expected = json.loads(json.dumps(inside.page_model(translator)))
    assert found == expected | {"weights": None}
    for line, [best], answer in zip(lines, translator.search(lines), answers, strict=True):
        assert answer["ended"][0]["tokens"] == list(best.tokens), line
        assert answer["ended"][0]["score"] == pytest.approx(best.score, abs=1e-3)


def test_text_is_normalised_as_the_package_does(ask: Ask) -> None:
    unseen = [
        chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) in ("Cc", "Cf", "Zs", "Zl", "Zp")
    ]
    lines = [*STRANGE, *NASTY.values(), *unseen, *(f"a{one}\u0301{one} b" for one in unseen)]
    [found] = ask(("normalize", lines))
    assert found == list(map(normalize, lines))


def test_every_piece_is_the_tokenizers_own(shipped: Translator, ask: Ask) -> None:
    tokenizer = shipped.src_tokenizer
    ids = range(len(tokenizer))
    pieces = [tokenizer._processor.id_to_piece(i) for i in ids]
    [found, decoded] = ask(("pieces", None), ("decode", [[i] for i in ids]))
    assert found == pieces
    assert decoded == [tokenizer.decode([i]) for i in ids]
    texts = [text for text in decoded if text] + [f"a {text}b" for text in decoded]
    [encoded] = ask(("encode", texts))
    assert encoded == [tokenizer.encode(text) for text in texts]


def sentences() -> list[str]:
    """Sentences of all kinds, `ANNOTATED_SENTENCES` of them; without the corpus only the strange ones."""
    if not os.environ.get("ANNOTATED_DATA"):
        return STRANGE
    count = int(os.environ.get("ANNOTATED_SENTENCES", 50)) - len(STRANGE)
    corpus = multi30k("en-de")
    captions, german = corpus["test_2016_flickr"].src, corpus["val"].tgt
    kinds = zip(captions, captions[500:], (caption.upper() for caption in captions), german, strict=False)
    return [*STRANGE, *islice(chain.from_iterable(kinds), count)]


@pytest.mark.parametrize("beam", [1, 4])
def test_tokens_and_scores_are_the_packages(shipped: Translator, ask: Ask, beam: int) -> None:
    lines = sentences()
    settings = {"beam": beam, "alpha": 0.6, "prefix": [], "leftOut": []}
    lines = list(filter(None, map(normalize, lines)))
    found = ask(*[("translate", {"sentence": line, **settings}) for line in lines])
    expected = shipped.search(lines, beam=beam, alpha=0.6)
    for line, [best], answer in zip(lines, expected, found, strict=True):
        assert answer["source"] == shipped.encode(line)
        assert answer["ended"][0]["tokens"] == list(best.tokens), line
        assert answer["ended"][0]["score"] == pytest.approx(best.score, abs=1e-3)
        assert answer["ended"][0]["text"] == shipped.tgt_tokenizer.decode(best.tokens)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1, "alpha": 0.0},
        {"beam": 3, "alpha": 0.0},
        {"beam": 6, "alpha": 1.0},
        {"prefix": "Eine Frau"},
    ],
)
def test_the_whole_search_is_the_packages(shipped: Translator, ask: Ask, settings: dict) -> None:
    """Every hypothesis that ended, and every candidate of every step with its fate."""
    line = "A man sits on the bank of a river."
    begun = shipped.tgt_tokenizer.encode(settings.get("prefix", ""))
    options = {"beam": 4, "alpha": 0.6, **settings, "prefix": begun}
    [found] = ask(("translate", {"sentence": line, "leftOut": [], **options}))
    src = shipped.batch([shipped.encode(line)])
    steps = []
    [expected] = beam_search(
        shipped.model,
        src,
        padding_mask(src, shipped.src_tokenizer.pad),
        beam=options["beam"],
        alpha=options["alpha"],
        n_best=options["beam"],
        prefixes=[begun],
        forbidden=shipped.forbidden,
        on_step=lambda _, candidates: steps.append(candidates),
    )
    if options["beam"] == 1:  # with more, n_best lets the search go on for as many
        assert [one["tokens"] for one in found["ended"]] == [list(one.tokens) for one in expected]
    assert found["ended"][0]["tokens"] == list(expected[0].tokens)
    for step, candidates in zip(found["steps"], steps, strict=False):
        assert [(one["token"], one["fate"]) for one in step] == [(c.tokens[-1], c.fate) for c in candidates]
        assert [one["logProb"] for one in step] == pytest.approx([c.log_prob for c in candidates], abs=1e-3)


def test_what_the_page_offers_to_try_shows_what_it_says(shipped: Translator, ask: Ask) -> None:
    paper = {"beam": 4, "alpha": 0.6, "prefix": [], "leftOut": []}

    def ends(sentence: str, **changes: object) -> dict:
        [found] = ask(("translate", {"sentence": sentence, **paper, **changes}))
        return found["ended"][0]

    one, other = TRIES["positions"]
    assert sorted(shipped.encode(one)) == sorted(shipped.encode(other))
    assert ends(one)["text"] != ends(other)["text"]
    assert ends(one, leftOut=["positions"])["text"] == ends(other, leftOut=["positions"])["text"]
    greedy, wide = (ends(TRIES["beam"], beam=beam) for beam in (1, 4))
    assert greedy["text"] != wide["text"]
    assert greedy["logProb"] < wide["logProb"] - 0.5
    shorter, longer = (ends(TRIES["alpha"], alpha=alpha) for alpha in (0.6, 1.0))
    assert ends(TRIES["alpha"], alpha=0.0)["text"] == shorter["text"] != longer["text"]
    assert len(shorter["tokens"]) < len(longer["tokens"])
    assert shorter["logProb"] > longer["logProb"]
    pieces = [shipped.src_tokenizer._processor.id_to_piece(i) for i in shipped.encode(TRIES["pieces"])]
    words = TRIES["pieces"].rstrip(".").split()
    assert "".join(pieces[:-2]).split("\u2581")[1:] == words
    assert len(pieces) - 2 > len(words)


def test_a_sentence_that_is_offered_for_a_part_needs_it(shipped: Translator, ask: Ask) -> None:
    paper = {"beam": 4, "alpha": 0.6, "prefix": []}
    for sentence, parts in TRIES["parts"].items():
        requests = [{"sentence": sentence, **paper, "leftOut": left} for left in ([], *([p] for p in parts))]
        whole, *without = (
            found["ended"][0]["text"] for found in ask(*(("translate", one) for one in requests))
        )
        assert [part for part, text in zip(parts, without, strict=True) if text == whole] == []
