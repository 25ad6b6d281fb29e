# SPDX-License-Identifier: Apache-2.0
"""Batch norm that is frozen, and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.core.tensor_bytes import tensor_version
from truestep.doctor.check import QUESTION
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 4


class FrozenNormMoves(Watcher):
    """Batch norm layers are frozen, but in training mode.

    Why: requires_grad_(False) stops their weights; their running statistics follow the new data all the same.

    Bad:
        body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        net = nn.Sequential(body, nn.Linear(8, 3))
        opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()  # here

    Good:
        body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        net = nn.Sequential(body, nn.Linear(8, 3))
        opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
        for _ in range(3):
            body.eval()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: eval() of that part after each train() of the whole; if they are meant to adapt, `# truestep: ignore[EVAL011]`.

    Evidence: the plain form of row 30 of docs/mistakes.md.
    """

    code = "EVAL011"

    def __init__(self) -> None:
        self.weights: dict[int, set[tuple[int, int]]] = {}  # of each frozen norm: address and version

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Ask, some steps in, about frozen norms in training mode of a model that is trained.

        Where something else moves their weights (an average that follows the model) they are not frozen.
        """
        if record.num_steps > AFTER:
            return
        for model in list(history.models):
            frozen = [
                each for each in _frozen_batch_norms(model) if len(self._record_weight_version(each)) == 1
            ]
            if record.num_steps == AFTER and frozen and history.is_trained(model):
                text = f"{len(frozen)} frozen batch norm layers are in training mode: their statistics move."
                yield Observation(place, text, QUESTION, {"layers": len(frozen)})

    def _record_weight_version(self, norm: nn.Module) -> set[tuple[int, int]]:
        weight = norm.weight
        seen = self.weights.setdefault(id(norm), set())
        seen.add((weight.data_ptr(), tensor_version(weight)))  # type: ignore[operator, arg-type]
        return seen


def _frozen_batch_norms(model: nn.Module) -> list[nn.Module]:
    from torch import nn

    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    moving = [each for each in norms if each.training and each.track_running_stats and each.affine]
    return [each for each in moving if not each.weight.requires_grad and int(each.num_batches_tracked or 0)]
