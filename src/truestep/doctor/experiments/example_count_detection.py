# SPDX-License-Identifier: Apache-2.0
"""Numbers of a step that stand for how many examples there are: where every example is doubled, so are they.

A sum that is divided by a number from outside of the batch, as by that of a window's examples, is a mean all the same.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from numbers import Real
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.doctor.experiments.batch_leaf_usage import address_of, tensors_within
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.relations.examples import Examples
from truestep.doctor.runtime.operations import watched_operation_name

_BY_A_NUMBER = frozenset(
    {"mul", "div", "true_divide", "multiply", "divide", "truediv", "rmul", "imul", "itruediv", "idiv"}
    | {"foreach_div", "foreach_mul"}
)
_MOST_NUMBERS = 4000


def possible_example_counts(examples: Examples, num_rows: int) -> tuple[int, ...]:
    """Return the numbers that may stand for the examples of a batch, or of a window of so many rows, or for all their numbers.

    What the batch itself has beside its rows is among them.
    """
    tensors = [each for each in examples.leaves.values() if isinstance(each, Tensor)]
    sizes = {examples.count, *(each.numel() for each in tensors if each.numel() % examples.count == 0)}
    windows = {size // examples.count * num_rows for size in sizes}
    beside = {int(number) for number in batch_numbers_by_name(examples).values() if number == int(number)}
    return tuple(sorted(each for each in sizes | windows | beside if each > 1))


def batch_numbers_by_name(examples: Examples) -> dict[str, float]:
    """Return the numbers above 1 that a batch has beside its rows, by name."""
    shared = {name: examples.leaves[name] for name, axis in examples.axes.items() if axis is None}
    numbers = {name: _scalar_as_float(each) for name, each in shared.items()}
    return {name: each for name, each in numbers.items() if each is not None and 1 < each < math.inf}


class CountFactorMode(TorchFunctionMode):
    """Notes the numbers that what has a graph, or a gradient, is multiplied with or divided by.

    Args:
        counts: that stand for examples.
        parameters: whose gradients are followed.
        before: the numbers of the child that changes nothing, in order; a count that is the same here was made elsewhere than
            of the batch, and is doubled.

    Attributes:
        noted: the numbers so far.
        is_met: whether one of them is a count that was doubled, by this or by the script itself.
    """

    def __init__(
        self, counts: Collection[int], parameters: Iterable[Tensor], before: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.noted: list[float] = []
        self.is_met = False
        self._counts, self._parameters, self._before = counts, list(parameters), before

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if watched_operation_name(func).strip("_") in _BY_A_NUMBER and len(args) > 1:
            with unseen():
                args = self._with_doubled_count(args)
        return func(*args, **(kwargs or {}))

    def _with_doubled_count(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        for place, each in enumerate(args[:2]):
            if (number := _scalar_as_float(each)) is not None and self._has_graph_or_is_gradient(
                args[1 - place]
            ):
                factor = self._multiplier_of(number)
                return args if factor == 1 else (*args[:place], each * factor, *args[place + 1 :])
        return args

    def _multiplier_of(self, number: float) -> float:
        """Return by what a number is to be multiplied."""
        place = len(self.noted)
        if place >= _MOST_NUMBERS:
            return 1
        self.noted.append(number)
        if self._before is None or place >= len(self._before):
            return 1
        before = self._before[place]
        doubled = self._factor_when_doubled(before)
        if doubled == 1 and is_close_in_float32(number, 2 * before) and self._is_ratio_of_counts(before):
            self.is_met = True  # of the window, whose number stayed what it was
            return 0.5
        if doubled == 1:
            return 1
        self.is_met |= is_close_in_float32(number, before) or is_close_in_float32(number, before * doubled)
        return doubled if is_close_in_float32(number, before) else 1

    def _is_ratio_of_counts(self, number: float) -> bool:
        shares = (one / other for one in self._counts for other in self._counts if one <= other)
        return any(is_close_in_float32(number, each) for each in shares)

    def _factor_when_doubled(self, number: float) -> float:
        """Return by what a number is multiplied where each example stands twice: it may be a count, or one divided by it."""
        if any(is_close_in_float32(number, each) for each in self._counts):
            return 2
        return 0.5 if any(is_close_in_float32(number, 1 / each) for each in self._counts) else 1

    def _has_graph_or_is_gradient(self, given: Any) -> bool:
        tensors = list(tensors_within(given))
        if any(each.requires_grad for each in tensors):
            return True
        gradients = {address_of(each.grad) for each in self._parameters if each.grad is not None}
        return any(address_of(each) in gradients for each in tensors)


def is_close_in_float32(first: float, second: float) -> bool:
    """Tell whether two numbers are the same but for rounding in single precision."""
    return math.isclose(first, second, rel_tol=1e-6)


def _scalar_as_float(given: Any) -> float | None:
    if isinstance(given, Tensor):
        return None if given.ndim or given.requires_grad or given.is_complex() else float(given)
    return float(given) if isinstance(given, Real) and not isinstance(given, bool) else None
