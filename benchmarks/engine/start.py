# SPDX-License-Identifier: Apache-2.0
"""What starting costs: `python benchmarks/engine/start.py [--runs 15]`.

Each figure is the median over fresh processes, the two kinds of a row in turn.
"""

import argparse
import statistics
import subprocess
import sys
import time

ROWS = {
    "import truestep, over bare Python": (["-c", "import truestep"], ["-c", "pass"]),
    "import torch and truestep.Run, over torch": (
        ["-c", "import torch, truestep; truestep.Run"],
        ["-c", "import torch"],
    ),
    "truestep --help": (["-m", "truestep", "--help"], None),
    "truestep --version": (["-m", "truestep", "--version"], None),
}


def seconds(arguments):
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    print("| | median, ms |\n|---|---|")
    for name, (ours, base) in ROWS.items():
        seconds(ours)
        pairs = [(seconds(ours), seconds(base) if base else 0.0) for _ in range(runs)]
        print(f"| {name} | {statistics.median(a - b for a, b in pairs) * 1e3:.0f} |", flush=True)


if __name__ == "__main__":
    main()
