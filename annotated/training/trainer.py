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
from typing import cast

import torch
from tqdm import tqdm

from annotated.data.batches import TokenBatches
from annotated.data.corpora import languages
from annotated.metrics import (
    bleu,
    bleu_metric,
    bleu_tokenizer,
)
from annotated.tokenizers import Tokenizer
from annotated.training.checkpoint import RunFolder, average_checkpoints, load_optimizer
from annotated.training.config import TrainingConfig
from annotated.training.distributed import SharedError, agreed, from_first, gathered, say, total
from annotated.training.progress import Progress, progress_bar, read_progress, set_end, stop_on_interrupt
from annotated.training.update import Updater, Weighed, advice, rate_at
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import WEIGHTS, load_weights, save_model
from annotated.translation.tensor_files import read_tensors
from annotated.validation import TokenScores, greedy_bleu, score_tokens


class TrainingError(SharedError):
    """Training cannot go on; the message says where it stopped and how another run may do better."""


class Trainer:
    """Trains `model` on what `epoch_batches(epoch)` gives, into the folder `out` (see `RunFolder`).

    Under `torchrun`, each process takes its share of every update, and losses are divided by the tokens of
    all. Only the first process reads and writes `out`, and its state is that of all. `notes` are settings to
    remember in training.json besides, such as the name of the corpus; `text` is a checksum of what is trained
    and validated on. A resumed run is held to both. torch's global random stream is set anew for each batch.
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
        self.tokenizers = tokenizers
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
        language, tokenized = languages(self.settings.get("pair"))[1], self.settings.get("variant") == "tok"
        tokenize = "none" if tokenized else bleu_tokenizer(language)
        self.measure = partial(bleu, tokenize=tokenize)  # the one that `annotated evaluate` will have
        if config.bleu_every:
            bleu_metric(tokenize)  # what it needs must be here before the work begins

    # ---- the run

    def train(self, resume: bool = False) -> Path:
        """Train to the end, or until Ctrl-C; returns the run's folder, whose weights are the newest.

        With `resume` a run goes on from its newest checkpoint, and starts where there is none. Raises
        ValueError (SharedError, if there are several processes) where `out` holds a run that is not to be
        resumed, has other settings or text, or is trained by another process; TrainingError where the loss or
        its gradient is not finite, before the weights are touched.
        """
        with ExitStack() as held:
            with agreed():
                if self.first:
                    held.enter_context(self.out.locked())
                    held.callback(self.out.close)
                    self.begin(resume)
            if self.updater.world > 1:
                self.share_state()
            return self.run()

    def begin(self, resume: bool) -> None:
        """Take up the run in a folder that is ours alone, or open a new one.

        A warm-up that was not given is that of the run, or follows from its length.
        """
        c, checkpoint = self.config, self.out.newest() if resume else None
        warmup = c.warmup
        if not warmup and checkpoint is not None:
            warmup = self.out.warmup()
        elif not warmup:
            self.progress.epoch_batches = len(self.epoch_batches(0).batches(0))
            warmup = c.warmup_in(self.progress.last_step(c))
        self.config = dataclasses.replace(c, warmup=warmup)
        self.settings["warmup"] = warmup
        if checkpoint is None:
            self.out.check_empty()
        else:
            self.restore(checkpoint)
        self.out.open(self.settings, self.progress)

    def share_state(self) -> None:
        """Give the first process's state to all, so that only that one needs to see the run's folder."""
        text = self.progress.text
        self.config, self.progress = from_first((self.config, self.progress))
        with agreed("; copy the text of the first node"):
            if self.progress.text != text:
                raise ValueError("the training or validation text is another than on the first node")
        self.updater.share_state(begun=self.progress.step > 0)

    def run(self) -> Path:
        """Train from where the state says to the end."""
        with stop_on_interrupt() as stop_asked, progress_bar(self.progress.step, self.first) as bar:
            if self.unvalidated():  # killed since it was saved
                self.validate()
            stopped = False
            while not (stopped or self.finished()):
                stopped = not self.run_epoch(bar, stop_asked)
        if self.finished() and self.first:
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
        again = "resumed, the run would come to this again: begin another"
        return TrainingError(f"{what}; {again} with {better}, {start}")

    def report(self, loss: float, bar: tqdm) -> None:
        """Move the bar; at times, and at the end of an epoch, log the mean loss since the last line."""
        p = self.progress
        speed, left = p.total_tokens / p.seconds, p.minutes_left(self.config)
        shown = f"loss={loss:.3f}, rate={self.rate():.2e}, tokens_per_s={speed:,.0f}, left={left:,.0f} min"
        bar.set_postfix_str(shown, refresh=False)
        bar.update(1)
        if p.step % self.config.log_every == 0 or p.batches == p.epoch_batches:
            if self.first:
                self.out.log({"loss": p.loss / p.tokens, "rate": self.rate(), "tokens": p.total_tokens}, p)
            p.loss, p.tokens = 0.0, 0

    def score(self) -> TokenScores:
        """Score the model on the validation data."""
        return score_tokens(self.model, cast(TokenBatches, self.validation).epoch(0), self.tokenizers[1].pad)

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
            batches = cast(TokenBatches, self.validation).epoch(0)
            record["validation_bleu"] = greedy_bleu(
                self.model, batches, self.tokenizers[1], self.measure
            ).value
            line += f", greedy BLEU {record['validation_bleu']:.1f}"
        if self.first:
            self.out.log(record, p)
            self.out.note(p, self.config)
            minutes = p.minutes_left(self.config)
            left = f"; about {minutes:,.0f} min left" if minutes > 0 else ""
            say(f"epoch {p.current_epoch}, step {p.step}: {line}{left}")

    # ---- what is kept

    def restore(self, checkpoint: Path) -> None:
        """Load a run's state. Raises ValueError if that does not fit the model, the settings or the text."""
        with self.out.reading(checkpoint):
            tensors = read_tensors(checkpoint / WEIGHTS)
            progress = read_progress(checkpoint)
        share = self.out.check_goes_on(self.settings, self.progress, progress, self.updater.world)
        if self.settings["accumulate"] != share:
            self.settings["accumulate"] = share
            say(f"an update keeps its {progress.update_batches} batches: accumulate is now {share}")
        self.out.select_checkpoints(1, "last")  # a damaged one is better found now than at the next save
        load_weights(self.model, tensors, checkpoint / WEIGHTS)
        with self.out.reading(checkpoint):
            load_optimizer(self.updater.optimizer, self.model, checkpoint)
        self.progress = dataclasses.replace(progress, text=self.progress.text)

    def save(self) -> None:
        """Write a checkpoint; where that fails, all processes end."""
        with agreed():
            if self.first:
                self.out.save(self.model, self.tokenizers, self.updater.optimizer, self.progress, self.config)

    def average(self) -> None:
        """Leave the mean of the checkpoints that the settings ask for, unless the newest validated better."""
        of, newest = self.config.average_of, self.progress.validation_loss
        chosen = self.out.select_checkpoints(max(1, self.config.average), of, off_schedule=True)
        load_weights(self.model, average_checkpoints(chosen), self.out.path)
        if len(chosen) > 1:
            left = mean = f"the mean of the {of} {len(chosen)} checkpoints"
            if newest is not None:
                found = self.score().loss
                say(f"validation cross-entropy {found:.4f} of {mean}, {newest:.4f} of the newest")
                if found > newest:
                    left, best = "the newest checkpoint", self.out.checkpoints()[-1]
                    load_weights(self.model, read_tensors(best / WEIGHTS), self.out.path)
            say(f"the model is {left}")
        save_model(self.out.path, self.model, *self.tokenizers)
