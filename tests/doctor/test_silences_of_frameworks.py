# SPDX-License-Identifier: Apache-2.0
"""Mistakes that users of an hour wrote with frameworks and that nothing was said of, beside right twins."""

import pytest
from doctor.test_watchers import run_example

from tests.support.told import loud

ACCELERATE = """
from accelerate import Accelerator
from transformers import get_linear_schedule_with_warmup
EPOCHS, ACC = 4, 8
def main(args):
    accelerator = Accelerator(gradient_accumulation_steps=STEPS)
    net = nn.Linear(4, 3)
    train_loader = DataLoader(args.data, batch_size=8, shuffle=True)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    sched = SCHEDULE
    net, opt, train_loader, sched = accelerator.prepare(net, opt, train_loader, sched)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                BACKWARD
                opt.step()
                sched.step()
                opt.zero_grad()
"""
LINEAR = "get_linear_schedule_with_warmup(opt, num_warmup_steps=5, num_training_steps=%s)"
RIGHT = LINEAR % "args.epochs * (len(train_loader) // 2)"


def accelerated(schedule: str = RIGHT, steps: str = "2", backward: str = "accelerator.backward(loss)") -> str:
    text = ACCELERATE.replace("SCHEDULE", schedule).replace("STEPS", steps)
    return text.replace("BACKWARD", backward.replace("\n", "\n                "))


OTHER_LENGTH = [
    accelerated(LINEAR % "args.epochs"),
    accelerated(LINEAR % "args.epochs", "1"),
    accelerated("torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs)"),
    accelerated(LINEAR % "args.epochs * len(train_loader)"),
    accelerated(LINEAR % "args.epochs * len(train_loader)", "args.accum"),
    accelerated("torch.optim.lr_scheduler.CosineAnnealingLR(opt, len(train_loader) * args.epochs)"),
    accelerated(
        "torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, epochs=EPOCHS, steps_per_epoch=len(train_loader))"
    ),
]
ITS_LENGTH = [
    accelerated(),
    accelerated(LINEAR % "args.epochs * len(train_loader) // args.accum", "args.accum"),
    accelerated(
        LINEAR % "args.epochs * (len(train_loader) / accelerator.gradient_accumulation_steps).__ceil__()"
    ),
    accelerated(LINEAR % "args.epochs * len(train_loader)", "1"),
    accelerated(LINEAR % "args.max_steps"),
    accelerated(LINEAR % "args.epochs * args.updates_per_epoch"),
    accelerated(LINEAR % "args.epochs * len(train_loader)").replace(
        "loader, sched = accelerator.prepare(net, opt, train_loader, sched)",
        "loader = accelerator.prepare(net, opt, train_loader)",
    ),
    accelerated(LINEAR % "args.epochs").replace("            sched.step()\n", "        sched.step()\n", 1)
    .replace("                sched.step()", "        sched.step()"),
]  # fmt: skip
TWICE = [
    accelerated(backward="accelerator.backward(loss / accelerator.gradient_accumulation_steps)"),
    accelerated(backward="loss = loss / 2\naccelerator.backward(loss)"),
    accelerated(backward="accelerator.backward(loss / 2)"),
    accelerated(backward="loss /= 2\naccelerator.backward(loss)"),
    accelerated(backward="accelerator.backward(loss.div(2))"),
    accelerated(steps="args.accum", backward="loss = loss / args.accum\naccelerator.backward(loss)"),
    accelerated(steps="ACC", backward="accelerator.backward(loss / ACC)"),
    accelerated(backward="loss = F.mse_loss(net(x), y) / 2\naccelerator.backward(loss)"),
]
ONCE = [
    accelerated(backward="loss = loss / 3\naccelerator.backward(loss)"),
    accelerated(
        backward="loss = F.cross_entropy(net(x), y, reduction='sum') / len(x)\naccelerator.backward(loss)"
    ),
    accelerated(backward="loss = (loss + F.mse_loss(net(x), y)) / 2\naccelerator.backward(loss)"),
    accelerated(backward="accelerator.backward(loss)\nprint(loss / 2)"),
    accelerated(backward="loss = 0.5 * F.mse_loss(net(x), y)\naccelerator.backward(loss)"),
    accelerated(
        backward="n = accelerator.gradient_accumulation_steps\nloss = loss * n / 128\naccelerator.backward(loss)"
    ),
    accelerated(steps="1", backward="loss = loss / args.accum\naccelerator.backward(loss)"),
    accelerated(backward="mean = loss / 2\naccelerator.backward(loss)"),
]
ROWS = [("SCHED012", OTHER_LENGTH, ITS_LENGTH), ("GRAD005", TWICE, ONCE)]


@pytest.mark.parametrize(("code", "wrong", "right"), ROWS, ids=[each[0] for each in ROWS])
def test_each_wording_is_told_and_no_right_twin(code, wrong, right):
    assert [each for each in wrong if not loud(code, each)] == []
    assert [each for each in right if loud(code, each)] == []


AT_ZERO = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: {factor})
for step in range(40):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
"""


@pytest.mark.parametrize(
    ("factor", "is_told"),
    [
        ("max(0.0, 1 - step / 8)", True),
        ("max(0, min(step / 4, 1 - (step - 4) / 4))", True),
        ("max(0.0, 1 - step / 40)", False),
        ("max(0.0, 1 - step / 34)", False),
        ("0.0 if step < 15 else 1.0", False),
        ("step % 2", False),
    ],
)
def test_a_rate_of_nothing_is_told_while_the_schedule_goes_on(factor, is_told):
    found = run_example(AT_ZERO.format(factor=factor)).findings
    assert [each.code for each in found if "fell from" in each.message] == ["SCHED010"] * is_told
