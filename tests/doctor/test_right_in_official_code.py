# SPDX-License-Identifier: Apache-2.0
"""What official tutorials and reference code write rightly, in several wordings, each beside the fault it was taken for."""

import json
from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, RISK, ADVICE = Severity.BUG, Severity.RISK, Severity.ADVICE


# ── DATA020: of the data that another loader does not train on, only the name says training ──

LOADERS = """
TRAIN
val_loader = DataLoader(train_data_labelled, batch_size=8)
for x, y in train_loader:
    F.cross_entropy(net(x), y).backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("train", "severity"),
    [
        ("train_loader = DataLoader(unlabelled, batch_size=8, shuffle=True)", []),
        ("train_loader = DataLoader(dataset=unlabelled, batch_size=8, shuffle=True)", []),
        ("train_loader = DataLoader(Pairs(unlabelled), 8, True)", []),
        ("pairs = Pairs(unlabelled)\ntrain_loader = DataLoader(pairs, 8, True)", []),
        ("train_loader = DataLoader(train_data_labelled, batch_size=8, shuffle=True)", [RISK]),
        ("train_loader = DataLoader(dataset=train_data_labelled, batch_size=8, shuffle=True)", [RISK]),
        ("train_loader = DataLoader(Pairs(train_data_labelled), 8, True)", [RISK]),
        ("pairs = Pairs(train_data_labelled)\ntrain_loader = DataLoader(pairs, 8, True)", [RISK]),
        ("pass", [RISK]),
    ],
)
def test_data_that_only_a_name_says_are_trained_on(train: str, severity: list[Severity]) -> None:
    assert told("DATA020", LOADERS.replace("TRAIN", train)) == severity


# ── SCHED012: a schedule that Lightning does not get, and one whose own option says step ──

MODULE = """
import lightning
class Task(lightning.LightningModule):
    def __init__(self, net, max_iters, lr_step_size, num_iters):
        super().__init__()
        self.net = net; self.max_iters = max_iters; self.lr_step_size = lr_step_size; self.num_iters = num_iters
    def training_step(self, batch, index):
        return F.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters())
        MADE
"""
COSINE = "torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.max_iters)"
STEPS = "torch.optim.lr_scheduler.StepLR(opt, self.lr_step_size)"


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        (f"self.schedule = {COSINE}\n        return opt", []),
        (f"self._sched = {COSINE}\n        return [opt]", []),
        (f"self.schedule = {COSINE}\n        return {{'optimizer': opt}}", []),
        (f"schedule = {COSINE}\n        return opt", []),
        (f"sched = {STEPS}\n        return [opt], [sched]", []),
        (f"return [opt], [{STEPS}]", []),
        (f"sched = {STEPS}\n        return {{'optimizer': opt, 'lr_scheduler': sched}}", []),
        ("return [opt], [torch.optim.lr_scheduler.MultiStepLR(opt, self.lr_steps)]", []),
        (f"self.schedule = {COSINE}\n        return [opt], [self.schedule]", [RISK]),
        (f"schedule = {COSINE}\n        return [opt], [schedule]", [RISK]),
        (
            f"given = {{'optimizer': opt}}\n        given['lr_scheduler'] = {COSINE}\n        return given",
            [RISK],
        ),
        ("return [opt], [torch.optim.lr_scheduler.StepLR(opt, self.num_iters)]", [RISK]),
        ("return [opt], [torch.optim.lr_scheduler.MultiStepLR(opt, self.at_batches)]", [RISK]),
    ],
)
def test_schedule_that_lightning_steps(made: str, severity: list[Severity]) -> None:
    assert told("SCHED012", MODULE.replace("MADE", made)) == severity


# ── DATA002: single batches of a stream without an end ──

ENDLESS = """
def cycle(loader):
    while True:
        for each in loader:
            yield each
def once(loader):
    for each in loader:
        yield each
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
READ
for x, y in train_loader:
    F.cross_entropy(net(x), y).backward(); opt.step(); opt.zero_grad()
    print(F.cross_entropy(net(x), next(val_loader)))
"""
LOADER = "DataLoader(held_out, 8, drop_last=True)"


@pytest.mark.parametrize(
    ("read", "severity"),
    [
        (f"val_loader = cycle({LOADER})", []),
        (f"val_loader = iter(cycle({LOADER}))", []),
        (f"val_loader = {LOADER}\nval_loader = cycle(val_loader)", []),
        (f"val_loader = {LOADER}\nvalidation = cycle(val_loader)", []),
        (f"val_loader = once({LOADER})", [RISK]),
        (f"val_loader = {LOADER}\nfor x, y in val_loader: print(net(x))", [RISK]),
        (f"val_loader = {LOADER}\nvalidation = once(val_loader)", [RISK]),
    ],
)
def test_stream_without_end(read: str, severity: list[Severity]) -> None:
    program = ENDLESS.replace("READ", read)
    if "validation" in read or "for x, y in val" in read:
        program = program.replace("    print(F.cross_entropy(net(x), next(val_loader)))\n", "")
    assert told("DATA002", program) == severity


# ── VALUE012: a decoder is made as its encoder's mirror ──

MIRRORED = """
class Up(nn.Module):
    def __init__(self, FIRST, SECOND):
        super().__init__()
        self.layer = nn.Linear(FIRST, SECOND)
def made(FIRST, SECOND):
    return Up(SECOND, FIRST)
