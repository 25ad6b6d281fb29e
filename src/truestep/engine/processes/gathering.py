# SPDX-License-Identifier: Apache-2.0
"""All ranks' rows of a tensor in the order of the batch, for losses of the whole batch."""

from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch import Tensor

from truestep.core.errors import LossError
from truestep.engine.processes.world import World


@overload
def gather(tensor: Tensor) -> Tensor: ...
@overload
def gather(tensor: Tensor, *, with_first: Literal[True]) -> tuple[Tensor, int]: ...
def gather(tensor: Tensor, *, with_first: bool = False) -> Tensor | tuple[Tensor, int]:
    """Return the rows of all processes, in the order of the batch; with gradients of any order. Alone: the tensor itself.

    For losses that compare examples with each other (CLIP, SimCLR): each process has a part of the batch, of its own size, and
    returns the losses of its own examples. Pass `decomposable=False` to `update`, so that the parts are not split further.

        images, texts = encode_images(batch[0]), encode_texts(batch[1])
        others, first = ts.gather(texts, with_first=True)
        return F.cross_entropy(images @ others.T, first + torch.arange(len(images)), reduction="none")

    Args:
        tensor: of shape (rows of this process, ...), the same on every process except for the number of rows.
        with_first: also return where this process's rows begin among all.

    Returns:
        A tensor of shape (rows of all processes, ...); with `with_first` a pair.
    """
    if not isinstance(tensor, Tensor) or tensor.ndim == 0:
        raise LossError("ts.gather was given what has no rows; give a tensor of shape (batch, ...).")
    world = World.here
    if world is None:
        return (tensor, 0) if with_first else tensor
    counts = [int(count) for (count,) in world.meet("ts.gather", len(tensor))]
    world.num_gathered += 1
    rows: Tensor = _RowExchange.apply(tensor, world, counts, True)  # type: ignore[no-untyped-call]
    return (rows, sum(counts[: world.rank])) if with_first else rows


def _pad_rows(tensor: Tensor, num_rows: int) -> Tensor:
    padded = tensor.new_zeros((num_rows, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


def gather_all_rows(tensor: Tensor, world: World, counts: list[int]) -> Tensor:
    """Return the rows of all ranks, of which each has so many; without gradients."""
    # all_gather takes tensors of one shape from all ranks
    most = max(*counts, 1)
    sent = torch.view_as_real(_pad_rows(tensor, most)) if tensor.is_complex() else _pad_rows(tensor, most)
    found = [torch.empty_like(sent) for _ in counts]
    work = world.begin(lambda: dist.all_gather(found, sent, group=world.links.data, async_op=True))
    world.wait_all([work], "ts.gather")
    rows = torch.cat([each[:count] for each, count in zip(found, counts, strict=True)])
    return torch.view_as_complex(rows) if tensor.is_complex() else rows


def _reduce_own_rows(tensor: Tensor, world: World, counts: list[int]) -> Tensor:
    # a copy, since it is summed in place and autograd may hand the same gradient to others
    total = tensor.contiguous().clone()
    flat = torch.view_as_real(total) if total.is_complex() else total
    world.wait_all([world.reduce(flat)], "the backward of ts.gather")
    first = sum(counts[: world.rank])
    return total[first : first + counts[world.rank]]


class _RowExchange(torch.autograd.Function):
    """Rows of one process to rows of all (`gathers`), or the sum over all of what they have for this one's rows.

    Each is the other's backward.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: World, counts: list[int], gathers: bool) -> Tensor:
        ctx.back = world, counts, not gathers
        return (gather_all_rows if gathers else _reduce_own_rows)(tensor, world, counts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _RowExchange.apply(gradient, *ctx.back), None, None, None  # type: ignore[no-untyped-call]
