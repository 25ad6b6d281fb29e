# SPDX-License-Identifier: Apache-2.0
"""Right programs in the forms of strangers that a check took for its mistake, and the plain mistake beside them."""

import textwrap

import pytest

from truestep.doctor.finding import Severity
from truestep.doctor.read import read_text, read_texts

IMPORTS = """
import copy, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
"""
LOUD = (Severity.BUG, Severity.RISK)


def told(code: str, text: str | dict[str, str]) -> list[Severity]:
    """Return how a code is told of a program, of one file or several."""
    files = {"main.py": text} if isinstance(text, str) else text
    reading = read_texts({name: IMPORTS + textwrap.dedent(each) for name, each in files.items()})
    assert not reading.failures
    return [each.severity for each in reading.findings if each.code == code]


def loud(code: str, text: str | dict[str, str]) -> bool:
    return any(each in LOUD for each in told(code, text))


# ── SAVE005: what is saved besides, and who goes on from it ───────────────────────────────────

LOOP = """
def fit(net, opt, loader, score, start=0):
    best = 0.0
    for epoch in range(start, 9):
        for i, (x, y) in enumerate(loader):
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
{save}
"""
KEPT = "        if score(net) > best:\n            torch.save({'net': net.state_dict(), 'epoch': epoch, 'step': i}, 'best.pt')"
EACH = "        torch.save({'net': net.state_dict(), 'epoch': epoch}, 'last.pt')"
RESUME = "saved = torch.load('best.pt')\nnet.load_state_dict(saved['net'])\nfit(net, opt, loader, score, {start})\n"


def saved(save: str, behind: str = "") -> str:
    return LOOP.format(save=save) + behind


def every_epoch(entry: str) -> str:
    """Return a loop that saves a dict with an epoch and another entry, of an optimizer that is made in sight."""
    made = "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nsolver = torch.optim.Adam(net.parameters())\n"
    return made + textwrap.dedent(f"""
        for epoch in range(9):
            for x, y in loader:
                opt.zero_grad()
                F.mse_loss(net(x), y).backward()
                opt.step()
            torch.save({{'net': net.state_dict(), 'epoch': epoch, {entry}}}, 'last.pt')
        """)


OPTIMIZERS_SAVED = (
    "'optimizer': opt",
    "'solver': solver",
    "'all': [opt, solver]",
    "'by': {'a': opt}",
    "'averages': opt.state",
)
NOTES = (
    "def check(config, path):\n    net = load_model(config, path)\n    print(net)\n",
    "saved = torch.load('best.pt')\nprint('epoch', saved['epoch'])\n",
    "saved = torch.load('best.pt')\nprint(f'{saved[\"epoch\"]} at {saved[\"step\"]}')\n",
    "saved = torch.load('best.pt')\nlogger.info('best of %d', saved.get('epoch'))\n",
    "metrics = read_metrics()\nplot(metrics['step'])\n",
    "class Own(torch.optim.Optimizer):\n    def step(self):\n        state = self.state[p]\n        p.add_(1 / state['step'])\n",
    "saved = torch.load('best.pt')\nepoch = saved['epoch']\nprint(epoch)\n",
)  # fmt: skip
STARTS = ("saved['epoch'] + 1", "saved.get('epoch', 0)", "int(saved['epoch'])")


@pytest.mark.parametrize("entry", OPTIMIZERS_SAVED)
def test_an_optimizer_that_is_saved_itself(entry: str) -> None:
    assert not told("SAVE005", every_epoch(entry))
    assert loud("SAVE005", every_epoch("'lr': 0.1"))


@pytest.mark.parametrize("behind", NOTES)
def test_a_counter_that_is_a_note_beside_the_best_weights(behind: str) -> None:
    assert not loud("SAVE005", saved(KEPT, behind))


@pytest.mark.parametrize("test", ["score(net) > best", "best < score(net)", "acc >= self.best"])
def test_the_best_weights_of_every_hundredth_step(test: str) -> None:
    kept = "            if i % 100 == 0:\n                if TEST:\n"
    kept += "                    torch.save({'net': net.state_dict(), 'step': i}, 'best.pt')"
    assert not loud("SAVE005", saved(kept.replace("TEST", test)))
    assert loud("SAVE005", saved(kept.replace("TEST", "net is not None")))


