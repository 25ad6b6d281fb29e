# SPDX-License-Identifier: Apache-2.0
"""What the nineteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, RISK, ADVICE = Severity.BUG, Severity.RISK, Severity.ADVICE


# ── VALUE014: a function that an import gives its name where it is called ──

SHOWN = "def show(image):\n    print(image)\n"
CALLED = "import torch\nheat, over = show(torch.rand(3))\nprint(heat)\n"


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        (f"from helpers import show\n{CALLED}{SHOWN}", []),
        (f"{SHOWN}from helpers import show\n{CALLED}", []),
        (f"from helpers import draw as show\n{CALLED}{SHOWN}", []),
        (f"{SHOWN}import helpers.show as show\n{CALLED}", []),
        (f"from helpers import show\n{CALLED}{SHOWN}from helpers import show\n{CALLED}", []),
        (f"{SHOWN}{CALLED}from helpers import show\n", [BUG]),
        (f"from helpers import show\n{SHOWN}{CALLED}", [BUG]),
        (f"try:\n    from helpers import show\nexcept ImportError:\n    {SHOWN.replace('    ', '        ')}{CALLED}", [BUG]),
    ],
)  # fmt: skip
def test_function_that_an_import_replaces(lines: str, severity: list[Severity]) -> None:
    assert told("VALUE014", lines) == severity


# ── PARAM001 and PARAM004: what has nothing to train, and what is trained member by member ──

NORMS = """
class Net(nn.Module):
    def __init__(self, with_weights):
        super().__init__()
        self.norms = [MADE for _ in range(3)]
    def forward(self, x):
        return self.norms[0](x)
net = Net(True)
torch.optim.SGD(net.parameters(), 0.1)
"""


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("nn.InstanceNorm1d(8)", []),
        ("nn.InstanceNorm2d(8, affine=False)", []),
        ("nn.BatchNorm1d(8, affine=False, track_running_stats=False)", []),
        ("nn.BatchNorm2d(8, 1e-5, 0.1, False, False)", []),
        ("nn.LayerNorm(8, elementwise_affine=False)", []),
        ("nn.GroupNorm(2, 8, affine=False)", []),
        ("nn.InstanceNorm1d(8, affine=True)", [BUG]),
        ("nn.InstanceNorm1d(8, track_running_stats=True)", [BUG]),
        ("nn.BatchNorm1d(8, affine=False)", [BUG]),
        ("nn.LayerNorm(8)", [BUG]),
        ("nn.GroupNorm(2, 8, affine=with_weights)", [BUG]),
    ],
)  # fmt: skip
def test_norms_without_weights_in_a_list(made: str, severity: list[Severity]) -> None:
    assert told("PARAM001", NORMS.replace("MADE", made)) == severity


MEMBERS = """
class Several(nn.Module):
    def __init__(self, num):
        SUPER
        self.members = []
        for _ in range(num):
            member = nn.Linear(3, 2)
            self.members.append(member)
    def forward(self, x):
        return sum(each(x) for each in self.members)
    def __call__(self, x):
        return self.forward(x)
    def to(self, device):
        BODY
        return self
several = Several(3).to("cpu")
LEARNED
"""
MOVED = "for each in self.members:\n            each.to(device)"
EACH = "for each in several.members:\n    torch.optim.SGD(each.parameters(), 0.1)"


@pytest.mark.parametrize(
    ("body", "learned", "in_list"),
    [
        (MOVED, EACH, []),
        ("self.members = [each.to(device) for each in self.members]", EACH, []),
        (MOVED, "optimizers = [torch.optim.SGD(several.members[i].parameters(), 0.1) for i in range(3)]", []),
        (MOVED, "torch.optim.SGD(several.parameters(), 0.1)", [BUG]),
        (MOVED, EACH + "\ntorch.save(several.state_dict(), 'net.pt')", [BUG]),
        ("pass", EACH, [BUG]),
    ],
)  # fmt: skip
def test_members_that_are_trained_by_themselves(body: str, learned: str, in_list: list[Severity]) -> None:
    program = MEMBERS.replace("BODY", body).replace("LEARNED", learned)
    assert told("PARAM001", program.replace("SUPER", "super().__init__()")) == in_list
    assert told("PARAM004", program.replace("SUPER", "pass")) == []
    assert told("PARAM004", program.replace("SUPER", "self.head = nn.Linear(3, 2)")) == [BUG]
    assert told("PARAM004", program.replace("SUPER", "first = nn.Linear(3, 2); self.head = first")) == [BUG]


# ── VALUE028: lines that a console has shown ──

CONSOLE = """
import numpy as np
model = nn.Linear(3, 2)
first = model(torch.rand(4, 3)); second = model(torch.rand(4, 3))
first[1]
second[1]
low = first.min()
low*100
high = first.max()
high*100
"""


def test_sums_that_a_console_shows() -> None:
    assert told("VALUE028", CONSOLE) == [Severity.QUESTION] * 2
    assert told("VALUE028", CONSOLE + "mean = first.mean()\nmean - 1\n") == [Severity.QUESTION] * 3
    assert told("VALUE028", CONSOLE.replace("first[1]\nsecond[1]\n", "")) == [BUG] * 2
    assert told("VALUE028", CONSOLE + "print(low)\nlow * 0.5\n")[-1] == BUG  # nothing has shown it there
    assert told("VALUE028", CONSOLE + "for x in first:\n    x = x.mean()\n    x * 0.5\n")[-1] == BUG


# ── EVAL043, DATA030, VALUE012, LOSS011, DATA002, EVAL003 ──

FIGURE = """
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt OPTIONS)
loader = DataLoader(data, batch_size=8)
for epoch in range(9):
    total, num = 0.0, 0
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        total += loss.item()
        num += y.size(0)
    SHOWN
