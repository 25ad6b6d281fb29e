# SPDX-License-Identifier: Apache-2.0
"""A critic's column against a row of returns: what is added to a shape that is not known can't make the two alike."""

import itertools
import textwrap

import pytest

from tests.support.told import loud

CRITIC = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 32), nn.Linear(32, 1)
    def forward(self, state):
        return self.head(F.relu(self.body(state))){squeezed}
critic = Critic()
critic_loss = nn.MSELoss()
"""
COLUMNS = (
    "critic(s)",
    "critic(s).float()",
    "net(s).gather(1, a.unsqueeze(1))",
    "net(s).gather(1, a.view(-1, 1))",
)
ROWS = (
    "r + 0.99 * critic(n).squeeze(-1)",
    "r + 0.99 * critic(n).squeeze(1) * (1 - d)",
    "r + self.gamma * target(n).max(1)[0].detach()",
    "r + gamma * net(n).max(dim=1).values",
    "(r + gamma * net(n).max(1)[0] * (1 - d)).detach()",
)
ALSO_COLUMNS = (
    "r + 0.99 * critic(n)",
    "(r + 0.99 * critic(n).squeeze(-1)).unsqueeze(1)",
    "(r + gamma * net(n).max(1)[0]).view(-1, 1)",
    "r + gamma * net(n).max(1, keepdim=True)[0]",
    "r.view(-1, 1) + gamma * net(n).max(1)[0].unsqueeze(1)",
    "returns",
)
LOSSES = ("F.smooth_l1_loss({}, {})", "F.mse_loss({}, target={})", "critic_loss({}, {})")
IN = {
    "function": "def update(s, a, r, n, d, net, target, gamma, returns):\n    value = {}\n    goal = {}\n    return {}\n",
    "method": "class Agent:\n    def learn(self, s, a, r, n, d, net, target, gamma, returns):\n"
    "        value = {}\n        goal = {}\n        return {}\n",
    "module": "value = {}\ngoal = {}\nloss = {}\n",
    "no_grad": "def update(s, a, r, n, d, net, target, gamma, returns):\n    with torch.no_grad():\n        goal = {1}\n"
    "    value = {0}\n    return {2}\n",
}  # fmt: skip


def program(value: str, goal: str, loss: str, place: str, squeezed: str = "") -> str:
    return CRITIC.format(squeezed=squeezed) + IN[place].format(value, goal, loss.format("value", "goal"))


def some(*axes: tuple[str, ...], every: int) -> list[tuple[str, ...]]:
    return list(itertools.product(*axes))[::every]


@pytest.mark.parametrize(("value", "goal", "loss", "place"), some(COLUMNS, ROWS, LOSSES, tuple(IN), every=7))
def test_a_column_of_values_against_a_row_of_goals(value: str, goal: str, loss: str, place: str) -> None:
    assert loud("LOSS017", program(value, goal, loss, place))


@pytest.mark.parametrize(("goal", "loss", "place"), some(ALSO_COLUMNS, LOSSES, tuple(IN), every=5))
@pytest.mark.parametrize("value", ["critic(s)", "net(s).gather(1, a.unsqueeze(1))"])
def test_two_columns(value: str, goal: str, loss: str, place: str) -> None:
    assert not loud("LOSS017", program(value, goal, loss, place))


@pytest.mark.parametrize("value", ["critic(s).squeeze(-1)", "net(s).gather(1, a.unsqueeze(1)).squeeze(1)"])
@pytest.mark.parametrize(("goal", "place"), some(ROWS, tuple(IN), every=3))
def test_two_rows(value: str, goal: str, place: str) -> None:
    assert not loud("LOSS017", program(value, goal, LOSSES[0], place))


@pytest.mark.parametrize("place", IN)
def test_a_critic_that_gives_a_row_itself(place: str) -> None:
    assert loud("LOSS017", program("critic(s)", "returns.view(-1, 1)", LOSSES[0], place, ".squeeze(-1)"))
    assert not loud(
        "LOSS017", program("critic(s)", "r + gamma * net(n).max(1)[0]", LOSSES[0], place, ".squeeze(-1)")
    )


def test_a_kernel_compares_all_with_all() -> None:
    assert not loud("LOSS017", "d = (x.unsqueeze(1) * s - c) ** 2\nk = (a.max(1)[0] + b - q) ** 2\n")
    two = {
        "nets.py": textwrap.dedent(CRITIC.format(squeezed="")),
        "main.py": "from nets import critic\n" + IN["function"],
    }
    two["main.py"] = two["main.py"].format("critic(s)", ROWS[0], "F.mse_loss(value, goal)")
    assert loud("LOSS017", two)


BESIDE = """
head = nn.Linear(4, 1)
def loss_of(x, y, centers, weights):
    row = head(x).squeeze(1)
    times = torch.randn(8)
    {}
