# SPDX-License-Identifier: Apache-2.0
"""Right loops in the habits of strangers: one of its acts stands behind a habit, and no check calls that a bug.

Each program is drawn from an act, a habit and a place. That it is right is not believed: it is run, and ends where the
plain loop ends.
"""

import itertools
import random
import textwrap

import pytest
import torch

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text

START = """\
import contextlib, functools, operator, threading, types
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
data = [(torch.randn(5, 3), torch.randn(5, 1)) for _ in range(6)]
loader = data
"""
ACTS = {"clear": "opt.zero_grad()", "step": "opt.step()", "backward": "loss.backward()"}

# By the habit: what stands before the loop, and what stands in it instead of the act; SOURCE is what the loop runs over.
HABITS = {
    "decorator": (
        """
        def doing(function):
            @functools.wraps(function)
            def wrapper(*given, **named):
                ACT
                return function(*given, **named)
            return wrapper

        @doing
        def noted():
            return 1
        """,
        "noted()",
    ),
    "decorator class": (
        """
        class Doing:
            def __init__(self, function):
                self.function = function

            def __call__(self):
                ACT
                return self.function()

        @Doing
        def noted():
            return 1
        """,
        "noted()",
    ),
    "registry": (
        """
        hooks = []

        def hook(function):
            hooks.append(function)
            return function

        @hook
        def act():
            ACT
        """,
        "[each() for each in hooks]",
    ),
    "callbacks": (
        """
        class Callback:
            def on_batch(self):
                pass

        class Acting(Callback):
            def on_batch(self):
                ACT

        callbacks = [Callback(), Acting()]
        """,
        "for callback in callbacks: callback.on_batch()",
    ),
    "call": (
        "class Acting:\n    def __call__(self):\n        ACT\n\nacting = {'each': Acting()}\n",
        "acting['each']()",
    ),
    "partial": (
        "def act(what):\n    ACT\n\nlater = {'each': functools.partial(act, 1)}\n",
        "later['each']()",
    ),
    "map": ("def act(what):\n    ACT\n", "list(map(act, [1]))"),
    "exit stack": ("def act():\n    ACT\n", "with contextlib.ExitStack() as stack: stack.callback(act)"),
    "thread": (
        "def act():\n    ACT\n",
        "thread = threading.Thread(target=act); thread.start(); thread.join()",
    ),
    "eval": ("", "exec('ACT')"),
    "lambda": ("acts = [lambda: ACT]\n", "acts[0]()"),
    "bound": (
        "class Holder:\n    pass\n\ndef act(self):\n    ACT\n\nholder = Holder()\nholder.act = types.MethodType(act, holder)\n",
        "holder.act()",
    ),
    "context": (
        (
            "class Around:\n    def __enter__(self):\n        ACT\n\n    def __exit__(self, *error):\n        pass\n\n"
            "around = {'each': Around()}\n"
        ),
        "with around['each']: pass",
    ),
    "descriptor": (
        "class Holder:\n    @property\n    def acted(self):\n        ACT\n        return 1\n\nholder = Holder()\n",
        "assert holder.acted",
    ),
    "operator": (
        "class Acting:\n    def __neg__(self):\n        ACT\n\nacting = Acting()\n",
        "-acting",
    ),
}

