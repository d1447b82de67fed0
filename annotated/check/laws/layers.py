"""Laws of the layers inside a model: what each sub-layer reads, adds, normalizes and drops (lesson 06)."""

import itertools
import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from annotated.check.assertions import Failure, close, expect
from annotated.check.law import law
from annotated.check.laws.model import MASKS, MODEL, WRONG
from annotated.check.laws.parts import activation_of
from annotated.check.models import SIZES, Model
from annotated.check.residual_stream import CROSS, NETWORK, SELF, SRC, TGT, S, T, Walk, follow
from annotated.check.tracing import collect_weights, in_mode, normalized
from annotated.check.user_code import Code, NotApplicable, takes


@lru_cache(maxsize=2)
def walk(code: Code) -> Walk:
    rate = 0.5 if takes(code.find("make_model"), "drop") else 0.0  # dropout is only looked at
    return Walk(Model.of(code, shake=0.0, dropout=rate))


@law(*MODEL, "model: residuals and norms", *WRONG)
def residuals_and_norms(code: Code) -> str:
    """Each sub-layer reads the sum before it and adds to it, with a norm after the sum or before it.

    The encoder has self-attention, then the network; the decoder attention to the memory in between. What
    leaves a stack is normalized.
    """
    passed = walk(code)
    calls = passed.trace.calls
    orders = set[str]()
    for layer in (*passed.encoder, *passed.decoder):
        kinds = [sub.kind for sub in layer.sublayers]
        expected = [SELF, CROSS, NETWORK] if layer in passed.decoder and passed.encoder else [SELF, NETWORK]
        if sorted(kinds) == sorted(expected):
            expect(kinds == expected, f"{layer.name} has {', then '.join(kinds)}", order="wrong")
        orders.add(follow(layer, calls))
    for one, other in (*itertools.pairwise(passed.encoder), *itertools.pairwise(passed.decoder)):
        change = code.flip(other.x - one.out)
        added = close(change[0], change[1]) and change.abs().max() > 1e-3
        mistake = "positions are added in every layer: once, before the first, is enough"
        mistake = mistake if added else "each layer must read what the one before it left: x = layer(x)"
        same = any(close(other.x, y, 1e-3) for y in [one.out, *normalized(one.out, calls)])
        expect(same, f"{other.name} does not read what {one.name} left", mistake=mistake)
    order = " and ".join(sorted(orders))
    leaves = ("encoder", passed.encoder, passed.memory[-1:]), ("decoder", passed.decoder, passed.states)
    for name, layers, left in leaves if "pre-norm" in orders else ():
        for x in left if layers else ():
            plain = close(x, layers[-1].out, 1e-3) and not any(close(x, y, 1e-3) for y in normalized(x))
            expect(not plain, f"what leaves the {name} is not normalized", order=order)
    expect(len(orders) == 1, "some layers are post-norm, others pre-norm", order=order)
    once_more = any("norm" in type(c.module).__name__.lower() and c.begin > passed.last.end for c in calls)
    return f"{order}, and a norm after the last layer" if once_more and order == "post-norm" else order


@law(*MODEL, "model: memory of the last layer", *WRONG, "model: memory", "model: residuals and norms")
def memory_of_the_last_layer(code: Code) -> None:
    """Every layer of the decoder reads the same memory: what the last layer of the encoder left."""
    passed = walk(code)
    if not passed.encoder or not passed.memory:
        raise NotApplicable("no layer of its decoder is seen to read a memory")
    last = [passed.encoder[-1].out, *normalized(passed.encoder[-1].out, passed.trace.calls)]

    def among(memory: Tensor, tensors: list[Tensor]) -> bool:
        return any(close(memory, y, 1e-3) for y in tensors)

    for number, memory in enumerate(passed.memory):
        message = f"decoder layer {number} reads another memory than what the last encoder layer left"
        expect(among(memory, [*last, passed.memory[-1]]), message)
    earlier = among(passed.memory[0], [layer.out for layer in passed.encoder[:-1]])
    expect(not earlier or among(passed.memory[0], last), "the memory is an earlier layer's")


