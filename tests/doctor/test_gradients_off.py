# SPDX-License-Identifier: Apache-2.0
"""Gradients are off by one rule, however they are switched off and whichever check asks."""

import textwrap

import pytest

from tests.support.told import loud

OFF = [
    "with torch.no_grad():",
    "with torch.inference_mode():",
    "with torch.autograd.no_grad():",
    "with torch.set_grad_enabled(False):",
    "with torch.set_grad_enabled(mode=False):",
    "with open('log.txt') as log, torch.set_grad_enabled(False):",
    "with torch.autocast('cuda'), torch.no_grad():",
]
DECORATED = [
    "@torch.no_grad()",
    "@torch.no_grad",
    "@torch.inference_mode()",
    "@torch.set_grad_enabled(False)",
]
ON = [
    "with torch.enable_grad():",
    "with torch.set_grad_enabled(True):",
    "with torch.autocast('cuda'):",
    "if x is not None:",
]

# ── DIST005: past the wrapper, where no gradients are to be averaged ───────────────────────────

WRAPPED = """
net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
    {around}
        out = net.module(x)
"""


@pytest.mark.parametrize(
    ("around", "is_off"), [*((each, True) for each in OFF), *((each, False) for each in ON)]
)
def test_past_the_wrapper(around, is_off):
    assert loud("DIST005", WRAPPED.format(around=around)) is not is_off


# ── EVAL002: what comes after training, with gradients off, is an evaluation ───────────────────

TRAINED = """
net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
{after}
"""


@pytest.mark.parametrize("around", OFF)
@pytest.mark.parametrize("over", ["for a, b in rest:", "if rest:"])
def test_without_gradients_after_training_is_an_evaluation(around, over):
    body = f"{over}\n    {around}\n        print(F.mse_loss(net(a), b))"
    assert loud("EVAL002", TRAINED.format(after=body))
    assert not loud("EVAL002", TRAINED.format(after=f"net.eval()\n{body}"))


@pytest.mark.parametrize("decorator", DECORATED)
def test_a_function_without_gradients_after_training_is_an_evaluation(decorator):
    body = f"{decorator}\ndef look(net, rest):\n    for a, b in rest:\n        print(F.mse_loss(net(a), b))\n"
    assert loud("EVAL002", TRAINED.format(after=f"{body}\nlook(net, rest)"))
    assert not loud("EVAL002", TRAINED.format(after=f"{body}\nnet.eval()\nlook(net, rest)"))


# ── MEM001 and OLD007 ask the same ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("around", "is_off"), [*((each, True) for each in OFF), *((each, False) for each in ON)]
)
def test_sums_and_volatile(around, is_off):
    inner = textwrap.indent("v = torch.autograd.Variable(x, volatile=True)", "    ")
    assert loud("OLD007", f"{around}\n{inner}\n") is not is_off
