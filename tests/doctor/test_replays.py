# SPDX-License-Identifier: Apache-2.0
"""A call that was followed in one world is taken over in another: the traces are those of following it again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.source.call_replays import CallReplays
from truestep.doctor.source.entries import ProgramEntries
from truestep.doctor.source.execution import Execution, execution_of
from truestep.doctor.source.project import SourceProject

NUM_FUNCTIONS = 4
EVENTS = (
    "opt.step()",
    "opt.zero_grad()",
    "net(x).backward()",
    "net.eval()",
    "count = count + 1",
    "count = 0",
)
TESTS = (
    "args.amp",
    "args.clip > 0",
    "not args.amp",
    "args.mode == 'a'",
    "count % 2 == 0",
    "args.amp and deep",
)


def statements(depth: int) -> st.SearchStrategy[list[str]]:
    simple = st.sampled_from([[each] for each in EVENTS])
    called = st.integers(0, NUM_FUNCTIONS - 1).map(lambda i: [f"f{i}(net, opt, args, x, args.amp)"])
    if depth == 0:
        return simple | called
    inner = statements(depth - 1)
    guarded = st.tuples(st.sampled_from(TESTS), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: [f"if {pair[0]}:", *indented(pair[1])]
    )
    looped = st.lists(inner, min_size=1, max_size=3).map(lambda body: ["for x in data:", *indented(body)])
    leaving = st.sampled_from(TESTS).map(lambda test: [f"if {test}:", "    return"])
    return simple | called | guarded | looped | leaving


def indented(blocks: list[list[str]]) -> list[str]:
    return [f"    {line}" for block in blocks for line in block]


@st.composite
def programs(draw: st.DrawFn) -> str:
    lines = ["import torch", "from torch import nn", "data, count = [1, 2], 0"]
    for number in range(NUM_FUNCTIONS):
        body = draw(st.lists(statements(2), min_size=1, max_size=4))
        lines += [f"def f{number}(net, opt, args, x, deep):", *indented([["count = 0"], *body])]
    lines += [
        "def main(args):",
        "    net = nn.Linear(2, 2)",
        "    opt = torch.optim.SGD(net.parameters(), lr=0.1)",
    ]
    return (
        "\n".join([*lines, *indented([[f"f0(net, opt, args, {each}, args.deep)"] for each in range(2)])])
        + "\n"
    )


def told(project: SourceProject) -> list[object]:
    """Return all that the traces of a project say."""
    found = ProgramEntries(list(project.modules.values()), project.resolver).every_trace()
    return [
        (trace.root, sorted(map(str, trace.world.items())), trace.complete, [
            (event.kind, event.node, event.subject, event.path, event.made, event.of_optimizer)
            for event in trace.events
        ])
        for trace in found
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(programs())
def test_traces_are_those_of_following_every_call_in_every_world(text: str) -> None:
    project = SourceProject()
    project.add(text, "train.py")
    project.link()
    replayed = told(project)
    find = CallReplays.find
    CallReplays.find = lambda *_: None  # type: ignore[method-assign]
    try:
        assert told(project) == replayed
    finally:
        CallReplays.find = find  # type: ignore[method-assign]


def seen(run: Execution) -> list[object]:
    """Return all that a run of a loop says."""
    state = run.state
    return [
        run.happened, run.sizes, run.added_to, run.driven, run.is_certain, run.is_named, run.has_window,
        run.num_before_last, state.asked, state.progress,
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(programs())
def test_a_loop_that_runs_the_same_in_another_world_is_run_once(text: str) -> None:
    project = SourceProject()
    project.add(text, "train.py")
    project.link()
    for trace in ProgramEntries(list(project.modules.values()), project.resolver).every_trace():
        for loop in trace.training_loops():
            assert seen(execution_of(trace, loop.path)) == seen(Execution(trace, loop.path))


def test_a_counter_that_begins_elsewhere_in_another_world_runs_the_loop_again() -> None:
    text = """
import torch
from torch import nn

class Trainer:
    def fit(self, net, opt):
        for x in [1, 2]:
            net(x).backward()
            self.n += 1
            if self.n % 4 == 0:
                opt.step()

def main(args):
    net, trainer = nn.Linear(2, 2), Trainer()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    trainer.n = 0
    if args.late:
        trainer.n = 2
        opt.zero_grad()
    trainer.fit(net, opt)
"""
    project = SourceProject()
    project.add(text, "train.py")
    project.link()
    loops = [
        each
        for trace in ProgramEntries(list(project.modules.values()), project.resolver).every_trace()
        for each in trace.training_loops()
    ]
    kinds = [[event.kind for event in execution_of(each.trace, each.path).happened] for each in loops]
    assert sorted(each.index("step") for each in kinds) == [2, 4]


def test_a_call_that_asks_nothing_is_followed_once() -> None:
    text = """
import torch
from torch import nn

def build():
    net = nn.Linear(2, 2)
    net.eval()
    return net

def main(args):
    net = build()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in [1, 2]:
        if args.clear:
            opt.zero_grad()
        net(x).backward()
        opt.step()
"""
    project = SourceProject()
    project.add(text, "train.py")
    project.link()
    traces = [
        each
        for each in ProgramEntries(list(project.modules.values()), project.resolver).every_trace()
        if len(each.worlds) > 1
    ]
    assert len(traces) == 2
    assert traces[0].of("eval")[0] is traces[1].of("eval")[0]
