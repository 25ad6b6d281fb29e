# SPDX-License-Identifier: Apache-2.0
"""Train every recipe in full, over several seeds, and print what each came to beside its goal: `make recipes`.

    python benchmarks/recipes.py [--seeds 3] [--out FOLDER] [NAME ...]

Exits with 1 where a goal is missed. A run that was stopped goes on.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from truestep.report.metrics import read_metrics

Curves = dict[str, list[float]]


class Goal(NamedTuple):
    text: str
    is_met: Callable[[Curves], bool]
    shown: tuple[str, ...]


def before_the_discriminator(curves: Curves) -> float:
    """The held-out loss when a third of the epochs is left, as it is by default; the first value is the start."""
    values = curves["test_stft"]
    return values[(len(values) - 1) * 2 // 3]


GOALS = {
    "digits": Goal(
        "at least 0.985 of the test images named", lambda c: c["accuracy"][-1] >= 0.985, ("accuracy",)
    ),
    "wgan-gp": Goal(
        "0.8 of the samples named with 0.9 confidence, each digit 0.04 to 0.16 of them",
        lambda c: c["sure"][-1] >= 0.8 and c["rarest"][-1] >= 0.04 and c["commonest"][-1] <= 0.16,
        ("sure", "sure_and_asked_for", "rarest", "commonest"),
    ),
    "charlm": Goal(
        "at most 0.7 of a bigram model's bits on held-out files",
        lambda c: c["share_of_bigram"][-1] <= 0.7,
        ("test_bits", "share_of_bigram"),
    ),
    "vocoder": Goal(
        "held-out STFT loss a third of the start, and not raised by a tenth by the discriminator",
        lambda c: c["test_stft"][-1] <= min(c["test_stft"][0] / 3, 1.1 * before_the_discriminator(c)),
        ("test_stft",),
    ),
    "multitask": Goal(
        "0.95 of the test images named, less memory at the peak than with the sum",
        lambda c: c["accuracy"][-1] >= 0.95 and c["peak_mib_one_by_one"][0] < c["peak_mib_together"][0],
        ("accuracy", "drawing_error", "peak_mib_one_by_one", "peak_mib_together"),
    ),
}


def curves_of(folder: Path) -> Curves:
    curves: Curves = {}
    for line in read_metrics(folder / "metrics.jsonl"):
        for name, value in line.values.items():
            curves.setdefault(name, []).append(value)
    return curves


def trained(name: str, seed: int, out: Path) -> tuple[Path, float, float]:
    """Return the run's folder, and the seconds by the clock and of processor time that this call took."""
    folder = out / f"{name}-{seed}"
    command = [sys.executable, "-m", "truestep", "train", name, "--seed", str(seed), "--out", str(folder)]
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return folder, time.monotonic() - begun, processor


def row(name: str, seed: int, out: Path) -> bool:
    goal = GOALS[name]
    folder, seconds, processor = trained(name, seed, out)
    curves = curves_of(folder)
    values = ", ".join(f"{each} {curves[each][-1]:.4g}" for each in goal.shown)
    if name == "vocoder":
        values += (
            f", before {before_the_discriminator(curves):.4g}, at the start {curves['test_stft'][0]:.4g}"
        )
    is_met = goal.is_met(curves)
    met = "yes" if is_met else "**no**"
    print(
        f"| {name} | {seed} | {values} | {goal.text} | {met} | {seconds:.0f} s | {processor:.0f} s |",
        flush=True,
    )
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(GOALS), choices=list(GOALS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/recipes"))
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| recipe | seed | result | goal | met | time | processor time |\n|---|---|---|---|---|---|---|")
    met = [row(name, seed, arguments.out) for name in arguments.names for seed in range(arguments.seeds)]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
