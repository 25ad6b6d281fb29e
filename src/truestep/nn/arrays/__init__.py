# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays and tensors: conversions that keep every value, or say which they would change."""

from truestep.nn.arrays.from_numpy import from_numpy
from truestep.nn.arrays.rounding import Rounding, rounding
from truestep.nn.arrays.to_numpy import to_numpy

__all__ = ["Rounding", "from_numpy", "rounding", "to_numpy"]
