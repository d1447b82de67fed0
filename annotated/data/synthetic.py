"""The copy task: a target that repeats its source."""

from collections.abc import Iterator

import torch

from annotated.data.batch import Batch


def data_gen(V: int, batch_size: int, nbatches: int, length: int = 10) -> Iterator[Batch]:
    """`nbatches` batches of `batch_size` random rows to be copied, from torch's global random stream.

    Each row has `length` symbols from 1 to V - 1, the first always 1, as a start symbol; nothing is
    padding (0). Raises ValueError if V leaves no symbol, or length none to predict.
    """
    if V < 2 or length < 2:
        raise ValueError(f"the copy task needs V and length of 2 or more, not {V} and {length}")
    return (_copy_batch(V, batch_size, length) for _ in range(nbatches))


def _copy_batch(V: int, batch_size: int, length: int) -> Batch:
    data = torch.randint(1, V, (batch_size, length))
    data[:, 0] = 1
    return Batch(data, data.clone(), pad=0)
