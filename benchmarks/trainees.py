"""The models that train side by side: ours, in the steps that made it faster, and those of others."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

import torch
from records import installed
from timing import check_equal, leaving_out
from torch import Tensor, nn

from annotated.batches import Batch
from annotated.loop import SimpleLossCompute
from annotated.loss import LabelSmoothing
from annotated.transformer.attention import MultiHeadedAttention, attention
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.interop import to_torch
from annotated.translation.tokenizers import PAD
from annotated.translation.training.summed_loss import SummedLoss, half_precision

OURS, TORCH, XT = "annotated", "torch.nn.Transformer", "x-transformers"  # this one with flash attention
TORCH_OUR_LOSS, XT_AS_IT_COMES = f"{TORCH} with our loss", f"{XT} as it comes"
Loss = Callable[[Batch], Tensor]  # a batch's summed loss


@dataclass
class Trainee:
    """A model in training. `precision` makes the context in which it computes."""

    model: nn.Module
    loss: Loss
    fused: bool = True  # Adam in one kernel
    precision: Callable[[], AbstractContextManager] = nullcontext
    tolerance: float = 1e-4  # of its loss and gradient, beside those of the others
    optimizer: torch.optim.Adam = field(init=False)

    def __post_init__(self) -> None:
        fused = {"fused": True} if self.fused else {}
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, (0.9, 0.98), 1e-9, **fused)

    def step(self, batch: Batch) -> None:
        """Change the weights once, by the mean over the batch's target tokens."""
        with self.precision():
            (self.loss(batch) / batch.ntokens).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def slope(self, batch: Batch) -> tuple[float, float]:
        """The loss of a batch without dropout, and the length of its gradient; the weights stay."""
        self.model.eval()
        with self.precision():
            loss = self.loss(batch)
            loss.backward()
        self.model.train()
        squares = sum(p.grad.double().square().sum() for p in self.model.parameters() if p.grad is not None)
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item(), squares.sqrt().item()


def readable(model: EncoderDecoder) -> Loss:
    """The forms to be read: attention step by step, all log-probabilities, `LabelSmoothing`."""
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.attend = lambda q, k, v, mask, module=module: attention(q, k, v, mask, module.dropout)[0]
    compute = SimpleLossCompute(model.generator, LabelSmoothing(model.config.tgt_vocab, PAD))

    def loss(batch: Batch) -> Tensor:
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return compute(states, batch.tgt_y, 1)[1]

    return loss


def ours(model: nn.Module, compiled: bool = False) -> Loss:
    """What `Trainer` computes, of our model or of a peer's."""
    return on_batches(SummedLoss(model, 0.0, PAD), compiled)


def plain(model: nn.Module, compiled: bool = False) -> Loss:
    """The same with all logits at once and PyTorch's cross-entropy."""
    return on_batches(CrossEntropy(model), compiled)


def on_batches(summed: nn.Module, compiled: bool) -> Loss:
    """Model and loss in one module, compiled if asked for, as a function of a batch."""
    if compiled:
        summed.compile()
    return lambda batch: summed(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)


class CrossEntropy(nn.Module):
    """What `SummedLoss` computes, with all logits at once, padding's too, and PyTorch's cross-entropy."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt_y: Tensor) -> Tensor:
        """(batch, src_len), (batch, tgt_len), their masks, (batch, tgt_len) -> the summed loss."""
        logits = self.model.generator.proj(self.model(src, tgt, src_mask, tgt_mask))
        rows, right = logits.flatten(0, 1), tgt_y.flatten()
        return nn.functional.cross_entropy(rows, right, ignore_index=PAD, reduction="sum")


class TorchModel(nn.Module):
    """`torch.nn.Transformer` between our embeddings and our linear map to logits."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.src_embed, self.tgt_embed, self.generator = model.src_embed, model.tgt_embed, model.generator
        self.stacks = to_torch(model)

    def forward(self, src: Tensor, tgt: Tensor, *_: Tensor) -> Tensor:
        """(batch, src_len), (batch, tgt_len) -> the decoder's states; it makes its own masks."""
        hidden = src == PAD
        return self.stacks(
            self.src_embed(src),
            self.tgt_embed(tgt),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.size(1), tgt.device),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )


class XModel(nn.Module):
    """The stacks of x-transformers between our embeddings and our linear map to logits."""

    def __init__(self, model: EncoderDecoder, flash: bool):
        super().__init__()
        self.src_embed, self.tgt_embed, self.generator = model.src_embed, model.tgt_embed, model.generator
        library = import_module("x_transformers")
        encoder = partial(library.Encoder, attn_flash=flash)
        decoder = partial(library.Decoder, attn_flash=flash, cross_attend=True)
        self.encoder = x_stack(encoder, model.encoder, model.config)
        self.decoder = x_stack(decoder, model.decoder, model.config)

    def forward(self, src: Tensor, tgt: Tensor, *_: Tensor) -> Tensor:
        """(batch, src_len), (batch, tgt_len) -> the decoder's states.

        Only the source has a mask, of its padding: with a mask of its own, the decoder could not leave the
        order of the tokens to the fused kernel.
        """
        there = src != PAD
        memory = self.encoder(self.src_embed(src), mask=there)
        return self.decoder(self.tgt_embed(tgt), context=memory, context_mask=there)


