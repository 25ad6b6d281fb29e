# SPDX-License-Identifier: Apache-2.0
"""A layer that an optimizer holds and that no gradient reaches is asked of, but for those that something else trains."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
import copy
MADE
for number, (x, y) in enumerate(loader):
    FIRST
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
    BEHIND
"""
ALL = "opt = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)"
CE = "F.cross_entropy(net(x), y)"
WEIGHTED = "(F.cross_entropy(net(x), y, reduction='none') * (1 + other(x).squeeze(1){cut})).mean()"
# what is made, what comes first in a step, the loss, what comes behind
RIGHT = {
    "a teacher": (
        f"other = copy.deepcopy(net)\n{ALL}",
        "",
        f"{CE} + F.mse_loss(net(x), other(x).detach())",
        "",
    ),
    "a target that is averaged": (
        f"other = copy.deepcopy(net)\n{ALL}",
        "with torch.no_grad(): target = other(x)",
        f"{CE} + F.mse_loss(net(x), target)",
        "for a, b in zip(other.parameters(), net.parameters()): a.data.lerp_(b.data, 0.1)",
    ),
    "frozen": (
        f"other = nn.Linear(4, 1).requires_grad_(False)\n{ALL}",
        "",
        WEIGHTED.format(cut=""),
        "",
    ),
    "in no optimizer": (
        "other = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)",
        "",
        WEIGHTED.format(cut=".detach()"),
        "",
    ),
    "a loss of its own": (
        f"other = nn.Linear(4, 1)\n{ALL}",
        "",
        WEIGHTED.format(cut=".detach()") + " + other(x).square().mean()",
        "",
    ),
    "trained before": (
        f"other = nn.Linear(4, 1)\n{ALL}\nother(data.tensors[0]).mean().backward()",
        "",
        WEIGHTED.format(cut=".detach()"),
        "other.weight.grad = torch.zeros_like(other.weight)",
    ),
    "codes that are averaged": (
        f"other = nn.Embedding(5, 4)\n{ALL}",
        "code = other.weight[torch.cdist(x, other.weight).argmin(1)].detach(); other.weight.data.mul_(0.99)",
        "F.cross_entropy(net(x + 0.1 * (code - x).detach()), y)",
        "",
    ),
    "that reaches no loss": (f"other = nn.Linear(4, 1)\n{ALL}", "other(x)", CE, ""),
    "that is only chosen by": (
        f"other = nn.Linear(4, 2)\n{ALL}",
        "",
        f"{CE} * (1 + other(x).argmax(1).float().mean().round())",
        "",
    ),
    "a straight path": (f"other = nn.Linear(4, 1)\n{ALL}", "", WEIGHTED.format(cut=""), ""),
}
FAULTY = {
    "detached": (f"other = nn.Linear(4, 1)\n{ALL}", "", WEIGHTED.format(cut=".detach()"), ""),
    "by data": (f"other = nn.Linear(4, 1)\n{ALL}", "", WEIGHTED.format(cut=".data"), ""),
    "without gradients": (
        f"other = nn.Linear(4, 1)\n{ALL}",
        "with torch.no_grad(): gains = other(x).squeeze(1)",
        "(F.cross_entropy(net(x), y, reduction='none') * (1 + gains)).mean()",
        "",
    ),
    "through numpy": (
        f"other = nn.Linear(4, 1)\n{ALL}",
        "gains = torch.from_numpy(other(x).squeeze(1).detach().numpy())",
        "(F.cross_entropy(net(x), y, reduction='none') * (1 + gains)).mean()",
        "",
    ),
}


def watched_loop(*parts):
    code = LOOP
    for name, part in zip(("MADE", "FIRST", "LOSS", "BEHIND"), parts, strict=True):
        code = code.replace(name, part or "pass")
    return watched(code, ("REL017",))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_trained_otherwise_or_moves_nothing_is_silent(name):
    assert watched_loop(*RIGHT[name]).findings == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", FAULTY)
def test_a_layer_that_stays_as_it_was_made_is_asked_of(name):
    (found,) = watched_loop(*FAULTY[name]).findings
    assert found.evidence["layer"] == "other"


@pytest.mark.parametrize(
    ("loss", "asked"),
    [
        ("F.cross_entropy(net(x).detach().requires_grad_(), y)", True),
        ("(F.cross_entropy(net(x), y, reduction='none') * 0).sum()", False),
        ("(x.requires_grad_() * 2).square().mean()", False),
    ],
    ids=["all of it is cut off", "no example counts", "of data alone"],
)
def test_a_step_in_which_nothing_gets_a_gradient_is_asked_of_where_its_weights_move_the_loss(loss, asked):
    watch = watched_loop("opt = torch.optim.SGD(net.parameters(), lr=0.1)", "", loss, "")
    assert [each.code for each in watch.findings] == ["REL017"] * asked
