# SPDX-License-Identifier: Apache-2.0
"""Optimizers that evaluate the loss themselves while they step (LBFGS)."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from truestep.engine.loss_sums import LossTotals
from truestep.engine.optimizers import optimizer_parameters
from truestep.engine.parts import LearnerParts
from truestep.engine.policy import UpdateEvidence, UpdateVerdict
from truestep.engine.result import Update, make_update
from truestep.engine.step import (
    LearnerStep,
    decide_steps,
    nonfinite_error_of,
    prepare_gradients,
    record_applied_update,
    record_skipped_update,
)
from truestep.engine.strategies import UpdateHooks
from truestep.instrument.step_listeners import step_optimizer


class _StepSkippedError(Exception):
    """Leaves an optimizer's step before it has moved anything."""


def step_with_closure(learner: LearnerParts, hooks: UpdateHooks, compute: Callable[[], LossTotals]) -> Update:
    """Let the learner's optimizer evaluate the loss as often as it likes; every evaluation draws the same random numbers."""
    kept = _OptimizerSnapshot(learner.optimizers[0])
    policy = learner.policy
    try:
        sums, step = _step_with_closure(learner, hooks, compute)
    except BaseException:
        kept.restore()  # it may have been on its way along a line
        raise
    assert step.evidence is not None
    evidence = step.evidence
    if policy.judge(evidence) is UpdateVerdict.APPLY and policy.looks and not kept.is_finite():
        kept.restore()
        evidence = UpdateEvidence.NOT_FINITE
        if policy.judge(evidence) is UpdateVerdict.RAISE:
            raise nonfinite_error_of(learner, learner.context.step, float("nan"), None)
    learner.counters.attempts += 1
    update = make_update(learner.weights, sums, step.norm, learner.not_skipped)
    if policy.judge(evidence) is UpdateVerdict.APPLY:
        try:
            with torch.no_grad():
                record_applied_update(learner)
        except BaseException:
            learner.context.torn_at = learner.context.step
            raise
    else:
        update.skipped = record_skipped_update(learner, evidence)
    learner.context.observer.updated(learner, update)
    return update


def _step_with_closure(
    learner: LearnerParts, hooks: UpdateHooks, compute: Callable[[], LossTotals]
) -> tuple[LossTotals, LearnerStep]:
    """Step the optimizer; return what its first evaluation gave, and what that says of the update."""
    first: list[LearnerStep] = []
    sums = LossTotals()

    def closure() -> Tensor:
        nonlocal sums
        now = compute()
        if first:  # a trial point of a line search may be anything
            hooks.decide(now)
            prepare_gradients(hooks, learner, now)
            sums.adopt_outputs(now)
        else:
            sums = now
            first.extend(decide_steps(hooks, [learner], now))
            if first[0].verdict is not UpdateVerdict.APPLY:
                raise _StepSkippedError
        return now.loss

    with suppress(_StepSkippedError):
        step_optimizer(learner.optimizers[0], closure)
    return sums, first[0]


class _OptimizerSnapshot:
    """An optimizer's parameters and state before its step; its line search can end at a point that is not finite."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters: list[Tensor] = [*optimizer_parameters(optimizer)]
        self._copies = [parameter.detach().clone() for parameter in self._parameters]
        self._state = {parameter: _copy_state(state) for parameter, state in optimizer.state.items()}

    def is_finite(self) -> bool:
        """Whether all parameters are finite now."""
        return all(bool(torch.isfinite(parameter).all()) for parameter in self._parameters)

    @torch.no_grad()
    def restore(self) -> None:
        """Put parameters and state back."""
        torch._foreach_copy_(self._parameters, self._copies)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def _copy_state(state: dict[str, Any]) -> dict[str, Any]:
    """Copy what a step writes into: tensors and lists (whose members it only adds and removes)."""
    return {
        name: value.clone()
        if isinstance(value, Tensor)
        else list(value)
        if isinstance(value, list)
        else value
        for name, value in state.items()
    }
