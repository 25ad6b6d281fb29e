# SPDX-License-Identifier: Apache-2.0
"""What a line of metrics says of pictures, sound and text: where each lies under the run's directory."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

MEDIA = "media"
MAX_MEDIA_BYTES = 4 << 20  # the report holds all of them in one page
MEDIA_SUFFIXES = {"image": ".png", "audio": ".wav", "text": ".txt"}

# As a run writes it. A line that was changed can't lead out of the folder.
_FILE = re.compile(rf"{MEDIA}/[\w%-][\w%.-]*/[0-9]+(-[0-9]+)?\.[a-z]+", re.ASCII)


class MediaFileEntry(NamedTuple):
    """One file of media: its kind, its path from the run's directory, and what it does not show as it was."""

    kind: str
    file: str
    note: str = ""


def encode_media(media: Mapping[str, MediaFileEntry]) -> dict[str, dict[str, str]]:
    """Return what stands in the line of metrics, by name; an empty note is left out."""
    return {
        name: {key: value for key, value in line._asdict().items() if value} for name, line in media.items()
    }


def decode_media(found: Any) -> dict[str, MediaFileEntry]:
    """Return the media of a line; what was not written so is left out."""
    if not isinstance(found, dict):
        return {}
    lines = {name: _decode_media_entry(entry) for name, entry in found.items() if name and name.isprintable()}
    return {name: line for name, line in lines.items() if line is not None}


def _decode_media_entry(entry: Any) -> MediaFileEntry | None:
    if not isinstance(entry, dict):
        return None
    kind, file, note = (entry.get(key, "") for key in MediaFileEntry._fields)
    if not all(isinstance(each, str) for each in (kind, file, note)):
        return None
    fits = kind in MEDIA_SUFFIXES and _FILE.fullmatch(file) and file.endswith(MEDIA_SUFFIXES[kind])
    return MediaFileEntry(kind, file, note) if fits else None
