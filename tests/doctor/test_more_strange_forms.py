# SPDX-License-Identifier: Apache-2.0
"""What strangers mean by a name, a list, a switch or a value that is left over, each beside the plain mistake."""

import json
import textwrap
from itertools import product
from pathlib import Path

import pytest

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths, read_texts

IMPORTS = """
import os
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
"""
BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


def told(wanted: str, code: str, **files: str) -> list[Severity]:
    texts = {f"{name}.py": IMPORTS + textwrap.dedent(text) for name, text in files.items()}
    reading = read_texts({**texts, "main.py": IMPORTS + textwrap.dedent(code)})
    assert not reading.failures
    return [each.severity for each in reading.findings if each.code == wanted]


# ── VALUE040: what a name stands for ──────────────────────────────────────────────────────────

HELPERS = "def note(name, value, sink):\n    print(name, value, sink)\n"
PARTIALS = ("functools.partial", "partial", "ft.partial", "bind")
BROUGHT = """
import functools, helpers
import functools as ft
from functools import partial
from functools import partial as bind
"""
PLACES = {
    "function": "def main(sink):\n    note = PARTIAL(helpers.note, sink=sink)\n    note('n', 1)\nmain(3)\n",
    "module": "from helpers import note\nnote = PARTIAL(note, sink=3)\nnote('n', 1)\n",
    "global": "note = None\ndef start():\n    global note\n    note = PARTIAL(helpers.note, sink=3)\n"
    "def main():\n    start()\n    note('n', 1)\nmain()\n",
    "method": "class Log:\n    def __init__(self, sink):\n        self.note = PARTIAL(helpers.note, sink=sink)\n"
    "    def run(self):\n        self.note('n', 1)\nLog(3).run()\n",
    "attribute": "helpers.note = PARTIAL(helpers.note, sink=3)\nhelpers.note('n', 1)\n",
}


@pytest.mark.parametrize(("place", "partial"), [*product(PLACES, PARTIALS)])
def test_a_partial_that_has_the_name_of_what_it_wraps(place: str, partial: str) -> None:
    assert told("VALUE040", BROUGHT + PLACES[place].replace("PARTIAL", partial), helpers=HELPERS) == []


def test_a_partial_of_another_file_and_a_mere_alias() -> None:
    calls = "import helpers\nfrom helpers import note\nhelpers.note('n', 1)\nnote('n', 1)\n"
    behind = "import functools, inner\nnote = functools.partial(inner.note, sink=3)\n"
    assert told("VALUE040", calls, helpers=behind, inner=HELPERS) == []
    assert told("VALUE040", calls, helpers=HELPERS) == [BUG, BUG]
    assert told("VALUE040", "import helpers\nnote = helpers.note\nnote('n', 1)\n", helpers=HELPERS) == [BUG]


@pytest.mark.parametrize(
    ("cells", "is_told"),
    [
        (("from plots import savefig", "%pylab inline", "savefig('a')"), False),
        (("from plots import savefig\n%pylab inline\ndef f():\n    savefig('a')\nf()",), False),
        (("import plots as p", "from plots import savefig", "from numpy import *", "savefig('a')"), False),
        (("%pylab inline", "from plots import savefig", "savefig('a')"), True),
        (("from plots import savefig", "%matplotlib inline", "savefig('a')"), True),
        (("from plots import savefig", "from others import *", "savefig('a')"), True),
        (("from plots import savefig", "savefig('a')", "%pylab inline"), True),
    ],
)
def test_a_name_that_a_magic_may_bring_anew(tmp_path: Path, cells: tuple[str, ...], is_told: bool) -> None:
    (tmp_path / "plots.py").write_text("def savefig(figure, path):\n    print(path)\n")
    (tmp_path / "others.py").write_text("def shown():\n    return 1\n")
    made = [{"cell_type": "code", "source": each} for each in ("import torch", *cells)]
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": made}))
    found = [each.code for each in read_paths([tmp_path]).findings]
    assert ("VALUE040" in found) is is_told


