"""Text in, text out, whatever the text: one line in, one line out."""

import threading
import unicodedata
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from nasty_text import NASTY

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.tokenizers import SentencePieceTokenizer, WordTokenizer, normalize
from annotated.translation.translator import Translator


@pytest.fixture(scope="module")
def tokenizer():
    with pytest.warns(UserWarning, match="fewer"):
        return SentencePieceTokenizer.train(["the dog sees a cat", "the cat sees a dog"], 600)


@pytest.fixture(scope="module")
def translator(tokenizer):
    """An untrained model, but for a liking to end, which saves time."""
    torch.manual_seed(0)
    shape = TransformerConfig.base(len(tokenizer), len(tokenizer), N=1, d_model=8, d_ff=8, h=1, max_len=64)
    model = EncoderDecoder.from_config(shape).eval()
    with torch.no_grad():
        model.generator.proj.bias[tokenizer.end] += 3
    return Translator(model, tokenizer, tokenizer)


@pytest.fixture(scope="module")
def found(translator):
    return dict(zip(NASTY, translator.translate(NASTY.values(), beam=2), strict=True))


@pytest.mark.parametrize("name", NASTY)
def test_nasty_text_gives_one_line(name, found):
    assert "\n" not in found[name]
    assert "\r" not in found[name]
    found[name].encode()  # no lone surrogate comes out
    assert normalize(NASTY[name]) or found[name] == ""


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=12), max_size=5))
def test_any_lines_give_as_many(translator, lines):
    found = translator.translate(lines, beam=1)
    assert len(found) == len(lines)
    assert not set("\r\n") & set("".join(found))
    "".join(found).encode()


@pytest.mark.parametrize("beam", [1, 3])
def test_line_breaks_start_and_padding_are_never_written_however_likely(translator, tokenizer, beam):
    model = deepcopy(translator.model)
    breaks = [i for i in range(len(tokenizer)) if tokenizer.decode([i]) in ("\n", "\r")]
    assert len(breaks) == 2
    never = {*breaks, tokenizer.start, tokenizer.pad}
    with torch.no_grad():
        model.generator.proj.bias[list(never)] += 50
        model.generator.proj.bias[tokenizer.end] += 40  # next best, to save time
    found = Translator(model, tokenizer, tokenizer).search(["the dog", "a cat"], beam, n_best=beam)
    assert all(never.isdisjoint(h.tokens) for each in found for h in each)


def test_order_is_kept_and_neighbours_change_nothing(translator):
    sentences = ["a dog", "", "the cat sees a dog and a dog and a cat", "cat", "  ", "a dog"]
    together = translator.translate(sentences, beam=2, max_tokens=40)
    assert together == [translator(sentence, beam=2) for sentence in sentences]
    assert together[0] == together[-1] != together[2]
    assert together[1] == together[4] == ""
    assert translator.translate(iter(sentences), beam=2) == together
    assert translator.translate([]) == []


@pytest.mark.parametrize("wrong", [["a dog", None], ["a dog", float("nan")]])
def test_what_is_no_text_is_named(translator, wrong):
    with pytest.raises(ValueError, match=r"line 2 is a .*, not text"):
        translator.translate(wrong)
    with pytest.raises(ValueError, match="not set"):
        translator.translate({"a dog", "a cat"})


@pytest.mark.parametrize("wrong", [{"beam": 4.0}, {"beam": 2, "n_best": 2.0}])
def test_a_search_that_cannot_be_is_refused(translator, wrong):
    with pytest.raises(ValueError, match=f"{[*wrong][-1]}.* must be .*, not"):
        translator.search(["a dog"], **wrong)


def test_messages_name_lines_by_their_numbers(translator):
    with pytest.raises(ValueError, match="line 9 is"):
        translator.search(["a dog", None], numbers=np.array([4, 9]))
    with pytest.raises(ValueError, match="1 numbers for 2 sentences"):
        translator.search(["a dog", "a cat"], numbers=[4])


@pytest.mark.parametrize("beam", [1, 3])
def test_batches_side_by_side_give_what_they_give_in_turn(translator, one_thread, beam):
    sentences = [f"the dog sees a cat{' and a dog' * (i % 7)}" for i in range(40)]
    model = deepcopy(translator.model).train()
    model.src_embed[1].pe = model.src_embed[1].pe[:4]  # the first batches have to lengthen it, all at once
    model.src_embed[1].dropout.p = 0.9  # would be seen, were it on
    fresh = Translator(model, translator.src_tokenizer, translator.tgt_tokenizer)
    in_turn = translator.search(sentences, beam, n_best=beam, max_tokens=50)
    used = set()
    model.encoder.register_forward_pre_hook(lambda *_: used.add(threading.get_ident()))
    torch.set_num_threads(4)
    assert fresh.search(sentences, beam, n_best=beam, max_tokens=50) == in_turn
    assert used
    assert used.isdisjoint({threading.get_ident()})
    assert torch.get_num_threads() == 4
    assert model.training


