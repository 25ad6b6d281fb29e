# SPDX-License-Identifier: Apache-2.0
"""By which id a service knows a run: written in the run's directory, so that the run that goes on is the same one there."""

import json
from pathlib import Path

from truestep.core.atomic_files import replacing_file

FILE = "trackers.json"


def read_tracker_id(directory: Path, service: str) -> str | None:
    """Return the id that a service has for the run in a directory; None where it has none yet."""
    return _read_tracker_ids(directory).get(service)


def write_tracker_id(directory: Path, service: str, name: str) -> None:
    """Write down the id that a service has for the run in a directory."""
    with replacing_file(directory / FILE) as file:
        file.write(json.dumps({**_read_tracker_ids(directory), service: name}, indent=2).encode() + b"\n")


def _read_tracker_ids(directory: Path) -> dict[str, str]:
    try:
        found = json.loads((directory / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
