"""The classic training loop: `run_epoch` with `SimpleLossCompute` (section 5).

The loop of long runs, with checkpoints, a log and several processes, is the translator's `Trainer`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from annotated.batches import Batch
from annotated.evaluation_mode import evaluating
from annotated.transformer.model import EncoderDecoder


@dataclass
class TrainState:
    """Counts of what a run has trained on."""

    step: int = 0  # batches
    accum_step: int = 0  # updates of the weights
    samples: int = 0  # sentence pairs
    tokens: int = 0  # target tokens, padding not counted


class SimpleLossCompute:
    """Generator and criterion in one: from the decoder's states to a loss.

    `criterion` takes log-probabilities (n, vocab) and targets (n,), and sums, as `LabelSmoothing` does.
    """

    def __init__(self, generator: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor]):
        self.generator = generator
        self.criterion = criterion

    def __call__(self, x: Tensor, y: Tensor, norm: float) -> tuple[Tensor, Tensor]:
        """States (batch, len, d_model) and targets (batch, len) -> the summed loss, and one to differentiate.

        The first carries no gradient; the second is the same divided by `norm`, to call `backward` on.
        """
        log_probs = self.generator(x).flatten(0, 1)  # (batch * len, vocab)
        loss = self.criterion(log_probs, y.flatten())
        return loss.detach(), loss / norm


def run_epoch(
    data_iter: Iterable[Batch],
    model: EncoderDecoder,
    loss_compute: SimpleLossCompute,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    mode: Literal["train", "eval"] = "train",
    accum_iter: int = 1,
    train_state: TrainState | None = None,
) -> tuple[float, TrainState]:
    """Go through the batches once; returns the mean loss per target token, and the updated counts.

    With mode "train" the model is in training mode. The weights are updated after every `accum_iter` batches
    and after the last, by the mean over all their tokens; the scheduler steps once per update. With "eval"
    dropout is off, no gradients are kept, and optimizer, scheduler and counts stay as they are.
    Raises ValueError for another mode, an `accum_iter` below 1, and batches without a target token.
    """
    state = train_state or TrainState()
    loss, tokens = 0.0, 0
    if mode == "eval":
        with evaluating(model):
            for batch in data_iter:
                states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
                loss += loss_compute(states, batch.tgt_y, 1)[0].item()
                tokens += batch.ntokens
    elif mode != "train" or optimizer is None:
        given = f"{mode!r} {'without' if optimizer is None else 'with'} one"
        raise ValueError(f"mode must be 'eval', or 'train' with an optimizer, not {given}")
    elif accum_iter < 1:
        raise ValueError(f"accum_iter must be at least 1, not {accum_iter}")
    else:
        model.train()
        batches = iter(data_iter)
        while group := list(islice(batches, accum_iter)):  # the last one is perhaps shorter
            loss += update(group, model, loss_compute, optimizer, state)
            tokens += sum(batch.ntokens for batch in group)
            if scheduler is not None:
                scheduler.step()
    if not tokens:
        raise ValueError("the data held no batch, or no target token")
    return loss / tokens, state


def update(
    group: list[Batch],
    model: EncoderDecoder,
    loss_compute: SimpleLossCompute,
    optimizer: Optimizer,
    state: TrainState,
) -> float:
    """Change the weights once, by the mean over all tokens of the batches; returns their summed loss."""
    optimizer.zero_grad(set_to_none=True)  # first: an interrupted call may have left gradients
    loss = 0.0
    ntokens = sum(batch.ntokens for batch in group)
    norm = max(ntokens, 1)  # a group of padding alone has a loss of 0, not NaN
    for batch in group:
        states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        total, mean = loss_compute(states, batch.tgt_y, norm)
        mean.backward()
        loss += total.item()
        state.step += 1
        state.samples += len(batch.src)
    optimizer.step()
    state.accum_step += 1
    state.tokens += ntokens
    return loss
