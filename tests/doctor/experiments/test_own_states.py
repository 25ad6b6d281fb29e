# SPDX-License-Identifier: Apache-2.0
"""Schedules in many wordings that are given their own states back: right ones go on as they were, faulty ones are told."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
BEGIN = """
import math
from torch.optim import lr_scheduler as S
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
"""
PER_STEP, PER_EPOCH = (
    """
for _ in range(3):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        schedule.step(ARGUMENT)
""",
    """
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    schedule.step(ARGUMENT)
""",
)
TORCH = {
    "step": "S.StepLR(opt, 3)",
    "milestones": "S.MultiStepLR(opt, [4, 9, 30])",
    "exponential": "S.ExponentialLR(opt, 0.9)",
    "cosine": "S.CosineAnnealingLR(opt, 12)",
    "restarts": "S.CosineAnnealingWarmRestarts(opt, 3, 2)",
    "one cycle": "S.OneCycleLR(opt, 0.5, total_steps=12)",
    "cyclic": "S.CyclicLR(opt, 0.01, 0.1, step_size_up=3)",
    "cyclic by a function": "S.CyclicLR(opt, 0.01, 0.1, step_size_up=3, scale_fn=lambda x: 0.9 ** x, scale_mode='iterations')",
    "constant": "S.ConstantLR(opt, 0.5, 4)",
    "linear": "S.LinearLR(opt, 0.1, 1, 5)",
    "polynomial": "S.PolynomialLR(opt, 12, 2.0)",
    "multiplicative": "S.MultiplicativeLR(opt, lambda epoch: 0.95)",
    "lambda": "S.LambdaLR(opt, lambda step: min(1, (step + 1) / 5))",
    "warm-up, then cosine": "S.SequentialLR(opt, [S.LinearLR(opt, 0.1, 1, 3), S.CosineAnnealingLR(opt, 9)], [3])",
    "three in a row": "S.SequentialLR(opt, [S.ConstantLR(opt, 0.1, 2), S.ExponentialLR(opt, 0.9), S.StepLR(opt, 2)], [2, 6])",
    "chained": "S.ChainedScheduler([S.LinearLR(opt, 0.1, 1, 5), S.ExponentialLR(opt, 0.95)])",
    "averaged weights": "torch.optim.swa_utils.SWALR(opt, 0.05, 3)",
}
MADE = {
    "a lambda over names outside": "warm, total = 4, 12\nschedule = S.LambdaLR(opt, lambda s: min((s + 1) / warm, 1 - s / total))",
    "a lambda that reads a counter": "done = 0\nschedule = S.LambdaLR(opt, lambda s: 1 / (1 + done))",
    "an object for a lambda": """
class Factor:
    def __init__(self): self.calls = 0
    def __call__(self, step):
        self.calls += 1
        return 1 / self.calls
schedule = S.LambdaLR(opt, Factor())""",
    "a class of torch's": """
class Root(S.LRScheduler):
    def __init__(self, optimizer, warm, last_epoch=-1):
        self.warm = warm
        super().__init__(optimizer, last_epoch)
    def get_lr(self):
        step = max(1, self.last_epoch)
        return [base * min(step ** -0.5, step * self.warm ** -1.5) for base in self.base_lrs]
schedule = Root(opt, 4)""",
    "by hand, with __dict__": """
class WarmupSchedule:
    def __init__(self, optimizer, warm):
        self.optimizer, self.warm, self.n = optimizer, warm, 0
        self.base = [g["lr"] for g in optimizer.param_groups]
    def step(self):
        self.n += 1
        for g, base in zip(self.optimizer.param_groups, self.base):
            g["lr"] = base * min(1, self.n / self.warm)
    def state_dict(self):
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}
    def load_state_dict(self, state):
        self.__dict__.update(state)
schedule = WarmupSchedule(opt, 5)""",
    "by hand, with a group and a rate": """
class DecayRate:
    def __init__(self, optimizer):
        self.groups, self.optimizer, self.count = optimizer.param_groups, optimizer, 0
    def step(self):
        self.count += 1
        if self.count % 3 == 0:
            self.groups[0]["lr"] *= 0.5
    def state_dict(self):
        return dict(count=self.count, lr=self.groups[0]["lr"])
    def load_state_dict(self, state):
        self.count = state["count"]
        self.groups[0]["lr"] = state["lr"]
schedule = DecayRate(opt)""",
    "by hand, around one of torch's": """
class WarmThen:
    def __init__(self, optimizer, after, warm):
        self.optimizer, self.after, self.warm, self.n = optimizer, after, warm, 0
        self.base_lr = optimizer.param_groups[0]["lr"]
        self._set()
    def _set(self):
        if self.n <= self.warm:
            self.optimizer.param_groups[0]["lr"] = self.base_lr * (self.n + 1) / (self.warm + 1)
    def step(self):
        self.n += 1
        if self.n > self.warm:
            self.after.step()
        else:
            self._set()
    def state_dict(self):
        return {"n": self.n, "after": self.after.state_dict()}
    def load_state_dict(self, state):
        self.n = state["n"]
        self.after.load_state_dict(state["after"])
        self._set()
