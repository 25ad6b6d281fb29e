# SPDX-License-Identifier: Apache-2.0
"""All that a training needs in one object that another function, or another file's, is handed: reading follows it."""

import textwrap

import pytest
from programs.laws.reading import findings_of

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
ROWS = "TensorDataset(torch.randn(20, 8), torch.randint(3, (20,)))"
PARTS = {
    "model": "nn.Linear(8, 3)",
    "loss_of": "nn.CrossEntropyLoss()",
    "optimizer": "torch.optim.SGD({model}.parameters(), lr=0.1)",
    "loader": f"DataLoader({ROWS}, batch_size=4, shuffle=True)",
}
LOOP = """
for epoch in range(3):
    for x, y in {loader}:
        {optimizer}.zero_grad()
        loss = {loss_of}({model}(x), y)
        loss.backward()
        {optimizer}.step()
"""


def assigned(place="{}"):
    """Return the statements that make the parts, each at its place."""
    names = {name: place.format(name) for name in PARTS}
    return "".join(f"{names[name]} = {text.format(**names)}\n" for name, text in PARTS.items())


def in_function(name, text, returned):
    """Return a function that makes the parts, and the call of it."""
    return f"def {name}():\n{textwrap.indent(text, '    ')}    return {returned}\n\njob = {name}()\n"


BY_NAME = ", ".join(f"{name}={name}" for name in PARTS)
SHOWN = "{" + ", ".join(f"'{name}': {name}" for name in PARTS) + "}"
FIELDS = textwrap.indent("".join(f"{name}: object\n" for name in PARTS), "    ")
PARSED = "parser = argparse.ArgumentParser()\nparser.add_argument('--lr')\njob = parser.parse_args()\n"
FILL = "def fill(job):\n" + textwrap.indent(assigned("job.{}"), "    ")
OF_ATTRIBUTES = {
    "a namespace": ("from types import SimpleNamespace", "job = SimpleNamespace()\n" + assigned("job.{}")),
    "a namespace by name": (
        "from types import SimpleNamespace",
        f"{assigned()}job = SimpleNamespace({BY_NAME})\n",
    ),
    "argparse's": ("import argparse", "job = argparse.Namespace()\n" + assigned("job.{}")),
    "argparse's by name": ("import argparse", f"{assigned()}job = argparse.Namespace({BY_NAME})\n"),
    "parsed options": ("import argparse", PARSED + assigned("job.{}")),
    "a dataclass": (
        "from dataclasses import dataclass",
        f"@dataclass\nclass Job:\n{FIELDS}\n{assigned()}job = Job({BY_NAME})\n",
    ),
    "a named tuple": (
        "from typing import NamedTuple",
        f"class Job(NamedTuple):\n{FIELDS}\n{assigned()}job = Job({BY_NAME})\n",
    ),
    "an empty class": ("", "class Job:\n    pass\n\njob = Job()\n" + assigned("job.{}")),
    "a library's": ("from easydict import EasyDict", "job = EasyDict()\n" + assigned("job.{}")),
    "built": (
        "from types import SimpleNamespace",
        in_function("build", "job = SimpleNamespace()\n" + assigned("job.{}"), "job"),
    ),
    "built by name": (
        "from types import SimpleNamespace",
        in_function("build", assigned(), f"SimpleNamespace({BY_NAME})"),
    ),
    "filled": ("from types import SimpleNamespace", f"{FILL}\njob = SimpleNamespace()\nfill(job)\n"),
}
OF_ITEMS = {
    "a dict": ("", f"{assigned()}job = {SHOWN}\n"),
    "a dict by name": ("", f"{assigned()}job = dict({BY_NAME})\n"),
    "a dict by item": ("", "job = {}\n" + assigned("job['{}']")),
    "a built dict": ("", in_function("build", assigned(), SHOWN)),
}
OBJECTS = {name: (*each, "{}.{}") for name, each in OF_ATTRIBUTES.items()}
OBJECTS |= {name: (*each, "{}['{}']") for name, each in OF_ITEMS.items()}
USES = {
    "a function": ("def fit(job):\n{loop}", "job", 1, "fit(job)\n", "fit"),
    "a method": ("class Fitter:\n    def fit(self, job):\n{loop}", "job", 2, "Fitter().fit(job)\n", "Fitter"),
    "an object that holds it": (
        "class Fitter:\n    def __init__(self, job):\n        self.job = job\n\n    def fit(self):\n{loop}",
        "self.job",
        2,
        "Fitter(job).fit()\n",
        "Fitter",
    ),
}


