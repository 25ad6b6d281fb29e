# SPDX-License-Identifier: Apache-2.0
"""A run's directory: which it is, whose it is, and the JSON files in it."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from truestep.checkpoints.checkpoint_names import LOCK
from truestep.core.atomic_files import is_unfinished_file, read_regular_file, replacing_file
from truestep.core.errors import OptionError, RunDirectoryError, check_choice
from truestep.core.os_specific import is_path_with_folder, supports_long_paths
from truestep.mirror.local_mirror_state import MIRROR, read_mirror_mark
from truestep.run.options import RESUME, Resume
from truestep.run.restart_detection import LauncherJob, launcher_job
from truestep.run.secret_hashes import SALT, RunSecretsHider
from truestep.run.user_source_files import script_name

SCHEMA_VERSION = 1
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
LAUNCHED = "launched.json"
_LONGEST_BELOW = 120  # characters that a run's files have behind its folder's path
START_ANEW = (
    'To start anew beside it, write ts.Run(..., resume="anew"); to go on, give what the run was started with.'
)


class OpenedRunDirectory(NamedTuple):
    """A directory that is this run's."""

    holds_run: bool
    edits: list[str]
    """What `resume="edited"` lets the code give otherwise than the run was started with."""
    salt: str = ""
    is_salt_kept: bool = False
    is_outdated: bool = False
    """Whether its configuration is to be written anew: a secret stands there in clear, or hidden by a salt that was lost."""


def choose_run_directory(directory: Path | None, resume: Resume) -> Path:
    """Return the directory of the run; with `resume="anew"`, or where none was given, one that nobody has, made now.

    A process that its launcher started again goes on in the directory that its job was given, rather than in one more.
    """
    _check_resume(resume)
    if directory is None and resume in ("must", "edited"):
        raise OptionError(
            f"ts.Run(resume={resume!r}) goes on with a run, and no directory says which. Give it: ts.Run('runs/x', ...)."
        )
    if directory is not None and resume != "anew":
        return directory
    base = directory or Path("runs").absolute() / script_name()
    launched = launcher_job()
    if (
        launched is not None
        and launched.is_restart
        and (found := _directory_of_earlier_attempt(base, launched))
    ):
        return found
    return _make_numbered_directory(base, launched)


def _check_resume(resume: object) -> None:
    """Raise an OptionError where `resume` is none of the words that it takes, with what was meant."""
    if resume is True or resume in ("last", "latest"):
        raise OptionError(
            f'ts.Run(resume={resume!r}) is not needed: by default, resume="auto", a run goes on by itself, where it stood. '
            'resume="must" refuses to begin where there is none.'
        )
    if resume is False or resume is None:
        raise OptionError(
            f'ts.Run(resume={resume!r}) does not say what becomes of a run that is in the directory: resume="anew" starts a new '
            'one beside it, resume="never" refuses. Without resume= the run goes on.'
        )
    if isinstance(resume, Path) or (
        isinstance(resume, str) and (is_path_with_folder(resume) or Path(resume).suffix)
    ):
        raise OptionError(
            f"ts.Run(resume={str(resume)!r}) names a file, and a run goes on from the newest sound checkpoint of its own directory "
            "by itself: ts.Run('runs/x'). For the weights of another one write ts.load_weights(module, path) before run.learner."
        )
    if resume == "best":
        raise OptionError(
            "ts.Run(resume='best') asks for a checkpoint, and a run goes on from its newest sound one alone: behind an older one "
            "its metrics would be those of two runs. Leave resume= out to go on; for another run that begins with the best weights "
            "write ts.load_weights(module, 'runs/x', checkpoint='highest accuracy') above run.learner."
        )
    check_choice("ts.Run", "resume", resume, RESUME)


def _make_numbered_directory(base: Path, launched: LauncherJob | None) -> Path:
    """Make the first numbered directory that is free; two processes at once get two."""
    number = (
        max([1, *(number for number, _ in _numbered_directories(base))])
        if base.exists() or _numbered_directories(base)
        else 0
    )
    while True:
        number += 1
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Of several processes one makes it: `mkdir` is the question and the answer.
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise RunDirectoryError(f"The run directory {path} can't be made: {error.strerror}.") from error
        if launched is not None:
            write_run_json(path / LAUNCHED, {"job": launched.job, "attempts": [launched.attempt]})
        return path


