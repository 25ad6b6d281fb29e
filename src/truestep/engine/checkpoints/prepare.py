# SPDX-License-Identifier: Apache-2.0
"""From a state to a checkpoint that can be written without looking at the state again."""

from typing import Any

from truestep.engine.checkpoints.layout import lay_out
from truestep.engine.checkpoints.manifest import Summary
from truestep.engine.checkpoints.regions import regions_of
from truestep.engine.checkpoints.save import Pending
from truestep.engine.checkpoints.snapshot import SnapshotBuffers, direct_image
from truestep.engine.checkpoints.tree import encode


def prepare(state: Any, summary: Summary, buffers: SnapshotBuffers | None) -> Pending:
    """Return a checkpoint to be written: a copy in the buffers, or without them the tensors themselves.

    Raises CheckpointError with the path of whatever can't be saved.
    """
    encoded = encode(state)
    layout = lay_out(regions_of(encoded.leaves))
    images = buffers.take(layout) if buffers else [direct_image(file) for file in layout]
    return Pending(summary=summary, images=images, state=encoded.tree)
