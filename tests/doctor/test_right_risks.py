# SPDX-License-Identifier: Apache-2.0
"""Programs of strangers that are right, or that nobody can judge from what is in sight, and beside each a faulty one."""

import pytest

from tests.support.told import loud, told
from truestep.doctor.finding import Severity

# ── DATA001: rows that a class out of sight gives ──────────────────────────────────────────────

TRAINS = """
{head}
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{made}
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
CROPS = "from volumes.data import Crops"
INNER = """
class Turned(torch.utils.data.Dataset):
    def __init__(self, inner):
        self.inner = inner
    def __len__(self):
        return len(self.inner)
    def __getitem__(self, i):
        x, y = self.inner[i]
        return x.flip(0), y
"""
OUT_OF_SIGHT = [
    (CROPS, "loader = DataLoader(Crops(x, y, len_epoch=100), batch_size=4)"),
    (CROPS, "rows = Crops(x, y)\nloader = DataLoader(rows, batch_size=4, num_workers=2)"),
    ("import volumes", "rows = volumes.data.Crops('a.h5')\nloader = DataLoader(dataset=rows, batch_size=4)"),
    (CROPS, "def rows():\n    return Crops(x, y)\nloader = DataLoader(rows(), batch_size=4)"),
    (CROPS, "class Mine(Crops):\n    pass\nloader = DataLoader(Mine(x, y), batch_size=4)"),
    (CROPS, "loader = DataLoader(torch.utils.data.Subset(Crops(x), range(9)), batch_size=4)"),
    (CROPS, "loader = DataLoader(torch.utils.data.ConcatDataset([Crops(x), Crops(y)]), batch_size=4)"),
    (CROPS, "rows = Crops(x) if big else Crops(y)\nloader = DataLoader(rows, batch_size=4)"),
    (
        CROPS,
        "seen, kept = torch.utils.data.random_split(Crops(x), [9, 1])\nloader = DataLoader(seen, batch_size=4)",
    ),
    (CROPS, "rows = {'train': Crops(x), 'val': Crops(y)}\nloader = DataLoader(rows['train'], batch_size=4)"),
    (CROPS, "loader = DataLoader(Crops(x) + Crops(y), batch_size=4)"),
    (f"{CROPS}\n{INNER}", "loader = DataLoader(Turned(Crops(x)), batch_size=4)"),
    (f"{CROPS}\n{INNER}", "rows = Crops(x)\nrows = Turned(rows)\nloader = DataLoader(rows, batch_size=4)"),
    ("from .volumes import Crops", "loader = DataLoader(Crops(x), batch_size=4)"),
    ("from volumes import build", "loader = DataLoader(build(options, split='train'), batch_size=4)"),
]
OWN = """
class Rows(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i]
"""
IN_SIGHT = [
    ("", "loader = DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)"),
    ("from torchvision import datasets", "loader = DataLoader(datasets.MNIST('d'), batch_size=4)"),
    (OWN, "loader = DataLoader(Rows(x), batch_size=4)"),
    (f"{CROPS}\n{OWN}", "loader = DataLoader(torch.utils.data.Subset(Rows(x), range(9)), batch_size=4)"),
    (f"{CROPS}\n{OWN.replace('torch.utils.data.Dataset', 'Crops')}", "loader = DataLoader(Rows(x), batch_size=4)"),
    ("from datasets import load_dataset", "loader = DataLoader(load_dataset('a')['train'], batch_size=4)"),
    ("", "loader = DataLoader(list(zip(x, y)), batch_size=4)"),
    (f"{OWN}\n{INNER}", "loader = DataLoader(Turned(Rows(x)), batch_size=4)"),
    (OWN, "def rows(kind):\n    return Rows(kind)\nloader = DataLoader(rows('train'), batch_size=4)"),
    ("from volumes import Rows" + OWN, "loader = DataLoader(Rows(x), batch_size=4)"),
    (
        "from coding import encode\n" + OWN.replace("self.x = x", "self.x = encode(x)"),
        "loader = DataLoader(Rows(x), batch_size=4)",
    ),
    ("import pandas as pd", "loader = DataLoader(pd.read_csv('a').values, batch_size=4)"),
]  # fmt: skip
DRAWING = """
class Drawn(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x
    def __len__(self):
        return 1000
    def __getitem__(self, _):
        return self.x[torch.randint(len(self.x), (1,))]
"""
DRAWN = [
    "loader = DataLoader(Turned(Drawn(x)), batch_size=4)",
    "loader = DataLoader(Drawn(x), batch_size=4)",
    "loader = DataLoader(torch.utils.data.Subset(Drawn(x), range(9)), batch_size=4)",
    "both = torch.utils.data.ConcatDataset([Drawn(x), Drawn(y)])\nloader = DataLoader(both, batch_size=4)",
    "seen, kept = torch.utils.data.random_split(Drawn(x), [9, 1])\nloader = DataLoader(seen, batch_size=4)",
    "def rows():\n    return Drawn(x)\nloader = DataLoader(rows(), batch_size=4)",
]


@pytest.mark.parametrize(("head", "made"), OUT_OF_SIGHT)
def test_what_a_class_out_of_sight_gives_is_asked_of(head: str, made: str) -> None:
    assert told("DATA001", TRAINS.format(head=head, made=made)) == [Severity.QUESTION]


@pytest.mark.parametrize(("head", "made"), IN_SIGHT)
def test_rows_in_their_order_are_told(head: str, made: str) -> None:
    assert told("DATA001", TRAINS.format(head=head, made=made))


@pytest.mark.parametrize("made", DRAWN)
def test_what_draws_its_own_places_is_silent(made: str) -> None:
    assert not told("DATA001", TRAINS.format(head=DRAWING + INNER, made=made))


def test_a_class_of_another_file_is_in_sight() -> None:
    files = {
        "rows.py": OWN,
        "main.py": TRAINS.format(
            head="from rows import Rows", made="loader = DataLoader(Rows(x), batch_size=4)"
        ),
    }
    assert told("DATA001", files)


# ── GRAD011: a graph that who calls back goes through again and again ──────────────────────────

HEAD = """
from functools import partial
from tkinter import Button
import matplotlib.pyplot as plt
net = nn.Linear(4, 3)
x = torch.randn(1, 4, requires_grad=True)
"""
AGAIN = [
    """
out = net(x)
def explain(event):
    k = int(event.xdata)
    score = out[0, k].sum()
    score.backward(retain_graph=True)
    plt.imshow(x.grad)
plt.gcf().canvas.mpl_connect('button_press_event', explain)
""",
    """
def main():
    def draw(inp, out, k):
        net.zero_grad()
        labels = torch.LongTensor([k])
        loss = torch.mean(F.cross_entropy(out, labels))
        loss.backward(retain_graph=True)
        plt.imshow(inp.grad)
    out = net(x)
    def onclick(e):
        draw(x, out, int(e.xdata))
    plt.gcf().canvas.mpl_connect('button_press_event', onclick)
    plt.show()
main()
""",
    """
class Viewer:
    def __init__(self, net, x):
        self.net, self.x = net, x
        self.out = self.net(self.x)
        plt.gcf().canvas.mpl_connect('key_press_event', self.on_key)
    def on_key(self, event):
        loss = self.out[0, int(event.key)].sum()
        loss.backward(retain_graph=True)
        print(self.x.grad)
Viewer(net, x)
""",
    """
out = net(x)
def explain():
    loss = out.max(1).values.sum()
    loss.backward(retain_graph=True)
    print(x.grad)
Button(root, text='why', command=explain)
""",
    """
out = net(x)
def explain(k):
    loss = out[:, k].sum()
    loss.backward(retain_graph=True)
    print(x.grad)
for k in range(3):
    Button(root, text='why', command=lambda k=k: explain(k))
""",
    """
out = net(x)
def explain(k):
    loss = out[:, k].sum()
    loss.backward(retain_graph=True)
    print(x.grad)
Button(root, text='why', command=partial(explain, 2))
""",
    """
out = net(x)
def update(value):
    loss = (out * value).sum()
    loss.backward(retain_graph=True)
    print(x.grad)
slider.on_changed(update)
""",
    """
out = net(x)
@button.on_click
def explain(event):
    loss = out.sum()
    loss.backward(retain_graph=True)
    print(x.grad)
""",
    """
out = net(x)
def first():
    loss = out[0].sum()
    loss.backward(retain_graph=True)
handlers = {'a': first}
while True:
    handlers[input()]()
""",
]
ONCE = [
    """
def explain(event):
    out = net(x)
    score = out[0, int(event.xdata)].sum()
    score.backward(retain_graph=True)
    plt.imshow(x.grad)
plt.gcf().canvas.mpl_connect('button_press_event', explain)
""",
    """
out = net(x)
loss = out.sum()
loss.backward(retain_graph=True)
print(x.grad)
""",
    """
def predict():
    return net(x)
def onclick(e):
    loss = predict()[0].sum()
    loss.backward(retain_graph=True)
    print(x.grad)
plt.gcf().canvas.mpl_connect('button_press_event', onclick)
""",
    """
def train():
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward(retain_graph=True)
        opt.step()
Button(root, text='train', command=train)
""",
    """
def step(x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward(retain_graph=True)
    opt.step()
Button(root, text='train', command=lambda: step(x, y))
""",
    """
def explain(out):
    loss = out.sum()
    loss.backward(retain_graph=True)
    print(x.grad)
explain(net(x))
""",
]


@pytest.mark.parametrize("program", AGAIN)
def test_a_graph_that_handlers_go_through_at_each_event_is_kept_for_a_reason(program: str) -> None:
    assert not told("GRAD011", HEAD + program)


@pytest.mark.parametrize("program", ONCE)
def test_a_graph_that_is_made_at_each_event_is_kept_without_need(program: str) -> None:
    assert told("GRAD011", HEAD + program)


def test_a_graph_is_kept_for_a_handler_of_another_file() -> None:
    files = {
        "viewing.py": "def explain(out, k):\n    loss = out[:, k].sum()\n    loss.backward(retain_graph=True)\n",
        "main.py": HEAD
        + "from viewing import explain\nout = net(x)\nslider.on_changed(lambda k: explain(out, k))\n",
    }
    assert not told("GRAD011", files)


# ── LOSS011: logarithms that never meet a 0, or that are no tensor's ───────────────────────────

BOUNDED = [
    "p = F.softmax(torch.softmax(net(x), 1), 1)\nloss = -torch.log(p).mean()",
    "p = net(x).softmax(1)\np = F.softmax(p, dim=1)\nloss = F.nll_loss(p.log(), y)",
    "p = torch.sigmoid(torch.sigmoid(net(x)))\nloss = -(y * torch.log(p)).mean()",
    "p = torch.sigmoid(torch.tanh(net(x)))\nloss = -torch.log(p).mean()",
    "p = F.softmax(F.normalize(net(x)), dim=-1)\nloss = -p.log()[0, 1]",
    """
def nll(p, y):
    p = F.softmax(p, dim=1)
    return F.nll_loss(torch.log(p), y)
loss = nll(net(x).softmax(1), y)
""",
    """
def focal(pred, target, classes):
    if classes == 1:
        pred = F.sigmoid(pred)
    else:
        pred = F.softmax(pred, dim=1).float()
    return -(torch.pow(1 - pred, 2) * torch.log(pred) * target).sum()
class Focal(nn.Module):
    def forward(self, pred, target):
        if self.classes == 1:
            pred = F.sigmoid(pred)
        else:
            pred = F.softmax(pred, dim=1).float()
        return focal(pred, target, self.classes)
""",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))
    def forward(self, x):
        return self.body(x)
net = Net()
loss = -F.softmax(net(x), 1).log().mean()
""",
    "act = nn.Softmax(dim=1)\nloss = -act(act(net(x))).log().mean()",
    "loss = -nn.Softmax(1)(nn.Softmax(1)(net(x))).log().mean()",
    "import triton.language as tl\nf = tl.log(tl.sigmoid(tl.load(p)))",
    "import jax, jax.numpy as jnp\nf = jnp.log(jax.nn.softmax(z))",
    "import numpy as np\nfrom scipy.special import softmax\nf = np.log(softmax(z))",
    "import tensorflow as tf\nf = tf.math.log(tf.nn.softmax(z))",
    """
def step(i, f, m):
    with torch.no_grad():
        log_f = torch.log(torch.sigmoid(f))
        new = torch.maximum(log_f + m, i)
        return torch.exp(log_f + m - new), new
""",
    """
@torch.no_grad()
def step(i, f, m):
    log_f = f.sigmoid().log()
    return torch.logaddexp(log_f + m, i)
""",
]
UNBOUNDED = [
    "p = F.softmax(net(x), 1)\nloss = -torch.log(p).mean()",
    "p = net(x).softmax(1)\nloss = F.nll_loss(p.log(), y)",
    "p = F.softmax(F.normalize(net(x)) / 0.01, dim=-1)\nloss = -p.log()[0, 1]",
    "act = nn.Softmax(dim=1)\nloss = -act(net(x)).log().mean()",
    "body = nn.Sequential(nn.Sigmoid(), nn.Linear(4, 3), nn.Softmax(1))\nloss = -body(torch.tanh(x)).log().mean()",
    "p = F.softmax(F.relu(net(x)), dim=-1)\nloss = -p.log()[0, 1]",
    "with torch.no_grad():\n    z = teacher(x)\np = net(x).softmax(1)\nloss = -(z.softmax(1) * p.log()).sum()",
    "with torch.no_grad():\n    z = teacher(x)\nloss = -(z + net(x)).softmax(1).log().mean()",
    "with torch.no_grad():\n    z = teacher(x)\ns = net(x) - z\nloss = -F.softmax(s, 1).log().mean()",
    """
def nll(p, y):
    p = F.softmax(p, dim=1)
    return F.nll_loss(torch.log(p), y)
loss = nll(net(x), y)
""",
    """
def nll(p, y):
    p = F.softmax(p, dim=1)
    return F.nll_loss(torch.log(p), y)
loss = nll(net(x).softmax(1), y) + nll(net(x), y)
""",
    """
def step(i, f, m):
    log_f = torch.log(torch.sigmoid(f))
    new = torch.maximum(log_f + m, i)
    return torch.exp(log_f + m - new), new
""",
]
FIGURES = [
    "with torch.no_grad():\n    p = net(x).softmax(1)\n    entropy = -(p * p.log()).sum()\n",
    "@torch.no_grad()\ndef entropy(x):\n    p = torch.sigmoid(net(x))\n    return -(p * torch.log(p)).sum().item()\n",
    "def seen(x):\n    with torch.inference_mode():\n        return F.softmax(net(x), -1).log().mean().exp().item()\n",
    # a teacher's shares, whose logarithm a student's loss is compared with
    "with torch.no_grad():\n    q = teacher(x).softmax(1)\nloss = (q * (q.log() - net(x).log_softmax(1))).sum()\n",
    "with torch.no_grad():\n    z = teacher(x)\nq = F.softmax(z / T, dim=-1)\nloss = -(q * q.log()).sum()\n",
    "with torch.no_grad():\n    z = teacher(x)\nloss = F.mse_loss(net(x), torch.log(torch.softmax(z, 1)))\n",
]


@pytest.mark.parametrize("program", BOUNDED)
def test_a_logarithm_that_meets_no_0_is_silent(program: str) -> None:
    assert not loud("LOSS011", program)


@pytest.mark.parametrize("program", FIGURES)
def test_a_logarithm_in_a_figure_is_advised(program: str) -> None:
    assert told("LOSS011", program) == [Severity.ADVICE]


@pytest.mark.parametrize("program", UNBOUNDED)
def test_a_logarithm_of_what_can_be_0_is_told(program: str) -> None:
    assert loud("LOSS011", program)


# ── SAVE005: notebooks of one run ──────────────────────────────────────────────────────────────

KEEPS = """
net = nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters())
{before}
for epoch in range({first}, 10):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    {saved}
"""
SAVED = [
    "torch.save({'net': net.state_dict(), 'epoch': epoch}, f'{epoch}.pt')",
    "kept = dict(a=net.state_dict(), epoch=epoch)\n    kept = {'m': net.state_dict(), 'epoch': epoch}\n    torch.save(kept, 'a')",
    "state = {'model': net.state_dict(), 'epoch': epoch}\n    torch.save(state, 'checkpoints/last.pt')",
]  # fmt: skip
RESUMED = [
    "state = torch.load('last.pt')\nnet.load_state_dict(state['net'])\nfirst = state['epoch']",
    "first = restore(net)",
    "def go_on(at):\n    old = torch.load(at)\n    net.load_state_dict(old['net'])\n    return old['epoch']\nfirst = go_on('a')",
]  # fmt: skip


@pytest.mark.parametrize("saved", SAVED)
def test_what_a_program_keeps_that_never_resumes_is_advice(saved: str) -> None:
    program = KEEPS.format(before="", first=0, saved=saved)
    assert told("SAVE005", {"main.ipynb": program}) == [Severity.ADVICE]
    assert told("SAVE005", {"main.py": program}) == [Severity.ADVICE]


OTHERS_LOADED = [
    "net.load_state_dict(torch.load('pretrained.pt'))",
    "data = torch.load('data.pt')",
    "net = AutoModel.load('zoo')",
    "rows = np.load('rows.npy')\nnet.load_state_dict(torch.hub.load_state_dict_from_url(URL))",
    "best = torch.load('best.pt')\nnet.load_state_dict(best['net'])\nprint(best['epoch'])",
]


@pytest.mark.parametrize("before", OTHERS_LOADED)
def test_what_a_notebook_loads_that_is_no_training_leaves_it_advice(before: str) -> None:
    program = KEEPS.format(before=before, first=0, saved=SAVED[0])
    assert told("SAVE005", {"main.ipynb": program}) == [Severity.ADVICE]


@pytest.mark.parametrize("before", RESUMED)
def test_what_a_notebook_goes_on_from_is_told(before: str) -> None:
    program = KEEPS.format(before=before, first="first", saved=SAVED[0])
    assert loud("SAVE005", {"main.ipynb": program})


# ── PARAM035, EVAL009: what was false or weak in code of strangers ───────────────────

AGENT = """
class Agent:
    def __init__(self):
        self.policy = nn.Linear(4, 2)
        self.target = nn.Linear(4, 2)
        self.counter = {start}
        self.opt = torch.optim.Adam(self.policy.parameters())
    def learn(self, x, n, r):
        {first}
        loss = F.mse_loss(self.policy(x), r + self.target(n).detach())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        {last}
"""
COPY = "self.target.load_state_dict(self.policy.state_dict())"
COPIED_FIRST = [
    (0, f"if self.counter % 100 == 0:\n            {COPY}\n        self.counter += 1", "pass"),
    (0, f"if self.counter % EVERY == 0:\n            {COPY}", "self.counter += 1"),
    (0, f"if not self.counter % 100:\n            {COPY}", "self.counter = self.counter + 1"),
    (0, COPY, "pass"),
    (0, f"with torch.no_grad():\n            {COPY}", "self.counter += 1"),
]
COPIED_LATE = [
    (1, f"if self.counter % 100 == 0:\n            {COPY}\n        self.counter += 1", "pass"),
    (0, f"self.counter += 1\n        if self.counter % 100 == 0:\n            {COPY}", "pass"),
    (0, "pass", f"if self.counter % 100 == 0:\n            {COPY}\n        self.counter += 1"),
    (0, "self.counter += 1", COPY),
]


@pytest.mark.parametrize(("start", "first", "last"), COPIED_FIRST)
def test_a_target_that_is_copied_before_its_first_use_is_silent(start: int, first: str, last: str) -> None:
    assert not loud("PARAM035", AGENT.format(start=start, first=first, last=last))


@pytest.mark.parametrize(("start", "first", "last"), COPIED_LATE)
def test_a_target_that_is_used_before_it_is_copied_is_told(start: int, first: str, last: str) -> None:
    assert loud("PARAM035", AGENT.format(start=start, first=first, last=last))


def test_a_train_of_its_own_is_a_risk_only_where_something_is_evaluated() -> None:
    agent = "class Agent(nn.Module):\n    def train(self):\n        self.step()\n"
    assert told("EVAL009", agent + "Agent().train()\n") == [Severity.ADVICE]
    assert loud("EVAL009", agent + "agent = Agent()\nagent.eval()\n")
    files = {"agent.py": agent, "main.py": "from agent import Agent\nagent = Agent()\nagent.eval()\n"}
    assert loud("EVAL009", files)
