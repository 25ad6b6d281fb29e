# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for its readers when it ends: the choices that were made for it, and its page."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from truestep.core.errors import RunDirectoryError
from truestep.report import write_report
from truestep.run.directory import write_json

if TYPE_CHECKING:
    from truestep.run.run import Run


def leave_report(run: "Run", say: Callable[[str], None]) -> None:
    """Write the choices and the report; what they are made of is safe, so a full disk ends nothing here."""
    if not run.is_main:
        return
    try:
        write_json(run.directory / "choices.json", [choice._asdict() for choice in run.context.choices])
        write_report(run.directory)
    except (OSError, RunDirectoryError) as error:
        later = f"ts.write_report({str(run.directory)!r}) makes it later"
        say(f"the report could not be written ({error}); {later}")
