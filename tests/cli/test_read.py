# SPDX-License-Identifier: Apache-2.0
"""`truestep read`: its forms of output, its exit status, and what it reads when nothing is named."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from truestep.cli.main import app

FAULTY = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    F.cross_entropy(net(x).softmax(1), y).backward()
    opt.zero_grad(); opt.step()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train,1.py").write_text(FAULTY)
    return tmp_path


def call(*arguments, command="read"):
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def test_the_current_folder_is_read_when_nothing_is_named(folder):
    assert "train,1.py" in call().stdout
    assert call().exit_code == 1


def test_concise_has_a_line_for_each_finding(folder):
    lines = call("--output", "concise").stdout.splitlines()
    assert lines[0].startswith("train,1.py:6:5: bug LOSS001 The input of cross entropy")
    assert len(lines) == len(json.loads(call("--json").stdout)["findings"])


def test_github_s_commands_escape_what_would_end_them(folder):
    line = call("--output", "github").stdout.splitlines()[0]
    assert line.startswith(
        "::error file=train%2C1.py,line=6,col=5,title=LOSS001 softmax-before-cross-entropy::The input"
    )


def test_json_is_output_json_and_holds_what_was_fixed(folder):
    assert json.loads(call("--json").stdout).keys() == json.loads(call("--output", "json").stdout).keys()
    fixed = json.loads(call("--json", "--fix").stdout)["fixed"]
    assert [each["code"] for each in fixed[0]["fixed"]] == ["LOSS001"]
    assert "+    F.cross_entropy(net(x), y).backward()" in fixed[0]["diff"]


def test_fix_says_which_rewrites_it_leaves_to_the_user(folder):
    assert "not made" not in call("--fix").output
    loop = "    loss = F.cross_entropy(net(x), y)\n    loss.backward()\n    opt.step()\n"
    loop += "    opt.zero_grad()\n    kept.append(loss)\n"
    head = "import torch\nimport torch.nn.functional as F\nnet = torch.nn.Linear(4, 3)\n"
    head += "opt, kept = torch.optim.SGD(net.parameters(), lr=0.1), []\n"
    (folder / "kept.py").write_text(f"{head}for x, y in loader:\n{loop}print(sum(kept))\n")
    assert "1 rewrite is shown and not made" in call("--fix").output


def test_a_file_that_can_t_be_read_gives_2_whatever_else_was_found(folder):
    (folder / "old.py").write_text("import torch\ndef f(:\n")
    result = call()
    assert result.exit_code == 2
    assert "old.py  not read: SyntaxError" in result.stdout
    assert "1 file read" in result.stdout
    (folder / "train,1.py").unlink()
    assert call("--fail-on", "bug").exit_code == 2


def test_a_file_that_is_named_as_a_cell_is_shown_is_a_file_all_the_same(folder):
    (folder / "train.py:3").write_text("import torch\ndef f(:\n")
    assert call("train.py:3").exit_code == 2


def test_a_cell_that_is_no_python_does_not_change_the_status(folder):
    (folder / "train,1.py").unlink()
    cells = [{"cell_type": "code", "metadata": {}, "source": ["import torch\n", "x = = 1"]}]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    result = call()
    assert (result.exit_code, "n.ipynb:1  not read" in result.stdout) == (0, True)


def test_nothing_found_says_what_else_there_is(folder):
    (folder / "train,1.py").write_text("import torch\n")
    assert "`truestep doctor FILE.py` runs a script" in call().stdout


def test_a_folder_with_nothing_to_read_is_not_called_clean(folder):
    (folder / "train,1.py").unlink()
    (folder / "train.txt").write_text(FAULTY)
    for given in ([], [folder], [folder, folder]):
        ended = call(*given)
        assert ended.stdout == (
            "There is nothing to read here: no .py, .ipynb or Markdown file.\n"
            "Name a script, or a folder of them: truestep read train.py\n"
        )
        assert ended.exit_code == 2


def test_a_folder_of_which_all_is_left_out_ends_well(folder):
    (folder / "pyproject.toml").write_text('[tool.truestep]\nexclude = ["train*"]\n')
    assert call().exit_code == 0


@pytest.mark.parametrize("line", ["def f(:", "if x = 1:", "  return", "print 'a'", "for i in range(3)"])
def test_a_file_that_is_no_python_is_named_with_its_line(folder, line):
    (folder / "train,1.py").write_text(f"import torch\n{line}\n    pass\n")
    told = " ".join(call().stdout.split())
    assert "train,1.py not read: " in told
    assert f": {line.strip()}" in told


@pytest.mark.parametrize("given", [["runs"], ["runs/a"], ["runs/a", "runs/b"], []])
def test_a_folder_of_runs_is_no_code(folder, given):
    (folder / "train,1.py").unlink()
    for name in ("a", "b"):
        (folder / "runs" / name / "checkpoints").mkdir(parents=True)
        (folder / "runs" / name / "config.json").write_text("{}")
    said = call(*given).stdout
    assert "`truestep report runs/a` writes the page of one. `truestep read train.py` reads the code" in said
    assert ("`truestep runs" in said) == (given in (["runs"], []))


def test_what_could_not_be_told_is_shown_when_asked(folder):
    (folder / "train,1.py").write_text(
        "import torch\nfrom somewhere import helper\nnet = torch.nn.Linear(1, 1)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for x in data:\n    net(x).sum().backward()\n    helper(opt)\n    opt.step()\n"
    )
    assert "--show-abstentions" in call().stdout
    assert "train,1.py:8  GRAD001 can't tell: " in call("--show-abstentions").stdout


def test_off_a_terminal_lines_are_not_cut_at_80(folder):
    (folder / "train,1.py").write_text(FAULTY.replace("(1)", "(1" + " " * 90 + ")"))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "truestep", "read"],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "…" not in done.stdout
    assert "      F.cross_entropy(net(x).softmax(1" + " " * 90 + "), y).backward()\n" in done.stdout


def test_checks_lists_by_prefix_and_kind_and_shows_the_page_of_one():
    rows = [
        line.split()[0]
        for line in call("GRAD", command="checks").stdout.splitlines()
        if line.startswith("GRAD")
    ]
    assert len(rows) > 10
    for how, allowed in (("read", {"read", "both"}), ("run", {"run", "both"}), ("both", {"both"})):
        listed = json.loads(call("--how", how, "--json", command="checks").stdout)["checks"]
        assert {each["how"] for each in listed} == allowed
    assert call("MEM", "--how", "both", command="checks").exit_code != 0
    for name in ("GRAD001", "grad001", "backward-without-zero-grad"):
        page = call(name, command="checks").stdout
        assert "Bad:" in page, name
        assert "# <- here" in page, name
        assert "found by reading the source, and by running the script" in " ".join(page.split()), name


BASE = "https://docs.example/truestep"


@pytest.mark.parametrize(
    ("base", "address"),
    [("", None), (BASE, f"{BASE}/checks/LOSS001.html"), (f"{BASE}/", f"{BASE}/checks/LOSS001.html")],
)
def test_every_form_says_where_the_check_s_page_is(folder, monkeypatch, base, address):
    monkeypatch.setenv("TRUESTEP_DOCS", base)
    told = address or "truestep checks LOSS001"
    assert f"  see  {told}\n" in call().stdout
    assert json.loads(call("--json").stdout)["findings"][0]["help"] == told
    assert f"See: {told}" in call("--output", "github").stdout
    rules = json.loads(call("--output", "sarif").stdout)["runs"][0]["tool"]["driver"]["rules"]
    (rule,) = (each for each in rules if each["id"] == "LOSS001")
    assert rule["help"]["text"].endswith(told)
    assert "```python\n" in rule["help"]["markdown"]
    assert rule.get("helpUri") == address  # the format takes whole addresses alone
    page = call("LOSS001", command="checks").stdout
    assert (f"See: {told}" in page) == (address is not None)


def test_the_command_that_a_finding_names_shows_the_page(folder):
    told = json.loads(call("--json").stdout)["findings"][0]["help"].split()
    assert call(*told[2:], command=told[1]).stdout.startswith("LOSS001  softmax-before-cross-entropy")


def test_a_folder_of_built_docs_is_an_address_too(folder, monkeypatch):
    monkeypatch.setenv("TRUESTEP_DOCS", "html")
    address = (folder / "html" / "checks" / "LOSS001.html").as_uri()
    assert json.loads(call("--json").stdout)["findings"][0]["help"] == address


def test_nothing_of_the_folder_that_is_read_is_imported(tmp_path):
    (tmp_path / "numbers.py").write_text("raise SystemExit('somebody else was run')\n")
    (tmp_path / "train.py").write_text(FAULTY)
    command = [sys.executable, "-m", "truestep", "read", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "somebody else" not in ran.stdout + ran.stderr
    assert ran.returncode == 1


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("import os\nprint(os.getcwd())\n", True),
        ("print('no import')\n", True),
        ("def f():\n    from json import loads\n    return loads\n", True),
        ("import os\nfrom torch import nn\n", False),
        ("from helpers import train\ntrain()\n", False),
        ("from . import train\n", False),
        ("import importlib\nimportlib.import_module('train')\n", False),
        ("def f():\n    import lightning\n", False),
    ],
)
def test_a_file_that_can_train_nothing_is_told_so_first(folder, text, is_known):
    (folder / "one.py").write_text(text)
    done = call("one.py")
    assert done.exit_code == 0
    first = "What was read imports nothing but Python's own modules, and those train nothing."
    assert done.stdout.startswith(first) is is_known
    assert ("nothing found" in done.stdout) is not is_known


@pytest.mark.parametrize(
    ("name", "text", "is_code"),
    [
        ("notes.txt", "hello", False),
        ("notes.txt", "ideas: foo", False),
        ("notes.md", "# Notes\n\nno code\n", False),
        ("empty.py", "", False),
        ("notes.md", "```python\nimport torch\n```\n", True),
        ("one.py", "import torch\n", True),
    ],
)
def test_a_file_without_code_is_not_said_to_be_fine(folder, name, text, is_code):
    (folder / name).write_text(text)
    said = call(name).stdout
    assert ("holds no Python code" in said) is not is_code
    assert ("Nothing found by reading" in said) is is_code
