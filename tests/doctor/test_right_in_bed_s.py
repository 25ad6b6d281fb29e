# SPDX-License-Identifier: Apache-2.0
"""What the fourteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths, read_texts

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── DIST001: the sampler of a validation loader that is given back beside that of training ────

SAMPLED = """
from torch.utils.data import DistributedSampler, RandomSampler
def loaders(train_set, val_set):
    train_loader = DataLoader(train_set, sampler=RandomSampler(train_set), batch_size=8)
LINES
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
train_loader, second = loaders(train_set, val_set)
for epoch in range(3):
    for x, y in train_loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    for x, y in second:
        net(x)
"""
VAL = "DataLoader(val_set, batch_size=8, sampler=DistributedSampler(val_set))"
TRAIN = "DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))"


def indented(lines: str, by: str = "    ") -> str:
    return "\n".join(by + each for each in lines.split("\n"))


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (f"val_loader = {VAL}\nreturn train_loader, val_loader", []),
        (f"validation_loader = {VAL}\nreturn [train_loader, validation_loader]", []),
        (f"return train_loader, {VAL}", []),
        (f"val_loader = {VAL}\ntrainer.fit(valid=val_loader)\nreturn train_loader, val_loader", []),
        (f"val_loader = {VAL}\nprint(train_loader, val_loader)\nreturn train_loader, val_loader", []),
        (f"test_loader = {VAL}\nreturn tuple([train_loader, test_loader])", []),
        (
            (
                "val_sampler = DistributedSampler(val_set)\n"
                "val_loader = DataLoader(val_set, sampler=val_sampler)\n"
                "log(train_loader, sampler=val_sampler)\nreturn train_loader, val_loader"
            ),
            [],
        ),
        (
            (
                "s = DistributedSampler(val_set)\nval_loader = DataLoader(val_set, sampler=s)\n"
                "return train_loader, val_loader, s"
            ),
            [],
        ),
        (f"second = {TRAIN}\nreturn train_loader, second", [BUG]),
        (f"second = {TRAIN}\nprint(second, val_set)\nreturn train_loader, second", [BUG]),
        (f"return train_loader, {TRAIN}", [BUG]),
        (
            (
                "s = DistributedSampler(train_set)\nsecond = DataLoader(train_set, sampler=s)\n"
                "return second, DataLoader(val_set)"
            ),
            [BUG],
        ),
        (
            "s = DistributedSampler(train_set)\nloaders = DataLoader(train_set, sampler=s), val_set\nreturn loaders",
            [BUG],
        ),
    ],
)
def test_a_validation_loader_beside_that_of_training(lines: str, severities: list[Severity]) -> None:
    assert told("DIST001", SAMPLED.replace("LINES", indented(lines))) == severities


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (f"unused = {TRAIN}\nreturn DataLoader(train_set, shuffle=True), val_set", []),
        (
            (
                "sampler = DistributedSampler(train_set)\nunused = DataLoader(train_set, sampler=sampler)\n"
                "kept = DataLoader(train_set, shuffle=True)\nreturn kept, val_set"
            ),
            [],
        ),
        (
            (
                "sampler = DistributedSampler(train_set)\nunused = DataLoader(train_set, sampler=sampler)\n"
                "kept = DataLoader(train_set, shuffle=True)\nreturn kept, sampler"
            ),
            [],
        ),
        (
            (
                "sampler = DistributedSampler(train_set)\nfirst = DataLoader(train_set, 8, sampler=sampler)\n"
                "second = DataLoader(train_set, 16, sampler=sampler)\nreturn train_loader, val_set"
            ),
            [],
        ),
        (
            (
                "sampler = DistributedSampler(train_set)\nfirst = DataLoader(train_set, 8, sampler=sampler)\n"
                "second = DataLoader(train_set, 16, sampler=sampler)\nreturn second, val_set"
            ),
            [BUG],
        ),
        (f"kept = {TRAIN}\ndef again():\n    return kept\nreturn again(), val_set", [BUG]),
        (f"global kept\nkept = {TRAIN}\nreturn train_loader, val_set", [BUG]),
        (f"train_set.loader = {TRAIN}\nreturn train_loader, val_set", [BUG]),
        ("sampler = DistributedSampler(train_set)\nreturn Loader(train_set, sampler), val_set", [BUG]),
    ],
)
def test_a_loader_that_is_thrown_away(lines: str, severities: list[Severity]) -> None:
    assert told("DIST001", SAMPLED.replace("LINES", indented(lines))) == severities


# ── PARAM019: a name that the program calls ───────────────────────────────────────────────────

NAMED = """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
    def foward(self, x):
        return self.fc(x)
