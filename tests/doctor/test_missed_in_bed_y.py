# SPDX-License-Identifier: Apache-2.0
"""What the reader of bed Y saw and the doctor did not, each in several wordings with right twins."""

import pytest

from tests.support.told import told

# ── SAVE013: a class keeps the best weights of a model that it is given ──

STOPPER = """
class Stopper:
    def __init__(self, patience=3):
        self.best = None; self.state = None; self.count = 0
    def METHOD(self, loss, model):
        score = -loss
        KEPT
    def restore(self, model):
        if self.state is not None:
            model.load_state_dict(self.state)
def train(net, loader, val_loader, n, stopper=None):
    opt = torch.optim.Adam(net.parameters()); MADE
    for epoch in range(5):
        net.train()
        for x, y in loader:
            opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
        with torch.no_grad():
            net.eval(); v = sum(F.cross_entropy(net(x), y).item() for x, y in val_loader)
        CALL
    stopper.restore(net)
"""
AT_ONCE = "if self.best is None:\n            self.best = score; self.state = model.state_dict()\n            return"
WAITS = "self.count += 1\n            return"
BETTER = "self.best = score; self.state = model.state_dict()"
KEPT = {
    f"{AT_ONCE}\n        if score < self.best:\n            {WAITS}\n        {BETTER}": 2,
    f"if self.best is not None and score <= self.best:\n            {WAITS}\n        {BETTER}": 1,
    f"if self.best is None or score > self.best:\n            {BETTER}\n        else:\n            self.count += 1": 1,
    f"if self.best and score < self.best + 1e-3: {WAITS.replace(chr(10), ';').replace('            ', ' ')}\n        {BETTER}": 1,
}  # fmt: skip


@pytest.mark.parametrize("method", ["__call__", "step"])
@pytest.mark.parametrize("made", ["pass", "stopper = Stopper()"])
@pytest.mark.parametrize(("kept", "count"), KEPT.items())
def test_a_stopper_that_keeps_the_weights_themselves(kept: str, count: int, made: str, method: str) -> None:
    call = "stopper(v, net)" if method == "__call__" else "stopper.step(v, net)"
    code = STOPPER.replace("KEPT", kept).replace("METHOD", method).replace("MADE", made)
    assert len(told("SAVE013", code.replace("CALL", call))) == count
    copied = code.replace("model.state_dict()", "copy.deepcopy(model.state_dict())")
    assert not told("SAVE013", copied.replace("CALL", call))
    if made == "pass":  # another object's method, of other arguments or of no model
        for other in ("stopper(v)", "stopper.update(v, net)", "stopper(v, epoch)"):
            assert not told("SAVE013", code.replace("CALL", other))


# ── GRAD069: an optimizer of its own for each step ──

MODEL = """
net = nn.Linear(3, 2); crit = nn.CrossEntropyLoss(); loader = DataLoader(data, 8, shuffle=True)
"""
STEP = "opt.zero_grad(); crit(net(x), y).backward(); opt.step()"
MAKER = """
def make(model, lr):
    weights = (p for n, p in model.named_parameters() if 'bias' not in n)
    return torch.optim.SGD([{'params': weights}, {'params': model.fc.parameters(), 'lr': 10 * lr}], lr=lr, momentum=0.9)
"""
TAKES_STEP = """
def step(model, x, y):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
TRAINER = """
class Trainer:
    def __init__(self, data):
        self.net = nn.Linear(3, 2); self.loader = DataLoader(data)
    def update(self, x, y):
        optimizer = torch.optim.RMSprop(self.net.parameters())
        optimizer.zero_grad(); F.cross_entropy(self.net(x), y).backward(); optimizer.step()
    def fit(self):
        for epoch in range(3):
            for x, y in self.loader:
                self.update(x, y)
"""
IN_WINDOWS = """
opt = make(net, 0.1); it = 0
while it < 100:
    for x, y in loader:
        crit(net(x), y).backward()
        if it % 4 == 0:
            opt.step()
            opt = make(net, 0.1 * (1 - it / 100))
            opt.zero_grad()
        it += 1
"""
BEHIND = """
for i, (x, y) in enumerate(loader):
    with torch.enable_grad():
        crit(net(x), y).backward(); opt.step()
    opt = torch.optim.SGD(net.parameters(), lr=0.1 * 0.9 ** i, momentum=0.9); opt.zero_grad()
