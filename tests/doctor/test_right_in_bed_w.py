# SPDX-License-Identifier: Apache-2.0
"""What the eighteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import textwrap
from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, RISK, ADVICE = Severity.BUG, Severity.RISK, Severity.ADVICE


# ── EVAL001: a network that judges another one's outputs, and that nothing evaluates ──

JUDGED = """
class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        return self.fc(x)
class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        return self.fc(F.dropout(x, 0.3))
g = G(); d = D(); bce = nn.BCEWithLogitsLoss(); scaler = torch.amp.GradScaler()
opt = torch.optim.SGD(d.parameters(), 0.1)
for x, y in loader:
    fake = g(torch.randn(8, 3))
    LINES
BEHIND
"""


@pytest.mark.parametrize(
    ("lines", "behind", "severity"),
    [
        ("(bce(d(x), y) + bce(d(fake.detach()), y)).backward()", "", ADVICE),
        ("loss = bce(d(x), y) + bce(d(fake), y); loss.backward(); opt.step()", "", ADVICE),
        ("bce(d(x), y).backward(); bce(d(fake.detach()), y).backward()", "", ADVICE),
        ("real, false = d(x), d(fake); loss = (bce(real, y) - bce(false, y)) / 2; loss.backward()", "", ADVICE),
        ("real = d(x); loss = real.mean() - d(fake).mean(); scaler.scale(loss).backward()", "", ADVICE),
        ("out = d(x); loss = bce(out, y); loss += bce(d(fake), y); loss.backward()", "", ADVICE),
        ("(bce(d(x), y) + bce(d(fake), y)).backward()", "d.eval(); print(d(held_out).argmax(1))", BUG),
        ("(bce(d(x), y) + bce(d(fake), y)).backward()", "with torch.no_grad(): scores = d(held_out)", BUG),
        ("bce(d(x), y).backward(); opt.step()", "", RISK),  # what is learned from, and nothing evaluates
        ("bce(d(fake), y).backward(); opt.step()", "", RISK),
        ("bce(d(x), y).backward(); opt.step()", "d.eval()", BUG),
        ("F.cross_entropy(d(x), y).backward()", "for x, y in val_loader: hits += (d(x).argmax(1) == y).sum()", BUG),
        ("pass", "class Both(nn.Module):\n    def forward(self, x):\n        return self.d(x)", BUG),
    ],
)  # fmt: skip
def test_dropout_of_a_critic(lines: str, behind: str, severity: Severity) -> None:
    assert told("EVAL001", JUDGED.replace("LINES", lines).replace("BEHIND", behind)) == [severity]


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("", RISK),  # a copy that nothing makes: what evaluates it is out of sight, if anything does
        ("d = D()", BUG),
        ("def build(): return D()", BUG),
        ("KINDS = {'d': D}", BUG),
        ("d = D(); F.mse_loss(d(x), y).backward()", RISK),  # trained, and nothing speaks of an evaluation
        ("d = D(); F.mse_loss(d(x), y).backward(); d.eval()", BUG),
        ("d = D(); F.mse_loss(d(x), y).backward()\nwith torch.no_grad(): print(d(x))", BUG),
        ("d = D(); F.mse_loss(d(x), y).backward()\ndef predict(x): return d(x)\nprint(predict(x))", BUG),
    ],
)
def test_dropout_of_what_nothing_in_sight_evaluates(made: str, severity: Severity) -> None:
    network = "class D(nn.Module):\n    def forward(self, x):\n        return F.dropout(x, 0.3)\n"
    assert told("EVAL001", f"{network}{made}\n") == [severity]


# ── MEM001: of a total of one pass, whose tensors backward has freed, only the nodes stay ──

SUMMED = """
net = make(); opt = torch.optim.Adam(net.parameters()); criterion = nn.CrossEntropyLoss()
BEFORE
for epoch in range(9):
    BEGUN
    for x, y in loader:
        loss = criterion(net(x), y)
        opt.zero_grad()
        loss.backward(WORDS)
        opt.step()
        LINE
