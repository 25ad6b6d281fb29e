# SPDX-License-Identifier: Apache-2.0
"""A list, deque or buffer given as data that changes while the run trains: its new samples never come, or no save has them."""

import itertools
import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import truestep as ts

ROW = torch.zeros(2)


def rows(num=32):
    return [torch.randn(2) for _ in range(num)]


class Replay(Dataset):
    def __init__(self, maxlen=None):
        self.kept, self.cache, self.level = deque(rows(), maxlen), [None] * 32, 0

    def __len__(self):
        return len(self.kept)

    def __getitem__(self, index):
        self.cache[index % 32] = self.kept[index]
        return self.kept[index]


class Held(Dataset):
    def __init__(self):
        self.items = rows()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Kept(deque):
    def state_dict(self):
        return {"rows": torch.stack([*self])}

    def load_state_dict(self, state):
        self[:] = state["rows"]


class Stored:
    def __init__(self, held):
        self.held = held

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def as_ring():
    places = itertools.cycle(range(32))

    def write(data):
        for place in itertools.islice(places, 5):
            data[place] = ROW.clone()

    return write


def train(folder, data, change, *, in_body=True, tracked=None):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    if tracked is not None:
        run.track(buffer=tracked)
    source = run.data(data, batch_size=8)
    for _ in run.epochs(3):
        for batch in run.batches(source):
            net.update(lambda b: net(b)[:, 0].square(), batch)
            if in_body:
                change(data)
        if not in_body:
            change(data)
    run.close()


