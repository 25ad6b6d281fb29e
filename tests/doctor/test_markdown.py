# SPDX-License-Identifier: Apache-2.0
"""Fenced Python in Markdown is read where it stands: notes are where the mistakes live."""

import pytest

from truestep.doctor.markdown import parse_markdown
from truestep.doctor.read import read_paths

HEAD = """\
import torch
import torch.nn.functional as F
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
LOOP = "for x, y in loader:\n    F.cross_entropy(net(x).softmax(1), y).backward()\n    opt.step()\n"


def found(tmp_path, text):
    page = tmp_path / "note.md"
    page.write_text(text)
    return read_paths([tmp_path])


def test_blocks_are_one_program_and_lines_are_the_page_s(tmp_path):
    reading = found(tmp_path, f"# A\n\n```python\n{HEAD}```\n\ntext `net`\n\n~~~py title=x\n{LOOP}~~~\n")
    assert [(each.code, each.place.line) for each in reading.findings] == [("LOSS001", 14), ("GRAD001", 15)]
    assert (reading.num_files, reading.unreadable) == (1, [])


def test_a_block_in_a_list_or_quotation_counts_its_columns_in_the_page(tmp_path):
    for mark in ("    ", "> "):
        body = "".join(f"{mark}{line}\n" for line in (HEAD + LOOP).splitlines())
        reading = found(tmp_path, f"- so:\n\n{mark}```python\n{body}{mark}```\n")
        loss = reading.findings[0]
        assert (loss.place.line, loss.place.column) == (9, 5 + len(mark)), mark
        assert loss.replacement is None  # its lines carry the mark


def test_other_languages_and_prose_are_passed_over():
    page = parse_markdown(
        "```bash\npip install torch\n```\n```\nx = (\n```\n\n    y = (\n```pycon\n>>> 1\n```\n"
    )
    assert (page.text.strip(), page.unreadable) == ("", ())


def test_a_block_that_is_no_python_is_named_and_the_others_are_read(tmp_path):
    reading = found(tmp_path, f"```python\ndef f(\n```\n```python\n{HEAD}{LOOP}```\n")
    assert [path.rpartition(":")[2] for path, _ in reading.unreadable] == ["2"]
    assert [each.code for each in reading.findings] == ["LOSS001", "GRAD001"]
    assert reading.lost_files == []


def test_a_fence_that_never_ends_goes_to_the_end_of_the_page(tmp_path):
    assert [each.code for each in found(tmp_path, f"````python\n{HEAD}{LOOP}").findings] == [
        "LOSS001",
        "GRAD001",
    ]
    assert parse_markdown("````python\nx = '''\n```\n'''\n````\ny\n").text == "\nx = '''\n```\n'''\n\n\n"


@pytest.mark.parametrize("mark", ["", "txt", "text", " ", "TXT"])
def test_a_block_without_a_language_is_read_where_it_is_code_of_torch(tmp_path, mark):
    reading = found(tmp_path, f"```{mark}\n{HEAD}```\n\n```{mark}\n{LOOP}```\n")
    assert [each.code for each in reading.findings] == ["LOSS001", "GRAD001"]
    assert reading.unreadable == []


@pytest.mark.parametrize(
    "prose",
    [
        "epoch 1: loss 0.5\n", "Traceback (most recent call last):\n  import torch\ntorch.cuda.Error: gone\n", "x = 1\n",
        "train/\n  cat.png\n", "loss = f(x)\n", "$ pip install torch\n",
    ],
)  # fmt: skip
def test_prose_and_output_are_not(prose):
    page = parse_markdown(f"```\n{prose}```\n```txt\n{prose}```\n")
    assert (page.text.strip(), page.unreadable) == ("", ())