"""


@pytest.mark.parametrize(
    ("before", "begun", "words", "line", "severity"),
    [
        ("", "total = 0", "", "total += loss", RISK),
        ("", "total = 0", "", "total = total + loss", RISK),
        ("", "total = 0.0", "", "total += loss * len(x)", RISK),
        ("", "total = torch.zeros(())", "", "total += loss / len(loader)", RISK),
        ("", "total, hits = 0, 0", "", "total += loss", RISK),
        ("", "total = 0", "retain_graph=False", "total += loss", RISK),
        ("", "total = 0", "retain_graph=True", "total += loss", BUG),
        ("", "total = 0", "create_graph=True", "total += loss", BUG),
        ("total = 0", "", "", "total += loss", BUG),
        ("mean = 0", "", "", "mean = 0.9 * mean + 0.1 * loss", BUG),
        ("stats = {'loss': 0}", "", "", "stats['loss'] += loss", BUG),
    ],
)
def test_total_of_one_pass(before: str, begun: str, words: str, line: str, severity: Severity) -> None:
    text = SUMMED.replace("BEFORE", before).replace("BEGUN", begun or "pass")
    assert told("MEM001", text.replace("WORDS", words).replace("LINE", line)) == [severity]


def test_total_of_the_function_of_one_epoch() -> None:
    text = SUMMED.replace("for epoch in range(9):", "def train(loader):").replace("BEFORE", "")
    text = text.replace("BEGUN", "total = 0").replace("WORDS", "").replace("LINE", "total += loss")
    assert told("MEM001", text + "    return total / len(loader)\ntrain(loader)") == [RISK]


@pytest.mark.parametrize(
    ("begun", "rounds", "severity"),
    [
        ("total = 0", "for x, y in loader:\n        for part in x:", RISK),
        ("total = 0", "for i, (x, y) in enumerate(loader):\n        for k in range(3):", RISK),
        ("total = 0", "for x, y in DataLoader(data):\n        while left(x):", RISK),
        ("total = 0", "for epoch in range(9):\n        for x, y in loader:", BUG),
    ],
)
def test_total_of_a_loop_within_each_batch(begun: str, rounds: str, severity: Severity) -> None:
    text = f"""
        net = make(); opt = torch.optim.Adam(net.parameters())
        def train(loader, x, y):
            {begun}
            ROUNDS
                    loss = F.cross_entropy(net(x), y)
                    opt.zero_grad(); loss.backward(); opt.step()
                    total += loss
            return total
        train(DataLoader(data), 2, 3)
    """
    rounds = rounds.replace("\n", "\n        ")
    assert told("MEM001", text.replace("ROUNDS", rounds)) == [severity]


# ── SAVE001: what only its name calls a model ──

KEPT = """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.best_model = BEGUN
    def fit(self, loader, opt):
        for x, y in loader:
            opt.zero_grad(); F.cross_entropy(self.model(x), y).backward(); opt.step()
            self.best_model = LINE
            torch.save(self.best_model, "best.pt")
"""


@pytest.mark.parametrize(
    ("begun", "line", "severities"),
    [
        ("[]", "copy.deepcopy(self.model.state_dict())", []),
        ("None", "copy.deepcopy(self.model.state_dict())", []),
        ("{}", "self.model.state_dict()", []),
        ("''", "{k: v.cpu() for k, v in self.model.state_dict().items()}", []),
        ("''", "'best.ckpt'", []),
        ("None", "self.trainer.checkpoint_callback.best_model_path", []),
        ("[]", "copy.deepcopy(self.model)", [RISK]),
        ("None", "self.model", [RISK]),
        ("None", "nn.Linear(3, 2)", [RISK]),
        ("None", "build(3)", [RISK]),
    ],
)
def test_what_is_called_a_model(begun: str, line: str, severities: list[Severity]) -> None:
    assert told("SAVE001", KEPT.replace("BEGUN", begun).replace("LINE", line)) == severities


# ── SAVE005: what is read belongs to a file of another name ──

SAVED = """
import os
from resume import go
def run(model, opt, loader, folder):
    for epoch in range(9):
        for x, y in loader:
            opt.zero_grad(); F.cross_entropy(model(x), y).backward(); opt.step()
        torch.save({"epoch": epoch, "state_dict": model.state_dict()}, WHERE)
