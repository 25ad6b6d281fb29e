# SPDX-License-Identifier: Apache-2.0
"""What a list tells of a run's metrics. Of a long file it is kept, so that a folder of many runs is listed at once.

What is kept is found again by the file's inode, size and times of change, as the kernel has them: any write to it, and any
file put in its place, is another key. A file that was changed a moment ago is read anew, since the clock may not tell the next
change from the last.
"""

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from truestep.core import kept as store
from truestep.core.charts import curve as curves
from truestep.core.charts.curve import ChartExtreme
from truestep.core.files import stamp_of_file
from truestep.core.metric_names import better_way_of_metric
from truestep.core.results import plain_result
from truestep.report.best import MetricExtremes
from truestep.report.names import METRICS
from truestep.report.record import read_curves

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
    before = _stamp(path)
    if before is None:
        return _read(directory)
    key = store.cache_key(before, _code())
    if (found := _decoded(store.read_cached(folder, key))) is not None:
        return found
    found = _read(directory)
    if _stamp(path) == before:  # it did not grow meanwhile
        store.write_cached(folder, key, plain_result(found))
    return found


def forget_oldest_metrics_digests() -> None:
    """Delete what was kept longest ago, where there is much of it."""
    store.forget_oldest_cached(store.cache_folder("runs"), MOST_ENTRIES)


def _stamp(path: Path) -> tuple[int, ...] | None:
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
def _code() -> str:
    """Return the state of what reads metrics."""
    return store.cache_state_of_files([*Path(__file__).parent.glob("*.py"), Path(curves.__file__)])


def _read(directory: Path) -> MetricsDigest:
    record = read_curves(directory)
    known = {name: curve for name, curve in record.curves.items() if better_way_of_metric(name)}
    return MetricsDigest(
        last_step=record.last_step,
        elapsed_seconds=record.elapsed_seconds,
        extremes={name: MetricExtremes(curve.lowest, curve.highest) for name, curve in known.items()},
    )


def _decoded(document: Any) -> MetricsDigest | None:
    """Return what was kept: the digest's fields, as JSON has them."""
    try:
        extremes = {
            name: MetricExtremes(*(each and ChartExtreme(**each) for each in pair))
            for name, pair in document["extremes"].items()
        }
        return MetricsDigest(**document | {"extremes": extremes})
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
