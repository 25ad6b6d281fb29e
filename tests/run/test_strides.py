# SPDX-License-Identifier: Apache-2.0
"""Samples, weights and states that are views into a larger tensor: whatever a DataLoader takes, a run takes."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import truestep as ts

TABLE = (
    1 + torch.arange(48.0).reshape(8, 6) / 48
)  # features, of which every second is used; the last is the label


class Rows(Dataset):
    def __init__(self, width):
        self.width = width

    def __len__(self):
        return len(TABLE)

    def __getitem__(self, index):
        return TABLE[index, : 2 * self.width : 2], TABLE[index, 5:]


def samples(width):
    return [Rows(width)[index] for index in range(8)]


KINDS = {
    "columns": lambda width: (TABLE[:, : 2 * width : 2], TABLE[:, 5:]),
    "one column": lambda width: (TABLE[3:4, : 2 * width : 2], TABLE[3:4, 5:]),
    "TensorDataset": lambda width: TensorDataset(TABLE[:, : 2 * width : 2], TABLE[:, 5:]),
    "list": samples,
    "Dataset": Rows,
    "generator": lambda width: lambda: iter(samples(width)),
    "DataLoader": lambda width: DataLoader(Rows(width), batch_size=1),
    "bfloat16": lambda width: [(x.bfloat16(), y) for x, y in samples(width)],
    "bfloat16 view": lambda width: [(TABLE.bfloat16()[i, : 2 * width : 2], TABLE[i, 5:]) for i in range(8)],
}


def train_and_go_on(directory, layer, given, options):
    """One epoch, and in a second run another: what was saved is read again."""
    for epochs in (1, 2):
        with ts.Run(directory, progress=False) as run:
            net = run.learner(layer, lambda p: torch.optim.Adam(p, lr=0.1))
            data = run.data(given, **options)

            def loss(batch, net=net):
                return (net(batch[0].float()) - batch[1]).square().mean(1)

            for _ in run.epochs(epochs):
                for batch in run.batches(data):
                    net.update(loss, batch)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_may_have_a_stride(tmp_path, kind):
    width = 1  # of two elements torch says itself whether they are contiguous
    layer = nn.Linear(width, 1)
    layer.register_buffer("centre", torch.zeros(1, 4)[:, ::2][:, :1])
    layer.weight = nn.Parameter(torch.zeros(1, 6)[:, ::2][:, :width])
    train_and_go_on(
        tmp_path / "run", layer, KINDS[kind](width), {} if kind == "DataLoader" else {"batch_size": 1}
    )
    assert layer.weight.detach().abs().sum() > 0
