# SPDX-License-Identifier: Apache-2.0
"""Split over ranks, on real processes: the weights, averages and logged values of one process, whatever the number of ranks."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.ranks import on_ranks

PROGRAM = Path(__file__).with_name("over_ranks.py")


def program():
    spec = importlib.util.spec_from_file_location("over_ranks", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(alone, together):
    """Return the largest difference of each kind of tensor, relative to the largest number in it."""
    return {
        kind: max(
            float((one.double() - other.double()).abs().max() / one.double().abs().max().clamp(min=1e-300))
            for one, other in zip(alone[kind], together[kind], strict=True)
        )
        for kind in alone
    }


def check(tmp_path, size, strategy="auto", names=()):
    finished = on_ranks(PROGRAM, tmp_path, strategy, *names, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error[-3000:]
    module = program()
    (tmp_path / "alone").mkdir()
    for name in names or module.CASES:
        if name == "unequal_parts" and size != 2:
            continue
        together = torch.load(tmp_path / f"{name}.pt")
        found = differences(module.trained(name, tmp_path / "alone"), together)
        assert all(difference < 1e-11 for difference in found.values()), (name, found)


def test_two_ranks_train_as_one_process_does(tmp_path):
    check(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_more_ranks_train_as_one_process_does(tmp_path, size):
    check(tmp_path, size)