net = nn.Linear(3, 2)
run(net, torch.optim.SGD(net.parameters(), 0.1), make(), "runs")
"""
RESUMED = """
import os
def load_it(path, model):
    state = torch.load(path)
    model.load_state_dict(state["state_dict"])
    return state["epoch"]
def go(folder, model, opt, loader):
    start = load_it(WHERE, model)
    for epoch in range(start, 9):
        for x, y in loader:
            opt.zero_grad(); F.cross_entropy(model(x), y).backward(); opt.step()
"""


@pytest.mark.parametrize(
    ("saved", "loaded", "severity"),
    [
        ('folder / "last.pt"', 'folder / "checkpoint.pt"', ADVICE),
        ('os.path.join(folder, "last.pt")', 'os.path.join(folder, "checkpoint.pt")', ADVICE),
        ('"runs/last.pt"', '"runs/checkpoint.pt"', ADVICE),
        ('"last.pt"', 'os.path.join("gan", "checkpoint.pt")', ADVICE),
        ('folder / "last.pt"', 'folder / "last.pt"', RISK),
        ('os.path.join(folder, "last.pt")', '"runs/last.pt"', RISK),
        ('folder / f"{epoch}.pt"', 'folder / "3.pt"', RISK),
        ("'runs/net_' + str(epoch) + '.pt'", "'runs/net.pt'", RISK),
        ('folder / "last.pt"', "sys.argv[1]", RISK),
        ('folder / "last.pt"', "os.path.join(folder, name)", RISK),
    ],
)
def test_epoch_of_another_file(saved: str, loaded: str, severity: Severity) -> None:
    files = {"main.py": SAVED.replace("WHERE", saved), "resume.py": RESUMED.replace("WHERE", loaded)}
    assert told("SAVE005", files) == [severity]


# ── DATA019: a part whose other parts nothing reads has the whole set for itself ──


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (("train, _ = random_split(one, n)\n_, val = random_split(two, n)\ntrain.dataset.transform = a\n"
         "val.dataset.transform = b"), []),
        ("one, _ = random_split(one, n)\none.dataset.transform = a", []),
        ("train, rest = random_split(one, n)\nother, val = random_split(two, n)\nval.dataset.transform = b", []),
        ("[train, _] = random_split(one, n)\ntrain.dataset.transform = a\nDataLoader(train)", []),
        ("train, val = random_split(one, n)\nval.dataset.transform = b\nDataLoader(train)", [BUG]),
        ("train, val, test = random_split(one, n)\nval.dataset.transform = b\nDataLoader(test)", [BUG]),
        ("train, _ = random_split(one, n)\ntrain.dataset.transform = a\nDataLoader(_)", [BUG]),
        ("train, val = random_split(one, n)\nprint(len(train))\nval.dataset.transform = b", [BUG]),
    ],
)  # fmt: skip
def test_transform_of_the_part_that_is_read(lines: str, severities: list[Severity]) -> None:
    begun = "from torch.utils.data import random_split\ndef parts(one, two, n):\n"
    assert told("DATA019", begun + textwrap.indent(lines, "    ")) == severities


def test_transform_of_a_part_whose_other_part_another_file_may_read() -> None:
    begun = "from torch.utils.data import random_split\n"
    assert told("DATA019", begun + "train, rest = random_split(one, n)\ntrain.dataset.transform = a") == [BUG]
    assert not told("DATA019", begun + "train, _ = random_split(one, n)\ntrain.dataset.transform = a")


# ── SCHED001: a schedule of batches that is one update early ──

STEPPED = """
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1); loader = DataLoader(data)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 0.1 ** (t / 1000))
LINES
"""
UPDATE = "opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()"


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        (f"for x, y in loader:\n    sched.step()\n    {UPDATE}", ADVICE),
        (f"for i, (x, y) in enumerate(loader):\n    sched.step()\n    {UPDATE}", ADVICE),
        (f"for epoch in range(9):\n    for x, y in tqdm(loader):\n        sched.step()\n        {UPDATE}", ADVICE),
        (f"for step in range(9999):\n    sched.step()\n    x, y = next(iter(loader))\n    {UPDATE}", ADVICE),
        (f"it = iter(loader)\nwhile True:\n    sched.step()\n    batch = next(it)\n    x, y = batch\n    {UPDATE}", ADVICE),
        (f"for epoch in range(9):\n    sched.step()\n    for x, y in loader:\n        {UPDATE}", RISK),
        (f"for epoch in range(9):\n    sched.step()\n    {UPDATE}", RISK),
        (f"def train():\n    for x, y in loader:\n        {UPDATE}\nfor e in range(9):\n    sched.step()\n    train()", RISK),
    ],
)  # fmt: skip
def test_schedule_of_batches(lines: str, severity: Severity) -> None:
    assert told("SCHED001", STEPPED.replace("LINES", lines)) == [severity]


# ── DATA002: batches that are taken one by one, now and then ──

DRAWN = """
val_loader = DataLoader(make(), batch_size=8, drop_last=True)
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
val_iter = iter(val_loader)
for epoch in range(9):
    for x, y in DataLoader(make()):
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
    LINES
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (("try:\n        a = next(val_iter)\n    except StopIteration:\n        val_iter = iter(val_loader)\n"
         "        a = next(val_iter)\n    show(net(a))"), []),
        ("show(net(next(iter(val_loader))))", []),
        ("a = next(val_iter)\n    show(net(a))", []),
        ("it = iter(val_loader)\n    for _ in range(3):\n        show(net(next(it)))", []),
        ("for x, y in val_loader:\n        total += F.cross_entropy(net(x), y).item()", [RISK]),
        (("it = iter(val_loader)\n    while True:\n        try:\n            x, y = next(it)\n        except StopIteration:\n"
         "            break\n        total += F.cross_entropy(net(x), y).item()"), [RISK]),
        (("it = iter(val_loader)\n    b = next(it, None)\n    while b is not None:\n        total += measured(net, b)\n"
         "        b = next(it, None)"), [RISK]),
        ("it = iter(val_loader)\n    for _ in range(len(val_loader)):\n        total += measured(net, next(it))", [RISK]),
    ],
)  # fmt: skip
def test_batches_taken_one_by_one(lines: str, severities: list[Severity]) -> None:
    assert told("DATA002", DRAWN.replace("LINES", lines)) == severities


