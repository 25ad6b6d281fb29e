# SPDX-License-Identifier: Apache-2.0
"""The tests' own schedule gives each worker what xdist's gives it, in the same order."""

from types import SimpleNamespace

import pytest

pytest.importorskip("xdist")
from support.schedule import LinearGroupScheduling
from xdist.scheduler import LoadGroupScheduling

TESTS = [f"tests/test_{i // 9}.py::test_it[{i}]" + (f"@{i % 3}" if i % 20 == 0 else "") for i in range(120)]


class Worker:
    def __init__(self, name):
        self.gateway, self.shutting_down, self.waiting = SimpleNamespace(id=name), False, []

    def send_runtest_some(self, places):
        self.waiting += places

    def shutdown(self):
        self.shutting_down = True


def run_of(kind):
    """Return what each of two workers ran, one three times as fast as the other."""
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(option=option, getvalue={"tx": ["2*popen"], "maxprocesses": None}.get)
    workers, ran = [Worker("slow"), Worker("fast")], {"slow": [], "fast": []}
    schedule = kind(config, SimpleNamespace(loadscopesched=None, loadgroupsched=lambda *_: None))
    for worker in workers:
        schedule.add_node(worker)
    for worker in workers:
        schedule.add_node_collection(worker, TESTS)
    schedule.schedule()
    while any(worker.waiting for worker in workers):
        for worker in (workers[0], *[workers[1]] * 3):
            if worker.waiting:
                place = worker.waiting.pop(0)
                ran[worker.gateway.id].append(TESTS[place])
                schedule.mark_test_complete(worker, place)
    return ran, schedule.tests_finished, schedule.has_pending


def test_each_worker_runs_what_xdist_would_give_it():
    ours = run_of(LinearGroupScheduling)
    assert ours == run_of(LoadGroupScheduling)
    assert sorted([*ours[0]["slow"], *ours[0]["fast"]]) == sorted(TESTS)
    assert ours[1:] == (True, False)


@pytest.mark.xdist_group("schedule")
def test_a_group_stands_behind_the_names_of_its_tests(request):
    """The schedule is told names alone: where none has its group, each worker runs a part of each group."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are scheduled by group with --dist loadgroup alone")
    assert request.node.nodeid.endswith("@schedule")
