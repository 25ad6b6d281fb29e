# SPDX-License-Identifier: Apache-2.0
"""An optimizer in a wrapper, as Accelerate and others make them, is the optimizer: what a watch says does not change."""

import re
import warnings
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import truestep as ts
from truestep.doctor.catalogue import check_topic, checks
from truestep.doctor.page import PRELUDE
from truestep.doctor.watch_block import watch
from truestep.doctor.watcher_base import Watcher

from .test_watchers import ON_REQUEST, STAGE

LIBRARY = '''
from torch.optim import Optimizer


class Handing(Optimizer):
    """Hands everything on, and was never constructed as an optimizer: Accelerate's form."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure=None):
        self.optimizer.step(closure)


class Constructed(Optimizer):
    """An optimizer of its own, with the groups of the other; its step is seen beside the other's."""

    def __init__(self, optimizer):
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.optimizer = optimizer

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Sharing(Constructed):
    """It takes the list of the groups, too: Lookahead's form."""

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.param_groups = optimizer.param_groups


class Copying(Optimizer):
    """It has what the other had when it was wrapped: Lightning's form."""

    def __init__(self, optimizer):
        self.__dict__ = dict(optimizer.__dict__)
        self.optimizer = optimizer

    def step(self, closure=None):
        return self.optimizer.step(closure)
'''
NAMES = {"__name__": "of_a_library"}
exec(compile(LIBRARY, str(Path(torch.__file__).with_name("of_a_library.py")), "exec"), NAMES)
FORMS = [NAMES[each] for each in ("Handing", "Constructed", "Sharing", "Copying")]
Handing = NAMES["Handing"]
TOPICS = ("schedule", "gradients")
WATCHERS = [
    each
    for each in checks().values()
    if issubclass(each, Watcher) and check_topic(each) in TOPICS and each.code not in ON_REQUEST
]
OPTIMIZER = re.compile(r"(torch\.optim\.[A-Z]\w*\((?:[^()]|\([^()]*\))*\))")


def run_wrapped(form, code):
    names = {"__name__": "__example__", "Wrapped": form}
    with watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(PRELUDE + OPTIMIZER.sub(r"Wrapped(\1)", STAGE), "<stage>", "exec"), names)
        exec(compile(OPTIMIZER.sub(r"Wrapped(\1)", code), "<example>", "exec"), names)
    assert watched.failures == []
    return [(each.code, each.place.line) for each in watched.findings]


@pytest.mark.sliced(8)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("check", WATCHERS, ids=lambda check: check.code)
def test_a_wrapped_optimizer_gives_the_findings_of_the_bare_one(check, form):
    page = check.page()
    bare = [(check.code, line) for line in page.marked_lines]
    assert run_wrapped(form, page.bad) == bare
    assert run_wrapped(form, page.good) == []


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_wrapped_optimizer_s_steps_count_once(form):
    with watch() as watched:
        net = nn.Linear(4, 3)
        opt = form(torch.optim.SGD(net.parameters(), lr=0.1))
        sched = lr_scheduler.StepLR(opt, 2, gamma=0.9)
        for _ in range(30):
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.arange(8) % 3).backward()
            opt.step()
            sched.step()
    assert (watched.findings, watched.history.num_steps) == ([], 30)
    assert [each.num_steps for each in watched.history.records.values()] == [30]


def test_gradients_never_cleared_are_named_where_a_wrapper_hands_on_a_closure_of_none():
    with watch() as watched:
        net = nn.Linear(4, 3)
        opt = Handing(torch.optim.SGD(net.parameters(), lr=0.1))
        for x in torch.randn(4, 8, 4).unbind():
            print(loss := F.cross_entropy(net(x), torch.arange(8) % 3))
            loss.backward()
            opt.step()
    assert [each.code for each in watched.findings] == ["GRAD001"]


@pytest.mark.parametrize("steps", [True, False])
def test_a_step_in_a_compiled_function_is_a_step(steps):
    with warnings.catch_warnings(), ts.watch() as watched:
        warnings.simplefilter("ignore")  # the order of schedule and step can't be seen there
        net = nn.Linear(4, 3)
        opt = torch.optim.AdamW(net.parameters(), lr=torch.tensor(1e-2))
        sched = lr_scheduler.StepLR(opt, 3)

        @torch.compile(backend="eager")
        def update():
            if steps:
                opt.step()
                sched.step()

        for _ in range(10):
            F.cross_entropy(net(torch.randn(8, 4)), torch.arange(8) % 3).backward()
            update()
    torch._dynamo.reset()
    assert [each.code for each in watched.findings] == ([] if steps else ["GRAD007"])
    assert watched.failures == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize(
    "groups",
    [
        lambda opt: opt.param_groups,
        lambda opt: [*opt.param_groups],
        lambda opt: [{"params": each["params"]} for each in opt.param_groups],
    ],
)
def test_an_optimizer_made_of_the_groups_of_the_one_before_is_another_one(kind, groups):
    with watch() as watched:
        net = nn.Linear(4, 3)
        opt = kind(net.parameters(), lr=0.1)
        for epoch in range(6):
            opt = kind(groups(opt), lr=0.1 * 0.5**epoch)
            for x in torch.randn(5, 8, 4).unbind():
                opt.zero_grad()
                F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
                opt.step()
    assert [each.code for each in watched.findings] == []
