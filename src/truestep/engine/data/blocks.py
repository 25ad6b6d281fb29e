# SPDX-License-Identifier: Apache-2.0
"""Blocks of samples that lie together in a file: found in the data, and shuffled so that each is opened once an epoch."""

import dataclasses
import hashlib
from typing import Any, NamedTuple

import numpy as np

from truestep.core.errors import DataError
from truestep.engine.data.keys import derive_sample_key
from truestep.engine.data.options import BlockShuffle
from truestep.engine.data.permutation import Indices, SamplePermutation
from truestep.engine.data.shard_detection import data_block_sizes, shard_sizes


def with_block_sizes(shuffle: BlockShuffle, data: Any) -> BlockShuffle:
    """Return the shuffle with the size of each block of `data`."""
    total = len(data)
    if isinstance(shuffle.block, int):
        full, rest = divmod(total, shuffle.block)
        equal = np.array([shuffle.block] * full + [rest] * (rest > 0), dtype=np.int64)
        return dataclasses.replace(shuffle, block=equal)
    told = data_block_sizes(data) if shuffle.block is None else shuffle.block
    kind = type(data).__name__
    if told is None:
        raise DataError(
            f"shuffle=BlockShuffle() takes the data's own blocks, and this {kind} tells of none: it has no method block_sizes(). "
            "Write how many samples lie together, BlockShuffle(block=1000), or the size of each block, BlockShuffle(block=[...])."
        )
    sizes = _to_integer_sizes(told)
    if sizes is None:
        source = "block=" if shuffle.block is not None else "what the data tells of its blocks"
        raise DataError(
            f"BlockShuffle of this {kind}: {source} is {_short_repr(told)}, and not a whole number of at least 0 for each block. "
            "Give the number of samples of each block, in the order of the data, as in BlockShuffle(block=[1000, 1000, 500])."
        )
    if sum(sizes) != total:
        raise DataError(
            f"the {len(sizes):,} blocks of this {kind} hold {sum(sizes):,} samples together, and it has {total:,}: which "
            "sample lies in which block is unclear. Give the number of samples of each block, in the order of the data."
        )
    return dataclasses.replace(shuffle, block=np.array([size for size in sizes if size], dtype=np.int64))


def _to_integer_sizes(told: Any) -> list[int] | None:
    """Return sizes as numbers; None where they are something else. A float that is whole is a size, as numpy's sums give them."""
    if isinstance(told, (str, bytes, dict, set)) or not hasattr(told, "__iter__"):
        return None
    try:
        given = told.tolist() if hasattr(told, "tolist") else [*told]
        sizes = [int(each) for each in given]
        fits = all(
            size == each and not isinstance(each, (str, bytes))
            for size, each in zip(sizes, given, strict=True)
        )
        return sizes if fits and min(sizes, default=0) >= 0 else None
    except (TypeError, ValueError, OverflowError, RuntimeError):  # what tensors raise, too
        return None


def _short_repr(told: Any) -> str:
    shown = repr(told)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def uniform_shuffle_warning(data: Any) -> str | None:
    """Return what is said once where samples of data that tells its shards are shuffled without a thought of them."""
    try:
        sizes = _to_integer_sizes(shard_sizes(data)) or []
        number = len(sizes) if sum(sizes) == len(data) else 0
    except Exception:  # noqa: BLE001 -- nobody asked for the blocks: what the data can't tell needs no hint
        return None
    if number < 2:
        return None
    return (
        f"its samples lie in {number:,} blocks, and shuffle=True opens one for nearly every sample; "
        "shuffle=ts.BlockShuffle() opens each once an epoch"
    )


def describe_block_shuffle(shuffle: BlockShuffle) -> dict[str, Any]:
    """Return, as JSON, what an order by blocks depends on."""
    sizes = np.asarray(shuffle.block, dtype=np.int64)
    digest = hashlib.blake2b(sizes.tobytes(), digest_size=8).hexdigest()
    return {"blocks": len(sizes), "sizes": digest, "window": shuffle.window}


class _EpochBlocks(NamedTuple):
    number: int
    order: Indices
    """The blocks, as they come."""
    begins: Indices
    """Positions at which they begin."""
    windows: Indices
    """Positions at which the windows begin, and the end."""


class BlockShuffledSamples:
    """Every sample once an epoch: blocks in an order of the epoch's own, samples mixed within a window of some of them.

    Any position is computed from (seed, epoch, position) and the table of the blocks' sizes.
    """

    def __init__(self, sizes: Indices, window: int, seed: int) -> None:
        self._sizes, self._window, self._seed = sizes, window, seed
        self._firsts = np.cumsum(sizes) - sizes
        self._latest: _EpochBlocks | None = None
        self._mixed: tuple[tuple[int, int], SamplePermutation] | None = None

    def indices(self, epoch: int, positions: Indices) -> Indices:
        """Return the indices into the data of the samples at `positions`; O(log of the number of blocks) each."""
        at = self._blocks_of_epoch(epoch)
        windows = np.searchsorted(at.windows, positions, side="right") - 1
        mixed = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            here, first = windows == window, at.windows[window]
            size = int(at.windows[window + 1] - first)
            mixed[here] = first + self._window_permutation(epoch, window, size)(positions[here] - first)
        blocks = np.searchsorted(at.begins, mixed, side="right") - 1
        found: Indices = self._firsts[at.order[blocks]] + mixed - at.begins[blocks]
        return found

    def _blocks_of_epoch(self, epoch: int) -> _EpochBlocks:
        if self._latest is None or self._latest.number != epoch:
            number = len(self._sizes)
            key = derive_sample_key(self._seed, "order of blocks", epoch)
            order = SamplePermutation(number, key)(np.arange(number))
            ends = np.cumsum(self._sizes[order])
            begins = ends - self._sizes[order]
            self._latest = _EpochBlocks(epoch, order, begins, np.append(begins[:: self._window], ends[-1]))
        return self._latest

    def _window_permutation(self, epoch: int, window: int, size: int) -> SamplePermutation:
        if self._mixed is None or self._mixed[0] != (epoch, window):
            key = derive_sample_key(self._seed, "order in a window", epoch, window)
            self._mixed = (epoch, window), SamplePermutation(size, key)
        return self._mixed[1]
