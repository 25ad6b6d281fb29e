# SPDX-License-Identifier: Apache-2.0
"""What the fifteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import json
from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


def indented(lines: str, by: str = "    ") -> str:
    return "\n".join(by + each for each in lines.split("\n"))


# ── EVAL002: a generator's samples, a look at a fresh network, dropout of another class ───────

GAN = """
G = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 8))
D = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
opt_g = torch.optim.Adam(G.parameters())
opt_d = torch.optim.Adam(D.parameters())
ones, zeros, fixed = torch.ones(8, 1), torch.zeros(8, 1), torch.randn(8, 4)
for epoch in range(9):
    for i, (x, y) in enumerate(train_loader):
        fake = G(torch.randn(8, 4))
        opt_d.zero_grad()
        (F.mse_loss(D(x), ones) + F.mse_loss(D(fake.detach()), zeros)).backward()
        opt_d.step()
        opt_g.zero_grad()
        LOSS.backward()
        opt_g.step()
    LINES
"""
JUDGED = "F.mse_loss(D(fake), ones)"
PLAIN = "F.mse_loss(G(x[:, :4]), x)"
SAMPLES = "with torch.no_grad():\n        eval_images = G(fixed)\n    save_image(eval_images, 'fake.png')"
OF_LOADER = "with torch.no_grad():\n        for x, y in test_loader:\n            out = G(x)\n            USE"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("with torch.no_grad():\n        save_image(G(test_noise), 'fake.png')", [QUESTION]),
        ("with torch.no_grad():\n        save_image(G(eval_noise).detach().cpu(), 'fake.png')", [QUESTION]),
        ("with torch.no_grad():\n        pictures = G(val_noise)\n        log(pictures, epoch)", [QUESTION]),
        ("with torch.no_grad():\n        features = D.get(G(eval_noise))", [QUESTION]),
        ("with torch.no_grad():\n        for k in range(3):\n            save(G(test_noise), k)", [QUESTION]),
        (OF_LOADER.replace("USE", "save_image(out, 'fake.png')"), [QUESTION]),
        (OF_LOADER.replace("USE", "score += F.l1_loss(out, y)"), [BUG]),
        (OF_LOADER.replace("USE", "score += psnr(out, y)"), [BUG]),
        (OF_LOADER.replace("USE", "score += (out - y).abs().mean()"), [BUG]),
        (
            "G.eval()\n    with torch.no_grad():\n        save_image(G(test_noise), 'fake.png')\n    G.train()",
            [],
        ),
    ],
)
def test_samples_of_a_generator(lines: str, severities: list[Severity]) -> None:
    assert told("EVAL002", GAN.replace("LOSS", JUDGED).replace("LINES", lines)) == severities


def test_a_network_that_nothing_judges() -> None:
    lines = (
        "with torch.no_grad():\n        for x, y in test_loader:\n            save_image(G(x), 'fake.png')"
    )
    text = GAN.replace("LOSS", PLAIN).replace("D(fake.detach())", "D(fixed_images)")
    assert told("EVAL002", text.replace("LINES", lines)) == [BUG]


FRESH = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        return self.fc(self.norm(x))
net = Net().to(device)
BEFORE
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in train_loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
AFTER
"""


@pytest.mark.parametrize(
    ("before", "after", "severities"),
    [
        ("x_test = torch.randn(2, 3)\nprint(net(x_test).shape)", "", []),
        ("test_x = torch.zeros(2, 3)\nout = net(test_x)\nprint(out.size())", "", []),
        ("with torch.no_grad():\n    y = net(torch.randn(2, 3).test())", "", []),
        ("x, y = test_set[0]\nwith torch.no_grad():\n    print(net(x).argmax(1) == y)", "", []),
        ("x, y = next(iter(test_loader))\nprint('in', x.shape, 'out', net(x).shape)", "", []),
        ("def show():\n    print(net(test_x).shape)\nshow()", "", []),
        ("print(net(test_x).shape)", "net.load_state_dict(torch.load('best.pt'))\nnet.eval()", []),
        ("for x, y in test_loader:\n    loss = F.cross_entropy(net(x), y)", "", [BUG]),
        ("net.load_state_dict(torch.load('a.pt'))\nloss = F.cross_entropy(net(test_x), test_y)", "", [BUG]),
        ("", "loss = F.cross_entropy(net(test_x), test_y)", [BUG]),
        ("", "with torch.no_grad():\n    for x, y in test_loader:\n        net(x)", [BUG]),
        (
            "print(net(test_x).shape)",
            "with torch.no_grad():\n    for x, y in test_loader:\n        net(x)",
            [BUG],
        ),
    ],
)
def test_a_look_at_a_fresh_network(before: str, after: str, severities: list[Severity]) -> None:
    assert told("EVAL002", FRESH.replace("BEFORE", before).replace("AFTER", after)) == severities


