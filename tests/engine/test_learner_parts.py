# SPDX-License-Identifier: Apache-2.0
"""A learner of several modules gives its parts by name or number, and says what it is."""

import pytest
import torch
from torch import nn

from truestep.core.buffers import BufferSnapshot, buffer_places
from truestep.core.errors import OptionError
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext


def learner_of(modules, name):
    sgd = lambda p: torch.optim.SGD(p, lr=0.1)
    return Learner(modules, sgd, LearnerOptions(name=name), LearnerContext(torch.device("cpu")))


def test_parts_are_found_by_name_or_number():
    first, second = nn.Linear(2, 3), nn.Linear(2, 3)
    assert learner_of({"left": first, "right": second}, "pair")["right"] is second
    assert learner_of([first, second], "pair")[0] is first


def test_a_single_module_has_no_parts():
    with pytest.raises(TypeError, match="'Linear' object is not subscriptable"):
        learner_of(nn.Linear(2, 3), "one")[0]


def test_it_says_what_it_is():
    assert repr(learner_of(nn.Linear(2, 3), "net")) == "Learner('net', Linear, 9 parameters, float32)"


def test_batch_statistics_are_put_back_though_they_count_no_version():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    snapshot = BufferSnapshot(buffer_places(module))
    module(torch.randn(8, 3))
    assert not torch.equal(module[0].running_mean, before["0.running_mean"])
    snapshot.restore()
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    BufferSnapshot([]).restore()


def test_a_module_on_meta_is_refused_with_a_way_that_works():
    with torch.device("meta"):
        module = nn.BatchNorm1d(2)
    with pytest.raises(OptionError, match=r"5 tensors of BatchNorm1d .*to_empty\(device='cpu'\)"):
        learner_of(module, "net")
    module.to_empty(device="cpu").load_state_dict(nn.BatchNorm1d(2).state_dict())
    assert learner_of(module, "net").weight.eq(1).all()
