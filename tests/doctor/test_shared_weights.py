# SPDX-License-Identifier: Apache-2.0
"""Best weights that are kept by reference, in a loop by hand and in a run: all shallow copies, beside copies that are some."""

import pytest

from tests.support.told import IMPORTS, LOUD, told
from truestep.doctor.linting import read_texts

BY_HAND = """
net = nn.Linear(4, 2)
model = net
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, least = None, 1e9
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    if loss.item() < least:
        least = loss.item()
        best = {kept}
{behind}
"""
IN_A_RUN = """
import truestep as ts
run = ts.Run("out", seed=0)
net = run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1))
model = net.module
train = run.data(examples, batch_size=16)
least, best = 1e9, None
for epoch in run.epochs(3):
    for batch in run.batches(train):
        result = net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    if result.loss.item() < least:
        least = result.loss.item()
        best = {kept}
{behind}
"""
PROGRAMS = pytest.mark.parametrize("program", [BY_HAND, IN_A_RUN], ids=["by hand", "in a run"])
LOADED = "net.load_state_dict(best)"
PUT_BACK = "for p, q in zip(net.parameters(), best):\n    p.data.copy_(q)"
SHARED = [
    ("net.state_dict()", LOADED),
    ("model.state_dict()", "model.load_state_dict(best)"),
    ("dict(net.state_dict())", LOADED),
    ("net.state_dict().copy()", LOADED),
    ("copy.copy(net.state_dict())", LOADED),
    ("{name: value for name, value in net.state_dict().items()}", LOADED),
    ("{name: value.detach() for name, value in net.state_dict().items()}", LOADED),
    ("dict(net.named_parameters())", LOADED),
    ("{'net': net.state_dict(), 'epoch': epoch}", "net.load_state_dict(best['net'])"),
    ("list(net.parameters())", PUT_BACK),
    ("[p.data for p in net.parameters()]", PUT_BACK),
    ("net", "torch.save(best.state_dict(), 'best.pt')"),
    ("copy.copy(net)", "torch.save(best.state_dict(), 'best.pt')"),
]
COPIED = [
    ("copy.deepcopy(net.state_dict())", LOADED),
    ("dict(copy.deepcopy(net.state_dict()))", LOADED),
    ("{name: value.clone() for name, value in net.state_dict().items()}", LOADED),
    ("{name: value.half() for name, value in net.state_dict().items()}", LOADED),
    ("{name: value.shape for name, value in net.state_dict().items()}", "print(best)"),
    ("[p.clone() for p in net.parameters()]", PUT_BACK),
    ("copy.deepcopy(net)", "torch.save(best.state_dict(), 'best.pt')"),
    ("list(net.state_dict())", "print(best)"),
    ("sum(p.numel() for p in net.parameters())", "print(best)"),
    ("epoch", "print(best)"),
]


def told_of(program, wordings):
    """Read all wordings at once, each a file of its own: what is told of each."""
    files = {
        f"{at}.py": IMPORTS + program.format(kept=kept, behind=behind)
        for at, (kept, behind) in enumerate(wordings)
    }
    reading = read_texts(files)
    assert not reading.failures
    found = {each.place.path: each.severity for each in reading.findings if each.code == "SAVE013"}
    return {kept: found.get(f"{at}.py") for at, (kept, _) in enumerate(wordings)}


@PROGRAMS
def test_weights_kept_by_reference_are_told(program):
    assert [kept for kept, said in told_of(program, SHARED).items() if said not in LOUD] == []


@PROGRAMS
def test_copies_are_not(program):
    assert set(told_of(program, COPIED).values()) == {None}


def test_the_best_of_several_models_is_another_one():
    folds = """
    best, least = None, 1e9
    for width in (4, 8):
        net = nn.Linear(width, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        if loss.item() < least:
            least, best = loss.item(), net
    torch.save(best.state_dict(), 'best.pt')
    """
    assert told("SAVE013", folds) == []
