# SPDX-License-Identifier: Apache-2.0
"""Orders and augmentation of 0.1.0 stay the same bits."""

import json
from pathlib import Path

import pytest
from support.golden_draws import found

GOLDEN = json.loads((Path(__file__).parent / "golden" / "0.1.0.json").read_text("utf-8"))


@pytest.mark.sliced(2)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"check": False}], ids=str)
def test_orders_and_draws_are_those_of_0_1_0(options):
    assert found(**options) == GOLDEN
