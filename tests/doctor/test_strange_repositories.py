# SPDX-License-Identifier: Apache-2.0
"""Forms that strange repositories use rightly, each beside the fault it was taken for."""

import textwrap

import pytest

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_texts

IMPORTS = "import argparse\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


def told(wanted: str, code: str, file: str = "main.py") -> list[Severity]:
    reading = read_texts({file: IMPORTS + textwrap.dedent(code)})
    assert not reading.failures
    return [each.severity for each in reading.findings if each.code == wanted]


# ── SCHED002: the loop sets the rate by hand ──────────────────────────────────────────────────

LOOP = """
net, loader = nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]
opt, other = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 2)
def adjust(optimizer, epoch):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (epoch + 1)
BEFORE
for epoch in range(3):
    INSIDE
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
"""
BY_HAND = [
    'for g in opt.param_groups: g["lr"] = 0.1 / (epoch + 1)',
    'opt.param_groups[0]["lr"] = 0.1 / (epoch + 1)',
    'opt.param_groups[0]["lr"] *= 0.9',
    'for i, g in enumerate(opt.param_groups): g["lr"] = 0.1 / (epoch + 1)',
    "adjust(opt, epoch)",
    "adjust(epoch=epoch, optimizer=opt)",
]
OTHERWISE = [
    'for g in other.param_groups: g["lr"] = 0.1',
    'for g in opt.param_groups: g["weight_decay"] = 0.1',
    'print(opt.param_groups[0]["lr"])',
    "adjust(other, epoch)",
    "pass",
]


@pytest.mark.parametrize("line", BY_HAND)
def test_a_schedule_beside_a_rate_that_the_loop_sets(line: str) -> None:
    code = LOOP.replace("BEFORE", "").replace("INSIDE", line)
    assert told("SCHED002", code) == [ADVICE]
    body = textwrap.indent(code, "    ")
    assert told("SCHED002", f"def main():\n{body}\nmain()\n") == [ADVICE]


@pytest.mark.parametrize("line", OTHERWISE)
def test_a_schedule_whose_rate_nobody_sets(line: str) -> None:
    assert told("SCHED002", LOOP.replace("BEFORE", "").replace("INSIDE", line)) in ([BUG], [RISK])


@pytest.mark.parametrize("line", BY_HAND[:2])
def test_a_rate_that_is_set_once_moves_no_more(line: str) -> None:
    once = LOOP.replace("BEFORE", line.replace("epoch", "0")).replace("INSIDE", "pass")
    assert told("SCHED002", once) in ([BUG], [RISK])


IN_A_CLASS = """
class Work:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
        self.other = torch.optim.SGD(net.parameters(), lr=0.1)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 2)
    def adjust(self, epoch):
        for group in self.NAME.param_groups:
            group["lr"] = 0.1 / (epoch + 1)
    def fit(self):
        for epoch in range(3):
            self.adjust(epoch)
            for x, y in self.loader:
                self.opt.zero_grad()
                F.mse_loss(self.net(x), y).backward()
                self.opt.step()
Work(nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]).fit()
"""


def test_a_method_that_sets_the_rate() -> None:
    assert told("SCHED002", IN_A_CLASS.replace("NAME", "opt")) == [ADVICE]
    assert told("SCHED002", IN_A_CLASS.replace("NAME", "other")) in ([BUG], [RISK])


# ── PARAM011: numbers that are filled where they are made ─────────────────────────────────────

FILLED = [
    "x = torch.FloatTensor(1).cuda().zero_()",
    "x = torch.FloatTensor(1).to('cpu').fill_(2.0)",
    "x = torch.Tensor(4).float().normal_()",
    "x = torch.Tensor(4).double().to('cpu').uniform_(0, 1)",
    "x = torch.Tensor(4).data.zero_()",
    "x = torch.FloatTensor(4).cuda()\nx.zero_()",
    "x = torch.Tensor(0.2334)",  # a TypeError
    "{'loss': torch.Tensor(3), 'other': torch.Tensor(2)}",
]
UNFILLED = [
    "x = torch.FloatTensor(1).cuda()",
    "x = torch.FloatTensor(1).cuda() * 0",
    "x = torch.Tensor(4).float()",
    "x = torch.Tensor(4).to('cpu').sum()",
    "x = {'scale': torch.Tensor(3)}",
]


@pytest.mark.parametrize("line", FILLED)
def test_numbers_that_are_filled(line: str) -> None:
    assert told("PARAM011", f"{line}\n") == []


