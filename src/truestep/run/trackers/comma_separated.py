# SPDX-License-Identifier: Apache-2.0
"""`ts.CsvTracker`: a run's values in a file that every spreadsheet opens."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from truestep.core.atomic_files import open_regular_file, replacing_file
from truestep.report.export import format_csv
from truestep.run.trackers.tracker import Tracker, Tracking

HEADING = ("step", "epoch", "name", "value")


class CsvTracker(Tracker):
    """Writes a row `step,epoch,name,value` for each value logged; one row a value, since new names come up at any time.

    A run that goes on begins by writing the file anew from what `metrics.jsonl` holds, so that no row stands there twice.

    Args:
        path: the file; `metrics.csv` in the run's directory by default.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path).absolute()
        self._file: TextIO | None = None

    def open(self, tracking: Tracking) -> None:
        """Write what there is, and open the file to add to it."""
        path = self._path or tracking.directory / "metrics.csv"
        with replacing_file(path) as file:
            file.write(format_csv([HEADING]).encode())
            for line in tracking.history():
                file.write(format_csv(_csv_cells(line.values, line.step, line.epoch)).encode())
        self._file = os.fdopen(
            open_regular_file(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8", newline=""
        )

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Add a row for each value."""
        assert self._file is not None
        self._file.write(format_csv(_csv_cells(values, step, epoch)))

    def flush(self) -> None:
        """Bring rows that wait into the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _csv_cells(values: Mapping[str, float], step: int, epoch: int) -> Iterable[tuple[object, ...]]:
    return ((step, epoch, name, repr(float(value))) for name, value in values.items())
