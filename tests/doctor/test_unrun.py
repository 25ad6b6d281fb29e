# SPDX-License-Identifier: Apache-2.0
"""What no run in sight comes to is a risk: behind an import of what is not there, in what nobody names."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths, read_text

LOOP = """
def {name}(net, opt, loader):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x).softmax(1), y).backward()
        opt.step()
{more}
"""
PLAIN = {"name": "fit", "more": ""}
BESIDE = {
    "nets/__init__.py": "",
    "nets/small.py": "class Small(nn.Module):\n    pass\n",
    "plain/big.py": "x = 1\n",
}


def severity(
    imports: str, path: str = "main.py", others: dict[str, str] = BESIDE, **changes: str
) -> Severity:
    (found,) = told("LOSS001", {path: imports + LOOP.format(**PLAIN | changes), **others})
    return found


@pytest.mark.parametrize(
    ("imports", "path"),
    [
        ("from nets.large import Large", "main.py"),
        ("import nets.large as large", "main.py"),
        ("from nets.deep.large import Large", "main.py"),
        ("from . import preprocess", "nets/main.py"),
        ("from .common import Lambda", "nets/main.py"),
        ("from .. import common", "nets/inner/main.py"),
        ("from ..common import Lambda", "nets/inner/main.py"),
        ("from nets.small import Small\nfrom nets.large import Large", "main.py"),
        ("import plain.big\nfrom plain.large import Large", "main.py"),
    ],
)
def test_a_file_that_stops_at_an_import(imports, path):
    assert severity(imports, path) is Severity.RISK


@pytest.mark.parametrize(
    ("imports", "path"),
    [
        ("from nets.small import Small", "main.py"),
        ("from nets import Large", "main.py"),  # what a package gives is another matter
        ("from plain.large import Large", "main.py"),  # a folder, or what is installed under that name
        ("import elsewhere.large", "main.py"),
        ("try:\n    from nets.large import Large\nexcept ImportError:\n    pass", "main.py"),
        ("if torch.cuda.is_available():\n    from nets.large import Large", "main.py"),
        ("def later():\n    from nets.large import Large", "main.py"),
        ("from nets.version import text", "main.py"),
        ("from .version import __version__", "nets/main.py"),
        ("from . import _C", "nets/main.py"),
        ("from nets import large_pb2", "main.py"),
        ("from .small import Small", "nets/main.py"),
        ("from torch.nothing import x", "main.py"),
    ],
)
def test_a_file_that_runs(imports, path):
    assert severity(imports, path) is Severity.BUG


@pytest.mark.parametrize(
    "package", ["from .small import *", "__path__ = []", "large = 1", "def __getattr__(name):\n    return 1"]
)
def test_a_package_may_give_what_is_no_file(package):
    others = BESIDE | {"nets/__init__.py": package}
    assert severity("from nets.large import x", others=others) is Severity.BUG
    assert severity("from . import large", "nets/main.py", others=others) is Severity.BUG


def test_what_is_built_beside_is_there(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "nets/__init__.py").write_text("")
    text = "import torch\nimport torch.nn.functional as F\nfrom nets.fast import x\n" + LOOP.format(**PLAIN)
    text += "net = torch.nn.Linear(2, 2)\nfit(net, torch.optim.SGD(net.parameters(), 0.1), [])\n"
    (tmp_path / "main.py").write_text(text)
    assert [each.severity for each in read_paths([tmp_path]).findings if each.code == "LOSS001"] == [
        Severity.RISK
    ]
    for name in ("fast.pyx", "fast.cpython-311-x86_64-linux-gnu.so"):
        (tmp_path / "nets" / name).write_text("")
        found = [each.severity for each in read_paths([tmp_path]).findings if each.code == "LOSS001"]
        assert found == [Severity.BUG]
        (tmp_path / "nets" / name).unlink()


def test_what_comes_before_the_import_runs():
    text = LOOP.format(**PLAIN) + "fit(a, b, c)\nfrom nets.large import Large\n"
    assert told("LOSS001", {"main.py": text, **BESIDE}) == [Severity.BUG]


USERS = {
    "a name of another": "from work import other\nother()",
    "the module": "import work\nwork.other()",
    "all": "from work import *\nother()",
}
OTHER = "def other():\n    pass"


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", Severity.RISK),
        ("def again():\n    fit(1, 2, 3)", Severity.RISK),  # which nobody names either
        ("def again():\n    fit(1, 2, 3)\nagain()", Severity.BUG),
        ("def again():\n    fit(1, 2, 3)\nTABLE = {'again': 1}", Severity.BUG),
        ("class Work:\n    def again(self):\n        fit(1, 2, 3)\nwork = Work()", Severity.RISK),
        ("class Work:\n    def again(self):\n        fit(1, 2, 3)\nWork().again()", Severity.BUG),
        ("class Work(Base):\n    def again(self):\n        fit(1, 2, 3)\nwork = Work()", Severity.BUG),
        ("class Work(nn.Module):\n    def forward(self):\n        fit(1, 2, 3)\nwork = Work()", Severity.BUG),
        ("class Work(nn.Module):\n    def forward(self):\n        fit(1, 2, 3)", Severity.RISK),
        ("if __name__ == '__main__':\n    fit(1, 2, 3)", Severity.BUG),
        ("work = globals()[input()]", Severity.BUG),
        ("import importlib\nwork = importlib.import_module(input())", Severity.BUG),
        ("import sys\nwork = getattr(sys.modules[__name__], input())", Severity.BUG),
    ],
)
def test_a_function_that_nobody_names(user, more, expected):
    assert severity("", "work.py", {"go.py": user}, more=f"{OTHER}\n{more}") is expected


def test_a_function_of_a_script_that_nobody_names():
    assert severity("", more="def main():\n    pass\nmain()") is Severity.RISK
    assert severity("", more="if __name__ == '__main__':\n    print(1)") is Severity.RISK
    assert severity("", more="x = 1") is Severity.BUG  # nothing starts here: its users are elsewhere


def test_why_it_is_a_risk_is_said():
    text = "import torch.nn.functional as F\n" + LOOP.format(**PLAIN) + "print(1)\n"
    (found,) = [each for each in read_text(text).findings if each.code == "LOSS001"]
    assert found.message.endswith("It is a risk only, since nothing that was read and that runs names 'fit'.")


@pytest.mark.parametrize(
    ("user", "changes"),
    [
        ("import work\nwork.fit(a, b, c)", {}),
        ("from work import fit", {}),
        ("import work\nrun = {'a': work.fit}", {}),
        ("import work\ngetattr(work, 'fit')()", {}),
        ("import work\ngetattr(work, name)()", {"more": "__all__ = ['fit']"}),
        ("import work\nenter = 'work:fit'", {}),
        ("import work\nwork.main()", {"name": "main"}),
        ("import work", {"name": "test_fit"}),
        ("from work import *\nfit(a, b, c)", {}),
        ("x = 1", {}),  # whose file nobody in sight uses: its users are elsewhere
    ],
)
def test_a_function_that_somebody_names(user, changes):
    assert severity("", "work.py", {"go.py": user}, **changes) is Severity.BUG


def test_a_decorated_function_is_named_by_its_decorator():
    text = LOOP.format(**PLAIN).replace("def fit", "@task\ndef fit")
    beside = {"go.py": "import work\nwork.other()"}
    assert told("LOSS001", {"work.py": "from tasks import task\n" + text, **beside}) == [Severity.BUG]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("work.other()", Severity.RISK),
        ("work.Work()", Severity.RISK),
        ("work.Work().fit()", Severity.BUG),
        ("task.fit()", Severity.BUG),  # of whatever class: only a class that nobody names is left alone
        ("getattr(work.Work(), input())()", Severity.BUG),
    ],
)
def test_a_method(user, expected):
    method = "class Work:\n" + "\n".join(f"    {each}" for each in LOOP.format(**PLAIN).splitlines())
    files = {"work.py": f"{method}\nmade = Work()" * (user == "task.fit()") or method}
    assert told("LOSS001", files | {"go.py": f"import work\ntask = input()\n{user}"}) == [expected]


BEHIND = ("exit()", "sys.exit(0)", "quit()", "os._exit(1)", "print(1)\nexit()")


@pytest.mark.parametrize("end", BEHIND)
def test_what_stands_behind_the_end_of_the_program_is_a_risk(end):
    text = LOOP.format(**PLAIN)
    call = "fit(1, 2, 3, 4)\n"
    assert told("VALUE040", {"work.py": f"import os, sys\n{text}{end}\n{call}"}) == [Severity.RISK]
    inside = "".join(f"    {each}\n" for each in [*end.splitlines(), call.strip()])
    main = f"import os, sys\n{text}if __name__ == '__main__':\n{inside}"
    assert told("VALUE040", {"work.py": main}) == [Severity.RISK]


@pytest.mark.parametrize(
    "end", ["if done:\n    exit()", "def stop():\n    exit()", "atexit.register(exit)", "x = exit"]
)
def test_what_stands_behind_an_end_that_may_not_come_is_a_bug(end):
    text = f"import atexit\ndone = input()\n{LOOP.format(**PLAIN)}{end}\nfit(1, 2, 3, 4)\n"
    assert told("VALUE040", {"work.py": text}) == [Severity.BUG]
