# SPDX-License-Identifier: Apache-2.0
"""Training a model that is in eval mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.finding import Place
from truestep.doctor.runtime.looking import watched_sensitive_layers
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 4


class TrainedInEvaluationMode(Watcher):
    """A model is trained in eval mode from the beginning.

    Why: its dropout does nothing and its batch norm learns no statistics. That may be meant (a frozen
    backbone).

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: net.train() before training; if eval mode is meant, say so with `# truestep: ignore[EVAL010]`.
    """

    code = "EVAL010"

    def __init__(self) -> None:
        self.modes: set[bool] = set()

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Ask where no step so far saw any of these layers in training mode."""
        if record.num_steps > AFTER:
            return
        trained = [model for model in history.models if history.is_trained(model)]
        self.modes |= {bool(watched_sensitive_layers(model, training=True)) for model in trained}
        if record.num_steps == AFTER and True not in self.modes:
            layers = sorted(
                {name for model in trained for name in watched_sensitive_layers(model, training=False)}
            )
            if layers:
                text = f"{', '.join(layers)} has been in eval mode in all {AFTER + 1} steps: is that meant?"
                yield Observation(place, text, QUESTION, {"layers": layers, "steps": AFTER + 1})
