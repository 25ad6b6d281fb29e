# SPDX-License-Identifier: Apache-2.0
"""The tests' own schedule: by group as xdist's, and by file; what a worker tells of a test; a slice has every value it can."""

from types import SimpleNamespace

import pytest

pytest.importorskip("xdist")
from support import schedule as own
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


def test_where_all_tests_are_given_one_by_one_each_worker_runs_what_xdist_would_give_it():
    ours = run_of(LinearGroupScheduling)
    assert ours == run_of(LoadGroupScheduling)
    assert sorted([*ours[0]["slow"], *ours[0]["fast"]]) == sorted(TESTS)
    assert ours[1:] == (True, False)


def test_a_part_of_a_file_is_run_by_one_worker_in_its_order(monkeypatch):
    """The last tests are given one by one, and what is in a group goes with its group."""
    monkeypatch.setattr(own, "TOGETHER", 3)
    monkeypatch.setattr(own, "ALONE", 12)
    ran, *ended = run_of(LinearGroupScheduling)
    assert sorted([*ran["slow"], *ran["fast"]]) == sorted(TESTS)
    assert ended == [True, False]
    places = {test: (name, place) for name, tests in ran.items() for place, test in enumerate(tests)}
    for begin in range(0, len(TESTS) - 12, 3):
        part = [places[test] for test in TESTS[begin : begin + 3] if "@" not in test]
        assert part == [(part[0][0], part[0][1] + more) for more in range(len(part))]
    apart = {places[test][0] for test in TESTS[-9:]}
    assert apart == {"slow", "fast"}


@pytest.mark.parametrize("wrong", ["setup", "call", "teardown", None])
def test_a_worker_tells_what_came_of_a_test_and_no_phase_beside_it_that_went_well(wrong, pytestconfig):
    """A phase that did not go well is told in any case; whoever asks for times, or a file of all, is told everything."""
    conftest = next(each for each in pytestconfig.pluginmanager.get_plugins() if hasattr(each, "Logged"))
    phases = ["setup", *["call"] * (wrong != "setup"), "teardown"]
    reports = [SimpleNamespace(when=phase, passed=phase != wrong) for phase in phases]
    told, ihook = [], SimpleNamespace(pytest_runtest_logreport=lambda report: told.append(report.when))
    option = SimpleNamespace(durations=None, setupshow=False)
    item = SimpleNamespace(config=SimpleNamespace(workerinput={}, option=option), ihook=ihook)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conftest, "runtestprotocol", lambda *_, **__: reports)
        assert conftest.pytest_runtest_protocol_in_a_worker(item, None) is True
        option.durations = 5
        assert conftest.pytest_runtest_protocol_in_a_worker(item, None) is None
    assert told == [phase for phase in phases if phase == "call" or phase == wrong]


@pytest.mark.xdist_group("schedule")
def test_a_group_stands_behind_the_names_of_its_tests(request):
    """The schedule is told names alone: where none has its group, each worker runs a part of each group."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are scheduled by group with --dist loadgroup alone")
    assert request.node.nodeid.endswith("@schedule")
