# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run, how it is committed to disk, and how it comes back."""

from typing import TYPE_CHECKING

from truestep.lazy import lazy_names

if TYPE_CHECKING:
    from truestep.engine.checkpoints.checkpoint import Checkpoint as Checkpoint
    from truestep.engine.checkpoints.checkpoint import PassedOver as PassedOver
    from truestep.engine.checkpoints.retention import Retention as Retention
    from truestep.engine.checkpoints.store import CheckpointStore as CheckpointStore
    from truestep.engine.checkpoints.store import Resumed as Resumed
    from truestep.engine.checkpoints.store import Stall as Stall

__getattr__ = lazy_names(
    __name__,
    {
        "Checkpoint": "truestep.engine.checkpoints.checkpoint",
        "CheckpointStore": "truestep.engine.checkpoints.store",
        "PassedOver": "truestep.engine.checkpoints.checkpoint",
        "Resumed": "truestep.engine.checkpoints.store",
        "Retention": "truestep.engine.checkpoints.retention",
        "Stall": "truestep.engine.checkpoints.store",
    },
)
