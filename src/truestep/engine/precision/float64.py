# SPDX-License-Identifier: Apache-2.0
"""Everything in float64: for references and ill-conditioned problems."""

import torch

from truestep.engine.precision.base import Precision

FLOAT64 = Precision(
    name="float64",
    meaning="Everything in float64: for references and ill-conditioned problems.",
    weights=torch.float64,
)
