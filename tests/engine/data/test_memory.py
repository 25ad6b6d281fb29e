# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory: any structure, any type of column, and batches that belong to the loop."""

import dataclasses
import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset

from truestep.core.errors import DataError, OptionError
from truestep.engine.data import ByLength, DataOptions, in_memory_tensors, open_source


class Pair(NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Images:
    pixels: torch.Tensor
    labels: np.ndarray


def opened(data, **options):
    return open_source(data, DataOptions(**{"batch_size": 4, **options}), seed=0)


x, y = torch.arange(10), np.arange(10) * 2.0
doubled = torch.arange(4, dtype=torch.float64) * 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (x, torch.arange(4)),
        (y, doubled),
        ((x, y), (torch.arange(4), doubled)),
        (
            {"a": x, "b": {"c": (x, y)}},
            {"a": torch.arange(4), "b": {"c": (torch.arange(4), doubled)}},
        ),
        (Pair(x, y), Pair(torch.arange(4), doubled)),
        (Images(x, y), Images(torch.arange(4), doubled)),
        (TensorDataset(x), (torch.arange(4),)),
    ],
)
def test_a_batch_has_the_structure_of_the_data(data, expected):
    source = opened(data)
    assert source.fingerprint()["kind"] == "memory"
    batch = next(source.batches(0))
    assert repr(expected) == repr(batch)
    assert type(expected) is type(batch)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("rows_at_once", [1, 7, 10**6])
def test_batches_are_the_rows_of_the_order(shuffle, rows_at_once, monkeypatch):
    monkeypatch.setattr(in_memory_tensors, "BYTES_AT_ONCE", 8 * rows_at_once)
    data = torch.arange(23)
    batches = list(opened(data, shuffle=shuffle).batches(0))
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert (list(range(23)) == torch.cat(batches).tolist()) is not shuffle
    assert list(range(23)) == sorted(torch.cat(batches).tolist())


@pytest.mark.parametrize("shuffle", [False, True])
def test_changing_a_batch_in_place_does_not_change_the_data(shuffle):
    data = torch.ones(10, 2)
    for batch in opened(data, shuffle=shuffle).batches(0):
        batch.zero_()
    assert torch.equal(torch.ones(10, 2), data)


def test_data_that_changes_is_seen_by_the_next_epoch():
    data = torch.zeros(4)
    source = opened(data)
    data += 1
    assert next(source.batches(0)).tolist() == [1.0] * 4


@given(
    indices=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    inner=st.lists(st.integers(0, 9), min_size=10, max_size=10),
)
def test_subsets_of_tensors_stay_in_memory(indices, inner):
    data = Subset(Subset(TensorDataset(x), inner), indices)
    source = opened(data)
    assert source.fingerprint()["kind"] == "memory"
    assert [inner[index] for index in indices] == torch.cat(
        [batch for (batch,) in source.batches(0)]
    ).tolist()


def test_columns_that_torch_can_not_share_are_taken_by_numpy(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(10, dtype=np.uint16))
    data = {
        "mapped": np.load(path, mmap_mode="r"),
        "foreign": np.arange(10, dtype=">i4"),
        "text": np.array([f"row {i}" for i in range(10)]),
        "flipped": np.arange(10)[::-1],
    }
    batch = next(opened(data, shuffle=True).batches(0))
    rows = batch["mapped"].tolist()
    assert torch.uint16 == batch["mapped"].dtype
    assert rows == batch["foreign"].tolist()
    assert [f"row {i}" for i in rows] == batch["text"].tolist()
    assert [9 - i for i in rows] == batch["flipped"].tolist()


def test_gradients_do_not_flow_into_the_data():
    assert not next(opened(torch.ones(4, requires_grad=True)).batches(0)).requires_grad


def test_the_fingerprint_tells_other_data_apart():
    prints = [
        opened(data).fingerprint()
        for data in (
            torch.zeros(9),
            torch.zeros(10),
            torch.zeros(9, 1),
            torch.zeros(9).int(),
            torch.ones(9),
            torch.zeros(9),
        )
    ]
    assert prints[0] == prints[-1]
    assert len({repr(fingerprint) for fingerprint in prints}) == 5