"""


@pytest.mark.parametrize(
    ("options", "shown", "severity"),
    [
        ("", "scheduler.step(total / num)", []),
        ("", "figure = total / num; scheduler.step(figure)", []),
        (", 'min', patience=3", "scheduler.step(total / len(loader.dataset))", []),
        (", threshold_mode='rel'", "scheduler.step(metrics=figure) if (figure := 1) else scheduler.step(total / num)", []),
        ("", "figure = total / num; scheduler.step(figure); print(figure)", [RISK]),
        (", threshold_mode='abs'", "scheduler.step(total / num)", [RISK]),
        ("", "print(total / num)", [RISK]),
        ("", "history.append(total / num)", [RISK]),
    ],
)  # fmt: skip
def test_figure_of_a_plateau(options: str, shown: str, severity: list[Severity]) -> None:
    assert told("EVAL043", FIGURE.replace("OPTIONS", options).replace("SHOWN", shown)) == severity


STEPS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, bidirectional=True OPTION)
    def forward(self, x):
        out, _ = self.rnn(GIVEN)
        return TAKEN
ROWS
"""
SET = "data = torch.utils.data.TensorDataset(rows, targets)"


@pytest.mark.parametrize(
    ("given", "rows", "severity"),
    [
        ("x.unsqueeze(1)", "", []),
        ("torch.unsqueeze(x, 1)", "", []),
        ("x", f"rows = torch.tensor(table).unsqueeze(1); {SET}", []),
        ("x", f"rows = torch.tensor(table).to('cpu').unsqueeze(dim=1); {SET}", []),
        ("x", f"rows = torch.tensor(table).float(); {SET}", [RISK]),
        ("x", f"rows = torch.tensor(table).unsqueeze(2); {SET}", [RISK]),
        ("x", f"rows = torch.tensor(table).unsqueeze(1); {SET}; data = torch.utils.data.TensorDataset(others)", [RISK]),
        ("x.unsqueeze(0)", "", [RISK]),
        ("x.permute(0, 2, 1)", f"rows = torch.tensor(table).unsqueeze(1); {SET}", [RISK]),
        ("(x := x.transpose(1, 2))", f"rows = torch.tensor(table).unsqueeze(1); {SET}", [RISK]),
    ],
)  # fmt: skip
def test_sequence_of_one_step(given: str, rows: str, severity: list[Severity]) -> None:
    program = STEPS.replace("OPTION", ", batch_first=True").replace("TAKEN", "out[:, -1, :]")
    assert told("DATA030", program.replace("GIVEN", given).replace("ROWS", rows)) == severity


LISTS = """
def sample():
    song_list, show_list, app_list = [1], [2], [3]
    return song_list, show_list, app_list
song_list, app_list, show_list = sample()
READ
"""


@pytest.mark.parametrize(
    ("read", "severity"),
    [
        ("everything = song_list + show_list + app_list", []),
        ("everything = list(set(song_list + app_list + show_list))", []),
        ("print(app_list + show_list)", []),
        ("for each in song_list + show_list + app_list:\n    print(each)", []),
        ("print(show_list); everything = app_list + show_list", [RISK]),
        ("print(len(app_list) + len(show_list), app_list)", [RISK]),
        ("first = app_list + song_list; print(show_list + song_list)", [RISK]),
        ("print(app_list)", [RISK]),
    ],
)  # fmt: skip
def test_lists_that_are_only_joined(read: str, severity: list[Severity]) -> None:
    assert told("VALUE012", LISTS.replace("READ", read)) == severity


