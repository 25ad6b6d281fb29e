# SPDX-License-Identifier: Apache-2.0
"""What exact statistics changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.core.results import Result, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class LayerChange:
    """One layer: values per channel; how far its old statistics were off in its worst channel.

    `mean_shift` is in standard deviations of the exact statistics, `variance_ratio` is the old variance over the exact one.
    """

    name: str
    num_values: int
    mean_shift: float
    variance_ratio: float


@dataclass(frozen=True, kw_only=True)
class ExactBatchNorm(Result):
    """The layers whose statistics were set, in the order of the forward; those that it never called, left as they were."""

    layers: tuple[LayerChange, ...]
    left: tuple[str, ...]

    def __rich__(self) -> "RenderableType":
        rows = [
            (
                each.name or "(the model)",
                f"{each.num_values:,}",
                f"{each.mean_shift:.3g}",
                f"{each.variance_ratio:.4g}",
            )
            for each in self.layers
        ]
        return table_of(
            f"layers with exact statistics: {len(self.layers)}",
            ("layer", "values per channel", "mean was off by (std)", "old variance / exact"),
            [*rows, *((name, "never called") for name in self.left)],
        )
