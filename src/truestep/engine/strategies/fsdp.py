# SPDX-License-Identifier: Apache-2.0
"""Fully sharded data parallel: each process has a part of every weight, gradient and optimizer state, and a part of each batch.

torch's `fully_shard` (FSDP2) gathers the weights of a unit before it computes and sums its gradients into parts while the backward
runs. It needs every process to call the same units in the same order: so all call the loss equally often, with an example that
counts nothing where one has too few, and they meet before each unit is gathered, and before the backward.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from truestep.core.device_specific import send_to_device
from truestep.core.errors import OptionError
from truestep.engine.gradient_hooks import refuse_gradient_hooks
from truestep.engine.loss_sums import LossTotals
from truestep.engine.precision import Precision
from truestep.engine.processes.shard_pickling import ask_others_when_pickled
from truestep.engine.processes.shards import divide_loaded_weights, is_divided_over_ranks
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import BatchDivision
from truestep.engine.strategies.buffers import NUM_BUFFER_NUMBERS, has_buffer_comparison
from truestep.engine.strategies.division import SharedBatch
from truestep.engine.strategies.fsdp_units import FsdpUnitCalls, fsdp_blocks, fsdp_roots
from truestep.engine.strategies.synchronized_batch_norm import (
    Norm,
    share_rank_statistics,
    unshare_rank_statistics,
)
from truestep.engine.strategies.totals import RankTotals
from truestep.engine.weights import LearnerWeights


class Fsdp:
    """Divides weights, gradients and optimizer states among all processes of a world."""

    divides_weights = True

    def __init__(self, world: World) -> None:
        self.world = world
        self._norms: list[Norm] = []
        self._calls: dict[nn.Module, FsdpUnitCalls] = {}
        self._mesh: Any = None

    def adopt(self, module: nn.Module, precision: Precision, is_updating: Callable[[], bool]) -> None:
        """Give every process rank 0's weights, and keep a part of them."""
        from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

        if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            raise OptionError(
                f'strategy="fsdp" needs torch 2.13, and this is {torch.__version__}: before, weights that one rank alone uses '
                'made the others wait forever. Use strategy="ddp".'
            )
        if precision.weights not in (torch.float32, torch.float64):
            raise OptionError(
                f'precision={precision.name!r} keeps half-precision weights, and strategy="fsdp" makes its own of float32 parts. '
                'Use "bf16-mixed" or "fp16-mixed".'
            )
        _refuse_unsupported_parameters(module)
        self.world.broadcast([*module.parameters(), *module.buffers()], "the weights of a model to divide")
        self._norms += share_rank_statistics(module, self.world, is_updating)
        policy = MixedPrecisionPolicy(
            param_dtype=precision.autocast,
            reduce_dtype=precision.autocast and torch.float32,
            cast_forward_inputs=False,  # autocast does
        )
        calls = self._calls[module] = FsdpUnitCalls(module, self.world)
        mesh = self._mesh = self._mesh or self._make_mesh(next(module.parameters()).device)
        for root in fsdp_roots(module):
            for unit in [*fsdp_blocks(root), root]:
                divided: Any = fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
                _sum_instead_of_average(divided)
                calls.watch(unit)
        divide_loaded_weights(module)

    def _make_mesh(self, device: torch.device) -> Any:
        from torch.distributed.device_mesh import DeviceMesh

        if self.world.dividing is None:
            # torch waits for what it gathers, and nobody watches
            self.world.dividing = dist.new_group(timeout=timedelta(seconds=self.world.timeout_seconds))
        mesh = DeviceMesh.from_group(self.world.dividing, device.type)
        ask_others_when_pickled(mesh, self.world)
        return mesh

    def hooks(self, learners: Sequence[LearnerWeights], names: str) -> "FsdpHooks":
        """Return what is done in the updates of these learners."""
        return FsdpHooks(self.world, learners, names, self._calls)

    def close(self) -> None:
        """Give batch normalisations back; the weights stay divided."""
        unshare_rank_statistics(self._norms)


def _sum_instead_of_average(divided: Any) -> None:
    # where torch divides by the number of processes: each backward is seeded with one over the whole batch
    divided.set_gradient_divide_factor(1.0)
    divided.set_force_sum_reduction_for_comms(enable=True)
    divided.set_reduce_scatter_unused_params(True)


