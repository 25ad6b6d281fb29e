# SPDX-License-Identifier: Apache-2.0
"""Numbers that a loss is multiplied by, and copies of parameters: they are constants of a step, and are held in a moved child.

A loss that is divided by its own `item()`, and a teacher that is a copy of the network, are no mistakes. So a slope is measured
once more with what they are where nothing is moved.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from truestep.doctor.experiments.batch_leaf_usage import address_of
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.runtime.operations import watched_operation_name

_FACTORS = frozenset(
    {"mul", "div", "true_divide", "multiply", "divide", "truediv", "rmul", "rtruediv", "rdiv"}
)
_TERMS = frozenset({"add", "sub", "subtract", "radd", "rsub"})
_COPIES = frozenset({"copy", "clone", "lerp", "add", "_foreach_copy", "_foreach_lerp", "_foreach_add"})
_MAKE_OF_NUMBERS = frozenset({"tensor", "as_tensor", "new_tensor", "from_numpy"})
_WRITTEN_DIGITS = 10
_MOST_FACTORS, _MOST_NUMBERS = 4000, 100_000


class HeldConstants(TorchFunctionMode):
    """Notes the factors of a step; given those of another child, uses these in the place of its own.

    Args:
        factors: of the child in which nothing is moved, in order; None notes them alone.

    Attributes:
        noted: the factors so far.
    """

    def __init__(self, factors: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.noted: list[Any] = []
        self._factors = factors
        # tensors made of numbers; kept, so that no address comes again
        self._of_numbers: dict[int | None, Tensor] = {}
        self._before: dict[int | None, Tensor] = {}

    def moves(self, parameters: Iterable[Tensor]) -> None:
        """Keep what parameters are before they are moved, for their copies."""
        self._before = {address_of(each): each.detach().clone() for each in parameters}
        torch.Tensor.__deepcopy__ = self._wrap_deepcopy(torch.Tensor.__deepcopy__)  # type: ignore[method-assign]
        torch.nn.Parameter.__deepcopy__ = self._wrap_deepcopy(torch.nn.Parameter.__deepcopy__)  # type: ignore[method-assign]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = watched_operation_name(func).strip("_"), kwargs or {}
        if name in _FACTORS | _TERMS and len(args) == 2:
            args = self._with_held_factor(args, least_ndim=int(name in _TERMS))
        if name in _COPIES or f"_{name}" in _COPIES:
            args = tuple(self._value_before_move(each) for each in args)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and not result.requires_grad:
            is_read = name in _FACTORS | _TERMS and any(map(_is_computed_number, args))
            if name in _MAKE_OF_NUMBERS or is_read:
                self._of_numbers[address_of(result)] = result
        return result

    def _with_held_factor(self, args: tuple[Any, ...], least_ndim: int) -> tuple[Any, ...]:
        """Return what is multiplied, or added to what is no loss yet, with the constant in it held."""
        for place, each in enumerate(args):
            other = args[1 - place]
            is_of_graph = isinstance(other, Tensor) and other.requires_grad and other.ndim >= least_ndim
            if is_of_graph and self._is_constant(each):
                return tuple(
                    self._hold_factor(each) if number == place else one for number, one in enumerate(args)
                )
        return args

    def _is_constant(self, given: Any) -> bool:
        if not isinstance(given, Tensor):
            return isinstance(given, (int, float))
        is_of_numbers = address_of(given) in self._of_numbers and given.numel() <= _MOST_NUMBERS
        return not given.requires_grad and (not given.ndim or is_of_numbers)

    def _hold_factor(self, factor: Any) -> Any:
        number = len(self.noted)
        if number >= _MOST_FACTORS:
            return factor
        with unseen():
            self.noted.append(factor.tolist() if isinstance(factor, Tensor) else float(factor))
            if self._factors is None or number >= len(self._factors):
                return factor
            held = self._factors[number]
            if not isinstance(factor, Tensor):
                return held if isinstance(held, float) else factor
            again = torch.tensor(held, dtype=factor.dtype, device=factor.device)
            return again if again.shape == factor.shape else factor

    def _value_before_move(self, given: Any) -> Any:
        if isinstance(given, (list, tuple)):
            return type(given)(self._value_before_move(each) for each in given)
        if not isinstance(given, Tensor):
            return given
        before = self._before.get(address_of(given))
        is_own = (
            before is None or before.shape != given.shape or (given.requires_grad and torch.is_grad_enabled())
        )
        return given if is_own else before

    def _wrap_deepcopy(self, original: Any) -> Any:
        def __deepcopy__(tensor: Tensor, memo: Any) -> Any:  # noqa: N807
            result = original(tensor, memo)
            before = self._before.get(address_of(tensor))
            if before is not None and before.shape == tensor.shape:
                with torch.no_grad(), unseen():
                    result.copy_(before)
            return result

        return __deepcopy__


def _is_computed_number(number: Any) -> bool:
    """Tell a number with so many digits as computed ones have from one that somebody wrote."""
    return isinstance(number, float) and len(repr(number)) > _WRITTEN_DIGITS
