# SPDX-License-Identifier: Apache-2.0
"""What a user of plain scripts planted and reading missed, in several wordings, each beside its right twin."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG = Severity.BUG


# ── PARAM022: a target that is the network itself ──

AGENT = """
class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.target = MADE
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
    def learn(self, x, r):
        with torch.no_grad():
            goal = r + self.target(x).max(1).values
        loss = F.mse_loss(self.net(x).max(1).values, goal)
        self.optimizer.zero_grad(); loss.backward(); self.optimizer.step()
        UPDATED
agent = Agent()
for x, y in loader:
    agent.learn(x, y)
"""
COPIED = "self.target.load_state_dict(self.net.state_dict())"
AVERAGED = """for slow, fast in zip(self.target.parameters(), self.net.parameters()):
            WRITTEN"""


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("self.net", [BUG]),
        ("copy.deepcopy(self.net)", []),
        ("nn.Linear(4, 2)", []),
        ("copy.deepcopy(self.net).eval()", []),
        ("make_target(self.net)", []),
    ],
)
@pytest.mark.parametrize(
    "updated",
    [
        COPIED,
        f"if random.random() < 0.01: {COPIED}",
        AVERAGED.replace("WRITTEN", "slow.data.lerp_(fast.data, 0.01)"),
        AVERAGED.replace("WRITTEN", "slow.data.copy_(0.99 * slow.data + 0.01 * fast.data)"),
        AVERAGED.replace("WRITTEN", "slow.data = 0.99 * slow.data + 0.01 * fast.data"),
    ],
)
def test_a_target_that_is_the_network_itself(made: str, severity: list[Severity], updated: str) -> None:
    assert told("PARAM022", AGENT.replace("MADE", made).replace("UPDATED", updated)) == severity


AVERAGE = """
class Average:
    def __init__(self, model, decay=0.99):
        self.decay, self.module = decay, KEPT
    @torch.no_grad()
    def update(self, model):
        for slow, fast in zip(self.module.parameters(), model.parameters()):
            slow.lerp_(fast, 1 - self.decay)
net = nn.Linear(3, 2); optimizer = torch.optim.SGD(net.parameters(), 0.1)
ema = Average(GIVEN)
for x, y in loader:
    optimizer.zero_grad(); F.cross_entropy(net(x), y).backward(); optimizer.step()
    ema.update(net)
"""


@pytest.mark.parametrize(
    ("kept", "given", "severity"),
    [
        ("model", "net", [BUG]),
        ("copy.deepcopy(model)", "net", []),
        ("model", "copy.deepcopy(net)", []),
        ("model", "nn.Linear(3, 2)", []),
        ("type(model)(3, 2)", "net", []),
    ],
)
def test_an_average_that_is_the_network_itself(kept: str, given: str, severity: list[Severity]) -> None:
    assert told("PARAM022", AVERAGE.replace("KEPT", kept).replace("GIVEN", given)) == severity


# ── DATA013: statistics before the folds ──

FOLDS = """
from sklearn.model_selection import KFold
x, y = torch.randn(90, 4), torch.randint(2, (90,))
def part(rows, mean, std):
    return TensorDataset((x[rows] - mean) / std, y[rows])
def main():
    for fold, (train_rows, test_rows) in enumerate(KFold(3).split(x)):
        mean, std = STATISTICS
        train = DataLoader(part(train_rows, mean, std)); test = DataLoader(part(test_rows, mean, std))
        fit(train, test)
main()
"""


@pytest.mark.parametrize(
    ("statistics", "severity"),
    [
        ("x.mean(0), x.std(0)", [BUG]),
        ("x[train_rows].mean(0), x[train_rows].std(0)", []),
        ("0.5, 0.25", []),
        ("x.mean(1, keepdim=True), x.std(1, keepdim=True)", []),
    ],
)
@pytest.mark.parametrize("folds", ["KFold(3).split(x)", "make_folds(len(x), 3)", "zip(firsts, seconds)"])
def test_statistics_before_the_folds(statistics: str, severity: list[Severity], folds: str) -> None:
    code = FOLDS.replace("STATISTICS", statistics).replace("KFold(3).split(x)", folds)
    assert told("DATA013", code) == severity
