# SPDX-License-Identifier: Apache-2.0
"""Forms that strangers write of what is no mistake, each beside the plain mistake, in one file and in two."""

import textwrap
from itertools import product

import pytest

from truestep.doctor.linting import read_texts

IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


def codes(code: str, **files: str) -> set[str]:
    texts = {f"{name}.py": IMPORTS + textwrap.dedent(text) for name, text in files.items()}
    reading = read_texts({**texts, "main.py": IMPORTS + textwrap.dedent(code)})
    assert not reading.failures
    return {each.code for each in reading.findings}


GUARDS = (
    "if not self.built:",
    "if self.head is None:",
    "if 'head' not in self._modules:",
    "if not hasattr(self, 'head'):",
)
REGISTERS = (
    "setattr(self, 'head', nn.Linear(x.shape[1], 3))",
    "self.add_module('head', nn.Linear(x.shape[1], 3))",
    "layer = nn.Linear(x.shape[1], 3); self.add_module('head', layer.to(x.device))",
    "layer = nn.Linear(x.shape[1], 3); setattr(self, 'head', layer)",
    "self.register_module('head', nn.Sequential(nn.Linear(x.shape[1], 3), nn.ReLU()))",
    "layers = [nn.Linear(x.shape[1], 3)]; self.add_module('head', nn.Sequential(*layers))",
)


@pytest.mark.parametrize(("guard", "register", "by_method"), [*product(GUARDS, REGISTERS, (True, False))])
def test_a_layer_made_with_the_first_input(guard: str, register: str, by_method: bool) -> None:
    made = f"self.build(x)\n\n    def build(self, x):\n        {register}" if by_method else register
    before, after = (made, "") if not by_method else made.split("\n\n", 1)
    net = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.built = False

    def forward(self, x):
        {guard}
            {before}
            self.built = True
        return self.head(x)

{after}
"""
    assert "PARAM031" not in codes(net + "net = Net()\nnet(torch.rand(2, 4))\n")
    assert "PARAM031" in codes(net.replace(guard, "if True:").replace(register, "h = nn.Linear(4, 3)(x)"))


CLEARS = (
    "for opt in opts:\n            opt.zero_grad()",
    "for i in range(len(opts)):\n            opts[i].zero_grad()",
    "for index, opt in enumerate(opts):\n            opt.zero_grad(set_to_none=True)",
    "[opt.zero_grad() for opt in opts]",
)
STEPS = (
    "for net, opt in zip(nets, opts):\n            F.mse_loss(net(x), y).backward()\n            opt.step()",
    "for i in range(len(opts)):\n            F.mse_loss(nets[i](x), y).backward()\n            opts[i].step()",
    "for i, n in enumerate(nets):\n            opt = opts[i]\n            F.mse_loss(n(x), y).backward()\n            opt.step()",
    "for net, opt in zip(nets, opts):\n            update(F.mse_loss(net(x), y), opt)",
)
TRAIN = """
def train(loader, nets):
    opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for x, y in loader:
        {clear}
        {step}
"""
UPDATE = "def update(loss, opt):\n    loss.backward()\n    opt.step()\n"


@pytest.mark.parametrize(("clear", "step", "apart"), [*product(CLEARS, STEPS, (True, False))])
def test_loops_over_optimizers_within_a_batch(clear: str, step: str, apart: bool) -> None:
    train = TRAIN.format(clear=clear, step=step) + "\n\ntrain(loader, [nn.Linear(4, 2), nn.Linear(4, 2)])\n"
    files = {"parts": UPDATE} if apart else {}
    head = "from parts import update\n" if apart else UPDATE
    assert not codes(head + train, **files) & {"GRAD001", "GRAD003"}


LAST = (
    "loss = loss.item() * len(x)",
    "loss = loss.detach().cpu() * x.size(0)",
    "loss = float(loss) * x.shape[0]",
    "loss = len(x) * loss.item()",
)


@pytest.mark.parametrize(("last", "as_method", "apart"), [*product(LAST, (True, False), (True, False))])
def test_a_loss_that_is_made_a_number_before_it_is_given_back(
    last: str, as_method: bool, apart: bool
) -> None:
    body = (
        f"opt.zero_grad()\nloss = F.mse_loss(net(x), y)\nloss.backward()\nopt.step()\n{last}\nreturn loss\n"
    )
    if as_method:
        parts = "class Trainer:\n    def one(self, net, opt, x, y):\n" + textwrap.indent(body, " " * 8)
        call, names = "trainer.one", "Trainer"
    else:
        parts, call, names = "def one(net, opt, x, y):\n" + textwrap.indent(body, " " * 4), "one", "one"
    made = "trainer = Trainer()\n" if as_method else ""
    main = f"""
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{made}
total = 0
for x, y in loader:
    total += {call}(net, opt, x, y)
"""

    def read(parts: str) -> set[str]:
        return codes(f"from parts import {names}\n{main}", parts=parts) if apart else codes(parts + main)

    assert "MEM001" not in read(parts)
    assert "MEM001" in read(parts.replace(last, "pass"))
