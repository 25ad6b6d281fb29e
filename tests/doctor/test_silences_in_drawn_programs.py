# SPDX-License-Identifier: Apache-2.0
"""Mistakes that were planted into drawn programs and that reading was silent of, in more wordings and beside right twins."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

AGENT = """
q = nn.Linear(4, 2)
target = MADE
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
for step in range(60):
    s, r, s2 = torch.randn(8, 4), torch.randn(8), torch.randn(8, 4)
    loss = F.mse_loss(q(s)[:, 0], r + 0.99 * target(s2).max(1).values.detach())
    opt.zero_grad(); loss.backward(); opt.step()
    SYNC
"""
COPIES = [
    "copy.deepcopy(q).requires_grad_(False)",
    "copy.deepcopy(q).eval()",
    "copy.deepcopy(q).to(device).eval()",
    "copy.deepcopy(q).cuda().requires_grad_(False).eval()",
]
SYNCED = [
    "target.load_state_dict(q.state_dict())",
    "for a, b in zip(q.parameters(), target.parameters()): b.data.lerp_(a.data, 0.01)",
    "follow(target, q)",
    "target = copy.deepcopy(q).eval()",
]

SEEDED = """
import random
import numpy as np
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return torch.randn(4) * random.random()
class Seeds:
    def __init__(self, seed=3): self.seed, self.epoch = seed, 0
    def __call__(self, worker):
        SEED
seeds = Seeds()
net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=5, shuffle=True, num_workers=2, worker_init_fn=seeds)
for epoch in range(3):
    MOVED
    for x in loader:
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()
"""

STATISTICS = """
class Job:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.order = torch.randperm(len(x))
        self.PARTS = self.order[:80], self.order[80:]
        SCALED
    def fit(self, net, opt):
        for epoch in range(3):
            opt.zero_grad(); F.mse_loss(net(self.x[self.FIRST]), self.y[self.FIRST]).backward(); opt.step()
            with torch.no_grad(): print(F.mse_loss(net(self.x[self.LAST]), self.y[self.LAST]).item())
"""

METER = """
class Meter:
    def __init__(self): self.sum, self.count = 0.0, 0
    def update(self, val, n=1):
        self.sum += ADDED
        self.count += n
    def mean(self): return self.sum / self.count
"""
COUNTED = """
from meters import Meter
from losses import loss_of
net = nn.Linear(4, 3); opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=5, shuffle=True)
meter = Meter()
for x, y in loader:
    loss = loss_of(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    meter.update(loss.item(), len(y))
print(meter.mean())
"""
MEANS = [
    "return F.cross_entropy(out, y)",
    "return F.cross_entropy(out, y, reduction='none').mean()",
    "losses = F.mse_loss(out, y, reduction='none')\n    return losses.mean()",
    "return (out - y).square().mean()",
    "first = (out - y).abs().mean()\n    return first + 0.1 * out.square().mean()",
]


@pytest.mark.parametrize("made", COPIES)
def test_a_copy_that_is_made_ready_at_once_and_never_updated_is_asked_after(made):
    assert told("PARAM022", AGENT.replace("MADE", made).replace("SYNC", "pass")) == [Severity.QUESTION]


@pytest.mark.parametrize("sync", SYNCED)
def test_a_copy_that_is_made_ready_at_once_and_updated_is_not(sync):
    for made in COPIES:
        assert told("PARAM022", AGENT.replace("MADE", made).replace("SYNC", sync)) == []


@pytest.mark.parametrize(
    ("seed", "moved", "count"),
    [
        ("random.seed(1000 + worker)", "pass", 1),
        ("random.seed(self.seed + worker)", "pass", 1),
        ("s = 10 * self.seed + worker\n        np.random.seed(s); random.seed(s)", "pass", 1),
        ("random.seed(f'{self.seed} {worker}')", "print(epoch)", 1),
        ("random.seed(100 * self.epoch + worker)", "seeds.epoch = epoch", 0),
        ("random.seed(self.seed + worker)", "seeds.seed += 100", 0),
        ("random.seed(torch.initial_seed() % 2**32)", "pass", 0),
        ("np.random.seed(self.seed + worker)", "pass", 0),  # nothing draws from it
    ],
)
def test_an_object_that_seeds_workers_alike_in_each_epoch_is_told(seed, moved, count):
    found = told("DATA003", SEEDED.replace("SEED", seed).replace("MOVED", moved))
    assert found == [Severity.RISK] * count


@pytest.mark.parametrize(
    "parts",
    ["train_index, self.valid_index", "train, self.test", "rows_fit, self.rows_val", "fit, self.held"],
)
@pytest.mark.parametrize(
    ("scaled", "count"),
    [
        ("self.x = (self.x - self.x.mean(0)) / self.x.std(0)", 1),
        (
            "self.mean, self.std = self.x.mean(0), self.x.std(0)\n        self.x = (self.x - self.mean) / self.std",
            1,
        ),
        ("self.x = (self.x - self.x[self.FIRST].mean(0)) / self.x[self.FIRST].std(0)", 0),
        ("self.x = (self.x - self.x.mean(1, keepdim=True)) / self.x.std(1, keepdim=True)", 0),
    ],
)
def test_statistics_of_all_rows_that_an_index_of_an_object_divides_are_told(parts, scaled, count):
    first, last = parts.split(", self.")
    text = STATISTICS.replace("SCALED", scaled).replace("PARTS", parts)
    assert told("DATA013", text.replace("FIRST", first).replace("LAST", last)) == [Severity.BUG] * count


@pytest.mark.parametrize("loss", MEANS)
def test_a_meter_that_counts_a_mean_of_another_file_as_one_example_is_told(loss):
    for added, expected in (("val", [Severity.RISK]), ("val * n", [])):
        files = {"main.py": COUNTED, "meters.py": METER.replace("ADDED", added)}
        files["losses.py"] = f"def loss_of(out, y):\n    {loss}\n"
        assert told("EVAL043", files) == expected


@pytest.mark.parametrize(
    "loss",
    [
        "return F.cross_entropy(out, y, reduction='sum')",
        "return (out - y).square().sum()",
        "return (out - y).square().mean(1).sum()",
    ],
)
def test_a_meter_that_adds_up_sums_is_not(loss):
    files = {"main.py": COUNTED, "meters.py": METER.replace("ADDED", "val")}
    assert told("EVAL043", files | {"losses.py": f"def loss_of(out, y):\n    {loss}\n"}) == []