TERMS = """
net = nn.Linear(3, 2)
def loss_of(x, y):
    shares = F.softmax(net(x), dim=1)
    plain = ((shares - y) ** 2).sum()
    focal = LOG
    return GIVEN
loss_of(torch.rand(4, 3), torch.rand(4, 2)).backward()
"""


@pytest.mark.parametrize(
    "log", ["-(y * torch.log(shares)).sum()", "torch.log(shares)", "-(1 - shares) ** 2 * shares.log()"]
)
def test_term_that_nothing_reads(log: str) -> None:
    program = TERMS.replace("LOG", log)
    assert told("LOSS011", program.replace("GIVEN", "plain")) == []
    assert told("LOSS011", program.replace("GIVEN", "plain + focal.sum()")) == [RISK]
    assert told("LOSS011", program.replace("GIVEN", "focal.sum()")) == [RISK]
    assert told("LOSS011", program.replace("focal = ", "plain += ").replace("GIVEN", "plain.sum()")) == [RISK]


ENDLESS = """
def cycle(loader):
    while True:
        for each in loader:
            yield each
def once(loader):
    for each in loader:
        yield each
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
val_loader = DataLoader(held_out, 8, OPTIONS)
READ
for x, y in train_loader:
    F.cross_entropy(net(x), y).backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("options", "read", "severity"),
    [
        ("shuffle=True, drop_last=True", "batches = cycle(val_loader)", []),
        ("True, drop_last=True", "batches = iter(cycle(val_loader))", []),
        ("shuffle=True, drop_last=True", "one, other = cycle(val_loader), cycle(val_loader)", []),
        ("shuffle=False, drop_last=True", "batches = cycle(val_loader)", []),
        ("shuffle=True, drop_last=True", "batches = once(val_loader)", [RISK]),
        ("shuffle=True, drop_last=True", "import itertools; batches = itertools.cycle(val_loader)", [RISK]),
        ("shuffle=True, drop_last=True", "batches = cycle(val_loader)\nfor x, y in val_loader: print(net(x))", [RISK]),
    ],
)  # fmt: skip
def test_loader_that_never_ends(options: str, read: str, severity: list[Severity]) -> None:
    assert told("DATA002", ENDLESS.replace("OPTIONS", options).replace("READ", read)) == severity


FROZEN = """
def train(loader, net, opt):
    ABOVE
    net.eval()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
net = make(); opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(3):
    train(loader, net, opt)
"""


@pytest.mark.parametrize(
    ("above", "severity"),
    [
        ("# Freeze all norm layers", []),
        ("# the statistics stay frozen", []),
        ("# freezing BatchNorm", []),
        ("# evaluate", [RISK]),
        ("pass", [RISK]),
        ("# Freeze the backbone\n    pass", [RISK]),
        ("frozen = 1", [RISK]),
    ],
)  # fmt: skip
def test_evaluation_mode_that_freezes(above: str, severity: list[Severity]) -> None:
    program = FROZEN.replace("ABOVE", above)
    assert told("EVAL003", program) == severity
    engine, main = program.split("net = make()")
    main = "from engine import train\nnet = make()" + main
    assert told("EVAL003", {"engine.py": IMPORTS + engine, "main.py": main}) == severity


# ── VALUE041: a variable that is deleted when nothing calls what reads it any more ──

ROUND = """
for size in (2, 4):
    net = nn.Linear(3, size)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    def measured():
        return net(torch.rand(4, 3)).mean()
    EARLY
    for x, y in DataLoader([(torch.rand(3), 1)]):
        loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
        INSIDE
    del net
    LATE
"""


@pytest.mark.parametrize(
    ("early", "inside", "late", "is_told"),
    [
        ("pass", "print(measured())", "pass", False),
        ("print(measured())", "pass", "pass", False),
        ("first = measured()", "last = measured()", "print(size)", False),
        ("pass", "if loss < 1: print(measured())", "del opt", False),
        ("pass", "pass", "print(measured())", True),
        ("print(measured())", "pass", "print(measured())", True),
        ("pass", "pass", "pass", True),
    ],
)  # fmt: skip
def test_variable_deleted_behind_its_readers(
    early: str, inside: str, late: str, is_told: bool, tmp_path: Path
) -> None:
    text = ROUND.replace("EARLY", early).replace("INSIDE", inside).replace("LATE", late)
    (tmp_path / "train.py").write_text(IMPORTS + text)
    reading = read_paths([tmp_path / "train.py"])
    assert any(each.code == "VALUE041" for each in reading.findings) is is_told
