# SPDX-License-Identifier: Apache-2.0
"""Series cut into windows, and trainings for several seeds: wordings that reading was silent of, with right twins."""

import pytest

from tests.doctor.test_agents_and_averages import texts
from tests.support.told import told

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

CASES = {
    "DATA013": texts(SERIES, OVERLAPPING, APART),
}


@pytest.mark.parametrize(
    ("code", "text", "is_wrong"),
    [(code, *each) for code, cases in CASES.items() for each in cases],
    ids=[f"{code}-{number}" for code, cases in CASES.items() for number in range(len(cases))],
)
def test_told_and_not(code: str, text: str, is_wrong: bool) -> None:
    assert bool(told(code, text)) == is_wrong
