# SPDX-License-Identifier: Apache-2.0
"""Weights, computation and optimizer state in bfloat16: least memory, coarse updates."""

import torch

from truestep.engine.precision.base import Precision

BF16 = Precision(
    name="bf16",
    meaning="Weights, computation and optimizer state in bfloat16: least memory, coarse updates.",
    weights=torch.bfloat16,
)
