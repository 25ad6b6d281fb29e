# SPDX-License-Identifier: Apache-2.0
"""What takes the memory, at the moment it ran out: the largest live tensors with their holders, other processes."""

import re

from truestep.core.wording import byte_size
from truestep.explainer.values import shape_text

_KEYS = re.compile(r"""\[(['"]).*?\1\]""")
_MIN_BYTES = 2**20


def largest_holders(num: int = 2) -> str:
    """Return the largest tensors that Python sees, on accelerators if there are any, with what holds each."""
    from truestep.machine.memory.free import largest_tensors
    from truestep.machine.memory.tensors import Storages

    storages = Storages()
    keys = [key for key in storages.largest() if storages.storages[key].nbytes() >= _MIN_BYTES]
    on_cards = [key for key in keys if storages.storages[key].device.type != "cpu"]
    shown = []
    for each in largest_tensors(storages, (on_cards or keys)[:num]):
        by = f" by {_without_strings(each.held_by[0])}" if each.held_by else ""
        shown.append(f"{each.dtype} {shape_text(each.shape)}, {byte_size(each.storage_bytes)}, held{by}")
    return "; ".join(shown)


def live_tensor_bytes() -> int:
    """Return how many bytes the tensors hold that Python sees."""
    from truestep.machine.memory.tensors import Storages

    return sum(storage.nbytes() for storage in Storages().storages.values())


def _without_strings(way: str) -> str:
    """Leave the keys of dicts out: they may be anything."""
    return _KEYS.sub("[...]", way)


def other_processes(num: int = 3) -> str:
    """Return the other processes that hold memory of cards, most first."""
    from truestep.machine.gpus.read import read_gpus
    from truestep.machine.memory.processes import holding_processes

    found = [each.process for each in holding_processes(read_gpus()) if not each.own]
    shown = [
        f"{each.pid}{f' of {each.user}' if each.user else ''} {byte_size(each.memory_used_bytes)}"
        for each in found
        if each.memory_used_bytes
    ]
    return ", ".join(shown[:num])
