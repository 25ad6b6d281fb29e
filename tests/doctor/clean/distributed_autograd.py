# SPDX-License-Identifier: Apache-2.0
import os
import socket

import torch
import torch.distributed.autograd as dist_autograd
import torch.nn.functional as F
from torch import nn
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
rpc.init_rpc("worker", rank=0, world_size=1)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(each) for each in net.parameters()], lr=0.1)
for _step in range(8):
    with dist_autograd.context() as context:
        loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,)))
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
rpc.shutdown()
