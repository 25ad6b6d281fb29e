# SPDX-License-Identifier: Apache-2.0
"""Whatever kind of tensor a script uses, no check breaks on it, and the script's numbers stay what they are."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.doctor.runtime.watch import Watch, WatchOptions

KINDS = {
    "double": lambda: torch.randn(8, 4, dtype=torch.float64),
    "half": lambda: torch.randn(8, 4).bfloat16(),
    "whole": lambda: torch.randint(9, (8, 4)),
    "bytes": lambda: torch.randint(9, (8, 4), dtype=torch.uint8),
    "bool": lambda: torch.rand(8, 4) > 0.5,
    "complex": lambda: torch.randn(8, 4, dtype=torch.complex64),
    "sparse": lambda: torch.eye(8, 4).to_sparse(),
    "rows": lambda: torch.eye(8, 4).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(6, 4)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(6, 4)], layout=torch.jagged),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(8, 4), 0.1, 10, torch.qint8),
    "meta": lambda: torch.randn(8, 4, device="meta"),
    "empty": lambda: torch.randn(0, 4),
    "number": lambda: torch.tensor(1.5),
    "infinite": lambda: torch.full((8, 4), float("nan")),
}


class Taking(nn.Module):
    """Takes anything, gives it on, and answers with numbers of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.act = nn.Linear(4, 3), nn.ReLU()
        self.through = nn.Identity()

    def forward(self, value):
        self.through(value)
        return self.act(self.layer(torch.ones(8, 4)))


def dense(value):
    """Return numbers that a loss can take, made by operations on the value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = value.dequantize() if value.is_quantized else value
        return value.to_dense() if value.layout in (torch.sparse_coo, torch.sparse_csr) else value


def attempt(function, *args):
    """Do what a script might try; that torch refuses it is no news."""
    try:
        return function(*args)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return None


@pytest.mark.sliced(5)
@pytest.mark.parametrize("kind", KINDS)
def test_no_check_breaks_on_a_kind_of_tensor(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = KINDS[kind]()
        model = Taking()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        with Watch(WatchOptions(probe=True, thorough=True)) as watch:
            for _ in range(7):
                opt.zero_grad()
                F.cross_entropy(model(value), torch.arange(8) % 3).backward()
                opt.step()
                for name in ("mse_loss", "binary_cross_entropy", "cross_entropy", "nll_loss", "l1_loss"):
                    attempt(getattr(F, name), value, value)
                    attempt(getattr(F, name), value, torch.arange(8) % 3)
                    attempt(getattr(F, name), torch.rand(8, 4, requires_grad=True), value)
                attempt(torch.eq, value, value)
                attempt(lambda: value == torch.ones(8))
            model.eval()
            with torch.no_grad():
                model(value)
    assert watch.failures == []
    broken = {code: reason for code, reason in watch.not_run().items() if "Error" in reason}
    assert broken == {}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", ["double", "half", "complex", "sparse", "meta", "infinite"])
def test_no_check_breaks_on_parameters_and_gradients_of_a_kind(kind):
    with Watch(WatchOptions(probe=True, thorough=True)) as watch:
        if kind == "sparse":
            model = nn.EmbeddingBag(20, 4, sparse=True)
            given = torch.randint(20, (8, 3))
        else:
            weight = KINDS[kind]()[:4].clone()
            model = Weighted(weight)
            given = torch.randn(8, 4).to(weight.dtype).to(weight.device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            opt.zero_grad()
            model(given).abs().mean().backward()
            opt.step()
    assert watch.failures == []


class Weighted(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return x @ self.weight.T if x.shape[-1] == self.weight.shape[-1] else x


def backward(model, value):
    (model(torch.ones(8, 4)).mean() * dense(value).abs().sum()).backward()


@pytest.mark.parametrize("kind", KINDS)
def test_a_backward_of_any_kind_of_number_breaks_no_check(kind):
    with ts.watch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = KINDS[kind]()
        model = nn.Linear(4, 3)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(7):
            opt.zero_grad()
            attempt(backward, model, value)
            opt.step()
    assert watch.failures == []
