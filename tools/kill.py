# SPDX-License-Identifier: Apache-2.0
"""Train twice, kill one of the two at random moments, and compare what they end with: `make kill`.

Each kill is a SIGKILL, which a process neither sees nor can answer. A killed training is started again by the same command.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TRUESTEP = [sys.executable, "-m", "truestep"]
STEP = re.compile(r"^epoch .*?  step \d+", re.MULTILINE)
PATIENCE_SECONDS = 120.0  # until a training that was started has made its first step


class Training:
    """A training in a process of its own, which goes on with what an earlier one left."""

    def __init__(self, directory: Path, epochs: int) -> None:
        options = ["--out", str(directory), "--epochs", str(epochs), "--resume", "auto"]
        self.metrics, self.log = directory / "metrics.jsonl", directory.with_suffix(".log")
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [*TRUESTEP, "train", "digits", *options], stdout=output, stderr=output
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and not self.has_stepped() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.started = time.monotonic()

    def has_stepped(self) -> bool:
        """Whether it has told of a step."""
        return STEP.search(self.log.read_text("utf-8", errors="replace")) is not None

    def end(self) -> float:
        """Wait for its end and return how many seconds it stepped."""
        if self.process.wait() != 0:
            sys.exit(self.log.read_text("utf-8", errors="replace"))
        return time.monotonic() - self.started

    def killed_after(self, seconds: float) -> bool:
        """Kill it so many seconds after its first step; False if it came to its end before."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def last_step(self) -> int:
        """Return the last step whose line of metrics is whole."""
        for line in reversed(self.metrics.read_text("utf-8").splitlines()):
            with suppress(ValueError):
                return int(json.loads(line)["step"])
        return 0


def show(epochs: int, kills: int, folder: Path, seed: int | None) -> int:
    """Train, train and kill, compare; return the status of the comparison."""
    undisturbed, disturbed = folder / "undisturbed", folder / "killed"
    folder.mkdir(parents=True, exist_ok=True)
    for directory in (undisturbed, disturbed):
        shutil.rmtree(directory, ignore_errors=True)
    dice = random.Random(seed)
    print(f"Training {epochs} epochs undisturbed into {undisturbed}", flush=True)
    seconds = Training(undisturbed, epochs).end()
    print(f"The same into {disturbed}, killed {kills} times by SIGKILL at random moments", flush=True)
    longest = 1.5 * seconds / (kills + 1)  # so that hardly ever it ends before the last kill
    for number in range(1, kills + 1):
        training = Training(disturbed, epochs)
        if not training.killed_after(dice.uniform(0.0, longest)):
            print(f"  it came to its end before kill {number}", flush=True)
            break
        print(f"  kill {number}: after step {training.last_step()}", flush=True)
    print("  started once more, and left alone", flush=True)
    Training(disturbed, epochs).end()
    compare = [*TRUESTEP, "checkpoints", "diff", str(undisturbed), str(disturbed)]
    return subprocess.run(compare, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=60, help="of each training")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, help="of the random moments")
    sys.exit(show(**vars(parser.parse_args())))
