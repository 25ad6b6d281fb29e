# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers in samples, as tokenizers and `datasets` give them, are rows; by PyTorch's default they are columns."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source


class Pair(NamedTuple):
    ids: list
    label: int


IDS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
HOLDERS = {
    "a dict": (lambda ids, label: {"ids": ids, "label": label}, lambda batch: batch["ids"]),
    "a dict in a dict": (lambda ids, label: {"x": {"ids": ids}}, lambda batch: batch["x"]["ids"]),
    "a tuple": (lambda ids, label: (ids, label), lambda batch: batch[0]),
    "a list": (lambda ids, label: [ids, label], lambda batch: batch[0]),
    "a named tuple": (Pair, lambda batch: batch.ids),
    "a namespace": (lambda ids, label: SimpleNamespace(ids=ids), lambda batch: batch.ids),
}


def first_batch(data, **options):
    source = open_source(
        data, DataOptions(**{"batch_size": 3, "check": False, **options}), seed=0, device=torch.device("cpu")
    )
    try:
        return next(iter(source.batches(0)))
    finally:
        source.close()


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_list_of_numbers_is_a_row_wherever_it_stands(holder):
    make, ids = HOLDERS[holder]
    samples = [make(each, 0) for each in IDS]
    for data in (samples, lambda: iter(samples)):
        assert torch.equal(ids(first_batch(data)), torch.tensor(IDS))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    "samples",
    [
        *([make(each, 0) for each in IDS] for name, (make, _) in HOLDERS.items() if "namespace" not in name),
        [[*each] for each in IDS],
    ],
)
def test_a_loader_that_is_taken_over_gives_the_batches_that_its_own_loop_has(samples, num_workers):
    loader = torch.utils.data.DataLoader(samples, batch_size=3, num_workers=num_workers)
    (own,) = loader
    taken = first_batch(loader, batch_size=None)
    assert repr(taken) == repr(own)


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([[1, 0], [0, 1], [1, 1]], torch.int64),
        ([[0.5, 1.0], [1.0, 2.0], [3.0, 4.0]], torch.float32),
        ([[1, 2], [0.5, 2], [3, 4]], torch.float32),  # a file that leaves .0 out
        ([[True, False], [False, True], [True, True]], torch.bool),
        ([[[1, 2], [3, 4]]] * 3, torch.int64),  # boxes
        ([[7], [8], [9]], torch.int64),
        ([[np.float32(1), np.float32(2)]] * 3, torch.float32),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_rows_have_the_dtype_that_torch_gives_a_list(rows, dtype, num_workers):
    batch = first_batch([{"x": row, "y": 0} for row in rows], num_workers=num_workers)
    assert batch["x"].dtype == dtype
    assert batch["x"].tolist() == torch.tensor(rows).tolist()


def test_lists_of_other_things_stay_structure():
    tensors = first_batch([{"x": [torch.ones(2), torch.zeros(3)]}] * 3)["x"]
    assert [part.shape for part in tensors] == [(3, 2), (3, 3)]
    assert first_batch([{"x": ["a", "b"]}] * 3)["x"] == [("a",) * 3, ("b",) * 3]
    assert [part.shape for part in first_batch([(1, 2)] * 3)] == [(3,), (3,)]
    assert [part.shape for part in first_batch([([1, 2], (3, 4))] * 3)[1]] == [(3,), (3,)]


@pytest.mark.parametrize("rows", [[[1, 2, 3], [4, 5], [6]], [[[1], [2]], [[1]], [[2]]]])
def test_lists_of_other_lengths_are_refused_with_what_pads_them(rows):
    with pytest.raises(DataError, match=r"other lengths, 1 to [23].*collate=.*padding='max_length'"):
        first_batch([{"ids": row} for row in rows])


@pytest.mark.parametrize("sample", [[1, 2, 3], [0.5, 1], [7], [[1, 2], [3, 4]]])
def test_a_sample_that_is_a_list_of_numbers_is_asked_for_its_meaning(sample):
    with pytest.raises(
        DataError, match=r"one row of numbers or as parts.*torch.tensor\(sample\).*tuple\(sample\)"
    ):
        first_batch([sample] * 3)
