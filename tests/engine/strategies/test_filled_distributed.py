# SPDX-License-Identifier: Apache-2.0
"""Buffers that a forward fills from its examples are those of the whole batch on ranks, or the first update names them."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from support.old_torch import DIVIDES
from support.ranks import on_ranks
from torch import nn

import truestep as ts
from truestep.engine.buffer_rules import buffer_rules_of

PROGRAM = Path(__file__).parent / "filled_over_ranks.py"
_SPEC = importlib.util.spec_from_file_location("filled_over_ranks", PROGRAM)
program = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(program)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return what one process ends with."""
    folder = tmp_path_factory.mktemp("alone")
    program.main(folder)
    return json.loads((folder / "filled-0.json").read_text())


@pytest.mark.sliced(3)
@pytest.mark.parametrize(
    ("size", "strategy"), [(2, "ddp"), (3, "ddp"), pytest.param(2, "fsdp", marks=DIVIDES)]
)
def test_filled_buffers_are_those_of_the_whole_batch_or_refused_by_name(
    alone, tmp_path, monkeypatch, size, strategy
):
    monkeypatch.setenv("STRATEGY", strategy)
    finished = on_ranks(PROGRAM, tmp_path, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
    ranks = [json.loads((tmp_path / f"filled-{rank}.json").read_text()) for rank in range(size)]
    for found in ranks:
        for name, one in alone.items():
            check_equal(found[name], one)
    own = [found["counts"]["buffers"]["newest"] for found in ranks]
    assert own[0] != own[1]
    assert own == [found["counts, resumed"]["buffers"]["newest"] for found in ranks]


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", program.REFUSED)
def test_the_first_update_after_which_they_differ_names_them(tmp_path, name):
    finished = on_ranks(PROGRAM, tmp_path, name)
    for each in finished:
        assert each.status == 1
        text = each.error
        assert "RankError: In an update of " in text or "RankError: In an evaluation, " in text
        for buffer in program.REFUSED[name]:
            assert f"{buffer} (sums up to " in text
        assert f'run.learner(..., buffers={{"{program.REFUSED[name][0]}": "mean"}})' in text


@pytest.mark.sliced(1)
@pytest.mark.parametrize("kind", program.LATE)
def test_a_buffer_that_a_rank_without_examples_never_made_is_named(tmp_path, kind):
    finished = on_ranks(PROGRAM, tmp_path, kind)
    name = "part.centre" if "below" in kind else "centre"
    for each in finished:
        assert each.status == 1  # where they went on, a broadcast of two sizes ended the process
        assert (
            f"not the same on all ranks: {name} is of shape (4,) on rank 0 and missing on rank 1"
            in each.error
        )
        assert 'self.register_buffer("centre", torch.zeros(4))' in each.error


@DIVIDES
@pytest.mark.sliced(1)
@pytest.mark.parametrize("kind", program.DIVIDED)
def test_a_loss_of_divided_weights_is_refused_where_a_rank_has_no_examples(tmp_path, kind):
    for each in on_ranks(PROGRAM, tmp_path, kind):
        assert each.status == 1
        assert "something was computed with a weight elsewhere" in each.error


def check_equal(found, one):
    for kind in ("weights", "measured"):
        for mine, other in zip(found[kind], one[kind], strict=True):
            assert torch.allclose(torch.tensor(mine), torch.tensor(other), rtol=1e-11, atol=1e-12)
    for name, values in one["buffers"].items():
        if name != "newest":
            mine, other = torch.tensor(found["buffers"][name]), torch.tensor(values)
            assert torch.allclose(mine, other, rtol=1e-11, atol=1e-12), name


def test_a_rule_names_a_buffer_and_one_of_three_words():
    module = nn.ModuleDict(
        {"first": nn.BatchNorm1d(2), "norm": nn.InstanceNorm1d(2, track_running_stats=True)}
    )
    rules = buffer_rules_of(module, {"first.*": "own", "norm.running_var": "sum"})
    assert rules["first.running_mean"] == "own"
    assert (rules["norm.running_mean"], rules["norm.running_var"]) == ("mean", "sum")
    with pytest.raises(ts.TruestepError, match=r"'avg'.*'mean' over the examples"):
        buffer_rules_of(module, {"first.running_mean": "avg"})
    with pytest.raises(ts.TruestepError, match=r"running_mean"):
        buffer_rules_of(module, {"first.runing_mean": "mean"})
