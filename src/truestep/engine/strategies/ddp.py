# SPDX-License-Identifier: Apache-2.0
"""Data parallel: every process has all weights and a part of each batch; gradients are summed while the last backward runs.

No module is wrapped. Hooks on the bare parameters fill flat buckets in a fixed order, so methods, submodules, gradient penalties
and layers that are left out on one rank need nothing. One short vector travels behind the buckets, and what becomes of the update
follows from it and from the summed gradients alone, which are the same on every rank:

    weight · weighted loss · number of negative weights · whether weighted · whether a gradient came twice · whether metrics are
    new · by how many ranks each parameter was used · weighted metrics
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.errors import BatchError, LossError
from truestep.engine.batches import Split
from truestep.engine.processes.world import World
from truestep.engine.strategies.base import Placing
from truestep.engine.strategies.buckets import Buckets
from truestep.engine.strategies.fillers import one_of, shared_example
from truestep.engine.strategies.statistics import has_statistics, keep_statistics, share_statistics
from truestep.engine.sums import Sums
from truestep.engine.weights import Weights

_DOUBLE = (torch.float64, torch.complex128)
_HEAD = 6  # numbers of the vector before those of the parameters


class Ddp:
    """Sums gradients over all processes of a world."""

    shares_batches = True

    def __init__(self, world: World) -> None:
        self.world = world
        self._hooks: dict[tuple[int, ...], DdpHooks] = {}
        self._norms: list[nn.Module] = []

    def adopt(self, module: nn.Module, is_updating: Callable[[], bool]) -> None:
        """Have its batch normalisations use the examples of all processes."""
        self._norms += share_statistics(module, self.world, is_updating)

    def hooks(self, learners: Sequence[Weights], names: str) -> "DdpHooks":
        """Return what is done in the updates of these learners; asked again for the same parameters, the same."""
        key = tuple(id(parameter) for weights in learners for parameter in weights.parameters)
        if key not in self._hooks:
            self._hooks[key] = DdpHooks(self.world, learners, names)
        return self._hooks[key]

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for hooks in self._hooks.values():
            hooks.close()
        for layer in self._norms:
            keep_statistics(layer)


class DdpHooks:
    """The updates of one set of learners."""

    shares_batches = True

    def __init__(self, world: World, learners: Sequence[Weights], name: str) -> None:
        self._world, self._what = world, f"an update of {name}"
        self._buckets = Buckets(learners, send=world.reduce)
        self._metrics: list[str] = []
        self._counts: list[int] = []
        self._calls: list[int] = []  # of the loss, by each rank with its own examples
        self._counts_calls = False
        self._num_gathered = 0
        self._whole: tuple[Tensor, list[str]] | None = None  # the summed vector, and the names of its metrics
        self._modules = [weights.module for weights in learners]
        doubles = any(parameter.dtype in _DOUBLE for weights in learners for parameter in weights.parameters)
        self._kind = torch.float64 if doubles else torch.float32

    def close(self) -> None:
        """Take the hooks off the parameters."""
        self._buckets.close()

    def begin(self) -> None:
        """Forget what was under way."""
        self._buckets.disarm()
        self._whole = None
        self._num_gathered = self._world.num_gathered

    def place(self, count: int | None, num_parts: int = 1) -> Placing:
        """Count the examples of all ranks; those of lower ranks come before this one's."""
        if count is None:
            raise BatchError(
                "The examples of this batch can't be counted, so it is not known which of the whole batch are on this rank. Pass "
                "split=ts.Split(count, take), or split= the dimension that they lie along."
            )
        uses_statistics = any(map(has_statistics, self._modules))
        found = self._world.meet(self._what, count, num_parts, uses_statistics)
        self._counts, self._calls = ([int(each[index]) for each in found] for index in (0, 1))
        if not sum(self._counts):
            raise BatchError("The batch is empty on every rank: a mean over no examples is not defined.")
        self._counts_calls = any(each[2] for each in found)
        first, total = sum(self._counts[: self._world.rank]), sum(self._counts)
        if not self._counts_calls:
            return Placing(first, count, total, num_parts)
        return Placing(first, count, total, max(self._calls), lends=len(set(self._calls)) > 1)

    @property
    def may_shrink(self) -> bool:
        """Not where the loss exchanges tensors: the others would wait for calls that never come."""
        return not self._counts_calls and self._world.num_gathered == self._num_gathered

    def example(self, batch: Any, split: Split | None) -> Any:
        """Return one example, lent by another rank where this one has none."""
        if 0 in self._counts:
            return shared_example(batch, split, self._counts, self._world)
        return one_of(batch, split)

    @contextmanager
    def counting_nothing(self) -> Iterator[None]:
        """Tell the batch normalisations."""
        self._world.counts_nothing = True
        try:
            yield
        finally:
            self._world.counts_nothing = False

    def refuse_empty(self) -> None:
        """Refuse a loss of the whole batch where a rank has nothing of it."""
        if 0 in self._counts:
            without = self._counts.index(0)
            raise BatchError(
                f"decomposable=False, and the {sum(self._counts)} examples of this batch leave rank {without} without any, so it "
                "could not take part in ts.gather. Leave short batches out: run.data(..., drop_last=True)."
            )

    def check_whole(self) -> None:
        """Refuse a loss of the whole batch that has not seen it."""
        if self._world.num_gathered == self._num_gathered:
            raise LossError(
                "decomposable=False, and the loss has seen only this process's part of the batch: it did not call ts.gather, which "
                "returns the rows of all: others, first = ts.gather(vectors, with_first=True)."
            )

    def before_backward(self, sums: Sums, *, is_last: bool) -> None:
        """Send each bucket as soon as it is full, where no other backward follows and this one exchanges nothing itself."""
        if is_last and self._world.num_gathered == self._num_gathered:
            self._buckets.arm()

    def gradients_ready(self, sums: Sums) -> None:
        """Sum what has not been sent, and the vector; write the sums into every `.grad`."""
        works = self._buckets.flush()
        vector = self._vector(sums)
        self._world.settle([*works, self._world.reduce(vector)], self._what)
        if vector[4]:  # on some rank a gradient came twice, after its bucket had gone: now all is sent, once
            self._buckets.sends_early = False
            self._world.settle(self._buckets.flush(), self._what)
        if vector[5]:
            vector = self._with_new_metrics(vector, sums)
        self._whole = vector, self._metrics
        used = vector[_HEAD : _HEAD + self._buckets.num_parameters]
        self._buckets.write_back(used.tolist())
        self._take_buffers()

    def decide(self, sums: Sums) -> None:
        """Make the sums those of the whole batch."""
        assert self._whole is not None
        vector, names = self._whole
        weight, loss, negative, weighted = vector[:4].to(self._kind)
        metrics = vector[_HEAD + self._buckets.num_parameters :].to(self._kind)
        total = weight if weighted else int(vector[0])
        least = None if vector.device.type == "cpu" else -negative
        sums.become(total, loss, dict(zip(names, metrics, strict=True)), least=least)

    def _vector(self, sums: Sums) -> Tensor:
        weight, loss, metrics = sums.shares()
        is_new = bool(metrics) and sorted(metrics) != self._metrics
        negative = 0.0 if sums.least is None else sums.least < 0
        head = [
            weight,
            loss,
            negative,
            float(sums.may_be_empty),
            float(self._buckets.came_twice),
            float(is_new),
        ]
        tail: list[Any] = (
            [0.0] * len(self._metrics) if is_new or not metrics else [metrics[name] for name in self._metrics]
        )
        return _joined([*head, *self._buckets.used, *tail], self._buckets.device)

    def _with_new_metrics(self, vector: Tensor, sums: Sums) -> Tensor:
        """Learn the names of the metrics, which a rank without examples can't know, and sum them."""
        metrics = sums.shares()[2]
        mine = json.dumps(sorted(metrics)).encode() if sums.num_parts else b""
        found = {each for each in self._world.share_bytes(mine, f"{self._what} (names of metrics)") if each}
        if len(found) > 1:
            named = ", ".join(sorted(map(bytes.decode, found)))
            raise LossError(
                f"The loss function gave other metrics on other ranks: {named}. It must give the same names each time."
            )
        self._metrics = json.loads(found.pop())
        values = [metrics.get(name, 0.0) for name in self._metrics]
        tail = _joined(values, vector.device)
        self._world.settle([self._world.reduce(tail)], self._what)
        return torch.cat([vector[: _HEAD + self._buckets.num_parameters], tail])

    def _take_buffers(self) -> None:
        """A rank without examples, or with too few, has other buffers: they become those of the first that had enough."""
        most = max(self._calls, default=0)
        enough = [calls == most if self._counts_calls else calls > 0 for calls in self._calls]
        if all(enough):
            return
        takes = not enough[self._world.rank]
        for module in self._modules:
            buffers = list(module.buffers())
            self._world.broadcast(buffers, self._what, source=enough.index(True), takes=takes)


def _joined(values: Sequence[Any], device: torch.device) -> Tensor:
    """Return numbers, and tensors of one number, as one vector."""
    vector = torch.tensor([0.0 if isinstance(each, Tensor) else each for each in values], dtype=torch.float64)
    vector = vector.to(device, non_blocking=True)
    for index, value in enumerate(values):
        if isinstance(value, Tensor):
            vector[index] = value
    return vector
