# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor`: read a script, run it under watch, say what is wrong with it."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console

from truestep.cli.read import (
    FAIL_ON,
    IGNORE,
    PREVIEW,
    SELECT,
    ReadOutput,
    tell_files_read,
    tell_passed_over,
)
from truestep.cli.usage import refuse_command_option
from truestep.core.errors import OptionError
from truestep.doctor.finding import Severity
from truestep.doctor.kept import source_readings_folder
from truestep.doctor.reading import SourceReading
from truestep.doctor.selection import configured_selection
from truestep.explainer.explain import annotate_error

if TYPE_CHECKING:
    from truestep.doctor.report import WatchedRunReport
    from truestep.doctor.runtime.script import WatchedScript
    from truestep.doctor.runtime.watch import Watch

app = typer.Typer(add_completion=False)
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@app.command(context_settings=PASS_ON)
def doctor(
    context: typer.Context,
    script: Annotated[
        str | None, typer.Argument(help="The script, or notebook, to run.", metavar="FILE.py")
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments, passed on.")] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", help="Run this module, as `python -m` does; all that follows is passed on."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many optimizer steps.")] = None,
    select: Annotated[list[str] | None, SELECT] = None,
    ignore: Annotated[list[str] | None, IGNORE] = None,
    preview: Annotated[bool, PREVIEW] = False,
    fail_on: Annotated[Severity, FAIL_ON] = Severity.BUG,
    baseline: Annotated[Path | None, typer.Option(help="Hide the findings that this file holds.")] = None,
    output: Annotated[ReadOutput, typer.Option(help="How to print the report.")] = ReadOutput.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    report_to: Annotated[
        Path | None, typer.Option("--report", help="Write the report to this file instead of printing it.")
    ] = None,
    experiments: Annotated[
        bool,
        typer.Option(
            "--experiments/--no-experiments",
            "--probe/--no-probe",
            help="Apply the model once more at the first step, in a sealed child.",
        ),
    ] = True,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Also try to learn one batch, in a sealed child.")
    ] = False,
) -> None:
    """Read a training script or notebook, run it under watch, and say what is wrong with it.

    The script runs as with `python FILE.py ARGUMENTS`: same output, same random numbers, same weights.
    The report goes to stderr; with --output json or sarif it is the one document on stdout, and what the
    script prints goes to stderr. The exit status is the script's own if it failed, else 1 with findings at
    or above --fail-on, else 0.
    """
    from truestep.doctor.runtime.script import WatchedScript
    from truestep.doctor.runtime.watch import Watch, WatchOptions

    rest = arguments or []
    if module is None and script is None:
        raise typer.BadParameter("Name the script to run, or a module with -m.", param_hint="FILE.py")
    if module is None:
        refuse_command_option(str(script), context)
    to_run = WatchedScript(
        module or str(script), module is not None, (*([script] if module and script else []), *rest)
    )
    selection = configured_selection(Path.cwd(), select or [], ignore or [], baseline, preview=preview)
    output = ReadOutput.JSON if as_json else output
    watch = Watch(
        WatchOptions(selection, max_steps=steps, probe=experiments, thorough=thorough, is_of_command=True)
    )
    if report_to is not None and not report_to.resolve().parent.is_dir():
        raise OptionError(f"There is no folder {str(report_to.parent)!r} to write the report to.")
    with _streams(output is not ReadOutput.TEXT and report_to is None) as (stdout, stderr):
        delivery = CommandReportDelivery(output, report_to, stdout, stderr, fail_on)
        status = _doctored(to_run, watch, delivery)
    raise typer.Exit(status)


@dataclass(frozen=True)
class CommandReportDelivery:
    """How the report is given, and where."""

    output: ReadOutput
    path: Path | None
    stdout: TextIO
    stderr: TextIO
    fail_on: Severity

    def deliver(self, report: "WatchedRunReport") -> int:
        """Print or write the report; return the status to end with."""
        from truestep.doctor.reporting.documents import sarif_document
        from truestep.doctor.reporting.terminal import show_run

        if self.output is ReadOutput.TEXT and self.path is None:
            show_run(report, Console(file=self.stderr, highlight=False), beside_script=True)
        elif self.output is ReadOutput.TEXT and self.path is not None:
            with self.path.open("w", encoding="utf-8") as file:
                show_run(report, Console(file=file, highlight=False, width=100), beside_script=False)
        else:
            document = report.to_dict() if self.output is ReadOutput.JSON else sarif_document(report.findings)
            text = json.dumps(document, indent=2) + "\n"
            if self.path is None:
                self.stdout.write(text)
            else:
                self.path.write_text(text, "utf-8")
        self.stdout.flush()
        self.stderr.flush()
        worst = min((each.severity.rank for each in report.findings), default=99)
        return report.outcome.status or int(worst <= self.fail_on.rank)


def _doctored(script: "WatchedScript", watch: "Watch", delivery: CommandReportDelivery) -> int:
    """Read and run the target, have the report given by the process whose task that is, return the status."""
    from truestep.doctor.report import make_report
    from truestep.doctor.runtime.children import gathered_notes, reports_for_all, watched_children
    from truestep.doctor.runtime.notes import WatchNotesFolder
    from truestep.doctor.runtime.running import ScriptOutcome, run_watched
    from truestep.doctor.script_reading import ScriptSources

    shared = WatchNotesFolder.of_this_run()
    sources = ScriptSources(script, watch.options.selection, source_readings_folder())
    reading = sources.read(tell_files_read) if reports_for_all(shared) else SourceReading()
    started = time.perf_counter()
    with watched_children(watch, shared) as folder:

        def speak(outcome: ScriptOutcome) -> int:
            others = gathered_notes(watch, folder(), is_shared=shared is not None, wait=outcome.status == 0)
            if others is None:
                return outcome.status
            seconds = time.perf_counter() - started
            reading.add(sources.read_imported())
            tell_passed_over(watch.options.selection, reading)
            return delivery.deliver(
                make_report(reading, watch, outcome, seconds, others=others, script=script)
            )

        return run_watched(script, watch, speak, annotate_error)


@contextlib.contextmanager
def _streams(stdout_kept_free: bool) -> Iterator[tuple[TextIO, TextIO]]:
    """Yield stdout and stderr as they are now, whatever the script does to them.

    Where stdout is kept free, all that is printed to it, also by libraries and child processes, goes to stderr.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout, os.fdopen(os.dup(2), "w") as stderr:
        if stdout_kept_free:
            os.dup2(2, 1)
        try:
            yield stdout, stderr
        finally:
            if stdout_kept_free:
                with contextlib.suppress(OSError, ValueError):  # the script may have closed it
                    sys.stdout.flush()
                os.dup2(stdout.fileno(), 1)
