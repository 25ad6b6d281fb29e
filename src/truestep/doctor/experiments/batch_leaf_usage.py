# SPDX-License-Identifier: Apache-2.0
"""What a step sees of the data: which leaves of its batch operations are given, and rows that were there before it."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from truestep.core.state_trees import tree_leaves
from truestep.doctor.relations.examples import Examples
from truestep.doctor.runtime.user_code_line import path_in_finding, watched_user_place

_COMPARISONS = frozenset(
    {
        "eq",
        "ne",
        "__eq__",
        "__ne__",
        "eq_",
        "size",
        "__len__",
        "__get__",
        "item",
        "tolist",
        "to",
        "view",
        "cpu",
    }
    | {"dim"}
)
_JOINING = frozenset({"cat", "concat", "concatenate", "stack"})


class DataFlowTracker(TorchFunctionMode):
    """Follows, from the batch on, which tensors operations are given.

    Args:
        examples: the batch as it is handed over, with its leaves.
        trained: the tensors that optimizers hold; those of modules are found.
    """

    def __init__(self, examples: Examples, trained: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.rests = False  # while another batch than this one is used, or a further one is loaded
        self._computed: set[str] = set()
        self._compared: set[str] = set()
        self.operations: dict[str, set[str]] = {}  # that compute with a leaf
        self.foreign: str | None = None
        self._count = examples.count
        self._leaves = {
            address_of(part): name for name, leaf in examples.leaves.items() for _, part in tree_leaves(leaf)
        }
        self._leaves.pop(None, None)
        self._states = {address_of(each) for each in (*trained, *all_parameters_and_buffers())}
        self._known = set(self._states)
        self._older = dict[int | None, str]()  # rows from before the batch, and what comes of them
        self._kept: list[Any] = [*examples.leaves.values()]  # so that no address comes again

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        given = list(tensors_within((args, kwargs)))
        used = [found for each in given if (found := self._batch_leaf_name(each)) is not None]
        older = None if self.rests else self._older_rows(given)
        result = func(*args, **(kwargs or {}))
        made = list(tensors_within(result))
        # a loader's parts of one item
        if name in _JOINING and len(used) == len(given) and len(set(used)) == 1:
            self._kept += made
            self._leaves |= {address_of(each): used[0] for each in made}
        for each in used:
            # a part or a form of an item lies where the item does, and is seen again where something is computed with it
            is_form = bool(made) and all(self._leaves.get(address_of(one)) == each for one in made)
            if is_form or name in _COMPARISONS:
                self._compared.add(each)
                continue
            self._computed.add(each)
            self.operations.setdefault(each, set()).add(_operation_name(name, args, kwargs))
        for new in made:
            self._note_result(new, older)
        if older is not None and (name == "__setitem__" or _is_in_place(name)) and given:
            self._note_older_rows(given[0], older)
        return result

    def note_further_batch(self, batch: Any) -> None:
        """Take the tensors of a further batch for what is handed over, wherever they were loaded."""
        for each in tensors_within(batch):
            self._note_result(each, None)

    def _older_rows(self, given: Sequence[Tensor]) -> str | None:
        """Return the rows from before the batch that any of these holds or comes of."""
        return next((found for each in given if (found := self._older.get(address_of(each)))), None)

    def _note_result(self, result: Tensor, older: str | None) -> None:
        address = address_of(result)
        if address is not None and address not in self._known and address not in self._leaves:
            self._known.add(address)
            self._kept.append(result.untyped_storage())
            if older is not None:
                self._note_older_rows(result, older)

    def _note_older_rows(self, result: Tensor, older: str) -> None:
        """Note that a tensor comes of rows from before; only where it has a graph something is trained by them."""
        address = address_of(result)
        if address is not None and address not in self._states:
            self._older[address] = older
            if result.requires_grad and self.foreign is None:
                self.foreign = older

    @property
    def touched(self) -> list[str]:
        """The leaves that operations were given."""
        return sorted(self._computed | self._compared)

    @property
    def compared(self) -> list[str]:
        """The leaves that comparisons were given, and maybe changes of form, but no other operation."""
        return sorted(self._compared - self._computed)

    def _batch_leaf_name(self, given: Tensor) -> str | None:
        """Return the leaf of the batch that a tensor is; note one that is foreign."""
        if (name := self._leaves.get(address_of(given))) is not None:
            return name
        self._note_foreign_tensor(given)
        return None

    def _note_foreign_tensor(self, given: Tensor) -> None:
        address = address_of(given)
        if address in self._known or isinstance(given, nn.Parameter) or self.foreign is not None:
            return
        self._known.add(address)
        self._kept.append(given.untyped_storage() if address is not None else None)
        if self.rests:
            return
        if given.ndim and given.shape[0] == self._count and self._count > 1 and _rows_differ(given):
            place = watched_user_place()
            where = f"{path_in_finding(place.path)}:{place.line}"
            self._older[address] = f"a tensor of shape {tuple(given.shape)} from before the batch ({where})"
            if given.requires_grad:
                self.foreign = self._older[address]


def _operation_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    """Return an operation's name; an embedding in which one number stands for padding is told from others."""
    given = {**dict(zip(("input", "weight", "padding_idx"), args, strict=False)), **(kwargs or {})}
    return f"{name} with padding" if name == "embedding" and given.get("padding_idx") is not None else name


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.startswith("__")


def _rows_differ(given: Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        rows = given.detach()
        return bool((rows[1:] != rows[:-1]).any())


def tensors_within(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of any nesting, each as it lies in memory."""
    return (_unwrap_functorch(leaf) for _, leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _unwrap_functorch(tensor: Tensor) -> Tensor:
    """Return what `torch.func` has wrapped, once for each of its transforms: the wrapper has no memory of its own."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def address_of(leaf: Any) -> int | None:
    """Return where the numbers of a tensor or an array lie, None for what has none there."""
    if isinstance(leaf, np.ndarray):
        return int(leaf.__array_interface__["data"][0])
    if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided or leaf.is_meta:
        return None
    leaf = _unwrap_functorch(leaf)
    with torch._C.DisableTorchFunction():
        return leaf.untyped_storage().data_ptr() or None


def all_parameters_and_buffers() -> Iterator[Tensor]:
    """Yield parameters and buffers of all modules there are."""
    for found in gc.get_objects():
        if issubclass(type(found), nn.Module):
            yield from (each for each in found.__dict__.get("_buffers", {}).values() if each is not None)
            yield from (each for each in found.__dict__.get("_parameters", {}).values() if each is not None)
