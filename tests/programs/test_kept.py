# SPDX-License-Identifier: Apache-2.0
"""Programs that broke a law once, shrunk to the fewest habits; one that still does is expected to fail, and must."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from programs.compose import program
from programs.laws import hold
from support.old_torch import DIVIDES

KEPT = sorted((Path(__file__).parent / "kept").glob("*.txt"))
MAX_KEPT = 200


def read(path):
    """Return what happened, the law, the habits, and why it still fails, if it does."""
    about, *lines = path.read_text("utf-8").strip().splitlines()
    words = dict(re.split(r":\s*", line, maxsplit=1) for line in lines)
    return about, words["law"], words["habits"].split(), words.get("fails"), words.get("package")


def parameters():
    for path in KEPT:
        fails, package = read(path)[3:]
        if package and find_spec(package) is None:
            yield pytest.param(
                path, id=path.stem, marks=pytest.mark.skip(reason=f"{package} is not installed")
            )
            continue
        yield pytest.param(
            path,
            id=path.stem,
            marks=[
                *([pytest.mark.xfail(strict=True, reason=fails)] if fails else []),
                *([DIVIDES] if read(path)[1] == "fsdp" else []),
            ],
        )


@pytest.mark.parametrize("path", list(parameters()))
def test_a_program_that_broke_a_law_keeps_it(path, tmp_path):
    _, law, habits, *_ = read(path)
    hold(law, program(*habits), tmp_path / "program")


def test_few_programs_are_kept():
    assert len(KEPT) <= MAX_KEPT
