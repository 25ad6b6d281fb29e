# SPDX-License-Identifier: Apache-2.0
"""One law over all fixes: making it leaves Python in which the finding is gone and nothing new is found."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE
from truestep.doctor.replacement import SourceEdit, apply_source_edits, replacement

FIXING = [
    check
    for check in checks().values()
    if issubclass(check, SourceCheck) and check.rewrite is not SourceCheck.rewrite
]


def mended(text, found):
    return apply_source_edits(
        text, [edit for each in found if each.replacement for edit in each.replacement.edits]
    )


@pytest.mark.parametrize("check", FIXING, ids=lambda check: check.code)
def test_bad_with_its_fix_has_no_finding(check):
    text = PRELUDE + check.page().bad
    found = read_text(text).findings
    assert all(each.replacement is not None for each in found)
    after = mended(text, found)
    ast.parse(after)
    assert read_text(after).findings == []


def test_the_diff_is_the_lines_that_change():
    text = "a = 1\nb = net\nc = 3\n"
    change = replacement(text, [SourceEdit(2, 5, 2, 8, "other"), SourceEdit(2, 8, 2, 8, "()")])
    assert change.diff == ("- b = net", "+ b = other()")
    assert apply_source_edits(text, change.edits) == "a = 1\nb = other()\nc = 3\n"


def test_columns_are_characters_not_bytes():
    text = (
        "import torch\nné, net = '→', torch.nn.Linear(2, 2)\n"
        "print('é→'); torch.nn.functional.cross_entropy(net(x).softmax(1), y).backward()\n"
    )
    found = read_text(text).findings
    assert [each.code for each in found] == ["LOSS001"]
    assert (
        mended(text, found).splitlines()[-1]
        == "print('é→'); torch.nn.functional.cross_entropy(net(x), y).backward()"
    )


@settings(deadline=None)
@given(st.lists(st.text("ab\u00e9", max_size=5), min_size=1, max_size=6), st.data())
def test_edits_replace_exactly_their_stretch(lines, data):
    text = "\n".join(lines) + "\n"
    row = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[row])))
    end = data.draw(st.integers(start, len(lines[row])))
    edited = apply_source_edits(text, [SourceEdit(row + 1, start + 1, row + 1, end + 1, "X")])
    assert edited.split("\n")[row] == lines[row][:start] + "X" + lines[row][end:]
    assert edited.split("\n")[:row] == lines[:row]
    assert edited.split("\n")[row + 1 :] == [*lines[row + 1 :], ""]