BODY
"""


@pytest.mark.parametrize(
    ("body", "severities"),
    [
        ("heads = [Head(), Head()]\ny = heads[0].foward(x)", []),
        (
            "heads = nn.ModuleList([Head() for _ in range(3)])\nfor i in range(3):\n    y = heads[i].foward(x)",
            [],
        ),
        ("heads = {'a': Head()}\ny = heads['a'].foward(x)", []),
        ("for head in [Head(), Head()]:\n    y = head.foward(x)", []),
        ("head = Head()\ny = head.foward(x)", []),
        ("def run(head, x):\n    return head.foward(x)\nrun(Head(), x)", []),
        ("class Whole(nn.Module):\n    def forward(self, x):\n        return self.head.foward(x)", []),
        ("ys = [each.foward(x) for each in (Head(), Head())]", []),
        ("head = Head()\ny = head(x)", [BUG]),
        ("head = Head()\ny = head.forward(x)", [BUG]),
        ("heads = [Head(), Head()]\ny = heads[0](x)\nprint(heads[0].foward)", [BUG]),
    ],
)
def test_a_method_that_is_called_by_its_own_name(body: str, severities: list[Severity]) -> None:
    assert told("PARAM019", NAMED.replace("BODY", body)) == severities


@pytest.mark.parametrize(
    "call", ["super()._init_()", "super(Net, self)._init_()", "nn.Module._init_(self)", "super().__init__()"]
)
def test_a_misspelt_constructor_that_calls_its_base_so(call: str) -> None:
    text = (
        f"class Net(nn.Module):\n    def _init_(self):\n        {call}\n        self.fc = nn.Linear(3, 3)\n"
    )
    assert told("PARAM019", text) == [BUG]


# ── PARAM020, VALUE031: what is trained already is told once more that it is ──────────────────

FRESH = """
import torchvision
net = torchvision.models.resnet18(weights="DEFAULT")
def freeze(net):
    for p in net.parameters():
        p.requires_grad = False
LINES
opt = torch.optim.SGD(net.parameters(), 0.1)
"""
FREEZE = "for p in net.parameters():\n    p.requires_grad = False"
GRAD = {"PARAM020": "requires_grad", "VALUE031": "requires_grad_"}


@pytest.mark.parametrize("code", GRAD)
@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("net.fc = nn.Linear(512, 3)\nnet.fc.GRAD = True", ADVICE),
        (f"{FREEZE}\nnet.fc = nn.Linear(512, 3)\nnet.fc.GRAD = True", ADVICE),
        ("freeze(net)\nnet.fc = nn.Linear(512, 3)\nnet.fc.GRAD = True", ADVICE),
        ("net.fc = nn.Sequential(nn.Linear(512, 9), nn.ReLU(), nn.Linear(9, 3))\nnet.fc.GRAD = True", ADVICE),
        ("net.fc = nn.Sequential(*[nn.Linear(512, 3)])\nnet.fc.GRAD = True", BUG),
        ("net.fc = nn.Linear(512, 3)\nnet.fc.weight.requires_grad = True\nnet.fc.GRAD = True", ADVICE),
        ("fc = nn.Linear(512, 3)\nfc.GRAD = True\nnet.fc = fc", ADVICE),
        (
            "net.fc = nn.Linear(net.fc.in_features, out_features=3)\nnet = net.cuda()\nnet.fc.GRAD = True",
            ADVICE,
        ),
        (f"net.fc = nn.Linear(512, 3)\n{FREEZE}\nnet.fc.GRAD = True", BUG),
        ("net.fc = nn.Linear(512, 3)\nfreeze(net)\nnet.fc.GRAD = True", BUG),
        ("net.fc = nn.Linear(512, 3)\nnet.requires_grad_(False)\nnet.fc.GRAD = True", BUG),
        ("net.fc = nn.Linear(512, 3)\nnet.fc.GRAD = False", BUG),
        ("net.fc = nn.Linear(512, 3)\nnet.fc.weight.requires_grad = False\nnet.fc.GRAD = True", BUG),
        ("fc = nn.Sequential(net, nn.Linear(512, 3))\nfc.GRAD = True", BUG),
    ],
)
def test_what_is_trained_already(code: str, lines: str, severity: Severity) -> None:
    assert told(code, FRESH.replace("LINES", lines.replace("GRAD", GRAD[code]))) == [severity]


# ── PARAM035: a method that copies, called when the networks are made ─────────────────────────

AGENT = """
class Agent:
    def __init__(self):
        self.policy = nn.Linear(4, 2)
        self.target = nn.Linear(4, 2)
