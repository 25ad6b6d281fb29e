# SPDX-License-Identifier: Apache-2.0
"""Train twice, kill one of the two at random moments, and compare what they end with: `make kill`.

Each kill is a SIGKILL, which a process neither sees nor can answer. A killed training is started again by the same command. Equal
ends prove something only where the starts behind the kills went on from a checkpoint: of five at least three must.
"""

import argparse
import json
import math
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
WENT_ON = re.compile(r"going on from \S+ \(step ([\d,]+)")
SAVE_EVERY = 10  # steps: a start behind a kill has something to go on from
SHARE = 0.6  # of the starts behind a kill, how many must go on from a checkpoint
PATIENCE_SECONDS = 120.0  # until a training that was started has made its first step


class Training:
    """A training in a process of its own, which goes on with what an earlier one left."""

    def __init__(self, directory: Path, epochs: int) -> None:
        options = [
            "--out",
            str(directory),
            "--epochs",
            str(epochs),
            "--resume",
            "auto",
            "--save-every",
            str(SAVE_EVERY),
        ]
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

    def went_on_from(self) -> int:
        """Return the step that it went on from; 0 where it began anew."""
        said = WENT_ON.search(self.log.read_text("utf-8", errors="replace"))
        return int(said[1].replace(",", "")) if said else 0

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
    training, went_on = Training(disturbed, epochs), []
    for number in range(1, kills + 1):
        if not training.killed_after(dice.uniform(0.0, longest)):
            print(f"  it came to its end before kill {number}", flush=True)
            break
        last = training.last_step()
        training = Training(disturbed, epochs)
        went_on.append(training.went_on_from())
        print(
            f"  kill {number}: after step {last}; started again, went on from step {went_on[-1]}", flush=True
        )
    training.end()
    print("  left alone, and ended", flush=True)
    resumed, least = sum(step > 0 for step in went_on), math.ceil(SHARE * kills)
    if resumed < least:
        print(
            f"{resumed} of {len(went_on)} starts behind a kill went on from a checkpoint past step 0, and {least} are needed: "
            "what was trained anew shows nothing about a resume. Give more epochs: --epochs 200."
        )
        return 1
    compare = [*TRUESTEP, "checkpoints", "diff", str(undisturbed), str(disturbed)]
    return subprocess.run(compare, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=60, help="of each training")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, help="of the random moments")
    sys.exit(show(**vars(parser.parse_args())))
