# SPDX-License-Identifier: Apache-2.0
"""A list, deque or buffer given as data that changes while the run trains: its new samples never come, or no save has them."""

import itertools
import random
from collections import deque

import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset

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
    "another list of as many": (Held, lambda data: setattr(data, "items", rows())),
    "subset": (lambda: Subset(rows(40), range(32)), lambda data: data.dataset.append(ROW)),
    "tensor": (lambda: torch.randn(32, 2), lambda data: None),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_list_that_grows_is_refused(tmp_path, name):
    make, change, in_body = GROWING[name]
    with pytest.raises(ts.DataError, match=r"run\.track\(buffer=buffer\)"):
        train(tmp_path / "run", make(), change, in_body=in_body)


@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("name", TOLD)
def test_what_changes_is_told_of_once(tmp_path, capsys, name, in_body):
    make, change, words = TOLD[name]
    train(tmp_path / "run", make(), change, in_body=in_body)
    assert capsys.readouterr().err.count(words) == 1


@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("name", STILL)
def test_what_stays_is_left_alone(tmp_path, capsys, name, in_body):
    make, change = STILL[name]
    train(tmp_path / "run", make(), change, in_body=in_body)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("hold", [lambda data: data, Stored])
def test_what_is_tracked_is_left_alone(tmp_path, capsys, hold):
    data = Kept(rows(), 32)
    train(tmp_path / "run", data, lambda kept: kept.append(ROW.clone()), tracked=hold(data))
    assert "in the place of others" not in capsys.readouterr().err
