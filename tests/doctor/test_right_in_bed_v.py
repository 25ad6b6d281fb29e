# SPDX-License-Identifier: Apache-2.0
"""What the seventeenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── DEV006: a branch of what torch passes over where there is no GPU ──


@pytest.mark.parametrize(
    ("test", "body", "severities"),
    [
        ("torch.cuda.is_available", "torch.cuda.manual_seed(seed)", [ADVICE]),
        ("torch.cuda.is_available", "torch.cuda.manual_seed_all(seed)", [ADVICE]),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed); torch.cuda.manual_seed_all(seed)",
            [ADVICE],
        ),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed); torch.backends.cudnn.deterministic = True",
            [ADVICE],
        ),
        ("torch.cuda.is_available", "torch.backends.cudnn.benchmark = True", [ADVICE]),
        ("cuda and torch.cuda.is_available", "torch.cuda.seed()", [ADVICE]),
        ("torch.cuda.is_available", "torch.cuda.empty_cache()", [ADVICE]),
        ("torch.cuda.is_available", "cuda.manual_seed(seed)", [ADVICE]),
        ("torch.cuda.is_available()", "torch.cuda.manual_seed(seed)", []),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed)\n    else:\n        torch.manual_seed(seed)",
            [BUG],
        ),
        ("torch.cuda.is_available", "torch.cuda.manual_seed(seed); device = 'cuda'", [BUG]),
        ("torch.cuda.is_available", "torch.cuda.set_device(0)", [BUG]),
        ("torch.cuda.is_available", "torch.cuda.synchronize()", [BUG]),
        ("not torch.cuda.is_available", "raise SystemError", [BUG]),
        ("torch.cuda.is_available", "net.cuda()", [BUG]),
    ],
)
def test_branch_that_does_nothing_without_a_gpu(test: str, body: str, severities: list[Severity]) -> None:
    text = f"from torch import cuda\ndef seeded(seed, net):\n    torch.manual_seed(seed)\n    if {test}:\n        {body}\n"
    assert told("DEV006", text) == severities


# ── DEV005: what a model gave is where its input is ──

MOVED = """
device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 4)MADE
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for data, label in DataLoader(rows, shuffle=True):
    BEFORE
    output = net(GIVEN)
    LINE
    loss = F.cross_entropy(output, label)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("made", "before", "given", "line", "severities"),
    [
        (
            ".to(device)",
            "data = data.to(device); label = label.to(device)",
            "data",
            "output.to(device)",
            [ADVICE],
        ),
        ("; net.to(device)", "data = data.to(device)", "data", "output.to(device)", [ADVICE]),
        (
            "; net.to(device)",
            "data, label = data.to(device), label.to(device)",
            "data",
            "output.to(device)",
            [ADVICE],
        ),
        ("; net = net.to(device)", "pass", "data.to(device)", "output.to(device)", [ADVICE]),
        (".to(device)", "image = data.to(device)", "image", "output.to(device)", [ADVICE]),
        (".cuda()", "data = data.cuda()", "data", "output.cuda()", [ADVICE]),
        (".to(device)", "image = data", "image.to(device)", "output.to(device)", [ADVICE]),
        (".to(device)", "data = data.to(device)", "data", "label.to(device)", [BUG]),
        (".to(device)", "pass", "data", "data.to(device)", [BUG]),
        ("; net.to(device)", "pass", "data", "output.to(device)", [BUG]),
        (".to(device)", "data = data.to(device)", "data", "output.to('cpu')", [BUG]),
        (".to(device)", "data = data.to(device)", "data", "output.cpu()", [BUG]),
        (".to(device)", "data = data.to(device)", "data", "output.view(-1)", [BUG]),
        (".cuda()", "data = data.cuda()", "data", "output.to(torch.float64)", [BUG]),
    ],
)
def test_move_to_where_it_is(
    made: str, before: str, given: str, line: str, severities: list[Severity]
) -> None:
    text = MOVED.replace("MADE", made).replace("BEFORE", before).replace("GIVEN", given).replace("LINE", line)
    assert told("DEV005", text) == severities