@law(*MODEL, "model: networks", *WRONG, "model: residuals and norms")
def networks(code: Code) -> str:
    """The network of each layer has an activation between its two linear maps."""
    sublayers = [sub for layer in (*walk(code).encoder, *walk(code).decoder) for sub in layer.sublayers]
    pairs = [sub.maps for sub in sublayers if sub.kind == NETWORK and len(sub.maps) == 2]
    if not pairs:
        raise NotApplicable("its networks are not two nn.Linear each")
    return {activation_of(maps[0].x, maps[1].output, maps) for maps in pairs}.pop()


@law(*MODEL, "model: dropout", *WRONG, "model: residuals and norms")
def places_of_dropout(code: Code) -> str:
    """Dropout acts on each sub-layer's output before it is added, and on embeddings plus positions."""
    if not takes(code.find("make_model"), "drop"):
        raise NotApplicable("the model takes no dropout")
    passed = walk(code)
    dropped = [spot.x for spot in passed.trace.dropouts]
    if not dropped:
        raise Failure("no dropout is called in training mode")
    maps = [x for x in dropped if x.shape[-2:] in ((S, S), (T, S))]  # of attention
    scores = any(not close(x.sum(-1), torch.ones(x.shape[:-1]), 1e-3) for x in maps)
    expect(not scores, "dropout is applied to the scores of attention")
    words = any(x.size(-1) == passed.model.vocab for x in dropped)
    expect(not words, "dropout acts on the scores of the words, which leave the model")
    for layer in (*passed.encoder, *passed.decoder):
        for number, sub in enumerate(layer.sublayers):
            following = [s.inputs[0] for s in layer.sublayers[number + 1 :][:1] if s.inputs] or [layer.out]
            if any(close(x, y) for x in dropped for y in sub.gives):
                continue
            after = any(close(x, y) for x in dropped for y in following)
            where = f"{layer.name}, {sub.kind}"
            expect(not after, f"{where}: dropout acts after the sum and the norm")
            expect(False, f"{where}: no dropout acts on what it gives")
    remarks = []
    for name, layers in (("encoder", passed.encoder), ("decoder", passed.decoder)):
        if layers and not any(close(layers[0].x, x) for x in dropped):
            rest = [layers[0].x - x for x in dropped if x.shape == layers[0].x.shape]
            alone = any(close(y[0], y[1]) and y.abs().max() > 0.1 for y in map(code.flip, rest))
            expect(not alone, f"{name}: dropout acts on the embeddings before the positions are added")
            ran, modules = {c.module for c in passed.trace.calls}, passed.model.module.named_modules()
            idle = [n for n, m in modules if isinstance(m, nn.Dropout) and m not in ran]
            remarks.append(f"the {name}'s embeddings lose nothing to dropout")
            expect(not idle, remarks[-1], f"{', '.join(idle[:2])} is never called")
    model = Model.of(code, dropout=0.0)
    rates = [name for name, m in model.module.named_modules() if isinstance(m, nn.Dropout) and m.p > 0]
    out = model(SRC, TGT)
    model.module.train()
    expect(close(out, model(SRC, TGT)), "with dropout 0, training differs from evaluation", ", ".join(rates))
    return "; ".join(remarks)


