# SPDX-License-Identifier: Apache-2.0
"""Has detach() and no_grad() leave a graph whole in a child, to tell a cut that was written from one that just happens."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from truestep.core.frames import is_library_file


class OpenedCuts(TorchFunctionMode):
    """Within it `detach` gives the tensor itself. It is for a child alone: `no_grad` stays changed.

    Attributes:
        scores_samples: whether `log_prob` was asked of values without a graph, as a policy's gradient is computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores_samples = False
        for each in _with_subclasses(torch.distributions.Distribution):
            if "log_prob" in vars(each):
                type.__setattr__(each, "log_prob", self._scoring(vars(each)["log_prob"]))
        no_grad: Any = torch.no_grad
        enter, leave = no_grad.__enter__, no_grad.__exit__
        no_grad.__enter__ = _unless_the_users(enter)
        no_grad.__exit__ = _where_entered(leave)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") == "detach" and args:
            return args[0]
        return func(*args, **(kwargs or {}))

    def _scoring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def log_prob(distribution: Any, value: Any) -> Any:
            result = original(distribution, value)
            if isinstance(value, torch.Tensor) and result.requires_grad and not value.requires_grad:
                self.scores_samples = True
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
