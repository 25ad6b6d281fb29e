# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES is read as CUDA reads it."""

import pytest

from truestep.machine.gpus.pick import parse_visible_devices, visible_uuids
from truestep.machine.gpus.records import Gpu, MigInstance

CARDS = [
    Gpu(index=0, uuid="GPU-aa11"),
    Gpu(index=1, uuid="GPU-aa22"),
    Gpu(index=2, uuid="GPU-bb33", mig_instances=(MigInstance(uuid="MIG-cc"),)),
]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("0,2", ["0", "2"]),
        (" 1 , 0 ", ["1", "0"]),
        ("", []),
        ("-1", []),
        ("0,-1,2", ["0"]),
        ("1gpu2", ["1"]),
        ("0,none,1", ["0"]),
        ("1,1", []),
        ("GPU-aa,MIG-x", ["GPU-aa", "MIG-x"]),
    ],
)
def test_the_entries_that_count(variable, expected):
    assert expected == parse_visible_devices(variable)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, None),
        ("", set()),
        ("1", {"GPU-aa22"}),
        ("2,0", {"GPU-bb33", "GPU-aa11"}),
        ("7", set()),
        ("0,7,1", {"GPU-aa11"}),
        ("GPU-bb", {"GPU-bb33"}),
        ("GPU-aa", set()),
        ("MIG-cc", {"MIG-cc"}),
    ],
)
def test_what_the_variable_admits(variable, expected):
    assert expected == visible_uuids(variable, CARDS)
