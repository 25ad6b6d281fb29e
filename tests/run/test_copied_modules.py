# SPDX-License-Identifier: Apache-2.0
"""A learner's module can be copied in the loop: into a teacher, an average, a file; also while its layers are looked at."""

import importlib.util
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "copied_modules.py"


@pytest.mark.parametrize("size", [1, 2])
def test_a_copy_is_a_module_of_its_own_and_brings_no_hook_of_the_runs(size, tmp_path):
    if size == 1:
        spec = importlib.util.spec_from_file_location("copied_modules", PROGRAM)
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        program.main(tmp_path)
        return
    finished = on_ranks(PROGRAM, tmp_path, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
