# SPDX-License-Identifier: Apache-2.0
"""Structures are taken apart and put together again without loss."""

import collections
import dataclasses
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pack_sequence

from truestep.core import nested_structures
from truestep.engine.data.transfer import batches_to_device, move_batch


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Sample:
    image: int
    rest: list
    area: int = dataclasses.field(init=False, default=0)


TREE = {"a": (1, [2, Point(3, 4)]), "b": Sample(5, [6]), "c": collections.OrderedDict(d=7), "e": ()}


def test_leaves_have_the_names_one_writes():
    names = ["data['a'][0]", "data['a'][1][0]", "data['a'][1][1].x", "data['a'][1][1].y"]
    names += ["data['b'].image", "data['b'].rest[0]", "data['c']['d']"]
    assert dict(zip(names, range(1, 8), strict=True)) == dict(nested_structures.batch_leaves(TREE, "data"))


def test_mapping_keeps_every_type():
    mapped = nested_structures.map_batch_leaves(lambda leaf: leaf * 10, TREE)
    assert repr(nested_structures.map_batch_leaves(lambda leaf: leaf, TREE)) == repr(TREE)
    assert [leaf for _, leaf in nested_structures.batch_leaves(mapped)] == [10, 20, 30, 40, 50, 60, 70]
    assert collections.OrderedDict is type(mapped["c"])
    assert repr(mapped) == repr(nested_structures.fill_batch(TREE, iter(range(10, 80, 10))))


def test_what_can_move_is_moved():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    batch = move_batch({"x": torch.ones(2), "packed": packed, "name": "a"}, torch.device("meta"))
    assert [part.device.type for part in (batch["x"], batch["packed"].data, batch["packed"].batch_sizes)] == [
        "meta",
        "meta",
        "cpu",
    ]
    assert batch["name"] == "a"
    batches = batches_to_device(iter([torch.ones(2)]), torch.device("meta"))
    assert [part.device.type for part in batches] == ["meta"]
