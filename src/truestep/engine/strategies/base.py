# SPDX-License-Identifier: Apache-2.0
"""What a strategy is: how the processes of one training make an update together."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from truestep.engine.example_counting import BatchCounting
from truestep.engine.loss_sums import LossTotals
from truestep.engine.precision import Precision
from truestep.engine.processes.world import World
from truestep.engine.weights import LearnerWeights


class BatchPlacing(NamedTuple):
    """Where a process's part of a batch lies in the whole one.

    Attributes:
        first: the number of its first example, or what waits for the others and returns it.
        num_here: how many it has; None where they can't be counted.
        total: how many there are in all, or what waits for the others and returns it.
        num_calls: how often each process calls the loss.
        lender: what gives an example to a process that has too few for that; all ask it before they begin. None where nobody has.
    """

    first: int | Callable[[], int]
    num_here: int | None
    total: int | Callable[[], int]
    num_calls: int
    lender: "BatchLender | None" = None


class BatchLender(Protocol):
    """Lends examples that count nothing."""

    def example(self, batch: Any, counting: BatchCounting) -> Any:
        """Return one example, of this process's part of the batch; where it is empty, another's."""

    def counting_nothing(self) -> AbstractContextManager[None]:
        """While it is entered, the loss is called with an example that counts nothing."""


class AttemptTakenBackError(Exception):
    """An attempt at an update was computed from what is not so, as all ranks know by now: all compute it anew."""


class BatchDivision(Protocol):
    """How a batch is divided among the processes.

    Attributes:
        shares_batches: whether a batch is a part of a whole one. Such a part may have no example, for which the loss is not called,
            and the mean over it means nothing.
    """

    shares_batches: bool

    def begin(self) -> None:
        """An evaluation of the loss begins."""

    def place(self, count: int | None, num_parts: int = 1, *, may_be_as_given: bool = False) -> BatchPlacing:
        """Say where this process's part of the batch lies.

        Asked before the loss is called, with the number of examples (None: they can't be counted, and the answer's total is not
        used). The total must be the same on all processes: each backward is seeded with one over it. `num_parts` is how often
        this process's examples need the loss to be called, 0 where it has none. `may_be_as_given`: the batch may be the part that
        the loop was given, so that its order says what all have.
        """

    @property
    def may_be_taken_back(self) -> bool:
        """Whether an attempt may end with an `AttemptTakenBackError`, after which the loss draws its numbers again."""

    @property
    def may_shrink(self) -> bool:
        """Whether this process alone may compute its part of the batch again, in smaller parts."""

    def refuse_empty(self) -> None:
        """Raise where a process has no example of a batch whose loss needs all of them together; on all processes alike."""

    def check_whole(self) -> None:
        """Raise unless the loss that was just computed, which is one of the whole batch, can have seen all of it."""


class UpdateHooks(Protocol):
    """What a strategy does in every update of one set of learners, in the order in which an update asks.

    An update is the same code on one process and on many: what differs stands behind these calls.

    Attributes:
        division: how the batch is divided.
        divides_weights: whether a process has a part of the weights, and a loss computes with copies of all of them.
    """

    division: BatchDivision
    divides_weights: bool

    def begin(self) -> None:
        """No parameter has a gradient: an evaluation of the loss begins, or one has failed and what is under way is void."""

    def before_backward(self, values: Tensor, *, is_last: bool | None) -> None:
        """A part's loss has been computed, and nothing yet of its values; its backward is the next to exchange anything.

        `is_last`: gradients may be sent while this backward runs, since no other follows and nothing will be tried again. It is
        None throughout where nobody knows which part is the last (`accumulating`), or where a smaller one may have to be tried.
        """

    def gradients_ready(self, sums: LossTotals) -> None:
        """This process's share is in every `.grad`; on return the gradients are those of the whole batch."""

    def decide(self, sums: LossTotals) -> None:
        """Make `sums` those of the whole batch: what becomes of the update follows from them and from the gradients alone."""

    def joined(self, norm: Tensor, norm_type: float) -> Tensor:
        """Return the norm of all gradients, of which `norm` is that of those which this process has."""

    def explained(self, error: BaseException) -> Exception | None:
        """Return the error to raise for one that a loss or its backward raised; None where it says enough."""


class RankStrategy(Protocol):
    """How the processes of one training share its updates.

    Attributes:
        divides_weights: whether each process has a part of the weights only.
    """

    divides_weights: bool

    def __init__(self, world: World) -> None:
        """Connect these processes."""

    def adopt(self, module: nn.Module, precision: Precision, is_updating: Callable[[], bool]) -> None:
        """A learner is made of this module, which is on its device; `is_updating` says whether an update is under way."""

    def hooks(self, learners: Sequence[LearnerWeights], names: str) -> UpdateHooks:
        """Return what is done in the updates of these learners, asked for once when their plan is made."""

    def close(self) -> None:
        """Take off the parameters whatever was put on them."""
