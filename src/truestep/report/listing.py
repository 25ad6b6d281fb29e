# SPDX-License-Identifier: Apache-2.0
"""`ts.runs`: the runs in a folder, each with its state, its best value, its size and when it last wrote."""

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truestep.checkpoints.checkpoint_names import FOLDER
from truestep.core import disk_cache as store
from truestep.core.atomic_files import read_regular_file, stamp_of_file
from truestep.core.charts import curve as curves
from truestep.core.charts.curve import ChartExtreme
from truestep.core.errors import OptionError, RunDirectoryError, did_you_mean_path, names_hint
from truestep.core.metric_direction import best_mode_of_metric
from truestep.core.result_display import RenderableType, Result, result_to_plain
from truestep.mirror.address import mirror_address_or_none
from truestep.report.best import (
    MetricExtremes,
    best_metric_value,
    declared_best_metric,
    metric_to_compare_runs_by,
)
from truestep.report.run_file_names import CONFIG, METRICS, REPORT, check_not_a_run
from truestep.report.run_record import read_curves
from truestep.report.state import ReportedState, reported_state

# What is kept of a long file is found again by the file's inode, size and times of change, as the kernel has them: any write to it,
# and any file put in its place, is another key. One that was changed a moment ago is read anew: the clock may not tell the next
# change from the last.
LEAST_BYTES = 1 << 17  # a shorter file is read as fast
SETTLED_SECONDS = 3.0  # the clocks of some file systems count in twos
MOST_ENTRIES = 5_000


@dataclass(frozen=True, kw_only=True)
class MetricsDigest:
    """How far a run came, and the extremes of each metric that has a best value."""

    last_step: int
    elapsed_seconds: float
    extremes: Mapping[str, MetricExtremes]


def metrics_digest(directory: Path) -> MetricsDigest:
    """Return what the metrics of a run are in short: as they are now, read or kept."""
    path, folder = directory / METRICS, store.cache_folder("runs")
    before = _file_stamp_if_settled(path)
    if before is None:
        return _read_metrics_digest(directory)
    key = store.cache_key(before, _hash_of_metrics_code())
    if (found := _decode_metrics_digest(store.read_cached(folder, key))) is not None:
        return found
    found = _read_metrics_digest(directory)
    if _file_stamp_if_settled(path) == before:  # it did not grow meanwhile
        store.write_cached(folder, key, result_to_plain(found))
    return found


def evict_oldest_metrics_digests() -> None:
    """Delete what was kept longest ago, where there is much of it."""
    store.forget_oldest_cached(store.cache_folder("runs"), MOST_ENTRIES)


def _file_stamp_if_settled(path: Path) -> tuple[int, ...] | None:
    """Return what tells this state of a long file from any other; None where that can't be told yet, or is not worth it."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    changed = max(found.st_mtime, found.st_ctime)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_size < LEAST_BYTES
        or changed > time.time() - SETTLED_SECONDS
    ):
        return None
    return stamp_of_file(found)


@cache
def _hash_of_metrics_code() -> str:
    """Return the state of what reads metrics."""
    return store.cache_state_of_files([*Path(__file__).parent.glob("*.py"), Path(curves.__file__)])


def _read_metrics_digest(directory: Path) -> MetricsDigest:
    record = read_curves(directory)
    known = {name: curve for name, curve in record.curves.items() if best_mode_of_metric(name)}
    return MetricsDigest(
        last_step=record.last_step,
        elapsed_seconds=record.elapsed_seconds,
        extremes={name: MetricExtremes(curve.lowest, curve.highest) for name, curve in known.items()},
    )


def _decode_metrics_digest(document: Any) -> MetricsDigest | None:
    """Return what was kept: the digest's fields, as JSON has them."""
    try:
        extremes = {
            name: MetricExtremes(*(each and ChartExtreme(**each) for each in pair))
            for name, pair in document["extremes"].items()
        }
        return MetricsDigest(**document | {"extremes": extremes})
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


if TYPE_CHECKING:
    from truestep.mirror.reading import StoredRunView

