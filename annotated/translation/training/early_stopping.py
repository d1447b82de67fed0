"""Early stopping: the best validation score of a run, and for how many epochs it has stood."""

from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """Count the epochs without a better score. A score counts by its badness: the lower, the better."""

    metric: str = "loss"  # that gives the badness
    badness: float | None = None  # of exactly these weights, if they were scored
    best: float | None = None  # lowest badness at the end of an epoch
    stale: int = 0  # epochs scored since then

    def count_score(self, badness: float | None, metric: str, epoch_ends: bool) -> None:
        """Keep the badness, if scored; at the end of an epoch, count it. Another metric begins anew."""
        if metric != self.metric:
            self.metric, self.best, self.stale = metric, None, 0
        self.badness = badness
        if epoch_ends and badness is not None:
            self.stale = 0 if self.best is None or badness < self.best else self.stale + 1
            self.best = badness if self.stale == 0 else self.best

    def out_of_patience(self, metric: str, patience: int) -> bool:
        """Return whether so many epochs were no better by the metric; a patience of 0 never ends."""
        return self.metric == metric and 0 < patience <= self.stale