AFTER
    def copy(self):
        self.target.load_state_dict(self.policy.state_dict())
    def start(self):
        self.copy()
    def learn(self, x):
        return self.target(x)
REST
"""


@pytest.mark.parametrize(
    ("after", "rest", "severities"),
    [
        ("self.copy()", "", []),
        ("self.start()", "", []),
        ("self.steps = 0\nself.copy()\nself.memory = []", "", []),
        ("assert self.copy() is None", "", []),
        (
            "pass",
            "agent = Agent()\nagent.copy()\nfor _ in range(9):\n    agent.learn(x)\n    agent.copy()",
            [],
        ),
        ("pass", "agent = Agent()\nagent.start()\nfor _ in range(9):\n    agent.learn(x)", []),
        ("pass", "def main():\n    agent = Agent()\n    agent.copy()\n    agent.learn(x)\nmain()", []),
        ("pass", "agent = Agent()\nfor _ in range(9):\n    agent.learn(x)\n    agent.copy()", [RISK]),
        ("pass", "", [RISK]),
        ("if torch.rand(1) > 0.5:\n    self.copy()", "", [RISK]),
        ("self.later = lambda: None", "def far(agent):\n    agent.copy()", [RISK]),
        ("pass", "agent = Agent()\nagent.learn(x)", [RISK]),
    ],
)
def test_a_method_that_copies_when_they_are_made(after: str, rest: str, severities: list[Severity]) -> None:
    text = AGENT.replace("AFTER", indented(after, "        ")).replace("REST", rest)
    assert told("PARAM035", text) == severities


# ── EVAL043: two names of one loader ──────────────────────────────────────────────────────────

DIVIDED = """
train_loader, val_loader = DataLoader(a, shuffle=True), DataLoader(b)
def train(net, loader, device=None):
    total = 0.0
    for x, y in enumerate(SOURCE):
        total += F.mse_loss(net(x), y).item()
    return total / len(LENGTH)
CALLS
"""


@pytest.mark.parametrize(
    ("source", "length", "calls", "severities"),
    [
        ("train_loader", "loader", "train(net, train_loader)", []),
        ("train_loader", "loader", "train(net, loader=train_loader)", []),
        ("train_loader", "loader", "for _ in range(3):\n    train(net=net, loader=train_loader)", []),
        ("loader", "train_loader", "train(net, train_loader, 'cpu')", []),
        ("loader", "train_loader", "train(net, train_loader)\ntrain(net, train_loader)", []),
        ("loader", "loader", "train(net, train_loader)\ntrain(net, val_loader)", []),
        ("train_loader", "loader", "train(net, val_loader)", [RISK]),
        ("train_loader", "loader", "train(net, train_loader)\ntrain(net, val_loader)", [RISK]),
        ("train_loader", "loader", "", [RISK]),
        ("loader", "val_loader", "train(net, train_loader)", [RISK]),
        ("train_loader", "val_loader", "train(net, train_loader)", [RISK]),
    ],
)
def test_two_names_of_one_loader(source: str, length: str, calls: str, severities: list[Severity]) -> None:
    text = DIVIDED.replace("SOURCE", source).replace("LENGTH", length).replace("CALLS", calls)
    assert told("EVAL043", text.replace("x, y in enumerate", "i, (x, y) in enumerate")) == severities


# ── GRAD003: one of several loops clears, and another steps ───────────────────────────────────

BRANCHES = """
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(loader, loss, kind):
    if kind == "a":
        for x, y in loader:
            opt.zero_grad()
            loss(net(x), y).backward()
            opt.step()
LINES
for epoch in range(3):
    train(loader, loss, kind)
