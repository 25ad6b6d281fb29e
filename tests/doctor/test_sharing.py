# SPDX-License-Identifier: Apache-2.0
"""Units of files: one that is large is shared by processes, and nothing of one that was read stays."""

import ast
import gc
import os
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor import linting, parallel_work
from truestep.doctor.parallel_work import equal_shares, map_in_processes
from truestep.doctor.source.path_of_import import SourceTexts
from truestep.doctor.source.project import SourceProject
from truestep.doctor.source.tracing import ProgramTracer

FAULTY = """\
import torch
import torch.nn.functional as F
from torch import nn
from part_{other} import helper

net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in [(torch.randn(8, 4), torch.randint(3, (8,)))]:
    loss = F.cross_entropy(net(x).softmax(1), y)
    loss.backward()
    opt.step()


def helper():
    return net
"""
NUM_FILES = 6


def written(folder):
    for number in range(NUM_FILES):
        text = FAULTY.format(other=(number + 1) % NUM_FILES)
        (folder / f"part_{number}.py").write_text(text, "utf-8")
    return [folder]


def told(reading):
    return (
        [(each.code, each.place, each.message) for each in reading.findings],
        reading.num_files,
        reading.failures,
    )


@pytest.fixture
def in_two_processes(monkeypatch):
    monkeypatch.setattr(parallel_work, "_WORTH_IT", 1)
    monkeypatch.setattr(parallel_work, "num_usable_cpus", lambda: 2)
    # a progress bar of another test's may wait
    monkeypatch.setattr(parallel_work.threading, "active_count", lambda: 1)


def test_a_unit_that_is_shared_gives_what_it_gives_alone(tmp_path, monkeypatch, in_two_processes):
    alone = told(linting.read_paths(written(tmp_path)))
    asked = []
    monkeypatch.setattr(linting, "equal_shares", lambda sizes: asked.append(sizes) or equal_shares(sizes))
    assert told(linting.read_paths([tmp_path])) == alone
    assert [len(sizes) for sizes in asked] == [NUM_FILES]
    assert {code for code, *_ in alone[0]} >= {"GRAD001"}
    assert alone[1] == NUM_FILES


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_shares_hold_each_piece_once_and_in_order(sizes):
    shares = equal_shares(sizes)
    assert [index for start, end in shares for index in range(start, end)] == list(range(len(sizes)))


def test_who_shares_a_unit_follows_nothing_of_it(tmp_path, monkeypatch, in_two_processes):
    followed = tmp_path / "followed"
    inner = ProgramTracer.trace_each_world

    def noted(tracer, root):
        with followed.open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {id(root)}\n")
        return inner(tracer, root)

    monkeypatch.setattr(ProgramTracer, "trace_each_world", noted)
    (tmp_path / "code").mkdir()
    linting.read_paths(written(tmp_path / "code"))
    lines = [line.split() for line in followed.read_text("utf-8").splitlines()]
    roots = [root for _, root in lines]
    assert len(set(roots)) == NUM_FILES
    assert str(os.getpid()) not in {process for process, _ in lines}


# what a function of a program calls: the number of another one, of three files with three each
Calls = st.lists(st.integers(0, 8), max_size=1)
TRAINS = """    for x, y in loader:
        opt.zero_grad()
        net(x).sum().backward()
        opt.step()
"""


def program(calls, bodies):
    """Return three files that import one another, whose functions train and call one another as is said."""
    texts = {}
    for file in range(3):
        others = [number for number in range(9) if number // 3 != file]
        lines = [f"from m{other // 3} import f{other}" for other in others]
        for number in range(3 * file, 3 * file + 3):
            lines += [f"def f{number}(net, opt, loader):", TRAINS if number % 2 else "    opt.zero_grad()"]
            lines += [f"    f{each}(net, opt, loader)" for each in calls[number]]
        lines += [f"f{each}(net, opt, loader)" for each in bodies[file]]
        texts[f"m{file}.py"] = "import torch\n" + "\n".join(lines) + "\n"
    return texts


def entries_of(texts):
    project = SourceProject(SourceTexts(texts))
    trees = [project.add(text, path).tree for path, text in texts.items()]
    project.link()
    return project.entries, trees


def places(trees, nodes):
    return sorted(
        (trees.index(tree), node.number) for tree in trees for node in ast.walk(tree) if node in nodes
    )


@settings(deadline=None, max_examples=20)
@given(
    st.lists(Calls, min_size=9, max_size=9),
    st.lists(Calls, min_size=3, max_size=3),
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
)
def test_what_processes_tell_one_another_leads_to_the_places_that_one_alone_finds(calls, bodies, who):
    texts = program(calls, bodies)
    alone, trees = entries_of(texts)
    told = []
    for process in (0, 1):
        entries, own = entries_of(texts)
        told += [each for file in range(3) if who[file] == process for each in entries.told_of(own[file])]
    shared, shared_trees = entries_of(texts)
    shared.take(told)
    expected = [places(trees, roots) for roots in alone.roots.values()]
    assert [places(shared_trees, roots) for roots in shared.roots.values()] == expected
    assert places(shared_trees, shared.training) == places(trees, alone.training)
    for mine, other in zip(trees, shared_trees, strict=True):
        found = [[event.kind for event in each.events] for each in alone.traces_of(mine)]
        assert [[event.kind for event in each.events] for each in shared.traces_of(other)] == found


@settings(deadline=None, max_examples=8)
@given(st.lists(Calls, min_size=9, max_size=9), st.lists(Calls, min_size=3, max_size=3))
def test_the_traces_that_come_by_an_event_are_found_without_all_others(calls, bodies):
    entries, trees = entries_of(program(calls, bodies))
    for tree in trees:
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            every = [trace for trace in entries.every_trace() if any(e.node is node for e in trace.events)]
            found = [trace for trace in entries.through(node) if any(e.node is node for e in trace.events)]
            assert found == every


def exits_outside_of(parent):
    """End at once, but never the process of the tests."""
    assert os.getpid() != parent, "no process was started"
    os._exit(3)


def test_a_process_that_is_ended_from_outside_is_told(in_two_processes):
    with pytest.raises(ChildProcessError, match="ended from outside"):
        list(map_in_processes(exits_outside_of, [(os.getpid(),)] * 2, [9, 9], meanwhile=lambda: None))


def test_what_fails_in_a_process_fails_here(in_two_processes):
    with pytest.raises(ZeroDivisionError):
        list(map_in_processes(divmod, [(1, 1), (1, 0)], [9, 9], meanwhile=lambda: None))


def test_what_was_read_is_gone_without_the_collector(tmp_path, monkeypatch):
    held = []
    monkeypatch.setattr(linting, "apply_checks", lambda module, *_: held.append(weakref.ref(module)))
    written(tmp_path)
    gc.disable()
    try:
        linting.read_paths([tmp_path])
        assert len(held) == NUM_FILES
        assert [each() for each in held] == [None] * NUM_FILES
    finally:
        gc.enable()
