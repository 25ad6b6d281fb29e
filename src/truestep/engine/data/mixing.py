# SPDX-License-Identifier: Apache-2.0
"""From a mixture to batches: by number where all its sources can be asked for samples by number, piece by piece otherwise."""

import dataclasses
from typing import Any

import torch

from truestep.core.errors import DataError
from truestep.engine.data.blocks import with_sizes
from truestep.engine.data.columns import find_data_columns
from truestep.engine.data.keys import derive_sample_key
from truestep.engine.data.kinds import (
    check_data_kind,
    check_length_of_ranks,
    check_own_order,
    is_map_style_data,
)
from truestep.engine.data.mapped import MappedSource
from truestep.engine.data.mistaken import mistaken_data
from truestep.engine.data.mixture import Mixture, MixtureDraws, check_mixture_options
from truestep.engine.data.mixture_order import JoinedData, MixtureByNumber, MixtureOrder
from truestep.engine.data.mixture_streams import PIECE, MixtureOfStreams
from truestep.engine.data.options import BlockShuffle, DataOptions
from truestep.engine.data.ordering import choose_batch_order, choose_draw
from truestep.engine.data.samples import SeededSamples
from truestep.engine.data.source import BatchSource
from truestep.engine.data.stream import StreamSource
from truestep.engine.data.streaming import SampleStream
from truestep.engine.data.whole import whole_of_ranks
from truestep.engine.processes.shares import RankShare


def open_mixture(
    mixture: Mixture, options: DataOptions, *, seed: int, device: torch.device, share: RankShare
) -> BatchSource:
    """Return the batches of a mixture."""
    check_mixture_options(options)
    assert options.batch_size is not None
    data = {name: _given(name, each, options, share) for name, each in mixture.sources.items()}
    draws = MixtureDraws(mixture, options.batch_size, seed)
    if all(map(is_map_style_data, data.values())):
        return _by_number(draws, data, options, device, share)
    read = {name: _in_pieces(each, options, _seed_of(name, seed)) for name, each in data.items()}
    return MixtureOfStreams(draws, read, options, device, share)


def _seed_of(name: str, seed: int) -> int:
    return derive_sample_key(seed, "source of a mixture", name)


def _given(name: str, data: Any, options: DataOptions, share: RankShare) -> Any:
    """Return one source, checked as `run.data` checks it."""
    try:
        if (mistake := mistaken_data(data, collates=options.collate is not None)) is not None:
            raise DataError(mistake)
        columns = find_data_columns(data)
        data = data if columns is None else columns
        check_data_kind(data)
        if is_map_style_data(data):
            check_own_order(data, is_shuffled=bool(options.shuffle))
            data = whole_of_ranks(data)
            check_length_of_ranks(data, share.size)
            if not len(data):
                raise DataError("the data set is empty: its len() is 0. Check its path.")
    except DataError as error:
        raise DataError(f"{name!r} of the mixture: {error}") from None
    return data


def _of_source(data: Any, options: DataOptions) -> DataOptions:
    """Return the options with the blocks of one source."""
    if not isinstance(options.shuffle, BlockShuffle):
        return options
    return dataclasses.replace(options, shuffle=with_sizes(options.shuffle, data))


def _by_number(
    draws: MixtureDraws, data: dict[str, Any], options: DataOptions, device: torch.device, share: RankShare
) -> BatchSource:
    sizes = [len(each) for each in data.values()]
    orders = [
        choose_draw(len(each), _of_source(each, options), _seed_of(name, draws.seed))
        for name, each in data.items()
    ]
    order = MixtureOrder(draws, orders, sizes, drop_last=options.drop_last)
    samples = SeededSamples(JoinedData([*data.values()]), draws.seed, options.collate)
    described = dataclasses.replace(options, shuffle=bool(options.shuffle))
    return MixtureByNumber(draws, order, MappedSource(samples, order, described, device, share))


def _in_pieces(data: Any, options: DataOptions, seed: int) -> BatchSource:
    """Return what reads one source in pieces, each a list of samples."""
    pieces = dataclasses.replace(options, batch_size=PIECE, collate=list, drop_last=False)
    host = torch.device("cpu")
    if not is_map_style_data(data):
        return StreamSource(SampleStream(data), dataclasses.replace(pieces, shuffle=False), seed, host)
    pieces = _of_source(data, pieces)
    return MappedSource(
        SeededSamples(data, seed, list), choose_batch_order(len(data), pieces, seed), pieces, host
    )
