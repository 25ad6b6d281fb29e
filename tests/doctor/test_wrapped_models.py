# SPDX-License-Identifier: Apache-2.0
"""A model that a library or torch gives back wrapped is still the model: what its forward ends in is known."""

import pytest

from tests.support.told import loud

PROGRAM = """
import lightning as L
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(20, 5)
    def forward(self, x):
        return ENDS
class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(20, 5)
    def forward(self, x):
        return OTHER
class Runner:
    def __init__(self, net, accelerator):
        self.accelerator, self.net = accelerator, net
        self.opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
        self.net, self.opt = self.accelerator.prepare(self.net, self.opt)
class Mover:
    def __init__(self, net, device):
        self.net = net
        self.net = self.net.to(device)
        self.net = nn.DataParallel(self.net)
def main(loader):
    accelerator, fabric = Accelerator(), L.Fabric()
    net, other = Net(), Other()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    WRAPPED
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
"""
WRAPPED = [
    "net = accelerator.prepare(net)",
    "net, opt, loader = accelerator.prepare(net, opt, loader)",
    "opt, net = accelerator.prepare(opt, net)",
    "net, *rest = accelerator.prepare(net, opt, loader)",
    "*rest, net = accelerator.prepare(opt, loader, net)",
    "parts = [net, opt, loader]\n    net, opt, loader = accelerator.prepare(*parts)",
    "net, opt = accelerator.prepare(*[net, opt])",
    "prepared = accelerator.prepare(net, opt)\n    net, opt = prepared[0], prepared[1]",
    "net = accelerator.prepare_model(net)",
    "net, other = accelerator.prepare(net, other)",
    "opt = accelerator.prepare_optimizer(opt)\n    net = accelerator.unwrap_model(accelerator.prepare(net))",
    "net, opt = fabric.setup(net, opt)",
    "net = fabric.setup(net)",
    "net = fabric.setup_module(net)",
    "net = DDP(net)",
    "net = DDP(net.to(0), device_ids=[0])",
    "net = nn.DataParallel(net).cuda()",
    "net = torch.compile(DDP(net))",
    "net = Runner(Net(), accelerator).net",
    "net = Mover(Net(), 0).net",
]
AS_IT_IS, SOFT = "self.head(x)", "self.head(x).softmax(-1)"
ELSEWHERE = [  # what comes back is another, or out of sight
    "net, other = accelerator.prepare(other, net)",
    "other, net = accelerator.prepare(net, other)",
    "net = loader.prepare(net)",
    "net, opt = loader.setup(net, opt)",
    "net, *rest = accelerator.prepare(*loader.parts, net, opt)",
    "net = fabric.load(net)",
]


def program(wrapped: str, ends: str, other: str) -> str:
    return PROGRAM.replace("WRAPPED", wrapped).replace("ENDS", ends).replace("OTHER", other)


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_a_wrapped_model_ends_in_is_known(wrapped):
    assert loud("LOSS001", program(wrapped, SOFT, AS_IT_IS))


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_wrapped_model_of_logits_is_right(wrapped):
    assert not loud("LOSS001", program(wrapped, AS_IT_IS, SOFT))


@pytest.mark.parametrize("wrapped", ELSEWHERE)
def test_another_model_is_not_taken_for_it(wrapped):
    assert not loud("LOSS001", program(wrapped, SOFT, AS_IT_IS))