def _directory_of_earlier_attempt(base: Path, launched: LauncherJob) -> Path | None:
    """Return the first directory that the job made and this attempt of it has not come to yet.

    So a job that makes several runs one after another finds each of them again, in the same order.
    """
    for _, path in [(1, base), *_numbered_directories(base)]:
        try:
            content = json.loads(read_regular_file(path / LAUNCHED))
            job, attempts = content["job"], list(content["attempts"])
        # no such file, or none that a launcher's job has left
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if job == launched.job and launched.attempt not in attempts:
            write_run_json(path / LAUNCHED, {"job": job, "attempts": [*attempts, launched.attempt]})
            return path
    return None


def _numbered_directories(base: Path) -> list[tuple[int, Path]]:
    """Return x-2, x-3 and so on beside x, in order."""
    pattern = re.compile(re.escape(base.name) + r"-([2-9]|[1-9]\d+)")
    found = [
        (int(match[1]), path)
        for path in (base.parent.iterdir() if base.parent.is_dir() else ())
        if (match := pattern.fullmatch(path.name))
    ]
    return sorted(found)


def how_to_start_or_go_on_text(directory: Path) -> str:
    """Return the end of a refusal: how to start anew, and how to go on as the code is."""
    numbers = [number for number, _ in _numbered_directories(directory)]
    new = f"{directory.name}-{max([1, *numbers]) + 1}"
    return (
        f'Two ways on: ts.Run(..., resume="anew") starts a new run beside it, in {new}; '
        'resume="edited" would go on here with what the code says now.'
    )


def changed_settings_error(kind: type[Exception], edits: Sequence[str], directory: Path) -> Exception:
    """Return the error for settings that the code gives otherwise than the run was started with."""
    listed = "\n".join(edits)
    return kind(
        f"{listed}\nA run that goes on with another value is another run. {how_to_start_or_go_on_text(directory)}"
    )


def open_run_directory(
    directory: Path,
    config: dict[str, Any],
    resume: Resume,
    *,
    hold: Callable[[], object],
    secrets: RunSecretsHider,
) -> OpenedRunDirectory:
    """Take `directory` for the run that `config` describes.

    `hold` takes its lock, before anything is written there. Raises RunDirectoryError where it holds another run, something
    else, or is not what `resume` asks for.
    """
    _check_directory_holds_run(directory, config, resume, secrets)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _refuse_too_long_path(directory)
        raise RunDirectoryError(f"The run directory {directory} can't be made: {error.strerror}.") from error
    _refuse_too_long_path(directory)
    hold()
    # again: another process may have been here before the lock
    opened = _check_directory_holds_run(directory, config, resume, secrets)
    if not opened.holds_run or (opened.is_outdated and not opened.edits):
        write_run_config(directory, config, secrets)
    return opened._replace(salt=secrets.salt, is_salt_kept=secrets.is_kept)


def _refuse_too_long_path(directory: Path) -> None:
    if not supports_long_paths(directory, _LONGEST_BELOW):
        path = str(directory.absolute())
        raise RunDirectoryError(
            f"The path of the run directory, {path}, has {len(path)} characters, and files in it "
            f"up to {_LONGEST_BELOW} more: Windows opens none of 260 or more. Give a shorter one, or switch on long paths "
            "(LongPathsEnabled, under HKEY_LOCAL_MACHINE\\SYSTEM\\CurrentControlSet\\Control\\FileSystem)."
        )


def write_run_config(directory: Path, config: dict[str, Any], secrets: RunSecretsHider) -> None:
    """Write down what the run is made with, without secrets."""
    described = secrets.hidden(config)
    secrets.keep()
    write_run_json(directory / CONFIG, {"schema_version": SCHEMA_VERSION, **described})


def _check_directory_holds_run(
    directory: Path, config: dict[str, Any], resume: Resume, secrets: RunSecretsHider
) -> OpenedRunDirectory:
    """Return whether the directory holds this run, and what was edited since."""
    secrets.open()
    path = directory / CONFIG
    if os.path.lexists(path):
        _refuse_other_library(directory)
        if resume == "never":
            raise RunDirectoryError(
                f"{directory} holds a run already, and resume='never' was asked for. Choose another directory, delete this one, "
                'or write resume="anew" for a numbered one beside it.'
            )
        there = _read_config(path)
        saved, now = (secrets.comparable(secrets.hidden(each)) for each in (there, config))
        edits = _check_config_edits(directory, saved, now, resume)
        return OpenedRunDirectory(True, edits, is_outdated=secrets.are_used and saved != there)
    if resume == "must":
        raise RunDirectoryError(
            f"{directory} holds no run to go on with (there is no {path.name}), and resume='must' was asked for."
        )
    refuse_foreign_directory(directory)
    return OpenedRunDirectory(False, [])


