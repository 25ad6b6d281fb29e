# SPDX-License-Identifier: Apache-2.0
"""Parts of a checkpoint's tensors: what a process reads is its part of the whole, however that was cut when it was written."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torture.parts import let_write, piece

from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.tensor_selection import RequestedTensorBox, TensorBox
from truestep.core.errors import CheckpointError


def cuts(draw, shape):
    """Cut a tensor along one dimension; some of the boxes are empty."""
    along = draw(st.integers(0, len(shape) - 1))
    ends = sorted(draw(st.lists(st.integers(0, shape[along]), max_size=4)))
    return [
        tuple(slice(a, b) if dim == along else slice(0, size) for dim, size in enumerate(shape))
        for a, b in pairwise([0, *ends, shape[along]])
    ]


def part_of(box):
    """Return what wants one box of every tensor that it fits into; the part comes back in a tuple, to be told from a whole."""
    place = TensorBox(tuple(side.start for side in box), tuple(side.stop - side.start for side in box))
    return lambda name, shape: (
        RequestedTensorBox(place, lambda values: (values,)) if name.endswith("weight") else None
    )


def save(directory, parts):
    with CheckpointStore(directory) as store:
        let_write(store, parts[1:], None)
        store.save(1, parts[0])


@st.composite
def divisions(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    return tuple(shape), cuts(draw, shape), cuts(draw, shape)


@settings(max_examples=40)
@given(division=divisions(), seed=st.integers(0, 2**32))
def test_a_part_is_that_part_of_the_whole(division, seed, tmp_path_factory):
    shape, written, wanted = division
    draw = torch.Generator().manual_seed(seed)
    whole, other = torch.rand(shape, generator=draw), torch.rand(3, generator=draw)
    parts = [{"weight": piece(whole, *box)} for box in written]
    directory = tmp_path_factory.mktemp("parts")
    save(directory, [parts[0] | {"other": other, "step": 7}, *parts[1:]])
    with CheckpointStore(directory) as store:
        newest = store.newest()
        for box in wanted:
            found = newest.load(part_of=part_of(box))
            assert found["step"] == 7
            assert torch.equal(found["other"], other)
            (values,) = found["weight"]
            assert torch.equal(values, whole[box])
            assert values.untyped_storage().nbytes() == values.nbytes  # it keeps no more than its part


class ReadFiles(CheckpointFiles):
    """The real file system, which notes what was read from."""

    def __init__(self):
        self.paths, self.read_from = {}, set()

    def open(self, path):
        descriptor = super().open(path)
        self.paths[descriptor] = path.name
        return descriptor

    def read(self, descriptor, buffer, at):
        self.read_from.add(self.paths[descriptor])
        return super().read(descriptor, buffer, at)


def four(directory):
    """Save rows of four processes, two each; return the whole."""
    whole = torch.arange(24.0).view(8, 3)
    save(directory, [{"a": {"weight": piece(whole, slice(at, at + 2), slice(0, 3))}} for at in (0, 2, 4, 6)])
    return whole


def test_only_files_that_hold_some_of_a_part_are_read(tmp_path):
    four(tmp_path)
    with CheckpointStore(tmp_path, files=(files := ReadFiles())) as store:
        (checkpoint,) = store.checkpoints()
        files.read_from.clear()
        checkpoint.load(part_of=part_of((slice(3, 5), slice(0, 3))))
    assert files.read_from == {"a-r0001.safetensors", "a-r0002.safetensors"}


def test_damage_is_found_by_whoever_reads_it_wherever_it_lies_in_the_file(tmp_path):
    four(tmp_path)
    with CheckpointStore(tmp_path) as store:
        (checkpoint,) = store.checkpoints()
    damaged = checkpoint.path / "a-r0001.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-13] ^= 1  # in row 2: of the two in the file the other is wanted
    damaged.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"a-r0001\.safetensors: its content does not have the checksum"
    ):
        checkpoint.load(part_of=part_of((slice(3, 5), slice(0, 3))))
    assert checkpoint.load(part_of=part_of((slice(4, 8), slice(0, 3))))


def test_what_is_seen_in_several_ways_is_read_whole(tmp_path):
    memory = torch.arange(12.0)
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"weight": memory, "rows": memory[3:9].view(2, 3)})
        found = store.newest().load(part_of=part_of((slice(0, 2),)))
    assert torch.equal(found["weight"], memory)
    assert torch.equal(found["rows"], memory[3:9].view(2, 3))
