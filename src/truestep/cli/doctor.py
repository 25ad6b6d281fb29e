# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor`: read a script, run it under watch, say what is wrong with it."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from truestep.cli.read import (
    FAIL_ON,
    IGNORE,
    PREVIEW,
    SELECT,
    SHOW_ABSTENTIONS,
    ReadOutputFormat,
    findings_text,
    show_reading_progress,
    warn_of_retired_checks,
)
from truestep.cli.script_options import (
    CommandWithModuleOption,
    OptionsBehindFile,
    missing_script_arguments_hint,
)
from truestep.cli.usage import refuse_command_option
from truestep.core.atomic_files import explain_unwritable
from truestep.core.rich_imports import Console
from truestep.doctor.finding import Severity
from truestep.doctor.findings_cache import source_readings_folder
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.runtime.at_exit import WatchReportAtExit
from truestep.doctor.selection import configured_selection
from truestep.explainer.explain import annotate_error

if TYPE_CHECKING:
    from truestep.doctor.report import WatchedRunReport
    from truestep.doctor.runtime.script import WatchedScript
    from truestep.doctor.runtime.watch import Watch

app = typer.Typer(add_completion=False)
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def _say_nothing_began(status: int) -> int:
    sys.stderr.write(
        f"truestep doctor: ended with status {status} before the first line of the script ran, while PyTorch was loaded and the "
        "script was read: nothing was seen of it. Give it more time.\n"
    )
    return status


@app.command(cls=CommandWithModuleOption, context_settings=PASS_ON)
@WatchReportAtExit(_say_nothing_began)
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
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many steps of the first optimizer that steps.")
    ] = None,
    select: Annotated[list[str] | None, SELECT] = None,
    ignore: Annotated[list[str] | None, IGNORE] = None,
    preview: Annotated[bool, PREVIEW] = False,
    fail_on: Annotated[Severity, FAIL_ON] = Severity.RISK,
    baseline: Annotated[Path | None, typer.Option(help="Hide the findings that this file holds.")] = None,
    output: Annotated[
        ReadOutputFormat, typer.Option(help="How to print the report.")
    ] = ReadOutputFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    report_to: Annotated[
        Path | None,
        typer.Option("--out", "--report", help="Write the report to this file instead of printing it."),
    ] = None,
    abstentions: Annotated[bool, SHOW_ABSTENTIONS] = False,
    experiments: Annotated[
        bool,
        typer.Option(
            "--experiments/--no-experiments",
            "--probe/--no-probe",
            help="Try the model, and relations of the training, in sealed children; more with --preview.",
        ),
    ] = True,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Also try to learn one batch, in a sealed child.")
    ] = False,
    cpu: Annotated[
        bool,
        typer.Option(
            "--cpu",
            help="Hide the cards, and take what the script asks of CUDA to the CPU: children need it.",
        ),
    ] = False,
) -> None:
    """Read a training script or notebook, run it under watch, and say what is wrong with it.

    The script runs as with `python FILE.py ARGUMENTS`: same output, same random numbers, same weights.
    Options of the doctor stand before FILE.py: what follows it is the script's. The report goes to stderr;
    with another --output than text it is all of stdout, and what the script prints goes to stderr. The exit
    status is the script's own if it failed, else 1 with findings at or above --fail-on, else 0.
    """
    from truestep.doctor.runtime.cuda_to_cpu import script_on_cpu
    from truestep.doctor.runtime.script import WatchedScript
    from truestep.doctor.runtime.watch import Watch, WatchOptions

    rest = arguments or []
    if module is None and script is None:
        raise typer.BadParameter("Name the script to run, or a module with -m.", param_hint="FILE.py")
    if module is None:
        refuse_command_option(str(script), context)
    rest = [*([script] if module and script else []), *rest]
    to_run = WatchedScript(module or str(script), module is not None, tuple(rest))
    named = [str(script)] if module is None else ["-m", module]
    selection = configured_selection(Path.cwd(), select or [], ignore or [], baseline, preview=preview)
    output = ReadOutputFormat.JSON if as_json else output
    watch = Watch(
        WatchOptions(selection, max_steps=steps, probe=experiments, thorough=thorough, is_of_command=True)
    )
    if report_to is not None:
        with explain_unwritable("The report", report_to):  # before a training of hours
            report_to.open("a").close()
    with _stdout_and_stderr(output is not ReadOutputFormat.TEXT and report_to is None) as (stdout, stderr):
        behind = OptionsBehindFile.among(context, named, rest, _read_script_text(to_run))
        delivery = DoctorReportDelivery(
            output, report_to, stdout, stderr, fail_on, abstentions, behind, (named, rest)
        )
        with script_on_cpu() if cpu else contextlib.nullcontext():
            status = _read_and_run_script(to_run, watch, delivery)
    raise typer.Exit(status)


