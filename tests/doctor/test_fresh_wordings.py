# SPDX-License-Identifier: Apache-2.0
"""Silent faults in the wordings of a hand that wrote no check: each is named by reading, and its right twins are not."""

import pytest

from tests.support.told import loud, told

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
"""
COSINE_OVER_EPOCHS = {
    "a script": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "a trainer with a dict": """
class Trainer:
    def __init__(self, net, cfg):
        self.net, self.cfg = net, cfg
        self.opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg["epochs"])
    def step(self, batch):
        x, y = batch
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.opt.step()
        self.sched.step()
    def fit(self, loader):
        for epoch in range(self.cfg["epochs"]):
            for batch in loader:
                self.step(batch)
""",
    "made by a function": """
def make(net, epochs):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs, eta_min=1e-5)
def run(net, loader, args):
    opt, sched = make(net, args.epochs)
    for ep in range(args.epochs):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step(); sched.step()
""",
    "a dataclass and a dict": """
from dataclasses import dataclass
@dataclass
class C:
    epochs: int = 20
    lr: float = 0.1
cfg = C()
parts = {"opt": torch.optim.SGD(net.parameters(), cfg.lr)}
parts["sched"] = torch.optim.lr_scheduler.CosineAnnealingLR(parts["opt"], T_max=cfg.epochs)
for epoch in range(cfg.epochs):
    for x, y in loader:
        parts["opt"].zero_grad()
        F.cross_entropy(net(x), y).backward()
        parts["opt"].step()
        parts["sched"].step()
""",
    "an epoch in a function": """
def train_epoch(net, loader, opt, sched):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
def main():
    num_epochs = 30
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, num_epochs)
    for _ in range(num_epochs):
        train_epoch(net, loader, opt, sched)
main()
""",
    "a while loop": """
n_epochs = 5
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=n_epochs)
epoch = 0
while epoch < n_epochs:
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
    epoch += 1
""",
}
COSINE_AS_LONG_AS_STEPPED = {
    "per epoch": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    sched.step()
""",
    "times len": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS * len(loader))
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "conditional": """
n_epochs = 5
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=n_epochs)
epoch = 0
while epoch < n_epochs:
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        if i + 1 == len(loader):
            sched.step()
    epoch += 1
""",
    "fraction": """
n_epochs = 5
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=n_epochs)
epoch = 0
while epoch < n_epochs:
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step(epoch + i / len(loader))
    epoch += 1
""",
    "restarts": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, EPOCHS)
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "another number": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "three loops": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for _ in range(1):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "steps": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for x, y in loader:
    for _ in range(EPOCHS):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "rollouts": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for update in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    sched.step()
""",
    "method per epoch": """
class Trainer:
    def __init__(self, net, cfg):
        self.net, self.cfg = net, cfg
        self.opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg["epochs"])
    def step(self, batch):
        x, y = batch
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.opt.step()
    def fit(self, loader):
        for epoch in range(self.cfg["epochs"]):
            for batch in loader:
                self.step(batch)
            self.sched.step()
""",
    "inner epochs": """
K = 4
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=K)
for task in tasks:
    for x, y in task:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
""",
    "break": """
EPOCHS = 10
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
        break
""",
}


@pytest.mark.parametrize("text", COSINE_OVER_EPOCHS.values(), ids=COSINE_OVER_EPOCHS)
def test_a_schedule_over_the_epochs_that_every_batch_steps_is_named(text):
    assert loud("SCHED012", HEAD + text)


@pytest.mark.parametrize("text", COSINE_AS_LONG_AS_STEPPED.values(), ids=COSINE_AS_LONG_AS_STEPPED)
def test_a_schedule_that_is_stepped_as_its_length_counts_is_not(text):
    assert not loud("SCHED012", HEAD + text)


MEANS_OVER_EXAMPLES = {
    "the data set of a loader": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item()
print("loss", total / len(loader.dataset))
""",
    "rows counted in an evaluation": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

def evaluate(net, loader):
    net.eval()
    running, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            running += F.mse_loss(net(x), y).item()
            n += x.size(0)
    return running / n
