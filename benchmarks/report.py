# SPDX-License-Identifier: Apache-2.0
"""A report over a million lines of metrics.

python benchmarks/report.py [--lines 1000000] [--repeats 5]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from truestep.report import render_report


def write_lines(path, count):
    with path.open("w") as file:
        for step in range(1, count + 1):
            values = {"loss": 1 / step, "learning_rate": 1e-3, "gradient_norm": 0.1 + step % 7}
            if step % 1000 == 0:
                values = {"accuracy": 1 - 1 / step}
            line = {"step": step, "epoch": step // 10_000, "elapsed_seconds": step * 1e-3, "values": values}
            file.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_lines(Path(folder) / "metrics.jsonl", arguments.lines)
        seconds = []
        for _ in range(arguments.repeats):
            begin = time.process_time()
            render_report(folder)
            seconds.append(time.process_time() - begin)
    print(
        f"A report over {arguments.lines:,} lines: {statistics.median(seconds):.2f} processor seconds "
        f"({min(seconds):.2f} to {max(seconds):.2f})"
    )


if __name__ == "__main__":
    main()
