# SPDX-License-Identifier: Apache-2.0
"""A call that was followed in one world is taken over in another: the traces are those of following it again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.source.project import SourceProject
from truestep.doctor.source.replays import CallReplays
from truestep.doctor.source.tracing import follow

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
    found = follow(list(project.modules.values()), project.resolver)
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
        each for each in follow(list(project.modules.values()), project.resolver) if len(each.worlds) > 1
    ]
    assert len(traces) == 2
    assert traces[0].of("eval")[0] is traces[1].of("eval")[0]
