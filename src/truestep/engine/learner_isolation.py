# SPDX-License-Identifier: Apache-2.0
"""Keeping an update to its own learners: everybody else is frozen meanwhile and found again as it was."""

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from truestep.core.buffers import MOST_UNMOVED_BYTES, MovingBufferSnapshot
from truestep.core.device_specific import is_cpu_device
from truestep.core.errors import LossError
from truestep.core.tensor_bytes import bytes_of_contiguous
from truestep.engine.processes.shards import is_divided_over_ranks


class OtherLearnersWeights:
    """The weights of learners that are not updated, which a forward may write to: `max_norm` of an embedding does so.

    Torch counts the writes to a tensor, but not those through `.data`. Before the first update nothing is known, so that all are
    copied, the small ones first and up to 1 GB, and compared; from then on those that were written to are copied. Another one that
    is written to is told of by an error; through `.data`, on a CPU, in the second update, the fourth, the eighth and so on, where
    all are compared again.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        named = [(name, weight) for name, weight in named if _has_write_counter(weight)]
        self._names = [name for name, _ in named]
        self._weights = [weight for _, weight in named]
        self._may_compare = all(
            is_cpu_device(weight.device) for weight in self._weights
        )  # elsewhere it waits
        self._num_kept = 0
        self._written: set[int] = set()
        self._before: tuple[list[int], list[int]] = [], []
        self._copies: dict[int, Tensor] = {}

    def keep(self) -> None:
        """Remember what is there now."""
        self._before = self._versions_and_addresses()
        number = self._num_kept = self._num_kept + 1
        # powers of two have one bit: what is compared over a whole training stays a logarithm of its updates
        compares = number == 1 or (number & (number - 1) == 0 and self._may_compare)
        copied = self._written | self._weights_to_copy_first() if compares else self._written
        if copied:
            with torch.no_grad():
                self._copies = {number: self._weights[number].clone() for number in copied}

    def _versions_and_addresses(self) -> tuple[list[int], list[int]]:
        """Return how often each was written to, and where it lies (`weight.data = ...` is no write)."""
        return [each._version for each in self._weights], [each.data_ptr() for each in self._weights]

    def _weights_to_copy_first(self) -> set[int]:
        found, left = set(), MOST_UNMOVED_BYTES
        for number in sorted(range(len(self._weights)), key=lambda number: self._weights[number].nbytes):
            left -= self._weights[number].nbytes
            if left >= 0:
                found.add(number)
        return found

    def restore(self) -> list[str]:
        """Put back what was written to; return the names of those that are written to from a later update than the first on."""
        now, copies = self._versions_and_addresses(), self._copies
        if now == self._before and not copies:
            return []
        self._copies = {}
        (versions, places), (old_versions, old_places) = now, self._before
        moved = [
            number
            for number, weight in enumerate(self._weights)
            if versions[number] != old_versions[number]
            or places[number] != old_places[number]
            # it may be written to through `.data` now as it was before
            or number in self._written
            or (number in copies and not _has_equal_bits(weight, copies[number]))
        ]
        is_first = self._num_kept == 1
        late = [number for number in moved if number not in (copies if is_first else self._written)]
        self._written = {*moved, *self._written}
        with torch.no_grad():
            for number in moved:
                if number in copies:
                    self._weights[number].copy_(copies[number])
                    # a graph made before this update finds what it saved
                    weight = self._weights[number]
                    torch._C._autograd._unsafe_set_version_counter((weight,), (old_versions[number],))
        return [self._names[number] for number in late]

    def forget_one_update(self) -> None:
        """Count an update that failed as none: it may have ended before the forward that writes."""
        self._num_kept -= 1


def _has_equal_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal; NaN equals itself."""
    if torch.equal(one, other):
        return True
    bits = (bytes_of_contiguous(each.detach().contiguous()) for each in (one, other))
    return torch.equal(*bits)


def _has_write_counter(weight: nn.Parameter) -> bool:
    """Whether torch counts the writes; a forward that writes to weights divided over ranks is refused elsewhere."""
    return not (is_divided_over_ranks(weight) or weight.is_inference())


class LearnerIsolation:
    """While it is entered, the parameters of `others` need no gradient; afterwards they and their buffers are as before.

    Freezing by `requires_grad_` keeps FSDP's hooks working (`backward(inputs=...)` loses gradients there), and what a forward wrote
    goes back only after the backward, which may still need it.
    """

    def __init__(
        self, named: Iterable[tuple[str, nn.Parameter]], buffers: Sequence[MovingBufferSnapshot]
    ) -> None:
        named = list(named)
        self._parameters = [parameter for _, parameter in named]
        self._weights = OtherLearnersWeights(named)
        self._buffers = buffers
        self._frozen: list[Tensor] = []

    def __enter__(self) -> Self:
        self._weights.keep()
        self._frozen = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = []
        for buffers in self._buffers:
            buffers.restore()
        lost = self._weights.restore()
        if error is not None:
            self._weights.forget_one_update()
        elif lost:
            raise LossError(_WRITTEN_TO.format(names=", ".join(lost)))


_WRITTEN_TO = (
    "The loss of this update wrote to {names}, which the update does not train (max_norm of an embedding does so), and the "
    "values of before may be lost: the first update of these learners did not write there, or they are larger than 1 GB. Bound "
    "them behind their own update, with torch.no_grad(): weight.copy_(torch.renorm(weight, 2, 0, 1.0))."
)
