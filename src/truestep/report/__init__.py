# SPDX-License-Identifier: Apache-2.0
"""`report.html`: what one wants to see of a run, or of several, in one file that needs no network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from truestep.core.atomic_files import explain_unwritable, replacing_file
from truestep.core.errors import OptionError, RunDirectoryError, did_you_mean_path
from truestep.mirror.address import mirror_address_or_none
from truestep.report.run_file_names import COMPARISON, REPORT, check_not_a_run

if TYPE_CHECKING:
    from truestep.report.run_record import RunRecord

PAGE_SUFFIXES = ("", ".html", ".htm")


def render_report(*directories: str | Path) -> str:
    """Return the report of the run in a directory, or of several runs on shared axes, as HTML.

    It depends on the files there alone. The address of a run's mirror stands for what was sent there.
    """
    with _read_records_from_anywhere(directories) as records:
        return render_records(records)


@contextmanager
def _read_records_from_anywhere(directories: Sequence[str | Path]) -> Iterator[list["RunRecord"]]:
    # Imported here: a run needs it at its end only, and it is a quarter of what importing a run would cost.
    from truestep.report.run_locations import folders_of_runs
    from truestep.report.run_record import read_run_records

    with folders_of_runs(directories) as folders:
        yield read_run_records(check_report_directories(folders))


def render_records(records: Sequence["RunRecord"]) -> str:
    """Return the report of runs that have been read."""
    from truestep.report.comparison_page import comparison_page
    from truestep.report.page import report_page

    return report_page(records[0]) if len(records) == 1 else comparison_page(records)


def write_report(*directories: str | Path, to: str | Path | None = None) -> Path:
    """Write the report of a run, or of several runs on shared axes, in place of an older one; return its path.

    Args:
        directories: of the runs, or addresses of their mirrors; the first of several is drawn first.
        to: the file; by default `report.html` in the run's directory, of several runs `comparison.html` beside the first; of an
            address it is written here.

    Raises RunDirectoryError where there is no such directory, OptionError where one is given twice or `to` can't be written.
    """
    with _read_records_from_anywhere(directories) as records:
        html = render_records(records)
    return write_html_page(html, to or default_report_path(directories[0], len(records)))


def default_report_path(first: str | Path, num_runs: int) -> Path:
    """Return where the page of runs is looked for: in the folder of the first or beside it; of an address, here."""
    name = REPORT if num_runs == 1 else COMPARISON
    if mirror_address_or_none(first) is not None:
        return Path(name)
    return Path(first) / name if num_runs == 1 else Path(first).absolute().parent / name


def write_html_page(html: str, to: str | Path) -> Path:
    """Write a page, and return its path."""
    path = Path(to)
    if path.suffix not in PAGE_SUFFIXES:
        raise OptionError(
            f"The page is HTML, and {path.name} would be opened as something else. Write --out {path.with_suffix('.html').name}; "
            "a browser prints it as PDF."
        )
    with explain_unwritable("The page", path), replacing_file(path) as file:
        file.write(html.encode("utf-8", "replace"))
    return path


def check_report_directories(directories: Sequence[str | Path]) -> list[Path]:
    """Return the directories; raise where one is not there, or given twice."""
    paths = [check_not_a_run(directory) for directory in directories]
    if not paths:
        raise OptionError("A report is of a run: give the folder that holds its metrics.jsonl.")
    for place, path in enumerate(paths):
        if not path.is_dir():
            raise RunDirectoryError(
                f"There is no folder {path}, so there is no run to report on.{did_you_mean_path(path)} Give the folder that holds "
                "metrics.jsonl; `truestep runs` lists those there are."
            )
        if any(path.resolve() == other.resolve() for other in paths[:place]):
            raise OptionError(f"{path} is given twice; compare it with another run.")
    return paths
