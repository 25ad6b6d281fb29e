# SPDX-License-Identifier: Apache-2.0
"""How long a save holds up the training: ours against torch.save with fsync and DCP's async_save.

python benchmarks/checkpoints/stall.py [--bytes 1000000000] [--repeats 7] [--folder .] [--json out.json]

Each contender saves the same state, changed in between, and has finished writing before the next one's turn.
The first save of each is cold: buffers are made then. The others are warm.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import BlockingAsyncStager

import truestep as ts
from truestep.checkpoints.copy_memory_check import CopyMemoryChecker
from truestep.checkpoints.prepare import CheckpointPreparer
from truestep.checkpoints.snapshot import CheckpointStagingBuffers


def make_state(num_bytes, tensors=100):
    return {"model": {f"layer{number}": torch.randn(num_bytes // 4 // tensors) for number in range(tensors)}}


class TorchSave:
    name = "torch.save + fsync"

    def __init__(self, folder):
        self.path = folder / "weights.pt"

    def save(self, _step, state):
        with self.path.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())

    def wait(self):
        pass


class Dcp:
    name = "DCP async_save"
    stager = None

    def __init__(self, folder):
        self.folder, self.future = folder, None

    def save(self, step, state):
        writer = dcp.FileSystemWriter(self.folder / str(step), sync_files=True)
        extra = {"async_stager": self.stager} if self.stager else {}
        self.future = dcp.async_save(state, storage_writer=writer, **extra)
        self.step = step

    def wait(self):
        getattr(self.future, "upload_completion", self.future).result()
        shutil.rmtree(self.folder / str(self.step))


class DcpCached(Dcp):
    name = "DCP async_save, pinned buffers kept"

    def __init__(self, folder):
        super().__init__(folder)
        self.stager = BlockingAsyncStager(cache_staged_state_dict=True)


class Copy:
    """No save at all: what it costs to copy the state once into memory that is there already."""

    name = "one copy in memory, nothing saved"

    def __init__(self, _folder):
        self.buffers = None

    def save(self, _step, state):
        if self.buffers is None:
            self.buffers = {name: torch.empty_like(tensor) for name, tensor in state["model"].items()}
        for name, tensor in state["model"].items():
            self.buffers[name].copy_(tensor)

    def wait(self):
        pass


class Ours:
    name = "truestep"

    def __init__(self, folder):
        self.store = ts.CheckpointStore(folder, retention=ts.Retention(last=1))

    def save(self, step, state):
        self.store.save(step, state)

    def wait(self):
        self.store.wait()


class GivenBack(Ours):
    """Ours where memory is short: the copy is given back while it is written, so that each save makes its memory anew."""

    name = "truestep, copy given back"

    def __init__(self, folder):
        super().__init__(folder)
        self.store._preparing = CheckpointPreparer(
            CheckpointStagingBuffers(CopyMemoryChecker(may_keep=False))
        )


def measure(contenders, state, repeats):
    stalls = {contender.name: [] for contender in contenders}
    wholes = {contender.name: [] for contender in contenders}
    for step in range(1 + repeats):  # interleaved, so that a busy minute hits all of them
        for contender in contenders:
            for tensor in state["model"].values():
                tensor[0] = step
            begin = time.perf_counter()
            contender.save(step, state)
            stalls[contender.name].append(time.perf_counter() - begin)
            contender.wait()
            wholes[contender.name].append(time.perf_counter() - begin)
    return stalls, wholes


def table(stalls, wholes):
    rows = []
    for name, seconds in stalls.items():
        warm = sorted(seconds[1:])
        rows.append(
            {
                "name": name,
                "cold_seconds": seconds[0],
                "warm_median_seconds": statistics.median(warm),
                "warm_min_seconds": warm[0],
                "warm_max_seconds": warm[-1],
                "until_written_median_seconds": statistics.median(wholes[name][1:]),
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    state = make_state(arguments.bytes)
    kinds = [TorchSave, Dcp, *([DcpCached] if torch.cuda.is_available() else []), Copy, Ours, GivenBack]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        contenders = []
        for kind in kinds:
            place = Path(folder) / kind.__name__
            place.mkdir()
            contenders.append(kind(place))
        rows = table(*measure(contenders, state, arguments.repeats))
        for contender in contenders[-2:]:
            contender.store.close()
    threads = torch.get_num_threads()
    print(f"{arguments.bytes:,} bytes, {arguments.repeats} warm saves")
    print(f"torch {torch.__version__}, {threads} threads")
    for row in rows:
        warm = f"{row['warm_min_seconds']:.3f} to {row['warm_max_seconds']:.3f}"
        print(
            f"{row['name']:36} stall: cold {row['cold_seconds']:.3f} s, "
            f"warm {row['warm_median_seconds']:.3f} s ({warm}); "
            f"on disk after {row['until_written_median_seconds']:.2f} s"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"schema_version": 1, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
