# SPDX-License-Identifier: Apache-2.0
"""What a step with a save costs with many parameters: a run beside torch.save, fsync and rename by hand.

python benchmarks/checkpoints/step_with_save.py [--parameters 1000 10000] [--repeats 5] [--folder .] [--before OLDER/src]

Each measure is a process of its own, in turns. Processor time counts all threads. A stall is what the loop waits for a save.
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

import torch
from torch import nn

STEPS, WARM = 12, 3


def network(count):
    """A network of `count` parameters of 8 to 64 numbers."""
    torch.manual_seed(0)
    return nn.ParameterDict({f"layer{number}": torch.randn(8 * (1 + number % 8)) for number in range(count)})


def squares(net):
    return torch.stack(torch._foreach_norm(list(net.parameters()))).square().sum()


def by_hand(folder, count):
    net = network(count)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        begin = time.perf_counter(), time.process_time()
        loss = squares(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        saving = time.perf_counter()
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        with (folder / "new.pt").open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        (folder / "new.pt").rename(folder / "last.pt")
        yield [time.perf_counter() - saving, time.perf_counter() - begin[0], time.process_time() - begin[1]]


def as_a_run(folder, count):
    import truestep as ts

    saving = ts.Saving(every_steps=1, every_seconds=None, at_epoch_end=False, keep_last=1, keep_best=0)
    run = ts.Run(folder / "run", device="cpu", saving=saving, progress=False, doctor=False)
    net = run.learner(network(count), lambda p: torch.optim.AdamW(p, lr=1e-3))
    begin = None
    for _ in run.steps(STEPS + 1):
        if begin is not None:  # a step is saved when the next is asked for
            done, store = time.perf_counter(), run.session._saver.files.store
            store.wait()
            yield [store.stall_seconds.last, done - begin[0], time.process_time() - begin[1]]
        begin = time.perf_counter(), time.process_time()
        net.update(lambda _: squares(net), None)
    (manifest,) = sorted(folder.glob("run/checkpoints/*/manifest.json"))[-1:]
    print(f"{manifest.stat().st_size / (4 * count):.0f} bytes of manifest a stored tensor", file=sys.stderr)


MEASURES = {"by hand": by_hand, "a run": as_a_run}


def one(name, count, folder):
    """Print the medians of a contender: of the stall, of the step by the clock and in processor time."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        found = list(MEASURES[name](Path(own), count))[WARM:]
    print(json.dumps([statistics.median(column) for column in zip(*found, strict=True)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--before", help="the folder src of an older code")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]), options.folder)
        return
    for count in options.parameters:
        contenders = {"by hand": ("by hand", {}), "a run": ("a run", {})}
        if options.before:
            contenders["a run before"] = ("a run", {"PYTHONPATH": options.before})
        found = {name: [] for name in contenders}
        for number in range(options.repeats):
            for name in sorted(contenders, reverse=bool(number % 2)):
                measure, more = contenders[name]
                command = [sys.executable, __file__, "--one", measure, str(count), "--folder", options.folder]
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env={**os.environ, **more}
                )
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
                print(count, name, found[name][-1], done.stderr.strip()[-60:], file=sys.stderr, flush=True)
        for name, rows in found.items():
            medians = [statistics.median(column) for column in zip(*rows, strict=True)]
            ratios = [
                statistics.median(own / hand for own, hand in zip(mine, theirs, strict=True))
                for mine, theirs in zip(
                    zip(*rows, strict=True), zip(*found["by hand"], strict=True), strict=True
                )
            ]
            words = ("stall", "step by the clock", "processor time of a step")
            told = zip(words, medians, ratios, strict=True)
            print(count, name, *(f"{word} {value:.3f} s ({ratio:.2f})" for word, value, ratio in told))


if __name__ == "__main__":
    main()
