# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run, how it is committed to disk, and how it comes back."""

from truestep.engine.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.engine.checkpoints.retention import Retention
from truestep.engine.checkpoints.store import CheckpointStore, Resumed, Stall

__all__ = ["Checkpoint", "CheckpointStore", "PassedOver", "Resumed", "Retention", "Stall"]
