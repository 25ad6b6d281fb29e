# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed, or raises, in the middle of an update: the other names it, and both go on with the same bits."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "fails_in_update.py"
FEW, ALL = (1, 8), range(50)


def drawn(seed):
    spec = importlib.util.spec_from_file_location("fails_in_update", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.draw(seed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    @cache
    def ends(is_wide):
        finished = on_ranks(PROGRAM, tmp_path_factory.mktemp("whole") / "run", "-", is_wide)
        assert [each.status for each in finished] == [0, 0], finished[0].error
        return [each.out for each in finished]

    return ends


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in FEW else pytest.mark.slow) for seed in ALL]
)
def test_the_other_rank_names_it_and_both_go_on_with_the_same_bits(tmp_path, undisturbed, seed):
    failure = drawn(seed)
    folder = tmp_path / "run"
    ended = on_ranks(PROGRAM, folder, seed, failure.is_wide)
    failed, other = ended[failure.rank], ended[1 - failure.rank]
    assert failed.status == (-9 if failure.is_killed else 1), (failure, failed.error)
    assert other.status == 1, (failure, other.error)
    said = "is gone" if failure.is_killed else "raised ValueError: a bad update"
    last = other.error.strip().splitlines()[-1]
    assert re.search(rf"rank {failure.rank} \(process \d+ on \S+\).*{said}", last), (failure, other.error)
    again = on_ranks(PROGRAM, folder, "-", failure.is_wide)
    assert [each.out for each in again] == undisturbed(failure.is_wide), (failure, again[0].error)
