"""What a run leaves at its end: the mean of some of its checkpoints (section 6.1), or the newest."""

from collections.abc import Callable

from annotated.training.config import TrainingConfig
from annotated.training.devices import say
from annotated.training.run_folder import RunFolder
from annotated.transformer.model import EncoderDecoder
from annotated.translation.evaluation import TokenScores
from annotated.translation.model_folder import WEIGHTS, average_checkpoints, load_weights, read_tensors


def average_run(
    out: RunFolder,
    model: EncoderDecoder,
    config: TrainingConfig,
    newest: float | None,
    score: Callable[[], TokenScores],
) -> None:
    """Give the model the mean of the checkpoints that the settings ask for, if that is better.

    Better than the newest checkpoint, whose validation loss is `newest`; where that is None, the mean it is.
    """
    of = config.average_of
    chosen = out.select_checkpoints(max(1, config.average), of, off_schedule=True)
    load_weights(model, average_checkpoints(chosen), out.path)
    if len(chosen) == 1:
        return
    left = mean = f"the mean of the {of} {len(chosen)} checkpoints"
    if newest is not None:
        found = score().loss
        say(f"validation cross-entropy {found:.4f} of {mean}, {newest:.4f} of the newest")
        if found > newest:
            left = "the newest checkpoint"
            load_weights(model, read_tensors(out.newest() / WEIGHTS), out.path)
    say(f"the model is {left}")
