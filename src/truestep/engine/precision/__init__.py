# SPDX-License-Identifier: Apache-2.0
"""Modes of precision, one file each; this table is the closed set of them."""

from truestep.core.errors import OptionError, names_hint
from truestep.engine.precision.base import Precision
from truestep.engine.precision.bf16 import BF16
from truestep.engine.precision.bf16_mixed import BF16_MIXED
from truestep.engine.precision.float32 import FLOAT32
from truestep.engine.precision.float64 import FLOAT64
from truestep.engine.precision.fp16 import FP16
from truestep.engine.precision.fp16_mixed import FP16_MIXED
from truestep.engine.precision.half_weights import HALF_WEIGHTS

MODES: dict[str, Precision] = {
    mode.name: mode for mode in (FLOAT32, FLOAT64, BF16_MIXED, FP16_MIXED, BF16, FP16, HALF_WEIGHTS)
}
BUILT_IN = frozenset(MODES.values())
"""Those whose names say all of them."""

# Words of torch and of other libraries, by what most people mean.
_USUALLY_MEANT = {
    "bf16-mixed": "bfloat16 bf16-amp bf16-autocast bfloat16-mixed mixed-bf16 amp mixed auto",
    "fp16-mixed": "float16 half 16 16-mixed float16-mixed mixed-fp16",
    "float32": "fp32 float 32 32-true full single tf32",
    "float64": "fp64 double 64",
}
# NVIDIA apex's optimisation levels, by what they mean (apex.amp itself is gone).
APEX_LEVELS: dict[str, Precision] = {"O0": FLOAT32, "O1": FP16_MIXED, "O2": HALF_WEIGHTS, "O3": FP16}


def precision_named(name: str) -> Precision:
    """Return the mode called `name` (an apex level is another name of one), or list what there is."""
    known = MODES | APEX_LEVELS
    if name in known:
        return known[name]
    word = str(name).removeprefix("torch.").lower().replace("_", "-")
    meant = next((mode for mode, words in _USUALLY_MEANT.items() if word in words.split()), None)
    if meant is None:
        raise OptionError(f"There is no precision {name!r}. {names_hint(word, known)}")
    half, _, mixed = meant.partition("-")
    besides = f' "{half}" is another mode: it keeps the weights in 16 bits too, where small updates are lost.'
    raise OptionError(
        f"There is no precision {name!r}. Most people mean {meant!r} by it: {known[meant].meaning}{besides if mixed else ''} "
        f"All modes: {', '.join(known)}."
    )


__all__ = ["APEX_LEVELS", "BUILT_IN", "MODES", "Precision", "precision_named"]
