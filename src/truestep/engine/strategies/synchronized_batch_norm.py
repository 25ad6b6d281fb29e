# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over all processes: in an update its statistics are those of the whole batch, weighted by count.

torch's own (`SyncBatchNorm`) needs a GPU, and can't be differentiated twice. Here the sums are differentiable collectives between
plain operations. Every process must call the layer equally often; one that has too few examples calls it with one that counts
nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from truestep.engine.processes.world import World

Norm = nn.modules.batchnorm._BatchNorm


class _AllReduceSum(torch.autograd.Function):
    """The sum of a tensor over all processes; its backward is the same of the gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: World) -> Tensor:
        ctx.world = world
        total = tensor.detach().contiguous().clone()
        world.wait_all([world.reduce(total)], "batch normalisation over all ranks")
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _all_reduce_sum(gradient, ctx.world), None


def _all_reduce_sum(tensor: Tensor, world: World) -> Tensor:
    total: Tensor = _AllReduceSum.apply(tensor, world)  # type: ignore[no-untyped-call]
    return total


def any_takes_batch_statistics(norms: Iterable[Norm]) -> bool:
    """Whether one of the layers takes statistics of the batch now."""
    return any(map(_uses_batch_statistics, norms))


def share_rank_statistics(module: nn.Module, world: World, is_updating: Callable[[], bool]) -> list[Norm]:
    """Have the module's batch normalisations use all processes' examples in updates; return these layers."""
    layers = [part for part in module.modules() if isinstance(part, Norm)]
    for layer in layers:
        # On the object, past nn.Module's own `__setattr__`: the layer's class stays what others look for.
        layer.__dict__["forward"] = _ForwardOverRanks(layer, world, is_updating)
    return layers


def unshare_rank_statistics(layers: Iterable[Norm]) -> None:
    """Undo `share_rank_statistics`."""
    for layer in layers:
        layer.__dict__.pop("forward", None)


def has_moved_locally(layer: nn.Module) -> bool:
    """Whether a layer has moved its running statistics by this rank's rows alone since it was asked last."""
    forward = layer.__dict__.get("forward")
    if not isinstance(forward, _ForwardOverRanks) or not forward.was_called_apart:
        return False
    forward.was_called_apart = False
    return True


class _ForwardOverRanks:
    """What stands for a layer's forward."""

    def __init__(self, layer: Norm, world: World, is_updating: Callable[[], bool]) -> None:
        self._given = layer, world, is_updating
        self.was_called_apart = False
        """Whether it took the statistics of this rank's rows alone, outside of updates, since somebody looked."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute it."""
        layer, _, is_updating = self._given
        if layer.training and not is_updating():
            self.was_called_apart = True
        return _normalize_over_ranks(*self._given, inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the layer (a teacher, an average) is no layer of the learner's: it has its class's own forward."""
        return getattr, (self._given[0], "forward")


def _uses_batch_statistics(layer: Norm) -> bool:
    return layer.training or layer.running_mean is None


def _normalize_over_ranks(
    layer: Norm, world: World, is_updating: Callable[[], bool], inputs: Tensor
) -> Tensor:
    if not (_uses_batch_statistics(layer) and is_updating()):
        return type(layer).forward(layer, inputs)
    layer._check_input_dim(inputs)  # type: ignore[no-untyped-call]
    world.num_gathered += 1  # the backward exchanges tensors of its own
    wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
    dims = [dim for dim in range(inputs.ndim) if dim != 1]
    shape = [1, -1, *[1] * (inputs.ndim - 2)]
    counts = 0.0 if world.counts_nothing else 1.0
    count = wide.new_full((1,), counts * wide.numel() / wide.shape[1])
    sums = _all_reduce_sum(torch.cat([counts * wide.sum(dims), count]), world)
    count = sums[-1].detach()
    if count.is_cpu and count <= 1:  # as on one process; a GPU is not waited for
        raise ValueError(
            f"Expected more than 1 value per channel when training, got {int(count)} on all ranks together"
        )
    mean = sums[:-1] / count
    # In two passes: the mean of squares minus the square of the mean cancels where the mean is large.
    centred = wide - mean.view(shape)
    variance = _all_reduce_sum(counts * centred.square().sum(dims), world) / count
    output = centred * (variance + layer.eps).rsqrt().view(shape)
    if layer.affine:
        output = output * layer.weight.view(shape) + layer.bias.view(shape)
    if layer.training and layer.track_running_stats:
        _update_running_statistics(
            layer, mean.detach(), variance.detach() * (count / (count - 1).clamp(min=1))
        )
    return output.to(inputs.dtype)


@torch.no_grad()
def _update_running_statistics(layer: Norm, mean: Tensor, variance: Tensor) -> None:
    assert layer.num_batches_tracked is not None
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.num_batches_tracked.add_(1)
    momentum = layer.momentum
    share = 1.0 / float(layer.num_batches_tracked) if momentum is None else float(momentum)
    for running, now in ((layer.running_mean, mean), (layer.running_var, variance)):
        running.lerp_(now.to(running.dtype), share)
