# SPDX-License-Identifier: Apache-2.0
"""The wrapped calls by which figures are shown: print(), and TensorBoard's writer where it is in use."""

import builtins
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.wrapping import WatchWrappers

# "Accuracy: 93.1%", "val_acc=0.93": a number with decimals, which no count has; "9/10" and "9 of 10" are counts
_SHARE = re.compile(
    r"(?i)(\b\w*acc(?:uracy)?)\b[^\w\n-]{0,6}(?:is |= )?(-?\d+\.\d+)(?! ?(?:/|of\b|out\b)|\d)"
)
_FIGURE = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[-+]?\d+)?(?![\d.])")
_DIGITS = 3  # that count, at least: fewer are met by chance
_SINGLE = 1e-6  # of a number computed in single precision, so much may be rounding
MAX_TEXT = 2000  # characters
Call = Callable[..., Any]


def wrap_logging(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Wrap them."""

    def wrap_print(original: Call) -> Call:
        def observed_print(*values: Any, **options: Any) -> None:
            original(*values, **options)
            if torch.compiler.is_compiling() or not gate.is_call_of_user():
                return
            text = " ".join(each for each in map(_printed_text, values) if each)[:MAX_TEXT]
            if gate.live and (figures := _precise_numbers(text)):
                gate.tell("on_printed", figures)
            if "acc" in text or "Acc" in text or "ACC" in text:
                for name, value in _SHARE.findall(text):
                    gate.tell("on_logged", name, float(value))

        return observed_print

    wrappers.function(builtins, "print", wrap_print)
    wrap_writer(gate, wrappers)


def wrap_writer(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Wrap TensorBoard's writer, once it has been imported."""
    writer = getattr(sys.modules.get("torch.utils.tensorboard.writer"), "SummaryWriter", None)
    if writer is None or hasattr(writer.add_scalar, "__wrapped__"):
        return

    def wrap_add_scalar(original: Call) -> Call:
        def add_scalar(self: Any, tag: Any, scalar_value: Any, *args: Any, **options: Any) -> None:
            original(self, tag, scalar_value, *args, **options)
            if isinstance(tag, str) and "acc" in tag.lower() and gate.is_call_of_user():
                gate.tell("on_logged", tag, float(scalar_value))

        return add_scalar

    wrappers.method(writer, "add_scalar", wrap_add_scalar)


def _printed_text(value: Any) -> str:
    """Return a value as print() shows it, if it is of a kind that is shown without a user's code."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _precise_numbers(text: str) -> list[tuple[float, float]]:
    """Return the numbers of a text with three digits or more, each with how far its rounding may have moved it."""
    found = []
    for each in _FIGURE.findall(text):
        number, _, power = each.partition("e")
        if len(number.replace(".", "").lstrip("-0")) >= _DIGITS:
            rounding = 0.51 * 10.0 ** (int(power or 0) - len(number.partition(".")[2]))
            found.append((float(each), max(rounding, _SINGLE * abs(float(each)))))
    return found
