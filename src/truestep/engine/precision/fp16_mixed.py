# SPDX-License-Identifier: Apache-2.0
"""Weights in float32; matrix products in float16 with a loss scale."""

import torch

from truestep.engine.precision.base import Precision

FP16_MIXED = Precision(
    name="fp16-mixed",
    meaning="Weights in float32; matrix products in float16 with a loss scale.",
    autocast=torch.float16,
    loss_scaling=True,
)
