# SPDX-License-Identifier: Apache-2.0
"""The report in a narrow terminal: places stay whole, reasons hang under one another, fixes are diffs."""

import ast
import io
from pathlib import Path

from rich.console import Console

from truestep.doctor import checks
from truestep.doctor.linting import read_text, read_texts
from truestep.doctor.reporting.evidence_wording import WORDS, evidence_sentences
from truestep.doctor.reporting.terminal import show_reading

TEXT = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    F.cross_entropy(net(x).softmax(1), y).backward()
    opt.step()
"""


def shown(path, width=80):
    reading = read_text(TEXT, path)
    reading.lines = {each.place: TEXT.splitlines()[each.place.line - 1] for each in reading.findings}
    return printed(reading, width)


def printed(reading, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show_reading(reading, console)
    return console.file.getvalue().splitlines()


def test_a_long_path_has_its_line_and_is_not_broken():
    path = "a_folder_with_a_long_name/" * 2 + "train_the_model.py"
    assert shown(path)[0] == path


def test_everything_else_fits_the_width():
    assert max(map(len, shown("train.py"))) <= 80


def test_findings_stand_by_file_and_reasons_once_for_each_code():
    texts = {"b.py": TEXT + TEXT.split("\n", 4)[4], "a.py": TEXT}
    reading = read_texts(texts)
    reading.lines = {
        each.place: texts[each.place.path].splitlines()[each.place.line - 1] for each in reading.findings
    }
    lines = printed(reading)
    assert [line for line in lines if line.endswith(".py")] == ["a.py", "b.py"]
    assert sum(line.startswith("  why") for line in lines) == 2
    assert "LOSS001  softmax-before-cross-entropy  3 bugs" in lines
    found = [line.split()[:3] for line in lines if " bug  GRAD001" in line]
    assert found == [["7:5", "bug", "GRAD001"], ["7:5", "bug", "GRAD001"], ["10:5", "bug", "GRAD001"]]


def test_what_a_finding_is_about_is_underlined_in_characters():
    text = TEXT.replace("    F.cross", "    é = 'é'; F.cross")
    reading = read_text(text, "train.py")
    reading.lines = {each.place: text.splitlines()[each.place.line - 1] for each in reading.findings}
    lines = printed(reading)
    code = next(index for index, line in enumerate(lines) if "^" in line)
    start, width = lines[code].index("^"), lines[code].count("^")
    assert lines[code - 1][start : start + width] == "F.cross_entropy(net(x).softmax(1), y)"
    assert reading.findings[0].place.column == 14


def test_evidence_is_told_in_sentences():
    assert evidence_sentences({"step": 3, "learning_rates": [2.0, 3.25], "made_by": "softmax"}) == (
        "Seen at optimizer step 3. The learning rates are 2, 3.25."
    )


def test_a_tolerance_is_told_as_one():
    """It stood as "Expected: 0.00024", which is nothing that anybody expects of a gradient."""
    assert evidence_sentences({"found": 0.0, "tolerance": 0.00023841}) == (
        "Found: 0. Up to 0.0002384 counts as rounding."
    )


def names_given_to_evidence():
    for path in Path(checks.__path__[0]).rglob("*.py"):
        text = path.read_text("utf-8")
        if "Observation" in text:
            for node in ast.walk(ast.parse(text)):
                keys = node.keys if isinstance(node, ast.Dict) else ()
                if keys and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys):
                    yield from (key.value for key in keys)


def test_every_name_that_checks_give_to_evidence_has_its_words():
    assert set(names_given_to_evidence()) - set(WORDS) == set()
    # given where reports are joined, by the history, and by relations
    elsewhere = {"processes", "made_by", "seen_as", "tolerance"}
    assert set(WORDS) - set(names_given_to_evidence()) == elsewhere


def test_a_fix_is_shown_as_a_diff():
    lines = [line.strip() for line in shown("train.py")]
    assert "- F.cross_entropy(net(x).softmax(1), y).backward()" in lines
    assert "+ F.cross_entropy(net(x), y).backward()" in lines
    assert "+ opt.zero_grad()" in lines
