# SPDX-License-Identifier: Apache-2.0
"""The first NaN, also of a loss of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import WatchHistory


class LossNotFinite(Watcher):
    """A loss that is NaN or infinite goes backward, or all targets of a batch are ignore_index.

    Why: every weight that it reaches becomes NaN in the next step, for good. The mean over no targets is NaN.

    Bad:
        loss = F.cross_entropy(net(x) / 0.0, y)
        loss.backward()  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        loss.backward()

    Fix: look for log(0), sqrt(0), division by 0, and a rate that is too high;
    torch.autograd.set_detect_anomaly names the operation. Skip batches without a target, or sum the losses and divide by
    max(count, 1).

    Evidence: the plain form of rows 44 and 51 of docs/mistakes.md.
    """

    code = "LOSS019"

    def __init__(self) -> None:
        # on a device: read at the end, without a wait
        self.waiting: list[tuple[torch.Tensor, Place, int]] = []
        self.is_explained = False  # by the targets, until a loss has gone backward

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report targets that are all to be ignored."""
        ignored = loss.options.get("ignore_index", -100)
        if loss.name not in ("cross_entropy", "nll_loss") or loss.target.is_floating_point():
            return
        if (
            loss.target.numel()
            and is_readable_without_sync(loss.target)
            and bool((loss.target == ignored).all())
        ):
            self.is_explained = True
            evidence = {"targets": loss.target.numel(), "ignore_index": ignored}
            text = f"All {loss.target.numel()} targets are ignored: the loss is NaN."
            yield Observation(loss.place, text, BUG, evidence)

    def on_backward(
        self, history: WatchHistory, tensors: tuple[torch.Tensor, ...], place: Place
    ) -> Observations:
        """Read it at once on the host; keep the answer of a device for later."""
        for tensor in tensors:
            if not is_readable_without_sync(tensor):
                self.waiting.append((tensor.detach().isfinite().all(), place, history.num_steps + 1))
            elif not self.is_explained and not bool(tensor.detach().isfinite().all()):
                yield self._not_finite_observation(place, history.num_steps + 1)
        self.is_explained = False

    def on_finish(self, history: WatchHistory) -> Observations:
        """Read what is known by now."""
        for finite, place, step in self.waiting:
            if not bool(finite):
                yield self._not_finite_observation(place, step)

    def _not_finite_observation(self, place: Place, step: int) -> Observation:
        return Observation(place, f"The loss is not finite at step {step}.", BUG, {"step": step})
