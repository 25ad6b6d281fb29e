# SPDX-License-Identifier: Apache-2.0
"""Gradients in flat buckets: filled by hooks while a backward runs, summed over the ranks, written back.

Where heads ride (`first_message.py`), the first bucket is of one size for all learners, and no other goes before all
heads in it were read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from truestep.core.device_specific import send_to_device
from truestep.engine.gradient_hooks import register_gradient_hooks
from truestep.engine.processes.world import World
from truestep.engine.strategies.first_message import (
    FirstMessage,
    RankMessageHead,
    communication_dtype,
    num_bucket_slots,
    num_head_numbers,
    read_bucket_riders,
    read_rank_heads,
    write_bucket_riders,
    write_rank_head,
)
from truestep.engine.weights import LearnerWeights

# The sizes of torch's DistributedDataParallel.
BUCKET_BYTES = 25 * 2**20
FIRST_BUCKET_BYTES = 2**20  # the first goes early, so that the connection is not idle

Work = Any
Kind = tuple[torch.dtype, torch.device]


class GradientBucket:
    """Consecutive parameters of one type, and the memory that their gradients travel in, and what rides behind them."""

    def __init__(self, parameters: Sequence[tuple[int, Tensor]], kind: Kind) -> None:
        self.indices = [index for index, _ in parameters]
        self._sizes = [parameter.numel() for _, parameter in parameters]
        self._shapes = [parameter.shape for _, parameter in parameters]
        self._kind = kind
        self._flat: Tensor | None = None
        self._made = 0, 0  # with which riders, of which size
        self.views: list[Tensor] = []
        """The gradients, and once they have travelled their sums over all ranks; in memory that the next update writes to."""
        self.riders = torch.empty(0)
        """The memory behind the gradients, in their type; complex ones as pairs."""
        self.heads = torch.empty(0)
        """The end of a message of a fixed size."""
        self.num_missing = 0
        self.has_gone = False

    def make(self, num_riders: int = 0, fixed: int = 0, num_heads: int = 0) -> None:
        """Make the memory, of a `fixed` size where one is given, unless it is there; complex numbers travel as pairs."""
        if self._flat is not None and (num_riders, fixed) == self._made:
            return
        self._made = num_riders, fixed
        dtype, device = self._kind
        size = sum(self._sizes)
        is_complex = dtype.is_complex
        real = dtype.to_real() if is_complex else communication_dtype(dtype)
        size *= 2 if is_complex else 1
        num_rest = max(fixed - size - num_riders - num_heads, 0)
        sizes = [size, num_riders, num_rest, num_heads]
        self._flat = torch.zeros(sum(sizes), dtype=real, device=device)
        whole, self.riders, _, self.heads = torch.split_with_sizes(self._flat, sizes)
        if is_complex:
            whole = torch.view_as_complex(whole.view(-1, 2))
        parts = torch.split_with_sizes(whole, self._sizes)
        self.views = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def release(self) -> None:
        """Let go of the memory, until it is made again."""
        self._flat, self.views = None, []
        self.riders = self.heads = torch.empty(0)

    def fill(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Copy the gradients in; zeros where there is none. Return what is to be sent."""
        assert self._flat is not None
        found = [(view, each) for view, each in zip(self.views, gradients, strict=True) if each is not None]
        # what the last update left there would be summed again
        if len(found) < len(self.views):
            self._flat.zero_()
        if found:
            torch._foreach_copy_([view for view, _ in found], [each for _, each in found])
        return self._flat

    def flags_and_slots(self, num_flags: int) -> tuple[Tensor, Tensor]:
        """Return the riders that are flags, and the slots of numbers behind them."""
        return self.riders[:num_flags], self.riders[num_flags:]


