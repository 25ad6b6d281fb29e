# SPDX-License-Identifier: Apache-2.0
"""The contract of every relation: its bad example breaks it at the marked line, its good one keeps it, as children show."""

import warnings

import pytest

from truestep.doctor.catalogue import checks
from truestep.doctor.forks.fork_obstacles import why_no_fork
from truestep.doctor.page import PRELUDE
from truestep.doctor.relations.relation import ExperimentRelation
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

RELATIONS = [check for check in checks().values() if issubclass(check, ExperimentRelation)]
STAGE = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4), torch.arange(32) % 3)
loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.arange(16) % 3), batch_size=8)
"""

pytestmark = pytest.mark.skipif(why_no_fork() is not None, reason=f"no child is forked here: {why_no_fork()}")


def watched(code, select):
    with (
        Watch(WatchOptions(CheckSelection(select=select, preview=True), probe=True)) as watch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        names = {"__name__": "__example__"}
        exec(compile(PRELUDE + STAGE, "<stage>", "exec"), names)
        exec(compile(code, "<example>", "exec"), names)
    assert watch.failures == []
    return watch


def by_code(check):
    return check.code


@pytest.mark.parametrize("check", RELATIONS, ids=by_code)
def test_bad_breaks_it_at_the_marked_line(check):
    watch = watched(check.page().bad, (check.code,))
    assert [(each.code, each.place.line) for each in watch.findings] == [
        (check.code, line) for line in check.page().marked_lines
    ]
    assert {each.severity for each in watch.findings} <= set(check.severities())
    assert watch.experiments.records[check.code].outcome == "broken"


@pytest.mark.parametrize("check", RELATIONS, ids=by_code)
def test_good_keeps_it(check):
    watch = watched(check.page().good, (check.code,))
    assert watch.findings == []
    assert watch.experiments.records[check.code].outcome == "held"
