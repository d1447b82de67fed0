"""Laws of what stands around attention: networks, embeddings, positions, norms (lessons 04 to 06)."""

import itertools
import linecache
import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.assertions import Failure, close, compare, expect, expect_shape, numbers
from annotated.check.law import law, own_frames
from annotated.check.models import Model
from annotated.check.tracing import Calls, expect_modes, normalized, residual_mistake, trace_calls, wrapping
from annotated.check.user_code import Code, NotApplicable, origin, output_of, takes, takes_all

VECTORS, POSITIONS = "04_feed_forward_and_embeddings", "05_positional_encoding"
MODEL = "06_the_full_model"


@law(VECTORS, "feed_forward", "feed-forward: equation 2")
def feed_forward_equation(code: Code) -> str | None:
    """The network is max(0, x W_1 + b_1) W_2 + b_2 at each position alone, and widens to d_ff inside."""
    part, x = code.find("feed_forward"), torch.randn(2, 5, 8) * 3

    def build(rate: float) -> nn.Module:
        return code.build("feed_forward", d_model=8, d_ff=24, dropout=rate)

    module = build(0.0)
    out, calls = trace_calls(lambda: output_of(module, x=x))
    expect_shape(out, *x.shape)
    expect_modes(part, build, lambda module: output_of(module, x=x))
    compare(out[:, 2:3], output_of(module, x=x[:, 2:3]), "a position depends on the others")
    maps = [c for c in calls if isinstance(c.module, nn.Linear)]
    if len(maps) != 2:
        raise NotApplicable("it does not consist of two nn.Linear")
    if takes_all(part, "d_model", "d_ff"):
        width = maps[0].output.size(-1)
        expect(width == 24, f"it is {width} wide inside, and should be d_ff = 24")
    return activation_of(x, out, maps, wrapping(x, maps[0].x, maps[1].output, out, calls))


def activation_of(x: Tensor, out: Tensor, maps: Calls, inside: str = "") -> str:
    """Tell how a network of two linear maps, from x to `out`, is activated between them.

    Raises Failure where that is no activation that somebody uses.
    """
    w_2, inner = maps[1].module, maps[0].output
    leak = float((maps[1].x / inner)[inner < 0].median().clamp(0, 0.5))
    activations = {name: getattr(F, name.lower())(inner) for name in ("ReLU", "GELU", "SiLU", "ELU", "Mish")}
    activations |= {"GELU by tanh": F.gelu(inner, approximate="tanh"), "squared ReLU": inner.relu() ** 2}
    activations["LeakyReLU"] = F.leaky_relu(inner, leak)
    for name, expected in activations.items():
        if close(maps[1].output if inside else out, w_2(expected)):
            return inside if name == "ReLU" else f"{inside} with {name}, where the paper has ReLU".strip()
    message = "the output is not that of two maps with an activation between them"
    compare(out, w_2(inner.relu()), message, w_2=w_2, inner=inner, x=x)
    return ""


@law(MODEL, "layer_norm", "layer norm: each vector alone")
def layer_norm(code: Code) -> None:
    """Each vector is normalized by itself over its features: mean 0 and deviation 1, then gain and bias."""
    module, x = code.build("layer_norm", d_model=64), torch.randn(3, 5, 64) * 4 + 2
    out = output_of(module, x=x)
    expect_shape(out, *x.shape)

    def over(dims: Any) -> bool:
        y = x - x.mean(dims, keepdim=True)
        return any(close(out, y / x.std(dims, correction=n, keepdim=True), 1e-3) for n in (0, 1))

    small = output_of(module, x=x * 0.1)
    if any(close(out, y, 1e-3) for y in normalized(x)):
        right = any(close(small, y, 1e-3) for y in normalized(x * 0.1))
        expect(right, "vectors of a small deviation are not normalized")
    else:
        evidence = {"x": x, "normal": normalized(x)[0], "small": small, "over": over}
        compare(out, normalized(x)[0], "vectors are not normalized", **evidence)
    expect(output_of(module, x=x * 0).isfinite().all(), "a vector of equal numbers gives NaN")
    vectors = [p for p in module.parameters() if p.shape == (64,)]
    for p in vectors:
        p.mul_(2).add_(1)  # a gain of 3, a bias of 1
    if len(vectors) == 2:
        compare(output_of(module, x=x), out * 3 + 1, "gain and bias do not count", out=out)


@law(VECTORS, "embeddings", "embeddings: scale")
def embedding_scale(code: Code) -> str | None:
    """A token's vector is its row of the table times sqrt(d_model)."""
    module, tokens = code.build("embeddings", d_model=16, vocab=11), torch.tensor([[3, 7, 3]])
    tables = {p.shape: p for p in module.parameters()}
    expect((16, 11) not in tables, "the table has shape (16, 11), and should be (11, 16)")
    if (11, 16) not in tables:
        raise NotApplicable("its table (vocab, d_model) is not found")
    rows = tables[torch.Size((11, 16))].copy_(torch.randn(11, 16))[tokens]
    out = output_of(module, tokens=tokens)
    expect_shape(out, 1, 3, 16)
    if close(out, rows) and type(module).forward is nn.Embedding.forward:
        raise NotApplicable("a table alone, whose factor sqrt(d_model) stands elsewhere")
    if close(out, rows) and scaled_by_model(code):
        return "the model multiplies by sqrt(d_model) later"
    if close(out, rows) and type(module).__name__ != "Embeddings" and not code.has("positional_encoding"):
        return "without the paper's factor sqrt(d_model), as in GPT"
    compare(out, rows * 4, "vectors have another scale", rows=rows)
    return None


