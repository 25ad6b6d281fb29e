# SPDX-License-Identifier: Apache-2.0
"""An evaluation of a stream by divided weights: as of rows that have numbers, with no message more for each batch."""

import json
import re
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "evaluates_stream.py"


def test_each_batch_of_a_stream_takes_as_many_messages_as_one_of_rows(tmp_path):
    ranks = on_ranks(PROGRAM, tmp_path, seconds=60)
    assert [each.status for each in ranks] == [0, 0], ranks[0].error
    for each in ranks:
        few, many = json.loads(each.out.splitlines()[-1])
        for (of_rows, _), (of_stream, _) in (few, many):
            assert of_rows == pytest.approx(of_stream, rel=1e-6)
        # between 9 and 12 batches no look at what was read is due
        growth = [other - one for (_, one), (_, other) in zip(few, many, strict=True)]
        assert growth[0] == growth[1] > 0


@pytest.mark.parametrize("less", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_rank_that_reads_less_of_a_stream_is_told_at_once(tmp_path, less):
    """It has a row less in the last batch, none where the other has one, or a batch less."""
    ranks = on_ranks(PROGRAM, tmp_path, less, seconds=60)
    assert [each.status for each in ranks] == [1, 1]
    for each in ranks:
        assert re.search("different places|read different data", each.error.strip().splitlines()[-1]), (
            each.error
        )
        assert each.seconds < 10