def read(way, use, elsewhere, loop):
    """Return the codes of what is found in a program."""
    imports, making, place = OBJECTS[way]
    definition, job, depth, call, name = USES[use]
    loop = loop.format(**{part: place.format(job, part) for part in PARTS})
    fitting = HEAD + "\n" + definition.format(loop=textwrap.indent(loop.lstrip("\n"), "    " * depth))
    if elsewhere:
        found = {
            "fitting.py": fitting,
            "main.py": f"{HEAD}{imports}\nfrom fitting import {name}\n\n{making}{call}",
        }
    else:
        found = {"main.py": f"{imports}\n{fitting}\n{making}{call}"}
    return {finding.code for finding in findings_of(found)}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", OBJECTS)
def test_a_loop_that_never_clears_is_named_and_its_right_twin_is_not(way, use):
    elsewhere = len(way) % 2 == 0
    faulty = LOOP.replace("        {optimizer}.zero_grad()\n", "")
    assert "GRAD001" in read(way, use, elsewhere, faulty)
    assert read(way, use, elsewhere, LOOP) == set()


TWO = f"""{HEAD}
from types import SimpleNamespace

def fit(job):
    for epoch in range(3):
        for x, y in job.loader:
            job.optimizer.zero_grad()
            nn.functional.cross_entropy(job.model(x), y).backward()
            job.optimizer.step()

one, other = SimpleNamespace(), SimpleNamespace()
for job, lr in ((one, 0.1), (other, 0.01)):
    job.model = nn.Linear(8, 3)
    job.optimizer = torch.optim.SGD(job.model.parameters(), lr=lr)
    job.loader = DataLoader({ROWS}, batch_size=4, shuffle=True)
fit(one)
fit(other)
"""

TWO_LEARNERS = f"""{HEAD}
from types import SimpleNamespace

def fit(job):
    for epoch in range(3):
        for x, _ in job.loader:
            job.d_opt.zero_grad()
            fake = job.g(torch.randn(4, 2))
            (nn.functional.softplus(job.d(fake.detach())).mean() + nn.functional.softplus(-job.d(x)).mean()).backward()
            job.d_opt.step()
            job.g_opt.zero_grad()
            nn.functional.softplus(-job.d(fake)).mean().backward()
            job.g_opt.step()

job = SimpleNamespace(g=nn.Linear(2, 8), d=nn.Linear(8, 1), loader=DataLoader({ROWS}, batch_size=4, shuffle=True))
job.g_opt = torch.optim.Adam(job.g.parameters())
job.d_opt = torch.optim.Adam(job.d.parameters())
fit(job)
"""

WHOLE_WINDOWS = f"""{HEAD}
from types import SimpleNamespace

def loader_of(rows):
    return DataLoader(TensorDataset(torch.randn(rows, 8), torch.randint(3, (rows,))), batch_size=4, shuffle=True)

def fit(job):
    for epoch in range(3):
        job.optimizer.zero_grad()
        for number, (x, y) in enumerate(job.loader):
            (nn.functional.cross_entropy(job.model(x), y) / job.every).backward()
            if (number + 1) % job.every == 0:
                job.optimizer.step()
                job.optimizer.zero_grad()

job = SimpleNamespace(every=2, loader=loader_of(40), model=nn.Linear(8, 3))
job.optimizer = torch.optim.Adam(job.model.parameters())
fit(job)
"""


@pytest.mark.parametrize(
    "text", [TWO, TWO_LEARNERS, WHOLE_WINDOWS], ids=["two", "two learners", "whole windows"]
)
def test_right_programs_that_carry_several_are_not_accused(text):
    assert findings_of({"main.py": text}) == []
