"""Build your own: write stubs, hold them to their texts, give hints, translate with the shipped weights."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.adapt import ARGUMENTS, PARTS, Code
from annotated.check.law import Failure, Law, close, compare, expect, expect_shape, law, trace
from annotated.check.laws import LAWS
from annotated.check.report import Report

HINT = re.compile(r"^#([123]) (.*)\n", re.MULTILINE)
AFTER_THE_MODEL = {"batch", "label_smoothing", "rate", "greedy_decode", "beam_search", "bleu"}
MODEL = "06_the_full_model"


def write_stubs(folder: Path) -> Path:
    """Write `transformer.py` with stubs into a folder. Raises FileExistsError rather than replace one."""
    path = folder / "transformer.py"
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(HINT.sub("", STUBS.read_text(encoding="utf-8")))
    return path


def hints(stub: str, stage: int) -> str:
    """Return the hints to a stub, up to a stage: 1 what to think of, 2 which shapes, 3 the lines."""
    return "\n".join(f"  {line}" for n, line in HINT.findall(stub_texts()[stub]) if int(n) <= stage)


def first_open_stub(report: Report) -> str:
    """Return the first stub of the file that has a law to keep, or nothing."""
    open_laws = {f.law for f in (*report.of("failed"), *report.of("todo"))}
    parts = {law.part for law in (*LAWS, *CONTRACT) if law.name in open_laws}
    open_stubs = {"Transformer" if part == "make_model" else PARTS.get(part, [part])[0] for part in parts}
    return next((stub for stub in stub_texts() if stub in open_stubs), "")


def model_is_right(report: Report) -> bool:
    """Tell whether there is a model, and it and its parts keep all their laws."""
    later = {law.name for law in (*LAWS, *CONTRACT) if law.part in AFTER_THE_MODEL}
    whole = {f.status for f in report.findings if f.law.startswith("model:")}
    return whole == {"passed"} and {f.law for f in report.of("failed")} <= later


def translate(code: Code, text: str) -> tuple[str, str]:
    """Load the shipped weights into the code's own model: its translation, and the package's."""
    from annotated.translator import load_pretrained

    shipped = load_pretrained("multi30k-en-de", engine="pytorch")
    tokenizer = shipped.src_tokenizer
    sizes = {name: x for name, x in asdict(shipped.model.config).items() if name in ARGUMENTS}
    model = replace(code, pad=tokenizer.pad).model(**sizes | {"shake": 0.0, "max_len": 512})
    state = shipped.model.state_dict()
    own = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    if own != set(state) or not set(state) <= set(model.module.state_dict()):
        missing, extra = (", ".join(sorted(x)[:3]) or "nothing" for x in (set(state) - own, own - set(state)))
        raise ValueError(f"the weights do not fit: your model lacks {missing}, and has {extra} in addition; "
                         "names are those of lesson 00, and the model is post-norm")  # fmt: skip
    model.module.load_state_dict(state, strict=False)
    src = torch.tensor([[*tokenizer.encode(text), tokenizer.end]])
    tokens: list[int] = []
    with torch.no_grad():
        memory = model.encode(src)
        while len(tokens) < 60 and tokens[-1:] != [tokenizer.end]:
            row = model(src, torch.tensor([[tokenizer.start, *tokens]]), memory)[0, -1]
            tokens.append(int(row.index_fill(0, torch.tensor(list(shipped.forbidden)), -torch.inf).argmax()))
    return tokenizer.decode(tokens[:-1]), shipped.translate([text], beam=1)[0]


# ---- what the texts of the stubs promise: laws only of files that `annotated build` wrote

CONTRACT: list[Law] = []
STUBS = Path(__file__).with_name("stubs.txt")
NUMBERS = torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(0))
X, MEMORY, SEES_ALL = NUMBERS[:, :4], NUMBERS[:, 4:], torch.ones(2, 1, 6, dtype=torch.bool)
CAUSAL = torch.ones(2, 4, 4, dtype=torch.bool).tril()
contract = partial(law, laws=CONTRACT)


def stub_texts() -> dict[str, str]:
    """Return the text of each stub, with its hints, by its name, in the order of the file."""
    pieces = re.split(r"^(?=def |class )", STUBS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = ((re.match(r"(?:def|class) (\w+)", piece), piece) for piece in pieces)
    return {name[1]: piece for name, piece in named if name and "raise NotImplementedError\n" in piece}


def stub(code: Code, name: str) -> Any:
    """Return what stands for a stub, with the same random numbers for all."""
    expect(name in code.names, f"`{name}` is not in the file")
    torch.manual_seed(0)
    return code.names[name]


@contract("00_start_here", "file", "contract: stubs")
def stubs(code: Code) -> None:
    """Every stub is still there."""
    for name in stub_texts():
        stub(code, name)


@contract("02_attention", "attention", "contract: attention")
def attention(code: Code) -> None:
    """It returns the output and the weights."""
    result = stub(code, "attention")(X, X, X)
    expect(isinstance(result, tuple) and len(result) == 2, "it does not return two tensors")
    expect_shape(result[1], 2, 4, 4)


@contract("03_multi_head_attention", "multi_head_attention", "contract: MultiHeadedAttention")
def multi_headed_attention(code: Code) -> None:
    """Its maps are in self.linears, an nn.ModuleList; the output is one tensor; dropout is for weights."""
    module = stub(code, "MultiHeadedAttention")(2, 8, 0.5).eval()
    maps: Any = getattr(module, "linears", None)
    expect(isinstance(maps, nn.ModuleList), "self.linears is no nn.ModuleList")
    expect(len(maps) == 4, f"self.linears has {len(maps)} layers, and should have 4")
    expect_shape(module(X, MEMORY, MEMORY, SEES_ALL), 2, 4, 8)
    one = MEMORY[:, :1]  # of one key the weight is 1: dropout keeps or drops a head's numbers together
    out, calls = trace(lambda: module.train()(X, one, one))
    for x in [x for m, x, _ in calls if m is maps[3]]:
        kept = x.unflatten(-1, (2, 4)) != 0
        right = (kept.all(-1) == kept.any(-1)).all() and close(out, maps[3](x))
        expect(right, "dropout acts on other numbers than the weights")


@contract("04_feed_forward_and_embeddings", "generator", "contract: Generator")
def generator(code: Code) -> None:
    """The exponentials of what it gives add up to 1."""
    total = stub(code, "Generator")(8, 5)(X).logsumexp(-1)
    expect(close(total, total * 0, 1e-3), "the exponentials do not add up to 1")


@contract("05_positional_encoding", "positional_encoding", "contract: PositionalEncoding")
def positional_encoding(code: Code) -> None:
    """Sines and cosines take turns, are not learned, and dropout follows."""
    module = stub(code, "PositionalEncoding")(8, 0.5).eval()
    expect(not [*module.parameters()], "the encodings are learned")
    in_turn = close(module(torch.zeros(1, 3, 8))[0, 1, :2], torch.tensor([0.841, 0.540]), 1e-2)
    expect(in_turn, "columns stand in another order than in the trained weights")
    expect((module.train()(torch.ones(1, 50, 8) * 3) == 0).any(), "dropout sets nothing to 0 in training")


@contract(MODEL, "sublayer_connection", "contract: SublayerConnection")
def sublayer_connection(code: Code) -> None:
    """It is post-norm, as in the paper: LayerNorm(x + Dropout(Sublayer(x)))."""
    module = stub(code, "SublayerConnection")(8, 0.0)
    try:
        got = module(X, lambda x: 2 * x)
    except (TypeError, AttributeError):  # as in lesson 00: it takes what the sub-layer made of x
        got = module(X, 2 * X)
    pre_norm = X + 2 * F.layer_norm(X, (8,))
    compare(got, F.layer_norm(3 * X, (8,)), "it is not LayerNorm(x + Sublayer(x))", pre_norm=pre_norm)


@contract(MODEL, "EncoderLayer", "contract: EncoderLayer")
def encoder_layer(code: Code) -> None:
    """x (B, S, d_model) and mask (B, 1, S): self-attention, then the feed-forward network."""
    module = stub(code, "EncoderLayer")(8, 16, 2, 0.0)
    expect_order(module, ["self_attn", "feed_forward"], lambda: module(MEMORY, SEES_ALL))


@contract(MODEL, "Encoder", "contract: Encoder")
def encoder(code: Code) -> None:
    """N layers, one after the other."""
    module = stub(code, "Encoder")(3, 8, 16, 2, 0.0)
    expect_layers(module, module(MEMORY, SEES_ALL), 6)


@contract(MODEL, "DecoderLayer", "contract: DecoderLayer")
def decoder_layer(code: Code) -> None:
    """x (B, T, d_model) asks, the memory (B, S, d_model) answers -> (B, T, d_model)."""
    module = stub(code, "DecoderLayer")(8, 16, 2, 0.0)
    try:
        out = module(X, MEMORY, SEES_ALL, CAUSAL)
    except (RuntimeError, ValueError) as error:
        raise Failure(f"4 target tokens and 6 source tokens do not go together: {error}") from None
    expect_shape(out, 2, 4, 8)
    names = ["self_attn", "src_attn", "feed_forward"]
    expect_order(module, names, lambda: module(X, MEMORY, SEES_ALL, CAUSAL))


@contract(MODEL, "Decoder", "contract: Decoder")
def decoder(code: Code) -> None:
    """N layers, one after the other."""
    module = stub(code, "Decoder")(3, 8, 16, 2, 0.0)
    expect_layers(module, module(X, MEMORY, SEES_ALL, CAUSAL), 4)


def expect_layers(module: Any, out: Tensor, length: int) -> None:
    """Raise Failure unless there are three layers, under the name that the trained weights have."""
    layers: Any = getattr(module, "layers", None)
    right = isinstance(layers, nn.ModuleList) and len(layers) == 3
    expect(right, "self.layers is no nn.ModuleList of N layers")
    expect_shape(out, 2, length, 8)


def expect_order(module: nn.Module, names: list[str], run: Callable[[], Tensor]) -> None:
    """Raise Failure unless the sub-layers run once each, in the paper's order."""
    of = {getattr(module, name, None): name for name in names}
    ran = [of[m] for m, *_ in trace(run)[1] if m in of]
    mistake = f"first {', then '.join(names)}"
    expect(ran == names, f"the sub-layers run in the order {', '.join(ran)}", mistake=mistake)