"""
ANEW = [
    f"{MODEL}for x, y in loader:\n    opt = torch.optim.Adam(net.parameters(), lr=1e-3)\n    {STEP}",
    MODEL + MAKER + IN_WINDOWS,
    MODEL + BEHIND,
    f"{MODEL}for epoch in range(100):\n    opt = torch.optim.Adam(net.parameters(), lr=0.1 / (1 + epoch))\n    {STEP}",
    f"{TAKES_STEP}{MODEL}for x, y in loader:\n    step(net, x, y)",
    TRAINER,
]


@pytest.mark.parametrize("code", ANEW)
def test_an_optimizer_made_for_each_step(code: str) -> None:
    assert len(told("GRAD069", code)) == 1


MADE = "opt = torch.optim.Adam(net.parameters())"


@pytest.mark.parametrize(
    "lines",
    [
        f"for epoch in range(3):\n    {MADE}\n    for x, y in loader:\n        {STEP}",
        f"for x, y in loader:\n    opt = torch.optim.SGD(net.parameters(), lr=1e-3)\n    {STEP}",  # keeps nothing
        f"for x, y in loader:\n    opt = torch.optim.SGD(net.parameters(), 1e-3, 0.0)\n    {STEP}",
        f"for x, y in loader:\n    net = copy.deepcopy(first); {MADE}\n    {STEP}",
        f"for x, y in loader:\n    net.load_state_dict(first); {MADE}\n    {STEP}",
        f"for x, y in loader:\n    net.apply(begin); {MADE}\n    {STEP}",
        f"for x, y in loader:\n    bit = torch.zeros_like(x); opt = torch.optim.Adam([bit])\n    {STEP}",
        f"for epoch in range(100):\n    if epoch == 50:\n        {MADE}\n    {STEP}",
        f"for epoch in range(100):\n    if opt is None:\n        {MADE}\n    {STEP}",
        f"for x, y in loader:\n    {MADE}\n    for _ in range(10):\n        {STEP}",
        f"for amsgrad in [True, False]:\n    {MADE}\n    {STEP}",
        f"for net in nets:\n    {MADE}\n    {STEP}",
        f"for i in range(3):\n    opt = torch.optim.Adam(nets[i].parameters())\n    {STEP}",
        f"for x, y in loader:\n    {MADE}; opt.load_state_dict(kept)\n    {STEP}; kept = opt.state_dict()",
        f"for x, y in loader:\n    {MADE}\n    {STEP}\n    break",
        f"{TAKES_STEP}for x, y in loader:\n    own = copy.deepcopy(net)\n    step(own, x, y)",
        f"{TAKES_STEP}for client, (x, y) in zip(clients, loader):\n    step(client.net, x, y)",
    ],
)
def test_an_optimizer_that_lasts_or_has_another_model(lines: str) -> None:
    assert not told("GRAD069", MODEL + lines)


# ── SCHED002: a plateau is given the loss of one batch ──

PLATEAU = """
net = nn.Linear(3, 2); crit = nn.CrossEntropyLoss(); loader = DataLoader(data, 8, shuffle=True); held = DataLoader(rest, 8)
opt = torch.optim.Adam(net.parameters()); sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "min")
def train(net, loader):
    for x, y in loader:
        opt.zero_grad(); loss = crit(net(x), y); loss.backward(); opt.step()
    return loss.item()
for epoch in range(9):
    total, losses = 0.0, []
    for i, (x, y) in enumerate(loader):
        opt.zero_grad(); loss = crit(net(x), y); loss.backward(); opt.step(); total += loss.item(); losses.append(loss)
    LINES
