# SPDX-License-Identifier: Apache-2.0
"""Running checks that rest on what a loss is added up of: wrong forms are named in any wording, right ones are not."""

import re
import textwrap
import warnings

import pytest
import torch
import torch._dynamo

from truestep.doctor.block import watch
from truestep.doctor.finding import Severity

STAGE = """
import copy
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
teacher = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
xs, ys = torch.randn(8, 8, 4), torch.arange(64).reshape(8, 8) % 3
"""
LOOP = """
for x, y in zip(xs, ys):
    opt.zero_grad()
    out = net(x)
    ce = F.cross_entropy(out, y)
{body}
    loss.backward()
    opt.step()
"""


def found_by_running(code):
    """Return what is told beyond advice: codes with the lines that are marked `#! CODE`, and those found."""
    torch._dynamo.reset()
    with torch.random.fork_rng(), watch(probe=False) as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(STAGE + code, "<case>", "exec"), {"__name__": "__main__"})
    assert watched.failures == []
    offset = STAGE.count("\n")
    marked = enumerate(code.splitlines(), 1)
    expected = [(told, line) for line, text in marked for told in re.findall(r"#! (\w+)", text)]
    told = [each for each in watched.findings if each.severity is not Severity.ADVICE]
    return expected, sorted((each.code, each.place.line - offset) for each in told)


def in_loop(body):
    return LOOP.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))


WITHOUT_GRADIENT = {
    "detached": """
        spread = out.detach().pow(2).mean()  #! GRAD065
        loss = ce + 0.1 * spread""",
    "a number": """
        loss = ce + 0.1 * out.norm().item()  #! GRAD065""",
    "data, in place": """
        loss = ce.clone()
        loss += 1e-3 * sum(p.data.norm() for p in net.parameters())  #! GRAD065""",
    "a leaf made of a number": """
        spread = torch.tensor(out.std().item(), requires_grad=True)  #! GRAD065
        loss = sum([ce, spread])""",
    "under no_grad, in a stack": """
        with torch.no_grad():
            smooth = (net(x + 0.1) - 1).abs().mean()  #! GRAD065
        loss = torch.stack([ce, smooth]).mean()""",
    "a derivative without create_graph": """
        x.requires_grad_()
        slope, = torch.autograd.grad(net(x).sum(), x)
        loss = ce + slope.norm()  #! GRAD065""",
}
WITH_GRADIENT = {
    "all terms have it": "loss = ce + 1e-3 * sum(p.norm() for p in net.parameters())",
    "a value taken away": "loss = ce - ce.detach() + 0.1",
    "a number taken away": "loss = ce - ce.item() + 0.1",
    "constants and data": "loss = ce + torch.zeros(()) + 3.0 + x.mean()",
    "each by its own size": "loss = ce / ce.detach() + (out.norm() / out.norm().item())",
    "a teacher's entropy": """
        with torch.no_grad():
            told = teacher(x).softmax(1)
        loss = (told * told.log()).sum(1).mean() - (told * out.log_softmax(1)).sum(1).mean()""",
    "a weight that is a number": "loss = ce + ce.item() * out.pow(2).mean()",
    "a log beside": """
        total = ce.detach() + out.detach().norm()
        loss = ce + out.pow(2).mean()""",
}


@pytest.mark.parametrize("body", WITHOUT_GRADIENT.values(), ids=WITHOUT_GRADIENT)
def test_a_term_from_which_nothing_learns_is_named(body):
    expected, found = found_by_running(in_loop(body))
    assert found == expected


@pytest.mark.parametrize("body", WITH_GRADIENT.values(), ids=WITH_GRADIENT)
def test_a_term_that_is_meant_so_is_not(body):
    assert found_by_running(in_loop(body))[1] == []


TWO_NETS = """
judge = torch.optim.Adam(other.parameters(), lr=1e-3)
for x, y in zip(xs, ys):
    fake = net(x)
    judge.zero_grad()
    judged = F.softplus(other(fake.detach())).mean() + F.softplus(-other(torch.randn(8, 3))).mean()
    judged.backward()
    judge.step()
    opt.zero_grad()
    fool = F.softplus(-other({fake})).mean()  {mark}
    loss = fool + F.cross_entropy(fake, y)
    loss.backward()
    opt.step()
"""


def test_a_term_whose_gradients_are_all_cleared_is_named():
    expected, found = found_by_running(TWO_NETS.format(fake="fake.detach()", mark="#! GRAD065"))
    assert found == expected
    assert found_by_running(TWO_NETS.format(fake="fake", mark=""))[1] == []
