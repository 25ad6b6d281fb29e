# SPDX-License-Identifier: Apache-2.0
"""A gradient of what is the same for all inputs is told of where a loss is made of it; others are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
from torch import autograd
for x, y in loader:
    x.requires_grad_()
    out = net(x)
    p = F.softmax(out, 1)
    FIRST
    slope, = torch.autograd.grad(inputs=x, create_graph=True, outputs=OF)
    opt.zero_grad()
    (F.cross_entropy(out, y) + slope.square().mean()).backward()
    opt.step()
"""
RIGHT = {
    "one share": ("", "p[torch.arange(len(y)), y].sum()"),
    "gathered": ("", "p.gather(1, y[:, None]).sum()"),
    "a summed loss": ("", "F.cross_entropy(out, y, reduction='sum')"),
    "logits": ("", "out.sum()"),
    "logarithms of all": ("", "p.log().sum()"),
    "with weights": ("", "p, grad_outputs=torch.rand(p.shape)"),
    "the largest": ("", "p.amax(1).sum()"),
    "entropy": ("", "-(p * p.log()).sum()"),
    "of a row of scores": ("", "torch.tanh(out[:, 0]).sum()"),
    "a normed vector's part": ("v = F.normalize(out, dim=1)", "v[:, 0].sum()"),
}
FAULTY = {
    "all shares": ("", "p.sum()"),
    "all pairs": ("", "p[:, torch.arange(len(y)) % 3].sum() if len(y) % 3 == 0 else p[:, [0, 1, 2, 0, 1, 2]].sum()"),
    "by ones": ("", "p, grad_outputs=torch.ones_like(p)"),
    "by a method": ("", "out.softmax(-1).sum()"),
    "shares by hand": ("e = out.exp(); q = e / e.sum(1, keepdim=True)", "q.sum()"),
    "a mean of all": ("", "p.mean()"),
    "exponents of logarithms": ("", "out.log_softmax(1).exp().sum()"),
    "lengths of normed vectors": ("v = F.normalize(out, dim=1)", "v.square().sum()"),
    "each example's": ("", "p.sum(1), grad_outputs=torch.ones(len(y))"),
    "two classes": ("q = F.softmax(out[:, :2], 1)", "(q[:, 0] + q[:, 1]).sum()"),
}  # fmt: skip


def watched_loop(first, of):
    return watched(LOOP.replace("FIRST", first or "pass").replace("OF", of), ("REL021",))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT)
def test_a_gradient_of_what_changes_is_silent(name):
    watch = watched_loop(*RIGHT[name])
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL021")[0] == "held"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", FAULTY)
def test_a_gradient_of_what_is_constant_is_told(name):
    assert len(watched_loop(*FAULTY[name]).findings) == 1
