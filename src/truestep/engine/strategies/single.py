# SPDX-License-Identifier: Apache-2.0
"""One process: the part it has is the whole batch, and nothing is sent."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from truestep.engine.loss_sums import LossTotals
from truestep.engine.precision import Precision
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import BatchDivision, BatchPlacing, UpdateHooks
from truestep.engine.weights import LearnerWeights


class WholeBatch:
    """Every batch is here."""

    shares_batches = False
    may_be_taken_back = False  # what is known is so

    def __init__(self) -> None:
        self._latest = BatchPlacing(0, None, 0, 1)

    def begin(self) -> None:
        """Do nothing."""

    def place(self, count: int | None, num_parts: int = 1, *, may_be_as_given: bool = False) -> BatchPlacing:
        """All examples are here; most batches are as large as the one before."""
        if self._latest.num_here != count or self._latest.num_calls != num_parts:
            self._latest = BatchPlacing(0, count, count or 0, num_parts)
        return self._latest

    @property
    def may_shrink(self) -> bool:
        """Nobody waits for it."""
        return True

    def refuse_empty(self) -> None:
        """It has examples: an empty batch is refused."""

    def check_whole(self) -> None:
        """It has: all of the batch is here."""


class SingleProcess:
    """A strategy and its own hooks."""

    divides_weights = False

    def __init__(self, world: World | None = None) -> None:
        """Take what every strategy takes, and use it for nothing."""
        self.division: BatchDivision = WholeBatch()

    def adopt(self, module: nn.Module, precision: Precision, is_updating: Callable[[], bool]) -> None:
        """Do nothing."""

    def hooks(self, learners: Sequence[LearnerWeights], names: str) -> UpdateHooks:
        """Return itself: it knows nothing of the learners."""
        return self

    def close(self) -> None:
        """Do nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def before_backward(self, values: Tensor, *, is_last: bool | None) -> None:
        """Do nothing."""

    def gradients_ready(self, sums: LossTotals) -> None:
        """Do nothing."""

    def decide(self, sums: LossTotals) -> None:
        """Do nothing."""

    def joined(self, norm: Tensor, norm_type: float) -> Tensor:
        """All gradients are here."""
        return norm

    def explained(self, error: BaseException) -> Exception | None:
        """It says enough."""
        return None
