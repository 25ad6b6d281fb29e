# SPDX-License-Identifier: Apache-2.0
"""What a batch copied ahead tells the device's allocator (that it arrives whole: test_transfer_gpu.py)."""

from types import SimpleNamespace

import torch
from torch.nn.utils.rnn import pack_sequence

from truestep.core.device_specific import CopyStream
from truestep.engine.data import transfer


def test_the_memory_of_packed_sequences_too_is_kept_until_it_has_been_used(monkeypatch):
    told = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, _: told.append(tensor))
    monkeypatch.setattr(torch, "Stream", lambda device: None)
    monkeypatch.setattr(
        torch.accelerator, "current_stream", lambda _: SimpleNamespace(wait_stream=lambda _: None)
    )
    packed = pack_sequence([torch.ones(3, 2), torch.ones(1, 2)]).to("meta")
    plain = torch.ones(1, device="meta")
    transfer._wait_for_copy(
        {"texts": packed, "labels": plain, "names": ["a"]}, CopyStream(torch.device("cuda"))
    )
    assert len(told) == 2
    assert told[0] is packed.data
    assert told[1] is plain
