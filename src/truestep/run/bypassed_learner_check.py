# SPDX-License-Identifier: Apache-2.0
"""What is done to a learner beside its updates, by the lines of a loop in plain PyTorch: it would be lost, or done twice.

Refused where that is certain, told once where it may be meant: before the first update nothing is looked at, and an optimizer or
schedule that `run.track` keeps is the user's own.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from truestep.core.call_site import user_call_site
from truestep.core.errors import LossError, OptionError
from truestep.core.forks import undo_in_children
from truestep.core.guidance import guidance
from truestep.engine.loss_side_effects import step_in_loss_error
from truestep.engine.parts import LearnerParts
from truestep.run.manual_call_listeners import listen_to_manual_torch_calls, stop_listening_to_torch_calls
from truestep.run.state import RunState
from truestep.run.training_omissions import TrainingOmissionWatcher

_CLIPS = {"norm": "ts.ClipNorm(1.0)", "value": "ts.ClipValue(0.5)"}
_LOOKED_AT = 16  # a backward of another model's, beside hundreds of weights, must stay as fast as it is


class ManualTorchCallWatcher:
    """Listens to torch's own calls while a run is open (`manual_call_listeners.py`)."""

    def __init__(self, run: RunState, omissions: TrainingOmissionWatcher) -> None:
        self._run, self._context, self._screen, self._omissions = run, run.context, run.screen, omissions
        self._owners: dict[int, LearnerParts] = {}
        self._num_learners = 0
        self._of_optimizers: WeakKeyDictionary[Optimizer, LearnerParts] = WeakKeyDictionary()
        self._is_scaled_by_hand = False
        self._by_hand: dict[str, int] = {}
        """By learner, after how many updates a backward beside them last made gradients."""

    def begin(self) -> None:
        """Something is about to be trained."""
        listen_to_manual_torch_calls(self)
        undo_in_children(
            self, ManualTorchCallWatcher.end
        )  # what a child does to its copies is its own affair

    def end(self) -> None:
        """The run is over: what holds its weights is the user's."""
        stop_listening_to_torch_calls(self)

    # ------------------------------------------------------------------ what torch is asked to do

    def steps(self, optimizer: Optimizer) -> None:
        """Refuse a second step with an update's gradients; tell of one with gradients of the user's."""
        if (owner := self._learner_of_optimizer(optimizer)) is None:
            return
        if self._context.is_busy:
            raise step_in_loss_error(optimizer, owner.name)
        if any(optimizer is each for each in owner.optimizers):
            by_hand = self._has_manual_gradients(owner) or not owner.counters.attempts
            raise OptionError(_manual_call_message("own_step_by_hand" if by_hand else "own_step", owner))
        if self._is_tracked_by_run(optimizer) or not (owner.counters.attempts or self._run.cursor.in_body):
            return
        self._omissions.is_stepped_by_hand = True
        kind = type(optimizer).__name__
        if self._has_manual_gradients(owner):
            self._say_once_per_learner("step_by_hand", owner, kind=kind)
        else:
            raise OptionError(_manual_call_message("second_step", owner, kind=kind))

    def moves(self, schedule: Any) -> None:
        """Refuse a second schedule, and one of an optimizer that never steps; tell of one that no checkpoint keeps."""
        owner = self._learner_of_optimizer(schedule.optimizer)
        if owner is None or self._is_tracked_by_run(schedule) or self._is_tracked_by_run(schedule.optimizer):
            return
        kind = type(schedule).__name__
        if not any(schedule.optimizer is each for each in owner.optimizers):
            if owner.counters.attempts and not self._screen.has_said(f"step_by_hand {owner.name}"):
                raise OptionError(
                    _manual_call_message(
                        "schedule_of_none", owner, kind=kind, rate=f"{owner.learning_rate:g}"
                    )
                )
        elif owner.schedules.names:
            raise OptionError(
                _manual_call_message("second_schedule", owner, kind=kind, schedule=owner.schedules.names[0])
            )
        else:
            self._say_once_per_learner("schedule_by_hand", owner, kind=kind)

    def clears(self, holder: Optimizer | nn.Module) -> None:
        """Tell of gradients that are cleared, which the next update does."""
        if self._context.is_busy:
            return  # the update looks at its gradients itself
        owner = (
            self._learner_of_optimizer(holder)
            if isinstance(holder, Optimizer)
            else self._learner_of_module(holder)
        )
        if owner is not None and self._has_gradients_of_last_update(owner):
            self._say_once_per_learner("cleared", owner)

    def clips(self, parameters: list[Tensor], by: str) -> None:
        """Refuse to clip gradients that were stepped with already, or are not whole yet."""
        owner = self._learner_of_parameters(parameters)
        if owner is not None and self._context.is_busy:
            raise LossError(_manual_call_message("clipped_within", owner, by=by, clip=_CLIPS[by]))
        if owner is not None and self._has_gradients_of_last_update(owner):
            raise OptionError(_manual_call_message("clipped", owner, by=by, clip=_CLIPS[by]))

    def scales(self, scaler: GradScaler) -> None:
        """Refuse a loss that is multiplied by a factor which nobody takes away."""
        if not scaler.is_enabled():
            return
        if self._context.is_busy:
            raise LossError(_manual_call_message("scaled", scale=f"{scaler.get_scale():g}"))
        self._is_scaled_by_hand = True

    def goes_back(self) -> Callable[[], None]:
        """Look whose gradients a backward makes."""
        if self._context.is_busy:
            return _do_nothing
        before = [(learner, _gradient_change_marks(learner)) for learner in self._context.learners.values()]

        def check_changed_gradients() -> None:
            for learner, gradients in before:
                if _gradient_change_marks(learner) != gradients:
                    self._by_hand[learner.name] = learner.counters.attempts
                    if learner.counters.attempts and not self._is_kept_with_own_optimizer(learner):
                        self._say_once_per_learner("went_back", learner)

        return check_changed_gradients

    def explain_failed_scaled_backward(self, error: RuntimeError) -> None:
        """Say of a scaled backward behind an update that the loss of one is a number; one alone is explained by its line."""
        made = any(each.counters.attempts for each in self._context.learners.values())
        if made and self._is_scaled_by_hand and not self._context.is_busy:
            raise OptionError(_manual_call_message("backward_behind")) from error

    # ------------------------------------------------------------------ whose it is

    def _learner_of_optimizer(self, optimizer: Optimizer) -> LearnerParts | None:
        self._index_learners_by_parameter()
        if (owner := self._of_optimizers.get(optimizer)) is None:
            owner = self._learner_of_parameters(
                p for group in optimizer.param_groups for p in group["params"]
            )
            if owner is not None:
                self._of_optimizers[optimizer] = owner
        return owner

    def _learner_of_parameters(self, parameters: Any) -> LearnerParts | None:
        self._index_learners_by_parameter()
        return next((owner for each in parameters if (owner := self._owners.get(id(each)))), None)

    def _learner_of_module(self, module: nn.Module) -> LearnerParts | None:
        """Go by its first parameter: hundreds are not looked at before each step."""
        return self._learner_of_parameters([next(module.parameters(), None)])

    def _index_learners_by_parameter(self) -> None:
        learners = self._context.learners
        if len(learners) != self._num_learners:
            self._num_learners = len(learners)
            self._owners = {
                id(weight): learner
                for learner in learners.values()
                for weight in (*learner.weights.parameters, *learner.weights.stepped)
            }

    def _is_tracked_by_run(self, each: object) -> bool:
        return any(each is kept for kept in self._run.tracked.objects())

    def _is_kept_with_own_optimizer(self, learner: LearnerParts) -> bool:
        """Whether the run keeps an optimizer of the user's that holds its weights."""
        optimizers = (each for each in self._run.tracked.objects() if isinstance(each, Optimizer))
        return any(self._learner_of_optimizer(each) is learner for each in optimizers)

    def _has_manual_gradients(self, learner: LearnerParts) -> bool:
        return self._by_hand.get(learner.name) == learner.counters.attempts

    def _has_gradients_of_last_update(self, learner: LearnerParts) -> bool:
        """Whether its gradients are those that its last update has stepped with."""
        made = learner.counters.attempts > 0
        return (
            made and not self._has_manual_gradients(learner) and not self._is_kept_with_own_optimizer(learner)
        )

    def _say_once_per_learner(self, what: str, learner: LearnerParts, **values: str) -> None:
        if not self._screen.has_said(key := f"{what} {learner.name}"):
            site, said = user_call_site(), _manual_call_message(what, learner, **values)
            self._screen.say_once(f"{site.place}: {said}" if site else said, key)


def _manual_call_message(what: str, owner: LearnerParts | None = None, **values: str) -> str:
    """Return what is said of something done beside an update."""
    return guidance("beside an update", what, name=owner.name if owner else "", **values) or what


def _do_nothing() -> None:
    """Look at nothing."""


def _gradient_change_marks(learner: LearnerParts) -> list[tuple[int, int] | None]:
    """Return what tells whether gradients were made or written to, of a few weights from all over the learner."""
    weights = learner.weights.parameters
    return [
        None if (gradient := weight.grad) is None else (id(gradient), gradient._version)
        for weight in weights[:: max(1, len(weights) // _LOOKED_AT)]
    ]