def scaled_by_model(code: Code) -> bool:
    """Tell whether something in the model has embeddings times sqrt(d_model), with positions or without."""
    with suppress(Exception):
        model, tgt = Model.of(code, shake=0.0), torch.tensor([[3, 4]])
        one, other = (trace_calls(partial(model, torch.tensor([src]), tgt))[1] for src in ([5, 6], [7, 6]))
        pairs = [(a.x, b.x) for a, b in zip(one, other, strict=True)]
        pairs += [(a.output, b.output) for a, b in zip(one, other, strict=True)]
        changes = [(a - b)[0, 0] for a, b in pairs if isinstance(a, Tensor) and a.is_floating_point()]
        scaled = [(table[5] - table[7]) * math.sqrt(table.size(1)) for table in model.tables()]
        return any(close(change, expected) for change in changes for expected in scaled)
    return False


def build_positions(code: Code, dropout: float = 0.0) -> nn.Module:
    return code.build("positional_encoding", d_model=16, dropout=dropout, max_len=64)


def add_positions(code: Code, module: nn.Module, x: Tensor) -> Tensor:
    return code.flip(output_of(module, x=code.flip(x)))


@law(POSITIONS, "positional_encoding", "positions: added")
def positions_added(code: Code) -> str:
    """Positions are added to x: the same for every sentence, different at every position."""
    x, module = torch.randn(3, 7, 16), build_positions(code)
    out, zero = add_positions(code, module, x), add_positions(code, module, x * 0)
    expect_shape(out, 3, 7, 16, out=out)
    part = code.find("positional_encoding")
    expect_modes(part, partial(build_positions, code), lambda module: add_positions(code, module, x))
    expect(not close(out, zero), "the output does not depend on x")
    rows = f"{numbers(zero[0])}, {numbers(zero[1])}"
    expect(close(zero[0], zero[1]), "sentences get different positions", rows, zero=zero)
    expect(not close(zero[0, 0], zero[0, 1]), "all positions get the same vector", numbers(zero), zero=zero)
    if takes(part, "drop"):
        dropping = build_positions(code, 0.5).train()
        kept = torch.stack([add_positions(code, dropping, torch.zeros(1, 7, 16)) for _ in range(9)])
        expect(not close(kept.amax(0), kept.amin(0)), "the positions lose nothing to dropout")
    stays = build_positions(code)
    remark = check_kept(stays, lambda device: add_positions(code, stays, x.to(device)))
    if close(out - zero, x * 4):
        return "multiplies x by sqrt(d_model) here"
    compare(out - zero, x, "x does not come through unchanged", x=x, zero=zero)
    return remark


@law(POSITIONS, "positional_encoding", "positions: formula", "positions: added")
def positions_formula(code: Code) -> str | None:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) the cosine of the same angle."""
    module = build_positions(code)
    got, columns = add_positions(code, module, torch.zeros(1, 40, 16))[0], torch.arange(16).double()
    learned = any(p.requires_grad for p in module.parameters())

    def table(j: Tensor = columns // 2 * 2, start: int = 0, base: float = 1e4, unit: float = 1) -> Tensor:
        angle = torch.arange(start, start + 40).double()[:, None] * unit * base ** (-j / 16)
        return torch.where(columns % 2 == 0, angle.sin(), angle.cos()).float()

    expected = table()
    if close(got, expected, 2e-3) or close(got, torch.cat([expected[:, ::2], expected[:, 1::2]], -1), 2e-3):
        expect(not learned, "the sines and cosines are a parameter, which training would change")
        order = "all sines, then all cosines: another order of the columns"
        return None if close(got, expected, 2e-3) else order
    if learned:
        raise NotApplicable("positions are learned")
    # Angles that grow are too large to agree in the last columns: the first tell all mistakes apart.
    row = f"position 2: {numbers(got[2])}, and should be {numbers(expected[2])}"
    changed = lambda *change, **changes: table(*change, **changes)[:9, :6]  # noqa: E731
    raise Failure("the encodings are wrong", row, got=got[:9, :6], j=columns, table=changed)


def check_kept(module: nn.Module, run: Callable[[str], Any]) -> str:
    """Raise Failure if a table is a plain attribute, which no device and no checkpoint finds.

    A tensor that is made on the CPU in each pass is only remarked, where the code says nothing of devices.
    """
    modules = [m for m in module.modules() if origin(m) != "torch"]
    mobile = [m for m in modules if not (takes(type(m), "device") or hasattr(m, "device"))]
    plain = [f"{type(m).__name__}.{name}" for m in mobile
             for name, x in vars(m).items() if isinstance(x, Tensor) and x.dim() > 1]  # fmt: skip
    with suppress(Exception), torch.device("meta"):  # what a pass makes without a device; mostly nothing
        run("cpu")
        if not plain:
            return ""
    try:  # on a device without numbers: PyTorch refuses what stayed behind
        module.to("meta")
        run("meta")
    except (RuntimeError, NotImplementedError) as error:
        message = f"`.to(device)` leaves {', '.join(plain)} behind"
        expect(not plain or "device" not in str(error), message)
        if "is not on the expected device" in str(error) and mobile == modules:
            return made_elsewhere(error)
    return ""


def made_elsewhere(error: Exception) -> str:
    """Raise Failure for a tensor made on the CPU by code that minds devices; remark it in other code."""
    frames = own_frames(error)
    text = "".join(linecache.getlines(frames[-1].filename)) if frames else ""
    if re.search(r"^device *=", text, re.IGNORECASE | re.MULTILINE):
        return ""  # it says once for all where its tensors are
    remark = "a tensor that each pass makes stays on the CPU, wherever the model is"
    expect("device" not in text, remark, f"{frames[-1].line}" if frames else "")
    return remark


def wrap(module: nn.Module, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Call what stands around a sub-layer, which takes the sub-layer or what it gave."""
    try:
        return output_of(module, x=x, function=function)
    except (TypeError, AttributeError):
        return output_of(module, x=x, function=function(x))


