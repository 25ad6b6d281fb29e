# SPDX-License-Identifier: Apache-2.0
"""Devices are measured and freed through torch's own calls, in order; a stand-in takes a card's place."""

import sys
import types

import pytest

from truestep.machine.memory.amounts import DeviceMemory, measure_memory
from truestep.machine.memory.free import release_cached_memory

GIB = 2**30


@pytest.fixture
def card(monkeypatch):
    """A torch that has started CUDA on one card; `calls` says what it was asked to do."""
    calls: list[str] = []

    def noted(name):
        return lambda: calls.append(name)

    torch = types.ModuleType("torch")
    torch.version = types.SimpleNamespace(cuda="13.0", hip=None)
    torch.clear_autocast_cache = noted("clear_autocast_cache")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, ipc_collect=noted("ipc_collect"))
    torch._C = types.SimpleNamespace(_cuda_clearCublasWorkspaces=noted("clear workspaces"))
    torch.accelerator = types.SimpleNamespace(
        is_available=lambda: True,
        current_accelerator=lambda: types.SimpleNamespace(type="cuda"),
        device_count=lambda: 1,
        memory_allocated=lambda index: 2 * GIB,
        memory_reserved=lambda index: 3 * GIB,
        get_memory_info=lambda index: (70 * GIB, 80 * GIB),
        empty_cache=noted("empty_cache"),
        empty_host_cache=noted("empty_host_cache"),
    )
    torch.calls = calls
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_a_card_is_measured(card):
    expected = DeviceMemory(
        device="cuda:0",
        allocated_bytes=2 * GIB,
        reserved_bytes=3 * GIB,
        used_bytes=10 * GIB,
        total_bytes=80 * GIB,
    )
    assert measure_memory().devices == (expected,)


def test_each_step_of_freeing_gives_to_the_next(card):
    release_cached_memory()
    assert card.calls == [
        "clear_autocast_cache",
        "ipc_collect",
        "clear workspaces",
        "empty_cache",
        "empty_host_cache",
    ]


def test_a_cuda_that_is_not_started_is_left_alone(card):
    card.cuda.is_initialized = lambda: False
    card.accelerator.is_available = pytest.fail
    release_cached_memory()
    assert measure_memory().devices == ()
    assert card.calls == ["clear_autocast_cache"]


def test_a_torch_of_before_host_caches(card):
    del card.accelerator.empty_host_cache
    release_cached_memory()
    assert card.calls == ["clear_autocast_cache", "ipc_collect", "clear workspaces", "empty_cache"]


def test_a_device_that_does_not_tell_its_memory(card):
    def untold(index):
        raise RuntimeError("not supported")

    card.accelerator.get_memory_info = untold
    (device,) = measure_memory().devices
    assert (device.allocated_bytes, device.used_bytes, device.total_bytes) == (2 * GIB, None, None)
