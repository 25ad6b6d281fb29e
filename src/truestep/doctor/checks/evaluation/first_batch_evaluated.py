# SPDX-License-Identifier: Apache-2.0
"""Evaluations that end with their first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_batches import RowPass

LEAST = 3  # batches that the loader has


class FirstBatchEvaluated(Watcher):
    """Each evaluation looks at the first batch of its loader, always the same one, and at no other.

    Why: a return or a break stands within the loop, or one batch was enough for a first trial; the figures are of a few
    examples, mostly of few classes.

    Bad:
        def accuracy(net, batches):
            net.eval()
            with torch.no_grad():
                for x, y in batches:
                    return (net(x).argmax(1) == y).float().mean()  # here

        held_out = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 3), batch_size=8)
        for epoch in range(2):
            net.train()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy(net, held_out)

    Good:
        def accuracy(net, batches):
            net.eval()
            right = 0
            with torch.no_grad():
                for x, y in batches:
                    right += (net(x).argmax(1) == y).sum()
            return right / len(batches.dataset)

        held_out = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 3), batch_size=8)
        for epoch in range(2):
            net.train()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            accuracy(net, held_out)

    Fix: go through the whole loader, and return what was added up after the loop.
    """

    code = "EVAL047"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Look for lines whose every evaluation was of one batch, the same one."""
        for (_, place), passes in history.rows.evaluated.items():
            later = [
                each for each in passes if each.batches[0].step
            ]  # before training, one batch tries things out
            if len({each.batches[0].step for each in later}) > 1 and all(map(_is_first_batch, later)):
                inputs = [each.batches[0].inputs for each in later]
                if all(each.equal(inputs[0]) for each in inputs):
                    seen, data = len(inputs[0]), later[0].batches[0].data
                    text = f"Only the first {seen} of the {data} examples of the loader are evaluated, each time."
                    yield Observation(place, text, RISK, {"evaluated": seen, "examples": data})


def _is_first_batch(made: RowPass) -> bool:
    """Tell an evaluation of one batch of a loader that has several."""
    batch = made.batches[0]
    alone = len(made.batches) == 1 and batch.is_measured | batch.is_taken_out
    return alone and batch.data is not None and batch.data >= LEAST * len(batch.inputs)
