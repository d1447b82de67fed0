"""Marian at Hugging Face, both ways: transformers' own model, tokenizer and greedy search are the oracle."""

import itertools

import pytest
import sentencepiece
import torch
from interop_models import ENGLISH, GERMAN, MISSING, logits, spm, subwords, toy
from safetensors.torch import load_file, save_file

from annotated.batches import padding_mask
from annotated.search.greedy import greedy_decode
from annotated.transformer.positions import sinusoids
from annotated.translation.files import read_json, write_json
from annotated.translation.interop import load_marian, to_marian
from annotated.translation.storage.model_folder import named_state
from annotated.translation.tokenizers import MarianTokenizer
from annotated.translation.translator import Translator

SENTENCES = ["the dog sees a cat", "a cat runs", "the house Ω runs", ">>de<< a dog"]
CONFIGURATIONS = {
    "opus-mt": {},
    "target's embeddings are the output's": {"share_encoder_decoder_embeddings": False},
    "nothing shared": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "separate": True},
    "a start symbol of its own": {"decoder_start_token_id": 3},
    "GELU, one head, odd width": {
        "activation_function": "gelu",
        "d_model": 15,
        "encoder_attention_heads": 1,
        "decoder_attention_heads": 1,
    },
    "ReLU, one layer": {"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 1},
}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason=MISSING.format("transformers"))


@pytest.fixture(scope="module")
def spms():
    return spm(ENGLISH), spm(GERMAN)


def pieces(model):
    """What a SentencePiece file cuts text into, its symbols left out."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, len(processor))]


def numbered(*sides):
    """A vocabulary as Marian numbers it: end and unknown first, padding last; 3 could begin translations."""
    found = dict.fromkeys(["</s>", "<unk>", ">>de<<", "<start>", *itertools.chain(*sides), "<pad>"])
    return {piece: i for i, piece in enumerate(found)}


def write_marian(folder, transformers, spms, separate=False, **settings):
    """A Marian model with random weights, saved by transformers; returns it with its tokenizer."""
    src, tgt = map(pieces, spms)
    joint = numbered(src, tgt)
    vocabularies = (joint, numbered(tgt)) if separate else (joint, joint)
    folder.mkdir(exist_ok=True)
    for name, content in zip(("source.spm", "target.spm"), spms, strict=True):
        (folder / name).write_bytes(content)
    for name, numbers in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=True):
        if separate or name == "vocab.json":
            write_json(folder / name, numbers)
    pad = vocabularies[1]["<pad>"]
    options = {
        "vocab_size": len(vocabularies[0]),
        "decoder_vocab_size": len(vocabularies[1]),
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "d_model": 16,
        "scale_embedding": True,
        "activation_function": "swish",
        "max_position_embeddings": 40,
        "init_std": 0.5,
    }
    for stack in ("encoder", "decoder"):
        options |= {f"{stack}_layers": 2, f"{stack}_ffn_dim": 24, f"{stack}_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.MarianConfig(**{**options, **settings})
    config.bos_token_id = None
    model = transformers.MarianMTModel(config).eval()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if "layer_norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(tensor, std=0.5)  # they begin as zeros and ones
    model.final_logits_bias[0, 0] -= 3  # or most sentences would end before they began
    model.generation_config.bad_words_ids = [[pad], *([[3]] if "decoder_start_token_id" in settings else [])]
    model.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
    )
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def case(request, transformers, spms, tmp_path_factory):
    """A Marian model and tokenizer, and what we make of them."""
    folder = tmp_path_factory.mktemp("marian")
    theirs = write_marian(folder, transformers, spms, **CONFIGURATIONS[request.param])
    return *theirs, *load_marian(folder)


def marian_numbers(hf, model, tokenizer):
    """For each of our target tokens Marian's number; the row made for padding has none."""
    numbers = hf.target_encoder if hf.separate_vocabs else hf.encoder
    c = model.config
    symbols = [c.decoder_start_token_id, c.eos_token_id, c.pad_token_id, numbers["<unk>"]]
    return symbols + [numbers[piece] for piece in tokenizer.vocabulary[4:]]