@contract(MODEL, "make_model", "contract: Transformer")
def transformer(code: Code) -> None:
    """One table serves three times."""
    model = stub(code, "Transformer")(vocab=500, N=1, d_model=64, d_ff=128, h=2, dropout=0.0)
    one = model.src_embed[0].lut.weight is model.tgt_embed[0].lut.weight is model.generator.proj.weight
    expect(one, "one matrix should serve three times, and does not")


@contract("07_batches_and_masks", "subsequent_mask", "contract: subsequent_mask")
def subsequent_mask(code: Code) -> None:
    """A bool tensor of shape (1, size, size)."""
    mask = stub(code, "subsequent_mask")(4)
    expect_shape(mask, 1, 4, 4)
    expect(mask.dtype == torch.bool, f"the mask is {mask.dtype}, and should be torch.bool")


@contract("08_training_recipe", "label_smoothing", "contract: LabelSmoothing")
def label_smoothing(code: Code) -> None:
    """The loss is a sum over tokens: the training loop divides by their number."""
    loss, x = stub(code, "LabelSmoothing")(5, 0, 0.1), torch.full((4, 5), 0.2).log()
    ratio = float(loss(x, torch.tensor([1, 2, 3, 4])) / loss(x[:2], torch.tensor([1, 2])))
    expect(abs(ratio - 2) < 1e-3, f"the loss of 4 tokens is {ratio:.3g} times that of 2")


