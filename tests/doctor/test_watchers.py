# SPDX-License-Identifier: Apache-2.0
"""The contract of every watcher and probe: its examples are run, on real torch, under all watchers."""

import warnings

import pytest
import torch._dynamo  # noqa: F401 - sets an environment variable when it is first imported

from truestep.doctor.catalogue import checks
from truestep.doctor.page import PRELUDE
from truestep.doctor.probe import Probe
from truestep.doctor.watch import watch
from truestep.doctor.watcher import Watcher

RUNNERS = [check for check in checks().values() if issubclass(check, Watcher | Probe)]

# What the examples of watchers may use without making it.
STAGE = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 3), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.arange(16) % 3), batch_size=8)
x, y = torch.randn(8, 4), torch.arange(8) % 3
data = loader.dataset
evaluate = train = lambda *_: None
epochs = 3
"""
# Their examples need more than one process or device, or names that only a reader understands.
NEEDS = {"DIST001": "a process group", "PARAM005": "a model with a head"}


def run_example(code):
    with watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some of these itself
        names = {"__name__": "__example__"}
        exec(compile(PRELUDE + STAGE, "<stage>", "exec"), names)
        exec(compile(code, "<example>", "exec"), names)
    assert watched.failures == []
    return watched


def by_code(check):
    return check.code


@pytest.mark.parametrize("check", [each for each in RUNNERS if each.code not in NEEDS], ids=by_code)
def test_bad_gives_exactly_this_finding_when_it_runs(check):
    watched = run_example(check.page().bad)
    expected = [(check.code, line) for line in check.page().marked_lines]
    assert [(each.code, each.place.line) for each in watched.findings] == expected
    assert all(each.place.path == "<example>" for each in watched.findings)


@pytest.mark.parametrize("check", [each for each in RUNNERS if each.code not in NEEDS], ids=by_code)
def test_good_gives_nothing_when_it_runs(check):
    assert run_example(check.page().good).findings == []


def test_a_replaced_head_is_seen_at_the_optimizer():
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(8, 3)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("PARAM005", 11)]


def test_a_sampler_that_begins_again_is_seen_at_the_loop():
    code = """
sampler = DistributedSampler(data, num_replicas=1, rank=0)
batches = DataLoader(data, batch_size=8, sampler=sampler)
for epoch in range(2):
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("DIST001", 5)]
    right = code.replace("    for x, y in batches", "    sampler.set_epoch(epoch)\n    for x, y in batches")
    assert run_example(right).findings == []