UNUSED = """
class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        return self.fc(self.drop(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        LINES
REST
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in train_loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
with torch.no_grad():
    for x, y in test_loader:
        net(x)
"""


@pytest.mark.parametrize(
    ("lines", "rest", "severities"),
    [
        ("return self.fc(x)", "net = Net()", []),
        ("# x = self.drop(x)\n        return self.fc(x)", "net = Net()", []),
        ("return self.fc(x)", "net = Net()\nother = Other()", []),
        ("return self.fc(x).relu()", "net = Net()\nprint(Other())", []),
        ("return self.fc(x)", "net = Net()\nprint(args.drop, config.model.drop)", []),
        ("return self.fc(x)", "net = Net()\nother = nn.Dropout(args.drop)", []),
        ("return self.fc(self.drop(x))", "net = Net()", [BUG]),
        ("return self.fc(x)", "net = Other()", [BUG]),
        (
            "return self.fc(x)",
            "class More(Net):\n    def forward(self, x):\n        return self.fc(self.drop(x))\nnet = More()",
            [BUG],
        ),
        (
            "return self.run(x)",
            "class More(Net):\n    def run(self, x):\n        return self.drop(x)\nnet = More()",
            [BUG],
        ),
        ("return self.fc(run(self, x))", "def run(model, x):\n    return model.drop(x)\nnet = Net()", [BUG]),
    ],
)
def test_dropout_that_another_class_applies(lines: str, rest: str, severities: list[Severity]) -> None:
    assert told("EVAL002", UNUSED.replace("LINES", lines).replace("REST", rest)) == severities


# ── EVAL003: an optimizer that holds what the model is applied to ─────────────────────────────

ATTACK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
    def forward(self, x):
        return self.norm(x)