def divide_into_buckets(
    parameters: Sequence[tuple[int, Tensor]], first_bytes: int = FIRST_BUCKET_BYTES
) -> list[list[tuple[int, Tensor]]]:
    """Return numbered parameters in lists of one type and device, each closed once it is large enough; the first is small."""
    closed: list[list[tuple[int, Tensor]]] = []
    open_ones: dict[Kind, list[tuple[int, Tensor]]] = {}
    num_bytes: dict[Kind, int] = {}
    for index, parameter in parameters:
        kind = parameter.dtype, parameter.device
        open_ones.setdefault(kind, []).append((index, parameter))
        num_bytes[kind] = num_bytes.get(kind, 0) + parameter.nbytes
        if num_bytes[kind] >= (BUCKET_BYTES if closed else first_bytes):
            closed.append(open_ones[kind])
            open_ones[kind], num_bytes[kind] = [], 0
    return closed + [together for together in open_ones.values() if together]


def _split_first_parameters(trained: list[Any], left: int) -> tuple[list[Any], list[Any]]:
    """Return the parameters whose gradients come first, as many as there are places `left` for, and the others."""
    for place, (_, parameter) in enumerate(trained):
        left -= parameter.numel()
        if left < 0:
            return trained[:place], trained[place:]
    return trained, []


LayoutKey = tuple[int, tuple[bool, ...]]
NUM_LAYOUTS = 2  # weights that are frozen and trained in turns


class BucketLayouts:
    """The layouts used last, by which parameters train.

    One that another takes the place of lets go of its memory, unless it has come back before: most never do.
    """

    def __init__(self) -> None:
        self._kept: dict[LayoutKey, list[GradientBucket]] = {}
        self._came_back: set[LayoutKey] = set()

    def find(self, key: LayoutKey, lay_out: Callable[[], list[GradientBucket]]) -> list[GradientBucket]:
        """Return the buckets of a layout: those that it had when it was used last, or new ones."""
        for other in self._kept.keys() - self._came_back - {key}:
            for bucket in self._kept[other]:
                bucket.release()
        found = self._kept.pop(key, None)
        if found is None:
            while len(self._kept) >= NUM_LAYOUTS:
                oldest = next(iter(self._kept))
                self._came_back.discard(oldest)
                del self._kept[oldest]
            found = lay_out()
        else:
            self._came_back.add(key)
        self._kept[key] = found
        return found


