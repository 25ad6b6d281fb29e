# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays and tensors: conversions that keep every value, or say which they would change."""

from truestep.nn.arrays.converting import from_numpy, to_numpy
from truestep.nn.arrays.rounding import Rounding, rounding

__all__ = ["Rounding", "from_numpy", "rounding", "to_numpy"]
