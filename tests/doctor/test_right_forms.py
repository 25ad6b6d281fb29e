# SPDX-License-Identifier: Apache-2.0
"""Right programs of strangers that a check took for its mistake, and the plain mistake beside them: which object is meant."""

import textwrap

import pytest

from tests.support.told import loud, told
from truestep.doctor.linting import read_text

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
    assert told("SAVE005", every_epoch("'lr': 0.1"))


@pytest.mark.parametrize("behind", NOTES)
def test_a_counter_that_is_a_note_beside_the_best_weights(behind: str) -> None:
    assert not loud("SAVE005", saved(KEPT, behind))


@pytest.mark.parametrize("test", ["score(net) > best", "best < score(net)", "acc >= self.best"])
def test_the_best_weights_of_every_hundredth_step(test: str) -> None:
    kept = "            if i % 100 == 0:\n                if TEST:\n"
    kept += "                    torch.save({'net': net.state_dict(), 'step': i}, 'best.pt')"
    assert not loud("SAVE005", saved(kept.replace("TEST", test)))
    assert told("SAVE005", saved(kept.replace("TEST", "net is not None")))


@pytest.mark.parametrize("start", STARTS)
def test_a_counter_that_a_run_goes_on_from(start: str) -> None:
    assert loud("SAVE005", saved(KEPT, RESUME.format(start=start)))
    assert told("SAVE005", saved(EACH))  # nothing goes on from it: advice


# ── LOSS023, EVAL003, PARAM005, SAVE013: which object, and what of it ─────────────────────────

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
    assert not told("LOSS023", CRITIC + used)


@pytest.mark.parametrize("used", INDICES)
def test_the_index_of_the_largest_of_one_output(used: str) -> None:
    assert loud("LOSS023", CRITIC + used)


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
