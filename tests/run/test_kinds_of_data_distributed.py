# SPDX-License-Identifier: Apache-2.0
"""Every kind of data that `docs/data.md` names trains on several ranks as on one."""

import importlib.util
import json
from pathlib import Path

import pytest
from support.ranks import on_ranks

pytestmark = pytest.mark.xdist_group("kinds of data")  # what one process ends with is found once

PROGRAM = Path(__file__).parent / "programs" / "kinds_of_data.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return what one process ends with, by kind."""
    spec = importlib.util.spec_from_file_location("kinds_of_data", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    folder = tmp_path_factory.mktemp("alone")
    program.main(folder)
    return json.loads((folder / "weights-0.json").read_text())


def test_every_kind_of_data_trains_on_several_ranks_as_on_one(alone, tmp_path):
    """Of three ranks two have as many rows of most batches, and one has none of the last."""
    finished = on_ranks(PROGRAM, tmp_path, size=3)
    assert [each.status for each in finished] == [0] * 3, finished[0].error
    for rank in range(3):
        found = json.loads((tmp_path / f"weights-{rank}.json").read_text())
        assert list(found) == list(alone)
        for name, (weights, evaluation) in alone.items():
            assert found[name][0] == [pytest.approx(row, rel=1e-12) for row in weights], name
            assert found[name][1] == pytest.approx(evaluation, rel=1e-12), name


def test_a_batch_is_cut_as_its_source_counts_it(alone):
    for name in (name.removesuffix(", cut") for name in alone if name.endswith(", cut")):
        assert alone[f"{name}, cut"][0] == [pytest.approx(row, rel=1e-12) for row in alone[name][0]], name
