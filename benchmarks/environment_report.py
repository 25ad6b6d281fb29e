# SPDX-License-Identifier: Apache-2.0
"""Time `truestep env` against `python -m torch.utils.collect_env`, alternating, in one run.

    python benchmarks/environment_report.py [ROUNDS]

Run it with the Python that has both installed. It prints a Markdown table, and ends with 1 when
`truestep env` takes more than half of the other's time.
"""

import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version

COMMANDS = {
    "python -m torch.utils.collect_env": ["-W", "ignore", "-m", "torch.utils.collect_env"],
    "truestep env": ["-m", "truestep", "env"],
    "truestep env --import": ["-m", "truestep", "env", "--import"],
    "python -c 'import torch'": ["-c", "import torch"],
}


def seconds(arguments):
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    times = {name: [] for name in COMMANDS}
    for arguments in COMMANDS.values():
        seconds(arguments)  # once unmeasured: files come from the disk
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    theirs = statistics.median(times["python -m torch.utils.collect_env"])
    python, torch = platform.python_version(), version("torch")
    print(f"{platform.machine()}, Python {python}, torch {torch}, {rounds} rounds\n")
    print("| command | median s | least s | most s | of collect_env's |\n|---|---|---|---|---|")
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(f"| `{name}` | {middle:.2f} | {min(taken):.2f} | {max(taken):.2f} | {middle / theirs:.0%} |")
    sys.exit(statistics.median(times["truestep env"]) > theirs / 2)


if __name__ == "__main__":
    main()
