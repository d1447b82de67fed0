"""A model of anyone's code, called with tokens; and one to search with, where the code has none."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, cast

import torch
from torch import Tensor, nn

from annotated.check.assertions import close
from annotated.check.user_code import Code, NotApplicable, Unclear, parameters_of, takes_all, tensor_of

SIZES = {"src_vocab": 23, "tgt_vocab": 29, "N": 2, "d_model": 24, "d_ff": 40, "h": 4, "max_len": 64}
INSPECTION = ["__call__", "parameters", "modules", "children"]  # by which laws look into a module
INSPECTION += [f"named_{name}" for name in INSPECTION[1:]]
HEADS = ("generator", "project", "projection", "projection_layer", "fc_out", "out", "linear", "fc", "head")
METHODS = "encode", "decode", *HEADS  # of a model, which laws and searches call


def overrides(module: nn.Module, name: str) -> bool:
    """Tell whether a module replaces one of PyTorch's methods by its own."""
    return name in vars(module) or getattr(type(module), name) is not getattr(nn.Module, name)


def perturb(module: nn.Module, alpha: float) -> nn.Module:
    """Move what a module learns away from its first weights, such as biases of 0 and norms of 1.

    A wide matrix moves less, so that its output does not drown the others.
    """
    with torch.no_grad():
        for p in (p for p in module.parameters() if p.requires_grad):
            width = p.size(-1) if p.dim() > 1 else 1
            p.add_(torch.randn_like(p), alpha=alpha * (64 / max(64, width)) ** 0.5)
    return module


