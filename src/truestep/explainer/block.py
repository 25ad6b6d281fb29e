# SPDX-License-Identifier: Apache-2.0
"""`with explain_errors():` says of an exception that leaves it what it means in this run."""

from contextlib import ContextDecorator
from types import TracebackType
from typing import Self


class explain_errors(ContextDecorator):  # noqa: N801 - used as a function, like contextlib.suppress
    """Within this, an exception that gets out carries a note: what it means, its likeliest cause here, the fix.

    The note is seen wherever tracebacks are: terminals, pytest, Jupyter, logs. Type, message and traceback stay
    as they are; exceptions that are caught inside get no note, and nothing is done or imported until one leaves.
    The note holds shapes, dtypes, devices and names, never tensor values, strings or environment values.
    """

    def __init__(self) -> None:
        """Take nothing: what stands in the block is explained, whatever model it uses."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, Exception):
            from truestep.explainer.explain import annotate_error

            annotate_error(error)