@pytest.mark.parametrize("line", UNFILLED)
def test_numbers_that_nobody_fills(line: str) -> None:
    assert told("PARAM011", f"{line}\nprint(x)\n") == [QUESTION]


# ── SCHED008: options under an optimizer's name ───────────────────────────────────────────────

OPTIONS = """
class Options:
    def __init__(self):
        self.parser = argparse.ArgumentParser()
    def parse(self, args=""):
        if args == "":
            opt = self.parser.parse_args()
        else:
            opt = self.parser.parse_args(args)
        opt.momentum = 0.0
        return opt
"""
PARSED = [
    OPTIONS,
    OPTIONS + "opt = Options().parse()\nopt.lr = 0.1\n",
    "def main(parser):\n    opt = parser.parse_args()\n    opt.lr = 0.1\n",
    "def main(parser):\n    opt, rest = parser.parse_known_args()\n    opt.lr = 0.1\n",
    "opt = argparse.ArgumentParser().parse_args()\nopt.lr = 0.1\n",
]
OPTIMIZERS = [
    "def main(opt):\n    opt.zero_grad()\n    opt.lr = 0.1\n",
    "opt = torch.optim.SGD(nn.Linear(3, 3).parameters(), lr=0.1)\nopt.lr = 0.1\n",
    (
        "class Work:\n    def __init__(self, net):\n        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    def slow(self):\n        self.opt.lr = 0.1\n"
    ),
]


@pytest.mark.parametrize("code", PARSED)
def test_parsed_options_are_no_optimizer(code: str) -> None:
    assert told("SCHED008", code) == []


@pytest.mark.parametrize("code", OPTIMIZERS)
def test_an_optimizer_whose_attribute_no_step_reads(code: str) -> None:
    assert told("SCHED008", code) in ([BUG], [RISK])


# ── PARAM007: a move in the other branch ──────────────────────────────────────────────────────

RESUMED = """
net = nn.Linear(3, 3)
if resume:
    net.to("cuda")
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt.load_state_dict(torch.load("last.pt")["optimizer"])
    BESIDE
else:
    net.to("cpu")
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    OTHER
BEHIND
"""


@pytest.mark.parametrize("move", ["net.to('cuda')", "net.cuda().train()", "net = net.to('cuda')"])
def test_a_move_in_the_branch_that_loads_nothing(move: str) -> None:
    code = RESUMED.replace("OTHER", move).replace("BESIDE", "pass").replace("BEHIND", "pass")
    assert told("PARAM007", code) == []
    assert told("PARAM007", code.replace("else:", "if fresh:")) == []


@pytest.mark.parametrize("move", ["net.to('cuda')", "net.cuda()"])
def test_a_move_after_the_state_in_its_own_branch(move: str) -> None:
    code = RESUMED.replace("BESIDE", move).replace("OTHER", "pass").replace("BEHIND", "pass")
    assert told("PARAM007", code) == [RISK]


# ── PARAM002: a constant that is put where it is used ─────────────────────────────────────────

CONSTANT = """
class Net(nn.Module):
    def __init__(self, width, device, dtype):
        super().__init__()
        self.device = device
        self.pe = MADE
    def forward(self, x):
        return x + USED
"""


@pytest.mark.parametrize(
    "used",
    [
        "nn.Parameter(self.pe, requires_grad=False).to(self.device)",
        "nn.Parameter(self.pe).cuda()",
        "torch.autograd.Variable(self.pe[:, :3]).to(x.device)",
        "torch.autograd.Variable(self.pe, requires_grad=False).to(x.device)",
    ],
)
def test_a_constant_that_forward_moves(used: str) -> None:
    assert told("PARAM002", CONSTANT.replace("MADE", "torch.ones(width, 3)").replace("USED", used)) == []


@pytest.mark.parametrize("used", ["self.pe", "nn.Parameter(self.pe)", "torch.exp(self.pe)"])
def test_a_constant_that_nobody_moves(used: str) -> None:
    assert told("PARAM002", CONSTANT.replace("MADE", "torch.ones(width, 3)").replace("USED", used)) == [
        ADVICE
    ]


# ── VALUE019: no word of a command line is read ───────────────────────────────────────────────

