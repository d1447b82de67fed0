"""Laws of a whole model: what it may see, how it starts, what it learns (lesson 06)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook

from annotated.check.adapt import Code, Model, spied
from annotated.check.laws import close, law, numbers
from annotated.check.parts_laws import check_log_probs
from annotated.check.report import Failure

SRC = torch.tensor([[5, 6, 7, 8, 9]])  # padding is appended where a law wants some
TGT = torch.tensor([[3, 11, 12, 13, 14, 15]])
LESSON, MODEL = "06_the_full_model", "make_model"


@law(LESSON, MODEL, "model: no peeking")
def causality(code: Code) -> None:
    """What the decoder predicts at a position does not depend on later target tokens."""
    model = code.model()
    with torch.no_grad():
        before = model(SRC, TGT)
        for t in range(TGT.size(1) - 1, 0, -1):
            changed = TGT.clone()
            changed[0, t] = 20
            after = model(SRC, changed)
            leaks = [i for i in range(t) if not close(before[0, i], after[0, i])]
            if leaks:
                example = f"token {t} of the target changes the prediction at {leaks}"
                raise Failure("the decoder sees the future", example, why_it_peeks(model))


def why_it_peeks(model: Model) -> str:
    """Look at the decoder's self-attention: which later positions have weight?"""
    T = TGT.size(1)
    with torch.no_grad(), spied() as weights:
        model(SRC, TGT)
    own = [w.view(-1, T, T)[0] for w in weights if w.shape[-2:] == (T, T)]
    if not own:
        return ""
    seen = torch.stack(own).amax(0) > 1e-6
    if seen.triu(1).any() and not seen.tril(-1).any():
        return "the causal mask is inverted: a position sees only what follows"
    if seen.triu(2).any():
        return "the decoder's self-attention does not use its mask: pass tgt_mask on to it"
    if seen.triu(1).any():
        return "the causal mask is off by one: position i may see up to i, not i + 1"
    return "self-attention is masked: something else mixes positions, such as a softmax over dim=1"


@law(LESSON, MODEL, "model: source padding")
def source_padding(code: Code) -> None:
    """Padding at the end of the source changes no prediction."""
    model, n = code.model(), SRC.size(1)
    padded = F.pad(SRC, (0, 4), value=code.pad)
    with torch.no_grad():
        before, after = model(SRC, TGT), model(padded, TGT)
        if close(before, after):
            return
        with spied() as weights:
            model(padded, TGT)
        own = [w[..., n:].abs().max() > 1e-6 for w in weights if w.shape[-2:] == (n + 4, n + 4)]
        cross = [w[..., n:].abs().max() > 1e-6 for w in weights if w.shape[-2:] == (TGT.size(1), n + 4)]
    where = [name for name, leak in (("the encoder", own), ("cross-attention", cross)) if any(leak)]
    inverted = [w[..., :n].abs().max() < 1e-6 for w in weights if w.size(-1) == n + 4]
    mistake = f"{' and '.join(where)} can see padding: the source mask is not used there" if where else ""
    if inverted and any(inverted):
        mistake = "the source mask is inverted: only padding is seen"
    raise Failure("padding of the source changes predictions",
                  f"one row: {numbers(before)} without, {numbers(after)} with padding", mistake)  # fmt: skip


@law(LESSON, MODEL, "model: batch")
def batch_invariance(code: Code) -> None:
    """A sentence in a batch, padded to the length of the others, gets the predictions that it gets alone."""
    model, p = code.model(), code.pad
    src = torch.tensor([[5, 6, 7, 8, 9], [10, 11, p, p, p], [4, 5, 6, 7, p], [7, 8, 9, p, p]])
    tgt = torch.tensor([[3, 11, 12, 13], [3, 14, p, p], [3, 15, 16, p], [3, 17, 18, 19]])
    with torch.no_grad():
        together = model(src, tgt)
        for i in range(4):
            n, m = int((src[i] != p).sum()), int((tgt[i] != p).sum())
            alone = model(src[i : i + 1, :n], tgt[i : i + 1, :m])
            if not close(alone[0], together[i, :m]):
                rows = f"sentence {i}: {numbers(alone)} alone, {numbers(together[i : i + 1])} in the batch"
                mistake = "sentences are mixed: is the batch the first dimension everywhere?"
                if close(model(src[:3], tgt[:3])[0], model(src[:1], tgt[:1])[0]):
                    mistake = "a mask lines up with the heads, not with the batch: mask.unsqueeze(1)"
                raise Failure("a sentence's predictions depend on its batch", rows, mistake)


