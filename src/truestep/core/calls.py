# SPDX-License-Identifier: Apache-2.0
"""Calls with other arguments than a function takes: python's words for it name the arguments, and not what to write."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from truestep.core.errors import OptionError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def is_of_the_call(error: TypeError, through: str | None = None) -> bool:
    """Whether a TypeError caught where a python function was called is about its arguments: none of its lines has run.

    `through`: how the modules begin whose functions may lie between the `except` and the call.
    """
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    # A call that fails on its arguments adds no frame of the function that was called.
    while trace is not None and through and trace.tb_frame.f_globals.get("__name__", "").startswith(through):
        trace = trace.tb_next
    return trace is None


def explains_calls(
    explain: str | Callable[[tuple[Any, ...], dict[str, Any]], str],
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a method so that arguments that it does not take raise an OptionError with what `explain` says, or says of them."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def called(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
            try:
                return function(*arguments, **keywords)
            except TypeError as error:
                if not is_of_the_call(error):
                    raise
                said = explain if isinstance(explain, str) else explain(arguments[1:], keywords)
                raise OptionError(said) from error

        return called

    return decorate
