# SPDX-License-Identifier: Apache-2.0
"""What every kind of media has: the bytes of its file, and what was lost on the way there."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from truestep.core.errors import OptionError
from truestep.core.text_formatting import bytes_text
from truestep.report.media import MAX_MEDIA_BYTES

Values = NDArray[Any]


class EncodedMedia:
    """One file that `run.log` writes; encoded at once, so that a later change of the tensor changes nothing."""

    kind: ClassVar[str]
    suffix: ClassVar[str]
    advice: ClassVar[str] = ""
    """What to write where values were cut off."""

    def __init__(self, content: bytes, note: str = "") -> None:
        self.content = content
        self.note = note
        """What the file does not show as it was: values that were cut off, or not finite."""
        if len(content) > MAX_MEDIA_BYTES:
            raise OptionError(
                f"ts.{type(self).__name__}: this takes {bytes_text(len(content))}, and a run keeps at most "
                f"{bytes_text(MAX_MEDIA_BYTES)} in one file of media, since the report holds them all. Log fewer, smaller or "
                "shorter ones, or write a file of your own into run.directory."
            )

    def __repr__(self) -> str:
        return f"ts.{type(self).__name__}({bytes_text(len(self.content))})"


def media_values_on_host(values: Any, *, of: str) -> Values:
    """Return a tensor's or an array's values on the host: uint8, int16 or float32; this waits for a device."""
    if isinstance(values, torch.Tensor):
        values = values.detach()
        array: Values = (values.float() if values.is_floating_point() else values).cpu().numpy()
    elif isinstance(values, np.ndarray):
        array = values
    else:
        from truestep.run.logged_value_errors import values_advice

        raise OptionError(
            f"{of} was given {type(values).__name__} {str(values)[:60]!r}; it takes the values, a tensor or a NumPy array."
            f"{values_advice(values)}"
        )
    if array.size == 0:
        raise OptionError(f"{of} was given shape {array.shape}, which holds no value.")
    if array.dtype.kind in "fb":
        return array.astype(np.float32)
    return array


def scale_to_integers(
    values: Values, low: float, high: float, *, most: int, blank: float
) -> tuple[Values, str]:
    """Map [low, high] to whole numbers from 0 to `most`; return them with a note on what did not fit.

    What is not finite becomes `blank`.
    """
    finite = np.isfinite(values)
    outside = int(((values < low) | (values > high))[finite].sum())
    spoilt = values.size - int(finite.sum())
    share = np.clip((np.where(finite, values, blank) - low) / (high - low), 0.0, 1.0)
    notes = [
        f"{spoilt:,} of {values.size:,} values are not finite and stand as {blank:g}" if spoilt else "",
        f"{outside:,} of {values.size:,} values lie outside [{low:g}, {high:g}] and are cut off"
        if outside
        else "",
    ]
    return np.rint(share * most), "; ".join(filter(None, notes))
