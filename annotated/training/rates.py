"""The learning rate of a run: what it is at each update, and whether the model can bear it."""

from annotated.training.config import TrainingConfig
from annotated.transformer.config import TransformerConfig
from annotated.transformer.schedule import factor_for, rate


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
