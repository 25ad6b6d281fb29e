# SPDX-License-Identifier: Apache-2.0
"""A batch without rows, for a rank that has none: it has the structure of the others', and travels without pickle."""

from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from truestep.core.errors import BatchError
from truestep.engine.batches import BatchOrigin
from truestep.engine.data.empty_batch import batch_from_outline, make_empty_batch, outline_of_batch
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Record:
    x: torch.Tensor
    names: list[str]


X, Y = torch.randn(6, 3), torch.arange(6)
BATCHES = {
    "tensor": (X, None),
    "pair": ((X, Y), None),
    "nested": ({"a": (X, [Y, Y]), "b": X.half()}, BatchOrigin(6, in_columns=True)),
    "named tuple": (Pair(X, Y), None),
    "data class": (Record(X, [*"abcdef"]), None),
    "namespace": (SimpleNamespace(x=X, names=[*"abcdef"]), None),
    "ordered": (OrderedDict(b=X, a=Y), None),
    "list of samples": ([(X[0], 1), (X[1], 2)], BatchOrigin(2)),
    "scalars beside": ((X, torch.tensor(3.0), "text", 4, None), None),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_without_rows_travels_and_is_what_the_others_have(name):
    batch, making = BATCHES[name]
    empty = make_empty_batch(batch, making or BatchOrigin())
    made = batch_from_outline(unpack_rank_message(pack_rank_message(outline_of_batch(empty))))
    assert type(made) is type(batch)
    assert str(made) == str(empty)
    tensors = [
        leaf for leaf in (made if isinstance(made, tuple) else [made]) if isinstance(leaf, torch.Tensor)
    ]
    assert all(len(tensor) == 0 for tensor in tensors if tensor.ndim)


def test_what_nobody_can_rebuild_is_refused_with_both_ways_out():
    class Local(NamedTuple):
        x: torch.Tensor

    for batch in (Local(X), (X, object())):
        with pytest.raises(
            BatchError, match=r"Make batches of tensors and plain values in collate=, or write drop_last=True"
        ):
            outline_of_batch(batch)
    with pytest.raises(BatchError, match=r"whose class somewhere\.Else is not known here"):
        batch_from_outline({"class": ["somewhere", "Else"], "keys": None, "parts": []})


def test_no_rows_keep_no_memory():
    assert make_empty_batch(X, BatchOrigin()).untyped_storage().nbytes() == 0