model = Net()
def attack(image, label):
    MADE
    for _ in range(9):
        model.eval()
        loss = F.cross_entropy(model(GIVEN), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return image
for x, y in loader:
    attack(x, y)
"""


@pytest.mark.parametrize(
    ("made", "given", "severities"),
    [
        ("image = image.float()\n    opt = torch.optim.SGD([image], lr=0.1)", "image", []),
        ("bad = image.clone()\n    opt = torch.optim.Adam([bad], lr=0.1)", "bad", []),
        ("bad = image.clone()\n    opt = torch.optim.Adam((bad,), 0.1)", "bad", []),
        ("opt = torch.optim.Adam(params=[image])", "image", []),
        ("opt = torch.optim.Adam(model.parameters())", "image", [BUG]),
        ("opt = torch.optim.Adam([*model.parameters()])", "image", [BUG]),
        ("ps = list(model.parameters())\n    opt = torch.optim.Adam(ps)", "image", [BUG]),
    ],
)
def test_an_optimizer_of_the_input(made: str, given: str, severities: list[Severity]) -> None:
    text = ATTACK.replace("MADE", made).replace("GIVEN", given)
    text = text.replace("model.eval()\n        loss", "loss").replace(
        "opt.step()\n", "opt.step()\n        model.eval()\n"
    )
    assert told("EVAL003", text) == severities


# ── DEV001: the devices that are seen are those that are used ─────────────────────────────────

VISIBLE = """
import os
CUDA = torch.cuda.is_available()
os.environ["CUDA_VISIBLE_DEVICES"] = VALUE
net = nn.Linear(3, 3).cuda()
REST
"""


@pytest.mark.parametrize(
    ("value", "rest", "severities"),
    [
        ("'0'", "", []),
        ("'0,1'", "net = nn.DataParallel(net, device_ids=[0, 1])", []),
        ("'0, 1'", "net = nn.DataParallel(net, [0, 1])", []),
        ("'0,1,2,3'", "", []),
        ("'0,1'", "net = nn.DataParallel(net)", [RISK]),
        ("'0,1'", "workers = torch.cuda.device_count()", [RISK]),
        ("'1'", "", [BUG]),
        ("'1,0'", "", [BUG]),
        ("'2,3'", "net = nn.DataParallel(net, device_ids=[0, 1])", [BUG]),
        ("''", "", [BUG]),
        ("'-1'", "", [BUG]),
        ("str(args.gpu)", "", [BUG]),
    ],
)
def test_devices_that_keep_their_numbers(value: str, rest: str, severities: list[Severity]) -> None:
    assert told("DEV001", VISIBLE.replace("VALUE", value).replace("REST", rest)) == severities


@pytest.mark.parametrize(
    ("cells", "severities"),
    [
        (["import torch\nnet = torch.nn.Linear(3, 3).cuda()", "import os, torch\nSET\nnet = net.cpu()"], []),
        (
            ["import torch\nnet = torch.nn.Linear(3, 3).cuda()", "import h5py\nimport torch\nimport os\nSET"],
            [],
        ),
        (["import torch\nnet = torch.nn.Linear(3, 3).cuda()", "import os\nSET"], [BUG]),
        (["import torch, os\nnet = torch.nn.Linear(3, 3).cuda()\nSET"], [BUG]),
        (["import torch, os\nnet = torch.nn.Linear(3, 3).cuda()", "SET\nimport torch"], [BUG]),
    ],
)
def test_a_cell_that_begins_anew(tmp_path: Path, cells: list[str], severities: list[Severity]) -> None:
    sources = [each.replace("SET", "os.environ['CUDA_VISIBLE_DEVICES'] = '3'") for each in cells]
    notebook = {
        "cells": [{"cell_type": "code", "source": each, "metadata": {}, "outputs": []} for each in sources],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    found = read_paths([tmp_path]).findings
    assert [each.severity for each in found if each.code == "DEV001"] == severities


# ── SCHED001: a rate that stays for many epochs ───────────────────────────────────────────────

EARLY = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
sched = torch.optim.lr_scheduler.MADE
for epoch in range(500):
    sched.step()
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize(
    "made",
    [
        "MultiStepLR(opt, milestones=[100], gamma=0.1)",
        "StepLR(opt, step_size=30)",
        "StepLR(opt, 2)",
        "StepLR(opt, args.step)",
        "ExponentialLR(opt, 0.9)",
        "LambdaLR(opt, lambda e: min(1, (e + 1) / 5))",
        "CosineAnnealingLR(opt, 500)",
    ],
)
def test_a_drop_that_comes_one_epoch_early(made: str) -> None:
    assert told("SCHED001", EARLY.replace("MADE", made)) == [RISK]


# ── OLD008: a loss of one dimension ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("total_loss = Variable(torch.cuda.FloatTensor(1))\nfor x in xs:\n    total_loss += f(x)", []),
        ("total_loss = torch.zeros(1)\nfor x in xs:\n    total_loss = total_loss + f(x)", []),
        ("total_loss = torch.zeros(1).cuda()\ntotal_loss = total_loss / 3", []),
        ("total_loss = Variable(torch.Tensor([0]))\ntotal_loss = total_loss + F.mse_loss(a, b)", []),
        ("total_loss = torch.mul(-gt, z[ya, xa] - z[yb, xb])", []),
        ("total_loss = (z[ya, xa] - z[yb, xb]).abs()", []),
        ("total_loss = torch.log(1 + torch.exp(z[ya, xa]))", []),
        ("first = z[ya, xa]\nsecond = z[yb, xb]\ntotal_loss = torch.mul(-gt, (first - second))", []),
        ("total_loss = F.mse_loss(a, b)", [BUG]),
        ("ya = t['y'][i, 0]\nxa = t['x'][i, 0]\nz1 = z[ya, xa]\ntotal_loss = -gt * (z1 - 1)", [BUG]),
        ("total_loss = torch.mul(F.mse_loss(a, b), 3)", [BUG]),
        ("total_loss = torch.zeros(())\ntotal_loss = total_loss + F.mse_loss(a, b)", [BUG]),
        ("total_loss = torch.zeros(3).sum()", [BUG]),
        ("total_loss = torch.mean(z[ya, xa])", [BUG]),
        ("total_loss = criterion(net(a), b)", [BUG]),
        ("total_loss = 0\nfor x in xs:\n    total_loss += F.mse_loss(net(x), b)", [BUG]),
    ],
)
def test_a_loss_of_one_dimension(lines: str, severities: list[Severity]) -> None:
    text = f"from torch.autograd import Variable\n{lines}\nprint(total_loss.data[0])"
    assert told("OLD008", text) == severities


# ── VALUE040: a name that is imported here, and one that is replaced ──────────────────────────

TOKENS = "class Tokenizer:\n    def __init__(self, words):\n        self.words = words\n"
CLASSES = """
class Trainer:
    def train(self, data):
        return data
def load(path):
    return path
"""


@pytest.mark.parametrize(
    ("text", "severities"),
    [
        (f"from janome.tokenizer import Tokenizer\nt = Tokenizer()\n{TOKENS}", []),
        (f"from janome.tokenizer import Tokenizer\nt = Tokenizer()\n{TOKENS}\nu = Tokenizer(words)", []),
        (f"from janome.tokenizer import Tokenizer\ndef run():\n    return Tokenizer()\nrun()\n{TOKENS}", []),
        (f"{TOKENS}\nfrom janome.tokenizer import Tokenizer\nt = Tokenizer()", []),
        (f"from janome.tokenizer import Tokenizer\n{TOKENS}\nt = Tokenizer()", [BUG]),
        (f"{TOKENS}\nt = Tokenizer()", [BUG]),
        (f"{CLASSES}\nt = Trainer()\nwith patch.object(t, 'train', return_value=None):\n    t.train()", []),
        (f"{CLASSES}\nt = Trainer()\nwith mock.patch.object(Trainer, 'train') as f:\n    t.train()", []),
        (f"{CLASSES}\ndef test_it(monkeypatch):\n    monkeypatch.setattr(m, 'load', fake)\n    load()", []),
        (f"{CLASSES}\n@patch('app.load')\ndef test_it(f):\n    load()", []),
        (f"{CLASSES}\nt = Trainer()\nt.train = MagicMock()\nt.train()", []),
        (f"{CLASSES}\nt = Trainer()\nwith patch.object(t, 'other'):\n    t.train()", [BUG]),
        (f"{CLASSES}\nt = Trainer()\nprint('train')\nt.train()", [BUG]),
        (f"{CLASSES}\nload()", [BUG]),
    ],
)
def test_a_name_with_another_value(text: str, severities: list[Severity]) -> None:
    assert [each in (BUG, RISK) for each in told("VALUE040", text)] == [True] * len(severities)


# ── VALUE041: a key that its owner took out ───────────────────────────────────────────────────

TRAINED = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
LINE
for x, y in DataLoader(data):
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("api_key", RISK),
        ("API_KEY", RISK),
        ("wandb_api_key", RISK),
        ("HF_TOKEN", RISK),
        ("access_token", RISK),
        ("db_password", RISK),
        ("token_length", BUG),
        ("key", BUG),
        ("token", BUG),
        ("keys", BUG),
        ("stride", BUG),
    ],
)
def test_a_key_that_is_not_in_the_file(tmp_path: Path, name: str, severity: Severity) -> None:
    (tmp_path / "train.py").write_text(IMPORTS + TRAINED.replace("LINE", f"data = list({name})"))
    found = read_paths([tmp_path]).findings
    assert [each.severity for each in found if each.code == "VALUE041"] == [severity]


# ── SEED003: nothing to tune, and nothing that is trained ─────────────────────────────────────

TUNED = """
LAYERS
SWITCHES
REST
"""
SWITCHES = "torch.backends.cudnn.deterministic = True\ntorch.backends.cudnn.benchmark = True"
TRAINING = """
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
"""
TIMED = "start = time.time()\nwith torch.no_grad():\n    net(x)\nprint(time.time() - start)"


@pytest.mark.parametrize(
    ("layers", "rest", "severities"),
    [
        ("net = nn.Conv2d(3, 3, 3)", TRAINING, [RISK]),
        ("net = nn.Sequential(nn.ConvTranspose1d(3, 3, 3))", TRAINING, [RISK]),
        ("def net(x):\n    return F.conv2d(x, w)", TRAINING.replace("net.parameters()", "[w]"), [RISK]),
        ("import torchvision\nnet = torchvision.models.resnet18()", TRAINING, [RISK]),
        ("import timm\nnet = timm.create_model('x')", TRAINING, [RISK]),
        ("net = nn.LSTM(3, 3)", TRAINING, [ADVICE]),
        ("net = nn.Sequential(nn.Embedding(9, 3), nn.Linear(3, 3))", TRAINING, [ADVICE]),
        ("from transformers import AlbertModel\nnet = AlbertModel()", TRAINING, [ADVICE]),
        ("net = nn.Conv2d(3, 3, 3)", TIMED, []),
        ("net = nn.Conv2d(3, 3, 3).eval()", "y = net(x)\nprint(y.shape)", []),
        ("net = nn.Conv2d(3, 3, 3)", f"def main():\n    net.eval()\n{indented(TIMED)}\nmain()", []),
    ],
)
def test_nothing_to_tune(layers: str, rest: str, severities: list[Severity]) -> None:
    text = TUNED.replace("LAYERS", layers).replace("SWITCHES", SWITCHES).replace("REST", rest)
    assert told("SEED003", text) == severities


def test_switches_in_a_function_of_another_file() -> None:
    seeding = f"def set_seed():\n{indented(SWITCHES)}"
    main = f"from seeding import set_seed\nset_seed()\nnet = nn.Conv2d(3, 3, 3)\n{TRAINING}"
    assert told("SEED003", {"seeding.py": seeding, "main.py": main}) == [RISK]


# ── GRAD006: a loop of one window ─────────────────────────────────────────────────────────────

WINDOW = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(batches, k, n):
    for epoch in range(9):
        for i in range(ROUNDS):
            x, y = next(batches)
            (F.mse_loss(net(x), y) / k).backward()
            if TEST:
                opt.step()
                opt.zero_grad()
train(iter(loader), args.k, args.n)
"""


@pytest.mark.parametrize(
    ("rounds", "test", "severities"),
    [
        ("k", "(i + 1) % k == 0", []),
        ("args.k", "(i + 1) % args.k == 0", []),
        ("max(1, k)", "(i + 1) % max(1, k) == 0", []),
        ("k", "not (i + 1) % k", []),
        ("n", "(i + 1) % k == 0", [RISK]),
        ("len(loader)", "(i + 1) % k == 0", [RISK]),
        ("args.n", "(i + 1) % args.k == 0", [RISK]),
    ],
)
def test_a_loop_of_one_window(rounds: str, test: str, severities: list[Severity]) -> None:
    assert told("GRAD006", WINDOW.replace("ROUNDS", rounds).replace("TEST", test)) == severities


# ── VALUE013: a comment says why ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("store", "severity"),
    [
        ("size = width  # it needs to be removed from a later version.", ADVICE),
        ("size = 192  # old checkpoints have this one alone", ADVICE),
        ("size = 192 # TODO take what the caller gives", ADVICE),
        ("size = width", RISK),
        ("size = 192  # size", RISK),
        ("size = width  # noqa: F841", RISK),
        ("size = '# of the old checkpoints that we have'", RISK),
    ],
)
def test_a_parameter_that_is_replaced_on_purpose(store: str, severity: Severity) -> None:
    text = f"def make(width, size):\n    {store}\n    return nn.Linear(width, size)\nmake(3, 9)"
    assert told("VALUE013", text) == [severity]


