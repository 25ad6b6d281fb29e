# SPDX-License-Identifier: Apache-2.0
"""Layers that take statistics from the batch, so that a split update differs from the whole one."""

from collections.abc import Sequence

from torch import nn

from truestep.core.frames import warn_user

# The classes by name, not their base: instance norm shares that, and takes its statistics from one example.
BATCH_STATISTICS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)


def warn_of_batch_statistics(modules: Sequence[nn.Module]) -> None:
    """Warn of the layers in training mode that see the batch split."""
    parts = (each for module in modules for each in module.named_modules())
    layers = [name for name, part in parts if isinstance(part, BATCH_STATISTICS) and part.training]
    if layers:
        warn_user(
            f"Batch normalisation ({', '.join(layers[:6])}) takes its statistics from each micro-batch, so a split update "
            "differs from the whole one. Use a larger micro_batch, or GroupNorm or LayerNorm, if that matters.",
        )
