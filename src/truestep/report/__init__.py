# SPDX-License-Identifier: Apache-2.0
"""`report.html`: what one wants to see of a run, in one file that needs no network."""

from pathlib import Path

from truestep.core.errors import RunDirectoryError
from truestep.core.files import replacing

REPORT = "report.html"


def render_report(directory: str | Path) -> str:
    """Return the report of the run in `directory` as HTML; it depends on the files there alone."""
    # Imported here: a run needs them at its end only, and they are a quarter of what importing it would cost.
    from truestep.report.page import page
    from truestep.report.record import read_record

    path = Path(directory)
    if not path.is_dir():
        raise RunDirectoryError(
            f"There is no folder {path}, so there is no run to report on. Give the folder that holds metrics.jsonl."
        )
    return page(read_record(path))


def write_report(directory: str | Path) -> Path:
    """Write `report.html` into the run's directory, in place of an older one, and return its path."""
    path = Path(directory) / REPORT
    html = render_report(directory)
    with replacing(path) as file:
        file.write(html.encode("utf-8", "replace"))
    return path
