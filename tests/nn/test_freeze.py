# SPDX-License-Identifier: Apache-2.0
"""What is frozen stays, what is not moves on, and both can be told."""

import copy
import io
import json
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from tests.support.scripted import scripted
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.plain_norm = nn.BatchNorm1d(4, affine=False)
        self.head = nn.Linear(4, 4)
        self.head.weight = self.encoder[2].weight

    def forward(self, x):
        return self.head(self.plain_norm(self.encoder(x).relu()))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.5),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.5),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, weight_decay=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.5),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1, weight_decay=0.5),
}


def trained(net, optimizer, steps=1, seed=0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(8, 3, generator=draw)).square().sum().backward()
        optimizer.step()


def values(net):
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def moved(before, net):
    return {name for name, tensor in net.state_dict().items() if not torch.equal(before[name], tensor)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_decay_and_momentum_do_not_move_a_frozen_parameter_in_any_optimizer(optimizer):
    torch.manual_seed(0)
    net = Net()
    optimizer = OPTIMIZERS[optimizer](net.parameters())
    trained(net, optimizer, steps=2)  # momentum is there
    optimizer.zero_grad()
    before = values(net)
    frozen = ts.freeze(net, "encoder", statistics=True)
    trained(net, optimizer, steps=3)
    assert moved(before, net) == {
        "head.bias",
        "plain_norm.running_mean",
        "plain_norm.running_var",
        "plain_norm.num_batches_tracked",
    }
    frozen.undo()
    trained(net, optimizer, steps=1)
    assert moved(before, net) == set(before)


@given(
    st.lists(st.sampled_from(["encoder.0", "encoder.1", "encoder.0.bias", "head", "*.bias", "plain_norm"]))
)
@settings(deadline=None)
def test_the_report_says_exactly_what_changed_and_undo_puts_it_back(patterns):
    net = Net()
    net.encoder[0].weight.requires_grad_(False)
    state = lambda: (
        {name: p.requires_grad for name, p in net.named_parameters(remove_duplicate=False)},
        [part.training for part in net.modules()],
        ["train" in part.__dict__ for part in net.modules()],
    )
    before = state()
    with ts.freeze(net, *patterns, statistics=True) as frozen:
        after = state()[0]
        changed = {name for name, trains in before[0].items() if trains != after[name]}
        assert changed == set(frozen.parameters)
        assert all(not after[name] for name in frozen.unchanged)
        unique = {
            id(p): p.numel() for name, p in net.named_parameters(remove_duplicate=False) if name in changed
        }
        assert sum(unique.values()) == frozen.num_elements
        with ts.unfreeze(net) as all_of_it:
            assert all(p.requires_grad for p in net.parameters())
            assert set(all_of_it.statistics) == set(frozen.statistics)
        assert after == state()[0]
    assert before == state()


def test_names_modules_patterns_and_ties():
    net = Net()
    assert ts.freeze(net, "encoder.2.weight").parameters == ("encoder.2.weight", "head.weight")
    assert ts.freeze(net, "head").parameters == ("head.bias",)
    assert ts.freeze(net, "head").unchanged == ("encoder.2.weight", "head.weight", "head.bias")
    assert ts.freeze(net, "enc*", "plain_norm").parameters == (
        *("encoder.0.weight", "encoder.0.bias", "encoder.1.weight", "encoder.1.bias", "encoder.2.bias"),
    )
    assert not any(p.requires_grad for p in net.parameters())
    assert len(ts.unfreeze(net).parameters) == 8
    assert ts.freeze(net).num_elements == sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("name", ["encoder.1", "encoder.1.weight", "encoder.1.running_mean", "encoder", "*"])
def test_frozen_statistics_survive_train_copies_and_pickles(name):
    net = Net()
    with ts.freeze(net, name, statistics=True) as frozen:
        assert "encoder.1" in frozen.statistics
        for each in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert each.train() is each
            assert each.encoder[1].train() is each.encoder[1]
            assert not each.encoder[1].training
            assert each.head.training
            before = each.encoder[1].running_mean.clone()
            each(torch.randn(5, 3))
            assert torch.equal(before, each.encoder[1].running_mean)
        copied = copy.deepcopy(net)
    net.train()
    net(torch.randn(5, 3))
    assert net.encoder[1].training
    assert not torch.equal(before, net.encoder[1].running_mean)
    assert not copied.encoder[1].training
    assert ts.unfreeze(copied).statistics[0] == "encoder.1"
    assert copied.encoder[1].training


def test_the_mode_of_the_model_comes_back_with_unfreeze():
    net = Net()
    ts.freeze(net, statistics=True)
    net.eval()
    ts.unfreeze(net)
    assert not net.encoder[1].training


def test_state_is_saved_and_loaded_as_without_freezing():
    net, other = Net(), Net()
    ts.freeze(net, statistics=True)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert moved(values(net), other) == set()


def test_statistics_that_go_on_moving_and_gradients_that_are_there_are_reported():
    net = Net()
    net(torch.randn(4, 3)).sum().backward()
    frozen = ts.freeze(net, "encoder")
    assert frozen.moving_statistics == ("encoder.1",)
    assert "encoder.0.weight" in frozen.with_gradient
    before = values(net)
    optimizer = OPTIMIZERS["SGD"](net.parameters())
    optimizer.step()  # with the gradients of before
    assert "encoder.0.weight" in moved(before, net)
    optimizer.zero_grad()
    assert ts.freeze(net, "encoder").with_gradient == ()


def test_the_report_can_be_read_and_saved():
    frozen = ts.freeze(Net(), "encoder", statistics=True)
    assert str(frozen).startswith("parameters that are frozen now: 6 (44 numbers)\nchanged: encoder.0.weight")
    assert "running statistics changed with them: encoder.1" in frozen.__rich__()
    assert "parameters that are frozen now" in frozen._repr_html_()
    saved = json.loads(json.dumps(frozen.to_dict()))
    assert (saved["trains"], saved["num_elements"], saved["statistics"]) == (False, 44, ["encoder.1"])
    assert "_tensors" not in saved


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_learner_may_be_frozen_and_released_between_updates_as_a_plain_loop_may(optimizer):
    def module():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    context = LearnerContext(torch.device("cpu"))
    learner = Learner(
        module(), OPTIMIZERS[optimizer], LearnerOptions(name="net", clip=ts.ClipNorm(1.0)), context
    )
    net = module()
    plain = OPTIMIZERS[optimizer](net.parameters())
    for group, other in zip(plain.param_groups, learner.optimizers[0].param_groups, strict=True):
        group["fused"] = other["fused"]
    data = torch.randn(8, 3)
    for change in (None, ts.freeze, None, ts.unfreeze, None):
        if change is not None:
            change(learner, "0")
            change(net, "0")
        learner.update(lambda x: learner(x).squeeze(1).square(), data)
        plain.zero_grad()
        net(data).square().mean().backward()
        ts.clip_gradients(net, ts.ClipNorm(1.0))
        plain.step()
        assert all(map(torch.equal, learner.parameters(), net.parameters()))


def test_integer_parameters_are_left_alone():
    net = nn.Linear(2, 2)
    net.codes = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
    ts.freeze(net)
    assert ts.unfreeze(net).parameters == ("weight", "bias")
    assert not net.codes.requires_grad


@pytest.mark.parametrize("change", [ts.freeze, ts.unfreeze])
@pytest.mark.parametrize(
    ("model", "pattern", "message"),
    [
        (Net(), "encodr", "No parameter is called 'encodr'.*There are: encoder.0.bias"),
        (Net(), "head.weigth", r"Did you mean 'head\.weight'"),
        (torch.relu, "x", "needs a module, or a learner"),
    ],
)
def test_patterns_that_match_nothing_are_refused_and_change_nothing(change, model, pattern, message):
    with pytest.raises(ts.OptionError, match=message):
        change(model, "*", pattern)
    if isinstance(model, Net):
        assert all(p.requires_grad for p in model.parameters())


def test_a_released_layer_has_the_mode_that_the_model_was_brought_to_meanwhile():
    net = Net()
    with ts.freeze(net, "encoder", statistics=True):
        net.eval()
    assert not any(part.training for part in net.modules())
    with ts.freeze(net, "encoder", statistics=True):
        net.train()
    assert all(part.training for part in net.modules())


def test_freezing_what_is_frozen_changes_nothing_also_when_it_is_undone_later():
    net = Net()
    first = ts.freeze(net, "encoder", statistics=True)
    second = ts.freeze(net, "encoder", statistics=True)
    assert second.parameters == second.statistics == ()
    first.undo()
    second.undo()
    assert all(p.requires_grad for p in net.parameters())
    assert all(part.training for part in net.train().modules())


def test_what_a_user_put_in_place_of_train_stays():
    net = Net()
    net.encoder[1].train = own = lambda mode=True: net.encoder[1]
    assert ts.freeze(net, "head", statistics=True).statistics == ()
    ts.unfreeze(net)
    assert net.encoder[1].train is own


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.freeze(Net(), 0), r"ts\.freeze takes names.*got an int"),
        (lambda: ts.freeze(Net(), ["head"]), r'got a list. Write each as a text: ts\.freeze\(net, "body"'),
        (lambda: ts.unfreeze(Net(), None), r"ts\.unfreeze takes names.*got a NoneType"),
        (lambda: ts.freeze(Net(), statistics="no"), r"statistics='no'\): write True or False"),
        (
            lambda: ts.freeze(Net(), "encoder.1.running_mean"),
            "No parameter is called 'encoder.1.running_mean'",
        ),
        (lambda: ts.freeze(nn.ReLU()), "There are none"),
        (lambda: ts.freeze(nn.LazyLinear(2)), "weight, bias: no shape yet"),
        (lambda: ts.freeze(scripted_norm(), statistics=True), "statistics of a scripted module"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ts.OptionError, match=message):
        call()


def scripted_norm():
    return scripted(nn.Sequential(nn.BatchNorm1d(2)))