"""
STEPS = "for x, y in loader:\n    loss(net(x), y).backward()\n    opt.step()"
CLEARED = STEPS.replace("    loss", "    opt.zero_grad()\n    loss")


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (f"elif kind == 'b':\n{indented(STEPS)}", 1),
        (f"else:\n{indented(STEPS)}", 1),
        (f"if kind == 'b':\n{indented(STEPS)}", 1),
        (f"elif kind == 'b':\n{indented(CLEARED)}\nelse:\n{indented(STEPS)}", 1),
        (f"elif kind == 'b':\n{indented(STEPS)}\nelse:\n{indented(STEPS)}", 2),
        (STEPS, 1),
        (f"for part in range(3):\n{indented(STEPS)}", 1),
        (f"else:\n{indented(CLEARED)}", 0),
        (f"elif kind == 'b':\n{indented(STEPS)}\n        opt.zero_grad()", 0),
        (f"elif kind == 'b':\n{indented(STEPS)}\n        net.zero_grad()", 0),
        ("else:\n    for x, y in loader:\n        loss(net(x), y)", 0),
    ],
)
def test_one_branch_clears_and_another_steps(lines: str, steps: int) -> None:
    text = IMPORTS + BRANCHES.replace("LINES", indented(lines))
    found = [each for each in read_texts({"main.py": text}).findings if each.code == "GRAD003"]
    written = text.split("\n")
    assert [(written[each.place.line - 1].strip(), each.severity) for each in found] == [
        ("opt.step()", BUG)
    ] * steps


def test_a_loop_that_clears_too_seldom_beside_a_right_one() -> None:
    text = IMPORTS + BRANCHES.replace(
        "LINES",
        indented(f"else:\n    for _ in range(2):\n        opt.zero_grad()\n{indented(STEPS, ' ' * 8)}"),
    )
    found = [each for each in read_texts({"main.py": text}).findings if each.code == "GRAD003"]
    assert [text.split("\n")[each.place.line - 1] for each in found] == [" " * 12 + "opt.zero_grad()"]


# ── DATA013: a fit that stands there twice ────────────────────────────────────────────────────

FITTED = """
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
scaler = StandardScaler()
FITS
train, test = train_test_split(X)
"""


@pytest.mark.parametrize(
    ("fits", "times"),
    [
        ("X = scaler.fit_transform(X)", 1),
        ("X = scaler.fit_transform(Z)\nX = scaler.fit_transform(Z)", 1),
        ("X = scaler.fit_transform(Z)\nscaler = StandardScaler()\nX = scaler.fit_transform(Z)", 1),
        ("X = scaler.fit_transform(Z)#\ny = data['y']\nX = scaler.fit_transform(Z)", 1),
        ("scaler.fit(X)\nscaler.fit(X)\nX = scaler.transform(X)", 1),
        ("X = scaler.fit_transform(Z)\nprint(X)\nX = scaler.fit_transform(Z)", 2),
        ("X = scaler.fit_transform(Z)\nY = X + 1\nX = scaler.fit_transform(Z)", 2),
        ("a = scaler.fit_transform(X)\nX = scaler.fit_transform(X)", 2),
    ],
)
def test_one_fit_twice_is_one_mistake(fits: str, times: int) -> None:
    assert len(told("DATA013", FITTED.replace("FITS", fits))) == times


# ── VALUE041: a form with blanks ──────────────────────────────────────────────────────────────

FORM = """
def train(cfg, criterion):
    BLANK
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for TARGET in enumerate(loader):
        opt.zero_grad()
        criterion(model(x)).backward()
        opt.step()
    AFTER
    return found
