# SPDX-License-Identifier: Apache-2.0
"""Losses with `torch.func`: what it wraps has no memory of its own, and is followed to what lies beneath."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
PRELUDE = """
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
def of_row(out, label): return F.cross_entropy(out, label)
def smooth(x): return net[2](torch.tanh(net[0](x)))
def called(x): return functional_call(net, dict(net.named_parameters()), (x,))
"""
LOADED = """
for x, y in loader:
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
"""
MADE = """
for step in range(14):
    rows = torch.randint(32, (8,))
    x, y = data.tensors[0][rows], data.tensors[1][rows]
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
"""
RIGHT = {
    "a loss of rows": "vmap(of_row)(net(x), y).mean()",
    "a model of rows": "F.cross_entropy(vmap(net)(x), y)",
    "both in one": "vmap(lambda row, label: F.cross_entropy(called(row), label))(x, y).mean()",
    "rows by number": "vmap(lambda i: F.cross_entropy(net(x[i][None]), y[i][None]))(torch.arange(8)).mean()",
    "a penalty of gradients": "F.cross_entropy(smooth(x), y) + vmap(grad(lambda v: smooth(v).sum()))(x).square().mean()",
    "one gradient of a sum": "F.cross_entropy(smooth(x), y) + grad(lambda v: smooth(v).sum())(x).square().mean()",
    "forward mode": "F.cross_entropy(smooth(x), y) + jvp(smooth, (x,), (torch.ones_like(x),))[1].square().mean()",
    "a Jacobian": "F.cross_entropy(smooth(x), y) + vmap(jacrev(smooth))(x).square().mean()",
    "a Hessian": "F.cross_entropy(smooth(x), y) + vmap(hessian(lambda v: smooth(v).logsumexp(0)))(x).square().mean()",
}
FAULTY = {
    "a sum": ("REL003", "vmap(of_row)(net(x), y).sum()"),
    "labels times zero": (
        "REL004",
        "vmap(lambda o, y: (o - F.one_hot(y, 3) * 0).square().mean())(net(x), y).mean()",
    ),
    "columns for rows": ("REL002", "F.cross_entropy(vmap(lambda c: c.softmax(0), 1, 1)(net(x)), y)"),
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_loss_holds(case):
    watch = watched(PRELUDE + LOADED.replace("LOSS", RIGHT[case]), ("REL002", "REL012"))
    assert {each.outcome for each in watch.experiments.records.values()} == {"held"}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("case", RIGHT)
def test_it_holds_for_batches_of_the_step_itself(case):
    watch = watched(PRELUDE + MADE.replace("LOSS", RIGHT[case]), ("REL002",))
    assert watch.experiments.outcome("REL002") == ("held", None)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("case", FAULTY)
def test_a_fault_within_is_told(case):
    code, loss = FAULTY[case]
    watch = watched(PRELUDE + LOADED.replace("LOSS", loss), (code,))
    assert [each.code for each in watch.findings] == [code]
