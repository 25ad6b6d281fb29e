# SPDX-License-Identifier: Apache-2.0
"""One project is one program: what a file does is seen from wherever it is imported, and told once."""

import ast
import json
from pathlib import Path

import pytest

from truestep.doctor.linting import read_paths, read_texts
from truestep.doctor.source import linking, module
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.path_of_import import SourceTexts
from truestep.doctor.source.project import SourceProject
from truestep.doctor.source_check_runner import _is_guessed_from_name

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
ENGINE = """
def train_epoch(model, optimizer, batches):
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
SOFT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return F.softmax(self.out(x), dim=1)
"""
SCRIPT = """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
"""


def found(texts):
    reading = read_texts(texts)
    assert (reading.failures, reading.unreadable) == ([], [])
    return [(each.code, Path(each.place.path).name, each.place.line) for each in reading.findings]


@pytest.mark.parametrize(
    ("imports", "place"),
    [
        ("from model import Net", "model.py"),
        ("from model import *", "model.py"),
        ("from parts import Net", "parts/model.py"),
        ("from parts.model import Net", "parts/model.py"),
        ("from src.parts.model import Net as Net", "src/parts/model.py"),
        ("import parts.model\nNet = parts.model.Net", "parts/model.py"),
        ("import parts\nNet = parts.Net", "parts/model.py"),
        ("from parts import model\nNet = model.Net", "parts/model.py"),
        ("try:\n    from gone import Net\nexcept ImportError:\n    from model import Net", "model.py"),
        ("from names import Net", "model.py"),
    ],
)
def test_a_class_is_found_through_every_form_of_import(imports, place):
    texts = {
        "main.py": f"{HEAD}{imports}\n{SCRIPT}",
        place: HEAD + SOFT,
        "names.py": "from model import Net\n",
        "pyproject.toml": "",
    }
    if "parts" in place:
        texts[str(Path(place).with_name("__init__.py"))] = "from .model import Net\n"
    codes = {
        code for code, _, _ in found({name: text for name, text in texts.items() if name.endswith(".py")})
    }
    assert codes == {"LOSS001"}


@pytest.mark.parametrize(
    ("before", "codes"), [("", ["GRAD001"]), ("    optimizer.zero_grad()\n", ["GRAD003"])]
)
def test_a_loop_in_another_file_is_judged_where_it_is_called(before, codes):
    call = f"for epoch in range(3):\n{before}    train_epoch(net, optimizer, batches)\n"
    script = f"{HEAD}from engine import train_epoch\nnet = nn.Linear(4, 3)\n"
    script += f"optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n{call}"
    assert [code for code, _, _ in found({"main.py": script, "engine.py": HEAD + ENGINE})] == codes


def test_a_finding_that_two_scripts_meet_is_told_once():
    script = f"{HEAD}from engine import train_epoch\nnet = nn.Linear(4, 3)\n"
    script += "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\ntrain_epoch(net, optimizer, batches)\n"
    texts = {"one.py": script, "two.py": script, "engine.py": HEAD + ENGINE}
    assert found(texts) == [("GRAD001", "engine.py", 9)]


def test_what_another_file_does_is_not_missing():
    engine = HEAD + ENGINE.replace("optimizer.step()", "update(optimizer)")
    texts = {
        "main.py": f"{HEAD}from engine import train_epoch\n",
        "engine.py": engine.replace("\n\ndef", "\nfrom steps import update\ndef", 1).replace(
            "nn\n", "nn\nfrom steps import update\n", 1
        ),
        "steps.py": "def update(optimizer):\n    optimizer.step()\n    optimizer.zero_grad()\n",
    }
    assert found(texts) == []


def test_files_that_import_one_another_end():
    texts = {
        "a.py": "import torch\nfrom b import y\nx = y\n",
        "b.py": "import torch\nfrom a import x\ny = x\nfrom a import *\n",
    }
    assert found(texts) == []


def test_files_that_take_all_of_one_another_are_each_asked_once_for_a_name(monkeypatch):
    names, asked = [f"m{number}" for number in range(6)], []
    stars = {name: "".join(f"from {other} import *\n" for other in names if other != name) for name in names}
    texts = {f"{name}.py": text + f"x = gone\ny = {names[-1]}_only\n" for name, text in stars.items()}
    texts[f"{names[-1]}.py"] += f"{names[-1]}_only = torch.nn.Linear(4, 3)\n"
    project = SourceProject(SourceTexts(texts))
    modules = [project.add(text, path) for path, text in texts.items()]
    project.link()
    inner = linking._star_imports
    monkeypatch.setattr(
        linking, "_star_imports", lambda index, tree: asked.append(tree) or inner(index, tree)
    )
    unknown, known = modules[0].tree.body[-2].value, modules[0].tree.body[-1].value
    assert modules[0].definitions(unknown) == []
    assert len(asked) == len(set(asked)) == len(names)
    assert modules[0].definitions(known) == [modules[-1].tree.body[-1].value]


