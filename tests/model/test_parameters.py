# SPDX-License-Identifier: Apache-2.0
"""The table of parameters: each once, its numbers those of torch, dead and shared ones named, nothing changed."""

import json
import math

import pytest
import torch
from torch import nn

import truestep as ts
from tests.support.scripted import scripted


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Linear(4, 2)
        self.dead = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.zeros_(self.dead.weight)
        self.norm.bias.requires_grad_(False)

    def forward(self, tokens):
        hidden = self.norm(self.embedding(tokens))
        return self.head(hidden + 0 * self.dead(hidden))


@pytest.fixture
def model():
    return Tied()


def test_each_is_counted_once(model):
    table = ts.parameters(model)
    assert table.num_elements == 40 + 8 + 10 + 20
    assert table.num_trainable == table.num_elements - 4
    assert [row.also for row in table.rows if row.name == "embedding.weight"] == [("head.weight",)]
    assert table.gradient_norm is None
    assert all(row.remarks == () for row in table.rows if row.name != "dead.weight")


def test_norms_shares_and_remarks(model):
    model(torch.arange(6)).square().mean().backward()
    table = ts.parameters(model)
    rows = {row.name: row for row in table.rows}
    for name, parameter in model.named_parameters():
        assert rows[name].norm == pytest.approx(float(parameter.detach().norm()))
        if parameter.grad is not None:
            assert rows[name].gradient_norm == pytest.approx(float(parameter.grad.norm()))
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert table.gradient_norm == pytest.approx(float(nn.utils.get_total_norm(gradients)))
    assert sum(row.gradient_share or 0 for row in table.rows) == pytest.approx(1)
    assert rows["unused.weight"].remarks == ("no gradient",)
    assert rows["dead.weight"].remarks == ("all zero", "gradient all zero")
    assert "frozen" in str(table)
    assert "also head.weight" in " ".join(str(table).split())


def test_half_precision_does_not_overflow_and_nan_is_said():
    model = nn.Linear(300, 300).half()
    nn.init.constant_(model.weight, 1000.0)
    model.bias.data[0] = math.nan
    table = ts.parameters(model)
    assert table.rows[0].norm == pytest.approx(300_000.0, rel=1e-4)
    assert table.rows[1].remarks == ("not finite",)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LazyLinear(3),
        lambda: nn.Linear(3, 3, device="meta"),
        lambda: nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.complex64))]),
        lambda: nn.ParameterList([nn.Parameter(torch.tensor(2.0))]),
        lambda: scripted(nn.Linear(3, 3)),
        lambda: torch.compile(nn.Linear(3, 3)),
        nn.Identity,
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_strange_models(make):
    table = ts.parameters(make())
    json.dumps(table.to_dict())
    assert str(table)


def test_sparse_gradients():
    model = nn.Embedding(10, 3, sparse=True)
    model(torch.tensor([1, 1])).sum().backward()
    assert ts.parameters(model).gradient_norm == pytest.approx(math.sqrt(12))


def test_what_is_no_model():
    with pytest.raises(ts.OptionError, match="needs a module"):
        ts.parameters([torch.ones(2)])
