# SPDX-License-Identifier: Apache-2.0
"""Buffers that the state dict leaves out are saved where training changed them, and only there."""

import torch
from torch import nn

from truestep.engine.nonpersistent_buffers import TransientLearnerBuffers


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(2, 2), persistent=False)
        self.register_buffer("count", torch.zeros(()), persistent=False)
        self.register_buffer("seen", torch.empty(0), persistent=False)
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x):
        self.count += 1
        self.kept += 1
        self.seen = torch.cat([self.seen, x.sum()[None]])
        return x


def test_only_what_changed_and_no_state_dict_has_is_saved():
    module = nn.Sequential(Memory(), nn.Linear(2, 2))
    buffers = TransientLearnerBuffers(module)
    assert buffers.state_dict() == {}
    module(torch.ones(2))
    module(torch.ones(2))
    saved = {name: value.clone() for name, value in buffers.state_dict().items()}
    assert set(saved) == {"0.count", "0.seen"}
    assert saved["0.seen"].tolist() == [2.0, 2.0]

    fresh = nn.Sequential(Memory(), nn.Linear(2, 2))
    again = TransientLearnerBuffers(fresh)
    again.load_state_dict(saved)
    assert fresh[0].count == 2
    assert fresh[0].seen.tolist() == [2.0, 2.0]
    assert set(again.state_dict()) == {"0.count", "0.seen"}  # and so they are in the next checkpoint, too
    assert again.unknown({"0.count": saved["0.count"], "0.other": saved["0.count"]}) == ["0.other"]