SWITCH = 'BEFORE\np = argparse.ArgumentParser()\np.add_argument("--amp", type=bool, default=True)\nREAD\nprint(args.amp)\n'
EMPTIED = [
    "import sys; sys.argv = ['']",
    "import sys\nsys.argv = []",
    "from sys import argv\nimport sys as s\ns.argv = ['main.py']",
]
WORDS_LEFT = [
    "import sys",
    "import sys; sys.argv = ['main.py', '--amp', 'False']",
    "import sys; sys.argv = sys.argv[1:]",
    "import sys\nif 'ipykernel' in sys.modules:\n    sys.argv = ['']",
    "import sys\nsys.argv = ['']\nsys.argv.append('--amp')",
    "import sys\nsys.argv = ['']\nsys.argv += ['--amp', '0']",
]


@pytest.mark.parametrize("before", EMPTIED)
def test_options_of_a_cell_that_empties_the_command_line(before: str) -> None:
    parse = "args = p.parse_args()"
    assert told("VALUE019", SWITCH.replace("BEFORE", before).replace("READ", parse), "main.ipynb") == [ADVICE]
    within = SWITCH.replace("BEFORE", "").replace("READ", f"{before}\n{parse}")
    body = textwrap.indent(within, "    ")
    assert told("VALUE019", f"def main():\n{body}\nmain()\n", "main.ipynb") == [ADVICE]
    assert told(
        "VALUE019", SWITCH.replace("BEFORE", "").replace("READ", f"{parse}\n{before}"), "main.ipynb"
    ) == [RISK]


@pytest.mark.parametrize("before", WORDS_LEFT)
def test_options_of_a_command_line_that_may_hold_words(before: str) -> None:
    code = SWITCH.replace("BEFORE", before).replace("READ", "args = p.parse_args()")
    assert told("VALUE019", code, "main.ipynb") == [RISK]


def test_options_of_a_script_that_empties_the_command_line() -> None:
    code = SWITCH.replace("BEFORE", EMPTIED[0]).replace("READ", "args = p.parse_args()")
    assert told("VALUE019", code) == [RISK]


# ── LOSS011: what a sigmoid can't bring near to 0 ─────────────────────────────────────────────


@pytest.mark.parametrize(
    ("made", "severities"),
    [
        ("torch.rand(3, 3)", []),
        ("torch.rand_like(net.weight)", []),
        ("torch.randn(3, 3)", [RISK]),
        ("net(torch.rand(3, 3))", [RISK]),
        ("torch.rand(3, 3) * 300 - 150", [RISK]),
    ],
)
@pytest.mark.parametrize(
    "taken", ["torch.sigmoid(x).log()", "torch.log(torch.sigmoid(x))", "x.softmax(1).log()"]
)
def test_logarithms_of_shares_of_drawn_numbers(made: str, severities: list[Severity], taken: str) -> None:
    code = f"net = nn.Linear(3, 3)\nx = {made}\nloss = -{taken}.mean()\nloss.backward()\n"
    assert told("LOSS011", code) == severities


# ── VALUE030: the folder's name has the value ─────────────────────────────────────────────────

FOLDERS = [
    'open(os.path.join("runs", str(epoch), "metric.json".format(epoch)), "w")',
    'd = os.path.join("runs", "{:04}".format(epoch))\n    open(os.path.join(d, "metric.json".format(epoch)), "w")',
    'd = f"runs/{epoch}"\n    open(d + "/metric.json".format(epoch), "w")',
    'd = Path("runs") / str(epoch)\n    open(d / "metric.json".format(epoch), "w")',
]
OVERWRITTEN = [
    'open(os.path.join("runs", "metric.json".format(epoch)), "w")',
    'd = f"runs/{name}"\n    open(os.path.join(d, "metric.json".format(epoch)), "w")',
    'open("runs/metric.json".format(epoch), "w")',
    'print(epoch); open(os.path.join(root, "metric.json".format(epoch)), "w")',
]


@pytest.mark.parametrize("line", FOLDERS)
def test_a_file_in_a_folder_of_its_own(line: str) -> None:
    code = f"import os\nfrom pathlib import Path\nfor epoch in range(3):\n    {line}\n"
    assert told("VALUE030", code) == [ADVICE]


@pytest.mark.parametrize("line", OVERWRITTEN)
def test_a_file_that_the_next_epoch_overwrites(line: str) -> None:
    code = f'import os\nname = root = "a"\nfor epoch in range(3):\n    {line}\n'
    assert told("VALUE030", code) == [BUG]


# ── SAVE005: the best weights, which no run goes on from ──────────────────────────────────────

