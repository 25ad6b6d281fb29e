# SPDX-License-Identifier: Apache-2.0
"""One process: the part it has is the whole batch, and nothing is sent."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from truestep.engine.batches import Split
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import Hooks, Placing
from truestep.engine.sums import Sums
from truestep.engine.weights import Weights


class Single:
    """A strategy and its own hooks."""

    shares_batches = False

    def __init__(self, world: World | None = None) -> None:
        """Take what every strategy takes, and use it for nothing."""

    def adopt(self, module: nn.Module, is_updating: Callable[[], bool]) -> None:
        """Do nothing."""

    def hooks(self, learners: Sequence[Weights], names: str) -> Hooks:
        """Return itself: it knows nothing of the learners."""
        return self

    def close(self) -> None:
        """Do nothing."""

    def begin(self) -> None:
        """Do nothing."""

    @property
    def may_shrink(self) -> bool:
        """Nobody waits for it."""
        return True

    def place(self, count: int | None, num_parts: int = 1) -> Placing:
        """All examples are here."""
        return Placing(0, count, count or 0, num_parts)

    def example(self, batch: Any, split: Split | None) -> Any:
        """Return the batch: nobody asks, since there are as many calls as parts."""
        return batch

    def counting_nothing(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def refuse_empty(self) -> None:
        """It has examples: an empty batch is refused."""

    def check_whole(self) -> None:
        """It has: all of the batch is here."""

    def before_backward(self, sums: Sums, *, is_last: bool) -> None:
        """Do nothing."""

    def gradients_ready(self, sums: Sums) -> None:
        """Do nothing."""

    def decide(self, sums: Sums) -> None:
        """Do nothing."""
