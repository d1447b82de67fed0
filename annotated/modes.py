"""A model in evaluation mode for a while, also where several threads use it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn


class Evaluations:
    """Which modules are being evaluated: by how many blocks, and whether they were in training before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()

    def begin(self, modules: list[nn.Module]) -> None:
        """Switch to evaluation for one block more."""
        with self.lock:
            for module in modules:
                blocks, training = self.held.get(module, (0, module.training))
                self.held[module] = blocks + 1, training
                module.training = False

    def end(self, modules: list[nn.Module]) -> None:
        """Set back those modules that no other block holds."""
        with self.lock:
            for module in modules:
                blocks, training = self.held.pop(module)
                if blocks > 1:
                    self.held[module] = blocks - 1, training
                else:
                    module.training = training


EVALUATIONS = Evaluations()  # of all models: a note on the model itself would be copied with it


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off and keep no gradients while the block runs; then set every part back as it was.

    Where several blocks overlap, in one thread or several, a part is set back at the end of the last of them.
    A thread that trains the model meanwhile trains without dropout: let it have a copy.
    """
    modules = list(model.modules())
    EVALUATIONS.begin(modules)
    try:
        with torch.no_grad():
            yield
    finally:
        EVALUATIONS.end(modules)
