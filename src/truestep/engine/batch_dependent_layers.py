# SPDX-License-Identifier: Apache-2.0
"""Layers that take statistics from the batch, or move buffers with it, so that a split update differs from the whole one."""

from collections.abc import Sequence

from torch import nn

from truestep.core.buffers import spectral_norm_buffers
from truestep.core.tensor_bytes import tensor_version
from truestep.core.text_formatting import first_few
from truestep.core.user_frames import warn_user

# The classes by name, not their base: instance norm shares that, and takes its statistics from one example.
BATCH_STATISTICS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)
_NAMED = 4


def warn_of_batch_statistics(modules: Sequence[nn.Module]) -> None:
    """Warn of the layers in training mode that see the batch split."""
    parts = (each for module in modules for each in module.named_modules())
    layers = [name for name, part in parts if isinstance(part, BATCH_STATISTICS) and part.training]
    if layers:
        warn_user(
            f"Batch normalisation ({', '.join(layers[:6])}) takes its statistics from each micro-batch, so a split update "
            "differs from the whole one. Use a larger micro_batch, or GroupNorm or LayerNorm, if that matters."
        )


class MicroBatchBuffers:
    """Buffers as they are before the first part of a split batch: what that moves, each part moves."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        # they move once an update
        told = [place for module in modules for place in spectral_norm_buffers(module)]
        self._before = [
            (f"{path}.{name}".lstrip("."), layer, name, buffer, tensor_version(buffer))
            for module in modules
            for path, layer in module.named_modules()
            for name, buffer in layer.named_buffers(recurse=False)
            if not isinstance(layer, BATCH_STATISTICS) and (layer, name) not in told
        ]

    def warn_of_moved_buffers(self) -> None:
        """Warn of those that the first part has moved."""
        moved = [
            path
            for path, layer, name, buffer, version in self._before
            if layer._buffers.get(name) is not buffer
            or tensor_version(buffer) != version
            # an instance norm's, which torch writes to past their version
            or (isinstance(layer, nn.modules.batchnorm._NormBase) and layer.training)
        ]
        if moved:
            warn_user(
                f"The buffers {first_few(moved, _NAMED)} move whenever the module is called, and a split update calls it "
                "for each micro-batch: they, and what is computed from them, may end otherwise than in one whole update. Use a "
                "larger micro_batch if that matters."
            )
