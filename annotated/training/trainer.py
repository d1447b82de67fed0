"""Long training runs: checkpoints that survive a kill, a log, early stopping, averaging, several processes.

Each batch draws its dropout from (seed, step, number in the update), so its position alone decides what a run
does next: one that was killed and resumed ends with the same weights, bit for bit, as one that was not. One
resumed by another number of processes makes the same updates, equal up to the order of additions.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from annotated.data.batching import TokenBatches
from annotated.data.corpora import languages
from annotated.tokenizers import Tokenizer
from annotated.training.config import TrainingConfig
from annotated.training.devices import SharedError, agreed, from_first, gathered, say, total
from annotated.training.interrupt import stop_on_interrupt
from annotated.training.progress import Progress, progress_bar, read_progress, set_end
from annotated.training.run_folder import RunFolder, average_run, load_optimizer
from annotated.training.starting import check_run, share_state
from annotated.training.update import Updater, Weighed, advice, rate_at
from annotated.transformer.model import EncoderDecoder
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
    load_weights,
    read_tensors,
    save_model,
    training_settings,
)


class TrainingError(SharedError):
    """Training cannot go on; the message says where it stopped and how another run may do better."""


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
        self.updater = Updater(model, config, self.tokenizers[1].pad, self.device)
        self.first = self.updater.rank == 0
        self.progress = Progress(update_batches=config.accumulate * self.updater.world, text=text)
        self.measure = tokenized_bleu  # the one that `annotated evaluate` will have
        if self.settings.get("variant") != "tok":
            tokenize = bleu_tokenizer(languages(self.settings.get("pair"))[1])
            self.measure = partial(bleu, tokenize=tokenize)
            if config.bleu_every:
                bleu_scorer(tokenize)  # what it needs must be here before the work begins

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
                if self.first:
                    held.enter_context(self.out.locked())
                    held.callback(self.out.close)
                    self.begin(resume)
            self.config, self.progress = share_state(self.updater, self.config, self.progress)
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

    def run(self) -> Path:
        """Train from where the state says to the end."""
        with stop_on_interrupt() as stop_asked, progress_bar(self.progress.step, self.first) as bar:
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
        return self.progress.finished(self.config)

    def unvalidated(self) -> bool:
        """Whether these weights, which end an epoch or the run, have yet to be validated."""
        p = self.progress
        ends = (p.step > 0 and p.batches == 0) or p.step >= self.config.max_steps
        return ends and self.validation is not None and p.validation_loss is None

    def run_epoch(self, bar: tqdm, stop_asked: Callable[[], bool]) -> bool:
        """Go on to the end of the epoch or of the run, saving on the way; False if a stop was asked for."""
        c, p = self.config, self.progress
        self.updater.summed.rdrop_weight = c.rdrop_weight if p.epoch + 1 >= c.rdrop_from else 0.0
        with agreed():
            batches = self.epoch_batches(p.epoch)
            plan = batches.batches(p.epoch)
            if p.batches and not p.batches < len(plan) == p.epoch_batches:
                raise ValueError(
                    f"{self.out.path} stands at batch {p.batches:,} of an epoch of {p.epoch_batches:,}, "
                    f"which now has {len(plan):,}; resume it with the data that it was begun with"
                )
        p.epoch_batches = len(plan)
        set_end(bar, p.last_step(c))
        if p.step == 0:
            say(advice(c, self.model.config, p.last_step(c)))
        for start in range(p.batches, len(plan), p.update_batches):
            share = self.updater.share(plan[start : start + p.update_batches])
            self.update([(batches.collate(indices), weight) for indices, weight in share], bar)
            stop = total(stop_asked(), self.device) > 0  # whichever process was asked, all stop at one step
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

    def update(self, share: list[Weighed], bar: tqdm) -> None:
        """Make one update. Raises TrainingError where its loss or gradient is not finite."""
        started = time.perf_counter()
        p = self.progress
        loss, ntokens, finite = self.updater.backward(share, p.step)
        if not finite:
            found = gathered([line for batch, _ in share for line in batch.lines or ()])
            lines = ", ".join(map(str, sorted({line for each in found for line in each})))
            where = f", in a batch of lines {lines}" if lines else ""
            raise self.not_finite(f"the loss or its gradient is not finite at step {p.step + 1}{where}")
        p.step += 1
        p.batches = min(p.batches + p.update_batches, p.epoch_batches)
        p.validation_loss = None
        self.updater.step(self.rate())
        p.loss += loss
        p.tokens += int(ntokens)
        p.total_tokens += int(ntokens)
        p.seconds += time.perf_counter() - started
        self.report(loss / ntokens, bar)

    def rate(self) -> float:
        """The learning rate of the latest update."""
        return rate_at(self.progress.step, self.config, self.model.config.d_model)

    def not_finite(self, what: str) -> TrainingError:
        """The error that ends a run before it ruins its weights, or saves them as good."""
        best = from_first(self.out.select_checkpoints(1, "best") if self.first else [])
        better = "a lower learning rate, or with clip, which scales large gradients down"
        start = f"from the weights that validated best, init_from {best[0]}" if best else "from new weights"
        return TrainingError(
            f"{what}; resumed, the run would come to this again: begin another with {better}, {start}"
        )

    def report(self, loss: float, bar: tqdm) -> None:
        """Move the bar; at times, and at the end of an epoch, log the mean loss since the last line."""
        p = self.progress
        speed = f"{p.total_tokens / p.seconds:,.0f}"
        left = f"{p.minutes_left(self.config):,.0f} min"
        shown = {"loss": f"{loss:.3f}", "rate": f"{self.rate():.2e}", "tokens_per_s": speed, "left": left}
        bar.set_postfix(shown, refresh=False)
        bar.update(1)
        if p.step % self.config.log_every == 0 or p.batches == p.epoch_batches:
            self.log({"loss": p.loss / p.tokens, "rate": self.rate(), "tokens": p.total_tokens})
            p.loss, p.tokens = 0.0, 0

    def score(self) -> TokenScores:
        """Score the model on the validation data."""
        return score_tokens(self.model, self.validation.epoch(0), self.tokenizers[1].pad)

    def validate(self) -> None:
        """Score the validation data, and note beside the saved weights whether they are the best yet."""
        scores = self.score()
        p = self.progress
        # One number for all processes, or they might disagree on when to end.
        p.validation_loss = loss = total(scores.loss, self.device) / self.updater.world
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
        if self.first:
            self.out.note(p, self.config.keep, self.config.average_of)
            minutes = p.minutes_left(self.config)
            left = f"; about {minutes:,.0f} min left" if minutes > 0 else ""
            say(f"epoch {p.current_epoch}, step {p.step}: {line}{left}")

    # ---- what is kept

    def restore(self, checkpoint: Path) -> None:
        """Load a run's state. Raises ValueError if that does not fit the model, the settings or the text."""
        with self.out.reading(checkpoint):
            tensors = read_tensors(checkpoint / WEIGHTS)
            progress = read_progress(checkpoint)
        share = check_run(self.out, self.settings, self.progress, progress, self.updater.world)
        if self.settings["accumulate"] != share:
            self.settings["accumulate"] = share
            say(f"an update keeps its {progress.update_batches} batches: accumulate is now {share}")
        self.out.select_checkpoints(1, "last")  # a damaged one is better found now than at the next save
        load_weights(self.model, tensors, checkpoint / WEIGHTS)
        with self.out.reading(checkpoint):
            load_optimizer(self.updater.optimizer, self.model, checkpoint)
        self.progress = dataclasses.replace(progress, text=self.progress.text)

    def log(self, record: dict[str, float]) -> None:
        """Add a line to the log."""
        if self.first:
            self.out.log(record, self.progress)

    def save(self) -> None:
        """Write a checkpoint; where that fails, all processes end."""
        c = self.config
        with agreed():
            if self.first:
                optimizer = self.updater.optimizer
                self.out.save(self.model, self.tokenizers, optimizer, self.progress, c.keep, c.average_of)

    def average(self) -> None:
        """Leave the mean of the checkpoints that the settings ask for, if that is better than the newest."""
        if self.first:
            newest = self.progress.validation_loss
            average_run(self.out, self.model, self.config, newest, self.score)
            save_model(self.out.path, self.model, *self.tokenizers)