@law(*MODEL, "model: embeddings", *WRONG, "model: order of words")
def embeddings_of_the_model(code: Code) -> str:
    """What enters a stack is embeddings times sqrt(d_model), plus positions, on both sides alike."""
    passed, factors, bare = walk(code), {}, False
    for name, layers, tokens in (("encoder", passed.encoder, SRC), ("decoder", passed.decoder, TGT)):
        x = code.flip(layers[0].x) if layers else torch.zeros(0)
        for table in passed.model.tables() if layers and x.shape[:2] == tokens.shape else ():
            rows = (table[tokens[0]] - table[tokens[1]])[1:]
            factor = float((rows * (x[0] - x[1])[1:]).sum() / rows.square().sum())
            if close(x[0, 1:] - x[1, 1:], rows * factor, 1e-3):
                factors[name] = factor
                rest = x - table[tokens] * factor
                expect(close(rest[0], rest[1], 1e-3), f"sentences get different positions in the {name}")
                scale = scale_of_sinusoids(rest[0])
                bare = abs(scale) < 0.01  # attention may tell positions instead; "order of words" asks
                expect(bare or 0.99 < scale < 1.01, f"positions are multiplied by {scale:.3g} in the {name}")
    if not factors:
        raise NotApplicable("what enters its layers is not a table's rows and positions")
    root = math.sqrt(SIZES["d_model"])
    for name, factor in factors.items():
        expect(abs(factor - root * root) > 0.1, f"the {name}'s embeddings are multiplied by d_model")
    if len({round(factor, 2) for factor in factors.values()}) > 1:
        example = ", ".join(f"{name} {factor:.3g}" for name, factor in factors.items())
        raise Failure("embeddings have another factor in the encoder than in the decoder", example)
    factor = min(factors.values())
    scaled = f"embeddings are multiplied by {factor:.3g}, in the paper by sqrt(d_model)"
    remarks = {"no positions are added to embeddings": bare, scaled: abs(factor - root) >= 0.01}
    return "; ".join(remark for remark, applies in remarks.items() if applies)


def scale_of_sinusoids(positions: Tensor) -> float:
    """Return what sines and cosines are multiplied by, in whichever order of columns; of others, 1."""
    d = positions.size(1)
    angles = torch.arange(len(positions))[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    waves = [angles.sin(), angles.cos()]
    for table in (torch.stack(waves, -1).flatten(1), torch.cat(waves, 1)):
        scale = float((positions * table).sum() / table.square().sum())
        if close(positions, table * scale, 1e-3):
            return scale
    return 1.0


@law(*MODEL, "model: both ways", *WRONG, *MASKS, "model: residuals and")
def both_ways(code: Code) -> None:
    """A word of the source sees all others; a target's position sees all before it, and the whole source."""
    model = Model.of(code, N=1)
    for table in model.tables():  # small scores, so that no weight is 0
        table.mul_(0.2 / table.std())
    with in_mode(model.module, True), collect_weights() as weights:
        model(SRC[:1], TGT[:1])
    sees = sum((w.reshape(-1, S, S).sum(0) for w in weights if w.shape[-2:] == (S, S)), torch.zeros(S, S))
    blind = [(i, j) for i in range(S) for j in range(S) if sees.any() and sees[i, j] <= 1e-6]
    causal, message = all(j > i for i, j in blind), "a word of the source does not depend on another"
    expect(not blind, message, f"word {blind[:1]}", causal=causal)
    for side, words in (("target", TGT[:1]), ("source", SRC[:1])):
        n = words.size(1)
        together = torch.cat([words, words.repeat(n, 1).masked_fill(torch.eye(n).bool(), 20)])
        others = (SRC if side == "target" else TGT)[:1].repeat(n + 1, 1)
        out = model(others, together) if side == "target" else model(together, others)
        sees = (out[1:] - out[:1]).abs().amax(-1) > 1e-6
        pairs = [(t, j) for j in range(n) for t in range(T) if side == "source" or t >= j]
        blind = [(t, j) for t, j in pairs if not sees[j, t]]
        example = f"the prediction at {blind[0][0]} and word {blind[0][1]} of the {side}" if blind else ""
        of_all = len({j for _, j in blind}) < n
        message = f"a prediction does not depend on a word of the {side} that it may see"
        expect(not blind or not of_all, message, example, blind=blind)
