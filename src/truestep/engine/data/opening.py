# SPDX-License-Identifier: Apache-2.0
"""From a data set of any kind to batches: the one place that decides how data is loaded."""

from typing import Any

import torch

from truestep.engine.data.columns import find_columns
from truestep.engine.data.draws import Sequential, Shuffled
from truestep.engine.data.mapped import MappedSource
from truestep.engine.data.memory import MemorySource
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order import FixedSize, Order
from truestep.engine.data.samples import Samples
from truestep.engine.data.source import BatchSource
from truestep.errors import DataError


def open_source(
    data: Any, options: DataOptions | None = None, *, seed: int, device: torch.device | None = None
) -> BatchSource:
    """Return the batches of `data` as `options` say, in an order that is a function of (seed, epoch) alone.

    `data` may be tensors in memory (one, or a tuple or dict of them), a data set with `__len__` and
    `__getitem__`, an iterable, a function that makes one, or a `DataLoader` that is there already.
    """
    options = options or DataOptions()
    device = device or torch.device("cpu")
    columns = find_columns(data) if options.collate is None else None
    if columns is not None:
        return MemorySource(columns, _order(columns.num_samples, options, seed), options, device)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return MappedSource(
            Samples(data, seed, options.collate), _order(len(data), options, seed), options, device
        )
    raise DataError(f"data is a {type(data).__name__}")


def _order(num_samples: int, options: DataOptions, seed: int) -> Order:
    _check_sizes(num_samples, options)
    assert options.batch_size is not None
    draw = Shuffled(num_samples, seed) if options.shuffle else Sequential()
    return FixedSize(
        draw, num_samples=num_samples, batch_size=options.batch_size, drop_last=options.drop_last
    )


def _check_sizes(num_samples: int, options: DataOptions) -> None:
    if num_samples == 0:
        raise DataError(
            "the data set is empty: len() is 0, so there is nothing to train on. Check its path or filter."
        )
    if options.batch_size is None:
        raise DataError("batch_size is missing. Write how many samples make a batch, as in batch_size=32.")
    if options.drop_last and options.batch_size > num_samples:
        raise DataError(
            f"batch_size={options.batch_size} with drop_last=True leaves no batch of {num_samples} samples. "
            f"Write a batch_size of at most {num_samples}, or leave drop_last out."
        )
