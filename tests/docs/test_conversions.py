# SPDX-License-Identifier: Apache-2.0
"""The table of what conversions copy, share and cut says what they do."""

import runpy
from pathlib import Path

import pytest
from support.old_torch import SAYS_TODAYS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(DOCS / "make_conversions_table.py"))


@SAYS_TODAYS
def test_the_table_on_the_page_is_what_running_each_line_gives(made):
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), (
        "run: python docs/make_conversions_table.py"
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("t.float()", ("the same object", "kept")),
        ("t.double()", ("a copy", "kept")),
        ("t.long()", ("a copy", "cut")),
        ("t.detach()", ("shared", "cut")),
        ("t.T.view(6)", ("raises RuntimeError", "")),
        ("t.T.reshape(6)", ("a copy", "kept")),
        ("torch.from_numpy(a)", ("shared", "")),
        ("ts.from_numpy(a)", ("a copy", "")),
        ("torch.tensor(t)", ("a copy, with a UserWarning", "cut")),
    ],
)
def test_the_way_of_finding_out_finds_what_is_known(made, expression, expected):
    assert made["describe"](expression) == expected