# ── SCHED001: a schedule of rounds of which not each one trains, and a loop for the torch that wants the schedule first ──

ROUNDS = """
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
LINES
"""
TRAIN = "loss = net(torch.stack(random.sample(seen, 8))).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (f"for t in range(9999):\n    schedule.step()\n    if t > 1000 and t % 4 == 0:\n        {TRAIN}", []),
        (
            f"for t in range(9999):\n    seen.append(env.step(0))\n    schedule.step()\n    if len(seen) > 9:\n        {TRAIN}",
            [],
        ),
        (
            f"for t in count():\n    schedule.step()\n    if not memory.can_sample(32):\n        continue\n    {TRAIN}",
            [],
        ),
        (f"t = 0\nwhile t < 9999:\n    schedule.step()\n    t += 1\n    if t >= start:\n        {TRAIN}", []),
        (
            f"def update(t):\n    schedule.step()\n    if t > 9:\n        {TRAIN}\nfor t in range(999):\n    act()\n    update(t)",
            [],
        ),
        (f"for t in range(9999):\n    schedule.step()\n    {TRAIN}", [BUG]),
        (f"for t in range(9999):\n    schedule.step()\n    if t > 900:\n        break\n    {TRAIN}", [BUG]),
        (
            "for x in loader:\n    schedule.step()\n    loss = net(x).mean()\n    if loss > 9:\n        continue\n    UPDATE",
            [BUG],
        ),
        (f"for t in range(9999):\n    if t > 1000:\n        schedule.step()\n        {TRAIN}", []),
        (f"for epoch in range(9):\n    schedule.step()\n    for x in loader:\n        {TRAIN}", [BUG]),
        (
            "for x in loader:\n    schedule.step()\n    loss = net(x).mean()\n    if loss < 9:\n        UPDATE",
            [BUG],
        ),
        (
            f"for epoch in range(9):\n    schedule.step()\n    for x in loader:\n        if len(x) > 1:\n            {TRAIN}",
            [BUG],
        ),
    ],
)
def test_schedule_of_rounds(lines: str, severities: list[Severity]) -> None:
    lines = lines.replace("UPDATE", "opt.zero_grad(); loss.backward(); opt.step()")
    assert (
        told("SCHED001", "import random\nfrom itertools import count\n" + ROUNDS.replace("LINES", lines))
        == severities
    )


@pytest.mark.parametrize(
    ("inner", "behind", "severities"),
    [
        ("total += loss.data[0]", "pass", [ADVICE]),
        ("print(loss.data[0])", "pass", [ADVICE]),
        ("meter.update(loss.data[0], len(x))", "pass", [ADVICE]),
        ("total += loss.item()", "pass", [BUG]),
        ("total += x.data[0].sum()", "pass", [BUG]),
        ("pass", "print(last_loss.data[0])", [BUG]),
    ],
)
def test_loop_for_an_old_torch(inner: str, behind: str, severities: list[Severity]) -> None:
    lines = (
        "total = 0\nfor epoch in range(9):\n    schedule.step()\n    for x in loader:\n        opt.zero_grad()\n"
        f"        loss = net(x).mean()\n        loss.backward()\n        opt.step()\n        {inner}\n{behind}"
    )
    assert told("SCHED001", ROUNDS.replace("LINES", lines)) == severities


# ── VALUE017: the last arm of a chain that no other value comes to ──

MADE = """
class Net(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell_type = cell
        if self.cell_type == "lstm":
            self.cell = nn.LSTM(4, 4)
        elif self.cell_type == "gru":
            self.cell = nn.GRU(4, 4)
        elif self.cell_type == "rnn":
            self.cell = nn.RNN(4, 4)
    def forward(self, x):
        if self.cell_type == "lstm":
            out, (h, c) = self.cell(x)
        elif TEST:
            out, h = self.cell(x)
        MORE
        return out
"""


