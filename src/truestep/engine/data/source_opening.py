# SPDX-License-Identifier: Apache-2.0
"""From a data set of any kind to batches: the one place that decides how data is loaded."""

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from truestep.core.errors import DataError
from truestep.engine.data.batch_source import BatchSource
from truestep.engine.data.blocks import with_block_sizes
from truestep.engine.data.columns import find_data_columns
from truestep.engine.data.data_kinds import (
    check_data_kind,
    check_iterable_order,
    check_rank_dependent_length,
    is_map_style_data,
)
from truestep.engine.data.existing_loader import unpack_data_loader
from truestep.engine.data.in_memory_tensors import MemorySource
from truestep.engine.data.keys import derive_sample_key
from truestep.engine.data.mapped import MappedSource, rank_order
from truestep.engine.data.mixture import Mixture, MixtureDraws, check_mixture_options
from truestep.engine.data.mixture_order import JoinedData, MapStyleMixture, MixtureOrder
from truestep.engine.data.mixture_streams import PIECE, StreamMixture
from truestep.engine.data.options import BlockShuffle, DataOptions
from truestep.engine.data.order_construction import choose_batch_order, choose_sample_indices
from truestep.engine.data.sample_loading import SeededSamples
from truestep.engine.data.shard_detection import whole_dataset_of_ranks
from truestep.engine.data.stream_batches import SampleStream
from truestep.engine.data.stream_source import StreamSource
from truestep.engine.data.unsupported_data_hints import mistaken_data_message
from truestep.engine.processes.batch_row_shares import WHOLE, RankShare

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
    source = _open_by_kind(data, options or DataOptions(), seed=seed, device=device, share=share, world=world)
    source.note_holdings(data)
    return source


def _open_by_kind(
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
        data, options = unpack_data_loader(data, options, share.size)
    if (mistake := mistaken_data_message(data, collates=options.collate is not None)) is not None:
        raise DataError(mistake)
    columns = find_data_columns(data)
    if columns is not None or is_map_style_data(data):
        _refuse_per_rank(data, options)
        check_iterable_order(data, is_shuffled=bool(options.shuffle) or options.weights is not None)
        data = whole_dataset_of_ranks(data)
        if isinstance(options.shuffle, BlockShuffle):
            shuffle = with_block_sizes(options.shuffle, data if columns is None else columns)
            options = dataclasses.replace(options, shuffle=shuffle)
    if columns is not None and options.collate is None:
        order = rank_order(choose_batch_order(len(columns), options, seed), share)
        return MemorySource(columns, order, options, device)
    if columns is not None:
        data = columns  # a function of a list of samples wants samples
    check_data_kind(data)
    if is_map_style_data(data):
        check_rank_dependent_length(data, share.size)
        order = choose_batch_order(len(data), options, seed)
        return MappedSource(
            SeededSamples(data, seed, options.collate, options.stack), order, options, device, share
        )
    return StreamSource(SampleStream(data), options, seed, device, share=share, world=world)


def _refuse_per_rank(data: Any, options: DataOptions) -> None:
    if options.per_rank:
        raise DataError(
            f"per_rank=True is for streams, which can't be entered in their middle. Samples of this {type(data).__name__} can be "
            "asked for by number, so every rank takes its own rows of each batch by itself: give the whole data on every rank, "
            "without per_rank."
        )


def open_mixture(
    mixture: Mixture, options: DataOptions, *, seed: int, device: torch.device, share: RankShare
) -> BatchSource:
    """Return the batches of a mixture."""
    check_mixture_options(options)
    assert options.batch_size is not None
    data = {name: _check_mixture_source(name, each, options, share) for name, each in mixture.sources.items()}
    draws = MixtureDraws(mixture, options.batch_size, seed)
    if all(map(is_map_style_data, data.values())):
        return _open_map_style_mixture(draws, data, options, device, share)
    read = {
        name: _open_source_in_pieces(each, options, _mixture_source_seed(name, seed))
        for name, each in data.items()
    }
    return StreamMixture(draws, read, options, device, share)


def _mixture_source_seed(name: str, seed: int) -> int:
    return derive_sample_key(seed, "source of a mixture", name)


def _check_mixture_source(name: str, data: Any, options: DataOptions, share: RankShare) -> Any:
    """Return one source, checked as `run.data` checks it."""
    try:
        if (mistake := mistaken_data_message(data, collates=options.collate is not None)) is not None:
            raise DataError(mistake)
        columns = find_data_columns(data)
        data = data if columns is None else columns
        check_data_kind(data)
        if is_map_style_data(data):
            check_iterable_order(data, is_shuffled=bool(options.shuffle))
            data = whole_dataset_of_ranks(data)
            check_rank_dependent_length(data, share.size)
            if not len(data):
                raise DataError("the data set is empty: its len() is 0. Check its path.")
    except DataError as error:
        raise DataError(f"{name!r} of the mixture: {error}") from None
    return data


def _options_of_source(data: Any, options: DataOptions) -> DataOptions:
    """Return the options with the blocks of one source."""
    if not isinstance(options.shuffle, BlockShuffle):
        return options
    return dataclasses.replace(options, shuffle=with_block_sizes(options.shuffle, data))


def _open_map_style_mixture(
    draws: MixtureDraws, data: dict[str, Any], options: DataOptions, device: torch.device, share: RankShare
) -> BatchSource:
    sizes = [len(each) for each in data.values()]
    orders = [
        choose_sample_indices(
            len(each), _options_of_source(each, options), _mixture_source_seed(name, draws.seed)
        )
        for name, each in data.items()
    ]
    order = MixtureOrder(draws, orders, sizes, drop_last=options.drop_last)
    samples = SeededSamples(JoinedData([*data.values()]), draws.seed, options.collate)
    described = dataclasses.replace(options, shuffle=bool(options.shuffle))
    return MapStyleMixture(draws, order, MappedSource(samples, order, described, device, share))


def _open_source_in_pieces(data: Any, options: DataOptions, seed: int) -> BatchSource:
    """Return what reads one source in pieces, each a list of samples."""
    pieces = dataclasses.replace(options, batch_size=PIECE, collate=list, drop_last=False)
    host = torch.device("cpu")
    if not is_map_style_data(data):
        return StreamSource(SampleStream(data), dataclasses.replace(pieces, shuffle=False), seed, host)
    pieces = _options_of_source(data, pieces)
    return MappedSource(
        SeededSamples(data, seed, list), choose_batch_order(len(data), pieces, seed), pieces, host
    )
