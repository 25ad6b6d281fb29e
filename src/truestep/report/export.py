# SPDX-License-Identifier: Apache-2.0
"""Every value of one or several runs as CSV, a row a value."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from truestep.core.atomic_files import explain_unwritable, replacing_file
from truestep.report.metrics import read_metrics
from truestep.report.run_file_names import METRICS

HEADING = ("run", "step", "epoch", "elapsed_seconds", "name", "value")
ROWS_AT_ONCE = 4096


def write_metrics_csv(directories: Sequence[Path], names: Sequence[str], path: Path) -> int:
    """Write `run,step,epoch,elapsed_seconds,name,value` in place of an older file; return how many values it has."""
    rows = _csv_rows(directories, names)
    num_values = 0
    with explain_unwritable("The values", path), replacing_file(path) as file:
        file.write(format_csv([HEADING]).encode("utf-8", "replace"))
        while some := list(islice(rows, ROWS_AT_ONCE)):
            file.write(format_csv(some).encode("utf-8", "replace"))
            num_values += len(some)
    return num_values


def _csv_rows(directories: Sequence[Path], names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    for directory, run in zip(directories, names, strict=True):
        for line in read_metrics(directory / METRICS):
            where = (run, line.step, line.epoch, line.elapsed_seconds)
            yield from ((*where, name, repr(value)) for name, value in line.values.items())


def format_csv(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
