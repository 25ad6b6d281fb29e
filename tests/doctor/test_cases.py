# SPDX-License-Identifier: Apache-2.0
"""Further cases of a check stand in `checks/TOPIC/FAULT.md`; `#! CODE` or `#! CODE severity` is a finding expected there.

Right forms that look wrong give nothing, wrong forms in disguise give exactly their finding, from all checks.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from truestep.doctor.catalogue import check_topic, checks
from truestep.doctor.fixing import rewritten_by_findings
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

FOLDER = Path(__file__).with_name("checks")
CASE = re.compile(r"^## (.+?)\n+```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(FOLDER.rglob("*.md"))
CASES = [
    pytest.param(code, id=f"{page.stem}: {title}")
    for page in PAGES
    for title, code in CASE.findall(page.read_text("utf-8"))
]


def expected_of(code):
    for number, line in enumerate(code.splitlines(), 1):
        for found in line.partition("#! ")[2].split(", "):
            if found:
                yield number, found


@pytest.mark.whole
@pytest.mark.parametrize("code", CASES)
def test_a_case_gives_exactly_its_findings_and_a_rewrite_takes_away_its_own(code):
    reading = read_text(PRELUDE + code)
    expected = sorted(expected_of(code))
    found = sorted(
        (each.place.line - PRELUDE.count("\n"), f"{each.code} {each.severity.name.lower()}")
        for each in reading.findings
    )
    assert [line for line, _ in found] == [line for line, _ in expected]
    assert all(told.startswith(wanted) for (_, told), (_, wanted) in zip(found, expected, strict=True)), found
    assert (reading.failures, reading.unreadable) == ([], [])
    before = reading.findings
    for finding in before:
        if finding.replacement is None:
            continue
        text, made = rewritten_by_findings(PRELUDE + code, [finding])
        assert made == (finding,)
        left = Counter(each.code for each in read_text(text).findings)
        assert left <= Counter(each.code for each in before) - Counter([finding.code])


def test_a_page_lies_where_its_check_lies():
    known = {f"{check_topic(check)}/{check.name().replace('-', '_')}" for check in checks().values()}
    assert {page.relative_to(FOLDER).with_suffix("").as_posix() for page in PAGES} <= known


def test_every_block_of_a_page_is_a_case():
    blocks = sum(page.read_text("utf-8").count("```python") for page in PAGES)
    assert blocks == len(CASES)
