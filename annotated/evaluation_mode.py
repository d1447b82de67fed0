"""Evaluation of a model for the length of a block."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

EVALUATED_LOCK = threading.Lock()
# For each module, the number of blocks that evaluate it, and whether it was in training before them.
EVALUATED: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients in a block, then restore the mode of every module.

    Blocks may overlap, in one thread or several; the last one to end restores the mode. A thread that trains
    the same model meanwhile trains without dropout, so give it a copy.
    """
    modules = list(model.modules())
    with EVALUATED_LOCK:
        for module in modules:
            blocks, training = EVALUATED.get(module, (0, module.training))
            EVALUATED[module] = blocks + 1, training
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with EVALUATED_LOCK:
            for module in modules:
                blocks, training = EVALUATED.pop(module)
                if blocks > 1:
                    EVALUATED[module] = blocks - 1, training
                else:
                    module.training = training
