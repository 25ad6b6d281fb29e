# SPDX-License-Identifier: Apache-2.0
"""Series cut into windows, and trainings for several seeds: wordings that reading was silent of, with right twins."""

import pytest

from tests.doctor.test_agents_and_averages import texts
from tests.support.told import told

SEED = """
import random
import numpy as np
def train(model, x, y, seed=None):
    opt = torch.optim.Adam(model.parameters())
    for _ in range(5):
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
    return float(F.mse_loss(model(x), y))
def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
rows, seeds = [], [0, 1, 2]
BODY
"""
ONE_FOR_ALL = [
    "def one(seed, lr):\n    torch.manual_seed(0)\n    rows.append({'seed': seed, 'loss': train(nn.Linear(4, 1), x, y)})",
    "for seed in range(3):\n    torch.manual_seed(0)\n    rows.append((seed, train(nn.Linear(4, 1), x, y)))",
    "def one(seed=0):\n    set_seed(42)\n    loss = train(nn.Linear(4, 1), x, y)\n    return {'seed': seed, 'loss': loss}",
    "for seed in seeds:\n    np.random.seed(0)\n    torch.manual_seed(0)\n    print(f'seed {seed}', train(nn.Linear(4, 1), x, y))",
    (
        "SEED = 42\ndef fit(seed):\n    torch.manual_seed(SEED)\n    net = nn.Linear(4, 1)\n    train(net, x, y)\n"
        "    torch.save(net.state_dict(), f'net_{seed}.pt')"
    ),
    "def fix(seed):\n    random.seed(42)\n    torch.manual_seed(42)\nfor seed in seeds:\n    fix(seed)",
    "for i, seed in enumerate(seeds):\n    set_seed(0)\n    rows += [[i, seed, train(nn.Linear(4, 1), x, y)]]",
    (
        "def one(seed):\n    torch.manual_seed(0)\n    loss = train(nn.Linear(4, 1), x, y)\n"
        "    row = {'seed': seed, 'loss': loss}\n    rows.append(row)"
    ),
]
ONE_EACH = [
    "def one(seed, lr):\n    torch.manual_seed(seed)\n    rows.append({'seed': seed, 'loss': train(nn.Linear(4, 1), x, y)})",
    (
        "for seed in seeds:\n    torch.manual_seed(0)\n    a = torch.randperm(8)\n    set_seed(seed)\n"
        "    print(seed, train(nn.Linear(4, 1), x, y))"
    ),
    "for seed in seeds:\n    torch.manual_seed(0)\n    print(seed, train(nn.Linear(4, 1), x, y, seed))",
    "def one(seed):\n    random.seed(0)\n    torch.manual_seed(seed + 1)\n    return {'seed': seed}",
    "def one(seed):\n    torch.manual_seed(0)\n    rng = np.random.default_rng(seed)\n    return {'seed': seed, 'x': rng.normal()}",
    "def one(seed):\n    torch.manual_seed(0)\n    parts = draw(8, random_state=seed)\n    return {'seed': seed}",
    "def one(seed):\n    torch.manual_seed(0)\n    options = {'seed': seed}\n    return train(nn.Linear(4, 1), x, y, **options)",
    (
        "for seed in seeds:\n    g = torch.Generator().manual_seed(0)\n    a, b = random_split(x, [6, 2], generator=g)\n"
        "    h = torch.Generator()\n    h.manual_seed(seed)\n    print(seed)"
    ),
]

