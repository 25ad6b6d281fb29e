# SPDX-License-Identifier: Apache-2.0
"""Follows conditions that choose among a step's values, and operations that are given one value twice."""

import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from truestep.core.frames import frame_of_user, is_library_file
from truestep.doctor.experiments.going_on import unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.step_follower import StepFollower
from truestep.doctor.runtime.operations import watched_operation_name, watched_operation_tensors
from truestep.doctor.runtime.wrapping import WatchWrappers

_SIDES = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "less": "<", "greater": ">"}
_COMPARE = {**_SIDES, "eq": "==", "ne": "!=", "isnan": "isnan", "isfinite": "isfinite", "isinf": "isinf"}
# what is never below 0, by the operation that gives it; powers are asked for their exponent
_NOT_NEGATIVE = frozenset(
    {"square", "abs", "absolute", "exp", "softmax", "sigmoid", "relu", "norm", "vector_norm", "mse_loss", "l1_loss"}
    | {"smooth_l1_loss", "huber_loss", "cross_entropy", "binary_cross_entropy", "sqrt", "var", "std", "softplus", "cosh"}
    | {"binary_cross_entropy_with_logits", "pairwise_distance", "cdist"}
)  # fmt: skip
_AT_MOST_ONE = frozenset({"softmax", "sigmoid"})
_KEEP_SIGN = frozenset(
    {"mean", "sum", "detach", "view", "reshape", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "T"}
    | {"flatten", "clone", "float", "double", "to", "contiguous", "__getitem__", "data", "amax", "amin", "max", "min"}
)  # fmt: skip
_NEW_AXIS = frozenset({"unsqueeze", "__getitem__", "view", "reshape", "unflatten", "expand_dims", "permute"})
_PAIR = frozenset(
    {"mul", "sub", "rsub", "div", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor", "and"}
    | {"or", "xor", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "add", "multiply", "subtract"}
)  # fmt: skip
_ASK_FORM = re.compile(r"_like$|^new_|expand_as|type_as")  # they take a size or a type alone
_NORMED = re.compile(
    r"SoftmaxBackward|NormBackward|DivBackward"
)  # after which a sum may be the same whatever comes
_ROUNDINGS = 8
_TWO = 2


class FollowedOperands(StepFollower):
    """Within it conditions and pairs of operands are followed until a backward.

    Args:
        flipped: a condition, as it is told, whose answers are to be the opposite.
        chosen: a condition of which what it chooses is to be other numbers.

    Attributes:
        conditions: those that choose among values with a graph, each with its line; and why its answer is known, or nothing.
        twins: lines of operations that are given one value twice, as if it were spread along two axes.
        doubled: lines of sums of two values that were computed apart and are the same.
        flat: lines that take the gradient of what is constant, for a loss that it becomes a part of.
        num_gradients: how many gradients were taken for a loss.
        drops: whether anything was dropped at random, which a child does not: what is the same here may be so by that alone.
    """

    def __init__(self, flipped: str = "", chosen: str = "") -> None:
        super().__init__()
        self.conditions: dict[str, str] = {}
        self.twins: list[str] = []
        self.doubled: list[str] = []
        self.flat: list[str] = []
        self.num_gradients = 0
        self.drops = False
        self._flipped, self._chooses_others = flipped, chosen
        self._from: dict[
            int, tuple[weakref.ref[Tensor], frozenset[str]]
        ] = {}  # conditions that a value is made of
        self._bounded: dict[int, tuple[weakref.ref[Tensor], str]] = {}  # values, and what gave them
        self._spread: dict[int, weakref.ref[Tensor]] = {}  # views with an axis more than what they are of
        self._sided: dict[str, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._rests or not isinstance(result, Tensor):
            return result
        name, given = watched_operation_name(func), watched_operation_tensors(args, kwargs)
        if not given:
            return result
        with unseen():
            caller = sys._getframe(1)
            self.drops |= "dropout" in name and _has_rate(args, kwargs)
            if not is_library_file(caller.f_code.co_filename):
                self._note_twins(name, given, f"{caller.f_code.co_filename}:{caller.f_lineno}")
            self._note_form(name, result, given, args)
            return self._chosen(name, result, given, args)

    def __enter__(self) -> Self:
        """Follow gradients that are taken, too."""
        WatchWrappers().function(torch.autograd, "grad", self.gradient)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of all that was found."""
        seen.conditions, seen.twins = self.conditions, self.twins
        seen.flat, seen.num_gradients = self.flat, self.num_gradients
        seen.doubled = [] if self.drops else self.doubled

    def gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `torch.autograd.grad`."""

        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(outputs, inputs, *args, **kwargs)
            frame = frame_of_user(sys._getframe(1))
            if frame is not None and (kwargs.get("create_graph") or (len(args) > _TWO and args[2])):
                self.num_gradients += 1
                with unseen():
                    if _is_flat(_several(outputs), _several(inputs), found):
                        self.flat.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            return found

        return grad

    def _note_form(self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]) -> None:
        """Note a view with an axis more, and a value whose sign is known."""
        source = given[0]
        if name in _NEW_AXIS and result.data_ptr() == source.data_ptr():
            known = self._spread.get(id(source))
            is_spread = result.ndim > source.ndim and 1 in result.shape
            if is_spread or (known is not None and known() is source):
                self._spread[id(result)] = weakref.ref(result)
        before = self._bounded.get(id(source))
        if name in _NOT_NEGATIVE or (name in ("pow", "__pow__") and _is_even(args[1:])):
            self._bounded[id(result)] = weakref.ref(result), name
        elif name in _KEEP_SIGN and before is not None and before[0]() is source:
            what = before[1] if name != "sum" else "square"  # a sum of shares may be above 1
            self._bounded[id(result)] = weakref.ref(result), what

    def _note_twins(self, name: str, given: Sequence[Tensor], line: str) -> None:
        if name not in _PAIR or len(given) != _TWO:
            return
        one, other = given
        if name == "add" and _are_same_apart(one, other) and line not in self.doubled:
            self.doubled.append(line)
        if one is other or one.shape != other.shape or one.stride() != other.stride() or one.numel() == 1:
            return
        are_views = all(
            (known := self._spread.get(id(each))) is not None and known() is each for each in given
        )
        if are_views and one.data_ptr() == other.data_ptr() and line not in self.twins:
            self.twins.append(line)

    def _chosen(self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]) -> Tensor:
        """Return an operation's result, having noted which conditions it comes of."""
        made = frozenset().union(*(self._conditions_of(each) for each in given))
        if not made and name in _COMPARE and result.dtype is torch.bool and result.numel() > 1:
            return self._condition(name, result, given, args)
        if not made:
            return result
        if all(self._conditions_of(each) for each in given):
            if not _ASK_FORM.search(name):
                self._from[id(result)] = weakref.ref(result), made
        elif result.requires_grad:
            self.conditions.update({each: self._sided.get(each, "") for each in sorted(made)})
            if self._chooses_others in made and result.is_floating_point():
                return result * 1.5 + 0.1
        return result

    def _condition(self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]) -> Tensor:
        frame = frame_of_user(sys._getframe(1))
        if frame is None:
            return result
        told = f"{_COMPARE[name]}@{frame.f_lasti} {frame.f_code.co_filename}:{frame.f_lineno}"
        known = self._bounded.get(id(given[0]))
        if known is not None and known[0]() is given[0] and given[0] is args[0] and len(args) == _TWO:
            why = _answer(_COMPARE[name], known[1], args[1])
            if why is not None:
                self._sided[told] = why
        if told == self._flipped:
            result = ~result
        self._from[id(result)] = weakref.ref(result), frozenset({told})
        return result

    def _conditions_of(self, value: Tensor) -> frozenset[str]:
        known = self._from.get(id(value))
        return known[1] if known is not None and known[0]() is value else frozenset()


