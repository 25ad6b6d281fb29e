# SPDX-License-Identifier: Apache-2.0
"""Copy a learner's module in each body of the loop, in each way that people do."""

import copy
import io
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel

import truestep as ts


def saved_whole(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def averaged(module):
    average = AveragedModel(module)
    average.update_parameters(module)
    return average.module


COPIES = {"deepcopy": copy.deepcopy, "saved whole": saved_whole, "averaged": averaged}


def main(folder):
    run = ts.Run(folder / "copied", watch_layers=2, progress=False, quiet=True)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1))
    rows = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    for batch in run.batches(run.data((rows, torch.arange(24) % 3), batch_size=8)):
        net.update(lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none"), batch)
        net.eval()
        expected = net.module(rows).detach()
        net.train()
        for name, of in COPIES.items():
            twin = of(net.module)
            twin(rows).sum().backward()  # by its own statistics, which no other rank is asked for
            assert torch.equal(of(net.module).eval()(rows), expected), (name, run.step)
            assert net.module[0].weight.grad is not twin[0].weight.grad
    run.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