"""


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ("chin", "chout", []),
        ("dimin", "dimout", []),
        ("n_in", "n_out", []),
        ("nsrc", "ntgt", []),
        ("channels", "classes", [RISK]),
        ("depth", "hidden", [RISK]),
        ("chins", "chords", [RISK]),
        ("length", "levels", [RISK]),
    ],
)
def test_mirror_of_an_encoder(first: str, second: str, severity: list[Severity]) -> None:
    assert told("VALUE012", MIRRORED.replace("FIRST", first).replace("SECOND", second)) == severity


# ── VALUE041: a sketch in a notebook, which no cell reads ──


@pytest.mark.parametrize(
    ("cell", "read", "severity"),
    [
        ("def guide(x):\n    return net(some_function(x))", "", [ADVICE]),
        ("class Task(nn.Module):\n    def forward(self, x):\n        return unknown_layer(x)", "", [ADVICE]),
        ("def model(x):\n    def inner(y):\n        return elsewhere(y)\n    return inner(x)", "", [ADVICE]),
        ("async def guide(x):\n    return net(some_function(x))", "", [ADVICE]),
        ("def guide(x):\n    return net(some_function(x))", "guide(1)", [RISK]),
        ("class Task(nn.Module):\n    def forward(self, x):\n        return unknown_layer(x)", "task = Task()", [RISK]),
        ("def model(x):\n    def inner(y):\n        return elsewhere(y)\n    return inner(x)", "print(model(1))", [RISK]),
        ("def guide(x):\n    return net(some_function(x))", "run = guide", [RISK]),
    ],
)  # fmt: skip
def test_sketch_in_a_notebook(cell: str, read: str, severity: list[Severity], tmp_path: Path) -> None:
    cells = [IMPORTS + "net = nn.Linear(3, 3)", cell, read or "x = 1"]
    rows = [{"cell_type": "code", "source": each, "metadata": {}, "outputs": []} for each in cells]
    tmp_path.joinpath("page.ipynb").write_text(
        json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    found = [each.severity for each in read_paths([tmp_path]).findings if each.code == "VALUE041"]
    assert found == severity


# ── DATA013: which classes there are is no figure ──


@pytest.mark.parametrize(
    ("made", "severities"),
    [
        ("OneHotEncoder()", 0),
        ("OrdinalEncoder()", 0),
        ("LabelEncoder()", 0),
        ("MultiLabelBinarizer()", 0),
        ("StandardScaler()", 1),
        ("MinMaxScaler()", 1),
        ("TargetEncoder()", 1),
        ("RobustScaler()", 1),
    ],
)
def test_encoder_of_classes(made: str, severities: int) -> None:
    text = f"""
from sklearn.model_selection import train_test_split
from sklearn import preprocessing
fitted = preprocessing.{made}
rows = fitted.fit_transform(rows)
train_rows, test_rows, y, z = train_test_split(rows, labels)
"""
    assert len(told("DATA013", text)) == severities


# ── PARAM004: a module of plain values that nothing calls as one ──


@pytest.mark.parametrize(
    ("kept", "method", "severity"),
    [
        ("self.mean = mean", "def normalize(self, x):\n        return x - self.mean", []),
        ("self.mean, self.std = mean, 1", "def undo(self, x):\n        return x * self.std + self.mean", []),
        ("self.size = 3", "def sizes(self):\n        return [self.size]", []),
        ("self.mean = mean", "def __call__(self, x):\n        return x - self.mean", []),
        ("self.mean = mean", "def forward(self, x):\n        return x - self.mean", [BUG]),
        ("self.layer = nn.Linear(3, 3)", "def normalize(self, x):\n        return self.layer(x)", [BUG]),
        ("self.mean = mean; self.layer = nn.ReLU()", "def run(self, x):\n        return self.mean", [BUG]),
        ("self.scale = nn.Parameter(mean)", "def run(self, x):\n        return self.scale * x", [BUG]),
    ],
)
def test_module_of_plain_values(kept: str, method: str, severity: list[Severity]) -> None:
    text = f"""
class Scale(nn.Module):
    def __init__(self, mean):
        {kept}
    {method}
scale = Scale(0.5)
"""
    assert told("PARAM004", text) == severity
    heir = "class Net(Scale):\n    def forward(self, x):\n        return x\nnet = Net(1)\n"
    assert "forward" in method or "__call__" in method or told("PARAM004", text + heir) == [BUG]


# ── VALUE028: spaces that are cut off in vain before what takes none ──


@pytest.mark.parametrize(
    ("line", "read", "severity"),
    [
        ("text.strip()", "words = text.split()", [RISK]),
        ("text.replace('\\n', '')", "words = text.split(',')[0]", [RISK]),
        ("text.rstrip('\\n')", "number = int(text)", [RISK]),
        ("text.strip()", "number = float(text); words = text.split()", [RISK]),
        ("text.strip()", "table[text] = 1", [BUG]),
        ("text.replace('\\n', '')", "names.append(text)", [BUG]),
        ("text.strip('/')", "words = text.split()", [BUG]),
        ("text.lower()", "words = text.split()", [BUG]),
        ("text.strip()", "words = text.split(); names.append(text)", [BUG]),
    ],
)  # fmt: skip
def test_spaces_cut_off_in_vain(line: str, read: str, severity: list[Severity]) -> None:
    text = f"""
table, names = {{}}, []
with open(path) as file:
    for text in file.readlines():
        {line}
        {read}
"""
    assert told("VALUE028", text) == severity
