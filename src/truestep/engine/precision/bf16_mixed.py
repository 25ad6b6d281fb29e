# SPDX-License-Identifier: Apache-2.0
"""Weights in float32; matrix products in bfloat16, the rest where autocast keeps float32."""

import torch

from truestep.engine.precision.base import Precision

BF16_MIXED = Precision(
    name="bf16-mixed",
    meaning="Weights in float32; matrix products in bfloat16, the rest where autocast keeps float32.",
    autocast=torch.bfloat16,
)
