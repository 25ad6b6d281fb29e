# SPDX-License-Identifier: Apache-2.0
"""Gradients that no step has used when a loop is saved: one that accumulates by hand goes on with them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

Stand = dict[int, tuple[int, int]]


def _parameters(optimizer: Optimizer) -> Iterator[tuple[int, Tensor]]:
    return enumerate(each for group in optimizer.param_groups for each in group["params"])


def stand_of_gradients(optimizer: Optimizer) -> Stand:
    """Return what changes as soon as one of its gradients is written to."""
    gradients = ((number, each.grad) for number, each in _parameters(optimizer))
    return {
        number: (each.data_ptr(), each._version)
        for number, each in gradients
        if each is not None and not each.is_sparse
    }


def held_gradients(
    optimizers: Sequence[Optimizer], stepped: Mapping[int, Stand]
) -> tuple[dict[str, Tensor], bool]:
    """Return those that came behind the last step, and whether some are of an optimizer that has not stepped in this body."""
    held, is_accumulating = {}, False
    for place, optimizer in enumerate(optimizers):
        used = stepped.get(id(optimizer), {})
        now = stand_of_gradients(optimizer)
        for number, parameter in _parameters(optimizer):
            if number in now and now[number] != used.get(number) and bool(parameter.grad.any()):  # type: ignore[union-attr]
                held[f"{place}.{number}"] = parameter.grad.detach()  # type: ignore[union-attr]
                is_accumulating |= id(optimizer) not in stepped
    return held, is_accumulating


def put_gradients_back(optimizers: Sequence[Optimizer], held: Mapping[str, Any]) -> None:
    """Give parameters the gradients that they held."""
    for place, optimizer in enumerate(optimizers):
        for number, parameter in _parameters(optimizer):
            if (gradient := held.get(f"{place}.{number}")) is not None:
                parameter.grad = gradient.to(parameter.device, copy=True)
