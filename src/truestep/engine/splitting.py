# SPDX-License-Identifier: Apache-2.0
"""How a batch may be split into micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from truestep.core.errors import OptionError
from truestep.engine.batches import Split
from truestep.engine.example_counting import LOOKED_AT, BatchCounting

MicroBatch = int | Sequence[int] | Literal["auto"] | None


@dataclass(frozen=True)
class BatchSplitting:
    """How a batch may be split; the update depends on it by rounding only."""

    micro_batch: MicroBatch = None
    split: Split | int | None = None
    decomposable: bool = True
    is_whole: bool = field(init=False)
    """Whether nothing is to be cut, and examples lie where they usually do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_whole", self.micro_batch is None and self.split is None)
        check_micro_batch(self.micro_batch)
        if self.split is not None and (
            isinstance(self.split, bool) or not isinstance(self.split, int | Split)
        ):
            raise OptionError(
                f"split={self.split!r}: give the dimension along which the examples lie, split=1, or ts.Split(count, take). How "
                "many are computed at once is micro_batch=4."
            )
        if not self.decomposable and self.micro_batch is not None:
            raise OptionError(
                f"micro_batch={self.micro_batch!r} splits the batch, and decomposable=False says that the loss of the whole is "
                "not a mean of its examples' losses. Leave micro_batch=None for this update."
            )


class BatchCutting(NamedTuple):
    """How one batch is cut."""

    sizes: Sequence[int] | None = None
    """The numbers of examples computed at once, None for all of them."""
    counting: BatchCounting = LOOKED_AT
    may_change: bool = False
    """Whether smaller ones may have to be tried."""
    decomposable: bool = True
    """Whether the loss of the whole batch is the mean of its examples' losses."""
    num_calls: int = 1
    """How often the loss is called."""
    goes_back_again: str | None = None
    """Why what was computed before this update may be gone through more than once; None where it is not."""


def check_micro_batch(micro_batch: MicroBatch) -> None:
    """Raise unless `micro_batch` is None, "auto", a positive number, or a sequence of positive numbers."""
    if micro_batch is None or micro_batch == "auto":
        return
    is_list = isinstance(micro_batch, Sequence) and not isinstance(micro_batch, str)
    sizes: Any = micro_batch if is_list else [micro_batch]
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise OptionError(
            f'micro_batch={micro_batch!r}: give the largest number of examples computed at once (at least 1), "auto" to let '
            "memory decide, or None for the whole batch."
        )


def balanced_micro_batches(total: int, limit: int) -> list[int]:
    """Return as few sizes as do, none above `limit`, that differ by one at most: a short last part would idle the device."""
    parts = -(-total // limit)
    size, longer = divmod(total, parts)
    return [size + 1] * longer + [size] * (parts - longer)
