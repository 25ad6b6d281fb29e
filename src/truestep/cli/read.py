# SPDX-License-Identifier: Apache-2.0
"""`truestep read`: the source checks, as a linter."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from truestep.cli.command_output import command_console, warn_on_screen
from truestep.cli.statuses import EXIT_FAILED, EXIT_USAGE
from truestep.core.errors import OptionError
from truestep.core.text_formatting import plural, printable_text
from truestep.doctor.finding import Finding, Severity
from truestep.doctor.findings_cache import source_readings_folder
from truestep.doctor.fixing import FixedFile, fix_files, is_certain_fix
from truestep.doctor.linting import read_paths, why_nothing_to_find
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.reporting.json_and_sarif import reading_document, sarif_document, workflow_commands
from truestep.doctor.reporting.terminal import print_concise_findings, show_fixed, show_reading
from truestep.doctor.retired import retired_line
from truestep.doctor.selection import CheckSelection, configured_selection, write_baseline

app = typer.Typer(add_completion=False)
ROUNDS = 8  # a fix may make room for one that overlapped it; more rounds than this are no progress


class ReadOutputFormat(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


SELECT = typer.Option(help="Only these codes, or beginnings of codes (GRAD), separated by commas.")
IGNORE = typer.Option(help="Leave out these codes, or beginnings of codes.")
FAIL_ON = typer.Option(help="The mildest severity that makes the exit status 1.")
PREVIEW = typer.Option("--preview", help="Also use the checks on trial, which have no evidence yet.")
SHOW_ABSTENTIONS = typer.Option(
    "--show-abstentions", help="Also show where a check could not tell or did not run, and why."
)
AS_JSON = typer.Option("--json", help="The same as --output json.")
WRITE_BASELINE = typer.Option("--write-baseline", help="Write today's findings to this file; exit with 0.")
FIX = typer.Option("--fix", help="Make the rewrites that take no choice, and show them.")
DIFF = typer.Option("--diff", help="Print what --fix would change, and change nothing.")
PATHS = typer.Argument(help="Files and folders; a folder means every .py, .ipynb and .md file beneath it.")


@app.command()
def read(
    paths: Annotated[list[Path] | None, PATHS] = None,
    select: Annotated[list[str] | None, SELECT] = None,
    ignore: Annotated[list[str] | None, IGNORE] = None,
    preview: Annotated[bool, PREVIEW] = False,
    output: Annotated[
        ReadOutputFormat, typer.Option(help="How to print the report.")
    ] = ReadOutputFormat.TEXT,
    as_json: Annotated[bool, AS_JSON] = False,
    fail_on: Annotated[Severity, FAIL_ON] = Severity.RISK,
    baseline: Annotated[Path | None, typer.Option(help="Hide the findings that this file holds.")] = None,
    new_baseline: Annotated[Path | None, WRITE_BASELINE] = None,
    make_fixes: Annotated[bool, FIX] = False,
    diff: Annotated[bool, DIFF] = False,
    show_abstentions: Annotated[bool, SHOW_ABSTENTIONS] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read all anew, and keep nothing for the next time.")
    ] = False,
) -> None:
    """Read training code for silent bugs; needs no torch and runs nothing.

    Without a path it reads the current folder.

    A comment `# truestep: ignore[CODE]` on a line, or on its own above it, hides a finding.
    The table tool.truestep of pyproject.toml may hold select, ignore, exclude, baseline and preview.

    The exit status is 2 if a file can't be read, or a folder holds none, else 1 with findings at or above --fail-on, else 0.
    """
    output = ReadOutputFormat.JSON if as_json else output
    if diff and (make_fixes or output is not ReadOutputFormat.TEXT):
        raise OptionError("--diff prints a diff and nothing else: leave out --fix and --output.")
    if make_fixes and new_baseline is not None:
        raise OptionError("--fix and --write-baseline in one call: write the baseline after the fixes.")
    selection = configured_selection(Path.cwd(), select or [], ignore or [], baseline, preview=preview)
    if new_baseline is not None:
        selection = replace(selection, baseline=None)  # the new one is to hold what the old one hides
    paths = paths or [Path()]
    reading = read_paths(
        paths, selection, show_reading_progress, cache=None if no_cache else source_readings_folder()
    )
    warn_of_retired_checks(selection, reading)
    if diff:
        for each in fix_files(reading.findings, write=False):
            text = "".join(each.diff())  # for `patch` as it is, for eyes without what steers a terminal
            sys.stdout.write(printable_text(text) if sys.stdout.isatty() else text)
        raise typer.Exit(_exit_status_of_reading(reading, fail_on))
    fixed: list[FixedFile] = []
    if make_fixes:
        reading, fixed = _fix_until_done(reading, paths, selection)
    if new_baseline is not None:
        write_baseline(new_baseline, [(each, reading.lines.get(each.place, "")) for each in reading.findings])
    _show_reading(reading, fixed, output, show_abstentions, paths)
    # what a pre-commit hook names, or the configuration leaves, may all be excluded
    is_in_vain = not reading.num_files and not selection.exclude and all(path.is_dir() for path in paths)
    status = (
        EXIT_USAGE * bool(reading.lost_files) if new_baseline else _exit_status_of_reading(reading, fail_on)
    )
    raise typer.Exit(EXIT_USAGE if is_in_vain else status)


def _fix_until_done(
    reading: SourceReading, paths: Sequence[Path], selection: CheckSelection
) -> tuple[SourceReading, list[FixedFile]]:
    """Make fixes until none is left to make; return the last reading and what was done."""
    done: list[FixedFile] = []
    for _ in range(ROUNDS):
        found = fix_files(reading.findings, write=True)
        done += found if not done else [each for each in found if not each.left]
        if all(each.left for each in found):
            break
        reading = read_paths(paths, selection)
    shown = [each for each in reading.findings if each.replacement is not None and not is_certain_fix(each)]
    if shown:
        what = plural(len(shown), "rewrite is", "rewrites are")
        warn_on_screen(f"{what} shown and not made: what is no bug for certain may be what was meant")
    return reading, done


def _exit_status_of_reading(reading: SourceReading, fail_on: Severity) -> int:
    worst = reading.worst_severity()
    if reading.lost_files:
        return EXIT_USAGE
    return EXIT_FAILED if worst is not None and worst.rank <= fail_on.rank else 0


def _suggest_what_to_read(paths: Sequence[Path]) -> None:
    """Say what shows a run where one was given in the place of code, and else what to give."""
    from truestep.checkpoints.foreign_formats import (
        describe_path_without_run,  # nobody else who reads code needs these
    )
    from truestep.report.listing import reportable_runs_in

    runs = [run for path in paths if path.is_dir() for run in reportable_runs_in(path)]
    if not runs:
        instead = "".join(describe_path_without_run(path) for path in paths if path.is_dir()).strip()
        line = f"{instead} Name a script, or a folder of them: truestep read train.py".strip()
        command_console().print(line, markup=False, soft_wrap=True)
    else:
        what = plural(len(runs), "run")
        listed = "" if runs == [*paths] else f"`truestep runs {paths[0]}` lists them, and "
        command_console().print(
            f"It holds {what}: {listed}`truestep report {runs[0]}` writes the page of one. `truestep read train.py` reads the "
            "code that made it.",
            markup=False,
            soft_wrap=True,
        )


def _why_nothing_was_found(reading: SourceReading, paths: Sequence[Path]) -> str:
    """Return why nothing could be found in files that were named, where all of them are such; else nothing."""
    if reading.findings or reading.lost_files or not reading.num_files:
        return ""
    found = [why_nothing_to_find(path) if path.is_file() else None for path in paths]
    return (found[0] or "") if all(found) else ""


def _show_reading(
    reading: SourceReading,
    fixed: Sequence[FixedFile],
    output: ReadOutputFormat,
    abstentions: bool,
    paths: Sequence[Path],
) -> None:
    if output is ReadOutputFormat.TEXT:
        show_fixed(fixed, command_console())
        since = _why_nothing_was_found(reading, paths)
        show_reading(reading, command_console(), abstentions=abstentions, nothing_since=since)
        if not reading.num_files:
            _suggest_what_to_read(paths)
    elif output is ReadOutputFormat.CONCISE:
        print_concise_findings(reading.findings, command_console())
    else:
        done = {"fixed": [each.to_dict() for each in fixed]} if fixed else {}
        typer.echo(findings_text(reading.findings, output, lambda: reading_document(reading) | done))


def findings_text(
    findings: Sequence[Finding], output: ReadOutputFormat, document: Callable[[], dict[str, Any]]
) -> str:
    """Return findings in a form that programs read; `document` gives the one of our own."""
    if output is ReadOutputFormat.GITHUB:
        return "\n".join(workflow_commands(findings))
    return json.dumps(document() if output is ReadOutputFormat.JSON else sarif_document(findings), indent=2)


def warn_of_retired_checks(selection: CheckSelection, reading: SourceReading) -> None:
    """Say which retired checks are still named, in options, settings, comments or the baseline, and why they went."""
    for line in dict.fromkeys([*selection.passed_over(), *map(retired_line, sorted(reading.retired))]):
        warn_on_screen(line)


def show_reading_progress(done: int, total: int) -> None:
    """Say how far a long reading is."""
    warn_on_screen(f"{done} of {plural(total, 'file')} read")
