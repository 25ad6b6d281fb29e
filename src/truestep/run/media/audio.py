# SPDX-License-Identifier: Apache-2.0
"""Sound, as a WAV file of 16 bits."""

import io
import wave as wav
from typing import Any

import numpy as np

from truestep.core.errors import OptionError
from truestep.run.media.kind import EncodedMedia, media_values_on_host, scale_to_integers

MAX_CHANNELS = 8


class Audio(EncodedMedia):
    """Sound for `run.log(speech=ts.Audio(wave, 16_000))`.

    Args:
        wave: a tensor or array (samples,) or (channels, samples): floats from -1 to 1, or int16.
        rate: samples per second.

    Values outside are cut off and those that are not finite are 0, and the report says how many.
    Raises OptionError for other shapes and types, and where the file would be larger than 4 MiB (two minutes at 16 kHz).
    """

    kind = "audio"
    suffix = ".wav"
    advice = "Bring the wave to -1 ... 1: wave / wave.abs().max()"

    def __init__(self, wave: Any, rate: int) -> None:
        array = media_values_on_host(wave, of="ts.Audio")
        if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[0] > MAX_CHANNELS):
            raise OptionError(
                f"ts.Audio was given shape {array.shape}; it takes one sound, (samples,) or (channels, samples) with at most "
                f"{MAX_CHANNELS} channels. Of a batch, log each under its own name."
            )
        if array.dtype not in (np.int16, np.float32):
            raise OptionError(f"ts.Audio was given {array.dtype}; it takes floats from -1 to 1, or int16.")
        if type(rate) is not int or not 0 < rate < 2**31:
            raise OptionError(
                f"ts.Audio(wave, {rate!r}): give the samples per second as a whole number, 16_000 say."
            )
        note = ""
        if array.dtype != np.int16:
            whole, note = scale_to_integers(array, -1.0, 1.0, most=2 * 32767, blank=0.0)
            array = whole - 32767
        channels = np.atleast_2d(array).astype("<i2")
        super().__init__(_encode_wav(channels.T.tobytes(), len(channels), rate), note)


def _encode_wav(samples: bytes, channels: int, rate: int) -> bytes:
    file = io.BytesIO()
    with wav.open(file, "wb") as writer:
        writer.setparams((channels, 2, rate, 0, "NONE", ""))
        writer.writeframes(samples)
    return file.getvalue()
