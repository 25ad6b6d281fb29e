# SPDX-License-Identifier: Apache-2.0
"""Where memory is short a save gives its copy back, and makes none where none would fit; what is saved is the same."""

import gc
import threading
from pathlib import Path

import pytest
import torch

from truestep.checkpoints import CheckpointStore, checksum, concurrent_copy, copy_memory_check
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.core.control_groups import FreeMemory

STATE_BYTES = 32 << 20
NUM_TENSORS = 6


@pytest.fixture
def free(monkeypatch):
    """Say how much memory is free, in sizes of the state."""
    found = {"states": 1.5}
    monkeypatch.setattr(
        copy_memory_check,
        "free_memory",
        lambda: FreeMemory(int(found["states"] * STATE_BYTES), "this machine"),
    )
    monkeypatch.setattr(copy_memory_check, "MIN_ASKED_BYTES", 1)
    for module in (checksum, concurrent_copy):  # so that a few pieces, which may still be hashed, are little
        monkeypatch.setattr(module, "PIECE_BYTES", 1 << 20)
    return found


def a_state() -> dict:
    sizes = [STATE_BYTES // NUM_TENSORS // 4] * (NUM_TENSORS - 1)
    return {
        "net": {str(number): torch.randn(size) for number, size in enumerate(sizes)},
        "step": torch.tensor(1),
    }


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Watched(CheckpointFiles):
    """A disk that notes what is resident at each sync."""

    def __init__(self):
        self.resident: list[int] = []

    def sync(self, descriptor):
        self.resident.append(resident_bytes())
        super().sync(descriptor)


@pytest.mark.parametrize(
    ("states", "kept", "asks"), [(3.0, True, False), (1.5, False, False), (1.5, False, True)]
)
def test_a_copy_is_given_back_where_less_than_twice_the_state_is_free(tmp_path, free, states, kept, asks):
    free["states"] = states
    state, files = a_state(), Watched()
    only_if = (lambda: True) if asks else None
    with CheckpointStore(tmp_path, files=files) as store:
        store.save(1, state, only_if=only_if)  # whatever the first one makes stays
        store.wait()
        before = resident_bytes()
        if kept:
            assert held_bytes(store) >= state["net"]["0"].nbytes * (NUM_TENSORS - 1)
        else:
            assert held_bytes(store) == 0
        store.save(2, state, only_if=only_if)
        store.wait()
        assert resident_bytes() - before < STATE_BYTES / 4 or kept  # what earlier tests left may go meanwhile
        if not kept:
            # all but what may still be hashed was given back before the end of the save
            assert files.resident[-1] - before < STATE_BYTES / 4
        assert_same(store.newest().load(), state)


def held_bytes(store) -> int:
    return sum(map(len, store._preparing._buffers._buffers.values()))


def assert_same(found: dict, state: dict) -> None:
    assert all(torch.equal(found["net"][name], tensor) for name, tensor in state["net"].items())


def test_a_copy_that_was_kept_is_given_back_when_memory_becomes_short(tmp_path, free):
    state = a_state()
    free["states"] = 5.0
    with CheckpointStore(tmp_path) as store:
        store.save(1, state)
        store.wait()
        assert held_bytes(store) > 0
        free["states"] = 0.5  # and the copy, which is held, besides: enough for one
        store.save(2, state)
        store.wait()
        assert held_bytes(store) == 0
        assert_same(store.newest().load(), state)


@pytest.mark.parametrize("background", [True, False])
def test_without_memory_for_a_copy_the_training_waits_and_is_told_once(tmp_path, free, background, recwarn):
    free["states"] = 0.5
    state = a_state()
    with CheckpointStore(tmp_path, background=background) as store:
        for step in range(1, 4):
            for tensor in state["net"].values():
                tensor.fill_(step)
            before = resident_bytes()
            store.save(step, state)
            for tensor in state["net"].values():
                tensor.fill_(-1)  # as soon as it returns
            store.wait()
            assert resident_bytes() - before < STATE_BYTES / 4
            assert all(tensor.eq(step).all() for tensor in store.newest().load()["net"].values())
    said = [str(each.message) for each in recwarn]
    assert len(said) == background
    if background:
        assert all(part in said[0] for part in ("takes 26.7 MiB", "has 16 MiB free", "background=False"))


def test_an_owner_who_is_interrupted_while_it_waits_leaves_nothing(tmp_path, free, monkeypatch):
    free["states"] = 0.5
    go_on = threading.Event()

    class Slow(CheckpointFiles):
        def write(self, descriptor, data):
            if threading.current_thread() is not threading.main_thread():
                go_on.wait(10)
            return super().write(descriptor, data)

    def interrupted(condition, _):
        condition.release()
        go_on.set()
        condition.acquire()
        raise KeyboardInterrupt

    state = a_state()
    with CheckpointStore(tmp_path, files=Slow()) as store:
        monkeypatch.setattr(threading.Condition, "wait_for", interrupted)
        with pytest.warns(UserWarning, match="free"), pytest.raises(KeyboardInterrupt):
            store.save(1, state)
        store.wait()
        assert store.newest() is None  # perhaps the tensors were changed while they were read


def test_what_is_asked_first_is_copied_whatever_is_free(tmp_path, free):
    free["states"] = 0.5
    state = a_state()

    def changes() -> bool:
        state["net"]["0"].zero_()
        return True

    expected = state["net"]["0"].clone()
    with CheckpointStore(tmp_path) as store:
        store.save(1, state, only_if=changes)
        assert torch.equal(store.newest().load()["net"]["0"], expected)


def test_processes_share_what_is_free(free, monkeypatch):
    free["states"] = 3.0
    for number, expected in (
        (1, copy_memory_check.CopyMemoryAvailability.TO_KEEP),
        (2, copy_memory_check.CopyMemoryAvailability.TO_COPY),
    ):
        found = copy_memory_check.CopyMemoryChecker(number).find(STATE_BYTES, 0, must_copy=False)
        assert found is expected
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert copy_memory_check.processes_on_this_machine() == 8
