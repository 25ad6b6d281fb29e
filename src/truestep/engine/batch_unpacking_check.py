# SPDX-License-Identifier: Apache-2.0
"""A batch that is one tensor, read as if it were a tuple: `batch[0]` is its first example, and the others go unused."""

import weakref
from collections.abc import Callable
from functools import partial
from inspect import isfunction, ismethod
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.core.call_site import constant_indices_read, indices_read_at_call
from truestep.core.errors import BatchError
from truestep.engine.batches import BatchOrigin


class LastLoopBatch:
    """The batch that the loop was given last, where it is a tensor whose rows are known to be examples."""

    def __init__(self) -> None:
        self._batch: weakref.ref[Tensor] | None = None  # the loop alone says how long it lives

    def note(self, batch: Any) -> None:
        """The loop is given this batch."""
        self._batch = weakref.ref(batch) if type(batch) is Tensor else None

    def tensor(self, making: BatchOrigin) -> Tensor | None:
        """Return it, of which its source knows this; None where it is something else, or gone."""
        batch = None if self._batch is None else self._batch()
        return batch if batch is not None and _holds_examples(batch, making) else None


class SingleRowCheck:
    """Refuses the first update that is of single rows of a batch; later ones cost a look at which function it is."""

    def __init__(self, given: LastLoopBatch) -> None:
        self._given = given
        self._code: CodeType | None = None
        self._read = _OTHERWISE
        self._is_first = True

    def look(self, function: Callable[..., Any], batch: Tensor, making: BatchOrigin) -> None:
        """Raise a BatchError where the function reads nothing but `batch[0]`, or the loop has handed over no more than that."""
        if self._is_first:
            self._is_first = False
            _refuse_single_row(batch, self._given.tensor(making))
        code = getattr(function, "__code__", None)
        if code is None or code is not self._code:
            self._code, self._read = code, _indices_read(function)
        if self._read.numbers:
            _refuse_fixed_indices(self._read, function, batch, making)


def refuse_single_rows(function: Callable[..., Any], batch: Any, making: BatchOrigin) -> None:
    """Raise a BatchError where a function reads nothing of a batch of rows but `batch[0]`."""
    if type(batch) is Tensor and (read := _indices_read(function)).numbers:
        _refuse_fixed_indices(read, function, batch, making)


def _holds_examples(batch: Tensor, making: BatchOrigin) -> bool:
    return making.in_columns and batch.ndim > 0 and batch.shape[0] == making.num_examples


def _refuse_fixed_indices(
    read: "_BatchIndexing", function: Callable[..., Any], batch: Tensor, making: BatchOrigin
) -> None:
    if _holds_examples(batch, making) and len(read.numbers) < len(batch):
        name = getattr(function, "__name__", type(function).__name__)
        raise BatchError(f"The function {name} reads only {_few_rows_message(read, batch)}")


def _refuse_single_row(batch: Tensor, given: Tensor | None) -> None:
    """Refuse what a loop hands over, where it is one row of the batch that the loop was given, and all that is read of it."""
    if given is None or len(given) < 2 or batch.shape != given.shape[1:]:
        return
    for name, numbers in indices_read_at_call(given).items():
        read = _BatchIndexing(name, numbers)
        if any(number < len(given) and torch.equal(batch, given[number].to(batch)) for number in numbers):
            raise BatchError(f"The loop reads only {_few_rows_message(read, given)}")


def _few_rows_message(read: "_BatchIndexing", batch: Tensor) -> str:
    parts = " and ".join(f"{read.name}[{number}]" for number in sorted(read.numbers))
    few = "that is one" if len(read.numbers) == 1 else f"these are {len(read.numbers)}"
    left = len(batch) - len(read.numbers)
    return (
        f"{parts}. The batch is one tensor of shape {tuple(batch.shape)}, so {few} of its {len(batch)} examples, and the other "
        f"{left} would have no part in what is computed. A batch has the form of what run.data was given, and one tensor gives "
        f"tensors: write x = {read.name}. Where batches are to be taken apart, as in x, y = {read.name}, give a tuple: "
        f"run.data((x, y), batch_size={len(batch)})."
    )


class _BatchIndexing(NamedTuple):
    """The variable that holds a batch, and the numbers by which it is read; none where it is read in another way."""

    name: str
    numbers: frozenset[int]


_OTHERWISE = _BatchIndexing("", frozenset())


def _indices_read(function: Callable[..., Any]) -> _BatchIndexing:
    """Return how a function reads its batch."""
    num_bound = 0
    while isinstance(function, partial):
        num_bound += len(function.args)
        function = function.func
    if ismethod(function):
        num_bound, function = num_bound + 1, function.__func__
    if not isfunction(function) or num_bound >= function.__code__.co_argcount:
        return _OTHERWISE
    name = function.__code__.co_varnames[num_bound]
    return _BatchIndexing(name, constant_indices_read(function.__code__, name))
