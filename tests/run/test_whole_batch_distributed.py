# SPDX-License-Identifier: Apache-2.0
"""What the pages write for losses and buffers that need the whole batch is exact on several ranks."""

import importlib.util
import json
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "whole_batch.py"


def test_masks_of_their_own_a_codebook_and_a_carried_state_end_on_ranks_as_on_one(tmp_path):
    spec = importlib.util.spec_from_file_location("whole_batch", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    (tmp_path / "alone").mkdir()
    program.main(tmp_path / "alone")
    alone = json.loads((tmp_path / "alone" / "weights-0.json").read_text())
    finished = on_ranks(PROGRAM, tmp_path, size=2)
    assert [each.status for each in finished] == [0] * 2, finished[0].error
    for rank in range(2):
        found = json.loads((tmp_path / f"weights-{rank}.json").read_text())
        for name, tensors in alone.items():
            for one, other in zip(found[name], tensors, strict=True):
                assert flat(one) == pytest.approx(flat(other), rel=1e-12, abs=1e-14), name


def flat(values):
    return [leaf for value in values for leaf in (flat(value) if isinstance(value, list) else [value])]


@pytest.mark.sliced(2)
@pytest.mark.parametrize("kind", ["own", "shared", "pool", "large pool", "pool of each rank"])
def test_a_state_of_the_loop_that_differs_by_rank_is_refused_when_it_is_saved(kind, tmp_path):
    """Rank 0's would be put back on all, and the run that goes on would be another training."""
    finished = on_ranks(PROGRAM.with_name("state_by_rank.py"), tmp_path, kind, size=2)
    if kind in {"shared", "pool of each rank"}:
        assert [each.status for each in finished] == [0, 0], finished[0].error
        return
    for each in finished:
        assert each.status == 1
        what = (
            "what is tracked as 'pool' is another"
            if "pool" in kind
            else "run.state['hidden'] is another value"
        )
        assert f"{what} on rank 1 than on rank 0" in each.error
        assert f"run.track(per_rank=True, {'pool' if 'pool' in kind else 'name'}=" in each.error
