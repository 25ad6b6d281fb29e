# SPDX-License-Identifier: Apache-2.0
"""Two processes with a card each, on the stand-in: the host waits for a card only where ranks have something to compare."""

from pathlib import Path

import pytest
import torch
from support.ranks import on_ranks
from support.split_over_ranks import NOT_ON_CARDS, check, program

pytestmark = pytest.mark.xdist_group("a card each")  # the two processes train once
PROGRAM = Path(__file__).parent / "card_over_ranks.py"
EACH = {1, 2, 3, 4}
WAITS_IN = {
    "usual": set(),
    "weighted": set(),
    "weighted_on_one": set(),
    "measured": set(),
    "left_out": EACH,
    "left_out_on_one": {2},
    "fills": EACH,
}
"""The updates behind the first, which may make states, in which the host reads."""

ENDS = (0, "cuda"), (1, "cuda"), (0, "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    finished = on_ranks(PROGRAM, folder)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("loss", WAITS_IN)
def test_the_host_waits_only_where_ranks_compare_something(trained, loss):
    for found in trained:
        seen = found["cuda"][1][loss]
        assert {number for number, reads in enumerate(seen) if number and reads} == WAITS_IN[loss], seen


@pytest.mark.parametrize("loss", WAITS_IN)
def test_both_end_where_the_cpu_does(trained, loss):
    first, second, on_cpu = (trained[rank][device][0][loss] for rank, device in ENDS)
    assert all(map(torch.equal, first, second))
    torch.testing.assert_close(first, on_cpu, rtol=1e-12, atol=1e-14)


SPARSE = ("few_rows", "only_rows")  # the stand-in has no sparse tensors


@pytest.mark.slow
def test_processes_with_a_card_each_train_as_one_process_on_the_cpu_does(tmp_path):
    check(
        tmp_path,
        2,
        names=[each for each in program().CASES if each not in (*NOT_ON_CARDS, *SPARSE)],
        on="card",
    )