# ── SAVE005, SAVE011: a file that no run goes on from ─────────────────────────────────────────

SAVED = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
READ
for epoch in range(START, 9):
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    torch.save({"net": net.state_dict(), "epoch": epoch}, "last.pt")
"""


@pytest.mark.parametrize(
    ("read", "start", "severity"),
    [
        ("", "0", ADVICE),
        ("state = torch.load('last.pt')\nnet.load_state_dict(state['net'])", "0", ADVICE),
        (
            "state = torch.load('last.pt')\nnet.load_state_dict(state['net'])\nprint(state['epoch'])",
            "0",
            ADVICE,
        ),
        ("net.load_state_dict(torch.load('last.pt')['net'])", "0", ADVICE),
        ("state = torch.load('last.pt')\nnet.load_state_dict(state['net'])", "state['epoch'] + 1", RISK),
        ("ckpt = torch.load('last.pt')\nfirst = ckpt['epoch']", "first", RISK),
        ("ckpt = torch.load('last.pt')\nfirst = ckpt.get('epoch', 0)", "first", RISK),
    ],
)
def test_a_file_that_no_run_goes_on_from(read: str, start: str, severity: Severity) -> None:
    assert told("SAVE005", SAVED.replace("READ", read).replace("START", start)) == [severity]


BOTH = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
def save(epoch, best):
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch, "best": best}, "last.pt")
def read():
    state = torch.load("last.pt")
    LINES
"""


