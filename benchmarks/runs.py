# SPDX-License-Identifier: Apache-2.0
"""A list of many runs with long metrics: read, and listed again.

python benchmarks/runs.py [--runs 200] [--lines 5000]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from report import write_lines

from truestep.report import listing
from truestep.report.listing import runs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=5_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRUESTEP_CACHE"] = f"{folder}/kept"
        for number in range(arguments.runs):
            directory = Path(folder, "runs", f"run{number}")
            directory.mkdir(parents=True)
            write_lines(directory / "metrics.jsonl", arguments.lines)
        time.sleep(listing.SETTLED_SECONDS)
        seconds = []
        for _ in range(3):
            begin = time.process_time()
            runs(f"{folder}/runs")
            seconds.append(time.process_time() - begin)
    print(
        f"{arguments.runs} runs of {arguments.lines:,} lines: {seconds[0]:.2f} processor seconds, "
        f"and {min(seconds[1:]):.2f} when nothing has changed"
    )


if __name__ == "__main__":
    main()