"""
MEASURED = "with torch.no_grad():\n        for x, y in held:\n            val_loss = F.cross_entropy(net(x), y)\n    "


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("sched.step(loss)", 1),
        ("sched.step(metrics=loss.detach())", 1),
        (f"{MEASURED}sched.step(val_loss.item())", 1),
        ("val_loss = train(net, loader); sched.step(val_loss)", 1),
        (f"{MEASURED.replace('F.cross_entropy(net(x), y)', 'net(x, labels=y).loss')}sched.step(float(val_loss))", 1),
        (f"{MEASURED.replace('val_loss', 'loss')}sched.step(loss)", 1),
        ("sched.step(total / len(loader))", 0),
        ("loss = sum(losses) / len(losses); sched.step(loss)", 0),
        ("loss = crit(net(all_x), all_y); sched.step(loss)", 0),
        (f"{MEASURED}        sched.step(val_loss)", 0),  # for each batch
        (f"{MEASURED.replace('held', 'DataLoader(rest, batch_size=len(rest))')}sched.step(val_loss)", 0),
        (f"val_loss = 0\n    {MEASURED.replace('val_loss =', 'val_loss = val_loss +')}sched.step(val_loss)", 0),
        (f"{MEASURED.replace('=', '+=')}sched.step(val_loss)", 0),
    ],
)  # fmt: skip
def test_a_plateau_that_sees_one_batch(lines: str, count: int) -> None:
    assert len(told("SCHED002", PLATEAU.replace("LINES", lines))) == count


# ── EVAL043: windows of another length, and means that are divided again ──

BATCHES = """
net = nn.Linear(3, 2); crit = nn.CrossEntropyLoss(); loader = DataLoader(data, 8, shuffle=True)
opt = torch.optim.Adam(net.parameters()); running = 0.0; n = 50; step = 0
LINES
"""
TRAIN = "opt.zero_grad(); loss = crit(net(x), y); loss.backward(); opt.step()"
COUNTED = f"for i, (x, y) in enumerate(loader):\n    {TRAIN}; running += loss.item()\n    "
IN_TERMS = TRAIN.replace("loss =", "loss = 0; loss +=")
OTHER_LENGTHS = [
    f"{COUNTED}if i % 100 == 99:\n        print(running / 1000); running = 0.0",
    f"{COUNTED.replace('(loader)', '(loader, 0)')}if (i + 1) % 10 == 0:\n        log(running / 2000, i); running = 0",
    (f"for x, y in loader:\n    {TRAIN}; running += float(loss); step += 1\n    if not step % 50:\n"
    "        running /= 100; print(running); running = 0.0"),
    f"{COUNTED}if i % n == n - 1:\n        mean = running / 20; running = 0.0",
    f"{COUNTED.replace(TRAIN, IN_TERMS)}if i % 100 == 99:\n        print(running / 1000); running = 0.0",
    f"{COUNTED}if i == args.batches:\n        print(running / args.batches)\n        break",
    f"{COUNTED}if short:\n        if i == 10:\n            running /= 10\n            break",
    f"for x, y in loader:\n    {TRAIN}; running += loss.item() / x.size(0)\nprint(running / len(loader))",
    f"for i, batch in enumerate(loader):\n    x, y = batch\n    {TRAIN}; running += loss.item() / len(batch[0])",
    f"for x, y in loader:\n    size = y.shape[0]\n    {TRAIN}; running += loss.detach() / size",
]  # fmt: skip
SAME_LENGTHS = [
    f"{COUNTED}if i % 100 == 99:\n        print(running / 100); running = 0.0",
    f"{COUNTED.replace('loss.item()', 'loss.item() * len(x)')}if i % 100 == 99:\n        print(running / 800); running = 0.0",
    f"{COUNTED}if i % 100 == 99:\n        print(running / 1000)",
    f"{COUNTED}if i % 100 == 0:\n        print(running / 100); running = 0.0",
    f"crit = nn.CrossEntropyLoss(reduction='sum')\n{COUNTED}if i % 100 == 99:\n        print(running / 800); running = 0.0",
    f"{COUNTED.replace('(loader)', '(loader, 1)')}if i == n:\n        print(running / n)\n        break",
    f"for i, (x, y) in enumerate(loader):\n    if i == n:\n        log(running / n)\n    {TRAIN}; running += loss.item()",
    f"{COUNTED.replace('; running', chr(10) + '    if i: running')}if i == n:\n        print(running / n)\n        break",
    f"crit = nn.CrossEntropyLoss(reduction='sum')\nfor x, y in loader:\n    {TRAIN}; running += loss.item() / x.size(0)",
    f"for x, y in loader:\n    {TRAIN}; running += loss.item() / len(loader)",
    ("for x, y in loader:\n    loss = 0\n    for t in range(len(x)):\n        loss += crit(net(x[t]), y[t])\n"
    "    loss.backward(); running += loss.item() / len(x)"),
]  # fmt: skip


@pytest.mark.parametrize("lines", OTHER_LENGTHS)
def test_a_mean_of_other_length(lines: str) -> None:
    assert len(told("EVAL043", BATCHES.replace("LINES", lines))) == 1


@pytest.mark.parametrize("lines", SAME_LENGTHS)
def test_a_mean_of_its_own_length(lines: str) -> None:
    assert not told("EVAL043", BATCHES.replace("LINES", lines))


# ── VALUE045: a loop takes entries out of its own list ──

BROKEN = "if not readable(each):\n            "
CHANGED = [
    f"for each in paths:\n        {BROKEN}paths.remove(each)",
    f"for i, each in enumerate(paths):\n        {BROKEN}del paths[i]",
    f"for i, each in enumerate(tqdm(paths)):\n        {BROKEN}paths.pop(i); bad += 1",
    (
        "for each in tqdm(self.paths):\n        try:\n            load(each)\n        except OSError:\n"
        "            self.paths.remove(each); os.remove(each)"
    ),
    f"for each in paths:\n        {BROKEN}other.append(each)\n            paths.remove(each)\n            continue",
    "for each in paths:\n        if a:\n            break\n        elif b:\n            paths.remove(each)",
]
UNCHANGED = [
    f"for each in list(paths):\n        {BROKEN}paths.remove(each)",
    f"for each in paths[:]:\n        {BROKEN}paths.remove(each)",
    f"for each in reversed(paths):\n        {BROKEN}paths.remove(each)",
    f"for each in paths:\n        {BROKEN}paths.remove(each)\n            break",
    "for each in paths:\n        if a:\n            if b:\n                paths.remove(each)\n            return",
    f"for each in paths:\n        {BROKEN}others.remove(each)",
    f"for each in paths:\n        {BROKEN}paths = [one for one in paths if one != each]; paths.remove(0)",
    f"for each in paths:\n        {BROKEN}paths.pop(each)",  # of a dict: Python raises
    f"paths = set(given)\n    for each in paths:\n        {BROKEN}paths.remove(each)",
    f"for paths in folders:\n        {BROKEN.replace('each', 'paths')}paths.remove(0)",
    f"for each in paths:\n        {BROKEN}del paths[-1].rest",
    f"for each in paths:\n        {BROKEN}paths.append(each)",  # a list of what is still to do
]


@pytest.mark.parametrize(("lines", "count"), [*((x, 1) for x in CHANGED), *((x, 0) for x in UNCHANGED)])
def test_a_list_that_its_loop_changes(lines: str, count: int) -> None:
    code = f"import os\nfrom tqdm import tqdm\ndef clean(self, paths, others, bad=0):\n    {lines}\n"
    assert len(told("VALUE045", code)) == count


# ── EVAL002: torchvision's models have batch norm ──

EVALUATED = """
import torchvision
from torchvision import models
from torchvision.models import resnet18, ResNet18_Weights
train_loader = DataLoader(data, 8, shuffle=True); valid_loader = DataLoader(held, 8)
class Net(nn.Module):
    def __init__(self, base):
        super().__init__()
        net = models.mobilenet_v2(weights="DEFAULT"); self.fc = nn.Linear(1280, 2)
        self.base = nn.Sequential(*list(net.children())[:-1])
    def forward(self, x):
        return self.fc(self.base(x).mean((2, 3)))