def test_a_named_file_shows_what_it_leads_to_and_nothing_else(tmp_path):
    (tmp_path / "engine.py").write_text(HEAD + ENGINE)
    (tmp_path / "other.py").write_text(f"{HEAD}{ENGINE}")
    (tmp_path / "main.py").write_text(
        f"{HEAD}from engine import train_epoch\nnet = nn.Linear(4, 3)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\ntrain_epoch(net, optimizer, [])\n"
    )
    reading = read_paths([tmp_path / "main.py"])
    assert [Path(each.place.path).name for each in reading.findings] == ["engine.py"]
    assert len(read_paths([tmp_path]).findings) == 2


def test_an_import_that_is_broken_leaves_the_rest(tmp_path):
    (tmp_path / "engine.py").write_text("def broken(:\n")
    (tmp_path / "main.py").write_text(f"{HEAD}from engine import broken\nbatches = []\n{SOFT}{SCRIPT}")
    reading = read_paths([tmp_path / "main.py"])
    assert [each.code for each in reading.findings] == ["LOSS001"]


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("opt.zero_grad() if clear else None", []),
        ("if clear:\n        opt.zero_grad()", []),
        ("if amp:\n        opt.zero_grad()\n    if not amp:\n        net.zero_grad()", []),
        ("pass", ["GRAD001"]),
    ],
)
def test_an_event_is_missing_only_if_no_world_has_it(body, codes):
    text = f"{HEAD}def train(net, opt, batches, clear, amp):\n  for x, y in batches:\n    {body}\n"
    text += "    F.cross_entropy(net(x), y).backward()\n    opt.step()\n"
    assert [code for code, _, _ in found({"main.py": text})] == codes


def test_tests_that_are_equal_agree_and_a_fault_of_one_world_is_told():
    text = f"""{HEAD}
def train(net, opt, batches, late):
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        if not late:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if late:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
"""
    assert found({"main.py": text}) == [("GRAD008", "main.py", 13)]


def test_another_optimizer_s_clear_is_not_this_one_s():
    text = f"""{HEAD}
net, other = nn.Linear(4, 3), nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
idle = torch.optim.SGD(other.parameters(), lr=0.1)
for epoch in range(3):
    idle.zero_grad()
    for x, y in batches:
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
    assert [code for code, _, _ in found({"main.py": text})] == ["GRAD001"]


ACCUMULATIONS = {
    "remainder": "if (i + 1) % 4 == 0:\n        {}",
    "inverse": "if (i + 1) % 4 != 0:\n        continue_ = True\n    else:\n        {}",
    "not": "if not (i + 1) % 4:\n        {}",
    "option": "if (i + 1) % args.every == 0:\n        {}",
    "variable": "last = (i + 1) % 4 == 0\n    if last:\n        {}",
    "counter": "seen += 1\n    if seen == 4:\n        seen = 0\n        {}",
    "counter at least": "seen += 1\n    if seen >= 4:\n        {}\n        seen = 0",
}


@pytest.mark.parametrize("form", ACCUMULATIONS)
def test_accumulation_is_run_in_whatever_form_it_is_written(form):
    step = "opt.step(); opt.zero_grad()"
    text = f"""{HEAD}
seen = 0
for i, (x, y) in enumerate(batches):
    loss = F.cross_entropy(net(x), y)
    LOSS.backward()
    {ACCUMULATIONS[form].format(step)}
opt.step()
"""
    assert [code for code, _, _ in found({"main.py": text.replace("LOSS", "loss")})] == ["GRAD005"]
    assert found({"main.py": text.replace("LOSS", "(loss / 4)")}) == []


def test_accumulation_in_a_nested_loop():
    text = f"""{HEAD}
for step in range(100):
    opt.zero_grad()
    for part in range(4):
        x, y = batch(part)
        F.cross_entropy(net(x), y).backward()
    opt.step()