@contract("08_training_recipe", "rate", "contract: rate")
def rate(code: Code) -> None:
    """The factor multiplies the rate, and step 0 counts as step 1."""
    of = stub(code, "rate")
    expect(abs(of(7, 64, 3.0, 10) / of(7, 64, 1.0, 10) - 3) < 1e-6, "the factor does not multiply the rate")
    try:
        of(0, 64, 1.0, 10)
    except ZeroDivisionError:
        raise Failure("step 0, which PyTorch's schedulers ask for first, divides by 0") from None


@contract("11_search_and_averaging", "greedy_decode", "contract: greedy_decode")
def greedy_decode(code: Code) -> None:
    """(1, up to max_len), beginning with the start symbol."""
    model = stub(code, "Transformer")(vocab=11, N=1, d_model=8, d_ff=16, h=2, dropout=0.0).eval()
    got = stub(code, "greedy_decode")(model, torch.tensor([[4, 5, 6]]), None, 5, 1)
    expect_shape(got, 1, 5)
    expect(int(got[0, 0]) == 1, f"it begins with {int(got[0, 0])}, not with the start symbol 1")


@contract("11_search_and_averaging", "beam_search", "contract: beam_search")
def beam_search(code: Code) -> None:
    """alpha decides between a short translation and a long one; start and end are left out."""
    p = torch.full((8, 4), -9.0)  # from token to token: 1 is the start, 2 ends, and 3 repeats itself
    p[1, 2], p[1, 3], p[3, 3], p[3, 2] = -0.9, -0.5, -0.2, -0.5

    class Chain(nn.Module):
        def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
            return src

        def decode(self, memory: Tensor, src_mask: Tensor | None, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
            return p[tgt]

    given = Chain(), torch.tensor([[3]]), None, 6, 1, 2
    short, long = (stub(code, "beam_search")(*given, beam=3, alpha=alpha) for alpha in (0.0, 3.0))
    expect(len(short) < len(long), "alpha does not change what is found")
    expect({int(token) for token in long} == {3}, f"start (1) or end (2) is in the list {list(long)}")