# ── DEV001: what asks for the devices ─────────────────────────────────────────────────────────

QUIET = ("empty_cache()", "manual_seed_all(1)", "is_initialized()", "memory_allocated()")
ASKING = ("is_available()", "synchronize()", "current_device()", "get_device_name(0)")


@pytest.mark.parametrize(
    "written", ["torch.cuda.{}", "from torch import cuda; cuda.{}", "print(torch.cuda.{})"]
)
def test_a_call_that_does_nothing_before_cuda_is_used(written: str) -> None:
    for calls in (QUIET, ASKING):
        code = "".join(f"{written.format(each)}\n" for each in calls)
        found = told("DEV001", code + "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n")
        assert found == ([BUG] if calls is ASKING else [])


# ── PARAM001: who registers the layers ────────────────────────────────────────────────────────

BAGS = {
    "add_module": "for i, layer in enumerate(layers): self.add_module(str(i), layer)",
    "setattr": "for i, layer in enumerate(layers): setattr(self, f'layer{i}', layer)",
    "list": "self.kept = nn.ModuleList(layers)",
}
BAG = "class Bag(nn.Module):\n    def __init__(self, *layers):\n        super().__init__()\n        {}\n"
LAYERS = ("[nn.Linear(3, 3), nn.Linear(3, 3)]", "[nn.Linear(3, 3) for _ in range(3)]", "[]")
GIVEN = ("Bag(*self.steps)", "bags.Bag(*self.steps)", "Bag(*[each for each in self.steps])")
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = LAYERS
        for _ in range(2):
            if APPENDS:
                self.steps.append(nn.Linear(3, 3))
        self.registered = GIVEN
"""


@pytest.mark.parametrize(("layers", "given"), [*product(LAYERS, GIVEN)])
def test_layers_that_a_holder_of_the_program_registers(layers: str, given: str) -> None:
    net = NET.replace("LAYERS", layers).replace("GIVEN", given).replace("APPENDS", str(layers == "[]"))
    for holder in BAGS.values():
        apart = "import bags\nfrom bags import Bag\n" + net
        assert told("PARAM001", apart, bags=IMPORTS + BAG.format(holder)) == []
    kept = "import bags\nfrom bags import Bag\n" + net
    assert told("PARAM001", kept, bags=IMPORTS + BAG.format("self.kept = layers")) == [BUG]


@pytest.mark.parametrize(
    ("holder", "given"),
    [
        ("class Row(nn.Sequential):\n    pass\n", "Row(*self.steps)"),
        ("class Row(nn.ModuleList):\n    pass\n", "Row(self.steps)"),
        ("def row(layers):\n    return nn.ModuleList(layers)\n", "row(self.steps)"),
    ],
)
def test_layers_in_a_holder_that_is_one_of_torch_s(holder: str, given: str) -> None:
    net = NET.replace("LAYERS", LAYERS[0]).replace("GIVEN", given).replace("APPENDS", "False")
    assert told("PARAM001", holder + net) == []
    assert told("PARAM001", holder + net.replace(given, "len(self.steps)")) == [BUG]


@pytest.mark.parametrize(
    ("layer", "severities"),
    [("Noise()", [RISK]), ("nn.Dropout(0.1)", [RISK]), ("Plain()", []), ("nn.UpsamplingBilinear2d(2)", []), ("nn.PReLU()", [BUG])],
)  # fmt: skip
def test_layers_without_weights_are_missed_by_their_mode_at_most(
    layer: str, severities: list[Severity]
) -> None:
    code = f"""
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x) if self.training else x

    class Plain(nn.Module):
        def forward(self, x):
            return 2 * x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = {{"a": {layer}, "b": {layer}}}
    """
    assert told("PARAM001", code) == severities


# ── MEM001: a name that is given another value ────────────────────────────────────────────────

EPOCHS = """
def fit(net, opt, loader, test):
    curve, total = [], 0.0
    for epoch in range(3):
        losses = []
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        ANEW
        KEPT
    return curve, total
