# SPDX-License-Identifier: Apache-2.0
"""A state comes back equal, in values and in types; what can't is refused with its path."""

import json
import math
from collections import Counter, OrderedDict
from enum import Enum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.state_codec import decode_state, encode_state
from truestep.core.errors import CheckpointError


def there_and_back(state):
    encoded = encode_state(state)
    tensors = {leaf.name: leaf.tensor for leaf in encoded.leaves}
    assert len(tensors) == len(encoded.leaves)
    tree = json.loads(json.dumps(encoded.tree, allow_nan=False))
    return decode_state(tree, lambda node: tensors[node["tensor"]])


def same(left, right) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or left.hex() == right.hex()
    return left is right if isinstance(left, torch.Tensor) else left == right


KEYS = st.text(max_size=6) | st.sampled_from(["dict", "tensor", "tuple", "float", "items", "a/b", "~", ""])
PLAIN_KEYS = KEYS | st.integers(-2, 2) | st.none() | st.floats(0, 1) | st.just(math.inf)
ALL_KEYS = PLAIN_KEYS | st.lists(PLAIN_KEYS, max_size=2).map(tuple) | st.just("__tuple__")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=6)
    | st.builds(lambda: torch.zeros(2))
)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(ALL_KEYS, inner, max_size=4)
        | st.dictionaries(ALL_KEYS, st.integers(), max_size=4).map(Counter)
    ),
    max_leaves=20,
)


@given(STATES)
def test_every_state_comes_back_as_it_was(state):
    assert same(there_and_back(state), state)


def test_a_state_of_an_optimizer_comes_back_with_its_integer_keys_and_tuples():
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert same(there_and_back(optimizer.state_dict()), optimizer.state_dict())


def test_the_kinds_of_dict_and_number_that_are_plain_values_in_disguise():
    state = OrderedDict(loss=np.float64(0.1), name=np.str_("a"), size=torch.Size([2, 3]), count=np.int32(4))
    assert same(there_and_back(state), {"loss": 0.1, "name": "a", "size": (2, 3), "count": 4})


class Colour(float, Enum):
    RED = 1.0


REFUSED = [
    ({"a": {"b": [0, np.zeros(2)]}}, r"state\['a'\]\['b'\]\[1\] is a numpy.ndarray.*torch.from_numpy"),
    ({"a": {1, 2}}, r"state\['a'\] is a builtins.set.*sorted"),
    ({"a": b"x"}, r"state\['a'\] is a builtins.bytes.*hex"),
    ({"a": torch.nn.Linear(1, 1)}, r"state\['a'\] is a torch.nn.modules.linear.Linear.*state_dict"),
    ({"a": print}, r"state\['a'\] is a builtins.builtin_function"),
    ({"a": 1j}, r"state\['a'\] is a builtins.complex"),
    ({"a": Colour.RED}, r"state\['a'\] is a .*Colour"),
    ({"a": {b"k": 0}}, r"The key b'k' of the state at state\['a'\] is a bytes"),
    ({"a": {(1, b"k"): 0}}, r"The key b'k' of the state at state\['a'\] is a bytes"),
    ({"a": 1 << 10_000}, r"state\['a'\] has 10001 bits"),
]


@pytest.mark.parametrize(("state", "message"), REFUSED, ids=lambda value: None)
def test_anything_else_is_refused_with_its_path_before_anything_is_written(state, message, tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        with pytest.raises(CheckpointError, match=message):
            store.save(1, state)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_state_that_holds_itself_is_refused():
    state: dict = {}
    state["self"] = state
    with pytest.raises(CheckpointError, match="holds itself"):
        encode_state(state)


@pytest.mark.parametrize(
    "node", [{"dict": 1}, {"exec": "x"}, {}, {"dict": {}, "tuple": []}, {"items": [1]}, {"float": "1"}]
)
def test_a_tree_that_encode_did_not_write_is_refused(node):
    with pytest.raises((ValueError, TypeError)):
        decode_state(node, lambda node: None)
