# SPDX-License-Identifier: Apache-2.0
"""One update, wherever it was started: `python place.py [tcp://HOST:PORT | file://PATH]`; prints which process it was.

That is printed at the very end, and whether a group is left then.

With an address it makes its group itself, and wraps its network as torch wants it.
"""

import argparse
import atexit
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import truestep as ts

parser = argparse.ArgumentParser()
parser.add_argument("address", nargs="?")
parser.add_argument("--local_rank", "--local-rank")  # of the old launcher
arguments = parser.parse_args()
found = []


def say():
    # in one write: the old launcher's processes write through, and those of two would mix
    words = map(str, ("place", *found, "left" if dist.is_initialized() else "none left"))
    sys.stdout.write(" ".join(words) + "\n")


atexit.register(say)
torch.set_num_threads(1)
module = nn.Linear(2, 1, bias=False)
if arguments.address:
    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=arguments.address, **place)
    module = DistributedDataParallel(module)
with ts.Run(f"run-{os.getpid()}", progress=False, quiet=True, doctor=False) as run:
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1))
    nn.init.constant_(net.weight, 1.0 + run.rank)  # rank 0's counts
    data = run.data(torch.arange(8.0).view(4, 2), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            loss = float(net.update(lambda rows: net(rows).squeeze(1), batch).loss)
    wrapper = [choice.value for choice in run.choices() if choice.name.startswith("wrapper")]
    weight = [round(each, 6) for each in net.weight.flatten().tolist()]
    found += [run.rank, run.local_rank, run.world_size, loss, *wrapper, weight]
if arguments.address:
    assert dist.is_initialized()  # it is the file's own
    dist.destroy_process_group()
