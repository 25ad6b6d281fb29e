# SPDX-License-Identifier: Apache-2.0
"""What ranks must not do is refused on every rank, with its reason, and none of them waits for another."""

import json
import re
from pathlib import Path

import pytest
from support.old_torch import DIVIDES
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "refused.py"
LINE = r"\S+refused\.py:\d+ \(step 1\)"
KEPT = r"what run\.track keeps \(without per_rank=True\)"
EXPECTED = {
    "sizes": r"OptionError: micro_batch=\[1, 1\] are the sizes .* Give one number",
    "scalar": "LossError: The loss function returned a scalar, .* A mean over a part is not a part of the mean",
    "ungathered": r"LossError: decomposable=False, .* did not call ts\.gather",
    "short": "BatchError: decomposable=False, .* leave rank 1 without any",
    "nothing": r"BatchError: The batch is empty on every rank \(an update of 'net', \S+refused\.py:\d+\): .* Leave the update out",
    "options": r"OptionError: .* clip of 'net' is ClipNorm\(max_norm=1\.0.* on rank 0 and ClipNorm\(max_norm=2\.0.* on rank 1",
    "shapes": r"OptionError: .* the shape of weight of 'net' is \[1, 2\] on rank 0 and \[2, 2\] on rank 1",
    "configuration": r"OptionError: .* config is {'width': 0} on rank 0 and {'width': 1} on rank 1",
    "weights": r"RankError: The weights of 'net' are not the same .* bias sums up to \S+ on rank 0 and to \S+ on rank 1",
    "evaluated": rf"RankError: .* rank 0: an evaluation with 'net', {LINE}; rank 1: an update of 'net', {LINE}",
    "caught": r"RankError: .* rank 1 \(process \d+ on \S+\) raised ValueError: a bad sample \(at ",
    "modes": "BatchError: .* batch normalisation takes statistics of the batch on rank 1 and not on rank 0",
    "dropout": "RankError: The ranks don't train the same in an update of 'net': 1 is in training mode on rank 1 and not on rank 0",
    "held": "RankError: .* 0 is in training mode on rank 1 and not on rank 0",
    "frozen": "RankError: .* 0.bias trains on rank 1 and not on rank 0; 0.weight trains on .* `if run.is_main:`",
    "frozen_in_turn": "RankError: .* 0.bias trains on rank 0 and not on rank 1; .* 1.bias trains on rank 1 and not on rank 0",
    "frozen_in_block": "RankError: .* 0.bias trains on rank 1 and not on rank 0",
    "option": "RankError: The ranks don't train the same: 1.p of 'net' is 0.5 on rank 0 and 0.1 on rank 1",
    "option_at_start": r"OptionError: The ranks differ in what they train: 1.p of 'net' is 0.5 on rank 0 and 0.6 on rank 1",
    "modes_at_start": r"OptionError: .* what is in another mode than .* of 'net' is \[\] on rank 0 and \['1'\] on rank 1",
    "schedule": r"OptionError: The ranks differ in what they train: lr of 'net' is \S+ on rank 0 and \S+ on rank 1\.",
    "schedule_later": r"RankError: The ranks don't train the same: lr of 'net' is \S+ on rank 0 and \S+ on rank 1\. Set it",
    "rate": r"RankError: The ranks don't train the same: lr of 'net' is 0\.25 on rank 0 and \S+ on rank 1\. Set it on all ranks",
    "uneven": rf"RankError: .* rank 0: the end of a batch, {LINE}; rank 1: an update .* A loop that is longer on one rank",
    "tracked_besides": rf"OptionError: .* {KEPT} is \['a'\] on rank 0 and \['a', 'b'\] on rank 1",
    "tracked_alone": rf"OptionError: .* {KEPT} is \[\] on rank 0 and \['b'\] on rank 1",
    "tracked_otherwise": rf"OptionError: .* {KEPT} is \['of_0'\] on rank 0 and \['of_1'\] on rank 1",
    "tracked_for_one": rf"OptionError: .* {KEPT} is \['a'\] on rank 0 and \[\] on rank 1",
    "tracked_rightly": "nothing was raised",
    "named": r"LossError: .* gave other metrics on other ranks: \[\"of_0\"\], \[\"of_1\"\]",
}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    finished = on_ranks(PROGRAM, folder, seconds=120)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)], finished


@pytest.fixture(scope="module")
def found(started):
    return started[0]


@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_refused_on_every_rank(found, name):
    for rank in (0, 1):
        assert re.match(EXPECTED[name], found[rank][name], re.DOTALL), found[rank][name]


def test_everything_is_looked_at(found):
    assert found[0].keys() == EXPECTED.keys()


def test_a_run_that_was_refused_leaves_no_socket_open(started):
    for each in started[1]:
        num_open = json.loads(each.out)
        assert num_open[-1] <= num_open[0] + 1, num_open  # ten a run, if it stays


def test_a_rank_that_is_left_alone_raises_its_own_error(tmp_path):
    _, alone = on_ranks(PROGRAM.with_name("left_alone.py"), tmp_path, seconds=60)
    assert alone.status == 1
    assert "ValueError: a bad sample" in alone.error
    assert "RankError" not in alone.error


@DIVIDES
def test_micro_batch_auto_of_one_update_is_refused_with_divided_weights_as_a_learners_is(tmp_path):
    finished = on_ranks(PROGRAM.with_name("auto_divided.py"), tmp_path, seconds=60)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    for rank in (0, 1):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found.pop("numbers") == "nothing was raised"
        assert len(found) == 7
        for words in found.values():
            assert re.match(
                r'OptionError: micro_batch="auto" and strategy="fsdp" don\'t work together in ', words
            )
            assert words.endswith("Give a number.")
