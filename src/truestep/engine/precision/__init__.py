# SPDX-License-Identifier: Apache-2.0
"""Modes of precision, one file each; this table is the closed set of them."""

from truestep.engine.precision.base import Precision
from truestep.engine.precision.bf16 import BF16
from truestep.engine.precision.bf16_mixed import BF16_MIXED
from truestep.engine.precision.float32 import FLOAT32
from truestep.engine.precision.float64 import FLOAT64
from truestep.engine.precision.fp16 import FP16
from truestep.engine.precision.fp16_mixed import FP16_MIXED
from truestep.engine.precision.half_weights import HALF_WEIGHTS
from truestep.errors import OptionError, nearest

MODES: dict[str, Precision] = {
    mode.name: mode for mode in (FLOAT32, FLOAT64, BF16_MIXED, FP16_MIXED, BF16, FP16, HALF_WEIGHTS)
}

# NVIDIA apex's optimisation levels, by what they mean (apex.amp itself is gone).
APEX_LEVELS: dict[str, Precision] = {"O0": FLOAT32, "O1": FP16_MIXED, "O2": HALF_WEIGHTS, "O3": FP16}


def precision_named(name: str) -> Precision:
    """Return the mode called `name` (an apex level is another name of one), or list what there is."""
    known = MODES | APEX_LEVELS
    if name not in known:
        raise OptionError(f"There is no precision {name!r}. {nearest(name, known)}")
    return known[name]


__all__ = ["APEX_LEVELS", "MODES", "Precision", "precision_named"]
