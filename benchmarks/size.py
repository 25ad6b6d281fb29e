# SPDX-License-Identifier: Apache-2.0
"""What grows with the number of tensors and of kept checkpoints, by this code and by an older one, in turns.

    mkdir /tmp/before; git archive COMMIT src | tar -x -C /tmp/before
    python benchmarks/size.py --before /tmp/before/src [--repeats 3] [--folder .] [measure ...]

Each measure is a process of its own; seconds are of the processor, all threads.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import truestep as ts

QUIET = {"device": "cpu", "progress": False}


def network(count: int) -> nn.Module:
    """A network of `count` parameters of 8 to 64 numbers."""
    torch.manual_seed(0)
    return nn.ParameterList(torch.randn(8 * (1 + number % 8)) for number in range(count))


def squares(net: Any) -> Tensor:
    return torch.stack(torch._foreach_norm(list(net.parameters()))).square().sum()


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def on_ranks(folder: str, count: int) -> dict[str, float]:
    """The first update, and that behind a change of `requires_grad`."""
    run = ts.Run(Path(folder) / "run", doctor=False, saving=ts.Saving(at_epoch_end=False), **QUIET)
    net = run.learner(network(count), adam)
    first = next(iter(net.parameters()))
    data = run.data(torch.randn(64, 1), batch_size=4)
    found = {}
    for step, rows in enumerate(run.batches(data)):
        first.requires_grad_(step < 8)
        begin = time.process_time()
        net.update(lambda rows: squares(net).expand(len(rows)), rows)
        if step in (0, 8):
            found[f"update {step + 1} of two ranks, {count:,} tensors"] = time.process_time() - begin
    return found


def first_steps(folder: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for count in (1_000, 5_000, 10_000):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            found |= ts.spawn(on_ranks, 2, own, count)[0]
    return found


def saves(folder: str) -> dict[str, float]:
    """A save while the doctor watches, and what a manifest holds."""
    saving = ts.Saving(every_steps=1, every_seconds=None, at_epoch_end=False, keep_last=2, background=False)
    count, times, begin = 10_000, [], 0.0
    run = ts.Run(Path(folder) / "run", doctor=True, saving=saving, **QUIET)
    net = run.learner(network(count), adam)
    for step in run.steps(9):
        if step:
            times.append(time.process_time() - begin)
        begin = time.process_time()
        net.update(lambda _: squares(net), None)
    manifest = max(Path(folder).glob("run/checkpoints/*/manifest.json"))
    return {
        f"a watched step with a save, {count:,} tensors": statistics.median(times[2:]),
        "manifest, bytes a stored tensor": manifest.stat().st_size / (4 * count),
    }


def kept(folder: str) -> dict[str, float]:
    """A step with a save where many are kept."""
    found = {}
    for count in (50, 500):
        saving = ts.Saving(
            every_steps=1, every_seconds=None, at_epoch_end=False, keep_last=count, background=False
        )
        run = ts.Run(Path(folder) / str(count), doctor=False, saving=saving, **QUIET)
        net = run.learner(nn.Linear(8, 8), adam)
        times, begin = [], 0.0
        for _ in run.steps(count + 40):
            times.append(time.process_time() - begin)
            begin = time.process_time()
            net.update(lambda rows, net=net: net(rows).square().mean(1), torch.ones(4, 8))
        found[f"a step with a save, {count} kept"] = statistics.median(times[-30:])
    return found


MEASURES = {each.__name__: each for each in (first_steps, saves, kept)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("measures", nargs="*", default=list(MEASURES))
    parser.add_argument("--before", required=True, help="the folder src of an older code")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        torch.set_num_threads(1)
        print(json.dumps(MEASURES[options.one](options.folder)), flush=True)
        os._exit(0)  # with nothing saved
    print("| | before | now | now / before |\n|---|---|---|---|")
    for measure in options.measures:
        found: dict[str, dict[str, list[float]]] = {}
        for number in range(options.repeats):
            for which in sorted(("before", "now"), reverse=bool(number % 2)):
                for name, value in one(measure, which, options).items():
                    found.setdefault(name, {}).setdefault(which, []).append(value)
        for name, values in found.items():
            before, now = (statistics.median(values[which]) for which in ("before", "now"))
            print(f"| {name} | {before:.4g} | {now:.4g} | {now / before:.2f} |", flush=True)


def one(measure: str, which: str, options: argparse.Namespace) -> dict[str, float]:
    """Return what a measure gives with the older code or this one."""
    path = {"PYTHONPATH": options.before} if which == "before" else {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, __file__, "--one", measure, "--before", options.before, "--folder", folder]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **path}
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
