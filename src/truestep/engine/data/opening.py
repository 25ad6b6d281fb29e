# SPDX-License-Identifier: Apache-2.0
"""From a data set of any kind to batches: the one place that decides how data is loaded."""

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from truestep.core.errors import DataError
from truestep.engine.data.blocks import with_sizes
from truestep.engine.data.columns import find_data_columns
from truestep.engine.data.existing import take_loader_apart
from truestep.engine.data.kinds import (
    check_data_kind,
    check_length_of_ranks,
    check_own_order,
    is_map_style_data,
)
from truestep.engine.data.mapped import MappedSource
from truestep.engine.data.memory import MemorySource
from truestep.engine.data.mistaken import mistaken_data
from truestep.engine.data.mixing import open_mixture
from truestep.engine.data.mixture import Mixture
from truestep.engine.data.options import BlockShuffle, DataOptions
from truestep.engine.data.ordering import choose_batch_order
from truestep.engine.data.samples import SeededSamples
from truestep.engine.data.sharing import shared_order
from truestep.engine.data.source import BatchSource
from truestep.engine.data.stream import StreamSource
from truestep.engine.data.streaming import SampleStream
from truestep.engine.data.whole import whole_of_ranks
from truestep.engine.processes.shares import WHOLE, RankShare

if TYPE_CHECKING:
    from truestep.engine.processes.world import World


def open_source(
    data: Any,
    options: DataOptions | None = None,
    *,
    seed: int,
    device: torch.device | None = None,
    share: RankShare = WHOLE,
    world: "World | None" = None,
) -> BatchSource:
    """Return the batches of `data` as `options` say, in an order that is a function of (seed, epoch) alone.

    Of each batch it gives the rows of `share`: all, unless several processes train together. Those of `world` meet where each
    reads a stream of its own.

    `data` may be tensors in memory (one, or a tuple or dict of them), a data set with `__len__` and
    `__getitem__`, an iterable, a function that makes one, a `DataLoader` that is there already, or a `Mixture` of such data.
    """
    device = device or torch.device("cpu")
    source = _opened(data, options or DataOptions(), seed=seed, device=device, share=share, world=world)
    source.hold_files(data)
    return source


def _opened(
    data: Any,
    options: DataOptions,
    *,
    seed: int,
    device: torch.device,
    share: RankShare,
    world: "World | None",
) -> BatchSource:
    if isinstance(data, Mixture):
        return open_mixture(data, options, seed=seed, device=device, share=share)
    if isinstance(data, DataLoader):
        data, options = take_loader_apart(data, options, share.size)
    if (mistake := mistaken_data(data, collates=options.collate is not None)) is not None:
        raise DataError(mistake)
    columns = find_data_columns(data)
    if columns is not None or is_map_style_data(data):
        _refuse_shares(data, options)
        check_own_order(data, is_shuffled=bool(options.shuffle) or options.weights is not None)
        data = whole_of_ranks(data)
        if isinstance(options.shuffle, BlockShuffle):
            shuffle = with_sizes(options.shuffle, data if columns is None else columns)
            options = dataclasses.replace(options, shuffle=shuffle)
    if columns is not None and options.collate is None:
        order = shared_order(choose_batch_order(len(columns), options, seed), share)
        return MemorySource(columns, order, options, device)
    if columns is not None:
        data = columns  # a function of a list of samples wants samples
    check_data_kind(data)
    if is_map_style_data(data):
        check_length_of_ranks(data, share.size)
        order = choose_batch_order(len(data), options, seed)
        return MappedSource(
            SeededSamples(data, seed, options.collate, options.stack), order, options, device, share
        )
    return StreamSource(SampleStream(data), options, seed, device, share=share, world=world)


def _refuse_shares(data: Any, options: DataOptions) -> None:
    if options.per_rank:
        raise DataError(
            f"per_rank=True is for streams, which can't be entered in their middle. Samples of this {type(data).__name__} can be "
            "asked for by number, so every rank takes its own rows of each batch by itself: give the whole data on every rank, "
            "without per_rank."
        )
