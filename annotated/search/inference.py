"""Evaluation mode for a while: no dropout, no gradients. Threads do not get into each other's way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

LOCK = threading.Lock()
# By how many blocks each module is being evaluated, and whether it was in training before. It stands here
# because a note on the module itself would be copied with it.
HELD: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off and keep no gradients while the block runs; then set every part back as it was.

    Where several blocks overlap, in one thread or several, a part is set back at the end of the last of them.
    A thread that trains the model meanwhile trains without dropout: let it have a copy.
    """
    modules = list(model.modules())
    with LOCK:
        for module in modules:
            blocks, training = HELD.get(module, (0, module.training))
            HELD[module] = blocks + 1, training
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with LOCK:
            for module in modules:
                blocks, training = HELD.pop(module)
                if blocks > 1:
                    HELD[module] = blocks - 1, training
                else:
                    module.training = training
