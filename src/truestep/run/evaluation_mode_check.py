# SPDX-License-Identifier: Apache-2.0
"""A learner that a loop of the user's own measures behind a pass, without gradients, and in training mode."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from truestep.engine.parts import LearnerParts
from truestep.run.fixed_length_passes import STEPS
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor


class TrainingModeEvaluationWatcher:
    """Hears layers between a pass and the next update only, and of a lawful measure the first one alone."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._handle: RemovableHandle | None = None
        self._layers: dict[int, LearnerParts] | None = None
        """By the id of each layer that acts differently in training, whose it is."""
        self._called: set[int] = set()
        self._attempts = 0
        self._trained_on: set[str] = set()

    def pass_begun(self, stream: StreamCursor, *, leads: bool) -> None:
        """A pass begins: one over other data than those that are trained on, or in the body of the leader's, may measure."""
        self._attempts = self._run.attempts if leads else self._attempts
        if not leads or (self._trained_on and stream.name not in self._trained_on):
            self._hook_sensitive_layers()

    def pass_done(self, stream: StreamCursor) -> None:
        """The leader's pass is over, and what follows it may measure."""
        if self._run.attempts > self._attempts:
            self._trained_on.add(stream.name)
        self._hook_sensitive_layers()

    def _hook_sensitive_layers(self) -> None:
        leader = self._run.cursor.leader
        if (
            self._handle is None
            and not (leader is not None and leader.name == STEPS)
            and self._sensitive_layers_by_id()
        ):
            self._called.clear()
            self._handle = register_module_forward_pre_hook(self._on_layer_forward)

    def end(self) -> None:
        """Something is computed by the engine, or the run is over: hear nothing."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _sensitive_layers_by_id(self) -> dict[int, LearnerParts]:
        if self._layers is None:
            from truestep.doctor.runtime.tensor_queries import sensitive_layers_of  # once, behind a pass

            learners = self._run.context.learners.values()
            is_compiled = any(each.options.compile for each in learners)
            self._layers = {
                id(layer): each
                for each in (() if is_compiled else learners)
                for layer in sensitive_layers_of(each.module, training=True)
            }
        return self._layers

    def _on_layer_forward(self, layer: nn.Module, _inputs: Any) -> None:
        owner = self._sensitive_layers_by_id().get(id(layer))
        if owner is None:
            return
        # a part alone in training mode is meant so, and a norm without momentum takes exact statistics
        exact = getattr(layer, "momentum", 0.0) is None
        if not layer.training or not owner.module.training or torch.is_grad_enabled() or exact:
            self.end()
            return
        # one call of one learner among several may draw a sample, as of a generator
        if len(self._run.context.learners) == 1 or id(layer) in self._called:
            self.end()
            self._layers = {}
            self._warn_of_training_mode(owner)
        self._called.add(id(layer))

    def _warn_of_training_mode(self, owner: LearnerParts) -> None:
        from truestep.doctor.runtime.tensor_queries import watched_sensitive_layers

        kinds = watched_sensitive_layers(owner.module, training=True)
        self._run.screen.say_once(_SAID.format(name=owner.name, kinds=" and ".join(kinds)))


_SAID = (
    "{name!r} was called without gradients behind a pass, in training mode: {kinds} in it act as in training, where dropout drops "
    "units, and batch norm takes the batch's statistics and learns them, so what is measured is not the network that is kept. "
    "Write net.evaluate(correct, source), which changes the mode and puts it back, or net.eval() before that loop and net.train() "
    "behind it"
)
