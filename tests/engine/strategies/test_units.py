# SPDX-License-Identifier: Apache-2.0
"""What a unit of divided weights holds is looked through once per change, not in each call."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from truestep.engine.strategies import fsdp_units
from truestep.engine.strategies.fsdp_units import UnitContents


def replaced_weight(unit):
    unit[0].weight = nn.Parameter(torch.ones(2, 2))


def replaced_part(unit):
    unit[1] = nn.Linear(2, 2)


def weight_of_a_replaced_part(unit):
    unit[1].weight = nn.Parameter(torch.ones(2, 2))


def another_part(unit):
    unit.append(nn.Linear(2, 2))


def no_bias(unit):
    unit[0].bias = None


CHANGES = [replaced_weight, replaced_part, weight_of_a_replaced_part, another_part, no_bias]


def test_what_a_unit_holds_is_known_until_it_changes():
    unit = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    holdings = UnitContents(unit)
    assert not holdings.are_unchanged()
    for change in CHANGES:
        holdings.note()
        assert holdings.are_unchanged()
        with torch.no_grad():
            unit[0].weight.add_(1)  # other values, in the same tensor
        assert holdings.are_unchanged()
        change(unit)
        assert not holdings.are_unchanged(), change


def test_weights_of_ones_own_for_one_call_are_seen_in_that_call_alone():
    unit, seen = nn.Linear(2, 2), []
    holdings = UnitContents(unit)
    holdings.note()
    unit.register_forward_pre_hook(lambda *_: seen.append(holdings.are_unchanged()))
    functional_call(unit, {"weight": torch.ones(2, 2)}, torch.ones(1, 2))
    unit(torch.ones(1, 2))
    assert seen == [False, True]


def test_a_unit_is_looked_through_once_and_again_when_it_was_refused(monkeypatch):
    looked = []
    monkeypatch.setattr(
        fsdp_units, "is_divided_over_ranks", lambda parameter: looked.append(parameter) or True
    )
    unit = nn.Linear(2, 2)
    calls = fsdp_units.FsdpUnitCalls(unit, None)
    for _ in range(3):
        calls._refuse_other_weights(unit)
    assert len(looked) == 2
    unit.weight = nn.Parameter(torch.ones(2, 2))
    monkeypatch.setattr(fsdp_units, "is_divided_over_ranks", lambda parameter: parameter is unit.bias)
    for _ in range(2):
        with pytest.raises(fsdp_units.LossError, match="weight is called with another tensor"):
            calls._refuse_other_weights(unit)