@pytest.mark.parametrize("start", STARTS)
def test_a_counter_that_a_run_goes_on_from(start: str) -> None:
    assert loud("SAVE005", saved(KEPT, RESUME.format(start=start)))
    assert loud("SAVE005", saved(EACH))


# ── EVAL031, EVAL003, PARAM005, SAVE013: which object, and what of it ─────────────────────────

CRITIC = (
    "critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))\nout = critic(torch.ones(2, 3))\n"
)
VALUES = (
    "target = 0.9 * out.max(1)[0]",
    "target = out.detach().max(1).values",
    "target, _ = out.max(1)",
    "target = torch.max(out, dim=1)[0]",
    "top = out.max(1)\ntarget = top[0]",
    "target, where = torch.max(out, 1)\nprint(target)",
)
INDICES = (
    "pred = out.max(1)[1]",
    "pred = out.max(1).indices",
    "_, pred = torch.max(out, 1)\nprint(pred)",
    "_, pred = torch.max(out.data, 1)\nright = (pred == y).sum()",
    "top = out.max(1)\npred = top[1]",
    "pred = out.max(1)[-1]",
)


@pytest.mark.parametrize("used", VALUES)
def test_the_largest_value_of_one_output_is_that_value(used: str) -> None:
    assert not told("EVAL031", CRITIC + used)


@pytest.mark.parametrize("used", INDICES)
def test_the_index_of_the_largest_of_one_output(used: str) -> None:
    assert loud("EVAL031", CRITIC + used)


NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    def forward(self, x):
        return self.body(x)
"""
OWN_NETS = (
    "net = Net().eval()",
    "net = Net()\n    net.eval()",
    "net = Net().to('cpu')\n    net.load_state_dict(torch.load(path))\n    net = net.eval()",
    "net = torch.load(path)\n    net.eval()",
    "net = nn.DataParallel(Net())\n    net.eval()",
)
IN_BATCHES = """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(5):
    net.train()
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
        if i % 100 == 0:
            print(score({given}, held))
"""


@pytest.mark.parametrize("own", OWN_NETS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_function_that_evaluates_a_net_of_its_own(own: str, apart: bool) -> None:
    score = (
        f"\ndef score(path, batch):\n    {own}\n    with torch.no_grad():\n        return net(batch).mean()\n"
    )
    loop = IN_BATCHES.format(given="'net.pt'")
    files = {
        "main.py": "from judge import score\nfrom net import Net\n" + loop,
        "net.py": NET,
        "judge.py": "from net import Net\n" + score,
    }
    assert not told("EVAL003", files if apart else NET + score + loop)


def test_a_function_that_evaluates_the_net_that_is_trained() -> None:
    score = "\ndef score(net, batch):\n    net.eval()\n    with torch.no_grad():\n        return net(batch).mean()\n"
    assert loud("EVAL003", NET + score + IN_BATCHES.format(given="net"))


REPLACED = """
model = resnet18()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(x).sum().backward()
opt.step()
{between}
model.fc = nn.Linear(512, 10)
"""
ANOTHER_MODEL = (
    "model = resnet18()",
    "model = resnet18()\nfor p in model.parameters():\n    p.requires_grad = False",
    "del model\nmodel = resnet18(weights=None)",
    "model = copy.deepcopy(old)",
    "model, extra = build()",
    "for model in models:\n    break",
)


@pytest.mark.parametrize("between", ANOTHER_MODEL)
def test_a_layer_of_another_model_of_the_name(between: str) -> None:
    head = "from torchvision.models import resnet18\n"
    assert not told("PARAM005", head + REPLACED.format(between=between))
    assert loud("PARAM005", head + REPLACED.format(between="model.eval()"))


PHASES = """
def fit(net, opt, loaders, epochs):
    best, best_acc = None, 0.0
    for epoch in range(epochs):
        for phase in ["train", "val"]:
            for x, y in loaders[phase]:
                loss = F.mse_loss(net(x), y)
                if phase == "train":
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
            acc = -loss.item()
{keep}
    net.load_state_dict(best)
