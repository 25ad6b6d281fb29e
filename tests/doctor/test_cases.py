# SPDX-License-Identifier: Apache-2.0
"""Further cases of single checks, `checks/TOPIC/FAULT.md`: each block gives exactly the findings marked in it.

A comment `#! CODE` at the end of a line is a finding expected there; no other may be given, by any check.
"""

import re
from pathlib import Path

import pytest

from truestep.doctor.catalogue import checks
from truestep.doctor.page import PRELUDE
from truestep.doctor.read import read_text

FOLDER = Path(__file__).parent / "checks"
BLOCK = re.compile(r"^(?P<title>[^\n`]+)\n\n```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
CASES = [
    pytest.param(path, found["code"], id=f"{path.stem}: {found['title']}")
    for path in sorted(FOLDER.rglob("*.md"))
    for found in BLOCK.finditer(path.read_text("utf-8"))
]


def expected_of(code):
    for number, line in enumerate(code.splitlines(), PRELUDE.count("\n") + 1):
        for finding in line.partition("#! ")[2].split(", "):
            if finding:
                yield number, finding


@pytest.mark.parametrize(("path", "code"), CASES)
def test_the_case_gives_exactly_its_findings(path, code):
    reading = read_text(PRELUDE + code)
    assert (reading.failures, reading.unreadable) == ([], [])
    assert [(each.place.line, each.code) for each in reading.findings] == sorted(expected_of(code))


def test_each_page_of_cases_belongs_to_a_check():
    homes = {check.__module__.removeprefix("truestep.doctor.checks.") for check in checks().values()}
    pages = {f"{path.parent.name}.{path.stem}" for path in FOLDER.rglob("*.md")}
    assert pages <= homes
    assert len(CASES) >= len(pages)