def _refuse_other_library(directory: Path) -> None:
    """Raise a RunDirectoryError where the configuration is not a run's: models of Hugging Face are kept beside one of that name."""
    there = _read_config(directory / CONFIG)
    if not there or "schema_version" in there:
        return
    made = next((said for key, said in _LIBRARIES.items() if key in there), "not a run's")
    raise RunDirectoryError(
        f"{directory} holds no run of Truestep: its {CONFIG} is {made}. A run would write its files among those. Give it a "
        f"directory of its own, ts.Run({f'runs/{directory.name}'!r}). The weights here are taken into the module before "
        f"run.learner: from_pretrained({str(directory)!r}) of the model's class, or ts.load_weights(module, path)."
    )


_LIBRARIES = {
    "transformers_version": "that of a model of transformers",
    "model_type": "that of a model of transformers",
    "_diffusers_version": "that of a model of diffusers",
    "architectures": "that of a model of transformers",
}


def refuse_foreign_directory(directory: Path) -> None:
    """Raise a RunDirectoryError where something else than a run is in the directory."""
    if os.path.lexists(directory / CONFIG) or read_mirror_mark(directory).is_fetching:
        return
    foreign = _foreign_file_names(directory)
    if foreign:
        raise RunDirectoryError(
            f"{directory} is not empty and holds no run of Truestep ({', '.join(foreign[:5])}). A run writes its files here and "
            "would mix them with those; give it a directory of its own."
        )


def _foreign_file_names(directory: Path) -> list[str]:
    if not directory.exists():
        return []
    if not directory.is_dir():
        raise RunDirectoryError(
            f'{directory} is a file; a run needs a directory of its own, as ts.Run("runs/{directory.name}").'
        )
    return sorted(
        entry.name
        for entry in directory.iterdir()
        if not is_unfinished_file(entry)
        and not _is_empty_checkpoint_store(entry)
        and entry.name not in (LAUNCHED, SALT, MIRROR)
    )


def _is_empty_checkpoint_store(path: Path) -> bool:
    """Whether this is what a run makes first, to hold the lock in it: there is no checkpoint yet."""
    return path.name == CHECKPOINTS and path.is_dir() and all(entry.name == LOCK for entry in path.iterdir())


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} can't be read ({error}), {_unknown_run_message(path)}") from error
    if not isinstance(content, dict):
        raise RunDirectoryError(f"{path} holds no configuration of a run, {_unknown_run_message(path)}")
    return content


def _unknown_run_message(path: Path) -> str:
    return (
        "so it can't be told whose directory this is. To go on here, put back a copy of that file, as the run wrote it; "
        f'ts.Run(..., resume="anew") starts a new run beside it and leaves {path.parent} as it is.'
    )


def _check_config_edits(
    directory: Path, saved: dict[str, Any], config: dict[str, Any], resume: Resume
) -> list[str]:
    """Return what differs where that was allowed; raise where not."""
    # By which metric the best is saved may change: it says nothing of what is trained.
    before, now = (
        _flatten_settings({key: value for key, value in each.items() if key != "best"})
        for each in (saved, {"schema_version": SCHEMA_VERSION, **config})
    )
    keys = [
        key for key in sorted(before.keys() | now.keys()) if not _is_same_value(before.get(key), now.get(key))
    ]
    if keys and (resume != "edited" or "schema_version" in keys):
        listed = "\n".join(
            f"  {key}: {_value_text(before, key)} there, {_value_text(now, key)} now" for key in keys
        )
        raise RunDirectoryError(
            f"{directory} holds another run:\n{listed}\nGoing on with other settings gives a run that is neither. "
            f"{how_to_start_or_go_on_text(directory)}"
        )
    return [f"{key}={_value_text(now, key)}, before {_value_text(before, key)}" for key in keys]


def _is_same_value(before: Any, now: Any) -> bool:
    return bool(before == now) or repr(before) == repr(now) == "nan"  # NaN is unequal to itself


def _value_text(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"


def _flatten_settings(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= _flatten_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def write_run_json(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one."""
    try:
        with replacing_file(path) as file:
            file.write(json.dumps(content, indent=2, default=str).encode())
    except OSError as error:
        raise RunDirectoryError(
            f"{path} can't be written: {error.strerror}. The run keeps its files there."
        ) from error