def x_stack(make: Callable[..., nn.Module], stack: nn.Module, config: TransformerConfig) -> nn.Module:
    """A stack of x-transformers like one of ours, with its weights; dropout has the same places there.

    Its own maps in attention have no biases, and its norms no shift. They get our modules, which have, for
    only then is the gradient the same.
    """
    theirs = make(
        dim=config.d_model,
        depth=config.N,
        heads=config.h,
        pre_norm=False,
        attn_dim_head=config.d_model // config.h,
        attn_dropout=config.attention_dropout,
        attn_sublayer_dropout=config.dropout,
        ff_mult=config.d_ff / config.d_model,
        ff_custom_activation=nn.ReLU(),
        ff_dropout=config.relu_dropout,
        ff_sublayer_dropout=config.dropout,
    )
    parts = [part for layer in stack.layers for part in sublayers(layer)]
    for (norms, block, _), (part, norm) in zip(theirs.layers, parts, strict=True):
        norms[2] = norm  # the one after the residual connection
        if isinstance(part, MultiHeadedAttention):
            block.to_q, block.to_k, block.to_v, block.to_out = part.linears
        else:
            block.ff[0][0], block.ff[2] = part.w_1, part.w_2
    return theirs


def sublayers(layer: nn.Module) -> list[tuple[nn.Module, nn.LayerNorm]]:
    """The attentions and the feed-forward network of a layer of ours in order, each with its norm."""
    attentions = [part for part in layer.children() if isinstance(part, MultiHeadedAttention)]
    norms = [connection.norm for connection in layer.sublayer]
    return list(zip([*attentions, layer.feed_forward], norms, strict=True))


# Embeddings, the linear map to logits and fused Adam are the same for all; stacks and loss differ.
PEERS = {
    TORCH: (TorchModel, plain),
    TORCH_OUR_LOSS: (TorchModel, ours),
    XT_AS_IT_COMES: (partial(XModel, flash=False), plain),
    XT: (partial(XModel, flash=True), plain),
}


def halves(device: torch.device) -> dict[str, Callable[[], AbstractContextManager]]:
    """The ways of computing in bf16 that peers are given: PyTorch's autocast and, where it differs, ours."""
    ways = {"bf16 by autocast": partial(torch.autocast, device.type, torch.bfloat16)}
    if device.type == "cpu":
        ways["bf16 in products"] = partial(half_precision, device)
    return ways


def candidates(
    model: EncoderDecoder, device: torch.device, bf16: bool = False, compiled: bool = False
) -> dict[str, Callable[[], Trainee]]:
    """How to make each of them, all from a copy of the same weights; the last is ours at its best."""

    def maker(
        kind: Callable[[EncoderDecoder], nn.Module], loss: Callable[[nn.Module], Loss], **settings: object
    ) -> Callable[[], Trainee]:
        def make() -> Trainee:
            trained = kind(deepcopy(model))
            return Trainee(trained, loss(trained), **settings)

        return make

    peers = {
        name: (kind, partial(loss, compiled=compiled))
        for name, (kind, loss) in PEERS.items()
        if not name.startswith(XT) or installed(XT)
    }
    own = partial(maker, lambda copy: copy)
    fast = partial(ours, compiled=compiled)
    found = {name: maker(*parts) for name, parts in peers.items()}
    if not bf16:
        found |= {"readable forms": own(readable, fused=False), "+ fused Adam": own(readable)}
        return found | {OURS: own(fast)}  # the last step: the chunked loss
    found[OURS] = own(fast)
    for way, precision in halves(device).items():
        half = {"precision": precision, "tolerance": 2e-2}
        found |= {f"{name}, {way}": maker(*parts, **half) for name, parts in peers.items()}
    half = {"precision": partial(half_precision, device), "tolerance": 2e-2}
    return found | {f"{OURS}, bf16": own(fast, **half)}


def check(trainees: dict[str, Trainee], batch: Batch) -> None:
    """Raise ValueError unless all have the same loss and gradient where there is no dropout.

    Who cannot run here is taken off the list.
    """
    slopes = {}
    for name in list(trainees):
        with leaving_out(trainees, name):
            slopes[name] = trainees[name].slope(batch)
    for part in range(2):
        values = {name: slope[part] for name, slope in slopes.items()}
        check_equal(values, lambda name: trainees[name].tolerance)