def test_the_fingerprint_tells_other_orders_apart():
    lengths = list(range(10))
    options = [
        {},
        {"batch_size": 5},
        {"shuffle": True},
        {"drop_last": True},
        {"weights": lengths},
        {"weights": lengths[::-1]},
        {"weights": lengths, "num_samples": 5},
        {"by_length": lengths},
        {"by_length": ByLength(lengths=lengths, max_tokens=20)},
    ]
    prints = {json.dumps(opened(torch.zeros(10), **chosen).fingerprint()) for chosen in options}
    assert len(options) == len(prints)


def test_the_choice_is_explained():
    assert "in memory" in {choice.value for choice in opened(x).choices}
    assert len(opened(x)) == 3
    assert opened(x).num_samples == 10
    assert opened(x, drop_last=True).num_samples == 8


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ((torch.zeros(5), torch.zeros(4, 2)), {}, "data[0] has 5, data[1] has 4"),
        ({"x": torch.zeros(5), "y": torch.zeros(6)}, {}, "data['x'] has 5, data['y'] has 6"),
        (torch.zeros(0, 3), {}, "the data set is empty"),
        (torch.tensor(3.0), {}, "data is a single number"),
        ((), {}, "empty structure"),
        (torch.zeros(5, 2).to_sparse(), {}, "data.to_dense()"),
        ({"x": "abc"}, {}, "data['x'] is a str"),
        (torch.zeros(5), {"batch_size": 6, "drop_last": True}, "leaves no batch of 5 samples"),
        (torch.zeros(5), {"batch_size": None}, "batch_size is missing"),
    ],
)
def test_data_that_makes_no_sense_is_refused(data, options, words):
    with pytest.raises(DataError) as caught:
        opened(data, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size=0 is too small"),
        ({"batch_size": -3}, "batch_size=-3"),
        ({"batch_size": 2.0}, "batch_size=2.0 is a float"),
        ({"batch_size": True}, "batch_size=True is a bool"),
        ({"num_workers": -1}, "num_workers=-1"),
        ({"num_workers": "many"}, '"auto"'),
        ({"batchsize": 3}, "Did you mean 'batch_size'"),
        ({"num_samples": 3}, "number of draws with weights="),
        ({"weights": [1], "by_length": [1]}, "Give one of them"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(OptionError) as caught:
        DataOptions.of(options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e5m2, torch.bool, torch.complex64, torch.float16]
)
def test_every_type_of_number_is_taken(dtype):
    data = torch.arange(10).to(dtype)
    (batch,) = opened(data, batch_size=10, shuffle=True).batches(0)
    order = next(opened(torch.arange(10), batch_size=10, shuffle=True).batches(0))
    assert dtype == batch.dtype
    assert torch.equal(data.float()[order], batch.float()) if dtype != torch.complex64 else True


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "sliced", "expanded", "flipped time"])
def test_the_layout_in_memory_does_not_matter_and_channels_last_stays(layout):
    images = torch.arange(10 * 3 * 4 * 5).reshape(10, 3, 4, 5)
    images = {
        "contiguous": images,
        "channels_last": images.contiguous(memory_format=torch.channels_last),
        "sliced": images[:, :, ::2],
        "expanded": images[:, :1].expand(10, 3, 4, 5),
        "flipped time": images.transpose(0, 1).reshape(10, 3, 4, 5),
    }[layout]
    batch = next(opened(images, shuffle=True).batches(0))
    order = next(opened(torch.arange(10), shuffle=True).batches(0))
    assert torch.equal(images[order], batch)
    if layout == "channels_last":
        assert batch.is_contiguous(memory_format=torch.channels_last)


def test_columns_with_a_collate_function_become_samples():
    def collate(samples):
        assert isinstance(samples[0], tuple)
        return [(int(a), float(b)) for a, b in samples]

    assert next(opened((x, y), collate=collate).batches(0)) == [(0, 0.0), (1, 2.0), (2, 4.0), (3, 6.0)]
    subset = Subset(TensorDataset(x, x), [7, 3])
    assert next(opened(subset, collate=collate).batches(0)) == [(7, 7.0), (3, 3.0)]
