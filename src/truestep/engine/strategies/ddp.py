# SPDX-License-Identifier: Apache-2.0
"""Data parallel: every process has all weights and a part of each batch; gradients are summed while the last backward runs.

No module is wrapped. Hooks on the bare parameters fill flat buckets in a fixed order, so methods, submodules, gradient penalties
and layers that are left out on one rank need nothing. Behind the gradients of the last bucket ride one short vector (`totals.py`),
whether a gradient came twice, and by how many ranks each parameter was used.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from truestep.engine.loss_sums import LossTotals
from truestep.engine.precision import Precision
from truestep.engine.processes.gathering import gather_all_rows
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import BatchDivision
from truestep.engine.strategies.buckets import GradientBuckets
from truestep.engine.strategies.buffers import NUM_BUFFER_NUMBERS, has_buffer_comparison
from truestep.engine.strategies.division import SharedBatch
from truestep.engine.strategies.first_message import FirstMessage
from truestep.engine.strategies.synchronized_batch_norm import (
    Norm,
    any_takes_batch_statistics,
    share_rank_statistics,
    unshare_rank_statistics,
)
from truestep.engine.strategies.totals import RankTotals
from truestep.engine.weights import LearnerWeights


class Ddp:
    """Sums gradients over all processes of a world."""

    divides_weights = False

    def __init__(self, world: World) -> None:
        self.world = world
        self._hooks: dict[tuple[int, ...], DdpHooks] = {}
        self._norms: list[Norm] = []
        self._message = FirstMessage(world.size)

    def adopt(self, module: nn.Module, precision: Precision, is_updating: Callable[[], bool]) -> None:
        """Have its batch normalisations use the examples of all processes."""
        self._message.add(module.parameters())
        self._norms += share_rank_statistics(module, self.world, is_updating)

    def hooks(self, learners: Sequence[LearnerWeights], names: str) -> "DdpHooks":
        """Return what is done in the updates of these learners; asked again for the same parameters, the same."""
        key = tuple(id(parameter) for weights in learners for parameter in weights.parameters)
        # A second set of hooks on the same parameters would send their gradients twice.
        hooks = self._hooks.get(key)
        if hooks is None:
            # of all learners: the loss of one may call another
            hooks = DdpHooks(self.world, learners, names, self._norms, self._message)
            self._hooks[key] = hooks
        return hooks

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for hooks in self._hooks.values():
            hooks.close()
        unshare_rank_statistics(self._norms)


class DdpHooks:
    """The updates of one set of learners."""

    divides_weights = False

    def __init__(
        self,
        world: World,
        learners: Sequence[LearnerWeights],
        name: str,
        norms: Sequence[Norm],
        message: FirstMessage,
    ) -> None:
        self._world, self._what = world, f"an update of {name}"
        self._buckets = GradientBuckets(learners, world, message)
        self._sparse = SparseGradients(learners, world, self._what)
        self._totals = RankTotals(world, learners, self._what)
        self._norms, self._message = norms, message
        self._batch = SharedBatch(
            world, self._what, learners, lambda: any_takes_batch_statistics(norms), self._may_have_heads
        )
        self.division: BatchDivision = self._batch
        self.decide = self._totals.decide

    def close(self) -> None:
        """Take the hooks off the parameters."""
        self._buckets.close()

    def _may_have_heads(self) -> bool:
        # Batch statistics are exchanged in the forward: who takes them is asked beforehand.
        may_have = self._message.has_one_type and self._buckets.may_have_heads
        return may_have and not any_takes_batch_statistics(self._norms)

    def begin(self) -> None:
        """Forget what was under way."""
        self._buckets.disarm()
        self.division.begin()

    def before_backward(self, values: Tensor, *, is_last: bool | None) -> None:
        """Send each bucket as soon as it is full, where no other backward follows and this one exchanges nothing itself."""
        self._batch.refuse_other_switches()
        if is_last and not self._batch.loss_exchanges_tensors:
            self._buckets.begin_last_backward(self._batch.head(), self._batch.agree)

    def gradients_ready(self, sums: LossTotals) -> None:
        """Sum what has not been sent; write the sums into every `.grad`."""
        self._batch.refuse_other_switches()
        compared = self._batch.buffer_comparison_numbers()
        mine, head = self._totals.local_sums_vector(sums, compared), self._batch.head()
        is_foreseen = self._totals.can_skip_reading_sums(
            sums, lambda: self._buckets.has_each_gradient_once() and not has_buffer_comparison(compared)
        )
        self._world.wait_all(self._buckets.send_head(mine, head), self._what)
        if head is not None:
            self._batch.receive_heads(self._buckets.heads())
            sums.num_counted = self._batch.num_examples
        self._world.wait_all(self._buckets.flush(mine), self._what)
        totals, came_twice = self._buckets.riders(len(mine), self._what, all_used=is_foreseen)
        if came_twice:  # on some rank, after its bucket had gone: now all is sent, once
            self._buckets.sends_early = False
            self._buckets.begin_again()
            self._world.wait_all(self._buckets.send_head(mine, head), self._what)
            self._world.wait_all(self._buckets.flush(mine), self._what)
        totals, buffers = totals[:-NUM_BUFFER_NUMBERS], totals[-NUM_BUFFER_NUMBERS:]
        self._totals.take(totals, sums)
        self._buckets.write_back()
        self._sparse.exchange()
        self._batch.synchronize_buffers(None if is_foreseen else buffers)

    def joined(self, norm: Tensor, norm_type: float) -> Tensor:
        """Each process has all gradients."""
        return norm

    def explained(self, error: BaseException) -> Exception | None:
        """It says enough."""
        return None


_UNUSED = -1


class SparseGradients:
    """The sparse gradients of one set of learners."""

    def __init__(self, learners: Sequence[LearnerWeights], world: World, what: str) -> None:
        self._world, self._what = world, what
        self._owners = [(weights, parameter) for weights in learners for parameter in weights.sparse]

    @torch.no_grad()
    def exchange(self) -> None:
        """Make every gradient the sum over all ranks; one that no rank has stays none."""
        for weights, parameter in self._owners:
            if parameter.requires_grad:
                self._sum_over_ranks(weights, parameter)

    def _sum_over_ranks(self, weights: LearnerWeights, parameter: nn.Parameter) -> None:
        gradient = weights.accumulated_gradient(parameter)
        is_dense = gradient is not None and not gradient.is_sparse  # the weight was used elsewhere, too
        rows, values = _gradient_rows(parameter, gradient)
        count = _UNUSED if gradient is None else len(rows)
        found = self._world.meet(f"{self._what} (rows of an embedding)", count, is_dense)
        if all(each[0] == _UNUSED for each in found):
            return
        counts = [max(int(each[0]), 0) for each in found]
        rows, values = (gather_all_rows(each, self._world, counts) for each in (rows, values))
        total = torch.sparse_coo_tensor(
            rows[None], values, parameter.shape, check_invariants=False
        ).coalesce()
        weights.set_gradient(parameter, total.to_dense() if any(each[1] for each in found) else total)


def _gradient_rows(parameter: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the numbers of the rows that a gradient has, and the rows."""
    if gradient is None:
        numbers = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return numbers, parameter.new_empty(0, *parameter.shape[1:])
    if not gradient.is_sparse:
        return torch.arange(len(gradient), device=gradient.device), gradient
    gradient = gradient.coalesce()
    return gradient.indices()[0], gradient.values()
