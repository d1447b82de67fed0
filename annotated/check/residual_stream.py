"""Walk through the layers of anyone's model: what each sub-layer read and gave, and what became of it."""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.assertions import Failure, close
from annotated.check.models import SIZES, Model
from annotated.check.tracing import Call, Calls, normalized, residual_mistake, trace_all, wrapping
from annotated.check.user_code import NotApplicable, Unclear

SRC = torch.tensor([[5, 6, 7, 8, 9], [10, 4, 11, 6, 21]])
TGT = torch.tensor([[3, 11, 12, 13, 14, 15], [3, 7, 8, 20, 9, 10]])
S, T = SRC.size(1), TGT.size(1)
MAPS = nn.Linear, nn.Conv1d
SELF, CROSS, NETWORK = "self-attention", "attention to the memory", "feed-forward network"


@dataclass
class Sublayer:
    """Attention or a network of one layer, and the vectors that went in and came out."""

    kind: str
    begin: int
    inputs: list[Tensor]  # what its module was given
    reads: Tensor  # what its first map reads: another tensor, where the module normalizes first
    gives: list[Tensor]  # what its module gave, and what its last map did
    maps: Calls  # of a network: its linear maps


@dataclass
class Layer:
    name: str
    x: Tensor
    out: Tensor
    sublayers: list[Sublayer]


