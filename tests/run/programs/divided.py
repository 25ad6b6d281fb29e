# SPDX-License-Identifier: Apache-2.0
"""A training whose weights are divided among ranks: `python divided.py FOLDER EPOCHS [RANK SYNC]`.

It goes on from what FOLDER/run holds, to so many epochs, and prints a digest of what it began with and of what it ends with: all
that its learners hold, gathered. Rank 0 leaves the latter in FOLDER/EPOCHS.pt. With the last two, this rank is killed by SIGKILL
before it puts its file of this number, of all that it writes for checkpoints, on the disk; unless FOLDER/failed says that it was.
The rank that the environment's DIES names is sent its SIGNAL when it has read a checkpoint.
"""

import ctypes
import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

import truestep as ts
from truestep.checkpoints import Checkpoint
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.engine.processes.shards import gather_over_ranks, local_part
from truestep.run.parts_via_rank_zero import CheckpointPartSender


def watch_reading(dies):
    """Say how much is kept of what is read of the learners; or end this process when it has read, before it has told anybody."""
    load = Checkpoint.load

    def watched(*arguments, **options):
        state = load(*arguments, **options)
        if dies:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        print("bytes read", bytes_here(state["learners"]))
        return state

    Checkpoint.load = watched


def bytes_here(tree):
    """Return the size of what this process has of the tensors in a tree."""
    if isinstance(tree, dict | list | tuple):
        return sum(map(bytes_here, tree.values() if isinstance(tree, dict) else tree))
    return local_part(tree).nbytes if isinstance(tree, torch.Tensor) else 0


def kill_at(number, once):
    """Kill this process at a sync of a file of a checkpoint, which may be one that it sends."""
    left = [number]

    def counted(kind, is_of_checkpoint):
        sync = kind.sync

        def counting(self, descriptor):
            left[0] -= is_of_checkpoint(descriptor)
            if left[0] == 0:
                once.write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            sync(self, descriptor)

        kind.sync = counting

    counted(CheckpointFiles, lambda number: "/.tmp-" in str(Path(f"/proc/self/fd/{number}").readlink()))
    counted(CheckpointPartSender, lambda _: True)


def fill_disk(place):
    """Have the disk take no more when a file that was sent is begun, the one of this number."""
    create, left = CheckpointFiles.create, [place]

    def counted(self, path):
        left[0] -= "-r0001" in path.name
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(self, path)

    CheckpointFiles.create = counted


def hide(folder):
    """Put another disk in the place of a folder, for this process alone, as on a machine of its own; for root only."""
    new_namespace = 0x20000
    assert ctypes.CDLL(None).unshare(new_namespace) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)


class Net(nn.Module):
    """Weights of which a process of many has none, tied ones, batch statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 1)
        self.norm, self.dropout = nn.BatchNorm1d(5), nn.Dropout(0.2)
        self.again = self.first

    def forward(self, rows):
        hidden = self.dropout(self.norm(self.first(rows)))
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return self.last(hidden).squeeze(1)


def digest(state):
    found = hashlib.sha256()
    for name in ("modules", "averages"):
        for key, tensor in state[name].items():
            found.update(key.encode() + tensor.cpu().numpy().tobytes())
    for each in state["optimizers"][0]["state"].values():
        for key, tensor in each.items():
            found.update(key.encode() + tensor.cpu().numpy().tobytes())
    return found.hexdigest()


def gathered(net):
    return gather_over_ranks(net.training_state(), keep=True)


def trains(folder, epochs, failing="-1", sync="0"):
    once = folder / "failed"
    if os.environ.get("RANK") == failing and not once.exists():
        kill_at(int(sync), once)
    if "APART" in os.environ:
        folder = folder / "disk"  # where one was killed is said beside it
        if os.environ["RANK"] == "1":
            hide(folder)
        elif "FULL" in os.environ:
            fill_disk(int(os.environ["FULL"]))
    options = {"progress": False, "doctor": False, "timeout_seconds": float(os.environ.get("TIMEOUT", "60"))}
    strategy = "fsdp" if "RANK" in os.environ else "auto"
    saving = ts.Saving(every_steps=2, background="AT_ONCE" not in os.environ)
    run = ts.Run(folder / "run", seed=4, saving=saving, strategy=strategy, **options)
    net = run.learner(Net(), lambda p: torch.optim.AdamW(p, lr=0.01), ema=ts.EMA(decay=0.9), name="net")
    data = run.data(
        torch.randn(64, 3, generator=torch.Generator().manual_seed(3)), batch_size=8, shuffle=True
    )
    begun = None
    for _ in run.epochs(int(epochs)):
        begun = begun or digest(gathered(net))
        for batch in run.batches(data):
            net.update(lambda rows: net(rows).square(), batch)
    ended = gathered(net)
    if run.is_main:
        torch.save(ended, folder / f"{epochs}.pt")
    run.close()
    print(*(f"checkpoints {choice.value}" for choice in run.choices() if choice.name == "checkpoints"))
    print("began with", begun)
    print("ends with", digest(ended), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    watch_reading(dies=os.environ.get("DIES") == os.environ["RANK"])
    trains(Path(sys.argv[1]), *sys.argv[2:])
