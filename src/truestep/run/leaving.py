# SPDX-License-Identifier: Apache-2.0
"""How a run leaves its process, and what it says where it has nothing to do."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from truestep.core.errors import RunDirectoryError
from truestep.engine.choices import Choice
from truestep.report import write_report
from truestep.run.cursor import Cursor
from truestep.run.directory import write_json
from truestep.run.notebook import is_interactive


def nothing_is_left(directory: Path, cursor: Cursor, done: str, call: str) -> str:
    """Say that a run is over, and how to start anew or to make it longer."""
    done = f"{done} already"
    more = f"give {call} a larger number to make it longer"
    if cursor.finished:
        done = f"run.finish() ended this run at step {cursor.step}"
        more = 'resume="edited" takes it up where it was ended'
    return f'{done}; nothing is left to train. ts.Run(..., resume="anew") starts a new run beside {directory}, {more}'


def id_of(error: BaseException | None) -> int | None:
    """Return what an exception is recognised by; to keep it would keep every tensor in its frames."""
    return None if error is None else id(error)


def leave_process(status: int) -> NoReturn:
    """Leave the process, or the notebook's cell."""
    if is_interactive():
        raise KeyboardInterrupt
    raise SystemExit(status)


def write_end(directory: Path, choices: Iterable[Choice], say: Callable[[str], None]) -> None:
    """Write the choices and the report; what they are made of is safe, so a full disk ends nothing here."""
    try:
        write_json(directory / "choices.json", [choice._asdict() for choice in choices])
        write_report(directory)
    except (OSError, RunDirectoryError) as error:
        say(f"the report could not be written ({error}); ts.write_report({str(directory)!r}) makes it later")
