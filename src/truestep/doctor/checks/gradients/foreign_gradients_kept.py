# SPDX-License-Identifier: Apache-2.0
"""A step on gradients that another loss has left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.behind import models_behind
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import seen_through, value_origins
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import GradientMark, OptimizerRecord, WatchHistory

_SWITCHED = ("requires_grad_", "set_requires_grad", "toggle_grad", "requires_grad", "toggle_optimizer")


STEPS = 3  # so many in a row on such gradients


@dataclass
class ForeignGradients:
    """Gradients of one optimizer's weights that a loss left whose step was another optimizer's."""

    left_at: Place  # by the backward there
    marks: list[GradientMark]
    added_to_at: Place | None = None  # by the backward of the optimizer's own loss


class ForeignGradientsKept(SourceCheck, Watcher):
    """One loss goes backward through a model whose optimizer steps on the next loss, with nothing cleared between.

    Why: the gradients of the first loss stay in the model, and are part of its own step: a critic learns to be fooled.

    Bad:
        critic, generator = nn.Linear(4, 1), nn.Linear(2, 4)
        critic_opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        generator_opt = torch.optim.SGD(generator.parameters(), lr=0.1)
        for x, y in loader:
            fake = generator(torch.randn(8, 2))
            fool = -critic(fake).mean()
            fool.backward()
            generator_opt.step()
            generator_opt.zero_grad()
            judge = critic(fake.detach()).mean() - critic(x).mean()
            judge.backward()  # here
            critic_opt.step()
            critic_opt.zero_grad()

    Good:
        critic, generator = nn.Linear(4, 1), nn.Linear(2, 4)
        critic_opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        generator_opt = torch.optim.SGD(generator.parameters(), lr=0.1)
        for x, y in loader:
            fake = generator(torch.randn(8, 2))
            fool = -critic(fake).mean()
            fool.backward()
            generator_opt.step()
            generator_opt.zero_grad()
            critic_opt.zero_grad()
            judge = critic(fake.detach()).mean() - critic(x).mean()
            judge.backward()
            critic_opt.step()

    Fix: clear the gradients of an optimizer just before the backward() of its own loss.
    """

    code = "GRAD050"
    words = ("backward",)

    def __init__(self) -> None:
        self.before: dict[int, list[GradientMark]] = {}  # each optimizer's gradients before the last backward
        self.gone_back_at: Place | None = None
        self.left: dict[int, ForeignGradients] = {}  # by the identity of the record, as the rest
        self.num_steps: dict[int, int] = {}

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """See which gradients another loss has left, and which this one will change."""
        for key, left in list(self.left.items()):
            if place == left.left_at or not all(each.is_kept() for each in left.marks):
                del self.left[key]  # the same loss adds up, or somebody has cleared
            else:
                left.added_to_at = place
        self.before = {key: record.marked() for key, record in history.records.items()}
        self.gone_back_at = place

    def on_clear(self, history: WatchHistory, records: list[OptimizerRecord], place: Place) -> None:
        """What was left is gone."""
        for each in records:
            self.left.pop(id(each.optimizer), None)

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report steps in a row on gradients of which another optimizer's loss left a part."""
        key, at = id(record.optimizer), self.gone_back_at
        left = self.left.pop(key, None)
        is_mixed = left is not None and left.added_to_at is not None
        self.num_steps[key] = self.num_steps.get(key, 0) + 1 if is_mixed else 0
        if left is not None and left.added_to_at is not None and self.num_steps[key] == STEPS:
            text = f"The gradients that line {left.left_at.line} left here for another optimizer's step are not cleared."
            yield Observation(left.added_to_at, text, RISK, {"left_by": str(left.left_at), "steps": STEPS})
        held = {id(each) for each in record.parameters()}
        for other, its in history.records.items():
            shared = any(id(each) in held for each in its.parameters())
            if other != key and at is not None and not shared and self._was_reached(other, its):
                self.left[other] = ForeignGradients(at, its.marked())
        self.gone_back_at = None

    def _was_reached(self, key: int, record: OptimizerRecord) -> bool:
        """Tell whether the last backward gave an optimizer's weights gradients."""
        before = {id(each.parameter): each for each in self.before.get(key, ())}
        now = [(before.get(id(each)), each) for each in record.sample()]
        return any(mark is None or not mark.is_kept() for mark, _ in now) and record.holds_gradients()

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the second of two backwards whose optimizer's model is in both losses and is not cleared between."""
        if not module.own_identifiers.isdisjoint(_SWITCHED):
            return
        for trace in module.traces:
            steps = trace.of("step")
            for first, second in pairwise(steps):
                if first.subject == second.subject or second.loop_path() != first.loop_path():
                    continue
                found = _foreign(module, trace, first, second)
                if found is not None:
                    yield At(
                        found.node,
                        "The loss before went through this model too, and its gradients are not cleared.",
                        RISK,
                    )


def _foreign(module: SourceModule, trace: Trace, first: TraceEvent, second: TraceEvent) -> TraceEvent | None:
    """Return the backward of the second step, where what it trains has gradients of the first one's loss."""
    order = trace.order
    before = [each for each in trace.of("backward") if order[each] < order[first]]
    between = [each for each in trace.of("backward") if order[first] < order[each] < order[second]]
    if not before or not between or any(each.branches() for each in (first, second)):
        return None
    start, end = order[before[-1]], order[between[0]]
    cleared = [each for each in trace.events[start:end] if each.kind in ("zero_grad", "unknown")]
    others = {each.subject for each in trace.of("step")} - {second.subject}
    if any(each.subject not in others for each in cleared):
        return None
    losses = before[-1].receiver, between[0].receiver
    if losses[0] is None or losses[1] is None or module.scope(losses[0]) is not module.scope(losses[1]):
        return None
    models = models_behind(module, losses[0]), models_behind(module, losses[1])
    own = _model_of(module, second)
    if own is not None:
        shared = {each.removeprefix("self.") for each in models[0] & models[1]}
        return between[0] if any(f"{own}.".startswith(f"{each}.") for each in shared) else None
    return between[0] if models[0] == models[1] and len(models[0]) == 1 else None


def _model_of(module: SourceModule, step: TraceEvent) -> str | None:
    """Return the name of the module whose parameters the optimizer of a step was made with."""
    made = list(value_origins(module, step.receiver)) if step.receiver is not None else []
    if len(made) != 1 or not isinstance(made[0], ast.Call) or not made[0].args:
        return None
    given = seen_through(module, made[0].args[0])
    if (
        isinstance(given, ast.Call)
        and isinstance(given.func, ast.Attribute)
        and given.func.attr == "parameters"
    ):
        return (dotted(given.func.value) or "").removeprefix("self.")
    return None
