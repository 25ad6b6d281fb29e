# SPDX-License-Identifier: Apache-2.0
"""What the tests before these have left on the heap is set aside: each look at all objects would go through it."""

import gc

import pytest


@pytest.fixture
def earlier_objects_aside():
    gc.collect()
    gc.freeze()
