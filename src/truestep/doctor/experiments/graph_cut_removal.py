# SPDX-License-Identifier: Apache-2.0
"""Has detach(), no_grad() and the like leave a graph whole in a child, to tell a cut in writing from one that just happens."""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.batch_leaf_usage import address_of
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.experiments.straight_through import StraightThrough
from truestep.doctor.runtime.operations import watched_operation_name, watched_operation_tensors

_CONTEXTS: tuple[Any, ...] = (torch.no_grad, torch.inference_mode)
_SET_REQUIRES_GRAD = getattr(torch.Tensor.requires_grad, "__set__", None)


class DetachAsIdentity(TorchFunctionMode):
    """Within it `detach` gives the tensor itself. It is for a child alone: `no_grad` stays changed.

    A straight-through estimator gets the graph of its value, with whichever word it is cut.

    Attributes:
        scores_samples: whether `log_prob` was asked of what was sampled, as a policy's gradient is computed.
        sums: among which straight-through estimators are found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores_samples = False
        self.sums = StraightThrough()
        self._samples: dict[int | None, Any] = {}  # also what was computed from them without a graph
        for each in _with_subclasses(torch.distributions.Distribution):
            for name, make in (("log_prob", self._wrap_log_prob), ("sample", self._wrap_sample)):
                if name in vars(each):
                    setattr(each, name, make(vars(each)[name]))
        for off in _CONTEXTS:
            enter, leave = off.__enter__, off.__exit__
            off.__enter__ = _wrap_no_grad_enter(enter)
            off.__exit__ = _wrap_no_grad_exit(leave)
        switch: Any = torch.set_grad_enabled
        switch.__init__ = _wrap_grad_mode_init(switch.__init__)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = watched_operation_name(func), kwargs or {}
        if (name == "detach" and args) or _is_freezing_call(func, args, kwargs):
            return args[0]
        if func is F.gumbel_softmax:
            return _gumbel_softmax_with_graph(*args, **kwargs)
        result = func(*args, **kwargs)
        if name == "data" and isinstance(result, torch.Tensor):
            self.sums.cut(args[0], result)
        elif isinstance(result, torch.Tensor) and not kwargs:
            result = self.sums.sum_with_graph(func, name, args, result)
        given = watched_operation_tensors(args, kwargs)
        if isinstance(result, torch.Tensor) and any(self._is_sampled(each) for each in given):
            self._record_sample(result)
        return result

    def _record_sample(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not value.requires_grad:
            self._samples[address_of(value)] = value

    def _is_sampled(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and address_of(value) in self._samples

    def _wrap_sample(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def sample(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with unseen():
                self._record_sample(result)
            return result

        return sample

    def _wrap_log_prob(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log_prob(distribution: Any, value: Any) -> Any:
            result = original(distribution, value)
            with unseen():
                self.scores_samples |= result.requires_grad and self._is_sampled(value)
            return result

        return log_prob


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    known: list[type[Any]] = kind.__subclasses__()
    for each in known:
        yield from _with_subclasses(each)


def _is_freezing_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether a tensor that has gradients is given none from here on."""
    if func is not torch.Tensor.requires_grad_ and func != _SET_REQUIRES_GRAD:
        return False
    on = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    return not on and args[0].requires_grad and args[0].is_leaf


def _gumbel_softmax_with_graph(*args: Any, **kwargs: Any) -> Any:
    """Return what gumbel_softmax gives, with the graph of these values: codes of zeros and ones have no slope."""
    given = inspect.signature(F.gumbel_softmax).bind(*args, **kwargs)
    given.apply_defaults()
    is_hard, given.arguments["hard"] = given.arguments["hard"], False
    soft: Any = F.gumbel_softmax(*given.args, **given.kwargs)
    if not is_hard:
        return soft
    dim = given.arguments["dim"]
    codes = torch.zeros_like(soft).scatter_(dim, soft.detach().argmax(dim, keepdim=True), 1.0)
    return codes + 0.0 * soft


def _wrap_grad_mode_init(begin: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, mode: bool) -> None:  # noqa: N807
        is_users = not is_library_file(_caller_file())
        begin(self, torch.is_grad_enabled() if is_users and not mode else mode)

    return __init__


def _wrap_no_grad_enter(enter: Callable[[Any], None]) -> Callable[[Any], None]:
    def __enter__(self: Any) -> None:  # noqa: N807
        self._is_entered = is_library_file(_caller_file())
        if self._is_entered:
            enter(self)

    return __enter__


def _wrap_no_grad_exit(leave: Callable[..., None]) -> Callable[..., None]:
    def __exit__(self: Any, *error: Any) -> None:  # noqa: N807
        if self._is_entered:
            leave(self, *error)

    return __exit__


def _caller_file() -> str:
    """Return the file that enters no_grad(), also by way of a decorator."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith("_contextlib.py"):
        frame = frame.f_back
    return frame.f_code.co_filename