""",
    "a dict of two totals": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

stats = {"loss": 0.0, "seen": 0}
crit = nn.CrossEntropyLoss()
for x, y in loader:
    loss = crit(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    stats["loss"] += loss.item()
    stats["seen"] += y.shape[0]
print(f"train loss {stats['loss'] / stats['seen']:.4f}")
""",
    "a list of losses": """
def epoch(net, crit, data, opt):
    losses = []
    for x, y in data:
        loss = crit(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
        losses.append(loss.item())
    return sum(losses) / len(data.dataset)
print(epoch(net, nn.MSELoss(), DataLoader(ds, 32, shuffle=True), opt))
""",
    "attributes of a trainer": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

class T:
    def __init__(self, net, data):
        self.net, self.loader, self.n = net, DataLoader(data, 32, shuffle=True), len(data)
        self.crit = nn.CrossEntropyLoss()
        self.opt = torch.optim.SGD(net.parameters(), 0.1)
    def run(self):
        acc = 0
        for x, y in self.loader:
            self.opt.zero_grad()
            l = self.crit(self.net(x), y)
            l.backward()
            self.opt.step()
            acc += l.detach().item()
        print("mean", acc / self.n)
""",
}
TOTALS_OVER_WHAT_THEY_COUNT = {
    "times rows": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item() * x.size(0)
print("loss", total / len(loader.dataset))
""",
    "by batches": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item()
print("loss", total / len(loader))
""",
    "summed loss": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y, reduction='sum')
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item()
print("loss", total / len(loader.dataset))
""",
    "criterion sums": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