train(1, 2)
"""
OPEN = "rows = []  # TODO\n    if cfg:\n        # TODO: the other case\n        pass"


@pytest.mark.parametrize(
    ("blank", "target", "after", "severity"),
    [
        ("model", "i, x", "found = 1", ADVICE),
        ("loader, x = 1, 2", "i, ()", "found = 1", ADVICE),
        ("pass", "step, ()", "found = 1", ADVICE),
        ("pass", "()", "found = 1", ADVICE),
        (OPEN, "i, x", "found = 1", ADVICE),
        ("...  # TODO\n    loader = None  # FIXME", "i, x", "found = 1", ADVICE),
        ("# TODO the model\n    pass", "i, x", "# Your code here\n    found = None", ADVICE),
        ("pass", "i, x", "found = 1", BUG),
        ("rows = []  # of the loader", "i, x", "found = None", BUG),
        ("rows = []  # TODO", "i, x", "found = 1", BUG),
        ("x = 1  # TODO tune", "i, x", "found = 1  # TODO", BUG),
        ("criterion", "i, x", "found = cfg", BUG),
        ("unknown", "i, x", "found = cfg", BUG),
    ],
)
def test_a_form_with_blanks(blank: str, target: str, after: str, severity: Severity, tmp_path: Path) -> None:
    lines = FORM.replace("BLANK", blank).replace("TARGET", target).replace("AFTER", after)
    path = tmp_path / "train.py"
    path.write_text(IMPORTS + lines)
    found = [each for each in read_paths([path]).findings if each.code == "VALUE041"]
    assert "model" in "".join(each.message for each in found)
    assert {each.severity for each in found} == {severity}


# ── EVAL002: eval() of a parameter that is one model here and another there ───────────────────

LAYERED = """
class Part(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(size, size)
    def forward(self, x):
        return self.drop(self.fc(x))
class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module.forward(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Wrapped(Part(3))
        self.out = nn.Linear(3, 3)
    def forward(self, x):
        return self.out(self.part.forward(x))
def evaluate(model, data):
    BEFORE
    right = 0
    for x, y in data:
        preds = APPLIED
        right += (torch.max(preds, 1)[1] == y).sum().item()
    return right
def main():
    net = Net()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(3):
        net.train()
        for x, y in train_data:
            opt.zero_grad()
            F.cross_entropy(net.forward(x), y).backward()
            opt.step()
        evaluate(MODEL, val_data)
    AFTER
main()
"""
LOADED = "net = torch.load(path)\n    evaluate(net, val_data)"


@pytest.mark.parametrize(
    ("before", "applied", "model", "after", "is_told"),
    [
        ("model.eval()", "model.forward(x)", "net", LOADED, False),
        ("model.eval()", "model(x)", "net", LOADED, False),
        ("model.train(False)", "model.forward(x)", "net", LOADED, False),
        ("model.eval()", "model.forward(x)", "net", "evaluate(torch.load(path), val_data)", False),
        ("model.eval()", "model.forward(x)", "net", "evaluate(other, val_data)", False),
        ("model = model.eval()", "model.forward(x)", "net", LOADED, False),
        ("model.cuda().eval()", "model.forward(x)", "model=net, data", LOADED, False),
        ("pass", "model.forward(x)", "net", LOADED, True),
        ("model.train()", "model.forward(x)", "net", LOADED, True),
        ("other.eval()", "model.forward(x)", "net", LOADED, True),
        ("model.out.eval()", "model.forward(x)", "net", LOADED, True),
    ],
)
def test_eval_of_one_of_several_models(
    before: str, applied: str, model: str, after: str, is_told: bool
) -> None:
    text = LAYERED.replace("BEFORE", before).replace("APPLIED", applied).replace("AFTER", after)
    text = text.replace("evaluate(MODEL, val", f"evaluate({model}, val").replace("data, val_", "data=val_")
    assert bool(told("EVAL002", text)) is is_told


# ── PARAM021: a layer for the keys of a checkpoint, and one that was replaced ─────────────────

KEYED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
    def forward(self, x):
        return self.first(x).relu()
class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x)
LINES
"""
TRAINED = """
opt = torch.optim.SGD(MODEL.parameters(), 0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(MODEL(x), y).backward()
    opt.step()
"""
HUB = "torch.hub.load_state_dict_from_url(url)"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("net = Net()\nnet.load_state_dict(torch.load(path))", []),
        (f"net = Net()\nnet.load_state_dict({HUB}, strict=True)\nnet.eval()", []),
        (
            "def make(p=True):\n    net = Net()\n    if p:\n        net.load_state_dict(torch.load(p))\n    return net",
            [],
        ),
        ("net = Net().cuda()\nstate = torch.load(path)\nnet.load_state_dict(state['model'])", []),
        (
            "class User:\n    def __init__(self):\n        self.net = Net()\n        self.net.load_state_dict(torch.load(p))",
            [],
        ),
        (
            "net = Net()\nnet.load_state_dict(torch.load(path))\nmodel = Other()"
            + TRAINED.replace("MODEL", "model"),
            [],
        ),
        ("net = Net()\nnet.load_state_dict(torch.load(path))" + TRAINED.replace("MODEL", "net"), [RISK]),
        ("net = Net()" + TRAINED.replace("MODEL", "net"), [RISK]),
        ("net = Net()\nnet.load_state_dict(torch.load(path), strict=False)", [RISK]),
        ("net = Net()\nnet.load_state_dict(other.state_dict())", [RISK]),
        ("net, twin = Net(), Net()\nnet.load_state_dict(torch.load(path))", [RISK]),
        ("net = Net()\nnet.load_state_dict(torch.load(path))\ntwin = Net()", [RISK]),
        ("", [RISK]),
    ],
)
def test_a_layer_for_the_keys_of_a_checkpoint(lines: str, severities: list[Severity]) -> None:
    assert told("PARAM021", KEYED.replace("LINES", lines)) == severities


