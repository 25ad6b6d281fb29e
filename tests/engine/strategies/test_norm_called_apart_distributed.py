# SPDX-License-Identifier: Apache-2.0
"""Ranks that call batch normalisation outside of updates, each with its own rows, are told in the next update; others go on."""

import importlib.util
from pathlib import Path

import pytest
from support.old_torch import DIVIDES
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "norm_called_apart.py"
_SPEC = importlib.util.spec_from_file_location("norm_called_apart", PROGRAM)
program = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(program)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("way", [each.__name__ for each in program.APART])
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=DIVIDES)])
def test_statistics_of_each_ranks_own_rows_are_refused(tmp_path, monkeypatch, way, strategy):
    """The ranks ended with other weights than one process, and with other statistics on each, in silence."""
    monkeypatch.setenv("STRATEGY", strategy)
    if strategy == "fsdp" and way == "looked_at_by_one":
        pytest.skip("divided weights are gathered by all ranks, and such a call hangs")
    for each in on_ranks(PROGRAM, tmp_path, way):
        assert each.status == 1
        assert "statistics of batch normalisation are not the same on all ranks: 1.running_mean" in each.error
        assert "Call the model inside the loss" in each.error


@pytest.mark.sliced(1)
@pytest.mark.parametrize("way", [each.__name__ for each in program.ALIKE])
def test_calls_that_leave_the_ranks_alike_go_on(tmp_path, way):
    assert [each.status for each in on_ranks(PROGRAM, tmp_path, way)] == [0, 0]
