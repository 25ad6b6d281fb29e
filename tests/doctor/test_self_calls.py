# SPDX-License-Identifier: Apache-2.0
"""A method that calls itself at many places is read in time that grows with the text, not with the ways through it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.linting import read_texts

HEAD = """
import copy, torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.model_selection import train_test_split

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.body = nn.Linear(4, 1)
        self.opt = torch.optim.SGD(self.body.parameters(), lr=0.1)

    def run(self, x, n, epoch, stage="a", number=0):
"""
# what asks where a value comes from or goes to, each by a walk of its own
TAIL = """
        if number > 3:
            self.opt.zero_grad()
            F.cross_entropy(self.body(x), x).backward()
            self.opt.step()
            train, test = train_test_split(x)
            loader = torch.utils.data.DataLoader(x, batch_size=n)
        y = x.align_to("a")
        eps = torch.rand(x.size(0), 1, 1, 1)
        mixed = eps * x + (1 - eps) * x.detach()
        grad = torch.autograd.grad(self.body(mixed).sum(), mixed, create_graph=True)[0]
        if n:
            x = F.relu(x)
        for e in range(epoch, 10):
            loss = F.cross_entropy(self.body(x), x)
            loss.backward()
            predicted = x.argmax(1)
            torch.save({"epoch": e, "n": n}, "x.pt")
        schedule = torch.optim.lr_scheduler.StepLR(self.opt, n)
        for i, batch in enumerate(loader):
            if i % n == 0:
                self.opt.step()
                schedule.step()
            if number < n * epoch:
                kept = self.run(x, n, epoch)
        return x
"""
MAIN = """
import copy, onnxruntime, torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from net import Net

net = DistributedDataParallel(Net(3))
target_net = copy.deepcopy(net)
w = torch.tensor([1.0], requires_grad=True)
opt = torch.optim.SGD([w, *net.parameters()], lr=0.1)
epoch = torch.load("x.pt")["epoch"] + 1
try:
    for i in range(epoch, 10):
        for x, y in loader:
            torch.manual_seed(0)
            loss = F.cross_entropy(net.run(x, 3, epoch, "s1"), y)
            v = Net(3).run(w, target_net, epoch)
            other = F.cross_entropy(F.softmax(Net(3).run(x, 3, epoch), 1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
except KeyboardInterrupt:
    Net(3).run(1, 2, 3)
session = onnxruntime.InferenceSession("x", None, epoch)
"""
CALLS = (
    "return self.run(x, n, epoch, 's{}', {})",
    "x = self.run(x, n, epoch, 's{}', {})",
    "x = self.run(x, n + 1, epoch + 1, stage='s{}', number={})",
    "x = F.relu(self.run(x, n, epoch=epoch, stage='s{}', number={}))",
    "x, n = self.run(self.run(x, n, epoch), n, epoch, 's{}', {})",
    "self.run(x, n, epoch, 's{}', {})",
)
FEW, MANY = 2, 14


def program(forms: list[tuple[str, bool]], num_calls: int) -> dict[str, str]:
    lines = []
    for number in range(num_calls):
        call, is_nested = forms[number % len(forms)]
        lines += [f"        if stage == 's{number}':", *(["            if n > 2:"] if is_nested else [])]
        lines += [" " * (16 if is_nested else 12) + call.format((number + 1) % num_calls, number)]
    return {"net.py": HEAD + "\n".join(lines) + TAIL, "main.py": MAIN}


class TooMany(BaseException):
    pass


@contextmanager
def counted(most: float) -> Iterator[list[int]]:
    """Count the calls of Python functions, and stop where there are more than that."""
    found = [0]

    def count(frame: FrameType, event: str, _: object) -> None:
        found[0] += event == "call"
        if found[0] > most:
            raise TooMany

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(before)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CALLS), st.booleans()), min_size=1, max_size=4))
def test_steps_grow_with_the_text(forms: list[tuple[str, bool]]) -> None:
    read_texts(program(forms, FEW))  # what is found once for all
    with counted(float("inf")) as few:
        read_texts(program(forms, FEW))
    with counted(few[0] * (MANY / FEW) ** 2):
        assert not read_texts(program(forms, MANY)).failures
