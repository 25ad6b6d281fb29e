# SPDX-License-Identifier: Apache-2.0
"""Split over ranks, on real processes: the weights, averages and logged values of one process, whatever the number of ranks."""

import re

import pytest
import torch
from support.old_torch import DIVIDES
from support.ranks import on_ranks
from support.split_over_ranks import DIVIDED, MORE_DIVIDED, PROGRAM, check, differences, program
from torch import nn

from truestep.engine.strategies.fsdp_units import fsdp_blocks


def test_two_ranks_train_as_one_process_does(tmp_path):
    check(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_more_ranks_train_as_one_process_does(tmp_path, size):
    check(tmp_path, size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "names"),
    [("auto", ()), pytest.param("fsdp", [*DIVIDED, *MORE_DIVIDED], marks=DIVIDES)],
)
def test_hosts_that_tell_each_other_what_they_would_read_train_as_one_process_does(tmp_path, strategy, names):
    check(tmp_path, 2, strategy, names, on="ahead")


# ------------------------------------------------------------------ weights that are divided among the ranks


@DIVIDES
def test_divided_weights_are_trained_as_whole_ones_are(tmp_path):
    check(tmp_path, 2, "fsdp", DIVIDED)


@DIVIDES
@pytest.mark.parametrize(
    "name",
    [
        "experts_apart",
        "experts_measured",
        "detached_at_last",
        pytest.param("detached_apart", marks=pytest.mark.slow),
        pytest.param("detached_later", marks=pytest.mark.slow),
        pytest.param("experts_more", marks=pytest.mark.slow),
        pytest.param("experts_fewer_later", marks=pytest.mark.slow),
    ],
)
def test_layers_that_one_rank_alone_calls_are_refused_by_name(tmp_path, name):
    finished = on_ranks(PROGRAM, tmp_path, "fsdp", "refused", name)
    said = r"The ranks called other layers.*rank 0: .*(experts|layers)\."
    if name == "experts_measured":
        said = rf"({said}|The ranks came to different places.*rank 1: a layer of divided weights)"
    for rank in (0, 1):
        found = (tmp_path / f"{name}-{rank}.txt").read_text()
        assert re.match(f"RankError: {said}", found), finished[rank].error
    assert [each.status for each in finished] == [1, 1]  # no signal


@DIVIDES
@pytest.mark.slow
def test_weights_divided_by_four_are_trained_as_whole_ones_are(tmp_path):
    check(tmp_path, 4, "fsdp", DIVIDED + MORE_DIVIDED)


@DIVIDES
def test_divided_weights_go_on_with_the_same_bits_and_on_one_process(tmp_path):
    finished = on_ranks(PROGRAM, tmp_path, "fsdp", "half", "rest", "blocks")
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    rest, blocks = (torch.load(tmp_path / f"{name}.pt") for name in ("rest", "blocks"))
    assert set(differences(blocks, rest).values()) == {0.0}
    (tmp_path / "alone").mkdir()
    (tmp_path / "copied").rename(tmp_path / "alone" / "resumed")
    found = differences(blocks, program().trained("rest", tmp_path / "alone"))
    assert all(difference < 1e-11 for difference in found.values()), found


@DIVIDES
@pytest.mark.parametrize(
    "names",
    [
        {
            "searched": "OptionError: LBFGS",
            "shrinking": 'OptionError: micro_batch="auto"',
            "hooked": r"OptionError: There is a hook on first\.weight, .* \(register_hook\)",
            "single_number": "OptionError: scale is a single number, a parameter without dimensions",
            "one_memory": r"OptionError: 0\.weight and 1\.parametrizations\.weight\.original1 are two parameters over one memory",
            "penalty": "LossError: The loss goes back through the model itself",
        },
        pytest.param(
            {"one_after_another": "OptionError: .* has its weights divided"}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"other_weights": r"LossError: 0\.weight is called with another"}, marks=pytest.mark.slow
        ),
        pytest.param({"dropped": "RankError: The ranks called other layers"}, marks=pytest.mark.slow),
    ],
)
def test_what_divided_weights_can_not_do_is_refused_with_the_reason(tmp_path, names):
    finished = on_ranks(PROGRAM, tmp_path, "fsdp", "refused", *names)
    for rank in (0, 1):
        for name, reason in names.items():
            assert re.match(reason, (tmp_path / f"{name}-{rank}.txt").read_text()), finished[rank].error[
                -2000:
            ]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.last = nn.Linear(3, 3)


def test_layers_that_share_a_weight_are_divided_together():
    module = Shared()
    assert list(fsdp_blocks(module)) == list(module.layers)
    module.last.weight = module.layers[1].weight
    assert list(fsdp_blocks(module)) == []
