# SPDX-License-Identifier: Apache-2.0
"""Mistakes of plain scripts and small packages that neither reading nor running had a word for, beside right twins."""

import pytest
from doctor.test_watchers import run_example

from tests.support.told import IMPORTS, told
from truestep.doctor.linting import read_texts
from truestep.doctor.replacement import apply_source_edits

CHOSEN = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
def train(net, loader):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
def test(net, loader):
    net.eval()
    correct, total = 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(net(x), y).item()
            correct += (net(x).argmax(1) == y).sum().item()
    return total / len(loader), correct / len(loader.dataset)
def check():
    return test(net, test_loader)[1]
best, best_acc, wait = 0, 0, 0
for epoch in range(10):
    train(net, train_loader)
    {0}
loss, acc = test(net, test_loader)
"""
SAVED = "torch.save(net.state_dict(), 'best.pt')"
CHOSEN_BY_TEST = [
    ("loss, acc = test(net, test_loader)\n    if acc > best_acc:\n        best_acc = acc\n        ") + SAVED,
    (
        "_, acc = test(net, test_loader)\n"
        "    if acc > best:\n"
        "        best = acc\n"
        "        state = copy.deepcopy(net.state_dict())"
    ),
    (
        "test_acc = test(net, test_loader)[1]\n"
        "    if best_acc < test_acc:\n"
        "        best_acc = test_acc\n"
        "        "
    )
    + SAVED,
    (
        "loss, acc = test(net, testloader)\n"
        "    is_best = acc > best_acc\n"
        "    if acc > best_acc and epoch > 2:\n"
        "        best_acc, wait = acc, 0\n"
        "    else:\n"
        "        wait += 1\n"
        "        if wait > 3:\n"
        "            break"
    ),
    (
        "correct = 0\n"
        "    with torch.no_grad():\n"
        "        for x, y in test_loader:\n"
        "            correct += (net(x).argmax(1) == y).sum().item()\n"
        "    acc = correct / len(test_set)\n"
        "    if acc > best_acc:\n"
        "        best_acc = acc\n"
        "        "
    )
    + SAVED,
    "acc = check()\n    if acc >= best_acc:\n        best_acc = acc\n        " + SAVED,
    "vloss, acc = test(net, test_dl)\n    if vloss < best:\n        best = vloss\n        " + SAVED,
    ("loss, acc = test(net, loaders['test'])\n    if acc > best_acc:\n        best_acc = acc\n        ")
    + SAVED,
]
CHOSEN_OTHERWISE = [
    ("loss, acc = test(net, val_loader)\n    if acc > best_acc:\n        best_acc = acc\n        ") + SAVED,
    (
        "loss, acc = test(net, val_loader)\n"
        "    test_loss, test_acc = test(net, test_loader)\n"
        "    if acc > best_acc:\n"
        "        best_acc, best = acc, test_acc\n"
        "        "
    )
    + SAVED,
    "loss, acc = test(net, test_loader)\n    print(loss, acc)",
    "loss, acc = test(net, test_loader)\n    if epoch % 5 == 0:\n        " + SAVED,
    ("val_loss, val_acc = test(net, valid_dl)\n    if val_loss < best:\n        best = val_loss\n        ")
    + SAVED
    + "\n        test_acc = test(net, test_loader)[1]",
    (
        "tr_loss, tr_acc = test(net, train_loader)\n"
        "    if tr_acc > best_acc:\n"
        "        best_acc = tr_acc\n"
        "        "
    )
    + SAVED,
    ("loss, acc = test(net, loaders['val'])\n    if acc > best_acc:\n        best_acc = acc\n        ")
    + SAVED,
    "loss, acc = test(net, test_loader)\n    best_acc = max(best_acc, acc)\n    print(best_acc)",
    (
        "loss, acc = test(net, dev_loader)\n"
        "    if acc > best_acc:\n"
        "        best_acc = acc\n"
        "    else:\n"
        "        break"
    ),
]
PLATEAU = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt{0})
criterion = nn.CrossEntropyLoss()
def evaluate(loader):
    correct, n, val_loss = 0, 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            val_loss += criterion(net(x), y).item()
            correct += (net(x).argmax(1) == y).sum().item()
            n += len(y)
    return val_loss / len(loader), correct / n
for epoch in range(5):
    for x, y in train_loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
    val_loss, val_acc = evaluate(val_loader)
    {1}
"""
OTHER_MODE = [
    (', mode="min"', "sched.step(val_acc)"),
    ("", "sched.step(val_acc)"),
    (', "max"', "sched.step(val_loss)"),
    ("", "score = (net(x).argmax(1) == y).float().mean()\n    sched.step(score.item())"),
    (', mode="max"', "figure = criterion(net(x), y).item()\n    sched.step(figure)"),
    ("", 'metrics = {"val_f1": val_acc}\n    sched.step(metrics["val_f1"])'),
    (', mode="max"', "sched.step(-val_acc)"),
    (', mode="max"', "sched.step(1 - val_acc)"),
    ("", "acc1 = 100 * val_acc\n    sched.step(metrics=acc1)"),
    ("", "_, m = evaluate(val_loader)\n    sched.step(m)"),
    ("", "test_accuracy = val_acc\n    sched.step(test_accuracy)"),
]
OWN_MODE = [
    (', mode="max"', "sched.step(val_acc)"),
    ("", "sched.step(val_loss)"),
    ("", "sched.step(-val_acc)"),
    ("", "sched.step(1 - val_acc)"),
    ("", "sched.step(1.0 - val_acc)"),
    (', mode="max"', "sched.step(-val_loss)"),
    ("", "figure = criterion(net(x), y).item()\n    sched.step(figure)"),
    ("", "sched.step(evaluate(val_loader)[0])"),
    (', mode="max"', "score = (net(x).argmax(1) == y).float().mean()\n    sched.step(score)"),
    ("", "err = (net(x).argmax(1) != y).float().mean()\n    sched.step(err)"),
    ("", "acc_loss = val_loss\n    sched.step(acc_loss)"),
    ("", "sched.step(epoch)"),
    (", mode=cfg.mode", "sched.step(val_acc)"),
    ("", "perplexity = val_loss\n    sched.step(perplexity)"),
    ("", "score = -val_acc\n    sched.step(score)"),
]
ROWS = """
import numpy as np
from sklearn.preprocessing import StandardScaler
from torch.utils.data import TensorDataset, Dataset, Subset
X, y = np.random.randn(900, 12), np.random.randint(0, 3, 900)
idx = np.random.permutation(900)
tr, va, te = idx[:600], idx[600:750], idx[750:]
{0}
{1}
"""
TAKEN_0 = (
    "def ds(i):\n"
    "    return TensorDataset(torch.tensor(X[i]), torch.tensor(y[i]))\n"
    "train_loader = DataLoader(ds(tr), batch_size=32, shuffle=True)\n"
    "val_loader = DataLoader(ds(va))\n"
    "test_loader = DataLoader(ds(te))"
)
TAKEN_1 = (
    "def make(X, y, rows, shuffle=False):\n"
    "    return DataLoader(TensorDataset(torch.tensor(X[rows]), torch.tensor(y[rows])), shuffle=shuffle)\n"
    "train_loader, val_loader, test_loader = make(X, y, tr, True), make(X, y, va), make(X, y, te)"
)
TAKEN_2 = (
    "class Rows(Dataset):\n"
    "    def __init__(self, x, y, index):\n"
    "        self.x, self.y = x[index], y[index]\n"
    "    def __len__(self):\n"
    "        return len(self.x)\n"
    "    def __getitem__(self, i):\n"
    "        return self.x[i], self.y[i]\n"
    "train_set, test_set = Rows(X, y, tr), Rows(X, y, te)"
)
TAKEN_3 = "def part(index):\n    return X[index], y[index]\n(a, b), (c, d) = part(tr), part(te)"
TAKEN_4 = (
    "def part(index, what='x'):\n"
    "    x, t = torch.tensor(X[index]), torch.tensor(y[index])\n"
    "    return x, t\n"
    "a, c = part(index=tr), part(index=te)"
)
OF_ALL = [
    "mean, std = X.mean(0), X.std(0)\nX = (X - mean) / std",
    "X = StandardScaler().fit_transform(X).astype(np.float32)",
    "X = (X - X.mean(0)) / X.std(0)",
]
OF_TRAINING = [
    "mean, std = X[tr].mean(0), X[tr].std(0)\nX = (X - mean) / std",
    "scaler = StandardScaler().fit(X[tr])\nX = scaler.transform(X)",
    "X = (X - X[tr].mean(0)) / X[tr].std(0)",
    "X = (X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True)",
]
TAKEN = (TAKEN_0, TAKEN_1, TAKEN_2, TAKEN_3, TAKEN_4)
RATE = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = {0}
for epoch in range({1}):
    for i in range({2}):
        x = torch.randn(8, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        {3}
    {4}
"""
MADE = "torch.optim.lr_scheduler."
FALLS_ON = [
    (MADE + "StepLR(opt, 1, 0.7)", 3, 15, "sched.step()", "pass"),
    (MADE + "ExponentialLR(opt, 0.5)", 3, 10, "sched.step()", "pass"),
    (MADE + "StepLR(opt, 2, 0.1)", 2, 10, "sched.step()", "pass"),
    (MADE + "LambdaLR(opt, lambda s: 0.7 ** s)", 3, 15, "sched.step()", "pass"),
    ("None", 3, 15, "for g in opt.param_groups: g['lr'] *= 0.7", "pass"),
    (MADE + "ExponentialLR(opt, 0.9)", 3, 70, "sched.step()", "pass"),
]
FALLS_AS_MEANT = [
    (MADE + "StepLR(opt, 1, 0.7)", 9, 5, "pass", "sched.step()"),
    (MADE + "CosineAnnealingLR(opt, 45)", 3, 15, "sched.step()", "pass"),
    (MADE + "PolynomialLR(opt, 60, power=4)", 3, 20, "sched.step()", "pass"),
    (MADE + "OneCycleLR(opt, 0.1, total_steps=46)", 3, 15, "sched.step()", "pass"),
    (MADE + "StepLR(opt, 1, 0.1)", 4, 10, "pass", "sched.step()"),
    (MADE + "CosineAnnealingWarmRestarts(opt, 5)", 3, 15, "sched.step()", "pass"),
    (MADE + "ExponentialLR(opt, 0.95)", 3, 15, "sched.step()", "pass"),
    (MADE + "LinearLR(opt, 1.0, 0.0, 45)", 3, 15, "sched.step()", "pass"),
    (MADE + "CosineAnnealingLR(opt, 5)", 6, 8, "pass", "sched.step()"),
    (MADE + "MultiStepLR(opt,[3,6],0.1)", 9, 5, "pass", "sched.step()"),
]
METER = """
class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0
    def update(self, val, n=1):
        {0}
"""
METERED = """
from utils import AverageMeter
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
def train(loader):
    losses, top1 = AverageMeter(), AverageMeter()
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        {1}
    return losses.avg
for epoch in range(10):
    train(train_loader)
"""
WEIGHTED = "self.val = val\nself.sum += val * n\nself.count += n\nself.avg = self.sum / self.count"
UNWEIGHTED = WEIGHTED.replace("val * n", "val")
MEANS_AS_EXAMPLES = [
    (UNWEIGHTED, "losses.update(loss.item(), x.size(0))"),
    (UNWEIGHTED, "losses.update(loss.item(), len(x))"),
    (UNWEIGHTED, "losses.update(loss.detach(), n=x.shape[0])"),
    (UNWEIGHTED, "n = x.size(0)\nlosses.update(loss.item(), n)"),
    (UNWEIGHTED, "losses.update(float(loss), y.size(0))"),
]
METERED_RIGHT = [
    (WEIGHTED, "losses.update(loss.item(), x.size(0))"),
    (UNWEIGHTED, "losses.update(loss.item() * len(x), len(x))"),
    (UNWEIGHTED, "losses.update(loss.item())"),
    (UNWEIGHTED, "top1.update((out.argmax(1) == y).sum().item(), len(y))"),
    (UNWEIGHTED, "losses.update(F.cross_entropy(out, y, reduction='sum').item(), len(y))"),
    (UNWEIGHTED.replace("+= n", "+= 1"), "losses.update(loss.item(), len(x))"),
]
GRAPHS_GIVEN = [
    (WEIGHTED, "losses.update(loss, x.size(0))"),
    (UNWEIGHTED, "losses.update(loss)"),
    (WEIGHTED, "losses.update(loss * 1.0, 3)"),
    (WEIGHTED, "losses.update(val=loss, n=len(x))"),
    ("self.sum += n * val\nself.count += n", "losses.update(loss, len(x))"),
]
NUMBERS_GIVEN = [
    (WEIGHTED, "losses.update(loss.item(), x.size(0))"),
    (WEIGHTED, "losses.update(loss.detach(), x.size(0))"),
    ("val = val.item()\n" + WEIGHTED, "losses.update(loss, x.size(0))"),
    ("self.sum += val.item() * n", "losses.update(loss, 3)"),
    ("with torch.no_grad():\n    self.sum += val * n", "losses.update(loss, 3)"),
    ("if torch.is_tensor(val):\n    val = float(val)\n" + WEIGHTED, "losses.update(loss, 3)"),
    (WEIGHTED, "losses.update(float(loss), 3)"),
]
SUMMED = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train_loader, test_loader = DataLoader(a, batch_size=32, shuffle=True), DataLoader(b, batch_size=64)
def train(loader):
    total = 0
    for x, y in loader:
        opt.zero_grad()
        loss = F.nll_loss(net(x).log_softmax(1), y{0})
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len({1})
train(train_loader)
with torch.no_grad():
    test_loss = 0
    for x, y in test_loader:
        {2}
    {3}
"""
EXAMPLES = "test_loss += F.nll_loss(net(x).log_softmax(1), y, reduction='sum').item()"
BY_BATCHES = "test_loss /= len(test_loader)"
BY_NUM_BATCHES = [
    ("", "loader", EXAMPLES, BY_BATCHES),
    ("", "loader", EXAMPLES, "print(test_loss / len(test_loader))"),
    (
        "",
        "loader",
        "loss = F.cross_entropy(net(x), y, reduction='sum')\n        test_loss += loss.item()",
        BY_BATCHES,
    ),
    ("", "loader", "test_loss += nn.CrossEntropyLoss(reduction='sum')(net(x), y).item()", BY_BATCHES),
    ("", "loader", "test_loss += F.mse_loss(net(x), y, reduction='sum')", BY_BATCHES),
    ("", "loader", EXAMPLES.replace("reduction='sum'", "size_average=False"), BY_BATCHES),
]
BY_NUM_EXAMPLES = [
    ("", "loader", EXAMPLES, "test_loss /= len(test_loader.dataset)"),
    ("", "loader", EXAMPLES.replace(", reduction='sum'", ""), BY_BATCHES),
    (", reduction='sum'", "loader", EXAMPLES, "test_loss /= len(test_loader.dataset)"),
    ("", "loader", EXAMPLES.replace(".item()", ".item() / len(x)"), BY_BATCHES),
    ("", "loader", EXAMPLES, "print(test_loss)"),
    (", reduction='sum'", "loader.dataset", EXAMPLES, "test_loss /= len(test_set)"),
]
SEEDED = """
import random
import numpy as np
from torch.utils.data import Dataset
def seed_worker(w):
    np.random.seed(w)
def seed_both(worker_id):
    random.seed(1234 + worker_id)
    np.random.seed(1234 + worker_id)
def good(w):
    np.random.seed(torch.initial_seed() % 2 ** 32)
def info(w):
    np.random.seed(torch.utils.data.get_worker_info().seed % 2 ** 32)
class Noisy(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.tensor({1}, dtype=torch.float32)
loader = DataLoader(Noisy(), batch_size=8, shuffle=True, {0})
for epoch in range(3):
    for x in loader:
        print(x)
"""
DRAWN = "np.random.randn(64)"
SEEDED_ALIKE = [
    ("num_workers=2, worker_init_fn=lambda w: np.random.seed(w)", DRAWN),
    ("num_workers=2, worker_init_fn=seed_worker", DRAWN),
    ("num_workers=4, worker_init_fn=seed_both", DRAWN),
    ("num_workers=2, worker_init_fn=lambda _: np.random.seed(0)", DRAWN),
    ("num_workers=2, worker_init_fn=seed_both", "[random.random()]"),
    ("num_workers=2, worker_init_fn=lambda i: np.random.seed(42 + i)", "np.random.normal(size=3)"),
]
SEEDED_APART = [
    ("num_workers=2, worker_init_fn=good", DRAWN),
    ("num_workers=2, worker_init_fn=info", DRAWN),
    ("num_workers=2", DRAWN),
    ("num_workers=0, worker_init_fn=seed_worker", DRAWN),
    ("num_workers=2, persistent_workers=True, worker_init_fn=seed_worker", DRAWN),
    ("num_workers=2, worker_init_fn=seed_worker", "torch.randn(3)"),
    ("num_workers=2, worker_init_fn=lambda w: np.random.seed(epoch * 100 + w)", DRAWN),
]
AVERAGED = """
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99)){0}
for epoch in range(10):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        ema.update_parameters(net)
{1}
"""
AVERAGED_IN_VAIN = [
    ("", "net.eval()"),
    ("\nema.eval()", "net.eval()"),
    (".to('cpu')", "torch.save(net.state_dict(), 'a.pt')"),
    ("\nema.requires_grad_(False)", "with torch.no_grad():\n    print(net(x))"),
    ("", "torch.save({'model': net.state_dict(), 'opt': opt.state_dict()}, 'a.pt')"),
    ("", "def ev(m):\n    return m(x)\nev(net)"),
]
AVERAGE_USED = [
    ("", "ema(x)"),
    ("", "torch.save(ema.state_dict(), 'a.pt')"),
    ("", "torch.save(ema.module.state_dict(), 'a.pt')"),
    ("", "torch.optim.swa_utils.update_bn(loader, ema)\nema(x)"),
    ("", "def ev(m):\n    return m(x)\nev(ema)"),
    ("", "models = [net, ema]"),
    ("", "net.load_state_dict(ema.module.state_dict())"),
]

THOROUGH = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))
for _ in range(3):
    loss = criterion(net(torch.randn(32, 4)), torch.arange(32) % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
UNREAD = """
net, opt = nn.Linear(4, 3), torch.optim.SGD([torch.zeros(1)], lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 2)
for epoch in range(2):
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch}, "a.pt")
state = torch.load("a.pt")
net.load_state_dict(state["net"])
start = state["epoch"]
"""
KEPT = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
best, state = 9.0, None
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    if loss.item() < best:
        best, state = loss.item(), None
        state = net.state_dict().copy()
net.load_state_dict(state)
"""


def read_program(text):
    return read_texts({"main.py": IMPORTS + text}).findings


def is_metered(code, method, use):
    indented = [each.replace("\n", "\n        ") for each in (method, use)]
    return told(code, {"utils.py": METER.format(indented[0]), "main.py": METERED.format(0, indented[1])})


@pytest.mark.parametrize(
    ("code", "program", "wrong", "right"),
    [
        ("DATA003", SEEDED, SEEDED_ALIKE, SEEDED_APART),
        (
            "DATA013",
            ROWS,
            [(how, part) for how in OF_ALL for part in TAKEN],
            [(how, part) for how in OF_TRAINING for part in TAKEN],
        ),
        ("DATA020", CHOSEN, [(each,) for each in CHOSEN_BY_TEST], [(each,) for each in CHOSEN_OTHERWISE]),
        ("EVAL043", SUMMED, BY_NUM_BATCHES, BY_NUM_EXAMPLES),
        ("PARAM022", AVERAGED, AVERAGED_IN_VAIN, AVERAGE_USED),
        ("SCHED002", PLATEAU, OTHER_MODE, OWN_MODE),
    ],
    ids=["worker-seeds", "statistics", "chosen-by-test", "sums", "average-unused", "plateau-mode"],
)
def test_a_mistake_of_a_plain_script_is_told_and_its_right_twin_is_not(code, program, wrong, right):
    assert [each for each in wrong if not told(code, program.format(*each))] == []
    assert [each for each in right if told(code, program.format(*each))] == []


def test_a_choice_by_test_data_is_graver_where_validation_data_lie_beside_it():
    beside = CHOSEN.replace("train_loader)", "train_loader), val_loader")
    severities = [told("DATA020", each.format(CHOSEN_BY_TEST[0]))[0].name for each in (CHOSEN, beside)]
    assert severities == ["ADVICE", "RISK"]


def test_a_meter_of_another_file_is_told_what_it_makes_of_a_batch():
    assert [each for each in MEANS_AS_EXAMPLES if not is_metered("EVAL043", *each)] == []
    assert [each for each in METERED_RIGHT if is_metered("EVAL043", *each)] == []
    assert [each for each in GRAPHS_GIVEN if not is_metered("MEM001", *each)] == []
    assert [each for each in NUMBERS_GIVEN if is_metered("MEM001", *each)] == []


def test_a_rate_that_goes_on_falling_is_told_in_a_short_training():
    def seen(each):
        return [found for found in run_example(RATE.format(*each)).findings if found.code == "SCHED010"]

    assert [each for each in FALLS_ON if not seen(each)] == []
    assert [each for each in FALLS_AS_MEANT if seen(each)] == []


def test_a_batch_is_learned_by_heart_under_a_weighted_loss():
    run_example(THOROUGH, thorough=True)  # it says that no check failed


def test_all_states_that_a_resume_leaves_out_are_named_at_once():
    texts = [each.message for each in read_program(UNREAD) if each.code == "SAVE011"]
    assert texts == ["What is saved as 'opt' and 'sched' is not read when the run goes on."]


def test_a_shallow_copy_is_replaced_by_a_deep_one():
    found = [each for each in read_program(KEPT) if each.code == "SAVE013"]
    fixed = apply_source_edits(IMPORTS + KEPT, [edit for each in found for edit in each.replacement.edits])
    assert "state = copy.deepcopy(net.state_dict())\n" in fixed
