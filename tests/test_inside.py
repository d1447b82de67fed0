"""The model in the page is the package's: the same pieces, tokens, scores, and every stage on the way.

The page's script runs in Node, which is asked for nothing else.
"""

import base64
import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from copy import deepcopy
from itertools import chain, islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from annotated import inside
from annotated.attention import MultiHeadedAttention, capture_attention
from annotated.checkpoints import weights
from annotated.data import multi30k
from annotated.decoding import beam_search, greedy_decode
from annotated.layers import Embeddings, PositionalEncoding, SublayerConnection
from annotated.masks import padding_mask, subsequent_mask
from annotated.model import EncoderDecoder, Generator, TransformerConfig, evaluating
from annotated.tokenizers import SentencePieceTokenizer, WordTokenizer
from annotated.translator import Translator, load_pretrained
from start_page import SURE

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "annotated/inside/watch.js"
TEXTS = ["A dog runs.", "Ein Hund rennt.", "Two dogs\u00a0run over the bridge.", "Zwei Hunde laufen."]
STRANGE = [
    "1 2 3 4 5 6 7 8 9 10",
    "Two people with the number 999999",
    "A\u00a0dog\u00a0runs.",
    "  Two   dogs ",
    "A \u2581 \U0001f600 \ue000e",
    "A DOG IS RUNNING.",
    "Ein Hund läuft über die Straße.",
    "<b>A dog</b> & \"a cat\"",
    "犬が走る。",
    "\ufeffA dog.",
    "</s> <s> <unk> <0x41>",
    "A lone \ud800 surrogate",
    "a\tb",
    "x" * 60,
    "A man and " * 12,
]  # fmt: skip


def small_translator(**settings: object) -> Translator:
    torch.manual_seed(0)
    tokenizer = SentencePieceTokenizer.train(TEXTS * 5, 300)
    sizes = {"N": 2, "d_model": 12, "d_ff": 20, "h": 3, **settings}
    config = TransformerConfig(len(tokenizer), len(tokenizer), **sizes)
    model = EncoderDecoder.from_config(config)
    with torch.no_grad():  # no bias is zero any more
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    return with_half_weights(Translator(model, tokenizer, tokenizer))


def with_half_weights(translator: Translator) -> Translator:
    """Round the weights, and nothing else, to half precision, as the page has them."""
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.copy_(parameter.half())
    return translator


Ask = Callable[..., list]


