# SPDX-License-Identifier: Apache-2.0
"""By which id a service knows a run: written in the run's directory, so that the run that goes on is the same one there."""

import json
from pathlib import Path

from truestep.core.files import replacing_file

FILE = "trackers.json"


def kept_id(directory: Path, service: str) -> str | None:
    """Return the id that a service has for the run in a directory; None where it has none yet."""
    return _ids(directory).get(service)


def keep_id(directory: Path, service: str, name: str) -> None:
    """Write down the id that a service has for the run in a directory."""
    with replacing_file(directory / FILE) as file:
        file.write(json.dumps({**_ids(directory), service: name}, indent=2).encode() + b"\n")


def _ids(directory: Path) -> dict[str, str]:
    try:
        found = json.loads((directory / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
