# SPDX-License-Identifier: Apache-2.0
"""A first copy that the writer shares: what is saved is what was there at the call, wherever the two meet."""

import threading
import time

import pytest
import torch

from truestep.checkpoints import CheckpointStore, concurrent_copy, snapshot
from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.concurrent_copy import CopyAbandonedError, CopyPiece, SharedCopy
from truestep.checkpoints.file_operations import CheckpointFiles

SMALL_PIECE = 1000


class Paced(CheckpointFiles):
    """A disk that takes some time for each write, and may fail."""

    def __init__(self, seconds: float, *, fails_at: int | None = None):
        self.seconds, self.fails_at, self.num_writes = seconds, fails_at, 0

    def write(self, descriptor, data):
        time.sleep(self.seconds)
        self.num_writes += 1
        if self.num_writes == self.fails_at:
            raise OSError(28, "No space left on device")
        return super().write(descriptor, data)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(concurrent_copy, "PIECE_BYTES", SMALL_PIECE)
    monkeypatch.setattr(concurrent_copy, "ALONE_BYTES", SMALL_PIECE // 4)
    monkeypatch.setattr(snapshot, "MIN_SHARED_BYTES", 1)


def a_state() -> dict:
    return {
        "large": torch.randn(5_000),
        "small": [torch.randn(number % 40) for number in range(100)],
        "transposed": torch.randn(30, 20).t(),
        "half": torch.randn(700).bfloat16().requires_grad_(),
        "scalar": torch.tensor(3.0),
    }


def tensors_of(state: dict) -> list[torch.Tensor]:
    return [state["large"], *state["small"], state["transposed"], state["half"], state["scalar"]]


@pytest.mark.parametrize("seconds", [0, 0.0005, 0.003])
def test_what_is_changed_after_the_call_is_not_saved(seconds, quick, monkeypatch):
    copy = CopyPiece.copy

    def slow(piece):  # so that with a quick disk the writer does most of it
        time.sleep(0.001)
        copy(piece)

    monkeypatch.setattr(CopyPiece, "copy", slow)
    for number in range(5):
        state = a_state()
        before = [tensor.detach().clone() for tensor in tensors_of(state)]
        with CheckpointStore(quick / str(number), files=Paced(seconds)) as store:
            store.save(1, state)
            for tensor in tensors_of(state):
                tensor.detach().fill_(-7)
            found = tensors_of(store.newest().load())
        assert all(map(torch.equal, found, before))
        assert found[-3].stride() == before[-3].stride()


def copied_to(buffer: torch.Tensor, tensors: list[torch.Tensor]) -> tuple[SharedCopy, range]:
    places, at = [], 0
    for tensor in tensors:
        places.append(buffer[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
    shared = SharedCopy()
    return shared, shared.add(list(CopyPiece(buffer[:at], places, tensors).parts()))


def test_pieces_hold_all_in_order():
    tensors = [torch.randn(size) for size in (3, 0, 10, 240, 260, 5, 3000, 1, 250, 249, 2)]
    whole = b"".join(tensor.numpy().tobytes() for tensor in tensors)
    shared, numbers = copied_to(torch.zeros(len(whole), dtype=torch.uint8), tensors)
    assert b"".join(map(bytes, shared.read(numbers))) == whole
    pieces = list(CopyPiece(torch.zeros(len(whole), dtype=torch.uint8), tensors, tensors).parts())
    assert max(piece.num_bytes for piece in pieces) < 2 * SMALL_PIECE
    assert sum(piece.num_bytes for piece in pieces) == len(whole)


def test_each_reads_from_its_end():
    tensor = torch.arange(1000, dtype=torch.float32)  # four pieces
    buffer = torch.full((4000,), 255, dtype=torch.uint8)
    shared, numbers = copied_to(buffer, [tensor])
    taken, go_on = threading.Event(), threading.Event()
    got, threads = [], []

    def job():
        for piece in shared.read(numbers):
            got.append(bytes(piece))
            taken.set()
            assert go_on.wait(10)
        shared.release(numbers.stop)

    def start(job):
        threads.append(threading.Thread(target=job))
        threads[0].start()
        assert taken.wait(10)
        threads.append(threading.Timer(0.05, go_on.set))
        threads[1].start()

    shared.share(start, job)
    for thread in threads:
        thread.join()
    assert buffer[:1000].eq(255).all()  # written as it lay
    assert bytes(buffer[1000:].numpy()) == tensor.numpy().tobytes()[1000:]
    tensor.zero_()
    assert got[0] == torch.arange(250, dtype=torch.float32).numpy().tobytes()


def test_the_owner_waits_until_the_writer_has_done_with_the_tensors():
    tensor = torch.ones(1000)
    shared, numbers = copied_to(torch.zeros(4000, dtype=torch.uint8), [tensor])
    read, seen, threads = threading.Event(), [], []

    def job():
        pieces = [*shared.read(numbers)]  # all of them
        read.set()
        time.sleep(0.1)
        seen.extend(bytes(piece) for piece in pieces)
        shared.release(numbers.stop)

    def start(job):
        threads.append(threading.Thread(target=job))
        threads[0].start()
        assert read.wait(10)

    shared.share(start, job)
    tensor.zero_()
    threads[0].join()
    assert b"".join(seen) == torch.ones(1000).numpy().tobytes()


def test_an_owner_who_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    state = a_state()
    copy, num_copied = CopyPiece.copy, []

    def interrupted(piece):
        num_copied.append(piece)
        if len(num_copied) == 5:
            raise KeyboardInterrupt
        copy(piece)

    monkeypatch.setattr(CopyPiece, "copy", interrupted)
    with CheckpointStore(tmp_path, files=Paced(0.001)) as store:
        with pytest.raises(KeyboardInterrupt):
            store.save(1, state)
        store.wait()
        assert store.checkpoints() == []
        store.save(2, state)
        assert torch.equal(store.newest().load()["large"], state["large"])


def test_what_was_changed_while_it_was_read_is_refused():
    tensor = torch.ones(1000)
    shared, numbers = copied_to(torch.zeros(4000, dtype=torch.uint8), [tensor])
    pieces = [*shared.read(numbers)]
    assert len(pieces) == 4

    def start(job):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared.share(start, lambda: None)
    with pytest.raises(CopyAbandonedError):
        shared.release(numbers.stop)


def test_a_disk_that_is_full_lets_the_owner_go(tmp_path):
    with CheckpointStore(tmp_path, files=Paced(0, fails_at=2)) as store:
        store.save(1, a_state())
        with pytest.raises(Exception, match="No space left"):
            store.wait()
        assert store.checkpoints() == []


def test_tensors_are_let_go_of(tmp_path):
    class Gated(CheckpointFiles):
        gate = threading.Event()

        def sync(self, descriptor):
            assert self.gate.wait(10)
            super().sync(descriptor)

    with CheckpointStore(tmp_path, files=Gated()) as store:
        state = {"w": torch.ones(10_000)}
        store.save(1, state)
        storage = torch.multiprocessing.reductions.StorageWeakRef(state["w"].untyped_storage())
        state.clear()
        expired = storage.expired()  # while the disk has not done yet
        Gated.gate.set()
        assert expired


def test_a_first_save_of_much_memory(tmp_path, monkeypatch):
    monkeypatch.undo()
    state = {"w": torch.arange(12 * PIECE_BYTES // 4, dtype=torch.int32), "b": torch.ones(7)}
    with CheckpointStore(tmp_path) as store:
        store.save(1, state)
        expected = state["w"].clone()
        state["w"].zero_()
        assert torch.equal(store.newest().load()["w"], expected)
