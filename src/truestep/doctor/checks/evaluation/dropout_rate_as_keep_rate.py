# SPDX-License-Identifier: Apache-2.0
"""A drop rate that looks like a keep rate."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


class DropoutRateAsKeepRate(SourceCheck):
    """nn.Dropout gets 0.7 or more.

    Why: p is the share that is dropped; Dropout(0.8) keeps 20 %, where older notes mean "keep 80 %".

    Bad:
        d = nn.Dropout(0.8)  # here

    Good:
        d = nn.Dropout(0.2)

    Fix: nn.Dropout(1 - keep); if so much is to be dropped, say so with a comment `# truestep:
    ignore[EVAL007]`.
    """

    code = "EVAL007"
    words = ("Dropout",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Ask about a literal rate from 0.7 on, below 1."""
        for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"):
            for call in module.calls(f"torch.nn.{name}"):
                rate = literal(module, argument(call, 0, "p"))
                if isinstance(rate, float) and 0.7 <= rate < 1:
                    yield At(call, f"Drops {rate:.0%} and keeps {1 - rate:.0%}: is that meant?", QUESTION)
