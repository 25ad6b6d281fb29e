# SPDX-License-Identifier: Apache-2.0
"""Which operations' numbers come to a result: each one's memory, read and written, followed backwards."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.core.state_trees import tree_leaves

_READS = frozenset({"_local_scalar_dense", "is_nonzero"})
_PYTHON = -1  # in place of memory: numbers that python read


class _FollowedCall(NamedTuple):
    """An operation: the memory that it was given and that it made or wrote to, and its number if it has one."""

    given: frozenset[int]
    made: frozenset[int]
    number: int | None


class MemoryFlow:
    """Follows the memory of operations.

    What python reads counts as needed, so that too many operations may be said to reach a result, and none too few.

    Args:
        frozen: tensors that keep their values, whatever writes to them.
    """

    def __init__(self, frozen: Iterable[Tensor] = ()) -> None:
        self._calls: list[_FollowedCall] = []
        self._frozen = frozenset(_memory_addresses(list(frozen)))

    def add(self, func: Any, given: Any, result: Any, number: int | None) -> None:
        """Take an operation."""
        read, made = frozenset(_memory_addresses(given)), frozenset(_memory_addresses(result))
        if func._schema.is_mutable:
            made -= self._frozen
        name = func.overloadpacket.__name__
        self._calls.append(_FollowedCall(read, frozenset({_PYTHON}) if name in _READS else made, number))

    def reaching(self, results: Iterable[Tensor]) -> set[int]:
        """Return the numbers of the operations that these results come of."""
        needed, found = {_PYTHON, *_memory_addresses(list(results))}, set()
        for call in reversed(self._calls):
            if call.made & needed:
                needed -= call.made - call.given  # what lay there before it was made is something else
                needed |= call.given | {_PYTHON}
                found |= {call.number} - {None}
        return {each for each in found if each is not None}


def _memory_addresses(value: Any) -> Iterator[int]:
    """Yield where the numbers of tensors lie."""
    for _, leaf in tree_leaves(value):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
            yield leaf.untyped_storage()._cdata