"""
LAST = (
    'if phase == "val":\n    best = net.state_dict()',
    'if phase != "train":\n    best = net.state_dict()',
    'if phase == "train":\n    pass\nelse:\n    best = net.state_dict()',
    'if "val" == phase:\n    best = net.state_dict()',
    'if phase in ("val", "test"):\n    best = net.state_dict()',
)
BEST = (
    'if phase == "val" and acc > best_acc:\n    best = net.state_dict()',
    'if phase == "val":\n    if acc > best_acc:\n        best_acc, best = acc, net.state_dict()',
)


@pytest.mark.parametrize("keep", LAST)
def test_the_last_weights_are_kept_after_each_phase(keep: str) -> None:
    assert not loud("SAVE013", PHASES.format(keep=textwrap.indent(keep, " " * 12)))


@pytest.mark.parametrize("keep", BEST)
def test_the_best_weights_of_a_phase_are_shared(keep: str) -> None:
    assert loud("SAVE013", PHASES.format(keep=textwrap.indent(keep, " " * 12)))


# ── VALUE040: the other branch, and what a page leaves out ────────────────────────────────────

CLASSES = """
class Plain(nn.Module):
    def loss(self, u, p, n):
        return (u - p + n).sum()
class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def loss(self, u, high, low, n):
        return (u - high - low + n).sum()
class One:
    def __init__(self, model):
        self.model = model
    def step(self, u, p, n):
        return self.model.loss(u, p, n)
steer = len(sys.argv) > 1
model = Plain()
"""
BRANCHES = (
    "if steer:\n    model = Wrapped(model)\n    job = None\nelse:\n    job = One(model)",
    "if steer:\n    model = Wrapped(model)\nelif len(sys.argv) > 2:\n    job = One(model)",
    "if not steer:\n    job = One(model)\nelse:\n    model = Wrapped(model)",
    "if steer:\n    if sys.argv[2:]:\n        model = Wrapped(model)\nelse:\n    with torch.no_grad():\n        job = One(model)",
    "if steer:\n    model = Wrapped(model)\nelse:\n    for i in range(3):\n        job = One(model)",
)


@pytest.mark.parametrize("branch", BRANCHES)
def test_what_the_other_branch_made_is_not_here(branch: str) -> None:
    assert not told("VALUE040", CLASSES + branch)
    inside = "def main(steer):\n    model = Plain()\n" + textwrap.indent(branch, "    ") + "\nmain(True)\n"
    assert not told("VALUE040", CLASSES.replace("\nmodel = Plain()", "") + inside)


def test_what_may_come_before_is_held_against_the_call() -> None:
    assert loud("VALUE040", CLASSES + "model = Wrapped(model)\njob = One(model)\njob.step(1, 2, 3)")


LEFT_OUT = ("# ... same as above", "# same arguments as before", "...,", "# …", "# etc.", "# other options")


@pytest.mark.parametrize("place", LEFT_OUT)
def test_a_page_that_leaves_arguments_out(place: str) -> None:
    made = "```python\nimport torch\ndef wave(net, dim, text):\n    return net\n```\n"
    page = f"```python\nimport torch\nw = wave(\n    {place}\n    NAMED\n)\n```\n"
    named = "1" if place == "...," else "text=True"
    reading = read_text(made + page.replace("NAMED", named), "README.md")
    assert not [each for each in reading.findings if each.code == "VALUE040"]


CRITERIA = (
    "criterion = nn.CrossEntropyLoss()",
    "criterion = nn.MSELoss(reduction='sum').cuda()",
    "criterion = nn.BCELoss() if n else nn.L1Loss()",
)
GIVEN = {
    "criterion(net(x), y)": False,
    "criterion(*pair)": False,
    "criterion(input=x, target=y)": False,
    "criterion(net(x))": True,
}


@pytest.mark.parametrize("made", CRITERIA)
@pytest.mark.parametrize("called", GIVEN)
def test_a_loss_of_torch_that_is_given_no_target(made: str, called: str) -> None:
    assert loud("VALUE040", f"{made}\nfor x, y in loader:\n    {called}.backward()\n") is GIVEN[called]
    made_here = made.replace("criterion", "self.criterion")
    held = "class Loss(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
    held += f"        {made_here}\n"
    held += f"    def forward(self, net, x, y, pair):\n        return self.{called}\n"
    assert loud("VALUE040", held) is GIVEN[called]


def test_a_loss_that_is_made_with_one_argument_and_one_of_the_authors() -> None:
    own = "class OneLoss(nn.Module):\n    def forward(self, x):\n        return x.mean()\n"
    assert not told(
        "VALUE040", own + "criterion = OneLoss()\ncriterion(x)\nother = nn.CrossEntropyLoss(weights)\n"
    )


# ── VALUE001, PARAM038: what is left over ─────────────────────────────────────────────────────

FORWARD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x, specs):
{body}
"""
LEFT_OVER = (
    "residual = x\nx = self.one(self.norm(x))  # + residual)\nreturn x",
    "backup = x\nreturn self.two(self.one(x))",
    "for channels in specs:\n    x = self.one(x)\n    last_channels = channels\nreturn x",
    "res_in = x\nx = self.one(x)# + res_in)\nreturn self.two(x)",
    "skip = x\n# x = x + skip\nreturn self.two(self.one(x))",
)


