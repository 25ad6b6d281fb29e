# SPDX-License-Identifier: Apache-2.0
"""Gradients of a closure's first call are no part of its second, however the closure is written."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LBFGS = "torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)"
SEARCHED = 'torch.optim.LBFGS(net.parameters(), max_iter=3, line_search_fn="strong_wolfe")'
TWICE = """Twice(net.parameters(), lr=0.1)
class Clears(Twice):
    def step(self, closure):
        closure()
        self.zero_grad()
        closure()
        super(Twice, self).step()
opt = Clears(net.parameters(), lr=0.1)"""
CLASSES = """
class Twice(torch.optim.SGD):
    def step(self, closure):
        closure()
        loss = closure()
        super().step()
        return loss
"""
PASS = """
for x, y in loader:
    BEFORE
    def closure():
        CLEARED
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss
    opt.step(CLOSURE)
    AFTER
"""
# optimizer, before the closure, first in it, how it is given, behind the step
RIGHT = {
    "in the closure": (LBFGS, "", "opt.zero_grad()", "closure", ""),
    "by the network": (LBFGS, "", "net.zero_grad()", "closure", ""),
    "with zeros": (LBFGS, "", "opt.zero_grad(set_to_none=False)", "closure", ""),
    "by hand": (LBFGS, "", "for each in net.parameters(): each.grad = None", "closure", ""),
    "twice": (LBFGS, "opt.zero_grad()", "opt.zero_grad()", "closure", ""),
    "with a search": (SEARCHED, "", "opt.zero_grad()", "closure", ""),
    "by keyword": (LBFGS, "", "opt.zero_grad()", "closure=closure", ""),
    "as a lambda": (LBFGS, "", "opt.zero_grad()", "lambda: closure()", ""),
    "called once": ("torch.optim.SGD(net.parameters(), 0.1)", "opt.zero_grad()", "", "closure", ""),
    "called once, behind": ("torch.optim.Adam(net.parameters())", "", "", "closure", "opt.zero_grad()"),
    "the optimizer clears": (TWICE, "opt.zero_grad()", "", "closure", ""),
}
FAULTY = {
    "before": (LBFGS, "opt.zero_grad()", "", "closure", ""),
    "behind": (LBFGS, "", "", "closure", "opt.zero_grad()"),
    "behind, by the network": (LBFGS, "", "", "closure=closure", "net.zero_grad()"),
    "with a search": (SEARCHED, "opt.zero_grad()", "", "lambda: closure()", ""),
    "of one's own optimizer": (
        "Twice(net.parameters(), lr=0.1)",
        "opt.zero_grad(set_to_none=False)",
        "",
        "closure",
        "",
    ),
}


def code_of(optimizer, *parts):
    code = PASS
    for name, part in zip(("BEFORE", "CLEARED", "CLOSURE", "AFTER"), parts, strict=True):
        code = code.replace(name, part or "pass")
    return f"{CLASSES}opt = {optimizer}\n{code}"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT)
def test_a_closure_that_is_cleared_or_called_once_is_silent(name):
    watch = watched(code_of(*RIGHT[name]), ("REL007",))
    assert watch.findings == []
    assert watch.experiments.records["REL007"].outcome == "held"


def test_gradients_that_a_closure_leaves_with_another_network_are_silent():
    code = """
critic = nn.Linear(3, 1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
for x, y in loader:
    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y) - critic(net(x)).mean()
        loss.backward()
        return loss
    opt.step(closure)
    second.zero_grad()
    critic(net(x).detach()).square().mean().backward()
    second.step()
"""
    assert watched(code, ("REL007",)).findings == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", FAULTY)
def test_one_that_adds_up_is_told(name):
    watch = watched(code_of(*FAULTY[name]), ("REL007",))
    (found,) = watch.findings
    assert "closure's first call" in found.message
