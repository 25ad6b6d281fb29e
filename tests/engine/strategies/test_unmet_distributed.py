# SPDX-License-Identifier: Apache-2.0
"""Updates for which ranks do not meet: as one process makes them, with no message but the gradients', and named when apart."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from support.ranks import finish, on_ranks, start

PROGRAM = Path(__file__).parent / "unmet_over_ranks.py"
FEW = (0, 1, 2, 13)


def program():
    spec = importlib.util.spec_from_file_location("unmet_over_ranks", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(folder, seeds, size):
    finished = on_ranks(PROGRAM, folder, *seeds, size=size, seconds=1200)
    assert [each.status for each in finished] == [0] * size, finished[0].error[-3000:]
    module, (first, *others) = program(), [torch.load(folder / f"{rank}.pt") for rank in range(size)]
    for seed, found in first.items():
        drawn = module.draw(seed)
        weights, num_begun, counts, _ = found["alike"]
        bound = 1e-4 if drawn.dtype is torch.float32 else 1e-11
        alone, _, counted, _ = module.trained(drawn, folder / f"{seed}-alone", 2)
        assert counts == counted, drawn
        text = str(drawn)
        for one, other in zip(alone, weights, strict=True):
            torch.testing.assert_close(one, other, rtol=bound, atol=bound, msg=text.__add__)
        for kind in ("whole", "halved"):
            for rank in (first, *others):
                assert all(map(torch.equal, rank[seed][kind], found["whole"])), (drawn, kind)
        assert num_begun >= len(counts)
        are_all_busy = (
            drawn.model != "norm" or min(counts) >= size
        )  # else the buffers of one that was are lent
        if module.NEVER in (drawn.draws_from, drawn.drops_from) and are_all_busy:
            num_learners = 1 + drawn.two
            names = 3 * drawn.measured  # of metrics, which are exchanged once
            num_messages = len(counts) * module.NUM_MESSAGES[drawn.model]
            parts = zip(*(each[seed]["alike"][3] for each in (first, *others)), strict=True)
            without = [0 in lengths for lengths in parts]
            # names and shapes of buffers are compared in a learner's 1st, 2nd, 4th, ... update, where a rank has no example
            looks = sum(
                is_without and (number := 1 + index // num_learners) & (number - 1) == 0
                for index, is_without in enumerate(without)
            )
            assert num_begun == num_messages + num_learners * (1 + names) + looks, drawn


def test_drawn_trainings_end_as_on_one_process_and_a_resume_with_the_same_bits(tmp_path):
    check(tmp_path, FEW, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_many_drawn_trainings_do(tmp_path, size):
    check(tmp_path, range(100, 150), size)


PLACE = r"\S+unmet_over_ranks\.py:\d+ \(step 3\)"
SAID = {
    "evaluates": rf"rank 0: an update of 'critic', {PLACE}; rank 1: an evaluation with 'critic', {PLACE}",
    "other": rf"rank 0: an update of 'critic', {PLACE}; rank 1: an update of 'maker', {PLACE}",
    "left_out": r"rank 0: an update of 'maker', .*\(step 3\); rank 1: an update of 'critic', .*\(step 4\)",
    "frozen": r"0\.bias trains on rank 0 and not on rank 1",
    "norm": rf"rank 0: an update of 'critic', {PLACE}; rank 1: .*takes statistics.*call train\(\) or eval\(\) on all alike",
    "raises": r"rank 1 .* raised ValueError: a bad batch \(at \S+:\d+\)",
    "killed": "rank 1 .* is gone",
}
MODELS = ["small,small", "middle,small", "wide,wide last", "wide last,small"]
FIRST = [("evaluates", MODELS[0]), ("other", MODELS[1]), ("frozen", MODELS[2]), ("left_out", MODELS[0])]


@pytest.mark.parametrize(
    ("how", "models"),
    [
        pytest.param(how, models, marks=() if (how, models) in FIRST else pytest.mark.slow)
        for how in SAID
        for models in MODELS
    ],
)
def test_a_rank_that_fails_or_goes_another_way_is_named(tmp_path, how, models):
    survivor, other = on_ranks(PROGRAM, "apart", how, models, tmp_path)
    assert [survivor.status, other.status] == [1, -9 if how == "killed" else 1]
    for each in (survivor,) if how in ("raises", "killed") else (survivor, other):
        assert re.search(SAID[how], each.error.strip().splitlines()[-1]), each.error[-2000:]
    if how == "raises":
        told, raised = (float((tmp_path / f"raised-{rank}").read_text()) for rank in (0, 1))
        assert told - raised < 1


HANGS = {
    "hangs": "did not come to an update of 'critic' within 4 seconds: it is still at work elsewhere",
    "hangs behind": "did not come to an evaluation with 'critic' within 4 seconds: it is still at work elsewhere",
}


@pytest.mark.slow
@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("how", HANGS)
def test_a_rank_that_hangs_is_named_within_five_seconds_of_the_limit(tmp_path, how, models):
    """The other one waits for it in an update, or in an evaluation."""
    survivor, other = finish(start(PROGRAM, "apart", how, models, tmp_path, size=2), 100, hangs=1)
    assert (survivor.status, other.status) == (1, -9)
    last = survivor.error.strip().splitlines()[-1]
    assert re.search(rf"rank 1 \(process \d+ on \S+\) {HANGS[how]}", last), survivor.error[-2000:]
    came, told = (float((tmp_path / name).read_text()) for name in ("hangs-1", "raised-0"))
    limit = program().HANGS_SECONDS
    assert limit - 1 < told - came < limit + 5
    assert survivor.at - came < limit + 5  # and has stopped by then
