# SPDX-License-Identifier: Apache-2.0
"""What looking at the layers costs: a look beside its neighbours in one run, by processor time of one thread."""

import statistics
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

EVERY, CYCLES = 8, 20


def convolutional(width):
    layers = []
    for before in (3, *[width] * 5):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def dense(width):
    layers = [nn.Flatten()]
    for before in (3 * 16 * 16, *[width] * 5):
        layers += [nn.Linear(before, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def times_of(net, folder):
    """Return the processor time of each update; one in EVERY is looked at."""
    options = {"progress": False, "quiet": True, "doctor": False, "saving": ts.Saving(every_seconds=None)}
    times = []
    with ts.Run(folder, watch_layers=EVERY, **options) as run:
        learner = run.learner(net, lambda p: torch.optim.AdamW(p, lr=1e-4))
        batch = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
        for _ in run.steps(EVERY * CYCLES):
            begun = time.process_time()
            learner.update(lambda b: F.cross_entropy(learner(b[0]), b[1], reduction="none"), batch)
            times.append(time.process_time() - begun)
    return times


def main():
    torch.set_num_threads(1)
    print("| network | an update | a look | one look in 64 updates |\n|---|--:|--:|--:|")
    for name, net in (("convolutions", convolutional(12)), ("dense", dense(256))):
        with tempfile.TemporaryDirectory() as folder:
            times = times_of(net, folder)
        cycles = [times[start : start + EVERY] for start in range(EVERY, len(times), EVERY)]
        plain = [
            statistics.median(cycle[1 : EVERY - 2]) for cycle in cycles
        ]  # the last two begin and end a look
        looks = [cycle[-2] + cycle[-1] - 2 * usual for cycle, usual in zip(cycles, plain, strict=True)]
        look, usual = statistics.median(looks), statistics.median(plain)
        print(
            f"| {name} | {1e3 * usual:.1f} ms | {1e3 * look:.1f} ms | {look / (64 * usual):.2%} |", flush=True
        )


if __name__ == "__main__":
    main()
