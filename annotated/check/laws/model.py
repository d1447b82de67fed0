"""Laws of a whole model: what it may see, how it starts, what it learns (lesson 06)."""

import itertools
import math
from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.check.adapt import Code
from annotated.check.law import close, expect, law, numbers
from annotated.check.laws.parts import check_log_probs
from annotated.check.tracing import spied, trace

SRC = torch.tensor([[5, 6, 7, 8, 9]])  # padding is appended where a law wants some
TGT = torch.tensor([[3, 11, 12, 13, 14, 15]])
MODEL = "06_the_full_model", "make_model"


@law(*MODEL, "model: no peeking")
def causality(code: Code) -> None:
    """What the decoder predicts at a position does not depend on later target tokens."""
    model, T = code.model(), TGT.size(1)
    with spied() as weights:
        before = model(SRC, TGT)
    seen = sum((w.view(-1, T, T)[0] for w in weights if w.shape[-2:] == (T, T)), torch.zeros(T, T)) > 1e-6
    for t in range(T - 1, 0, -1):
        after = model(SRC, TGT.index_fill(1, torch.tensor([t]), 20))
        leaks = [i for i in range(t) if not close(before[0, i], after[0, i])]
        example = f"token {t} of the target changes the prediction at {leaks}"
        expect(not leaks, "the decoder sees the future", example, seen=seen)


@law(*MODEL, "model: source padding")
def source_padding(code: Code) -> None:
    """Padding at the end of the source changes no prediction."""
    model, n, T = code.model(), SRC.size(1), TGT.size(1)
    before = model(SRC, TGT)
    with spied() as weights:
        after = model(F.pad(SRC, (0, 4), value=code.pad), TGT)

    rows = {"encoder": n + 4, "cross": T}
    of = {name: [w for w in weights if w.shape[-2:] == (m, n + 4)] for name, m in rows.items()}
    facts = {name: any(bool(w[..., n:].max() > 1e-6) for w in ws) for name, ws in of.items()}
    facts["inverted"] = any(bool(w[..., :n].max() <= 1e-6) for ws in of.values() for w in ws)
    example = f"one row: {numbers(before)} without, {numbers(after)} with padding"
    expect(close(before, after), "padding of the source changes predictions", example, **facts)


@law(*MODEL, "model: batch")
def batch_invariance(code: Code) -> None:
    """A sentence in a batch, padded to the length of the others, gets the predictions that it gets alone."""
    model, p = code.model(), code.pad
    src = torch.tensor([[5, 6, 7, 8, 9], [10, 11, p, p, p], [4, 5, 6, 7, p], [7, 8, 9, p, p]])
    tgt = torch.tensor([[3, 11, 12, 13], [3, 14, p, p], [3, 15, 16, p], [3, 17, 18, 19]])
    together = model(src, tgt)
    for i in range(4):
        n, m = int((src[i] != p).sum()), int((tgt[i] != p).sum())
        alone = model(src[i : i + 1, :n], tgt[i : i + 1, :m])
        rows = f"sentence {i}: {numbers(alone)} alone, {numbers(together[i : i + 1])} in the batch"
        seen = "a sentence's predictions depend on its batch"
        expect(close(alone[0], together[i, :m]), seen, rows, model=model, src=src, tgt=tgt, p=p)


@law(*MODEL, "model: memory")
def memory_is_used(code: Code) -> None:
    """Every prediction depends on the source, and on the target tokens read so far."""
    model = code.model()
    with spied() as weights:
        before = model(SRC, TGT)
    after = model(torch.tensor([[5, 16, 7, 8, 9]]), TGT)
    crossing = any(w.shape[-2:] == (TGT.size(1), SRC.size(1)) for w in weights)
    deaf = any(close(before[0, t], after[0, t], 1e-6) for t in range(TGT.size(1)))
    expect(not deaf, "another source gives the same predictions", crossing=crossing)
    read = model(SRC, torch.tensor([[3, 20, 12, 13, 14, 15]]))
    expect(not close(before[0, 1:], read[0, 1:], 1e-6), "another target gives the same predictions")


@law(*MODEL, "model: order of words")
def order_of_words(code: Code) -> None:
    """The order of words counts, in the source and in the target: without positions it would not."""
    model = code.model(N=1)  # of two causal layers the second could tell the order by what the first has seen
    before = model(SRC, TGT)
    encoder = close(before, model(torch.tensor([[6, 5, 7, 8, 9]]), TGT), 1e-5)
    decoder = close(before[:, 3:], model(SRC, torch.tensor([[3, 12, 11, 13, 14, 15]]))[:, 3:], 1e-5)
    parts = " and ".join(name for name, deaf in (("encoder", encoder), ("decoder", decoder)) if deaf)
    seen = f"two words change places, and the {parts} does not notice"
    expect(not parts, seen, mistake=f"positions are not added in the {parts}")