REPLACED = """
from torch.nn.modules.batchnorm import _BatchNorm
class Norm(_BatchNorm):
    def forward(self, x):
        return x * self.weight
class Own(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.fc = nn.Linear(size, size)
    def forward(self, x):
        return self.fc(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
    def forward(self, x):
        LINES
"""


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("other = Own(4)\n        return other(self.first(x))", ADVICE),
        ("norm = Norm(x.shape[1])\n        return norm(self.first(x))", ADVICE),
        ("y = self.first(x)\n        return Own(y.shape[1])(y)", ADVICE),
        ("norm = nn.GroupNorm(2, 4)\n        return norm(self.first(x))", ADVICE),
        ("return nn.LayerNorm(4)(self.first(x))", ADVICE),
        ("y = self.first(x)\n        y = nn.LayerNorm(4).to(y.device)(y)\n        return y", ADVICE),
        ("return self.first(x)", RISK),
        ("return nn.ReLU()(self.first(x))", RISK),
        ("return nn.Softmax(dim=1)(self.first(x))", RISK),
        ("drop = nn.Dropout(0.5)\n        return drop(self.first(x))", RISK),
        ("return F.layer_norm(self.first(x), [4])", RISK),
    ],
)
def test_a_layer_that_another_replaces(lines: str, severity: Severity) -> None:
    assert told("PARAM021", REPLACED.replace("LINES", lines)) == [severity]


# ── PARAM038: a transform that a data set stores and never applies ────────────────────────────

STORED = """
from sklearn.preprocessing import StandardScaler
from torch.utils.data import Dataset
class Images(Dataset):
    def __init__(self, rows, transform=None, augmentation=None):
        self.rows = rows
        self.transform = transform
        self.data_aug = augmentation
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        x = self.rows[index]
        LINES
        return x
REST
"""


@pytest.mark.parametrize(
    ("lines", "rest", "severities"),
    [
        ("pass", "data = Images(rows, transform=flips)", [RISK]),
        ("pass", "data = Images(rows, flips)", [RISK]),
        ("pass", "data = Images(rows, None, flips)", [RISK]),
        ("x = self.transform(x)", "data = Images(rows, flips, augmentation=noise)", [RISK]),
        ("pass", "data = Images(rows, flips, noise)", [RISK, RISK]),
        ("x = torch.tensor(x)", "a = Images(rows)\nb = Images(rows, transform=None if a else flips)", [RISK]),
        ("pass", "x = StandardScaler().transform(x)\ndata = Images(rows, flips)", [RISK]),
        ("pass", "scaler = StandardScaler()\nx = scaler.transform(x)\ndata = Images(rows, flips)", [RISK]),
        ("pass", "def make(t):\n    return Images(rows, transform=t)\nmake(flips)", [RISK]),
        ("# x = self.transform(x)\n        pass", "data = Images(rows, flips)", [ADVICE]),
        ("x = self.transform(x) if self.transform else x", "data = Images(rows, flips)", []),
        ("pass", "data = Images(rows)", []),
        ("pass", "data = Images(rows, None)\nmore = Images(rows, transform=None)", []),
        ("pass", "data = Images(rows, flips)\nx = data.transform(x)", []),
        ("pass", "data = Images(rows, flips)\nx = loader.dataset.transform(x)", []),
        ("pass", "data = Images(rows, flips)\nprint(getattr(data, 'trans' + 'form'))", []),
        ("x = self.change(x)", "data = Images(rows, flips)\nImages.change = lambda s, x: s.transform(x)", []),
        (
            "pass",
            "class More(Images):\n    def __getitem__(self, i):\n        return self.transform(self.rows[i])\nMore(rows, flips)",
            [],
        ),
        ("pass", "data = Images(rows, flips)\nfor each in (data,):\n    x = each.transform(x)", []),
    ],
)
def test_a_transform_that_a_data_set_never_applies(lines: str, rest: str, severities: list[Severity]) -> None:
    assert told("PARAM038", STORED.replace("LINES", lines).replace("REST", rest)) == severities


