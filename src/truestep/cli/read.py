# SPDX-License-Identifier: Apache-2.0
"""`truestep read`: the source checks, as a linter."""

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truestep.doctor.finding import Severity
from truestep.doctor.kept import cache_folder
from truestep.doctor.read import read_paths
from truestep.doctor.reading import Reading
from truestep.doctor.reporting.documents import reading_document, sarif_document
from truestep.doctor.reporting.terminal import show_reading
from truestep.doctor.selection import configured, write_baseline

app = typer.Typer(add_completion=False)


class Output(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


SELECT = typer.Option(help="Only these codes, or beginnings of codes (GRAD), separated by commas.")
IGNORE = typer.Option(help="Leave out these codes, or beginnings of codes.")
FAIL_ON = typer.Option(help="The mildest severity that makes the exit status 1.")


@app.command()
def read(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files and folders; a folder means every .py and .ipynb file beneath it."),
    ],
    select: Annotated[list[str] | None, SELECT] = None,
    ignore: Annotated[list[str] | None, IGNORE] = None,
    output: Annotated[Output, typer.Option(help="How to print the report.")] = Output.TEXT,
    fail_on: Annotated[Severity, FAIL_ON] = Severity.RISK,
    baseline: Annotated[Path | None, typer.Option(help="Hide the findings that this file holds.")] = None,
    new_baseline: Annotated[
        Path | None,
        typer.Option("--write-baseline", help="Write today's findings to this file, and exit with 0."),
    ] = None,
    cache: Annotated[
        bool, typer.Option(help="Take what was found in files that did not change since, and keep it.")
    ] = True,
) -> None:
    """Read training code for silent bugs; needs no torch and runs nothing.

    A comment `# truestep: ignore[CODE]` on a line, or on its own above it, hides a finding.
    The table tool.truestep of pyproject.toml may hold select, ignore, exclude and baseline.
    """
    selection = configured(Path.cwd(), select or [], ignore or [], baseline)
    if new_baseline is not None:
        selection = replace(selection, baseline=None)  # the new one is to hold what the old one hides
    reading = read_paths(paths, selection, cache=cache_folder() if cache else None)
    if new_baseline is not None:
        write_baseline(new_baseline, [(each, reading.lines.get(each.place, "")) for each in reading.findings])
    _show(reading, output)
    worst = reading.worst()
    if new_baseline is None and worst is not None and worst.rank <= fail_on.rank:
        raise typer.Exit(1)


def _show(reading: Reading, output: Output) -> None:
    if output is Output.TEXT:
        show_reading(reading, Console(highlight=False))
    else:
        document = reading_document(reading) if output is Output.JSON else sarif_document(reading.findings)
        typer.echo(json.dumps(document, indent=2))
