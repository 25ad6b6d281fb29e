# SPDX-License-Identifier: Apache-2.0
"""An evaluation whose inputs are changed at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    import numpy as np

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.row_batches import RowPass

    Column = np.ndarray[Any, np.dtype[np.int64]]

LEAST = 16  # examples
CHANGED = 0.2  # of the inputs, at least


class EvaluationInputsVary(Watcher):
    """Two evaluations of the same examples see other inputs: something random changes them on the way.

    Why: the figures are of other inputs each time, mostly harder ones; they go up and down by themselves, and the best
    epoch is chosen by luck.

    Bad:
        class Noisy(Dataset):
            def __len__(self):
                return 32

            def __getitem__(self, index):
                return data[index][0] + 0.1 * torch.randn(4), (7 * index * index) // 5 % 3

        for _ in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                right = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(Noisy(), 8))  # here
            net.train()

    Good:
        for _ in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                right = sum((net(x).argmax(1) == y).sum().item() for x, y in test_loader)
            net.train()

    Fix: give the data of the evaluation a transform without chance; augment those of the training alone.

    Evidence: the plain form of row 72 of docs/mistakes.md.
    """

    code = "EVAL044"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Compare evaluations at one line that have the same targets in the same order."""
        for (_, place), passes in history.rows.evaluated.items():
            groups: dict[bytes, list[RowPass]] = {}
            for each in passes:
                if _can_be_compared(each):
                    groups.setdefault(_column(each, "targets").tobytes(), []).append(each)
            for group in groups.values():
                share = _changed(group)
                if share >= CHANGED:
                    num_rows = group[0].num_rows
                    yield Observation(
                        place,
                        f"{share:.0%} of the {num_rows} inputs of this evaluation were others the next time, and their "
                        "targets the same.",
                        RISK,
                        {"inputs": num_rows, "changed": round(share, 3), "evaluations": len(group)},
                    )
                    break


def _column(made: RowPass, name: str) -> Column:
    import numpy as np

    return np.concatenate([getattr(each, name).cpu().numpy() for each in made.batches])


def _can_be_compared(made: RowPass) -> bool:
    """Tell an evaluation whose targets show which examples it is of; of images as targets, inputs may be spoiled."""
    first = made.batches[0]
    if any(each.targets is None for each in made.batches) or made.kept > 1 or made.num_rows < LEAST:
        return False
    if not first.of_classes and 2 * first.target_width >= first.width:
        return False
    return _is_irregular(_column(made, "targets"))


def _is_irregular(targets: Column) -> bool:
    """Tell targets that no rule gives: sorted or taken in turns they are the same for any examples."""
    pairs = set(zip(targets[:-1].tolist(), targets[1:].tolist(), strict=True))
    kinds = len(set(targets.tolist()))
    return kinds > len(targets) // 2 or (kinds > 1 and len(pairs) >= 2 * kinds)


def _changed(group: list[RowPass]) -> float:
    """Return the least share of inputs that differ between two evaluations; 0 of several between the same steps."""
    steps = [each.batches[0].step for each in group]
    if len(group) < 2 or len(set(steps)) < len(steps):
        return 0.0
    columns = [_column(each, "inputs") for each in group]
    return min(
        float((first != second).mean())
        for index, first in enumerate(columns)
        for second in columns[index + 1 :]
    )
