# SPDX-License-Identifier: Apache-2.0
"""`truestep read --fix`: it makes what takes no choice, leaves files whole, and keeps what they are."""

import json
import stat
import sys

import pytest
from typer.testing import CliRunner

from truestep.cli.main import app
from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.fixing import fix_files
from truestep.doctor.linting import read_paths
from truestep.doctor.page import PRELUDE

HEAD = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
LOOP = "for x, y in loader:\n    F.cross_entropy(net(x).softmax(1), y).backward()\n    opt.step()\n"
MENDED = (
    "for x, y in loader:\n    F.cross_entropy(net(x), y).backward()\n    opt.step()\n    opt.zero_grad()\n"
)


def read(*arguments):
    return CliRunner().invoke(app, ["read", *map(str, arguments)])


def test_fixes_are_made_shown_and_gone_when_it_is_read_again(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP)
    assert read(script).exit_code == 1
    result = read(script, "--fix")
    assert result.exit_code == 0
    assert "Fixed 2 in 1 file: LOSS001 (1), GRAD001 (1)" in result.stdout
    assert "+    opt.zero_grad()" in result.stdout
    assert script.read_text() == HEAD + MENDED


def test_diff_changes_nothing_and_is_what_patch_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text((HEAD + LOOP).rstrip("\n"))  # no newline at its end
    result = read("train.py", "--diff")
    assert result.exit_code == 1
    assert (tmp_path / "train.py").read_text() == (HEAD + LOOP).rstrip("\n")
    assert "\\ No newline at end of file\n" in result.stdout
    assert result.stdout.startswith("--- train.py\n+++ train.py\n@@")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            (HEAD + LOOP).replace("\n", "\r\n").encode(),
            (HEAD + MENDED).replace("\n", "\r\n").encode(),
        ),
        (b"\xef\xbb\xbf" + (HEAD + LOOP).encode(), b"\xef\xbb\xbf" + (HEAD + MENDED).encode()),
        (
            ("# -*- coding: latin-1 -*-\n# é\n" + HEAD + LOOP).encode("latin-1"),
            ("# -*- coding: latin-1 -*-\n# é\n" + HEAD + MENDED).encode("latin-1"),
        ),
        (
            (HEAD + LOOP.replace("    ", "\t")).encode(),
            (HEAD + MENDED.replace("    ", "\t")).encode(),
        ),
    ],
    ids=["carriage returns", "byte order mark", "latin-1", "tabs"],
)
def test_line_ends_encoding_and_indentation_stay(tmp_path, before, after):
    script = tmp_path / "train.py"
    script.write_bytes(before)
    read(script, "--fix")
    assert script.read_bytes() == after


@pytest.mark.skipif(sys.platform == "win32", reason="permissions and links are Unix's")
def test_permissions_and_links_stay(tmp_path):
    script, link = tmp_path / "train.py", tmp_path / "link.py"
    script.write_text(HEAD + LOOP)
    script.chmod(0o750)
    link.symlink_to(script)
    read(link, "--fix")
    assert link.is_symlink()
    assert script.read_text() == HEAD + MENDED
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.py", "train.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="links are Unix's")
def test_a_file_of_two_names_is_mended_once(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP)
    (tmp_path / "a_link.py").symlink_to(script)
    assert read(tmp_path, "--fix").exit_code == 0
    assert script.read_text() == HEAD + MENDED


def notebook(*cells):
    made = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": cell.splitlines(True),
        }
        for cell in cells
    ]
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_cell_is_mended_and_nothing_else_of_the_notebook_changes(tmp_path):
    path = tmp_path / "n.ipynb"
    first = "%matplotlib inline\n" + HEAD
    path.write_text(json.dumps(notebook(first, LOOP), indent=1, ensure_ascii=False) + "\n")
    assert read(path, "--fix").exit_code == 0
    expected = json.dumps(notebook(first, MENDED), indent=1, ensure_ascii=False) + "\n"
    assert path.read_text() == expected


def test_a_notebook_of_another_layout_is_left_and_said_to_be(tmp_path):
    path = tmp_path / "n.ipynb"
    text = json.dumps(notebook(HEAD, LOOP))
    path.write_text(text)
    result = read(path, "--fix")
    assert "not fixed: it is not laid out as Jupyter writes notebooks" in result.stdout.replace("\n", " ")
    assert (path.read_text(), result.exit_code) == (text, 1)


def test_a_page_is_mended_in_its_blocks(tmp_path):
    page = tmp_path / "note.md"
    page.write_text(f"# Loss\n\n```python\nx = 1\n```\n\n* so:\n\n```py\n{HEAD}{LOOP}```\n")
    assert read(page, "--fix").exit_code == 0
    assert page.read_text() == f"# Loss\n\n```python\nx = 1\n```\n\n* so:\n\n```py\n{HEAD}{MENDED}```\n"


def test_what_two_blocks_of_a_page_show_together_is_suggested_and_not_changed(tmp_path):
    page = tmp_path / "note.md"
    page.write_text(text := f"# Loss\n\n```python\n{HEAD}```\n\n* so:\n\n```py\n{LOOP}```\n")
    assert read(page, "--fix").exit_code == 1
    assert page.read_text() == text


def test_no_fix_takes_a_choice_and_each_leaves_python(tmp_path):
    for code, check in checks().items():
        if not issubclass(check, SourceCheck):
            continue
        script = tmp_path / f"{code}.py"
        script.write_text(check.page().bad)
        for fixed in fix_files(read_paths([script]).findings, write=True):
            compile(script.read_text(), str(script), "exec")
            assert all(checks()[each.code].rewrites != "choice" for each in fixed.findings), code


def test_what_can_t_be_combined_is_refused(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(HEAD + LOOP)
    for options in (
        ["--diff", "--fix"],
        ["--diff", "--json"],
        ["--fix", "--write-baseline", tmp_path / "b.json"],
    ):
        assert read(script, *options).exit_code != 0
        assert script.read_text() == HEAD + LOOP


CHOSEN = [
    each
    for each in checks().values()
    if issubclass(each, SourceCheck) and each.rewrites == "fix" and set(each.severities()) - {"bug"}
]


@pytest.mark.parametrize("check", CHOSEN, ids=lambda check: check.code)
def test_what_may_have_been_meant_is_proposed_and_not_changed(tmp_path, check):
    """Of every check that also names risks: its own bad examples, each in a file, are left where they are no bug."""
    for number, (_, code) in enumerate(check.page().examples()):
        script = tmp_path / f"train{number}.py"
        script.write_text(f"{PRELUDE}\n{code}")
        found = [each for each in read_paths([script]).findings if each.code == check.code]
        fixed = fix_files(found, write=True)
        changed = [each.severity.value for file in fixed for each in file.findings]
        assert {*changed} <= {"bug"}
        if not any(each.severity.value == "bug" for each in found):
            assert script.read_text() == f"{PRELUDE}\n{code}"
