# SPDX-License-Identifier: Apache-2.0
"""What to write where `update` or a loss is called with other arguments than it takes."""

from collections.abc import Callable
from typing import Any

from truestep.core.calls import is_of_the_call
from truestep.core.errors import LossError, nearest

_OPTIONS = ("loss", "batch", "micro_batch", "split", "decomposable")
_COMPUTED = (
    "For a loss that is computed already write with net.accumulating() as update: update.backward(loss)."
)


def no_function(loss: Any) -> str:
    """Say that a value was given in the place of a loss function."""
    return (
        f"update was given a {type(loss).__name__} instead of a loss function. The engine calls the loss itself, so that it "
        "can split the batch or try it again: def loss(batch): ... and then net.update(loss, batch). "
        + _COMPUTED
    )


def explain_update(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Say what `net.update` takes, for a call that python refused."""
    if unknown := [name for name in keywords if name not in _OPTIONS]:
        return f"net.update has no option {unknown[0]!r}. {nearest(unknown[0], _OPTIONS)}"
    loss = arguments[0] if arguments else keywords.get("loss")
    if loss is not None and not callable(loss):
        return no_function(loss)
    if len(arguments) > 2:
        names = ", ".join("xyzuvw"[: len(arguments) - 1])
        return (
            f"net.update was given {len(arguments) - 1} batches, and takes one, which it may have to split. Put them into a tuple: "
            f"net.update(loss, ({names})), which the loss takes apart: {names} = batch."
        )
    return (
        "net.update takes a loss function and a batch: def loss(batch): ... returns one loss per example, and "
        "net.update(loss, batch) calls it. " + _COMPUTED
    )


def explain_loss(error: TypeError, function: Callable[[Any], Any], batch: Any) -> LossError | None:
    """Say what is wrong with a loss that takes other arguments than one batch; None where the error is another one."""
    if not is_of_the_call(error, through="truestep.engine."):
        return None
    given = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
    name = getattr(function, "__qualname__", type(function).__name__).rpartition(".")[2]
    return LossError(
        f"The loss {name} was called with the batch, {given}, as its only argument, and python says: {error}. Let it take one "
        "batch and take that apart: def loss(batch): x, y = batch. What else it needs it can read from around it, or "
        "functools.partial gives it."
    )