@pytest.mark.parametrize("body", LEFT_OVER)
def test_a_name_that_is_left_over_without_an_effect(body: str) -> None:
    assert not loud("VALUE001", FORWARD.format(body=textwrap.indent(body, " " * 8)))


def test_a_new_value_that_is_lost() -> None:
    body = "        w = x.softmax(-1)\n        x = x.masked_fill(specs, 0.0)\n        return w\n"
    assert loud("VALUE001", FORWARD.format(body=body))


UNFINISHED = (
    "pass",
    "...",
    '"""To be written."""',
    "raise NotImplementedError",
    "raise NotImplementedError('later')",
    "return",
)
SHAPED = """
class Shaped(nn.Module):
    def __init__(self, {option}):
        super().__init__()
        {stored}
    def forward(self, x, y):
        {body}
"""  # fmt: skip


@pytest.mark.parametrize("body", UNFINISHED)
def test_a_class_that_is_not_written_yet_ignores_nothing(body: str) -> None:
    stored = "self.beta = beta"
    assert not told("PARAM038", SHAPED.format(option="beta", stored=stored, body=body))
    assert loud("PARAM038", SHAPED.format(option="beta", stored=stored, body="return F.mse_loss(x, y)"))


@pytest.mark.parametrize(
    "use", ["# self.drop = nn.Dropout(p=dropout_rate)", "# self.drop = nn.Dropout(dropout_rate)"]
)
def test_an_option_whose_use_is_commented_out_and_that_nobody_gives(use: str) -> None:
    text = SHAPED.format(option="dropout_rate=0.3", stored=use, body="return F.mse_loss(x, y)")
    assert not loud("PARAM038", text)
    assert loud("PARAM038", text + "loss = Shaped(dropout_rate=0.5)\n")


# ── PARAM035, SAVE001, VALUE012: what the caller did ──────────────────────────────────────────

LEARNER = """
class Learner:
    def __init__(self, net, target_net):
        self.net, self.count = net, 0
        self.net = net
        self.target_net = target_net
    def update(self):
        self.target_net.load_state_dict(self.net.state_dict())
"""
AGENT = """class Agent:
    def __init__(self):
        self.net = nn.Linear(2, 1)
        self.target_net = nn.Linear(2, 1)
        {copy}
        self.learner = Learner(self.net, self.target_net)"""
OWNERS = (
    "net = nn.Linear(2, 1)\ntarget_net = nn.Linear(2, 1)\n{copy}\nlearner = Learner(net, target_net)",
    "def main():\n    net = nn.Linear(2, 1)\n    target_net = nn.Linear(2, 1)\n    {copy}\n    return Learner(net, target_net)",
    AGENT,
    "online = nn.Linear(2, 1)\nslow = nn.Linear(2, 1)\n{copy}\nlearner = Learner(online, target_net=slow)",
)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("apart", [False, True])
def test_the_owner_copies_what_it_hands_on(owner: str, apart: bool) -> None:
    copied = "target_net.load_state_dict(net.state_dict())"
    if "self.net" in owner:
        copied = "self.target_net.load_state_dict(self.net.state_dict())"
    if "online" in owner:
        copied = "slow.load_state_dict(online.state_dict())"
    text = owner.format(copy=copied) + "\n"
    files = {"main.py": "from learner import Learner\n" + text, "learner.py": LEARNER}
    assert not told("PARAM035", files if apart else LEARNER + text)