@law(MODEL, "sublayer_connection", "residual and norm")
def sublayer_equation(code: Code) -> str:
    """A sub-layer's output is added to its input: LayerNorm(x + f(x)), or pre-norm x + f(LayerNorm(x))."""
    part, x, matrix = code.find("sublayer_connection"), torch.randn(2, 5, 16) * 3 + 1, torch.randn(16, 16)

    def build(rate: float) -> nn.Module:
        return code.build("sublayer_connection", d_model=16, dropout=rate)

    def run(module: nn.Module) -> Tensor:
        return wrap(module, x, lambda y: y @ matrix)

    expect_modes(part, build, run)
    got = run(build(0.0))
    if any(close(got, y, 1e-3) for y in normalized(x + x @ matrix)):
        return "post-norm, as in the paper"
    if any(close(got, x + y @ matrix, 1e-3) for y in normalized(x)):
        return "pre-norm, where the paper has post-norm"
    mistake = residual_mistake(got, x, lambda y: y @ matrix)
    raise Failure("it is neither post-norm nor pre-norm", numbers(got), mistake=mistake)


@law(MODEL, "sublayer_connection", "dropout of sub-layers", "residual and norm")
def sublayer_dropout(code: Code) -> None:
    """Dropout acts on the sub-layer's output before the sum, never on x itself."""
    module, x = code.build("sublayer_connection", d_model=16, dropout=0.5).train(), torch.randn(2, 5, 16)
    kept = wrap(module, x, torch.zeros_like)
    expect(close(kept, wrap(module, x, torch.zeros_like)), "x itself loses numbers to dropout", numbers(kept))


@law(VECTORS, "generator", "generator: log-probabilities")
def generator(code: Code) -> str | None:
    """The generator gives log-probabilities over the vocabulary: their exponentials add up to 1."""
    module, x = code.build("generator", d_model=16, vocab=11), torch.randn(3, 5, 16) * 3
    out, calls = trace_calls(lambda: output_of(module, x=x))
    expect_shape(out, 3, 5, 11)
    compare(output_of(module, x=x), out, "the same input gives two outputs in evaluation mode")
    remark = check_log_probs(out, [c.output for c in calls if isinstance(c.module, nn.Linear)])
    unread = [n for n, only in enumerate(torch.eye(16)) if close(output_of(module, x=x + 3 * only), out)]
    expect(not unread, f"the output does not depend on the features {', '.join(map(str, unread))} of x")
    return remark


def check_log_probs(out: Tensor, logits: list[Tensor]) -> str | None:
    """Raise Failure for probabilities, for two softmaxes, and for one over another dimension."""
    sums, ones = out.exp().sum(-1), torch.ones(out.shape[:-1])
    if close(sums, ones, 1e-3):
        expect((out.amax(-1) - out.amin(-1)).max() > 1, "no token is e times as likely as another")
        if logits:
            compare(out, logits[-1].log_softmax(-1), "the distribution is wrong", x=logits[-1])
        return None
    for dim, x in itertools.product((0, 1), (out.exp(), out)):
        over = close(x.sum(dim), torch.ones_like(x.sum(dim)), 1e-3)
        mistake = f"the softmax runs over dim={dim}: it must run over the vocabulary, dim=-1"
        expect(not over, f"a position's probabilities add up to {sums[0, 0]:.3g}", mistake=mistake)
    expect(not ((out >= 0).all() and close(out.sum(-1), ones, 1e-3)), "these are probabilities", numbers(out))
    if logits:
        scale = (out * logits[-1]).sum() / logits[-1].square().sum()
        expect(close(out, logits[-1] * scale), "these are neither log-probabilities nor logits", numbers(out))
    return "gives logits"
