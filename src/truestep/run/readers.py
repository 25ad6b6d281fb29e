# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for its readers when it ends: the choices that were made for it, and its page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from truestep.core.errors import RunDirectoryError
from truestep.engine.choices import Choice
from truestep.report import write_report
from truestep.run.directory import write_run_json


def leave_run_report(directory: Path, choices: Sequence[Choice], say: Callable[[str], None]) -> None:
    """Write the choices and the report; what they are made of is safe, so a full disk ends nothing here."""
    try:
        write_run_json(directory / "choices.json", [choice._asdict() for choice in choices])
        write_report(directory)
    except (OSError, RunDirectoryError) as error:
        later = f"ts.write_report({str(directory)!r}) makes it later"
        say(f"the report could not be written ({error}); {later}")
