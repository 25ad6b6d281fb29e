# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules on top of torch's own: the usual ones by name, and what steps any of them."""

from truestep.core.schedule_units import (
    Counting,
    Plateau,
    ScheduleFactory,
    per_epoch,
    per_update,
    schedule_ends_after,
)
from truestep.engine.schedules.shapes import (
    one_cycle,
    warmup_constant,
    warmup_cosine,
    warmup_inverse_sqrt,
    warmup_linear,
)
from truestep.engine.schedules.stepping import LearnerSchedules, plateau

__all__ = [
    "Counting",
    "LearnerSchedules",
    "Plateau",
    "ScheduleFactory",
    "one_cycle",
    "per_epoch",
    "per_update",
    "plateau",
    "schedule_ends_after",
    "warmup_constant",
    "warmup_cosine",
    "warmup_inverse_sqrt",
    "warmup_linear",
]