def test_a_transform_of_targets_that_a_set_may_not_have() -> None:
    text = STORED.replace("LINES", "pass").replace("REST", "data = Images(rows, target_transform=flips)")
    text = text.replace("transform=None", "target_transform=None").replace(
        "= transform", "= target_transform"
    )
    assert told("PARAM038", text) == [ADVICE]


@pytest.mark.parametrize("base", ["MNIST", "ImageFolder", "VisionDataset"])
def test_a_base_that_may_apply_it(base: str) -> None:
    text = STORED.replace("LINES", "pass").replace("REST", "data = Images(rows, flips)")
    text = text.replace("import Dataset", f"import Dataset\nfrom torchvision.datasets import {base}")
    assert told("PARAM038", text.replace("(Dataset)", f"({base})")) == []


# ── DATA019: a set for evaluation by its name, with a transform by chance ─────────────────────

TESTED = """
import random
import albumentations as A
from torch.utils.data import Dataset
from torchvision import datasets, transforms
class Turned:
    def __call__(self, x):
        return x.flip(2) if random.random() < 0.3 else x
class Sized:
    def __call__(self, x):
        return x.resize((4, 4))
class Own(Dataset):
    def __init__(self, root, transform=None, kind="all"):
        self.root, self.kind = root, kind
        self.transform = transform
    def __getitem__(self, index):
        x = self.load(index)
        if self.transform is not None:
            x = self.transform(x)
        return x
class Switched(Own):
    def __getitem__(self, index):
        x = self.load(index)
        return self.transform(x) if self.kind == "train" else x
flips = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
plain = transforms.Compose([transforms.Resize(32), transforms.ToTensor()])
LINES
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in train_loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
net.eval()
for x, y in test_loader:
    right = MEASURED
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("test_set = datasets.ImageFolder('a/test', transform=flips)", [RISK]),
        ("data = datasets.ImageFolder('a/val', flips)", [RISK]),
        ("data = datasets.ImageFolder(os.path.join(root, 'valid'), flips)", [RISK]),
        ("test_loader = DataLoader(datasets.ImageFolder(test_dir, transform=flips))", [RISK]),
        ("val_dataset = Own(root, flips)", [RISK]),
        ("data = Own(root, transform=flips, kind='Testing')", [RISK]),
        ("testset = Own(root, transform=transforms.Compose([Turned(), Sized()]))", [RISK]),
        ("test_set = Own(root, A.Compose([A.HorizontalFlip(p=0.5), A.Resize(4, 4)]))", [RISK]),
        (
            "def test(root):\n    t = transforms.Compose([Turned()])\n    return Own(root + '/test', t)",
            [RISK],
        ),
        ("train_set = datasets.ImageFolder('a/train', transform=flips)", []),
        ("test_set = datasets.ImageFolder('a/test', transform=plain)", []),
        ("test_set = Own(root, transform=transforms.Compose([Sized()]))", []),
        ("test_set = Own('a/train', flips)", []),
        ("data = Own(root, flips)", []),
        ("test_set = Own(root)", []),
        ("test_set = Switched(root, flips, 'test')", []),
        ("test_set = Own(root, A.Compose([A.Resize(4, 4), A.HorizontalFlip(p=0)]))", []),
        ("tta_test_set = Own(root, flips)", []),
        ("test_set = Own(root, flips)\nwhole = ConcatDataset([train_set, test_set])", []),
        ("test_set = Own(root, flips)\ntrain_set = train_set + test_set", []),
        ("whole = ConcatDataset([train_set, Own('a/test', flips)])", []),
        ("latest = Own(root, flips)", []),
        ("interval = Own('contest', flips)", []),
    ],
)
def test_a_set_for_evaluation_by_its_name(lines: str, severities: list[Severity]) -> None:
    text = TESTED.replace("LINES", lines)
    assert told("DATA019", text.replace("MEASURED", "(net(x).argmax(1) == y).sum()")) == severities
    assert told("DATA019", text.replace("MEASURED", "save_image(net(x))")) == []  # a look at pictures