@pytest.mark.parametrize(
    ("lines", "told_of"),
    [
        ("print(state['epoch'], state['best'])", False),
        ("return {'epoch': state['epoch'], 'best': state['best']}", False),
        ("config = yaml.safe_load(text)\n    print(state['epoch'], state['best'])", False),
        ("rows.append([state['epoch'], state['best']])", False),
        ("best = max(state['best'], 0)\n    print(state['epoch'])", False),
        ("net.load_state_dict(state['net'])\n    return state['epoch'], state['best']", True),
        ("model.load_weights(state['net'])\n    return state['epoch'], state['best']", True),
    ],
)
def test_a_summary_of_files(lines: str, told_of: bool) -> None:
    assert bool(told("SAVE011", BOTH.replace("LINES", lines))) is told_of


# ── DATA002, DATA019: what is made for evaluation and never used ──────────────────────────────

MADE = """
from torchvision import datasets, transforms
t = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
def loaders():
    train_set = datasets.CIFAR10("a", train=True, transform=t)
    test_set = datasets.CIFAR10("a", train=False, transform=t)
    train_loader = DataLoader(train_set, batch_size=8, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=8, drop_last=True)
    RETURN
def main():
    TAKEN
    net = nn.Linear(3, 3)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in train_loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    LAST
main()
"""
TAKE = "train_loader, test_loader = loaders()"
MEASURE = "net.eval()\n    for x, y in test_loader:\n        right = (net(x).argmax(1) == y).sum()"
TWO = "return train_loader, test_loader"