"""
KEPT = ("curve.append(loss)", "total += loss", "curve += [loss]", "total = total + loss")


@pytest.mark.parametrize("kept", KEPT)
def test_a_name_of_a_loss_that_is_given_a_mean(kept: str) -> None:
    for anew in ("loss = sum(losses) / len(loader)", "loss = test(net)", "loss = np.mean(losses)"):
        code = EPOCHS.replace("ANEW", anew).replace("KEPT", kept)
        assert told("MEM001", "import numpy as np\n" + code) == []
        assert told("MEM001", "import numpy as np\nclass T:\n" + textwrap.indent(code, "    ")) == []
    for same in ("pass", "loss = loss * 2", "loss = loss + net.weight.sum()"):
        assert told("MEM001", EPOCHS.replace("ANEW", same).replace("KEPT", kept)) != []


# ── SCHED002: another schedule of the same optimizer ──────────────────────────────────────────

SCHEDULES = """
net, loader = nn.Linear(3, 3), [(torch.ones(2, 3), torch.ones(2, 3))]
opt, other = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
first = torch.optim.lr_scheduler.StepLR(opt, 2)
second = torch.optim.lr_scheduler.CosineAnnealingLR(OPTIMIZER, 10)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
    second.step()
"""


def test_a_schedule_that_is_left_beside_another_of_its_optimizer() -> None:
    assert told("SCHED002", SCHEDULES.replace("OPTIMIZER", "opt")) == [ADVICE]
    assert told("SCHED002", SCHEDULES.replace("OPTIMIZER", "other"))[0] in (BUG, RISK)
    body = textwrap.indent(SCHEDULES.replace("OPTIMIZER", "opt"), "    ")
    assert told("SCHED002", f"def main():\n{body}\nmain()\n") == [ADVICE]


# ── PARAM031: what is made where the object has none ──────────────────────────────────────────

MAKESHIFTS = (
    "if hasattr(self, 'norm'):\n            return self.norm(x)\n        else:\n            return MADE(x)",
    "norm = self.norm if hasattr(self, 'norm') else MADE\n        return norm(x)",
    "if not hasattr(self, 'norm'):\n            norm = MADE\n        else:\n            norm = self.norm\n        return norm(x)",
    "return getattr(self, 'norm', MADE)(x)",
    "norm = MADE if self.norm is None else self.norm\n        return norm(x)",
)
SETS = (
    "self.norm = nn.Linear(3, 3)",
    "setattr(self, 'norm', nn.Linear(3, 3))",
    "self.add_module('norm', nn.Linear(3, 3))",
)


@pytest.mark.parametrize(
    ("forward", "made"), [*product(MAKESHIFTS, ("nn.Linear(3, 3)", "nn.BatchNorm1d(3)"))]
)
def test_a_layer_that_is_made_only_without_one_of_the_object(forward: str, made: str) -> None:
    code = f"class Net(nn.Module):\n    def start(self):\n        SET\n\n    def forward(self, x):\n        {forward}\n"
    code = code.replace("MADE", made)
    for sets in SETS:
        assert told("PARAM031", code.replace("SET", sets)) == []
    assert told("PARAM031", code.replace("SET", "self.norm = None")) != []
    assert told("PARAM031", code.replace("SET", "self.other = nn.Linear(3, 3)")) != []


# ── SEED003: two switches ─────────────────────────────────────────────────────────────────────

SWITCHES = """
from torch.backends import cudnn
net = nn.Conv2d(3, 3, 3)  # what is tuned
def start(deterministic=FIRST, benchmark=SECOND):
    if deterministic:
        cudnn.deterministic = True
    if benchmark:
        torch.backends.cudnn.benchmark = True
