# SPDX-License-Identifier: Apache-2.0
"""Weights, computation and optimizer in float32."""

from truestep.engine.precision.base import Precision

FLOAT32 = Precision(name="float32", meaning="Weights, computation and optimizer in float32.")
