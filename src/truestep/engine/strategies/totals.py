# SPDX-License-Identifier: Apache-2.0
"""What an update's sums are over all processes: one short vector, from which what becomes of the update follows.

weight · weighted loss · number of negative weights · whether weighted · whether metrics are new · weighted metrics
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.core.device_specific import is_async_device, is_cpu_device, send_to_device
from truestep.core.errors import LossError
from truestep.engine.loss_sums import LossTotals
from truestep.engine.processes.world import World
from truestep.engine.weights import LearnerWeights

_DOUBLE = (torch.float64, torch.complex128)
_HEAD = 5  # numbers before those of the metrics


class RankTotals:
    """The sums of one set of learners' updates; the same bits on every rank."""

    def __init__(self, world: World, learners: Sequence[LearnerWeights], what: str) -> None:
        self._world, self._what = world, what
        parameters = [parameter for weights in learners for parameter in weights.parameters]
        self._device = parameters[0].device
        self._kind = torch.float64 if any(each.dtype in _DOUBLE for each in parameters) else torch.float32
        self._names: list[str] = []  # of the metrics
        self._vector, self._numbers = torch.empty(0), [0.0] * _HEAD
        self._is_new = False  # whether this rank's metrics are
        # by the hosts, where nothing is read: whether an example has a weight, and the total weight where none has
        self._said: tuple[bool, int] | None = None

    def local_sums_vector(self, sums: LossTotals, more: Sequence[Any] = ()) -> Tensor:
        """Return this rank's vector, in float64, when its last loss is known, and more numbers behind it."""
        weight, loss, metrics = sums.shares()
        self._is_new = is_new = bool(metrics) and sorted(metrics) != self._names
        negative = 0.0 if sums.least is None else sums.least < 0
        head = [weight, loss, negative, float(sums.may_be_empty), float(is_new)]
        tail = [0.0 if is_new or not metrics else metrics[name] for name in self._names]
        return _as_one_vector([*head, *tail, *more], self._device)

    def can_skip_reading_sums(self, sums: LossTotals, is_usual: Callable[[], bool]) -> bool:
        """Whether nothing of what the ranks sum has to be read: where a device runs ahead, the hosts tell each other beforehand.

        `is_usual`: this rank has used each parameter, and has nothing to compare with the others.
        """
        self._said = None
        if not is_async_device(self._device):
            return False
        total = 0 if isinstance(sums.total, Tensor) else sums.total
        found = self._world.meet(
            f"{self._what}, its end", is_usual() and not self._is_new, sums.may_be_empty, total
        )
        if not all(usual for usual, _, _ in found):
            return False
        self._said = any(weighted for _, weighted, _ in found), int(sum(total for *_, total in found))
        return True

    def take(self, vector: Tensor, sums: LossTotals) -> None:
        """Take the sum of all ranks' vectors; where metrics are new, exchange them."""
        self._vector = vector
        if self._said is None:
            self._numbers = vector[:_HEAD].tolist()
            if self._numbers[-1]:
                self._exchange_metrics(sums)

    def decide(self, sums: LossTotals) -> None:
        """Make the sums those of the whole batch."""
        vector = self._vector.to(self._kind)
        weight, loss, negative, _, _, *metrics = vector.unbind()
        is_weighted, number = self._said or (bool(self._numbers[3]), int(self._numbers[0]))
        total = weight if is_weighted else number
        least = None if vector.is_cpu else -negative
        sums.become(total, loss, dict(zip(self._names, metrics, strict=True)), least=least)

    def _exchange_metrics(self, sums: LossTotals) -> None:
        """Learn the names of the metrics, which a rank without examples can't know, and sum them."""
        metrics = sums.shares()[2]
        mine = json.dumps(sorted(metrics)).encode() if sums.num_parts else b""
        found = {each for each in self._world.share_bytes(mine, f"{self._what} (names of metrics)") if each}
        if len(found) > 1:
            named = ", ".join(sorted(map(bytes.decode, found)))
            raise LossError(
                f"The loss function gave other metrics on other ranks: {named}. It must give the same names each time."
            )
        self._names = json.loads(found.pop())
        tail = _as_one_vector([metrics.get(name, 0.0) for name in self._names], self._device)
        self._world.wait_all([self._world.reduce(tail)], self._what)
        self._vector = torch.cat([self._vector[:_HEAD], tail])


def _as_one_vector(values: Sequence[Any], device: torch.device) -> Tensor:
    """Return numbers, and tensors of one number, as one vector."""
    if is_cpu_device(device):
        numbers = [each.item() if isinstance(each, Tensor) else each for each in values]
        return torch.tensor(numbers, dtype=torch.float64)
    vector = torch.tensor([0.0 if isinstance(each, Tensor) else each for each in values], dtype=torch.float64)
    vector = send_to_device(vector, device)
    for index, value in enumerate(values):
        if isinstance(value, Tensor):
            vector[index] = value
    return vector
