"""Model and loss in one module, as the `Trainer` wants it."""

from typing import Any

import torch
from torch import Tensor, nn

from annotated.loss import smoothed_cross_entropy
from annotated.transformer.model import EncoderDecoder, Generator
from annotated.translation.training.rdrop import rdrop_cross_entropy


class SummedLoss(nn.Module):
    """Model, generator and loss as one module, for `torch.compile` and DistributedDataParallel to wrap.

    While `rdrop_weight` is above 0, each batch passes twice, each time with other dropout.
    """

    def __init__(self, model: EncoderDecoder, smoothing: float, pad: int):
        super().__init__()
        if type(model.generator).forward is not Generator.forward:
            raise TypeError("the Trainer's loss is of the paper's generator; train another with run_epoch")
        self.model = model
        self.smoothing = smoothing
        self.pad = pad
        self.rdrop_weight = 0.0

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt_y: Tensor) -> Tensor:
        """Compute the label-smoothed loss, summed over the target tokens of the batch."""
        inputs = [src, tgt, src_mask, tgt_mask]
        if self.rdrop_weight:
            inputs = [torch.cat([x, x]) for x in inputs]
        states = self.model(*inputs).flatten(0, 1)  # (batch * tgt_len, d_model)
        proj = self.model.generator.proj
        options: dict[str, Any] = {"smoothing": self.smoothing, "padding_idx": self.pad}
        if states.device.type != "cpu":
            options["chunk"] = 4096  # fewer rows would leave a GPU idle
        with torch.autocast(states.device.type, enabled=False):
            states = states.to(proj.weight.dtype)
            output = proj.weight, proj.bias, tgt_y.flatten()
            if self.rdrop_weight:
                first, second = states.chunk(2)
                return rdrop_cross_entropy(first, second, *output, self.rdrop_weight, **options)
            return smoothed_cross_entropy(states, *output, **options)
