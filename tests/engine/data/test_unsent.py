# SPDX-License-Identifier: Apache-2.0
"""What can't be sent from a worker process is said; Python prints that there and drops the batch, and a training waited forever."""

import functools
import resource
import threading

import pytest
import torch
from torch.utils.data import IterableDataset

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source


class Local:
    """Whose class is hidden, so that pickle does not find it."""


Local.__qualname__ = "made_in_a_function.<locals>.Local"
UNSENT = {
    "a lambda": lambda: lambda: 1,
    "a lock": threading.Lock,
    "a generator": lambda: (each for each in [1]),
    "an object of a class in a function": Local,
    "a partial of a lambda": lambda: functools.partial(lambda: 1),
}


class Mapped:
    def __init__(self, make, at):
        self.make, self.at = make, at

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor(index), self.make() if index == self.at else None


class Stream(Mapped, IterableDataset):
    def __iter__(self):
        return map(self.__getitem__, range(len(self)))


@pytest.fixture
def opened():
    sources = []

    def open_one(data, **options):
        sources.append(
            open_source(data, DataOptions(batch_size=4, collate=list, check=False, **options), seed=0)
        )
        return sources[-1]

    yield open_one
    for source in sources:
        source.close()


@pytest.mark.sliced(2)
@pytest.mark.parametrize("at", [0, 9, 19])
@pytest.mark.parametrize("kind", [Mapped, Stream])
@pytest.mark.parametrize("what", UNSENT)
def test_a_batch_that_can_not_be_sent_is_said(opened, what, kind, at):
    source = opened(kind(UNSENT[what], at=at), num_workers=1)
    with pytest.raises(
        DataError, match=r"a batch could not be sent .* at the top level of a module, or write num_workers=0"
    ):
        list(source.batches(0))
    whole = opened(kind(UNSENT[what], at=at), num_workers=0)
    assert len(list(whole.batches(0))) == 5, "without workers nothing is sent"


def of_many_tensors(batch):
    return [torch.ones(2, requires_grad=True) for _ in range(60)]  # what is packed needs one


def few_files(worker):
    resource.setrlimit(resource.RLIMIT_NOFILE, (48, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_a_worker_without_open_files_left_says_how_to_get_more(opened):
    source = open_source(
        torch.arange(8),
        DataOptions(batch_size=4, collate=of_many_tensors, check=False, num_workers=1, worker_init=few_files),
        seed=0,
    )
    with pytest.raises(DataError, match=r"Too many open files.*ulimit -n 65536"):
        list(source.batches(0))
    source.close()