class GradientBuckets:
    """The buckets of one set of learners, in the order in which gradients usually come: the last parameters first."""

    def __init__(self, learners: Sequence[LearnerWeights], world: World, message: FirstMessage) -> None:
        self._world, self._message = world, message
        self._kind: Kind = torch.float32, learners[0].parameters[0].device
        self._owners = [
            (weights, parameter)
            for weights in reversed(learners)
            for parameter in reversed(weights.parameters)
            if not any(parameter is each for each in weights.sparse)
        ]
        self.num_parameters = len(self._owners)
        self._num_flags = 1 + self.num_parameters  # of the last bucket's riders
        self._can_have_heads = self._choose_message_dtype(learners)
        self._has_half = any(weights.has_half for weights in learners)
        self._laid_out: LayoutKey | None = None
        self._layouts = BucketLayouts()
        self._handles: dict[int, RemovableHandle] = {}
        self._head: RankMessageHead | None = None
        self._agree: Callable[[Sequence[RankMessageHead]], bool] = bool
        self._buckets: list[GradientBucket] = []
        self._bucket_of: dict[int, GradientBucket] = {}
        self._used_by: list[float] = []  # how many ranks
        self.disarm()
        self.sends_early = not self._has_half  # gradients in half precision are summed up in float32 first

    @property
    def may_have_heads(self) -> bool:
        """Whether the first bucket has room for all ranks' heads; the same on ranks that train otherwise."""
        return self._can_have_heads and num_head_numbers(self._world.size) <= self._message_numbers

    @property
    def _message_numbers(self) -> int:
        return self._message.num_bytes // self._kind[0].itemsize

    def _choose_message_dtype(self, learners: Sequence[LearnerWeights]) -> bool:
        """Learn in which type these gradients travel; return whether heads can ride with them."""
        wires = {communication_dtype(each.dtype) for _, each in self._owners}
        are_usual = all(each.is_cpu for _, each in self._owners) and not any(each.sparse for each in learners)
        if wires not in ({torch.float32}, {torch.float64}) or not (are_usual and self._world.sums_on_host):
            return False
        self._kind = wires.pop(), self._kind[1]
        return True

    def close(self) -> None:
        """Take the hooks off."""
        self._hook_buckets([])

    def _hook_buckets(self, buckets: Sequence[GradientBucket]) -> None:
        """Have hooks on the parameters of these buckets alone: those that may go while the backward runs."""
        indices = {index for bucket in buckets for index in bucket.indices}
        for index in self._handles.keys() - indices:
            self._handles.pop(index).remove()
        missing = sorted(indices - self._handles.keys())
        handles = register_gradient_hooks(
            ((index, self._owners[index][1]) for index in missing), self._on_gradient_complete
        )
        self._handles.update(zip(missing, handles, strict=True))

    def disarm(self) -> None:
        """Nothing is under way."""
        self._armed = False
        self.came_twice = False
        """Whether a gradient was added to after its bucket had gone (a reentrant checkpoint)."""
        self.begin_again()
        self._come = [False] * self.num_parameters

    def begin_again(self) -> None:
        """Nothing has gone."""
        self._works: list[Work] = []
        self._num_sent, self._do_agree = 0, False

    def begin_last_backward(
        self, head: RankMessageHead | None, agree: Callable[[Sequence[RankMessageHead]], bool]
    ) -> None:
        """The last backward begins; `agree` says of the heads of all ranks whether other buckets may go."""
        if not self.sends_early:
            return
        self._lay_out(head)
        for bucket in self._buckets:
            bucket.num_missing, bucket.has_gone = len(bucket.indices), False
        self._armed, self._agree = True, agree
        self._send_full_buckets()

    def _lay_out(self, head: RankMessageHead | None) -> None:
        """Divide the parameters that are trained now among buckets; the same on every rank."""
        self._head = head
        fixed = 0 if head is None else self._message_numbers
        key = fixed, tuple([parameter.requires_grad for _, parameter in self._owners])
        if key == self._laid_out:
            return
        self._laid_out = key
        self._buckets = self._layouts.find(key, self._divide_parameters)
        self._bucket_of = {index: bucket for bucket in self._buckets for index in bucket.indices}
        self._hook_buckets(self._buckets[:-1])

    def _divide_parameters(self) -> list[GradientBucket]:
        trained = [(index, each) for index, (_, each) in enumerate(self._owners) if each.requires_grad]
        found, first_bytes = [], FIRST_BUCKET_BYTES
        if self._head is not None:
            first, trained = _split_first_parameters(
                trained, self._message_numbers - num_head_numbers(self._world.size)
            )
            found, first_bytes = [GradientBucket(first, self._kind)], BUCKET_BYTES
        found += [
            GradientBucket(together, (together[0][1].dtype, together[0][1].device))
            for together in divide_into_buckets(trained, first_bytes)
        ]
        # where all are sparse, what rides needs a place all the same
        return found or [GradientBucket([], self._kind)]

    def _on_gradient_complete(self, index: int, _: Tensor) -> None:
        """A gradient is complete: its bucket goes when all of it are, and all buckets before it have gone.

        The last one waits for the end of the backward: what travels in it besides is only known then.
        """
        if not self._armed:
            return
        bucket = self._bucket_of[index]
        if self._come[index]:
            self.came_twice = self.came_twice or bucket.has_gone
            return
        self._come[index] = True
        bucket.num_missing -= 1
        self._send_full_buckets()

    def _send_full_buckets(self) -> None:
        while self._num_sent < len(self._buckets) - 1 and not self._buckets[self._num_sent].num_missing:
            if self._num_sent and not self._is_allowed_by_heads():
                return
            self._send_next_bucket()

    def _is_allowed_by_heads(self) -> bool:
        """Whether others than the first bucket may go: all heads have come, and agree. It does not wait."""
        if self._head is not None and not self._do_agree and self._world.is_work_done(self._works[0]):
            self._do_agree = self._agree(self.heads())
        return self._head is None or self._do_agree

    def _num_riders(self, num_numbers: int) -> int:
        return self._num_flags + num_bucket_slots(num_numbers, self._world.size)

    def _send_next_bucket(self, riders: Tensor | None = None) -> None:
        bucket = self._buckets[self._num_sent]
        head = None if self._num_sent else self._head
        rank, size = self._world.rank, self._world.size
        bucket.make(
            0 if riders is None else self._num_riders(len(riders)),
            0 if head is None else self._message_numbers,
            0 if head is None else num_head_numbers(size),
        )
        with torch.no_grad():
            flat = bucket.fill([self._gradient_at(index) for index in bucket.indices])
            if riders is not None:
                bucket.riders.zero_()
                flags, slots = bucket.flags_and_slots(self._num_flags)
                mine = torch.tensor([float(self.came_twice), *self._used_parameters])
                flags.copy_(send_to_device(mine, flags.device))
                write_bucket_riders(riders, slots, rank=rank, size=size)
            if head is not None:
                write_rank_head(head, bucket.heads, rank=rank, size=size)
            self._works.append(self._world.reduce(flat))
        bucket.has_gone = True
        self._num_sent += 1

    def _gradient_at(self, index: int) -> Tensor | None:
        weights, parameter = self._owners[index]
        gradient = weights.accumulated_gradient(parameter)
        return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient

    def send_head(self, numbers: Tensor, head: RankMessageHead | None) -> list[Work]:
        """Send the bucket with the heads unless it has gone; return what is to be waited for before others go."""
        self._armed = False
        self._lay_out(head)
        if head is None:
            return []
        if not self._num_sent:
            if len(self._buckets) == 1 and not self._has_room_for_numbers(len(numbers)):
                self._buckets.append(GradientBucket([], self._kind))  # for the numbers alone
            self._send_next_bucket(numbers if len(self._buckets) == 1 else None)
        return self._works[:1]

    def _has_room_for_numbers(self, num_numbers: int) -> bool:
        """Whether so many numbers of each rank fit behind the first bucket's gradients, with the heads."""
        num_gradients = sum(self._owners[index][1].numel() for index in self._buckets[0].indices)
        num_others = self._num_riders(num_numbers) + num_head_numbers(self._world.size)
        return num_gradients + num_others <= self._message_numbers

    def flush(self, numbers: Tensor) -> list[Work]:
        """Send every bucket that has not gone, the last one with these numbers; return what is to be waited for yet."""
        while self._num_sent < len(self._buckets):
            self._send_next_bucket(numbers if self._num_sent == len(self._buckets) - 1 else None)
        return self._works if self._head is None else self._works[1:]

    def riders(self, num_numbers: int, what: str, *, all_used: bool = False) -> tuple[Tensor, bool]:
        """Return the sums of the numbers, and whether a gradient came twice on some rank; learn who has used what.

        `all_used`: it is known that every rank used every parameter, once.
        """
        flags, slots = self._buckets[-1].flags_and_slots(self._num_flags)
        if all_used:
            came_twice, self._used_by = 0.0, [float(self._world.size)] * self.num_parameters
        else:
            came_twice, *self._used_by = self._world.numbers_of(flags, what)
        return read_bucket_riders(slots, num_numbers, size=self._world.size), bool(came_twice)

    def heads(self) -> list[RankMessageHead]:
        """Return what all ranks have said in the message that has come."""
        return read_rank_heads(self._buckets[0].heads, self._world.size)

    def has_each_gradient_once(self) -> bool:
        """Whether this rank has a gradient of each parameter that trains, and none came twice."""
        pairs = zip(self._owners, self._used_parameters, strict=True)
        return not self.came_twice and all(used or not each.requires_grad for (_, each), used in pairs)

    @property
    def _used_parameters(self) -> list[float]:
        """For each parameter, whether this rank has a gradient of it."""
        return [
            float(weights.accumulated_gradient(parameter) is not None) for weights, parameter in self._owners
        ]

    @torch.no_grad()
    def write_back(self) -> None:
        """Make the sums the gradients; a parameter that no rank has used keeps none."""
        into, sums = [], []
        for bucket in self._buckets:
            for index, total in zip(bucket.indices, bucket.views, strict=True):
                weights, parameter = self._owners[index]
                if not self._used_by[index]:
                    continue
                gradient = weights.accumulated_gradient(parameter)
                if gradient is None or gradient.is_sparse or gradient.dtype != total.dtype:
                    weights.set_gradient(parameter, total.clone())
                else:
                    into.append(gradient)
                    sums.append(total)
        if into:
            torch._foreach_copy_(into, sums)
