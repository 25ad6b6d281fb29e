# SPDX-License-Identifier: Apache-2.0
"""What was initialised, how, and what was left as it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truestep.core.results import Result, table_of

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
        written = [
            (
                *(each.name, "×".join(map(str, each.shape)), each.rule, each.activation or ""),
                *("" if each.gain is None else f"{each.gain:.4g}", f"{each.root_mean_square:.3g}"),
            )
            for each in self.tensors
        ]
        tied = [(name, "", f"is {other}") for name, other in self.tied.items()]
        left = [(name, "", f"left: {reason}") for name, reason in self.left.items()]
        return table_of(
            f"tensors initialised: {len(self.tensors)}, left: {len(self.left)}",
            ("tensor", "shape", "rule", "activation before it", "gain", "root mean square"),
            [*written, *tied, *left],
        )