def build(n):
    net = models.efficientnet_b0(weights="DEFAULT")
    net.classifier[1] = nn.Linear(1280, n)
    return net
MODEL
criterion = nn.CrossEntropyLoss(); optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    model.train()
    for x, y in train_loader:
        loss = criterion(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step()
    MODE
    with torch.no_grad():
        total = 0
        for x, y in valid_loader:
            total += criterion(model(x), y) / len(valid_loader)
    print(total)
"""


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("model = torchvision.models.resnet50(pretrained=False)", 1),
        ("model = resnet18(weights=ResNet18_Weights.DEFAULT).cuda(); model.fc = nn.Linear(512, 2)", 1),
        ("model = models.densenet121(); model.classifier = nn.Sequential(nn.Linear(1024, 2)).cuda()", 1),
        ("model = models.segmentation.deeplabv3_resnet50(num_classes=3)", 1),
        ("model = nn.DataParallel(models.vgg16_bn())", 1),
        ("model = Net(3)", 1),
        ("model = build(3).to(device)", 1),
        ("model = models.vit_b_16()", 0),
        ("model = models.vgg16()", 0),
        ("model = models.detection.fasterrcnn_resnet50_fpn()", 0),
        ("model = models.resnet50(norm_layer=Norm)", 0),
        ("model = models.resnet50(**options)", 0),
    ],
)
def test_batch_norm_of_torchvision(model: str, count: int) -> None:
    code = EVALUATED.replace("MODEL", model)
    assert len(told("EVAL002", code.replace("MODE", "pass"))) == count
    assert not told("EVAL002", code.replace("MODE", "model.eval()"))