def page(translator: Translator, folder: Path) -> Ask:
    """Write what the page gets, and return a function that asks the page in Node: (what, of what) pairs."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to run the page's script in")
    model = folder / "model.json"
    model.write_text(json.dumps(inside.page_model(translator)), encoding="utf-8")

    def ask(*requests: tuple[str, object]) -> list:
        lines = "\n".join(json.dumps({"ask": what, "of": of}) for what, of in requests)
        found = subprocess.run(
            [node, HERE / "page.js", SCRIPT, model],
            input=lines,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        return [json.loads(line) for line in found.stdout.splitlines()]

    return ask


@pytest.fixture(scope="module")
def shipped() -> Translator:
    """The shipped model as the page has it."""
    return with_half_weights(load_pretrained("multi30k-en-de"))


@pytest.fixture(scope="module")
def ask(shipped: Translator, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    return page(shipped, tmp_path_factory.mktemp("page"))


# What the page gets


def test_the_page_gets_every_weight_in_half_precision() -> None:
    translator = small_translator()
    model = inside.page_model(translator)
    packed = torch.frombuffer(bytearray(base64.b64decode(model["weights"])), dtype=torch.float16)
    tensors = weights(translator.model)
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == model["tensors"]
    assert torch.equal(packed, torch.cat([tensor.detach().flatten() for tensor in tensors.values()]).half())


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"norm_first": True}, "norm_first=False, not True"),
        ({"activation": "gelu"}, "activation='relu', not 'gelu'"),
        ({"positions": "learned"}, "positions='sinusoidal', not 'learned'"),
        ({"tied_embeddings": "target"}, "tied_embeddings='all', not 'target'"),
    ],
)
def test_a_model_that_the_page_cannot_run_is_refused(settings: dict, fault: str) -> None:
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
        inside.page_model(Translator(translator.model, *[translator.src_tokenizer] * 2, lower_cased=True))


def test_weights_that_half_precision_cannot_hold_are_refused() -> None:
    translator = small_translator()
    with torch.no_grad():
        translator.model.generator.proj.bias[0] = 1e6
    with pytest.raises(ValueError, match="65504"):
        inside.page_model(translator)


def test_a_model_too_large_for_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MOST", 1000)
    with pytest.raises(ValueError, match="at most 1,000 parameters"):
        inside.page_model(small_translator())


# Pieces


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


def test_bytes_that_form_no_character_are_read_alike(shipped: Translator, ask: Ask) -> None:
    tokenizer = shipped.src_tokenizer
    torn = [
        b"\xe2\x82",
        b"\xe2\x82\xac",
        b"\xf0\x9f\x98",
        b"\xf0\x9f\x98\x80",
        b"\xc3\xc3\xa4",
        b"\xff",
        b"\xe2a",
    ]
    rows = [[tokenizer._processor.piece_to_id(f"<0x{byte:02X}>") for byte in text] for text in torn]
    [found] = ask(("decode", rows))
    assert found == [tokenizer.decode(row) for row in rows]


# Translations


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
        watch=lambda _, candidates: steps.append(candidates),
    )
    if options["beam"] == 1:  # with more, n_best lets the search go on for as many
        assert [one["tokens"] for one in found["ended"]] == [list(one.tokens) for one in expected]
    assert found["ended"][0]["tokens"] == list(expected[0].tokens)
    for step, candidates in zip(found["steps"], steps, strict=False):
        assert [(one["token"], one["fate"]) for one in step] == [(c.tokens[-1], c.fate) for c in candidates]
        assert [one["logProb"] for one in step] == pytest.approx([c.log_prob for c in candidates], abs=1e-3)


def test_a_beam_of_one_is_greedy_decoding(shipped: Translator, ask: Ask) -> None:
    lines = sentences()[-20:]
    settings = {"beam": 1, "alpha": 0.6, "prefix": [], "leftOut": []}
    found = ask(*[("translate", {"sentence": line, **settings}) for line in lines])
    for line, answer in zip(lines, found, strict=True):
        src = shipped.batch([shipped.encode(line)])
        mask = padding_mask(src, shipped.src_tokenizer.pad)
        [row] = greedy_decode(shipped.model, src, mask, src.size(1) + 51, 0, 1, shipped.forbidden).tolist()
        assert [0, *answer["ended"][0]["tokens"]] == row[:-1]  # at its limit a search must end


def test_how_sure_the_page_calls_usual_is_so(shipped: Translator) -> None:
    """Of captions that it was made for, about one in ten gets less than the first, half the second."""
    if not os.environ.get("ANNOTATED_DATA"):
        pytest.skip("the corpus multi30k: ANNOTATED_DATA is not set")
    captions = multi30k("en-de")["test_2016_flickr"].src[500:600]
    ends = [best for [best] in shipped.search(captions)]
    sure = sorted(math.exp(end.log_prob / (len(end.tokens) + 1)) for end in ends)
    tenth, median = SURE
    assert 0.02 < sum(one < tenth for one in sure) / len(sure) < 0.25
    assert sure[50] == pytest.approx(median, abs=0.08)


# Every stage


LOWEST = torch.finfo(torch.float32).min  # in the place of minus infinity, which JSON lacks


def hooked(
    model: EncoderDecoder, source: list[int], target: list[int], causal: bool = True
) -> dict[str, Tensor]:
    """Every stage of a forward pass, caught by PyTorch's hooks: the layer's name -> (positions, values).

    In double precision: of two float32 results neither could be told right.
    """
    model = deepcopy(model).double()
    found: dict[str, Tensor] = {}
    inputs = {"linears.3": "heads", "w_2": "fired", "norm": "sum"}

    def catch(name: str, given: tuple[Tensor, ...], output: Tensor) -> None:
        found[name] = output[0]
        for own, stage in inputs.items():
            if name.endswith(own):
                found[name.removesuffix(own) + stage] = given[0][0]

    kinds = nn.Linear | nn.LayerNorm | Generator | Embeddings | PositionalEncoding
    handles = [
        module.register_forward_hook(lambda _, given, output, name=name: catch(name, given, output))
        for name, module in model.named_modules()
        if isinstance(module, kinds)
    ]
    mask = subsequent_mask(len(target)) if causal else None
    with evaluating(model), capture_attention(model) as maps:
        states = model(torch.tensor([source]), torch.tensor([target]), None, mask)
        model.generator(states)
    for handle in handles:
        handle.remove()
    for side, module in (("src_embed", model.src_embed[1]), ("tgt_embed", model.tgt_embed[1])):
        found[f"{side}.1.pe"] = module.pe[: len(found[f"{side}.0"])]
    names = {"encoder": "encoder.layers.{}.self_attn", "decoder": "decoder.layers.{}.self_attn"}
    names["cross"] = "decoder.layers.{}.src_attn"
    for (kind, layer), looked in maps.items():
        name = names[kind].format(layer)
        q, k = (found[f"{name}.linears.{i}"].unflatten(-1, (model.config.h, -1)) for i in (0, 1))
        products = torch.einsum("thd,shd->ths", q, k)
        scores = products / math.sqrt(q.size(-1))
        hidden = ~mask[0] if kind == "decoder" and causal else torch.zeros(len(q), len(k), dtype=torch.bool)
        stages = {"products": products, "scores": scores, "weights": looked[0].transpose(0, 1)}
        stages["masked"] = scores.masked_fill(hidden.unsqueeze(1), LOWEST)
        found |= {f"{name}.{stage}": rows.flatten(1) for stage, rows in stages.items()}
    return {name: rows.float() for name, rows in found.items()}


def assert_same(trace: dict[str, list], expected: dict[str, Tensor]) -> None:
    assert trace.keys() == expected.keys()
    for name, rows in trace.items():
        torch.testing.assert_close(
            torch.tensor(rows),
            expected[name],
            atol=1e-4,
            rtol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("settings", [{}, {"N": 1, "h": 1}, {"d_model": 10, "h": 2, "d_ff": 7}])
def test_every_stage_is_pytorchs(tmp_path: Path, settings: dict) -> None:
    translator = small_translator(**settings)
    pair = {"source": translator.encode(TEXTS[0]), "target": [0, *translator.tgt_tokenizer.encode(TEXTS[1])]}
    [trace] = page(translator, tmp_path)(("trace", pair))
    assert_same(trace, hooked(translator.model, **pair))


def test_every_stage_of_the_shipped_model_is_pytorchs(shipped: Translator, ask: Ask) -> None:
    lines = ["A man sits on the bank of a river.", *STRANGE[:8]]
    pairs = [
        {"source": shipped.encode(line), "target": [0, *best.tokens]}
        for line, [best] in zip(lines, shipped.search(lines), strict=True)
    ]
    for pair, trace in zip(pairs, ask(*[("trace", pair) for pair in pairs]), strict=True):
        assert_same(trace, hooked(shipped.model, **pair))


@pytest.mark.parametrize("part", ["positions", "mask", "scale", "residual", "decoder.layers.1.src_attn 2"])
def test_a_part_left_out_is_left_out_as_in_pytorch(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = small_translator()
    model = translator.model
    pair = {"source": translator.encode(TEXTS[0]), "target": [0, *translator.tgt_tokenizer.encode(TEXTS[1])]}
    whole, [trace] = hooked(model, **pair), page(translator, tmp_path)(("trace", {**pair, "leftOut": [part]}))
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadedAttention)]
    with torch.no_grad():
        if part == "positions":
            model.src_embed[1].pe.zero_()
            model.tgt_embed[1].pe.zero_()
        if part == "scale":
            for module in attentions:  # scores are divided by the root of d_k, so queries are multiplied
                for parameter in module.linears[0].parameters():
                    parameter.mul_(module.d_k**0.5)
        if part == "residual":
            forward = lambda self, x, sublayer: self.norm(sublayer(x))  # noqa: E731
            monkeypatch.setattr(SublayerConnection, "forward", forward)
        if part.endswith(" 2"):
            module = model.decoder.layers[1].src_attn
            module.linears[3].weight[:, 2 * module.d_k :] = 0
    broken = hooked(model, **pair, causal=part != "mask")
    layers = [name for name in broken if name.endswith(("norm", "linears.3", "generator", "weights"))]
    for name in layers:
        torch.testing.assert_close(torch.tensor(trace[name]), broken[name], atol=1e-4, rtol=1e-5)
    assert not torch.allclose(broken["generator"], whole["generator"], atol=1e-2)


def test_without_the_mask_a_search_reads_everything_anew(tmp_path: Path) -> None:
    """Each step's states come from the whole prefix, in which earlier positions see later ones."""
    translator = small_translator()
    settings = {"beam": 1, "alpha": 0.6, "prefix": [], "leftOut": ["mask"]}
    [found] = page(translator, tmp_path)(("translate", {"sentence": TEXTS[0], **settings}))
    source, total = translator.encode(TEXTS[0]), 0.0
    for i, step in enumerate(found["steps"][:10]):
        log_probs = hooked(translator.model, source, [0, *found["ended"][0]["tokens"][:i]], causal=False)[
            "generator"
        ]
        total += log_probs[-1, step[0]["token"]].item()
        assert step[0]["logProb"] == pytest.approx(total, abs=1e-3)
