"""Long training runs: checkpoints that survive a kill, a log, early stopping, averaging, several processes.

Each batch draws its dropout from (seed, step, number in the update), so its position alone decides what a run
does next: one that was killed and resumed ends with the same weights, bit for bit, as one that was not. One
resumed by another number of processes makes the same updates, equal up to the order of additions.
"""

import dataclasses
import inspect
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from tqdm import tqdm

from annotated.data.batch import Batch
from annotated.data.batching import TokenBatches, mixed_seed
from annotated.data.corpora import languages
from annotated.fast import CpuKernels, smoothed_cross_entropy
from annotated.tokenizers import Tokenizer
from annotated.training.config import TrainingConfig
from annotated.training.devices import SharedError, agreed, from_first, gathered, half_precision
from annotated.training.rdrop import rdrop_cross_entropy
from annotated.training.run_folder import (
    PLACES,
    Progress,
    RunFolder,
    load_optimizer,
    optimizer_tensors,
    read_progress,
)
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.schedule import factor_for, rate
from annotated.translation.evaluation import (
    TokenScores,
    bleu,
    bleu_scorer,
    bleu_tokenizer,
    greedy_bleu,
    score_tokens,
    tokenized_bleu,
)
from annotated.translation.model_folder import (
    WEIGHTS,
    average_checkpoints,
    load_weights,
    read_tensors,
    save_model,
    training_settings,
    weights,
)


class TrainingError(SharedError):
    """Training cannot go on; the message says where it stopped and how another run may do better."""


