# SPDX-License-Identifier: Apache-2.0
"""Flags that are read late, so that a step never waits for the device.

On an accelerator whether an update is skipped is decided on the device: the fused optimizers take a flag and leave
everything as it is where it is set. The host learns of it afterwards, from a copy it does not wait for, when the next
update's backward has been queued already; then the schedule, the counters and the error policy follow.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from truestep.core.device_specific import AsyncHostCopy, send_to_host
from truestep.engine.loss_sums import LossTotals


class UpdateReport(NamedTuple):
    """What the device decided about an update, and why."""

    step: int
    """The run's step at which it was made."""
    skipped: bool
    empty: bool
    loss: float
    norm: float
    least: float = 0.0
    """The smallest weight."""


class DelayedUpdateReports:
    """The report of the newest update while it is on its way to the host."""

    def __init__(self) -> None:
        self._waiting: tuple[int, AsyncHostCopy] | None = None

    def send(self, step: int, flag: Tensor, sums: LossTotals, measured: Tensor | None) -> None:
        """Copy to the host what was decided at this step, without waiting for it."""
        nothing = torch.zeros_like(flag)
        empty = (sums.weight == 0).float() if sums.may_be_empty else nothing
        least = nothing if sums.least is None else sums.least.float()
        norm = nothing if measured is None else measured.float()
        # One tensor: five numbers would be five copies.
        report = torch.stack([flag, empty, sums.loss.float(), norm, least])
        self._waiting = (step, send_to_host(report))

    def wait_for_report(self) -> UpdateReport | None:
        """Wait for the report that was sent last; None where it was received already."""
        if self._waiting is None:
            return None
        step, arrived = self._waiting
        self._waiting = None
        flag, empty, loss, norm, least = arrived.read().tolist()
        return UpdateReport(step, bool(flag), bool(empty), loss, norm, least)