# ── VALUE030: the text of an error, by a name ──


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ('msg = "valid are {{}}".format(known)\n    raise ValueError(msg)', []),
        ('msg = "no"\n    msg += "valid are {{}}".format(known)\n    raise ValueError(msg)', []),
        ('text = "valid are".format(known)\n    print(text)', []),
        ('text = "valid are".format(known)\n    logging.info(text)\n    raise KeyError(text)', []),
        ('text = "valid are".format(known)\n    assert known, text', []),
        ('raise ValueError("valid are".format(known))', []),
        ('path = "weights".format(known)\n    torch.save(net, path)', [BUG]),
        ('path = "weights".format(known)\n    print(path)\n    torch.save(net, path)', [BUG]),
        ('return "weights".format(known)', [BUG]),
        ('path = "weights".format(known)\n    return path', [BUG]),
    ],
)
def test_text_of_an_error(lines: str, severities: list[Severity]) -> None:
    text = (
        "import logging\ndef named(known, net):\n    " + lines + "\nfor i in range(3):\n    named(i, net)\n"
    )
    found = [RISK if each is BUG else each for each in told("VALUE030", text)]
    assert found == [RISK if each is BUG else each for each in severities]


# ── LOSS011: a logarithm in a branch that a line above switches off ──


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("mi = False\n        if mi:\n            loss = -(p * torch.log(p)).sum()", []),
        ("mi = 0\n        loss = F.nll_loss(p, y) if not mi else -(p * torch.log(p)).sum()", []),
        ("mi = True\n        if not mi:\n            loss = -(p * torch.log(p)).sum()", []),
        ("mi = True\n        if mi:\n            loss = -(p * torch.log(p)).sum()", [RISK]),
        ("if self.mi:\n            loss = -(p * torch.log(p)).sum()", [RISK]),
        ("loss = -(p * torch.log(p)).sum()", [RISK]),
    ],
)
def test_logarithm_that_is_switched_off(lines: str, severities: list[Severity]) -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self, mi):\n        super().__init__()\n        self.mi = mi\n"
        "        self.fc = nn.Linear(3, 2)\n    def loss(self, x, y):\n        p = torch.softmax(self.fc(x), 1)\n"
        f"        {lines}\n        loss.backward()\n"
    )
    assert told("LOSS011", text) == severities


