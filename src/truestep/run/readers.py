# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for its readers: where it ran, the choices that were made for it, and its page."""

from truestep.core.errors import RunDirectoryError
from truestep.report import write_report
from truestep.run.directory import write_run_json
from truestep.run.fingerprint import run_fingerprint
from truestep.run.state import RunState


def write_run_environment(run: RunState) -> None:
    """Write what the bits of the run depend on besides its code and data."""
    fingerprint = run_fingerprint(run.context.device, run.secrets.hash)
    write_run_json(run.directory / "environment.json", fingerprint)
    run.secrets.keep()


def leave_run_report(run: RunState) -> None:
    """Write the choices and the report; what they are made of is safe, so a full disk ends nothing here."""
    directory = run.directory
    try:
        choices = [choice._asdict() for choice in run.context.choices]
        write_run_json(directory / "choices.json", run.secrets.hidden(choices))
        run.secrets.keep()
        write_report(directory)
    except (OSError, RunDirectoryError) as error:
        later = f"ts.write_report({str(directory)!r}) makes it later"
        run.screen.say(f"the report could not be written ({error}); {later}")
