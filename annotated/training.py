"""The training loop as readers know it: `run_epoch` with `SimpleLossCompute` (section 5).

`annotated.trainer` holds the one for long runs, with checkpoints, a log and several processes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from annotated.masks import Batch
from annotated.model import EncoderDecoder, evaluating


@dataclass
class TrainState:
    """What a run has seen so far."""

    step: int = 0  # batches
    accum_step: int = 0  # updates of the weights
    samples: int = 0  # sentence pairs
    tokens: int = 0  # target tokens, padding not counted


class SimpleLossCompute:
    """Generator and criterion in one: from the decoder's states to a loss.

    `criterion` takes log-probabilities (n, vocab) and targets (n,) and returns a sum, as `LabelSmoothing` does.
    """

    def __init__(self, generator: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor]):
        self.generator = generator
        self.criterion = criterion

    def __call__(self, x: Tensor, y: Tensor, norm: float) -> tuple[Tensor, Tensor]:
        """States (batch, len, d_model) and targets (batch, len) -> the summed loss, and loss / norm to go back from."""
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
    """Go through the batches once; returns the mean loss a target token, and what was seen.

    With mode "train" the model is in training mode, and the weights are updated after every `accum_iter`
    batches (and after the last) by the mean over all their tokens, the scheduler ticking once an update; with
    "eval" dropout is off, no gradients are kept, and optimizer and scheduler are not used.
    Raises ValueError for another mode, or no batches.
    """
    if mode not in ("train", "eval"):
        raise ValueError(f"mode must be 'train' or 'eval', not {mode!r}")
    state = train_state or TrainState()
    loss, tokens = 0.0, 0
    if mode == "eval":
        with evaluating(model):
            for batch in data_iter:
                loss += summed_loss(batch, model, loss_compute, batch.ntokens)[0].item()
                tokens += batch.ntokens
    else:
        model.train()
        for group in groups_of(accum_iter, data_iter):
            ntokens = sum(batch.ntokens for batch in group)
            for batch in group:
                total, share = summed_loss(batch, model, loss_compute, ntokens)
                share.backward()
                loss += total.item()
                state.step += 1
                state.samples += len(batch.src)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if scheduler is not None:
                scheduler.step()
            state.accum_step += 1
            state.tokens += ntokens
            tokens += ntokens
    if not tokens:
        raise ValueError("the data held no batch, or no target token")
    return loss / tokens, state


def summed_loss(
    batch: Batch, model: EncoderDecoder, loss_compute: SimpleLossCompute, norm: float
) -> tuple[Tensor, Tensor]:
    """The batch's summed loss, and its share of the update's mean to go back from."""
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return loss_compute(states, batch.tgt_y, norm)


def groups_of(size: int, items: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Lists of `size` items, the last one perhaps shorter."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group