"""
    assert [code for code, _, _ in found({"main.py": text})] == ["GRAD005"]
    cleared = text.replace("        x, y", "        opt.zero_grad()\n        x, y").replace(
        "    opt.zero_grad()\n    for", "    for"
    )
    assert [code for code, _, _ in found({"main.py": cleared})] == ["GRAD004"]


@pytest.mark.parametrize(
    ("parameters", "more", "severity"),
    [
        ("net, optimizer", "", "risk"),  # whatever an unknown caller gives: its step may clear
        ("net, optimizer: torch.optim.Optimizer", "", "bug"),
        ("net, optimizer", "    rate = optimizer.param_groups[0]['lr']\n", "bug"),
    ],
)
def test_what_only_a_name_says_is_no_certain_bug(parameters, more, severity):
    text = f"{HEAD}def fit({parameters}, batches):\n{more}    for x, y in batches:\n"
    text += "        F.cross_entropy(net(x), y).backward()\n        optimizer.step()\n"
    (finding,) = read_texts({"main.py": text}).findings
    assert (finding.code, finding.severity.value) == ("GRAD001", severity)


def test_a_class_whose_definition_is_in_sight_is_not_what_its_name_suggests():
    text = f"""{HEAD}
class Table:
    def step(self):
        return 1

optimizer = Table()
for x, y in batches:
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
    assert found({"main.py": text}) == []


def test_a_loader_is_known_by_the_loop_that_goes_through_it():
    text = f"""{HEAD}from torch.utils.data import DataLoader
def loaders(data, rest):
    return DataLoader(data, batch_size=8), DataLoader(rest, batch_size=8, drop_last=True)
first, second = loaders(data, rest)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i, (x, y) in enumerate(first):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
net.eval()
with torch.no_grad():
    for x, y in second:
        correct = (net(x).argmax(1) == y).sum()
"""
    assert [code for code, _, _ in found({"main.py": text})] == ["DATA001", "DATA002"]


def test_a_library_that_may_do_it_is_named_and_nothing_claimed():
    text = f"""{HEAD}from torch.utils.data import DataLoader, DistributedSampler
import lightning
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler)
lightning.Trainer(max_epochs=3).fit(net, loader)
for epoch in range(3):
    for x, y in loader:
        print(x)
"""
    reading = read_texts({"main.py": text})
    assert [(each.code, each.reason) for each in reading.abstentions] == [("DIST001", "lightning may do it")]
    assert reading.findings == []


