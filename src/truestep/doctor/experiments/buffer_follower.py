# SPDX-License-Identifier: Apache-2.0
"""Follows the buffers of layers through a step: what is added to them beforehand, and how much of it is there behind it."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.doctor.experiments.follower_base import StepFollower
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.experiments.outcome import ChildOutcome, sampled_numbers

_SEED = 7
_UPDATED = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


class BufferFollower(StepFollower):
    """Within it batch norms move their statistics, which they don't in other children.

    Args:
        layers: the modules by name.
        by: how much is added to each number of a buffer, as a share of their size; 0 adds nothing.

    It finds:
        buffers: the numbers of each behind the step, by name.
        added: what was added, by name.
    """

    def __init__(self, layers: Mapping[str, nn.Module], by: float) -> None:
        super().__init__(buffers={}, added={})
        self._layers = layers
        drawn = torch.Generator().manual_seed(_SEED)
        for name, each in self._float_buffers().items() if by else ():
            noise = torch.rand(each.shape, generator=drawn).to(each) * max(float(each.abs().mean()), 0.1) * by
            each.data.add_(noise)
            self.found["added"][name] = self._sample_buffer(noise)

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have a batch norm move its statistics as in the training."""
        if func is F.batch_norm:
            given = {**dict(zip(_UPDATED, args, strict=False)), **kwargs}
            if given.get("training") and given.get("running_mean") is not None:
                with unseen(), torch.no_grad():
                    func(**{**given, "weight": None, "bias": None})
        return func(*args, **kwargs)

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of the buffers as they are now."""
        self.found["buffers"] = {
            name: self._sample_buffer(each) for name, each in self._float_buffers().items()
        }
        super().tell(seen)

    def _float_buffers(self) -> dict[str, Tensor]:
        """Return the buffers of fractions, as they are now."""
        return {
            f"{name}.{own}".strip("."): each
            for name, layer in self._layers.items()
            for own, each in layer.named_buffers(recurse=False)
            if layer.training and each.is_floating_point() and each.numel() > 1
        }

    def _sample_buffer(self, buffer: Tensor) -> Tensor:
        return sampled_numbers(buffer, len(self._layers)).clone()
