# SPDX-License-Identifier: Apache-2.0
"""A run's directory: whose it is, and the JSON files in it."""

import json
from pathlib import Path
from typing import Any

from truestep.errors import OptionError, RunDirectoryError, nearest
from truestep.run.files import is_partial, replacing
from truestep.run.options import RESUME, Resume

SCHEMA_VERSION = 1


def open_directory(directory: Path, config: dict[str, Any], resume: Resume) -> bool:
    """Take `directory` for the run that `config` describes; return whether it holds that run already.

    Raises RunDirectoryError where it holds another run, something else, or is not what `resume` asks for.
    """
    if resume not in RESUME:
        raise OptionError(f"resume={resume!r} is not known. {nearest(str(resume), RESUME)}")
    path = directory / "config.json"
    holds_run = path.exists()
    if holds_run:
        if resume == "never":
            raise RunDirectoryError(
                f"{directory} holds a run already, and resume='never' was asked for. Choose another directory, or delete this one."
            )
        _compare(directory, _read(path), config)
        return True
    if resume == "must":
        raise RunDirectoryError(
            f"{directory} holds no run to go on with (there is no {path.name}), and resume='must' was asked for."
        )
    foreign = _foreign(directory)
    if foreign:
        raise RunDirectoryError(
            f"{directory} is not empty and holds no run of Truestep ({', '.join(foreign[:5])}). A run writes its files here and "
            "would mix them with those; give it a directory of its own."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"The run directory {directory} can't be made: {error.strerror}.") from error
    write_json(path, {"schema_version": SCHEMA_VERSION, **config})
    return False


def _foreign(directory: Path) -> list[str]:
    if not directory.exists():
        return []
    if not directory.is_dir():
        raise RunDirectoryError(f"{directory} is a file; a run needs a directory of its own.")
    return sorted(entry.name for entry in directory.iterdir() if not is_partial(entry))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(
            f"{path} can't be read ({error}), so it can't be told whose directory this is."
        ) from error
    if not isinstance(content, dict):
        raise RunDirectoryError(
            f"{path} holds no configuration of a run, so it can't be told whose directory this is."
        )
    return content


def _compare(directory: Path, saved: dict[str, Any], config: dict[str, Any]) -> None:
    before, now = _flat(saved), _flat({"schema_version": SCHEMA_VERSION, **config})
    differences = [
        f"  {key}: {_shown(before, key)} there, {_shown(now, key)} now"
        for key in sorted(before.keys() | now.keys())
        if not _same(before.get(key), now.get(key))
    ]
    if differences:
        raise RunDirectoryError(
            f"{directory} holds another run:\n"
            + "\n".join(differences)
            + "\nGoing on with other settings would give a run that is "
            "neither. Use the settings it was started with, or another directory."
        )


def _same(before: Any, now: Any) -> bool:
    return bool(before == now) or repr(before) == repr(now) == "nan"  # NaN is unequal to itself


def _shown(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one."""
    try:
        with replacing(path) as file:
            file.write(json.dumps(content, indent=2, default=str).encode())
    except OSError as error:
        raise RunDirectoryError(
            f"{path} can't be written: {error.strerror}. The run keeps its files there."
        ) from error