def test_the_source_is_cut_alike_and_logits_are_equal(case):
    model, hf, ours, src_tokenizer, tgt_tokenizer = case
    numbers = marian_numbers(hf, model, tgt_tokenizer)
    batch = hf(SENTENCES, return_tensors="pt", padding=True)
    translator = Translator(ours, src_tokenizer, tgt_tokenizer)
    src = translator.batch([translator.encode(sentence) for sentence in SENTENCES])
    names = {number: piece for piece, number in hf.encoder.items()}
    for row, ids in zip(src.tolist(), batch.input_ids.tolist(), strict=True):
        assert src_tokenizer.pieces(row)[: row.index(1)] == [names[i] for i in ids[: ids.index(0)]]
    tgt = torch.randint(4, len(tgt_tokenizer), (len(SENTENCES), 6))
    tgt[:, 0] = 0
    with torch.no_grad():
        said = model(**batch, decoder_input_ids=torch.tensor(numbers)[tgt]).logits
    apart = [i for i in range(len(numbers)) if i != 2]  # padding, which Marian has not or cannot say
    found = logits(ours, src, tgt)
    torch.testing.assert_close(found[..., apart], said[..., [numbers[i] for i in apart]], atol=1e-4, rtol=0)


def test_greedy_search_gives_the_same_tokens_and_text(case):
    model, hf, ours, src_tokenizer, tgt_tokenizer = case
    numbers = marian_numbers(hf, model, tgt_tokenizer)
    translator = Translator(ours, src_tokenizer, tgt_tokenizer)
    for sentence in SENTENCES:
        theirs = model.generate(**hf(sentence, return_tensors="pt"), max_new_tokens=16, num_beams=1)[0]
        src = translator.batch([translator.encode(sentence)])
        found = greedy_decode(ours, src, padding_mask(src, 2), 17, 0, 1, translator.forbidden)[0].tolist()
        assert [numbers[i] for i in found] == theirs.tolist()
        assert tgt_tokenizer.decode([*range(4), *found]) == hf.decode(theirs[1:], skip_special_tokens=True)


def test_it_can_be_written_back(case, transformers, tmp_path):
    *_, ours, src_tokenizer, tgt_tokenizer = case
    to_marian(tmp_path / "out", ours, src_tokenizer, tgt_tokenizer)
    again, src_again, _ = load_marian(tmp_path / "out")
    assert src_again.vocabulary == src_tokenizer.vocabulary
    for name, tensor in named_state(again).items():
        assert torch.equal(tensor, named_state(ours)[name])


OWN = {
    "all tied": ({"tied_embeddings": "all", "activation": "swish"}, True),
    "target tied": ({"tied_embeddings": "target", "activation": "gelu"}, False),
    "none tied, positions that grow": ({"tied_embeddings": "none", "d_model": 20, "max_len": 4}, False),
}


@pytest.mark.parametrize("name", OWN)
def test_transformers_loads_ours(name, transformers, tmp_path):
    settings, joint = OWN[name]
    src_tokenizer = subwords(ENGLISH, GERMAN) if joint else subwords(ENGLISH)
    tgt_tokenizer = src_tokenizer if joint else subwords(GERMAN)
    model = toy(len(src_tokenizer), len(tgt_tokenizer), **settings)
    translator = Translator(model, src_tokenizer, tgt_tokenizer)
    with torch.no_grad():
        model.generator.proj.bias[list(translator.forbidden)] += 50  # never written, however likely
    to_marian(tmp_path / "out", model, src_tokenizer, tgt_tokenizer)
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    hf = transformers.MarianTokenizer.from_pretrained(tmp_path / "out")
    sentences = [*ENGLISH, "a zebra, \u00e9t\u00e9!"]  # letters that only bytes can spell
    batch = hf(sentences, return_tensors="pt", padding=True)
    src = translator.batch([translator.encode(sentence) for sentence in sentences])
    assert torch.equal(batch.input_ids, src)
    tgt = torch.randint(4, len(tgt_tokenizer), (len(src), 5))
    with torch.no_grad():
        said = theirs(**batch, decoder_input_ids=tgt).logits
    torch.testing.assert_close(logits(model, src, tgt), said, atol=1e-4, rtol=0)
    found = greedy_decode(model, src, padding_mask(src, 2), 8, 0, 1, translator.forbidden)
    written = theirs.generate(**batch, num_beams=1, max_length=9)  # it ends the ninth by itself
    for mine, other in zip(found.tolist(), written.tolist(), strict=True):
        length = (mine.index(1) if 1 in mine else 7) + 1
        assert mine[:length] == other[:length]