"""


@pytest.mark.parametrize(
    ("defaults", "call", "is_told"),
    [
        (("True", "True"), "start(deterministic=False)", False),
        (("True", "True"), "start(True, False)", False),
        (("False", "True"), "start()", False),
        (("True", "False"), "", False),
        (("True", "True"), "", True),
        (("False", "False"), "start(True, True)", True),
        (("True", "True"), "start(deterministic=False)\nstart()", True),
    ],
)
def test_two_switches_that_no_call_gives_together(
    defaults: tuple[str, str], call: str, is_told: bool
) -> None:
    tool = SWITCHES.replace("FIRST", defaults[0]).replace("SECOND", defaults[1])
    assert told("SEED003", tool + call) == [RISK] * is_told
    assert told("SEED003", f"from tool import start\n{call}\n", tool=tool) == [RISK] * is_told
    method = "class T:\n" + textwrap.indent(tool.replace("start(", "start(self, "), "    ")
    assert told("SEED003", method + call.replace("start(", "T().start(")) == [RISK] * is_told


# ── PARAM021: what is left over ──────────────────────────────────────────────────

UNUSED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = MADE

    def forward(self, x):
        # COMMENT
        return self.first(x)
"""


@pytest.mark.parametrize(
    ("made", "comment", "severities"),
    [
        ("nn.UpsamplingBilinear2d(2)", "", []),
        ("nn.Sequential(nn.PixelShuffle(2), nn.Softplus())", "", []),
        ("nn.InstanceNorm2d(3)", "", []),
        ("nn.InstanceNorm2d(3, affine=True)", "", [RISK]),
        ("nn.Sequential(nn.PixelShuffle(2), nn.Conv2d(3, 3, 1))", "", [RISK]),
        ("nn.Linear(4, 4)", "the second one, self.second, is for later", [RISK]),
        ("nn.Linear(4, 4)", "self.second", [RISK]),
        ("nn.Linear(4, 4)", "x = self.second(x)", [ADVICE]),
        ("nn.Linear(4, 4)", "return self.first(self.second(x))", [ADVICE]),
    ],
)
def test_a_layer_that_is_left_over(made: str, comment: str, severities: list[Severity]) -> None:
    assert told("PARAM021", UNUSED.replace("MADE", made).replace("COMMENT", comment)) == severities


# ── DATA001, SAVE011, EVAL008, VALUE028, PARAM038 ─────────────────────────────────────────────

PAIRS = """
import numpy as np
from torch.utils.data import Dataset, DataLoader
class Pairs(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 100

    def __getitem__(self, index):
        ITEM
train_loader = DataLoader(Pairs([1, 2]), batch_size=4)
net = nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in train_loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("item", "is_told"),
    [
        ("return random.choice(self.rows), index % 2", False),
        ("same = index % 2 == 0\n        return self.rows[np.random.randint(9)], float(same)", False),
        ("return self.rows[torch.randint(9, (1,))], index & 1", False),
        ("return self.rows[index], random.choice(self.rows)", True),
        ("return self.rows[index % 50], random.choice(self.rows)", True),
        ("return self.rows[index % 2], self.rows[0]", True),
    ],
)
def test_a_data_set_that_draws_its_rows(item: str, is_told: bool) -> None:
    assert bool(told("DATA001", PAIRS.replace("ITEM", item))) is is_told


TRAIN = """
def make():
    net = nn.Linear(3, 3)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)

def train(loader):
    net, opt = make()
    schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
    for epoch in range(3):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        schedule.step()
        torch.save(
            {
                "net": net.state_dict(),
                "opt": opt.state_dict(),
                "schedule": schedule.state_dict(),
                "epoch": epoch,
            },
            "a.pt",
        )
