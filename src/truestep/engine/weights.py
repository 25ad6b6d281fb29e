# SPDX-License-Identifier: Apache-2.0
"""A learner's parameters, their float32 masters, and the gradients that are being made for them."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from truestep.engine.buffer_rules import BufferRule, buffer_rules_of
from truestep.engine.clipping.base import Gradients, dense_gradient, gradient_values, total_gradient_norm
from truestep.engine.gradient_hooks import (
    HeldHooks,
    call_gradient_hooks,
    has_gradient_hooks,
    hold_gradient_hooks,
    refuse_gradient_hooks,
)
from truestep.engine.optimizers import sparse_gradient_embeddings
from truestep.engine.processes.shards import is_divided_over_ranks, local_part

_gradient: Callable[[Tensor], Tensor | None] = attrgetter("grad")
_HALF = (torch.float16, torch.bfloat16)


def _local_gradient(parameter: Tensor) -> Tensor | None:
    return None if parameter.grad is None else local_part(parameter.grad)


class LearnerWeights:
    """The parameters of a module by name, and beside each the one that the optimizer steps.

    That one is the parameter itself, or its float32 master where a precision keeps one.
    """

    def __init__(
        self,
        module: nn.Module,
        stepped: Sequence[nn.Parameter],
        buffers: Mapping[str, BufferRule] | None = None,
    ) -> None:
        self.module = module
        self.buffer_rules = buffer_rules_of(module, buffers)
        """By name what becomes of buffers that each of several processes fills from its own examples."""
        self.names = [name for name, _ in module.named_parameters()]
        self.parameters = list(module.parameters())
        self.stepped = list(stepped)
        self.spent = SpentGradients(self.stepped)
        self.has_half = any(parameter.dtype in _HALF for parameter in self.parameters)
        embeddings = sparse_gradient_embeddings(module)
        self.has_sparse = bool(embeddings)
        weights = (embedding._parameters.get("weight") for embedding in embeddings)
        self.sparse = list(dict.fromkeys(weight for weight in weights if weight is not None))
        """Those whose gradients hold few rows."""
        self.are_divided = any(map(is_divided_over_ranks, self.parameters))
        """Whether each process has a part of them only; gradients are gathered as the parts that are here."""
        self.are_usual = not (self.has_half or self.has_sparse or self.are_divided)
        """Whether what is gathered of each gradient is the gradient itself."""
        self.sizes = [parameter.numel() for parameter in self.parameters]
        kinds = {(parameter.is_cpu, parameter.dtype) for parameter in self.parameters}
        at_hand = self.are_usual and len(kinds) == 1 and next(iter(kinds))[0]
        self.num_at_hand = sum(self.sizes) if at_hand else math.inf
        """How many values a gradient has that lies in the memory of the host, in one type, and as it was made."""
        self.num_cleared = 0
        """How often the gradients were dropped: what was computed from them before is of another update."""
        self._sums: dict[nn.Parameter, Tensor] = {}  # of half-precision gradients, in float32
        self.hooks_are_due = False
        """Whether hooks of parameters were held back, to be called with the gradient of the whole batch (`gradient_hooks.py`)."""
        self._rounded = [(p, s) for p, s in zip(self.parameters, self.stepped, strict=True) if p is not s]
        self.has_masters = bool(self._rounded)

    @property
    def named(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters with their names."""
        return list(zip(self.names, self.parameters, strict=True))

    @property
    def master_parameters(self) -> dict[str, nn.Parameter]:
        """The float32 masters by the names of their parameters."""
        named = zip(self.names, self.parameters, self.stepped, strict=True)
        return {name: stepped for name, parameter, stepped in named if parameter is not stepped}

    def clear(self) -> None:
        """Drop all gradients, those being accumulated in float32 too."""
        # who holds an update of before finds by this number that its gradients are gone
        self.num_cleared += 1
        self.hooks_are_due = False
        for parameter in self.parameters:
            parameter.grad = None
        if self.has_half:
            self._sums.clear()
            for stepped in self.stepped:
                stepped.grad = None

    def release_spent_gradients(self, *, with_norm: bool) -> None:
        """Drop gradients that have done their work; keep their norm if asked to."""
        # gradients that somebody has written to since the step are the user's
        if not self.spent.has_spent_gradients:
            return
        if with_norm:
            self.spent.norm = (self.num_cleared, total_gradient_norm(self.gather().tensors))
        self.clear()

    def accumulate(self) -> None:
        """Move half-precision gradients of a micro-batch into float32 sums."""
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.dtype in _HALF:
                # added in half precision, small parts would vanish beside what is there already
                gradient = parameter.grad.float()
                held = self._sums.get(parameter)
                self._sums[parameter] = gradient if held is None else held.add_(gradient)
                parameter.grad = None

    def hold_hooks(self) -> list[HeldHooks]:
        """Take the hooks off the parameters for the backward of a part of the batch."""
        # a hook would see the part of a gradient that this rank has, and the user wrote it for the whole
        if self.are_divided:
            refuse_gradient_hooks(self.named)
            return []
        # each part of the batch would call them, with a part of the gradient
        held = hold_gradient_hooks(self.parameters)
        self.hooks_are_due = self.hooks_are_due or bool(held)
        return held

    def has_hooks(self) -> bool:
        """Whether somebody has put a hook on a parameter."""
        return any(map(has_gradient_hooks, self.parameters))

    @torch.no_grad()
    def call_hooks(self, factor: Tensor | float | None) -> None:
        """Multiply all gradients by `factor`, which makes them the whole batch's, and call the hooks that were held back."""
        for parameter in self.parameters:
            gradient = self.accumulated_gradient(parameter)
            if gradient is None:
                continue
            # a hook may be nonlinear, as a clip is: it must see what the optimizer would
            if factor is not None:
                gradient.mul_(factor)
            if has_gradient_hooks(parameter):
                self._sums.pop(parameter, None)
                call_gradient_hooks(parameter, gradient.to(parameter.dtype))
        self.hooks_are_due = False

    def accumulated_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """Return what has been made of a parameter's gradient, in float32 where half-precision ones are summed up there."""
        held = self._sums.get(parameter)
        return parameter.grad if held is None else held

    def set_gradient(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Put a gradient in the place of what there was, in float32 for a parameter in half precision."""
        if gradient.dtype == parameter.dtype:
            parameter.grad = gradient
        else:
            self._sums[parameter], parameter.grad = gradient, None

    def gather(self, *, rows_once: bool = True) -> Gradients:
        """Return the gradients as they are to be normalised, clipped and stepped with.

        A sparse one has each row once, as a norm needs it; else the rows as they came, which torch's SGD adds in that order.
        Half-precision gradients with float32 masters become the masters' gradients here; those that were accumulated in float32
        stay there until they are written back.
        """
        # the usual case is one pass over the parameters, without a Python loop around it
        if not self.has_half:
            sparse = dense_gradient if rows_once else gradient_values
            look = sparse if self.has_sparse else _local_gradient if self.are_divided else _gradient
            tensors: list[Any] = [*map(look, self.parameters)]
            if not any(map(is_, tensors, repeat(None))):  # `None in tensors` would compare tensors
                return tuple.__new__(Gradients, (self.names, self.parameters, tensors))
        names, parameters, found = [], [], []
        for name, parameter, stepped in zip(self.names, self.parameters, self.stepped, strict=True):
            gradient = self._sums.pop(parameter, None)
            if gradient is None:
                gradient = dense_gradient(parameter) if rows_once else gradient_values(parameter)
            if stepped is not parameter:
                # Whoever asks for the norm afterwards comes here again: then the master has the gradient already.
                gradient = stepped.grad if gradient is None else gradient.to(stepped.dtype)
                stepped.grad, parameter.grad = gradient, None
            if gradient is not None:
                gradient = local_part(gradient)
                names.append(name)
                parameters.append(stepped)
                found.append(gradient)
        return Gradients(names, parameters, found)

    def put_back(self, gradients: Gradients) -> None:
        """Give what was accumulated in float32 to the optimizers, in the types of their parameters."""
        for parameter, gradient in zip(gradients.parameters, gradients.tensors, strict=True):
            if parameter.grad is not gradient:
                parameter.grad = gradient.to(parameter.dtype)

    def copy_masters(self) -> None:
        """Round float32 masters to the module's half-precision parameters."""
        with torch.no_grad():
            torch._foreach_copy_([p for p, _ in self._rounded], [master for _, master in self._rounded])

    def has_finite_parameters(self) -> bool:
        """Whether no parameter is NaN or infinite; waits for the device."""
        return all(bool(torch.isfinite(local_part(parameter)).all()) for parameter in self.parameters)


LOOKED_AT = 3  # of the parameters


class SpentGradients:
    """Knows whether a learner's gradients are those of its last step, and what their norm was once they are let go of."""

    def __init__(self, stepped: Sequence[nn.Parameter]) -> None:
        self.looked_at = stepped[:: max(1, len(stepped) // LOOKED_AT)]
        self.seen: list[tuple[ref[Tensor], int] | None] = []
        """What `engine/step.py` saw of them behind the last step, or where it was refused."""
        self.norm: tuple[int, Tensor] | None = None
        """Their norm, behind the number of the update that they were of."""

    @property
    def has_spent_gradients(self) -> bool:
        """Whether there are gradients that a step was made with, and no backward by hand has made others since."""
        return any(self.seen) and all(map(_has_seen_gradient, self.looked_at, self.seen))


def _has_seen_gradient(stepped: nn.Parameter, seen: tuple[ref[Tensor], int] | None) -> bool:
    """Whether a parameter has the gradient that was seen, with nothing written to it since."""
    # not by its id: a gradient made after that one was freed may have the same
    gradient = stepped.grad
    if gradient is None or seen is None:
        return gradient is None and seen is None
    return gradient is seen[0]() and gradient._version == seen[1]
