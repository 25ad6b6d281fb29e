# SPDX-License-Identifier: Apache-2.0
"""The contract of every check: its page is whole, Bad gives exactly its finding, Good none from any."""

import ast
import subprocess
import sys

import pytest

from truestep.doctor.catalogue import check_topic, checks, source_checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

CHECKS = list(checks().values())
READERS = [check for check in CHECKS if issubclass(check, SourceCheck)]
OFFSET = PRELUDE.count("\n")


def by_code(check):
    return check.code


def test_every_page_is_whole():
    for check in CHECKS:
        page = check.page()
        assert page.summary.endswith("."), check.code
        assert page.marked_lines, f"{check.code}: no line of Bad carries the mark"
        assert page.bad != page.good, check.code
        for code in (page.bad, page.good):
            ast.parse(code)
            assert max(map(len, code.splitlines())) <= 100, check.code


def test_a_file_holds_one_check_named_as_it():
    for check in CHECKS:
        assert check.__module__.rsplit(".", 1)[-1] == check.name().replace("-", "_")


def test_a_topic_has_one_prefix_numbered_without_repeats():
    prefixes = {}
    for check in CHECKS:
        prefixes.setdefault(check_topic(check), set()).add(check.code.rstrip("0123456789"))
    assert {topic: len(found) for topic, found in prefixes.items()} == dict.fromkeys(prefixes, 1)


@pytest.mark.whole
@pytest.mark.parametrize("check", READERS, ids=by_code)
def test_bad_gives_exactly_this_finding_of_a_severity_that_its_file_names(check):
    reading = read_text(PRELUDE + check.page().bad)
    expected = [(check.code, line + OFFSET) for line in check.page().marked_lines]
    assert [(each.code, each.place.line) for each in reading.findings] == expected
    assert reading.failures == []
    found = {each.severity for each in reading.findings}
    assert found <= {*check.severities(), Severity.RISK}  # a bug that rests on a name alone is a risk
    assert not check.words or any(word in check.page().bad for word in check.words)  # else it is not read


@pytest.mark.whole
@pytest.mark.parametrize("check", CHECKS, ids=by_code)
def test_good_gives_nothing_from_any_check(check):
    reading = read_text(PRELUDE + check.page().good)
    assert reading.findings == []
    assert reading.failures == []


def test_the_catalogue_and_the_source_checks_import_no_torch():
    code = (
        "import sys; from truestep.doctor.linting import read_text; read_text('import torch'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_check_has_a_place_in_the_catalogue():
    assert {type(each).code for each in source_checks()} == {each.code for each in READERS}
