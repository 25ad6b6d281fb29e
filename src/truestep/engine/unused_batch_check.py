# SPDX-License-Identifier: Apache-2.0
"""A loss that reads nothing of its batch and takes rows of a whole table instead: each update is of the same ones."""

from collections.abc import Callable, Iterator
from functools import partial
from inspect import isfunction, ismethod
from typing import Any

from torch import Tensor

from truestep.core.call_site import closure_variables, unread_unpacked_indices
from truestep.core.nested_structures import batch_children
from truestep.core.user_frames import warn_user
from truestep.engine.example_counting import BatchCounting

_DEEPEST = 3  # a loss that calls a function that calls one


def warn_of_unread_batch(names: str, loss: Callable[..., Any], batch: Any, counting: BatchCounting) -> None:
    """Warn once of each loss whose batch goes unused, where it reads a longer tensor of the same form."""
    left = _unread_tensors(loss, batch)
    rows = max([counting.making.num_examples or 0, *(len(each) for each in left)])
    for name, table in _tensors_in_loss(loss) if left else ():
        if table.ndim and len(table) > rows and any(_has_same_row_form(table, each) for each in left):
            warn_user(
                f"The loss of {names} reads nothing of its batch of shape {tuple(left[0].shape)}, and takes {name} of shape "
                f"{tuple(table.shape)} instead: whatever run.batches gives goes unused, and each update is of the same rows. Read "
                "the batch in it, x, y = batch where run.data was given a tuple, and compute with these."
            )
            return


def _has_same_row_form(table: Tensor, leaf: Tensor) -> bool:
    return table.shape[1:] == leaf.shape[1:] and table.dtype == leaf.dtype


def _unread_tensors(loss: Any, batch: Any) -> list[Tensor]:
    """Return the tensors of a batch that a function takes and reads nowhere; of several the labels alone are none."""
    num_bound = 0
    while isinstance(loss, partial):
        num_bound, loss = num_bound + len(loss.args), loss.func
    if ismethod(loss):
        num_bound, loss = num_bound + 1, loss.__func__
    if not isfunction(loss) or num_bound >= loss.__code__.co_argcount:
        return []
    left = unread_unpacked_indices(loss.__code__, loss.__code__.co_varnames[num_bound])
    parts = [part for _, part in batch_children(batch) or [("", batch)]]
    if left is None:
        return [each for each in parts if isinstance(each, Tensor) and each.ndim]
    unread = [each for at, each in enumerate(parts) if at in left]
    return [each for each in unread if isinstance(each, Tensor) and each.ndim > 1]


def _tensors_in_loss(loss: Any, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    if isinstance(loss, partial):
        for part in (loss.func, *loss.args, *loss.keywords.values()):
            yield from _tensors_in_loss(part, depth)
    elif ismethod(loss):
        members = getattr(loss.__self__, "__dict__", {})
        read = loss.__code__.co_names
        yield from (
            (f"self.{name}", each)
            for name, each in members.items()
            if name in read and isinstance(each, Tensor)
        )
        yield from _tensors_in_loss(loss.__func__, depth)
    elif isfunction(loss) and depth < _DEEPEST:
        variables = closure_variables(loss)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            if isinstance(value, Tensor):
                yield name, value
            elif ismethod(value) or (isfunction(value) and value.__globals__ is loss.__globals__):
                yield from _tensors_in_loss(value, depth + 1)
