# SPDX-License-Identifier: Apache-2.0
"""Names without a value: as pyflakes tells them, a bug where a training comes by, else a risk."""

import itertools
import json

import pytest

from truestep.doctor.linting import read_paths

LOOP = """\
import torch
from torch import nn

net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def scaled(output):
    {scaled}


def show(output):
    {shown}


def train(loader):
    for x, y in loader:
        opt.zero_grad()
        scaled(net(x) - y).backward()
        opt.step()


if __name__ == "__main__":
    train([])
"""
# by what gives `factor` a value, at the top of the file
BOUND = (
    "factor = 2", "factor: int = 2", "import math as factor", "from math import pi as factor", "for factor in range(3): pass",
    "with open(__file__) as factor: pass", "(factor := 2)", "def factor(): pass", "class factor: pass", "factor, other = 1, 2",
    "try:\n    import factor\nexcept ImportError:\n    factor = None", "if net:\n    factor = 2", "from math import *",
    "def of():\n    global factor\n    factor = 2",
    "match [1]:\n    case [factor]: pass", "globals()['factor'] = 2", "exec('factor = 2')",
    "import sys\nfor name in ('fac',):\n    setattr(sys.modules[__name__], name + 'tor', 2)",
    "import sys\nsetattr(sys.modules[__name__], 'factor', 2)", "import sys\nsys.modules[__name__].factor = 2",
    "import sys\nthis = sys.modules[__name__]\nthis.factor = 2", "import sys\nsys.modules[__name__].__dict__.update(factor=2)",
    "from sys import modules\nthis = modules[__name__]\nfor name in dir(net):\n    setattr(this, name, 2)",
    "print 'old'; factor = 2", "type factor = int", "[factor, *rest] = [1, 2]", "del net; factor = 2",
)  # fmt: skip
UNREAD = (
    "return output * TODO", "return output * ___", "try:\n        return factor\n    except NameError:\n        return 1",
    "if False:\n        return factor\n    return output", "def inner(a: factor): pass\n    return output",
    "return [factor for factor in output]", "return (lambda factor: factor)(output)",
)  # fmt: skip


def told(tmp_path, text, name="train.py"):
    path = tmp_path / name
    path.write_text(text)
    found = read_paths([path])
    assert found.failures == found.unreadable == []
    return [(each.place.line, each.severity.value) for each in found.findings if each.code == "VALUE041"]


def test_a_name_on_the_way_of_a_training_is_a_bug_and_another_one_a_risk(tmp_path):
    text = LOOP.format(scaled="return output.mean() * factor", shown="print(output, colour)")
    assert told(tmp_path, text) == [(9, "bug"), (13, "risk")]


@pytest.mark.parametrize("how", BOUND)
def test_whatever_binds_a_name_binds_it(tmp_path, how):
    text = LOOP.format(scaled="return output.mean() * factor", shown="pass")
    assert told(tmp_path, text.replace("net =", f"net = 0\n{how}\nnet =", 1)) == []


@pytest.mark.parametrize(
    "how",
    [
        "import sys\nsetattr(sys.modules[__name__], 'other', 2)",
        "import sys\nsys.modules[__name__].other = 2",
        "import sys\nprint(getattr(sys.modules[__name__], 'net'), sys.modules[__name__].__name__)",
        "import sys\nthis = sys.modules['json']\nfor name in dir(net):\n    setattr(this, name, 2)",
        "for name in dir(net):\n    setattr(net, name, 2)",
    ],
)
def test_what_binds_another_name_or_another_thing_binds_none(tmp_path, how):
    text = LOOP.format(scaled="return output.mean() * factor", shown="pass")
    line = 9 + 1 + how.count("\n") + 1
    assert told(tmp_path, text.replace("net =", f"net = 0\n{how}\nnet =", 1)) == [(line, "bug")]


@pytest.mark.parametrize("body", UNREAD)
def test_holes_and_what_is_never_computed_are_none(tmp_path, body):
    assert told(tmp_path, LOOP.format(scaled=body, shown="pass")) == []


FORMS = (
    "{}",
    "print({})",
    "[{} for _ in range(2)]",
    "f'{{{}}}'",
    "lambda: {}",
    "x.attr[{}]",
    "net({}=1, **{})",
    "not {}",
)


