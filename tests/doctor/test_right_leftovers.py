# SPDX-License-Identifier: Apache-2.0
"""Right programs of strangers that a check took for its mistake: what is left over, came before, or never runs."""

import textwrap

import pytest

from tests.support.told import loud, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text

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


def test_a_new_value_that_is_lost() -> None:
    body = "        w = x.softmax(-1)\n        x = x.masked_fill(specs, 0.0)\n        return w\n"
    assert told("VALUE001", FORWARD.format(body=body)) == [Severity.QUESTION]


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


# ── GRAD011, DATA019: what comes before ───────────────────────────────────────────────────────

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
    assert told("GRAD011", losses + twice + "    two.backward(retain_graph=True)\n")
    text = "def once(net, x):\n    loss = net(x).mean()\n    loss.backward(retain_graph=True)\n"
    assert told("GRAD011", text)


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


@pytest.mark.parametrize("call", ["row.cpu()", "row.double()"])
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
    "if net and x > images:\n            images = x",
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


@pytest.mark.parametrize(
    ("text", "is_path"),
    [
        ('"weights.pt".format(epoch)', True),
        ('".jpg".format(epoch)', True),
        ('"{}.pt".format(name, epoch)', True),
        ('"runs/epoch".format(epoch)', True),
        ('"out/{}_{}.png".format(name, name, epoch)', True),
        ('"Loss init".format(epoch)', False),
        ('"({}) must be divisible by".format(name, epoch)', False),
        ('"{}/{}".format(name, name, epoch)', False),
        ('"loss {}/{}".format(name, name, epoch)', False),
        ('"done.".format(epoch)', False),
    ],
)
def test_files_that_overwrite_one_another_are_named_of_paths_alone(text: str, is_path: bool) -> None:
    found = read_text(f"import torch\n\n\ndef given(name, epoch):\n    return {text}\n").findings
    assert [("overwrite" in each.message) for each in found if each.code == "VALUE030"] == [is_path]


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
