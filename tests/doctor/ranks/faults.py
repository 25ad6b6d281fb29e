# SPDX-License-Identifier: Apache-2.0
"""What the distributed faults do on two real ranks of torch's own: `python faults.py FOLDER`; each rank leaves FOLDER/RANK.json."""

import json
import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

RANK = int(os.environ["RANK"])
SECONDS = 3.0  # how long torch waits for a rank


def group():
    return dist.new_group(timeout=timedelta(seconds=SECONDS))


def raised(attempt):
    try:
        attempt()
    except Exception as error:
        return str(error).splitlines()[0]
    return ""


def seen(sampler, epochs=2, **options):
    loader = DataLoader(range(8), batch_size=2, sampler=sampler, shuffle=sampler is None)
    found = []
    for epoch in range(epochs):
        if options.get("set_epoch"):
            sampler.set_epoch(epoch)
        found.append([number for batch in loader for number in batch.tolist()])
    return found


def epoch_not_set():
    return [seen(DistributedSampler(range(8), seed=1), set_epoch=each) for each in (False, True)]


def loader_without_sampler():
    return sorted(seen(None, 1)[0])


def past_the_wrapper():
    """Return the gradients by way of the wrapper, and past it; the inputs differ by rank."""
    rows, found = torch.full((2, 1), 1.0 + RANK), []
    for past in (False, True):
        net = DDP(nn.Linear(1, 1, bias=False))
        (net.module if past else net)(rows).mean().backward()
        found.append(net.module.weight.grad.item())
    return found


class Stack(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.layers, self.unused = nn.ModuleList(nn.Linear(2, 2) for _ in range(2)), unused

    def forward(self, rows):
        return self.layers[0](rows) if self.unused else self.layers[1](self.layers[0](rows))


def steps(net, number=2):
    for _ in range(number):
        net(torch.ones(1, 2)).sum().backward()


def layer_unused_under_ddp():
    nets = [DDP(Stack(unused)) for unused in (False, True)]
    return [raised(partial(steps, net)) for net in nets]


def layer_drop_under_ddp():
    """A layer is dropped in the first step alone, and all of them have the same draw."""
    net = DDP(Stack(unused=True))
    steps(net, 1)
    net.module.unused = False
    return raised(lambda: steps(net, 1))


def mean_of_means():
    correct, counted = ((3.0, 3.0), (0.0, 1.0))[RANK]
    mean = torch.tensor(correct / counted)
    dist.all_reduce(mean)
    totals = torch.tensor([correct, counted])
    dist.all_reduce(totals)
    return [float(mean / 2), float(totals[0] / totals[1])]


def port_fixed():
    """Return what a second job finds that meets at the same port."""
    if RANK:
        return ""
    return raised(lambda: dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=True))


def uneven():
    """One rank has three batches, and the other two."""
    net = DDP(nn.Linear(2, 2), process_group=group())
    return raised(lambda: steps(net, 3 - RANK))


def collective_on_one_rank():
    alone = group()
    return raised(lambda: dist.all_reduce(torch.ones(1), group=alone)) if RANK == 0 else ""


FAULTS = [
    *(epoch_not_set, loader_without_sampler, past_the_wrapper, layer_unused_under_ddp, layer_drop_under_ddp),
    *(mean_of_means, port_fixed, uneven, collective_on_one_rank),
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}", rank=RANK, world_size=2
    )
    found = {}
    for fault in FAULTS:
        dist.barrier()
        found[fault.__name__] = fault()
    (Path(sys.argv[1]) / f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)