"""
LOADS = """
state = torch.load("a.pt")
net.load_state_dict(state["net"])
opt.load_state_dict(state["opt"])
epoch = state["epoch"]
"""
TESTS = "net.eval()\nwith torch.no_grad():\n    print(net(torch.ones(2, 3)), epoch)\n"
GOES_ON = (
    "for step in range(3):\n    opt.zero_grad()\n    net(torch.ones(2, 3)).sum().backward()\n    opt.step()\n"
)


@pytest.mark.parametrize("in_function", [True, False])
def test_a_script_that_loads_and_only_tests(in_function: bool) -> None:
    def read(rest: str) -> list[Severity]:
        body = "net, opt = make()\n" + LOADS + rest
        code = "def main():\n" + textwrap.indent(body, "    ") + "\nmain()\n" if in_function else body
        return told("SAVE011", "from lib import make\n" + code, lib=TRAIN)

    assert read(TESTS) == []
    assert read(GOES_ON) == [RISK]
    assert read(GOES_ON + TESTS) == [RISK]


GENERATES = """
class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.inner(x))
VARIABLE = NAME()
VARIABLE.load_state_dict(torch.load("net.pt", map_location="cpu"))
torch.save(VARIABLE(torch.ones(3, 4)), "made.pt")
"""


@pytest.mark.parametrize(
    ("name", "variable", "severity"),
    [("Net", "net", BUG), ("Net", "netG", QUESTION), ("GeneratorUNet", "net", QUESTION), ("Generator", "net", QUESTION)],
)  # fmt: skip
def test_the_noise_of_a_generator(name: str, variable: str, severity: Severity) -> None:
    assert told("EVAL008", GENERATES.replace("NAME", name).replace("VARIABLE", variable)) == [severity]


@pytest.mark.parametrize(
    ("body", "severities"),
    [
        ("xs.masked_fill(xs > 0, 0)\n    return xs", [BUG]),
        ("xs.masked_fill(xs > 0, 0)\n    return len(xs)", [ADVICE]),
        ("sorted(xs)\n    print(len(xs))", [ADVICE]),
        ("xs.dropna()\n    return len(xs)", [BUG]),
        ("return xs\n    xs.masked_fill(xs > 0, 0)", []),
        ("for x in xs:\n        if x:\n            break\n            xs.clamp(0, 1)\n    return xs", []),
        ("for x in xs:\n        xs.clamp(0, 1)\n        break\n    return xs", [BUG]),
    ],
)
def test_a_result_that_matters_to_nothing(body: str, severities: list[Severity]) -> None:
    assert told("VALUE028", f"def work(xs):\n    {body}\n") == severities
    method = textwrap.indent(f"@staticmethod\ndef work(xs):\n    {body}\n", "    ")
    assert told("VALUE028", f"class T:\n{method}") == severities


SMOOTH = """
class Smooth(nn.Module):
    def __init__(self, OPTION):
        super().__init__()

    def forward(self, x, y):
        return F.cross_entropy(x, y)
"""


@pytest.mark.parametrize(
    ("option", "made", "severity"),
    [
        ("reduction='mean'", "", ADVICE),
        ("reduction='mean'", "Smooth()", ADVICE),
        ("reduction='mean'", "Smooth(reduction='sum')", RISK),
        ("reduction='mean'", "Smooth('sum')", RISK),
        ("reduction", "", RISK),
        ("class_weight=None", "Smooth()", ADVICE),
        ("class_weight=None", "Smooth(class_weight=torch.ones(3))", RISK),
        ("smoothing=0.1", "Smooth()", ADVICE),
        ("smoothing=0.1", "Smooth(0.2)", RISK),
        ("dropout=0.1", "", RISK),
    ],
)
def test_an_option_that_nobody_gives(option: str, made: str, severity: Severity) -> None:
    loss = SMOOTH.replace("OPTION", option)
    assert told("PARAM038", f"{loss}\nloss = {made or None}\n") == [severity]
    assert told("PARAM038", f"from tool import Smooth\nloss = {made or None}\n", tool=loss) == [severity]
