# SPDX-License-Identifier: Apache-2.0
"""What stands in `run.state` comes back as it went in, or is refused when it is saved, with its path and what to keep instead."""

from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pytest
import torch

import truestep as ts
from truestep.checkpoints.state_codec import decode_state, encode_state
from truestep.core.errors import CheckpointError
from truestep.run.user_state import MAX_DEPTH, check_run_state, decode_run_state, encode_run_state


class Point(NamedTuple):
    x: int
    y: int


class Kind(IntEnum):
    ONE = 1


def through_a_checkpoint(value):
    encoded = encode_state(encode_run_state(value))
    tensors = {leaf.name: leaf.tensor for leaf in encoded.leaves}
    return decode_run_state(decode_state(encoded.tree, lambda node: tensors[node["tensor"]]))


def nested(depth, kind=list):
    value = 1
    for _ in range(depth):
        value = kind([value])
    return value


def holding_itself():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        {1: "one", "1": "uno", None: 0, 1.5: 2, (1, "a"): 3, False: 4} | {"__tuple__": [1], "__dict__": 2},
        (1, (2,), []),
        Counter("abba"),
        Counter([1, 1, 2]),
        2**70,
        ["\ud800", "\0", -0.0, float("inf")],
        nested(MAX_DEPTH - 1, tuple),
        OrderedDict(a=1),
        np.float32(0.5),
        np.int64(3),
        np.str_("text"),
        np.complex64(1j),
        np.datetime64("2020-01-01"),
    ],
    ids=repr,
)
def test_what_is_accepted_comes_back_equal_and_of_its_kind(value):
    check_run_state({"x": value})
    back = through_a_checkpoint({"x": value})["x"]
    assert back == value
    assert isinstance(back, Counter) == isinstance(value, Counter)
    assert isinstance(back, np.generic) == isinstance(value, np.generic)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).astype(dtype).reshape(2, 3)
        for dtype in (
            "bool",
            "int8",
            "uint32",
            "float16",
            "float64",
            "complex64",
            ">f4",
            "<M8[s]",
            "longdouble",
        )
    ]
    + [
        np.array(["one", "three"]),
        np.array([(1, 2.5)], dtype=[("count", "i4"), ("size", "f8")]),
        np.zeros((0, 3), dtype="i2"),
        np.array(7.0, dtype="f4"),
        np.arange(12).reshape(3, 4).T[::2],
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_comes_back_with_its_dtype_shape_and_bits_and_can_be_written_to(tmp_path, array):
    check_run_state({"x": [array]})
    with ts.CheckpointStore(tmp_path, background=False) as store:
        store.save(0, encode_run_state({"x": [array]}))
        (back,) = decode_run_state(store.newest().load())["x"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.writeable


def test_a_dict_that_looks_like_an_array_spelt_out_is_a_dict():
    value = {"dtype": "f4", "shape": [1], "is_scalar": False, "__array__": 1}
    assert decode_run_state(encode_run_state(value)) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([{}, None]), r"The array run\.state\['x'\] holds python objects"),
        ([1, {"a": {1, 2}}], r"run\.state\['x'\]\[1\]\['a'\] is a builtins\.set.*sorted\(value\)"),
        (Point(1, 2), r"Point.*value\._asdict\(\)"),
        (defaultdict(int), r"defaultdict.*dict\(value\)"),
        (deque([1]), r"deque.*list\(value\)"),
        (1j, r"complex.*value\.imag"),
        (b"bytes", r"value\.hex\(\)"),
        (Kind.ONE, r"is a .*Kind"),
        (len, r"builtin_function"),
        (10**3000, r"run\.state\['x'\] has 9966 bits.*hex"),
        ({b"key": 1}, r"The key b'key' of run\.state\['x'\] is a bytes"),
        (holding_itself(), r"nested more than 30 deep, or holds itself"),
        (nested(5000), r"nested more than 30 deep"),
        (torch.eye(2).to_sparse(), r"The tensor run\.state\['x'\] can't be saved: it has the layout"),
        (torch.ones(2, device="meta"), r"The tensor run\.state\['x'\] can't be saved: it is on the meta"),
    ],
)
def test_anything_else_is_refused_with_its_path_and_what_to_keep_instead(value, message):
    with pytest.raises(CheckpointError, match=message):
        check_run_state({"x": value})


def test_another_object_in_the_place_of_the_state_is_refused():
    with pytest.raises(CheckpointError, match=r"run\.state is an int"):
        check_run_state(5)
