# SPDX-License-Identifier: Apache-2.0
"""What to write where `run.log` was given no number: a picture, a text, a function, several numbers, nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from truestep.core.text_formatting import a_type, keyword_text, literal_text, plural
from truestep.engine.result import Update

_CHANNELS = (1, 3, 4)
_SHOWN = 40  # characters of a text
_OF_PIL = 'ts.Image(numpy.asarray({}.convert("RGB")).transpose(2, 0, 1))'
_PICTURES, _SOUNDS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp"), (".wav", ".flac", ".mp3", ".ogg")


def logged_value_message(name: str, value: Any) -> str:
    """Return what was logged, why it can't be, and the line to write; `value` stands for the user's own words there."""
    return (
        f"run.log({keyword_text(name)}) was given {_described(value)}, and a line of metrics keeps one number for each name. "
        f"{_what_to_write(name, value)}"
    )


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, str | bytes | complex) and len(repr(value)) <= _SHOWN:
        return f"{a_type(value)}, {value!r}"
    if isinstance(shape := getattr(value, "shape", None), tuple):
        return f"{a_type(value)} of shape {tuple(shape)}"
    if isinstance(value, Mapping | list | tuple | set):
        return f"{a_type(value)} of {plural(len(value), 'value')}"
    return a_type(value)


class _Line(NamedTuple):
    """The call to write, with the name that was given."""

    name: str

    def of(self, text: str) -> str:
        """Return the call with a value in place of what was given."""
        return f"run.log({keyword_text(self.name, text)})"

    def of_each(self, pairs: str) -> str:
        """Return the call with each of several values under a name of its own."""
        return f"run.log(**{{{literal_text(f'{self.name}/')} + str(key): each for key, each in {pairs}}})"


def _what_to_write(name: str, value: Any) -> str:
    line = _Line(name)
    if value is None:
        said = "A function without return gives None; return the number, or log it where there is one"
        return f"{said}: if value is not None: {line.of('value')}."
    if isinstance(value, Update):
        return f"The loss of an update is update.loss: {line.of('update.loss')}."
    if isinstance(value, str | bytes | Path):
        return _text_advice(line, value)
    if isinstance(value, torch.Tensor) or hasattr(value, "__array_interface__"):
        return _array_advice(line, value)
    if (drawn := _pixels_text(value)) is not None:
        return f"The pixels of a figure are {drawn}, and the line is {line.of('ts.Image(pixels)')}."
    if isinstance(value, Mapping | list | tuple | set) and value:
        return _several_advice(line, value)
    if isinstance(value, complex):
        return f"A complex number has a size: {line.of('abs(value)')}."
    if callable(value):
        said = "A class is no number" if isinstance(value, type) else "It was not called"
        return f"{said}: write {line.of('value(...)')}, with what it takes."
    return f"As a text it is {line.of('ts.Text(str(value))')}; a picture is ts.Image(pixels), a sound ts.Audio(wave, rate)."


def values_advice(value: Any) -> str:
    """Return where the values of a picture or a sound are that `ts.Image` and `ts.Audio` take; empty of what is none."""
    if isinstance(value, str | Path):
        return " Of a file read its values first, with PIL or soundfile."
    if (drawn := _pixels_text(value)) is not None:
        return f" Those of a figure are {drawn}."
    if hasattr(value, "__array_interface__"):
        return f" Those of a picture are {_OF_PIL.format('value')}."
    if isinstance(value, list | tuple) and all(isinstance(each, torch.Tensor) for each in value):
        return " Several of one size are ts.Image(torch.stack(value))."
    return ""


def _pixels_text(value: Any) -> str | None:
    """Return the lines that make `pixels` of a figure, or of an axis of one; None of what is neither."""
    name, figure = (
        ("value", value) if hasattr(value, "canvas") else ("value.figure", getattr(value, "figure", None))
    )
    if not hasattr(figure, "canvas"):
        return None
    return (
        f"{name}.canvas.draw(), then pixels = numpy.asarray({name}.canvas.buffer_rgba()).transpose(2, 0, 1)"
    )


def _text_advice(line: _Line, value: str | bytes | Path) -> str:
    if isinstance(value, bytes):
        return f"Bytes of a text are {line.of('ts.Text(value.decode())')}."
    path = str(value).lower()
    if path.endswith(_PICTURES):
        return f"The picture in a file is {line.of(_OF_PIL.format('PIL.Image.open(value)'))}."
    if path.endswith(_SOUNDS):
        return f"A sound in a file is read first: wave, rate = soundfile.read(value), and {line.of('ts.Audio(wave.T, rate)')}."
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"A text is {line.of('ts.Text(value)' if isinstance(value, str) else 'ts.Text(str(value))')}."
    return f"The number in a text is {line.of('float(value)')}."


def _array_advice(line: _Line, value: Any) -> str:
    shape, is_tensor = getattr(value, "shape", None), isinstance(value, torch.Tensor)
    if shape is None:  # a picture of PIL's
        return f"A picture is {line.of(_OF_PIL.format('value'))}."
    if 0 in shape:
        return f"It holds no number: log it where there is one: if len(value): {line.of('value.mean()')}."
    if picture := _picture(shape, is_tensor=is_tensor):
        return (
            f"A picture is {line.of(f'ts.Image({picture})')}, of floats with low= and high=, the values that are black and white; "
            f"a mean is {line.of(_mean(value))}."
        )
    each = line.of_each("enumerate(value.flatten())")
    return f"Their mean is {line.of(_mean(value))}; of few, each under its own name, {each}."


def _mean(value: Any) -> str:
    """Return the mean of an array's values as one number; torch has none of whole or complex numbers."""
    if "complex" in str(value.dtype):
        return "abs(value).mean()"
    return "value.float().mean()" if isinstance(value, torch.Tensor) else "value.mean()"


def _picture(shape: tuple[int, ...], *, is_tensor: bool) -> str | None:
    """Return what makes a picture of values of such a shape; None of what looks like none."""
    if len(shape) not in (3, 4):
        return None
    if shape[-3] in _CHANNELS:
        return "value"
    last = "value.movedim(-1, -3)" if is_tensor else "numpy.moveaxis(value, -1, -3)"
    return last if shape[-1] in _CHANNELS else None


def _several_advice(line: _Line, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"Log each under a name of its own: {line.of_each('value.items()')}, or all by their own names: run.log(**value)."
    shapes = {tuple(each.shape) if isinstance(each, torch.Tensor) else () for each in value}
    if len(shapes) == 1 and _picture((len(value), *shapes.pop()), is_tensor=True) == "value":
        return f"Pictures of one size are {line.of('ts.Image(torch.stack(value))')}."
    return f"Log each under a name of its own: {line.of_each('enumerate(value)')}."