@law(LESSON, MODEL, "model: memory")
def memory_is_used(code: Code) -> None:
    """Every prediction depends on the source, and on the target tokens read so far."""
    model = code.model()
    with torch.no_grad():
        before = model(SRC, TGT)
        after = model(torch.tensor([[5, 16, 7, 8, 9]]), TGT)
        read = model(SRC, torch.tensor([[3, 20, 12, 13, 14, 15]]))
        with spied() as weights:
            model(SRC, TGT)
    if any(close(before[0, t], after[0, t], 1e-6) for t in range(TGT.size(1))):
        crossing = [w for w in weights if w.shape[-2:] == (TGT.size(1), SRC.size(1))]
        mistake = (
            "" if crossing else "no attention of the decoder reads the memory: its keys and values are memory"
        )
        raise Failure("another source gives the same predictions", "", mistake)
    if close(before[0, 1:], read[0, 1:], 1e-6):
        mistake = "the decoder does not read its target tokens"
        raise Failure("another target gives the same predictions", "", mistake)


@law(LESSON, MODEL, "model: order of words")
def order_of_words(code: Code) -> None:
    """The order of words counts, in the source and in the target: without positions it would not."""
    model = code.model(N=1)  # of two causal layers the second could tell the order by what the first has seen
    other = torch.tensor([[6, 5, 7, 8, 9]])
    turned = torch.tensor([[3, 12, 11, 13, 14, 15]])
    where = []
    with torch.no_grad():
        before = model(SRC, TGT)
        where += ["encoder"] if close(before, model(other, TGT), 1e-5) else []
        where += ["decoder"] if close(before[:, 3:], model(SRC, turned)[:, 3:], 1e-5) else []
    if where:
        parts = " and ".join(where)
        mistake = f"positions are not added in the {parts}"
        raise Failure(f"two words change places, and the {parts} does not notice", "", mistake)


def watched(run: Callable[[], Tensor]) -> tuple[Tensor, list[nn.Module]]:
    """Return what a run gives, and the modules that ran in it, in their order."""
    ran: list[nn.Module] = []
    handle = register_module_forward_hook(lambda module, *_: ran.append(module))
    try:
        return run(), ran
    finally:
        handle.remove()


