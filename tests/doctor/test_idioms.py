# SPDX-License-Identifier: Apache-2.0
"""Right forms of training code give no finding from any check: the blocks of `idioms.md`."""

import re
from pathlib import Path

import pytest

from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

TEXT = Path(__file__).with_name("idioms.md").read_text("utf-8")
IDIOMS = re.findall(r"^## (.+?)\n+```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", [code for _, code in IDIOMS], ids=[title for title, _ in IDIOMS])
def test_an_idiom_is_not_accused(code):
    reading = read_text(PRELUDE + code)
    assert (reading.findings, reading.failures, reading.unreadable) == ([], [], [])


def test_every_block_is_read():
    assert len(IDIOMS) == TEXT.count("```python")
