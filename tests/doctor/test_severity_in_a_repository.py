# SPDX-License-Identifier: Apache-2.0
"""In a whole repository a bug is what a training is seen to come by; elsewhere it is a risk."""

import pytest

from tests.doctor.test_unrun import LOOP, PLAIN
from tests.support.told import IMPORTS
from truestep.doctor.linting import read_paths

FIT = IMPORTS + LOOP.format(**PLAIN).replace(".softmax(1)", "")
NET = IMPORTS + "class Net(nn.Module):\n    def forward(self, x):\n        return F.dropout(x, 0.5)\n"
CHECK = IMPORTS + "def check(net, x, y):\n    return F.cross_entropy(net(x).softmax(1), y)\n"
GO = "from fit import fit\nimport torch\n{imports}\nnet = {made}\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"


def severities(folder, files, code, root=".git"):
    if root:
        (folder / root).mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return [each.severity.value for each in read_paths([folder]).findings if each.code == code]


def trained(imports="from net import Net", made="Net()", more=""):
    return {
        "fit.py": FIT,
        "net.py": NET,
        "go.py": GO.format(imports=imports, made=made) + "fit(net, opt, [])\n" + more,
    }


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("check(net, 1, 2)\n", "bug"),
        ("def main():\n    check(net, 1, 2)\nmain()\n", "bug"),
        ("if len(net):\n    check(net, 1, 2)\n", "bug"),
        ("table = {'check': check}\n", "risk"),  # named, and nobody sees what calls it
    ],
)
def test_what_the_training_calls(tmp_path, more, expected):
    files = trained(imports="from net import Net\nfrom check import check", more=more)
    assert severities(tmp_path, files | {"check.py": CHECK}, "LOSS001") == [expected]


def test_the_forward_of_the_model_that_is_trained(tmp_path):
    assert severities(tmp_path, trained(more="net.eval()\n"), "EVAL001") == ["bug"]


def test_the_forward_of_another_model(tmp_path):
    files = trained(
        imports="from net import Net\nfrom other import Plain", made="Plain()", more="net.eval()\n"
    )
    files["other.py"] = IMPORTS + "class Plain(nn.Module):\n    pass\n"
    assert severities(tmp_path, files | {"look.py": "from net import Net\nprint(Net()(1))\n"}, "EVAL001") == [
        "risk"
    ]


WITHOUT_SUPER = """
class Unused(nn.Module):
    def __init__(self):
        self.size = 3
    def forward(self, x):
        return x
class Net(nn.Module):
    def forward(self, x):
        return LOOKS * x
"""


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ("1", "risk"),
        ("eval('self.si' + 'ze')", "risk"),
        ("eval(f'self.size{1}')", "risk"),
        ("eval('self.size{}'.format(1))", "risk"),
        ("eval('self.size%d' % 1)", "risk"),
        ("eval(input())", "bug"),
        ("eval('Un' + 'used')()", "bug"),
        ("eval(f'{self.name}()')", "bug"),
        ("Unused()", "bug"),
    ],
)
def test_a_class_beside_an_eval(tmp_path, looks, expected):
    """What begins with `self.` finds what the object has, and no class."""
    net = IMPORTS + WITHOUT_SUPER.replace("LOOKS", looks)
    assert severities(tmp_path, trained() | {"net.py": net}, "PARAM004") == [expected]


@pytest.mark.parametrize("root", ["pyproject.toml", "setup.py", "setup.cfg", ".git"])
def test_what_a_script_that_trains_nothing_calls(tmp_path, root):
    text = "from check import check\nprint(check(1, 2, 3))\n"
    assert severities(tmp_path, {"check.py": CHECK, "look.py": text}, "LOSS001", root) == ["risk"]


def test_a_folder_that_is_no_repository(tmp_path):
    text = "from check import check\nprint(check(1, 2, 3))\n"
    assert severities(tmp_path, {"check.py": CHECK, "look.py": text}, "LOSS001", root=None) == ["bug"]


