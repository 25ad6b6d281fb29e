# SPDX-License-Identifier: Apache-2.0
"""Random streams of the loop's body where several processes run it: what each draws for its own examples is its own."""

from typing import Any

from truestep.core.random_streams import key_of
from truestep.engine.context import Context
from truestep.nn.seeds import seed_everything
from truestep.run.snapshot import random_state, set_random_state

_BODIES = 0xB0D7  # keeps the keys of bodies apart from those of updates


class BodyRandom:
    """Keys the global streams by rank within a pass, and puts back behind it what all ranks share."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._common: dict[str, Any] | None = None

    def begin(self) -> None:
        """A pass begins: its bodies run on different examples on each rank."""
        context = self._context
        if context.world is not None:
            self._common = random_state(context.device)
            seed_everything(key_of(context.seed, _BODIES, context.step, context.rank))

    def end(self) -> None:
        """The pass is over: what follows is the same on all ranks."""
        if self._common is not None:
            set_random_state(self._common, self._context.device)
            self._common = None
