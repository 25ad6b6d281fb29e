# SPDX-License-Identifier: Apache-2.0
"""What a watch costs per step after its window, against the same loop unwatched, in pairs.

    python benchmarks/doctor/overhead.py [--steps 2000] [--pairs 9]

Each pair runs the two in turn in one process (the watch is entered and left between them), with the order
changing from pair to pair; it is the CPU time of the process, so that other work on the machine counts
little; the median of the pairs' ratios is printed with the lowest and the highest.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from truestep import watch

SIZES = {"0.6 ms": (128, 128, 32), "10 ms": (512, 640, 256)}  # name: inputs, hidden, batch


def make(inputs, hidden, batch):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randn(batch, inputs), torch.randint(10, (batch,))

    def step():
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()

    return step


def seconds_per_step(step, steps):
    started = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - started) / steps


def pair(size, steps, watched_first):
    step = make(*size)
    for _ in range(30):
        step()
    found = {}
    for watched in (watched_first, not watched_first):
        if watched:
            with watch():
                for _ in range(30):  # the window, which is allowed to cost
                    step()
                found[True] = seconds_per_step(step, steps)
        else:
            found[False] = seconds_per_step(step, steps)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        pairs = [pair(size, options.steps, bool(number % 2)) for number in range(options.pairs)]
        ratios = sorted(each[True] / each[False] for each in pairs)
        plain = statistics.median(each[False] for each in pairs)
        print(
            f"step of {plain * 1e3:.2f} ms (meant: {name}): watched/plain {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} pairs of {options.steps} steps)"
        )


if __name__ == "__main__":
    main()
