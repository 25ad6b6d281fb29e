# SPDX-License-Identifier: Apache-2.0
"""What may step an optimizer where nobody looks: schedules and trainers of another folder that were given it."""

import pytest

from tests.support.told import loud

LOOP = """
from zoo.training import Noam, CustomSchedule, Trainer, build_schedule
import zoo

net = nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters(), lr=0, betas=(0.9, 0.98))
{made}
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    {called}
"""
OUT_OF_SIGHT = [
    ("scheduler = CustomSchedule(512, optimizer=opt)", "scheduler.step()"),
    ("lr_scheduler = Noam(512, 2, 4000, opt)", "lr_scheduler.step()"),
    ("scheduler = build_schedule(opt, rate=0.1)", "scheduler.step()"),
    ("schedule = zoo.training.Noam(opt)", "schedule.advance()"),
    ("trainer = Trainer(net, opt)", "trainer.after(loss)"),
    ("trainer = Trainer(optimizers=[opt])", "trainer.after_batch()"),
    ("trainer = Trainer(net)\ntrainer.optimizer = opt", "trainer.after_batch()"),
    ("trainer = Trainer(net)\ntrainer.register(opt)", "trainer.after_batch()"),
    ("engine = Trainer({'net': net, 'opt': opt})", "engine.hooks.run('after')"),
    ("warm = 3\nscheduler = Noam(opt) if warm else None", "if scheduler is not None:\n        scheduler.step()"),
    ("schedulers = [Noam(opt), Noam(opt)]", "for each in schedulers:\n        each.step()"),
]  # fmt: skip
IN_SIGHT = [
    ("scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)", "scheduler.step()"),
    ("scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)", "scheduler.step()"),
    ("meter = zoo.Meter()", "meter.update(loss.item())"),
    ("meter = zoo.Meter()", "print(loss.item())"),
    ("log = []", "log.append(loss.item())"),
    ("trainer = Trainer(net, opt)", "print(loss.item())"),
]


@pytest.mark.parametrize(("made", "called"), OUT_OF_SIGHT)
def test_what_was_given_the_optimizer_may_step_it(made, called):
    assert not loud("GRAD007", LOOP.format(made=made, called=called))
    method = LOOP.format(made=made, called=called).partition("\n\n")[2].replace("\n", "\n    ")
    assert not loud(
        "GRAD007",
        f"from zoo.training import *\nimport zoo\ndef main(loader):\n    {method}\nmain(zoo.data())\n",
    )


@pytest.mark.parametrize(("made", "called"), IN_SIGHT)
def test_what_was_given_nothing_or_is_torchs_does_not(made, called):
    assert loud("GRAD007", LOOP.format(made=made, called=called))


HELD = """
from zoo.training import CustomSchedule

class Training:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters())
        self.schedule = {made}

    def run(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            F.cross_entropy(self.net(x), y).backward()
            self.schedule.step()


Training(nn.Linear(4, 3)).run(DataLoader(torch.ones(4, 4)))
"""


def test_a_schedule_that_a_training_holds():
    assert not loud("GRAD007", HELD.format(made="CustomSchedule(512, self.opt)"))
    assert loud("GRAD007", HELD.format(made="torch.optim.lr_scheduler.StepLR(self.opt, 3)"))
    own = "class CustomSchedule:\n    def __init__(self, width, opt):\n        self.opt = opt\n    def step(self):\n        {}\n"
    files = {"main.py": HELD.format(made="CustomSchedule(512, self.opt)"), "zoo/__init__.py": ""}
    assert not loud("GRAD007", files | {"zoo/training.py": own.format("self.opt.step()")})


OWN = """
import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, LambdaLR

class {name}({base}):
    def __init__(self, optimizer, every=3):
        self.every = every
        {begun}

    def {method}(self{more}):
        return [group["lr"] for group in self.optimizer.param_groups]

net = nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters())
scheduler = {name}(opt)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    {called}
"""
OVER_TORCHS = [
    {"name": "Halved", "base": "LRScheduler", "begun": "super().__init__(optimizer)"},
    {
        "name": "Noam",
        "base": "lr_scheduler.LRScheduler",
        "begun": "super(Noam, self).__init__(optimizer, -1)",
    },
    {"name": "Old", "base": "torch.optim.lr_scheduler._LRScheduler", "begun": "super().__init__(optimizer)"},
    {"name": "By", "base": "LambdaLR", "begun": "super().__init__(optimizer, lambda step: 0.9 ** step)"},
    {"name": "Named", "base": "LRScheduler", "begun": "LRScheduler.__init__(self, optimizer)"},
]


@pytest.mark.parametrize("over", OVER_TORCHS, ids=lambda over: over["name"])
def test_a_schedule_over_torchs_steps_no_optimizer(over):
    written = {"method": "get_lr", "more": "", **over}
    assert loud("GRAD007", OWN.format(called="scheduler.step()", **written))
    assert not loud("GRAD007", OWN.format(called="opt.step()\n    scheduler.step()", **written))
    stepping = {**written, "method": "step", "more": ", epoch=None"}
    text = OWN.format(called="scheduler.step()", **stepping)
    assert not loud(
        "GRAD007", text.replace("        return [", "        self.optimizer.step()\n        return [")
    )


def test_a_schedule_over_what_is_out_of_sight_may_step_it():
    written = {
        "name": "Own",
        "base": "zoo.Schedule",
        "begun": "super().__init__(optimizer)",
        "method": "rates",
        "more": "",
    }
    assert not loud("GRAD007", "import zoo\n" + OWN.format(called="scheduler.advance()", **written))