@pytest.mark.parametrize("code", ["DATA002", "DATA019"])
@pytest.mark.parametrize(
    ("back", "taken", "last", "severities"),
    [
        (TWO, "train_loader, _ = loaders()", "pass", []),
        (TWO, "train_loader, test_loader = loaders()", "pass", []),
        (TWO, "train_loader, test_loader = loaders()", "# for x, y in test_loader:", []),
        ("return train_loader", "train_loader = loaders()", "pass", []),
        (
            "both = (train_loader, test_loader)\n    return train_loader",
            "train_loader = loaders()",
            "pass",
            [RISK],
        ),
        (TWO, TAKE, MEASURE, [RISK]),
        (TWO, "pair = loaders()\n    train_loader = pair[0]", "pass", [RISK]),
        (TWO, "train_loader, *rest = loaders()", "pass", [RISK]),
        ("return {'a': train_loader, 'b': test_loader}", "train_loader = loaders()['a']", "pass", [RISK]),
        (TWO, f"train_loader, _ = loaders()\n    {TAKE}", "evaluate(net, test_loader)", [RISK]),
    ],
)
def test_a_loader_that_its_caller_leaves(
    code: str, back: str, taken: str, last: str, severities: list[Severity]
) -> None:
    text = MADE.replace("RETURN", back).replace("TAKEN", taken).replace("LAST", last)
    assert told(code, text) == severities


@pytest.mark.parametrize(
    ("loop", "severities"),
    [
        ("for x, y in train_loader:\n    pass", []),
        ("for i, (x, y) in enumerate(train_loader):\n    pass", []),
        ("for x, y in tqdm(train_loader, desc='a'):\n    pass\n# for x in test_loader:", []),
        (
            "for i, (x, y) in enumerate(tqdm(train_loader)):\n    pass\nrows = [x for x, y in train_loader]",
            [],
        ),
        ("for x, y in test_loader:\n    net(x)", [RISK]),
        ("for i in range(3):\n    pass", [RISK]),
        ("evaluate(net, test_loader)", [RISK]),
    ],
)
def test_a_loader_that_comments_alone_name(loop: str, severities: list[Severity]) -> None:
    text = f"train_loader = DataLoader(a, 8, drop_last=True)\ntest_loader = DataLoader(b, 8, drop_last=True)\n{loop}"
    assert told("DATA002", text) == severities


