# SPDX-License-Identifier: Apache-2.0
"""How data is to be loaded: the options of `run.data`, checked as soon as they are given."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from truestep.core.argument_errors import check_keyword_options
from truestep.core.errors import OptionError, check_flag, intended_whole_number
from truestep.core.text_formatting import a_type
from truestep.engine.data.batch_collation import stack_samples

Numbers = Sequence[float] | npt.NDArray[Any] | torch.Tensor

_NO_BUFFER = (
    ": the order is drawn over all samples, without a buffer of that size. What can only be read from front to back is shuffled "
    "where it is read"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByLength:
    """Batches of samples of similar length, so that little is padded.

    `lengths` is one number per sample. A batch holds `batch_size` samples or, with `max_tokens`, as many as
    fit when each is padded to the longest. Samples whose lengths differ by less than `mix` (a share) count
    as equally long and change batches every epoch.
    """

    lengths: Numbers
    max_tokens: int | None = None
    mix: float = 0.1

    def __post_init__(self) -> None:
        _normalize_count_option(self, "max_tokens", 1)
        if not 0 <= self.mix <= 1:
            raise OptionError(f"mix={self.mix} is not a share between 0 (exact lengths only) and 1.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BlockShuffle:
    """A shuffle for samples that lie together in files: each file is opened once an epoch, and not for every sample.

    Blocks come in an order of the epoch's own, and samples are mixed within a window of `window` blocks. `block` is how many
    samples lie together, or how many in each block; None asks the data for its own: a method `block_sizes()`, MosaicML
    Streaming's shards, litdata's chunks, the parts of a `ConcatDataset`, the Arrow chunks of `datasets`, the row groups of Parquet
    files that the data set holds.
    """

    block: int | Sequence[int] | npt.NDArray[np.int64] | None = None
    window: int = 16

    def __post_init__(self) -> None:
        if self.window is None:
            raise OptionError(
                "BlockShuffle(window=None): write how many blocks are mixed, window=16, or leave it out."
            )
        _normalize_count_option(self, "window", 1)
        if hasattr(self.block, "__iter__") and not hasattr(self.block, "__len__"):
            raise OptionError(
                f"BlockShuffle was given {a_type(self.block)} as block=: give the size of each block in a list, block=[*sizes]."
            )
        if not hasattr(self.block, "__len__"):
            _normalize_count_option(self, "block", 1)


class DataKeywords(TypedDict, total=False):
    """The fields of `DataOptions` as `run.data` takes them, so that a type checker knows their names."""

    batch_size: int | None
    shuffle: bool | BlockShuffle
    drop_last: bool
    weights: Numbers | None
    num_samples: int | None
    by_length: Numbers | ByLength | None
    collate: Callable[[list[Any]], Any] | None
    num_workers: int | str
    prefetch: int
    start_method: str | None
    worker_init: Callable[[int], None] | None
    on_device: bool | None
    per_rank: bool
    check: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How to load a data set.

    batch_size: samples per batch over all processes; None where the data yields ready batches.
    shuffle: every epoch in an order of its own, each sample once; `BlockShuffle(...)` for samples that lie in shards.
    drop_last: leave out a last batch that is short.
    weights: draw samples with replacement, as often as these numbers say; one per sample.
    num_samples: draws an epoch, with `weights` (None: as many as there are samples).
    by_length: lengths of the samples, or `ByLength(...)`: batches of similar lengths.
    collate: makes a batch of a list of samples (None: stack them).
    num_workers: processes that load samples; "auto" measures a sample and says why.
    prefetch: batches that each worker loads ahead.
    start_method: how workers start: "fork", "forkserver", "spawn" (None: the platform's).
    worker_init: called with the worker's number when it starts.
    on_device: keep tensors in memory on the device (None: where they fit easily).
    per_rank: of a stream each of several processes reads a share of its own; otherwise all read the same.
    check: draw a few samples twice at the start and report what differs.
    """

    batch_size: int | None = None
    shuffle: bool | BlockShuffle = False
    drop_last: bool = False
    weights: Numbers | None = None
    num_samples: int | None = None
    by_length: Numbers | ByLength | None = None
    collate: Callable[[list[Any]], Any] | None = None
    num_workers: int | str = "auto"
    prefetch: int = 2
    start_method: str | None = None
    worker_init: Callable[[int], None] | None = None
    on_device: bool | None = None
    per_rank: bool = False
    check: bool = True

    @property
    def stack(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of a list of samples where `collate` is None."""
        return stack_samples

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("num_samples", 1), ("prefetch", 1)):
            _normalize_count_option(self, name, least)
        flags = ("drop_last", "per_rank", "check")
        for flag in flags if isinstance(self.shuffle, BlockShuffle) else ("shuffle", *flags):
            check_flag("run.data", flag, getattr(self, flag), no_number=_NO_BUFFER * (flag == "shuffle"))
        if self.num_workers != "auto":
            _normalize_count_option(self, "num_workers", 0)
        _check_option_pairs(self)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "DataOptions":
        """Return the options given by name; an unknown name is answered with the nearest known ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        check_keyword_options("run.data", options, known)
        return cls(**options)


def _normalize_count_option(options: object, name: str, least: int) -> None:
    """Have a whole number be Python's own, whichever it was given as (numpy's np.int64, say); None stays."""
    value = getattr(options, name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        kinds = f"a whole number of at least {least}" + (' or "auto"' if name == "num_workers" else "")
        meant = intended_whole_number(value, least)
        instead = kinds if meant is None else f"{name}={meant}, {kinds}"
        raise OptionError(f"{name}={value!r} is {a_type(value)}; write {instead}.")
    if value < least:
        raise OptionError(f"{name}={value} is too small; write a whole number of at least {least}.")
    object.__setattr__(options, name, int(value))  # what is frozen is not yet anybody's


def _check_option_pairs(options: DataOptions) -> None:
    if options.weights is not None and options.by_length is not None:
        raise OptionError(
            "weights= and by_length= both choose which samples stand together. Give one of them; "
            "weighted samples of mixed lengths can be padded by collate=."
        )
    other = next((name for name in ("weights", "by_length") if getattr(options, name) is not None), None)
    if isinstance(options.shuffle, BlockShuffle) and other is not None:
        raise OptionError(
            f"shuffle=BlockShuffle(...) and {other}= both choose which samples stand together. Give one of them."
        )
    if options.num_samples is not None and options.weights is None:
        raise OptionError(
            f"num_samples={options.num_samples} is the number of draws with weights=, and there are none. "
            "For a part of the data write torch.utils.data.Subset(data, range(...))."
        )
    if options.drop_last and isinstance(options.by_length, ByLength) and options.by_length.max_tokens:
        raise OptionError(
            "drop_last=True with max_tokens: no batch of the epoch is the short one, as all differ in size. "
            "Leave drop_last out, or give batch_size instead of max_tokens."
        )