@pytest.mark.parametrize(
    "sentences", ["a dog", b"a dog", pd.DataFrame({"en": ["a dog"]}), {"en": "a dog"}, None, 5], ids=type
)
def test_what_would_be_taken_for_a_list_is_refused(sentences, translator):
    with pytest.raises(ValueError, match="a list of sentences or one column"):
        translator.translate(sentences)


def test_text_that_looks_alike_is_read_alike(translator):
    plain = "Männer sehen Bäume."
    alike = "\ufeff" + unicodedata.normalize("NFD", plain).replace(" ", "\u00a0\u200b \t") + "\r\r\n"
    assert translator.encode(alike) == translator.encode(plain)
    assert translator.translate([alike]) == translator.translate([plain])
    maps = (translator.attention(text, "a cat").maps["cross", 0] for text in (alike, plain))
    assert torch.equal(*maps)


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_that_are_no_numbers_are_an_error_rather_than_an_empty_line(translator, beam):
    model = deepcopy(translator.model)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.fill_(1e30)  # finite, but no product of two is
    large = Translator(model, translator.src_tokenizer, translator.tgt_tokenizer)
    with pytest.raises(ValueError, match="the scores are not finite"):
        large.translate(["", "a dog"], beam, numbers=[11, 12])
    assert large.translate(["", " "], beam) == ["", ""]


def test_attention_stands_on_its_tokens(translator):
    seen = translator.attention("the dog", "a cat")
    pieces, ids = translator.tgt_tokenizer.pieces, translator.src_tokenizer.encode("the dog")
    assert seen.src_tokens == pieces([*ids, 1])
    assert seen.tgt_tokens == pieces([0, *translator.tgt_tokenizer.encode("a cat")])
    assert set(seen.maps) == {("encoder", 0), ("decoder", 0), ("cross", 0)}
    for (kind, _), weights in seen.maps.items():
        queries = seen.src_tokens if kind == "encoder" else seen.tgt_tokens
        keys = seen.tgt_tokens if kind == "decoder" else seen.src_tokens
        assert weights.shape == (1, len(queries), len(keys))
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, len(queries)))
    assert (seen.maps["decoder", 0].triu(1) == 0).all()
    assert len(translator.attention("", "").src_tokens) == 1


def test_each_call_warns_of_its_own_text(tokenizer, translator):
    short = Translator(translator.model, tokenizer, tokenizer, max_source=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as in a user's session: once for the same words in the same line
        for sentence in ("the dog sees a cat", "the cat sees a dog") * 2:
            short(sentence)
    assert sum("max_source is 3" in str(warning.message) for warning in caught) == 4


def test_n_best_are_different_the_best_first(translator):
    found = translator.n_best("the dog", 3)
    assert len(found) == 3
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert found[0][0] == translator.translate(["the dog"], beam=3)[0]
    assert translator.n_best("the dog", 2, beam=3) == found[:2]
    assert translator.n_best(" ") == []


def test_one_translation_a_sentence_does_not_ask_for_more(translator):
    for ask in (translator, lambda text, n_best: translator.translate([text], n_best=n_best)):
        with pytest.raises(ValueError, match=r"n_best has no effect .* `search`"):
            ask("the dog", n_best=3)


def test_a_prefix_begins_every_translation(translator):
    found = translator.translate(["the dog", "", "a cat sees"], beam=2, prefix="the cat")
    assert found[1] == ""
    assert all(line.startswith("the cat") for line in (found[0], found[2]))


def test_tokenizers_of_another_size_are_refused(translator):
    with pytest.raises(ValueError, match="for a model of"):
        Translator(translator.model, translator.src_tokenizer, WordTokenizer(["a"], None))


def test_a_model_put_together_by_hand_translates(translator):
    m = translator.model
    by_hand = EncoderDecoder(m.encoder, m.decoder, m.src_embed, m.tgt_embed, m.generator)
    assert Translator(by_hand, translator.src_tokenizer, translator.tgt_tokenizer)("the dog") == translator(
        "the dog"
    )


def test_a_copy_of_a_translator_leaves_the_other_engine_behind(translator):
    used = Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer)
    used.ctranslate2 = threading.Lock()  # stands for what cannot be copied
    assert deepcopy(used)("the dog") == translator("the dog")