@pytest.mark.parametrize(
    ("taken", "severities"),
    [("train_loader, _ = loaders()", []), (f"{TAKE}\nprint(len(test_loader))", [RISK])],
)
def test_a_loader_that_the_file_leaves(taken: str, severities: list[Severity]) -> None:
    text = MADE[: MADE.index("def main")].replace("RETURN", TWO)
    text += f"net = nn.Linear(3, 3)\n{taken}\nfor x, y in train_loader:\n    F.mse_loss(net(x), y).backward()"
    assert told("DATA019", text) == severities


# ── LOSS002: what reaches the loss by a criterion of one's own ────────────────────────────────

OUTPUTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
    def forward(self, x):
        return torch.sigmoid(self.fc(x))
class Raw(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
    def forward(self, x):
        return self.fc(x)
class Dice(nn.Module):
    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = weight
    def forward(self, out, y):
        dice = (out * y).sum() / (out + y).sum()
        return self.weight * F.binary_cross_entropy_with_logits(out, y) + 1 - dice
def measure(out, y, raw=None):
    return F.binary_cross_entropy_with_logits(out, y)
net, raw, criterion = Net(), Raw(), Dice()
for x, y in loader:
    LINES
    loss.backward()
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("out = net(x)\n    loss = criterion(out, y)", [BUG]),
        ("loss = criterion(net(x), y)", [BUG]),
        ("loss = Dice(0.5)(net(x), y)", [BUG]),
        ("loss = measure(net(x), y)", [BUG]),
        ("loss = measure(y=y, out=raw(x).sigmoid())", [BUG]),
        ("loss = criterion(net(x), y) + measure(torch.sigmoid(raw(x)), y)", [BUG, BUG]),
        ("loss = criterion(raw(x), y)", []),
        ("loss = measure(raw(x), y)", []),
        ("loss = measure(net(x), y) + measure(raw(x), y)", []),
        ("loss = measure(unknown(x), y)", []),
        ("loss = measure(torch.logit(net(x)), y)", []),
        ("loss = measure(*pair(net(x), y))", []),
        ("loss = F.mse_loss(net(x), y)", []),
    ],
)
def test_probabilities_for_a_criterion_of_ones_own(lines: str, severities: list[Severity]) -> None:
    assert told("LOSS002", OUTPUTS.replace("LINES", lines)) == severities


# ── EVAL039: a count that each batch gives anew ───────────────────────────────────────────────

COUNTED = """
net = nn.Linear(3, 3)
def evaluate():
    right, total = 0, 0
    shown = []
    for x, y in loader:
        p = net(x).argmax(1)
        total += len(y)
        LINES
    LAST
evaluate()
"""
SHARE = "return right / len(loader.dataset)"


@pytest.mark.parametrize(
    ("lines", "last", "severities"),
    [
        ("right = (p == y).sum().item()", SHARE, [BUG]),
        ("right = (p == y).sum().item()", "return 100 * right / total", [BUG]),
        ("right = torch.sum(p == y)", SHARE, [BUG]),
        ("right = p.eq(y).sum()", "acc = float(right) / len(test.dataset)\n    return acc", [BUG]),
        ("right = p.eq(y.view_as(p)).float().sum().item()", "print(right * 100 / total)", [BUG]),
        ("right += (p == y).sum().item()", SHARE, []),
        ("right = right + (p == y).sum().item()", SHARE, []),
        ("right = (p == y).sum().item()\n        shown.append(right)", "return sum(shown) / total", []),
        ("right = (p == y).sum().item()", "return right / len(y)", []),
        ("right = (p == y).sum().item()", "return right", []),
        ("right = (p == y).sum().item()\n        break", SHARE, []),
        ("right = count(p, y)", SHARE, []),
        ("right = (p == y).sum().item()", f"right = everything()\n    {SHARE}", []),
    ],
)
def test_a_count_that_each_batch_gives_anew(lines: str, last: str, severities: list[Severity]) -> None:
    text = COUNTED.replace("LINES", lines).replace("LAST", last)
    assert told("EVAL039", text) == severities
