# SPDX-License-Identifier: Apache-2.0
"""Which pictures, sounds and texts a report shows, and what is in them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from truestep.core.atomic_files import read_regular_file
from truestep.core.text_formatting import bytes_text
from truestep.report.media import MAX_MEDIA_BYTES, MEDIA, MediaFileEntry

MAX_SHOWN = 12  # of one name: the first, the last, and steps in between at even distances
MAX_BYTES = 16 << 20  # in all, since the page holds them


@dataclass(frozen=True, kw_only=True)
class MediaOnPage:
    """One file: `content` is None where it can't be shown, and then the note says why."""

    step: int
    kind: str
    file: str
    note: str
    content: bytes | None


@dataclass(frozen=True, kw_only=True)
class ReportedMedia:
    """What was logged under one name, as far as it is shown, in the order of steps."""

    name: str
    num_logged: int
    shown: list[MediaOnPage]


def read_reported_media(
    directory: Path, lines: Iterable[tuple[int, str, MediaFileEntry]]
) -> list[ReportedMedia]:
    """Read the files that are shown; the newest come first where they don't all fit into the page."""
    by_name: dict[str, list[tuple[int, MediaFileEntry]]] = {}
    for step, name, line in lines:
        by_name.setdefault(name, []).append((step, line))
    room, groups = MAX_BYTES, []
    for name, logged in by_name.items():
        shown: list[MediaOnPage] = []
        for step, line in reversed(_choose_evenly_spaced(logged)):
            content, problem = _read_media_content(directory, line.file, room)
            room -= len(content or b"")
            note = "; ".join(filter(None, [line.note, problem]))
            shown.insert(
                0, MediaOnPage(step=step, kind=line.kind, file=line.file, note=note, content=content)
            )
        groups.append(ReportedMedia(name=name, num_logged=len(logged), shown=shown))
    return groups


def _choose_evenly_spaced(logged: list[tuple[int, MediaFileEntry]]) -> list[tuple[int, MediaFileEntry]]:
    """Return at most MAX_SHOWN of them, the first and the last among these."""
    if len(logged) <= MAX_SHOWN:
        return logged
    return [logged[number * (len(logged) - 1) // (MAX_SHOWN - 1)] for number in range(MAX_SHOWN)]


def _read_media_content(directory: Path, file: str, room: int) -> tuple[bytes | None, str]:
    path = directory / file
    try:
        if (directory / MEDIA).is_symlink() or path.parent.is_symlink():
            return None, f"{file} lies behind a link"
        size = path.stat().st_size
        if size > min(room, MAX_MEDIA_BYTES):
            return None, f"{file} ({bytes_text(size)}) would make this page too large"
        return read_regular_file(path), ""
    except OSError as error:
        return None, f"{file} could not be read: {error.strerror}"
