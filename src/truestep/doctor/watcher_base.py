# SPDX-License-Identifier: Apache-2.0
"""What a watcher is: a check with a method for each event of a running script that it follows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from truestep.doctor.check import BUG, Check
from truestep.doctor.finding import Place, Severity

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import (
        ForwardCall,
        LossCall,
        ModelApplication,
        OptimizerRecord,
        WatchHistory,
    )
    from truestep.doctor.runtime.value_origins import WatchedOrigin


@dataclass(frozen=True)
class Observation:
    """A watcher's finding: where in the user's code, what happened there, and what shows it."""

    place: Place
    message: str
    severity: Severity = BUG
    evidence: dict[str, Any] = field(default_factory=dict)


Observations = Iterator[Observation]


class Watcher(Check):
    """A check that follows a run; its findings are what its methods yield.

    It is called in the first steps, in evaluations, and in two steps of 32, later of 256: what it keeps must bear gaps.
    """

    looks_inside: ClassVar[bool] = False  # needs the hooks on module calls
    needs_no_step: ClassVar[bool] = False  # says something of runs in which no optimizer steps
    cannot_run: str | None = None  # set by a watcher that gives up, with its reason: shown in the report
    on_request = False  # whether it runs only where it is asked for (--thorough)

    def on_optimizer(self, history: "WatchHistory", record: "OptimizerRecord") -> Observations | None:
        """An optimizer was made."""

    def on_forward(self, history: "WatchHistory", forward: "ForwardCall") -> Observations | None:
        """A module was applied by the user's code."""

    def on_layer(self, history: "WatchHistory", module: "nn.Module", output: Any) -> Observations | None:
        """Any module, also within others, gave its output."""

    def on_operation(
        self, history: "WatchHistory", origin: "WatchedOrigin", given: "list[Tensor]", result: Any
    ) -> Observations | None:
        """An operation of torch's was computed, by the user's code or in a layer."""

    def on_loss(self, history: "WatchHistory", loss: "LossCall") -> Observations | None:
        """A loss was computed."""

    def on_objective(
        self, history: "WatchHistory", tensors: "tuple[Tensor, ...]", place: Place
    ) -> Observations | None:
        """Values are about to go backward: by the user's call, or in an update of our engine."""

    def on_backward(
        self, history: "WatchHistory", tensors: "tuple[Tensor, ...]", place: Place
    ) -> Observations | None:
        """The user's call of backward() is about to run."""

    def on_clear(
        self, history: "WatchHistory", records: "list[OptimizerRecord]", place: Place
    ) -> Observations | None:
        """Gradients were cleared by zero_grad()."""

    def on_clip(
        self, history: "WatchHistory", parameters: "list[Tensor]", place: Place
    ) -> Observations | None:
        """Gradients are about to be clipped."""

    def on_step(
        self, history: "WatchHistory", record: "OptimizerRecord", place: Place
    ) -> Observations | None:
        """An optimizer is about to step."""

    def on_stepped(
        self, history: "WatchHistory", record: "OptimizerRecord", place: Place
    ) -> Observations | None:
        """An optimizer has stepped."""

    def on_schedule(self, history: "WatchHistory", scheduler: Any, place: Place) -> Observations | None:
        """A schedule has stepped (not its first step of its own, in the constructor)."""

    def on_mode(
        self, history: "WatchHistory", module: "nn.Module", training: bool, place: Place
    ) -> Observations | None:
        """train() or eval() was called."""

    def on_epoch(self, history: "WatchHistory", source: Any, place: Place) -> Observations | None:
        """An iterator over a loader or a distributed sampler was made."""

    def on_evaluation(
        self, history: "WatchHistory", applied: "list[ModelApplication]"
    ) -> Observations | None:
        """Models were applied, and nothing went backward through them before the next pass, mode or the end."""

    def on_loaded(
        self, history: "WatchHistory", module: "nn.Module", state: "Mapping[str, Any]", place: Place
    ) -> Observations | None:
        """A module was given a state by load_state_dict()."""

    def on_logged(
        self, history: "WatchHistory", name: str, value: float, place: Place
    ) -> Observations | None:
        """A share was printed or logged under a name, also while the watch does not look closely."""

    def on_printed(
        self, history: "WatchHistory", figures: list[tuple[float, float]], place: Place
    ) -> Observations | None:
        """Numbers were printed while the watch looks closely: each with the error of its rounding."""

    def on_finish(self, history: "WatchHistory") -> Observations | None:
        """The run is over."""


EVENTS = tuple(name for name in vars(Watcher) if name.startswith("on_"))
