# SPDX-License-Identifier: Apache-2.0
"""What is set on a learner reaches the module that owns the name; what is hidden or mistyped is said."""

import warnings

import pytest
import torch
from torch import nn

import truestep as ts


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)
        self.temperature = 1.0
        self.register_buffer("offset", torch.zeros(1))

    @property
    def broken(self):
        return self.nothing_here

    def forward(self, x):
        return self.head(x) * self.temperature + self.offset


def test_what_is_set_reaches_the_module(make_learner):
    learner = make_learner(Scaled(), lambda p: torch.optim.SGD(p, lr=0.0))
    before = learner(torch.ones(2, 3))
    learner.temperature = 2.0
    learner.offset = torch.ones(1)
    assert learner.module.temperature == learner.temperature == 2.0
    assert learner.module._buffers["offset"] is learner.offset
    assert torch.equal(learner(torch.ones(2, 3)), before * 2 + 1)
    assert not {"temperature", "offset"} & vars(learner).keys()
    learner.head = nn.Linear(3, 1)
    assert learner.module.head is learner.head
    with pytest.raises(ts.OptionError, match="a layer was replaced"):
        learner.update(lambda x: learner(x).squeeze(1), torch.ones(2, 3))


def test_a_user_s_own_names_are_not_hidden(make_learner):
    class Named(Scaled):
        def __init__(self):
            super().__init__()
            self.context, self.steps, self.updates = "mine", 7, 0
            self.weights = nn.Parameter(torch.ones(2))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = make_learner(Named(), lambda p: torch.optim.SGD(p, lr=0.0))
    assert (learner.context, learner.steps, learner.weights) == (
        "mine",
        7,
        learner.module.weights,
    )
    learner.updates += 1
    assert learner.module.updates == 1


def test_updates_go_on_counting(make_learner):
    learner = make_learner(Scaled())
    for _ in range(3):
        learner.update(lambda x: learner(x).squeeze(1), torch.ones(2, 3))
    assert (learner._parts.counters.updates, hasattr(learner.module, "updates")) == (3, False)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda net: net.temprature,
            r"learner 'net' nor its module \(Scaled\) has the attribute 'temprature'. Did you mean 'temperature'",
        ),
        (lambda net: net.evalute, "Did you mean 'evaluate'"),
        (lambda net: net.zzqx, "has the attribute 'zzqx'.$"),
        (lambda net: setattr(net, "temprature", 2), "Did you mean 'temperature'.*net.module.temprature = "),
        (
            lambda net: setattr(net, "learning_rate", 0.1),
            r'net.optimizers\[0\].param_groups: group\["lr"\] = 0.1',
        ),
        (lambda net: setattr(net, "module", None), "'module' of the learner 'net' can be read, not set"),
        (lambda net: setattr(net, "started", True), "'started' of the learner 'net' can be read, not set"),
        (lambda net: setattr(net, "update", None), "'update' of the learner 'net' can be read, not set"),
        (lambda net: net.broken, "no attribute .broken."),  # torch hides what the property misses
    ],
)
def test_names_that_are_not_there_are_answered_with_the_nearest(make_learner, act, message):
    learner = make_learner(Scaled(), name="net")
    with pytest.raises(AttributeError, match=message):
        act(learner)


def test_names_are_listed_and_asked_for(make_learner):
    learner = make_learner(Scaled())
    assert {"update", "temperature", "head", "parameters"} <= set(dir(learner))
    assert not hasattr(learner, "temprature")
    assert getattr(learner, "temprature", 5) == 5


def test_what_the_learner_hides_of_its_module_is_said_when_it_is_made(make_learner):
    class Clashing(Scaled):
        def __init__(self):
            super().__init__()
            self.name = "mine"

        def evaluate(self):
            return "the module's"

    with pytest.warns(
        UserWarning, match=r"evaluate, name of Clashing and of the learner 'net'.*net\.module\.evaluate"
    ):
        learner = make_learner(Clashing(), name="net")
    assert learner.module.evaluate() == "the module's"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pair = make_learner({"evaluate": nn.Linear(3, 1), "name": nn.Linear(1, 1)}, name="pair")
        for module in (
            nn.Linear(3, 1),
            nn.LSTM(3, 1),
            nn.TransformerEncoderLayer(4, 1, 8),
            nn.Sequential(nn.Linear(1, 1)),
        ):
            make_learner(module, name=type(module).__name__)
    assert isinstance(pair["evaluate"], nn.Linear)
