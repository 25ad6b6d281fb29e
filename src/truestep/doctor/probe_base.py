# SPDX-License-Identifier: Apache-2.0
"""What a probe is: a check that applies the model once more, in a sealed child, at its first training step."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from truestep.doctor.check import Check
from truestep.doctor.watcher_base import Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import ForwardCall, WatchHistory


class Probe(Check):
    """A check that applies the model once more; see `truestep.doctor.forks` for where that is done."""

    cannot_run: str | None = None
    tried = False

    def on_forward(self, history: "WatchHistory", forward: "ForwardCall") -> Observations:
        """Try it at the first forward that trains, before any step; what breaks is the reason given."""
        if self.tried or history.num_steps or not (forward.module.training and forward.gradients_on):
            return
        self.tried = True
        yield from self.tried_out(forward)

    def tried_out(self, forward: "ForwardCall") -> Observations:
        """Yield what a child sees; what breaks there is the reason given for nothing."""
        from truestep.doctor.forks.observations import observe_in_child

        self.cannot_run = self.obstacle(forward)
        if self.cannot_run is None:
            seen, self.cannot_run = observe_in_child(lambda: self.try_out(forward), forward.module)
            yield from seen

    def obstacle(self, forward: "ForwardCall") -> str | None:
        """Return why this forward can't be tried, None where it can."""
        return None

    @abstractmethod
    def try_out(self, forward: "ForwardCall") -> Observations:
        """Yield what trying shows, in the child; raise `NotTriedError` where it turns out that it can't be tried."""
