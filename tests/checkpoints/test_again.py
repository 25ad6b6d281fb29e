# SPDX-License-Identifier: Apache-2.0
"""A save that follows another like it takes the layout of that one, and holds the values of now all the same."""

import mmap
import resource
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.checkpoints import Checkpoint, CheckpointStore, checksum, load, prepare
from truestep.checkpoints.checksum import PIECE_BYTES, Checksum
from truestep.checkpoints.digests import NEWEST_DIGEST
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.memory_allocation import prefault_pages
from truestep.checkpoints.verify import read_and_discard
from truestep.core.errors import CheckpointError

WEIGHT = torch.arange(6.0).view(2, 3)


def first():
    return {
        "net": {"a": WEIGHT, "tied": WEIGHT, "b": torch.ones(4)},
        "optimizer": {0: {"step": torch.tensor(1.0)}, "lr": 0.1, "betas": (0.9, 0.99), "seen": Counter("ab")},
        "random": torch.get_rng_state(),
        "python": (3, (1, 2, 0), None),
    }


def changed(**changes):
    state = first()
    return {name: changes.get(name, value) for name, value in state.items()}


LARGE = torch.arange(20.0)
STATES = {
    "the same": first,
    "another value": lambda: changed(optimizer={**first()["optimizer"], "lr": 0.2, "seen": Counter("abc")}),
    "another type of value": lambda: changed(optimizer={**first()["optimizer"], "lr": True}),
    "another integer": lambda: changed(python=(3, (1, 5, 0), None)),
    "an integer more": lambda: changed(python=(3, (1, 2, 0, 0), None)),
    "a boolean among integers": lambda: changed(python=(3, (True, 2, 0), None)),
    "a float among integers": lambda: changed(python=(3, (1, 2, 0.0), None)),
    "a list of integers": lambda: changed(python=(3, [1, 2, 0], None)),
    "another shape": lambda: changed(net={"a": WEIGHT, "tied": WEIGHT, "b": torch.ones(5)}),
    "another dtype": lambda: changed(net={"a": WEIGHT, "tied": WEIGHT, "b": torch.ones(4).double()}),
    "untied": lambda: changed(net={"a": WEIGHT, "tied": WEIGHT.clone(), "b": torch.ones(4)}),
    "tied otherwise": lambda: changed(net={"a": WEIGHT, "tied": WEIGHT, "b": WEIGHT.view(-1)[:4]}),
    "another order": lambda: changed(net={"b": torch.ones(4), "a": WEIGHT, "tied": WEIGHT}),
    "a tensor for a number": lambda: changed(optimizer=torch.zeros(2)),
    "a number for a tensor": lambda: changed(random=3),
    "one more": lambda: {**first(), "more": [1, (torch.zeros(1),)]},
    "one less": lambda: {"net": first()["net"]},
    "keys of another type": lambda: changed(optimizer={False: {"step": torch.tensor(1.0)}}),
    "another order of memory": lambda: changed(net={"a": WEIGHT, "tied": WEIGHT, "b": torch.ones(2, 2).t()}),
    "overlapping": lambda: {"one": LARGE[:12], "other": LARGE[8:]},
    "a conjugate": lambda: {"z": torch.ones(3, dtype=torch.complex64).mul(1j).conj()},
}


def shares(state):
    tensors = list(state.get("net", {}).values())
    return [[one.data_ptr() == other.data_ptr() for one in tensors] for other in tensors]


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right) and (left.dtype, left.stride()) == (right.dtype, right.stride())
    if isinstance(left, dict):
        return type(left) is type(right) and same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("name", STATES)
def test_the_second_and_third_save_hold_what_the_state_is_then(name, background, tmp_path):
    with CheckpointStore(tmp_path, background=background) as store:
        for step, make in enumerate((first, STATES[name], STATES[name], first)):
            state = make()
            store.save(step, state)
            found = store.newest().load()
            assert same(found, state)
            assert shares(found) == shares(state)


def test_a_state_like_the_last_is_not_laid_out_again(tmp_path, monkeypatch):
    with CheckpointStore(tmp_path) as store:
        store.save(1, first())
        monkeypatch.setattr(prepare, "tensor_regions_of_leaves", None)
        store.save(2, first())
        assert same(store.newest().load(), first())