class Walk:
    """A pass of a model without dropout, in training mode, through its encoder and its decoder."""

    def __init__(self, model: Model):
        self.model = model
        model.module.train()
        flip = model.code.flip
        (_, self.trace) = trace_all(lambda: model(SRC, TGT))
        self.x_shapes = {n: flip(torch.empty(2, n, SIZES["d_model"])).shape for n in (S, T)}
        stacks = self.stacks()
        expected = len([p for p in (S, T) if any(w.x.shape[-2:] == (p, p) for w in self.trace.weights)])
        if not stacks or len(stacks) < expected:
            raise Unclear("its layers are not found: needs lists of modules, each called once")
        self.last = stacks[-1][-1]  # layer of the decoder
        self.decoder = self.read("decoder", stacks[-1], T)
        self.encoder = self.read("encoder", stacks[0], S) if len(stacks) > 1 else []

    def stacks(self) -> list[list[Call]]:
        """Return the calls of the layers of each stack: of modules in lists, each with attention inside."""
        calls: dict[nn.Module, list[Call]] = {}
        for call in self.trace.calls:
            calls.setdefault(call.module, []).append(call)
        stacks = []
        for module in self.model.modules(nn.ModuleList, nn.Sequential):
            layers = [calls.get(layer, []) for layer in module.children()]
            once = [c for layer in layers for c in layer if any(c.encloses(w) for w in self.trace.weights)]
            if len(layers) == SIZES["N"] and len(once) == len(layers) == sum(map(len, layers)):
                stacks.append(sorted(once, key=lambda c: c.begin))
        every = [layer for stack in stacks for layer in stack]
        outermost = [stack for stack in stacks if not any(layer.encloses(stack[0]) for layer in every)]
        return sorted(outermost, key=lambda stack: stack[0].begin)

    def read(self, name: str, calls: list[Call], length: int) -> list[Layer]:
        layers = []
        for number, call in enumerate(calls):
            vectors = [x for x in call.inputs if x.shape == self.x_shapes[length]]
            if not vectors or not isinstance(call.output, Tensor):
                raise NotApplicable(f"its {name}'s layers do not take the words' vectors (B, T, d_model)")
            layers.append(Layer(f"{name} layer {number}", vectors[0], call.output, self.sublayers(call)))
        return layers

    def sublayers(self, layer: Call) -> list[Sublayer]:
        """Return the sub-layers of a layer, in the order in which they ran."""
        inside = sorted((c for c in self.trace.calls if layer.encloses(c)), key=lambda c: c.begin)
        attentions: dict[int, tuple[str, Call]] = {}
        for weights in (w for w in self.trace.weights if layer.encloses(w)):
            call = self.attention_around(weights, inside)
            attentions[call.begin] = SELF if weights.x.size(-1) == weights.x.size(-2) else CROSS, call
        sublayers = [self.sublayer(kind, [call], inside) for kind, call in attentions.values()]
        outside = [c for c in inside if not any(a is c or a.encloses(c) for _, a in attentions.values())]
        maps = [c for c in outside if isinstance(c.module, MAPS)]
        if not maps:  # such as two matrices
            around = [c for c in inside if any(c.encloses(a) for _, a in attentions.values())]
            maps = [c for c in outside if holds_maps(c) and c not in around][:1]
        if maps:
            sublayers.append(self.sublayer(NETWORK, maps, inside))
        return sorted(sublayers, key=lambda sublayer: sublayer.begin)

    def attention_around(self, weights: Call, inside: list[Call]) -> Call:
        """Return the call of the module, of all its heads, in which attention weights were computed."""
        with_maps = [c for c in inside if c.encloses(weights) and holds_maps(c)]  # from the outermost
        if not with_maps:
            raise NotApplicable("its attention is not a module that holds its maps")
        call = with_maps[-1]
        for outer in reversed(with_maps[:-1]):  # a head of several
            inner, more = ([w for w in self.trace.weights if c.encloses(w)] for c in (call, outer))
            if len(more) > len(inner) and len({w.x.shape[-2:] for w in more}) == 1:
                call = outer
        return call

    def sublayer(self, kind: str, maps: list[Call], inside: list[Call]) -> Sublayer:
        """Return the sub-layer of these maps: the innermost module around them, or the maps themselves."""
        around = [c for c in inside if all(m is c or c.encloses(m) for m in maps)]
        call = around[-1] if around else maps[0]  # a network may be two maps without a module of their own
        linear = [c for c in inside if isinstance(c.module, MAPS) and (call.encloses(c) or c in maps)]

        def vectors(tensors: list[Any]) -> list[Tensor]:  # a convolution has its features second
            floats = [x for x in tensors if isinstance(x, Tensor) and x.dim() == 3 and x.is_floating_point()]
            return [y for x in floats for y in (x, x.mT) if y.shape in self.x_shapes.values()]

        inputs = vectors(call.inputs)
        reads = vectors([c.x for c in linear])[:1] or inputs[:1]
        gives = vectors([call.output if around else None, *(c.output for c in linear[-1:])])
        if not reads or not gives:
            raise NotApplicable("a sub-layer of it does not map vectors (B, T, d_model) to vectors")
        return Sublayer(kind, call.begin, inputs, reads[0], gives, maps)

    @cached_property
    def memory(self) -> list[Tensor]:
        """What each decoder layer's attention reads besides its own words."""
        crossing = [[s for s in layer.sublayers if s.kind == CROSS] for layer in self.decoder]
        reads = [[x for s in subs for x in s.inputs if x.shape == self.x_shapes[S]] for subs in crossing]
        return [xs[0] for xs in reads if xs]

    @cached_property
    def states(self) -> list[Tensor]:
        """What leaves the decoder, if known: it enters the map to words, or a module gave it last."""
        after = [c for c in self.trace.calls if c.begin > self.last.end and isinstance(c.output, Tensor)]
        to_words = [c.x for c in after if c.output.shape[-1:] == (self.model.vocab,)]
        entered = [x for x in to_words if isinstance(x, Tensor) and x.shape == self.x_shapes[T]]
        modules = [c.output for c in after if c.output.shape == self.x_shapes[T]]
        return [*entered[:1], *modules[-1:]][:1]


def holds_maps(call: Call) -> bool:
    """Tell whether the module of a call has two matrices or more."""
    return sum(p.dim() > 1 for p in call.module.parameters()) > 1


def follow(layer: Layer, calls: Calls) -> str:
    """Follow the residual stream through a layer; tell whether it is post-norm or pre-norm.

    Raises Failure where a known mistake explains the difference, else NotApplicable: an unknown design.
    """
    problems: list[tuple[int, Failure | NotApplicable]] = []
    for order in ("post-norm", "pre-norm"):
        stream = layer.x
        try:
            for step in range(len(layer.sublayers)):
                check_reading(order, layer, step, stream, calls)
                stream = next_stream(order, layer, step, stream, calls)
            return order
        except (Failure, NotApplicable) as problem:
            problems.append((step, problem))
    _, furthest = max(problems, key=lambda p: (p[0], isinstance(p[1], Failure)))
    raise furthest