GROWING = {
    "append": (rows, lambda data: data.append(ROW), True),
    "extend": (rows, lambda data: data.extend(rows(8)), False),
    "pop": (rows, lambda data: data.pop(), False),
    "deque": (lambda: deque(rows(), 100), lambda data: data.append(ROW), True),
    "part": (lambda: ConcatDataset([rows(), rows()]), lambda data: data.datasets[1].append(ROW), False),
}
TOLD = {
    "full": (lambda: deque(rows(), 32), lambda data: data.append(ROW.clone()), "in the place of others"),
    "ring": (rows, as_ring(), "in the place of others"),
    "shuffled": (rows, random.shuffle, "in the place of others"),
    "rotated": (lambda: deque(rows()), lambda data: data.rotate(3), "in the place of others"),
    "full class": (lambda: Replay(32), lambda data: data.kept.append(ROW.clone()), "in the place of others"),
    "class": (Replay, lambda data: data.kept.append(ROW), "had 32 samples"),
    "class with a list": (Held, lambda data: data.items.append(ROW), "had 32 samples"),
    "another list": (Held, lambda data: setattr(data, "items", rows(40)), "had 32 samples"),
}
STILL = {
    "list": (rows, lambda data: None),
    "deque": (lambda: deque(rows()), lambda data: None),
    "cache": (Replay, lambda data: None),
    "level": (Replay, lambda data: setattr(data, "level", data.level + 1)),
    "subset": (lambda: Subset(rows(40), range(32)), lambda data: data.dataset.append(ROW)),
    "tensor": (lambda: torch.randn(32, 2), lambda data: None),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_list_that_grows_is_refused(tmp_path, name):
    make, change, in_body = GROWING[name]
    with pytest.raises(ts.DataError, match=r"run\.track\(buffer=buffer\)"):
        train(tmp_path / "run", make(), change, in_body=in_body)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("name", TOLD)
def test_what_changes_is_told_of_once(tmp_path, capsys, name, in_body):
    make, change, words = TOLD[name]
    train(tmp_path / "run", make(), change, in_body=in_body)
    assert capsys.readouterr().err.count(words) == 1


@pytest.mark.sliced(2)
@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("name", STILL)
def test_what_stays_is_left_alone(tmp_path, capsys, name, in_body):
    make, change = STILL[name]
    train(tmp_path / "run", make(), change, in_body=in_body)
    assert not capsys.readouterr().err


class Labelled(Dataset):
    """Rows with labels that a loop may give anew, in each form that people hold them in."""

    def __init__(self):
        self.rows, self.labels = torch.randn(32, 2), torch.zeros(32)
        self.weights, self.order, self.epoch = np.ones(32), [*range(32)], 0
        self.cache, self.seen = [None] * 32, torch.zeros(32)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        self.seen[index] += 1
        self.cache[index] = index
        index = self.order[index]
        return self.rows[index] * float(self.weights[index]) + self.labels[index]

    def relabel(self):
        self.labels = torch.randn(32)

    def set_epoch(self, epoch):
        self.order = [*reversed(self.order)]

    def state_dict(self):
        return {"labels": self.labels}

    def load_state_dict(self, state):
        self.labels = state["labels"]


def labelled(data):
    while not isinstance(data, Labelled):
        data = getattr(data, "dataset", None) or data.datasets[0]
    return data


WRITTEN = {
    "in place": lambda data: data.labels[4:].copy_(torch.randn(28)),
    "another tensor": lambda data: setattr(data, "labels", torch.randn(32)),
    "by a method": lambda data: data.relabel(),
    "array": lambda data: data.weights.__setitem__(slice(4, 9), 0.5),
    "order": lambda data: setattr(data, "order", [*reversed(data.order)]),
    "order in place": lambda data: random.shuffle(data.order),
}
FORMS = {
    "alone": lambda data: data,
    "subset": lambda data: Subset(data, range(32)),
    "parts": lambda data: ConcatDataset([data, data]),
    "loader": lambda data: DataLoader(data, batch_size=8),
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WRITTEN)
def test_what_a_loop_writes_behind_the_batches_is_told_once(tmp_path, capsys, form, way):
    data = FORMS[form](Labelled())
    train(tmp_path / "run", data, lambda data: WRITTEN[way](labelled(data)), in_body=False)
    assert capsys.readouterr().err.count("behind the batches of an epoch, and no checkpoint has it") == 1


def test_columns_of_a_tensor_data_set_are_looked_at(tmp_path, capsys):
    data = TensorDataset(torch.randn(32, 2))
    run = ts.Run(tmp_path / "run", device="cpu", progress=False, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source = run.data(data, batch_size=8)
    for _ in run.epochs(2):
        for (batch,) in run.batches(source):
            net.update(lambda b: net(b)[:, 0].square(), batch)
        data.tensors[0][:4] = 0.0
    run.close()
    assert "has changed 'tensors' of the data" in capsys.readouterr().err


RIGHT = {
    "nothing": lambda run, data: None,
    "read": lambda run, data: [data[index] for index in range(32)],  # an evaluation, which fills a cache
    "a number": lambda run, data: setattr(data, "epoch", data.epoch + 1),
    "kept": lambda run, data: [data.relabel(), run.state.update(labels=data.labels)],
    "kept within": lambda run, data: [data.relabel(), run.state.update(data={"labels": data.labels.clone()})],
}


@pytest.mark.parametrize("way", [*RIGHT, "tracked", "above"])
def test_what_is_kept_or_made_above_the_batches_is_left_alone(tmp_path, capsys, way):
    data = Labelled()
    run = ts.Run(tmp_path / "run", device="cpu", progress=False, doctor=False)
    if way == "tracked":
        run.track(data=data)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    source = run.data(data, batch_size=8)
    for epoch in run.epochs(3):
        if way == "above":
            data.set_epoch(epoch)
        for batch in run.batches(source):
            net.update(lambda b: net(b)[:, 0].square(), batch)
        RIGHT.get(way, lambda run, data: way == "tracked" and data.relabel())(run, data)
    run.close()
    assert "behind the batches" not in capsys.readouterr().err


def test_labels_of_a_tracked_data_set_come_back(tmp_path):
    def ends(folder, *stops):
        for epochs in stops:
            torch.manual_seed(0)
            run = ts.Run(folder, device="cpu", progress=False, quiet=True)
            net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            data = Labelled()
            run.track(data=data)
            source = run.data(data, batch_size=8)
            for _ in run.epochs(epochs):
                for batch in run.batches(source):
                    net.update(lambda b, net=net: net(b)[:, 0].square(), batch)
                data.labels = net(data.rows).detach()[:, 0]
            run.close()
        return net.module.weight.detach().clone()

    assert torch.equal(ends(tmp_path / "whole", 4), ends(tmp_path / "stopped", 2, 4))


@pytest.mark.parametrize("hold", [lambda data: data, Stored])
def test_what_is_tracked_is_left_alone(tmp_path, capsys, hold):
    data = Kept(rows(), 32)
    train(tmp_path / "run", data, lambda kept: kept.append(ROW.clone()), tracked=hold(data))
    assert "in the place of others" not in capsys.readouterr().err