GIVES = (
    "best_model = copy.deepcopy(net.state_dict())",
    "best_model = net.state_dict()",
    "best_model = {k: v.clone() for k, v in net.state_dict().items()}",
    "best_model = copy.deepcopy(net).state_dict()",
    "best_model = copy.copy(net.state_dict())",
)
KEEP = "def keep(net, best_model):\n    torch.save(net.state_dict(), 'last.pt')\n    torch.save(best_model, 'best.pt')\n"


@pytest.mark.parametrize("gives", GIVES)
def test_a_state_by_the_name_of_a_model(gives: str) -> None:
    fit = f"def fit(net):\n    {gives}\n    return net, best_model\n"
    run = "def run(net):\n    net, best_model = fit(net)\n    keep(net, best_model)\nrun(nn.Linear(2, 1))\n"
    assert not told("SAVE001", {"keep.py": KEEP, "main.py": "from keep import keep\n" + fit + run})
    assert not told("SAVE001", KEEP + fit + run)


def test_a_model_that_is_returned_and_saved_whole() -> None:
    fit = "def fit(net):\n    best_model = copy.deepcopy(net)\n    return net, best_model\n"
    run = "def run(net):\n    net, best_model = fit(net)\n    keep(net, best_model)\nrun(nn.Linear(2, 1))\n"
    assert loud("SAVE001", KEEP + fit + run)


CROSS = "def cross(y_pred, y_true):\n    return ((1 - 2 * y_true) * y_pred).logsumexp(-1).mean()\n"
TWICE = "def loss_fun(y_true, y_pred):\n    return cross(y_true, y_pred)\n"
GIVEN_TWICE = (
    "logits, labels",
    "outputs, targets",
    "net(x), y",
    "y_pred, y_true",
    "pred, target",
    "scores, gt",
)


@pytest.mark.parametrize("given", GIVEN_TWICE)
def test_what_is_exchanged_twice_is_right(given: str) -> None:
    loop = f"for x, y in loader:\n    loss_fun({given}).backward()\n"
    assert not told("VALUE012", CROSS + TWICE + loop)
    assert loud("VALUE012", CROSS + TWICE)
    first, second = given.rsplit(", ", 1)
    assert loud(
        "VALUE012", CROSS + TWICE + f"for x, y in loader:\n    loss_fun({second}, {first}).backward()\n"
    )


# ── SCHED009, GRAD011, DATA019: what comes before ─────────────────────────────────────────────

STEPPED = """
from transformers import get_linear_schedule_with_warmup
def fit(net, opt, train_dataloader, epochs):
    {total}
    sched = get_linear_schedule_with_warmup(opt, {given})
    for epoch in range(epochs):
        for i, (x, y) in enumerate(train_dataloader):
            (F.mse_loss(net(x), y) / 2).backward()
            if (i + 1) % 2 == 0:
                opt.step()
                sched.step()
                opt.zero_grad()
"""
TOTALS = (
    "total = (len(train_dataloader) // 2) * epochs\n    warm = int(0.1 * total)",
    "half = len(train_dataloader) // 2\n    total = half * epochs\n    warm = total // 10",
    "total = len(train_dataloader) * epochs / 2\n    warm = int(total * 0.1)",
    "steps = len(train_dataloader)\n    updates = steps // 2\n    total = updates * epochs\n    warm = int(0.1 * total)",
    "import math\n    total = math.ceil(len(train_dataloader) / 2) * epochs\n    warm = int(0.1 * total)",
)


@pytest.mark.parametrize("total", TOTALS)
def test_batches_that_are_divided_further_back(total: str) -> None:
    given = "num_warmup_steps=warm, num_training_steps=total"
    assert not told("SCHED009", STEPPED.format(total=total, given=given))


def test_batches_that_nothing_divides() -> None:
    total = "total = len(train_dataloader) * epochs\n    warm = int(0.1 * total)"
    given = "num_warmup_steps=warm, num_training_steps=total"
    assert loud("SCHED009", STEPPED.format(total=total, given=given))


