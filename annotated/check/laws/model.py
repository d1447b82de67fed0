"""Laws of a whole model: what it may see, what it must see, and its sizes (lesson 06)."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.check.assertions import Failure, close, expect, numbers
from annotated.check.law import law
from annotated.check.laws.parts import check_log_probs
from annotated.check.models import SIZES, Model
from annotated.check.tracing import Call, Calls, collect_weights, in_mode, trace_all, trace_calls
from annotated.check.user_code import Code, Unclear, takes, takes_all

SRC = torch.tensor([[5, 6, 7, 8, 9]])  # padding is appended where a law wants some
TGT = torch.tensor([[3, 11, 12, 13, 14, 15]])
MODEL = "06_the_full_model", "make_model"
WRONG = "model: probabilities", "model: eval"  # what everything else about a model may follow from
MASKS = "model: no peeking", "model: source padding"
MODES = {False: "", True: ", in training mode with dropout 0"}


@law(*MODEL, "model: probabilities")
def probabilities(code: Code) -> str | None:
    """The model, with its generator, gives log-probabilities (or logits) over the target's vocabulary."""
    model = Model.of(code)
    src, tgt = (torch.tensor([[5, 6, n - 1], [7, n - 1, 8]]) for n in (SIZES["src_vocab"], model.vocab))
    out = model.raw(src, tgt)
    evidence = {"got": out, "src_vocab": SIZES["src_vocab"]}
    expect(out.shape == (2, 3, model.vocab), f"its output has the shape {tuple(out.shape)}", **evidence)
    remark = check_log_probs(out, [])
    expect(model.agrees(src, tgt), "forward gives something else than decode with what encode gave")
    if code.stubs:
        states = model.states(src, tgt)
        whole = states.shape == out.shape and close(states, out) and not remark
        expect(whole, "decode does not give log-probabilities")
    return remark


@law(*MODEL, "model: eval", "model: probabilities")
def eval_is_deterministic(code: Code) -> str:
    """In evaluation mode two passes agree; in training mode dropout makes them differ."""
    model = Model.of(code, dropout=0.5)
    registered = {*model.module.modules()}
    one, other = ({c.module for c in trace_calls(lambda: model(SRC, TGT))[1]} for _ in range(2))
    made_anew, unregistered = one - other - registered, one - registered
    faults = {"is made anew in each pass": made_anew, "is not among the model's parameters": unregistered}
    for fault, modules in faults.items():
        names = {type(module).__name__ for module in modules if [*module.parameters()]}
        expect(not names, f"{', '.join(sorted(names))} {fault}")
    expect(close(model(SRC, TGT), model(SRC, TGT)), "the same input gives two outputs in evaluation mode")
    if not takes(code.find("make_model"), "drop"):
        return "takes no dropout"
    model.module.train()
    same = close(model(SRC, TGT), model(SRC, TGT))
    expect(not same, "in training mode, with dropout 0.5, two passes agree")
    return ""


