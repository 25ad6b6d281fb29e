# SPDX-License-Identifier: Apache-2.0
"""What it costs to show and to write down a run: progress, lines of metrics, the report of a long run.

python benchmarks/run/showing.py --lines 300000
"""

import argparse
import io
import os
import resource
import tempfile
import time
import timeit
from pathlib import Path

from truestep.report import write_report
from truestep.report.metrics import MetricsFile, read_metrics
from truestep.run.progress import Progress
from truestep.run.progress.reading import ProgressReading
from truestep.run.progress.screens import TerminalProgress

VALUES = {
    "loss": 0.3123, "learning_rate": 0.0012, "gradient_norm": 1.2345678, "updates_skipped": 0.0,
    "samples_per_second": 12345.6, "memory_bytes": 123456789.0,
}  # fmt: skip


def tick_microseconds():
    progress = Progress(1, 10**9, io.StringIO())
    progress.tick(1, 0, 1)
    progress.show({})
    return min(timeit.repeat(lambda: progress.tick(2, 0, 2), number=100_000, repeat=7)) * 10


def show_microseconds(times=200):
    reading = ProgressReading(total_epochs=10, batches_per_epoch=100, step=5, batch=5, values=dict(VALUES))
    with Path(os.devnull).open("w") as nowhere:
        terminal = TerminalProgress(nowhere)
        terminal.show(reading)
        begin = time.perf_counter()
        for _ in range(times):
            terminal.show(reading)
        seconds = time.perf_counter() - begin
        terminal.close()
    return seconds / times * 1e6


def metrics_and_report(folder, num_lines):
    begin = time.perf_counter()
    with MetricsFile(folder / "metrics.jsonl") as file:
        for step in range(num_lines):
            file.append(step=step, epoch=step // 1000, elapsed_seconds=step * 0.01, values=VALUES)
    written = time.perf_counter()
    assert sum(1 for _ in read_metrics(folder / "metrics.jsonl")) == num_lines
    read = time.perf_counter()
    size = write_report(folder).stat().st_size
    return written - begin, read - written, time.perf_counter() - read, size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=300_000)
    num_lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        written, read, drawn, size = metrics_and_report(Path(folder), num_lines)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"a tick that shows nothing      {tick_microseconds():8.2f} µs")
    print(f"drawing the bar once           {show_microseconds():8.0f} µs, at most five times a second")
    print(f"a line of metrics, written     {written / num_lines * 1e6:8.2f} µs")
    print(f"a line of metrics, read        {read / num_lines * 1e6:8.2f} µs")
    print(
        f"the report of {num_lines:>9,} lines {drawn:8.2f} s, {size / 1000:.0f} kB, {memory:.0f} MiB at most"
    )


if __name__ == "__main__":
    main()
