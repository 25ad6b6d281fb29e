# SPDX-License-Identifier: Apache-2.0
"""Follows conditions that choose among a step's values, and operations that are given one value twice."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.follower_base import StepFollower, TensorNotes, frame_line_text, users_frame
from truestep.doctor.experiments.gradient_norms import GradientNormTracker
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.softmax_of_probabilities import SharesAsLogitsFinder
from truestep.doctor.relations.graph import walk_graph_nodes
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


class OperandFollower(StepFollower):
    """Within it conditions and pairs of operands are followed until a backward.

    Args:
        flipped: a condition, as it is told, whose answers are to be the opposite.
        chosen: a condition of which what it chooses is to be other numbers.

    It finds:
        conditions: those that choose among values with a graph, each with its line; and why its answer is known, or nothing.
        twins: lines of operations that are given one value twice, as if it were spread along two axes.
        doubled: lines of sums of two values that were computed apart and are the same.
        flat: lines that take the gradient of what is constant, for a loss that it becomes a part of.
        num_gradients: how many gradients were taken for a loss.
        of_parts: lines that take a number off norms of such a gradient, of which there are more than outputs: norms and outputs.
        shares: lines that take shares that sum to the same for logits, and what takes them.
        num_logits: how many operations take logits.

    Attributes:
        drops: whether anything was dropped at random, which a child does not: what is the same here may be so by that alone.
    """

    def __init__(self, flipped: str = "", chosen: str = "") -> None:
        super().__init__(conditions={}, twins=[], doubled=[], flat=[], of_parts={}, shares={})
        self.found.update(num_gradients=0, num_logits=0)
        self.drops = False
        self._flipped, self._chooses_others = flipped, chosen
        self._from = TensorNotes[frozenset[str]]()  # conditions that a value is made of
        self._bounded = TensorNotes[str]()  # what gave a value whose sign is known
        self._spread = TensorNotes[bool]()  # views with an axis more than what they are of
        self._sided: dict[str, str] = {}
        self._norms = GradientNormTracker()
        self._logits = SharesAsLogitsFinder()

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Look at an operation's operands; give others where that is asked."""
        result, name = func(*args, **kwargs), watched_operation_name(func)
        given = watched_operation_tensors(args, dict(kwargs))
        if not isinstance(result, Tensor) or not given:
            return result
        with unseen():
            caller = sys._getframe(2)
            self.drops |= "dropout" in name and _has_dropout_rate(args, kwargs)
            if not is_library_file(caller.f_code.co_filename):
                self._note_equal_operands(name, given, frame_line_text(caller))
            taken = self._logits.look(name, result, given, args, kwargs)
            self.found["num_logits"] += taken is not None
            self._note_mistaken_operands(shares=taken, of_parts=self._norms.look(name, result, given, args))
            self._note_new_axis_and_sign(name, result, given, args)
            return self._result_noting_conditions(name, result, given, args)

    def __enter__(self) -> Self:
        """Follow gradients that are taken, too."""
        WatchWrappers().function(torch.autograd, "grad", self.gradient)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def tell(self, seen: ChildOutcome) -> None:
        """Tell of all that was found."""
        if self.drops:
            self.found["doubled"] = []
        super().tell(seen)

    def gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `torch.autograd.grad`."""

        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(outputs, inputs, *args, **kwargs)
            frame = users_frame()
            if frame is not None and (kwargs.get("create_graph") or (len(args) > _TWO and args[2])):
                self.found["num_gradients"] += 1
                with unseen():
                    self._norms.taken(_as_tensor_list(outputs), found)
                    if _are_rounding_gradients(_as_tensor_list(outputs), _as_tensor_list(inputs), found):
                        self.note("flat", frame_line_text(frame))
            return found

        return grad

    def _note_mistaken_operands(self, **meanings: Any) -> None:
        """Note the line of an operation whose operands mean something else than it takes them for."""
        for kind, told in meanings.items():
            if told and (frame := users_frame()) is not None:
                self.found[kind].setdefault(frame_line_text(frame), told)

    def _note_new_axis_and_sign(
        self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]
    ) -> None:
        """Note a view with an axis more, and a value whose sign is known."""
        source = given[0]
        is_view = name in _NEW_AXIS and result.data_ptr() == source.data_ptr()
        if is_view and ((result.ndim > source.ndim and 1 in result.shape) or self._spread.get(source)):
            self._spread[result] = True
        before = self._bounded.get(source)
        if name in _NOT_NEGATIVE or (name in ("pow", "__pow__") and _is_even_exponent(args[1:])):
            self._bounded[result] = name
        elif name in _KEEP_SIGN and before is not None:
            self._bounded[result] = before if name != "sum" else "square"  # a sum of shares may be above 1

    def _note_equal_operands(self, name: str, given: Sequence[Tensor], line: str) -> None:
        if name not in _PAIR or len(given) != _TWO:
            return
        one, other = given
        if name == "add" and _are_equal_with_own_graphs(one, other):
            self.note("doubled", line)
        if one is other or one.shape != other.shape or one.stride() != other.stride() or one.numel() == 1:
            return
        if all(map(self._spread.get, given)) and one.data_ptr() == other.data_ptr():
            self.note("twins", line)

    def _result_noting_conditions(
        self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]
    ) -> Tensor:
        """Return an operation's result, having noted which conditions it comes of."""
        own = [self._from.get(each) or frozenset() for each in given]
        made = frozenset().union(*own)
        if not made and name in _COMPARE and result.dtype is torch.bool and result.numel() > 1:
            return self._follow_comparison(name, result, given, args)
        if not made:
            return result
        if all(own):
            if not _ASK_FORM.search(name):
                self._from[result] = made
        elif result.requires_grad:
            self.found["conditions"].update({each: self._sided.get(each, "") for each in sorted(made)})
            if self._chooses_others in made and result.is_floating_point():
                return result * 1.5 + 0.1
        return result

    def _follow_comparison(
        self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]
    ) -> Tensor:
        frame = users_frame()
        if frame is None:
            return result
        told = f"{_COMPARE[name]}@{frame.f_lasti} {frame_line_text(frame)}"
        known = self._bounded.get(given[0])
        if known is not None and given[0] is args[0] and len(args) == _TWO:
            why = _why_comparison_is_fixed(_COMPARE[name], known, args[1])
            if why is not None:
                self._sided[told] = why
        if told == self._flipped:
            result = ~result
        self._from[result] = frozenset({told})
        return result


