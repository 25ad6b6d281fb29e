# SPDX-License-Identifier: Apache-2.0
"""Numbers of an output: which count as figures, and when two are the same."""

import pytest

from truestep.doctor.experiments.printed_figures import printed_figures


def values(output):
    return [each.value for each in printed_figures(output)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("epoch 3 loss 0.25 accuracy: 71.5%", [0.25, 71.5]),
        ("a=-1.5e-3, b=2e-2, c=.5", [-0.0015, 0.02, 0.5]),
        ("seen (4, 8) 37/64", []),
        ("\x1b[31m0.5\x1b[0m", [0.5]),
        (" 60%|######    | 3/5 [00:00<00:00, 12.30it/s, loss=0.1]\rdone 0.75", [0.75]),
    ],
)
def test_numbers_with_decimals_count_and_progress_bars_do_not(output, expected):
    assert values(output)[: len(expected)] == expected
    assert expected or not values(output)


@pytest.mark.parametrize(
    ("first", "second", "differs"),
    [("0.70", "0.71", False), ("0.70", "0.72", True), ("0.7001", "0.7030", True)],
)
def test_figures_are_the_same_within_their_last_digit(first, second, differs):
    (one,), (other,) = printed_figures(first), printed_figures(second)
    assert one.differs(other) is differs
