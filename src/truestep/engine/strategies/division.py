# SPDX-License-Identifier: Apache-2.0
"""A batch of which each process has a part: who has which examples, and how often all call the loss."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import BatchError, LossError
from truestep.core.user_frames import line_of_user_code
from truestep.engine.batches import Batch, map_batch_tensors
from truestep.engine.data.rank_data_check import refuse_other_rows
from truestep.engine.example_counting import BatchCounting
from truestep.engine.processes.meeting import WorldMeeting
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message
from truestep.engine.processes.rank_liveness import WITH_STATISTICS
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import BatchPlacing
from truestep.engine.strategies.buffers import RankBuffers
from truestep.engine.strategies.first_message import RankMessageHead
from truestep.engine.strategies.rank_consistency_check import RankSwitches
from truestep.engine.strategies.updates_without_meeting import UnmetUpdates
from truestep.engine.weights import LearnerWeights


def shared_example(batch: Batch, counting: BatchCounting, counts: Sequence[int], world: World) -> Batch:
    """Return one example of this process's part of the batch; where it has none, of the first process that has some.

    Every process calls it. Tensors alone travel: what is around them is that of the empty batch.
    """
    source = next(rank for rank, count in enumerate(counts) if count)
    own = counting.first(batch) if counts[world.rank] else None
    sent = pack_rank_message(_collect_tensors(own)) if world.rank == source else b""
    found = world.share_bytes(sent, "an example for ranks without any")
    return _replace_tensors(batch, unpack_rank_message(found[source])) if own is None else own


def _collect_tensors(batch: Batch) -> list[Tensor]:
    found: list[Tensor] = []

    def append_tensor(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_batch_tensors(append_tensor, batch)
    return found


def _replace_tensors(batch: Batch, tensors: list[Tensor]) -> Batch:
    """Return a batch built like this one, with these tensors."""
    if len(_collect_tensors(batch)) != len(tensors):
        raise BatchError(
            "This rank has no example of the batch, whose loss all ranks must call equally often, and it can't be lent one: the "
            "batch is a list of examples, or an example's parts are not all tensors. Leave short batches out: "
            "run.data(..., drop_last=True)."
        )
    left = iter(tensors)
    return map_batch_tensors(lambda tensor: next(left).to(tensor.device), batch)


_NOT_GIVEN = -1


class SharedBatch:
    """The parts of one set of learners' batches; `counts_calls` says whether all must call the loss equally often now.

    Where the ranks meet for it, they find out whether they train the same, too; where they do not (`updates_without_meeting.py`),
    when the gradients have come. `may_ride` says whether what a meeting would say may stand at the head of the gradients' first
    message.
    """

    shares_batches = True

    def __init__(
        self,
        world: World,
        what: str,
        learners: Sequence[LearnerWeights],
        counts_calls: Callable[[], bool],
        may_ride: Callable[[], bool] | None = None,
    ) -> None:
        self._world, self._what = world, what
        self.buffers = RankBuffers(world, what, learners)
        self._is_placed = False  # the batch under way: a block of losses may be of none
        self._switches = RankSwitches(learners, world)
        self._have_met = False  # for the batch under way
        self._asks_for_calls = counts_calls
        self._meeting: WorldMeeting | None = None
        self._counts: list[int] = []
        self._calls: list[int] = []  # of the loss, by each rank with its own examples
        self._counts_calls = False
        self._num_gathered = 0
        self._unmet = UnmetUpdates(world, what, may_ride or (lambda: False))
        self._called = what if may_ride is None else what + WITH_STATISTICS

    def begin(self) -> None:
        """Learn from here on whether the loss exchanges tensors, and what it adds to sums."""
        self._num_gathered = self._world.num_gathered
        self.buffers.begin()

    @property
    def loss_exchanges_tensors(self) -> bool:
        """Whether the loss has exchanged tensors, which its backward does, too."""
        return self._world.num_gathered != self._num_gathered

    def place(self, count: int | None, num_parts: int = 1, *, may_be_as_given: bool = False) -> BatchPlacing:
        """Count the examples of all ranks; those of lower ranks come before this one's."""
        if count is None:
            raise BatchError(
                "The examples of this batch can't be counted, so it is not known which of the whole batch are on this rank. Pass "
                "split=ts.Split(count, take), or split= the dimension that they lie along."
            )
        self._counts_calls = self._asks_for_calls()
        self._have_met = self._is_placed = True
        switches = self._switches.sum()
        self._unmet.begin(count, num_parts, switches, as_given=may_be_as_given)
        expected = self._unmet.num_expected
        total = self._total_examples if expected is None else max(expected, 1)  # of none nothing is divided
        if self._unmet.is_one:
            return BatchPlacing(self._unmet.first, count, total, num_parts)
        called = self._called if self._counts_calls else ""
        given = _NOT_GIVEN if self._world.num_given is None else self._world.num_given
        self._meeting = self._world.later(
            self._what, count, num_parts, self._counts_calls, switches, given, called=called
        )
        lender = None
        if self._counts_calls:  # else nothing has to be known before the loss is called
            self._learn_counts()
            num_parts, lender = max(self._calls), self if len(set(self._calls)) > 1 else None
        return BatchPlacing(self._first_row, count, total, num_parts, lender)

    def _learn_counts(self) -> None:
        """Take in what the others have, once they have said it."""
        if self._meeting is None:
            return
        meeting, self._meeting = self._meeting, None
        found = meeting.wait()
        refuse_other_rows(self._what, [int(each[4]) for each in found if each[4] != _NOT_GIVEN])
        self._take_counts([int(each[0]) for each in found], [int(each[1]) for each in found])
        takes = [bool(each[2]) for each in found]
        if any(takes) != all(takes):
            raise BatchError(
                f"In {self._what}, batch normalisation takes statistics of the batch on rank {takes.index(True)} and not on rank "
                f"{takes.index(False)}, so one would wait for the other. Call train() or eval() on all ranks alike."
            )
        self._refuse_differing_sums([each[3] for each in found])

    def _take_counts(self, counts: list[int], calls: list[int]) -> None:
        self._counts, self._calls = counts, calls
        if not sum(counts):
            line = line_of_user_code()
            place = f", {line}" if line else ""
            raise BatchError(
                f"The batch is empty on every rank ({self._what}{place}): a mean over no examples is not defined. Leave the update "
                "out on all ranks where none has an example left."
            )

    def head(self) -> RankMessageHead | None:
        """Return what this rank says at the head of the gradients' first message; None where there is no such."""
        return self._unmet.head()

    def agree(self, heads: Sequence[RankMessageHead]) -> bool:
        """Whether all ranks may go on from what they have said; where not, `receive_heads` says why."""
        return self._unmet.agree(heads)

    def receive_heads(self, heads: Sequence[RankMessageHead]) -> None:
        """Take in what all ranks have said; raises what a meeting would have raised, where they have not met."""
        self._unmet.refuse_other_updates(heads)
        if self._unmet.is_one:
            self._take_counts([each.num_examples for each in heads], [each.calls for each in heads])
            self._refuse_differing_sums([each.switches for each in heads])
            self._unmet.check()

    def _refuse_differing_sums(self, sums: Sequence[float]) -> None:
        if len(set(sums)) > 1:
            raise self._switches.difference(self._world, self._what)

    def refuse_other_switches(self) -> None:
        """Raise where the ranks don't train the same, unless they have met for this batch: where nobody counts, they do not."""
        if not self._have_met:
            self._have_met = True
            met = self._world.meet(f"{self._what}, which counts nothing", self._switches.sum())
            self._refuse_differing_sums([number for (number,) in met])

    def _first_row(self) -> int:
        self._unmet.note_draw()
        self._learn_counts()
        return sum(self._counts[: self._world.rank])

    def _total_examples(self) -> int:
        self._learn_counts()
        return sum(self._counts)

    @property
    def may_be_taken_back(self) -> bool:
        """Where the ranks do not meet beforehand, and the loss draws."""
        return self._unmet.may_be_taken_back

    @property
    def may_shrink(self) -> bool:
        """Not where the loss exchanges tensors: the others would wait for calls that never come."""
        return not self._counts_calls and not self.loss_exchanges_tensors

    def example(self, batch: Any, counting: BatchCounting) -> Any:
        """Return one example, lent by another rank where this one has none."""
        if 0 in self._counts:
            return shared_example(batch, counting, self._counts, self._world)
        return counting.first(batch)

    @contextmanager
    def counting_nothing(self) -> Iterator[None]:
        """Tell the batch normalisations; what the loss writes to buffers that count examples is taken back."""
        self._world.counts_nothing, kept = True, self.buffers.kept()
        try:
            yield
        finally:
            self._world.counts_nothing = False
            with torch.no_grad():
                for buffer, copy in kept:
                    buffer.copy_(copy)

    def refuse_empty(self) -> None:
        """Refuse a loss of the whole batch where a rank has nothing of it."""
        self._learn_counts()
        if 0 in self._counts:
            without = self._counts.index(0)
            raise BatchError(
                f"decomposable=False, and the {sum(self._counts)} examples of this batch leave rank {without} without any, so it "
                "could not take part in ts.gather. Leave short batches out: run.data(..., drop_last=True)."
            )

    def check_whole(self) -> None:
        """Refuse a loss of the whole batch that has not seen it."""
        if not self.loss_exchanges_tensors:
            raise LossError(
                "decomposable=False, and the loss has seen only this process's part of the batch: it did not call ts.gather, which "
                "returns the rows of all: others, first = ts.gather(vectors, with_first=True)."
            )

    def buffer_comparison_numbers(self) -> list[Any]:
        """Return what tells all ranks whether their buffers are alike, to be summed over them."""
        is_alone = self._is_placed and self._unmet.is_one  # what the others have comes with what is sent now
        enough = self._unmet.has_calls if is_alone else self._ranks_with_enough_calls()[self._world.rank]
        return self.buffers.numbers(is_enough=enough)

    @property
    def num_examples(self) -> int | None:
        """How many examples all ranks have; None where nobody has counted."""
        self._learn_counts()
        return sum(self._counts) if self._is_placed else None

    def synchronize_buffers(self, found: Tensor | None) -> None:
        """Make the buffers the same on all ranks, or refuse.

        A rank without examples, or with too few, has others: they become those of the first that had enough.
        """
        self._have_met = self._unmet.is_one = False
        rank, enough = self._world.rank, self._ranks_with_enough_calls()
        is_counted = self._is_placed and sum(self._counts) > 0
        share = self._counts[rank] / sum(self._counts) if is_counted else 1 / self._world.size
        self._is_placed = False
        self.buffers.settle(found, share)
        if not all(enough):
            self.buffers.broadcast_buffers(enough.index(True), takes=not enough[rank])

    def _ranks_with_enough_calls(self) -> list[bool]:
        """Return, for each rank, whether its loss was called often enough with examples of its own."""
        self._learn_counts()
        if not self._is_placed:
            return [True] * self._world.size
        most = max(self._calls, default=0)
        return [calls == most if self._counts_calls else calls > 0 for calls in self._calls]
