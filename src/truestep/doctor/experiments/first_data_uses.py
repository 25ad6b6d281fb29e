# SPDX-License-Identifier: Apache-2.0
"""Tensors of data at their first use: as an argument of a module, or of an operation beside what comes of a module's state."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from truestep.core.text_formatting import a_type
from truestep.doctor.experiments.batch_leaf_usage import (
    address_of,
    all_parameters_and_buffers,
    tensors_within,
)
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.runtime.user_code_line import watched_user_place

# these keep the order of the numbers, so that a batch's rows are blocks of them
_FORMS = frozenset(
    {"view", "reshape", "flatten", "ravel", "contiguous", "to", "long", "float", "double", "int"}
)


@dataclass
class DataUse:
    """A tensor of data that was used for the first time in a step."""

    shape: list[int]
    rows: int  # of which its numbers are blocks, in their order
    digest: str
    place: str
    varies: bool  # whether the rows differ
    counts_up: bool = False  # whether it numbers the rows of what it is an index of
    has_graph: bool = False  # whether something with gradients was computed with it
    reaches_loss: bool = False


class DataUseFinder(TorchFunctionMode):
    """Finds each tensor of data when it is first used; every one gets a memory of its own, so that no view of it follows.

    Args:
        trained: what optimizers hold; the state of modules is found.
        used: is given the number and the use of each tensor, and the tensor, before it is used.
    """

    def __init__(self, trained: Iterable[Tensor], used: Callable[[int, DataUse, Tensor], None]) -> None:
        super().__init__()
        self.found: list[DataUse] = []
        self.rests = False  # within an optimizer's step
        self.why_not: str | None = None
        self._used = used
        self._state = [*trained, *all_parameters_and_buffers()]  # kept, so that no address comes again
        self._addresses = {address_of(each) for each in self._state} - {None}
        self._origins: dict[int | None, set[int]] = {}  # the uses that a tensor comes of, by its address
        self._rows: dict[int, int] = {}  # of what a tensor is a form of, by its identity
        self._kept: list[Any] = []  # so that no address and no identity comes again

    def begin_again(self) -> None:
        """Forget what was computed: another step begins."""
        self.found = []
        self._origins.clear()
        self._rows.clear()
        self._kept.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.rests:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        given = list(tensors_within((args, kwargs)))
        if not any(map(self._is_model_tensor, given)):
            result = func(*args, **kwargs)
            self._note_row_count(name, given, list(tensors_within(result)))
            return result
        indices = args[1] if name == "__getitem__" else ()
        first = indices[0] if isinstance(indices, tuple) and indices else None
        for each in given:
            self._record_first_use(each, is_index=each is first)
        result = func(*args, **kwargs)
        changed = given[:1] if name == "__setitem__" or name.endswith("_") else []
        self._note_origins(given, [*tensors_within(result), *changed])
        return result

    def called(self, module: nn.Module, given: Any) -> None:
        """Take note of what a module is called with."""
        if self.rests:
            return
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        self._state += (each for each in own if address_of(each) not in self._addresses)
        self._addresses |= {address_of(each) for each in own} - {None}
        tensors = list(tensors_within(given))
        has_state = bool(own) or next(module.parameters(), None) is not None
        if has_state or any(map(self._is_model_tensor, tensors)):
            for each in tensors:
                self._record_first_use(each)

    def goes_backward(self, roots: Iterable[Any]) -> None:
        """Take note of a loss."""
        for root in roots:
            for number in self._origins.get(address_of(root), ()):
                self.found[number].reaches_loss = True

    def _is_model_tensor(self, given: Tensor) -> bool:
        address = address_of(given)
        return isinstance(given, nn.Parameter) or address in self._addresses or address in self._origins

    def _note_row_count(self, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        if name in _FORMS and made and made[0].ndim and given and given[0].ndim:
            self._rows[id(made[0])] = min(self._rows.get(id(given[0]), len(given[0])), len(made[0]))
            self._kept.append(made[0])

    def _note_origins(self, given: list[Tensor], made: list[Tensor]) -> None:
        origins = set().union(*(self._origins.get(address_of(each), ()) for each in given))
        for each in made:
            address = address_of(each)
            if address is not None and address not in self._addresses:
                if address not in self._origins:
                    self._kept.append(each.untyped_storage())
                self._origins.setdefault(address, set()).update(origins)
        if any(each.requires_grad for each in made):
            for number in origins:
                self.found[number].has_graph = True

    def _record_first_use(self, given: Tensor, *, is_index: bool = False) -> None:
        if self._is_model_tensor(given) or given.numel() < 2:  # one number has no rows
            return
        with unseen():
            if given.layout is not torch.strided or given.is_nested or type(given) is not Tensor:
                self.why_not = f"{a_type(given)} of layout {given.layout}"
            elif given.grad_fn is not None:
                self.why_not = "a tensor that has a graph from before"
            else:
                self.found.append(self._make_data_use(given, is_index))
                given.data = given.detach().clone()
        if self.why_not is not None:
            return
        self._used(len(self.found) - 1, self.found[-1], given)
        self._origins[address_of(given)] = {len(self.found) - 1}
        self._kept.append(given.untyped_storage())

    def _make_data_use(self, given: Tensor, is_index: bool) -> DataUse:
        place = watched_user_place()
        numbers = given.detach().contiguous()
        rows = self._rows.get(id(given), len(given))
        blocks = numbers.reshape(rows, -1)
        use = DataUse(
            list(given.shape),
            rows,
            hashlib.sha256(numbers.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest(),
            f"{place.path}:{place.line}",
            varies=bool((blocks[1:] != blocks[:-1]).any()),
        )
        use.counts_up = is_index and given.ndim == 1 and given.tolist() == list(range(len(given)))
        return use