MAPS = """
class Maps:
    def forward(self, image):
        self.image = image.requires_grad_()
        {made}
    def backward(self, i):
        {back}
"""
BACK = (
    ("self.out = self.net(image)", "self.out.backward(gradient=torch.eye(9)[i:i + 1], retain_graph=True)"),
    ("self.out = self.net(image)", "self.out[0, i].backward(retain_graph=True)"),
    (
        "self.out = self.net(image).softmax(1)",
        "score = self.out[:, i].sum()\n        score.backward(retain_graph=True)",
    ),
    ("self.losses = self.net(image).mean(0)", "self.losses[i].backward(retain_graph=True)"),
    ("self.logits = self.net(image)", "(self.logits * F.one_hot(i, 9)).sum().backward(retain_graph=True)"),
)


@pytest.mark.parametrize(("made", "back"), BACK)
def test_a_graph_that_another_method_made_is_the_callers(made: str, back: str) -> None:
    assert not told("GRAD011", MAPS.format(made=made, back=back))


def test_a_graph_that_is_made_and_left_here() -> None:
    losses = "def of_net(net, x):\n    return net(x).mean()\n"
    twice = "def twice(net, x):\n    one, two = of_net(net, x), of_net(net, x + 1)\n    one.backward(retain_graph=True)\n"
    assert loud("GRAD011", losses + twice + "    two.backward(retain_graph=True)\n")
    text = "def once(net, x):\n    loss = net(x).mean()\n    loss.backward(retain_graph=True)\n"
    assert loud("GRAD011", text)


TRANSFORMS = "from torchvision import datasets\nfrom torchvision import transforms as T\nside = 32\n"
FIXED = (
    "T.Resize(side), T.RandomCrop(side), T.ToTensor()",
    "T.Resize((32, 32)), T.RandomCrop(32), T.ToTensor()",
    "T.Resize(side), T.RandomCrop((side, side)), T.ToTensor()",
    "T.RandomCrop(32), T.ToTensor()",
    "T.Scale(side), T.RandomCrop(side), T.ToTensor()",
    "T.Resize((side, side)), T.ToTensor(), T.RandomCrop(side)",
)
RANDOM = (
    "T.Resize(40), T.RandomCrop(side)",
    "T.Resize(32), T.RandomCrop(32, padding=4)",
    "T.RandomHorizontalFlip()",
)


@pytest.mark.parametrize("parts", FIXED)
def test_a_crop_of_the_whole_picture_changes_nothing(parts: str) -> None:
    made = f"data = datasets.CIFAR10('d', train=False, transform=T.Compose([{parts}]))\n"
    assert not told("DATA019", TRANSFORMS + made)


@pytest.mark.parametrize("parts", RANDOM)
def test_a_crop_of_a_part_does(parts: str) -> None:
    made = f"data = datasets.CIFAR10('d', train=False, transform=T.Compose([{parts}]))\n"
    assert loud("DATA019", TRANSFORMS + made)


# ── DEV005, VALUE041, VALUE030: what is never read, run or harmful ────────────────────────────

DEMONSTRATED = (
    "row.expand(1, 1, 2)  # tensor([[[1.3, 1.3]]])\nprint(row)",
    "row.repeat(1, 1, 2)\nrow = torch.rand(2, 4)\nprint(row)",
    "row.expand(1, 1, 2)\nrow.repeat(1, 1, 2)\nrow = torch.rand(2, 4)\nprint(row)",
    "row.unsqueeze(0)  # torch.Size([1, 1, 1, 1])\nprint(row)",
    "row.cpu()",
)


@pytest.mark.parametrize("lines", DEMONSTRATED)
def test_a_line_that_demonstrates(lines: str) -> None:
    assert not loud("DEV005", f"row = torch.randn(1, 1, 1)\n{lines}\n")


@pytest.mark.parametrize("call", ["row.cpu()", "row.cuda()", "row.double()"])
def test_a_result_that_is_dropped_where_the_tensor_is_used(call: str) -> None:
    row = "row = torch.randn(1, 1, 1)\n"
    assert loud("DEV005", f"{row}{call}\nprint(row)\n")
    assert loud("DEV005", f"{row}for i in range(3):\n    print(row)\n    {call}\n")


