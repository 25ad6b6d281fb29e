# SPDX-License-Identifier: Apache-2.0
"""Python in Markdown is read where it stands: notes are where the mistakes live."""

import itertools

import pytest

from truestep.doctor.linting import read_paths
from truestep.doctor.markdown import parse_markdown

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
    # nobody may ever run them as one: a page shows one version of a function, then the next
    assert {each.severity.value for each in reading.findings} == {"risk"}
    whole = found(tmp_path, f"```python\n{HEAD}{LOOP}```\n").findings
    assert {each.severity.value for each in whole} == {"bug"}


@pytest.mark.parametrize("unit", [" ", "> ", ">", "\t", "    ", "`", "~", "` "])
def test_a_line_of_many_marks_is_read_in_no_time(unit):
    """A pattern that can match the same blanks in two ways would try all of them: 2 to the 200."""
    assert parse_markdown(f"text\n\n{unit * 200}x\n").programs == ()


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
    assert (page.programs, page.unreadable) == ((), ())


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
    (program,) = parse_markdown("````python\nx = '''\n```\n'''\n````\ny\n").programs
    assert program.text == "\nx = '''\n```\n'''\n\n\n"


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
    assert (page.programs, page.unreadable) == ((), ())


@pytest.mark.parametrize("indent", ["    ", "\t", "      "])
def test_code_by_indentation_is_read_with_its_columns(tmp_path, indent):
    body = "".join(f"{indent}{line}\n" for line in (HEAD + "\n" + LOOP).splitlines())
    reading = found(tmp_path, f"So:\n\n{body}\nand on\n")
    assert [(each.code, each.place.line) for each in reading.findings] == [("LOSS001", 9), ("GRAD001", 10)]
    assert reading.findings[0].place.column == 5 + len(indent)


@pytest.mark.parametrize(
    "prose",
    [
        "So\n    torch.save(net)\nis it.\n",  # a paragraph goes on
        "1. first\n\n    the rest of the item, with torch.save in words\n",
        "\n    x = 1\n    y = 2\n",
    ],
)
def test_what_is_indented_and_no_code_of_torch_is_prose(prose):
    page = parse_markdown(prose)
    assert (page.programs, page.unreadable) == ((), ())


CLOSED = HEAD.replace("import torch.nn.functional as F\n", "") + (
    "for x, y in loader:\n    opt.zero_grad()\n    net(x).sum().backward()\n    opt.step()\n"
)
OPEN = HEAD + LOOP.replace(".softmax(1)", "")
ORDERS = [*itertools.permutations(range(3)), (0, 0, 1), (2, 1, 2), (1, 1), (0,)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("between", ["\n\n", "\n## Another\n\n"])
def test_a_snippet_is_judged_as_if_it_stood_alone_whatever_stands_beside_it(tmp_path, order, between):
    """Sections reuse each other's names: the model of one is not the model of the other."""
    snippets = [CLOSED, OPEN, HEAD.replace("net", "model") + "print(model)\n"]
    alone = {number: found(tmp_path, f"```python\n{text}```\n") for number, text in enumerate(snippets)}
    expected, page = [], ""
    for number in order:
        start = page.count("\n")
        expected += [(each.code, start + each.place.line) for each in alone[number].findings]
        page += f"```python\n{snippets[number]}```\n{between}"
    assert [(each.code, each.place.line) for each in found(tmp_path, page).findings] == expected
    assert any(each.findings for each in alone.values())


def test_a_snippet_that_goes_on_has_the_imports_of_earlier_ones_and_each_finding_comes_once(tmp_path):
    parts = ["import torch\nimport torch.nn.functional as F\nfrom torch.autograd import Variable\n"]
    parts += [HEAD.split("\n", 2)[2], LOOP, "net = None\n", LOOP.replace("net(x)", "torch.tanh(x)")]
    reading = found(tmp_path, "".join(f"```python\n{part}```\n" for part in parts))
    codes = [(each.code, each.place.line) for each in reading.findings]
    assert ("LOSS001", 12) in codes
    assert len(codes) == len(set(codes))


def test_the_number_of_files_is_that_of_pages(tmp_path):
    assert found(tmp_path, f"```python\n{CLOSED}```\n```python\n{OPEN}```\n").num_files == 1


@pytest.mark.parametrize(
    ("block", "is_listed"),
    [
        ("project/\n├── data/\n│   └── raw\n└── train.py", False),
        (">> 22", False),
        (">>> add(20, 2)\n>> 22", False),
        ("python train.py --epochs 3", False),
        ("from project import train\ntrain(epochs=3", True),
        ("net = torch.nn.Linear(3, 3", True),
        (">> import torch\n>> torch.ones(3)", True),
    ],
)
@pytest.mark.parametrize("info", ["python", "py"])
def test_a_block_that_says_python_and_is_prose_is_not_listed(block, is_listed, info):
    page = parse_markdown(f"# How\n\n```{info}\n{block}\n```\n")
    assert bool(page.unreadable) is is_listed
    assert page.programs == ()


BLOCK = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d_model, d_state=16):
        self.proj = nn.Linear(d_model, {size})

    def forward(self, x):
        {body}
        return self.proj(x)
"""
OUTLINES = [
    (("d_inner * 2", "x = F.silu(x)"), ""),
    (("d_model", "x = f * c_prev + x"), ""),
    (("d_model", "x = torch.cat([x, residual], 1)"), ""),
    (("dt_rank", "x = F.silu(x)"), "dt = 3\n"),
    (("self.n[width]", "x = F.silu(x)"), ""),
]
WHOLE = [
    (("d_model", "x = F.silu(x)"), ""),
    (("d_inner", "x = F.silu(x)"), "d_inner = 8\n"),
    (("cfg.d_inner", "x = F.silu(x)"), ""),
    (("d_model", "x = gate(x)"), ""),
    (("HIDDEN", "x = F.silu(x)"), ""),
    (("d_model, device=device", "x = F.silu(x)"), ""),
    (("d_state", "c = x\n        x = x * c"), ""),
]


def severities(tmp_path, code):
    return {each.severity.value for each in found(tmp_path, code).findings if each.code == "PARAM004"}


@pytest.mark.parametrize(("parts", "head"), OUTLINES)
def test_what_is_wrong_in_an_outline_is_a_question(tmp_path, parts, head):
    size, body = parts
    code = head + BLOCK.format(size=size, body=body)
    assert severities(tmp_path, f"```python\n{code}```\n") == {"question"}


@pytest.mark.parametrize(("parts", "head"), WHOLE)
def test_what_is_wrong_in_a_class_that_can_be_copied_is_a_bug(tmp_path, parts, head):
    size, body = parts
    code = head + BLOCK.format(size=size, body=body)
    assert severities(tmp_path, f"```python\n{code}```\n") == {"bug"}


def test_a_size_that_another_block_gives_makes_no_outline(tmp_path):
    code = BLOCK.format(size="d_inner", body="x = F.silu(x)")
    assert severities(tmp_path, f"```python\nd_inner = 8\n```\n\nso:\n\n```python\n{code}```\n") == {"risk"}
