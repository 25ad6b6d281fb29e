# SPDX-License-Identifier: Apache-2.0
"""Where a loss begins in a step whose batch is not known: the call of torch that the first operation of its graph comes of."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.doctor.experiments.batch_leaf_usage import address_of, tensors_within
from truestep.doctor.relations.graph import walk_graph_nodes

_READS = frozenset({"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__"})


class TorchCallCounter(TorchFunctionMode):
    """Counts calls of torch, and does something before one of them.

    Args:
        at: the number of the call.
        act: what is done.
    """

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        super().__init__()
        self._left, self._act = at, act

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._left == 0:
            self._act()
        self._left -= 1
        return func(*args, **(kwargs or {}))


class LossStartFinder(TorchFunctionMode):
    """Finds the call with which each step's loss begins, and whether numbers of the model are read behind it.

    Args:
        trained: the parameters.
    """

    def __init__(self, trained: Iterable[Tensor]) -> None:
        super().__init__()
        self._numbers: list[int] = []  # that the next operation of a graph would get, call by call
        self._of_model = {address_of(each): each for each in trained}  # kept, so that no address comes again
        self._last_read = -1
        self._first: int | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        result = func(*args, **(kwargs or {}))
        if any(address_of(each) in self._of_model for each in tensors_within((args, kwargs))):
            if getattr(func, "__name__", "") in _READS:
                self._last_read = len(self._numbers) - 1
            self._of_model |= {address_of(each): each for each in tensors_within(result)}
        return result

    def goes_backward(self, roots: Iterable[Tensor]) -> None:
        """Note the first call of a loss."""
        number = min(_graph_sequence_numbers(roots), default=None)
        if number is not None:
            call = max(0, bisect_right(self._numbers, number) - 1)
            self._first = call if self._first is None else min(call, self._first)

    def step(self) -> tuple[int | None, bool]:
        """Return the first call of what went backward since the last step, and whether the model was read behind it."""
        first, self._first = self._first, None
        return first, first is not None and self._last_read > first


def _graph_sequence_numbers(roots: Iterable[Tensor]) -> Iterable[int]:
    """Yield the numbers of a graph's operations; leaves, which have the largest number there is, are left out."""
    return (node._sequence_nr() for node in walk_graph_nodes(roots) if node.next_functions)
