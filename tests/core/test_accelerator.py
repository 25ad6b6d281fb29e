# SPDX-License-Identifier: Apache-2.0
"""What kinds of devices do differently, on the stand-in; whole trainings: tests/run/test_on_card.py."""

import pytest
import torch
from support.card import Card

from truestep.core import device_specific
from truestep.core.device_specific import has_fused_kernel, send_to_device, send_to_host, to_float64
from truestep.run.process_group_setup import _is_group_usable_on_device

CPU, CUDA, MPS = map(torch.device, ("cpu", "cuda", "mps"))


@pytest.mark.parametrize("index", [0, 1])
def test_a_copy_on_its_way_holds_other_values_until_it_is_read(index):
    with Card(count=2) as card:
        numbers = torch.arange(3.0, device="cpu").to(f"cuda:{index}")
        copy = send_to_host(numbers)
        assert copy._host.isnan().all()
        numbers.zero_()
        assert not copy.has_arrived()
        card.reads.clear()
        assert copy.read().tolist() == [0.0, 1.0, 2.0]
        assert (copy.has_arrived(), card.reads) == (True, [])


def test_what_the_room_is_not_told_of_waits():
    with Card("mps") as card:
        numbers = send_to_device(torch.arange(3.0), torch.device("mps"))
        assert send_to_host(numbers).read().tolist() == [0.0, 1.0, 2.0]
        assert [read.partition(" at ")[0] for read in card.reads] == [
            "a copy from the host that waits",
            "a copy to the host",
        ]
        assert to_float64(numbers).dtype == torch.float64
        with pytest.raises(TypeError, match="float64"):
            numbers.double()


def test_kernels_are_asked_of_torch():
    assert all(has_fused_kernel(CPU, name) for name in ("Adam", "AdamW", "SGD", "Adagrad"))
    assert not has_fused_kernel(torch.device("meta"), "AdamW")
    with Card("mps"):
        assert [has_fused_kernel(MPS, name) for name in ("AdamW", "Adagrad")] == [True, False]


def test_a_group_carries_what_its_backend_takes():
    given = [("nccl", CPU), ("nccl", CUDA), ("gloo", CPU), ("gloo", CUDA), ("cpu:gloo,cuda:nccl", CPU)]
    assert [_is_group_usable_on_device(*each) for each in given] == [False, True, False, False, False]
    assert _is_group_usable_on_device("cpu:gloo,cuda:nccl", CUDA)


def test_memory_and_streams_are_those_of_the_device():
    with Card(count=2) as card:
        assert [device_specific.peak_device_bytes(torch.device("cuda", index)) for index in (0, 1)] == [
            1000,
            1001,
        ]
        stream = device_specific.CopyStream(torch.device("cuda:1"))
        with stream.copying():
            copied = torch.ones(3).pin_memory().to("cuda:1", non_blocking=True)
        assert copied.isnan().all()
        stream.hand_to_current_stream([copied])
        assert copied.tolist() == [1.0, 1.0, 1.0]
        assert card.used_by[0][0] is copied
        assert card.used_by[0][1] is card.current[1]
