# SPDX-License-Identifier: Apache-2.0
"""Inputs that come back with other targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_records import RowBatch

LEAST = 8  # inputs that came again
EXPECTED = 6.0  # so many of them would have another target if targets were dealt out by chance
NEAR_CHANCE = 0.25  # of the way from chance to always the same


class TargetsShuffledApart(Watcher):
    """The same inputs come again with other targets, as if inputs and targets were shuffled apart.

    Why: what a target says is about another example, so the model can only learn how often each one comes.

    Bad:
        inputs, targets = torch.randn(32, 4), torch.arange(32) % 3
        for _ in range(3):
            targets = targets[torch.randperm(32)]
            for rows in torch.randperm(32).split(8):
                opt.zero_grad()
                F.cross_entropy(net(inputs[rows]), targets[rows]).backward()  # here
                opt.step()

    Good:
        inputs, targets = torch.randn(32, 4), torch.arange(32) % 3
        for _ in range(3):
            for rows in torch.randperm(32).split(8):
                opt.zero_grad()
                F.cross_entropy(net(inputs[rows]), targets[rows]).backward()
                opt.step()

    Fix: draw one order, and take inputs and targets by it: order = torch.randperm(n); inputs[order], targets[order].

    Evidence: the plain form of row 77 of docs/mistakes.md.
    """

    code = "DATA041"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Look at the targets of inputs that came more than once."""
        for batches in history.rows.trained_by_model():
            for told in _group_by_target_kind(batches):
                if (found := _RepeatedInputs.among(told)) is None or not found.are_targets_random():
                    continue
                yield Observation(
                    told[-1].place,
                    f"Of {found.num_repeated} inputs that came again, bit for bit, {found.num_changed} had another target.",
                    RISK,
                    {"came_again": found.num_repeated, "with_another_target": found.num_changed},
                )


def _group_by_target_kind(batches: list[RowBatch]) -> list[list[RowBatch]]:
    """Return the batches that have targets, those of one kind together: a model may learn classes and pictures."""
    found: dict[tuple[int, bool], list[RowBatch]] = {}
    for each in batches:
        if each.targets is not None and each.alone and not each.of_several:
            found.setdefault((each.target_width, each.of_classes), []).append(each)
    return list(found.values())


class _RepeatedInputs:
    """The inputs that came more than once, and their targets."""

    def __init__(
        self, num_repeated: int, num_changed: int, same_by_chance: float, targets_return: bool
    ) -> None:
        self.num_repeated = num_repeated
        self.num_changed = num_changed
        self.same_by_chance = same_by_chance
        self.targets_return = targets_return  # whether the targets are the same ones again: no noise

    @classmethod
    def among(cls, batches: list[RowBatch]) -> _RepeatedInputs | None:
        """Compare each input's first target with its next one; None where inputs can't be told apart."""
        import numpy as np

        from truestep.doctor.runtime.row_overlap import RICH, num_duplicate_rows, row_target_pairs

        pairs = [row_target_pairs(each, 1) for each in batches]
        num_rows = sum(map(len, pairs))
        shortest = min(map(len, pairs))
        by_place = len(pairs) > 1 and len({each[:shortest, 1].tobytes() for each in pairs}) == 1
        # the same targets in every batch are places in it, as where pairs are to be found among others
        if by_place or num_duplicate_rows([each[:, 0] for each in pairs]) > (1 - RICH) * num_rows:
            return None
        first: dict[int, tuple[int, int]] = {}
        again: dict[int, bool] = {}
        for batch, rows in zip(batches, pairs, strict=True):
            for row, target in rows.tolist():
                seen, step = first.setdefault(row, (target, batch.step))
                if step != batch.step and row not in again:  # within one step: several losses of one input
                    again[row] = seen != target
        _, counts = np.unique(np.concatenate(pairs)[:, 1], return_counts=True)
        shares = counts / num_rows
        return cls(len(again), sum(again.values()), float((shares**2).sum()), bool(np.median(counts) > 1))

    def are_targets_random(self) -> bool:
        """Tell whether an input's next target is its first one no more often than chance would have it."""
        changing = 1 - self.same_by_chance
        if self.num_repeated < LEAST or changing * self.num_repeated < EXPECTED or not self.targets_return:
            return False
        return self.num_changed >= (1 - NEAR_CHANCE) * changing * self.num_repeated
