# SPDX-License-Identifier: Apache-2.0
"""What is found does not hang on how it is said: findings stay, and silence stays, under each rewording of a program."""

import functools
import re
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rewordings import REWORDINGS, NotApplicableError, reworded
from rewordings_left import LEFT

from truestep.doctor.catalogue import checks, source_checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.linting import read_texts
from truestep.doctor.page import PRELUDE

# one process of several, since the last test counts what the others have read
pytestmark = pytest.mark.xdist_group("rewordings")

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@functools.cache
def programs():
    """Return name, text and expected codes of every example: of the checks' pages and of what goes round."""
    found = []
    for code, check in checks().items():
        if issubclass(check, SourceCheck):
            found.append((f"{code} bad", PRELUDE + check.page().bad, {code}))
        found.append((f"{code} good", PRELUDE + check.page().good, set()))
    imports, *sections = re.split(r"^## ", Path(__file__).with_name("snippets.txt").read_text(), flags=re.M)
    before = PRELUDE + BLOCK.search(imports)[1]
    for section in sections:
        number = section.partition(".")[0]
        wrong, right = BLOCK.findall(section)
        marks = [mark for line in wrong.splitlines() for mark in line.partition("#! ")[2].split(", ")]
        found.append((f"snippet {number} wrong", before + wrong, {mark.split()[0] for mark in marks if mark}))
        found.append((f"snippet {number} right", before + right, set()))
    return found


# each rewording is tried with a ninth of the programs, another one each; `make torture` tries the other ninths. Drawn programs
# hold it in every test for what is most often written wrong (tests/programs/planted)
PARTS = [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 9))]


def is_in_part(rewording, name, part):
    return zlib.crc32(f"{rewording.__name__} {name}".encode()) % len(PARTS) == part


def left_of(rewording, part):
    _, listed = LEFT.get(rewording.__name__, ("", ""))
    return [each for each in listed.split(", ") if each and is_in_part(rewording, each, part)]


@functools.cache
def changed(rewording, part):
    """Return what a rewording was applied to, and where that changes what is found."""
    wanted = source_checks()
    applied, other = [], []
    for name, text, expected in programs():
        if not is_in_part(rewording, name, part):
            continue
        try:
            texts = reworded(rewording, text)
        except NotApplicableError:
            continue
        applied.append(name)
        reading = read_texts(texts, wanted)
        assert (reading.failures, reading.unreadable) == ([], []), (name, texts)
        if {each.code for each in reading.findings} != expected:
            other.append(name)
    return applied, other


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rewording", REWORDINGS, ids=lambda each: each.__name__)
def test_what_is_found_stays(rewording, part):
    assert sorted(changed(rewording, part)[1]) == sorted(left_of(rewording, part))


@pytest.mark.parametrize("part", PARTS)
def test_at_most_one_in_twenty_is_left(part):
    tried = sum(len(changed(each, part)[0]) for each in REWORDINGS)
    left = sum(len(left_of(each, part)) for each in REWORDINGS)
    assert tried > 300
    assert left <= tried / 20


def test_what_a_rewording_writes_says_the_same():
    text = "import os\nx = int(1)\nfor i in range(3):\n    if i % 2 == 0:\n        x = x + i\nprint(x)\n"
    told = {}
    for rewording in REWORDINGS:
        try:
            texts = reworded(rewording, text)
        except NotApplicableError:
            continue
        if rewording.__name__ not in (
            "other_file",
            "guarded",
            "within_with",
        ):  # which import, or are switched off
            told[rewording.__name__] = []
            exec(texts["main.py"], {"print": told[rewording.__name__].append})
    assert told == {key: [3] for key in told}
    assert len(told) >= 6