def steepest(model_size: int) -> float:
    """The rate above which a post-norm model of this width may learn nothing.

    Measured at width 128, 4 layers, on 2,500 pairs of Multi30k in batches of 768 tokens, one seed: with a
    peak of 0.005 at update 100 the cross-entropy rose from 6.0 in the first epoch to 8.3 at update 400; with
    0.003 at update 70 it came down to 5.5. The shipped models peaked at 0.004. Other widths as in equation 3.
    """
    return 0.05 * model_size**-0.5


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
            options = {"smoothing": self.smoothing, "padding_idx": self.pad}
            if states.device.type != "cpu":
                options["chunk"] = 4096  # fewer rows would leave a GPU idle
            if self.rdrop_weight:
                return rdrop_cross_entropy(*states.chunk(2), *rest, self.rdrop_weight, **options)
            return smoothed_cross_entropy(states, *rest, **options)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, or SIGTERM, ask for a stop at the next good moment; a second one stops at once.

    Outside the main thread, which alone gets signals, nothing changes.
    """
    asked = False
    at_once = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def ask(number: int, _) -> None:
        nonlocal asked
        asked = True
        if not dist.is_torchelastic_launched():  # torchrun passes on a Ctrl-C that we already got
            signal.signal(number, at_once[number])

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in at_once}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Trainer:
    """Trains `model` on what `epoch_batches(epoch)` gives, into the folder `out` (see `RunFolder`).

    Under `torchrun`, each process takes its share of every update, and losses are divided by the tokens of
    all. Only the first process reads and writes `out`, and its state is that of all. `notes` are further
    settings to remember in training.json and to hold a resumed run to, such as the name of the corpus; `text`
    identifies the text that is trained and validated on, by a checksum: a resumed run must have the same.
    torch's global random stream is set anew for each batch.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizers: Sequence[Tokenizer],
        epoch_batches: Callable[[int], TokenBatches],
        validation: TokenBatches | None,
        config: TrainingConfig,
        out: str | Path,
        device: str | torch.device = "cpu",
        notes: dict[str, object] | None = None,
        text: str = "",
    ):
        self.model = model.to(device)
        self.tokenizers = tuple(tokenizers)
        self.epoch_batches = epoch_batches
        self.validation = validation
        self.config = config
        if config.average_of == "best" and validation is None:
            raise ValueError("average_of='best' needs validation data to tell which checkpoints are best")
        self.out = RunFolder(out)
        self.device = torch.device(device)
        self.settings = {**dataclasses.asdict(config), **(notes or {})}
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.progress = Progress(update_batches=config.accumulate * self.world, text=text)
        betas = (config.beta_1, config.beta_2)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=betas, eps=config.eps, fused=True)
        self.summed = SummedLoss(model, config.smoothing, self.tokenizers[1].pad)
        self.loss = self.wrap(self.summed)  # the same, as what computes it
        self.measure = tokenized_bleu  # the one that `annotated evaluate` will have
        if self.settings.get("variant") != "tok":
            tokenize = bleu_tokenizer(languages(self.settings.get("pair"))[1])
            self.measure = partial(bleu, tokenize=tokenize)
            if config.bleu_every:
                bleu_scorer(tokenize)  # what it needs must be here before the work begins

    def wrap(self, loss: nn.Module) -> nn.Module:
        """Compile the module and share it between processes, as far as asked for."""
        if self.config.compile:
            loss.compile()
        if self.world > 1:
            wrapper = nn.parallel.DistributedDataParallel
            names = inspect.signature(wrapper).parameters
            name = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
            return wrapper(loss, **{name: False})  # buffers are constants; torch 2.13 has renamed the setting
        return loss

    # ---- the run

    def train(self, resume: bool = False) -> Path:
        """Train to the end, or until Ctrl-C; returns the run's folder, whose weights are the newest.

        With `resume` a run goes on from its newest checkpoint, and starts where there is none. Raises
        ValueError where `out` already holds a run that is not to be resumed, one with other settings or other
        text, or one that another process trains (SharedError if there are several processes); TrainingError
        where the loss or its gradient is not finite, before the weights are touched.
        """
        with ExitStack() as held:
            with agreed():
                if self.rank == 0:
                    held.enter_context(self.out.locked())
                    held.callback(self.out.close)
                    self.begin(resume)
            self.share_state()
            return self.run()

    def begin(self, resume: bool) -> None:
        """Take up the run in a folder that is ours alone, or open a new one."""
        checkpoint = self.out.newest() if resume else None
        self.settle_warmup(begun=checkpoint is not None)
        if checkpoint is None:
            self.out.check_empty()
        else:
            self.restore(checkpoint)
        self.out.open(self.settings, self.progress)

    def share_state(self) -> None:
        """Give the first process's state to all, so that only that one needs to see the run's folder."""
        if self.world == 1:
            return
        text = self.progress.text
        self.config, self.progress = from_first((self.config, self.progress))
        with agreed("; copy the text of the first node"):
            if self.progress.text != text:
                raise ValueError("the training or validation text is another than on the first node")
        if self.progress.step and self.rank:
            for parameter in self.model.parameters():
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[parameter] = {"step": torch.zeros((), device=self.device), **moments}
        state = weights(self.model) | optimizer_tensors(self.model, self.optimizer)
        for name in sorted(state):
            dist.broadcast(state[name].detach(), 0)

    def run(self) -> Path:
        """Train from where the state says to the end."""
        with stop_on_interrupt() as stop_asked, self.bar() as bar:
            if self.unvalidated():  # killed since it was saved
                self.validate()
            while not self.finished():
                if not self.run_epoch(bar, stop_asked):
                    break
        if self.finished():
            self.average()
        return self.out.path

    def finished(self) -> bool:
        """Whether the settings say that this is the end."""
        c, p = self.config, self.progress
        return p.step >= c.max_steps or p.epoch >= c.epochs or (c.patience > 0 and p.stale >= c.patience)

    def unvalidated(self) -> bool:
        """Whether these weights, which end an epoch or the run, have yet to be validated."""
        p = self.progress
        ends = (p.step > 0 and p.batches == 0) or p.step >= self.config.max_steps
        return ends and self.validation is not None and p.validation_loss is None

    def last_step(self) -> int:
        """The update that ends the run, unless patience ends it sooner."""
        c, p = self.config, self.progress
        done, each = (math.ceil(count / p.update_batches) for count in (p.batches, p.epoch_batches))
        return min(c.max_steps, p.step - done + each * (c.epochs - p.epoch))

    def run_epoch(self, bar: tqdm, stop_asked: Callable[[], bool]) -> bool:
        """Go on to the end of the epoch or of the run, saving on the way; False if a stop was asked for."""
        c, p = self.config, self.progress
        self.summed.rdrop_weight = c.rdrop_weight if p.epoch + 1 >= c.rdrop_from else 0.0
        with agreed():
            batches = self.epoch_batches(p.epoch)
            plan = batches.batches(p.epoch)
            if p.batches and not p.batches < len(plan) == p.epoch_batches:
                raise ValueError(
                    f"{self.out.path} stands at batch {p.batches:,} of an epoch of {p.epoch_batches:,}, "
                    f"which now has {len(plan):,}; resume it with the data that it was begun with"
                )
        p.epoch_batches = len(plan)
        bar.total = self.last_step()
        if p.step == 0 and self.rank == 0:
            tqdm.write(self.advice(), file=sys.stderr)
        for start in range(p.batches, len(plan), p.update_batches):
            share = self.share(plan[start : start + p.update_batches])
            self.update([(batches.collate(indices), weight) for indices, weight in share], bar)
            stop = self.total(stop_asked()) > 0  # whichever process was asked, all stop at one step
            ended = p.batches == len(plan)
            if ended:
                p.epoch, p.batches = p.epoch + 1, 0
            p.off_schedule = not (ended or (c.save_every and p.step % c.save_every == 0))
            if stop or self.finished() or not p.off_schedule:
                self.save()
            if self.unvalidated():
                self.validate()
            if stop or self.finished():
                return not stop
        return True

    def advice(self) -> str:
        """What the learning rate will be, in a line."""
        c, last, width = self.config, self.last_step(), self.model.config.d_model
        reached = self.rate_at(min(last, c.warmup))
        told = f"the learning rate peaks at {c.learning_rate:g}, at update {c.warmup:,} of {last:,}"
        if last < c.warmup:
            told = f"the learning rate would peak at {c.learning_rate:g} at update {c.warmup:,}, "
            told += f"but the run ends at update {last:,}, with {reached:.2g}"
        if reached > steepest(width) and not self.model.config.norm_first:
            told += f"; above {steepest(width):.2g} a post-norm model of this width may learn nothing"
        return told

    def share(self, group: list[list[int]]) -> list[tuple[list[int], float]]:
        """This process's batches of an update, each with its weight in the loss.

        A process for which there is none computes one with weight 0: all have to take part.
        """
        mine = [(indices, 1.0) for indices in group[self.rank :: self.world]]
        return mine or [(group[0], 0.0)]

    def update(self, share: list[tuple[Batch, float]], bar: tqdm) -> None:
        """One step of the optimizer, from the mean loss over the target tokens of all processes' batches."""
        started = time.perf_counter()
        p = self.progress
        self.model.train()
        ntokens = self.total(sum(batch.ntokens * weight for batch, weight in share))
        loss = 0.0
        for number, each in enumerate(share):
            torch.manual_seed(mixed_seed(self.config.seed, p.step, self.rank + number * self.world))
            loss += self.backward(*each, ntokens, each is share[-1])
        loss = self.total(loss)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        if not (math.isfinite(loss) and norm.isfinite()):
            found = gathered([line for batch, _ in share for line in batch.lines or ()])
            lines = ", ".join(map(str, sorted({line for each in found for line in each})))
            where = f", in a batch of lines {lines}" if lines else ""
            raise self.not_finite(f"the loss or its gradient is not finite at step {p.step + 1}{where}")
        p.step += 1
        p.batches = min(p.batches + p.update_batches, p.epoch_batches)
        p.validation_loss = None
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        p.loss += loss
        p.tokens += int(ntokens)
        p.total_tokens += int(ntokens)
        p.seconds += time.perf_counter() - started
        self.report(loss / ntokens, bar)

    def backward(self, batch: Batch, weight: float, ntokens: float, last: bool) -> float:
        """Add the gradient of one batch's part of the mean loss; returns its summed loss.

        At the `last` batch of an update, processes add up their gradients.
        """
        batch.to(self.device)
        quiet = nullcontext() if last or self.world == 1 else self.loss.no_sync()
        half = half_precision(self.device) if self.config.precision == "bf16" else nullcontext()
        quick = CpuKernels() if self.device.type == "cpu" else nullcontext()
        with quiet, half, quick:
            loss = self.loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
            # DistributedDataParallel averages over processes; times their number, that is a sum.
            (loss * (weight * self.world / ntokens)).backward()
        return loss.item() * weight

    def total(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.world == 1:
            return value
        number = torch.tensor(float(value), dtype=torch.float64, device=self.device)
        dist.all_reduce(number)
        return number.item()

    def rate(self) -> float:
        """The learning rate of the latest update."""
        return self.rate_at(self.progress.step)

    def rate_at(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        c, width = self.config, self.model.config.d_model
        return rate(step, width, factor_for(c.learning_rate, width, c.warmup), c.warmup)

    def settle_warmup(self, begun: bool) -> None:
        """Let a warm-up that was not given be that of the run, if it was begun, or follow from its length."""
        c = self.config
        if c.warmup:
            return
        if begun:
            warmup = training_settings(self.out.path)["warmup"]
        else:
            updates = math.ceil(len(self.epoch_batches(0).batches(0)) / self.progress.update_batches)
            warmup = c.warmup_in(min(c.max_steps, updates * c.epochs))
        self.config = dataclasses.replace(c, warmup=warmup)
        self.settings["warmup"] = warmup

    def not_finite(self, what: str) -> TrainingError:
        """The error that ends a run before it ruins its weights, or saves them as good."""
        best = from_first(self.out.select_checkpoints(1, "best") if self.rank == 0 else [])
        better = "a lower learning rate, or with clip, which scales large gradients down"
        start = f"from the weights that validated best, init_from {best[0]}" if best else "from new weights"
        return TrainingError(
            f"{what}; resumed, the run would come to this again: begin another with {better}, {start}"
        )

    def report(self, loss: float, bar: tqdm) -> None:
        """Move the bar; at times, and at the end of an epoch, log the mean loss since the last line."""
        p = self.progress
        speed = f"{p.total_tokens / p.seconds:,.0f}"
        left = f"{self.minutes_left():,.0f} min"
        shown = {"loss": f"{loss:.3f}", "rate": f"{self.rate():.2e}", "tokens_per_s": speed, "left": left}
        bar.set_postfix(shown, refresh=False)
        bar.update(1)
        if p.step % self.config.log_every == 0 or p.batches == p.epoch_batches:
            self.log({"loss": p.loss / p.tokens, "rate": self.rate(), "tokens": p.total_tokens})
            p.loss, p.tokens = 0.0, 0

    def score(self) -> TokenScores | None:
        """Score the model on the validation data, where there is any."""
        if self.validation is None:
            return None
        return score_tokens(self.model, self.validation.epoch(0), self.tokenizers[1].pad)

    def validate(self) -> None:
        """Score the validation data, and note beside the saved weights whether they are the best yet."""
        scores = self.score()
        p = self.progress
        # One number for all processes, or they might disagree on when to end.
        p.validation_loss = loss = self.total(scores.loss) / self.world
        if not math.isfinite(loss):
            raise self.not_finite(f"the validation loss is not finite after step {p.step}")
        if p.batches == 0:  # the end of an epoch, not of a run that may yet go on from here
            p.stale = 0 if p.best is None or loss < p.best else p.stale + 1
            p.best = loss if p.stale == 0 else p.best
        record = {"validation_loss": loss, "validation_accuracy": scores.accuracy, "tokens": p.total_tokens}
        line = f"validation cross-entropy {loss:.3f}, accuracy {scores.accuracy:.1%}"
        if self.config.bleu_every and p.epoch % self.config.bleu_every == 0:
            found = greedy_bleu(self.model, self.validation.epoch(0), self.tokenizers[1], self.measure).value
            record["validation_bleu"] = found
            line += f", greedy BLEU {found:.1f}"
        self.log(record)
        if self.rank == 0:
            self.out.note(p, self.config.keep, self.config.average_of)
            minutes = self.minutes_left()
            left = f"; about {minutes:,.0f} min left" if minutes > 0 else ""
            tqdm.write(f"epoch {p.current_epoch}, step {p.step}: {line}{left}", file=sys.stderr)

    def minutes_left(self) -> float:
        """How long the run will still take if its updates go on as fast as they did."""
        p = self.progress
        return p.seconds / 60 / max(p.step, 1) * (self.last_step() - p.step)

    # ---- what is kept

    def restore(self, checkpoint: Path) -> None:
        """Load a run's state. Raises ValueError if that does not fit the model, the settings or the text."""
        with self.out.reading(checkpoint):
            tensors = read_tensors(checkpoint / WEIGHTS)
            progress = read_progress(checkpoint)
        self.check_run(progress)
        self.out.select_checkpoints(1, "last")  # a damaged one is better found now than at the next save
        load_weights(self.model, tensors, checkpoint / WEIGHTS)
        with self.out.reading(checkpoint):
            load_optimizer(self.optimizer, self.model, checkpoint)
        self.progress = progress

    def check_run(self, progress: Progress) -> None:
        """Raise ValueError where a run cannot go on exactly with these settings, text and processes."""
        text, size = self.progress.text, progress.update_batches
        free = PLACES if text and text == progress.text else ()
        if self.progress.update_batches == size:
            free = (*free, "accumulate")
        self.out.check_settings({n: value for n, value in self.settings.items() if n not in free})
        if progress.text not in ("", text):
            raise ValueError(
                f"{self.out.path} was begun with other text to train or validate on; resume it with that, or "
                f"begin another run with --init-from {self.out.path}"
            )
        progress.text = text
        if size % self.world:
            counts = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise ValueError(
                f"{self.out.path}: an update is made of {size} batches, which {self.world} processes cannot "
                f"share evenly; resume it with as many processes as one of {counts}"
            )
        if self.settings["accumulate"] != size // self.world:
            self.settings["accumulate"] = size // self.world
            said = f"an update keeps its {size} batches: accumulate is now {size // self.world}"
            tqdm.write(said, file=sys.stderr)

    def log(self, record: dict[str, float]) -> None:
        """Add a line to the log."""
        if self.rank == 0:
            self.out.log(record, self.progress)

    def save(self) -> None:
        """Write a checkpoint; where that fails, all processes end."""
        c = self.config
        with agreed():
            if self.rank == 0:
                self.out.save(
                    self.model, self.tokenizers, self.optimizer, self.progress, c.keep, c.average_of
                )

    def average(self) -> None:
        """Make the mean of the checkpoints that the settings ask for the run's weights, if that is better.

        Better than the newest checkpoint at validation; without validation data, the mean it is.
        """
        if self.rank != 0:
            return
        of = self.config.average_of
        chosen = self.out.select_checkpoints(max(1, self.config.average), of, off_schedule=True)
        load_weights(self.model, average_checkpoints(chosen), self.out.path)
        if len(chosen) > 1:
            left = mean = f"the mean of the {of} {len(chosen)} checkpoints"
            newest = self.progress.validation_loss
            if newest is not None:
                found = self.score().loss
                both = f"validation cross-entropy {found:.4f} of {mean}, {newest:.4f} of the newest"
                tqdm.write(both, file=sys.stderr)
                if found > newest:
                    left = "the newest checkpoint"
                    load_weights(self.model, read_tensors(self.out.newest() / WEIGHTS), self.out.path)
            tqdm.write(f"the model is {left}", file=sys.stderr)
        save_model(self.out.path, self.model, *self.tokenizers)

    def bar(self) -> tqdm:
        """The progress bar, on the first process, where there is a terminal."""
        quiet = True if self.rank else None
        shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"  # the time left is ours
        settings = {"unit": "update", "disable": quiet, "smoothing": 0.05, "bar_format": shown}
        return tqdm(initial=self.progress.step, **settings)
