# SPDX-License-Identifier: Apache-2.0
"""How many examples a batch has: as the user's `split=` counts them, else as `run.data` knows, else as its tensors say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truestep.core.errors import BatchError
from truestep.engine.batches import (
    UNKNOWN,
    Batch,
    BatchOrigin,
    EmptyBatchError,
    Split,
    count_examples,
    count_with,
    cut_batch,
    try_count_examples,
)


@dataclass(frozen=True)
class BatchCounting:
    """Counts and cuts the batches of one update, or of one batch of an evaluation."""

    split: Split | None = None
    making: BatchOrigin = UNKNOWN
    """What the source knows of the batch that it gave out last, of which a loop may have made another one."""

    def count(self, batch: Batch) -> int:
        """Return the number of examples as far as can be seen, or raise a `BatchError`."""
        return count_with(self.split, batch) if self.split else count_examples(batch, self.making)

    def try_count(self, batch: Batch) -> int | None:
        """Return the number of examples, None where that is not clear; an empty batch raises."""
        return count_with(self.split, batch) if self.split else try_count_examples(batch, self.making)

    def is_empty(self, batch: Batch) -> bool:
        """Whether a batch is known to have no example."""
        try:
            count = self.split.count(batch) if self.split else self.try_count(batch)
        except EmptyBatchError:
            return True
        # where the batch can be read in several ways, the source that made it knows
        return (self.making.num_examples if count is None else count) == 0

    def presumed_num_examples(self, batch: Batch) -> int:
        """Return the number of examples before the loss is called; that it is right is seen by how many losses come back."""
        try:
            count = self.try_count(batch)
            return self.count(batch) if count is None else count
        except BatchError:
            # a batch that no rule can count may still have been counted by its source
            if not self.making.num_examples:
                raise
            return self.making.num_examples

    def cut(self, batch: Batch, sizes: Sequence[int]) -> Iterator[Batch]:
        """Yield consecutive parts with so many examples each."""
        return cut_batch(batch, sizes, self.split, self.making)

    def first(self, batch: Batch) -> Batch:
        """Return the first example, as a batch."""
        # taken out as a part, so that its lists and shapes are those of a batch
        total = self.count(batch)
        return batch if total == 1 else next(self.cut(batch, [1, total - 1]))

    def note_how_counted(self, error: Exception, batch: Batch) -> None:
        """Add to an error how the examples of a batch were counted, where it could have been otherwise."""
        try:
            # only one reading: how it was counted explains nothing
            if self.try_count(batch) is not None:
                return
            count = self.count(batch)
        except BatchError:
            return
        error.add_note(
            f"The batch is a list of {len(batch)} members, and was read as the columns of {count} examples. If each member is an "
            "example, pass split=ts.Split(len, lambda batch, start, stop: batch[start:stop])."
            if isinstance(batch, list)
            else f"The lists in the batch were read as {count} examples. If that is wrong, pass split=ts.Split(count, take)."
        )


LOOKED_AT = BatchCounting()