KEPT = """
net, loader = nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]
opt = torch.optim.Adam(net.parameters())
def NAME(model, loss, epoch):
    torch.save({"epoch": epoch, "model": model.state_dict(), "loss": loss}, "net.pth")
BEFORE
for epoch in range(START, 9):
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    NAME(net, loss.item(), epoch)
"""
GOES_ON = 'saved = torch.load("net.pth")\nnet.load_state_dict(saved["model"])\nstart = saved["epoch"] + 1'


@pytest.mark.parametrize("name", ["save_best_model", "save_best", "keep_best", "saveBest"])
def test_best_weights_are_no_checkpoint(name: str) -> None:
    code = KEPT.replace("NAME", name)
    assert told("SAVE005", code.replace("BEFORE", "").replace("START", "0")) == [ADVICE]
    assert told("SAVE005", code.replace("BEFORE", GOES_ON).replace("START", "start")) == [RISK]


@pytest.mark.parametrize("name", ["save_model", "save_checkpoint", "save_asbestos"])
def test_a_checkpoint_without_an_optimizer(name: str) -> None:
    code = KEPT.replace("NAME", name)
    assert told("SAVE005", code.replace("BEFORE", "").replace("START", "0")) == [ADVICE]
    assert told("SAVE005", code.replace("BEFORE", GOES_ON).replace("START", "start")) == [RISK]


# ── DATA001: a loader that is named for training ──────────────────────────────────────────────


NAMED = """
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train_loader = DataLoader(ImageFolder("train"), batch_size=32)
"""
LEARNS = (
    "for x, y in train_loader:\n    opt.zero_grad()\n    F.mse_loss(net(x), y).backward()\n    opt.step()\n"
)


@pytest.mark.parametrize(
    "used",
    [
        "def mean(loader):\n    return sum(x.mean() for x, _ in loader)\nprint(mean(train_loader))\n",
        "x, y = next(iter(train_loader))\nprint(x.shape)\n",
        "import engine\nengine.run(net, train_loader)\n",
        LEARNS,
        "def fit(loader):\n"
        + textwrap.indent(LEARNS.replace("train_loader", "loader"), "    ")
        + "fit(train_loader)\n",
    ],
)
def test_a_loader_that_is_named_for_training_is_a_question(used: str) -> None:
    assert told("DATA001", NAMED + used) == [QUESTION]


# ── VALUE001: a cut behind the update ─────────────────────────────────────────────────────────

CUT = """
net, loader = nn.Linear(3, 8), [(torch.ones(2, 3), torch.ones(2, 8))]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    for x, y in loader:
        opt.zero_grad()
        preds = net(x)
        FIRST
        loss = F.mse_loss(preds.exp(), y)
        SECOND
        loss.backward()
        opt.step()
        THIRD
train()
"""


@pytest.mark.parametrize("line", ["preds = preds[..., :4]", "preds = preds[:, 0]", "preds = preds[:1]"])
def test_a_cut_behind_the_update_is_asked_of(line: str) -> None:
    def at(place: str) -> list[Severity]:
        code = CUT.replace(place, line)
        return told(
            "VALUE001", code.replace("FIRST", "pass").replace("SECOND", "pass").replace("THIRD", "pass")
        )

    assert at("FIRST") == []
    assert at("SECOND") == at("THIRD") == [QUESTION]


@pytest.mark.parametrize(
    "line", ["preds = preds.softmax(1)", "preds = preds * y", "preds = preds.masked_fill(y > 0, 0.0)"]
)
def test_other_numbers_that_nothing_uses(line: str) -> None:
    code = CUT.replace("THIRD", line).replace("FIRST", "pass").replace("SECOND", "pass")
    assert told("VALUE001", code) == [QUESTION]


# ── MEM001: one loss an epoch ─────────────────────────────────────────────────────────────────

KEPT_LOSSES = """
net, loader = nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
num_epochs, losses, history = EPOCHS, [], {"loss": []}
for epoch in RANGE:
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        EACH
    OUTER
"""


@pytest.mark.parametrize("epochs", ["range(num_epochs)", "range(1, num_epochs)", "tqdm(range(num_epochs))"])
@pytest.mark.parametrize("line", ["losses.append(loss)", 'history["loss"].append(loss)'])
def test_the_loss_of_a_few_epochs_is_asked_of(line: str, epochs: str) -> None:
    code = KEPT_LOSSES.replace("RANGE", epochs)
    once = code.replace("OUTER", line).replace("EACH", "pass")
    each = code.replace("EACH", line).replace("OUTER", "pass")
    assert told("MEM001", once.replace("EPOCHS", "30")) == [QUESTION]
    assert told("MEM001", once.replace("EPOCHS", "5000")) == [RISK]
    assert told("MEM001", each.replace("EPOCHS", "30")) == [RISK]


