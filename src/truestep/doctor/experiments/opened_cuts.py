# SPDX-License-Identifier: Apache-2.0
"""Has detach() and no_grad() leave a graph whole in a child, to tell a cut that was written from one that just happens."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from truestep.core.frames import is_library_file
from truestep.doctor.experiments.going_on import unseen
from truestep.doctor.runtime.operations import watched_operation_tensors


class OpenedCuts(TorchFunctionMode):
    """Within it `detach` gives the tensor itself. It is for a child alone: `no_grad` stays changed.

    Attributes:
        scores_samples: whether `log_prob` was asked of what was sampled, as a policy's gradient is computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores_samples = False
        self._samples: dict[int, Any] = {}  # also what was computed from them without a graph
        for each in _with_subclasses(torch.distributions.Distribution):
            for name, make in (("log_prob", self._scoring), ("sample", self._sampling)):
                if name in vars(each):
                    setattr(each, name, make(vars(each)[name]))
        no_grad: Any = torch.no_grad
        enter, leave = no_grad.__enter__, no_grad.__exit__
        no_grad.__enter__ = _unless_the_users(enter)
        no_grad.__exit__ = _where_entered(leave)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") == "detach" and args:
            return args[0]
        result = func(*args, **(kwargs or {}))
        given = watched_operation_tensors(args, kwargs or {})
        if isinstance(result, torch.Tensor) and any(self._is_sampled(each) for each in given):
            self._keep(result)
        return result

    def _keep(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not value.requires_grad:
            self._samples[value.untyped_storage().data_ptr()] = value

    def _is_sampled(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in self._samples

    def _sampling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def sample(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with unseen():
                self._keep(result)
            return result

        return sample

    def _scoring(self, original: Callable[..., Any]) -> Callable[..., Any]:
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


def _unless_the_users(enter: Callable[[Any], None]) -> Callable[[Any], None]:
    def __enter__(self: Any) -> None:  # noqa: N807
        self._is_entered = is_library_file(_caller())
        if self._is_entered:
            enter(self)

    return __enter__


def _where_entered(leave: Callable[..., None]) -> Callable[..., None]:
    def __exit__(self: Any, *error: Any) -> None:  # noqa: N807
        if self._is_entered:
            leave(self, *error)

    return __exit__


def _caller() -> str:
    """Return the file that enters no_grad(), also by way of a decorator."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith("_contextlib.py"):
        frame = frame.f_back
    return frame.f_code.co_filename