def _several(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _is_flat(outputs: Sequence[Tensor], inputs: Sequence[Tensor], found: Sequence[Tensor | None]) -> bool:
    """Tell gradients that are rounding and no more, where shares that sum to 1 lie on the way."""
    pairs = [(each, one) for each, one in zip(inputs, found, strict=True) if one is not None]
    size = sum(float(each.detach().abs().sum()) for each in outputs)
    if not pairs or not size or not any(_NORMED.search(each) for each in _operations_behind(outputs, inputs)):
        return False
    reach = max(
        float(one.detach().abs().max()) * max(1.0, float(each.detach().abs().max())) for each, one in pairs
    )
    return reach <= _ROUNDINGS * torch.finfo(pairs[0][1].dtype).eps * size


def _operations_behind(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield the operations between inputs and outputs, by their nodes' names."""
    seen: set[Any] = {each.grad_fn for each in inputs}
    waiting = [each.grad_fn for each in outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node.name()
        waiting += [each for each, _ in node.next_functions]


def _are_same_apart(one: Tensor, other: Tensor) -> bool:
    """Tell two values with graphs of their own that are the same numbers, and not all 0."""
    if (
        one.grad_fn is None
        or other.grad_fn is None
        or one.grad_fn is other.grad_fn
        or one.shape != other.shape
    ):
        return False
    return bool(torch.equal(one, other)) and bool(one.any()) and bool(one.isfinite().all())


def _has_rate(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """Tell a dropout that drops something; what can't be told does."""
    named = dict(kwargs or {})
    rates = [each for each in (*args[1:], *named.values()) if isinstance(each, float)]
    is_off = named.get("training", named.get("train")) is False or any(each is False for each in args)
    return not is_off and (not rates or any(rates))


def _is_even(exponent: Sequence[Any]) -> bool:
    return bool(exponent) and isinstance(exponent[0], (int, float)) and exponent[0] % 2 == 0


def _answer(sign: str, name: str, bound: Any) -> str | None:
    """Return why a comparison has one answer, None where it may have both."""
    if isinstance(bound, Tensor) and bound.numel() != 1:
        return None
    number = float(bound) if isinstance(bound, (int, float, Tensor)) else float("nan")
    if (number <= 0 and sign == "<") or (number < 0 and sign == "<="):
        return f"{name} gives nothing below 0, so this is never true"
    if (number <= 0 and sign == ">=") or (number < 0 and sign == ">"):
        return f"{name} gives nothing below 0, so this is always true"
    if name in _AT_MOST_ONE and ((number >= 1 and sign == ">") or (number > 1 and sign == ">=")):
        return f"{name} gives nothing above 1, so this is never true"
    if name in _AT_MOST_ONE and ((number >= 1 and sign == "<=") or (number > 1 and sign == "<")):
        return f"{name} gives nothing above 1, so this is always true"
    if name == "sigmoid" and number <= 0 and sign in ("<=", ">"):
        return f"sigmoid gives nothing at 0 or below, so this is {'never' if sign == '<=' else 'always'} true"
    return None