"""
TABLES = (
    "return torch.abs(torch.arange(9) - centers[:, None])",
    "return torch.exp(-((torch.arange(9, device=x.device).float() - times.unsqueeze(1)) ** 2))",
    "steps = torch.linspace(0, 1, 9)\n    return (steps - times.view(-1, 1)).abs().argmin(1)",
    "near = (row[:, None] - times).pow(2)\n    return near.min(1)",
    "return torch.exp(-((row[:, None] - times) ** 2)).mean()",
    "places = torch.arange(9)\n    return (places - places.view(-1, 1)).abs()",
    "return (row.unsqueeze(1) - row).abs().mean()",
    "return ((row - row.view(-1, 1)) ** 2).mean()",
    "column = row.unsqueeze(-1)\n    return (column - row).abs().mean()",
    "lengths = x.argmax(1)\n    return (torch.arange(9) / 9 - lengths[:, None]).abs()",
    "squares = (torch.arange(9) - times[:, None]) ** 2\n    squares = squares / 2\n    return squares.min(1)",
    "hats = (times[:, None] - torch.arange(9)) ** 2\n    for _ in x:\n        half = hats / 2\n        hats = -half",
    "while x.any():\n        column = column.unsqueeze(1)\n        x = (column - column) ** 2",
    "while x.any():\n        places = places.view(-1)\n        x = (row[:, None] - places) ** 2",
    "bins = torch.arange(9) * 0.5\n    hats = 1 - (bins - times.unsqueeze(-1)).abs()\n    return hats.clamp(min=0) / hats.sum(1)",
)
AVERAGED = (
    "return ((head(x) - times) ** 2).mean()",
    "return (row - times.unsqueeze(1)).pow(2).mean()",
    "return torch.abs(row - times[:, None]).mean()",
    "squares = (row - times[:, None]) ** 2\n    return squares.mean()",
    "squares = (row - times[:, None]) ** 2\n    squares = squares / 2\n    return squares.mean()",
    "far = (row - times[:, None]) ** 2\n    for _ in x:\n        half = far / 2\n        far = -half\n    return far.sum()",
    "return torch.mean((row - times[:, None]) ** 2)",
    "return 0.5 * ((row - times.unsqueeze(-1)) ** 2).sum()",
    "goal = torch.linspace(0, 1, 8)\n    return ((head(x) - goal) ** 2).mean()",
    "squares = (row.unsqueeze(1) - times) ** 2 / 2\n    loss = torch.sqrt(squares.mean())\n    return loss",
    "return torch.square(head(x) - torch.arange(8.0)).sum()",
)  # fmt: skip


@pytest.mark.parametrize("line", TABLES)
def test_a_table_of_all_with_all_that_is_meant(line: str) -> None:
    assert not loud("LOSS017", BESIDE.format(line))


@pytest.mark.parametrize("line", AVERAGED)
def test_a_table_of_all_with_all_that_is_averaged(line: str) -> None:
    assert loud("LOSS017", BESIDE.format(line))
