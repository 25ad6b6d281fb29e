# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules on top of torch's own: the usual ones by name, and what steps any of them."""

from truestep.engine.schedules.shapes import (
    one_cycle,
    warmup_constant,
    warmup_cosine,
    warmup_inverse_sqrt,
    warmup_linear,
)
from truestep.engine.schedules.stepping import Plateau, ScheduleFactory, Schedules, plateau

__all__ = [
    "Plateau",
    "ScheduleFactory",
    "Schedules",
    "one_cycle",
    "plateau",
    "warmup_constant",
    "warmup_cosine",
    "warmup_inverse_sqrt",
    "warmup_linear",
]
