"""The learning rate (section 5.3, equation 3)."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def rate(step: int, model_size: int, factor: float, warmup: int) -> float:
    """factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5): linear to `warmup`, then as 1 / sqrt(step).

    Steps count from 1; step 0, which schedulers ask for before the first update, is taken as 1.
    The peak, at step = warmup, is factor / sqrt(model_size * warmup), so neither of these may be 0.
    """
    if model_size <= 0 or warmup <= 0:
        raise ValueError(f"model_size and warmup must be above 0, not {model_size} and {warmup}")
    if step < 0:
        raise ValueError(f"step must be at least 0, not {step}")
    step = max(step, 1)
    return factor * model_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


def noam_scheduler(optimizer: Optimizer, model_size: int, factor: float = 1, warmup: int = 4000) -> LambdaLR:
    """Let `rate` drive the optimizer, whose own rate must be 1.0; call `.step()` after each update.

    The first update uses step 1. Raises ValueError for an optimizer whose rate would scale the schedule.
    """
    for group in optimizer.param_groups:
        if (lr := group.get("initial_lr", group["lr"])) != 1.0:  # a scheduler has changed "lr" already
            raise ValueError(f"noam_scheduler needs an optimizer with lr=1.0, not {lr}")
    return LambdaLR(optimizer, lambda done: rate(done + 1, model_size, factor, warmup))