# ── VALUE041: a form whose blanks are comments, and a name that another file sets ──

FORM = """
def train(cfg, criterion):
    BLANK
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for x in cfg:
        opt.zero_grad()
        criterion(model(x)).backward()
        opt.step()
train(1, 2)
"""


@pytest.mark.parametrize(
    ("blank", "severity"),
    [
        ("# model =", ADVICE),
        ("#model=", ADVICE),
        ("### BEGIN TODO ###\n    # the network\n    # model =\n    # loss =", ADVICE),
        ("# model = ...", ADVICE),
        ("# model = None", ADVICE),
        ("# model = ____", ADVICE),
        ("# model = make(3)", BUG),
        ("# other =", BUG),
        ("# the model = what is trained", BUG),
        ("rows = 1  # model", BUG),
    ],
)
def test_blank_in_a_comment(blank: str, severity: Severity, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(IMPORTS + FORM.replace("BLANK", blank))
    found = [each for each in read_paths([path]).findings if each.code == "VALUE041"]
    assert [each.severity for each in found] == [severity]


LOSSES = """
GLOBAL
def dice(prediction, target):
    return ((prediction - target) ** 2).sum() / CLASS_NUMBER
"""
OF_LOSSES = """
IMPORT
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
SET
for x, y in DataLoader(data()):
    opt.zero_grad()
    losses.dice(net(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("declared", "imported", "line", "is_told"),
    [
        ("global CLASS_NUMBER", "import losses", "losses.CLASS_NUMBER = 9", False),
        ("", "import losses", "losses.CLASS_NUMBER = 9", False),
        ("", "import losses as other, losses", "other.CLASS_NUMBER = 9", False),
        ("", "import losses", "def main(n):\n    losses.CLASS_NUMBER = n\nmain(3)", False),
        ("global CLASS_NUMBER", "import losses", "pass", True),
        ("", "import losses", "CLASS_NUMBER = 9", True),
        ("", "import losses", "net.CLASS_NUMBER = 9", True),
        ("", "import losses", "losses.NUM_CLASSES = 9", True),
    ],
)
def test_name_that_another_file_sets(
    declared: str, imported: str, line: str, is_told: bool, tmp_path: Path
) -> None:
    (tmp_path / "losses.py").write_text(IMPORTS + LOSSES.replace("GLOBAL", declared))
    text = OF_LOSSES.replace("IMPORT", imported).replace("SET", line)
    (tmp_path / "main.py").write_text(IMPORTS + "def data():\n    return [1]\n" + text)
    found = [each for each in read_paths([tmp_path]).findings if each.code == "VALUE041"]
    assert any("CLASS_NUMBER" in each.message for each in found) == is_told


# ── LOSS036: a mask of the classes that occur ──

OCCURRING = """
def jaccard(out, y, dims=(0, 2)):
    scores = (out * y).sum(dims) / (out + y).sum(dims).clamp_min(1e-6)
    loss = 1.0 - scores
    LINES
"""


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("mask = y.sum(dims) > 0\n    loss *= mask.to(loss.dtype)\n    return loss.mean()", ADVICE),
        ("mask = y.sum(dims) > 0\n    loss = loss * mask.float()\n    return loss.mean()", ADVICE),
        ("mask = (y.sum(dim=dims) != 0).float()\n    return (loss * mask).mean()", ADVICE),
        ("mask = y != 255\n    return (loss * mask).mean()", RISK),
        ("mask = (y > 0).float()\n    return (loss * mask).mean()", RISK),
    ],
)
def test_the_mean_over_classes_that_do_not_occur(lines: str, severity: Severity) -> None:
    assert told("LOSS036", OCCURRING.replace("LINES", lines)) == [severity]
