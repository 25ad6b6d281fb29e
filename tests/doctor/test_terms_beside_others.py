# SPDX-License-Identifier: Apache-2.0
"""A value's error that broadcasts, beside the other terms of a loss: in many wordings, by reading and by watching."""

import textwrap
import warnings

import pytest

from tests.support.told import IMPORTS, loud
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

TWO_HEADS = """
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)
    def {0}(self, x):
        h = self.body(x)
        {1}
agent = Agent()
opt = torch.optim.Adam(agent.parameters())
"""
TWO_NETS = """
actor = nn.Linear(4, 2)
critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
"""
LOOP = """
for _ in range(3):
    x = torch.randn(16, 4)
    returns = x.sum(1)
    {}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PG = "(F.log_softmax({}, 1)[:, 0] * returns).mean()"
# each with the text that makes it right
WORDINGS = {
    "two nets": (
        TWO_NETS,
        f"v = critic(x)\npg = {PG.format('actor(x)')}\nloss = pg + 0.5 * ((v - returns) ** 2).mean()",
        ("v = critic(x)", "v = critic(x).squeeze(-1)"),
    ),
    "two nets, pow": (
        TWO_NETS,
        f"loss = {PG.format('actor(x)')} + (returns - critic(x)).pow(2).mean() - 0.01 * actor(x).std()",
        ("critic(x))", "critic(x).flatten())"),
    ),
    "a tuple of forward": (
        TWO_HEADS.format("forward", "return self.actor(h), self.critic(h)"),
        f"logits, v = agent(x)\nloss = {PG.format('logits')} + 0.5 * (v - returns).square().mean()",
        ("v - returns", "v[:, 0] - returns"),
    ),
    "a tuple of a method": (
        TWO_HEADS.format("both", "return self.actor(h), self.critic(h)"),
        f"logits, v = agent.both(x)\nv_loss = 0.5 * ((v.view(-1, 1) - returns) ** 2).mean()\nloss = {PG.format('logits')} + v_loss",
        ("v.view(-1, 1)", "v.view(-1)"),
    ),
    "some rows": (
        TWO_HEADS.format("both", "return 0, self.actor(h), self.critic(h)"),
        (
            "rows = torch.randperm(16)\nb_returns = returns.reshape(-1)\nfor at in range(0, 16, 8):\n    mb = rows[at:at + 8]\n"
            "    _, logits, v = agent.both(x[mb])\n    v_loss = ((v - b_returns[mb]) ** 2).mean()\n"
            "    ent = -F.softmax(logits, 1).mean()\n    loss = F.softplus(logits).mean() - 0.01 * ent + 0.5 * v_loss"
        ),
        ("((v -", "((v.squeeze(1) -"),
    ),
    "a name between": (
        TWO_NETS,
        f"v = critic(x)\nerror = v - returns\nv_loss = error.pow(2).mean()\nloss = {PG.format('actor(x)')} + v_loss * 0.5",
        ("v = critic(x)", "v = critic(x).reshape(-1)"),
    ),
    "a lambda": (
        TWO_NETS + "mse = lambda a, b: ((a - b) ** 2).mean()\n",
        f"loss = {PG.format('actor(x)')} + mse(critic(x), returns)",
        ("mse(critic(x),", "mse(critic(x).squeeze(1),"),
    ),
    "a function": (
        TWO_NETS
        + "def value_loss(value, goal):\n    error = (value - goal) ** 2\n    return 0.5 * error.mean()\n",
        f"losses = {{'p': {PG.format('actor(x)')}, 'v': value_loss(critic(x), returns)}}\nloss = sum(losses.values())",
        ("value_loss(critic(x),", "value_loss(critic(x)[:, 0],"),
    ),
    "a stack of terms": (
        TWO_NETS,
        f"v = critic(x)\nloss = torch.stack([{PG.format('actor(x)')}, (v - returns).abs().mean()]).sum()",
        ("v = critic(x)", "v = critic(x).squeeze(1)"),
    ),
    "mse_loss": (
        TWO_HEADS.format("forward", "return self.actor(h), self.critic(h)"),
        f"logits, v = agent(x)\nloss = {PG.format('logits')} + 0.5 * F.mse_loss(v, returns)",
        ("loss(v,", "loss(v.squeeze(1),"),
    ),
    "smooth_l1_loss": (
        TWO_NETS,
        f"loss = F.smooth_l1_loss(critic(x), returns) + {PG.format('actor(x)')}",
        ("critic(x)", "critic(x).squeeze(1)"),
    ),
    "the larger of two": (
        TWO_NETS,
        (
            "v = critic(x)\nold = torch.randn(16)\nclipped = old + (v - old).clamp(-0.2, 0.2)\n"
            f"v_loss = torch.max((v - returns) ** 2, (clipped - returns) ** 2).mean()\nloss = {PG.format('actor(x)')} + v_loss"
        ),
        ("v = critic(x)", "v = critic(x).view(-1)"),
    ),
    "layers that a function initializes": (
        "def initialized(layer, std=1.0):\n    nn.init.orthogonal_(layer.weight, std)\n    return layer\n"
        + TWO_NETS.replace("nn.Linear(8, 1)", "initialized(nn.Linear(8, 1), std=0.1)"),
        f"v = critic(x)\nloss = {PG.format('actor(x)')} + 0.5 * (v - returns).pow(2).mean()",
        ("v = critic(x)", "v = critic(x).squeeze(-1)"),
    ),
    "a row of values": (
        TWO_NETS,
        f"v = critic(x).squeeze(1)\nloss = {PG.format('actor(x)')} + ((v - returns.unsqueeze(1)) ** 2).mean()",
        ("returns.unsqueeze(1)", "returns"),
    ),
}
SEEN_BY_READING = set(WORDINGS) - {"a lambda", "a function", "the larger of two"}
RIGHT = (
    "scores = critic(x).squeeze(1)\nloss = (scores.unsqueeze(1) - scores).abs().mean() + actor(x).mean()",
    "scores = critic(x)\nloss = (scores - scores.T).pow(2).mean() + actor(x).mean()",
    "table = actor(x) @ actor(x).T\nloss = (critic(x) - table).pow(2).mean()",
    "table = (x @ x.T).detach()\nloss = (critic(x) - table).pow(2).mean() + actor(x).mean()",
    "loss = (critic(x[:1]) - returns[:1]).pow(2).mean() + actor(x).mean()",
    "loss = (critic(x) - returns.mean()).pow(2).mean() + actor(x).mean()",
)


def program(name: str, *, right: bool) -> str:
    setup, lines, (wrong, mended) = WORDINGS[name]
    lines = lines.replace(wrong, mended) if right else lines
    return setup + LOOP.format(lines.replace("\n", "\n    "))


def watched(text: str) -> list[str]:
    options = WatchOptions(CheckSelection(select=("LOSS017",)), probe=False)
    with Watch(options) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(IMPORTS + textwrap.dedent(text), "<program>", "exec"), {"__name__": "__example__"})
    assert watch.failures == []
    return [each.code for each in watch.findings]


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", WORDINGS)
def test_a_value_that_broadcasts_is_seen_in_the_run(name: str) -> None:
    assert set(watched(program(name, right=False))) == {"LOSS017"}
    assert watched(program(name, right=True)) == []


@pytest.mark.parametrize("name", sorted(SEEN_BY_READING))
def test_a_value_that_broadcasts_is_seen_in_reading(name: str) -> None:
    assert loud("LOSS017", program(name, right=False))


@pytest.mark.parametrize("name", WORDINGS)
def test_reading_is_silent_of_one_shape(name: str) -> None:
    assert not loud("LOSS017", program(name, right=True))


@pytest.mark.parametrize("lines", RIGHT)
def test_other_differences_beside_a_term_are_right(lines: str) -> None:
    text = TWO_NETS + LOOP.format(lines.replace("\n", "\n    "))
    assert watched(text) == []
    assert not loud("LOSS017", text)
