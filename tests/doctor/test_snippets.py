# SPDX-License-Identifier: Apache-2.0
"""Every snippet of `snippets.txt` gives exactly its findings at their severity; its right form gives none."""

import re
from pathlib import Path

import pytest

from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

TEXT = Path(__file__).with_name("snippets.txt").read_text("utf-8")
IMPORTS, *SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BEFORE = PRELUDE + BLOCK.search(IMPORTS)[1]


def expected_of(code):
    for number, line in enumerate(code.splitlines(), BEFORE.count("\n") + 1):
        for finding in line.partition("#! ")[2].split(", "):
            if finding:
                yield (number, *finding.split())


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_the_snippet_gives_exactly_its_findings_and_the_right_form_none(section):
    wrong, right = BLOCK.findall(section)
    found = read_text(BEFORE + wrong).findings
    assert sorted(expected_of(wrong)) == sorted((f.place.line, f.code, f.severity.value) for f in found)
    reading = read_text(BEFORE + right)
    assert (reading.findings, reading.failures, reading.unreadable) == ([], [], [])


def test_all_are_here():
    assert [int(section.partition(".")[0]) for section in SECTIONS] == list(range(1, 50))
