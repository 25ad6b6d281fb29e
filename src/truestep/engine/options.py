# SPDX-License-Identifier: Apache-2.0
"""The options of a learner."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from truestep.core.errors import OptionError, check_number
from truestep.core.schedule_units import ScheduleFactory
from truestep.core.text_formatting import a_type
from truestep.engine.buffer_rules import BufferRule
from truestep.engine.clipping import Clip
from truestep.engine.moving_averages import EMA
from truestep.engine.object_description import describe_value
from truestep.engine.precision import BUILT_IN, Precision
from truestep.engine.precision.loss_scale import LossScale
from truestep.engine.splitting import MicroBatch

Modules = nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module]


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """How a learner is trained; see `Run.learner` for each."""

    name: str
    precision: str | None = None
    """None: float64 where the weights are so, else float32."""
    clip: Clip | Callable[..., None] | None = None
    schedule: ScheduleFactory | None = None
    ema: EMA | None = None
    loss_scale: LossScale | float | str | None = None
    micro_batch: MicroBatch = None
    starts_at: int = 0
    compile: bool = False
    buffers: Mapping[str, BufferRule] | None = None

    def __post_init__(self) -> None:
        check_number("run.learner", "starts_at", self.starts_at, example=1000, least=0)
        if self.ema is not None and not isinstance(self.ema, EMA):
            decay = EMA(self.ema).decay if isinstance(self.ema, float) else 0.999
            raise OptionError(
                f"run.learner(ema={self.ema!r}) was given {a_type(self.ema)}, and an average of the weights is more than "
                f"one number: when it starts, what it averages. Write ema=ts.EMA({decay})."
            )
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise OptionError(
                f"run.learner(name={self.name!r}): a learner's name stands in metrics, in messages and in names of files, so it "
                "is text without control codes, line ends and lone surrogates. Write letters and digits: name='generator'."
            )

    def as_given(self, clip: Clip | None, precision: Precision) -> dict[str, Any]:
        """Return what decides how a learner is trained, as text: classes of the user's own by their names and fields, too."""
        return {
            "clip": describe_value(clip),
            "ema": describe_value(self.ema),
            "loss_scale": describe_value(self.loss_scale),
            "micro_batch": describe_value(self.micro_batch),
            "precision": precision.name if precision in BUILT_IN else describe_value(precision),
            "starts_at": self.starts_at,
            "compile": self.compile,
            "buffers": describe_value(dict(self.buffers) if self.buffers else None),
        }
