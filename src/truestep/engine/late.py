# SPDX-License-Identifier: Apache-2.0
"""Flags that are read late, so that a step never waits for the device.

On an accelerator whether an update is skipped is decided on the device: the fused optimizers take a flag and leave
everything as it is where it is set. The host learns of it afterwards, from a copy it does not wait for, when the next
update's backward has been queued already; then the schedule, the counters and the error policy follow.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from truestep.engine.sums import Sums

if TYPE_CHECKING:
    from truestep.engine.learner import Learner


class LateFlags:
    """Decides on the device whether an update is applied, and tells its learner later."""

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self._waiting: tuple[torch.cuda.Event, Tensor] | None = None

    @classmethod
    def of(cls, learner: "Learner") -> "LateFlags | None":
        """Return one where the device runs ahead of the host and all optimizers take a flag; None where flags are at hand."""
        device = learner.context.device
        if device.type != "cuda" or learner.needs_closure:
            return None
        slow = [
            type(o).__name__
            for o in learner.optimizers
            if not getattr(o, "_step_supports_amp_scaling", False)
        ]
        may_skip = learner.scaler is not None or learner.context.nonfinite != "keep"
        if slow and may_skip:
            learner.context.choose(
                f"flags of {learner.name}",
                "one synchronisation an update",
                f"{', '.join(slow)} can't leave a step out on the device, so the host waits to know whether to take it. "
                'A fused optimizer (Adam, AdamW, SGD, Adagrad) avoids it, and so does nonfinite="keep" without float16.',
            )
        return None if slow else cls(learner)

    def step(self, sums: Sums, norm: Tensor | float | None) -> Tensor:
        """Step the optimizers unless the flag is set; return the flag."""
        self.settle()
        learner = self._learner
        assert not isinstance(norm, float)  # on an accelerator it is a tensor
        flag = self._flag(sums, norm)
        for optimizer in learner.optimizers:
            optimizer.grad_scale, optimizer.found_inf = None, flag  # type: ignore[attr-defined]
        learner.step_optimizers()
        if learner.scaler is not None:
            learner.scaler.adapt()
        if learner.average is not None:
            learner.average.update(learner.updates + 1, 1 - flag)
        if learner.scaler is not None or learner.context.nonfinite in ("skip", "rollback"):
            learner.statistics.restore_where(flag)
        nothing = torch.zeros_like(flag)
        empty = (sums.weight == 0).float() if sums.may_be_empty else nothing
        report = torch.stack([flag, empty, sums.loss.float(), nothing if norm is None else norm.float()])
        host = torch.empty(4, pin_memory=True).copy_(report, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._waiting = (event, host)
        return flag.bool()

    def _flag(self, sums: Sums, norm: Tensor | None) -> Tensor:
        """Return 1.0 on the device where the update must not be applied, else 0.0."""
        learner = self._learner
        flag = torch.zeros((), device=learner.context.device)
        if learner.scaler is not None:
            flag = torch.maximum(flag, learner.scaler.found_inf)
        if sums.may_be_empty:
            flag = torch.maximum(flag, (sums.weight == 0).float())
        if learner.context.nonfinite != "keep":
            finite = (
                torch.isfinite(sums.loss)
                if norm is None
                else torch.isfinite(sums.loss) & torch.isfinite(norm)
            )
            flag = torch.maximum(flag, (~finite).float())
        return flag

    def settle(self) -> None:
        """Learn what became of the last update: schedule, counters and policy follow it now."""
        if self._waiting is None:
            return
        event, host = self._waiting
        self._waiting = None
        event.synchronize()
        flag, empty, loss, norm = host.tolist()
        self._learner.settle(skipped=bool(flag), empty=bool(empty), loss=loss, norm=norm)
