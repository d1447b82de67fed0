"""No sentence, setting or thread makes a translation longer than it may be: counted in tokens and steps."""

import pytest
import torch

from annotated.batches import padding_mask
from annotated.search.beam import beam_search
from annotated.search.greedy import greedy_decode
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.cli.main import main
from annotated.translation.storage.model_folder import load_model
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator

WORDS = [f"w{i}" for i in range(8)]
SHAPE = {"N": 1, "d_model": 8, "d_ff": 8, "h": 2, "dropout": 0.0}
LEARNED = {"positions": "learned", "max_len": 20}
START, END, PAD = 0, 1, 2


def endless(**settings):
    """A model that would never end by itself."""
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(TransformerConfig.base(12, 12, **SHAPE, **settings)).eval()
    with torch.no_grad():
        model.generator.proj.bias[END] -= 100
    return model


@pytest.fixture
def words():
    return WordTokenizer(WORDS, None)


@pytest.fixture
def build(words):
    return lambda settings=None, **limits: Translator(endless(**(settings or {})), words, words, **limits)


def counted(model):
    """The source positions that are encoded, and the steps of the search, as the model works."""
    sources, steps = [], []
    model.encoder.register_forward_pre_hook(lambda _, inputs: sources.append(inputs[0].size(1)))
    model.decoder.register_forward_pre_hook(lambda _, inputs: steps.append(inputs[0].size(1)))
    return sources, steps


@pytest.mark.parametrize("beam", [1, 3])
def test_no_line_makes_more_work_than_the_limits_allow(build, beam):
    translator = build(max_source=30, max_target=40)
    sources, steps = counted(translator.model)
    with pytest.warns(UserWarning, match="line 2 has 5,001 tokens, but max_source is 30"):
        found = translator.search(["w1 w2", "w1 " * 5000], beam, n_best=1)
    assert sources == [30]
    assert len(steps) == 40
    assert [len(best.tokens) + 1 for [best] in found] == [40, 40]  # the end symbol counted; 3 + 50 is more


def test_a_batch_counts_each_source_once_for_every_beam(build):
    translator = build(max_target=3)
    sources, _ = counted(translator.model)
    translator.search(["w1 w2"] * 8, beam=2, max_tokens=24)  # each of them has 3 tokens
    assert len(sources) == 2


def test_a_translation_may_have_50_tokens_more_than_its_source(build):
    found = build().search(["w1 w2", "w1", "w1 w2 w3 w4"], beam=1)
    assert [len(best.tokens) + 1 for [best] in found] == [3 + 50, 2 + 50, 5 + 50]  # both ends counted


def test_a_line_is_cut_to_its_beginning_and_ended(build):
    translator = build(max_source=4)
    with pytest.warns(UserWarning, match="the sentence has 6 tokens"):
        assert translator.encode("w0 w1 w2 w3 w4") == [4, 5, 6, END]
    with pytest.warns(UserWarning, match="line 1 has 6 tokens"):
        assert translator("w0 w1 w2 w3 w4") == translator("w0 w1 w2")


@pytest.mark.parametrize("limits", [{"max_source": 0}, {"max_target": 1.5}, {"too_long": "skip"}])
def test_impossible_limits_are_refused(build, limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        build(**limits)


def test_a_prefix_is_one_text(build):
    with pytest.raises(TypeError, match="prefix is one text for every translation, not list"):
        build().translate(["w0"], prefix=["w1"])


def test_a_line_over_its_limit_can_be_refused(build):
    translator = build(max_source=4, too_long="refuse")
    _, steps = counted(translator.model)
    with pytest.raises(ValueError, match="line 3 has 6 tokens, but max_source is 4"):
        translator.translate(["w0", "", "w0 w1 w2 w3 w4"])
    with pytest.raises(ValueError, match="line 107 has 6 tokens"):
        translator.translate(["w0", "", "w0 w1 w2 w3 w4"], numbers=[101, 104, 107])  # of a table's rows
    assert not steps
    assert len(translator.translate(["w0 w1 w2"])) == 1


def test_a_search_ends_where_the_positions_do():
    model = endless(**LEARNED)
    src = torch.tensor([[5, 6, 7, 8, 9, END], [5, END, PAD, PAD, PAD, PAD]])
    found = beam_search(model, src, padding_mask(src, PAD), beam=2)
    assert [len(best.tokens) + 1 for [best] in found] == [20, 20]
    rows = greedy_decode(model, src, padding_mask(src, PAD), 99, START, END)
    assert rows.shape == (2, 21)  # the start symbol, and 20 tokens
    assert greedy_decode(model, src, None, 99, START).shape == (2, 21)


def test_a_translator_of_learned_positions_reads_no_more_than_there_are(build):
    translator = build(LEARNED)
    assert (translator.limits.max_source, translator.limits.max_target) == (20, 20)
    with pytest.warns(UserWarning, match="line 1 has 31 tokens, but max_source is 20"):
        [[best]] = translator.search(["w1 " * 30])
    assert len(best.tokens) + 1 == 20


def test_a_training_takes_just_the_pairs_that_fit(tmp_path):
    for first, name in enumerate(("src", "tgt", "val-src", "val-tgt")):  # four different texts
        lines = [" ".join(WORDS[(first + i) % 8] for i in range(length)) for length in range(1, 20)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    flags = [f"--{name}={tmp_path / name}" for name in ("src", "tgt", "val-src", "val-tgt")]
    flags += ["--positions=learned", "--max-len=9", "--N=1", "--d-model=8", "--d-ff=8", "--h=2"]
    flags += ["--tokenizer=spaces", "--max-steps=1", "--metric=bleu", f"--out={tmp_path / 'run'}"]
    assert main(["train", *flags]) == 0
    assert load_model(tmp_path / "run")[0].max_positions == 9
