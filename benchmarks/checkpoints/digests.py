# SPDX-License-Identifier: Apache-2.0
"""Whether BLAKE3 would make saving and loading cheaper than SHA-256: processor time of 1 GB, side by side.

python benchmarks/checkpoints/digests.py   # with `pip install blake3`, which nothing else here needs
"""

import hashlib
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import blake3
import torch

from truestep.checkpoints import CheckpointStore, checksum
from truestep.checkpoints.checkpoint import Checkpoint

SIZE = 250_000_000  # float32: 1 GB
ROUNDS = 5


class Digests:
    """Stands in for `hashlib` where files are hashed."""

    def __init__(self, kind):
        self.sha256 = kind


def measured(kind, state, folder):
    """Return seconds of processor time of hashing, saving and loading."""
    checksum.hashlib = Digests(kind)
    data = memoryview(state["weight"].numpy()).cast("B")
    used = [time.process_time()]
    whole = checksum.Checksum()
    whole.update(data)
    whole.hexdigest()
    whole.__exit__()
    used.append(time.process_time())
    with CheckpointStore(folder, background=False) as store:
        store.save(1, state)
    used.append(time.process_time())
    (path,) = folder.glob("*-step-1")
    Checkpoint.open(path).load()
    used.append(time.process_time())
    shutil.rmtree(folder)
    return [after - before for before, after in itertools.pairwise(used)]


def main():
    state = {"weight": torch.randn(SIZE)}
    kinds = {"sha256": hashlib.sha256, "blake3": blake3.blake3}
    found = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as kept:
        for number in range(ROUNDS):
            for name in sorted(kinds, reverse=bool(number % 2)):
                found[name].append(measured(kinds[name], state, Path(kept, "store")))
                print(name, *(f"{each:.2f}" for each in found[name][-1]), flush=True)
    for place, what in enumerate(("hashing", "saving", "loading")):
        sha, other = (statistics.median(each[place] for each in found[name]) for name in kinds)
        print(
            f"{what} 1 GB: {sha:.2f} s of processor time with SHA-256, {other:.2f} with BLAKE3: {1 - other / sha:.0%} less"
        )


if __name__ == "__main__":
    main()
