# SPDX-License-Identifier: Apache-2.0
"""One table says what becomes of an update; the host and the device follow the same one."""

import itertools
import math

import pytest
import torch
from torch import nn

from truestep.engine.loss_results import LossOutput
from truestep.engine.loss_sums import LossTotals
from truestep.engine.policy import (
    MAX_OVERFLOWS_IN_A_ROW,
    NON_FINITE,
    VERDICTS,
    GradientPolicy,
    UpdateEvidence,
    UpdateVerdict,
    make_update_evidence,
)
from truestep.engine.precision.loss_scale import LossScale, Scaler


def test_the_table_is_whole():
    assert VERDICTS.keys() == set(UpdateEvidence)
    assert all(row.keys() == set(NON_FINITE) for row in VERDICTS.values())


def test_only_raise_raises_and_only_keep_applies_what_is_not_finite():
    verdicts = {
        (evidence, policy): verdict for evidence, row in VERDICTS.items() for policy, verdict in row.items()
    }
    assert {policy for (_, policy), verdict in verdicts.items() if verdict is UpdateVerdict.RAISE} == {
        "raise"
    }
    applied = {key for key, verdict in verdicts.items() if verdict is UpdateVerdict.APPLY}
    assert applied == {
        (UpdateEvidence.NOT_FINITE, "keep"),
        *((UpdateEvidence.FINITE, policy) for policy in NON_FINITE),
    }


@pytest.mark.parametrize(
    ("empty", "overflow", "is_finite", "in_a_row", "expected"),
    [
        (False, False, True, 0, UpdateEvidence.FINITE),
        (True, False, False, 0, UpdateEvidence.EMPTY),
        (True, True, False, 0, UpdateEvidence.EMPTY),
        (False, True, True, MAX_OVERFLOWS_IN_A_ROW - 2, UpdateEvidence.OVERFLOW),
        (False, True, True, MAX_OVERFLOWS_IN_A_ROW - 1, UpdateEvidence.LASTING_OVERFLOW),
        (False, True, False, 0, UpdateEvidence.SPOILT),
        (False, False, False, 0, UpdateEvidence.NOT_FINITE),
    ],
)
def test_what_the_flags_say(empty, overflow, is_finite, in_a_row, expected):
    found = make_update_evidence(
        empty=empty, overflow=overflow, is_finite=is_finite, overflows_in_a_row=in_a_row
    )
    assert expected is found


@pytest.mark.parametrize("nonfinite", NON_FINITE)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_device_decides_as_the_host_does(nonfinite, scaled):
    device = torch.device("cpu")
    scaler = Scaler(LossScale(), device) if scaled else None
    policy = GradientPolicy.of(nonfinite, None, scaler, [nn.Parameter(torch.zeros(1))])
    for weight, loss, norm, overflow in itertools.product(
        (1.0, 0.0), (1.0, math.nan), (1.0, math.inf), (0.0, 1.0) if scaled else (0.0,)
    ):
        sums = LossTotals()
        sums.set_expected_examples(2)
        sums.add(LossOutput(torch.full((2,), loss), torch.full((2,), weight), {}, is_scalar=False))
        if scaler is not None:
            scaler.found_inf = torch.tensor(overflow)
        finite = math.isfinite(loss) and weight > 0 and (bool(overflow) or math.isfinite(norm))
        evidence = make_update_evidence(
            empty=weight == 0, overflow=bool(overflow), is_finite=finite, overflows_in_a_row=0
        )
        flag = policy.skip_flag_on_device(sums, torch.tensor(norm))
        assert bool(flag) == (policy.judge(evidence) is not UpdateVerdict.APPLY), (
            weight,
            loss,
            norm,
            overflow,
        )


@pytest.mark.parametrize("nonfinite", NON_FINITE)
def test_nothing_is_read_where_it_would_change_nothing(nonfinite):
    policy = GradientPolicy.of(nonfinite, None, None, [nn.Parameter(torch.zeros(1))])
    assert policy.looks == (nonfinite != "keep")