def test_a_file_alone(tmp_path):
    severities(tmp_path, {"check.py": CHECK, "look.py": "x = 1\n"}, "LOSS001")
    assert [each.severity.value for each in read_paths([tmp_path / "check.py"]).findings] == ["bug"]


def test_a_folder_of_a_repository(tmp_path):
    severities(tmp_path, {}, "LOSS001")
    (tmp_path / "part").mkdir()
    assert severities(tmp_path / "part", {"check.py": CHECK}, "LOSS001", root=None) == ["bug"]


def test_what_is_refused_wherever_it_runs(tmp_path):
    text = IMPORTS + "def check(net):\n    return net\nprint(check())\n"
    assert severities(tmp_path, {"look.py": text}, "VALUE040") == ["bug"]


def test_why_is_said_and_kept_apart(tmp_path):
    """The same file read alone has an entry of its own in the cache."""
    for name in ("repository", "cache"):
        (tmp_path / name).mkdir()
    place = tmp_path / "repository"
    assert severities(place, {"check.py": CHECK + "print(check(1, 2, 3))\n"}, "LOSS001") == ["risk"]
    cache = tmp_path / "cache"
    told = [read_paths([each], cache=cache).findings[0] for each in (place, place / "check.py", place)]
    assert [each.severity.value for each in told] == ["risk", "bug", "risk"]
    assert told[0].message.endswith(
        "It is a risk only, since no training of this repository is seen to come by."
    )
    assert told[2] == told[0]


SHORT = IMPORTS + "class Short(nn.Module):\n    def __init__(self):\n        self.layer = nn.Linear(2, 2)\n"
USES = "def make():\n    return Short()\n"


@pytest.mark.parametrize(
    ("net", "go", "expected"),
    [
        (SHORT, "", "risk"),  # a file that nobody imports, beside the program
        (SHORT + USES, "", "risk"),
        (SHORT + "class Larger(Short):\n    pass\n", "Short = 3\nprint(Short)\n", "risk"),  # another Short
        (SHORT, "from short import other\n", "risk"),
        (SHORT, "import short\n", "risk"),
        (SHORT, "import importlib\nimportlib.import_module(input()).make()\n", "bug"),
        (SHORT, "exec('import ' + input())\n", "bug"),
        (SHORT, "from hydra.utils import instantiate\nnet = instantiate(input())\n", "bug"),
        (SHORT + USES + "net = make()\n", "", "bug"),
        (SHORT + "if __name__ == '__main__':\n    print(Short())\n", "", "bug"),
        (SHORT, "from short import Short\n", "bug"),
        (SHORT, "import short\nnet = short.Short()\n", "bug"),
        (SHORT + USES, "from short import *\nmake()\n", "bug"),
        (SHORT, "import short\nnet = getattr(short, input())()\n", "bug"),
        (SHORT, "import short, importlib\nnet = importlib.import_module(input())\n", "bug"),
    ],
)
def test_a_class_that_nothing_in_the_repository_uses(tmp_path, net, go, expected):
    assert severities(tmp_path, trained(more=go) | {"short.py": net}, "PARAM004") == [expected]


def test_a_call_in_a_class_that_nothing_in_the_repository_uses(tmp_path):
    text = IMPORTS + "def two(a, b):\n    return a\nclass Large:\n    def run(self):\n        return two(1)\n"
    assert severities(tmp_path, trained() | {"large.py": text}, "VALUE040") == ["risk"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("class Large(unittest.TestCase):", "bug"),
        ("class Large(TestCase):", "bug"),
        ("class TestLarge:", "bug"),
        ("class Large:", "risk"),
    ],
)
def test_a_class_that_tests_are_found_by(tmp_path, head, expected):
    text = f"import unittest\nfrom unittest import TestCase\n{IMPORTS}def two(a, b):\n    return a\n{head}\n"
    text += "    def test_run(self):\n        return two(1)\n"
    assert severities(tmp_path, trained() | {"large.py": text}, "VALUE040") == [expected]