NEVER_RUN = (
    "if False:\n        print(nowhere)",
    "if net.training and False:\n        print(nowhere)",
    "if False and net.training:\n        print(nowhere)",
    "while False:\n        print(nowhere)",
    "return net\n    print(nowhere)",
    "print(nowhere) if False else None",
    "for i in range(3):\n        continue\n        print(nowhere)",
    "if 0:\n        print(nowhere)",
)


@pytest.mark.parametrize("lines", NEVER_RUN)
def test_a_name_in_lines_that_never_run(lines: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run.py"

    def names(body: str) -> list[str]:
        text = f"import torch\ndef run(net):\n    {body}\n"
        path.write_text(text)
        return [each.code for each in read_text(text, str(path)).findings if each.code == "VALUE041"]

    assert names(lines) == []
    assert names("print(nowhere)") == ["VALUE041"]


READ_FIRST = (
    "images = images.cuda()",
    "if net:\n            images = images.cuda()",
    "print(images)\n        images = x",
    "images += x",
)
LATER = (
    "if i > 0:\n            print(images)\n        images = x",
    "images = x\n        print(images)",
    "images = [images for images in x]",
)


@pytest.mark.parametrize("body", [*READ_FIRST, *LATER])
def test_a_name_of_a_function_that_is_read_before_it_is_given_a_value(body: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run.py"
    path.write_text(
        f"import torch\ndef run(net, loader):\n    for i, x in enumerate(loader):\n        {body}\n"
    )
    found = [each.code for each in read_text(path.read_text(), str(path)).findings if each.code == "VALUE041"]
    assert found == ["VALUE041"] * (body in READ_FIRST)


HARMLESS = (
    '"{}_{}.log".format(name, time.strftime("%Y"), time.localtime)',
    '"outputs/watercolor/found.pkl".format(domain)',
    '"{}.log".format(name, print)',
    '"runs/{}/net.pt".format(name, time)',
    '"runs/watercolor_net.pt".format("watercolor")',
)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_dropped_value_that_told_nothing(text: str) -> None:
    assert not loud("VALUE030", f"name, domain = sys.argv[1], 'watercolor'\npath = {text}\n")


@pytest.mark.parametrize("text", ['"net.pt".format(epoch)', '"{}-{}.log".format(name, epoch, epoch + 1)'])
def test_a_dropped_value_that_told_files_apart(text: str) -> None:
    assert loud("VALUE030", f"name = sys.argv[1]\nfor epoch in range(3):\n    torch.save(net, {text})\n")


# ── SAVE011: another arm loads for itself ─────────────────────────────────────────────────────

SAVED = """
net = nn.Linear(2, 1)
opt = torch.optim.Adam(net.parameters())
mode = sys.argv[1]
{arms}
"""
TRAINS = """
saved = torch.load("c.pt")
net.load_state_dict(saved["net"])
opt.load_state_dict(saved["opt"])
for epoch in range(saved["epoch"], 9):
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "c.pt")
"""
TESTS = "saved = torch.load('c.pt')\nnet.load_state_dict(saved['net'])\nprint(net.eval()(torch.rand(1, 2)))\n"
ARMS = (
    "if mode == 'train':\n{train}elif mode == 'test':\n{test}",
    "if mode == 'test':\n{test}else:\n{train}",
    "if mode == 'train':\n{train}\nif mode == 'test':\n{test}",
    "if mode != 'test':\n    if True:\n        pass\n{train}else:\n    print(mode)\n{test}",
    "if mode == 'none':\n    pass\nelif mode == 'train':\n{train}else:\n{test}",
)


@pytest.mark.parametrize("arms", ARMS)
def test_a_load_of_another_arm_reads_for_itself(arms: str) -> None:
    written = arms.format(train=textwrap.indent(TRAINS, "    "), test=textwrap.indent(TESTS, "    "))
    assert not told("SAVE011", SAVED.format(arms=written))


def test_a_run_that_goes_on_without_its_optimizer() -> None:
    assert loud("SAVE011", SAVED.format(arms=TRAINS.replace('opt.load_state_dict(saved["opt"])', "pass")))


def test_networks_that_are_made_where_they_are_handed_on() -> None:
    made = "def main():\n    return Learner(nn.Linear(2, 1), nn.Linear(2, 1))\nmain().update()\n"
    assert loud("PARAM035", LEARNER + made)