@pytest.mark.parametrize(
    ("test", "more", "severities"),
    [
        ('self.cell_type == "rnn" or "gru"', "pass", [ADVICE]),
        ('self.cell_type == "gru" or "rnn"', "pass", [ADVICE]),
        ('(self.cell_type == "gru") or "rnn"', "h = None", [ADVICE]),
        ('self.cell_type in ("gru", "rnn")', "pass", []),
        ('self.cell_type == "gru" or self.cell_type == "rnn"', "pass", []),
        ('self.cell_type == "gru" or "tcn"', "pass", [BUG]),
        ('self.cell_type == "gru" or "rnn"', "if self.cell_type == 'tcn':\n            out = x", [BUG]),
        ('self.kind == "gru" or "rnn"', "pass", [BUG]),
        (
            'self.cell_type == "rnn" or "gru"',
            "pass\n        if x.dim() == 2 or 'flat':\n            out = x",
            [ADVICE, BUG],
        ),
    ],
)
def test_last_arm_of_what_is_known(test: str, more: str, severities: list[Severity]) -> None:
    assert told("VALUE017", MADE.replace("TEST", test).replace("MORE", more)) == severities


def test_arm_before_an_else_is_told() -> None:
    text = MADE.replace("TEST", 'self.cell_type == "rnn" or "gru"').replace(
        "        MORE", "        else:\n            out = x"
    )
    assert told("VALUE017", text) == [BUG]


# ── SAVE013: what is given back and dropped ──

BEST = """
def fit(net, opt, loader):
    best, best_loss = None, math.inf
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if loss.item() < best_loss:
            best, best_loss = net.state_dict(), loss.item()
            torch.save(best, "best.pt")
    BEHIND
def main():
    net = nn.Linear(4, 2)
    opt = torch.optim.Adam(net.parameters())
    CALL
main()
"""


@pytest.mark.parametrize(
    ("behind", "call", "severities"),
    [
        ("return best", "fit(net, opt, loader)", []),
        ("return net, best, best_loss", "fit(net, opt, loader)", []),
        (
            "return (best, best_loss)",
            "fit(net, opt, loader)\n    torch.save(net.state_dict(), 'last.pt')",
            [],
        ),
        ("return [best_loss, best]", "for fold in range(3):\n        fit(net, opt, loader)", []),
        ("if best is None:\n        return None\n    return best", "fit(net, opt, loader)", [BUG]),
        ("return net, best", "net, best = fit(net, opt, loader)", [BUG]),
        ("return best", "net.load_state_dict(fit(net, opt, loader))", [BUG]),
        ("return best", "return fit(net, opt, loader)", [BUG]),
        ("net.load_state_dict(best)\n    return best", "fit(net, opt, loader)", [BUG]),
        ("return best", "fit(net, opt, loader)\n    best = fit(net, opt, loader)", [BUG]),
    ],
)
def test_best_weights_that_are_dropped(behind: str, call: str, severities: list[Severity]) -> None:
    assert (
        told("SAVE013", "import math\n" + BEST.replace("BEHIND", behind).replace("CALL", call)) == severities
    )


# ── PARAM031: a layer that nothing reads ──


@pytest.mark.parametrize(
    ("made", "used", "severities"),
    [
        ("table = nn.Embedding(21, 8)", "self.table(x)", [ADVICE]),
        ("fc = nn.Linear(8, 8)", "self.table(x)", [ADVICE]),
        ("norm = nn.BatchNorm1d(8)", "self.table(x)", [ADVICE]),
        ("table = nn.Embedding(21, 8).to(x.device)", "self.table(x)", [BUG]),
        ("table = nn.Embedding(21, 8)", "table(x)", [BUG]),
        ("fc = nn.Linear(8, 8)", "fc(self.table(x))", [BUG]),
        ("norm = nn.BatchNorm1d(8)", "norm(self.table(x))", [RISK]),
        ("y = nn.Linear(8, 8)(self.table(x))", "y", [BUG]),
    ],
)
def test_layer_that_nothing_reads(made: str, used: str, severities: list[Severity]) -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(21, 8)\n"
        f"    def forward(self, x):\n        {made}\n        return {used}\n"
    )
    assert told("PARAM031", text) == severities


# ── VALUE040: a function whose own call is commented out ──


