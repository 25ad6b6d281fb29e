# SPDX-License-Identifier: Apache-2.0
from truestep.checkpoints.checkpoint import Checkpoint as Checkpoint
from truestep.checkpoints.checkpoint import PassedOver as PassedOver
from truestep.checkpoints.retention import Retention as Retention
from truestep.checkpoints.store import CheckpointStore as CheckpointStore
from truestep.checkpoints.store import Resumed as Resumed
from truestep.checkpoints.store import Stall as Stall