def _read_script_text(script: "WatchedScript") -> str:
    """Return the script's text, to see which names it knows."""
    with contextlib.suppress(OSError):
        return "".join(each.read_text("utf-8", errors="replace") for each in script.sources())
    return ""


@dataclass(frozen=True)
class DoctorReportDelivery:
    """How the report is given, and where."""

    output: ReadOutputFormat
    path: Path | None
    stdout: TextIO
    stderr: TextIO
    fail_on: Severity
    abstentions: bool  # whether to name the checks that did not run or could not tell
    behind: OptionsBehindFile | None  # options that the doctor did not take
    called: tuple[list[str], list[str]]  # what names the script, and what it was given

    def deliver_report(self, report: "WatchedRunReport") -> int:
        """Print or write the report, behind all that the script printed; return the status to end with."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # the script may have closed it
                stream.flush()
        if self.path is None:
            is_text = self.output is ReadOutputFormat.TEXT
            self._print_report(report, self.stderr if is_text else self.stdout, width=None)
        else:
            with self.path.open("w", encoding="utf-8") as file:
                self._print_report(report, file, width=100)
        if self.behind is not None and self.output is not ReadOutputFormat.TEXT:
            self.stderr.write(f"truestep: {self.behind}\n")
        # where an option of the doctor's was refused, what takes it is said already
        if (said := report.outcome.arguments_refused) is not None and self.behind is None:
            self.stderr.write(f"truestep: {missing_script_arguments_hint(*self.called, said)}\n")
        self.stdout.flush()
        self.stderr.flush()
        worst = min((each.severity.rank for each in report.findings), default=99)
        return report.outcome.status or int(worst <= self.fail_on.rank)

    def _print_report(self, report: "WatchedRunReport", file: TextIO, *, width: int | None) -> None:
        from truestep.doctor.reporting.terminal import print_concise_findings, show_run

        screen = Console(file=file, highlight=False, width=width)
        if self.output is ReadOutputFormat.TEXT:
            show_run(report, screen, beside_script=self.path is None, abstentions=self.abstentions)
            file.writelines(f"{line}\n" for line in [self.behind] if line)
        elif self.output is ReadOutputFormat.CONCISE:
            print_concise_findings(report.findings, screen)
        elif text := findings_text(report.findings, self.output, report.to_dict):
            file.write(f"{text}\n")


def _read_and_run_script(script: "WatchedScript", watch: "Watch", delivery: DoctorReportDelivery) -> int:
    """Read and run the target, have the report given by the process whose task that is, return the status."""
    from truestep.doctor.report import make_report
    from truestep.doctor.runtime.child_process_watch import (
        gather_notes,
        is_reporting_process,
        watched_children,
    )
    from truestep.doctor.runtime.process_notes import WatchNotesFolder
    from truestep.doctor.runtime.script_file import check_script
    from truestep.doctor.runtime.script_runner import ScriptOutcome, run_watched
    from truestep.doctor.script_reading import ScriptSources

    check_script(script)  # before what only reads says that there is nothing to read
    shared = WatchNotesFolder.of_this_run()
    sources = ScriptSources(script, watch.options.selection, source_readings_folder())
    reading = sources.read(show_reading_progress) if is_reporting_process(shared) else SourceReading()
    started = time.perf_counter()
    with watched_children(watch, shared) as folder:

        def deliver_after_run(outcome: ScriptOutcome) -> int:
            others = gather_notes(watch, folder(), is_shared=shared is not None, wait=outcome.status == 0)
            if others is None:
                return outcome.status
            seconds = time.perf_counter() - started
            reading.add(sources.read_imported())
            warn_of_retired_checks(watch.options.selection, reading)
            return delivery.deliver_report(
                make_report(reading, watch, outcome, seconds, others=others, script=script)
            )

        return run_watched(script, watch, deliver_after_run, annotate_error)


def _reopen_stderr() -> TextIO:
    """Return stderr once more, in the encoding that it has; what that lacks is shown as ?."""
    return os.fdopen(os.dup(2), "w", encoding=getattr(sys.stderr, "encoding", None), errors="replace")


@contextlib.contextmanager
def _stdout_and_stderr(stdout_kept_free: bool) -> Iterator[tuple[TextIO, TextIO]]:
    """Yield stdout and stderr as they are now, whatever the script does to them.

    Where stdout is kept free, all that is printed to it, also by libraries and child processes, goes to stderr.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout, _reopen_stderr() as stderr:
        if stdout_kept_free:
            os.dup2(2, 1)
        try:
            yield stdout, stderr
        finally:
            if stdout_kept_free:
                with contextlib.suppress(OSError, ValueError):  # the script may have closed it
                    sys.stdout.flush()
                os.dup2(stdout.fileno(), 1)