@pytest.fixture
def tokenizer(spms):
    return MarianTokenizer(spms[0], ["<s>", "</s>", "<blank>", "<unk>", *pieces(spms[0])])


@pytest.fixture
def folder(tokenizer, tmp_path):
    """One that we wrote."""
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    to_marian(tmp_path / "m", model, tokenizer, tokenizer)
    return tmp_path / "m"


def in_config(**settings):
    return lambda folder: write_json(folder / "config.json", read_json(folder / "config.json") | settings)


def in_weights(change):
    def rewrite(folder):
        tensors = load_file(folder / "model.safetensors")
        save_file(change(tensors), folder / "model.safetensors")

    return rewrite


FC1 = "model.encoder.layers.1.fc1.weight"
POSITIONS = "model.encoder.embed_positions.weight"
REFUSED = {
    "pre-norm": in_config(normalize_before=True),
    "unscaled embeddings": in_config(scale_embedding=False),
    "learned positions": in_config(static_position_embeddings=False),
    "stacks of two heights": in_config(decoder_layers=1),
    "half-shared embeddings": in_config(tie_word_embeddings=False),
    "a start that ends": in_config(decoder_start_token_id=0, eos_token_id=0),
    "a tensor is missing": in_weights(lambda t: {name: x for name, x in t.items() if name != FC1}),
    "a tensor too many": in_weights(lambda t: t | {"extra": torch.ones(1)}),
    "two for one": in_weights(lambda t: t | {"lm_head.weight": t["model.shared.weight"] + 1}),
    "positions of its own": in_weights(lambda t: t | {POSITIONS: torch.ones(1024, 16)}),
    "not finite": in_weights(lambda t: t | {FC1: t[FC1] / 0}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_our_model_does_not_compute_is_refused(name, folder):
    REFUSED[name](folder)
    with pytest.raises((ValueError, RuntimeError)):
        load_marian(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nothing"):
        load_marian(tmp_path / "nothing")


def test_a_folder_without_tokenizers_is_told_what_it_lacks(folder):
    for name in ("source.spm", "target.spm", "vocab.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=r"must hold source\.spm, target\.spm and vocab\.json"):
        load_marian(folder)


def test_tensors_that_are_there_twice_or_can_be_made_are_fine(folder):
    """Older files hold the shared matrix under all its names, and the sinusoids."""
    before = load_marian(folder)[0]
    halves = torch.cat([torch.arange(0, 16, 2), torch.arange(1, 16, 2)])
    waves = sinusoids(1024, 16)[:, halves].contiguous()
    in_weights(lambda t: t | {"lm_head.weight": t["model.shared.weight"].clone(), POSITIONS: waves})(folder)
    again, _, _ = load_marian(folder)
    assert all(map(torch.equal, named_state(again).values(), named_state(before).values()))


NOT_MARIAN = {"norm_first": True, "positions": "learned", "layer_norm_eps": 1e-6}


@pytest.mark.parametrize("name", NOT_MARIAN)
def test_what_marian_has_not_is_not_written(name, tokenizer, tmp_path):
    model = toy(len(tokenizer), len(tokenizer), **{name: NOT_MARIAN[name]})
    with pytest.raises(ValueError, match=f"{name} is "):
        to_marian(tmp_path / "m", model, tokenizer, tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_vocabulary_is_refused(spms, tokenizer, tmp_path):
    for wrong in (["<s>", "</s>"], [*tokenizer.vocabulary, "x", "x"]):
        with pytest.raises(ValueError, match=r"must begin with|twice"):
            MarianTokenizer(spms[0], wrong)
    tokenizer.save(tmp_path, "t")
    (tmp_path / "t.model").write_bytes(b"other")
    with pytest.raises(ValueError, match="checksum differs"):
        MarianTokenizer.load(tmp_path, "t")
