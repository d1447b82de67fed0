"""Laws of a model's parameters: how they start, which are shared, what learns (lesson 06)."""

import itertools
import math
from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.assertions import expect
from annotated.check.law import law
from annotated.check.laws.model import MASKS, MODEL, SRC, TGT, WRONG
from annotated.check.laws.parts import check_kept
from annotated.check.models import SIZES, Model
from annotated.check.tracing import trace_calls, unreached
from annotated.check.user_code import Code


@law(*MODEL, "model: own weights", *WRONG)
def own_weights(code: Code) -> None:
    """Each layer, and each sub-layer in it, has weights of its own, which start otherwise than all others."""
    model = Model.of(code, shake=0.0)
    _, calls = trace_calls(lambda: model(SRC, TGT))
    vectors = [c.module for c in calls if not isinstance(c.x, Tensor) or c.x.is_floating_point()]
    used = [m for m in vectors if [*m.parameters(recurse=False)]]  # a table may serve for both languages
    for module, times in Counter(used).items():
        names = [n for n, m in model.module.named_modules(remove_duplicate=False) if m is module]
        message = f"{[*names, type(module).__name__][0]} is used {times} times in one pass"
        expect(times == 1, message, names=names)
    learned = [(n, p) for n, p in model.module.named_parameters() if p.requires_grad and p.dim() > 1]
    drawn = [(n, p) for n, p in learned if p.min() < p.max()]
    for name, p in learned:
        message = f"all numbers of {name} are {float(p.max()):.3g} at the start"
        expect(p.min() < p.max() or not p.any(), message)
    for (a, one), (b, other) in itertools.combinations(drawn, 2):
        table = model.vocab in one.shape or max(one.shape) >= SIZES["max_len"]  # of words, or of positions
        if one.shape == other.shape and not table:
            expect(not torch.equal(one, other), f"{a} and {b} start with the same numbers")


@law(*MODEL, "model: gradients", *WRONG, *MASKS, "model: sizes", "model: mem", "model: own", "model: res")
def gradients(code: Code) -> None:
    """A loss reaches every parameter, and every layer that runs has its parameters in the model."""
    model = Model.of(code)
    with torch.enable_grad():
        _, calls = trace_calls(lambda: model(SRC, TGT).gather(-1, TGT[..., None]).sum().backward())
    without, ran = unreached(model.module), {c.module for c in calls}
    owners = {name.rpartition(".")[0] for name in without}
    idle = [f"{n} ({type(m).__name__})" for n, m in model.module.named_modules()
            if m not in ran and [*m.parameters(recurse=False)] and n in owners]  # fmt: skip
    message, parts = f"no gradient reaches {len(without)} parameters", any(" of " in name for name in without)
    expect(not without, message, ", ".join([*idle, *without][:4]), idle=idle, parts=parts)


@law(*MODEL, "model: tying", *WRONG)
def tying(code: Code) -> str:
    """Matrices that are meant to be one are one parameter: two would drift apart in training."""
    module = Model.of(code, shake=0.0, src_vocab=23, tgt_vocab=23).module
    named = {id(p): (n, p) for n, p in module.named_parameters() if p.shape == (23, 24)}
    for (a, one), (b, other) in itertools.combinations(named.values(), 2):
        apart = one.data_ptr() != other.data_ptr()
        expect(apart, f"{a} and {b} have the same numbers in memory, but are two parameters")
        drawn = one.min() < one.max()
        expect(drawn or other.min() < other.max(), f"{a} and {b} start with one number everywhere")
        expect(not torch.equal(one, other), f"{a} and {b} are equal, but two")
    every = [(n, id(p)) for n, p in module.named_parameters(remove_duplicate=False)]
    names = [[n for n, other in every if other == one] for one in named]
    shared = [" = ".join(together) for together in names if len(together) > 1]
    unshared = "no matrix is shared" if len(named) > 2 else ""  # else the output may be a table's, too
    return f"one matrix: {', '.join(shared)}" if shared else unshared


@law(*MODEL, "model: first loss", *WRONG, "model: em", "model: ty", "model: res", "model: own", "model: grad")
def first_loss(code: Code) -> str:
    """A new model gives all tokens about the same probability: its loss is near ln V."""
    V = 1000
    model = Model.of(code, src_vocab=V, tgt_vocab=V, d_model=64, d_ff=128, shake=0.0)
    src, tgt = torch.randint(3, V, (8, 9)), torch.randint(3, V, (8, 10))
    loss = float(F.nll_loss(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten()))
    remark = f"{loss:.2f}, and ln {V} = {math.log(V):.2f}"
    tables = [m.weight for m in model.modules(nn.Embedding)]
    tied = bool({id(x) for x in tables} & {id(m.weight) for m in model.modules(nn.Linear)})
    wide = max((float(x.std()) for x in tables), default=0.0)
    near = math.log(V) - 0.7 < loss < math.log(V) + 1
    expect(near, "the first loss is not near ln V", remark, tied=tied, wide=wide)
    if code.stubs:
        expect(0.5 < wide * 8 < 1.5, "the table does not start with deviation d_model ** -0.5", f"{wide:.3g}")
        for name, matrix in model.module.named_parameters():
            if matrix.dim() == 2 and V not in matrix.shape:
                bound, most = math.sqrt(6 / sum(matrix.shape)), float(matrix.abs().max())
                message = f"{name} does not start Xavier-uniform"
                expect(0.9 * bound < most < 1.01 * bound, message, f"largest {most:.3g}, {bound:.3g}")
    return remark


@law(*MODEL, "model: moves", *WRONG)
def moves(code: Code) -> str:
    """Everything that a model needs moves with it to another device, and into a checkpoint."""
    model = Model.of(code)
    return check_kept(model.module, lambda device: model.raw(SRC.to(device), TGT.to(device)))
