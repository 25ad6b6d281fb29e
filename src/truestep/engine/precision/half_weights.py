# SPDX-License-Identifier: Apache-2.0
"""Weights in float16, normalisation layers in float32, optimizer on float32 master weights, with a loss scale."""

import torch

from truestep.engine.precision.base import Precision

HALF_WEIGHTS = Precision(
    name="O2",
    meaning="Weights in float16, normalisation layers in float32, optimizer on float32 master weights, with a loss scale.",
    weights=torch.float16,
    float32_norms=True,
    master_weights=True,
    loss_scaling=True,
)
