# SPDX-License-Identifier: Apache-2.0
"""Bytes and durations as people write them: "20GiB", "1h30m"."""

import math
import re

from truestep.core.errors import OptionError

_BINARY = {"": 1, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)


def parse_bytes(size: str | float) -> int:
    """Return the bytes that "20GiB", "512 MiB", "80GB" (decimal) or a plain number means."""
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        raise OptionError(
            f"{size!r} is no amount of memory. Write a number of bytes, or one with a unit: "
            "20GiB and 512MiB are powers of 1024, 20GB and 512MB are powers of 1000."
        )
    unit = (match[2] or "").lower()
    return math.ceil(float(match[1]) * {**_BINARY, **_DECIMAL}[unit])


def parse_seconds(duration: str | float) -> float:
    """Return the seconds that "30m", "1h30m", "2d" or a plain number means."""
    text = str(duration).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise OptionError(
            f"{duration!r} is no duration. Write seconds, or numbers with units: 90, 90s, 30m, 1h30m, 2d."
        )
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