def test_the_losses_of_many_times_few_epochs() -> None:
    code = KEPT_LOSSES.replace("RANGE", "range(num_epochs)").replace("EPOCHS, [], {", "30, kept, {")
    code = code.replace("OUTER", "losses.append(loss)").replace("EACH", "pass")
    assert told("MEM001", "kept = []\nfor fold in folds:\n" + textwrap.indent(code, "    ")) == [RISK]


# ── SAVE016: a number that is a label ─────────────────────────────────────────────────────────

GOES_ON_WITH = """
net, loader = nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
saved = torch.load("last.pt")
net.load_state_dict(saved["net"])
opt.load_state_dict(saved["opt"])
start = saved["epoch"]
epochs = 9
for epoch in RANGE:
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
    USED
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "last.pt")
"""
TOLD = [
    "print(f'{epoch}: {loss}')",
    "print('{}: {}'.format(epoch, loss))",
    "if epoch % 2 == 0: print(loss)",
    "log.add_scalars('loss', {'a': loss}, epoch)",
]
COUNTED_BY = ["sched.step(epoch)", "adjust(opt, epoch)", "net.alpha = schedule(epoch / epochs)"]


@pytest.mark.parametrize("ends", ["range(start, start + epochs)", "range(start, epochs + start)"])
def test_a_first_epoch_that_is_a_label(ends: str) -> None:
    for line in TOLD:
        assert told("SAVE016", GOES_ON_WITH.replace("RANGE", ends).replace("USED", line)) == [QUESTION]
        assert told(
            "SAVE016", GOES_ON_WITH.replace("RANGE", "range(start, epochs)").replace("USED", line)
        ) == [RISK]
    for line in COUNTED_BY:
        assert told("SAVE016", GOES_ON_WITH.replace("RANGE", ends).replace("USED", line)) == [RISK]


# ── EVAL009: eval() in another program ────────────────────────────────────────────────────────

OWN_TRAIN = """
import shared
class Net(nn.Module):
    def train(self, x, y):
        self.step(x, y)
net = Net()
net.train(1, 2)
"""
MODULE = "import shared\nclass Other(nn.Module):\n    def fit(self):\n        self.eval()\n"
ELSEWHERE = [
    ({"other.py": MODULE + "Other().fit()\n"}, ADVICE),
    ({"other.py": MODULE.replace("Other", "Net") + "Net().fit()\n"}, ADVICE),
    (
        {"fit.py": "def fit(model):\n    model.eval()\n", "other.py": "import shared, fit\nfit.fit(3)\n"},
        ADVICE,
    ),
    ({"other.py": "import shared\nfrom main import Net\nNet().eval()\n"}, BUG),
    ({"shared.py": "def fit(model):\n    model.eval()\n"}, ADVICE),
]


@pytest.mark.parametrize(("files", "severity"), ELSEWHERE)
def test_a_train_of_its_own_beside_another_program(files: dict[str, str], severity: Severity) -> None:
    texts = {"shared.py": "x = 1\n", "main.py": OWN_TRAIN} | files
    reading = read_texts({name: IMPORTS + text for name, text in texts.items()})
    assert [each.severity for each in reading.findings if each.code == "EVAL009"] == [severity]


# ── EVAL002 and EVAL008: layers of branches that this model never takes ────────────────────────

EVALUATED = """
class Block(nn.Module):
    def __init__(self, n, kind=None):
        super().__init__()
        if kind == "down":
            self.norm = nn.LayerNorm(n)
        elif kind == "up":
            self.norm = nn.BatchNorm1d(n)
        else:
            self.norm = nn.Identity()
    def forward(self, x):
        return self.norm(x)
def norm(kind, n):
    return nn.BatchNorm1d(n) if kind == "batch" else nn.LayerNorm(n)
class Net(nn.Module):
    def __init__(self, kind="down", rate=0.5):
        super().__init__()
        self.first = MADE
    def forward(self, x, drops=False):
        return self.first(x)
parser = argparse.ArgumentParser()
parser.add_argument("--kind")
args = parser.parse_args()
net = Net(GIVEN)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in train_loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    with torch.no_grad():
        for x, y in test_loader:
            print(F.mse_loss(net(x), y))
"""
MADE_AND_TOLD = [
    ('Block(3, kind="down")', "", []),
    ("Block(3, kind)", "", []),
    ("nn.Sequential(Block(3), Block(3, 'down'))", "", []),
    ('norm("layer", 3)', "", []),
    ("norm(kind, 3)", "'layer'", []),
    ("nn.Dropout(rate)", "rate=0.0", []),
    ('Block(3, kind="up")', "", [BUG]),
    ("Block(3, kind)", "'up'", [BUG]),
    ("nn.Sequential(Block(3), Block(3, 'up'))", "", [BUG]),
    ("norm(kind, 3)", "'batch'", [BUG]),
    ("nn.Dropout(rate)", "", [BUG]),
    ("Block(3, kind)", "args.kind", [RISK]),
    ("norm(kind, 3)", "args.kind", [RISK]),
    ('nn.BatchNorm1d(3) if kind == "batch" else nn.LayerNorm(3)', "kind=args.kind", [RISK]),
]


