# SPDX-License-Identifier: Apache-2.0
"""A slow copy of the model that is no slower than the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import ForwardCall, OptimizerRecord, WatchHistory

STEPS = 3  # so many in a row
SHARE = 0.1  # of a step, by which the copy may lie off: it keeps a tenth of itself at most


@dataclass
class AppliedCopy:
    """A model that no optimizer holds, of the same shapes as one that is trained."""

    model: nn.Module
    place: Place  # where it is applied
    gaps: list[float]  # from the trained one, in its last steps


class CopyFollowsAtOnce(Watcher):
    """A copy that is applied as a target or average equals the trained model again after each step.

    Why: nothing is averaged and no target holds still: the two weights of the average are exchanged (1 - decay on the old
    ones), or the copy is made anew in each step.

    Bad:
        slow = copy.deepcopy(net)
        for x, y in loader:
            loss = F.mse_loss(net(x), slow(x).detach() + 1)  # here
            opt.zero_grad()
            loss.backward()
            opt.step()
            for old, new in zip(slow.parameters(), net.parameters()):
                old.data.lerp_(new.data, 0.99)

    Good:
        slow = copy.deepcopy(net)
        for x, y in loader:
            loss = F.mse_loss(net(x), slow(x).detach() + 1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            for old, new in zip(slow.parameters(), net.parameters()):
                old.data.lerp_(new.data, 0.01)

    Fix: decay * old + (1 - decay) * new with a decay of 0.99 or more, or a copy every some hundred steps.
    """

    code = "PARAM045"

    def __init__(self) -> None:
        self.copies: dict[int, AppliedCopy] = {}
        self.applied: dict[int, Place] = {}  # models since the last step
        self.before: dict[int, list[Tensor]] = {}  # weights before an optimizer's last step

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember what is applied, and where."""
        if history.in_window:
            self.applied[id(forward.module)] = forward.place

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Compare each copy with the weights as they were since the last step."""
        if not history.in_window:
            return
        before = self.before.get(id(record.optimizer), [])
        sample = [each for each in record.parameters() if each.is_floating_point()][:4]
        applied, self.applied = self.applied, {}
        if before and len(before) == len(sample):
            for model in history.models:
                at = applied.get(id(model))
                if at is not None and not history.holding(model.parameters()):
                    yield from self._compare(history, model, at, list(zip(sample, before, strict=True)))
        self.before[id(record.optimizer)] = [each.detach().clone() for each in sample]

    def _compare(
        self, history: WatchHistory, model: nn.Module, at: Place, steps: list[tuple[Tensor, Tensor]]
    ) -> Observations:
        gap = _gap(history, model, steps)
        known = self.copies.setdefault(id(model), AppliedCopy(model, at, []))
        known.gaps = [*known.gaps, gap] if gap is not None and gap <= SHARE else []
        if len(known.gaps) == STEPS:
            text = (
                f"{history.called(model)} is a copy of what is trained, and follows it at once in each step."
            )
            yield Observation(at, text, RISK, {"gap_in_steps": known.gaps})


def _gap(history: WatchHistory, model: nn.Module, steps: list[tuple[Tensor, Tensor]]) -> float | None:
    """Return how far a copy lies from the trained weights, in lengths of their last step; None where it is no copy."""
    owned = {id(each): name for trained in history.models for name, each in trained.named_parameters()}
    copies = dict(model.named_parameters())
    off = moved = 0.0
    for now, before in steps:
        other = copies.get(owned.get(id(now), ""))
        if other is None or other.shape != now.shape or other.data_ptr() == now.data_ptr():
            return None
        off += float((other.detach() - now.detach()).norm())
        moved += float((now.detach() - before).norm())
    return off / moved if moved else None
