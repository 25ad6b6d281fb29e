# SPDX-License-Identifier: Apache-2.0
"""An evaluation that differs by rank is refused and not averaged into one number; what differs rightly is not."""

import json
from pathlib import Path

import pytest
from support.old_torch import DIVIDES
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "measured_by_rank.py"


@pytest.fixture(
    scope="module", params=[("ddp", 1), pytest.param(("fsdp", 3), marks=DIVIDES)], ids=["ddp", "fsdp"]
)
def found(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    finished = on_ranks(PROGRAM, folder, *request.param, seconds=120)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


EXPECTED = {
    "function": "RankError: The ranks don't measure the same: the function is ",
    "way": "RankError: The ranks don't measure the same: ",
    "data": "DataError: The ranks were given different data to evaluate: ",
}
LONGER = "A loop that is longer on one rank than on another"


def test_what_differs_by_rank_is_refused_on_every_rank(found):
    wrong = [name for name in found[0] if ": same" not in name]
    assert len(wrong) > 7
    for name in wrong:
        words = [each[name] for each in found]
        assert words[0] == words[1], name
        # with divided weights the ranks meet at each batch
        is_longer = (
            words[0].startswith("RankError: The ranks came to different places") and LONGER in words[0]
        )
        assert words[0].startswith(EXPECTED[name.partition(":")[0]]) or is_longer, (name, words)


def test_what_is_the_same_is_measured(found):
    right = [name for name in found[0] if ": same" in name]
    assert len(right) > 20
    for name in right:
        assert found[0][name] == found[1][name], name
        assert isinstance(found[0][name], float), (name, found[0][name])
