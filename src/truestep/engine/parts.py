# SPDX-License-Identifier: Apache-2.0
"""What a learner consists of; each part owns its state."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from truestep.core.buffers import MovingBufferSnapshot, Place
from truestep.core.module_inspection import is_compiled_layer
from truestep.core.text_formatting import plural
from truestep.engine.compiling import LossCompiler
from truestep.engine.counters import UpdateCounters
from truestep.engine.deferred_flags import DelayedUpdateReports
from truestep.engine.moving_averages import LearnerAverage
from truestep.engine.nonpersistent_buffers import TransientLearnerBuffers
from truestep.engine.optimizers import given_optimizer_options, optimizer_needs_closure
from truestep.engine.options import LearnerOptions
from truestep.engine.policy import GradientPolicy
from truestep.engine.precision import Precision
from truestep.engine.processes.compile_waiting import announce_compiles
from truestep.engine.schedules.stepping import LearnerSchedules
from truestep.engine.sharded_muon import optimizer_step
from truestep.engine.training_switches import ModuleSwitches
from truestep.engine.unsaved_attributes import UnsavedFields
from truestep.engine.update_keys import UpdateKeys
from truestep.engine.weights import LearnerWeights

if TYPE_CHECKING:
    from truestep.engine.shared_context import LearnerContext


@dataclass(eq=False, kw_only=True, repr=False)
class LearnerParts:
    """The parts of one learner, which the engine's functions take; `Learner` is the handle that a user holds."""

    context: "LearnerContext"
    options: LearnerOptions
    module: nn.Module
    precision: Precision
    weights: LearnerWeights
    optimizers: list[Optimizer]
    policy: GradientPolicy
    schedules: LearnerSchedules
    average: LearnerAverage | None
    buffers: MovingBufferSnapshot
    transient: TransientLearnerBuffers
    spectral_places: list[Place]
    """Where power-iteration vectors are that no earlier learner holds."""
    delayed: DelayedUpdateReports | None
    """None where flags are at hand."""
    counters: UpdateCounters = field(default_factory=UpdateCounters)
    shows_average: bool = False
    """Whether the average stands in the place of the weights."""

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.weights.parameters)
        return f"Learner({self.name!r}, {type(self.module).__name__}, {plural(count, 'parameter')}, {self.precision.name})"

    def __post_init__(self) -> None:
        self.name: str = self.options.name
        self.keys = UpdateKeys(self.context.seed, len(self.context.learners), self.name)
        gathered = self.weights.parameters if self.weights.are_usual else ()
        divided = self.weights.are_divided
        self.steppers = [optimizer_step(each, gathered, are_divided=divided) for each in self.optimizers]
        self.switches = ModuleSwitches(self.module, self.weights)
        self.given_options = given_optimizer_options(self.optimizers)
        self.as_given = self.options.as_given(self.policy.clip, self.precision)
        self.unsaved = UnsavedFields(self.policy.clip, self.optimizers)
        self.needs_closure = optimizer_needs_closure(self.optimizers)
        self.compiler = LossCompiler() if self.options.compile else None
        if self.compiler is not None and self.context.world is not None:
            announce_compiles(self.context.world)
        device = self.context.device
        # Made once: nearly all updates give one of these two answers.
        self.not_skipped: Tensor = torch.zeros((), dtype=torch.bool, device=device)
        self.was_skipped: Tensor = torch.ones((), dtype=torch.bool, device=device)

    @property
    def started(self) -> bool:
        """Whether it trains yet: `starts_at` batches have been counted."""
        return self.context.step >= self.options.starts_at

    @property
    def is_compiled(self) -> bool:
        """Whether its loss is compiled, or a module of it was by the user: hooks would have that compiled anew."""
        return self.options.compile or any(map(is_compiled_layer, self.module.modules()))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first group of the first optimizer."""
        return float(self.optimizers[0].param_groups[0]["lr"])
