# SPDX-License-Identifier: Apache-2.0
"""What takes the memory, at the moment it ran out: the largest live tensors with their holders, other processes.

A program that ran out of memory may hold hundreds of thousands of tensors: only the large ones are looked into.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from truestep.core.text_formatting import bytes_text, plural
from truestep.explainer.crash import Crash
from truestep.explainer.run_sentences import name_of_parameter_in_models
from truestep.explainer.source import is_name_only_growing_in_loop
from truestep.explainer.values import format_shape_tuple, is_tensor_at_crash, torch_if_imported

_KEYS = re.compile(r"""\[(['"]).*?\1\]""")
_MIN_BYTES = 2**20
_MAX_ASKED = 10_000  # small tensors whose storages are looked at
_MAX_ITEMS = 10_000  # of one container that are compared with a tensor
_MAX_SECONDS = 0.1  # for the search through the garbage collector


@dataclass(frozen=True)
class LiveTensorsAtCrash:
    """The tensors that Python sees: their bytes together, and the large ones."""

    num_bytes: int  # views of one tensor count once; of many small ones an estimate
    large: tuple[Any, ...]

    @classmethod
    def now(cls) -> "LiveTensorsAtCrash":
        """Ask each tensor for its size alone, and some of the small ones for their storage."""
        torch = torch_if_imported()
        if torch is None:
            return cls(0, ())
        from truestep.machine.memory.tensors import live_tensors

        with torch._C.DisableTorchFunctionSubclass():
            tensors = live_tensors()
            try:
                sizes = _base_storage_bytes(tensors)
            except (RuntimeError, NotImplementedError):
                tensors = [tensor for tensor in tensors if _has_size(tensor)]
                sizes = _base_storage_bytes(tensors)
            large = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size >= _MIN_BYTES]
            small = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size < _MIN_BYTES]
            asked = small[:: max(1, len(small) // _MAX_ASKED)]
            num_bytes = _storage_bytes(large) + _storage_bytes(asked) * len(small) // max(1, len(asked))
        return cls(num_bytes, tuple(large))


def _base_storage_bytes(tensors: list[Any]) -> list[int]:
    """Return the bytes of what each tensor is a view of, by the cheapest questions there are."""
    return [tensor.nbytes if (base := tensor._base) is None else base.nbytes for tensor in tensors]


def _has_size(tensor: Any) -> bool:
    """Whether a tensor has a size: sparse and wrapper tensors have none."""
    try:
        _base_storage_bytes([tensor])
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _storage_bytes(tensors: list[Any]) -> int:
    """Return the bytes of some tensors' storages, each counted once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        with suppress(RuntimeError, NotImplementedError):
            storage = tensor.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def largest_tensors_at_crash(crash: Crash, alive: LiveTensorsAtCrash, num: int = 2) -> str:
    """Return the largest tensors that Python sees, on accelerators if there are any, with what holds each."""
    from truestep.machine.memory.tensors import LiveStorages, describe_storage

    storages = LiveStorages(alive.large)
    keys = [key for key in storages.largest() if storages.storages[key].nbytes() >= _MIN_BYTES]
    on_cards = [key for key in keys if storages.storages[key].device.type != "cpu"]
    shown = []
    for key in (on_cards or keys)[:num]:
        each = describe_storage(storages.tensors[key], storages.storages[key], ())
        holder = _variable_holding_tensors(crash, storages.tensors[key]) or _holder_found_by_gc(
            storages, key, alive
        )
        by = f" by {holder}" if holder else ""
        shown.append(
            f"{each.dtype} {format_shape_tuple(each.shape)}, {bytes_text(each.storage_bytes)}, held{by}"
        )
    return "; ".join(shown)


def _variable_holding_tensors(crash: Crash, tensors: list[Any]) -> str:
    """Return the user's variable that holds one of these tensors, itself or in a container or model."""
    wanted = {id(tensor) for tensor in tensors}
    for frame, name, value in crash.users_locals():
        if id(value) in wanted:
            return f"`{name}` in {frame.function}"
        items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
        if any(id(item) in wanted for item in islice(items, _MAX_ITEMS)):
            return f"`{name}[...]` in {frame.function}"
    return name_of_parameter_in_models(crash, tensors[0]) or ""


def _holder_found_by_gc(storages: Any, key: int, alive: LiveTensorsAtCrash) -> str:
    """Return what the garbage collector finds, in the time there is."""
    from truestep.machine.memory.object_holders import ReferrerPathFinder

    own = [alive.large, storages.tensors, storages.storages, storages.owners, *storages.tensors.values()]
    paths = ReferrerPathFinder(ignored=own, max_seconds=_MAX_SECONDS).paths_to(storages.tensors[key][0])
    return "" if not paths or paths[0].startswith("not found") else _KEYS.sub("[...]", paths[0])


def processes_on_card_at_crash(num: int = 3) -> str:
    """Return the other processes that hold memory of cards, most first."""
    from truestep.machine.gpus.read import read_gpus
    from truestep.machine.memory.processes import holding_processes

    found = [each.process for each in holding_processes(read_gpus()) if not each.own]
    shown = [
        f"{each.pid}{f' of {each.user}' if each.user else ''} {bytes_text(each.memory_used_bytes)}"
        for each in found
        if each.memory_used_bytes
    ]
    return ", ".join(shown[:num])


_MANY = 3  # two may be the last step's and this one's
_LONGEST_WALK = 64  # a sum over an epoch has thousands of nodes, and "at least 64" says as much


def retained_graphs_facts(crash: Crash) -> dict[str, str]:
    """Return what keeps the graphs of earlier steps alive, by name and place, and what to do: facts of a case."""
    for frame, name, value in crash.users_locals():
        # A loss of several terms is such a sum too: only what a loop adds to, and does not set anew, is kept from step to step.
        is_sum = is_tensor_at_crash(value) and value.dim() == 0 and _num_summands(value) >= _MANY
        if is_sum and is_name_only_growing_in_loop(frame.path, name, frame.line):
            what = f"is a sum of at least {_num_summands(value)} losses with all of their graphs."
            fix = f"add numbers, not tensors: {name} += loss.item() (or loss.detach())."
            return {"kept": f"`{name}` in {frame.function} ({frame.place}) {what}", "kept_fix": fix}
        items = list(value.values()) if type(value) is dict else value if type(value) is list else []
        graphs = _tensors_with_grad_fn(items)
        if len(graphs) >= _MANY:
            what = f"holds {plural(len(graphs), 'tensor with its graph', 'tensors with their graphs')}."
            fix = f"keep {name} without graphs: append(x.detach().cpu()), or x.item() for numbers."
            return {"kept": f"`{name}` in {frame.function} ({frame.place}) {what}", "kept_fix": fix}
    return {}


def _tensors_with_grad_fn(items: list[Any]) -> list[Any]:
    """Return the tensors with a graph; each type is judged once, as lists may be of any length."""
    torch = torch_if_imported()
    kinds = {kind for kind in set(map(type, items)) if torch is not None and issubclass(kind, torch.Tensor)}
    if not kinds:
        return []
    with torch._C.DisableTorchFunctionSubclass():
        return [item for item in items if type(item) in kinds and item.grad_fn is not None]


def _num_summands(tensor: Any) -> int:
    """Return how many tensors a scalar is the sum of, as `total = total + loss` makes one after the other."""
    node, num = tensor.grad_fn, 1
    while node is not None and node.name() == "AddBackward0" and num < _LONGEST_WALK:
        # A number that is added has no node.
        inputs = [each for each, _ in node.next_functions if each is not None]
        following = [each for each in inputs if each.name() == "AddBackward0"]
        num += len(inputs) - 1 if len(inputs) > 1 else 0
        node = following[0] if following else None
    return num