@pytest.mark.parametrize(
    ("behind", "severities"),
    [
        ("# test()", [ADVICE]),
        ("#test()", [ADVICE]),
        ("if __name__ == '__main__':\n    pass\n    # test()", [ADVICE]),
        ("## test()  # passes", [ADVICE]),
        ("test()", [BUG]),
        ("if __name__ == '__main__':\n    test()", [BUG]),
        ("# a test of it", [BUG]),
        ("print(test)\n# test()", [BUG]),
        ("def more():\n    test()\n# test()", [BUG]),
        ("# other_test()", [BUG]),
        ("pass", [BUG]),
    ],
)
def test_function_whose_call_is_commented_out(behind: str, severities: list[Severity]) -> None:
    made = "def small(classes, channels=3):\n    return nn.Linear(channels, classes)\n"
    text = f"{made}def test():\n    net = small()\n    return net(x)\n{behind}\n"
    assert told("VALUE040", text) == severities


# ── MEM001: the total of a small network in sight, of whose graph kilobytes stay, is a risk ──

SUMMED = """
import torchvision
CLASS
NET
opt = torch.optim.Adam(net.parameters())
criterion = nn.CrossEntropyLoss()
for epoch in range(9):
    total = 0
    for x, y in loader:
        loss = criterion(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        LINE
"""
SMALL_NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
    def forward(self, x):
        return self.head(torch.relu(self.conv(x)))
"""
OF_BLOCKS = SMALL_NET.replace("nn.Linear(512, 64)", "Block(512), Block(512), nn.Linear(512, 64)") + (
    "class Block(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.fc = nn.Linear(n, n)\n"
    "    def forward(self, x):\n        return x + self.fc(x)\n"
)
DEEP_NET = SMALL_NET.replace("nn.Conv2d(1, 8, 3)", "nn.ModuleList([nn.Linear(8, 8) for _ in range(50)])")
LONG_NET = SMALL_NET.replace("nn.ReLU()", ", ".join(["nn.Linear(64, 64)"] * 30))
MADE_IN_TURN = SMALL_NET.replace("nn.Conv2d(1, 8, 3)", "self.layers(8)") + (
    "    def layers(self, n):\n        return nn.Sequential(*[nn.Linear(n, n) for _ in range(n)])\n"
)


@pytest.mark.parametrize(
    ("classes", "net", "line", "severity"),
    [
        (SMALL_NET, "net = Net()", "total += loss", RISK),
        (SMALL_NET, "net = Net().to(device)", "total = total + loss", RISK),
        (SMALL_NET, "net = nn.DataParallel(Net())", "total += loss * len(x)", RISK),
        (OF_BLOCKS, "net = Net().cuda()", "total += loss / len(loader)", RISK),
        ("", "net = nn.Linear(4, 4)", "total += loss", RISK),
        ("", "net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))", "total += loss", RISK),
        ("", "net = nn.Sequential(nn.Linear(4, 4)).to(device)", "total += loss", RISK),
        (DEEP_NET, "net = Net()", "total += loss", BUG),
        (LONG_NET, "net = Net()", "total += loss", BUG),
        (MADE_IN_TURN, "net = Net()", "total += loss", BUG),
        ("", "net = torchvision.models.resnet50()", "total += loss", BUG),
        ("", "net = nn.Sequential(torchvision.models.resnet50(), nn.Linear(1000, 2))", "total += loss", BUG),
        ("", "net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])", "total += loss", BUG),
        ("", "net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 12)", "total += loss", BUG),
        ("from nets import make", "net = make()", "total += loss", BUG),
        (SMALL_NET, "net = Net() if small else torchvision.models.resnet50()", "total += loss", BUG),
    ],
)
def test_total_of_a_small_network(classes: str, net: str, line: str, severity: Severity) -> None:
    text = SUMMED.replace("CLASS", classes).replace("NET", net).replace("LINE", line)
    assert told("MEM001", text) == [severity]


def test_total_of_a_small_network_over_a_whole_run_is_a_bug() -> None:
    text = (
        SUMMED.replace("CLASS", SMALL_NET)
        .replace("NET", "net = Net()")
        .replace("    total = 0\n", "")
        .replace("LINE", "total += loss")
    )
    assert told("MEM001", text.replace("for epoch", "total = 0\nfor epoch")) == [BUG]