@pytest.mark.parametrize(("form", "bound"), [*itertools.product(FORMS, ("", "colour = 1\n"))])
def test_it_is_found_however_it_is_read(tmp_path, form, bound):
    text = bound + LOOP.format(
        scaled="return output.mean()", shown=f"x = net; {form.format(*['colour'] * 2)}"
    )
    assert told(tmp_path, text) == ([] if bound else [(13, "risk")])


def notebook(*cells):
    document = {"cells": [{"cell_type": "code", "source": each} for each in cells], "metadata": {}}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("cells", "is_found"),
    [
        (["import torch", "def f():\n    return factor"], True),
        (["import torch", "def f():\n    return factor", "factor = 2"], False),
        (["import torch", "print(factor)", "factor = 2"], False),
        (["import torch", "%run setup.ipynb", "def f():\n    return factor"], False),
        (["import torch", "%%time\nfactor = 2", "def f():\n    return factor"], False),
        (["import torch", "%matplotlib inline\n!ls", "def f():\n    return display(factor)"], True),
        (["import torch", "files = !ls", "def f():\n    return files"], False),
    ],
)
def test_cells_and_magics(tmp_path, cells, is_found):
    assert bool(told(tmp_path, notebook(*cells), "train.ipynb")) is is_found


def test_what_an_unreadable_cell_binds_is_not_known(tmp_path):
    path = tmp_path / "train.ipynb"
    path.write_text(notebook("import torch", "factor = = 2", "def f():\n    return factor"))
    assert read_paths([path]).findings == []


def test_a_part_of_something_else_is_not_judged(tmp_path):
    assert told(tmp_path, "import torch\n\nfor x, y in loader:\n    print(x, y)\n") == []
    assert told(tmp_path, "import torch\n\nprint(alpha, beta, gamma)\n") == []
    assert told(tmp_path, "import torch\n\nprint(alpha)\n") == [(3, "risk")]


# ── what is said of a name that something else binds for itself ────────────────────────────────

OTHERS = [
    ("def other():\n    factor = 2\n    return factor", "other"),
    ("def other(factor):\n    return factor", "other"),
    ("def other():\n    for factor in range(3):\n        print(factor)", "other"),
    ("class Other:\n    factor = 2", "Other"),
    ("class Other:\n    def __init__(self, factor):\n        self.factor = factor", "__init__"),
    ("def other():\n    import math as factor\n    return factor.pi", "other"),
]
NOTHING = [
    "def other():\n    return [factor for factor in range(3)]",
    "class Other:\n    def __init__(self):\n        self.factor = 2",
    "def other(factors):\n    return factors.factor",
]


def message(tmp_path, before):
    path = tmp_path / "train.py"
    path.write_text(
        LOOP.format(scaled="return output * factor", shown="return output") + "\n\n" + before + "\n"
    )
    found = [each.message for each in read_paths([path]).findings if each.code == "VALUE041"]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("before", "who"), OTHERS)
def test_a_name_that_another_function_binds_is_said_to_be_its_own(tmp_path, before, who):
    assert f"'{who}' gives it one for itself alone" in message(tmp_path, before)


@pytest.mark.parametrize("before", NOTHING)
def test_a_name_that_nothing_binds(tmp_path, before):
    assert "Nothing in this file" in message(tmp_path, before)


def test_a_name_on_a_line_that_no_run_takes_is_a_risk(tmp_path):
    def severities(scaled, parameter):
        text = LOOP.format(scaled=scaled, shown="return output").replace(
            "scaled(output)", f"scaled(output, {parameter})"
        )
        return [severity for _, severity in told(tmp_path, text)]

    for test, default in (
        ("init", "False"),
        ("init is not None", "None"),
        ("init > 0", "0"),
        ("not plain", "True"),
    ):
        parameter = f"{test.split()[-1] if test.startswith('not') else test.split()[0]}={default}"
        assert severities(f"if {test}:\n        return factor\n    return output", parameter) == ["risk"]
        assert severities(f"if {test}:\n        return output\n    return factor", parameter) == ["bug"]