@law(*MODEL, "model: residuals and norms")
def residuals_and_norms(code: Code) -> str:
    """Each sub-layer adds to its input, and what leaves a stack is normalized."""
    model = code.model(shake=0.0)
    memory, calls = trace(lambda: model.encode(SRC))
    ran = [m for m, _, _ in calls]
    norms = [m for m in ran if "norm" in type(m).__name__.lower() and not list(m.children())]
    expect(norms, "the encoder has no layer norm")
    tables = {id(m.weight) for m in model.modules(nn.Embedding)}
    for m in model.modules(nn.Linear):
        if id(m.weight) not in tables:
            for parameter in m.parameters():
                parameter.zero_()
    silent = model.encode(SRC)
    seen = "with sub-layers that give 0, nothing of the words is left"
    expect(not close(silent[0, 0], silent[0, 1], 1e-3), seen, numbers(silent))
    first = next(m for m in ran if m in norms or isinstance(m, nn.Linear | nn.MultiheadAttention))
    order = "pre-norm" if first in norms else "post-norm"
    deviation = memory.std(-1, correction=0)
    normal, example = ((deviation > 0.9) & (deviation < 1.1)).all(), f"deviations {numbers(deviation)}"
    expect(normal, "what leaves the encoder is not normalized", example, order=order)
    return order


@law(*MODEL, "model: probabilities")
def probabilities(code: Code) -> str | None:
    """The model, with its generator, gives log-probabilities (or logits) over the vocabulary."""
    return check_log_probs(code.model(vocab=23).raw(SRC.repeat(2, 1), TGT.repeat(2, 1)), [])


@law(*MODEL, "model: first loss")
def first_loss(code: Code) -> str:
    """A new model gives all tokens about the same probability: its loss is near ln V."""
    V = 1000
    model = code.model(src_vocab=V, tgt_vocab=V, d_model=64, d_ff=128, shake=0.0)
    src, tgt = torch.randint(3, V, (8, 9)), torch.randint(3, V, (8, 10))
    loss = float(F.nll_loss(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten()))
    told = f"{loss:.2f}, and ln {V} = {math.log(V):.2f}"
    tables = [m.weight for m in model.modules(nn.Embedding)]
    tied = bool({id(x) for x in tables} & {id(m.weight) for m in model.modules(nn.Linear)})
    wide = max((float(x.std()) for x in tables), default=0.0)
    near = math.log(V) - 0.7 < loss < math.log(V) + 1
    expect(near, "the first loss is not near ln V", told, tied=tied, wide=wide)
    return told


@law(*MODEL, "model: tying")
def tying(code: Code) -> str:
    """Matrices that are meant to be one are one: a copy would drift apart in training."""
    named = code.model(shake=0.0).module.named_modules()
    matrices = {name: m.weight for name, m in named if isinstance(m, nn.Embedding | nn.Linear)}
    matrices = {name: weight for name, weight in matrices.items() if weight.shape == (23, 24)}
    shared = []
    for (a, one), (b, other) in itertools.combinations(matrices.items(), 2):
        if one is other or one.data_ptr() == other.data_ptr():
            shared.append(f"{a} = {b}")
        else:
            expect(not torch.equal(one, other), f"{a} and {b} are equal, but two")
    return "one matrix: " + ", ".join(shared) if shared else "no matrix is shared"


@law(*MODEL, "model: gradients")
def gradients(code: Code) -> None:
    """A loss reaches every parameter, and every layer that runs has its parameters in the model."""
    model = code.model()
    with torch.enable_grad():
        out, calls = trace(lambda: model(SRC, TGT))
        out.gather(-1, TGT[..., None]).sum().backward()
    known = {id(p) for p in model.module.parameters()}
    for module, *_ in calls:
        kept = all(id(p) in known for p in module.parameters(recurse=False))
        expect(kept, f"{type(module).__name__} is not among the model's parameters")
    named = [(n, p) for n, p in model.module.named_parameters() if p.requires_grad]
    without = [n for n, p in named if p.grad is None or not p.grad.abs().sum() > 0]
    # A bias of the keys shifts all scores of a query alike, and so has no gradient but rounding.
    expect(not without, f"no gradient reaches {len(without)} parameters", ", ".join(without[:4]))


@law(*MODEL, "model: own weights")
def own_weights(code: Code) -> None:
    """Each layer, and each sub-layer in it, has weights of its own."""
    model = code.model()
    _, calls = trace(lambda: model(SRC, TGT))
    vectors = [m for m, x, _ in calls if not isinstance(x, Tensor) or x.is_floating_point()]
    own = [m for m in vectors if [*m.parameters(recurse=False)]]  # a table may serve for both languages
    for module, times in Counter(own).items():
        names = [n for n, m in model.module.named_modules(remove_duplicate=False) if m is module]
        seen = f"{[*names, type(module).__name__][0]} is used {times} times in one pass"
        expect(times == 1, seen, names=names)


@law(*MODEL, "model: eval")
def eval_is_deterministic(code: Code) -> None:
    """In evaluation mode two passes agree; in training mode dropout makes them differ."""
    model = code.model(dropout=0.5)
    expect(close(model(SRC, TGT), model(SRC, TGT)), "the same input gives two outputs in evaluation mode")
    model.module.train()
    same = close(model(SRC, TGT), model(SRC, TGT))
    expect(not same, "in training mode, with dropout 0.5, two passes agree")
