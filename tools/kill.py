# SPDX-License-Identifier: Apache-2.0
"""Train twice, kill one of the two at random moments, and compare what they end with: `make kill`.

Each kill is a SIGKILL, which a process neither sees nor can answer. A killed training is started again by the same command.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TRUESTEP = [sys.executable, "-m", "truestep"]
PATIENCE_SECONDS = 120.0  # until a training that was started has made its first step


def training(directory: Path, epochs: int) -> list[str]:
    """Return the command that begins a training, and goes on with it."""
    options = ["--out", str(directory), "--epochs", str(epochs), "--resume", "auto"]
    return [*TRUESTEP, "train", "digits", *options]


def steps_of(directory: Path) -> int:
    """Return the last step that a training has written down."""
    try:
        lines = (directory / "metrics.jsonl").read_text("utf-8").splitlines()
        return max(json.loads(line)["step"] for line in lines)
    except (OSError, ValueError, KeyError):
        return 0


def killed(directory: Path, epochs: int, moment: float) -> bool:
    """Start a training, kill it so many seconds after it began to step; False if it came to its end before."""
    before = steps_of(directory)
    process = subprocess.Popen(
        training(directory, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and steps_of(directory) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def show(epochs: int, kills: int, folder: Path, seed: int | None) -> int:
    """Train, train and kill, compare; return the status of the comparison."""
    undisturbed, disturbed = folder / "undisturbed", folder / "killed"
    for directory in (undisturbed, disturbed):
        shutil.rmtree(directory, ignore_errors=True)
    dice = random.Random(seed)
    print(f"Training {epochs} epochs undisturbed into {undisturbed}", flush=True)
    subprocess.run(
        training(undisturbed, epochs), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    print(f"The same into {disturbed}, killed {kills} times by SIGKILL at random moments", flush=True)
    for number in range(1, kills + 1):
        if not killed(disturbed, epochs, dice.uniform(0.0, 1.0)):
            print(f"  it came to its end before kill {number}", flush=True)
            break
        print(f"  kill {number}: after step {steps_of(disturbed)}", flush=True)
    print("  started once more, and left alone", flush=True)
    subprocess.run(
        training(disturbed, epochs), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    compare = [*TRUESTEP, "checkpoints", "diff", str(undisturbed), str(disturbed)]
    return subprocess.run(compare, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=60, help="of each training")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, help="of the random moments")
    sys.exit(show(**vars(parser.parse_args())))
