# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for its readers: where it ran, the choices that were made for it, and its page."""

import os

from truestep.core.atomic_files import stamp_of_file
from truestep.core.errors import OptionError, RunDirectoryError
from truestep.engine.data.batch_source import BatchSource
from truestep.engine.shared_context import LearnerContext
from truestep.report import write_report
from truestep.report.run_file_names import REPORT
from truestep.run.directory import write_run_json
from truestep.run.fingerprint import run_fingerprint
from truestep.run.state import RunState


def write_run_environment(run: RunState) -> None:
    """Write what the bits of the run depend on besides its code and data, and what was given and chosen so far."""
    fingerprint = run_fingerprint(run.context.device, run.secrets.hash)
    write_run_json(run.directory / "environment.json", fingerprint)
    _write_choices(run)


def _write_choices(run: RunState) -> None:
    choices = [choice._asdict() for choice in run.context.choices]
    write_run_json(run.directory / "choices.json", run.secrets.hidden(choices))
    run.secrets.keep()


def note_data_choices(context: LearnerContext, source: BatchSource, label: str) -> None:
    """Put among the choices what a source of batches was given, and what it chose by itself."""
    order = source.fingerprint().get("order") or {}
    num_samples = {} if source.num_samples is None else {"num_samples": source.num_samples}
    given = ", ".join(f"{name}={value!r}" for name, value in {**num_samples, **order}.items())
    if given:
        context.choose(f"batches of {label}", f"Batches({given})", "given to run.data")
    source.tell_choices(lambda choice: context.note_named_choice(label, choice))


def write_run_report(run: RunState) -> None:
    """Write the choices and the report, on rank 0; what they are made of is safe, so a full disk ends nothing here."""
    if not run.is_main:
        return
    directory = run.directory
    try:
        drawn_from = _report_state_key(run)
        if run.reported == drawn_from and (directory / REPORT).exists():
            return
        _write_choices(run)
        write_report(directory)
        run.reported = drawn_from
    except (OSError, RunDirectoryError, OptionError) as error:
        later = f"ts.write_report({str(directory)!r}) makes it later"
        run.screen.say(f"the report could not be written ({error}); {later}")


def _report_state_key(run: RunState) -> tuple[object, ...]:
    """Return what tells that a report of now would be another than the last: the choices, and the run's files."""
    written = {REPORT, "choices.json"}
    with os.scandir(run.directory) as entries:
        files = [each for each in entries if each.is_file() and each.name not in written]
        stamps = {each.name: stamp_of_file(each.stat()) for each in files}
    return stamps, [*run.context.choices]
