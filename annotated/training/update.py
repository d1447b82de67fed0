"""One update of the weights: the gradient of several batches' mean loss, the learning rate, Adam's step."""

import inspect
import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from annotated.data.batches import Batch, mixed_seed
from annotated.fast import CpuKernels, smoothed_cross_entropy
from annotated.training.checkpoint import optimizer_tensors
from annotated.training.config import TrainingConfig
from annotated.training.distributed import half_precision, total
from annotated.training.rdrop import rdrop_cross_entropy
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.schedule import factor_for, rate
from annotated.translation.model_folder import weights

# A batch, and its weight in the loss: 0 for one that is computed only because each process must take part.
Weighed = tuple[Batch, float]


class SummedLoss(nn.Module):
    """Model, generator and loss as one module: what `torch.compile` and DistributedDataParallel wrap.

    While `rdrop_weight` is above 0, a batch passes twice (see `rdrop_cross_entropy`).
    """

    def __init__(self, model: EncoderDecoder, smoothing: float, pad: int):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.pad = pad
        self.rdrop_weight = 0.0

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt_y: Tensor) -> Tensor:
        """The label-smoothed loss summed over the batch's target tokens."""
        passes = [src, tgt, src_mask, tgt_mask]
        if self.rdrop_weight:
            passes = [torch.cat([x, x]) for x in passes]
        states = self.model(*passes).flatten(0, 1)
        proj = self.model.generator.proj
        with torch.autocast(states.device.type, enabled=False):
            states = states.to(proj.weight.dtype)
            rest = proj.weight, proj.bias, tgt_y.flatten()
            options: dict[str, Any] = {"smoothing": self.smoothing, "padding_idx": self.pad}
            if states.device.type != "cpu":
                options["chunk"] = 4096  # fewer rows would leave a GPU idle
            if self.rdrop_weight:
                first, second = states.chunk(2)
                return rdrop_cross_entropy(first, second, *rest, self.rdrop_weight, **options)
            return smoothed_cross_entropy(states, *rest, **options)


class Updater:
    """Adam, and the loss that it lowers: the mean over the target tokens of all processes' batches.

    Each batch draws its dropout from (seed, step, its number in the update).
    """

    def __init__(self, model: EncoderDecoder, config: TrainingConfig, pad: int, device: torch.device):
        self.model, self.config, self.device = model, config, device
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        betas = (config.beta_1, config.beta_2)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=betas, eps=config.eps, fused=True)
        self.summed = SummedLoss(model, config.smoothing, pad)
        self.loss: Any = self.wrap(self.summed)  # the same, as what computes it

    def wrap(self, loss: nn.Module) -> nn.Module:
        """Compile the module and share it between processes, as far as asked for."""
        if self.config.compile:
            loss.compile()
        if self.world > 1:
            wrapper: Any = nn.parallel.DistributedDataParallel
            names = inspect.signature(wrapper).parameters
            name = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
            return wrapper(loss, **{name: False})  # buffers are constants; torch 2.13 has renamed the setting
        return loss

    def share_state(self, begun: bool) -> None:
        """Give the first process's weights and Adam's state to all, who have none of a run `begun` before."""
        if begun and self.rank:
            for parameter in self.model.parameters():
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[parameter] = {"step": torch.zeros((), device=self.device), **moments}
        state = weights(self.model) | optimizer_tensors(self.model, self.optimizer)
        for name in sorted(state):
            dist.broadcast(state[name].detach(), 0)

    def share(self, group: list[list[int]]) -> list[tuple[list[int], float]]:
        """This process's batches of an update, each with its weight in the loss."""
        mine = [(indices, 1.0) for indices in group[self.rank :: self.world]]
        return mine or [(group[0], 0.0)]  # all have to take part

    def backward(self, share: list[Weighed], step: int) -> tuple[float, float, bool]:
        """Compute the gradient of the update after `step`, clipped as the settings ask.

        Returns summed loss and target tokens, of all processes, and whether loss and gradient are finite.
        """
        self.model.train()
        ntokens = total(sum(batch.ntokens * weight for batch, weight in share), self.device)
        loss = 0.0
        for number, (batch, weight) in enumerate(share):
            torch.manual_seed(mixed_seed(self.config.seed, step, self.rank + number * self.world))
            loss += self.backward_one(batch, weight, ntokens, number == len(share) - 1)
        loss = total(loss, self.device)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        return loss, ntokens, math.isfinite(loss) and bool(norm.isfinite())

    def backward_one(self, batch: Batch, weight: float, ntokens: float, last: bool) -> float:
        """Add the gradient of one batch's part of the mean loss; returns its summed loss."""
        batch.to(self.device)
        # At the last batch of an update, processes add up their gradients.
        quiet = nullcontext() if last or self.world == 1 else self.loss.no_sync()
        half = half_precision(self.device) if self.config.precision == "bf16" else nullcontext()
        quick = CpuKernels() if self.device.type == "cpu" else nullcontext()
        with quiet, half, quick:
            loss = self.loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
            # DistributedDataParallel averages over processes; times their number, that is a sum.
            (loss * (weight * self.world / ntokens)).backward()
        return loss.item() * weight

    def step(self, rate: float) -> None:
        """Change the weights by the gradient, and forget it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def rate_at(step: int, config: TrainingConfig, d_model: int) -> float:
    """The learning rate of an update, counted from 1 (equation 3, with the peak that the settings name)."""
    return rate(step, d_model, factor_for(config.learning_rate, d_model, config.warmup), config.warmup)


def steepest(model_size: int) -> float:
    """The rate above which a post-norm model of this width may learn nothing.

    Measured at width 128, 4 layers, on 2,500 pairs of Multi30k in batches of 768 tokens, one seed: with a
    peak of 0.005 at update 100 the cross-entropy rose from 6.0 in the first epoch to 8.3 at update 400; with
    0.003 at update 70 it came down to 5.5. The shipped models peaked at 0.004. Other widths as in equation 3.
    """
    return 0.05 * model_size**-0.5


def advice(config: TrainingConfig, model: TransformerConfig, last: int) -> str:
    """Say in a line what the learning rate will be in a run that ends with update `last`."""
    peak, limit = config.learning_rate, steepest(model.d_model)
    reached = rate_at(min(last, config.warmup), config, model.d_model)
    told = f"the learning rate peaks at {peak:g}, at update {config.warmup:,} of {last:,}"
    if last < config.warmup:
        told = f"the learning rate would peak at {peak:g} at update {config.warmup:,}, "
        told += f"but the run ends at update {last:,}, with {reached:.2g}"
    if reached > limit and not model.norm_first:
        told += f"; above {limit:.2g} a post-norm model of this width may learn nothing"
    return told
