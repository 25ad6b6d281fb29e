# SPDX-License-Identifier: Apache-2.0
"""Stepping torch's fused optimizers without gathering their lists anew each time.

`torch.optim.AdamW(fused=True).step()` spends most of its time on small models in Python: collecting parameters, gradients and
state, grouping them by device and type. None of that changes from step to step. `FusedOptimizerStep` keeps the lists and calls the
same kernel with them, so the bits are the same (tests/engine/test_fused.py). Whatever is unusual goes to `optimizer.step()`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks

from truestep.engine.optimizer_states import refuse_unsavable_states
from truestep.engine.processes.shards import is_divided_over_ranks
from truestep.instrument.step_listeners import BEFORE_STEPS, LOOKING, step_optimizer

_gradient: Callable[[Tensor], Any] = attrgetter("grad")
_nothing = repeat(None)
FEW_COUNTS = 32  # parameters; the steps of so many are counted on one by one
Step = Callable[[Optimizer, dict[str, Any], "_GroupTensors", list[Tensor]], None]


class _GroupTensors:
    """One parameter group's tensors, in order."""

    def __init__(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        self.parameters: list[Tensor] = list(group["params"])
        states = [optimizer.state.get(parameter, {}) for parameter in self.parameters]
        self.first = [state["exp_avg"] for state in states if "exp_avg" in state]
        self.second = [state["exp_avg_sq"] for state in states if "exp_avg_sq" in state]
        self.momentum = [
            state["momentum_buffer"] for state in states if state.get("momentum_buffer") is not None
        ]
        self.counts, self.steps = _merge_step_counts([state for state in states if "step" in state])
        numbers: Any = self.counts.numpy() if self.counts.is_cpu else None  # the same memory
        self.few: Any = memoryview(numbers) if numbers is not None and len(numbers) <= FEW_COUNTS else None
        self.count_on = _make_step_incrementer(self.counts)


def _merge_step_counts(states: list[dict[str, Any]]) -> tuple[Tensor, list[Tensor]]:
    """Let the numbers of steps be entries of one tensor, so that counting is one addition and not one for each parameter."""
    counts = torch.stack([state["step"] for state in states]) if states else torch.empty(0)
    steps = list(counts.unbind())
    for state, step in zip(states, steps, strict=True):
        state["step"] = step
    return counts, steps


def _make_step_incrementer(counts: Tensor) -> Callable[[], object]:
    """Return what adds one to each; between other code NumPy takes 3 µs for it, and torch 9 (docs/log.md)."""
    if not counts.is_cpu:
        return partial(counts.add_, 1)
    numbers = counts.numpy()  # the same memory
    return partial(np.add, numbers, np.ones_like(numbers), numbers)


def _step_adam(
    optimizer: Optimizer, group: dict[str, Any], lists: _GroupTensors, gradients: list[Tensor]
) -> None:
    if (few := lists.few) is None:
        lists.count_on()
    else:  # NumPy drives more from the caches than it takes itself
        for place in range(len(few)):
            few[place] += 1.0
    kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    found_inf = getattr(optimizer, "found_inf", None)
    beta1, beta2 = group["betas"]
    kernel(
        lists.parameters,
        gradients,
        lists.first,
        lists.second,
        [],
        lists.steps,
        amsgrad=False,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=group["maximize"],
        grad_scale=None,
        found_inf=found_inf,
    )
    if found_inf is not None:
        # as torch does: a step that the kernel left out is not counted
        lists.counts.sub_(found_inf)


def _step_sgd(
    optimizer: Optimizer, group: dict[str, Any], lists: _GroupTensors, gradients: list[Tensor]
) -> None:
    torch._fused_sgd_(
        lists.parameters,
        gradients,
        lists.momentum if group["momentum"] else [],
        weight_decay=group["weight_decay"],
        momentum=group["momentum"],
        lr=group["lr"],
        dampening=group["dampening"],
        nesterov=group["nesterov"],
        maximize=group["maximize"],
        # (the buffers are there; in a first step the kernel would fill them, see `_fill_momentum`)
        is_first_step=False,
        grad_scale=None,
        found_inf=getattr(optimizer, "found_inf", None),
    )


_KERNELS: dict[type[Optimizer], Step] = {Adam: _step_adam, AdamW: _step_adam, SGD: _step_sgd}


class FusedOptimizerStep:
    """Steps one optimizer: the first time as torch does, afterwards from kept lists where nothing is unusual."""

    def __init__(self, optimizer: Optimizer, gathered: Sequence[Tensor] = ()) -> None:
        """Step `optimizer`; `gathered` are the parameters whose gradients a caller may bring, in their order."""
        self.optimizer = optimizer
        self._gathered = gathered
        self._takes_gathered = False
        self._kernel = _KERNELS.get(type(optimizer))
        self._made: list[tuple[dict[str, Any], _GroupTensors]] = []
        self._state: Any = None
        self._hooks = (
            *(optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks),
            _global_optimizer_post_hooks,
        )
        self._num_states = 0
        self._is_checked = False  # whether its first states were seen

    def __call__(self, gathered: list[Tensor] | None = None) -> None:
        """Step with the gradients that are there, where none are being recorded (`torch.no_grad()`).

        `gathered` are these gradients, where they are at hand already.
        """
        optimizer = self.optimizer
        if not self._has_current_lists():
            self._made = []
            self._step_as_torch()
            return
        # torch calls them in its own `step`, which they may have been registered to see.
        # one that looks at others' steps needs not see these
        if any(self._hooks) or len(BEFORE_STEPS) > (LOOKING in BEFORE_STEPS):
            step_optimizer(optimizer)
            return
        if gathered is not None and self._takes_gathered:
            assert self._kernel is not None
            self._kernel(optimizer, *self._made[0], gathered)
            return
        found = []
        for group, lists in self._made:
            gradients = [*map(_gradient, group["params"])]
            if any(map(is_, gradients, _nothing)):
                self._step_as_torch()
                return
            found.append((group, lists, gradients))
        assert self._kernel is not None
        for group, lists, gradients in found:
            self._kernel(optimizer, group, lists, gradients)

    def _step_as_torch(self) -> None:
        """Make the optimizer's own step, and lists for the next where there is a gradient for each parameter."""
        optimizer = self.optimizer
        if self._kernel is not None and not any(self._hooks):
            _fill_momentum(optimizer)
        step_optimizer(optimizer)
        if not self._is_checked and optimizer.state:
            self._is_checked = True
            refuse_unsavable_states(optimizer)
        if self._kernel is not None and not self._made and _has_all_gradients(optimizer):
            self._make_lists()

    def _has_current_lists(self) -> bool:
        """Whether the lists were made from what is there now: loading a state or adding a group replaces some of it.

        The objects themselves are held and compared, since a new one may get the number (`id`) of one that is gone.
        """
        optimizer, made = self.optimizer, self._made
        groups = optimizer.param_groups
        # `load_state_dict` gives the optimizer another dict.
        if self._state is not optimizer.state or self._num_states != len(self._state):
            return False
        if len(made) != len(groups):
            return False
        for place, (before, lists) in enumerate(made):
            group = groups[place]
            if group is not before:
                return False
            # Options that can be changed at any time must lead to the same kernel.
            if not group["fused"] or type(group["lr"]) is Tensor:
                return False
            if group.get("momentum") and not lists.momentum:
                return False
        return True

    def _make_lists(self) -> None:
        optimizer = self.optimizer
        if all(_is_plain_group(group) for group in optimizer.param_groups):
            self._made = [(group, _GroupTensors(optimizer, group)) for group in optimizer.param_groups]
            self._state, self._num_states = optimizer.state, len(optimizer.state)
            kept = [parameter for _, lists in self._made for parameter in lists.parameters]
            is_all = len(kept) == len(self._gathered) and all(map(is_, kept, self._gathered))
            self._takes_gathered = is_all and len(self._made) == 1


def _has_all_gradients(optimizer: Optimizer) -> bool:
    """Whether every parameter has a gradient, and so its state now."""
    return all(p.grad is not None for group in optimizer.param_groups for p in group["params"])


def _is_plain_group(group: dict[str, Any]) -> bool:
    kinds = {(parameter.device, parameter.dtype) for parameter in group["params"]}
    unusual = group.get("amsgrad") or group.get("differentiable") or isinstance(group["lr"], Tensor)
    betas = group.get("betas", (0.0, 0.0))
    if any(map(is_divided_over_ranks, group["params"])):
        return False
    return len(kinds) == 1 and bool(group.get("fused")) and not unusual and not isinstance(betas[0], Tensor)


def _fill_momentum(optimizer: Optimizer) -> None:
    """Let parameters whose first gradient comes later than the others' join in: torch's fused SGD fails on them.

    A buffer of zeros gives the first step that torch makes, except with `dampening`, where the unfused kernel has to.
    """
    if type(optimizer) is not SGD:
        return
    for group in optimizer.param_groups:
        if not group["momentum"] or not group["fused"]:
            continue
        having = [p for p in group["params"] if p.grad is not None]
        fresh = [p for p in having if optimizer.state.get(p, {}).get("momentum_buffer") is None]
        if len(fresh) in (0, len(having)):
            continue
        if group["dampening"]:
            group["fused"] = False
        else:
            for parameter in fresh:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
