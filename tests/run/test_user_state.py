# SPDX-License-Identifier: Apache-2.0
"""What stands in `run.state` comes back as it went in, or is refused when it is saved, with its path and what to keep instead."""

from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pytest
import torch

from truestep.engine.state import from_tree, to_tree
from truestep.errors import CheckpointError
from truestep.run.user_state import MAX_DEPTH, check_user_state


class Point(NamedTuple):
    x: int
    y: int


class Kind(IntEnum):
    ONE = 1


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
    ],
    ids=repr,
)
def test_what_is_accepted_comes_back_equal_and_of_its_kind(value):
    check_user_state({"x": value})
    back = from_tree(to_tree({"x": value}))["x"]
    assert back == value
    assert isinstance(back, Counter) == isinstance(value, Counter)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3), r"run\.state\['x'\] is a numpy\.ndarray.*Keep torch\.from_numpy"),
        ([1, {"a": {1, 2}}], r"run\.state\['x'\]\[1\]\['a'\] is a builtins\.set.*sorted\(value\)"),
        (Point(1, 2), r"Point.*value\._asdict\(\)"),
        (defaultdict(int), r"defaultdict.*dict\(value\)"),
        (deque([1]), r"deque.*list\(value\)"),
        (1j, r"complex.*value\.imag"),
        (np.complex64(1j), r"numpy\.complex64"),
        (np.datetime64("2020-01-01"), r"run\.state\['x'\] is a numpy\.datetime64"),
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
        check_user_state({"x": value})


def test_another_object_in_the_place_of_the_state_is_refused():
    with pytest.raises(CheckpointError, match=r"run\.state is a int"):
        check_user_state(5)
