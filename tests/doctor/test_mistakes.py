# SPDX-License-Identifier: Apache-2.0
"""The table of mistakes: every row has a check that exists, or the reason why there is none."""

import re
from pathlib import Path

from truestep.doctor.catalogue import checks
from truestep.doctor.chinese_mistake_lines import listed_mistakes

PAGE = (Path(__file__).parents[2] / "docs" / "mistakes.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
CODE = re.compile(r"\b[A-Z]{3,5}\d{3}\b")


def test_every_row_is_there_once_in_order():
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 97))


def test_every_code_of_the_page_is_a_check():
    assert set(CODE.findall(PAGE)) <= set(checks())


def test_a_row_without_a_check_has_its_reason():
    for number, mistake, answer in ROWS:
        if not CODE.search(answer.partition("none:")[0]):
            assert re.match(r"none: \w.{20,}", answer), (number, mistake)


def test_a_check_knows_the_rows_of_the_chinese_page_that_name_it():
    lines = (Path(__file__).parents[2] / "docs" / "zh" / "mistakes.md").read_text("utf-8").splitlines()
    assert set(CODE.findall(PAGE)) == {code for code in checks() if listed_mistakes(code)}
    for code in checks():
        for mistake in listed_mistakes(code):
            assert f"| {mistake.words} |" in lines[mistake.line - 1]
            assert code in lines[mistake.line - 1]