@law(LESSON, MODEL, "model: residuals and norms")
def residuals_and_norms(code: Code) -> str:
    """Each sub-layer adds to its input, and what leaves a stack is normalized."""
    model = code.model(shake=0.0)
    with torch.no_grad():
        memory, ran = watched(lambda: model.encode(SRC))
    norms = [m for m in ran if "norm" in type(m).__name__.lower() and not list(m.children())]
    if not norms:
        raise Failure("the encoder has no layer norm", "", "normalize each sub-layer's sum, or its input")
    outputs = {id(p) for m in model.module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    with torch.no_grad():
        for m in model.module.modules():
            if isinstance(m, nn.Linear) and id(m.weight) not in outputs:
                for parameter in m.parameters():
                    parameter.zero_()
        silent = model.encode(SRC)
    if close(silent[0, 0], silent[0, 1], 1e-3):
        mistake = "a residual connection is missing: x + sublayer(x)"
        raise Failure("with sub-layers that give 0, nothing of the words is left", numbers(silent), mistake)
    first = next(m for m in ran if m in norms or isinstance(m, nn.Linear | nn.MultiheadAttention))
    order = "pre-norm" if first in norms else "post-norm"
    deviation = memory.std(-1, correction=0)
    if not ((deviation > 0.9) & (deviation < 1.1)).all():
        mistake = "pre-norm needs one more norm after the last layer" if order == "pre-norm" else (
            "the last sum of the encoder is not normalized")  # fmt: skip
        raise Failure(
            "what leaves the encoder is not normalized", f"deviations {numbers(deviation)}", mistake
        )
    return order


@law(LESSON, MODEL, "model: probabilities")
def probabilities(code: Code) -> str | None:
    """The model, with its generator, gives log-probabilities (or logits) over the vocabulary."""
    with torch.no_grad():
        return check_log_probs(code.model(vocab=23).raw(SRC.repeat(2, 1), TGT.repeat(2, 1)))


@law(LESSON, MODEL, "model: first loss")
def first_loss(code: Code) -> str:
    """A new model gives all tokens about the same probability: its loss is near ln V."""
    V = 1000
    model = code.model(src_vocab=V, tgt_vocab=V, d_model=64, d_ff=128, shake=0.0)
    src, tgt = torch.randint(3, V, (8, 9)), torch.randint(3, V, (8, 10))
    with torch.no_grad():
        log_probs = model(src, tgt[:, :-1])
    loss = float(-log_probs.gather(-1, tgt[:, 1:, None]).mean())
    if not math.log(V) - 0.7 < loss < math.log(V) + 1:
        tied = any(
            a is b
            for m in model.module.modules() if isinstance(m, nn.Embedding) for a in m.parameters()
            for n in model.module.modules() if isinstance(n, nn.Linear) for b in n.parameters()
        )  # fmt: skip
        wide = max(
            float(m.weight.detach().std()) for m in model.module.modules() if isinstance(m, nn.Embedding)
        )
        mistake = "the first weights are too large"
        if tied and wide > 0.5:
            mistake = "the output shares the embeddings' matrix: start it with deviation d_model ** -0.5"
        raise Failure(
            "the first loss is not near ln V", f"{loss:.2f}, and ln {V} = {math.log(V):.2f}", mistake
        )
    return f"{loss:.2f}, and ln {V} = {math.log(V):.2f}"


@law(LESSON, MODEL, "model: tying")
def tying(code: Code) -> str:
    """Matrices that are meant to be one are one: a copy would drift apart in training."""
    module = code.model(shake=0.0).module
    matrices = {
        name: p
        for name, m in module.named_modules() if isinstance(m, nn.Embedding | nn.Linear)
        for p in [m.weight] if p.shape == (23, 24)
    }  # fmt: skip
    shared = []
    names = list(matrices)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            one, other = matrices[a], matrices[b]
            if one is other or one.data_ptr() == other.data_ptr():
                shared.append(f"{a} = {b}")
            elif torch.equal(one, other):
                mistake = "a copy is taken where the parameter itself should be shared: b.weight = a.weight"
                raise Failure(f"{a} and {b} are equal, but two", "", mistake)
    return "one matrix: " + ", ".join(shared) if shared else "no matrix is shared"


@law(LESSON, MODEL, "model: gradients")
def gradients(code: Code) -> None:
    """A loss reaches every parameter, and every layer that runs has its parameters in the model."""
    model = code.model()
    out, ran = watched(lambda: model(SRC, TGT))
    out.gather(-1, TGT[..., None]).sum().backward()
    known = {id(p) for p in model.module.parameters()}
    lost = [m for m in ran if any(id(p) not in known for p in m.parameters(recurse=False))]
    if lost:
        mistake = "layers stand in a plain list, where no optimizer finds them: use nn.ModuleList"
        raise Failure(f"{type(lost[0]).__name__} is not among the model's parameters", "", mistake)
    without = [n for n, p in model.module.named_parameters()
               if p.requires_grad and (p.grad is None or not p.grad.abs().sum() > 0)]  # fmt: skip
    # A bias of the keys shifts all scores of a query alike, and so has no gradient but rounding.
    if without:
        mistake = "is it computed but never used, or cut off by .detach(), .data or torch.no_grad()?"
        raise Failure(f"no gradient reaches {len(without)} parameters", ", ".join(without[:4]), mistake)


@law(LESSON, MODEL, "model: own weights")
def own_weights(code: Code) -> None:
    """Each layer, and each sub-layer in it, has weights of its own."""
    model = code.model()
    _, ran = watched(lambda: model(SRC, TGT))
    for module in ran:
        if isinstance(module, nn.Embedding) or not any(True for _ in module.parameters(recurse=False)):
            continue
        times = sum(m is module for m in ran)
        if times > 1:
            names = [n for n, m in model.module.named_modules(remove_duplicate=False) if m is module]
            mistake = "the layers are one and the same object: deepcopy each (or make a new one)"
            if len(names) == 1:
                mistake = "one module serves in several places: give each its own"
            raise Failure(f"{names[0] if names else type(module).__name__} is used {times} times in one pass",
                          "", mistake)  # fmt: skip


@law(LESSON, MODEL, "model: eval")
def eval_is_deterministic(code: Code) -> None:
    """In evaluation mode two passes agree; in training mode dropout makes them differ."""
    model = code.model(dropout=0.5)
    with torch.no_grad():
        if not close(model(SRC, TGT), model(SRC, TGT)):
            mistake = "dropout stays on in eval(): use nn.Dropout, or F.dropout(..., training=self.training)"
            raise Failure("the same input gives two outputs in evaluation mode", "", mistake)
        model.module.train()
        if close(model(SRC, TGT), model(SRC, TGT)):
            mistake = "dropout is not applied, or its rate is not passed on"
            raise Failure("in training mode, with dropout 0.5, two passes agree", "", mistake)


@law("09_first_example", MODEL, "model: learns")
def learns(code: Code) -> str:
    """A small model learns four sentences by heart in 60 updates."""
    model = code.model(d_model=32, shake=0.0)
    model.module.train()
    src, tgt = torch.randint(3, 23, (4, 5)), torch.randint(3, 23, (4, 6))
    optimizer, losses = torch.optim.Adam(model.module.parameters(), 3e-3), []
    for _ in range(60):
        loss = F.nll_loss(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    told = f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at the end"
    if not losses[-1] < 0.6 * losses[0]:
        raise Failure(
            "it hardly learns", told, "is there a softmax too many, or a part that no gradient reaches?"
        )
    return told
