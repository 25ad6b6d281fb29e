# SPDX-License-Identifier: Apache-2.0
"""An evaluation of data whose last batch is dropped is told of; one of the training data is not."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import truestep as ts

X = torch.randn(22, 3)
WORDS = "samples of 22: "


def loader(*, drop_last=True, size=8):
    return DataLoader(TensorDataset(X), batch_size=size, drop_last=drop_last)


MEASURED = {
    "tensors": lambda run: run.data(X, batch_size=8, drop_last=True),
    "shuffled": lambda run: run.data(X, batch_size=8, drop_last=True, shuffle=True),
    "a data set": lambda run: run.data(TensorDataset(X), batch_size=10, drop_last=True),
    "a loader": lambda run: run.data(loader()),
    "a loader by itself": lambda run: loader(),
    "a dict": lambda run: run.data({"x": X}, batch_size=8, drop_last=True),
}
WHOLE = {
    "all": lambda run: run.data(X, batch_size=8),
    "even": lambda run: run.data(X, batch_size=11, drop_last=True),
    "an even loader": lambda run: loader(size=11),
    "a loader of all": lambda run: loader(drop_last=False),
    "batches": lambda run: list(X.split(8)),
    "what is trained on": None,
}


def evaluate(folder, data):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    train = run.data(X, batch_size=8, drop_last=True)
    measured = train if data is None else data(run)
    first = lambda batch: (
        batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
    )
    for _ in run.epochs(2):
        for batch in run.batches(train):
            net.update(lambda x: net(x).square().sum(1), batch)
        net.evaluate(lambda batch: net(first(batch)).squeeze(1), measured)
    run.close()


@pytest.mark.parametrize("kind", MEASURED)
def test_samples_that_are_left_out_are_counted_once(tmp_path, capsys, kind):
    evaluate(tmp_path, MEASURED[kind])
    assert capsys.readouterr().err.count(WORDS) == 1


@pytest.mark.parametrize("kind", WHOLE)
def test_nothing_is_said_where_all_are_seen(tmp_path, capsys, kind):
    evaluate(tmp_path, WHOLE[kind])
    assert WORDS not in capsys.readouterr().err