# These do the act of clearing alone, in ways of their own.
CLEARING = {
    "next": (
        """
        class Batches:
            def __iter__(self):
                self.left = iter(data)
                return self

            def __next__(self):
                batch = next(self.left)
                opt.zero_grad()
                return batch

        loader = Batches()
        """,
        "pass",
    ),
    "behind yield": (
        """
        def batches():
            for batch in data:
                yield batch
                opt.zero_grad()

        loader = batches()
        """,
        "pass",
    ),
    "own step": (
        """
        class Clearing(torch.optim.SGD):
            def step(self, closure=None):
                super().step(closure)
                self.zero_grad()

        opt = Clearing(net.parameters(), lr=0.05, momentum=0.9)
        """,
        "pass",
    ),
    "patched step": (
        """
        plain = opt.step

        def step():
            plain()
            opt.zero_grad()

        opt.step = step
        """,
        "pass",
    ),
    "forward hook": ("net.register_forward_pre_hook(lambda *_: opt.zero_grad())\n", "pass"),
    "step hook": ("opt.register_step_post_hook(lambda *_: opt.zero_grad())\n", "pass"),
    "getattr": ("", "getattr(opt, 'zero_grad')()"),
    "getattr of a name": ("names = ['zero_grad']\n", "[getattr(opt, name)() for name in names]"),
    "method caller": ("", "operator.methodcaller('zero_grad')(opt)"),
    "bound method": ("after = [opt.zero_grad]\n", "for each in after: each()"),
    "loops over gradients": (
        "",
        "for group in opt.param_groups:\n    for p in group['params']:\n        p.grad = None",
    ),
}

PLACES = {
    "script": "for x, y in loader:\n    BODY\n",
    "function": "def train(source):\n    for x, y in source:\n        BODY\n\ntrain(loader)\n",
    "class": (
        "class Trainer:\n    def __init__(self, net, opt):\n        self.net, self.opt = net, opt\n\n"
        "    def fit(self, loader):\n        for x, y in loader:\n            BODY\n\nTrainer(net, opt).fit(loader)\n"
    ),
}


def filled(template, mark, text):
    """Put a text of several lines at a mark, as deep as the mark stands."""
    lines = []
    for line in textwrap.dedent(template).splitlines():
        if line.strip() == mark:
            lines.append(textwrap.indent(text, line[: len(line) - len(line.lstrip())]))
        else:
            lines.append(line.replace(mark, text))
    return "\n".join(lines) + "\n"


def program(act, before, instead, place):
    """Return a loop that is right, in which `instead` stands for an act."""
    acts = dict(ACTS)
    acts[act] = instead
    needs_loss = act == "backward"  # what goes backward is made before, and known to all
    forward = "loss = F.mse_loss(net(x), y)" + ("; globals()['loss'] = loss" if needs_loss else "")
    body = "\n".join([acts["clear"], forward, acts["backward"], acts["step"]])
    if "class" in place:
        body = (
            body.replace("opt.step()", "self.opt.step()").replace("net(x)", "self.net(x)")
            if act != "step"
            else body
        )
    return START + filled(before, "ACT", ACTS[act]) + "\n" + filled(place, "BODY", body)


def drawn():
    """Return (name, program) of each clearing habit, and of acts, habits and places drawn together."""
    draw = random.Random(33)
    found = [
        (f"{name}-{where}", program("clear", before, instead, PLACES[where]))
        for name, (before, instead) in CLEARING.items()
        for where in draw.sample(sorted(PLACES), 2)
    ]
    every = sorted(itertools.product(ACTS, HABITS, PLACES))
    for act, habit, where in draw.sample(every, 45):
        before, instead = HABITS[habit]
        found.append(
            (f"{act}-{habit}-{where}", program(act, before, instead.replace("ACT", ACTS[act]), PLACES[where]))
        )
    return found


def weights_after(code):
    names = {}
    exec(compile(code, "<drawn>", "exec"), names)
    return torch.cat([each.detach().flatten() for each in names["net"].parameters()])


PLAIN = (
    START + "for x, y in loader:\n    opt.zero_grad()\n    F.mse_loss(net(x), y).backward()\n    opt.step()\n"
)
PROGRAMS = drawn()


@pytest.mark.parametrize("code", [code for _, code in PROGRAMS], ids=[name for name, _ in PROGRAMS])
def test_a_right_loop_is_no_bug(code):
    assert torch.equal(weights_after(PLAIN), weights_after(code))
    reading = read_text(code)
    assert reading.failures == []
    assert [each for each in reading.findings if each.severity is Severity.BUG] == []