MAX_DEPTH = 4  # a run lies no deeper: a folder of data below is not searched to its ground


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in short; `metric` is the one it is judged by, None where no metric has a known better way."""

    directory: str
    state: str
    why: str | None
    step: int
    metric: str | None
    best_value: float | None
    best_step: int | None
    elapsed_seconds: float
    size_bytes: int
    changed_at: str  # ISO 8601, UTC


@dataclass(frozen=True, kw_only=True)
class RunList(Result):
    """The runs in a folder: the newest first, or the best first where a metric was asked for."""

    folder: str
    runs: tuple[RunSummary, ...]

    def __rich__(self) -> RenderableType:
        from truestep.report.screen import run_list_table

        return run_list_table(self)


def runs(folder: str | Path = "runs", *, best: str | None = None) -> RunList:
    """Return the runs in a folder and in the folders under it; they may be at work, and nothing of theirs is changed.

    Args:
        folder: where to look; the folder of one run is that run. An address ("s3://bucket/runs") lists the runs whose mirrors lie
            there: how far each has come as sent, and who holds it.
        best: the metric to compare by, the best run first; by default each run's own: the one it saves its
            best checkpoint by, else a score of an evaluation if there is one.

    Raises RunDirectoryError where there is no such folder, OptionError where no run has logged `best`.
    """
    address = mirror_address_or_none(folder)
    if address is not None:
        from truestep.report.run_locations import stored_runs

        with stored_runs(address) as stored:
            listed = _run_summaries([run.directory for run in stored], best)
            return _sort_run_summaries(
                address,
                [_replace_state_by_stores(each, run) for each, run in zip(listed, stored, strict=True)],
                best,
            )
    where = check_not_a_run(folder)
    if not where.is_dir():
        raise RunDirectoryError(_no_runs_folder_message(where))
    return _sort_run_summaries(str(where), _run_summaries(reportable_runs_in(where), best), best)


def _run_summaries(paths: list[Path], best: str | None) -> list[RunSummary]:
    found = [(path, metrics_digest(path)) for path in paths]
    evict_oldest_metrics_digests()
    if best is not None:
        _check_metric_exists(best, [digest for _, digest in found])
    return [_make_run_summary(path, digest, best) for path, digest in found]


def _sort_run_summaries(folder: str, listed: list[RunSummary], best: str | None) -> RunList:
    listed.sort(key=lambda run: run.changed_at, reverse=True)
    if best is not None:
        sign = -1 if best_mode_of_metric(best) == "max" else 1
        listed.sort(key=lambda run: float("inf") if run.best_value is None else sign * run.best_value)
    return RunList(folder=folder, runs=tuple(listed))


def _check_metric_exists(metric: str, digests: list[MetricsDigest]) -> None:
    known = {name for digest in digests for name in digest.extremes}
    if metric not in known:
        raise OptionError(
            f"No run here has logged {metric!r} as a metric whose name tells which way is better. {names_hint(metric, known)}"
        )


def _no_runs_folder_message(where: Path) -> str:
    if where.exists():
        return f"{where} is a file, and no folder that holds runs. Name the folder: truestep runs FOLDER"
    return (
        f"There is no folder {str(where)!r} here, so there are no runs to list.{did_you_mean_path(where)} A script with "
        "ts.Run(...) makes a run, and so does `truestep train digits`; for runs elsewhere write: truestep runs FOLDER"
    )


def reportable_runs_in(folder: Path) -> list[Path]:
    """Return the folders of the runs in a folder and in those under it, in the order of their names."""
    return list(_runs_below(folder, MAX_DEPTH))


def is_reportable_run(path: Path) -> bool:
    """Whether a folder holds a run, or metrics that another program wrote like one."""
    return (path / METRICS).is_file() or ((path / CONFIG).is_file() and (path / FOLDER).is_dir())


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    if is_reportable_run(folder):
        yield folder
        return
    with suppress(OSError):  # a folder that may not be read
        for path in sorted(folder.iterdir()):
            if depth and path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
                yield from _runs_below(path, depth - 1)


def _replace_state_by_stores(summary: RunSummary, run: "StoredRunView") -> RunSummary:
    """Say of a run what the store says, in place of the folder that shows it."""
    from truestep.report.run_locations import run_state_in_store

    state = run_state_in_store(run, ReportedState(summary.state, summary.why))
    created = [datetime.fromisoformat(commit.summary.created) for commit in run.commits[:1]]
    return replace(
        summary,
        directory=run.address,
        state=state.word,
        why=state.why,
        step=max([summary.step, *(commit.summary.step for commit in run.commits[:1])]),
        size_bytes=run.num_bytes,
        changed_at=(created or [run.changed()])[0].astimezone(UTC).isoformat(timespec="seconds"),
    )


def _make_run_summary(path: Path, digest: MetricsDigest, metric: str | None) -> RunSummary:
    declared = declared_best_metric(_read_config(path))
    way = None
    if metric is None and declared is not None and declared[0] in digest.extremes:
        metric, way = declared
    metric = metric or metric_to_compare_runs_by(digest.extremes)
    extremes = digest.extremes.get(metric) if metric else None
    extreme = best_metric_value(metric, extremes, way) if metric and extremes else None
    state = reported_state(path, digest.last_step)
    size, changed = _folder_size_and_last_change(path)
    return RunSummary(
        directory=str(path),
        state=state.word,
        why=state.why,
        step=digest.last_step,
        metric=metric,
        best_value=extreme.value if extreme else None,
        best_step=extreme.step if extreme else None,
        elapsed_seconds=round(digest.elapsed_seconds, 3),
        size_bytes=size,
        changed_at=datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds"),
    )


def _read_config(path: Path) -> object:
    try:
        return json.loads(read_regular_file(path / CONFIG))
    except (OSError, ValueError, RecursionError):  # its state says so
        return None


def _folder_size_and_last_change(folder: Path) -> tuple[int, float]:
    """Return how many bytes lie in a folder, and when the run last wrote there; a report may be made at any time."""
    size, newest = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed meanwhile: the run goes on
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118  (a folder may hold a hundred thousand)
                size += status.st_size
                newest = newest if name == REPORT else max(newest, status.st_mtime)
    return size, newest