@pytest.mark.parametrize(("made", "given", "severities"), MADE_AND_TOLD)
def test_layers_of_branches_of_a_constructor(made: str, given: str, severities: list[Severity]) -> None:
    assert told("EVAL002", EVALUATED.replace("MADE", made).replace("GIVEN", given)) == severities


PREDICTS = """
class Net(nn.Module):
    def __init__(self, drops=False):
        super().__init__()
        self.drop, self.last, self.drops = None, nn.Linear(3, 3), drops
        self.drop = nn.Dropout(0.5)
    def forward(self, x, is_training=False):
        WITHIN
        return self.last(x)
net = Net()
net.load_state_dict(torch.load("net.pt"))
print(net(CALLED))
"""
CALLED = [
    ("if is_training: x = self.drop(x)", "x, False", []),
    ("if is_training: x = self.drop(x)", "x", []),
    ("x = self.drop(x) if is_training else x", "x, is_training=False", []),
    ("if self.drops: x = self.drop(x)", "x", []),
    ("if is_training: x = self.drop(x)", "x, True", [BUG]),
    ("x = self.drop(x)", "x, False", [BUG]),
    ("if self.training: x = self.drop(x)", "x", [BUG]),
    ("if is_training: x = self.drop(x)", "x, is_training=flag()", [RISK]),
]


@pytest.mark.parametrize(("within", "called", "severities"), CALLED)
def test_a_layer_that_a_call_leaves_out(within: str, called: str, severities: list[Severity]) -> None:
    assert told("EVAL008", PREDICTS.replace("WITHIN", within).replace("CALLED", called)) == severities


# ── LOSS017: a column that another arm makes ──────────────────────────────────────────────────

ARMS = """
net, kind = nn.Linear(3, 5), input()
for x, labels in [(torch.ones(2, 3), torch.ones(2))]:
    labels = labels.long().view(-1)
    logits = net(x)
    ARMS
"""
COLUMN = "        labels = labels.unsqueeze(-1)\n"
COMPARED = "        print(logits.argmax(1) == labels)\n"
ARMS_APART = [
    f'if kind == "count":\n{COLUMN}    else:\n{COMPARED}',
    f'if kind == "a":\n{COMPARED}    elif kind == "count":\n{COLUMN}    else:\n{COMPARED}',
    f'if kind == "a":\n{COLUMN}    elif kind == "b":\n        print(1)\n    else:\n{COMPARED}',
]
ARMS_JOINED = [
    f'if kind == "count":\n{COLUMN}{COMPARED}',
    f'if kind == "a":\n        print(1)\n    else:\n{COLUMN}{COMPARED}',
]


@pytest.mark.parametrize("arms", ARMS_APART)
def test_a_column_of_another_arm(arms: str) -> None:
    assert told("LOSS017", ARMS.replace("ARMS", arms)) == []


@pytest.mark.parametrize("arms", ARMS_JOINED)
def test_a_column_of_the_same_arm(arms: str) -> None:
    assert told("LOSS017", ARMS.replace("ARMS", arms)) == [RISK]


# ── LOSS023: an arm for several classes ───────────────────────────────────────────────────────

SEVERAL = """
net = nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 1))
def show(y, x, multi=False):
    logits = net(x)
    if TEST:
        return torch.softmax(logits, dim=1)
    return logits.sigmoid()
show(torch.ones(2), torch.ones(2, 2))
"""


