# SPDX-License-Identifier: Apache-2.0
"""A picture, or several in a grid, as a PNG file."""

import math
import struct
import zlib
from typing import Any

import numpy as np

from truestep.core.errors import OptionError
from truestep.run.media.kind import EncodedMedia, Values, media_values_on_host, scale_to_integers

COLOURS = {1: 0, 3: 2, 4: 6}  # PNG's colour types by channels: grey, RGB, RGB with opacity
SHAPES = (
    "(height, width), (channels, height, width) or (batch, channels, height, width), with 1, 3 or 4 channels"
)


class Image(EncodedMedia):
    """A picture for `run.log(samples=ts.Image(pixels))`.

    Args:
        pixels: a tensor or array (height, width), (channels, height, width) or (batch, channels, height, width) with 1 channel
            (grey), 3 (red, green, blue) or 4 (and opacity); a batch becomes a grid. uint8, or floats from `low` to `high`.
        low: the value that is black; -1 for a generator that ends in tanh.
        high: the value that is white.
        columns: pictures in a row of the grid; as many as make it square by default.

    Values outside are cut off and those that are not finite are black, and the report says how many.
    Raises OptionError for other shapes and types, and where the file would be larger than 4 MiB.
    """

    kind = "image"
    suffix = ".png"
    advice = (
        "Say which values are black and white: ts.Image(pixels, low=-1.0, high=1.0) for what ends in tanh"
    )

    def __init__(
        self, pixels: Any, *, low: float = 0.0, high: float = 1.0, columns: int | None = None
    ) -> None:
        array = media_values_on_host(pixels, of="ts.Image")
        _check_image_values(array, low, high, columns)
        note = ""
        if array.dtype != np.uint8:
            array, note = scale_to_integers(array, low, high, most=255, blank=low)
        while array.ndim < 4:
            array = array[None]
        super().__init__(_encode_png(_image_grid(array.astype(np.uint8), columns)), note)


def _check_image_values(array: Values, low: float, high: float, columns: int | None) -> None:
    channels = array.shape[-3] if array.ndim > 2 else 1
    if array.ndim not in (2, 3, 4) or channels not in COLOURS:
        last = array.ndim > 2 and array.shape[-1] in COLOURS
        raise OptionError(
            f"ts.Image was given shape {array.shape}; it takes {SHAPES}."
            + (
                " Here the channels seem to stand last: move them with torch.movedim(pixels, -1, -3)."
                if last
                else ""
            )
        )
    if array.dtype not in (np.uint8, np.float32):
        raise OptionError(
            f"ts.Image was given {array.dtype}; it takes uint8 from 0 to 255, or floats from low to high."
        )
    if not low < high or not math.isfinite(high - low):
        raise OptionError(
            f"ts.Image(low={low}, high={high}): low is the black and high the white value, so low < high."
        )
    if columns is not None and columns < 1:
        raise OptionError(f"ts.Image(columns={columns}): give at least 1 picture in a row.")


def _image_grid(images: Values, columns: int | None) -> Values:
    """Lay (batch, channels, height, width) out in rows, one dark pixel between two; return (height, width, channels)."""
    num_images, channels, height, width = images.shape
    if num_images == 1:
        return np.moveaxis(images[0], 0, -1)
    columns = min(columns or math.ceil(math.sqrt(num_images)), num_images)
    rows = math.ceil(num_images / columns)
    cells = np.zeros((rows * columns, channels, height + 1, width + 1), np.uint8)
    cells[:num_images, :, :height, :width] = images
    table = cells.reshape(rows, columns, channels, height + 1, width + 1).transpose(0, 3, 1, 4, 2)
    return table.reshape(rows * (height + 1), columns * (width + 1), channels)[:-1, :-1]


def _encode_png(pixels: Values) -> bytes:
    """Encode (height, width, channels) of uint8 by the PNG specification, without filters."""
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter: 0, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