SERIES = """
import numpy as np
from torch.utils.data import Dataset, Subset, TensorDataset, random_split
from sklearn.model_selection import train_test_split, KFold
W, H = 24, 3
class Windows(Dataset):
    def __init__(self, v, w=W):
        self.v, self.w = v, w
    def __len__(self):
        return len(self.v) - W - H + 1
    def __getitem__(self, i):
        return self.v[i:i + W], self.v[i + W:i + W + H]
class Ends(Windows):
    def __getitem__(self, idx):
        end = idx + self.w
        x = self.v[idx:end, :]
        y = self.v[end]
        return torch.tensor(x), torch.tensor(y)
class Blocks(Windows):
    def __getitem__(self, i):
        return self.v[i * W:(i + 1) * W], self.v[(i + 1) * W]
class Rows(Windows):
    def __getitem__(self, i):
        return self.v[i], self.v[i, 1:3]
class Starts(Windows):
    def __getitem__(self, i):
        i = self.starts[i]
        return self.v[i:i + W], self.v[i + W]
def make(v, w):
    xs, ys = [], []
    for i in range(len(v) - w):
        xs.append(v[i:i + w])
        ys.append(v[i + w])
    return np.array(xs), np.array(ys)
v = torch.tensor(np.loadtxt("load.csv"))
BODY
"""
OVERLAPPING = [
    "a, b = torch.utils.data.random_split(Windows(v), [700, 100])",
    "ds = Ends(v)\nn = int(0.8 * len(ds))\ntrain_ds, val_ds = random_split(ds, [n, len(ds) - n])",
    "X, y = make(v, 24)\nX_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=1)",
    "X = np.stack([v[i:i + W] for i in range(len(v) - W)])\ny = v[W:]\na, b, c, d = train_test_split(X, y, shuffle=True)",
    "ds = Windows(v)\nperm = torch.randperm(len(ds))\na, b = Subset(ds, perm[:700]), Subset(ds, perm[700:])",
    "ds = Windows(v)\nidx = np.random.permutation(len(ds))\ntr, va = idx[:700], idx[700:]\na = Subset(ds, tr)\nb = Subset(ds, va)",
    (
        "X, y = make(v, W)\nX = torch.tensor(X)\norder = np.arange(len(X))\nnp.random.shuffle(order)\ncut = 700\n"
        "train_x, val_x = X[order[:cut]], X[order[cut:]]"
    ),
    "X = v.unfold(0, W + 1, 1)\na, b = random_split(TensorDataset(X[:, :-1], X[:, -1]), [700, 100])",
    "X = np.lib.stride_tricks.sliding_window_view(v, W)\na, b = train_test_split(X)",
    "xs = []\nfor s in range(0, len(v) - W, 5):\n    xs.append(v[s:s + W].mean(0))\nX = np.array(xs)\na, b = train_test_split(X)",
    "data = [(v[i:i + W], v[i + W]) for i in range(700)]\ntrain, test = train_test_split(data, test_size=0.1)",
]
APART = [
    "ds = Windows(v)\na, b = Subset(ds, range(600)), Subset(ds, range(600 + W, 800))",
    "X, y = make(v, 24)\nX_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, shuffle=False)",
    "a, b = random_split(Blocks(v), [7, 1])",
    "a, b = random_split(Rows(v), [700, 100])",
    "a, b = random_split(Starts(v), [700, 100])",
    "X = np.stack([v[i:i + W] for i in range(0, len(v) - W, W)])\na, b = train_test_split(X)",
    "X = [v[s:s + 24] for s in range(0, 700, 30)]\na, b = train_test_split(X)",
    "X = v.unfold(0, W, W)\na, b = random_split(TensorDataset(X), [700, 100])",
    "X = np.lib.stride_tricks.sliding_window_view(v, W)[::W]\na, b = train_test_split(X)",
    "tr, va = train_test_split(np.arange(12))\nX = [make(v[s], W) for s in tr]\nZ = [make(v[s], W) for s in va]",
    "ds = Windows(v[:700])\norder = torch.randperm(len(ds))\nfor k in range(0, len(ds), 8):\n    print(ds[order[k:k + 8]])",
    "a, b = train_test_split(v, shuffle=False)\ntrain, test = make(a, W), make(b, W)",
    "X = [v[i:i + 1] for i in range(len(v))]\na, b = train_test_split(X)",
]

