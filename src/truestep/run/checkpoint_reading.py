# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that rank 0 chooses and all read, each rank what it has of divided weights; damage that one finds is for all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truestep.checkpoints import Checkpoint
from truestep.checkpoints.manifest import DamagedCheckpointError
from truestep.core.errors import CheckpointError
from truestep.core.user_frames import warn_user
from truestep.engine.processes.world import World

Read = Callable[[Checkpoint], Any]
Choose = Callable[[Read], Checkpoint | None]
"""Chooses a checkpoint that can be read; what reads it raises a DamagedError for one that is damaged."""
Found = tuple[str, Any] | None
"""The name of a checkpoint, and what was read of it; None where there is none."""


def read_checkpoint_alone(choose: Choose, read: Read) -> Found:
    """Return what is chosen, read by this process."""
    state: Any = None

    def read_state(checkpoint: Checkpoint) -> None:
        nonlocal state
        state = read(checkpoint)

    chosen = choose(read_state)
    return None if chosen is None else (chosen.name, state)


class SharedCheckpointReading:
    """Has all ranks read what rank 0 would use; `read` gives what this one needs of a checkpoint."""

    def __init__(self, world: World, directory: Path, what: str, read: Read) -> None:
        self._world, self._directory, self._what, self._read = world, directory, what, read
        self._state: Any = None

    def found(self, choose: Choose) -> Found:
        """Return what rank 0 chooses, read by all; raises a CheckpointError on all ranks where rank 0 finds nothing to use."""
        return self._receive_from_rank_0() if self._world.rank else self._choose_and_offer(choose)

    def _choose_and_offer(self, choose: Choose) -> Found:
        try:
            with self._world.busy(self._what):
                found = choose(self._offer_checkpoint_to_ranks)
        except CheckpointError as error:
            self._send_to_ranks(refused=str(error))
            raise
        except BaseException as error:
            self._world.failed(error)
            raise
        self._send_to_ranks(chosen=found and found.name)
        return None if found is None else (found.name, self._state)

    def _receive_from_rank_0(self) -> Found:
        """Read whatever rank 0 offers, until it has chosen."""
        while True:
            told = json.loads(self._world.broadcast_bytes(None, self._what))
            if "refused" in told:
                raise CheckpointError(told["refused"])
            if "chosen" in told:
                return None if told["chosen"] is None else (told["chosen"], self._state)
            path = self._directory / told["offered"]
            if damage := self._read_on_all_ranks(path):
                warn_user(f"The checkpoint {path} was passed over: {damage}.")

    def _offer_checkpoint_to_ranks(self, checkpoint: Checkpoint) -> None:
        self._send_to_ranks(offered=checkpoint.name)
        if damage := self._read_on_all_ranks(checkpoint.path):
            raise DamagedCheckpointError(damage)

    def _send_to_ranks(self, **what: Any) -> None:
        self._world.broadcast_bytes(json.dumps(what).encode(), self._what)

    def _read_on_all_ranks(self, path: Path) -> str | None:
        """Read; return what some rank found wrong, the same on all."""
        damage = ""
        self._state = None  # of another checkpoint: there need not be memory for both
        try:
            with self._world.busy(self._what):
                self._state = self._read(Checkpoint.open(path))
        except CheckpointError as error:
            damage = str(error.__cause__ or error)
        except BaseException as error:
            self._world.failed(error)
            raise
        everybody = self._world.share_bytes(damage.encode(), self._what)
        found = {each.decode(): rank for rank, each in enumerate(everybody) if each}
        return "; ".join(f"{each} (found by rank {rank})" for each, rank in found.items()) or None
