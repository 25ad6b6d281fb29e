# SPDX-License-Identifier: Apache-2.0
"""Random streams of the loop's own code: where a resumed run finds them, and what each of several processes draws."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from truestep.core.random_streams import (
    device_random_stream,
    host_rng_states,
    random_key,
    set_host_rng_states,
)
from truestep.engine.shared_context import LearnerContext
from truestep.nn.seeds.seeded import seed_streams
from truestep.run.cursor import RunCursor

_BODIES = 0xB0D7  # keeps the keys of bodies apart from those of updates


class LoopRandomGenerators:
    """The generators that a loop draws from.

    Within an epoch a resumed loop runs from the top: what it draws there is drawn again, and only where the batches go on do the
    generators stand as they did at the save. Of several processes each has generators of its own within a pass, since its bodies
    work on other examples; behind the pass they are those of all again, so that splits and orders drawn there are the same.
    """

    def __init__(self, context: LearnerContext, cursor: RunCursor) -> None:
        self._context, self._cursor = context, cursor
        self.at_epoch: dict[str, Any] | None = None
        """As they were at the top of the epoch's body, which runs again after a resume."""
        self.repeats = False
        """Whether the loop goes through what it had done before the save."""
        self.at_the_save: Callable[[], None] | None = None
        """Puts back what the user keeps with the run, for the second time: what the loop repeats may have changed it."""
        self._at_save: dict[str, Any] | None = None
        self._common: dict[str, Any] | None = None

    def epoch_begins(self) -> None:
        """The body of an epoch begins."""
        # After a resume it is the top of the body that was saved: it stays that of a second resume within this epoch.
        if self._at_save is None:
            self.at_epoch = loop_random_state(self._context.device)

    def restore(self, saved: dict[str, Any], at_epoch: dict[str, Any] | None) -> None:
        """Put the generators where the code that runs next found them."""
        device = self._context.device
        within_epoch = any(stream.passes for stream in self._cursor.streams.values())
        self.repeats = within_epoch
        if within_epoch and at_epoch is not None:
            self.at_epoch, self._at_save = at_epoch, saved
            set_loop_random_state(at_epoch, device)
        else:
            self._at_save = saved if within_epoch else None  # the code before the loop may draw, too
            set_loop_random_state(saved, device)

    def resume(self) -> None:
        """The first batches since the resume: from here on everything is as at the save."""
        self.repeats = False
        if self._at_save is not None:
            set_loop_random_state(self._at_save, self._context.device)
            self._at_save = None
        if self.at_the_save is not None:
            self.at_the_save()
            self.at_the_save = None

    def pass_begins(self) -> None:
        """A pass that leads begins, or goes on."""
        context = self._context
        if context.world is not None:
            self._common = loop_random_state(context.device)
            seed_streams(random_key(context.seed, _BODIES, context.step, context.rank))

    def pass_ends(self) -> None:
        """The pass is over, or was left."""
        if self._common is not None:
            set_loop_random_state(self._common, self._context.device)
            self._common = None


def loop_random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of all generators a loop can draw from."""
    python, (kind, keys, *rest) = host_rng_states()
    state = {
        "python": python,
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if (own := device_random_stream(device)) is not None:
        state[device.type] = own.save()
    return state


def set_loop_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put all generators where they were; one that can't be is an error, since the run would go another way."""
    kind, keys, *rest = state["numpy"]
    set_host_rng_states((state["python"], (kind, keys.numpy().astype(np.uint32), *rest)))
    torch.set_rng_state(state["torch"])
    if device.type in state and (own := device_random_stream(device)) is not None:
        own.restore(state[device.type])