@pytest.mark.parametrize(
    ("test", "severities"),
    [
        ("len(torch.unique(y)) > 2", []),
        ("y.unique().numel() > 2", []),
        ("logits.shape[1] > 1", []),
        ("logits.size(-1) != 1", []),
        ("x.sum() > 0", [BUG]),
        ("True", [BUG]),
        ("show", [BUG]),
    ],
)
def test_a_softmax_for_several_classes(test: str, severities: list[Severity]) -> None:
    assert told("LOSS023", SEVERAL.replace("TEST", test)) == severities


# ── SCHED001 and SCHED008: a place set by hand, a group made anew ─────────────────────────────

FIRST = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.9**epoch)
other = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.9**epoch)
SET
for epoch in range(3):
    scheduler.step()
    for x, y in [(torch.ones(2, 3), torch.ones(2, 3))]:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize(
    ("given", "severities"),
    [
        ("scheduler.last_epoch = -1", []),
        ("start = 4\nscheduler.last_epoch = start - 1", []),
        ("def go_on(start):\n    scheduler.last_epoch = start - 1\ngo_on(3)", []),
        ("other.last_epoch = -1", [RISK]),
        ("print(scheduler.last_epoch)", [RISK]),
        ("", [RISK]),
    ],
)
def test_a_schedule_that_is_set_back(given: str, severities: list[Severity]) -> None:
    assert told("SCHED001", FIRST.replace("SET", given)) == severities


ANEW = """
net, rate = nn.Linear(3, 3), 0.1
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def reset(rate):
    opt.defaults["lr"] = rate
    BEHIND
reset(0.2)
"""


@pytest.mark.parametrize(
    ("behind", "severities"),
    [
        ("opt.param_groups = []\n    opt.add_param_group(dict(params=net.parameters()))", []),
        ("opt.param_groups.clear()\n    opt.add_param_group(dict(params=net.parameters()))", []),
        ("opt.add_param_group({'params': [nn.Parameter(torch.ones(2))]})", []),
        ("opt.step()", [BUG]),
        ("print(net)", [BUG]),
        ("opt.state.clear()", [BUG]),
    ],
)
def test_defaults_that_a_new_group_reads(behind: str, severities: list[Severity]) -> None:
    assert told("SCHED008", ANEW.replace("BEHIND", behind)) == severities


# ── PARAM019: a misspelt constructor without anything to construct ────────────────────────────


@pytest.mark.parametrize(
    ("body", "severities"),
    [
        ("super().__init__()", []),
        ("super(Net, self).__init__()", []),
        ('"""Nothing."""\n        super().__init__()\n        pass', []),
        ("nn.Module.__init__(self)", []),
        ("super().__init__()\n        self.last = nn.Linear(2, 2)", [BUG]),
        ("self.size = 3", [BUG]),
        ("super().__init__()\n        self.reset()", [BUG]),
    ],
)
def test_a_misspelt_constructor(body: str, severities: list[Severity]) -> None:
    code = f"class Net(nn.Module):\n    def __init_(self):\n        {body}\n    def forward(self, x):\n        return x\n"
    assert told("PARAM019", code) == severities


# ── VALUE040: what stands in for a library, and what a page cuts out ──────────────────────────


@pytest.mark.parametrize(
    ("head", "severities"),
    [
        ("try:\n    from tqdm import tqdm\nexcept ImportError:\n    def tqdm(x): return x", []),
        ("try:\n    from tqdm import tqdm\nexcept:\n    def tqdm(x): return x", []),
        (
            "try:\n    import tqdm as bars\n    tqdm = bars.tqdm\nexcept ModuleNotFoundError:\n    def tqdm(x):\n        return x",
            [],
        ),
        ("def tqdm(x): return x", [BUG]),
        ("if True:\n    def tqdm(x): return x", [BUG]),
    ],
)
def test_a_function_that_stands_in_for_a_library(head: str, severities: list[Severity]) -> None:
    assert told("VALUE040", f"{head}\nfor x in tqdm([1], leave=False):\n    print(x)\n") == severities


def test_a_method_that_a_page_shows_without_its_class() -> None:
    cut = "def mask(self, query, key):\n    return torch.ones(2)\ndef both(x):\n    return mask(x, x)\n"
    page = f"# Masks\n\n```python\n{IMPORTS}{cut}```\n"
    assert not [each for each in read_texts({"README.md": page}).findings if each.code == "VALUE040"]
    assert told("VALUE040", cut + "both(1)\n") == [BUG]