stats = {"loss": 0.0, "seen": 0}
crit = nn.CrossEntropyLoss(reduction='sum')
for x, y in loader:
    loss = crit(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    stats["loss"] += loss.item()
    stats["seen"] += y.shape[0]
print(f"train loss {stats['loss'] / stats['seen']:.4f}")
""",
    "batches of one": """loader = DataLoader(dataset)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item()
print("loss", total / len(loader.dataset))
""",
    "batches of one, said": """loader = DataLoader(dataset, batch_size=1)

def evaluate(net):
    net.eval()
    running, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            running += F.mse_loss(net(x), y).item()
            n += x.size(0)
    return running / n
""",
    "examples by hand": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in dataset:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss.item()
print("loss", total / len(dataset))
""",
    "loss weighed": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

stats = {"loss": 0.0, "seen": 0}
crit = nn.CrossEntropyLoss()
for x, y in loader:
    loss = crit(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    loss = loss * len(y)
    stats["loss"] += loss.item()
    stats["seen"] += y.shape[0]
print(f"train loss {stats['loss'] / stats['seen']:.4f}")
""",
    "counted batches": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

def evaluate(net, loader):
    net.eval()
    running, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            running += F.mse_loss(net(x), y).item()
            n += 1
    return running / n
""",
    "list by batches": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

def epoch(net, crit, data, opt):
    losses = []
    for x, y in data:
        loss = crit(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)
print(epoch(net, nn.MSELoss(), DataLoader(ds, 32, shuffle=True), opt))
""",
    "correct counted": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

total = 0.0
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += (net(x).argmax(1) == y).sum().item()
print("loss", total / len(loader.dataset))
""",
    "old sums": """loader = DataLoader(dataset, batch_size=32, shuffle=True)

stats = {"loss": 0.0, "seen": 0}
crit = nn.CrossEntropyLoss(size_average=False)
for x, y in loader:
    loss = crit(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    stats["loss"] += loss.item()
    stats["seen"] += y.shape[0]
print(f"train loss {stats['loss'] / stats['seen']:.4f}")
""",
}


@pytest.mark.parametrize("text", MEANS_OVER_EXAMPLES.values(), ids=MEANS_OVER_EXAMPLES)
def test_mean_losses_that_are_divided_by_the_number_of_examples_are_named(text):
    assert loud("EVAL043", HEAD + text)


@pytest.mark.parametrize("text", TOTALS_OVER_WHAT_THEY_COUNT.values(), ids=TOTALS_OVER_WHAT_THEY_COUNT)
def test_totals_that_are_divided_by_what_they_count_are_not(text):
    assert not loud("EVAL043", HEAD + text)


FULL_BATCHES = {
    "length": """
batch_size = len(test)
test_loader = DataLoader(test, batch_size=batch_size)
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * batch_size))
""",
    "inline": """
test_loader = DataLoader(test, batch_size=len(test))
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * len(test)))
""",
    "rows": """
X, Y = torch.randn(100, 3), torch.zeros(100)
batch_size = X.shape[0]
test_loader = DataLoader(TensorDataset(X, Y), batch_size=batch_size)
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * batch_size))
""",
    "known": """
test = TensorDataset(torch.randn(100, 3), torch.zeros(100))
batch_size = 100
test_loader = DataLoader(test, batch_size=batch_size)
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * batch_size))
""",
    "function": """
def loader_of(data):
    return DataLoader(data, batch_size=len(data))
test_loader = loader_of(test)
batch_size = len(test)
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * batch_size))
""",
    "one each": """
batch_size = 1
test_loader = DataLoader(test, batch_size=batch_size)
correct = 0
with torch.no_grad():
    net.eval()
    for x, y in test_loader:
        correct += (net(x).argmax(1) == y).sum().item()
print(correct / (len(test_loader) * batch_size))
""",
}


@pytest.mark.parametrize("text", FULL_BATCHES.values(), ids=FULL_BATCHES)
def test_batches_of_one_or_of_all_are_full(text):
    assert not told("EVAL043", HEAD + "from torch.utils.data import TensorDataset\n" + text)
    eight = text.replace("len(test)", "8").replace("X.shape[0]", "8")
    if eight != text and "def " not in text:
        assert loud("EVAL043", HEAD + "from torch.utils.data import TensorDataset\n" + eight)


VIEWED = {
    "channels first for a convolution": """
class P(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(16, 32, 3)
    def forward(self, x):
        b, t, c = x.shape
        return self.conv(x.view(b, c, t))
""",
    "heads": """
def to_heads(x, heads):
    b, t, d = x.size()
    return x.view(b, heads, t, d // heads)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8); self.k = nn.Linear(8, 8); self.v = nn.Linear(8, 8)
    def forward(self, x):
        q, k, v = [to_heads(f(x), 2) for f in (self.q, self.k, self.v)]
        return F.scaled_dot_product_attention(q, k, v)
""",
    "images of a loop": """
def train(loader, model, opt):
    for images, y in loader:
        n, h, w, c = images.shape
        images = images.reshape(n, c, h, w)
        loss = F.cross_entropy(model(images), y)
        opt.zero_grad(); loss.backward(); opt.step()
""",
    "time first": """
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8)
    def forward(self, batch):
        x = batch["x"]
        x = x.view(x.size(1), x.size(0), x.size(2))
        out, _ = self.rnn(x)
        return out[-1]
""",
    "channels last in a method": """
class S(nn.Module):
    def forward(self, logits):
        B, C, H, W = logits.shape
        return logits.view(B, H, W, C)
def loss_of(net, x, y):
    logits = net(x)
    B, C, H, W = logits.shape
    flat = logits.view(-1, C)
    return F.cross_entropy(flat, y.view(-1))
""",
    "a collate function": """
def collate(batch):
    xs = torch.stack([b[0] for b in batch])
    n, t, f = xs.shape
    return xs.reshape(n, f, t), torch.tensor([b[1] for b in batch])
""",
    "flat rows": """
def f(x, q, heads, ws):
    B, C, H, W = x.shape
    return x.view(-1, C)
""",
    "flat rows, size": """
def f(x, q, heads, ws):
    B, C, T = x.size()
    return F.cross_entropy(x.reshape(-1, C), q)
""",
    "heads out of times": """
def f(x, q, heads, ws):
    b, t, d = x.shape
    return x.view(b, heads, t, d // heads)
""",
}
CUT_IN_ORDER = {
    "heads behind times": """
def f(x, q, heads, ws):
    b, t, d = x.shape
    return x.view(b, t, heads, d // heads).transpose(1, 2)
""",
    "permuted before": """
def f(x, q, heads, ws):
    B, C, H, W = x.shape
    return x.permute(0, 2, 3, 1).reshape(-1, C)
""",
    "rebound": """
def f(x, q, heads, ws):
    b, t, c = x.shape
    x = x.transpose(1, 2)
    return x.reshape(b, c, t)
""",
    "groups": """
def f(x, q, heads, ws):
    b, c, h, w = x.size()
    x = x.view(b, heads, c // heads, h, w).transpose(1, 2)
    return x.reshape(b, c, h, w)
""",
    "windows": """
def f(x, q, heads, ws):
    B, H, W, C = x.shape
    return x.view(B, H // ws, ws, W // ws, ws, C).permute(0, 1, 3, 2, 4, 5)
""",
    "shuffled pixels": """
def f(x, q, heads, ws):
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2)
""",
    "flat tokens": """
def f(x, q, heads, ws):
    b, t, c = x.shape
    return F.cross_entropy(x.view(-1, c), q.view(-1))
""",
    "flat images": """
def f(x, q, heads, ws):
    b, c, h, w = x.shape
    return x.view(b, c, -1)
""",
    "time into batch": """
def f(x, q, heads, ws):
    b, t, c, h, w = x.shape
    return x.view(b * t, c, h, w)
""",
    "another tensor": """
def f(x, q, heads, ws):
    b, t, c = x.shape
    return q.view(b, c, t)
""",
    "an axis more": """
def f(x, q, heads, ws):
    b, t, c = x.shape
    return x.view(b, 1, t, c)
""",
    "times of two": """
def f(x, q, heads, ws):
    b, t = x.shape
    return x.view(-1, t)
""",
    "in turn": """
def f(x, q, heads, ws):
    b, c, n = x.shape
    y = x
    x = q(y)
    return x.view(b, n, c)
""",
}


@pytest.mark.parametrize("text", VIEWED.values(), ids=VIEWED)
def test_axes_that_are_exchanged_by_view_are_named(text):
    assert loud("DATA006", HEAD + text)


@pytest.mark.parametrize("text", CUT_IN_ORDER.values(), ids=CUT_IN_ORDER)
def test_axes_that_are_cut_and_joined_in_their_order_are_not(text):
    assert not loud("DATA006", HEAD + text)


LOGITS = {
    "a partial binds the model": """
import functools
model = nn.Linear(4, 3)
def loss_of(net, batch):
    x, y = batch
    return F.nll_loss(net(x), y)
compute = functools.partial(loss_of, model)
for batch in loader:
    compute(batch).backward()
""",
    "a partial by name": """
from functools import partial
def loss_of(batch, net=None, scale=1.0):
    return scale * F.nll_loss(net(batch[0]), batch[1])
compute = partial(loss_of, net=nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), scale=0.5)
for batch in loader:
    compute(batch).backward()
""",
    "a model that was wrapped before": """
class Cooled(nn.Module):
    def __init__(self, inner, temperature=1.5):
        super().__init__()
        self.inner, self.temperature = inner, temperature
    def forward(self, x):
        return self.inner(x) / self.temperature
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
model = Cooled(model)
def loss_of(batch):
    out = model(batch[0])
    return F.nll_loss(out, batch[1])
""",
    "halved": "loss = F.nll_loss(0.5 * nn.Linear(4, 3)(x), y)",
    "in a loop of a class": """
class Trainer:
    def __init__(self, net):
        self.net = net
        self.loss = partial_loss(self.net)
    def run(self, loader):
        for x, y in loader:
            F.nll_loss(self.net(x) / 2, y).backward()
Trainer(nn.Linear(4, 3)).run(loader)
""",
}
LOGARITHMS = {
    "taken by hand": "out = nn.Linear(4, 3)(x)\nloss = F.nll_loss(out - out.logsumexp(1, keepdim=True), y)",
    "a partial over logarithms": LOGITS["a partial binds the model"].replace(
        "net(x), y", "net(x).log_softmax(1), y"
    ),
    "wrapped anew behind it": LOGITS["a model that was wrapped before"].replace(
        "def loss_of", "model = nn.Sequential(model, nn.LogSoftmax(1))\ndef loss_of"
    ),
    "wrapped anew later": LOGITS["a model that was wrapped before"]
    + "model = nn.Sequential(model, nn.LogSoftmax(1))\n",
}


@pytest.mark.parametrize("text", LOGITS.values(), ids=LOGITS)
def test_logits_in_a_likelihood_are_named_behind_partials_and_wrappers(text):
    assert loud("LOSS003", HEAD + text)


@pytest.mark.parametrize("text", LOGARITHMS.values(), ids=LOGARITHMS)
def test_logarithms_in_a_likelihood_are_not(text):
    assert not loud("LOSS003", HEAD + text)