class WarmSchedule(WarmThen): pass
schedule = WarmSchedule(opt, S.CosineAnnealingLR(opt, 8), 3)""",
}
GIVEN = {
    "a plateau": ("schedule = S.ReduceLROnPlateau(opt, patience=0)", "loss.item()"),
    "a number of the step": (
        """
class PolySchedule:
    def __init__(self, optimizer): self.optimizer, self.last = optimizer, 0
    def step(self, number):
        self.last = number
        self.optimizer.param_groups[0]["lr"] = 0.1 * (1 - number / 20) ** 0.9
    def state_dict(self): return {"last": self.last}
    def load_state_dict(self, state):
        self.step(state["last"])
schedule = PolySchedule(opt)
schedule.step(0)""",
        "epoch",
    ),
}
PLAIN_CLASS = """
class StagedSchedule:
    def __init__(self, optimizer):
        self.optimizer, self.n, self.rate = optimizer, 0, 0.1
    def step(self):
        self.n += 1
        if self.n % 4 == 0:
            self.rate *= 0.5
        self.optimizer.param_groups[0]["lr"] = self.rate
    def state_dict(self):
        return {"n": self.n, "rate": self.rate}
    def load_state_dict(self, state):
        self.n, self.rate = state["n"], state["rate"]
schedule = StagedSchedule(opt)
"""
FAULTY = {
    "nothing is loaded": PLAIN_CLASS.replace('self.n, self.rate = state["n"], state["rate"]', "pass"),
    "loading steps": PLAIN_CLASS.replace('state["rate"]\n', 'state["rate"]\n        self.step()\n'),
    "exchanged": PLAIN_CLASS.replace("self.n, self.rate = state", "self.rate, self.n = state"),
    "an old name": PLAIN_CLASS.replace('state["n"]', 'state.get("num", 0)'),
    "set up anew": PLAIN_CLASS.replace(
        'state["rate"]\n', 'state["rate"]\n        self.__init__(self.optimizer)\n'
    ).replace("0, 0.1", "0, 0.2"),
    "loading sets a rate of its own": PLAIN_CLASS.replace(
        'state["rate"]\n', 'state["rate"]\n        self.optimizer.param_groups[0]["lr"] = 0.01\n'
    ),
}
UNSAVED = {
    "a count is not saved": PLAIN_CLASS.replace('"n": self.n, ', "").replace(
        'self.n, self.rate = state["n"],', "self.rate ="
    ),
    "a rate is not saved": PLAIN_CLASS.replace(', "rate": self.rate', "").replace(
        'self.n, self.rate = state["n"], state["rate"]', 'self.n = state["n"]'
    ),
    "a function that counts": """
def counting():
    n = 0
    def factor(step):
        nonlocal n
        n += 1
        return 1 / n
    return factor
schedule = S.LambdaLR(opt, counting())
""",
    # a copy of the schedule within, with a copy of the optimizer, comes back
    "a schedule within is pickled": """
class GradualWarmup(S.LRScheduler):
    def __init__(self, optimizer, warm, after):
        self.warm, self.after = warm, after
        super().__init__(optimizer)
    def get_lr(self):
        return [base * self.last_epoch / self.warm for base in self.base_lrs]
    def step(self, epoch=None):
        if getattr(self, "last_epoch", 0) >= self.warm:
            self.after.step()
        else:
            super().step()
schedule = GradualWarmup(opt, 3, S.ExponentialLR(opt, 0.9))
""",
}


def looked_at(made, loop, argument=""):
    watch = watched(BEGIN + made + loop.replace("ARGUMENT", argument), ("REL015",))
    return watch, watch.experiments.records["REL015"]


@pytest.mark.sliced(8)
@pytest.mark.parametrize("loop", [PER_STEP, PER_EPOCH], ids=["per step", "per epoch"])
@pytest.mark.parametrize("made", TORCH.values(), ids=TORCH)
def test_schedules_of_torch_go_on(made, loop):
    watch, record = looked_at(f"schedule = {made}\n", loop)
    assert watch.findings == []
    assert record.outcome == "held"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_schedules_by_hand_go_on(made):
    watch, record = looked_at(f"{made}\n", PER_STEP)
    assert watch.findings == []
    assert record.outcome == "held"


@pytest.mark.parametrize(("made", "given"), GIVEN.values(), ids=GIVEN)
def test_schedules_that_are_given_a_number_go_on(made, given):
    watch, record = looked_at(f"{made}\n", PER_EPOCH, given)
    assert watch.findings == []
    assert record.outcome == "held"


@pytest.mark.sliced(2)
@pytest.mark.parametrize("made", FAULTY.values(), ids=FAULTY)
def test_loads_that_make_another_schedule_are_told(made):
    watch, _ = looked_at(made, PER_STEP)
    assert [str(each.severity) for each in watch.findings] == ["risk"], [
        each.message for each in watch.findings
    ]


@pytest.mark.sliced(2)
@pytest.mark.parametrize("made", UNSAVED.values(), ids=UNSAVED)
def test_what_a_state_lacks_is_asked(made):
    watch, _ = looked_at(made, PER_STEP)
    assert [str(each.severity) for each in watch.findings] == ["question"], [
        each.message for each in watch.findings
    ]


def test_where_no_schedule_has_a_state_it_does_not_apply():
    _, record = looked_at("", PER_STEP.replace("schedule.step(ARGUMENT)", "pass"))
    assert record.outcome == "not applicable"
