# SPDX-License-Identifier: Apache-2.0
"""`ts.defaults`: new tensors follow it, everything is as before afterwards, and what it says it does not govern it does not."""

import json
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import truestep as ts
from truestep.core.errors import OptionError
from truestep.nn.defaults import DTYPES


def now():
    return torch.get_default_dtype(), torch.get_default_device()


@given(
    st.lists(
        st.tuples(st.sampled_from([*DTYPES, None]), st.sampled_from(["cpu", "meta", None])).filter(any),
        max_size=4,
    ),
    st.booleans(),
)
def test_blocks_nest_and_everything_is_put_back_whatever_happens_inside(levels, fails):
    before = now()

    def nest(rest, expected):
        if not rest and fails:
            raise KeyError("inside")
        if not rest:
            return
        dtype, device = rest[0]
        inner = (dtype or expected[0], torch.device(device) if device else expected[1])
        with ts.defaults(dtype=dtype, device=device):
            assert now() == inner
            made = torch.zeros(2)
            assert (made.dtype, made.device.type) == (inner[0], inner[1].type)
            nest(rest[1:], inner)
            assert now() == inner
        assert now() == expected

    try:
        nest(levels, before)
    except KeyError:
        assert fails
    assert now() == before
    assert torch.zeros(1).device == before[1]


def test_a_default_that_was_set_before_is_put_back():
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with ts.defaults(dtype=torch.float16, device="cpu"):
            assert torch.zeros(1).device.type == "cpu"
        assert (torch.zeros(1).dtype, torch.zeros(1).device.type) == (torch.float64, "meta")
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert torch.zeros(1).device.type == "cpu"


def test_a_default_dtype_that_is_changed_inside_is_put_back():
    with ts.defaults(device="cpu"):
        torch.set_default_dtype(torch.float64)
    assert torch.get_default_dtype() == torch.float32


def test_a_block_may_be_used_again_and_inside_itself():
    block = ts.defaults(dtype=torch.float64)
    for _ in range(2):
        with block, block:
            assert torch.zeros(1).dtype == torch.float64
        assert torch.zeros(1).dtype == torch.float32


def test_modules_and_complex_numbers_follow():
    with ts.defaults(dtype=torch.float64, device="meta"):
        weight = torch.nn.Linear(2, 2).weight
        assert (weight.dtype, weight.device.type, torch.tensor(1j).dtype) == (
            torch.float64,
            "meta",
            torch.complex128,
        )


def test_what_it_says_it_does_not_govern_it_does_not():
    old, net = torch.zeros(2), torch.nn.Linear(1, 1)
    seen = []
    with ts.defaults(dtype=torch.float64, device="meta") as block:
        made = {
            "tensors and modules": [old.new_zeros(1), torch.zeros_like(old), net.weight],
            "whole numbers": [torch.tensor(3, device="cpu").float(), torch.arange(3, device="cpu").float()],
            "arrays": [torch.from_numpy(np.zeros(1, dtype=np.float32))],
        }
        assert (torch.tensor(3).dtype, torch.arange(3).dtype) == (torch.int64, torch.int64)
        array = np.zeros(1, dtype=np.float32)
        assert torch.tensor(array).dtype == torch.as_tensor(array).dtype == torch.float32
        assert torch.as_tensor(array).device.type == "meta"
        assert torch.Generator().device.type == "cpu"
        thread = threading.Thread(target=lambda: seen.append(torch.zeros(1)))
        thread.start()
        thread.join()
    assert len(block.not_governed) == 5
    for tensors in made.values():
        assert [(tensor.dtype, tensor.device.type) for tensor in tensors] == [(torch.float32, "cpu")] * len(
            tensors
        )
    assert (seen[0].dtype, seen[0].device.type) == (torch.float64, "cpu")


def test_exactly_the_dtypes_that_torch_takes_are_taken():
    taken = []
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        try:
            torch.set_default_dtype(dtype)
            taken.append(dtype)
        except (TypeError, RuntimeError):
            pass
        finally:
            torch.set_default_dtype(torch.float32)
    assert set(taken) == set(DTYPES)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.float8_e5m2, torch.complex64, torch.bool, "float64", np.float64]
)
def test_other_dtypes_are_refused_with_those_there_are(dtype):
    with pytest.raises(OptionError, match=r"torch\.float16, torch\.bfloat16, torch\.float32, torch\.float64"):
        ts.defaults(dtype=dtype)


@pytest.mark.parametrize("device", ["cuda:31", "gpu", 3.5])
def test_a_device_that_is_not_there_is_refused_before_the_block(device):
    before = now()
    with pytest.raises(OptionError, match="can't be used here"):
        ts.defaults(dtype=torch.float64, device=device)
    assert now() == before


def test_nothing_to_change_is_refused():
    with pytest.raises(OptionError, match="changes nothing"):
        ts.defaults()


def test_the_block_becomes_json_and_text():
    block = ts.defaults(dtype=torch.float64)
    document = json.loads(json.dumps(block.to_dict()))
    assert (document["schema_version"], document["dtype"], document["device"]) == (1, "float64", None)
    assert set(document) == {"schema_version", "dtype", "device", "not_governed"}
    assert str(block).startswith("default dtype float64, device as before; not governed:\n  tensors")
