# SPDX-License-Identifier: Apache-2.0
"""How many of the rows that a model was evaluated on it had been trained on, and how many meet by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from truestep.doctor.runtime.row_records import RowBatch, RowPass

LEAST = 8  # rows of either side
RICH = 0.9  # of the rows of a pass differ from all others of it, or nothing is said
BEYOND = 1.5  # so many times what may meet by chance
NEARLY_ALL = 0.9
Verdict = Literal["trained", "held out", "both"]


@dataclass(frozen=True)
class RowOverlap:
    """The rows of one evaluation beside those of the training before it; counted once each."""

    num_evaluated: int
    num_trained: int  # those that were looked at
    num_shared: int
    by_chance: float  # at most so many would be shared by chance
    num_agreeing: int  # of the shared ones, those that had the same target too
    num_data: int | None  # the rows of the training set, where they are known

    @property
    def verdict(self) -> Verdict | None:
        """What was evaluated: rows of the training set, others, both; None where that can't be told."""
        if self.num_shared < LEAST or self.num_shared <= BEYOND * self.by_chance:
            return "held out" if self.num_shared <= max(self.by_chance, 0.01 * self.num_evaluated) else None
        if self.share >= NEARLY_ALL:
            return "trained"
        if self.num_data is None:
            return "trained" if self.num_shared >= NEARLY_ALL * self.num_trained else None
        # of the training set a part was looked at; so large a share of what is evaluated would be seen
        seen = min(1.0, self.num_trained / self.num_data)
        spread = (seen * (1 - seen) / self.num_evaluated) ** 0.5
        return "trained" if self.share >= NEARLY_ALL * seen - 2 * spread else "both"

    @property
    def share(self) -> float:
        """The share of what is evaluated that is known to be trained on."""
        return self.num_shared / self.num_evaluated


def row_overlap(training: Sequence[RowBatch], kept: int, evaluation: RowPass) -> RowOverlap | None:
    """Compare the rows of an evaluation with what its model was trained on; None where rows can't be told apart.

    Args:
        training: batches that were trained on.
        kept: one of so many of their rows is there.
        evaluation: what was evaluated.
    """
    most = max(kept, evaluation.kept)
    trained = [_sampled_row_prints(each, most) for each in training]
    evaluated = np.concatenate([_sampled_row_prints(each, most) for each in evaluation.batches])
    rows, tested = np.unique(np.concatenate([*trained, evaluated[:0]])), np.unique(evaluated)
    if len(rows) < LEAST or len(tested) < LEAST:
        return None
    alike = num_duplicate_rows(trained)
    alike_tested = len(evaluated) - len(tested)
    num_trained = sum(map(len, trained))
    if alike > (1 - RICH) * num_trained or alike_tested > (1 - RICH) * len(evaluated):
        return None
    # pairs in which rows could have met: within a batch of training, and within the evaluation
    pairs = (sum(len(each) ** 2 for each in trained) + len(evaluated) ** 2) / 2
    surely = all(_has_fractional_rows(each) for each in evaluation.batches)
    met = alike + alike_tested
    at_most = met + 3 * (met if surely else met + 1) ** 0.5
    data = _training_set_size(training, len(rows), num_trained)
    shared, agreeing = _count_common_rows(training, evaluation.batches, most)
    return RowOverlap(
        num_evaluated=len(tested),
        num_trained=len(rows),
        num_shared=shared,
        by_chance=at_most / pairs * len(rows) * len(tested),
        num_agreeing=agreeing,
        num_data=data // most if data is not None else None,
    )


def num_duplicate_rows(batches: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> int:
    """Return how many rows of these batches are like another one of the same batch."""
    return sum(len(each) - len(np.unique(each)) for each in batches)


def are_rows_within_batch(evaluation: RowPass, batch: RowBatch) -> bool:
    """Tell whether all rows of an evaluation are those of one batch."""
    held = _sampled_row_prints(batch, evaluation.kept)
    return all(
        bool(np.isin(_sampled_row_prints(each, evaluation.kept), held).all()) for each in evaluation.batches
    )


def have_same_rows(first: RowBatch, second: RowBatch) -> bool:
    """Tell whether two batches hold the same rows, in any order."""
    return np.array_equal(np.sort(_sampled_row_prints(first, 1)), np.sort(_sampled_row_prints(second, 1)))


def _sampled_row_prints(batch: RowBatch, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    rows: np.ndarray[Any, np.dtype[np.int64]] = batch.inputs.cpu().numpy()
    return rows[(rows & (most - 1)) == 0] if most > 1 else rows


def _count_common_rows(
    training: Sequence[RowBatch], evaluation: Sequence[RowBatch], most: int
) -> tuple[int, int]:
    """Return how many rows are on both sides, and how many of these have the same target on both."""
    first, second = (
        np.concatenate([row_target_pairs(each, most) for each in side]) for side in (training, evaluation)
    )
    shared = np.intersect1d(first[:, 0], second[:, 0])
    pairs = {tuple(each) for each in first.tolist()}
    agreeing = {each[0] for each in second.tolist() if tuple(each) in pairs}
    return len(shared), len(agreeing)


def row_target_pairs(batch: RowBatch, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each row's print beside its target's, or beside 0 where there is none."""
    rows = batch.inputs.cpu().numpy()
    targets = batch.targets.cpu().numpy() if batch.targets is not None else np.zeros_like(rows)
    pairs: np.ndarray[Any, np.dtype[np.int64]] = np.stack([rows, targets], 1)
    kept: np.ndarray[Any, np.dtype[np.int64]] = pairs[(rows & (most - 1)) == 0]
    return kept


def _has_fractional_rows(batch: RowBatch) -> bool:
    """Tell rows of several numbers that are not whole: two of those do not meet by chance."""
    return batch.width >= 4 and batch.fractions is not None and float(batch.fractions) > 0.5


def _training_set_size(training: Sequence[RowBatch], num_rows: int, num_seen: int) -> int | None:
    """Return the rows of the training set: the loader's, or those that came again and again."""
    known = {each.data for each in training}
    if len(known) == 1 and None not in known:
        return known.pop()
    return num_rows if num_seen >= 2 * num_rows else None
