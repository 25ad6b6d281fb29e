# SPDX-License-Identifier: Apache-2.0
"""Where the examples of a batch first mix: the operation, the line and the layer.

Every operation's rows are summed up, once with the batch as it is and once with one example changed. The first operation whose
result differs outside of that example's rows is the one that mixes. Operations whose numbers do not come to the loss, such as a
codebook's averages for its own entries, are left out where the loss is known.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from truestep.core.user_frames import is_library_file
from truestep.doctor.relations.meanings import (
    PRODUCTS,
    RANKS,
    RATIO,
    RowSums,
    calls_derived_from,
    is_mixing_meant,
    meaning_of_mixing,
)
from truestep.doctor.relations.numbers_flow import MemoryFlow
from truestep.doctor.runtime.traced_forward import memory_identity

_MOST_CALLS = 4000
_MOST_NUMBERS = 4_000_000
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
_SMALLEST_COUNT, _LARGEST_COUNT = 3, 13

_MOST_IN_TOTAL = 4096


# in these both sides may be spread over one another
_BROADCASTS = frozenset({"sub", "rsub", "add", "mul", "div", "mse_loss", "l1_loss", "smooth_l1_loss"})


class Mixing(NamedTuple):
    """The operation in which the examples of a batch first mix."""

    operation: str
    place: str | None
    layer: str | None
    given: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    meaning: str | None = None
    """The meaning under which that is right, where there is a usual one."""
    is_meant: bool = False
    """Whether what is done with the result shows that it is meant; of a table, whether nothing shows that it is not."""
    number: int = 0
    """Of the call, among those that were recorded."""

    @property
    def is_table(self) -> bool:
        """Whether it holds a number for each pair of examples."""
        return self.operation in PRODUCTS

    @property
    def is_broadcast_table(self) -> bool:
        """Whether two sides are spread to a table of all with all, and no dimension of one was added for it."""
        dimensions = {len(each) for each in self.given}
        return self.operation in _BROADCASTS and self.shape not in self.given and len(dimensions) > 1

    def __str__(self) -> str:
        shapes = " and ".join(str(shape) for shape in self.given) or "nothing"
        where = f" at {self.place}" if self.place else ""
        inside = f" in {self.layer}" if self.layer else ""
        return f"{self.operation} of {shapes} into {self.shape}{where}{inside}"


class RowSumRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the sums of the rows of each operation's result, outside of backwards.

    Args:
        count: the number of examples of the batch.
        layers: the modules whose names are to be said, by name.
        in_full: whether the places are told with the whole path of the file.
        frozen: tensors that keep their values, whatever writes to them.
        rolled: the number of a call whose result is rolled by one, and along which dimension.
    """

    def __init__(
        self,
        count: int,
        layers: Mapping[str, nn.Module] | None = None,
        *,
        in_full: bool = False,
        frozen: Iterable[Tensor] = (),
        rolled: tuple[int, int] = (-1, 0),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[RowSums] = []
        self._rolled = rolled
        self._flow = MemoryFlow(frozen)
        self._reaching: set[int] = set()
        self._count = count
        self._shown = str if in_full else _relative_path
        self._names = {id(module): name for name, module in (layers or {}).items()}
        self._weights = torch.empty(0, dtype=torch.float64)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        kept = result[0] if isinstance(result, (tuple, list)) and result else result
        is_kept = isinstance(kept, Tensor) and self._is_kept(kept)
        self._flow.add(func, (args, kwargs), result, len(self.calls) if is_kept else None)
        if is_kept:
            place, layer = _place_and_layer(self._names, self._shown)
            name = func.overloadpacket.__name__.strip("_")
            tensors = [each for each in args if isinstance(each, Tensor)]
            # two forms of one tensor, as of all its numbers less each other, are one
            forms = {memory_identity(each): each for each in tensors}
            given, sums = tuple(tuple(each.shape) for each in forms.values()), self._row_sums(kept)
            total = None if sums else self._weighted_total(kept)
            self.calls.append(
                RowSums(
                    *(name, place, layer, tuple(kept.shape), given, tuple(forms), memory_identity(kept)),
                    *(
                        any(each.requires_grad for each in tensors),
                        _are_same_numbers(tensors),
                        len(self.calls),
                    ),
                    *(total, sums),
                )
            )
            if len(self.calls) - 1 == self._rolled[0]:
                result = kept.roll(1, self._rolled[1])
        return result

    def reaches(self, results: Iterable[Any]) -> None:
        """Take note of results that operations up to here are for: losses."""
        self._reaching |= self._flow.reaching(each for each in results if isinstance(each, Tensor))

    def calls_that_reach(self) -> list[RowSums]:
        """Return the calls whose numbers come to the results that were noted; all where none does."""
        return [each for number, each in enumerate(self.calls) if number in self._reaching] or self.calls

    def _is_kept(self, tensor: Tensor) -> bool:
        return (
            len(self.calls) < _MOST_CALLS
            and tensor.numel() <= _MOST_NUMBERS
            and tensor.layout is torch.strided
            and torch._C._current_graph_task_id() == -1
        )

    def _row_sums(self, tensor: Tensor) -> tuple[tuple[int, Any], ...]:
        found = []
        for axis, size in enumerate(tensor.shape):
            if size and size % self._count == 0 and tensor.numel():
                rows = tensor.detach().movedim(axis, 0).reshape(size, -1)
                rows = torch.view_as_real(rows.resolve_conj()).flatten(1) if rows.is_complex() else rows
                rows = rows.to("cpu", torch.float64)
                found.append((size // self._count, (rows @ self._position_weights(rows.shape[1])).numpy()))
        return tuple(found)

    def _weighted_total(self, tensor: Tensor) -> float | None:
        if not tensor.is_floating_point() or tensor.numel() > _MOST_IN_TOTAL:
            return None
        numbers = tensor.detach().reshape(-1).to("cpu", torch.float64)
        return float(numbers @ self._position_weights(len(numbers)))

    def _position_weights(self, size: int) -> Tensor:
        """Return a weight for each number of a row, so that exchanged numbers give another sum."""
        if len(self._weights) < size:
            self._weights = torch.cos(torch.arange(size, dtype=torch.float64) * 1.7 + 0.3)
        return self._weights[:size]


def _are_same_numbers(tensors: Sequence[Tensor]) -> bool:
    """Tell whether tensors are forms of one, number for number: two columns of a table are not."""
    strided = [each for each in tensors if each.layout is torch.strided]
    forms = {(memory_identity(each), each.storage_offset(), each.numel()) for each in strided}
    return len(forms) == 1 < len(strided) == len(tensors)


def first_mixing(before: Sequence[RowSums], after: Sequence[RowSums], row: int) -> Mixing | None:
    """Return the first operation whose result differs in more than one example's rows, or else the first quotient of two sums.

    None where none can be told.

    Args:
        before: the operations on the batch.
        after: the same with example `row` changed.
        row: which one was changed.
    """
    ratio, changed = None, set[int]()  # the memory of totals that the example changed
    ranked = -1  # the call that ranks the examples
    count = next((len(sums) // rows for each in before for rows, sums in each.sums), 0)
    for number, (first, second) in enumerate(zip(before, after, strict=False)):
        if (first.operation, first.shape) != (second.operation, second.shape):
            return None  # from here on other operations are called
        if first.sums and _has_mixed_rows(first, second, row):
            found = _make_mixing(
                first, meaning_of_mixing(first), is_mixing_meant(first, before[number + 1 :])
            )
            chosen = (
                calls_derived_from(before[ranked], before[ranked + 1 : number + 1]) if ranked >= 0 else []
            )
            is_chosen = any(each is first for each in chosen)
            return found if ratio is None or (found.meaning is None and not is_chosen) else ratio
        changed.discard(first.made)
        if first.total != second.total:
            if ratio is None and (ratio := _mixing_of_totals(first, changed, count)) is not None:
                ranked = number if ratio.is_meant else -1
            changed.add(first.made)
    return ratio


def _mixing_of_totals(call: RowSums, changed: set[int], count: int) -> Mixing | None:
    """Return what a call mixes whose result has no rows: a quotient of two changed sums, or some examples of all that it ranks."""
    if call.operation == "div" and len(call.read) > 1 and changed.issuperset(call.read):
        return _make_mixing(call, RATIO)
    if call.operation in RANKS and call.given == ((count,),):
        return _make_mixing(call, meaning_of_mixing(call), is_meant=True)
    return None


def _make_mixing(call: RowSums, meaning: str | None, is_meant: bool = False) -> Mixing:
    return Mixing(
        call.operation, call.place, call.layer, call.given, call.shape, meaning, is_meant, call.number
    )


def _has_mixed_rows(first: RowSums, second: RowSums, row: int) -> bool:
    for (rows, before), (_, after) in zip(first.sums, second.sums, strict=True):
        size = np.abs(before) + np.abs(after)
        differs = np.abs(before - after) > _RELATIVE * size + _ABSOLUTE * size.max(initial=0.0)
        changed = np.flatnonzero(differs | (np.isnan(before) != np.isnan(after)))
        if len(changed) == 0 or _is_of_one_example(changed, rows, row, len(before) // rows):
            return False
    return True


def _is_of_one_example(changed: Any, rows: int, row: int, count: int) -> bool:
    """Whether the changed rows are all one example's: a block of them, or each so many-th."""
    return bool((changed // rows == row).all() or (changed % count == row).all())


def distinct_batch_size(most: int, sizes: Iterable[int]) -> int:
    """Return how many examples are best to find mixing with: so many that no other dimension can be taken for the examples'."""
    others = {size for size in sizes if size > 1}
    fitting = (
        count
        for count in range(min(most, _LARGEST_COUNT), _SMALLEST_COUNT - 1, -1)
        if all(size % count for size in others)
    )
    return next(fitting, most)


def _place_and_layer(names: Mapping[int, str], shown: Callable[[str], str]) -> tuple[str | None, str | None]:
    """Return the innermost line of the user's that is running, and the innermost layer."""
    place, layer = None, None
    for frame, line in walk_stack(sys._getframe(2)):
        code = frame.f_code
        if (
            layer is None
            and code.co_name == "_call_impl"
            and isinstance(frame.f_locals.get("self"), nn.Module)
        ):
            module = frame.f_locals["self"]
            name, kind = names.get(id(module), ""), type(module).__name__
            layer = f"{name} ({kind})" if name else kind
        if place is None and not is_library_file(code.co_filename):
            place = f"{shown(code.co_filename)}:{line}"
        if place and layer:
            break
    return place, layer


def _relative_path(filename: str) -> str:
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return Path(filename).name
