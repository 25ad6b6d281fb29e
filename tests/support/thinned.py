# SPDX-License-Identifier: Apache-2.0
"""Combinations of parameters, of which a part is tried by `make test` and all by `make torture`."""

import itertools

import pytest


def thinned(*axes, one_in):
    """Return all combinations as parameters, slow but for one in so many; each value is in one that is not."""
    found = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        found.append(pytest.param(*values, marks=[pytest.mark.slow] if sum(places) % one_in else []))
    return found
