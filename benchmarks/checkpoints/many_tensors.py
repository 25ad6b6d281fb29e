# SPDX-License-Identifier: Apache-2.0
"""What saving many small tensors, a first save and loading cost, each in a process of its own.

python benchmarks/checkpoints/many_tensors.py [--tensors 30000] [--bytes 1000000000] [--repeats 5] [--folder .]

Processor time counts all threads, so that other work on the machine distorts it less than the clock.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import truestep as ts


def clocks():
    return time.perf_counter(), time.process_time()


def since(begin):
    return [now - then for now, then in zip(clocks(), begin, strict=True)]


def small_state(count):
    """What AdamW keeps of `count` / 4 parameters of 8 to 64 numbers, and these."""
    shapes = [(8 * (1 + number % 8),) for number in range(count // 4)]
    state = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.randn(shape), "exp_avg_sq": torch.rand(shape)}
        for number, shape in enumerate(shapes)
    }
    weights = {f"layers.{number}.weight": torch.randn(shape) for number, shape in enumerate(shapes)}
    return {
        "net": weights,
        "optimizer": {"state": state, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
    }


def large_state(num_bytes, tensors=100):
    return {"model": {f"layer{number}": torch.randn(num_bytes // 4 // tensors) for number in range(tensors)}}


def small_saves(folder, count, _):
    state, found = small_state(count), {}
    with ts.CheckpointStore(folder / "run", retention=ts.Retention(last=2)) as store:
        for name in ("first", "second", "warm", "back to back", "back to back again"):
            state["optimizer"]["param_groups"][0]["lr"] *= 0.9
            begin = clocks()
            store.save(len(found), state)
            found[name] = since(begin)
            if "back" not in name:
                store.wait()
                found[f"{name}, on disk"] = since(begin)
    return found


def first_save(folder, _, num_bytes):
    state, found = large_state(num_bytes), {}
    with ts.CheckpointStore(folder / "run", retention=ts.Retention(last=1)) as store:
        begin = clocks()
        store.save(1, state)
        found["stall"] = since(begin)
        store.wait()
        found["on disk"] = since(begin)
    return found


def torch_save(folder, _, num_bytes):
    state = large_state(num_bytes)
    begin = clocks()
    with (folder / "weights.pt").open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    return {"on disk": since(begin)}


def loading(folder, count, num_bytes):
    found = {}
    for name, state in (("large", large_state(num_bytes)), ("small", small_state(count))):
        with ts.CheckpointStore(folder / name) as store:
            store.save(1, state)
            checkpoint = store.newest()  # read once, so that the files are in memory
        del state
        begin = clocks()
        checkpoint.load()
        found[name] = since(begin)
    return found


MEASURES = {measure.__name__: measure for measure in (small_saves, torch_save, first_save, loading)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=30_000)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--only", choices=MEASURES, action="append")
    parser.add_argument("--one", choices=MEASURES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            print(json.dumps(MEASURES[arguments.one](Path(folder), arguments.tensors, arguments.bytes)))
        return
    print("| | seconds by the clock, median (least to most) | processor seconds |\n|---|---|---|")
    rows = {}
    for _ in range(arguments.repeats):  # interleaved, so that a busy minute hits all of them
        for name in arguments.only or MEASURES:
            command = [sys.executable, __file__, "--one", name, *sys.argv[1:]]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for what, times in json.loads(output).items():
                rows.setdefault(f"{name.replace('_', ' ')}: {what}", []).append(times)
    for name, found in rows.items():
        wall, processor = (sorted(column) for column in zip(*found, strict=True))
        middle = len(wall) // 2
        print(f"| {name} | {wall[middle]:.3f} ({wall[0]:.3f} to {wall[-1]:.3f}) | {processor[middle]:.3f} |")


if __name__ == "__main__":
    main()
