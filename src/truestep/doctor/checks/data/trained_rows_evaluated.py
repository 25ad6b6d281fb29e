# SPDX-License-Identifier: Apache-2.0
"""Examples that are evaluated after they were trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_overlap import RowOverlap
    from truestep.doctor.runtime.train_eval_rows import WatchedRows


class TrainedRowsEvaluated(Watcher):
    """A model is evaluated on examples that it was trained on, and not on others alone.

    Why: the model knows these examples by heart, so its score says nothing about new data and hides overfitting.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, 8))  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in test_loader)

    Fix: split the data once, and evaluate on the part that no step was trained on.

    Evidence: the plain form of row 73 of docs/mistakes.md; bed Q: 0 true, 2 false.
    """

    code = "DATA040"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Compare each evaluation with the training before it."""
        found = list(_comparable_evaluations(history.rows))
        for each in found:
            if each.overlap.verdict == "both":
                yield Observation(
                    each.place, each.told(), QUESTION if each.is_unsure else RISK, each.evidence()
                )
        if not {each.overlap.verdict for each in found} <= {"trained", None}:
            return
        trained = [each for each in found if each.overlap.verdict == "trained" and each.is_of_same_task]
        if history.is_cut_short:  # others may come: asked of a part of the training set, not of all of it
            trained = [each for each in trained if each.is_of_small_part]
        for each in trained if len(trained) > 1 or not history.is_cut_short else ():
            asked = each.is_unsure or each.in_one_batch or not each.of_classes or history.is_cut_short
            message = f"{each.told()} No evaluation saw others alone{' so far' * history.is_cut_short}."
            yield Observation(each.place, message, QUESTION if asked else RISK, each.evidence())


@dataclass(frozen=True)
class _EvaluationComparison:
    """An evaluation beside the training before it."""

    place: Place
    overlap: RowOverlap
    of_classes: bool
    is_unsure: bool  # whether the outputs left torch: they may have been compared with anything
    in_one_batch: bool  # whether each step was of all the data

    @property
    def is_of_same_task(self) -> bool:
        """Whether the targets are those of the training; a curve or an equation is often fitted to all there is."""
        overlap = self.overlap
        fitted = self.in_one_batch and not self.of_classes
        return not fitted and (self.is_unsure or 2 * overlap.num_agreeing >= overlap.num_shared)

    @property
    def is_of_small_part(self) -> bool:
        """Whether no more than half of the training set was evaluated; all of it is, to see how far the training is."""
        return self.overlap.num_data is not None and 2 * self.overlap.num_evaluated <= self.overlap.num_data

    def told(self) -> str:
        """Say what is shared."""
        overlap = self.overlap
        shared, evaluated = overlap.num_shared, overlap.num_evaluated
        if shared == evaluated:
            return f"All of the {evaluated} examples evaluated here were trained on before."
        saw_all = overlap.num_data is not None and overlap.num_trained >= overlap.num_data
        count = shared if saw_all else f"At least {shared}"
        return f"{count} of the {evaluated} examples evaluated here were trained on before."

    def evidence(self) -> dict[str, Any]:
        """Return the numbers behind it."""
        overlap = self.overlap
        return {
            "evaluated": overlap.num_evaluated,
            "trained_on_and_looked_at": overlap.num_trained,
            "training_set": overlap.num_data,
            "in_both": overlap.num_shared,
            "at_most_by_chance": round(overlap.by_chance, 1),
        }


def _comparable_evaluations(rows: WatchedRows) -> Iterator[_EvaluationComparison]:
    """Yield the evaluations that can be compared with the training of their model."""
    from truestep.doctor.runtime.row_overlap import are_rows_within_batch, have_same_rows, row_overlap

    for (_, place), passes in rows.evaluated.items():
        for evaluation in passes:
            first = evaluation.batches[0]
            training = rows.trained_before(first)
            others = training or rows.trained_before(first, of_any_model=True)
            if not others or not first.exact or not (first.is_measured or first.is_taken_out):
                continue
            in_one_batch = have_same_rows(others[0], others[-1])
            if training and not in_one_batch and are_rows_within_batch(evaluation, training[-1]):
                continue  # this very step's batch, applied again to show its progress
            overlap = row_overlap(others, rows.trained.kept, evaluation)
            # a copy of the model, by averaged weights say: rows that it has not seen are held out
            if overlap is not None and (training or overlap.verdict == "held out"):
                yield _EvaluationComparison(
                    place, overlap, others[0].of_classes, not first.is_measured, in_one_batch
                )