@dataclass
class Model:
    """A translation model of the code under test: tokens (B, S) and (B, T) in, log-probabilities out."""

    code: Code
    module: nn.Module
    vocab: int  # of the target
    pad: int
    first_weights: list[Tensor] = field(default_factory=list)  # where they are drawn again

    @classmethod
    def of(cls, code: Code, shake: float = 0.2, **sizes: Any) -> "Model":
        """Build a model of two layers, far enough from its first weights that every part counts."""
        sizes = {**SIZES, "dropout": 0.0, "pad": code.pad, "device": "cpu", **sizes}
        make = code.find("make_model")
        rest = [f"**{p.name}" for p in parameters_of(make) or () if p.kind is p.VAR_KEYWORD]
        if rest and not takes_all(make, "d_model"):
            raise Unclear.of(make, *rest)
        if not takes_all(make, "src_vocab", "tgt_vocab"):
            vocabulary = "tgt_vocab" if takes_all(make, "tgt_vocab") else "src_vocab"
            sizes["tgt_vocab"] = sizes["src_vocab"] = sizes[vocabulary]
        module = code.build("make_model", **sizes)
        if not isinstance(module, nn.Module):
            raise NotApplicable("needs a `make_model` that returns a torch.nn.Module")
        inside = [module]
        for part in inside:
            for name in INSPECTION:  # what is hidden from PyTorch is hidden from the laws
                if overrides(part, name):
                    raise Unclear(f"{type(part).__name__} has its own `{name}`: what it holds cannot be told")
            inside += [x for x in part._modules.values() if x is not None and x not in inside]
        vocabularies = {sizes["src_vocab"], sizes["tgt_vocab"]}
        if not any(vocabularies & {*p.shape} for p in module.parameters()):
            raise NotApplicable("needs a model of tokens: this one has no matrix for a vocabulary")
        perturb(module, shake)
        return cls(code, module, int(sizes["tgt_vocab"]), int(sizes["pad"]))

    def masks(self, src: Tensor, tgt: Tensor) -> dict[str, Tensor]:
        """Hide padding, and in the target what follows: bool (B, 1, S) and (B, T, T), True allowed."""
        causal = (tgt != self.pad).unsqueeze(1).expand(-1, tgt.size(1), -1).tril()
        return {"src_mask": (src != self.pad).unsqueeze(1), "tgt_mask": causal}

    def modules(self, *kinds: type[nn.Module]) -> list[Any]:
        return [module for module in self.module.modules() if isinstance(module, kinds)]

    def tables(self) -> list[Tensor]:
        """Return the matrices (vocabulary, d_model)."""
        shapes = [(SIZES["src_vocab"], SIZES["d_model"]), (self.vocab, SIZES["d_model"])]
        return [p for p in self.module.parameters() if p.shape in shapes]

    def encode(self, src: Tensor) -> Tensor:
        """Tokens (B, S) -> the memory (B, S, d_model). Raises NotApplicable for a model without `encode`."""
        if not hasattr(self.module, "encode"):
            raise NotApplicable("needs a model with `encode`")
        mask = self.masks(src, src)["src_mask"]
        encode: Any = self.module.encode
        return self.code.flip(tensor_of(self.code.call(encode, src=self.code.flip(src), src_mask=mask)))

    def states(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Any:
        """Return what `decode`, or the whole model, gives for tokens (B, S) and (B, T)."""
        module: Any = self.module
        if not self.in_two_steps:
            return self.forward(src, tgt)
        memory = self.code.flip(self.encode(src) if memory is None else memory)
        target = self.code.flip(tgt)
        return tensor_of(self.code.call(module.decode, memory=memory, tgt=target, **self.masks(src, tgt)))

    @property
    def in_two_steps(self) -> bool:
        """Whether the model has `encode` and `decode`."""
        return hasattr(self.module, "encode") and hasattr(self.module, "decode")

    def forward(self, src: Tensor, tgt: Tensor) -> Any:
        """Return what the model's own `forward` gives."""
        masks, flip = self.masks(src, tgt), self.code.flip
        return tensor_of(self.code.call(self.module, src=flip(src), tgt=flip(tgt), **masks))

    def agrees(self, src: Tensor, tgt: Tensor) -> bool:
        """Tell whether `forward` gives what `encode` and `decode` do, if there are all three."""
        if self.in_two_steps and "forward" in vars(type(self.module)):
            with suppress(NotApplicable):
                whole = self.forward(src, tgt)
                states, out = self.states(src, tgt), self.code.flip(self.raw(src, tgt))
                return any(close(whole, x) for x in (states, out, out.reshape(-1, self.vocab)))
        return True

    def raw(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return what the model gives, with its generator applied: (B, T, V)."""
        states, shape = self.states(src, tgt, memory), self.code.flip(tgt).shape
        if not isinstance(states, Tensor):
            raise NotApplicable(f"needs a tensor (B, T, {self.vocab}), not {type(states).__name__}")
        if states.size(-1) != self.vocab:
            heads = [getattr(self.module, name) for name in HEADS if hasattr(self.module, name)]
            if not heads:
                outputs = f"log-probabilities (B, T, {self.vocab})"
                raise NotApplicable(f"needs {outputs}, not {tuple(states.shape)}")
            states = tensor_of(heads[0](states))
        if states.shape[:2] != shape and states.numel() == tgt.numel() * self.vocab:
            states = states.view(*shape, -1)
        return self.code.flip(states)

    def __call__(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Log-probabilities (B, T, V), whether the model gives them, logits or probabilities."""
        out = self.raw(src, tgt, memory)
        if (out >= 0).all() and torch.allclose(out.sum(-1), torch.ones(()), atol=1e-3):
            return out.clamp_min(1e-30).log()
        return out.log_softmax(-1)


class StandIn(nn.Module):
    """A minimal model, with the classic's names, in which a search must use its masks."""

    positions: Tensor

    def __init__(self, src_vocab: int, tgt_vocab: int, d_model: int):
        super().__init__()
        self.src_embed, self.tgt_embed = (nn.Embedding(n, d_model) for n in (src_vocab, tgt_vocab))
        self.project = nn.Linear(d_model, tgt_vocab)
        self.generator = nn.LogSoftmax(-1)  # applied twice, it is the same: some searches apply it again
        self.register_buffer("positions", torch.randn(64, d_model))

    def read(self, x: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        scores = x @ keys.mT / 5
        return x + (scores if mask is None else scores.masked_fill(mask == 0, -1e9)).softmax(-1) @ keys

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        x = self.src_embed(src) + self.positions[: src.size(1)]
        return self.read(x, x, src_mask)

    def decode(self, memory: Tensor, src_mask: Tensor | None, tgt: Tensor, tgt_mask: Tensor | None) -> Tensor:
        x = self.tgt_embed(tgt) + self.positions[: tgt.size(1)]
        return self.generator(self.project(self.read(self.read(x, x, tgt_mask), memory, src_mask)))

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def searchable(code: Code) -> Code:
    """Return code that has a model: its own, or a stand-in. Raises NotApplicable if its masks are its own."""
    if code.has("make_model"):
        return code
    if code.true_hides or not code.batch_first or code.mask_dims != 3:
        raise NotApplicable("needs a `make_model` of these conventions")
    return replace(code, names={**code.names, "make_model": StandIn})


END, START = 2, 3


def randomize_scores(module: nn.Module, vocab: int, worker: Any = None) -> None:
    """Let a model give pseudo-random scores, here and in the worker if it runs there."""
    to_words = [m for m in module.modules() if isinstance(m, nn.Linear) and m.out_features == vocab]
    for linear in to_words:
        linear.register_forward_hook(lambda module, args, scores: pseudo_random(args[0], scores))
    decode: Any = getattr(module, "decode", None)
    if worker is not None:
        worker.randomize_scores(module, vocab)
    elif not to_words and decode is not None:  # it multiplies by its table

        @wraps(decode)
        def wrapped(*args: Any, **named: Any) -> Tensor:
            scores = tensor_of(decode(*args, **named))
            return pseudo_random(scores, scores).log_softmax(-1)

        cast(Any, module).decode = wrapped


def pseudo_random(states: Tensor, scores: Tensor) -> Tensor:
    """Return scores that change with every digit of the states, with few special tokens and early ends."""
    generator = torch.Generator().manual_seed(5)
    into = torch.randn(states.size(-1), 64, generator=generator)
    out = torch.randn(64, scores.size(-1), generator=generator)
    x = (states @ into).mul(3).sin() @ out / 32**0.5 * 1.25
    few = torch.tensor([-6.0, -6, -1, -6]).expand(*x.shape[:-1], 4)  # padding, another, the end, the start
    return x.index_add(-1, torch.tensor([0, 1, END, START]), few)
