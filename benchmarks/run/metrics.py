# SPDX-License-Identifier: Apache-2.0
"""What many metrics cost a step, beside a loop that keeps them by hand: `python benchmarks/run/metrics.py [--repeats 9]`.

Two habits: means of values that the loss gives for each example (`ts.weighted`; by hand running sums, read every ten steps into a
line of JSON), and numbers that are at hand (`run.log`; by hand a line of JSON) at each step. Each contender is a process of its
own that takes turns with the other, and processor time is compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ROWS, EVERY, WARM, STEPS = 32, 10, 20, 100
HABITS = ("means of values", "numbers logged")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def by_hand(habit: str, names: list[str], folder: Path) -> Callable[[int], None]:
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    inputs, labels = torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,))
    lines = (folder / "metrics.jsonl").open("w")
    sums = dict.fromkeys(names, torch.zeros(()))

    def write(step: int, values: dict[str, float]) -> None:
        lines.write(json.dumps({"step": step, **values}) + "\n")
        lines.flush()

    def step(number: int) -> None:
        optimizer.zero_grad()
        values = F.cross_entropy(net(inputs), labels, reduction="none")
        values.mean().backward()
        optimizer.step()
        if habit == HABITS[1]:
            write(number, dict.fromkeys(names, number / 7))
            return
        seen = values.detach()
        for name in names:
            sums[name] = sums[name] + seen.mean()
        if number % EVERY == EVERY - 1:
            write(number, {name: total.item() / EVERY for name, total in sums.items()})
            sums.update(dict.fromkeys(names, torch.zeros(())))

    return step


def as_a_run(habit: str, names: list[str], folder: Path) -> Callable[[int], None]:
    import truestep as ts

    saving = ts.Saving(every_seconds=None, at_epoch_end=False)
    run = ts.Run(folder / "run", device="cpu", progress=False, quiet=True, doctor=False, saving=saving)
    net = run.learner(network(), lambda p: torch.optim.AdamW(p, lr=1e-4))
    batch = torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,))
    steps = iter(run.steps(10**6))

    def loss(given: Any) -> Any:
        values = F.cross_entropy(net(given[0]), given[1], reduction="none")
        if habit == HABITS[1]:
            return values
        return ts.weighted(values, **dict.fromkeys(names, values.detach()))

    def step(number: int) -> None:
        next(steps)
        net.update(loss, batch)
        if habit == HABITS[1]:
            run.log(**dict.fromkeys(names, number / 7))

    return step


CONTENDERS = {"by hand": by_hand, "a run": as_a_run}


def one(name: str, habit: str, count: int, folder: str) -> None:
    """Make the steps that are asked for on standard input, and print the processor time of one."""
    torch.set_num_threads(1)
    step = CONTENDERS[name](habit, [f"metric_{number}" for number in range(count)], Path(folder))
    for number in range(WARM):
        step(number)
    for _ in sys.stdin:
        begin = time.process_time()
        for number in range(STEPS):
            step(number)
        print((time.process_time() - begin) / STEPS, flush=True)
    os._exit(0)  # with nothing saved


def row(habit: str, count: int, repeats: int, folder: str) -> str:
    """Return a row of the table."""
    workers = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--one", name, habit, str(count), tempfile.mkdtemp(dir=folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in CONTENDERS
    }
    found: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(repeats):
        for name in sorted(workers, reverse=bool(number % 2)):
            given, told = workers[name].stdin, workers[name].stdout
            assert given is not None
            assert told is not None
            given.write("\n")
            given.flush()
            found[name].append(float(told.readline()))
    for worker in workers.values():
        worker.communicate()
    hand, ours = (statistics.median(times) * 1e3 for times in found.values())
    ratios = sorted(mine / theirs for theirs, mine in zip(*found.values(), strict=True))
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {habit} | {count:,} | {hand:.2f} ms | {ours:.2f} ms | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 100, 1000])
    parser.add_argument("--one", nargs=4)
    options = parser.parse_args()
    if options.one:
        name, habit, count, folder = options.one
        one(name, habit, int(count), folder)
        return
    print("| | metrics | by hand | Truestep | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for habit in HABITS:
            for count in options.counts:
                print(row(habit, count, options.repeats, folder), flush=True)


if __name__ == "__main__":
    main()
