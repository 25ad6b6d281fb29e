# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor`: read a script, run it under watch, say what is wrong with it."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truestep.cli.read import FAIL_ON, IGNORE, SELECT, Output
from truestep.doctor.finding import Severity
from truestep.doctor.read import read_paths
from truestep.doctor.selection import configured

app = typer.Typer(add_completion=False)
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@app.command(context_settings=PASS_ON)
def doctor(
    script: Annotated[str | None, typer.Argument(help="The script to run.", metavar="FILE.py")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments, passed on.")] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", help="Run this module, as `python -m` does; all that follows is passed on."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many optimizer steps.")] = None,
    select: Annotated[list[str] | None, SELECT] = None,
    ignore: Annotated[list[str] | None, IGNORE] = None,
    fail_on: Annotated[Severity, FAIL_ON] = Severity.BUG,
    baseline: Annotated[Path | None, typer.Option(help="Hide the findings that this file holds.")] = None,
    output: Annotated[Output, typer.Option(help="How to print the report.")] = Output.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    report_to: Annotated[
        Path | None, typer.Option("--report", help="Write the report to this file instead of printing it.")
    ] = None,
    probe: Annotated[bool, typer.Option(help="Try out a copy of the model at the first step.")] = True,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Also try to learn one batch with a copy of the model.")
    ] = False,
) -> None:
    """Read a training script, run it under watch, and say what is wrong with it.

    The script runs as with `python FILE.py ARGUMENTS`: same output, same random numbers, same weights.
    The report goes to stderr; with --output json or sarif it is the one document on stdout, and what the
    script prints goes to stderr. The exit status is the script's own if it failed, else 1 with findings at
    or above --fail-on, else 0.
    """
    from truestep.doctor.report import RunReport, make_report
    from truestep.doctor.running import Target, run_watched
    from truestep.doctor.watch import Watch

    rest = arguments or []
    if module is None and script is None:
        raise typer.BadParameter("Name the script to run, or a module with -m.", param_hint="FILE.py")
    target = Target(
        module or str(script), module is not None, (*([script] if module and script else []), *rest)
    )
    selection = configured(Path.cwd(), select or [], ignore or [], baseline)
    output = Output.JSON if as_json else output
    watch = Watch(selection, max_steps=steps, probe=probe, thorough=thorough)
    reading = read_paths(target.sources(), selection)
    with _stdout_kept_free(output is not Output.TEXT and report_to is None):
        started = time.perf_counter()
        outcome = run_watched(target, watch)
        seconds = time.perf_counter() - started
    report: RunReport = make_report(reading, watch, outcome, selection, seconds)
    if int(os.environ.get("RANK", "0")) == 0:
        _deliver(report, output, report_to)
    worst = min((each.severity.rank for each in report.findings), default=99)
    sys.stdout.flush()
    raise typer.Exit(outcome.status or int(worst <= fail_on.rank))


@contextlib.contextmanager
def _stdout_kept_free(wanted: bool) -> Iterator[None]:
    """Send all that is printed, also by libraries and child processes, to stderr."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _deliver(report: object, output: Output, path: Path | None) -> None:
    from truestep.doctor.report import RunReport
    from truestep.doctor.reporting.documents import sarif_document
    from truestep.doctor.reporting.terminal import show_run

    assert isinstance(report, RunReport)
    if output is Output.TEXT:
        if path is None:
            show_run(report, Console(stderr=True, highlight=False))
        else:
            with path.open("w", encoding="utf-8") as file:
                show_run(report, Console(file=file, highlight=False, width=100))
        return
    document = report.to_dict() if output is Output.JSON else sarif_document(report.findings)
    text = json.dumps(document, indent=2)
    if path is None:
        typer.echo(text)
    else:
        path.write_text(text + "\n", "utf-8")
