# SPDX-License-Identifier: Apache-2.0
"""What a probe is: a check that tries out a copy of the model at its first training step."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from truestep.doctor.check import Check
from truestep.doctor.watcher import Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import Forward, History


class Probe(Check):
    """A check that applies a copy of the model; see `truestep.doctor.runtime.model_copy` for the copy."""

    cannot_run: str | None = None
    tried = False

    def on_forward(self, history: "History", forward: "Forward") -> Observations:
        """Try the copy at the first forward that trains, before any step; what breaks is the reason given."""
        if self.tried or history.num_steps or not (forward.module.training and forward.gradients_on):
            return
        self.tried = True
        try:
            yield from self.try_out(forward)
        except Exception as error:  # noqa: BLE001 - a check of ours must not stop the user's training
            self.cannot_run = f"{type(error).__name__}: {error}"

    @abstractmethod
    def try_out(self, forward: "Forward") -> Observations:
        """Yield what the copy shows."""
