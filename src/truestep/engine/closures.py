# SPDX-License-Identifier: Apache-2.0
"""Optimizers that evaluate the loss themselves while they step (LBFGS)."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truestep.engine.step import Step, Update, decide, nonfinite_error, prepare
from truestep.engine.sums import Sums

if TYPE_CHECKING:
    from truestep.engine.group import Group
    from truestep.engine.learner import Learner


class _SkippedError(Exception):
    """Leaves an optimizer's step before it has moved anything."""


def step_with_closure(group: "Group", compute: Callable[[], Sums]) -> Update:
    """Let the group's optimizer evaluate the loss as often as it likes; every evaluation draws the same random numbers."""
    learner = group.learners[0]
    kept = _Kept(learner.optimizers[0])
    sums, norm, skipped = _search(learner, compute)
    if not skipped and learner.context.nonfinite != "keep" and not kept.is_finite():
        kept.restore()
        if learner.context.nonfinite == "raise":
            raise nonfinite_error(learner, float("nan"), None)
        skipped = True
    learner.attempts += 1
    update = Update(learner, sums, norm)
    if skipped:
        update.skipped = learner.was_skipped
        learner.statistics.restore()
        learner.note_skipped()
    else:
        learner.note_applied()
    learner.context.observer.updated(learner, update)
    return update


def _search(learner: "Learner", compute: Callable[[], Sums]) -> tuple[Sums, Tensor | None, bool]:
    """Step the optimizer; return what its first evaluation gave, and whether the update was left out because of it."""
    first: list[Step] = []
    sums = Sums()

    def closure() -> Tensor:
        nonlocal sums
        now = compute()
        if first:  # a trial point of a line search may be anything
            prepare(learner, now)
        else:
            sums = now
            first.extend(decide([learner], now))
            if first[0].skipped:
                raise _SkippedError
        return now.loss

    with suppress(_SkippedError):
        learner.optimizers[0].step(closure)  # type: ignore[arg-type]
    return sums, first[0].norm, first[0].skipped


class _Kept:
    """An optimizer's parameters and state before its step; its line search can end at a point that is not finite."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        self._copies = [parameter.detach().clone() for parameter in self._parameters]
        self._state = {parameter: _copied(state) for parameter, state in optimizer.state.items()}

    def is_finite(self) -> bool:
        """Whether all parameters are finite now."""
        return all(bool(torch.isfinite(parameter).all()) for parameter in self._parameters)

    @torch.no_grad()
    def restore(self) -> None:
        """Put parameters and state back."""
        torch._foreach_copy_(self._parameters, self._copies)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """Copy what a step writes into: tensors and lists (whose members it only adds and removes)."""
    return {
        name: value.clone()
        if isinstance(value, Tensor)
        else list(value)
        if isinstance(value, list)
        else value
        for name, value in state.items()
    }
