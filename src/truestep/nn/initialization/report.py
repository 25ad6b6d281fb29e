# SPDX-License-Identifier: Apache-2.0
"""What was initialised, how, and what was left as it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truestep.core.results import Result

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class InitializedTensor:
    """One tensor: its rule, the activation before its layer with the gain that was used, and its size now."""

    name: str
    shape: tuple[int, ...]
    rule: str
    activation: str | None
    gain: float | None
    root_mean_square: float


@dataclass(frozen=True, kw_only=True)
class Initialization(Result):
    """The tensors that were initialised; those that are one with another (tied); those left, and why."""

    tensors: tuple[InitializedTensor, ...]
    tied: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(
            title=f"tensors initialised: {len(self.tensors)}, left: {len(self.left)}", title_justify="left"
        )
        for column in ("tensor", "shape", "rule", "activation before it", "gain", "root mean square"):
            table.add_column(column)
        for each in self.tensors:
            gain = "" if each.gain is None else f"{each.gain:.4g}"
            size = f"{each.root_mean_square:.3g}"
            shape = "×".join(map(str, each.shape))
            table.add_row(each.name, shape, each.rule, each.activation or "", gain, size)
        for name, other in self.tied.items():
            table.add_row(name, "", f"is {other}")
        for name, reason in self.left.items():
            table.add_row(name, "", f"left: {reason}")
        return table