@law(*MODEL, "model: sizes", *WRONG)
def sizes(code: Code) -> None:
    """N layers, h heads and d_ff are used, whatever they are: other sizes give another model."""
    N = 5  # not a divisor of usual defaults
    make, model, S, T = code.find("make_model"), Model.of(code, N=N), SRC.size(1), TGT.size(1)
    with collect_weights() as weights:
        model(SRC, TGT)
    attentions = {}
    for name, shape in (("encoder", (S, S)), ("decoder", (T, T)), ("attention to the memory", (T, S))):
        attentions[name] = [w for w in weights if w.shape[-2:] == shape]
        count = len(attentions[name])
        right = count % N == 0 or not takes_all(make, "N")
        expect(right, f"{count} attentions run in the {name} where N is {N}", N=N)
    shapes = {n for p in model.module.parameters() for n in p.shape}
    wide = any(SIZES["d_ff"] * k in shapes for k in (1, 2, 3)) or not takes_all(make, "d_model", "d_ff")
    expect(wide, f"no matrix is d_ff = {SIZES['d_ff']} wide")
    if len(attentions["encoder"]) == N and takes_all(make, "h"):
        heads = {w.numel() // (S * S) for w in attentions["encoder"]}
        expect(heads == {SIZES["h"]}, f"{heads} heads run where h is {SIZES['h']}")


@law(*MODEL, "model: no peeking", *WRONG)
def causality(code: Code) -> None:
    """What the decoder predicts at a position does not depend on later target tokens, nor when it trains."""
    model, T = Model.of(code), TGT.size(1)
    for training, how in MODES.items():
        with in_mode(model.module, training):
            before, recorded = trace_all(lambda: model(SRC, TGT))
            square = [w.x.view(-1, T, T) for w in recorded.weights if w.x.shape[-2:] == (T, T)]
            total = sum((w[0] for w in square), torch.zeros(T, T))
            for t in range(T - 1, 0, -1):
                changed_tgt = TGT.index_fill(1, torch.tensor([t]), 20)
                after, changed = trace_all(partial(model, SRC, changed_tgt))
                leaks = [i for i in range(t) if not close(before[0, i], after[0, i])]
                example = f"token {t} of the target changes the prediction at {leaks}"
                if leaks:
                    mixing = first_mixing(code, recorded.calls, changed.calls, t)
                    mixes = type(mixing.module).__name__ if mixing else ""
                    evidence: dict[str, Any] = {"attended": total > 1e-6, "how": how, "mixes": mixes}
                    evidence["uniform"] = any(close(w, torch.full_like(w, 1 / T), 1e-5) for w in square)
                    evidence["rows"] = all(close(w.sum(-1), torch.ones(len(w), T)) for w in square)
                    evidence["filled"] = close(total[0, 2:] / total[0, 1], torch.ones(T - 2), 1e-6)
                    old = [p for p in Model.of(code, shake=0.0).module.parameters() if p.dim() > 1]
                    pairs = ((p, torch.ones_like(p).tril()) for p in old)
                    evidence["learned"] = any(torch.equal(p, x) and not x.all() for p, x in pairs)
                    evidence["joined"] = hides_what_both_hide(model)
                    evidence["by_heads"] = any(mixing and mixing.encloses(w) for w in recorded.weights)
                    raise Failure(f"the decoder sees the future{how}", example, **evidence)


def hides_what_both_hide(model: Model) -> bool:
    """Tell whether the decoder hides what is later and padding, and shows what is only one of the two."""
    T, padded = TGT.size(1), TGT.clone()
    padded[0, -2:] = model.pad
    with collect_weights() as weights:
        model(SRC, padded)
    square = [w.view(-1, T, T) for w in weights if w.shape[-2:] == (T, T)]
    both = torch.ones(T, T).triu(1).bool() & (padded == model.pad)
    return any(torch.equal(w[0] < 1e-6, both) for w in square)


def first_mixing(code: Code, calls: Calls, changed: Calls, t: int) -> Call | None:
    """Return the first call whose outputs before position t change, and its inputs do not."""

    def before(x: object) -> Tensor | None:
        ordered = code.flip(x) if isinstance(x, Tensor) and x.dim() > 2 else None
        return ordered[:, :t] if ordered is not None and ordered.size(1) == TGT.size(1) else None

    for a, b in zip(calls, changed, strict=False):
        read, gave = ([before(x), before(y)] for x, y in ((a.x, b.x), (a.output, b.output)))
        if all(x is not None for x in (*read, *gave)) and close(*read, 1e-6) and not close(*gave):  # type: ignore[arg-type, call-arg]
            return a
    return None


@contextmanager
def known_padding(code: Code) -> Iterator[None]:
    """Ask which number is padding, where a model that makes its masks itself was not told, and fails."""
    try:
        yield
    except Failure:
        if not code.has("make_model"):
            raise
        module = Model.of(code).module
        called = module.encode if hasattr(module, "encode") else module
        pad_is_known = code.knows_pad or code.stubs or takes_all(code.find("make_model"), "pad")
        if pad_is_known or takes(called, "mask"):
            raise
        raise Unclear("which number is padding? Say PAD = ... in the file, or in an adapter") from None


@law(*MODEL, "model: source padding", *WRONG, "model: no peeking")
def source_padding(code: Code) -> None:
    """Padding at the end of the source changes no prediction, whatever its number, nor in training."""
    pads = {code.pad, 2} if takes_all(code.find("make_model"), "pad") else {code.pad}
    for pad, (training, how) in itertools.product(sorted(pads), MODES.items()):
        model, n = Model.of(code, pad=pad), SRC.size(1)
        with in_mode(model.module, training):
            before = model(SRC, TGT)
            with collect_weights() as weights:
                after = model(F.pad(SRC, (0, 4), value=pad), TGT)
        rows = {"encoder": n + 4, "cross": TGT.size(1)}
        of = {name: [w for w in weights if w.shape[-2:] == (m, n + 4)] for name, m in rows.items()}
        evidence = {name: any(bool(w[..., n:].max() > 1e-6) for w in ws) for name, ws in of.items()}
        evidence["inverted"] = any(bool(w[..., :n].max() <= 1e-6) for ws in of.values() for w in ws)
        evidence["known"] = all(of.values())
        evidence["zero_works"] = pad != 0 and code.pad == 0
        example = f"one row: {numbers(before)} without, {numbers(after)} with padding {pad}"
        with known_padding(code):
            message = f"padding of the source changes predictions{how}"
            expect(close(before, after), message, example, **evidence)


@law(*MODEL, "model: batch", *WRONG, *MASKS)
def batch_invariance(code: Code) -> None:
    """A sentence in a batch, padded to the length of the others, gets the predictions that it gets alone."""
    model, p = Model.of(code), code.pad
    src = torch.tensor([[5, 6, 7, 8, 9], [10, 11, p, p, p], [4, 5, 6, 7, p], [7, 8, 9, p, p]])
    tgt = torch.tensor([[3, 11, 12, 13], [3, 14, p, p], [3, 15, 16, p], [3, 17, 18, 19]])
    for training, how in MODES.items():
        with in_mode(model.module, training):
            with collect_weights() as weights:
                together = model(src, tgt)
            full = model(src.masked_fill(src == p, 12), tgt.masked_fill(tgt == p, 12))
            alone = [model(s[s != p][None], t[t != p][None]) for s, t in zip(src, tgt, strict=True)]
        hidden = (src == p).view(1, 4, 1, 5)  # of each sentence, held against each head
        four = [w for w in weights if w.dim() == 4 and w.shape[:2] == (4, 4) and w.size(-1) == 5]
        by_head = any((w * hidden).max() < 1e-6 for w in four)
        evidence = {"by_head": by_head, "masks": close(full[:1], alone[0])}
        for i, (one, row) in enumerate(zip(alone, together, strict=True)):
            rows = f"sentence {i}: {numbers(one)} alone, {numbers(row[None])} in the batch"
            message = f"a sentence's predictions depend on its batch{how}"
            with known_padding(code):
                expect(close(one[0], row[: one.size(1)]), message, rows, **evidence)


@law(*MODEL, "model: memory", *WRONG, *MASKS)
def memory_is_used(code: Code) -> None:
    """Every prediction depends on the source, and on the target tokens read so far."""
    model = Model.of(code)
    with collect_weights() as weights:
        before = model(SRC, TGT)
    after = model(other_src := torch.tensor([[5, 16, 7, 8, 9]]), TGT)
    crossing = any(w.shape[-2:] == (TGT.size(1), SRC.size(1)) for w in weights)
    deaf = any(close(before[0, t], after[0, t], 1e-6) for t in range(TGT.size(1)))
    new = []
    for src in (SRC, SRC, other_src) if deaf else ():  # each by a model of its own, of the same numbers
        torch.manual_seed(1)
        new.append(Model.of(code)(src, TGT))
    evidence = {"crossing": crossing, "kept": deaf and close(new[0], new[1]) and not close(new[1], new[2])}
    expect(not deaf, "another source gives the same predictions", **evidence)
    other = model(SRC, torch.tensor([[3, 20, 12, 13, 14, 15]]))
    expect(not close(before[0, 1:], other[0, 1:], 1e-6), "another target gives the same predictions")


@law(*MODEL, "model: order of words", *WRONG, *MASKS, "model: memory")
def order_of_words(code: Code) -> None:
    """The order of words counts, in the source and in the target: without positions it would not."""
    model = Model.of(code, N=1)  # the second of two causal layers can tell the order by what the first saw
    before = model(SRC, TGT)
    reads_source = "model: memory" not in code.not_applicable
    encoder = reads_source and close(before, model(torch.tensor([[6, 5, 7, 8, 9]]), TGT), 1e-5)
    decoder = close(before[:, 3:], model(SRC, torch.tensor([[3, 12, 11, 13, 14, 15]]))[:, 3:], 1e-5)
    deaf = " and ".join(name for name, same in (("encoder", encoder), ("decoder", decoder)) if same)
    message = f"two words change places, and the {deaf} does not notice"
    expect(not deaf, message, mistake=f"positions are not added in the {deaf}")
