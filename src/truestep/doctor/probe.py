# SPDX-License-Identifier: Apache-2.0
"""What a probe is: a check that tries out a copy of the model at its first training step."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from truestep.doctor.check import Check
from truestep.doctor.watcher import Sights

if TYPE_CHECKING:
    from truestep.doctor.watcher import Forward


class Probe(Check):
    """A check that applies a copy of the model; see `truestep.doctor.watching.trial` for the copy."""

    cannot_run: str | None = None

    @abstractmethod
    def try_out(self, forward: "Forward") -> Sights:
        """Yield what the copy shows."""
