# SPDX-License-Identifier: Apache-2.0
"""From which line of which file a stream was reading when it raised: a broken row among millions is found by nothing else."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from truestep.core.user_frames import is_library_file

_MOST_BYTES = 1 << 28  # of a file that is gone through for a line
_LONGEST_NAME = 200


def describe_file_line(error: BaseException) -> str:
    """Return ", from line 24 of data/1.jsonl" where the error's frames hold both; the file alone, or nothing, where they don't."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    at = next((at for at in range(len(frames) - 1, -1, -1) if any(_files_in_frame(frames[at]))), None)
    if at is None:
        return ""
    opened, named = _files_in_frame(frames[at])
    # what was read is handed on inwards, to json.loads, say
    texts = {text.strip() for frame in frames[at:] for text in _texts_as_bytes(frame.f_locals.values())} - {
        b""
    }
    for path in [*opened, *named]:
        if (number := _only_matching_line(path, texts)) is not None:
            return f", from line {number:,} of {path}"
    likely = opened or named
    return f", from {likely[0]}" if len(likely) == 1 else ""


def _files_in_frame(frame: FrameType) -> tuple[list[str], list[str]]:
    """Return the files that a frame of the user's holds: open ones, and names of others."""
    opened: dict[str, None] = {}
    named: dict[str, None] = {}
    if is_library_file(frame.f_code.co_filename):
        return [], []
    for value in frame.f_locals.values():
        name = getattr(value, "name", None) if isinstance(value, io.IOBase) else value
        if isinstance(name, str | Path) and len(str(name)) < _LONGEST_NAME and Path(name).is_file():
            (opened if name is not value else named)[str(name)] = None
    return [*opened], [*(named.keys() - opened.keys())]


def _texts_as_bytes(values: Iterable[Any]) -> Iterator[bytes]:
    for value in values:
        if isinstance(value, str | bytes):
            yield value.encode(errors="replace") if isinstance(value, str) else value


def _only_matching_line(path: str, texts: set[bytes]) -> int | None:
    """Return the number of the only line of a file that is one of these texts."""
    found: int | None = None
    try:
        if Path(path).stat().st_size > _MOST_BYTES:
            return None
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip() in texts:
                    if found is not None:
                        return None
                    found = number
    except OSError:
        return None
    return found
