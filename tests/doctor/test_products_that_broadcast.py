# SPDX-License-Identifier: Apache-2.0
"""A product of (n,) and (n, 1) under the mean of a loss, in many wordings, by watching and by reading."""

import textwrap
import warnings

import pytest

from tests.support.told import IMPORTS, loud
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

SETUP = """
actor = nn.Sequential(nn.Linear(4, {width}), nn.Tanh(), nn.Linear({width}, 2))
critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
scale = nn.Parameter(torch.ones(16))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters(), scale])
def logp(x):
    return F.log_softmax(actor(x), 1)[:, 0]
for _ in range(3):
    x = torch.randn(16, 4)
    a = torch.randint(2, (16,))
    returns = x.sum(1)
    column = x.sum(1, keepdim=True)
    {lines}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAULTY = {
    "policy gradient": "v = critic(x)\nloss = -(logp(x) * v.detach()).mean()",
    "summed": "adv = column - column.mean()\nloss = (-logp(x) * adv).sum() / 16",
    "torch.mean": "loss = -torch.mean(logp(x) * column)",
    "a clipped ratio": (
        "ratio = (logp(x) - logp(x).detach()).exp()\n"
        "adv = (column - critic(x)).detach()\n"
        "loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()"
    ),
    "cross entropy by weights": "loss = (F.cross_entropy(actor(x), a, reduction='none') * column.abs()).mean()",
    "divided": "loss = (logp(x) / (1 + column.abs())).mean()",
    "two networks": "loss = (logp(x) * critic(x)).mean()",
    "the column first": "w = torch.sigmoid(critic(x))\nloss = (w * (returns - logp(x)) ** 2).mean() + w.mean()",
    "beside another term": (
        "pg = -(critic(x).detach() * logp(x)).mean()\nloss = pg + 0.5 * (critic(x)[:, 0] - returns).pow(2).mean()"
    ),
    "torch.mul": "loss = torch.mul(logp(x), column).mean()",
    "gathered": ("lp = F.log_softmax(actor(x), 1).gather(1, a[:, None])\nloss = -(lp * returns).mean()"),
}
RIGHT = {
    "one shape": "v = critic(x).squeeze(1)\nloss = -(logp(x) * v.detach()).mean()",
    "two columns": "loss = -(logp(x).unsqueeze(1) * column).mean()",
    "an outer product on purpose": "loss = (logp(x)[:, None] * returns).mean()",
    "an outer product of one value": "p = critic(x)\nloss = (p * p.squeeze(1)).mean()",
    "a scale for each feature": "loss = (column * scale).mean() + logp(x).mean()",
    "a fixed weight for each feature": "loss = (critic(x) * torch.arange(16.0)).mean()",
    "attention": "h = actor(x)\nw = torch.softmax(h @ h.T, 1)\nloss = (w * column).sum(1).mean()",
    "rows summed first": "loss = (critic(x) * logp(x)).sum(1).pow(2).mean()",
    "weights over a table": "t = actor(x) @ actor(x).T\nloss = (t * column).mean()",
    "one number": "loss = (logp(x) * column.mean()).mean()",
    "kernel": "n = x.norm(dim=1)\nloss = (n.view(-1, 1) * n * (actor(x) @ actor(x).T)).mean()",
    "gates": "loss = (torch.sigmoid(critic(x)) * actor(x)).mean()",
}


def program(lines: str, width: int = 6) -> str:
    return SETUP.format(lines=lines.replace("\n", "\n    "), width=width)


def watched(text: str) -> set[str]:
    options = WatchOptions(CheckSelection(select=("LOSS017",)), probe=False)
    with Watch(options) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(IMPORTS + textwrap.dedent(text), "<program>", "exec"), {"__name__": "__example__"})
    assert watch.failures == []
    return {each.code for each in watch.findings}


@pytest.mark.parametrize("width", [6, 16])
@pytest.mark.parametrize("name", FAULTY)
def test_a_product_that_broadcasts_is_seen_in_the_run(name: str, width: int) -> None:
    assert watched(program(FAULTY[name], width)) == {"LOSS017"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_product_that_is_meant_is_right(name: str) -> None:
    assert watched(program(RIGHT[name])) == set()
    assert not loud("LOSS017", program(RIGHT[name]))
