# SPDX-License-Identifier: Apache-2.0
"""A rewrite is run: the bad example with its change ends with the good example's parameters, bit for bit."""

import contextlib
import io
import os
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE
from truestep.doctor.replacement import apply_source_edits

REWRITING = [
    check
    for check in checks().values()
    if issubclass(check, SourceCheck) and check.rewrite is not SourceCheck.rewrite
]
BEFORE = """
torch.manual_seed(0)
net = model = nn.Sequential(nn.Linear(4, 3))
opt = optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 2)
x, y = torch.randn(8, 4), torch.randint(3, (8,))
data = train_set = test_set = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
loader = test_loader = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(6)]
crit = nn.CrossEntropyLoss()
lengths, wav = torch.tensor([2, 4, 3]), torch.randn(512)
xs = [torch.randn(4) for _ in range(3)]
def train(*given): return 0.0
step = evaluate = f = term = train
"""


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    """Be the only rank, and leave the process as it was."""
    environment, hook = dict(os.environ), sys.excepthook
    monkeypatch.setattr(os, "system", lambda command: 0)
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    sys.excepthook = hook
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(autouse=True)
def somewhere_else(monkeypatch, tmp_path):
    """Examples that save write into the folder they run in."""
    monkeypatch.chdir(tmp_path)


def parameters_after(code):
    """Run a text on the host, and return the parameters of its net."""
    code = code.replace('"cuda"', '"cpu"').replace(".cuda()", ".cpu()").replace('"nccl"', '"gloo"')
    code = "\n".join(line for line in code.split("\n") if "init_process_group" not in line)
    names = {}
    random, printed = torch.random.get_rng_state(), io.StringIO()
    was = (
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    )
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            exec(PRELUDE + BEFORE + code, names)
    finally:
        torch.random.set_rng_state(random)
        torch.backends.cudnn.benchmark = was[0]
        torch.use_deterministic_algorithms(was[1])
        torch.set_default_dtype(was[2])
    net = names["net"]
    return [each.detach().clone() for each in net.parameters()] if isinstance(net, nn.Module) else []


def mended(code):
    found = read_text(PRELUDE + code).findings
    edits = [edit for each in found if each.replacement for edit in each.replacement.edits]
    assert edits
    return apply_source_edits(PRELUDE + code, edits)[len(PRELUDE) :]


def same(first, second):
    return len(first) == len(second) and all(
        each.shape == other.shape and torch.equal(each, other)
        for each, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("check", REWRITING, ids=lambda each: each.code)
def test_the_changed_example_ends_where_the_good_one_does(check):
    page = check.page()
    assert same(parameters_after(mended(page.bad)), parameters_after(page.good))


@pytest.mark.parametrize(
    "check", [each for each in REWRITING if each.rewrites == "safe"], ids=lambda each: each.code
)
def test_what_is_called_safe_changes_no_bit(check):
    page = check.page()
    assert same(parameters_after(mended(page.bad)), parameters_after(page.bad))


TRAINED = {
    "guarded": """
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    if torch.isfinite(loss):
        opt.step()
""",
    "accumulating": """
for i, (x, y) in enumerate(loader):
    (F.cross_entropy(net(x), y) / 3).backward()
    if (i + 1) % 3 == 0:
        opt.step()
""",
    "two optimizers": """
other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
for x, y in loader:
    other.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    other.step()
""",
    "scaled": """
scaler = torch.amp.GradScaler("cuda", enabled=False)
for x, y in loader:
    scaler.scale(F.cross_entropy(net(x), y)).backward()
    scaler.step(opt)
    scaler.update()
""",
}
CLEARED = {
    "guarded": ("for x, y in loader:\n", "for x, y in loader:\n    opt.zero_grad()\n"),
    "accumulating": ("        opt.step()\n", "        opt.step()\n        opt.zero_grad()\n"),
    "two optimizers": ("    other.zero_grad()\n", "    other.zero_grad()\n    opt.zero_grad()\n"),
    "scaled": ("for x, y in loader:\n", "for x, y in loader:\n    opt.zero_grad()\n"),
}


@pytest.mark.parametrize("form", TRAINED)
def test_clearing_is_right_in_each_form_of_the_loop(form):
    code = TRAINED[form]
    right = parameters_after(code.replace(*CLEARED[form]))
    assert same(parameters_after(mended(code)), right)
    assert not same(parameters_after(code), right)