# ── VALUE019: options that are given nothing ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        ('""', ADVICE),
        ("[]", ADVICE),
        ("args=[]", ADVICE),
        ("args=()", ADVICE),
        ("", RISK),
        ("None", RISK),
        ('["--big", "False"]', RISK),
    ],
)
def test_options_that_are_given_nothing(given: str, severity: Severity) -> None:
    code = "parser = argparse.ArgumentParser()\nparser.add_argument('--big', type=bool, default=True)\n"
    assert told("VALUE019", f"{code}print(parser.parse_args({given}).big)\n") == [severity]


# ── GRAD011: a later backward behind a switch ─────────────────────────────────────────────────

KEEPS = """
net, other = nn.Linear(3, 3), nn.Linear(3, 3)
opt = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)
parser = argparse.ArgumentParser()
parser.add_argument("--both", action="store_true")
args = parser.parse_args()
def fit(both):
    for x in [torch.ones(2, 3)]:
        opt.zero_grad()
        y = net(x)
        y.mean().backward(retain_graph=True)
        LATER
        opt.step()
fit(args.both)
"""


@pytest.mark.parametrize(
    ("later", "severities"),
    [
        ("if both: other(y).mean().backward()", []),
        ("if both and args.both:\n            loss = other(y).mean()\n            loss.backward()", []),
        ("if not both: print(y)\n        else: other(y).sum().backward()", []),
        ("if both: print(y)", [ADVICE]),
        ("if both: other(net(x)).mean().backward()", [ADVICE]),
        ("pass", [ADVICE]),
    ],
)
def test_a_graph_that_a_switch_needs(later: str, severities: list[Severity]) -> None:
    assert told("GRAD011", KEEPS.replace("LATER", later)) == severities


# ── DATA002: one batch to look at ─────────────────────────────────────────────────────────────

LOOKED_AT = """
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
test_loader = DataLoader(MNIST("."), batch_size=32, drop_last=True)
"""


@pytest.mark.parametrize(
    ("used", "severities"),
    [
        ("batches = iter(test_loader)\nx, y = next(batches)\nprint(x.shape)\n", []),
        ("x, y = next(iter(test_loader))\nprint(x.shape)\n", []),
        ("first = next(iter(test_loader))\nagain = next(iter(test_loader))\nprint(first)\n", []),
        ("for x, y in test_loader:\n    print(x)\n", []),
        ("for x, y in test_loader:\n    print(score(x))\n", [RISK]),
        ("batches = iter(test_loader)\nfor i in range(9):\n    print(next(batches))\n", []),
        ("for x, y in iter(test_loader):\n    print(score(x))\n", [RISK]),
        ("x, y = next(iter(test_loader))\nprint(len(test_loader))\n", [RISK]),
    ],
)
def test_one_batch_to_look_at(used: str, severities: list[Severity]) -> None:
    assert told("DATA002", LOOKED_AT + used) == severities


# ── PARAM001, VALUE001, VALUE013 ──────────────────────────────────────────────────────────────

LISTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(3, 3) for _ in range(4)]
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""


@pytest.mark.parametrize(
    ("used", "severity"),
    [
        ("print(Net()(torch.ones(2, 3)))\n", QUESTION),
        ("net = Net()\ny = net(torch.ones(2, 3).float())\nprint(y)\n", QUESTION),
        ("net = Net().cuda()\nprint(net(torch.ones(2, 3)))\n", BUG),
        ("opt = torch.optim.SGD(Net().parameters(), lr=0.1)\n", BUG),
        ("torch.save(Net(), 'net.pt')\n", BUG),
        ("", BUG),
    ],
)
def test_layers_of_a_model_that_is_only_applied(used: str, severity: Severity) -> None:
    assert told("PARAM001", LISTED + used) == [severity]


KEPT_BEFORE = """
class Net(nn.Module):
    def forward(self, x, y):
        BEFORE
        return self.fit(x, y)
    def fit(self, x, y):
        x = self.rows(y)
        return x + 1
    def rows(self, y):
        return self.bags[y]
"""


@pytest.mark.parametrize(
    ("before", "severities"),
    [
        ("self.bags = self.read(x)", []),
        ("self.bags = x", []),
        ("self.bags, self.n = x * 2, 3", []),
        ("self.bags = self.read(y)", [RISK]),
        ("print(x)", [RISK]),
        ("bags = self.read(x)", [RISK]),
    ],
)
def test_a_parameter_that_the_object_keeps(before: str, severities: list[Severity]) -> None:
    assert told("VALUE013", KEPT_BEFORE.replace("BEFORE", before)) == severities
