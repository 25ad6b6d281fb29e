# SPDX-License-Identifier: Apache-2.0
"""Saves, loads, a report, samples and what grows by this code and by an older one, in turns, each in a process of its own.

    mkdir /tmp/before; git archive COMMIT src | tar -x -C /tmp/before
    python benchmarks/before.py /tmp/before/src [--repeats 3] [--folder .]

Of each measure the medians by the clock and in processor time (all threads) are shown, and the median of the pairs' ratios.
`torch.save` is the same in both. A few minutes on a quiet machine with 8 GB of memory and 3 GB of room in the folder.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = 1_000_000


def report(folder):
    try:
        from truestep.report import render_report
    except ModuleNotFoundError:  # where it was before 2026-11-22
        from truestep.run.report import render_report

    found = {}
    for name in ("first of a process", "second"):
        begin = time.perf_counter(), time.process_time()
        render_report(folder)
        found[name] = [time.perf_counter() - begin[0], time.process_time() - begin[1]]
    print(json.dumps(found))


def samples(name):
    """Time epochs over samples, after two that warm up; the best of each clock."""
    sys.path.insert(0, str(HERE / "data"))
    from small_samples import source_of

    times = []
    source = source_of(name, 12_800, 128)
    for epoch in range(10):
        begin = time.perf_counter(), time.process_time()
        for _ in source.batches(epoch):
            pass
        times.append([time.perf_counter() - begin[0], time.process_time() - begin[1]])
    print(json.dumps({"12,800": [min(column) for column in zip(*times[2:], strict=True)]}))


def measures(folder, lines):
    saves = [sys.executable, str(HERE / "checkpoints" / "many_tensors.py"), "--folder", folder, "--one"]
    grows = [sys.executable, str(HERE / "growing.py"), "--folder", folder]
    own = [sys.executable, __file__, folder]
    return {
        "torch.save and fsync, 1 GB": [*saves, "torch_save"],
        "first save, 1 GB": [*saves, "first_save"],
        "30,000 tensors": [*saves, "small_saves"],
        "loading": [*saves, "loading"],
        f"report, {LINES:,} lines": [*own, "--report", lines],
        "samples that draw from np.random": [*own, "--samples", "numpy"],
        "samples by length": [*own, "--samples", "by length"],
        "two ranks": [*grows, "first_updates"],
        "a watched step with a save": [*grows, "watched_saves"],
        "a step with a save": [*grows, "many_kept"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("before", help="the folder src of the older code")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--only", action="append", help="measures whose name has this in it")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    parser.add_argument("--samples", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report or arguments.samples:
        report(arguments.report) if arguments.report else samples(arguments.samples)
        return
    from report import write_lines

    codes = {"before": str(Path(arguments.before).resolve()), "now": str(HERE.parent / "src")}
    rows = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as lines:
        write_lines(Path(lines) / "metrics.jsonl", LINES)
        for _ in range(arguments.repeats):
            for name, command in measures(arguments.folder, lines).items():
                if arguments.only and not any(word in name for word in arguments.only):
                    continue
                for code, source in codes.items():
                    environment = os.environ | {"PYTHONPATH": source}
                    output = subprocess.run(
                        command, check=True, capture_output=True, text=True, env=environment
                    ).stdout
                    for what, times in json.loads(output).items():
                        rows.setdefault(f"{name}: {what}", {}).setdefault(code, []).append(times)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {arguments.repeats} in turns")
    print(
        "| | clock: before | now | ratio | processor: before | now | ratio |\n|---|---|---|---|---|---|---|"
    )
    for name, found in rows.items():
        cells = []
        for clock in (0, 1):
            before, now = ([times[clock] for times in found[code]] for code in codes)
            ratio = statistics.median(b / a for a, b in zip(before, now, strict=True))
            cells += [f"{statistics.median(before):.3f}", f"{statistics.median(now):.3f}", f"{ratio:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