def _refuse_unsupported_parameters(module: nn.Module) -> None:
    refuse_gradient_hooks(module.named_parameters())
    if names := [name for name, parameter in module.named_parameters() if not parameter.dim()]:
        raise OptionError(
            f'{", ".join(names[:4])} is a single number, a parameter without dimensions, and strategy="fsdp" divides weights '
            'along their first. Write nn.Parameter(torch.zeros(1)), of shape (1,), or strategy="ddp".'
        )
    first_at: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        if parameter.numel() and (first := first_at.setdefault(parameter.data_ptr(), name)) != name:
            raise OptionError(
                f'{first} and {name} are two parameters over one memory (weight_norm makes such of a tied weight). strategy="fsdp" '
                f"would divide each for itself, and they would drift apart. Make them one parameter, {first} = {name}, or use "
                'strategy="ddp".'
            )


class FsdpHooks:
    """The updates of one set of learners."""

    divides_weights = True

    def __init__(
        self,
        world: World,
        learners: Sequence[LearnerWeights],
        names: str,
        everybody: Mapping[nn.Module, FsdpUnitCalls],
    ) -> None:
        self._world, self._what = world, f"an update of {names}"
        modules = [weights.module for weights in learners]
        self._everybody = everybody
        self._calls = [everybody[module] for module in modules]
        self._roots: list[Any] = [root for module in modules for root in fsdp_roots(module)]
        self._batch = SharedBatch(world, self._what, learners, lambda: True)
        self.division: BatchDivision = self._batch
        self._totals = RankTotals(world, learners, self._what)
        self.decide = self._totals.decide
        self._names = [weights.names for weights in learners]
        self._parameters = [parameter for weights in learners for parameter in weights.parameters]

    def begin(self) -> None:
        """Count calls from here on."""
        self._batch.begin()
        for calls in self._calls:
            calls.begin()

    def before_backward(self, values: Tensor, *, is_last: bool | None) -> None:
        """Sum the gradients in the last backward alone; in each, where nobody knows which is the last."""
        if is_divided_over_ranks(
            values
        ):  # even its sum is a message, which a rank without examples would not answer
            raise _weight_elsewhere_error()
        self._batch.refuse_other_switches()
        sends = is_last is not False
        for root in self._roots:
            root.set_requires_gradient_sync(sends)
            root.set_is_last_backward(sends)
        for calls in self._everybody.values():
            calls.goes_back = True
        self._calls[0].meet()

    def gradients_ready(self, sums: LossTotals) -> None:
        """They are summed. What no rank has used keeps no gradient."""
        pairs = zip(self._calls, self._names, strict=True)
        used = [name in calls.used for calls, names in pairs for name in names]
        compared = self._batch.buffer_comparison_numbers()
        mine = self._totals.local_sums_vector(sums, compared)
        all_used = all(
            is_used or not each.requires_grad for is_used, each in zip(used, self._parameters, strict=True)
        )
        is_foreseen = self._totals.can_skip_reading_sums(
            sums, lambda: all_used and not has_buffer_comparison(compared)
        )
        flags = torch.tensor([*map(float, used)], dtype=mine.dtype)
        vector = torch.cat([mine, send_to_device(flags, mine.device)])
        self._world.wait_all([self._world.reduce(vector)], self._what)
        num_totals = len(mine) - NUM_BUFFER_NUMBERS
        if not is_foreseen:
            numbers = self._world.numbers_of(vector, self._what)
            for parameter, by_how_many in zip(self._parameters, numbers[len(mine) :], strict=True):
                if not by_how_many:
                    parameter.grad = None
        self._totals.take(vector[:num_totals], sums)
        self._batch.synchronize_buffers(None if is_foreseen else vector[num_totals : len(mine)])

    def joined(self, norm: Tensor, norm_type: float) -> Tensor:
        """Join the norms of all parts."""
        # In float64, since powers of a norm overflow float32; all are sent, and each rank adds them up in the same order.
        largest = norm_type == float("inf")
        norms = norm.double()[None] if largest else norm.double()[None] ** norm_type
        everybody = torch.zeros(self._world.size, dtype=torch.float64, device=norm.device)
        everybody[self._world.rank] = norms
        self._world.wait_all([self._world.reduce(everybody)], self._what)
        total = everybody.max() if largest else everybody.sum() ** (1 / norm_type)
        return total.to(norm.dtype)

    def explained(self, error: BaseException) -> Exception | None:
        """Say what the weights' being divided has to do with it."""
        text = str(error)
        if "mixed torch.Tensor and DTensor" in text:
            return _weight_elsewhere_error()
        return self._world.explained(error)


def _weight_elsewhere_error() -> OptionError:
    return OptionError(
        'With strategy="fsdp" weights are gathered where a module is called, and something was computed with a weight '
        "elsewhere: in a method that is not forward, by a part that reads another's weight, or in a penalty on weights, of "
        "which each process has a part. For a penalty give the optimizer weight_decay. Else call the module, "
        "net(inputs); or, for a method of the learner's module, "
        'torch.distributed.fsdp.register_fsdp_forward_method(net.module, "encode").'
    )