def _as_tensor_list(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _are_rounding_gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], found: Sequence[Tensor | None]
) -> bool:
    """Tell gradients that are rounding and no more, where shares that sum to 1 lie on the way."""
    pairs = [(each, one) for each, one in zip(inputs, found, strict=True) if one is not None]
    size = sum(float(each.detach().abs().sum()) for each in outputs)
    if (
        not pairs
        or not size
        or not any(_NORMED.search(each) for each in _operations_between(outputs, inputs))
    ):
        return False
    reach = max(
        float(one.detach().abs().max()) * max(1.0, float(each.detach().abs().max())) for each, one in pairs
    )
    return reach <= _ROUNDINGS * torch.finfo(pairs[0][1].dtype).eps * size


def _operations_between(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield the operations between inputs and outputs, by their nodes' names."""
    return (node.name() for node in walk_graph_nodes(outputs, {each.grad_fn for each in inputs}))


def _are_equal_with_own_graphs(one: Tensor, other: Tensor) -> bool:
    """Tell two values with graphs of their own that are the same numbers, and not all 0."""
    if (
        one.grad_fn is None
        or other.grad_fn is None
        or one.grad_fn is other.grad_fn
        or one.shape != other.shape
    ):
        return False
    return bool(torch.equal(one, other)) and bool(one.any()) and bool(one.isfinite().all())


def _has_dropout_rate(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell a dropout that drops something; what can't be told does."""
    rates = [each for each in (*args[1:], *kwargs.values()) if isinstance(each, float)]
    is_off = kwargs.get("training", kwargs.get("train")) is False or any(each is False for each in args)
    return not is_off and (not rates or any(rates))


def _is_even_exponent(exponent: Sequence[Any]) -> bool:
    return bool(exponent) and isinstance(exponent[0], (int, float)) and exponent[0] % 2 == 0


def _why_comparison_is_fixed(sign: str, name: str, bound: Any) -> str | None:
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
