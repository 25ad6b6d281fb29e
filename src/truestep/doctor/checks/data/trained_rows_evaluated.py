# SPDX-License-Identifier: Apache-2.0
"""Examples that are evaluated after they were trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.finding import Place, Severity
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_overlap import RowOverlap
    from truestep.doctor.runtime.rows import RowBatch, RowPass, WatchedRows


class TrainedRowsEvaluated(Watcher):
    """A model is evaluated on examples that it was trained on, and not on others alone.

    Why: it knows them by heart, so the figures say nothing of new data; no overfitting shows, and the best epoch is
    chosen by chance.

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

    Fix: split the examples once, before anything else, and evaluate on those that no step has seen.
    """

    code = "DATA040"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Compare each evaluation with the training before it."""
        found = list(_compared(history.rows))
        for place, overlap, _ in found:
            if overlap.verdict == "both":
                yield Observation(place, _told(overlap), RISK, _evidence(overlap))
        if history.is_cut_short or not {overlap.verdict for _, overlap, _ in found} <= {"trained", None}:
            return
        for place, overlap, severity in found:
            if overlap.verdict == "trained" and 2 * overlap.num_agreeing >= overlap.num_shared:
                message = f"{_told(overlap)} No evaluation saw other examples."
                yield Observation(place, message, severity, _evidence(overlap))


def _compared(rows: WatchedRows) -> Iterator[tuple[Place, RowOverlap, Severity]]:
    """Yield where an evaluation was made, how far it shares the rows of the training before it, and how grave that is."""
    from truestep.doctor.runtime.row_overlap import row_overlap

    for (_, place), passes in rows.evaluated.items():
        for evaluation in passes:
            first = evaluation.batches[0]
            training = rows.trained_before(first)
            others = training or rows.trained_before(first, of_any_model=True)
            if not others or not first.is_measured or not first.exact or _is_last_batch(training, evaluation):
                continue
            overlap = row_overlap(others, rows.trained.kept, evaluation)
            # a copy of the model, by averaged weights say: rows that it has not seen are held out
            if overlap is not None and (training or overlap.verdict == "held out"):
                asked = not training or _in_one_batch(training) or not first.of_classes
                yield place, overlap, QUESTION if asked else RISK


def _is_last_batch(training: list[RowBatch], evaluation: RowPass) -> bool:
    """Tell the batch of this very step, applied again to show its progress; others were trained on before."""
    from truestep.doctor.runtime.row_overlap import rows_within

    return bool(training) and not _in_one_batch(training) and rows_within(evaluation, training[-1])


def _in_one_batch(training: list[RowBatch]) -> bool:
    """Tell training on all of the data at once."""
    from truestep.doctor.runtime.row_overlap import same_rows

    return len(training) == 1 or same_rows(training[0], training[-1])


def _told(overlap: RowOverlap) -> str:
    if overlap.verdict == "trained":
        return f"The {overlap.num_evaluated} examples that are evaluated here are among those that the model was trained on."
    return (
        f"At least {overlap.num_shared} of the {overlap.num_evaluated} examples that are evaluated here were trained on "
        f"before ({overlap.num_trained} examples of the training were looked at)."
    )


def _evidence(overlap: RowOverlap) -> dict[str, Any]:
    return {
        "evaluated": overlap.num_evaluated,
        "trained_on_and_looked_at": overlap.num_trained,
        "in_both": overlap.num_shared,
        "by_chance": round(overlap.by_chance, 2),
        "training_set": overlap.num_data,
    }