ROUNDS = """
import itertools
import numpy as np
from sklearn.model_selection import KFold
def fit(model, lr=0.1, epochs=3):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
    return losses[-1]
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
seeds, rows = [0, 1, 2], []
BODY
"""
STEPS = "opt.zero_grad()\n        F.mse_loss(model(x), y).backward()\n        opt.step()"
CARRIED = [
    "model = build()\nfor seed in seeds:\n    torch.manual_seed(seed)\n    rows.append(fit(model))",
    (
        "model = nn.Linear(4, 1)\ndef one(seed, lr):\n    torch.manual_seed(seed)\n    return fit(model, lr)\n"
        "for seed, lr in itertools.product(seeds, [0.1, 0.01]):\n    rows.append(one(seed, lr))"
    ),
    (
        "model = nn.Linear(4, 1)\nfor s in seeds:\n    pass\n"
        "for i, (a, b) in enumerate(KFold(5).split(data)):\n    rows.append(fit(model))"
    ),
    "model = build().to('cpu')\nfor fold in range(5):\n"
    "    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    for x, y in loader:\n        " + STEPS,
    "def main():\n    net = build()\n    for trial in range(3):\n        rows.append(fit(net))\nmain()",
    (
        "class Study:\n    def __init__(self):\n        self.net = build()\n"
        "    def run(self):\n        for fold, part in enumerate(parts):\n"
        "            opt = torch.optim.Adam(self.net.parameters())\n"
        "            for x, y in part:\n                opt.zero_grad()\n"
        "                F.mse_loss(self.net(x), y).backward()\n                opt.step()\nStudy().run()"
    ),
]
ANEW = [
    "for seed in seeds:\n    torch.manual_seed(seed)\n    model = build()\n    rows.append(fit(model))",
    (
        "def one(seed, lr):\n    torch.manual_seed(seed)\n    model = nn.Linear(4, 1)\n    return fit(model, lr)\n"
        "for seed, lr in itertools.product(seeds, [0.1, 0.01]):\n    rows.append(one(seed, lr))"
    ),
    (
        "model = nn.Linear(4, 1)\nstart = copy.deepcopy(model.state_dict())\n"
        "for seed in seeds:\n    model.load_state_dict(start)\n    fit(model)"
    ),
    "base = build()\nfor fold in range(5):\n    rows.append(fit(copy.deepcopy(base)))",
    "base = build()\nfor fold in range(5):\n    model = copy.deepcopy(base)\n    rows.append(fit(model))",
    "model = build()\nfor fold in range(5):\n    model.apply(draw)\n    rows.append(fit(model))",
    (
        "model = build()\nfor seed in seeds:\n    for each in model:\n        if hasattr(each, 'reset_parameters'):\n"
        "            each.reset_parameters()\n    fit(model)"
    ),
    "model = build()\nfor stage in range(3):\n    rows.append(fit(model, 0.1 ** stage))",
    "for trial in range(3):\n    rows.append(fit(build()))",
    (
        "class Study:\n    def __init__(self, seed):\n        self.net = build()\n"
        "    def run(self):\n        return fit(self.net)\n"
        "for seed in seeds:\n    rows.append(Study(seed).run())"
    ),
]
SEARCH = ROUNDS.replace(
    "seeds, rows",
    """
def probe(model, loader, lo=1e-5, hi=1.0, n=25):
    START
    opt = torch.optim.Adam(model.parameters(), lr=lo)
    lrs, losses = [], []
    for i, (x, y) in zip(range(n), loader):
        for g in opt.param_groups:
            g["lr"] = lo * (hi / lo) ** (i / n)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        lrs.append(g["lr"])
        losses.append(loss.item())
    END
    return lrs, losses
seeds, rows""",
)
LOST = SEARCH.replace("START", "pass").replace("END", "pass")
KEPT = SEARCH.replace("START", "start = copy.deepcopy(model.state_dict())").replace(
    "END", "model.load_state_dict(start)"
)
PASSES = (
    "\nfor x, y in loader:\n    opt.zero_grad()\n    F.mse_loss(model(x), y).backward()\n    opt.step()\n"
)
FOUND = [
    "model = build()\nlrs, losses = probe(model, loader)\nbest = lrs[int(np.argmin(losses))] / 10\n"
    "opt = torch.optim.Adam(model.parameters(), lr=best)" + PASSES,
    "model = build()\nfound = probe(model, loader)\nlr = min(max(found[0][3], 1e-4), 1e-2)\n"
    "opt = torch.optim.SGD(model.parameters(), lr)" + PASSES,
    "model = build()\nlrs, losses = probe(model, loader)\nfit(model, lr=lrs[losses.index(min(losses))])",
    (
        "def main():\n    net = build()\n    lrs, losses = probe(net, loader)\n"
        "    lr = lrs[np.argmin(losses)]\n    return fit(net, lr)\nmain()"
    ),
    "model = build()\ntried = []\nopt = torch.optim.SGD(model.parameters(), lr=1e-5)\n"
    "for x, y in loader:\n    opt.param_groups[0]['lr'] *= 1.2\n"
    "    loss = F.mse_loss(model(x), y)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
    "    tried.append((loss.item(), opt.param_groups[0]['lr']))\nlr = min(tried)[1]\n"
    "opt = torch.optim.SGD(model.parameters(), lr=lr)" + PASSES,
    "model = build()\ntried = {lr: fit(model, lr) for lr in (0.1, 0.01)}\nlr = min(tried, key=tried.get)\n"
    "opt = torch.optim.SGD(model.parameters(), lr=lr)" + PASSES,
]
NOT_LOST = [
    FOUND[0].replace("probe(model", "probe(copy.deepcopy(model)"),
    FOUND[0].replace("opt =", "model = build()\nopt ="),
    FOUND[0].replace("opt =", "model.load_state_dict(torch.load('start.pt', weights_only=True))\nopt ="),
    FOUND[1].replace("probe(model", "probe(build()"),
    "model = build()\nlr = float(input())\nfit(model, lr)\nopt = torch.optim.SGD(model.parameters(), lr=lr)"
    + PASSES,
    "model, other = build(), build()\nlrs, losses = probe(other, loader)\nopt = torch.optim.SGD(model.parameters(), lr=lrs[0])"
    + PASSES,
    "model = build()\nfit(model)\nfit(model, lr=0.01)",
]

CASES = {
    "SAVE013": [*texts(ROUNDS, CARRIED, ANEW), *texts(LOST, FOUND, NOT_LOST), *texts(KEPT, [], FOUND[:4])],
    "PARAM038": texts(SEED, ONE_FOR_ALL, ONE_EACH),
    "DATA013": texts(SERIES, OVERLAPPING, APART),
}


@pytest.mark.parametrize(
    ("code", "text", "is_wrong"),
    [(code, *each) for code, cases in CASES.items() for each in cases],
    ids=[f"{code}-{number}" for code, cases in CASES.items() for number in range(len(cases))],
)
def test_told_and_not(code: str, text: str, is_wrong: bool) -> None:
    assert bool(told(code, text)) == is_wrong
