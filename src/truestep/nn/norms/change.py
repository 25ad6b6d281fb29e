# SPDX-License-Identifier: Apache-2.0
"""What adding or removing a norm did to a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from truestep.core.results import Result, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class NormChange(Result):
    """The tensors that were normalised, or are plain again; those that were so before; those left out, and why.

    `replaced` maps each parameter that is no longer part of the model to those that took its place. An optimizer that
    was made before still holds the old ones and would never train the new ones: make the optimizer afterwards.
    """

    norm: str  # "weight norm" or "spectral norm"
    action: str  # "added" or "removed"
    changed: tuple[str, ...]
    already: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[nn.Parameter, tuple[nn.Parameter, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def to_dict(self) -> dict[str, Any]:
        """Return names and reasons as JSON values; of the replaced parameters their number."""
        return {**super().to_dict(), "num_replaced_parameters": len(self.replaced)}

    def __rich__(self) -> "RenderableType":
        return table_of(
            f"{self.norm} {self.action}: {len(self.changed)}",
            ("tensor", "what became of it"),
            [
                *((name, self.action) for name in self.changed),
                *((name, "had it already") for name in self.already),
                *((name, f"left: {reason}") for name, reason in self.left.items()),
            ],
        )
