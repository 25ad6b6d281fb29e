# SPDX-License-Identifier: Apache-2.0
"""What grows with the number of tensors and of kept checkpoints; `before.py` runs it by two codes in turns.

    python benchmarks/growing.py first_updates|watched_saves|many_kept [--folder .]

Prints by name the seconds by the clock and of the processor, all threads.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import truestep as ts

sys.path.insert(0, str(Path(__file__).resolve().parent / "checkpoints"))
from step_with_save import network, squares

QUIET = {"device": "cpu", "progress": False}


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def saving_each_step(keep_last):
    return ts.Saving(
        every_steps=1, every_seconds=None, at_epoch_end=False, keep_last=keep_last, background=False
    )


def clocks():
    return time.perf_counter(), time.process_time()


def since(begin):
    return [now - then for now, then in zip(clocks(), begin, strict=True)]


def medians(times):
    return [statistics.median(column) for column in zip(*times, strict=True)]


def on_ranks(folder, count):
    """Time the first update, and that behind a change of `requires_grad`."""
    run = ts.Run(Path(folder) / "run", doctor=False, saving=ts.Saving(at_epoch_end=False), **QUIET)
    net = run.learner(network(count), adam)
    first = next(iter(net.parameters()))
    data = run.data(torch.randn(64, 1), batch_size=4)
    found = {}
    for step, rows in enumerate(run.batches(data)):
        first.requires_grad_(step < 8)
        begin = clocks()
        net.update(lambda rows: squares(net).expand(len(rows)), rows)
        if step in (0, 8):
            found[f"update {step + 1}, {count:,} tensors"] = since(begin)
    return found


def first_updates(folder):
    found = {}
    for count in (1_000, 5_000, 10_000):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            found |= ts.spawn(on_ranks, 2, own, count)[0]
    return found


def watched_saves(folder):
    """Time steps with a save while the doctor watches."""
    count, times, begin = 10_000, [], None
    run = ts.Run(Path(folder) / "run", doctor=True, saving=saving_each_step(2), **QUIET)
    net = run.learner(network(count), adam)
    for step in run.steps(9):
        if step:
            times.append(since(begin))
        begin = clocks()
        net.update(lambda _: squares(net), None)
    return {f"{count:,} tensors": medians(times[2:])}


def many_kept(folder):
    """Time steps with a save where many are kept."""
    found = {}
    for count in (50, 500):
        run = ts.Run(Path(folder) / str(count), doctor=False, saving=saving_each_step(count), **QUIET)
        net = run.learner(nn.Linear(8, 8), adam)
        times, begin = [], clocks()
        for _ in run.steps(count + 40):
            times.append(since(begin))
            begin = clocks()
            net.update(lambda rows, net=net: net(rows).square().mean(1), torch.ones(4, 8))
        found[f"{count} kept"] = medians(times[-30:])
    return found


MEASURES = {each.__name__: each for each in (first_updates, watched_saves, many_kept)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--folder", default=".")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as own:
        print(json.dumps(MEASURES[options.measure](own)), flush=True)
        sys.stdout.flush()
    os._exit(0)  # with nothing saved


if __name__ == "__main__":
    main()
