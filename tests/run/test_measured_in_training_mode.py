# SPDX-License-Identifier: Apache-2.0
"""A learner that is measured by hand without eval() is told of; samples, statistics and parts left in training mode are not."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import truestep as ts

X = torch.randn(16, 3)
WORDS = "was called without gradients behind a pass, in training mode"


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


def over_a_loader(t):
    correct = 0.0
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(X), batch_size=8):
            correct += (t.net(x) > 0).sum()
    t.run.log(accuracy=correct)


@torch.no_grad()
def in_a_function(t):
    return (t.net(X) > 0).float().mean()


@torch.inference_mode()
def of_the_module(t):
    return t.net.module(X).mean()


def over_a_source(t):
    with torch.set_grad_enabled(False):
        for batch in t.run.batches(t.test):
            t.net(batch)


class Evaluator:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def __call__(self):
        return [self.model(x).mean().item() for x in X.split(4)]


def in_a_class(t):
    Evaluator(t.net)()


def put_back_too_early(t):
    t.net.eval()
    t.net.train()
    in_a_function(t)


def right_by_evaluate(t):
    t.net.evaluate(lambda x: t.net(x).squeeze(1), t.test)


def right_by_hand(t):
    t.net.eval()
    over_a_loader(t)
    t.net.train()


def dropout_alone(t):
    t.net.eval()
    t.net.module[2].train()
    in_a_function(t)
    t.net.train()


def exact_statistics(t):
    torch.optim.swa_utils.update_bn(X.split(8), t.net.module)


def with_gradients(t):
    t.net(X.clone().requires_grad_()).sum().backward()


def nothing(_):
    pass


class Training:
    def __init__(self, folder, behind, *, num=1):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False)
        sgd = lambda p: torch.optim.SGD(p, lr=0.1)
        self.nets = [self.run.learner(network(), sgd, name=f"net_{i}") for i in range(num)]
        self.net = self.nets[0]
        self.data, self.test = self.run.data(X, batch_size=8), self.run.data(X, batch_size=4)
        for _ in self.run.epochs(3):
            for batch in self.run.batches(self.data):
                for net in self.nets:
                    net.update(lambda x, net=net: net(x).square().sum(1), batch)
            behind(self)
        self.run.close()


FAULTS = [over_a_loader, in_a_function, of_the_module, over_a_source, in_a_class, put_back_too_early]


@pytest.mark.parametrize("behind", FAULTS, ids=lambda f: getattr(f, "__name__", "f"))
def test_a_measure_in_training_mode_is_named_once(tmp_path, capsys, behind):
    Training(tmp_path, behind)
    said = capsys.readouterr().err
    assert said.count(WORDS) == 1
    assert "BatchNorm1d and Dropout in it" in said
    assert not nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize(
    "behind",
    [right_by_evaluate, right_by_hand, dropout_alone, exact_statistics, nothing],
    ids=lambda f: f.__name__,
)
def test_nothing_is_said_of_other_modes(tmp_path, capsys, behind):
    Training(tmp_path, behind)
    assert WORDS not in capsys.readouterr().err
    assert not nn.modules.module._global_forward_pre_hooks


@pytest.mark.filterwarnings("ignore")
def test_nothing_is_said_of_a_call_with_gradients(tmp_path, capsys):
    Training(tmp_path, with_gradients)
    assert WORDS not in capsys.readouterr().err


def test_one_sample_of_one_of_several_may_be_drawn_so(tmp_path, capsys):
    Training(tmp_path, in_a_function, num=2)
    assert WORDS not in capsys.readouterr().err
    Training(tmp_path / "two", over_a_loader, num=2)
    assert capsys.readouterr().err.count(WORDS) == 1