def test_the_last_expression_of_a_cell_is_shown_not_thrown_away(tmp_path):
    cells = ["import torch\nx = torch.rand(3)\nx.double()", "x.half()\nprint(x)"]
    document = {
        "cells": [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells],
        "metadata": {"kernelspec": {"language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "a.ipynb").write_text(json.dumps(document))
    found_here = [(each.code, each.place.cell) for each in read_paths([tmp_path / "a.ipynb"]).findings]
    assert found_here == [("DEV005", 2)]


def test_a_with_block_runs_inside_of_its_manager():
    text = f"""{HEAD}import contextlib

@contextlib.contextmanager
def update(optimizer):
    optimizer.zero_grad()
    yield
    optimizer.step()

def numbers():
    yield 1

@contextlib.contextmanager
def counted(values):
    for each in values:
        yield each

net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    with update(opt), counted(numbers()):
        F.cross_entropy(net(x), y).backward()
"""
    assert found({"main.py": text}) == []
    never = text.replace("    optimizer.zero_grad()\n", "")
    assert [code for code, _, _ in found({"main.py": never})] == ["GRAD001"]


def test_what_is_handed_to_a_library_out_of_sight_is_not_missing():
    text = f"""{HEAD}from somewhere import after_step
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    F.cross_entropy(net(x), y).backward()
    opt.step()
    after_step(opt)
"""
    reading = read_texts({"main.py": text})
    assert [each.code for each in reading.findings] == []
    assert "after_step()" in reading.abstentions[0].reason


def test_an_option_that_is_computed_is_tried_both_ways():
    text = f"""{HEAD}import sys
def fit(clear):
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        if clear:
            opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
fit(len(sys.argv) > 9)
"""
    assert found({"main.py": text}) == []
    assert [code for code, _, _ in found({"main.py": text.replace("len(sys.argv) > 9", "False")})] == [
        "GRAD001"
    ]


@pytest.mark.parametrize("leave", ["return net(x)", "raise ValueError"])
def test_what_follows_a_way_out_is_another_world(leave):
    text = f"""{HEAD}
def step(net, opt, x, y, mode):
    if mode == "test":
        net.eval()
        {leave}
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
    project = SourceProject()
    module = project.add(text, "main.py")
    project.link()
    kinds = [{event.kind for event in trace.events} for trace in module.traces]
    assert any("backward" in each for each in kinds)
    assert not any({"eval", "backward"} <= each for each in kinds)


def test_a_loaded_model_that_another_file_puts_into_eval_mode_is_no_fault():
    engine = f"{HEAD}\ndef evaluate(model, x):\n    MODE\n    return model(x)\n"
    main = f"""{HEAD}from engine import evaluate
net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
net.load_state_dict(torch.load("net.pt", map_location="cpu"))
print(evaluate(net, torch.zeros(2, 4)))
"""
    codes = [
        [code for code, *_ in found({"main.py": main, "engine.py": engine.replace("MODE", mode)})]
        for mode in ("pass", "model.eval()")
    ]
    assert codes == [["EVAL008"], []]


@pytest.mark.parametrize("form", ["opt.lr = 0.1", 'opt.defaults["lr"] = 0.1'])
def test_a_guess_is_a_risk_whatever_a_finding_is_told_of(form):
    certain = f"{HEAD}opt = torch.optim.SGD(nn.Linear(3, 3).parameters(), lr=1.0)\n{form}\n"
    guessed = f"{HEAD}def change(opt):\n    {form}\n"
    severities = [
        [str(each.severity) for each in read_texts({"main.py": text}).findings] for text in (certain, guessed)
    ]
    assert severities == [["bug"], ["risk"]]


@pytest.mark.parametrize(
    ("brought", "made"),
    [
        ("", "torch.optim.SGD"),
        ("import torch.optim as optim", "optim.SGD"),
        ("from torch.optim import SGD", "SGD"),
    ],
)
def test_a_package_of_torch_is_no_optimizer_by_its_name(brought, made):
    text = f"{HEAD}{brought}\nw = nn.Parameter(torch.zeros(4))\nopt = {made}([w], lr=0.1)\n"
    project = SourceProject(SourceTexts({"main.py": text}))
    file = project.add(text, "main.py")
    (call,) = file.calls("torch.optim.SGD")
    assert not _is_guessed_from_name(file, call)


def test_a_question_about_the_program_is_answered_once_however_many_files_ask_it():
    texts = {f"part_{i}.py": f"import part_{i + 1}\nimport torch\nx_{i} = 'text {i}'\n" for i in range(5)}
    project = SourceProject(SourceTexts(texts))
    files = [project.add(text, path) for path, text in texts.items()]
    project.link()
    asked = []

    def question(linked):
        asked.append(linked)
        return len(linked)

    assert [each.program.answer(question) for each in files] == [5] * 5
    assert len(asked) == 1
    assert all(
        f"text {i}" in files[-1].program.texts and f"x_{i}" in files[0].program.identifiers for i in range(5)
    )


def test_two_programs_that_are_read_together_have_answers_of_their_own():
    texts = {"first.py": "import torch\nfirst = 1\n", "second.py": "import torch\nsecond = 2\n"}
    project = SourceProject(SourceTexts(texts))
    files = [project.add(text, path) for path, text in texts.items()]
    project.link()
    assert [{"first", "second"} & each.program.identifiers for each in files] == [{"first"}, {"second"}]


def test_the_nodes_beneath_another_are_those_that_a_walk_meets():
    own = SourceModule(Path(module.__file__).read_text("utf-8"))
    for node in own.all(ast.FunctionDef, ast.ClassDef, ast.If, ast.Module):
        for kinds in ((ast.Call,), (ast.Name, ast.Attribute), (ast.Return, ast.If, ast.Lambda)):
            met = [each for each in ast.walk(node) if type(each) in kinds]
            assert set(own.inside(node, *kinds)) == set(met)
            places = [(each.lineno, each.col_offset) for each in own.inside(node, *kinds)]
            assert len(kinds) > 1 or places == sorted(places) or kinds == (ast.Call,)


def test_an_option_of_a_dataclass_is_what_its_object_was_given():
    options = "from dataclasses import dataclass\n@dataclass\nclass Options:\n    amp: bool = False\n"
    loop = (
        "for x, y in batches:\n"
        "    if not options.amp:\n"
        "        optimizer.zero_grad()\n"
        "    F.cross_entropy(net(x), y).backward()\n"
        "    optimizer.step()\n"
    )
    before = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nnet = nn.Linear(2, 2)\n"
    before += "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n" + options
    for made, clears in (("Options()", True), ("Options(amp=True)", False), ("parse(Options)", True)):
        project = SourceProject(SourceTexts({"main.py": ""}))
        file = project.add(f"{before}options = {made}\n{loop}", "main.py")
        ever = [event for trace in file.traces for event in trace.of("zero_grad")]
        assert bool(ever) is clears, made