def check_reading(order: str, layer: Layer, step: int, stream: Tensor, calls: Calls) -> None:
    """Raise Failure unless a sub-layer reads the stream, or in pre-norm the stream normalized."""
    sub = layer.sublayers[step]
    inputs = [x for x in sub.inputs if x.shape == stream.shape] or [sub.reads]
    norms = normalized(stream, calls)
    expected = [stream] if order == "post-norm" else norms
    right = [any(close(x, y) for y in expected) for x in inputs]
    inside = all(close(x, stream) for x in inputs) and any(close(sub.reads, y) for y in norms)
    where = f"{layer.name}, {sub.kind}"
    if all(right) or (order == "pre-norm" and inside):
        return
    if any(right) and sub.kind == SELF:
        mistake = "query, key and value are not one tensor: self_attn(y, y, y), in pre-norm all normalized"
        raise Failure(f"{where}: query, key and value are not the same", mistake=mistake)
    if order == "pre-norm" and any(close(x, stream) for x in inputs):
        mistake = "in pre-norm each sub-layer reads the sum normalized: x + f(norm(x))"
        raise Failure(f"{where}: it reads the sum itself, not normalized", mistake=mistake)
    previous = "what the sub-layer before it gave, without residual connection"
    earlier = {"what the layer was given": [layer.x], previous: layer.sublayers[step - 1].gives}
    for what, tensors in earlier.items() if step else ():
        read = any(close(x, z) for x in inputs for y in tensors for z in (y, *normalized(y, calls)))
        parallel = close(layer.out, layer.x + sum(s.gives[0] for s in layer.sublayers))
        if read and not parallel:
            raise Failure(f"{where}: it reads {what}", mistake=f"it reads {what}: it must read their sum")
    raise NotApplicable(f"{where}: it reads something that is not known here")


def next_stream(order: str, layer: Layer, step: int, stream: Tensor, calls: Calls) -> Tensor:
    """Return the sum, in post-norm normalized, that must go on. Raises Failure where it does not."""
    sub, rest = layer.sublayers[step], layer.sublayers[step + 1 :]
    inputs = [*rest[0].inputs, rest[0].reads] if rest else [layer.out]
    following = [x for x in inputs if x.shape == stream.shape]
    sums = [stream + y for y in sub.gives]
    candidates = [n for y in sums for n in normalized(y, calls)] if order == "post-norm" else sums
    if len(sub.gives) == 2 and wrapping(stream, sub.reads, sub.gives[1], sub.gives[0], calls):
        candidates.append(sub.gives[0])  # the sub-layer's own module adds and normalizes
    for candidate in candidates:
        passed_on = [candidate, *(normalized(candidate, calls) if rest and order == "pre-norm" else [])]
        if any(close(x, y, 1e-3) for x in passed_on for y in following):
            return candidate
    for got, y in itertools.product(following, sub.gives):
        if mistake := residual_mistake(got, stream, lambda _, y=y: y):  # type: ignore[misc]
            message = "what comes next is not the sum, normalized"
            raise Failure(f"{layer.name}, {sub.kind}: {message}", mistake=mistake)
    earlier = {"what the layer was given": [layer.x]} if step else {}
    earlier |= {f"what {s.kind} gave": s.gives for s in layer.sublayers[:step]}
    for what, tensors in earlier.items():
        others = [z for x in tensors for y in sub.gives for z in (x + y, *normalized(x + y, calls))]
        if any(close(x, y, 1e-3) for x in following for y in others):
            mistake = f"its residual connection starts at {what}: it must start at the sum before it"
            raise Failure(f"{layer.name}, {sub.kind}: it is added to {what}", mistake=mistake)
    raise NotApplicable(f"{layer.name}, {sub.kind}: what becomes of its output is not known here")
