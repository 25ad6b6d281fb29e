# SPDX-License-Identifier: Apache-2.0
"""What a watcher is: a check with a method for each event of a running script that it follows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from truestep.doctor.check import BUG, Check
from truestep.doctor.finding import Place, Severity

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.watching.scene import Applied, OptimizerRecord, Scene


@dataclass(frozen=True)
class Saw:
    """A watcher's finding: where in the user's code, what happened there, and what shows it."""

    place: Place
    message: str
    severity: Severity = BUG
    evidence: dict[str, Any] = field(default_factory=dict)


Sights = Iterator[Saw]


@dataclass(frozen=True)
class Forward:
    """A module applied by the user's code itself (not by another module)."""

    module: "nn.Module"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    place: Place
    gradients_on: bool


@dataclass(frozen=True)
class Loss:
    """A call of a loss function of torch, before it is computed, and its value."""

    name: str
    input: "Tensor"
    target: "Tensor"
    options: dict[str, Any]
    value: "Tensor"
    place: Place


class Watcher(Check):
    """A check that follows a run; its findings are what its methods yield.

    It is called in the first steps, in evaluations, and in two steps of 256: what it keeps must bear gaps.
    """

    looks_inside: ClassVar[bool] = False  # needs the hooks on module calls
    needs_no_step: ClassVar[bool] = False  # says something of runs in which no optimizer steps
    cannot_run: str | None = None  # set by a watcher that gives up, with its reason: shown in the report

    def on_optimizer(self, scene: "Scene", record: "OptimizerRecord") -> Sights | None:
        """An optimizer was made."""

    def on_forward(self, scene: "Scene", forward: Forward) -> Sights | None:
        """A module was applied by the user's code."""

    def on_layer(self, scene: "Scene", module: "nn.Module", output: Any) -> Sights | None:
        """Any module, also within others, gave its output."""

    def on_loss(self, scene: "Scene", loss: Loss) -> Sights | None:
        """A loss was computed."""

    def on_backward(self, scene: "Scene", tensors: "tuple[Tensor, ...]", place: Place) -> Sights | None:
        """A backward is about to run."""

    def on_clear(self, scene: "Scene", records: "list[OptimizerRecord]", place: Place) -> Sights | None:
        """Gradients were cleared by zero_grad()."""

    def on_clip(self, scene: "Scene", parameters: "list[Tensor]", place: Place) -> Sights | None:
        """Gradients are about to be clipped."""

    def on_step(self, scene: "Scene", record: "OptimizerRecord", place: Place) -> Sights | None:
        """An optimizer is about to step."""

    def on_stepped(self, scene: "Scene", record: "OptimizerRecord", place: Place) -> Sights | None:
        """An optimizer has stepped."""

    def on_schedule(self, scene: "Scene", scheduler: Any, place: Place) -> Sights | None:
        """A schedule has stepped (not its first step of its own, in the constructor)."""

    def on_mode(self, scene: "Scene", module: "nn.Module", training: bool, place: Place) -> Sights | None:
        """train() or eval() was called."""

    def on_epoch(self, scene: "Scene", source: Any, place: Place) -> Sights | None:
        """An iterator over a loader or a distributed sampler was made."""

    def on_evaluation(self, scene: "Scene", applied: "list[Applied]") -> Sights | None:
        """Models were applied, and nothing went backward through them before the next pass, mode or the end."""

    def on_finish(self, scene: "Scene") -> Sights | None:
        """The run is over."""


EVENTS = tuple(name for name in vars(Watcher) if name.startswith("on_"))