shapes = st.lists(st.integers(0, 3), max_size=3)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(shapes, shapes, st.booleans()), min_size=2, max_size=5),
    background=st.booleans(),
)
def test_a_few_tensors_of_other_shapes_have_only_their_file_laid_out_again(
    lengths, background, tmp_path_factory
):
    """As a run's have that keeps values until they are logged."""
    fixed = first()
    with (
        CheckpointStore(tmp_path_factory.mktemp("shapes"), background=background) as store,
        pytest.MonkeyPatch.context() as patched,
    ):
        for step, (one, other, turned) in enumerate(lengths):
            values = torch.rand(one)
            waiting = {
                "loss": values.mT if turned and len(one) > 1 and min(one) > 1 else values,
                "n": torch.rand(other),
            }
            state = fixed | {"logbook": {"lr": 0.1 * step, "waiting": waiting, "mark": torch.tensor(step)}}
            store.save(step, state)
            checkpoint = store.newest()
            assert same(checkpoint.load(), state)
            assert checkpoint.load("logbook", "waiting").keys() == {"loss", "n"}
            patched.setattr(
                prepare, "tensor_regions_of_leaves", None
            )  # the first alone is laid out from nothing


def test_a_kept_layout_keeps_no_tensor_alive(tmp_path):
    with CheckpointStore(tmp_path) as store:
        state = {"w": torch.ones(10)}
        store.save(1, state)
        store.wait()
        storage = torch.multiprocessing.reductions.StorageWeakRef(state["w"].untyped_storage())
        state.clear()
        assert storage.expired()


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
@pytest.mark.parametrize("step", [1 << 20, PIECE_BYTES, 5_000_001])
def test_a_checksum_does_not_depend_on_how_it_is_given(size, step):
    data = memoryview(bytes(range(251)) * (1 + size // 251))[:size]
    with Checksum() as whole:
        whole.update(data)
        expected = whole.hexdigest()
    with Checksum() as parts:
        for start in range(0, size, step):
            parts.update(data[start : start + step])
        assert parts.hexdigest() == expected
    with Checksum(kind=NEWEST_DIGEST._replace(in_pieces=False)) as plain:
        plain.update(data)
        assert (plain.hexdigest() == expected) == (size <= PIECE_BYTES)


def test_damage_in_any_piece_of_a_large_file_is_found(tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(1, {"w": torch.arange(6_000_000, dtype=torch.int32)})
        path = store.newest().path
    file = path / "state-r0000.safetensors"
    data = bytearray(file.read_bytes())
    for at in (len(data) - 1, PIECE_BYTES, 2 * PIECE_BYTES + 5):
        data[at] ^= 1
        file.write_bytes(data)
        for use in (Checkpoint.load, Checkpoint.verify):
            with pytest.raises(CheckpointError, match="does not have the checksum"):
                use(Checkpoint.open(path))
        data[at] ^= 1
    file.write_bytes(data)
    assert int(Checkpoint.open(path).load()["w"][-1]) == 5_999_999


def test_a_large_save_in_flight_is_finished_when_the_interpreter_ends(tmp_path):
    code = (
        "import torch, truestep as ts; store = ts.CheckpointStore('run');"
        "store.save(1, {'w': torch.ones(12_000_000)})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with CheckpointStore(tmp_path / "run") as store:
        assert store.newest().load()["w"].sum() == 12_000_000


def test_a_slow_thread_reads_no_memory_that_was_given_away(monkeypatch):
    """On a busy machine a thread can lose its processor while the others fill and hash all pieces that follow."""
    right, first = Checksum._hash_piece, []

    def slow(self, piece):
        if not first:
            first.append(piece)
            time.sleep(0.3)
        return right(self, piece)

    pieces = [bytes([number]) * PIECE_BYTES for number in range(10)]

    def read(memory, at):
        memory[:] = pieces[at // PIECE_BYTES][at % PIECE_BYTES :][: len(memory)]
        return len(memory)

    with Checksum() as expected:
        for piece in pieces:
            expected.update(memoryview(piece))
        promised = expected.hexdigest()
    monkeypatch.setattr(Checksum, "_hash_piece", slow)
    with Checksum(read=read) as found:
        read_and_discard(found, len(pieces) * PIECE_BYTES)
        assert found.hexdigest() == promised


def test_a_slow_thread_holds_nobody_up_and_what_it_has_not_begun_is_taken_back(monkeypatch):
    """Threads take unlike times for a piece: whoever reads goes on for some pieces, and at the end hashes those that still wait."""
    by_reader, gone_on, reader = [], threading.Event(), threading.get_ident()

    def digest(self, piece):
        if threading.get_ident() == reader:
            by_reader.append(piece[0]._at // PIECE_BYTES)
            if len(by_reader) == 5:
                gone_on.set()
        else:
            assert gone_on.wait(10), f"the reader waits after the pieces {by_reader}"
        return b"x" * 32

    monkeypatch.setattr(Checksum, "_hash_piece", digest)
    monkeypatch.setattr(checksum, "_num_hash_threads", lambda: 1)
    memory = memoryview(bytearray(PIECE_BYTES))
    with Checksum(read=lambda memory, _: len(memory)) as found:
        for _ in range(7):  # the thread has the first, the second waits, and the last is hashed in the end
            found.fill(memory)
        found.hexdigest()
    assert by_reader == [2, 3, 4, 5, 1]


def test_pages_are_made_around_what_memory_holds():
    """Where the system can, and no byte changes, in the page that it begins in neither."""
    block = mmap.mmap(-1, 1 << 20)
    block[:3], block[-3:] = b"abc", b"xyz"
    inside = memoryview(block)[1:-1]
    done = prefault_pages(inside)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block[:: mmap.PAGESIZE] = block[:: mmap.PAGESIZE]
    made = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert (block[:3], block[-3:], any(block[3:-3])) == (b"abc", b"xyz", False)
    assert not done or made < len(block) // mmap.PAGESIZE // 2
    assert not prefault_pages(inside)  # they are there
    assert not prefault_pages(memoryview(bytearray(8)))


class StrangeFiles(CheckpointFiles):
    """A disk that fails, or gives a few bytes at a time, where a file is read at a place."""

    def __init__(self, place, error):
        self.place, self.error = place, error

    def read(self, descriptor, buffer, at):
        if at <= self.place < at + len(buffer):
            if self.error:
                raise self.error
            buffer = buffer[: 1 + len(buffer) // 3]
        return super().read(descriptor, buffer, at)


@pytest.mark.parametrize("use", [Checkpoint.load, Checkpoint.verify])
def test_a_read_that_fails_in_any_piece_is_told_and_one_that_is_short_goes_on(use, quick):
    with CheckpointStore(quick, background=False) as store:
        store.save(1, {"w": torch.arange(6_000_000, dtype=torch.int32), "b": torch.ones(3)})
        path = store.newest().path
    for place in (1000, PIECE_BYTES + 5, 2 * PIECE_BYTES + 5, 24_000_100):
        with pytest.raises(CheckpointError, match="can't be read"):
            use(Checkpoint.open(path, StrangeFiles(place, OSError(5, "Input/output error"))))
        found = use(Checkpoint.open(path, StrangeFiles(place, None)))
        assert found is None or int(found["w"].sum()) == 17_999_997_000_000


def test_small_tensors_that_are_read_together_are_each_their_own(quick, monkeypatch):
    monkeypatch.setattr(load, "SMALL_BYTES", 100)
    monkeypatch.setattr(load, "LEAST_TOGETHER", 3)
    monkeypatch.setattr(load, "MOST_TOGETHER", 4)
    dtypes = (torch.float64, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int16)
    draw = torch.Generator().manual_seed(0)
    state = {
        f"{dtype} {size}": torch.randint(2, (size * dtype.itemsize,), dtype=torch.uint8, generator=draw)
        .view(dtype)
        .view(-1, *[1] * (size % 3))
        for size in (0, 1, 2, 5, 12, 13, 24, 25, 26, 49, 50, 51)
        for dtype in dtypes
    }
    with CheckpointStore(quick) as store:
        store.save(1, state)
        found = store.newest().load()
    for name, tensor in state.items():
        assert found[name].shape == tensor.shape
        assert found[name].untyped_storage().nbytes() == tensor.nbytes
        assert torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8))
