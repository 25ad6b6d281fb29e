# SPDX-License-Identifier: Apache-2.0
"""Weights, computation and optimizer state in float16 with a loss scale: least memory, coarse updates."""

import torch

from truestep.engine.precision.base import Precision

FP16 = Precision(
    name="fp16",
    meaning="Weights, computation and optimizer state in float16 with a loss scale: least memory, coarse updates.",
    weights=torch.float16,
    loss_scaling=True,
)
