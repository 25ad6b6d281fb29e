# SPDX-License-Identifier: Apache-2.0
"""Saving and loading 1 GB in 100 tensors by this code and by an older one, in turns: as from format 2 to format 3.

    mkdir /tmp/before; git archive a3a52c86 src | tar -x -C /tmp/before
    python benchmarks/checkpoints/formats.py --before /tmp/before/src [--megabytes 1000] [--repeats 3] [--folder .]

Each measure is a process of its own. Medians of the processor time of all threads are printed, and the median of the pairs' ratios.
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

from truestep.checkpoints.store import CheckpointStore

TENSORS = 100


def one(megabytes, folder):
    """Print what one save and one load take."""
    numbers = megabytes * 250_000 // TENSORS
    state = {"net": {f"layer{number}": torch.randn(numbers) for number in range(TENSORS)}}
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = CheckpointStore(Path(own), background=False)
        begin = time.process_time()
        store.save(1, state)
        store.wait()
        found.append(time.process_time() - begin)
        begin = time.process_time()
        loaded = store.resume().state
        found.append(time.process_time() - begin)
        store.close()
    assert torch.equal(loaded["net"]["layer7"], state["net"]["layer7"])
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", help="the folder src of an older code")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.megabytes, options.folder)
        return
    contenders = {"now": {}} | ({"before": {"PYTHONPATH": options.before}} if options.before else {})
    found = {name: [] for name in contenders}
    command = [sys.executable, __file__, "--one", "--megabytes", str(options.megabytes)]
    for number in range(options.repeats):
        for name in sorted(contenders, reverse=bool(number % 2)):
            done = subprocess.run(
                [*command, "--folder", options.folder],
                check=True,
                stdout=subprocess.PIPE,
                env={**os.environ, **contenders[name]},
            )
            found[name].append(json.loads(done.stdout))
    for name, rows in found.items():
        for word, own, first in zip(
            ("saving", "loading"), zip(*rows, strict=True), zip(*found["now"], strict=True), strict=True
        ):
            ratio = statistics.median(now / each for now, each in zip(first, own, strict=True))
            print(f"{word} {name}: {statistics.median(own):.2f} s; now takes {ratio:.2f} of it")


if __name__ == "__main__":
    main()
